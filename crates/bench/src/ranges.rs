//! Ordered indexes: the cost of a range scan for the data node, and the speed of building an index.
//!
//! The table is that of [`crate::scan`]. First it gets an ordered index on its key, by a schema change as any client
//! makes it; the figure `index_build.rows_per_s` is the table's rows divided by the time from the request to its
//! answer: all rounds of the change are included. Then ranges of 100 rows by key are scanned, scattered over the table,
//! sixteen at a time, so that the node works without a break; all columns of all rows are returned and counted.
//! `range100.node_us` is the CPU time of the data node, all of its threads together, for such a scan over all
//! partitions: finding the range, reading the rows, answering and sending. At the end the index is dropped for the next
//! repetition to build it again.

use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::keys::mix;
use crate::load::load;
use crate::meter::{Meter, NodeCpu};
use crate::progress::Progress;
use crate::scan::row;
use crate::target::{TableShape, Target};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use vinga::Table;
use vinga::blocking::Cluster;
use vinga_base::ColumnId;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};

/// The table's name.
const TABLE: &str = "bench.ranges";
const INDEX: &str = "by_id";
/// Rows of a range.
const RANGE: u64 = 100;
/// Scans under way.
const TOGETHER: u64 = 16;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct RangesOptions {
    /// Rows in the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(RANGE..))]
    pub rows: u64,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Scans in a repetition
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(TOGETHER..))]
    pub scans: u64,
}

impl RangesOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let RangesOptions { rows, loops, scans } = self;
        format!("vinga bench ranges --rows {rows} --loops {loops} --scans {scans}")
    }
}

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangesResult {
    /// Rows entered into the index a second.
    pub build_rate: f64,
    /// Microseconds that passed for a scan.
    pub elapsed_us: f64,
    /// CPU time of the data node for a scan, if its process is known.
    pub node_cpu: Option<NodeCpu>,
}

/// Runs all repetitions at the data node at this address, which `target` is connected to.
///
/// # Errors
/// The database's, or that a scan has not returned the expected rows.
pub fn run<T: Target>(
    target: &T,
    address: &str,
    node: Option<u32>,
    options: &RangesOptions,
    progress: &mut Progress,
) -> Result<Vec<RangesResult>> {
    let table = target.create_table(TABLE, &TableShape::Scan)?;
    load(target, &table, 0..options.rows, row)?;
    let cluster = Cluster::connect(address).context(|| format!("cannot connect to {address}"))?;
    let mut results = Vec::new();
    // The first repetition is a warm-up.
    for number in 0..=options.loops {
        let result = repetition(&cluster, node, options)?;
        if number > 0 {
            progress.line(&format!("  {number}/{} {}", options.loops, line(&result)));
            results.push(result);
        }
    }
    target.drop_table(table)?;
    Ok(results)
}

/// The index on the key.
pub(crate) fn index() -> IndexDefinition {
    IndexDefinition {
        id: 1,
        name: INDEX.into(),
        columns: vec![OrderColumn { column: ColumnId(0), direction: Direction::Ascending }],
        kind: IndexKind::Ordered,
    }
}

fn repetition(cluster: &Cluster, node: Option<u32>, options: &RangesOptions) -> Result<RangesResult> {
    let bare = cluster.table(TABLE).context(|| format!("cannot find the table {TABLE}"))?;
    let begun = Instant::now();
    let mut indexed = bare.definition().clone();
    indexed.indexes.push(index());
    let table = cluster.alter_table(&bare, indexed).context(|| "cannot build the index".into())?;
    let build_rate = options.rows as f64 / begun.elapsed().as_secs_f64();
    let meter = Meter::start(node)?;
    let rounds = options.scans / TOGETHER;
    for round in 0..rounds {
        scan_some(cluster, &table, options, round)?;
    }
    let (spent, scans) = (meter.stop()?, rounds * TOGETHER);
    let without = bare.definition().clone();
    cluster.alter_table(&table, without).context(|| "cannot drop the index".into())?;
    Ok(RangesResult {
        build_rate,
        elapsed_us: spent.elapsed.as_secs_f64() * 1e6 / scans as f64,
        node_cpu: spent.node.map(|used| NodeCpu::new(&used, scans, spent.elapsed)),
    })
}

/// Begins some scans, then takes their results.
fn scan_some(cluster: &Cluster, table: &Table, options: &RangesOptions, round: u64) -> Result<()> {
    let failed = || format!("scan of {TABLE}");
    let begin = |number: u64| {
        let first = mix(round * TOGETHER + number) % (options.rows - RANGE + 1);
        let range = |scan: vinga::ScanRequest| scan.index(INDEX).between(first, first + RANGE - 1);
        cluster.scan(table, range).context(failed)
    };
    let scans: Vec<_> = (0..TOGETHER).map(begin).collect::<Result<_>>()?;
    for mut scan in scans {
        let mut rows = 0;
        while let Some(batch) = scan.next_batch().context(failed)? {
            rows += batch.bytes().filter(|row| !row.is_empty()).count() as u64;
        }
        if rows != RANGE {
            return Err(Failure::new(format!("a range of {RANGE} rows returned {rows}")));
        }
    }
    Ok(())
}

impl RangesResult {
    /// CPU time of the data node; the elapsed time if its process is not known.
    fn node_us(&self) -> f64 {
        self.node_cpu.as_ref().map_or(self.elapsed_us, |cpu| cpu.ns_per_operation / 1000.0)
    }
}

fn line(result: &RangesResult) -> String {
    format!(
        "range of {RANGE} rows: {:.2} us of the node ({:.2} passed); index built at {:.0} rows/s",
        result.node_us(),
        result.elapsed_us,
        result.build_rate
    )
}

/// The figures of a run.
pub fn figures(command: &str, results: &[RangesResult]) -> Vec<Figure> {
    let figure = |name: &str, unit, value: &dyn Fn(&RangesResult) -> f64| {
        let samples: Vec<f64> = results.iter().map(value).collect();
        Figure::from_samples(name, unit, command, &samples)
    };
    vec![
        figure("range100.node_us", "us", &RangesResult::node_us),
        figure("range100.elapsed_us", "us", &|result| result.elapsed_us),
        figure("index_build.rows_per_s", "1/s", &|result| result.build_rate),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::required;

    #[test]
    fn the_figures_of_the_summary_are_there() {
        let result = RangesResult { build_rate: 2e6, elapsed_us: 12.0, node_cpu: None };
        let figures = figures("c", &[result]);
        let here = |name: &str| figures.iter().any(|figure| figure.name == name);
        let names: Vec<String> = required().into_iter().map(|(name, _)| name).collect();
        for name in
            names.iter().filter(|name| name.starts_with("range100") || name.starts_with("index_build"))
        {
            assert!(here(name), "{name}");
        }
        assert_eq!(figures[0].median, 12.0, "the time that passed stands for the node's");
    }
}
