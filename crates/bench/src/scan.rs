//! Full scans: the cost of a row that a filter rejects, and of one that is returned.
//!
//! The table has rows of 108 bytes: `id` (the key, 8 bytes), `a` bigint, `b` int, `c` smallint, `d` smallint, `e` int,
//! `value` binary(80). Column a is random below 1000 and b equals it, so `a >= 500 AND b < 500` has two halves that are
//! true for half of the rows each; c is random below 8; d is 7 and e below 9 where c is 3. Three scans:
//!
//! | scan | filter | rows that are returned |
//! |---|---|---|
//! | `filter1` | `b < 0` | none |
//! | `filter5` | `(a >= 500 AND b < 500) OR (c = 3 AND (d <> 7 OR e >= 9))` | none |
//! | `full` | none | all, with all columns |
//!
//! The comparisons of `filter5` can't be learnt by a branch predictor, though the whole is never true. A figure is the
//! data node's CPU time for a row, all of its threads together; the elapsed time has a figure of its own (`.elapsed`).

use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::mix;
use crate::load::load;
use crate::meter::{Meter, NodeCpu};
use crate::progress::Progress;
use crate::target::{ScanKind, TableShape, Target};
use serde::{Deserialize, Serialize};

/// Bytes of the column `value`.
pub const VALUE_BYTES: u16 = 80;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ScanOptions {
    /// Rows in the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5)]
    pub loops: u32,
    /// Scans of each kind in a repetition
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub scans: u32,
}

impl ScanOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let ScanOptions { rows, loops, scans } = self;
        format!("vinga bench scan --rows {rows} --loops {loops} --scans {scans}")
    }
}

/// The result of the scans of one kind in a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanResult {
    /// `filter1`, `filter5` or `full`.
    pub scan: String,
    /// Nanoseconds that passed for a row.
    pub elapsed_ns_per_row: f64,
    /// CPU time of the data node for a row (not an operation), if its process is known.
    pub node_cpu: Option<NodeCpu>,
    /// CPU time of this process for a row.
    pub client_cpu_ns_per_row: f64,
}

/// All kinds, with their names.
const KINDS: [(&str, ScanKind); 3] = [
    ("filter1", ScanKind::OneComparison),
    ("filter5", ScanKind::FiveComparisons),
    ("full", ScanKind::Everything),
];

/// Runs all repetitions: each a list of one result of each kind.
///
/// # Errors
/// The database's, or that a scan has not returned the expected rows.
pub fn run<T: Target>(
    target: &T,
    node: Option<u32>,
    options: &ScanOptions,
    progress: &mut Progress,
) -> Result<Vec<Vec<ScanResult>>> {
    let table = target.create_table("bench.scan", &TableShape::Scan)?;
    load(target, &table, 0..options.rows, row)?;
    // The first round is a warm-up.
    let rounds: Result<Vec<Vec<ScanResult>>> = (0..=options.loops)
        .map(|number| {
            let measure = |(name, kind)| measure(target, &table, node, options, name, kind);
            let round: Vec<ScanResult> = KINDS.into_iter().map(measure).collect::<Result<_>>()?;
            if number > 0 {
                progress.line(&format!("  {number}/{} {}", options.loops, line(&round)));
            }
            Ok(round)
        })
        .collect();
    target.drop_table(table)?;
    let mut rounds = rounds?;
    rounds.remove(0);
    Ok(rounds)
}

fn measure<T: Target>(
    target: &T,
    table: &T::Table,
    node: Option<u32>,
    options: &ScanOptions,
    name: &str,
    kind: ScanKind,
) -> Result<ScanResult> {
    let expected = match kind {
        ScanKind::OneComparison | ScanKind::FiveComparisons => 0,
        ScanKind::Everything => options.rows,
    };
    let meter = Meter::start(node)?;
    for _ in 0..options.scans {
        let found = target.scan(table, kind)?;
        if found != expected {
            return Err(Failure::new(format!("scan {name} returned {found} rows instead of {expected}")));
        }
    }
    let spent = meter.stop()?;
    let rows = options.rows * u64::from(options.scans);
    Ok(ScanResult {
        scan: name.to_owned(),
        elapsed_ns_per_row: spent.elapsed.as_nanos() as f64 / rows as f64,
        node_cpu: spent.node.map(|used| NodeCpu::new(&used, rows, spent.elapsed)),
        client_cpu_ns_per_row: spent.client_ns as f64 / rows as f64,
    })
}

/// The columns behind the key, as they lie in a row of the table: a, b, c, d, e little-endian, then `value`.
pub fn row(id: u64, out: &mut Vec<u8>) {
    let random = mix(id.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let a = (random >> 8) % 1000;
    let c = (random >> 32) % 8;
    let (d, e) = if c == 3 { (7, a % 9) } else { ((random >> 40) % 10, a) };
    out.extend_from_slice(&a.to_le_bytes());
    out.extend_from_slice(&(a as i32).to_le_bytes());
    out.extend_from_slice(&(c as i16).to_le_bytes());
    out.extend_from_slice(&(d as i16).to_le_bytes());
    out.extend_from_slice(&(e as i32).to_le_bytes());
    out.resize(out.len() + usize::from(VALUE_BYTES), 0x5a);
}

fn line(round: &[ScanResult]) -> String {
    let each = |result: &ScanResult| {
        let node =
            result.node_cpu.as_ref().map_or("-".to_owned(), |cpu| format!("{:.1}", cpu.ns_per_operation));
        format!("{} {node} ns ({:.1} passed)", result.scan, result.elapsed_ns_per_row)
    };
    format!("scan, node CPU a row: {}", round.iter().map(each).collect::<Vec<_>>().join(", "))
}

/// The figures of a run. If the data node's process is not known, they are elapsed times.
pub fn figures(command: &str, rounds: &[Vec<ScanResult>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (at, (name, _)) in KINDS.iter().enumerate() {
        let mut add = |suffix: &str, value: &dyn Fn(&ScanResult) -> f64| {
            let samples: Vec<f64> = rounds.iter().map(|round| value(&round[at])).collect();
            figures.push(Figure::from_samples(format!("scan.{name}{suffix}"), "ns", command, &samples));
        };
        add("", &|r| r.node_cpu.as_ref().map_or(r.elapsed_ns_per_row, |cpu| cpu.ns_per_operation));
        add(".elapsed", &|r| r.elapsed_ns_per_row);
        add(".client_cpu", &|r| r.client_cpu_ns_per_row);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;

    #[test]
    fn each_scan_returns_what_it_must() {
        let options = ScanOptions { rows: 100, loops: 3, scans: 2 };
        let rounds = run(&FakeTarget::default(), None, &options, &mut Progress::quiet()).unwrap();
        assert_eq!((rounds.len(), rounds[0].len()), (3, 3));
        let figures = figures("c", &rounds);
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert!(["scan.filter1", "scan.filter5", "scan.full"].iter().all(|name| names.contains(name)));
        assert!(figures.iter().all(|figure| figure.repetitions == 3 && figure.unit == "ns"));
    }

    /// The columns of a row, taken from its bytes.
    fn columns(row: &[u8]) -> (i64, i32, i16, i16, i32) {
        let number = |range: std::ops::Range<usize>| {
            row[range].iter().rev().fold(0i64, |number, &byte| number << 8 | i64::from(byte))
        };
        (
            number(0..8),
            number(8..12) as i32,
            number(12..14) as i16,
            number(14..16) as i16,
            number(16..20) as i32,
        )
    }

    #[test]
    fn filters_are_never_true_but_their_parts_are() {
        let mut row_bytes = Vec::new();
        let (mut left, mut right) = (0, 0);
        for id in 0..10_000 {
            row_bytes.clear();
            row(id, &mut row_bytes);
            assert_eq!(row_bytes.len(), 100);
            let (a, b, c, d, e) = columns(&row_bytes);
            assert!(b >= 0);
            assert!(!((a >= 500 && b < 500) || (c == 3 && (d != 7 || e >= 9))));
            left += i32::from(a >= 500);
            right += i32::from(c == 3);
        }
        assert!((4500..5500).contains(&left) && (1100..1400).contains(&right), "{left} {right}");
    }
}
