//! The client's machine with the world around it: sockets, threads that wait, a clock.
//!
//! Everything that decides is in [`vinga_client_core::Client`], behind one lock that is held for moments. Around it:
//!
//! - *Whoever begins an operation sends it.* A thread that finds output takes it, and while it sends, others gather
//!   theirs; it goes on until there is none. Nobody waits for the socket with the lock held.
//! - *Whoever waits reads.* Reading is a role that one thread has at a time (`reader`). A thread that waits for its
//!   operation and finds the role free takes it: it polls the sockets, hands what arrives to the machine and wakes the
//!   others, until its own operation is done; then it hands the role over to one that still waits. So a lone caller
//!   does its round trip all by itself, without another thread.
//! - *Shared memory* with a data node on this machine (`local`) is read and written by whoever holds the lock; who
//!   waits looks there first.
//! - *One thread of our own* (`io_thread`) does what nobody waits for: it reads for futures on foreign executors, and
//!   says that we are alive when there is nothing else to say. It sleeps otherwise.
//!
//! Both faces of the library are the same futures. The blocking one runs them with [`Engine::block_on`], whose thread
//! takes the reader's role while its future waits.

mod connector;
mod event_set;
mod io_thread;
mod local;
mod reader;
mod sleep;
mod waiting;

pub(crate) use connector::Prover;
use event_set::{EventSet, Watched};
use local::{HitRate, Shared};
use reader::{Reader, Waiter};
use sleep::Sleep;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{io, io::Write};
use vinga_client_core::{Client, Command, LinkId, Readiness, Result, Settings, Span, Tick, Token};
use vinga_local::Socket;
use vinga_local::link::signal;
use vinga_local::time_slices::TimeSlices;
pub use waiting::answers as answers_on_this_thread;
use waiting::{Parking, ThreadWaker, Waiters};

/// A client's machine with its sockets and the threads that wait for it.
pub(crate) struct Engine {
    state: Mutex<State>,
    reader: Mutex<Reader>,
    /// Writing to it wakes the reader.
    alarm: UnixStream,
    /// Proves the key of the cluster.
    prover: Option<Prover>,
    io_thread: OnceLock<Thread>,
    /// For threads that wait in a loop of their own; made when the first one asks.
    events: OnceLock<EventSet>,
    began: Instant,
    /// How long the reader looks again and again before it sleeps.
    spin: Span,
    /// There is, or has been, a connection by shared memory.
    has_shared: AtomicBool,
    /// The reader sleeps in poll, or is about to and will look once more whether it was woken.
    reader_sleeps: AtomicBool,
}

struct State {
    client: Client,
    links: Vec<LinkState>,
    /// Raised whenever the reader has to look at the list of sockets again.
    sockets_version: u64,
    /// What is in [`Engine::events`], and the state of `sockets_version` that it follows.
    watched: Vec<Watched>,
    watched_version: u64,
    waiters: Waiters,
    parking: Parking,
    /// Who waits for the client to be connected, or not to be.
    readiness_waiters: Vec<Waker>,
    /// By the time when they are due, and a number.
    timers: BTreeMap<(Tick, u64), Waker>,
    timers_begun: u64,
    /// Empty buffers for output.
    buffers: Vec<Vec<u8>>,
    /// Wakes the future of the reader that sleeps in poll, if it has one.
    reader_waker: Option<Waker>,
    /// The connections by shared memory.
    locals: Vec<LinkId>,
    /// Threads that look into shared memory again and again. While there are any, no data node has to wake us.
    pollers: u32,
    /// Whether looking pays.
    hit_rate: HitRate,
    /// Whether those who look lose time slices.
    time_slices: TimeSlices,
    /// Kept for the next who finds something in shared memory.
    local_wakers: Vec<Waker>,
    /// Data nodes that must be woken, when the lock has been let go.
    events: Vec<Arc<OwnedFd>>,
    /// The I/O thread knows that it is needed.
    io_attends: bool,
    /// Nobody uses the engine any more; how long it may take to disconnect.
    leaves_until: Option<Tick>,
    /// All connections are closed, for ever.
    is_closed: bool,
}

#[derive(Default)]
struct LinkState {
    socket: Option<Arc<Socket>>,
    way: Way,
    /// Which opening of the connection this is, so that news of an earlier one is recognised.
    opening: u64,
    /// What the socket could not take, from a byte on.
    unsent: Vec<u8>,
    unsent_from: usize,
}

/// How the bytes of a connection go.
#[derive(Default)]
enum Way {
    /// By the socket.
    #[default]
    Socket,
    /// By the socket; but the data node has been offered to share memory and has not answered.
    Offered,
    /// By shared memory.
    Shared(Shared),
}

/// How long the reader sleeps at most while operations are under way: those that were held back go then.
const BUSY_SLEEP: Span = Span(1000);
/// How long anybody sleeps at most.
const LONGEST_SLEEP: Span = Span::from_millis(250);
/// How long data nodes that are just being greeted may take to answer, so that the disconnect notice can be sent to
/// them.
const LEAVING_MAX: Span = Span::from_millis(1000);
/// Empty buffers that are kept.
const BUFFERS_MAX: usize = 16;
/// Bytes of a buffer that is kept.
const BUFFER_BYTES_MAX: usize = 4 << 20;

const NO_PANIC: &str = "no thread has panicked while it held the client";

impl Engine {
    /// An engine for data nodes at the addresses of the settings. It begins to connect at once.
    pub fn start(settings: Settings, prover: Option<Prover>, spin: Span) -> io::Result<Arc<Self>> {
        let (alarm, alarmed) = UnixStream::pair()?;
        alarm.set_nonblocking(true)?;
        alarmed.set_nonblocking(true)?;
        let engine = Arc::new(Engine {
            state: Mutex::new(State {
                client: Client::new(settings),
                links: Vec::new(),
                sockets_version: 0,
                watched: Vec::new(),
                watched_version: 0,
                waiters: Waiters::default(),
                parking: Parking::default(),
                readiness_waiters: Vec::new(),
                timers: BTreeMap::new(),
                timers_begun: 0,
                buffers: Vec::new(),
                reader_waker: None,
                locals: Vec::new(),
                pollers: 0,
                hit_rate: HitRate::default(),
                time_slices: TimeSlices::default(),
                local_wakers: Vec::new(),
                events: Vec::new(),
                io_attends: false,
                leaves_until: None,
                is_closed: false,
            }),
            reader: Mutex::new(Reader::new(alarmed)),
            alarm,
            prover,
            io_thread: OnceLock::new(),
            events: OnceLock::new(),
            began: Instant::now(),
            spin,
            has_shared: AtomicBool::new(false),
            reader_sleeps: AtomicBool::new(false),
        });
        io_thread::start(&engine)?;
        Ok(engine)
    }

    /// Disconnects and closes all connections; nothing ends any more. Where that takes a moment, because a data node is
    /// just being greeted, the I/O thread does it.
    pub fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        state.leaves_until = Some(self.now() + LEAVING_MAX);
        state.client.on_time(self.now());
        state.client.leave();
        state = self.write_out(state);
        state.end_if_left(self.now());
        let_go(state);
        self.wake_io_thread();
    }

    /// Begins something, and sends what it wants sent.
    #[inline]
    pub fn submit<T>(self: &Arc<Self>, begin: impl FnOnce(&mut Client) -> T) -> T {
        let mut state = self.lock();
        state.client.on_time(self.now());
        let begun = begin(&mut state.client);
        self.flush(state, &mut Vec::new());
        begun
    }

    /// Takes the result of something, or lets `waker` be woken when there is news of it.
    #[inline]
    pub fn poll<T>(
        self: &Arc<Self>,
        token: Token,
        waker: &Waker,
        take: impl FnOnce(&mut Client) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.lock();
        if let Some(result) = take(&mut state.client) {
            waiting::note_answer();
            let before = state.waiters.remove(token);
            if state.client.has_output() {
                self.flush(state, &mut Vec::new());
            } else {
                let_go(state);
            }
            drop(before);
            return Poll::Ready(result);
        }
        let before = state.waiters.insert(token, waker, !waiting::is_blocking());
        self.call_io_thread_if_needed(state);
        drop(before);
        Poll::Pending
    }

    /// Takes the result of something if it is there.
    pub fn try_take<T>(&self, take: impl FnOnce(&mut Client) -> Option<T>) -> Option<T> {
        take(&mut self.lock().client)
    }

    /// Nobody waits for it any more.
    pub fn cancel(self: &Arc<Self>, token: Token) {
        let mut state = self.lock();
        let waker = state.waiters.remove(token);
        state.client.cancel(token);
        state = self.write_out(state);
        self.call_io_thread_if_needed(state);
        drop(waker);
    }

    /// Looks at the machine.
    pub fn look<T>(&self, look: impl FnOnce(&mut Client) -> T) -> T {
        look(&mut self.lock().client)
    }

    /// Ready when the client is connected or was found not to be connectable.
    pub fn poll_readiness(&self, waker: &Waker) -> Poll<Readiness> {
        let mut state = self.lock();
        match state.client.readiness() {
            Readiness::Connecting => {
                if !state.readiness_waiters.iter().any(|known| known.will_wake(waker)) {
                    state.readiness_waiters.push(waker.clone());
                }
                Poll::Pending
            }
            known => Poll::Ready(known),
        }
    }

    /// Ready when so much time has passed since the engine began.
    pub fn sleep_until(self: &Arc<Self>, until: Tick) -> Sleep {
        Sleep::new(self, until)
    }

    /// Time since the engine began.
    pub fn now(&self) -> Tick {
        Tick(self.began.elapsed().as_micros() as u64)
    }

    /// Runs a future on this thread, which reads from the sockets while the future waits.
    pub fn block_on<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        let thread = ThreadWaker::take();
        let waker = thread.waker();
        let mut context = Context::from_waker(&waker);
        let output = loop {
            let polled = waiting::blocking(|| future.as_mut().poll(&mut context));
            match polled {
                Poll::Ready(output) => break output,
                Poll::Pending => self.read_until(&waker, || thread.take_woken()),
            }
        };
        thread.give_back();
        output
    }

    /// Reads once, if nobody else does: for callers that look again and again whether something is done.
    pub fn drive(self: &Arc<Self>, timeout: Duration) {
        match self.try_read() {
            Some(mut reader) => {
                self.read_turn(&mut reader, Waiter::NOBODY, Span(timeout.as_micros() as u64));
                drop(reader);
                self.hand_over();
            }
            None => thread::sleep(timeout.min(Duration::from_micros(50))),
        }
    }

    /// Reads, or waits for whoever reads, until `done` says so once.
    ///
    /// Whoever leaves hands over: a thread that has read, and one that was parked, too, as it may have been handed the
    /// role in the moment in which its own operation was done.
    fn read_until(self: &Arc<Self>, waker: &Waker, done: impl Fn() -> bool) {
        let mut is_done = done() || self.look_until(&done);
        if is_done {
            return;
        }
        while !is_done {
            if let Some(mut reader) = self.try_read() {
                while !is_done {
                    let waiter = Waiter { waker: Some(waker), done: &done };
                    is_done = self.read_turn(&mut reader, waiter, LONGEST_SLEEP) || done();
                }
                continue;
            }
            let place = self.lock().parking.enter();
            // If the role was given up just before, nobody will wake this thread for it.
            let is_free = self.try_read().is_some();
            is_done = done();
            if !is_free && !is_done {
                thread::park_timeout(Duration::from_millis(100));
                is_done = done();
            }
            self.lock().parking.leave(place);
        }
        self.hand_over();
    }

    fn try_read(&self) -> Option<MutexGuard<'_, Reader>> {
        match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{NO_PANIC}"),
        }
    }

    /// Somebody else who waits has to read from now on, unless somebody does already: that thread hands over in its
    /// turn when it leaves, and each thread that is woken for nothing costs two switches.
    fn hand_over(&self) {
        if self.try_read().is_none() {
            return;
        }
        let state = self.lock();
        match state.parking.any() {
            Some(thread) => {
                drop(state);
                thread.unpark();
            }
            None if state.needs_io_thread() => {
                drop(state);
                self.wake_io_thread();
            }
            None => {}
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }

    /// Does what the machine wants after it was given something; wakes those whom its news is for.
    fn flush<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, wakers: &mut Vec<Waker>) {
        state = self.write_out(state);
        state.take_wakers(self, wakers);
        self.call_io_thread_if_needed(state);
        wakers.iter().for_each(Waker::wake_by_ref);
        // The reader is not woken from poll by its waker alone. Either it is seen here that it sleeps, or it sees
        // before it does that it was woken.
        if !wakers.is_empty() && self.reader_sleeps.load(Ordering::SeqCst) {
            let is_for_reader = |reader: &Waker| wakers.iter().any(|one| one.will_wake(reader));
            if self.lock().reader_waker.as_ref().is_some_and(is_for_reader) {
                self.raise_alarm();
            }
        }
        wakers.clear();
    }

    fn call_io_thread_if_needed(&self, mut state: MutexGuard<'_, State>) {
        if !state.io_attends && state.needs_io_thread() {
            state.io_attends = true;
            let_go(state);
            self.wake_io_thread();
        } else {
            let_go(state);
        }
    }

    fn wake_io_thread(&self) {
        if let Some(thread) = self.io_thread.get() {
            thread.unpark();
        }
    }

    /// Opens and closes connections as the machine wants.
    fn obey(self: &Arc<Self>, state: &mut State) {
        while let Some(command) = state.client.next_command() {
            match command {
                Command::Open(link) => {
                    state.make_room(link);
                    state.close(link);
                    let address = state.client.address(link.endpoint()).to_owned();
                    connector::open(self, link, address, state.links[usize::from(link.0)].opening);
                }
                Command::Close(link) => {
                    state.close(link);
                    state.sockets_version += 1;
                }
            }
        }
    }

    /// Sends what is to be sent. The lock is let go while a socket is written to; what others begin meanwhile is sent
    /// behind it.
    fn write_out<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.obey(&mut state);
        let mut buffer = state.buffers.pop().unwrap_or_default();
        while let Some(link) = state.client.next_output(&mut buffer) {
            if state.is_shared(link) {
                self.write_shared(&mut state, link, &mut buffer);
                buffer.clear();
                continue;
            }
            let place = &state.links[usize::from(link.0)];
            let opening = place.opening;
            let Some(socket) = place.socket.clone() else {
                buffer.clear();
                continue;
            };
            state.client.set_blocked(link, true);
            drop(state);
            let sent = write(&socket, &buffer);
            state = self.lock();
            let place = &mut state.links[usize::from(link.0)];
            if place.opening == opening {
                match sent {
                    Ok(count) if count == buffer.len() => state.client.set_blocked(link, false),
                    Ok(count) => {
                        place.unsent = std::mem::take(&mut buffer);
                        place.unsent_from = count;
                        state.sockets_version += 1;
                        self.alarm_reader();
                    }
                    Err(error) if ends_reading(&error) => {}
                    Err(error) => {
                        state.client.on_broken(link, error.to_string());
                        self.obey(&mut state);
                    }
                }
            }
            buffer.clear();
        }
        if state.buffers.len() < BUFFERS_MAX && buffer.capacity() <= BUFFER_BYTES_MAX {
            state.buffers.push(buffer);
        }
        state
    }

    /// The reader must look at its sockets again.
    fn alarm_reader(&self) {
        if self.reader_sleeps.load(Ordering::SeqCst) {
            self.raise_alarm();
        }
        self.raise_event();
    }

    fn raise_alarm(&self) {
        // If it can't be written, earlier alarms are still unheard.
        let _ = (&self.alarm).write(&[1]);
    }
}

/// Lets the lock go, and wakes the data nodes that have got something meanwhile and sleep.
#[inline]
fn let_go(mut state: MutexGuard<'_, State>) {
    if state.events.is_empty() {
        return;
    }
    let events = std::mem::take(&mut state.events);
    drop(state);
    events.iter().for_each(|event| signal(event));
}

impl State {
    /// Whether somebody waits who can't read himself.
    fn needs_io_thread(&self) -> bool {
        self.waiters.has_foreign() || self.client.wants_reader() || self.leaves_until.is_some()
    }

    /// Closes all connections if the disconnect notice was sent, or that takes too long.
    fn end_if_left(&mut self, now: Tick) {
        let has_left = self.client.has_left() && self.links.iter().all(|link| link.unsent.is_empty());
        if self.leaves_until.is_some_and(|until| now >= until || has_left) {
            self.is_closed = true;
            self.links.iter_mut().for_each(LinkState::close);
            self.locals.clear();
        }
    }

    /// There is a place for each connection that was ever to be opened: the cluster may give further addresses.
    fn make_room(&mut self, link: LinkId) {
        if self.links.len() <= usize::from(link.0) {
            self.links.resize_with(usize::from(link.0) + 1, LinkState::default);
        }
    }

    fn close(&mut self, link: LinkId) {
        self.links[usize::from(link.0)].close();
        self.locals.retain(|local| *local != link);
    }

    /// Gathers whom the news is for, whose time has come, and who waits for a connection.
    fn take_wakers(&mut self, engine: &Engine, wakers: &mut Vec<Waker>) {
        self.waiters.take(&mut self.client, wakers);
        if !self.readiness_waiters.is_empty() && self.client.readiness() != Readiness::Connecting {
            wakers.append(&mut self.readiness_waiters);
        }
        if !self.timers.is_empty() {
            let later = self.timers.split_off(&(engine.now() + Span(1), 0));
            wakers.extend(std::mem::replace(&mut self.timers, later).into_values());
        }
    }
}

impl LinkState {
    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.end();
        }
        self.way = Way::Socket;
        self.opening += 1;
        self.unsent = Vec::new();
    }
}

/// Writes as much as the socket takes.
fn write(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Whether a socket that has failed so when it was written to is found at its end when it is read: behind what has come
/// before, which counts.
fn ends_reading(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionReset
            | ConnectionAborted
            | TimedOut
            | HostUnreachable
            | NetworkUnreachable
            | NotConnected
    )
}

/// Polls a future of which this thread takes care while it waits.
pub(crate) fn poll_attended<F: Future + ?Sized>(
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<F::Output> {
    waiting::blocking(|| future.poll(context))
}

/// Keeps an engine running as long as anything that uses it lives.
pub(crate) struct Handle {
    pub engine: Arc<Engine>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl Handle {
    /// Waits until the client is connected.
    pub async fn connected(&self) -> Result<()> {
        match std::future::poll_fn(|cx| self.engine.poll_readiness(cx.waker())).await {
            Readiness::Failed(error) => Err(error),
            Readiness::Ready | Readiness::Connecting => Ok(()),
        }
    }
}
