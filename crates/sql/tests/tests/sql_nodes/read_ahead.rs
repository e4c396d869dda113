//! Inner tables of joins without a buffer, and of subqueries: their rows are read together, with the same results as
//! with InnoDB, even if the statement changes them at the same time; rows that are read unnecessarily block no one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster, environment};

/// Number of statements of the random test; `VINGA_JOINS` sets another number.
const STATEMENTS: u64 = 400;
/// Number of statements between changes of the tables.
const SAME_TABLES: u64 = 10;

fn round_trips(session: &mut Session) -> u64 {
    session.query("SHOW GLOBAL STATUS LIKE 'vinga_round_trips'")[0][1].parse().expect("a number")
}

struct Random(fastrand::Rng);

impl Random {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(0..of.len())]
    }

    fn condition(&mut self) -> String {
        let number = self.0.u32(0..120);
        match self.0.u8(0..8) {
            0 => "1 = 1".to_owned(),
            1 => format!("x.id < {number}"),
            2 => format!("x.k > {number}"),
            3 => "x.v % 2 = 0".to_owned(),
            4 => format!("MOD(x.id, {}) = 1", 2 + number % 5),
            5 => "y.v < x.k".to_owned(),
            // A union of keys, each with a separate handler.
            6 => format!("(x.id = {number} OR x.v = {})", number % 11),
            _ => format!("x.id BETWEEN {number} AND {}", number + 40),
        }
    }

    /// A statement that changes rows, or one that reads.
    fn statement(&mut self) -> String {
        let condition = self.condition();
        let one = condition.replace("y.v < x.k", "x.v < 50");
        let join = self.one(&["y.id = x.k", "y.id = x.id", "y.u = x.k", "y.u = x.id", "y.id = x.k + 1"]);
        match self.0.u8(0..10) {
            0 => format!("UPDATE x JOIN y ON {join} SET y.v = y.v + 1 WHERE {condition}"),
            1 => format!("UPDATE x JOIN y ON {join} SET x.v = y.v, y.t = CONCAT('n', x.k) WHERE {condition}"),
            2 => format!(
                "UPDATE x JOIN y ON {join} JOIN z ON z.id = y.k SET z.v = 5, x.v = z.k WHERE {condition}"
            ),
            3 => format!("DELETE y FROM x JOIN y ON {join} WHERE {condition}"),
            4 => format!("DELETE x, y FROM x JOIN y ON {join} WHERE {condition}"),
            5 => format!("UPDATE x SET v = (SELECT y.v + 1 FROM y WHERE {join}) WHERE {one}"),
            6 => format!("SELECT x.id, (SELECT y.t FROM y WHERE {join}) s FROM x WHERE {one} ORDER BY id, s"),
            7 => format!("SELECT SUM((SELECT y.v FROM y WHERE {join} AND y.v > 3)) FROM x WHERE {one}"),
            8 => format!(
                "SELECT x.id, y.t FROM x STRAIGHT_JOIN y ON {join} WHERE {condition} ORDER BY x.k, x.id, y.t LIMIT 7"
            ),
            _ => format!(
                "SELECT COUNT(*) FROM x WHERE {one} AND EXISTS (SELECT 1 FROM y WHERE {join} AND y.v > x.v)"
            ),
        }
    }
}

fn fill(oracle: &mut Oracle, random: &mut Random) {
    oracle.good("DROP TABLE IF EXISTS x, y, z");
    for table in ["x", "y", "z"] {
        let key = random.one(&["PRIMARY KEY (id)", "PRIMARY KEY (id) USING HASH"]);
        let other = random.one(&["UNIQUE KEY (u)", "UNIQUE KEY (u) USING HASH", "KEY (v)"]);
        let other = if table == "y" { other } else { "KEY (v)" };
        oracle.good(&format!("CREATE TABLE {table} (id INT, u INT, k INT, v INT, t TEXT, {key}, {other})"));
        let step = random.0.u32(1..4);
        oracle.good(&format!(
            "INSERT INTO {table} SELECT seq * {step}, IF(seq % 7, seq, NULL), seq * 37 % 101, seq % 11, REPEAT('t', seq) \
             FROM seq_1_to_100"
        ));
    }
}

#[test]
fn random_joins_and_subqueries_are_those_of_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"));
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = Random(fastrand::Rng::with_seed(seed));
    for number in 0..environment::number("VINGA_JOINS").unwrap_or(STATEMENTS) {
        if number % SAME_TABLES == 0 {
            fill(&mut oracle, &mut random);
            // With and without join buffers.
            oracle.good(&format!("SET join_cache_level = {}", random.0.u32(0..7)));
            let level = random.one(&["READ-COMMITTED", "REPEATABLE-READ"]);
            oracle.good(&format!("SET tx_isolation = '{level}'"));
        }
        let statement = random.statement();
        let [begin, end] =
            [["DO 1", "DO 1"], ["BEGIN", "COMMIT"], ["BEGIN", "ROLLBACK"]][random.0.usize(0..3)];
        oracle.good(begin);
        let said = oracle.ask(&statement);
        assert_eq!(
            said[0], said[1],
            "left: Vinga, right: InnoDB; seed {seed}, statement {number}: {statement}"
        );
        for table in ["x", "y", "z"] {
            oracle.same(format!("SELECT * FROM {table} ORDER BY id"));
        }
        oracle.good(end);
    }
}

fn tables(session: &mut Session, rows: u32) {
    for table in ["x", "y"] {
        session.query(&format!("CREATE TABLE {table} (id INT PRIMARY KEY, k INT, v INT) ENGINE=VINGA"));
        session.query(&format!("INSERT INTO {table} SELECT seq, {rows} + 1 - seq, seq FROM seq_1_to_{rows}"));
    }
}

#[test]
fn inner_rows_cost_few_round_trips() {
    const ROWS: u32 = 5000;
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    tables(&mut session, ROWS);
    for statement in [
        "UPDATE x JOIN y ON y.id = x.id SET y.v = 0, x.v = 1",
        "UPDATE x JOIN y ON y.id = x.k SET y.v = x.v + 1",
        "SELECT SUM((SELECT y.v FROM y WHERE y.id = x.k)) FROM x",
        "UPDATE x SET v = (SELECT y.v + 2 FROM y WHERE y.id = x.k)",
        "DELETE y FROM x JOIN y ON y.id = x.k WHERE x.id > 100",
    ] {
        let before = round_trips(&mut session);
        session.query(statement);
        let trips = round_trips(&mut session) - before;
        assert!(trips <= u64::from(ROWS) / 20, "{statement} cost {trips} round trips");
    }
    assert_eq!(session.lines("SELECT COUNT(*) FROM y"), ["100"]);
}

/// The statement does not wait for rows of an inner table that it does not need, even if they are next to those that it
/// reads.
#[test]
fn nobody_waits_for_rows_that_are_not_wanted() {
    let cluster = TestCluster::start(1);
    let mut one = cluster.connect(0);
    let mut other = cluster.connect(0);
    tables(&mut one, 200);
    one.query("BEGIN");
    one.query("UPDATE y SET v = -1 WHERE id % 2 = 0");
    other.query("SET vinga_lock_wait = 0");
    // The data nodes can't check this.
    other.query("UPDATE x JOIN y ON y.id = x.id SET y.v = 7 WHERE MOD(x.id, 2) = 1");
    one.query("COMMIT");
    assert_eq!(one.lines("SELECT SUM(v = 7), SUM(v = -1) FROM y"), ["100 100"]);
    // Under READ COMMITTED, rows that were locked unnecessarily are released before the end of the transaction.
    other.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    other.query("BEGIN");
    other
        .query("UPDATE x JOIN y ON y.id = x.id SET y.v = 8 WHERE x.id < 20 AND y.v = 7 AND MOD(y.id, 2) = 0");
    one.query("SET vinga_lock_wait = 0");
    one.query("UPDATE y SET v = 9 WHERE id > 30");
    other.query("ROLLBACK");
}

/// The same where a table in between, or the condition of an outer join, excludes these rows.
#[test]
fn nobody_waits_for_rows_behind_those_that_are_not_wanted() {
    let cluster = TestCluster::start(1);
    let mut one = cluster.connect(0);
    let mut other = cluster.connect(0);
    tables(&mut one, 100);
    one.query("CREATE TABLE z (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    one.query("INSERT INTO z SELECT seq, 0 FROM seq_1_to_100");
    one.query("BEGIN");
    one.query("UPDATE z SET v = -1 WHERE id % 2 = 0");
    other.query("SET vinga_lock_wait = 0");
    other.query("SET join_cache_level = 0");
    for statement in [
        "UPDATE x STRAIGHT_JOIN y STRAIGHT_JOIN z SET z.v = z.v + 1 WHERE y.id = x.id AND MOD(y.v, 2) = 1 AND z.id = y.id",
        "UPDATE x LEFT JOIN z ON z.id = x.id AND MOD(x.v, 2) = 1 SET z.v = z.v + 1, x.k = 0",
    ] {
        other.query(statement);
    }
    one.query("COMMIT");
    assert_eq!(one.lines("SELECT SUM(v = 2), SUM(v = -1) FROM z"), ["50 50"]);
}

/// A row that was released is locked and read again when it is requested again, and one that was needed once stays
/// locked: others change rows at the same time.
#[test]
fn rows_that_are_met_again_and_again_lose_no_changes() {
    let cluster = TestCluster::start(1);
    let mut one = cluster.connect(0);
    let mut other = cluster.connect(0);
    one.query("CREATE TABLE x (id INT PRIMARY KEY, k INT, v INT) ENGINE=VINGA");
    one.query("CREATE TABLE y (id INT PRIMARY KEY, v INT, w INT) ENGINE=VINGA");
    one.query("SET join_cache_level = 0");
    other.query("SET vinga_lock_wait = 0");
    // Every second row of x leads to each of the rows of y, and only the last or the first two rows of x need them.
    for wanted in ["seq >= 4999", "seq <= 2"] {
        one.query("DELETE FROM x");
        one.query("DELETE FROM y");
        one.query(&format!("INSERT INTO x SELECT seq, 1 + seq % 2, {wanted} FROM seq_1_to_5000"));
        one.query("INSERT INTO y VALUES (1, 0, 0), (2, 0, 0)");
        let is_over = AtomicBool::new(false);
        let added = std::thread::scope(|scope| {
            let adds = scope.spawn(|| {
                let mut added = 0;
                while !is_over.load(Ordering::Relaxed) {
                    added += u64::from(other.try_query("UPDATE y SET v = v + 100 WHERE id = 1").is_ok());
                    std::thread::sleep(Duration::from_millis(5));
                }
                added
            });
            let said = one.try_query(
                "UPDATE x STRAIGHT_JOIN y ON y.id = x.k SET y.v = y.v + 1 WHERE x.v + y.w > 0 OR SLEEP(0.0005)",
            );
            is_over.store(true, Ordering::Relaxed);
            let added = adds.join().expect("it does not panic");
            said.expect("locks of single rows are waited for");
            added
        });
        let sums = [(100 * added + 1).to_string(), "1".to_owned()];
        assert_eq!(one.lines("SELECT v FROM y ORDER BY id"), sums, "wanted: {wanted}");
    }
}
