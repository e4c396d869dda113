//! The data node is lost while a statement that copies a table is about to end: the old table is there afterwards, with
//! all of its rows, and nothing else. It can be copied again.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable};
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{HANG_GUARD, Session, eventually};
use vinga_sqlnode::SqlError;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_node_of_test");

const ROWS: u32 = 300;
const ALTER: &str = "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 7";
/// The server's words for a statement that waits until nobody uses a table any more.
const WAITS: &str = "Waiting for table metadata lock";

/// When the data node starts again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Restart {
    /// While the statement waits: the connection is there again when it goes on.
    BeforeItGoesOn,
    /// The statement has failed by then.
    BehindItsEnd,
}

/// Servers with a disk, and the folder of the data node; it is removed at the end.
struct World {
    servers: Servers,
    folder: PathBuf,
    native: Option<Cluster>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("vinga-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("temporary folders can be made");
        let parameters = [
            ("DataDir", folder.to_str().expect("the path is a text")),
            ("NoOfFragmentLogFiles", "3"),
            ("FragmentLogFileSize", "4M"),
        ];
        let servers = Servers::start(PROGRAM, 1, &parameters);
        let mut session = servers.connect(0);
        session.query("SET vinga_durability = disk");
        session.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=VINGA");
        session.query(&format!("INSERT INTO t SELECT seq, seq FROM seq_1_to_{ROWS}"));
        session.query("CREATE TABLE beside (id INT PRIMARY KEY) ENGINE=VINGA");
        World { servers, folder, native: None }
    }

    /// Runs a statement until it waits in a state of the server, loses the data node, and lets the statement go on.
    fn lose_while(
        &mut self,
        session: &mut Session,
        statement: &str,
        state: &str,
        restart: Restart,
        go_on: impl FnOnce(),
    ) -> SqlError {
        let mut other = self.servers.connect(0);
        let id = session.lines("SELECT CONNECTION_ID()").remove(0);
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id} AND state = '{state}'"
        );
        let said = thread::scope(|threads| {
            let running = threads.spawn(|| session.try_query(statement));
            eventually("the statement waits", || other.lines(&waits) == ["1"]);
            self.servers.data.kill();
            if restart == Restart::BeforeItGoesOn {
                self.servers.data.restart();
                eventually("the SQL node is connected", || {
                    other.try_query("SELECT COUNT(*) FROM beside").is_ok()
                });
            }
            go_on();
            let said = running.join().expect("it does not panic");
            if restart == Restart::BehindItsEnd {
                self.servers.data.restart();
            }
            said
        });
        let error = said.expect_err("the data node was lost");
        println!("{restart:?}: {statement}: {error}");
        assert!(error.number().is_some(), "the session goes on: {error}");
        error
    }

    /// The tables of the database at the data nodes.
    fn native_tables(&mut self) -> Vec<String> {
        let address = self.servers.data.address();
        let native =
            self.native.get_or_insert_with(|| Cluster::connect(&address).expect("the data node answers"));
        let names = native.tables().unwrap_or_default().into_iter();
        names.filter_map(|name| name.strip_prefix("test.").map(str::to_owned)).collect()
    }

    /// Only the tables that were made at first are left in a moment.
    fn await_rest(&mut self) {
        let begun = Instant::now();
        loop {
            let mut found = self.native_tables();
            found.sort();
            if found == ["beside", "t"] {
                return;
            }
            assert!(begun.elapsed() < HANG_GUARD, "{found:?} are there");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A statement succeeds as soon as the SQL node is connected; it meets nothing that another has left.
fn succeeds_soon(session: &mut Session, statement: &str) {
    eventually(statement, || match session.try_query(statement) {
        Ok(_) => true,
        Err(error) => {
            let is_expected = error.number().is_some_and(|number| [1296, 1297, 1412].contains(&number));
            assert!(is_expected, "{statement}: {error}");
            false
        }
    });
}

fn is_whole(session: &mut Session, table: &str) {
    let all = [format!("{ROWS} {}", ROWS * (ROWS + 1) / 2)];
    let count = format!("SELECT COUNT(*), SUM(a) FROM {table}");
    succeeds_soon(session, &count);
    assert_eq!(session.lines(&count), all);
    assert_eq!(
        session.lines(&format!("SELECT COUNT(*), SUM(a) FROM {table} FORCE INDEX (a) WHERE a > 0")),
        all
    );
}

#[test]
fn the_old_table_is_there() {
    let mut world = World::new("copying");
    let (mut session, mut reader) = (world.servers.connect(0), world.servers.connect(0));
    let (renames, leaves) = (format!("{ALTER}, RENAME TO u"), format!("{ALTER}, ENGINE=InnoDB"));
    let all = [ALTER, &renames, &leaves];
    // The other engine has all rows when the statement goes on.
    for (restart, statements) in [(Restart::BeforeItGoesOn, &all[..2]), (Restart::BehindItsEnd, &all)] {
        for &statement in statements {
            // Whoever has read the table keeps its definition: the copy is complete, and waits.
            reader.query("BEGIN");
            reader.query("SELECT COUNT(*) FROM t");
            let go_on = || _ = reader.try_query("ROLLBACK");
            world.lose_while(&mut session, statement, WAITS, restart, go_on);
            succeeds_soon(&mut session, "SELECT COUNT(*) FROM t");
            assert_eq!(session.lines("SHOW COLUMNS FROM t").len(), 2, "{statement}");
            is_whole(&mut session, "t");
            // At once, by the same session: with the same temporary names.
            succeeds_soon(&mut session, ALTER);
            is_whole(&mut session, "t");
            assert_eq!(session.lines("SELECT SUM(b) FROM t"), [(7 * ROWS).to_string()]);
            session.query("UPDATE t SET a = a WHERE id = 1");
            world.await_rest();
            assert_eq!(session.lines("SHOW TABLES"), ["beside", "t"]);
            session.query("ALTER TABLE t DROP COLUMN b");
        }
    }
}

/// What the statement could not drop is known to the next run of the SQL node.
#[test]
fn a_copy_is_dropped_even_if_the_sql_node_is_killed_before() {
    let mut world = World::new("copying-killed");
    let sessions = [0; 3].map(|node| world.servers.connect(node));
    let [mut session, mut reader, mut other] = sessions;
    reader.query("BEGIN");
    reader.query("SELECT COUNT(*) FROM t");
    let waits = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE state = '{WAITS}'");
    thread::scope(|threads| {
        let running = threads.spawn(|| session.try_query(ALTER));
        eventually("the statement waits", || other.lines(&waits) == ["1"]);
        world.servers.data.kill();
        _ = reader.try_query("ROLLBACK");
        running.join().expect("it does not panic").expect_err("the data node is gone");
    });
    world.servers.sql_nodes[0].kill().expect("it can be killed");
    world.servers.data.restart();
    let native = Cluster::connect(&world.servers.data.address()).expect("the data node answers");
    let has_copy = || {
        let names = native.tables().expect("the data node answers");
        names.iter().any(|name| name.starts_with("test.#sql"))
    };
    assert!(has_copy(), "nobody has dropped it yet");
    // One of another SQL node, for all that is known.
    let id = ColumnType::Integer { bytes: 8, signed: false };
    let foreign = NewTable::new("test.#sql-alter-1-1").column("id", id).primary_key(&["id"]);
    native.create_table(foreign).expect("it can be created");
    world.servers.sql_nodes[0].restart().expect("it starts again");
    eventually("only the other one is there", || {
        let names = native.tables().expect("the data node answers");
        let copies: Vec<&String> = names.iter().filter(|name| name.starts_with("test.#sql")).collect();
        copies == ["test.#sql-alter-1-1"]
    });
    native.drop_table("test.#sql-alter-1-1").expect("it stays");
    let mut session = world.servers.connect(0);
    succeeds_soon(&mut session, ALTER);
    is_whole(&mut session, "t");
    world.await_rest();
}

#[test]
fn a_table_of_another_engine_is_there() {
    let mut world = World::new("copying-innodb");
    let (mut session, mut reader) = (world.servers.connect(0), world.servers.connect(0));
    session.query("CREATE TABLE i ENGINE=InnoDB SELECT id, a FROM t");
    session.query("ALTER TABLE i ADD PRIMARY KEY (id), ADD KEY (a)");
    for restart in [Restart::BeforeItGoesOn, Restart::BehindItsEnd] {
        reader.query("BEGIN");
        reader.query("SELECT COUNT(*) FROM i");
        let go_on = || _ = reader.try_query("ROLLBACK");
        world.lose_while(&mut session, "ALTER TABLE i ENGINE=VINGA", WAITS, restart, go_on);
        is_whole(&mut session, "i");
        assert!(session.lines("SHOW CREATE TABLE i")[0].contains("ENGINE=InnoDB"));
        world.await_rest();
    }
    succeeds_soon(&mut session, "ALTER TABLE i ENGINE=VINGA");
    is_whole(&mut session, "i");
    session.query("DROP TABLE i");
    world.await_rest();
}
