//! Rows and changes of all partitions, written at the same time.
//!
//! A thread for each partition requests piece after piece and writes it. The main thread follows how far they are, and
//! says of which epoch it wants to know when all its changes are there.

use super::output::{Output, Target};
use crate::table::grouped;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{Epoch, ErrorCode, PartitionBackup, PieceTicket};
use vinga_format::backup::{BackupContent, BackupFile, BackupHead};
use vinga_format::redo;
use vinga_runtime::say;

/// Requests under way for each partition, so that the data manager need not wait for the disk.
const WINDOW: usize = 4;
/// How often the progress is printed.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// How far a partition is.
#[derive(Clone, Copy, Default)]
struct Partition {
    is_scanned: bool,
    /// The newest epoch that its data manager knows.
    epoch: Epoch,
    /// All changes up to this epoch were written.
    closed: Epoch,
    rows: u64,
    changes: u64,
    bytes: u64,
}

/// What the threads share.
struct State {
    partitions: Vec<Partition>,
    /// The epoch whose end is wanted.
    until: Epoch,
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
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Written>>,
    shows_progress: bool,
}

impl Running {
    /// Has all data managers note changes, then begins to read rows.
    ///
    /// # Errors
    /// A text: another backup is being made, or files can't be made.
    pub fn begin(cluster: &Cluster, target: &Target, shows_progress: bool) -> Result<Self, String> {
        let mut open = Vec::new();
        for partition in 0..cluster.partitions() {
            let backup = cluster.back_up_partition(partition).map_err(|error| match error.code() {
                ErrorCode::BackupRunning => error.to_string(),
                _ => format!("partition {partition}: {error}"),
            })?;
            let file = |content, what| {
                target.create(format!("{what}-{partition}.backup"), BackupHead { content, partition })
            };
            open.push((backup, file(BackupContent::Rows, "rows")?, file(BackupContent::Changes, "changes")?));
        }
        let state = State {
            partitions: vec![Partition::default(); open.len()],
            until: Epoch(0),
            is_done: false,
            failure: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut running = Running { shared, threads: Vec::new(), shows_progress };
        for (at, (backup, rows, changes)) in open.into_iter().enumerate() {
            let shared = Arc::clone(&running.shared);
            let writer = Writer { shared, at, backup, rows, changes };
            let started = thread::Builder::new().name(format!("partition {at}")).spawn(move || writer.run());
            running.threads.push(started.map_err(|error| format!("a thread can't be started: {error}"))?);
        }
        Ok(running)
    }

    /// Whether all goes well.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self) -> Result<(), String> {
        self.shared.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Waits until something holds for all partitions.
    fn wait(&self, holds: impl Fn(&Partition) -> bool) -> Result<MutexGuard<'_, State>, String> {
        let mut shown = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.partitions.iter().all(&holds) {
                return Ok(state);
            }
            if self.shows_progress && shown.elapsed() >= PROGRESS_PAUSE {
                shown = Instant::now();
                let sum = |of: fn(&Partition) -> u64| grouped(state.partitions.iter().map(of).sum());
                say!(
                    "… {} rows, {} changes, {} bytes",
                    sum(|p| p.rows),
                    sum(|p| p.changes),
                    sum(|p| p.bytes)
                );
            }
            let waited = self.shared.changed.wait_timeout(state, Duration::from_millis(200));
            state = waited.expect("nobody panics with it").0;
        }
    }

    /// Waits until all rows were read.
    ///
    /// # Errors
    /// Why they could not be.
    pub fn await_scans(&self) -> Result<(), String> {
        self.wait(|partition| partition.is_scanned).map(drop)
    }

    /// Chooses an epoch that covers everything that was read, and every change of definitions until now; waits until it
    /// is closed and all its changes are written.
    ///
    /// # Errors
    /// Why it failed.
    pub fn close_epoch(&self) -> Result<Epoch, String> {
        // The president's confirmation of any epoch carries the current one; no change of definitions until now has a
        // later epoch.
        let probe = {
            let mut state = self.shared.lock();
            state.until = Epoch(state.until.0 + 1);
            state.until
        };
        let epoch = {
            let mut state = self.wait(|partition| partition.closed >= probe)?;
            let newest = state.partitions.iter().map(|partition| partition.epoch).max().unwrap_or_default();
            state.until = newest.max(probe);
            state.until
        };
        drop(self.wait(|partition| partition.closed >= epoch)?);
        Ok(epoch)
    }

    /// Ends it: all files are on the disk then.
    ///
    /// # Errors
    /// Why they are not.
    pub fn finish(mut self) -> Written {
        self.shared.lock().is_done = true;
        let mut files = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            files.extend(thread.join().map_err(|_| "a thread has panicked".to_owned())??);
        }
        Ok(files)
    }
}

impl Drop for Running {
    /// Whoever gives up leaves no thread behind that writes into the folder.
    fn drop(&mut self) {
        self.shared.lock().is_done = true;
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

/// Writes one partition.
struct Writer {
    shared: Arc<Shared>,
    at: usize,
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
        loop {
            let until = {
                let state = self.shared.lock();
                if state.is_done || state.failure.is_some() {
                    break;
                }
                state.until
            };
            while under_way.len() < WINDOW {
                under_way.push_back(self.backup.request(until).map_err(|error| self.failed(&error))?);
            }
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
            let partition = &mut state.partitions[self.at];
            partition.is_scanned |= piece.is_scanned;
            partition.epoch = partition.epoch.max(piece.epoch);
            if piece.is_closed {
                partition.closed = partition.closed.max(until);
            }
            partition.rows += rows;
            partition.changes += changes;
            partition.bytes += (piece.rows.len() + piece.changes.len()) as u64;
            self.shared.changed.notify_all();
        }
        drop(under_way);
        Ok(vec![self.rows.finish()?, self.changes.finish()?])
    }

    fn failed(&self, error: &vinga::Error) -> String {
        format!("partition {}: {error}", self.at)
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
