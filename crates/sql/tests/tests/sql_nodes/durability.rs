//! What SQL nodes promise of the disk: commits that wait for it, and data nodes that come back with their data while
//! SQL nodes go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// A folder for a data node; it is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vinga-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("temporary folders can be made");
        Folder(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A data node that keeps its data in a folder, and makes global checkpoints seldom: what a commit does not wait for is
/// probably not on disk. With so many SQL nodes.
fn servers_in(folder: &Folder, sql_nodes: usize) -> Servers {
    let parameters = [
        ("DataDir", folder.path().to_str().expect("the path is a text")),
        ("NoOfFragmentLogFiles", "3"),
        ("FragmentLogFileSize", "4M"),
        ("TimeBetweenGlobalCheckpoints", "32000"),
    ];
    Servers::start(PROGRAM, sql_nodes, &parameters)
}

/// Repeats a query until it succeeds, which it does soon: the data node is back.
#[track_caller]
fn again(session: &mut Session, statement: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        match session.try_query(statement) {
            Ok(_) => return session.lines(statement),
            Err(error) => {
                assert!(began.elapsed() < HANG_GUARD, "{statement}: {error}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn what_waits_for_the_disk_is_there_after_a_crash() {
    let folder = Folder::new("durable-sql");
    let mut servers = servers_in(&folder, 2);
    let (mut one, mut other) = (servers.connect(0), servers.connect(1));
    one.query(
        "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a), UNIQUE KEY (b)) ENGINE=VINGA",
    );
    // Without the number that comes next.
    let columns = "SELECT CONCAT_WS(' ', column_name, column_type, column_key, extra) FROM information_schema.columns WHERE \
                   table_name = 't' ORDER BY ordinal_position";
    let definition = one.lines(columns);
    one.query("SET vinga_durability = disk");
    let mut values = Vec::new();
    for round in 1..=3 {
        one.query(&format!("INSERT INTO t (a, b) VALUES ({round}, 'alone {round}')"));
        one.query("BEGIN");
        one.query(&format!("INSERT INTO t (a, b) VALUES ({round}, 'together {round}')"));
        one.query(&format!("UPDATE t SET a = a + 100 WHERE b = 'alone {round}'"));
        one.query("COMMIT");
        values.push(format!("{} alone {round}", round + 100));
        values.push(format!("{round} together {round}"));
        other.query("BEGIN");
        other.query(&format!("INSERT INTO t (a, b) VALUES (0, 'lost {round}')"));
        servers.data.restart();
        // The transaction is lost with one clear error; then the session goes on.
        let (number, text) = other.error("COMMIT");
        assert!(matches!(number, 1296 | 1297 | 1180), "{number} {text}");
        let found = again(&mut other, "SELECT CONCAT(a, ' ', b) FROM t ORDER BY b");
        let mut expected = values.clone();
        expected.sort_by_key(|row| row.split_once(' ').map(|(_, b)| b.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(again(&mut one, "SELECT CONCAT(a, ' ', b) FROM t ORDER BY b"), expected);
        let by_index = format!("SELECT b FROM t FORCE INDEX (a) WHERE a = {}", round + 100);
        assert_eq!(one.lines(&by_index), [format!("alone {round}")]);
    }
    assert_eq!(one.lines(columns), definition);
    // Numbers that were given out are not given out again.
    let (largest, count) = ("SELECT MAX(id) FROM t", values.len().to_string());
    let before: u64 = one.lines(largest)[0].parse().expect("a number");
    one.query("INSERT INTO t (a, b) VALUES (7, 'next')");
    let after: u64 = one.lines(largest)[0].parse().expect("a number");
    assert!(after > before, "{after} after {before}");
    assert_eq!(other.lines("SELECT COUNT(*) - 1 FROM t"), [count]);
    servers.check_alive();
}

/// The ids of `count` rows that are inserted one by one.
fn generate(session: &mut Session, table: &str, count: u64) -> Vec<u64> {
    again(session, &format!("SELECT COUNT(*) FROM {table}"));
    let mut generate_one = |_| {
        session.query(&format!("INSERT INTO {table} (a) VALUES (0)"));
        session.lines("SELECT LAST_INSERT_ID()")[0].parse().expect("a number")
    };
    (0..count).map(&mut generate_one).collect()
}

#[test]
fn numbers_behind_given_ones_are_not_generated_twice() {
    let folder = Folder::new("durable-behind-given");
    let mut servers = servers_in(&folder, 2);
    let (mut one, mut other) = (servers.connect(0), servers.connect(1));
    for (table, key) in [("t", "PRIMARY KEY (id)"), ("k", "KEY (id)")] {
        one.query(&format!("CREATE TABLE {table} (id BIGINT AUTO_INCREMENT, a INT, {key}) ENGINE=VINGA"));
        one.query(&format!("INSERT INTO {table} VALUES (1, 1)"));
        // Given one after the other: this node takes some values behind them, too.
        (101..=240).for_each(|id| _ = one.query(&format!("INSERT INTO {table} VALUES ({id}, 1)")));
        let given = generate(&mut one, table, 1);
        assert_eq!(given, [241], "{table}");
        servers.data.restart();
        let of_other = generate(&mut other, table, 300);
        assert!(!of_other.contains(&241), "{table}: 241 was given before");
        let of_one = generate(&mut one, table, 20);
        assert!(of_one.iter().all(|id| !of_other.contains(id) && *id != 241), "{table}: {of_one:?}");
    }
    servers.check_alive();
}

#[test]
fn what_the_data_nodes_do_not_know_any_more_of_given_numbers_is_not_relied_on() {
    let folder = Folder::new("durable-given-lost");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE k (id BIGINT AUTO_INCREMENT, a INT, KEY (id)) ENGINE=VINGA");
    (101..=240).for_each(|id| _ = session.query(&format!("INSERT INTO k VALUES ({id}, 1)")));
    servers.data.restart();
    // The rows are gone, and so is what has moved the counter.
    let mut ids = generate(&mut session, "k", 3);
    // Meanwhile the server opens the table again.
    std::thread::sleep(Duration::from_millis(1500));
    ids.extend(generate(&mut session, "k", 300));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each was given once");
    servers.check_alive();
}

#[test]
fn where_numbers_begin_is_there_with_the_definition() {
    let folder = Folder::new("durable-begin");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    let columns = "(id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=VINGA";
    session.query(&format!("CREATE TABLE a {columns}"));
    session.query(&format!("CREATE TABLE t {columns} AUTO_INCREMENT=1000"));
    servers.data.restart();
    assert_eq!(generate(&mut session, "t", 1), [1000]);
    session.query("ALTER TABLE a AUTO_INCREMENT=500");
    servers.data.restart();
    assert_eq!(generate(&mut session, "a", 1), [500]);
    servers.check_alive();
}

#[test]
fn tables_that_are_not_logged_are_there_and_empty_after_a_restart() {
    let folder = Folder::new("durable-nologging");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    let columns =
        "(id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a), UNIQUE KEY (b)) ENGINE=VINGA";
    session.query(&format!("CREATE TABLE gone {columns} NOLOGGING=1"));
    session.query(&format!("CREATE TABLE kept {columns}"));
    session.query("SET vinga_durability = disk");
    let mut largest = 0;
    for (round, is_orderly) in [(1, false), (2, true), (3, false)] {
        // Both kinds in one transaction, and each alone.
        session.query("BEGIN");
        session.query(&format!("INSERT INTO gone (a, b) VALUES ({round}, 'one'), ({round}, 'two')"));
        session.query(&format!("INSERT INTO kept (a, b) VALUES ({round}, 'both {round}')"));
        session.query("COMMIT");
        session.query("INSERT INTO gone (a, b) VALUES (7, 'three')");
        assert_eq!(session.lines("SELECT COUNT(*) FROM gone"), ["3"]);
        let first: u64 = session.lines("SELECT MIN(id) FROM gone")[0].parse().expect("a number");
        assert!(first > largest, "{first} was given before: {largest}");
        largest = session.lines("SELECT MAX(id) FROM gone")[0].parse().expect("a number");
        if is_orderly {
            servers.data.stop();
        }
        servers.data.restart();
        assert_eq!(again(&mut session, "SELECT COUNT(*) FROM gone"), ["0"]);
        assert_eq!(session.lines("SELECT COUNT(*) FROM gone FORCE INDEX (a) WHERE a > 0"), ["0"]);
        assert_eq!(session.lines("SELECT COUNT(*) FROM gone WHERE b = 'one'"), ["0"]);
        let kept = format!("SELECT COUNT(*) FROM kept WHERE a <= {round} AND b LIKE 'both%'");
        assert_eq!(session.lines(&kept), [round.to_string()]);
        assert!(session.lines("SHOW CREATE TABLE gone")[0].contains("`NOLOGGING`=1"));
    }
    servers.check_alive();
}

#[test]
fn a_table_becomes_one_that_is_logged_and_back() {
    let folder = Folder::new("durable-alter");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query(
        "CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(100), UNIQUE KEY (b)) ENGINE=VINGA NOLOGGING=1",
    );
    session.query("SET vinga_durability = disk");
    session.query("INSERT INTO t SELECT seq, CONCAT('row ', seq) FROM seq_1_to_1000");
    session.query("ALTER TABLE t NOLOGGING=0");
    session.query("INSERT INTO t VALUES (1001, 'behind')");
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT COUNT(*), MAX(id) FROM t"), ["1001 1001"]);
    assert_eq!(session.lines("SELECT id FROM t WHERE b = 'row 77'"), ["77"]);
    session.query("ALTER TABLE t NOLOGGING=1");
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), ["1001"]);
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT COUNT(*) FROM t"), ["0"]);
    session.query("INSERT INTO t VALUES (77, 'row 77')");
    servers.check_alive();
}

#[test]
fn changes_of_a_durable_table_wait_for_the_disk() {
    let folder = Folder::new("durable-table");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query(
        "CREATE TABLE d (id INT PRIMARY KEY, b VARCHAR(100), UNIQUE KEY (b)) ENGINE=VINGA DURABILITY=disk",
    );
    session.query("CREATE TABLE m (id INT PRIMARY KEY, b VARCHAR(100)) ENGINE=VINGA DURABILITY=memory");
    assert!(session.lines("SHOW CREATE TABLE d")[0].to_lowercase().contains("`durability`=disk"));
    for (refused, why) in [
        ("CREATE TABLE x (id INT PRIMARY KEY) ENGINE=VINGA DURABILITY=disk NOLOGGING=1", "NOLOGGING"),
        ("ALTER TABLE d NOLOGGING=1", "NOLOGGING"),
        ("CREATE TABLE x (id INT PRIMARY KEY) ENGINE=VINGA DURABILITY=paper", "paper"),
    ] {
        let (_, text) = session.error(refused);
        assert!(text.contains(why), "{refused}: {text}");
    }
    session.query("INSERT INTO d VALUES (1, 'alone')");
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT * FROM d"), ["1 alone"]);
    session.query("BEGIN");
    session.query("INSERT INTO m VALUES (1, 'together')");
    session.query("INSERT INTO d SELECT seq, seq FROM seq_2_to_100");
    session.query("COMMIT");
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT COUNT(*) FROM d"), ["100"]);
    assert_eq!(session.lines("SELECT b FROM m"), ["together"]);
    session.query("UPDATE d SET b = 'later' WHERE id = 1");
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT id FROM d WHERE b = 'later'"), ["1"]);
    session.query("ALTER TABLE m DURABILITY=disk");
    session.query("DELETE FROM m");
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT COUNT(*) FROM m"), ["0"]);
    servers.check_alive();
}

/// The definition is on disk when the statement returns, and the old table is gone: so are the rows.
#[test]
fn the_rows_of_create_select_are_as_durable_as_the_table() {
    let folder = Folder::new("durable-create-select");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE source (id INT PRIMARY KEY, a INT) ENGINE=VINGA");
    session.query("SET vinga_durability = disk");
    session.query("INSERT INTO source SELECT seq, seq FROM seq_1_to_5000");
    session.query("SET vinga_durability = memory");
    for transactions in ["ON", "OFF"] {
        session.query(&format!("SET vinga_use_transactions = {transactions}"));
        session.query("CREATE OR REPLACE TABLE t (PRIMARY KEY (id)) ENGINE=VINGA SELECT * FROM source");
        servers.data.restart();
        assert_eq!(
            again(&mut session, "SELECT COUNT(*), SUM(a) FROM t"),
            ["5000 12502500"],
            "{transactions}"
        );
    }
    servers.check_alive();
}

#[test]
fn what_was_committed_with_another_engine_is_there_after_a_crash() {
    let folder = Folder::new("durable-together");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=VINGA");
    session.query("CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB");
    session.query("SET vinga_durability = disk");
    for (id, tables) in [(1, ["i", "t"]), (2, ["t", "i"])] {
        session.query("BEGIN");
        tables.iter().for_each(|table| _ = session.query(&format!("INSERT INTO {table} VALUES ({id})")));
        session.query("COMMIT");
        servers.data.restart();
        let count = again(&mut session, "SELECT COUNT(*) FROM t");
        assert_eq!(
            (count, session.lines("SELECT COUNT(*) FROM i")),
            (vec![id.to_string()], vec![id.to_string()])
        );
    }
    servers.check_alive();
}

#[test]
fn an_orderly_stop_loses_nothing() {
    let folder = Folder::new("durable-stop");
    let mut servers = servers_in(&folder, 1);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(100)) ENGINE=VINGA");
    session.query("INSERT INTO t SELECT seq, REPEAT('x', seq % 100) FROM seq_1_to_5000");
    servers.data.stop();
    servers.data.restart();
    assert_eq!(again(&mut session, "SELECT COUNT(*), SUM(LENGTH(b)) FROM t"), ["5000 247500"]);
    servers.check_alive();
}

#[test]
fn without_a_disk_commits_that_wait_for_it_fail() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=VINGA");
    assert_eq!(session.lines("SELECT @@vinga_durability"), ["memory"]);
    for _ in 0..2 {
        session.query("CREATE OR REPLACE TABLE copy (a INT PRIMARY KEY) ENGINE=VINGA SELECT 7 AS a");
        assert_eq!(session.lines("SELECT * FROM copy"), ["7"]);
    }
    session.query("SET vinga_durability = 'disk'");
    let (_, text) = session.error("INSERT INTO t VALUES (1)");
    assert!(text.contains("Diskless"), "{text}");
    assert_eq!(session.lines("SELECT COUNT(*) FROM t"), ["0"]);
    // Together with another engine: that one has not committed then.
    session.query("CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB");
    for statements in [
        ["INSERT INTO i VALUES (1)", "INSERT INTO t VALUES (1)"],
        ["INSERT INTO t VALUES (1)", "INSERT INTO i VALUES (1)"],
    ] {
        session.query("BEGIN");
        statements.iter().for_each(|statement| _ = session.query(statement));
        let (_, text) = session.error("COMMIT");
        assert!(text.contains("20048") && text.contains("Diskless"), "{text}");
        assert_eq!(session.lines("SELECT COUNT(*) FROM i UNION ALL SELECT COUNT(*) FROM t"), ["0", "0"]);
    }
    session.query("SET vinga_durability = DEFAULT");
    session.query("INSERT INTO t VALUES (1)");
    let (number, text) = session.error("SET vinga_durability = 'paper'");
    assert_eq!((number, text.contains("paper")), (1231, true), "{text}");
}

#[test]
fn a_database_that_was_dropped_meanwhile_stays_dropped_over_a_restart_of_the_data_node() {
    let folder = Folder::new("dropped-database");
    let mut servers = servers_in(&folder, 2);
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    let shown = |session: &mut Session| session.lines("SHOW DATABASES LIKE 'gone'").len();
    here.query("CREATE DATABASE gone");
    while shown(&mut there) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(here);
    servers.sql_nodes[0].stop().expect("it stops");
    there.query("DROP DATABASE gone");
    // The SQL node that still has the database comes back together with the data node.
    servers.data.restart();
    servers.sql_nodes[0].restart().expect("it starts again");
    let mut here = servers.connect(0);
    again(&mut here, "CREATE DATABASE IF NOT EXISTS last");
    while there.lines("SHOW DATABASES LIKE 'last'").is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // What it sends to data nodes that have lost everything, it sends within a second.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((shown(&mut there), again(&mut there, "SHOW DATABASES LIKE 'gone'").len()), (0, 0));
}
