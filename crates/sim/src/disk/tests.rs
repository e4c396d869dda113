//! The disk by itself.

use super::contents::ATOM_BYTES;
use super::*;
use std::collections::VecDeque;
use vinga_base::NodeId;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_kernel::files::{Data, FileKind};
use vinga_wire::{Address, BlockNumber};

const SECTOR: u64 = SECTOR_BYTES as u64;
const PROFILE: DiskProfile = DiskProfile { least: 100, jitter: 400, bytes_per_micro: 100, quota: 1 << 20 };

fn redo(number: u64) -> FileName {
    FileName::new(FileKind::Redo, 0, number)
}

fn write(sector: u64, sectors: usize, byte: u8) -> FileTask {
    let data = AlignedBuffer::copy_of(&vec![byte; sectors * SECTOR_BYTES]);
    FileTask::Write { offset: sector * SECTOR, data: Data(data) }
}

fn read(sector: u64, sectors: u32) -> FileTask {
    FileTask::Read { offset: sector * SECTOR, bytes: sectors * SECTOR as u32 }
}

/// A disk with its clock and what was asked of it.
struct Rig {
    disk: Disk,
    now: Time,
    tokens: u64,
    /// Time, ticket and token, by ticket.
    asked: VecDeque<(Time, u64, u64)>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        Rig { disk: Disk::new(PROFILE, seed), now: 0, tokens: 0, asked: VecDeque::new() }
    }

    fn ask(&mut self, file: FileName, task: FileTask) -> u64 {
        self.tokens += 1;
        let requester = Address::new(NodeId(1), BlockNumber::DataManager, 0);
        let request = FileRequest { requester, token: self.tokens, file, task };
        let (done, ticket) = self.disk.submit(ThreadId(0), request, self.now);
        assert!(done > self.now);
        self.asked.push_back((done, ticket, self.tokens));
        self.tokens
    }

    /// The next answer, in the order of their times.
    fn next(&mut self) -> Option<FileAnswer> {
        let (at, _) = self.asked.iter().enumerate().min_by_key(|(_, (done, ticket, _))| (*done, *ticket))?;
        let (done, ticket, token) = self.asked.remove(at)?;
        self.now = done;
        let (_, answer) = self.disk.complete(ticket, done).expect("no crash");
        assert_eq!(answer.token, token);
        Some(answer)
    }

    /// Carries a task out, with all that were asked for before.
    fn run(&mut self, file: FileName, task: FileTask) -> Result<FileData, FileError> {
        let token = self.ask(file, task);
        let mut result = None;
        while let Some(answer) = self.next() {
            if answer.token == token {
                result = Some(answer.result);
            }
        }
        result.expect("it was answered")
    }

    fn bytes(&mut self, file: FileName, sector: u64, sectors: u32) -> Vec<u8> {
        match self.run(file, read(sector, sectors)).unwrap() {
            FileData::Bytes(data, filled) => data[..filled].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn crash(&mut self, random: &mut Rng) {
        self.disk.crash(random);
        for (done, ticket, _) in std::mem::take(&mut self.asked) {
            assert!(self.disk.complete(ticket, done).is_none(), "what was under way is never answered");
        }
    }
}

#[test]
fn tasks_do_what_they_promise() {
    let mut rig = Rig::new(1);
    let missing = rig.run(redo(1), write(0, 1, 1)).unwrap_err();
    assert_eq!(missing.kind, FileErrorKind::NotFound);
    assert_eq!(missing.text, "write redo/000-00000001.redo: there is no such file");
    rig.run(redo(1), FileTask::Allocate { bytes: 2 * SECTOR }).unwrap();
    assert_eq!(rig.bytes(redo(1), 0, 4), vec![0; 2 * SECTOR_BYTES]);
    rig.run(redo(1), write(1, 2, 5)).unwrap();
    rig.run(redo(1), write(2, 1, 6)).unwrap();
    rig.run(redo(1), FileTask::Fill { offset: SECTOR, bytes: SECTOR }).unwrap();
    let mut expected = vec![0; 3 * SECTOR_BYTES];
    expected[2 * SECTOR_BYTES..].fill(6);
    assert_eq!(rig.bytes(redo(1), 0, 4), expected);
    rig.run(redo(1), FileTask::Flush).unwrap();
    assert_eq!(rig.bytes(redo(1), 0, 4), expected);
    rig.run(redo(2), FileTask::Allocate { bytes: SECTOR }).unwrap();
    rig.run(redo(1), FileTask::Rename { to: redo(2) }).unwrap();
    rig.run(FileName::new(FileKind::Redo, 1, 1), FileTask::Allocate { bytes: 0 }).unwrap();
    let FileData::Names(names) = rig.run(redo(9), FileTask::List).unwrap() else { panic!("names") };
    assert_eq!(names, [(redo(2), 3 * SECTOR)]);
    assert_eq!(rig.disk.list().len(), 2);
    rig.run(redo(2), FileTask::Remove).unwrap();
    rig.run(redo(2), FileTask::Remove).unwrap();
    assert_eq!(rig.disk.list().len(), 1);
    rig.disk.reset();
    assert_eq!(rig.disk.list(), []);
}

#[test]
fn tasks_on_a_file_follow_each_other_and_others_overtake() {
    let mut rig = Rig::new(2);
    let mut overtakes = 0;
    for _ in 0..100 {
        for number in 1..4 {
            rig.ask(redo(number), FileTask::Allocate { bytes: SECTOR });
            rig.ask(redo(number), write(0, 1, 1));
            rig.ask(redo(number), FileTask::Flush);
        }
        // It waits for both, and what follows on either waits for it.
        let rename = rig.ask(redo(1), FileTask::Rename { to: redo(2) });
        let behind = [rig.ask(redo(1), FileTask::Remove), rig.ask(redo(2), read(0, 1))];
        let mut order = Vec::new();
        while let Some(answer) = rig.next() {
            answer.result.unwrap();
            order.push(answer.token);
        }
        let at = |token: u64| order.iter().position(|&other| other == token).unwrap();
        let first = rename - 9;
        for file in 0..3 {
            assert!(at(first + 3 * file) < at(first + 3 * file + 1));
            assert!(at(first + 3 * file + 1) < at(first + 3 * file + 2));
        }
        assert!((0..6).all(|i| at(first + i) < at(rename)) && behind.iter().all(|&t| at(rename) < at(t)));
        overtakes += u32::from(at(first + 3) < at(first + 2));
    }
    assert!(overtakes > 0);
}

/// What each atom may be after a crash: by number, all contents.
type Allowed = Vec<BTreeSet<u8>>;

/// A run of random writes and flushes until a crash; checks that of each atom either the durable content or one that
/// was written since is left, and returns which of these happened.
fn crash_after_random_writes(seed: u64) -> (bool, bool, bool) {
    const SECTORS: u64 = 6;
    let mut random = Rng::with_seed(seed);
    let mut rig = Rig::new(seed);
    rig.run(redo(1), FileTask::Allocate { bytes: SECTORS * SECTOR }).unwrap();
    let atoms = (SECTORS * SECTOR) as usize / ATOM_BYTES;
    let mut allowed: Allowed = vec![BTreeSet::from([0]); atoms];
    let mut newest = vec![0; atoms];
    let atoms_of = |sector: u64, sectors: usize| {
        let per_sector = SECTOR_BYTES / ATOM_BYTES;
        (sector as usize * per_sector)..(sector as usize + sectors) * per_sector
    };
    for byte in 1..=random.u8(1..20) {
        let sector = random.u64(..SECTORS);
        let sectors = random.usize(1..=(SECTORS - sector) as usize);
        rig.run(redo(1), write(sector, sectors, byte)).unwrap();
        for atom in atoms_of(sector, sectors) {
            allowed[atom].insert(byte);
            newest[atom] = byte;
        }
        if random.u8(..4) == 0 {
            rig.run(redo(1), FileTask::Flush).unwrap();
            for (allowed, &newest) in allowed.iter_mut().zip(&newest) {
                *allowed = BTreeSet::from([newest]);
            }
        }
    }
    // Some that are under way: they may be done, or not.
    for byte in 100..100 + random.u8(..4) {
        let sector = random.u64(..SECTORS);
        rig.ask(redo(1), write(sector, 1, byte));
        for atom in atoms_of(sector, 1) {
            allowed[atom].insert(byte);
        }
    }
    rig.crash(&mut random);
    let left = rig.bytes(redo(1), 0, SECTORS as u32);
    assert_eq!(left.len() as u64, SECTORS * SECTOR);
    let (mut lost, mut kept, mut torn) = (false, false, false);
    for (atom, bytes) in left.chunks(ATOM_BYTES).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "seed {seed}: atom {atom} is torn");
        assert!(allowed[atom].contains(&bytes[0]), "seed {seed}: atom {atom} has {}", bytes[0]);
        if allowed[atom].len() > 1 {
            lost |= bytes[0] != newest[atom];
            kept |= bytes[0] == newest[atom];
        }
    }
    for sector in left.chunks(SECTOR_BYTES) {
        torn |= sector.iter().any(|&byte| byte != sector[0]);
    }
    // What a crash has left is durable.
    rig.crash(&mut random);
    assert_eq!(rig.bytes(redo(1), 0, SECTORS as u32), left);
    (lost, kept, torn)
}

#[test]
fn a_crash_leaves_each_atom_as_it_was_durable_or_written_since() {
    let seen: Vec<_> = (0..2_000).map(crash_after_random_writes).collect();
    let count = |what: fn(&(bool, bool, bool)) -> bool| seen.iter().filter(|seen| what(seen)).count();
    let counts =
        [count(|s| s.0), count(|s| s.1), count(|s| s.2), count(|s| !s.0 && s.1), count(|s| s.0 && !s.1)];
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn names_are_durable_when_confirmed_and_left_to_chance_before() {
    let mut left: BTreeSet<Vec<u64>> = BTreeSet::new();
    for seed in 0..300 {
        let mut rig = Rig::new(seed);
        rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap();
        rig.run(redo(1), write(0, 1, 1)).unwrap();
        rig.run(redo(1), FileTask::Flush).unwrap();
        rig.run(redo(3), FileTask::Allocate { bytes: SECTOR }).unwrap();
        rig.run(redo(3), FileTask::Remove).unwrap();
        rig.ask(redo(1), FileTask::Rename { to: redo(2) });
        rig.ask(redo(2), write(0, 1, 2));
        rig.ask(redo(2), FileTask::Flush);
        rig.ask(redo(4), FileTask::Allocate { bytes: SECTOR });
        rig.crash(&mut Rng::with_seed(seed));
        let names: Vec<u64> = rig.disk.list().iter().map(|(name, _)| name.number).collect();
        let own = rig.bytes(redo(names[0]), 0, 1);
        assert!(own.iter().all(|&byte| byte == 1 || byte == 2 && names[0] == 2));
        left.insert(names);
    }
    assert_eq!(left, BTreeSet::from([vec![1], vec![2], vec![1, 4], vec![2, 4]]));
}

#[test]
fn nothing_is_written_behind_a_write_or_flush_that_has_failed() {
    for (seed, failing) in
        (0..).zip([write(0, 1, 1), FileTask::Flush, FileTask::Fill { offset: 0, bytes: SECTOR }])
    {
        let mut rig = Rig::new(seed);
        for number in [1, 2] {
            rig.run(redo(number), FileTask::Allocate { bytes: 2 * SECTOR }).unwrap();
        }
        rig.disk.faults.failing = 1;
        rig.ask(redo(1), failing);
        // They are on their way when it fails.
        rig.ask(redo(1), write(1, 1, 2));
        rig.ask(redo(1), FileTask::Flush);
        for _ in 0..3 {
            assert_eq!(rig.next().unwrap().result.unwrap_err().kind, FileErrorKind::Failed);
        }
        assert_eq!(rig.bytes(redo(1), 1, 1), vec![0; SECTOR_BYTES], "reads are carried out");
        rig.run(redo(2), write(0, 1, 3)).expect("other files are written");
        let error = rig.run(redo(1), write(1, 1, 2)).unwrap_err();
        assert_eq!(error.text, "write redo/000-00000001.redo: an earlier write or flush of it has failed");
        rig.crash(&mut Rng::with_seed(seed));
        rig.run(redo(1), write(1, 1, 2)).expect("until the node starts again");
    }
}

#[test]
fn what_a_flush_has_failed_to_write_may_be_lost_although_the_next_one_succeeds() {
    let mut losses = 0;
    for seed in 0..200 {
        let mut rig = Rig::new(seed);
        rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap();
        rig.run(redo(1), write(0, 1, 1)).unwrap();
        rig.disk.faults.failing = 1;
        let failed = rig.run(redo(1), FileTask::Flush).unwrap_err();
        assert_eq!(failed.kind, FileErrorKind::Failed);
        // The file is opened again by its new name: nothing is known of the failure.
        rig.run(redo(1), FileTask::Rename { to: redo(2) }).unwrap();
        rig.run(redo(2), FileTask::Flush).unwrap();
        assert_eq!(rig.bytes(redo(2), 0, 1), vec![1; SECTOR_BYTES], "reads see it");
        let mut random = Rng::with_seed(seed);
        let is_rewritten = random.bool();
        if is_rewritten {
            rig.run(redo(2), write(0, 1, 2)).unwrap();
            rig.run(redo(2), FileTask::Flush).unwrap();
            assert_eq!(rig.bytes(redo(2), 0, 1), vec![2; SECTOR_BYTES]);
        }
        rig.crash(&mut random);
        let left = rig.bytes(redo(2), 0, 1);
        losses += u32::from(left[0] == 0);
        assert!(!is_rewritten || left == vec![2; SECTOR_BYTES]);
    }
    assert!(losses > 20, "{losses}");
}

#[test]
fn faults_happen_in_their_time() {
    let kinds = BTreeSet::from(Fault::OF_DISKS);
    let (mut failed, mut full, mut slow) = (0, 0, 0);
    let mut corrupted = 0;
    for seed in 0..20 {
        let mut rig = Rig::new(seed);
        rig.run(redo(1), FileTask::Allocate { bytes: 64 * SECTOR }).unwrap();
        rig.run(redo(1), write(0, 64, 7)).unwrap();
        rig.run(redo(1), FileTask::Flush).unwrap();
        let until = rig.now + 2_000_000;
        rig.disk.begin_faults(kinds.clone(), 5_000, rig.now, until);
        let beyond = rig.run(redo(2), FileTask::Allocate { bytes: PROFILE.quota }).unwrap_err();
        full += u32::from(beyond.kind == FileErrorKind::DiskFull);
        assert_eq!(rig.disk.list().len(), 1);
        while rig.now < until {
            let begun = rig.now;
            let result = rig.run(redo(1), read(0, 1));
            failed += u32::from(result.is_err_and(|error| error.kind == FileErrorKind::Failed));
            slow += u32::from(rig.now - begun > PROFILE.least + PROFILE.jitter + SECTOR);
        }
        // Those that were to fail when time was over still do.
        let late = (0..200).filter(|_| rig.run(redo(1), read(0, 1)).is_err()).count();
        assert!(late < 5, "{late}");
        // Each byte that is not as it was written was recorded.
        let bytes = rig.bytes(redo(1), 0, 64);
        let places: BTreeSet<u64> = rig.disk.corruptions().iter().map(|c| c.offset).collect();
        let changed = (0u64..).zip(&bytes).filter(|(_, byte)| **byte != 7).map(|(at, _)| at);
        assert!(changed.inspect(|_| corrupted += 1).all(|at| places.contains(&at)));
    }
    assert!(full == 20 && failed > 20 && slow > 20 && corrupted > 20, "{full} {failed} {slow} {corrupted}");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed: u64| {
        let mut rig = Rig::new(seed);
        rig.disk.begin_faults(BTreeSet::from(Fault::OF_DISKS), 1_000, 0, 10_000_000);
        let mut random = Rng::with_seed(seed);
        let mut seen = Vec::new();
        rig.ask(redo(0), FileTask::Allocate { bytes: 8 * SECTOR });
        for _ in 0..500 {
            let file = redo(random.u64(..3));
            let task = match random.u8(..8) {
                0 => FileTask::Allocate { bytes: random.u64(..16) * SECTOR },
                1 => FileTask::Flush,
                2 => FileTask::Rename { to: redo(random.u64(..3)) },
                3 => FileTask::Fill { offset: random.u64(..4) * SECTOR, bytes: SECTOR },
                4 => read(0, 8),
                _ => write(random.u64(..8), random.usize(1..4), random.u8(..)),
            };
            rig.ask(file, task);
            if random.bool()
                && let Some(answer) = rig.next()
            {
                let data = match &answer.result {
                    Ok(FileData::Bytes(data, filled)) => data[..*filled].to_vec(),
                    _ => Vec::new(),
                };
                seen.push(format!("{} {} {:?} {data:?}", rig.now, answer.token, answer.result));
            }
            if random.u8(..50) == 0 {
                rig.crash(&mut random);
                seen.push(format!("{:?} {:?}", rig.disk.list(), rig.disk.corruptions()));
            }
        }
        seen
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}
