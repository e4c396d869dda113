//! The Unix socket on which a node listens for clients on its machine.

use crate::peer::Peer;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use vinga_local::{Credentials, Socket};

/// Only processes of the node's user may connect.
const MODE: u32 = 0o600;

/// Those of a group, too.
const MODE_WITH_GROUP: u32 = 0o660;

/// The user that may do everything.
const ROOT: u32 = 0;

/// `sun_path` has 108 bytes, the last of them zero.
const PATH_BYTES_MAX: usize = 107;

/// Connections that the system keeps for us until they are accepted.
const BACKLOG: i32 = 4096;

/// The Unix socket on which a node listens for clients on its machine. The file is removed when this is dropped.
pub(crate) struct LocalSocket {
    socket: UnixListener,
    path: PathBuf,
    /// The group whose users may connect, too.
    group: Option<u32>,
}

/// A connection that was accepted by the system.
pub(crate) struct Accepted {
    /// The connection.
    pub stream: Socket,
    /// Who has connected.
    pub peer: Peer,
    /// Whether its user may.
    pub is_permitted: bool,
    /// The address of this side, if it has one.
    pub reached: Option<SocketAddr>,
}

impl LocalSocket {
    /// Listens at this path, and replaces what is there: only a node that has ended can have left it. Processes of the
    /// group may connect, too, if one is given.
    ///
    /// # Errors
    /// The system's: the folder does not exist or is not writable, the path is too long (107 bytes), the socket can't
    /// be given to the group.
    pub fn listen(path: &Path, group: Option<u32>) -> io::Result<Self> {
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
        let mode = match group {
            None => MODE,
            Some(group) => {
                std::os::unix::fs::chown(&unfinished, None, Some(group))
                    .map_err(|why| not_given(group, &why))?;
                MODE_WITH_GROUP
            }
        };
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&socket, BACKLOG)?;
        socket.set_nonblocking(true)?;
        fs::rename(&unfinished, path)?;
        Ok(LocalSocket { socket, path: path.to_owned(), group })
    }

    /// Accepts the next connection; never waits.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<Accepted> {
        let (stream, _) = self.socket.accept()?;
        stream.set_nonblocking(true)?;
        let credentials = Credentials::of(&stream)?;
        let is_permitted = self.permits(&stream, credentials)?;
        let peer = Peer::Local(credentials.process);
        Ok(Accepted { stream: stream.into(), peer, is_permitted, reached: None })
    }

    /// Whether a process may connect. The socket's mode says the same, but may have been changed, and a connection can
    /// be handed on.
    fn permits(&self, stream: &UnixStream, peer: Credentials) -> io::Result<bool> {
        if peer.user == ROOT || peer.user == rustix::process::geteuid().as_raw() {
            return Ok(true);
        }
        self.group.map_or(Ok(false), |group| peer.is_in(stream, group))
    }
}

fn not_given(group: u32, why: &io::Error) -> io::Error {
    let text = format!("the socket can't be given to group {group} (LocalConnectionsGroup): {why}");
    io::Error::new(why.kind(), text)
}

fn too_long(path: &Path) -> String {
    let bytes = path.as_os_str().len();
    format!(
        "the path has {bytes} bytes, that of a Unix socket up to {PATH_BYTES_MAX}: take a shorter --folder"
    )
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
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_user_who_connects_is_known() {
        let path = std::env::temp_dir().join(format!("vinga-peer-{}.sock", std::process::id()));
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        let socket = LocalSocket::listen(&path, None).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(socket.accept().is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock));
        let _client = UnixStream::connect(&path).unwrap();
        let accepted = socket.accept().unwrap();
        assert_eq!(accepted.peer, Peer::Local(std::process::id() as i32));
        assert!(accepted.is_permitted);
        drop(socket);
        assert!(!path.exists());
        let own = rustix::process::getegid().as_raw();
        let socket = LocalSocket::listen(&path, Some(own)).unwrap();
        assert_eq!((mode(), fs::metadata(&path).unwrap().gid()), (0o660, own));
        drop(socket);
    }

    #[test]
    fn users_of_the_group_are_permitted() {
        let path = std::env::temp_dir().join(format!("vinga-group-{}.sock", std::process::id()));
        let mut socket = LocalSocket::listen(&path, None).unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        let own = Credentials::of(&stream).unwrap();
        let another = Credentials { user: own.user + 1, group: own.group + 1, ..own };
        let permits = |socket: &LocalSocket, peer| socket.permits(&stream, peer).unwrap();
        assert!(permits(&socket, own) && permits(&socket, Credentials { user: ROOT, ..another }));
        assert!(!permits(&socket, another));
        socket.group = Some(own.group + 1);
        assert!(permits(&socket, another));
        socket.group = Some(own.group + 2);
        assert!(!permits(&socket, another));
    }
}
