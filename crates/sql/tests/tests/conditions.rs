//! Conditions that the data nodes check: whatever is asked of Vinga's tables finds the rows that it finds in InnoDB's, with no
//! warning more; and what the data nodes are said to check as a whole leaves nothing for the SQL node to do.

use vinga_sql_tests::oracle::{OURS, Oracle, Said};
use vinga_sql_tests::wishes;
use vinga_sql_tests::{Session, TestCluster};

/// Rows of the table of random conditions.
const ROWS: u32 = 150;
/// Conditions of a seed, unless `VINGA_QUERIES` says otherwise.
const CONDITIONS: u64 = 1_500;
/// Conditions between changes of the session's settings.
const SAME_SETTINGS: u64 = 40;

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

/// A column of the table of random conditions: its name, its type, and values that it has.
type Column = (&'static str, &'static str, &'static [&'static str]);

static SMALL: &[&str] = &["NULL", "0", "1", "-1", "5", "100", "-128", "127"];
static NUMBERS: &[&str] = &["NULL", "0", "1", "-1", "5", "7", "2024", "2147483647", "-2147483648"];
static LARGE: &[&str] = &[
    "NULL",
    "0",
    "1",
    "-5",
    "5",
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740993",
    "9007199254740992",
];
static UNSIGNED: &[&str] =
    &["NULL", "0", "1", "5", "18446744073709551615", "9223372036854775808", "9007199254740993"];
static REALS: &[&str] =
    &["NULL", "0e0", "-0e0", "1.5e0", "0.1e0", "-1e30", "5e0", "1.0000001e0", "16777217e0"];
static DECIMALS: &[&str] = &["NULL", "0", "1.5", "-1.5", "99.995", "0.001", "-0.001", "5", "1234.567"];
static DATES: &[&str] = &[
    "NULL",
    "'0000-00-00'",
    "'2024-01-05'",
    "'2024-02-29'",
    "'1000-01-01'",
    "'9999-12-31'",
    "'2024-00-00'",
    "'1970-01-01'",
];
static DATETIMES: &[&str] = &[
    "NULL",
    "'0000-00-00'",
    "'2024-01-05'",
    "'2024-01-05 10:00:00.5'",
    "'2024-01-05 23:59:59.999999'",
    "'9999-12-31 23:59:59'",
    "'2024-03-31 02:30:00'",
    "'1969-12-31 23:59:59'",
];
static TIMES: &[&str] = &[
    "NULL",
    "'0:00:00'",
    "'-0:00:00.5'",
    "'10:00:00.25'",
    "'838:59:59'",
    "'-838:59:59'",
    "'-10:00:00.25'",
    "'10:00:01'",
];
/// Around the changes of a zone, too.
static TIMESTAMPS: &[&str] = &[
    "NULL",
    "0",
    "'2024-01-05 10:00:00.123456'",
    "'2024-03-31 00:59:59.5'",
    "'2024-03-31 01:00:00'",
    "'2024-10-27 00:30:00'",
    "'2024-10-27 01:30:00'",
    "'2024-10-27 02:30:00'",
    "'1970-01-01 00:00:01'",
    "'2038-01-19 03:14:07'",
];
// Lists of values are told apart by their addresses, which constants do not have.
static TEXTS: &[&str] = &[
    "NULL", "''", "'a'", "'A'", "'a '", "'a\\tb'", "'ab'", "'á'", "'b'", "'ß'", "'ss'", "'5'", "'a\\t'",
    "' '", "'\\t'", "'zzzzz'",
];
static BINARIES: &[&str] = &["NULL", "''", "'a'", "'A'", "'a\\0'", "'a '", "'ab'", "x'ff'", "x'00'", "'b'"];
static LABELS: &[&str] = &["NULL", "'x'", "'Y'", "'a b'", "''", "1", "2"];
static MEMBERS: &[&str] = &["NULL", "''", "'a'", "'a,c'", "'b'", "7", "'c'"];

static COLUMNS: &[Column] = &[
    ("i8", "TINYINT", SMALL),
    ("u8", "TINYINT UNSIGNED", &["NULL", "0", "1", "5", "255", "127"]),
    ("i16", "SMALLINT NOT NULL", &["0", "1", "-1", "5", "32767", "-32768"]),
    ("i24", "MEDIUMINT", SMALL),
    ("i32", "INT", NUMBERS),
    ("j32", "INT", NUMBERS),
    ("u32", "INT UNSIGNED NOT NULL", &["0", "1", "5", "4294967295", "2147483648"]),
    ("i64", "BIGINT", LARGE),
    ("u64", "BIGINT UNSIGNED", UNSIGNED),
    ("v64", "BIGINT UNSIGNED", UNSIGNED),
    ("y", "YEAR", &["NULL", "0", "1901", "2155", "2024", "2000", "1970"]),
    ("b10", "BIT(10)", &["NULL", "0", "1", "5", "1023"]),
    ("b64", "BIT(64)", UNSIGNED),
    ("e", "ENUM('x','Y','a b')", LABELS),
    ("m", "SET('a','b','c')", MEMBERS),
    ("f", "FLOAT", REALS),
    ("d", "DOUBLE", REALS),
    ("g", "DOUBLE", REALS),
    ("f2", "FLOAT(7,2)", DECIMALS),
    ("d3", "DOUBLE(12,3)", DECIMALS),
    ("n", "DECIMAL(10,3)", DECIMALS),
    ("o", "DECIMAL(10,3)", DECIMALS),
    ("n0", "DECIMAL(20,0)", LARGE),
    ("n38", "DECIMAL(38,10)", DECIMALS),
    ("nu", "DECIMAL(6,2) UNSIGNED", &["NULL", "0", "1.50", "9999.99", "0.01"]),
    ("da", "DATE", DATES),
    ("db", "DATE", DATES),
    ("dt", "DATETIME", DATETIMES),
    ("dn", "DATETIME NOT NULL", &["'2024-01-05'", "'0000-00-00'", "'2024-01-05 10:00:00'"]),
    ("dt3", "DATETIME(3)", DATETIMES),
    ("dt6", "DATETIME(6)", DATETIMES),
    ("ti", "TIME", TIMES),
    ("ti2", "TIME(2)", TIMES),
    ("ts", "TIMESTAMP NULL", TIMESTAMPS),
    ("ts3", "TIMESTAMP(3) NULL", TIMESTAMPS),
    ("tt", "TIMESTAMP NULL", TIMESTAMPS),
    ("bi", "BINARY(4)", BINARIES),
    ("vb", "VARBINARY(8)", BINARIES),
    ("bl", "BLOB", BINARIES),
    ("cb", "CHAR(5) COLLATE utf8mb4_bin", TEXTS),
    ("cu", "CHAR(5) COLLATE utf8mb4_general_ci", TEXTS),
    ("pb", "VARCHAR(8) COLLATE utf8mb4_bin", TEXTS),
    ("kb", "VARCHAR(8) COLLATE utf8mb4_bin", TEXTS),
    ("nb", "VARCHAR(8) COLLATE utf8mb4_nopad_bin", TEXTS),
    ("tg", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("th", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("tu", "VARCHAR(8) COLLATE utf8mb4_unicode_ci", TEXTS),
    ("tp", "VARCHAR(8) COLLATE utf8mb4_unicode_nopad_ci", TEXTS),
    ("tc", "VARCHAR(8) COLLATE utf8mb4_uca1400_as_cs", TEXTS),
    ("lg", "VARCHAR(8) CHARACTER SET latin1 COLLATE latin1_german2_ci", TEXTS),
    ("ls", "CHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci", TEXTS),
    ("lb", "VARCHAR(8) CHARACTER SET latin1 COLLATE latin1_bin", TEXTS),
    ("no", "VARCHAR(8) COLLATE utf8mb4_general_ci", TEXTS),
    ("tx", "TEXT COLLATE utf8mb4_bin", TEXTS),
    (
        "uu",
        "UUID",
        &["NULL", "'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"],
    ),
    ("ip", "INET6", &["NULL", "'::'", "'ffff::1'", "'::ffff:1.2.3.4'"]),
];

const KEYS: &str = "KEY (i32), KEY (kb), KEY (tg), KEY (th), KEY (tu), KEY (tp), KEY (tc), KEY (lg), KEY (ls), KEY (cu), KEY (dt), \
     KEY (n, ts), KEY (vb), KEY (e)";

/// Constants beside values of the column.
static ODD_NUMBERS: &[&str] = &[
    "1.5",
    "-0.5",
    "1.5e0",
    "0.1",
    "'5'",
    "' 5'",
    "'1.5'",
    "'1e1'",
    "5.0",
    "4.9999999",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1e40",
    "-1e40",
    "NULL",
    "TRUE",
    "0x05",
    "b'101'",
    "2024",
    "24",
    "'24'",
    "70",
    "'2024'",
    "9007199254740993e0",
    "-1",
    "256",
    "1 + 1",
    "5 DIV 2",
    "CAST(5 AS UNSIGNED)",
    "CAST('7' AS DECIMAL(5,2))",
    "1/3",
    "'0x5'",
    "1e-300",
    "99.9949",
    "'99.995'",
];
static ODD_TIMES: &[&str] = &[
    "'2024-01-05 10:00:00.0000001'",
    "'2024-01-05T10:00:00'",
    "20240105",
    "20240105100000",
    "240105",
    "DATE'2024-01-05'",
    "TIMESTAMP'2024-01-05 10:00:00.25'",
    "TIMESTAMP'2024-10-27 02:30:00'",
    "TIMESTAMP'2024-03-31 02:30:00'",
    "TIME'10:00:00.255'",
    "NULL",
    "'2024-1-5'",
    "'24-01-05'",
    "DATE'2024-01-05' + INTERVAL 1 DAY",
    "CAST('2024-01-05' AS DATETIME)",
    "'2024-01-05 10:00:00.4999'",
    "'10:00:00.2549'",
    "'-10:00:00.2549'",
    "100000",
    "'1 10:00:00'",
    "'2038-01-19 03:14:08'",
    "'1970-01-01'",
    "'2023-10-26 12:00:00'",
    "0",
    "'2024-10-28 12:00:00'",
    "CAST('2024-01-05 10:00:00.5' AS DATETIME(1))",
    "FROM_DAYS(739256)",
];
/// What the server warns of.
static BAD_TIMES: &[&str] =
    &["'garbage'", "'2024-02-30'", "'2024-13-01'", "'99:99:99'", "''", "'2024-01-05 10:00:00x'"];
static BAD_NUMBERS: &[&str] = &["'abc'", "'5x'", "''", "1/0"];
static ODD_TEXTS: &[&str] = &[
    "NULL",
    "'a  '",
    "'AB'",
    "_latin1 x'e1'",
    "'😀'",
    "'aaaaaaaaaaaaaaaaaaaaaaaa'",
    "'ab\\t'",
    "'a\\nb'",
    "CONCAT('a', 'b')",
    "'\\0'",
    "'a\\0'",
    "LOWER('AB')",
    "_utf8mb4 'a' COLLATE utf8mb4_bin",
    "_binary 'a'",
];
static PATTERNS: &[&str] = &[
    "'a%'",
    "'A%'",
    "'%'",
    "'a _%'",
    "'a %'",
    "'ab%'",
    "'a'",
    "''",
    "'_b%'",
    "'a\\%'",
    "'a\\t%'",
    "'á%'",
    "'ß%'",
    "'s%'",
    "NULL",
    "' %'",
    "'%b'",
    "'a|%%' ESCAPE '|'",
    "'zzzzzzzzzzzzzzz%'",
    "'a%b'",
    "CONCAT('a', '%')",
];

struct Conditions {
    random: fastrand::Rng,
}

/// A condition, and whether it is one comparison whose warnings are the same in all engines.
struct Wanted {
    text: String,
    is_single: bool,
}

impl Conditions {
    fn any<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(0..of.len())]
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn constant(&mut self, (_, kind, values): Column) -> String {
        if self.chance(60) {
            return self.any(values).to_owned();
        }
        let odd = match values {
            _ if kind.starts_with("UUID") || kind.starts_with("INET") => values,
            _ if std::ptr::eq(values, TEXTS) || std::ptr::eq(values, BINARIES) => ODD_TEXTS,
            _ if kind.starts_with("ENUM") || kind.starts_with("SET") => {
                if self.chance(50) {
                    ODD_TEXTS
                } else {
                    &["0", "1", "2", "3", "1.5", "1e0", "-1", "7"]
                }
            }
            _ if kind.starts_with("DATE") || kind.starts_with("TIME") => {
                if self.chance(5) {
                    BAD_TIMES
                } else if self.chance(30) {
                    DATETIMES
                } else {
                    ODD_TIMES
                }
            }
            _ if self.chance(3) => BAD_NUMBERS,
            _ => ODD_NUMBERS,
        };
        self.any(odd).to_owned()
    }

    fn column(&mut self) -> Column {
        COLUMNS[self.random.usize(0..COLUMNS.len())]
    }

    fn leaf(&mut self) -> String {
        let column = self.column();
        let (name, kind, values) = column;
        let operator = |this: &mut Self| this.any(&["=", "<>", "<", "<=", ">", ">=", "<=>"]);
        match self.random.u8(..24) {
            0..9 => format!("{name} {} {}", operator(self), self.constant(column)),
            9 => format!("{} {} {name}", self.constant(column), operator(self)),
            10..12 => {
                let not = self.any(&["", "NOT "]);
                format!("{name} {not}BETWEEN {} AND {}", self.constant(column), self.constant(column))
            }
            12..15 => {
                let count =
                    if self.chance(3) { self.random.usize(100..3_000) } else { self.random.usize(1..6) };
                let members: Vec<String> = (0..count).map(|_| self.constant(column)).collect();
                format!("{name} {}IN ({})", self.any(&["", "NOT "]), members.join(", "))
            }
            15 => format!("{name} IS {}NULL", self.any(&["", "NOT "])),
            16..19 => {
                let texts: Vec<&Column> = COLUMNS
                    .iter()
                    .filter(|(_, _, values)| std::ptr::eq(*values, TEXTS) || std::ptr::eq(*values, BINARIES))
                    .collect();
                let (name, ..) = texts[self.random.usize(0..texts.len())];
                format!("{name} {}LIKE {}", self.any(&["", "NOT "]), self.any(PATTERNS))
            }
            19..21 => {
                let others: Vec<&Column> =
                    COLUMNS.iter().filter(|(_, _, other)| std::ptr::eq(*other, values)).collect();
                let (other, ..) = others[self.random.usize(0..others.len())];
                // The server refuses to compare some of these, and others have collations that do not go together.
                if std::ptr::eq(values, TEXTS) && !name.ends_with(&other[..1]) && kind.contains("COLLATE") {
                    return format!("{name} {} {name}", operator(self));
                }
                format!("{name} {} {other}", operator(self))
            }
            21 => {
                let integer = self.any(&["i8", "u8", "i16", "i24", "i32", "u32"]);
                let sum = self.any(&["+ 5", "- 5", "+ 1000", "- 1000", "+ 0", "+ 4294967295"]);
                if integer.starts_with('u') && sum.starts_with('-') {
                    return format!("{integer} + 7 {} {}", operator(self), self.any(ODD_NUMBERS));
                }
                format!("{integer} {sum} {} {}", operator(self), self.any(ODD_NUMBERS))
            }
            22 => format!(
                "({name} {} {}) IS {}TRUE",
                operator(self),
                self.constant(column),
                self.any(&["", "NOT "])
            ),
            _ => {
                let integer = self.any(&["i8", "i32", "u64", "NOT i32", "1 = 1", "b10"]);
                integer.to_owned()
            }
        }
    }

    fn condition(&mut self, levels: u32) -> String {
        if levels > 0 && self.chance(70) {
            let count = if self.chance(1) { 300 } else { self.random.usize(2..5) };
            let how = self.any(&[" AND ", " OR "]);
            let parts: Vec<String> = (0..count).map(|_| self.condition(levels - 1)).collect();
            let not = if self.chance(20) { "NOT " } else { "" };
            return format!("{not}({})", parts.join(how));
        }
        self.leaf()
    }

    /// One within another, deeper than a filter may be.
    fn deep(&mut self) -> String {
        let levels = self.random.usize(60..100);
        let mut text = self.leaf();
        for level in 0..levels {
            let how = if level % 2 == 0 { "AND" } else { "OR" };
            let not = if self.chance(10) { "NOT " } else { "" };
            text = format!("{not}({} {how} {text})", self.leaf());
        }
        text
    }

    fn wanted(&mut self) -> Wanted {
        match self.random.u8(..100) {
            0..50 => Wanted { text: self.leaf(), is_single: true },
            50..97 => {
                let levels = self.random.u32(1..4);
                Wanted { text: self.condition(levels), is_single: false }
            }
            _ => Wanted { text: self.deep(), is_single: false },
        }
    }

    fn row(&mut self, id: u32) -> String {
        let values: Vec<&str> = COLUMNS.iter().map(|(_, _, values)| self.any(values)).collect();
        format!("({id}, 0, {})", values.join(", "))
    }
}

/// A zone with summer time, which no server has of itself.
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

fn fill(oracle: &mut Oracle, conditions: &mut Conditions) {
    let columns: Vec<String> = COLUMNS.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
    oracle.good(&format!(
        "CREATE TABLE t (id INT PRIMARY KEY, touched INT NOT NULL, {}, {KEYS}) CHARACTER SET utf8mb4",
        columns.join(", ")
    ));
    // In a zone in which every time is one.
    oracle.good("SET time_zone = '+00:00'");
    for id in 1..=ROWS {
        let said = oracle.same(format!("INSERT IGNORE INTO t VALUES {}", conditions.row(id)));
        assert_eq!(said.number(), 0, "{said:?}");
    }
    oracle.ask("ANALYZE TABLE t");
}

/// Which way a statement goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Scan,
    Index,
    Change,
}

/// How the warnings of both have to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Warnings {
    Equal,
    /// Of rows that the data nodes leave out nobody is warned.
    NotMore,
    /// Who takes another way meets other rows.
    Any,
}

/// What is wrong with the answers; empty if nothing is.
fn difference(ours: &Said, theirs: &Said, warned: Warnings) -> &'static str {
    let is_single = warned == Warnings::Equal;
    match (ours, theirs) {
        (
            Said::Good(changed, _, warnings, rows),
            Said::Good(their_changed, _, their_warnings, their_rows),
        ) => {
            if (changed, rows) != (their_changed, their_rows) {
                "other rows"
            } else {
                let is_right = match warned {
                    Warnings::Equal => warnings == their_warnings,
                    Warnings::NotMore => warnings <= their_warnings,
                    Warnings::Any => true,
                };
                if is_right { "" } else { "other warnings" }
            }
        }
        (Said::Bad(number, ..), Said::Bad(their_number, ..)) if number == their_number => "",
        // A sum may be out of range in a row that the data nodes leave out, or a constant no date, which is met there first.
        (Said::Good(..), Said::Bad(1690 | 1292, ..)) if !is_single => "",
        _ => "an error",
    }
}

/// Whether InnoDB finds the same by an index, which it need not have taken: in collations that pad, the server itself takes a
/// range for a prefix that lacks what goes on with less than a space.
fn is_found_by_an_index(oracle: &mut Oracle, condition: &str, ours: &Said) -> bool {
    let [ours_by_scan, theirs_by_scan] =
        oracle.ask(format!("SELECT id FROM t USE INDEX () WHERE {condition} ORDER BY id"));
    let ways = ["kb", "tg", "th", "tu", "tp", "tc", "lg", "ls", "cu"];
    let is_same = |theirs: &Said| difference(ours, theirs, Warnings::Any).is_empty();
    let is_right = difference(&ours_by_scan, &theirs_by_scan, Warnings::Any).is_empty();
    is_right
        && ways.iter().any(|key| {
            let query = format!("SELECT id FROM t FORCE INDEX ({key}) WHERE {condition} ORDER BY id");
            is_same(&oracle.ask(query)[1])
        })
}

#[test]
fn random_conditions_say_what_they_say_of_innodb() {
    let cluster = TestCluster::start_with(1, &[], &[("innodb_flush_log_at_trx_commit", "0")]);
    let mut status = cluster.connect(0);
    make_zone(&mut status);
    let mut oracle = oracle(&cluster);
    let seed = wishes::seed();
    println!("seed {seed}");
    let mut conditions = Conditions { random: fastrand::Rng::with_seed(seed) };
    fill(&mut oracle, &mut conditions);
    let (mut parts, mut whole, mut failed) = (0, 0, Vec::new());
    for number in 0..wishes::number("VINGA_QUERIES").unwrap_or(CONDITIONS) {
        if number % SAME_SETTINGS == 0 {
            let zone = conditions.any(&["+00:00", "SYSTEM", "Test/Summer", "Test/Summer", "-09:30"]);
            let mode = conditions.any(&[
                "",
                "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE",
                "TIME_ROUND_FRACTIONAL",
                "PAD_CHAR_TO_FULL_LENGTH",
                "NO_UNSIGNED_SUBTRACTION",
                "ALLOW_INVALID_DATES",
            ]);
            oracle.good(&format!("SET time_zone = '{zone}', sql_mode = '{mode}'"));
        }
        let Wanted { text, is_single } = conditions.wanted();
        let way = match conditions.random.u8(..10) {
            0 => Way::Change,
            1..4 => Way::Index,
            _ => Way::Scan,
        };
        let statement = match way {
            Way::Scan => format!("SELECT id FROM t USE INDEX () WHERE {text} ORDER BY id"),
            Way::Index => format!("SELECT id FROM t WHERE {text} ORDER BY id"),
            Way::Change => format!("UPDATE t USE INDEX () SET touched = touched + 1 WHERE {text}"),
        };
        let before = Work::so_far(&mut status);
        let [ours, theirs] = oracle.ask(&statement);
        let work = Work::so_far(&mut status).since(before);
        let short: String = statement.chars().take(3_000).collect();
        let warned = match (way, is_single) {
            (Way::Scan, true) => Warnings::Equal,
            (Way::Scan, false) | (_, true) => Warnings::NotMore,
            (_, false) => Warnings::Any,
        };
        let wrong = difference(&ours, &theirs, warned);
        let is_right =
            wrong.is_empty() || (way == Way::Index && is_found_by_an_index(&mut oracle, &text, &ours));
        if !is_right {
            failed.push(format!(
                "{wrong}; seed {seed}, condition {number}\n  {short}\n  Vinga {ours:?}\n  InnoDB {theirs:?}"
            ));
        }
        parts += work.pushed - work.whole;
        whole += work.whole;
        if let (Way::Scan, 1, Said::Good(_, _, _, rows)) = (way, work.whole, &ours)
            && work.rows != rows.len() as u64
        {
            failed.push(format!(
                "{} rows came; seed {seed}, condition {number}\n  {short}\n  Vinga {ours:?}",
                work.rows
            ));
        }
    }
    println!("{parts} checked in part, {whole} as a whole");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    oracle.good("SELECT SUM(touched) FROM t");
    assert!(whole > parts && parts > 0, "{parts} were checked in part, {whole} as a whole");
}

/// What the data nodes check of a condition.
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
        // Two times of the zone have this local time, or none has.
        "ts > '2024-10-27 02:30:00'",
        "ts > '2024-03-31 02:30:00'",
        "i XOR j",
    ] {
        expect(&mut session, condition, Checked::Nothing);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A condition of so many levels, by turns AND and OR.
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
    // A long list is not left away, but says between what its values are.
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

/// What the server makes ranges of it makes of Vinga's tables, too.
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
