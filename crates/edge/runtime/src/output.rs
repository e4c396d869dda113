//! The writing side of a connection, for its owner: bytes move from the lane to the socket, to the memory that is
//! shared with a client on this machine ([`vinga_local`]), or to the relay to a send thread ([`crate::relay`]).

use crate::lane_progress::LaneProgress;
use crate::relay::Entrance;
use crate::statistics::ThreadStatistics;
use std::io::{self, ErrorKind};
use std::mem;
use vinga_local::Socket;
use vinga_local::pipe::Sender;

/// Reads that empty a socket before it is closed.
const DISCARDED_READS_MAX: usize = 64;

/// The writing side of a connection.
pub(crate) struct Output {
    progress: LaneProgress,
    way: Way,
}

enum Way {
    /// The owner of the connection writes it.
    Direct {
        /// The socket did not take all of the last bytes, and has not reported since that it takes more.
        is_full: bool,
        /// Something was written since the last check.
        has_moved: bool,
    },
    /// The owner writes it, into shared memory; the socket only wakes the client.
    Local {
        sender: Sender,
        /// There was no room for all of the last bytes, and no room was seen since.
        is_full: bool,
        /// Something was written since the last check.
        has_moved: bool,
    },
    /// A send thread writes it.
    Relayed(Entrance),
}

impl Output {
    /// Into the socket, or by a relay if there is one.
    pub fn new(relay: Option<Entrance>) -> Self {
        let way = relay.map_or(Way::Direct { is_full: false, has_moved: false }, Way::Relayed);
        Output { progress: LaneProgress::default(), way }
    }

    /// Into shared memory.
    pub fn local(sender: Sender) -> Self {
        let way = Way::Local { sender, is_full: false, has_moved: false };
        Output { progress: LaneProgress::default(), way }
    }

    /// The end of shared memory into which it writes, if it does.
    pub fn sender(&self) -> Option<&Sender> {
        match &self.way {
            Way::Local { sender, .. } => Some(sender),
            Way::Direct { .. } | Way::Relayed(_) => None,
        }
    }

    /// Whether shared memory was full at the last check.
    pub fn waits_for_room(&self) -> bool {
        matches!(self.way, Way::Local { is_full: true, .. })
    }

    /// Checks whether there is room again in shared memory that was full; returns whether it is still full.
    pub fn look_for_room(&mut self) -> bool {
        let Way::Local { sender, is_full, .. } = &mut self.way else { return false };
        *is_full &= !sender.has_room();
        *is_full
    }

    /// Bytes that wait in the lane.
    #[inline]
    pub fn waiting(&self, lane: &[u8]) -> usize {
        self.progress.waiting(lane).len()
    }

    /// Bytes that have left the lane and have not been written yet: none unless there is a relay.
    pub fn under_way(&self) -> usize {
        match &self.way {
            Way::Direct { .. } | Way::Local { .. } => 0,
            Way::Relayed(entrance) => entrance.under_way(),
        }
    }

    /// The socket has reported that it takes more.
    pub fn note_writable(&mut self) {
        if let Way::Direct { is_full, .. } = &mut self.way {
            *is_full = false;
        }
    }

    /// Whether something was written since the last call.
    pub fn take_moved(&mut self) -> bool {
        match &mut self.way {
            Way::Direct { has_moved, .. } | Way::Local { has_moved, .. } => mem::take(has_moved),
            Way::Relayed(entrance) => entrance.take_moved(),
        }
    }

    /// The send thread that must be notified of bytes that it has got since the last call.
    pub fn take_unannounced(&mut self) -> Option<u16> {
        match &mut self.way {
            Way::Direct { .. } | Way::Local { .. } => None,
            Way::Relayed(entrance) => entrance.take_unannounced(),
        }
    }

    /// # Errors
    /// The send thread could not write.
    pub fn check(&self) -> io::Result<()> {
        match &self.way {
            Way::Direct { .. } | Way::Local { .. } => Ok(()),
            Way::Relayed(entrance) => entrance.check(),
        }
    }

    /// The send thread, if there is one.
    pub fn send_thread(&self) -> Option<u16> {
        match &self.way {
            Way::Direct { .. } | Way::Local { .. } => None,
            Way::Relayed(entrance) => Some(entrance.sender),
        }
    }

    /// Writes as many bytes of the lane as possible, while more are being made. Does not ask to be notified when more
    /// can be written.
    pub fn write(
        &mut self,
        stream: &Socket,
        lane: &mut Vec<u8>,
        statistics: &ThreadStatistics,
    ) -> io::Result<()> {
        match &mut self.way {
            Way::Direct { is_full, has_moved } => {
                while !lane.is_empty() {
                    match write_some(stream, self.progress.waiting(lane), statistics)? {
                        Written::Some(count) => {
                            *has_moved |= count > 0;
                            self.progress.advance(lane, count);
                        }
                        Written::IsFull => {
                            *is_full = true;
                            break;
                        }
                    }
                }
            }
            Way::Local { sender, is_full, has_moved } => {
                let waiting = self.progress.waiting(lane);
                let moved = sender.write(waiting)?;
                if moved.wakes {
                    stream.wake();
                    statistics.wakes.add(1);
                }
                statistics.bytes_written.add(moved.bytes as u64);
                *has_moved |= moved.bytes > 0;
                *is_full = moved.bytes < waiting.len();
                self.progress.advance(lane, moved.bytes);
            }
            Way::Relayed(entrance) => {
                let taken = entrance.push(self.progress.waiting(lane));
                self.progress.advance(lane, taken);
            }
        }
        Ok(())
    }

    /// At the end of a turn: writes as many bytes of the lane as possible, and asks to be notified when more can be
    /// written.
    pub fn flush(
        &mut self,
        stream: &Socket,
        lane: &mut Vec<u8>,
        statistics: &ThreadStatistics,
    ) -> io::Result<()> {
        match &mut self.way {
            // The socket will report when it takes more; shared memory is checked in each turn.
            Way::Direct { is_full: true, .. } | Way::Local { is_full: true, .. } => Ok(()),
            Way::Direct { .. } | Way::Local { .. } => self.write(stream, lane, statistics),
            Way::Relayed(entrance) => {
                let taken = entrance.push_or_wait(self.progress.waiting(lane))?;
                self.progress.advance(lane, taken);
                Ok(())
            }
        }
    }

    /// The connection is closed: what the socket or the relay takes now leaves the lane, and the rest is dropped. The
    /// lane is empty then and may serve another connection.
    pub fn close(mut self, stream: &Socket, lane: &mut Vec<u8>, statistics: &ThreadStatistics) {
        // If the socket takes nothing any more, no client would read the rest.
        let _ = self.write(stream, lane, statistics);
        self.progress.forget(lane);
        match self.way {
            Way::Direct { .. } | Way::Local { .. } => finish_sending(stream),
            Way::Relayed(_) => {}
        }
    }
}

/// The result of a write.
pub(crate) enum Written {
    Some(usize),
    /// Nothing; it will report when it takes more.
    IsFull,
}

/// One write.
pub(crate) fn write_some(
    stream: &Socket,
    bytes: &[u8],
    statistics: &ThreadStatistics,
) -> io::Result<Written> {
    statistics.writes.add(1);
    match stream.write(bytes) {
        Ok(count) => {
            statistics.bytes_written.add(count as u64);
            Ok(Written::Some(count))
        }
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(Written::IsFull),
        Err(why) if why.kind() == ErrorKind::Interrupted => Ok(Written::Some(0)),
        Err(why) => Err(why),
    }
}

/// Ends the stream to the client. To be called before a socket is closed.
pub(crate) fn finish_sending(stream: &Socket) {
    stream.end_writing();
    // A socket that is closed with unread bytes resets the connection, and what was sent last may be lost.
    let mut rest = [0; 4096];
    for _ in 0..DISCARDED_READS_MAX {
        match stream.read(&mut rest) {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
}
