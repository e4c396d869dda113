//! Statements that stand alone when a data node is lost: those that lose nothing with it are not reported as failed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use vinga_sql_tests::data_cluster::DataCluster;
use vinga_sql_tests::{Session, eventually};
use vinga_sqlnode::ScopedSqlNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Sessions of each kind.
const SESSIONS: u32 = 6;
/// Statements of each session after the loss.
const AFTERWARDS: u32 = 50;

/// They have locked rows, or met a duplicate, and changed nothing: their end may fail.
#[test]
fn statements_that_change_nothing_do_not_fail_with_a_data_node() {
    let mut data = DataCluster::start(PROGRAM, &[], None);
    let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
    let connect = || Session::new(node.connect().expect("the SQL node answers"));
    let mut setup = connect();
    setup.query("CREATE DATABASE d");
    setup.query("CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE=VINGA");
    setup.query("USE d");
    setup.query("INSERT INTO d.t SELECT seq, seq FROM seq_0_to_63");
    let (is_lost, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let failed: Vec<String> = thread::scope(|threads| {
        let sessions: Vec<_> = (0..2 * SESSIONS)
            .map(|number| {
                let (mut session, is_lost, begun) = (connect(), &is_lost, &begun);
                threads.spawn(move || {
                    let statement = match number % 2 {
                        0 => format!("SELECT n FROM d.t WHERE id = {number} FOR UPDATE"),
                        _ => format!("INSERT IGNORE INTO d.t VALUES ({number}, 0)"),
                    };
                    let (mut failed, mut left) = (Vec::new(), AFTERWARDS);
                    while left > 0 {
                        if is_lost.load(Ordering::Relaxed) {
                            left -= 1;
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                        match session.try_query(&statement).map(|answer| answer.strings()) {
                            Ok(rows) if number % 2 == 0 => assert_eq!(rows, [[number.to_string()]]),
                            Ok(_) => {}
                            Err(error) => failed.push(format!("{statement}: {error}")),
                        }
                    }
                    failed
                })
            })
            .collect();
        eventually("they are under way", || begun.load(Ordering::Relaxed) > 100 * SESSIONS);
        data.kill(2);
        is_lost.store(true, Ordering::Relaxed);
        sessions.into_iter().flat_map(|session| session.join().expect("it has ended")).collect()
    });
    assert_eq!(failed, [""; 0]);
    assert_eq!(setup.lines("SELECT COUNT(*), SUM(n) FROM d.t"), ["64 2016"]);
}

/// Rows of each session in the test below.
const ROWS: u32 = 40;

/// The last rows of a statement change nothing, but its earlier ones do, and go with the same request: what was
/// acknowledged is there.
#[test]
fn statements_whose_last_rows_change_nothing_are_acknowledged_when_the_others_are_there() {
    let mut data = DataCluster::start(PROGRAM, &[], None);
    let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
    let connect = || Session::new(node.connect().expect("the SQL node answers"));
    let mut setup = connect();
    setup.query("CREATE DATABASE d");
    setup.query("CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE=VINGA");
    setup.query("USE d");
    setup.query(&format!("INSERT INTO d.t SELECT seq, 0 FROM seq_0_to_{}", 2 * SESSIONS * ROWS - 1));
    let (is_lost, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let wrong: Vec<String> = thread::scope(|threads| {
        let sessions: Vec<_> = (0..2 * SESSIONS)
            .map(|number| {
                let (mut session, is_lost, begun) = (connect(), &is_lost, &begun);
                threads.spawn(move || {
                    let first = number * ROWS;
                    let (mut wrong, mut left, mut n) = (Vec::new(), AFTERWARDS, 0);
                    while left > 0 {
                        if is_lost.load(Ordering::Relaxed) {
                            left -= 1;
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                        n += 1;
                        let rows: Vec<String> =
                            (first..first + ROWS).map(|id| format!("({id}, {n})")).collect();
                        // The row that comes twice is a batch of its own.
                        let statement = match number % 2 {
                            0 => format!(
                                "INSERT INTO d.t VALUES {}, ({first}, {n}) ON DUPLICATE KEY UPDATE n = VALUES(n)",
                                rows.join(", ")
                            ),
                            _ => format!("REPLACE d.t VALUES {}, ({first}, {n})", rows.join(", ")),
                        };
                        if session.try_query(&statement).is_err() {
                            continue;
                        }
                        let range = format!("id BETWEEN {first} AND {}", first + ROWS - 1);
                        let found = session.try_query(&format!("SELECT MIN(n), MAX(n) FROM d.t WHERE {range}"));
                        if let Ok(found) = found.map(|answer| answer.strings())
                            && found != [[n.to_string(), n.to_string()]]
                        {
                            wrong.push(format!("session {number} has written {n}, and reads {found:?}"));
                        }
                    }
                    wrong
                })
            })
            .collect();
        eventually("they are under way", || begun.load(Ordering::Relaxed) > 100 * SESSIONS);
        data.kill(2);
        is_lost.store(true, Ordering::Relaxed);
        sessions.into_iter().flat_map(|session| session.join().expect("it has ended")).collect()
    });
    assert_eq!(wrong, [""; 0]);
}
