//! One connection to an API node.
//!
//! The socket reports changes edge-triggered and, once registered, is never touched by `epoll_ctl` again. So the
//! connection remembers whether it may have something to read, and whether it took all that was written. A read that
//! fills less than the buffer has emptied the socket: what comes later is reported again.
//!
//! Back-pressure: requests are handled in slices, and when after one of them more answers wait than
//! [`Limits::pause_bytes`], the connection is *held back*: nothing of it is handled or read until they have left. What
//! piles up nevertheless (one request may ask for much, and other threads answer later) has two bounds: an honest
//! client gets below [`Limits::send_buffer_bytes`] within a second or two; nobody gets above [`BURST_FACTOR`] times as
//! much. And whoever takes nothing at all for [`Limits::slow_reader`] is let go too.

use crate::input::Input;
use crate::lane_progress::LaneProgress;
use crate::settings::Limits;
use crate::statistics::ThreadStatistics;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Host, LaneId, Origin, Outbox, Rejected};
use vinga_wire::ErrorCode;

/// Bytes that one read takes, at most: what fits the second-level cache along with what handling it touches.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Bytes of requests that are handled before a look at how many answers they led to: less if it was many.
const SLICE_BYTES: RangeInclusive<usize> = 512..=8 * 1024;

/// How many times the bound on what waits may be exceeded for a moment.
const BURST_FACTOR: usize = 4;

/// Reads that empty a socket before it is closed.
const DISCARDED_READS_MAX: usize = 64;

/// Why a connection can't go on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other side closed it.
    Ended,
    /// The network did.
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

/// See the head of this file.
pub(crate) struct Connection {
    pub api: NodeId,
    pub lane: LaneId,
    pub peer: SocketAddr,
    stream: TcpStream,
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
    /// More than is allowed waited when this was last looked at.
    was_over: bool,
    /// Stands in the list of those that may have something to do.
    pub is_queued: bool,
    /// Is being closed.
    pub is_broken: bool,
}

impl Connection {
    /// A connection of which `early` was read already.
    pub fn new(
        stream: TcpStream,
        peer: SocketAddr,
        api: NodeId,
        lane: LaneId,
        early: &[u8],
        nanos: u64,
    ) -> Self {
        Connection {
            api,
            lane,
            peer,
            stream,
            input: Input::new(early),
            output: Output { progress: LaneProgress::default(), is_full: false, has_moved: false },
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
        self.output.is_full &= !is_writable;
    }

    /// Whether there may be requests to handle.
    pub fn has_input(&self) -> bool {
        !self.is_broken && (self.is_readable || self.input.is_held_back())
    }

    /// Whether there may be requests, and not so many answers wait, here or on the way to another thread, that the
    /// connection is held back.
    pub fn can_be_served(&self, outbox: &Outbox, threads: u16, limits: &Limits) -> bool {
        self.has_input()
            && self.bytes_waiting(outbox) <= limits.pause_bytes
            && !has_long_lane(outbox, threads, limits)
    }

    /// Bytes of answers that wait.
    pub fn bytes_waiting(&self, outbox: &Outbox) -> usize {
        self.output.progress.waiting(outbox.lane(self.lane)).len()
    }

    /// Handles what was held back, then reads once and handles that. `buffer` has [`READ_BYTES`].
    pub fn serve<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        buffer: &mut [u8],
        threads: u16,
        limits: &Limits,
        statistics: &ThreadStatistics,
    ) -> Result<(), Broken> {
        let (api, lane, stream, output) = (self.api, self.lane, &self.stream, &mut self.output);
        let slice_bytes = &mut self.slice_bytes;
        let mut handle = |run: &[u8]| -> Result<usize, Broken> {
            let mut handled = 0;
            loop {
                let before = output.progress.waiting(executor.outbox().lane(lane)).len();
                let taken = executor.feed(slice_of(&run[handled..], *slice_bytes), Origin::Api(api))?;
                handled += taken;
                let outbox = executor.outbox();
                let waiting = output.progress.waiting(outbox.lane(lane)).len();
                *slice_bytes = next_slice(*slice_bytes, waiting - before, limits);
                if taken == 0 || handled == run.len() {
                    return Ok(handled);
                }
                if waiting > limits.pause_bytes {
                    output.write(stream, outbox.lane_mut(lane), statistics)?;
                }
                let waiting = output.progress.waiting(outbox.lane(lane)).len();
                if waiting > limits.pause_bytes || has_long_lane(outbox, threads, limits) {
                    return Ok(handled);
                }
            }
        };
        self.input.release(&mut handle)?;
        if self.input.is_held_back() || !self.is_readable {
            return Ok(());
        }
        statistics.reads.add(1);
        let read = match (&self.stream).read(buffer) {
            Ok(0) => return Err(Broken::Ended),
            Ok(read) => read,
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                return Ok(());
            }
            Err(why) if why.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(why) => return Err(Broken::Failed(why)),
        };
        statistics.bytes_read.add(read as u64);
        self.is_readable = read == buffer.len() || self.is_ending;
        self.input.take_in(&buffer[..read], &mut handle)
    }

    /// Writes what waits, as far as the socket takes it.
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
        if !self.output.is_full {
            self.output.write(&self.stream, lane, statistics)?;
        }
        if self.output.progress.waiting(lane).len() / BURST_FACTOR > limits.send_buffer_bytes {
            return Err(Broken::Rule(ErrorCode::SlowReader, 0));
        }
        Ok(())
    }

    /// To be called about once a second: whether the other side takes what waits for it.
    pub fn check_reader(&mut self, outbox: &Outbox, limits: &Limits, nanos: u64) -> Result<(), Broken> {
        let waiting = self.bytes_waiting(outbox);
        if self.output.has_moved || waiting == 0 {
            self.output.has_moved = false;
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

    /// Writes what still can be written, says that nothing more will come, and forgets what waits. The lane is empty
    /// then and may serve another connection.
    pub fn close(mut self, outbox: &mut Outbox, statistics: &ThreadStatistics) {
        let lane = outbox.lane_mut(self.lane);
        if !lane.is_empty() {
            let _ = self.output.write(&self.stream, lane, statistics);
        }
        self.output.progress.forget(lane);
        let _ = self.stream.shutdown(Shutdown::Write);
        // A socket that is closed with unread bytes resets the connection, and what was sent last may be lost.
        let mut rest = [0; 4096];
        for _ in 0..DISCARDED_READS_MAX {
            match (&self.stream).read(&mut rest) {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
    }
}

/// The side of a connection that writes.
struct Output {
    progress: LaneProgress,
    /// The socket did not take all that it was last given, and has not reported since that it takes more.
    is_full: bool,
    /// Something was written since this was last looked at.
    has_moved: bool,
}

impl Output {
    fn write(
        &mut self,
        stream: &TcpStream,
        lane: &mut Vec<u8>,
        statistics: &ThreadStatistics,
    ) -> io::Result<()> {
        let mut stream = stream;
        while !lane.is_empty() {
            statistics.writes.add(1);
            match stream.write(self.progress.waiting(lane)) {
                Ok(count) => {
                    self.has_moved |= count > 0;
                    statistics.bytes_written.add(count as u64);
                    self.progress.advance(lane, count);
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    self.is_full = true;
                    break;
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// The front of a run that is handled in one go: whole frames, if there are any.
fn slice_of(run: &[u8], slice_bytes: usize) -> &[u8] {
    let frame = run.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    &run[..run.len().min(frame.max(slice_bytes))]
}

/// How many bytes of requests to handle next, when the last ones led to so many bytes of answers.
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

/// Whether much waits on the way to another thread: requests that are for blocks there would only make it more.
fn has_long_lane(outbox: &Outbox, threads: u16, limits: &Limits) -> bool {
    threads > 1 && (0..threads).any(|thread| outbox.lane(LaneId::thread(thread)).len() > limits.pause_bytes)
}
