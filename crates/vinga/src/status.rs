//! `vinga status`: which nodes of a cluster on this machine run.

use crate::arguments::FolderArgument;
use crate::data_node::{self, Sign};
use crate::sql_nodes;
use crate::table::Table;
use std::io;
use std::path::Path;
use vinga_runtime::console;
use vinga_runtime::node_folder::{LastStart, NodeFolder};
use vinga_runtime::say;

/// The state of a node.
struct Node {
    name: String,
    state: State,
    /// The last start of a node that does not run.
    start: Option<LastStart>,
}

enum State {
    /// It answers.
    Running { pid: i32 },
    /// Its process exists, but does not answer.
    Silent { pid: i32, why: String },
    /// It answers, but admits no clients.
    Refusing { pid: i32, why: String },
    /// No process, and it was not stopped orderly: it was killed, or has crashed.
    CutOff,
    /// It was stopped, or never started.
    Stopped,
}

impl State {
    fn is_running(&self) -> bool {
        matches!(self, State::Running { .. })
    }

    fn name(&self) -> &'static str {
        match self {
            State::Running { .. } => "running",
            State::Silent { .. } => "not answering",
            State::Refusing { .. } => "refuses clients",
            State::CutOff => "killed or crashed",
            State::Stopped => "stopped",
        }
    }

    fn pid(&self) -> Option<i32> {
        match self {
            State::Running { pid } | State::Silent { pid, .. } | State::Refusing { pid, .. } => Some(*pid),
            State::CutOff | State::Stopped => None,
        }
    }

    /// The problem of a node that has a process.
    fn trouble(&self) -> Option<(&'static str, &str)> {
        match self {
            State::Silent { why, .. } => Some(("does not answer", why)),
            State::Refusing { why, .. } => Some(("refuses clients", why)),
            State::Running { .. } | State::CutOff | State::Stopped => None,
        }
    }
}

/// Upper bound of the last line of a SQL node's log, for every path of the server.
const FAREWELL_BYTES_MAX: u64 = 8192;

/// Shows the nodes; returns whether all of them run.
///
/// # Errors
/// A text: there is no cluster in the folder.
pub fn run(arguments: &FolderArgument, json: bool) -> Result<bool, String> {
    let cluster = &arguments.folder;
    let place = cluster.display();
    let nodes = nodes(cluster).map_err(|error| format!("cannot look into {place}: {error}"))?;
    if nodes.is_empty() {
        return Err(format!("there is no cluster in {place}: 'vinga up' starts one, --folder names another"));
    }
    if json {
        say!("{}", as_json(&nodes));
    } else {
        console::print(format_args!("{}", as_table(&nodes)));
    }
    Ok(nodes.iter().all(|node| node.state.is_running()))
}

fn nodes(cluster: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    let folder = NodeFolder::new(cluster, 1);
    if folder.path().is_dir() {
        let sign = || match data_node::probe(&folder)? {
            Sign::Serves(_) => Ok(None),
            Sign::Refuses(why) => Ok(Some(why)),
        };
        nodes.push(look("data node 1".to_owned(), &folder, sign)?);
    }
    for number in sql_nodes::numbers(cluster)? {
        let path = sql_nodes::folder(cluster, number);
        let sign = || match vinga_sqlnode::running(&path) {
            Ok(Some(running)) => running.probe().map(|()| None).map_err(|error| error.to_string()),
            Ok(None) => Err("it has just ended".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        nodes.push(look(format!("SQL node {number}"), &NodeFolder::at(path.clone()), sign)?);
    }
    Ok(nodes)
}

/// Determines the state of a node; if it has a process, it is asked whether it is alive. `Some` is why it refuses
/// clients.
fn look(
    name: String,
    folder: &NodeFolder,
    answer: impl FnOnce() -> Result<Option<String>, String>,
) -> io::Result<Node> {
    let state = match folder.running()? {
        Some(pid) => match answer() {
            Ok(None) => State::Running { pid },
            Ok(Some(why)) => State::Refusing { pid, why },
            Err(why) => State::Silent { pid, why },
        },
        // 'vinga down' removes the address. A SQL node that was stopped by other means logs that at the end.
        None if folder.address().is_some() && !has_logged_its_end(folder) => State::CutOff,
        None => State::Stopped,
    };
    Ok(Node { name, state, start: folder.last_start() })
}

/// Whether the last line of a SQL node's log says that it was stopped orderly.
fn has_logged_its_end(folder: &NodeFolder) -> bool {
    let end = folder.log_tail(folder.log_bytes().saturating_sub(FAREWELL_BYTES_MAX), 1);
    end.ends_with(": Shutdown complete")
}

fn as_table(nodes: &[Node]) -> String {
    let mut table = Table::new(["node", "state", "pid", "address", "since", "version"]);
    for node in nodes {
        let of_start = |part: fn(&LastStart) -> &String| {
            // The record of the last start applies only while the node runs.
            let start = node.start.as_ref().filter(|_| node.state.pid().is_some());
            start.map_or_else(|| "-".to_owned(), |start| part(start).clone())
        };
        let pid = node.state.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let cells = [
            node.name.clone(),
            node.state.name().to_owned(),
            pid,
            of_start(|start| &start.address),
            of_start(|start| &start.since),
            of_start(|start| &start.version),
        ];
        table.row(cells);
    }
    let mut text = table.to_string();
    for node in nodes {
        if let Some((trouble, why)) = node.state.trouble() {
            text.push_str(&format!("{} {trouble}: {why}\n", node.name));
        }
    }
    text
}

fn as_json(nodes: &[Node]) -> serde_json::Value {
    let node = |node: &Node| {
        let mut fields = serde_json::json!({
            "node": node.name,
            "running": node.state.is_running(),
            "state": node.state.name(),
            "pid": node.state.pid(),
        });
        if let Some(start) = node.start.as_ref().filter(|_| node.state.pid().is_some()) {
            fields["address"] = start.address.as_str().into();
            fields["since"] = start.since.as_str().into();
            fields["version"] = start.version.as_str().into();
        }
        if let Some((_, why)) = node.state.trouble() {
            fields["why"] = why.into();
        }
        fields
    };
    nodes.iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_run_has_no_address() {
        let start = LastStart {
            address: "127.0.0.1:1".into(),
            since: "then".into(),
            version: "1".into(),
            data: None,
        };
        let node = |name: &str, state| Node { name: name.into(), state, start: Some(start.clone()) };
        let nodes = [
            node("data node 1", State::Running { pid: 7 }),
            node("SQL node 1", State::CutOff),
            node("SQL node 2", State::Silent { pid: 8, why: "nothing came".into() }),
            node("SQL node 3", State::Refusing { pid: 9, why: "full".into() }),
        ];
        let expected = "node         state              pid  address      since  version\n\
                        data node 1  running            7    127.0.0.1:1  then   1\n\
                        SQL node 1   killed or crashed  -    -            -      -\n\
                        SQL node 2   not answering      8    127.0.0.1:1  then   1\n\
                        SQL node 3   refuses clients    9    127.0.0.1:1  then   1\n\
                        SQL node 2 does not answer: nothing came\n\
                        SQL node 3 refuses clients: full\n";
        assert_eq!(as_table(&nodes), expected);
        let json = as_json(&nodes);
        assert_eq!((&json[0]["pid"], &json[0]["running"]), (&7.into(), &true.into()));
        assert!(json[1]["address"].is_null() && json[2]["why"] == "nothing came", "{json}");
    }
}
