//! Questions to the dictionary, for information tables and about parameters: one frame there, one back.
//!
//! The schema lock is one of them whose token stays when it is answered: as long as it is there the lock is held, and
//! cancelling it lets the lock go, or takes the request back. Who cancels a request for a write fence leaves none behind,
//! either: it is lifted as soon as it is there.

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::settings::REQUESTS_MAX;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::schema::TableDefinition;
use vinga_base::time::Span;
use vinga_base::{Epoch, LiveParameter, NodeId, PartitionId};
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
use vinga_wire::schema::{
    Database, DescribeDatabaseConfirm, DescribeDatabaseRequest, ListDatabasesConfirm, ListDatabasesRequest,
    SchemaChange, SchemaChangeConfirm, SchemaChangeRequest, SchemaLockBody, SchemaLockRequest,
};
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
    /// Rows of an information table.
    Info(InfoTable),
    /// Another value of a parameter, in its unit, at all data nodes.
    SetParameter(LiveParameter, u64),
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
    /// The backup has begun; the newest epoch of any commit there.
    BackupOpened(Epoch),
    /// To a request for more of a backup.
    Backup(BackupBatch),
}

/// What the schema lock is to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lock {
    /// None of its business.
    None,
    /// Wanted.
    Wanted,
    /// It has it.
    Held,
}

/// What a write fence is to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    /// None of its business.
    None,
    /// Wanted.
    Wanted,
    /// No longer wanted: lifted when it is there.
    Abandoned,
    /// It is being lifted.
    Lifted,
}

struct Waiting {
    node: NodeId,
    link: LinkId,
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

    /// Nobody wants the write fence that it has got.
    fn lift_fence(&mut self, net: &mut Net, request: u32, table: u32) {
        self.fence = Fence::Lifted;
        let dictionary = Address::new(self.node, BlockNumber::Dictionary, 0);
        let body = SchemaChangeRequest { request, change: SchemaChange::LiftFence { table } };
        cold::write(&mut net.frame(self.link, SignalNumber::SchemaChangeRequest, dictionary), &body);
        net.link(self.link).hurry();
    }
}

/// All questions to the dictionary and for information tables that are under way.
pub(crate) struct Requests {
    pool: Pool<Waiting>,
}

const GENERATION_SHIFT: u32 = 16;

/// The tag on the wire: place and low bits of the generation, so that a late answer finds nobody.
fn tag(handle: Handle) -> u32 {
    (handle.to_bits() >> 32) as u32 & 0xffff | handle.index() << GENERATION_SHIFT
}

impl Requests {
    pub fn new() -> Self {
        Requests { pool: Pool::new(REQUESTS_MAX) }
    }

    /// Sends a request to a block of a node: the dictionary's, or the data manager of a backup.
    pub fn submit(
        &mut self,
        net: &mut Net,
        request: &Request,
        (to, link): (Address, LinkId),
    ) -> Result<Handle> {
        let node = to.node();
        let changes =
            matches!(request, Request::CreateTable(_) | Request::DropTable(_) | Request::ChangeSchema(_));
        let lock = if let Request::Lock { .. } = request { Lock::Wanted } else { Lock::None };
        let is_fence = matches!(request, Request::ChangeSchema(SchemaChange::FenceTable { .. }));
        let fence = if is_fence { Fence::Wanted } else { Fence::None };
        let opens_backup = matches!(request, Request::BackupOpen(_)).then_some(to);
        let waiting =
            Waiting { node, link, lock, fence, opens_backup, is_abandoned: false, changes, answer: None };
        check_length(request)?;
        let handle = self.pool.insert(waiting).map_err(|_| Error::new(ErrorCode::Overloaded))?;
        let request_tag = tag(handle);
        let dictionary = Address::new(node, BlockNumber::Dictionary, 0);
        let named = |name: &String| NamedTableRequest { request: request_tag, name: name.clone() };
        match request {
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
                let wait_millis = u32::try_from(wait.0 / 1000).unwrap_or(u32::MAX);
                let body = SchemaLockRequest { request: request_tag, purpose: purpose.clone(), wait_millis };
                cold::write(&mut net.frame(link, SignalNumber::SchemaLockRequest, dictionary), &body);
            }
            Request::Info(table) => {
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
        Ok(handle)
    }

    /// Takes the answer; `None` if there is none yet. The token stays only if it holds the lock.
    pub fn take(&mut self, handle: Handle) -> Option<Result<Answer>> {
        let waiting = self.pool.get_mut(handle)?;
        let answer = waiting.answer.take()?;
        if waiting.lock != Lock::Held {
            self.pool.remove(handle);
        }
        Some(answer)
    }

    /// Whether a token holds the schema lock: it does not any more when its connection is lost.
    pub fn holds_lock(&self, handle: Handle) -> bool {
        self.pool.get(handle).is_some_and(|waiting| waiting.lock == Lock::Held)
    }

    /// Nobody waits for the answer, or wants the lock, any more.
    pub fn cancel(&mut self, net: &mut Net, handle: Handle) {
        if let Some(waiting) = self.pool.get_mut(handle)
            && waiting.fence == Fence::Wanted
        {
            match &waiting.answer {
                None => {
                    waiting.fence = Fence::Abandoned;
                    return;
                }
                Some(Ok(Answer::Changed(Some(record)))) => {
                    let table = record.table;
                    waiting.lift_fence(net, tag(handle), table);
                    return;
                }
                Some(_) => {}
            }
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
        let Some(Waiting { node, link, lock, .. }) = self.pool.remove(handle) else { return };
        match lock {
            Lock::None => {}
            Lock::Wanted | Lock::Held => {
                let dictionary = Address::new(node, BlockNumber::Dictionary, 0);
                let body = SchemaLockBody { request: tag(handle) };
                cold::write(&mut net.frame(link, SignalNumber::SchemaUnlockOrder, dictionary), &body);
                net.link(link).hurry();
            }
        }
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
            SignalNumber::SchemaLockConfirm => {
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
        let waiting = &mut self.pool[handle];
        if waiting.is_abandoned {
            if let (Ok(_), Some(data_manager)) = (&answer, waiting.opens_backup) {
                waiting.close_backup(net, data_manager);
            }
            self.pool.remove(handle);
            return Some(());
        }
        match waiting.fence {
            Fence::None | Fence::Wanted => {}
            Fence::Abandoned => {
                if let Ok(Answer::Changed(Some(TableRecord { table, .. }))) = answer {
                    waiting.lift_fence(net, request, table);
                } else {
                    self.pool.remove(handle);
                }
                return Some(());
            }
            Fence::Lifted => {
                self.pool.remove(handle);
                return Some(());
            }
        }
        if waiting.answer.is_none() && waiting.lock != Lock::Held {
            waiting.lock = match (waiting.lock, &answer) {
                (Lock::Wanted, Ok(_)) => Lock::Held,
                (Lock::None | Lock::Wanted | Lock::Held, _) => Lock::None,
            };
            waiting.answer = Some(answer);
            net.notify(TokenKind::Request, handle);
        }
        Some(())
    }

    /// All connections to an endpoint are gone.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let of_endpoint = |waiting: &Waiting| waiting.link.endpoint() == endpoint;
        let lost: Vec<Handle> =
            self.pool.iter().filter(|(_, waiting)| of_endpoint(waiting)).map(|(handle, _)| handle).collect();
        for handle in lost {
            let waiting = &mut self.pool[handle];
            if waiting.is_abandoned || matches!(waiting.fence, Fence::Abandoned | Fence::Lifted) {
                // It goes with the connection.
                self.pool.remove(handle);
                continue;
            }
            let lock = core::mem::replace(&mut waiting.lock, Lock::None);
            // Whoever has taken the lock asks whether it is still there; it has no answer to come.
            if waiting.answer.is_some() && lock != Lock::Held
                || waiting.answer.is_none() && lock == Lock::Held
            {
                continue;
            }
            waiting.answer = Some(Err(if waiting.changes {
                Error::with_detail(ErrorCode::UnknownOutcome, "a change of the schema was under way")
            } else {
                Error::new(ErrorCode::ConnectionLost)
            }));
            net.notify(TokenKind::Request, handle);
        }
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0
    }
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
        | Request::Info(_)
        | Request::SetParameter(..)
        | Request::BackupOpen(_)
        | Request::BackupNext { .. } => 0,
    };
    if bytes + REST_BYTES <= FRAME_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("names, indexes and attachment of {bytes} bytes fit no signal");
    Err(Error::with_detail(ErrorCode::BadTableDefinition, detail))
}
