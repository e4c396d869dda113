//! The information that a SQL node and its data nodes provide about themselves.

use std::thread;
use std::time::Duration;
use vinga_sql_tests::data_cluster::DataCluster;
use vinga_sql_tests::{Session, TestCluster, eventually, program};
use vinga_sqlnode::ScopedSqlNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Two SQL nodes; a lock is waited for until it is released, or the statement is killed.
fn patient_cluster() -> TestCluster {
    TestCluster::start_with(
        2,
        &[("TransactionDeadlockDetectionTimeout", "600000")],
        &[("vinga_wait_max", "700000")],
    )
}

#[test]
fn nodes_transactions_and_locks_are_listed() {
    let cluster = patient_cluster();
    let (mut a, mut b, mut c) = (cluster.connect(0), cluster.connect(1), cluster.connect(0));
    a.query("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    a.query("INSERT INTO t SELECT seq, seq FROM seq_1_to_3000");
    // Now the other node has the database too.
    b.query("USE test");
    let address = cluster.data_node.as_ref().expect("it runs").address().to_owned();
    let nodes = a.lines(
        "SELECT KIND, STATE, ADDRESS, ABS(TIMESTAMPDIFF(SECOND, SINCE, NOW())) < 600 \
         FROM information_schema.VINGA_NODES WHERE KIND = 'data'",
    );
    assert_eq!(nodes, [format!("data started {address} 1")]);
    let clients = "SELECT KIND, COUNT(*) FROM information_schema.VINGA_NODES \
                   WHERE STATE = 'connected' GROUP BY KIND ORDER BY KIND";
    let counts = a.lines(clients);
    assert!(counts.iter().any(|line| line.starts_with("API ")), "{counts:?}");
    assert!(counts.iter().any(|line| line.starts_with("SQL ")), "{counts:?}");
    // Two connections of its own: one for statements, the other for schema events.
    while !a.lines(clients).contains(&"SQL 2".to_owned()) {
        thread::sleep(Duration::from_millis(20));
    }

    assert_eq!(a.lines("SELECT COUNT(*) FROM information_schema.VINGA_TRANSACTIONS"), ["0"]);
    for written in ["BASE", "AGGREGATE"] {
        let count = format!("SELECT COUNT(*) FROM information_schema.VINGA_DISK_WRITE_SPEED_{written}");
        assert_eq!(a.lines(&count), ["0"], "nothing is kept on disk");
    }
    let needed = "SELECT COUNT(NEEDED_BYTES) FROM information_schema.VINGA_REDO_LOGS";
    assert_eq!(a.lines(needed), ["0"], "nothing is kept on disk");
    let starts = a.lines(
        "SELECT NODE_ID, KIND, PHASE, STARTED_AT = FINISHED_AT, ELAPSED_MS, PHASE_TIMES = '', ROWS_ALL, PERCENT, \
         SECONDS_LEFT IS NULL, ABS(TIMESTAMPDIFF(SECOND, STARTED_AT, NOW())) < 600 \
         FROM information_schema.VINGA_RESTARTS",
    );
    assert_eq!(starts, ["1 first start started 1 0 1 0 100 1 1"]);
    a.query("BEGIN");
    a.query("UPDATE t SET v = 0 WHERE id = 1");
    b.query("BEGIN");
    b.query("SELECT * FROM t WHERE id = 2 LOCK IN SHARE MODE");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| b.lines("SELECT * FROM t WHERE id = 1 FOR UPDATE"));
        c.await_waiter();
        // So that it has waited for at least a millisecond.
        thread::sleep(Duration::from_millis(5));
        let states = c.lines("SELECT STATE FROM information_schema.VINGA_TRANSACTIONS ORDER BY STATE");
        assert_eq!(states, ["open", "preparing"]);
        let locks = c.lines(
            "SELECT l.TABLE_NAME, l.MODE, l.STATE, l.WAIT_MS BETWEEN 1 AND 600000, b.STATE \
             FROM information_schema.VINGA_LOCKS l \
             LEFT JOIN information_schema.VINGA_TRANSACTIONS b ON b.TRANSACTION_ID = l.BLOCKER \
             WHERE l.STATE = 'waits'",
        );
        assert_eq!(locks, ["test.t exclusive waits 1 open"]);
        let held = c.lines(
            "SELECT DISTINCT MODE FROM information_schema.VINGA_LOCKS WHERE STATE = 'held' ORDER BY MODE",
        );
        assert_eq!(held, ["exclusive", "shared"]);
        a.query("ROLLBACK");
        assert_eq!(waiting.join().expect("it gets the lock"), ["1 1"]);
    });
    b.query("ROLLBACK");

    // More locks than an answer has room for: a warning contains the number of the others.
    a.query("BEGIN");
    a.query("UPDATE t SET v = v + 1");
    let shown: usize =
        c.lines("SELECT COUNT(*) FROM information_schema.VINGA_LOCKS")[0].parse().expect("a number");
    let warnings = c.lines("SHOW WARNINGS");
    assert!(shown >= 500 && warnings.iter().any(|line| line.contains("more rows")), "{shown} {warnings:?}");
    a.query("ROLLBACK");
    assert_eq!(c.lines("SELECT COUNT(*) FROM information_schema.VINGA_LOCKS"), ["0"]);
    assert_eq!(c.lines("SELECT COUNT(*) FROM information_schema.VINGA_TRANSACTIONS"), ["0"]);
}

/// Which transaction blocks which, with the query of docs/sql.md.
const WHO_BLOCKS_WHOM: &str = "SELECT w.CONNECTION_ID, w.TABLE_NAME, w.INDEX_NAME, w.BLOCKER_CONNECTION_ID, n.KIND \
     FROM information_schema.VINGA_LOCKS w \
     LEFT JOIN information_schema.VINGA_TRANSACTIONS b ON b.TRANSACTION_ID = w.BLOCKER \
     LEFT JOIN information_schema.VINGA_NODES n ON n.NODE = b.API_NODE \
     WHERE w.STATE = 'waits'";

#[test]
fn blockers_are_shown_with_connections_and_names_of_indexes() {
    let cluster = patient_cluster();
    let (mut a, mut b, mut c) = (cluster.connect(0), cluster.connect(1), cluster.connect(0));
    let mut waits = cluster.connect(0);
    let id = |s: &mut Session| s.lines("SELECT CONNECTION_ID()").remove(0);
    let (id_a, id_waits) = (id(&mut a), id(&mut waits));
    a.query("CREATE TABLE lk (id INT PRIMARY KEY, u INT, v INT, UNIQUE KEY by_u (u)) ENGINE=VINGA");
    a.query("INSERT INTO lk VALUES (1, 10, 0), (2, 20, 0)");
    b.query("USE test");
    let blocked = |waits: &mut Session, c: &mut Session, statement: &str| {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waits.error(statement).0);
            c.await_waiter();
            let found = c.lines(WHO_BLOCKS_WHOM);
            c.query(&format!("KILL QUERY {id_waits}"));
            assert_eq!(waiting.join().expect("it gets an error"), 1317);
            found
        })
    };
    // A row of the table, locked by another connection of the same SQL node.
    a.query("BEGIN");
    a.query("UPDATE lk SET v = 1 WHERE id = 1");
    let found = blocked(&mut waits, &mut c, "UPDATE lk SET v = 2 WHERE id = 1");
    assert_eq!(found, [format!("{id_waits} test.lk NULL {id_a} SQL")]);
    let open = "SELECT CONNECTION_ID FROM information_schema.VINGA_TRANSACTIONS";
    eventually("what was killed is undone", || c.lines(open) == [id_a.as_str()]);
    a.query("ROLLBACK");
    // An entry of a unique index.
    a.query("BEGIN");
    a.query("INSERT INTO lk VALUES (3, 30, 0)");
    let found = blocked(&mut waits, &mut c, "INSERT INTO lk VALUES (4, 30, 0)");
    assert_eq!(found, [format!("{id_waits} test.lk by_u {id_a} SQL")]);
    // The reported connection may be killed.
    c.query(&format!("KILL {id_a}"));
    waits.query("INSERT INTO lk VALUES (4, 30, 0)");
    eventually("the killed connection has left nothing", || c.lines(open).is_empty());
    // A connection of another SQL node: its API node is known, and its number is known there.
    b.query("BEGIN");
    b.query("UPDATE lk SET v = 1 WHERE id = 2");
    let found = blocked(&mut waits, &mut c, "UPDATE lk SET v = 2 WHERE id = 2");
    assert_eq!(found, [format!("{id_waits} test.lk NULL NULL API")]);
    let id_b = id(&mut b);
    let mut beside_b = cluster.connect(1);
    assert_eq!(beside_b.lines(open), [id_b]);
    b.query("ROLLBACK");
}

#[test]
fn the_status_is_shown_in_sections() {
    let mut cluster = TestCluster::start(1);
    let mut s = cluster.connect(0);
    s.query("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=VINGA");
    let status = |s: &mut Session| s.query("SHOW ENGINE VINGA STATUS").remove(0).remove(2);
    let text = status(&mut s);
    for section in ["CONNECTIONS", "SESSIONS", "WORK SINCE THE START", "AUTO-INCREMENT", "LAST ERROR"] {
        assert!(text.contains(section), "{text}");
    }
    assert!(text.contains(": connected, 0 reconnects") && text.contains("none"), "{text}");
    cluster.data_node = None;
    assert_eq!(s.error("SELECT * FROM t").0, 1297);
    let text = status(&mut s);
    assert!(text.contains("not connected") && text.contains("s ago: 40"), "{text}");
}

/// By whichever address the SQL node knows a data node: one that is lost is shown as lost, and since when.
#[test]
fn the_status_says_which_data_node_is_lost() {
    let mut data = DataCluster::start(PROGRAM, &[], None);
    let addresses = [data.addresses(), data.local_addresses()];
    let nodes = addresses.map(|all| ScopedSqlNode::start(&all).unwrap_or_else(|error| panic!("{error}")));
    let mut sessions = nodes.each_ref().map(|node| Session::new(node.connect().expect("it answers")));
    let status = |s: &mut Session| s.query("SHOW ENGINE VINGA STATUS").remove(0).remove(2);
    for session in &mut sessions {
        for node in ["1", "2"] {
            let line = format!("data node {node}: connected");
            eventually("both are connected", || status(session).contains(&line));
        }
    }
    data.kill(2);
    for session in &mut sessions {
        let line = |session: &mut Session| {
            let text = status(session);
            let mut lines = text.lines().filter(|line| line.contains("data node 2: "));
            let line = lines.next().expect("it was connected").to_owned();
            assert_eq!(lines.next(), None, "one line: {text}");
            line
        };
        eventually("it is noticed", || line(session).contains("data node 2: lost for "));
        assert!(line(session).contains(" s, the others go on without it"), "{}", line(session));
        assert!(status(session).contains("data node 1: connected"));
    }
}

#[test]
fn what_others_do_is_shown_to_those_who_may_know_it() {
    let cluster = TestCluster::start(1);
    let mut root = cluster.connect(0);
    root.query("CREATE USER u@localhost");
    let socket = cluster.sql_nodes[0].socket();
    let ask = |statement: &str| {
        let mut client = program("mariadb");
        client
            .args(["--no-defaults", "--user=u", "--batch", "--execute", statement])
            .arg("--socket")
            .arg(&socket);
        let output = client.output().expect("it exists");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let tables = root.lines(
        "SELECT table_name FROM information_schema.tables \
         WHERE table_schema = 'information_schema' AND table_name LIKE 'VINGA\\_%'",
    );
    assert_eq!(tables.len(), 11, "{tables:?}");
    let statements: Vec<String> = tables
        .iter()
        .map(|table| format!("SELECT * FROM information_schema.{table}"))
        .chain(["SHOW ENGINE VINGA STATUS".to_owned()])
        .collect();
    for statement in &statements {
        let (went_well, said) = ask(statement);
        assert!(!went_well && said.contains("ERROR 1227"), "{statement}: {said}");
    }
    root.query("GRANT PROCESS ON *.* TO u@localhost");
    for statement in &statements {
        let (went_well, said) = ask(statement);
        assert!(went_well, "{statement}: {said}");
    }
}

#[test]
fn performance_schema_knows_the_mutexes() {
    let cluster = TestCluster::start_with(1, &[], &[("performance_schema", "ON")]);
    let mut c = cluster.connect(0);
    c.query("CREATE TABLE t (name VARCHAR(9) PRIMARY KEY) ENGINE=VINGA");
    let names = "'wait/synch/mutex/vinga/background', 'wait/synch/mutex/vinga/databases', 'wait/synch/mutex/vinga/sorters'";
    let count =
        |table: &str| format!("SELECT COUNT(*) FROM performance_schema.{table} WHERE name IN ({names})");
    assert_eq!(c.lines(&count("setup_instruments")), ["3"]);
    assert_eq!(c.lines(&count("mutex_instances")), ["3"]);
}
