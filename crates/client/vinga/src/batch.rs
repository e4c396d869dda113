//! Batches whose memory their owner keeps: the lower face, for engines and benchmarks.
//!
//! A batch is filled, started, and comes back with its results to be looked at, cleared and filled again; once it has
//! grown nothing is allocated for an operation. Several may be under way. A started batch is a *ticket*: a future, that
//! can also be asked ([`ReadTicket::try_finish`]) or waited for on the calling thread ([`ReadTicket::wait`]).

use crate::pending::Pending;
use crate::program::Update;
use crate::row::{ReadRow, Record, WriteRow};
use crate::spare::Scratch;
use crate::table::Table;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use vinga_base::NodeId;
use vinga_client_core::value::Key;
use vinga_client_core::{self as machine, OperationSpec, Result, RowRef, Token, Urgency};
use vinga_wire::operation::OperationKind;

/// Keys of one table to be read, and their rows: memory that its owner uses again and again.
///
/// A batch is filled, started, and comes back with its results to be looked at, cleared and filled again; once it has
/// grown, nothing is allocated for an operation. Several may be under way.
///
/// ```
/// use vinga::{ReadBatch, Record, WriteBatch};
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// # let table = cluster.create_table(vinga::NewTable::new("test.t")
/// #     .column("id", vinga::ColumnType::U64)
/// #     .column("n", vinga::ColumnType::I32)
/// #     .primary_key(&["id"]))?;
///
/// let mut writes = WriteBatch::new();
/// for id in 0..100u64 {
///     writes.insert(&table, &[("id", id), ("n", id * id)])?;
/// }
/// let writes = cluster.start_writes(writes)?.wait();
/// assert!(writes.endings().all(|ending| ending.is_ok()));
///
/// let mut reads = ReadBatch::new(&table);
/// (0..100u64).try_for_each(|id| reads.push(id))?;
/// let reads = cluster.start_reads(reads)?.wait();
/// let row: Record = reads.row(7)?.expect("it was inserted");
/// assert_eq!(row["n"], 49.into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadBatch<R = Record> {
    pub(crate) table: Table<R>,
    pub(crate) batch: machine::ReadBatch,
}

impl<R> ReadBatch<R> {
    /// An empty batch.
    pub fn new(table: &Table<R>) -> Self {
        ReadBatch { batch: machine::ReadBatch::new(table.shape()), table: table.clone() }
    }

    /// Empties it; its memory stays.
    pub fn clear(&mut self) {
        self.batch.clear();
    }

    /// Appends a key.
    ///
    /// # Errors
    /// `BadKey`.
    #[inline]
    pub fn push(&mut self, key: impl Key) -> Result<()> {
        let table = self.table.core();
        self.batch.push_with(|out| key.write(table, out))
    }

    /// Appends a key as [`vinga_base::row_layout`] encodes it.
    ///
    /// # Errors
    /// `BadKey` if it has not the size of the table's keys.
    #[inline]
    pub fn push_encoded(&mut self, key: &[u8]) -> Result<()> {
        let layout = self.table.core().layout();
        // What is no key is refused as it is.
        match layout.check_key(key) {
            Ok(()) => self.batch.push(&layout.key_with_one_zero(key)),
            Err(_) => self.batch.push(key),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The table whose rows are read.
    pub fn table(&self) -> &Table<R> {
        &self.table
    }

    /// The row of a key in place, by the order in which the keys were appended.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row_ref(&self, index: usize) -> Result<Option<RowRef<'_>>> {
        let Some(bytes) = self.bytes(index)? else { return Ok(None) };
        Ok(Some(RowRef::new(self.table.core(), self.table.columns(), bytes)?))
    }

    /// The bytes of the row of a key, by the order in which the keys were appended: an image, or a selection.
    ///
    /// # Errors
    /// Why it was not read.
    #[inline]
    pub fn bytes(&self, index: usize) -> Result<Option<&[u8]>> {
        self.batch.row(index)
    }

    /// The data node that has answered for a key, if it was a backup ([`crate::NewTable::read_backup`]) when it was
    /// asked; `None` if it was the primary, or nobody has answered.
    pub fn backup(&self, index: usize) -> Option<NodeId> {
        self.batch.backup(index)
    }
}

impl<R: ReadRow> ReadBatch<R> {
    /// The row of a key, by the order in which the keys were appended.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row(&self, index: usize) -> Result<Option<R>> {
        self.bytes(index)?.map(|bytes| self.table.read(bytes)).transpose()
    }

    /// All rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Result<Option<R>>> {
        (0..self.len()).map(|index| self.row(index))
    }
}

/// Operations that commit each by itself, on any tables.
#[derive(Default)]
pub struct WriteBatch {
    batch: machine::WriteBatch,
    scratch: Scratch,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Empties it; its memory stays.
    pub fn clear(&mut self) {
        self.batch.clear();
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Adds a row; a row with its key must not exist.
    ///
    /// # Errors
    /// `BadRow`.
    pub fn insert<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        self.push_row(table, OperationKind::Insert, row)
    }

    /// Adds a row or replaces it.
    ///
    /// # Errors
    /// `BadRow`.
    pub fn write<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<()> {
        self.push_row(table, OperationKind::Write, row)
    }

    fn push_row<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        row: &(impl WriteRow + ?Sized),
    ) -> Result<()> {
        self.scratch.body.clear();
        table.write_image(row, &mut self.scratch.builder, &mut self.scratch.body)?;
        self.batch.push(&OperationSpec::new(table.core(), kind, &[], &self.scratch.body))
    }

    /// Updates a row that must exist.
    ///
    /// # Errors
    /// `BadKey`, `BadRow`, `BadProgram`.
    pub fn update<R>(&mut self, table: &Table<R>, key: impl Key, update: &Update) -> Result<()> {
        table.core().check_update()?;
        self.scratch.key.clear();
        self.scratch.body.clear();
        table.write_key(&key, &mut self.scratch.key)?;
        update.encode(table, &mut self.scratch.body)?;
        self.batch.push(&OperationSpec::new(
            table.core(),
            OperationKind::Update,
            &self.scratch.key,
            &self.scratch.body,
        ))
    }

    /// Removes a row that must exist.
    ///
    /// # Errors
    /// `BadKey`.
    pub fn delete<R>(&mut self, table: &Table<R>, key: impl Key) -> Result<()> {
        table.core().check_removal()?;
        self.scratch.key.clear();
        table.write_key(&key, &mut self.scratch.key)?;
        self.batch.push(&OperationSpec::new(table.core(), OperationKind::Delete, &self.scratch.key, &[]))
    }

    /// An operation in bytes: for an insert or write the image as `body`, for an update the key and the program.
    ///
    /// # Errors
    /// `BadKey`, `BadRow`, `BadProgram`.
    #[inline]
    pub fn push_encoded<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
    ) -> Result<()> {
        self.batch.push(&OperationSpec::new(table.core(), kind, key, body))
    }

    /// How an operation ended, by the order in which they were appended.
    ///
    /// # Errors
    /// Why it was not committed, or that this is unknown.
    #[inline]
    pub fn ending(&self, index: usize) -> Result<()> {
        self.batch.ending(index)
    }

    /// How all ended, in order.
    pub fn endings(&self) -> impl ExactSizeIterator<Item = Result<()>> {
        (0..self.len()).map(|index| self.ending(index))
    }
}

/// A batch of reads under way; dropped, its answers are discarded when they come.
pub struct ReadTicket<R = Record> {
    table: Table<R>,
    pending: Pending<machine::ReadBatch>,
}

impl<R> ReadTicket<R> {
    pub(crate) fn start(batch: ReadBatch<R>, urgency: Urgency) -> Result<Self> {
        let ReadBatch { table, batch } = batch;
        let token = table.handle().engine.submit(|client| client.read(batch, urgency))?;
        Ok(ReadTicket { pending: Pending::new(table.handle(), token, take_read), table })
    }

    /// The batch, if all its keys have been answered.
    pub fn try_finish(&mut self) -> Option<ReadBatch<R>> {
        let batch = self.pending.try_take()?;
        Some(ReadBatch { batch, table: self.table.clone() })
    }

    /// Waits on this thread until all its keys have been answered.
    pub fn wait(self) -> ReadBatch<R> {
        ReadBatch { batch: self.pending.wait(), table: self.table }
    }
}

impl<R> Future for ReadTicket<R> {
    type Output = ReadBatch<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ReadBatch<R>> {
        let polled = Pin::new(&mut self.pending).poll(context);
        polled.map(|batch| ReadBatch { batch, table: self.table.clone() })
    }
}

/// A batch of writes under way. Dropping it gives up the answers, not the writes: what was sent is decided.
pub struct WriteTicket {
    scratch: Scratch,
    pending: Pending<machine::WriteBatch>,
}

impl WriteTicket {
    pub(crate) fn start(
        handle: &std::sync::Arc<crate::engine::Handle>,
        batch: WriteBatch,
        urgency: Urgency,
    ) -> Result<Self> {
        let WriteBatch { batch, scratch } = batch;
        let token = handle.engine.submit(|client| client.write(batch, urgency))?;
        Ok(WriteTicket { pending: Pending::new(handle, token, take_write), scratch })
    }

    /// The batch, if all its operations have ended.
    pub fn try_finish(&mut self) -> Option<WriteBatch> {
        let batch = self.pending.try_take()?;
        Some(WriteBatch { batch, scratch: std::mem::take(&mut self.scratch) })
    }

    /// Waits on this thread until all its operations have ended.
    pub fn wait(self) -> WriteBatch {
        WriteBatch { batch: self.pending.wait(), scratch: self.scratch }
    }
}

impl Future for WriteTicket {
    type Output = WriteBatch;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WriteBatch> {
        let polled = Pin::new(&mut self.pending).poll(context);
        polled.map(|batch| WriteBatch { batch, scratch: std::mem::take(&mut self.scratch) })
    }
}

pub(crate) fn take_read(client: &mut machine::Client, token: Token) -> Option<machine::ReadBatch> {
    client.take_read(token)
}

pub(crate) fn take_write(client: &mut machine::Client, token: Token) -> Option<machine::WriteBatch> {
    client.take_write(token)
}
