//! Batches: many keys, or many ranges, with one request.

use super::{Cursor, Hold, RANGES_BYTES_SOFT, RANGES_MAX, RangeOptions, ScanLock, row_of, table_of};
use crate::failure::{Result, ha};
use crate::plan::End;
use crate::session::{Given, RowLock, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vinga::{Lock, OperationNumber};

impl Cursor {
    /// Executes reads that were defined, and copies their rows.
    fn take_rows(&mut self, session: &mut Session, numbers: &[OperationNumber], lock: RowLock) -> Result<()> {
        session.execute_reads()?;
        self.begin_copies(Arc::clone(&self.projection));
        for number in numbers {
            match session.locked_row(*number, lock)? {
                Given::Row(image) => {
                    let operation = (lock.lock != Lock::None).then_some(*number);
                    self.copy_of_batch(Some(image), Hold { operation, is_lacking: false });
                }
                Given::NotLocked(image) => {
                    self.copy_of_batch(image, Hold { operation: None, is_lacking: true });
                }
                Given::NoRow => self.copy_of_batch(None, Hold::default()),
            }
        }
        Ok(())
    }

    /// Copies the next row of a batch.
    fn copy_of_batch(&mut self, row: Option<&[u8]>, hold: Hold) {
        let begin = self.rows.len();
        self.rows.extend_from_slice(row.unwrap_or_default());
        self.places.push(row.map(|_| begin..self.rows.len()));
        self.holds.push(hold);
    }

    /// Begins a batch of keys or ranges.
    pub fn clear_batch(&mut self) {
        self.batch_keys.clear();
        self.batch_ends.clear();
        self.batch_ranges.clear();
        self.batch_ranges_bytes = 0;
        self.batch_shown = 0;
        self.batch_again = None;
    }

    /// Adds a range of a key's ordered index. False if there is no room for another range after it.
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
    /// If the scan can't begin.
    pub fn begin_batch_scan(
        &mut self,
        session: &mut Session,
        key: usize,
        options: RangeOptions,
        lock: ScanLock,
    ) -> Result<()> {
        session.node().counters.batches.fetch_add(1, Ordering::Relaxed);
        let ranges = std::mem::take(&mut self.batch_ranges);
        let begun = self.begin_ranges(session, key, &ranges, options, lock);
        self.batch_ranges = ranges;
        begun
    }

    /// Adds a complete unique key in the server's form; all keys of a batch must belong to the same index.
    ///
    /// # Errors
    /// If it is not a unique key.
    pub fn add_to_batch(&mut self, index: usize, value: &[u8]) -> Result<()> {
        self.batch_index = index;
        let begin = self.batch_keys.len();
        match self.table.plan.key_of_server(index, value, self.table.server(), &mut self.batch_keys) {
            // This key belongs to no row: an empty one is stored, and never sent.
            Err(failure) if matches!(failure.number, ha::INDEX_COLUMN_TOO_LONG | ha::KEY_NOT_FOUND) => {
                self.batch_keys.truncate(begin);
            }
            converted => converted?,
        }
        self.batch_ends.push(self.batch_keys.len());
        Ok(())
    }

    /// Number of keys in the batch.
    pub(super) fn batch_len(&self) -> usize {
        self.batch_ends.len()
    }

    /// A key of the batch; empty if no row can have it.
    pub(super) fn batch_key(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.batch_ends[before]);
        &self.batch_keys[begin..self.batch_ends[index]]
    }

    /// Reads all rows of the batch in one round trip.
    ///
    /// # Errors
    /// If the rows could not be read.
    pub fn run_batch(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        self.batch_shown = 0;
        self.batch_again = None;
        self.read_batch(session, lock, 0)
    }

    /// Reads the rows of the batch from this key on; those before it count as absent.
    fn read_batch(&mut self, session: &mut Session, lock: Lock, from: usize) -> Result<()> {
        session.node().counters.batches.fetch_add(1, Ordering::Relaxed);
        let count = self.batch_ends.len();
        let is_unique = self.batch_index != self.table.plan.primary();
        self.batch_is_copied = is_unique || lock != Lock::None || session.has_pending();
        self.places.clear();
        let row_lock = self.row_lock(lock);
        if self.batch_is_copied {
            if is_unique {
                self.take_unique_rows(session, lock, from)?;
            } else {
                let mut numbers = Vec::with_capacity(count);
                for index in from..count {
                    if !self.batch_key(index).is_empty() {
                        let key = self.batch_key(index);
                        let handle = table_of(&self.table, &self.projection, session)?;
                        numbers.push(session.define_locked(handle, row_lock, key)?);
                    }
                }
                self.take_rows(session, &numbers, row_lock)?;
            }
            // Keys that no row can have were not sent.
            let mut found = std::mem::take(&mut self.places).into_iter().zip(std::mem::take(&mut self.holds));
            for index in 0..count {
                let was_sent = index >= from && !self.batch_key(index).is_empty();
                let next = if was_sent { found.next() } else { None };
                let (place, hold) = next.unwrap_or_default();
                self.places.push(place);
                self.holds.push(hold);
            }
            return Ok(());
        }
        let mut reads = self.empty_reads(session)?;
        let mut sent = 0;
        for index in 0..count {
            let key = self.batch_key(index);
            if index < from || key.is_empty() {
                self.places.push(None);
                continue;
            }
            reads.batch.push_encoded(key).map_err(|error| session.node().failure(&error))?;
            // The place of the row in the batch.
            self.places.push(Some(sent..sent));
            sent += 1;
        }
        if sent > 0 {
            reads.batch = session.read(reads.batch)?;
        }
        self.reads = Some(reads);
        Ok(())
    }

    /// Reads the rows of a batch of keys of a unique index and keeps them.
    fn take_unique_rows(&mut self, session: &mut Session, lock: Lock, from: usize) -> Result<()> {
        let keys =
            (from..self.batch_ends.len()).map(|index| self.batch_key(index)).filter(|key| !key.is_empty());
        let keys = keys.map(<[u8]>::to_vec).collect();
        let projection = self.projection_with_key(self.batch_index);
        let rows = self.unique_rows(session, &projection, self.batch_index, keys, lock)?;
        self.begin_copies(projection);
        for found in rows {
            let row = row_of(found);
            let hold = row.as_ref().map(|(_, hold)| *hold).unwrap_or_default();
            self.copy_of_batch(row.as_ref().map(|(row, _)| row.as_slice()), hold);
        }
        Ok(())
    }

    /// Shows a row of the batch, which must be behind those that were shown before; false if there is none with that
    /// key.
    ///
    /// # Errors
    /// If the row could not be read.
    pub fn batch_row(&mut self, session: &mut Session, index: usize, record: &mut [u8]) -> Result<bool> {
        if let Some(lock) = self.batch_again.take() {
            self.read_batch(session, lock, index)?;
        }
        self.batch_shown = index + 1;
        self.show_of_batch(session, index, record)
    }

    /// Shows any row of the batch; false if there is none with that key.
    pub(super) fn show_of_batch(
        &mut self,
        session: &mut Session,
        index: usize,
        record: &mut [u8],
    ) -> Result<bool> {
        let Some(place) = self.places.get(index).cloned().flatten() else { return Ok(false) };
        if self.batch_is_copied {
            self.show_copy(place, record)?;
            self.hold = self.holds.get(index).copied().unwrap_or_default();
            return Ok(true);
        }
        self.show_read(session, place.start, record)
    }
}
