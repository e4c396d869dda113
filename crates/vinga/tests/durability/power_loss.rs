//! What a power cut leaves of a node's files is always enough for everything that was promised.
//!
//! A node runs in this process, with real files, while every call by which it changes them is recorded. Clients work,
//! and the moments of their answers are recorded beside the calls. Then the power fails: the folder is made again as
//! it could be at some moment (`support/power/cut.rs` has what may be lost), a node is started there as a process,
//! and what it has restored is compared with what was done. Some of these folders are where the next node is
//! recorded, so power fails again and again on what earlier cuts have left, also during starts.
//!
//! `VINGA_SEED` is where the random numbers begin, `VINGA_CUTS` the number of cuts (40).

use crate::support::number;
use crate::tools::durable::DurableNode;
use crate::tools::image::Image;
use crate::tools::power::cut::Disk;
use crate::tools::power::history::{History, State};
use crate::tools::power::load;
use crate::tools::power::trace::{Event, Recorder};
use fastrand::Rng;
use std::path::Path;
use std::sync::Arc;
use vinga_config::configuration::Configuration;
use vinga_datanode::{Assembly, this_machine};
use vinga_kernel::InjectedBug;

/// Cuts of one recorded run of a node.
const CUTS_OF_A_RUN: usize = 10;

/// Parameters of all nodes: small files, and checkpoints, global ones and epochs so often that many cuts meet them.
const PARAMETERS: [(&str, &str); 8] = [
    ("DataMemory", "64M"),
    ("NoOfFragmentLogFiles", "3"),
    ("FragmentLogFileSize", "4M"),
    ("NoOfFragmentLogParts", "4"),
    ("TimeBetweenLocalCheckpoints", "14"),
    ("TimeBetweenGlobalCheckpoints", "40"),
    ("TimeBetweenEpochs", "5"),
    ("MaxNoOfOpenFiles", "20"),
];

/// Threads of the first run; later ones have others, but the log keeps its streams.
const THREADS: [&str; 3] =
    ["worker", "ldm={count=2},tc={count=2},recv,send,main", "ldm={count=4},tc,recv,send,main"];

/// A run of a node that was recorded.
struct Recorded {
    before: Image,
    base: State,
    events: Vec<Event>,
    /// The moment when the node was started.
    started: usize,
    history: History,
}

/// What a start has found.
struct Restored {
    state: State,
    epoch: u64,
}

/// Commits that a run brings to disk: some runs are so long that files of the log are used again.
fn durable_min(era: u64) -> usize {
    if era.is_multiple_of(4) { 800 } else { 60 }
}

/// Runs a node on what is in this image, with clients, and stops it.
fn record(image: &Image, base: &State, threads: &str, era: u64, bug: Option<InjectedBug>) -> Recorded {
    let place = tempfile::tempdir().expect("a folder can be made");
    image.write(place.path());
    let own = [
        ("HostName", "127.0.0.1"),
        ("ServerPort", "0"),
        ("SchedulerSpinTimer", "0"),
        ("ThreadConfig", threads),
    ];
    let parameters: Vec<_> = PARAMETERS.into_iter().chain(own).collect();
    let configuration = Configuration::new(None, &parameters, &this_machine()).expect("they are good");
    let assembly = Assembly::stored_in(&configuration, place.path()).expect("it can start from these files");
    let assembly = bug.into_iter().fold(assembly, Assembly::breaking);
    // Phase 0 has forced to the disk what it has changed.
    let before = Image::read(place.path());
    let recorder = Arc::new(Recorder::new(place.path()));
    let node = assembly.observed_by(recorder.clone()).start().expect("it starts from these files");
    let started = recorder.moment();
    let history = load::run(&node.address().to_string(), &recorder, base, era, durable_min(era));
    node.stop();
    Recorded { before, base: base.clone(), events: recorder.events(), started, history }
}

/// A moment at which the power fails: while the node starts, just when something was promised, or any other.
fn moment(run: &Recorded, random: &mut Rng) -> usize {
    let durable = run.history.transactions.iter().filter(|one| one.is_durable).map(|one| one.answered);
    let answered: Vec<usize> =
        durable.chain(run.history.definitions.iter().map(|one| one.answered)).collect();
    let moment = match random.u8(..8) {
        0 | 1 => random.usize(..=run.started),
        2 | 3 => random.usize(..=run.events.len()),
        _ => *random.choice(&answered).expect("something was promised") + random.usize(..3),
    };
    moment.min(run.events.len())
}

/// Starts a node as a process on such a folder, and reads what is there.
fn restore(image: &Image, run: &Recorded, moment: usize) -> Result<Restored, String> {
    let parameters: Vec<String> = PARAMETERS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let mut node = DurableNode::new(&parameters);
    image.write(node.folder());
    let cluster = node.try_start()?;
    let found = Restored { state: load::read(&cluster)?, epoch: node.restored_epoch().unwrap_or(0) };
    run.history.check(&run.base, moment, found.epoch, &found.state)?;
    // What is there now is there again after another kill, and can be changed.
    node.kill();
    let cluster = node.try_start()?;
    let again = load::read(&cluster)?;
    if again != found.state {
        return Err(format!("{again:?} is there at the second start, {:?} at the first", found.state));
    }
    load::use_up(&cluster, &found.state, &gone(run, &found.state))?;
    node.kill();
    assert_no_crash(node.folder(), &node.log())?;
    Ok(found)
}

/// Some values that rows had, but have no more.
fn gone(run: &Recorded, state: &State) -> Vec<u64> {
    let there: std::collections::BTreeSet<u64> = state.rows.values().copied().collect();
    let mut past = State::default();
    let mut values = std::collections::BTreeSet::new();
    for one in &run.history.transactions {
        past.apply(&one.effects);
        values.extend(past.rows.values().copied());
    }
    values.into_iter().filter(|value| !there.contains(value)).take(20).collect()
}

fn assert_no_crash(folder: &Path, log: &str) -> Result<(), String> {
    match folder.join("crash.txt").exists() || log.contains("panicked") {
        true => Err("the node has crashed".to_owned()),
        false => Ok(()),
    }
}

/// Cuts the power at so many moments; returns a folder that was left, and what is in it.
fn cuts(run: &Recorded, count: usize, random: &mut Rng) -> Result<(Image, State), String> {
    let mut kept = None;
    for _ in 0..count {
        let (moment, seed) = (moment(run, random), random.u64(..));
        let image = Disk::after(&run.before, &run.events[..moment]).cut(&mut Rng::with_seed(seed));
        let found = restore(&image, run, moment).map_err(|why| {
            let last = run.events[..moment].iter().rev().take(12).map(brief).collect::<Vec<_>>().join("\n  ");
            let files = image.describe();
            format!(
                "power fails at event {moment}, seed {seed}: {why}\nfiles: {files}\nlast events:\n  {last}"
            )
        })?;
        // The last one that is more than the beginning of a first start.
        if !found.state.tables.is_empty() || kept.is_none() {
            kept = Some((image, found.state));
        }
    }
    kept.ok_or_else(|| "no cut was made".to_owned())
}

/// An event without the bytes.
fn brief(event: &Event) -> String {
    let text = format!("{event:?}");
    text.chars().take(160).collect()
}

#[test]
fn whatever_a_power_cut_leaves_has_all_that_was_promised() {
    let (seed, count) = (number("VINGA_SEED", 1), number("VINGA_CUTS", 40) as usize);
    println!("VINGA_SEED={seed} VINGA_CUTS={count}");
    let mut random = Rng::with_seed(seed);
    let (mut image, mut state) = (Image::default(), State::default());
    for era in 0..count.div_ceil(CUTS_OF_A_RUN) {
        // Sometimes from the beginning, with other streams.
        if era % 6 == 5 {
            (image, state) = (Image::default(), State::default());
        }
        let threads = THREADS[(era + era / 6) % THREADS.len()];
        let run = record(&image, &state, threads, era as u64 + 1, None);
        (image, state) =
            cuts(&run, CUTS_OF_A_RUN, &mut random).unwrap_or_else(|why| panic!("run {era}: {why}"));
        println!("run {era}: {} events, {} transactions", run.events.len(), run.history.transactions.len());
    }
}

/// The check notices a node that leaves something out.
#[cfg(feature = "injected-bugs")]
#[test]
fn a_node_that_leaves_out_a_flush_is_noticed() {
    for bug in
        [InjectedBug::FlushLeftOut, InjectedBug::DefinitionFlushLeftOut, InjectedBug::DurableCommitNotAwaited]
    {
        let mut random = Rng::with_seed(number("VINGA_SEED", 1));
        let run = record(&Image::default(), &State::default(), THREADS[0], 1, Some(bug));
        match cuts(&run, 60, &mut random) {
            Ok(_) => panic!("{} is not noticed", bug.name()),
            Err(why) => println!("{}: {why}", bug.name()),
        }
    }
}
