//! How fast checkpoints are written, and what they cost an update meanwhile.
//!
//! The node may write them as fast as it can (`MinDiskWriteSpeed` and the three maxima at their most). A burst of
//! scattered updates touches most pages and logs enough for a checkpoint round to begin; then it ends. Whatever is
//! written from the last step of the burst on, until nothing is written for some time, is the checkpoint: bytes and
//! time are those that the kernel counts for the process (`/proc/PID/io`). Beside it the disk's own rate
//! ([`super::disk_rate`]). In a second round single updates, one at a time, are timed while the checkpoint is written,
//! until nine tenths of it are; before it as many while none is.
//!
//! `checkpoint.mb_per_s` is in units of 10^6 bytes, of all data managers together; `checkpoint.vs_disk` divides it by
//! the disk's own; `checkpoint.p99_ratio` divides the 99th percentile of an update beside a checkpoint by that without.

use super::{DurableOptions, LARGE_LOG, SHAPE, disk_rate, finish_checkpoints, node};
use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::idle::wait_until_idle;
use crate::keys::{ValueMaker, mix};
use crate::latency::{Latencies, LatencySummary};
use crate::load::load;
use crate::node::{Node, NodeProgram};
use crate::progress::Progress;
use crate::target::{Kind, Lane, Outcome, Target};
use crate::vinga_target::{VingaLane, VingaTable, VingaTarget};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const TABLE: &str = "bench.checkpoint";
/// Updates of a step of a burst.
const STEP: u64 = 512;
/// Bytes that are logged for an update, about.
const RECORD_BYTES: u64 = 150;
/// Single updates of each kind, at most.
const SINGLES_MAX: u64 = 20_000;
/// Time between looks at what was written.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// More than this between two looks belongs to a checkpoint; less may be an end record of the log.
const LOOK_BYTES: u64 = 64 << 10;
/// When so little was written for so long the checkpoint is.
const QUIET: Duration = Duration::from_millis(250);

/// The results of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Bytes that were written of the checkpoint.
    pub bytes: u64,
    /// The time that it took.
    pub seconds: f64,
    /// Bytes a second that the disk takes.
    pub disk_rate: f64,
    /// Single updates while nothing is written but the log.
    pub quiet: LatencySummary,
    /// Single updates while a checkpoint is written.
    pub beside: LatencySummary,
    /// How many those were.
    pub beside_updates: u64,
}

/// Runs all repetitions, and before them one that does not count.
///
/// # Errors
/// The database's, or that no checkpoint is written.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<Vec<Round>> {
    let rows = options.checkpoint_rows;
    let exponent = words_exponent(rows);
    let [files, bytes] = LARGE_LOG;
    let between = format!("TimeBetweenLocalCheckpoints={exponent}");
    let speeds = ["MinDiskWriteSpeed", "MaxDiskWriteSpeed", "MaxDiskWriteSpeedOtherNodeRestart"];
    let mut parameters: Vec<String> = speeds.iter().map(|name| format!("{name}=1T")).collect();
    parameters.push("MaxDiskWriteSpeedOwnRestart=1T".into());
    let mut all = vec!["Diskless=no", files, bytes, between.as_str()];
    all.extend(parameters.iter().map(String::as_str));
    let node = node(program, "checkpoint", rows, &all).start()?;
    let target = VingaTarget::connect(node.address())?.logged();
    let mut load_of = UpdateLoad::new(&target, &node, rows, (4 << exponent) / 4 / RECORD_BYTES)?;
    let mut rounds = Vec::new();
    for number in 0..=options.loops {
        let name = if number == 0 { "warm-up".to_owned() } else { format!("{number}/{}", options.loops) };
        let round = load_of.round(&out.join("disk.data"))?;
        progress.line(&format!("  {name:>7} {}", line(&round)));
        if number > 0 {
            rounds.push(round);
        }
    }
    drop(load_of);
    drop(target);
    node.stop()?;
    Ok(rounds)
}

/// The logarithm of the words between two rounds: by then each row in sixteen was updated, which is every page.
fn words_exponent(rows: u64) -> u32 {
    (rows * RECORD_BYTES / 16 / 4).max(1).ilog2().clamp(10, 31)
}

/// A table whose rows are updated.
struct UpdateLoad<'a> {
    node: &'a Node,
    target: &'a VingaTarget,
    table: VingaTable,
    /// For batches, and for one update at a time.
    lanes: [VingaLane; 2],
    values: ValueMaker,
    rows: u64,
    /// Updates so far: each has its own row and value.
    done: u64,
    /// Single updates of each kind: they log much less than makes a round begin.
    singles: u64,
}

/// What a process has written so far, and when.
#[derive(Clone, Copy)]
struct Written {
    bytes: u64,
    at: Instant,
}

impl Written {
    fn by(node: &Node) -> Result<Self> {
        let path = format!("/proc/{}/io", node.pid());
        let text = fs::read_to_string(&path).context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let bytes = line.and_then(|bytes| bytes.trim().parse().ok());
        let bytes = bytes.ok_or_else(|| Failure::new(format!("there is no write_bytes in {path}")))?;
        Ok(Written { bytes, at: Instant::now() })
    }
}

impl<'a> UpdateLoad<'a> {
    fn new(target: &'a VingaTarget, node: &'a Node, rows: u64, singles_max: u64) -> Result<Self> {
        let table = target.create_table(TABLE, &SHAPE)?;
        let mut values = ValueMaker::new(super::VALUE_BYTES);
        load(target, &table, 0..rows, |id, out| out.extend_from_slice(values.make(id, 0)))?;
        let lanes = [target.lane(&table, 0, 1, STEP as usize)?, target.lane(&table, 0, 1, 1)?];
        let singles = singles_max.clamp(100, SINGLES_MAX);
        Ok(UpdateLoad { node, target, table, lanes, values, rows, done: 0, singles })
    }

    fn round(&mut self, file: &Path) -> Result<Round> {
        self.wait_for_rest()?;
        let disk_rate = disk_rate::measure(file, self.rows * u64::from(super::VALUE_BYTES))?;
        let quiet = self.quiet_singles()?;
        let begun = self.burst()?;
        let end = self.end_of_writing(begun)?;
        let (bytes, seconds) = (end.bytes - begun.bytes, (end.at - begun.at).as_secs_f64());
        self.wait_for_rest()?;
        let begun = self.burst()?;
        let mut beside = Latencies::default();
        while Written::by(self.node)?.bytes < begun.bytes + bytes / 10 * 9 && beside.count() < SINGLES_MAX {
            self.singles(16, &mut beside)?;
        }
        Ok(Round {
            bytes,
            seconds,
            disk_rate,
            quiet,
            beside_updates: beside.count(),
            beside: beside.summary(),
        })
    }

    fn wait_for_rest(&self) -> Result<()> {
        finish_checkpoints(self.target, &self.table)?;
        wait_until_idle(&[self.node.pid()])
    }

    /// Names of the files of checkpoints.
    fn files(&self) -> Result<BTreeSet<String>> {
        let folder = self.node.folder().join("checkpoint");
        let entries = fs::read_dir(&folder).context(|| format!("cannot list {}", folder.display()))?;
        Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    /// Single updates without a checkpoint.
    fn quiet_singles(&mut self) -> Result<LatencySummary> {
        const ATTEMPTS: u32 = 5;
        for _ in 0..ATTEMPTS {
            let before = self.files()?;
            let mut latencies = Latencies::default();
            self.singles(self.singles, &mut latencies)?;
            if self.files()?.is_subset(&before) {
                return Ok(latencies.summary());
            }
            // What had been logged before was nearly enough for a round; now it begins anew.
            self.wait_for_rest()?;
        }
        Err(Failure::new("a checkpoint begins whatever little is logged"))
    }

    /// Updates rows until a checkpoint begins; returns what was written before the last step.
    fn burst(&mut self) -> Result<Written> {
        let before = self.files()?;
        for _ in 0..=self.rows / STEP {
            let written = Written::by(self.node)?;
            self.update(0, STEP)?;
            if !self.files()?.is_subset(&before) {
                return Ok(written);
            }
        }
        Err(Failure::new("no checkpoint begins although all rows were updated"))
    }

    /// When the last of a checkpoint was written.
    fn end_of_writing(&self, begun: Written) -> Result<Written> {
        let mut last = begun;
        loop {
            thread::sleep(LOOK_INTERVAL);
            let now = Written::by(self.node)?;
            if now.bytes >= last.bytes + LOOK_BYTES {
                last = now;
            } else if now.at - last.at > QUIET {
                return Ok(last);
            }
        }
    }

    /// Single updates, one at a time.
    fn singles(&mut self, count: u64, latencies: &mut Latencies) -> Result<()> {
        for _ in 0..count {
            let begun = Instant::now();
            self.update(1, 1)?;
            latencies.record(begun.elapsed(), 1);
        }
        Ok(())
    }

    /// Updates so many rows at once.
    fn update(&mut self, lane: usize, count: u64) -> Result<()> {
        let lane = &mut self.lanes[lane];
        lane.begin(0, Kind::Update);
        for number in self.done..self.done + count {
            let id = mix(number) % self.rows;
            lane.push(0, id, self.values.make(id, number))?;
        }
        self.done += count;
        lane.start(0)?;
        lane.wait()?;
        for index in 0..count as usize {
            match lane.outcome(0, index) {
                Outcome::Done => {}
                Outcome::Failed(why) => return Err(Failure::new(format!("an update has failed: {why}"))),
                Outcome::Row(_) | Outcome::NoRow => {
                    return Err(Failure::new("an update was answered as a read"));
                }
            }
        }
        Ok(())
    }
}

impl Round {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

fn line(round: &Round) -> String {
    format!(
        "{:.0} MB in {:.3} s: {:.0} MB/s (disk: {:.0} MB/s)   update: p99 {:.0} µs, beside it {:.0} µs (p50 {:.0}, {:.0}; {} \
         updates)",
        round.bytes as f64 / 1e6,
        round.seconds,
        round.rate() / 1e6,
        round.disk_rate / 1e6,
        round.quiet.p99_us,
        round.beside.p99_us,
        round.quiet.p50_us,
        round.beside.p50_us,
        round.beside_updates
    )
}

/// The figures of a run; none if there was none.
pub fn figures(command: &str, rounds: &[Round]) -> Vec<Figure> {
    if rounds.is_empty() {
        return Vec::new();
    }
    let samples = |value: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let figure = |name: &str, unit: &str, samples: &[f64]| {
        Figure::from_samples(format!("checkpoint.{name}"), unit, command, samples)
    };
    let ours = samples(&|round| round.rate() / 1e6);
    let disk = samples(&|round| round.disk_rate / 1e6);
    let beside = samples(&|round| round.beside.p99_us);
    let quiet = samples(&|round| round.quiet.p99_us);
    vec![
        figure("mb_per_s", "MB/s", &ours),
        Figure::from_pairs("checkpoint.vs_disk", command, &ours, &disk),
        Figure::from_pairs("checkpoint.p99_ratio", command, &beside, &quiet),
        figure("disk.mb_per_s", "MB/s", &disk),
        figure("p99", "us", &beside),
        figure("p99.quiet", "us", &quiet),
        figure("p50", "us", &samples(&|round| round.beside.p50_us)),
        figure("p50.quiet", "us", &samples(&|round| round.quiet.p50_us)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Better;

    #[test]
    fn figures_have_their_names() {
        let latency = |p99_us| LatencySummary { p99_us, ..LatencySummary::default() };
        let round = Round {
            bytes: 500_000_000,
            seconds: 0.5,
            disk_rate: 2e9,
            quiet: latency(100.0),
            beside: latency(150.0),
            beside_updates: 1,
        };
        let all = figures("c", &[round]);
        let find = |name: &str| all.iter().find(|figure| figure.name == name).expect(name);
        assert_eq!(find("checkpoint.mb_per_s").median, 1000.0);
        assert_eq!(find("checkpoint.mb_per_s").better(), Better::More);
        assert_eq!((find("checkpoint.vs_disk").median, find("checkpoint.p99_ratio").median), (0.5, 1.5));
        assert_eq!(find("checkpoint.p99_ratio").better(), Better::Less);
        assert!(figures("c", &[]).is_empty());
    }

    #[test]
    fn rounds_begin_when_every_page_was_touched() {
        assert_eq!(words_exponent(4_000_000), 23);
        assert_eq!(words_exponent(1), 10);
    }
}
