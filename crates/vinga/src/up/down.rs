//! `vinga down`: stops all nodes of a cluster on this machine.

use crate::data_node::{self, Stopped};
use crate::management_node;
use crate::sql_nodes;
use std::path::Path;
use vinga_runtime::node_folder::{KeptData, NodeFolder};
use vinga_runtime::say;

/// Stops all nodes of a cluster. What fails of one does not keep the others running, but for SQL nodes: as long as one
/// runs, it needs the data nodes.
///
/// # Errors
/// A text: what failed, or there is no cluster.
pub fn down(cluster: &Path) -> Result<(), String> {
    let sql = sql_nodes::numbers(cluster).unwrap_or_default();
    let data = data_node::numbers(cluster).unwrap_or_default();
    // They are stopped first because they have connections to the data nodes.
    sql_nodes::down(cluster)?;
    let data_ends = if data.len() > 1 { down_several(cluster, &data) } else { down_one(cluster) };
    // They may be asked while data nodes stop.
    let is_any = match (data_ends, management_node::down(cluster)) {
        (Ok(of_data), Ok(of_management)) => of_data | of_management,
        (Err(why), Ok(_)) | (Ok(_), Err(why)) => return Err(why),
        (Err(of_data), Err(of_management)) => return Err(format!("{of_data}; {of_management}")),
    };
    if is_any {
        Ok(())
    } else if !data.is_empty() || !sql.is_empty() {
        say!("no data node runs in {}", cluster.display());
        Ok(())
    } else {
        Err(format!("there is no cluster in {}: --folder names another", cluster.display()))
    }
}

/// Stops the only data node; returns whether it was running, or to be started again.
fn down_one(cluster: &Path) -> Result<bool, String> {
    let data = NodeFolder::new(cluster, 1).last_start().and_then(|start| start.data);
    match data_node::stop(cluster, 1)? {
        Stopped::Before => return Ok(false),
        Stopped::InPause => {
            say!("data node 1 had ended by itself, and is not started again");
            return Ok(true);
        }
        Stopped::InOrder => {}
        // It has no others.
        Stopped::LeftAlone => return Err("data node 1 could not go on; its log says why".into()),
        Stopped::Otherwise(why) => return Err(why),
    }
    match data {
        Some(KeptData::OnDisk { .. }) => say!("data node 1 has stopped; its data is on disk"),
        _ => {
            say!("data node 1 has stopped");
            say!("warning: data is kept in memory only: its tables and rows are gone");
        }
    }
    Ok(true)
}

/// Stops several data nodes, all at the same time; returns whether one was running, or to be started again.
fn down_several(cluster: &Path, nodes: &[u8]) -> Result<bool, String> {
    let mut failures = Vec::new();
    let name = |node: u8| format!("data node {node}");
    // All are found before the first one, or its parent, is asked: one that has little to do ends at once, and the last
    // ones of a node group by themselves when others have ended, and nobody would look how.
    let mut found = Vec::new();
    for &node in nodes {
        let folder = NodeFolder::new(cluster, node);
        match data_node::process(&folder) {
            Ok(pid) => found.push((node, folder, pid)),
            Err(why) => failures.push(why),
        }
    }
    // Nor is one started again that ends so.
    let mut parents = Vec::new();
    for (node, folder, _) in &found {
        match data_node::ask_parent_to_stop(&name(*node), folder) {
            Ok(parent) => parents.push((*node, parent)),
            Err(why) => failures.push(why),
        }
    }
    let mut running = Vec::new();
    for (node, folder, before) in found {
        match data_node::ask_process_to_stop(&name(node), &folder, before) {
            Ok(pid) => running.extend(pid.map(|pid| (node, folder, pid))),
            Err(why) => failures.push(why),
        }
    }
    let ends: Vec<_> = std::thread::scope(|threads| {
        let waits = |(node, folder, pid): &(u8, NodeFolder, i32)| {
            (*node, data_node::wait_for_end(&name(*node), folder, *pid))
        };
        let waiting: Vec<_> = running.iter().map(|one| threads.spawn(move || waits(one))).collect();
        waiting.into_iter().map(|thread| thread.join().expect("waiting does not panic")).collect()
    });
    let mut was_running = false;
    let ended: Vec<u8> = ends.iter().map(|(node, _)| *node).collect();
    for (node, end) in ends {
        match end {
            Ok(Stopped::Before | Stopped::InPause) => {}
            Ok(Stopped::Otherwise(why)) | Err(why) => failures.push(why),
            Ok(stopped @ (Stopped::InOrder | Stopped::LeftAlone)) => {
                if matches!(stopped, Stopped::LeftAlone) {
                    NodeFolder::new(cluster, node).withdraw();
                }
                was_running = true;
                say!("data node {node} has stopped");
            }
        }
    }
    let mut was_kept_running = was_running;
    for (node, parent) in parents {
        if parent.is_some() && !ended.contains(&node) {
            say!("data node {node} had ended by itself, and is not started again");
            was_kept_running = true;
        }
        failures
            .extend(data_node::wait_for_parent(&name(node), &NodeFolder::new(cluster, node), parent).err());
    }
    if !failures.is_empty() {
        return Err(failures.join("; "));
    }
    if was_running {
        say!("warning: data is kept in memory only: tables and rows are gone");
    }
    Ok(was_kept_running)
}
