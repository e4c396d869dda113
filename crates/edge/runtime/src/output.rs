//! The writing side of a connection, for its owner: bytes leave the lane for the socket, or for the relay to a send
//! thread ([`crate::relay`]).

use crate::lane_progress::LaneProgress;
use crate::relay::Entrance;
use crate::statistics::ThreadStatistics;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};

/// Reads that empty a socket before it is closed.
const DISCARDED_READS_MAX: usize = 64;

/// See the head of this file.
pub(crate) struct Output {
    progress: LaneProgress,
    way: Way,
}

enum Way {
    /// The owner of the connection writes it.
    Direct {
        /// The socket did not take all that it was last given, and has not reported since that it takes more.
        is_full: bool,
        /// Something was written since this was last looked at.
        has_moved: bool,
    },
    /// A send thread does.
    Relayed(Entrance),
}

impl Output {
    /// Into the socket, or by a relay if there is one.
    pub fn new(relay: Option<Entrance>) -> Self {
        let way = relay.map_or(Way::Direct { is_full: false, has_moved: false }, Way::Relayed);
        Output { progress: LaneProgress::default(), way }
    }

    /// Bytes that wait in the lane.
    #[inline]
    pub fn waiting(&self, lane: &[u8]) -> usize {
        self.progress.waiting(lane).len()
    }

    /// Bytes that have left the lane and have not been written yet: none unless there is a relay.
    pub fn under_way(&self) -> usize {
        match &self.way {
            Way::Direct { .. } => 0,
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
            Way::Direct { has_moved, .. } => mem::take(has_moved),
            Way::Relayed(entrance) => entrance.take_moved(),
        }
    }

    /// The send thread that must be told of bytes that it has got since the last call.
    pub fn take_unannounced(&mut self) -> Option<u16> {
        match &mut self.way {
            Way::Direct { .. } => None,
            Way::Relayed(entrance) => entrance.take_unannounced(),
        }
    }

    /// # Errors
    /// The send thread could not write.
    pub fn check(&self) -> io::Result<()> {
        match &self.way {
            Way::Direct { .. } => Ok(()),
            Way::Relayed(entrance) => entrance.check(),
        }
    }

    /// The send thread, if there is one.
    pub fn sender(&self) -> Option<u16> {
        match &self.way {
            Way::Direct { .. } => None,
            Way::Relayed(entrance) => Some(entrance.sender),
        }
    }

    /// Has bytes of the lane leave, as many as can, while more are being made. Nobody is told when more can.
    pub fn write(
        &mut self,
        stream: &TcpStream,
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
            Way::Relayed(entrance) => {
                let taken = entrance.push(self.progress.waiting(lane));
                self.progress.advance(lane, taken);
            }
        }
        Ok(())
    }

    /// At the end of a turn: has bytes of the lane leave, and is told when more can.
    pub fn flush(
        &mut self,
        stream: &TcpStream,
        lane: &mut Vec<u8>,
        statistics: &ThreadStatistics,
    ) -> io::Result<()> {
        match &mut self.way {
            // It will report that it takes more.
            Way::Direct { is_full: true, .. } => Ok(()),
            Way::Direct { .. } => self.write(stream, lane, statistics),
            Way::Relayed(entrance) => {
                let taken = entrance.push_or_wait(self.progress.waiting(lane))?;
                self.progress.advance(lane, taken);
                Ok(())
            }
        }
    }

    /// The connection is closed: what the socket or the relay takes now leaves the lane, and the rest is forgotten. The
    /// lane is empty then and may serve another connection.
    pub fn close(mut self, stream: &TcpStream, lane: &mut Vec<u8>, statistics: &ThreadStatistics) {
        // A socket that takes nothing any more has nobody who would miss it.
        let _ = self.write(stream, lane, statistics);
        self.progress.forget(lane);
        if let Way::Direct { .. } = self.way {
            say_farewell(stream);
        }
    }
}

/// How much a socket took.
pub(crate) enum Written {
    Some(usize),
    /// Nothing; it will report when it takes more.
    IsFull,
}

/// One write.
pub(crate) fn write_some(
    mut stream: &TcpStream,
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

/// Says that nothing more will come. To be called before a socket is closed.
pub(crate) fn say_farewell(mut stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    // A socket that is closed with unread bytes resets the connection, and what was sent last may be lost.
    let mut rest = [0; 4096];
    for _ in 0..DISCARDED_READS_MAX {
        match stream.read(&mut rest) {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
}
