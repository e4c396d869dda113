//! Conditions that the data nodes check: queries on Vinga's tables find the same rows as on InnoDB's, without
//! additional warnings; and if the data nodes claim to check a whole condition, the SQL node does not have to filter
//! any rows.

mod generated;
mod random;
mod values;

use vinga_sql_tests::oracle::{OURS, Oracle, Said};
use vinga_sql_tests::{Session, TestCluster};

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| {
        let mut connection = cluster.sql_nodes[0].connect().expect("a SQL node answers");
        connection.query("SET NAMES utf8mb4, sql_mode = ''").expect("every server has these");
        connection
    })
}

/// What the data nodes have checked, and how many rows they have sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Work {
    pushed: u64,
    whole: u64,
    rows: u64,
}

impl Work {
    fn so_far(session: &mut Session) -> Self {
        let mut counter = |name: &str| {
            let row = session.query(&format!("SHOW GLOBAL STATUS LIKE 'vinga_{name}'")).remove(0);
            row[1].parse().expect("it is a number")
        };
        Work {
            pushed: counter("pushed_conditions"),
            whole: counter("whole_conditions"),
            rows: counter("scanned_rows"),
        }
    }

    fn since(self, before: Self) -> Self {
        Work {
            pushed: self.pushed - before.pushed,
            whole: self.whole - before.whole,
            rows: self.rows - before.rows,
        }
    }
}
/// A zone with summer time, which is not part of the server.
fn make_zone(session: &mut Session) {
    for statement in [
        "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (4000, 'N')",
        "INSERT INTO mysql.time_zone_name VALUES ('Test/Summer', 4000)",
        "INSERT INTO mysql.time_zone_transition_type VALUES (4000, 0, 3600, 0, 'WIN'), (4000, 1, 7200, 1, 'SUM')",
        "INSERT INTO mysql.time_zone_transition VALUES (4000, -2147483648, 0), (4000, 1679792400, 1), (4000, 1698541200, 0), \
         (4000, 1711846800, 1), (4000, 1729990800, 0)",
    ] {
        session.query(statement);
    }
}
/// How much of a condition the data nodes check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checked {
    Nothing,
    Part,
    Whole,
}

fn checked(session: &mut Session, table: &str, condition: &str) -> Checked {
    let query = format!("SELECT COUNT(*) FROM {table} USE INDEX () WHERE {condition}");
    let before = Work::so_far(session);
    session.query(&query);
    let work = Work::so_far(session).since(before);
    let explained = session.lines(&format!("EXPLAIN {query}")).concat();
    let is_explained = explained.contains("with pushed condition");
    let checked = match work {
        Work { pushed: 0, .. } => Checked::Nothing,
        Work { whole: 0, .. } => Checked::Part,
        _ => Checked::Whole,
    };
    assert_eq!(is_explained, checked != Checked::Nothing, "{condition}: {explained}");
    checked
}

#[test]
fn conditions_of_all_types_are_checked_by_data_nodes() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    make_zone(&mut session);
    session.query(
        "CREATE TABLE c (id INT PRIMARY KEY, i INT, j INT, g BIGINT, u BIGINT UNSIGNED, y YEAR, b BIT(8), e ENUM('x','y'), m SET('a','b'), \
         f FLOAT, d DOUBLE, f2 FLOAT(7,2), n DECIMAL(10,2), da DATE, dt DATETIME, dt3 DATETIME(3), ti TIME, ts TIMESTAMP NULL, \
         bi BINARY(4), vb VARBINARY(9), k VARCHAR(9), k2 VARCHAR(9), o VARCHAR(9), ob VARCHAR(9) COLLATE utf8mb4_bin, \
         on_ VARCHAR(9) COLLATE utf8mb4_nopad_bin, ch CHAR(9) COLLATE utf8mb4_bin, kc CHAR(9), uu UUID, KEY (k), KEY (k2), KEY (kc)) ENGINE=VINGA",
    );
    session.query("INSERT INTO c (id, i, k) VALUES (1, 1, 'x'), (2, NULL, NULL)");
    session.query("SET time_zone = 'Test/Summer', @text = '2024-01-05', @number = 7");
    let mut wrong = Vec::new();
    let mut expect = |session: &mut Session, condition: &str, wanted: Checked| {
        let found = checked(session, "c", condition);
        if found != wanted {
            wrong.push(format!("{condition}: {found:?}, not {wanted:?}"));
        }
    };
    for condition in [
        "i = 5",
        "i <> '5'",
        "i < 1.5",
        "i >= 1.5e0",
        "g > '17'",
        "u <= -1",
        "i + 5 > 7",
        "7 > i - 5",
        "i = j",
        "g < u",
        "NOT (i > 5 AND j < 3 OR g IS NULL)",
        "i NOT IN (1, 2, NULL)",
        "i NOT BETWEEN 1 AND 5.5",
        "i <=> NULL",
        "NOT i <=> 5",
        "i IS NOT NULL",
        "i = @number",
        "y = 2024",
        "y >= '1999'",
        "b = b'101'",
        "e = 'X'",
        "e > 'x'",
        "e IN ('x', 'z')",
        "e = 1",
        "m = 'a,b'",
        "f < 0.1",
        "d = '5'",
        "d <= 7",
        "n < 1.5e0",
        "n = '1.234'",
        "n > 12345678901234567890",
        "da > '2024-01-05 10:00:00'",
        "dt > '2024-01-05'",
        "dt > @text",
        "dt > NOW() - INTERVAL 1 DAY",
        "dt BETWEEN 20240105 AND DATE'2024-02-01'",
        "dt IN ('2024-01-05', '2024-01-06 10:00:00.5')",
        "dt3 < '2024-01-05 10:00:00.12345'",
        "dt = '0000-00-00'",
        "ti < '-10:00:00.5'",
        "ts >= '2024-01-05 10:00:00'",
        "ts = '0000-00-00 00:00:00'",
        "bi = 'ab'",
        "vb < 'ab'",
        "vb LIKE 'ab%'",
        "vb NOT LIKE 'ab%'",
        "k = 'a'",
        "k < 'ä '",
        "k BETWEEN 'a' AND 'b'",
        "k IN ('a', 'b')",
        "k <> 'a'",
        "k = k2",
        "kc >= 'a'",
        "k LIKE '%'",
        "k NOT LIKE '%'",
        "on_ > 'a'",
        "on_ LIKE 'a%'",
        "ch = 'a '",
        "uu IS NULL",
    ] {
        expect(&mut session, condition, Checked::Whole);
    }
    for condition in [
        "k LIKE 'a%'",
        "k LIKE 'a'",
        "kc LIKE 'a_%'",
        "ch LIKE 'a%'",
        "vb LIKE 'a%b'",
        "ob = 'a'",
        "ob < 'a'",
        "ob IN ('a', 'b')",
        "ob LIKE 'a%b'",
        "i = 5 AND o = 'a'",
        "(i = 5 OR j = 3 AND o = 'a') AND g > 1",
        "NOT (i = 5 OR o = 'a')",
    ] {
        expect(&mut session, condition, Checked::Part);
    }
    for condition in [
        "o = 'a'",
        "o LIKE 'a%'",
        "ob <> 'a'",
        "k NOT LIKE 'a%'",
        "k LIKE '%a'",
        "k = 'a' COLLATE utf8mb4_bin",
        "f2 = 5",
        "g + 1 > 5",
        "u - 1 > 5",
        "i + j > 5",
        "i * 2 > 5",
        "ABS(i) = 5",
        "i = 5 OR o = 'a'",
        "dt > 'garbage'",
        "i > 'x5'",
        "ti > DATE'2024-01-05'",
        "uu = '123e4567-e89b-12d3-a456-426655440000'",
        // Two times of the zone have this local time, or none.
        "ts > '2024-10-27 02:30:00'",
        "ts > '2024-03-31 02:30:00'",
        "i XOR j",
    ] {
        expect(&mut session, condition, Checked::Nothing);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A condition with this many levels, alternating AND and OR.
fn nested(levels: usize) -> String {
    let open = "(v > 5 OR (state < 3 AND ".repeat(levels / 2);
    format!("{open}v = 1{}", "))".repeat(levels / 2))
}

#[test]
fn conditions_of_any_depth_and_length_find_the_right_rows() {
    let cluster = TestCluster::start_with(1, &[], &[("max_allowed_packet", "67108864")]);
    let mut oracle = oracle(&cluster);
    oracle.good("CREATE TABLE t (id INT PRIMARY KEY, v INT, state INT, s VARCHAR(20), w VARCHAR(20), d DATETIME, KEY (s)) CHARACTER SET utf8mb4");
    oracle.good(
        "INSERT INTO t SELECT seq, NULLIF(seq % 13, 7), seq % 5, CONCAT('text ', seq * 7), CONCAT('text ', seq), \
         '2024-01-01' + INTERVAL seq HOUR FROM seq_1_to_500",
    );
    let list = |count: u32, of: fn(u32) -> String| (1..=count).map(of).collect::<Vec<_>>().join(",");
    let mut conditions: Vec<String> = [10, 58, 62, 64, 66, 80, 128, 500, 2_000].map(nested).into();
    conditions.extend(conditions.clone().iter().map(|condition| format!("NOT ({condition})")));
    for count in [900, 2_000, 10_000, 100_000] {
        let numbers = list(count, |at| (at * 3 + 2).to_string());
        let texts = list(count, |at| format!("'TEXT {}'", at * 21));
        let mixed = list(count, |at| match at % 3 {
            0 => format!("'{at}'"),
            1 => format!("{at}.5"),
            _ => at.to_string(),
        });
        let dates = list(count, |at| format!("'2024-01-01' + INTERVAL {} MINUTE", at * 90));
        conditions.extend([
            format!("id IN ({numbers})"),
            format!("id NOT IN ({numbers})"),
            format!("id NOT IN ({numbers}, NULL)"),
            format!("v = 3 OR id IN ({numbers}, NULL)"),
            format!("v = 3 OR id IN ({mixed})"),
            format!("s NOT IN ({texts})"),
            format!("v = 3 OR s IN ({texts})"),
            format!("v = 3 OR w IN ({texts})"),
        ]);
        if count <= 10_000 {
            conditions.push(format!("v = 3 OR d IN ({dates})"));
        }
    }
    for count in [100, 1_000, 10_000] {
        for how in [" OR ", " AND "] {
            let terms = |of: fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(how);
            conditions.extend([
                terms(|at| format!("id = {}", at + 400)),
                terms(|at| format!("id <> {}", at * 3)),
                terms(|at| format!("{} < {at}", ["id", "v", "state"][at % 3])),
                terms(|at| format!("(id = {at} AND v BETWEEN {} AND {})", at % 13, at % 17)),
                terms(|at| format!("(id > {at} OR s < 'text {}')", at % 13)),
            ]);
        }
    }
    for condition in &conditions {
        let query = format!("SELECT COUNT(*), SUM(id) FROM t USE INDEX () WHERE {condition}");
        let [ours, theirs] = oracle.ask(&query);
        let short: String = query.chars().take(200).collect();
        assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; {} bytes, {short}", query.len());
    }
    for levels in [10, 64, 128] {
        oracle.good(&format!("UPDATE t SET v = v WHERE id < 5 AND {}", nested(levels)));
        oracle.good(&format!("DELETE FROM t WHERE id < 5 AND {}", nested(levels)));
    }
    // A long list is not dropped, but replaced by the range of its values.
    let mut session = cluster.connect(0);
    session.query(&format!("USE {OURS}"));
    let numbers = list(20_000, |at| (at + 400).to_string());
    for condition in
        [format!("id IN ({numbers}) OR id = 399"), format!("v = 3 AND (id IN ({numbers}) OR id = 399)")]
    {
        let before = Work::so_far(&mut session);
        session.query(&format!("SELECT id FROM t USE INDEX () WHERE {condition}"));
        let work = Work::so_far(&mut session).since(before);
        assert!(work.pushed == 1 && work.whole == 0 && work.rows <= 102, "{work:?}");
    }
}

/// The server uses ranges for the same conditions on Vinga's tables as on InnoDB's.
#[test]
fn prefixes_of_texts_are_ranges_of_an_index() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40) COLLATE utf8mb4_general_ci, b VARCHAR(40) COLLATE utf8mb4_bin, \
         c VARCHAR(40) COLLATE utf8mb4_uca1400_ai_ci, d VARBINARY(40), e CHAR(10) CHARACTER SET latin1, KEY (a), KEY (b), KEY (c), KEY (d), KEY (e))",
    );
    oracle.good(
        "INSERT INTO t SELECT seq, x, x, x, x, LEFT(x, 10) FROM (SELECT seq, CONCAT(CHAR(97 + seq % 26), ' ', MD5(seq)) x FROM seq_1_to_2000) f",
    );
    oracle.ask("ANALYZE TABLE t");
    for column in ["a", "b", "c", "d", "e"] {
        for pattern in ["'q%'", "'q 0%'", "'q 0_%'", "'q\\%'", "'Q 0%'", "'q 00%'", "'%'"] {
            let query = format!("SELECT id FROM t WHERE {column} LIKE {pattern} ORDER BY id");
            oracle.good(&query);
            let [ours, theirs] = oracle.ask(format!("EXPLAIN {query}"));
            let [Said::Good(.., ours), Said::Good(.., theirs)] = [ours, theirs] else {
                panic!("{query} is explained")
            };
            let is_range = |plan: &[String]| plan[0].contains(&format!(" range {column} {column} "));
            assert_eq!(is_range(&ours), is_range(&theirs), "{query}: Vinga {ours:?}, InnoDB {theirs:?}");
            assert_eq!(is_range(&ours), pattern != "'%'", "{query}: {ours:?}");
        }
    }
}
