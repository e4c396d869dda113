//! Dropping a future leaves nothing behind: whatever it is, and at whatever moment.
//!
//! Futures are polled a few times and dropped, on this thread or another one, thousands of times, while others work on
//! the same rows. Then the data node is asked what is left of transactions, operations, locks and scans.

use crate::support::{assert_nothing_left, eventually, poll_and_drop, run, start_node};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use vinga::{
    Cluster, ColumnType, ErrorCode, Lock, NewTable, ReadBatch, Record, Table, Update, Value, WriteBatch,
};
use vinga::{InfoTable, blocking};

/// Rows that everybody reads and changes.
const SHARED: u64 = 8;
/// From here on rows that droppers insert in pairs: a row and its twin.
const PAIRS: u64 = 1_000_000;
const TWIN: u64 = 1_000_000_000;
const ROUNDS: u64 = 400;

fn row(id: u64, n: i64) -> Record {
    Record::new([("id", Value::from(id)), ("n", n.into())])
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drops futures, each at another moment; some on another thread, as an executor does that aborts a task.
struct Dropper {
    random: u64,
    elsewhere: Sender<Task>,
    ended: u64,
    dropped: u64,
}

impl Dropper {
    fn next(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % below
    }

    /// A future on its own.
    fn attempt<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let polls = 1 + self.next(4) as u32;
        let pause = Duration::from_micros(self.next(3) * self.next(120));
        let output = poll_and_drop(future, polls, pause);
        match output {
            Some(_) => self.ended += 1,
            None => self.dropped += 1,
        }
        output
    }

    /// A task that is begun here and dropped by another thread.
    fn abort(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        let mut task: Task = Box::pin(future);
        for _ in 0..1 + self.next(3) {
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                self.ended += 1;
                return;
            }
        }
        self.dropped += 1;
        self.elsewhere.send(task).expect("the other thread takes them to the end");
    }

    /// Everything that is no transaction.
    fn single_operations(&mut self, cluster: &Cluster, table: &Table, round: u64) {
        let id = self.next(SHARED);
        self.attempt(cluster.get(table, id));
        self.attempt(cluster.get_many(table, 0..SHARED));
        self.attempt(cluster.update(table, id, &Update::new().add("n", 1)));
        self.attempt(cluster.write(table, &row(500 + id, 0)));
        self.attempt(cluster.delete(table, 500 + id));
        self.attempt(cluster.tables());
        self.attempt(cluster.info(InfoTable::Pools));
        self.attempt(cluster.table("test.t"));
        if round.is_multiple_of(50) {
            let name = format!("test.dropped{round}");
            self.attempt(cluster.create_table(definition(&name)));
        }
        let mut reads = ReadBatch::new(table);
        (0..SHARED).for_each(|id| reads.push(id).unwrap());
        self.attempt(cluster.start_reads(reads).unwrap());
        let mut writes = WriteBatch::new();
        (0..SHARED).for_each(|id| writes.write(table, &row(600 + id, 1)).unwrap());
        self.attempt(cluster.start_writes(writes).unwrap());
    }

    fn transactions(&mut self, cluster: &Cluster, table: &Table, round: u64) {
        let (id, other) = (self.next(SHARED), self.next(SHARED));
        // Before the first batch; during it; before and during the second; with locks held or waited for.
        let mut tx = cluster.begin().unwrap();
        tx.update(table, id, &Update::new().add("n", 1)).unwrap();
        if self.attempt(tx.execute()).is_some() {
            self.attempt(tx.read_locked(table, other, Lock::Exclusive));
        } else {
            // Half a transaction is none.
            let error = run(tx.execute()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::TransactionAborted);
        }
        drop(tx);
        let mut tx = cluster.begin().unwrap();
        tx.delete(table, id).unwrap();
        drop(tx);
        let mut tx = cluster.begin().unwrap();
        self.attempt(tx.read_locked(table, id, Lock::Shared));
        let mut tx = cluster.begin().unwrap();
        tx.write(table, &row(700 + id, 1)).unwrap();
        self.attempt(tx.roll_back());
        // The outcome of a commit is unknown to who has dropped it, but decided: both rows or none.
        let pair = PAIRS + round;
        let mut tx = cluster.begin().unwrap();
        tx.insert(table, &row(pair, 0)).unwrap();
        if self.next(2) == 0 {
            let _ = run(tx.execute());
        }
        tx.insert(table, &row(TWIN + pair, 0)).unwrap();
        self.attempt(tx.commit());
        // A commit that was never begun is none.
        let mut tx = cluster.begin().unwrap();
        tx.insert(table, &row(2 * PAIRS + round, 0)).unwrap();
        drop(tx.commit());
        self.attempt(cluster.run(async |tx| {
            let read = tx.read_locked(table, id, Lock::Exclusive).await?.ok_or(ErrorCode::NoSuchRow)?;
            assert!(read.get("n").is_some());
            tx.update(table, id, &Update::new().add("n", 1)).map(drop)?;
            Err::<(), _>(ErrorCode::Overloaded.into())
        }));
    }

    fn scans(&mut self, cluster: &Cluster, table: &Table) {
        let mut scan = cluster.scan(table).batch_rows(1).rows().unwrap();
        let rows = self.next(4);
        self.attempt(scan.next());
        for _ in 0..rows {
            if let Some(row) = run(scan.next()) {
                row.unwrap();
            }
        }
        self.attempt(scan.next());
        drop(scan);
        self.attempt(cluster.scan(table).rows().unwrap().collect());
        let mut tx = cluster.begin().unwrap();
        tx.write(table, &row(800, 1)).unwrap();
        if let Some(Ok(mut scan)) = self.attempt(tx.scan(cluster.scan(table).batch_rows(2))) {
            // The transaction ends before its scan.
            if self.next(2) == 0 {
                drop(tx);
            }
            self.attempt(scan.next());
        }
    }

    fn tasks(&mut self, cluster: &Cluster, table: &Table) {
        let id = self.next(SHARED);
        let (own, rows) = (cluster.clone(), table.clone());
        self.abort(async move { drop(own.get(&rows, id).await) });
        let (own, rows) = (cluster.clone(), table.clone());
        self.abort(async move {
            let mut tx = own.begin().unwrap();
            tx.update(&rows, id, &Update::new().add("n", 1)).unwrap();
            if tx.execute().await.is_ok() && tx.read(&rows, id).await.is_ok() {
                let _ = tx.commit().await;
            }
        });
        let (own, rows) = (cluster.clone(), table.clone());
        self.abort(async move {
            let mut scan = own.scan(&rows).batch_rows(1).rows().unwrap();
            while let Some(Ok(_)) = scan.next().await {}
        });
    }
}

fn definition(name: &str) -> NewTable {
    NewTable::new(name)
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("n", ColumnType::Integer { bytes: 8, signed: true })
        .primary_key(&["id"])
}

/// Adds to all shared rows in one transaction, again and again, and says how often that was done.
fn work(address: &str, rows: u64, stops: &AtomicBool) -> u64 {
    let cluster = blocking::Cluster::connect(address).unwrap();
    let table = cluster.table("test.t").unwrap();
    let mut done = 0;
    while !stops.load(Ordering::Relaxed) {
        cluster
            .run(|tx| {
                for id in 0..rows {
                    tx.update(&table, id, &Update::new().add("n", 1))?;
                }
                tx.update(&table, 100, &Update::new().add("n", 1)).map(drop)
            })
            .unwrap();
        done += 1;
    }
    done
}

#[test]
fn nothing_is_left_behind() {
    let node = start_node();
    let observer = blocking::Cluster::connect(node.address()).unwrap();
    let table = observer.create_table(definition("test.t")).unwrap();
    (0..SHARED).chain([100]).for_each(|id| observer.insert(&table, &row(id, 0)).unwrap());
    let stops = AtomicBool::new(false);
    let (ended, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
    let done: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| work(node.address(), SHARED, &stops))).collect();
        let droppers: Vec<_> = (0..2)
            .map(|number| {
                let (node, ended, dropped) = (&node, &ended, &dropped);
                scope.spawn(move || {
                    let (elsewhere, tasks) = mpsc::channel::<Task>();
                    let graveyard = thread::spawn(move || tasks.into_iter().for_each(drop));
                    let mut dropper = Dropper { random: number, elsewhere, ended: 0, dropped: 0 };
                    let cluster = run(Cluster::connect(node.address())).unwrap();
                    let table = run(cluster.table("test.t")).unwrap();
                    for round in 0..ROUNDS {
                        let round = round * 2 + number;
                        dropper.single_operations(&cluster, &table, round);
                        dropper.transactions(&cluster, &table, round);
                        dropper.scans(&cluster, &table);
                        dropper.tasks(&cluster, &table);
                    }
                    ended.fetch_add(dropper.ended, Ordering::Relaxed);
                    dropped.fetch_add(dropper.dropped, Ordering::Relaxed);
                    drop(dropper);
                    graveyard.join().unwrap();
                    eventually("the client is at rest", || cluster.is_at_rest());
                })
            })
            .collect();
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
        stops.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_nothing_left(&observer);
    let (ended, dropped) = (ended.into_inner(), dropped.into_inner());
    assert!(ended > 500 && dropped > 5000, "{ended} have ended, {dropped} were dropped");
    assert!(done > 20, "others have worked meanwhile: {done} transactions");
    assert_eq!(observer.get(&table, 100).unwrap().unwrap()["n"], (done as i64).into());
    let mut committed = 0;
    for pair in PAIRS..PAIRS + 2 * ROUNDS {
        let rows = observer.get_many(&table, [pair, pair + TWIN, pair + PAIRS]).unwrap();
        assert_eq!(rows[0].is_some(), rows[1].is_some(), "both rows of pair {pair} or none");
        assert!(rows[2].is_none(), "a commit that was not begun is none");
        committed += u64::from(rows[0].is_some());
    }
    assert!(committed > 0, "dropped commits are decided");
}
