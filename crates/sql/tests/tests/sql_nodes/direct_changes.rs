//! UPDATE and DELETE that the data nodes execute: their changes, counts and results are the same as with InnoDB, alone
//! and while others change the same rows, and they do not cost a round trip for each row.

use vinga_sql_tests::oracle::{Oracle, Said};
use vinga_sql_tests::{Session, TestCluster, environment};
use vinga_sqlnode::SqlError;

/// Number of statements of the random test; `VINGA_CHANGES` sets another number.
const STATEMENTS: u64 = 600;
/// Number of statements between changes of table and settings.
const SAME_TABLE: u64 = 12;

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"))
}

const COLUMNS: &str = "a INT, b TINYINT UNSIGNED NOT NULL DEFAULT 3, c BIGINT UNSIGNED, d VARCHAR(8), e DECIMAL(6,2), \
                       f DATE, g CHAR(4) NOT NULL DEFAULT 'g', h BIGINT, i ENUM('x', 'y'), j TEXT, k SMALLINT NOT NULL DEFAULT 0";
const KEYS: [&str; 6] = [
    "id INT PRIMARY KEY",
    "id INT PRIMARY KEY, KEY (a), KEY (d)",
    "id INT, UNIQUE KEY (id), KEY (a, b)",
    "id INT, KEY (id), KEY (g)",
    "id INT, PRIMARY KEY (id) USING HASH, KEY (d, a)",
    "id INT, PRIMARY KEY (id, b), KEY (k)",
];

const SETS: [&str; 36] = [
    "a = 5",
    "a = NULL",
    "a = a + 1",
    "a = a - 3, k = 2",
    "a = 1 + a, d = 'new'",
    "a = a + 0",
    "a = a + b",
    "a = a + 1, a = a + 1",
    "a = k",
    "b = b + 1",
    "b = b - 1",
    "b = b + 100",
    "b = b + 300",
    "b = 256",
    "b = -1",
    "b = NULL",
    "c = c + 1",
    "c = c - 1",
    "c = 18446744073709551615",
    "c = c + 18446744073709551615",
    "h = h + 1",
    "h = h - 9223372036854775807",
    "h = h + CAST(1 AS UNSIGNED)",
    "d = 'abc', j = REPEAT('j', 20)",
    "d = 'ABC'",
    "d = 'much too long'",
    "e = 12.345",
    "e = e + 1",
    "f = '2024-02-30'",
    "f = '2024-02-29', e = 7",
    "g = 'g  '",
    "g = DEFAULT, i = 'y'",
    "i = 'z'",
    "j = NULL, k = k + 1",
    "k = k + 32767",
    "id = id + 1000",
];

const CONDITIONS: [&str; 23] = [
    "id = 7",
    "id = 7 AND a > 3",
    "id IN (1, 5, 9, 200)",
    "id BETWEEN 10 AND 20",
    "id > 30 AND k = 0",
    "a = 5",
    "a > 2 AND d = 'abc'",
    "a IS NULL",
    "a IN (1, 2, 3) AND b = 3",
    "b < 100",
    "d = 'ABC'",
    "d LIKE 'a%'",
    "d LIKE '%b'",
    "c > 9223372036854775807",
    "e = 12.35",
    "f = '2024-02-29'",
    "g = 'g' AND i = 'y'",
    "k BETWEEN -1 AND 1",
    "k = 0 OR id = 3",
    "id % 3 = 0",
    "a = k",
    "1 = 1",
    "id = 3 AND id = 4",
];

struct Random(fastrand::Rng);

impl Random {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(0..of.len())]
    }

    fn statement(&mut self) -> String {
        let condition = match self.0.u8(0..8) {
            0 => String::new(),
            1 => format!(" WHERE {} AND {}", self.one(&CONDITIONS), self.one(&CONDITIONS)),
            _ => format!(" WHERE {}", self.one(&CONDITIONS)),
        };
        let condition = match self.0.u8(0..12) {
            0 => format!("{condition} ORDER BY id LIMIT 3"),
            _ => condition,
        };
        match self.0.u8(0..5) {
            0 => format!("DELETE FROM t{condition}"),
            1 => format!("UPDATE t SET {}, k = 9{condition}", self.one(&SETS)),
            _ => format!("UPDATE t SET {}{condition}", self.one(&SETS)),
        }
    }
}

fn fill(oracle: &mut Oracle, random: &mut Random) {
    oracle.good("DROP TABLE IF EXISTS t");
    let key = KEYS[random.0.usize(0..KEYS.len())];
    let (before, after) = key.split_once(", ").unwrap_or((key, ""));
    let after = if after.is_empty() { String::new() } else { format!(", {after}") };
    oracle.good(&format!("CREATE TABLE t ({before}, {COLUMNS}{after})"));
    oracle.good(
        "INSERT INTO t (id, a, b, c, d, e, f, h, i, j, k) SELECT seq, NULLIF(seq % 9, 8), seq % 7, \
         IF(seq % 5, seq, 18446744073709551610 + seq % 6), ELT(1 + seq % 6, 'abc', 'ABC', 'ab', NULL, 'b', 'a b'), \
         seq / 3, '2024-02-20' + INTERVAL seq DAY, IF(seq % 4, seq, 9223372036854775800 + seq % 8), \
         ELT(1 + seq % 2, 'x', 'y'), REPEAT('t', seq), seq % 3 FROM seq_1_to_45",
    );
}

/// A result without the row to which an error or a warning refers: the server counts the rows that it reads, and does
/// not count those that the data nodes reject.
fn without_row(said: Said) -> Said {
    let cut = |text: String| match text.find(" at row ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    };
    match said {
        Said::Good(affected, id, warnings, rows) => {
            Said::Good(affected, id, warnings, rows.into_iter().map(cut).collect())
        }
        Said::Bad(number, state, text) => Said::Bad(number, state, cut(text)),
    }
}

#[test]
fn random_statements_change_and_count_as_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    let mut session = cluster.connect(0);
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = Random(fastrand::Rng::with_seed(seed));
    for number in 0..environment::number("VINGA_CHANGES").unwrap_or(STATEMENTS) {
        if number % SAME_TABLE == 0 {
            fill(&mut oracle, &mut random);
            let mode = random.one(&["", "STRICT_TRANS_TABLES", "NO_UNSIGNED_SUBTRACTION", "TRADITIONAL"]);
            oracle.good(&format!("SET sql_mode = '{mode}'"));
            let level = random.one(&["READ COMMITTED", "REPEATABLE READ"]);
            oracle.good(&format!("SET tx_isolation = '{}'", level.replace(' ', "-")));
        }
        let statement = random.statement();
        let [begin, end] =
            [["DO 1", "DO 1"], ["BEGIN", "COMMIT"], ["BEGIN", "ROLLBACK"]][random.0.usize(0..3)];
        oracle.good(begin);
        let said = oracle.ask(&statement).map(without_row);
        assert_eq!(
            said[0], said[1],
            "left: Vinga, right: InnoDB; seed {seed}, statement {number}: {statement}"
        );
        let warnings = oracle.ask("SHOW WARNINGS").map(without_row);
        assert_eq!(warnings[0], warnings[1], "seed {seed}, statement {number}: {statement}");
        oracle.good("SELECT ROW_COUNT()");
        oracle.same("SELECT * FROM t ORDER BY id, a, b, c, d, e, f, g, h, i, j, k");
        oracle.good(end);
        oracle.same("SELECT * FROM t ORDER BY id, a, b, c, d, e, f, g, h, i, j, k");
        oracle.same("SELECT COUNT(*) FROM t FORCE INDEX (a) WHERE a > 2");
    }
    let direct = session.counter("direct_changes");
    assert!(direct > 50, "only {direct} statements were done at the data nodes");
}

/// The number of rows that a statement has changed, or the number of its error.
fn change(session: &mut Session, statement: &str) -> Result<u64, u16> {
    match session.try_query(statement) {
        Ok(answer) => Ok(answer.affected),
        Err(SqlError::Server { number, .. }) => Err(number),
        Err(SqlError::Lost(error)) => panic!("{statement}: the connection is lost: {error}"),
    }
}

/// A table with rows from 1 to `rows`.
fn table(session: &mut Session, rows: u32) {
    session.query("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(20), KEY (k)) ENGINE=VINGA");
    session.query(&format!("INSERT INTO t SELECT seq, seq, 'c' FROM seq_1_to_{rows}"));
}

#[test]
fn many_rows_cost_few_round_trips() {
    const ROWS: u32 = 4000;
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    table(&mut session, ROWS);
    for (statement, changed, is_direct) in [
        ("UPDATE t SET c = 'd'", ROWS, true),
        ("UPDATE t SET c = 'e' WHERE 1 = 0", 0, false),
        ("UPDATE t SET c = 'f' WHERE id BETWEEN 101 AND 3000", 2900, true),
        ("UPDATE t SET c = 'g' WHERE k > 1000", 3000, true),
        // Only the SQL node can compare a text that is in no key.
        ("UPDATE t SET k = k + 1 WHERE c = 'd'", 100, false),
        ("UPDATE t SET k = k + 1 WHERE id % 2 = 0 AND id < 100", 49, false),
        ("UPDATE t SET k = k - 10 WHERE id IN (7, 8, 9000)", 2, true),
        ("DELETE FROM t WHERE k > 3000", 1000, true),
        ("DELETE FROM t", 3000, true),
    ] {
        let before = [session.counter("round_trips"), session.counter("direct_changes")];
        assert_eq!(change(&mut session, statement), Ok(u64::from(changed)), "{statement}");
        let [trips, direct] = [session.counter("round_trips"), session.counter("direct_changes")];
        assert_eq!(direct - before[1], u64::from(is_direct), "{statement}");
        assert!(trips - before[0] <= 60, "{statement} cost {} round trips", trips - before[0]);
    }
}

#[test]
fn what_the_server_must_look_at_goes_row_by_row() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    let mut session = cluster.connect(0);
    oracle.good("CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(40))");
    for (definition, before) in [
        ("id INT PRIMARY KEY, v INT, CHECK (v < 12)", ""),
        ("id INT PRIMARY KEY, v INT, w INT AS (v + 1) VIRTUAL", ""),
        ("id INT PRIMARY KEY, v INT, w INT AS (v + 1) STORED", ""),
        ("id INT PRIMARY KEY, v INT, w TIMESTAMP(6) DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP(6)", ""),
        ("id INT PRIMARY KEY, v INT, UNIQUE KEY (v)", ""),
        (
            "id INT PRIMARY KEY, v INT",
            "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW INSERT INTO log SET what = NEW.v",
        ),
        (
            "id INT PRIMARY KEY, v INT",
            "CREATE TRIGGER tr AFTER DELETE ON t FOR EACH ROW INSERT INTO log SET what = OLD.v",
        ),
    ] {
        oracle.good("DROP TABLE IF EXISTS t");
        oracle.good(&format!("CREATE TABLE t ({definition})"));
        oracle.good("INSERT INTO t (id, v) SELECT seq, seq FROM seq_1_to_10");
        if !before.is_empty() {
            oracle.good(before);
        }
        let direct = session.counter("direct_changes");
        oracle.same("UPDATE t SET v = 11 WHERE id = 4");
        oracle.same("UPDATE t SET v = v + 2 WHERE id > 8");
        oracle.same("UPDATE t SET v = 5 WHERE id = 9");
        if !definition.contains("CURRENT_TIMESTAMP") {
            oracle.same("SELECT * FROM t ORDER BY id");
        }
        // A value that is not stored is computed when it is read.
        if !before.contains("DELETE") && !definition.contains("VIRTUAL") {
            assert_eq!(session.counter("direct_changes"), direct, "{definition}");
        }
        oracle.same("DELETE FROM t WHERE id = 3");
        oracle.same("SELECT id, v FROM t ORDER BY id");
        oracle.same("SELECT what FROM log ORDER BY n");
    }
    // A view that checks its rows, and one that does not.
    oracle.good("DROP TABLE t");
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, v INT)");
    oracle.good("INSERT INTO t SELECT seq, seq FROM seq_1_to_10");
    oracle.good("CREATE VIEW few AS SELECT * FROM t WHERE v < 6 WITH CHECK OPTION");
    oracle.same("UPDATE few SET v = 7 WHERE id = 2");
    oracle.same("UPDATE few SET v = 5 WHERE id = 2");
    oracle.same("UPDATE IGNORE t SET v = 8 WHERE id = 8");
    oracle.same("UPDATE t SET v = @x := 3 WHERE id = 99");
    oracle.same("SELECT @x");
    oracle.same("UPDATE t SET v = LAST_INSERT_ID(77) WHERE id = 99");
    oracle.same("SELECT LAST_INSERT_ID()");
    oracle.same("DELETE FROM t WHERE id < 4 RETURNING id, v");
    oracle.same("SELECT * FROM t ORDER BY id");
}

/// Concurrent sums of many sessions on the same rows are not lost, no matter how the rows are found.
#[test]
fn sums_of_many_sessions_lose_nothing() {
    const SESSIONS: usize = 4;
    const ROUNDS: usize = 60;
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    table(&mut session, 20);
    session.query("UPDATE t SET k = 0");
    let changed: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SESSIONS)
            .map(|worker| {
                let mut session = cluster.connect(0);
                scope.spawn(move || {
                    let statements = [
                        "UPDATE t SET k = k + 1 WHERE id = 7",
                        "UPDATE t SET k = k + 1 WHERE id BETWEEN 5 AND 9",
                        "UPDATE t SET k = 1 + k WHERE c = 'c'",
                        "UPDATE t SET k = k - -1 WHERE id IN (1, 7, 30)",
                    ];
                    let mut changed = 0;
                    for round in 0..ROUNDS {
                        let statement = statements[(round + worker) % statements.len()];
                        match change(&mut session, statement) {
                            Ok(rows) => changed += rows,
                            // Statements on several rows may deadlock; none of their changes stays then.
                            Err(number) => assert!([1205, 1213].contains(&number), "{statement}: {number}"),
                        }
                    }
                    changed
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).sum()
    });
    let sum: u64 = session.query("SELECT SUM(k) FROM t")[0][0].parse().expect("a number");
    assert_eq!(sum, changed, "the reported counts equal the number of changes");
}

/// A row that does not fulfil the condition stays locked above READ COMMITTED, as with InnoDB.
#[test]
fn rows_that_were_looked_at_stay_locked_where_reads_are_repeatable() {
    let cluster = TestCluster::start(1);
    let mut one = cluster.connect(0);
    let mut other = cluster.connect(0);
    table(&mut one, 3);
    other.query("SET vinga_lock_wait = 0");
    for (level, is_locked) in [("REPEATABLE READ", true), ("SERIALIZABLE", true), ("READ COMMITTED", false)] {
        one.query(&format!("SET TRANSACTION ISOLATION LEVEL {level}"));
        one.query("BEGIN");
        assert_eq!(change(&mut one, "UPDATE t SET c = 'x' WHERE id = 2 AND c = 'other'"), Ok(0));
        let met = change(&mut other, "UPDATE t SET c = 'y' WHERE id = 2");
        assert_eq!(met.is_err(), is_locked, "{level}: {met:?}");
        one.query("ROLLBACK");
    }
}

/// The ranges used are those of the key that is read, not those of a union of keys that the optimizer also considered.
#[test]
fn parts_of_unions_of_keys_are_not_taken_for_ranges() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT, KEY (a), KEY (b))");
    oracle.good("INSERT INTO t SELECT seq, seq, seq * 7 % 1000, 0 FROM seq_1_to_2000");
    oracle.ask("ANALYZE TABLE t");
    for condition in [
        "a < 10 AND (b < 900 OR a < 5)",
        "a < 10 AND (a < 5 OR b < 900)",
        "a < 10 AND (b < 900 OR a BETWEEN 3 AND 4)",
        "id < 10 AND (b < 900 OR id < 5)",
        "id IN (1, 2, 3, 4, 5, 6, 7) AND (b < 900 OR id = 3)",
    ] {
        oracle.good(&format!("UPDATE t SET c = c + 1 WHERE {condition}"));
        oracle.same("SELECT * FROM t WHERE c <> 0 ORDER BY id");
        oracle.good("BEGIN");
        oracle.good(&format!("DELETE FROM t WHERE {condition}"));
        oracle.same("SELECT COUNT(*), SUM(id) FROM t");
        oracle.good("ROLLBACK");
    }
}

/// Parameters that stand for a column's default, or for leaving it unchanged.
#[test]
fn parameters_without_a_value() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 7, b INT DEFAULT (c + 1), c INT, d TEXT)");
    oracle.good("INSERT INTO t VALUES (1, 11, 12, 13, 'x'), (2, 21, 22, 23, 'y'), (3, 31, 32, 33, 'z')");
    oracle.good("PREPARE s FROM 'UPDATE t SET a = ?, d = ? WHERE id < ?'");
    for parameters in
        ["DEFAULT, 'one', 3", "IGNORE, 'two', 4", "5, IGNORE, 2", "6, 'three', 9", "DEFAULT, DEFAULT, 2"]
    {
        oracle.good(&format!("EXECUTE s USING {parameters}"));
        oracle.same("SELECT * FROM t ORDER BY id");
    }
    oracle.good("EXECUTE IMMEDIATE 'UPDATE t SET b = ? WHERE id < 3' USING DEFAULT");
    oracle.same("SELECT * FROM t ORDER BY id");
}

/// A change of one row by its key is sent with the commit, if the statement is a transaction by itself.
#[test]
fn a_statement_that_changes_one_row_by_its_key_costs_one_round_trip() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    table(&mut session, 20);
    let mut cost = |statement: &dyn Fn(u32) -> String, changed: u64| {
        // The least: statistics are requested now and then, too.
        let costs = (1..=4).map(|n| {
            let before = session.counter("round_trips");
            assert_eq!(change(&mut session, &statement(n)), Ok(changed), "{}", statement(n));
            session.counter("round_trips") - before
        });
        costs.min().unwrap_or_default()
    };
    assert_eq!(cost(&|n| format!("UPDATE t SET c = 'd{n}' WHERE id = {n}"), 1), 1);
    assert_eq!(cost(&|n| format!("UPDATE t SET k = k + 1 WHERE id = {n} AND k < 100"), 1), 1);
    assert_eq!(cost(&|n| format!("UPDATE t SET k = k + 1 WHERE id = {n} AND k > 100"), 0), 1);
    assert_eq!(cost(&|n| format!("UPDATE t SET c = 'd{n}' WHERE id = {n}"), 0), 1, "the same value");
    assert_eq!(cost(&|n| format!("DELETE FROM t WHERE id = {n}"), 1), 1);
    assert_eq!(cost(&|n| format!("DELETE FROM t WHERE id = {n}"), 0), 1);
    assert_eq!(session.lines("SELECT COUNT(*), SUM(k) FROM t"), ["16 200"]);
}

/// What would not be all of a transaction is not committed with the change.
#[test]
fn a_change_that_is_a_part_of_something_is_undone_with_it() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let mut other = cluster.connect(0);
    table(&mut session, 3);
    session.query("CREATE TABLE tiny (id INT PRIMARY KEY, v TINYINT NOT NULL) ENGINE=VINGA");
    session.query("INSERT INTO tiny VALUES (1, 100), (2, 100)");
    session.query("CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB");
    session.query("CREATE TABLE v (id INT PRIMARY KEY) ENGINE=VINGA");
    for engine_table in ["i", "v"] {
        session.query(&format!(
            "CREATE FUNCTION with_{engine_table}(n INT) RETURNS INT MODIFIES SQL DATA BEGIN \
             INSERT INTO {engine_table} VALUES (n); RETURN n; END"
        ));
    }
    session.query("BEGIN");
    assert_eq!(change(&mut session, "UPDATE t SET k = 77 WHERE id = 1"), Ok(1));
    session.query("ROLLBACK");
    session.query("SET autocommit = 0");
    assert_eq!(change(&mut session, "UPDATE t SET k = 78 WHERE id = 1"), Ok(1));
    session.query("ROLLBACK");
    session.query("SET autocommit = 1");
    assert_eq!(session.lines("SELECT k FROM t WHERE id = 1"), ["1"]);
    // The change fails; what the function has written is a part of the statement.
    other.query("BEGIN");
    assert_eq!(change(&mut other, "UPDATE t SET k = 5 WHERE id = 2"), Ok(1));
    session.query("SET vinga_lock_wait = 0");
    for engine_table in ["i", "v"] {
        let statement = format!("UPDATE t SET k = with_{engine_table}(9) WHERE id = 2");
        assert_eq!(change(&mut session, &statement), Err(1205));
        assert_eq!(session.lines(&format!("SELECT * FROM {engine_table}")), Vec::<String>::new());
    }
    assert_eq!(change(&mut session, "UPDATE t SET k = 6 WHERE id = 2"), Err(1205));
    other.query("COMMIT");
    for engine_table in ["i", "v"] {
        let statement = format!("UPDATE t SET k = with_{engine_table}(9) WHERE id = 2");
        assert_eq!(change(&mut session, &statement), Ok(1));
        assert_eq!(session.lines(&format!("SELECT * FROM {engine_table}")), ["9"]);
        session.query("UPDATE t SET k = 5 WHERE id = 2");
    }
    // A sum that does not fit: an error, or the greatest value.
    assert_eq!(change(&mut session, "UPDATE tiny SET v = v + 100 WHERE id = 1"), Err(1264));
    assert_eq!(session.lines("SELECT v FROM tiny WHERE id = 1"), ["100"]);
    session.query("SET sql_mode = ''");
    assert_eq!(change(&mut session, "UPDATE tiny SET v = v + 100 WHERE id = 1"), Ok(1));
    assert_eq!(session.lines("SELECT v FROM tiny WHERE id = 1"), ["127"]);
}

/// A change that waits for a lock with its commit ends by a kill, and has changed nothing then.
#[test]
fn a_kill_ends_the_wait_of_a_change_that_is_sent_with_its_commit() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let mut other = cluster.connect(0);
    table(&mut session, 3);
    session.query("BEGIN");
    assert_eq!(change(&mut session, "UPDATE t SET k = 5 WHERE id = 2"), Ok(1));
    other.query("SET vinga_lock_wait = 3600000");
    let id = other.lines("SELECT CONNECTION_ID()").remove(0);
    let met = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| change(&mut other, "UPDATE t SET k = 6 WHERE id = 2"));
        vinga_sql_tests::eventually("it waits for the lock", || {
            let waits =
                "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE t SET k = 6%'";
            session.lines(waits) == ["1"]
        });
        session.query(&format!("KILL QUERY {id}"));
        waiter.join().expect("it does not panic")
    });
    assert_eq!(met, Err(1317));
    session.query("COMMIT");
    assert_eq!(other.lines("SELECT k FROM t WHERE id = 2"), ["5"]);
    assert_eq!(change(&mut other, "UPDATE t SET k = 7 WHERE id = 2"), Ok(1));
    assert_eq!(other.lines("SELECT k FROM t WHERE id = 2"), ["7"]);
}
