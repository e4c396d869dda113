//! Unsupported features are reported, and are not replaced by something similar.

use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster};

const NOT_SUPPORTED: u16 = 1235;

fn warnings(session: &mut Session) -> Vec<String> {
    session.lines("SHOW WARNINGS")
}

#[test]
fn how_long_a_query_wants_to_wait_for_locks() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=VINGA");
    session.query("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB");
    session.query("INSERT INTO t VALUES (1)");
    session.query("CREATE VIEW v AS SELECT * FROM t");
    for wait in ["NOWAIT", "WAIT 5", "SKIP LOCKED"] {
        for locking in [format!("FOR UPDATE {wait}"), format!("LOCK IN SHARE MODE {wait}")] {
            for query in ["SELECT * FROM t", "SELECT * FROM v", "SELECT x.a FROM t AS x JOIN t AS y"] {
                assert_eq!(session.lines(&format!("{query} {locking}")), ["1"], "{query} {locking}");
            }
            session.query(&format!("INSERT INTO i SELECT * FROM t {locking}"));
            session.query(&format!("CREATE TABLE c ENGINE=InnoDB AS SELECT * FROM t {locking}"));
            session.query("DROP TABLE c");
            session.query("DELETE FROM i");
            session.query("LOCK TABLES t WRITE");
            session.query(&format!("SELECT * FROM t {locking}"));
            session.query("UNLOCK TABLES");
        }
    }
    // Here the server itself waits.
    session.query("ALTER TABLE t WAIT 5 ADD COLUMN b INT");
    session.query("LOCK TABLES t WRITE NOWAIT");
    session.query("UNLOCK TABLES");
    session.query("TRUNCATE TABLE t NOWAIT");
    session.query("SET STATEMENT lock_wait_timeout = 5 FOR SELECT * FROM t FOR UPDATE");
    session.query("SET STATEMENT lock_wait_timeout = 5, innodb_lock_wait_timeout = 5 FOR SELECT * FROM t");
}

#[test]
fn keys_over_the_beginning_of_a_value() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let whole = |column: &str| {
        format!("Note 1235 VINGA: a key is over the whole of column '{column}', not over its beginning")
    };
    session.query(
        "CREATE TABLE t (a VARCHAR(100), b VARBINARY(100), c CHAR(20), d VARCHAR(30), \
         KEY a (a(10)), KEY b (b(5), c(3)), KEY d (d(30))) ENGINE=VINGA",
    );
    assert_eq!(warnings(&mut session), ["a", "b", "c"].map(whole));
    session.query("ALTER TABLE t ADD COLUMN e INT");
    assert_eq!(warnings(&mut session), [""; 0]);
    session.query("ALTER TABLE t ADD KEY e (e, d(3))");
    assert_eq!(warnings(&mut session), [whole("d")]);
    session.query("CREATE INDEX d1 ON t (d(1), e)");
    assert_eq!(warnings(&mut session), [whole("d")]);
    session.query("CREATE TABLE l LIKE t");
    assert_eq!(warnings(&mut session), [""; 0]);
    for column in ["VARCHAR(100), UNIQUE KEY (a(10))", "TEXT, KEY (a(10))", "BLOB, KEY (a(10))"] {
        session.error(&format!("CREATE TABLE u (a {column}) ENGINE=VINGA"));
    }
}

#[test]
fn refusals_are_told_without_words_that_are_not_true() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    for (definition, number) in [
        ("a INT, FOREIGN KEY (a) REFERENCES t (a)", NOT_SUPPORTED),
        ("`$a` INT", NOT_SUPPORTED),
        ("a VARCHAR(5000), UNIQUE KEY (a)", NOT_SUPPORTED),
    ] {
        assert_eq!(session.error(&format!("CREATE TABLE t ({definition}) ENGINE=VINGA")).0, number);
        let reported = warnings(&mut session);
        assert_eq!(reported.len(), 1, "{definition}: {reported:?}");
        assert!(reported[0].starts_with("Error 1235 VINGA does not support this yet"), "{reported:?}");
    }
    // Two of the bytes of a key are the length of a value of variable length.
    for (key, bytes) in [("a", 3070), ("a, b", 3068), ("a, c", 3070)] {
        let definition =
            |a| format!("(a VARBINARY({a}), b VARBINARY(8), c BINARY(8), KEY ({key})) ENGINE=VINGA");
        let a = bytes - if key == "a" { 0 } else { 8 };
        let (number, sentence) = session.error(&format!("CREATE TABLE t {}", definition(a + 1)));
        assert_eq!(number, 1071, "{sentence}");
        assert!(sentence.contains(&format!("max key length is {bytes} bytes")), "{sentence}");
        session.query(&format!("CREATE OR REPLACE TABLE r {}", definition(a)));
    }
    // For texts, the sort keys count, which get less room instead.
    let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("it answers"));
    oracle.good("CREATE TABLE t (a VARCHAR(768) CHARACTER SET utf8mb4 PRIMARY KEY)");
    oracle.good("INSERT INTO t VALUES (REPEAT('k', 768))");
}

/// The server itself shortens such a key before it calls an engine.
#[test]
fn a_key_that_is_too_long_is_said_to_be() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    for (column, bytes) in [("a VARCHAR(800) CHARACTER SET utf8mb4", 3200), ("a VARBINARY(5000)", 5000)] {
        let (number, sentence) = session.error(&format!("CREATE TABLE k ({column}, KEY (a)) ENGINE=VINGA"));
        assert_eq!(number, NOT_SUPPORTED, "{sentence}");
        let expected =
            format!("column 'a' only, whose values have up to {bytes} bytes: a key has up to 3072");
        assert!(sentence.contains(&expected), "{sentence}");
    }
}

#[test]
fn a_consistent_snapshot_is_warned_of() {
    let cluster = TestCluster::start(1);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(0));
    session.query("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=VINGA");
    session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT");
    let reported = warnings(&mut session);
    assert!(
        reported.len() == 1 && reported[0].starts_with("Warning 1235 VINGA: there are no consistent"),
        "{reported:?}"
    );
    other.query("INSERT INTO t VALUES (1)");
    assert_eq!(session.lines("SELECT * FROM t"), ["1"], "as the warning states");
    session.query("COMMIT");
    session.query("START TRANSACTION");
    assert_eq!(warnings(&mut session), [""; 0]);
}

/// The data nodes store the server's definition of a table as a whole.
#[test]
fn a_definition_that_is_too_long_is_refused_in_the_servers_words() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let comment = "x".repeat(1000);
    let columns = |from: u32, to: u32, before: &str| {
        let columns = (from..to).map(|n| format!("{before} c{n} INT COMMENT '{comment}'"));
        columns.collect::<Vec<_>>().join(", ")
    };
    let create = |count: u32| format!("CREATE TABLE t ({}) ENGINE=VINGA", columns(0, count, ""));
    // The server itself refuses the longer one.
    for count in [61, 80] {
        let (number, sentence) = session.error(&create(count));
        assert_eq!(number, 1117, "{count} columns: {sentence}");
        assert!(sentence.ends_with("Table definition is too large"), "{count} columns: {sentence}");
    }
    session.query(&create(50));
    let (number, sentence) = session.error(&format!("ALTER TABLE t {}", columns(50, 61, "ADD")));
    assert_eq!(number, 1117, "{sentence}");
    session.query("INSERT INTO t (c0, c49) VALUES (1, 2)");
    assert_eq!(session.lines("SELECT c0, c49 FROM t"), ["1 2"]);
}
