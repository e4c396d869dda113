//! Choosing ports for a new cluster: one `vinga up` at a time on this machine does, until its nodes have them.
//!
//! A port that is free when it is chosen is taken by a node some time later. So that two commands do not choose the
//! same ones meanwhile, each holds a name of which the system has one, as it has one of each port: that of an abstract
//! Unix socket, which needs no file and ends with the process.

use crate::waiting::Waiting;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

const NAME: &str = "vinga-up-chooses-ports";

/// How long another command may take: longer than its nodes may take to start. Whoever holds the name for longer does
/// not keep others from starting clusters.
const PATIENCE: Duration = Duration::from_secs(90);

const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Nobody else chooses ports as long as this is held.
pub struct PortChoice {
    _name: Option<UnixListener>,
}

impl PortChoice {
    /// Waits until nobody else chooses ports.
    pub fn begin() -> Self {
        Self::begin_by(NAME, PATIENCE)
    }

    fn begin_by(name: &str, patience: Duration) -> Self {
        let mut waiting = Waiting::begin();
        loop {
            match SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name)) {
                Ok(held) => return PortChoice { _name: Some(held) },
                Err(why) if why.kind() == io::ErrorKind::AddrInUse && waiting.elapsed() < patience => {
                    waiting.say_if_long(|| {
                        "waiting until another 'vinga up', which has chosen ports, has started its nodes"
                            .to_owned()
                    });
                    std::thread::sleep(LOOK_PAUSE);
                }
                Err(_) => return PortChoice { _name: None },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_chooses_ports() {
        let name = format!("vinga-test-{}", std::process::id());
        let first = PortChoice::begin_by(&name, Duration::MAX);
        assert!(first._name.is_some());
        assert!(PortChoice::begin_by(&name, Duration::ZERO)._name.is_none(), "it goes on in the end");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| PortChoice::begin_by(&name, Duration::MAX));
            drop(first);
            assert!(second.join().expect("it does not panic")._name.is_some());
        });
    }
}
