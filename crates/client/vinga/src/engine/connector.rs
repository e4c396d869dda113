//! Opens connections, each attempt on a thread of its own that lives as long as the attempt.

use super::{Engine, State, Way};
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;
use vinga_base::NodeId;
use vinga_client_core::LinkId;
use vinga_key::{ClusterKey, NotAccepted, prove};
use vinga_local::{Credentials, OFFER, Socket};
use vinga_wire::Address;
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};

/// How long one address is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The user that may do everything.
const ROOT: u32 = 0;

/// Before the path of a Unix socket: a data node on this machine.
const LOCAL: &str = "unix:";

/// Proves the key of the cluster on connections by TCP.
#[derive(Debug)]
pub struct Prover {
    /// The key.
    pub key: ClusterKey,
    /// The cluster's name, empty for any.
    pub cluster: String,
    /// Whether data nodes may listen at other addresses than those that connections are opened to.
    pub is_relayed: bool,
}

impl Prover {
    fn prove(&self, socket: &mut TcpStream) -> Result<(), NotAccepted> {
        let terms = ConnectionTerms::new(ConnectionPurpose::Client, NodeId(0), NodeId(0), &self.cluster);
        let terms = if self.is_relayed { terms } else { terms.to(socket.peer_addr()?) };
        prove(socket, &self.key, Address::NONE, terms)
    }
}

/// Begins to open a connection; the machine is informed how it went.
pub fn open(engine: &Arc<Engine>, link: LinkId, address: String, opening: u64) {
    let engine = Arc::clone(engine);
    let builder = thread::Builder::new().name("vinga-connect".into());
    // Without a thread there is no connection; the greeting's time-out ends the attempt.
    let _ = builder.spawn(move || {
        let socket = connect(&address, engine.prover.as_ref());
        let mut state = engine.lock();
        if state.is_closed || state.links[usize::from(link.0)].opening != opening {
            return;
        }
        state.client.on_time(engine.now());
        match socket {
            Ok(socket) => opened(&engine, state, link, socket),
            Err(error) => {
                match error {
                    NotAccepted::Failed(why) => {
                        state.client.on_broken(link, format!("can't connect to {address}: {why}"));
                    }
                    NotAccepted::Refused(code, detail) => {
                        let detail = if detail.is_empty() { address } else { format!("{address}: {detail}") };
                        state.client.on_refused(link, code, detail);
                    }
                }
                engine.flush(state, &mut Vec::new());
            }
        }
    });
}

fn opened(
    engine: &Arc<Engine>,
    mut state: MutexGuard<'_, State>,
    link: LinkId,
    (socket, way): (Socket, Way),
) {
    let place = &mut state.links[usize::from(link.0)];
    place.socket = Some(Arc::new(socket));
    place.way = way;
    state.sockets_version += 1;
    engine.alarm_reader();
    state.client.on_opened(link);
    engine.flush(state, &mut Vec::new());
}

/// Whether rows may be sent to the process that listens there: it is of our own user, of root, or of the owner of the
/// folder, who could replace the socket anyway. In a folder that everybody may write to, such as `/tmp`, anybody could
/// listen.
fn check_listener(socket: &UnixStream, path: &Path) -> io::Result<()> {
    let user = Credentials::of(socket)?.user;
    if user == ROOT || user == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = folder.metadata()?.uid();
    if user == owner {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "a process of user {user} listens there, which is neither ours nor the owner of the folder (user {owner})"
        ),
    ))
}

fn connect(address: &str, prover: Option<&Prover>) -> Result<(Socket, Way), NotAccepted> {
    if let Some(path) = address.strip_prefix(LOCAL) {
        let mut socket = UnixStream::connect(path)?;
        check_listener(&socket, Path::new(path))?;
        socket.write_all(&OFFER)?;
        socket.set_nonblocking(true)?;
        return Ok((socket.into(), Way::Offered));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(mut socket) => {
                socket.set_nodelay(true)?;
                if let Some(prover) = prover {
                    socket.set_read_timeout(Some(CONNECT_TIMEOUT))?;
                    socket.set_write_timeout(Some(CONNECT_TIMEOUT))?;
                    prover.prove(&mut socket)?;
                }
                socket.set_nonblocking(true)?;
                return Ok((socket.into(), Way::Socket));
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}
