//! One data node and one Redis server beside each other, in turn; both are idle unless they are measured.

use super::plan::Plan;
use super::{DATA_MEMORY_BYTES, Run};
use crate::cpu_time::CpuTime;
use crate::failure::Result;
use crate::figure::Figure;
use crate::flexasynch::{self, FlexAsynch, Phase, Repetition};
use crate::lookup::{self, Lookup, LookupResult};
use crate::redis::{self, Redis, RedisResult};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// More CPU than this is not idle.
const IDLE_PERCENT_MAX: f64 = 3.0;

/// The results of both sides in the same repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Round {
    flexasynch: Repetition,
    lookup: LookupResult,
    redis: Option<RedisResult>,
    /// Share of a CPU that the data node used while Redis was measured.
    node_busy_percent_meanwhile: Option<f64>,
}

impl<T: Target> Run<'_, T> {
    pub(super) fn race(&mut self) -> Result<()> {
        let Plan { flexasynch, lookup, redis, .. } = self.plan;
        let node = self.node(DATA_MEMORY_BYTES).start()?;
        let target = (self.connect)(node.address())?;
        let mut bench = FlexAsynch::open(&target, Some(node.pid()), flexasynch)?;
        let mut lookups = Lookup::open(&target, Some(node.pid()), lookup)?;
        let mut peer = match Redis::start(&self.setting.out.join("redis"), redis) {
            Ok(redis) => Some(redis),
            Err(failure) => {
                self.progress.line(&format!("  without Redis: {failure}"));
                None
            }
        };
        let mut rounds = Vec::new();
        for number in 0..=flexasynch.loops {
            let name =
                if number == 0 { "warm-up".to_owned() } else { format!("{number}/{}", flexasynch.loops) };
            let flexasynch = bench.repetition(&name, self.progress)?;
            let lookup = lookups.repetition()?;
            self.progress.line(&format!("  {name:>7} {}", lookup::line(&lookup)));
            let before = (CpuTime::of(node.pid())?, Instant::now());
            let redis = peer.as_mut().map(Redis::repetition).transpose()?;
            let used = CpuTime::of(node.pid())?.since(&before.0);
            let busy = 100.0 * used.total_ns as f64 / before.1.elapsed().as_nanos() as f64;
            let node_busy_percent_meanwhile = redis.is_some().then_some(busy);
            if let Some(redis) = &redis {
                self.progress.line(&format!("  {name:>7} {}", redis::line(redis)));
                if busy > IDLE_PERCENT_MAX {
                    self.progress
                        .line(&format!("  the idle data node has used {busy:.1} % of a CPU meanwhile"));
                }
            }
            if number > 0 {
                rounds.push(Round { flexasynch, lookup, redis, node_busy_percent_meanwhile });
            }
        }
        bench.close()?;
        lookups.close()?;
        drop(target);
        node.stop()?;
        rounds.iter().for_each(|round| self.note_disturbance(std::slice::from_ref(&round.flexasynch)));
        let figures = race_figures(self.plan, &rounds);
        self.report("race", "vinga bench all --parts race", &(flexasynch, lookup, redis), &rounds, figures)
    }
}

/// Vinga's figures, Redis' figures, and the ratios.
fn race_figures(plan: &Plan, rounds: &[Round]) -> Vec<Figure> {
    let repetitions: Vec<Repetition> = rounds.iter().map(|round| round.flexasynch.clone()).collect();
    let lookups: Vec<LookupResult> = rounds.iter().map(|round| round.lookup.clone()).collect();
    let mut figures = flexasynch::figures(&plan.flexasynch, &plan.flexasynch.command(), &repetitions);
    figures.extend(lookup::figures(&plan.lookup.command(), &lookups));
    let Some(peers) = rounds.iter().map(|round| round.redis.clone()).collect::<Option<Vec<RedisResult>>>()
    else {
        return figures;
    };
    figures.extend(redis::figures(&plan.redis.command(), &peers));
    let command = "vinga bench all --parts race";
    let samples = |value: &dyn Fn(&RedisResult) -> f64| -> Vec<f64> { peers.iter().map(value).collect() };
    for phase in Phase::ALL {
        let ours: Vec<f64> = repetitions.iter().map(|repetition| repetition.phase(phase).rate).collect();
        let theirs = match phase {
            Phase::Read => samples(&|redis| redis.get.test.rate),
            Phase::Insert | Phase::Update | Phase::Delete => samples(&|redis| redis.set.test.rate),
        };
        let name = format!("{}.vs_redis", plan.flexasynch.figure_prefix(phase));
        figures.push(Figure::from_pairs(name, command, &ours, &theirs));
    }
    let ours = |value: fn(&LookupResult) -> f64| -> Vec<f64> { lookups.iter().map(value).collect() };
    let p50 = (ours(|lookup| lookup.latency.p50_us), samples(&|redis| redis.single.p50_us));
    let p99 = (ours(|lookup| lookup.latency.p99_us), samples(&|redis| redis.single.p99_us));
    figures.push(Figure::from_pairs("lookup.single.p50_vs_redis", command, &p50.0, &p50.1));
    figures.push(Figure::from_pairs("lookup.single.p99_vs_redis", command, &p99.0, &p99.1));
    figures
}
