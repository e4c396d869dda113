//! `COUNT(*)`: computed by the data nodes if nothing else of the rows is needed, with the same result as by reading
//! them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vinga_sql_tests::oracle::{Oracle, Said};
use vinga_sql_tests::{Session, TestCluster, environment};

/// Default number of statements for a seed (`VINGA_QUERIES`).
const STATEMENTS: u64 = 1_500;

fn fill(session: &mut Session, rows: u32) {
    session.query(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT, pad VARCHAR(20) NOT NULL, KEY (k), UNIQUE KEY (v)) ENGINE=VINGA",
    );
    session.query(&format!("INSERT INTO t SELECT seq, seq % 100, seq, 'pad' FROM seq_1_to_{rows}"));
}

#[test]
fn a_count_is_one_round_trip_and_brings_no_rows() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s, 20_000);
    s.query("CREATE VIEW seen AS SELECT id, k FROM t");
    let counts = [
        "SELECT COUNT(*) FROM t",
        "SELECT COUNT(1), COUNT(id), COUNT(*) + 1 FROM t",
        "SELECT COUNT(k) FROM t HAVING COUNT(*) > 5",
        "SELECT COUNT(*) FROM seen",
        "SELECT COUNT(*) FROM (SELECT * FROM t) d",
        "SELECT 5 + (SELECT COUNT(*) FROM t)",
        "SELECT COUNT(*) FROM t UNION SELECT 3",
    ];
    for count in counts {
        let trips = s.growth("round_trips", count);
        assert!((1..=3).contains(&trips), "{trips} round trips of {count}");
        assert!(s.growth("counts", count) >= 1, "the data nodes do not count: {count}");
        assert_eq!(s.growth("scanned_rows", count), 0, "{count}");
        assert!(s.lines(count)[0].starts_with("2000"), "{count}");
    }
    assert_eq!(s.growth("round_trips", "SELECT COUNT(*) FROM t"), 1);
    assert_eq!(s.growth("round_trips", "EXPLAIN SELECT COUNT(*) FROM t"), 0, "it counts nothing");
    // Includes its own changes, some of which were not sent yet.
    s.query("BEGIN");
    s.query("INSERT INTO t VALUES (30001, 1, NULL, ''), (30002, 1, NULL, '')");
    s.query("DELETE FROM t WHERE id = 7");
    s.query("UPDATE t SET k = k + 1 WHERE id < 50");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["20001"]);
    assert_eq!(cluster.connect(0).lines("SELECT COUNT(*) FROM t"), ["20000"]);
    s.query("SAVEPOINT a");
    s.query("DELETE FROM t WHERE k = 50");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["19800"]);
    s.query("ROLLBACK TO a");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["20001"]);
    s.query("ROLLBACK");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["20000"]);
    s.query("TRUNCATE TABLE t");
    assert_eq!(s.lines("SELECT COUNT(*), COUNT(id) FROM t"), ["0 0"]);
}

/// Other results of a query come from the same rows as the number.
#[test]
fn other_sums_are_of_the_rows_that_are_counted() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s, 1000);
    for (query, row) in [
        ("SELECT COUNT(*), SUM(id) FROM t", "1000 500500"),
        ("SELECT COUNT(*), MIN(id), MAX(id) FROM t", "1000 1 1000"),
        ("SELECT COUNT(*), COUNT(DISTINCT k) FROM t", "1000 100"),
        ("SELECT COUNT(*), COUNT(v) FROM t", "1000 1000"),
        ("SELECT COUNT(*), BIT_XOR(id) FROM t", "1000 1000"),
        ("SELECT COUNT(*) FROM t WHERE k = 5", "10"),
        ("SELECT COUNT(*) FROM t a JOIN t b ON a.id = b.v", "1000"),
        ("SELECT COUNT(*) FROM t a LEFT JOIN t b ON a.id = b.v + 990", "1000"),
        ("SELECT COUNT(*) FROM t a, t b", "1000000"),
    ] {
        assert_eq!(s.lines(query), [row], "{query}");
    }
    assert!(s.growth("scanned_rows", "SELECT COUNT(*), SUM(id) FROM t") >= 1000, "they are read");
    assert!(s.growth("scanned_rows", "SELECT COUNT(*), COUNT(v) FROM t") >= 1000, "they are read");
}

/// A count by the data nodes is one row, like one that is computed by reading rows.
#[test]
fn found_rows_are_those_of_the_count() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    fill(&mut s, 1000);
    for count in [
        "SELECT COUNT(*) FROM t WHERE k = 5",
        "SELECT SQL_CALC_FOUND_ROWS COUNT(*) FROM t WHERE k > 5",
        "SELECT COUNT(*) FROM t WHERE k > 500",
        "SELECT COUNT(*) FROM t WHERE v > 10 LIMIT 3",
        "SELECT COUNT(*) FROM t",
    ] {
        s.lines("SELECT id FROM t LIMIT 7");
        assert_eq!(s.growth("counts", count), 1, "{count}");
        s.lines("SELECT id FROM t LIMIT 7");
        s.lines(count);
        assert_eq!(s.lines("SELECT FOUND_ROWS()"), ["1"], "{count}");
    }
}

/// Reads under REPEATABLE READ or with a lock prevent others from changing the counted rows.
#[test]
fn what_was_counted_under_locks_stays() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    fill(&mut s, 200);
    let locking = [
        ("REPEATABLE READ", "SELECT COUNT(*) FROM t"),
        ("SERIALIZABLE", "SELECT COUNT(*) FROM t"),
        ("REPEATABLE READ", "SELECT (SELECT COUNT(*) FROM t)"),
        ("REPEATABLE READ", "SET @n = (SELECT COUNT(*) FROM t)"),
        ("READ COMMITTED", "SELECT COUNT(*) FROM t LOCK IN SHARE MODE"),
        ("READ COMMITTED", "SELECT COUNT(*) FROM t FOR UPDATE"),
        ("READ COMMITTED", "SELECT COUNT(*) FROM t FOR UPDATE SKIP LOCKED"),
    ];
    for (level, read) in locking {
        s.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        s.query("BEGIN");
        s.query(read);
        assert_eq!(other.error("DELETE FROM t WHERE id = 9").0, 1205, "{level}: {read}");
        s.query("COMMIT");
    }
    for (level, read) in
        [("READ COMMITTED", "SELECT COUNT(*) FROM t"), ("READ UNCOMMITTED", "SELECT COUNT(*) FROM t")]
    {
        s.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        s.query("BEGIN");
        assert_eq!(s.lines(read), ["200"]);
        other.query("UPDATE t SET k = k + 1 WHERE id = 9");
        s.query("COMMIT");
    }
    // Rows that others have locked are counted, skipped, or waited for.
    other.query("BEGIN");
    other.query("DELETE FROM t WHERE id <= 3");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["200"]);
    assert_eq!(s.lines("SELECT COUNT(*) FROM t FOR UPDATE SKIP LOCKED"), ["197"]);
    assert_eq!(s.error("SELECT COUNT(*) FROM t LOCK IN SHARE MODE").0, 1205);
    other.query("COMMIT");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["197"]);
}

/// A function or a trigger may change the rows while the statement is executed.
#[test]
fn what_the_statement_itself_changes_is_counted_when_it_is_asked_for() {
    let cluster = TestCluster::start(1);
    let sql_node = &cluster.sql_nodes[0];
    let mut oracle = Oracle::new(|| sql_node.connect().expect("it answers"));
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO u VALUES (1, 0), (2, 0), (3, 0)",
        "CREATE FUNCTION one_more() RETURNS INT BEGIN INSERT INTO t (v) VALUES (0); RETURN (SELECT COUNT(*) FROM t); END",
        "CREATE FUNCTION how_many() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t)",
        "CREATE PROCEDURE twice() BEGIN SELECT COUNT(*) FROM t; INSERT INTO t (v) VALUES (7); SELECT COUNT(*) FROM t; END",
    ] {
        oracle.good(statement);
    }
    for statement in [
        "SELECT one_more(), how_many(), one_more(), how_many()",
        "SELECT one_more() + (SELECT COUNT(*) FROM t)",
        "SELECT IF(one_more() > 0, (SELECT COUNT(*) FROM t), 0)",
        "SELECT COUNT(*) FROM t HAVING COUNT(*) < how_many() + 5",
        "CREATE TRIGGER more BEFORE UPDATE ON u FOR EACH ROW INSERT INTO t (v) VALUES (NEW.id)",
        "UPDATE u SET v = IF(id = 1, 0, (SELECT COUNT(*) FROM t))",
        "SELECT * FROM u ORDER BY id",
        "UPDATE u SET v = (SELECT COUNT(*) FROM t) ORDER BY id",
        "SELECT * FROM u ORDER BY id",
        "INSERT INTO t (v) SELECT COUNT(*) FROM t",
        "INSERT INTO t (v) VALUES ((SELECT COUNT(*) FROM u)), ((SELECT COUNT(*) FROM u) + 1)",
        "INSERT INTO t (v) VALUES ((SELECT COUNT(*) FROM t x)), ((SELECT COUNT(*) FROM t x))",
        "DELETE FROM t WHERE v = (SELECT COUNT(*) FROM u)",
        "UPDATE t SET v = v + (SELECT COUNT(*) FROM u) WHERE v < (SELECT COUNT(*) FROM u)",
        "SELECT id, v FROM t ORDER BY id",
        "PREPARE p FROM 'SELECT COUNT(*) FROM t'",
        "EXECUTE p",
        "INSERT INTO t (v) VALUES (1)",
        "EXECUTE p",
        "DELETE FROM t",
        "EXECUTE p",
        "SELECT u.id, (SELECT COUNT(*) FROM t), (SELECT COUNT(*) + u.id FROM t) FROM u ORDER BY u.id",
        "SELECT COUNT(*) OVER () FROM u",
        "SELECT COUNT(*), SUM(COUNT(*)) OVER () FROM u",
        "SELECT id, COUNT(*) FROM u WHERE id = 2",
        "CREATE TABLE counted SELECT COUNT(*) AS n FROM u",
        "SELECT * FROM counted",
        "CREATE TABLE h (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO h VALUES (1, 1), (2, 2)",
        "UPDATE h SET v = 5",
        "DELETE FROM h WHERE id = 2",
        "SELECT COUNT(*) FROM h",
        "SELECT COUNT(*) FROM h FOR SYSTEM_TIME ALL",
    ] {
        oracle.same_but_numbers(statement);
    }
    let [ours, theirs] = ["ours", "theirs"].map(|_| oracle.same("SELECT one_more()"));
    assert_ne!(ours, theirs, "it grows");
}

#[test]
fn random_statements_count_as_innodb_does() {
    let cluster = TestCluster::start(1);
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let sql_node = &cluster.sql_nodes[0];
    let mut oracle = Oracle::new(|| sql_node.connect().expect("it answers"));
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, k INT, KEY (k))");
    oracle.good("CREATE TABLE u (id INT, UNIQUE KEY (id))");
    let mut is_open = false;
    for _ in 0..environment::number("VINGA_QUERIES").unwrap_or(STATEMENTS) {
        let (id, k) = (random.u32(0..60), random.u32(0..10));
        let statement = match random.u8(..20) {
            0..4 => format!("INSERT IGNORE INTO t VALUES ({id}, {k})"),
            4 => format!("REPLACE INTO t VALUES ({id}, {k}), ({}, {k})", id + 1),
            5 => format!("DELETE FROM t WHERE id = {id} OR k = {k}"),
            6 => format!("UPDATE IGNORE t SET id = id + {k} WHERE id = {id}"),
            7 => format!("INSERT IGNORE INTO u VALUES ({id}), (NULL)"),
            8 => format!("DELETE FROM u WHERE id < {id} LIMIT 3"),
            9 if is_open => ["COMMIT", "ROLLBACK", "SAVEPOINT s"][random.usize(..3)].to_owned(),
            9 => "BEGIN".to_owned(),
            10..15 => "SELECT COUNT(*) FROM t".to_owned(),
            15 => "SELECT COUNT(*), COUNT(id), COUNT(k) FROM t".to_owned(),
            16 => "SELECT COUNT(*), COUNT(id) FROM u".to_owned(),
            17 => "SELECT COUNT(*) FROM t, u".to_owned(),
            18 => "SELECT (SELECT COUNT(*) FROM t) - (SELECT COUNT(*) FROM u)".to_owned(),
            _ => format!("SELECT COUNT(*) FROM t WHERE k > {k}"),
        };
        match statement.as_str() {
            "BEGIN" => is_open = true,
            "COMMIT" | "ROLLBACK" => is_open = false,
            _ => {}
        }
        let said = oracle.same(&statement);
        assert!(matches!(said, Said::Good(..)), "{statement}: {said:?}");
    }
    oracle.good("ROLLBACK");
}

/// A statement that counts again and again is killed, during one of its waits or between them.
#[test]
fn counting_can_be_killed() {
    let cluster = TestCluster::start(1);
    let mut killer = cluster.connect(0);
    fill(&mut killer, 50_000);
    let forever = "BEGIN NOT ATOMIC DECLARE n INT; WHILE 1 DO SELECT COUNT(*) INTO n FROM t; END WHILE; END";
    for _ in 0..5 {
        let mut victim = cluster.connect(0);
        let id = victim.lines("SELECT CONNECTION_ID()").remove(0);
        let number = thread::scope(|scope| {
            let running = scope.spawn(|| victim.error(forever).0);
            // The server ignores a kill that arrives when a statement of the program has just returned its result.
            while !running.is_finished() {
                thread::sleep(Duration::from_millis(50));
                killer.query(&format!("KILL QUERY {id}"));
            }
            running.join().expect("it ends with an error")
        });
        assert_eq!(number, 1317);
        assert_eq!(victim.lines("SELECT COUNT(*) FROM t"), ["50000"]);
    }
    let timed = format!(
        "SET STATEMENT max_statement_time = 0.2 FOR {}",
        "SELECT COUNT(*) FROM t a, t b WHERE a.v + b.v < 0"
    );
    assert_eq!(killer.error(&timed).0, 1969);
}

/// Stops the writers, even if the reader panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of rows stays the same while rows are changed, move in an index, and are added and removed by
/// transactions that are undone.
#[test]
fn counts_are_right_while_others_write() {
    const ROWS: u32 = 3000;
    let cluster = TestCluster::start(1);
    let mut reader = cluster.connect(0);
    fill(&mut reader, ROWS);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = End(&is_over);
        for writer in 0..2 {
            let (mut session, is_over) = (cluster.connect(0), &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer);
                while !is_over.load(Ordering::Relaxed) {
                    let id = random.u32(1..=ROWS / 2) * 2 - u32::from(writer == 0);
                    match random.u8(..3) {
                        0 => {
                            session.query(&format!("UPDATE t SET k = k + 1 WHERE id = {id}"));
                        }
                        1 => {
                            let length = random.u32(..20);
                            session
                                .query(&format!("UPDATE t SET pad = REPEAT('x', {length}) WHERE id = {id}"));
                        }
                        _ => {
                            session.query("BEGIN");
                            session.query(&format!("INSERT INTO t VALUES ({}, 1, NULL, '')", id + 10_000));
                            session.query(&format!("DELETE FROM t WHERE id = {id}"));
                            session.query("ROLLBACK");
                        }
                    }
                }
            });
        }
        for _ in 0..500 {
            assert_eq!(reader.lines("SELECT COUNT(*) FROM t"), [ROWS.to_string()]);
        }
        drop(end);
    });
}
