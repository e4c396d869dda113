//! Scans: all rows of a table that fulfil a condition, as a stream.

use crate::engine::Handle;
use crate::program::encode_filter;
use crate::row::{ReadRow, Record, RowReader};
use crate::table::Table;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use vinga_base::OperationNumber;
use vinga_client_core::{Result, RowRef, ScanProgress, ScanRows, ScanSpec, Token};
use vinga_fragment::filter::tree::Expression;

/// What is to be scanned.
#[must_use = "a scan begins with rows()"]
pub struct ScanRequest<R = Record> {
    table: Table<R>,
    filter: Option<Expression>,
    spec: ScanSpec,
}

impl<R> ScanRequest<R> {
    pub(crate) fn new(table: &Table<R>) -> Self {
        let spec = ScanSpec { columns: table.columns().map(<[_]>::to_vec), ..ScanSpec::default() };
        ScanRequest { table: table.clone(), filter: None, spec }
    }

    /// Only rows that fulfil a condition, which the data nodes check. A second condition must be fulfilled, too.
    pub fn filter(mut self, condition: Expression) -> Self {
        self.filter = Some(match self.filter {
            Some(before) => before.and(condition),
            None => condition,
        });
        self
    }

    /// At most so many rows, at least one.
    pub fn limit(mut self, rows: u32) -> Self {
        self.spec.limit = rows.max(1);
        self
    }

    /// How many rows a data manager sends at a time.
    pub fn batch_rows(mut self, rows: u16) -> Self {
        self.spec.batch_rows = rows.max(1);
        self
    }

    /// How many partitions are scanned at the same time.
    pub fn parallel(mut self, partitions: u16) -> Self {
        self.spec.parallel = partitions.max(1);
        self
    }

    /// Begins the scan.
    ///
    /// # Errors
    /// `BadProgram` if the condition does not fit the table, `ClusterFailure`, `OutOfScans`.
    pub fn rows(self) -> Result<Scan<R>> {
        self.start(None)
    }

    pub(crate) fn start(mut self, within: Option<(Token, OperationNumber)>) -> Result<Scan<R>> {
        if let Some(filter) = &self.filter {
            self.spec.filter = encode_filter(&self.table, filter)?;
        }
        let ScanRequest { table, spec, .. } = self;
        let handle = Arc::clone(table.handle());
        let token = handle.engine.submit(|client| client.scan(table.core(), spec, within))?;
        Ok(Scan { handle, table, token: Some(token), rows: ScanRows::default(), offset: 0 })
    }
}

/// The rows of a scan, in no particular order. Dropped before its end, it is closed at the data nodes.
pub struct Scan<R = Record> {
    handle: Arc<Handle>,
    table: Table<R>,
    /// `None` when it is over.
    token: Option<Token>,
    rows: ScanRows,
    offset: usize,
}

impl<R> Scan<R> {
    /// The next rows as they have arrived, in bytes; `None` at the end. Not to be mixed with reading row by row.
    ///
    /// # Errors
    /// Why the scan ended early.
    pub async fn next_batch(&mut self) -> Result<Option<RowBatch<R>>> {
        poll_fn(|context| self.poll_batch(context))
            .await
            .map(|rows| rows.map(|rows| RowBatch { rows: Some(rows), table: self.table.clone() }))
    }

    fn poll_batch(&mut self, context: &Context<'_>) -> Poll<Result<Option<ScanRows>>> {
        let Some(token) = self.token else { return Poll::Ready(Ok(None)) };
        let polled =
            self.handle.engine.poll(token, context.waker(), |client| match client.next_rows(token) {
                ScanProgress::Waiting => None,
                there => Some(there),
            });
        polled.map(|progress| match progress {
            ScanProgress::Rows(rows) => Ok(Some(rows)),
            ScanProgress::Ended(result) => {
                self.token = None;
                result.map(|()| None)
            }
            ScanProgress::Waiting => unreachable!("it is not taken"),
        })
    }
}

impl<R: ReadRow> Scan<R> {
    /// The next row; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<R>> {
        poll_fn(|context| self.poll_row(context)).await
    }

    /// The next row, if it has arrived already.
    pub(crate) fn next_arrived(&mut self) -> Option<Result<R>> {
        let (row, next) = self.rows.row_at(self.offset)?;
        self.offset = next;
        Some(self.table.read(row))
    }

    fn poll_row(&mut self, context: &Context<'_>) -> Poll<Option<Result<R>>> {
        loop {
            if let Some(row) = self.next_arrived() {
                return Poll::Ready(Some(row));
            }
            match self.poll_batch(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(None)) => return Poll::Ready(None),
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(Some(rows))) => {
                    let before = std::mem::replace(&mut self.rows, rows);
                    self.offset = 0;
                    self.handle.engine.look(|client| client.recycle(before));
                }
            }
        }
    }

    /// All rows.
    ///
    /// # Errors
    /// Why the scan ended early.
    pub async fn collect(mut self) -> Result<Vec<R>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await {
            rows.push(row?);
        }
        Ok(rows)
    }
}

impl<R: ReadRow> Stream for Scan<R> {
    type Item = Result<R>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<R>>> {
        self.get_mut().poll_row(context)
    }
}

impl<R> Drop for Scan<R> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.handle.engine.cancel(token);
        }
    }
}

/// Rows of a scan as they have arrived.
pub struct RowBatch<R = Record> {
    table: Table<R>,
    rows: Option<ScanRows>,
}

impl<R> RowBatch<R> {
    fn rows(&self) -> &ScanRows {
        self.rows.as_ref().expect("there until it is dropped")
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    /// The row at this byte offset, from 0, in place, and the offset of the row behind it; `None` at the end. For readers
    /// that keep their place themselves.
    ///
    /// # Errors
    /// `InternalError`: a data node sent what is no row.
    #[inline]
    pub fn ref_at(&self, offset: usize) -> Result<Option<(RowRef<'_>, usize)>> {
        let Some((bytes, next)) = self.rows().row_at(offset) else { return Ok(None) };
        Ok(Some((RowRef::new(self.table.core(), self.table.columns(), bytes)?, next)))
    }

    /// The bytes of each row: an image, or a selection.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.rows().iter()
    }

    /// The rows, in place.
    pub fn refs(&self) -> impl Iterator<Item = Result<RowRef<'_>>> {
        self.rows().iter().map(|bytes| RowRef::new(self.table.core(), self.table.columns(), bytes))
    }
}

impl<R: ReadRow> RowBatch<R> {
    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = Result<R>> {
        self.refs().map(|row| R::read(&RowReader::new(row?)))
    }
}

impl<R> Drop for RowBatch<R> {
    fn drop(&mut self) {
        if let Some(rows) = self.rows.take() {
            self.table.handle().engine.look(|client| client.recycle(rows));
        }
    }
}
