//! One use of an open table: its reading position, and the rows that it has read.
//!
//! Only those columns of a row are read that the statement uses ([`Cursor::use_columns`]). They are converted straight
//! from the received bytes into the server's record. Long values are not even copied: the record points to them, so a
//! cursor keeps the result of the last read until its next read.

mod ahead;
mod batches;
mod changes;
mod deferred;
mod direct;
mod kept_rows;
mod positions;
mod scans;

pub use ahead::Ahead;
pub use deferred::Deferral;
pub use direct::{Addition, Candidates, DirectChange, Touched, TransactionShare};
pub use kept_rows::set_temporary_folder;

use crate::condition::Condition;
use crate::failure::{Failure, Result, ha};
use crate::plan::{PrimaryKey, Projection};
use crate::session::{Given, RowLock, Session};
use crate::table::OpenTable;
use deferred::DeferredRows;
use kept_rows::KeptRows;
use std::ops::Range;
use std::sync::Arc;
use vinga::{
    Found, KeyRange, Lock, LockWait, LockedRows, LockingScan, OperationNumber, ReadBatch, RowBatch, Scan,
    Table,
};

/// Maximum number of ranges in one scan.
const RANGES_MAX: usize = 1024;
/// Bytes of ranges in a batch after which no further range is added: a request has room for these, the longest range
/// and a condition.
const RANGES_BYTES_SOFT: usize = 16 * 1024;

/// How a range is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeOptions {
    /// Reads from the end to the beginning.
    pub is_descending: bool,
    /// Rows must be returned in order.
    pub in_order: bool,
    /// The first row is likely to be enough.
    pub is_short: bool,
}

/// How much of a condition of the server the data nodes check; `VINGA_CHECKED` numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(i32)]
pub enum Checked {
    /// Nothing: all rows are returned.
    #[default]
    None = 0,
    /// A part: rows may be returned for which it is not true.
    Part = 1,
    /// The whole condition.
    Whole = 2,
}

/// How the rows of a scan are locked, and how many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLock {
    /// The lock on each row.
    pub lock: Lock,
    /// This many rows may be enough, so no more are locked at first; 0 if that is not known.
    pub enough: u32,
}

/// A cursor: one use of an open table by a statement.
pub struct Cursor {
    table: Arc<OpenTable>,
    /// The columns that the statement uses, by their places, ascending.
    columns: Vec<u16>,
    /// Included if the server may ask for rows by their primary keys.
    primary: PrimaryKey,
    projection: Arc<Projection>,
    /// The projection extended by the columns of the key that was used last.
    projection_with_key: Option<(usize, Arc<Projection>)>,
    /// The result of the last read by primary keys, and its request.
    reads: Option<KeyReads>,
    key: Vec<u8>,
    image: Vec<u8>,
    program: Vec<u8>,
    /// Copies of rows, and the place of each; `None` if there is no row.
    rows: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    /// The projection of the rows in `rows`.
    rows_projection: Arc<Projection>,
    /// How long to wait for the lock of a row.
    wait: LockWait,
    /// Rows that others have locked may be read in their committed state, to be looked at.
    may_look: bool,
    /// For each place in `places`, how its row is locked.
    holds: Vec<Hold>,
    /// The row that was put into the server's record last, and how it is locked.
    shown: Shown,
    hold: Hold,
    /// The hidden primary key of that row.
    hidden_key: u64,
    /// Rows that the server may ask for again.
    kept: KeptRows,
    /// Rows that are to be inserted together, see [`deferred`].
    deferred: DeferredRows,
    condition: Option<Condition>,
    scan: Option<OpenScan>,
    /// In which of the scan's ranges the row that was read last lies.
    range: u16,
    /// The ranges of a batch, and their size in bytes.
    batch_ranges: Vec<KeyRange>,
    batch_ranges_bytes: usize,
    /// The keys of a batch, one after another.
    batch_keys: Vec<u8>,
    batch_ends: Vec<usize>,
    /// The server's key to which they belong.
    batch_index: usize,
    /// Rows of the batch are in `rows`, not in `reads`.
    batch_is_copied: bool,
    /// Number of keys of the batch whose rows were requested, in order. If `batch_again` is set, the remaining rows
    /// must be read again first, with this lock.
    batch_shown: usize,
    batch_again: Option<Lock>,
    /// For a batch that was read ahead: which of its rows were requested.
    ahead_shown: Vec<bool>,
}

/// Reads by primary keys over one connection, and their results.
struct KeyReads {
    slot: usize,
    projection: Arc<Projection>,
    batch: ReadBatch,
}

/// How a row that was shown is locked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Hold {
    /// The operation that locked it.
    operation: Option<OperationNumber>,
    /// It should have been locked, but others have locked it: its committed state is shown.
    is_lacking: bool,
}

/// Where the bytes of a row are.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Shown {
    /// Nothing was shown, or its bytes are no longer there.
    Nothing,
    /// One of the rows of the reads by key.
    Read(usize),
    /// A copy, at this place in `rows`.
    Copied(Range<usize>),
    /// A row of the scan, at this offset of the last batch.
    Scanned(usize),
    /// A row of the locking scan: its number in the last batch.
    Locked(usize),
}

/// What a scan passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All rows of the table, so that it finds out their number.
    Whole,
    /// Some of them.
    Part,
}

struct OpenScan {
    source: Source,
    projection: Arc<Projection>,
    extent: Extent,
    seen: u64,
}

enum Source {
    Plain { scan: Scan, rows: Option<RowBatch>, offset: usize },
    Locked { scan: Box<LockingScan>, rows: Option<LockedRows>, next: usize },
}

impl Cursor {
    /// A cursor that has read nothing, and uses all columns.
    pub fn new(table: Arc<OpenTable>) -> Self {
        let columns = table.plan.places();
        let projection = table.projection(&columns, None);
        Cursor {
            table,
            columns,
            primary: PrimaryKey::Included,
            rows_projection: Arc::clone(&projection),
            projection,
            projection_with_key: None,
            reads: None,
            key: Vec::new(),
            image: Vec::new(),
            program: Vec::new(),
            rows: Vec::new(),
            places: Vec::new(),
            wait: LockWait::Default,
            may_look: false,
            holds: Vec::new(),
            shown: Shown::Nothing,
            hold: Hold::default(),
            hidden_key: 0,
            kept: KeptRows::default(),
            deferred: DeferredRows::default(),
            condition: None,
            scan: None,
            range: 0,
            batch_ranges: Vec::new(),
            batch_ranges_bytes: 0,
            batch_keys: Vec::new(),
            batch_ends: Vec::new(),
            batch_index: usize::MAX,
            batch_is_copied: false,
            batch_shown: 0,
            batch_again: None,
            ahead_shown: Vec::new(),
        }
    }

    /// The open table.
    pub fn table(&self) -> &Arc<OpenTable> {
        &self.table
    }

    /// Sets the columns to be read from now on, by their places, ascending. The columns of the primary key can be left
    /// out if the server will not ask for rows by their keys; not hidden ones.
    pub fn use_columns(&mut self, places: &[u16], primary: PrimaryKey) {
        let primary = if self.table.plan.has_hidden_key() { PrimaryKey::Included } else { primary };
        if places != self.columns || primary != self.primary {
            self.columns.clear();
            self.columns.extend_from_slice(places);
            self.primary = primary;
            self.projection = self.table.projection_for(places, None, primary);
            self.projection_with_key = None;
        }
    }

    /// Forgets all reads.
    pub fn reset(&mut self) {
        self.scan = None;
        self.condition = None;
        self.shown = Shown::Nothing;
        self.hold = Hold::default();
        self.may_look = false;
        self.wait = LockWait::Default;
        self.kept.clear();
        self.deferred.clear();
        self.clear_batch();
    }

    /// The projection of the used columns and those of a key.
    fn projection_with_key(&mut self, key: usize) -> Arc<Projection> {
        if let Some((_, known)) = self.projection_with_key.as_ref().filter(|(of, _)| *of == key) {
            return Arc::clone(known);
        }
        let made = self.table.projection(&self.columns, Some(key));
        self.projection_with_key = Some((key, Arc::clone(&made)));
        made
    }

    /// Reads the row with `self.key`; false if there is none.
    fn read_row(&mut self, session: &mut Session, lock: Lock, record: &mut [u8]) -> Result<bool> {
        if lock != Lock::None || session.has_pending() {
            return self.read_row_with_changes(session, lock, record);
        }
        let mut reads = self.empty_reads(session)?;
        reads.batch.push_encoded(&self.key).map_err(|error| session.node().failure(&error))?;
        reads.batch = session.read(reads.batch)?;
        self.reads = Some(reads);
        self.show_read(session, 0, record)
    }

    /// An empty set of reads, for the current projection.
    fn empty_reads(&mut self, session: &mut Session) -> Result<KeyReads> {
        self.shown = Shown::Nothing;
        match self.reads.take() {
            Some(mut reads)
                if reads.slot == session.slot() && Arc::ptr_eq(&reads.projection, &self.projection) =>
            {
                reads.batch.clear();
                Ok(reads)
            }
            _ => {
                let batch = ReadBatch::new(table_of(&self.table, &self.projection, session)?);
                Ok(KeyReads { slot: session.slot(), projection: Arc::clone(&self.projection), batch })
            }
        }
    }

    /// Reads the row with `self.key`, perhaps with a lock, together with changes that wait to be sent.
    fn read_row_with_changes(
        &mut self,
        session: &mut Session,
        lock: Lock,
        record: &mut [u8],
    ) -> Result<bool> {
        let row_lock = self.row_lock(lock);
        let handle = table_of(&self.table, &self.projection, session)?;
        let key = &self.key;
        let executed = session.execute_repeatedly(|session| session.define_locked(handle, row_lock, key))?;
        let number = executed.defined;
        self.begin_copies(Arc::clone(&self.projection));
        let hold = match session.locked_row(number, row_lock)? {
            Given::Row(image) => {
                self.rows.extend_from_slice(image);
                Hold { operation: (lock != Lock::None).then_some(number), is_lacking: false }
            }
            Given::NotLocked(Some(image)) => {
                self.rows.extend_from_slice(image);
                Hold { operation: None, is_lacking: true }
            }
            Given::NoRow | Given::NotLocked(None) => {
                // The duplicate that was met before may be gone: then the statement would have to insert after all.
                return executed.repeats.map_or(Ok(false), |failure| Err(failure.doomed()));
            }
        };
        self.show_copy(0..self.rows.len(), record)?;
        self.hold = hold;
        Ok(true)
    }

    /// How rows are locked that are read now.
    fn row_lock(&self, lock: Lock) -> RowLock {
        let looks = self.may_look && lock == Lock::Exclusive && self.wait != LockWait::SkipLocked;
        RowLock { lock, wait: if looks { LockWait::ElseCommitted } else { self.wait } }
    }

    /// Sets how long to wait for the lock of a row.
    pub fn set_wait(&mut self, wait: LockWait) {
        self.wait = wait;
    }

    /// Sets whether rows that others have locked may be shown in their committed state; [`Cursor::is_lacking`] tells
    /// which rows these are. A caller that needs such a row after all requests it again with [`Cursor::lock_shown`].
    pub fn set_may_look(&mut self, may_look: bool) {
        self.may_look = may_look;
    }

    /// Whether the row that was shown last should have been locked, and is not.
    pub fn is_lacking(&self) -> bool {
        self.hold.is_lacking
    }

    /// Releases the lock of the row that was shown last, which is not needed.
    pub fn unlock_shown(&mut self, session: &mut Session) {
        if let Some(operation) = self.hold.operation.take() {
            session.unlock(operation);
        }
    }

    /// Releases rows that were locked behind the one that was shown last; they are read again later. While this cursor
    /// waits for the lock of that row, its holder may need them.
    fn put_back(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        match (&self.shown, &mut self.scan) {
            (
                Shown::Locked(_),
                Some(OpenScan { source: Source::Locked { scan, rows: Some(rows), next }, .. }),
            ) => session.put_back(scan, rows, *next),
            (Shown::Copied(_), _) if self.batch_is_copied && self.batch_shown > 0 => {
                for hold in self.holds.iter().skip(self.batch_shown) {
                    if let Some(operation) = hold.operation {
                        session.unlock(operation);
                    }
                }
                self.batch_again = Some(lock);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Locks the row that was shown last, and shows it again; false if it has been deleted.
    ///
    /// # Errors
    /// If the row could not be locked.
    pub fn lock_shown(&mut self, session: &mut Session, lock: Lock, record: &mut [u8]) -> Result<bool> {
        let Some((projection, row)) = self.shown_row() else { return Ok(false) };
        self.key = projection.key_of(&self.table.plan, row)?.into_owned();
        self.put_back(session, lock)?;
        let may_look = std::mem::take(&mut self.may_look);
        // The rows that the scan has received stay in place, for the reads behind this one.
        let read = self.read_row(session, lock, record);
        self.may_look = may_look;
        read
    }

    /// Empties `self.rows`; from now on they have this projection.
    fn begin_copies(&mut self, projection: Arc<Projection>) {
        self.shown = Shown::Nothing;
        self.hold = Hold::default();
        self.rows.clear();
        self.places.clear();
        self.holds.clear();
        self.rows_projection = projection;
    }

    /// Puts one of the rows that were read by key into the record; false if there is none.
    fn show_read(&mut self, session: &Session, at: usize, record: &mut [u8]) -> Result<bool> {
        let Some(reads) = &self.reads else { return Ok(false) };
        let row = reads.batch.bytes(at).map_err(|error| session.node().failure(&error))?;
        let Some(row) = row else { return Ok(false) };
        self.shown = Shown::Read(at);
        self.hold = Hold::default();
        put_row(&self.table, &reads.projection, &mut self.hidden_key, row, record)?;
        Ok(true)
    }

    /// Puts one of `self.rows` into the record.
    fn show_copy(&mut self, place: Range<usize>, record: &mut [u8]) -> Result<()> {
        self.shown = Shown::Copied(place.clone());
        put_row(&self.table, &self.rows_projection, &mut self.hidden_key, &self.rows[place], record)
    }

    /// The bytes of the row that was put into the record last, and their projection.
    fn shown_row(&self) -> Option<(&Arc<Projection>, &[u8])> {
        match &self.shown {
            Shown::Nothing => None,
            Shown::Read(at) => {
                let reads = self.reads.as_ref()?;
                Some((&reads.projection, reads.batch.bytes(*at).ok()??))
            }
            Shown::Copied(place) => Some((&self.rows_projection, self.rows.get(place.clone())?)),
            Shown::Scanned(_) | Shown::Locked(_) => {
                let scan = self.scan.as_ref()?;
                Some((&scan.projection, scan.row(&self.shown)?))
            }
        }
    }

    /// Reads the row with a complete unique key in the server's form.
    ///
    /// # Errors
    /// If the row could not be read.
    pub fn read_key(
        &mut self,
        session: &mut Session,
        index: usize,
        value: &[u8],
        lock: Lock,
        record: &mut [u8],
    ) -> Result<bool> {
        self.key.clear();
        match self.table.plan.key_of_server(index, value, &session.node().server, &mut self.key) {
            // A value that can't be stored is the key of no row.
            Err(failure) if failure.number == ha::INDEX_COLUMN_TOO_LONG => return Ok(false),
            Err(failure) if failure.number == ha::KEY_NOT_FOUND => return Ok(false),
            converted => converted?,
        }
        if index == self.table.plan.primary() {
            self.read_row(session, lock, record)
        } else {
            self.read_unique_row(session, index, lock, record)
        }
    }

    /// Reads the row with `self.key` of a unique index.
    fn read_unique_row(
        &mut self,
        session: &mut Session,
        index: usize,
        lock: Lock,
        record: &mut [u8],
    ) -> Result<bool> {
        let key = self.key.clone();
        let projection = self.projection_with_key(index);
        let mut rows = self.unique_rows(session, &projection, index, vec![key], lock)?;
        self.begin_copies(projection);
        let Some((row, hold)) = rows.pop().and_then(row_of) else { return Ok(false) };
        self.rows = row;
        self.show_copy(0..self.rows.len(), record)?;
        self.hold = hold;
        Ok(true)
    }

    fn unique_rows(
        &self,
        session: &mut Session,
        projection: &Projection,
        index: usize,
        keys: Vec<Vec<u8>>,
        lock: Lock,
    ) -> Result<Vec<Found<Vec<u8>>>> {
        let row_lock = self.row_lock(lock);
        let name = self.table.plan.unique_index(index);
        let name = name.ok_or_else(|| Failure::new(ha::WRONG_COMMAND, "the key has no unique index"))?;
        let handle = table_of(&self.table, projection, session)?;
        session.read_unique(handle, name, keys, row_lock)
    }

    /// # Safety
    /// `record` is a record of this table.
    unsafe fn key_of_record(&mut self, record: &[u8], server: &crate::server::Server) -> Result<()> {
        if self.table.plan.has_hidden_key() {
            self.key.extend_from_slice(&self.hidden_key.to_le_bytes());
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { self.table.plan.key_of_record(record, server, &mut self.key) }
    }
}

/// A row that was found by a unique index, and how it is locked; `None` if there is none, or if it is skipped.
fn row_of(found: Found<Vec<u8>>) -> Option<(Vec<u8>, Hold)> {
    match found {
        Found::Row { row, operation } => Some((row, Hold { operation, is_lacking: false })),
        Found::NotLocked { committed } => {
            committed.map(|row| (row, Hold { operation: None, is_lacking: true }))
        }
        Found::NoRow => None,
    }
}

/// The table with this projection, over the session's connection.
#[inline]
fn table_of<'a>(
    table: &'a OpenTable,
    projection: &'a Projection,
    session: &mut Session,
) -> Result<&'a Table> {
    // The session has a slot in the pool once it has a connection.
    session.cluster()?;
    let slot = session.slot();
    projection.table(slot, || table.table(session).cloned())
}

/// Puts a row into a record, and keeps its primary key if that is hidden.
#[inline]
fn put_row(
    table: &OpenTable,
    projection: &Projection,
    kept_key: &mut u64,
    row: &[u8],
    record: &mut [u8],
) -> Result<()> {
    projection.read(&table.plan, row, record)?;
    if table.plan.has_hidden_key() {
        *kept_key = hidden_key(table, projection, row)?;
    }
    Ok(())
}

fn hidden_key(table: &OpenTable, projection: &Projection, row: &[u8]) -> Result<u64> {
    let key = projection.key_of(&table.plan, row)?;
    Ok(u64::from_le_bytes(key[..8].try_into().expect("a hidden key has eight bytes")))
}
