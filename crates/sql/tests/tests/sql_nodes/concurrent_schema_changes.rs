//! Definitions that two SQL nodes change, one after another and at the same time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// A SQL node does not use its cached state of a table after the other one has changed it.
#[test]
fn a_definition_that_the_other_node_has_changed() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    here.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT) ENGINE=VINGA");
    here.query("INSERT INTO t VALUES (1, 2, 3)");
    there.query("PREPARE reading FROM 'SELECT * FROM t WHERE id = ?'");
    there.query("PREPARE adding FROM 'INSERT INTO t VALUES (?, 20, 30)'");
    there.query("PREPARE setting FROM 'UPDATE t SET b = b + 1 WHERE id = ?'");
    assert_eq!(there.lines("EXECUTE reading USING 1"), ["1 2 3"]);
    let changes: [(&str, &str, u16); 6] = [
        ("ALTER TABLE t ADD COLUMN c INT DEFAULT 4", "1 2 3 4", 1136),
        ("ALTER TABLE t DROP COLUMN c", "1 2 3", 0),
        ("ALTER TABLE t MODIFY a VARCHAR(10) AFTER b", "1 3 2", 0),
        ("ALTER TABLE t ADD UNIQUE KEY (a)", "1 3 2", 0),
        ("ALTER TABLE t CHANGE b b DECIMAL(9,1)", "1 3.0 2", 0),
        ("ALTER TABLE t DROP KEY a, MODIFY a INT AFTER id", "1 2 3.0", 0),
    ];
    for (at, (change, row, adding)) in changes.into_iter().enumerate() {
        here.query(change);
        assert_eq!(there.lines("EXECUTE reading USING 1"), [row], "after {change}");
        let id = at + 10;
        match there.try_query(&format!("EXECUTE adding USING {id}")) {
            Ok(_) => assert_eq!(adding, 0, "after {change}"),
            Err(error) => assert_eq!(error.number(), Some(adding), "after {change}: {error}"),
        }
        there.query("EXECUTE setting USING 1");
        here.query("UPDATE t SET b = b - 1 WHERE id = 1");
        here.query("DELETE FROM t WHERE id > 1");
        assert_eq!(there.lines("SELECT * FROM t"), [row], "after {change}");
        assert_eq!(here.lines("SHOW CREATE TABLE t"), there.lines("SHOW CREATE TABLE t"), "after {change}");
    }
    // Another table with the same name.
    here.query("DROP TABLE t");
    here.query("CREATE TABLE t (b INT, id INT PRIMARY KEY) ENGINE=VINGA");
    assert_eq!(there.lines("EXECUTE reading USING 1"), [""; 0]);
    assert_eq!(there.error("EXECUTE adding USING 5").0, 1136);
    here.query("INSERT INTO t VALUES (8, 1)");
    there.query("EXECUTE setting USING 1");
    assert_eq!(there.lines("EXECUTE reading USING 1"), ["9 1"]);
    here.query("TRUNCATE TABLE t");
    assert_eq!(there.lines("EXECUTE reading USING 1"), [""; 0]);
    here.query("RENAME TABLE t TO u");
    assert_eq!(there.error("EXECUTE reading USING 1").0, 1146);
    there.query("RENAME TABLE u TO t");
    here.query("INSERT INTO t VALUES (1, 1)");
    assert_eq!(there.lines("EXECUTE reading USING 1"), ["1 1"]);
    servers.check_alive();
}

/// A transaction that has used a table continues while the other SQL node changes the table: it gets an error, or the
/// new definition.
#[test]
fn a_transaction_meets_a_change_of_the_other_node() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    let beginnings =
        ["SELECT * FROM t WHERE id = 1", "UPDATE t SET a = a WHERE id = 2", "INSERT INTO t (id) VALUES (5)"];
    let changes = [
        "ALTER TABLE t ADD COLUMN b INT FIRST",
        "ALTER TABLE t ADD KEY extra (a)",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
    ];
    for beginning in beginnings {
        for change in changes {
            here.query("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=VINGA");
            here.query("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)");
            there.query("BEGIN");
            there.query(beginning);
            let began = Instant::now();
            let changed = here.try_query(change);
            assert!(began.elapsed() < HANG_GUARD, "{change} took {:?}", began.elapsed());
            let written = there.try_query("UPDATE t SET a = 7 WHERE id = 3");
            let committed = there.try_query("COMMIT");
            println!("{beginning}; {change}: {changed:?}; {written:?}; {committed:?}");
            for result in [&changed, &written, &committed] {
                if let Err(error) = result {
                    let number = error.number();
                    assert!(
                        matches!(number, Some(1146 | 1205 | 1296 | 1297 | 1412)),
                        "{beginning}, {change}: {error}"
                    );
                }
            }
            there.query("ROLLBACK");
            if changed.is_ok() && change.starts_with("DROP") {
                assert_eq!(there.error("SELECT * FROM t").0, 1146);
                continue;
            }
            let is_whole = written.is_ok() && committed.is_ok();
            let is_emptied = changed.is_ok() && change.starts_with("TRUNCATE");
            let expected = if is_whole && !is_emptied { "1" } else { "0" };
            // A transaction that got an error has changed nothing at all, including its first statement.
            let mut conditions = vec!["a = 7"];
            if beginning.starts_with("INSERT") {
                conditions.push("id = 5");
            }
            for condition in conditions {
                let count = format!("SELECT COUNT(*) FROM t WHERE {condition}");
                assert_eq!(there.lines(&count), [expected], "{count}: {beginning}, {change}");
                assert_eq!(here.lines(&count), [expected], "{count}: {beginning}, {change}");
            }
            here.query("DROP TABLE t");
        }
    }
    servers.check_alive();
}

/// No matter how many tables a transaction uses, changes by others neither wait for it nor end it.
#[test]
fn a_transaction_of_many_tables_is_not_in_the_way_of_others() {
    const TABLES: u32 = 12;
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let (mut many, mut other) = (servers.connect(0), servers.connect(1));
    for table in 0..TABLES {
        many.query(&format!(
            "CREATE TABLE t{table} (id INT PRIMARY KEY, a INT, UNIQUE KEY (a)) ENGINE=VINGA"
        ));
        many.query(&format!("INSERT INTO t{table} VALUES (1, 1), (2, 2)"));
    }
    for change in
        ["ALTER TABLE x ADD COLUMN b INT", "TRUNCATE TABLE x", "RENAME TABLE x TO y", "DROP TABLE y"]
    {
        if change.starts_with("ALTER") {
            other.query("CREATE TABLE x (id INT PRIMARY KEY, a INT, UNIQUE KEY (a)) ENGINE=VINGA");
        }
        many.query("BEGIN");
        for table in 0..TABLES {
            many.query(&format!("UPDATE t{table} SET a = a + 10 WHERE id = 1"));
            assert_eq!(many.lines(&format!("SELECT id FROM t{table} WHERE a > 10")), ["1"]);
        }
        other.query(change);
        for table in 0..TABLES {
            many.query(&format!("UPDATE t{table} SET a = a - 10 WHERE id = 1"));
            many.query(&format!("UPDATE t{table} SET a = a + 1 WHERE id = 2"));
        }
        many.query("COMMIT");
    }
    for table in 0..TABLES {
        assert_eq!(other.lines(&format!("SELECT id, a FROM t{table} ORDER BY id")), ["1 1", "2 6"]);
    }
    // One of its tables, the last of many, is dropped.
    many.query("BEGIN");
    for table in 0..TABLES {
        many.query(&format!("UPDATE t{table} SET a = a + 10 WHERE id = 1"));
    }
    other.query(&format!("DROP TABLE t{}", TABLES - 1));
    let is_told =
        many.try_query("UPDATE t0 SET a = 0 WHERE id = 1").is_err() || many.try_query("COMMIT").is_err();
    assert!(is_told, "a transaction commits what was dropped");
    many.query("ROLLBACK");
    assert_eq!(other.lines("SELECT id, a FROM t0 ORDER BY id"), ["1 1", "2 6"]);
    servers.check_alive();
}

/// A table that another SQL node drops before its replacement does it is as good as replaced.
#[test]
fn what_is_to_be_replaced_may_be_dropped_by_others() {
    const REPLACED: u32 = 200;
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let is_over = AtomicBool::new(false);
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for statement in [
                    "CREATE TABLE IF NOT EXISTS replaced (id INT PRIMARY KEY) ENGINE=VINGA",
                    "DROP TABLE IF EXISTS replaced",
                ] {
                    let _ = there.try_query(statement);
                }
            }
        });
        let (began, mut replaced, mut wrong) = (Instant::now(), 0, None);
        while replaced < REPLACED && wrong.is_none() && began.elapsed() < HANG_GUARD {
            match here.try_query("CREATE OR REPLACE TABLE replaced (v INT PRIMARY KEY) ENGINE=VINGA") {
                Ok(_) => replaced += 1,
                // The other one has created it just before, or both change it.
                Err(error) if matches!(error.number(), Some(1050 | 1297)) => {}
                Err(error) => wrong = Some(error),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(wrong.is_none(), "{wrong:?}");
        assert_eq!(replaced, REPLACED);
    });
    servers.check_alive();
}

/// Errors that clients may get if they change the same table at the same time.
fn is_expected(number: u16) -> bool {
    matches!(
        number,
        1050 | 1051 // The table exists, or does not.
            | 1054 // No such column.
            | 1060 | 1061 | 1091 // The column or key exists, or does not when it is dropped.
            | 1136 // Another number of columns.
            | 1062 // The row exists.
            | 1146 // No such table.
            | 1205 | 1213 // Locks.
            | 1297 // Another client is changing it.
            | 1412 // The definition has changed.
            | 1932 // Dropped just before it is used.
    )
}

/// The output of `SHOW CREATE TABLE` without the next generated value, which differs between SQL nodes.
fn without_next_value(lines: Vec<String>) -> Vec<String> {
    let without = |line: String| match line.split_once(" AUTO_INCREMENT=") {
        Some((before, behind)) => {
            format!("{before}{}", behind.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line,
    };
    lines.into_iter().map(without).collect()
}

#[test]
fn two_nodes_change_the_same_table_at_once() {
    const TIME: Duration = Duration::from_secs(5);
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let statements = [
        "CREATE TABLE disputed (id INT PRIMARY KEY, a INT) ENGINE=VINGA",
        "CREATE TABLE IF NOT EXISTS disputed (a VARCHAR(9), id INT AUTO_INCREMENT PRIMARY KEY, KEY (a)) ENGINE=VINGA",
        "INSERT INTO disputed (id, a) VALUES (1, 2), (2, 3)",
        "REPLACE INTO disputed (id, a) VALUES (1, 2)",
        "SELECT id, a FROM disputed ORDER BY id",
        "UPDATE disputed SET a = a + 1",
        "ALTER TABLE disputed ADD COLUMN b INT DEFAULT 1",
        "ALTER TABLE disputed DROP COLUMN b",
        "ALTER TABLE disputed ADD KEY extra (id, a)",
        "ALTER TABLE disputed DROP KEY extra",
        "RENAME TABLE disputed TO other",
        "RENAME TABLE other TO disputed",
        "TRUNCATE TABLE disputed",
        "DROP TABLE disputed",
        "DROP TABLE IF EXISTS disputed, other",
    ];
    let began = Instant::now();
    // Each runs until this many statements have succeeded, no matter how long that takes.
    const GOOD_MIN: u32 = 100;
    let all_good = AtomicU32::new(0);
    let reported = thread::scope(|threads| {
        let fighters: Vec<_> = (0..4)
            .map(|number| {
                let mut session: Session = servers.connect(number % 2);
                let all_good = &all_good;
                threads.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    let mut strange = Vec::new();
                    while began.elapsed() < TIME || all_good.load(Ordering::Relaxed) < GOOD_MIN {
                        let statement = statements[random.usize(..statements.len())];
                        let begun = Instant::now();
                        match session.try_query(statement) {
                            Ok(_) => _ = all_good.fetch_add(1, Ordering::Relaxed),
                            Err(error) if error.number().is_some_and(is_expected) => {}
                            Err(error) => strange.push(format!("{statement}: {error}")),
                        }
                        let took = begun.elapsed();
                        assert!(began.elapsed() < 2 * HANG_GUARD, "few statements succeed");
                        assert!(took < HANG_GUARD, "{statement} took {took:?}");
                    }
                    strange
                })
            })
            .collect();
        fighters.into_iter().map(|fighter| fighter.join().expect("no fighter panics")).collect::<Vec<_>>()
    });
    servers.check_alive();
    let strange: Vec<String> = reported.into_iter().flatten().collect();
    println!("{all_good:?} statements went well");
    assert!(
        strange.is_empty(),
        "{} strange answers: {:#?}",
        strange.len(),
        &strange[..strange.len().min(20)]
    );
    // Both see the same tables, and a final create works.
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    for table in here.lines("SHOW TABLES") {
        assert!(matches!(table.as_str(), "disputed" | "other"), "{table} is left");
        let show = format!("SHOW CREATE TABLE {table}");
        assert_eq!(without_next_value(here.lines(&show)), without_next_value(there.lines(&show)));
        let select = format!("SELECT * FROM {table} ORDER BY id");
        assert_eq!(here.lines(&select), there.lines(&select));
    }
    assert_eq!(here.lines("SHOW TABLES"), there.lines("SHOW TABLES"));
    there.query("DROP TABLE IF EXISTS disputed, other");
    here.query("CREATE TABLE disputed (last INT PRIMARY KEY) ENGINE=VINGA");
    there.query("INSERT INTO disputed VALUES (1)");
    assert_eq!(here.lines("SELECT * FROM disputed"), ["1"]);
    here.query("DROP TABLE disputed");
    // Nothing is left behind: no table at the data nodes, no file at the SQL nodes.
    let native = vinga::blocking::Cluster::connect(&servers.data.address()).expect("the data node answers");
    let left: Vec<String> =
        native.tables().expect("it answers").into_iter().filter(|name| name.starts_with("test.")).collect();
    assert!(left.is_empty(), "{left:?}");
    for node in &servers.sql_nodes {
        let files = std::fs::read_dir(node.folder().join("data/test")).expect("the database has a folder");
        let files: Vec<_> = files.map(|file| file.expect("it can be read").file_name()).collect();
        assert!(files.iter().all(|name| name == "db.opt"), "{files:?}");
    }
}
