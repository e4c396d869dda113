//! Questions to the dictionary, for information tables and about parameters: one frame there, one back.
//!
//! The schema lock is one of them whose token stays when it is answered (`schema_lock`): cancelling it gives the lock
//! back, or withdraws the claim. Who cancels a request for a write fence leaves none behind, either: it is lifted as
//! soon as it is there.
//!
//! The dictionary that answers is the president's. While that is not connected, requests wait for it, or for the next
//! one (`succession`); so do those whose answers are lost with their connection, if they may be carried out twice. Of
//! other changes the outcome is unknown then. Rows of information tables are asked of one data node
//! ([`Request::asked_node`]): whoever asks several of them gets the answers of those that are there, and an error at
//! once for each other one.

mod schema_lock;
mod succession;

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::sessions::Admission;
use crate::settings::REQUESTS_MAX;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use schema_lock::Lock;
use vinga_base::pool::{Handle, Pool};
use vinga_base::schema::TableDefinition;
use vinga_base::time::{Span, Tick};
use vinga_base::{Epoch, LiveParameter, NodeId, PartitionId, ViewNumber};
use vinga_wire::backup::{
    BACKUP_CLOSED, BACKUP_SCANNED, BackupBatchHead, BackupNextBody, BackupOpenConfirm, BackupOpenRequest,
};
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm, TableRecord,
};
use vinga_wire::frame::FRAME_BYTES_MAX;
use vinga_wire::handshake::Refusal;
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoTable};
use vinga_wire::parameter::{ParameterChange, ParameterSetConfirm, ParameterSetRequest};
use vinga_wire::restart::{ReorganizeConfirm, ReorganizeRequest};
use vinga_wire::schema::{
    Database, DescribeDatabaseConfirm, DescribeDatabaseRequest, ListDatabasesConfirm, ListDatabasesRequest,
    SchemaChange, SchemaChangeConfirm, SchemaChangeRequest, SchemaLockBody,
};
use vinga_wire::shutdown::{ShutdownConfirm, ShutdownRequest, ShutdownTerms};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U32, U64, cold};

/// What is wanted.
#[derive(Clone, Debug)]
pub enum Request {
    /// A new table.
    CreateTable(TableDefinition),
    /// No table of this name any more.
    DropTable(String),
    /// The definition of the table of this name.
    DescribeTable(String),
    /// Names of tables with greater ids than this one.
    ListTables(u32),
    /// Another change of a table or database.
    ChangeSchema(SchemaChange),
    /// The database of this name.
    DescribeDatabase(String),
    /// Names of databases behind this one.
    ListDatabases(String),
    /// The schema lock.
    Lock {
        /// What for, for people.
        purpose: String,
        /// How long to wait, at most.
        wait: Span,
    },
    /// Rows of an information table that this data node has. It is the only one that can answer: while another one is
    /// connected, this is not waited for.
    Info(InfoTable, NodeId),
    /// Another value of a parameter, in its unit, at all data nodes.
    SetParameter(LiveParameter, u64),
    /// This data node is to stop. It is asked once: an answer that is lost says nothing.
    Shutdown(NodeId, ShutdownTerms, bool),
    /// Partitions are to move until each node group has its share, or no further one is.
    Reorganize(bool),
    /// A backup of a partition, of all tables; changes are noted from the answer on.
    BackupOpen(PartitionId),
    /// More of a backup of a partition.
    BackupNext {
        /// The partition.
        partition: PartitionId,
        /// The epoch of which is asked whether all its changes were sent; 0 for none.
        until: Epoch,
    },
}

impl Request {
    /// The only data node that can answer; `None` if it is the one that leads.
    pub(crate) fn asked_node(&self) -> Option<NodeId> {
        match self {
            Request::Info(_, node) | Request::Shutdown(node, ..) => Some(*node),
            _ => None,
        }
    }
}

/// A piece of a backup of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupBatch {
    /// Whether all rows were sent.
    pub is_scanned: bool,
    /// Whether the epoch that the request named is closed, and all changes up to it were sent.
    pub is_closed: bool,
    /// The newest epoch that the data manager knows.
    pub epoch: Epoch,
    /// Records of rows, as the redo log has them.
    pub rows: Vec<u8>,
    /// Records of changes.
    pub changes: Vec<u8>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To a creation or description.
    Table(TableRecord),
    /// To a drop.
    Dropped,
    /// To a list: ids, versions and names, and whether there are more.
    Tables(ListTablesConfirm),
    /// To another change: the table as it is now.
    Changed(Option<TableRecord>),
    /// To a question for a database.
    Database(Database),
    /// To a list of databases.
    Databases(ListDatabasesConfirm),
    /// The lock is held from now on.
    Locked,
    /// To a question for an information table.
    Info(InfoConfirm),
    /// The parameter has its new value.
    ParameterSet,
    /// The data node stops.
    Stops {
        /// Whether it has left before, so that nothing is rolled back by that.
        has_left: bool,
    },
    /// This view says that the cluster reorganizes, or does not. It may come later.
    Reorganizes(ViewNumber),
    /// The backup has begun; the newest epoch of any commit there.
    BackupOpened(Epoch),
    /// To a request for more of a backup.
    Backup(BackupBatch),
}

/// What a write fence is to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    /// None of its business.
    None,
    /// Wanted, or lifted when it is there, if nobody waits for it any more.
    Wanted,
    /// It may be there; the table's id is asked for, so that it can be lifted.
    Sought,
    /// It is being lifted.
    Lifted,
}

struct Waiting {
    node: NodeId,
    link: LinkId,
    /// What is to be sent, or sent again if the connection is lost.
    request: Option<Request>,
    /// What was sent, and is not sent again if the connection is lost; but it is if the data node refuses it because it
    /// is about to stop.
    sent: Option<Request>,
    /// Whether it was sent to a data node that can only stop, and begins no change any more: it has not been carried
    /// out if it is not answered.
    is_in_vain: bool,
    /// Whether it was sent by a connection that is open.
    is_sent: bool,
    /// Whether it was sent by a connection that was lost: it may have been carried out.
    was_lost: bool,
    /// Until when somebody is waited for to whom it can be sent.
    until: Tick,
    /// When it may be sent, if it was refused for the moment.
    not_before: Tick,
    /// What is answered when the write fence is lifted.
    failure: Option<Error>,
    /// Whether it is not over when the answer is taken, which says that it is not known what has become of it.
    goes_on: bool,
    lock: Lock,
    fence: Fence,
    /// The data manager that is to begin a backup.
    opens_backup: Option<Address>,
    /// Whether nobody waits for the answer any more, and what has begun by then is to be ended.
    is_abandoned: bool,
    /// Whether it may have been carried out although no answer came.
    changes: bool,
    answer: Option<Result<Answer>>,
}

impl Waiting {
    /// Nobody wants the backup that has begun.
    fn close_backup(&self, net: &mut Net, data_manager: Address) {
        net.frame(self.link, SignalNumber::BackupCloseOrder, data_manager);
        net.link(self.link).hurry();
    }
}

/// All questions to the dictionary and for information tables that are under way.
pub(crate) struct Requests {
    pool: Pool<Waiting>,
    /// Those that are not sent.
    unsent: u32,
    /// Tables, by id and birth, whose write fence requesters were given in this admission and have not lifted: they end
    /// with it.
    given_fences: BTreeSet<(u32, u64)>,
    /// Which admission of this client to the cluster it is.
    admission: Option<Admission>,
}

const GENERATION_SHIFT: u32 = 16;

/// The tag on the wire: place and low bits of the generation, so that a late answer finds nobody.
fn tag(handle: Handle) -> u32 {
    (handle.to_bits() >> 32) as u32 & 0xffff | handle.index() << GENERATION_SHIFT
}

impl Requests {
    pub fn new() -> Self {
        Requests { pool: Pool::new(REQUESTS_MAX), unsent: 0, given_fences: BTreeSet::new(), admission: None }
    }

    /// Sends a request to a block of a node: the dictionary's, the one that is asked for what it has, or the data
    /// manager of a backup. If there is no way it waits for one until then, at the latest.
    ///
    /// # Errors
    /// `ClusterFailure` if it is later already; `Overloaded`.
    pub fn submit(
        &mut self,
        net: &mut Net,
        request: &Request,
        way: Option<(Address, LinkId)>,
        awaited_until: Tick,
    ) -> Result<Handle> {
        let changes =
            matches!(request, Request::CreateTable(_) | Request::DropTable(_) | Request::ChangeSchema(_));
        if way.is_none() && net.now >= awaited_until && !lifts_fence(request) {
            return Err(why_no_way(net, request));
        }
        let lock = if let Request::Lock { .. } = request { Lock::Wanted } else { Lock::None };
        let fence = match request {
            Request::ChangeSchema(SchemaChange::FenceTable { .. }) => Fence::Wanted,
            Request::ChangeSchema(SchemaChange::LiftFence { .. }) => Fence::Lifted,
            _ => Fence::None,
        };
        let opens_backup =
            matches!(request, Request::BackupOpen(_)).then_some(way).flatten().map(|(to, _)| to);
        check_length(request)?;
        if let Request::ChangeSchema(SchemaChange::LiftFence { table }) = request {
            self.forget_fence(*table);
        }
        let waiting = Waiting {
            node: NodeId(0),
            link: LinkId(0),
            request: Some(request.clone()),
            sent: None,
            is_in_vain: false,
            is_sent: false,
            was_lost: false,
            until: net.now + net.settings.way_patience,
            not_before: Tick(0),
            failure: None,
            goes_on: false,
            lock,
            fence,
            opens_backup,
            is_abandoned: false,
            changes,
            answer: None,
        };
        let handle = self.pool.insert(waiting).map_err(|_| Error::new(ErrorCode::Overloaded))?;
        self.unsent += 1;
        if let Some(way) = way {
            self.send(net, handle, way);
        }
        Ok(handle)
    }

    /// Sends what is to be sent.
    fn send(&mut self, net: &mut Net, handle: Handle, (to, link): (Address, LinkId)) {
        let waiting = &mut self.pool[handle];
        debug_assert!(!waiting.is_sent, "it is sent once on each connection");
        let node = to.node();
        (waiting.node, waiting.link, waiting.is_sent) = (node, link, true);
        waiting.is_in_vain = waiting.changes && net.routes.view().has_given_up_all(node);
        self.unsent -= 1;
        let request = waiting.request.take().expect("what is not sent is kept");
        let request_tag = tag(handle);
        let dictionary = Address::new(node, BlockNumber::Dictionary, 0);
        let named = |name: &String| NamedTableRequest { request: request_tag, name: name.clone() };
        match &request {
            Request::CreateTable(definition) => {
                let body = CreateTableRequest { request: request_tag, definition: definition.clone() };
                cold::write(&mut net.frame(link, SignalNumber::CreateTableRequest, dictionary), &body);
            }
            Request::DropTable(name) => {
                cold::write(&mut net.frame(link, SignalNumber::DropTableRequest, dictionary), &named(name));
            }
            Request::DescribeTable(name) => {
                let mut frame = net.frame(link, SignalNumber::DescribeTableRequest, dictionary);
                cold::write(&mut frame, &named(name));
            }
            Request::ListTables(after) => {
                let body = ListTablesRequest { request: request_tag, after: *after };
                cold::write(&mut net.frame(link, SignalNumber::ListTablesRequest, dictionary), &body);
            }
            Request::ChangeSchema(change) => {
                let body = SchemaChangeRequest { request: request_tag, change: change.clone() };
                cold::write(&mut net.frame(link, SignalNumber::SchemaChangeRequest, dictionary), &body);
            }
            Request::DescribeDatabase(name) => {
                let body = DescribeDatabaseRequest { request: request_tag, name: name.clone() };
                cold::write(&mut net.frame(link, SignalNumber::DescribeDatabaseRequest, dictionary), &body);
            }
            Request::ListDatabases(after) => {
                let body = ListDatabasesRequest { request: request_tag, after: after.clone() };
                cold::write(&mut net.frame(link, SignalNumber::ListDatabasesRequest, dictionary), &body);
            }
            Request::Lock { purpose, wait } => {
                schema_lock::send(net, handle, (node, link), waiting.lock, (purpose, *wait));
            }
            Request::Info(table, _) => {
                let body = InfoRequest { request: request_tag, table: *table };
                let info = Address::new(node, BlockNumber::Info, 0);
                cold::write(&mut net.frame(link, SignalNumber::InfoRequest, info), &body);
            }
            Request::SetParameter(parameter, value) => {
                let change = ParameterChange { parameter: *parameter as u16, value: *value };
                let body = ParameterSetRequest { request: request_tag, change };
                let info = Address::new(node, BlockNumber::Info, 0);
                cold::write(&mut net.frame(link, SignalNumber::ParameterSetRequest, info), &body);
            }
            Request::Shutdown(_, terms, starts_again) => {
                let starts_again = *starts_again;
                let body = ShutdownRequest { request: request_tag, terms: *terms, starts_again };
                let info = Address::new(node, BlockNumber::Info, 0);
                cold::write(&mut net.frame(link, SignalNumber::ShutdownRequest, info), &body);
            }
            Request::Reorganize(begins) => {
                let body = ReorganizeRequest { request: request_tag, begins: *begins };
                let restart = Address::new(node, BlockNumber::Restart, 0);
                cold::write(&mut net.frame(link, SignalNumber::ReorganizeRequest, restart), &body);
            }
            Request::BackupOpen(partition) => {
                let body = BackupOpenRequest { request: request_tag, partition: partition.0 };
                cold::write(&mut net.frame(link, SignalNumber::BackupOpenRequest, to), &body);
            }
            Request::BackupNext { until, .. } => {
                net.frame(link, SignalNumber::BackupNextRequest, to).put(&BackupNextBody {
                    request: U32::new(request_tag),
                    unused: U32::ZERO,
                    until: U64::new(until.0),
                });
            }
        }
        net.link(link).hurry();
        let waiting = &mut self.pool[handle];
        if may_be_repeated(&request) {
            waiting.request = Some(request);
        } else if waiting.changes {
            waiting.sent = Some(request);
        }
    }

    /// Takes the answer; `None` if there is none yet. The token stays only if it holds the lock.
    pub fn take(&mut self, handle: Handle) -> Option<Result<Answer>> {
        let waiting = self.pool.get_mut(handle)?;
        let answer = waiting.answer.take()?;
        if waiting.goes_on {
            waiting.is_abandoned = true;
        } else if !waiting.lock.stays() {
            self.remove(handle);
        }
        Some(answer)
    }

    fn remove(&mut self, handle: Handle) -> Option<Waiting> {
        let waiting = self.pool.remove(handle)?;
        self.unsent -= u32::from(!waiting.is_sent);
        Some(waiting)
    }

    /// Nobody waits for the answer, or wants the lock, any more.
    pub fn cancel(&mut self, net: &mut Net, handle: Handle) {
        if self.keep_lifting(handle) || self.return_lock(net, handle) {
            return;
        }
        if let Some(waiting) = self.pool.get_mut(handle)
            && let Some(data_manager) = waiting.opens_backup
        {
            match &waiting.answer {
                // A backup of this client that was opened before is not to be ended, so the answer is waited for.
                None => {
                    waiting.is_abandoned = true;
                    return;
                }
                Some(Ok(_)) => waiting.close_backup(net, data_manager),
                Some(Err(_)) => {}
            }
        }
        self.remove(handle);
    }

    /// Takes an answer in; the caller has looked which signal it is.
    pub fn on_answer(&mut self, net: &mut Net, signal: SignalNumber, frame: &Frame<'_>) -> Option<()> {
        let (request, answer) = match signal {
            SignalNumber::CreateTableConfirm | SignalNumber::DescribeTableConfirm => {
                let confirm: TableConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Table(confirm.table)))
            }
            SignalNumber::DropTableConfirm => {
                let confirm: DropTableConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Dropped))
            }
            SignalNumber::ListTablesConfirm => {
                let confirm: ListTablesConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Tables(confirm)))
            }
            SignalNumber::SchemaChangeConfirm => {
                let confirm: SchemaChangeConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Changed(confirm.table)))
            }
            SignalNumber::DescribeDatabaseConfirm => {
                let confirm: DescribeDatabaseConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Database(confirm.database)))
            }
            SignalNumber::ListDatabasesConfirm => {
                let confirm: ListDatabasesConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Databases(confirm)))
            }
            SignalNumber::SchemaLockConfirm | SignalNumber::SchemaUnlockConfirm => {
                let confirm: SchemaLockBody = cold::read(frame)?;
                (confirm.request, Ok(Answer::Locked))
            }
            SignalNumber::InfoConfirm => {
                let confirm: InfoConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Info(confirm)))
            }
            SignalNumber::ParameterSetConfirm => {
                let confirm: ParameterSetConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::ParameterSet))
            }
            SignalNumber::ShutdownConfirm => {
                let confirm: ShutdownConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Stops { has_left: confirm.has_left }))
            }
            SignalNumber::ReorganizeConfirm => {
                let confirm: ReorganizeConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::Reorganizes(confirm.view)))
            }
            SignalNumber::BackupOpenConfirm => {
                let confirm: BackupOpenConfirm = cold::read(frame)?;
                (confirm.request, Ok(Answer::BackupOpened(Epoch(confirm.epoch))))
            }
            SignalNumber::BackupNextConfirm => {
                let (head, records) = frame.head::<BackupBatchHead>()?;
                let (rows, rest) = records.split_at_checked(head.row_bytes.get() as usize)?;
                let changes = rest.get(..head.change_bytes.get() as usize)?;
                let has = |flag| head.flags.get() & flag != 0;
                let batch = BackupBatch {
                    is_scanned: has(BACKUP_SCANNED),
                    is_closed: has(BACKUP_CLOSED),
                    epoch: Epoch(head.epoch.get()),
                    rows: rows.into(),
                    changes: changes.into(),
                };
                (head.request.get(), Ok(Answer::Backup(batch)))
            }
            _ => {
                let refusal: Refusal = cold::read(frame)?;
                let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::InternalError);
                (refusal.request, Err(Error::with_detail(code, refusal.detail)))
            }
        };
        let Some(handle) = self.pool.handle_at(request >> GENERATION_SHIFT) else { return Some(()) };
        if tag(handle) != request {
            return Some(());
        }
        if answer.as_ref().is_err_and(is_for_next_president) {
            let waiting = &mut self.pool[handle];
            waiting.request = waiting.request.take().or_else(|| waiting.sent.take());
            if waiting.request.is_some() {
                self.ask_next_president(net, handle);
                return Some(());
            }
        }
        if self.pool[handle].lock != Lock::None {
            self.on_lock_answer(net, handle, signal, answer);
            return Some(());
        }
        let answer = match self.pool[handle].fence {
            Fence::None => answer,
            Fence::Wanted | Fence::Sought | Fence::Lifted => match self.after_fence(net, handle, answer) {
                Some(answer) => answer,
                None => return Some(()),
            },
        };
        let waiting = &mut self.pool[handle];
        if waiting.is_abandoned || waiting.goes_on {
            if let (Ok(_), Some(data_manager)) = (&answer, waiting.opens_backup) {
                waiting.close_backup(net, data_manager);
            }
            self.end_unawaited(handle);
            return Some(());
        }
        if waiting.answer.is_none() {
            waiting.answer = Some(answer);
            net.notify(TokenKind::Request, handle);
        }
        Some(())
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0
    }
}

/// Whether a request was refused, and nothing done, by a data node that leads the cluster no more, or does not know yet
/// that it does: this client has received its view before.
fn is_for_next_president(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NodeStopping | ErrorCode::LedByAnother)
}

/// Whether it may be carried out twice: what has no effect, claims for the schema lock (`schema_lock`), and write
/// fences. (One that this client has already is refused, and lifted then; `succession`.)
fn may_be_repeated(request: &Request) -> bool {
    match request {
        Request::DescribeTable(_)
        | Request::ListTables(_)
        | Request::DescribeDatabase(_)
        | Request::ListDatabases(_)
        | Request::Info(..)
        | Request::Reorganize(_)
        | Request::Lock { .. }
        | Request::ChangeSchema(SchemaChange::FenceTable { .. } | SchemaChange::LiftFence { .. }) => true,
        Request::CreateTable(_)
        | Request::DropTable(_)
        | Request::ChangeSchema(_)
        | Request::SetParameter(..)
        | Request::Shutdown(..)
        | Request::BackupOpen(_)
        | Request::BackupNext { .. } => false,
    }
}

/// Why the data node that is to answer is not connected.
fn why_no_way(net: &Net, request: &Request) -> Error {
    let routes = &net.routes;
    match request {
        Request::BackupOpen(partition) | Request::BackupNext { partition, .. } => {
            routes.why_no_way(*partition, false)
        }
        _ => routes.why_not_connected(request.asked_node().or(routes.view().president())),
    }
}

fn lifts_fence(request: &Request) -> bool {
    matches!(request, Request::ChangeSchema(SchemaChange::LiftFence { .. }))
}

/// Refuses what fits no frame: no data node allows it, either.
fn check_length(request: &Request) -> Result<()> {
    /// Names and numbers that travel beside the long part.
    const REST_BYTES: usize = 4096;
    let bytes = match request {
        Request::CreateTable(definition)
        | Request::ChangeSchema(SchemaChange::AlterTable { definition, .. }) => cold::length(definition),
        Request::ChangeSchema(change) => cold::length(change),
        Request::DropTable(name)
        | Request::DescribeTable(name)
        | Request::DescribeDatabase(name)
        | Request::ListDatabases(name)
        | Request::Lock { purpose: name, .. } => name.len(),
        Request::ListTables(_)
        | Request::Info(..)
        | Request::SetParameter(..)
        | Request::Shutdown(..)
        | Request::Reorganize(_)
        | Request::BackupOpen(_)
        | Request::BackupNext { .. } => 0,
    };
    if bytes + REST_BYTES <= FRAME_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("names, indexes and attachment of {bytes} bytes fit no signal");
    Err(Error::with_detail(ErrorCode::BadTableDefinition, detail))
}
