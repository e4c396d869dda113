//! `vinga admin stop`: stops one data node of a cluster on this machine, unless the cluster can't go on without it.

use super::output;
use super::show::{Node, STARTED};
use crate::arguments::ConnectArguments;
use crate::data_node::{self, Stopped};
use vinga::InfoTable;
use vinga::blocking::Cluster;
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;

/// Stops a data node in order, as `vinga down` stops all; the last one of its node group only if `force`.
///
/// # Errors
/// A text: there is no such data node here, the cluster can't go on without it, or it has not stopped.
pub fn run(connect: &ConnectArguments, node: u8, force: bool, json: bool) -> Result<(), String> {
    if !connect.is_by_folder() {
        return Err(format!(
            "data node {node}: this command stops data nodes of this machine, which it finds by the folder of their \
             cluster (--folder); on other machines SIGTERM stops them in order"
        ));
    }
    let folder = &connect.folder();
    let here = data_node::numbers(folder)
        .map_err(|error| format!("cannot look into {}: {error}", folder.display()))?;
    if !here.contains(&node) {
        let (place, known) = (folder.display(), listed(&here));
        return Err(format!("data node {node}: {place} has no such data node; it has {known}"));
    }
    if !force {
        let cluster = Cluster::connect(&connect.address()?).map_err(|error| error.to_string())?;
        let nodes = output::ask(&cluster, InfoTable::Nodes)?;
        check(node, &Node::all(&nodes).collect::<Vec<_>>())?;
    }
    match data_node::stop(folder, node)? {
        Stopped::Before => return Err(format!("data node {node} does not run")),
        Stopped::InOrder => {}
        Stopped::LeftAlone => NodeFolder::new(folder, node).withdraw(),
        Stopped::Otherwise(why) => return Err(why),
    }
    if json {
        say!("{}", serde_json::json!({ "stopped": node }));
    } else {
        say!("data node {node} has stopped");
    }
    Ok(())
}

/// Whether another started data node has the rows of this one.
///
/// # Errors
/// A text: none has.
fn check(node: u8, nodes: &[Node]) -> Result<(), String> {
    let id = u64::from(node);
    // One that is no member holds nothing of which the cluster knows.
    let Some(own) = nodes.iter().find(|one| one.kind == "data" && one.id == id) else { return Ok(()) };
    let goes_on =
        |one: &&Node| one.kind == "data" && one.id != id && one.group == own.group && one.state == STARTED;
    if own.state != STARTED || nodes.iter().any(|one| goes_on(&one)) {
        return Ok(());
    }
    let group = own.group.unwrap_or(0);
    Err(format!(
        "data node {node} is the last one of node group {group} that runs: the cluster can't go on without its rows, and \
         would stop. 'vinga down' stops the whole cluster; --force stops this data node all the same"
    ))
}

fn listed(ids: &[u8]) -> String {
    if ids.is_empty() {
        return "none".to_owned();
    }
    ids.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, group: u64, state: &str) -> Node {
        let mut node = Node::default();
        (node.id, node.kind, node.state, node.group) = (id, "data".into(), state.into(), Some(group));
        node
    }

    #[test]
    fn the_last_of_a_node_group_is_not_stopped() {
        let pair = [node(1, 0, STARTED), node(2, 0, STARTED), node(3, 1, STARTED), node(4, 1, "copying")];
        assert!(check(1, &pair).is_ok() && check(2, &pair).is_ok());
        let refused = check(3, &pair).expect_err("the other one has not all rows yet");
        assert!(
            refused.contains("data node 3 is the last one of node group 1") && refused.contains("--force")
        );
        // What holds no rows yet may go, and so may what is no member.
        assert!(check(4, &pair).is_ok() && check(9, &pair).is_ok());
        assert!(check(1, &[node(1, 0, STARTED)]).is_err());
    }
}
