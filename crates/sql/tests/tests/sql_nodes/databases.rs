//! Databases that are created at one SQL node appear at the others: soon, with their options, and only as long as they
//! exist.

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;
use vinga_sql_tests::servers::Servers;
use vinga_sql_tests::{Session, TestCluster};
use vinga_sqlnode::ScopedSqlNode;

const DATABASES: usize = 30;

fn has(session: &mut Session, database: &str) -> bool {
    session.lines("SHOW DATABASES").iter().any(|there| there == database)
}

/// The output of SHOW CREATE DATABASE; empty if there is no such database.
fn shown(session: &mut Session, database: &str) -> String {
    let answer = session.try_query(&format!("SHOW CREATE DATABASE {database}"));
    answer.map_or_else(|_| String::new(), |answer| answer.strings()[0][1].clone())
}

/// Repeats a check until it holds; if it never does the test hangs, which is also a failure.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn counter(session: &mut Session, name: &str) -> usize {
    session.query(&format!("SHOW GLOBAL STATUS LIKE 'vinga_databases_{name}'"))[0][1].parse().unwrap()
}

#[test]
fn new_databases_are_reported_when_the_system_says_that_there_are_some() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    for number in 0..DATABASES {
        here.query(&format!("CREATE DATABASE d{number}"));
        until(|| has(&mut there, &format!("d{number}")));
    }
    // The thread also looks by itself, and may have found one or another at that moment.
    let (noticed, found) = (counter(&mut here, "noticed"), counter(&mut here, "found"));
    assert!(noticed > found, "{noticed} were noticed, {found} were found by looking");
}

#[test]
fn a_database_appears_with_its_options() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    until(|| has(&mut there, "test"));
    let folder = cluster.sql_nodes[1].folder().join("data");
    let notices = inotify::init(CreateFlags::NONBLOCK).expect("folders can be watched");
    inotify::add_watch(&notices, &folder, WatchFlags::CREATE | WatchFlags::MOVED_TO).expect("it exists");
    let mut room = [const { MaybeUninit::uninit() }; 4096];
    let mut reader = Reader::new(&notices, &mut room);
    for number in 0..DATABASES {
        let name = format!("d{number}");
        here.query(&format!("CREATE DATABASE {name} COLLATE latin1_bin"));
        loop {
            match reader.next() {
                Ok(notice) if notice.file_name().is_some_and(|file| file.to_bytes() == name.as_bytes()) => {
                    break;
                }
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(folder.join(&name).join("db.opt").exists(), "{name} exists without its options");
    }
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let unfinished: Vec<_> = names.filter(|name| name.as_bytes().starts_with(b"#sql")).collect();
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

#[test]
fn what_is_left_of_a_database_that_was_being_made_is_cleared_away() {
    let mut cluster = TestCluster::start(1);
    let unfinished = cluster.sql_nodes[0].folder().join("data").join("#sql-vinga-database");
    cluster.sql_nodes[0].stop().expect("it stops");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("db.opt"), "default-character-set=latin1\n").unwrap();
    cluster.sql_nodes[0].restart().expect("it starts again");
    assert!(!unfinished.exists());
}

/// Data nodes store nothing over a restart: SQL nodes do, and send it to each incarnation of the data nodes, but only
/// once.
#[test]
fn a_new_incarnation_of_the_data_nodes_learns_the_databases_of_those_before() {
    let mut servers = Servers::start(env!("CARGO_BIN_EXE_data_node_of_test"), 2, &[]);
    let mut here = servers.connect(0);
    here.query("CREATE DATABASE one COLLATE latin1_bin");
    here.query("CREATE DATABASE two");
    servers.data.kill();
    servers.data.restart();
    let start = |servers: &Servers| {
        ScopedSqlNode::start(&servers.data.local_address()).unwrap_or_else(|error| panic!("{error}"))
    };
    let later = start(&servers);
    let mut there = Session::new(later.connect().expect("it answers"));
    until(|| has(&mut there, "one") && has(&mut there, "two"));
    assert!(shown(&mut there, "one").contains("latin1_bin"));
    // Everything is stopped at the same time: the SQL nodes find the next incarnation when they start.
    servers.sql_nodes[0].stop().expect("it stops");
    servers.sql_nodes[1].stop().expect("it stops");
    drop((there, later));
    servers.data.kill();
    servers.data.restart();
    servers.sql_nodes[0].restart().expect("it starts again");
    let later = start(&servers);
    let mut there = Session::new(later.connect().expect("it answers"));
    until(|| has(&mut there, "one") && has(&mut there, "two"));
    // A database that is dropped while a SQL node does not run does not come back with that node.
    let reported = servers.sql_nodes[0].folder().join("data/vinga.database");
    until(|| reported.exists());
    servers.sql_nodes[0].stop().expect("it stops");
    there.query("DROP DATABASE two");
    servers.sql_nodes[0].restart().expect("it starts again");
    let mut here = servers.connect(0);
    assert!(has(&mut here, "two"));
    here.query("CREATE DATABASE three");
    until(|| has(&mut there, "three"));
    thread::sleep(Duration::from_millis(1500));
    assert!(!has(&mut there, "two"));
}

#[test]
fn what_is_altered_or_dropped_at_once_stays_so() {
    let cluster = TestCluster::start(2);
    let (mut here, mut there) = (cluster.connect(0), cluster.connect(1));
    for number in 0..DATABASES {
        let name = format!("d{number}");
        here.query(&format!("CREATE DATABASE {name}"));
        here.query(&format!("ALTER DATABASE {name} COLLATE latin1_bin"));
        here.query(&format!("CREATE DATABASE passing{number}"));
        here.query(&format!("DROP DATABASE passing{number}"));
        until(|| shown(&mut there, &name).contains("latin1_bin"));
        assert!(shown(&mut here, &name).contains("latin1_bin"), "{name} is as it was before ALTER");
    }
    // It is sent after all of these.
    here.query("CREATE DATABASE last");
    until(|| has(&mut there, "last"));
    for session in [&mut here, &mut there] {
        let left = session.lines("SHOW DATABASES LIKE 'passing%'");
        assert!(left.is_empty(), "{left:?}");
    }
}
