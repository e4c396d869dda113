//! The data node fails before, during and after statements, temporarily or for good: everything that requires it fails
//! in time, with Vinga's error number and the data node's address, and nothing of an incarnation is visible in the
//! next.

use std::thread;
use std::time::{Duration, Instant};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session};
use vinga_sqlnode::{Answer, SqlError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Runs a statement that must end in time.
#[track_caller]
fn timed(session: &mut Session, statement: &str) -> Result<Answer, SqlError> {
    let began = Instant::now();
    let result = session.try_query(statement);
    assert!(began.elapsed() < HANG_GUARD, "{statement} took {:?}: {result:?}", began.elapsed());
    result
}

/// Runs a statement that must fail in time because of the data node: with error 1296 or 1297, and Vinga's message.
#[track_caller]
fn fails(session: &mut Session, statement: &str) -> String {
    match timed(session, statement) {
        Ok(answer) => panic!("{statement} must fail, but returns {answer:?}"),
        Err(error) => {
            assert!(matches!(error.number(), Some(1296 | 1297)), "{statement}: {error}");
            error.to_string()
        }
    }
}

/// Repeats a statement until it succeeds.
#[track_caller]
fn returns(session: &mut Session, statement: &str) {
    let began = Instant::now();
    while let Err(error) = timed(session, statement) {
        assert!(began.elapsed() < HANG_GUARD, "{statement}: {error}");
        thread::sleep(Duration::from_millis(20));
    }
}

const TABLE: &str =
    "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=VINGA";
const ROWS: &str = "INSERT INTO t (a, b) SELECT seq % 100, REPEAT('x', 100) FROM seq_1_to_20000";

fn fill(session: &mut Session) {
    returns(session, "CREATE DATABASE IF NOT EXISTS test");
    session.query("USE test");
    returns(session, TABLE);
    session.query(ROWS);
}

#[test]
fn before_and_after_statements() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    fill(&mut session);
    let mut fresh = servers.connect(0);
    session.query("PREPARE one FROM 'SELECT b FROM t WHERE id = ?'");
    session.query("EXECUTE one USING 1");
    servers.data.kill();
    let address = servers.data.local_address();
    let statements = [
        "SELECT * FROM t WHERE id = 1",
        "EXECUTE one USING 1",
        "SELECT COUNT(*) FROM t WHERE a = 5",
        "SELECT * FROM t WHERE id = 1 FOR UPDATE",
        "INSERT INTO t (a) VALUES (1)",
        "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')",
        "UPDATE t SET a = 1 WHERE id = 1",
        "DELETE FROM t WHERE a = 7",
        "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA",
        "ALTER TABLE t ADD COLUMN c INT",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "RENAME TABLE t TO u",
        "SELECT * FROM information_schema.vinga_pools",
    ];
    for statement in statements {
        let said = fails(&mut session, statement);
        assert!(said.contains(&address), "{statement}: {said}");
    }
    fails(&mut fresh, "SELECT * FROM t WHERE id = 1");
    fails(&mut fresh, "SELECT * FROM never_seen");
    // These report errors as rows. A table that can't be opened now is not corrupt.
    for statement in ["ANALYZE TABLE t", "CHECK TABLE t", "OPTIMIZE TABLE t"] {
        session.query("FLUSH TABLES");
        let said = session.lines(statement).join("\n");
        assert!(said.contains("4009 'No data node is connected") && said.contains(&address), "{said}");
        assert!(!said.contains("Corrupt"), "{said}");
    }
    // Statements that need no data node continue.
    assert_eq!(session.lines("SELECT 1 + 1"), ["2"]);
    session.query("CREATE TABLE own (id INT PRIMARY KEY) ENGINE=InnoDB");
    session.query("INSERT INTO own VALUES (1)");
    // It comes back, without data.
    servers.data.restart();
    returns(&mut session, TABLE);
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), ["0"]);
    assert_eq!(session.lines("EXECUTE one USING 1"), [""; 0]);
    session.query("INSERT INTO t (a) VALUES (1)");
    assert_eq!(fresh.lines("SELECT id, a FROM t"), ["1 1"], "auto-increment starts again");
    servers.check_alive();
}

#[test]
fn in_the_middle_of_transactions() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    // The other SQL node creates the tables: on this one, open transactions lock them.
    let mut setup = servers.connect(1);
    fill(&mut setup);
    // Transactions that have read, have read with locks, and have written.
    let beginnings = [
        "SELECT a FROM t WHERE id = 1",
        "SELECT a FROM t WHERE id = 2 FOR UPDATE",
        "UPDATE t SET a = 1 WHERE id = 3",
    ];
    let mut sessions: Vec<Session> = beginnings.iter().map(|_| servers.connect(0)).collect();
    for (session, statement) in sessions.iter_mut().zip(beginnings) {
        session.query("BEGIN");
        session.query(statement);
    }
    servers.data.kill();
    fails(&mut sessions[1], "UPDATE t SET a = 2 WHERE id = 2");
    fails(&mut sessions[2], "COMMIT");
    servers.data.restart();
    fill(&mut setup);
    // The transaction that got the error has ended; a new one succeeds.
    for session in &mut sessions[1..] {
        session.query("ROLLBACK");
        returns(session, "SELECT COUNT(*) FROM t");
        session.query("BEGIN");
        session.query("UPDATE t SET b = 'new' WHERE id = 5");
        session.query("COMMIT");
    }
    assert_eq!(setup.lines("SELECT COUNT(*) FROM t WHERE b = 'new'"), ["1"]);
    servers.check_alive();
}

/// Any statement that finds out that a transaction is lost ends the transaction.
#[test]
fn a_transaction_that_is_lost_is_over() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut setup = servers.connect(0);
    let statements = [
        "SELECT * FROM t WHERE id = 1",
        "SELECT * FROM t WHERE id IN (1, 2, 3)",
        "SELECT COUNT(*) FROM t WHERE a BETWEEN 3 AND 5",
        "SELECT COUNT(*) FROM t",
        "SELECT * FROM t WHERE id = 1 FOR UPDATE",
        "INSERT INTO t (id, a) VALUES (30000, 1)",
        "INSERT INTO t (a) VALUES (1), (2)",
        "UPDATE t SET a = 1 WHERE id = 5",
        "UPDATE t SET id = 30001 WHERE id = 5",
        "DELETE FROM t WHERE a = 7",
    ];
    for is_back in [false, true] {
        fill(&mut setup);
        let mut trials = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            let row = at + 100;
            let beginnings = [
                format!("UPDATE t SET b = 'x' WHERE id = {row}"),
                format!("SELECT a FROM t WHERE id = {} FOR UPDATE", row + 100),
            ];
            for beginning in beginnings {
                let mut session = servers.connect(0);
                session.query("BEGIN");
                session.query(&beginning);
                trials.push((session, statement));
            }
        }
        servers.data.kill();
        if is_back {
            servers.data.restart();
        }
        for (session, statement) in &mut trials {
            fails(session, statement);
            let state = session.lines("SELECT @@in_transaction");
            assert_eq!(state, ["0"], "{statement}, back: {is_back}");
        }
        if !is_back {
            servers.data.restart();
        }
    }
    servers.check_alive();
}

/// Each of these has done something in an incarnation of the data node, and continues in the next, which contains a
/// table with the same name and columns: at its end none of its changes may exist.
#[test]
fn transactions_across_two_sessions_fail() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let mut setup = servers.connect(1);
    fill(&mut setup);
    let beginnings = ["SELECT a FROM t WHERE id = 2 FOR UPDATE", "UPDATE t SET a = 1 WHERE id = 3"];
    let mut sessions: Vec<Session> = beginnings.iter().map(|_| servers.connect(0)).collect();
    for (session, statement) in sessions.iter_mut().zip(beginnings) {
        session.query("BEGIN");
        session.query(statement);
    }
    servers.data.kill();
    servers.data.restart();
    fill(&mut setup);
    for (at, session) in sessions.iter_mut().enumerate() {
        let changed = timed(session, &format!("UPDATE t SET b = 'across' WHERE id = {}", at + 10));
        let committed = timed(session, "COMMIT");
        assert!(changed.is_err() || committed.is_err(), "{}: {changed:?}, {committed:?}", beginnings[at]);
    }
    assert_eq!(setup.lines("SELECT COUNT(*) FROM t WHERE b = 'across'"), ["0"]);
    assert_eq!(setup.lines("SELECT COUNT(*) FROM t"), ["20000"]);
}

/// Long statements, in the middle of which the data node is killed.
#[test]
fn during_statements() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut setup = servers.connect(0);
    let long = [
        // The first takes a moment, the others many seconds.
        "ALTER TABLE t ADD COLUMN c INT",
        "SELECT SUM(SLEEP(0.001)) FROM t",
        "INSERT INTO t (a, b) SELECT seq, SLEEP(0.001) FROM seq_1_to_20000",
        "UPDATE t SET a = a + 1 WHERE SLEEP(0.001) = 0",
        "DELETE FROM t WHERE SLEEP(0.001) = 0",
        "SELECT COUNT(*) FROM t x JOIN t y ON x.a = y.a WHERE x.b <> y.b AND SLEEP(0.0001) = 0",
        "CREATE TABLE copy ENGINE=VINGA SELECT id, SLEEP(0.001) FROM t",
    ];
    for (at, statement) in long.into_iter().enumerate() {
        returns(&mut setup, "CREATE DATABASE IF NOT EXISTS test");
        setup.query("USE test");
        returns(&mut setup, "DROP TABLE IF EXISTS t");
        fill(&mut setup);
        let mut session = servers.connect(0);
        let said = thread::scope(|threads| {
            let running = threads.spawn(|| timed(&mut session, statement));
            thread::sleep(Duration::from_millis(if at == 0 { 20 } else { 300 }));
            servers.data.kill();
            running.join().expect("it does not panic")
        });
        // On a fast machine the first has ended by then.
        if at == 0 && said.is_ok() {
            servers.data.restart();
            continue;
        }
        let said = said.expect_err(statement);
        assert!(matches!(said.number(), Some(1296 | 1297 | 1412)), "{statement}: {said}");
        assert_eq!(session.lines("SELECT 1"), ["1"], "the session continues after {statement}");
        servers.data.restart();
    }
    servers.check_alive();
}

/// The data node hangs: its connections stay open, but it does not answer.
#[test]
fn a_data_node_that_is_silent() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    fill(&mut session);
    let before = servers.pools();
    let statements =
        ["SELECT a FROM t WHERE id = 1", "UPDATE t SET a = 7 WHERE id = 2", "SELECT SUM(a) FROM t"];
    let mut sessions: Vec<Session> = statements.iter().map(|_| servers.connect(0)).collect();
    for session in &mut sessions {
        session.query("SELECT a FROM t WHERE id = 3");
    }
    servers.data.silence();
    thread::scope(|threads| {
        for (session, statement) in sessions.iter_mut().zip(statements) {
            threads.spawn(move || fails(session, statement));
        }
    });
    servers.data.wake();
    for session in &mut sessions {
        returns(session, "UPDATE t SET a = 8 WHERE id = 2");
    }
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), ["20000"], "it has lost nothing");
    servers.await_rest(&before);
    servers.check_alive();
}

/// What fails because no data node is there has dropped nothing, triggers neither. The server has those in files.
#[test]
fn a_drop_that_fails_keeps_triggers() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    fill(&mut session);
    session.query("CREATE TRIGGER marks BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 4711");
    let files = ["t.TRG", "marks.TRN"].map(|name| servers.sql_nodes[0].folder().join("data/test").join(name));
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    servers.data.kill();
    for statement in [
        "DROP TABLE t",
        "DROP TABLE IF EXISTS t",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) ENGINE=VINGA",
        "CREATE OR REPLACE TABLE t ENGINE=VINGA SELECT 1 AS a",
        "DROP DATABASE test",
        // A dump would be one without these tables.
        "SHOW TABLES",
        "SHOW FULL TABLES",
        "SHOW TABLE STATUS",
    ] {
        fails(&mut session, statement);
        assert!(files.iter().all(|file| file.exists()), "after {statement}");
    }
    assert!(servers.sql_nodes[0].is_alive());
}

/// A savepoint sends the changes that have waited.
#[test]
fn a_savepoint_of_changes_that_are_lost_says_what_has_happened() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    fill(&mut session);
    session.query(
        "CREATE TABLE s (id INT PRIMARY KEY, v INT, x TIMESTAMP DEFAULT NOW() ON UPDATE NOW()) ENGINE=VINGA",
    );
    session.query("INSERT INTO s (id, v) VALUES (1, 1)");
    session.query("BEGIN");
    session.query("SELECT * FROM s WHERE id = 1 FOR UPDATE");
    // It waits to be sent.
    session.query("UPDATE s SET v = 5 WHERE id = 1");
    servers.data.kill();
    fails(&mut session, "SAVEPOINT a");
    servers.data.restart();
    returns(&mut session, "CREATE DATABASE IF NOT EXISTS test");
    assert!(servers.sql_nodes[0].is_alive());
}
