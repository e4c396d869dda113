//! Transfers between accounts, while data nodes fail: what was acknowledged can be counted afterwards.

use crate::support::HANG_GUARD;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, Lock, NewTable, Record, Table, Value};

/// Accounts of each thread. A transaction moves one from each to the next.
const ACCOUNTS: u64 = 6;
const THREADS: u64 = 4;

/// What a thread knows of its transactions.
#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    /// Committed or not.
    unknown: AtomicU64,
}

/// Accounts, and a row of each thread that counts its transfers.
pub struct Bank<'a> {
    cluster: &'a Cluster,
    table: Table,
    counts: [Counts; THREADS as usize],
    ends: AtomicBool,
    /// Errors of transactions that were rolled back, but for deadlocks, which they make themselves.
    failures: Mutex<Vec<vinga::Error>>,
    /// For messages: which round of which test.
    context: &'a str,
}

impl<'a> Bank<'a> {
    /// Makes the table and its rows.
    pub fn new(cluster: &'a Cluster, context: &'a str) -> Self {
        let column = ColumnType::Integer { bytes: 8, signed: true };
        let table = NewTable::new("test.accounts").column("id", column).column("balance", column);
        let table = cluster.create_table(table.primary_key(&["id"])).expect("a table can be created");
        for id in 0..ACCOUNTS + THREADS {
            cluster.insert(&table, &row(id, 0)).expect("it is new");
        }
        let (counts, ends, failures) = Default::default();
        Bank { cluster, table, counts, ends, failures, context }
    }

    /// Panics if a transaction was rolled back for another reason than a deadlock, or its outcome is not known.
    pub fn check_that_none_has_failed(&self) {
        let failures = self.failures.lock().expect("nobody panics with it");
        assert!(failures.is_empty(), "{}: {failures:?}", self.context);
        let unknown: u64 = self.counts.iter().map(|counts| counts.unknown.load(Ordering::Relaxed)).sum();
        assert_eq!(unknown, 0, "{}", self.context);
    }

    /// Transfers by all threads, for as long as this takes.
    pub fn run(&self, during: impl FnOnce()) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || self.work(thread));
            }
            // Also if it panics: the scope waits for its threads.
            let _end = End(&self.ends);
            during();
        });
    }

    fn work(&self, thread: u64) {
        let counts = &self.counts[thread as usize];
        for number in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            match self.transfer(thread, number) {
                Ok(()) => counts.acknowledged.fetch_add(1, Ordering::Relaxed),
                Err(why) if why.code() == ErrorCode::UnknownOutcome => {
                    counts.unknown.fetch_add(1, Ordering::Relaxed)
                }
                Err(why) => {
                    assert!(why.is_retryable(), "{}: {why}", self.context);
                    if why.code() != ErrorCode::Deadlock {
                        self.failures.lock().expect("nobody panics with it").push(why);
                    }
                    0
                }
            };
        }
    }

    /// Moves one from an account to the next, and counts it in the thread's own row, in one transaction.
    fn transfer(&self, thread: u64, number: u64) -> vinga::Result<()> {
        let from = number % ACCOUNTS;
        let to = (from + 1) % ACCOUNTS;
        let own = ACCOUNTS + thread;
        let mut transaction = self.cluster.begin()?;
        // In order of the ids, so that there are few deadlocks.
        let mut ids = [from, to, own];
        ids.sort_unstable();
        for id in ids {
            let found: Option<Record> = transaction.read_locked(&self.table, id as i64, Lock::Exclusive)?;
            let change = if id == from { -1 } else { 1 };
            transaction.write(&self.table, &row(id, balance(&found.expect("it was made")) + change))?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Transfers that were acknowledged, of all threads.
    pub fn done(&self) -> u64 {
        self.counts.iter().map(|one| one.acknowledged.load(Ordering::Relaxed)).sum()
    }

    /// Waits for so many more.
    pub fn wait_for(&self, more: u64) {
        let enough = self.done() + more;
        self.wait_until(|| self.done() >= enough);
    }

    /// Waits until something is so.
    pub fn wait_until(&self, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < HANG_GUARD, "{}: this takes too long", self.context);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The sum is what it was, and each thread has as many transfers as it was acknowledged, or that may have happened.
    pub fn check(&self) {
        let ids = (0..ACCOUNTS + THREADS).map(|id| id as i64);
        let all: Vec<Option<Record>> = self.cluster.get_many(&self.table, ids).expect("the others answer");
        let balances: Vec<i64> =
            all.iter().map(|found| balance(found.as_ref().expect("it is there"))).collect();
        let (accounts, own) = balances.split_at(ACCOUNTS as usize);
        assert_eq!(accounts.iter().sum::<i64>(), 0, "{}: {balances:?}", self.context);
        for (thread, (&own, counts)) in own.iter().zip(&self.counts).enumerate() {
            let acknowledged = counts.acknowledged.load(Ordering::Relaxed) as i64;
            let unknown = counts.unknown.load(Ordering::Relaxed) as i64;
            let possible = acknowledged..=acknowledged + unknown;
            assert!(possible.contains(&own), "{}: thread {thread} has {own} of {possible:?}", self.context);
        }
    }
}

/// Ends the threads when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn row(id: u64, balance: i64) -> Record {
    Record::new([("id", Value::from(id as i64)), ("balance", Value::from(balance))])
}

fn balance(record: &Record) -> i64 {
    match record.get("balance") {
        Some(Value::Int(balance)) => *balance,
        other => panic!("a balance is {other:?}"),
    }
}
