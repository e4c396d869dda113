//! Rows of a backup, written as operations of a client.
//!
//! Of each partition of the backup the changes come first, in memory: what each changed row was at the end of the
//! backup's epoch. Then the rows that the scan has met are read, and written unless they were changed; then the changed
//! ones.
//!
//! None of these writes waits for the disk. At the end one of the rows is written once more, by a commit that does:
//! what is on disk then is everything up to this commit, whoever has written it.

use super::tables::{Kind, Restored, Tables};
use crate::backup::input::{Backup, Problem};
use crate::table::grouped;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{Epoch, ErrorClass, ErrorCode, OperationKind, RowRef, Value, WriteBatch, WriteTicket};
use vinga_format::backup::{BackupBlock, BackupContent, BackupFile};
use vinga_format::backup_rows::{BackupChanges, LaterRow, RowPlace};
use vinga_format::redo::records;
use vinga_runtime::say;

/// Operations that go together.
const BATCH: usize = 256;
/// Batches under way of each thread.
const WINDOW: usize = 4;
/// Attempts at a row that meets temporary errors, with pauses between them.
const ATTEMPTS_MAX: u32 = 200;
/// The pause, and how often the progress is printed.
const PAUSE: Duration = Duration::from_millis(50);
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// Loads all rows, and waits until they are on disk, if the cluster has one; returns how many there are.
///
/// # Errors
/// A text: a row can't be written, or a file can't be read any more.
pub fn load(
    cluster: &Cluster,
    backup: &Backup,
    tables: &Tables,
    threads: usize,
    shows_progress: bool,
) -> Result<u64, String> {
    let rows: Vec<&BackupFile> = backup.files(BackupContent::Rows).collect();
    let shared = Shared {
        next: AtomicUsize::new(0),
        loaded: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        left: AtomicUsize::new(threads.min(rows.len())),
        one: OnceLock::new(),
    };
    thread::scope(|scope| {
        for _ in 0..threads.min(rows.len()) {
            scope.spawn(|| {
                while let Some(file) = rows.get(shared.next.fetch_add(1, Ordering::Relaxed)) {
                    let loaded =
                        Loader { cluster, backup, tables, shared: &shared, under_way: VecDeque::new() }
                            .partition(file);
                    if let Err(error) = loaded {
                        shared.fail(error);
                        break;
                    }
                }
                shared.left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut shown = Instant::now();
        while shows_progress && shared.left.load(Ordering::Relaxed) > 0 {
            thread::sleep(PAUSE);
            if shown.elapsed() >= PROGRESS_PAUSE {
                shown = Instant::now();
                say!("… {} rows", grouped(shared.loaded.load(Ordering::Relaxed)));
            }
        }
    });
    if let Some(failure) = shared.failure.into_inner().expect("nobody panics with it") {
        return Err(failure);
    }
    if let Some(one) = shared.one.get() {
        one.save(cluster).map_err(|error| format!("all rows are loaded, but may not be on disk: {error}"))?;
    }
    Ok(shared.loaded.into_inner())
}

/// A row that was written, of which there is one if any was.
enum Written<'a> {
    /// By its image.
    Row(&'a Restored, Vec<u8>),
    /// A counter: its key, and the next value.
    Counter(&'a Restored, u64, u64),
}

impl Written<'_> {
    /// Writes it once more, and waits until everything that was committed so far is on disk; at once if there is none.
    fn save(&self, cluster: &Cluster) -> vinga::Result<()> {
        let mut attempts = 0;
        loop {
            let Err(error) = self.commit(cluster) else { return Ok(()) };
            attempts += 1;
            match error.code() {
                ErrorCode::NoDisk => return Ok(()),
                code if attempts < ATTEMPTS_MAX
                    && (error.is_retryable() || code.class() == ErrorClass::Unknown) => {}
                _ => return Err(error),
            }
            thread::sleep(PAUSE);
        }
    }

    fn commit(&self, cluster: &Cluster) -> vinga::Result<()> {
        let mut transaction = cluster.as_async().begin()?;
        transaction.set_durable(true);
        match self {
            Written::Row(restored, image) => {
                transaction.define_encoded(&restored.table, OperationKind::Write, &[], image)?
            }
            Written::Counter(restored, key, next) => {
                transaction.write(&restored.table, &[("birth", *key), ("next", *next)])?
            }
        };
        cluster.block_on(transaction.commit()).map(|_| ())
    }
}

/// What the threads share.
struct Shared<'a> {
    /// The next partition's place in the list.
    next: AtomicUsize,
    /// Rows that were written.
    loaded: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Threads that go on.
    left: AtomicUsize,
    /// One of the rows.
    one: OnceLock<Written<'a>>,
}

impl Shared<'_> {
    fn fail(&self, error: Failure) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.failure.lock().expect("nobody panics with it").get_or_insert(error.0);
    }
}

/// Why it failed.
struct Failure(String);

impl From<LaterRow> for Failure {
    fn from(later: LaterRow) -> Self {
        Failure(later.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure(problem.to_string())
    }
}

/// Operations that go together, as long as they may have to be tried again.
struct Batch<'a> {
    rows: Vec<(&'a Restored, Vec<u8>)>,
    ticket: WriteTicket,
}

/// Loads one partition of the backup.
struct Loader<'a, 's> {
    cluster: &'a Cluster,
    backup: &'a Backup,
    tables: &'a Tables,
    shared: &'s Shared<'a>,
    under_way: VecDeque<Batch<'a>>,
}

impl<'a> Loader<'a, '_> {
    fn partition(mut self, rows: &BackupFile) -> Result<(), Failure> {
        let changed = self.changes(rows.head.partition)?;
        let mut batch = Vec::new();
        self.backup.read::<Failure>(rows, |block| {
            let BackupBlock::Records(bytes) = block else { return Ok(()) };
            for record in records(bytes) {
                let record = record.expect("the reader has checked it");
                if changed.leaves(&record)? {
                    self.row(RowPlace::of(&record), record.image, &mut batch)?;
                }
            }
            Ok(())
        })?;
        for (place, row) in changed.rows() {
            if let Some(image) = &row.image {
                self.row(place, image, &mut batch)?;
            }
        }
        self.send(&mut batch)?;
        while !self.under_way.is_empty() {
            self.finish_one()?;
        }
        Ok(())
    }

    /// What the changes of a partition up to the backup's epoch have made of each row.
    fn changes(&self, partition: u16) -> Result<BackupChanges, Failure> {
        let mut changed = BackupChanges::new(Epoch(self.backup.manifest.epoch));
        for file in self.backup.files(BackupContent::Changes).filter(|file| file.head.partition == partition)
        {
            self.backup.read::<Failure>(file, |block| {
                let BackupBlock::Records(bytes) = block else { return Ok(()) };
                for record in records(bytes) {
                    changed.add(&record.expect("the reader has checked it"));
                }
                Ok(())
            })?;
        }
        Ok(changed)
    }

    /// Writes a row, unless its table was dropped before the end of the backup's epoch.
    fn row(
        &mut self,
        RowPlace { table, birth, .. }: RowPlace,
        image: &[u8],
        batch: &mut Vec<(&'a Restored, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let tables = self.tables;
        let Some(restored) = tables.get(&(table, birth)) else { return Ok(()) };
        if let Kind::Counters { layout, births } = &restored.kind {
            let row = RowRef::new(layout, None, image).and_then(|row| row.values());
            let row = row.map_err(|error| Failure(format!("{}: {error}", restored.table.name())))?;
            return self.counter(restored, &row, births);
        }
        batch.push((restored, image.to_vec()));
        if batch.len() == BATCH {
            self.send(batch)?;
        }
        Ok(())
    }

    /// A counter of `AUTO_INCREMENT` is that of a table by the table's birth; the highest bit says which one.
    fn counter(
        &mut self,
        restored: &'a Restored,
        row: &[Value],
        births: &HashMap<u64, u64>,
    ) -> Result<(), Failure> {
        const WHICH: u64 = 1 << 63;
        let [Value::UInt(birth), Value::UInt(next)] = row else {
            return Err(Failure(format!("a row of {} is none of a counter", restored.table.name())));
        };
        // A counter of a table that was dropped has no use.
        let Some(new) = births.get(&(birth & !WHICH)) else { return Ok(()) };
        let key = new | birth & WHICH;
        let written = self.cluster.write(&restored.table, &[("birth", key), ("next", *next)]);
        written.map_err(|error| Failure(format!("{}: {error}", restored.table.name())))?;
        self.shared.loaded.fetch_add(1, Ordering::Relaxed);
        self.shared.one.get_or_init(|| Written::Counter(restored, key, *next));
        Ok(())
    }

    fn send(&mut self, rows: &mut Vec<(&'a Restored, Vec<u8>)>) -> Result<(), Failure> {
        if self.shared.has_failed.load(Ordering::Relaxed) {
            return Err(Failure("another part has failed".to_owned()));
        }
        if rows.is_empty() {
            return Ok(());
        }
        if self.under_way.len() == WINDOW {
            self.finish_one()?;
        }
        let rows = std::mem::take(rows);
        self.shared.one.get_or_init(|| Written::Row(rows[0].0, rows[0].1.clone()));
        let ticket = self.start(&rows, OperationKind::Insert)?;
        self.under_way.push_back(Batch { rows, ticket });
        Ok(())
    }

    fn start(&self, rows: &[(&Restored, Vec<u8>)], kind: OperationKind) -> Result<WriteTicket, Failure> {
        let mut batch = WriteBatch::new();
        for (restored, image) in rows {
            let pushed = batch.push_encoded(&restored.table, kind, &[], image);
            pushed.map_err(|error| Failure(format!("a row of table {}: {error}", restored.table.name())))?;
        }
        self.cluster.start_writes(batch).map_err(|error| Failure(error.to_string()))
    }

    /// Waits for the oldest batch; what has met temporary errors is tried again.
    fn finish_one(&mut self) -> Result<(), Failure> {
        let Batch { mut rows, mut ticket } = self.under_way.pop_front().expect("one is under way");
        for _ in 0..ATTEMPTS_MAX {
            let batch = ticket.wait();
            let mut left = Vec::new();
            for (row, ending) in rows.into_iter().zip(batch.endings()) {
                match ending {
                    Ok(()) => {
                        self.shared.loaded.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.is_retryable() || error.class() == ErrorClass::Unknown => {
                        left.push((row, error));
                    }
                    Err(error) => return Err(failed(row.0, &error)),
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            thread::sleep(PAUSE);
            rows = left.into_iter().map(|(row, _)| row).collect();
            // It may be there: whether it was written was not known.
            ticket = self.start(&rows, OperationKind::Write)?;
        }
        let batch = ticket.wait();
        let first = batch.endings().zip(&rows).find_map(|(ending, row)| Some((ending.err()?, row)));
        first.map_or(Ok(()), |(error, row)| Err(failed(row.0, &error)))
    }
}

fn failed(restored: &Restored, error: &vinga::Error) -> Failure {
    Failure(format!("a row of table {} can't be written: {error}", restored.table.name()))
}
