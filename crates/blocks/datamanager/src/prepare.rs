//! `PrepareRequest` at the primary: lock the row, check, make the new version, forward it to the next replica.
//!
//! An operation gets a record, finds its row, takes the row's lock (or waits in its queue, see `waiting`), and is then
//! *executed*: the row is read or its after-image made. What changes something is forwarded to the next replica of the
//! chain; the last one answers the coordinator. Reads and locks exist at the primary only, which answers itself.
//! Operations of one signal are answered together as far as they are done at once.

use crate::DataManager;
use crate::apply::Insert;
use crate::operation::{Change, OperationName, OperationRecord, Patience, State, TransactionRecord};
use crate::store::Version;
use crate::unique::IndexChanges;
use crate::versions::{RowPlace, Viewer};
use crate::waiting::Locked;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowError;
use vinga_base::{ColumnId, Epoch, PartitionId, RowId, TransactionId};
use vinga_fragment::lock_table::LockMode;
use vinga_kernel::{Context, InjectedBug, Prefetch};
use vinga_program::update_program::{UpdateErrorKind, UpdateProgram};
use vinga_wire::commit::{
    Actor, Chain, OPERATION_CHANGES, OPERATION_ERROR_IS_LOCAL, OPERATION_HOLDS, OPERATION_SENT_ROW,
    PREPARE_LAST, PrepareHead, PreparedOperation,
};
use vinga_wire::key_read::NO_ROW;
use vinga_wire::operation::{ALL_COLUMNS, FLAG_ERROR_IS_LOCAL, Operation, OperationKind};
use vinga_wire::transaction::TransactionRow;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executed {
    /// It is prepared. Flags of [`PreparedOperation`].
    Done(u8),
    /// It failed and has left nothing behind but its record.
    Failed(ErrorCode),
    /// Others have locked its row, and it may not wait: it failed. Flags of [`PreparedOperation`].
    Locked(u8),
    /// It waits for a lock, or for an earlier operation.
    Waiting,
}

/// What is to come of an operation of a signal.
enum Prepared {
    /// Its answer is among those of the signal.
    Answered,
    /// The last replica answers.
    Forwarded,
    /// It waits for a lock, or for an earlier operation.
    Waiting,
}

/// A change is prepared.
const CHANGED: Executed = Executed::Done(OPERATION_HOLDS | OPERATION_CHANGES);

/// Answers that go back together.
#[derive(Default)]
pub struct Answers {
    pub confirmed: Vec<PreparedOperation>,
    pub refused: Vec<PreparedOperation>,
    /// What has to follow the confirmed ones in unique indexes.
    pub changes: IndexChanges,
    /// The confirmed ones are committed already, in this epoch.
    pub committed: Option<Epoch>,
    /// There is nothing to say but that nothing is committed, which the coordinator wants to know.
    pub all_wait: bool,
}

impl Answers {
    pub fn is_empty(&self) -> bool {
        self.confirmed.is_empty() && self.refused.is_empty() && self.changes.is_empty()
    }

    /// Whether there are prepared operations, none that failed, and nothing that has to follow in unique indexes.
    pub fn are_all_done(&self) -> bool {
        !self.confirmed.is_empty() && self.refused.is_empty() && self.changes.is_empty()
    }

    pub fn refuse(&mut self, name: OperationName, code: ErrorCode, error_is_local: bool) {
        let flags = if error_is_local { OPERATION_ERROR_IS_LOCAL } else { 0 };
        self.refused.push(name.answer(code as u16, flags));
    }

    /// Its row is locked by others, which is no error of the transaction if it was to skip such rows.
    pub fn refuse_locked(&mut self, name: OperationName, flags: u8, error_is_local: bool) {
        let flags = flags | if error_is_local { OPERATION_ERROR_IS_LOCAL } else { 0 };
        self.refused.push(name.answer(ErrorCode::RowLocked as u16, flags));
    }
}

impl DataManager {
    /// Prefetches for a prepare with one operation.
    #[inline]
    pub(crate) fn prefetch_prepare(&self, pass: Prefetch, frame: &Frame<'_>) {
        let Some((head, mut rest)) = frame.head::<PrepareHead>() else { return };
        if head.count.get() != 1 {
            return;
        }
        let Some(operation) = Operation::take(&mut rest) else { return };
        if pass == Prefetch::Index {
            let id = TransactionId(head.transaction.get());
            self.versions.prefetch_id(id);
            // The last replica leaves a marker instead of a record.
            if head.flags.get() & PREPARE_LAST != 0 && !head.chain.is_empty() {
                self.markers.prefetch(id);
            }
        }
        let (id, version) = (operation.head.table.get(), operation.head.version.get());
        let Some(table) = self.store.tables.peek(id, version) else { return };
        let hash = KeyHash(operation.head.hash.get());
        let is_row_known = !head.chain.is_empty() && operation.kind() != Some(OperationKind::Insert);
        if !is_row_known {
            self.prefetch_row(pass, table, hash);
        } else if pass == Prefetch::Index {
            let (partition, row) = (table.partitions.of(hash), RowId(operation.head.row_or_wait.get()));
            if table.has_fragment(partition) {
                table.fragment(partition).rows().prefetch(&self.store.pages, row);
            }
        }
    }

    pub(crate) fn on_prepare_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<PrepareHead>()?;
        if !Self::is_acting(cx, &head.actor) {
            return Some(());
        }
        if !head.chain.is_empty() {
            let sent_in = cx.view_of(frame);
            return self.on_forwarded_prepare(cx, head, rest, sent_in);
        }
        if !self.primary.begins_at_once(frame.header.view) && self.is_put_off(cx, frame, head) {
            return Some(());
        }
        let is_last = head.flags.get() & PREPARE_LAST != 0;
        let may_commit = is_last && self.may_commit_in_one_phase(cx, head, frame.header.view);
        if may_commit && head.count.get() == 1 {
            let mut bytes = rest;
            let operation = Operation::take(&mut bytes)?;
            if self.one_phase(cx, head, &operation) {
                return Some(());
            }
        }
        self.statistics.operations += u64::from(head.count.get());
        let is_left_to_last = is_last
            && cx.view().is_replicated()
            && head.count.get() == 1
            && Self::is_of_this_view(cx, cx.view_of(frame));
        let mut answers = core::mem::take(&mut self.answers);
        let mut rest = rest;
        let (mut waits, mut goes_on) = (false, false);
        for _ in 0..head.count.get() {
            let bytes = rest;
            let operation = Operation::take(&mut rest)?;
            let raw = &bytes[..bytes.len() - rest.len()];
            match self.prepare(cx, head, &operation, raw, is_left_to_last, &mut answers) {
                Prepared::Answered => {}
                Prepared::Forwarded => goes_on = true,
                Prepared::Waiting => waits = true,
            }
        }
        if may_commit && !waits && answers.refused.is_empty() && answers.changes.is_empty() {
            self.commit_in_one_phase(cx, head, &mut answers);
        } else if is_left_to_last && !self.is_source(cx) && answers.are_all_done() {
            answers.confirmed.clear();
            self.commit_as_last(cx, head, Chain::new(&[self.settings.node]));
        }
        if is_last && waits && !goes_on && answers.is_empty() {
            cx.mark("all operations of a last batch wait");
            answers.all_wait = true;
        }
        let (id, actor) = (TransactionId(head.transaction.get()), head.actor);
        self.send_answers(cx, id, &actor, &mut answers);
        self.answers = answers;
        self.run_ready(cx);
        Some(())
    }

    /// Prepares one operation of a signal. `is_left_to_last`: the last replica may commit it.
    fn prepare(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
        raw: &[u8],
        is_left_to_last: bool,
        answers: &mut Answers,
    ) -> Prepared {
        let name = OperationName::of(operation.head);
        let is_local = operation.head.flags & FLAG_ERROR_IS_LOCAL != 0;
        let made = operation
            .kind()
            .ok_or(ErrorCode::MalformedSignal)
            .and_then(|kind| self.make_record(head, kind, name, is_local));
        let handle = match made {
            Ok(handle) => handle,
            Err(code) => {
                answers.refuse(name, code, is_local);
                return Prepared::Answered;
            }
        };
        let patience = Patience::of(operation.head, cx.now());
        self.versions.operations[handle].patience = patience;
        match self.execute(cx, handle, operation, raw) {
            Executed::Done(flags) => {
                if self.is_forwarded(handle) {
                    if is_left_to_last && !self.leaves_out_copy(cx, handle) {
                        self.forward_last(cx, handle, operation.key, Epoch(head.epoch.get()));
                        if cx.has_bug(InjectedBug::LastCommitsAtPrimary) {
                            self.commit_as_last(cx, head, Chain::new(&[self.settings.node]));
                        }
                    } else {
                        self.forward(cx, handle, operation.key);
                    }
                    return Prepared::Forwarded;
                }
                self.confirm(cx, handle, flags, answers);
                if flags & OPERATION_HOLDS == 0 {
                    self.drop_operation(handle);
                }
                Prepared::Answered
            }
            Executed::Failed(code) => {
                self.drop_operation(handle);
                answers.refuse(name, code, is_local);
                Prepared::Answered
            }
            Executed::Locked(flags) => {
                self.drop_operation(handle);
                answers.refuse_locked(name, flags, is_local || patience.skips());
                Prepared::Answered
            }
            Executed::Waiting => Prepared::Waiting,
        }
    }

    /// Refuses an operation whose transaction has the id of another coordinator's, as an API node can name any of its
    /// ids to any coordinator.
    pub(crate) fn check_coordinator(&self, known: Handle, actor: &Actor) -> Result<(), ErrorCode> {
        match self.versions.transactions[known].actor.has_same_coordinator(actor) {
            true => Ok(()),
            false => Err(ErrorCode::NotYourTransaction),
        }
    }

    /// The transaction of this id, if it is one of this coordinator ([`check_coordinator`](Self::check_coordinator)).
    pub(crate) fn find_of(&self, id: TransactionId, actor: &Actor) -> Option<Handle> {
        self.versions.find_transaction(id).filter(|&known| self.check_coordinator(known, actor).is_ok())
    }

    /// Makes the record of an operation, and that of its transaction if it is the first here.
    pub(crate) fn make_record(
        &mut self,
        head: &PrepareHead,
        kind: OperationKind,
        name: OperationName,
        error_is_local: bool,
    ) -> Result<Handle, ErrorCode> {
        let id = TransactionId(head.transaction.get());
        let transaction = match self.versions.find_transaction(id) {
            Some(known) => {
                self.check_coordinator(known, &head.actor)?;
                known
            }
            None => {
                let made = TransactionRecord::new(id, head.actor, Address(head.api.get()));
                self.versions.add_transaction(made).ok_or(ErrorCode::OutOfTransactions)?
            }
        };
        let record = OperationRecord {
            transaction,
            number: name.number,
            sub: name.sub,
            kind,
            error_is_local,
            patience: Patience::Usual,
            state: State::Prepared,
            change: Change::None,
            table: 0,
            partition: PartitionId(0),
            row: RowId(0),
            row_state: None,
            older_change: None,
            lock: None,
            waits_since: None,
            is_noted: false,
            reserved: 0,
            chain: head.chain,
            next: None,
        };
        self.versions.add_operation(transaction, record).ok_or(ErrorCode::OutOfOperations)
    }

    /// An operation's table is known: notes if its transaction changes what backups answer reads of.
    pub(crate) fn note_reads_at_backups(&mut self, handle: Handle) {
        let record = &self.versions.operations[handle];
        if record.kind.is_change() && self.store.tables.current(record.table).read_backup {
            self.versions.transactions[record.transaction].is_read_at_backups = true;
        }
    }

    /// Executes an operation whose record is made: finds the row, locks it, does what is asked. `raw` is the operation
    /// as it came, to be kept if it has to wait.
    pub(crate) fn execute(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        raw: &[u8],
    ) -> Executed {
        match self.try_execute(cx, handle, operation, raw) {
            Ok(executed) => {
                self.choose_replicas(cx, handle);
                executed
            }
            Err(code) => Executed::Failed(code),
        }
    }

    fn try_execute(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        raw: &[u8],
    ) -> Result<Executed, ErrorCode> {
        let head = operation.head;
        let table_id = head.table.get();
        let hash = KeyHash(head.hash.get());
        let kind = self.versions.operations[handle].kind;
        let table = self.store.tables.get(cx, table_id, head.version.get())?;
        let partition = table.partitions.of(hash);
        if !self.is_primary_of(cx.view(), partition) {
            // What was sent to a primary that is none any more goes back before this (`hand_over`). This is of another
            // partition altogether, as no coordinator sends it.
            return Err(ErrorCode::NodeFailure);
        }
        self.versions.operations[handle].chain = cx.view().partition(partition).chain;
        if kind.is_read()
            && cx.is_congested(self.versions.transactions[self.versions.operations[handle].transaction].api)
        {
            cx.mark("read of a batch refused because too many rows wait for its API node");
            return Err(ErrorCode::Overloaded);
        }
        self.versions.operations[handle].table = table_id;
        self.versions.operations[handle].partition = partition;
        self.note_reads_at_backups(handle);
        if kind == OperationKind::Unlock {
            return self.unlock_read(cx, handle, operation, raw);
        }
        let row = self.find_row(table_id, partition, hash, operation, kind)?;
        let Some(row) = row else {
            return match kind {
                OperationKind::Insert | OperationKind::Write => self.insert_new(handle, hash, operation),
                OperationKind::ReadCommitted | OperationKind::ReadShared | OperationKind::ReadExclusive => {
                    self.send_row(cx, handle, operation, None);
                    Ok(Executed::Done(OPERATION_SENT_ROW))
                }
                OperationKind::Unlock => unreachable!("done above"),
                OperationKind::Update | OperationKind::Delete => Err(ErrorCode::NoSuchRow),
            };
        };
        let mode = match kind {
            OperationKind::ReadCommitted | OperationKind::Unlock => None,
            OperationKind::ReadShared => Some(LockMode::Shared),
            OperationKind::ReadExclusive
            | OperationKind::Insert
            | OperationKind::Update
            | OperationKind::Write
            | OperationKind::Delete => Some(LockMode::Exclusive),
        };
        let overtakes =
            kind == OperationKind::ReadCommitted && cx.has_bug(InjectedBug::ReadOvertakesOwnWaiter);
        if !overtakes && self.waits_for_own(handle, row) {
            if mode.is_some() && !self.versions.operations[handle].patience.may_wait() {
                return self.locked_by_others(cx, handle, operation, row);
            }
            cx.mark("operation waits for an earlier one of its transaction");
            self.wait(cx, handle, raw)?;
            return Ok(Executed::Waiting);
        }
        let Some(mode) = mode else {
            self.send_visible(cx, handle, operation, row)?;
            return Ok(Executed::Done(OPERATION_SENT_ROW));
        };
        if self.versions.operations[handle].row_state.is_none() {
            let place = RowPlace { table: table_id, partition, row };
            let state = self.store.row_state(&mut self.versions, place).ok_or(ErrorCode::OutOfOperations)?;
            self.versions.attach(handle, state);
            match self.lock(cx, handle, state, mode)? {
                Locked::Granted => {}
                Locked::Queued if self.passes_lock(cx, handle, row) => {
                    self.send_visible(cx, handle, operation, row)?;
                    return Ok(Executed::Done(OPERATION_SENT_ROW));
                }
                Locked::Queued => {
                    self.wait(cx, handle, raw)?;
                    return Ok(Executed::Waiting);
                }
                Locked::Denied => return self.locked_by_others(cx, handle, operation, row),
            }
        }
        self.execute_locked(cx, handle, operation)
    }

    /// Whether an operation does not wait for a lock though it should, but reads the committed version: a deliberate
    /// bug.
    fn passes_lock(&self, cx: &Context<'_>, handle: Handle, row: RowId) -> bool {
        let record = &self.versions.operations[handle];
        if !cx.has_bug(InjectedBug::ChangerReadsPastLock) || record.kind != OperationKind::ReadShared {
            return false;
        }
        let table = self.store.tables.current(record.table);
        let is_there =
            self.store.visible(&self.versions, table, record.partition, row, self.viewer(handle)).is_some();
        let mut own = self.versions.operations_of(record.transaction).into_iter();
        is_there && own.any(|other| self.versions.operations[other].change != Change::None)
    }

    /// Others have locked the row, and the operation may not wait.
    fn locked_by_others(
        &self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        row: RowId,
    ) -> Result<Executed, ErrorCode> {
        let record = &self.versions.operations[handle];
        if !record.kind.is_read() {
            return Ok(Executed::Locked(0));
        }
        match record.patience {
            Patience::ElseCommitted => {
                self.send_visible(cx, handle, operation, row)?;
                Ok(Executed::Locked(OPERATION_SENT_ROW))
            }
            Patience::NoWait if cx.has_bug(InjectedBug::NoWaitReadCountsAsLock) => {
                self.send_visible(cx, handle, operation, row)?;
                Ok(Executed::Done(OPERATION_SENT_ROW))
            }
            Patience::NoWait | Patience::SkipLocked | Patience::Usual | Patience::Until(_) => {
                Ok(Executed::Locked(0))
            }
        }
    }

    /// Sends the API node a row without regard to locks, as its transaction sees it: committed, or changed by itself.
    fn send_visible(
        &self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        row: RowId,
    ) -> Result<(), ErrorCode> {
        let record = &self.versions.operations[handle];
        let table = self.store.tables.current(record.table);
        let filter = self.read_options(table, operation.selection, operation.filter)?;
        let found = self
            .store
            .visible(&self.versions, table, record.partition, row, self.viewer(handle))
            .filter(|v| filter.as_ref().is_none_or(|f| f.matches(&table.layout, v.fixed, v.variable)));
        self.send_row(cx, handle, operation, found);
        Ok(())
    }

    /// The row with the operation's key, whoever may see it.
    fn find_row(
        &mut self,
        table: u32,
        partition: PartitionId,
        hash: KeyHash,
        operation: &Operation<'_>,
        kind: OperationKind,
    ) -> Result<Option<RowId>, ErrorCode> {
        let table = self.store.tables.current(table);
        let fragment = table.fragment(partition);
        let (pages, chunks) = (&self.store.pages, &self.store.chunks);
        if !matches!(kind, OperationKind::Insert | OperationKind::Write) {
            return Ok(fragment.find(pages, chunks, hash, operation.key));
        }
        let image = operation.body;
        table.layout.check_image(image).map_err(image_error)?;
        if let Some(bytes) = table.layout.key_bytes() {
            return Ok(fragment.find(pages, chunks, hash, &image[..usize::from(bytes)]));
        }
        let (fixed, variable) = table.layout.split(image);
        self.scratch.key.clear();
        table.layout.write_key(fixed, variable, &mut self.scratch.key);
        Ok(fragment.find(pages, chunks, hash, &self.scratch.key))
    }

    /// What the operation's transaction sees: its own changes before this operation.
    fn viewer(&self, handle: Handle) -> Viewer {
        let operation = &self.versions.operations[handle];
        Viewer { transaction: self.versions.transactions[operation.transaction].id, before: operation.number }
    }

    /// Adds a row that nobody has: its slot is pending, and locked by the operation.
    fn insert_new(
        &mut self,
        handle: Handle,
        hash: KeyHash,
        operation: &Operation<'_>,
    ) -> Result<Executed, ErrorCode> {
        let (table_id, partition) =
            (self.versions.operations[handle].table, self.versions.operations[handle].partition);
        if self.versions.rows.used() == self.versions.rows.capacity() {
            return Err(ErrorCode::OutOfOperations);
        }
        self.reserve(handle, operation.body.len())?;
        let new = Insert { table: table_id, partition, row: None, hash, image: operation.body, epoch: None };
        let row = self.store.insert(&self.versions, new)?;
        let place = RowPlace { table: table_id, partition, row };
        let state = self.store.row_state(&mut self.versions, place).expect("there was room");
        self.versions.attach(handle, state);
        self.lock_fresh(handle, state);
        self.versions.push_change(handle, Change::Insert);
        Ok(CHANGED)
    }

    /// The row is there and locked as needed.
    fn execute_locked(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
    ) -> Result<Executed, ErrorCode> {
        let mut after = core::mem::take(&mut self.scratch.image);
        after.clear();
        let executed = self.execute_with(cx, handle, operation, &mut after);
        self.scratch.image = after;
        executed
    }

    /// The same; `after` is where an update makes its image.
    fn execute_with(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        after: &mut Vec<u8>,
    ) -> Result<Executed, ErrorCode> {
        let record = &self.versions.operations[handle];
        let (table_id, partition, row, kind) = (record.table, record.partition, record.row, record.kind);
        let place = RowPlace { table: table_id, partition, row };
        let viewer = self.viewer(handle);
        let table = self.store.tables.current(table_id);
        let options = self.read_options(table, operation.selection, operation.filter)?;
        let seen = self.store.visible(&self.versions, table, partition, row, viewer);
        if let (Some(filter), Some(version)) = (&options, seen)
            && !filter.matches(&table.layout, version.fixed, version.variable)
        {
            return Err(ErrorCode::ConditionFailed);
        }
        match (kind, seen) {
            (OperationKind::ReadShared | OperationKind::ReadExclusive, Some(version)) => {
                self.send_row(cx, handle, operation, Some(version));
                Ok(Executed::Done(OPERATION_SENT_ROW | OPERATION_HOLDS))
            }
            // The transaction itself has deleted it, and holds the lock of that.
            (OperationKind::ReadShared | OperationKind::ReadExclusive, None) => {
                self.send_row(cx, handle, operation, None);
                Ok(Executed::Done(OPERATION_SENT_ROW))
            }
            (OperationKind::Insert, Some(_)) => Err(ErrorCode::DuplicateKey),
            (OperationKind::Insert | OperationKind::Write, _) => {
                let change = self.make_version(cx, handle, place, operation.body)?;
                self.versions.push_change(handle, change);
                Ok(CHANGED)
            }
            (OperationKind::Update, Some(version)) => {
                run_update(table, operation.body, version, after)?;
                let change = self.make_version(cx, handle, place, after)?;
                self.versions.push_change(handle, change);
                Ok(CHANGED)
            }
            (OperationKind::Delete, Some(_)) => {
                self.reserve(handle, 0)?;
                self.versions.push_change(handle, Change::Delete);
                Ok(CHANGED)
            }
            (OperationKind::Update | OperationKind::Delete, None) => Err(ErrorCode::NoSuchRow),
            (OperationKind::ReadCommitted | OperationKind::Unlock, _) => {
                unreachable!("they take no lock")
            }
        }
    }

    /// Reserves room in the log for the change that an operation is going to make. What is reserved is given back with
    /// the operation.
    pub(crate) fn reserve(&mut self, handle: Handle, image_bytes: usize) -> Result<(), ErrorCode> {
        let record = &mut self.versions.operations[handle];
        let is_logged = self.store.tables.current(record.table).is_logged;
        record.reserved = self.store.listener.reserve(is_logged, image_bytes)?;
        Ok(())
    }

    /// Gives back what an operation has reserved.
    pub(crate) fn release_reserved(&mut self, handle: Handle) {
        let reserved = core::mem::take(&mut self.versions.operations[handle].reserved);
        self.store.listener.release(reserved);
    }

    /// An image as a change of a row, in chunks, so that a commit needs no memory.
    pub(crate) fn make_version(
        &mut self,
        cx: &Context<'_>,
        handle: Handle,
        place: RowPlace,
        image: &[u8],
    ) -> Result<Change, ErrorCode> {
        self.reserve(handle, image.len())?;
        self.store.add_version(&self.versions, place, image, cx.bug()).map(Change::Replace)
    }

    /// Sends the API node the row that an operation has read, or that there is none.
    fn send_row(
        &self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        found: Option<Version<'_>>,
    ) {
        let record = &self.versions.operations[handle];
        let transaction = &self.versions.transactions[record.transaction];
        send_row(cx, self, transaction.id, transaction.api, record.number, operation, found);
    }
}

/// Sends the API node the row that an operation has read, or that there is none.
pub fn send_row(
    cx: &mut Context<'_>,
    data_manager: &DataManager,
    id: TransactionId,
    api: Address,
    number: u32,
    operation: &Operation<'_>,
    found: Option<Version<'_>>,
) {
    let table = data_manager.store.tables.current(operation.head.table.get());
    let mut writer = cx.frame(SignalNumber::TransactionRowReport, api);
    let head = TransactionRow {
        transaction: U64::new(id.0),
        epoch: U64::new(data_manager.epoch.0),
        operation: U32::new(number),
        row_bytes: U16::new(NO_ROW),
        unused: U16::ZERO,
    };
    writer.put(&head);
    let Some(version) = found else { return };
    let begin = writer.length();
    let columns: Vec<ColumnId> = operation.selection.iter().map(|c| ColumnId(c.get())).collect();
    let selection = (operation.head.columns.get() != ALL_COLUMNS).then_some(columns.as_slice());
    version.write(&table.layout, selection, writer.buffer());
    let row_bytes = U16::new((writer.length() - begin) as u16);
    let at = vinga_wire::frame::HEADER_BYTES + core::mem::offset_of!(TransactionRow, row_bytes);
    writer.patch(at, &row_bytes);
}

/// Runs an update program on a version; the new image is appended to `after`.
pub fn run_update(
    table: &crate::tables::Table,
    program: &[u8],
    version: Version<'_>,
    after: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    let program = UpdateProgram::check(program, &table.layout).map_err(|_| ErrorCode::BadProgram)?;
    program.apply(&table.layout, version.fixed, version.variable, after).map_err(|error| match error.kind {
        UpdateErrorKind::ConditionFailed(_) => ErrorCode::ConditionFailed,
        UpdateErrorKind::Overflow(_) => ErrorCode::NumericOverflow,
        UpdateErrorKind::RowTooLong => ErrorCode::RowTooLong,
        _ => ErrorCode::BadProgram,
    })
}

/// The error for an image that is none.
pub fn image_error(error: RowError) -> ErrorCode {
    match error {
        RowError::RowTooLong => ErrorCode::RowTooLong,
        _ => ErrorCode::BadRow,
    }
}
