//! `vinga admin rolling-restart`: restarts all data nodes, one after the other, so that nobody notices.
//!
//! The next one stops when the one before is a full member again and has its share of the primaries. The one that leads
//! the cluster is the last: so the lead moves once.

use super::restart::{Restarted, restart};
use crate::data_node::LOOK_PAUSE;
use crate::waiting::Waiting;
use serde_json::json;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{DataNode, NodeId};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::{complain, say};

/// Restarts all data nodes that are members now. `folder`: the folder of one, if that is on this machine.
///
/// # Errors
/// A text: the cluster can't do without each of them in turn, or one has failed; then the others are left as they are.
pub fn run(
    cluster: &Cluster,
    folder: impl Fn(NodeId) -> Option<NodeFolder>,
    wait: u32,
    json: bool,
) -> Result<(), String> {
    let begun = Instant::now();
    let members = cluster.data_node_states();
    check(&members)?;
    let order = DataNode::in_rolling_order(&members);
    let mut done: Vec<Restarted> = Vec::new();
    for (at, &node) in order.iter().enumerate() {
        let result = restart(cluster, node, folder(node).as_ref(), wait);
        let restarted = result.map_err(|why| stopped_at(&why, &order[..at], &order[at..]))?;
        if !json {
            say!("{}", restarted.describe());
        }
        done.push(restarted);
        if !await_primaries(cluster, Duration::from_secs(wait.into())) {
            // They need not be: another data node leaves by moving its own.
            complain!(
                "data node {node} has not its share of the primaries yet; the next one is restarted all the same"
            );
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        let nodes: Vec<_> = done.iter().map(Restarted::as_json).collect();
        say!("{}", json!({ "restarted": nodes, "seconds": seconds }));
    } else {
        say!("all {} data nodes are restarted, in {seconds:.2} s", done.len());
    }
    Ok(())
}

/// Each needs another one with the same rows.
fn check(members: &[DataNode]) -> Result<(), String> {
    let is_alone =
        |one: &&DataNode| !members.iter().any(|other| other.group == one.group && other.node != one.node);
    let Some(alone) = members.iter().find(is_alone) else { return Ok(()) };
    let (node, group) = (alone.node, alone.group);
    Err(format!(
        "data nodes can be restarted one after the other only if each node group has another one with the same rows: data \
         node {node} is the only one of node group {group} that has all its rows. Nothing was stopped. 'vinga down' and \
         'vinga up' restart the whole cluster of a folder"
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
