//! Tables of SQL that native clients change: after each change of a row that a native client can make, SQL finds the
//! row by each of its values, unique keys are enforced, and computed or checked columns are correct; or the client has
//! refused the change with a name and a reason.

use vinga::blocking::Cluster;
use vinga::{ErrorCode, Record, Table, Update, Value, WriteBatch};
use vinga_sql_tests::{Session, TestCluster};

/// One kind of column: its SQL declaration, a first value in SQL, and a value that a native client sets.
struct Kind {
    name: &'static str,
    declared: &'static str,
    first: &'static str,
    native: Value,
    /// The same value in SQL.
    same: &'static str,
    /// Whether native clients can set it in the column of a key.
    is_settable: bool,
}

fn kind(
    name: &'static str,
    declared: &'static str,
    first: &'static str,
    native: impl Into<Value>,
    same: &'static str,
) -> Kind {
    Kind { name, declared, first, native: native.into(), same, is_settable: true }
}

fn kinds() -> Vec<Kind> {
    let refused = |kind| Kind { is_settable: false, ..kind };
    let decimal = |text: &str| Value::Decimal(text.parse().expect("a decimal"));
    vec![
        kind("tiny", "TINYINT", "1", -5, "-5"),
        kind("small_unsigned", "SMALLINT UNSIGNED", "1", 65535, "65535"),
        kind("medium", "MEDIUMINT", "1", -8_388_608, "-8388608"),
        kind("big", "BIGINT UNSIGNED", "1", u64::MAX, "18446744073709551615"),
        kind("price", "DECIMAL(10,2)", "1.5", decimal("-7.25"), "-7.25"),
        kind("price_unsigned", "DECIMAL(10,2) UNSIGNED", "1.5", decimal("7.25"), "7.25"),
        kind("half", "FLOAT", "1", 0.5, "0.5"),
        kind("whole", "DOUBLE UNSIGNED", "1", 2.5, "2.5"),
        kind("bits", "BIT(11)", "b'1'", Value::Bit(1025), "b'10000000001'"),
        kind("y", "YEAR", "1999", 2026, "2026"),
        kind(
            "day",
            "DATE",
            "'2000-01-01'",
            Value::Date("2026-11-23".parse().expect("a day")),
            "'2026-11-23'",
        ),
        kind(
            "span",
            "TIME(3)",
            "'1:00'",
            Value::Time("-12:34:56.789".parse().expect("a time")),
            "'-12:34:56.789'",
        ),
        kind(
            "at",
            "DATETIME(6)",
            "'2000-01-01'",
            Value::DateTime("2026-11-23 01:02:03.000004".parse().expect("a time")),
            "'2026-11-23 01:02:03.000004'",
        ),
        kind("e", "ENUM('a','b','c')", "'a'", 3, "'c'"),
        kind("s", "SET('a','b','c')", "'a'", 5, "'a,c'"),
        kind("fixed", "BINARY(5)", "'a\\0\\0\\0\\0'", &b"b\0"[..], "'b\\0\\0\\0\\0'"),
        kind("varying", "VARBINARY(9)", "'a'", &b"b "[..], "'b '"),
        kind("address", "INET4", "'10.0.0.1'", &[10u8, 0, 0, 9][..], "'10.0.0.9'"),
        kind("bin", "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "'a'", "ä\t ", "'ä\\t'"),
        kind("nopad", "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "'a'", "ä ", "'ä '"),
        kind("ascii", "VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin", "'a'", "b", "'b '"),
        kind("fixed_bin", "CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "'a'", "ü", "'ü'"),
        refused(kind(
            "general",
            "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            "'a'",
            "Zed",
            "'ZED'",
        )),
        refused(kind(
            "uca",
            "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci",
            "'a'",
            "Zed",
            "'zéd'",
        )),
        refused(kind(
            "fixed_ci",
            "CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            "'a'",
            "Zed",
            "'ZED'",
        )),
        refused(kind("latin", "VARCHAR(9) CHARACTER SET latin1", "'a'", "Zed", "'ZED'")),
        refused(kind("wide", "VARCHAR(9) CHARACTER SET utf16 COLLATE utf16_bin", "'a'", "Zed", "'Zed'")),
        refused(kind("u", "UUID", "'123e4567-e89b-12d3-a456-426655440000'", &[7u8; 16][..], "'x'")),
    ]
}

#[track_caller]
fn assert_needs_sql<T>(result: vinga::Result<T>, table: &str, word: &str) {
    let Err(error) = result else { panic!("{table}: {word} must be refused") };
    assert_eq!(error.code(), ErrorCode::NeedsSql, "{table}: {error}");
    assert!(
        error.to_string().contains(table) && error.to_string().contains(word),
        "{table}, {word}: {error}"
    );
}

fn row(id: i32, value: Value) -> Record {
    Record::new([("id", Value::from(id)), ("v", value), ("n", 0.into())])
}

/// Rows that SQL finds by a value of `v`: by each key on it, and without a key.
fn found(session: &mut Session, table: &str, value: &str) -> Vec<Vec<String>> {
    ["FORCE INDEX (by_v)", "FORCE INDEX (by_v_n)", "IGNORE INDEX (by_v, by_v_n)"]
        .map(|hint| session.lines(&format!("SELECT id FROM {table} {hint} WHERE v = {value} ORDER BY id")))
        .to_vec()
}

/// All changes of a table with a unique `v`, and the resulting rows in SQL.
fn change(session: &mut Session, native: &Cluster, kind: &Kind) {
    let Kind { declared, first, native: value, same, is_settable, .. } = kind;
    let name = &format!("t_{}", kind.name);
    session.query(&format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, v {declared}, n INT NOT NULL, UNIQUE KEY by_v (v), KEY by_v_n (v, n))"
    ));
    session.query(&format!("INSERT INTO {name} VALUES (1, {first}, 0), (2, NULL, 0)"));
    let full_name = format!("test.{name}");
    let table = native.table(&full_name).expect("it exists");
    let set = || Update::new().set("v", value.clone());

    // Changes of other columns, and to NULL, are always possible.
    native.update(&table, 1, &Update::new().add("n", 5)).expect("n is in no rule");
    native.insert(&table, &row(3, Value::Null)).expect("NULL has no sort key");
    native.update(&table, 3, &Update::new().set("v", None::<i32>)).expect("NULL has no sort key");
    assert_eq!(found(session, name, first), vec![vec!["1".to_owned()]; 3], "{name}");

    if !is_settable {
        assert_needs_sql(native.update(&table, 1, &set()), &full_name, "'v'");
        assert_needs_sql(native.insert(&table, &row(4, value.clone())), &full_name, "'v'");
        assert_needs_sql(native.write(&table, &row(1, value.clone())), &full_name, "'v'");
        let mut tx = native.begin().expect("it begins");
        assert_needs_sql(tx.write(&table, &row(1, value.clone())), &full_name, "'v'");
        assert_needs_sql(tx.update(&table, 1, &set()), &full_name, "'v'");
        assert_needs_sql(WriteBatch::new().insert(&table, &row(4, value.clone())), &full_name, "'v'");
        assert_eq!(found(session, name, first), vec![vec!["1".to_owned()]; 3], "{name}");
        session.query(&format!("DROP TABLE {name}"));
        return;
    }
    native.update(&table, 1, &set()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(found(session, name, same), vec![vec!["1".to_owned()]; 3], "{name}");
    assert_eq!(found(session, name, first), vec![Vec::<String>::new(); 3], "{name}");
    assert_eq!(
        native.get_by(&table, "by_v", value.clone()).expect("it is read").expect("it exists")["id"],
        1.into()
    );
    // The unique key is enforced between both sides.
    let (number, _) = session.error(&format!("INSERT INTO {name} VALUES (5, {same}, 0)"));
    assert_eq!(number, 1062, "{name}");
    let duplicate = native.insert(&table, &row(6, value.clone())).unwrap_err();
    assert_eq!(duplicate.code(), ErrorCode::DuplicateKey, "{name}: {duplicate}");
    native.delete(&table, 1).expect("it exists");
    native.write(&table, &row(7, value.clone())).expect("no row has this key");
    assert_eq!(found(session, name, same), vec![vec!["7".to_owned()]; 3], "{name}");
    session.query(&format!("UPDATE {name} SET v = {first} WHERE v = {same}"));
    assert_eq!(found(session, name, first), vec![vec!["7".to_owned()]; 3], "{name}");
    session.query(&format!("DROP TABLE {name}"));
}

#[test]
fn sql_finds_what_native_clients_have_changed() {
    let cluster = TestCluster::start(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    for kind in kinds() {
        change(&mut session, &native, &kind);
    }
}

/// Random values in collations whose sort keys native clients build: the order and the equality are the same as in SQL.
#[test]
fn sort_keys_are_those_of_sql() {
    let cluster = TestCluster::start(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    let mut random = fastrand::Rng::with_seed(11);
    for collation in ["utf8mb4_bin", "utf8mb4_nopad_bin", "ascii_bin", "latin1_nopad_bin"] {
        let charset = collation.split('_').next().expect("a name");
        session.query(&format!(
            "CREATE OR REPLACE TABLE r (id INT PRIMARY KEY, v VARCHAR(8) CHARACTER SET {charset} COLLATE {collation}, \
             n INT NOT NULL, KEY by_v (v))"
        ));
        let table = native.table("test.r").expect("it exists");
        let mut texts = Vec::new();
        for id in 0..300 {
            let text: String = (0..random.usize(0..7))
                .map(|_| random.choice(['\0', '\t', '\u{1f}', ' ', '!', 'a']).expect("some"))
                .collect();
            native.insert(&table, &row(id, text.as_str().into())).expect("it is new");
            texts.push(text);
        }
        for text in texts {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            let counted = |hint: &str, sign: &str| {
                format!(
                    "SELECT COUNT(*) FROM r {hint} WHERE v {sign} CONVERT(x'{hex}' USING {charset}) COLLATE {collation}"
                )
            };
            for sign in ["=", "<", ">"] {
                let by_index = session.lines(&counted("FORCE INDEX (by_v)", sign));
                assert_eq!(
                    by_index,
                    session.lines(&counted("IGNORE INDEX (by_v)", sign)),
                    "{collation} {text:?} {sign}"
                );
            }
        }
    }
}

#[test]
fn what_sql_alone_keeps_is_left_to_it() {
    let cluster = TestCluster::start(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    let make = |session: &mut Session, name: &str, definition: &str| -> Table {
        session.query(&format!("CREATE TABLE {name} {definition}"));
        native.table(&format!("test.{name}")).expect("it exists")
    };
    let set = |column: &str, value: i32| Update::new().set(column, value);

    let checked =
        make(&mut session, "checked", "(id INT PRIMARY KEY, a INT, b INT, CONSTRAINT small CHECK (a < 10))");
    session.query("INSERT INTO checked VALUES (1, 1, 1)");
    let new = Record::new([("id", 2), ("a", 99)]);
    assert_needs_sql(native.insert(&checked, &new), "test.checked", "CHECK 'small'");
    assert_needs_sql(native.update(&checked, 1, &set("a", 99)), "test.checked", "CHECK 'small'");
    assert_needs_sql(
        native.update(&checked, 1, &Update::new().add("a", 99)),
        "test.checked",
        "CHECK 'small'",
    );
    native.update(&checked, 1, &set("b", 99)).expect("nothing reads b");

    let json = make(&mut session, "json", "(id INT PRIMARY KEY, doc JSON, b INT)");
    session.query("INSERT INTO json VALUES (1, '{}', 1)");
    assert_needs_sql(native.update(&json, 1, &Update::new().set("doc", "{")), "test.json", "CHECK 'doc'");
    native.update(&json, 1, &set("b", 2)).expect("nothing reads b");

    let computed = make(
        &mut session,
        "computed",
        "(id INT PRIMARY KEY, a INT, b INT, w INT AS (a + 1) VIRTUAL, g INT AS (w * 2) STORED, KEY by_g (g))",
    );
    session.query("INSERT INTO computed (id, a, b) VALUES (1, 1, 1)");
    assert_needs_sql(native.update(&computed, 1, &set("a", 5)), "test.computed", "generated column 'g'");
    assert_needs_sql(native.update(&computed, 1, &set("g", 5)), "test.computed", "'g'");
    assert_needs_sql(native.insert(&computed, &Record::new([("id", 2)])), "test.computed", "SQL");
    native.update(&computed, 1, &set("b", 5)).expect("nothing reads b");
    assert_eq!(session.lines("SELECT id, b, w, g FROM computed FORCE INDEX (by_g) WHERE g = 4"), ["1 5 2 4"]);

    let virtual_only =
        make(&mut session, "virtual_only", "(id INT PRIMARY KEY, a INT, w INT AS (a + 1) VIRTUAL)");
    native.insert(&virtual_only, &Record::new([("id", 1), ("a", 4)])).expect("w is not stored");
    assert_eq!(session.lines("SELECT w FROM virtual_only"), ["5"]);

    let history = make(&mut session, "history", "(id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING");
    session.query("INSERT INTO history VALUES (1, 1)");
    assert_needs_sql(native.update(&history, 1, &set("a", 2)), "test.history", "history");

    let periods = make(
        &mut session,
        "periods",
        "(id INT, s DATE, e DATE, a INT, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
    );
    session.query("INSERT INTO periods VALUES (1, '2026-01-01', '2026-02-01', 1)");
    let key = |table: &Table| table.definition().primary_key.len();
    assert_eq!(key(&periods), 3);
    let days = ["2026-01-15", "2026-03-01"].map(|day| Value::Date(day.parse().expect("a day")));
    let overlapping = Record::new([("id", Value::from(1)), ("s", days[0].clone()), ("e", days[1].clone())]);
    assert_needs_sql(native.insert(&periods, &overlapping), "test.periods", "WITHOUT OVERLAPS 'PRIMARY'");

    let keyless = make(&mut session, "keyless", "(a INT, KEY (a))");
    session.query("INSERT INTO keyless VALUES (3), (4)");
    assert_needs_sql(native.insert(&keyless, &Record::new([("a", 5)])), "test.keyless", "no primary key");
    assert_needs_sql(native.get(&keyless, 1u64), "test.keyless", "no primary key");
    let rows: Vec<Record> = native
        .scan(&keyless, |scan| scan.index("a").from(4))
        .expect("it is read")
        .map(|row| row.expect("it is a row"))
        .collect();
    assert_eq!(rows, [Record::new([("a", 4)])]);

    let named = make(&mut session, "named", "(name VARCHAR(20) PRIMARY KEY, a INT)");
    session.query("INSERT INTO named VALUES ('Ann', 1)");
    assert_needs_sql(native.get(&named, "Ann"), "test.named", "'name'");
    assert_needs_sql(native.delete(&named, "Ann"), "test.named", "'name'");

    let packed =
        make(&mut session, "packed", "(id INT PRIMARY KEY, t TEXT COMPRESSED, g POINT, tiny TINYBLOB)");
    assert_needs_sql(
        native.insert(&packed, &Record::new([("id", 1.into()), ("t", Value::from("x"))])),
        "test.packed",
        "'t'",
    );
    assert_needs_sql(
        native.insert(&packed, &Record::new([("id", 1.into()), ("g", Value::from("x"))])),
        "test.packed",
        "'g'",
    );

    // Values that SQL would not store.
    let values = make(
        &mut session,
        "vals",
        "(id INT PRIMARY KEY, e ENUM('a','b'), s SET('a','b'), t VARCHAR(3) CHARACTER SET utf8mb4, l VARCHAR(3) CHARACTER SET \
         latin1, f FLOAT, u DECIMAL(5,1) UNSIGNED, tiny TINYBLOB)",
    );
    let wrong: [(&str, Value); 8] = [
        ("e", 3.into()),
        ("s", 4.into()),
        ("t", "four".into()),
        ("t", b"\xff"[..].into()),
        ("l", "ä".into()),
        ("f", f32::NAN.into()),
        ("u", Value::Decimal("-1".parse().expect("a decimal"))),
        ("tiny", vec![0u8; 256].into()),
    ];
    for (column, value) in wrong {
        let row = Record::new([("id", 1.into()), (column, value.clone())]);
        let error = native.insert(&values, &row).expect_err(column);
        assert_eq!(error.code(), ErrorCode::BadRow, "{column}: {error}");
        assert!(error.to_string().contains(&format!("column '{column}' of test.vals")), "{error}");
        let error = native.update(&values, 1, &Update::new().set(column, value)).expect_err(column);
        assert_eq!(error.code(), ErrorCode::BadProgram, "{column}: {error}");
    }
    let right = Record::new([
        ("id", 1.into()),
        ("e", Value::from(2)),
        ("s", 3.into()),
        ("t", "äöü".into()),
        ("f", 1.5.into()),
    ]);
    native.insert(&values, &right).expect("SQL would have stored it");
    assert_eq!(session.lines("SELECT e, s, t, f FROM vals"), ["b a,b äöü 1.5"]);

    // The bytes of a BIT have room for sums that do not fit the column.
    let bits = make(&mut session, "bits", "(id INT PRIMARY KEY, some BIT(5), byte BIT(8))");
    let row = Record::new([("id", 1.into()), ("some", Value::Bit(25)), ("byte", Value::Bit(25))]);
    native.insert(&bits, &row).expect("both have room");
    assert_needs_sql(native.update(&bits, 1, &Update::new().add("some", 20)), "test.bits", "'some'");
    native.update(&bits, 1, &Update::new().add("byte", 20)).expect("it has room");
    assert_eq!(session.lines("SELECT some + 0, byte + 0 FROM bits"), ["25 45"]);

    // A counter skips values that native clients have used.
    let numbered = make(&mut session, "numbered", "(id INT AUTO_INCREMENT PRIMARY KEY, a INT)");
    session.query("INSERT INTO numbered (a) VALUES (1)");
    for id in 2..40 {
        native.insert(&numbered, &Record::new([("id", id), ("a", 0)])).expect("it is new");
    }
    session.query("INSERT INTO numbered (a) VALUES (2)");
    assert_eq!(session.lines("SELECT COUNT(*), COUNT(DISTINCT id) FROM numbered"), ["40 40"]);
}

fn native(cluster: &TestCluster) -> Cluster {
    let address = cluster.data_node.as_ref().expect("it runs").address();
    Cluster::connect(address).expect("it answers")
}
