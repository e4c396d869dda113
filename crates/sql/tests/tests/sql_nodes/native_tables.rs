//! Tables that native clients have created, in SQL: the values are the same no matter who has written them, and by
//! which key they are searched; listings, dumps, changes of their definitions by either side; and tables that SQL can't
//! represent.

use std::path::PathBuf;
use vinga::blocking::Cluster;
use vinga::value::{Date, DateTime, Decimal, Time, Timestamp};
use vinga::{ColumnType, Direction, ErrorCode, IndexKind, NewTable, Record, Table, Update, Value};
use vinga_sql_tests::{Session, TestCluster, program, run};

const INT: ColumnType = ColumnType::Integer { bytes: 4, signed: true };
const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: true };

fn native(cluster: &TestCluster) -> Cluster {
    let address = cluster.data_node.as_ref().expect("it runs").address();
    Cluster::connect(address).expect("the data node answers")
}

/// A cluster whose SQL nodes receive schema events: the database has reached all of them.
fn cluster_of(sql_nodes: usize) -> TestCluster {
    let cluster = TestCluster::start(sql_nodes);
    for node in 0..sql_nodes {
        let mut session = cluster.connect(node);
        while session.try_query("USE test").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    cluster
}

fn varchar(bytes_max: u16) -> ColumnType {
    ColumnType::VarChar { bytes_max }
}

/// A type, and values of it in ascending order: in the forms for native clients and for SQL statements.
struct Case {
    column_type: ColumnType,
    values: Vec<(Value, String)>,
}

fn case<V: Into<Value>>(column_type: ColumnType, values: impl IntoIterator<Item = (V, String)>) -> Case {
    Case { column_type, values: values.into_iter().map(|(value, said)| (value.into(), said)).collect() }
}

/// Values whose SQL form is the quoted text that is parsed.
fn parsed<V: Into<Value> + std::str::FromStr>(column_type: ColumnType, texts: &[&str]) -> Case
where
    V::Err: std::fmt::Debug,
{
    case(column_type, texts.iter().map(|text| (text.parse::<V>().expect("it is one"), format!("'{text}'"))))
}

fn texts(column_type: ColumnType, values: &[&str]) -> Case {
    case(column_type, values.iter().map(|text| (Value::Text((*text).to_owned()), format!("'{text}'"))))
}

fn bytes(column_type: ColumnType, values: &[&[u8]]) -> Case {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    case(column_type, values.iter().map(|value| (Value::Bytes(value.to_vec()), format!("x'{}'", hex(value)))))
}

/// All types, with their minimum and maximum values.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [1_u8, 2, 3, 4, 8] {
        let most = i64::MAX >> (64 - 8 * u32::from(size));
        let signed = [-most - 1, -1, 0, 1, most];
        let column_type = ColumnType::Integer { bytes: size, signed: true };
        cases.push(case(column_type, signed.map(|value| (value, value.to_string()))));
        let most = u64::MAX >> (64 - 8 * u32::from(size));
        let unsigned = [0, 1, most / 2 + 1, most];
        let column_type = ColumnType::Integer { bytes: size, signed: false };
        cases.push(case(column_type, unsigned.map(|value| (value, value.to_string()))));
    }
    let singles = [f64::from(f32::MIN), -1.5, 0.0, f64::from(f32::MIN_POSITIVE), 1.5, f64::from(f32::MAX)];
    cases.push(case(ColumnType::Float, singles.map(|value| (value, format!("{value:e}")))));
    let doubles = [f64::MIN, -1.5, 0.0, f64::MIN_POSITIVE, 0.1, f64::MAX];
    cases.push(case(ColumnType::Double, doubles.map(|value| (value, format!("{value:e}")))));
    for bits in [1_u8, 8, 17, 64] {
        let most = u64::MAX >> (64 - bits);
        let values = if bits == 1 { vec![0, 1] } else { vec![0, 1, most / 2 + 1, most] };
        let values = values.into_iter().map(|value| (Value::Bit(value), value.to_string()));
        cases.push(case(ColumnType::Bit { bits }, values));
    }
    let nines = format!("{}.{}", "9".repeat(27), "9".repeat(38));
    let long = [format!("-{nines}"), "0".into(), format!("0.{}1", "0".repeat(37)), nines];
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    cases.push(parsed::<Decimal>(ColumnType::Decimal { precision: 65, scale: 38 }, &long));
    let short = ["-999.99", "-0.01", "0", "0.01", "999.99"];
    cases.push(parsed::<Decimal>(ColumnType::Decimal { precision: 5, scale: 2 }, &short));
    cases.push(parsed::<Date>(ColumnType::Date, &["1000-01-01", "1999-12-31", "2024-02-29", "9999-12-31"]));
    let whole = ["-838:59:59", "-00:00:01", "00:00:00", "12:34:56", "838:59:59"];
    cases.push(parsed::<Time>(ColumnType::Time { fraction: 0 }, &whole));
    let fine = ["-838:59:58.999999", "-00:00:00.000001", "00:00:00", "00:00:00.000001", "838:59:58.999999"];
    cases.push(parsed::<Time>(ColumnType::Time { fraction: 6 }, &fine));
    for fraction in [0, 3, 6] {
        let end = ["", ".999", ".999999"][usize::from(fraction) / 3];
        let times = [
            "1000-01-01 00:00:00".to_owned(),
            format!("2024-02-29 12:34:56{end}"),
            format!("9999-12-31 23:59:59{end}"),
        ];
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        cases.push(parsed::<DateTime>(ColumnType::DateTime { fraction }, &times));
        let times = [
            "1970-01-01 00:00:01".to_owned(),
            format!("2024-02-29 12:34:56{end}"),
            format!("2038-01-19 03:14:07{end}"),
        ];
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        cases.push(parsed::<Timestamp>(ColumnType::Timestamp { fraction }, &times));
    }
    let years = [0_u64, 1901, 2024, 2155];
    cases.push(case(ColumnType::Year, years.map(|year| (year, format!("'{year:04}'")))));
    cases.push(texts(ColumnType::Char { bytes: 3 }, &["", "B", "a", "a b", "b", "xyz"]));
    cases.push(texts(ColumnType::Char { bytes: 255 }, &["", "x", &"y".repeat(255)]));
    cases.push(bytes(ColumnType::Binary { bytes: 3 }, &[&[0; 3], &[0, 0, 1], b"a\0\0", &[0xff; 3]]));
    let words = ["", " ", "A", "a", "a\t", "a ", "ab", "aé", "b", "é", "中文", "🙂🙂"];
    cases.push(texts(varchar(8), &words));
    cases.push(texts(varchar(300), &["", "a", &"é".repeat(150), &"🙂".repeat(75)]));
    // Longer than a key of this many characters can be.
    cases.push(texts(varchar(1000), &["", "a", &"b".repeat(1000)]));
    cases.push(bytes(ColumnType::VarBinary { bytes_max: 4 }, &[b"", &[0], &[0, 0], b"a", &[0xff; 4]]));
    cases
}

/// A table with one column of a type for each kind of key.
fn by_all_keys(name: &str, column_type: ColumnType) -> NewTable {
    NewTable::new(name)
        .column("v", column_type)
        .column("id", INT)
        .nullable_column("u", column_type)
        .nullable_column("o", column_type)
        .primary_key(&["v"])
        .unique_index("by_u", &["u"])
        .ordered_index("by_o", &["o"])
}

/// The rows in ascending order of the first column, which has an index with its name.
fn rows(native: &Cluster, table: &Table) -> Vec<Record> {
    let scan = native.scan(table, |scan| scan.index("by_o").in_order()).expect("it can be scanned");
    scan.collect::<vinga::Result<_>>().expect("it has an end")
}

#[test]
fn each_type_is_the_same_on_both_sides() {
    let cluster = cluster_of(1);
    let mut session = cluster.connect(0);
    session.query("SET time_zone = '+00:00'");
    let native = native(&cluster);
    for (number, Case { column_type, values }) in cases().into_iter().enumerate() {
        let names = [format!("n{number}"), format!("s{number}")];
        let tables = names.each_ref().map(|name| {
            native.create_table(by_all_keys(&format!("test.{name}"), column_type)).expect("it is new")
        });
        for (id, (value, said)) in values.iter().enumerate() {
            let id = id as i64;
            let row = [("v", value.clone()), ("id", id.into()), ("u", value.clone()), ("o", value.clone())];
            native.insert(&tables[0], &row).unwrap_or_else(|error| panic!("{column_type} {said}: {error}"));
            session.query(&format!("INSERT INTO {} VALUES ({said}, {id}, {said}, {said})", names[1]));
        }
        let said = rows(&native, &tables[1]);
        assert_eq!(rows(&native, &tables[0]), said, "{column_type}");
        assert_eq!(said.len(), values.len());
        for (name, table) in names.iter().zip(&tables) {
            let ids: Vec<String> = (0..values.len()).map(|id| id.to_string()).collect();
            let ascending = format!("SELECT id FROM {name} FORCE INDEX (by_o) ORDER BY o");
            assert_eq!(session.lines(&ascending), ids, "{column_type}");
            assert_eq!(
                session.lines(&format!("SELECT id FROM {name} USE INDEX () ORDER BY v")),
                ids,
                "{column_type}"
            );
            for (id, (value, said)) in values.iter().enumerate() {
                let what = format!("{column_type} {said} in {name}");
                let only = [id.to_string()];
                for (column, key) in [("v", "PRIMARY"), ("u", "by_u"), ("o", "by_o")] {
                    let find = |hint: &str| format!("SELECT id FROM {name} {hint} WHERE {column} = {said}");
                    assert_eq!(
                        session.lines(&find(&format!("FORCE INDEX ({key})"))),
                        only,
                        "{what} by {key}"
                    );
                    assert_eq!(session.lines(&find("USE INDEX ()")), only, "{what} by no key");
                }
                let behind = format!("SELECT COUNT(*) FROM {name} FORCE INDEX (by_o) WHERE o > {said}");
                assert_eq!(session.lines(&behind), [(values.len() - 1 - id).to_string()], "{what}");
                let found: Record =
                    native.get(table, value.clone()).expect("it is a key").expect("it exists");
                assert_eq!(found["id"], Value::from(id as i64), "{what}");
                let found: Option<Record> = native.get_by(table, "by_u", value.clone()).expect("it is a key");
                assert_eq!(found.expect("it exists")["id"], Value::from(id as i64), "{what}");
            }
            // NULL, which is not an entry of a unique index, and sorts before all other values.
            session.query(&format!("UPDATE {name} SET u = NULL, o = NULL ORDER BY id DESC LIMIT 2"));
            assert_eq!(
                session.lines(&format!("SELECT COUNT(*) FROM {name} WHERE u IS NULL AND o IS NULL")),
                ["2"]
            );
            let nulls =
                rows(&native, table).iter().filter(|row| row["u"].is_null() && row["o"].is_null()).count();
            assert_eq!(nulls, 2, "{column_type}");
            let last = values.len() - 1;
            let back = Update::new().set("u", values[last].0.clone()).set("o", Value::Null);
            native.update(table, values[last].0.clone(), &back).expect("it exists");
            let found = format!("SELECT id, o IS NULL FROM {name} WHERE u = {}", values[last].1);
            assert_eq!(session.lines(&found), [format!("{last} 1")], "{column_type}");
            session.query(&format!("DELETE FROM {name} WHERE v = {}", values[0].1));
            let found: Option<Record> = native.get(table, values[0].0.clone()).expect("it is a key");
            assert!(found.is_none(), "{column_type}");
        }
    }
    // Long values, which are in no key.
    for (number, column_type) in [ColumnType::Text, ColumnType::Blob].into_iter().enumerate() {
        let name = format!("long{number}");
        let definition = NewTable::new(format!("test.{name}"))
            .column("id", INT)
            .nullable_column("v", column_type)
            .primary_key(&["id"]);
        let table = native.create_table(definition).expect("it is new");
        let long = "äx".repeat(9_000);
        for (id, text) in ["", "x ", long.as_str()].into_iter().enumerate() {
            let value = match column_type {
                ColumnType::Text => Value::Text(text.into()),
                _ => Value::Bytes(text.as_bytes().to_vec()),
            };
            native
                .insert(&table, &[("id", Value::from(id as i64)), ("v", value.clone())])
                .expect("it is new");
            session.query(&format!("INSERT INTO {name} SELECT id + 10, v FROM {name} WHERE v = '{text}'"));
            let found: Record =
                native.get(&table, id as i64 + 10).expect("a key").expect("it was found by its value");
            assert_eq!(found["v"], value);
        }
        assert_eq!(session.lines(&format!("SELECT SUM(LENGTH(v)) FROM {name}")), ["54004"]);
    }
}

#[test]
fn a_value_that_has_no_room_natively_is_refused_and_not_found() {
    let cluster = cluster_of(1);
    let mut session = cluster.connect(0);
    let native = native(&cluster);
    let definition = by_all_keys("test.t", varchar(8));
    native.create_table(definition).expect("it is new");
    session.query("INSERT INTO t VALUES ('aaaaaaaa', 1, 'bbbbbbbb', 'cccccccc'), ('é', 2, 'é', 'éééé')");
    for statement in [
        "INSERT INTO t VALUES ('ééééé', 3, NULL, NULL)",
        "INSERT INTO t VALUES ('x', 3, 'ééééé', NULL)",
        "UPDATE t SET o = 'ééééé' WHERE id = 1",
        "UPDATE t SET v = 'ééééé' WHERE v = 'é'",
    ] {
        let (number, text) = session.error(statement);
        assert_eq!(number, 1296, "{statement}: {text}");
        assert!(text.contains("a value of 10 bytes for column '") && text.contains("up to 8"), "{text}");
    }
    assert_eq!(session.lines("SELECT id FROM t ORDER BY id"), ["1", "2"]);
    for column in ["v", "u", "o"] {
        for key in ["FORCE INDEX (PRIMARY, by_u, by_o)", "USE INDEX ()"] {
            let counted =
                |condition: &str| format!("SELECT COUNT(*) FROM t {key} WHERE {column} {condition}");
            assert_eq!(session.lines(&counted("= 'aaaaaaaab'")), ["0"], "{column} {key}");
            assert_eq!(
                session.lines(&counted("IN ('bbbbbbbbb', 'ccccccccc', 'nn')")),
                ["0"],
                "{column} {key}"
            );
        }
    }
    let counted = |condition: &str| format!("SELECT COUNT(*) FROM t FORCE INDEX (by_o) WHERE o {condition}");
    for (condition, count) in
        [("< 'ccccccccc'", "1"), ("<= 'ccccccccc'", "1"), ("> 'ccccccccc'", "1"), (">= 'ccccccccc'", "1")]
    {
        assert_eq!(session.lines(&counted(condition)), [count], "{condition}");
    }
}

/// A typical table of native programs, and its SQL definition.
fn shop(native: &Cluster) -> Table {
    let definition = NewTable::new("shop.orders")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("customer", varchar(40))
        .nullable_column("note", ColumnType::Text)
        .nullable_column("sum", ColumnType::Decimal { precision: 9, scale: 2 })
        .column("at", ColumnType::Timestamp { fraction: 3 })
        .column("code", ColumnType::Char { bytes: 4 })
        .primary_key(&["id"])
        .ordered_index("PRIMARY", &["id"])
        .unique_index("by_code", &["code"])
        .ordered_index_by(
            "by_customer",
            &[("customer", Direction::Ascending), ("sum", Direction::Descending)],
        );
    let table = native.create_table(definition).expect("it is new");
    let at: Timestamp = "2024-02-29 12:00:00.5".parse().expect("it is one");
    for id in 0..500_u64 {
        let row = [
            ("id", Value::from(id)),
            ("customer", format!("cüstomer {}", id % 7).into()),
            ("note", if id % 3 == 0 { Value::Null } else { format!("note {id}").into() }),
            ("sum", format!("{id}.25").parse::<Decimal>().expect("it is one").into()),
            ("at", at.into()),
            ("code", format!("{id:04}").into()),
        ];
        native.insert(&table, &row).expect("it is new");
    }
    table
}

const SHOP: &str = "CREATE TABLE `orders` (
  `id` bigint(20) unsigned NOT NULL,
  `customer` varchar(40) NOT NULL,
  `note` text DEFAULT NULL,
  `sum` decimal(9,2) DEFAULT NULL,
  `at` timestamp(3) NOT NULL DEFAULT current_timestamp(3),
  `code` char(4) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `by_code` (`code`) USING HASH,
  KEY `by_customer` (`customer`,`sum` DESC)
) ENGINE=VINGA DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin";

const DIGEST: &str =
    "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', id, customer, note, sum, at, code))) FROM shop.orders";

#[test]
fn listings_and_dumps_have_them() {
    let cluster = cluster_of(2);
    let native = native(&cluster);
    shop(&native);
    // A table that SQL can't represent in the same database, and one that only has odd names.
    native
        .create_table(
            NewTable::new("shop.wide").column("c", ColumnType::Char { bytes: 256 }).primary_key(&["c"]),
        )
        .expect("it is new");
    let odd = NewTable::new("shop.a`b c/d").column("ß", INT).column("x`y", INT).primary_key(&["x`y", "ß"]);
    native.create_table(odd.ordered_index("k`", &["ß"]).ordered_index("again", &["ß"])).expect("it is new");
    for node in 0..2 {
        let mut session = cluster.connect(node);
        assert_eq!(session.lines("SHOW TABLES FROM shop"), ["a`b c/d", "orders"]);
        assert_eq!(session.lines("SHOW FULL TABLES FROM shop"), ["a`b c/d BASE TABLE", "orders BASE TABLE"]);
        assert_eq!(session.query("SHOW CREATE TABLE shop.orders")[0][1], SHOP);
        let status = session.query("SHOW TABLE STATUS FROM shop LIKE 'orders'");
        assert_eq!(
            (status[0][1].as_str(), status[0][4].as_str(), status[0][14].as_str()),
            ("VINGA", "500", "utf8mb4_nopad_bin")
        );
        let columns = "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_KEY FROM information_schema.COLUMNS \
                       WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'orders' ORDER BY ORDINAL_POSITION";
        assert_eq!(
            session.lines(columns),
            [
                "id bigint(20) unsigned NO PRI",
                "customer varchar(40) NO MUL",
                "note text YES ",
                "sum decimal(9,2) YES ",
                "at timestamp(3) NO ",
                "code char(4) NO UNI"
            ]
        );
        let keys = "SELECT INDEX_NAME, NON_UNIQUE, SEQ_IN_INDEX, COLUMN_NAME, INDEX_TYPE FROM \
                    information_schema.STATISTICS WHERE TABLE_SCHEMA = 'shop' ORDER BY 1, 3, 4";
        assert_eq!(
            session.lines(keys),
            [
                "again 1 1 ß BTREE",
                "by_code 0 1 code HASH",
                "by_customer 1 1 customer BTREE",
                "by_customer 1 2 sum BTREE",
                "k` 1 1 ß BTREE",
                "PRIMARY 0 1 id BTREE",
                "PRIMARY 0 1 x`y HASH",
                "PRIMARY 0 2 ß HASH"
            ]
        );
        let usage = "SELECT CONSTRAINT_NAME, COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE \
                     TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'orders' ORDER BY 1";
        assert_eq!(session.lines(usage), ["by_code code", "PRIMARY id"]);
        let tables =
            "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop' ORDER BY 1";
        assert_eq!(session.lines(tables), ["a`b c/d VINGA", "orders VINGA"]);
        assert_eq!(session.lines("SHOW WARNINGS"), [""; 0]);
        assert_eq!(session.lines("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'wide'"), ["0"]);
        assert_eq!(session.lines("SHOW WARNINGS"), [""; 0]);
    }
    let mut session = cluster.connect(0);
    let digest = session.lines(DIGEST);
    let socket = |node: usize| format!("--socket={}", cluster.sql_nodes[node].socket().display());
    let file = TemporaryFile::new("dump");
    let dump = |databases: &[&str]| {
        let mut dump = program("mariadb-dump");
        dump.args(["--no-defaults", "--user=root"]).args(databases).arg(socket(0));
        let output = dump.output().expect("it can be started");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{databases:?}");
        assert!(output.status.success());
        output.stdout
    };
    let all = String::from_utf8_lossy(&dump(&["--all-databases"])).into_owned();
    assert!(all.contains("CREATE TABLE `orders`") && all.contains("cüstomer 6"), "{}", &all[..500]);
    // It is loaded at the other SQL node, which creates its own tables.
    std::fs::write(&file.0, dump(&["--databases", "shop"])).expect("a file can be written");
    session.query("DROP TABLE shop.orders, shop.`a``b c/d`");
    let input = std::fs::File::open(&file.0).expect("it was written just now");
    run(program("mariadb").args(["--no-defaults", "--user=root"]).arg(socket(1)).stdin(input));
    assert_eq!(session.lines(DIGEST), digest);
    assert_eq!(session.query("SHOW CREATE TABLE shop.orders")[0][1], SHOP);
    // Native clients continue with them: no column was added.
    let orders = native.table("shop.orders").expect("it exists again");
    assert_eq!(orders.definition().columns.len(), 6);
    let row: Record = native.get_by(&orders, "by_code", "0007").expect("a key").expect("it exists");
    assert_eq!(row["id"], Value::from(7_u64));
}

/// A file that is removed at the end of the test.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(what: &str) -> Self {
        TemporaryFile(std::env::temp_dir().join(format!("vinga-native-{what}-{}.sql", std::process::id())))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn statements_read_and_change_rows_by_their_keys() {
    let cluster = cluster_of(2);
    let native = native(&cluster);
    let orders = shop(&native);
    let mut session = cluster.connect(0);
    let mut other = cluster.connect(1);
    let plan = |session: &mut Session, query: &str| {
        let rows = session.query(&format!("EXPLAIN {query}"));
        format!("{} {}", rows[0][3], rows[0][5])
    };
    let by_customer = "SELECT id FROM shop.orders WHERE customer = 'cüstomer 3' ORDER BY sum DESC LIMIT 2";
    assert_eq!(session.lines(by_customer), ["493", "486"]);
    assert_eq!(plan(&mut session, by_customer), "ref by_customer");
    let between = "SELECT COUNT(*) FROM shop.orders WHERE id BETWEEN 10 AND 19";
    assert_eq!(session.lines(between), ["10"]);
    assert_eq!(plan(&mut session, between), "range PRIMARY");
    assert_eq!(plan(&mut session, "SELECT * FROM shop.orders WHERE code = '0100'"), "const by_code");
    other.query("UPDATE shop.orders SET note = CONCAT('changed ', id), sum = sum + 1 WHERE customer LIKE 'cüstomer 2%'");
    let row: Record = native.get(&orders, 9_u64).expect("a key").expect("it exists");
    assert_eq!(
        (&row["note"], row["sum"].clone()),
        (&"changed 9".into(), "10.25".parse::<Decimal>().expect("one").into())
    );
    let (number, text) =
        session.error("INSERT INTO shop.orders (id, customer, code) VALUES (1000, 'x', '0007')");
    assert_eq!((number, text.contains("'0007' for key 'by_code'")), (1062, true), "{text}");
    assert_eq!(session.error("INSERT INTO shop.orders (id, code) VALUES (1000, 'new')").0, 1364);
    session.query("REPLACE INTO shop.orders (id, customer, code) VALUES (1000, 'x', '0007')");
    let row: Option<Record> = native.get(&orders, 7_u64).expect("a key");
    assert!(row.is_none(), "it was replaced");
    session.query("DELETE o FROM shop.orders o JOIN (SELECT 1000 AS id UNION SELECT 1) d ON o.id = d.id");
    assert_eq!(other.lines("SELECT COUNT(*) FROM shop.orders"), ["498"]);
    // Hash indexes do not contain keys with NULL.
    session.query("CREATE TABLE test.h (id INT PRIMARY KEY, a INT, b INT, UNIQUE KEY k (a, b) USING HASH)");
    session.query(
        "INSERT INTO test.h VALUES (1, NULL, 1), (2, NULL, 1), (3, 1, NULL), (4, 1, 1), (5, NULL, NULL)",
    );
    let nulls = "SELECT id FROM test.h FORCE INDEX (k) WHERE a IS NULL AND b = 1 ORDER BY id";
    assert_eq!(session.lines(nulls), ["1", "2"]);
    let joined = "SELECT x.id, y.id FROM test.h x JOIN test.h y FORCE INDEX (k) ON x.a <=> y.a AND x.b <=> y.b ORDER BY 1, 2";
    assert_eq!(session.lines(joined), ["1 1", "1 2", "2 1", "2 2", "3 3", "4 4", "5 5"]);
    session.query("UPDATE test.h FORCE INDEX (k) SET b = 2 WHERE a IS NULL AND b = 1 AND id > 1");
    assert_eq!(session.lines("SELECT id FROM test.h WHERE b = 2"), ["2"]);
    // Transactions of both sides lock each other's rows.
    session.query("BEGIN");
    session.query("SELECT * FROM shop.orders WHERE id = 20 FOR UPDATE");
    let mut transaction = native.begin().expect("it begins");
    let row: vinga::Result<Option<Record>> =
        transaction.read_locked(&orders, 20_u64, vinga::Lock::Exclusive.no_wait());
    assert_eq!(row.expect_err("it is locked").code(), ErrorCode::RowLocked);
    drop(transaction);
    session.query("ROLLBACK");
    session.query("LOCK TABLES shop.orders WRITE");
    session.query("UPDATE shop.orders SET note = 'held' WHERE id = 30");
    session.query("UNLOCK TABLES");
    let row: Record = native.get(&orders, 30_u64).expect("a key").expect("it exists");
    assert_eq!(row["note"], "held".into());
}

#[test]
fn sql_changes_their_definitions() {
    let cluster = cluster_of(2);
    let native = native(&cluster);
    let orders = shop(&native);
    let mut session = cluster.connect(0);
    let mut other = cluster.connect(1);
    let digest = session.lines(DIGEST);
    session.query("CREATE TABLE shop.twin LIKE shop.orders");
    session.query("INSERT INTO shop.twin SELECT * FROM shop.orders");
    assert_eq!(other.query("SHOW CREATE TABLE shop.twin")[0][1], SHOP.replace("`orders`", "`twin`"));
    assert_eq!(other.lines(&DIGEST.replace("orders", "twin")), digest);
    // With another name it is still the native client's table.
    other.query("RENAME TABLE shop.orders TO shop.moved");
    assert_eq!(session.query("SHOW CREATE TABLE shop.moved")[0][1], SHOP.replace("`orders`", "`moved`"));
    let stale = native.get::<Record>(&orders, 1_u64).expect_err("it has another name");
    assert_eq!(stale.code(), ErrorCode::StaleTable);
    session.query("RENAME TABLE shop.moved TO shop.orders");
    assert_eq!(other.lines(DIGEST), digest);
    let orders = native.table("shop.orders").expect("it exists");
    assert!(orders.definition().attachment.is_empty());
    // An ALTER turns it into a table of SQL, and native clients continue.
    session.query("ALTER TABLE shop.orders ADD COLUMN more INT NULL, DROP COLUMN note, ADD KEY (more)");
    let stale = native.get::<Record>(&orders, 1_u64).expect_err("it has another definition");
    assert_eq!(stale.code(), ErrorCode::StaleTable);
    let orders = native.table("shop.orders").expect("it exists");
    let columns: Vec<&str> = orders.definition().columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["id", "customer", "sum", "at", "code", "more"]);
    native
        .update(&orders, 1_u64, &Update::new().set("more", 5).set("customer", "native"))
        .expect("it exists");
    assert_eq!(other.lines("SELECT id FROM shop.orders WHERE customer = 'native' AND more = 5"), ["1"]);
    assert_eq!(other.lines("SELECT id FROM shop.orders WHERE code = '0499'"), ["499"]);
    // So does an ALTER to another engine, and back.
    shop_table_of_text(&native);
    for engine in ["InnoDB", "VINGA"] {
        session.query(&format!("ALTER TABLE shop.texts ENGINE={engine}"));
        assert_eq!(session.lines("SELECT id, v FROM shop.texts"), ["1 é "], "{engine}");
    }
    session.query("DROP DATABASE shop");
    assert!(native.tables().expect("they can be listed").iter().all(|name| !name.starts_with("shop.")));
}

fn shop_table_of_text(native: &Cluster) {
    let table = NewTable::new("shop.texts").column("id", INT).column("v", varchar(9)).primary_key(&["id"]);
    let table = native.create_table(table).expect("it is new");
    native.insert(&table, &[("id", Value::from(1)), ("v", "é ".into())]).expect("it is new");
}

#[test]
fn truncated_tables_are_empty_and_go_on() {
    let cluster = cluster_of(2);
    let native = native(&cluster);
    shop(&native);
    let mut session = cluster.connect(0);
    let mut other = cluster.connect(1);
    assert_eq!(other.lines("SELECT COUNT(*) FROM shop.orders"), ["500"]);
    session.query("TRUNCATE TABLE shop.orders");
    let orders = native.table("shop.orders").expect("it exists");
    for session in [&mut session, &mut other] {
        assert_eq!(session.lines("SELECT COUNT(*) FROM shop.orders"), ["0"]);
    }
    session.query("INSERT INTO shop.orders (id, customer, code) VALUES (1, 'x', 'a')");
    native.truncate_table("shop.orders").expect("it exists");
    assert_eq!(other.lines("SELECT COUNT(*) FROM shop.orders"), ["0"]);
    other.query("INSERT INTO shop.orders (id, customer, code) VALUES (2, 'x', 'a')");
    let stale = native.get::<Record>(&orders, 2_u64).expect_err("it is another table");
    assert_eq!(stale.code(), ErrorCode::StaleTable);
}

#[test]
fn native_changes_of_the_definition_are_seen_at_once() {
    let cluster = cluster_of(2);
    let native = native(&cluster);
    let make = |columns: &[&str]| {
        let mut table = NewTable::new("test.t").column("id", BIGINT).primary_key(&["id"]);
        for name in columns {
            table = table.nullable_column(name, INT);
        }
        native.create_table(table).expect("it is new")
    };
    let mut sessions = [cluster.connect(0), cluster.connect(1)];
    let shapes: [&[&str]; 4] = [&["a"], &["a", "b"], &["b", "a"], &["a"]];
    for (round, shape) in shapes.iter().enumerate() {
        let table = make(shape);
        for session in &mut sessions {
            let columns = session.query("SHOW COLUMNS FROM t").into_iter().map(|row| row[0].clone());
            assert_eq!(columns.skip(1).collect::<Vec<_>>(), *shape, "round {round}");
            if round == 0 {
                session.query("PREPARE read_a FROM 'SELECT a FROM t WHERE id = 1'");
            }
        }
        sessions[round % 2].query("INSERT INTO t (id, a) VALUES (1, 10)");
        for session in &mut sessions {
            assert_eq!(session.lines("EXECUTE read_a"), ["10"], "round {round}");
        }
        // An index is added, and a column is renamed.
        let mut altered = NewTable::from(table.definition().clone()).ordered_index("by_a", &["a"]);
        altered.rename_column("a", "c").expect("it exists");
        native.alter_table(&table, altered).expect("it can be altered");
        for session in &mut sessions {
            assert_eq!(
                session.lines("SELECT c FROM t FORCE INDEX (by_a) WHERE c = 10"),
                ["10"],
                "round {round}"
            );
            assert_eq!(session.error("SELECT a FROM t").0, 1054);
        }
        native.drop_table("test.t").expect("it exists");
        for session in &mut sessions {
            assert_eq!(session.error("SELECT c FROM t").0, 1146);
            assert!(!session.lines("SHOW TABLES").contains(&"t".to_owned()));
        }
    }
}

#[test]
fn what_sql_can_not_say_is_nowhere_listed_and_says_why() {
    let cluster = cluster_of(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    let table = || NewTable::new("test.t").column("id", INT);
    let cases = [
        (
            table().column("c", ColumnType::Char { bytes: 300 }).primary_key(&["id"]),
            "column 'c' is char(300)",
        ),
        (table().column("c ", INT).primary_key(&["id"]), "column name 'c ' ends with a space"),
        (
            table().primary_key(&["id"]).unique_index("primary", &["id"]),
            "a unique index has the name 'primary'",
        ),
        (table().column("b", INT).primary_key(&["id"]).ordered_index("PRIMARY", &["b"]), "'PRIMARY'"),
    ];
    for (definition, why) in cases {
        native.create_table(definition).expect("it is new");
        assert_eq!(session.lines("SHOW TABLES"), [""; 0], "{why}");
        assert_eq!(
            session.lines("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'test'"),
            [""; 0]
        );
        assert_eq!(session.lines("SHOW TABLE STATUS"), [""; 0], "{why}");
        assert_eq!(session.lines("SHOW WARNINGS"), [""; 0], "{why}");
        for statement in [
            "SELECT * FROM t",
            "INSERT INTO t VALUES (1, 1)",
            "SHOW CREATE TABLE t",
            "ALTER TABLE t ADD x INT",
        ] {
            let (number, text) = session.error(statement);
            assert_eq!(number, 1296, "{statement}: {text}");
            assert!(text.contains("20022") && text.contains("native client") && text.contains(why), "{text}");
        }
        for statement in ["CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE t AS SELECT 1 AS id"] {
            let (number, text) = session.error(statement);
            assert_eq!(number, 1050, "{statement}: {text}");
            assert!(text.contains("already exists") && text.contains(why), "{text}");
        }
        session.query("CREATE TABLE other (id INT PRIMARY KEY)");
        assert_eq!(session.error("RENAME TABLE other TO t").0, 1050);
        session.query("DROP TABLE other");
        // It can be renamed and dropped.
        session.query("RENAME TABLE t TO other");
        native.table("test.other").expect("it exists");
        session.query("DROP TABLE other");
        assert_eq!(native.table("test.other").expect_err("it is dropped").code(), ErrorCode::NoSuchTable);
    }
    // A database with such a table is not dropped, and SQL reports the table.
    native
        .create_table(table().column("c ", INT).named("kept.hidden").primary_key(&["id"]))
        .expect("it is new");
    native.create_table(table().named("kept.seen").primary_key(&["id"])).expect("it is new");
    session.query("DROP DATABASE kept");
    let warnings = session.lines("SHOW WARNINGS");
    assert!(
        warnings.len() == 1 && warnings[0].contains("database kept stays at the data nodes"),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("kept.hidden"), "{warnings:?}");
    let names = native.tables().expect("they can be listed");
    assert!(names.iter().filter(|name| name.starts_with("kept.")).eq(["kept.hidden"]), "{names:?}");
    while session.lines("SHOW DATABASES LIKE 'kept'").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    native.drop_table("kept.hidden").expect("it exists");
    session.query("DROP DATABASE kept");
    assert_eq!(native.database("kept").expect_err("it is dropped").code(), ErrorCode::NoSuchDatabase);
    // Tables that SQL can represent exist as usual.
    native.create_table(table().primary_key(&["id"])).expect("it is new");
    assert_eq!(session.error("CREATE TABLE t (id INT PRIMARY KEY)").0, 1050);
    session.query("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)");
    assert_eq!(session.lines("SHOW TABLES"), ["t"]);
    // Altered so that SQL can't represent it any more, and back.
    let table = native.table("test.t").expect("it exists");
    let altered = NewTable::from(table.definition().clone()).unique_index("primary", &["id"]);
    let table = native.alter_table(&table, altered).expect("it can be altered");
    assert_eq!(session.lines("SHOW TABLES"), [""; 0]);
    let mut altered = NewTable::from(table.definition().clone());
    altered.drop_index(IndexKind::Unique, "primary").expect("it exists");
    native.alter_table(&table, altered).expect("it can be altered");
    assert_eq!(session.lines("SHOW TABLES"), ["t"]);
    session.query("DROP TABLE t");
}
