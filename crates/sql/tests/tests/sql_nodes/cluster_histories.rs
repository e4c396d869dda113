//! Clients of two SQL nodes of a cluster of two data nodes, one of which is killed or stands still: all answers, and
//! the rows that are left, are checked as the simulator checks those of its clusters.
//!
//! Nothing acknowledged is lost, nothing that was rolled back is seen, transactions on lists have one order, the sum of
//! accounts stays, and statements with autocommit fail only if they change something and were under way when their SQL
//! node noticed that the data node had gone. `VINGA_ROUNDS` sets how many rounds of each kind (1), `VINGA_SEED` the
//! first seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use vinga_kernel::InjectedBug;
use vinga_sql_tests::client::Client;
use vinga_sql_tests::data_cluster::{DATA_NODES, DataCluster};
use vinga_sql_tests::environment::{number, seed};
use vinga_sql_tests::recorded_loads::{
    ACCOUNT_COUNT, ACCOUNTS, Appender, LISTS, Load, REGISTERS, Registrar, Teller, elements, fill,
    row_of_list, tables,
};
use vinga_sql_tests::recorder::{RecordedSession, Recorder, Recording, VERSION};
use vinga_sql_tests::{HANG_GUARD, Session, eventually};
use vinga_sqlnode::ScopedSqlNode;
use vinga_workloads::bank::Bank;
use vinga_workloads::history::{Event, Time};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Fate, TableRef};
use vinga_workloads::workload::Contents;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");
/// Sessions of each kind at each SQL node.
const SESSIONS_EACH: usize = 2;
/// What each session does before something happens to a data node, at most, and after it.
const BETWEEN: u64 = 40;
/// A pause of a session, in microseconds, at most.
const PAUSE: u64 = 4_000;
/// How many runs may go by before a broken rule is noticed.
#[cfg(feature = "injected-bugs")]
const TRIES: u64 = 20;
/// The tables, with their numbers in histories.
const TABLES: [(TableRef, &str); 3] = [(ACCOUNTS, "accounts"), (LISTS, "lists"), (REGISTERS, "registers")];

/// The cluster with its SQL nodes.
struct Cluster {
    /// Declared before the data nodes, so that they are stopped first.
    sql_nodes: Vec<ScopedSqlNode>,
    data: DataCluster,
}

impl Cluster {
    /// `heartbeat`: milliseconds; a data node that is silent for four times as long is left out. Data nodes break this
    /// rule on purpose, in builds with injected bugs.
    fn start(heartbeat: &str, bug: Option<InjectedBug>) -> Self {
        let parameters = [
            ("HeartbeatIntervalDbDb", heartbeat),
            ("HeartbeatIntervalDbApi", "1000000"),
            // Nobody gives up a lock only because the machine is busy.
            ("TransactionDeadlockDetectionTimeout", "60000"),
        ];
        let data = DataCluster::start(PROGRAM, &parameters, bug);
        // One by the network, the other by shared memory.
        let start = |address: String| {
            let node = ScopedSqlNode::start_with(&address, |settings| {
                settings.variables.push(("vinga_wait_max".into(), "100000".into()));
            });
            node.unwrap_or_else(|error| panic!("{error}"))
        };
        let sql_nodes = [data.addresses(), data.local_addresses()].map(start).into();
        let cluster = Cluster { sql_nodes, data };
        let mut setup = cluster.connect(0);
        setup.query("CREATE DATABASE IF NOT EXISTS test");
        setup.query("USE test");
        tables().iter().for_each(|statement| _ = setup.query(statement));
        for node in 1..cluster.sql_nodes.len() {
            let mut session = cluster.connect(node);
            let mut is_there =
                |name: &str| session.try_query(&format!("SELECT COUNT(*) FROM test.{name}")).is_ok();
            eventually("all SQL nodes have the tables", || TABLES.iter().all(|(_, name)| is_there(name)));
        }
        cluster
    }

    fn connect(&self, node: usize) -> Session {
        Session::new(self.sql_nodes[node].connect().expect("the SQL node answers"))
    }
}

fn session<'a>(recorder: &'a Recorder, number: u32, socket: &Path) -> RecordedSession<'a> {
    let mut client = Client::new(socket);
    RecordedSession::new(recorder, number, Box::new(move |statement| client.run(statement)))
}

/// Sessions of all kinds at all SQL nodes.
fn loads<'a>(
    cluster: &Cluster,
    recorder: &'a Recorder,
    random: &mut fastrand::Rng,
) -> Vec<Box<dyn Load + 'a>> {
    let mut loads: Vec<Box<dyn Load + 'a>> = Vec::new();
    let mut number = 1;
    for node in &cluster.sql_nodes {
        for _ in 0..SESSIONS_EACH {
            let mut next = || {
                number += 1;
                (session(recorder, number, &node.socket()), random.fork())
            };
            let [teller, appender, registrar] = [next(), next(), next()];
            loads.push(Box::new(Teller::new(teller.0, teller.1)));
            loads.push(Box::new(Appender::new(appender.0, appender.1)));
            loads.push(Box::new(Registrar::new(registrar.0, registrar.1)));
        }
    }
    loads
}

/// How far sessions are.
struct Progress {
    /// What each session has done that went well.
    done: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Progress {
    fn work(&self, at: usize, load: &mut dyn Load, mut random: fastrand::Rng) {
        while !self.is_over.load(Ordering::Relaxed) {
            if load.work() {
                self.done[at].fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_micros(random.u64(..PAUSE)));
        }
    }

    /// Waits until each session has done so much more.
    fn wait_for(&self, more: u64) {
        let done = || self.done.iter().map(|count| count.load(Ordering::Relaxed));
        let enough: Vec<u64> = done().map(|count| count + more).collect();
        eventually("all sessions go on", || done().zip(&enough).all(|(count, enough)| count >= *enough));
    }
}

/// Stops sessions when it is dropped, also by a panic.
struct Stop<'a>(&'a Progress);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Runs sessions on a cluster, to one of whose data nodes something happens in the middle; returns what was written
/// down, and when the sessions were struck.
fn run(
    cluster: &mut Cluster,
    seed: u64,
    strike: impl FnOnce(&mut DataCluster, &Progress),
) -> (Recording, Time) {
    let mut random = fastrand::Rng::with_seed(seed);
    let recorder = Recorder::new([LISTS]);
    fill(&mut session(&recorder, 1, &cluster.sql_nodes[0].socket()));
    let loads = loads(cluster, &recorder, &mut random);
    let done = loads.iter().map(|_| AtomicU64::new(0)).collect();
    let progress = Progress { done, is_over: AtomicBool::new(false) };
    let struck = thread::scope(|scope| {
        let _stop = Stop(&progress);
        for (at, mut load) in loads.into_iter().enumerate() {
            let (progress, random) = (&progress, random.fork());
            scope.spawn(move || progress.work(at, &mut *load, random));
        }
        progress.wait_for(random.u64(1..BETWEEN));
        thread::sleep(Duration::from_micros(random.u64(..PAUSE)));
        let struck = recorder.now();
        strike(&mut cluster.data, &progress);
        progress.wait_for(BETWEEN);
        struck
    });
    let mut client = Client::new(&cluster.sql_nodes[1].socket());
    await_decisions(&mut client, &recorder);
    let end = recorder.now();
    let (contents, lists) = rows(&mut client);
    (recorder.finish(end, contents, lists), struck)
}

/// Waits until nobody else has a row locked that a transaction may have changed whose fate is not known.
fn await_decisions(client: &mut Client, recorder: &Recorder) {
    let mut in_doubt = BTreeSet::new();
    for transaction in &recorder.record().history.transactions {
        for event in transaction.events.iter().filter(|_| transaction.fate == Fate::Unknown) {
            if let Event::Operation(record) = event {
                in_doubt.insert((record.operation.table, record.operation.key));
            }
        }
    }
    for (table, key) in in_doubt {
        let (_, name) = TABLES[usize::from(table.0)];
        let lock = format!("SELECT id FROM {name} WHERE id = {key} FOR UPDATE");
        for statement in ["BEGIN", &lock, "COMMIT"] {
            client.until_good(statement, HANG_GUARD);
        }
    }
}

/// The rows that are left, and the elements of lists.
fn rows(client: &mut Client) -> (Contents, BTreeMap<u64, Vec<u64>>) {
    let (mut contents, mut lists) = (Contents::default(), BTreeMap::new());
    for (table, name) in TABLES {
        contents.versions.insert(table, VERSION);
        for row in client.until_good(&format!("SELECT * FROM {name}"), HANG_GUARD).strings() {
            let number = |at: usize| row[at].parse::<u64>().expect("a number");
            let value = if table == LISTS {
                let elements = elements(&row[1]).unwrap_or_else(|what| panic!("{what}"));
                let value = row_of_list(&elements);
                lists.insert(number(0), elements);
                value.expect("it has an element")
            } else {
                Value { value: number(1), count: number(2) }
            };
            let before = contents.rows.insert((table, number(0)), (value, Contents::UNKNOWN_EPOCH));
            assert_eq!(before, None, "{name} has two rows with the key {}", number(0));
        }
    }
    (contents, lists)
}

fn check(recording: &Recording, struck: Time, context: &str) {
    let bank = Bank::to_check(ACCOUNT_COUNT, ACCOUNTS);
    let summary = recording.check(&[&bank]).unwrap_or_else(|what| panic!("{context}: {what}"));
    assert!(summary.undecided < summary.rows, "{context}: no row could be decided: {summary:?}");
    recording.check_failures(struck).unwrap_or_else(|what| panic!("{context}: {what}"));
    let record = &recording.record;
    eprintln!(
        "{context}: {} transactions, {} reads, {} statements with autocommit failed, {summary:?}",
        record.history.transactions.len(),
        record.history.reads.len(),
        record.failures.len()
    );
}

fn seeds() -> std::ops::Range<u64> {
    seed()..seed() + number("VINGA_ROUNDS").unwrap_or(1)
}

fn victim(seed: u64) -> usize {
    1 + seed as usize % DATA_NODES
}

#[test]
fn answers_can_be_true_when_a_data_node_is_killed() {
    for seed in seeds() {
        let mut cluster = Cluster::start("5000", None);
        let (recording, struck) = run(&mut cluster, seed, |data, _| data.kill(victim(seed)));
        check(&recording, struck, &format!("seed {seed}, killed"));
        alter(recording);
    }
}

#[test]
fn answers_can_be_true_when_a_data_node_stands_still() {
    for seed in seeds() {
        let victim = victim(seed);
        let mut cluster = Cluster::start("1000", None);
        let (recording, struck) = run(&mut cluster, seed, |data, progress| {
            data.silence(victim);
            progress.wait_for(BETWEEN);
            // It has to find out by itself that the other one has gone on without it.
            data.wake(victim);
            eventually("it stops", || !data.is_alive(victim));
        });
        check(&recording, struck, &format!("seed {seed}, standing still"));
    }
}

/// The checks notice data nodes that break a rule.
#[cfg(feature = "injected-bugs")]
#[test]
fn data_nodes_that_break_a_rule_are_noticed() {
    for bug in [InjectedBug::ChangerReadsPastLock, InjectedBug::AnswerBeforePrimary] {
        let bank = Bank::to_check(ACCOUNT_COUNT, ACCOUNTS);
        let mut verdicts = (seed()..seed() + TRIES).map(|seed| {
            let mut cluster = Cluster::start("5000", Some(bug));
            run(&mut cluster, seed, |_, progress| progress.wait_for(BETWEEN)).0.check(&[&bank]).map(drop)
        });
        let noticed = verdicts.find_map(Result::err);
        println!("{}: {}", bug.name(), noticed.unwrap_or_else(|| panic!("{} is not noticed", bug.name())));
    }
}

/// The checks see what a cluster would do wrong: a real run is refused as soon as another row is left, or was seen.
fn alter(recording: Recording) {
    let bank = Bank::to_check(ACCOUNT_COUNT, ACCOUNTS);
    let refused = |alter: &dyn Fn(&mut Recording)| {
        let mut altered = recording.clone();
        alter(&mut altered);
        altered.check(&[&bank]).map(drop).expect_err("it can't be true")
    };
    let what = refused(&|run| _ = run.contents.rows.remove(&(ACCOUNTS, 0)));
    assert!(what.contains("row 0 of table 0"), "an account is lost: {what}");
    let what = refused(&|run| {
        let (value, _) = run.contents.rows.get_mut(&(ACCOUNTS, 1)).expect("accounts stay");
        value.count += 1;
    });
    assert!(what.contains("row 1 of table 0"), "there is more in an account: {what}");
    let what = refused(&|run| {
        let seen = run.record.lists.last_mut().expect("lists were read");
        seen.elements.insert(0, 1);
    });
    assert!(what.contains("list"), "a list has begun otherwise: {what}");
}
