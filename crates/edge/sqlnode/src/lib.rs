//! A SQL node: MariaDB's server with Vinga's storage engine, run as a child process.
//!
//! `vinga up`, tests and benchmarks start SQL nodes by this crate. A node has its own folder:
//! ```text
//!   sql-1/vinga.pid       process id; locked (flock) by the server for as long as it runs
//!   sql-1/vinga.address   host:port, written when the server answers, removed when it is stopped
//!   sql-1/vinga.start     the last start: where, when, which version of the server; stays when the server stops
//!   sql-1/vinga.log       the server's log
//!   sql-1/my.cnf          its settings, written anew by each start
//!   sql-1/sql.sock        its Unix socket
//!   sql-1/data/           its data directory: accounts, and tables of other engines than Vinga's
//!   sql-1/tmp/            its temporary files
//! ```
//! The server is found beside the build that this program belongs to, or at a given path ([`Installation`]); it needs
//! no root and does not touch a MariaDB of the machine.
//!
//! The server does not know of our lock. It gets the locked file as its standard output, to which it writes nothing:
//! the lock belongs to the open file, and so ends with the process, however that ends. So a stale process id is
//! harmless, even when another process has the same by now.

mod connection;
mod data_directory;
mod error;
mod installation;
mod my_cnf;
mod probe;
mod scoped;
mod sql_node;

pub use connection::{Answer, Connection, SqlError};
pub use error::StartError;
pub use installation::Installation;
pub use my_cnf::is_own;
pub use probe::Reach;
pub use scoped::ScopedSqlNode;
pub use sql_node::{Running, Settings, SqlNode, Stopped, running, stop};
