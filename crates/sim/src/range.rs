//! Many seeds: in order, on several threads of the operating system if requested. Each seed is a world of its own, so
//! how they are spread changes nothing.

use crate::profile::{Fault, Profile};
use crate::run::{Options, Report, run_seed, run_twice};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// Seeds with undecided rows that are named, at most.
const UNDECIDED_SHOWN: usize = 10;

/// What became of a range of seeds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Seeds run.
    pub seeds: u64,
    /// Signals that blocks handled.
    pub signals: u64,
    /// Virtual time, in microseconds.
    pub time: u64,
    /// A hash of the histories of all runs, whatever their order.
    pub hash: u64,
    /// Transactions: begun, and committed for certain.
    pub transactions: (usize, usize),
    /// Rows of which it could not be decided whether their histories can be true: see
    /// [`vinga_workloads::check::Summary::undecided`].
    pub undecided: usize,
    /// The seeds with such rows.
    pub undecided_seeds: Vec<u64>,
    /// In how many runs each rare branch was met.
    pub marks: BTreeMap<&'static str, u64>,
    /// The runs that failed.
    pub failures: Vec<Report>,
}

impl Tally {
    /// Counts a run.
    pub fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.signals += report.signals;
        self.time += report.time;
        self.hash = self.hash.wrapping_add(report.hash);
        self.transactions.0 += report.transactions.0;
        self.transactions.1 += report.transactions.1;
        self.undecided += report.summary.undecided;
        if report.summary.undecided > 0 {
            self.undecided_seeds.push(report.seed);
        }
        for &mark in &report.marks {
            *self.marks.entry(mark).or_default() += 1;
        }
        if report.violation.is_some() {
            self.failures.push(report);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds, {} failed; {} s of virtual time, {} signals, {} transactions ({} committed)",
            self.seeds,
            self.failures.len(),
            self.time / 1_000_000,
            self.signals,
            self.transactions.0,
            self.transactions.1
        )?;
        let seeds: Vec<String> =
            self.undecided_seeds.iter().take(UNDECIDED_SHOWN).map(ToString::to_string).collect();
        let seeds = if seeds.is_empty() { String::new() } else { format!(" (seeds {})", seeds.join(", ")) };
        writeln!(
            f,
            "{} rows undecided: too many orders of their actions are possible{seeds}",
            self.undecided
        )?;
        writeln!(f, "rare branches and the number of seeds that met them:")?;
        for (mark, seeds) in &self.marks {
            writeln!(f, "  {seeds:>7}  {mark}")?;
        }
        Ok(())
    }
}

/// How a range is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How each seed is run.
    pub options: Options,
    /// Threads of the operating system.
    pub jobs: usize,
    /// Each seed is run twice and must give the same history.
    pub twice: bool,
    /// After so many failures no further seeds are begun.
    pub failures_max: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { options: Options::default(), jobs: 1, twice: false, failures_max: 1 }
    }
}

/// Runs seeds; `on_report` is called with each report, in the order in which they are ready. `u64::MAX` as the end
/// means for ever, until `on_report` says that it is enough, by `false`.
pub fn run_seeds(seeds: Range<u64>, plan: &Plan, mut on_report: impl FnMut(&Report) -> bool) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let (sender, reports) = mpsc::sync_channel(64);
        for _ in 0..plan.jobs.max(1) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sender.send(run_as_planned(seed, plan)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for report in reports {
            let goes_on = on_report(&report);
            tally.add(report);
            if !goes_on || tally.failures.len() >= plan.failures_max {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    tally.failures.sort_by_key(|report| report.seed);
    tally.undecided_seeds.sort_unstable();
    tally
}

fn run_as_planned(seed: u64, plan: &Plan) -> Report {
    if !plan.twice {
        return run_seed(seed, &plan.options);
    }
    run_twice(seed, &plan.options).unwrap_or_else(|what| {
        let mut report = run_seed(seed, &plan.options);
        report.violation = Some(what);
        report
    })
}

/// Tries to make a failing run simpler: turns off one kind of fault after the other, and keeps off those without which
/// it still fails. The report of the simplest run that fails.
pub fn minimise(failed: &Report, options: &Options) -> Report {
    let mut simplest = failed.clone();
    let mut options = Options { trace: None, ..options.clone() };
    let present: Vec<Fault> = Profile::of(failed.seed, &options.without).faults.into_iter().collect();
    for fault in present {
        options.without.insert(fault);
        let report = run_seed(failed.seed, &options);
        if report.violation.is_some() {
            simplest = report;
        } else {
            options.without.remove(&fault);
        }
    }
    simplest
}
