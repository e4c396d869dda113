//! flexAsynch: how many small operations by primary key a second, and what each costs the data node.
//!
//! Like NDB's program of this name: a table with a key of 8 bytes and one column; four phases, each with all rows, each
//! operation a transaction of its own: *insert*, *update*, *read*, *delete*. Definer threads share the rows
//! ([`crate::keys`]). Each prepares batches, starts them, and has several of them under way; the client's executors
//! gather the queued operations for a data node and send them together. Each phase is measured: time, latencies, CPU of
//! the data node by thread, CPU of this process.
//!
//! The latency of an operation is that of its batch: from the moment in which the batch was complete and started to the
//! moment in which the definer had all its answers. Reads are checked: an operation with a wrong outcome counts as
//! failed, and the run as a whole fails.
//!
//! | NDB's option | here |
//! |---|---|
//! | `-t` threads | `-t`, `--threads`: definers |
//! | `-p` parallel operations of a thread, sent together | `-p`, `--batch`; `--parallel` such batches are under way |
//! | `-o` transactions of a thread in a loop | `--rows` = t · p · o: rows of all threads together |
//! | `-l` loops | `-l`, `--loops`: repetitions of the four phases |
//! | `-a` attributes, `-s` their size in words | one column, `--value-bytes` |
//! | `-r` extra read loops | `-r`, `--extra-reads`; also `--extra-updates` |
//! | `-write` | `--write`: upserts in the phases insert and update |
//! | `-con` connections | `--con`, `--connections`, shared by the definers |
//! | `-c` operations of a transaction | always 1 |
//! | `-temp` tables without logging | always, as long as there are no disks |
//! | `-new` definers and executors | always |
//! | `-simple`, `-dirty` | reads are always committed reads |
//!
//! NDB's order of phases has the read before the update too; its keys ascend (`--order ascending`).

mod definer;

use crate::failure::{Failure, Result};
use crate::figure::{Figure, median, readable};
use crate::keys::{Order, ValueMaker, share};
use crate::latency::{Latencies, LatencySummary};
use crate::meter::{Meter, NodeCpu};
use crate::progress::Progress;
use crate::target::{Kind, TableShape, Target};
use definer::{Definer, Job};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Time between samples of the series.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// CPU that other processes may use without a remark.
const DISTURBANCE_PERCENT_MIN: f64 = 10.0;
/// Time between checks of the definers' progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Options of flexAsynch.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct FlexAsynchOptions {
    /// Rows in all
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Bytes of the column behind the key; 8 and 100 are customary
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=1020))]
    pub value_bytes: u16,
    /// Definer threads
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Operations that are sent together
    #[arg(short = 'p', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Batches that each definer has under way
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parallel: u16,
    /// Connections that the definers share
    #[arg(long, visible_alias = "con", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
    /// Repetitions of the four phases
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Repetitions before these, which do not count
    #[arg(long, default_value_t = 1)]
    pub warm_up: u32,
    /// How often the read phase goes over all rows again
    #[arg(short = 'r', long, default_value_t = 0)]
    pub extra_reads: u32,
    /// How often the update phase goes over all rows again
    #[arg(long, default_value_t = 0)]
    pub extra_updates: u32,
    /// Upserts in the phases insert and update
    #[arg(long)]
    pub write: bool,
    /// Order in which rows are visited
    #[arg(long, value_enum, default_value_t = Order::Scattered)]
    pub order: Order,
}

impl Default for FlexAsynchOptions {
    fn default() -> Self {
        FlexAsynchOptions {
            rows: 1_000_000,
            value_bytes: 100,
            threads: 1,
            batch: 128,
            parallel: 4,
            connections: 1,
            loops: 5,
            warm_up: 1,
            extra_reads: 0,
            extra_updates: 0,
            write: false,
            order: Order::Scattered,
        }
    }
}

impl FlexAsynchOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let FlexAsynchOptions { rows, value_bytes, threads, batch, parallel, connections, loops, .. } = self;
        let mut line = format!(
            "vinga bench flexasynch --rows {rows} --value-bytes {value_bytes} --threads {threads} --batch {batch} \
             --parallel {parallel} --connections {connections} --loops {loops} --warm-up {}",
            self.warm_up
        );
        for (name, value) in [("--extra-reads", self.extra_reads), ("--extra-updates", self.extra_updates)] {
            if value > 0 {
                line += &format!(" {name} {value}");
            }
        }
        if self.write {
            line += " --write";
        }
        if self.order == Order::Ascending {
            line += " --order ascending";
        }
        line
    }

    /// The prefix of a phase's figures: `flexasynch.read` for rows of 8 + 100 bytes and batches of 128; other values
    /// are added to the name.
    pub fn figure_prefix(&self, phase: Phase) -> String {
        let mut name = format!("flexasynch.{}", phase.name());
        if self.value_bytes != 100 {
            name += &format!(".bytes{}", self.value_bytes);
        }
        if self.batch != 128 {
            name += &format!(".batch{}", self.batch);
        }
        name
    }

    /// How often a phase visits all rows.
    fn passes(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Insert | Phase::Delete => 1,
            Phase::Update => 1 + u64::from(self.extra_updates),
            Phase::Read => 1 + u64::from(self.extra_reads),
        }
    }

    fn kind(&self, phase: Phase) -> Kind {
        match phase {
            Phase::Insert | Phase::Update if self.write => Kind::Write,
            Phase::Insert => Kind::Insert,
            Phase::Update => Kind::Update,
            Phase::Read => Kind::Read,
            Phase::Delete => Kind::Delete,
        }
    }
}

/// A phase of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Phase {
    Insert,
    Update,
    Read,
    Delete,
}

impl Phase {
    /// All, in the order in which they are run.
    pub const ALL: [Phase; 4] = [Phase::Insert, Phase::Update, Phase::Read, Phase::Delete];

    /// The name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Update => "update",
            Phase::Read => "read",
            Phase::Delete => "delete",
        }
    }
}

/// The result of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase.
    pub phase: Phase,
    /// Operations that were done.
    pub operations: u64,
    /// From the start of the first definer to the end of the last.
    pub seconds: f64,
    /// Operations a second.
    pub rate: f64,
    /// Latencies of operations.
    pub latency: LatencySummary,
    /// How many operations were done in each second; the last one is shorter.
    pub series: Vec<Sample>,
    /// CPU time of all data nodes, if their processes are known.
    pub node_cpu: Option<NodeCpu>,
    /// CPU time of this process for an operation, definers and executors together, in nanoseconds.
    pub client_cpu_ns: f64,
    /// See [`crate::meter::Spent`].
    pub others_percent: Option<f64>,
}

/// A piece of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its length.
    pub seconds: f64,
    /// Operations done in it.
    pub operations: u64,
}

/// The four phases, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// In the order in which they were run.
    pub phases: Vec<PhaseResult>,
}

impl Repetition {
    /// The result of a phase.
    pub fn phase(&self, phase: Phase) -> &PhaseResult {
        self.phases.iter().find(|result| result.phase == phase).expect("each repetition runs all phases")
    }
}

/// Runs all repetitions.
///
/// # Errors
/// The database's, or that operations had a wrong outcome.
pub fn run<T: Target>(
    target: &T,
    node: Option<u32>,
    options: &FlexAsynchOptions,
    progress: &mut Progress,
) -> Result<Vec<Repetition>> {
    let mut bench = FlexAsynch::open(target, node, options)?;
    for _ in 0..options.warm_up {
        bench.repetition("warm-up", progress)?;
    }
    let repetitions = (1..=options.loops)
        .map(|number| bench.repetition(&format!("{number}/{}", options.loops), progress))
        .collect();
    bench.close()?;
    repetitions
}

/// A benchmark that is ready to run: its table and lanes exist.
pub struct FlexAsynch<'a, T: Target> {
    target: &'a T,
    table: T::Table,
    lanes: Vec<T::Lane>,
    nodes: Vec<u32>,
    options: &'a FlexAsynchOptions,
    /// How often rows have been visited: each visit has its own order.
    visits: u64,
}

impl<'a, T: Target> FlexAsynch<'a, T> {
    /// Makes the table and a lane for each definer. `nodes` are the process ids of the data nodes, if they are known.
    ///
    /// # Errors
    /// The database's.
    pub fn open(
        target: &'a T,
        nodes: impl IntoIterator<Item = u32>,
        options: &'a FlexAsynchOptions,
    ) -> Result<Self> {
        FlexAsynch::open_table(target, "bench.flexasynch", nodes, options)
    }

    /// As [`FlexAsynch::open`], with the name of the table: several can be open beside each other.
    ///
    /// # Errors
    /// The database's.
    pub fn open_table(
        target: &'a T,
        table: &str,
        nodes: impl IntoIterator<Item = u32>,
        options: &'a FlexAsynchOptions,
    ) -> Result<Self> {
        let table = target.create_table(table, &TableShape::Value { bytes: options.value_bytes })?;
        let (slots, batch) = (usize::from(options.parallel), options.batch as usize);
        let connection = |definer| usize::from(definer % options.connections);
        let lanes: Result<Vec<T::Lane>> = (0..options.threads)
            .map(|definer| target.lane(&table, connection(definer), slots, batch))
            .collect();
        let nodes = nodes.into_iter().collect();
        Ok(FlexAsynch { target, table, lanes: lanes?, nodes, options, visits: 0 })
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The database's.
    pub fn close(self) -> Result<()> {
        drop(self.lanes);
        self.target.drop_table(self.table)
    }

    /// Runs the four phases once. The table is empty before and after.
    ///
    /// # Errors
    /// The database's, or that operations had a wrong outcome.
    pub fn repetition(&mut self, name: &str, progress: &mut Progress) -> Result<Repetition> {
        let mut phases = Vec::new();
        for phase in Phase::ALL {
            let result = self.phase(phase, name, progress)?;
            progress.line(&format!("  {name:>7} {}", result.line()));
            phases.push(result);
        }
        Ok(Repetition { phases })
    }

    fn phase(&mut self, phase: Phase, name: &str, progress: &mut Progress) -> Result<PhaseResult> {
        let FlexAsynch { lanes, nodes, options, visits, .. } = self;
        let definers = lanes.len() as u64;
        let passes = options.passes(phase);
        let first_visit = *visits;
        *visits += passes;
        let job = |definer: u64| job(options, phase, first_visit, share(options.rows, definers, definer));
        let wanted = options.rows * passes;
        let board = Board::new(lanes.len());
        let barrier = Barrier::new(lanes.len() + 1);
        let (barrier, board) = (&barrier, &board);
        let (meter, series, ends) = thread::scope(|scope| {
            let watcher = thread::current();
            let threads: Vec<_> = (0..definers)
                .zip(lanes.iter_mut())
                .map(|(number, lane)| {
                    let (job, watcher) = (job(number), watcher.clone());
                    scope.spawn(move || {
                        let mut definer =
                            Definer::new(lane, &job, &board.done[number as usize].0, &board.stop);
                        // Dropped at the end of every kind: else the watcher would wait for ever.
                        let _ending = Ending { board, watcher };
                        barrier.wait();
                        let begun = Instant::now();
                        let result = definer.run();
                        let end = Instant::now();
                        if result.is_err() {
                            board.stop.store(1, Ordering::Relaxed);
                        }
                        result.map(|latencies| (begun, end, latencies))
                    })
                })
                .collect();
            // A meter that could not be started must not leave the definers waiting.
            let meter = Meter::start(nodes.iter().copied());
            barrier.wait();
            let series = board.watch(definers, |done, rate| {
                progress.step(|| {
                    let percent = 100.0 * done as f64 / wanted as f64;
                    format!("  {name:>7} {:6} {percent:3.0} %  {:>11}/s", phase.name(), readable(rate))
                });
            });
            let ends: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("definers do not panic")).collect();
            (meter, series, ends)
        });
        let spent = meter?.stop()?;
        let (latencies, elapsed) = sum_up(ends)?;
        let operations = latencies.count();
        assert_eq!(operations, wanted, "each row is visited once in each pass");
        Ok(PhaseResult {
            phase,
            operations,
            seconds: elapsed.as_secs_f64(),
            rate: operations as f64 / elapsed.as_secs_f64(),
            latency: latencies.summary(),
            series,
            node_cpu: spent.node.map(|used| NodeCpu::new(&used, operations, elapsed)),
            client_cpu_ns: spent.client_ns as f64 / operations.max(1) as f64,
            others_percent: spent.others_percent,
        })
    }
}

/// What a definer does in a phase with its share of the rows.
fn job(options: &FlexAsynchOptions, phase: Phase, first_visit: u64, rows: Range<u64>) -> Job {
    Job {
        kind: options.kind(phase),
        rows,
        order: options.order,
        first_visit,
        passes: options.passes(phase),
        // Each pass of updates writes the next generation; reads expect the last.
        first_generation: match phase {
            Phase::Insert | Phase::Delete => 0,
            Phase::Update => 1,
            Phase::Read => options.passes(Phase::Update),
        },
        batch: options.batch as usize,
        slots: usize::from(options.parallel),
        values: ValueMaker::new(options.value_bytes),
    }
}

/// When a definer began and ended, and its latencies.
type DefinerEnd = Result<(Instant, Instant, Latencies)>;

/// The latencies of all definers, and the time from the first beginning to the last end.
fn sum_up(ends: Vec<DefinerEnd>) -> Result<(Latencies, Duration)> {
    let mut latencies = Latencies::default();
    let mut span: Option<(Instant, Instant)> = None;
    for end in ends {
        let (begun, end, own) = end?;
        latencies.add(&own);
        span = Some(span.map_or((begun, end), |(b, e)| (b.min(begun), e.max(end))));
    }
    let (begun, end) = span.expect("there is a definer");
    Ok((latencies, end - begun))
}

/// Progress of the definers.
struct Board {
    /// Operations that each definer has done.
    done: Vec<CacheLine>,
    /// Definers that have ended.
    ended: AtomicU64,
    /// Not 0 when one has failed: the others need not continue.
    stop: AtomicU64,
}

/// A counter that shares its cache line with no other.
#[repr(align(128))]
struct CacheLine(AtomicU64);

impl Board {
    fn new(definers: usize) -> Self {
        let done = (0..definers).map(|_| CacheLine(AtomicU64::new(0))).collect();
        Board { done, ended: AtomicU64::new(0), stop: AtomicU64::new(0) }
    }

    fn done(&self) -> u64 {
        self.done.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }

    /// Takes samples until all definers have ended; definers unpark this thread when they do.
    fn watch(&self, definers: u64, mut look: impl FnMut(u64, f64)) -> Vec<Sample> {
        let begun = Instant::now();
        let mut series = Vec::new();
        let (mut sampled_at, mut sampled) = (begun, 0);
        loop {
            let is_over = self.ended.load(Ordering::Acquire) == definers;
            let (now, done) = (Instant::now(), self.done());
            if is_over || now - sampled_at >= SAMPLE_INTERVAL {
                let seconds = (now - sampled_at).as_secs_f64();
                series.push(Sample { seconds, operations: done - sampled });
                (sampled_at, sampled) = (now, done);
            }
            if is_over {
                return series;
            }
            look(done, done as f64 / (now - begun).as_secs_f64().max(1e-9));
            thread::park_timeout(LOOK_INTERVAL);
        }
    }
}

/// Marks a definer as ended when dropped.
struct Ending<'a> {
    board: &'a Board,
    watcher: Thread,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.board.ended.fetch_add(1, Ordering::Release);
        self.watcher.unpark();
    }
}

impl PhaseResult {
    /// One line.
    fn line(&self) -> String {
        let LatencySummary { p50_us, p99_us, .. } = self.latency;
        let node = self.node_cpu.as_ref().map_or("-".to_owned(), |cpu| readable(cpu.ns_per_operation));
        format!(
            "{:6} {:>11}/s   p50 {:>7} µs   p99 {:>7} µs   CPU: node {node:>5} ns, client {:>5} ns{}",
            self.phase.name(),
            readable(self.rate),
            readable(p50_us),
            readable(p99_us),
            readable(self.client_cpu_ns),
            disturbance(self.others_percent),
        )
    }
}

/// The figures of a run.
pub fn figures(options: &FlexAsynchOptions, command: &str, repetitions: &[Repetition]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for phase in Phase::ALL {
        let prefix = options.figure_prefix(phase);
        let mut add = |name: &str, unit: &str, value: &dyn Fn(&PhaseResult) -> Option<f64>| {
            let samples: Option<Vec<f64>> = repetitions.iter().map(|r| value(r.phase(phase))).collect();
            if let Some(samples) = samples {
                figures.push(Figure::from_samples(format!("{prefix}.{name}"), unit, command, &samples));
            }
        };
        add("rate", "1/s", &|result| Some(result.rate));
        add("node_cpu", "ns", &|result| result.node_cpu.as_ref().map(|cpu| cpu.ns_per_operation));
        add("client_cpu", "ns", &|result| Some(result.client_cpu_ns));
        add("p50", "us", &|result| Some(result.latency.p50_us));
        add("p99", "us", &|result| Some(result.latency.p99_us));
    }
    figures
}

/// A remark if other processes took so much CPU that the figures suffer.
fn disturbance(others_percent: Option<f64>) -> String {
    match others_percent {
        Some(percent) if percent > DISTURBANCE_PERCENT_MIN => format!("   (others: {percent:.0} % of a CPU)"),
        Some(_) | None => String::new(),
    }
}

/// The summary for people.
pub fn summary(options: &FlexAsynchOptions, repetitions: &[Repetition]) -> String {
    let FlexAsynchOptions { rows, value_bytes, threads, batch, parallel, loops, .. } = options;
    let mut text = format!(
        "flexAsynch: {} rows of 8 + {value_bytes} bytes, {threads} × {parallel} batches of {batch}; medians of {loops}\n\
         {:6} {:>13} {:>27} {:>9} {:>9} {:>13} {:>15}\n",
        readable(*rows as f64),
        "phase",
        "operations/s",
        "least – most",
        "p50 µs",
        "p99 µs",
        "node CPU ns",
        "client CPU ns",
    );
    for phase in Phase::ALL {
        let results: Vec<&PhaseResult> = repetitions.iter().map(|r| r.phase(phase)).collect();
        let middle = |value: &dyn Fn(&PhaseResult) -> f64| {
            readable(median(&results.iter().map(|result| value(result)).collect::<Vec<_>>()))
        };
        let rates =
            Figure::from_samples("rate", "1/s", "", &results.iter().map(|r| r.rate).collect::<Vec<_>>());
        let node = match results.iter().all(|result| result.node_cpu.is_some()) {
            true => middle(&|r| r.node_cpu.as_ref().map_or(0.0, |cpu| cpu.ns_per_operation)),
            false => "-".to_owned(),
        };
        text += &format!(
            "{:6} {:>13} {:>27} {:>9} {:>9} {node:>13} {:>15}\n",
            phase.name(),
            readable(rates.median),
            format!("{} – {}", readable(rates.min), readable(rates.max)),
            middle(&|r| r.latency.p50_us),
            middle(&|r| r.latency.p99_us),
            middle(&|r| r.client_cpu_ns),
        );
    }
    text
}

/// A wrong outcome of an operation.
pub(crate) fn wrong(kind: Kind, id: u64, what: &str) -> Failure {
    Failure::new(format!("{kind:?} of row {id}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;

    fn options() -> FlexAsynchOptions {
        FlexAsynchOptions {
            rows: 1003,
            threads: 3,
            batch: 16,
            parallel: 2,
            loops: 2,
            warm_up: 1,
            extra_reads: 1,
            extra_updates: 2,
            ..FlexAsynchOptions::default()
        }
    }

    #[test]
    fn all_phases_touch_every_row() {
        let target = FakeTarget::default();
        let options = options();
        let repetitions = run(&target, Some(std::process::id()), &options, &mut Progress::quiet()).unwrap();
        assert_eq!(repetitions.len(), 2);
        let phase = repetitions[0].phase(Phase::Update);
        assert_eq!(phase.operations, 3 * 1003);
        assert_eq!(phase.series.iter().map(|sample| sample.operations).sum::<u64>(), 3 * 1003);
        assert!(phase.node_cpu.is_some() && phase.rate > 0.0 && phase.latency.max_us > 0.0);
        // Two repetitions and a warm-up.
        let done = target.done.lock().unwrap();
        let done: Vec<(&str, u64)> = done.iter().map(|(kind, count)| (kind.as_str(), count / 3)).collect();
        assert_eq!(done, [("Delete", 1003), ("Insert", 1003), ("Read", 2 * 1003), ("Update", 3 * 1003)]);
    }

    #[test]
    fn an_update_that_got_lost_is_found() {
        let target = FakeTarget { forgets: Some(77), ..FakeTarget::default() };
        let failure = run(&target, None, &options(), &mut Progress::quiet()).unwrap_err().to_string();
        assert!(failure.contains("Read of row 77"), "{failure}");
    }

    #[test]
    fn upserts_in_place_of_inserts_and_updates() {
        let target = FakeTarget::default();
        let options = FlexAsynchOptions { write: true, order: Order::Ascending, ..options() };
        run(&target, None, &options, &mut Progress::quiet()).unwrap();
        assert_eq!(target.done.lock().unwrap()["Write"], 3 * 4 * 1003);
    }

    #[test]
    fn figures_have_their_names() {
        let target = FakeTarget::default();
        let options = FlexAsynchOptions { batch: 128, ..options() };
        let repetitions = run(&target, Some(std::process::id()), &options, &mut Progress::quiet()).unwrap();
        let figures = figures(&options, "c", &repetitions);
        assert_eq!(figures.len(), 4 * 5);
        assert!(
            figures.iter().any(|figure| figure.name == "flexasynch.delete.node_cpu" && figure.unit == "ns")
        );
        let other = FlexAsynchOptions { batch: 8, value_bytes: 8, ..options.clone() };
        assert_eq!(other.figure_prefix(Phase::Read), "flexasynch.read.bytes8.batch8");
        let text = summary(&options, &repetitions);
        assert!(text.lines().count() == 6 && text.contains("delete"), "{text}");
    }

    #[test]
    fn the_command_line_says_the_options() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: FlexAsynchOptions,
        }
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        assert_eq!(parse("x"), FlexAsynchOptions::default());
        for options in [options(), FlexAsynchOptions { write: true, order: Order::Ascending, ..options() }] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
        let short = parse("x -t 2 -p 64 -l 3 -r 1");
        assert_eq!((short.threads, short.batch, short.loops, short.extra_reads), (2, 64, 3, 1));
    }
}
