//! Servers that something bad is done to: each is a process of its own with a limit to its memory.

use crate::Session;
use crate::data_process::DataProcess;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vinga_sqlnode::ScopedSqlNode;

/// How long the data node may take until it has let go of everything.
pub const REST_MAX: Duration = crate::HANG_GUARD;

/// What pools of the data node have in use: block and pool, and how many.
pub type Pools = BTreeMap<String, u64>;

/// A data node, and SQL nodes before it.
pub struct Servers {
    /// Before the data node, so that they end first.
    pub sql_nodes: Vec<ScopedSqlNode>,
    /// See [`DataProcess`].
    pub data: DataProcess,
}

impl Servers {
    /// So many SQL nodes before a data node with these parameters; `program` is that of the data node.
    pub fn start(program: &str, sql_nodes: usize, parameters: &[(&str, &str)]) -> Self {
        Self::start_with(program, sql_nodes, parameters, &[])
    }

    /// The same with variables of the SQL nodes.
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
        // It is made just now by whoever is the first.
        let _ = session.try_query("USE test");
        session
    }

    /// What the data node has in use now.
    pub fn pools(&self) -> Pools {
        let rows = self.connect(0).query("SELECT block, pool, used FROM information_schema.vinga_pools");
        rows.into_iter()
            .map(|row| (format!("{} {}", row[0], row[1]), row[2].parse().expect("a number")))
            .collect()
    }

    /// Waits until the data node has no more in use than before; panics if that does not come.
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

    /// All SQL nodes live, and so does the data node.
    #[track_caller]
    pub fn check_alive(&mut self) {
        for (number, node) in self.sql_nodes.iter_mut().enumerate() {
            assert!(node.is_alive(), "SQL node {number} has ended: {}", node.log_tail(60));
        }
        assert!(self.data.is_alive(), "the data node has ended");
    }
}
