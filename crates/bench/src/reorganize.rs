//! What it costs transactions that partitions move to a node group that was added.
//!
//! Each repetition starts two data nodes with two replicas, as processes that keep nothing on disk, and adds a node
//! group of two more, as `vinga admin add nodegroup` does: the file gets them, all are restarted one after the other,
//! and the new ones are started. A table is filled with rows of 108 bytes that has ordered indexes on its key; its
//! partitions are those of the first node group. Then flexAsynch's updates go on, batches of 128 with four under way:
//! for two seconds while nothing moves, and until half of the partitions, with half of the rows, have moved. Their
//! rate meanwhile is compared with that before. None may fail; at the end all rows must be there.

use crate::cluster::{ClusterProgram, RunningCluster};
use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::flexasynch::FlexAsynchOptions;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::ranges;
use crate::restart::Span;
use crate::restart::updating::Updating;
use crate::rolling::restarts::{await_that, restart_all};
use crate::target::{ScanKind, TableShape, Target};
use crate::vinga_target::VingaTarget;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::{Duration, Instant};
use vinga::NodeGroup;
use vinga::blocking::Cluster;
use vinga_base::schema::IndexDefinition;

const TABLE: &str = "bench.reorganize";
/// Bytes of the column behind the key: rows have 108 bytes.
const VALUE_BYTES: u16 = 100;
const SHAPE: TableShape = TableShape::Value { bytes: VALUE_BYTES };
/// How long updates go on before they count.
const SETTLE: Duration = Duration::from_millis(500);
/// How long they are measured before partitions move, and afterwards.
const BEFORE: Duration = Duration::from_secs(2);

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ReorganizeOptions {
    /// Rows of the table
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

impl ReorganizeOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let ReorganizeOptions { rows, indexes, loops } = self;
        format!("vinga bench reorganize --rows {rows} --indexes {indexes} --loops {loops}")
    }

    /// `DataMemory` of each node.
    fn data_memory(&self) -> u64 {
        self.rows * (250 + 50 * u64::from(self.indexes)) + (512 << 20)
    }
}

/// The results of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Rows of the table.
    pub rows: u64,
    /// Partitions of each node group at the end.
    pub partitions: Vec<usize>,
    /// From the request until half of them had moved, in seconds.
    pub seconds: f64,
    /// Updates before.
    pub before: Span,
    /// Updates meanwhile.
    pub moving: Span,
    /// Updates behind that, by four data nodes.
    pub after: Span,
    /// Updates that failed, in all.
    pub failed: u64,
}

/// Runs all repetitions. Nodes are started by `program`, in a folder beside its own.
///
/// # Errors
/// The database's, or that partitions do not move, or rows are missing.
pub fn run(
    program: &NodeProgram,
    options: &ReorganizeOptions,
    progress: &mut Progress,
) -> Result<Vec<Round>> {
    let node = NodeProgram { data_memory: Some(options.data_memory()), ..program.beside("reorganize") };
    let program = ClusterProgram::two_replicas(node);
    progress.repeat(options.loops, Round::line, |_| round(program.clone(), options))
}

fn round(mut program: ClusterProgram, options: &ReorganizeOptions) -> Result<Round> {
    let running = grow(&mut program)?;
    let cluster = connect(&running)?;
    let target = VingaTarget::connect(&running.addresses())?;
    let mut table = target.create_table(TABLE, &SHAPE)?;
    for number in 1..=options.indexes {
        let index = IndexDefinition { id: number, name: format!("ordered{number}"), ..ranges::index() };
        table = target.add_index(&table, &SHAPE, index)?;
    }
    let rows = options.rows;
    let mut values = ValueMaker::new(VALUE_BYTES);
    load(&target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
    let FlexAsynchOptions { batch, parallel, .. } = FlexAsynchOptions::default();
    let slots = (batch as usize, usize::from(parallel));
    let mut updating = Updating::new(&target, &table, rows, VALUE_BYTES, slots)?;
    let ([from, begun, ended, until], seen) = updating.beside(|| {
        thread::sleep(SETTLE);
        let from = Instant::now();
        thread::sleep(BEFORE);
        let begun = Instant::now();
        cluster.reorganize(true).context(|| "partitions do not move".into())?;
        await_that(|| !cluster.reorganization().is_under_way, || "partitions have moved".into())?;
        let ended = Instant::now();
        thread::sleep(BEFORE);
        Ok([from, begun, ended, Instant::now()])
    })?;
    let found = target.scan(&table, ScanKind::Everything)?;
    if found != rows {
        return Err(Failure::new(format!("{found} of {rows} rows are there when partitions have moved")));
    }
    let round = Round {
        rows,
        partitions: partitions(&cluster.node_groups()),
        seconds: (ended - begun).as_secs_f64(),
        before: seen.within(from, begun),
        moving: seen.within(begun, ended),
        after: seen.within(ended, until),
        failed: seen.failed(),
    };
    drop(updating);
    drop((target, cluster));
    running.stop()?;
    Ok(round)
}

/// Starts a cluster, and adds a node group.
fn grow(program: &mut ClusterProgram) -> Result<RunningCluster> {
    let mut running = program.start()?;
    let cluster = connect(&running)?;
    program.add_node_group()?;
    restart_all(program, &mut running, &cluster)?;
    program.start_last(program.replicas, &mut running)?;
    Ok(running)
}

fn connect(running: &RunningCluster) -> Result<Cluster> {
    Cluster::connect(&running.addresses()).context(|| "cannot connect to the cluster".into())
}

fn partitions(groups: &[NodeGroup]) -> Vec<usize> {
    groups.iter().map(|group| group.partitions).collect()
}

impl Round {
    /// Rows that have moved in a second, if each partition has as many as the others.
    fn moved_rate(&self) -> f64 {
        let all: usize = self.partitions.iter().sum();
        let moved: usize = self.partitions.iter().skip(1).sum();
        self.rows as f64 * moved as f64 / all.max(1) as f64 / self.seconds.max(1e-6)
    }

    /// One line.
    fn line(&self) -> String {
        let Round { partitions, seconds, before, moving, after, failed, .. } = self;
        format!(
            "partitions {partitions:?} after {seconds:.3} s ({:.0} rows/s): {:.0} updates/s before, {:.0}/s meanwhile, \
             {:.0}/s after, {failed} failed",
            self.moved_rate(),
            before.rate,
            moving.rate,
            after.rate
        )
    }
}

/// The figures of a run.
pub fn figures(command: &str, rounds: &[Round]) -> Vec<Figure> {
    let samples = |value: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let figure = |name: &str, unit: &str, samples: &[f64]| {
        Figure::from_samples(format!("reorganize.{name}"), unit, command, samples)
    };
    let (rate, before) = (samples(|round| round.moving.rate), samples(|round| round.before.rate));
    let failed = samples(|round| round.failed as f64).iter().sum();
    vec![
        Figure::from_pairs("reorganize.load_kept", command, &rate, &before),
        figure("failed", "updates", &[failed]),
        figure("seconds", "s", &samples(|round| round.seconds)),
        figure("rows_per_s", "1/s", &samples(Round::moved_rate)),
        figure("rate", "1/s", &rate),
        figure("rate.before", "1/s", &before),
        figure("rate.after", "1/s", &samples(|round| round.after.rate)),
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
            options: ReorganizeOptions,
        }
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        for options in [parse("x"), parse("x --rows 5000 --indexes 0 -l 9")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
    }

    #[test]
    fn figures_have_their_names() {
        let span = |rate| Span { updates: 1, rate, latency: LatencySummary::default() };
        let round = |failed| Round {
            rows: 1000,
            partitions: vec![4, 4],
            seconds: 0.5,
            before: span(1000.0),
            moving: span(600.0),
            after: span(700.0),
            failed,
        };
        assert!(round(3).line().contains("[4, 4] after 0.500 s (1000 rows/s)"), "{}", round(3).line());
        let all = figures("c", &[round(0), round(3)]);
        let find = |name: &str| {
            let figure = all.iter().find(|figure| figure.name == name).expect(name);
            (figure.median, figure.better())
        };
        assert_eq!(find("reorganize.load_kept"), (0.6, Better::More));
        assert_eq!(find("reorganize.failed"), (3.0, Better::Less));
        assert_eq!(find("reorganize.seconds"), (0.5, Better::Less));
        assert_eq!(find("reorganize.rows_per_s"), (1000.0, Better::More));
    }
}
