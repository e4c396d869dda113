//! Several data nodes on this machine: one process each, which wait for each other at their start.
//!
//! Either all of them are made to run, or those that this command has started are stopped again. A data node that has
//! ended can't come back to a cluster that runs.

use crate::cluster_file::ClusterFile;
use crate::data::{self, DataOptions};
use crate::data_node::{self, EarlierRun, LOOK_PAUSE};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use vinga_config::data_nodes::DataNodes;
use vinga_config::parameters::Parameter;
use vinga_datanode::why_refused;
use vinga_runtime::node_folder::{self, NodeFolder};

/// How long the nodes may take until all of them are ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a node that this command has started may take to stop when another one could not be started. Nothing is on
/// its disk.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Settings of the nodes to be started.
pub struct Wanted<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// Its configuration.
    pub file: &'a ClusterFile,
    /// The numbers of its data nodes.
    pub ids: &'a [u8],
    /// Parameters by name, over those of the file.
    pub parameters: &'a [(String, String)],
}

/// A cluster that runs.
pub struct Running {
    /// All data nodes, as they are configured.
    pub data_nodes: DataNodes,
    /// Each node: its number, its address, whether it was started by this command.
    pub nodes: Vec<(u8, String, bool)>,
    /// How long it took until the last one was ready.
    pub after: Duration,
    /// What they have logged meanwhile as warnings, each text once.
    pub warnings: Vec<String>,
    /// An earlier run of one of the nodes that were started, if there was one.
    pub before: Option<EarlierRun>,
}

/// The configuration of the nodes, which is the same for all but for what each has of its own.
///
/// # Errors
/// All errors, those of each node.
pub fn check(wanted: &Wanted<'_>) -> Result<DataNodes, String> {
    let mut checked = None;
    // The first node has all errors in what the nodes share.
    for &id in wanted.ids {
        let own = (Parameter::NodeId.name().to_owned(), id.to_string());
        let parameters = wanted.parameters.iter().cloned().chain([own]).collect();
        let options = DataOptions { config: Some(wanted.file.path().to_owned()), parameters };
        checked = Some(data::configuration(&options)?.data_nodes);
    }
    checked.ok_or_else(|| format!("{} has no data node", wanted.file.path().display()))
}

/// How a data node was found.
#[derive(PartialEq, Eq, Debug)]
enum Found {
    /// It answers, at this address.
    Ready(String),
    /// It waits for the others.
    Starting,
    /// It does not run.
    Ended,
}

/// Starts the nodes that do not run, and waits until all are ready.
///
/// # Errors
/// A text: a node could not be started, and why; or some have ended while others run.
pub fn start(wanted: &Wanted<'_>) -> Result<Running, String> {
    let data_nodes = check(wanted)?;
    let mut found = Vec::new();
    for &id in wanted.ids {
        found.push((id, look(&NodeFolder::new(wanted.cluster, id))?));
    }
    refuse_returns(wanted.cluster, &found)?;
    let begun = Instant::now();
    let mut started = Started::default();
    let mut before = None;
    for (id, _) in found.iter().filter(|(_, found)| *found == Found::Ended) {
        let folder = NodeFolder::new(wanted.cluster, *id);
        before = before.or(EarlierRun::of(&folder));
        started.start(wanted, *id, folder)?;
    }
    let addresses = started.wait(wanted)?;
    let warnings = started.warnings();
    let is_fresh = |id| started.nodes.iter().any(|node| node.id == id);
    let nodes = addresses.into_iter().map(|(id, address)| (id, address, is_fresh(id))).collect();
    started.nodes.clear();
    Ok(Running { data_nodes, nodes, after: begun.elapsed(), warnings, before })
}

/// A data node does not come back to a cluster that runs.
fn refuse_returns(cluster: &Path, found: &[(u8, Found)]) -> Result<(), String> {
    let numbers = |is: fn(&Found) -> bool| {
        let numbers: Vec<String> =
            found.iter().filter(|(_, found)| is(found)).map(|(id, _)| id.to_string()).collect();
        numbers.join(", ")
    };
    let running = numbers(|found| matches!(found, Found::Ready(_)));
    let ended = numbers(|found| *found == Found::Ended);
    if running.is_empty() || ended.is_empty() {
        return Ok(());
    }
    Err(format!(
        "in {} some data nodes run ({running}) and some do not ({ended}). A data node that has ended can't come back to a running \
         cluster in this version: the others serve its rows, if their node group has one left. 'vinga down' stops them all, \
         and the next 'vinga up' begins with an empty database ('vinga admin backup' saves it before)",
        cluster.display()
    ))
}

/// Whether a node runs. Waits for one that ends at this moment.
fn look(folder: &NodeFolder) -> Result<Found, String> {
    let begun = Instant::now();
    loop {
        let running = folder.running();
        let running = running.map_err(|e| format!("cannot look into {}: {e}", folder.path().display()))?;
        let Some(pid) = running else { return Ok(Found::Ended) };
        let Some(address) = folder.address() else { return Ok(Found::Starting) };
        let Err(why) = data_node::probe(folder) else { return Ok(Found::Ready(address)) };
        if begun.elapsed() >= PATIENCE {
            return Err(format!(
                "the data node in {} runs (process {pid}), but does not answer: {why}; see its log, {}",
                folder.path().display(),
                folder.log().display()
            ));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Nodes that this command has started. They are stopped when this is dropped, unless they were taken out before.
#[derive(Default)]
struct Started {
    nodes: Vec<StartedNode>,
}

struct StartedNode {
    id: u8,
    folder: NodeFolder,
    child: Child,
    /// Length of its log before.
    log_bytes: u64,
}

impl Started {
    fn start(&mut self, wanted: &Wanted<'_>, id: u8, folder: NodeFolder) -> Result<(), String> {
        let fail = |what: &str, error: &io::Error| {
            format!("data node {id}: {what} {}: {}", folder.path().display(), why_refused(error))
        };
        folder.create().map_err(|e| fail("cannot make the folder", &e))?;
        // Removes the address of a node that was killed: an address that appears later is the new node's.
        drop(folder.lock().map_err(|e| fail("cannot use the folder", &e))?);
        let log_bytes = folder.log_bytes();
        let mut command = data_node::command(&folder).map_err(|e| fail("cannot start a data node in", &e))?;
        command.arg("--config").arg(wanted.file.path()).arg("--node").arg(id.to_string());
        data_node::set(&mut command, wanted.parameters);
        let child = command.spawn().map_err(|e| fail("cannot start a data node in", &e))?;
        self.nodes.push(StartedNode { id, folder, child, log_bytes });
        Ok(())
    }

    /// Waits until all nodes of the cluster are ready; returns their addresses.
    fn wait(&mut self, wanted: &Wanted<'_>) -> Result<Vec<(u8, String)>, String> {
        let begun = Instant::now();
        let mut ready: Vec<(u8, String)> = Vec::new();
        loop {
            for node in &mut self.nodes {
                if let Ok(Some(status)) = node.child.try_wait() {
                    let why = data_node::why_ended(&node.folder, node.log_bytes, status);
                    return Err(format!("data node {} {why}", node.id));
                }
            }
            let mut waiting = Vec::new();
            for &id in wanted.ids.iter().filter(|&&id| ready.iter().all(|(other, _)| *other != id)) {
                let folder = NodeFolder::new(wanted.cluster, id);
                match look(&folder)? {
                    Found::Ready(address) => waiting.push((id, Some(address))),
                    Found::Starting => waiting.push((id, None)),
                    // It is our child, which is about to take its folder, or has just ended.
                    Found::Ended if self.nodes.iter().any(|node| node.id == id) => waiting.push((id, None)),
                    Found::Ended => {
                        let log = folder.log();
                        return Err(format!("data node {id} has ended; see its log, {}", log.display()));
                    }
                }
            }
            let missing: Vec<String> = waiting
                .iter()
                .filter(|(_, address)| address.is_none())
                .map(|(id, _)| id.to_string())
                .collect();
            ready.extend(waiting.into_iter().filter_map(|(id, address)| Some((id, address?))));
            if missing.is_empty() {
                ready.sort_unstable();
                return Ok(ready);
            }
            if begun.elapsed() >= PATIENCE {
                return Err(format!(
                    "not ready after {} s: data node {}; their logs: {}",
                    PATIENCE.as_secs(),
                    missing.join(", "),
                    wanted.cluster.join("node-*/vinga.log").display()
                ));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let all = self.nodes.iter().flat_map(|node| node.folder.log_warnings(node.log_bytes));
        let mut seen = BTreeSet::new();
        all.filter(|warning| seen.insert(warning.clone())).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for node in &self.nodes {
            if let Some(pid) = rustix::process::Pid::from_raw(node.child.id() as i32) {
                let _ = node_folder::send_signal(pid, rustix::process::Signal::TERM);
            }
        }
        let begun = Instant::now();
        for node in &mut self.nodes {
            while begun.elapsed() < STOP_PATIENCE && matches!(node.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_PAUSE);
            }
            let _ = node.child.kill().and_then(|()| node.child.wait());
            // What is left of it is no crash.
            node.folder.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_ended_does_not_come_back() {
        let ready = || Found::Ready("127.0.0.1:1".into());
        let check = |found: &[(u8, Found)]| refuse_returns(Path::new("here"), found);
        assert_eq!(check(&[(1, ready()), (2, ready())]), Ok(()));
        assert_eq!(check(&[(1, Found::Ended), (2, Found::Ended)]), Ok(()));
        // The last `vinga up` was interrupted.
        assert_eq!(check(&[(1, Found::Starting), (2, Found::Ended)]), Ok(()));
        let why = check(&[(1, Found::Ended), (2, ready()), (3, ready()), (4, Found::Ended)]);
        let why = why.expect_err("two are gone");
        assert!(why.contains("some data nodes run (2, 3) and some do not (1, 4)"), "{why}");
        assert!(why.contains("can't come back") && why.contains("vinga down"), "{why}");
    }
}
