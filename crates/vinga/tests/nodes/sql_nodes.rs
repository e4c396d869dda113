//! `vinga up` and `down` with SQL nodes, as users run them.

use crate::support;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vinga_runtime::node_folder::NodeFolder;
use vinga_sqlnode::{Connection, running};

/// Ports for nodes.
const PORT_FIRST: u16 = 12_000;
const PORTS: u32 = 7_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cluster in a folder of its own; stopped and removed at the end.
struct Cluster {
    folder: PathBuf,
    data_port: u16,
    sql_port: u16,
}

impl Cluster {
    fn new() -> Self {
        let unique = format!("vinga-test-up-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        let data_port = free_ports(1);
        Cluster { folder, data_port, sql_port: free_ports(2) }
    }

    /// Runs `vinga` on this cluster; returns whether it succeeded, and its output.
    fn vinga(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        command.args(arguments).arg("--folder").arg(&self.folder);
        let output = command.output().expect("the binary runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn up(&self, sql_nodes: &str) -> (bool, String) {
        self.up_with(sql_nodes, &[])
    }

    fn up_with(&self, sql_nodes: &str, more: &[&str]) -> (bool, String) {
        let [data_port, sql_port] = [self.data_port, self.sql_port].map(|port| port.to_string());
        let small = support::folder::SMALL;
        let ports = ["--port", &data_port, "--sql-port", &sql_port];
        self.vinga(&[&["up", "--sql-nodes", sql_nodes][..], &small, &ports, more].concat())
    }

    fn socket(&self, node: u16) -> PathBuf {
        self.folder.join(format!("sql-{node}/sql.sock"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.vinga(&["down"]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The first of this many consecutive ports on which no process listens now: below those that the operating system
/// gives to connections and to whoever names none, so that nobody takes them while a node is down.
fn free_ports(count: u16) -> u16 {
    let place = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(4, Ordering::Relaxed));
    let mut candidates = (0..PORTS).map(|at| PORT_FIRST + (place.wrapping_add(at) % PORTS) as u16);
    let are_free = |first: &u16| {
        let ports = (0..count).map(|at| TcpListener::bind(("127.0.0.1", first + at)));
        ports.collect::<Result<Vec<_>, _>>().is_ok()
    };
    candidates.find(are_free).expect("there are free ports")
}

#[test]
fn sql_nodes_come_up_after_the_data_node_and_go_down_before_it() {
    let cluster = Cluster::new();
    let (ok, said) = cluster.up("1");
    assert!(ok, "{said}");
    let first = format!("SQL node 1 is ready on 127.0.0.1:{}", cluster.sql_port);
    let data = format!("data node 1 is ready on 127.0.0.1:{}", cluster.data_port);
    assert!(said.find(&data).expect(&said) < said.find(&first).expect(&said), "{said}");
    let socket = format!("--user=root --socket={}", cluster.socket(1).display());
    assert!(said.contains(&socket) && said.contains(&format!("--port={}", cluster.sql_port)), "{said}");

    // The printed command line works.
    let line = said.lines().find(|line| line.contains("--socket=")).expect("the line is printed").trim();
    let shell = Command::new("sh").arg("-c").arg(format!("{line} -NBe 'SELECT 6 * 7'")).output();
    assert_eq!(String::from_utf8_lossy(&shell.expect("there is a shell").stdout), "42\n");
    let mut session = Connection::open_socket(&cluster.socket(1)).expect("it answers");
    let reported = session.rows("SELECT @@vinga_connectstring").expect("there is a storage engine");
    // Nodes on the same machine share memory.
    assert!(
        reported[0][0].starts_with("unix:") && reported[0][0].ends_with("/node-1/vinga.sock"),
        "{reported:?}"
    );

    // More nodes can be asked for; those that run are left alone.
    let (ok, said) = cluster.up("2");
    assert!(ok && said.contains("data node 1 is running already"), "{said}");
    assert!(said.contains("SQL node 1 is running already") && said.contains("SQL node 2 is ready"), "{said}");
    session.query("SELECT 1").expect("it was left alone");
    let (ok, said) = cluster.up("0");
    assert!(ok && said.contains("SQL node 2 is running already"), "{said}");

    let (ok, said) = cluster.vinga(&["down"]);
    assert!(ok, "{said}");
    let place = |what: &str| said.find(what).unwrap_or_else(|| panic!("{what}: {said}"));
    assert!(place("SQL node 1 has stopped") < place("data node 1 has stopped"));
    assert!(place("SQL node 2 has stopped") < place("data node 1 has stopped"));
    for node in ["sql-1", "sql-2"] {
        assert_eq!(running(&cluster.folder.join(node)).expect("the folder is there"), None);
    }
    let (ok, said) = cluster.vinga(&["down"]);
    assert!(ok && said.starts_with("no data node runs"), "{said}");

    // A port in use is reported before anything is started.
    let _taken = TcpListener::bind(("127.0.0.1", cluster.sql_port)).expect("it was freed");
    let (ok, said) = cluster.up("1");
    assert!(!ok && !said.contains(&data) && said.contains("--sql-port"), "{said}");
    let (ok, said) = cluster.vinga(&["up", "--sql-nodes", "3", "--sql-port", "65535"]);
    assert!(!ok && !said.contains("is ready") && said.contains("behind 65535"), "{said}");
}

#[test]
fn variables_and_ports_are_not_ignored_silently() {
    let cluster = Cluster::new();
    let (ok, said) = cluster.up_with("1", &["--sql-set", "nosuch_var=1"]);
    assert!(!ok && said.contains("unknown variable 'nosuch_var=1'"), "{said}");
    // Lines that do not help to understand it are not shown.
    assert!(!said.contains("[Note]") && !said.contains("is of maturity level"), "{said}");
    std::fs::remove_dir_all(cluster.folder.join("sql-1")).expect("it is there");
    let (ok, said) = cluster.up("1");
    assert!(ok && said.contains("as root without password"), "{said}");
    let (ok, said) = cluster.up_with("1", &["--sql-set", "nosuch_var=1"]);
    assert!(ok && said.contains("keep the settings") && said.contains("--sql-set nosuch_var=1"), "{said}");
    assert!(!said.contains("without password") && said.contains("with the password that was set"), "{said}");
    let other = (cluster.sql_port + 1).to_string();
    let (ok, said) = cluster.up_with("1", &["--sql-set", "Plugin-Dir=/"]);
    assert!(!ok && said.contains("Vinga sets Plugin-Dir itself"), "{said}");
    let moved = ["up", "--sql-nodes", "1", "--sql-port", &other];
    let (ok, said) = cluster.vinga(&moved);
    assert!(!ok && said.contains("SQL node 1 keeps its port"), "{said}");
}

/// `root` can't log in from other machines. The account has a password, in a file that nobody else may read, and stays
/// as it is when the nodes are started again.
#[test]
fn sql_nodes_that_listen_beyond_loopback_have_an_account_with_a_password() {
    let cluster = Cluster::new();
    let beyond = ["--sql-set", "bind_address=0.0.0.0"];
    let (ok, said) = cluster.up_with("1", &beyond);
    assert!(ok && said.contains("log in from other machines as 'vinga'"), "{said}");
    let file = cluster.folder.join("sql.password");
    assert_eq!(std::fs::metadata(&file).expect("it is made").permissions().mode() & 0o777, 0o600);
    let password = std::fs::read_to_string(&file).expect("it is ours").trim().to_owned();
    let line = said.lines().find(|line| line.contains("--socket=")).expect("the line is printed").trim();
    let client = line.split_whitespace().next().expect("the client's path");
    let log_in = |user: &str, password: &str| {
        let port = format!("--port={}", cluster.sql_port);
        let to = ["--no-defaults", "--host=127.0.0.1", &port, "-NBe", "SELECT CURRENT_USER()"];
        let (user, password) = (format!("--user={user}"), format!("--password={password}"));
        let output =
            Command::new(client).args(to).args([user, password]).output().expect("there is a client");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(log_in("vinga", &password), "vinga@%");
    assert_eq!(log_in("vinga", ""), "", "the password is asked for");

    let mut session = Connection::open_socket(&cluster.socket(1)).expect("it answers");
    session.query("SET PASSWORD FOR vinga@'%' = PASSWORD('of my own')").expect("root may do that");
    session.query("REVOKE ALL PRIVILEGES, GRANT OPTION FROM vinga@'%'").expect("root may do that");
    let (ok, said) = cluster.vinga(&["down"]);
    assert!(ok, "{said}");
    let (ok, said) = cluster.up_with("1", &beyond);
    assert!(ok, "{said}");
    assert_eq!(log_in("vinga", "of my own"), "vinga@%");
    let mut session = Connection::open_socket(&cluster.socket(1)).expect("it answers");
    let grants = session.rows("SHOW GRANTS FOR vinga@'%'").expect("it is there");
    assert!(grants.len() == 1 && grants[0][0].contains("GRANT USAGE"), "{grants:?}");
}

#[test]
fn killed_nodes_come_back_on_their_ports_and_status_tells_of_them() {
    let cluster = Cluster::new();
    let (ok, said) = cluster.up("1");
    assert!(ok, "{said}");
    let status = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        let output = command.args(["status", "--json", "--folder"]).arg(&cluster.folder).output();
        let output = output.expect("the binary runs");
        let nodes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it says JSON");
        (output.status.code(), nodes)
    };
    let (code, nodes) = status();
    assert_eq!(
        (code, &nodes[1]["node"], &nodes[1]["state"]),
        (Some(0), &"SQL node 1".into(), &"running".into())
    );
    assert!(nodes[1]["version"].as_str().is_some_and(|version| version.contains("MariaDB")), "{nodes}");
    let address = nodes[1]["address"].clone();
    let pid = running(&cluster.folder.join("sql-1")).expect("the folder is there").expect("it runs").pid;
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    // At once, and without a message about ports; its output has no reader.
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
    command.args(["up", "--sql-nodes", "1", "--folder"]).arg(&cluster.folder).stdout(writer);
    let output = command.output().expect("the binary runs");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (code, nodes) = status();
    assert_eq!((code, &nodes[1]["address"]), (Some(0), &address), "{nodes}");
    // A SQL node that was stopped orderly by another process has not crashed.
    let stopped = running(&cluster.folder.join("sql-1")).expect("the folder is there");
    let pid = rustix::process::Pid::from_raw(stopped.expect("it runs").pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    while running(&cluster.folder.join("sql-1")).expect("the folder is there").is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, nodes) = status();
    assert_eq!((code, &nodes[1]["state"]), (Some(3), &"stopped".into()), "{nodes}");
    let (ok, said) = cluster.vinga(&["down"]);
    assert!(ok, "{said}");
    let (code, nodes) = status();
    assert_eq!(
        (code, &nodes[0]["state"], &nodes[1]["state"]),
        (Some(3), &"stopped".into(), &"stopped".into())
    );
}

/// Ends the data node of a cluster as a power failure would.
fn kill_data_node(cluster: &Cluster) {
    let folder = NodeFolder::new(&cluster.folder, 1);
    let pid = folder.running().expect("the folder is there").expect("it runs");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
}

/// Ends a node as a power failure would, and waits until it is gone.
fn kill(folder: &NodeFolder) {
    let running = || folder.running().expect("the folder is there");
    let pid = rustix::process::Pid::from_raw(running().expect("it runs")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    while running().is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What has died is started again: a data node, too, which comes back.
#[test]
fn what_has_ended_is_started_again_beside_what_runs() {
    let cluster = Cluster::new();
    let sql_port = cluster.sql_port.to_string();
    let up = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        command.args(["up", "--data-nodes", "2", "--replicas", "2", "--sql-nodes", "2", "--folder"]);
        // Nobody is given up who stands still.
        let patient = [
            "DataMemory=64M",
            "HeartbeatIntervalDbDb=60000",
            "HeartbeatIntervalDbApi=1000000",
            "StopOnError=yes",
        ];
        command.arg(&cluster.folder).args(patient.iter().flat_map(|value| ["--set", value]));
        if !cluster.folder.exists() {
            command.args(["--port", "0", "--sql-port", &sql_port]);
        }
        let output = command.output().expect("the binary runs");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said)
    };
    let (code, [said, why]) = up();
    assert_eq!(code, Some(0), "{said}{why}");
    let session = |node| Connection::open_socket(&cluster.socket(node)).expect("it answers");
    session(1).query("CREATE DATABASE d").expect("it is its own");
    session(1).query("CREATE TABLE d.t (a INT PRIMARY KEY) ENGINE=VINGA").expect("it reaches the data nodes");
    let second = NodeFolder::new(&cluster.folder, 2);
    let lost = second.local_address().expect("it has one");
    kill(&second);
    kill(&NodeFolder::at(cluster.folder.join("mgm-3")));
    kill(&NodeFolder::at(cluster.folder.join("sql-2")));

    let (code, [said, why]) = up();
    assert_eq!(code, Some(0), "{said}{why}");
    for line in
        ["management node 3 is ready on", "data node 1 is running already", "SQL node 1 is running already"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("SQL node 2 is ready on") && said.contains("data node 2 is ready on"), "{said}");
    assert!(!said.contains("are gone"), "the others have all rows: {said}");
    session(2).query("INSERT INTO d.t VALUES (1)").expect("it reaches the data nodes");
    let addresses = session(2).rows("SELECT @@vinga_connectstring").expect("it answers");
    assert!(
        addresses[0][0].contains("node-1/vinga.sock") && addresses[0][0].contains(&lost),
        "{addresses:?}"
    );
    // A management node whose port is taken keeps no SQL node from being started.
    let management = NodeFolder::at(cluster.folder.join("mgm-3"));
    let address = management.address().expect("it is ready");
    kill(&management);
    kill(&NodeFolder::at(cluster.folder.join("sql-2")));
    let taken = TcpListener::bind(&address).expect("it is gone");
    let (code, [said, why]) = up();
    assert!(code == Some(1) && said.contains("SQL node 2 is ready on"), "{said}{why}");
    assert!(why.contains("management node 3 has not started: ") && why.contains("is in use"), "{why}");
    assert!(said.contains("there is no arbitrator, as no management node could be started: "), "{said}");
    drop(taken);
    let (code, [said, why]) = up();
    assert!(code == Some(0) && said.contains("management node 3 is ready on"), "{said}{why}");
    // A SQL node whose port is taken keeps no other one from being started.
    let first = NodeFolder::at(cluster.folder.join("sql-1"));
    let address = first.address().expect("it is ready");
    kill(&first);
    kill(&NodeFolder::at(cluster.folder.join("sql-2")));
    let taken = TcpListener::bind(&address).expect("it is gone");
    let (code, [said, why]) = up();
    assert!(code == Some(1) && said.contains("SQL node 2 is ready on"), "{said}{why}");
    assert!(!said.contains("SQL node 1 is") && said.contains("--socket="), "{said}");
    let (_, port) = address.split_once(':').expect("host:port");
    assert!(why.contains("SQL node 1: ") && why.contains(port) && why.contains("in use"), "{why}");
    session(2).query("INSERT INTO d.t VALUES (2)").expect("it reaches the data nodes");
    drop(taken);
    let (code, [said, why]) = up();
    assert!(code == Some(0) && said.contains("SQL node 1 is ready on"), "{said}{why}");
    // Everything runs that can run: nothing is started, and the same is said.
    let (code, [said, why]) = up();
    assert_eq!(code, Some(0), "{said}{why}");
    assert!(!said.contains("is ready on"), "{said}");
}

/// How long SQL nodes have been without a data node when one is started: they retry at ever longer intervals.
const OUTAGE: Duration = Duration::from_secs(4);

#[test]
fn up_waits_until_sql_nodes_that_run_reach_the_data_node() {
    let cluster = Cluster::new();
    let (ok, said) = cluster.up("1");
    assert!(ok, "{said}");
    kill_data_node(&cluster);
    std::thread::sleep(OUTAGE);
    let (ok, said) = cluster.up("0");
    assert!(ok && said.contains("SQL node 1 is running already"), "{said}");
    let mut session = Connection::open_socket(&cluster.socket(1)).expect("it answers");
    session.query("CREATE DATABASE d").expect("it is its own");
    session.query("CREATE TABLE d.t (a INT PRIMARY KEY)").expect("it reaches the data node");

    // The same holds for one whose root has a password: the data node knows its clients.
    session.query("ALTER USER root@localhost IDENTIFIED BY 'secret'").expect("it has such accounts");
    kill_data_node(&cluster);
    std::thread::sleep(OUTAGE);
    let (ok, said) = cluster.up("1");
    assert!(ok && !said.contains("was not asked"), "{said}");
    session.query("CREATE TABLE d.u (a INT PRIMARY KEY)").expect("it reaches the data node");
    let (ok, said) = cluster.vinga(&["demo", "--sql"]);
    assert!(!ok && said.contains("root has a password") && said.contains("MYSQL_PWD"), "{said}");

    // Liveness checks leave no warnings in the log.
    let log = || std::fs::read_to_string(cluster.folder.join("sql-1/vinga.log")).expect("it is there");
    let before = log().lines().count();
    let (ok, said) = cluster.vinga(&["status"]);
    assert!(ok, "{said}");
    session.query("SELECT 1").expect("the server still serves");
    assert_eq!(log().lines().count(), before, "{}", log());
    assert!(!log().contains("Aborted connection"), "{}", log());
}

#[test]
fn a_sql_node_that_no_data_node_admits_is_told() {
    let cluster = Cluster::new();
    // A SQL node is two clients.
    let (ok, said) = cluster.up_with("2", &["--set", "MaxNoOfApiConnections=2"]);
    assert!(!ok && said.contains("SQL node 1 is ready") && !said.contains("SQL node 2 is ready"), "{said}");
    assert!(said.contains("SQL node 2 runs, but no data node admits it"), "{said}");
    assert!(said.contains("raise MaxNoOfApiConnections"), "{said}");
    let (ok, said) = cluster.vinga(&["status"]);
    assert!(!ok && said.contains("data node 1 refuses clients: ") && !said.contains("not answer"), "{said}");
}

/// The information tables are of all data nodes. One that stands still is named by a warning, and keeps no rows from
/// the others.
#[test]
fn information_is_of_all_data_nodes() {
    let cluster = Cluster::new();
    let sql_port = cluster.sql_port.to_string();
    let two = [
        "up",
        "--data-nodes",
        "2",
        "--replicas",
        "2",
        "--port",
        "0",
        "--sql-nodes",
        "1",
        "--sql-port",
        &sql_port,
    ];
    // Nobody is left out who stands still.
    let patient = ["DataMemory=64M", "HeartbeatIntervalDbDb=60000", "HeartbeatIntervalDbApi=1000000"];
    let patient = patient.iter().flat_map(|value| ["--set", value]);
    let (ok, said) = cluster.vinga(&two.into_iter().chain(patient).collect::<Vec<_>>());
    assert!(ok, "{said}");
    let mut session = Connection::open_socket(&cluster.socket(1)).expect("it answers");
    let mut ask = |statement: &str| session.rows(statement).expect("the SQL node answers");
    for table in ["THREADS", "MEMORY", "POOLS", "COUNTERS"] {
        let nodes =
            ask(&format!("SELECT DISTINCT NODE_ID FROM information_schema.VINGA_{table} ORDER BY NODE_ID"));
        assert_eq!(nodes, [["1"], ["2"]], "{table}");
        assert!(ask("SHOW WARNINGS").is_empty());
    }
    let nodes = ask(
        "SELECT NODE, STATE, NODE_GROUP FROM information_schema.VINGA_NODES WHERE KIND = 'data' ORDER BY NODE",
    );
    assert_eq!(nodes, [["1", "started", "0"], ["2", "started", "0"]]);
    let leads = ask("SELECT COUNT(*) FROM information_schema.VINGA_NODES WHERE LEADS = 'yes'");
    assert_eq!(leads, [["1"]]);
    // Each of this SQL node's connections once, with both data nodes.
    let own =
        ask("SELECT COUNT(*) = COUNT(DISTINCT NODE) FROM information_schema.VINGA_NODES WHERE KIND = 'SQL'");
    assert_eq!(own, [["1"]]);
    let own = ask("SELECT DISTINCT DATA_NODES FROM information_schema.VINGA_NODES WHERE KIND = 'SQL'");
    assert_eq!(own, [["1, 2"]]);

    // A transaction is named with its coordinator's data node, a lock with that of its row.
    ask("CREATE DATABASE d");
    ask("USE d");
    ask("CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0)");
    ask("INSERT INTO d.t (id) SELECT seq FROM seq_1_to_50");
    ask("BEGIN");
    ask("UPDATE d.t SET v = 1");
    let own = ask(
        "SELECT NODE_ID IN (1, 2), CONNECTION_ID = CONNECTION_ID() FROM information_schema.VINGA_TRANSACTIONS",
    );
    assert_eq!(own, [["1", "1"]]);
    let locks = ask(
        "SELECT DISTINCT NODE_ID, TABLE_NAME, CONNECTION_ID = CONNECTION_ID() FROM information_schema.VINGA_LOCKS \
         ORDER BY NODE_ID",
    );
    assert_eq!(locks, [["1", "d.t", "1"], ["2", "d.t", "1"]]);
    ask("ROLLBACK");

    let suspended = support::folder::Suspended::new(&cluster.folder, 2);
    let nodes = ask("SELECT DISTINCT NODE_ID FROM information_schema.VINGA_POOLS");
    let warnings = ask("SHOW WARNINGS");
    drop(suspended);
    assert_eq!(nodes, [["1"]]);
    assert_eq!((warnings.len(), warnings[0][0].as_str()), (1, "Warning"), "{warnings:?}");
    assert!(warnings[0][2].contains("data node 2 (127.0.0.1:"), "{warnings:?}");
}
