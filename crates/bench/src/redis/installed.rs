//! Where the programs of Redis are on this machine.

use crate::failure::{Context, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The server's binary.
pub(super) const SERVER: &str = "redis-server";
/// The same binary under its name in the package that does not install a service.
const SERVER_ALIAS: &str = "redis-check-rdb";
/// The load.
pub(super) const BENCHMARK: &str = "redis-benchmark";

/// The server's program, if it is installed.
///
/// # Errors
/// A text that says what to install.
pub fn find_server(folder: &Path) -> Result<PathBuf> {
    let missing = || {
        Failure::new(format!(
            "{SERVER} or {BENCHMARK} is not installed; scripts/install-bench-tools.sh installs them"
        ))
    };
    in_path(BENCHMARK).ok_or_else(missing)?;
    if let Some(server) = in_path(SERVER) {
        return Ok(server);
    }
    // The program's behaviour depends on the name by which it is called.
    let alias = in_path(SERVER_ALIAS).ok_or_else(missing)?;
    fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
    let link = folder.join(SERVER);
    if !link.exists() {
        std::os::unix::fs::symlink(alias, &link).context(|| format!("cannot make {}", link.display()))?;
    }
    fs::canonicalize(folder)
        .context(|| format!("cannot find {}", folder.display()))
        .map(|folder| folder.join(SERVER))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
