//! Io threads with real files.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use vinga_base::NodeId;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_kernel::files::{Data, FileData, FileKind, FileName, FileTask};
use vinga_wire::{Address, BlockNumber};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Longer than anything here takes.
const HANG_GUARD: Duration = Duration::from_secs(60);
const BLOCK: Address = Address::new(NodeId(1), BlockNumber::DataManager, 0);

/// A folder of a test, which is removed at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("vinga-files-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        Place(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Io threads, and what they have answered.
struct Rig {
    pool: Option<IoPool>,
    settings: FileSettings,
    answers: Receiver<(u16, Vec<FileAnswer>)>,
    early: BTreeMap<u64, FileAnswer>,
    tokens: u64,
}

impl Rig {
    fn new(folder: Option<&Path>, threads: usize, open_max: usize) -> Self {
        let settings =
            FileSettings::new(folder.map(Path::to_owned), threads, open_max, ThreadSettings::default());
        Self::of(settings)
    }

    fn of(settings: FileSettings) -> Self {
        let (sender, answers) = mpsc::channel();
        let sender = Mutex::new(sender);
        let spawn = |name: &str, body| thread::Builder::new().name(name.to_string()).spawn(body);
        let pool = IoPool::start(&settings, spawn, move |thread, answers| {
            // The test may have ended.
            let _ = sender.lock().unwrap().send((thread, answers));
        });
        Rig { pool: Some(pool.unwrap()), settings, answers, early: BTreeMap::new(), tokens: 0 }
    }

    fn submit(&mut self, tasks: Vec<(FileName, FileTask)>) -> Vec<u64> {
        let requests = tasks.into_iter().map(|(file, task)| {
            self.tokens += 1;
            FileRequest { requester: BLOCK, token: self.tokens, file, task }
        });
        let requests: Vec<FileRequest> = requests.collect();
        let tokens = requests.iter().map(|request| request.token).collect();
        self.pool.as_ref().unwrap().files().submit(3, requests);
        tokens
    }

    fn result(&mut self, token: u64) -> Result<FileData, FileError> {
        loop {
            if let Some(answer) = self.early.remove(&token) {
                return answer.result;
            }
            let (thread, answers) = self.answers.recv_timeout(Duration::from_secs(60)).expect("answers come");
            assert_eq!(thread, 3);
            for answer in answers {
                assert_eq!(answer.requester, BLOCK);
                assert!(self.early.insert(answer.token, answer).is_none(), "each task is answered once");
            }
        }
    }

    fn run(&mut self, file: FileName, task: FileTask) -> Result<FileData, FileError> {
        let tokens = self.submit(vec![(file, task)]);
        self.result(tokens[0])
    }

    fn read(&mut self, file: FileName, offset: u64, bytes: u32) -> Vec<u8> {
        match self.run(file, FileTask::Read { offset, bytes }).unwrap() {
            FileData::Bytes(data, filled) => data[..filled].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, file: FileName) -> Vec<(FileName, u64)> {
        match self.run(file, FileTask::List).unwrap() {
            FileData::Names(names) => names,
            other => panic!("{other:?}"),
        }
    }

    fn sum(&self, figure: impl Fn(&IoThreadStatistics) -> u64) -> u64 {
        self.settings.io_threads().iter().map(|thread| figure(thread)).sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take()
            && !thread::panicking()
        {
            pool.stop(HANG_GUARD).expect("the disk answers");
        }
    }
}

fn redo(number: u64) -> FileName {
    FileName::new(FileKind::Redo, 0, number)
}

fn write(offset: u64, sectors: usize, byte: u8) -> FileTask {
    FileTask::Write { offset, data: Data(AlignedBuffer::copy_of(&vec![byte; sectors * SECTOR_BYTES])) }
}

#[test]
fn files_survive_the_threads() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 4, 40);
    assert_eq!(rig.names(redo(0)), []);
    rig.run(redo(1), FileTask::Allocate { bytes: 8 * SECTOR }).unwrap();
    rig.run(redo(1), FileTask::Fill { offset: 0, bytes: 3_000_000 / SECTOR * SECTOR }).unwrap();
    rig.run(redo(1), write(SECTOR, 2, 7)).unwrap();
    rig.run(redo(1), FileTask::Flush).unwrap();
    rig.run(redo(2), FileTask::Allocate { bytes: SECTOR }).unwrap();
    rig.run(redo(3), FileTask::Allocate { bytes: SECTOR }).unwrap();
    rig.run(redo(2), write(0, 1, 2)).unwrap();
    rig.run(redo(2), FileTask::Rename { to: redo(3) }).unwrap();
    rig.run(redo(4), FileTask::Allocate { bytes: 0 }).unwrap();
    rig.run(redo(5), FileTask::Allocate { bytes: SECTOR }).unwrap();
    rig.run(redo(5), FileTask::Remove).unwrap();
    rig.run(redo(5), FileTask::Remove).unwrap();
    let other = FileName::new(FileKind::Redo, 1, 1);
    rig.run(other, FileTask::Allocate { bytes: SECTOR }).unwrap();
    // An existing file is not made smaller.
    rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap();
    fs::write(place.0.join("redo/notes.txt"), "of somebody").unwrap();
    drop(rig);

    let mut rig = Rig::new(Some(&place.0), 1, 1);
    let filled = 3_000_000 / SECTOR * SECTOR;
    assert_eq!(rig.names(redo(0)), [(redo(1), filled), (redo(3), SECTOR), (redo(4), 0)]);
    assert_eq!(rig.names(other), [(other, SECTOR)]);
    let mut expected = vec![0; 5 * SECTOR_BYTES];
    expected[SECTOR_BYTES..3 * SECTOR_BYTES].fill(7);
    assert_eq!(rig.read(redo(1), 0, 5 * SECTOR as u32), expected);
    assert_eq!(rig.read(redo(3), 0, SECTOR as u32), vec![2; SECTOR_BYTES]);
    // A file ends before what was asked for.
    assert_eq!(rig.read(redo(3), 0, 4 * SECTOR as u32), vec![2; SECTOR_BYTES]);
    assert_eq!(rig.read(redo(3), 4 * SECTOR, SECTOR as u32), vec![]);
    assert_eq!(rig.read(redo(1), filled - SECTOR, 8 * SECTOR as u32).len(), SECTOR_BYTES);
}

#[test]
fn the_end_of_a_file_may_be_within_a_sector() {
    let place = Place::new();
    fs::create_dir_all(place.0.join("redo")).unwrap();
    fs::write(place.0.join(redo(1).path()), vec![5; 2 * SECTOR_BYTES + 77]).unwrap();
    let mut rig = Rig::new(Some(&place.0), 1, 1);
    assert_eq!(rig.read(redo(1), SECTOR, 4 * SECTOR as u32), vec![5; SECTOR_BYTES + 77]);
}

#[test]
fn tasks_on_a_file_keep_their_order_and_adjoining_writes_are_one() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 4, 40);
    rig.run(redo(1), FileTask::Allocate { bytes: 64 * SECTOR }).unwrap();
    let mut tasks = Vec::new();
    for round in 0..50u8 {
        // Three that adjoin, one that does not, and one over the first.
        let begin = u64::from(round % 10) * 4 * SECTOR;
        tasks.extend((0..3).map(|i| (redo(1), write(begin + i * SECTOR, 1, round))));
        tasks.push((redo(1), write(60 * SECTOR, 1, round)));
        tasks.push((redo(1), write(begin, 1, 100 + round)));
        tasks.push((redo(1), FileTask::Read { offset: begin, bytes: 3 * SECTOR as u32 }));
        tasks.push((redo(1), FileTask::Flush));
        tasks.push((redo(1), FileTask::Flush));
    }
    let writes = rig.sum(|thread| thread.thread.writes.get());
    let tokens = rig.submit(tasks);
    for (round, tokens) in tokens.chunks(8).enumerate() {
        let results: Vec<FileData> = tokens.iter().map(|&token| rig.result(token).unwrap()).collect();
        let FileData::Bytes(data, filled) = &results[5] else { panic!("{results:?}") };
        let mut expected = vec![round as u8; 3 * SECTOR_BYTES];
        expected[..SECTOR_BYTES].fill(100 + round as u8);
        assert_eq!((*filled, &data[..*filled]), (expected.len(), &expected[..]), "round {round}");
    }
    assert_eq!(rig.sum(|thread| thread.thread.writes.get()) - writes, 3 * 50);
    assert_eq!(rig.sum(|thread| thread.flushes.get()), 50);
    assert_eq!(rig.sum(|thread| thread.tasks.get()), 1 + 8 * 50);
    assert_eq!(rig.sum(|thread| thread.thread.bytes_written.get()), 5 * 50 * SECTOR);
}

#[test]
fn many_files_are_served_with_few_of_them_open() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 3, 2);
    let mut tasks = Vec::new();
    for round in 0..10 {
        for number in 0..30u64 {
            tasks.push(match round {
                0 => (redo(number), FileTask::Allocate { bytes: 10 * SECTOR }),
                _ => (redo(number), write(round * SECTOR, 1, number as u8)),
            });
        }
    }
    let mut random = fastrand::Rng::with_seed(1);
    for piece in tasks.chunks(random.usize(20..60)) {
        for token in rig.submit(piece.to_vec()) {
            rig.result(token).unwrap();
        }
    }
    for number in 0..30 {
        assert_eq!(rig.read(redo(number), SECTOR, 9 * SECTOR as u32), vec![number as u8; 9 * SECTOR_BYTES]);
    }
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let own = open.filter(|path| path.starts_with(&place.0)).count();
    assert!(own <= 2 + 3, "{own} files are open");
}

#[test]
fn a_rename_is_a_task_on_both_files() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 4, 40);
    for round in 0..200u64 {
        let (a, b) = if round % 2 == 0 { (redo(1), redo(2)) } else { (redo(2), redo(1)) };
        let byte = round as u8;
        let tokens = rig.submit(vec![
            (a, FileTask::Allocate { bytes: 3 * SECTOR }),
            (b, FileTask::Allocate { bytes: SECTOR }),
            (b, write(0, 1, 255)),
            (a, write(0, 3, byte)),
            (a, FileTask::Rename { to: b }),
            (b, write(SECTOR, 1, byte.wrapping_add(1))),
            (b, FileTask::Read { offset: 0, bytes: 4 * SECTOR as u32 }),
            (a, FileTask::Read { offset: 0, bytes: SECTOR as u32 }),
            // And back at once, while others rename too.
            (b, FileTask::Rename { to: a }),
            (redo(3), FileTask::Rename { to: b }),
            (a, FileTask::Rename { to: a }),
            (a, FileTask::Read { offset: SECTOR, bytes: SECTOR as u32 }),
            (a, FileTask::Remove),
        ]);
        let results: Vec<_> = tokens.iter().map(|&token| rig.result(token)).collect();
        let Ok(FileData::Bytes(data, filled)) = &results[6] else { panic!("{results:?}") };
        let mut expected = vec![byte; 3 * SECTOR_BYTES];
        expected[SECTOR_BYTES..2 * SECTOR_BYTES].fill(byte.wrapping_add(1));
        assert!(data[..*filled] == expected, "round {round}");
        assert_eq!(results[7].as_ref().unwrap_err().kind, FileErrorKind::NotFound);
        assert_eq!(results[9].as_ref().unwrap_err().kind, FileErrorKind::NotFound);
        let Ok(FileData::Bytes(data, _)) = &results[11] else { panic!("{results:?}") };
        assert_eq!(data[0], byte.wrapping_add(1));
        assert_eq!(rig.names(redo(0)), []);
    }
}

#[test]
fn what_was_handed_over_is_done_before_the_threads_end() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 2, 4);
    let mut tasks = vec![(redo(1), FileTask::Allocate { bytes: SECTOR })];
    tasks.extend((0..200).map(|i| (redo(1), write(i * 2 * SECTOR, 1, 9))));
    tasks.push((redo(1), FileTask::Rename { to: redo(2) }));
    tasks.extend((0..100).map(|i| (redo(2), write(i * 2 * SECTOR + SECTOR, 1, 9))));
    let tokens = rig.submit(tasks);
    rig.pool.take().unwrap().stop(HANG_GUARD).expect("the disk answers");
    for token in tokens {
        rig.result(token).unwrap();
    }
    assert_eq!(fs::metadata(place.0.join(redo(2).path())).unwrap().len(), 399 * SECTOR);
}

#[test]
fn errors_say_what_could_not_be_done_with_which_file() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 2, 40);
    let tasks: [(FileTask, &str); 4] = [
        (FileTask::Read { offset: 0, bytes: 4096 }, "read"),
        (write(0, 1, 1), "write"),
        (FileTask::Flush, "flush"),
        (FileTask::Rename { to: redo(2) }, "rename"),
    ];
    for (task, name) in tasks {
        let error = rig.run(redo(1), task).unwrap_err();
        let text = format!(
            "{name} {}/redo/000-00000001.redo: No such file or directory (os error 2)",
            place.0.display()
        );
        assert_eq!((error.kind, error.text), (FileErrorKind::NotFound, text));
    }
    // A device that is always full.
    std::os::unix::fs::symlink("/dev/full", place.0.join(redo(7).path())).unwrap();
    let error = rig.run(redo(7), write(0, 1, 1)).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::DiskFull, "{}", error.text);
    // No such room on any disk: nothing is left of the file.
    let error = rig.run(redo(8), FileTask::Allocate { bytes: 1 << 62 }).unwrap_err();
    assert!(error.kind == FileErrorKind::DiskFull || error.text.contains("File too large"), "{}", error.text);
    assert!(rig.names(redo(0)).iter().all(|(name, _)| *name == redo(7)));
}

#[test]
fn nothing_is_written_behind_a_write_that_has_failed() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 1, 1);
    rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap();
    // The memory of this process can be written like a file, but not at 0: there is none.
    std::os::unix::fs::symlink("/proc/self/mem", place.0.join(redo(2).path())).unwrap();
    let error = rig.run(redo(2), write(0, 1, 1)).unwrap_err();
    assert!(error.text.contains("Input/output error"), "{}", error.text);
    for task in [write(0, 1, 1), FileTask::Flush] {
        // Other files are, though only one is to be open at a time.
        rig.run(redo(1), write(0, 1, 1)).unwrap();
        let error = rig.run(redo(2), task).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Failed);
        assert!(error.text.ends_with("an earlier write or flush of it has failed"), "{}", error.text);
    }
}

#[test]
fn a_trial_reads_and_changes_nothing() {
    let place = Place::new();
    let mut rig = Rig::new(Some(&place.0), 1, 4);
    rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap();
    rig.run(redo(1), write(0, 1, 7)).unwrap();
    drop(rig);
    let settings = FileSettings::new(Some(place.0.clone()), 1, 4, ThreadSettings::default());
    let mut rig = Rig::of(FileSettings { is_read_only: true, ..settings });
    for task in [
        write(0, 1, 8),
        FileTask::Flush,
        FileTask::Allocate { bytes: 4 * SECTOR },
        FileTask::Fill { offset: 0, bytes: SECTOR },
        FileTask::Remove,
        FileTask::Rename { to: redo(2) },
    ] {
        let (read, change) = (FileTask::Read { offset: 0, bytes: SECTOR as u32 }, (redo(1), task.clone()));
        let tokens = rig.submit(vec![(redo(1), read), change]);
        let error = rig.result(tokens[1]).unwrap_err();
        let refused = format!("{} redo/000-00000001.redo: nothing is changed", task.name());
        assert!(error.text.starts_with(&refused), "{}", error.text);
        assert!(
            matches!(rig.result(tokens[0]), Ok(FileData::Bytes(data, _)) if data[..] == [7; SECTOR_BYTES])
        );
    }
    assert_eq!(rig.names(redo(0)), [(redo(1), SECTOR)]);
}

#[test]
fn a_node_without_a_folder_refuses() {
    let mut rig = Rig::new(None, 4, 40);
    assert!(rig.settings.io_threads().is_empty());
    let error = rig.run(redo(1), FileTask::Flush).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NotPermitted);
    assert_eq!(
        error.text,
        "flush redo/000-00000001.redo: the node has no folder for files; DataDir or --folder gives it one"
    );
}

#[test]
fn a_folder_that_may_not_be_written_is_reported() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let place = Place::new();
    let folder = place.0.clone();
    // Root may do everything: threads that this one starts may not.
    let check = move || {
        if let Ok(mut sets) = capabilities(None) {
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
        }
        rustix::fs::chmod(&folder, rustix::fs::Mode::from_raw_mode(0o555)).unwrap();
        let mut rig = Rig::new(Some(&folder), 1, 1);
        let error = rig.run(redo(1), FileTask::Allocate { bytes: SECTOR }).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::NotPermitted, "{}", error.text);
        assert!(error.text.ends_with("Permission denied (os error 13)"), "{}", error.text);
        rustix::fs::chmod(&folder, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    };
    thread::spawn(check).join().unwrap();
}
