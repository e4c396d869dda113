//! A SQL node that is stopped while others change tables and databases ends cleanly: the work of its engine's own
//! threads ends before the server frees its resources.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use vinga_sql_tests::TestCluster;

const ROUNDS: usize = 10;

#[test]
fn a_server_ends_well_while_others_change_definitions() {
    let mut cluster = TestCluster::start(2);
    let mut stopped = cluster.sql_nodes.pop().expect("there are two");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..2 {
            let (mut session, is_over) = (cluster.connect(0), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    session.query(&format!("CREATE DATABASE d{worker}"));
                    session.query(&format!("CREATE TABLE d{worker}.t (id INT PRIMARY KEY) ENGINE=VINGA"));
                    session.query(&format!("ALTER DATABASE d{worker} COLLATE latin1_bin"));
                    session.query(&format!("RENAME TABLE d{worker}.t TO d{worker}.u"));
                    session.query(&format!("DROP DATABASE d{worker}"));
                }
            });
        }
        let mut logs = Vec::new();
        for _ in 0..ROUNDS {
            stopped.stop().expect("it stops");
            logs.push(stopped.log_tail(60));
            stopped.restart().expect("it starts again");
        }
        is_over.store(true, Ordering::Relaxed);
        for log in logs {
            assert!(!log.contains("signal") && log.contains("Shutdown complete"), "{log}");
        }
    });
}
