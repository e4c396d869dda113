//! The management nodes of a cluster on this machine: found, started, stopped.

use crate::cluster_file::ClusterFile;
use crate::data::host_and_port;
use crate::data_node::{self, LOOK_PAUSE, Stopped};
use crate::mgm;
use crate::numbered;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_config::management::ManagementNode;
use vinga_mgm::{ManagementAddresses, NotFetched, fetch};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;
use vinga_wire::configuration::ConfigurationReader;

/// How long a node may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a node is called.
pub fn name(node: u8) -> String {
    format!("management node {node}")
}

/// The folder of a management node.
pub fn folder(cluster: &Path, node: u8) -> NodeFolder {
    NodeFolder::at(cluster.join(format!("mgm-{node}")))
}

/// The ids of the management nodes that have a folder in the cluster's, whether they run or not, ascending.
///
/// # Errors
/// The file system's.
pub fn numbers(cluster: &Path) -> io::Result<Vec<u8>> {
    numbered::numbers(cluster, "mgm-")
}

/// The command that runs a management node as a background process.
///
/// # Errors
/// The log can't be written, or this program not be found.
pub fn command(folder: &NodeFolder, file: &ClusterFile, node: u8) -> io::Result<Command> {
    let mut command = data_node::background("mgm", folder)?;
    command.arg("--config").arg(file.path()).arg("--node").arg(node.to_string());
    Ok(command)
}

/// Where a management node that is configured so can be asked, with the cluster's key.
///
/// # Errors
/// A text: it has a folder, and has not said there where it listens.
pub fn way(cluster: &Path, configured: &ManagementNode) -> Result<ManagementAddresses, String> {
    way_by_folder(cluster, configured.node).unwrap_or_else(|| Ok(way_by_configuration(configured)))
}

/// `None` if it has no folder here.
fn way_by_folder(cluster: &Path, node: u8) -> Option<Result<ManagementAddresses, String>> {
    let own = folder(cluster, node);
    own.path().is_dir().then(|| {
        let address = own.address().ok_or("it has not said where it listens")?;
        let key = own.last_start().and_then(|start| start.key);
        Ok(ManagementAddresses { key, addresses: vec![address] })
    })
}

/// It has been started in another way than by 'vinga up', perhaps on another machine.
fn way_by_configuration(configured: &ManagementNode) -> ManagementAddresses {
    let ManagementNode { host, port, key_file, .. } = configured;
    ManagementAddresses {
        key: key_file.as_ref().map(PathBuf::from),
        addresses: vec![host_and_port(host, *port)],
    }
}

/// Asks a management node whether it is alive.
///
/// # Errors
/// Why there was no answer.
pub fn probe(cluster: &Path, node: u8) -> Result<(), NotFetched> {
    let configured = || mgm::configuration(ClusterFile::of(cluster).path(), Some(node.into()));
    let way = match way_by_folder(cluster, node) {
        Some(way) => way.map_err(NotFetched::NotReached)?,
        None => way_by_configuration(&configured().map_err(NotFetched::NotReached)?.own),
    };
    let fetched = fetch(&way, ConfigurationReader::Onlooker)?;
    if fetched.node != NodeId(node) {
        let why = format!("management node {} answers in its place", fetched.node);
        return Err(NotFetched::NotReached(why));
    }
    Ok(())
}

/// Waits until a node that runs, or was just started, answers; returns its address. `has_ended` says why it will not.
/// One that refuses, because of the cluster's key, for example, does so each time.
///
/// # Errors
/// A text: it has ended, or does not answer.
pub fn wait(
    cluster: &Path,
    node: u8,
    mut has_ended: impl FnMut() -> Result<(), String>,
) -> Result<String, String> {
    let begun = Instant::now();
    loop {
        has_ended()?;
        let folder = folder(cluster, node);
        let why = match folder.address() {
            None => "it is still starting".to_owned(),
            Some(address) => match probe(cluster, node) {
                Ok(()) => return Ok(address),
                Err(NotFetched::Refused(why)) => return Err(format!("{} can't be asked: {why}", name(node))),
                Err(why) => why.to_string(),
            },
        };
        if begun.elapsed() >= PATIENCE {
            let log = folder.log();
            return Err(format!("{} does not answer: {why}; see its log, {}", name(node), log.display()));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Stops the management node with this id; returns whether it was running.
///
/// # Errors
/// A text that says what failed.
pub fn stop(cluster: &Path, node: u8) -> Result<bool, String> {
    let folder = folder(cluster, node);
    match data_node::stop_process(&name(node), &folder)? {
        Stopped::Before | Stopped::InPause => return Ok(false),
        Stopped::InOrder => {}
        // There is nothing that it could have brought to disk.
        Stopped::LeftAlone | Stopped::Otherwise(_) => folder.withdraw(),
    }
    Ok(true)
}

/// Stops all management nodes of a cluster; returns whether one was running.
///
/// # Errors
/// A text that says what failed.
pub fn down(cluster: &Path) -> Result<bool, String> {
    let mut was_running = false;
    for node in numbers(cluster).unwrap_or_default() {
        if stop(cluster, node)? {
            was_running = true;
            say!("{} has stopped", name(node));
        }
    }
    Ok(was_running)
}
