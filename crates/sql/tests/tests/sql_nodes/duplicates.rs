//! Duplicate keys: statements that find one have the same results and effects as with InnoDB.

use vinga_sql_tests::data_cluster::DataCluster;
use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster};
use vinga_sqlnode::ScopedSqlNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const DUPLICATE: u16 = 1062;

/// The existing rows; the test inserts five others.
const THERE: [(i32, i32, &str); 3] = [(10, 10, "ten"), (20, 20, "twenty"), (30, 30, "thirty")];
const NEW: [(i32, i32, &str); 5] =
    [(1, 1, "one"), (2, 2, "two"), (3, 3, "three"), (4, 4, "four"), (5, 5, "five")];

type Row = (i32, i32, &'static str);
/// Turns a row into one that conflicts in a key: it also gets the new row before it.
type Conflict = (&'static str, fn(Row, Row) -> Row);

const CONFLICTS: [Conflict; 6] = [
    ("the primary key", |row, _| (20, row.1, row.2)),
    ("a unique number", |row, _| (row.0, 20, row.2)),
    ("a unique text in other letters", |row, _| (row.0, row.1, "TWENTY")),
    ("two keys of two rows", |row, _| (row.0, 10, "thirty")),
    ("the primary key of the same statement", |row, before| (before.0, row.1, row.2)),
    ("a unique key of the same statement", |row, before| (row.0, before.1, row.2)),
];

const STATEMENTS: [(&str, &str); 4] = [
    ("INSERT INTO t", ""),
    ("INSERT IGNORE INTO t", ""),
    ("REPLACE INTO t", ""),
    ("INSERT INTO t", " ON DUPLICATE KEY UPDATE v = v + 100"),
];

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"))
}

fn values(rows: &[Row]) -> String {
    let rows: Vec<String> = rows.iter().map(|(id, u, w)| format!("({id}, {u}, '{w}', 0)")).collect();
    rows.join(", ")
}

fn fill(oracle: &mut Oracle) {
    oracle.good("DELETE FROM t");
    oracle.good(&format!("INSERT INTO t VALUES {}", values(&THERE)));
}

fn statements() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, conflict) in CONFLICTS {
        for at in [0, 2, 4] {
            let mut rows = NEW;
            rows[at] = conflict(rows[at], NEW[(at + 4) % 5]);
            for (begin, end) in STATEMENTS {
                all.push((format!("{name}, row {at}"), format!("{begin} VALUES {}{end}", values(&rows))));
            }
        }
    }
    all
}

const ALL: &str = "SELECT * FROM t ORDER BY id";

#[test]
fn rows_of_one_statement_in_and_out_of_transactions() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE t (id INT PRIMARY KEY, u INT NOT NULL, w VARCHAR(20), v INT, UNIQUE KEY u (u), UNIQUE KEY w (w))",
    );
    let mut failures = 0;
    for (what, statement) in statements() {
        let mut run = |oracle: &mut Oracle| {
            let [ours, theirs] = oracle.ask(&statement);
            assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; {what}: {statement}");
            oracle.same("SHOW WARNINGS");
            failures += u32::from(ours.number() == DUPLICATE);
        };
        fill(&mut oracle);
        run(&mut oracle);
        oracle.good(ALL);
        for end in ["COMMIT", "ROLLBACK"] {
            fill(&mut oracle);
            oracle.good("BEGIN");
            oracle.good("INSERT INTO t VALUES (50, 50, 'fifty', 1)");
            run(&mut oracle);
            oracle.good(ALL);
            oracle.good("INSERT INTO t VALUES (60, 60, 'sixty', 1)");
            oracle.good(end);
            oracle.good(ALL);
        }
    }
    // A plain INSERT fails each time, in three contexts.
    assert_eq!(failures, 6 * 3 * 3, "of {}", statements().len());
}

#[test]
fn updates_and_rows_that_are_selected() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE t (id INT PRIMARY KEY, u INT NOT NULL, w VARCHAR(20), v INT, UNIQUE KEY u (u), UNIQUE KEY w (w))",
    );
    oracle.good("CREATE TABLE more (id INT PRIMARY KEY, u INT, w VARCHAR(20), v INT)");
    oracle.good(&format!("INSERT INTO more VALUES {}, (20, 21, 'x', 0), (21, 22, 'y', 0)", values(&NEW)));
    let statements = [
        "UPDATE t SET u = 20 WHERE id = 10",
        "UPDATE t SET w = 'Thirty' WHERE id = 10",
        "UPDATE t SET id = 30 WHERE id = 20",
        "UPDATE t SET id = id + 10 ORDER BY id",
        "UPDATE t SET id = id + 10 ORDER BY id DESC",
        "UPDATE t SET u = u + 10 ORDER BY u",
        "UPDATE t SET u = u + 10 ORDER BY u DESC",
        "UPDATE IGNORE t SET u = 20",
        "UPDATE IGNORE t SET id = 20 WHERE id = 10",
        "UPDATE IGNORE t SET id = 99, u = 20 WHERE id = 30",
        "UPDATE IGNORE t SET id = id + 10 ORDER BY id",
        "UPDATE IGNORE t, more SET t.id = 30, more.v = more.v + 1 WHERE t.id = 10 AND more.id = 1",
        "INSERT IGNORE INTO t VALUES (10, 11, 'a', 0), (12, 12, 'b', 0) ON DUPLICATE KEY UPDATE id = 20",
        "UPDATE t SET u = u",
        "INSERT INTO t SELECT * FROM more ORDER BY id",
        "INSERT IGNORE INTO t SELECT * FROM more ORDER BY id",
        "REPLACE INTO t SELECT * FROM more ORDER BY id",
        "INSERT INTO t SELECT * FROM more ORDER BY more.id ON DUPLICATE KEY UPDATE t.u = t.u + 1000",
        "INSERT INTO t VALUES (10, 11, 'a', 0) ON DUPLICATE KEY UPDATE id = 20",
        "INSERT INTO t VALUES (11, 10, 'a', 0), (12, 12, 'ten', 0) ON DUPLICATE KEY UPDATE u = VALUES(id), v = 5",
    ];
    for statement in statements {
        for surroundings in [["", ""], ["BEGIN", "COMMIT"], ["BEGIN", "ROLLBACK"]] {
            fill(&mut oracle);
            let [begin, end] = surroundings;
            if !begin.is_empty() {
                oracle.good(begin);
            }
            oracle.same(statement);
            oracle.same("SHOW WARNINGS");
            oracle.good(ALL);
            if !end.is_empty() {
                oracle.good(end);
                oracle.good(ALL);
            }
        }
    }
}

/// Rows in which the bytes of NULL values differ from those of other rows.
#[test]
fn an_unchanged_row_with_null_counts_as_unchanged() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE n (id INT PRIMARY KEY, i INT, d INT DEFAULT 5, s VARCHAR(20), c CHAR(8) DEFAULT 'x', \
         t TIME(3), e DECIMAL(20, 5), b TEXT, w VARCHAR(300) DEFAULT 'somewhat')",
    );
    oracle.good("INSERT INTO n VALUES (1, 1, 1, 'a', 'a', '1:2:3', 5.5, 'text', 'w')");
    oracle.good("INSERT INTO n (id) VALUES (3)");
    oracle.good("INSERT INTO n VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)");
    for column in ["i", "d", "s", "c", "t", "e", "b", "w"] {
        oracle.good("SELECT * FROM n WHERE id = 1");
        oracle.good(&format!(
            "INSERT INTO n (id) VALUES (1), (2), (3) ON DUPLICATE KEY UPDATE {column} = {column}"
        ));
        oracle.good(&format!("INSERT INTO n (id) VALUES (2) ON DUPLICATE KEY UPDATE {column} = NULL"));
        oracle.good(&format!("UPDATE n SET {column} = {column}"));
        oracle.good(&format!(
            "INSERT INTO n SELECT * FROM n ON DUPLICATE KEY UPDATE n.{column} = VALUES({column})"
        ));
        oracle.good(&format!("REPLACE INTO n ({column}, id) VALUES (NULL, 2)"));
        oracle.good("INSERT INTO n VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ON DUPLICATE KEY UPDATE i = NULL, d = NULL, s = NULL, c = NULL, t = NULL, e = NULL, b = NULL, w = NULL");
    }
}

/// Duplicates of an `INSERT` are found at the end of the statement, when the server has already counted its rows.
#[test]
fn a_call_counts_no_rows_of_a_statement_that_has_failed() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, v INT)");
    oracle.good("INSERT INTO t VALUES (1, 1)");
    let go_on = "DECLARE CONTINUE HANDLER FOR 1062 SET @reported = ROW_COUNT();";
    let bodies = [
        "INSERT INTO t VALUES (5, 5), (1, 1);",
        "INSERT INTO t VALUES (6, 6); INSERT INTO t VALUES (1, 1);",
        "INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (7, 7), (8, 8);",
        "UPDATE t SET v = v + 1; INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); SET @reported = CONCAT(@reported, ' ', ROW_COUNT());",
        "INSERT IGNORE INTO t VALUES (1, 1), (9, 9); REPLACE INTO t VALUES (1, 5); DELETE FROM t WHERE id = 9;",
    ];
    for (number, body) in bodies.iter().enumerate() {
        oracle.good(&format!("CREATE PROCEDURE p{number}() BEGIN {go_on} {body} END"));
    }
    let ends = "DECLARE EXIT HANDLER FOR 1062 INSERT INTO t VALUES (90, 0);";
    oracle.good(&format!(
        "CREATE PROCEDURE p5() BEGIN {ends} INSERT INTO t VALUES (91, 1), (92, 1), (1, 1); END"
    ));
    for begin in ["DO 1", "BEGIN"] {
        oracle.good(begin);
        for number in 0..=bodies.len() {
            oracle.good(&format!("CALL p{number}()"));
            oracle.good("SELECT ROW_COUNT(), @reported");
            oracle.good("SELECT * FROM t ORDER BY id");
            oracle.good("DELETE FROM t WHERE id > 1");
        }
        oracle.good("COMMIT");
    }
}

/// The server replaces a row in its place if it is in the way in the last unique key, and takes whatever key is named
/// for the first one that is violated: the data nodes' answers may come in any order.
#[test]
fn of_two_rows_in_the_way_the_first_key_decides_with_several_data_nodes() {
    let data = DataCluster::start(PROGRAM, &[], None);
    let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
    let mut session = Session::new(node.connect().expect("the SQL node answers"));
    session.query("CREATE DATABASE d");
    session.query(
        "CREATE TABLE d.t (id INT PRIMARY KEY, b INT, c INT, n INT, UNIQUE (b), UNIQUE (c)) ENGINE=VINGA",
    );
    session.query("INSERT INTO d.t SELECT seq, seq, seq, 0 FROM d.seq_1_to_400");
    for id in (1..200).step_by(2) {
        let new = format!("({}, {id}, {}, 0)", 1000 + id, id + 1);
        session.query(&format!("INSERT INTO d.t VALUES {new} ON DUPLICATE KEY UPDATE n = n + 1"));
        session.query(&format!("INSERT IGNORE INTO d.t VALUES {new}"));
        let said = session.lines("SHOW WARNINGS").join(" ");
        assert!(said.contains("for key 'b'"), "{new}: {said}");
    }
    let counted = session
        .lines("SELECT n, id % 2, COUNT(*) FROM d.t WHERE id <= 200 GROUP BY n, id % 2 ORDER BY n, id % 2");
    assert_eq!(counted, ["0 0 100", "1 1 100"]);
    for id in (1..400).step_by(2) {
        session.query(&format!("REPLACE INTO d.t VALUES ({}, {id}, {}, 7)", 1000 + id, id + 1));
    }
    assert_eq!(session.lines("SELECT COUNT(*), MIN(n), MIN(id), MAX(c - b) FROM d.t"), ["200 7 1001 1"]);
}

/// The server asks for the state of the session also when it has an error of its own, or none at all: that the last
/// failure had cost a transaction, long ago, is not to be taken for the loss of this one.
#[test]
fn an_earlier_failure_costs_a_later_transaction_nothing() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, n INT, KEY (n)) ENGINE=VINGA");
    session.query("CREATE TABLE numbers (id TINYINT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE=VINGA");
    session.query("INSERT INTO t VALUES (1, 7), (2, 7)");
    session.query("INSERT INTO numbers VALUES (127, 0)");
    assert_eq!(session.error("INSERT INTO t VALUES (1, 7)").0, DUPLICATE);
    session.query("BEGIN");
    session.query("INSERT INTO t VALUES (3, NULL)");
    // It meets rows again that it has deleted.
    session.query("DELETE x, y FROM t x JOIN t y ON x.n = y.n");
    assert_eq!(session.lines("SELECT @@in_transaction"), ["1"]);
    session.query("COMMIT");
    assert_eq!(session.lines("SELECT id FROM t"), ["3"]);
    assert_eq!(session.error("INSERT INTO t VALUES (3, 1)").0, DUPLICATE);
    session.query("BEGIN");
    session.query("INSERT INTO t VALUES (5, 5)");
    session.error("INSERT INTO numbers (n) VALUES (1)");
    session.query("INSERT INTO t VALUES (6, 6)");
    session.query("ROLLBACK");
    assert_eq!(session.lines("SELECT id FROM t"), ["3"]);
}
