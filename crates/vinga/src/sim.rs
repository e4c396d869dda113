//! `vinga sim`: whole clusters in one thread, from seeds.

use clap::Args;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;
use vinga_kernel::Mutation;
use vinga_sim::{Options, Report, run_seed, run_twice};

/// `vinga sim …`.
#[derive(Args)]
pub struct SimArguments {
    /// Run one seed
    #[arg(long, conflicts_with_all = ["seeds", "forever"])]
    seed: Option<u64>,
    /// Run the seeds from A up to B
    #[arg(long, value_name = "A..B", value_parser = seed_range, conflicts_with = "forever")]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds until told to stop
    #[arg(long)]
    forever: bool,
    /// Print every event
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run each seed two times: the histories must be the same
    #[arg(long)]
    twice: bool,
    /// Break a rule of the protocols on purpose (only in builds with the feature 'mutations'): the run must fail
    #[arg(long, value_name = "NAME", value_parser = mutation)]
    mutation: Option<Mutation>,
}

fn seed_range(text: &str) -> Result<Range<u64>, String> {
    let parse = |text: &str| text.parse::<u64>().map_err(|error| format!("'{text}': {error}"));
    let (first, end) = text.split_once("..").ok_or("expected A..B, such as 1..100")?;
    let range = parse(first)?..parse(end)?;
    if range.is_empty() { Err(format!("{text} holds no seed")) } else { Ok(range) }
}

fn mutation(name: &str) -> Result<Mutation, String> {
    Mutation::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Mutation::ALL.iter().map(|m| m.name()).collect();
        format!("there is no mutation '{name}'; there are: {}", names.join(", "))
    })
}

/// Runs what is asked for.
///
/// # Errors
/// The first violation, with its seed and how to repeat it.
pub fn run(arguments: &SimArguments) -> Result<(), String> {
    if arguments.mutation.is_some() && !cfg!(feature = "mutations") {
        return Err(
            "this build has no mutations; build with: cargo build --profile sim --features mutations"
                .to_owned(),
        );
    }
    let trace: Option<fn(&str)> = arguments.trace.then_some(|line: &str| println!("{line}"));
    let options = Options { mutation: arguments.mutation, trace, ..Options::default() };
    let range = match (arguments.seed, &arguments.seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(range)) => range.clone(),
        (None, None) if arguments.forever => fresh_seed()..u64::MAX,
        (None, None) => return Err("which seeds? --seed N, --seeds A..B or --forever".to_owned()),
    };
    let begun = Instant::now();
    let mut total = Total::default();
    for seed in range.clone() {
        let report = if arguments.twice { run_twice(seed, &options)? } else { run_seed(seed, &options) };
        if arguments.seed.is_some() {
            println!("{report}");
        }
        if report.violation.is_some() {
            println!("{report}");
            return Err(format!(
                "seed {seed} found a violation; repeat it with: vinga sim --seed {seed} --trace"
            ));
        }
        total.add(&report);
        if total.seeds.is_multiple_of(100) && range.end - range.start > 100 {
            println!("{}", total.line(begun));
        }
    }
    println!("{}", total.line(begun));
    if total.seeds > 1 {
        println!("rare branches met: {}", total.probes.len());
        for probe in &total.probes {
            println!("  {probe}");
        }
    }
    Ok(())
}

/// A seed that was most likely never run.
fn fresh_seed() -> u64 {
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    fastrand::Rng::with_seed(age.as_nanos() as u64).u64(..1 << 48)
}

/// What many runs did.
#[derive(Default)]
struct Total {
    seeds: u64,
    signals: u64,
    transactions: usize,
    committed: usize,
    probes: BTreeSet<&'static str>,
    hash: u64,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.signals += report.signals;
        self.transactions += report.transactions.0;
        self.committed += report.transactions.1;
        self.probes.extend(&report.probes);
        self.hash = self.hash.rotate_left(1) ^ report.hash;
    }

    fn line(&self, begun: Instant) -> String {
        let seconds = begun.elapsed().as_secs_f64();
        format!(
            "{} seeds in {seconds:.1} s without a violation: {} transactions, {} committed, {} signals, history {:016x}",
            self.seeds, self.transactions, self.committed, self.signals, self.hash
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(seed_range("3..5"), Ok(3..5));
        assert!(seed_range("5..5").is_err() && seed_range("5").is_err() && seed_range("a..b").is_err());
        assert!(mutation("nonsense").unwrap_err().contains("answer-before-primary"));
    }
}
