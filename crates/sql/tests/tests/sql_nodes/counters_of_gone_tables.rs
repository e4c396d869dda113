//! The counters of `AUTO_INCREMENT` go with their tables, whoever drops these and whatever happens to that node, and
//! those of tables that are there stay.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Record, Value};
use vinga_sql_tests::{TestCluster, eventually};
use vinga_sqlnode::ScopedSqlNode;

/// The table of the counters.
const COUNTERS: &str = "vinga.auto_increment";
/// What distinguishes the counter of a hidden primary key.
const HIDDEN_KEY: u64 = 1 << 63;
/// Rounds of the threads that change tables at the same time.
const ROUNDS: u32 = 60;

fn native(cluster: &TestCluster) -> Cluster {
    let address = cluster.data_node.as_ref().expect("it runs").address();
    Cluster::connect(address).expect("the data node answers")
}

/// The keys of all counters.
fn counters(native: &Cluster) -> BTreeSet<u64> {
    let table = match native.table(COUNTERS) {
        Err(error) if error.code() == ErrorCode::NoSuchTable => return BTreeSet::new(),
        table => table.expect("it can be described"),
    };
    let rows = native.scan(&table, |scan| scan).expect("it can be read");
    let key = |row: Record| match row.get("birth") {
        Some(Value::UInt(key)) => *key,
        other => panic!("no birth: {other:?}"),
    };
    rows.map(|row| key(row.expect("it can be read"))).collect()
}

fn birth(native: &Cluster, name: &str) -> u64 {
    native.table(name).expect("it is there").core().birth().0
}

fn add_orphan(native: &Cluster, key: u64) {
    let table = native.table(COUNTERS).expect("there are counters");
    native.insert(&table, &[("birth", key), ("next", 700)]).expect("it is new");
}

#[test]
fn a_counter_goes_with_its_table() {
    let cluster = TestCluster::start(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE stays (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    session.query("INSERT INTO stays (v) VALUES (1)");
    let stays = BTreeSet::from([birth(&native, "test.stays")]);
    assert_eq!(counters(&native), stays);
    for make in ["(id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 40", "(v INT)"] {
        let hidden = if make.starts_with("(v") { HIDDEN_KEY } else { 0 };
        let with = |birth: u64| stays.iter().copied().chain([birth | hidden]).collect::<BTreeSet<u64>>();
        session.query("CREATE DATABASE other");
        for (name, drop) in [("test.t", "DROP TABLE test.t"), ("other.t", "DROP DATABASE other")] {
            session.query(&format!("CREATE TABLE {name} {make}"));
            session.query(&format!("INSERT INTO {name} (v) VALUES (1), (2)"));
            assert_eq!(counters(&native), with(birth(&native, name)));
            session.query(&format!("RENAME TABLE {name} TO other.u"));
            session.query(&format!("RENAME TABLE other.u TO {name}"));
            assert_eq!(counters(&native), with(birth(&native, name)), "a rename is no drop");
            session.query(&format!("TRUNCATE TABLE {name}"));
            assert_eq!(counters(&native), stays, "TRUNCATE begins anew");
            session.query(&format!("INSERT INTO {name} (v) VALUES (3)"));
            assert_eq!(counters(&native), with(birth(&native, name)));
            session.query(&format!("ALTER TABLE {name} ADD COLUMN w INT, ALGORITHM = COPY"));
            session.query(&format!("INSERT INTO {name} (v) VALUES (4)"));
            assert_eq!(counters(&native), with(birth(&native, name)), "that of the copy only");
            session.query(drop);
            assert_eq!(counters(&native), stays, "{drop}");
        }
    }
    session.query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 40");
    session.query("INSERT INTO t VALUES (NULL)");
    session.query("TRUNCATE TABLE t");
    session.query("INSERT INTO t VALUES (NULL)");
    assert_eq!(session.lines("SELECT id FROM t"), ["1"], "as with InnoDB");
    session.query("INSERT INTO stays (v) VALUES (2)");
    assert_eq!(session.lines("SELECT id FROM stays ORDER BY id"), ["1", "2"]);
}

#[test]
fn counters_that_were_left_are_found() {
    let cluster = TestCluster::start(1);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE stays (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    session.query("CREATE TABLE goes (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    session.query("INSERT INTO stays (v) VALUES (1)");
    session.query("INSERT INTO goes (v) VALUES (1)");
    let stays = BTreeSet::from([birth(&native, "test.stays")]);
    // A native client knows nothing of counters.
    native.drop_table("test.goes").expect("it is there");
    eventually("the counter of a table goes that a native client has dropped", || counters(&native) == stays);
    // What earlier versions have left is found by the next SQL node that starts.
    for key in [5, 6 | HIDDEN_KEY] {
        add_orphan(&native, key);
    }
    assert_eq!(counters(&native).len(), 3);
    let address = cluster.data_node.as_ref().expect("it runs").address();
    let _second = ScopedSqlNode::start(address).expect("it starts");
    eventually("old counters go when a SQL node starts", || counters(&native) == stays);
    session.query("INSERT INTO stays (v) VALUES (2)");
    assert_eq!(session.lines("SELECT id FROM stays ORDER BY id"), ["1", "2"]);
}

/// Tables are made, dropped, emptied, copied and renamed by two SQL nodes and a native client, while others generate
/// numbers: a table whose counter had gone too early would give numbers twice.
#[test]
fn counters_of_tables_that_change_stay_theirs() {
    let cluster = TestCluster::start(2);
    let native = native(&cluster);
    let mut session = cluster.connect(0);
    // No key: a number that is given twice is no error, and seen.
    session.query("CREATE TABLE n0 (id BIGINT AUTO_INCREMENT, v INT, KEY (id))");
    session.query("INSERT INTO n0 (v) VALUES (1)");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for node in 0..2 {
            let (cluster, is_over) = (&cluster, &is_over);
            scope.spawn(move || {
                let mut session = cluster.connect(node);
                while !is_over.load(Ordering::Relaxed) {
                    for name in ["n0", "n1", "n2"] {
                        let _ = session.try_query(&format!("INSERT INTO test.{name} (v) VALUES (1), (2)"));
                    }
                }
            });
            scope.spawn(move || {
                let mut session = cluster.connect(node);
                let table = format!("test.t{node}");
                while !is_over.load(Ordering::Relaxed) {
                    for statement in [
                        "CREATE TABLE IF NOT EXISTS # (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
                        "INSERT INTO # (v) VALUES (1)",
                        "TRUNCATE TABLE #",
                        "INSERT INTO # (v) VALUES (1)",
                        "ALTER TABLE # FORCE, ALGORITHM = COPY",
                        "INSERT INTO # (v) VALUES (1)",
                        "DROP TABLE IF EXISTS #",
                    ] {
                        let _ = session.try_query(&statement.replace('#', &table));
                    }
                }
            });
        }
        // Backwards through the alphabet and forwards: a list by names would miss it.
        for round in 0..ROUNDS {
            let (from, to) = (round % 3, (round + 1) % 3);
            native.rename_table(&format!("test.n{from}"), &format!("test.n{to}")).expect("it is there");
            let _ = native.drop_table("test.t0");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let name = format!("n{}", ROUNDS % 3);
    let counts = session.query(&format!("SELECT COUNT(*), COUNT(DISTINCT id) FROM {name}"));
    assert_eq!(counts[0][0], counts[0][1], "no number was given twice");
    for table in ["t0", "t1"] {
        session.query(&format!("DROP TABLE IF EXISTS {table}"));
    }
    let stays = BTreeSet::from([birth(&native, &format!("test.{name}"))]);
    eventually("only the counter of the table that is there is left", || {
        let left: BTreeSet<u64> = counters(&native).into_iter().map(|key| key & !HIDDEN_KEY).collect();
        left == stays
    });
}

/// A statement that makes a table fails if the table's counter can't be set: it leaves no table behind, and no copy
/// that would be in the way of the next `ALTER TABLE`.
#[test]
fn a_table_whose_counter_can_not_be_set_is_not_there() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("INSERT INTO t (v) VALUES (1), (2), (3)");
    session.query("DELETE FROM t WHERE id = 3");
    let native = native(&cluster);
    let tables = || native.tables().expect("they can be listed");
    let before = tables();
    let counters = native.table(COUNTERS).expect("there is one");
    let fence = native.fence_table(&counters).expect("nobody else has fenced it");
    let create = "CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=VINGA AUTO_INCREMENT=1000";
    let alter = "ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY";
    for statement in [create, alter] {
        assert_eq!(session.error(statement).0, 1297, "{statement}");
        assert_eq!(tables(), before, "{statement}");
    }
    fence.lift().expect("the data node answers");
    session.query(create);
    session.query("INSERT INTO u VALUES ()");
    assert_eq!(session.lines("SELECT id FROM u"), ["1000"]);
    session.query(alter);
    session.query("INSERT INTO t (v) VALUES (4)");
    assert_eq!(session.lines("SELECT id FROM t ORDER BY id"), ["1", "2", "4"]);
}
