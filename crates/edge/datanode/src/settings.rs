//! Turns a checked configuration into the settings of the node's blocks and of the edge.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_config::placement::{Affinity, SOCKET_OWNERS_MAX, Scheduling, ThreadPlan};
use vinga_kernel::Span;
use vinga_node::log_streams;
use vinga_node::{DiskSettings, NodeSettings, ThreadHosting};
use vinga_runtime::files::FileSettings;
use vinga_runtime::settings as edge;
use vinga_wire::handshake::CONNECTIONS_MAX;
use vinga_wire::view::ClusterView;

/// The lowest node id of an API node: data nodes have 1–144.
const API_FIRST: NodeId = NodeId(145);

// Every thread that owns sockets serves a connection of each client.
const _: () = assert!(SOCKET_OWNERS_MAX == CONNECTIONS_MAX as usize);

/// How many heartbeats an API node has to reconnect after its connections broke.
const GRACE_HEARTBEATS: u64 = 2;

/// Io threads of a node that has files.
const IO_THREADS_MIN: usize = 4;
const IO_THREADS_MAX: usize = 16;

/// Milliseconds since 1970. Numbers that must grow over restarts are made from it where there is no disk to keep them.
pub fn clock_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

/// The settings of the blocks, of a node with this disk.
pub fn node_settings(configuration: &Configuration, disk: Option<DiskSettings>) -> NodeSettings {
    let integer = |parameter| configuration.parameters.integer(parameter);
    let text = |parameter| configuration.parameters.text(parameter).unwrap_or_default().to_owned();
    let millis = |parameter| Span::from_millis(integer(parameter));
    let placement = &configuration.placement;
    let node = NodeId(integer(Parameter::NodeId) as u8);
    let streams = disk.as_ref().map_or(&[][..], |disk| &disk.streams);
    let threads: Vec<ThreadHosting> =
        placement.executors().iter().map(|plan| hosting(plan, streams)).collect();
    let now = clock_millis();
    let share = |parameter, instances: u16| (integer(parameter) / u64::from(instances.max(1))).max(32) as u32;
    NodeSettings {
        node,
        incarnation: match &disk {
            None => Incarnation((now / 1000) as u32),
            Some(disk) => Incarnation(disk.start.state.node_incarnation),
        },
        group: 0,
        address: address(&text(Parameter::HostName), integer(Parameter::ServerPort)),
        // A node that closes fewer than a thousand epochs a second begins above the epochs of its last incarnation.
        // One with a disk receives it from the lifecycle block.
        epoch: if disk.is_none() { Epoch(now) } else { Epoch(1) },
        // A client may know tables of the database that was here before, so a new one begins above its versions. Later
        // starts go on where the file of definitions says.
        table_version: if is_first_start(disk.as_ref()) { now << 16 } else { 1 },
        threads,
        transactions_max: share(Parameter::MaxNoOfConcurrentTransactions, placement.coordinators),
        operations_max: share(Parameter::MaxNoOfConcurrentOperations, placement.partitions_per_node),
        scans_max: share(Parameter::MaxNoOfConcurrentScans, placement.partitions_per_node),
        tables_max: integer(Parameter::MaxNoOfTables) as u32,
        usual_partitions: placement.partitions_per_node,
        api_first: API_FIRST,
        api_nodes_max: integer(Parameter::MaxNoOfApiConnections) as u8,
        lock_timeout: millis(Parameter::TransactionDeadlockDetectionTimeout),
        inactive_timeout: Some(millis(Parameter::TransactionInactiveTimeout)).filter(|&tick| tick != Span(0)),
        backup_buffer: integer(Parameter::BackupLogBufferSize) as usize
            / usize::from(placement.partitions_per_node.max(1)),
        backup_piece: vinga_node::BACKUP_PIECE,
        operations_together: vinga_node::OPERATIONS_TOGETHER,
        heartbeat_interval: millis(Parameter::HeartbeatIntervalDbApi),
        // A node that is alone sends none.
        node_heartbeat_interval: Span::from_millis(250),
        arbitration_timeout: None,
        reconnect_grace: Span::from_millis(GRACE_HEARTBEATS * integer(Parameter::HeartbeatIntervalDbApi)),
        epoch_interval: millis(Parameter::TimeBetweenEpochs),
        checkpoint_interval: millis(Parameter::TimeBetweenGlobalCheckpoints),
        disk,
    }
}

/// Whether there is nothing on disk that numbers could be taken from.
fn is_first_start(disk: Option<&DiskSettings>) -> bool {
    disk.is_none_or(|disk| disk.start.next_write == 0)
}

/// Where clients and other data nodes reach the node.
fn address(host: &str, port: u64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn hosting(plan: &ThreadPlan, streams: &[Range<u16>]) -> ThreadHosting {
    ThreadHosting {
        data_managers: plan.data_managers.clone(),
        coordinators: plan.coordinator.map_or(0..0, |instance| instance..instance + 1),
        streams: log_streams::hosted(streams, &plan.data_managers),
        main: plan.hosts_main,
        owns_sockets: plan.owns_sockets,
    }
}

/// The settings of the edge.
///
/// # Errors
/// The address to listen on can't be resolved.
pub fn edge_settings(
    configuration: &Configuration,
    node: &NodeSettings,
    folder: Option<PathBuf>,
) -> Result<edge::ProcessSettings, String> {
    let integer = |parameter| configuration.parameters.integer(parameter);
    let text = |parameter| configuration.parameters.text(parameter).unwrap_or_default().to_owned();
    let seed = clock_millis() ^ u64::from(std::process::id()) << 40;
    Ok(edge::ProcessSettings {
        node: node.node,
        incarnation: node.incarnation,
        cluster_incarnation: node.disk.as_ref().map_or(seed, |disk| disk.start.cluster_incarnation),
        database: node.disk.as_ref().map_or(seed, DiskSettings::cluster),
        cluster: text(Parameter::Name),
        listen: listen(&text(Parameter::HostName), integer(Parameter::ServerPort) as u16)?,
        listen_locally: None,
        threads: configuration.placement.executors().iter().map(thread).collect(),
        helpers: thread(configuration.placement.watchdog()),
        files: files(configuration, folder),
        instances: node.instances(),
        view: Arc::new(ClusterView::first(vec![node.member()])),
        seed,
        limits: edge::Limits {
            send_buffer_bytes: integer(Parameter::SendBufferMemory) as usize,
            watchdog: Duration::from_millis(integer(Parameter::TimeBetweenWatchDogCheck)),
            ..edge::Limits::default()
        },
        has_disk: node.disk.is_some(),
        first_start: None,
        start_progress: None,
        others: Vec::new(),
        peers: Arc::default(),
        bug: None,
    })
}

/// As many io threads as threads that run turns, so that all of these can have something flushed at the same time,
/// within limits: a flush of one file hardly delays that of another (docs/decisions/0021-log-streams-and-direct-io.md).
fn files(configuration: &Configuration, folder: Option<PathBuf>) -> FileSettings {
    let open_max = configuration.parameters.integer(Parameter::MaxNoOfOpenFiles) as usize;
    let threads =
        configuration.placement.executors().len().clamp(IO_THREADS_MIN, IO_THREADS_MAX).min(open_max);
    FileSettings::new(folder, threads, open_max, thread(configuration.placement.files()))
}

fn listen(host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| format!("HostName '{host}': {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("HostName '{host}' has no address"))
}

fn thread(plan: &ThreadPlan) -> edge::ThreadSettings {
    edge::ThreadSettings {
        name: format!("{}{}", plan.kind.name(), plan.index),
        cpus: match &plan.affinity {
            Affinity::Any => Vec::new(),
            Affinity::One(cpu) => vec![cpu.0],
            Affinity::Set(set) => set.iter().map(|cpu| cpu.0).collect(),
        },
        realtime: plan.scheduling == Scheduling::Realtime,
        priority: match plan.scheduling {
            Scheduling::Priority(priority) => Some(priority),
            Scheduling::Normal | Scheduling::Realtime => None,
        },
        spin_micros: u32::from(plan.spin_us),
        owns_sockets: plan.owns_sockets,
        sends: plan.sends,
    }
}
