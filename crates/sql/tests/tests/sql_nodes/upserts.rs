//! INSERT IGNORE, REPLACE, ON DUPLICATE KEY UPDATE and LOAD DATA of many rows: their changes, counts and warnings are
//! the same as with InnoDB, and they do not cost a round trip for each row.

use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster, environment};

/// Number of rounds of the random test; `VINGA_UPSERTS` sets another number.
const ROUNDS: u64 = 60;

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"))
}

const TABLES: [&str; 5] = [
    "CREATE TABLE t (id INT PRIMARY KEY, u INT, w VARCHAR(20), v INT NOT NULL DEFAULT 7, b TEXT)",
    "CREATE TABLE t (id INT PRIMARY KEY, u INT, w VARCHAR(20), v INT NOT NULL DEFAULT 7, b TEXT, UNIQUE KEY u (u))",
    "CREATE TABLE t (id INT PRIMARY KEY, u INT, w VARCHAR(20), v INT NOT NULL DEFAULT 7, b TEXT, UNIQUE KEY w (w), UNIQUE KEY u (u, v))",
    "CREATE TABLE t (id INT, u INT, w VARCHAR(20) NOT NULL PRIMARY KEY, v INT NOT NULL DEFAULT 7, b TEXT, KEY (id))",
    "CREATE TABLE t (id INT, u INT NOT NULL, w VARCHAR(20), v INT NOT NULL DEFAULT 7, b TEXT, UNIQUE KEY (u))",
];

struct Random(fastrand::Rng);

impl Random {
    /// One of a few numbers, so that there are many duplicates.
    fn number(&mut self, values: i32) -> i32 {
        self.0.i32(0..values)
    }

    fn text(&mut self, values: i32) -> String {
        let word = ["a", "B", "ab", "Ä", "a ", "ss", "ß"][self.0.usize(0..7)];
        format!("'{word}{}'", self.number(values))
    }

    fn row(&mut self, values: i32) -> String {
        let number = |random: &mut Random, null: u32| match random.0.u32(0..100) < null {
            true => "NULL".into(),
            false => random.number(values).to_string(),
        };
        let (id, u) = (self.number(values), number(self, 10));
        let w = self.text(values);
        let b = format!("REPEAT('b', {})", self.number(300));
        format!("({id}, {u}, {w}, {}, {b})", self.number(3))
    }

    fn rows(&mut self, count: usize, values: i32) -> String {
        let rows: Vec<String> = (0..count).map(|_| self.row(values)).collect();
        rows.join(", ")
    }

    fn updates(&mut self) -> &'static str {
        let all = [
            "v = v + 1",
            "v = t.v + VALUES(v), b = CONCAT(t.b, VALUES(b))",
            "u = VALUES(u)",
            "id = t.id + 100",
            "w = VALUES(w), v = 1",
            "v = t.v",
            "v = IF(t.v > 1, 0, t.v), u = t.u",
        ];
        all[self.0.usize(0..all.len())]
    }

    fn statement(&mut self, count: usize, values: i32) -> String {
        let source = match self.0.u8(0..3) {
            0 => "SELECT * FROM more ORDER BY n".to_owned(),
            _ => format!("VALUES {}", self.rows(count, values)),
        };
        let source = source.replace("SELECT *", "SELECT id, u, w, v, b");
        match self.0.u8(0..5) {
            0 | 1 => format!("INSERT IGNORE INTO t {source}"),
            2 => format!("REPLACE INTO t {source}"),
            3 => format!("INSERT INTO t {source} ON DUPLICATE KEY UPDATE {}", self.updates()),
            _ => format!("INSERT IGNORE INTO t {source} ON DUPLICATE KEY UPDATE {}", self.updates()),
        }
    }
}

fn all(oracle: &mut Oracle) {
    oracle.good("SELECT id, u, w, v, b FROM t ORDER BY id, u, w, v, b");
}

#[test]
fn random_statements_do_and_count_as_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    // Texts that are too long, or NULLs, are not errors of statements with IGNORE; warnings are the same.
    oracle.good("SET sql_mode = ''");
    oracle.good("SET max_error_count = 10000");
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = Random(fastrand::Rng::with_seed(seed));
    for round in 0..environment::number("VINGA_UPSERTS").unwrap_or(ROUNDS) {
        let table = TABLES[round as usize % TABLES.len()];
        let values = [5, 30, 200][random.0.usize(0..3)];
        oracle.good("DROP TABLE IF EXISTS t, more");
        oracle.good(table);
        oracle.good(
            "CREATE TABLE more (n INT AUTO_INCREMENT PRIMARY KEY, id INT, u INT, w VARCHAR(20), v INT, b TEXT)",
        );
        let rows = random.rows(40, values);
        oracle.good(&format!("INSERT IGNORE INTO t VALUES {rows}"));
        let rows = random.rows(60, values).replace('(', "(NULL, ").replace("REPEAT(NULL, ", "REPEAT(");
        oracle.good(&format!("INSERT INTO more VALUES {rows}"));
        for _ in 0..4 {
            let statement = random.statement(30, values);
            let surroundings = [["DO 1", "DO 1"], ["BEGIN", "COMMIT"], ["BEGIN", "ROLLBACK"]];
            let [begin, end] = surroundings[random.0.usize(0..3)];
            oracle.good(begin);
            let said = oracle.ask(&statement);
            assert_eq!(
                said[0], said[1],
                "left: Vinga, right: InnoDB; seed {seed}, round {round}: {statement}"
            );
            oracle.same("SHOW WARNINGS");
            oracle.good("SELECT ROW_COUNT()");
            all(&mut oracle);
            oracle.good(end);
            all(&mut oracle);
        }
    }
}

/// An update uses the values of its own row of the query, even if many rows are sent together.
#[test]
fn updates_of_rows_of_a_query_see_their_own() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, n INT, v VARCHAR(20))");
    oracle.good("CREATE TABLE s (id INT PRIMARY KEY, n INT, v VARCHAR(20))");
    oracle.good("INSERT INTO t SELECT seq, 10, 't' FROM seq_1_to_20");
    oracle.good("INSERT INTO s SELECT seq, seq, CONCAT('s', seq) FROM seq_11_to_30");
    for query in [
        "SELECT * FROM s ON DUPLICATE KEY UPDATE n = t.n + s.n",
        "SELECT * FROM s ON DUPLICATE KEY UPDATE v = s.v",
        "SELECT * FROM s ON DUPLICATE KEY UPDATE v = CONCAT(s.v, t.v, VALUES(v)), n = IF(s.n > 15, s.n, t.n)",
        "SELECT x.id, x.n, x.v FROM (SELECT * FROM s LIMIT 9) x ON DUPLICATE KEY UPDATE n = 100 * x.n",
        "SELECT a.id, a.n, b.v FROM s a JOIN s b ON b.id = a.id + 1 ON DUPLICATE KEY UPDATE v = b.v, n = a.n",
    ] {
        oracle.good(&format!("INSERT INTO t {query}"));
        oracle.same("SELECT * FROM t ORDER BY id");
    }
    oracle.good("CREATE TABLE g (id INT PRIMARY KEY, a INT, w INT AS (a * 10) VIRTUAL, n INT)");
    oracle.good("INSERT INTO g (id, a) VALUES (1, 1), (2, 2), (3, 3)");
    oracle.good("INSERT INTO g (id, a) VALUES (1, 7), (2, 8), (4, 9) ON DUPLICATE KEY UPDATE n = VALUES(w)");
    oracle.same("SELECT * FROM g ORDER BY id");
}

fn round_trips(session: &mut Session) -> u64 {
    session.query("SHOW STATUS LIKE 'vinga_round_trips'")[0][1].parse().expect("a number")
}

#[test]
fn many_rows_cost_few_round_trips() {
    const ROWS: u64 = 5000;
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query(&format!("INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS}"));
    for statement in [
        format!("INSERT IGNORE INTO t SELECT seq, seq FROM seq_1_to_{ROWS}"),
        format!("INSERT IGNORE INTO t SELECT seq + {ROWS}, seq FROM seq_1_to_{ROWS}"),
        format!("REPLACE INTO t SELECT seq, seq + 1 FROM seq_1_to_{ROWS}"),
        format!("REPLACE INTO t SELECT seq, seq + 1 FROM seq_1_to_{ROWS}"),
        format!(
            "INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS} ON DUPLICATE KEY UPDATE v = v + VALUES(v)"
        ),
        format!("INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS} ON DUPLICATE KEY UPDATE v = v"),
    ] {
        let before = round_trips(&mut session);
        session.query(&statement);
        let spent = round_trips(&mut session) - before;
        assert!(spent * 50 <= ROWS, "{spent} round trips: {statement}");
    }
    // Rows 1 to 5000 contain seq + 1 + seq, the others seq.
    let sum = (1..=ROWS).map(|n| 3 * n + 1).sum::<u64>();
    assert_eq!(session.lines("SELECT COUNT(*), SUM(v) FROM t"), [format!("{} {sum}", 2 * ROWS)]);
}

/// The handling of a duplicate must find the row as the statement itself has changed it.
#[test]
fn a_key_may_come_again_and_again() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, v INT, b TEXT)");
    oracle.good("INSERT INTO t VALUES (1, 0, ''), (2, 0, '')");
    let rows: Vec<String> = (0..3000).map(|n| format!("({}, {n}, 'x')", n % 4)).collect();
    let rows = rows.join(", ");
    for end in ["ON DUPLICATE KEY UPDATE v = t.v + 1, b = CONCAT(RIGHT(t.b, 20), VALUES(v))", ""] {
        let verb = if end.is_empty() { "REPLACE" } else { "INSERT" };
        oracle.good(&format!("{verb} INTO t VALUES {rows} {end}"));
        oracle.good("SELECT * FROM t ORDER BY id");
    }
}

#[test]
fn a_row_that_fails_is_named_and_nothing_stays() {
    let cluster = TestCluster::start_with(1, &[("MaxNoOfConcurrentOperations", "512")], &[]);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_100");
    for statement in [
        "INSERT IGNORE INTO t SELECT seq, 0 FROM seq_1_to_5000",
        "REPLACE INTO t SELECT seq, 0 FROM seq_1_to_5000",
        "INSERT INTO t SELECT seq, 0 FROM seq_1_to_5000 ON DUPLICATE KEY UPDATE v = 0",
    ] {
        let (number, sentence) = session.error(statement);
        assert!(number == 1296 && sentence.contains("234"), "{statement}: {sentence}");
        assert_eq!(session.lines("SELECT COUNT(*), SUM(v) FROM t"), ["100 5050"], "{statement}");
    }
    session.query("SET sql_mode = 'STRICT_ALL_TABLES'");
    session.query("INSERT IGNORE INTO t SELECT seq, 0 FROM seq_91_to_110");
    assert_eq!(session.lines("SELECT COUNT(*), SUM(v) FROM t"), ["110 5050"]);
}
