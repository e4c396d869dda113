//! A connected socket, of the network or of this machine.

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// See the head of this file. Calls never wait if it was made non-blocking, and never raise a signal.
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
    /// Reads what has come; 0 bytes if nothing more will.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if nothing has come.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, into, RecvFlags::empty())?.0)
    }

    /// Writes as much as it takes.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if it takes nothing at present.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Wakes the other side, which waits for something to come. Never waits itself: if the socket takes nothing, earlier
    /// bytes have not been heard yet.
    pub fn wake(&self) {
        let _ = send(&self.0, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Takes out what has come and looks at none of it; false if nothing more will come.
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

    /// Nothing more will be written.
    pub fn end_writing(&self) {
        // Closed by the other side already is as good.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Nothing more will be written or read.
    pub fn end(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}
