//! `vinga admin reorganize`: has partitions move until each node group has its share.
//!
//! The data nodes go on by themselves: this command only asks them, and says how far they are.

use crate::data_node::LOOK_PAUSE;
use crate::waiting::Waiting;
use serde_json::{Value, json};
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{NoRoom, NodeGroup, Reorganization};
use vinga_runtime::say;

/// Has the cluster reorganize, and returns when it has, if that is to be awaited.
///
/// # Errors
/// A text: the data nodes refuse it, or can't be asked; or it has ended before each node group had its share.
pub fn run(cluster: &Cluster, waits: bool, json: bool) -> Result<(), String> {
    let begun = Instant::now();
    let before = cluster.reorganization();
    cluster.reorganize(true).map_err(|error| error.to_string())?;
    let mut shown = Vec::new();
    let mut waiting = Waiting::begin();
    let end = loop {
        let now = cluster.reorganization();
        is_same(before, now)?;
        if !waits || !now.is_under_way {
            break now;
        }
        let groups = cluster.node_groups();
        if !json && groups != shown {
            say!("{}", shares(&groups));
            shown.clone_from(&groups);
        }
        waiting.say_from_time_to_time(|| missing(&groups));
        std::thread::sleep(LOOK_PAUSE);
    };
    let (groups, seconds) = (cluster.node_groups(), begun.elapsed().as_secs_f64());
    if !end.is_under_way {
        has_ended_well(end, &groups)?;
    }
    match (json, end.is_under_way) {
        (true, is_under_way) => say!("{}", as_json(&groups, is_under_way, seconds)),
        (false, true) => say!("{}; 'vinga admin reorganize' says when they have moved", missing(&groups)),
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
    let (groups, is_under_way) = (cluster.node_groups(), cluster.reorganization().is_under_way);
    if json {
        say!("{}", as_json(&groups, is_under_way, 0.0));
    } else {
        let rest = if is_under_way { ", when the one that moves has come" } else { "" };
        say!("no further partition moves{rest}: {}", shares(&groups));
    }
    Ok(())
}

/// Whether it is the cluster that was asked.
///
/// # Errors
/// A text: it is another one.
pub fn is_same(before: Reorganization, now: Reorganization) -> Result<(), String> {
    if before.cluster == now.cluster {
        return Ok(());
    }
    Err("all data nodes of the cluster have ended, and it has begun anew: what it has not kept on disk is lost. \
         'vinga admin status' and the logs of the data nodes say why"
        .to_owned())
}

/// Whether each node group has its share, now that nothing moves any more.
fn has_ended_well(end: Reorganization, groups: &[NodeGroup]) -> Result<(), String> {
    if NodeGroup::have_their_shares(groups) {
        return Ok(());
    }
    let shares = shares(groups);
    Err(match end.no_room {
        Some(NoRoom { node, needed, free }) => format!(
            "data node {node} has no room for a further partition: {} of DataMemory are needed, and {} are free. Nothing \
             is lost, and nothing moves any more: {shares}. Give it more DataMemory (in the configuration file, then \
             'vinga admin rolling-restart'), then 'vinga admin reorganize' goes on",
            mebibytes(needed),
            mebibytes(free)
        ),
        None => format!(
            "somebody has had partitions move no further ('vinga admin reorganize --stop'): {shares}. 'vinga admin \
             reorganize' goes on"
        ),
    })
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn shares(groups: &[NodeGroup]) -> String {
    let share = |group: &NodeGroup| {
        let NodeGroup { group, partitions, coming, .. } = group;
        let coming = if *coming > 0 { format!(" ({coming} on its way)") } else { String::new() };
        format!("node group {group} has {partitions}{coming}")
    };
    format!("of the partitions {}", groups.iter().map(share).collect::<Vec<_>>().join(", "))
}

/// What is waited for.
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
        None => format!("partitions move: {}", shares(groups)),
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
        assert!(missing(&groups[..1]).starts_with("partitions move: of the partitions"));
        let json = as_json(&groups, true, 1.5);
        assert_eq!((&json["reorganizes"], &json["node_groups"][1]["coming"]), (&json!(true), &json!(1)));
    }

    #[test]
    fn why_it_has_ended_is_said() {
        let end = |no_room| Reorganization { cluster: 1, is_under_way: false, no_room };
        let (even, uneven) =
            ([group(0, &[1], 4, 0), group(1, &[2], 3, 0)], [group(0, &[1], 8, 0), group(1, &[2], 0, 0)]);
        let no_room = Some(NoRoom { node: NodeId(2), needed: 3 << 20, free: 1 << 19 });
        assert_eq!(has_ended_well(end(no_room), &even), Ok(()), "it has been made since");
        let why = has_ended_well(end(no_room), &uneven).expect_err("they are not equal");
        assert!(
            why.contains("data node 2 has no room") && why.contains("3.0 MiB of DataMemory are needed"),
            "{why}"
        );
        assert!(why.contains("0.5 MiB are free"), "{why}");
        let why = has_ended_well(end(None), &uneven).expect_err("they are not equal");
        assert!(why.starts_with("somebody has had"), "{why}");
        let other = Reorganization { cluster: 2, ..end(None) };
        assert!(is_same(end(None), other).expect_err("it is another one").contains("begun anew"));
        assert_eq!(is_same(end(None), end(no_room)), Ok(()));
    }
}
