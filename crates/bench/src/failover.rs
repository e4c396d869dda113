//! How long a cluster does not answer when a data node fails, and what clients see of that.
//!
//! Each repetition starts two data nodes with two replicas of each row, as processes. Clients send one request after
//! the other, each as soon as the one before is answered; after a second something happens to one of the nodes, in turn
//! to the first one, which leads the cluster, and to the second one; the requests go on for some seconds more:
//!
//! - [`kill`]: it is killed (`kill -9`) while threads of one client update rows;
//! - [`freeze`]: it stands still (`SIGSTOP`), as a machine does that is suspended;
//! - [`sql`]: it is killed while sessions of a SQL node read and update rows.
//!
//! The gap is the longest time in which no client had a request acknowledged, from that moment on; the same of the
//! second before is listed beside it, since the operating system causes gaps, too.

pub mod freeze;
pub mod kill;
mod outage;
pub mod sql;

use crate::failure::Result;
use crate::figure::Figure;
use crate::node::NodeProgram;
use crate::progress::Progress;
pub use outage::Outage;
use serde::{Deserialize, Serialize};
use sql::SqlOutage;
use std::path::Path;

/// Memory for the rows of each node.
pub const DATA_MEMORY_BYTES: u64 = 256 << 20;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct FailoverOptions {
    /// Repetitions, each with a new cluster
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Threads, or SQL sessions, each with one request at a time
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Only these, with commas or blanks between
    #[arg(long, value_name = "PIECE", value_enum, value_delimiter = ',', num_args = 1.., default_values_t = Piece::ALL)]
    pub only: Vec<Piece>,
}

/// A piece of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Piece {
    Kill,
    Freeze,
    Sql,
}

impl Piece {
    /// All, in the order in which they are run.
    pub const ALL: [Piece; 3] = [Piece::Kill, Piece::Freeze, Piece::Sql];

    fn name(self) -> &'static str {
        match self {
            Piece::Kill => "kill",
            Piece::Freeze => "freeze",
            Piece::Sql => "sql",
        }
    }
}

impl FailoverOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let only: Vec<&str> = self.only.iter().map(|piece| piece.name()).collect();
        let (loops, threads) = (self.loops, self.threads);
        format!("vinga bench failover --loops {loops} --threads {threads} --only {}", only.join(","))
    }

    /// Runs all repetitions: `measure` gets the id of the node to which something is to happen, in turn 1 and 2.
    fn repeat<R>(
        &self,
        progress: &mut Progress,
        line: fn(&R) -> String,
        mut measure: impl FnMut(u8) -> Result<R>,
    ) -> Result<Vec<R>> {
        progress.repeat(self.loops, line, |number| measure(if number % 2 == 1 { 1 } else { 2 }))
    }
}

/// The results of all pieces that were run, of each repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailoverResult {
    /// A node was killed.
    pub kill: Vec<Outage>,
    /// A node stood still.
    pub freeze: Vec<Outage>,
    /// A node was killed below a SQL node; empty without SQL.
    pub sql: Vec<SqlOutage>,
}

/// Runs the pieces that are wanted. Data nodes are started by `node`, SQL nodes in folders within `out`.
///
/// # Errors
/// A cluster does not start, or does not go on after the failure of a node, or a row has a wrong value.
pub fn run(
    node: &NodeProgram,
    out: &Path,
    options: &FailoverOptions,
    progress: &mut Progress,
) -> Result<FailoverResult> {
    let mut result = FailoverResult::default();
    for &piece in &options.only {
        progress.line(&format!("  {}", piece.name()));
        match piece {
            Piece::Kill => result.kill = kill::run(node, options, progress)?,
            Piece::Freeze => result.freeze = freeze::run(node, options, progress)?,
            Piece::Sql => result.sql = sql::run(node, out, options, progress)?,
        }
    }
    Ok(result)
}

/// The figures of a run.
pub fn figures(command: &str, result: &FailoverResult) -> Vec<Figure> {
    let mut figures = outage::figures("failover.kill", command, &result.kill);
    figures.extend(outage::figures("failover.freeze", command, &result.freeze));
    figures.extend(sql::figures(command, &result.sql));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: FailoverOptions,
    }

    #[test]
    fn the_command_line_says_the_options() {
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        let usual = parse("x");
        assert_eq!(usual.only, Piece::ALL);
        for options in [usual, parse("x -l 2 --threads 9 --only sql,kill")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
    }

    #[test]
    fn figures_are_of_what_was_run() {
        let outage = |gap_ms| Outage { node: 1, usual_gap_ms: 1.0, gap_ms, updates: 10, failed: 2 };
        let kill = vec![outage(5.0), outage(9.0), outage(6.0)];
        let result = FailoverResult { kill, ..FailoverResult::default() };
        let found = figures("c", &result);
        let names: Vec<&str> = found.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["failover.kill.gap_ms", "failover.kill.usual_gap_ms", "failover.kill.failed"]);
        assert_eq!((found[0].median, found[0].max, found[0].unit.as_str()), (6.0, 9.0, "ms"));
    }
}
