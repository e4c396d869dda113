//! One run: its stages, and what is reported of it.

use crate::agenda::Time;
use crate::profile::{Fault, Profile};
use crate::schema::EVENT_WAIT;
use crate::world::{Stage, World};
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use vinga_kernel::InjectedBug;
use vinga_workloads::check::{self, Summary};

/// How a seed is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds of fault that are left out.
    pub without: BTreeSet<Fault>,
    /// Whether data nodes that have died start again, and others are added, in some runs.
    pub returning_nodes: bool,
    /// A rule that is broken on purpose; only in builds with the feature `injected-bugs`.
    pub bug: Option<InjectedBug>,
    /// Called with a line for everything that happens.
    pub trace: Option<fn(&str)>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What it made of the run.
    pub profile: Profile,
    /// Kinds of fault that were left out.
    pub without: BTreeSet<Fault>,
    /// Whether data nodes that have died start again, and others are added, in some runs.
    pub returning_nodes: bool,
    /// The rule that was broken on purpose.
    pub bug: Option<InjectedBug>,
    /// The first thing that can't be true; `None` if all is well.
    pub violation: Option<String>,
    /// A hash of the whole history.
    pub hash: u64,
    /// Virtual time that went by, in microseconds.
    pub time: Time,
    /// Events that happened.
    pub events: u64,
    /// Signals that blocks handled.
    pub signals: u64,
    /// Transactions: begun, and committed for certain.
    pub transactions: (usize, usize),
    /// What was checked.
    pub summary: Summary,
    /// Backups that were finished.
    pub backups: usize,
    /// Rare branches that were met.
    pub marks: BTreeSet<&'static str>,
    /// The last signals and notes before a violation.
    pub last: Vec<String>,
}

/// How long loading may take, in virtual time.
const LOADING_MAX: Time = 60_000_000;
/// How long sessions may take to come to their end once faults are over.
const ENDING_MAX: Time = 60_000_000;

/// How long data nodes may take to stop then.
const STOPPING_MAX: Time = 60_000_000;

/// How long partitions may move then: what does not come to rest to be moved is tried again after half a minute at
/// most.
const MOVING_MAX: Time = 120_000_000;

/// How often tables are described at the end, at most: no more changes can be under way than clients have failed.
const DESCRIPTIONS_MAX: u32 = 8;

/// Runs a seed.
pub fn run_seed(seed: u64, options: &Options) -> Report {
    let mut without = options.without.clone();
    if !options.returning_nodes {
        without.extend(Fault::OF_RETURNING_NODES);
    }
    let profile = Profile::of(seed, &without);
    catch_quietly();
    let mut world = World::new(seed, profile.clone(), options.bug, options.trace);
    IS_RUNNING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    IS_RUNNING.set(false);
    let (violation, mut summary) = match result {
        Ok(Ok(summary)) => (None, summary),
        // That is how it has to be: a start from damaged files is refused.
        Ok(Err(_))
            if world.violations.is_empty() && world.starts.lost_for_good.is_some() && !profile.is_calm =>
        {
            (None, Summary::default())
        }
        Ok(Err(what)) => (Some(what), Summary::default()),
        Err(payload) => {
            (Some(format!("a node stopped: {}", panic_text(payload.as_ref()))), Summary::default())
        }
    };
    summary.undecided += world.starts.undecided;
    let last = if violation.is_some() { world.last_signals() } else { Vec::new() };
    Report {
        seed,
        profile,
        without: options.without.clone(),
        returning_nodes: options.returning_nodes,
        bug: options.bug,
        violation,
        hash: world.hash,
        time: world.now(),
        events: world.events(),
        signals: world.signals(),
        transactions: world.count_transactions(),
        summary,
        backups: world.backups.len(),
        marks: world.marks(),
        last,
    }
}

/// Runs a seed two times; the error says how they differ.
///
/// # Errors
/// If the two histories are not the same.
pub fn run_twice(seed: u64, options: &Options) -> Result<Report, String> {
    let (first, second) = (run_seed(seed, options), run_seed(seed, options));
    let of = |report: &Report| (report.hash, report.time, report.events, report.violation.clone());
    if of(&first) == of(&second) {
        Ok(second)
    } else {
        Err(format!("seed {seed} gives two histories: {:x?} and {:x?}", of(&first), of(&second)))
    }
}

impl World {
    /// Runs all stages.
    ///
    /// # Errors
    /// The first thing that can't be true.
    pub fn run(&mut self) -> Result<Summary, String> {
        self.run_until("the tables were not loaded", LOADING_MAX, |world| {
            world.apis[0].has_ended() && world.is_at_rest() && world.is_durable()
        })?;
        self.stage = Stage::Running;
        for api in 0..self.apis.len() {
            self.begin_work(api);
        }
        self.begin_faults();
        let until = self.nemesis.until;
        while self.now() < until && !self.sessions_have_ended() {
            self.step_checked()?;
        }
        self.note(|| "faults are over".to_string());
        let now = self.now();
        self.disks.iter_mut().for_each(|disk| disk.end_faults(now));
        self.end_management_faults();
        self.stage = Stage::Ending;
        self.run_until("sessions don't come to their end", ENDING_MAX, World::sessions_have_ended)?;
        self.run_until("data nodes that are to stop do not", STOPPING_MAX, |world| world.stops.is_idle())?;
        self.run_until("data nodes do not join", STOPPING_MAX, |world| !world.may_anybody_join())?;
        self.end_waiting_in_vain();
        self.describe_all()?;
        self.check_definitions()?;
        self.check_places()?;
        let contents = self.contents()?;
        let history = self.surviving_history();
        let summary = check::check(&history, &contents, self.now(), self.profile.lock_waits())?;
        for running in &self.running {
            running.workload.check(&contents, &history)?;
        }
        self.check_online_backups()?;
        self.begin_dropping();
        self.run_until("tables can't be dropped", ENDING_MAX, |world| {
            world.sessions_have_ended() && world.is_at_rest()
        })?;
        self.check_definitions()?;
        self.check_pages()?;
        self.check_clients()?;
        Ok(summary)
    }

    /// How long it may take until nothing is left of anything once sessions have ended: an idle transaction must be
    /// noticed, and a client that does not come back, or does not confirm a schema event.
    fn rest_max(&self) -> Time {
        let profile = &self.profile;
        2 * profile.inactive_timeout
            + profile.reconnect_grace
            + 10 * profile.heartbeat_interval
            + 2_000_000
            + EVENT_WAIT
            + if profile.added.is_empty() { 0 } else { MOVING_MAX }
    }

    /// Has all tables described and everything come to rest. A change that a client has asked for before it failed may
    /// come to its end meanwhile, without an answer to anybody; then nobody knows the new version, and the tables are
    /// described again.
    fn describe_all(&mut self) -> Result<(), String> {
        for _ in 0..DESCRIPTIONS_MAX {
            self.begin_describing();
            self.run_until("tables can't be described", ENDING_MAX, World::sessions_have_ended)?;
            self.run_until("something is left of transactions", self.rest_max(), World::is_at_rest)?;
            // What is looked at afterwards is looked at while all is at rest.
            self.run_until("no management node arbitrates", self.rest_max(), |world| {
                world.has_arbitrator() && world.is_at_rest()
            })?;
            if self.knows_all_tables() {
                break;
            }
        }
        Ok(())
    }

    fn run_until(
        &mut self,
        complaint: &str,
        span: Time,
        is_reached: impl Fn(&World) -> bool,
    ) -> Result<(), String> {
        let deadline = self.now() + span;
        while !is_reached(self) {
            if self.now() > deadline {
                return Err(format!("{complaint} within {} ms: {}", span / 1000, self.describe_unrest()));
            }
            // Looking costs more than a step.
            for _ in 0..50 {
                self.step_checked()?;
            }
        }
        Ok(())
    }

    fn step_checked(&mut self) -> Result<(), String> {
        assert!(self.step(), "threads have timers");
        match (self.violations.first(), &self.starts.lost_for_good) {
            (None, None) => self.look_at_backups(),
            (Some(violation), _) => Err(violation.clone()),
            (None, Some(why)) => Err(why.clone()),
        }
    }

    fn signals(&self) -> u64 {
        self.signals_before + self.threads.iter().map(|thread| thread.executor.handled()).sum::<u64>()
    }

    fn marks(&self) -> BTreeSet<&'static str> {
        let present = self.threads.iter().flat_map(|thread| thread.executor.marks());
        present.chain(self.marks_before.iter().copied()).collect()
    }

    fn count_transactions(&self) -> (usize, usize) {
        use vinga_workloads::step::Fate;
        let committed = |t: &&vinga_workloads::history::Transaction| matches!(t.fate, Fate::Committed(_));
        (self.history.transactions.len(), self.history.transactions.iter().filter(committed).count())
    }

    /// The last signals of each thread by time, and the last notes.
    fn last_signals(&self) -> Vec<String> {
        let mut entries: Vec<(u64, usize, String)> = Vec::new();
        for thread in &self.threads {
            let trace: Vec<_> = thread.executor.trace().iter().collect();
            let clock = self.clocks[usize::from(thread.node) - 1];
            for entry in &trace[trace.len().saturating_sub(40)..] {
                let order = entries.len();
                entries.push((clock.when(entry.tick), order, self.trace_line(thread, entry)));
            }
        }
        entries.sort();
        let skipped = entries.len().saturating_sub(80);
        let signals = entries.into_iter().skip(skipped).map(|(_, _, line)| line);
        self.log.iter().cloned().chain(signals).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(violation) = &self.violation else {
            return write!(
                f,
                "seed {}: well, hash {:016x}, {} ms, {} events, {} signals, {} transactions ({} committed, {} unknown), \
                 {} rows ({} undecided), {} actions, {} backups",
                self.seed,
                self.hash,
                self.time / 1000,
                self.events,
                self.signals,
                self.transactions.0,
                self.transactions.1,
                self.summary.unknown,
                self.summary.rows,
                self.summary.undecided,
                self.summary.actions,
                self.backups,
            );
        };
        writeln!(f, "seed {} FAILED at {} µs, hash {:016x}", self.seed, self.time, self.hash)?;
        writeln!(f, "  {}", self.profile)?;
        writeln!(f, "  last signals:")?;
        for line in &self.last {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "  violation: {violation}")?;
        write!(f, "  repeat with: {}", self.command())
    }
}

impl Report {
    /// The command line that repeats the run.
    pub fn command(&self) -> String {
        let without: String =
            self.without.iter().map(|fault| format!(" --without {}", fault.name())).collect();
        let bug = self.bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
        let returning = if self.returning_nodes { " --returning-nodes" } else { "" };
        format!("vinga sim --seed {}{returning}{without}{bug}", self.seed)
    }
}

thread_local! {
    /// Where the last panic of this thread happened.
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether panics of this thread are a run's result.
    static IS_RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Makes panics within runs silent: they are reported as the run's result, with their place.
fn catch_quietly() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_RUNNING.with_borrow(|is_running| *is_running) {
                let mut place = info.location().map(|location| format!(" ({location})")).unwrap_or_default();
                let backtrace = Backtrace::capture();
                if backtrace.status() == BacktraceStatus::Captured {
                    place += &format!("\n{backtrace}");
                }
                PANIC_PLACE.set(place);
            } else {
                usual(info);
            }
        }));
    });
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    text + &PANIC_PLACE.take()
}
