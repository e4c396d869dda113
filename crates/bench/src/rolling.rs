//! All data nodes of a cluster are restarted, one after the other, under transactions that nobody tries again.
//!
//! Each repetition starts two data nodes with two replicas, as processes that keep nothing on disk. Clients run small
//! transactions, one after the other: each reads a row of its own, adds 1 to it and to another one, and commits. After
//! a second the data nodes are restarted as `vinga admin rolling-restart` does it: one *leaves*, stops, is started
//! again, gets its rows and its share of the primaries; then the next one, the one that leads the cluster at last. At
//! the end each row must hold what was committed.
//!
//! - [`sql`]: the clients are sessions of two SQL nodes;
//! - [`native`]: they are threads of one program.
//!
//! The gap is the longest time in which no client had a transaction committed, from the begin of the first restart on;
//! the same of the second before is listed beside it, since the operating system causes gaps, too.

mod native;
pub(crate) mod restarts;
mod sql;

use crate::cluster::{ClusterProgram, RunningCluster};
use crate::disturbance::disturb;
use crate::failure::{Context, Result};
use crate::figure::Figure;
use crate::node::NodeProgram;
use crate::progress::Progress;
pub use restarts::RestartedNode;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use vinga::blocking::Cluster;

/// Memory for the rows of each node.
const DATA_MEMORY_BYTES: u64 = 256 << 20;
/// How long transactions go on after the last restart.
const AFTER: Duration = Duration::from_secs(1);

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct RollingOptions {
    /// Repetitions, each with a new cluster
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Clients, each with one transaction at a time
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// Only these, with commas or blanks between
    #[arg(long, value_name = "PIECE", value_enum, value_delimiter = ',', num_args = 1.., default_values_t = Piece::ALL)]
    pub only: Vec<Piece>,
}

/// A piece of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Piece {
    Sql,
    Native,
}

impl Piece {
    /// All, in the order in which they are run.
    pub const ALL: [Piece; 2] = [Piece::Sql, Piece::Native];

    fn name(self) -> &'static str {
        match self {
            Piece::Sql => "sql",
            Piece::Native => "native",
        }
    }
}

impl RollingOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let only: Vec<&str> = self.only.iter().map(|piece| piece.name()).collect();
        let (loops, clients) = (self.loops, self.clients);
        format!("vinga bench rolling --loops {loops} --clients {clients} --only {}", only.join(","))
    }
}

/// The results of all pieces that were run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RollingResult {
    /// Sessions of SQL nodes; empty without SQL.
    pub sql: Vec<Round>,
    /// Threads of a program.
    pub native: Vec<Round>,
}

/// The results of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The restarts, in their order.
    pub restarts: Vec<RestartedNode>,
    /// The longest time without a committed transaction before them, in milliseconds.
    pub usual_gap_ms: f64,
    /// The same from then on.
    pub gap_ms: f64,
    /// Committed transactions.
    pub transactions: u64,
    /// Those that failed.
    pub failed: u64,
    /// The error of the first one.
    pub first_error: Option<String>,
    /// Committed transactions a second before the restarts.
    pub rate_before: f64,
    /// The same while they went on.
    pub rate: f64,
}

/// A client, with rows of its own.
trait Client: Send {
    /// Runs a transaction; returns why it failed, if it did.
    fn run(&mut self) -> Result<Option<String>>;

    /// Checks that its rows hold what was committed, and nothing else.
    fn check(&mut self) -> Result<()>;
}

/// Runs the pieces that are wanted. Data nodes are started by `node`, SQL nodes in folders within `out`.
///
/// # Errors
/// A cluster does not start, a data node does not leave or come back, or a row has a wrong value.
pub fn run(
    node: &NodeProgram,
    out: &Path,
    options: &RollingOptions,
    progress: &mut Progress,
) -> Result<RollingResult> {
    let node = NodeProgram { data_memory: Some(DATA_MEMORY_BYTES), ..node.beside("rolling") };
    let program = ClusterProgram::two_replicas(node);
    let mut result = RollingResult::default();
    for &piece in &options.only {
        progress.line(&format!("  {}", piece.name()));
        match piece {
            Piece::Sql => result.sql = sql::run(&program, out, options, progress)?,
            Piece::Native => {
                let measure = |_| native::measure(&program, options.clients);
                result.native = progress.repeat(options.loops, Round::line, measure)?;
            }
        }
    }
    Ok(result)
}

/// Restarts all data nodes while the clients run their transactions.
fn round<C: Client>(
    program: &ClusterProgram,
    running: &mut RunningCluster,
    clients: &mut [C],
) -> Result<Round> {
    let cluster =
        Cluster::connect(&running.addresses()).context(|| "cannot connect to the cluster".into())?;
    let mut restarts = Vec::new();
    let mut sessions: Vec<_> = clients.iter_mut().map(|client| move |_| client.run()).collect();
    let restart_all = || {
        restarts = restarts::restart_all(program, running, &cluster)?;
        Ok(())
    };
    let disturbed = disturb(&mut sessions, restart_all, AFTER)?;
    drop(sessions);
    clients.iter_mut().try_for_each(Client::check)?;
    let (rate_before, rate) = disturbed.rates();
    Ok(Round {
        restarts,
        usual_gap_ms: disturbed.usual_gap_ms(),
        gap_ms: disturbed.longest_gap_ms(),
        transactions: disturbed.acknowledged(),
        failed: disturbed.failed(),
        first_error: disturbed.failures().next().map(str::to_owned),
        rate_before,
        rate,
    })
}

impl Round {
    /// One line.
    fn line(&self) -> String {
        let Round { restarts, usual_gap_ms, gap_ms, transactions, failed, first_error, rate_before, rate } =
            self;
        let restarts: Vec<String> = restarts.iter().map(ToString::to_string).collect();
        let error = first_error.as_ref().map_or_else(String::new, |error| format!("; the first: {error}"));
        format!(
            "gap {gap_ms:.1} ms ({usual_gap_ms:.1} ms before), {rate:.0}/s ({rate_before:.0}/s before), of \
             {transactions} transactions {failed} failed{error} ({})",
            restarts.join("; ")
        )
    }
}

/// The figures of a run.
pub fn figures(command: &str, result: &RollingResult) -> Vec<Figure> {
    let mut figures = of_piece("rolling", command, &result.sql);
    figures.extend(of_piece("rolling.native", command, &result.native));
    figures
}

/// Those of a piece; none if it was not run. Failed transactions are those of all repetitions together: one is too
/// much.
fn of_piece(prefix: &str, command: &str, rounds: &[Round]) -> Vec<Figure> {
    if rounds.is_empty() {
        return Vec::new();
    }
    let samples = |of: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(of).collect() };
    let figure = |name: &str, unit: &str, samples: &[f64]| {
        Figure::from_samples(format!("{prefix}.{name}"), unit, command, samples)
    };
    let failed = samples(|round| round.failed as f64).iter().sum();
    let (rate, before) = (samples(|round| round.rate), samples(|round| round.rate_before));
    vec![
        figure("failed_transactions", "transactions", &[failed]),
        figure("gap_ms", "ms", &samples(|round| round.gap_ms)),
        figure("usual_gap_ms", "ms", &samples(|round| round.usual_gap_ms)),
        Figure::from_pairs(format!("{prefix}.rate_kept"), command, &rate, &before),
        figure("rate", "1/s", &rate),
        figure("seconds", "s", &samples(|round| round.restarts.iter().map(RestartedNode::seconds).sum())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Better;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: RollingOptions,
    }

    #[test]
    fn the_command_line_says_the_options() {
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        let usual = parse("x");
        assert_eq!(usual.only, Piece::ALL);
        for options in [usual, parse("x -l 2 --clients 9 --only native")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
    }

    #[test]
    fn one_failed_transaction_is_seen_in_the_figure() {
        let round = |failed, gap_ms| Round {
            restarts: [2, 1].map(|node| RestartedNode::example(node, 0.5)).into(),
            usual_gap_ms: 1.0,
            gap_ms,
            transactions: 1000,
            failed,
            first_error: (failed > 0).then(|| "it is gone".to_owned()),
            rate_before: 200.0,
            rate: 100.0,
        };
        let sql = vec![round(0, 9.0), round(1, 30.0), round(0, 12.0)];
        let line = sql[1].line();
        assert!(
            line.contains("gap 30.0 ms (1.0 ms before)") && line.contains("1 failed; the first: it is gone")
        );
        let all = figures("c", &RollingResult { sql, native: Vec::new() });
        let find = |name: &str| {
            let figure = all.iter().find(|figure| figure.name == name).expect(name);
            (figure.median, figure.better())
        };
        assert_eq!(find("rolling.failed_transactions"), (1.0, Better::Less));
        assert_eq!(find("rolling.gap_ms"), (12.0, Better::Less));
        assert_eq!(find("rolling.rate_kept"), (0.5, Better::More));
        assert_eq!(find("rolling.seconds"), (1.0, Better::Less));
        assert!(!all.iter().any(|figure| figure.name.starts_with("rolling.native")));
    }
}
