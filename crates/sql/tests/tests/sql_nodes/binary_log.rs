//! Replaying a binary log produces the same rows from the same rows, whatever others did at the same time: it contains
//! rows, not statements.

use std::process::{Command, Stdio};
use vinga_sql_tests::{Session, TestCluster, packaged, program, run};

/// The server's error: "Cannot log statements for this engine".
const ROW_ENGINE: u16 = 1665;
const LOG: &str = "changes.000001";

fn cluster(isolation: &str) -> TestCluster {
    let variables = [
        ("log_bin", "changes"),
        ("server_id", "7"),
        ("binlog_format", "MIXED"),
        ("transaction_isolation", isolation),
    ];
    TestCluster::start_with(1, &[], &variables)
}

/// The current end of the binary log.
fn end_of_log(session: &mut Session) -> String {
    session.query("SHOW MASTER STATUS")[0][1].clone()
}

/// A program of the server that has no name among the programs for users.
fn server_program(name: &str) -> Command {
    let mut command = Command::new(packaged("usr/bin").join(name));
    let libraries = std::fs::read_dir(packaged("usr/lib")).expect("the server was unpacked");
    let folders = libraries.map(|folder| folder.expect("it can be read").path().display().to_string());
    command.env(
        "LD_LIBRARY_PATH",
        folders.filter(|path| path.contains("-linux-gnu")).collect::<Vec<_>>().join(":"),
    );
    command
}

/// Replays a part of the log.
fn replay(cluster: &TestCluster, start: &str, stop: &str) {
    let node = &cluster.sql_nodes[0];
    let mut reader = server_program("mariadb-binlog");
    reader.args(["--no-defaults", "--disable-log-bin"]);
    reader.arg(format!("--start-position={start}")).arg(format!("--stop-position={stop}"));
    reader.arg(node.folder().join("data").join(LOG)).stdout(Stdio::piped());
    let mut reading = reader.spawn().expect("it came with the server");
    let events = reading.stdout.take().expect("it was piped");
    let socket = format!("--socket={}", node.socket().display());
    run(program("mariadb").args(["--no-defaults", "--user=root", &socket]).stdin(events));
    assert!(reading.wait().expect("it ends").success(), "the log can be read");
}

/// Statements that read rows while another transaction, which commits first, changes them.
const READERS: [&str; 5] = [
    "INSERT INTO target SELECT id + 20, v FROM source",
    "REPLACE INTO target SELECT id + 10, v FROM source",
    "INSERT INTO target SELECT id + 10, v FROM source ON DUPLICATE KEY UPDATE v = source.v + 1",
    "UPDATE target, source SET target.v = source.v + 10 WHERE target.id = source.id + 10",
    "DELETE target FROM target JOIN source ON target.id = source.id + 10 WHERE source.v = 1",
];

/// Fills the tables without writing to the binary log.
fn fill(session: &mut Session) {
    session.query("SET sql_log_bin = 0");
    session.query("DELETE FROM source");
    session.query("DELETE FROM target");
    session.query("INSERT INTO source VALUES (1, 1), (2, 2)");
    session.query("INSERT INTO target VALUES (2, 7), (11, 7)");
    session.query("SET sql_log_bin = 1");
}

fn contents(session: &mut Session) -> [Vec<String>; 2] {
    ["source", "target"].map(|table| session.lines(&format!("SELECT * FROM {table} ORDER BY id")))
}

/// Takes the engines of the table that is read and of the one that is changed, and the isolation level.
fn read_while_another_commits(readers: &[&str], source: &str, target: &str, isolation: &str) {
    let cluster = cluster(isolation);
    let (mut first, mut second) = (cluster.connect(0), cluster.connect(0));
    first.query(&format!("CREATE TABLE source (id INT PRIMARY KEY, v INT) ENGINE={source}"));
    first.query(&format!("CREATE TABLE target (id INT PRIMARY KEY, v INT) ENGINE={target}"));
    for reader in readers {
        fill(&mut first);
        let start = end_of_log(&mut first);
        first.query("BEGIN");
        first.query("UPDATE source SET v = 1000 WHERE id = 1");
        second.query("BEGIN");
        second.query(reader);
        first.query("COMMIT");
        second.query("COMMIT");
        let stop = end_of_log(&mut first);
        let after = contents(&mut first);
        fill(&mut first);
        replay(&cluster, &start, &stop);
        assert_eq!(contents(&mut first), after, "{isolation}, from {source} to {target}: {reader}");
    }
}

#[test]
fn a_statement_beside_a_commit_is_logged_with_what_it_has_found() {
    for isolation in ["READ-COMMITTED", "REPEATABLE-READ"] {
        for target in ["VINGA", "InnoDB"] {
            read_while_another_commits(&READERS, "VINGA", target, isolation);
        }
    }
    // InnoDB locks the rows that the other statements read, and all of them under REPEATABLE READ.
    read_while_another_commits(&READERS[..3], "InnoDB", "VINGA", "READ-COMMITTED");
}

/// All kinds of changes to tables, and the effect of replaying their log.
#[test]
fn a_replay_makes_the_same_tables() {
    let cluster = cluster("READ-COMMITTED");
    let mut session = cluster.connect(0);
    let start = end_of_log(&mut session);
    let file = std::env::temp_dir().join(format!("vinga-load-{}.txt", std::process::id()));
    std::fs::write(&file, "90001\t1\n90002\t2\n").expect("a file can be written");
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t (id, v)", file.display());
    let changes = [
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, s TEXT, UNIQUE KEY (v, id)) ENGINE=VINGA",
        "INSERT INTO t (v, s) VALUES (1, 'a'), (2, NULL), (3, 'c')",
        "INSERT INTO t (v, s) SELECT seq, REPEAT('x', seq) FROM seq_10_to_300",
        "UPDATE t SET v = v + 1000, s = UUID() WHERE v < 50",
        "DELETE FROM t WHERE v BETWEEN 100 AND 150 LIMIT 20",
        "REPLACE INTO t VALUES (1, 5, 'r'), (400, 6, 'q')",
        "INSERT IGNORE INTO t VALUES (400, 7, 'z'), (401, 8, 'y')",
        "CREATE TEMPORARY TABLE aside SELECT * FROM t WHERE v > 200",
        "INSERT INTO t (v, s) SELECT v + 5000, s FROM aside",
        &load,
        "ALTER TABLE t ADD COLUMN added INT DEFAULT 9, ADD KEY (added)",
        "CREATE TABLE copy ENGINE=VINGA SELECT * FROM t WHERE v < 200",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT) ENGINE=InnoDB SELECT id, v FROM t WHERE v > 250",
        "BEGIN",
        "SAVEPOINT here",
        "DELETE FROM t WHERE v > 5200",
        "ROLLBACK TO here",
        "UPDATE t, other SET t.v = t.v + 1, other.v = 0 WHERE t.id = other.id",
        "COMMIT",
        "CREATE TABLE emptied LIKE t",
        "INSERT INTO emptied SELECT * FROM t",
        "TRUNCATE TABLE emptied",
        "RENAME TABLE emptied TO renamed",
    ];
    for change in changes {
        session.query(change);
    }
    std::fs::remove_file(&file).expect("it was written just now");
    let stop = end_of_log(&mut session);
    let tables = ["t", "copy", "other", "renamed"];
    let digest = |session: &mut Session| {
        tables.map(|table| {
            let mut lines = session.lines(&format!("SELECT * FROM {table} ORDER BY id"));
            lines.extend(session.lines(&format!("SHOW CREATE TABLE {table}")));
            lines
        })
    };
    let before = digest(&mut session);
    assert!(before[0].len() > 300 && before[1].len() > 50, "there are rows to compare");
    session.query("SET sql_log_bin = 0");
    for table in tables {
        session.query(&format!("DROP TABLE {table}"));
    }
    replay(&cluster, &start, &stop);
    assert_eq!(digest(&mut session), before);
}

/// A log of statements is refused where rows would have to be logged; statements that need none are executed.
#[test]
fn a_log_of_statements_is_refused() {
    let cluster = cluster("REPEATABLE-READ");
    let mut session = cluster.connect(0);
    session.query("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("CREATE TABLE i (id INT PRIMARY KEY, v INT) ENGINE=InnoDB");
    session.query("INSERT INTO t VALUES (1, 1)");
    session.query("SET binlog_format = STATEMENT");
    for statement in [
        "INSERT INTO t VALUES (2, 2)",
        "REPLACE INTO t VALUES (1, 2)",
        "UPDATE t SET v = 2",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t SELECT id + 10, v FROM i",
        "CREATE TABLE made ENGINE=VINGA SELECT * FROM i",
    ] {
        let (number, sentence) = session.error(statement);
        assert_eq!(number, ROW_ENGINE, "{statement}: {sentence}");
    }
    assert_eq!(session.lines("SELECT * FROM t"), ["1 1"]);
    // A later replay may read other rows: the server notes this, as for non-deterministic functions.
    session.query("INSERT INTO i SELECT * FROM t");
    let warnings = session.lines("SHOW WARNINGS");
    assert!(warnings.len() == 1 && warnings[0].starts_with("Note 1592"), "{warnings:?}");
    session.query("INSERT INTO i VALUES (5, 5)");
    assert_eq!(session.lines("SHOW WARNINGS"), [""; 0]);
    for statement in ["ALTER TABLE t ADD COLUMN w INT", "TRUNCATE TABLE t", "DROP TABLE t"] {
        session.query(statement);
        assert_eq!(session.lines("SHOW WARNINGS"), [""; 0], "{statement}");
    }
}

/// Statements whose rows get numbers in all possible ways; some of their rows fail.
const NUMBERED: [&str; 10] = [
    "INSERT INTO n (s) VALUES (1), (2)",
    "INSERT INTO n (s) SELECT seq FROM seq_10_to_20",
    "INSERT INTO n VALUES (100, 3)",
    "INSERT IGNORE INTO n (s) VALUES (4), (4), (5)",
    "REPLACE INTO n (s) VALUES (4), (6)",
    "INSERT INTO n (s) VALUES (7) ON DUPLICATE KEY UPDATE s = 8",
    "SET INSERT_ID = 200",
    "INSERT INTO n (s) VALUES (9)",
    "UPDATE n SET id = 300 WHERE s = 9",
    "INSERT INTO n (s) VALUES (21), (22), (23)",
];

/// Replays the log of one engine's tables on those of another; later numbers continue after those of the log.
fn replay_numbers(format: &str, from: &str, to: &str) {
    // InnoDB does not log statements below this level.
    let cluster = cluster("REPEATABLE-READ");
    let mut session = cluster.connect(0);
    let make = |session: &mut Session, engine: &str| {
        session.query("SET sql_log_bin = 0");
        session.query("DROP TABLE IF EXISTS n");
        session.query(&format!(
            "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, s INT UNIQUE) ENGINE={engine}"
        ));
        session.query("SET sql_log_bin = 1");
    };
    make(&mut session, from);
    session.query(&format!("SET binlog_format = {format}"));
    let start = end_of_log(&mut session);
    for statement in NUMBERED {
        session.query(statement);
    }
    let stop = end_of_log(&mut session);
    let rows = session.lines("SELECT * FROM n ORDER BY id");
    make(&mut session, to);
    replay(&cluster, &start, &stop);
    assert_eq!(session.lines("SELECT * FROM n ORDER BY id"), rows, "{format}, from {from} to {to}");
    session.query("SET sql_log_bin = 0");
    for s in 1000..1300 {
        session.query(&format!("INSERT INTO n (s) VALUES ({s})"));
    }
    let behind = session.lines("SELECT MIN(id) > 303, COUNT(*) FROM n WHERE s >= 1000");
    assert_eq!(behind, ["1 300"], "{format}, from {from} to {to}");
}

#[test]
fn numbers_go_on_behind_those_that_were_replayed() {
    for (format, from, to) in [
        ("STATEMENT", "InnoDB", "VINGA"),
        ("MIXED", "InnoDB", "VINGA"),
        ("ROW", "InnoDB", "VINGA"),
        ("MIXED", "VINGA", "VINGA"),
        ("ROW", "VINGA", "VINGA"),
        ("ROW", "VINGA", "InnoDB"),
    ] {
        replay_numbers(format, from, to);
    }
}

/// A replica whose tables are Vinga's, of a primary whose tables are InnoDB's.
#[test]
fn a_replica_passes_over_the_configured_errors() {
    for format in ["ROW", "STATEMENT"] {
        let data_node = vinga_datanode::LocalNode::start().expect("a data node starts");
        let node = |variables: &[(&str, &str)]| {
            vinga_sqlnode::ScopedSqlNode::start_with(data_node.address(), |settings| {
                let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
                settings.variables.extend(variables.iter().map(owned));
            })
            .unwrap_or_else(|error| panic!("{error}"))
        };
        let master = node(&[
            ("log_bin", "changes"),
            ("server_id", "1"),
            ("binlog_format", format),
            ("transaction_isolation", "REPEATABLE-READ"),
        ]);
        let slave = node(&[("server_id", "2"), ("slave_skip_errors", "1062"), ("slave_net_timeout", "60")]);
        let [mut on_master, mut on_slave] =
            [&master, &slave].map(|node| Session::new(node.connect().expect("a SQL node answers")));
        on_master.query("SET sql_log_bin = 0");
        for (session, engine) in [(&mut on_master, "InnoDB"), (&mut on_slave, "VINGA")] {
            session.query("CREATE DATABASE IF NOT EXISTS test");
            session.query("USE test");
            session
                .query(&format!("CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, s INT) ENGINE={engine}"));
        }
        on_master.query("SET sql_log_bin = 1");
        on_slave.query("INSERT INTO n VALUES (1, -1), (5, -5)");
        let start = on_master.query("SHOW MASTER STATUS");
        on_slave.query(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root', \
             MASTER_LOG_FILE = '{}', MASTER_LOG_POS = {}",
            master.port(),
            start[0][0],
            start[0][1]
        ));
        on_slave.query("START SLAVE");
        for statement in [
            "INSERT INTO n (s) VALUES (1)",
            "INSERT INTO n (s) VALUES (2)",
            "INSERT INTO n (s) VALUES (3), (4)",
            "INSERT INTO n VALUES (5, 5)",
            "INSERT INTO n (s) VALUES (6)",
        ] {
            on_master.query(statement);
        }
        let stop = on_master.query("SHOW MASTER STATUS");
        let wait = format!("SELECT MASTER_POS_WAIT('{}', {}) IS NULL", stop[0][0], stop[0][1]);
        let said = on_slave.lines(&wait);
        let state = on_slave.query("SHOW SLAVE STATUS");
        assert_eq!(said, ["0"], "{format}: the slave has stopped: {state:?}");
        let rows = on_slave.lines("SELECT * FROM n ORDER BY id");
        assert_eq!(rows, ["1 -1", "2 2", "3 3", "4 4", "5 -5", "6 6"], "{format}");
        on_slave.query("STOP SLAVE");
        on_slave.query("INSERT INTO n (s) VALUES (7)");
        assert_eq!(on_slave.lines("SELECT id > 6 FROM n WHERE s = 7"), ["1"], "{format}");
    }
}
