//! Folders of stopped and killed nodes, damaged at random: a node that starts from one has everything that was
//! durable, or it refuses with a sentence that names the file and says what to do. It never has less, and it never
//! crashes. What `vinga inspect folder` says before is what the start says then.
//!
//! `VINGA_SEED` is where the random numbers begin, `VINGA_DAMAGES` the number of damaged folders (30).

use crate::support::{HANG_GUARD, number};
use crate::tools::durable::DurableNode;
use crate::tools::image::Image;
use crate::tools::power::history::State;
use crate::tools::power::load;
use crate::tools::power::trace::Recorder;
use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vinga_format::Checksum;
use vinga_format::system::choose;

/// What nodes read and write, and how many damaged folders are tried for one that was made.
const SECTOR: usize = 4096;
const DAMAGES_OF_A_BASE: usize = 30;

/// Parameters of all nodes: small files, and checkpoints so often that each start has some.
const PARAMETERS: [&str; 6] = [
    "NoOfFragmentLogFiles=3",
    "FragmentLogFileSize=4M",
    "NoOfFragmentLogParts=4",
    "TimeBetweenLocalCheckpoints=14",
    "TimeBetweenGlobalCheckpoints=40",
    "TimeBetweenEpochs=5",
];

/// How a node works before its folder is damaged.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    threads: &'static str,
    is_killed: bool,
    /// Commits that each of its six runs of clients brings to disk at least.
    durable_min: usize,
}

/// The second one writes so much that files of the log are used again: its checkpoints are needed.
const WAYS: [Way; 4] = [
    Way { name: "stopped", threads: "ldm={count=2},tc,recv,send,main", is_killed: false, durable_min: 60 },
    Way { name: "killed", threads: "worker", is_killed: true, durable_min: 400 },
    Way { name: "stopped", threads: "worker", is_killed: false, durable_min: 400 },
    Way { name: "killed", threads: "ldm={count=2},tc,recv,send,main", is_killed: true, durable_min: 60 },
];

/// The folder of a node that has ended, with what files can be exchanged with.
struct Base {
    way: Way,
    image: Image,
    /// All of it was durable when the node ended.
    state: State,
    /// The same folder, earlier: after stops and kills, and while the node ran.
    older: Vec<Image>,
    /// Folders of another node, and of another cluster.
    foreign: Vec<Image>,
}

/// Runs a node on what is in its folder, with clients, and has all that they did brought to disk; returns what is
/// there, and the folder as it was at some moment meanwhile.
fn work(node: &mut DurableNode, state: &State, era: u64, durable_min: usize) -> (State, Image) {
    let cluster = node.start();
    let recorder = Arc::new(Recorder::new(node.folder()));
    load::run(&node.address(), &recorder, state, era, durable_min);
    let meanwhile = Image::read(node.folder());
    load::run(
        &node.address(),
        &recorder,
        &load::read(&cluster).expect("it can be read"),
        era + 1000,
        durable_min,
    );
    let last = load::touch(&cluster);
    // The system file is written behind the answer.
    let begun = Instant::now();
    while durable_epoch(node.folder()) < last {
        assert!(begun.elapsed() < HANG_GUARD, "epoch {last} is not noted in the system file");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    (load::read(&cluster).expect("it can be read"), meanwhile)
}

/// What the system file says at the moment.
fn durable_epoch(folder: &Path) -> u64 {
    let copies = [0, 1].map(|copy| fs::read(folder.join(format!("system/000-0000000{copy}.sys"))));
    let copies = copies.map(Result::unwrap_or_default);
    // A copy may just be being written.
    choose([&copies[0], &copies[1]], Checksum::SOFTWARE).map_or(0, |chosen| chosen.copy.state.durable_epoch.0)
}

/// A node without a process that works in this way, with more parameters.
fn node_of(way: Way, more: &[&str]) -> DurableNode {
    let threads = format!("ThreadConfig={}", way.threads);
    DurableNode::new(&[&PARAMETERS[..], &[threads.as_str()], more].concat())
}

fn make_base(way: Way, random: &mut Rng) -> Base {
    let foreign = [&[][..], &["NodeId=2"]].map(|more| {
        let mut node = node_of(way, more);
        work(&mut node, &State::default(), 1, 60);
        node.stop();
        Image::read(node.folder())
    });
    let mut node = node_of(way, &[]);
    let (mut state, mut older) = (State::default(), Vec::new());
    load::make_bulk(&node.start(), 1500);
    node.stop();
    for era in 1..=3 {
        let meanwhile;
        (state, meanwhile) = work(&mut node, &state, era, way.durable_min);
        if way.is_killed || era < 3 && random.bool() {
            node.kill();
        } else {
            node.stop();
        }
        older.push(meanwhile);
        older.push(Image::read(node.folder()));
    }
    let image = older.pop().expect("it was just read");
    Base { way, image, state, older, foreign: foreign.to_vec() }
}

/// Damages a folder once; returns what was done. One file is changed, or two are exchanged.
fn damage(base: &Base, random: &mut Rng) -> (Image, String) {
    let mut image = base.image.clone();
    let folder = *random
        .choice(&["redo", "redo", "redo", "checkpoint", "checkpoint", "schema", "system"])
        .expect("some");
    let names: Vec<String> = image.files.keys().filter(|name| name.starts_with(folder)).cloned().collect();
    let name = random.choice(&names).expect("each folder has files").clone();
    let other = random.choice(&names).expect("each folder has files").clone();
    let before = image.files[&name].clone();
    let file = image.files.get_mut(&name).expect("it was listed");
    let at = place(file, random);
    let what = match random.u8(..15) {
        0 | 1 => {
            let bit = random.u32(..8);
            file[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} of {name} is changed")
        }
        2 => {
            let end = (at + random.usize(1..100_000)).min(file.len());
            file[at..end].fill(0);
            format!("bytes {at}..{end} of {name} are zeros")
        }
        3 => {
            let end = (at + random.usize(1..100_000)).min(file.len());
            random.fill(&mut file[at..end]);
            format!("bytes {at}..{end} of {name} are garbage")
        }
        4 => {
            file.truncate(at);
            format!("{name} is cut off at {at}")
        }
        5 => {
            file.truncate(at / SECTOR * SECTOR);
            format!("{name} is cut off at {}", at / SECTOR * SECTOR)
        }
        6 => {
            file.clear();
            format!("{name} is empty")
        }
        7 => {
            image.files.remove(&name);
            format!("{name} is removed")
        }
        8 => {
            let bytes = image.files[&other].clone();
            let replaced = image.files.insert(name.clone(), bytes).expect("it is there");
            image.files.insert(other.clone(), replaced);
            format!("{name} and {other} are exchanged")
        }
        9 => {
            image.files.insert(name.clone(), image.files[&other].clone());
            format!("{other} is copied over {name}")
        }
        10 => {
            let count = random.usize(1..10_000);
            file.extend((0..count).map(|_| random.u8(..)));
            format!("{count} bytes of garbage are behind the end of {name}")
        }
        11 => replace(&mut image, random, &base.older, folder, "an older copy"),
        12 => replace(&mut image, random, &base.foreign, folder, "a file of others"),
        13 => {
            // A write that went elsewhere.
            let (from, to) = (at / SECTOR * SECTOR, place(file, random) / SECTOR * SECTOR);
            let sector = file[from..(from + SECTOR).min(file.len())].to_vec();
            let end = (to + sector.len()).min(file.len());
            file[to..end].copy_from_slice(&sector[..end - to]);
            format!("the sector at {from} of {name} is copied to {to}")
        }
        _ => {
            // Writes that were lost.
            let older = random.choice(&base.older).expect("there are some").files.get(&name);
            let from = at / SECTOR * SECTOR;
            let to = (from + SECTOR * random.usize(1..20)).min(file.len());
            if let Some(bytes) = older.and_then(|older| older.get(from..to)) {
                file[from..to].copy_from_slice(bytes);
            }
            format!("bytes {from}..{to} of {name} are older")
        }
    };
    match image.files.get(&name) == Some(&before) {
        true => damage(base, random),
        false => (image, what),
    }
}

/// Puts a file from elsewhere into the folder, in place of the one that has its name, or beside the others.
fn replace(image: &mut Image, random: &mut Rng, from: &[Image], folder: &str, what: &str) -> String {
    let from = random.choice(from).expect("there are some");
    let names: Vec<_> = from.files.iter().filter(|(name, _)| name.starts_with(folder)).collect();
    let (name, bytes) = *random.choice(&names).expect("each folder has files");
    image.files.insert(name.clone(), bytes.clone());
    format!("{name} is {what}")
}

/// A place in a file: mostly where something was written.
fn place(file: &[u8], random: &mut Rng) -> usize {
    let is_written = |sector: &usize| file[*sector..].iter().take(64).any(|&byte| byte != 0);
    let written: Vec<usize> = (0..file.len()).step_by(SECTOR).filter(is_written).collect();
    let anywhere = random.usize(..file.len().max(1));
    match random.choice(&written) {
        Some(sector) if random.u8(..5) != 0 => (sector + random.usize(..SECTOR)).min(file.len() - 1),
        _ => anywhere,
    }
}

/// What became of a start.
enum Outcome {
    Whole,
    Refused(String),
}

/// Starts a node from such a folder.
fn try_start(base: &Base, image: &Image) -> Result<Outcome, String> {
    let mut node = node_of(base.way, &[]);
    image.write(node.folder());
    for round in ["first", "second"] {
        let look = node.look();
        let started = node.try_start();
        let refused = started.as_ref().err().map(|log| refusal(log)).transpose()?;
        compare(&node, &look, refused, round == "second" || is_in_one_place(&base.image, image))?;
        let outcome = match started {
            Ok(cluster) if round == "first" => {
                let found = load::read(&cluster)?;
                if found != base.state {
                    return Err(format!("{found:?} is there, not {:?}", base.state));
                }
                load::touch(&cluster);
                node.kill();
                None
            }
            Ok(cluster) => {
                let found = load::read(&cluster)?;
                node.stop();
                match found == base.state {
                    true => Some(Outcome::Whole),
                    false => {
                        return Err(format!("{found:?} is there at the second start, not {:?}", base.state));
                    }
                }
            }
            Err(log) => Some(Outcome::Refused(refusal(&log)?)),
        };
        if node.file("crash.txt").exists() {
            return Err(format!("the node has crashed: {}", node.log()));
        }
        match outcome {
            Some(Outcome::Refused(why)) if round == "second" => {
                return Err(format!("the second start is refused, though the first one was not: {why}"));
            }
            Some(outcome) => return Ok(outcome),
            None => {}
        }
    }
    unreachable!("the second round has an outcome")
}

/// Whether what is wrong with a folder is in one file, and this is no copy of another one, which is met as soon.
fn is_in_one_place(whole: &Image, damaged: &Image) -> bool {
    let names: BTreeSet<&String> = whole.files.keys().chain(damaged.files.keys()).collect();
    let mut changed = names.into_iter().filter(|&name| whole.files.get(name) != damaged.files.get(name));
    let (first, second) = (changed.next(), changed.next());
    let bytes = first.and_then(|first| damaged.files.get(first));
    let others = damaged.files.iter().filter(|(name, _)| Some(*name) != first);
    second.is_none() && !bytes.is_some_and(|bytes| others.into_iter().any(|(_, other)| other == bytes))
}

/// Whether a start has come to what `vinga inspect folder` has said before it. If several files are wrong, which are
/// read at the same time, the first one that is met refuses the start: then the sentences need not be the same.
fn compare(
    node: &DurableNode,
    look: &Result<Value, String>,
    refused: Option<String>,
    is_exact: bool,
) -> Result<(), String> {
    let number = |text: &str| Some(text.split_once("(error ")?.1.split_once(')')?.0.to_owned());
    match (look, refused) {
        (Ok(found), None) if found["restored"]["epoch"].as_u64() == node.restored_epoch() => Ok(()),
        (Ok(found), None) => Err(format!("epoch {:?} was restored, not as {found}", node.restored_epoch())),
        (Ok(found), Some(why)) => Err(format!("the start is refused: {why}\nbefore it was said: {found}")),
        (Err(why), None) => Err(format!("the node has started, but it was said before: {why}")),
        (Err(why), Some(refusal)) => {
            match number(why) == number(&refusal) && (*why == refusal || !is_exact) {
                true => Ok(()),
                false => Err(format!("the start says: {refusal}\nbefore it was said: {why}")),
            }
        }
    }
}

/// The sentence of a node that has refused to start: it names a file, and says what to do.
fn refusal(log: &str) -> Result<String, String> {
    let (_, log) =
        log.split_once("exit code Some(1): ").ok_or_else(|| format!("it has not refused: {log}"))?;
    let sentence = log.lines().find_map(|line| line.strip_prefix("vinga: "));
    let sentence = sentence.ok_or_else(|| format!("no sentence says why: {log}"))?;
    let files = [
        "redo/",
        "redo log of stream",
        "of stream",
        "system/",
        "schema/",
        "folder \"schema\"",
        "checkpoint/",
    ];
    let advice = ["restore", "--initial", "--folder", "use the program"];
    let has = |parts: &[&str]| parts.iter().any(|part| sentence.contains(part));
    match has(&files) && has(&advice) {
        true => Ok(sentence.to_owned()),
        false => Err(format!("it does not name the file, or not what to do: {sentence}")),
    }
}

#[test]
fn a_damaged_folder_has_everything_or_is_refused() {
    let (seed, count) = (number("VINGA_SEED", 1), number("VINGA_DAMAGES", 30) as usize);
    println!("VINGA_SEED={seed} VINGA_DAMAGES={count}");
    let mut random = Rng::with_seed(seed);
    let (mut whole, mut refused) = (0, 0);
    for round in 0..count.div_ceil(DAMAGES_OF_A_BASE) {
        for way in &WAYS[round % 2 * 2..][..2] {
            let base = &make_base(*way, &mut random);
            // Nothing is missing without damage.
            let outcome = try_start(base, &base.image);
            assert!(matches!(outcome, Ok(Outcome::Whole)), "{:?}", outcome.err());
            for _ in 0..DAMAGES_OF_A_BASE.min(count) / 2 {
                let (image, what) = damage(base, &mut random);
                match try_start(base, &image) {
                    Ok(Outcome::Whole) => {
                        println!("{} node, {what}: starts", base.way.name);
                        whole += 1;
                    }
                    Ok(Outcome::Refused(why)) => {
                        println!("{} node, {what}: {why}", base.way.name);
                        refused += 1;
                    }
                    Err(why) => panic!(
                        "round {round}, {} node, {what}: {why}\nfiles: {}",
                        base.way.name,
                        base.image.describe()
                    ),
                }
            }
        }
    }
    println!("{whole} of {count} damaged folders were started from, {refused} refused");
    assert!(whole > 0 && refused > 0, "both happens");
}

/// Files that are whole, each for itself, but do not belong together.
#[test]
fn inspection_compares_files_as_a_start_does() {
    let mut random = Rng::with_seed(number("VINGA_SEED", 1));
    let base = &make_base(WAYS[1], &mut random);
    let of_kind = |image: &Image, kind: &str| -> Vec<(String, Vec<u8>)> {
        let of_kind = image.files.iter().filter(|(name, _)| name.starts_with(kind));
        of_kind.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
    };
    let changed = |change: &dyn Fn(&mut Image)| {
        let mut image = base.image.clone();
        change(&mut image);
        image
    };
    let without =
        |kind: &'static str| changed(&|image| image.files.retain(|name, _| !name.starts_with(kind)));
    let [other_cluster, other_node] = &base.foreign[..] else { panic!("there are two") };
    // The newest checkpoints of two data managers.
    let newest = |owner: &str| {
        let all = of_kind(&base.image, &format!("checkpoint/{owner}-"));
        all.last().expect("each data manager has one").clone()
    };
    let exchanged = changed(&|image| {
        let ((one, its), (other, others)) = (newest("000"), newest("001"));
        image.files.extend([(one, others), (other, its)]);
    });
    for (what, image, starts) in [
        ("nothing is changed", base.image.clone(), true),
        ("the system file is missing", without("system"), false),
        ("the log is missing", without("redo"), false),
        ("checkpoints are missing", without("checkpoint"), false),
        ("definitions are missing", without("schema"), false),
        (
            "the system file is another cluster's",
            changed(&|image| image.files.extend(of_kind(other_cluster, "system"))),
            false,
        ),
        (
            "the system file is another node's",
            changed(&|image| image.files.extend(of_kind(other_node, "system"))),
            false,
        ),
        (
            "the log is of an earlier moment",
            changed(&|image| image.files.extend(of_kind(&base.older[0], "redo"))),
            false,
        ),
        ("two data managers have each other's checkpoint", exchanged, false),
        (
            "there is a file that no node makes",
            changed(&|image| {
                let (_, bytes) = of_kind(image, "schema").pop().expect("there are definitions");
                image.files.insert("schema/000-00000005.schema".to_owned(), bytes);
            }),
            true,
        ),
    ] {
        match try_start(base, &image) {
            Ok(Outcome::Whole) => assert!(starts, "{what}, and the node starts"),
            Ok(Outcome::Refused(why)) => assert!(!starts, "{what}: {why}"),
            Err(why) => panic!("{what}: {why}\nfiles: {}", base.image.describe()),
        }
    }
}
