//! Statements when a data node is lost: those that stand alone and lose nothing with it are not reported as failed, and
//! none waits for a table that another has locked. When data nodes leave before they stop, none fails at all.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use vinga::blocking::Cluster;
use vinga::{NodeId, ShutdownTerms};
use vinga_sql_tests::data_cluster::{DATA_NODES, DataCluster};
use vinga_sql_tests::{Session, eventually};
use vinga_sqlnode::ScopedSqlNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

/// Sessions of each kind.
const SESSIONS: u32 = 6;
/// Statements of each session after the loss.
const AFTERWARDS: u32 = 50;

/// Two data nodes, of which the second one is killed; see [`while_data_nodes_go`].
fn with_a_lost_data_node(
    rows: &str,
    step: impl Fn(&mut Session, u32, u32) -> Option<String> + Sync,
    check: impl FnOnce(&mut Session),
) -> Vec<String> {
    while_data_nodes_go(|data| data.kill(2), rows, step, check)
}

/// Two data nodes with one table of so many rows, `d.t (id, n)`, and a SQL node. Each session does `step` again and
/// again, from before `go` until some time after that; what the steps object to is returned.
fn while_data_nodes_go(
    go: impl FnOnce(&mut DataCluster),
    rows: &str,
    step: impl Fn(&mut Session, u32, u32) -> Option<String> + Sync,
    check: impl FnOnce(&mut Session),
) -> Vec<String> {
    let mut data = DataCluster::start(PROGRAM, &[], None);
    let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
    let connect = || Session::new(node.connect().expect("the SQL node answers"));
    let mut setup = connect();
    setup.query("CREATE DATABASE d");
    setup.query("CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE=VINGA");
    setup.query("USE d");
    setup.query(&format!("INSERT INTO d.t {rows}"));
    let (is_lost, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let objections = thread::scope(|threads| {
        let sessions: Vec<_> = (0..2 * SESSIONS)
            .map(|number| {
                let (mut session, is_lost, begun, step) = (connect(), &is_lost, &begun, &step);
                threads.spawn(move || {
                    let (mut objections, mut left) = (Vec::new(), AFTERWARDS);
                    for n in 1.. {
                        if left == 0 {
                            break;
                        }
                        if is_lost.load(Ordering::Relaxed) {
                            left -= 1;
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                        objections.extend(step(&mut session, number, n));
                    }
                    objections
                })
            })
            .collect();
        eventually("they are under way", || begun.load(Ordering::Relaxed) > 100 * SESSIONS);
        go(&mut data);
        is_lost.store(true, Ordering::Relaxed);
        sessions.into_iter().flat_map(|session| session.join().expect("it has ended")).collect()
    });
    check(&mut setup);
    objections
}

/// They have locked rows, or met a duplicate, and changed nothing: their end may fail.
#[test]
fn statements_that_change_nothing_do_not_fail_with_a_data_node() {
    let step = |session: &mut Session, number: u32, _: u32| {
        let statement = match number % 2 {
            0 => format!("SELECT n FROM d.t WHERE id = {number} FOR UPDATE"),
            _ => format!("INSERT IGNORE INTO d.t VALUES ({number}, 0)"),
        };
        match session.try_query(&statement).map(|answer| answer.strings()) {
            Ok(rows) if number.is_multiple_of(2) => assert_eq!(rows, [[number.to_string()]]),
            Ok(_) => {}
            Err(error) => return Some(format!("{statement}: {error}")),
        }
        None
    };
    let failed = with_a_lost_data_node("SELECT seq, seq FROM seq_0_to_63", step, |session| {
        assert_eq!(session.lines("SELECT COUNT(*), SUM(n) FROM d.t"), ["64 2016"]);
    });
    assert_eq!(failed, [""; 0]);
}

/// Rows of each session in the test below.
const ROWS: u32 = 40;

/// The last rows of a statement change nothing, but its earlier ones do, and go with the same request: what was
/// acknowledged is there.
#[test]
fn statements_whose_last_rows_change_nothing_are_acknowledged_when_the_others_are_there() {
    let step = |session: &mut Session, number: u32, n: u32| {
        let first = number * ROWS;
        let rows: Vec<String> = (first..first + ROWS).map(|id| format!("({id}, {n})")).collect();
        // The row that comes twice is a batch of its own.
        let rows = format!("{}, ({first}, {n})", rows.join(", "));
        let statement = match number % 2 {
            0 => format!("INSERT INTO d.t VALUES {rows} ON DUPLICATE KEY UPDATE n = VALUES(n)"),
            _ => format!("REPLACE d.t VALUES {rows}"),
        };
        session.try_query(&statement).ok()?;
        let range = format!("id BETWEEN {first} AND {}", first + ROWS - 1);
        let found =
            session.try_query(&format!("SELECT MIN(n), MAX(n) FROM d.t WHERE {range}")).ok()?.strings();
        let is_there = found == [[n.to_string(), n.to_string()]];
        (!is_there).then(|| format!("session {number} has written {n}, and reads {found:?}"))
    };
    let rows = format!("SELECT seq, 0 FROM seq_0_to_{}", 2 * SESSIONS * ROWS - 1);
    let wrong = with_a_lost_data_node(&rows, step, |_| {});
    assert_eq!(wrong, [""; 0]);
}

/// Each session counts in a row of its own, by transactions of several statements, by statements of several rows, or
/// reads all rows by one of the ways there are. The sum of two rows that change together is always the same.
#[test]
fn nothing_fails_when_data_nodes_are_restarted_that_leave_before() {
    let step = |session: &mut Session, number: u32, n: u32| {
        let (own, other) = (number * 2, number * 2 + 1);
        let texts = match number % 6 {
            0 => vec![
                "BEGIN".to_owned(),
                format!("SELECT n FROM d.t WHERE id = {own} FOR UPDATE"),
                format!("UPDATE d.t SET n = n + 1 WHERE id = {own}"),
                format!("UPDATE d.t SET n = n - 1 WHERE id = {other}"),
                "COMMIT".to_owned(),
            ],
            1 => vec![
                "BEGIN".to_owned(),
                format!("UPDATE d.t SET n = n + {n} WHERE id IN ({own}, {other})"),
                "ROLLBACK".to_owned(),
            ],
            2 => vec![format!(
                "INSERT INTO d.t VALUES ({own}, 0), ({other}, 0) ON DUPLICATE KEY UPDATE n = n + IF(id = {own}, 1, -1)"
            )],
            3 => vec![format!(
                "UPDATE d.t SET n = n + IF(id = {own}, 1, -1) WHERE id BETWEEN {own} AND {other}"
            )],
            4 => vec!["SELECT COUNT(*), SUM(n) FROM d.t".to_owned()],
            _ => vec![
                "SELECT COUNT(*), SUM(n) FROM (SELECT n FROM d.t ORDER BY id DESC) AS all_rows".to_owned(),
            ],
        };
        for text in texts {
            match session.try_query(&text).map(|answer| answer.strings()) {
                Ok(rows) if text.starts_with("SELECT COUNT") && rows[0][0] != "64" => {
                    return Some(format!("{text}: {rows:?}"));
                }
                Ok(_) => {}
                Err(error) => {
                    let _ = session.try_query("ROLLBACK");
                    return Some(format!("{text}: {error}"));
                }
            }
        }
        None
    };
    let restart_both = |data: &mut DataCluster| (1..=DATA_NODES).rev().for_each(|node| data.restart(node));
    let failed = while_data_nodes_go(restart_both, "SELECT seq, 0 FROM seq_0_to_63", step, |session| {
        assert_eq!(session.lines("SELECT COUNT(*), SUM(n) FROM d.t"), ["64 0"]);
        assert_eq!(
            session.lines(
                "SELECT COUNT(*) FROM d.t AS a, d.t AS b WHERE a.id % 2 = 0 AND b.id = a.id + 1 \
                                  AND a.n + b.n <> 0"
            ),
            ["0"]
        );
    });
    assert_eq!(failed, [""; 0]);
}

/// A data node that leaves waits for a transaction, and a change of a definition waits for it. When the SQL node has
/// waited long enough, that is no reason to repeat the change: it is carried out behind the others.
#[test]
fn a_change_of_a_definition_that_waits_for_a_data_node_is_not_reported_as_undone() {
    let data = DataCluster::start(PROGRAM, &[("TransactionInactiveTimeout", "600000")], None);
    let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
    let connect = || Session::new(node.connect().expect("the SQL node answers"));
    let (mut holder, mut changing) = (connect(), connect());
    holder.query("CREATE DATABASE d");
    holder.query("USE d");
    for table in ["d.t", "d.u"] {
        holder.query(&format!("CREATE TABLE {table} (id INT PRIMARY KEY, n INT) ENGINE=VINGA"));
        holder.query(&format!("INSERT INTO {table} SELECT seq, 0 FROM seq_1_to_64"));
    }
    // The lock is at the data node that stays.
    let stays = (1..=64).any(|id| {
        holder.query("BEGIN");
        holder.query(&format!("UPDATE d.t SET n = 1 WHERE id = {id}"));
        let node = holder.lines("SELECT DISTINCT NODE_ID FROM information_schema.VINGA_LOCKS");
        node == ["1"] || {
            holder.query("ROLLBACK");
            false
        }
    });
    assert!(stays, "each data node is the primary of some of the rows");
    changing.query("SET GLOBAL vinga_wait_max = 500");
    thread::scope(|threads| {
        threads.spawn(|| {
            let cluster = Cluster::connect(&data.addresses()).expect("they answer");
            let terms = ShutdownTerms::Unnoticed { wait: 600_000 };
            assert!(cluster.restart(NodeId(2), terms).expect("the other one can go on"));
        });
        let mut failure = None;
        eventually("a change waits", || {
            changing.query("REPLACE INTO d.u VALUES (1, 1)");
            failure = changing.try_query("TRUNCATE TABLE d.u").err();
            failure.is_some()
        });
        let failure = failure.expect("found just now").to_string();
        assert!(failure.contains("4012") && failure.contains("not known"), "{failure}");
        holder.query("COMMIT");
    });
    // A statement may meet the change.
    eventually("it is carried out", || {
        let counted = changing.try_query("SELECT COUNT(*) FROM d.u").map(|answer| answer.strings());
        counted.is_ok_and(|rows| rows[0][0] == "0")
    });
}

/// A SQL node that may have missed schema events forgets the definitions that have changed, and only these: others may
/// be in use for long.
#[test]
fn a_locked_table_is_read_by_others_when_a_data_node_is_lost() {
    // The SQL node gets schema events from one of them.
    for lost in 1..=DATA_NODES {
        let mut data = DataCluster::start(PROGRAM, &[], None);
        let node = ScopedSqlNode::start(&data.local_addresses()).unwrap_or_else(|error| panic!("{error}"));
        let connect = || Session::new(node.connect().expect("the SQL node answers"));
        let (mut locker, mut other) = (connect(), connect());
        locker.query("CREATE DATABASE d");
        locker.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=VINGA");
        locker.query("INSERT INTO d.t VALUES (1)");
        locker.query("LOCK TABLES d.t READ");
        data.kill(lost);
        // It gets this with what it may have missed, or after that.
        let native = Cluster::connect(&data.addresses()).expect("the other data node answers");
        eventually("a database is made", || native.create_database("new", b"").is_ok());
        eventually("the SQL node follows again", || !other.lines("SHOW DATABASES LIKE 'new'").is_empty());
        // Instead of waiting as long as the table is locked.
        other.query("SET lock_wait_timeout = 60");
        assert_eq!(other.lines("SELECT * FROM d.t"), ["1"]);
        assert_eq!(locker.lines("SELECT * FROM d.t"), ["1"]);
        locker.query("UNLOCK TABLES");
        other.query("INSERT INTO d.t VALUES (2)");
    }
}
