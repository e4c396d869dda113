//! `vinga admin reorganize`: has partitions move until each node group has its share.
//!
//! The data nodes go on by themselves: this command only asks them, and says how far they are.

use crate::data_node::LOOK_PAUSE;
use crate::waiting::Waiting;
use serde_json::{Value, json};
use std::time::Instant;
use vinga::NodeGroup;
use vinga::blocking::Cluster;
use vinga_runtime::say;

/// Has the cluster reorganize, and returns when it has, if that is to be awaited.
///
/// # Errors
/// A text: the data nodes refuse it, or can't be asked.
pub fn run(cluster: &Cluster, waits: bool, json: bool) -> Result<(), String> {
    let begun = Instant::now();
    cluster.reorganize(true).map_err(|error| error.to_string())?;
    let mut shown = Vec::new();
    let mut waiting = Waiting::begin();
    while waits && cluster.reorganizes() {
        let groups = cluster.node_groups();
        if !json && groups != shown {
            say!("{}", shares(&groups));
            shown.clone_from(&groups);
        }
        waiting.say_from_time_to_time(|| missing(&groups));
        std::thread::sleep(LOOK_PAUSE);
    }
    let (groups, seconds) = (cluster.node_groups(), begun.elapsed().as_secs_f64());
    match (json, cluster.reorganizes()) {
        (true, reorganizes) => say!("{}", as_json(&groups, reorganizes, seconds)),
        (false, true) => say!("partitions move; 'vinga admin reorganize' says when they have"),
        (false, false) => say!("each node group has its share, after {seconds:.2} s: {}", shares(&groups)),
    }
    Ok(())
}

/// Has no further partition begin to move.
///
/// # Errors
/// A text: the data nodes refuse it, or can't be asked.
pub fn stop(cluster: &Cluster, json: bool) -> Result<(), String> {
    cluster.reorganize(false).map_err(|error| error.to_string())?;
    let groups = cluster.node_groups();
    if json {
        say!("{}", as_json(&groups, cluster.reorganizes(), 0.0));
    } else {
        let rest = if cluster.reorganizes() { ", when the one that moves has come" } else { "" };
        say!("no further partition moves{rest}: {}", shares(&groups));
    }
    Ok(())
}

fn shares(groups: &[NodeGroup]) -> String {
    let share = |group: &NodeGroup| {
        let NodeGroup { group, partitions, coming, .. } = group;
        let coming = if *coming > 0 { format!(" ({coming} on its way)") } else { String::new() };
        format!("node group {group} has {partitions}{coming}")
    };
    format!("of the partitions {}", groups.iter().map(share).collect::<Vec<_>>().join(", "))
}

/// What may be in the way.
fn missing(groups: &[NodeGroup]) -> String {
    let most = groups.iter().map(|group| group.data_nodes.len()).max().unwrap_or(0);
    let lacks = groups.iter().find(|group| group.data_nodes.len() < most);
    match lacks {
        Some(NodeGroup { group, data_nodes, .. }) => {
            format!(
                "node group {group} has {} of {most} data nodes: it gets nothing until all are there",
                data_nodes.len()
            )
        }
        None => format!("waiting until partitions have moved: {}", shares(groups)),
    }
}

fn as_json(groups: &[NodeGroup], reorganizes: bool, seconds: f64) -> Value {
    let group = |one: &NodeGroup| {
        let data_nodes: Vec<u8> = one.data_nodes.iter().map(|node| node.0).collect();
        json!({ "group": one.group, "data_nodes": data_nodes, "partitions": one.partitions, "coming": one.coming })
    };
    let groups: Vec<Value> = groups.iter().map(group).collect();
    json!({ "reorganizes": reorganizes, "node_groups": groups, "seconds": seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga::NodeId;

    fn group(group: u16, nodes: &[u8], partitions: usize, coming: usize) -> NodeGroup {
        NodeGroup { group, data_nodes: nodes.iter().map(|&node| NodeId(node)).collect(), partitions, coming }
    }

    #[test]
    fn shares_and_what_is_missing_are_named() {
        let groups = [group(0, &[1, 2], 5, 0), group(1, &[3], 3, 1)];
        let text = "of the partitions node group 0 has 5, node group 1 has 3 (1 on its way)";
        assert_eq!(shares(&groups), text);
        assert!(missing(&groups).starts_with("node group 1 has 1 of 2 data nodes"));
        assert!(missing(&groups[..1]).starts_with("waiting until partitions have moved"));
        let json = as_json(&groups, true, 1.5);
        assert_eq!((&json["reorganizes"], &json["node_groups"][1]["coming"]), (&json!(true), &json!(1)));
    }
}
