//! One use of an open table: where it reads, and what it has read.
//!
//! Rows are converted straight from the bytes that arrived into the server's record. Long values are not even copied: the
//! record points to them, so a cursor keeps what the last read brought until its next read.

use crate::condition;
use crate::failure::{Failure, Result, ha};
use crate::plan::End;
use crate::session::{Session, When};
use crate::table::OpenTable;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vinga::filter::Expression;
use vinga::{KeyRange, Lock, LockedRows, LockingScan, OperationKind, ReadBatch, RowBatch, Scan, ScanRequest};
use vinga_fragment::update_program::{Action, Instruction, write as write_program};

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
    condition: Option<Expression>,
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

    fn learn<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|failure| self.table.learn(failure))
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
                self.table.plan.read_image(image, record)?;
                if self.table.plan.has_hidden_key() {
                    self.hidden_key = hidden_key(&self.table, image);
                }
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
        let image = &self.rows[place];
        self.table.plan.read_image(image, record)?;
        if self.table.plan.has_hidden_key() {
            self.hidden_key = hidden_key(&self.table, image);
        }
        Ok(())
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
        let read = if index == self.table.plan.primary() {
            self.read_row(session, lock, record)
        } else {
            self.read_unique_row(session, index, lock, record)
        };
        self.learn(read)
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
        let read = self.read_row(session, lock, record);
        self.learn(read)
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

    /// Sets the condition that the data nodes check in scans; false if they can't.
    pub fn set_condition(&mut self, program: &[u8]) -> bool {
        self.condition = None;
        if program.is_empty() {
            return true;
        }
        self.condition = condition::decode(program, &self.table.plan);
        self.condition.is_some()
    }

    /// Begins to read all rows.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn begin_scan(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        let request = self.request(session)?;
        self.begin(session, request, lock, self.condition.is_none())
    }

    /// Begins to read a range of an ordered index.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn begin_range(
        &mut self,
        session: &mut Session,
        key: usize,
        (low, high): (End<'_>, End<'_>),
        wish: RangeWish,
        lock: Lock,
    ) -> Result<()> {
        let range = self.table.plan.range(key, low, high, &session.node().server)?;
        self.begin_ranges(session, key, &[range], wish, lock)
    }

    fn begin_ranges(
        &mut self,
        session: &mut Session,
        key: usize,
        ranges: &[KeyRange],
        wish: RangeWish,
        lock: Lock,
    ) -> Result<()> {
        let request = self.request(session)?;
        let index = self.table.plan.ordered_index(key).unwrap_or_default();
        let mut request = ranges.iter().fold(request.index(index), ScanRequest::range);
        request = request.batch_rows(if wish.is_short { RANGE_ROWS.0 } else { RANGE_ROWS.1 });
        if wish.is_descending {
            request = request.descending();
        }
        if wish.in_order {
            request = request.in_order();
        }
        self.begin(session, request, lock, false)
    }

    fn request(&mut self, session: &mut Session) -> Result<ScanRequest> {
        self.scan = None;
        let table = self.table.table(session);
        let table = self.learn(table)?;
        let mut request = session.cluster()?.as_async().scan(table);
        if let Some(condition) = &self.condition {
            session.node().counters.conditions.fetch_add(1, Ordering::Relaxed);
            request = request.filter(condition.clone());
        }
        Ok(request)
    }

    fn begin(
        &mut self,
        session: &mut Session,
        request: ScanRequest,
        lock: Lock,
        is_whole: bool,
    ) -> Result<()> {
        let begun = if lock == Lock::None {
            session.scan(request).map(|scan| Source::Plain { scan, rows: None, offset: 0 })
        } else {
            let begun = session.scan_locked(request, lock);
            begun.map(|scan| Source::Locked { scan: Box::new(scan), rows: None, next: 0 })
        };
        let source = self.learn(begun)?;
        self.scan = Some(OpenScan { source, is_whole, seen: 0 });
        Ok(())
    }

    /// Reads the next row of a scan; false at the end.
    ///
    /// # Errors
    /// Why it ended early.
    #[inline]
    pub fn next(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let Some(mut open) = self.scan.take() else {
            return Err(Failure::new(ha::INTERNAL_ERROR, "there is no open scan"));
        };
        let next = self.next_of(&mut open, session, record);
        self.scan = Some(open);
        self.learn(next)
    }

    fn next_of(&mut self, open: &mut OpenScan, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let seen = match &mut open.source {
            Source::Plain { scan, rows, offset } => loop {
                if let Some((image, next)) = rows.as_ref().and_then(|rows| rows.row_at(*offset)) {
                    self.range = rows.as_ref().and_then(|rows| rows.range_at(*offset)).unwrap_or_default();
                    *offset = next;
                    self.table.plan.read_image(image, record)?;
                    if self.table.plan.has_hidden_key() {
                        self.hidden_key = hidden_key(&self.table, image);
                    }
                    return Ok(true);
                }
                match session.next_rows(scan)? {
                    Some(more) => {
                        open.seen += more.len() as u64;
                        session.node().counters.scanned_rows.fetch_add(more.len() as u64, Ordering::Relaxed);
                        *rows = Some(more);
                        *offset = 0;
                    }
                    None => break open.seen,
                }
            },
            Source::Locked { scan, rows, next } => loop {
                if let Some((range, image)) = rows.as_ref().and_then(|rows| rows.ranged_bytes(*next)) {
                    *next += 1;
                    self.range = range;
                    self.table.plan.read_image(image, record)?;
                    if self.table.plan.has_hidden_key() {
                        self.hidden_key = hidden_key(&self.table, image);
                    }
                    return Ok(true);
                }
                match session.next_locked(scan)? {
                    Some(more) => {
                        open.seen += more.len() as u64;
                        *rows = Some(more);
                        *next = 0;
                    }
                    None => break open.seen,
                }
            },
        };
        if open.is_whole {
            self.table.set_rows(seen);
        }
        Ok(false)
    }

    /// In which of the ranges of [`Cursor::begin_batch_scan`] the row lies that was read last, from 0.
    pub fn range(&self) -> u16 {
        self.range
    }

    /// Executes reads that were defined and keeps their rows.
    fn take_rows(&mut self, session: &mut Session, numbers: &[vinga::OperationNumber]) -> Result<()> {
        session.execute_reads()?;
        self.rows.clear();
        self.places.clear();
        for number in numbers {
            let begin = self.rows.len();
            let place = session.locked_row(*number)?.map(|image| {
                self.rows.extend_from_slice(image);
                begin..begin + image.len()
            });
            self.places.push(place);
        }
        Ok(())
    }

    /// Begins a batch of keys or ranges.
    pub fn clear_batch(&mut self) {
        self.batch_keys.clear();
        self.batch_ends.clear();
        self.batch_ranges.clear();
        self.batch_ranges_bytes = 0;
    }

    /// Adds a range of a key's ordered index. False if there is no room for another one behind it.
    ///
    /// # Errors
    /// If the key has no such index, or a value is too long for it.
    pub fn add_range_to_batch(&mut self, key: usize, low: End<'_>, high: End<'_>) -> Result<bool> {
        let range = self.table.plan.range(key, low, high, self.table.server())?;
        self.batch_ranges_bytes += range.from.len() + range.to.as_ref().map_or(0, Vec::len) + 4;
        self.batch_ranges.push(range);
        Ok(self.batch_ranges.len() < RANGES_MAX && self.batch_ranges_bytes < RANGES_BYTES_SOFT)
    }

    /// Begins to read all ranges of the batch in one scan.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn begin_batch_scan(
        &mut self,
        session: &mut Session,
        key: usize,
        wish: RangeWish,
        lock: Lock,
    ) -> Result<()> {
        session.node().counters.batches.fetch_add(1, Ordering::Relaxed);
        let ranges = std::mem::take(&mut self.batch_ranges);
        let begun = self.begin_ranges(session, key, &ranges, wish, lock);
        self.batch_ranges = ranges;
        begun
    }

    /// Adds a whole unique key in the server's form; all of a batch are of the same one.
    ///
    /// # Errors
    /// If it is none.
    pub fn add_to_batch(&mut self, index: usize, value: &[u8]) -> Result<()> {
        self.batch_index = index;
        let begin = self.batch_keys.len();
        match self.table.plan.key_of_server(index, value, self.table.server(), &mut self.batch_keys) {
            // The key of no row: an empty one is never sent.
            Err(failure) if matches!(failure.number, ha::INDEX_COLUMN_TOO_LONG | ha::KEY_NOT_FOUND) => {
                self.batch_keys.truncate(begin);
            }
            converted => converted?,
        }
        self.batch_ends.push(self.batch_keys.len());
        Ok(())
    }

    fn batch_key(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.batch_ends[before]);
        &self.batch_keys[begin..self.batch_ends[index]]
    }

    /// Reads all rows of the batch in one round trip.
    ///
    /// # Errors
    /// Why nothing was read.
    pub fn run_batch(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        let run = self.run_batch_inner(session, lock);
        self.learn(run)
    }

    fn run_batch_inner(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        session.node().counters.batches.fetch_add(1, Ordering::Relaxed);
        let count = self.batch_ends.len();
        let is_unique = self.batch_index != self.table.plan.primary();
        self.batch_is_copied = is_unique || lock != Lock::None || session.has_pending();
        self.places.clear();
        if self.batch_is_copied {
            if is_unique {
                self.take_unique_rows(session, lock)?;
            } else {
                let mut numbers = Vec::with_capacity(count);
                for index in 0..count {
                    if !self.batch_key(index).is_empty() {
                        let key = self.batch_key(index);
                        numbers.push(session.define_locked(&self.table, kind_of(lock), key)?);
                    }
                }
                self.take_rows(session, &numbers)?;
            }
            let mut found = std::mem::take(&mut self.places).into_iter();
            for index in 0..count {
                let place = if self.batch_key(index).is_empty() { None } else { found.next().flatten() };
                self.places.push(place);
            }
            return Ok(());
        }
        let mut batch = self.empty_batch(session)?;
        let mut sent = 0;
        for index in 0..count {
            let key = self.batch_key(index);
            if key.is_empty() {
                self.places.push(None);
                continue;
            }
            batch.push_encoded(key).map_err(|error| session.node().failure(&error))?;
            // Which of the batch it is.
            self.places.push(Some(sent..sent));
            sent += 1;
        }
        let batch = if sent == 0 { batch } else { session.read(batch)? };
        self.reads = Some((session.slot(), batch));
        Ok(())
    }

    /// Reads the rows of a batch of keys of a unique index and keeps them.
    fn take_unique_rows(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        let keys =
            (0..self.batch_ends.len()).map(|index| self.batch_key(index)).filter(|key| !key.is_empty());
        let keys = keys.map(<[u8]>::to_vec).collect();
        let rows = self.unique_rows(session, self.batch_index, keys, lock)?;
        self.rows.clear();
        for row in rows {
            let begin = self.rows.len();
            self.places.push(row.map(|row| {
                self.rows.extend_from_slice(&row);
                begin..begin + row.len()
            }));
        }
        Ok(())
    }

    /// Shows a row of the batch; false if there is none with that key.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn batch_row(&mut self, session: &mut Session, index: usize, record: &mut [u8]) -> Result<bool> {
        let Some(place) = self.places.get(index).cloned().flatten() else { return Ok(false) };
        if self.batch_is_copied {
            self.show(place, record)?;
            return Ok(true);
        }
        let Some((_, reads)) = &self.reads else { return Ok(false) };
        match reads.bytes(place.start) {
            Ok(Some(image)) => {
                self.table.plan.read_image(image, record)?;
                if self.table.plan.has_hidden_key() {
                    self.hidden_key = hidden_key(&self.table, image);
                }
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                let failure = session.node().failure(&error);
                self.learn(Err(failure))
            }
        }
    }

    /// Adds a row.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// Why it was not added, or a change before it failed.
    pub unsafe fn insert(&mut self, session: &mut Session, record: &[u8], now: bool) -> Result<()> {
        let hidden =
            if self.table.plan.has_hidden_key() { self.table.counter.take(session, 1)?.0 } else { 0 };
        self.image.clear();
        // SAFETY: as the caller promises.
        unsafe { self.table.plan.write_image(record, hidden, &session.node().server, &mut self.image)? };
        let when = if now { When::Now } else { When::InStatement };
        let changed = session.change(&self.table, OperationKind::Insert, &[], &self.image, when);
        self.learn(changed)
    }

    /// Replaces a row that was read with a lock.
    ///
    /// # Safety
    /// Both are records of this table, whose pointers point to values.
    ///
    /// # Errors
    /// Why it was not replaced, or a change before it failed.
    pub unsafe fn update(&mut self, session: &mut Session, before: &[u8], after: &[u8]) -> Result<()> {
        let node = Arc::clone(session.node());
        self.image.clear();
        self.before.clear();
        // SAFETY: as the caller promises.
        unsafe {
            self.table.plan.write_image(before, self.hidden_key, &node.server, &mut self.before)?;
            self.table.plan.write_image(after, self.hidden_key, &node.server, &mut self.image)?;
        }
        let layout = self.table.plan.layout();
        let key = layout.key_of(&self.before);
        if key != layout.key_of(&self.image) {
            let removed = session.change(&self.table, OperationKind::Delete, &key, &[], When::InStatement);
            let changed = removed.and_then(|()| {
                session.change(&self.table, OperationKind::Insert, &[], &self.image, When::Now)
            });
            return self.learn(changed);
        }
        let (fixed_before, variable_before) = layout.split(&self.before);
        let (fixed, variable) = layout.split(&self.image);
        let mut instructions = Vec::new();
        let definition = self.table.table(session)?.definition();
        let mut may_fail = false;
        for (id, column) in (0..).zip(layout.columns()) {
            let was_null = layout.is_null(fixed_before, column);
            let is_null = layout.is_null(fixed, column);
            let value = layout.bytes(fixed, variable, column);
            if was_null == is_null
                && (is_null || value == layout.bytes(fixed_before, variable_before, column))
            {
                continue;
            }
            let action = if is_null { Action::SetNull } else { Action::Set(value) };
            may_fail |= self.table.plan.is_unique_column(vinga::ColumnId(id), definition);
            instructions.push(Instruction { column: vinga::ColumnId(id), action });
        }
        if instructions.is_empty() {
            return Err(Failure::new(ha::RECORD_IS_THE_SAME, "nothing changes"));
        }
        self.program.clear();
        write_program(&mut instructions, layout, &mut self.program)
            .map_err(|error| Failure::new(ha::INTERNAL_ERROR, format!("{error}")))?;
        let when = if may_fail { When::Now } else { When::InTransaction };
        let changed = session.change(&self.table, OperationKind::Update, &key, &self.program, when);
        self.learn(changed)
    }

    /// Removes a row that was read with a lock.
    ///
    /// # Safety
    /// `record` is a record of this table.
    ///
    /// # Errors
    /// Why it was not removed, or a change before it failed.
    pub unsafe fn erase(&mut self, session: &mut Session, record: &[u8]) -> Result<()> {
        self.key.clear();
        let server = session.node().server;
        // SAFETY: as the caller promises.
        unsafe { self.key_of_record(record, &server)? };
        // A reader may hold the entry of a unique index.
        let may_fail = self.table.plan.has_unique_index();
        let when = if may_fail { When::InStatement } else { When::InTransaction };
        let changed = session.change(&self.table, OperationKind::Delete, &self.key, &[], when);
        self.learn(changed)
    }
}

fn position_key<'a>(table: &OpenTable, position: &'a [u8]) -> &'a [u8] {
    if table.plan.has_fixed_key() {
        return position;
    }
    let length = usize::from(u16::from_le_bytes([position[0], position[1]]));
    &position[2..2 + length.min(position.len() - 2)]
}

fn hidden_key(table: &OpenTable, image: &[u8]) -> u64 {
    let key = table.plan.layout().key_of(image);
    u64::from_le_bytes(key[..8].try_into().expect("a hidden key has eight bytes"))
}
