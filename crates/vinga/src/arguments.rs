//! Arguments that several commands share.

use crate::data_node;
use clap::Args;
use rustix::fs::Access;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vinga_runtime::node_folder::NodeFolder;
use vinga_sqlnode::Installation;

/// The default folder of a cluster, in the current folder.
pub const FOLDER: &str = "vinga-cluster";

/// The folder of a cluster that a command starts, stops or inspects.
#[derive(Args)]
pub struct FolderArgument {
    /// The cluster's folder
    #[arg(long, value_name = "DIR", default_value = FOLDER, env = "VINGA_FOLDER")]
    pub folder: PathBuf,
}

/// How a command reaches a running cluster.
///
/// The command line overrides the environment, and an address overrides a folder. That is why clap does not read the
/// environment.
#[derive(Args)]
pub struct ConnectArguments {
    /// Where data nodes can be reached: host:port, or unix:/path/vinga.sock on their machine; several with commas
    /// between them [env: VINGA_CONNECT]
    #[arg(long, value_name = "HOST:PORT", global = true, conflicts_with = "folder")]
    connect: Option<String>,
    /// The folder of a cluster on this machine, whose data nodes are asked [env: VINGA_FOLDER] [default: vinga-cluster]
    #[arg(long, value_name = "DIR", global = true)]
    folder: Option<PathBuf>,
}

impl ConnectArguments {
    /// The addresses of data nodes, with commas between them.
    ///
    /// # Errors
    /// A text: no cluster is named, or none runs in the folder.
    pub fn address(&self) -> Result<String, String> {
        if let Some(address) = &self.connect {
            return Ok(address.clone());
        }
        if self.folder.is_none()
            && let Some(address) = std::env::var_os("VINGA_CONNECT").filter(|address| !address.is_empty())
        {
            return address.into_string().map_err(|_| "VINGA_CONNECT holds no text".to_owned());
        }
        address_in(&self.folder())
    }

    /// Whether the cluster is named by its folder, on the command line, in the environment or by default.
    pub fn is_by_folder(&self) -> bool {
        let has_address = || std::env::var_os("VINGA_CONNECT").is_some_and(|address| !address.is_empty());
        self.connect.is_none() && (self.folder.is_some() || !has_address())
    }

    /// The folder, whether it exists or not.
    pub fn folder(&self) -> PathBuf {
        let named = || std::env::var_os("VINGA_FOLDER").filter(|folder| !folder.is_empty());
        self.folder.clone().or_else(|| named().map(PathBuf::from)).unwrap_or_else(|| FOLDER.into())
    }
}

/// The addresses of the data nodes of a cluster on this machine, with commas between them: their Unix sockets if we may
/// use them, else TCP.
///
/// # Errors
/// A text: there is no such cluster, or none of its data nodes runs.
pub fn address_in(cluster: &Path) -> Result<String, String> {
    let place = cluster.display();
    if !cluster.is_dir() {
        return Err(format!(
            "which cluster? There is no folder {place} here: --folder names another, --connect HOST:PORT a data node, \
             'vinga up' starts a cluster"
        ));
    }
    let failed = |error| format!("cannot look into {place}: {error}");
    let mut running = Vec::new();
    for node in data_node::numbers(cluster).map_err(failed)? {
        let node = NodeFolder::new(cluster, node);
        if node.running().map_err(failed)?.is_some() {
            running.push(node);
        }
    }
    let Some(first) = running.first() else {
        return Err(format!("no data node runs in {place}: 'vinga up' starts it"));
    };
    let log = first.log();
    addresses_of(running.into_iter())
        .ok_or_else(|| format!("the data node in {place} is not ready yet: see its log, {}", log.display()))
}

/// The nearest addresses of those of these nodes that have one, with commas between them; `None` if none has.
pub fn addresses_of(nodes: impl Iterator<Item = NodeFolder>) -> Option<String> {
    let addresses: Vec<String> = nodes.filter_map(|node| nearest_address(&node)).collect();
    // All of them have the same key.
    let mut pieces: Vec<&str> = addresses.iter().flat_map(|address| address.split(',')).collect();
    let mut seen = BTreeSet::new();
    pieces.retain(|piece| seen.insert(*piece));
    (!pieces.is_empty()).then(|| pieces.join(","))
}

/// The Unix socket of a node if we may use it, else its TCP address; `None` while it has none. The cluster's key stands
/// before it if we may read it: the cluster names the other data nodes by their TCP addresses.
pub fn nearest_address(node: &NodeFolder) -> Option<String> {
    let may_use = rustix::fs::access(node.socket(), Access::READ_OK | Access::WRITE_OK).is_ok();
    // The address is written last: with it the socket is ready, too.
    let address = node.address()?;
    Some(with_key(node, &node.local_address().filter(|_| may_use).unwrap_or(address)))
}

/// Addresses of a node, or of nodes of the same cluster, as clients give them: with the cluster's key before them, if
/// it has one that we may read.
pub fn with_key(node: &NodeFolder, addresses: &str) -> String {
    let key = node.last_start().and_then(|start| start.key);
    match key.filter(|key| rustix::fs::access(key, Access::READ_OK).is_ok()) {
        Some(key) => format!("key={},{addresses}", key.display()),
        None => addresses.to_owned(),
    }
}

/// The paths of MariaDB and the storage engine.
#[derive(Args)]
pub struct InstallationArguments {
    /// The folder that 'make sql' brings MariaDB into [default: 'mariadb' in the build folder of this program]
    #[arg(long, value_name = "DIR", env = "VINGA_MARIADB")]
    mariadb: Option<PathBuf>,
    /// The storage engine that 'make sql' builds [default: 'sql/ha_vinga.so' in the build folder of this program]
    #[arg(long, value_name = "FILE", env = "VINGA_PLUGIN")]
    plugin: Option<PathBuf>,
}

impl InstallationArguments {
    /// Finds them.
    ///
    /// # Errors
    /// A text that says what is missing.
    pub fn find(&self) -> Result<Installation, String> {
        Installation::of(self.mariadb.clone(), self.plugin.clone()).map_err(|error| error.to_string())
    }
}

/// A reader of whole numbers in a range, for options: what is not one is refused with what is allowed.
pub fn whole<N>(
    allowed: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Send + Sync + Clone + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        let (least, most) = (allowed.start(), allowed.end());
        number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

/// `NAME=VALUE`.
///
/// # Errors
/// A text that says what is wrong.
pub fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_a_name() {
        assert_eq!(name_and_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(name_and_value("a").is_err() && name_and_value("=b").is_err());
    }

    #[test]
    fn a_cluster_that_is_not_there_is_named() {
        let missing = Path::new("/nowhere/at all");
        let error = address_in(missing).expect_err("it is not there");
        assert!(error.contains("/nowhere/at all") && error.contains("--connect"), "{error}");
        let empty = std::env::temp_dir().join(format!("vinga-empty-{}", std::process::id()));
        std::fs::create_dir_all(&empty).unwrap();
        let error = address_in(&empty).expect_err("nothing runs there");
        assert!(error.contains("no data node runs in") && error.contains("vinga up"), "{error}");
        std::fs::remove_dir_all(empty).unwrap();
    }
}
