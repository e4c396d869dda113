//! One-phase commit: one operation, its transaction's last, on a row that nobody else has, whose only replica is here.
//!
//! Such an operation is prepared and committed in one step, in the later of the epoch that it carries and the newest
//! one here. No record is made and no lock is taken: between the check and the change nothing else runs. It is allowed
//! in a cluster that is configured with one replica: no coordinator has a successor there that would need a record of
//! it. If anything stands in its way, or has to follow it in a unique index, it is prepared in the ordinary way.

use crate::apply::Insert;
use crate::prepare::{Answers, image_error, run_update, send_row};
use crate::store::Version;
use crate::versions::RowPlace;
use crate::{DataManager, operation::OperationName};
use vinga_base::hash::KeyHash;
use vinga_base::{Epoch, PartitionId, RowId, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{
    OPERATION_ERROR_IS_LOCAL, OPERATION_HOLDS, OPERATION_SENT_ROW, PREPARED_COMMITTED, PrepareHead,
    PreparedHead,
};
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, Operation, OperationKind};
use vinga_wire::{Address, ErrorCode, SignalNumber, U16, U64};

/// Why an operation can't take the one-phase commit, or fails in it.
enum Obstacle {
    /// It must be prepared in the ordinary way.
    Ordinary,
    Failed(ErrorCode),
}

/// The row that an operation is for: its place, if there is one, and the hash of its key.
struct Target {
    table: u32,
    partition: PartitionId,
    hash: KeyHash,
    row: Option<RowId>,
}

impl From<ErrorCode> for Obstacle {
    fn from(code: ErrorCode) -> Self {
        Obstacle::Failed(code)
    }
}

impl DataManager {
    /// Whether the last operations of a transaction may be committed with their prepare.
    pub(crate) fn may_commit_in_one_phase(&self, cx: &Context<'_>, head: &PrepareHead, view: u8) -> bool {
        !cx.view().is_replicated()
            && view == cx.view().number().0 as u8
            && self.versions.find_transaction(TransactionId(head.transaction.get())).is_none()
    }

    /// Tries the one-phase commit; false if the operation must be prepared in the ordinary way.
    pub(crate) fn one_phase(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
    ) -> bool {
        let given = if cx.has_bug(InjectedBug::OnePhaseTakesOwnEpoch) { 0 } else { head.epoch.get() };
        let epoch = self.epoch.max(Epoch(given));
        let (signal, flags, epoch, code) = match self.try_one_phase(cx, head, operation, epoch) {
            Ok(flags) => (SignalNumber::PrepareConfirm, flags, epoch, 0),
            Err(Obstacle::Ordinary) => return false,
            Err(Obstacle::Failed(code)) => {
                let is_local = operation.head.flags & FLAG_ERROR_IS_LOCAL != 0;
                let flags = if is_local { OPERATION_ERROR_IS_LOCAL } else { 0 };
                (SignalNumber::PrepareRefuse, flags, self.epoch, code as u16)
            }
        };
        self.statistics.one_phase_commits += 1;
        cx.frame(signal, Address(head.actor.acting.get()))
            .put(&PreparedHead {
                transaction: head.transaction,
                epoch: U64::new(epoch.0),
                record: head.actor.record,
                owner: self.owner,
                flags: U16::new(if code == 0 { PREPARED_COMMITTED } else { 0 }),
                count: U16::new(1),
                changes: U16::ZERO,
                unused: U16::ZERO,
            })
            .put(&OperationName::of(operation.head).answer(code, flags));
        true
    }

    fn try_one_phase(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
        epoch: Epoch,
    ) -> Result<u8, Obstacle> {
        let kind = operation.kind().ok_or(ErrorCode::MalformedSignal)?;
        let table_id = operation.head.table.get();
        let table = self.store.tables.get(cx, table_id, operation.head.version.get())?;
        let hash = KeyHash(operation.head.hash.get());
        let partition = table.partitions.of(hash);
        if !self.is_primary_of(cx.view(), partition) {
            return Err(Obstacle::Ordinary);
        }
        if kind.is_read() && cx.is_congested(Address(head.api.get())) {
            return Err(ErrorCode::Overloaded.into());
        }
        let fragment = table.fragment(partition);
        let key = match kind {
            OperationKind::Insert | OperationKind::Write => {
                table.layout.check_image(operation.body).map_err(image_error)?;
                match table.layout.key_bytes() {
                    Some(bytes) => &operation.body[..usize::from(bytes)],
                    None => return Err(Obstacle::Ordinary),
                }
            }
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Update
            | OperationKind::Delete => operation.key,
            OperationKind::Unlock => return Err(Obstacle::Ordinary),
        };
        let row = fragment.find(&self.store.pages, &self.store.chunks, hash, key);
        if let Some(row) = row
            && self.store.reference(table, partition, row) != 0
        {
            return Err(Obstacle::Ordinary);
        }
        let version = || row.map(|row| self.store.slot(table, partition, row));
        let filter = self.read_options(table, operation.selection, operation.filter)?;
        if let Some(filter) = &filter
            && kind != OperationKind::ReadCommitted
            && version().is_some_and(|v| !filter.matches(&table.layout, v.fixed, v.variable))
        {
            return Err(ErrorCode::ConditionFailed.into());
        }
        if kind.is_read() {
            let passes = |v: &Version<'_>| {
                filter.as_ref().is_none_or(|f| f.matches(&table.layout, v.fixed, v.variable))
            };
            self.send_one_row(cx, head, operation, version().filter(passes));
            return Ok(OPERATION_SENT_ROW);
        }
        self.change_in_one_phase(operation, kind, Target { table: table_id, partition, hash, row }, epoch)?;
        self.epoch = epoch;
        Ok(0)
    }

    /// Changes a row that no operation names, or that there is none of, as it will stay.
    fn change_in_one_phase(
        &mut self,
        operation: &Operation<'_>,
        kind: OperationKind,
        target: Target,
        epoch: Epoch,
    ) -> Result<(), Obstacle> {
        let Target { table: table_id, partition, hash, row } = target;
        let table = self.store.tables.current(table_id);
        let is_logged = table.is_logged;
        let place = |row| RowPlace { table: table_id, partition, row };
        let version = |row| self.store.slot(table, partition, row);
        match (kind, row) {
            (OperationKind::Insert, Some(_)) => return Err(ErrorCode::DuplicateKey.into()),
            (OperationKind::Insert | OperationKind::Write, None) => {
                if table.unique.follows(&table.layout, None, Some(Version::of(&table.layout, operation.body)))
                {
                    return Err(Obstacle::Ordinary);
                }
                self.store.listener.check_room(is_logged, operation.body.len())?;
                let new = Insert {
                    table: table_id,
                    partition,
                    row: None,
                    hash,
                    image: operation.body,
                    epoch: Some(epoch),
                };
                self.store.insert(&self.versions, new)?;
            }
            (OperationKind::Write, Some(row)) => {
                let after = Version::of(&table.layout, operation.body);
                if !table.unique.is_empty()
                    && table.unique.follows(&table.layout, Some(version(row)), Some(after))
                {
                    return Err(Obstacle::Ordinary);
                }
                self.store.listener.check_room(is_logged, operation.body.len())?;
                self.store.overwrite(&self.versions, place(row), operation.body, epoch)?;
            }
            (OperationKind::Update, Some(row)) => {
                let version = version(row);
                let mut after = core::mem::take(&mut self.scratch.image);
                after.clear();
                let written = match run_update(table, operation.body, version, &mut after) {
                    Ok(()) => {
                        let image = Version::of(&table.layout, &after);
                        if table.unique.follows(&table.layout, Some(version), Some(image)) {
                            Err(Obstacle::Ordinary)
                        } else {
                            let room = self.store.listener.check_room(is_logged, after.len());
                            room.and_then(|()| {
                                self.store.overwrite(&self.versions, place(row), &after, epoch)
                            })
                            .map_err(Obstacle::from)
                        }
                    }
                    Err(code) => Err(code.into()),
                };
                self.scratch.image = after;
                written?;
            }
            (OperationKind::Delete, Some(row)) => {
                if !table.unique.is_empty() && table.unique.follows(&table.layout, Some(version(row)), None) {
                    return Err(Obstacle::Ordinary);
                }
                self.store.listener.check_room(is_logged, 0)?;
                self.store.remove(&self.versions, place(row), hash, Some(epoch));
            }
            (OperationKind::Update | OperationKind::Delete, None) => {
                return Err(ErrorCode::NoSuchRow.into());
            }
            (
                OperationKind::ReadCommitted
                | OperationKind::ReadShared
                | OperationKind::ReadExclusive
                | OperationKind::Unlock,
                _,
            ) => unreachable!("these change nothing"),
        }
        Ok(())
    }

    fn send_one_row(
        &self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
        found: Option<Version<'_>>,
    ) {
        let id = TransactionId(head.transaction.get());
        send_row(cx, self, id, Address(head.api.get()), operation.head.number.get(), operation, found);
    }

    /// All operations of a last signal are prepared here and wait for nobody: commits them.
    pub(crate) fn commit_in_one_phase(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        answers: &mut Answers,
    ) {
        let id = TransactionId(head.transaction.get());
        let epoch = self.epoch.max(Epoch(head.epoch.get()));
        if let Some(transaction) = self.versions.find_transaction(id) {
            self.commit_as_primary(cx, transaction, epoch);
        }
        for answer in &mut answers.confirmed {
            answer.flags &= !OPERATION_HOLDS;
        }
        cx.mark("several operations committed with their prepare");
        answers.committed = Some(epoch);
    }
}
