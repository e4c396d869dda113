//! A SQL node's data directory: made once, by copying one that was made once for all nodes of an installation.
//!
//! The server's own script makes a data directory in two or three seconds. The first is kept beside the server (when
//! that folder can be written) and copied for every node of the same user. Each appears by a rename, so that an
//! existing one is complete.

use crate::{Installation, StartError};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

/// Threads of this process make the first data directory one at a time; processes may race for the rename.
static MAKING: Mutex<()> = Mutex::new(());

/// Makes the data directory if it does not exist; otherwise checks that it fits the server.
///
/// # Errors
/// It is of another version of the server, or can't be made.
pub fn prepare(installation: &Installation, server: &str, data: &Path) -> Result<(), StartError> {
    if data.exists() {
        return check(server, data);
    }
    let unfinished = data.with_extension("new");
    let failed = |what: &str| StartError::system(format!("cannot {what} {}", unfinished.display()));
    remove(&unfinished).map_err(failed("remove"))?;
    match template(installation, server) {
        Ok(template) => {
            let what = format!("cannot copy {} to {}", template.display(), unfinished.display());
            copy(&template, &unfinished).map_err(StartError::system(what))?;
        }
        // The server's folder may be read-only, or another user has made the template and alone can read it.
        Err(StartError::System { .. }) => bootstrap(installation, &unfinished)?,
        Err(other) => return Err(other),
    }
    fs::rename(&unfinished, data).map_err(failed("rename"))
}

/// The data directory that others are copied from; made if it does not exist.
fn template(installation: &Installation, server: &str) -> Result<PathBuf, StartError> {
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let template = installation.mariadb().join(format!("data-{server}"));
    if !template.exists() {
        let unfinished = template.with_extension(format!("{}.new", std::process::id()));
        let failed = |what: &str| StartError::system(format!("cannot {what} {}", unfinished.display()));
        remove(&unfinished).map_err(failed("remove"))?;
        bootstrap(installation, &unfinished)?;
        if let Err(error) = fs::rename(&unfinished, &template) {
            let _ = remove(&unfinished);
            // Another process may have been quicker.
            if !template.exists() {
                return Err(failed("rename")(error));
            }
        }
    }
    fs::read_dir(&template).map_err(StartError::system(format!("cannot read {}", template.display())))?;
    Ok(template)
}

/// Has the server's own script make a data directory: accounts without passwords.
fn bootstrap(installation: &Installation, data: &Path) -> Result<(), StartError> {
    let root = installation.root();
    let script = root.join("usr/bin/mariadb-install-db");
    make_private(data).map_err(StartError::system(format!("cannot make {}", data.display())))?;
    let mut command = installation.command(&script);
    command.arg("--no-defaults").arg(format!("--basedir={}", root.join("usr").display()));
    command.arg(format!("--lc-messages-dir={}", root.join("usr/share/mysql").display()));
    command.arg(format!("--datadir={}", data.display()));
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-log-bin"]);
    // No names of this machine, which would have to be resolved.
    command.arg("--cross-bootstrap");
    // Small, since it is copied for every node.
    command.args([
        "--innodb-log-file-size=8M",
        "--innodb-buffer-pool-size=16M",
        "--innodb-autoextend-increment=1",
    ]);
    command.args(["--innodb-flush-method=nosync"]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(StartError::system(format!("cannot run {}", script.display())))?;
    if output.status.success() && data.join("mysql").is_dir() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let said = lines[lines.len().saturating_sub(20)..].join("\n");
    let _ = remove(data);
    Err(StartError::Bootstrap { status: output.status, said })
}

/// Data directories fit all versions of a series (`10.11`).
fn check(server: &str, data: &Path) -> Result<(), StartError> {
    let made_by = ["mariadb_upgrade_info", "mysql_upgrade_info"];
    let made_by = made_by.iter().find_map(|file| fs::read_to_string(data.join(file)).ok());
    let made_by = made_by.map(|text| text.trim_matches(['\0', '\n', ' ']).to_owned());
    if made_by.as_deref().map(series) == Some(series(server)) {
        return Ok(());
    }
    Err(StartError::DataOfAnotherServer { data: data.to_owned(), made_by, server: server.to_owned() })
}

/// `10.11` of `10.11.18-MariaDB`.
fn series(version: &str) -> &str {
    version.match_indices('.').nth(1).map_or(version, |(end, _)| &version[..end])
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a folder that no other user can read: it holds accounts.
fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Copies a folder with all its contents.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    make_private(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_series() {
        assert_eq!(series("10.11.18-MariaDB-0+deb12u1"), "10.11");
        assert_eq!(series("11.4.2-MariaDB"), "11.4");
        assert_eq!(series("nonsense"), "nonsense");
    }
}
