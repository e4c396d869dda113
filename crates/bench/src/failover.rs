//! How long a cluster does not answer when a data node dies.
//!
//! Two data nodes with two replicas of each row, as processes. Threads of one client update rows one by one, each as soon as
//! the update before is acknowledged. After a second one of the nodes is killed (`kill -9`), in turn the first one, which
//! leads the cluster, and the second one; the updates go on for two more. The gap is the longest time in which none of the
//! threads had an update acknowledged, from the kill on; the same of the second before is listed beside it, since the
//! operating system causes gaps, too. Every update is committed on both nodes, so none can go on before the other node has
//! taken over.

use crate::cluster::{ClusterProgram, addresses};
use crate::failure::{Failure, Result};
use crate::figure::Figure;
use crate::keys::ValueMaker;
use crate::load::load;
use crate::node::Node;
use crate::progress::Progress;
use crate::target::{Kind, Lane, Outcome, TableShape, Target};
use crate::vinga_target::VingaTarget;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Memory for the rows of each node.
pub const DATA_MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of the value.
const VALUE_BYTES: u16 = 100;
/// Rows of each thread.
const ROWS: u64 = 1_000;
/// How long updates run before a node is killed.
const BEFORE: Duration = Duration::from_secs(1);
/// How long they go on afterwards.
const AFTER: Duration = Duration::from_secs(2);

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct FailoverOptions {
    /// Repetitions, each with a new cluster
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Threads that update rows, each one at a time
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
}

impl FailoverOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        format!("vinga bench failover --loops {} --threads {}", self.loops, self.threads)
    }
}

/// The result of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailoverResult {
    /// Which node was killed.
    pub killed: u8,
    /// The time until both nodes were ready, in seconds.
    pub start_seconds: f64,
    /// The longest gap before the kill, in milliseconds.
    pub usual_gap_ms: f64,
    /// The longest gap from the kill on.
    pub gap_ms: f64,
    /// Acknowledged updates.
    pub updates: u64,
    /// Updates that failed, each once: the outcome of one that was under way may not be known.
    pub failed: u64,
}

/// What a thread has seen.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<Instant>,
    failed: u64,
}

/// Kills nodes.
///
/// # Errors
/// A cluster does not start, or does not go on after a node has died.
pub fn run(
    cluster: &ClusterProgram,
    options: &FailoverOptions,
    progress: &mut Progress,
) -> Result<Vec<FailoverResult>> {
    (1..=options.loops)
        .map(|number| {
            let result = repetition(cluster, options, if number % 2 == 1 { 1 } else { 2 })?;
            progress.line(&format!("  {number}/{} {}", options.loops, line(&result)));
            Ok(result)
        })
        .collect()
}

fn repetition(cluster: &ClusterProgram, options: &FailoverOptions, killed: u8) -> Result<FailoverResult> {
    let mut nodes = cluster.start()?;
    let start = nodes.iter().map(Node::ready_after).max().unwrap_or_default();
    let target = VingaTarget::connect(&addresses(&nodes))?;
    let table = target.create_table("bench.failover", &TableShape::Value { bytes: VALUE_BYTES })?;
    let rows = ROWS * u64::from(options.threads);
    let mut values = ValueMaker::new(VALUE_BYTES);
    load(&target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
    let ends = AtomicBool::new(false);
    let victim = nodes.remove(usize::from(killed - 1));
    let (seen, begun, killed_at) = thread::scope(|scope| {
        let begun = Instant::now();
        let (target, table, ends) = (&target, &table, &ends);
        let threads: Vec<_> = (0..options.threads)
            .map(|thread| scope.spawn(move || update(target, table, thread, ends)))
            .collect();
        thread::sleep(BEFORE);
        let killed_at = Instant::now();
        let result = victim.kill();
        thread::sleep(AFTER);
        ends.store(true, Ordering::Relaxed);
        let seen: Result<Vec<Seen>> =
            threads.into_iter().map(|thread| thread.join().expect("updating does not panic")).collect();
        result.and(seen).map(|seen| (seen, begun, killed_at))
    })?;
    let end = Instant::now();
    target.drop_table(table)?;
    drop(target);
    nodes.into_iter().try_for_each(Node::stop)?;
    let mut times: Vec<Instant> = seen.iter().flat_map(|seen| &seen.acknowledged).copied().collect();
    times.sort_unstable();
    let gap = |from: Instant, until: Instant| longest_gap(&times, from, until).as_secs_f64() * 1e3;
    Ok(FailoverResult {
        killed,
        start_seconds: start.as_secs_f64(),
        usual_gap_ms: gap(begun, killed_at),
        gap_ms: gap(killed_at, end),
        updates: times.len() as u64,
        failed: seen.iter().map(|seen| seen.failed).sum(),
    })
}

/// Updates the rows of a thread one by one.
fn update(
    target: &VingaTarget,
    table: &<VingaTarget as Target>::Table,
    thread: u32,
    ends: &AtomicBool,
) -> Result<Seen> {
    let mut lane = target.lane(table, 0, 1, 1)?;
    let mut values = ValueMaker::new(VALUE_BYTES);
    let mut seen = Seen::default();
    let first = u64::from(thread) * ROWS;
    for number in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let id = first + number % ROWS;
        lane.begin(0, Kind::Update);
        lane.push(0, id, values.make(id, number))?;
        let answered = lane.start(0).and_then(|()| lane.wait());
        match answered.map(|slot| lane.outcome(slot, 0)) {
            Ok(Outcome::Done) => seen.acknowledged.push(Instant::now()),
            Ok(Outcome::Failed(_)) => seen.failed += 1,
            Ok(Outcome::Row(_) | Outcome::NoRow) => {
                return Err(Failure::new("an update was answered as a read"));
            }
            Err(why) => return Err(why),
        }
    }
    Ok(seen)
}

/// The longest time between two of these times, or the ends of a span, within that.
fn longest_gap(times: &[Instant], from: Instant, until: Instant) -> Duration {
    let within = times.iter().copied().filter(|&time| time >= from && time <= until);
    let (mut last, mut longest) = (from, Duration::ZERO);
    for time in within.chain([until]) {
        longest = longest.max(time.duration_since(last));
        last = time;
    }
    longest
}

/// One line.
pub fn line(result: &FailoverResult) -> String {
    let FailoverResult { killed, start_seconds, usual_gap_ms, gap_ms, updates, failed } = result;
    format!(
        "node {killed} killed: gap {gap_ms:.1} ms ({usual_gap_ms:.1} ms before), {failed} of {updates} updates failed; \
         cold start {start_seconds:.3} s"
    )
}

/// The figures of a run.
pub fn figures(command: &str, results: &[FailoverResult]) -> Vec<Figure> {
    let samples = |of: fn(&FailoverResult) -> f64| results.iter().map(of).collect::<Vec<_>>();
    vec![
        Figure::from_samples("failover.kill.gap_ms", "ms", command, &samples(|one| one.gap_ms)),
        Figure::from_samples("failover.kill.usual_gap_ms", "ms", command, &samples(|one| one.usual_gap_ms)),
        Figure::from_samples("failover.kill.failed", "updates", command, &samples(|one| one.failed as f64)),
        Figure::from_samples("cluster.start.cold", "s", command, &samples(|one| one.start_seconds)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_from_the_begin_and_to_the_end() {
        let zero = Instant::now();
        let at = |millis: u64| zero + Duration::from_millis(millis);
        let times = [at(1), at(5), at(7), at(30)];
        let gap = |from, until| longest_gap(&times, at(from), at(until)).as_millis();
        assert_eq!(gap(0, 30), 23);
        assert_eq!(gap(0, 7), 4);
        assert_eq!(gap(2, 8), 3);
        assert_eq!(gap(8, 20), 12, "nothing came");
    }
}
