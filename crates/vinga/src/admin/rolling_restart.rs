//! `vinga admin rolling-restart`: restarts all data nodes, one after the other, so that nobody notices.
//!
//! The next one stops when the one before is a full member again and has its share of the primaries. The one that leads
//! the cluster is the last: so the lead moves once. Management nodes in the cluster's folder are restarted before: so
//! all nodes have the configuration file as it is then. Nothing is stopped if that does not describe the cluster that
//! runs, and no data node as long as no management node arbitrates.

use super::arbitration::Arbitration;
use super::place::Configured;
use super::reorganize;
use super::restart::{Restarted, WITH_ANOTHER, restart};
use super::show::Management;
use crate::data_node::LOOK_PAUSE;
use crate::up;
use crate::waiting::Waiting;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{DataNode, NodeId};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::{complain, say};

/// How long it may take until the data nodes have chosen a management node that was started again: they look for one in
/// each heartbeat interval.
const ARBITRATION_PATIENCE: Duration = Duration::from_secs(60);

/// What is restarted.
pub struct Wanted<'a> {
    /// The cluster, of which all data nodes are that are members now.
    pub cluster: &'a Cluster,
    /// The cluster's folder, if that is on this machine: its management nodes are restarted before the data nodes.
    pub folder: Option<&'a Path>,
    /// How long one may take to leave, in seconds, at most.
    pub wait: u32,
    /// Whether each that has come back is said.
    pub is_said: bool,
}

/// Restarts all nodes, and says which.
///
/// # Errors
/// A text: the cluster can't do without each of them in turn, or one has failed; then the others are left as they are.
pub fn run(wanted: &Wanted<'_>, json: bool) -> Result<(), String> {
    let begun = Instant::now();
    let Done { management, data } = restart_all(wanted)?;
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        let nodes: Vec<_> = data.iter().map(Restarted::as_json).collect();
        say!("{}", json!({ "restarted": nodes, "management": management, "seconds": seconds }));
    } else {
        say!("all {} data nodes are restarted, in {seconds:.2} s", data.len());
    }
    Ok(())
}

/// What was restarted.
pub struct Done {
    /// Management nodes.
    management: Vec<u8>,
    /// Data nodes, in their order.
    data: Vec<Restarted>,
}

/// Restarts all nodes.
///
/// # Errors
/// A text, as of [`run`].
pub fn restart_all(wanted: &Wanted<'_>) -> Result<Done, String> {
    let &Wanted { cluster, folder, wait, is_said } = wanted;
    let (members, before) = (cluster.data_node_states(), cluster.reorganization());
    check(&members)?;
    let management = match folder {
        Some(folder) => {
            up::check_file(folder, cluster).map_err(|why| format!("{why}. Nothing was stopped"))?;
            restart_management(cluster, folder, is_said)?
        }
        None => Vec::new(),
    };
    if let Some(gap) = Arbitration::of(cluster, None).gap() {
        complain!("{gap}");
    }
    let order = DataNode::in_rolling_order(&members);
    let mut data: Vec<Restarted> = Vec::new();
    for (at, &node) in order.iter().enumerate() {
        let own = folder.map(|folder| NodeFolder::new(folder, node.0)).filter(|own| own.path().is_dir());
        let result = restart(cluster, node, own.as_ref(), wait, before);
        let restarted = result.map_err(|why| stopped_at(&why, &order[..at], &order[at..]))?;
        if is_said {
            say!("{}", restarted.describe());
        }
        data.push(restarted);
        let has_its_share = await_primaries(cluster, Duration::from_secs(wait.into()));
        reorganize::is_same(before, cluster.reorganization())?;
        if !has_its_share {
            // They need not be: another data node leaves by moving its own.
            complain!(
                "data node {node} has not its share of the primaries yet; the next one is restarted all the same"
            );
        }
    }
    Ok(Done { management, data })
}

/// Restarts the management nodes of a folder that run there, one after the other; returns which. Each has the file as
/// it is now. The next one stops when somebody arbitrates again.
fn restart_management(cluster: &Cluster, folder: &Path, is_said: bool) -> Result<Vec<u8>, String> {
    let restarted = up::management_that_runs(folder);
    for &node in &restarted {
        let address = up::restart_management(folder, node)
            .map_err(|why| format!("no data node was restarted: {why}"))?;
        if is_said {
            say!("management node {node} is started again, on {address}");
        }
        let mut waiting = Waiting::begin();
        let configured = Configured::in_folder(folder)?;
        while let Some(delay) = Arbitration::of(cluster, Some(&Management::look_at(&configured))).delay() {
            if waiting.elapsed() >= ARBITRATION_PATIENCE {
                let waited = ARBITRATION_PATIENCE.as_secs();
                return Err(format!("no data node was restarted, as {waited} s later {delay}"));
            }
            waiting.say_from_time_to_time(|| format!("waiting until a management node arbitrates: {delay}"));
            std::thread::sleep(LOOK_PAUSE);
        }
    }
    Ok(restarted)
}

/// Each needs another one with the same rows.
fn check(members: &[DataNode]) -> Result<(), String> {
    let is_alone =
        |one: &&DataNode| !members.iter().any(|other| other.group == one.group && other.node != one.node);
    let Some(alone) = members.iter().find(is_alone) else { return Ok(()) };
    let (node, group) = (alone.node, alone.group);
    Err(format!(
        "data nodes can be restarted one after the other only if each node group has another one with the same rows: data \
         node {node} is the only one of node group {group} that has all its rows. Nothing was stopped: {WITH_ANOTHER}"
    ))
}

fn stopped_at(why: &str, done: &[NodeId], rest: &[NodeId]) -> String {
    let list = |nodes: &[NodeId]| match nodes {
        [] => "none".to_owned(),
        nodes => nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", "),
    };
    format!("the rolling restart ends here: {why}\nrestarted: {}; not restarted: {}", list(done), list(rest))
}

/// Waits until the primaries are spread over all data nodes, so long at most; returns whether they are.
fn await_primaries(cluster: &Cluster, patience: Duration) -> bool {
    let mut waiting = Waiting::begin();
    while waiting.elapsed() < patience {
        if DataNode::are_balanced(&cluster.data_node_states()) {
            return true;
        }
        waiting.say_from_time_to_time(|| "waiting until it has its share of the primaries".to_owned());
        std::thread::sleep(LOOK_PAUSE);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;

    fn member(node: u8, group: u16, leads: bool, primaries: usize) -> DataNode {
        let incarnation = Incarnation(1);
        DataNode { node: NodeId(node), incarnation, group, leads, partitions: 4, primaries }
    }

    #[test]
    fn each_has_another_one_with_its_rows() {
        let members = [member(1, 0, true, 2), member(2, 0, false, 2), member(3, 1, false, 2)];
        check(&members[..2]).expect("they have each other");
        let why = check(&members).expect_err("node 3 is alone");
        assert!(why.contains("data node 3 is the only one of node group 1"), "{why}");
        check(&[]).expect("there is nothing to do");
    }

    #[test]
    fn a_failure_names_those_that_are_done_and_those_that_are_not() {
        let text = stopped_at("it is gone", &[NodeId(2)], &[NodeId(3), NodeId(1)]);
        assert!(text.ends_with("it is gone\nrestarted: 2; not restarted: 3, 1"), "{text}");
        assert!(stopped_at("why", &[], &[NodeId(1)]).contains("restarted: none;"));
    }
}
