//! Statements that read while other sessions write: rows fulfil the condition, are found once, and keep the values that
//! were read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vinga_sql_tests::{Session, TestCluster};

const ROWS: u64 = 3000;

/// Runs `read` until other sessions have made a number of changes, each by a statement that is built from a random
/// number below [`ROWS`].
fn while_others_write(
    cluster: &TestCluster,
    change: impl Fn(u64, &mut fastrand::Rng) -> String + Sync,
    mut read: impl FnMut(),
) {
    const CHANGES: u64 = 4000;
    let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (is_over, changes, change) = (&is_over, &changes, &change);
            let mut session = cluster.connect(0);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer);
                while !is_over.load(Ordering::Relaxed) {
                    let row = random.u64(0..ROWS) + 1;
                    session.query(&change(row, &mut random));
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let guard = Ended(&is_over);
        while changes.load(Ordering::Relaxed) < CHANGES {
            read();
        }
        drop(guard);
    });
}

/// Stops the writers, even if a reader panics.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn filled(cluster: &TestCluster) -> Session {
    let mut session = cluster.connect(0);
    session.query(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, k INT NOT NULL, state INT NOT NULL, b TEXT, KEY (k), KEY (state)) ENGINE=VINGA",
    );
    session.query(&format!("INSERT INTO t SELECT seq, seq, seq % 2, REPEAT('x', 20) FROM seq_1_to_{ROWS}"));
    session
}

#[test]
fn rows_that_are_sorted_fulfil_the_condition() {
    let cluster = TestCluster::start(1);
    let mut session = filled(&cluster);
    let change = |row, _: &mut fastrand::Rng| format!("UPDATE t SET state = 1 - state WHERE id = {row}");
    while_others_write(&cluster, change, || {
        // Rows that contain a text are not sorted themselves: the server requests them again.
        for condition in ["state = 0", "state = 0 AND k > 100", "state + 0 = 0"] {
            let wrong = session.lines(&format!(
                "SELECT COUNT(*) FROM (SELECT state, b FROM t WHERE {condition} ORDER BY k + 0 LIMIT 100000) x WHERE state <> 0"
            ));
            assert_eq!(wrong, ["0"], "{condition}");
        }
    });
}

#[test]
fn rows_are_counted_once_while_they_move_in_an_index() {
    let cluster = TestCluster::start(1);
    let mut session = filled(&cluster);
    let change = |row, random: &mut fastrand::Rng| {
        format!("UPDATE t SET k = {} WHERE id = {row}", random.u32(0..100_000))
    };
    while_others_write(&cluster, change, || {
        for count in ["COUNT(*)", "COUNT(k)", "COUNT(id)", "COUNT(DISTINCT id)"] {
            assert_eq!(session.lines(&format!("SELECT {count} FROM t")), [ROWS.to_string()], "{count}");
        }
    });
}

/// Rows that a transaction has read stay unchanged to its end, no matter which statement has read them.
#[test]
fn what_was_read_stays() {
    let cluster = TestCluster::start(1);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(0));
    session.query("CREATE TABLE s (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("CREATE TABLE log (v INT) ENGINE=VINGA");
    session.query("INSERT INTO s VALUES (1, 0)");
    session.query("CREATE FUNCTION v_of(wanted INT) RETURNS INT READS SQL DATA RETURN (SELECT v FROM s WHERE id = wanted)");
    session.query("CREATE PROCEDURE look() BEGIN IF EXISTS (SELECT 1 FROM s WHERE v >= 0) THEN SET @found = 1; END IF; END");
    session.query(
        "CREATE TRIGGER t BEFORE INSERT ON log FOR EACH ROW SET NEW.v = (SELECT v FROM s WHERE id = 1)",
    );
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for read in [
            "SET @v = (SELECT v FROM s WHERE id = 1)",
            "DO (SELECT v FROM s WHERE id = 1)",
            "SELECT v_of(1)",
            "DO v_of(1)",
            "CALL look()",
            "INSERT INTO log VALUES (5)",
            "INSERT INTO log SELECT v FROM s",
            "UPDATE log SET v = (SELECT MAX(v) FROM s)",
        ] {
            session.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
            session.query("BEGIN");
            session.query(read);
            assert_eq!(other.error("UPDATE s SET v = 7 WHERE id = 1").0, 1205, "{level}: {read}");
            session.query("COMMIT");
            other.query("UPDATE s SET v = 0 WHERE id = 1");
        }
    }
    // Below this level no one waits.
    session.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    session.query("BEGIN");
    session.query("SET @v = (SELECT v FROM s WHERE id = 1)");
    other.query("UPDATE s SET v = 7 WHERE id = 1");
    session.query("COMMIT");
}

fn round_trips(session: &mut Session) -> u64 {
    session.query("SHOW STATUS LIKE 'vinga_round_trips'")[0][1].parse().expect("a number")
}

/// Sorts that remember positions, updates of the key by which they read, multi-table updates and deletes, unions of
/// indexes: none requests each row again.
#[test]
fn positions_cost_no_round_trip_a_row() {
    let cluster = TestCluster::start(1);
    let mut session = filled(&cluster);
    session.query("CREATE TABLE u LIKE t");
    session.query("INSERT INTO u SELECT * FROM t");
    for (statement, most) in [
        ("SELECT COUNT(b) FROM (SELECT b FROM t ORDER BY k + 0 LIMIT 100000) x", 40),
        ("UPDATE t FORCE INDEX (k) SET k = k + 5 WHERE k BETWEEN 1 AND 2000", 60),
        ("SELECT SUM(LENGTH(b)) FROM t FORCE INDEX (k, state) WHERE k < 900 OR state = 0", 60),
        ("SELECT COUNT(*) FROM t", 30),
        (
            "SELECT SUM(k) FROM (SELECT k FROM t FORCE INDEX (k) WHERE k BETWEEN 1 AND 3000 ORDER BY k DESC LIMIT 5000) x",
            30,
        ),
        // The join reads the rows of the second table one by one; later steps do not.
        (
            "UPDATE t JOIN u ON u.id = t.id SET t.state = 2, u.k = 1, u.b = CONCAT(u.b, 'y') WHERE t.id <= 1000",
            1100,
        ),
        ("DELETE u FROM t JOIN u ON u.id = t.id WHERE t.id <= 1000", 1100),
    ] {
        let before = round_trips(&mut session);
        session.query(statement);
        let spent = round_trips(&mut session) - before;
        assert!(spent <= most, "{spent} round trips: {statement}");
    }
    assert_eq!(session.lines("SELECT COUNT(*) FROM u"), [(ROWS - 1000).to_string()]);
    assert_eq!(session.lines("SELECT COUNT(*) FROM t WHERE state = 2"), ["1000"]);
}

/// Of a table with many columns only the used ones are sent.
#[test]
fn columns_that_are_not_used_stay_where_they_are() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let wide: Vec<String> =
        (0..30).map(|n| format!("c{n} CHAR(30) CHARACTER SET latin1 NOT NULL DEFAULT 'x'")).collect();
    session.query(&format!(
        "CREATE TABLE wide (id INT PRIMARY KEY, k INT NOT NULL, {}) ENGINE=VINGA",
        wide.join(", ")
    ));
    session.query("INSERT INTO wide (id, k) SELECT seq, seq FROM seq_1_to_2000");
    let mut sent = |statement: &str| {
        let sum = "SELECT CAST(SUM(BYTES_SENT) AS UNSIGNED) FROM information_schema.VINGA_THREADS";
        let bytes = |session: &mut Session| session.query(sum)[0][0].parse::<u64>().expect("a number");
        let before = bytes(&mut session);
        session.query(statement);
        bytes(&mut session) - before
    };
    let (narrow, all) = (
        sent("SELECT SUM(k) FROM wide"),
        sent(
            "SELECT SUM(k), MAX(CONCAT_WS(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20, c21, c22, c23, c24, c25, c26, c27, c28, c29)) FROM wide",
        ),
    );
    assert!(narrow * 20 < all, "{narrow} bytes beside {all}");
}

/// A key by which rows are found again under another name of the table must not be changed.
#[test]
fn a_primary_key_that_changes_under_two_names_is_refused() {
    let cluster = TestCluster::start(1);
    let mut session = filled(&cluster);
    let both = "UPDATE t a JOIN t b ON b.id = a.id + 1";
    assert_eq!(session.error(&format!("{both} SET a.id = a.id + 5000, b.k = 5 WHERE a.id < 5")).0, 1706);
    assert_eq!(session.error(&format!("{both} SET a.k = 5, b.id = b.id + 5000 WHERE a.id < 5")).0, 1706);
    session.query(&format!("{both} SET a.id = a.id + 5000 WHERE a.id = 1"));
    session.query(&format!("{both} SET a.k = 5, b.k = 6 WHERE a.id = 2"));
    assert_eq!(
        session.lines("SELECT id, k FROM t WHERE id IN (1, 2, 3, 5001) ORDER BY id"),
        ["2 5", "3 6", "5001 1"]
    );
}
