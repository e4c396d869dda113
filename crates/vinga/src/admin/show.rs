//! `vinga admin show`: the cluster as its data nodes have agreed on it, its management nodes, and its clients.

use super::output;
use super::place::{Configured, ConfiguredManagement};
use serde_json::{Value, json};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};
use vinga_runtime::{console, say};

/// The state of a data node that has all rows of its node group.
pub const STARTED: &str = "started";

/// A row of the table of nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    pub id: u64,
    pub kind: String,
    pub state: String,
    /// The node group of a data node.
    pub group: Option<u64>,
    pub version: String,
    pub address: String,
    /// Since when, in seconds since 1970.
    pub since: Option<u64>,
    pub leads: bool,
    /// The data nodes that a client is connected with.
    data_nodes: String,
}

impl Node {
    /// The nodes, notes left out.
    pub fn all(rows: &InfoRows) -> impl Iterator<Item = Node> {
        rows.rows.iter().filter(|row| !InfoRows::is_note(row)).map(|row| {
            let get = |column| row.get(rows.place(column)?);
            let number = |column| match get(column) {
                Some(InfoValue::Number(number)) => Some(*number),
                _ => None,
            };
            let text = |column| match get(column) {
                Some(InfoValue::Text(text)) => text.clone(),
                _ => String::new(),
            };
            Node {
                id: number("node").unwrap_or(0),
                kind: text("kind"),
                state: text("state"),
                group: number("node_group"),
                version: text("version"),
                address: text("address"),
                since: number("since"),
                leads: text("leads") == "yes",
                data_nodes: text("data_nodes"),
            }
        })
    }

    fn since(&self) -> String {
        self.since.map_or_else(String::new, |since| output::cell("since", &InfoValue::Number(since)))
    }

    /// A line for people.
    fn describe(&self) -> String {
        let mut parts = vec![format!("  {:<4}{}", self.id, self.state)];
        parts.extend(self.leads.then(|| "leads".to_owned()));
        parts.extend(Some(&self.address).filter(|address| !address.is_empty()).cloned());
        parts.extend(
            Some(&self.version)
                .filter(|version| !version.is_empty())
                .map(|version| format!("version {version}")),
        );
        parts.extend(self.since.map(|_| format!("since {}", self.since())));
        if self.group.is_none() && !self.data_nodes.is_empty() {
            parts.push(format!("connected with {}", self.data_nodes));
        }
        parts.join(", ")
    }

    fn as_json(&self) -> Value {
        let mut fields =
            json!({ "node": self.id, "state": self.state, "address": self.address, "since": self.since });
        match self.group {
            Some(group) => {
                fields["node_group"] = group.into();
                fields["leads"] = self.leads.into();
                fields["version"] = self.version.as_str().into();
            }
            None => {
                let ids = self.data_nodes.split(", ").filter_map(|id| id.parse::<u64>().ok());
                fields["data_nodes"] = ids.collect();
            }
        }
        fields
    }
}

/// A management node of the cluster's configuration file.
struct Management {
    node: u8,
    address: String,
    /// Why it does not answer, if it does not.
    failure: Option<String>,
}

impl Management {
    /// Looks whether it answers.
    fn look(configured: &ConfiguredManagement) -> Management {
        let ConfiguredManagement { node, address, .. } = configured;
        Management { node: *node, address: address.clone(), failure: configured.ask().err() }
    }

    fn describe(&self) -> String {
        let state = match &self.failure {
            None => "answers".to_owned(),
            Some(why) => format!("does not answer: {why}"),
        };
        format!("  {:<4}{}, {state}", self.node, self.address)
    }

    fn as_json(&self) -> Value {
        json!({ "node": self.node, "address": self.address, "answers": self.failure.is_none(), "why": self.failure })
    }
}

/// Shows the cluster. Management nodes are those that it is configured with, as far as that is known.
///
/// # Errors
/// A text: no data node answers.
pub fn run(cluster: &Cluster, configured: Option<&Configured>, json: bool) -> Result<(), String> {
    let rows = cluster.info(InfoTable::Nodes).map_err(|error| error.to_string())?;
    output::name_unanswered(&rows);
    let silent: Vec<u64> = rows.unanswered.iter().map(|one| u64::from(one.node.0)).collect();
    let mut nodes: Vec<Node> = Node::all(&rows).collect();
    for node in nodes.iter_mut().filter(|node| node.kind == "data" && silent.contains(&node.id)) {
        node.state.push_str(" (does not answer)");
    }
    let management: Option<Vec<Management>> =
        configured.map(|configured| configured.management.iter().map(Management::look).collect());
    if json {
        say!("{}", as_json(&nodes, management.as_deref()));
    } else {
        console::print(format_args!("{}", as_text(&nodes, management.as_deref())));
    }
    Ok(())
}

fn as_text(nodes: &[Node], management: Option<&[Management]>) -> String {
    let mut text = String::new();
    let mut section = |head: String, lines: Vec<String>| {
        text.push_str(&format!("{head}\n"));
        lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    };
    let mut groups: Vec<u64> = nodes.iter().filter_map(|node| node.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let of_group = nodes.iter().filter(|node| node.group == Some(group));
        section(format!("data nodes of node group {group}:"), of_group.map(Node::describe).collect());
    }
    match management {
        None => {}
        Some([]) => section("no management nodes".to_owned(), Vec::new()),
        Some(all) => section("management nodes:".to_owned(), all.iter().map(Management::describe).collect()),
    }
    let clients = nodes.iter().filter(|node| node.group.is_none());
    section("API nodes:".to_owned(), clients.map(Node::describe).collect());
    text
}

fn as_json(nodes: &[Node], management: Option<&[Management]>) -> Value {
    let of = |is_data: bool| -> Value {
        nodes.iter().filter(|node| node.group.is_some() == is_data).map(Node::as_json).collect()
    };
    let management: Option<Value> = management.map(|all| all.iter().map(Management::as_json).collect());
    json!({ "data_nodes": of(true), "management_nodes": management, "api_nodes": of(false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<Node> {
        let columns =
            ["node", "kind", "state", "version", "address", "since", "node_group", "leads", "data_nodes"];
        let text = |text: &str| InfoValue::Text(text.to_owned());
        let number = InfoValue::Number;
        let data = |id, group, leads: &str| {
            let since = number(1_795_352_338);
            vec![
                number(id),
                text("data"),
                text(STARTED),
                text("0.1.0"),
                text("h:1"),
                since,
                number(group),
                text(leads),
                text(""),
            ]
        };
        let api = vec![
            number(145),
            text("API"),
            text("connected"),
            text(""),
            text("h:9"),
            number(1_795_352_338),
            text(""),
            text(""),
            text("1, 2"),
        ];
        let rows = vec![data(1, 0, "yes"), data(2, 1, "no"), api];
        Node::all(&InfoRows { columns: columns.map(str::to_owned).into(), rows, ..InfoRows::default() })
            .collect()
    }

    fn management(failure: Option<&str>) -> Management {
        Management { node: 3, address: "h:1186".to_owned(), failure: failure.map(str::to_owned) }
    }

    #[test]
    fn people_see_groups_management_nodes_and_clients() {
        let text = as_text(&nodes(), Some(&[management(None)]));
        assert_eq!(
            text,
            "data nodes of node group 0:\n  1   started, leads, h:1, version 0.1.0, since 2026-11-22T12:58:58Z\n\
             data nodes of node group 1:\n  2   started, h:1, version 0.1.0, since 2026-11-22T12:58:58Z\n\
             management nodes:\n  3   h:1186, answers\n\
             API nodes:\n  145 connected, h:9, since 2026-11-22T12:58:58Z, connected with 1, 2\n"
        );
        let text = as_text(&nodes(), Some(&[management(Some("refused"))]));
        assert!(text.contains("  3   h:1186, does not answer: refused\n"), "{text}");
        assert!(!as_text(&nodes(), None).contains("management"));
        assert!(as_text(&nodes(), Some(&[])).contains("no management nodes\n"));
    }

    #[test]
    fn programs_get_the_same() {
        let shown = as_json(&nodes(), Some(&[management(None)]));
        assert_eq!(shown["data_nodes"][0]["leads"], true);
        assert_eq!(shown["data_nodes"][1]["node_group"], 1);
        assert_eq!(shown["api_nodes"][0]["data_nodes"], json!([1, 2]));
        assert_eq!(shown["management_nodes"][0]["answers"], true);
        assert_eq!(as_json(&nodes(), None)["management_nodes"], Value::Null);
    }
}
