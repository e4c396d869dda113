//! Along the chain: forwarding what was prepared, preparing what was forwarded, answering the coordinator.
//!
//! A forwarded prepare for a row *or key* proves that every earlier operation of another transaction on it is over at
//! the primary. What is committed here is then committed everywhere, so it is shown first, though its record stays
//! until `CompleteOrder` (a successor may need it); what is only prepared here was aborted, and the order to abort it
//! got lost with a replica between, so it is undone first. Thus a row has at most one hidden version.

use crate::DataManager;
use crate::apply::Insert;
use crate::operation::{Change, OperationName, State};
use crate::prepare::Answers;
use crate::unique::IndexChangesPart;
use crate::versions::RowPlace;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, RowId, TransactionId, ViewNumber};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{
    Actor, OPERATION_CHANGES, OPERATION_HOLDS, PREPARE_LAST, PREPARED_COMMITTED, PrepareHead, PreparedHead,
    PreparedOperation,
};
use vinga_wire::operation::{FLAG_FORWARDED, Operation, OperationHead, OperationKind};
use vinga_wire::{Address, ErrorCode, SignalNumber, U16, U32, U64};

/// What a forwarded operation is for.
#[derive(Clone, Copy)]
pub struct ForwardedTarget {
    pub id: TransactionId,
    pub kind: OperationKind,
    pub place: RowPlace,
    /// Of the row's key.
    pub hash: KeyHash,
}

/// What a forwarded prepare says beside its operation.
#[derive(Clone, Copy)]
struct Sent {
    /// See [`PrepareHead::epoch`].
    epoch: Epoch,
    /// The view in which the primary has decided which replicas there are.
    decided_in: ViewNumber,
    /// [`PREPARE_LAST`].
    is_last: bool,
}

impl DataManager {
    /// Whether an operation goes on to another replica.
    pub(crate) fn is_forwarded(&self, handle: Handle) -> bool {
        let record = &self.versions.operations[handle];
        record.change != Change::None && record.chain.next(self.settings.node).is_some()
    }

    /// Sends an operation with its after-image to the next replica.
    pub(crate) fn forward(&mut self, cx: &mut Context<'_>, handle: Handle, key: &[u8]) {
        let sent = Sent { epoch: self.epoch, decided_in: cx.view().number(), is_last: false };
        self.forward_with(cx, handle, key, sent);
    }

    /// The same with the permission for the last replica to commit.
    pub(crate) fn forward_last(&mut self, cx: &mut Context<'_>, handle: Handle, key: &[u8], given: Epoch) {
        let sent = Sent { epoch: self.epoch.max(given), decided_in: cx.view().number(), is_last: true };
        self.forward_with(cx, handle, key, sent);
    }

    fn forward_with(&mut self, cx: &mut Context<'_>, handle: Handle, key: &[u8], sent: Sent) {
        let Sent { epoch, decided_in, is_last } = sent;
        let record = &self.versions.operations[handle];
        let next = record.chain.next(self.settings.node).expect("the caller has checked");
        if !cx.view().has_since(next, decided_in) {
            // The coordinator learns of the failure as well and rolls the transaction back.
            cx.mark("not forwarded to a failed replica");
            return;
        }
        let (table, partition, row) = (record.table, record.partition, record.row);
        let store = &mut self.store;
        let fragment = store.tables.current_mut(table).fragment_mut(partition);
        let hash = fragment.key_hash(&store.pages, &store.chunks, row);
        let record = &self.versions.operations[handle];
        let transaction = &self.versions.transactions[record.transaction];
        let table = self.store.tables.current(table);
        let (kind, version) = match &record.change {
            Change::Insert => {
                (OperationKind::Insert, Some(self.store.slot(table, record.partition, record.row)))
            }
            Change::Replace(image) => (OperationKind::Update, Some(self.store.image(image))),
            Change::Delete => (OperationKind::Delete, None),
            Change::None => unreachable!("only changes are forwarded"),
        };
        let body_bytes = version.map_or(0, |v| v.fixed.len() + v.variable.len());
        let receiver = self.owner.at(next);
        let key = if version.is_some() { &[] } else { key };
        let mut writer = cx.frame(SignalNumber::PrepareRequest, receiver);
        writer.put(&PrepareHead {
            transaction: U64::new(transaction.id.0),
            epoch: U64::new(epoch.0),
            actor: transaction.actor,
            api: U32::new(transaction.api.0),
            api_incarnation: U32::new(transaction.id.owner() & 0xffff),
            chain: record.chain,
            owner: self.owner,
            flags: U16::new(if is_last { PREPARE_LAST } else { 0 }),
            count: U16::new(1),
        });
        writer.put(&OperationHead {
            version: U64::new(table.birth.0),
            hash: U64::new(hash.0),
            table: U32::new(record.table),
            number: U32::new(record.number),
            row_or_wait: U32::new(record.row.0),
            kind: kind as u8,
            flags: FLAG_FORWARDED,
            key_bytes: U16::new(key.len() as u16),
            body_bytes: U16::new(body_bytes as u16),
            columns: U16::ZERO,
            filter_bytes: U16::ZERO,
            sub: record.sub,
            unused: 0,
        });
        writer.bytes(key);
        if let Some(version) = version {
            writer.bytes(version.fixed).bytes(version.variable);
        }
    }

    /// `PrepareRequest` at a backup.
    pub(crate) fn on_forwarded_prepare(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        mut rest: &[u8],
        sent_in: ViewNumber,
    ) -> Option<()> {
        self.take_over_before(cx, head.count.get(), rest);
        let is_last = head.flags.get() & PREPARE_LAST != 0 && Self::is_of_this_view(cx, sent_in);
        if is_last && head.chain.next(self.settings.node).is_none() {
            let mut bytes = rest;
            let operation = Operation::take(&mut bytes)?;
            if self.commit_directly(cx, head, &operation) {
                return Some(());
            }
        }
        let mut answers = core::mem::take(&mut self.answers);
        let epoch = self.epoch.max(Epoch(head.epoch.get()));
        for _ in 0..head.count.get() {
            let operation = Operation::take(&mut rest)?;
            let name = OperationName::of(operation.head);
            match self.prepare_forwarded(cx, head, &operation) {
                Ok(handle) if self.is_forwarded(handle) => {
                    let sent = Sent { epoch, decided_in: sent_in, is_last };
                    self.forward_with(cx, handle, operation.key, sent);
                }
                Ok(handle) => {
                    self.confirm(cx, handle, OPERATION_HOLDS | OPERATION_CHANGES, &mut answers);
                }
                // Replicas before this one hold the operation: only the end of the whole transaction undoes it there.
                Err(code) => {
                    cx.mark("backup refuses what the primary has prepared");
                    answers.refuse(name, code, false);
                }
            }
        }
        if is_last && answers.are_all_done() {
            answers.confirmed.clear();
            self.commit_as_last(cx, head, head.chain);
        }
        let id = TransactionId(head.transaction.get());
        self.send_answers_with(cx, id, &head.actor, &mut answers, epoch);
        self.answers = answers;
        Some(())
    }

    /// What a forwarded operation is for.
    ///
    /// # Errors
    /// Of an operation that no primary has sent, or whose table is not there any more.
    pub(crate) fn forwarded_target(
        &self,
        head: &PrepareHead,
        operation: &Operation<'_>,
    ) -> Result<ForwardedTarget, ErrorCode> {
        let kind = operation.kind().ok_or(ErrorCode::MalformedSignal)?;
        if !matches!(kind, OperationKind::Insert | OperationKind::Update | OperationKind::Delete) {
            return Err(ErrorCode::MalformedSignal);
        }
        let table_id = operation.head.table.get();
        let table = self.store.tables.get_forwarded(table_id, operation.head.version.get())?;
        let hash = KeyHash(operation.head.hash.get());
        let partition = table.partitions.of(hash);
        assert!(table.has_fragment(partition), "a chain names replicas only");
        let place = RowPlace { table: table_id, partition, row: RowId(operation.head.row_or_wait.get()) };
        Ok(ForwardedTarget { id: TransactionId(head.transaction.get()), kind, place, hash })
    }

    /// Ends what earlier transactions have left on the row and the key of a forwarded operation.
    pub(crate) fn resolve_before(
        &mut self,
        cx: &mut Context<'_>,
        target: &ForwardedTarget,
        operation: &Operation<'_>,
    ) {
        if cx.has_bug(InjectedBug::ForwardedDoesNotResolve) {
            return;
        }
        let ForwardedTarget { id, kind, place, hash } = *target;
        let same_key = (kind == OperationKind::Insert)
            .then(|| {
                let table = self.store.tables.current(place.table);
                let key = table.layout.key_of(operation.body);
                let fragment = table.fragment(place.partition);
                fragment.find(&self.store.pages, &self.store.chunks, hash, &key)
            })
            .flatten();
        self.resolve_earlier(cx, place, id);
        if let Some(row) = same_key {
            let other = RowPlace { row, ..place };
            self.resolve_earlier(cx, other, id);
            if row != place.row && self.is_copied_to(cx) {
                // It is left of an earlier copy: the primary would have refused the insert.
                self.remove_stale(cx, other);
            }
        }
    }

    fn prepare_forwarded(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
    ) -> Result<Handle, ErrorCode> {
        let name = OperationName::of(operation.head);
        let target = self.forwarded_target(head, operation)?;
        let ForwardedTarget { id, kind, place, hash } = target;
        let RowPlace { table: table_id, partition, row } = place;
        if let Some(known) = self.versions.find_transaction(id) {
            self.check_coordinator(known, &head.actor)?;
        }
        if let Some(known) = self.find_change(place, id, name) {
            cx.mark("forwarded prepare came twice");
            return Ok(known);
        }
        self.resolve_before(cx, &target, operation);
        if self.versions.rows.used() == self.versions.rows.capacity() {
            return Err(ErrorCode::OutOfOperations);
        }
        let fragment = self.store.tables.current(table_id).fragment(partition);
        if kind != OperationKind::Insert && !fragment.rows().is_live(row) {
            // Its insert was refused here: the coordinator knows by now, and nobody will get this error.
            cx.mark("backup misses a row whose insert it has refused");
            return Err(ErrorCode::InternalError);
        }
        let handle = self.make_record(head, kind, name, false)?;
        self.versions.operations[handle].table = table_id;
        self.versions.operations[handle].partition = partition;
        self.note_reads_at_backups(handle);
        let change = match self.make_change(cx, handle, kind, row, hash, operation) {
            Ok(change) => change,
            Err(code) => {
                self.drop_operation(handle);
                return Err(code);
            }
        };
        let state = self.store.row_state(&mut self.versions, place).expect("there was room");
        self.versions.attach(handle, state);
        self.versions.push_change(handle, change);
        Ok(handle)
    }

    /// Makes at a backup what the primary has made.
    fn make_change(
        &mut self,
        cx: &Context<'_>,
        handle: Handle,
        kind: OperationKind,
        row: RowId,
        hash: KeyHash,
        operation: &Operation<'_>,
    ) -> Result<Change, ErrorCode> {
        let (table, partition) =
            (self.versions.operations[handle].table, self.versions.operations[handle].partition);
        match kind {
            OperationKind::Insert => {
                self.reserve(handle, operation.body.len())?;
                let new =
                    Insert { table, partition, row: Some(row), hash, image: operation.body, epoch: None };
                self.store.insert(&self.versions, new)?;
                Ok(Change::Insert)
            }
            OperationKind::Delete => {
                self.reserve(handle, 0)?;
                Ok(Change::Delete)
            }
            _ => self.make_version(cx, handle, RowPlace { table, partition, row }, operation.body),
        }
    }

    /// Ends at this backup what earlier transactions have left on a row: see the head of this file.
    fn resolve_earlier(&mut self, cx: &mut Context<'_>, place: RowPlace, newcomer: TransactionId) {
        let Some(state) = self.store.state_of(&self.versions, place) else { return };
        while let Some(newest) = self.versions.rows.get(state).and_then(|r| r.newest_change) {
            let record = &self.versions.operations[newest];
            if self.versions.transactions[record.transaction].id == newcomer {
                return;
            }
            match record.state {
                State::Committed { epoch, .. } => {
                    cx.mark("forwarded prepare shows an earlier commit");
                    self.install(cx, state, epoch);
                }
                State::Prepared if cx.has_bug(InjectedBug::ResolveShowsPrepared) => {
                    self.install(cx, state, self.epoch);
                    self.drop_operation(newest);
                }
                State::Prepared | State::Waiting { .. } => {
                    cx.mark("forwarded prepare undoes an earlier prepare");
                    self.undo_change(cx, newest);
                    self.drop_operation(newest);
                }
            }
        }
    }

    /// The change that an operation has made of a row already. Not the transaction's operations are gone through, of
    /// which there may be many, but the row's changes, which come in the order of their names.
    fn find_change(&self, place: RowPlace, id: TransactionId, name: OperationName) -> Option<Handle> {
        let state = self.store.state_of(&self.versions, place)?;
        let mut next = self.versions.rows[state].newest_change;
        while let Some(at) = next {
            let record = &self.versions.operations[at];
            if record.name() < name || self.versions.transactions[record.transaction].id != id {
                return None;
            }
            if record.name() == name {
                return Some(at);
            }
            next = record.older_change;
        }
        None
    }

    /// Sends the gathered answers of one transaction and empties them.
    pub(crate) fn send_answers(
        &self,
        cx: &mut Context<'_>,
        id: TransactionId,
        actor: &Actor,
        answers: &mut Answers,
    ) {
        self.send_answers_with(cx, id, actor, answers, self.epoch);
    }

    fn send_answers_with(
        &self,
        cx: &mut Context<'_>,
        id: TransactionId,
        actor: &Actor,
        answers: &mut Answers,
        epoch: Epoch,
    ) {
        let committed = answers.committed.take();
        let all_wait = core::mem::take(&mut answers.all_wait);
        let mut send = |signal, list: &[PreparedOperation], changes: IndexChangesPart<'_>, epoch: Epoch| {
            let may_be_empty = all_wait && signal == SignalNumber::PrepareConfirm;
            if list.is_empty() && changes.count == 0 && !may_be_empty {
                return;
            }
            let flags = if committed.is_some() { PREPARED_COMMITTED } else { 0 };
            let mut writer = cx.frame(signal, Address(actor.acting.get()));
            writer.put(&PreparedHead {
                transaction: U64::new(id.0),
                epoch: U64::new(epoch.0),
                record: actor.record,
                owner: self.owner,
                flags: U16::new(flags),
                count: U16::new(list.len() as u16),
                changes: U16::new(changes.count),
                unused: U16::ZERO,
            });
            for answer in list {
                writer.put(answer);
            }
            writer.bytes(changes.bytes);
        };
        let (early, last) = answers.changes.parts();
        for part in early {
            send(SignalNumber::PrepareConfirm, &[], part, epoch);
        }
        send(SignalNumber::PrepareConfirm, &answers.confirmed, last, committed.unwrap_or(epoch));
        send(SignalNumber::PrepareRefuse, &answers.refused, IndexChangesPart::NONE, epoch);
        answers.confirmed.clear();
        answers.changes.clear();
        answers.refused.clear();
    }

    /// Whether readers of a backup are shown the version of a decided operation: for statistics and tests.
    pub fn hidden_versions(&self) -> usize {
        self.versions.hidden()
    }
}
