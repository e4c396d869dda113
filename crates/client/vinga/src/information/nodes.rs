//! The nodes of a cluster: its data nodes as the view has them, and each API node once, though several data nodes know
//! it.

use super::{Answered, InfoRows, note_of};
use std::collections::BTreeMap;
use vinga_base::NodeId;
use vinga_wire::info::InfoValue;
use vinga_wire::view::{ClusterView, Member, MemberState};

/// The columns. Those that a data node sends, too, have the same names there.
const COLUMNS: [&str; 9] =
    ["node", "kind", "state", "version", "address", "since", "node_group", "leads", "data_nodes"];

/// What data nodes say of one node, by the names of their columns.
#[derive(Clone, Default)]
struct Said {
    state: Option<InfoValue>,
    version: Option<InfoValue>,
    address: Option<InfoValue>,
    since: Option<InfoValue>,
    /// Which session of an API node this is.
    session: Option<InfoValue>,
    /// The data nodes that it is connected with.
    data_nodes: Vec<NodeId>,
}

/// A table with a row for each data node of the view and for each API node, from what the data nodes have answered.
pub fn join(view: &ClusterView, mut answers: Vec<Answered>) -> InfoRows {
    let mut all = InfoRows { columns: COLUMNS.map(str::to_owned).into(), ..InfoRows::default() };
    let (mut data, mut api) = (BTreeMap::new(), BTreeMap::new());
    let mut notes = Vec::new();
    // The one that leads knows most of API nodes: what it says of their state counts.
    answers.sort_by_key(|(node, _)| (Some(*node) != view.president(), *node));
    for (node, answer) in answers {
        for row in &answer.rows {
            if InfoRows::is_note(row) {
                notes.push((node, note_of(view, node, row)));
                continue;
            }
            let get = |name: &str| {
                let at = answer.columns.iter().position(|column| column == name)?;
                row.get(at)
            };
            let Some(&InfoValue::Number(id)) = get("node") else { continue };
            if get("kind") == Some(&text("data")) {
                data.insert(id, Said::of(get));
            } else {
                let here = get("connected") == Some(&text("yes"));
                api.entry(id).or_insert_with(|| Said::of(get)).note_connection(node, here, get);
            }
        }
    }
    let mut members: Vec<&Member> = view.members().iter().collect();
    members.sort_by_key(|member| member.node);
    all.rows = members.into_iter().map(|member| data_row(view, member, &data)).collect();
    all.rows.extend(api.into_iter().map(|(id, said)| api_row(id, said)));
    notes.sort();
    notes.into_iter().for_each(|(_, note)| all.add_note(note));
    all
}

impl Said {
    fn of<'a>(get: impl Fn(&str) -> Option<&'a InfoValue>) -> Self {
        let get = |name| get(name).cloned();
        let (state, version, address) = (get("state"), get("version"), get("address"));
        Said { state, version, address, since: get("since"), session: get("session"), data_nodes: Vec::new() }
    }

    /// A data node that knows this session of an API node has connections of it, or not. The others may know from where
    /// it has come some time ago. Since when it is there is known by the first of them that says it.
    fn note_connection<'a>(
        &mut self,
        node: NodeId,
        has_connections: bool,
        get: impl Fn(&str) -> Option<&'a InfoValue>,
    ) {
        if self.session.as_ref() != get("session") {
            return;
        }
        if !matches!(self.since, Some(InfoValue::Number(_))) {
            self.since = get("since").cloned();
        }
        if !has_connections {
            return;
        }
        if self.data_nodes.is_empty() {
            self.address = get("address").cloned();
        }
        self.data_nodes.push(node);
        self.data_nodes.sort_unstable();
    }
}

fn text(value: impl Into<String>) -> InfoValue {
    InfoValue::Text(value.into())
}

fn or_nothing(value: Option<InfoValue>) -> InfoValue {
    value.unwrap_or_else(|| text(""))
}

/// A data node: what it says of itself, if it has answered, and what all have agreed on.
fn data_row(view: &ClusterView, member: &Member, said: &BTreeMap<u64, Said>) -> Vec<InfoValue> {
    let id = u64::from(member.node.0);
    let Said { version, address, since, .. } = said.get(&id).cloned().unwrap_or_default();
    let state = match member.state {
        MemberState::Starting => "starting",
        MemberState::Copying => "copying",
        MemberState::Started => "started",
        MemberState::Leaving | MemberState::LeftOut => "leaving",
    };
    vec![
        InfoValue::Number(id),
        text("data"),
        text(state),
        or_nothing(version),
        address.unwrap_or_else(|| text(member.address.as_str())),
        or_nothing(since),
        InfoValue::Number(u64::from(member.group)),
        text(if view.president() == Some(member.node) { "yes" } else { "no" }),
        text(""),
    ]
}

fn api_row(id: u64, said: Said) -> Vec<InfoValue> {
    let data_nodes: Vec<String> = said.data_nodes.iter().map(NodeId::to_string).collect();
    vec![
        InfoValue::Number(id),
        text("API"),
        or_nothing(said.state),
        or_nothing(said.version),
        or_nothing(said.address),
        or_nothing(said.since),
        text(""),
        text(""),
        text(data_nodes.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, number, text, view};
    use super::*;

    const SAID: [&str; 8] = ["node", "kind", "state", "version", "address", "since", "connected", "session"];

    fn data(id: u64) -> Vec<InfoValue> {
        let address = format!("127.0.0.1:{id}");
        vec![
            number(id),
            text("data"),
            text("started"),
            text("1.0"),
            text(&address),
            number(100 + id),
            text(""),
            text(""),
        ]
    }

    /// `since`: 0 if that is not known.
    fn api(
        id: u64,
        state: &str,
        address: &str,
        since: u64,
        (connected, session): (&str, u64),
    ) -> Vec<InfoValue> {
        let since = if since == 0 { text("") } else { number(since) };
        let (kind, connected) = (text("API"), text(connected));
        vec![number(id), kind, text(state), text(""), text(address), since, connected, number(session)]
    }

    /// The rows as texts, with bars between.
    fn lines(all: &InfoRows) -> Vec<String> {
        let cell = |value: &InfoValue| match value {
            InfoValue::Text(text) => text.clone(),
            InfoValue::Number(number) => number.to_string(),
            InfoValue::Real(real) => real.to_string(),
        };
        all.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
    }

    #[test]
    fn each_node_has_one_row() {
        let view = view(&[0, 0, 1]);
        // The first data node leads. Of API node 146 the second one has the connection, of 147 none has any more.
        let first = vec![
            data(1),
            api(145, "connected", "a:1", 71, ("yes", 7)),
            api(146, "connected", "before:1", 0, ("no", 8)),
            api(147, "disconnected", "c:1", 0, ("no", 9)),
        ];
        let second = vec![
            data(2),
            // It has learned of the session a moment later.
            api(145, "connected", "a:2", 72, ("yes", 7)),
            api(146, "connected", "b:2", 80, ("yes", 8)),
            // An earlier session.
            api(147, "connected", "c:0", 30, ("yes", 3)),
            vec![
                text("threads that did not answer in time: [1]"),
                text(""),
                text(""),
                text(""),
                text(""),
                text(""),
                text(""),
                text(""),
            ],
        ];
        let all = join(&view, vec![answer(2, &SAID, second), answer(1, &SAID, first)]);
        assert_eq!(all.columns, COLUMNS);
        assert_eq!(
            lines(&all),
            [
                "1|data|started|1.0|127.0.0.1:1|101|0|yes|",
                "2|data|started|1.0|127.0.0.1:2|102|0|no|",
                // It has not answered: this is what the view says.
                "3|data|started||host3:2202||1|no|",
                "145|API|connected||a:1|71|||1, 2",
                "146|API|connected||b:2|80|||2",
                "147|API|disconnected||c:1||||",
                "data node 2: threads that did not answer in time: [1]||||||||",
            ]
        );
    }
}
