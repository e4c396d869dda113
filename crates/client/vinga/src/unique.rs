//! Reads by a unique index: its hidden table leads from values to a primary key, that to the row.
//!
//! The two are read one after the other, and between the two the row may be given other values, be removed, or only
//! just not be committed yet. So a row counts only if its columns still have the values that were asked for; else the
//! search begins again, and after some times with a shared lock on the hidden row: then whoever changes it has ended.
//! If the row is only read, that lock is held meanwhile. If it is to be locked, the lock is given back before, as who
//! changes a row locks it before the hidden row: the two in opposite orders would wait for each other. Between such
//! searches lie pauses that grow. A row that is read under a lock is looked at when it is locked, so that what was seen
//! holds on.
//!
//! How long the caller waits for locks counts for the base row and for the hidden row, each by itself. If rows that
//! others have locked are passed over, those whose hidden row others have locked are too: it is not known yet what that
//! leads to.

use crate::engine::Handle;
use crate::lock::{Found, Lock, LockRequest, LockWait};
use crate::pending::Pending;
use crate::retry::Pauses;
use crate::row::ReadRow;
use crate::table::Table;
use crate::transaction::Transaction;
use std::sync::Arc;
use vinga_base::schema::IndexDefinition;
use vinga_base::{ColumnId, OperationNumber};
use vinga_client_core::value::Key;
use vinga_client_core::{self as machine, Error, Result, RowRef, ShapeId, Urgency};
use vinga_wire::ErrorCode;

/// Searches without a lock on the hidden row.
const TRIES: u32 = 3;
/// Looks at a row under the lock of its hidden row: who has just changed that may not have shown the row yet.
const LOOKS: u32 = 10;

/// A unique index, ready for reads.
pub(crate) struct UniqueIndex {
    handle: Arc<Handle>,
    id: u16,
    name: String,
    hidden: machine::Table,
    hidden_shape: ShapeId,
    /// The columns of the base table as they stand in the hidden table: those of the index, then the rest of the key.
    columns: Vec<ColumnId>,
    index_columns: usize,
    /// What is read of base rows: what is wanted and, behind it, what the check needs. `None` for whole images.
    selection: Option<Vec<ColumnId>>,
    /// How many of them are wanted.
    wanted: usize,
    base_shape: ShapeId,
}

impl Drop for UniqueIndex {
    fn drop(&mut self) {
        self.handle.engine.look(|client| {
            client.release_shape(self.hidden_shape);
            client.release_shape(self.base_shape);
        });
    }
}

/// Columns that are wanted, with those behind them that are needed besides.
pub(crate) fn with_columns(wanted: Option<&[ColumnId]>, needed: &[ColumnId]) -> Option<Vec<ColumnId>> {
    let mut all = wanted?.to_vec();
    all.extend(needed.iter().filter(|id| !wanted.is_some_and(|wanted| wanted.contains(id))));
    Some(all)
}

impl UniqueIndex {
    pub fn new(
        handle: &Arc<Handle>,
        table: &machine::Table,
        wanted: Option<&[ColumnId]>,
        index: &IndexDefinition,
    ) -> Result<Self> {
        let hidden = table.unique_table(index.id).ok_or_else(|| {
            let detail = format!("unique index '{}' of {} has no table", index.name, table.name());
            Error::with_detail(ErrorCode::InternalError, detail)
        })?;
        let mut columns: Vec<ColumnId> = index.column_ids().collect();
        let index_columns = columns.len();
        let selection = with_columns(wanted, &columns);
        let rest = table.definition().primary_key.iter().filter(|id| !index.column_ids().any(|c| c == **id));
        columns.extend(rest);
        let hidden_shape = handle.engine.look(|client| client.add_shape(&hidden, None, &[]))?;
        let base_shape = handle.engine.look(|client| client.add_shape(table, selection.as_deref(), &[]));
        let base_shape = base_shape.inspect_err(|_| {
            handle.engine.look(|client| client.release_shape(hidden_shape));
        })?;
        Ok(UniqueIndex {
            handle: Arc::clone(handle),
            id: index.id,
            name: index.name.clone(),
            hidden,
            hidden_shape,
            columns,
            index_columns,
            wanted: wanted.map_or(0, <[_]>::len),
            selection,
            base_shape,
        })
    }

    pub fn id(&self) -> u16 {
        self.id
    }

    /// The key of the base row to which a hidden row leads.
    fn base_key(&self, base: &machine::Table, hidden_row: &[u8]) -> Result<Vec<u8>> {
        let row = RowRef::new(&self.hidden, None, hidden_row)?;
        let mut key = Vec::new();
        let place = |id| {
            let at = self.columns.iter().position(|column| *column == id);
            ColumnId(at.expect("the hidden table has the whole primary key") as u16)
        };
        base.write_key_of(|id| row.bytes(place(id)), &mut key)?;
        Ok(key)
    }

    fn row<'a>(&'a self, base: &'a machine::Table, bytes: &'a [u8]) -> Result<RowRef<'a>> {
        RowRef::new(base, self.selection.as_deref(), bytes)
    }

    /// Whether a base row has the values of a key of the hidden table.
    fn matches(&self, base: &machine::Table, bytes: &[u8], hidden_key: &[u8]) -> Result<bool> {
        let row = self.row(base, bytes)?;
        let mut values = Vec::with_capacity(self.index_columns);
        for &column in &self.columns[..self.index_columns] {
            let Some(value) = row.bytes(column)? else { return Ok(false) };
            values.push(value);
        }
        let mut key = Vec::new();
        self.hidden.write_key_of(|id| Ok(Some(values[usize::from(id.0)])), &mut key)?;
        Ok(key == hidden_key)
    }
}

/// Keys whose rows are searched.
struct Search<'a> {
    base: &'a machine::Table,
    unique: &'a UniqueIndex,
    /// Keys of the hidden table.
    keys: Vec<Vec<u8>>,
    /// Which of them have no result yet.
    open: Vec<usize>,
    rows: Vec<Found<Vec<u8>>>,
}

/// Keys that have led to base rows: which, and where to.
type Leads = (Vec<usize>, Vec<Vec<u8>>);

impl<'a> Search<'a> {
    fn new(base: &'a machine::Table, unique: &'a UniqueIndex, keys: Vec<Vec<u8>>) -> Self {
        let open: Vec<usize> = (0..keys.len()).collect();
        Search { base, unique, rows: vec![Found::NoRow; keys.len()], keys, open }
    }

    fn open_keys(&self) -> Vec<&[u8]> {
        self.open.iter().map(|&at| self.keys[at].as_slice()).collect()
    }

    /// Hidden rows have been read for the open keys. Where there is none, there is no row.
    fn follow(&mut self, hidden_rows: Vec<Option<Vec<u8>>>) -> Result<Leads> {
        let mut leads = Leads::default();
        for (at, hidden_row) in std::mem::take(&mut self.open).into_iter().zip(hidden_rows) {
            if let Some(hidden_row) = hidden_row {
                leads.0.push(at);
                leads.1.push(self.unique.base_key(self.base, &hidden_row)?);
            }
        }
        Ok(leads)
    }

    /// Whether a base row has the values of a key.
    fn fits(&self, at: usize, row: &[u8]) -> Result<bool> {
        self.unique.matches(self.base, row, &self.keys[at])
    }

    /// A base row has been read without a lock. If it is not the right one the key stays open.
    fn resolve(&mut self, at: usize, row: Option<Vec<u8>>) -> Result<()> {
        match row {
            Some(row) if self.fits(at, &row)? => self.rows[at] = Found::Row { row, operation: None },
            Some(_) | None => self.open.push(at),
        }
        Ok(())
    }

    /// The same of one that was read under a lock, which is let go of if it is not the right one.
    fn resolve_locked(&mut self, transaction: &mut Transaction, at: usize, read: LockedRead) -> Result<()> {
        match read {
            LockedRead::Row(row, number) if self.fits(at, &row)? => {
                self.rows[at] = Found::Row { row, operation: Some(number) };
            }
            LockedRead::Row(_, number) => {
                transaction.unlock(number)?;
                self.open.push(at);
            }
            LockedRead::NoRow => self.open.push(at),
            // Who has it locked may be about to give it other values.
            LockedRead::NotLocked(committed) => {
                let fits = committed.as_ref().map(|row| self.fits(at, row)).transpose()?;
                self.rows[at] = Found::NotLocked { committed: committed.filter(|_| fits == Some(true)) };
            }
        }
        Ok(())
    }

    /// Locks base rows, and looks whether they are the right ones.
    async fn lock_base(
        &mut self,
        transaction: &mut Transaction,
        (found, keys): Leads,
        (lock, wait): (Lock, LockWait),
    ) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let selection = self.unique.selection.as_deref();
        let reads = transaction.lock_rows(self.base, selection, &keys, lock, wait).await?;
        for (at, read) in found.into_iter().zip(reads) {
            self.resolve_locked(transaction, at, read)?;
        }
        Ok(())
    }

    /// One search; rows of the transaction are locked when they are read if that is asked for.
    async fn try_once(
        &mut self,
        transaction: &mut Option<&mut Transaction>,
        lock: Lock,
        wait: LockWait,
    ) -> Result<()> {
        let unique = self.unique;
        let hidden_rows = read(unique, transaction, unique.hidden_shape, &self.open_keys()).await?;
        let leads = self.follow(hidden_rows)?;
        match (transaction, lock) {
            (Some(transaction), Lock::Shared | Lock::Exclusive) => {
                self.lock_base(transaction, leads, (lock, wait)).await
            }
            (transaction, _) => {
                let (found, keys) = leads;
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let rows = read(unique, transaction, unique.base_shape, &keys).await?;
                found.into_iter().zip(rows).try_for_each(|(at, row)| self.resolve(at, row))
            }
        }
    }

    /// Reads the hidden rows of the open keys under a shared lock, behind whoever changes them; returns where they lead
    /// to, and the numbers of the reads whose locks have to be given back.
    async fn lock_hidden(
        &mut self,
        transaction: &mut Transaction,
        wait: LockWait,
    ) -> Result<(Leads, Vec<OperationNumber>)> {
        let keys = self.open_keys();
        let reads = transaction.lock_rows(&self.unique.hidden, None, &keys, Lock::Shared, wait).await?;
        let mut locked = Vec::new();
        let mut open = Vec::new();
        let mut hidden_rows = Vec::new();
        for (at, read) in std::mem::take(&mut self.open).into_iter().zip(reads) {
            let hidden_row = match read {
                LockedRead::Row(row, number) => {
                    locked.push(number);
                    Some(row)
                }
                LockedRead::NoRow => None,
                LockedRead::NotLocked(_) => {
                    self.rows[at] = Found::NotLocked { committed: None };
                    continue;
                }
            };
            open.push(at);
            hidden_rows.push(hidden_row);
        }
        self.open = open;
        Ok((self.follow(hidden_rows)?, locked))
    }

    /// One search for rows that are to be locked, behind whoever changes a hidden row. The locks of these go in front
    /// of those of the base rows, in the same batch.
    async fn lock_once(&mut self, transaction: &mut Transaction, lock: Lock, wait: LockWait) -> Result<()> {
        let (leads, locked) = self.lock_hidden(transaction, wait).await?;
        locked.into_iter().try_for_each(|number| transaction.unlock_here(number))?;
        self.lock_base(transaction, leads, (lock, wait)).await
    }

    /// A search for committed rows under the locks of the hidden rows, which keep them as they are. Only who has just
    /// changed one may not have shown the base row yet.
    async fn read_under_locks(&mut self, transaction: &mut Transaction) -> Result<()> {
        let unique = self.unique;
        // Who reads without a lock has not said how long it would wait for one.
        let ((mut found, mut keys), locked) = self.lock_hidden(transaction, LockWait::Default).await?;
        for _ in 0..LOOKS {
            let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let rows = read(unique, &mut Some(&mut *transaction), unique.base_shape, &wanted).await?;
            for (&at, row) in found.iter().zip(rows) {
                self.resolve(at, row)?;
            }
            let still: Vec<bool> = found.iter().map(|at| self.open.contains(at)).collect();
            let mut is_open = still.iter();
            found.retain(|_| *is_open.next().expect("one each"));
            let mut is_open = still.iter();
            keys.retain(|_| *is_open.next().expect("one each"));
            if found.is_empty() {
                break;
            }
            self.open.clear();
        }
        self.open = found;
        locked.into_iter().try_for_each(|number| transaction.unlock(number))
    }

    async fn run(&mut self, mut transaction: Option<&mut Transaction>, request: LockRequest) -> Result<()> {
        let lock = request.lock;
        let wait = transaction.as_ref().map_or(LockWait::Default, |transaction| transaction.wait_of(request));
        for _ in 0..TRIES {
            if self.open.is_empty() {
                return Ok(());
            }
            self.try_once(&mut transaction, lock, wait).await?;
        }
        if self.open.is_empty() {
            return Ok(());
        }
        // One of its own is rolled back when it is dropped.
        let mut own = None;
        let transaction = match transaction {
            Some(transaction) => transaction,
            None => own.insert(Transaction::begin(&self.unique.handle)?),
        };
        // Each time it fails somebody has changed the row in the moment between the two locks.
        let mut pauses = Pauses::new(&self.unique.handle.engine);
        loop {
            match lock {
                Lock::None => self.read_under_locks(transaction).await?,
                Lock::Shared | Lock::Exclusive => self.lock_once(transaction, lock, wait).await?,
            }
            if self.open.is_empty() {
                return Ok(());
            }
            pauses.pause(self.unlucky()).await?;
        }
    }

    fn unlucky(&self) -> Error {
        let detail = format!("rows of unique index '{}' changed again and again", self.unique.name);
        Error::with_detail(ErrorCode::LockTimeout, detail)
    }
}

/// Reads rows as they are committed, or as a transaction sees them.
async fn read(
    unique: &UniqueIndex,
    transaction: &mut Option<&mut Transaction>,
    shape: ShapeId,
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut batch = crate::spare::read_batch(shape);
    keys.iter().try_for_each(|key| batch.push(key))?;
    let batch = match transaction {
        Some(transaction) => transaction.read_batch(batch).await?,
        None => {
            let token = unique.handle.engine.submit(|client| client.read(batch, Urgency::Gather))?;
            Pending::new(&unique.handle, token, crate::batch::take_read).await
        }
    };
    let rows = batch.rows().map(|row| Ok(row?.map(<[u8]>::to_vec))).collect();
    crate::spare::keep_read(batch);
    rows
}

/// The rows that have these values in the columns of a unique index, in the order of the values.
pub(crate) async fn find<R: ReadRow, K: Key>(
    table: &Table<R>,
    index: &str,
    values: impl IntoIterator<Item = K>,
    transaction: Option<&mut Transaction>,
    request: LockRequest,
) -> Result<Vec<Found<R>>> {
    let unique = table.unique(index)?;
    let encode = |values: K| {
        let mut key = Vec::new();
        values.write(&unique.hidden, &mut key)?;
        Ok(key)
    };
    let keys: Vec<Vec<u8>> = values.into_iter().map(encode).collect::<Result<_>>()?;
    let mut search = Search::new(table.core(), &unique, keys);
    search.run(transaction, request).await?;
    let Search { rows, .. } = search;
    let read =
        |bytes: Vec<u8>| table.read_row(unique.row(table.core(), &bytes)?.first_columns(unique.wanted));
    rows.into_iter().map(|found| found.try_map(read)).collect()
}

/// As [`find`], with keys of the hidden table, and rows in bytes: images, or selections of the columns of the table
/// behind which those of the index stand that are not among them.
pub(crate) async fn find_images<R>(
    table: &Table<R>,
    index: &str,
    keys: Vec<Vec<u8>>,
    transaction: Option<&mut Transaction>,
    request: LockRequest,
) -> Result<Vec<Found<Vec<u8>>>> {
    let unique = table.unique(index)?;
    let mut search = Search::new(table.core(), &unique, keys);
    search.run(transaction, request).await?;
    Ok(search.rows)
}

/// What a read of a batch that locks rows gave.
pub(crate) enum LockedRead {
    /// The row, and the number of the operation that has locked it.
    Row(Vec<u8>, OperationNumber),
    NoRow,
    /// Others have it locked and it was not waited for; its committed version, if that was asked for.
    NotLocked(Option<Vec<u8>>),
}
