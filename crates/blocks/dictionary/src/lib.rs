//! The dictionary: which tables and databases there are, and how they are changed.
//!
//! `tables` and `databases` hold what may be used. A request becomes a `plan` when its turn comes, and the plan is
//! carried out as a `change`, in `rounds`, one change at a time. The other data nodes' dictionaries know the same
//! (`replication`, `orders`), so that one of them can go on when the president fails (`succession`). `lock` is the
//! schema lock, `events` notifies subscribers what has changed, `requests` answers the API nodes, `joining` sends a
//! data node that joins what there is. On a node with a disk changes are written to it (`record`, `schema_file`,
//! `definitions`), and read again when the node starts (`start`).
//! The signals are described in `vinga_wire::{dictionary, schema, schema_round}`, the protocol in
//! `docs/protocols/schema.md`.
//!
//! A change is decided at one point. Until then a refusal or the death of its requester undoes it, from then on it goes
//! to its end whoever is still there; at its end a table exists everywhere or nowhere, in one version.
//!
//! Table ids are small and dense, from 1 to `MaxNoOfTables`; the lowest free one is taken. An id is used again only
//! with another version. Versions grow by one with every table that is made or altered and begin with a number from the
//! clock at the node's start ([`Settings::version`]), so that none is ever given twice, restarts of the cluster
//! included.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod change;
mod databases;
pub mod definitions;
mod events;
mod joining;
mod lock;
mod log_room;
mod orders;
mod partitions;
mod plan;
mod record;
mod replication;
mod requests;
mod rounds;
mod schema_file;
mod start;
mod succession;
mod tables;
mod write_fences;

pub use databases::DATABASES_MAX;
pub use events::EVENT_WAIT_MAX;
pub use lock::LOCK_QUEUE_MAX;
pub use schema_file::Disk;
pub use start::VERSIONS_RESERVED;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use databases::Databases;
use events::Subscribers;
use joining::{Hold, Joining};
use lock::SchemaLock;
use orders::Orders;
use plan::ChangeRequest;
use replication::Noted;
use rounds::Change;
use schema_file::SchemaFile;
use start::Start;
use succession::Succession;
use tables::Tables;
use vinga_base::{Epoch, NodeId, TableVersion};
use vinga_kernel::{AdmittedNodes, Block, Context, PendingTakeOvers, Scrutiny};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::epoch::{EpochBody, EpochOrder, LogRoom};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::schema::Database;
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64};

/// What the dictionary is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `MaxNoOfTables`.
    pub tables_max: u32,
    /// Partitions of a table that does not say how many it wants.
    pub usual_partitions: u16,
    /// The version of the first table that is created: [`first_version`] of the node's start. If the schema file has
    /// greater ones, it is one above these.
    pub version: TableVersion,
    /// Where definitions are kept; `None`: nothing is kept on disk.
    pub disk: Option<Disk>,
}

/// The first version for a node that starts at this time (milliseconds since 1970). A node that makes fewer than
/// 65,536 versions a millisecond never reaches the first version of its next start.
pub const fn first_version(start_millis: u64) -> TableVersion {
    TableVersion(start_millis << 16)
}

/// Schema changes that may wait for the one under way.
pub const QUEUED_CHANGES_MAX: usize = 16;

/// Who asked for something.
#[derive(Clone, Copy, Debug)]
struct Requester {
    address: Address,
    /// Its tag.
    request: u32,
    /// The signal that says no.
    refusal: SignalNumber,
}

/// What a timer is for.
enum Timer {
    /// Who has not confirmed the events of the change with this number is no longer awaited.
    EventWait(u64),
    /// The claim for the schema lock with this ticket has waited long enough.
    LockWait(u64),
}

impl Timer {
    fn token(self) -> u64 {
        match self {
            Timer::EventWait(number) => number << 1,
            Timer::LockWait(ticket) => ticket << 1 | 1,
        }
    }

    fn from_token(token: u64) -> Self {
        if token & 1 == 0 { Timer::EventWait(token >> 1) } else { Timer::LockWait(token >> 1) }
    }
}

/// The dictionary block: definitions, the schema lock, subscribers, and the change under way.
pub struct Dictionary {
    tables: Tables,
    usual_partitions: u16,
    databases: Databases,
    admitted: AdmittedNodes,
    /// Tables that only one API node may change rows of, and that node.
    fences: BTreeMap<u32, NodeId>,
    /// Tables whose write fence ends, as its owner's connections were closed, at dictionaries that do not lead: the
    /// president's lifts it, or its successor does.
    ending_fences: BTreeSet<u32>,
    orders: Orders,
    lock: SchemaLock,
    subscribers: Subscribers,
    /// Transactions of coordinators that have failed: they use tables until they have ended.
    take_overs: PendingTakeOvers,
    /// The change under way.
    change: Option<Change>,
    /// The change that the president's dictionary carries out, at other dictionaries.
    noted: Option<Noted>,
    /// This node has become president, and finds out what its predecessor was doing.
    succession: Option<Succession>,
    /// Changes that wait. Empty if none is under way, none is held, and the predecessor's is known.
    queue: VecDeque<(Requester, ChangeRequest)>,
    /// Changes are held as a data node joins.
    hold: Option<Hold>,
    /// This node has joined, and learns the definitions.
    joining: Option<Joining>,
    /// Number of the newest change, here or where it was noted from.
    changes: u64,
    /// The current epoch, as far as it was announced here.
    epoch: Epoch,
    /// Everything up to this epoch is on disk.
    durable: Epoch,
    /// The definitions on disk; `None`: nothing is kept there.
    file: Option<SchemaFile>,
    /// No version from here on is given before the file says otherwise; 0: there is no file yet.
    version_limit: TableVersion,
    /// Whether the redo log has room for the ends of epochs.
    log_room: LogRoom,
    start: Start,
}

impl Dictionary {
    /// A dictionary without tables.
    pub fn new(settings: Settings) -> Self {
        Dictionary {
            tables: Tables::new(settings.tables_max, settings.version),
            usual_partitions: settings.usual_partitions,
            databases: Databases::default(),
            admitted: AdmittedNodes::default(),
            fences: BTreeMap::new(),
            ending_fences: BTreeSet::new(),
            orders: Orders::default(),
            lock: SchemaLock::default(),
            subscribers: Subscribers::default(),
            change: None,
            take_overs: PendingTakeOvers::default(),
            noted: None,
            succession: None,
            queue: VecDeque::new(),
            hold: None,
            joining: None,
            changes: 0,
            epoch: Epoch(0),
            durable: Epoch(0),
            log_room: LogRoom::Enough,
            file: settings.disk.map(SchemaFile::new),
            version_limit: TableVersion(0),
            start: Start::default(),
        }
    }

    fn on_timer(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match Timer::from_token(token.get()) {
            Timer::EventWait(number) => self.on_event_wait_over(cx, number),
            Timer::LockWait(ticket) => self.on_lock_wait_over(cx, ticket),
        }
        Some(())
    }

    fn on_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        Some(())
    }

    fn on_durable_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.durable = self.durable.max(order.epoch());
        Some(())
    }

    /// This incarnation of an API node is admitted, for the first time or again.
    fn on_api_connected_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        self.admitted.admit(body);
        cx.frame(SignalNumber::ApiConnectedConfirm, frame.sender()).put(body);
        Some(())
    }

    /// An API node's connections are closed: nothing of it stays. What it asked for and is decided is finished without
    /// an answer, for its id may soon be somebody else's; what is not decided is undone, what waits is forgotten.
    fn on_api_gone(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, answer: SignalNumber) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        self.admitted.close(api);
        self.queue.retain(|(requester, _)| requester.address.node() != api);
        if let Some(change) = &mut self.change {
            change.forget_requester(cx, api);
        }
        self.orders.forget_requester(api);
        if cx.view().president() == Some(cx.own().node()) {
            self.lift_fences_of(cx, api);
        } else {
            self.note_ending_fences(api);
        }
        self.release_lock_of(cx, api);
        self.end_subscription(cx, api);
        self.go_on(cx);
        cx.frame(answer, frame.sender()).put(body);
        Some(())
    }

    /// The tables that may be used, by id.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.iter()
    }

    /// The databases, in order of their names.
    pub fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter()
    }

    /// The tables that only one API node may change rows of, and that node.
    pub fn fences(&self) -> impl Iterator<Item = (u32, NodeId)> {
        self.fences.iter().map(|(&table, &api)| (table, api))
    }

    /// The API node that has the schema lock, as far as is known here.
    pub fn lock_holder(&self) -> Option<NodeId> {
        self.lock.holder()
    }

    /// Whether an API node is admitted here.
    pub fn is_admitted(&self, api: NodeId) -> bool {
        self.admitted.has(api)
    }

    /// The API nodes that are notified of events.
    pub fn subscribers(&self) -> impl Iterator<Item = NodeId> {
        self.subscribers.nodes()
    }

    /// The API node whose schema change is under way, the number of the change, and how many of its rounds have begun.
    pub fn progress(&self) -> Option<(NodeId, u64, u32)> {
        self.change.as_ref()?.progress()
    }

    /// The number of the change that the president's dictionary carries out, as far as this one knows.
    pub fn noted(&self) -> Option<u64> {
        self.noted.as_ref().map(|noted| noted.number)
    }

    /// Whether a schema change is under way.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }
}

/// How a request is refused that only the dictionary of the president carries out; `None` for other signals.
fn refusal_elsewhere(signal: Option<SignalNumber>) -> Option<SignalNumber> {
    match signal? {
        SignalNumber::CreateTableRequest => Some(SignalNumber::CreateTableRefuse),
        SignalNumber::DropTableRequest => Some(SignalNumber::DropTableRefuse),
        SignalNumber::SchemaChangeRequest => Some(SignalNumber::SchemaChangeRefuse),
        SignalNumber::SchemaLockRequest => Some(SignalNumber::SchemaLockRefuse),
        SignalNumber::SchemaUnlockRequest => Some(SignalNumber::SchemaUnlockRefuse),
        SignalNumber::SchemaEventsRequest => Some(SignalNumber::SchemaEventsRefuse),
        _ => None,
    }
}

impl Block for Dictionary {
    /// Nothing has to be begun.
    fn start(&mut self, _: &mut Context<'_>) {}

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if frame.sender().block() == Some(BlockNumber::Api) && !self.admitted.has(frame.sender().node()) {
            // It had been read before the API node was closed; nobody would ever end what it asks for.
            return cx.mark("request of a closed API node to the dictionary is not carried out");
        }
        if let Some(refusal) = refusal_elsewhere(frame.signal())
            && cx.view().president() != Some(cx.own().node())
        {
            return self.refuse_elsewhere(cx, refusal, frame);
        }
        let handled = match frame.signal() {
            Some(SignalNumber::CreateTableRequest) => self.on_create_table_request(cx, frame),
            Some(SignalNumber::DropTableRequest) => self.on_drop_table_request(cx, frame),
            Some(SignalNumber::DescribeTableRequest) => self.on_describe_table_request(cx, frame),
            Some(SignalNumber::ListTablesRequest) => self.on_list_tables_request(cx, frame),
            Some(SignalNumber::SchemaChangeRequest) => self.on_schema_change_request(cx, frame),
            Some(SignalNumber::DescribeDatabaseRequest) => self.on_describe_database_request(cx, frame),
            Some(SignalNumber::ListDatabasesRequest) => self.on_list_databases_request(cx, frame),
            Some(SignalNumber::SchemaLockRequest) => self.on_schema_lock_request(cx, frame),
            Some(SignalNumber::SchemaUnlockRequest) => self.on_schema_unlock_request(cx, frame),
            Some(SignalNumber::SchemaEventsRequest) => self.on_schema_events_request(cx, frame),
            Some(SignalNumber::SchemaEventsSeenOrder) => self.on_schema_events_seen_order(cx, frame),
            Some(SignalNumber::SchemaEventsStopOrder) => {
                self.on_schema_events_stop_order(cx, frame);
                Some(())
            }
            Some(SignalNumber::SchemaRoundRequest) => self.on_schema_round_request(cx, frame),
            Some(SignalNumber::SchemaStateRequest) => self.on_schema_state_request(cx, frame),
            Some(SignalNumber::SchemaStateConfirm) => self.on_schema_state_confirm(cx, frame),
            Some(SignalNumber::SchemaRoundConfirm) => self.on_schema_round_confirm(cx, frame),
            Some(SignalNumber::SchemaRoundRefuse) => self.on_schema_round_refuse(cx, frame),
            Some(SignalNumber::SchemaHoldRequest) => self.on_schema_hold_request(cx, frame),
            Some(SignalNumber::SchemaReleaseOrder) => self.on_schema_release_order(cx, frame),
            Some(SignalNumber::DefinitionsRequest) => self.on_definitions_request(cx, frame),
            Some(SignalNumber::DefinitionsConfirm) => self.on_definitions_confirm(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(frame),
            Some(SignalNumber::LogRoomOrder) => self.on_log_room_order(cx, frame),
            Some(SignalNumber::DurabilityConfirm) => self.on_durability_confirm(cx, frame),
            Some(SignalNumber::StartRequest) => self.on_start_request(cx, frame),
            Some(SignalNumber::TakeOverDoneReport) => self.on_take_over_done_report(cx, frame),
            Some(SignalNumber::FileConfirm) => self.on_file_confirm(cx, frame),
            Some(SignalNumber::FileRefuse) => self.on_file_refuse(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer(cx, frame),
            Some(SignalNumber::ApiConnectedOrder) => self.on_api_connected_order(cx, frame),
            Some(SignalNumber::ApiConnectionClosedOrder) => {
                self.on_api_gone(cx, frame, SignalNumber::ApiConnectionClosedConfirm)
            }
            Some(SignalNumber::ApiFailedOrder) => self.on_api_gone(cx, frame, SignalNumber::ApiFailedConfirm),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    /// Nothing is sent to members that are lost, nor awaited from them.
    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.take_overs.note_lost(change);
        for member in change.lost() {
            self.orders.forget_node(member.node);
        }
        self.answer_ordered(cx);
        if let Some(under_way) = &mut self.change {
            for member in change.lost() {
                under_way.forget_node(cx, member.node);
            }
            self.go_on(cx);
        }
        self.refuse_queued_if_leaving(cx);
        let own = Some(cx.own().node());
        if change.new.president() == own && change.old.president() != own {
            self.succeed(cx);
        } else {
            self.no_longer_await_state(cx, change);
        }
        self.begin_to_join(cx, change);
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        assert!(
            self.queue.is_empty()
                || self.change.is_some()
                || self.succession.is_some()
                || self.hold.is_some(),
            "changes wait only for one under way, or as a data node joins"
        );
        assert!(self.noted.is_none() || self.change.is_none(), "a change is carried out by one dictionary");
        assert!(
            self.succession.is_none() || self.change.is_none(),
            "a new president first finds out what goes on"
        );
        assert!(self.queue.len() <= QUEUED_CHANGES_MAX, "at most {QUEUED_CHANGES_MAX} changes wait");
        assert!(
            self.version_limit == TableVersion(0) || self.tables.version() <= self.version_limit,
            "versions are given that the disk says are not"
        );
        let is_being_written = self.file.as_ref().is_some_and(|file| !file.is_at_rest());
        assert!(
            !is_being_written || self.change.is_some() || self.start.is_under_way(),
            "what is written belongs to a change or to the start"
        );
        if scrutiny == Scrutiny::Full {
            let is_there = |&table: &u32| self.tables.iter().any(|record| record.table == table);
            assert!(self.fences.keys().all(is_there), "a write fence is of a table that there is");
            let has_fence = |table: &u32| self.fences.contains_key(table);
            assert!(self.ending_fences.iter().all(has_fence), "only a write fence that there is can end");
            self.orders.check_invariants();
        }
    }
}
