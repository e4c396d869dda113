//! Very many connections at one SQL node.

use std::thread;
use std::time::{Duration, Instant};
use vinga_sql_tests::Session;
use vinga_sql_tests::servers::{REST_MAX, Servers};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");
const CONNECTIONS: usize = 500;
/// Number of threads of this test, each with its share of the connections.
const THREADS: usize = 10;

#[test]
fn five_hundred_connections() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session
        .query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, who INT, UNIQUE KEY (who)) ENGINE=VINGA");
    session.query("CREATE TABLE sum (id INT PRIMARY KEY, n INT) ENGINE=VINGA");
    session.query("INSERT INTO sum SELECT seq, 0 FROM seq_0_to_49");
    let before = servers.pools();
    let mut sessions: Vec<Session> = (0..CONNECTIONS).map(|_| servers.connect(0)).collect();
    // All have an open transaction at the same time.
    thread::scope(|threads| {
        for (at, share) in sessions.chunks_mut(CONNECTIONS / THREADS).enumerate() {
            threads.spawn(move || {
                for (place, session) in share.iter_mut().enumerate() {
                    session.query("BEGIN");
                    session.query(&format!("INSERT INTO t (who) VALUES ({})", at * 1000 + place));
                }
            });
        }
    });
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), ["0"]);
    thread::scope(|threads| {
        for share in sessions.chunks_mut(CONNECTIONS / THREADS) {
            threads.spawn(move || {
                for (place, session) in share.iter_mut().enumerate() {
                    // The transactions of all threads conflict here, in the same order.
                    session.query(&format!("UPDATE sum SET n = n + 1 WHERE id = {place}"));
                    session.query("COMMIT");
                }
            });
        }
    });
    assert_eq!(
        session.lines("SELECT COUNT(*), COUNT(DISTINCT who) FROM t"),
        [format!("{CONNECTIONS} {CONNECTIONS}")]
    );
    assert_eq!(session.lines("SELECT COUNT(*), MIN(n), MAX(n) FROM sum"), ["50 10 10"]);
    // Half of them are closed in the middle of a transaction, half without one.
    for session in sessions.iter_mut().step_by(2) {
        session.query("BEGIN");
        session.query("SELECT n FROM sum WHERE id = 7 LOCK IN SHARE MODE");
    }
    drop(sessions);
    servers.await_rest(&before);
    session.query("UPDATE sum SET n = 0");
    // The server ends the threads of closed connections one after another.
    let began = Instant::now();
    loop {
        let at_work = session.lines("SHOW STATUS LIKE 'vinga_sessions'");
        let at_work: usize =
            at_work[0].split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a number");
        if at_work < 10 {
            break;
        }
        assert!(began.elapsed() < REST_MAX, "{at_work} sessions are left");
        thread::sleep(Duration::from_millis(10));
    }
    servers.check_alive();
}
