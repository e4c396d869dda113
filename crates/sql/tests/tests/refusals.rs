//! What is not supported is said, and nothing is done that is almost the same.

use vinga_sql_tests::TestCluster;

const NOT_SUPPORTED: u16 = 1235;

#[test]
fn how_long_a_query_wants_to_wait_for_locks() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=VINGA");
    session.query("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB");
    session.query("INSERT INTO t VALUES (1)");
    session.query("CREATE VIEW v AS SELECT * FROM t");
    for wish in ["NOWAIT", "WAIT 5", "SKIP LOCKED"] {
        for locking in [format!("FOR UPDATE {wish}"), format!("LOCK IN SHARE MODE {wish}")] {
            for statement in [
                format!("SELECT * FROM t {locking}"),
                format!("SELECT * FROM v {locking}"),
                format!("SELECT * FROM t AS x JOIN t AS y {locking}"),
                format!("INSERT INTO i SELECT * FROM t {locking}"),
                format!("CREATE TABLE c ENGINE=InnoDB AS SELECT * FROM t {locking}"),
            ] {
                let (number, sentence) = session.error(&statement);
                assert_eq!(number, NOT_SUPPORTED, "{statement}: {sentence}");
                assert!(sentence.contains(&wish[..4]), "{statement}: {sentence}");
            }
            session.query(&format!("SELECT * FROM i {locking}"));
            session.query("LOCK TABLES t WRITE");
            assert_eq!(session.error(&format!("SELECT * FROM t {locking}")).0, NOT_SUPPORTED, "{locking}");
            session.query("UNLOCK TABLES");
        }
    }
    // In the middle of a transaction, which goes on.
    session.query("BEGIN");
    session.query("INSERT INTO t VALUES (2)");
    assert_eq!(session.error("SELECT * FROM t FOR UPDATE SKIP LOCKED").0, NOT_SUPPORTED);
    session.query("COMMIT");
    assert_eq!(session.lines("SELECT * FROM t ORDER BY a"), ["1", "2"]);
    // Where the server is the one that waits.
    session.query("ALTER TABLE t WAIT 5 ADD COLUMN b INT");
    session.query("LOCK TABLES t WRITE NOWAIT");
    session.query("UNLOCK TABLES");
    session.query("TRUNCATE TABLE t NOWAIT");
    session.query("SET STATEMENT lock_wait_timeout = 5 FOR SELECT * FROM t FOR UPDATE");
    session.query("SET STATEMENT lock_wait_timeout = 5, innodb_lock_wait_timeout = 5 FOR SELECT * FROM t");
}
