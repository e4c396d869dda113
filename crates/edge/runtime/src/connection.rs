//! One connection to an API node, or a link to another data node.
//!
//! The socket reports changes edge-triggered and, once registered, is never touched by `epoll_ctl` again. So the
//! connection remembers whether it may have something to read, and whether the socket took all that was written. A read
//! that fills less than the buffer has emptied the socket: what arrives later is reported again.
//!
//! Back-pressure: requests are handled in slices, and when after one of them more answers wait than
//! [`Limits::pause_bytes`], the connection is *held back*: nothing of it is handled or read until they have left.
//! Answers may pile up nevertheless (one request may ask for much, and other threads answer later), within two bounds:
//! an honest client gets below [`Limits::send_buffer_bytes`] within a second or two, and no client ever exceeds
//! [`BURST_FACTOR`] times as much. (With a relay to a send thread, the bytes in the relay come on top:
//! [`crate::relay`].) A client that takes nothing at all for [`Limits::slow_reader`] is disconnected too.

use crate::clock::Clock;
use crate::input::Input;
use crate::output::Output;
use crate::peer::Peer;
use crate::poller::Poller;
use crate::relay::Entrance;
use crate::settings::Limits;
use crate::statistics::ThreadStatistics;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Host, LaneId, Origin, Outbox, Rejected};
use vinga_local::pipe::{INPUT, ROOM, Receiver};
use vinga_local::{NodeLink, Socket};
use vinga_wire::ErrorCode;
use vinga_wire::frame::HEADER_BYTES;

/// Bytes that one read takes, at most: what fits the second-level cache along with the data that handling it touches.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Bytes of requests that are handled before checking how many answers they led to; fewer if there were many.
const SLICE_BYTES: RangeInclusive<usize> = 512..=8 * 1024;

/// Factor by which the bound on waiting bytes may be exceeded for a moment.
const BURST_FACTOR: usize = 4;

/// Limits on the work of a connection in one call.
pub(crate) struct Bounds<'l> {
    /// Of the node.
    pub threads: u16,
    pub limits: &'l Limits,
    /// Set if other connections wait.
    pub piece: Option<Piece>,
    /// Whether answers may leave before the turn has ended.
    pub may_write: bool,
}

/// A piece of work of one connection, while others wait. At least one frame is handled.
pub(crate) struct Piece {
    pub clock: Clock,
    /// When it begins, in nanoseconds of `clock`.
    pub begun: u64,
    /// How long it may take.
    pub nanos: u64,
    /// Bytes of requests between two looks at the clock, at most.
    pub slice_bytes_max: usize,
}

impl Piece {
    fn is_over(&self) -> bool {
        self.clock.nanos() >= self.begun + self.nanos
    }

    /// How many bytes of requests to handle next, when the last ones took this long: several slices are to fit in the
    /// piece.
    fn next_slice(&self, slice_bytes: usize, nanos: u64) -> usize {
        let next = if nanos > self.nanos / 2 {
            slice_bytes / 2
        } else if nanos < self.nanos / 8 {
            slice_bytes * 2
        } else {
            slice_bytes
        };
        // At least one frame is handled.
        next.clamp(HEADER_BYTES, self.slice_bytes_max)
    }
}

/// Why a connection can't continue.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other side closed it.
    Ended,
    /// The network failed.
    Failed(io::Error),
    /// The other side broke a rule; the number of the offending signal, 0 if there is none.
    Rule(ErrorCode, u16),
}

impl From<Rejected> for Broken {
    fn from(rejected: Rejected) -> Self {
        Broken::Rule(rejected.code, rejected.signal)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Failed(error)
    }
}

/// One connection, on the thread that owns it.
pub(crate) struct Connection {
    /// The node at the other end.
    pub api: NodeId,
    /// It is another data node: what comes from it is never held back, as other nodes wait for that, and what waits for
    /// it may be as much as there is. If it does not take that, it is suspected (`vinga-agreement`).
    pub is_link: bool,
    pub lane: LaneId,
    pub peer: Peer,
    stream: Arc<Socket>,
    /// The memory that is shared with a client on this machine, which replaces the socket.
    local: Option<Local>,
    input: Input,
    output: Output,
    /// There may be something to read.
    is_readable: bool,
    /// The other side has closed: read until the end, also behind a short read.
    is_ending: bool,
    /// Bytes of requests that are handled at a time.
    slice_bytes: usize,
    /// When something was last written, or nothing waited.
    moved_nanos: u64,
    /// More than is allowed was waiting at the last check.
    was_over: bool,
    /// It stands in the list of those that may have something to do.
    pub is_queued: bool,
    /// It is being closed.
    pub is_broken: bool,
}

/// The end of shared memory that is read. The end that is written is with the output.
struct Local {
    receiver: Receiver,
    /// The thread's poller polls it.
    wake_event: OwnedFd,
}

/// How the bytes of a connection travel.
pub(crate) enum Way {
    /// By its socket; the owner writes it.
    Socket,
    /// By its socket, which a send thread writes.
    Relayed(Entrance),
    /// By shared memory.
    Local(Box<NodeLink>),
}

impl Connection {
    /// A connection of which `early` was read already, whose bytes go by `lane` and from there as `way` says.
    pub fn new(
        stream: Arc<Socket>,
        peer: Peer,
        (api, is_link): (NodeId, bool),
        early: &[u8],
        lane: LaneId,
        way: Way,
        nanos: u64,
    ) -> Self {
        let (local, output) = match way {
            Way::Socket => (None, Output::new(None)),
            Way::Relayed(entrance) => (None, Output::new(Some(entrance))),
            Way::Local(link) => {
                let NodeLink { sender, receiver, wake_event, .. } = *link;
                (Some(Local { receiver, wake_event }), Output::local(sender))
            }
        };
        Connection {
            api,
            is_link,
            lane,
            peer,
            stream,
            local,
            input: Input::new(early),
            output,
            is_readable: true,
            is_ending: false,
            slice_bytes: *SLICE_BYTES.start(),
            moved_nanos: nanos,
            was_over: false,
            is_queued: false,
            is_broken: false,
        }
    }

    /// Notes what the socket has reported.
    pub fn note_events(&mut self, is_readable: bool, is_ending: bool, is_writable: bool) {
        self.is_readable |= is_readable | is_ending;
        self.is_ending |= is_ending;
        if is_writable {
            self.output.note_writable();
        }
    }

    /// Its socket.
    pub fn stream(&self) -> Arc<Socket> {
        self.stream.clone()
    }

    /// Whether its bytes go by shared memory.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Looks into shared memory for what a socket would have reported. To be called once a turn.
    pub fn look(&mut self) {
        if let Some(local) = &self.local {
            self.is_readable |= local.receiver.has_input();
            self.output.look_for_room();
        }
    }

    /// Whether bytes have arrived in shared memory since all was read.
    pub fn has_news(&self) -> bool {
        !self.is_readable && self.local.as_ref().is_some_and(|local| local.receiver.has_input())
    }

    /// The thread will sleep: a client on this machine will wake it. False if it must not sleep, because there is work
    /// already.
    pub fn begin_sleep(&mut self) -> bool {
        let waits_for_room = self.output.waits_for_room();
        if waits_for_room && !self.output.look_for_room() {
            return false;
        }
        let (Some(local), Some(sender)) = (&self.local, self.output.sender()) else { return true };
        // A connection that is held back needs no wake-up for input.
        let input = if self.is_readable { 0 } else { INPUT };
        local.receiver.begin_sleep(sender, input | if waits_for_room { ROOM } else { 0 })
    }

    /// The thread is awake.
    pub fn end_sleep(&self) {
        if let Some(local) = &self.local {
            local.receiver.end_sleep();
        }
    }

    /// Whether there may be requests to handle.
    pub fn has_input(&self) -> bool {
        !self.is_broken && (self.is_readable || self.input.is_held_back())
    }

    /// Whether there may be requests, and the connection is not held back by the answers that wait here or on the way
    /// to another thread.
    pub fn can_be_served(&self, outbox: &Outbox, threads: u16, limits: &Limits) -> bool {
        self.has_input()
            && (self.is_link
                || self.lane_waiting(outbox) <= limits.pause_bytes && !has_long_lane(outbox, threads, limits))
    }

    /// Bytes of answers that wait here.
    fn lane_waiting(&self, outbox: &Outbox) -> usize {
        self.output.waiting(outbox.lane(self.lane))
    }

    /// Bytes of answers that wait, here and on the way to a send thread.
    pub fn bytes_waiting(&self, outbox: &Outbox) -> usize {
        self.lane_waiting(outbox) + self.output.under_way()
    }

    /// Handles what was held back, then reads once and handles that. `buffer` has [`READ_BYTES`], or less if others
    /// wait.
    pub fn serve<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        buffer: &mut [u8],
        bounds: &Bounds<'_>,
        statistics: &ThreadStatistics,
    ) -> Result<(), Broken> {
        let &Bounds { threads, limits, may_write, .. } = bounds;
        let (lane, stream, output, is_link) = (self.lane, &*self.stream, &mut self.output, self.is_link);
        let origin = if is_link { Origin::Peer(self.api) } else { Origin::Api(self.api) };
        let slice_bytes = &mut self.slice_bytes;
        let mut slice_begun = 0;
        if let Some(piece) = &bounds.piece {
            *slice_bytes = (*slice_bytes).min(piece.slice_bytes_max);
            slice_begun = piece.begun;
        }
        let mut handle = |run: &[u8]| -> Result<usize, Broken> {
            let mut handled = 0;
            loop {
                let before = output.waiting(executor.outbox().lane(lane));
                let is_first = !executor.has_local();
                let taken = executor.feed(slice_of(&run[handled..], *slice_bytes), origin)?;
                handled += taken;
                if let Some(piece) = bounds.piece.as_ref().filter(|piece| is_first && !piece.is_over()) {
                    executor.drain_while(|| !piece.is_over());
                }
                let waiting = output.waiting(executor.outbox().lane(lane));
                match &bounds.piece {
                    None => *slice_bytes = next_slice(*slice_bytes, waiting - before, limits),
                    Some(piece) => {
                        let now = piece.clock.nanos();
                        *slice_bytes = piece.next_slice(*slice_bytes, now - slice_begun);
                        slice_begun = now;
                        if executor.has_local() || now >= piece.begun + piece.nanos {
                            return Ok(handled);
                        }
                    }
                }
                if taken == 0 || handled == run.len() {
                    return Ok(handled);
                }
                if is_link {
                    continue;
                }
                let outbox = executor.outbox();
                if waiting > limits.pause_bytes && may_write {
                    output.write(stream, outbox.lane_mut(lane), statistics)?;
                }
                let waiting = output.waiting(outbox.lane(lane));
                if waiting > limits.pause_bytes || has_long_lane(outbox, threads, limits) {
                    return Ok(handled);
                }
            }
        };
        self.input.release(&mut handle)?;
        if self.input.is_held_back() || !self.is_readable || bounds.piece.as_ref().is_some_and(Piece::is_over)
        {
            return Ok(());
        }
        let read = match &mut self.local {
            None => read_some(&self.stream, buffer, statistics)?,
            Some(local) => read_local(&mut local.receiver, &self.stream, self.is_ending, buffer, statistics)?,
        };
        match read {
            Read::Nothing => {
                self.is_readable = false;
                Ok(())
            }
            Read::Interrupted => Ok(()),
            Read::Some(count) => {
                self.is_readable = count == buffer.len() || self.is_ending;
                self.input.take_in(&buffer[..count], &mut handle)
            }
        }
    }

    /// Whether answers wait.
    pub fn has_output(&self, outbox: &Outbox) -> bool {
        !outbox.lane(self.lane).is_empty()
    }

    /// Writes as much of the waiting bytes as the socket, or the relay to a send thread, takes.
    pub fn flush(
        &mut self,
        outbox: &mut Outbox,
        limits: &Limits,
        statistics: &ThreadStatistics,
    ) -> Result<(), Broken> {
        let lane = outbox.lane_mut(self.lane);
        if lane.is_empty() || self.is_broken {
            return Ok(());
        }
        self.output.flush(&self.stream, lane, statistics)?;
        if !self.is_link && self.output.waiting(lane) / BURST_FACTOR > limits.send_buffer_bytes {
            return Err(Broken::Rule(ErrorCode::SlowReader, 0));
        }
        Ok(())
    }

    /// To be called about once a second: whether the other side takes the bytes that wait for it.
    pub fn check_reader(&mut self, outbox: &Outbox, limits: &Limits, nanos: u64) -> Result<(), Broken> {
        self.output.check()?;
        if self.is_link {
            return Ok(());
        }
        let waiting = self.bytes_waiting(outbox);
        if self.output.take_moved() || waiting == 0 {
            self.moved_nanos = nanos;
        }
        let is_over = waiting > limits.send_buffer_bytes;
        let was_over = mem::replace(&mut self.was_over, is_over);
        let is_stuck = u128::from(nanos - self.moved_nanos) > limits.slow_reader.as_nanos();
        if is_stuck || is_over && was_over {
            return Err(Broken::Rule(ErrorCode::SlowReader, 0));
        }
        Ok(())
    }

    /// The send thread that must be notified of bytes that it has got since the last call.
    pub fn take_unannounced(&mut self) -> Option<u16> {
        self.output.take_unannounced()
    }

    /// Removes it from the poller and writes what can be written, if it `may_write`; returns the send thread that has
    /// the rest to do, if there is one. The lane is empty then and may serve another connection.
    pub fn close(
        self,
        outbox: &mut Outbox,
        poller: &Poller,
        may_write: bool,
        statistics: &ThreadStatistics,
    ) -> Option<u16> {
        if !may_write {
            outbox.lane_mut(self.lane).clear();
        }
        let sender = self.output.send_thread();
        if sender.is_some() {
            // The send thread keeps the socket open for a moment. (Otherwise closing removes it.)
            poller.remove(&*self.stream);
        }
        if let Some(local) = &self.local {
            // The client holds it, too: closing does not remove it.
            poller.remove(&local.wake_event);
        }
        self.output.close(&self.stream, outbox.lane_mut(self.lane), statistics);
        sender
    }
}

/// The result of a read.
enum Read {
    Some(usize),
    Nothing,
    Interrupted,
}

fn read_some(stream: &Socket, buffer: &mut [u8], statistics: &ThreadStatistics) -> Result<Read, Broken> {
    statistics.reads.add(1);
    match stream.read(buffer) {
        Ok(0) => Err(Broken::Ended),
        Ok(count) => {
            statistics.bytes_read.add(count as u64);
            Ok(Read::Some(count))
        }
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
        Err(why) if why.kind() == ErrorKind::Interrupted => Ok(Read::Interrupted),
        Err(why) => Err(Broken::Failed(why)),
    }
}

fn read_local(
    receiver: &mut Receiver,
    stream: &Socket,
    is_ending: bool,
    buffer: &mut [u8],
    statistics: &ThreadStatistics,
) -> Result<Read, Broken> {
    let moved = receiver.read(buffer).map_err(io::Error::from)?;
    if moved.wakes {
        stream.wake();
        statistics.wakes.add(1);
    }
    statistics.bytes_read.add(moved.bytes as u64);
    match moved.bytes {
        0 if is_ending => Err(Broken::Ended),
        0 => Ok(Read::Nothing),
        count => Ok(Read::Some(count)),
    }
}

/// The beginning of a run that is handled in one go: whole frames, if there are any.
fn slice_of(run: &[u8], slice_bytes: usize) -> &[u8] {
    let frame = run.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    &run[..run.len().min(frame.max(slice_bytes))]
}

/// How many bytes of requests to handle next, when the last ones led to this many bytes of answers.
fn next_slice(slice_bytes: usize, answers: usize, limits: &Limits) -> usize {
    let next = if answers > limits.pause_bytes {
        slice_bytes / 2
    } else if answers < limits.pause_bytes / 4 {
        slice_bytes * 2
    } else {
        slice_bytes
    };
    next.clamp(*SLICE_BYTES.start(), *SLICE_BYTES.end())
}

/// Whether much waits on the way to another thread: requests for blocks there would only add to it.
fn has_long_lane(outbox: &Outbox, threads: u16, limits: &Limits) -> bool {
    threads > 1 && (0..threads).any(|thread| outbox.lane(LaneId::thread(thread)).len() > limits.pause_bytes)
}
