//! Turns a checked configuration into the settings of the node's blocks and of the edge.

use crate::disk::random;
use crate::others::{arbitrators, has_arbitrators, others, places, resolve};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_config::config_error::Origin;
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_config::placement::{Affinity, SOCKET_OWNERS_MAX, Scheduling, ThreadPlan};
use vinga_kernel::Span;
use vinga_key::{ClusterKey, key_of_node};
use vinga_node::log_streams;
use vinga_node::{DiskSettings, NodeSettings, ThreadHosting};
use vinga_runtime::files::FileSettings;
use vinga_runtime::settings as edge;
use vinga_wire::configuration::ConfigurationStamp;
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
///
/// # Errors
/// The system has no random numbers.
pub fn node_settings(
    configuration: &Configuration,
    disk: Option<DiskSettings>,
) -> Result<NodeSettings, String> {
    let integer = |parameter| configuration.parameters.integer(parameter);
    let text = |parameter| configuration.parameters.text(parameter).unwrap_or_default().to_owned();
    let millis = |parameter| Span::from_millis(integer(parameter));
    let placement = &configuration.placement;
    let node = NodeId(integer(Parameter::NodeId) as u8);
    let data_nodes = &configuration.data_nodes;
    let own = data_nodes.get(node.0).expect("a configuration lists its own node");
    let streams = disk.as_ref().map_or(&[][..], |disk| &disk.streams);
    let threads: Vec<ThreadHosting> =
        placement.executors().iter().map(|plan| hosting(plan, streams)).collect();
    let now = clock_millis();
    let share = |parameter, instances: u16| (integer(parameter) / u64::from(instances.max(1))).max(32) as u32;
    Ok(NodeSettings {
        node,
        incarnation: match &disk {
            // Not from the clock: a node that has ended may come back in the same second, and would be taken for the
            // one that was given up.
            None => Incarnation(random()? as u32),
            Some(disk) => Incarnation(disk.start.state.node_incarnation),
        },
        group: own.group,
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
        usual_partitions: usual_partitions(placement.partitions_per_node, data_nodes.all().len()),
        api_first: API_FIRST,
        api_nodes_max: integer(Parameter::MaxNoOfApiConnections) as u8,
        lock_timeout: millis(Parameter::TransactionDeadlockDetectionTimeout),
        inactive_timeout: Some(millis(Parameter::TransactionInactiveTimeout)).filter(|&tick| tick != Span(0)),
        backup_buffer: integer(Parameter::BackupLogBufferSize) as usize
            / usize::from(placement.partitions_per_node.max(1)),
        backup_piece: vinga_node::BACKUP_PIECE,
        copy_piece: vinga_node::COPY_PIECE,
        ending_slice: vinga_node::ENDING_SLICE,
        operations_together: vinga_node::OPERATIONS_TOGETHER,
        commits_at_last_replica: true,
        heartbeat_interval: millis(Parameter::HeartbeatIntervalDbApi),
        node_heartbeat_interval: millis(Parameter::HeartbeatIntervalDbDb),
        arbitration_timeout: millis(Parameter::ArbitrationTimeout),
        has_arbitrators: has_arbitrators(configuration),
        reconnect_grace: Span::from_millis(GRACE_HEARTBEATS * integer(Parameter::HeartbeatIntervalDbApi)),
        epoch_interval: millis(Parameter::TimeBetweenEpochs),
        checkpoint_interval: millis(Parameter::TimeBetweenGlobalCheckpoints),
        disk,
    })
}

/// Partitions of a table that does not say how many it wants: those of each data node.
fn usual_partitions(per_node: u16, nodes: usize) -> u16 {
    // The dictionary gives no table more than there are.
    u16::try_from(usize::from(per_node) * nodes).unwrap_or(u16::MAX)
}

/// Whether there is nothing on disk that numbers could be taken from.
fn is_first_start(disk: Option<&DiskSettings>) -> bool {
    disk.is_none_or(|disk| disk.start.next_write == 0)
}

/// Where clients and other data nodes reach the node; empty if any free port will do, as that is not known yet.
fn address(host: &str, port: u64) -> String {
    if port == 0 {
        return String::new();
    }
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

/// The number of a group of users that is given by its name or number.
fn group(written: &str) -> Result<u32, String> {
    if let Ok(number) = written.parse() {
        return Ok(number);
    }
    let found = uzers::get_group_by_name(written).map(|group| group.gid());
    found.ok_or_else(|| format!("LocalConnectionsGroup: this machine has no group of users named {written}"))
}

/// The cluster's key of a node that listens there, if it has one.
fn key(configuration: &Configuration, listen: SocketAddr) -> Result<Option<ClusterKey>, String> {
    let named_by = match configuration.parameters.origin(Parameter::ClusterKeyFile) {
        Origin::Line { file, .. } => Some(file.as_str()),
        Origin::Default | Origin::Flag => None,
    };
    key_of_node(configuration.parameters.text(Parameter::ClusterKeyFile), named_by, listen)
}

/// The settings of the edge.
///
/// # Errors
/// The address to listen on, or that of another data node, can't be resolved; or the data nodes can't all reach each
/// other; or there is no cluster key where others could connect; or no such group of users.
pub fn edge_settings(
    configuration: &Configuration,
    node: &NodeSettings,
    folder: Option<PathBuf>,
) -> Result<edge::ProcessSettings, String> {
    let integer = |parameter| configuration.parameters.integer(parameter);
    let text = |parameter| configuration.parameters.text(parameter).unwrap_or_default().to_owned();
    let listen = resolve("HostName", &text(Parameter::HostName), integer(Parameter::ServerPort) as u16)?;
    // Not from the clock, which may be set back: what names an incarnation must never come again.
    let seed = random()?;
    Ok(edge::ProcessSettings {
        node: node.node,
        incarnation: node.incarnation,
        cluster_incarnation: node.disk.as_ref().map_or(seed, |disk| disk.start.cluster_incarnation),
        database: node.disk.as_ref().map_or(seed, DiskSettings::cluster),
        cluster: text(Parameter::Name),
        key: key(configuration, listen)?.map(Arc::new),
        listen,
        listen_locally: None,
        local_group: configuration
            .parameters
            .text(Parameter::LocalConnectionsGroup)
            .map(group)
            .transpose()?,
        threads: configuration.placement.executors().iter().map(thread).collect(),
        helpers: thread(configuration.placement.watchdog()),
        files: files(configuration, folder),
        instances: node.instances(),
        view: Arc::new(ClusterView::of_one(node.member())),
        seed,
        limits: edge::Limits {
            send_buffer_bytes: integer(Parameter::SendBufferMemory) as usize,
            watchdog: Duration::from_millis(integer(Parameter::TimeBetweenWatchDogCheck)),
            ..edge::Limits::default()
        },
        has_disk: node.disk.is_some(),
        joins: Arc::default(),
        first_start: None,
        start_progress: None,
        others: others(configuration, listen)?,
        places: places(configuration),
        arbitrators: arbitrators(configuration, listen)?,
        arbitration_timeout: Duration::from_millis(integer(Parameter::ArbitrationTimeout)),
        heartbeat_interval: Duration::from_millis(integer(Parameter::HeartbeatIntervalDbDb)),
        // `Assembly::configured_as` has another one.
        configuration: ConfigurationStamp::default(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::this_machine;
    use std::collections::BTreeSet;
    use vinga_config::file::ConfigFile;
    use vinga_wire::view::Member;

    fn settings(node: &str) -> (NodeSettings, edge::ProcessSettings) {
        let text = "[data default]\nNoOfReplicas=2\nHeartbeatIntervalDbDb=70\nPartitionsPerNode=2\nHostName=127.0.0.1\n\
                    [data]\nServerPort=7001\n[data]\nServerPort=7002\n[data]\nServerPort=7003\n\
                    [data]\nServerPort=7004\n";
        let file = ConfigFile::parse("f", text);
        let flags = [("NodeId", node), ("ThreadConfig", "ldm={count=2},tc,recv={count=2},main")];
        let configuration =
            Configuration::new(Some(&file), &flags, &this_machine()).expect("a good configuration");
        let node = node_settings(&configuration, None).expect("there are random numbers");
        let edge = edge_settings(&configuration, &node, None).expect("these are addresses");
        (node, edge)
    }

    /// Clients take whatever has these numbers for what they knew before, and the other data nodes a node that comes
    /// back.
    #[test]
    fn no_two_starts_without_a_disk_have_the_same_incarnation_or_database() {
        let starts: Vec<edge::ProcessSettings> = (0..50).map(|_| settings("1").1).collect();
        let databases: BTreeSet<(u64, u64)> =
            starts.iter().map(|edge| (edge.cluster_incarnation, edge.database)).collect();
        let incarnations: BTreeSet<Incarnation> = starts.iter().map(|edge| edge.incarnation).collect();
        assert_eq!((databases.len(), incarnations.len()), (50, 50));
    }

    /// What all nodes say of themselves together is the view that a cluster with this file begins in.
    #[test]
    fn members_of_a_cluster_make_its_first_view() {
        let members: Vec<Member> = ["1", "2", "3", "4"]
            .map(|node| {
                let (settings, edge) = settings(node);
                assert_eq!(settings.usual_partitions, 8);
                assert_eq!(settings.node_heartbeat_interval, Span::from_millis(70));
                assert_eq!((settings.disk.is_none(), edge.has_disk), (true, false));
                let [member] = edge.view.members() else { panic!("it knows itself only: {:?}", edge.view) };
                assert_eq!(member, &settings.member());
                member.clone()
            })
            .into();
        let view = ClusterView::first(members);
        let of = |member: &Member| (member.node.0, member.group, member.address.clone());
        let expected = [(1, 0, 7001), (2, 0, 7002), (3, 1, 7003), (4, 1, 7004)];
        assert_eq!(
            view.members().iter().map(of).collect::<Vec<_>>(),
            expected.map(|(node, group, port)| (node, group, format!("127.0.0.1:{port}")))
        );
        assert!(view.is_replicated() && view.groups() == 2);
        for member in view.members() {
            // Two threads that read sockets reach all data managers.
            let reached: usize = member.connections.iter().map(|hosts| hosts.data_managers.len()).sum();
            assert_eq!((member.connections.len(), reached), (2, usize::from(member.data_managers)));
            assert_eq!(member.redo_streams, 0);
        }
    }

    #[test]
    fn a_node_knows_the_others_of_its_cluster() {
        let (_, edge) = settings("3");
        let others = edge.others.iter().map(|other| (other.node.0, other.group, other.address.port()));
        assert_eq!(others.collect::<Vec<_>>(), [(1, 0, 7001), (2, 0, 7002), (4, 1, 7004)]);
        assert_eq!(edge.listen.to_string(), "127.0.0.1:7003");
        let alone = Configuration::new(None, &[("ServerPort", "0")], &this_machine()).expect("good flags");
        let node = node_settings(&alone, None).expect("there are random numbers");
        let edge = edge_settings(&alone, &node, None).expect("localhost has an address");
        assert_eq!((edge.others, node.group, edge.view.groups()), (Vec::new(), 0, 1));
        // Nobody is sent to a port that nobody listens on.
        assert_eq!(edge.view.members()[0].address, "");
    }
}
