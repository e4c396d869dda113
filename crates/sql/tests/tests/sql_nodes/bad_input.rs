//! Texts that are not valid in their character sets, in parameters of prepared statements and in files, and files that
//! are loaded in many portions and contain duplicates: the results are the same as with InnoDB, and nothing is left
//! behind.

use std::fs;
use std::path::PathBuf;
use vinga_sql_tests::oracle::{Oracle, Said};
use vinga_sql_tests::servers::Servers;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Texts that are not UTF-8, truncated, or from other planes, and valid ones among them.
const TEXTS: [&[u8]; 14] = [
    b"good",
    b"",
    b"\xff",
    b"a\xffb",
    b"\xc3",
    b"a\xc3",
    b"\xc3\x28",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\x80",
    b"\xf4\x90\x80\x80",
    b"a\0b",
    b"\xc0\x80",
];

const MODES: [&str; 2] = ["", "STRICT_ALL_TABLES"];

fn oracle(servers: &Servers) -> Oracle {
    Oracle::new(|| servers.sql_nodes[0].connect().expect("the SQL node answers"))
}

/// Both tables must have the same contents.
#[track_caller]
fn same_rows(oracle: &mut Oracle) {
    oracle.good("SELECT HEX(id), HEX(s), HEX(b), n FROM t ORDER BY id, HEX(s), n");
    oracle.good("SELECT COUNT(*) FROM t FORCE INDEX (s) WHERE s >= ''");
}

#[test]
fn broken_texts_in_parameters() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let before = servers.pools();
    let mut oracle = oracle(&servers);
    let mut refused = 0;
    for mode in MODES {
        for charset in ["utf8mb4", "utf8mb3", "latin1"] {
            oracle.good(&format!("SET sql_mode = '{mode}'"));
            oracle.good(&format!("CREATE TABLE t (id VARCHAR(20) CHARACTER SET {charset} PRIMARY KEY, s VARCHAR(20) CHARACTER SET {charset}, b VARBINARY(20), n INT, KEY s (s))"));
            for text in TEXTS {
                let long = [text, b"behind it, longer than there is room for"].concat();
                for (id, s) in [(text, text), (text, &long[..]), (&long[..], text)] {
                    let said = oracle.same_with("INSERT INTO t VALUES (?, ?, ?, 1)", &[id, s, text]);
                    refused += u32::from(said.number() != 0);
                    oracle.same_with("INSERT IGNORE INTO t VALUES (?, ?, ?, 2)", &[id, s, text]);
                    oracle.same_with("REPLACE INTO t VALUES (?, ?, ?, 3)", &[id, text, s]);
                    oracle.same_with("INSERT INTO t VALUES (?, 'x', ?, 4) ON DUPLICATE KEY UPDATE s = VALUES(b), n = n + 1", &[id, s]);
                    oracle.same_with("UPDATE t SET s = ? WHERE id = ?", &[s, id]);
                    oracle.same_with("UPDATE t SET n = n + 10 WHERE s = ?", &[text]);
                    oracle.same_with("UPDATE t SET n = n + 100 WHERE s BETWEEN ? AND ?", &[b"a", text]);
                    oracle.same_with("DELETE FROM t WHERE s LIKE ? AND n > 1000", &[text]);
                }
                same_rows(&mut oracle);
            }
            oracle.same_with("DELETE FROM t WHERE id = ? OR b = ?", &[b"a\xff", b"\xff"]);
            same_rows(&mut oracle);
            oracle.good("DROP TABLE t");
        }
    }
    assert!(refused > 0, "nothing was refused");
    servers.await_rest(&before);
}

/// A file that is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, lines: &[Vec<u8>]) -> Self {
        let path = std::env::temp_dir().join(format!("vinga-load-{}-{name}", std::process::id()));
        fs::write(&path, lines.concat()).expect("it can be written");
        File(path)
    }

    /// A statement that loads the file.
    fn load(&self, how: &str) -> String {
        format!(
            "LOAD DATA INFILE '{}' {how} INTO TABLE t CHARACTER SET utf8mb4 FIELDS TERMINATED BY ','",
            self.0.display()
        )
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20) CHARACTER SET utf8mb4, b VARBINARY(20), n INT, KEY s (s), UNIQUE KEY n (n))";

/// The result of LOAD DATA, and of checking the rows after it.
fn load(oracle: &mut Oracle, file: &File, how: &str) -> Said {
    let said = oracle.same(file.load(how));
    oracle.same("SHOW WARNINGS LIMIT 5");
    same_rows(oracle);
    said
}

#[test]
fn broken_texts_in_files() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let before = servers.pools();
    let mut oracle = oracle(&servers);
    for mode in MODES {
        oracle.good(&format!("SET sql_mode = '{mode}'"));
        for (number, text) in TEXTS.iter().enumerate() {
            let line = |id: usize, text: &[u8]| {
                [format!("{id},").as_bytes(), text, b",", text, format!(",{id}\n").as_bytes()].concat()
            };
            let file =
                File::new(&format!("text-{number}"), &[line(1, b"first"), line(2, text), line(3, b"last")]);
            oracle.good(TABLE);
            for how in ["", "IGNORE", "REPLACE"] {
                load(&mut oracle, &file, how);
            }
            oracle.good("DROP TABLE t");
        }
    }
    servers.await_rest(&before);
}

/// Lines for more than one portion; the one in the middle has a key that exists, or that occurs twice.
fn lines(id_in_middle: u32, n_in_middle: u32) -> Vec<Vec<u8>> {
    let line = |id: u32, n: u32| format!("{id},text {},{id},{n}\n", id % 100).into_bytes();
    (1..=3000).map(|id| if id == 1500 { line(id_in_middle, n_in_middle) } else { line(id, id) }).collect()
}

#[test]
fn files_of_many_portions_with_a_duplicate() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let before = servers.pools();
    let mut oracle = oracle(&servers);
    let files = [
        ("none", lines(1500, 1500)),
        ("key", lines(7, 1500)),
        ("unique", lines(1500, 7)),
        ("both", lines(7, 8)),
        ("there", lines(100_000, 1500)),
        ("unique-there", lines(1500, 100_000)),
    ];
    let files = files.map(|(name, lines)| File::new(name, &lines));
    let mut refused = 0;
    for file in &files {
        for how in ["", "IGNORE", "REPLACE"] {
            for begin in ["SET @nothing = 1", "BEGIN"] {
                oracle.good(TABLE);
                oracle.good("INSERT INTO t VALUES (100000, 'there', 'there', 100000)");
                oracle.good(begin);
                let said = load(&mut oracle, file, how);
                refused += u32::from(said.number() != 0);
                assert!(how.is_empty() || said.number() == 0, "{how}: {said:?}");
                oracle.good("UPDATE t SET s = 'later' WHERE id = 100000");
                oracle.good("COMMIT");
                same_rows(&mut oracle);
                oracle.good("DROP TABLE t");
            }
        }
    }
    assert_eq!(refused, 10, "all that have a duplicate, without IGNORE and REPLACE");
    servers.await_rest(&before);
    servers.check_alive();
}
