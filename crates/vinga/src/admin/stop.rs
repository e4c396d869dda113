//! `vinga admin stop`: stops one data node in order, on whatever machine it is, unless the cluster can't go on without
//! it.
//!
//! The order goes to the data node by a client's connection, and the data node itself knows whether the others can do
//! without it. With `--wait` it leaves before, so that nobody's transaction is rolled back. One of this machine that
//! can't be reached so, as it has not come into the cluster yet, for example, is stopped by its process id.

use super::absent;
use super::leave::{self, Then};
use super::place::{Configured, Place};
use crate::data_node::{self, LOOK_PAUSE, STOP_PATIENCE, Stopped};
use crate::waiting::Waiting;
use std::path::Path;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, NodeId, ShutdownTerms};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;

/// How a data node is to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At once, if the others can go on without it.
    AtOnce,
    /// When it has left, or behind so many seconds, if the others can go on without it.
    Unnoticed(u32),
    /// At once, in any case.
    Forced,
}

impl Manner {
    /// Of the command line's `--wait` and `--force`.
    pub fn of(wait: Option<u32>, force: bool) -> Self {
        match wait {
            Some(wait) => Manner::Unnoticed(wait),
            None if force => Manner::Forced,
            None => Manner::AtOnce,
        }
    }
}

/// Stops a data node in order, as `vinga down` stops all.
///
/// # Errors
/// A text: there is no such data node, the cluster can't go on without it, or it has not stopped.
pub fn run(
    place: &Place<'_>,
    cluster: Result<Cluster, String>,
    configured: impl Fn() -> Option<Configured>,
    node: u8,
    manner: Manner,
    json: bool,
) -> Result<(), String> {
    let force = manner == Manner::Forced;
    // Whether it has left before; nothing if it was not to, or was no member, and had nothing to leave.
    let mut has_left = None;
    let local = match place.folder() {
        None => None,
        Some(folder) => local(&folder, node)?,
    };
    match (cluster, local) {
        (Ok(cluster), local) if cluster.data_nodes().contains(&NodeId(node)) => {
            has_left = stop_member(&cluster, node, manner, local.as_ref())?;
        }
        (Ok(cluster), local) => {
            let configured = configured();
            let local = local.filter(|_| is_configured(node, configured.as_ref()));
            // One that is no member holds nothing of which the cluster knows.
            match local {
                Some(local) if data_node::is_kept_running(&local.folder)? => {
                    stop_newcomer(&cluster, node, &local)?;
                }
                _ => return Err(absent::describe(node, &cluster, configured.as_ref())),
            }
        }
        (Err(why), Some(local)) => {
            if !is_configured(node, configured().as_ref()) {
                return Err(format!(
                    "there is no data node {node} in the configuration; none can be asked: {why}"
                ));
            }
            // One that has not said where it listens has not come into any cluster yet.
            if !force && data_node::process(&local.folder)?.is_some() && local.folder.address().is_some() {
                return Err(format!(
                    "data node {node} can't be asked: {why}; --force stops its process, whether the others can do without it \
                     or not"
                ));
            }
            stop_process(node, &local)?;
        }
        (Err(why), None) => return Err(why),
    }
    if json {
        let mut said = serde_json::json!({ "stopped": node });
        if let Manner::Unnoticed(_) = manner {
            said["has_left"] = has_left.into();
        }
        say!("{said}");
        return Ok(());
    }
    match (manner, has_left) {
        (Manner::Unnoticed(wait), Some(false)) => {
            say!("data node {node} has stopped: {}", leave::not_in_time(wait));
        }
        (Manner::Unnoticed(_), Some(true)) => {
            say!("data node {node} has left and has stopped: no transaction was rolled back");
        }
        _ => say!("data node {node} has stopped"),
    }
    Ok(())
}

/// A data node that has its folder on this machine.
struct Local {
    folder: NodeFolder,
}

/// The data node with this id in the folder of its cluster, if it is there.
fn local(cluster: &Path, node: u8) -> Result<Option<Local>, String> {
    let here = data_node::numbers(cluster)
        .map_err(|error| format!("cannot look into {}: {error}", cluster.display()))?;
    let of = || Local { folder: NodeFolder::new(cluster, node) };
    Ok(here.contains(&node).then(of))
}

/// Whether there is such a data node, as far as that is known: the number of a folder need not be the id of the process
/// that runs there.
fn is_configured(node: u8, configured: Option<&Configured>) -> bool {
    configured.is_none_or(|configured| configured.data.iter().any(|one| one.node == node))
}

/// Stops a data node of this machine that is no member of the cluster.
fn stop_newcomer(cluster: &Cluster, node: u8, local: &Local) -> Result<(), String> {
    let own = [local.folder.address(), local.folder.local_address()];
    let found =
        cluster.endpoints().into_iter().find(|one| own.iter().flatten().any(|own| *own == one.address));
    match found.and_then(|one| one.node).filter(|other| *other != NodeId(node)) {
        Some(other) => Err(format!(
            "there is no data node {node}: data node {other} runs in {}",
            local.folder.path().display()
        )),
        None => stop_process(node, local),
    }
}

/// Stops a member of the cluster, and waits until it has stopped. Returns whether it has left before, if it was to and
/// that is known.
fn stop_member(
    cluster: &Cluster,
    node: u8,
    manner: Manner,
    local: Option<&Local>,
) -> Result<Option<bool>, String> {
    let force = manner == Manner::Forced;
    let pid = local.and_then(|local| local.folder.running().ok().flatten());
    let id = NodeId(node);
    let asked = match manner {
        Manner::AtOnce => cluster.shut_down(id, ShutdownTerms::IfDispensable).map(|_| None),
        Manner::Forced => cluster.shut_down(id, ShutdownTerms::InAnyCase).map(|_| None),
        Manner::Unnoticed(wait) => leave::leave(cluster, id, wait, Then::StaysDown).map(Some),
    };
    let has_left = match asked {
        Ok(has_left) => has_left,
        Err(error) if error.code() == ErrorCode::NodeIsNeeded => {
            return Err(format!(
                "{error}: 'vinga down' stops the whole cluster of a folder; --force stops this data node all the same"
            ));
        }
        // The order may have come, and its confirmation not: then it has gone, or goes.
        Err(error) => match (local, pid) {
            (Some(local), Some(_)) if force => return stop_process(node, local).map(|()| None),
            (Some(_), Some(_)) => {
                return Err(format!(
                    "data node {node} can't be asked: {error} --force stops its process, whether the others can do without \
                     it or not"
                ));
            }
            // It has ended, which the others have not noticed yet: if it has a parent, that is to leave it down.
            (Some(local), None) => return stop_process(node, local).map(|()| None),
            (None, _) => return Err(format!("data node {node} can't be asked: {error}")),
        },
    };
    // It may end otherwise than in order while it stops: then its parent would start it again.
    let parent = local.map(|local| data_node::ask_parent_to_stop(&name(node), &local.folder)).transpose()?;
    match (local, pid) {
        (Some(local), Some(pid)) => finish(local, data_node::wait_for_end(&name(node), &local.folder, pid)?)?,
        (Some(_), None) | (None, _) => wait_until_gone(cluster, node)?,
    }
    if let Some(local) = local {
        data_node::wait_for_parent(&name(node), &local.folder, parent.flatten())?;
    }
    Ok(has_left)
}

fn name(node: u8) -> String {
    format!("data node {node}")
}

fn stop_process(node: u8, local: &Local) -> Result<(), String> {
    match data_node::stop_process(&name(node), &local.folder)? {
        Stopped::Before => Err(format!("data node {node} does not run")),
        stopped => finish(local, stopped),
    }
}

/// A process of this machine has ended.
fn finish(local: &Local, stopped: Stopped) -> Result<(), String> {
    match stopped {
        Stopped::Before | Stopped::InPause | Stopped::InOrder => Ok(()),
        Stopped::LeftAlone => {
            local.folder.withdraw();
            Ok(())
        }
        Stopped::Otherwise(why) => Err(why),
    }
}

/// Waits until a data node elsewhere, which has confirmed that it stops, has closed its connections, and the others, if
/// they go on, have agreed to do so without it.
fn wait_until_gone(cluster: &Cluster, node: u8) -> Result<(), String> {
    let mut waiting = Waiting::begin();
    while waiting.elapsed() < STOP_PATIENCE {
        let endpoints = cluster.endpoints();
        let is_there = endpoints.iter().any(|one| one.is_connected && one.node == Some(NodeId(node)));
        let is_alone = !endpoints.iter().any(|one| one.is_connected);
        if !is_there && (is_alone || !cluster.data_nodes().contains(&NodeId(node))) {
            return Ok(());
        }
        waiting.say_if_long(|| {
            format!("waiting, for {} s at most, until data node {node} has stopped", STOP_PATIENCE.as_secs())
        });
        std::thread::sleep(LOOK_PAUSE);
    }
    Err(format!(
        "data node {node} has confirmed that it stops, and is connected or a member of the cluster after {} s; its log says \
         why",
        STOP_PATIENCE.as_secs()
    ))
}
