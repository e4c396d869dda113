//! Operations and row locks: taking, waiting, letting go.
//!
//! Locks are granted first come, first served. An operation that has to wait keeps the bytes that it came as; when its
//! turn comes, or its row has ceased to exist, it is run again from the lookup in the index, in order, before anything
//! newer ([`DataManager::run_ready`], at the end of every signal that may have freed a lock).

use crate::DataManager;
use crate::operation::{Change, State};
use crate::prepare::{Answers, Executed};
use vinga_base::RowId;
use vinga_base::page_pool::Purpose;
use vinga_base::pool::Handle;
use vinga_fragment::chunk_store::CHUNK_BYTES_MAX;
use vinga_fragment::lock_table::{LockMode, LockRef};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::OPERATION_HOLDS;
use vinga_wire::operation::{Operation, OperationKind};
use vinga_wire::{ErrorCode, U32};

/// What became of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    Granted,
    Queued,
    /// It may not wait; it is in no queue.
    Denied,
}

impl DataManager {
    /// Takes a row's lock for an operation, or queues it. There is always room: a lock entry belongs to an operation, a
    /// row lock to a row's state record, and both pools are as large as the lock table's.
    pub(crate) fn lock(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        state: Handle,
        mode: LockMode,
    ) -> Result<Locked, ErrorCode> {
        let mode = if cx.has_bug(InjectedBug::SharedDoesNotBlockExclusive) { LockMode::Shared } else { mode };
        if !self.versions.operations[handle].patience.may_wait() {
            return Ok(self.try_lock(cx, handle, state, mode));
        }
        let (entry, is_granted) = self.locks.take(&mut self.versions, handle, state, mode);
        if is_granted {
            return Ok(Locked::Granted);
        }
        self.statistics.lock_waits += 1;
        while let Some(deadlock) = self.locks.table.find_deadlock(entry) {
            self.statistics.deadlocks += 1;
            if deadlock.operation == handle {
                cx.mark("deadlock: the newcomer is the victim");
                return Err(ErrorCode::Deadlock);
            }
            cx.mark("deadlock: somebody else is the victim");
            self.refuse_waiting(cx, deadlock.operation, ErrorCode::Deadlock);
        }
        // The victim's place in the queue may have been all that was in the way.
        let is_granted = self.locks.table.entry(entry).is_some_and(|(_, granted)| granted);
        Ok(if is_granted { Locked::Granted } else { Locked::Queued })
    }

    /// Takes a row's lock for an operation that may not wait for it.
    fn try_lock(&mut self, cx: &mut Context<'_>, handle: Handle, state: Handle, mode: LockMode) -> Locked {
        if self.locks.try_take(&mut self.versions, handle, state, mode) {
            return Locked::Granted;
        }
        cx.mark("operation that may not wait finds its row locked");
        self.statistics.locks_denied += 1;
        let skips = self.versions.operations[handle].patience.skips();
        if skips && cx.has_bug(InjectedBug::SkipLeavesQueueEntry) {
            self.locks.queue_for_nobody(&self.versions, handle, state, mode);
        }
        Locked::Denied
    }

    /// Locks a row for a change that nobody can be in the way of: the row is new, or others were ordered before.
    pub(crate) fn lock_fresh(&mut self, handle: Handle, state: Handle) {
        let (_, is_granted) = self.locks.take(&mut self.versions, handle, state, LockMode::Exclusive);
        assert!(is_granted, "nobody else can have locked the row");
    }

    /// Whether an earlier operation of the same transaction waits for the row's lock: what it will do must be seen.
    /// Then this one waits too, not for a lock but for that operation.
    pub(crate) fn waits_for_own(&self, handle: Handle, row: RowId) -> bool {
        let operation = &self.versions.operations[handle];
        if self.versions.transactions[operation.transaction].waiting == 0 {
            return false;
        }
        let table = self.store.tables.current(operation.table);
        let reference = self.store.reference(table, operation.partition, row);
        if reference == 0 {
            return false;
        }
        let state = Some(self.versions.row_state_at(reference));
        let mut next = operation.next;
        while let Some(earlier) = next {
            let earlier = &self.versions.operations[earlier];
            if matches!(earlier.state, State::Waiting { .. }) && earlier.row_state == state {
                return true;
            }
            next = earlier.next;
        }
        false
    }

    /// Keeps an operation until its lock is granted, or an earlier one that it waits for has run.
    pub(crate) fn wait(&mut self, cx: &mut Context<'_>, handle: Handle, raw: &[u8]) -> Result<(), ErrorCode> {
        if raw.len() > CHUNK_BYTES_MAX {
            return Err(ErrorCode::BadProgram);
        }
        let store = &mut self.store;
        let request = store
            .chunks
            .store(&mut store.pages, Purpose::Ordinary, raw)
            .map_err(|_| ErrorCode::DataMemoryFull)?;
        self.locks.begin_wait(&mut self.versions, handle, request, cx.now());
        Ok(())
    }

    /// A row has ceased to exist: its waiters run again from the lookup in the index.
    pub(crate) fn rerun_waiters(&mut self, cx: &mut Context<'_>, state: Handle) {
        let lock = self.versions.rows[state].lock;
        if lock == LockRef::NONE {
            return;
        }
        while let Some(waiter) = self.locks.table.take_waiter(lock) {
            cx.mark("waiter of a vanished row runs again");
            self.versions.operations[waiter.operation].lock = None;
            self.store.detach(&mut self.versions, waiter.operation);
            if !cx.has_bug(InjectedBug::WaitersOfVanishedRowLost) {
                self.locks.ready.push_back(waiter.operation);
            }
        }
    }

    /// Runs everything that need not wait any more.
    pub(crate) fn run_ready(&mut self, cx: &mut Context<'_>) {
        while let Some(handle) = self.locks.ready.pop_front() {
            self.run_again(cx, handle);
        }
    }

    fn run_again(&mut self, cx: &mut Context<'_>, handle: Handle) {
        // It may have been aborted since, or have run, or wait for a lock by now.
        let Some(record) = self.versions.operations.get(handle) else { return };
        if record.lock.is_some_and(|entry| self.locks.table.entry(entry).is_some_and(|(_, granted)| !granted))
        {
            return;
        }
        let (name, is_local) = (record.name(), record.error_is_local);
        let (transaction, skips) = (record.transaction, record.patience.skips());
        let (id, actor) =
            (self.versions.transactions[transaction].id, self.versions.transactions[transaction].actor);
        let Some(request) = self.locks.stop_waiting(&mut self.versions, handle) else { return };
        let raw = self.store.chunks.bytes(&self.store.pages, request).to_vec();
        self.store.chunks.free(&mut self.store.pages, request);
        let mut rest = raw.as_slice();
        let operation = Operation::take(&mut rest).expect("it was whole when it came");
        let mut answers = Answers::default();
        match self.execute(cx, handle, &operation, &raw) {
            Executed::Done(_) if self.is_forwarded(handle) => self.forward(cx, handle, operation.key),
            Executed::Done(flags) => {
                self.confirm(cx, handle, flags, &mut answers);
                if flags & OPERATION_HOLDS == 0 {
                    self.drop_operation(handle);
                }
            }
            Executed::Failed(code) => {
                self.drop_operation(handle);
                answers.refuse(name, code, is_local);
            }
            Executed::Locked(flags) => {
                self.drop_operation(handle);
                answers.refuse_locked(name, flags, is_local || skips);
            }
            Executed::Waiting => {
                self.send_answers(cx, id, &actor, &mut answers);
                return;
            }
        }
        self.send_answers(cx, id, &actor, &mut answers);
        self.locks.run_followers(&self.versions, id);
    }

    /// Refuses an operation that waits for a lock.
    pub(crate) fn refuse_waiting(&mut self, cx: &mut Context<'_>, handle: Handle, code: ErrorCode) {
        let record = &self.versions.operations[handle];
        let (name, is_local) = (record.name(), record.error_is_local);
        let transaction = record.transaction;
        let (id, actor) =
            (self.versions.transactions[transaction].id, self.versions.transactions[transaction].actor);
        self.drop_operation(handle);
        let mut answers = Answers::default();
        answers.refuse(name, code, is_local);
        self.send_answers(cx, id, &actor, &mut answers);
        self.locks.run_followers(&self.versions, id);
    }

    /// Refuses what has waited too long.
    pub(crate) fn check_lock_timeouts(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        while let Some(&(end, handle)) = self.locks.bounded_waits.first() {
            if now < end {
                break;
            }
            cx.mark("lock wait of a length of its own timed out");
            self.statistics.lock_timeouts += 1;
            self.refuse_waiting(cx, handle, ErrorCode::LockTimeout);
        }
        while let Some(&(began, handle)) = self.locks.waiting.front() {
            let still_waits = match self.versions.operations.get(handle).map(|o| o.state) {
                Some(State::Waiting { since, .. }) => since == began,
                Some(State::Prepared | State::Committed { .. }) | None => false,
            };
            if still_waits && now.since(began) < self.settings.lock_timeout {
                break;
            }
            self.locks.waiting.pop_front();
            if still_waits {
                cx.mark("lock wait timed out");
                self.statistics.lock_timeouts += 1;
                self.refuse_waiting(cx, handle, ErrorCode::LockTimeout);
            }
        }
        self.run_ready(cx);
    }

    /// Frees an operation's record and everything that it holds, but undoes no change (it has none left).
    pub(crate) fn drop_operation(&mut self, handle: Handle) {
        self.drop_operation_behind(self.versions.newer_than(handle), handle);
    }

    /// The same, for whoever knows which operation of the transaction came next.
    pub(crate) fn drop_operation_behind(&mut self, newer: Option<Handle>, handle: Handle) {
        assert!(
            self.versions.operations[handle].change == Change::None,
            "a change is undone or installed first"
        );
        if let Some(request) = self.locks.stop_waiting(&mut self.versions, handle) {
            self.store.chunks.free(&mut self.store.pages, request);
        }
        self.release_reserved(handle);
        self.locks.release(&mut self.versions, handle);
        self.store.detach(&mut self.versions, handle);
        self.versions.remove_operation(newer, handle);
    }

    /// `Unlock`: lets go of the lock of an earlier read. What other operations hold of the row, changes above all, they
    /// go on holding. A read that waits still is waited for.
    pub(crate) fn unlock_read(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        operation: &Operation<'_>,
        raw: &[u8],
    ) -> Result<Executed, ErrorCode> {
        let number = operation.body.first_chunk::<4>().ok_or(ErrorCode::MalformedSignal)?;
        let number = U32::from_bytes(*number).get();
        let mut next = self.versions.transactions[self.versions.operations[handle].transaction].operations;
        while let Some(at) = next {
            let record = &self.versions.operations[at];
            next = record.next;
            let is_read = matches!(record.kind, OperationKind::ReadShared | OperationKind::ReadExclusive);
            if record.number != number || record.sub != 0 || !is_read {
                continue;
            }
            match record.state {
                State::Prepared => self.drop_operation(at),
                State::Waiting { .. } => {
                    self.wait(cx, handle, raw)?;
                    return Ok(Executed::Waiting);
                }
                State::Committed { .. } => {}
            }
            break;
        }
        Ok(Executed::Done(0))
    }
}
