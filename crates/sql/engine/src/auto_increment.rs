//! Values of auto-increment columns.
//!
//! Each table has a counter in the table `vinga.auto_increment`: the next value that nobody has, under the table's
//! birth (the version with which its rows began), so a table that is emptied or made anew begins anew. A table without
//! a primary key has a second one, for its hidden key. A SQL node takes ranges from a counter: one update that adds to
//! it and one read of the sum, in one batch with their commit. It uses a range's values in its own memory, and fetches
//! the next range when half of one is used up, on a thread of its own: no statement holds a lock while it fetches, and
//! one waits only if a whole range was used up within one round trip; ranges grow then. What a node has of a table's
//! values it keeps as long as it runs, whoever opens and closes the table.
//!
//! The values of a statement that says how many rows it has follow each other: its client knows all of them by the
//! first (`LAST_INSERT_ID()`). What a range has left is let go if it is less than that and the next one does not
//! continue it, which it does not where other SQL nodes take ranges, too. Nothing that was taken is given back, as in
//! InnoDB.
//!
//! # Values that are given by hand
//! A value that a statement gives (in the row, by `SET INSERT_ID`, by an `UPDATE`, or that a log replays) is told
//! before its row is written, whatever becomes of the row:
//!
//! 1. In memory: this node gives out no value up to it any more.
//! 2. At the data nodes: the counter is moved behind it if it is lower, so ranges that are taken from then on begin
//!    behind it. Values that follow each other closely move it ever less often, as some beyond are taken for this node
//!    each time.
//!
//! What is left is a value inside a range that *another* SQL node has taken before. That node is not told: to ask
//! whether its range still holds would cost each of its statements a round trip, for something that hardly ever
//! happens. It finds out by the row itself: a generated value is only ever in a row that the data nodes have accepted,
//! and where the column is in a unique key they accept none whose value is there. So no row is lost, overwritten or
//! taken for another one:
//!
//! - A generated value that meets a row is no duplicate that the statement hears of. The node leaves the range behind
//!   ([`Counter::leave`]), takes the next one, which begins behind all that was given, and writes the row once more.
//! - A row that is sent at once (`IGNORE`, `REPLACE`, `ON DUPLICATE KEY UPDATE`, triggers) gets its other value in the
//!   plugin (`auto_increment.cc`), before the server hears of the first. Rows that wait to be sent with others get
//!   theirs in the session ([`crate::session`]): the whole batch is written anew with values that follow each other,
//!   and the server is told the first one, for `LAST_INSERT_ID()`, before it answers.
//! - Values that the server passes on as soon as a row is written can't be changed afterwards: with a binary log, and
//!   with `RETURNING`. There a single row is sent at once. Several rows of one statement are sent together all the
//!   same; if they meet a row the statement fails with 1062, nothing of it stays, and from then on this node sends such
//!   rows of the table one by one.
//!
//! Where the column is in no unique key nothing fails if two rows have the same value, and nothing is done about it.

mod counters;
mod ranges;

pub use ranges::ValueRequest;

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::session::Session;
use counters::Moved;
use ranges::Ranges;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use vinga::blocking::Cluster;

/// Values of a range, at most.
const RANGE_MAX: u64 = 1 << 16;
/// How long a statement waits before it looks whether it was killed.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Counters that are kept, about, beside those of open tables.
const KEPT_MAX: usize = 4096;

const NO_PANIC: &str = "nothing panics while it holds a counter";

/// What this node has of one counter.
#[derive(Default)]
struct State {
    ranges: Ranges,
    /// Size of the next range.
    size: u64,
    /// Values of the fetch that is under way; 0 if there is none.
    fetching: u64,
    /// Fetches that have ended.
    fetches: u64,
    failure: Option<Failure>,
}

/// A counter's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The incarnation of the cluster: in the next one births begin anew.
    pub incarnation: u64,
    /// Of the table.
    pub birth: u64,
    /// Whether its values are those of the hidden primary key.
    pub is_of_hidden_key: bool,
}

impl Name {
    /// The key of its row.
    fn key(self) -> u64 {
        self.birth | u64::from(self.is_of_hidden_key) << 63
    }
}

/// A counter, as this node has it. See the head of this file.
pub struct Counter {
    key: u64,
    state: Mutex<State>,
    on_fetched: Condvar,
    has_met_rows: AtomicBool,
}

impl Counter {
    /// The counter with a name.
    pub fn of(node: &Node, name: Name) -> Arc<Self> {
        node.fetcher.counter(name)
    }

    fn new(key: u64) -> Self {
        Counter {
            key,
            state: Mutex::default(),
            on_fetched: Condvar::new(),
            has_met_rows: AtomicBool::new(false),
        }
    }

    /// Takes values in a row: the first, and how many, which is less only for the last values of all, and 0 if the
    /// first is greater than the column's greatest.
    ///
    /// # Errors
    /// Why none could be fetched.
    pub fn take(self: &Arc<Self>, session: &Session, request: &ValueRequest) -> Result<(u64, u64)> {
        let node = session.node();
        let mut state = self.state.lock().expect(NO_PANIC);
        let mut waits = 0;
        // Who meets the fetch of a smaller range waits for that one, and for its own.
        let patience = if (1..request.span()).contains(&state.fetching) { 2 } else { 1 };
        let mut fetches_before = state.fetches;
        loop {
            if let Some(taken) = state.ranges.take(request) {
                if state.ranges.is_half_used(request) {
                    self.fetch(&mut state, node, request);
                }
                return Ok(taken);
            }
            if waits > 0 && state.fetches > fetches_before {
                if let Some(failure) = state.failure.clone() {
                    return Err(failure);
                }
                if waits == patience {
                    node.counters.auto_increment_long_waits.fetch_add(1, Ordering::Relaxed);
                }
                waits += 1;
                fetches_before = state.fetches;
            }
            if waits == 0 {
                waits = 1;
                node.counters.auto_increment_waits.fetch_add(1, Ordering::Relaxed);
                if state.fetches > 0 {
                    state.size = (state.size * 2).min(RANGE_MAX);
                }
            }
            self.fetch(&mut state, node, request);
            state = self.on_fetched.wait_timeout(state, LOOK_PAUSE).expect(NO_PANIC).0;
            if session.is_killed() {
                return Err(Failure::killed());
            }
        }
    }

    fn fetch(self: &Arc<Self>, state: &mut State, node: &Arc<Node>, request: &ValueRequest) {
        if state.fetching > 0 {
            return;
        }
        state.size = state.size.max(node.prefetch());
        state.fetching = state.ranges.portion(request, state.size);
        node.fetcher.push(Arc::clone(self), state.fetching);
    }

    fn take_over(&self, fetched: Result<(u64, u64)>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        state.fetching = 0;
        state.fetches += 1;
        match fetched {
            Ok((begin, end)) => {
                state.failure = None;
                state.ranges.add(begin, end);
            }
            Err(failure) => state.failure = Some(failure),
        }
        self.on_fetched.notify_all();
    }

    /// A statement gives this value: no value up to it is given out any more, here or from ranges that are taken from
    /// now on.
    ///
    /// # Errors
    /// Why the counter could not be moved.
    pub fn use_value(&self, session: &mut Session, value: u64) -> Result<()> {
        let move_to = self.state.lock().expect(NO_PANIC).ranges.use_value(value);
        let Some((next, slack)) = move_to else { return Ok(()) };
        let moved = self.advance(session, next, next.saturating_add(slack))?;
        let mut state = self.state.lock().expect(NO_PANIC);
        let slack_max = state.size.max(session.node().prefetch());
        match moved {
            Moved::To(end) => state.ranges.move_behind(next, end, slack_max),
            Moved::Was(there) => state.ranges.learn(there),
        }
        Ok(())
    }

    /// Values begin here, or further on.
    ///
    /// # Errors
    /// Why the counter could not be moved.
    pub fn begin_at(&self, session: &mut Session, next: u64) -> Result<()> {
        let (Moved::To(there) | Moved::Was(there)) = self.advance(session, next, next)?;
        let mut state = self.state.lock().expect(NO_PANIC);
        state.ranges.use_value(next.saturating_sub(1));
        state.ranges.learn(there);
        Ok(())
    }

    fn advance(&self, session: &mut Session, next: u64, end: u64) -> Result<Moved> {
        let node = Arc::clone(session.node());
        let moved = counters::advance(session.cluster()?, self.key, next, end);
        moved.map_err(|error| counters::failure(&error, |error| node.failure(error)))
    }

    /// A generated value met a row that was there: leaves the range that has it, as there may be more of them.
    pub fn leave(&self, value: u64) {
        let mut state = self.state.lock().expect(NO_PANIC);
        if state.ranges.leave(value) {
            // Who made these rows without a word to the counter may have made many.
            state.size = (state.size * 2).min(RANGE_MAX);
        }
        self.has_met_rows.store(true, Ordering::Relaxed);
    }

    /// Whether that has happened.
    pub fn has_met_rows(&self) -> bool {
        self.has_met_rows.load(Ordering::Relaxed)
    }

    /// What the next value would be, as far as the data nodes know.
    ///
    /// # Errors
    /// Why that could not be read.
    pub fn peek(&self, session: &mut Session) -> Result<u64> {
        let (own, floor) = {
            let mut state = self.state.lock().expect(NO_PANIC);
            // What is being fetched may have left the counter and not come here: then neither has the next value.
            while state.ranges.peek().is_none() && state.fetching > 0 {
                state = self.on_fetched.wait_timeout(state, LOOK_PAUSE).expect(NO_PANIC).0;
                if session.is_killed() {
                    return Err(Failure::killed());
                }
            }
            (state.ranges.peek(), state.ranges.floor())
        };
        if let Some(next) = own {
            return Ok(next);
        }
        let node = Arc::clone(session.node());
        let cluster = session.cluster()?.clone();
        let next = counters::read(&cluster, self.key);
        let next = next.map_err(|error| counters::failure(&error, |error| node.failure(error)))?;
        Ok(next.unwrap_or(1).max(floor))
    }
}

/// Fetches ranges for all tables, one after the other, on a thread of its own.
#[derive(Default)]
pub struct Fetcher {
    queue: Mutex<Queue>,
    on_push: Condvar,
    counters: Mutex<HashMap<Name, Arc<Counter>>>,
}

#[derive(Default)]
struct Queue {
    wanted: VecDeque<(Arc<Counter>, u64)>,
    is_stopping: bool,
}

impl Fetcher {
    fn counter(&self, name: Name) -> Arc<Counter> {
        let mut counters = self.counters.lock().expect(NO_PANIC);
        if counters.len() >= KEPT_MAX && !counters.contains_key(&name) {
            counters.retain(|_, counter| Arc::strong_count(counter) > 1);
        }
        Arc::clone(counters.entry(name).or_insert_with(|| Arc::new(Counter::new(name.key()))))
    }

    fn push(&self, counter: Arc<Counter>, count: u64) {
        self.queue.lock().expect(NO_PANIC).wanted.push_back((counter, count));
        self.on_push.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.queue.lock().expect(NO_PANIC).is_stopping = true;
        self.on_push.notify_one();
    }

    /// What the thread does.
    pub fn run(&self, node: &Arc<Node>) {
        loop {
            let mut queue = self.queue.lock().expect(NO_PANIC);
            let (counter, count) = loop {
                if queue.is_stopping {
                    return;
                }
                match queue.wanted.pop_front() {
                    Some(wanted) => break wanted,
                    None => queue = self.on_push.wait(queue).expect(NO_PANIC),
                }
            };
            drop(queue);
            let fetched = node.cluster(0, None).and_then(|(_, cluster): (usize, Cluster)| {
                counters::take(&cluster, counter.key, count)
                    .map_err(|error| counters::failure(&error, |error| node.failure(error)))
            });
            node.counters.auto_increment_fetches.fetch_add(1, Ordering::Relaxed);
            counter.take_over(fetched);
        }
    }
}
