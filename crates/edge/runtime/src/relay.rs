//! A relay: how the bytes of a connection get from the thread that owns it to the send thread that writes them.
//!
//! Most threads that own connections write them, too. One that does not (`nosend`) has a relay for each connection:
//!
//! ```text
//!   owner                                            send thread
//!   lane --whole frames--> ring (RELAY_BYTES) --any number of bytes--> socket
//!        <--- space wanted, by wake-up event ---   ---> written, error: two words that the owner reads
//! ```
//! *Bytes.* The owner puts whole frames into a ring of the connection's own ([`crate::ring`]), at the end of its turn
//! and whenever much has piled up in the middle of it, and signals the wake-up event of the send thread at the end of
//! the turn, once for all connections. What does not fit stays in the lane, so whatever looks at the lane (congestion,
//! holding back requests) sees a slow reader as it would if the owner wrote; only up to [`RELAY_BYTES`] and a large
//! frame are added to that. The send thread writes the ring's bytes in their order, frees the space of what the socket
//! took, and signals the owner's wake-up event if that had asked for space. When the socket is full the send thread
//! leaves the ring alone until the socket reports that it takes more; that is reported to the send thread only, and
//! only input is reported to the owner.
//!
//! *Progress.* The send thread counts the bytes that the socket took. The owner compares that with what it has put in,
//! once a second, to find readers that take nothing, and for its figures. Nothing is ordered by the counter, so its
//! value may be slightly old.
//!
//! *Breaking.* If a write fails, the send thread notes the system's error number, leaves the ring alone for ever and
//! signals the owner's wake-up event. The owner checks that word whenever it has something to send, and once a second,
//! and has the connection closed. (Usually a failed read shows it before that.) Only the owner decides that a
//! connection has ended.
//!
//! *Opening and closing.* Both ends hold the socket by a shared reference, so its descriptor is closed, and may be used
//! for another one, only when neither will touch it again. The owner opens a relay by a message with the other end
//! ([`Outlet`]) to the send thread, and closes it by another message, behind the last bytes that it put in: the send
//! thread then writes what the socket takes at once, ends the stream and drops its end. Messages from one thread stay
//! in order and are read before the rings are; so an outlet exists before the first byte for it, and when the owner
//! opens a relay for a new connection of the same API node, the send thread has dropped the old one before. Each end
//! removes the socket from its own poller before it drops it: the system would report events as long as the other end
//! exists.
//!
//! *Stopping.* Send threads are stopped when all other threads have ended: they write what those left behind.

use crate::output::{Written, finish_sending, write_some};
use crate::ring::{Consumer, Producer, ring};
use crate::statistics::{Counter, ThreadStatistics};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use vinga_base::NodeId;
use vinga_local::Socket;

/// Bytes of a relay's ring: the answers to some batches of requests.
const RELAY_BYTES: usize = 64 * 1024;

/// Runs that are written of one connection in a turn, so that every connection is served.
const RUNS_MAX: usize = 4;

/// What the send thread reports to the owner.
#[derive(Default)]
struct Progress {
    /// Bytes that the socket took.
    written: Counter,
    /// The system's number of the error that ended it; 0 if there was none.
    error: AtomicI32,
}

/// A relay by way of the send thread `sender`, for a connection that `owner` reads.
pub(crate) fn relay(owner: u16, sender: u16, api: NodeId, stream: Arc<Socket>) -> (Entrance, Outlet) {
    let (producer, consumer) = ring(RELAY_BYTES);
    let progress = Arc::<Progress>::default();
    let entrance = Entrance {
        sender,
        producer,
        progress: progress.clone(),
        passed: 0,
        written: 0,
        is_unannounced: false,
    };
    let outlet = Outlet {
        owner,
        api,
        stream,
        consumer,
        progress,
        may_have_more: true,
        is_full: false,
        is_broken: false,
    };
    (entrance, outlet)
}

/// The owner's end.
pub(crate) struct Entrance {
    /// The send thread.
    pub sender: u16,
    producer: Producer,
    progress: Arc<Progress>,
    /// Bytes that were put in.
    passed: u64,
    /// Bytes that had been written at the last check.
    written: u64,
    /// Something was put in of which the send thread was not notified.
    is_unannounced: bool,
}

impl Entrance {
    /// Puts in as many whole frames as fit; returns how many bytes they are.
    pub fn push(&mut self, frames: &[u8]) -> usize {
        let taken = self.producer.push(frames);
        self.passed += taken as u64;
        self.is_unannounced |= taken > 0;
        taken
    }

    /// Like [`Entrance::push`]; if something is left, the owner's wake-up event is signalled when there is space again.
    ///
    /// # Errors
    /// Writing has failed.
    pub fn push_or_wait(&mut self, frames: &[u8]) -> io::Result<usize> {
        self.check()?;
        let mut taken = self.push(frames);
        if taken < frames.len() {
            self.producer.want_space();
            taken += self.push(&frames[taken..]);
        }
        Ok(taken)
    }

    /// # Errors
    /// Writing has failed.
    pub fn check(&self) -> io::Result<()> {
        match self.progress.error.load(Ordering::Relaxed) {
            0 => Ok(()),
            why => Err(io::Error::from_raw_os_error(why)),
        }
    }

    /// Bytes that were put in and have not been written.
    pub fn under_way(&self) -> usize {
        (self.passed - self.progress.written.get()) as usize
    }

    /// Whether something was written since the last call.
    pub fn take_moved(&mut self) -> bool {
        let before = std::mem::replace(&mut self.written, self.progress.written.get());
        self.written != before
    }

    /// The send thread, if it must be notified of bytes that were put in since the last call.
    pub fn take_unannounced(&mut self) -> Option<u16> {
        std::mem::take(&mut self.is_unannounced).then_some(self.sender)
    }
}

/// The send thread's end.
pub(crate) struct Outlet {
    pub owner: u16,
    pub api: NodeId,
    stream: Arc<Socket>,
    consumer: Consumer,
    progress: Arc<Progress>,
    /// There may be bytes in the ring.
    pub may_have_more: bool,
    /// The socket did not take all of the last bytes, and has not reported since that it takes more.
    is_full: bool,
    is_broken: bool,
}

impl Outlet {
    /// The socket, for the poller.
    pub fn stream(&self) -> &Socket {
        &self.stream
    }

    /// The socket has reported that it takes more.
    pub fn note_writable(&mut self) {
        self.is_full = false;
        self.may_have_more = true;
    }

    /// Whether there may be something to write.
    pub fn can_be_served(&self) -> bool {
        self.may_have_more && !self.is_full && !self.is_broken
    }

    /// Writes some runs of bytes; returns whether the owner must be woken.
    pub fn serve(&mut self, statistics: &ThreadStatistics) -> bool {
        let mut owner_waits = false;
        for _ in 0..RUNS_MAX {
            let run = self.consumer.peek();
            if run.is_empty() {
                self.may_have_more = false;
                break;
            }
            match write_some(&self.stream, run, statistics) {
                Ok(Written::Some(count)) => {
                    self.progress.written.add(count as u64);
                    owner_waits |= self.consumer.release(count);
                }
                Ok(Written::IsFull) => {
                    self.is_full = true;
                    break;
                }
                Err(why) => {
                    self.note_failure(&why);
                    return true;
                }
            }
        }
        owner_waits
    }

    /// Writing has failed: the owner, which must be woken, will have the connection closed.
    pub fn note_failure(&mut self, why: &io::Error) {
        self.is_broken = true;
        self.progress.error.store(why.raw_os_error().unwrap_or(libc::EIO), Ordering::Relaxed);
    }

    /// Writes what the socket takes at once of the rest, and ends the stream.
    pub fn close(mut self, statistics: &ThreadStatistics) {
        self.note_writable();
        while self.can_be_served() {
            self.serve(statistics);
        }
        finish_sending(&self.stream);
    }
}
