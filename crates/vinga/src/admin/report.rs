//! `vinga admin report`: memory by its kinds, and how busy threads are, of each data node.
//!
//! It is made of the information tables of memory and of threads, in which each block and each thread has its rows.

use super::absent;
use super::output;
use super::place::Configured;
use crate::arguments::whole;
use clap::Subcommand;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue, NodeId};
use vinga_runtime::complain;

/// `vinga admin report …`.
#[derive(Subcommand)]
pub enum ReportCommand {
    /// What is used of which kind of memory
    Memory {
        /// Of this data node only
        #[arg(value_name = "ID", value_parser = whole(1..=255u8))]
        node: Option<u8>,
    },
    /// How busy each thread is: shares of time, turns and signals, measured now
    Threads {
        /// Of this data node only
        #[arg(value_name = "ID", value_parser = whole(1..=255u8))]
        node: Option<u8>,
        /// For how long it is measured
        #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = whole(1..=3600u64))]
        seconds: u64,
    },
}

/// Prints a report.
///
/// # Errors
/// A text: there is no such data node, or it does not answer; or none does.
pub fn run(
    cluster: &Cluster,
    configured: impl Fn() -> Option<Configured>,
    command: &ReportCommand,
    json: bool,
) -> Result<(), String> {
    let ask = |table, only| ask(cluster, &configured, table, only);
    let rows = match *command {
        ReportCommand::Memory { node } => memory(&ask(InfoTable::Memory, node)?),
        ReportCommand::Threads { node, seconds } => {
            // Shares of time are those since the last question.
            let before = ask(InfoTable::Threads, node)?;
            std::thread::sleep(Duration::from_secs(seconds));
            threads(&before, &ask(InfoTable::Threads, node)?)
        }
    };
    output::print(&rows, json);
    Ok(())
}

/// The rows of all data nodes, or of one. Those that did not answer are named on standard error.
fn ask(
    cluster: &Cluster,
    configured: impl Fn() -> Option<Configured>,
    table: InfoTable,
    only: Option<u8>,
) -> Result<InfoRows, String> {
    let Some(only) = only else { return output::ask(cluster, table) };
    if !cluster.data_nodes().contains(&NodeId(only)) {
        return Err(absent::describe(only, cluster, configured().as_ref()));
    }
    let mut rows = cluster.info(table).map_err(|error| error.to_string())?;
    if let Some(silent) = rows.unanswered.iter().find(|one| one.node.0 == only) {
        return Err(silent.to_string());
    }
    rows.rows.retain(|row| row[0] == InfoValue::Number(only.into()));
    Ok(rows)
}

fn text(value: &str) -> InfoValue {
    InfoValue::Text(value.to_owned())
}

/// The values of these columns in a row; `None` if it has not all of them, or is a note.
fn pick<'a, const N: usize>(
    rows: &InfoRows,
    row: &'a [InfoValue],
    columns: [&str; N],
) -> Option<[&'a InfoValue; N]> {
    let mut picked = Vec::with_capacity(N);
    if InfoRows::is_note(row) {
        return None;
    }
    for column in columns {
        picked.push(row.get(rows.place(column)?)?);
    }
    picked.try_into().ok()
}

/// The notes of information tables say what is missing.
fn notes(rows: &InfoRows, report: &mut InfoRows) {
    for row in rows.rows.iter().filter(|row| InfoRows::is_note(row)) {
        report.add_note(output::cell("", &row[0]));
    }
}

/// Of each data node the sums of what its blocks have of each kind, in the order in which the kinds are first named.
fn memory(rows: &InfoRows) -> InfoRows {
    let mut sums: Vec<(u64, String, u64, u64)> = Vec::new();
    for row in &rows.rows {
        let picked = pick(rows, row, ["node_id", "block", "memory", "used_bytes", "total_bytes"]);
        let Some(
            [
                InfoValue::Number(node),
                InfoValue::Text(block),
                InfoValue::Text(memory),
                InfoValue::Number(used),
                InfoValue::Number(total),
            ],
        ) = picked
        else {
            continue;
        };
        // Blocks are numbered: "data manager 3".
        let kind = block.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let name = if kind == "node" { memory.clone() } else { format!("{kind}s: {memory}") };
        match sums.iter_mut().find(|(of, known, ..)| of == node && *known == name) {
            Some((_, _, used_sum, total_sum)) => {
                (*used_sum, *total_sum) = (*used_sum + used, *total_sum + total);
            }
            None => sums.push((*node, name, *used, *total)),
        }
    }
    let columns = ["node_id", "memory", "used_bytes", "total_bytes", "used_percent"];
    let mut report = InfoRows { columns: columns.map(str::to_owned).into(), ..InfoRows::default() };
    report.rows.extend(sums.into_iter().map(|(node, name, used, total)| {
        let (of_total, percent) = match total {
            0 => (text(""), text("")),
            total => (InfoValue::Number(total), InfoValue::Real(used as f64 * 100.0 / total as f64)),
        };
        vec![InfoValue::Number(node), InfoValue::Text(name), InfoValue::Number(used), of_total, percent]
    }));
    notes(rows, &mut report);
    report
}

/// What each thread has done between two answers.
fn threads(before: &InfoRows, after: &InfoRows) -> InfoRows {
    const COLUMNS: [&str; 7] =
        ["node_id", "thread", "name", "busy_percent", "spin_percent", "turns", "signals"];
    let columns =
        ["node_id", "thread", "name", "busy_percent", "spin_percent", "idle_percent", "turns", "signals"];
    let mut report = InfoRows { columns: columns.map(str::to_owned).into(), ..InfoRows::default() };
    for row in &after.rows {
        let Some([node, thread, name, busy, spin, turns, signals]) = pick(after, row, COLUMNS) else {
            continue;
        };
        let earlier = before.rows.iter().find_map(|row| {
            pick(before, row, COLUMNS)
                .filter(|[of, number, called, ..]| (*of, *number, *called) == (node, thread, name))
        });
        let since = |now: &InfoValue, column: usize| match (now, earlier.map(|earlier| earlier[column])) {
            // One that was started again has begun anew.
            (InfoValue::Number(now), Some(InfoValue::Number(before))) if before <= now => {
                InfoValue::Number(now - before)
            }
            (now, _) => now.clone(),
        };
        let idle = match (busy, spin) {
            (InfoValue::Real(busy), InfoValue::Real(spin)) => InfoValue::Real((100.0 - busy - spin).max(0.0)),
            _ => text(""),
        };
        let (turns, signals) = (since(turns, 5), since(signals, 6));
        let shares = [busy.clone(), spin.clone(), idle];
        report.rows.push(
            [node.clone(), thread.clone(), name.clone()]
                .into_iter()
                .chain(shares)
                .chain([turns, signals])
                .collect(),
        );
    }
    notes(after, &mut report);
    for silent in &before.unanswered {
        if !after.unanswered.iter().any(|one| one.node == silent.node) {
            complain!(
                "vinga: data node {} did not answer at first; its turns and signals are those since its start",
                silent.node
            );
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> InfoValue {
        InfoValue::Number(number)
    }

    fn rows(columns: &[&str], rows: Vec<Vec<InfoValue>>) -> InfoRows {
        InfoRows {
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows,
            ..InfoRows::default()
        }
    }

    #[test]
    fn memory_is_summed_by_kind_and_data_node() {
        let row = |node, block: &str, memory: &str, used, total| {
            vec![number(node), text(block), text(memory), number(used), number(total)]
        };
        let said = rows(
            &["node_id", "block", "memory", "used_bytes", "total_bytes"],
            vec![
                row(1, "node", "DataMemory", 25, 100),
                row(1, "data manager 0", "rows", 10, 0),
                row(1, "data manager 11", "rows", 5, 0),
                row(1, "coordinator 0", "pools", 7, 7),
                row(2, "data manager 0", "rows", 1, 0),
                vec![text("data node 2: more"), text(""), text(""), text(""), text("")],
            ],
        );
        let report = memory(&said);
        let expected = vec![
            vec![number(1), text("DataMemory"), number(25), number(100), InfoValue::Real(25.0)],
            vec![number(1), text("data managers: rows"), number(15), text(""), text("")],
            vec![number(1), text("coordinators: pools"), number(7), number(7), InfoValue::Real(100.0)],
            vec![number(2), text("data managers: rows"), number(1), text(""), text("")],
            vec![text("data node 2: more"), text(""), text(""), text(""), text("")],
        ];
        assert_eq!(report.rows, expected);
    }

    #[test]
    fn threads_have_done_what_was_added() {
        let columns =
            ["node_id", "thread", "name", "hosts", "busy_percent", "spin_percent", "turns", "signals"];
        let row = |node, name: &str, busy, turns, signals| {
            let shares = [InfoValue::Real(busy), InfoValue::Real(25.0)];
            [number(node), number(0), text(name), text("main")]
                .into_iter()
                .chain(shares)
                .chain([number(turns), number(signals)])
                .collect::<Vec<_>>()
        };
        let before = rows(&columns, vec![row(1, "main", 90.0, 100, 1000), row(2, "main", 1.0, 50, 60)]);
        let after = rows(
            &columns,
            vec![row(1, "main", 50.0, 130, 1400), row(2, "main", 80.0, 5, 6), row(3, "main", 0.0, 7, 8)],
        );
        let report = threads(&before, &after);
        let brief = |row: &Vec<InfoValue>| (row[3].clone(), row[5].clone(), row[6].clone(), row[7].clone());
        let real = InfoValue::Real;
        assert_eq!(
            report.rows.iter().map(brief).collect::<Vec<_>>(),
            [
                (real(50.0), real(25.0), number(30), number(400)),
                (real(80.0), real(0.0), number(5), number(6)),
                (real(0.0), real(75.0), number(7), number(8)),
            ]
        );
    }
}
