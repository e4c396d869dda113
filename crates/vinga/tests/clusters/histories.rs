//! Workloads on real clusters whose processes are killed or stand still: all answers are checked as the simulator
//! checks those of its clusters. `VINGA_ROUNDS` sets how many rounds, `VINGA_SEED` the first seed.

use crate::loads::{WORKLOADS, check, workloads};
use crate::support::folder::{Folder, Suspended, said};
use crate::support::number;
use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga_runner::{Finished, Progress, Runner};
use vinga_runtime::node_folder::NodeFolder;
use vinga_workloads::history::{Event, KeyRead, OperationResult, RowName, Transaction};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Body, Fate, TableRef};

/// Data nodes of the cluster, one group of replicas.
const DATA_NODES: u8 = 2;
/// API nodes, over which sessions are spread.
const API_NODES: usize = 2;
/// Two of each workload for each API node.
const SESSIONS: usize = 2 * API_NODES * WORKLOADS;
/// Transactions that must be committed before something happens to a data node, at most, and after it.
const BETWEEN: u64 = 400;
/// A pause of a session, in microseconds, at most.
const PAUSE: u64 = 3_000;

/// A cluster's folder, with data nodes that find out after some seconds that one of them stands still.
fn start(context: &str, heartbeat: u32) -> Folder {
    let folder = Folder::new();
    let mut up = folder.command("up");
    up.args(["--set", "DataMemory=64M", "--port", "0", "--data-nodes", "2", "--replicas", "2"]);
    up.args(["--set", &format!("HeartbeatIntervalDbDb={heartbeat}")]);
    let (ok, text) = said(up.output());
    assert!(ok, "{context}: {text}");
    folder
}

/// Runs the workloads on a cluster, to one of whose data nodes something happens in the middle.
fn run(folder: &Folder, seed: u64, context: &str, strike: impl FnOnce(&Progress<'_>)) -> Finished {
    run_at(&folder.addresses(1..=DATA_NODES), seed, context, strike)
}

/// The same on the cluster at these addresses.
fn run_at(addresses: &str, seed: u64, context: &str, strike: impl FnOnce(&Progress<'_>)) -> Finished {
    let clusters = (0..API_NODES).map(|_| Cluster::connect(addresses).expect("they admit us")).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut runner =
        Runner::new(clusters, workloads(PAUSE), seed).unwrap_or_else(|what| panic!("{context}: {what}"));
    let ran = runner.run(SESSIONS, |progress| {
        // Some transactions, or hardly any.
        progress.wait_for(random.u64(1..BETWEEN));
        thread::sleep(Duration::from_micros(random.u64(..3_000)));
        strike(progress);
        // The others go on.
        progress.wait_for(BETWEEN);
        progress.stop();
    });
    ran.unwrap_or_else(|what| panic!("{context}: {what}"));
    runner.finish().unwrap_or_else(|what| panic!("{context}: {what}"))
}

fn kill(folder: &Folder, node: u8) {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
}

#[test]
fn answers_can_be_true_when_a_data_node_is_killed() {
    let first = number("VINGA_SEED", 1);
    for seed in first..first + number("VINGA_ROUNDS", 3) {
        let context = format!("seed {seed}");
        let folder = start(&context, 5_000);
        let victim = 1 + (seed % u64::from(DATA_NODES)) as u8;
        let finished = run(&folder, seed, &context, |_| kill(&folder, victim));
        let summary = check(&finished, &context);
        eprintln!("{context}: {} transactions, {summary:?}", finished.history.transactions.len());
        let (ok, text) = folder.run("down", &[]);
        assert!(ok, "{context}: {text}");
    }
}

#[test]
fn answers_can_be_true_when_a_data_node_stands_still() {
    let first = number("VINGA_SEED", 1);
    for seed in first..first + number("VINGA_ROUNDS", 1) {
        let context = format!("seed {seed}, standing still");
        // The other one goes on without it; when it goes on, it has to find that out by itself.
        let folder = start(&context, 100);
        let victim = 1 + (seed % u64::from(DATA_NODES)) as u8;
        let finished = run(&folder, seed, &context, |progress| {
            let suspended = Suspended::new(&folder.0, victim);
            progress.wait_for(BETWEEN);
            drop(suspended);
        });
        let summary = check(&finished, &context);
        eprintln!("{context}: {} transactions, {summary:?}", finished.history.transactions.len());
    }
}

/// What a falsified history of a real run is refused for.
fn refused(finished: &mut Finished, falsify: impl FnOnce(&mut Finished)) -> String {
    let (history, contents) = (finished.history.clone(), finished.contents.clone());
    falsify(finished);
    let verdict = finished.check().map(drop);
    (finished.history, finished.contents) = (history, contents);
    finished.check().expect("it is as it was");
    verdict.expect_err("it can't be true")
}

/// The checks see what a cluster would do wrong that breaks its promises: the history of a real run is true, and false
/// as soon as anything else was read, or is left, than what was there.
#[test]
fn a_falsified_history_is_refused() {
    let folder = start("a whole cluster", 5_000);
    let mut finished = run(&folder, number("VINGA_SEED", 1), "a whole cluster", |_| ());
    check(&finished, "as it was");

    // A commit that was acknowledged is lost: its row is as it was before.
    let (table, key) = account(&finished, 1);
    let what = refused(&mut finished, |finished| {
        let row = finished.contents.rows.get_mut(&(table, key)).expect("accounts stay");
        row.0 = written_first(&finished.history.transactions, table, key);
    });
    assert!(what.contains(&format!("row {key} of table {}", table.0)), "{what}");

    // So is a row.
    let what = refused(&mut finished, |finished| {
        finished.contents.rows.remove(&(table, key)).expect("accounts stay");
    });
    assert!(what.contains(&format!("row {key} of table {}", table.0)), "{what}");

    // A read at the end gives what was there at the beginning.
    let seen = written_first(&finished.history.transactions, table, key);
    let what = refused(&mut finished, |finished| {
        let row = finished.history.transactions.iter().flat_map(|transaction| &transaction.events);
        let mut row = row.filter_map(|event| match event {
            Event::Operation(record) if record.operation.table == table => Some(record.row()),
            _ => None,
        });
        let row = RowName { key, ..row.next_back().expect("there are some") };
        let (sent, answered) = (finished.end, finished.end);
        finished.history.reads.push(KeyRead {
            row,
            sent,
            answered,
            condition: None,
            seen: Some(seen),
            backup: None,
        });
    });
    assert!(what.contains(&format!("row {key} of table {}", table.0)), "{what}");

    // A transaction has seen under its lock what was there at the beginning.
    let what = refused(&mut finished, |finished| {
        let events = finished.history.transactions.iter_mut().rev().flat_map(|record| &mut record.events);
        let mut reads = events.filter_map(|event| match event {
            Event::Operation(record)
                if (record.operation.table, record.operation.key) == (table, key)
                    && matches!(record.result, OperationResult::Row(Some(row)) if row != seen) =>
            {
                Some(record)
            }
            _ => None,
        });
        reads.next().expect("accounts are read").result = OperationResult::Row(Some(seen));
    });
    assert!(what.contains(&format!("row {key} of table {}", table.0)), "{what}");

    // What was rolled back is seen.
    let what = refused(&mut finished, |finished| {
        let (left, _) = finished.contents.rows[&(table, key)];
        let writes =
            |event: &Event| matches!(event, Event::Operation(record) if record.written() == Some(left.value));
        let mut transactions = finished.history.transactions.iter_mut();
        let writer = transactions.find(|record| record.events.iter().any(writes)).expect("somebody wrote it");
        writer.fate = Fate::RolledBack { error: None, operation: 0 };
    });
    assert!(what.contains("which was rolled back"), "{what}");

    // An increment is lost: nobody looks at counters whose values are left as they were.
    let counters = TableRef(1);
    let what = refused(&mut finished, |finished| {
        let counter = finished.contents.rows.iter_mut().find(|((table, _), _)| *table == counters);
        counter.expect("there are some").1.0.count -= 1;
    });
    assert!(what.contains("row 0 of table 1"), "{what}");
}

/// The checks notice a data node that breaks a rule.
#[cfg(feature = "injected-bugs")]
#[test]
fn a_data_node_that_breaks_a_rule_is_noticed() {
    use vinga_config::configuration::Configuration;
    use vinga_datanode::{Assembly, this_machine};
    use vinga_kernel::InjectedBug;

    // How many runs may go by before it is noticed.
    const TRIES: u64 = 20;
    let parameters =
        [("HostName", "127.0.0.1"), ("ServerPort", "0"), ("DataMemory", "64M"), ("SchedulerSpinTimer", "0")];
    let configuration = Configuration::new(None, &parameters, &this_machine()).expect("they are good");
    for bug in [
        InjectedBug::PartialRollbackKeepsLast,
        InjectedBug::LastReadsTakeNoLock,
        InjectedBug::ChangerReadsPastLock,
    ] {
        let first = number("VINGA_SEED", 1);
        let mut verdicts = (first..first + TRIES).map(|seed| {
            let assembly = Assembly::new(&configuration).expect("there is memory");
            let node = assembly.breaking(bug).start().expect("it starts");
            let finished = run_at(&node.address().to_string(), seed, bug.name(), |_| ());
            let verdict = finished.check().map(drop);
            drop(finished);
            node.stop();
            verdict
        });
        let noticed = verdicts.find_map(Result::err);
        println!("{}: {}", bug.name(), noticed.unwrap_or_else(|| panic!("{} is not noticed", bug.name())));
    }
}

/// An account whose value now is not the one with which it was opened, from this key on.
fn account(finished: &Finished, from: u64) -> (TableRef, u64) {
    let table = TableRef(0);
    let is_changed = |key: &u64| {
        let (left, _) = finished.contents.rows[&(table, *key)];
        left.value != written_first(&finished.history.transactions, table, *key).value
    };
    let key = (from..8).find(is_changed).expect("hundreds of transfers change some account");
    (table, key)
}

/// What the loader has written.
fn written_first(transactions: &[Transaction], table: TableRef, key: u64) -> Value {
    let mut writes =
        transactions.iter().flat_map(|transaction| &transaction.events).filter_map(|event| match event {
            Event::Operation(record) if (record.operation.table, record.operation.key) == (table, key) => {
                match record.operation.body {
                    Body::Row(row) => Some(row),
                    _ => None,
                }
            }
            _ => None,
        });
    writes.next().expect("the loader has opened it")
}
