//! What `vinga up` says of data nodes that run.

use super::several;
use crate::arguments::with_key;
use crate::cluster_file::ClusterFile;
use crate::data_node::{EarlierRun, Fresh};
use std::path::{Path, PathBuf};
use vinga_runtime::node_folder::{KeptData, NodeFolder};
use vinga_runtime::say;

/// Several data nodes run.
pub fn say_several(cluster: &Path, file: &ClusterFile, running: &several::Running, given: &str) {
    let is_any_old = running.nodes.iter().any(|(_, _, is_fresh)| !is_fresh);
    for (id, address, is_fresh) in &running.management {
        let state = if *is_fresh { "is ready" } else { "is running already," };
        say!("management node {id} {state} on {address}");
        if *is_fresh && is_any_old && running.begun.is_of(&running.data_nodes) {
            say!("it arbitrates when the data nodes that run have chosen it");
        } else if *is_fresh && is_any_old {
            say!(
                "warning: it does not arbitrate between the data nodes that run, as the file that it was started with was \
                 changed since they have begun"
            );
        }
    }
    for (id, address, is_fresh) in &running.nodes {
        let state = if *is_fresh { "is ready" } else { "is running already," };
        let joined = if running.joined.contains(id) { ": it has joined the others" } else { "" };
        say!("data node {id} {state} on {address}{joined}");
    }
    let nodes = &running.begun;
    let (all, replicas, groups) = (nodes.count(), nodes.replicas(), nodes.groups());
    let group = if groups == 1 { "group" } else { "groups" };
    let how_many = match running.nodes.len() {
        running if running < all => format!("{running} of {all}"),
        _ => all.to_string(),
    };
    if running.nodes.iter().any(|(_, _, is_fresh)| *is_fresh) {
        let after = running.after.as_secs_f64() * 1000.0;
        say!("{how_many} data nodes, {groups} node {group}, NoOfReplicas={replicas}, after {after:.0} ms");
        for warning in &running.warnings {
            say!("warning of {warning}");
        }
        say_what_is_gone(&KeptData::InMemory, running.before.as_ref());
    } else {
        say!("{how_many} data nodes, {groups} node {group}, NoOfReplicas={replicas}");
    }
    let differences = nodes.differences(&running.data_nodes);
    if !differences.is_empty() {
        say!(
            "warning: the file {} was changed since the data nodes have begun: {}; it holds when all nodes are started again \
             ('vinga down', then 'vinga up', which begins with an empty database: 'vinga admin backup' saves it before)",
            file.path().display(),
            differences.join("; ")
        );
    }
    if !given.is_empty() && is_any_old {
        say!(
            "nodes that run keep the settings that they were started with: {given} does not hold there; 'vinga down' stops \
             them"
        );
    }
    say!("data is kept in memory only: it is gone when all data nodes of a node group have stopped");
    if replicas > 1 && !running.management.is_empty() {
        match &running.undecided {
            Some(undecided) => say!("{undecided}"),
            None => say!(
                "when data nodes lose each other, the management node decides which of them go on: so a node that stands still, \
                 or is cut off, is left out, and the others of its node group go on"
            ),
        }
    } else if replicas > 1 && !running.unanswered.is_empty() {
        let ids: Vec<String> = running.unanswered.iter().map(u8::to_string).collect();
        say!("management node {} runs: what it does for the data nodes is not known here", ids.join(", "));
    } else if replicas > 1 {
        let why = if running.failures.is_empty() {
            "there is no management node"
        } else {
            "no management node could be started"
        };
        say!(
            "there is no arbitrator, as {why}: when a process ends, the others of its node group go on; \
             when only connections are lost, a part of the data nodes goes on if the rest has none of some node group, else \
             all of them stop"
        );
    } else {
        say!("there is one copy of the data: when one data node ends, the others stop");
    }
    let tcp: Vec<&str> = running.nodes.iter().map(|(_, address, _)| address.as_str()).collect();
    let first = NodeFolder::new(cluster, running.nodes.first().map_or(1, |(id, ..)| *id));
    say!("clients connect to {}", with_key(&first, &tcp.join(",")));
    if let Some(key) = unreadable_key(&first) {
        say!(
            "warning: the cluster's key, {}, can't be read: whoever connects by TCP has to prove it",
            key.display()
        );
    }
    let local: Vec<String> =
        running.nodes.iter().filter_map(|(id, ..)| NodeFolder::new(cluster, *id).local_address()).collect();
    if local.len() == running.nodes.len() {
        say!("clients on this machine reach them faster by {}", with_key(&first, &local.join(",")));
    }
    say!(
        "their configuration: {}; their folders with the logs: {}",
        file.path().display(),
        cluster.join("node-*").display()
    );
}

/// The file of the cluster's key if we can't read it, so that it does not stand before addresses.
fn unreadable_key(node: &NodeFolder) -> Option<PathBuf> {
    let key = node.last_start()?.key?;
    rustix::fs::access(&key, rustix::fs::Access::READ_OK).is_err().then_some(key)
}

/// A data node was started.
pub fn say_fresh(fresh: &Fresh) {
    let Fresh { address, after, warnings, data, loss_max, removed, before } = fresh;
    if let Some(removed) = removed {
        say!("{removed}");
    }
    say!("data node 1 is ready on {address} after {:.0} ms", after.as_secs_f64() * 1000.0);
    for warning in warnings {
        say!("warning of {warning}");
    }
    say_what_is_kept(data, *loss_max);
    say_what_is_gone(data, before.as_ref());
}

/// What was restored, and what is promised.
fn say_what_is_kept(data: &KeptData, loss_max: u64) {
    match data {
        KeptData::OnDisk { restored: Some(restored) } => say!("restored {restored}"),
        KeptData::OnDisk { restored: None } => say!(
            "data is kept on disk: 'vinga down' loses nothing, a crash only what was committed in the last \
             {loss_max} ms"
        ),
        KeptData::InMemory => say!("data is kept in memory only: it is gone when the data node stops"),
    }
}

/// Warns that data of an earlier run is lost, or not used, so that users do not learn it from a missing table.
fn say_what_is_gone(data: &KeptData, before: Option<&EarlierRun>) {
    let Some(EarlierRun { start, was_cut_off }) = before else { return };
    match (&start.data, data) {
        (Some(KeptData::OnDisk { .. }), KeptData::OnDisk { .. }) => {}
        (Some(KeptData::OnDisk { .. }), KeptData::InMemory) => say!(
            "warning: the database on disk, of the run that began {}, is left alone and not used (Diskless)",
            start.since
        ),
        (_, _) => {
            let end = if *was_cut_off { ", which was killed or has crashed," } else { "" };
            say!(
                "warning: the run that began {}{end} kept its data in memory only: its tables and rows are gone",
                start.since
            );
        }
    }
}
