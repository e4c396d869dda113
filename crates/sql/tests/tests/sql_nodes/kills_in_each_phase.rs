//! KILL of statements and of connections, in every phase: they end at once, completely done or not at all, and leave
//! nothing behind.

use std::thread;
use std::time::{Duration, Instant};
use vinga_sql_tests::servers::Servers;
use vinga_sqlnode::{Answer, SqlError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Maximum time until a killed statement ends: far less than its maximum wait for a lock.
const END_MAX: Duration = Duration::from_secs(60);
/// How long the data node lets a statement wait for a lock, in ms.
const WAIT_MS: &str = "600000";

/// If the time before the kill is at least this long, the statement must have begun before it starts.
const LONG: Duration = Duration::from_millis(100);

/// Runs a statement in a separate session and kills it after a while; returns its result.
fn kill(
    servers: &Servers,
    how: &str,
    before: &[&str],
    statement: &str,
    after: Duration,
) -> Result<Answer, SqlError> {
    let mut victim = servers.connect(0);
    let mut killer = servers.connect(0);
    for statement in before {
        victim.query(statement);
    }
    let number = victim.connection().session();
    let (said, took) = thread::scope(|threads| {
        let running = threads.spawn(|| (victim.try_query(statement), Instant::now()));
        if after >= LONG {
            // A kill that arrives before the server has received the statement does not affect it.
            let there = format!(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number} AND command = 'Query'"
            );
            while killer.lines(&there) != ["1"] && !running.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
        }
        thread::sleep(after);
        let killed = Instant::now();
        // It may have ended already.
        let _ = killer.try_query(&format!("KILL {how} {number}"));
        let (said, ended) = running.join().expect("it does not panic");
        (said, ended.saturating_duration_since(killed))
    });
    assert!(took < END_MAX, "{statement} ends {took:?} after KILL {how}: {said:?}");
    if how == "CONNECTION" {
        // The server cleans up after it has closed the connection.
        let there = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number}");
        let began = Instant::now();
        while killer.lines(&there) != ["0"] {
            assert!(began.elapsed() < END_MAX, "{statement} continues after KILL {how}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    if how == "QUERY" {
        // The kill may have arrived just after the statement, and affect the next one.
        let _ = victim.try_query("DO 1");
        assert_eq!(victim.lines("SELECT 1"), ["1"], "{statement}");
        victim.query("ROLLBACK");
    }
    said
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Done,
    /// It got the error that it was killed; so nothing was changed.
    Killed,
    /// The connection was killed, or the kill arrived while the data node was committing.
    Unknown,
}

/// The outcome of a statement that was killed, or was about to be.
#[track_caller]
fn fate(said: &Result<Answer, SqlError>, statement: &str) -> Fate {
    let Err(error) = said else { return Fate::Done };
    match error.number() {
        Some(1317) => Fate::Killed,
        None | Some(1927) => Fate::Unknown,
        Some(1296) if error.to_string().contains("4012") => Fate::Unknown,
        _ => panic!("{statement}: {error}"),
    }
}

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(50), KEY (a)) ENGINE=VINGA";
const ROWS: &str = "INSERT INTO t SELECT seq, seq, REPEAT('x', 50) FROM seq_1_to_5000";

#[test]
fn while_waiting_for_a_row() {
    let servers = Servers::start(PROGRAM, 1, &[("TransactionDeadlockDetectionTimeout", WAIT_MS)]);
    let mut session = servers.connect(0);
    session.query(TABLE);
    session.query(ROWS);
    let before = servers.pools();
    session.query("BEGIN");
    session.query("UPDATE t SET a = 0 WHERE id = 1");
    let waiting = [
        "UPDATE t SET a = 1 WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
        "SELECT * FROM t WHERE id = 1 FOR UPDATE",
        "SELECT * FROM t WHERE a < 100 LOCK IN SHARE MODE",
        "UPDATE t SET a = a + 1",
        "INSERT INTO t VALUES (1, 1, 'x')",
        "INSERT INTO t VALUES (9001, 1, 'x'), (9002, 1, 'x'), (1, 1, 'x'), (9003, 1, 'x')",
        "REPLACE INTO t VALUES (1, 1, 'x')",
    ];
    for (at, statement) in waiting.into_iter().enumerate() {
        for how in ["QUERY", "CONNECTION"] {
            // A statement's rows stay locked until the data node's own wait has ended, so each one uses other rows.
            let own = format!("UPDATE t SET a = 5 WHERE id = {}", 1000 + 2 * at + how.len() % 2);
            for begin in [&[][..], &["BEGIN", &own]] {
                let said = kill(&servers, how, begin, statement, Duration::from_millis(100));
                assert_ne!(fate(&said, statement), Fate::Done, "{statement} can't succeed");
            }
        }
    }
    session.query("COMMIT");
    // No lock is left, and nothing was changed.
    servers.await_rest(&before);
    session.query("UPDATE t SET b = 'y'");
    assert_eq!(session.lines("SELECT COUNT(*), SUM(a) FROM t"), [format!("5000 {}", 5000 * 5001 / 2 - 1)]);
    servers.await_rest(&before);
}

#[test]
fn while_scanning() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session.query(TABLE);
    session.query(ROWS);
    let before = servers.pools();
    let scanning = [
        "SELECT COUNT(*) FROM t x JOIN t y ON x.a < y.a WHERE x.b <> CONCAT(y.b, 'z')",
        "SELECT COUNT(*) FROM t x, t y WHERE x.a + y.a = -1",
        "UPDATE t SET b = (SELECT MAX(y.b) FROM (SELECT * FROM t) y WHERE y.a + t.a = -1)",
    ];
    for statement in scanning {
        for how in ["QUERY", "CONNECTION"] {
            let said = kill(&servers, how, &[], statement, Duration::from_millis(200));
            assert_ne!(fate(&said, statement), Fate::Done, "{statement} is too fast");
        }
    }
    assert_eq!(session.lines("SELECT COUNT(*) FROM t WHERE b IS NULL"), ["0"]);
    servers.await_rest(&before);
}

#[test]
fn while_writing_and_committing() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session.query(TABLE);
    let before = servers.pools();
    let mut random = fastrand::Rng::with_seed(1);
    let (mut good, mut killed) = (0, 0);
    let big = "INSERT INTO t SELECT seq, seq, REPEAT('x', 50) FROM seq_1_to_5000";
    let cases: [(&[&str], &str); 3] =
        [(&[], big), (&["BEGIN", big], "COMMIT"), (&["BEGIN", "INSERT INTO t VALUES (0, 0, '')"], big)];
    for turn in 0..60 {
        let (begin, statement) = cases[turn % 3];
        let how = if turn % 2 == 0 { "QUERY" } else { "CONNECTION" };
        session.query("DELETE FROM t");
        let after = Duration::from_micros(random.u64(0..40_000));
        let said = kill(&servers, how, begin, statement, after);
        let fate = fate(&said, statement);
        let rows = session.lines("SELECT COUNT(*) FROM t");
        // An open transaction is rolled back with its session.
        let expected: &[&str] = match fate {
            _ if turn % 3 == 2 => &["0"],
            Fate::Done => &["5000"],
            Fate::Killed => &["0"],
            Fate::Unknown => &["0", "5000"],
        };
        assert!(expected.contains(&rows[0].as_str()), "{how} {statement}: {said:?}, {rows:?}");
        *if fate == Fate::Done { &mut good } else { &mut killed } += 1;
    }
    println!("{good} went well, {killed} were killed");
    assert!(good > 0 && killed > 0, "{good} succeeded, {killed} were killed");
    servers.await_rest(&before);
}

#[test]
fn while_definitions_change() {
    let servers = Servers::start(PROGRAM, 2, &[]);
    let (mut session, mut other) = (servers.connect(0), servers.connect(1));
    session.query(TABLE);
    session.query(ROWS);
    let mut random = fastrand::Rng::with_seed(2);
    let statements = [
        "ALTER TABLE t ADD COLUMN c INT DEFAULT 5",
        "ALTER TABLE t ADD KEY extra (b)",
        "RENAME TABLE t TO u",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA",
        "CREATE TABLE u ENGINE=VINGA SELECT * FROM t",
    ];
    let (mut good, mut killed) = (0, 0);
    for turn in 0..42 {
        let statement = statements[turn % statements.len()];
        let how = if turn % 2 == 0 { "QUERY" } else { "CONNECTION" };
        let after = Duration::from_micros(random.u64(0..25_000));
        let said = kill(&servers, how, &[], statement, after);
        *if fate(&said, statement) == Fate::Done { &mut good } else { &mut killed } += 1;
        let tables = session.lines("SHOW TABLES");
        // Whatever the outcome of an ALTER, the table and its rows exist.
        assert!(!statement.starts_with("ALTER") || tables == ["t"], "{statement}: {said:?}, {tables:?}");
        assert_eq!(tables, other.lines("SHOW TABLES"), "after KILL {how} {statement}: {said:?}");
        for table in &tables {
            assert!(matches!(table.as_str(), "t" | "u"), "{table} is left of {statement}");
            let count = format!("SELECT COUNT(*) FROM {table}");
            // The interrupted statement may have left its old definition here, which causes one error.
            if let Err(error) = session.try_query(&count) {
                assert_eq!(error.number(), Some(1412), "{count} after {statement}: {error}");
            }
            let rows = session.lines(&count);
            assert_eq!(rows, other.lines(&count), "{statement}");
            let is_whole = rows == ["5000"] || !statement.starts_with("ALTER") && rows == ["0"];
            assert!(is_whole, "{rows:?} in {table} after {statement}");
            other.query(&format!("DROP TABLE {table}"));
        }
        session.query(TABLE);
        session.query(ROWS);
    }
    println!("{good} went well, {killed} were killed");
    assert!(good > 0 && killed > 0, "{good} succeeded, {killed} were killed");
}

/// Whenever a statement that copies a table is interrupted, it ends or is completed; others may change the rows
/// afterwards, though its session does nothing more.
#[test]
fn a_table_is_free_when_its_copy_was_not_made() {
    const TIMES: u32 = 200;
    let servers = Servers::start(PROGRAM, 2, &[]);
    let (mut session, mut other) = (servers.connect(0), servers.connect(1));
    session.query(TABLE);
    session.query("INSERT INTO t SELECT seq, seq, REPEAT('x', 50) FROM seq_1_to_500");
    let copy = "ALTER TABLE t FORCE, ALGORITHM = COPY";
    let began = Instant::now();
    for _ in 0..10 {
        session.query(copy);
    }
    let longest = 1.2 * (began.elapsed() / 10).as_secs_f64();
    let (mut good, mut killed) = (0, 0);
    for time in 1..=TIMES {
        let limit = longest * f64::from(time) / f64::from(TIMES);
        match session.try_query(&format!("SET STATEMENT max_statement_time = {limit:.6} FOR {copy}")) {
            Ok(_) => good += 1,
            Err(error) => {
                assert_eq!(error.number(), Some(1969), "{error}");
                killed += 1;
            }
        }
        let change = "UPDATE t SET a = a + 1 WHERE id = 1";
        // The first use of the new definition may say that it has changed.
        if let Err(error) = other.try_query(change) {
            assert_eq!(error.number(), Some(1412), "{error}");
            other.query(change);
        }
    }
    println!("{good} went well, {killed} were killed");
    assert!(good > 0 && killed > 0, "{good} succeeded, {killed} were killed");
    assert_eq!(session.lines("SELECT COUNT(*), SUM(a) FROM t"), [format!("500 {}", 500 * 501 / 2 + TIMES)]);
    assert_eq!(session.lines("SHOW TABLES"), ["t"]);
}

/// The server opens the new table of `CREATE TABLE … SELECT` before it copies; if the statement is killed at that
/// moment it has cached a definition that stays when the table is dropped again.
#[test]
fn a_name_is_free_when_its_table_was_not_made() {
    const TIMES: u32 = 500;
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    let make = "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA SELECT 1 AS id";
    let began = Instant::now();
    for _ in 0..10 {
        session.query(make);
        session.query("DROP TABLE u");
    }
    // Longer than the statement takes.
    let longest = (began.elapsed() / 10).as_secs_f64();
    let (mut good, mut killed) = (0, 0);
    for time in 1..=TIMES {
        let limit = longest * f64::from(time) / f64::from(TIMES);
        let said = session.try_query(&format!("SET STATEMENT max_statement_time = {limit:.6} FOR {make}"));
        if let Err(error) = said {
            assert_eq!(error.number(), Some(1969), "{error}");
            killed += 1;
            session.query("CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA");
        } else {
            good += 1;
        }
        session.query("DROP TABLE u");
    }
    println!("{good} went well, {killed} were killed");
    assert!(good > 0 && killed > 0, "{good} succeeded, {killed} were killed");
}

/// Statements that change many rows together: all or nothing is done, and all changes that are made are counted.
#[test]
fn while_many_rows_change_together() {
    const ROUNDS: usize = 10;
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session.query(TABLE);
    let before = servers.pools();
    let mut random = fastrand::Rng::with_seed(2);
    let some = "SELECT seq * 2, -1, 'new' FROM seq_1_to_5000";
    // The number of changed rows, as it is reported: a row that replaces another one counts twice.
    let cases = [
        (format!("INSERT IGNORE INTO t {some}"), 2500),
        (format!("REPLACE INTO t {some}"), 7500),
        (format!("INSERT INTO t {some} ON DUPLICATE KEY UPDATE a = -1, b = 'new'"), 7500),
        ("UPDATE t SET a = -1 WHERE id > 100".to_owned(), 4900),
        ("UPDATE t SET a = a + 7".to_owned(), 5000),
        ("UPDATE t SET b = CONCAT('b', a)".to_owned(), 5000),
        ("DELETE FROM t WHERE id > 100".to_owned(), 4900),
        ("UPDATE t x JOIN t y ON x.id = y.id SET x.b = 'x', y.a = 3 WHERE x.id > 4000".to_owned(), 2000),
    ];
    let (mut good, mut killed) = (0, 0);
    for (statement, count) in &cases {
        let all = "SELECT COUNT(*), SUM(a), SUM(CRC32(b)) FROM t";
        session.query("DELETE FROM t");
        session.query(ROWS);
        let old = session.lines(all);
        session.query("BEGIN");
        session.query(statement);
        let new = session.lines(all);
        session.query("ROLLBACK");
        assert_eq!(session.lines(all), old, "{statement}");
        for round in 0..ROUNDS {
            let how = if round % 2 == 0 { "QUERY" } else { "CONNECTION" };
            let said = kill(&servers, how, &[], statement, Duration::from_micros(random.u64(0..30_000)));
            let now = session.lines(all);
            match fate(&said, statement) {
                // The server may answer that no row had to be changed, if it is killed while it estimates a range.
                Fate::Done
                    if statement.contains(" WHERE id > ")
                        && said.as_ref().is_ok_and(|answer| answer.affected == 0) =>
                {
                    assert_eq!(now, old, "{how} {statement}");
                }
                Fate::Done => {
                    assert_eq!(said.as_ref().map(|answer| answer.affected).ok(), Some(*count), "{statement}");
                    assert_eq!(now, new, "{how} {statement}");
                }
                Fate::Killed => assert_eq!(now, old, "{how} {statement}: {said:?}"),
                Fate::Unknown => assert!(now == old || now == new, "{how} {statement}: {said:?}, {now:?}"),
            }
            *if said.is_ok() { &mut good } else { &mut killed } += 1;
            if now != old {
                session.query("DELETE FROM t");
                session.query(ROWS);
            }
        }
    }
    println!("{good} went well, {killed} were killed");
    assert!(killed > 0, "{good} succeeded, {killed} were killed");
    servers.await_rest(&before);
}
