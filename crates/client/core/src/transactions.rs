//! Transactions: batches to the coordinator that each transaction picked, answers in any order.
//!
//! ```text
//!            batch                 confirm and all its rows            commit or rollback
//!   Fresh ─────────▶ Busy ──────────────────────────────▶ Open ──▶ Busy ──────────────────▶ Ended
//!                     │ ▲                next batch        │          │
//!                     │ └──────────────────────────────────┘          │ connection lost while it may have committed
//!                     ▼                                               ▼
//!                   Ended  (refused, connection lost)              Asking ──▶ Ended
//! ```
//! There is one batch under way at a time; one that is too long for a signal goes in shares, the next when the one
//! before is answered. Rows come from the data managers, on other connections than the coordinator's confirm, so before
//! or after it: the confirm says how many there are. Those that were sent by way of a connection that is lost are not
//! waited for; their reads have failed, whatever becomes of the transaction.
//!
//! Of the first batch of a transaction nobody has seen anything before it is over. So it is *begun again*, as another
//! transaction, if it was rolled back because a data node has failed, or if nothing has come of a commit whose
//! connection was lost; and it waits if no coordinator is connected, but one may be hoped for.
//!
//! A transaction that its owner abandons is rolled back at once. A batch under way is given up with that, so that what
//! it waits for does not keep the locks, unless it is a commit: that is left to the data nodes. Who wants to know what
//! becomes of a commit can give it up and go on waiting: the rollback follows the batch, and the answer is what was
//! decided.

use crate::error::{Error, Result};
use crate::net::{Moment, Net, TokenKind};
use crate::operation_batch::{OperationBatch, Standing};
use crate::outcomes::Coordinator;
use crate::request::{BATCH_TAG, Head, write_batch_of_operations, write_question};
use crate::routes::CoordinatorIndex;
use crate::settings::{REPEATS_AT_ONCE, TRANSACTIONS_MAX};
use crate::writes::rollback_code;
use alloc::vec::Vec;
use vinga_base::id_map::IdMap;
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::Tick;
use vinga_base::{Epoch, OperationNumber, TransactionId};
use vinga_wire::key_read::NO_ROW;
use vinga_wire::transaction::{
    FLAG_COMMIT, FLAG_DURABLE, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START, OperationError, Outcome,
    OutcomeConfirm, TransactionAnswer, TransactionRow,
};
use vinga_wire::{ErrorCode, Frame};
use zerocopy::FromBytes;

/// What is to happen behind the operations of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchEnd {
    /// The transaction stays open.
    Open,
    /// It is committed.
    Commit,
    /// It is rolled back; the batch's operations are not sent.
    RollBack,
}

/// A batch under way.
struct Busy {
    batch: OperationBatch,
    end: BatchEnd,
    /// Whether it is the first of its transaction.
    is_first: bool,
    /// Operations sent so far, in all shares.
    sent: usize,
    /// When the share was sent.
    moment: Moment,
    /// What the confirm of the share said, once it has come: how the transaction stands and how many rows there are.
    confirmed: Option<(Standing, u16)>,
    rows: u16,
}

impl Busy {
    /// Whether the end of the transaction was asked for.
    fn is_ending(&self) -> bool {
        match self.end {
            BatchEnd::Open => false,
            BatchEnd::Commit => self.sent == self.batch.len(),
            BatchEnd::RollBack => true,
        }
    }

    /// Rows that can't come any more.
    fn lost_rows(&self, net: &Net) -> usize {
        if net.is_unbroken_since(self.moment) {
            return 0;
        }
        let awaited = self.batch.awaited_rows(self.sent);
        awaited.filter(|&partition| net.may_have_lost(partition, self.moment)).count()
    }
}

enum State {
    /// Nothing was sent.
    Fresh,
    Open,
    Busy(Busy),
    /// The first batch waits for a coordinator; what it fails with if there is none.
    Held {
        batch: OperationBatch,
        end: BatchEnd,
        code: ErrorCode,
    },
    /// The connection was lost: the outcome is asked for until then.
    Asking {
        batch: OperationBatch,
        is_first: bool,
        until: Tick,
    },
    Ended(ErrorCode),
}

struct Transaction {
    state: State,
    /// Given with the first batch.
    id: TransactionId,
    coordinator: CoordinatorIndex,
    /// A batch that is over and has not been taken.
    finished: Option<OperationBatch>,
    is_abandoned: bool,
    /// Its commit is to be answered when it is on disk.
    is_durable: bool,
    /// Until when its first batch may be held or begun again.
    held_until: Tick,
    /// How often it was begun again.
    repeats: u32,
    /// The rollback was sent behind a commit: there may be an answer to both.
    is_given_up: bool,
    /// Why it was rolled back, if its owner has not asked for that.
    cause: Option<ErrorCode>,
}

impl Transaction {
    /// Whether what its first batch was to do may be begun again.
    fn may_begin_again(&self, now: Tick) -> bool {
        !self.is_given_up && !self.is_abandoned && now < self.held_until
    }
}

fn given_up() -> Error {
    Error::with_detail(ErrorCode::TransactionAborted, "the commit was given up")
}

/// All transactions of the client that are open or whose outcome is asked for.
pub(crate) struct Transactions {
    pool: Pool<Transaction>,
    by_id: IdMap,
    asking: u32,
    abandoned: u32,
    held: u32,
    /// Those of which [`Transactions::take_rolled_back`] has not been asked.
    rolled_back: Vec<(TransactionId, ErrorCode)>,
}

impl Transactions {
    pub fn new() -> Self {
        Transactions {
            pool: Pool::new(TRANSACTIONS_MAX),
            by_id: IdMap::new(TRANSACTIONS_MAX),
            asking: 0,
            abandoned: 0,
            held: 0,
            rolled_back: Vec::new(),
        }
    }

    /// A new transaction. Nothing is sent.
    pub fn begin(&mut self) -> Result<Handle> {
        let transaction = Transaction {
            state: State::Fresh,
            id: TransactionId::NONE,
            coordinator: CoordinatorIndex(0),
            finished: None,
            is_abandoned: false,
            is_durable: false,
            held_until: Tick(0),
            repeats: 0,
            is_given_up: false,
            cause: None,
        };
        self.pool.insert(transaction).map_err(|_| {
            Error::with_detail(ErrorCode::Overloaded, "this client has too many open transactions")
        })
    }

    /// The commit of a transaction is answered when it is on disk, or as soon as it is in memory.
    pub fn set_durable(&mut self, handle: Handle, is_durable: bool) {
        self.pool[handle].is_durable = is_durable;
    }

    /// Sends a batch. There is news when it is over, whatever happens.
    pub fn submit(&mut self, net: &mut Net, handle: Handle, batch: OperationBatch, end: BatchEnd) {
        let transaction = &mut self.pool[handle];
        assert!(transaction.finished.is_none(), "the batch before was taken");
        let moment = net.moment();
        let mut busy = Busy { batch, end, is_first: false, sent: 0, moment, confirmed: None, rows: 0 };
        let is_fresh = match transaction.state {
            State::Ended(code) => {
                let rolled_back = Err(Error::new(code));
                let standing = if end == BatchEnd::RollBack { Ok(Standing::RolledBack) } else { rolled_back };
                return self.finish(net, handle, busy.batch, standing);
            }
            State::Fresh => true,
            State::Open => false,
            State::Busy(_) | State::Held { .. } | State::Asking { .. } => {
                panic!("one batch of a transaction is under way at a time")
            }
        };
        let does_nothing = busy.batch.is_empty() && busy.batch.rollback_from().is_none();
        match end {
            BatchEnd::RollBack if is_fresh => {
                return self.finish(net, handle, busy.batch, Ok(Standing::RolledBack));
            }
            BatchEnd::Commit if is_fresh && does_nothing => {
                return self.finish(net, handle, busy.batch, Ok(Standing::Committed(Epoch(0))));
            }
            // Whether there is a disk, the coordinator says.
            BatchEnd::Open if does_nothing && (is_fresh || !transaction.is_durable) => {
                busy.batch.finish(Ok(Standing::Open), |_| unreachable!("it has no operations"));
                transaction.finished = Some(busy.batch);
                return net.notify(TokenKind::Transaction, handle);
            }
            BatchEnd::Open | BatchEnd::Commit | BatchEnd::RollBack => {}
        }
        if is_fresh {
            transaction.held_until = net.now + net.settings.way_patience;
            return self.hold(net, handle, busy.batch, end, ErrorCode::ClusterFailure);
        }
        transaction.state = State::Busy(busy);
        self.send_share(net, handle, 0);
    }

    /// The first batch of a transaction is to be sent, now if there is a coordinator.
    fn hold(&mut self, net: &mut Net, handle: Handle, batch: OperationBatch, end: BatchEnd, code: ErrorCode) {
        self.pool[handle].state = State::Held { batch, end, code };
        self.held += 1;
        self.begin_held(net, handle);
    }

    /// Begins a transaction whose first batch is held, if there is a coordinator; or ends it, if that has been so for
    /// too long.
    fn begin_held(&mut self, net: &mut Net, handle: Handle) {
        let transaction = &mut self.pool[handle];
        let State::Held { batch, .. } = &transaction.state else {
            unreachable!("the caller has found it so")
        };
        let hint = batch.hint();
        let coordinator = net.routes.coordinator(hint).filter(|&c| net.outcomes.get(c).link.is_some());
        let awaited_until = net.routes.awaited_until(hint.unwrap_or_default()).min(transaction.held_until);
        if coordinator.is_none() && net.now < awaited_until {
            return;
        }
        let State::Held { batch, end, code } = core::mem::replace(&mut transaction.state, State::Fresh)
        else {
            unreachable!("matched just now")
        };
        self.held -= 1;
        let Some(coordinator) = coordinator else {
            let why = match code {
                ErrorCode::ClusterFailure => net.routes.why_no_coordinator(),
                code => code.into(),
            };
            return self.finish(net, handle, batch, Err(why));
        };
        transaction.id = net.next_transaction();
        transaction.coordinator = coordinator;
        self.by_id.insert(transaction.id.0, handle.index());
        let moment = net.moment();
        transaction.state =
            State::Busy(Busy { batch, end, is_first: true, sent: 0, moment, confirmed: None, rows: 0 });
        self.send_share(net, handle, FLAG_START);
    }

    /// What was to be done in the first batch of a transaction has not been done: it is begun again as another one. At
    /// once the first time; then after a pause, so that data nodes have the time to adopt the next view.
    fn begin_again(
        &mut self,
        net: &mut Net,
        handle: Handle,
        batch: OperationBatch,
        end: BatchEnd,
        code: ErrorCode,
    ) {
        self.hold_again(handle, batch, end, code);
        if self.pool[handle].repeats <= REPEATS_AT_ONCE {
            self.begin_held(net, handle);
        }
    }

    /// The same, but the ways to coordinators have to be found first.
    fn hold_again(&mut self, handle: Handle, mut batch: OperationBatch, end: BatchEnd, code: ErrorCode) {
        let transaction = &mut self.pool[handle];
        self.by_id.remove(transaction.id.0);
        transaction.id = TransactionId::NONE;
        transaction.cause = None;
        batch.forget_answers();
        transaction.state = State::Held { batch, end, code };
        transaction.repeats += 1;
        self.held += 1;
    }

    /// Connections have changed, or time has passed: begins what can be begun now.
    pub fn go_on(&mut self, net: &mut Net) {
        if self.held == 0 {
            return;
        }
        for handle in self.handles() {
            if matches!(self.pool[handle].state, State::Held { .. }) {
                self.begin_held(net, handle);
            }
        }
    }

    /// Whether first batches wait for a coordinator.
    pub fn has_held(&self) -> bool {
        self.held > 0
    }

    /// Sends as much of the batch under way as one signal carries.
    fn send_share(&mut self, net: &mut Net, handle: Handle, mut flags: u16) {
        let transaction = &mut self.pool[handle];
        let State::Busy(busy) = &mut transaction.state else { unreachable!("the caller has made it so") };
        let from = busy.sent;
        let count = if busy.end == BatchEnd::RollBack { 0 } else { busy.batch.share_from(from) };
        busy.sent += count;
        (busy.moment, busy.confirmed, busy.rows) = (net.moment(), None, 0);
        let rollback_from = busy.batch.rollback_from().filter(|_| from == 0);
        let durable = if transaction.is_durable { FLAG_DURABLE } else { 0 };
        match busy.end {
            BatchEnd::RollBack => flags |= FLAG_ROLLBACK,
            BatchEnd::Commit if busy.sent == busy.batch.len() => flags |= FLAG_COMMIT | durable,
            BatchEnd::Commit | BatchEnd::Open => flags |= durable,
        }
        if rollback_from.is_some() && busy.end != BatchEnd::RollBack {
            flags |= FLAG_ROLLBACK_TO;
        }
        let head = Head {
            id: transaction.id,
            coordinator: transaction.coordinator,
            tag: handle.index() | BATCH_TAG,
            flags,
            rollback_from: rollback_from.map_or(0, |number| number.0),
            count: count as u16,
        };
        send_at_once(net, &head, busy.batch.share(from, count));
    }

    /// Takes a batch that is over; `None` if none is.
    pub fn take(&mut self, handle: Handle) -> Option<OperationBatch> {
        self.pool.get_mut(handle)?.finished.take()
    }

    /// Its id, once something of it was sent; `None` if it has ended and was forgotten, too.
    pub fn id(&self, handle: Handle) -> Option<TransactionId> {
        self.pool.get(handle).map(|transaction| transaction.id).filter(|&id| id != TransactionId::NONE)
    }

    /// How often it was begun again; 0 if it was forgotten.
    pub fn repeats(&self, handle: Handle) -> u32 {
        self.pool.get(handle).map_or(0, |transaction| transaction.repeats)
    }

    /// Why the cluster has rolled it back, or its connection is lost, although its owner has not asked for that.
    pub fn cause(&self, handle: Handle) -> Option<ErrorCode> {
        self.pool.get(handle)?.cause
    }

    /// The transactions that have been rolled back since the last call although nobody has asked for that, and why.
    pub fn take_rolled_back(&mut self) -> Option<(TransactionId, ErrorCode)> {
        self.rolled_back.pop()
    }

    /// What a read of this transaction must carry to see its changes; `None` if it has none.
    ///
    /// # Errors
    /// `NotSupportedYet` while a batch is under way: its changes would be overtaken; or why it has ended.
    pub fn within(&self, handle: Handle) -> Result<Option<TransactionId>> {
        match &self.pool[handle].state {
            State::Fresh => Ok(None),
            State::Open => Ok(Some(self.pool[handle].id)),
            State::Busy(_) | State::Held { .. } | State::Asking { .. } => Err(Error::with_detail(
                ErrorCode::NotSupportedYet,
                "a direct read while a batch of the transaction is under way",
            )),
            State::Ended(code) => Err(Error::new(*code)),
        }
    }

    /// Nobody wants it any more: it is rolled back unless it is being committed.
    pub fn abandon(&mut self, net: &mut Net, handle: Handle) {
        let Some(transaction) = self.pool.get_mut(handle) else { return };
        transaction.finished = None;
        match transaction.state {
            State::Fresh | State::Ended(_) => self.remove(handle),
            State::Held { .. } => {
                self.held -= 1;
                self.remove(handle);
            }
            State::Asking { .. } => {
                net.outcomes.note_unanswered(transaction.coordinator, transaction.id);
                net.outcomes.close_question(transaction.coordinator, 0);
                self.asking -= 1;
                self.remove(handle);
            }
            State::Open => {
                self.note_abandoned(handle);
                self.roll_back(net, handle);
            }
            State::Busy(ref busy) => {
                let is_ending = busy.is_ending();
                self.note_abandoned(handle);
                if !is_ending {
                    self.roll_back(net, handle);
                }
            }
        }
    }

    /// The commit that is under way is wanted no more, but what becomes of it is: it is rolled back if nothing is
    /// decided yet. Nothing happens if no commit is under way.
    pub fn stop_commit(&mut self, net: &mut Net, handle: Handle) {
        let Some(transaction) = self.pool.get_mut(handle) else { return };
        if let State::Held { end: BatchEnd::Commit, .. } = transaction.state {
            let State::Held { batch, .. } = core::mem::replace(&mut transaction.state, State::Fresh) else {
                unreachable!("matched just now")
            };
            self.held -= 1;
            return self.finish(net, handle, batch, Err(given_up()));
        }
        let State::Busy(busy) = &transaction.state else { return };
        let is_committed = matches!(busy.confirmed, Some((Standing::Committed(_), _)));
        if busy.end != BatchEnd::Commit || is_committed || transaction.is_given_up {
            return;
        }
        transaction.is_given_up = true;
        let head = Head {
            id: transaction.id,
            coordinator: transaction.coordinator,
            tag: handle.index() | BATCH_TAG,
            flags: FLAG_ROLLBACK,
            rollback_from: 0,
            count: 0,
        };
        send_at_once(net, &head, &[]);
    }

    fn note_abandoned(&mut self, handle: Handle) {
        self.pool[handle].is_abandoned = true;
        self.abandoned += 1;
    }

    /// Asks for it, behind a batch under way, if one is.
    fn roll_back(&mut self, net: &mut Net, handle: Handle) {
        self.pool[handle].state = State::Busy(Busy {
            batch: OperationBatch::default(),
            end: BatchEnd::RollBack,
            is_first: false,
            sent: 0,
            moment: net.moment(),
            confirmed: None,
            rows: 0,
        });
        self.send_share(net, handle, 0);
    }

    fn remove(&mut self, handle: Handle) {
        let transaction = self.pool.remove(handle).expect("the caller has found it");
        self.abandoned -= u32::from(transaction.is_abandoned);
        if transaction.id != TransactionId::NONE {
            self.by_id.remove(transaction.id.0);
        }
    }

    /// A batch is over.
    fn finish(
        &mut self,
        net: &mut Net,
        handle: Handle,
        mut batch: OperationBatch,
        standing: Result<Standing>,
    ) {
        let transaction = &mut self.pool[handle];
        let is_open = matches!(standing, Ok(Standing::Open));
        transaction.state = match &standing {
            Ok(Standing::Open) => State::Open,
            Ok(Standing::Committed(_) | Standing::RolledBack) => State::Ended(ErrorCode::NoSuchTransaction),
            Err(error) if error.is_retryable() => State::Ended(error.code()),
            Err(_) => State::Ended(ErrorCode::TransactionAborted),
        };
        if transaction.is_abandoned {
            if is_open {
                self.roll_back(net, handle);
            } else {
                self.remove(handle);
            }
            return;
        }
        batch.finish(standing, |partition| net.routes.why_row_is_lost(partition));
        transaction.finished = Some(batch);
        net.notify(TokenKind::Transaction, handle);
    }

    fn find(&self, tag: u32, id: u64) -> Option<Handle> {
        let handle = self.pool.handle_at(tag & !BATCH_TAG)?;
        (self.pool[handle].id.0 == id && id != 0).then_some(handle)
    }

    /// An answer with the tag of a batch, and what follows it.
    pub fn on_answer(&mut self, net: &mut Net, answer: &TransactionAnswer, errors: &[u8]) -> Option<()> {
        let Some(handle) = self.find(answer.request.get(), answer.transaction.get()) else { return Some(()) };
        let outcome = Outcome::from_number(answer.outcome)?;
        let transaction = &mut self.pool[handle];
        net.outcomes.note(transaction.coordinator, answer.outcome_number.get());
        let may_begin_again = outcome == Outcome::RolledBack
            && answer.error.get() == ErrorCode::NodeFailure as u16
            && transaction.may_begin_again(net.now);
        if let State::Busy(busy) = &transaction.state
            && may_begin_again
            && busy.is_first
            && busy.end != BatchEnd::RollBack
        {
            let State::Busy(busy) = core::mem::replace(&mut transaction.state, State::Fresh) else {
                unreachable!("matched just now")
            };
            self.begin_again(net, handle, busy.batch, busy.end, ErrorCode::NodeFailure);
            return Some(());
        }
        let is_open = matches!(transaction.state, State::Open | State::Busy(_));
        if is_open && outcome == Outcome::RolledBack && answer.error.get() != 0 {
            let code = rollback_code(answer.error.get());
            transaction.cause = Some(code);
            self.rolled_back.push((transaction.id, code));
        }
        match (&mut transaction.state, outcome) {
            // The answer to giving up what has ended just before.
            (State::Ended(_), _) if transaction.is_given_up => {}
            // The coordinator gave up an idle transaction while a batch was on its way: this is the answer to that.
            (State::Ended(_), Outcome::RolledBack | Outcome::NotFound) => {}
            (State::Busy(Busy { confirmed: Some((Standing::Committed(_), _)), .. }), Outcome::RolledBack)
                if transaction.is_given_up => {}
            // The answer to a batch that was given up, just too late.
            (State::Busy(Busy { end: BatchEnd::RollBack, .. }), Outcome::Open) => {}
            (State::Busy(busy), Outcome::Open | Outcome::Committed) => {
                let standing = match outcome {
                    Outcome::Open => Standing::Open,
                    _ => Standing::Committed(Epoch(answer.epoch.get())),
                };
                if busy.confirmed.is_some() {
                    return None;
                }
                let (errors, _) =
                    <[OperationError]>::ref_from_prefix_with_elems(errors, usize::from(answer.errors.get()))
                        .ok()?;
                for error in errors {
                    let code = rollback_code(error.code.get());
                    busy.batch.take_error(error.operation.get(), code, error.index.get())?;
                }
                busy.confirmed = Some((standing, answer.rows.get()));
                self.finish_share_if_done(net, handle);
            }
            (State::Busy(_), Outcome::RolledBack) => {
                let State::Busy(busy) = core::mem::replace(&mut transaction.state, State::Fresh) else {
                    unreachable!("matched just now")
                };
                let standing = if busy.end == BatchEnd::RollBack {
                    Ok(Standing::RolledBack)
                } else {
                    let operation = answer.failed_operation.get();
                    let operation = (operation != 0).then_some(OperationNumber(operation));
                    let error = match answer.error.get() {
                        0 => given_up(),
                        code => Error::new(rollback_code(code)),
                    };
                    Err(error.at_operation(operation).at_index(answer.failed_index.get()))
                };
                self.finish(net, handle, busy.batch, standing);
            }
            (State::Busy(_), Outcome::NotOnDisk) => {
                let State::Busy(busy) = core::mem::replace(&mut transaction.state, State::Fresh) else {
                    unreachable!("matched just now")
                };
                self.finish(net, handle, busy.batch, Err(Error::new(ErrorCode::NotOnDisk)));
            }
            // The coordinator gave up a transaction that was idle.
            (State::Open, Outcome::RolledBack) => {
                transaction.state = State::Ended(rollback_code(answer.error.get()));
            }
            // The answer to the question is on its way as well.
            (State::Asking { .. }, _) => {}
            (State::Open | State::Fresh | State::Held { .. } | State::Ended(_), _)
            | (State::Busy(_), Outcome::NotFound) => {
                return None;
            }
        }
        Some(())
    }

    /// The row of a read of some batch.
    pub fn on_row(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<TransactionRow>()?;
        net.note_epoch(head.epoch.get());
        let row = match head.row_bytes.get() {
            NO_ROW => None,
            bytes => Some(rest.get(..usize::from(bytes))?),
        };
        let index = self.by_id.get(head.transaction.get());
        let Some(handle) = index.and_then(|index| self.pool.handle_at(index)) else { return Some(()) };
        if let State::Busy(busy) = &mut self.pool[handle].state
            && busy.batch.take_row(head.operation.get(), row)
        {
            busy.rows += 1;
            self.finish_share_if_done(net, handle);
        }
        Some(())
    }

    /// Goes on when a share is confirmed and all its rows are there.
    fn finish_share_if_done(&mut self, net: &mut Net, handle: Handle) {
        let transaction = &mut self.pool[handle];
        let State::Busy(busy) = &mut transaction.state else { unreachable!("the caller has found it so") };
        let Some((standing, rows)) = busy.confirmed else { return };
        if busy.rows < rows && usize::from(busy.rows) + busy.lost_rows(net) < usize::from(rows) {
            return;
        }
        if standing == Standing::Open && transaction.is_given_up {
            // The share was done just before; the answer to the rollback follows.
            busy.confirmed = None;
            return;
        }
        if standing == Standing::Open && busy.sent < busy.batch.len() {
            return self.send_share(net, handle, 0);
        }
        let State::Busy(busy) = core::mem::replace(&mut transaction.state, State::Fresh) else {
            unreachable!("matched above")
        };
        self.finish(net, handle, busy.batch, Ok(standing));
    }

    /// All connections to an endpoint are gone, but its coordinators are still listed with them.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let until = net.now + net.settings.outcome_patience;
        for handle in self.handles() {
            let transaction = &mut self.pool[handle];
            let coordinator = transaction.coordinator;
            if transaction.id == TransactionId::NONE || !net.outcomes.get(coordinator).is_reached_by(endpoint)
            {
                continue;
            }
            let is_open = matches!(transaction.state, State::Open | State::Busy(_));
            transaction.cause = transaction.cause.or(is_open.then_some(ErrorCode::ConnectionLost));
            match core::mem::replace(&mut transaction.state, State::Ended(ErrorCode::ConnectionLost)) {
                State::Busy(busy) => {
                    let may_have_committed = busy.end == BatchEnd::Commit && busy.is_ending();
                    match busy.confirmed {
                        // Its rows may come from others.
                        Some((Standing::Committed(_), _)) if !transaction.is_abandoned => {
                            transaction.state = State::Busy(busy);
                            transaction.cause = None;
                        }
                        Some((standing @ Standing::Committed(_), _)) => {
                            self.finish(net, handle, busy.batch, Ok(standing));
                        }
                        None if may_have_committed && !transaction.is_abandoned => {
                            let is_first = busy.is_first;
                            transaction.state = State::Asking { batch: busy.batch, is_first, until };
                            self.asking += 1;
                            net.outcomes.open_question(coordinator);
                        }
                        // It will never commit, and nobody has seen anything of it.
                        Some(_) | None
                            if !may_have_committed
                                && busy.is_first
                                && busy.end != BatchEnd::RollBack
                                && transaction.may_begin_again(net.now) =>
                        {
                            self.hold_again(handle, busy.batch, busy.end, ErrorCode::ConnectionLost);
                        }
                        Some(_) | None => {
                            if may_have_committed {
                                net.outcomes.note_unanswered(coordinator, transaction.id);
                            }
                            let standing = match busy.end {
                                BatchEnd::RollBack => Ok(Standing::RolledBack),
                                BatchEnd::Open | BatchEnd::Commit => {
                                    Err(Error::new(ErrorCode::ConnectionLost))
                                }
                            };
                            self.rolled_back.push((transaction.id, ErrorCode::ConnectionLost));
                            self.finish(net, handle, busy.batch, standing);
                        }
                    }
                }
                State::Open => self.rolled_back.push((transaction.id, ErrorCode::ConnectionLost)),
                as_it_was @ (State::Fresh | State::Held { .. } | State::Asking { .. } | State::Ended(_)) => {
                    transaction.state = as_it_was;
                }
            }
        }
    }

    /// Connections were lost, or there is another view: batches that lack only rows which can't come any more are over.
    pub fn finish_without_rows(&mut self, net: &mut Net) {
        for handle in self.handles() {
            if let State::Busy(Busy { confirmed: Some(_), .. }) = self.pool[handle].state {
                self.finish_share_if_done(net, handle);
            }
        }
    }

    /// Asks for outcomes that are not known, of transactions of these coordinators.
    pub fn ask(&mut self, net: &mut Net, of: impl Fn(&Coordinator) -> bool) {
        for (handle, transaction) in self.pool.iter() {
            if matches!(transaction.state, State::Asking { .. })
                && of(net.outcomes.get(transaction.coordinator))
            {
                write_question(net, transaction.coordinator, transaction.id, handle.index() | BATCH_TAG);
            }
        }
    }

    /// An answer to a question with the tag of a batch.
    pub fn on_outcome(&mut self, net: &mut Net, confirm: &OutcomeConfirm) -> Option<()> {
        let Some(handle) = self.find(confirm.request.get(), confirm.transaction.get()) else {
            return Some(());
        };
        let standing = match Outcome::from_number(confirm.outcome)? {
            Outcome::Committed => Ok(Standing::Committed(Epoch(confirm.epoch.get()))),
            Outcome::NotOnDisk => Err(Error::new(ErrorCode::NotOnDisk)),
            Outcome::RolledBack | Outcome::NotFound => Err(Error::new(ErrorCode::ConnectionLost)),
            Outcome::Open => return None,
        };
        net.note_epoch(confirm.epoch.get());
        self.answer_question(net, handle, standing, confirm.outcome_number.get());
        Some(())
    }

    fn answer_question(&mut self, net: &mut Net, handle: Handle, standing: Result<Standing>, number: u32) {
        let transaction = &mut self.pool[handle];
        let asked = core::mem::replace(&mut transaction.state, State::Ended(ErrorCode::ConnectionLost));
        match asked {
            State::Asking { mut batch, is_first, .. } => {
                self.asking -= 1;
                net.outcomes.close_question(transaction.coordinator, number);
                let is_undone = matches!(&standing, Err(error) if error.code() == ErrorCode::ConnectionLost);
                if is_undone && is_first && transaction.may_begin_again(net.now) {
                    return self.begin_again(net, handle, batch, BatchEnd::Commit, ErrorCode::ConnectionLost);
                }
                if standing.is_ok() {
                    // Successors keep outcomes of transactions only that have changed something.
                    let has_changed = is_first && net.outcomes.get(transaction.coordinator).is_dead();
                    batch.lose_errors(has_changed);
                    // It was not rolled back with its connection after all.
                    transaction.cause = None;
                }
                self.finish(net, handle, batch, standing);
            }
            as_it_was @ (State::Fresh
            | State::Held { .. }
            | State::Open
            | State::Busy(_)
            | State::Ended(_)) => {
                transaction.state = as_it_was;
            }
        }
    }

    /// Gives up the questions that `hopeless` names by their coordinator and the time until which they are asked.
    pub fn give_up(
        &mut self,
        net: &mut Net,
        code: ErrorCode,
        hopeless: impl Fn(&Net, CoordinatorIndex, Tick) -> bool,
    ) {
        for handle in self.handles() {
            let transaction = &self.pool[handle];
            if let State::Asking { until, .. } = transaction.state
                && hopeless(net, transaction.coordinator, until)
            {
                net.outcomes.note_unanswered(transaction.coordinator, transaction.id);
                self.answer_question(net, handle, Err(Error::new(code)), 0);
            }
        }
    }

    fn handles(&self) -> Vec<Handle> {
        self.pool.iter().map(|(handle, _)| handle).collect()
    }

    /// Outcomes that are being asked for.
    pub fn asking(&self) -> u32 {
        self.asking
    }

    /// Abandoned transactions that have not ended: somebody has to read the answers, so that they do.
    pub fn abandoned(&self) -> u32 {
        self.abandoned
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0 && self.by_id.is_empty()
    }
}

/// Writes a batch, which goes without waiting for more.
fn send_at_once(net: &mut Net, head: &Head, operations: &[u8]) {
    write_batch_of_operations(net, head, operations);
    if let Some(link) = net.outcomes.get(head.coordinator).link {
        net.link(link).hurry();
    }
}
