//! SQL nodes as real processes: started, stopped, killed, refused. Each server has a memory limit.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vinga_sqlnode::{
    Answer, Connection, Installation, ScopedSqlNode, Settings, SqlError, SqlNode, StartError, Stopped,
    running, stop,
};

/// No process listens there.
const NO_DATA_NODE: &str = "127.0.0.1:1";

fn installation() -> Installation {
    Installation::find().expect("'make sql' was run")
}

/// A folder of a test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("vinga-nodes-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Folder(folder)
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.0.join("sql-1"), NO_DATA_NODE, installation());
        settings.address_space_max = Some(3 << 30);
        settings
    }

    /// A start that must be refused; returns the error and its text.
    fn refused(&self, change: impl FnOnce(&mut Settings)) -> (StartError, String) {
        let mut settings = self.settings();
        change(&mut settings);
        let error = SqlNode::start(settings).expect_err("it must be refused");
        let sentence = error.to_string();
        assert_eq!(running(&self.0.join("sql-1")).expect("the folder can be read"), None, "{sentence}");
        (error, sentence)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = stop(&self.0.join("sql-1"));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn value(connection: &mut Connection, statement: &str) -> String {
    connection.rows(statement).expect("a good statement")[0][0].clone()
}

#[test]
fn a_node_is_started_stopped_killed_and_keeps_what_is_its_own() {
    let mut node = ScopedSqlNode::start(NO_DATA_NODE).expect("it starts without data nodes");
    let mut session = node.connect().expect("it answers");
    assert!(session.server().contains("MariaDB"), "{}", session.server());
    session.query("CREATE DATABASE own").expect("it is new");
    session.query("CREATE TABLE own.t (a INT PRIMARY KEY) ENGINE=InnoDB").expect("it is new");
    let inserted = session.query("INSERT INTO own.t VALUES (1), (2)").expect("they are new");
    assert_eq!(inserted, Answer { affected: 2, ..Answer::default() });

    // It is found by the same folder, and not started twice.
    let found = running(node.folder()).expect("the folder can be read").expect("it runs");
    assert_eq!((found.pid as u32, found.address), (node.id(), Some(node.address())));
    let second = Settings::new(node.folder(), NO_DATA_NODE, installation());
    let error = SqlNode::start(second).expect_err("one runs there");
    assert!(matches!(error, StartError::AlreadyRunning(_)), "{error}");
    session.query("SELECT 1").expect("the second start did not affect it");

    let port = node.port();
    assert_eq!(node.stop().expect("it can be stopped"), Stopped::Cleanly);
    assert!(matches!(session.query("SELECT 1"), Err(SqlError::Lost(_) | SqlError::Server { .. })));
    assert_eq!(running(node.folder()).expect("the folder can be read"), None);
    assert!(!node.folder().join("vinga.address").exists());
    assert_eq!(node.stop().expect("it has stopped already"), Stopped::Cleanly);

    node.restart().expect("it starts again");
    assert_eq!(node.port(), port);
    let mut session = Connection::open_tcp(node.address()).expect("it answers over TCP, too");
    assert_eq!(value(&mut session, "SELECT COUNT(*) FROM own.t"), "2");
    session.query("INSERT INTO own.t VALUES (3)").expect("it is new");

    node.kill().expect("it can be killed");
    assert!(!node.is_alive());
    assert_eq!(running(node.folder()).expect("the folder can be read"), None);
    node.restart().expect("it starts again");
    let mut session = node.connect().expect("it answers");
    assert_eq!(value(&mut session, "SELECT COUNT(*) FROM own.t"), "3");
    assert!(node.memory_max().expect("it lives") < 1 << 30);
}

#[test]
fn two_nodes_run_side_by_side() {
    let nodes = [(); 2].map(|()| ScopedSqlNode::start(NO_DATA_NODE).expect("it starts"));
    assert_ne!(nodes[0].port(), nodes[1].port());
    for node in &nodes {
        let mut session = Connection::open_tcp(node.address()).expect("it answers");
        let data = value(&mut session, "SELECT @@datadir");
        assert!(Path::new(&data).starts_with(node.folder()), "{data}");
        let mode = fs::metadata(&data).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "accounts are in it");
    }
}

#[test]
fn settings_hold_and_can_be_given() {
    let node = ScopedSqlNode::start_with(NO_DATA_NODE, |settings| {
        settings.variables.push(("join_cache_level".to_owned(), "8".to_owned()));
    });
    let node = node.expect("it starts");
    let mut session = node.connect().expect("it answers");
    let expected = [
        ("vinga_connectstring", NO_DATA_NODE),
        ("join_cache_level", "8"),
        ("log_bin", "0"),
        ("query_cache_type", "OFF"),
        ("bind_address", "127.0.0.1"),
        ("character_set_server", "utf8mb4"),
        ("innodb_buffer_pool_size", "16777216"),
    ];
    for (variable, wanted) in expected {
        assert_eq!(value(&mut session, &format!("SELECT @@{variable}")), wanted, "{variable}");
    }
    let engine = "SELECT support FROM information_schema.engines WHERE engine = 'VINGA'";
    assert_eq!(value(&mut session, engine), "DEFAULT");
}

#[test]
fn a_stale_process_id_is_harmless() {
    let folder = Folder::new("stale");
    let place = folder.0.join("sql-1");
    fs::create_dir_all(&place).expect("a folder can be made");
    // A process with this id exists: this one.
    fs::write(place.join("vinga.pid"), format!("{}\n", std::process::id())).expect("a file can be written");
    fs::write(place.join("vinga.address"), "127.0.0.1:1\n").expect("a file can be written");
    assert_eq!(running(&place).expect("the folder can be read"), None);
    assert_eq!(stop(&place).expect("nothing is to be stopped"), None);
    let mut node = SqlNode::start(folder.settings()).expect("it starts");
    let found = running(&place).expect("the folder can be read").expect("it runs");
    assert_eq!((found.pid as u32, found.address), (node.id(), Some(node.address())));
    // Any process can stop it by its folder, not only the one that has started it.
    let stopped = std::thread::scope(|threads| {
        let stopping = threads.spawn(|| stop(&place));
        while node.is_alive() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stopping.join().expect("it does not panic")
    });
    assert_eq!(stopped.expect("it can be stopped"), Some(Stopped::Cleanly));
}

#[test]
fn a_node_ends_with_the_thread_that_started_it_if_that_is_wanted() {
    let folder = Folder::new("starter");
    let mut settings = folder.settings();
    settings.ends_with_starter = true;
    let place = settings.folder.clone();
    let mut node = std::thread::spawn(move || {
        let node = SqlNode::start(settings).expect("it starts");
        assert!(running(&place).expect("the folder can be read").is_some());
        node
    })
    .join()
    .expect("it does not panic");
    while node.is_alive() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let folder = Folder::new("refused");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it is bound").port();
    let (error, said) = folder.refused(|settings| settings.port = port);
    assert!(matches!(error, StartError::PortInUse(_)) && said.contains(&port.to_string()), "{said}");

    let long = folder.0.join("x".repeat(100));
    let (error, said) = folder.refused(|settings| settings.folder = long.clone());
    assert!(matches!(error, StartError::LongSocketPath(_)) && said.contains("107"), "{said}");

    let (error, said) =
        folder.refused(|settings| settings.variables = vec![("no_such_thing".into(), "1".into())]);
    assert!(matches!(error, StartError::Ended { .. }) && said.contains("no_such_thing"), "{said}");

    let (error, said) = folder.refused(|settings| settings.address_space_max = Some(64 << 20));
    assert!(matches!(error, StartError::Ended { .. }), "{said}");

    let (error, said) = folder.refused(|settings| settings.patience = Duration::from_millis(10));
    assert!(matches!(error, StartError::Silent { .. }) && said.contains("within 0.01 s"), "{said}");
}

#[test]
fn plugins_that_do_not_fit_are_refused() {
    let folder = Folder::new("plugins");
    let real = installation();
    let of = |plugin: &Path| Installation::of(Some(real.mariadb().to_owned()), Some(plugin.to_owned()));
    let plugin = folder.0.join("ha_vinga.so");
    let error = of(&plugin).expect_err("there is none");
    assert!(matches!(error, StartError::NoPlugin(_)) && error.to_string().contains("make sql"), "{error}");
    let error =
        Installation::of(Some(folder.0.clone()), Some(real.plugin().to_owned())).expect_err("no server");
    assert!(matches!(error, StartError::NoServer(_)), "{error}");

    fs::copy(real.plugin(), &plugin).expect("it can be copied");
    let installation = of(&plugin).expect("it is there");
    let (error, said) = folder.refused(|settings| settings.installation = installation.clone());
    assert!(
        matches!(error, StartError::PluginOfUnknownServer(_)) && said.contains("ha_vinga.server"),
        "{said}"
    );

    let server = plugin.with_extension("server");
    fs::write(&server, "10.11.99-MariaDB\n").expect("a file can be written");
    let (error, said) = folder.refused(|settings| settings.installation = installation.clone());
    assert!(matches!(error, StartError::PluginOfAnotherServer { .. }), "{said}");
    assert!(said.contains("10.11.99-MariaDB") && said.contains("make sql"), "{said}");
    assert!(!folder.0.join("sql-1/vinga.log").exists(), "the server was not asked");

    // The file beside it matches the server, but it is no plugin: then the server refuses it, and does not start
    // without.
    fs::copy(real.plugin().with_extension("server"), &server).expect("it can be copied");
    fs::remove_file(&plugin).expect("it is there");
    fs::write(&plugin, "no library").expect("a file can be written");
    let (error, said) = folder.refused(|settings| settings.installation = installation.clone());
    assert!(matches!(error, StartError::Ended { .. }) && said.contains("ha_vinga"), "{said}");
}

#[test]
fn data_of_another_server_is_left_alone() {
    let folder = Folder::new("data");
    let data = folder.0.join("sql-1/data");
    fs::create_dir_all(&data).expect("a folder can be made");
    fs::write(data.join("precious"), "x").expect("a file can be written");
    let (error, said) = folder.refused(|_| ());
    assert!(matches!(error, StartError::DataOfAnotherServer { made_by: None, .. }), "{said}");
    fs::write(data.join("mysql_upgrade_info"), "11.4.2-MariaDB").expect("a file can be written");
    let (error, said) = folder.refused(|_| ());
    assert!(matches!(error, StartError::DataOfAnotherServer { .. }) && said.contains("11.4.2"), "{said}");
    assert!(data.join("precious").exists() && !data.join("mysql").exists());
    // The remains of an interrupted start do not block the next one.
    fs::rename(&data, folder.0.join("sql-1/data.new")).expect("it can be renamed");
    SqlNode::start(folder.settings()).expect("it starts").kill().expect("it can be killed");
    assert!(!data.join("precious").exists() && data.join("mysql").exists());
}

#[test]
fn sessions_say_what_the_server_says() {
    let node = ScopedSqlNode::start(NO_DATA_NODE).expect("it starts");
    let mut session = node.connect().expect("it answers");
    session.query("CREATE DATABASE d").expect("it is new");
    let create =
        "CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(20) UNIQUE, c LONGTEXT) ENGINE=InnoDB";
    assert_eq!(session.query(create).expect("a good statement"), Answer::default());
    let inserted = session.query("INSERT INTO d.t VALUES (NULL, 'grün', NULL)").expect("it is new");
    assert_eq!((inserted.affected, inserted.last_insert_id), (1, 1));
    let error = session.query("INSERT INTO d.t VALUES (NULL, 'grün', NULL)").expect_err("it is there");
    assert_eq!(error.number(), Some(1062));
    assert!(error.to_string().contains("(23000)") && error.to_string().contains("grün"), "{error}");
    assert_eq!(session.query(b"SELECT * FROM \xff\xfe").expect_err("nonsense").number(), Some(1064));
    let answer = session.query("SELECT a, b AS colour, c FROM d.t").expect("a good statement");
    assert_eq!(answer.columns, ["a", "colour", "c"]);
    assert_eq!(answer.rows, [[Some(b"1".to_vec()), Some("grün".into()), None]]);
    assert_eq!(answer.strings(), [["1", "grün", "NULL"]]);

    // Packets longer than 16 MiB, both ways.
    session.query("SET GLOBAL max_allowed_packet = 64 << 20").expect("root may");
    let mut session = node.connect().expect("it answers");
    let long = "x".repeat((1 << 24) - 1);
    session.query(format!("UPDATE d.t SET c = '{long}'")).expect("a good statement");
    assert_eq!(value(&mut session, "SELECT c FROM d.t"), long);

    // Another session ends this one.
    let number = session.session();
    node.connect().expect("it answers").query(format!("KILL {number}")).expect("it is there");
    let error = session.query("SELECT 1").expect_err("it was killed");
    assert!(matches!(error.number(), None | Some(1927)), "{error}");
    session = node.connect().expect("it answers");
    session.set_patience(Duration::from_millis(50)).expect("a time-out can be set");
    assert!(matches!(session.query("SELECT SLEEP(5)"), Err(SqlError::Lost(_))));
}
