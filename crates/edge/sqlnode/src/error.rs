//! Why a SQL node did not start.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a SQL node did not start; displayed, it is a text for the user.
#[derive(Debug)]
pub enum StartError {
    /// There is no server at this path; or, for `None`, beside this program.
    NoServer(Option<PathBuf>),
    /// There is no plugin at this path; or, for `None`, beside this program.
    NoPlugin(Option<PathBuf>),
    /// It is unknown for which server the plugin was built.
    PluginOfUnknownServer(PathBuf),
    /// The plugin was built for another version of the server.
    PluginOfAnotherServer {
        /// The plugin.
        plugin: PathBuf,
        /// The version of the server that it was built for.
        built_for: String,
        /// The version of the installed server.
        server: String,
    },
    /// The folder's data directory is of another series of the server.
    DataOfAnotherServer {
        /// The data directory.
        data: PathBuf,
        /// The version that has made it; `None` if it is unknown.
        made_by: Option<String>,
        /// The version of the installed server.
        server: String,
    },
    /// A server runs in this folder already.
    AlreadyRunning(PathBuf),
    /// Another process listens on this port.
    PortInUse(u16),
    /// The path of the Unix socket is longer than the operating system allows.
    LongSocketPath(PathBuf),
    /// The data directory could not be made.
    Bootstrap {
        /// How the server's script ended.
        status: ExitStatus,
        /// The end of its output.
        said: String,
    },
    /// The server has stopped instead of answering.
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The errors in its log, or its last lines if there are none.
        tail: String,
    },
    /// The server did not answer in time, and was killed.
    Silent {
        /// How long it was given.
        patience: Duration,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The operating system refused something.
    System {
        /// What was tried.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl StartError {
    /// The operating system refused something: for `map_err`.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
        let what = what.into();
        move |error| StartError::System { what, error }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoServer(None) => write!(
                f,
                "there is no MariaDB server beside this program: 'make sql' in the sources brings it and builds the storage \
                 engine; a program that was installed elsewhere finds both by VINGA_MARIADB=SOURCES/target/mariadb and \
                 VINGA_PLUGIN=SOURCES/target/sql/ha_vinga.so"
            ),
            StartError::NoServer(Some(place)) => {
                write!(f, "there is no MariaDB server in {}: no usr/sbin/mariadbd", place.display())
            }
            StartError::NoPlugin(None) => write!(
                f,
                "there is no storage engine ha_vinga.so beside this program: 'make sql' in the sources builds it; a program \
                 that was installed elsewhere finds it by VINGA_PLUGIN=SOURCES/target/sql/ha_vinga.so"
            ),
            StartError::NoPlugin(Some(path)) => {
                write!(f, "there is no storage engine {}: 'make sql' builds it", path.display())
            }
            StartError::PluginOfUnknownServer(plugin) => write!(
                f,
                "{} does not say which server it was built for ({} is missing beside it): 'make sql' builds it anew",
                plugin.display(),
                crate::installation::server_file(plugin).display()
            ),
            StartError::PluginOfAnotherServer { plugin, built_for, server } => write!(
                f,
                "{} was built for MariaDB {built_for}, but the server is {server}; a storage engine works with exactly \
                 the server that it was built for: 'make sql' builds it anew",
                plugin.display()
            ),
            StartError::DataOfAnotherServer { data, made_by: Some(made_by), server } => write!(
                f,
                "the data directory {} was made by MariaDB {made_by}, but the server is {server}: \
                 remove the directory, or take another folder",
                data.display()
            ),
            StartError::DataOfAnotherServer { data, made_by: None, server } => write!(
                f,
                "{} is no data directory of MariaDB {server}, or one that was begun only: \
                 remove it, or take another folder",
                data.display()
            ),
            StartError::AlreadyRunning(folder) => {
                write!(f, "a SQL node runs in {} already", folder.display())
            }
            StartError::PortInUse(port) => write!(f, "port {port} of 127.0.0.1 is in use: choose another"),
            StartError::LongSocketPath(path) => write!(
                f,
                "{} is too long for a socket's path, which may have {} bytes: choose a shorter folder",
                path.display(),
                crate::sql_node::SOCKET_PATH_BYTES_MAX
            ),
            StartError::Bootstrap { status, said } => {
                write!(f, "the data directory could not be made ({status}): {said}")
            }
            StartError::Ended { status, log, tail } => {
                write!(f, "the SQL node has stopped ({status}); out of its log, {}:\n{tail}", log.display())
            }
            StartError::Silent { patience, log, tail } => write!(
                f,
                "the SQL node did not answer within {} s and was killed; the end of its log, {}:\n{tail}",
                patience.as_secs_f64(),
                log.display()
            ),
            StartError::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
