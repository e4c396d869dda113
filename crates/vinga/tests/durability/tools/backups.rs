//! A load whose committed transactions can be recognised in a backup, and the commands that make and load one.

use crate::support::Node;
use crate::support::folder::{said, vinga};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Table, Update};

/// Accounts of each table.
pub const ACCOUNTS: u64 = 20_000;
/// The balance of each at the beginning.
const BALANCE: i64 = 1000;
/// Threads that change rows.
pub const WORKERS: u64 = 3;
/// Rows of the history that each worker keeps.
const HISTORY: u64 = 20;
/// Ids of a worker's own rows are apart from those of others.
const APART: u64 = 1 << 40;

vinga::row! {
    /// Money.
    #[derive(Debug)]
    pub struct Account {
        pub id: u64,
        pub tag: u64,
        pub balance: i64,
        pub filler: String,
    }
}

vinga::row! {
    /// How many transactions a worker has committed.
    pub struct Done {
        pub id: u64,
        pub count: u64,
    }
}

/// The tables: accounts with indexes, accounts that are not logged, counters and histories of workers, rows that move.
pub struct Tables {
    pub logged: Table<Account>,
    pub unlogged: Table<Account>,
    pub done: Table<Done>,
    pub history: Table<Done>,
    pub moving: Table<Done>,
}

const U64: ColumnType = ColumnType::Integer { bytes: 8, signed: false };

fn accounts(name: &str) -> NewTable {
    let table = NewTable::new(name)
        .column("id", U64)
        .column("tag", U64)
        .column("balance", ColumnType::Integer { bytes: 8, signed: true })
        .column("filler", ColumnType::varchar(60));
    table.primary_key(&["id"]).unique_index("by tag", &["tag"]).ordered_index("by balance", &["balance"])
}

fn counts(name: &str) -> NewTable {
    NewTable::new(name).column("id", U64).column("count", U64).primary_key(&["id"])
}

impl Tables {
    /// Creates and fills them.
    pub fn create(cluster: &Cluster) -> Self {
        for table in [accounts("bank.logged"), accounts("bank.unlogged").no_logging()] {
            cluster.create_table(table).expect("it can be created");
        }
        for name in ["bank.done", "bank.history", "bank.moving"] {
            cluster.create_table(counts(name)).expect("it can be created");
        }
        let tables = Tables::of(cluster);
        for table in [&tables.logged, &tables.unlogged] {
            let account =
                |id| Account { id, tag: 7 * id + 1, balance: BALANCE, filler: "x".repeat(id as usize % 60) };
            let mut batch = vinga::WriteBatch::new();
            (0..ACCOUNTS).for_each(|id| batch.insert(table, &account(id)).expect("it is a row"));
            let batch = cluster.start_writes(batch).expect("it is sent").wait();
            assert!(batch.endings().all(|ending| ending.is_ok()));
        }
        for worker in 0..WORKERS {
            cluster.insert(&tables.done, &Done { id: worker, count: 0 }).expect("it is new");
            cluster.insert(&tables.moving, &Done { id: worker * APART, count: 0 }).expect("it is new");
        }
        tables
    }

    /// Those of a cluster that has them.
    pub fn of(cluster: &Cluster) -> Self {
        let counts = |name| cluster.table_of::<Done>(name).expect("it is there");
        Tables {
            logged: cluster.table_of("bank.logged").expect("it is there"),
            unlogged: cluster.table_of("bank.unlogged").expect("it is there"),
            done: counts("bank.done"),
            history: counts("bank.history"),
            moving: counts("bank.moving"),
        }
    }

    /// One transaction of a worker: money moves between tables, a row moves to another key, the history goes on.
    fn transact(&self, cluster: &Cluster, worker: u64, number: u64, random: &mut fastrand::Rng) {
        let (from, to, amount) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS), random.i64(1..10));
        let done = cluster.run(|tx| {
            let (source, target) = if number.is_multiple_of(2) {
                (&self.logged, &self.unlogged)
            } else {
                (&self.unlogged, &self.logged)
            };
            tx.update(source, from, &Update::new().subtract("balance", amount))?;
            tx.update(target, to, &Update::new().add("balance", amount))?;
            tx.update(&self.done, worker, &Update::new().set("count", number))?;
            tx.insert(&self.history, &Done { id: worker * APART + number, count: number })?;
            if number > HISTORY {
                tx.delete(&self.history, worker * APART + number - HISTORY)?;
            }
            tx.delete(&self.moving, worker * APART + number - 1)?;
            tx.insert(&self.moving, &Done { id: worker * APART + number, count: number })?;
            Ok(())
        });
        done.expect("it is tried until it succeeds");
    }

    /// Checks that the rows are those of the history up to some moment, the same in all tables; returns how many
    /// transactions of each worker there are.
    pub fn check(&self, cluster: &Cluster) -> Vec<u64> {
        let mut sum = 0;
        for table in [&self.logged, &self.unlogged] {
            let rows: Vec<Account> = cluster
                .scan(table, |request| request)
                .expect("it begins")
                .map(|row| row.expect("it is read"))
                .collect();
            assert_eq!(rows.len() as u64, ACCOUNTS, "{}", table.name());
            sum += rows.iter().map(|row| row.balance).sum::<i64>();
            assert!(rows.iter().all(|row| row.filler.len() as u64 == row.id % 60));
            // Both indexes find all rows.
            let ordered = cluster.count(table, |request| request.index("by balance")).expect("it ends");
            assert_eq!(ordered, ACCOUNTS);
            for id in [0, 17, ACCOUNTS - 1] {
                let found = cluster.get_by(table, "by tag", 7 * id + 1).expect("it is read");
                assert_eq!(found.map(|row| row.id), Some(id));
            }
        }
        assert_eq!(sum, 2 * ACCOUNTS as i64 * BALANCE, "no money is lost or made");
        let all = |table: &Table<Done>| -> Vec<(u64, u64)> {
            let scan = cluster.scan(table, |request| request).expect("it begins");
            let mut rows: Vec<_> =
                scan.map(|row| row.expect("it is read")).map(|row| (row.id, row.count)).collect();
            rows.sort_unstable();
            rows
        };
        let done: Vec<u64> = all(&self.done).into_iter().map(|(_, count)| count).collect();
        let workers = || (0..WORKERS).zip(&done);
        let moving: Vec<_> = workers().map(|(worker, &n)| (worker * APART + n, n)).collect();
        assert_eq!(
            all(&self.moving),
            moving,
            "each row that moves is in one place, that of the last transaction"
        );
        let history: Vec<_> = workers()
            .flat_map(|(worker, &n)| {
                (n.saturating_sub(HISTORY) + 1..=n).map(move |m| (worker * APART + m, m))
            })
            .collect();
        assert_eq!(all(&self.history), history, "the histories are whole");
        done
    }
}

/// Threads that change rows until it is dropped.
pub struct Load {
    is_over: AtomicBool,
    committed: Vec<AtomicU64>,
}

impl Load {
    /// Runs `during` under load.
    pub fn run(cluster: &Cluster, tables: &Tables, during: impl FnOnce(&Load)) {
        let done =
            |worker| cluster.get(&tables.done, worker).expect("it is read").expect("it is there").count;
        let committed = (0..WORKERS).map(|worker| AtomicU64::new(done(worker))).collect();
        let load = Load { is_over: AtomicBool::new(false), committed };
        thread::scope(|threads| {
            for worker in 0..WORKERS {
                let load = &load;
                threads.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(worker);
                    let mut number = load.committed[worker as usize].load(Ordering::SeqCst);
                    while !load.is_over.load(Ordering::Relaxed) {
                        number += 1;
                        tables.transact(cluster, worker, number, &mut random);
                        load.committed[worker as usize].store(number, Ordering::SeqCst);
                    }
                });
            }
            let over = Over(&load);
            during(&load);
            drop(over);
        });
    }

    /// Transactions of each worker that are known to be committed.
    pub fn committed(&self) -> Vec<u64> {
        self.committed.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

/// Ends the load, also when a check fails.
struct Over<'a>(&'a Load);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// `vinga admin backup`.
pub fn back_up(node: &Node, to: &Path) -> (bool, String) {
    said(vinga().args(["admin", "--connect", &node.address, "backup", "--to"]).arg(to).output())
}

/// `vinga restore`.
pub fn restore(from: &Path, node: &Node) -> (bool, String) {
    restore_with(from, node, &[])
}

/// `vinga restore`, with more arguments.
pub fn restore_with(from: &Path, node: &Node, more: &[&str]) -> (bool, String) {
    said(vinga().arg("restore").arg(from).args(["--connect", &node.address]).args(more).output())
}

/// `vinga inspect backup`.
pub fn inspect(path: &Path) -> (bool, String) {
    said(vinga().args(["inspect", "backup"]).arg(path).output())
}
