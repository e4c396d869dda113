//! Sessions of two SQL nodes compete for a few keys, with statements that handle duplicates. Each of these succeeds, or
//! gets the error of a deadlock: it never fails because a row was deleted meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga_sql_tests::{HANG_GUARD, Session, TestCluster};

const DEADLOCK: u16 = 1213;
const SESSIONS: usize = 6;
const KEYS: u64 = 4;
const SPAN: Duration = Duration::from_secs(1);

/// Sessions run these statements in turn, each with the keys in turn; returns how many of each succeeded.
fn compete(cluster: &TestCluster, statements: &[&str]) -> Vec<u64> {
    let is_over = AtomicBool::new(false);
    let done: Vec<AtomicU64> = statements.iter().map(|_| AtomicU64::new(0)).collect();
    let run = |mut session: Session, number: usize| {
        for turn in number.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let at = (turn / SESSIONS) % statements.len();
            let key = 1 + (turn * 7 + turn / 5) as u64 % KEYS;
            match session.try_query(&statements[at].replace('?', &key.to_string())) {
                Ok(_) => _ = done[at].fetch_add(1, Ordering::Relaxed),
                Err(error) => assert_eq!(error.number(), Some(DEADLOCK), "{}: {error}", statements[at]),
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..SESSIONS {
            let session = cluster.connect(number % 2);
            scope.spawn(move || run(session, number));
        }
        thread::sleep(SPAN);
        let began = Instant::now();
        while done.iter().any(|done| done.load(Ordering::Relaxed) == 0) && began.elapsed() < HANG_GUARD {
            thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(done.iter().all(|done| done.load(Ordering::Relaxed) > 0), "each succeeds: {done:?}");
    done.into_iter().map(AtomicU64::into_inner).collect()
}

/// A table with a generated key `id`, and another unique key, `v`.
fn cluster() -> TestCluster {
    // Locks are waited for until they are released, no matter how busy the machine is.
    let cluster = TestCluster::start_with(
        2,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "700000")],
    );
    cluster.connect(0).query(
        "CREATE TABLE t (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT, w BIGINT NOT NULL, UNIQUE KEY v (v))",
    );
    cluster
}

/// The same rows are found by either key.
fn check_keys(cluster: &TestCluster) {
    let mut session = cluster.connect(0);
    let all = session.lines("SELECT * FROM t IGNORE INDEX (v)");
    for row in &all {
        let mut fields = row.split(" ");
        let (id, v) = (fields.next().expect("an id"), fields.next().expect("a value"));
        assert_eq!(session.lines(&format!("SELECT * FROM t WHERE id = {id}")), [row.as_str()]);
        if v != "NULL" {
            assert_eq!(session.lines(&format!("SELECT * FROM t WHERE v = {v}")), [row.as_str()]);
        }
    }
    assert!(all.len() as u64 <= KEYS, "a unique key exists twice: {all:?}");
}

#[test]
fn rows_that_are_in_the_way_go_meanwhile() {
    let cluster = cluster();
    for statements in [
        ["INSERT INTO t (v, w) VALUES (?, 1) ON DUPLICATE KEY UPDATE w = w + 1", "DELETE FROM t WHERE v = ?"],
        ["REPLACE INTO t (v, w) VALUES (?, 1)", "DELETE FROM t WHERE v = ?"],
        ["INSERT INTO t VALUES (?, NULL, 1) ON DUPLICATE KEY UPDATE w = w + 1", "DELETE FROM t WHERE id = ?"],
        ["REPLACE INTO t VALUES (?, NULL, 1)", "DELETE FROM t WHERE id = ?"],
        ["REPLACE INTO t (v, w) VALUES (?, 1)", "INSERT IGNORE INTO t (v, w) VALUES (?, 5)"],
    ] {
        compete(&cluster, &statements);
        check_keys(&cluster);
        cluster.connect(1).query("DELETE FROM t");
    }
}

#[test]
fn each_increment_counts_once() {
    let cluster = cluster();
    for statement in [
        "INSERT INTO t (v, w) VALUES (?, 1) ON DUPLICATE KEY UPDATE w = w + 1",
        "INSERT INTO t VALUES (?, NULL, 1) ON DUPLICATE KEY UPDATE w = w + 1",
    ] {
        let done = compete(&cluster, &[statement]);
        check_keys(&cluster);
        assert_eq!(cluster.connect(1).lines("SELECT SUM(w) FROM t"), [done[0].to_string()], "{statement}");
        cluster.connect(0).query("DELETE FROM t");
    }
}

#[test]
fn rows_that_replace_each_other() {
    let cluster = cluster();
    compete(&cluster, &["REPLACE INTO t (v, w) VALUES (?, 1)"]);
    check_keys(&cluster);
    assert_eq!(cluster.connect(1).lines("SELECT COUNT(*) FROM t"), [KEYS.to_string()]);
}
