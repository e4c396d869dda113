//! Locking scans: a scan of committed rows, whose rows are then locked by key, a batch at a time.
//!
//! The scan itself locks nothing: it gives the primary keys of rows that were committed (or changed by the transaction
//! itself before the scan began). The rows of each batch are then read by key under the lock, in one request. Between
//! the two a row may have been changed: filter and range are checked again on the locked row, and one that fits no
//! longer is left out and unlocked. A row that the scan met twice, because its key changed under way, is given once.
//!
//! Who may need few rows says so: then no more of what the scan found are locked together than that ([`GROWTH`]).
//!
//! *Deadlocks.* Where the order of rows does not matter, those that were found together are locked in the order of
//! their primary keys, so that scans of the same rows do not lock them crosswise. Who was given rows as they are
//! committed, and has to wait for one of them, must not hold those behind it meanwhile: [`LockingScan::put_back`].
//!
//! Rows that others have locked are waited for, left out, or given as they are committed, as was asked for. If one
//! can't be locked that fails the scan, the rows before it are given first, and those that were locked behind it are
//! let go of.

use crate::lock::{Lock, LockWait};
use crate::row::{ReadRow, Record, RowReader};
use crate::scan::{Finished, Scan, ScanRequest};
use crate::table::Table;
use crate::transaction::Transaction;
use crate::unique::with_columns;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use vinga_base::order_key::OrderKey;
use vinga_base::{ColumnId, OperationNumber};
use vinga_client_core::{Error, OperationSpec, RangeSpec, Result, RowRef, ScanSpec, Token};
use vinga_wire::ErrorCode;

/// The range of a scan, as rows are checked against it.
struct RangeCheck {
    key: OrderKey,
    columns: Vec<ColumnId>,
    spec: RangeSpec,
}

impl RangeCheck {
    /// Whether a row is in a range now.
    fn holds(&self, row: &RowRef<'_>, range: u16) -> Result<bool> {
        let values: Vec<Option<&[u8]>> =
            self.columns.iter().map(|&column| row.bytes(column)).collect::<Result<_>>()?;
        let mut key = Vec::new();
        self.key.write_values(&values, &mut key).map_err(|_| ErrorCode::InternalError)?;
        let bounds = self.spec.bounds().nth(usize::from(range)).ok_or(ErrorCode::InternalError)?;
        Ok(*bounds.low <= *key && (bounds.high.is_empty() || *key < *bounds.high))
    }
}

/// Where few rows were expected and more are wanted, there are so many times as many in all after the next request.
const GROWTH: usize = 4;

/// Rows that a transaction has locked, from a scan. [`Transaction::scan_locked`] begins one.
///
/// Each call names the transaction, which can be used between them. The rows of a batch (64 at first, then more) are
/// locked together, so some may be locked that are never looked at: few if [`LockingScan::expect_rows`] says how many
/// are wanted. Nothing keeps others from adding rows: the same scan done again may find more.
///
/// Rows come in the order that was asked for. One whose key was changed just before it was locked stands where the scan
/// had found it.
///
/// Each row comes with the operation that has locked it ([`LockingScan::operation`], [`LockedRows::operation`]): a row
/// that is not wanted after all is let go of by [`Transaction::unlock`]. With [`LockWait::SkipLocked`] rows that others
/// have locked are left out; with [`LockWait::ElseCommitted`] they are given as they are committed, unless filter or
/// range reject that, and are not locked ([`LockedRows::is_locked`]). With other waits the scan fails at the first row
/// that could not be locked, when the rows before it have been given; the transaction goes on.
pub struct LockingScan<R = Record> {
    table: Table<R>,
    transaction: Token,
    lock: Lock,
    wait: LockWait,
    scan: Scan<Record>,
    check: Option<RangeCheck>,
    filter: Vec<u8>,
    rows_left: u32,
    /// As many rows may be enough.
    expected: Option<usize>,
    /// Keys that the scan has found and that are to be locked next, with their ranges.
    found: Vec<(u16, Vec<u8>)>,
    /// Rows that were given, by range and primary key.
    given: HashSet<(u16, Vec<u8>)>,
    rows: LockedRows<R>,
    next: usize,
    /// The keys among which the rows of the last batch are.
    asked: Vec<(u16, Vec<u8>)>,
    /// Rows that are locked together next, at most: few after some were put back.
    portion_max: usize,
    is_in_order: bool,
    is_limited: bool,
    is_over: bool,
    /// Why it ends behind the rows that are there.
    failure: Option<Error>,
}

impl<R> LockingScan<R> {
    pub(crate) fn begin(
        request: ScanRequest<R>,
        within: (Token, OperationNumber),
        lock: Lock,
        wait: LockWait,
    ) -> Result<Self> {
        let Finished { table, spec } = request.finish()?;
        let core = table.core();
        let check = match &spec.ranges {
            Some(ranges) => {
                let index = core.definition().index(ranges.index).ok_or(ErrorCode::InternalError)?;
                let columns = index.column_ids().collect();
                Some(RangeCheck { key: core.order_key(index), columns, spec: ranges.clone() })
            }
            None => None,
        };
        let needed = check.as_ref().map_or(&[][..], |check| &check.columns);
        let selection = with_columns(table.columns(), needed);
        let limit = if spec.limit == 0 { u32::MAX } else { spec.limit };
        let keys = ScanSpec {
            columns: Some(core.layout().key().to_vec()),
            // Rows that are left out do not count, so the scan itself has no limit; but its batches need not be longer.
            limit: 0,
            batch_rows: spec.batch_rows.min(u16::try_from(limit).unwrap_or(u16::MAX)),
            filter: spec.filter.clone(),
            ..spec
        };
        let key_table = Table::new(table.handle(), Arc::clone(table.shared_core()), keys.columns.clone())?;
        let (transaction, _) = within;
        let is_in_order = keys.ranges.as_ref().is_some_and(|ranges| ranges.in_order);
        Ok(LockingScan {
            scan: Scan::begin(key_table, keys, Some(within))?,
            rows: LockedRows::new(&table, selection),
            table,
            transaction,
            lock,
            wait,
            check,
            filter: spec.filter,
            rows_left: limit,
            expected: None,
            found: Vec::new(),
            given: HashSet::new(),
            next: 0,
            asked: Vec::new(),
            portion_max: usize::MAX,
            is_in_order,
            is_limited: limit != u32::MAX,
            is_over: false,
            failure: None,
        })
    }

    /// So many rows are likely to be enough, though there is no limit: until they have been given no more are locked
    /// than are missing. If more are wanted after all, that costs a round trip each time there are four times as many.
    pub fn expect_rows(&mut self, rows: u32) {
        self.expected = Some(rows.max(1) as usize);
    }

    /// The next rows, locked; `None` at the end. Not to be mixed with reading row by row.
    ///
    /// # Errors
    /// Why the scan ended early or a row could not be locked; `BadProgram` if it is another transaction's.
    pub async fn next_batch(&mut self, transaction: &mut Transaction) -> Result<Option<LockedRows<R>>> {
        let more = self.fill(transaction).await?;
        let empty = LockedRows::new(&self.table, self.rows.selection.clone());
        Ok(more.then(|| std::mem::replace(&mut self.rows, empty)))
    }

    /// Locks rows until there are some; false at the end.
    async fn fill(&mut self, transaction: &mut Transaction) -> Result<bool> {
        if transaction.token() != self.transaction {
            let detail = "the scan was begun in another transaction";
            return Err(Error::with_detail(ErrorCode::BadProgram, detail));
        }
        self.rows.clear();
        self.next = 0;
        while self.rows.is_empty() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if !self.find().await? {
                break;
            }
            let later = self.found.split_off(self.portion());
            let keys = std::mem::replace(&mut self.found, later);
            self.lock(transaction, &keys).await?;
            self.asked = keys;
            self.portion_max = self.portion_max.saturating_mul(GROWTH);
        }
        Ok(!self.rows.is_empty())
    }

    /// Rows that are locked together next, of those that were found: no more than may still be given.
    fn portion(&self) -> usize {
        let given = self.given.len();
        let wanted = match self.expected {
            None => usize::MAX,
            Some(expected) if given < expected => expected - given,
            Some(_) => (GROWTH - 1) * given,
        };
        wanted.min(self.rows_left as usize).min(self.portion_max).min(self.found.len())
    }

    /// The rows of the last batch from this one on are taken out of it: their locks are let go of with what is executed
    /// next, and they are met again, few at first. For who is about to wait for the lock of a row before them: if it
    /// held them meanwhile, whoever has that row and comes to want them would never go on.
    ///
    /// It has no effect on a scan with a limit, or one that has failed.
    ///
    /// # Errors
    /// That the transaction is over.
    pub fn put_back(
        &mut self,
        transaction: &mut Transaction,
        rows: &mut LockedRows<R>,
        from: usize,
    ) -> Result<()> {
        if self.is_limited || self.failure.is_some() || from >= rows.len() {
            return Ok(());
        }
        let mut back = Vec::new();
        for (place, _) in rows.places.split_off(from) {
            if place.is_locked {
                transaction.unlock(place.operation)?;
            }
            let met = std::mem::take(&mut self.asked[place.asked as usize]);
            self.given.remove(&met);
            back.push(met);
        }
        self.rows_left += back.len() as u32;
        back.append(&mut self.found);
        self.found = back;
        self.portion_max = GROWTH;
        Ok(())
    }

    /// Waits until it is known whether there are more rows to be locked, and locks none of them; false at the end. Who
    /// asks this before [`LockingScan::next_batch`] learns of the end without having executed what was defined.
    ///
    /// # Errors
    /// Why the scan ended early.
    pub async fn find(&mut self) -> Result<bool> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while self.found.is_empty() && !self.is_over {
            let batch = match self.rows_left {
                0 => None,
                _ => self.scan.next_batch().await?,
            };
            let Some(batch) = batch else {
                self.is_over = true;
                self.scan.close();
                break;
            };
            let keys = batch.ranged().map(|(range, bytes)| Ok((range, self.key(bytes)?)));
            let mut keys: Vec<(u16, Vec<u8>)> = keys.collect::<Result<_>>()?;
            keys.retain(|met| !self.given.contains(met));
            if !self.is_in_order {
                keys.sort_unstable();
            }
            self.found = keys;
        }
        Ok(!self.found.is_empty())
    }

    /// The key of a row of the scan.
    fn key(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let core = self.table.core();
        let row = RowRef::new(core, Some(core.layout().key()), bytes)?;
        let mut key = Vec::new();
        core.write_key_of(|id| row.bytes(id), &mut key)?;
        Ok(key)
    }

    /// Locks rows in one request and keeps those that still fit.
    async fn lock(&mut self, transaction: &mut Transaction, keys: &[(u16, Vec<u8>)]) -> Result<()> {
        let core = self.table.core();
        let mut numbers = Vec::with_capacity(keys.len());
        for (_, key) in keys {
            numbers.push(transaction.define_operation(&OperationSpec {
                columns: self.rows.selection.as_deref(),
                filter: &self.filter,
                error_is_local: true,
                wait: self.wait,
                ..OperationSpec::new(core, self.lock.kind(), key, &[])
            })?);
        }
        transaction.execute().await?;
        let mut unlocks = Vec::new();
        for ((asked, (range, key)), number) in (0..).zip(keys).zip(numbers) {
            if self.failure.is_some() {
                if let Ok(Some(_)) = transaction.bytes(number) {
                    unlocks.push(number);
                }
                continue;
            }
            let (bytes, is_locked) = match transaction.bytes(number) {
                Ok(Some(bytes)) => (bytes, true),
                // It is gone, or the filter rejects it.
                Ok(None) => continue,
                Err(error) => match (error.code(), transaction.committed(number)) {
                    (ErrorCode::ConditionFailed, _) => continue,
                    (ErrorCode::RowLocked, committed) if self.wait.skips() => match committed {
                        Some(bytes) => (bytes, false),
                        None => continue,
                    },
                    _ => {
                        self.failure = Some(error.at_operation(Some(number)));
                        continue;
                    }
                },
            };
            let row = RowRef::new(core, self.rows.selection.as_deref(), bytes)?;
            let fits = match &self.check {
                Some(check) => check.holds(&row, *range)?,
                None => true,
            };
            if fits && self.given.insert((*range, key.clone())) {
                self.rows.push(Place { range: *range, asked, operation: number, is_locked }, bytes);
                self.rows_left -= 1;
            } else if is_locked {
                unlocks.push(number);
            }
        }
        if self.rows_left == 0 || self.failure.is_some() {
            self.found.clear();
        }
        if self.failure.is_some() {
            self.is_over = true;
            self.scan.close();
        }
        unlocks.into_iter().try_for_each(|number| transaction.unlock(number))
    }
}

impl<R: ReadRow> LockingScan<R> {
    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// As [`LockingScan::next_batch`].
    pub async fn next(&mut self, transaction: &mut Transaction) -> Result<Option<R>> {
        if self.next == self.rows.len() && !self.fill(transaction).await? {
            return Ok(None);
        }
        self.next += 1;
        self.rows.row(self.next - 1).map(Some)
    }

    /// In which of the scan's ranges the row lies that was given last, counted from 0.
    pub fn range(&self) -> u16 {
        self.shown().range
    }

    /// The operation that has read the row that was given last: it is what [`Transaction::unlock`] is given.
    pub fn operation(&self) -> OperationNumber {
        self.shown().operation
    }

    /// Whether the row that was given last is locked; if not, others have it, and this is its committed version.
    pub fn is_locked(&self) -> bool {
        self.shown().is_locked
    }

    fn shown(&self) -> &Place {
        &self.rows.places[self.next.saturating_sub(1)].0
    }

    /// All rows that are left.
    ///
    /// # Errors
    /// As [`LockingScan::next_batch`].
    pub async fn collect(mut self, transaction: &mut Transaction) -> Result<Vec<R>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next(transaction).await? {
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Rows of a locking scan.
pub struct LockedRows<R = Record> {
    table: Table<R>,
    /// What was read: what is wanted and, behind it, what the check needs. `None` for whole images.
    selection: Option<Vec<ColumnId>>,
    bytes: Vec<u8>,
    /// What each row is, and where it stands.
    places: Vec<(Place, Range<usize>)>,
}

/// What is known of a row beside its columns.
#[derive(Clone, Copy)]
struct Place {
    range: u16,
    /// Which of the keys it has that were asked for with it.
    asked: u32,
    /// By which it was read.
    operation: OperationNumber,
    is_locked: bool,
}

impl<R> LockedRows<R> {
    fn new(table: &Table<R>, selection: Option<Vec<ColumnId>>) -> Self {
        LockedRows { table: table.clone(), selection, bytes: Vec::new(), places: Vec::new() }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    fn push(&mut self, place: Place, row: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.places.push((place, start..self.bytes.len()));
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The bytes of a row, by its place among them: an image, or a selection.
    pub fn bytes(&self, at: usize) -> Option<&[u8]> {
        self.ranged_bytes(at).map(|(_, bytes)| bytes)
    }

    /// The number of the range of a row and its bytes, by its place among them.
    pub fn ranged_bytes(&self, at: usize) -> Option<(u16, &[u8])> {
        let (place, bytes) = self.places.get(at)?;
        Some((place.range, &self.bytes[bytes.clone()]))
    }

    /// The operation that has read a row, by its place among them: it is what [`Transaction::unlock`] is given.
    pub fn operation(&self, at: usize) -> Option<OperationNumber> {
        self.places.get(at).map(|(place, _)| place.operation)
    }

    /// Whether a row is locked, by its place among them; if not, others have it, and this is its committed version.
    pub fn is_locked(&self, at: usize) -> bool {
        self.places.get(at).is_some_and(|(place, _)| place.is_locked)
    }

    /// The number of the range of each row, and the row in place.
    ///
    /// # Errors
    /// `InternalError`: a data node sent what is no row.
    pub fn ranged(&self) -> impl Iterator<Item = Result<(u16, RowRef<'_>)>> {
        (0..self.len()).filter_map(|at| self.ranged_at(at).transpose())
    }

    /// The number of the range of a row and the row in place, by its place among them.
    ///
    /// # Errors
    /// As [`LockedRows::ranged`].
    pub fn ranged_at(&self, at: usize) -> Result<Option<(u16, RowRef<'_>)>> {
        let Some((Place { range, .. }, bytes)) = self.places.get(at) else { return Ok(None) };
        let row = RowRef::new(self.table.core(), self.selection.as_deref(), &self.bytes[bytes.clone()])?;
        let wanted = self.table.columns().map_or(0, <[_]>::len);
        Ok(Some((*range, row.first_columns(wanted))))
    }
}

impl<R: ReadRow> LockedRows<R> {
    /// A row, by its place among them.
    ///
    /// # Errors
    /// `BadRow` if it does not fit its type.
    fn row(&self, at: usize) -> Result<R> {
        let (_, row) = self.ranged_at(at)?.ok_or(ErrorCode::InternalError)?;
        R::read(&RowReader::new(row))
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = Result<R>> {
        (0..self.len()).map(|at| self.row(at))
    }
}
