//! Where the server and the plugin are, and whether they fit each other.
//!
//! `make sql` puts them into the build's target folder:
//! ```text
//!   target/mariadb/root/            MariaDB's packages, unpacked
//!   target/mariadb/bin/             its programs for the command line
//!   target/sql/ha_vinga.so          the plugin
//!   target/sql/ha_vinga.server      the version of the server that it was built for
//! ```
//! Programs of the same build find them there, from the path of their own binary; the environment variables
//! `VINGA_MARIADB` (a folder as `target/mariadb`) and `VINGA_PLUGIN` (a file) name other places.

use crate::StartError;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The paths of the server and the plugin.
#[derive(Clone, Debug)]
pub struct Installation {
    mariadb: PathBuf,
    plugin: PathBuf,
}

impl Installation {
    /// The installation that the environment names, or that lies beside this program.
    ///
    /// # Errors
    /// There is none.
    pub fn find() -> Result<Self, StartError> {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self::of(named("VINGA_MARIADB"), named("VINGA_PLUGIN"))
    }

    /// An installation with the given parts; the others are taken from beside this program.
    ///
    /// # Errors
    /// A part does not exist.
    pub fn of(mariadb: Option<PathBuf>, plugin: Option<PathBuf>) -> Result<Self, StartError> {
        let mariadb = match mariadb {
            Some(given) => given,
            None => beside_this_program("mariadb/version")
                .and_then(|version| version.parent().map(Path::to_owned))
                .ok_or(StartError::NoServer(None))?,
        };
        let plugin = match plugin {
            Some(given) => given,
            None => beside_this_program("sql/ha_vinga.so").ok_or(StartError::NoPlugin(None))?,
        };
        // An absolute path, because the server changes its working directory.
        let mariadb = mariadb.canonicalize().map_err(|_| StartError::NoServer(Some(mariadb)))?;
        let plugin = plugin.canonicalize().map_err(|_| StartError::NoPlugin(Some(plugin)))?;
        let installation = Installation { mariadb, plugin };
        if !installation.server().is_file() {
            return Err(StartError::NoServer(Some(installation.mariadb)));
        }
        Ok(installation)
    }

    /// The folder with the server.
    pub fn mariadb(&self) -> &Path {
        &self.mariadb
    }

    /// The plugin.
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// One of the server's programs for the command line, which finds its libraries: `mariadb`, `mariadb-dump`,
    /// `sysbench` and others.
    pub fn program(&self, name: &str) -> PathBuf {
        self.mariadb.join("bin").join(name)
    }

    /// The folder in which the server's packages are unpacked.
    pub(crate) fn root(&self) -> PathBuf {
        self.mariadb.join("root")
    }

    pub(crate) fn server(&self) -> PathBuf {
        self.root().join("usr/sbin/mariadbd")
    }

    /// A program of the server, by its path, that is to find the libraries which were unpacked with it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let folders = ["lib", "usr/lib"].map(|folder| fs::read_dir(self.root().join(folder)));
        let folders = folders.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
        let libraries = folders.filter(|path| path.to_string_lossy().contains("-linux-gnu"));
        if let Ok(libraries) = std::env::join_paths(libraries) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Checks that the plugin was built for this server; returns the server's version. The server itself would perhaps
    /// not notice another version, and then crash.
    ///
    /// # Errors
    /// It was built for another, or the server does not run.
    pub(crate) fn check(&self) -> Result<String, StartError> {
        let server = self.server_version()?;
        let built_for = fs::read_to_string(server_file(&self.plugin))
            .map_err(|_| StartError::PluginOfUnknownServer(self.plugin.clone()))?;
        let built_for = built_for.trim().to_owned();
        if built_for == server {
            Ok(server)
        } else {
            Err(StartError::PluginOfAnotherServer { plugin: self.plugin.clone(), built_for, server })
        }
    }

    /// As the server prints it: `10.11.18-MariaDB-0+deb12u1`.
    fn server_version(&self) -> Result<String, StartError> {
        let output = self.command(&self.server()).args(["--no-defaults", "--version"]).output();
        let output = output.map_err(StartError::system(format!("cannot run {}", self.server().display())))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        version_in(&said).map(str::to_owned).ok_or_else(|| StartError::System {
            what: format!("{} --version ended with {}", self.server().display(), output.status),
            error: std::io::Error::other(
                [said.trim(), String::from_utf8_lossy(&output.stderr).trim()].join(" "),
            ),
        })
    }
}

/// The file beside a plugin that contains the version of the server that it was built for.
pub(crate) fn server_file(plugin: &Path) -> PathBuf {
    plugin.with_extension("server")
}

/// The version in the output of `mariadbd --version`: `… Ver 10.11.18-MariaDB for …`.
fn version_in(said: &str) -> Option<&str> {
    said.split_once(" Ver ")?.1.split_whitespace().next()
}

/// A file of the target folder that this program was built into: binaries lie one folder or two below it.
fn beside_this_program(file: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().skip(1).take(4).map(|folder| folder.join(file)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        let said = "/somewhere/mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)\n";
        assert_eq!(version_in(said), Some("10.11.18-MariaDB-0+deb12u1"));
        assert_eq!(version_in("cannot open shared object file"), None);
    }
}
