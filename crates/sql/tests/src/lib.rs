//! Shared by the tests of SQL: a data node with SQL nodes that use it, and programs that run against them.
//!
//! Each server has a memory limit, its own folder, and a unique port; all of this is removed at the end of the test.
//! MariaDB and the plugin are those that `make sql` has put next to the build.

pub mod bank;
pub mod churn;
pub mod client;
pub mod data_cluster;
pub mod data_process;
pub mod environment;
pub mod history;
pub mod incarnations;
pub mod load;
pub mod memory;
pub mod oracle;
pub mod recorded_loads;
pub mod recorder;
pub mod servers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use vinga_datanode::LocalNode;
use vinga_sqlnode::{Answer, Connection, Installation, ScopedSqlNode, SqlError};

/// How long a test waits for an expected event before it gives up: longer than it takes even on a busy machine.
pub const HANG_GUARD: Duration = Duration::from_secs(180);

/// Waits until a condition holds; panics with `what` if it never does.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < HANG_GUARD, "it does not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A data node in this process, and SQL nodes that use it.
pub struct TestCluster {
    /// Declared before the data node, so that they are stopped first.
    pub sql_nodes: Vec<ScopedSqlNode>,
    /// `None` while it is stopped.
    pub data_node: Option<LocalNode>,
}

impl TestCluster {
    /// One data node and `sql_nodes` SQL nodes, with an empty database `test`.
    pub fn start(sql_nodes: usize) -> Self {
        Self::start_with(sql_nodes, &[], &[])
    }

    /// Like [`TestCluster::start`], with parameters of the data node and variables of the SQL nodes.
    pub fn start_with(sql_nodes: usize, parameters: &[(&str, &str)], variables: &[(&str, &str)]) -> Self {
        let data_node = LocalNode::start_with(parameters).expect("a data node starts");
        let address = data_node.address().to_owned();
        let sql_nodes: Vec<ScopedSqlNode> = (0..sql_nodes)
            .map(|_| {
                ScopedSqlNode::start_with(&address, |settings| {
                    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
                    settings.variables.extend(variables.iter().map(owned));
                })
                .unwrap_or_else(|error| panic!("{error}"))
            })
            .collect();
        let cluster = TestCluster { sql_nodes, data_node: Some(data_node) };
        cluster.connect(0).query("CREATE DATABASE IF NOT EXISTS test");
        cluster
    }

    /// A session at one of the SQL nodes, in the database `test`.
    pub fn connect(&self, node: usize) -> Session {
        let mut connection = self.sql_nodes[node].connect().expect("a SQL node answers");
        // The database may reach the other SQL nodes a moment later, or is just being created.
        let _ = connection.query("USE test");
        Session::new(connection)
    }
}

/// A session that panics with the statement and the server's error when something fails.
pub struct Session {
    connection: Connection,
}

impl Session {
    /// A session over a connection.
    pub fn new(connection: Connection) -> Self {
        Session { connection }
    }

    /// A status variable of the plugin, by its name without `vinga_`.
    pub fn counter(&mut self, name: &str) -> u64 {
        self.query(&format!("SHOW GLOBAL STATUS LIKE 'vinga_{name}'"))[0][1].parse().expect("a number")
    }

    /// By how much such a variable grows with a statement: the minimum of several attempts, as statistics are requested
    /// now and then too.
    pub fn growth(&mut self, name: &str, statement: &str) -> u64 {
        let mut one = || {
            let before = self.counter(name);
            self.query(statement);
            self.counter(name) - before
        };
        (0..5).map(|_| one()).min().expect("several times")
    }

    /// Runs a statement that may fail.
    ///
    /// # Errors
    /// The server's error, or the loss of the connection.
    pub fn try_query(&mut self, statement: &str) -> Result<Answer, SqlError> {
        self.connection.query(statement)
    }

    /// Runs a statement and returns its rows as text.
    #[track_caller]
    pub fn query(&mut self, statement: &str) -> Vec<Vec<String>> {
        match self.connection.query(statement) {
            Ok(answer) => answer.strings(),
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    /// The rows of a statement, each as its values separated by spaces.
    #[track_caller]
    pub fn lines(&mut self, statement: &str) -> Vec<String> {
        self.query(statement).into_iter().map(|row| row.join(" ")).collect()
    }

    /// Runs a statement that must fail; returns the server's error number and message.
    #[track_caller]
    pub fn error(&mut self, statement: &str) -> (u16, String) {
        match self.connection.query(statement) {
            Ok(answer) => panic!("{statement} must fail, and has {} rows", answer.rows.len()),
            Err(error) => (error.number().unwrap_or(0), error.to_string()),
        }
    }

    /// Waits until the session with this number runs a statement, so that the test does not interfere with the
    /// statement too early.
    #[track_caller]
    pub fn await_statement_of(&mut self, session: &str) {
        let there = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {session} AND command = 'Query'"
        );
        eventually("the statement is under way", || self.lines(&there) == ["1"]);
    }

    /// Waits until a transaction waits for a lock.
    #[track_caller]
    pub fn await_waiter(&mut self) {
        let waits = "SELECT COUNT(*) FROM information_schema.VINGA_LOCKS WHERE STATE = 'waits'";
        eventually("a transaction waits for a lock", || self.lines(waits) != ["0"]);
    }

    /// The connection itself.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// One of the programs of the server's packages, such as `mariadb-dump` or `sysbench`.
pub fn program(name: &str) -> Command {
    Command::new(installation().program(name))
}

/// A file of the server's packages.
pub fn packaged(path: &str) -> PathBuf {
    installation().mariadb().join("root").join(path)
}

/// The server and the plugin.
pub fn installation() -> Installation {
    Installation::find().expect("'make sql' was run")
}

/// A folder of this crate's sources, or a path from there.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a program to its end; returns its output. Panics with all its output if it fails.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?} can't be started: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ended with {status}:\n{stdout}\n{stderr}");
    stdout.into_owned()
}
