//! One lookup at a time: its latency and its CPU cost.
//!
//! A table of rows of 8 + 100 bytes is loaded; then one thread, or several that share a client, read rows in scattered
//! order, each with a blocking call, and measure its time.

use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::{Order, ValueMaker, visit};
use crate::latency::{Latencies, LatencySummary};
use crate::load::load;
use crate::meter::{Meter, NodeCpu};
use crate::progress::Progress;
use crate::target::{TableShape, Target};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Instant;

/// Bytes of the value.
pub const VALUE_BYTES: u16 = 100;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct LookupOptions {
    /// Rows in the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Lookups of a repetition
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub lookups: u64,
    /// Threads that look rows up, each one at a time; they share one client
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5)]
    pub loops: u32,
}

impl LookupOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let LookupOptions { rows, lookups, threads, loops } = self;
        let threads = if *threads == 1 { String::new() } else { format!(" --threads {threads}") };
        format!("vinga bench lookup --rows {rows} --lookups {lookups}{threads} --loops {loops}")
    }
}

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookupResult {
    /// Round trips.
    pub latency: LatencySummary,
    /// Lookups a second, of all threads.
    pub per_second: f64,
    /// CPU time of the data node for a lookup, if its process is known.
    pub node_cpu: Option<NodeCpu>,
    /// CPU time of this process for a lookup, in nanoseconds.
    pub client_cpu_ns: f64,
}

/// A loaded table.
pub struct Lookup<'a, T: Target> {
    target: &'a T,
    table: T::Table,
    node: Option<u32>,
    options: &'a LookupOptions,
    visits: u64,
}

impl<'a, T: Target> Lookup<'a, T> {
    /// Makes the table and fills it.
    ///
    /// # Errors
    /// The database's.
    pub fn open(target: &'a T, node: Option<u32>, options: &'a LookupOptions) -> Result<Self> {
        let table = target.create_table("bench.lookup", &TableShape::Value { bytes: VALUE_BYTES })?;
        let mut values = ValueMaker::new(VALUE_BYTES);
        load(target, &table, 0..options.rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
        Ok(Lookup { target, table, node, options, visits: 0 })
    }

    /// Looks rows up.
    ///
    /// # Errors
    /// The database's, or that a row was wrong.
    pub fn repetition(&mut self) -> Result<LookupResult> {
        let LookupOptions { lookups, threads, .. } = *self.options;
        let threads = u64::from(threads);
        self.visits += threads;
        let own = &*self;
        let meter = Meter::start(own.node)?;
        let latencies = match threads {
            1 => own.look_up(own.visits, lookups)?,
            _ => thread::scope(|scope| {
                let share = |thread| (lookups * (thread + 1) / threads) - (lookups * thread / threads);
                let looking: Vec<_> = (0..threads)
                    .map(|thread| scope.spawn(move || own.look_up(own.visits + thread, share(thread))))
                    .collect();
                looking.into_iter().try_fold(Latencies::default(), |mut all, one| {
                    all.add(&one.join().expect("a thread that looks up does not panic")?);
                    Ok::<_, Failure>(all)
                })
            })?,
        };
        let spent = meter.stop()?;
        Ok(LookupResult {
            per_second: lookups as f64 / spent.elapsed.as_secs_f64(),
            latency: latencies.summary(),
            node_cpu: spent.node.map(|used| NodeCpu::new(&used, lookups, spent.elapsed)),
            client_cpu_ns: spent.client_ns as f64 / lookups as f64,
        })
    }

    /// The work of one thread.
    fn look_up(&self, seed: u64, lookups: u64) -> Result<Latencies> {
        let values = ValueMaker::new(VALUE_BYTES);
        let mut latencies = Latencies::default();
        let mut value = Vec::new();
        let ids = (0..).flat_map(|round| visit(0..self.options.rows, Order::Scattered, seed + (round << 32)));
        for id in ids.take(usize::try_from(lookups).expect("lookups are countable")) {
            value.clear();
            let begun = Instant::now();
            let found = self.target.get(&self.table, id, &mut value)?;
            latencies.record(begun.elapsed(), 1);
            if !found || !values.is(&value, id, 0) {
                return Err(Failure::new(format!("lookup of row {id}: it is not there, or another")));
            }
        }
        Ok(latencies)
    }

    /// Removes the table.
    ///
    /// # Errors
    /// The database's.
    pub fn close(self) -> Result<()> {
        self.target.drop_table(self.table)
    }
}

/// Runs all repetitions.
///
/// # Errors
/// The database's, or that a row was wrong.
pub fn run<T: Target>(
    target: &T,
    node: Option<u32>,
    options: &LookupOptions,
    progress: &mut Progress,
) -> Result<Vec<LookupResult>> {
    let mut lookup = Lookup::open(target, node, options)?;
    // The first round is a warm-up.
    lookup.repetition()?;
    let results: Result<Vec<LookupResult>> = (1..=options.loops)
        .map(|number| {
            let result = lookup.repetition()?;
            progress.line(&format!("  {number}/{} {}", options.loops, line(&result)));
            Ok(result)
        })
        .collect();
    lookup.close()?;
    results
}

/// One line.
pub fn line(result: &LookupResult) -> String {
    let LatencySummary { p50_us, p99_us, max_us, .. } = result.latency;
    let (rate, client) = (result.per_second, result.client_cpu_ns / 1000.0);
    // The process of a node on another machine is not known.
    let node = result
        .node_cpu
        .as_ref()
        .map_or_else(String::new, |cpu| format!(", node {:.2} µs", cpu.ns_per_operation / 1000.0));
    format!(
        "lookup   {rate:.0}/s   CPU client {client:.2} µs{node}   \
         p50 {p50_us:.1} µs   p99 {p99_us:.1} µs   max {max_us:.1} µs"
    )
}

/// The figures of a run.
pub fn figures(command: &str, results: &[LookupResult]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |name: &str, unit: &str, value: &dyn Fn(&LookupResult) -> Option<f64>| {
        if let Some(samples) = results.iter().map(value).collect::<Option<Vec<f64>>>() {
            figures.push(Figure::from_samples(format!("lookup.single.{name}"), unit, command, &samples));
        }
    };
    add("rate", "1/s", &|result| Some(result.per_second));
    add("p50", "us", &|result| Some(result.latency.p50_us));
    add("p99", "us", &|result| Some(result.latency.p99_us));
    add("node_cpu", "ns", &|result| result.node_cpu.as_ref().map(|cpu| cpu.ns_per_operation));
    add("client_cpu", "ns", &|result| Some(result.client_cpu_ns));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;

    #[test]
    fn threads_share_the_lookups() {
        let options = LookupOptions { rows: 300, lookups: 1001, threads: 3, loops: 1 };
        let results = run(&FakeTarget::default(), None, &options, &mut Progress::quiet()).unwrap();
        assert!(results[0].per_second > 0.0 && results[0].latency.max_us > 0.0);
        assert!(options.command().contains("--threads 3"));
    }

    #[test]
    fn lookups_find_all_rows() {
        let options = LookupOptions { rows: 300, lookups: 1000, threads: 1, loops: 2 };
        let results = run(&FakeTarget::default(), None, &options, &mut Progress::quiet()).unwrap();
        assert_eq!(results.len(), 2);
        assert!(results[0].latency.p99_us >= results[0].latency.p50_us && results[0].node_cpu.is_none());
        let line = line(&results[0]);
        assert!(line.contains("CPU client") && !line.contains("node"), "{line}");
        let names: Vec<String> = figures("c", &results).into_iter().map(|figure| figure.name).collect();
        assert_eq!(
            names,
            ["lookup.single.rate", "lookup.single.p50", "lookup.single.p99", "lookup.single.client_cpu"]
        );
    }
}
