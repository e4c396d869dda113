//! Cold frames between two processes, one after the other, by a connection that one thread reads and writes: greetings
//! of nodes, and what data nodes ask arbitrators.

use crate::formation::silence;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_key::{ClusterKey, NotAccepted};
use vinga_wire::key::ConnectionTerms;
use vinga_wire::{Address, BlockNumber, Frame, FrameWriter, SignalNumber};

/// Bytes of a frame, at most: a view of the largest cluster fits.
pub(crate) const FRAME_BYTES_MAX: usize = 256 * 1024;

/// Characters of another process's text that are shown, at most.
const SHOWN_MAX: usize = 400;

/// Text that another process has sent, as it is shown to people: one line of characters that can be seen, and no book.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        match character {
            _ if count == SHOWN_MAX => {
                shown.push('…');
                break;
            }
            // Nobody is misled by these; and what was escaped before is not escaped once more.
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// A frame from the driver of a node to that of another one. `write` appends the body.
pub fn frame(number: SignalNumber, sender: NodeId, write: impl FnOnce(&mut FrameWriter<'_>)) -> Vec<u8> {
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    let mut bytes = Vec::new();
    write(&mut FrameWriter::begin(&mut bytes, number, 0, driver(NodeId(0)), driver(sender), 0));
    bytes
}

/// The whole frame at the front of what was read; `None` if it is not all there yet.
///
/// # Errors
/// What was read is no frame, or one that is too long.
pub fn first_frame(bytes: &[u8]) -> io::Result<Option<Frame<'_>>> {
    let bad = || io::Error::new(ErrorKind::InvalidData, "what came is no frame");
    if bytes.first_chunk::<4>().is_some_and(|length| u32::from_le_bytes(*length) as usize > FRAME_BYTES_MAX) {
        return Err(bad());
    }
    Frame::first(bytes).map_err(|_| bad())
}

/// A connection of which one thread waits for frames.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    /// What was read and not taken yet.
    bytes: Vec<u8>,
}

impl Exchange {
    /// Connects to another process.
    ///
    /// # Errors
    /// It does not answer in time, or not at all.
    pub fn connect(address: SocketAddr, until: Instant) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, left(until)?)?;
        Self::over(stream)
    }

    /// A connection that was accepted.
    ///
    /// # Errors
    /// The system's.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        Self::behind(stream, Vec::new())
    }

    /// A connection that was accepted, of which these bytes were read already.
    ///
    /// # Errors
    /// The system's.
    pub fn behind(stream: TcpStream, bytes: Vec<u8>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Exchange { stream, bytes })
    }

    /// Proves the key of the cluster, before anything else is sent, and has the other side prove it: for a connection
    /// with these terms, to the address that it was opened to.
    ///
    /// # Errors
    /// The connection has failed, there is no answer until then, or it is refused.
    pub fn prove(
        &mut self,
        key: &ClusterKey,
        terms: ConnectionTerms,
        until: Instant,
    ) -> Result<(), NotAccepted> {
        self.stream.set_write_timeout(Some(left(until)?))?;
        self.stream.set_read_timeout(Some(left(until)?))?;
        let driver = Address::new(terms.sender, BlockNumber::Driver, 0);
        let terms = terms.to(self.stream.peer_addr()?);
        vinga_key::prove(&mut self.stream, key, driver, terms)
    }

    /// Sends frames.
    ///
    /// # Errors
    /// The connection has failed, or takes nothing until then.
    pub fn send(&mut self, frames: &[u8], until: Instant) -> io::Result<()> {
        self.stream.set_write_timeout(Some(left(until)?))?;
        self.stream.write_all(frames)
    }

    /// Waits for the next frame; returns its bytes.
    ///
    /// # Errors
    /// None has come until then, the connection is closed, or something else came.
    pub fn receive(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        loop {
            if let Some(frame) = first_frame(&self.bytes)? {
                let rest = self.bytes.split_off(frame.length());
                return Ok(std::mem::replace(&mut self.bytes, rest));
            }
            self.read_some(until)?;
        }
    }

    /// Waits until something has come.
    fn read_some(&mut self, until: Instant) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            self.stream.set_read_timeout(Some(left(until)?))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::other("it has closed the connection")),
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Err(too_late()),
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits for the next frame, which may take days, as long as the other side's machine answers; returns its bytes.
    ///
    /// # Errors
    /// The connection is closed, its other side is silent, or something else came.
    pub fn receive_some_day(&mut self) -> io::Result<Vec<u8>> {
        silence::watch(&self.stream)?;
        loop {
            // The system's probes say whether anybody is there.
            match self.receive(Instant::now() + Duration::from_secs(3_600)) {
                Err(why) if why.kind() == ErrorKind::TimedOut => {}
                received => return received,
            }
        }
    }

    /// Has the connection fail when the other side's machine answers nothing for some seconds.
    ///
    /// # Errors
    /// The system's.
    pub fn watch_silence(&self) -> io::Result<()> {
        silence::watch(&self.stream)
    }

    /// Whether the other side, which sends nothing, has not closed the connection. Does not wait.
    ///
    /// # Errors
    /// It has, the connection has failed, or something came.
    pub fn check_open(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let read = self.stream.peek(&mut [0; 1]);
        self.stream.set_nonblocking(false)?;
        match read {
            Ok(0) => Err(io::Error::other("it has closed the connection")),
            Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "something came where nothing may follow")),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// How long it is until then.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_late()) } else { Ok(left) }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer has come in time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Exchange, Exchange) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let one = Exchange::connect(listener.local_addr().unwrap(), until).unwrap();
        (one, Exchange::over(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn text_of_others_is_one_line_that_can_be_seen() {
        assert_eq!(shown("node 2 of \"a\" isn't there"), "node 2 of \"a\" isn't there");
        assert_eq!(shown("a\nerror\u{1b}[2J\u{202e}"), "a\\nerror\\u{1b}[2J\\u{202e}");
        let long = shown(&"ä".repeat(100_000));
        assert!(long.chars().count() == SHOWN_MAX + 1 && long.ends_with("ä…"));
    }

    #[test]
    fn frames_come_one_after_the_other() {
        let (mut one, mut other) = pair();
        let until = Instant::now() + Duration::from_secs(60);
        let frames: Vec<Vec<u8>> = [SignalNumber::NodeHelloRequest, SignalNumber::NodeHelloConfirm]
            .map(|number| frame(number, NodeId(3), |writer| _ = writer.bytes(&[1, 2, 3, 4])))
            .into();
        one.send(&frames.concat(), until).unwrap();
        for expected in &frames {
            assert_eq!(&other.receive(until).unwrap(), expected);
        }
        drop(one);
        assert!(other.receive(until).unwrap_err().to_string().contains("closed"));
    }

    #[test]
    fn what_is_no_frame_is_refused_and_nothing_is_awaited_for_ever() {
        let (mut one, mut other) = pair();
        let why = other.receive(Instant::now() + Duration::from_millis(1)).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::TimedOut);
        let until = Instant::now() + Duration::from_secs(60);
        one.send(b"GET / HTTP/1.1\r\n\r\n", until).unwrap();
        assert_eq!(other.receive(until).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
