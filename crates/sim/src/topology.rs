//! Which data nodes there are, what their threads host, and what they are configured with.

use crate::management::ARBITRATION_TIMEOUT;
use crate::profile::{Coordinators, Fault, Groups, Profile};
use std::ops::Range;
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_kernel::Span;
use vinga_node::log_streams;
use vinga_node::{CheckpointSettings, DiskSettings, NodeSettings, SpeedLimits, StartFrom, ThreadHosting};
use vinga_wire::view::ClusterView;

/// The lowest id of an API node.
pub const API_FIRST: u8 = 145;

/// The arbitrator's first ticket.
pub const ARBITRATION_TICKET: u64 = 1;

/// The node that leads the cluster first; it has coordinators.
pub const FIRST_NODE: u8 = 1;

impl Groups {
    /// The node group of each data node, in the order of their ids from 1.
    pub fn list(self) -> Vec<u16> {
        match self {
            Groups::One => vec![0],
            Groups::Three => vec![0, 1, 2],
            Groups::OnePair => vec![0, 0],
            Groups::OneAndPair => vec![0, 1, 1],
            Groups::Triple => vec![0, 0, 0],
            Groups::OneAndTriple => vec![0, 1, 1, 1],
            Groups::TwoPairs => vec![0, 0, 1, 1],
            Groups::Many { nodes, replicas } => (0..nodes).map(|node| node / replicas).collect(),
        }
    }

    /// Whether one of them has several nodes.
    pub fn have_replicas(self) -> bool {
        let list = self.list();
        list.iter().any(|group| list.iter().filter(|other| *other == group).count() > 1)
    }

    /// Whether each of them has several nodes.
    pub fn are_replicated(self) -> bool {
        let list = self.list();
        list.iter().all(|group| list.iter().filter(|other| *other == group).count() > 1)
    }
}

/// What the threads of a node host.
pub fn hosting(profile: &Profile, node: u8) -> Vec<ThreadHosting> {
    let threads = profile.threads;
    let data_managers = threads * profile.instances;
    let begin = |thread: u16| (thread * data_managers / profile.hosts).min(data_managers);
    let streams = streams(profile);
    (0..threads)
        .map(|thread| {
            let data_managers = begin(thread)..begin(thread + 1);
            let has_coordinators = node == FIRST_NODE || profile.coordinators == Coordinators::Everywhere;
            let coordinators = if has_coordinators { thread..thread + 1 } else { 0..0 };
            ThreadHosting {
                streams: if profile.log.is_some() {
                    log_streams::hosted(&streams, &data_managers)
                } else {
                    0..0
                },
                data_managers,
                coordinators,
                main: thread == 0,
                owns_sockets: thread < profile.socket_threads,
            }
        })
        .collect()
}

/// The data managers of each log stream: those of a thread at the first start.
fn streams(profile: &Profile) -> Vec<Range<u16>> {
    log_streams::participants(profile.threads * profile.instances, profile.threads)
}

/// The view that all begin in.
pub fn first_view(profile: &Profile) -> ClusterView {
    let nodes = 1..=profile.groups.list().len() as u8;
    let members = nodes.map(|node| settings(profile, node, None).member()).collect();
    ClusterView::first(members).with_ticket(ARBITRATION_TICKET)
}

/// By which clients find a data node.
pub fn address(node: NodeId) -> String {
    format!("node{node}")
}

/// The data node at an address.
pub fn node_at(address: &str) -> NodeId {
    let number = address.strip_prefix("node").and_then(|number| number.parse().ok());
    NodeId(number.expect("the world has made all addresses"))
}

/// What a node is configured with; `start` is what one with a disk begins from.
pub fn settings(profile: &Profile, node: u8, start: Option<StartFrom>) -> NodeSettings {
    NodeSettings {
        node: NodeId(node),
        incarnation: Incarnation(start.as_ref().map_or(1, |start| start.state.node_incarnation)),
        group: profile.node_groups()[usize::from(node) - 1],
        address: address(NodeId(node)),
        epoch: Epoch(1000),
        table_version: 1 << 20,
        threads: hosting(profile, node),
        transactions_max: profile.pools.transactions,
        operations_max: profile.pools.operations,
        scans_max: profile.pools.scans,
        tables_max: 32,
        usual_partitions: profile.partitions_per_node * profile.groups.list().len() as u16,
        api_first: NodeId(API_FIRST),
        api_nodes_max: 32,
        lock_timeout: Span(profile.lock_timeout),
        inactive_timeout: Some(Span(profile.inactive_timeout)),
        backup_buffer: profile.backups.map_or(1 << 20, |backups| backups.buffer),
        ending_slice: profile.ending_slice,
        copy_piece: profile.copy_piece,
        backup_piece: profile.backups.map_or(vinga_node::BACKUP_PIECE, |backups| backups.piece),
        operations_together: profile.operations_together,
        commits_at_last_replica: profile.commits_at_last_replica,
        heartbeat_interval: Span(profile.heartbeat_interval),
        node_heartbeat_interval: Span(profile.node_heartbeat_interval),
        arbitration_timeout: Span(ARBITRATION_TIMEOUT),
        has_arbitrators: profile.faults.contains(&Fault::Management),
        reconnect_grace: Span(profile.reconnect_grace),
        epoch_interval: Span(profile.epoch_interval),
        checkpoint_interval: Span(
            profile.log.map_or(profile.epoch_interval * 4, |log| log.checkpoint_interval),
        ),
        disk: start.map(|start| disk_settings(profile, start)),
    }
}

fn disk_settings(profile: &Profile, start: StartFrom) -> DiskSettings {
    let log = profile.log.expect("a node that has something to start from has a log");
    DiskSettings {
        start,
        streams: streams(profile),
        log_files: log.files,
        log_file_bytes: log.file_bytes,
        redo_buffer: log.buffer,
        checkpoints: CheckpointSettings {
            bytes_between: log.bytes_between,
            speed: SpeedLimits {
                min: log.speed.0,
                max: log.speed.1,
                max_other_node_restart: log.speed.1,
                max_own_restart: log.speed.1,
            },
        },
    }
}
