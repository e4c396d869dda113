//! A SQL server for a measurement: a SQL node with databases for Vinga's tables and InnoDB's, and sysbench for it.

use crate::failure::{Context, Failure, Result};
use crate::process::Program;
use crate::sysbench::Sysbench;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vinga_sqlnode::{Connection, Installation, Settings, SqlNode};

/// Address space of the server: InnoDB's buffer pool holds all of its rows.
const ADDRESS_SPACE_MAX: u64 = 6 << 30;

/// Address space of a client program.
const CLIENT_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// How long a statement of a client program may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Variables of the server, for fairness: InnoDB has what it needs in memory and does not wait for the disk at a
/// commit.
const VARIABLES: [(&str, &str); 6] = [
    ("innodb_buffer_pool_size", "1G"),
    ("innodb_log_file_size", "512M"),
    ("innodb_flush_log_at_trx_commit", "2"),
    ("innodb_doublewrite", "OFF"),
    ("max_prepared_stmt_count", "100000"),
    ("table_open_cache", "2000"),
];

/// Vinga's database, and the engine of its tables.
pub const VINGA: (&str, &str) = ("bench_vinga", "vinga");
/// The peer's database and engine.
pub const INNODB: (&str, &str) = ("bench_innodb", "innodb");
/// A database for tables of either engine.
pub const BULK: &str = "bench_bulk";

/// A SQL server for a measurement. It ends when this is dropped.
#[derive(Debug)]
pub struct SqlServer {
    node: SqlNode,
    folder: PathBuf,
    stock: PathBuf,
    sysbench: PathBuf,
    client: PathBuf,
}

impl SqlServer {
    /// Starts a server in a fresh folder within `out`, for these data nodes, and makes the databases.
    ///
    /// # Errors
    /// There is no server or plugin (`make sql` installs them), or it does not start.
    pub fn start(out: &Path, data_nodes: &str, variables: &[(String, String)]) -> Result<Self> {
        let mut server = SqlServer::start_in("sql", out, data_nodes, variables)?;
        for database in [VINGA.0, INNODB.0, BULK] {
            server.execute(&format!("DROP DATABASE IF EXISTS {database}"))?;
            server.execute(&format!("CREATE DATABASE {database}"))?;
        }
        Ok(server)
    }

    /// Starts another server beside it, which finds the existing tables.
    ///
    /// # Errors
    /// As for [`SqlServer::start`].
    pub fn start_beside(out: &Path, data_nodes: &str) -> Result<Self> {
        let mut server = SqlServer::start_in("sql-beside", out, data_nodes, &[])?;
        for database in [VINGA.0, BULK] {
            server.execute(&format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
        }
        Ok(server)
    }

    fn start_in(name: &str, out: &Path, data_nodes: &str, variables: &[(String, String)]) -> Result<Self> {
        let installation = Installation::find().map_err(|error| Failure::new(error.to_string()))?;
        let folder = out.join(format!("{name}-{}", std::process::id()));
        if folder.exists() {
            fs::remove_dir_all(&folder).context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).context(|| format!("cannot make {}", folder.display()))?;
        let folder = folder.canonicalize().context(|| format!("cannot find {}", folder.display()))?;
        let stock = installation.mariadb().join("root/usr/share/sysbench");
        let sysbench = installation.program("sysbench");
        let client = installation.program("mariadb");
        let mut settings = Settings::new(&folder, data_nodes, installation);
        settings.address_space_max = Some(ADDRESS_SPACE_MAX);
        settings.ends_with_starter = true;
        settings.variables = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        settings.variables.extend_from_slice(variables);
        let node = SqlNode::start(settings).context(|| "cannot start a SQL node".into())?;
        Ok(SqlServer { node, folder, stock, sysbench, client })
    }

    /// A new session.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn connect(&self) -> Result<Connection> {
        self.node.connect().context(|| "cannot connect to the SQL node".into())
    }

    /// Runs a statement and returns its rows as text.
    ///
    /// # Errors
    /// The server's.
    pub fn execute(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let mut connection = self.connect()?;
        let answer = connection.query(statement).context(|| statement.to_owned())?;
        Ok(answer.strings())
    }

    /// Runs a statement by the client program of the server, which can read local files for it.
    ///
    /// # Errors
    /// The program's.
    pub fn run_client(&self, statement: &str) -> Result<()> {
        let mut socket = OsString::from("--socket=");
        socket.push(self.node.socket());
        let program = Program {
            name: "mariadb",
            path: self.client.clone(),
            arguments: vec![
                "--no-defaults".into(),
                "--user=root".into(),
                socket,
                "--local-infile=1".into(),
                "--execute".into(),
                statement.into(),
            ],
            memory_bytes_max: CLIENT_MEMORY_BYTES_MAX,
            run_max: PATIENCE,
        };
        program.run().map(|_| ()).map_err(|failure| Failure::new(format!("{statement}: {failure}")))
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.node.id()
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.node.socket()
    }

    /// Sysbench, set up for this server.
    ///
    /// # Errors
    /// Its scripts can't be written.
    pub fn sysbench(&self) -> Result<Sysbench> {
        Sysbench::new(&self.sysbench, &self.stock, &self.folder, &self.node.socket())
    }

    /// Stops it and removes its folder. One that is only dropped leaves its folder: the log is in it.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(mut self) -> Result<()> {
        self.node.stop().context(|| "cannot stop the SQL node".into())?;
        fs::remove_dir_all(&self.folder).context(|| format!("cannot remove {}", self.folder.display()))
    }
}

impl Drop for SqlServer {
    fn drop(&mut self) {
        if self.node.is_alive() {
            let _ = self.node.kill();
        }
    }
}
