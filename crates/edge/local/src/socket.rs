//! A connected socket: TCP or Unix.

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A connected TCP or Unix socket. Calls never wait if it was made non-blocking, and never raise a signal.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket(stream.into())
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Socket(stream.into())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Reads the bytes that have arrived; 0 if the other side has ended the stream.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if nothing has arrived.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, into, RecvFlags::empty())?.0)
    }

    /// Writes as many bytes as the socket takes.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if it takes nothing at present.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Wakes the other side, which polls the socket for input. Never waits itself: if the socket takes nothing, the
    /// other side has not read earlier bytes yet.
    pub fn wake(&self) {
        let _ = send(&self.0, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Reads and drops all that has arrived; false if the other side has ended the stream.
    ///
    /// # Errors
    /// The system's.
    pub fn discard(&self) -> io::Result<bool> {
        let mut bytes = [0; 64];
        loop {
            match recv(&self.0, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Ok(false),
                Ok((_, count)) if count == bytes.len() => {}
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(true),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Ends this side's stream: nothing more will be written.
    pub fn end_writing(&self) {
        // If the other side has closed it already, that is as good.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Ends both directions: nothing more will be written or read.
    pub fn end(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}
