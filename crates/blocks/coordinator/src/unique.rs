//! Unique indexes follow the rows of their table: the sub-operations of a stage of a batch.
//!
//! The answer that a change is prepared lists what has to go out of and come into the hidden tables of unique indexes.
//! The coordinator has it done by the owners of the hidden rows, as sub-operations: parts of the same transaction under
//! the same operation number, counted from 1, deletes before inserts. The batch is answered, and its transaction can be
//! committed, when they are all prepared.
//!
//! # Order
//! Sub-operations of an operation are sent when all operations with lower numbers are answered and their sub-operations
//! sent. So on one hidden row they come in the order of the operations, whatever the order of the answers: the place
//! that an earlier operation frees is free for a later one, and the other way round.
//!
//! # Failures
//! A sub-operation that fails is a failure of its operation: of the whole transaction, unless the operation was marked
//! `FLAG_ERROR_IS_LOCAL`. Then that operation alone is undone, with all its sub-operations, once these are all answered
//! (`ABORT_ONE`, along the chains); locks stay. Nothing later has touched the same rows by then: of the base row
//! because the rest of the batch waits (`stages`), of hidden rows because sub-operations of later operations wait for
//! those of an operation that may be undone alone, if they are for the same hidden row.
//!
//! If several sub-operations of such an operation fail, the answer names the index that stands first in the table's
//! definition, in whatever order they answer: SQL nodes count on it (REPLACE and ON DUPLICATE KEY UPDATE change the row
//! that is in the way in the first key).

use crate::Coordinator;
use crate::ending::Cause;
use crate::moved::FormerPrimaries;
use crate::participants::Undo;
use crate::stages::{Rest, SignalShare};
use crate::transaction::{Failure, State};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{OPERATION_CHANGES, PreparedOperation};
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, LockWait, Operation, OperationHead, OperationKind};
use vinga_wire::unique::IndexChange;
use vinga_wire::view::ReplicaGroup;
use vinga_wire::{ErrorCode, U16, U32};

/// A hidden row: table, hash of its key.
type HiddenRow = (u32, u64);

/// A stage of a batch as far as unique indexes are concerned.
#[derive(Default)]
pub struct UniqueWork {
    /// The changes of tables with unique indexes, by ascending number.
    steps: Vec<Step>,
    /// The sub-operations of so many of them were sent.
    sent: usize,
    /// Hidden rows that sub-operations are for which may be undone alone.
    uncertain: BTreeSet<HiddenRow>,
    /// What of the batch comes later.
    pub rest: Rest,
    /// Primaries of its rows that are none any more.
    pub(crate) former: FormerPrimaries,
}

/// A change that something may have to follow, as it is sent.
#[derive(Clone, Copy)]
pub struct Base {
    pub number: u32,
    /// Whether any error of it is its own.
    pub error_is_local: bool,
    /// Whether some error of it is.
    pub may_fail_alone: bool,
    /// How long it waits for each of its locks.
    pub wait: LockWait,
    /// Of its row.
    pub owner: ReplicaGroup,
}

/// A change and what follows it.
struct Step {
    base: Base,
    /// Its data managers have answered.
    is_answered: bool,
    subs: Vec<Sub>,
    /// Sub-operations that have not answered; when it is being undone, chains that have not.
    outstanding: u32,
    /// Why it has to be undone alone: the failure of the sub-operation with the lowest number.
    failure: Option<(u8, Failure)>,
}

/// A sub-operation.
struct Sub {
    index: u16,
    row: HiddenRow,
    /// Where it was sent. (Who owned the row when the answer came may have failed when it is sent.)
    owner: Option<ReplicaGroup>,
    /// As it stands in a `PrepareRequest`; empty once sent.
    bytes: Vec<u8>,
}

/// Bytes of one `PrepareRequest` with sub-operations; one more may stand behind them.
const SIGNAL_BYTES: usize = 32 * 1024;

impl UniqueWork {
    /// An operation that something may have to follow is sent.
    pub fn expect(&mut self, base: Base) {
        self.steps.push(Step { base, is_answered: false, subs: Vec::new(), outstanding: 0, failure: None });
    }

    fn find(&mut self, number: u32) -> Option<&mut Step> {
        let at = self.steps.binary_search_by_key(&number, |step| step.base.number).ok()?;
        Some(&mut self.steps[at])
    }

    /// The step has come to its end: its hidden rows are certain.
    fn end(&mut self, number: u32) {
        let at =
            self.steps.binary_search_by_key(&number, |step| step.base.number).expect("the caller found it");
        if self.steps[at].base.may_fail_alone {
            for sub in core::mem::take(&mut self.steps[at].subs) {
                self.uncertain.remove(&sub.row);
            }
        }
    }

    /// The sub-operations that may be sent now.
    fn take_ready(&mut self, owner_of: impl Fn(HiddenRow) -> ReplicaGroup) -> Vec<(ReplicaGroup, Vec<u8>)> {
        let mut ready = Vec::new();
        while let Some(step) = self.steps.get_mut(self.sent) {
            let meets_uncertain = || step.subs.iter().any(|sub| self.uncertain.contains(&sub.row));
            if !step.is_answered || meets_uncertain() {
                break;
            }
            for sub in &mut step.subs {
                if step.base.may_fail_alone {
                    self.uncertain.insert(sub.row);
                }
                let owner = owner_of(sub.row);
                sub.owner = Some(owner);
                ready.push((owner, core::mem::take(&mut sub.bytes)));
            }
            self.sent += 1;
        }
        ready
    }
}

impl Coordinator {
    /// A data manager has listed a change of a hidden row. While an index is added or dropped data managers list its
    /// changes too; whether they count is what coordinators learn when nobody writes.
    pub(crate) fn note_index_change(&mut self, handle: Handle, change: &IndexChange, bytes: &[u8]) {
        if !self.tables.is_known(change.table.get(), change.version.get()) {
            return;
        }
        let step = self.transactions[handle].unique.as_mut().and_then(|w| w.find(change.operation.get()));
        let Some(step) = step else { return };
        let number = step.base.number;
        let flags = if step.base.error_is_local { FLAG_ERROR_IS_LOCAL } else { 0 };
        let is_insert = change.kind == OperationKind::Insert as u8;
        let (key, body) = if is_insert { (&[][..], bytes) } else { (bytes, &[][..]) };
        let head = OperationHead {
            version: change.version,
            hash: change.hash,
            table: change.table,
            number: U32::new(number),
            row_or_wait: U32::new(step.base.wait.number()),
            kind: change.kind,
            flags,
            key_bytes: U16::new(key.len() as u16),
            body_bytes: U16::new(body.len() as u16),
            columns: U16::ZERO,
            filter_bytes: U16::ZERO,
            sub: step.subs.len() as u8 + 1,
            unused: 0,
        };
        let mut bytes = Vec::new();
        Operation { head: &head, key, body, selection: &[], filter: &[] }.write(&mut bytes);
        step.subs.push(Sub {
            index: change.index.get(),
            row: (change.table.get(), change.hash.get()),
            owner: None,
            bytes,
        });
        step.outstanding += 1;
    }

    /// An operation or sub-operation is prepared.
    pub(crate) fn operation_confirmed(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        owner: ReplicaGroup,
        answer: &PreparedOperation,
    ) {
        let number = answer.operation.get();
        let transaction = &mut self.transactions[handle];
        let step = transaction.unique.as_mut().and_then(|work| work.find(number));
        match step {
            Some(step) if answer.sub == 0 => {
                step.is_answered = true;
                if step.outstanding > 0 {
                    let more = step.outstanding;
                    if !cx.has_bug(InjectedBug::CommitBeforeSubs) {
                        self.expect_answers(handle, more);
                    }
                    return;
                }
                self.step_ended(cx, handle, number);
            }
            Some(step) => {
                step.outstanding -= 1;
                if step.outstanding == 0 {
                    self.step_ended(cx, handle, number);
                }
            }
            None if answer.flags & OPERATION_CHANGES != 0 => transaction.note_change(number, owner),
            None => {}
        }
    }

    /// An operation or sub-operation has failed; says why the whole transaction has to be rolled back, if it has to.
    pub(crate) fn operation_refused(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        answer: &PreparedOperation,
        error_is_local: bool,
    ) -> Option<Cause> {
        let code = ErrorCode::from_number(answer.code.get()).unwrap_or(ErrorCode::InternalError);
        let operation = answer.operation.get();
        let mut failure = Failure { operation, code, index: 0 };
        let transaction = &mut self.transactions[handle];
        let step = transaction.unique.as_mut().and_then(|work| work.find(operation));
        match step {
            Some(step) if answer.sub != 0 => {
                failure.index = step.subs.get(usize::from(answer.sub) - 1)?.index;
                step.outstanding -= 1;
                // Its base row said that the hidden row is there, and still holds its lock.
                if code == ErrorCode::NoSuchRow {
                    failure.code = ErrorCode::InternalError;
                    return Some(Cause::failure(failure));
                }
                let is_ignored = cx.has_bug(InjectedBug::SubErrorIgnored);
                if !error_is_local && !is_ignored {
                    return Some(Cause::failure(failure));
                }
                if !is_ignored {
                    let is_first = step.failure.is_none_or(|(sub, _)| answer.sub < sub);
                    if is_first {
                        step.failure = Some((answer.sub, failure));
                    }
                }
                if step.outstanding == 0 {
                    self.step_ended(cx, handle, operation);
                }
                None
            }
            step => {
                if !error_is_local {
                    return Some(Cause::failure(failure));
                }
                if let Some(step) = step {
                    step.is_answered = true;
                }
                transaction.special_mut().errors.push(failure);
                None
            }
        }
    }

    /// All sub-operations of an operation are answered: it is done, or has to be undone.
    fn step_ended(&mut self, cx: &mut Context<'_>, handle: Handle, number: u32) {
        let transaction = &mut self.transactions[handle];
        let work = transaction.unique.as_mut().expect("the caller found a step in it");
        let step = work.find(number).expect("the caller found it");
        if step.failure.is_some() {
            cx.mark("operation is undone alone because of a unique index");
            self.undo_step(cx, handle, number);
            return;
        }
        let owner = step.base.owner;
        work.end(number);
        transaction.note_change(number, owner);
    }

    /// Has an operation undone alone, with its sub-operations, by all chains that take part in it.
    fn undo_step(&mut self, cx: &mut Context<'_>, handle: Handle, number: u32) {
        let orders = self.orders(cx, handle);
        let transaction = &mut self.transactions[handle];
        let list = transaction.participants;
        let work = transaction.unique.as_mut().expect("the caller found a step in it");
        let step = work.find(number).expect("the caller found it");
        let owners: BTreeSet<ReplicaGroup> =
            step.subs.iter().filter_map(|sub| sub.owner).chain([step.base.owner]).collect();
        step.outstanding = owners.len() as u32;
        let asked = step.outstanding;
        for participant in self.participants.of(list).filter(|p| owners.contains(&p.owner)) {
            orders.undo(cx, participant, Undo::One(number));
        }
        self.expect_answers(handle, asked);
    }

    /// A chain has undone an operation alone.
    pub(crate) fn one_undone(&mut self, handle: Handle, number: u32) {
        let transaction = &mut self.transactions[handle];
        let Some(work) = transaction.unique.as_mut() else { return };
        let Some(step) = work.find(number) else { return };
        step.outstanding -= 1;
        if step.outstanding == 0 {
            let (_, failure) = step.failure.expect("only what has failed is undone");
            work.end(number);
            transaction.special_mut().errors.push(failure);
        }
    }

    /// Sends the sub-operations that may go now. False if the transaction had to be rolled back instead.
    pub(crate) fn send_subs(&mut self, cx: &mut Context<'_>, handle: Handle) -> bool {
        let Some(work) = self.transactions[handle].unique.as_mut() else { return true };
        let (tables, view) = (&self.tables, cx.view());
        let owner_of = |(table, hash)| view.partition(tables.used(table).partitions.of(KeyHash(hash))).owner;
        let ready = work.take_ready(owner_of);
        if ready.is_empty() {
            return true;
        }
        // One list for each owner; one that has more than fits a signal gets another list behind it.
        let mut signals: Vec<(ReplicaGroup, usize, Vec<u8>)> = Vec::new();
        for (owner, bytes) in ready {
            match signals.iter_mut().rev().find(|(other, ..)| *other == owner) {
                Some((_, count, list)) if list.len() <= SIGNAL_BYTES => {
                    *count += 1;
                    list.extend_from_slice(&bytes);
                }
                Some(_) | None => signals.push((owner, 1, bytes)),
            }
        }
        for (owner, count, bytes) in signals {
            let share = SignalShare { count, has_changes: true, is_last: false };
            let Some(mut writer) = self.begin_prepare(cx, handle, owner, share) else {
                self.roll_back(cx, handle, Cause::error(ErrorCode::OutOfTransactions));
                return false;
            };
            writer.bytes(&bytes);
        }
        true
    }

    /// So many more answers have to come before the batch is done.
    fn expect_answers(&mut self, handle: Handle, more: u32) {
        let State::Preparing { outstanding, .. } = &mut self.transactions[handle].state else {
            unreachable!("only a preparing transaction waits for answers")
        };
        *outstanding += more;
    }
}
