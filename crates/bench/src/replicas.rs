//! What a second replica of each row costs: two data nodes that both have all rows, beside one that has them alone.
//!
//! Client and nodes share the CPUs of the machine. All servers run throughout; each round measures, one after the
//! other, when everything is idle:
//!
//! 1. flexAsynch on the one node, with batches of [`BATCH`];
//! 2. flexAsynch on the two nodes, with batches twice as large: the client sends each operation to the node that has
//!    the row's primary replica, so each of two nodes gets half of a batch, and here as many operations in a message as
//!    the one node gets. Most of what a message costs does not depend on the operations in it (`docs/performance.md`
//!    has the cost by batch size), so otherwise it would be messages of two sizes that are compared, not replicas;
//! 3. the same with batches of [`BATCH`], as a client sends them that does not know how many nodes there are: the
//!    figures `….same_batch`;
//! 4. SET on a Redis server with one replica ([`crate::redis::Replicated`]), with as many operations under way as in 1
//!    and 3;
//! 5. updates of one row by one client, one after the other, on the one node and on the two ([`round_trip`]).
//!
//! CPU time is that of all data nodes together, for an operation of the client. Cold starts of such a cluster are
//! measured before ([`start`](mod@start)).

pub mod round_trip;
pub mod rounds;
pub mod start;

use crate::failure::Result;
use crate::figure::Figure;
use crate::flexasynch::FlexAsynchOptions;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::redis::RedisOptions;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Operations that the client sends together, where each node does not get as many.
const BATCH: u32 = 128;
/// Batches under way.
const PARALLEL: u16 = 4;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ReplicasOptions {
    /// Rows of flexAsynch
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// How often the read phase goes over all rows again
    #[arg(long, default_value_t = 4)]
    pub extra_reads: u32,
    /// How often the update phase goes over all rows again
    #[arg(long, default_value_t = 1)]
    pub extra_updates: u32,
    /// Updates of one row, one after the other, in each round
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub updates: u64,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl ReplicasOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let ReplicasOptions { rows, extra_reads, extra_updates, updates, loops } = self;
        format!(
            "vinga bench replicas --rows {rows} --extra-reads {extra_reads} --extra-updates {extra_updates} \
             --updates {updates} --loops {loops}"
        )
    }

    fn flexasynch(&self, batch: u32) -> FlexAsynchOptions {
        FlexAsynchOptions {
            rows: self.rows,
            batch,
            parallel: PARALLEL,
            loops: self.loops,
            extra_reads: self.extra_reads,
            extra_updates: self.extra_updates,
            ..FlexAsynchOptions::default()
        }
    }

    /// As many operations under way as flexAsynch has.
    fn redis(&self) -> RedisOptions {
        RedisOptions {
            keys: self.rows,
            requests: self.rows * u64::from(1 + self.extra_updates),
            pipeline: BATCH,
            clients: PARALLEL.into(),
            data_bytes: FlexAsynchOptions::default().value_bytes.into(),
            lookups: 1,
            loops: self.loops,
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicasResult {
    /// Seconds of each cold start.
    pub starts: Vec<f64>,
    /// The rounds that count.
    pub rounds: Vec<rounds::Round>,
}

/// Starts clusters, then runs all rounds, and before them one that does not count.
///
/// # Errors
/// The database's, or that a server does not become idle.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &ReplicasOptions,
    progress: &mut Progress,
) -> Result<ReplicasResult> {
    let starts = start::run(program, options.loops, progress)?;
    let rounds = rounds::run(program, out, options, progress)?;
    Ok(ReplicasResult { starts, rounds })
}

/// The figures of a run.
pub fn figures(command: &str, result: &ReplicasResult) -> Vec<Figure> {
    let mut figures = rounds::figures(command, &result.rounds);
    figures.push(Figure::from_samples("cluster.start.cold", "s", command, &result.starts));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_command_line_says_the_options() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: ReplicasOptions,
        }
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        for options in [parse("x"), parse("x --rows 5 --extra-reads 0 --extra-updates 3 --updates 2 -l 9")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
            let redis = options.redis();
            assert_eq!(redis.requests, options.rows * u64::from(1 + options.extra_updates));
            let flexasynch = options.flexasynch(BATCH);
            let under_way = flexasynch.batch * u32::from(flexasynch.parallel);
            assert_eq!(redis.pipeline * redis.clients, under_way, "as many are under way");
        }
    }
}
