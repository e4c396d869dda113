//! The rounds: one node, two nodes, Redis, in turn; and the figures made of them.

use super::round_trip::{RoundTrip, RoundTrips};
use super::{BATCH, ReplicasOptions};
use crate::cluster::ClusterProgram;
use crate::failure::Result;
use crate::figure::Figure;
use crate::flexasynch::{FlexAsynch, Phase, PhaseResult, Repetition};
use crate::idle::wait_until_idle;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::redis::{RedisTest, Replicated};
use crate::vinga_target::VingaTarget;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// All sides in the same repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// One node.
    pub one: Repetition,
    /// Two nodes, each of which gets as many operations in a message as the one.
    pub two: Repetition,
    /// Two nodes, with the settings of the client for one.
    pub same_batch: Repetition,
    /// SET on Redis with a replica, if it is installed. CPU time is that of both servers.
    pub redis: Option<RedisTest>,
    /// One update at a time.
    pub round_trips: RoundTrips,
}

/// A part of a round that is made with flexAsynch.
type Side = fn(&Round) -> &Repetition;

/// Starts the servers and runs all rounds, and before them one that does not count.
///
/// # Errors
/// The database's, or that a server does not become idle.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &ReplicasOptions,
    progress: &mut Progress,
) -> Result<Vec<Round>> {
    let program = NodeProgram { data_memory: Some(options.rows * 300 + (512 << 20)), ..program.clone() };
    let single = program.beside("one").start()?;
    let cluster = ClusterProgram::two_replicas(program.beside("two")).start()?;
    let folder = out.join("redis-replicas");
    let redis = start_redis(&folder, options, progress);
    let one = VingaTarget::connect(single.address())?;
    let two = VingaTarget::connect(&cluster.addresses())?;
    let of_batch = [BATCH, 2 * BATCH].map(|batch| options.flexasynch(batch));
    let mut sides = Sides {
        one: FlexAsynch::open(&one, [single.pid()], &of_batch[0])?,
        two: FlexAsynch::open(&two, cluster.pids(), &of_batch[1])?,
        same_batch: FlexAsynch::open_table(&two, "bench.same_batch", cluster.pids(), &of_batch[0])?,
        redis: redis.as_ref(),
        one_at_a_time: [RoundTrip::open(&one)?, RoundTrip::open(&two)?],
        updates: options.updates,
        pids: cluster.pids().into_iter().chain([single.pid()]).collect(),
    };
    sides.pids.extend(redis.iter().flat_map(Replicated::pids));
    let mut rounds = Vec::new();
    for number in 0..=options.loops {
        let name = if number == 0 { "warm-up".to_owned() } else { format!("{number}/{}", options.loops) };
        let round = sides.round(&name, progress)?;
        if number > 0 {
            rounds.push(round);
        }
    }
    sides.close()?;
    drop((one, two, redis));
    single.stop()?;
    cluster.stop()?;
    let _ = fs::remove_dir_all(folder);
    Ok(rounds)
}

fn start_redis(folder: &Path, options: &ReplicasOptions, progress: &mut Progress) -> Option<Replicated> {
    let _ = fs::remove_dir_all(folder);
    match Replicated::start(folder, &options.redis()) {
        Ok(redis) => Some(redis),
        Err(failure) => {
            progress.line(&format!("  without Redis: {failure}"));
            None
        }
    }
}

/// Everything that a round measures, ready to run.
struct Sides<'a> {
    one: FlexAsynch<'a, VingaTarget>,
    two: FlexAsynch<'a, VingaTarget>,
    same_batch: FlexAsynch<'a, VingaTarget>,
    redis: Option<&'a Replicated>,
    /// On one node, and on two.
    one_at_a_time: [RoundTrip<'a, VingaTarget>; 2],
    updates: u64,
    /// Of all servers.
    pids: Vec<u32>,
}

impl Sides<'_> {
    fn round(&mut self, number: &str, progress: &mut Progress) -> Result<Round> {
        let name = |side: &str| format!("{number} {side}");
        wait_until_idle(&self.pids)?;
        let one = self.one.repetition(&name("one"), progress)?;
        wait_until_idle(&self.pids)?;
        let two = self.two.repetition(&name("two"), progress)?;
        wait_until_idle(&self.pids)?;
        let same_batch = self.same_batch.repetition(&name("same batch"), progress)?;
        wait_until_idle(&self.pids)?;
        let redis = self.redis.map(Replicated::set).transpose()?;
        if let Some(RedisTest { test, server_cpu_ns }) = &redis {
            let rate = test.rate;
            progress.line(&format!("  {number:>7} Redis SET {rate:.0}/s, CPU of both {server_cpu_ns:.0} ns"));
        }
        let mut latencies = Vec::new();
        for bench in &mut self.one_at_a_time {
            wait_until_idle(&self.pids)?;
            latencies.push(bench.measure(self.updates)?);
        }
        let [one_alone, two_alone] = [latencies[0], latencies[1]];
        progress.line(&format!(
            "  {number:>7} one update at a time: p50 {:.1} µs on one node, {:.1} µs on two",
            one_alone.p50_us, two_alone.p50_us
        ));
        let round_trips = RoundTrips { one: one_alone, two: two_alone };
        Ok(Round { one, two, same_batch, redis, round_trips })
    }

    fn close(self) -> Result<()> {
        self.one.close()?;
        self.two.close()?;
        self.same_batch.close()?;
        self.one_at_a_time.into_iter().try_for_each(RoundTrip::close)
    }
}

/// The figures of the rounds.
pub(super) fn figures(command: &str, rounds: &[Round]) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        Phase::ALL.iter().flat_map(|&phase| of_phase(command, rounds, phase)).collect();
    let samples = |of: fn(&RoundTrips) -> f64| -> Vec<f64> {
        rounds.iter().map(|round| of(&round.round_trips)).collect()
    };
    let (one, two) = (samples(|trips| trips.one.p50_us), samples(|trips| trips.two.p50_us));
    figures.push(Figure::from_pairs("replicas2.update.round_trip_vs_one", command, &two, &one));
    figures.push(Figure::from_samples("replicas2.update.round_trip", "us", command, &two));
    figures.push(Figure::from_samples("replicas2.update.round_trip.one", "us", command, &one));
    if let Some(redis) = redis_samples(rounds, |redis| redis.server_cpu_ns) {
        figures.push(Figure::from_samples("replicas2.redis.set.server_cpu", "ns", command, &redis));
    }
    if let Some(redis) = redis_samples(rounds, |redis| redis.test.rate) {
        figures.push(Figure::from_samples("replicas2.redis.set.rate", "1/s", command, &redis));
    }
    figures
}

fn of_phase(command: &str, rounds: &[Round], phase: Phase) -> Vec<Figure> {
    let samples = |side: Side, value: fn(&PhaseResult) -> f64| -> Vec<f64> {
        rounds.iter().map(|round| value(side(round).phase(phase))).collect()
    };
    let node_cpu: fn(&PhaseResult) -> f64 =
        |result| result.node_cpu.as_ref().map_or(0.0, |cpu| cpu.ns_per_operation);
    let rate: fn(&PhaseResult) -> f64 = |result| result.rate;
    let name = |what: &str| format!("replicas2.{}.{what}", phase.name());
    let one: Side = |round| &round.one;
    let two: Side = |round| &round.two;
    let same_batch: Side = |round| &round.same_batch;
    let mut figures = Vec::new();
    let cpu_of_one = samples(one, node_cpu);
    for (side, of) in [("", two), (".same_batch", same_batch)] {
        let name = name(&format!("node_cpu_vs_one{side}"));
        figures.push(Figure::from_pairs(name, command, &samples(of, node_cpu), &cpu_of_one));
    }
    if phase != Phase::Read
        && let Some(redis) = redis_samples(rounds, |redis| redis.test.rate)
    {
        figures.push(Figure::from_pairs(name("vs_redis"), command, &samples(same_batch, rate), &redis));
    }
    for (side, of) in [("", two), (".same_batch", same_batch), (".one", one)] {
        let mut add = |what: &str, unit: &str, value: fn(&PhaseResult) -> f64| {
            let name = name(&format!("{what}{side}"));
            figures.push(Figure::from_samples(name, unit, command, &samples(of, value)));
        };
        add("rate", "1/s", rate);
        add("node_cpu", "ns", node_cpu);
    }
    figures
}

/// A value of Redis in each round, if it was measured.
fn redis_samples(rounds: &[Round], value: fn(&RedisTest) -> f64) -> Option<Vec<f64>> {
    rounds.iter().map(|round| round.redis.as_ref().map(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;
    use crate::flexasynch::{self, FlexAsynchOptions};
    use crate::latency::LatencySummary;
    use crate::redis::Test;

    #[test]
    fn figures_have_their_names() {
        let target = FakeTarget::default();
        let options = FlexAsynchOptions { rows: 200, loops: 2, ..FlexAsynchOptions::default() };
        let pid = Some(std::process::id());
        let repetitions = flexasynch::run(&target, pid, &options, &mut Progress::quiet()).unwrap();
        let redis = RedisTest { test: Test { rate: 5.0, ..Test::default() }, server_cpu_ns: 1.0 };
        let latency = |p50_us| LatencySummary { p50_us, ..LatencySummary::default() };
        let round = |redis: Option<RedisTest>| Round {
            one: repetitions[0].clone(),
            two: repetitions[1].clone(),
            same_batch: repetitions[0].clone(),
            redis,
            round_trips: RoundTrips { one: latency(10.0), two: latency(25.0) },
        };
        let with = figures("c", &[round(Some(redis.clone())), round(Some(redis))]);
        let find = |name: &str| with.iter().find(|figure| figure.name == name).expect(name).median;
        assert_eq!(find("replicas2.update.round_trip_vs_one"), 2.5);
        let ratio = find("replicas2.read.node_cpu") / find("replicas2.read.node_cpu.one");
        assert!((find("replicas2.read.node_cpu_vs_one") - ratio).abs() < 1e-9);
        assert_eq!(find("replicas2.read.node_cpu_vs_one.same_batch"), 1.0);
        let rate = find("replicas2.delete.rate.same_batch");
        assert!((find("replicas2.delete.vs_redis") - rate / 5.0).abs() < 1e-9);
        assert!(!with.iter().any(|figure| figure.name == "replicas2.read.vs_redis"));
        let without = figures("c", &[round(None)]);
        assert!(!without.iter().any(|figure| figure.name.contains("redis")));
        assert_eq!(with.len(), without.len() + 3 + 2);
    }
}
