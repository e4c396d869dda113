//! Several data nodes on this machine: one process each, which wait for each other at their start.
//!
//! Either all of them are made to run, or those that this command has started are stopped again. A data node that has
//! ended joins those that run.

use super::begun::Begun;
use super::started::Started;
use crate::admin::arbitration::Arbitration;
use crate::arguments::addresses_of;
use crate::cluster_file::ClusterFile;
use crate::data::{self, DataOptions};
use crate::data_node::{self, EarlierRun, LOOK_PAUSE, Sign};
use crate::management_node;
use crate::mgm;
use crate::waiting::Waiting;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga_config::data_nodes::DataNodes;
use vinga_config::parameters::Parameter;
use vinga_runtime::node_folder::NodeFolder;

/// How long the nodes may take until all of them are ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of the nodes to be started.
pub struct Wanted<'a> {
    /// The cluster's folder.
    pub cluster: &'a Path,
    /// Its configuration.
    pub file: &'a ClusterFile,
    /// The numbers of its data nodes.
    pub ids: &'a [u8],
    /// Those of its management nodes.
    pub management: &'a [u8],
    /// Parameters by name, over those of the file.
    pub parameters: &'a [(String, String)],
}

/// A cluster that runs.
pub struct Running {
    /// All data nodes, as the file has them, which may have been changed since they have begun.
    pub data_nodes: DataNodes,
    /// The same, as they have begun.
    pub begun: Begun,
    /// Each node: its number, its address, whether it was started by this command.
    pub nodes: Vec<(u8, String, bool)>,
    /// The data nodes of the file that the cluster which runs has never had.
    pub added: Vec<u8>,
    /// The management nodes, as `nodes`.
    pub management: Vec<(u8, String, bool)>,
    /// That no management node decides between the data nodes, in a sentence, if they say so.
    pub undecided: Option<String>,
    /// Why management nodes could not be started, or do not answer, while data nodes run.
    pub failures: Vec<String>,
    /// Those of them that run.
    pub unanswered: Vec<u8>,
    /// How long it took until the last one was ready.
    pub after: Duration,
    /// What they have logged meanwhile as warnings, each text once.
    pub warnings: Vec<String>,
    /// An earlier run of one of the nodes that were started, if there was one.
    pub before: Option<EarlierRun>,
}

impl Running {
    /// The nearest addresses of the data nodes.
    pub fn addresses(&self, cluster: &Path) -> Option<String> {
        nearest_addresses(cluster, &self.nodes)
    }
}

fn nearest_addresses(cluster: &Path, nodes: &[(u8, String, bool)]) -> Option<String> {
    addresses_of(nodes.iter().map(|(id, ..)| NodeFolder::new(cluster, *id)))
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
    for &id in wanted.management {
        mgm::configuration(wanted.file.path(), Some(id.into()))?;
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

/// Starts the nodes that do not run, and waits until all are ready. Data nodes that the cluster which runs has never
/// had are left out.
///
/// # Errors
/// A text: a node could not be started, and why.
pub fn start(wanted: &Wanted<'_>) -> Result<Running, String> {
    let data_nodes = check(wanted)?;
    let mut found = Vec::new();
    for &id in wanted.ids {
        found.push((id, look(&NodeFolder::new(wanted.cluster, id))?));
    }
    let ready = found.iter().filter_map(|(id, found)| match found {
        Found::Ready(address) => Some((*id, address.clone(), false)),
        Found::Starting | Found::Ended => None,
    });
    let running: Vec<_> = ready.collect();
    let connect = |nodes: &[(u8, String, bool)]| {
        nearest_addresses(wanted.cluster, nodes).and_then(|addresses| Cluster::connect(&addresses).ok())
    };
    let of_running = connect(&running).as_ref().and_then(Begun::of_running);
    let is_added = |id: u8| of_running.as_ref().is_some_and(|begun| !begun.has(id));
    let added: Vec<u8> = found
        .iter()
        .filter(|&&(id, ref found)| *found == Found::Ended && is_added(id))
        .map(|&(id, _)| id)
        .collect();
    let begun = Instant::now();
    // Data nodes ask them when they begin. They are stopped behind the data nodes if these do not start.
    let mut management_started = Started::default();
    let (mut failures, mut unanswered) = (Vec::new(), Vec::new());
    let management = if !running.is_empty() {
        // Whatever can run goes on, or is started.
        let mut management = Vec::new();
        for id in wanted.management {
            let mut one = Started::default();
            match start_management(wanted, std::slice::from_ref(id), &mut one) {
                Ok(addresses) => management.extend(addresses),
                Err(why) => {
                    failures.push(why);
                    let runs = matches!(management_node::folder(wanted.cluster, *id).running(), Ok(Some(_)));
                    unanswered.extend((runs && !one.has(*id)).then_some(*id));
                    continue;
                }
            }
            management_started.take_over(one);
        }
        management
    } else {
        start_management(wanted, wanted.management, &mut management_started)?
    };
    let mut started = Started::default();
    let mut before = None;
    for (id, _) in found.iter().filter(|(id, found)| *found == Found::Ended && !added.contains(id)) {
        let folder = NodeFolder::new(wanted.cluster, *id);
        before = before.or(EarlierRun::of(&folder));
        started.start(*id, format!("data node {id}"), folder, |folder| {
            let mut command = data_node::command(folder)?;
            command.arg("--config").arg(wanted.file.path()).arg("--node").arg(id.to_string());
            data_node::set(&mut command, wanted.parameters);
            Ok(command)
        })?;
    }
    let addresses = wait(&mut started, wanted, &added)?;
    let mut warnings = management_started.warnings();
    warnings.extend(started.warnings());
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let mark = |started: &Started, nodes: Vec<(u8, String)>| {
        nodes.into_iter().map(|(id, address)| (id, address, started.has(id))).collect()
    };
    let nodes: Vec<(u8, String, bool)> = mark(&started, addresses);
    let management = mark(&management_started, management);
    started.keep();
    management_started.keep();
    let after = begun.elapsed();
    let begun = of_running.unwrap_or_else(|| Begun::now(&data_nodes));
    let undecided = connect(&nodes).and_then(|cluster| Arbitration::of(&cluster, None).gap());
    Ok(Running {
        data_nodes,
        begun,
        nodes,
        added,
        management,
        undecided,
        failures,
        unanswered,
        after,
        warnings,
        before,
    })
}

/// Starts those of these management nodes that do not run; returns the addresses of all.
fn start_management(
    wanted: &Wanted<'_>,
    ids: &[u8],
    started: &mut Started,
) -> Result<Vec<(u8, String)>, String> {
    for &id in ids {
        let folder = management_node::folder(wanted.cluster, id);
        let running = folder.running();
        let running = running.map_err(|e| format!("cannot look into {}: {e}", folder.path().display()))?;
        if running.is_none() {
            started.start(id, management_node::name(id), folder, |folder| {
                management_node::command(folder, wanted.file, id)
            })?;
        }
    }
    let addresses = ids.iter().map(|&id| {
        let address = management_node::wait(wanted.cluster, id, || started.check())?;
        Ok((id, address))
    });
    addresses.collect()
}

/// Whether a node runs. Waits for one that ends at this moment.
fn look(folder: &NodeFolder) -> Result<Found, String> {
    let mut waiting = Waiting::begin();
    loop {
        let running = folder.running();
        let running = running.map_err(|e| format!("cannot look into {}: {e}", folder.path().display()))?;
        let Some(pid) = running else { return Ok(Found::Ended) };
        let Some(address) = folder.address() else { return Ok(Found::Starting) };
        let why = match data_node::probe(folder) {
            Ok(Sign::Closed(why)) => return Err(data_node::closed(folder, pid, &why)),
            Ok(Sign::Serves(_) | Sign::Refuses(_)) => return Ok(Found::Ready(address)),
            Err(why) => why,
        };
        if waiting.elapsed() >= PATIENCE {
            return Err(data_node::no_answer(folder, pid, &why));
        }
        waiting.say_if_long(|| format!("waiting: {}", data_node::no_answer(folder, pid, &why)));
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Waits until all data nodes of the cluster are ready, without those that it has never had; returns their addresses.
fn wait(started: &mut Started, wanted: &Wanted<'_>, added: &[u8]) -> Result<Vec<(u8, String)>, String> {
    let mut waited = Waiting::begin();
    let mut ready: Vec<(u8, String)> = Vec::new();
    loop {
        started.check()?;
        let mut waiting = Vec::new();
        let is_awaited = |id: u8| !added.contains(&id) && ready.iter().all(|(other, _)| *other != id);
        let awaited: Vec<u8> = wanted.ids.iter().copied().filter(|&id| is_awaited(id)).collect();
        for id in awaited {
            let folder = NodeFolder::new(wanted.cluster, id);
            match look(&folder)? {
                Found::Ready(address) => waiting.push((id, Some(address))),
                Found::Starting => waiting.push((id, None)),
                // It is our child, which is about to take its folder, or has just ended.
                Found::Ended if started.has(id) => waiting.push((id, None)),
                Found::Ended => {
                    let log = folder.log();
                    return Err(format!("data node {id} has ended; see its log, {}", log.display()));
                }
            }
        }
        let missing: Vec<String> =
            waiting.iter().filter(|(_, address)| address.is_none()).map(|(id, _)| id.to_string()).collect();
        ready.extend(waiting.into_iter().filter_map(|(id, address)| Some((id, address?))));
        if missing.is_empty() {
            ready.sort_unstable();
            return Ok(ready);
        }
        let (longest, missing) = (PATIENCE.as_secs(), missing.join(", "));
        let logs = wanted.cluster.join("node-*/vinga.log");
        if waited.elapsed() >= PATIENCE {
            return Err(format!(
                "not ready after {longest} s: data node {missing}; their logs: {}",
                logs.display()
            ));
        }
        waited.say_if_long(|| {
            format!(
                "waiting, for {longest} s at most, until data node {missing} is ready; the logs: {}",
                logs.display()
            )
        });
        std::thread::sleep(LOOK_PAUSE);
    }
}
