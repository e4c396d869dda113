//! The node itself: it listens, and has a thread for each connection.

use crate::cluster_log::ClusterLog;
use crate::connection;
use crate::handout::{Given, Handout};
use crate::log_page;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vinga_agreement::Arbitrator;
use vinga_base::NodeId;
use vinga_key::ClusterKey;
use vinga_wire::arbitration::ArbitratorHello;
use vinga_wire::configuration::{ClusterLogConfirm, ClusterLogReport, ClusterLogRequest};
use vinga_wire::handshake::{MAGIC, PROTOCOL_VERSION};

/// Connections at a time, at most: data nodes have one when they ask something.
const CONNECTIONS_MAX: usize = 256;

/// How long to wait when the system has no descriptor for a connection.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

const WHO: &str = "arbitrator";

/// What a management node is configured with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagementSettings {
    /// Its id.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's key, which whoever connects has to prove; without one everybody is answered.
    pub key: Option<Arc<ClusterKey>>,
    /// The data nodes of the cluster, in order of id, with their node groups.
    pub data_nodes: Vec<(NodeId, u16)>,
    /// What it hands out.
    pub handout: Handout,
    /// Where the log of the cluster is written.
    pub folder: Option<PathBuf>,
    /// Where to listen; port 0 for any free one.
    pub listen: SocketAddr,
}

impl ManagementSettings {
    /// How a node of the cluster greets.
    pub(crate) fn hello(&self, node: NodeId) -> ArbitratorHello {
        ArbitratorHello {
            magic: MAGIC,
            version: PROTOCOL_VERSION,
            cluster: self.cluster.clone(),
            data_nodes: self.data_nodes.clone(),
            node,
        }
    }
}

/// A management node that runs.
pub struct ManagementNode {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
    /// Dropping it ends the listener.
    awake: UnixStream,
}

/// What the threads of connections share.
pub(crate) struct Shared {
    /// How this node greets.
    pub hello: ArbitratorHello,
    /// The cluster's key.
    pub key: Option<Arc<ClusterKey>>,
    /// What it hands out.
    pub handout: Handout,
    /// Who has got it.
    pub given: Given,
    /// The log of the cluster.
    cluster_log: Option<Mutex<ClusterLog>>,
    /// One request after the other.
    arbitrator: Mutex<Arbitrator>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

struct Connection {
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    pub fn arbitrator(&self) -> MutexGuard<'_, Arbitrator> {
        lock(&self.arbitrator)
    }

    /// Writes what a data node has logged.
    pub fn write_to_cluster_log(&self, node: NodeId, ClusterLogReport { line, left_out }: &ClusterLogReport) {
        let Some(log) = &self.cluster_log else { return };
        let mut log = lock(log);
        if *left_out > 0 {
            let time = line.split(' ').next().unwrap_or_default();
            log.write(
                node,
                &format!("{time} warning reports: {left_out} lines before the next one are missing here"),
            );
        }
        // What comes from elsewhere is one line.
        log.write(node, &line.replace('\n', " | "));
    }
}

impl Shared {
    /// Lines of the log of the cluster.
    ///
    /// # Errors
    /// Why there are none.
    pub fn read_cluster_log(&self, request: &ClusterLogRequest) -> Result<ClusterLogConfirm, String> {
        let Some(log) = &self.cluster_log else { return Err("it has no folder".to_owned()) };
        // Lines that come meanwhile need not wait until the files are read.
        let files = lock(log).files();
        files.and_then(|files| log_page::read(files, request)).map_err(|why| why.to_string())
    }
}

impl ManagementNode {
    /// Starts a node: when this returns, it listens.
    ///
    /// # Errors
    /// A text: the address is taken, or not ours.
    pub fn start(settings: ManagementSettings) -> Result<Self, String> {
        let ManagementSettings { node, listen, .. } = settings;
        let generation = settings.handout.stamp.generation;
        let in_use = |why: std::io::Error| match why.kind() {
            ErrorKind::AddrInUse => {
                format!("can't listen on {listen}: port {} is in use (PortNumber)", listen.port())
            }
            _ => format!("can't listen on {listen}: {why}"),
        };
        let has_key = settings.key.is_some();
        let socket = TcpListener::bind(listen).map_err(in_use)?;
        let prepared = socket.set_nonblocking(true).and_then(|()| socket.local_addr());
        let address = prepared.map_err(|why| why.to_string())?;
        let (awake, stopped) = UnixStream::pair().map_err(|why| why.to_string())?;
        let shared = Arc::new(Shared {
            hello: settings.hello(node),
            key: settings.key.clone(),
            handout: settings.handout,
            given: Given::default(),
            cluster_log: settings.folder.as_deref().map(|folder| Mutex::new(ClusterLog::in_folder(folder))),
            arbitrator: Mutex::default(),
            connections: Mutex::default(),
        });
        let listener = thread::Builder::new().name("listener".to_string()).spawn({
            let shared = shared.clone();
            move || listen_for_nodes(&socket, &stopped, &shared)
        });
        let listener = listener.map_err(|why| format!("the system has no threads left: {why}"))?;
        log::info!(
            target: "node",
            "management node {node} is ready on {address}, and hands out generation {generation} of the configuration"
        );
        if !has_key {
            log::warn!(
                target: "node",
                "no cluster key (ClusterKeyFile): every process of this machine is answered on {address}"
            );
        }
        Ok(ManagementNode { address, shared, listener, awake })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the node: a request that it has read is answered.
    pub fn stop(self) {
        drop(self.awake);
        join(self.listener);
        let open = std::mem::take(&mut lock(&self.shared.connections).open);
        for connection in open.values() {
            // It is closed by the other side already, if that fails.
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        open.into_values().filter_map(|connection| connection.thread).for_each(join);
    }
}

/// Accepts connections until the other end of `stopped` is gone.
fn listen_for_nodes(socket: &TcpListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut watched = [PollFd::new(socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => {
                log::error!(target: WHO, "can't wait for connections: {why}");
                thread::sleep(SHORTAGE_PAUSE);
            }
        }
        if !watched[1].revents().is_empty() {
            return;
        }
        match socket.accept() {
            Ok((stream, from)) => serve(stream, from, shared),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(why) => {
                log::error!(target: WHO, "a connection can't be accepted: {why}");
                thread::sleep(SHORTAGE_PAUSE);
            }
        }
    }
}

/// Has a thread of its own serve a connection.
fn serve(stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>) {
    let mut connections = lock(&shared.connections);
    if connections.open.len() >= CONNECTIONS_MAX {
        log::warn!(target: WHO, "{from} is closed: there are {CONNECTIONS_MAX} connections");
        return;
    }
    let number = connections.next;
    let begun = stream.set_nonblocking(false).and_then(|()| stream.try_clone()).and_then(|kept| {
        let shared = shared.clone();
        let thread = thread::Builder::new().name("connection".to_string()).spawn(move || {
            connection::serve(stream, from, number, &shared);
            lock(&shared.connections).open.remove(&number);
        })?;
        Ok(Connection { stream: kept, thread: Some(thread) })
    });
    match begun {
        Ok(connection) => {
            connections.next += 1;
            connections.open.insert(number, connection);
        }
        Err(why) => log::error!(target: WHO, "{from} can't be served: {why}"),
    }
}

/// A holder that panics ends the process.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(thread: JoinHandle<()>) {
    if let Err(why) = thread.join() {
        std::panic::resume_unwind(why);
    }
}
