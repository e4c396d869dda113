//! The optimizer's statistics of a table match its contents, even if a session has just filled it.

use vinga_sql_tests::{Session, TestCluster};

/// The tables of a plan, in its order, each with its estimated number of rows.
fn plan(session: &mut Session, query: &str) -> Vec<(String, u64)> {
    let rows = session.query(&format!("EXPLAIN {query}"));
    rows.iter().map(|row| (row[2].clone(), row[8].parse().expect("rows are a number"))).collect()
}

/// The server has opened these tables and requested their statistics while they were empty.
fn tables(cluster: &TestCluster) -> Session {
    let mut session = cluster.connect(0);
    session
        .query("CREATE TABLE many (id INT PRIMARY KEY, a INT, b VARCHAR(20), KEY (a), KEY (b)) ENGINE=VINGA");
    session.query("CREATE TABLE few (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=VINGA");
    assert_eq!(session.lines("SELECT COUNT(*) FROM few, many WHERE few.a = many.a"), ["0"]);
    session.query("INSERT INTO many SELECT seq, seq % 10, CONCAT('x', seq % 7) FROM seq_1_to_600");
    session.query("INSERT INTO few SELECT seq, seq FROM seq_1_to_12");
    session
}

#[test]
fn rows_of_ranges_are_known_after_a_table_was_filled() {
    let cluster = TestCluster::start(1);
    let mut session = tables(&cluster);
    for (condition, rows) in
        [("a = 3", 60), ("b = 'x3'", 86), ("id BETWEEN 2 AND 30 AND a > 3", 29), ("a BETWEEN 2 AND 3", 120)]
    {
        let plan = plan(&mut session, &format!("SELECT * FROM many WHERE {condition}"));
        assert!((rows / 2..=rows * 2).contains(&plan[0].1), "{condition}: {rows} rows; {plan:?}");
    }
}

#[test]
fn joins_begin_with_the_smaller_table() {
    let cluster = TestCluster::start(1);
    let mut session = tables(&cluster);
    let query = "SELECT COUNT(*) FROM many JOIN few ON few.a = many.a";
    let before = plan(&mut session, query);
    assert_eq!(before[0], ("few".to_owned(), 12), "{before:?}");
    assert_eq!(before[1].0, "many");
    assert!((30..=120).contains(&before[1].1), "each value of many.a has 60 rows; {before:?}");
    // From now on the other table is the smaller one.
    session.query("INSERT INTO few SELECT seq, seq FROM seq_13_to_3000");
    session.query("DELETE FROM many WHERE id > 5");
    let after = plan(&mut session, query);
    assert_eq!(after[0], ("many".to_owned(), 5), "{after:?}");
}

/// Changes by another SQL node are known after some seconds; at once to a session that requests them.
#[test]
fn analyze_asks_at_once() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    here.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=VINGA");
    here.query("INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_12000");
    let rows = |session: &mut Session| plan(session, "SELECT * FROM test.t WHERE a + 1 > 5")[0].1;
    assert_eq!(rows(&mut there), 12_000);
    here.query("INSERT INTO t SELECT seq, seq FROM seq_12001_to_18000");
    let reported = there.lines("ANALYZE TABLE test.t");
    assert_eq!(reported.last().map(String::as_str), Some("test.t analyze status OK"), "{reported:?}");
    assert_eq!(rows(&mut there), 18_000);
}

#[test]
fn tables_that_have_no_ordered_key_have_statistics_too() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    for columns in ["a INT", "a INT, PRIMARY KEY (a) USING HASH", "a INT, UNIQUE (a) USING HASH"] {
        here.query(&format!("CREATE OR REPLACE TABLE t ({columns}) ENGINE=VINGA"));
        let rows = |session: &mut Session| {
            let condition = "table_schema = 'test' AND table_name = 't'";
            session.lines(&format!("SELECT table_rows FROM information_schema.tables WHERE {condition}"))
        };
        assert_eq!(rows(&mut here), ["0"], "{columns}");
        here.query("INSERT INTO t SELECT seq FROM seq_1_to_20000");
        there.query("ANALYZE TABLE test.t");
        assert_eq!(rows(&mut there), ["20000"], "{columns}");
        assert_eq!(plan(&mut there, "SELECT * FROM test.t WHERE a + 1 > 5")[0].1, 20_000, "{columns}");
        here.query("DELETE FROM t WHERE a > 15");
        here.query("ANALYZE TABLE t");
        assert_eq!(rows(&mut here), ["15"], "{columns}");
    }
}
