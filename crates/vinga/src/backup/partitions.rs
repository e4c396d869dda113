//! Rows and changes of all partitions, written at the same time.
//!
//! A thread for each partition requests piece after piece and writes it. The main thread does what is due besides; what
//! that is, and of which epoch the backup is, is said by [`Backup`], which all threads share.

use super::output::{Output, Target};
use crate::table::grouped;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga::backup_steps::{Backup, Definitions, Task};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, PartitionBackup, PieceTicket};
use vinga_base::PartitionId;
use vinga_format::backup::{BackupContent, BackupFile, BackupHead};
use vinga_format::redo;
use vinga_runtime::say;

/// How often the progress is printed.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// How long a partition is asked again whose primary has moved, and after which pauses.
const MOVED_MAX: Duration = Duration::from_secs(5);
const MOVED_PAUSE: Duration = Duration::from_millis(10);

/// What was written.
#[derive(Clone, Copy, Default)]
struct Progress {
    rows: u64,
    changes: u64,
    bytes: u64,
}

/// What the threads share.
struct State {
    backup: Backup,
    progress: Progress,
    /// Nothing more is wanted.
    is_done: bool,
    failure: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

/// The files of a partition, or why they could not be written.
type Written = Result<Vec<BackupFile>, String>;

/// A backup of all partitions that is being made.
pub struct Running<'a> {
    target: &'a Target,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Written>>,
    shows_progress: bool,
}

impl<'a> Running<'a> {
    /// A backup of so many partitions, of which none is opened.
    pub fn new(target: &'a Target, partitions: u16, shows_progress: bool) -> Self {
        let state = State {
            backup: Backup::new(partitions),
            progress: Progress::default(),
            is_done: false,
            failure: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        Running { target, shared, threads: Vec::new(), shows_progress }
    }

    /// Has the data manager of a partition note changes; its rows are read when all of them do.
    ///
    /// # Errors
    /// A text: another backup is being made, or files can't be made.
    pub fn open(&mut self, cluster: &Cluster, partition: PartitionId) -> Result<(), String> {
        let at = partition.0;
        let begun = Instant::now();
        let opened = loop {
            match cluster.back_up_partition(at) {
                // The data node has another view than this client, as its primary has just moved.
                Err(error) if error.code() == ErrorCode::Moved && begun.elapsed() < MOVED_MAX => {
                    thread::sleep(MOVED_PAUSE);
                }
                opened => break opened,
            }
        };
        let backup = opened.map_err(|error| match error.code() {
            ErrorCode::BackupRunning => error.to_string(),
            _ => format!("partition {at}: {error}"),
        })?;
        let file = |content, what| {
            self.target.create(format!("{what}-{at}.backup"), BackupHead { content, partition: at })
        };
        let (rows, changes) = (file(BackupContent::Rows, "rows")?, file(BackupContent::Changes, "changes")?);
        self.shared.lock().backup.on_opened(backup.epoch());
        self.shared.changed.notify_all();
        let writer = Writer { shared: Arc::clone(&self.shared), partition, backup, rows, changes };
        let started = thread::Builder::new().name(format!("partition {at}")).spawn(move || writer.run());
        self.threads.push(started.map_err(|error| format!("a thread can't be started: {error}"))?);
        Ok(())
    }

    /// Whether all goes well.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self) -> Result<(), String> {
        self.shared.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// What the main thread has to do, as soon as there is something besides to wait.
    ///
    /// # Errors
    /// Why it failed.
    pub fn next_task(&self) -> Result<Task, String> {
        let mut shown = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            match state.backup.task() {
                Task::Await => {}
                task => return Ok(task),
            }
            if self.shows_progress && shown.elapsed() >= PROGRESS_PAUSE {
                shown = Instant::now();
                let Progress { rows, changes, bytes } = state.progress;
                say!("… {} rows, {} changes, {} bytes", grouped(rows), grouped(changes), grouped(bytes));
            }
            let waited = self.shared.changed.wait_timeout(state, Duration::from_millis(200));
            state = waited.expect("nobody panics with it").0;
        }
    }

    /// The schema lock is there.
    pub fn on_locked(&self) {
        self.shared.lock().backup.on_locked();
    }

    /// The definitions were read.
    ///
    /// # Errors
    /// They change again and again.
    pub fn on_definitions(&self, definitions: Definitions) -> Result<(), String> {
        self.shared.lock().backup.on_definitions(definitions).map_err(|error| error.to_string())
    }

    /// Ends it: all files are on the disk then.
    ///
    /// # Errors
    /// Why they are not.
    pub fn finish(mut self) -> Result<(Vec<BackupFile>, Definitions), String> {
        let mut files = Vec::new();
        for thread in self.end() {
            files.extend(thread.join().map_err(|_| "a thread has panicked".to_owned())??);
        }
        let backup = std::mem::replace(&mut self.shared.lock().backup, Backup::new(0));
        let definitions = backup.into_definitions().ok_or("the backup is not complete")?;
        Ok((files, definitions))
    }

    /// Nothing more is wanted of the threads.
    fn end(&mut self) -> Vec<JoinHandle<Written>> {
        self.shared.lock().is_done = true;
        self.shared.changed.notify_all();
        std::mem::take(&mut self.threads)
    }
}

impl Drop for Running<'_> {
    /// Whoever gives up leaves no thread behind that writes into the folder.
    fn drop(&mut self) {
        for thread in self.end() {
            let _ = thread.join();
        }
    }
}

/// Writes one partition.
struct Writer {
    shared: Arc<Shared>,
    partition: PartitionId,
    backup: PartitionBackup,
    rows: Output,
    changes: Output,
}

impl Writer {
    fn run(self) -> Written {
        let shared = Arc::clone(&self.shared);
        let written = self.write();
        if let Err(failure) = &written {
            shared.lock().failure.get_or_insert_with(|| failure.clone());
            shared.changed.notify_all();
        }
        written
    }

    fn write(mut self) -> Written {
        let mut under_way: VecDeque<PieceTicket> = VecDeque::new();
        while self.request(&mut under_way)? {
            let ticket = under_way.pop_front().expect("some are under way");
            let until = ticket.until();
            let piece = ticket.wait().map_err(|error| self.failed(&error))?;
            let (rows, changes) = (count(&piece.rows)?, count(&piece.changes)?);
            if rows > 0 {
                self.rows.records(&piece.rows, rows)?;
            }
            if changes > 0 {
                self.changes.records(&piece.changes, changes)?;
            }
            let mut state = self.shared.lock();
            state.backup.on_piece(self.partition, until, &piece);
            state.progress.rows += rows;
            state.progress.changes += changes;
            state.progress.bytes += (piece.rows.len() + piece.changes.len()) as u64;
            self.shared.changed.notify_all();
        }
        drop(under_way);
        Ok(vec![self.rows.finish()?, self.changes.finish()?])
    }

    /// Requests what may be under way, and waits until something is; false when nothing more is wanted.
    fn request(&self, under_way: &mut VecDeque<PieceTicket>) -> Result<bool, String> {
        let mut state = self.shared.lock();
        loop {
            if state.is_done || state.failure.is_some() {
                return Ok(false);
            }
            while let Some(until) = state.backup.next_piece(self.partition) {
                under_way.push_back(self.backup.request(until).map_err(|error| self.failed(&error))?);
            }
            if !under_way.is_empty() {
                return Ok(true);
            }
            state = self.shared.changed.wait(state).expect("nobody panics with it");
        }
    }

    fn failed(&self, error: &vinga::Error) -> String {
        format!("partition {}: {error}", self.partition.0)
    }
}

/// The number of records.
fn count(records: &[u8]) -> Result<u64, String> {
    let mut count = 0;
    for record in redo::records(records) {
        record.map_err(|malformed| format!("a data node has sent nonsense: {malformed}"))?;
        count += 1;
    }
    Ok(count)
}
