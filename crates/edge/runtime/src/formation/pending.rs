//! Connections that have not greeted yet.
//!
//! Whoever reaches the port can open as many as it likes, without the cluster's key. So they have a number of places
//! of their own, and a new one takes that of the oldest: one that says nothing keeps no data node out. What is closed
//! so is a failed connection for a data node, which tries again.

use super::silence;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use vinga_key::Gate;

/// How long a connection may take for its greeting.
pub(super) const GREETING_MAX: Duration = Duration::from_secs(3);
/// Connections that have not greeted yet, at most.
const PENDING_MAX: usize = 256;
/// Connections that are accepted before all are read again: each is read several times before another one gets its
/// place, however many come.
const ACCEPTS_MAX: usize = 16;

/// A connection that has not greeted yet.
pub(super) struct Pending {
    pub stream: TcpStream,
    pub gate: Gate,
    pub bytes: Vec<u8>,
    pub since: Instant,
}

/// Accepts the connections that wait, and puts them behind the others.
pub(super) fn accept(listener: &TcpListener, pending: &mut Vec<Pending>, now: Instant) {
    for _ in 0..ACCEPTS_MAX {
        let Ok((stream, _)) = listener.accept() else { break };
        let is_set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        if is_set.and_then(|()| silence::watch(&stream)).is_ok() {
            let gate = Gate::closed(stream.local_addr().ok());
            pending.push(Pending { stream, gate, bytes: Vec::new(), since: now });
        }
    }
    let too_many = pending.len().saturating_sub(PENDING_MAX);
    pending.drain(..too_many);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_connections_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        listener.set_nonblocking(true).expect("the system can");
        let address = listener.local_addr().expect("it is bound");
        let connect = || TcpStream::connect(address).expect("it listens");
        let (now, mut pending) = (Instant::now(), Vec::new());
        let silent: Vec<TcpStream> = (0..PENDING_MAX + 8)
            .map(|_| {
                let stream = connect();
                accept(&listener, &mut pending, now);
                stream
            })
            .collect();
        assert_eq!(pending.len(), PENDING_MAX);
        let last = connect();
        accept(&listener, &mut pending, now);
        let own = |stream: &TcpStream| stream.local_addr().expect("it is connected");
        let theirs: Vec<_> = pending.iter().map(|one| one.stream.peer_addr().expect("connected")).collect();
        assert_eq!(theirs.last(), Some(&own(&last)), "it has a place");
        assert_eq!(theirs.first(), Some(&own(&silent[9])), "the oldest have gone");
    }

    #[test]
    fn those_that_wait_are_read_before_all_are_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        listener.set_nonblocking(true).expect("the system can");
        let address = listener.local_addr().expect("it is bound");
        let _many: Vec<TcpStream> =
            (0..2 * ACCEPTS_MAX).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        let (now, mut pending) = (Instant::now(), Vec::new());
        accept(&listener, &mut pending, now);
        assert_eq!(pending.len(), ACCEPTS_MAX);
    }
}
