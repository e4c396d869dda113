//! `vinga admin show`: the cluster as its data nodes have agreed on it, those that it lacks, its management nodes and
//! what they decide, and its clients.

use super::arbitration::Arbitration;
use super::gone;
use super::output;
use super::place::{Configured, ConfiguredManagement};
use crate::data_node::is_closed;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};
use vinga_mgm::NotFetched;
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
    pub data_nodes: String,
    /// Why it is not in the cluster, if it has gone, as far as that is known; or why it can't be asked.
    pub why: Option<String>,
}

/// The number in a column of a row, if there is one.
pub fn number_in(rows: &InfoRows, row: &[InfoValue], column: &str) -> Option<u64> {
    match row.get(rows.place(column)?) {
        Some(InfoValue::Number(number)) => Some(*number),
        _ => None,
    }
}

/// The text in a column of a row; empty if there is none.
pub fn text_in(rows: &InfoRows, row: &[InfoValue], column: &str) -> String {
    match rows.place(column).and_then(|place| row.get(place)) {
        Some(InfoValue::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

impl Node {
    /// The nodes, notes left out.
    pub fn all(rows: &InfoRows) -> impl Iterator<Item = Node> {
        rows.rows.iter().filter(|row| !InfoRows::is_note(row)).map(|row| {
            let number = |column| number_in(rows, row, column);
            let text = |column| text_in(rows, row, column);
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
                why: None,
            }
        })
    }

    fn is_data(&self) -> bool {
        self.kind == "data"
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
        parts.extend(self.why.clone());
        if !self.data_nodes.is_empty() {
            parts.push(format!("connected with {}", self.data_nodes));
        }
        parts.join(", ")
    }

    fn as_json(&self) -> Value {
        let mut fields =
            json!({ "node": self.id, "state": self.state, "address": self.address, "since": self.since });
        if self.is_data() {
            fields["node_group"] = self.group.into();
            fields["leads"] = self.leads.into();
            fields["version"] = self.version.as_str().into();
            fields["why"] = self.why.as_deref().into();
        } else {
            let ids = self.data_nodes.split(", ").filter_map(|id| id.parse::<u64>().ok());
            fields["data_nodes"] = ids.collect();
        }
        fields
    }
}

/// A management node of the cluster's configuration file.
pub struct Management {
    pub node: u8,
    address: String,
    /// The incarnation of the cluster that it arbitrates for, if it does; or why it does not say that.
    pub answer: Result<Option<u64>, NotFetched>,
}

impl Management {
    /// Asks all of a cluster.
    pub fn look_at(configured: &Configured) -> Vec<Management> {
        configured.management.iter().map(Management::look).collect()
    }

    /// Looks whether it answers.
    fn look(configured: &ConfiguredManagement) -> Management {
        let ConfiguredManagement { node, address, .. } = configured;
        let answer = configured.ask().map(|fetched| fetched.arbitrates_for);
        Management { node: *node, address: address.clone(), answer }
    }

    /// One that has answered so, at a place of tests.
    #[cfg(test)]
    pub fn answered(node: u8, answer: Result<Option<u64>, NotFetched>) -> Management {
        Management { node, address: "h:1186".to_owned(), answer }
    }

    fn describe(&self) -> String {
        let state = match &self.answer {
            Ok(_) => "answers".to_owned(),
            Err(NotFetched::NotReached(why)) => format!("does not answer: {why}"),
            Err(NotFetched::Refused(why)) => format!("can't be asked: {why}"),
        };
        format!("  {:<4}{}, {state}", self.node, self.address)
    }

    fn as_json(&self) -> Value {
        let answers = match &self.answer {
            Ok(_) => Some(true),
            Err(NotFetched::NotReached(_)) => Some(false),
            Err(NotFetched::Refused(_)) => None,
        };
        let why = self.answer.as_ref().err().map(NotFetched::to_string);
        json!({ "node": self.node, "address": self.address, "answers": answers, "why": why })
    }
}

/// Shows the cluster. Management nodes are those that it is configured with, as far as that is known.
///
/// # Errors
/// A text: no data node answers.
pub fn run(cluster: &Cluster, configured: Option<&Configured>, json: bool) -> Result<(), String> {
    let rows = cluster.info(InfoTable::Nodes).map_err(|error| error.to_string())?;
    output::name_unanswered(&rows);
    let mut nodes: Vec<Node> = Node::all(&rows).collect();
    for node in nodes.iter_mut().filter(|node| node.is_data()) {
        match rows.unanswered.iter().find(|one| u64::from(one.node.0) == node.id) {
            None => {}
            Some(one) if is_closed(&one.error) => node.why = Some(format!("can't be asked: {}", one.error)),
            Some(_) => node.state.push_str(" (does not answer)"),
        }
    }
    let lost = cluster.info(InfoTable::LostNodes).map_err(|error| error.to_string())?;
    nodes.extend(gone::all(&nodes, &lost, configured));
    nodes.sort_by_key(|node| (!node.is_data(), node.id));
    let management: Option<Vec<Management>> = configured.map(Management::look_at);
    let arbitration = Arbitration::of(cluster, management.as_deref());
    if json {
        say!("{}", as_json(&nodes, &arbitration, management.as_deref()));
    } else {
        console::print(format_args!("{}", as_text(&nodes, &arbitration, management.as_deref())));
    }
    Ok(())
}

fn as_text(nodes: &[Node], arbitration: &Arbitration, management: Option<&[Management]>) -> String {
    let mut text = String::new();
    let mut section = |head: String, lines: Vec<String>| {
        text.push_str(&format!("{head}\n"));
        lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    };
    let groups: BTreeSet<Option<u64>> =
        nodes.iter().filter(|node| node.is_data()).map(|node| node.group).collect();
    for group in groups {
        let head = match group {
            Some(group) => format!("data nodes of node group {group}:"),
            None => "data nodes of which no node group is known:".to_owned(),
        };
        let of_group = nodes.iter().filter(|node| node.is_data() && node.group == group);
        section(head, of_group.map(Node::describe).collect());
    }
    let basis = arbitration.basis().map(|basis| format!("  {basis}"));
    section(format!("arbitration: {}", arbitration.describe()), basis.into_iter().collect());
    match management {
        None => {}
        Some([]) => section("no management nodes".to_owned(), Vec::new()),
        Some(all) => section("management nodes:".to_owned(), all.iter().map(Management::describe).collect()),
    }
    let clients = nodes.iter().filter(|node| !node.is_data());
    section("API nodes:".to_owned(), clients.map(Node::describe).collect());
    text
}

fn as_json(nodes: &[Node], arbitration: &Arbitration, management: Option<&[Management]>) -> Value {
    let of = |is_data: bool| -> Value {
        nodes.iter().filter(|node| node.is_data() == is_data).map(Node::as_json).collect()
    };
    let management: Option<Value> = management.map(|all| all.iter().map(Management::as_json).collect());
    json!({
        "data_nodes": of(true),
        "arbitration": arbitration.as_json(),
        "management_nodes": management,
        "api_nodes": of(false),
    })
}

#[cfg(test)]
mod tests {
    use super::super::arbitration::Known;
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

    fn management(answer: Result<Option<u64>, &str>) -> Management {
        Management::answered(3, answer.map_err(|why| NotFetched::NotReached(why.to_owned())))
    }

    fn nobody() -> Arbitration {
        Arbitration::judge(true, Known::default(), 7, Some(&[]))
    }

    #[test]
    fn people_see_groups_management_nodes_and_clients() {
        let all = [management(Ok(Some(7)))];
        let arbitration = Arbitration::judge(true, Known { first: Some(3), found: None }, 7, Some(&all));
        let mut nodes = nodes();
        nodes[1] = Node { state: "not connected".to_owned(), version: String::new(), ..nodes[1].clone() };
        nodes[1].why = Some("its process has ended".to_owned());
        let text = as_text(&nodes, &arbitration, Some(&all));
        assert_eq!(
            text,
            "data nodes of node group 0:\n  1   started, leads, h:1, version 0.1.0, since 2026-11-22T12:58:58Z\n\
             data nodes of node group 1:\n  2   not connected, h:1, since 2026-11-22T12:58:58Z, its process has ended\n\
             arbitration: management node 3 decides which data nodes go on when they lose each other\n\
             management nodes:\n  3   h:1186, answers\n\
             API nodes:\n  145 connected, h:9, since 2026-11-22T12:58:58Z, connected with 1, 2\n"
        );
        let text = as_text(&nodes, &nobody(), Some(&[management(Err("refused"))]));
        assert!(text.contains("  3   h:1186, does not answer: refused\n"), "{text}");
        assert!(!as_text(&nodes, &nobody(), None).contains("management nodes:"));
        assert!(as_text(&nodes, &nobody(), Some(&[])).contains("no management nodes\n"));
        nodes[1].group = None;
        let text = as_text(&nodes, &nobody(), None);
        assert!(
            text.starts_with("data nodes of which no node group is known:\n  2   not connected"),
            "{text}"
        );
    }

    #[test]
    fn programs_get_the_same() {
        let all = [management(Ok(None))];
        let arbitration = Arbitration::judge(true, Known { first: Some(3), found: None }, 7, Some(&all));
        let shown = as_json(&nodes(), &arbitration, Some(&all));
        assert_eq!(shown["data_nodes"][0]["leads"], true);
        assert_eq!(shown["data_nodes"][1]["node_group"], 1);
        assert_eq!(shown["api_nodes"][0]["data_nodes"], json!([1, 2]));
        assert_eq!(shown["management_nodes"][0]["answers"], true);
        assert_eq!(
            (&shown["arbitration"]["node"], &shown["arbitration"]["state"]),
            (&json!(3), &json!("does not know the cluster"))
        );
        assert_eq!(
            (&shown["data_nodes"][0]["why"], &shown["api_nodes"][0]["why"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(as_json(&nodes(), &nobody(), None)["management_nodes"], Value::Null);
    }
}
