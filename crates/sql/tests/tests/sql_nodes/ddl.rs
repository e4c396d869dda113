//! Definitions: one SQL node changes tables and databases while others use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga_sql_tests::{Session, TestCluster, eventually};

/// Inserts at a SQL node until it is stopped; collects the ids of the acknowledged rows, and other results.
struct Writer {
    stop: Arc<AtomicBool>,
    /// Number of acknowledged rows.
    written: Arc<AtomicUsize>,
    thread: thread::JoinHandle<(Vec<u64>, Vec<String>)>,
}

impl Writer {
    fn start(cluster: &TestCluster, node: usize, table: &'static str, first: u64) -> Self {
        let mut session = cluster.connect(node);
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let thread = thread::spawn(move || {
            let (mut written, mut errors) = (Vec::new(), Vec::new());
            for id in first.. {
                if is_stopped.load(Ordering::Relaxed) {
                    break;
                }
                let statement = format!("INSERT INTO test.{table} (id, v) VALUES ({id}, {id})");
                match session.connection().query(&statement) {
                    Ok(_) => {
                        written.push(id);
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        errors.push(error.to_string());
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            }
            (written, errors)
        });
        Writer { stop, written: count, thread }
    }

    /// Waits until `rows` more rows were acknowledged.
    fn await_rows(&self, rows: usize) {
        let before = self.written.load(Ordering::Relaxed);
        eventually("the writer writes", || self.written.load(Ordering::Relaxed) >= before + rows);
    }

    fn finish(self) -> (Vec<u64>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer does not panic")
    }
}

fn fill(session: &mut Session, table: &str, rows: u32) {
    session.query(&format!("CREATE TABLE {table} (id BIGINT PRIMARY KEY, v BIGINT) ENGINE=VINGA"));
    session.query(&format!("INSERT INTO {table} SELECT seq, seq FROM seq_1_to_{rows}"));
}

#[test]
fn an_alter_that_copies_loses_no_write_of_another_sql_node() {
    let cluster = TestCluster::start(2);
    let mut session = cluster.connect(0);
    fill(&mut session, "t", 20_000);
    let writer = Writer::start(&cluster, 1, "t", 1_000_000);
    for column in ["a", "b", "c"] {
        writer.await_rows(30);
        session.query(&format!("ALTER TABLE t ADD COLUMN {column} INT DEFAULT 5, ALGORITHM=COPY"));
    }
    writer.await_rows(30);
    let (written, errors) = writer.finish();
    // During this time it got the errors that the table is being changed (1297), or has been (1412); no others.
    let others: Vec<&String> =
        errors.iter().filter(|error| !error.contains("1297") && !error.contains("1412")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!errors.is_empty(), "the copy takes long enough for the writer to notice");
    let counted = session.lines("SELECT COUNT(*), SUM(id >= 1000000) FROM t");
    assert_eq!(counted, [format!("{} {}", written.len() + 20_000, written.len())]);
}

#[test]
fn an_alter_that_fails_or_is_killed_lets_others_write_again() {
    let cluster = TestCluster::start(2);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    fill(&mut session, "t", 30_000);
    other.query("UPDATE test.t SET v = 7 WHERE id = 8");
    // A duplicate is found only while rows are copied.
    assert_eq!(session.error("ALTER TABLE t ADD UNIQUE KEY v (v), ALGORITHM=COPY").0, 1062);
    other.query("UPDATE test.t SET v = 8 WHERE id = 8");
    let id = session.connection().session();
    let killer = thread::spawn({
        let mut other = cluster.connect(0);
        move || {
            while other
                .lines("SELECT 1 FROM information_schema.processlist WHERE state LIKE 'copy to tmp%'")
                .is_empty()
            {
                thread::sleep(Duration::from_millis(1));
            }
            other.query(&format!("KILL QUERY {id}"));
        }
    });
    assert_eq!(session.error("ALTER TABLE t ADD COLUMN c INT DEFAULT 5, ALGORITHM=COPY").0, 1317);
    killer.join().expect("the statement was killed");
    other.query("UPDATE test.t SET v = 9 WHERE id = 8");
    assert_eq!(session.lines("SELECT * FROM t WHERE id = 8"), ["8 9"]);
    assert_eq!(session.lines("SHOW TABLES"), ["t"]);
    // ALTER with another name, and to another engine.
    session.query("ALTER TABLE t ADD COLUMN c INT DEFAULT 5, RENAME TO u");
    other.query("UPDATE test.u SET v = 10 WHERE id = 8");
    assert_eq!(other.error("SELECT * FROM test.t").0, 1146);
    session.query("ALTER TABLE u ENGINE=InnoDB");
    assert_eq!(session.lines("SELECT * FROM u WHERE id = 8"), ["8 10 5"]);
    assert_eq!(other.error("SELECT * FROM test.u").0, 1146);
    session.query("ALTER TABLE u ENGINE=VINGA");
    other.query("UPDATE test.u SET v = 11 WHERE id = 8");
    assert_eq!(session.lines("SELECT * FROM u WHERE id = 8"), ["8 11 5"]);
}

/// Another client has a write fence on the table: statements that write to it and retry at once get ever slower errors.
#[test]
fn a_session_that_meets_a_write_fence_repeatedly_backs_off() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    fill(&mut session, "t", 10);
    let other = Cluster::connect(cluster.data_node.as_ref().expect("it runs").address()).expect("it answers");
    let table = other.table("test.t").expect("it exists");
    let writes = [
        "INSERT INTO t VALUES (11, 1)",
        "UPDATE t SET v = 0 WHERE id = 1",
        "REPLACE INTO t VALUES (2, 3), (12, 1)",
        "DELETE FROM t WHERE id = 3",
    ];
    for _ in 0..2 {
        let fence = other.fence_table(&table).expect("no one else has fenced it");
        let began = Instant::now();
        for statement in writes.iter().cycle().take(12) {
            assert_eq!(session.error(statement).0, 1297, "{statement}");
        }
        // Pauses of 1, 2, 4, 8, 16 and then 20 ms.
        let (elapsed, least) = (began.elapsed(), Duration::from_millis(31 + 7 * 20));
        assert!(elapsed >= least, "{elapsed:?}");
        assert_eq!(session.lines("SELECT COUNT(*), SUM(v) FROM t"), ["10 55"], "reads continue");
        fence.lift().expect("the data node answers");
        session.query("UPDATE t SET v = v WHERE id = 1");
        session.query("INSERT INTO t VALUES (100, 1)");
        session.query("DELETE FROM t WHERE id = 100");
    }
}

#[test]
fn databases_are_those_of_the_cluster() {
    let cluster = TestCluster::start(2);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    let has = |session: &mut Session, name: &str| {
        !session.lines(&format!("SHOW DATABASES LIKE '{name}'")).is_empty()
    };
    // A database without tables appears a moment later.
    session.query("CREATE DATABASE `ä-1` CHARACTER SET latin1 COLLATE latin1_bin");
    let collation =
        "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'ä-1'";
    eventually("the database comes", || other.lines(collation) == ["latin1_bin"]);
    // A database with a table appears together with the table.
    session.query("CREATE DATABASE d2 COLLATE utf8mb4_bin");
    session.query("CREATE TABLE d2.t (id INT PRIMARY KEY) ENGINE=VINGA");
    assert_eq!(other.lines("SHOW CREATE DATABASE d2").len(), 1);
    other.query("CREATE TABLE d2.u (v VARCHAR(10)) ENGINE=VINGA");
    assert!(other.lines("SHOW CREATE TABLE d2.u")[0].contains("utf8mb4_bin"));
    session.query("RENAME TABLE d2.u TO `ä-1`.u");
    assert_eq!(other.lines("SHOW TABLES FROM `ä-1`"), ["u"]);
    // It is dropped with the tables that the other SQL node has created, at all SQL nodes.
    session.query("DROP DATABASE d2");
    session.query("DROP DATABASE `ä-1`");
    assert!(!has(&mut other, "d2") && !has(&mut other, "ä-1"));
    assert_eq!(other.error("SELECT * FROM d2.t").0, 1146);
    // Created again it is empty, and has its new options.
    other.query("CREATE DATABASE d2 COLLATE utf8mb4_unicode_ci");
    eventually("the database comes again", || has(&mut session, "d2"));
    // A folder appears before the options in it.
    eventually("with its options", || {
        session.lines("SHOW CREATE DATABASE d2")[0].contains("utf8mb4_unicode_ci")
    });
    assert!(session.lines("SHOW TABLES FROM d2").is_empty());
    // If it contains other objects, it stays.
    session.query("CREATE TABLE d2.local (a INT) ENGINE=InnoDB");
    other.query("DROP DATABASE d2");
    assert_eq!(session.lines("SHOW TABLES FROM d2"), ["local"]);
    assert!(session.lines("SHOW CREATE DATABASE d2")[0].contains("utf8mb4_unicode_ci"));
    assert_eq!(session.error("CREATE TABLE mysql.t (a INT) ENGINE=VINGA").0, 1235);
}

#[test]
fn options_of_databases_are_those_of_the_cluster() {
    let mut cluster = TestCluster::start(2);
    let collation = |session: &mut Session| {
        session
            .lines("SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'd'")
    };
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    session.query("CREATE DATABASE d COLLATE utf8mb4_bin COMMENT 'first'");
    eventually("the database comes", || collation(&mut other) == ["utf8mb4_bin"]);
    // Altered at one SQL node, then at the other, and again.
    for round in 0..3 {
        for wanted in ["latin1_swedish_ci", "utf8mb4_unicode_ci"] {
            session.query(&format!("ALTER DATABASE d COLLATE {wanted} COMMENT 'round {round}'"));
            eventually("the options come", || collation(&mut other) == [wanted]);
            assert!(other.lines("SHOW CREATE DATABASE d")[0].contains(&format!("round {round}")));
            std::mem::swap(&mut session, &mut other);
        }
    }
    // New tables get these options, no matter where they are created.
    session.query("ALTER DATABASE d COLLATE latin1_bin");
    eventually("the options come", || collation(&mut other) == ["latin1_bin"]);
    other.query("CREATE TABLE d.t (v VARCHAR(10)) ENGINE=VINGA");
    assert!(session.lines("SHOW CREATE TABLE d.t")[0].contains("COLLATE=latin1_bin"));
    // Both alter it at the same time: in the end they agree.
    for one in ["utf8mb4_bin", "ucs2_bin", "latin1_bin", "utf8mb3_bin"] {
        session.query(&format!("ALTER DATABASE d COLLATE {one}"));
        other.query("ALTER DATABASE d COLLATE utf8mb4_general_ci");
        thread::sleep(Duration::from_millis(500));
        eventually("they agree", || collation(&mut session) == collation(&mut other));
    }
    // A SQL node that was down during the change has the new options after its restart.
    cluster.sql_nodes[1].stop().expect("it stops");
    let mut session = cluster.connect(0);
    session.query("ALTER DATABASE d COLLATE utf8mb4_nopad_bin");
    let native =
        Cluster::connect(cluster.data_node.as_ref().expect("it runs").address()).expect("it answers");
    let is_told = || {
        String::from_utf8_lossy(&native.database("d").expect("it exists").attachment)
            .contains("utf8mb4_nopad_bin")
    };
    eventually("the data nodes know", is_told);
    cluster.sql_nodes[1].restart().expect("it starts again");
    let mut other = cluster.connect(1);
    eventually("the options come", || collation(&mut other) == ["utf8mb4_nopad_bin"]);
    // Dropped with everything in it.
    session.query("CREATE TABLE d.u (v INT) ENGINE=VINGA");
    other.query("DROP DATABASE d");
    assert!(collation(&mut session).is_empty());
    assert_eq!(native.tables().expect("it answers").iter().filter(|name| name.starts_with("d.")).count(), 0);
}

#[test]
fn statements_about_tables_work_on_two_sql_nodes() {
    let cluster = TestCluster::start(2);
    let (mut a, mut b) = (cluster.connect(0), cluster.connect(1));
    a.query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20), KEY (v)) ENGINE=VINGA");
    a.query("INSERT INTO t (v) SELECT CONCAT('x', seq) FROM seq_1_to_100");
    assert_eq!(b.lines("SELECT COUNT(*) FROM test.t"), ["100"]);
    b.query("USE test");
    // Made again, or not.
    assert_eq!(b.error("CREATE TABLE t (a INT) ENGINE=VINGA").0, 1050);
    b.query("CREATE TABLE IF NOT EXISTS t (a INT) ENGINE=VINGA");
    assert_eq!(b.lines("SELECT COUNT(*) FROM t"), ["100"]);
    b.query("CREATE TABLE l LIKE t");
    a.query("INSERT INTO l (v) VALUES ('one')");
    assert_eq!(b.lines("SELECT * FROM l"), ["1 one"]);
    b.query("CREATE OR REPLACE TABLE l (id INT PRIMARY KEY, w INT) ENGINE=VINGA");
    a.query("INSERT INTO l VALUES (5, 6)");
    assert_eq!(b.lines("SELECT * FROM l"), ["5 6"]);
    b.query("CREATE TABLE s ENGINE=VINGA AS SELECT id, v FROM t WHERE id <= 10");
    assert_eq!(a.lines("SELECT COUNT(*), MAX(id) FROM s"), ["10 10"]);
    b.query(
        "CREATE OR REPLACE TABLE s (PRIMARY KEY (id)) ENGINE=VINGA AS SELECT id, v FROM t WHERE id <= 20",
    );
    assert_eq!(a.lines("SELECT COUNT(*), MAX(id) FROM s"), ["20 20"]);
    // A CREATE that fails in the middle leaves nothing behind.
    assert_eq!(b.error("CREATE TABLE f (PRIMARY KEY (v)) ENGINE=VINGA AS SELECT id % 3 AS v FROM t").0, 1062);
    assert_eq!(a.error("SELECT * FROM f").0, 1146);
    // Truncated by one SQL node, used by the other.
    b.query("TRUNCATE TABLE s");
    a.query("INSERT INTO s VALUES (1, 'again')");
    assert_eq!(b.lines("SELECT * FROM s"), ["1 again"]);
    // Names are exchanged.
    a.query("RENAME TABLE s TO r, l TO s, r TO l");
    assert_eq!(b.lines("SELECT * FROM s"), ["5 6"]);
    assert_eq!(b.lines("SELECT * FROM l"), ["1 again"]);
    assert_eq!(a.error("RENAME TABLE s TO l").0, 1050);
    for statement in ["ANALYZE TABLE t", "CHECK TABLE t", "OPTIMIZE TABLE t"] {
        let reported = b.lines(statement);
        assert!(!reported.iter().any(|line| line.contains("rror")), "{statement}: {reported:?}");
    }
    assert_eq!(a.lines("SELECT COUNT(*) FROM t"), ["100"]);
    // Dropped after another transaction has used it: that transaction ends with the next use.
    a.query("BEGIN");
    a.query("UPDATE t SET v = 'changed' WHERE id = 1");
    b.query("DROP TABLE t");
    let (number, text) = a.error("UPDATE t SET v = 'changed' WHERE id = 2");
    assert!([1146, 1412, 1297].contains(&number), "{number} {text}");
    a.query("ROLLBACK");
    assert_eq!(a.error("SELECT * FROM t").0, 1146);
    a.query("DROP TABLE IF EXISTS t, l, s, nothing");
    assert!(b.lines("SHOW TABLES").is_empty());
}

#[test]
fn values_of_auto_increment_columns_keep_the_step_that_a_session_wants() {
    let cluster = TestCluster::start(2);
    let (mut a, mut b) = (cluster.connect(0), cluster.connect(1));
    a.query("CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE=VINGA");
    b.query("USE test");
    for (session, offset) in [(&mut a, 1), (&mut b, 2)] {
        session.query(&format!("SET auto_increment_increment = 10, auto_increment_offset = {offset}"));
        for _ in 0..20 {
            session.query(&format!("INSERT INTO t (n) VALUES ({offset}), ({offset}), ({offset})"));
        }
    }
    assert_eq!(
        a.lines("SELECT n, COUNT(*), MIN(id % 10), MAX(id % 10) FROM t GROUP BY n"),
        ["1 60 1 1", "2 60 2 2"]
    );
}

#[test]
fn a_lock_on_a_table_holds_in_its_own_sql_node() {
    let cluster = TestCluster::start(2);
    let (mut a, mut b) = (cluster.connect(0), cluster.connect(1));
    fill(&mut a, "t", 10);
    a.query("LOCK TABLES t WRITE");
    a.query("UPDATE t SET v = 100 WHERE id = 1");
    assert_eq!(a.error("SELECT * FROM missing").0, 1100);
    let mut same = cluster.connect(0);
    same.query("SET lock_wait_timeout = 1");
    assert_eq!(same.error("UPDATE t SET v = 5 WHERE id = 2").0, 1205);
    // Other SQL nodes are not blocked.
    b.query("UPDATE test.t SET v = 7 WHERE id = 3");
    a.query("ALTER TABLE t ADD COLUMN c INT DEFAULT 5, ALGORITHM=COPY");
    assert_eq!(a.lines("SELECT * FROM t WHERE id IN (1, 3)"), ["1 100 5", "3 7 5"]);
    a.query("UNLOCK TABLES");
    same.query("UPDATE t SET v = 5 WHERE id = 2");
    b.query("UPDATE test.t SET v = 8 WHERE id = 3");
}

#[test]
fn the_optimizer_knows_where_rows_are_many() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(10), KEY a (a), KEY b (b), KEY s (s)) ENGINE=VINGA");
    // Most rows have the same `a`, and few have one above 1000; for `b` and `s` it is the other way round.
    session.query(
        "INSERT INTO t SELECT seq, IF(seq <= 100, seq + 1000, 1), IF(seq <= 100, 1, seq), IF(seq <= 100, 'few', 'many') \
         FROM seq_1_to_10000",
    );
    let mut key_of = |condition: &str| {
        let row = session.query(&format!("EXPLAIN SELECT SUM(id) FROM t WHERE {condition}"));
        let rows: u64 = row[0][8].parse().expect("a number of rows");
        (row[0][5].clone(), rows)
    };
    // The SQL node requests the number of rows again after a while.
    eventually("the statistics are refreshed", || key_of("a = 1 AND b = 1") == ("b".into(), 100));
    assert_eq!(key_of("a = 1 AND s = 'few'"), ("s".into(), 100));
    assert_eq!(key_of("a > 1000 AND s = 'many'"), ("a".into(), 100));
    assert_eq!(key_of("a BETWEEN 1001 AND 1010 AND b BETWEEN 1 AND 2"), ("a".into(), 10));
    assert_eq!(key_of("a BETWEEN 0 AND 1000 AND b BETWEEN 50 AND 120"), ("b".into(), 20));
}

#[test]
fn a_table_lies_in_as_many_partitions_as_it_asks_for() {
    let cluster =
        TestCluster::start_with(2, &[("NoOfFragmentLogParts", "8"), ("PartitionsPerNode", "2")], &[]);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(1));
    let address = cluster.data_node.as_ref().expect("it runs").address();
    let native = Cluster::connect(address).expect("the data node answers");
    let partitions = || native.table("test.t").expect("it exists").core().partitions().len();
    let sum = |session: &mut Session| {
        session
            .lines("SELECT COUNT(*), SUM(id), MIN(v), MAX(v) FROM test.t FORCE INDEX (PRIMARY) WHERE id > 0")
    };

    session.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE (v)) ENGINE=VINGA");
    session.query("INSERT INTO t SELECT seq, seq * 3 FROM seq_1_to_5000");
    assert_eq!(partitions(), 2, "the default number");
    for count in [1, 3, 8] {
        session.query(&format!("ALTER TABLE t PARTITION_COUNT={count}"));
        assert_eq!(partitions(), count);
        assert_eq!(sum(&mut other), ["5000 12502500 3 15000"]);
        assert!(
            other.query("SHOW CREATE TABLE test.t")[0][1].contains(&format!("`PARTITION_COUNT`={count}"))
        );
        assert_eq!(other.lines("SELECT id FROM test.t WHERE v = 300"), ["100"]);
        assert_eq!(
            other.lines("SELECT id FROM test.t WHERE id IN (7, 70, 700, 7000) ORDER BY id"),
            ["7", "70", "700"]
        );
        assert_eq!(session.error("INSERT INTO t VALUES (6000, 300)").0, 1062);
    }
    session.query("TRUNCATE TABLE t");
    assert_eq!((partitions(), sum(&mut other)), (8, vec!["0 NULL NULL NULL".to_owned()]));
    session.query("ALTER TABLE t PARTITION_COUNT=DEFAULT");
    assert_eq!(partitions(), 2);

    let (number, said) = session.error("CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA PARTITION_COUNT=9");
    assert!(
        number == 1296 && said.contains("9 partitions; in this cluster a table has 1 to 8"),
        "{number} {said}"
    );
    assert_eq!(
        session.error("CREATE TABLE u (id INT PRIMARY KEY) ENGINE=VINGA PARTITION_COUNT=70000").0,
        1912
    );
    assert_eq!(session.lines("SHOW TABLES"), ["t"]);
}
