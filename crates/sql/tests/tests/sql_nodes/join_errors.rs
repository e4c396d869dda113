//! Joins that batch the keys of their outer rows: what keeps the storage engine from reading the inner rows ends the
//! statement, and is not taken for their end.

use std::thread;
use vinga_sql_tests::{Session, TestCluster};

const DEADLOCK: u16 = 1213;
const LOCKED: u16 = 1205;
const INTERRUPTED: u16 = 1317;

/// Both ways to join, and what EXPLAIN calls them.
const JOINS: [(&str, &str); 2] =
    [("c ON c.id = p.v", "Batched keys"), ("c FORCE INDEX (k) ON c.k = p.v", "Batched ranges")];

/// A hundred rows with one of `c` each, and a row that others have locked.
fn locked_row(cluster: &TestCluster) -> (Session, Session) {
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("CREATE TABLE c (id INT PRIMARY KEY, v INT, k INT, KEY k (k)) ENGINE=VINGA");
    session.query("CREATE TABLE made (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("INSERT INTO p SELECT seq, seq FROM seq_1_to_100");
    session.query("INSERT INTO c SELECT seq, seq, seq FROM seq_1_to_100");
    session.query("ANALYZE TABLE p, c");
    let mut holder = cluster.connect(0);
    holder.query("BEGIN");
    holder.query("UPDATE c SET v = v + 1 WHERE id = 50");
    (session, holder)
}

#[test]
fn a_row_that_is_locked_for_too_long_is_an_error() {
    let cluster = TestCluster::start(1);
    let (mut session, _holder) = locked_row(&cluster);
    session.query("SET vinga_lock_wait = 50");
    for (join, plan) in JOINS {
        let said = session.query(&format!("EXPLAIN SELECT p.id, c.v FROM p JOIN {join} FOR UPDATE"));
        assert!(format!("{said:?}").contains(plan), "{join}: {said:?}");
        for statement in [
            format!("SELECT p.id, c.v FROM p JOIN {join} FOR UPDATE"),
            format!("SELECT p.id, c.v FROM p JOIN {join} LOCK IN SHARE MODE"),
            format!("SELECT p.id FROM p LEFT JOIN {join} WHERE c.id IS NULL FOR UPDATE"),
            format!("SELECT COUNT(*), SUM(c.v) FROM p LEFT JOIN {join} FOR UPDATE"),
            format!("INSERT INTO made SELECT p.id, c.v FROM p LEFT JOIN {join} FOR UPDATE"),
            format!("CREATE TABLE more SELECT p.id, c.v FROM p JOIN {join} FOR UPDATE"),
        ] {
            assert_eq!(session.error(&statement).0, LOCKED, "{statement}");
        }
        assert_eq!(session.lines("SELECT COUNT(*) FROM made"), ["0"]);
        assert_eq!(session.lines("SHOW TABLES LIKE 'more'"), [""; 0]);
    }
}

/// Its transaction is rolled back: nothing of it may be acknowledged.
#[test]
fn the_victim_of_a_deadlock_gets_an_error() {
    let cluster = TestCluster::start(1);
    for (join, _) in JOINS {
        let (mut session, mut holder) = locked_row(&cluster);
        session.query("BEGIN");
        session.query("INSERT INTO made VALUES (1, 1)");
        let (joined, inserted) = thread::scope(|scope| {
            let inserting = scope.spawn(|| holder.try_query("INSERT INTO made VALUES (1, 2)"));
            session.await_waiter();
            let joined = session.try_query(&format!("SELECT p.id, c.v FROM p JOIN {join} FOR UPDATE"));
            (joined, inserting.join().expect("it does not panic"))
        });
        session.query("COMMIT");
        let left = match (joined, inserted) {
            (Err(error), Ok(_)) => {
                assert_eq!(error.number(), Some(DEADLOCK), "{join}");
                holder.query("COMMIT");
                "2"
            }
            (Ok(_), Err(error)) => {
                assert_eq!(error.number(), Some(DEADLOCK), "{join}");
                "1"
            }
            ends => panic!("{join}: one of both is the victim: {ends:?}"),
        };
        assert_eq!(session.lines("SELECT v FROM made"), [left], "{join}");
        session.query("DROP TABLE p, c, made");
    }
}

#[test]
fn a_join_that_is_killed_while_it_waits_is_interrupted() {
    let cluster = TestCluster::start_with(
        1,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "700000")],
    );
    for (join, _) in JOINS {
        let (mut session, mut holder) = locked_row(&cluster);
        let id = session.lines("SELECT CONNECTION_ID()").remove(0);
        let joined = thread::scope(|scope| {
            let joining =
                scope.spawn(|| session.error(&format!("SELECT p.id, c.v FROM p JOIN {join} FOR UPDATE")));
            holder.await_waiter();
            holder.query(&format!("KILL QUERY {id}"));
            joining.join().expect("it does not panic")
        });
        assert_eq!(joined.0, INTERRUPTED, "{join}");
        holder.query("ROLLBACK");
        holder.query("DROP TABLE p, c, made");
    }
}
