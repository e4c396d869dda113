//! How soon a node answers again after it has ended.
//!
//! The table has rows of 108 bytes and an ordered index on its key. A restart lasts from before the node's process is
//! made until a client, which has to connect first, has been returned a row; afterwards it is verified that all rows
//! are there. Four kinds, each repeated on the same files:
//!
//! | figure | the node before | what is restored |
//! |---|---|---|
//! | `restart.system.seconds` | was killed while nothing was done; checkpoints as usual | checkpoints, and what was logged since |
//! | `restart.system.stopped.seconds` | was stopped in order | the same |
//! | `restart.replay.seconds` | was killed; it had made no checkpoint | everything from the log |
//! | `restart.system.redis.seconds` | Redis, killed after it had written a snapshot (RDB) | the snapshot |
//!
//! `restart.replay.records_per_s` is the number of records divided by the whole restart; the index is built meanwhile,
//! too. `restart.system.vs_redis` is the time of the node that was killed divided by that of Redis.

use super::rates::redis_options;
use super::{DurableOptions, LARGE_LOG, SHAPE, finish_checkpoints, node};
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::node::{Node, NodeProgram};
use crate::progress::Progress;
use crate::ranges;
use crate::redis::Redis;
use crate::target::{ScanKind, Target};
use crate::vinga_target::VingaTarget;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

const TABLE: &str = "bench.restart";
/// No checkpoint before so many words of four bytes are logged: 8 GiB, but see [`LARGE_LOG`].
const NO_CHECKPOINTS: &str = "TimeBetweenLocalCheckpoints=31";

/// Seconds of all restarts, by their kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restarts {
    /// Rows.
    pub rows: u64,
    /// After a kill.
    pub killed: Vec<f64>,
    /// After an orderly stop.
    pub stopped: Vec<f64>,
    /// After a kill, without a checkpoint.
    pub replayed: Vec<f64>,
    /// Redis with a snapshot; empty if it is not installed.
    pub redis: Vec<f64>,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Stop,
}

/// Restarts nodes as often as there are repetitions, after each kind of end.
///
/// # Errors
/// The database's, or that rows are missing.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<Restarts> {
    let [files, bytes] = LARGE_LOG;
    let mut restarts = Restarts { rows: options.rows, ..Restarts::default() };
    let usual = node(program, "restart", options.rows, &["Diskless=no", files, bytes]);
    let mut running = filled(&usual, options.rows, progress)?;
    for _ in 0..options.loops {
        running = again(&usual, running, End::Kill, options.rows, &mut restarts.killed, progress)?;
        running = again(&usual, running, End::Stop, options.rows, &mut restarts.stopped, progress)?;
    }
    running.stop()?;
    let log_only = node(program, "replay", options.rows, &["Diskless=no", files, bytes, NO_CHECKPOINTS]);
    let mut running = filled(&log_only, options.rows, progress)?;
    for _ in 0..options.loops {
        running = again(&log_only, running, End::Kill, options.rows, &mut restarts.replayed, progress)?;
    }
    running.stop()?;
    let folder = out.join("redis-snapshot");
    let _ = std::fs::remove_dir_all(&folder);
    match Redis::restarts(&folder, &redis_options(options)) {
        Ok(seconds) => restarts.redis = seconds,
        Err(failure) => progress.line(&format!("  without Redis: {failure}")),
    }
    progress.line(&format!("  redis: {:.3?} s", restarts.redis));
    let _ = std::fs::remove_dir_all(folder);
    Ok(restarts)
}

/// A node with all rows, which are on disk.
fn filled(program: &NodeProgram, rows: u64, progress: &mut Progress) -> Result<Node> {
    let node = program.start()?;
    let target = VingaTarget::connect(node.address())?.logged();
    let table = target.create_indexed(TABLE, &SHAPE, ranges::index())?;
    let mut values = ValueMaker::new(super::VALUE_BYTES);
    load(&target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
    finish_checkpoints(&target, &table)?;
    progress.line(&format!("  {rows} rows are on disk"));
    Ok(node)
}

/// Ends a node and starts it again; notes how long the start took.
fn again(
    program: &NodeProgram,
    running: Node,
    end: End,
    rows: u64,
    seconds: &mut Vec<f64>,
    progress: &mut Progress,
) -> Result<Node> {
    match end {
        End::Kill => running.kill()?,
        End::Stop => running.stop_in_order()?,
    }
    let begun = Instant::now();
    let node = program.start_again()?;
    let target = VingaTarget::connect(node.address())?.logged();
    let table = target.existing_table(TABLE, &SHAPE)?;
    let mut value = Vec::new();
    let is_there = target.get(&table, rows / 2, &mut value)?;
    let took = begun.elapsed().as_secs_f64();
    let found = target.scan(&table, ScanKind::Everything)?;
    if !is_there || found != rows {
        return Err(Failure::new(format!("of {rows} rows {found} are there after a restart")));
    }
    progress.line(&format!("  {end:?}: {took:.3} s{}", restored(&node)));
    seconds.push(took);
    Ok(node)
}

/// What the node's log says of its last start.
fn restored(node: &Node) -> String {
    let log = std::fs::read_to_string(node.folder().join("vinga.log")).unwrap_or_default();
    let line = log.lines().rev().find_map(|line| line.find("restored ").map(|at| &line[at..]));
    line.map_or_else(String::new, |line| format!("   {line}"))
}

/// The figures of a run.
pub fn figures(command: &str, restarts: &Restarts) -> Vec<Figure> {
    let Restarts { rows, killed, stopped, replayed, redis } = restarts;
    let seconds = |name: &str, samples: &[f64]| Figure::from_samples(name, "s", command, samples);
    let rates: Vec<f64> = replayed.iter().map(|seconds| *rows as f64 / seconds).collect();
    let mut figures = vec![
        seconds("restart.system.seconds", killed),
        seconds("restart.system.stopped.seconds", stopped),
        Figure::from_samples("restart.replay.records_per_s", "1/s", command, &rates),
        seconds("restart.replay.seconds", replayed),
    ];
    if redis.len() == killed.len() {
        figures.push(Figure::from_pairs("restart.system.vs_redis", command, killed, redis));
        figures.push(seconds("restart.system.redis.seconds", redis));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Better;

    #[test]
    fn figures_have_their_names() {
        let mut restarts = Restarts {
            rows: 1000,
            killed: vec![0.5, 0.4],
            stopped: vec![0.3, 0.3],
            replayed: vec![2.0, 4.0],
            redis: vec![0.9, 0.9],
        };
        let all = figures("c", &restarts);
        let find = |name: &str| all.iter().find(|figure| figure.name == name).expect(name);
        assert_eq!(find("restart.system.seconds").median, 0.45);
        assert_eq!((find("restart.replay.records_per_s").min, all[2].max), (250.0, 500.0));
        let ratio = find("restart.system.vs_redis");
        assert_eq!((ratio.median, ratio.better()), (0.5, Better::Less));
        restarts.redis.clear();
        assert_eq!(figures("c", &restarts).len(), 4);
    }
}
