//! Changes that the data nodes make themselves: `UPDATE` and `DELETE` whose conditions the data nodes can check and
//! whose values are constants, or a column plus or minus a constant.
//!
//! The server would read each row with a lock, check it, and send its new state. Here only the rows' primary keys are
//! needed: given by the statement, or found by a scan that returns nothing else. For each key one request contains the
//! change, on condition that the row fulfils the statement's condition when it is locked; so a row that others have
//! changed since the scan is checked in its current state. The change is preceded by a locking read of the columns that
//! are set, if the server has to know whether the row differs afterwards, or if rows that do not fulfil the condition
//! must stay locked too.
//!
//! A statement that stands alone and changes one key sends the change with the commit: that is one round trip instead
//! of two, and the data node has the row locked only while it handles the request. As the errors of a change undo only
//! itself, nothing is committed if it fails.
//!
//! Each key is changed once, even if the scan meets its row several times. Errors are those of single operations: the
//! server undoes the statement then. A sum that does not fit its column is not yet an error of the statement, as its
//! consequence depends on the session: everything is undone here, and the server processes the rows one by one.

use super::{Cursor, RangeOptions};
use crate::failure::{Failure, Result, ha};
use crate::plan::{ChangedColumn, Projection};
use crate::row_name::RowSet;
use crate::session::{ChangeIf, Changed, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vinga::{ColumnType, KeyRange, LockWait, OperationKind, OperationNumber, ScanRequest, Table};
use vinga_program::update_program::{Action, Instruction, write as write_program};

/// Maximum number of keys in one request.
const KEYS_AT_ONCE: usize = 512;

/// The rows that may be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Candidates {
    /// All rows of the table.
    All,
    /// Rows whose primary keys were added to the batch.
    Keys,
    /// Rows in the ranges of this key that were added to the batch.
    Ranges(usize),
}

/// A number that is added to a column, or subtracted from it; `vinga_addition`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The amount; a value that the column can have.
    pub amount: u64,
    /// The place of the column, which is an integer column.
    pub place: u16,
    /// Whether it is subtracted: 0 or 1.
    pub is_subtracted: u8,
}

/// The change of each row.
#[derive(Clone, Copy, Debug)]
pub enum DirectChange<'a> {
    /// The row is removed.
    Delete,
    /// The row gets the values of these columns of a record, and sums.
    Update {
        /// A record of the table, whose pointers point to values.
        record: &'a [u8],
        /// Columns whose values are taken from the record, by their places.
        places: &'a [u16],
        /// Sums, for other columns.
        additions: &'a [Addition],
    },
}

/// What a direct change is of the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionShare {
    /// A part.
    Part,
    /// A part; rows that do not fulfil the condition stay locked, too.
    PartThatLocksAll,
    /// All of it, and no other engine takes part: it may be committed.
    Whole,
}

/// Numbers of rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Touched {
    /// Rows that fulfilled the condition.
    pub found: u64,
    /// Rows that differ now, or were removed.
    pub changed: u64,
}

/// A change that is ready to be sent for any key.
struct Prepared<'a> {
    change: DirectChange<'a>,
    kind: OperationKind,
    program: Vec<u8>,
    filter: Vec<u8>,
    /// The columns that are read before the change: to compare them, or only to lock the row.
    seen: Option<Arc<Projection>>,
    share: TransactionShare,
    /// Buffer for the row before the change.
    before: Vec<u8>,
}

impl Cursor {
    /// Changes the candidates that fulfil the condition that was set last. `None` if a sum did not fit its column: then
    /// nothing was changed.
    ///
    /// # Safety
    /// A record must be one of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If a row could not be changed or read.
    pub unsafe fn change_directly(
        &mut self,
        session: &mut Session,
        candidates: Candidates,
        change: DirectChange<'_>,
        share: TransactionShare,
    ) -> Result<Option<Touched>> {
        let place = session.next_number();
        // SAFETY: as the caller promises.
        let mut prepared = unsafe { self.prepare_change(session, change, share)? };
        let changed = match candidates {
            Candidates::Keys => self.change_keys(session, &mut prepared),
            Candidates::All => self.change_found(session, &mut prepared, None),
            Candidates::Ranges(key) => self.change_found(session, &mut prepared, Some(key)),
        }?;
        match changed {
            Some(touched) => {
                session.node().counters.direct_changes.fetch_add(1, Ordering::Relaxed);
                if prepared.kind == OperationKind::Delete {
                    self.table.add_rows(-(touched.changed as i64));
                }
                Ok(Some(touched))
            }
            None => {
                session.roll_back_to(place);
                Ok(None)
            }
        }
    }

    /// # Safety
    /// As for [`Cursor::change_directly`].
    unsafe fn prepare_change<'a>(
        &mut self,
        session: &mut Session,
        change: DirectChange<'a>,
        share: TransactionShare,
    ) -> Result<Prepared<'a>> {
        let filter = match &self.condition {
            Some(condition) if !condition.is_whole => {
                return Err(Failure::new(
                    ha::INTERNAL_ERROR,
                    "a direct change under a part of its condition",
                ));
            }
            Some(condition) => {
                let encoded = self.table.table(session)?.encode_filter(&condition.filter);
                encoded.map_err(|error| session.node().failure(&error))?
            }
            None => Vec::new(),
        };
        let (kind, program, looked_at) = match change {
            DirectChange::Delete => (OperationKind::Delete, Vec::new(), None),
            DirectChange::Update { record, places, additions } => {
                // SAFETY: as the caller promises.
                let program = unsafe { self.program_of(session, record, places, additions)? };
                (OperationKind::Update, program, self.columns_to_compare(places, additions))
            }
        };
        let locks_all = share == TransactionShare::PartThatLocksAll;
        let nothing = || locks_all.then(|| self.table.projection(&[], None));
        let seen = looked_at.map(|places| self.table.projection(&places, None)).or_else(nothing);
        Ok(Prepared { change, kind, program, filter, seen, share, before: Vec::new() })
    }

    /// The columns that show whether the change makes a row differ; `None` if every row differs.
    fn columns_to_compare(&self, places: &[u16], additions: &[Addition]) -> Option<Vec<u16>> {
        let plan = &self.table.plan;
        let always = |addition: &Addition| addition.amount != 0 && !plan.is_nullable(addition.place);
        if additions.iter().any(always) {
            return None;
        }
        let mut all: Vec<u16> = places.iter().copied().chain(additions.iter().map(|a| a.place)).collect();
        all.sort_unstable();
        Some(all)
    }

    /// # Safety
    /// As for [`Cursor::change_directly`].
    unsafe fn program_of(
        &self,
        session: &mut Session,
        record: &[u8],
        places: &[u16],
        additions: &[Addition],
    ) -> Result<Vec<u8>> {
        let plan = &self.table.plan;
        let definition = self.table.table(session)?.definition();
        let mut values = Vec::new();
        // SAFETY: as the caller promises.
        let columns = unsafe { plan.write_values(record, places, &session.node().server, &mut values)? };
        let set = |column: &ChangedColumn| Instruction {
            column: column.id,
            action: column.value.clone().map_or(Action::SetNull, |place| Action::Set(&values[place])),
        };
        let amounts: Vec<[u8; 8]> = additions.iter().map(|addition| addition.amount.to_le_bytes()).collect();
        let mut instructions: Vec<Instruction<'_>> = columns.iter().map(set).collect();
        for (addition, amount) in additions.iter().zip(&amounts) {
            let column = plan.column(addition.place.into()).ok_or_else(no_integer)?;
            let ColumnType::Integer { bytes, .. } = definition.columns[usize::from(column.0)].column_type
            else {
                return Err(no_integer());
            };
            let amount = &amount[..usize::from(bytes)];
            let action =
                if addition.is_subtracted != 0 { Action::Subtract(amount) } else { Action::Add(amount) };
            instructions.push(Instruction { column, action });
        }
        let mut program = Vec::new();
        write_program(&mut instructions, plan.layout(), &mut program)
            .map_err(|error| Failure::new(ha::INTERNAL_ERROR, format!("{error}")))?;
        Ok(program)
    }

    /// Changes the rows of the batch of keys.
    fn change_keys(&mut self, session: &mut Session, prepared: &mut Prepared<'_>) -> Result<Option<Touched>> {
        let mut keys: Vec<Vec<u8>> = (0..self.batch_len())
            .map(|at| self.batch_key(at).to_vec())
            .filter(|key| !key.is_empty())
            .collect();
        // The ranges of a condition do not overlap, so no key occurs twice for that reason; but values that are equal
        // in a collation may give the same key.
        keys.sort_unstable();
        keys.dedup();
        let mut all = Touched::default();
        for some in keys.chunks(KEYS_AT_ONCE) {
            match self.change_some(session, prepared, some)? {
                Some(touched) => all.add(touched),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Changes rows that a scan finds.
    fn change_found(
        &mut self,
        session: &mut Session,
        prepared: &mut Prepared<'_>,
        key: Option<usize>,
    ) -> Result<Option<Touched>> {
        let keys_only = self.table.projection(&[], None);
        let request = self.request_of(session, &keys_only, key)?;
        let mut scan = session.scan(request)?;
        let mut done = RowSet::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut all = Touched::default();
        loop {
            let rows = session.next_rows(&mut scan)?;
            let is_over = rows.is_none();
            let mut offset = 0;
            while let Some((row, _, next)) = rows.as_ref().and_then(|rows| rows.ranged_at(offset)) {
                offset = next;
                let key = keys_only.key_of(&self.table.plan, row)?;
                if done.insert(self.name_of(&key)) {
                    keys.push(key.into_owned());
                }
            }
            if !keys.is_empty() && (is_over || keys.len() >= KEYS_AT_ONCE) {
                for some in keys.chunks(KEYS_AT_ONCE) {
                    match self.change_some(session, prepared, some)? {
                        Some(touched) => all.add(touched),
                        None => return Ok(None),
                    }
                }
                keys.clear();
            }
            if is_over {
                return Ok(Some(all));
            }
        }
    }

    fn request_of(
        &mut self,
        session: &mut Session,
        projection: &Arc<Projection>,
        key: Option<usize>,
    ) -> Result<ScanRequest> {
        let Some(key) = key else { return self.request(session, projection) };
        let ranges: Vec<KeyRange> = std::mem::take(&mut self.batch_ranges);
        let any_order = RangeOptions { is_descending: false, in_order: false, is_short: false };
        self.request_ranges(session, projection, key, &ranges, any_order)
    }

    /// Changes the rows with these keys, with one request. `None` if a sum did not fit.
    ///
    /// It commits, too, if this is all of the transaction. A single key without operations before it has no others
    /// behind it, as only the last chunk can be that short: the others have [`KEYS_AT_ONCE`].
    fn change_some(
        &mut self,
        session: &mut Session,
        prepared: &mut Prepared<'_>,
        keys: &[Vec<u8>],
    ) -> Result<Option<Touched>> {
        let commits =
            keys.len() == 1 && prepared.share == TransactionShare::Whole && !session.has_operations();
        let table = Arc::clone(&self.table);
        let handle = table.table(session)?;
        let seen: Option<&Table> = match &prepared.seen {
            Some(projection) => Some(super::table_of(&table, projection, session)?),
            None => None,
        };
        let wait = if self.wait == LockWait::SkipLocked { LockWait::Default } else { self.wait };
        let change = ChangeIf {
            kind: prepared.kind,
            program: &prepared.program,
            filter: &prepared.filter,
            locks_all: prepared.share == TransactionShare::PartThatLocksAll,
            wait,
        };
        let mut numbers: Vec<(Option<OperationNumber>, OperationNumber)> = Vec::with_capacity(keys.len());
        for key in keys {
            numbers.push(session.define_change_if(handle, seen, &change, key)?);
        }
        if commits {
            session.commit_with_results()?;
        } else {
            session.execute_reads()?;
        }
        let mut touched = Touched::default();
        for (key, (read, number)) in keys.iter().zip(numbers) {
            match session.outcome_of_change(&table, read, number)? {
                Changed::Yes => {}
                Changed::NotFound => continue,
                Changed::Overflow => return Ok(None),
            }
            touched.found += 1;
            let is_other = match read {
                Some(read) => self.is_other(session, prepared, read)?,
                None => true,
            };
            if is_other {
                touched.changed += 1;
                session.note_change(|| self.name_of(key));
            }
        }
        Ok(Some(touched))
    }

    /// Whether a row differs after its change from the state that was read before.
    fn is_other(
        &self,
        session: &Session,
        prepared: &mut Prepared<'_>,
        read: OperationNumber,
    ) -> Result<bool> {
        let DirectChange::Update { record, places, additions } = prepared.change else { return Ok(true) };
        if self.columns_to_compare(places, additions).is_none() {
            return Ok(true);
        }
        let (Some(projection), Some(row)) = (&prepared.seen, session.row_of_read(read)) else {
            return Ok(true);
        };
        let plan = &self.table.plan;
        prepared.before.clear();
        prepared.before.extend_from_slice(record);
        projection.read(plan, row, &mut prepared.before)?;
        let is_sum =
            |addition: &Addition| addition.amount != 0 && !plan.is_null(addition.place, &prepared.before);
        // SAFETY: the row lives as long as the results of the request.
        let differs = unsafe { plan.differs(&prepared.before, record, places)? };
        Ok(differs || additions.iter().any(is_sum))
    }
}

fn no_integer() -> Failure {
    Failure::new(ha::INTERNAL_ERROR, "a sum of a column that has no integers")
}

impl Touched {
    fn add(&mut self, more: Touched) {
        self.found += more.found;
        self.changed += more.changed;
    }
}
