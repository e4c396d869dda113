//! Values and definitions that are too long, too wide, too many or not valid texts: they are refused like by InnoDB if
//! it has the same limit, otherwise with the error that applications know for it.

use vinga_sql_tests::oracle::{OURS, Oracle, Said};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{Session, TestCluster, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

fn oracle(cluster: &TestCluster) -> Oracle {
    Oracle::new(|| cluster.sql_nodes[0].connect().expect("the SQL node answers"))
}

/// `count` copies of a text in which `#` is replaced by the number, separated by commas.
fn list(count: usize, text: &str) -> String {
    let parts: Vec<String> = (1..=count).map(|number| text.replace('#', &number.to_string())).collect();
    parts.join(", ")
}

#[test]
fn definitions_over_the_limits() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    let refused = [
        (1117, format!("CREATE TABLE x (id INT PRIMARY KEY, {}) ENGINE=VINGA", list(512, "c# TINYINT"))),
        (1117, format!("CREATE TABLE x ({}) ENGINE=VINGA", list(5000, "c# TINYINT"))),
        (1118, format!("CREATE TABLE x (id INT PRIMARY KEY, {}) ENGINE=VINGA", list(200, "c# CHAR(255)"))),
        (1118, format!("CREATE TABLE x (id INT PRIMARY KEY, {}) ENGINE=VINGA CHARSET latin1", list(4, "c# VARCHAR(10000)"))),
        (1074, "CREATE TABLE x (id INT PRIMARY KEY, c CHAR(256)) ENGINE=VINGA".into()),
        (1071, "CREATE TABLE x (c VARBINARY(3073) PRIMARY KEY) ENGINE=VINGA".into()),
        (1071, "CREATE TABLE x (id INT PRIMARY KEY, a VARBINARY(2000), b VARBINARY(2000), KEY (a, b)) ENGINE=VINGA".into()),
        (1070, format!("CREATE TABLE x ({}, KEY ({})) ENGINE=VINGA", list(40, "c# TINYINT"), list(40, "c#"))),
        (1069, format!("CREATE TABLE x ({}, {}) ENGINE=VINGA", list(70, "c# TINYINT"), list(70, "KEY (c#)"))),
        (1103, format!("CREATE TABLE {} (id INT PRIMARY KEY) ENGINE=VINGA", "n".repeat(65))),
        (1059, format!("CREATE TABLE x ({} INT PRIMARY KEY) ENGINE=VINGA", "n".repeat(65))),
    ];
    for (number, statement) in refused {
        let (reported, sentence) = session.error(&statement);
        assert_eq!(reported, number, "{sentence} for {}", &statement[..statement.len().min(200)]);
    }
    assert_eq!(session.lines("SHOW TABLES"), [""; 0], "nothing is left of them");
    // The limits themselves are allowed.
    let allowed = [
        format!("CREATE TABLE a (id INT PRIMARY KEY, {}) ENGINE=VINGA", list(511, "c# TINYINT")),
        "CREATE TABLE b (c VARBINARY(3070) PRIMARY KEY) ENGINE=VINGA".into(),
        format!("CREATE TABLE {} ({} INT PRIMARY KEY) ENGINE=VINGA", "n".repeat(64), "n".repeat(64)),
        format!(
            "CREATE TABLE c ({}, KEY ({})) ENGINE=VINGA",
            list(32, "c# TINYINT NOT NULL"),
            list(32, "c#")
        ),
        "CREATE TABLE d (id INT PRIMARY KEY, c CHAR(255), v VARCHAR(28000)) ENGINE=VINGA CHARSET latin1"
            .into(),
    ];
    for statement in allowed {
        session.query(&statement);
    }
    session.query(&format!("INSERT INTO a VALUES ({})", list(512, "1")));
    session.query("INSERT INTO b VALUES (REPEAT('k', 3070))");
    session.query(&format!("INSERT INTO {} VALUES (1)", "n".repeat(64)));
    session.query(&format!("INSERT INTO c VALUES ({})", list(32, "#")));
    session.query("INSERT INTO d VALUES (1, REPEAT('c', 255), REPEAT('v', 28000))");
    assert_eq!(session.lines("SELECT LENGTH(c), LENGTH(v) FROM d"), ["255 28000"]);
    assert_eq!(session.lines("SELECT c511 FROM a WHERE id = 1"), ["1"]);
    assert_eq!(session.lines("SELECT LENGTH(c) FROM b"), ["3070"]);
}

#[test]
fn values_over_the_limits() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE t (id TINYINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(5), c CHAR(3), n DECIMAL(4,2), b BIT(3), \
         e ENUM('a','b'), d DATE, y YEAR, u TINYINT UNSIGNED, j JSON) CHARSET utf8mb4",
    );
    for strict in ["STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO", ""] {
        oracle.good(&format!("SET sql_mode = '{strict}'"));
        for (column, value) in [
            ("v", "'sechse'"),
            ("v", "'grüße!'"),
            ("c", "'viel'"),
            ("n", "123.45"),
            ("n", "-99.999"),
            ("b", "8"),
            ("e", "'c'"),
            ("d", "'2024-02-30'"),
            ("d", "'nonsense'"),
            ("y", "1800"),
            ("u", "256"),
            ("u", "-1"),
            ("u", "1/0"),
            ("j", "'{'"),
            ("id", "128"),
            ("id", "NULL"),
        ] {
            oracle.same(format!("INSERT INTO t ({column}) VALUES ({value})"));
            oracle.same("SHOW WARNINGS");
            oracle.same(format!("UPDATE t SET {column} = {value} ORDER BY id LIMIT 1"));
        }
        oracle.good("SELECT * FROM t ORDER BY id");
        oracle.good("DELETE FROM t");
    }
    // The last value of an auto-increment column, and the behaviour after it.
    oracle.good("SET sql_mode = DEFAULT");
    oracle.good("CREATE TABLE few (id TINYINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(5))");
    oracle.good("INSERT INTO few (id) VALUES (126)");
    oracle.good("INSERT INTO few (v) VALUES ('x')");
    let [ours, theirs] = oracle.ask("INSERT INTO few (v) VALUES ('y')");
    assert_eq!(ours.number(), theirs.number(), "{ours:?}, {theirs:?}");
    assert_ne!(ours.number(), 0);
    oracle.good("SELECT id, v FROM few ORDER BY id");
}

#[test]
fn rows_and_keys_that_are_too_long_when_they_come() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, b LONGTEXT, k VARCHAR(700), KEY (k)) ENGINE=VINGA");
    session.query("INSERT INTO t VALUES (1, 'x', 'k')");
    assert_eq!(session.error("INSERT INTO t VALUES (2, REPEAT('x', 31000), 'k')").0, 1118);
    assert_eq!(session.error("INSERT INTO t VALUES (2, 'x', 'k'), (3, REPEAT('x', 31000), 'k')").0, 1118);
    let (number, sentence) = session.error("UPDATE t SET b = REPEAT('x', 31000)");
    assert!(number == 1118 && sentence.contains("up to 30000 bytes"), "{sentence}");
    assert!(!sentence.contains("change some columns to TEXT"), "it is one: {sentence}");
    session.query("BEGIN");
    session.query("INSERT INTO t VALUES (4, 'x', 'k')");
    assert_eq!(session.error("UPDATE t SET b = REPEAT('x', 31000) WHERE id = 4").0, 1118);
    session.query("COMMIT");
    // A text whose sort key does not fit in its key.
    let (number, sentence) =
        session.error("INSERT INTO t VALUES (5, 'x', REPEAT(_utf8mb4 X'F09F9880', 701))");
    assert_eq!(number, 1406, "{sentence}");
    assert_eq!(session.lines("SELECT id, b, k FROM t ORDER BY id"), ["1 x k", "4 x k"]);
    session.query("UPDATE t SET b = REPEAT('y', 28000) WHERE id = 1");
    assert_eq!(session.lines("SELECT LENGTH(b) FROM t ORDER BY id"), ["28000", "1"]);
}

#[test]
fn bytes_that_are_no_text() {
    let cluster = TestCluster::start(1);
    let mut oracle = oracle(&cluster);
    oracle.good(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20), w VARBINARY(20), x TEXT, UNIQUE KEY (v), \
         KEY (w)) CHARSET utf8mb4",
    );
    oracle.good("INSERT INTO t (v, w, x) VALUES ('grün', 'w', 'x')");
    oracle.good("PREPARE one FROM 'INSERT INTO t (v, w, x) VALUES (?, ?, ?)'");
    oracle.good("PREPARE find FROM 'SELECT HEX(v), HEX(x) FROM t WHERE v = ? OR x = ? ORDER BY 1, 2'");
    let broken: [&[u8]; 7] = [
        b"\xff",
        b"\xc3",
        b"ab\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc0\xaf",
        b"a\x00b\xfe",
    ];
    for bytes in broken {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        for (before, after) in [
            ("INSERT INTO t (v) VALUES ('", "')"),
            ("INSERT INTO t (w) VALUES ('", "')"),
            ("INSERT INTO t (x) VALUES ('", "')"),
            ("INSERT IGNORE INTO t (v) VALUES ('", "')"),
            ("UPDATE t SET v = '", "' WHERE id = 1"),
            ("UPDATE t SET v = 'neu' WHERE v = '", "'"),
            ("SELECT HEX(v), HEX(w), HEX(x) FROM t WHERE v >= '", "' ORDER BY 1, 2, 3"),
            ("SELECT HEX(w), HEX(x) FROM t WHERE w = '", "'"),
            ("SELECT HEX(x) FROM t WHERE x LIKE '%", "%' ORDER BY 1"),
            ("DELETE FROM t WHERE v IN ('a', '", "')"),
            ("CREATE TABLE `", "` (id INT PRIMARY KEY)"),
            ("CREATE TABLE named (`", "` INT PRIMARY KEY)"),
            ("SELECT * FROM `", "`"),
            ("SELECT `", "` FROM t"),
            ("DROP TABLE `", "`"),
        ] {
            // Positions in messages are those in the statement, which is the same.
            oracle.same_but_numbers([before.as_bytes(), bytes, after.as_bytes()].concat());
        }
        oracle.good(&format!("SET @broken = X'{hex}'"));
        oracle.same_but_numbers("EXECUTE one USING @broken, 'w', 'x'");
        oracle.same_but_numbers("EXECUTE one USING 'v', @broken, 'x'");
        oracle.same_but_numbers("EXECUTE one USING 'v', 'w', @broken");
        oracle.same_but_numbers("EXECUTE find USING @broken, @broken");
        oracle.good("SELECT HEX(v), HEX(w), HEX(x) FROM t ORDER BY 1, 2, 3");
        oracle.good("SHOW TABLES");
        oracle.good("DELETE FROM t WHERE id > 1");
    }
}

#[test]
fn names_of_all_kinds() {
    let cluster = TestCluster::start(2);
    let mut oracle = oracle(&cluster);
    // Names contain no characters beyond the first plane.
    oracle.same("CREATE TABLE `😀` (id INT PRIMARY KEY)");
    for name in ["grün", "a.b", "a b", "a/b", "#sql", "日本", "it's", "tick``", "UPPER", "1", "a-b@c", "%41"]
    {
        for statement in [
            format!("CREATE TABLE `{name}` (`{name}` INT PRIMARY KEY, v INT, UNIQUE KEY `{name}` (v))"),
            format!("INSERT INTO `{name}` VALUES (1, 1)"),
            format!("INSERT INTO `{name}` VALUES (2, 1)"),
            format!("SELECT `{name}` FROM `{name}`"),
        ] {
            oracle.same(statement);
        }
        let Said::Good(.., tables) = oracle.same("SHOW TABLES") else { panic!("tables can be listed") };
        let mut other: Session = cluster.connect(1);
        // It may just have been started, and learn of the database somewhat later.
        eventually("the database is known there", || other.try_query(&format!("USE {OURS}")).is_ok());
        assert_eq!(other.lines("SHOW TABLES"), tables, "at the other SQL node");
        let row = other.lines(&format!("SELECT * FROM `{name}`"));
        assert_eq!(row, ["1 1"], "{name} at the other SQL node");
        oracle.same(format!("DROP TABLE `{name}`"));
    }
}

const FULL: u16 = 1114;

/// The data memory is full: statements that need more get error 1114, all others continue, and deleting helps.
#[test]
fn full_data_memory() {
    let mut servers = Servers::start(PROGRAM, 1, &[("DataMemory", "16M")]);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(4000)) ENGINE=VINGA CHARSET latin1");
    let before = servers.pools();
    let mut rows = 0_u32;
    let (number, sentence) = loop {
        let (from, to) = (rows + 1, rows + 100);
        let insert = format!("INSERT INTO t SELECT seq, seq, REPEAT('x', 1000) FROM seq_{from}_to_{to}");
        match session.try_query(&insert) {
            Ok(answer) => assert_eq!(answer.affected, 100),
            Err(error) => break (error.number().unwrap_or(0), error.to_string()),
        }
        rows += 100;
        assert!(rows < 100_000, "nothing fills it");
    };
    assert_eq!(number, FULL, "{sentence}");
    assert!(sentence.contains("'t'"), "{sentence}");
    println!("{rows} rows; {sentence}");
    assert!(rows > 2000, "{rows} rows are few for 16 MB");
    let warnings = session.lines("SHOW WARNINGS").join("\n");
    assert!(warnings.contains("raise DataMemory"), "{warnings}");
    let status = session.lines("SHOW ENGINE VINGA STATUS").join("\n");
    assert!(status.contains("135: The data memory is full"), "{status}");
    let count = |session: &mut Session| session.lines("SELECT COUNT(*), SUM(a) FROM t");
    let expected_of = |rows: u32| [format!("{rows} {}", u64::from(rows) * (u64::from(rows) + 1) / 2)];
    let expected = expected_of(rows);
    assert_eq!(count(&mut session), expected, "the statement that failed left no rows, and nothing is lost");
    // Updates, index builds and copies, alone and in a transaction.
    let refused = [
        "UPDATE t SET b = REPEAT('y', 4000)",
        "ALTER TABLE t ADD COLUMN c CHAR(100) NOT NULL DEFAULT 'c'",
        "CREATE TABLE copy ENGINE=VINGA SELECT * FROM t",
        "INSERT INTO t SELECT id + 1000000, a, b FROM t",
    ];
    for statement in refused {
        let (number, sentence) = session.error(statement);
        assert_eq!(number, FULL, "{statement}: {sentence}");
        assert!(!sentence.contains("VINGA"), "{statement}: {sentence}");
        assert_eq!(count(&mut session), expected, "{statement}");
    }
    // With some room the transaction whose statement was refused continues.
    session.query(&format!("DELETE FROM t WHERE id > {}", rows - 100));
    let expected = expected_of(rows - 100);
    session.query("BEGIN");
    session.query("UPDATE t SET a = a + 1 WHERE id = 1");
    let (number, sentence) = session.error("UPDATE t SET b = REPEAT('y', 4000)");
    assert_eq!(number, FULL, "{sentence}");
    session.query("UPDATE t SET a = a - 1 WHERE id = 1");
    session.query("COMMIT");
    assert_eq!(count(&mut session), expected);
    assert_eq!(session.lines("SHOW TABLES"), ["t"], "nothing is left of what was refused");
    // Reads and deletes continue, and make room.
    let (few, rest) = (rows / 2, rows - 100 - rows / 2);
    session.query(&format!("DELETE FROM t WHERE id <= {few}"));
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), [rest.to_string()]);
    for from in (0..few).step_by(100).take(few as usize / 200) {
        let (from, to) = (from + 1, from + 100);
        session.query(&format!("INSERT INTO t SELECT seq, seq, REPEAT('z', 1000) FROM seq_{from}_to_{to}"));
    }
    session.query("DELETE FROM t");
    session.query("ALTER TABLE t ADD KEY (a)");
    session.query("INSERT INTO t SELECT seq, seq, REPEAT('z', 1000) FROM seq_1_to_1000");
    assert_eq!(session.lines("SELECT COUNT(*) FROM t WHERE a > 500"), ["500"]);
    servers.await_rest(&before);
    servers.check_alive();
}
