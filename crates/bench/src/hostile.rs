//! How a well-behaved client fares beside a hostile one.
//!
//! A *bystander* reads one row again and again. One [attack](attacks) after the other is made for some seconds, as fast
//! as a thread can. For each the benchmark measures the share of its rate that the bystander keeps meanwhile, the
//! longest time that one read took, and the rate within two seconds after the end. At the end no pool of the data node
//! may hold more than before, and the node must still run.
//!
//! The benchmark is about how the node shares its thread among clients, so the node has a CPU of its own, and attackers
//! use the time on the clients' CPU that the bystander leaves ([`places`]). Of two clients that share a thread each may
//! have half of it. The bystander needs it for about a third of its time, so it can keep nearly all of its rate, if the
//! pieces of the attacker's work are short beside a round trip. It can keep more than all: a node that is attacked is
//! awake, and need not be woken for each read.

mod attacks;
mod bystander;
pub mod places;
pub mod raw;

use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::meter::Meter;
use crate::node::NodeProgram;
use crate::progress::Progress;
use attacks::{ATTACKS, Attack, LONG_BYTES, Noise, Site};
use bystander::Bystander;
use places::{Places, Wakefulness};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, InfoTable, InfoValue, NewTable, Record, Value};

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct HostileOptions {
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Seconds of each attack
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Only attacks of this name; may be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(attacks::names()))]
    #[serde(default)]
    pub only: Vec<String>,
}

impl HostileOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let only: String = self.only.iter().map(|name| format!(" --only '{name}'")).collect();
        format!("vinga bench hostile --loops {} --seconds {}{only}", self.loops, self.seconds)
    }

    /// The attacks to make.
    fn attacks(&self) -> impl Iterator<Item = &'static Attack> {
        ATTACKS.iter().filter(|(name, _)| self.only.is_empty() || self.only.iter().any(|only| only == name))
    }
}

/// The effect of one attack on the bystander.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackResult {
    /// Its name.
    pub attack: String,
    /// Rounds of it.
    pub rounds: u64,
    /// The bystander's reads a second before.
    pub rate_before: f64,
    /// Its rate meanwhile, as a share of that.
    pub rate_kept: f64,
    /// Its best rate over half a second within two seconds after the end, as a share of that.
    pub rate_after: f64,
    /// The longest read meanwhile and afterwards, in seconds.
    pub longest_read: f64,
    /// How much of a CPU processes other than the node and its clients used, before and meanwhile: they cause a part of
    /// the loss.
    pub others_percent: f64,
}

/// Memory of the node: little, so that it can be filled.
pub const DATA_MEMORY_BYTES: u64 = 64 << 20;
/// How long the node may take to free the resources of attackers: grace times, time-outs.
const REST_PATIENCE: Duration = Duration::from_secs(15);
/// The span over which each rate is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// Runs all repetitions on a node that is started for the purpose.
///
/// # Errors
/// The node did not withstand an attack.
pub fn run(
    program: &NodeProgram,
    options: &HostileOptions,
    progress: &mut Progress,
) -> Result<Vec<Vec<AttackResult>>> {
    // In a separate thread, so that the caller is not bound to a CPU.
    thread::scope(|scope| {
        let run = scope.spawn(|| run_in_places(program, options, progress));
        run.join().expect("a measurement does not panic")
    })
}

fn run_in_places(
    program: &NodeProgram,
    options: &HostileOptions,
    progress: &mut Progress,
) -> Result<Vec<Vec<AttackResult>>> {
    let places = Places::here();
    progress.line(&places.line());
    let _awake = [places.node, places.clients].map(Wakefulness::of);
    places::bind(places.node)?;
    let node = program.start()?;
    places::bind(places.clients)?;
    let address = node.address().to_owned();
    let bystander = Bystander::start(&address)?;
    let site = site(&address)?;
    let pid = node.pid();
    let before = pools(&site.cluster)?;
    let mut results = Vec::new();
    for number in 1..=options.loops {
        let mut round = Vec::new();
        for attack in options.attacks() {
            let result = measure(&site, pid, &bystander, attack, options)?;
            progress.line(&format!("  {number}/{} {}", options.loops, line(&result)));
            round.push(result);
        }
        results.push(round);
    }
    bystander.stop()?;
    wait_for_rest(&site.cluster, &before)?;
    drop(site);
    node.stop()?;
    Ok(results)
}

fn site(address: &str) -> Result<Site> {
    let failed = || "cannot prepare the table".to_owned();
    let cluster = Cluster::connect(address).context(failed)?;
    let table = cluster
        .create_table(
            NewTable::new("bench.hostile")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("v", ColumnType::VarChar { bytes_max: 25_000 })
                .primary_key(&["id"]),
        )
        .context(failed)?;
    let row = Record::new([("id", Value::from(1u64)), ("v", Value::from("x".repeat(LONG_BYTES)))]);
    cluster.insert(&table, &row).context(failed)?;
    Ok(Site { address: address.to_owned(), cluster, table })
}

fn measure(
    site: &Site,
    node: u32,
    bystander: &Bystander,
    &(name, attack): &'static Attack,
    options: &HostileOptions,
) -> Result<AttackResult> {
    let meter = Meter::start(Some(node))?;
    let rate_before = bystander.rate(WINDOW * 2)?;
    bystander.take_longest();
    let stop = AtomicBool::new(false);
    let (rounds, rate) = thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let (mut rounds, mut noise) = (0, Noise(7));
            places::yield_to_everybody()?;
            while !stop.load(Ordering::Relaxed) {
                attack(site, &mut noise)?;
                rounds += 1;
            }
            Ok::<u64, Failure>(rounds)
        });
        let rate = bystander.rate(Duration::from_secs(options.seconds));
        stop.store(true, Ordering::Relaxed);
        let rounds = attacker.join().expect("attacks do not panic");
        Ok::<_, Failure>((rounds.context(|| format!("attack '{name}'"))?, rate?))
    })?;
    let others_percent = meter.stop()?.others_percent.unwrap_or(0.0);
    let mut rate_after: f64 = 0.0;
    for _ in 0..4 {
        rate_after = rate_after.max(bystander.rate(WINDOW)?);
    }
    Ok(AttackResult {
        attack: name.to_owned(),
        rounds,
        rate_before,
        rate_kept: rate / rate_before,
        rate_after: rate_after / rate_before,
        longest_read: bystander.take_longest().as_secs_f64(),
        others_percent,
    })
}

/// The use of each pool: block, pool, used.
fn pools(cluster: &Cluster) -> Result<Vec<(String, String, u64)>> {
    let rows =
        cluster.info(InfoTable::Pools).context(|| "the node does not say what its pools hold".into())?;
    let pool = |row: &Vec<InfoValue>| match &row[..] {
        [
            InfoValue::Number(node),
            InfoValue::Text(block),
            InfoValue::Text(pool),
            InfoValue::Number(used),
            ..,
        ] => Ok((format!("data node {node}, {block}"), pool.clone(), *used)),
        _ => Err(Failure::new("the list of pools has another form")),
    };
    rows.rows.iter().map(pool).collect()
}

fn wait_for_rest(cluster: &Cluster, before: &[(String, String, u64)]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let now = pools(cluster)?;
        let more = now.iter().zip(before).find(|(now, before)| now.2 > before.2);
        let Some((now, before)) = more else { return Ok(()) };
        if begun.elapsed() > REST_PATIENCE {
            let (block, pool, used) = now;
            return Err(Failure::new(format!(
                "{block}: pool '{pool}' holds {used}, before it was {}",
                before.2
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn line(result: &AttackResult) -> String {
    let AttackResult { attack, rounds, rate_before, rate_kept, rate_after, longest_read, others_percent } =
        result;
    format!(
        "{attack:<22} {rounds:>7} rounds   bystander {rate_before:>7.0}/s   kept {:>4.0} %   afterwards {:>4.0} %   longest read {:>5.1} ms   others {others_percent:>3.0} %",
        rate_kept * 100.0,
        rate_after * 100.0,
        longest_read * 1e3,
    )
}

/// The figures of a run: from each repetition the attack that was worst for the bystander.
pub fn figures(command: &str, results: &[Vec<AttackResult>]) -> Vec<Figure> {
    let worst = |value: fn(&AttackResult) -> f64, choose: fn(f64, f64) -> f64| -> Vec<f64> {
        let of_round = |round: &Vec<AttackResult>| round.iter().map(value).reduce(choose);
        results.iter().map(|round| of_round(round).expect("there are attacks")).collect()
    };
    vec![
        Figure::from_samples("hostile.rate_kept", "ratio", command, &worst(|r| r.rate_kept, f64::min)),
        Figure::from_samples("hostile.rate_after", "ratio", command, &worst(|r| r.rate_after, f64::min)),
        Figure::from_samples("hostile.longest_read", "s", command, &worst(|r| r.longest_read, f64::max)),
    ]
}
