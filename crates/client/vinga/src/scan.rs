//! Scans: all rows of a table, or those of ranges of an index, that fulfil a condition, as a stream.

use crate::engine::Handle;
use crate::program::encode_filter;
use crate::range::RangeBuilder;
use crate::row::{ReadRow, Record, RowReader};
use crate::table::Table;
use futures_core::Stream;
use std::future::poll_fn;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use vinga_base::OperationNumber;
use vinga_base::order_key::KeyRange;
use vinga_client_core::value::Key;
use vinga_client_core::{Result, RowRef, ScanProgress, ScanRows, ScanSpec, Token};
use vinga_program::filter::tree::Expression;

/// What is to be scanned: all rows of a table, or ranges of one of its ordered indexes.
///
/// Bounds of ranges are values of the first columns of the index: one value, a tuple, or a list of them. Fewer values
/// than the index has columns stand for all keys that begin with them.
///
/// ```
/// # use vinga::{ColumnType, NewTable};
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// # let orders = cluster.create_table(NewTable::new("shop.orders")
/// #     .column("id", ColumnType::Integer { bytes: 8, signed: false })
/// #     .column("customer", ColumnType::Integer { bytes: 4, signed: false })
/// #     .column("day", ColumnType::Integer { bytes: 4, signed: false })
/// #     .primary_key(&["id"])
/// #     .ordered_index("by_customer", &["customer", "day"]))?;
/// # for id in 0..40u64 { cluster.insert(&orders, &[("id", id), ("customer", id % 4), ("day", id)])?; }
/// // The last three orders of customer 2.
/// let last = cluster.scan(&orders, |scan| {
///     scan.index("by_customer").prefix(2).descending().in_order().limit(3)
/// })?;
/// let days: Vec<_> = last.map(|row| Ok(row?["day"].clone())).collect::<vinga::Result<_>>()?;
/// assert_eq!(days, [38u64.into(), 34u64.into(), 30u64.into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a scan begins with rows()"]
pub struct ScanRequest<R = Record> {
    table: Table<R>,
    filter: Option<Expression>,
    spec: ScanSpec,
    range: RangeBuilder,
}

/// What [`ScanRequest::finish`] makes of a request.
pub(crate) struct Finished<R> {
    pub table: Table<R>,
    pub spec: ScanSpec,
}

impl<R> ScanRequest<R> {
    pub(crate) fn new(table: &Table<R>) -> Self {
        let spec = ScanSpec { columns: table.columns().map(<[_]>::to_vec), ..ScanSpec::default() };
        ScanRequest { table: table.clone(), filter: None, spec, range: RangeBuilder::default() }
    }

    /// Only rows that fulfil a condition, which the data nodes check. A second condition must be fulfilled, too.
    pub fn filter(mut self, condition: Expression) -> Self {
        self.filter = Some(match self.filter {
            Some(before) => before.and(condition),
            None => condition,
        });
        self
    }

    /// Along an ordered index, all of it if no bounds follow.
    pub fn index(mut self, name: &str) -> Self {
        self.range.choose(self.table.core(), name);
        self
    }

    /// Only keys that are not before these values in the order of the index.
    pub fn from(mut self, values: impl Key) -> Self {
        self.range.set_lower(self.table.core(), Bound::Included(&values));
        self
    }

    /// Only keys that are behind all keys with these values.
    pub fn after(mut self, values: impl Key) -> Self {
        self.range.set_lower(self.table.core(), Bound::Excluded(&values));
        self
    }

    /// Only keys up to these values: keys that begin with them belong to it.
    pub fn to(mut self, values: impl Key) -> Self {
        self.range.set_upper(self.table.core(), Bound::Included(&values));
        self
    }

    /// Only keys before these values.
    pub fn before(mut self, values: impl Key) -> Self {
        self.range.set_upper(self.table.core(), Bound::Excluded(&values));
        self
    }

    /// Only keys from the first to the second values, both included.
    pub fn between(self, first: impl Key, last: impl Key) -> Self {
        self.from(first).to(last)
    }

    /// Only keys with these values in the first columns.
    pub fn prefix(mut self, values: impl Key) -> Self {
        self.range.set_prefix(self.table.core(), &values);
        self
    }

    /// One more range, beside others that were given so: [`Table::index_range`] makes one. Each row says in which it
    /// was found ([`Scan::range`], [`RowBatch::ranged`]); the first has number 0. At most 1024.
    pub fn range(mut self, range: &KeyRange) -> Self {
        self.range.push(&range.from, range.to.as_deref().unwrap_or_default());
        self
    }

    /// As [`ScanRequest::range`], from bytes that are encoded as [`vinga_base::order_key`] says: keys from `low` on
    /// that are below `high`; an empty `high` for no bound.
    pub fn range_bytes(mut self, low: &[u8], high: &[u8]) -> Self {
        self.range.push(low, high);
        self
    }

    /// From the end of the index to its beginning. Ranges keep their order.
    pub fn descending(mut self) -> Self {
        self.range.is_descending = true;
        self
    }

    /// Rows come in the order of the index. Else they come as they arrive: in order only among those of one partition.
    pub fn in_order(mut self) -> Self {
        self.range.in_order = true;
        self
    }

    /// At most so many rows, at least one.
    pub fn limit(mut self, rows: u32) -> Self {
        self.spec.limit = rows.max(1);
        self
    }

    /// So many rows are likely to be enough, though there is no limit: the first batches are no longer than that takes,
    /// and grow from there if more rows are taken.
    pub fn expect_rows(mut self, rows: u32) -> Self {
        self.spec.expected_rows = rows.max(1);
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

    /// Begins to count the rows where they are; none of them comes here. Not together with [`ScanRequest::limit`].
    ///
    /// ```
    /// # use vinga::{ColumnType, NewTable};
    /// # let node = vinga_datanode::LocalNode::start()?;
    /// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
    /// # let orders = cluster.create_table(NewTable::new("shop.orders")
    /// #     .column("id", ColumnType::Integer { bytes: 8, signed: false })
    /// #     .column("customer", ColumnType::Integer { bytes: 4, signed: false })
    /// #     .primary_key(&["id"]))?;
    /// # for id in 0..40u64 { cluster.insert(&orders, &[("id", id), ("customer", id % 4)])?; }
    /// let third = orders.column("customer")?.equal(3);
    /// assert_eq!(cluster.count(&orders, |scan| scan.filter(third))?, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`ScanRequest::rows`].
    pub fn count(self) -> Result<RowCount<R>> {
        self.start_count(None)
    }

    pub(crate) fn start_count(mut self, within: Option<(Token, OperationNumber)>) -> Result<RowCount<R>> {
        self.spec.counts = true;
        Ok(RowCount { scan: self.start(within)? })
    }

    /// Begins the scan.
    ///
    /// # Errors
    /// `BadProgram` if the condition or the index does not fit the table, `BadKey` if a bound does not,
    /// `ClusterFailure`, `OutOfScans`.
    pub fn rows(self) -> Result<Scan<R>> {
        self.start(None)
    }

    /// Encodes it.
    pub(crate) fn finish(mut self) -> Result<Finished<R>> {
        if let Some(filter) = &self.filter {
            self.spec.filter = encode_filter(&self.table, filter)?;
        }
        self.spec.ranges = self.range.finish()?;
        Ok(Finished { table: self.table, spec: self.spec })
    }

    pub(crate) fn start(self, within: Option<(Token, OperationNumber)>) -> Result<Scan<R>> {
        let Finished { table, spec } = self.finish()?;
        Scan::begin(table, spec, within)
    }
}

/// The rows of a scan: in the order of an index if that was asked for, else in no particular one. Dropped before its
/// end, it is closed at the data nodes.
pub struct Scan<R = Record> {
    handle: Arc<Handle>,
    table: Table<R>,
    /// `None` when it is over.
    token: Option<Token>,
    rows: ScanRows,
    offset: usize,
    range: u16,
}

impl<R> Scan<R> {
    pub(crate) fn begin(
        table: Table<R>,
        spec: ScanSpec,
        within: Option<(Token, OperationNumber)>,
    ) -> Result<Self> {
        let handle = Arc::clone(table.handle());
        let token = handle.engine.submit(|client| client.scan(table.core(), spec, within))?;
        Ok(Scan { handle, table, token: Some(token), rows: ScanRows::default(), offset: 0, range: 0 })
    }

    /// Nothing more is wanted of it.
    pub(crate) fn close(&mut self) {
        if let Some(token) = self.token.take() {
            self.handle.engine.cancel(token);
        }
    }

    /// In which of the scan's ranges the row lies that was given last, counted from 0.
    pub fn range(&self) -> u16 {
        self.range
    }

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
            ScanProgress::Last(rows) => {
                self.token = None;
                Ok(Some(rows))
            }
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
        (self.offset, self.range) = (next, row.range);
        Some(self.table.read(row.bytes))
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
        self.close();
    }
}

/// The rows that a scan would find, counted by the data nodes. Dropped before its end, it is closed there.
pub struct RowCount<R = Record> {
    scan: Scan<R>,
}

impl<R> RowCount<R> {
    /// How many rows were counted since it was asked last; `None` at the end.
    ///
    /// # Errors
    /// Why it ended early.
    pub async fn next(&mut self) -> Result<Option<u64>> {
        Ok(self.scan.next_batch().await?.map(|figures| figures.bytes().map(figure_of).sum()))
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// Why that was not found out.
    pub async fn total(mut self) -> Result<u64> {
        let mut total = 0;
        while let Some(more) = self.next().await? {
            total += more;
        }
        Ok(total)
    }
}

/// A figure as it came; what is none counts for nothing.
fn figure_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
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

    /// The bytes of the row at this offset, from 0, and the offset of the row behind it; `None` at the end.
    #[inline]
    pub fn row_at(&self, offset: usize) -> Option<(&[u8], usize)> {
        self.rows().row_at(offset).map(|(row, next)| (row.bytes, next))
    }

    /// The row at this byte offset, from 0, in place, and the offset of the row behind it; `None` at the end. For
    /// readers that keep their place themselves.
    ///
    /// # Errors
    /// `InternalError`: a data node sent what is no row.
    #[inline]
    pub fn ref_at(&self, offset: usize) -> Result<Option<(RowRef<'_>, usize)>> {
        let Some((row, next)) = self.rows().row_at(offset) else { return Ok(None) };
        Ok(Some((RowRef::new(self.table.core(), self.table.columns(), row.bytes)?, next)))
    }

    /// The bytes of the row at this offset, from 0, in which of the scan's ranges it was found, and the offset of the
    /// row behind it; `None` at the end.
    #[inline]
    pub fn ranged_at(&self, offset: usize) -> Option<(&[u8], u16, usize)> {
        self.rows().row_at(offset).map(|(row, next)| (row.bytes, row.range, next))
    }

    /// In which of the scan's ranges the row at this byte offset was found.
    pub fn range_at(&self, offset: usize) -> Option<u16> {
        self.rows().row_at(offset).map(|(row, _)| row.range)
    }

    /// The bytes of each row: an image, or a selection.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.rows().iter()
    }

    /// The bytes of each row, behind the number of the range in which it was found.
    pub fn ranged(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.rows().rows().map(|row| (row.range, row.bytes))
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
