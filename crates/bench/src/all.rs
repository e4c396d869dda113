//! All measurements of Vinga in one run, and `summary.json` from it.
//!
//! 1. *spike*: building blocks alone, before anything else runs;
//! 2. *start*: cold starts with default parameters;
//! 3. *race*: one data node and one Redis server beside each other, both idle unless they are measured. Each repetition
//!    measures Vinga (flexAsynch, lookups), then Redis (SET, GET, lookups), so that changes on the machine meanwhile
//!    affect both; ratios are made from these pairs. The data node's CPU time while Redis is measured is recorded,
//!    because it would be taken from Redis;
//! 5. *scan*; 6. *ranges*; 7. *memory*, with a fresh node for each repetition;
//! 8. *nonblocking*: the C interface, blocking and in an event loop;
//! 9. *sql*: sysbench on tables of Vinga and InnoDB in one SQL server; TPC-B is not part of it (`vinga bench tpcb`);
//! 10. *durable*: nodes with a disk: rates, commits beside InnoDB's, restarts, checkpoints;
//! 11. *hostile*: a well-behaved client beside others that are hostile;
//! 12. *replicas*: two data nodes with two replicas beside one data node, and beside Redis with a replica; their
//!     starts;
//! 13. *failover*: two data nodes, one of which is killed or stands still;
//! 14. *restart*: two data nodes, one of which is killed and comes back;
//! 15. *rolling*: two data nodes that are restarted one after the other.
//! 16. *reorganize*: two data nodes get two more.
//!
//! A part that fails is reported and the others continue; the run as a whole has then failed.

mod plan;
mod race;

use crate::durable;
use crate::failover;
use crate::failure::Result;
use crate::figure::{Figure, table};
use crate::flexasynch::{self, FlexAsynchOptions, Repetition};
use crate::goals;
use crate::hostile;
use crate::machine::{Build, Machine};
use crate::memory;
use crate::node::NodeProgram;
use crate::nonblocking;
use crate::progress::Progress;
use crate::ranges;
use crate::reorganize;
use crate::replicas;
use crate::report::{Report, json as as_json, write_json};
use crate::restart;
use crate::rolling;
use crate::scan;
use crate::spike;
use crate::sql;
use crate::start;
use crate::summary;
use crate::target::Target;
use plan::Plan;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;
use vinga_runtime::say;

/// The node of the race, the batches and the scans holds three tables of a million rows.
const DATA_MEMORY_BYTES: u64 = 2 << 30;
/// More CPU than this for others makes the figures doubtful.
const DISTURBANCE_PERCENT_MAX: f64 = 15.0;

/// Options of a run of all parts.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct AllOptions {
    /// Everything small: shows that it works; the figures are rough
    #[arg(long)]
    pub quick: bool,
    /// Repetitions of each measurement
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Definer threads of flexAsynch
    #[arg(short, long, default_value_t = FlexAsynchOptions::default().threads, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Batches that each definer has under way
    #[arg(long, default_value_t = FlexAsynchOptions::default().parallel, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parallel: u16,
    /// Only these parts, with commas or blanks between
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',', num_args = 1.., default_values_t = Part::ALL)]
    pub parts: Vec<Part>,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Part {
    Spike,
    Start,
    Race,
    Batches,
    Scan,
    Ranges,
    Memory,
    Nonblocking,
    Sql,
    Durable,
    Hostile,
    Replicas,
    Failover,
    Restart,
    Rolling,
    Reorganize,
}

impl Part {
    /// All, in the order in which they are run.
    pub const ALL: [Part; 16] = [
        Part::Spike,
        Part::Start,
        Part::Race,
        Part::Batches,
        Part::Scan,
        Part::Ranges,
        Part::Memory,
        Part::Nonblocking,
        Part::Sql,
        Part::Durable,
        Part::Hostile,
        Part::Replicas,
        Part::Failover,
        Part::Restart,
        Part::Rolling,
        Part::Reorganize,
    ];
}

/// Inputs of the parts.
pub struct Setting<'a> {
    /// How to start a node.
    pub node: &'a NodeProgram,
    /// Where results go.
    pub out: &'a Path,
    /// The commit of the sources that were built.
    pub sources: &'a str,
}

/// Runs everything and writes `summary.json`; returns whether all parts have succeeded.
///
/// # Errors
/// The summary can't be written.
pub fn run<T: Target>(
    connect: &dyn Fn(&str) -> Result<T>,
    setting: &Setting<'_>,
    options: &AllOptions,
    progress: &mut Progress,
    json: bool,
) -> Result<bool> {
    let begun = Instant::now();
    progress.line(&format!("machine: {}", Machine::here().line()));
    if !Build::this(setting.sources).optimised {
        progress.line("this program was built without optimisation: the figures say little");
    }
    let plan = Plan::new(options);
    let mut run = Run {
        connect,
        setting,
        plan: &plan,
        progress,
        figures: Vec::new(),
        is_complete: true,
        disturbance_percent: 0.0,
    };
    for &part in &options.parts {
        run.progress.line(&format!("{part:?}").to_lowercase());
        if let Err(failure) = run.part(part) {
            run.progress.line(&format!("  FAILED: {failure}"));
            run.is_complete = false;
        }
        // After each part, so that results are not lost when the run is interrupted.
        run.figures = summary::order(std::mem::take(&mut run.figures));
        write_json(&setting.out.join("summary.json"), &run.figures)?;
    }
    let Run { figures, is_complete, disturbance_percent, .. } = run;
    if json {
        say!("{}", as_json(&figures));
        return Ok(is_complete);
    }
    say!("{}", table(&figures));
    if disturbance_percent > DISTURBANCE_PERCENT_MAX {
        say!(
            "others have used up to {disturbance_percent:.0} % of a CPU meanwhile: measure again on a quiet machine"
        );
    }
    let missed = goals::missed(&figures);
    if !missed.is_empty() {
        say!("below their bounds: {}", missed.join(", "));
    }
    say!("{} ({:.0} s)", setting.out.join("summary.json").display(), begun.elapsed().as_secs_f64());
    let missing = summary::missing(&figures);
    if options.parts == Part::ALL && !missing.is_empty() {
        say!("not measured: {}", missing.join(", "));
    }
    Ok(is_complete)
}

struct Run<'a, T: Target> {
    connect: &'a dyn Fn(&str) -> Result<T>,
    setting: &'a Setting<'a>,
    plan: &'a Plan,
    progress: &'a mut Progress,
    figures: Vec<Figure>,
    is_complete: bool,
    /// The most that other processes used of a CPU in a phase of flexAsynch.
    disturbance_percent: f64,
}

impl<T: Target> Run<'_, T> {
    fn part(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Spike => self.spike(),
            Part::Start => self.start(),
            Part::Race => self.race(),
            Part::Batches => self.batches(),
            Part::Scan => self.scan(),
            Part::Ranges => self.ranges(),
            Part::Memory => self.memory(),
            Part::Nonblocking => self.nonblocking(),
            Part::Sql => self.sql(),
            Part::Durable => self.durable(),
            Part::Hostile => self.hostile(),
            Part::Replicas => self.replicas(),
            Part::Failover => self.failover(),
            Part::Restart => self.restart(),
            Part::Rolling => self.rolling(),
            Part::Reorganize => self.reorganize(),
        }
    }

    fn report(
        &mut self,
        benchmark: &str,
        command: &str,
        options: &impl Serialize,
        results: &impl Serialize,
        figures: Vec<Figure>,
    ) -> Result<()> {
        let report = Report {
            configuration: as_json(options),
            figures: figures.clone(),
            repetitions: as_json(results),
            ..Report::new(benchmark, command, self.setting.sources)
        };
        report.write(self.setting.out)?;
        self.figures.extend(figures);
        Ok(())
    }

    fn spike(&mut self) -> Result<()> {
        let options = &self.plan.spike;
        let command = options.command();
        let figures = spike::run(options, &command, self.progress);
        self.report("spike", &command, options, &figures.clone(), figures)
    }

    fn start(&mut self) -> Result<()> {
        let options = &self.plan.start;
        let node = NodeProgram { data_memory: None, ..self.setting.node.clone() };
        let seconds = start::run(&node, options, self.progress)?;
        let command = options.command();
        self.report("start", &command, options, &seconds, start::figures(&command, &seconds))
    }

    fn batches(&mut self) -> Result<()> {
        let node = self.node(DATA_MEMORY_BYTES).start()?;
        let target = (self.connect)(node.address())?;
        for options in &self.plan.batches {
            self.progress.line(&format!("  batches of {}", options.batch));
            let repetitions = flexasynch::run(&target, Some(node.pid()), options, self.progress)?;
            self.note_disturbance(&repetitions);
            let command = options.command();
            let figures = flexasynch::figures(options, &command, &repetitions);
            let name = format!("flexasynch-batch{}", options.batch);
            self.report(&name, &command, options, &repetitions, figures)?;
        }
        drop(target);
        node.stop()
    }

    fn scan(&mut self) -> Result<()> {
        let options = &self.plan.scan;
        let node = self.node(DATA_MEMORY_BYTES).start()?;
        let target = (self.connect)(node.address())?;
        let rounds = scan::run(&target, Some(node.pid()), options, self.progress)?;
        drop(target);
        node.stop()?;
        let command = options.command();
        self.report("scan", &command, options, &rounds, scan::figures(&command, &rounds))
    }

    fn ranges(&mut self) -> Result<()> {
        let options = &self.plan.ranges;
        let node = self.node(DATA_MEMORY_BYTES).start()?;
        let target = (self.connect)(node.address())?;
        let results = ranges::run(&target, node.address(), Some(node.pid()), options, self.progress)?;
        drop(target);
        node.stop()?;
        let command = options.command();
        self.report("ranges", &command, options, &results, ranges::figures(&command, &results))
    }

    fn memory(&mut self) -> Result<()> {
        let options = &self.plan.memory;
        let program = self.node(options.data_memory());
        let repetitions = memory::run(self.connect, &program, options, self.progress)?;
        let command = options.command();
        self.report("memory", &command, options, &repetitions, memory::figures(&command, &repetitions))
    }

    fn nonblocking(&mut self) -> Result<()> {
        let options = &self.plan.nonblocking;
        let node = self.node(DATA_MEMORY_BYTES).start()?;
        let target = (self.connect)(node.address())?;
        let results = nonblocking::run(&target, node.address(), options, self.progress)?;
        drop(target);
        node.stop()?;
        let command = options.command();
        self.report("nonblocking", &command, options, &results, nonblocking::figures(&command, &results))
    }

    fn sql(&mut self) -> Result<()> {
        let options = &self.plan.sql;
        let node = self.node(sql::DATA_MEMORY_BYTES).start()?;
        let results = sql::run(self.setting.out, &node.nearest_address(), options, self.progress)?;
        node.stop()?;
        let command = options.command();
        self.report("sql", &command, options, &results, sql::figures(&command, &results))
    }

    fn durable(&mut self) -> Result<()> {
        let options = &self.plan.durable;
        let result = durable::run(self.setting.node, self.setting.out, options, self.progress)?;
        let repetitions = result.rates.iter().flat_map(|round| [&round.memory, &round.durable]);
        repetitions.for_each(|repetition| self.note_disturbance(std::slice::from_ref(repetition)));
        let command = options.command();
        self.report("durable", &command, options, &result, durable::figures(&command, &result))
    }

    fn hostile(&mut self) -> Result<()> {
        let options = &self.plan.hostile;
        let program = self.node(hostile::DATA_MEMORY_BYTES);
        let results = hostile::run(&program, options, self.progress)?;
        let command = options.command();
        self.report("hostile", &command, options, &results, hostile::figures(&command, &results))
    }

    fn replicas(&mut self) -> Result<()> {
        let options = &self.plan.replicas;
        let result = replicas::run(self.setting.node, self.setting.out, options, self.progress)?;
        let rounds = result.rounds.iter();
        let repetitions = rounds.flat_map(|round| [&round.one, &round.two, &round.same_batch]);
        repetitions.for_each(|repetition| self.note_disturbance(std::slice::from_ref(repetition)));
        let command = options.command();
        self.report("replicas", &command, options, &result, replicas::figures(&command, &result))
    }

    fn failover(&mut self) -> Result<()> {
        let options = &self.plan.failover;
        let program = self.node(failover::DATA_MEMORY_BYTES);
        let result = failover::run(&program, self.setting.out, options, self.progress)?;
        let command = options.command();
        self.report("failover", &command, options, &result, failover::figures(&command, &result))
    }

    fn restart(&mut self) -> Result<()> {
        let options = &self.plan.restart;
        let rounds = restart::run(self.setting.node, options, self.progress)?;
        let command = options.command();
        self.report("restart", &command, options, &rounds, restart::figures(&command, &rounds))
    }

    fn rolling(&mut self) -> Result<()> {
        let options = &self.plan.rolling;
        let result = rolling::run(self.setting.node, self.setting.out, options, self.progress)?;
        let command = options.command();
        self.report("rolling", &command, options, &result, rolling::figures(&command, &result))
    }

    fn reorganize(&mut self) -> Result<()> {
        let options = &self.plan.reorganize;
        let rounds = reorganize::run(self.setting.node, options, self.progress)?;
        let command = options.command();
        self.report("reorganize", &command, options, &rounds, reorganize::figures(&command, &rounds))
    }

    fn note_disturbance(&mut self, repetitions: &[Repetition]) {
        let phases = repetitions.iter().flat_map(|repetition| &repetition.phases);
        let worst = phases.filter_map(|phase| phase.others_percent).fold(0.0, f64::max);
        self.disturbance_percent = self.disturbance_percent.max(worst);
    }

    fn node(&self, data_memory: u64) -> NodeProgram {
        NodeProgram { data_memory: Some(data_memory), ..self.setting.node.clone() }
    }
}
