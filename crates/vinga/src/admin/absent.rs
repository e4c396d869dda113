//! What is said of a node that a command names, and that is no member of the cluster: the same by all commands.

use super::gone::{self, Lost};
use super::output;
use super::place::Configured;
use super::status::{self, State};
use std::collections::BTreeMap;
use vinga::InfoValue;
use vinga::blocking::Cluster;

/// Why there is no data node with this id to be asked: it has left the cluster, has not come into it, or there is none.
pub fn describe(node: u8, cluster: &Cluster, configured: Option<&Configured>) -> String {
    let members: Vec<u8> = cluster.data_nodes().iter().map(|member| member.0).collect();
    sentence(node, &members, &gone::lost(cluster), configured)
}

fn sentence(node: u8, members: &[u8], lost: &BTreeMap<u64, Lost>, configured: Option<&Configured>) -> String {
    let own = configured.and_then(|configured| configured.data.iter().find(|one| one.node == node));
    let is_here = own.is_some_and(|own| own.folder.is_some());
    let status = own.map(|own| status::look_at_data(own, None, None));
    match (lost.get(&u64::from(node)), status) {
        (Some(lost), status) => {
            let status = status.unwrap_or_else(|| status::Status::gone(node.into())).with(lost, is_here);
            let since = lost.since.map_or_else(String::new, |since| {
                format!(", since {}", output::cell("since", &InfoValue::Number(since)))
            });
            format!("data node {node} is not in the cluster any more{since}{}", because(&status.state))
        }
        (None, Some(status)) => {
            format!("data node {node} is configured, and is not in the cluster{}", because(&status.state))
        }
        (None, None) => unknown(node, members, lost, configured),
    }
}

fn because(state: &State) -> String {
    match (state, state.why().or(state.phase())) {
        (State::NotConnected(why), _) if why.is_empty() => String::new(),
        (State::NotConnected(why), _) => format!(": {why}"),
        (State::Closed { why, .. }, _) => format!(", as far as is known: it can't be asked ({why})"),
        (state, Some(why)) => format!(": it is {}, {why}", state.name()),
        (state, None) => format!(": it is {}", state.name()),
    }
}

fn unknown(node: u8, members: &[u8], lost: &BTreeMap<u64, Lost>, configured: Option<&Configured>) -> String {
    let list = |ids: Vec<u64>| ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match configured {
        Some(configured) if configured.management.iter().any(|one| one.node == node) => {
            format!("node {node} is a management node, and this command is about data nodes")
        }
        Some(configured) => {
            let ids = configured.data.iter().map(|one| u64::from(one.node)).collect();
            format!("there is no data node {node}: the configuration has {}", list(ids))
        }
        None => {
            let mut ids: Vec<u64> =
                members.iter().map(|&id| u64::from(id)).chain(lost.keys().copied()).collect();
            ids.sort_unstable();
            format!("there is no data node {node} in the cluster: it has, or had, {}", list(ids))
        }
    }
}
