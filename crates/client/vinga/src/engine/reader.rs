//! The reader's role: poll the sockets, hand what arrives to the machine.

use super::{BUSY_SLEEP, Engine, LONGEST_SLEEP, State, Way, ends_reading, write};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;
use vinga_client_core::{LinkId, Span, Tick};
use vinga_local::{ClientLink, First, Socket as Stream, receive_first};
use vinga_wire::frame::FRAME_BYTES_MAX;

const CLOSED: &str = "the data node has closed the connection";

/// Room for what arrives on one connection.
const BUFFER_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// What only the thread in the role touches.
pub struct Reader {
    sockets: Vec<Socket>,
    /// State of [`State::sockets_version`] when `sockets` was made.
    version: u64,
    alarmed: UnixStream,
    wakers: Vec<Waker>,
    /// Room for what is polled, empty between turns.
    polled: Vec<PollFd<'static>>,
    found: Vec<PollFlags>,
}

struct Socket {
    link: LinkId,
    opening: u64,
    stream: Arc<Stream>,
    carries: Carries,
    wants_to_write: bool,
    /// What has arrived and not been used, from the beginning on.
    buffer: Vec<u8>,
    filled: usize,
    event: Event,
}

/// What comes from a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    /// Frames.
    Frames,
    /// Shared memory, or frames.
    Offer,
    /// Bytes that wake, and its end: frames come by shared memory.
    Wakes,
}

/// What a turn has found on a socket.
enum Event {
    Nothing,
    /// Memory to share.
    Memory(Box<ClientLink>),
    /// Bytes in the buffer, or room to write.
    Ready,
    Broken(String),
}

impl Reader {
    pub fn new(alarmed: UnixStream) -> Self {
        Reader {
            sockets: Vec::new(),
            version: 0,
            alarmed,
            wakers: Vec::new(),
            polled: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Takes the present list of sockets over; those that are still open keep what has arrived.
    fn update(&mut self, state: &State) {
        let mut before = std::mem::take(&mut self.sockets);
        for (at, link) in state.links.iter().enumerate() {
            let Some(stream) = &link.socket else { continue };
            let known = before.iter().position(|s| usize::from(s.link.0) == at && s.opening == link.opening);
            let mut socket = match known {
                Some(known) => before.swap_remove(known),
                None => Socket {
                    link: LinkId(at as u16),
                    opening: link.opening,
                    stream: Arc::clone(stream),
                    carries: match link.way {
                        Way::Socket => Carries::Frames,
                        Way::Offered => Carries::Offer,
                        Way::Shared(_) => Carries::Wakes,
                    },
                    wants_to_write: false,
                    buffer: vec![0; BUFFER_BYTES],
                    filled: 0,
                    event: Event::Nothing,
                },
            };
            socket.wants_to_write = !link.unsent.is_empty() && socket.carries != Carries::Wakes;
            self.sockets.push(socket);
        }
        self.version = state.sockets_version;
    }

    /// Sleeps until a socket has something or the time is over, then reads.
    fn poll(&mut self, timeout: Span, spin: Span) {
        let mut events = emptied(std::mem::take(&mut self.polled));
        events.push(PollFd::new(&self.alarmed, PollFlags::IN));
        for socket in &self.sockets {
            let wanted = if socket.wants_to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            events.push(PollFd::new(&*socket.stream, wanted));
        }
        // A signal that interrupts it is as good as a time-out.
        let mut ready = |timeout| matches!(poll(&mut events, Some(&timespec(timeout))), Ok(1..));
        let spin = spin.min(timeout);
        let mut is_ready = false;
        if spin > Span(0) {
            let begin = Instant::now();
            while !is_ready && begin.elapsed().as_micros() < u128::from(spin.0) {
                is_ready = ready(Span(0));
            }
        }
        let is_ready = is_ready || ready(timeout - spin);
        self.found.clear();
        self.found.extend(events.iter().map(PollFd::revents));
        self.polled = emptied(events);
        if !is_ready {
            return;
        }
        if !self.found[0].is_empty() {
            let mut alarms = [0; 64];
            // It is only there to be emptied.
            let _ = self.alarmed.read(&mut alarms);
        }
        for (socket, found) in self.sockets.iter_mut().zip(&self.found[1..]) {
            if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                socket.read();
            } else if !found.is_empty() {
                socket.event = Event::Ready;
            }
        }
    }
}

/// The allocation of a list of borrowed sockets, for a list of others: `collect` keeps it, as the layout is the same.
fn emptied<'b>(mut events: Vec<PollFd<'_>>) -> Vec<PollFd<'b>> {
    events.clear();
    events.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

fn timespec(span: Span) -> Timespec {
    Timespec { tv_sec: (span.0 / 1_000_000) as _, tv_nsec: (span.0 % 1_000_000 * 1000) as _ }
}

impl Socket {
    fn read(&mut self) {
        match self.carries {
            Carries::Frames => self.read_frames(),
            Carries::Offer => {
                self.event = match receive_first(&self.stream, &mut self.buffer) {
                    Ok(First::Nothing) => Event::Nothing,
                    Ok(First::Bytes(count)) => {
                        self.carries = Carries::Frames;
                        self.filled = count;
                        return self.read_frames();
                    }
                    Ok(First::Memory(memory)) => {
                        self.carries = Carries::Wakes;
                        Event::Memory(memory)
                    }
                    Ok(First::Ended) => Event::Broken(CLOSED.into()),
                    Err(error) => Event::Broken(error.to_string()),
                }
            }
            Carries::Wakes => {
                self.event = match self.stream.discard() {
                    Ok(true) => Event::Ready,
                    Ok(false) => Event::Broken(CLOSED.into()),
                    Err(error) => Event::Broken(error.to_string()),
                }
            }
        }
    }

    fn read_frames(&mut self) {
        self.event = match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => Event::Broken(CLOSED.into()),
            Ok(count) => {
                self.filled += count;
                Event::Ready
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if self.filled > 0 {
                    Event::Ready
                } else {
                    Event::Nothing
                }
            }
            Err(error) => Event::Broken(error.to_string()),
        };
    }
}

impl Engine {
    /// One turn: sleep until something arrives (or so long at most), hand it over, send what follows, wake whom it is
    /// for. Says whether it has seen that what the caller waits for is done.
    pub(super) fn read_turn(
        self: &Arc<Self>,
        reader: &mut Reader,
        waiter: Waiter<'_>,
        longest: Span,
    ) -> bool {
        let mut state = self.lock();
        if reader.version != state.sockets_version {
            reader.update(&state);
        }
        let busy = if state.client.is_busy() { BUSY_SLEEP } else { LONGEST_SLEEP };
        let mut timeout = state.sleep(self.now()).min(busy).min(longest);
        if state.pollers == 0 && !state.begin_local_sleep() {
            timeout = Span(0);
        }
        if !same(state.reader_waker.as_ref(), waiter.waker) {
            state.reader_waker = waiter.waker.cloned();
        }
        self.reader_sleeps.store(true, Ordering::SeqCst);
        drop(state);
        // Another thread may have found it in shared memory.
        let is_done = (waiter.done)();
        if !is_done {
            reader.poll(timeout, self.spin);
        }
        let mut state = self.lock();
        self.reader_sleeps.store(false, Ordering::SeqCst);
        if state.pollers == 0 {
            state.end_local_sleep();
        }
        state.client.on_time(self.now());
        state.drain_all();
        for socket in &mut reader.sockets {
            state.take_event(socket);
        }
        if !state.locals.is_empty() {
            self.has_shared.store(true, Ordering::Relaxed);
        }
        let mut wakers = std::mem::take(&mut reader.wakers);
        self.flush(state, &mut wakers);
        reader.wakers = wakers;
        is_done
    }
}

/// For whom a thread reads.
pub struct Waiter<'a> {
    /// Wakes its future.
    pub waker: Option<&'a Waker>,
    /// Whether that was woken, asked once.
    pub done: &'a dyn Fn() -> bool,
}

impl Waiter<'_> {
    /// It reads for others only.
    pub const NOBODY: Waiter<'static> = Waiter { waker: None, done: &|| false };
}

fn same(one: Option<&Waker>, other: Option<&Waker>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.will_wake(other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl State {
    /// How long nothing is due.
    pub(super) fn sleep(&self, now: Tick) -> Span {
        let due = self.client.next_deadline().map_or(LONGEST_SLEEP, |due| due - now);
        let timers = self.timers.keys().next().map_or(LONGEST_SLEEP, |(until, _)| *until - now);
        due.min(timers)
    }

    fn take_event(&mut self, socket: &mut Socket) {
        let event = std::mem::replace(&mut socket.event, Event::Nothing);
        if matches!(event, Event::Nothing) || self.links[usize::from(socket.link.0)].opening != socket.opening
        {
            return;
        }
        let event = match event {
            Event::Memory(memory) => {
                self.share(socket.link, *memory);
                Event::Ready
            }
            event => event,
        };
        if self.is_shared(socket.link) {
            // What came before the end counts.
            let scribbled = self.drain(socket.link).err().map(|scribbled| scribbled.to_string());
            let broken = if let Event::Broken(why) = event { Some(why) } else { scribbled };
            if let Some(why) = broken {
                self.client.on_broken(socket.link, why);
            }
            return;
        }
        if socket.filled > 0 {
            let used = self.client.on_bytes(socket.link, &socket.buffer[..socket.filled]);
            socket.buffer.copy_within(used..socket.filled, 0);
            socket.filled -= used;
        }
        let link = &mut self.links[usize::from(socket.link.0)];
        let broken = match event {
            Event::Broken(why) => Some(why),
            Event::Nothing | Event::Memory(_) | Event::Ready if link.unsent.is_empty() => None,
            Event::Nothing | Event::Memory(_) | Event::Ready => {
                match write(&socket.stream, &link.unsent[link.unsent_from..]) {
                    Ok(count) => {
                        link.unsent_from += count;
                        if link.unsent_from == link.unsent.len() {
                            link.unsent = Vec::new();
                            socket.wants_to_write = false;
                            self.client.set_blocked(socket.link, false);
                        }
                        None
                    }
                    Err(error) if ends_reading(&error) => {
                        link.unsent = Vec::new();
                        socket.wants_to_write = false;
                        None
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
        };
        if let Some(why) = broken {
            self.client.on_broken(socket.link, why);
        }
    }
}
