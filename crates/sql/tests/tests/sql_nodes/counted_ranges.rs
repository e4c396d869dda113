//! `COUNT` with a condition, computed by the data nodes: it must count exactly the rows that InnoDB counts, whatever
//! keys lead to them and whatever parts of the condition these keys imply. Errors here are not corrected by the server,
//! as it gets no rows.

use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{TestCluster, environment};

/// Default number of statements for a seed (`VINGA_QUERIES`).
const STATEMENTS: u64 = 1_500;
/// Number of statements on the same table.
const SAME_TABLE: u64 = 100;

const TYPES: [&str; 10] = [
    "TINYINT",
    "TINYINT UNSIGNED",
    "SMALLINT",
    "SMALLINT UNSIGNED",
    "MEDIUMINT",
    "MEDIUMINT UNSIGNED",
    "INT",
    "INT UNSIGNED",
    "BIGINT",
    "BIGINT UNSIGNED",
];
const KEYS: [&str; 9] = [
    "PRIMARY KEY (id)",
    "PRIMARY KEY (id), KEY (a)",
    "PRIMARY KEY (id), KEY (a, b), KEY (c)",
    "PRIMARY KEY (id), KEY (b, a)",
    "PRIMARY KEY (b, id), KEY (a)",
    "PRIMARY KEY (id), KEY (a, c, b)",
    "KEY (a), KEY (b)",
    "PRIMARY KEY (id) USING HASH, KEY (c, a)",
    "PRIMARY KEY (id), UNIQUE KEY (a, b, id)",
];
/// Values at the ends of types, and some in between.
const VALUES: [&str; 20] = [
    "-9223372036854775808",
    "-2147483648",
    "-8388608",
    "-32768",
    "-128",
    "-1",
    "0",
    "1",
    "2",
    "5",
    "9",
    "10",
    "127",
    "255",
    "32767",
    "65535",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
];

struct Random(fastrand::Rng);

impl Random {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(0..of.len())]
    }

    fn value(&mut self) -> String {
        match self.0.u8(..10) {
            0 => self.one(&VALUES).to_owned(),
            1 => format!("{}.5", self.0.i32(-3..12)),
            2 if self.0.u8(..4) == 0 => "NULL".to_owned(),
            3 if self.0.u8(..3) == 0 => format!("'{}'", self.0.i32(-3..12)),
            _ => self.0.i32(-3..12).to_string(),
        }
    }

    fn column(&mut self) -> &'static str {
        ["id", "a", "a", "b", "c"][self.0.usize(..5)]
    }

    /// A comparison; of one column, if that is given.
    fn comparison(&mut self, column: &str) -> String {
        match self.0.u8(..12) {
            0..3 => {
                let (low, high) = (self.0.i32(-3..12), self.0.i32(0..8));
                format!("{column} BETWEEN {low} AND {}", low + high)
            }
            3 => format!("{column} BETWEEN {} AND {}", self.value(), self.value()),
            4 => format!("{column} IN ({}, {}, {})", self.value(), self.value(), self.value()),
            5 => format!("{} {} {column}", self.value(), self.one(&["<", "<=", "=", ">=", ">"])),
            6 => format!("{column} IS {}NULL", self.one(&["", "NOT "])),
            7 => format!("{column} <> {}", self.value()),
            8 => format!("{column} <=> {}", self.value()),
            _ => format!("{column} {} {}", self.one(&["<", "<=", "=", ">=", ">"]), self.value()),
        }
    }

    fn condition(&mut self) -> String {
        let column = self.column();
        match self.0.u8(..10) {
            0..3 => self.comparison(column),
            3 | 4 => format!("({} OR {})", self.comparison(column), self.comparison(column)),
            5 => {
                let parts = [column; 4].map(|column| self.comparison(column));
                format!("({})", parts.join(" OR "))
            }
            6 => format!("NOT ({})", self.comparison(column)),
            7 => {
                format!("({} OR {} AND {})", self.comparison("a"), self.comparison("a"), self.comparison("b"))
            }
            8 => format!("{column} % 7 > {}", self.value()),
            _ => {
                let other = self.column();
                format!("({} OR {})", self.comparison(column), self.comparison(other))
            }
        }
    }

    fn conditions(&mut self) -> String {
        let count = [1, 1, 2, 2, 3][self.0.usize(..5)];
        (0..count).map(|_| self.condition()).collect::<Vec<_>>().join(" AND ")
    }
}

fn make_table(oracle: &mut Oracle, random: &mut Random) {
    oracle.good("DROP TABLE IF EXISTS t");
    let columns = ["a", "b", "c"].map(|name| {
        let must = if name == "b" || random.0.bool() { " NOT NULL DEFAULT 1" } else { "" };
        format!("{name} {}{must}", random.one(&TYPES))
    });
    let key = random.one(&KEYS);
    oracle.good(&format!("CREATE TABLE t (id INT NOT NULL, {}, {key})", columns.join(", ")));
    for id in 0..60 {
        let [a, b, c] = ["a", "b", "c"].map(|_| random.value());
        // A value that does not fit its column becomes the nearest one, because of IGNORE.
        oracle.same_but_numbers(format!("INSERT IGNORE INTO t VALUES ({id}, {a}, {b}, {c})"));
    }
}

#[test]
fn random_conditions_count_and_change_what_they_do_with_innodb() {
    let cluster = TestCluster::start(1);
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = Random(fastrand::Rng::with_seed(seed));
    let sql_node = &cluster.sql_nodes[0];
    let mut oracle = Oracle::new(|| sql_node.connect().expect("it answers"));
    let mut status = cluster.connect(0);
    let (counted, mut asked) = (status.counter("counts"), 0);
    for number in 0..environment::number("VINGA_QUERIES").unwrap_or(STATEMENTS) {
        if number % SAME_TABLE == 0 {
            make_table(&mut oracle, &mut random);
        }
        let conditions = random.conditions();
        let figures =
            random.one(&["COUNT(*)", "COUNT(id)", "COUNT(*), COUNT(b)", "COUNT(1) AS n", "COUNT(a)"]);
        let hint = random.one(&["", "", "", " IGNORE INDEX (a, b, c)"]);
        let hint = if number % 7 == 0 { "" } else { hint };
        match random.0.u8(..12) {
            0 => oracle.same_but_numbers(format!("UPDATE t SET c = 2 WHERE {conditions}")),
            1 => oracle.same_but_numbers(format!("DELETE FROM t WHERE {conditions} AND c = 2")),
            2 => oracle.same_but_numbers(format!(
                "UPDATE t SET a = 3 WHERE id = {} AND {conditions}",
                random.0.u8(..60)
            )),
            3 => oracle.same_but_numbers(format!(
                "DELETE FROM t WHERE id IN ({}, {}) AND {conditions}",
                random.0.u8(..60),
                random.0.u8(..60)
            )),
            _ => {
                asked += 1;
                // An index with that name may not exist: both engines report that.
                oracle.same_but_numbers(format!("SELECT {figures} FROM t{hint} WHERE {conditions}"));
            }
        };
    }
    let counted = status.counter("counts") - counted;
    assert!(counted * 4 > asked, "{counted} of {asked} were counted by the data nodes");
}

/// Conditions that a key's ranges imply are not checked; the rest is.
#[test]
fn nothing_is_checked_that_the_ranges_say() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, m INT, KEY (k), KEY (m, k)) ENGINE=VINGA");
    s.query("INSERT INTO t SELECT seq, seq % 100, NULLIF(seq % 10, 3) FROM seq_1_to_2000");
    let mut checked = |query: &str| {
        let before = s.counter("pushed_conditions");
        s.query(query);
        s.counter("pushed_conditions") - before
    };
    for query in [
        "SELECT COUNT(*) FROM t WHERE id BETWEEN 5 AND 9",
        "SELECT * FROM t WHERE id BETWEEN 5 AND 9",
        "SELECT * FROM t WHERE id > 5 AND id < 9",
        "SELECT * FROM t FORCE INDEX (k) WHERE k BETWEEN 5 AND 9 OR k BETWEEN 15 AND 19 OR k = 30",
        "SELECT * FROM t FORCE INDEX (m) WHERE m = 3 AND k BETWEEN 5 AND 9",
        "SELECT * FROM t FORCE INDEX (m) WHERE m < 3",
        "SELECT * FROM t WHERE id BETWEEN 5 AND 9 ORDER BY id DESC",
        "UPDATE t SET m = 4 WHERE id = 7",
        "DELETE FROM t WHERE id IN (7, 8, 9)",
    ] {
        assert_eq!(checked(query), 0, "{query}");
    }
    for query in [
        "SELECT COUNT(*) FROM t WHERE id BETWEEN 5 AND 9 AND m = 1",
        "SELECT * FROM t FORCE INDEX (k) WHERE k BETWEEN 5 AND 9 AND m <> 1",
        "SELECT * FROM t FORCE INDEX (k) WHERE k BETWEEN 5 AND 9 AND id % 2 = 0 AND m IS NULL",
        "SELECT COUNT(*) FROM t WHERE m + 1 < 5",
    ] {
        assert_eq!(checked(query), 1, "{query}");
    }
}

/// Queries with further clauses, or that are executed more than once.
#[test]
fn queries_of_every_form_count_as_innodb_does() {
    let cluster = TestCluster::start(1);
    let sql_node = &cluster.sql_nodes[0];
    let mut oracle = Oracle::new(|| sql_node.connect().expect("it answers"));
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, d VARCHAR(10), v INT, KEY (k), KEY (d))",
        "INSERT INTO t SELECT seq, seq % 50, ELT(1 + seq % 4, 'a', 'B', 'b', NULL), NULLIF(seq % 7, 2) FROM seq_1_to_1000",
        "CREATE VIEW few AS SELECT * FROM t WHERE k < 10",
        "CREATE TABLE u (k INT PRIMARY KEY)",
        "INSERT INTO u VALUES (1), (2), (3)",
        "CREATE FUNCTION below(x INT) RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t WHERE k < x)",
        "CREATE PROCEDURE all_of(n INT) BEGIN WHILE n > 0 DO SELECT COUNT(*) FROM t WHERE k BETWEEN n AND 2 * n; \
         DELETE FROM t WHERE id = n; SET n = n - 3; END WHILE; END",
        "CREATE PROCEDURE into_it() BEGIN DECLARE n INT; SELECT COUNT(*) INTO n FROM t WHERE k > 5; SELECT n; END",
    ] {
        oracle.good(statement);
    }
    for statement in [
        "SELECT COUNT(*) FROM t WHERE d = 'b'",
        "SELECT COUNT(*) FROM t WHERE d LIKE 'b%' AND k > 3",
        "SELECT COUNT(*) FROM t WHERE d IS NULL",
        "SELECT COUNT(d) FROM t WHERE k = 5",
        "SELECT COUNT(DISTINCT k) FROM t WHERE k > 5",
        "SELECT COUNT(*) AS n FROM t WHERE k > 5 HAVING n > 10",
        "SELECT COUNT(*) AS n FROM t WHERE k > 5 HAVING n < 10",
        "SELECT COUNT(*) FROM t WHERE k > 5 LIMIT 0",
        "SELECT COUNT(*) FROM t WHERE k > 5 LIMIT 1",
        "SELECT COUNT(*) FROM t WHERE k > 5 LIMIT 1 OFFSET 1",
        "SELECT SQL_CALC_FOUND_ROWS COUNT(*) FROM t WHERE k > 5",
        "SELECT FOUND_ROWS()",
        "SELECT COUNT(*) FROM t WHERE k > 5 ORDER BY 1",
        "SELECT COUNT(*), COUNT(id) FROM t WHERE k > 5 ORDER BY COUNT(*) DESC",
        "SELECT DISTINCT COUNT(*) FROM t WHERE k > 5",
        "SELECT COUNT(*), 5 FROM t WHERE k > 5",
        "SELECT COUNT(*) * 2 FROM t WHERE k > 5",
        "SELECT COUNT(*) FROM t WHERE k > 5 UNION ALL SELECT COUNT(*) FROM t WHERE k < 5",
        "SELECT COUNT(*) FROM t WHERE k IN (SELECT k FROM u)",
        "SELECT (SELECT COUNT(*) FROM t WHERE t.k = u.k) FROM u ORDER BY k",
        "SELECT k, (SELECT COUNT(*) FROM t WHERE t.k < u.k) FROM u ORDER BY k",
        "SELECT COUNT(*) FROM few WHERE v = 1",
        "SELECT COUNT(*) FROM (SELECT * FROM t WHERE k < 9 LIMIT 20) d",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM t WHERE k < 9) d",
        "SELECT COUNT(*) FROM t WHERE k = 5 AND k = 6",
        "SELECT COUNT(*) FROM t WHERE id = 5",
        "SELECT COUNT(*) FROM t WHERE id = 5000",
        "SELECT COUNT(*) FROM t WHERE k = NULL",
        "SELECT COUNT(*) FROM t WHERE k < 5 AND RAND() < 2",
        "SELECT COUNT(*) FROM t WHERE k < 5 AND below(k) >= 0",
        "SELECT COUNT(*) FROM t WHERE k > '5x'",
        "SELECT COUNT(*) FROM t WHERE k > 99999999999999999999",
        "SELECT COUNT(*) FROM t WHERE ROWNUM() < 10",
        "SELECT COUNT(*) FROM t WHERE k < 5 LOCK IN SHARE MODE",
        "SELECT COUNT(*) FROM t WHERE k < 5 FOR UPDATE",
        "SELECT COUNT(*) FROM t WHERE v = 1 GROUP BY ()",
        "SELECT COUNT(*) OVER () FROM t WHERE k = 1 LIMIT 1",
        "CREATE TABLE n SELECT COUNT(*) AS n FROM t WHERE k < 7",
        "SELECT * FROM n",
        "INSERT INTO n SELECT COUNT(*) FROM t WHERE k < 8",
        "SELECT * FROM n ORDER BY n",
        "SELECT below(3), below(4)",
        "PREPARE p FROM 'SELECT COUNT(*) FROM t WHERE k BETWEEN ? AND ?'",
        "EXECUTE p USING 3, 9",
        "EXECUTE p USING 9, 3",
        "EXECUTE p USING NULL, 3",
        "EXECUTE p USING '4', 4.5",
        "EXECUTE p USING -1, 18446744073709551615",
        "PREPARE q FROM 'SELECT COUNT(*) FROM t WHERE k = ? AND v = ?'",
        "EXECUTE q USING 3, 1",
        "EXECUTE q USING 4, NULL",
        "CALL all_of(20)",
        "CALL all_of(8)",
        "CALL into_it()",
        "BEGIN",
        "INSERT INTO t VALUES (2001, 7, 'b', 1), (2002, 8, NULL, 1)",
        "DELETE FROM t WHERE k = 9",
        "UPDATE t SET k = 10 WHERE k = 11",
        "SELECT COUNT(*) FROM t WHERE k BETWEEN 7 AND 12",
        "SELECT COUNT(*) FROM t WHERE v = 1",
        "SAVEPOINT s",
        "UPDATE t SET v = 1",
        "SELECT COUNT(*) FROM t WHERE v = 1",
        "ROLLBACK TO s",
        "SELECT COUNT(*) FROM t WHERE v = 1",
        "ROLLBACK",
        "SELECT COUNT(*) FROM t WHERE k BETWEEN 7 AND 12",
    ] {
        oracle.same_but_numbers(statement);
    }
}

/// Where reads take locks, rows that were counted stay unchanged.
#[test]
fn a_statement_that_has_to_lock_does_not_count() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    s.query("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, KEY (k)) ENGINE=VINGA");
    s.query("INSERT INTO t SELECT seq, seq % 5 FROM seq_1_to_50");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        s.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        s.query("BEGIN");
        assert_eq!(s.lines("SELECT COUNT(*) FROM t WHERE k = 3"), ["10"]);
        assert_eq!(other.error("DELETE FROM t WHERE id = 3").0, 1205, "{level}");
        s.query("COMMIT");
    }
}

/// EXPLAIN shows the plan by which rows are counted.
#[test]
fn explain_shows_the_plan_of_a_count() {
    let cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, KEY (k)) ENGINE=VINGA");
    s.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_500");
    let plan = s.lines("EXPLAIN SELECT COUNT(*) FROM t WHERE k BETWEEN 5 AND 9").remove(0);
    assert!(plan.contains("range") && plan.contains(" k "), "{plan}");
}
