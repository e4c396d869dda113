//! Whose process is at the other end of a Unix socket, as the system says it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Supplementary groups of a process, at most (the system's limit).
const GROUPS_MAX: usize = 65_536;

/// The process at the other end, as it was when it connected or began to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its id; 0 if that is not known, as for one of another container.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// Reads an option of a socket that is a list of these items; returns how many there are.
fn option<T>(stream: &UnixStream, name: libc::c_int, items: &mut [T]) -> io::Result<usize> {
    let mut bytes = size_of_val(items) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the system writes at most this many bytes into the items, which are integers
    // or structures of integers: any bytes are valid.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            items.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes as usize / size_of::<T>())
}

impl Credentials {
    /// Those of the process at the other end of a connected socket.
    ///
    /// # Errors
    /// The system's.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        // `rustix` has this call, but can't express a process 0.
        let mut peer = [libc::ucred { pid: 0, uid: 0, gid: 0 }];
        option(stream, libc::SO_PEERCRED, &mut peer)?;
        let [libc::ucred { pid, uid, gid }] = peer;
        Ok(Credentials { process: pid, user: uid, group: gid })
    }

    /// Whether the process belongs to a group: it is its own, or one of its supplementary groups.
    ///
    /// # Errors
    /// The system's.
    pub fn is_in(&self, stream: &UnixStream, group: u32) -> io::Result<bool> {
        if self.group == group {
            return Ok(true);
        }
        let mut groups = vec![0u32; 64];
        loop {
            match option(stream, libc::SO_PEERGROUPS, &mut groups) {
                Ok(count) => return Ok(groups[..count].contains(&group)),
                Err(why) if why.raw_os_error() == Some(libc::ERANGE) && groups.len() < GROUPS_MAX => {
                    groups.resize(GROUPS_MAX, 0);
                }
                Err(why) => return Err(why),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_know_each_other() {
        let (one, other) = UnixStream::pair().expect("there are descriptors");
        let own = Credentials {
            process: std::process::id() as i32,
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        assert_eq!(Credentials::of(&one).expect("it is connected"), own);
        assert_eq!(Credentials::of(&other).expect("it is connected"), own);
        assert!(own.is_in(&one, own.group).expect("it is its own"));
        let groups = rustix::process::getgroups().expect("there is room");
        let others = groups.iter().map(|group| group.as_raw());
        for group in others.clone() {
            assert!(own.is_in(&one, group).expect("it is one of them"));
        }
        let foreign =
            (70_000..).find(|group| *group != own.group && !others.clone().any(|one| one == *group));
        assert!(!own.is_in(&one, foreign.expect("there are many")).expect("it is none of them"));
    }
}
