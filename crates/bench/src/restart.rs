//! How soon a data node that was killed is a full member again, and what its return costs those that go on.
//!
//! Each repetition starts two data nodes with two replicas, as processes that keep nothing on disk, and fills a table
//! with rows of 108 bytes that has ordered indexes on its key. One of the nodes, in turn the first and the second, is
//! killed and started again by the same command, three times. It begins with nothing and is sent all rows by the other
//! one:
//!
//! 1. While flexAsynch's updates go on, batches of 128 with four under way. Their rate while the rows are copied is
//!    compared with that of both nodes before the kill.
//! 2. While single updates go on, each when the one before is acknowledged: the 99th percentile of their latencies, in
//!    the same way.
//! 3. While nothing else is done: the time from before its process is made until it is a full member, and of that the
//!    phase in which the rows are copied.
//!
//! Primary replicas stay where the kill has put them, so 2 begins with all of them on the other node. At the end that
//! one is killed, and the one that has come back must have all rows.

mod phases;
pub(crate) mod updating;

use crate::cluster::{ClusterProgram, RunningCluster};
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::flexasynch::FlexAsynchOptions;
use crate::idle::wait_until_idle;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::node::{Node, NodeProgram};
use crate::progress::Progress;
use crate::ranges;
use crate::target::{ScanKind, TableShape, Target};
use crate::vinga_target::{VingaTable, VingaTarget};
pub use phases::{PhaseTime, Phases};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::{Duration, Instant};
pub use updating::Span;
use updating::Updating;
use vinga_base::schema::IndexDefinition;

const TABLE: &str = "bench.restart";
/// Bytes of the column behind the key: rows have 108 bytes.
const VALUE_BYTES: u16 = 100;
const SHAPE: TableShape = TableShape::Value { bytes: VALUE_BYTES };
/// How long updates go on before they count, or before the node is started.
const SETTLE: Duration = Duration::from_millis(500);
/// How long they are measured before the kill.
const BEFORE: Duration = Duration::from_secs(2);

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct RestartOptions {
    /// Rows that are copied
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub rows: u64,
    /// Ordered indexes of the table
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub indexes: u16,
    /// Repetitions, each with a new cluster
    #[arg(short, long, visible_aliases = ["rounds", "repetitions"], default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl RestartOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let RestartOptions { rows, indexes, loops } = self;
        format!("vinga bench restart --rows {rows} --indexes {indexes} --loops {loops}")
    }

    /// `DataMemory` of each node.
    fn data_memory(&self) -> u64 {
        self.rows * (250 + 50 * u64::from(self.indexes)) + (512 << 20)
    }
}

/// The results of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Which node was killed.
    pub node: u8,
    /// Rows of the table.
    pub rows: u64,
    /// Beside flexAsynch's updates.
    pub load: Beside,
    /// Beside single updates.
    pub singles: Beside,
    /// While nothing else was done.
    pub idle: Start,
}

/// A start of a data node while the other one runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// From before the process was made until the node was a full member.
    pub seconds: f64,
    /// What the cluster says of it.
    pub phases: Phases,
}

/// A start beside updates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The start.
    pub start: Start,
    /// Updates of both nodes, before the kill.
    pub before: Span,
    /// Updates while rows were copied.
    pub copying: Span,
    /// Updates that failed, in all.
    pub failed: u64,
}

/// Runs all repetitions. Nodes are started by `program`, in a folder beside its own.
///
/// # Errors
/// The database's, or that a node does not come back, or lacks rows.
pub fn run(program: &NodeProgram, options: &RestartOptions, progress: &mut Progress) -> Result<Vec<Round>> {
    let node = NodeProgram { data_memory: Some(options.data_memory()), ..program.beside("restart") };
    let program = ClusterProgram::two_replicas(node);
    (1..=options.loops)
        .map(|number| {
            let victim = if number % 2 == 1 { 1 } else { 2 };
            let round = round(&program, options, victim)?;
            progress.line(&format!("  {number}/{} {}", options.loops, round.lines()));
            Ok(round)
        })
        .collect()
}

fn round(program: &ClusterProgram, options: &RestartOptions, victim: u8) -> Result<Round> {
    let cluster = program.start()?;
    let target = VingaTarget::connect(&cluster.addresses())?;
    let mut table = target.create_table(TABLE, &SHAPE)?;
    for number in 1..=options.indexes {
        let index = IndexDefinition { id: number, name: format!("ordered{number}"), ..ranges::index() };
        table = target.add_index(&table, &SHAPE, index)?;
    }
    let rows = options.rows;
    let mut values = ValueMaker::new(VALUE_BYTES);
    load(&target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
    let FlexAsynchOptions { batch, parallel, .. } = FlexAsynchOptions::default();
    let mut returns = Returns { program, cluster, target: &target, table, rows, victim };
    let load = returns.beside(batch as usize, usize::from(parallel))?;
    let singles = returns.beside(1, 1)?;
    let idle = returns.idle()?;
    let cluster = returns.verify()?;
    drop(target);
    cluster.stop()?;
    Ok(Round { node: victim, rows, load, singles, idle })
}

/// A cluster with a node that is killed and comes back.
struct Returns<'a> {
    program: &'a ClusterProgram,
    cluster: RunningCluster,
    target: &'a VingaTarget,
    table: VingaTable,
    rows: u64,
    victim: u8,
}

impl Returns<'_> {
    /// A return beside updates, so many in a batch and so many batches under way.
    fn beside(&mut self, batch: usize, slots: usize) -> Result<Beside> {
        let mut updating = Updating::new(self.target, &self.table, self.rows, VALUE_BYTES, (batch, slots))?;
        let (span, seen) = updating.beside(|| {
            thread::sleep(SETTLE);
            let from = Instant::now();
            thread::sleep(BEFORE);
            Ok((from, Instant::now()))
        })?;
        let (before, failed) = (seen.within(span.0, span.1), seen.failed());
        self.kill(self.victim)?;
        let ((node, ready), seen) = updating.beside(|| {
            thread::sleep(SETTLE);
            let node = self.program.start_again(self.victim)?;
            Ok((node, Instant::now()))
        })?;
        let start = self.is_back(node)?;
        // It is ready as soon as it has all rows.
        let copying = seen.within(ready - start.phases.copying(), ready);
        Ok(Beside { start, before, copying, failed: failed + seen.failed() })
    }

    /// A return while nothing else is done.
    fn idle(&mut self) -> Result<Start> {
        self.kill(self.victim)?;
        let node = self.program.start_again(self.victim)?;
        self.is_back(node)
    }

    /// Kills a node, and waits until the other one has taken over and has nothing left to do.
    fn kill(&mut self, id: u8) -> Result<()> {
        self.cluster.data_nodes.remove(usize::from(id - 1)).kill()?;
        phases::wait_until_gone(&self.target.first_cluster()?, id)?;
        wait_until_idle(&self.cluster.pids())
    }

    /// The node that was started again is one of the cluster, and the client's too.
    fn is_back(&mut self, node: Node) -> Result<Start> {
        let seconds = node.ready_after().as_secs_f64();
        self.cluster.data_nodes.insert(usize::from(self.victim - 1), node);
        let phases = phases::wait_until_back(&self.target.first_cluster()?, self.victim)?;
        Ok(Start { seconds, phases })
    }

    /// The node that has come back has all rows: nobody else is left to have them.
    fn verify(mut self) -> Result<RunningCluster> {
        self.kill(3 - self.victim)?;
        let found = self.target.scan(&self.table, ScanKind::Everything)?;
        if found != self.rows {
            let (node, rows) = (self.victim, self.rows);
            return Err(Failure::new(format!("data node {node} has come back with {found} of {rows} rows")));
        }
        Ok(self.cluster)
    }
}

impl Round {
    /// Rows that were copied in a second, by a cluster that did nothing else.
    fn idle_rate(&self) -> f64 {
        self.rows as f64 / self.idle.phases.copying().as_secs_f64().max(1e-6)
    }

    fn lines(&self) -> String {
        let Round { node, load, singles, idle, .. } = self;
        let [seconds, beside_load, beside_singles] = [idle, &load.start, &singles.start].map(|s| s.seconds);
        format!(
            "node {node}: back in {seconds:.3} s, {:.0} rows/s ({})\n      beside updates in {beside_load:.3} s: \
             {:.0}/s before, {:.0}/s meanwhile, {} failed ({})\n      beside single updates in {beside_singles:.3} s: \
             p99 {:.0} µs before, {:.0} µs meanwhile, {} failed ({})",
            self.idle_rate(),
            idle.phases,
            load.before.rate,
            load.copying.rate,
            load.failed,
            load.start.phases,
            singles.before.latency.p99_us,
            singles.copying.latency.p99_us,
            singles.failed,
            singles.start.phases,
        )
    }
}

/// The figures of a run.
pub fn figures(command: &str, rounds: &[Round]) -> Vec<Figure> {
    let samples = |value: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let figure = |name: &str, unit: &str, samples: &[f64]| {
        Figure::from_samples(format!("rejoin.{name}"), unit, command, samples)
    };
    let rate = samples(|round| round.load.copying.rate);
    let rate_before = samples(|round| round.load.before.rate);
    let p99 = samples(|round| round.singles.copying.latency.p99_us);
    let p99_before = samples(|round| round.singles.before.latency.p99_us);
    vec![
        figure("idle.seconds", "s", &samples(|round| round.idle.seconds)),
        figure("idle.rows_per_s", "1/s", &samples(Round::idle_rate)),
        Figure::from_pairs("rejoin.load_kept", command, &rate, &rate_before),
        Figure::from_pairs("rejoin.p99_ratio", command, &p99, &p99_before),
        figure("load.seconds", "s", &samples(|round| round.load.start.seconds)),
        figure("load.rate", "1/s", &rate),
        figure("load.rate.before", "1/s", &rate_before),
        figure("singles.seconds", "s", &samples(|round| round.singles.start.seconds)),
        figure("p99", "us", &p99),
        figure("p99.before", "us", &p99_before),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Better;
    use crate::latency::LatencySummary;
    use clap::Parser;

    #[test]
    fn the_command_line_says_the_options() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: RestartOptions,
        }
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        assert_eq!(parse("x --rounds 4"), parse("x --loops 4"));
        for options in [parse("x"), parse("x --rows 5000 --indexes 0 -l 9")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
    }

    #[test]
    fn figures_have_their_names() {
        let start = |seconds, copying: &str| {
            let phases = Phases::of(&format!("cluster joined: 3.0 ms, rows copied: {copying} ms"), 1000);
            Start { seconds, phases: phases.unwrap() }
        };
        let span = |rate, p99_us| Span {
            updates: 1,
            rate,
            latency: LatencySummary { p99_us, ..LatencySummary::default() },
        };
        let beside = |rate, p99_us| Beside {
            start: start(3.0, "2500.0"),
            before: span(1000.0, 50.0),
            copying: span(rate, p99_us),
            failed: 0,
        };
        let round = Round {
            node: 1,
            rows: 1000,
            load: beside(600.0, 0.0),
            singles: beside(0.0, 125.0),
            idle: start(0.75, "500.0"),
        };
        let all = figures("c", std::slice::from_ref(&round));
        let find = |name: &str| {
            let figure = all.iter().find(|figure| figure.name == name).expect(name);
            (figure.median, figure.better())
        };
        assert_eq!(find("rejoin.idle.seconds"), (0.75, Better::Less));
        assert_eq!(find("rejoin.idle.rows_per_s"), (2000.0, Better::More));
        assert_eq!(find("rejoin.load_kept"), (0.6, Better::More));
        assert_eq!(find("rejoin.p99_ratio"), (2.5, Better::Less));
        assert!(round.lines().contains("(cluster joined 3.0 ms, rows copied 500.0 ms)"), "{}", round.lines());
    }
}
