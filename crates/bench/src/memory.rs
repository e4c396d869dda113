//! Bytes of memory for a row of 8 + 100 bytes, its entry in the hash index included.
//!
//! A fresh node is filled step by step; at each size the growth since it was empty is divided by the rows. Growth is
//! measured in two ways that must agree: the node's figure (pages of `DataMemory` in use, which includes pages that are
//! half full) and the system's (resident memory of the process). A hash index that doubles its space is at its best and
//! its worst between two powers of two, so several sizes are measured and the worst counts.

use crate::cpu_time::resident_bytes;
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::target::{MemoryUse, TableShape, Target};
use serde::{Deserialize, Serialize};

/// Bytes of the value.
const VALUE_BYTES: u16 = 100;
/// How much more than the node's figure the process may have grown: this share of it, and this many bytes for buffers
/// and for the huge page that is only partly used.
const AGREEMENT: (f64, f64) = (0.03, 16_777_216.0);

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct MemoryOptions {
    /// Numbers of rows at which memory is looked at, ascending
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values_t = [6_000_000, 8_000_000, 10_000_000, 12_000_000], value_parser = clap::value_parser!(u64).range(1..))]
    pub sizes: Vec<u64>,
    /// Repetitions, each with a fresh node
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl MemoryOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        format!("vinga bench memory --sizes {} --loops {}", sizes.join(","), self.loops)
    }

    /// The needed `DataMemory`: 200 bytes a row, and some.
    pub fn data_memory(&self) -> u64 {
        self.sizes.iter().max().copied().unwrap_or(0) * 200 + (256 << 20)
    }
}

/// The memory of a node of a certain size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryResult {
    /// Rows.
    pub rows: u64,
    /// Bytes a row, according to the node.
    pub bytes_per_row: f64,
    /// Bytes a row, according to the system.
    pub resident_bytes_per_row: f64,
    /// Bytes a row by purpose, according to the node.
    pub purposes: Vec<(String, f64)>,
}

/// Runs all repetitions, each with a node of its own.
///
/// # Errors
/// A node does not start, the database's, or that node and system disagree.
pub fn run<T: Target>(
    connect: &dyn Fn(&str) -> Result<T>,
    program: &NodeProgram,
    options: &MemoryOptions,
    progress: &mut Progress,
) -> Result<Vec<Vec<MemoryResult>>> {
    (1..=options.loops)
        .map(|number| {
            progress.line(&format!("  {number}/{}", options.loops));
            let node = program.start()?;
            let target = connect(node.address())?;
            let results = repetition(&target, node.pid(), options, progress)?;
            drop(target);
            node.stop()?;
            Ok(results)
        })
        .collect()
}

/// Fills a fresh node. `node` is its process id.
fn repetition<T: Target>(
    target: &T,
    node: u32,
    options: &MemoryOptions,
    progress: &mut Progress,
) -> Result<Vec<MemoryResult>> {
    let table = target.create_table("bench.memory", &TableShape::Value { bytes: VALUE_BYTES })?;
    let empty = (purposes(&target.memory()?), resident_bytes(node)?);
    let mut values = ValueMaker::new(VALUE_BYTES);
    let mut loaded = 0;
    let mut results = Vec::new();
    for &rows in &options.sizes {
        if rows <= loaded {
            return Err(Failure::new("the sizes are not ascending"));
        }
        load(target, &table, loaded..rows, |id, out| {
            progress.step(|| format!("  memory: {id} rows"));
            out.extend_from_slice(values.make(id, 0));
        })?;
        loaded = rows;
        let result = grown(rows, &empty, &(purposes(&target.memory()?), resident_bytes(node)?))?;
        progress.line(&format!(
            "  {rows:>10} rows: {:.1} bytes a row (resident {:.1}; {})",
            result.bytes_per_row,
            result.resident_bytes_per_row,
            result
                .purposes
                .iter()
                .map(|(what, bytes)| format!("{what} {bytes:.1}"))
                .collect::<Vec<_>>()
                .join(", ")
        ));
        results.push(result);
    }
    target.drop_table(table)?;
    Ok(results)
}

/// Used bytes, added up by purpose, in the order of their first appearance.
fn purposes(uses: &[MemoryUse]) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    // Figures about the process as a whole are read from `/proc`, like the node does.
    for MemoryUse { purpose, used_bytes, .. } in uses.iter().filter(|u| !u.purpose.starts_with("process")) {
        match sums.iter_mut().find(|(known, _)| known == purpose) {
            Some((_, sum)) => *sum += used_bytes,
            None => sums.push((purpose.clone(), *used_bytes)),
        }
    }
    sums
}

type Snapshot = (Vec<(String, u64)>, u64);

fn grown(rows: u64, empty: &Snapshot, full: &Snapshot) -> Result<MemoryResult> {
    let a_row = |full: u64, empty: u64| (full as f64 - empty as f64) / rows as f64;
    let purposes: Vec<(String, f64)> = full
        .0
        .iter()
        .map(|(purpose, bytes)| {
            let before = empty.0.iter().find(|(known, _)| known == purpose).map_or(0, |(_, bytes)| *bytes);
            (purpose.clone(), a_row(*bytes, before))
        })
        .filter(|(_, bytes)| *bytes > 0.0)
        .collect();
    let (_, pages) = purposes
        .iter()
        .find(|(purpose, _)| purpose == "DataMemory")
        .ok_or_else(|| Failure::new("the node does not say how much of DataMemory is in use"))?;
    let result = MemoryResult {
        rows,
        bytes_per_row: *pages,
        resident_bytes_per_row: a_row(full.1, empty.1),
        purposes: purposes.clone(),
    };
    let difference = result.resident_bytes_per_row - result.bytes_per_row;
    if difference > AGREEMENT.0 * result.bytes_per_row + AGREEMENT.1 / rows as f64 {
        return Err(Failure::new(format!(
            "at {rows} rows the node says {:.1} bytes a row, but its process has grown by {:.1}",
            result.bytes_per_row, result.resident_bytes_per_row
        )));
    }
    Ok(result)
}

/// The figures of a run: bytes a row at the worst size of each repetition, and at each size.
pub fn figures(command: &str, repetitions: &[Vec<MemoryResult>]) -> Vec<Figure> {
    let worst = |value: fn(&MemoryResult) -> f64| -> Vec<f64> {
        repetitions.iter().map(|results| results.iter().map(value).fold(0.0, f64::max)).collect()
    };
    let figure = |name: String, samples: &[f64]| Figure::from_samples(name, "bytes", command, samples);
    let mut figures = vec![
        figure("memory.bytes_per_row".into(), &worst(|result| result.bytes_per_row)),
        figure("memory.resident_bytes_per_row".into(), &worst(|result| result.resident_bytes_per_row)),
    ];
    for (at, size) in repetitions.first().into_iter().flatten().enumerate() {
        let samples: Vec<f64> = repetitions.iter().map(|results| results[at].bytes_per_row).collect();
        figures.push(figure(format!("memory.bytes_per_row.rows{}", size.rows), &samples));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(block: &str, purpose: &str, used_bytes: u64) -> MemoryUse {
        MemoryUse { block: block.into(), purpose: purpose.into(), used_bytes }
    }

    #[test]
    fn growth_by_row() {
        let empty = purposes(&[memory("node", "DataMemory", 1000), memory("data manager 0", "rows", 100)]);
        let full = purposes(&[
            memory("node", "DataMemory", 14_000),
            memory("data manager 0", "rows", 5100),
            memory("data manager 1", "rows", 6000),
        ]);
        let result = grown(100, &(empty.clone(), 50_000), &(full.clone(), 63_200)).unwrap();
        assert_eq!((result.bytes_per_row, result.resident_bytes_per_row), (130.0, 132.0));
        assert_eq!(result.purposes, [("DataMemory".to_owned(), 130.0), ("rows".to_owned(), 110.0)]);
        assert!(
            grown(100, &(empty, 50_000), &(full, 20_000_000)).is_err(),
            "the process has grown by much more"
        );
    }

    #[test]
    fn the_worst_size_counts() {
        let result = |rows, bytes| MemoryResult {
            rows,
            bytes_per_row: bytes,
            resident_bytes_per_row: bytes + 1.0,
            purposes: Vec::new(),
        };
        let repetitions =
            [vec![result(6, 130.0), result(8, 137.0)], vec![result(6, 131.0), result(8, 136.0)]];
        let figures = figures("c", &repetitions);
        assert_eq!((figures[0].median, figures[0].max), (136.5, 137.0));
        assert_eq!(figures[2].name, "memory.bytes_per_row.rows6");
        assert_eq!(figures[2].median, 130.5);
    }
}
