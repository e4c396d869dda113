//! The node itself: it listens, and has a thread for each connection.

use crate::cluster_log::ClusterLog;
use crate::connection::{self, WHO};
use crate::handout::{Given, Handout};
use crate::log_page;
use crate::pending::{PendingConnections, Proven};
use crate::repeated::RepeatedLines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga_agreement::Arbitrator;
use vinga_base::NodeId;
use vinga_key::{ClusterKey, Listening};
use vinga_runtime::log::RateLimit;
use vinga_wire::arbitration::ArbitratorHello;
use vinga_wire::configuration::{ClusterLogConfirm, ClusterLogReport, ClusterLogRequest};
use vinga_wire::handshake::MAGIC;
use vinga_wire::key::NodeKind;
use vinga_wire::protocol::Protocol;
use vinga_wire::{Address, BlockNumber};

/// Connections of a data node that are expected at a time: that by which it has its configuration, that of its reports,
/// one by which it asks the arbitrator, and one by which it looks after that.
const CONNECTIONS_EACH: usize = 4;

/// Connections beyond those: of whoever looks, and of data nodes whose earlier connections have not ended yet.
const CONNECTIONS_RESERVED: usize = 32;

/// Connections that are accepted before those that are waiting are looked at again: so these are read in time, however
/// many come.
const ACCEPTS_MAX: usize = 16;

/// Lines of a level about refused connections in a second, at most.
const LINES_PER_SECOND: u32 = 10;

/// How long to wait when the system has no descriptor for a connection.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

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
            protocol: Protocol::own(),
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
    lines: Mutex<RateLimit>,
    repeated: Mutex<RepeatedLines>,
}

/// Those whose other side has proven the key.
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

    /// Warns of what another process has done, unless there are many such lines.
    pub fn warn(&self, text: std::fmt::Arguments<'_>) {
        lock(&self.lines).write(log::Level::Warn, WHO, text);
    }

    /// The same of one that tries again and again: once a minute as long as it is the same. `begin` is what may differ
    /// each time.
    pub fn warn_once(&self, from: SocketAddr, begin: std::fmt::Arguments<'_>, text: &str) {
        lock(&self.repeated).warn(&mut lock(&self.lines), WHO, from, begin, text);
    }

    /// Proven connections at a time, at most.
    fn connections_max(&self) -> usize {
        self.hello.data_nodes.len() * CONNECTIONS_EACH + CONNECTIONS_RESERVED
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
    /// Lines of the log of the cluster, behind what is to be changed of it.
    ///
    /// # Errors
    /// Why there are none.
    pub fn read_cluster_log(&self, request: &ClusterLogRequest) -> Result<ClusterLogConfirm, String> {
        let Some(log) = &self.cluster_log else { return Err("it has no folder".to_owned()) };
        // Lines that come meanwhile need not wait until the files are read.
        let (files, written) = {
            let mut log = lock(log);
            request.switch.iter().for_each(|switch| log.switch(switch));
            (log.files(), log.written())
        };
        let page = files.and_then(|files| log_page::read(files, request)).map_err(|why| why.to_string())?;
        Ok(ClusterLogConfirm { written, ..page })
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
            lines: Mutex::new(RateLimit::new(LINES_PER_SECOND)),
            repeated: Mutex::default(),
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

/// Accepts connections until the other end of `stopped` is gone, and has those served whose other side has the key.
fn listen_for_nodes(socket: &TcpListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    let mut pending = PendingConnections::new();
    loop {
        let mut watched = vec![PollFd::new(socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        watched.extend(pending.watched());
        let left = pending
            .time_left(Instant::now())
            .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut watched, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => {
                shared.warn(format_args!("can't wait for connections: {why}"));
                thread::sleep(SHORTAGE_PAUSE);
            }
        }
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        drop(watched);
        if ready[1] {
            return;
        }
        // Before others come and take their places.
        let own = Listening {
            key: shared.key.as_deref(),
            kind: NodeKind::Management,
            driver: Address::new(shared.hello.node, BlockNumber::Driver, 0),
            cluster: &shared.hello.cluster,
        };
        let passed = pending.read(&ready[2..], &own, Instant::now());
        for connection in passed {
            serve(connection, shared);
        }
        if ready[0] {
            accept(socket, &mut pending, shared);
        }
    }
}

fn accept(socket: &TcpListener, pending: &mut PendingConnections, shared: &Shared) {
    for _ in 0..ACCEPTS_MAX {
        match socket.accept() {
            Ok((stream, from)) => pending.add(stream, from, Instant::now()),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return,
            Err(why) if matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(why) => {
                shared.warn(format_args!("a connection can't be accepted: {why}"));
                return thread::sleep(SHORTAGE_PAUSE);
            }
        }
    }
}

/// Has a thread of its own serve a connection.
fn serve(connection: Proven, shared: &Arc<Shared>) {
    let from = connection.from;
    let mut connections = lock(&shared.connections);
    let most = shared.connections_max();
    if connections.open.len() >= most {
        return shared.warn(format_args!("{from} is closed: there are {most} connections"));
    }
    let number = connections.next;
    let begun = connection.stream.try_clone().and_then(|kept| {
        let shared = shared.clone();
        let thread = thread::Builder::new().name("connection".to_string()).spawn(move || {
            connection::serve(connection, number, &shared);
            lock(&shared.connections).open.remove(&number);
        })?;
        Ok(Connection { stream: kept, thread: Some(thread) })
    });
    match begun {
        Ok(connection) => {
            connections.next += 1;
            connections.open.insert(number, connection);
        }
        Err(why) => shared.warn(format_args!("{from} can't be served: {why}")),
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
