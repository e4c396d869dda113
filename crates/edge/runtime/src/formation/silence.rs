//! Links of which the other side has vanished without a word: its machine was switched off, or the way to it is cut.
//!
//! While the cluster forms, nothing passes over a link for as long as nodes are missing, so the system is asked to
//! probe it. A link whose other side answers no probe is closed, as if its process had ended: then the next start of
//! that node is greeted. The system of a machine answers for a process that stands still, which is right: it still has
//! its node id.

use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// How long nothing may come by a link until it is probed.
const IDLE: Duration = Duration::from_secs(2);
/// How long after a probe the next one is sent.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// How many probes may stay without an answer.
const PROBES_MAX: u32 = 3;
/// How long what was sent may stay without an acknowledgement: while something is, the system does not probe.
const UNACKNOWLEDGED_MILLIS_MAX: u32 = 5_000;

/// Has a link closed when its other side is silent.
///
/// # Errors
/// The system's.
pub(crate) fn watch(link: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(link, IDLE)?;
    sockopt::set_tcp_keepintvl(link, PROBE_PAUSE)?;
    sockopt::set_tcp_keepcnt(link, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(link, UNACKNOWLEDGED_MILLIS_MAX)?;
    sockopt::set_socket_keepalive(link, true)?;
    Ok(())
}

/// Leaves the link to agreement, which has limits of its own.
///
/// # Errors
/// The system's.
pub(crate) fn unwatch(link: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(link, false)?;
    sockopt::set_tcp_user_timeout(link, 0)?;
    Ok(())
}
