//! The data manager: owns fragments, with their rows, indexes and locks, and changes them on behalf of coordinators.
//!
//! Reads of committed rows come straight from API nodes (`key_read`, `scan`) and touch nothing but the row. Everything
//! else is an *operation* of a transaction (`operation`), begun by `PrepareRequest` (`prepare`) and made final by
//! `CommitRequest` or undone by `AbortRequest` (`commit`, `abort`). What a change has to be followed by in unique
//! indexes is listed in its answer (`unique`). The signals are those of `vinga_wire::commit`; the protocol is described
//! in `docs/protocols/commit.md`.
//!
//! # Versions of a row
//! The slot of a row always holds the version that readers are shown. What open operations would make of it stands in
//! their records, newest last, linked from the row's state record ([`versions::RowState`]), whose index stands in the
//! row's header; the header of a row without operations holds 0, which is all that a reader of an untouched row looks
//! at. A row that an open operation inserts has its slot already, marked *pending*: nobody but its own transaction sees
//! it.
//!
//! A **primary** (first of the chain) grants locks. At commit it puts the newest version into the slot and lets the
//! locks go. A **backup** has no locks, since the primary has ordered the operations; at commit it only notes the
//! epoch, and installs the version when it learns that all have committed: by `CompleteOrder`, or because the primary
//! has begun another operation on the same row or key (`resolve_earlier`), or because it becomes primary itself
//! (`failure`).
//!
//! # Parts
//! | part | what it has | who changes it |
//! |---|---|---|
//! | `store` | pages, chunks, tables with their fragments and indexes | rows: `apply` alone; tables: `schema` |
//! | `versions` | transactions, their operations, states of the rows that these name | `prepare`, `chain`, `commit`, `abort` |
//! | `locks` | lock table, queues of those that wait | `waiting`, `deadlock` |
//! | `endings` | ends of transactions with many operations, under way | `ending` |
//! | `scans` | scans that are open | `scan`, `scan_slice`, `range_scan` |
//! | `schema` | index builds, the round that waits for them | `schema`, `index_build`, `index_fill` |
//!
//! # What the invariants are
//! No operation record outlives its transaction (but markers); no lock outlives its operation; a row's header is 0
//! exactly if no operation names the row; all pools return to zero at rest ([`DataManager::is_at_rest`]). `invariants`
//! checks them.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod abort;
mod apply;
mod backup;
mod chain;
mod checkpoint;
mod clients;
mod commit;
mod copying;
mod deadlock;
mod ending;
mod failure;
mod hand_over;
pub mod index_build;
mod index_entries;
mod index_fill;
mod index_keys;
mod index_statistics;
pub mod inspect;
mod invariants;
mod key_read;
mod last_replica;
mod locks;
mod markers;
mod one_phase;
mod operation;
mod placement;
mod prefetching;
mod prepare;
mod range_scan;
mod redo;
mod restore;
mod scan;
mod scan_slice;
mod schema;
mod store;
pub mod table_usage;
mod tables;
mod take_over;
mod unique;
mod versions;
mod waiting;

pub use apply::{RowEvent, RowListener, Rows};
pub use checkpoint::CheckpointStatistics;
pub use copying::COPY_PIECE;
pub use ending::ENDING_SLICE;
pub use versions::RowPlace;

use alloc::vec::Vec;
pub use backup::BACKUP_PIECE;
use backup::Backup;
use checkpoint::{Checkpoints, Owner, Task};
use copying::Copying;
use ending::Endings;
use hand_over::Primary;
use index_build::IndexWork;
use index_statistics::StatisticsRequests;
use locks::Locks;
use markers::Markers;
use placement::Placed;
use prepare::Answers;
use range_scan::RangeScratch;
use redo::RedoLog;
use restore::Restore;
use scan::Scans;
use schema::Building;
use store::Store;
use versions::Versions;
use vinga_base::page_pool::{PAGE_BYTES, PagePool};
use vinga_base::pool::Pool;
use vinga_base::{ColumnId, Epoch, LiveParameter, NodeId};
use vinga_format::checksum::Checksum;
use vinga_kernel::{AdmittedNodes, Block, Context, Scrutiny, Span};
use vinga_wire::epoch::EpochBody;
use vinga_wire::file::{FileConfirm, FileRefuse};
use vinga_wire::view::{ReplicaGroup, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// What a data manager is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node that it runs on.
    pub node: NodeId,
    /// The partition that it would hold in the first view: that of its node group and instance.
    pub owner: ReplicaGroup,
    /// Share of `MaxNoOfConcurrentOperations`.
    pub operations_max: u32,
    /// Transactions that may have operations here.
    pub transactions_max: u32,
    /// Share of `MaxNoOfConcurrentScans`.
    pub scans_max: u32,
    /// `MaxNoOfTables`.
    pub tables_max: u32,
    /// What is kept on disk, and how; `None` if nothing is.
    pub disk: Option<Disk>,
    /// `TransactionDeadlockDetectionTimeout`: the longest wait for a lock, unless who waits says otherwise.
    pub lock_timeout: Span,
    /// `TransactionInactiveTimeout`: a scan that nobody asks for the next batch is closed; `None` for never.
    pub inactive_timeout: Option<Span>,
    /// Share of `BackupLogBufferSize`: bytes of changes that a backup may be behind with.
    pub backup_buffer: usize,
    /// Bytes of rows after which a piece of a backup ends. Tests use another number than [`BACKUP_PIECE`].
    pub backup_piece: usize,
    /// Bytes of rows after which a batch of a copy ends. Tests use another number than [`COPY_PIECE`].
    pub copy_piece: usize,
    /// Operations of a transaction's end that are dealt with in one turn, at least 1. Tests and the simulator use other
    /// numbers than [`ENDING_SLICE`].
    pub ending_slice: u32,
}

/// What a data manager has to know of its files.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// The log stream that it logs to.
    pub stream: u16,
    /// The random number of the cluster.
    pub cluster: u64,
    /// How checksums are computed.
    pub checksum: Checksum,
}

/// How often time-outs are looked for.
const CHECK_INTERVAL: Span = Span::from_millis(20);

/// One data manager instance: its fragments, and what open transactions and scans have of them.
pub struct DataManager {
    settings: Settings,
    /// The partition that it holds, or is to hold, or has held last.
    owner: ReplicaGroup,
    admitted: AdmittedNodes,
    /// Newest epoch of any commit here.
    epoch: Epoch,
    /// Everything up to this epoch is on disk, and any restart restores it.
    durable: Epoch,
    store: Store,
    versions: Versions,
    locks: Locks,
    /// Ends of transactions with many operations.
    endings: Endings,
    /// Whether this is the primary of its partition.
    primary: Primary,
    /// Committed transactions whose API node has not confirmed the outcome, and their epochs.
    markers: Markers,
    scans: Scans,
    schema: Schema,
    /// `None` if nothing is kept on disk.
    checkpoints: Option<Checkpoints>,
    /// What an API node makes of this data manager.
    backup: Option<Backup>,
    /// Rows that are sent to a data node that comes back, or that this one is sent.
    copying: Copying,
    /// What is left of a partition that has moved away.
    placement: Placed,
    /// The start from files.
    restore: Restore,
    /// The start is over; before, tables get their ordered indexes at its end.
    has_begun: bool,
    index_statistics: StatisticsRequests,
    scratch: Scratch,
    answers: Answers,
    statistics: Statistics,
}

/// What changes of tables have left to be done.
#[derive(Default)]
struct Schema {
    index_work: IndexWork,
    /// What a round of a schema change waits for.
    building: Option<Building>,
}

/// Buffers that are used again and again, so that nothing is allocated per operation.
#[derive(Default)]
struct Scratch {
    image: Vec<u8>,
    selection: Vec<ColumnId>,
    key: Vec<u8>,
    range: RangeScratch,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Rows looked up by key without a transaction.
    pub key_reads: u64,
    /// Operations prepared here as primary.
    pub operations: u64,
    /// Operations that were prepared and committed in one step.
    pub one_phase_commits: u64,
    /// Rows that scans have looked at.
    pub scanned_rows: u64,
    /// Operations that had to wait for a lock.
    pub lock_waits: u64,
    /// Operations refused because a lock was not granted in time.
    pub lock_timeouts: u64,
    /// Operations that were not to wait, and found their row locked.
    pub locks_denied: u64,
    /// Operations refused to end a deadlock.
    pub deadlocks: u64,
}

/// Where the memory of a data manager's rows goes, in bytes: whole pages, and their bookkeeping.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUsage {
    /// Number of rows.
    pub rows: u64,
    /// Headers and fixed parts.
    pub row_bytes: u64,
    /// Hash indexes.
    pub index_bytes: u64,
    /// Ordered indexes.
    pub ordered_index_bytes: u64,
    /// Variable parts, after-images, waiting operations.
    pub chunk_bytes: u64,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug)]
pub struct PoolUsage {
    /// What it holds.
    pub name: &'static str,
    /// Records in use.
    pub used: u32,
    /// The most that ever were.
    pub used_max: u32,
    /// Records that there are.
    pub capacity: u32,
    /// Bytes taken.
    pub bytes: usize,
}

impl DataManager {
    /// A data manager without tables.
    pub fn new(settings: Settings, pages: PagePool) -> Self {
        let operations = settings.operations_max;
        let stream = settings.disk.map(|disk| Address::new(settings.node, BlockNumber::Redo, disk.stream));
        let checkpoints = settings.disk.map(|Disk { cluster, checksum, .. }| {
            let instance = settings.owner.instance();
            Checkpoints::new(Owner { cluster, node: settings.node, instance, checksum })
        });
        DataManager {
            owner: settings.owner,
            admitted: AdmittedNodes::default(),
            epoch: Epoch(0),
            durable: Epoch(0),
            store: Store::new(pages, settings.tables_max, RedoLog::new(stream)),
            versions: Versions::new(operations, settings.transactions_max),
            locks: Locks::new(operations),
            endings: Endings::default(),
            primary: Primary::default(),
            markers: Markers::new(settings.transactions_max),
            scans: Scans::new(settings.scans_max),
            schema: Schema::default(),
            checkpoints,
            backup: None,
            copying: Copying::default(),
            placement: Placed::default(),
            restore: Restore::default(),
            has_begun: settings.disk.is_none(),
            index_statistics: StatisticsRequests::default(),
            scratch: Scratch::default(),
            answers: Answers::default(),
            statistics: Statistics::default(),
            settings,
        }
    }

    /// Handles a signal, unless it has to wait for its transaction's end.
    pub(crate) fn handle_signal(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if !self.endings.is_empty() && self.park(cx, frame) {
            return;
        }
        let handled = match frame.signal() {
            Some(SignalNumber::KeyReadRequest) => self.on_key_read_request(cx, frame),
            Some(SignalNumber::PrepareRequest) => self.on_prepare_request(cx, frame),
            Some(SignalNumber::CommitRequest) => self.on_commit_request(cx, frame),
            Some(SignalNumber::InDoubtRequest) => self.on_in_doubt_request(cx, frame),
            Some(SignalNumber::AbortRequest) => self.on_abort_request(cx, frame),
            Some(SignalNumber::CompleteOrder) => self.on_complete_order(cx, frame),
            Some(SignalNumber::CompleteRequest) => self.on_complete_request(cx, frame),
            Some(SignalNumber::MarkersDropOrder) => self.on_markers_drop_order(cx, frame),
            Some(SignalNumber::TakeOverOrder) => self.on_take_over_order(cx, frame),
            Some(SignalNumber::DeadlockProbeOrder) => self.on_deadlock_probe_order(cx, frame),
            Some(SignalNumber::DeadlockOrder) => self.on_deadlock_order(cx, frame),
            Some(SignalNumber::ScanOpenRequest) => self.on_scan_open_request(cx, frame),
            Some(SignalNumber::RangeScanOpenRequest) => self.on_range_scan_open_request(cx, frame),
            Some(SignalNumber::IndexStatisticsRequest) => self.on_index_statistics_request(cx, frame),
            Some(SignalNumber::ScanNextRequest) => self.on_scan_next_request(cx, frame),
            Some(SignalNumber::ScanCloseOrder) => self.on_scan_close_order(frame),
            Some(SignalNumber::SchemaRoundRequest) => self.on_schema_round_request(cx, frame),
            Some(SignalNumber::ApiConnectedOrder) => self.on_api_connected_order(cx, frame),
            Some(SignalNumber::ApiConnectionClosedOrder) => self.on_api_connection_closed_order(cx, frame),
            Some(SignalNumber::ApiFailedOrder) => self.on_api_failed_order(cx, frame),
            Some(SignalNumber::RedoCreditConfirm) => self.on_redo_credit_confirm(frame),
            Some(SignalNumber::RedoCreditReturnRequest) => self.on_redo_credit_return_request(cx, frame),
            Some(SignalNumber::RedoDrainRequest) => self.on_redo_drain_request(cx, frame),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(cx, frame),
            Some(SignalNumber::StartRequest) => self.on_start_request(cx, frame),
            Some(SignalNumber::RedoReplayRequest) => self.on_redo_replay_request(cx, frame),
            Some(SignalNumber::CheckpointOrder) => {
                self.on_checkpoint_order(cx);
                Some(())
            }
            Some(SignalNumber::BackupOpenRequest) => self.on_backup_open_request(cx, frame),
            Some(SignalNumber::BackupNextRequest) => self.on_backup_next_request(cx, frame),
            Some(SignalNumber::BackupCloseOrder) => self.on_backup_close_order(cx, frame),
            Some(SignalNumber::CopyRowsRequest) => self.on_copy_rows_request(cx, frame),
            Some(SignalNumber::CopyMarkersRequest) => self.on_copy_markers_request(cx, frame),
            Some(SignalNumber::MarkersCopiedConfirm) => self.on_markers_copied_confirm(cx, frame),
            Some(SignalNumber::CopyConfirm) => self.on_copy_confirm(frame),
            Some(SignalNumber::HandOverRequest) => self.on_hand_over_request(cx, frame),
            Some(SignalNumber::HandOverReleaseOrder) => self.on_hand_over_release_order(cx, frame),
            Some(SignalNumber::HandOverFlushRequest) => self.on_hand_over_flush_request(cx, frame),
            Some(SignalNumber::HandOverFlushConfirm) => self.on_hand_over_flush_confirm(cx, frame),
            Some(SignalNumber::PartitionSizeRequest) => self.on_partition_size_request(cx, frame),
            Some(SignalNumber::PlaceRequest) => self.on_place_request(cx, frame),
            Some(SignalNumber::DrainConfirm) => self.on_drain_confirm(cx, frame),
            Some(SignalNumber::EpochClosedConfirm) => self.on_epoch_closed_confirm(frame),
            Some(SignalNumber::CheckpointQuotaOrder) => self.on_checkpoint_quota_order(cx, frame),
            Some(SignalNumber::FileConfirm) => self.on_file_confirm(cx, frame),
            Some(SignalNumber::FileRefuse) => self.on_file_refuse(cx, frame),
            Some(SignalNumber::TimerReport) => {
                self.check_timeouts(cx);
                Some(())
            }
            _ => None,
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn on_durable_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.durable = self.durable.max(order.epoch());
        self.end_checkpoint(cx);
        Some(())
    }

    fn on_file_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<FileConfirm>()?;
        let token = confirm.token.get();
        match Task::from_token(token)? {
            task @ (Task::List | Task::Read(_)) => {
                let data = cx.take_file_data(token);
                self.on_restore_file_confirm(cx, task, data);
            }
            task => self.on_checkpoint_file_confirm(cx, task, token),
        }
        Some(())
    }

    fn on_file_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: FileRefuse = cold::read(frame)?;
        match Task::from_token(refuse.token)? {
            task @ (Task::List | Task::Read(_)) => self.on_restore_file_refuse(cx, task, &refuse),
            task => self.on_checkpoint_file_refuse(cx, task, &refuse),
        }
        Some(())
    }

    fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        cx.send_after(CHECK_INTERVAL, 0);
        self.check_lock_timeouts(cx);
        self.send_probes(cx);
        self.check_scan_timeouts(cx);
        self.answer_backup_soon();
    }

    /// Whether nothing is left of any transaction or scan: what must hold at rest.
    pub fn is_at_rest(&self) -> bool {
        self.versions.is_empty()
            && !self.store.tables.iter().any(|(_, table)| table.has_named_rows())
            && self.locks.is_empty()
            && self.endings.is_empty()
            && !self.primary.is_handed_over()
            && self.placement.is_free()
            && self.markers.is_empty()
            && self.scans.is_empty()
            && self.backup.is_none()
            && !self.store.listener.has_notes()
            && self.schema.index_work.is_empty()
            && self.index_statistics.is_empty()
    }

    /// Operations that wait for a lock; some of them may have it since.
    pub fn waiting(&self) -> usize {
        self.locks.waits()
    }

    /// Newest epoch of any commit here.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Markers of committed transactions.
    pub fn markers(&self) -> usize {
        self.markers.len()
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Counters of checkpoints; all 0 if nothing is kept on disk.
    pub fn checkpoint_statistics(&self) -> CheckpointStatistics {
        self.checkpoints.as_ref().map(Checkpoints::statistics).unwrap_or_default()
    }

    /// Pages of `DataMemory` in use and in all, of the whole node.
    pub fn pages(&self) -> (u32, u32) {
        self.store.pages.usage()
    }

    /// Where this data manager's memory goes.
    pub fn memory(&self) -> MemoryUsage {
        let chunks = self.store.chunks.usage();
        let mut usage = MemoryUsage {
            chunk_bytes: u64::from(chunks.pages) * PAGE_BYTES as u64 + chunks.heap_bytes,
            ordered_index_bytes: self.schema.index_work.bytes(),
            ..MemoryUsage::default()
        };
        for (_, fragment) in self.store.tables.iter().flat_map(|(_, table)| table.fragments()) {
            let rows = fragment.rows().usage();
            usage.rows += rows.rows;
            usage.row_bytes += u64::from(rows.pages) * PAGE_BYTES as u64 + rows.heap_bytes;
            usage.index_bytes += fragment.index().memory_bytes() as u64;
            for index in fragment.indexes() {
                let tree = index.tree.usage();
                usage.ordered_index_bytes += tree.bytes + tree.heap_bytes;
            }
        }
        usage
    }

    /// How full the pools are.
    pub fn pools(&self) -> [PoolUsage; 4] {
        fn usage<T>(name: &'static str, pool: &Pool<T>) -> PoolUsage {
            PoolUsage {
                name,
                used: pool.used(),
                used_max: pool.used_max(),
                capacity: pool.capacity(),
                bytes: pool.memory_bytes(),
            }
        }
        [
            usage("operations", &self.versions.operations),
            usage("transactions", &self.versions.transactions),
            usage("row states", &self.versions.rows),
            self.scans.usage(),
        ]
    }
}

impl Block for DataManager {
    /// Begins to look for time-outs.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.note_partition(cx);
        self.follow_primary(cx);
        cx.send_after(CHECK_INTERVAL, 0);
    }

    fn set_parameter(&mut self, _: &mut Context<'_>, parameter: LiveParameter, value: u64) {
        let span = Span::from_millis(value);
        match parameter {
            LiveParameter::TransactionDeadlockDetectionTimeout => self.settings.lock_timeout = span,
            LiveParameter::TransactionInactiveTimeout => {
                self.settings.inactive_timeout = (value > 0).then_some(span);
            }
            LiveParameter::TimeBetweenEpochs
            | LiveParameter::TimeBetweenGlobalCheckpoints
            | LiveParameter::TimeBetweenLocalCheckpoints
            | LiveParameter::MinDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeedOtherNodeRestart
            | LiveParameter::MaxDiskWriteSpeedOwnRestart => {}
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        self.handle_signal(cx, frame);
        if self.store.listener.is_long() {
            self.send_records(cx);
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.follow_partition(cx, change);
        self.note_lost_nodes(change);
        self.forget_builds(change);
        self.take_over_partitions(cx);
        self.update_copy(cx);
        self.follow_primary(cx);
    }

    /// Long work is looked for in every turn: what is not under way costs one comparison, and no call.
    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        if self.store.listener.has_to_send() {
            self.send_records(cx);
        }
        let endings = !self.endings.is_empty() && self.ending_slice(cx);
        if self.primary.is_handed_over() {
            self.hand_over_slice(cx);
        }
        let checkpoint = self.is_writing_checkpoint() && self.checkpoint_slice(cx);
        let backup = self.backup.is_some() && self.backup_slice(cx);
        let copy = self.copying.source.is_some() && self.copy_slice(cx);
        let scans = !self.scans.is_empty() && self.run_scans(cx);
        let removals = !self.store.tables.removals.is_empty() && self.remove_table_slice(cx);
        let given_up = !self.placement.given_up.is_empty() && self.release_slice(cx);
        let statistics = !self.index_statistics.is_empty() && self.statistics_slice(cx);
        let indexes = !self.schema.index_work.is_empty() && self.index_work_slice(cx);
        // Rows may have waited for an index.
        let copied = !self.copying.waiting.is_empty() && self.take_over_slice(cx);
        self.give_up_if_drained(cx);
        if self.builds_for_start() {
            self.note_built(cx);
        } else if self.schema.building.is_some() {
            self.report_builds(cx);
        }
        endings
            || checkpoint
            || backup
            || copy
            || copied
            || scans
            || removals
            || given_up
            || statistics
            || indexes
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        self.check(scrutiny);
    }
}
