//! Ranges of a key that are read in descending order: the same rows as with InnoDB, and no others are requested.

use vinga_sql_tests::oracle::Oracle;
use vinga_sql_tests::{Session, TestCluster, environment};

/// Default number of queries for a seed (`VINGA_QUERIES`).
const QUERIES: u64 = 3_000;

#[test]
fn only_the_rows_of_the_range_come() {
    let cluster = TestCluster::start(1);
    let (mut s, mut other) = (cluster.connect(0), cluster.connect(0));
    s.query("CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, KEY (k)) ENGINE=VINGA");
    s.query("INSERT INTO t SELECT seq, seq * 7919 % 100000, 0 FROM seq_1_to_20000");
    s.query("INSERT INTO t SELECT seq, seq, 1 FROM seq_100001_to_105000");
    s.query("ANALYZE TABLE t");
    let ranges = [
        ("k >= 101000 AND k < 103000", 2000),
        ("k > 101000 AND k <= 103000", 2000),
        ("k > 104000", 1000),
        ("k BETWEEN 102000 AND 102000", 1),
        ("k BETWEEN 101001 AND 101100 OR k BETWEEN 102001 AND 102200 OR k > 104900", 400),
        ("k > 200000 OR k BETWEEN 101001 AND 101100", 100),
        ("k > 200000", 0),
        ("k BETWEEN 300000 AND 400000 OR k = 102000", 1),
    ];
    for (range, rows) in ranges {
        let [up, down] = ["", " DESC"]
            .map(|order| format!("SELECT k, v FROM t FORCE INDEX (k) WHERE {range} ORDER BY k{order}"));
        let mut upwards = s.lines(&up);
        upwards.reverse();
        assert_eq!(s.lines(&down), upwards, "{range}");
        assert_eq!(upwards.len() as u64, rows, "{range}");
        // An empty range above all rows: the server needs one row to find that out.
        let for_nothing = u64::from(range.contains("k > 200000")) * 64;
        let came = s.growth("scanned_rows", &down);
        assert!((rows..=rows + for_nothing).contains(&came), "{came} rows came for {rows}: {range}");
        let (trips_up, trips_down) = (s.growth("round_trips", &up), s.growth("round_trips", &down));
        let ranges = 1 + range.matches(" OR ").count() as u64;
        assert!(trips_down <= trips_up + 2 * ranges, "{trips_down} round trips, upwards {trips_up}: {range}");
    }
    // Nor are other rows examined: the row that is read for an empty range need not fulfil the condition.
    let looked_at = |s: &mut Session, query: &str| {
        let rows = "SELECT SUM(VALUE) FROM information_schema.VINGA_COUNTERS WHERE COUNTER = 'rows scanned'";
        let before: u64 = s.lines(rows)[0].parse().expect("a number");
        s.query(query);
        s.lines(rows)[0].parse::<u64>().expect("a number") - before
    };
    for condition in ["k > 200000", "k > 200000 AND v = 5", "k > 104990 AND v = 5"] {
        let query = format!("SELECT k FROM t FORCE INDEX (k) WHERE {condition} ORDER BY k DESC LIMIT 1");
        // Concurrent requests for statistics also examine rows.
        let least = (0..5).map(|_| looked_at(&mut s, &query)).min().expect("several times");
        assert!(least < 100, "{least} rows were examined: {query}");
        assert!(s.lines(&query).is_empty());
    }
    // Rows below the range are not locked.
    s.query("BEGIN");
    assert_eq!(
        s.lines("SELECT k FROM t FORCE INDEX (k) WHERE k > 104998 ORDER BY k DESC FOR UPDATE"),
        ["105000", "104999"]
    );
    other.query("UPDATE t SET v = 2 WHERE id <= 104998 AND id > 104900");
    assert_eq!(other.error("UPDATE t SET v = 2 WHERE id = 104999").0, 1205);
    s.query("COMMIT");
    // A few rows of a long range.
    let limited = "SELECT k FROM t WHERE k > 100000 ORDER BY k DESC LIMIT 3";
    assert_eq!(s.lines(limited), ["105000", "104999", "104998"]);
    assert!(s.growth("scanned_rows", limited) < 200);
    assert_eq!(s.growth("round_trips", limited), 1);
}

const KEYS: [&str; 5] = ["a", "a, b", "b, a", "t", "a DESC, b"];

fn end(random: &mut fastrand::Rng, column: &str) -> String {
    match column {
        "t" => ["''", "'a'", "'B'", "'b c'", "'ccc'", "'x'"][random.usize(..6)].to_owned(),
        _ => random.i32(-2..12).to_string(),
    }
}

fn condition(random: &mut fastrand::Rng) -> String {
    let column = ["a", "a", "b", "t"][random.usize(..4)];
    let (low, high) = (end(random, column), end(random, column));
    let low_sign = [">", ">="][random.usize(..2)];
    let high_sign = ["<", "<="][random.usize(..2)];
    match random.u8(..10) {
        0..3 => format!("{column} {low_sign} {low} AND {column} {high_sign} {high}"),
        3 => format!("{column} {low_sign} {low}"),
        4 => format!("{column} {high_sign} {high}"),
        5 => format!("({column} {high_sign} {low} OR {column} {low_sign} {high})"),
        6 => format!("{column} IN ({low}, {high}, {})", end(random, column)),
        7 => format!("({column} IS NULL OR {column} {low_sign} {low})"),
        8 => format!("{column} <> {low}"),
        _ => format!("{column} = {low} AND {}", condition(random)),
    }
}

#[test]
fn random_ranges_come_as_they_come_from_innodb() {
    let cluster = TestCluster::start(1);
    let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("a SQL node answers"));
    let seed = environment::seed();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let keys: Vec<String> = KEYS.iter().enumerate().map(|(at, key)| format!("KEY k{at} ({key})")).collect();
    oracle.good(&format!(
        "CREATE TABLE r (id INT PRIMARY KEY, a INT, b INT NOT NULL, t VARCHAR(10), {})",
        keys.join(", ")
    ));
    let rows: Vec<String> = (1..=400)
        .map(|id| {
            let a = if random.u8(..8) == 0 { "NULL".to_owned() } else { end(&mut random, "a") };
            format!("({id}, {a}, {}, {})", random.u32(..10), end(&mut random, "t"))
        })
        .collect();
    oracle.good(&format!("INSERT INTO r VALUES {}", rows.join(", ")));
    oracle.ask("ANALYZE TABLE r");
    for number in 0..environment::number("VINGA_QUERIES").unwrap_or(QUERIES) {
        let at = random.usize(..KEYS.len());
        let key = KEYS[at].replace(" DESC", "");
        let order: Vec<String> = KEYS[at]
            .split(", ")
            .map(|part| part.strip_suffix(" DESC").map_or_else(|| format!("{part} DESC"), str::to_owned))
            .collect();
        let limit = ["", "", " LIMIT 1", " LIMIT 7", " LIMIT 5, 20"][random.usize(..5)];
        let lock = ["", "", "", " LOCK IN SHARE MODE", " FOR UPDATE"][random.usize(..5)];
        let mut wanted = condition(&mut random);
        if random.bool() {
            wanted = format!("{wanted} AND {}", condition(&mut random));
        }
        // Equal keys have no order among them: only these columns are selected.
        oracle.good(&format!(
            "SELECT {key} FROM r FORCE INDEX (k{at}) WHERE {wanted} ORDER BY {}{limit}{lock} /* {seed}: {number} */",
            order.join(", ")
        ));
    }
}
