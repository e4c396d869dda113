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
