//! What a data node is configured with: its place in the cluster, its threads, its limits. What the others are is not
//! decided here: that is in the view (`vinga_wire::view`).

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use vinga_base::{Epoch, Incarnation, LiveParameter, LiveValues, NodeId};
use vinga_kernel::Span;
use vinga_redo::CheckpointSettings;
use vinga_wire::BlockNumber;
use vinga_wire::view::{ConnectionHosts, Member, connection_of};

/// Which block instances a thread hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadHosting {
    /// Data manager instances.
    pub data_managers: Range<u16>,
    /// Coordinator instances.
    pub coordinators: Range<u16>,
    /// Log streams; none on a node without a disk.
    pub streams: Range<u16>,
    /// Agreement, membership, distribution, dictionary, restart, lifecycle: exactly one thread of a node.
    pub main: bool,
    /// Whether the thread's driver reads sockets.
    pub owns_sockets: bool,
}

/// The configuration of a data node's blocks, the same on all its threads.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// This node.
    pub node: NodeId,
    /// Which start of it this is.
    pub incarnation: Incarnation,
    /// Its node group.
    pub group: u16,
    /// Where it accepts connections (`host:port`); empty where connections are made in another way.
    pub address: String,
    /// The first epoch of a node without a disk: above every epoch of earlier incarnations.
    pub epoch: Epoch,
    /// The first table version: above every version of earlier incarnations. Of a node with a disk its files have a
    /// later one, except at its first start.
    pub table_version: u64,
    /// In order of thread index; data manager and coordinator instances ascend over the threads.
    pub threads: Vec<ThreadHosting>,
    /// `MaxNoOfConcurrentTransactions` of each coordinator.
    pub transactions_max: u32,
    /// `MaxNoOfConcurrentOperations` of each data manager.
    pub operations_max: u32,
    /// `MaxNoOfConcurrentScans` of each data manager.
    pub scans_max: u32,
    /// `MaxNoOfTables`.
    pub tables_max: u32,
    /// Partitions of a table that does not say how many it wants: `PartitionsPerNode` for each configured data node.
    pub usual_partitions: u16,
    /// The lowest node id that an API node may have.
    pub api_first: NodeId,
    /// `MaxNoOfApiConnections`.
    pub api_nodes_max: u8,
    /// `TransactionDeadlockDetectionTimeout`.
    pub lock_timeout: Span,
    /// `TransactionInactiveTimeout`; `None` for never.
    pub inactive_timeout: Option<Span>,
    /// Bytes of changes that a backup of a data manager may be behind with: its share of `BackupLogBufferSize`.
    pub backup_buffer: usize,
    /// Bytes of rows after which a piece of a backup ends: [`crate::BACKUP_PIECE`], less in tests.
    pub backup_piece: usize,
    /// Bytes of rows after which a batch of a copy ends: [`crate::COPY_PIECE`], less in tests.
    pub copy_piece: usize,
    /// Operations of a transaction's end that a data manager deals with in one turn: [`crate::ENDING_SLICE`], less in
    /// tests.
    pub ending_slice: u32,
    /// Operations that a coordinator sends a data manager as one signal, at most.
    pub operations_together: u16,
    /// Whether the last replica of a chain may commit by itself; only tests say no.
    pub commits_at_last_replica: bool,
    /// `HeartbeatIntervalDbApi`.
    pub heartbeat_interval: Span,
    /// `HeartbeatIntervalDbDb`.
    pub node_heartbeat_interval: Span,
    /// `ArbitrationTimeout`.
    pub arbitration_timeout: Span,
    /// Whether management nodes are configured that arbitrate.
    pub has_arbitrators: bool,
    /// How long an API node may take to reconnect before it is declared failed.
    pub reconnect_grace: Span,
    /// `TimeBetweenEpochs`.
    pub epoch_interval: Span,
    /// `TimeBetweenGlobalCheckpoints`.
    pub checkpoint_interval: Span,
    /// What is on this node's disk; `None`: nothing is kept there.
    pub disk: Option<DiskSettings>,
}

/// The disk of a data node: what was found there, and how it is used.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// What the start begins from.
    pub start: vinga_lifecycle::Disk,
    /// The data managers that log to each stream, in the order of the streams. This was fixed at the first start.
    pub streams: Vec<Range<u16>>,
    /// `NoOfFragmentLogFiles` of each stream.
    pub log_files: u32,
    /// `FragmentLogFileSize`, in bytes.
    pub log_file_bytes: u64,
    /// `RedoBuffer` of each stream, in bytes.
    pub redo_buffer: u64,
    /// When local checkpoints are made, and how fast.
    pub checkpoints: CheckpointSettings,
}

impl DiskSettings {
    /// The random number of the cluster, which all its files carry.
    pub fn cluster(&self) -> u64 {
        self.start.state.cluster
    }

    /// The stream that a data manager logs to.
    pub fn stream_of(&self, data_manager: u16) -> u16 {
        let found = self.streams.iter().position(|participants| participants.contains(&data_manager));
        found.expect("each data manager has a stream") as u16
    }
}

impl NodeSettings {
    /// The epoch before the one that the start begins with: of a node with a disk the files say which that is.
    pub(crate) fn first_epoch(&self) -> Epoch {
        if self.disk.is_some() { Epoch(1) } else { self.epoch }
    }

    /// The values that parameters which may change live have at the start.
    pub(crate) fn live_values(&self) -> LiveValues {
        use LiveParameter as P;
        let mut values = LiveValues::default();
        let mut set_millis = |parameter, span: Span| values.set(parameter, span.0 / 1000);
        set_millis(P::TransactionDeadlockDetectionTimeout, self.lock_timeout);
        set_millis(P::TransactionInactiveTimeout, self.inactive_timeout.unwrap_or(Span(0)));
        set_millis(P::TimeBetweenEpochs, self.epoch_interval);
        set_millis(P::TimeBetweenGlobalCheckpoints, self.checkpoint_interval);
        if let Some(disk) = &self.disk {
            let CheckpointSettings { bytes_between, speed } = disk.checkpoints;
            values.set(P::TimeBetweenLocalCheckpoints, CheckpointSettings::time_between(bytes_between));
            values.set(P::MinDiskWriteSpeed, speed.min);
            values.set(P::MaxDiskWriteSpeed, speed.max);
            values.set(P::MaxDiskWriteSpeedOtherNodeRestart, speed.max_other_node_restart);
            values.set(P::MaxDiskWriteSpeedOwnRestart, speed.max_own_restart);
        }
        values
    }

    /// The thread of each block instance of this node, instances of one block in the order of their numbers.
    pub fn instances(&self) -> Vec<(BlockNumber, u16)> {
        let mut instances = Vec::new();
        for (thread, hosting) in (0u16..).zip(&self.threads) {
            instances.extend(hosting.data_managers.clone().map(|_| (BlockNumber::DataManager, thread)));
            instances.extend(hosting.coordinators.clone().map(|_| (BlockNumber::Coordinator, thread)));
            instances.extend(hosting.streams.clone().map(|_| (BlockNumber::Redo, thread)));
            if hosting.main {
                let once = [
                    BlockNumber::Agreement,
                    BlockNumber::Membership,
                    BlockNumber::Distribution,
                    BlockNumber::Dictionary,
                    BlockNumber::Restart,
                ];
                instances.extend(once.map(|block| (block, thread)));
                instances.extend(self.disk.iter().map(|_| (BlockNumber::Lifecycle, thread)));
            }
            instances.push((BlockNumber::Info, thread));
        }
        instances
    }

    /// This node as a member of the first view.
    pub fn member(&self) -> Member {
        let instances = |of: fn(&ThreadHosting) -> usize| self.threads.iter().map(of).sum::<usize>() as u16;
        let (data_managers, coordinators) =
            (instances(|t| t.data_managers.len()), instances(|t| t.coordinators.len()));
        Member {
            address: self.address.clone(),
            connections: self.connections(),
            redo_streams: instances(|t| t.streams.len()),
            ..Member::started(self.node, self.incarnation, self.group, data_managers, coordinators)
        }
    }

    /// What is reached through each connection of a client.
    fn connections(&self) -> Vec<ConnectionHosts> {
        let threads = || (0u16..).zip(&self.threads);
        let serving: Vec<u16> =
            threads().filter(|(_, hosting)| hosting.owns_sockets).map(|(thread, _)| thread).collect();
        let mut connections = vec![ConnectionHosts::default(); serving.len()];
        for (thread, hosting) in threads() {
            let connection = &mut connections[connection_of(thread, &serving)];
            connection.data_managers.extend(hosting.data_managers.clone());
            connection.coordinators.extend(hosting.coordinators.clone());
        }
        connections
    }
}
