//! `vinga admin tables`: all tables by name, with their rows and bytes.
//!
//! All data nodes of a node group have the same rows, so one of each group counts.

use super::show::{Node, STARTED};
use std::collections::{BTreeMap, BTreeSet};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue, Result};

const COLUMNS: [&str; 4] = ["table", "rows", "row_bytes", "index_bytes"];

/// A row for each table.
///
/// # Errors
/// The cluster can't be asked.
pub fn list(cluster: &Cluster) -> Result<InfoRows> {
    let names = cluster.tables()?;
    let (nodes, mut said) = (cluster.info(InfoTable::Nodes)?, cluster.info(InfoTable::Tables)?);
    choose(&mut said, &nodes);
    Ok(join(names, said))
}

/// Keeps the rows of one data node of each node group, without its id, and all notes. A note says if no data node of a
/// group has answered that has all its rows.
fn choose(said: &mut InfoRows, nodes: &InfoRows) {
    let silent: BTreeSet<u64> = said.unanswered.iter().map(|one| u64::from(one.node.0)).collect();
    let mut chosen: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for node in Node::all(nodes).filter(|node| node.kind == "data") {
        let has_rows = node.state == STARTED && !silent.contains(&node.id);
        let of_group = chosen.entry(node.group.unwrap_or(0)).or_default();
        *of_group = of_group.or(has_rows.then_some(node.id));
    }
    let is_chosen = |id: u64| chosen.values().any(|one| *one == Some(id));
    let counts = |row: &[InfoValue]| matches!(row.first(), Some(InfoValue::Number(id)) if is_chosen(*id));
    said.rows.retain(|row| InfoRows::is_note(row) || counts(row));
    said.columns.remove(0);
    for row in said.rows.iter_mut().filter(|row| !InfoRows::is_note(row)) {
        row.remove(0);
    }
    for (group, _) in chosen.iter().filter(|(_, node)| node.is_none()) {
        said.add_note(format!("no data node of node group {group} has answered"));
    }
}

/// Joins the names of all tables with the figures that the threads of data nodes report for tables with rows.
fn join(names: Vec<String>, said: InfoRows) -> InfoRows {
    let (mut notes, said): (Vec<_>, Vec<_>) = said.rows.into_iter().partition(|row| InfoRows::is_note(row));
    notes.iter_mut().for_each(|note| note.truncate(COLUMNS.len()));
    let mut sums: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in said {
        if let [InfoValue::Text(name), numbers @ ..] = &row[..] {
            let sum = sums.entry(name.clone()).or_default();
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += if let InfoValue::Number(number) = number { *number } else { 0 };
            }
        }
    }
    // A thread that could not report all its tables leaves a note: then a table without figures may have rows.
    let is_all = notes.is_empty();
    let mut names = names;
    names.sort_unstable();
    let mut rows: Vec<Vec<InfoValue>> = Vec::with_capacity(names.len() + notes.len());
    for name in names {
        let numbers = match sums.get(&name) {
            Some(sum) if is_all => sum.map(InfoValue::Number),
            None if is_all => [0; 3].map(InfoValue::Number),
            _ => ["?"; 3].map(|unknown| InfoValue::Text(unknown.to_owned())),
        };
        rows.push([InfoValue::Text(name)].into_iter().chain(numbers).collect());
    }
    rows.extend(notes);
    InfoRows { columns: COLUMNS.map(str::to_owned).into(), rows, ..InfoRows::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga::Unanswered;

    fn text(text: &str) -> InfoValue {
        InfoValue::Text(text.to_owned())
    }

    fn row(name: &str, numbers: [u64; 3]) -> Vec<InfoValue> {
        [text(name)].into_iter().chain(numbers.map(InfoValue::Number)).collect()
    }

    /// Two node groups; of the first one data node 2 has not all rows yet.
    #[test]
    fn each_replica_counts_once() {
        let node = |id: u64, state: &str, group: u64| {
            vec![InfoValue::Number(id), text("data"), text(state), InfoValue::Number(group)]
        };
        let columns = ["node", "kind", "state", "node_group"].map(str::to_owned).into();
        let rows =
            vec![node(1, "started", 0), node(2, "copying", 0), node(3, "started", 1), node(4, "started", 1)];
        let nodes = InfoRows { columns, rows, ..InfoRows::default() };
        let of = |id: u64, numbers| [vec![InfoValue::Number(id)], row("a.t", numbers)].concat();
        let all = [
            of(1, [1, 10, 100]),
            of(1, [2, 20, 200]),
            of(2, [1, 1, 1]),
            of(3, [4, 40, 400]),
            of(4, [5, 50, 500]),
        ];
        let silent = |id| Unanswered {
            node: vinga::NodeId(id),
            address: String::new(),
            error: vinga::Error::new(vinga::ErrorCode::ConnectionLost),
        };
        let joined = |unanswered: &[u8]| {
            let columns = [&["node_id".to_owned()][..], &COLUMNS.map(str::to_owned)].concat();
            let rows =
                all.iter().filter(|row| !unanswered.iter().any(|&id| row[0] == InfoValue::Number(id.into())));
            let unanswered = unanswered.iter().copied().map(silent).collect();
            let mut said = InfoRows { columns, rows: rows.cloned().collect(), unanswered };
            choose(&mut said, &nodes);
            join(vec!["a.t".to_owned()], said).rows
        };
        assert_eq!(joined(&[]), [row("a.t", [7, 70, 700])]);
        assert_eq!(joined(&[3]), [row("a.t", [8, 80, 800])]);
        let note = vec![text("no data node of node group 0 has answered"), text(""), text(""), text("")];
        assert_eq!(joined(&[1]), [vec![text("a.t"), text("?"), text("?"), text("?")], note]);
    }

    #[test]
    fn what_threads_say_is_added_up_and_sorted() {
        let names = || ["b.t", "a.u", "a.empty"].map(str::to_owned).to_vec();
        let said = vec![row("a.u", [1, 10, 100]), row("b.t", [5, 5, 5]), row("a.u", [2, 20, 200])];
        let rows = |rows| InfoRows { rows, ..InfoRows::default() };
        let all = join(names(), rows(said.clone()));
        assert_eq!(all.rows, [row("a.empty", [0; 3]), row("a.u", [3, 30, 300]), row("b.t", [5; 3])]);
        let note = vec![text("7 rows were left out"), text(""), text(""), text("")];
        let part = join(names(), rows([said, vec![note.clone()]].concat()));
        assert_eq!(part.rows[0], [text("a.empty"), text("?"), text("?"), text("?")]);
        assert_eq!(part.rows[1], [text("a.u"), text("?"), text("?"), text("?")]);
        assert_eq!(part.rows[3], note);
    }
}
