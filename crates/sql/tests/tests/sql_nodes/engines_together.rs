//! Transactions that use not only Vinga's tables: also InnoDB's, a binary log, or an XA coordinator.

use std::time::{Duration, Instant};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session, TestCluster, program, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const ROLLED_BACK: u16 = 1402;
const UNKNOWN_XID: u16 = 1397;
const DUPLICATE: u16 = 1062;

const TABLES: [&str; 3] = [
    "CREATE TABLE v (id INT PRIMARY KEY, a INT, UNIQUE KEY (a)) ENGINE=VINGA",
    "CREATE TABLE i (id INT PRIMARY KEY, a INT, UNIQUE KEY (a)) ENGINE=InnoDB",
    "INSERT INTO v VALUES (1, 1), (2, 2)",
];

/// Checks the rows of both tables: `id a` of Vinga's, then of InnoDB's.
#[track_caller]
fn expect(session: &mut Session, ours: &[&str], theirs: &[&str]) {
    assert_eq!(session.lines("SELECT * FROM v ORDER BY id"), ours, "Vinga");
    assert_eq!(session.lines("SELECT * FROM i ORDER BY id"), theirs, "InnoDB");
}

/// Each of these creates state at the data nodes that a prepared transaction would have to keep.
const USES: [&[&str]; 5] = [
    &["UPDATE v SET a = 100 WHERE id = 1"],
    &["INSERT INTO v VALUES (3, 3)", "DELETE FROM v WHERE id = 2"],
    &["SELECT * FROM v WHERE id = 1 FOR UPDATE"],
    &["INSERT INTO i VALUES (3, 3)", "UPDATE v SET a = 100 WHERE id = 1"],
    &["UPDATE v SET a = 100 WHERE id = 1", "INSERT INTO i VALUES (3, 3)"],
];

#[test]
fn xa_prepare_is_refused_and_leaves_nothing() {
    for variables in [&[][..], &[("log_bin", "changes"), ("server_id", "7"), ("binlog_format", "ROW")]] {
        let mut servers = Servers::start_with(PROGRAM, 1, &[], variables);
        let (mut session, mut other) = (servers.connect(0), servers.connect(0));
        for statement in TABLES {
            session.query(statement);
        }
        let before = servers.pools();
        for statements in USES {
            session.query("XA START 'x'");
            for statement in statements {
                session.query(statement);
            }
            session.query("XA END 'x'");
            let (number, sentence) = session.error("XA PREPARE 'x'");
            assert_eq!(number, ROLLED_BACK, "{sentence}");
            assert!(sentence.contains("VINGA does not support XA PREPARE"), "{sentence}");
            // Nothing has changed, and no row is locked: another session can change them at once.
            expect(&mut other, &["1 1", "2 2"], &[]);
            other.query("BEGIN");
            other.query("UPDATE v SET a = a + 10");
            other.query("ROLLBACK");
            assert_eq!(session.lines("XA RECOVER"), [""; 0]);
            for statement in ["XA ROLLBACK 'x'", "XA COMMIT 'x'"] {
                assert_eq!(session.error(statement).0, UNKNOWN_XID, "{statement}");
            }
            // The session continues, outside of any transaction.
            session.query("UPDATE v SET a = 1 WHERE id = 1");
            expect(&mut other, &["1 1", "2 2"], &[]);
            servers.await_rest(&before);
        }
        servers.check_alive();
    }
}

#[test]
fn xa_in_one_phase_and_without_vinga_works() {
    let servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    for statement in TABLES {
        session.query(statement);
    }
    let before = servers.pools();
    for (changes, end) in [
        (&["INSERT INTO v VALUES (3, 3)"][..], "XA COMMIT 'x' ONE PHASE"),
        (&["INSERT INTO v VALUES (4, 4)", "INSERT INTO i VALUES (4, 4)"], "XA COMMIT 'x' ONE PHASE"),
        (
            &["INSERT INTO v VALUES (7, 7)", "SAVEPOINT s", "INSERT INTO i VALUES (7, 7)", "ROLLBACK TO s"],
            "XA COMMIT 'x' ONE PHASE",
        ),
        (&["INSERT INTO v VALUES (5, 5)", "INSERT INTO i VALUES (5, 5)"], "XA ROLLBACK 'x'"),
        (&["SELECT * FROM v", "INSERT INTO i VALUES (6, 6)"], "XA PREPARE 'x'"),
    ] {
        session.query("XA START 'x'");
        for change in changes {
            session.query(change);
        }
        session.query("XA END 'x'");
        session.query(end);
    }
    // A prepared transaction survives its session.
    drop(session);
    let mut session = servers.connect(0);
    // Before InnoDB has detached the transaction the server would find no session for the commit, and report nothing.
    // InnoDB refreshes this table only if no one has read it for 100 ms, so more frequent queries would get the same
    // result forever.
    let is_free = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0";
    while session.lines(is_free) == ["0"] {
        std::thread::sleep(Duration::from_millis(200));
    }
    let began = Instant::now();
    while let Err(error) = session.try_query("XA COMMIT 'x'") {
        assert!(error.number() == Some(UNKNOWN_XID) && began.elapsed() < HANG_GUARD, "{error}");
    }
    expect(&mut session, &["1 1", "2 2", "3 3", "4 4", "7 7"], &["4 4", "6 6"]);
    servers.await_rest(&before);
}

/// Commits, rollbacks and failures of transactions with rows of both engines.
fn use_both(session: &mut Session, other: &mut Session) {
    for statement in TABLES {
        session.query(statement);
    }
    session.query("BEGIN");
    session.query("INSERT INTO v VALUES (3, 3)");
    session.query("INSERT INTO i VALUES (3, 3)");
    expect(other, &["1 1", "2 2"], &[]);
    session.query("SAVEPOINT s");
    session.query("UPDATE v, i SET v.a = 30, i.a = 30 WHERE v.id = i.id");
    expect(session, &["1 1", "2 2", "3 30"], &["3 30"]);
    session.query("ROLLBACK TO s");
    session.query("COMMIT");
    expect(other, &["1 1", "2 2", "3 3"], &["3 3"]);
    session.query("BEGIN");
    session.query("DELETE FROM i");
    session.query("DELETE FROM v");
    session.query("ROLLBACK");
    expect(other, &["1 1", "2 2", "3 3"], &["3 3"]);
    // Autocommitted statements on tables of both engines.
    session.query("UPDATE v, i SET v.a = 31, i.a = 31 WHERE v.id = i.id");
    expect(other, &["1 1", "2 2", "3 31"], &["3 31"]);
    session.query(
        "CREATE TRIGGER both_ways BEFORE INSERT ON v FOR EACH ROW INSERT INTO i VALUES (NEW.id, NEW.a)",
    );
    session.query("INSERT INTO v VALUES (4, 4), (5, 5)");
    let (ours, theirs) = (["1 1", "2 2", "3 31", "4 4", "5 5"], ["3 31", "4 4", "5 5"]);
    expect(other, &ours, &theirs);
    // Errors that only the data nodes detect, when they are asked at the end, are undone in both engines.
    for (statement, key) in [
        ("INSERT INTO v VALUES (6, 6), (7, 1)", "'1' for key 'a'"),
        ("INSERT INTO v VALUES (6, 6), (1, 7)", "'1' for key 'PRIMARY'"),
    ] {
        let (number, sentence) = session.error(statement);
        assert_eq!(number, DUPLICATE, "{sentence}");
        assert!(sentence.contains(key), "{sentence}");
        expect(other, &ours, &theirs);
        session.query("BEGIN");
        session.query("INSERT INTO i VALUES (8, 8)");
        let (number, sentence) = session.error(statement);
        assert_eq!(number, DUPLICATE, "{sentence}");
        session.query("COMMIT");
        expect(other, &ours, &["3 31", "4 4", "5 5", "8 8"]);
        session.query("DELETE FROM i WHERE id = 8");
    }
    session.query("DROP TRIGGER both_ways");
}

#[test]
fn both_engines_commit_or_none() {
    let cluster = TestCluster::start(1);
    let (mut session, mut other) = (cluster.connect(0), cluster.connect(0));
    use_both(&mut session, &mut other);
}

/// The same with a binary log, which must contain what was committed, and nothing else.
#[test]
fn with_a_binary_log() {
    for (format, isolation) in
        [("ROW", "READ-COMMITTED"), ("MIXED", "READ-COMMITTED"), ("MIXED", "REPEATABLE-READ")]
    {
        let variables = [
            ("log_bin", "changes"),
            ("server_id", "7"),
            ("binlog_format", format),
            ("transaction_isolation", isolation),
        ];
        let cluster = TestCluster::start_with(1, &[], &variables);
        let (mut session, mut other) = (cluster.connect(0), cluster.connect(0));
        use_both(&mut session, &mut other);
        let events = session.query("SHOW BINLOG EVENTS IN 'changes.000001'");
        let count = |kind: &str| events.iter().filter(|event| event[2] == kind).count();
        assert!(count("Query") > 0, "{format}: the log is not empty");
        let logged = |text: &str| events.iter().any(|event| event[5].contains(text));
        assert!(!logged("VALUES (6, 6)"), "{format}: what failed is not logged");
        let is_statement = |event: &Vec<String>| event[2] == "Query" && event[5].contains("INTO v VALUES");
        assert!(count("Write_rows_v1") > 0 && !events.iter().any(is_statement), "{format}: {events:?}");
    }
}

/// A SQL node is killed repeatedly while it commits to both engines; after each restart each engine contains only
/// complete transactions.
#[test]
fn a_killed_sql_node_starts_again() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    servers.connect(0).query("CREATE TABLE v (id INT, part INT, PRIMARY KEY (id, part)) ENGINE=VINGA");
    servers.connect(0).query("CREATE TABLE i (id INT, part INT, PRIMARY KEY (id, part)) ENGINE=InnoDB");
    let mut random = fastrand::Rng::with_seed(3);
    let mut reported = 0;
    for round in 0..6 {
        let mut session = servers.connect(0);
        let committed = std::thread::scope(|threads| {
            let worker = threads.spawn(move || {
                let mut committed = Vec::new();
                for id in round * 1000.. {
                    let one = format!("INSERT INTO v VALUES ({id}, 1), ({id}, 2)");
                    let two = format!("INSERT INTO i VALUES ({id}, 1), ({id}, 2)");
                    for statement in ["BEGIN", &one, &two, "COMMIT"] {
                        if session.try_query(statement).is_err() {
                            return committed;
                        }
                    }
                    committed.push(id);
                }
                committed
            });
            std::thread::sleep(Duration::from_millis(random.u64(50..150)));
            servers.sql_nodes[0].kill().expect("it can be killed");
            worker.join().expect("it does not panic")
        });
        reported += committed.len();
        servers.sql_nodes[0].restart().expect("it starts again");
        let mut session = servers.connect(0);
        for table in ["v", "i"] {
            let halves = session.lines(&format!("SELECT id FROM {table} GROUP BY id HAVING COUNT(*) <> 2"));
            assert_eq!(halves, [""; 0], "{table} has parts of transactions");
            let ids = session.lines(&format!("SELECT DISTINCT id FROM {table}"));
            let missing: Vec<_> = committed.iter().filter(|id| !ids.contains(&id.to_string())).collect();
            assert!(missing.is_empty(), "{missing:?} were committed and are not in {table}");
        }
        assert_eq!(session.lines("XA RECOVER"), [""; 0]);
    }
    println!("{reported} transactions were reported as committed");
    assert!(reported > 0, "nothing was committed");
}

/// Operations of a transaction on Vinga's tables before the data node fails.
const BEFORE_LOSS: [&str; 4] = [
    "INSERT INTO v VALUES (9, 9)",
    "UPDATE v SET a = 100 WHERE id = 1",
    "SELECT * FROM v WHERE id = 1 FOR UPDATE",
    // Takes locks under REPEATABLE READ.
    "SELECT * FROM v",
];

/// InnoDB's tables without row versions, with versions by time, and with versions by transaction. For the last kind the
/// server calls InnoDB before the commit, and then calls no other engine.
const THEIRS: [&str; 3] = [
    "CREATE OR REPLACE TABLE i (id INT PRIMARY KEY, a INT) ENGINE=InnoDB",
    "CREATE OR REPLACE TABLE i (id INT PRIMARY KEY, a INT) ENGINE=InnoDB WITH SYSTEM VERSIONING",
    "CREATE OR REPLACE TABLE i (id INT PRIMARY KEY, a INT,
       s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START INVISIBLE,
       e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END INVISIBLE,
       PERIOD FOR SYSTEM_TIME (s, e)) ENGINE=InnoDB WITH SYSTEM VERSIONING",
];

/// Changes that wait for the commit are made completely, or not at all, together with tables of each kind and in each
/// order.
#[test]
fn tables_with_versions_do_not_hide_the_commit() {
    for variables in [&[][..], &[("log_bin", "changes"), ("server_id", "7"), ("binlog_format", "ROW")]] {
        let cluster = TestCluster::start_with(1, &[], variables);
        let (mut session, mut other) = (cluster.connect(0), cluster.connect(0));
        session.query(TABLES[0]);
        session.query("CREATE TABLE kept (id INT PRIMARY KEY, a INT) ENGINE=VINGA");
        for theirs in THEIRS {
            session.query(theirs);
            session.query("REPLACE INTO kept VALUES (1, 1), (2, 2)");
            session.query("DELETE FROM v");
            // These wait for the commit: they change locked rows, and concern no unique key.
            let ours = [
                "INSERT INTO v VALUES (1, 1)",
                "UPDATE kept SET a = a + 10",
                "DELETE FROM kept WHERE id = 2",
            ];
            let also = ["INSERT INTO i VALUES (1, 1), (2, 2)", "UPDATE i SET a = 5 WHERE id = 1"];
            for is_reversed in [false, true] {
                for end in ["ROLLBACK", "COMMIT"] {
                    session.query("BEGIN");
                    let both = if is_reversed { [&also[..], &ours[..]] } else { [&ours[..], &also[..]] };
                    for statement in both.concat() {
                        session.query(statement);
                    }
                    session.query(end);
                    let (of_v, of_kept, of_i) = match end {
                        "COMMIT" => (&["1 1"][..], &["1 11"][..], &["1 5", "2 2"][..]),
                        _ => (&[][..], &["1 1", "2 2"][..], &[][..]),
                    };
                    assert_eq!(other.lines("SELECT * FROM kept ORDER BY id"), of_kept, "{theirs}, {end}");
                    expect(&mut other, of_v, of_i);
                }
                for statement in ["DELETE FROM v", "DELETE FROM i", "REPLACE INTO kept VALUES (1, 1), (2, 2)"]
                {
                    session.query(statement);
                }
            }
            // An autocommitted statement whose last row is a duplicate: none of its rows is counted.
            session.query("INSERT INTO v VALUES (7, 7)");
            session.query(
                "CREATE OR REPLACE PROCEDURE add_rows() INSERT INTO v SELECT seq, seq FROM seq_1_to_9",
            );
            assert_eq!(session.error("CALL add_rows()").0, DUPLICATE);
            let reported = session.lines("SHOW WARNINGS");
            let errors = reported.iter().filter(|line| line.starts_with("Error"));
            assert_eq!(errors.count(), 1, "an error is reported once: {reported:?}");
            expect(&mut other, &["7 7"], &[]);
        }
        let registered = "SELECT COUNT(*) > 0 FROM mysql.transaction_registry";
        assert_eq!(session.lines(registered), ["1"], "versions by transaction were used");
    }
}

/// Locks alone make a transaction take part in the commit of others, but are not a change where changes are forbidden.
#[test]
fn locks_are_taken_where_nobody_may_change() {
    let cluster = TestCluster::start(1);
    let mut session = cluster.connect(0);
    for statement in TABLES {
        session.query(statement);
    }
    session.query("CREATE USER reader@localhost");
    session.query("GRANT ALL ON test.* TO reader@localhost");
    session.query("SET GLOBAL read_only = 1");
    let socket = session.lines("SELECT @@socket").remove(0);
    let said =
        run(program("mariadb").args(["--no-defaults", "-N", "-ureader", "-S", &socket, "test", "-e"]).arg(
            "BEGIN; SELECT a FROM v WHERE id = 1 LOCK IN SHARE MODE; COMMIT;
         SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
         BEGIN; SELECT a FROM v WHERE id = 2; COMMIT; SELECT @@in_transaction",
        ));
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["1", "2", "0"]);
}

/// If the part of a transaction at the data nodes is lost no engine commits it, no matter whether they are back.
#[test]
fn nobody_commits_what_the_data_nodes_have_lost() {
    let binary_log = [("log_bin", "changes"), ("server_id", "7")];
    for (variables, is_back, theirs) in [
        (&[][..], false, THEIRS[0]),
        (&[], true, THEIRS[2]),
        (&binary_log, true, THEIRS[1]),
        (&binary_log, true, THEIRS[2]),
    ] {
        let mut servers = Servers::start_with(PROGRAM, 1, &[], variables);
        for (round, beginning) in BEFORE_LOSS.iter().enumerate() {
            let mut session = servers.connect(0);
            let again = |session: &mut Session, statement: &str| {
                let began = Instant::now();
                while let Err(error) = session.try_query(statement) {
                    assert!(began.elapsed() < HANG_GUARD, "{statement}: {error}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            };
            again(&mut session, "CREATE DATABASE IF NOT EXISTS test");
            session.query("USE test");
            session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
            again(
                &mut session,
                "CREATE OR REPLACE TABLE v (id INT PRIMARY KEY, a INT, UNIQUE KEY (a)) ENGINE=VINGA",
            );
            session.query(theirs);
            session.query(TABLES[2]);
            session.query("BEGIN");
            session.query(beginning);
            session.query("INSERT INTO i VALUES (1, 1)");
            servers.data.kill();
            // Another session over the same connection detects the failure.
            let mut watcher = servers.connect(0);
            let began = Instant::now();
            while watcher.try_query("SELECT * FROM v").is_ok() {
                assert!(began.elapsed() < HANG_GUARD, "the loss is noticed");
            }
            if is_back {
                servers.data.restart();
            }
            session.query("INSERT INTO i VALUES (2, 2)");
            let (number, sentence) = session.error("COMMIT");
            assert!(matches!(number, 1296 | 1297), "{beginning}: {sentence}");
            assert_eq!(
                session.lines("SELECT * FROM i"),
                [""; 0],
                "round {round}, back: {is_back}, {beginning}"
            );
            assert_eq!(session.lines("SELECT @@in_transaction"), ["0"]);
            // The session continues.
            session.query("INSERT INTO i VALUES (3, 3)");
            if !is_back {
                servers.data.restart();
            }
        }
        servers.check_alive();
    }
}

/// The server waits for replicas between the log and the engines: here the data node ends meanwhile.
const WAITS_BEFORE_COMMIT: [(&str, &str); 4] = [
    ("log_bin", "changes"),
    ("server_id", "7"),
    ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
    ("rpl_semi_sync_master_timeout", "3600000"),
];

/// What others have committed is not to be repeated, though the part of the data nodes was rolled back.
#[test]
fn a_commit_that_only_others_have_made_is_not_called_rolled_back() {
    let mut servers = Servers::start_with(PROGRAM, 1, &[], &WAITS_BEFORE_COMMIT);
    let (mut session, mut other) = (servers.connect(0), servers.connect(0));
    TABLES.iter().for_each(|statement| _ = session.query(statement));
    session.query("BEGIN");
    session.query("INSERT INTO v VALUES (3, 3)");
    session.query("INSERT INTO i VALUES (3, 3)");
    other.query("SET GLOBAL rpl_semi_sync_master_enabled = ON");
    let (number, sentence) = std::thread::scope(|threads| {
        let commit = threads.spawn(|| session.error("COMMIT"));
        let waits = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync%'";
        let began = Instant::now();
        while other.lines(waits).is_empty() {
            assert!(began.elapsed() < HANG_GUARD && !commit.is_finished(), "it waits");
        }
        servers.data.kill();
        let began = Instant::now();
        while other.try_query("SELECT * FROM v").is_ok() {
            assert!(began.elapsed() < HANG_GUARD, "the loss is noticed");
        }
        // It goes on.
        other.query("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
        commit.join().expect("an error")
    });
    assert_eq!(number, 1296, "nothing to try again: {sentence}");
    assert!(sentence.contains("have committed") && !sentence.contains("retry"), "{sentence}");
    assert_eq!(session.lines("SELECT * FROM i"), ["3 3"]);
    session.query("INSERT INTO i VALUES (4, 4)");
    servers.data.restart();
    servers.check_alive();
}
