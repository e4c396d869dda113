//! Values of auto-increment columns.
//!
//! Each table has a counter in the table `vinga.auto_increment`: the next unused value, under the table's birth (the
//! version with which its rows began), so a table that is emptied or recreated starts again. A table without a primary
//! key has a second counter, for its hidden key. A SQL node takes ranges from a counter: one update that adds to it and
//! one read of the sum, in one batch with their commit. It uses a range's values in its own memory, and fetches the
//! next range when half of one is used up, on another thread: no statement holds a lock while it fetches, and a
//! statement waits only if a whole range was used up within one round trip; ranges grow then. A node keeps its values
//! of a table as long as it runs, no matter who opens and closes the table, but not beyond a restart of all data nodes:
//! what they knew of the counter, and did not have on disk, they do not know any more ([`State::meet`]).
//!
//! The values of a statement that states its number of rows are consecutive: its client knows all of them by the first
//! (`LAST_INSERT_ID()`). The rest of a range is abandoned if it is too small for a statement and the next range does
//! not continue it, which happens where other SQL nodes take ranges too. Values that were taken are never given back,
//! as in InnoDB.
//!
//! # Values given explicitly
//! A value that a statement gives explicitly (in the row, by `SET INSERT_ID`, by an `UPDATE`, or in a replayed log) is
//! registered before its row is written, even if the row is not stored in the end:
//!
//! 1. In memory: this node generates no value up to it any more.
//! 2. At the data nodes: if the counter is lower it is moved behind the value, so ranges that are taken from then on
//!    begin behind it. Explicit values that follow each other closely move it ever less often, as each move also takes
//!    some of the following values for this node. These moves do not wait for the disk, as a crash that undoes them
//!    costs the rows, too; but before one of the values that were taken is generated the counter is brought there.
//!
//! One case remains: a value inside a range that *another* SQL node has taken before. That node is not notified: if it
//! checked whether its range is still valid, each of its statements would cost a round trip, for something that hardly
//! ever happens. It finds out from the row itself: a generated value is only ever used in a row that the data nodes
//! have accepted, and where the column is in a unique key they accept no row with an existing value. So no row is lost,
//! overwritten or mistaken for another one:
//!
//! - A generated value that meets an existing row is not reported to the statement as a duplicate. The node abandons
//!   the range ([`Counter::leave`]), takes the next one, which begins behind all given values, and writes the row
//!   again.
//! - A row that is sent at once (`IGNORE`, `REPLACE`, `ON DUPLICATE KEY UPDATE`, triggers) gets its new value in the
//!   plugin (`auto_increment.cc`), before the server learns of the first value. Rows that wait to be sent with others
//!   get theirs in the session ([`crate::session`]): the whole batch is written again with consecutive values, and the
//!   first of them is reported to the server, for `LAST_INSERT_ID()`, before it answers.
//! - Values that the server passes on as soon as a row is written can't be changed afterwards: with a binary log, and
//!   with `RETURNING`. In these cases a single row is sent at once. Several rows of one statement are sent together all
//!   the same; if they meet an existing row the statement fails with 1062 and is undone, and from then on this node
//!   sends such rows of the table one by one.
//!
//! Where the column is in no unique key, two rows with the same value are no error, and nothing is done about them.

mod counters;
pub mod gone;
mod ranges;

pub use counters::has_disk;
pub use ranges::ValueRequest;

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::session::Session;
use counters::Moved;
use ranges::Ranges;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;

/// Maximum number of values in a range.
const RANGE_MAX: u64 = 1 << 16;
/// How long a statement waits before it checks whether it was killed.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Approximate number of counters that are kept, in addition to those of open tables.
const KEPT_MAX: usize = 4096;

const NO_PANIC: &str = "nothing panics while it holds a counter";

/// The values that this node has of one counter.
#[derive(Default)]
struct State {
    ranges: Ranges,
    /// Size of the next range.
    size: u64,
    /// Values of the fetch that is under way, if there is one; 0 if it only brings the counter to the disk.
    fetching: Option<u64>,
    /// Number of fetches that have ended.
    fetches: u64,
    failure: Option<Failure>,
    /// The incarnation of the cluster that the ranges are of, and the one before it; 0 if there was none.
    incarnation: u64,
    earlier: u64,
}

impl State {
    /// Notes which incarnation of the cluster a connection knows, and forgets what is of the one before: its counter
    /// may be lower now, or belong to another table. Returns whether the ranges are of this one: a connection that has
    /// not noticed the restart yet knows the one before.
    fn meet(&mut self, incarnation: u64) -> bool {
        if ![0, self.earlier, self.incarnation].contains(&incarnation) {
            (self.earlier, self.incarnation) = (self.incarnation, incarnation);
            (self.ranges, self.size, self.failure) = (Ranges::default(), 0, None);
        }
        incarnation == self.incarnation
    }
}

/// The name of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The birth of the table.
    pub birth: u64,
    /// Whether its values are those of the hidden primary key.
    pub is_of_hidden_key: bool,
}

impl Name {
    /// The primary key of the counter's row.
    fn key(self) -> u64 {
        self.birth | u64::from(self.is_of_hidden_key) << 63
    }
}

/// One counter as this node knows it. The top of this file describes the rules.
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

    /// Takes consecutive values: the first, and how many. There are fewer than requested only at the end of the
    /// counter's values, and 0 if the first is greater than the column's maximum.
    ///
    /// # Errors
    /// If no values could be fetched, or not within the time for an answer.
    pub fn take(self: &Arc<Self>, session: &mut Session, request: &ValueRequest) -> Result<(u64, u64)> {
        let incarnation = session.cluster()?.incarnation();
        let node = &Arc::clone(session.node());
        let mut state = self.state.lock().expect(NO_PANIC);
        state.meet(incarnation);
        let (mut waits, began) = (0, Instant::now());
        // If a fetch of a smaller range is already under way, the statement waits for that one and for its own.
        let patience = if state.fetching.is_some_and(|values| values < request.span()) { 2 } else { 1 };
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
                if state.fetches > 0 && !state.ranges.is_unsaved() {
                    state.size = (state.size * 2).min(RANGE_MAX);
                }
            }
            self.fetch(&mut state, node, request);
            state = self.on_fetched.wait_timeout(state, LOOK_PAUSE).expect(NO_PANIC).0;
            if session.is_killed() {
                return Err(Failure::killed());
            }
            let longest = node.wait_max_ms();
            if began.elapsed() > Duration::from_millis(longest) && state.fetches == fetches_before {
                return Err(node.timed_out(session.cluster()?, longest).aside());
            }
        }
    }

    fn fetch(self: &Arc<Self>, state: &mut State, node: &Arc<Node>, request: &ValueRequest) {
        if state.fetching.is_some() {
            return;
        }
        state.size = state.size.max(node.prefetch());
        let is_unsaved = state.ranges.is_unsaved();
        let values = if is_unsaved { 0 } else { state.ranges.portion(request, state.size) };
        state.fetching = Some(values);
        node.fetcher.push(Arc::clone(self), values);
    }

    /// Takes the result of a fetch over a connection that knew this incarnation of the cluster when it began.
    fn take_over(&self, incarnation: u64, fetched: Result<(u64, u64)>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        let values = state.fetching.take();
        state.fetches += 1;
        state.failure = None;
        match fetched {
            // What is of an earlier one may be that of another table: it is fetched again.
            Ok(_) if !state.meet(incarnation) => {}
            Ok((_, end)) if values == Some(0) => state.ranges.save(end),
            Ok((begin, end)) => state.ranges.add(begin, end),
            Err(failure) => state.failure = Some(failure),
        }
        self.on_fetched.notify_all();
    }

    /// Registers a value that a statement gives explicitly: no value up to it is generated any more, here or from
    /// ranges that are taken from now on.
    ///
    /// # Errors
    /// If the counter could not be moved.
    pub fn use_value(&self, session: &mut Session, value: u64) -> Result<()> {
        loop {
            let incarnation = session.cluster()?.incarnation();
            let move_to = {
                let mut state = self.state.lock().expect(NO_PANIC);
                state.meet(incarnation);
                state.ranges.use_value(value)
            };
            let Some((next, slack)) = move_to else { return Ok(()) };
            let cluster = session.cluster()?.clone();
            let moved = counters::advance(&cluster, self.key, next, next.saturating_add(slack), false);
            let moved = session.wait_aside(moved)?;
            let moved = Self::moved(session, moved)?;
            let is_same = session.cluster()?.incarnation() == incarnation;
            let mut state = self.state.lock().expect(NO_PANIC);
            if !is_same || !state.meet(incarnation) {
                // The data nodes were restarted in the meantime, and may have lost that move.
                continue;
            }
            let slack_max = state.size.max(session.node().prefetch());
            match moved {
                Moved::To(end) | Moved::Made(end) => state.ranges.move_behind(next, end, slack_max),
                Moved::Was(there) => state.ranges.learn(there),
            }
            return Ok(());
        }
    }

    /// Makes the values begin at `next`, or further on: when this returns that is on the disk, as definitions are, and
    /// like these it is carried out though the session is killed.
    ///
    /// # Errors
    /// If the counter could not be moved.
    pub fn begin_at(&self, session: &mut Session, next: u64) -> Result<()> {
        let incarnation = session.cluster()?.incarnation();
        let cluster = session.cluster()?.clone();
        let moved = counters::advance(&cluster, self.key, next, next, true);
        let node = session.node();
        let moved = Self::moved(session, node.run_to_the_end(&cluster, node.change_max_ms(), moved)?)?;
        let (Moved::To(there) | Moved::Made(there) | Moved::Was(there)) = moved;
        let mut state = self.state.lock().expect(NO_PANIC);
        state.meet(incarnation);
        state.ranges.use_value(next.saturating_sub(1));
        state.ranges.learn(there);
        Ok(())
    }

    /// A counter was moved, by an attempt with this result.
    fn moved(session: &Session, moved: vinga::Result<Moved>) -> Result<Moved> {
        let node = session.node();
        let moved = moved.map_err(|error| counters::failure(&error, |error| node.failure(error)))?;
        let Moved::Made(there) = moved else { return Ok(moved) };
        // Its table may just have gone.
        node.sweeper.want();
        Ok(Moved::To(there))
    }

    /// Abandons the range of a generated value that met an existing row, as there may be more such rows.
    pub fn leave(&self, value: u64) {
        let mut state = self.state.lock().expect(NO_PANIC);
        if state.ranges.leave(value) {
            // There may be many of these rows, which were written without moving the counter.
            state.size = (state.size * 2).min(RANGE_MAX);
        }
        self.has_met_rows.store(true, Ordering::Relaxed);
    }

    /// Whether a generated value has met an existing row ([`Counter::leave`]).
    pub fn has_met_rows(&self) -> bool {
        self.has_met_rows.load(Ordering::Relaxed)
    }

    /// The next value as far as the data nodes know.
    ///
    /// # Errors
    /// If the counter could not be read.
    pub fn peek(&self, session: &mut Session) -> Result<u64> {
        let incarnation = session.cluster()?.incarnation();
        let (own, floor) = {
            let mut state = self.state.lock().expect(NO_PANIC);
            state.meet(incarnation);
            // The range that is being fetched may have left the counter but not arrived yet: then neither side has the
            // next value.
            while state.ranges.peek().is_none() && state.fetching.is_some() {
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
        let next = session.wait_aside(counters::read(&cluster, self.key))?;
        let next = next.map_err(|error| counters::failure(&error, |error| node.failure(error)))?;
        Ok(next.unwrap_or(1).max(floor))
    }
}

/// Fetches ranges for all tables, on some threads of its own.
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

    /// Ends the threads.
    pub fn stop(&self) {
        self.queue.lock().expect(NO_PANIC).is_stopping = true;
        self.on_push.notify_all();
    }

    /// The main function of each thread.
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
            let mut incarnation = 0;
            let fetched = node.cluster(0, None).and_then(|(_, cluster): (usize, Cluster)| {
                incarnation = cluster.incarnation();
                let taken = counters::take(&cluster, counter.key, count);
                node.run_to_the_end(&cluster, node.wait_max_ms(), taken)
                    .map_err(Failure::aside)?
                    .map_err(|error| counters::failure(&error, |error| node.failure(error)))
            });
            if let Ok((1, _)) = fetched {
                // The counter is a new one, and its table may just have gone.
                node.sweeper.want();
            }
            node.counters.auto_increment_fetches.fetch_add(1, Ordering::Relaxed);
            counter.take_over(incarnation, fetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_an_earlier_incarnation_of_the_cluster_are_not_used() {
        let (mut state, one) = (State::default(), ValueRequest::one());
        assert!(state.meet(7));
        state.ranges.add(1, 257);
        state.ranges.use_value(1000);
        state.ranges.learn(1001);
        assert!(state.meet(7));
        // The counter may be lower in the next one.
        assert!(state.meet(3));
        assert_eq!(state.ranges.take(&one), None);
        assert_eq!(state.ranges.use_value(1), Some((2, 0)), "it has to be moved again");
        state.ranges.add(2, 258);
        // Other connections notice it later.
        assert!(!state.meet(7) && !state.meet(0));
        assert_eq!(state.ranges.take(&one), Some((2, 1)));
        assert!(state.meet(3));
    }
}
