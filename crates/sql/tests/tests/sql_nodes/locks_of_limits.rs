//! The rows that statements with a `LIMIT` lock: about those that they return or change.

use std::thread;
use std::time::Duration;
use vinga_sql_tests::{Session, TestCluster};

/// Number of rows in the table.
const ROWS: u64 = 3000;

/// Jobs that wait (their `state` is 0), each in one of five lanes, with a text.
fn fill(session: &mut Session) {
    session.query(
        "CREATE TABLE q (id INT PRIMARY KEY, state INT NOT NULL, lane INT NOT NULL, v INT, note VARCHAR(20), KEY (lane, id)) \
         ENGINE=VINGA",
    );
    session.query(&format!(
        "INSERT INTO q SELECT seq, 0, seq % 5, seq, CONCAT('job ', seq) FROM seq_1_to_{ROWS}"
    ));
    // Before the server knows their number it prefers to sort them.
    let known = "SELECT table_rows FROM information_schema.tables WHERE table_name = 'q'";
    while session.lines(known) != [ROWS.to_string()] {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Number of the table's rows that any transaction has locked; of very many some are not listed.
fn locked(session: &mut Session) -> u64 {
    let count = "SELECT COUNT(DISTINCT partition_id, page, slot) FROM information_schema.vinga_locks \
                 WHERE table_name LIKE '%q'";
    session.lines(count)[0].parse().expect("a number")
}

/// Runs a statement in a transaction that is rolled back; returns how many rows it has locked.
fn locked_by(session: &mut Session, other: &mut Session, statement: &str) -> u64 {
    session.query("BEGIN");
    session.query(statement);
    let count = locked(other);
    session.query("ROLLBACK");
    count
}

#[test]
fn no_more_rows_are_locked_than_are_wanted() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s);
    // So that reads take locks too.
    s.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    s.query("CREATE VIEW waiting AS SELECT * FROM q WHERE state = 0");
    let keys: Vec<String> = (1..=500).map(|id| id.to_string()).collect();
    let keys = keys.join(", ");
    let exact = [
        ("SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE", 1),
        ("SELECT id FROM q WHERE state = 0 LIMIT 1 FOR UPDATE", 1),
        ("SELECT id FROM q ORDER BY id DESC LIMIT 7 FOR UPDATE", 7),
        ("SELECT id FROM q ORDER BY id LIMIT 5, 3 LOCK IN SHARE MODE", 8),
        ("SELECT id FROM q WHERE id > 100 AND v > 200 ORDER BY id LIMIT 3 FOR UPDATE", 3),
        ("SELECT id FROM q WHERE lane = 3 AND state = 0 ORDER BY lane, id LIMIT 2 FOR UPDATE", 2),
        ("SELECT id FROM q FORCE INDEX (lane) WHERE lane IN (2, 4) AND state = 0 LIMIT 4 FOR UPDATE", 4),
        ("SELECT id FROM waiting ORDER BY id LIMIT 2 FOR UPDATE", 2),
        ("SELECT id FROM waiting LIMIT 2", 2),
        ("SELECT MIN(id), MAX(id) FROM q FOR UPDATE", 2),
        ("UPDATE q SET state = 1 WHERE state = 0 ORDER BY id LIMIT 3", 3),
        ("UPDATE q SET state = 1 WHERE state = 0 LIMIT 200", 200),
        ("UPDATE q SET state = 1 LIMIT 1", 1),
        ("DELETE FROM q WHERE state = 0 ORDER BY id DESC LIMIT 2", 2),
        ("DELETE FROM q LIMIT 5", 5),
        (&format!("SELECT id FROM q WHERE id IN ({keys}) LIMIT 6 FOR UPDATE"), 6),
    ];
    for (statement, rows) in exact {
        assert_eq!(locked_by(&mut s, &mut other, statement), rows, "{statement}");
    }
    // Rows that the SQL node itself filters out are locked before that, a few more at a time.
    let own = "SELECT id FROM q WHERE note LIKE '%9' ORDER BY id LIMIT 1 FOR UPDATE";
    let count = locked_by(&mut s, &mut other, own);
    assert!((9..=16).contains(&count), "{count}: the ninth row is in the third portion");
    // All rows are needed if no key has the order.
    let count = locked_by(&mut s, &mut other, "SELECT id FROM q ORDER BY v DESC LIMIT 1 FOR UPDATE");
    assert!(count >= 500, "{count}");
    assert_eq!(s.lines("SELECT COUNT(*), SUM(state) FROM q"), [format!("{ROWS} 0")]);
}

/// Limits of prepared statements and procedures are known only when they run, and differ each time.
#[test]
fn a_limit_may_be_given_later() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s);
    s.query("PREPARE take FROM 'SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT ? FOR UPDATE'");
    s.query(
        "CREATE PROCEDURE take(n INT) BEGIN UPDATE q SET state = 1 WHERE state = 0 ORDER BY id LIMIT n; END",
    );
    for rows in [3, 1, 20] {
        s.query(&format!("SET @n = {rows}"));
        assert_eq!(locked_by(&mut s, &mut other, "EXECUTE take USING @n"), rows);
        assert_eq!(locked_by(&mut s, &mut other, &format!("CALL take({rows})")), rows);
    }
}

/// More rows are locked and returned as the server continues, up to the last row.
#[test]
fn what_is_read_on_is_whole() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s);
    for limit in [1, 2, 255, 256, 1500, 5000] {
        let expected: Vec<String> = (1..=ROWS.min(limit)).map(|id| id.to_string()).collect();
        let rows =
            s.lines(&format!("SELECT id FROM q WHERE note LIKE 'job%' ORDER BY id LIMIT {limit} FOR UPDATE"));
        assert_eq!(rows, expected);
        let rows = s.lines(&format!(
            "SELECT COUNT(*), SUM(id), MAX(v) FROM q WHERE note LIKE 'job%' LIMIT {limit} FOR UPDATE"
        ));
        assert_eq!(rows, [format!("{ROWS} {} {ROWS}", ROWS * (ROWS + 1) / 2)]);
    }
    let join = "SELECT COUNT(*) FROM q a JOIN q b ON b.lane = a.id WHERE a.id < 5 LIMIT 1 FOR UPDATE";
    assert_eq!(s.lines(join), [(ROWS / 5 * 4).to_string()]);
    s.query("UPDATE q SET id = id + 10000 WHERE note LIKE '%7' ORDER BY id LIMIT 150");
    let moved = s.lines("SELECT COUNT(*), MIN(id), MAX(id) FROM q WHERE id > 10000");
    assert_eq!(moved, ["150 10007 11497"]);
    s.query("DELETE FROM q WHERE note LIKE '%7' ORDER BY id LIMIT 151");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(id) FROM q WHERE note LIKE '%7'"), ["149 10017"]);
}

/// Workers that each take a job, do it and take the next: a worker that finds a job taken waits only for that one, and
/// no job is done twice.
#[test]
fn a_queue_is_worked_off() {
    const WORKERS: u32 = 4;
    let cluster = TestCluster::start(2);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE q (id INT PRIMARY KEY, state INT NOT NULL, done_by INT) ENGINE=VINGA");
    s.query("CREATE TABLE done (id INT, worker INT, number INT AUTO_INCREMENT PRIMARY KEY) ENGINE=VINGA");
    s.query("INSERT INTO q SELECT seq, 0, NULL FROM seq_1_to_200");
    // While one job is being done, the others are free for workers that select them directly.
    let mut first = cluster.connect(0);
    let mut second = cluster.connect(0);
    first.query("BEGIN");
    assert_eq!(first.lines("SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE"), ["1"]);
    second.query("BEGIN");
    assert_eq!(
        second.lines("SELECT id FROM q WHERE state = 0 AND id > 1 ORDER BY id LIMIT 1 FOR UPDATE"),
        ["2"]
    );
    second.query("UPDATE q SET done_by = 0 WHERE id > 2");
    second.query("ROLLBACK");
    first.query("ROLLBACK");
    thread::scope(|threads| {
        for worker in 0..WORKERS {
            let mut session = cluster.connect(worker as usize % 2);
            threads.spawn(move || {
                let take = "SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE";
                let _ = session.try_query("USE test");
                loop {
                    session.query("BEGIN");
                    let Some(id) = session.lines(take).pop() else { break };
                    session.query(&format!("UPDATE q SET state = 1, done_by = {worker} WHERE id = {id}"));
                    session.query(&format!("INSERT INTO done (id, worker) VALUES ({id}, {worker})"));
                    session.query("COMMIT");
                }
            });
        }
    });
    assert_eq!(s.lines("SELECT COUNT(*), COUNT(DISTINCT id) FROM done"), ["200 200"]);
    assert_eq!(s.lines("SELECT COUNT(*) FROM q WHERE state = 0"), ["0"]);
}
