//! One use of an open table: where it reads, and what it has read.
//!
//! Rows are converted straight from the bytes that arrived into the server's record. Long values are not even copied: the
//! record points to them, so a cursor keeps what the last read brought until its next read.

mod batches;
mod changes;
mod scans;

use crate::condition::Condition;
use crate::failure::{Failure, Result, ha};
use crate::session::Session;
use crate::table::OpenTable;
use std::ops::Range;
use std::sync::Arc;
use vinga::{KeyRange, Lock, LockedRows, LockingScan, OperationKind, ReadBatch, RowBatch, Scan};

/// Rows that a data manager sends at a time of a range of which few are wanted, and of others.
const RANGE_ROWS: (u16, u16) = (4, 256);

/// Ranges of one scan, at most.
const RANGES_MAX: usize = 1024;
/// Bytes of the ranges of a batch behind which no other one is added: a request has room for these, the longest range and
/// a condition.
const RANGES_BYTES_SOFT: usize = 16 * 1024;

/// How a range is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeWish {
    /// From its end to its beginning.
    pub is_descending: bool,
    /// Its rows have to come in order.
    pub in_order: bool,
    /// The first row is likely to be enough.
    pub is_short: bool,
}

/// What the data nodes check of a condition of the server; `VINGA_CHECKED` numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(i32)]
pub enum Checked {
    /// Nothing: all rows come.
    #[default]
    None = 0,
    /// A part: rows may come for which it is not true.
    Part = 1,
    /// All of it.
    Whole = 2,
}

/// How rows of a scan are held, and how many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLock {
    /// The lock on each.
    pub lock: Lock,
    /// As many rows may be enough, so no more are locked at first; 0 if that is not known.
    pub enough: u32,
}

/// See the head of this file.
pub struct Cursor {
    table: Arc<OpenTable>,
    /// What the last read brought, and over which connection.
    reads: Option<(usize, ReadBatch)>,
    key: Vec<u8>,
    image: Vec<u8>,
    before: Vec<u8>,
    program: Vec<u8>,
    /// Rows that came with locks, and where each is; `None` where there is none.
    rows: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    /// The hidden primary key of the row that was read last.
    hidden_key: u64,
    condition: Option<Condition>,
    scan: Option<OpenScan>,
    /// In which of the scan's ranges the row lies that was read last.
    range: u16,
    /// Ranges of a batch, and their bytes.
    batch_ranges: Vec<KeyRange>,
    batch_ranges_bytes: usize,
    /// Keys of a batch, one behind the other.
    batch_keys: Vec<u8>,
    batch_ends: Vec<usize>,
    /// The server's key that they are of.
    batch_index: usize,
    /// Rows of the batch are in `rows`, not in `reads`.
    batch_is_copied: bool,
}

struct OpenScan {
    source: Source,
    /// Whether it meets all rows of the table, so that it knows how many there are.
    is_whole: bool,
    seen: u64,
}

enum Source {
    Plain { scan: Scan, rows: Option<RowBatch>, offset: usize },
    Locked { scan: Box<LockingScan>, rows: Option<LockedRows>, next: usize },
}

fn kind_of(lock: Lock) -> OperationKind {
    match lock {
        Lock::None => OperationKind::ReadCommitted,
        Lock::Shared => OperationKind::ReadShared,
        Lock::Exclusive => OperationKind::ReadExclusive,
    }
}

impl Cursor {
    /// A cursor that has read nothing.
    pub fn new(table: Arc<OpenTable>) -> Self {
        Cursor {
            table,
            reads: None,
            key: Vec::new(),
            image: Vec::new(),
            before: Vec::new(),
            program: Vec::new(),
            rows: Vec::new(),
            places: Vec::new(),
            hidden_key: 0,
            condition: None,
            scan: None,
            range: 0,
            batch_ranges: Vec::new(),
            batch_ranges_bytes: 0,
            batch_keys: Vec::new(),
            batch_ends: Vec::new(),
            batch_index: usize::MAX,
            batch_is_copied: false,
        }
    }

    /// Its table.
    pub fn table(&self) -> &Arc<OpenTable> {
        &self.table
    }

    /// Forgets what was begun and read.
    pub fn reset(&mut self) {
        self.scan = None;
        self.condition = None;
        self.clear_batch();
    }

    /// Bytes of a position.
    pub fn position_bytes(table: &OpenTable) -> usize {
        table.plan.key_bytes_max() + if table.plan.has_fixed_key() { 0 } else { 2 }
    }

    /// Reads the row with `self.key`; false if there is none.
    fn read_row(&mut self, session: &mut Session, lock: Lock, record: &mut [u8]) -> Result<bool> {
        if lock != Lock::None || session.has_pending() {
            return self.read_row_in_train(session, lock, record);
        }
        let mut batch = self.empty_batch(session)?;
        batch.push_encoded(&self.key).map_err(|error| session.node().failure(&error))?;
        let batch = session.read(batch)?;
        let found = match batch.bytes(0) {
            Ok(Some(image)) => {
                put_row(&self.table, &mut self.hidden_key, image, record)?;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(session.node().failure(&error)),
        };
        self.reads = Some((session.slot(), batch));
        found
    }

    /// A batch without keys.
    fn empty_batch(&mut self, session: &mut Session) -> Result<ReadBatch> {
        match self.reads.take() {
            Some((slot, mut batch)) if slot == session.slot() => {
                batch.clear();
                Ok(batch)
            }
            _ => Ok(ReadBatch::new(self.table.table(session)?)),
        }
    }

    /// The same, together with changes that wait to be sent.
    fn read_row_in_train(&mut self, session: &mut Session, lock: Lock, record: &mut [u8]) -> Result<bool> {
        let number = session.define_locked(&self.table, kind_of(lock), &self.key)?;
        session.execute_reads()?;
        self.rows.clear();
        match session.locked_row(number)? {
            Some(image) => self.rows.extend_from_slice(image),
            None => return Ok(false),
        }
        let place = 0..self.rows.len();
        self.show(place, record)?;
        Ok(true)
    }

    /// Puts one of `self.rows` into the record.
    fn show(&mut self, place: Range<usize>, record: &mut [u8]) -> Result<()> {
        put_row(&self.table, &mut self.hidden_key, &self.rows[place], record)
    }

    /// Reads the row with a whole unique key in the server's form.
    ///
    /// # Errors
    /// Why it was not read.
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
            // A value that could not have been stored is the key of no row.
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
        let mut rows = self.unique_rows(session, index, vec![key], lock)?;
        self.rows = match rows.pop().flatten() {
            Some(row) => row,
            None => return Ok(false),
        };
        self.show(0..self.rows.len(), record)?;
        Ok(true)
    }

    fn unique_rows(
        &self,
        session: &mut Session,
        index: usize,
        keys: Vec<Vec<u8>>,
        lock: Lock,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let name = self.table.plan.unique_index(index);
        let name = name.ok_or_else(|| Failure::new(ha::WRONG_COMMAND, "the key has no unique index"))?;
        session.read_unique(&self.table, name, keys, lock)
    }

    /// Reads the row at a position.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn read_position(
        &mut self,
        session: &mut Session,
        position: &[u8],
        lock: Lock,
        record: &mut [u8],
    ) -> Result<bool> {
        self.key.clear();
        self.key.extend_from_slice(position_key(&self.table, position));
        self.read_row(session, lock, record)
    }

    /// Writes the position of a record.
    ///
    /// # Safety
    /// `record` is a record of this table; it was read last if the table has no primary key of its own.
    ///
    /// # Errors
    /// If it has none.
    pub unsafe fn position(
        &mut self,
        record: &[u8],
        session_server: &crate::server::Server,
        out: &mut [u8],
    ) -> Result<()> {
        self.key.clear();
        // SAFETY: as the caller promises.
        unsafe { self.key_of_record(record, session_server)? };
        out.fill(0);
        if self.table.plan.has_fixed_key() {
            out[..self.key.len()].copy_from_slice(&self.key);
        } else {
            out[..2].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
            out[2..2 + self.key.len()].copy_from_slice(&self.key);
        }
        Ok(())
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

fn position_key<'a>(table: &OpenTable, position: &'a [u8]) -> &'a [u8] {
    if table.plan.has_fixed_key() {
        return position;
    }
    let length = usize::from(u16::from_le_bytes([position[0], position[1]]));
    &position[2..2 + length.min(position.len() - 2)]
}

/// Puts a row into a record, and keeps its primary key if the table has none of its own.
#[inline]
fn put_row(table: &OpenTable, kept_key: &mut u64, image: &[u8], record: &mut [u8]) -> Result<()> {
    table.plan.read_image(image, record)?;
    if table.plan.has_hidden_key() {
        *kept_key = hidden_key(table, image);
    }
    Ok(())
}

fn hidden_key(table: &OpenTable, image: &[u8]) -> u64 {
    let key = table.plan.layout().key_of(image);
    u64::from_le_bytes(key[..8].try_into().expect("a hidden key has eight bytes"))
}
