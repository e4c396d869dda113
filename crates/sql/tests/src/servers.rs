//! Servers for tests that damage or overload them: each is a separate process with a memory limit.

use crate::Session;
use crate::data_process::DataProcess;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vinga_sqlnode::ScopedSqlNode;

/// Maximum time until the data node has released everything.
pub const REST_MAX: Duration = crate::HANG_GUARD;

/// The usage of the data node's pools: block and pool, and the number of entries in use.
pub type Pools = BTreeMap<String, u64>;

/// A data node, and SQL nodes that use it.
pub struct Servers {
    /// Declared before the data node, so that they are stopped first.
    pub sql_nodes: Vec<ScopedSqlNode>,
    /// The data node's process.
    pub data: DataProcess,
}

impl Servers {
    /// `sql_nodes` SQL nodes for a data node with these parameters; `program` is the path of the data node's program.
    pub fn start(program: &str, sql_nodes: usize, parameters: &[(&str, &str)]) -> Self {
        Self::start_with(program, sql_nodes, parameters, &[])
    }

    /// Like [`Servers::start`], with variables of the SQL nodes.
    pub fn start_with(
        program: &str,
        sql_nodes: usize,
        parameters: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> Self {
        let data = DataProcess::start(program, parameters);
        let address = data.local_address();
        let start = |_| {
            let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            ScopedSqlNode::start_with(&address, |settings| {
                settings.variables.extend(variables.iter().map(owned));
            })
            .unwrap_or_else(|error| panic!("{error}"))
        };
        let sql_nodes: Vec<ScopedSqlNode> = (0..sql_nodes).map(start).collect();
        let servers = Servers { sql_nodes, data };
        for node in 0..servers.sql_nodes.len() {
            servers.connect(node).query("CREATE DATABASE IF NOT EXISTS test");
        }
        servers
    }

    /// A session at one of the SQL nodes, in the database `test`.
    pub fn connect(&self, node: usize) -> Session {
        let mut session = Session::new(self.sql_nodes[node].connect().expect("the SQL node answers"));
        // It may just be being created by the first SQL node.
        let _ = session.try_query("USE test");
        session
    }

    /// The current usage of the data node's pools.
    pub fn pools(&self) -> Pools {
        let rows = self.connect(0).query("SELECT block, pool, used FROM information_schema.vinga_pools");
        rows.into_iter()
            .map(|row| (format!("{} {}", row[0], row[1]), row[2].parse().expect("a number")))
            .collect()
    }

    /// Waits until the data node has no more in use than before; panics if that takes too long.
    #[track_caller]
    pub fn await_rest(&self, before: &Pools) {
        let began = Instant::now();
        loop {
            let now = self.pools();
            let held: Vec<_> =
                now.iter().filter(|(pool, used)| **used > before.get(*pool).copied().unwrap_or(0)).collect();
            if held.is_empty() {
                return;
            }
            assert!(began.elapsed() < REST_MAX, "still in use: {held:?}, before: {before:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks that all SQL nodes and the data node are running.
    #[track_caller]
    pub fn check_alive(&mut self) {
        for (number, node) in self.sql_nodes.iter_mut().enumerate() {
            assert!(node.is_alive(), "SQL node {number} has ended: {}", node.log_tail(60));
        }
        assert!(self.data.is_alive(), "the data node has ended");
    }
}
