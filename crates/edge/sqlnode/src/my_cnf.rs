//! The settings of a SQL node: its `my.cnf`.
//!
//! `docs/sql.md` lists them for users. They are written anew by each start: settings that a user changes are passed to
//! the start, stand last, and so take effect.

use crate::sql_node::Settings;
use std::fmt::Write;
use std::path::Path;

/// Settings of every SQL node, with the reasons.
const ALWAYS: &str = "\
# Accounts have no passwords: nobody but this machine.
bind-address=127.0.0.1
skip-name-resolve
character-set-server=utf8mb4
collation-server=utf8mb4_general_ci

# A statement that changes rows on another SQL node goes past this one's binary log and query cache.
skip-log-bin
query_cache_type=OFF
query_cache_size=0

# A table is on the data nodes, for all SQL nodes, unless somebody says otherwise. Temporary ones are this server's own.
default_storage_engine=VINGA
default_tmp_storage_engine=InnoDB

# Reads of the stricter levels take locks.
transaction_isolation=READ-COMMITTED

# Joins ask for the rows of many keys at once (batched key access).
join_cache_level=6
# The server's hash joins lose rows whose texts differ in trailing blanks only.
optimizer_switch=join_cache_hashed=off

# Rows are in the data nodes: what the server keeps itself is small.
innodb_buffer_pool_size=16M
innodb_buffer_pool_size_max=16M
innodb_log_file_size=8M
innodb_autoextend_increment=1
aria_pagecache_buffer_size=8M
key_buffer_size=1M
performance_schema=OFF
max_connections=600

# Without its storage engine it must not start.
vinga=FORCE
";

/// Variables that only the start itself knows or relies on.
const OWN: [&str; 15] = [
    "basedir",
    "character_sets_dir",
    "datadir",
    "lc_messages_dir",
    "log_error",
    "pid_file",
    "plugin_dir",
    "plugin_load",
    "plugin_load_add",
    "port",
    "skip_networking",
    "socket",
    "tmpdir",
    "user",
    "vinga",
];

/// Whether a variable of the server is set by each start, so that users may not set it: paths, the port, the storage
/// engine.
pub fn is_own(variable: &str) -> bool {
    let name = variable.trim().to_lowercase().replace('-', "_");
    OWN.contains(&name.strip_prefix("loose_").unwrap_or(&name))
}

/// The text of a node's `my.cnf`; `folder` is the node's own, `port` the one that was chosen.
pub fn text(settings: &Settings, folder: &Path, port: u16) -> String {
    let root = settings.installation.root();
    let share = root.join("usr/share/mysql");
    let plugin = settings.installation.plugin();
    let mut text = String::from("# Written by each start of this SQL node; changes are lost.\n[mariadbd]\n");
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}={value}").expect("a string takes all");
    };
    // The server refuses to run as root unless it is configured to.
    if rustix::process::geteuid().is_root() {
        set("user", &"root");
    }
    set("basedir", &root.join("usr").display());
    set("lc-messages-dir", &share.display());
    set("character-sets-dir", &share.join("charsets").display());
    set("datadir", &folder.join("data").display());
    set("tmpdir", &folder.join("tmp").display());
    set("socket", &folder.join(crate::sql_node::SOCKET).display());
    set("pid-file", &folder.join("data/mariadbd.pid").display());
    set("port", &port);
    set("plugin-dir", &plugin.parent().expect("it is a file's whole path").display());
    set("plugin-load-add", &plugin.file_name().expect("it is a file's path").display());
    set("vinga_connectstring", &settings.data_nodes);
    text.push('\n');
    text.push_str(ALWAYS);
    if !settings.variables.is_empty() {
        text.push_str("\n# Given to the start.\n");
        for (name, value) in &settings.variables {
            writeln!(text, "{name}={value}").expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_start_sets_itself_is_known_however_it_is_written() {
        for own in ["socket", "PORT", "pid-file", "plugin_dir", "loose-datadir", "skip_networking"] {
            assert!(is_own(own), "{own}");
        }
        for free in ["max_connections", "bind_address", "vinga_connectstring", "sock", ""] {
            assert!(!is_own(free), "{free}");
        }
    }
}
