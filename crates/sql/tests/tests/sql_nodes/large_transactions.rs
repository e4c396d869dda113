//! Statements that change unusually many rows: they fit in a transaction, or are committed in portions, or their error
//! message states what to do.

use vinga_sql_tests::{Session, TestCluster};

/// The number of records in use at the data nodes, in all pools together.
fn used(session: &mut Session) -> Vec<String> {
    session.lines("SELECT SUM(USED) FROM information_schema.VINGA_POOLS")
}

#[test]
fn many_rows_fit_a_transaction() {
    let cluster =
        TestCluster::start_with(1, &[("DataMemory", "256M"), ("MaxNoOfConcurrentOperations", "524288")], &[]);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE KEY (v)) ENGINE=VINGA");
    s.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_70000");
    s.query("BEGIN");
    s.query("UPDATE t SET v = v + 1000000");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(v) FROM t"), ["70000 1000001"]);
    s.query("ROLLBACK");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(v), MAX(v) FROM t"), ["70000 1 70000"]);
    s.query("DELETE FROM t WHERE id > 1");
    assert_eq!(s.lines("SELECT * FROM t"), ["1 1"]);
    assert_eq!(used(&mut s), ["0"]);
}

#[test]
fn larger_transactions_are_refused_with_advice_and_go_in_portions() {
    let cluster = TestCluster::start_with(1, &[("MaxNoOfConcurrentOperations", "8192")], &[]);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE KEY (v)) ENGINE=VINGA");
    let (number, text) = s.error("INSERT INTO t SELECT seq, seq FROM seq_1_to_20000");
    assert_eq!(number, 1296);
    assert!(text.contains("234") && text.contains("MaxNoOfConcurrentOperations"), "{text}");
    assert!(text.contains("vinga_use_transactions=OFF"), "{text}");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["0"]);
    s.query("BEGIN");
    let (number, text) = s.error("INSERT INTO t SELECT seq, seq FROM seq_1_to_20000");
    s.query("ROLLBACK");
    assert!(number == 1296 && !text.contains("vinga_use_transactions"), "not in portions: {text}");
    s.query("SET vinga_use_transactions = OFF");
    s.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_20000");
    for switch in ["ON", "OFF"] {
        s.query(&format!("SET vinga_use_transactions = {switch}"));
        for whole in ["UPDATE t SET v = v + 100000", "DELETE FROM t", "SELECT SUM(v) FROM t FOR UPDATE"] {
            let (number, text) = s.error(whole);
            assert!(number == 1296 && text.contains("MaxNoOfConcurrentOperations"), "{whole}: {text}");
            assert!(!text.contains("vinga_use_transactions"), "it does not help {whole}: {text}");
        }
    }
    s.query("REPLACE INTO t SELECT seq + 1, seq FROM seq_1_to_19999");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(id - v), MAX(id - v) FROM t"), ["19999 1 1"]);
    s.query("INSERT INTO t SELECT id, v FROM t t2 ON DUPLICATE KEY UPDATE v = t.v + 100000");
    assert_eq!(s.lines("SELECT COUNT(*), MIN(v - id) FROM t"), ["19999 99999"]);
    s.query("CREATE TABLE c (PRIMARY KEY (id)) ENGINE=VINGA SELECT * FROM t");
    // The copies of ALTER do not need the variable.
    s.query("SET vinga_use_transactions = ON");
    s.query("ALTER TABLE c ADD COLUMN w INT DEFAULT 7, ALGORITHM=COPY");
    assert_eq!(s.lines("SELECT COUNT(*), SUM(w) FROM c"), ["19999 139993"]);
    // Committed portions stay; changes in a transaction do not.
    s.query("SET vinga_use_transactions = OFF");
    s.query("TRUNCATE t");
    s.query("INSERT INTO t VALUES (15000, 0)");
    assert_eq!(s.error("INSERT INTO t SELECT seq, seq FROM seq_1_to_20000").0, 1062);
    let stayed = s.lines("SELECT COUNT(*) BETWEEN 14000 AND 15000 FROM t");
    assert_eq!(stayed, ["1"]);
    s.query("TRUNCATE t");
    s.query("BEGIN");
    s.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_2000");
    s.query("ROLLBACK");
    assert_eq!(s.lines("SELECT COUNT(*) FROM t"), ["0"]);
    assert_eq!(used(&mut s), ["0"]);
}
