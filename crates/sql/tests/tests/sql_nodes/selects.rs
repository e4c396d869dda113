//! Random queries on tables with indexes of all kinds have the same results on Vinga's tables as on InnoDB's, with all
//! kinds of plans: ranges, jumps from value to value, several indexes, rows of other tables.

use vinga_sql_tests::TestCluster;
use vinga_sql_tests::environment;
use vinga_sql_tests::oracle::{Oracle, Said};

/// Number of rows in a table.
const ROWS: u32 = 300;
/// Default number of queries for a seed (`VINGA_QUERIES`).
const QUERIES: u64 = 3_000;

const TABLES: [&str; 2] = ["one", "two"];

/// Columns, and their values: no two of them are equal, as it is not defined by which one a group would be shown.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("id", &["1", "17", "150", "151", "299", "300", "301"]),
    ("a", &["-1", "0", "1", "2", "3"]),
    ("b", &["NULL", "0", "5", "10", "15", "20"]),
    ("t", &["NULL", "''", "'a'", "'B'", "'b c'", "'ccc'", "'zebra'"]),
    ("d", &["'2024-01-01'", "'2024-02-29 10:00:00'", "'2025-12-31 23:59:59'"]),
    ("n", &["0.00", "1.50", "-2.25", "99.99"]),
    ("e", &["'x'", "'y'", "'z'"]),
];

struct Queries {
    random: fastrand::Rng,
}

impl Queries {
    fn any<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(0..of.len())]
    }

    /// A column, and one of its values that is not NULL.
    fn column(&mut self) -> (&'static str, &'static str) {
        let (column, values) = COLUMNS[self.random.usize(0..COLUMNS.len())];
        loop {
            let value = self.any(values);
            if value != "NULL" {
                return (column, value);
            }
        }
    }

    fn value_of(&mut self, column: &str) -> &'static str {
        loop {
            let (of, value) = self.column();
            if of == column {
                return value;
            }
        }
    }

    /// A condition on the columns of a table with this alias.
    fn condition(&mut self, alias: &str, depth: u32) -> String {
        if depth > 0 && self.random.u8(..3) > 0 {
            let (left, right) = (self.condition(alias, depth - 1), self.condition(alias, depth - 1));
            let how = self.any(&["AND", "OR", "AND NOT"]);
            return format!("({left} {how} {right})");
        }
        let (column, value) = self.column();
        let other = self.value_of(column);
        let name = format!("{alias}.{column}");
        match self.random.u8(..10) {
            0..3 => format!("{name} {} {value}", self.any(&["<", "<=", ">", ">=", "<>", "<=>"])),
            3..5 => format!("{name} = {value}"),
            5 => format!("{name} IN ({value}, {other}, {})", self.value_of(column)),
            6 => format!("{name} NOT IN ({value}, {other})"),
            7 => format!("{name} BETWEEN {value} AND {other}"),
            8 => format!("{name} IS {}", self.any(&["NULL", "NOT NULL"])),
            _ => format!("{alias}.t LIKE {}", self.any(&["'a%'", "'%b%'", "'_'", "'B'", "''"])),
        }
    }

    fn names(&mut self, alias: &str) -> String {
        let count = self.random.usize(1..=2);
        let names: Vec<String> = (0..count).map(|_| format!("{alias}.{}", self.column().0)).collect();
        names.join(", ")
    }

    fn aggregate(&mut self, alias: &str) -> String {
        let (column, _) = self.column();
        let function = self.any(&["MIN(", "MAX(", "COUNT(", "COUNT(DISTINCT ", "SUM("]);
        let column = if function == "SUM(" { "b" } else { column };
        format!("{function}{alias}.{column})")
    }

    /// A query whose set of rows does not depend on the plan.
    fn query(&mut self) -> String {
        let table = self.any(&TABLES);
        let depth = self.random.u32(0..3);
        let condition = self.condition("x", depth);
        match self.random.u8(..9) {
            0 => format!("SELECT x.* FROM {table} x WHERE {condition}"),
            1 => format!("SELECT DISTINCT {} FROM {table} x WHERE {condition}", self.names("x")),
            2 => {
                let names = self.names("x");
                format!(
                    "SELECT {names}, {} FROM {table} x WHERE {condition} GROUP BY {names}",
                    self.aggregate("x")
                )
            }
            3 => format!("SELECT {} FROM {table} x WHERE {condition}", self.aggregate("x")),
            4 => {
                let order =
                    self.any(&["x.id", "x.id DESC", "x.a, x.id", "x.b DESC, x.id", "x.t, x.a, x.id DESC"]);
                format!(
                    "SELECT x.id FROM {table} x WHERE {condition} ORDER BY {order} LIMIT {}",
                    self.random.u8(1..20)
                )
            }
            5 => {
                let (other, on) = (self.any(&TABLES), self.any(&["id", "a", "b", "t"]));
                let join = self.any(&["JOIN", "LEFT JOIN"]);
                let further = self.condition("y", 0);
                format!(
                    "SELECT x.id, y.id FROM {table} x {join} {other} y ON x.{on} = y.{on} AND {further} \
                     WHERE {condition} AND x.id < 60"
                )
            }
            6 => {
                let (inner, on) = (self.condition("y", 1), self.any(&["id", "a", "b"]));
                let how = self.any(&["IN", "NOT IN"]);
                format!(
                    "SELECT x.id FROM {table} x WHERE {condition} AND \
                     x.{on} {how} (SELECT y.{on} FROM two y WHERE y.{on} IS NOT NULL AND {inner})"
                )
            }
            7 => {
                let inner = self.condition("y", 0);
                format!(
                    "SELECT x.id FROM {table} x WHERE {condition} AND \
                     EXISTS (SELECT 1 FROM one y WHERE y.b = x.a AND {inner})"
                )
            }
            _ => format!(
                "SELECT x.id, x.a FROM {table} x WHERE {condition} UNION SELECT y.id, y.b FROM two y WHERE {}",
                self.condition("y", 1)
            ),
        }
    }

    fn row(&mut self, id: u32) -> String {
        let values: Vec<&str> = COLUMNS[1..].iter().map(|(_, values)| self.any(values)).collect();
        format!("({id}, {})", values.join(", "))
    }
}

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("a SQL node answers"))
}

fn fill(oracle: &mut Oracle, queries: &mut Queries) {
    let columns =
        "a INT NOT NULL, b INT, t VARCHAR(20), d DATETIME NOT NULL, n DECIMAL(6,2), e ENUM('x','y','z')";
    oracle.good(&format!(
        "CREATE TABLE one (id INT PRIMARY KEY, {columns}, KEY (a), KEY (b, a), KEY (t), KEY (d), KEY (n, t))"
    ));
    oracle.good(&format!(
        "CREATE TABLE two (id INT, {columns}, UNIQUE KEY (id), KEY (a, b), KEY (a, e, b), KEY (t, a))"
    ));
    for table in TABLES {
        let rows: Vec<String> = (1..=ROWS).map(|id| queries.row(id)).collect();
        oracle.good(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")));
        let said = oracle.same(format!("SELECT COUNT(*) FROM {table}"));
        assert_eq!(said, Said::Good(0, 0, 0, vec![ROWS.to_string()]));
    }
    // Statistics determine the plan.
    for table in TABLES {
        oracle.ask(format!("ANALYZE TABLE {table}"));
    }
}

/// A result without the order of rows, if the query does not specify one.
fn in_order(said: Said, query: &str) -> Said {
    match said {
        Said::Good(affected, number, warnings, mut rows) if !query.contains("ORDER BY") => {
            rows.sort_unstable();
            Said::Good(affected, number, warnings, rows)
        }
        said => said,
    }
}

/// The same query without indexes. When the server jumps from value to value it loses rows, or returns some twice, with
/// InnoDB too: if InnoDB's results depend on the plan, only those without indexes can be compared.
fn without_indexes(query: &str) -> String {
    let hinted = |query: String, table: &str| {
        ["x", "y"].iter().fold(query, |query, alias| {
            query.replace(&format!(" {table} {alias}"), &format!(" {table} {alias} USE INDEX ()"))
        })
    };
    TABLES.iter().fold(query.to_owned(), |query, table| hinted(query, table))
}

#[test]
fn random_queries_say_what_they_say_of_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    let seed = environment::seed();
    println!("seed {seed}");
    let mut queries = Queries { random: fastrand::Rng::with_seed(seed) };
    fill(&mut oracle, &mut queries);
    for number in 0..environment::number("VINGA_QUERIES").unwrap_or(QUERIES) {
        let query = queries.query();
        let [ours, theirs] = oracle.ask(&query).map(|said| in_order(said, &query));
        if ours != theirs {
            let right = oracle.ask(without_indexes(&query)).map(|said| in_order(said, &query));
            let where_ = format!("seed {seed}, query {number}: {query}");
            assert_eq!(right[0], right[1], "left: Vinga, right: InnoDB, without indexes; {where_}");
            if theirs == right[1] {
                panic!("Vinga {ours:?}, InnoDB {theirs:?}; {where_}");
            }
        }
        assert_eq!(ours.number(), 0, "{query}: {ours:?}");
    }
}

/// Rare plans: jumps from value to value of an index, within ranges.
#[test]
fn values_of_an_index_are_jumped_through() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE f (id INT PRIMARY KEY, a INT NOT NULL, d DATETIME, KEY (a), KEY (d))");
    oracle.good("INSERT INTO f SELECT seq, seq % 3, '2024-01-01' + INTERVAL seq % 5 DAY FROM seq_1_to_200");
    oracle.ask("ANALYZE TABLE f");
    for query in [
        "SELECT DISTINCT a FROM f WHERE a IN (0, 2)",
        "SELECT DISTINCT a FROM f WHERE a <> 1",
        "SELECT a FROM f WHERE a < 1 OR a > 1 GROUP BY a",
        "SELECT COUNT(DISTINCT a) FROM f WHERE a < 1 OR a > 1",
        "SELECT DISTINCT d FROM f WHERE d NOT IN ('2024-01-02', '2024-01-04')",
        "SELECT a, MIN(id), MAX(id) FROM f WHERE a IN (0, 2) GROUP BY a",
        "SELECT MIN(a) FROM f WHERE a > 0 AND a < 9",
        "SELECT COUNT(DISTINCT a) FROM f WHERE d LIKE '2024-01-02%'",
    ] {
        oracle.good(query);
    }
}

/// Virtual columns are computed for each row, by whatever plan it is read: the server leaves that to the engine when it
/// reads ranges.
#[test]
fn virtual_columns_are_made_of_each_row() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    for table in ["v", "w"] {
        oracle.good(&format!(
            "CREATE TABLE {table} (id INT PRIMARY KEY, a INT NOT NULL, u INT, t VARCHAR(20), \
             twice DOUBLE AS (a * 2) VIRTUAL, said VARCHAR(50) AS (CONCAT(t, '!', a)) VIRTUAL, long_one TEXT AS (REPEAT(t, 3)) VIRTUAL, \
             KEY (a), UNIQUE KEY (u), KEY (t))"
        ));
        oracle.good(&format!(
            "INSERT INTO {table} (id, a, u, t) SELECT seq, seq % 30, NULLIF(seq, 7), CONCAT('t', seq % 11) FROM seq_1_to_400"
        ));
        oracle.ask(format!("ANALYZE TABLE {table}"));
    }
    let by_ranges = [
        "a < 5",
        "a BETWEEN 3 AND 4 OR a > 27",
        "a IN (1, 2, 5)",
        "id IN (1, 5, 9, 500)",
        "id > 390",
        "id = 3",
        "u IN (3, 7, 9)",
        "u < 6",
        "u = 8",
        "t = 't3'",
        "t LIKE 't1%'",
        "t IN ('t2', 't4')",
        "a = 3 OR u = 5",
        "u IS NULL",
    ];
    let join_levels = ["0", "2", "4", "6", "8"];
    for condition in by_ranges {
        for wanted in ["twice", "said", "id, long_one", "twice, a, said"] {
            let query = format!("SELECT {wanted} FROM v WHERE {condition}");
            let [ours, theirs] = oracle.ask(&query).map(|said| in_order(said, &query));
            assert_eq!(ours, theirs, "{query}");
        }
        for order in ["a", "a DESC", "t DESC", "u DESC"] {
            let column = order.trim_end_matches(" DESC");
            oracle.good(&format!(
                "SELECT {column}, IF('{column}' = 'a', twice, said IS NULL) FROM v FORCE INDEX ({column}) WHERE {condition} \
                 ORDER BY {order} LIMIT 20"
            ));
        }
        oracle.good(&format!("SELECT COUNT(*), SUM(twice) FROM v WHERE ({condition}) AND twice > 4"));
        oracle.good(&format!("SELECT COUNT(*) FROM v WHERE ({condition}) AND said LIKE '%!1'"));
    }
    for level in join_levels {
        oracle.ask(format!("SET join_cache_level = {level}"));
        for join in ["w.a = v.a", "w.id = v.u", "w.u = v.id", "w.id = v.twice", "w.t = v.t AND w.a = v.a"] {
            oracle.good(&format!("SELECT COUNT(*), SUM(w.twice), SUM(CRC32(w.said)), SUM(v.twice) FROM v JOIN w ON {join} WHERE v.a < 9"));
            oracle.good(&format!(
                "SELECT COUNT(*), SUM(w.twice), SUM(CRC32(v.long_one)) FROM v LEFT JOIN w ON {join} AND w.twice > 8 WHERE v.id < 90"
            ));
        }
    }
    for change in [
        "UPDATE v SET t = said WHERE a < 3",
        "UPDATE v SET u = NULL WHERE a BETWEEN 4 AND 6 AND twice = 10",
        "UPDATE v JOIN w ON w.id = v.u SET v.t = w.said WHERE v.a IN (7, 8)",
        "UPDATE v SET u = u + 1000 WHERE twice > 40 AND a < 24 ORDER BY t, id LIMIT 7",
        "UPDATE v SET t = 'sorted' WHERE said LIKE '%2' ORDER BY u DESC, id",
        "DELETE FROM v WHERE twice < 50 AND twice > 44 ORDER BY t, id LIMIT 5",
        "DELETE FROM v WHERE a > 25 AND twice < 56",
        "DELETE FROM v WHERE id IN (1, 40, 41) AND said = 't8!11'",
        "DELETE v FROM v JOIN w ON w.a = v.a WHERE w.twice = 18",
        "INSERT INTO w (id, a, t) SELECT id + 1000, twice, said FROM v WHERE a < 4",
    ] {
        oracle.good(change);
        oracle.good("SELECT * FROM v ORDER BY id");
        oracle.good("SELECT * FROM w ORDER BY id");
    }
}

/// The server's hash joins compare such texts byte by byte.
#[test]
fn joins_find_texts_that_differ_in_trailing_blanks() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE x (a VARCHAR(5) COLLATE utf8mb4_bin) ENGINE=VINGA");
    session.query("CREATE TABLE y (b VARCHAR(5) COLLATE utf8mb4_bin) ENGINE=VINGA");
    session.query("INSERT INTO x VALUES ('a  '), ('b')");
    session.query("INSERT INTO y VALUES ('a'), ('b')");
    assert_eq!(session.lines("SELECT COUNT(*) FROM x STRAIGHT_JOIN y ON x.a = y.b"), ["2"]);
    assert_eq!(session.lines("SELECT COUNT(*) FROM x LEFT JOIN y ON x.a = y.b WHERE y.b IS NOT NULL"), ["2"]);
}
