//! `vinga sim`: whole clusters in one thread, from seeds.

use crate::arguments::whole;
use clap::{ArgGroup, Args};
use std::num::{NonZeroU64, NonZeroUsize};
use std::ops::Range;
use std::time::{Duration, Instant};
use vinga_bench::progress::Progress;
use vinga_kernel::InjectedBug;
use vinga_runtime::{complain, console, say};
use vinga_sim::injected_bugs::{self, Verdict};
use vinga_sim::profile::Fault;
use vinga_sim::range::{Plan, Tally, minimise, run_seeds};
use vinga_sim::run::Report;
use vinga_sim::{Options, coverage_marks};

/// `vinga sim …`.
#[derive(Args)]
#[command(group = ArgGroup::new("which").args(["seed", "seeds", "forever", "bugs"]).required(true).multiple(true))]
pub struct SimArguments {
    /// Run one seed
    #[arg(long, value_parser = whole(0..=u64::MAX - 1), conflicts_with_all = ["seeds", "forever", "bugs"])]
    seed: Option<u64>,
    /// Run the seeds from A up to B, without B itself
    #[arg(long, value_name = "A..B", value_parser = seed_range, conflicts_with_all = ["forever", "bugs"])]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds until stopped
    #[arg(long, conflicts_with = "bugs")]
    forever: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print every event
    #[arg(long, requires = "seed", conflicts_with = "bugs")]
    trace: bool,
    /// Run each seed two times: the histories must be the same
    #[arg(long, conflicts_with = "bugs")]
    twice: bool,
    /// Leave out a kind of fault (may be given several times), to find out whether a violation needs it
    #[arg(long, value_name = "FAULT", value_parser = fault, conflicts_with = "bugs")]
    without: Vec<Fault>,
    /// Have data nodes that have died start again and join the others, and node groups added, in some of the seeds
    #[arg(long, conflicts_with = "bugs")]
    returning_nodes: bool,
    /// If the seed fails, leave out one kind of fault after the other and report the simplest run that still fails
    #[arg(long, requires = "seed", conflicts_with_all = ["seeds", "forever", "bugs"])]
    minimise: bool,
    /// Run this many seeds at the same time
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN, conflicts_with = "bugs")]
    jobs: NonZeroUsize,
    /// Fail if a rare branch was not met that 500 seeds meet; with 'all', also those that thousands of seeds meet
    #[arg(
        long,
        requires = "seeds",
        conflicts_with = "bugs",
        value_name = "WHICH",
        num_args = 0..=1,
        default_missing_value = "usual"
    )]
    expect_marks: Option<Expected>,
    /// Break a rule of the protocols on purpose (only in builds with the feature `injected-bugs`): the run must fail
    #[arg(long, value_name = "NAME", value_parser = bug)]
    bug: Option<InjectedBug>,
    /// Break each rule of the protocols in turn and count the seeds until that is noticed (only in builds with the
    /// feature `injected-bugs`); fails if one is not noticed
    #[arg(long, conflicts_with = "bug")]
    bugs: bool,
    /// With --bugs: give up after this many seeds; rules that take thousands are then tried, too
    #[arg(long, value_name = "N", requires = "bugs", conflicts_with_all = ["seed", "seeds", "forever"])]
    seeds_max: Option<NonZeroU64>,
    /// With --bugs: begin with this seed
    #[arg(long, value_name = "SEED", requires = "bugs", default_value_t = 1, conflicts_with_all = ["seed", "seeds", "forever"])]
    first: u64,
}

/// The rare branches that must be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Expected {
    Usual,
    All,
}

fn seed_range(text: &str) -> Result<Range<u64>, String> {
    let expected = "expected A..B, two whole numbers, such as 1..100";
    let parse =
        |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no whole number: {expected}"));
    let (first, end) = text.split_once("..").ok_or(expected)?;
    let range = parse(first)?..parse(end)?;
    if range.is_empty() { Err(format!("{text} holds no seed")) } else { Ok(range) }
}

fn bug(name: &str) -> Result<InjectedBug, String> {
    InjectedBug::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = InjectedBug::ALL.iter().map(|m| m.name()).collect();
        format!("there is no bug '{name}'; there are: {}", names.join(", "))
    })
}

fn fault(name: &str) -> Result<Fault, String> {
    Fault::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        format!("there is no fault '{name}'; there are: {}", names.join(", "))
    })
}

/// Runs the seeds, or tries the bugs, of the command line.
///
/// # Errors
/// The first violation, with its seed and how to repeat it; expected coverage marks that were not met; bugs that were
/// not noticed.
pub fn run(arguments: &SimArguments, json: bool) -> Result<(), String> {
    if (arguments.bug.is_some() || arguments.bugs) && !injected_bugs::IS_BUILT_IN {
        return Err("this build has no injected bugs; build with: \
             cargo build --profile sim --features injected-bugs --bin vinga"
            .to_owned());
    }
    if json && arguments.trace {
        return Err("--json and --trace exclude each other: a trace is text".to_owned());
    }
    if arguments.bugs {
        return hunt(arguments.first, arguments.seeds_max.map(NonZeroU64::get), json);
    }
    let trace: Option<fn(&str)> = arguments.trace.then_some(|line: &str| say!("{line}"));
    let without = arguments.without.iter().copied().collect();
    let returning_nodes = arguments.returning_nodes;
    let options = Options { bug: arguments.bug, trace, without, returning_nodes };
    let range = match (arguments.seed, &arguments.seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(range)) => range.clone(),
        // The command line requires one of the three.
        (None, None) => fresh_seed()..u64::MAX,
    };
    if arguments.forever {
        complain!("seeds from {} on", range.start);
    }
    let all = (!arguments.forever).then(|| range.end - range.start);
    let plan = Plan {
        options: options.clone(),
        jobs: arguments.jobs.get(),
        twice: arguments.twice,
        ..Plan::default()
    };
    let begun = Instant::now();
    let mut progress = SeedProgress::new(all, arguments.quiet);
    let tally = run_seeds(range, &plan, |report| {
        progress.step();
        if arguments.seed.is_some() && report.violation.is_none() && !json {
            say!("{report}");
        }
        // Results of further seeds would not be read.
        console::is_read()
    });
    progress.end();
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        say!("{}", as_json(&tally, seconds));
    }
    if let Some(failed) = tally.failures.first() {
        let simplest = arguments.minimise.then(|| minimise(failed, &options));
        let failed = simplest.as_ref().unwrap_or(failed);
        if !json {
            say!("{failed}");
        }
        return Err(format!(
            "seed {} found a violation; repeat it with: {} --trace",
            failed.seed,
            failed.command()
        ));
    }
    if arguments.seed.is_none() && !json {
        console::print(format_args!("{tally}"));
        say!("no violation in {seconds:.1} s, history {:016x}", tally.hash);
    }
    arguments.expect_marks.map_or(Ok(()), |expected| check_marks(&tally, expected, json))
}

/// Progress over a range of seeds: on standard error, one line that changes on a terminal, elsewhere a line from time
/// to time.
struct SeedProgress {
    shown: Progress,
    is_quiet: bool,
    begun: Instant,
    /// When the last permanent line was written.
    last: Instant,
    seeds: u64,
    /// `None` for an endless range.
    all: Option<u64>,
}

impl SeedProgress {
    /// Time between two permanent lines.
    const LINE_INTERVAL: Duration = Duration::from_secs(3);

    fn new(all: Option<u64>, is_quiet: bool) -> Self {
        let shown = if is_quiet { Progress::quiet() } else { Progress::new() };
        let now = Instant::now();
        SeedProgress { shown, is_quiet, begun: now, last: now, seeds: 0, all }
    }

    fn step(&mut self) {
        self.seeds += 1;
        let (seeds, all, begun) = (self.seeds, self.all, self.begun);
        let text = || Self::text(seeds, all, begun.elapsed());
        if self.shown.is_terminal() {
            self.shown.step(text);
        } else if !self.is_quiet && self.last.elapsed() >= Self::LINE_INTERVAL {
            self.last = Instant::now();
            self.shown.line(&text());
        }
    }

    fn end(&mut self) {
        self.shown.clear();
    }

    fn text(seeds: u64, all: Option<u64>, elapsed: Duration) -> String {
        let rate = seeds as f64 / elapsed.as_secs_f64().max(1e-3);
        let Some(all) = all else { return format!("{seeds} seeds, {rate:.0} a second") };
        let left = all.saturating_sub(seeds) as f64 / rate;
        format!("{seeds} of {all} seeds, {rate:.0} a second, {left:.0} s left")
    }
}

fn as_json(tally: &Tally, seconds: f64) -> serde_json::Value {
    let failure = |report: &Report| {
        serde_json::json!({
            "seed": report.seed,
            "violation": report.violation,
            "repeat": format!("{} --trace", report.command()),
        })
    };
    serde_json::json!({
        "seeds": tally.seeds,
        "seconds": seconds,
        "virtual_seconds": tally.time as f64 / 1e6,
        "signals": tally.signals,
        "transactions": tally.transactions.0,
        "committed": tally.transactions.1,
        "undecided": tally.undecided,
        "undecided_seeds": tally.undecided_seeds,
        "history": format!("{:016x}", tally.hash),
        "marks": tally.marks,
        "failures": tally.failures.iter().map(failure).collect::<Vec<_>>(),
    })
}

fn check_marks(tally: &Tally, expected: Expected, json: bool) -> Result<(), String> {
    let with_rare = expected == Expected::All;
    let missing: Vec<&str> =
        coverage_marks::missing(with_rare, |mark| tally.marks.contains_key(mark)).collect();
    if missing.is_empty() {
        if !json {
            say!("all rare branches that are expected were met");
        }
        return Ok(());
    }
    Err(format!("rare branches that were not met: {}", missing.join("; ")))
}

/// Injects one bug after the other.
fn hunt(first: u64, seeds_max: Option<u64>, json: bool) -> Result<(), String> {
    let verdicts = injected_bugs::hunt_all(first, seeds_max, |verdict| {
        if !json {
            say!("{verdict}");
        }
    });
    if json {
        let verdict = |verdict: &Verdict| {
            let noticed = verdict.noticed.as_ref();
            serde_json::json!({
                "bug": verdict.bug.name(),
                "noticed": noticed.is_some(),
                "seeds": noticed.map(|(seeds, _)| seeds),
                "what": noticed.map(|(_, what)| what),
            })
        };
        say!("{}", verdicts.iter().map(verdict).collect::<serde_json::Value>());
    }
    let missed: Vec<&str> =
        verdicts.iter().filter(|v| v.noticed.is_none()).map(|v: &Verdict| v.bug.name()).collect();
    if missed.is_empty() {
        if !json {
            say!("all {} broken rules were noticed", verdicts.len());
        }
        return Ok(());
    }
    Err(format!("not noticed: {}", missed.join(", ")))
}

/// A seed that was most likely never run before.
fn fresh_seed() -> u64 {
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    fastrand::Rng::with_seed(age.as_nanos() as u64).u64(..1 << 48)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SimArguments,
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let reads = |line: &str| Line::try_parse_from(format!("sim {line}").split(' ')).is_ok();
        assert!(reads("--bugs --first 7 --seeds-max 20") && reads("--seed 3 --trace"));
        assert!(reads("--seed 3 --minimise --without kill-node --without disconnect"));
        for line in
            ["--trace", "--jobs 2", "--twice", "--forever", "--expect-marks", "--seed 3", "--seeds 3..5"]
        {
            assert!(!reads(&format!("--bugs {line}")), "--bugs {line}");
        }
        for line in [
            "--seed 18446744073709551615",
            "--seeds 1..3 --jobs 0",
            "--bugs --seeds-max 0",
            "--seed 1 --first 2",
            "--seeds 1..3 --minimise",
        ] {
            assert!(!reads(line), "{line}");
        }
    }

    #[test]
    fn progress_tells_what_is_left() {
        let text = |seeds, all| SeedProgress::text(seeds, all, Duration::from_secs(2));
        assert_eq!(text(100, Some(400)), "100 of 400 seeds, 50 a second, 6 s left");
        assert_eq!(text(100, None), "100 seeds, 50 a second");
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(seed_range("3..5"), Ok(3..5));
        assert!(seed_range("5..5").is_err() && seed_range("5").is_err() && seed_range("a..b").is_err());
        assert!(fault("nonsense").unwrap_err().contains("kill-node"));
        assert!(bug("nonsense").unwrap_err().contains("answer-before-primary"));
    }
}
