//! Values of auto-increment columns.
//!
//! Each table has a counter in the table `vinga.auto_increment`: the next value that nobody has, under the table's birth
//! (the version with which its rows began), so a table that is emptied or made anew begins anew. A SQL node takes ranges
//! from it: one update that adds to the counter and one read of the sum, in the train of one commit. It uses a range's
//! values in its own memory, and fetches the next range when half of one is used up, on a thread of its own: no statement
//! holds a lock while it fetches, and one waits only if a whole range was used up within one round trip; ranges grow then.
//!
//! The values of a statement that says how many rows it has follow each other: its client knows all of them by the first
//! (`LAST_INSERT_ID()`). What a range has left is let go if it is less than that and the next one does not continue it,
//! which it does not where other SQL nodes take ranges, too.
//!
//! A value that a statement gives explicitly moves the counter beyond it. Ranges that other SQL nodes hold stay theirs, so
//! their values may be lower.

use crate::failure::{Failure, Result, ha};
use crate::holding_off::HoldingOff;
use crate::node::Node;
use crate::session::Session;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, Lock, NewTable, Record, Table, Update, Value};

/// The table of the counters.
const TABLE: &str = "vinga.auto_increment";
/// Values of a range, at most.
const RANGE_MAX: u64 = 1 << 16;
/// How often something is tried when others move the counter at the same moment.
const ATTEMPTS_MAX: u32 = 20;
/// How long a statement waits before it looks whether it was killed.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

const NO_PANIC: &str = "nothing panics while it holds a counter";

/// What this node has of one table's values.
#[derive(Default)]
struct State {
    /// Values from `next` below `end` are ours.
    next: u64,
    end: u64,
    /// The range behind it, if it has been fetched.
    spare: Option<(u64, u64)>,
    /// The counter in the data nodes is at least this.
    known: u64,
    /// Behind all values that statements have given: a range that was on its way then is used from here on.
    floor: u64,
    /// Size of the next range.
    size: u64,
    /// Values of the fetch that is under way; 0 if there is none.
    fetching: u64,
    /// The counter is so near to its end that it gives less than was asked for.
    is_ending: bool,
    /// Fetches that have ended.
    fetches: u64,
    failure: Option<Failure>,
}

impl State {
    /// The first of so many values that follow each other, or the last ones of all.
    fn take(&mut self, wanted: u64) -> Option<u64> {
        while self.end - self.next < wanted
            && let Some((begin, end)) = self.spare.take()
        {
            match begin == self.end {
                true => self.end = end,
                false => (self.next, self.end) = (begin, end),
            }
        }
        let is_enough = self.end - self.next >= wanted || (self.is_ending && self.next < self.end);
        is_enough.then_some(self.next)
    }
}

/// The values of one open table. See the head of this file.
pub struct Counter {
    birth: u64,
    /// The first value of all.
    first: u64,
    state: Mutex<State>,
    on_fetched: Condvar,
}

impl Counter {
    /// The counter of a table of this birth.
    pub fn new(birth: u64) -> Self {
        Counter { birth, first: 1, state: Mutex::default(), on_fetched: Condvar::new() }
    }

    /// Takes so many values in a row: the first, and how many, which is less only for the last values of all.
    ///
    /// # Errors
    /// Why none could be fetched.
    pub fn take(self: &Arc<Self>, session: &Session, wanted: u64) -> Result<(u64, u64)> {
        let node = session.node();
        let wanted = wanted.max(1);
        let mut state = self.state.lock().expect(NO_PANIC);
        let mut waits = 0;
        // Who meets the fetch of a smaller range waits for that one, and for its own.
        let patience = if (1..wanted).contains(&state.fetching) { 2 } else { 1 };
        let mut fetches_before = state.fetches;
        loop {
            if let Some(first) = state.take(wanted) {
                let count = wanted.min(state.end - first);
                state.next = first + count;
                if state.spare.is_none() && (state.end - state.next) * 2 < state.size {
                    self.fetch(&mut state, node, wanted);
                }
                return Ok((first, count));
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
            self.fetch(&mut state, node, wanted);
            state = self.on_fetched.wait_timeout(state, LOOK_PAUSE).expect(NO_PANIC).0;
            if session.is_killed() {
                return Err(Failure::killed());
            }
        }
    }

    /// Values that were taken and are not used. They are given to others if nobody has taken any behind them.
    pub fn give_back(&self, first: u64, count: u64) {
        let mut state = self.state.lock().expect(NO_PANIC);
        if state.next == first + count {
            state.next = first;
        }
    }

    fn fetch(self: &Arc<Self>, state: &mut State, node: &Arc<Node>, wanted: u64) {
        if state.fetching > 0 {
            return;
        }
        state.size = state.size.max(node.prefetch());
        state.fetching = state.size.max(wanted);
        node.fetcher.push(Arc::clone(self), state.fetching);
    }

    fn take_over(&self, fetched: Result<(u64, u64)>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        let asked = std::mem::take(&mut state.fetching);
        state.fetches += 1;
        match fetched {
            Ok((begin, end)) => {
                state.failure = None;
                state.is_ending = end - begin < asked;
                // An explicit value may have overtaken it.
                let begin = begin.max(self.first).max(state.floor).min(end);
                state.known = state.known.max(end);
                if state.next < state.end {
                    state.spare = Some((begin, end));
                } else {
                    (state.next, state.end) = (begin, end);
                }
            }
            Err(failure) => state.failure = Some(failure),
        }
        self.on_fetched.notify_all();
    }

    /// A row with this value was given: later values of this node are greater.
    ///
    /// # Errors
    /// Why the counter could not be moved.
    pub fn use_value(&self, session: &mut Session, value: u64) -> Result<()> {
        if value == u64::MAX {
            return Ok(());
        }
        let next = value + 1;
        {
            let mut state = self.state.lock().expect(NO_PANIC);
            state.floor = state.floor.max(next);
            if state.next <= value && value < state.end {
                state.next = next;
            } else if value >= state.end {
                state.next = state.end;
            }
            match state.spare {
                Some((begin, end)) if begin <= value && value < end => state.spare = Some((next, end)),
                Some((_, end)) if value >= end => state.spare = None,
                _ => {}
            }
            if next <= state.known {
                return Ok(());
            }
        }
        self.move_to(session, next)
    }

    /// Values from now on begin with this one, if it is not lower than the counter.
    ///
    /// # Errors
    /// Why the counter could not be moved.
    pub fn move_to(&self, session: &mut Session, next: u64) -> Result<()> {
        let node = Arc::clone(session.node());
        let cluster = session.cluster()?.clone();
        advance(&cluster, self.birth, next).map_err(|error| node.failure(&error))?;
        let mut state = self.state.lock().expect(NO_PANIC);
        state.known = state.known.max(next);
        Ok(())
    }

    /// What the next value would be, as far as the data nodes know.
    ///
    /// # Errors
    /// Why that could not be read.
    pub fn peek(&self, session: &mut Session) -> Result<u64> {
        {
            let state = self.state.lock().expect(NO_PANIC);
            if state.next < state.end {
                return Ok(state.next);
            }
        }
        let node = Arc::clone(session.node());
        let cluster = session.cluster()?.clone();
        let row = counters(&cluster).and_then(|table| cluster.get(&table, self.birth));
        match row.map_err(|error| node.failure(&error))? {
            Some(row) => number(&row),
            None => Ok(self.first),
        }
    }
}

fn number(row: &Record) -> Result<u64> {
    match row.get("next") {
        Some(Value::UInt(next)) => Ok(*next),
        _ => Err(Failure::new(ha::AUTO_INCREMENT_READ_FAILED, format!("{TABLE} is not as it should be"))),
    }
}

/// Attempts at something that others do at the same moment, with a pause between two of them that grows: who tries again at
/// once mostly meets the same.
#[derive(Default)]
struct Attempts {
    made: u32,
    holding_off: HoldingOff,
}

impl Attempts {
    /// One has failed: pauses before the next.
    ///
    /// # Errors
    /// This error, if it was the last one.
    fn once_more(&mut self, error: vinga::Error) -> vinga::Result<()> {
        self.made += 1;
        if self.made == ATTEMPTS_MAX {
            return Err(error);
        }
        thread::sleep(self.holding_off.once_more());
        Ok(())
    }
}

/// The table of the counters, which is made by whoever needs it first.
fn counters(cluster: &Cluster) -> vinga::Result<Table> {
    const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: false };
    let mut attempts = Attempts::default();
    loop {
        match cluster.table(TABLE) {
            Err(error) if error.code() == ErrorCode::NoSuchTable => {}
            there => return there,
        }
        let table =
            NewTable::new(TABLE).column("birth", BIGINT).column("next", BIGINT).primary_key(&["birth"]);
        match cluster.create_table(table) {
            Err(error) if matches!(error.code(), ErrorCode::TableExists | ErrorCode::SchemaBusy) => {
                attempts.once_more(error)?;
            }
            made => return made,
        }
    }
}

/// Takes a range from a counter.
fn fetch(cluster: &Cluster, birth: u64, first: u64, count: u64) -> vinga::Result<(u64, u64)> {
    let table = counters(cluster)?;
    let mut attempts = Attempts::default();
    loop {
        let mut transaction = cluster.begin()?;
        transaction.update(&table, birth, &Update::new().add("next", count))?;
        let reading = transaction.define_read(&table, birth, Lock::Exclusive)?;
        let error = match transaction.commit() {
            Ok(committed) => {
                let row = committed.row(&reading)?.ok_or(ErrorCode::NoSuchRow)?;
                match row.get("next") {
                    Some(Value::UInt(end)) => return Ok((end - count, *end)),
                    _ => return Err(ErrorCode::BadRow.into()),
                }
            }
            Err(error) => error,
        };
        if error.code() == ErrorCode::NoSuchRow {
            match cluster.insert(&table, &[("birth", birth), ("next", first + count)]) {
                Ok(()) => return Ok((first, first + count)),
                Err(error) if error.code() == ErrorCode::DuplicateKey => {}
                Err(error) => return Err(error),
            }
        } else if error.code() == ErrorCode::NumericOverflow && count > 1 {
            // The last values of all come one by one.
            return fetch(cluster, birth, first, 1);
        } else if !error.is_retryable() || error.code() == ErrorCode::ClusterFailure {
            return Err(error);
        }
        attempts.once_more(error)?;
    }
}

/// Why there are no more values.
fn failure(node: &Node, error: &vinga::Error) -> Failure {
    match error.code() {
        ErrorCode::NumericOverflow => Failure::new(ha::AUTO_INCREMENT_READ_FAILED, "all values are used up"),
        _ => node.failure(error),
    }
}

/// Moves a counter up to `next`, if it is lower.
fn advance(cluster: &Cluster, birth: u64, next: u64) -> vinga::Result<()> {
    let table = counters(cluster)?;
    let mut attempts = Attempts::default();
    loop {
        let update = Update::new().when("next", "<", next)?.set("next", next);
        let error = match cluster.update(&table, birth, &update) {
            Ok(()) => return Ok(()),
            Err(error) if error.code() == ErrorCode::ConditionFailed => return Ok(()),
            Err(error) => error,
        };
        if error.code() == ErrorCode::NoSuchRow {
            match cluster.insert(&table, &[("birth", birth), ("next", next)]) {
                Ok(()) => return Ok(()),
                Err(error) if error.code() == ErrorCode::DuplicateKey => {}
                Err(error) => return Err(error),
            }
        } else if !error.is_retryable() || error.code() == ErrorCode::ClusterFailure {
            return Err(error);
        }
        attempts.once_more(error)?;
    }
}

/// Fetches ranges for all tables, one after the other, on a thread of its own.
#[derive(Default)]
pub struct Fetcher {
    queue: Mutex<Queue>,
    on_push: Condvar,
}

#[derive(Default)]
struct Queue {
    wanted: VecDeque<(Arc<Counter>, u64)>,
    is_stopping: bool,
}

impl Fetcher {
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
            let fetched = node.cluster(0, None).and_then(|(_, cluster)| {
                fetch(&cluster, counter.birth, counter.first, count).map_err(|error| failure(node, &error))
            });
            node.counters.auto_increment_fetches.fetch_add(1, Ordering::Relaxed);
            counter.take_over(fetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn attempts_end_and_have_pauses_between_them() {
        let (began, mut attempts) = (Instant::now(), Attempts::default());
        let mut made = 1;
        let error = loop {
            match attempts.once_more(ErrorCode::LockTimeout.into()) {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), ErrorCode::LockTimeout);
        assert_eq!(made, ATTEMPTS_MAX);
        assert!(began.elapsed() >= Duration::from_millis(1 + 2 + 4 + 8 + 16 + 14 * 20), "there were pauses");
    }
}
