//! flexAsynch on a node that logs and checkpoints, and on one that keeps everything in memory.
//!
//! Both run throughout; each repetition measures the one without a disk, then the one with, then Redis. Before each
//! measurement all of them must be idle, so checkpoints that a measurement has caused are at the other side's cost
//! nowhere, and at its own only as far as they are written meanwhile. `durable.*.vs_memory` is the rate with a disk
//! divided by that without.
//!
//! Redis has `appendonly yes`, `appendfsync everysec`, and does not rewrite its log. Its SET is compared with each kind
//! of change, as in the race of `vinga bench all`.

use super::{DurableOptions, LARGE_LOG, node};
use crate::failure::Result;
use crate::figure::Figure;
use crate::flexasynch::{FlexAsynch, Phase, PhaseResult, Repetition};
use crate::idle::wait_until_idle;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::redis::{Keeping, Redis, RedisOptions, RedisTest};
use crate::vinga_target::VingaTarget;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Phases that change rows.
const CHANGES: [Phase; 3] = [Phase::Insert, Phase::Update, Phase::Delete];

/// All sides in the same repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Without a disk.
    pub memory: Repetition,
    /// With redo log and checkpoints.
    pub durable: Repetition,
    /// SET on Redis with its log, if it is installed.
    pub redis: Option<RedisTest>,
}

/// One of the two nodes' part of a round.
type Side = fn(&Round) -> &Repetition;

/// Runs all repetitions, and before them one that does not count.
///
/// # Errors
/// The database's, or that a node does not become idle.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<Vec<Round>> {
    let flexasynch = options.flexasynch();
    let memory = node(program, "memory", options.rows, &["Diskless=yes"]).start()?;
    let [files, bytes] = LARGE_LOG;
    let durable = node(program, "disk", options.rows, &["Diskless=no", files, bytes]).start()?;
    let folder = out.join("redis-log");
    let redis = start_redis(&folder, options, progress);
    let targets =
        [VingaTarget::connect(memory.address())?.logged(), VingaTarget::connect(durable.address())?.logged()];
    let mut in_memory = FlexAsynch::open(&targets[0], Some(memory.pid()), &flexasynch)?;
    let mut on_disk = FlexAsynch::open(&targets[1], Some(durable.pid()), &flexasynch)?;
    let mut pids = vec![memory.pid(), durable.pid()];
    pids.extend(redis.as_ref().map(Redis::pid));
    let mut rounds = Vec::new();
    for number in 0..=options.loops {
        let name = |side: &str| match number {
            0 => format!("warm-up {side}"),
            _ => format!("{number}/{} {side}", options.loops),
        };
        wait_until_idle(&pids)?;
        let memory = in_memory.repetition(&name("memory"), progress)?;
        wait_until_idle(&pids)?;
        let durable = on_disk.repetition(&name("disk"), progress)?;
        wait_until_idle(&pids)?;
        let redis = redis.as_ref().map(Redis::set).transpose()?;
        if let Some(RedisTest { test, server_cpu_ns }) = &redis {
            progress.line(&format!("  {} SET {:.0}/s ({server_cpu_ns:.0} ns)", name("redis"), test.rate));
        }
        if number > 0 {
            rounds.push(Round { memory, durable, redis });
        }
    }
    in_memory.close()?;
    on_disk.close()?;
    drop((targets, redis));
    memory.stop()?;
    durable.stop()?;
    let _ = std::fs::remove_dir_all(folder);
    Ok(rounds)
}

fn start_redis(folder: &Path, options: &DurableOptions, progress: &mut Progress) -> Option<Redis> {
    let _ = std::fs::remove_dir_all(folder);
    let options = redis_options(options);
    match Redis::start_keeping(folder, &options, Keeping::Log) {
        Ok(redis) => Some(redis),
        Err(failure) => {
            progress.line(&format!("  without Redis: {failure}"));
            None
        }
    }
}

/// As many operations under way as flexAsynch has.
pub(super) fn redis_options(options: &DurableOptions) -> RedisOptions {
    RedisOptions {
        keys: options.rows,
        requests: options.rows,
        pipeline: 128,
        clients: 4,
        data_bytes: u32::from(super::VALUE_BYTES),
        lookups: 1,
        loops: options.loops,
    }
}

/// The figures of a run; none if there was none.
pub fn figures(command: &str, rounds: &[Round]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if rounds.is_empty() {
        return figures;
    }
    for phase in CHANGES {
        let samples = |side: Side, value: fn(&PhaseResult) -> f64| -> Vec<f64> {
            rounds.iter().map(|round| value(side(round).phase(phase))).collect()
        };
        let memory: Side = |round| &round.memory;
        let durable: Side = |round| &round.durable;
        let name = |what: &str| format!("durable.{}.{what}", phase.name());
        let rates = samples(durable, |result| result.rate);
        let in_memory = samples(memory, |result| result.rate);
        figures.push(Figure::from_pairs(name("vs_memory"), command, &rates, &in_memory));
        let redis: Option<Vec<f64>> =
            rounds.iter().map(|round| round.redis.as_ref().map(|redis| redis.test.rate)).collect();
        if let Some(redis) = redis {
            figures.push(Figure::from_pairs(name("vs_redis_aof"), command, &rates, &redis));
        }
        let node_cpu =
            |result: &PhaseResult| result.node_cpu.as_ref().map_or(0.0, |cpu| cpu.ns_per_operation);
        let p50 = |result: &PhaseResult| result.latency.p50_us;
        for (side, of) in [("", durable), (".memory", memory)] {
            let mut add = |what: &str, unit: &str, value: fn(&PhaseResult) -> f64| {
                let name = name(&format!("{what}{side}"));
                figures.push(Figure::from_samples(name, unit, command, &samples(of, value)));
            };
            add("rate", "1/s", |result| result.rate);
            add("p50", "us", p50);
            add("p99", "us", |result| result.latency.p99_us);
            add("node_cpu", "ns", node_cpu);
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;
    use crate::flexasynch::{self, FlexAsynchOptions};
    use crate::redis::Test;

    #[test]
    fn figures_have_their_names() {
        let target = FakeTarget::default();
        let options = FlexAsynchOptions { rows: 200, loops: 2, ..FlexAsynchOptions::default() };
        let pid = Some(std::process::id());
        let repetitions = flexasynch::run(&target, pid, &options, &mut Progress::quiet()).unwrap();
        let redis = RedisTest { test: Test { rate: 5.0, ..Test::default() }, server_cpu_ns: 1.0 };
        let round = |redis: Option<RedisTest>| Round {
            memory: repetitions[0].clone(),
            durable: repetitions[1].clone(),
            redis,
        };
        let with = figures("c", &[round(Some(redis.clone())), round(Some(redis))]);
        assert_eq!(with.len(), 3 * (2 + 2 * 4));
        let find = |name: &str| with.iter().find(|figure| figure.name == name).expect(name).median;
        let ratio = find("durable.update.rate") / find("durable.update.rate.memory");
        assert!((find("durable.update.vs_memory") - ratio).abs() < 1e-9);
        assert!((find("durable.delete.vs_redis_aof") - find("durable.delete.rate") / 5.0).abs() < 1e-9);
        assert_eq!(figures("c", &[round(None)]).len(), 3 * (1 + 2 * 4));
        assert!(figures("c", &[]).is_empty());
    }
}
