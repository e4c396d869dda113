//! `vinga admin tables`: all tables by name, with their rows and bytes.

use std::collections::BTreeMap;
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue, Result};

const COLUMNS: [&str; 4] = ["table", "rows", "row_bytes", "index_bytes"];

/// A row for each table.
///
/// # Errors
/// The cluster can't be asked.
pub fn list(cluster: &Cluster) -> Result<InfoRows> {
    Ok(join(cluster.tables()?, cluster.info(InfoTable::Tables)?))
}

/// Joins the names of all tables with the figures that the threads of the data node report for tables with rows.
fn join(names: Vec<String>, said: InfoRows) -> InfoRows {
    let (notes, said): (Vec<_>, Vec<_>) = said.rows.into_iter().partition(|row| super::is_note(row));
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
    InfoRows { columns: COLUMNS.map(str::to_owned).into(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> InfoValue {
        InfoValue::Text(text.to_owned())
    }

    fn row(name: &str, numbers: [u64; 3]) -> Vec<InfoValue> {
        [text(name)].into_iter().chain(numbers.map(InfoValue::Number)).collect()
    }

    #[test]
    fn what_threads_say_is_added_up_and_sorted() {
        let names = || ["b.t", "a.u", "a.empty"].map(str::to_owned).to_vec();
        let said = vec![row("a.u", [1, 10, 100]), row("b.t", [5, 5, 5]), row("a.u", [2, 20, 200])];
        let rows = |rows| InfoRows { columns: Vec::new(), rows };
        let all = join(names(), rows(said.clone()));
        assert_eq!(all.rows, [row("a.empty", [0; 3]), row("a.u", [3, 30, 300]), row("b.t", [5; 3])]);
        let note = vec![text("7 rows were left out"), text(""), text(""), text("")];
        let part = join(names(), rows([said, vec![note.clone()]].concat()));
        assert_eq!(part.rows[0], [text("a.empty"), text("?"), text("?"), text("?")]);
        assert_eq!(part.rows[1], [text("a.u"), text("?"), text("?"), text("?")]);
        assert_eq!(part.rows[3], note);
    }
}
