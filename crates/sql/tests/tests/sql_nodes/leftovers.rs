//! Files that a SQL node has for tables (definitions that it has altered or locked, triggers) are removed together with
//! their tables, also if the SQL node has missed what happened to these.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Instant;
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session, TestCluster, eventually, program, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const NO_SUCH_TABLE: u16 = 1146;

/// Names of the files of a database at a SQL node; none if there is no such folder.
fn files(session: &mut Session, database: &str) -> Vec<String> {
    let data = session.lines("SELECT @@datadir").remove(0);
    let Ok(folder) = Path::new(&data).join(database).read_dir() else { return Vec::new() };
    let mut names: Vec<_> =
        folder.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn definitions_of_a_killed_lock_are_not_believed() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let mut here = servers.connect(0);
    here.query("CREATE DATABASE d");
    for table in ["changed", "dropped", "same"] {
        here.query(&format!("CREATE TABLE d.{table} (id INT PRIMARY KEY, v INT) ENGINE=VINGA"));
    }
    here.query("LOCK TABLES d.changed WRITE, d.dropped WRITE, d.same WRITE");
    assert!(
        files(&mut here, "d").contains(&"changed.frm".to_owned()),
        "the server has files while tables are locked"
    );
    servers.sql_nodes[0].kill().expect("it can be killed");
    let mut there = servers.connect(1);
    there.query("DROP TABLE d.changed, d.dropped");
    there.query("CREATE TABLE d.changed (id INT PRIMARY KEY, w VARCHAR(9)) ENGINE=VINGA");
    there.query("INSERT INTO d.changed VALUES (1, 'new')");
    servers.sql_nodes[0].restart().expect("it starts again");
    let mut here = servers.connect(0);
    assert_eq!(here.lines("SHOW TABLES FROM d"), ["changed", "same"]);
    assert_eq!(here.lines("SELECT * FROM d.changed"), ["1 new"]);
    assert_eq!(here.error("SELECT * FROM d.dropped").0, NO_SUCH_TABLE);
    here.query("CREATE TABLE d.dropped (id INT PRIMARY KEY) ENGINE=VINGA");
    here.query("INSERT INTO d.same VALUES (1, 1)");
    assert_eq!(files(&mut here, "d"), ["db.opt"]);
    here.query("DROP DATABASE d");
    assert_eq!(files(&mut here, "d"), [""; 0]);
    assert!(there.lines("SHOW DATABASES LIKE 'd'").is_empty());
    servers.check_alive();
}

/// The columns of all tables of a database, as the server lists them without opening the tables.
fn columns(session: &mut Session, database: &str) -> Vec<String> {
    session.lines(&format!(
        "SELECT table_name, GROUP_CONCAT(column_name ORDER BY ordinal_position) FROM information_schema.columns \
         WHERE table_schema = '{database}' GROUP BY 1 ORDER BY 1"
    ))
}

/// A SQL node that stands still while others change tables has a file of each that it has altered itself.
#[test]
fn definitions_of_changes_that_were_missed_are_not_believed() {
    let mut servers = Servers::start(PROGRAM, 2, &[]);
    let (mut here, mut there) = (servers.connect(0), servers.connect(1));
    here.query("CREATE DATABASE d");
    for table in ["changed", "dropped", "same"] {
        here.query(&format!("CREATE TABLE d.{table} (id INT PRIMARY KEY, v INT) ENGINE=VINGA"));
        here.query(&format!("ALTER TABLE d.{table} ADD COLUMN added INT"));
        // Listed, but not opened: only the server knows that it has cached its definition.
        here.query(&format!("CREATE TABLE d.{table}_listed (id INT PRIMARY KEY, v INT) ENGINE=VINGA"));
        here.query("FLUSH TABLES");
        here.query(&format!("SHOW CREATE TABLE d.{table}_listed"));
    }
    assert!(files(&mut here, "d").contains(&"changed.frm".to_owned()), "ALTER leaves a file");
    let process = Pid::from_raw(servers.sql_nodes[0].id().cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("it runs");
    for end in ["", "_listed"] {
        there.query(&format!("DROP TABLE d.dropped{end}"));
        there.query(&format!("ALTER TABLE d.changed{end} ADD COLUMN new INT, DROP COLUMN v"));
    }
    kill_process(process, Signal::CONT).expect("it runs");
    let expected = columns(&mut there, "d");
    assert_eq!(expected[0], "changed id,added,new");
    eventually("it knows the changes", || columns(&mut here, "d") == expected);
    assert_eq!(here.lines("SHOW TABLES FROM d"), there.lines("SHOW TABLES FROM d"));
    eventually("no definitions are left", || files(&mut here, "d") == ["db.opt"]);
    servers.check_alive();
}

/// Files of tables that statements have locked belong to these statements, and do not delay others.
#[test]
fn definitions_of_tables_that_are_gone_are_removed_when_no_one_uses_them() {
    let mut servers = Servers::start(PROGRAM, 1, &[("Diskless", "yes")]);
    let (mut here, mut locker) = (servers.connect(0), servers.connect(0));
    here.query("CREATE DATABASE d");
    for table in ["altered", "locked"] {
        here.query(&format!("CREATE TABLE d.{table} (id INT PRIMARY KEY) ENGINE=VINGA"));
    }
    here.query("ALTER TABLE d.altered ADD COLUMN v INT");
    locker.query("LOCK TABLES d.locked WRITE");
    assert_eq!(files(&mut here, "d"), ["altered.frm", "db.opt", "locked.frm"]);
    servers.data.restart();
    eventually("the file is removed", || files(&mut here, "d") == ["db.opt", "locked.frm"]);
    eventually("the database is sent to the data nodes", || {
        here.try_query("CREATE TABLE d.new (id INT PRIMARY KEY) ENGINE=VINGA").is_ok()
    });
    locker.query("UNLOCK TABLES");
    eventually("the file is removed", || files(&mut here, "d") == ["db.opt"]);
    assert_eq!(here.lines("SHOW TABLES FROM d"), ["new"]);
    let socket = format!("--socket={}", servers.sql_nodes[0].socket().display());
    run(program("mariadb-dump").args(["--no-defaults", "--user=root", &socket, "d"]));
    servers.check_alive();
}

/// The server ends within a drop that fails, for which the triggers are aside.
#[test]
fn triggers_that_were_aside_are_put_back() {
    let mut servers = Servers::start(PROGRAM, 1, &[]);
    let mut session = servers.connect(0);
    session.query("CREATE DATABASE d");
    session.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    session.query("CREATE TRIGGER d.first BEFORE INSERT ON d.t FOR EACH ROW SET NEW.v = 1");
    let data = session.lines("SELECT @@datadir").remove(0);
    let file = |name: &str| Path::new(&data).join("d").join(name);
    servers.sql_nodes[0].kill().expect("it can be killed");
    std::fs::rename(file("t.TRG"), file("t.TRG-kept")).expect("the table has triggers");
    servers.sql_nodes[0].restart().expect("it starts again");
    let mut session = servers.connect(0);
    session.query("INSERT INTO d.t VALUES (1, 0)");
    assert_eq!(session.lines("SELECT v FROM d.t"), ["1"]);
    session.query("DROP DATABASE d");
    assert_eq!(files(&mut session, "d"), [""; 0]);
    servers.check_alive();
}

#[test]
fn lost_triggers_keep_no_database() {
    for drops_here in [true, false] {
        let cluster = TestCluster::start(2);
        let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
        here.query("CREATE DATABASE d");
        here.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
        there.query("CREATE TRIGGER d.first BEFORE INSERT ON d.t FOR EACH ROW SET NEW.v = 1");
        // The trigger remains under the old name.
        here.query("RENAME TABLE d.t TO d.other");
        assert_eq!(files(&mut there, "d"), ["db.opt", "first.TRN", "t.TRG"]);
        let session = if drops_here { &mut there } else { &mut here };
        session.query("DROP DATABASE d");
        let began = Instant::now();
        while !there.lines("SHOW DATABASES LIKE 'd'").is_empty() {
            assert!(began.elapsed() < HANG_GUARD, "{:?}", files(&mut there, "d"));
        }
    }
    // If there are tables of another engine none of their files are touched.
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    here.query("CREATE DATABASE d");
    here.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=VINGA");
    there.query("CREATE TABLE d.i (id INT PRIMARY KEY, v INT) ENGINE=InnoDB");
    there.query("CREATE TRIGGER d.of_i BEFORE INSERT ON d.i FOR EACH ROW SET NEW.v = 1");
    here.query("DROP DATABASE d");
    let began = Instant::now();
    while there.try_query("SELECT * FROM d.t").is_ok() {
        assert!(began.elapsed() < HANG_GUARD, "the table is dropped");
    }
    there.query("INSERT INTO d.i VALUES (1, 0)");
    assert_eq!(there.lines("SELECT v FROM d.i"), ["1"]);
}
