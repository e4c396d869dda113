//! Information tables: each data node of the view is asked for its rows, and what they answer is one table.
//!
//! A data node knows of itself only, and of its clients. So all are asked at the same time, by the connections that
//! there are, and a data node that does not answer keeps nothing from the others: it is named beside their rows
//! (`docs/decisions/0029-each-data-node-is-asked.md`).

mod nodes;

use crate::cluster::{Cluster, mixed_up, take_answer};
use crate::pending::Pending;
use std::fmt;
use vinga_base::NodeId;
use vinga_client_core::{Answer, EndpointState, Error, Request, Result};
use vinga_wire::ErrorCode;
use vinga_wire::info::{InfoConfirm, InfoTable, InfoValue};
use vinga_wire::view::ClusterView;

/// The column that says from which data node a row is, where the table has none of its own.
const NODE_COLUMN: &str = "node_id";

/// Rows of an information table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct InfoRows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, in the order of the data nodes. A row may be a *note* about what is missing: [`InfoRows::is_note`].
    pub rows: Vec<Vec<InfoValue>>,
    /// The data nodes of the cluster's view that have not answered.
    pub unanswered: Vec<Unanswered>,
}

impl InfoRows {
    /// Whether a row is a note: a sentence in its first column, and empty texts in the others.
    pub fn is_note(row: &[InfoValue]) -> bool {
        let is_empty = |value: &InfoValue| matches!(value, InfoValue::Text(text) if text.is_empty());
        row.len() > 1 && matches!(row[0], InfoValue::Text(_)) && row[1..].iter().all(is_empty)
    }

    /// Puts a note behind the rows.
    pub fn add_note(&mut self, note: String) {
        let mut row = vec![InfoValue::Text(String::new()); self.columns.len().max(1)];
        row[0] = InfoValue::Text(note);
        self.rows.push(row);
    }

    /// The place of a column.
    pub fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }
}

/// A data node that has not answered.
#[derive(Clone, PartialEq, Debug)]
pub struct Unanswered {
    /// Its id.
    pub node: NodeId,
    /// Where it is, as the view has it; empty if the view has no address.
    pub address: String,
    /// Why it has not.
    pub error: Error,
}

impl fmt::Display for Unanswered {
    /// A sentence without a period.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data node {}", self.node)?;
        if !self.address.is_empty() {
            write!(f, " ({})", self.address)?;
        }
        match self.error.code() {
            ErrorCode::ClusterFailure => f.write_str(" did not answer: it is not connected"),
            ErrorCode::ConnectionLost => f.write_str(" did not answer: its connection was lost"),
            _ => write!(f, " did not answer: {}", self.error),
        }
    }
}

/// What a data node has answered.
type Answered = (NodeId, InfoConfirm);

impl Cluster {
    /// Rows of an information table, of all data nodes of the cluster's present view. Those that don't answer are named
    /// in [`InfoRows::unanswered`]. While others are connected, one that is not is not waited for.
    ///
    /// # Errors
    /// If no data node answers: why the first one does not.
    pub async fn info(&self, table: InfoTable) -> Result<InfoRows> {
        let view = self.handle.engine.look(|client| client.view().clone());
        let mut nodes: Vec<NodeId> = view.members().iter().map(|member| member.node).collect();
        nodes.sort_unstable();
        // All are asked before the first answer is waited for.
        let asked: Vec<_> = nodes.into_iter().map(|node| (node, self.begin_to_ask(table, node))).collect();
        let (mut answers, mut unanswered) = (Vec::new(), Vec::new());
        for (node, pending) in asked {
            match answer_of(pending).await {
                Ok(answer) => answers.push((node, answer)),
                Err(error) => unanswered.push(self.unanswered(&view, node, error)),
            }
        }
        if answers.is_empty() {
            let first = unanswered.into_iter().next();
            return Err(first.map_or_else(|| Error::new(ErrorCode::ClusterFailure), |one| one.error));
        }
        let joined = match table {
            InfoTable::Nodes => nodes::join(&view, answers),
            InfoTable::Restarts => join_starts(&view, answers),
            _ => join(&view, answers),
        };
        Ok(InfoRows { unanswered, ..joined })
    }

    /// Rows of an information table as one data node answers them, without a column for its id if it sends none. (Of
    /// [`InfoTable::Nodes`] these are the data node itself and the clients that it knows.)
    ///
    /// # Errors
    /// It does not answer, or is not connected.
    pub async fn info_of(&self, table: InfoTable, node: NodeId) -> Result<InfoRows> {
        let InfoConfirm { columns, rows, .. } = answer_of(self.begin_to_ask(table, node)).await?;
        Ok(InfoRows { columns, rows, unanswered: Vec::new() })
    }

    /// Says why a data node has not answered: if it is not connected, why that is so.
    fn unanswered(&self, view: &ClusterView, node: NodeId, error: Error) -> Unanswered {
        let address = view.member(node).map_or_else(String::new, |member| member.address.clone());
        let is_there = |endpoint: &EndpointState| endpoint.node == Some(node) || endpoint.address == address;
        let reason = (error.code() == ErrorCode::ClusterFailure)
            .then(|| self.endpoints().into_iter().filter(is_there).find_map(|endpoint| endpoint.error))
            .flatten();
        Unanswered { node, address, error: reason.unwrap_or(error) }
    }

    fn begin_to_ask(&self, table: InfoTable, node: NodeId) -> Result<Pending<Result<Answer>>> {
        let token = self.handle.engine.submit(|client| client.request(&Request::Info(table, node)))?;
        Ok(Pending::new(&self.handle, token, take_answer))
    }
}

async fn answer_of(asked: Result<Pending<Result<Answer>>>) -> Result<InfoConfirm> {
    match asked?.await? {
        Answer::Info(info) => Ok(info),
        _ => Err(mixed_up()),
    }
}

/// The rows of all data nodes, each with the node's id, one node after the other.
fn join(view: &ClusterView, answers: Vec<Answered>) -> InfoRows {
    let mut columns = answers[0].1.columns.clone();
    let has_node = matches!(columns.first().map(String::as_str), Some("node" | NODE_COLUMN));
    if !has_node {
        columns.insert(0, NODE_COLUMN.to_owned());
    }
    let mut all = InfoRows { columns, ..InfoRows::default() };
    for (node, answer) in answers {
        for mut row in answer.rows {
            if InfoRows::is_note(&row) {
                all.add_note(note_of(view, node, &row));
            } else {
                if !has_node {
                    row.insert(0, InfoValue::Number(u64::from(node.0)));
                }
                all.rows.push(row);
            }
        }
    }
    all
}

/// The last starts of the data nodes: what each says of itself, and what others say of those that have not answered.
fn join_starts(view: &ClusterView, mut answers: Vec<Answered>) -> InfoRows {
    let answered: Vec<u64> = answers.iter().map(|(node, _)| u64::from(node.0)).collect();
    for (node, answer) in &mut answers {
        answer.rows.retain(|row| match row[0] {
            InfoValue::Number(of) => of == u64::from(node.0) || !answered.contains(&of),
            InfoValue::Text(_) | InfoValue::Real(_) => true,
        });
    }
    join(view, answers)
}

/// A data node's note, with its name where there are others.
fn note_of(view: &ClusterView, node: NodeId, row: &[InfoValue]) -> String {
    let note = match &row[0] {
        InfoValue::Text(note) => note.as_str(),
        InfoValue::Number(_) | InfoValue::Real(_) => "",
    };
    if view.members().len() > 1 { format!("data node {node}: {note}") } else { note.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;
    use vinga_wire::view::Member;

    pub(super) fn view(groups: &[u16]) -> ClusterView {
        let member = |(id, &group): (u8, &u16)| Member {
            address: format!("host{id}:2202"),
            ..Member::started(NodeId(id), Incarnation(1), group, 1, 1)
        };
        ClusterView::first((1..).zip(groups).map(member).collect())
    }

    pub(super) fn text(text: &str) -> InfoValue {
        InfoValue::Text(text.to_owned())
    }

    pub(super) fn number(number: u64) -> InfoValue {
        InfoValue::Number(number)
    }

    pub(super) fn answer(node: u8, columns: &[&str], rows: Vec<Vec<InfoValue>>) -> Answered {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        (NodeId(node), InfoConfirm { request: 0, columns, rows })
    }

    #[test]
    fn rows_are_of_their_data_node() {
        let rows = |used| vec![vec![text("scans"), number(used)]];
        let mut second = rows(2);
        second.push(vec![text("3 more rows do not fit the answer"), text("")]);
        let both =
            || vec![answer(1, &["pool", "used"], rows(1)), answer(2, &["pool", "used"], second.clone())];
        let all = join(&view(&[0, 0]), both());
        assert_eq!(all.columns, ["node_id", "pool", "used"]);
        let note = vec![text("data node 2: 3 more rows do not fit the answer"), text(""), text("")];
        assert!(InfoRows::is_note(&note) && !InfoRows::is_note(&all.rows[0]));
        assert_eq!(
            all.rows,
            [vec![number(1), text("scans"), number(1)], vec![number(2), text("scans"), number(2)], note]
        );
        // One that is alone need not be named in notes.
        let alone = join(&view(&[0]), vec![both().remove(1)]);
        assert_eq!(alone.rows[1][0], text("3 more rows do not fit the answer"));
        // Some tables have a column for it already.
        for name in ["node", "node_id"] {
            let all = join(&view(&[0]), vec![answer(1, &[name, "stream"], vec![vec![number(1), number(0)]])]);
            assert_eq!(
                (all.columns, all.rows),
                (vec![name.into(), "stream".into()], vec![vec![number(1), number(0)]])
            );
        }
    }

    #[test]
    fn a_start_is_shown_once() {
        let row = |node, phase: &str| vec![number(node), text(phase)];
        let columns = ["node_id", "phase"];
        let first = vec![row(1, "started"), row(2, "rows copied"), row(3, "rows copied")];
        let answers = vec![answer(1, &columns, first), answer(2, &columns, vec![row(2, "started")])];
        // Node 2 has started meanwhile.
        let expected = [row(1, "started"), row(3, "rows copied"), row(2, "started")];
        assert_eq!(join_starts(&view(&[0, 0]), answers).rows, expected);
    }

    #[test]
    fn who_has_not_answered_is_named_with_the_reason() {
        let one =
            |code| Unanswered { node: NodeId(2), address: "h:1".into(), error: Error::new(code) }.to_string();
        assert_eq!(one(ErrorCode::ClusterFailure), "data node 2 (h:1) did not answer: it is not connected");
        assert!(one(ErrorCode::ConnectionLost).ends_with("its connection was lost"));
        assert!(one(ErrorCode::Overloaded).contains(ErrorCode::Overloaded.sentence()));
    }
}
