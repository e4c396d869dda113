//! The Unix socket on which a node listens for clients on its machine.

use crate::peer::Peer;
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use vinga_local::Socket;

/// Who may connect: processes of the user whom the node runs as.
const MODE: u32 = 0o600;

/// Connections that the system keeps for us until they are accepted.
const BACKLOG: i32 = 4096;

/// See the head of this file. The file is removed when this is dropped.
pub(crate) struct LocalSocket {
    socket: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Listens at this path, in place of what is there: only a node that has gone can have left it.
    ///
    /// # Errors
    /// The system's: the folder is not there or must not be written, the path is too long (107 bytes).
    pub fn listen(path: &Path) -> io::Result<Self> {
        // Under another name until its mode is right, so that nobody else can connect meanwhile.
        let unfinished = path.with_extension("new");
        for stale in [path, &unfinished] {
            match fs::remove_file(stale) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                Ok(()) | Err(_) => {}
            }
        }
        let socket = UnixListener::bind(&unfinished)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(MODE))?;
        rustix::net::listen(&socket, BACKLOG)?;
        socket.set_nonblocking(true)?;
        fs::rename(&unfinished, path)?;
        Ok(LocalSocket { socket, path: path.to_owned() })
    }

    /// The next connection; it never waits.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<(Socket, Peer)> {
        let (stream, _) = self.socket.accept()?;
        stream.set_nonblocking(true)?;
        let process = socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        Ok((Socket::from(stream), Peer::Local(process)))
    }
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
