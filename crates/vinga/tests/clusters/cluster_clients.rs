//! Clients at work while one of several data nodes dies, each a process: what is repeated needs no care of theirs.

use crate::support::HANG_GUARD;
use crate::support::folder::{Folder, said};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{ColumnType, Error, ErrorClass, NewTable, Record, Table, Update, Value};
use vinga_runtime::node_folder::NodeFolder;

const ROWS: u64 = 500;
const WORKERS: u64 = 3;
/// Operations of each worker before the death, and after it.
const ENOUGH: u64 = 300;

fn up(folder: &Folder) {
    let (ok, text) = said(
        folder
            .command("up")
            .args(["--data-nodes", "2", "--replicas", "2", "--port", "0", "--set", "DataMemory=64M"])
            .args(["--set", "HeartbeatIntervalDbDb=5000"])
            .output(),
    );
    assert!(ok, "{text}");
}

fn table(cluster: &Cluster) -> Table {
    let integer = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", integer).column("v", integer).primary_key(&["id"]);
    let table = cluster.create_table(definition).expect("a table can be created");
    let rows = (0..ROWS).map(|id| Record::new([("id", Value::from(id)), ("v", Value::from(0u64))]));
    let rows: Vec<Record> = rows.collect();
    cluster.insert_many(&table, &rows).expect("they are new");
    table
}

/// What workers have done.
#[derive(Default)]
struct Done {
    /// Operations of each that have ended.
    operations: [AtomicU64; WORKERS as usize],
    /// Increments that were confirmed.
    increments: AtomicU64,
    /// Increments of which nobody knows.
    unknown: AtomicU64,
    stops: AtomicBool,
}

impl Done {
    fn wait_until_all_have(&self, more: u64) {
        let begun = Instant::now();
        let from: Vec<u64> = self.operations.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        while !self.operations.iter().zip(&from).all(|(now, from)| now.load(Ordering::Relaxed) >= from + more)
        {
            assert!(begun.elapsed() < HANG_GUARD, "workers go on");
            thread::yield_now();
        }
    }

    /// Reads, increments a row by itself, and increments one in a transaction of several batches, in turn.
    fn work(&self, worker: u64, cluster: &Cluster, table: &Table) -> Vec<Error> {
        let mut failed = Vec::new();
        for round in 0.. {
            if self.stops.load(Ordering::Relaxed) {
                return failed;
            }
            let id = (round * 7 + worker * 31) % ROWS;
            let increment = Update::new().add("v", 1);
            let incremented = match round % 3 {
                0 => {
                    let row: Option<Record> = cluster.get(table, id).expect("a read does not fail");
                    assert!(row.is_some());
                    self.operations[worker as usize].fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                1 => cluster.update(table, id, &increment),
                _ => cluster.begin().and_then(|mut transaction| {
                    let row: Option<Record> = transaction.read(table, id)?;
                    assert!(row.is_some());
                    transaction.update(table, id, &increment)?;
                    transaction.commit().map(|_| ())
                }),
            };
            match incremented {
                Ok(()) => {
                    self.increments.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    if error.class() == ErrorClass::Unknown {
                        self.unknown.fetch_add(1, Ordering::Relaxed);
                    }
                    failed.push(error);
                }
            }
            self.operations[worker as usize].fetch_add(1, Ordering::Relaxed);
        }
        unreachable!("it goes on until it is stopped")
    }
}

/// The client was given the address of the data node that dies only.
fn work_goes_on_without(node: u8) {
    let folder = Folder::new();
    up(&folder);
    let cluster = Cluster::connect(&folder.addresses([node])).expect("it admits us");
    assert_eq!(cluster.endpoints().iter().filter(|endpoint| endpoint.is_connected).count(), 2);
    let table = table(&cluster);
    let done = Done::default();
    let failed = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (done, cluster, table) = (&done, cluster.clone(), &table);
                scope.spawn(move || done.work(worker, &cluster, table))
            })
            .collect();
        done.wait_until_all_have(ENOUGH);
        let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
        done.wait_until_all_have(ENOUGH);
        done.stops.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no read fails")).collect::<Vec<_>>()
    });
    for failed in failed {
        assert!(failed.len() <= 1, "one operation of a worker is under way at a time: {failed:?}");
        assert!(failed.iter().all(|error| error.is_retryable() || error.class() == ErrorClass::Unknown));
    }
    // The schema can be changed, too.
    let renamed = cluster.rename_table("test.t", "test.u").expect("somebody leads");
    let rows = cluster.get_many(&renamed, 0..ROWS).expect("they are there");
    let value = |row: &Record| match row.get("v") {
        Some(Value::UInt(value)) => *value,
        other => panic!("{other:?} is no number"),
    };
    let sum: u64 = rows.iter().map(|row| value(row.as_ref().expect("none was deleted"))).sum();
    let (known, unknown) = (done.increments.into_inner(), done.unknown.into_inner());
    assert!((known..=known + unknown).contains(&sum), "{known} increments, and perhaps {unknown}: {sum}");
    drop((cluster, table, renamed));
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
}

#[test]
fn work_goes_on_without_a_data_node() {
    work_goes_on_without(2);
}

#[test]
fn work_goes_on_without_the_president() {
    work_goes_on_without(1);
}
