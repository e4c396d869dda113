//! Waiting until a SQL node reaches the data node: earlier statements fail.

use super::folder;
use crate::data_node;
use crate::waiting::Waiting;
use std::path::Path;
use std::time::{Duration, Instant};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;
use vinga_sqlnode::Reach;

/// How long a SQL node may take to connect: it tries again and again, in pauses of up to some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a refused one may take: a node id is free again after the grace time of its last holder.
const REFUSED_PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two checks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The server's text for a refusal because no node id is free.
const NO_FREE_NODE_ID: &str = "No node id is free";

/// A SQL node is at least this many clients: one for statements, one for changes of definitions.
const CLIENTS_MIN: usize = 2;

/// Waits until a running SQL node reaches the data node.
///
/// # Errors
/// A text: it does not, and why.
pub fn wait(cluster: &Path, node: u16) -> Result<(), String> {
    let mut waiting = Waiting::begin();
    loop {
        let running = vinga_sqlnode::running(&folder(cluster, node));
        let Some(running) = running.map_err(|error| format!("SQL node {node}: {error}"))? else {
            let log = NodeFolder::at(folder(cluster, node)).log();
            return Err(format!("SQL node {node} has stopped; see its log, {}", log.display()));
        };
        let waited = waiting.elapsed();
        match running.reach() {
            Reach::Connected => return Ok(()),
            Reach::Cut(why) => {
                let is_refused = why.contains(NO_FREE_NODE_ID);
                if waited >= if is_refused { REFUSED_PATIENCE } else { PATIENCE } {
                    let trouble = if is_refused {
                        "no data node admits it"
                    } else {
                        "it does not reach the data nodes"
                    };
                    return Err(format!("SQL node {node} runs, but {trouble}: {why}"));
                }
                waiting
                    .say_if_long(|| format!("waiting until SQL node {node} reaches the data nodes: {why}"));
            }
            Reach::Unknown => {
                wait_for_client(cluster, node, running.pid);
                return Ok(());
            }
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Like [`wait`], for a server whose `root` has a password: the data node also knows which clients are connected,
/// except for the processes of those that connect by TCP.
fn wait_for_client(cluster: &Path, node: u16, pid: i32) {
    let begun = Instant::now();
    let is_client = || {
        let data_nodes = data_node::numbers(cluster).unwrap_or_default();
        data_nodes.into_iter().any(|data_node| {
            let folder = NodeFolder::new(cluster, data_node);
            data_node::clients_of(&folder, pid).is_ok_and(|clients| clients >= CLIENTS_MIN)
        })
    };
    while !is_client() {
        if begun.elapsed() >= REFUSED_PATIENCE {
            say!(
                "SQL node {node}: root has a password, so it was not asked whether it reaches the data node"
            );
            return;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}
