//! Texts compare, sort and match in Vinga's tables as in InnoDB's, for all collations: random values with all special
//! cases (trailing spaces, characters below the space, accents, expansions, characters of four bytes, empty values) are
//! searched in all ways in which an index is used.

use std::collections::BTreeMap;
use std::fmt::Write;
use vinga_sql_tests::environment;
use vinga_sql_tests::oracle::{Oracle, Said};
use vinga_sql_tests::{Session, TestCluster};

/// The parts of values in every character set.
const USUAL_PIECES: [&str; 17] =
    [" ", " ", "  ", "\t", "\u{1}", "\0", "\n", "\u{1f}", "!", "a", "A", "b", "z", "ss", "oe", "ch", "Ch"];
/// Further parts, in the character sets that have them; used as often as the usual ones.
const ODD_PIECES: [&str; 34] = [
    "á", "Ä", "ß", "æ", "ö", "\u{a0}", "\u{301}", "~", "\u{7f}", "あ", "ア", "ﾊ", "ﾊﾟ", "😀", "😁", "č", "Č",
    "ł", "ñ", "ÿ", "ś", "Œ", "ı", "一", "丁", "髙", "가", "ก", "เ", "่", "π", "Я", "ב", "ա",
];

/// Number of rows of a table.
const ROWS: u32 = 60;
/// Number of values that are searched for.
const PROBES: u32 = 6;

struct Collation {
    name: String,
    charset: String,
}

/// A part, in another character set.
struct Piece {
    bytes: Vec<u8>,
    is_usual: bool,
}

struct Charset {
    pieces: Vec<Piece>,
    percent: Vec<u8>,
    has_one_byte: bool,
}

impl Charset {
    /// The parts as the server converts them to this character set.
    fn new(name: &str, session: &mut Session) -> Self {
        let mut encode = |text: &str| {
            let literal = format!("_utf8mb4 x'{}'", hex(text.as_bytes()));
            let there = format!("CONVERT({literal} USING {name})");
            let statement =
                format!("SELECT HEX({there}), HEX(CONVERT({there} USING utf8mb4)) = HEX({literal})");
            let row = session.query(&statement).remove(0);
            (row[1] == "1").then(|| unhex(&row[0]))
        };
        let percent = encode("%").expect("every one has it");
        let mut pieces = Vec::new();
        for (texts, is_usual) in [(USUAL_PIECES.as_slice(), true), (ODD_PIECES.as_slice(), false)] {
            let there = texts.iter().filter_map(|text| encode(text));
            pieces.extend(there.map(|bytes| Piece { bytes, is_usual }));
        }
        let longest = format!(
            "SELECT maxlen FROM information_schema.character_sets WHERE character_set_name = '{name}'"
        );
        let has_one_byte = session.lines(&longest) == ["1"];
        Charset { pieces, percent, has_one_byte }
    }

    /// A few of the parts, so that values match: usual ones and others.
    fn some_pieces(&self, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let (usual, odd): (Vec<_>, Vec<_>) = self.pieces.iter().partition(|piece| piece.is_usual);
        let mut of = |some: &[&Piece]| some[random.usize(0..some.len())].bytes.clone();
        (0..8).map(|at| of(if at % 2 == 0 || odd.is_empty() { &usual } else { &odd })).collect()
    }
}

impl Collation {
    /// A value of this character set, made of these parts.
    fn value(&self, random: &mut fastrand::Rng, pieces: &[Vec<u8>]) -> Vec<u8> {
        (0..random.usize(0..6)).flat_map(|_| pieces[random.usize(0..pieces.len())].clone()).collect()
    }

    /// A value as a literal that no connection converts.
    fn literal(&self, value: &[u8]) -> String {
        let hex = hex(value);
        if self.charset == "binary" {
            return format!("x'{hex}'");
        }
        format!("_{} x'{hex}' COLLATE {}", self.charset, self.name)
    }
}

/// All results that differ from InnoDB's.
#[derive(Default)]
struct Differences(Vec<String>);

struct Comparison<'a> {
    oracle: &'a mut Oracle,
    collation: &'a Collation,
    charset: &'a Charset,
    column: &'a str,
    differences: &'a mut Differences,
}

impl Comparison<'_> {
    fn same(&mut self, statement: &str) -> Said {
        let [ours, theirs] = self.oracle.ask(statement);
        if ours != theirs {
            let kind = self.column;
            // Engines with different plans may find different rows.
            let [our_way, their_way] = self.oracle.ask(format!("EXPLAIN {statement}"));
            self.differences.0.push(format!(
                "{kind}: {statement}\n   Vinga {ours:?}\n  InnoDB {theirs:?}\n   Vinga {our_way:?}\n  InnoDB {their_way:?}"
            ));
        }
        theirs
    }

    fn good(&mut self, statement: &str) {
        let said = self.same(statement);
        assert_eq!(said.number(), 0, "{statement}: {said:?}");
    }

    fn fill(&mut self, random: &mut fastrand::Rng, pieces: &[Vec<u8>]) {
        let column = self.column;
        for table in ["t", "u", "two"] {
            self.good(&format!("DROP TABLE IF EXISTS {table}"));
        }
        self.good(&format!("CREATE TABLE t (id INT PRIMARY KEY, s {column}, KEY k (s, id))"));
        self.good(&format!(
            "CREATE TABLE u (s {column} NOT NULL PRIMARY KEY, id INT, x {column}, UNIQUE KEY x (x))"
        ));
        self.good(&format!("CREATE TABLE two (a {column}, b {column}, id INT, KEY k (a, b DESC, id))"));
        let (mut rows, mut pairs) = (vec!["(0, NULL)".to_owned()], Vec::new());
        for id in 1..=ROWS {
            let value = self.collation.literal(&self.collation.value(random, pieces));
            let other = self.collation.literal(&self.collation.value(random, pieces));
            rows.push(format!("({id}, {value})"));
            pairs.push(format!("({value}, {other}, {id})"));
            self.same(&format!("INSERT INTO u VALUES ({value}, {id}, {other})"));
        }
        self.good(&format!("INSERT INTO t VALUES {}", rows.join(",")));
        self.good(&format!("INSERT INTO two VALUES {}", pairs.join(",")));
    }

    /// Runs all kinds of statements that use an index for all values.
    fn ask_of_all(&mut self) {
        for statement in [
            "SELECT id FROM t FORCE INDEX (k) ORDER BY s, id",
            "SELECT id FROM t FORCE INDEX (k) ORDER BY s DESC, id DESC",
            "SELECT id FROM two FORCE INDEX (k) ORDER BY a, b DESC, id",
            "SELECT id FROM two FORCE INDEX (k) ORDER BY a DESC, b, id DESC",
            "SELECT id FROM u FORCE INDEX (PRIMARY) ORDER BY s",
            "SELECT id FROM u FORCE INDEX (x) ORDER BY x DESC",
            "SELECT HEX(s), HEX(x), id FROM u ORDER BY id",
            "SELECT COUNT(*), MIN(id), MAX(id) FROM t FORCE INDEX (k) GROUP BY s ORDER BY 2",
            "SELECT COUNT(*), MIN(id) FROM two FORCE INDEX (k) GROUP BY a, b ORDER BY 2",
            "SELECT COUNT(*) FROM (SELECT DISTINCT s FROM t FORCE INDEX (k)) d",
            "SELECT COUNT(DISTINCT s) FROM t",
            "SELECT id FROM t WHERE s = (SELECT MIN(s) FROM t) ORDER BY id",
            "SELECT id FROM t WHERE s = (SELECT MAX(s) FROM t) ORDER BY id",
            "SELECT a.id, b.id FROM t a STRAIGHT_JOIN t b FORCE INDEX (k) ON a.s = b.s ORDER BY 1, 2",
            "SELECT t.id, u.id FROM t STRAIGHT_JOIN u FORCE INDEX (PRIMARY) ON t.s = u.s ORDER BY 1, 2",
            "SELECT t.id, u.id FROM t STRAIGHT_JOIN u FORCE INDEX (x) ON t.s = u.x ORDER BY 1, 2",
            "SELECT t.id, two.id FROM t STRAIGHT_JOIN two FORCE INDEX (k) ON t.s = two.a AND t.id < two.id ORDER BY 1, 2",
            "SELECT id FROM t WHERE s IN (SELECT s FROM u FORCE INDEX (PRIMARY) WHERE id < 20) ORDER BY id",
        ] {
            self.same(statement);
        }
    }

    /// Runs all kinds of statements that use an index for some values.
    fn ask_for(&mut self, random: &mut fastrand::Rng, pieces: &[Vec<u8>]) {
        let mut value = || self.collation.value(random, pieces);
        let (first, second, third) = (value(), value(), value());
        let prefix = [first.as_slice(), &self.charset.percent].concat();
        let literal = |value: &[u8]| self.collation.literal(value);
        let (first, second, third, prefix) =
            (literal(&first), literal(&second), literal(&third), literal(&prefix));
        for condition in [
            format!("s = {first}"),
            format!("s < {first}"),
            format!("s <= {first}"),
            format!("s > {first}"),
            format!("s >= {first}"),
            format!("s <> {first}"),
            format!("s BETWEEN {first} AND {second}"),
            format!("s IN ({first}, {second}, {third})"),
            format!("s LIKE {prefix}"),
            format!("s NOT BETWEEN {first} AND {second}"),
        ] {
            self.same(&format!("SELECT id FROM t FORCE INDEX (k) WHERE {condition} ORDER BY id"));
            self.same(&format!(
                "SELECT id FROM t FORCE INDEX (k) WHERE {condition} ORDER BY s DESC, id DESC"
            ));
            self.same(&format!("SELECT id FROM t IGNORE INDEX (k) WHERE {condition} ORDER BY id"));
            self.same(&format!("SELECT id FROM u FORCE INDEX (PRIMARY) WHERE {condition} ORDER BY id"));
        }
        for statement in [
            format!("SELECT id FROM two FORCE INDEX (k) WHERE a = {first} AND b < {second} ORDER BY id"),
            format!("SELECT id FROM two FORCE INDEX (k) WHERE a = {first} AND b LIKE {prefix} ORDER BY id"),
            format!("SELECT id FROM u WHERE x = {first}"),
            format!("UPDATE u SET x = {second} WHERE s = {first}"),
            format!("UPDATE u SET s = {third} WHERE s = {second}"),
            format!("INSERT INTO u VALUES ({first}, 1000, {second}) ON DUPLICATE KEY UPDATE id = id + 100"),
            format!("REPLACE INTO u VALUES ({second}, 2000, {third})"),
            format!("DELETE FROM u WHERE x = {third}"),
            "SELECT HEX(s), HEX(x), id FROM u ORDER BY id, HEX(s)".to_owned(),
        ] {
            self.same(&statement);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("a string takes all");
        hex
    })
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("the server writes hexadecimal digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn compare(
    oracle: &mut Oracle,
    collation: &Collation,
    charset: &Charset,
    random: &mut fastrand::Rng,
    differences: &mut Differences,
) {
    let attributes = format!("CHARACTER SET {} COLLATE {}", collation.charset, collation.name);
    let columns = match collation.charset.as_str() {
        "binary" => vec!["VARBINARY(40)".to_owned(), "BINARY(40)".to_owned()],
        _ => {
            // Values fill a column, and are truncated, where InnoDB sorts such values consistently: see docs/sql.md.
            let room = if charset.has_one_byte { [6, 12, 40][random.usize(0..3)] } else { 40 };
            vec![format!("VARCHAR(40) {attributes}"), format!("CHAR({room}) {attributes}")]
        }
    };
    for column in &columns {
        let some = charset.some_pieces(random);
        let mut comparison = Comparison { oracle, collation, charset, column, differences };
        comparison.fill(random, &some);
        comparison.ask_of_all();
        for _ in 0..PROBES {
            comparison.ask_for(random, &some);
        }
    }
}

fn collations(cluster: &TestCluster) -> Vec<Collation> {
    let list = "SELECT full_collation_name, character_set_name FROM information_schema.collation_character_set_applicability ORDER BY 1";
    let rows = cluster.connect(0).query(list);
    rows.into_iter().map(|row| Collation { name: row[0].clone(), charset: row[1].clone() }).collect()
}

/// Compares these collations on values that are generated from a seed.
fn run(name: &str, seed: u64, choose: impl FnOnce(Vec<Collation>, &mut fastrand::Rng) -> Vec<Collation>) {
    println!("{name}: seed {seed}");
    // InnoDB's rows need not survive a crash.
    let cluster = TestCluster::start_with(1, &[], &[("innodb_flush_log_at_trx_commit", "0")]);
    let mut oracle = Oracle::new(|| {
        let mut connection = cluster.sql_nodes[0].connect().expect("the SQL node answers");
        // Where it matters, statements specify which table comes first and which index is used, so that both engines
        // use the same plan. The server's cache for subqueries depends on the order of rows: it treats 'ß' as 'ss' in
        // CHAR.
        connection
            .query("SET NAMES utf8mb4, sql_mode = '', optimizer_switch = 'semijoin=off,materialization=off,subquery_cache=off'")
            .expect("every server has these");
        connection
    });
    let mut random = fastrand::Rng::with_seed(seed);
    let chosen = choose(collations(&cluster), &mut random);
    assert!(!chosen.is_empty(), "there are none");
    let mut failed = Vec::new();
    let mut charsets = BTreeMap::new();
    let mut session = cluster.connect(0);
    for (at, collation) in chosen.iter().enumerate() {
        if at % 50 == 0 {
            println!("{name}: {at} of {}", chosen.len());
        }
        let charset = charsets
            .entry(&collation.charset)
            .or_insert_with(|| Charset::new(&collation.charset, &mut session));
        let mut differences = Differences::default();
        compare(&mut oracle, collation, charset, &mut random, &mut differences);
        if let Some(first) = differences.0.first() {
            let line = format!("{}: {} differences, first {first}", collation.name, differences.0.len());
            println!("{line}");
            failed.push(line);
        }
    }
    println!("{name}: {} collations", chosen.len());
    assert!(failed.is_empty(), "seed {seed}, {} of {}:\n{}", failed.len(), chosen.len(), failed.join("\n"));
}

/// Usual collations, and those with special rules.
const USUAL: [&str; 29] = [
    "binary",
    "latin1_swedish_ci",
    "latin1_bin",
    "latin1_nopad_bin",
    "latin1_swedish_nopad_ci",
    "latin1_german2_ci",
    "utf8mb4_general_ci",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_nopad_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_bin",
    "utf8mb4_nopad_bin",
    "utf8mb4_german2_ci",
    "utf8mb4_thai_520_w2",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_as_ci",
    "utf8mb4_uca1400_as_cs",
    "utf8mb4_uca1400_ai_cs",
    "utf8mb4_uca1400_nopad_ai_ci",
    "utf8mb4_uca1400_nopad_as_cs",
    "utf8mb4_uca1400_nopad_ai_cs",
    "utf8mb3_general_ci",
    "big5_chinese_ci",
    "big5_chinese_nopad_ci",
    "tis620_thai_ci",
    "tis620_thai_nopad_ci",
    "latin2_czech_cs",
    "cp1250_czech_cs",
];

/// The usual collations. `VINGA_SEED` sets another seed for longer runs.
#[test]
fn usual_collations() {
    run("usual", environment::seed(), |all, _| {
        let usual: Vec<_> = all.into_iter().filter(|one| USUAL.contains(&one.name.as_str())).collect();
        assert_eq!(usual.len(), USUAL.len(), "the server has all of them");
        usual
    });
}

/// Some of all collations that the server has, others with each seed. With `VINGA_COLLATIONS=nopad,latin1` all that
/// contain one of these in their names, with `VINGA_COLLATIONS=all` all.
#[test]
fn other_collations() {
    run("others", environment::seed(), |mut all, random| {
        random.shuffle(&mut all);
        match environment::text("VINGA_COLLATIONS") {
            None => all.truncate(10),
            Some(parts) if parts == "all" => {}
            Some(parts) => all.retain(|one| parts.split(',').any(|part| one.name.contains(part))),
        }
        all
    });
}

/// Columns without padding that contain 'ß' and 'ss': an index takes the trailing spaces into account, the server does
/// not. With the same plan both engines find the same rows.
#[test]
fn columns_that_are_not_padded_meet_with_an_index_and_without() {
    let cluster = TestCluster::start(1);
    let mut oracle = Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"));
    for collation in ["utf8mb4_unicode_nopad_ci", "utf8mb4_uca1400_nopad_ai_ci"] {
        oracle.good("DROP TABLE IF EXISTS t");
        oracle.good(&format!(
            "CREATE TABLE t (id INT PRIMARY KEY, s CHAR(20) CHARACTER SET utf8mb4 COLLATE {collation}, KEY (s))"
        ));
        for (id, value) in ["a", "á", "ß", "ss", "a\0", "\0a", "oe", "œ", "", "\0"].iter().enumerate() {
            oracle.good(&format!("INSERT INTO t VALUES ({id}, _utf8mb4 x'{}')", hex(value.as_bytes())));
        }
        let found = ["FORCE", "IGNORE"].map(|way| {
            oracle.same(format!(
                "SELECT a.id, b.id FROM t a STRAIGHT_JOIN t b {way} INDEX (s) ON a.s = b.s ORDER BY 1, 2"
            ))
        });
        assert_ne!(found[0], found[1], "{collation}: the server compares as the index does");
    }
}
