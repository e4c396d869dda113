//! Data nodes are killed while clients work: nothing that was acknowledged is lost, nothing is half done, and the others go
//! on. `VINGA_ROUNDS` sets how many rounds, `VINGA_SEED` the first seed.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::HANG_GUARD;
use support::folder::{Folder, said};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, Lock, NewTable, Record, Table, Value};
use vinga_runtime::node_folder::NodeFolder;

/// Accounts of each thread. A transaction moves one from each to the next.
const ACCOUNTS: u64 = 6;
const THREADS: u64 = 4;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What a thread knows of its transactions.
#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    /// Committed or not.
    unknown: AtomicU64,
}

fn create(cluster: &Cluster) -> Table {
    let column = ColumnType::Integer { bytes: 8, signed: true };
    let table =
        NewTable::new("test.accounts").column("id", column).column("balance", column).primary_key(&["id"]);
    cluster.create_table(table).expect("a table can be created")
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

/// Moves one from an account to the next, and counts it in the thread's own row, in one transaction.
fn transfer(cluster: &Cluster, table: &Table, thread: u64, number: u64) -> vinga::Result<()> {
    let from = number % ACCOUNTS;
    let to = (from + 1) % ACCOUNTS;
    let own = ACCOUNTS + thread;
    let mut transaction = cluster.begin()?;
    // In order of the ids, so that there are few deadlocks.
    let mut ids = [from, to, own];
    ids.sort_unstable();
    for id in ids {
        let found: Option<Record> = transaction.read_locked(table, id as i64, Lock::Exclusive)?;
        let change = if id == from { -1 } else { 1 };
        transaction.write(table, &row(id, balance(&found.expect("it was made")) + change))?;
    }
    transaction.commit()?;
    Ok(())
}

fn work(cluster: &Cluster, table: &Table, thread: u64, counts: &Counts, ends: &AtomicBool) {
    for number in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        match transfer(cluster, table, thread, number) {
            Ok(()) => counts.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(why) if why.code() == ErrorCode::UnknownOutcome => {
                counts.unknown.fetch_add(1, Ordering::Relaxed)
            }
            Err(why) => {
                assert!(why.is_retryable(), "{why}");
                0
            }
        };
    }
}

fn pid(folder: &Folder, node: u8) -> Pid {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

fn check(cluster: &Cluster, table: &Table, counts: &[Counts], context: &str) {
    let all: Vec<Option<Record>> =
        cluster.get_many(table, (0..ACCOUNTS + THREADS).map(|id| id as i64)).expect("the others answer");
    let balances: Vec<i64> = all.iter().map(|found| balance(found.as_ref().expect("it is there"))).collect();
    let (accounts, own) = balances.split_at(ACCOUNTS as usize);
    assert_eq!(accounts.iter().sum::<i64>(), 0, "{context}: {balances:?}");
    for (thread, (&own, counts)) in own.iter().zip(counts).enumerate() {
        let acknowledged = counts.acknowledged.load(Ordering::Relaxed) as i64;
        let unknown = counts.unknown.load(Ordering::Relaxed) as i64;
        let possible = acknowledged..=acknowledged + unknown;
        assert!(possible.contains(&own), "{context}: thread {thread} has {own} of {possible:?}");
    }
}

/// One round: a cluster of some data nodes, of which as many are killed as its groups can do without.
fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (data_nodes, replicas) = [(2, 2), (3, 3), (4, 2)][random.usize(..3)];
    let context = format!("seed {seed}: {data_nodes} data nodes, {replicas} replicas");
    let folder = Folder::new();
    let sizes = ["--data-nodes".into(), data_nodes.to_string(), "--replicas".into(), replicas.to_string()];
    let mut up = folder.command("up");
    up.args(["--set", "DataMemory=64M", "--set", "HeartbeatIntervalDbDb=5000", "--port", "0"]).args(sizes);
    let (ok, text) = said(up.output());
    assert!(ok, "{context}: {text}");
    let cluster = Cluster::connect(&folder.addresses(1..=data_nodes)).expect("they admit us");
    let table = create(&cluster);
    for id in 0..ACCOUNTS + THREADS {
        cluster.insert(&table, &row(id, 0)).expect("it is new");
    }
    // Groups are made in order of the ids: the first `replicas` nodes are the first group.
    let groups = data_nodes / replicas;
    let victims: Vec<u8> = (0..groups)
        .flat_map(|group| {
            let mut nodes: Vec<u8> = (group * replicas + 1..=(group + 1) * replicas).collect();
            random.shuffle(&mut nodes);
            nodes.truncate(usize::from(replicas) - 1);
            nodes
        })
        .collect();
    let (counts, ends) = (std::array::from_fn::<_, 4, _>(|_| Counts::default()), AtomicBool::new(false));
    let done = || counts.iter().map(|one| one.acknowledged.load(Ordering::Relaxed)).sum::<u64>();
    thread::scope(|scope| {
        for (thread, counts) in (0..THREADS).zip(&counts) {
            let (cluster, table, ends) = (&cluster, &table, &ends);
            scope.spawn(move || work(cluster, table, thread, counts, ends));
        }
        for node in victims {
            // Some transactions between two deaths, or none.
            let enough = done() + random.u64(1..200);
            wait_until(&context, || done() >= enough);
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
            kill_process(pid(&folder, node), Signal::KILL).expect("it runs");
        }
        // The others go on.
        let enough = done() + 100;
        wait_until(&context, || done() >= enough);
        ends.store(true, Ordering::Relaxed);
    });
    check(&cluster, &table, &counts, &context);
    drop(cluster);
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{context}: {text}");
}

fn wait_until(context: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG_GUARD, "{context}: nothing is acknowledged any more");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_data_nodes_are_killed() {
    let first = setting("VINGA_SEED", 1);
    for seed in first..first + setting("VINGA_ROUNDS", 4) {
        round(seed);
    }
}
