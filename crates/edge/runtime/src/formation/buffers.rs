//! The buffers that the system has for a link, where their sizes are configured.

use crate::settings::LinkBuffers;
use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;

/// Sets the sizes of a link's buffers; what the system has made of them: Linux allows twice as much, for what it keeps
/// of each packet, and less than that if it has a limit.
///
/// # Errors
/// The system's.
pub(crate) fn set(link: &impl AsFd, wanted: LinkBuffers) -> io::Result<LinkBuffers> {
    let LinkBuffers { send, receive } = wanted;
    if send > 0 {
        sockopt::set_socket_send_buffer_size(link, send as usize)?;
    }
    if receive > 0 {
        sockopt::set_socket_recv_buffer_size(link, receive as usize)?;
    }
    let bytes = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    Ok(LinkBuffers {
        send: bytes(sockopt::socket_send_buffer_size(link)?),
        receive: bytes(sockopt::socket_recv_buffer_size(link)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::net::TcpStream;

    #[test]
    fn the_system_has_what_was_wanted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let before = set(&link, LinkBuffers::default()).unwrap();
        let after = set(&link, LinkBuffers { send: 8192, receive: 16_384 }).unwrap();
        assert_ne!(before, after);
        // Twice what was wanted.
        assert_eq!(after, LinkBuffers { send: 16_384, receive: 32_768 });
    }
}
