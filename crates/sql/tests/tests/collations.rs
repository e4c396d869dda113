//! Texts compare, sort and meet each other in Vinga's tables as in InnoDB's, whatever the collation: random values with all
//! that is odd in them (spaces at the end, characters below the space, accents, expansions, characters of four bytes,
//! nothing at all) are asked for in every way in which an index is used.

use std::fmt::Write;
use vinga_sql_tests::TestCluster;
use vinga_sql_tests::oracle::{Oracle, Said};

/// What values are made of, in every character set that has it.
const PIECES: [&str; 30] = [
    " ", " ", "  ", "\t", "\u{1}", "\0", "\n", "\u{1f}", "!", "a", "A", "b", "z", "á", "Ä", "ß", "ss", "æ",
    "ö", "oe", "\u{a0}", "\u{301}", "~", "\u{7f}", "あ", "ア", "ﾊ", "😀", "😁", "ch",
];

/// Rows of a table.
const ROWS: u32 = 60;
/// Values that are asked for.
const PROBES: u32 = 6;

struct Collation {
    name: String,
    charset: String,
}

impl Collation {
    /// A value of this character set, from pieces that it has.
    fn value(&self, random: &mut fastrand::Rng, pieces: &[Vec<u8>]) -> Vec<u8> {
        (0..random.usize(0..6)).flat_map(|_| pieces[random.usize(0..pieces.len())].clone()).collect()
    }

    /// A value as a literal that no connection converts.
    fn literal(&self, value: &[u8]) -> String {
        let hex = value.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02X}").expect("a string takes all");
            hex
        });
        if self.charset == "binary" {
            return format!("x'{hex}'");
        }
        format!("_{} x'{hex}' COLLATE {}", self.charset, self.name)
    }
}

/// All that is said otherwise than by InnoDB.
#[derive(Default)]
struct Differences(Vec<String>);

struct Comparison<'a> {
    oracle: &'a mut Oracle,
    collation: &'a Collation,
    column: &'a str,
    differences: &'a mut Differences,
}

impl Comparison<'_> {
    fn same(&mut self, statement: &str) -> Said {
        let [ours, theirs] = self.oracle.ask(statement);
        if ours != theirs {
            let kind = self.column;
            self.differences.0.push(format!("{kind}: {statement}\n   Vinga {ours:?}\n  InnoDB {theirs:?}"));
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
        for id in 1..=ROWS {
            let value = self.collation.literal(&self.collation.value(random, pieces));
            let other = self.collation.literal(&self.collation.value(random, pieces));
            self.good(&format!("INSERT INTO t VALUES ({id}, {value})"));
            self.good(&format!("INSERT INTO two VALUES ({value}, {other}, {id})"));
            self.same(&format!("INSERT INTO u VALUES ({value}, {id}, {other})"));
        }
        self.good("INSERT INTO t VALUES (0, NULL)");
    }

    /// Everything that an index is used for with all values.
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
            "SELECT a.id, b.id FROM t a JOIN t b FORCE INDEX (k) ON a.s = b.s ORDER BY 1, 2",
            "SELECT t.id, u.id FROM t JOIN u FORCE INDEX (PRIMARY) ON t.s = u.s ORDER BY 1, 2",
            "SELECT t.id, u.id FROM t JOIN u FORCE INDEX (x) ON t.s = u.x ORDER BY 1, 2",
            "SELECT t.id, two.id FROM t JOIN two FORCE INDEX (k) ON t.s = two.a AND t.id < two.id ORDER BY 1, 2",
            "SELECT id FROM t WHERE s IN (SELECT s FROM u WHERE id < 20) ORDER BY id",
        ] {
            self.same(statement);
        }
    }

    /// Everything that an index is used for with some values.
    fn ask_for(&mut self, random: &mut fastrand::Rng, pieces: &[Vec<u8>]) {
        let mut value = || self.collation.value(random, pieces);
        let (first, second, third) = (value(), value(), value());
        let prefix =
            [first.as_slice(), &encode("%", &self.collation.charset).expect("every one has it")].concat();
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

/// A piece in another character set, if it has it.
fn encode(piece: &str, charset: &str) -> Option<Vec<u8>> {
    match charset {
        "utf8mb4" | "binary" => Some(piece.as_bytes().to_vec()),
        "utf8mb3" => piece.chars().all(|c| c.len_utf8() < 4).then(|| piece.as_bytes().to_vec()),
        "ucs2" => piece
            .chars()
            .map(|c| u16::try_from(u32::from(c)).ok())
            .map(|c| Some(c?.to_be_bytes()))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat()),
        "utf16" => Some(piece.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        "utf16le" => Some(piece.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        "utf32" => Some(piece.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect()),
        "latin1" => piece.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect(),
        // What all others have, and it means the same there.
        _ => piece.is_ascii().then(|| piece.as_bytes().to_vec()),
    }
}

fn compare(
    oracle: &mut Oracle,
    collation: &Collation,
    random: &mut fastrand::Rng,
    differences: &mut Differences,
) {
    let attributes = format!("CHARACTER SET {} COLLATE {}", collation.charset, collation.name);
    let columns = match collation.charset.as_str() {
        "binary" => vec!["VARBINARY(40)".to_owned(), "BINARY(40)".to_owned()],
        _ => vec![format!("VARCHAR(40) {attributes}"), format!("CHAR(40) {attributes}")],
    };
    let pieces: Vec<Vec<u8>> = PIECES.iter().filter_map(|piece| encode(piece, &collation.charset)).collect();
    for column in &columns {
        // Few of them at a time, so that values meet.
        let some: Vec<Vec<u8>> = (0..7).map(|_| pieces[random.usize(0..pieces.len())].clone()).collect();
        let mut comparison = Comparison { oracle, collation, column, differences };
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

/// Compares these collations with values that come from a seed.
fn run(name: &str, seed: u64, choose: impl FnOnce(Vec<Collation>, &mut fastrand::Rng) -> Vec<Collation>) {
    println!("{name}: seed {seed}");
    let cluster = TestCluster::start(1);
    let mut oracle = Oracle::new(|| {
        let mut connection = cluster.sql_nodes[0].connect().expect("the SQL node answers");
        connection.query("SET NAMES utf8mb4, sql_mode = ''").expect("every server has both");
        connection
    });
    let mut random = fastrand::Rng::with_seed(seed);
    let chosen = choose(collations(&cluster), &mut random);
    assert!(!chosen.is_empty(), "there are none");
    let mut failed = Vec::new();
    for collation in &chosen {
        let mut differences = Differences::default();
        compare(&mut oracle, collation, &mut random, &mut differences);
        if let Some(first) = differences.0.first() {
            failed.push(format!("{}: {} differences, first {first}", collation.name, differences.0.len()));
        }
    }
    println!("{name}: {} collations", chosen.len());
    assert!(failed.is_empty(), "seed {seed}, {} of {}:\n{}", failed.len(), chosen.len(), failed.join("\n"));
}

const USUAL: [&str; 22] = [
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
    "utf8mb3_general_ci",
];

/// Another seed, and `all`, to be looked for in the long run.
fn wish(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn seed() -> u64 {
    wish("VINGA_SEED").map_or(1, |seed| seed.parse().expect("VINGA_SEED is a number"))
}

#[test]
fn usual_collations() {
    run("usual", seed(), |all, _| {
        let usual: Vec<_> = all.into_iter().filter(|one| USUAL.contains(&one.name.as_str())).collect();
        assert_eq!(usual.len(), USUAL.len(), "the server has all of them");
        usual
    });
}

/// Some of all that the server has, others with each seed; all of them with `VINGA_COLLATIONS=all`.
#[test]
fn other_collations() {
    let count = if wish("VINGA_COLLATIONS").is_some_and(|which| which == "all") { usize::MAX } else { 10 };
    run("others", seed(), |mut all, random| {
        random.shuffle(&mut all);
        all.truncate(count);
        all
    });
}
