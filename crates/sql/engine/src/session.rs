//! One connection of the server: its transaction, and what it has to write later.
//!
//! Changes are *defined* and sent together: with the next locking read, before another read, when the statement ends,
//! or, if the statement stands alone, with its commit; then a statement that writes is one round trip. An error of a
//! change of a longer transaction is its own alone; the server undoes the statement then. One of a statement that
//! stands alone rolls it back at once.
//!
//! *Changes that can wait.* What is done to rows that the transaction has locked, and has no unique index to pass, can
//! only fail for want of memory or because a node failed. Such changes wait beyond the end of their statement for the
//! next request or the commit: an `UPDATE` by primary key within a transaction is one round trip, that of its locking
//! read. From the end of the statement on nobody is left to answer for an error of theirs alone, so then it rolls back
//! the whole transaction, and is told by the statement that sent them.
//!
//! A transaction that is lost (a time-out, a deadlock, a kill, a node's failure) is *doomed*: the server is told to
//! roll it back as a whole. Until it has done so nothing more is read or changed, so that the rest of a statement, or
//! of a transaction, is never taken for all of it.
//!
//! *Rows that get another value.* An insert whose auto-increment value was generated may find a row there that another
//! SQL node's client has made with that value by hand, see [`crate::auto_increment`]. Then the rows that were collected
//! with it are written anew, with other values; nobody hears of the first attempt. So such inserts cost their batch the
//! transaction only when it is sent with the commit, and there is nothing else in it.
//!
//! *Changes that are overheard.* A statement that fires triggers or calls functions which use tables sends each of its
//! changes at once, and so do those: whoever handles errors in one of them hears of its own changes only, and such an
//! error is that of a single change, which alone is undone. Changes that can wait do so here, too, but their errors, of
//! which somebody else would hear, cost the transaction.

mod changes;
mod conditional;
mod endings;
mod numbers;
mod reads;

pub use conditional::{ChangeIf, Changed};
pub use reads::{Given, RowLock};

use crate::failure::{Failure, Result, ha};
use crate::fences::Fences;
use crate::holding_off::HoldingOff;
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
use vinga::{Error, ErrorCode, OperationNumber, Table, Transaction};

/// When a change is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At once; its error is its own alone.
    Now,
    /// Before the statement has ended.
    InStatement,
    /// Before the transaction has ended.
    InTransaction,
}

/// A change that was defined and not answered yet.
struct Pending {
    number: OperationNumber,
    when: When,
    table: Arc<OpenTable>,
    /// Of an insert: where its row is.
    image: Range<usize>,
    /// Whether its auto-increment value was generated.
    numbered: Numbered,
}

/// What is known of the auto-increment value of a row that is inserted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Numbered {
    /// There is none, or it was given.
    #[default]
    No,
    /// It was generated, and somebody knows it already.
    Fixed,
    /// It was generated, and may be another one.
    Free,
}

/// A row that could not be inserted because its key was there.
struct Duplicate {
    table: String,
    /// The server's key.
    key: usize,
    image: Vec<u8>,
}

/// See the head of this file.
pub struct Session {
    node: Arc<Node>,
    waiter: Arc<Waiter>,
    presence: Arc<Presence>,
    slot: usize,
    cluster: Option<Cluster>,
    transaction: Option<Transaction>,
    /// The transaction has sent operations, or has some to send: reads have to know of it.
    has_operations: bool,
    /// Locks are to be let go of with the next request.
    has_unlocks: bool,
    stands_alone: bool,
    /// The transaction was lost, and the server has not rolled back yet.
    is_lost: bool,
    /// The present statement commits in portions: its reads do not look for its changes.
    is_portioned: bool,
    /// Changes of the present statement do not wait for its end.
    is_at_once: bool,
    /// Changes of the present portion.
    portion: usize,
    statement_start: OperationNumber,
    pending: Vec<Pending>,
    images: Vec<u8>,
    failure: Failure,
    duplicate: Option<Duplicate>,
    numbers: numbers::Numbers,
    fences: Fences,
    holding_off: HoldingOff,
    /// The rows that the present statement has changed, if anybody has asked for that.
    changed_rows: Option<RowSet>,
}

/// Greater numbers of failures are Vinga's own, see `vinga_engine.h`.
const SERVER_NUMBER_MAX: i32 = 200;

/// The number of a transaction's first operation.
const FIRST: OperationNumber = OperationNumber(1);

impl Session {
    /// A session of a connection of the server, by its number.
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
            has_operations: false,
            has_unlocks: false,
            stands_alone: true,
            is_lost: false,
            is_portioned: false,
            is_at_once: false,
            portion: 0,
            statement_start: FIRST,
            pending: Vec::new(),
            images: Vec::new(),
            failure: Failure::new(0, ""),
            duplicate: None,
            numbers: numbers::Numbers::default(),
            fences: Fences::default(),
            holding_off: HoldingOff::default(),
            changed_rows: None,
        }
    }

    /// What all sessions share.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Which connection of the pool it uses.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The tables that only this session may change.
    pub fn fences(&mut self) -> &mut Fences {
        &mut self.fences
    }

    /// Who may end its waits.
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

    /// Remembers a failure; returns its number.
    #[cold]
    pub fn fail(&mut self, mut failure: Failure) -> i32 {
        failure.is_doomed |= self.has_operations && failure.ends_transactions();
        if failure.is_doomed {
            self.lose();
        }
        if failure.number == ErrorCode::SchemaBusy as i32 {
            self.waiter.pause(self.holding_off.once_more());
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

    /// Its connection.
    ///
    /// # Errors
    /// That no data node answers.
    #[inline]
    pub fn cluster(&mut self) -> Result<&Cluster> {
        if self.cluster.is_none() {
            let (slot, cluster) = self.node.cluster(self.slot, Some(&self.waiter))?;
            self.slot = slot;
            self.cluster = Some(cluster);
        }
        Ok(self.cluster.as_ref().expect("made just before"))
    }

    /// Runs a future of this session's connection, bounded.
    ///
    /// # Errors
    /// That it was killed, or took too long.
    pub fn wait<F: Future>(&mut self, future: F) -> Result<F::Output> {
        self.cluster()?;
        let cluster = self.cluster.as_ref().expect("made just before");
        wait(&self.node, &self.waiter, cluster, future)
    }

    /// A table by its name.
    ///
    /// # Errors
    /// `NO_SUCH_TABLE`, or why that is not known.
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

    /// A statement begins.
    pub fn begin_statement(&mut self, stands_alone: bool) {
        self.stands_alone = stands_alone;
        // What belonged to a statement that has ended does not concern this one.
        self.is_lost &= !stands_alone;
        self.is_portioned = false;
        self.is_at_once = false;
        self.duplicate = None;
        self.changed_rows = None;
        self.numbers = numbers::Numbers::default();
        self.statement_start = self.next_number();
    }

    /// The changes of the present statement are remembered from now on, for who keeps rows that it has read.
    pub fn remember_changes(&mut self) {
        self.changed_rows.get_or_insert_default();
    }

    /// The present statement has changed a row.
    #[inline]
    pub fn note_change(&mut self, row: impl FnOnce() -> RowName) {
        if let Some(changed) = &mut self.changed_rows {
            changed.insert(row());
        }
    }

    /// Whether the present statement has changed a row since [`Session::remember_changes`].
    pub fn has_changed(&self, row: RowName) -> bool {
        self.changed_rows.as_ref().is_some_and(|changed| changed.contains(&row))
    }

    /// No change of the present statement that may fail waits for its end: another engine could not undo it alone then,
    /// or the handler of a trigger would hear of it.
    pub fn send_at_once(&mut self) {
        self.is_at_once = true;
    }

    /// Whether the present statement is a transaction by itself.
    pub fn stands_alone(&self) -> bool {
        self.stands_alone
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
            self.has_operations = false;
        }
        Ok(self.transaction.as_mut().expect("made just before"))
    }

    /// The transaction is lost: the server has to roll back what it belongs to before anything else is done. What is
    /// committed in portions is not lost with one of them.
    fn lose(&mut self) {
        self.is_lost |= self.has_operations && !self.is_portioned;
        self.forget();
    }

    /// The number of the next operation: [`Session::roll_back_to`] undoes what comes from here on.
    pub fn next_number(&self) -> OperationNumber {
        self.transaction.as_ref().map_or(FIRST, Transaction::next_number)
    }

    /// Drops the transaction, which rolls it back.
    fn forget(&mut self) {
        self.transaction = None;
        self.has_operations = false;
        self.has_unlocks = false;
        self.portion = 0;
        self.pending.clear();
        self.images.clear();
        self.statement_start = FIRST;
    }

    /// The failure of a transaction that is over.
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
