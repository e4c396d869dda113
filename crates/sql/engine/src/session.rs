//! One connection of the server: its transaction, and the changes that are still to be sent.
//!
//! Changes are *defined* and sent together: with the next locking read, before another read, when the statement ends,
//! or, if the statement stands alone, with its commit; then a statement that writes is one round trip. An error of a
//! change in a longer transaction undoes only that change; the server then undoes the statement. An error in a
//! statement that stands alone rolls the statement back at once.
//!
//! *Changes that can wait.* A change of a row that the transaction has locked, and that affects no unique index, can
//! only fail for lack of memory or because a node failed. Such changes wait beyond the end of their statement for the
//! next request or the commit: an `UPDATE` by primary key within a transaction is one round trip, that of its locking
//! read. Once the statement has ended, an error of one of these changes can't be reported by that statement any more,
//! so it rolls back the whole transaction, and is returned by the statement that sent the change.
//!
//! A transaction that is lost (by a time-out, a deadlock, a kill, or the failure of a node) is *doomed*: the server is
//! instructed to roll it back as a whole. Until it has done so nothing more is read or changed, so that the rest of a
//! statement, or of a transaction, is never mistaken for the whole.
//!
//! *Rows that get another value.* An insert with a generated auto-increment value may meet a row that a client of
//! another SQL node has created with that value explicitly, see [`crate::auto_increment`]. Then the rows that were
//! collected with it are written again, with other values; the first attempt is reported to no one. So a batch of such
//! inserts costs its transaction only if the batch is sent with the commit, and the transaction contains nothing else.
//!
//! *Failures of data nodes.* What of a statement that stands alone costs nothing to lose is not reported: see
//! [`repeats`].
//!
//! *Statements with triggers and functions.* A statement that fires triggers or calls functions which use tables sends
//! each of its changes at once, and so do the statements in these: an error handler in one of them gets errors of its
//! own changes only, and such an error is that of a single change, which alone is undone. Changes that can wait do so
//! here too, but their errors, which another handler would get, cost the transaction.

mod changes;
mod conditional;
mod endings;
mod numbers;
mod reads;
mod repeats;

pub use conditional::{ChangeIf, Changed};
pub use endings::CommitsTo;
pub use reads::{Given, RowLock};

use crate::backoff::Backoff;
use crate::copying::Copying;
use crate::failure::{Failure, Result, ha};
use crate::node::Node;
use crate::presence::Presence;
use crate::row_name::{RowName, RowSet};
use crate::table::OpenTable;
use crate::waiting::{Ended, Stop, Waiter};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vinga::blocking::Cluster;
use vinga::{Committed, Error, ErrorCode, OperationNumber, Table, Transaction};

/// When a change is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At once; an error undoes only this change.
    Now,
    /// At the latest when the statement ends.
    InStatement,
    /// At the latest when the transaction ends.
    InTransaction,
}

/// A change that was defined, and whose result is not known yet.
struct Pending {
    number: OperationNumber,
    when: When,
    table: Arc<OpenTable>,
    /// For an insert: the place of its row in `images`.
    image: Range<usize>,
    /// Whether its auto-increment value was generated.
    numbered: Numbered,
}

/// What is known about the auto-increment value of a row that is inserted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Numbered {
    /// There is none, or it was given explicitly.
    #[default]
    No,
    /// It was generated, and has been reported already.
    Fixed,
    /// It was generated, and may be replaced by another one.
    Free,
}

/// A row that could not be inserted because its key existed.
struct Duplicate {
    table: String,
    /// The number of the server's key.
    key: usize,
    image: Vec<u8>,
}

/// A session: one connection of the server.
pub struct Session {
    node: Arc<Node>,
    waiter: Arc<Waiter>,
    presence: Arc<Presence>,
    slot: usize,
    cluster: Option<Cluster>,
    transaction: Option<Transaction>,
    /// The transaction of which the current statement consists, if it was committed with the statement's operations:
    /// their results.
    committed: Option<Committed>,
    /// The transaction has sent operations, or has some to send: reads must take them into account.
    has_operations: bool,
    /// Locks are to be released with the next request.
    has_unlocks: bool,
    /// The transaction has sent changes that did not fail.
    has_changed: bool,
    /// The transaction has read rows under locks, or has begun to.
    has_locked: bool,
    stands_alone: bool,
    /// Locks of the current statement must last to its end.
    keeps_locks: bool,
    /// The transaction was lost, and the server has not rolled back yet.
    is_lost: bool,
    /// The current statement commits in portions: its reads do not take its changes into account.
    is_portioned: bool,
    /// Changes of the current statement do not wait for its end.
    is_at_once: bool,
    commits_to: CommitsTo,
    /// Number of changes in the current portion.
    portion: usize,
    statement_start: OperationNumber,
    pending: Vec<Pending>,
    images: Vec<u8>,
    failure: Failure,
    duplicate: Option<Duplicate>,
    numbers: numbers::Numbers,
    copying: Copying,
    backoff: Backoff,
    /// The rows that the current statement has changed, if that was requested.
    changed_rows: Option<RowSet>,
}

/// Failures with greater numbers are Vinga's own, see `vinga_engine.h`.
const SERVER_NUMBER_MAX: i32 = 200;

/// The number of a transaction's first operation.
const FIRST: OperationNumber = OperationNumber(1);

impl Session {
    /// A session for the server's connection with this number.
    pub fn new(node: Arc<Node>, thread: u64) -> Self {
        let waiter = Arc::new(Waiter::default());
        node.watch(&waiter);
        let presence = Arc::new(Presence::new(thread));
        node.note_presence(&presence);
        node.counters.sessions.fetch_add(1, Ordering::Relaxed);
        let slot = thread as usize % node.pool_size();
        Session {
            node,
            waiter,
            presence,
            slot,
            cluster: None,
            transaction: None,
            committed: None,
            has_operations: false,
            has_unlocks: false,
            has_changed: false,
            has_locked: false,
            stands_alone: true,
            keeps_locks: false,
            is_lost: false,
            is_portioned: false,
            is_at_once: false,
            commits_to: CommitsTo::Memory,
            portion: 0,
            statement_start: FIRST,
            pending: Vec::new(),
            images: Vec::new(),
            failure: Failure::new(0, ""),
            duplicate: None,
            numbers: numbers::Numbers::default(),
            copying: Copying::default(),
            backoff: Backoff::default(),
            changed_rows: None,
        }
    }

    /// The state that all sessions share.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The place of its connection in the pool.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The tables that the current statement copies.
    pub fn copying(&mut self) -> &mut Copying {
        &mut self.copying
    }

    /// The waiter, by which others can end its waits.
    pub fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.waiter.is_killed()
    }

    /// The last failure.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Stores a failure; returns its number.
    #[cold]
    pub fn fail(&mut self, mut failure: Failure) -> i32 {
        failure.is_doomed |= self.has_operations && failure.ends_transactions();
        if failure.is_doomed {
            self.lose();
        }
        if failure.number == ErrorCode::SchemaBusy as i32 {
            self.waiter.pause(self.backoff.once_more());
            if self.is_killed() {
                failure = Failure { is_doomed: failure.is_doomed, ..Failure::killed() };
            }
        }
        let number = failure.number;
        let is_ours =
            failure.number > SERVER_NUMBER_MAX || [ha::INTERNAL_ERROR, ha::FULL].contains(&failure.number);
        if failure.is_temporary || is_ours {
            self.node.note_failure(&failure);
        }
        self.failure = failure;
        number
    }

    /// The session's connection.
    ///
    /// # Errors
    /// If no data node answers.
    #[inline]
    pub fn cluster(&mut self) -> Result<&Cluster> {
        if self.cluster.is_none() {
            let (slot, cluster) = self.node.cluster(self.slot, Some(&self.waiter))?;
            self.slot = slot;
            self.cluster = Some(cluster);
        }
        Ok(self.cluster.as_ref().expect("made just before"))
    }

    /// Runs a future of this session's connection, with a time limit.
    ///
    /// # Errors
    /// If the session was killed, or it took too long.
    pub fn wait<F: Future>(&mut self, future: F) -> Result<F::Output> {
        self.cluster()?;
        let cluster = self.cluster.as_ref().expect("made just before");
        wait(&self.node, &self.waiter, cluster, future)
    }

    /// As [`Session::wait`], for what is no part of its transaction.
    ///
    /// # Errors
    /// If the session was killed, or it took too long.
    pub fn wait_aside<F: Future>(&mut self, future: F) -> Result<F::Output> {
        self.wait(future).map_err(Failure::aside)
    }

    /// A table by its name.
    ///
    /// # Errors
    /// `NO_SUCH_TABLE`, or the reason why it could not be read.
    pub fn describe(&mut self, name: &str) -> Result<Table> {
        let cluster = self.cluster()?.clone();
        match self.wait(cluster.as_async().table(name))? {
            Ok(table) => Ok(table),
            Err(error) if error.code() == ErrorCode::NoSuchTable => {
                Err(Failure::new(ha::NO_SUCH_TABLE, format!("there is no table {name}")))
            }
            Err(error) => Err(self.node.failure(&error)),
        }
    }

    /// Begins a statement, or the use of another table by it: `statement` is the server's number of it. If it keeps
    /// locks, all rows that it has locked must have stayed locked to its end.
    pub fn begin_statement(&mut self, stands_alone: bool, keeps_locks: bool, statement: u64) {
        self.copying.begin_statement(statement);
        self.stands_alone = stands_alone;
        self.keeps_locks = keeps_locks;
        // The state of a statement that has ended does not concern this one.
        self.is_lost &= !stands_alone;
        // An earlier failure was reported, with what it has cost. The server asks the same after errors of its own.
        self.failure.is_doomed = false;
        self.is_portioned = false;
        self.is_at_once = false;
        self.duplicate = None;
        self.changed_rows = None;
        self.committed = None;
        self.numbers = numbers::Numbers::default();
        self.statement_start = self.next_number();
    }

    /// Records the changes of the current statement from now on, for cursors that keep rows that they have read.
    pub fn remember_changes(&mut self) {
        self.changed_rows.get_or_insert_default();
    }

    /// Notes that the current statement has changed a row.
    #[inline]
    pub fn note_change(&mut self, row: impl FnOnce() -> RowName) {
        if let Some(changed) = &mut self.changed_rows {
            changed.insert(row());
        }
    }

    /// Whether the current statement has changed a row since [`Session::remember_changes`].
    pub fn has_changed(&self, row: RowName) -> bool {
        self.changed_rows.as_ref().is_some_and(|changed| changed.contains(&row))
    }

    /// From now on, no change of the current statement that may fail waits for its end: otherwise another engine could
    /// not undo it alone, or the handler of a trigger would get its error.
    pub fn send_at_once(&mut self) {
        self.is_at_once = true;
    }

    /// Whether the current statement is a transaction by itself.
    pub fn stands_alone(&self) -> bool {
        self.stands_alone
    }

    /// Whether the transaction has operations, sent or not.
    pub fn has_operations(&self) -> bool {
        self.has_operations
    }

    /// An error if the transaction was lost.
    fn check_lost(&self) -> Result<()> {
        if self.is_lost {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        }
        Ok(())
    }

    fn transaction(&mut self) -> Result<&mut Transaction> {
        self.check_lost()?;
        if self.transaction.is_none() {
            let node = Arc::clone(&self.node);
            let transaction = self.cluster()?.as_async().begin().map_err(|error| node.failure(&error))?;
            self.node.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.presence.note(transaction.name());
            self.transaction = Some(transaction);
            self.committed = None;
            self.has_operations = false;
        }
        Ok(self.transaction.as_mut().expect("made just before"))
    }

    /// Marks the transaction as lost: the server has to roll it back before anything else is done. A statement that is
    /// committed in portions is not lost with one of them.
    fn lose(&mut self) {
        self.is_lost |= self.has_operations && !self.is_portioned;
        self.forget();
    }

    /// The number of the next operation: [`Session::roll_back_to`] undoes the operations from here on.
    pub fn next_number(&self) -> OperationNumber {
        self.transaction.as_ref().map_or(FIRST, Transaction::next_number)
    }

    /// Drops the transaction, which rolls it back.
    fn forget(&mut self) {
        self.transaction = None;
        self.has_operations = false;
        self.has_unlocks = false;
        self.has_changed = false;
        self.has_locked = false;
        self.portion = 0;
        self.pending.clear();
        self.images.clear();
        self.statement_start = FIRST;
    }

    /// The failure of a transaction that has ended.
    #[cold]
    fn lost(&mut self, error: &Error) -> Failure {
        let failure = match error.operation() {
            Some(number) => self.failed(number, error),
            None => self.node.failure(error),
        };
        self.lose();
        failure.doomed()
    }
}

fn wait<F: Future>(node: &Node, waiter: &Waiter, cluster: &Cluster, future: F) -> Result<F::Output> {
    let longest = node.wait_max_ms();
    ended(node, cluster, waiter.run(cluster, longest, future), longest)
}

fn ended<T>(node: &Node, cluster: &Cluster, ended: Ended<T>, longest_ms: u64) -> Result<T> {
    node.counters.round_trips.fetch_add(ended.is_round_trip.into(), Ordering::Relaxed);
    ended.output.map_err(|stop| match stop {
        Stop::Killed => Failure::killed(),
        Stop::TimedOut => node.timed_out(cluster, longest_ms),
    })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.node.counters.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
