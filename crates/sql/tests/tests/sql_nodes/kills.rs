//! Statements that are killed, that time out, or that wait for each other.

use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{Lock, Record, Value};
use vinga_sql_tests::{Session, TestCluster, eventually};

/// The data nodes soon have no state of any transaction or scan.
fn expect_rest(session: &mut Session) {
    eventually("nothing is left in the pools", || {
        session.lines("SELECT SUM(USED) FROM information_schema.VINGA_POOLS") == ["0"]
    });
}

/// Soon no transaction is queued for a lock.
fn expect_nobody_waits(session: &mut Session) {
    eventually("no transaction waits", || {
        session.lines("SELECT COUNT(*) FROM information_schema.VINGA_LOCKS WHERE STATE = 'waits'") == ["0"]
    });
}

struct Scene {
    cluster: TestCluster,
    killer: Session,
}

impl Scene {
    fn new() -> Self {
        Self::with(TestCluster::start(1))
    }

    /// A cluster in which a lock is waited for until it is released, no matter how busy the machine is.
    fn patient() -> Self {
        Self::with(TestCluster::start_with(
            1,
            &[("TransactionDeadlockDetectionTimeout", "600000")],
            &[("vinga_wait_max", "700000")],
        ))
    }

    fn with(cluster: TestCluster) -> Self {
        let mut killer = cluster.connect(0);
        killer.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=VINGA");
        killer.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_5000");
        Scene { cluster, killer }
    }

    /// Runs a statement that is killed after a moment; returns the error number with which it ends.
    fn kill(&mut self, how: &str, before: &[&str], statement: &str) -> u16 {
        let mut victim = self.cluster.connect(0);
        let id = victim.lines("SELECT CONNECTION_ID()").remove(0);
        before.iter().for_each(|statement| drop(victim.query(statement)));
        let number = thread::scope(|scope| {
            let running = scope.spawn(|| victim.error(statement).0);
            self.killer.await_statement_of(&id);
            thread::sleep(Duration::from_millis(300));
            self.killer.query(&format!("{how} {id}"));
            running.join().expect("it ends with an error")
        });
        drop(victim);
        number
    }
}

const LONG_SCAN: &str = "SELECT COUNT(*) FROM t a, t b WHERE a.v + b.v + SLEEP(0.0001) < 0";

#[test]
fn killed_statements_say_so_and_leave_nothing() {
    let mut scene = Scene::patient();
    let mut holder = scene.cluster.connect(0);
    holder.query("BEGIN");
    holder.query("UPDATE t SET v = 0 WHERE id = 1");
    holder.query("INSERT INTO t VALUES (10001, 1)");
    let waits = ["UPDATE t SET v = 5 WHERE id = 1", "SELECT * FROM t WHERE id = 1 FOR UPDATE"];
    for statement in waits {
        assert_eq!(scene.kill("KILL QUERY", &[], statement), 1317, "{statement}");
        let inside = ["BEGIN", "UPDATE t SET v = 9 WHERE id = 9"];
        assert_eq!(scene.kill("KILL QUERY", &inside, statement), 1317, "{statement}");
    }
    // The batch with the commit waits for the lock.
    let commits = ["INSERT INTO t VALUES (10001, 2)", "INSERT INTO t VALUES (10000, 2), (10001, 2)"];
    for statement in commits {
        assert_eq!(scene.kill("KILL QUERY", &[], statement), 1317, "{statement}");
    }
    holder.query("ROLLBACK");
    assert_eq!(scene.kill("KILL QUERY", &[], LONG_SCAN), 1317);
    let load = "INSERT INTO t SELECT seq + 20000, SLEEP(0.001) FROM seq_1_to_100000";
    assert_eq!(scene.kill("KILL QUERY", &[], load), 1317);
    let number = scene.kill("KILL CONNECTION", &[], LONG_SCAN);
    assert!(matches!(number, 1927 | 2013 | 0), "{number}: the connection is lost, or the error states why");
    let slow = format!("SET STATEMENT max_statement_time = 0.3 FOR {LONG_SCAN}");
    assert_eq!(scene.killer.error(&slow).0, 1969);
    assert_eq!(scene.killer.lines("SELECT COUNT(*), SUM(v) FROM t"), ["5000 12502500"]);
    expect_rest(&mut scene.killer);
}

/// A statement that waits for a lock is killed, and its transaction with it: others that wait for locks of that
/// transaction get them at once, long before the wait would have timed out, and its place in the queue is free.
#[test]
fn a_session_that_is_killed_while_it_waits_for_a_lock_releases_its_locks() {
    // The maximum wait for a lock is much longer than the test takes.
    let cluster = TestCluster::start_with(
        1,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "300000")],
    );
    let mut killer = cluster.connect(0);
    killer.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, u INT, KEY (v), UNIQUE KEY (u)) ENGINE=VINGA");
    killer.query("INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_100");
    let mut scene = Scene { cluster, killer };
    let mut holder = scene.cluster.connect(0);
    holder.query("BEGIN");
    holder.query("UPDATE t SET v = 0 WHERE id = 1");
    let waits = [
        "UPDATE t SET v = 5 WHERE id = 1",
        "SELECT * FROM t WHERE u = 1 FOR UPDATE",
        "UPDATE t SET v = v + 1 WHERE v < 10",
        "DELETE FROM t WHERE id IN (2, 1, 3)",
    ];
    for how in ["KILL QUERY", "KILL CONNECTION"] {
        for statement in waits {
            let before =
                ["BEGIN", "UPDATE t SET v = 50 WHERE id = 50", "INSERT INTO t VALUES (1000, 1000, 1000)"];
            let number = scene.kill(how, &before, statement);
            let is_expected = match how {
                "KILL QUERY" => number == 1317,
                _ => matches!(number, 1927 | 2013 | 0),
            };
            assert!(is_expected, "{how}, {statement}: {number}");
            scene.killer.query("UPDATE t SET v = 51 WHERE id = 50");
            scene.killer.query("INSERT INTO t VALUES (1000, 0, 1000)");
            scene.killer.query("DELETE FROM t WHERE id = 1000");
            expect_nobody_waits(&mut scene.killer);
        }
    }
    holder.query("COMMIT");
    assert_eq!(scene.killer.lines("SELECT COUNT(*), SUM(u), SUM(v) FROM t"), ["100 5050 5050"]);
    expect_rest(&mut scene.killer);
}

#[test]
fn a_killed_scan_leaves_the_transaction_alone() {
    let mut scene = Scene::new();
    let mut victim = scene.cluster.connect(0);
    let id = victim.lines("SELECT CONNECTION_ID()").remove(0);
    victim.query("BEGIN");
    victim.query("INSERT INTO t VALUES (10001, 1)");
    thread::scope(|scope| {
        let running = scope.spawn(|| assert_eq!(victim.error("SELECT SLEEP(5) FROM t").0, 1317));
        scene.killer.await_statement_of(&id);
        thread::sleep(Duration::from_millis(200));
        scene.killer.query(&format!("KILL QUERY {id}"));
        running.join().expect("it was killed");
    });
    assert_eq!(victim.lines("SELECT v FROM t WHERE id = 10001"), ["1"]);
    victim.query("COMMIT");
    assert_eq!(scene.killer.lines("SELECT v FROM t WHERE id = 10001"), ["1"]);
}

/// A statement that gives a value moves the table's counter, which another transaction has locked.
#[test]
fn a_statement_that_waits_for_a_counter_is_killed() {
    let mut scene = Scene::patient();
    scene.killer.query("CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=VINGA");
    scene.killer.query("INSERT INTO n (v) VALUES (0)");
    let address = scene.cluster.data_node.as_ref().expect("it runs").address();
    let native = Cluster::connect(address).expect("the data node answers");
    let counters = native.table("vinga.auto_increment").expect("a value was generated");
    let mut rows = native.scan(&counters, |scan| scan).expect("it can be read");
    let row: Record = rows.next().expect("there is one counter").expect("it can be read");
    let Some(Value::UInt(birth)) = row.get("birth") else { panic!("{row:?}") };
    let mut holder = native.begin().expect("connected");
    let locked: Option<Record> =
        holder.read_locked(&counters, *birth, Lock::Exclusive).expect("nobody else has it");
    assert!(locked.is_some());
    assert_eq!(scene.kill("KILL QUERY", &[], "INSERT INTO n VALUES (1000000, 1)"), 1317);
    holder.roll_back().expect("connected");
    scene.killer.query("INSERT INTO n VALUES (1000000, 1)");
    scene.killer.query("INSERT INTO n (v) VALUES (2)");
    assert_eq!(scene.killer.lines("SELECT COUNT(*), MIN(id), MAX(id) > 1000000 FROM n"), ["3 1 1"]);
    expect_rest(&mut scene.killer);
}

/// Two transactions that wait for each other; pairs of rows on the same data manager and on different ones.
#[test]
fn one_of_two_that_wait_for_each_other_goes_on() {
    let mut scene = Scene::patient();
    let (mut a, mut b) = (scene.cluster.connect(0), scene.cluster.connect(0));
    for (x, y) in [(1, 2), (1, 3), (4, 5), (6, 7)] {
        a.query("BEGIN");
        b.query("BEGIN");
        a.query(&format!("UPDATE t SET v = 1 WHERE id = {x}"));
        b.query(&format!("UPDATE t SET v = 1 WHERE id = {y}"));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let result = a.connection().query(format!("UPDATE t SET v = 2 WHERE id = {y}"));
                let number = result.err().and_then(|error| error.number());
                if number.is_some() {
                    // A deadlock has rolled everything back: there is nothing left to commit.
                    assert_eq!(a.lines("SELECT @@in_transaction"), ["0"]);
                }
                number
            });
            scene.killer.await_waiter();
            let second = b.connection().query(format!("UPDATE t SET v = 2 WHERE id = {x}"));
            let second = second.err().and_then(|error| error.number());
            let first = waiting.join().expect("it gets a result");
            assert!(
                matches!((first, second), (Some(1213), None) | (None, Some(1213))),
                "{first:?} {second:?}"
            );
        });
        a.query("COMMIT");
        b.query("COMMIT");
    }
}

/// Without autocommit, or within a transaction, the next statement need not lock a table: a kill of the one before does
/// not end it, nor those behind it.
#[test]
fn a_kill_ends_one_statement_only() {
    let scene = Scene::new();
    let (mut killer, mut victim) = (scene.cluster.connect(0), scene.cluster.connect(0));
    let id = victim.lines("SELECT CONNECTION_ID()").remove(0);
    for before in ["SET autocommit = 0", "BEGIN"] {
        victim.query(before);
        victim.query("SELECT COUNT(*) FROM t");
        thread::scope(|scope| {
            let asleep = scope.spawn(|| drop(victim.try_query("SELECT SLEEP(600)")));
            killer.await_statement_of(&id);
            killer.query(&format!("KILL QUERY {id}"));
            asleep.join().expect("it ends");
        });
        assert_eq!(victim.lines("SELECT COUNT(*) > 0 FROM information_schema.VINGA_RESTARTS"), ["1"]);
        victim.query("SHOW TABLES");
        assert_eq!(victim.lines("SELECT COUNT(*) FROM t"), ["5000"]);
        victim.query("ROLLBACK");
        victim.query("SET autocommit = 1");
    }
}

#[test]
fn a_lock_that_is_not_granted_ends_the_statement_only() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.cluster.connect(0), scene.cluster.connect(0));
    a.query("BEGIN");
    a.query("UPDATE t SET v = 1 WHERE id = 1");
    b.query("BEGIN");
    b.query("UPDATE t SET v = 77 WHERE id = 2");
    assert_eq!(b.error("UPDATE t SET v = 2 WHERE id = 1").0, 1205);
    a.query("ROLLBACK");
    b.query("COMMIT");
    assert_eq!(a.lines("SELECT v FROM t WHERE id IN (1, 2) ORDER BY id"), ["1", "77"]);
}

/// The data nodes allow longer waits for locks than the SQL node's wait for an answer: the error must not state that
/// they are down.
#[test]
fn a_wait_that_the_sql_node_ends_says_which_settings_are_about_it() {
    let cluster = TestCluster::start_with(
        1,
        &[("TransactionDeadlockDetectionTimeout", "60000")],
        &[("vinga_wait_max", "300")],
    );
    let (mut holder, mut waiting) = (cluster.connect(0), cluster.connect(0));
    holder.query("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    holder.query("INSERT INTO t VALUES (1, 1)");
    holder.query("BEGIN");
    holder.query("UPDATE t SET v = 0 WHERE id = 1");
    holder.query("INSERT INTO t VALUES (2, 2)");
    let settings = "vinga_wait_max should be above TransactionDeadlockDetectionTimeout";
    for statement in ["UPDATE t SET v = 5 WHERE id = 1", "SELECT * FROM t WHERE v < 5 FOR UPDATE"] {
        waiting.query("BEGIN");
        waiting.query("INSERT INTO t VALUES (5, 5)");
        let (number, sentence) = waiting.error(statement);
        assert!(number == 1297 && sentence.contains("266") && sentence.contains(settings), "{sentence}");
        assert!(!sentence.contains("No data node answers"), "{sentence}");
        // The whole transaction was rolled back.
        assert_eq!(waiting.lines("SELECT @@in_transaction"), ["0"]);
        assert_eq!(waiting.lines("SELECT * FROM t WHERE id = 5"), [""; 0]);
    }
    // The commit waits for the lock: it is not known whether it will succeed when the lock is released.
    let (number, sentence) = waiting.error("INSERT INTO t VALUES (2, 3)");
    assert!(number == 1296 && sentence.contains("4012") && sentence.contains("not known"), "{sentence}");
    assert!(sentence.contains(settings) && !sentence.contains("connection was lost"), "{sentence}");
    holder.query("COMMIT");
    assert_eq!(holder.lines("SELECT * FROM t ORDER BY id"), ["1 0", "2 2"]);
}
