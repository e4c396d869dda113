//! The Unix socket on which a node listens for clients on its machine.

use crate::peer::Peer;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use vinga_local::Socket;

/// Only processes of the node's user may connect.
const MODE: u32 = 0o600;

/// `sun_path` has 108 bytes, the last of them zero.
const PATH_BYTES_MAX: usize = 107;

/// Connections that the system keeps for us until they are accepted.
const BACKLOG: i32 = 4096;

/// The Unix socket on which a node listens for clients on its machine. The file is removed when this is dropped.
pub(crate) struct LocalSocket {
    socket: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Listens at this path, and replaces what is there: only a node that has ended can have left it.
    ///
    /// # Errors
    /// The system's: the folder does not exist or is not writable, the path is too long (107 bytes).
    pub fn listen(path: &Path) -> io::Result<Self> {
        // The system's own text for that names a constant.
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, too_long(path)));
        }
        // Under another name until its mode is right, so that no other user can connect meanwhile.
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

    /// Accepts the next connection; never waits.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<(Socket, Peer)> {
        let (stream, _) = self.socket.accept()?;
        stream.set_nonblocking(true)?;
        let peer = Peer::Local(process_of(&stream));
        Ok((Socket::from(stream), peer))
    }
}

fn too_long(path: &Path) -> String {
    let bytes = path.as_os_str().len();
    format!(
        "the path has {bytes} bytes, that of a Unix socket up to {PATH_BYTES_MAX}: take a shorter --folder"
    )
}

/// The process that has connected; 0 if it is not known, as for one of another container.
fn process_of(stream: &UnixStream) -> i32 {
    // `rustix` has this call, but can't express 0.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the system writes at most this many bytes into `peer`, of which any are
    // valid.
    unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        );
    }
    peer.pid
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_who_connects_is_known() {
        let path = std::env::temp_dir().join(format!("vinga-peer-{}.sock", std::process::id()));
        let socket = LocalSocket::listen(&path).unwrap();
        assert!(socket.accept().is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock));
        let _client = UnixStream::connect(&path).unwrap();
        assert_eq!(socket.accept().unwrap().1, Peer::Local(std::process::id() as i32));
        drop(socket);
        assert!(!path.exists());
    }
}
