//! What the cluster says of a data node's last start: its phases, with their times.

use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable, InfoValue};

/// The phase in which a data node that joins gets its rows.
const ROWS_COPIED: &str = "rows copied";
/// What stands in place of a phase at the end.
const STARTED: &str = "started";
/// How long it may take until all know that a node is gone, or is there.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between questions.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// The phases of a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// In their order.
    pub times: Vec<PhaseTime>,
    /// Rows that were copied.
    pub rows: u64,
}

/// A phase of a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// What was done.
    pub phase: String,
    /// How long that took, in milliseconds.
    pub ms: f64,
}

impl Phases {
    /// From the text of the information table; `None` if it is none.
    pub(super) fn of(text: &str, rows: u64) -> Option<Self> {
        let phase = |piece: &str| {
            let (phase, time) = piece.rsplit_once(": ")?;
            Some(PhaseTime { phase: phase.to_owned(), ms: time.strip_suffix(" ms")?.parse().ok()? })
        };
        let times: Option<Vec<PhaseTime>> = text.split(", ").map(phase).collect();
        Some(Phases { times: times?, rows })
    }

    /// How long rows were copied.
    pub(super) fn copying(&self) -> Duration {
        let copying = self.times.iter().filter(|phase| phase.phase == ROWS_COPIED);
        Duration::from_secs_f64(copying.map(|phase| phase.ms / 1e3).sum())
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, PhaseTime { phase, ms }) in self.times.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{phase} {ms:.1} ms")?;
        }
        Ok(())
    }
}

/// Waits until the cluster goes on without a data node.
///
/// # Errors
/// It does not.
pub(super) fn wait_until_gone(cluster: &Cluster, node: u8) -> Result<()> {
    let is_gone = |starts: &InfoRows| Ok(row_of(starts, node).is_none().then_some(()));
    ask_until(cluster, is_gone)?
        .ok_or_else(|| Failure::new(format!("the cluster does not go on without data node {node}")))
}

/// Waits until a data node that has joined is one of those that the client asks; returns the phases of its start.
///
/// # Errors
/// It is not, or does not say its phases.
pub(super) fn wait_until_back(cluster: &Cluster, node: u8) -> Result<Phases> {
    ask_until(cluster, |starts| started(starts, node))?
        .ok_or_else(|| Failure::new(format!("data node {node} does not say that it has joined the others")))
}

/// Asks all data nodes about their starts until they answer as is wanted; `None` if they don't in time.
fn ask_until<R>(cluster: &Cluster, wanted: impl Fn(&InfoRows) -> Result<Option<R>>) -> Result<Option<R>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        // While a node comes or goes one may not answer.
        if let Ok(starts) = cluster.info(InfoTable::Restarts)
            && starts.unanswered.is_empty()
            && let Some(found) = wanted(&starts)?
        {
            return Ok(Some(found));
        }
        thread::sleep(ASK_INTERVAL);
    }
    Ok(None)
}

/// The row of a data node.
fn row_of(starts: &InfoRows, node: u8) -> Option<&Vec<InfoValue>> {
    let place = starts.place("node_id")?;
    starts.rows.iter().find(|row| row.get(place) == Some(&InfoValue::Number(node.into())))
}

/// The phases of a data node that has started; `None` if it has not.
fn started(starts: &InfoRows, node: u8) -> Result<Option<Phases>> {
    let Some(row) = row_of(starts, node) else { return Ok(None) };
    let value = |column: &str| {
        let value = starts.place(column).and_then(|place| row.get(place));
        value.ok_or_else(|| Failure::new(format!("the table of starts has no column {column}")))
    };
    if *value("phase")? != InfoValue::Text(STARTED.into()) {
        return Ok(None);
    }
    let phases = match (value("phase_times")?, value("rows_done")?) {
        (InfoValue::Text(times), InfoValue::Number(rows)) => Phases::of(times, *rows),
        _ => None,
    };
    let phases = phases.filter(|phases| !phases.copying().is_zero());
    let odd = || Failure::new(format!("data node {node} does not say how it got its rows: {row:?}"));
    phases.map(Some).ok_or_else(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(node: u64, phase: &str, times: &str) -> InfoRows {
        let columns = ["node_id", "phase", "phase_times", "rows_done"].map(str::to_owned).into();
        let text = |text: &str| InfoValue::Text(text.into());
        let row = vec![InfoValue::Number(node), text(phase), text(times), InfoValue::Number(12)];
        InfoRows { columns, rows: vec![row], unanswered: Vec::new() }
    }

    #[test]
    fn phases_are_read_when_the_node_has_started() {
        let times = "cluster joined: 1.5 ms, tables and clients learned: 2.0 ms, rows copied: 1200.4 ms";
        assert_eq!(started(&starts(1, STARTED, times), 2).unwrap(), None, "another node");
        assert_eq!(started(&starts(2, ROWS_COPIED, "cluster joined: 1.5 ms"), 2).unwrap(), None);
        let phases = started(&starts(2, STARTED, times), 2).unwrap().expect("it has started");
        assert_eq!((phases.copying(), phases.rows), (Duration::from_micros(1_200_400), 12));
        let text = "cluster joined 1.5 ms, tables and clients learned 2.0 ms, rows copied 1200.4 ms";
        assert_eq!(phases.to_string(), text);
    }

    #[test]
    fn a_start_that_copied_nothing_is_none_of_these() {
        for times in ["", "files made: 3.0 ms", "rows copied: soon"] {
            let failure = started(&starts(2, STARTED, times), 2).unwrap_err().to_string();
            assert!(failure.contains("data node 2 does not say how it got its rows"), "{failure}");
        }
    }
}
