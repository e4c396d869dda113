//! What the user of a client asks for, and takes the answers of.

use super::Client;
use crate::error::{Error, Result};
use crate::net::{Token, TokenKind};
use crate::operation_batch::OperationBatch;
use crate::read_batch::{ReadBatch, ShapeId};
use crate::reads::{Urgency, Within};
use crate::requests::{Answer, Request};
use crate::scans::{RangeSpec, ScanProgress, ScanRows, ScanSpec};
use crate::schema_events::{NewsId, SchemaNews};
use crate::statistics::Sample;
use crate::table::Table;
use crate::transactions::BatchEnd;
use crate::write_batch::WriteBatch;
use vinga_base::time::Tick;
use vinga_base::{ColumnId, OperationNumber, PartitionId, TransactionId};
use vinga_wire::{ErrorCode, SignalNumber};

impl Client {
    /// Says what is read of a table's rows: which columns (`None` for the whole image) and under which condition (a
    /// filter program, empty for none). Each call is paired with one of [`Client::release_shape`].
    ///
    /// # Errors
    /// `BadProgram` if the filter is too long, `TooManyColumns`, `Overloaded` if there are too many shapes.
    pub fn add_shape(
        &mut self,
        table: &Table,
        columns: Option<&[ColumnId]>,
        filter: &[u8],
    ) -> Result<ShapeId> {
        if filter.len() > usize::from(u16::MAX) {
            return Err(Error::with_detail(ErrorCode::BadProgram, "more than 65535 bytes"));
        }
        if columns.is_some_and(|columns| columns.len() > vinga_base::schema::COLUMNS_MAX) {
            return Err(Error::new(ErrorCode::TooManyColumns));
        }
        self.reads.add_shape(table, columns, filter)
    }

    /// A shape is no longer used by whoever made it.
    pub fn release_shape(&mut self, shape: ShapeId) {
        self.reads.release_shape(&mut self.net, shape);
    }

    /// Begins to read a batch of keys.
    ///
    /// # Errors
    /// `Overloaded` if too many are under way.
    #[inline]
    pub fn read(&mut self, batch: ReadBatch, urgency: Urgency) -> Result<Token> {
        let handle = self.reads.submit(&mut self.net, batch, urgency, None)?;
        Ok(Token { kind: TokenKind::Read, handle })
    }

    /// The id by which data nodes know a transaction, once something of it was sent; `None` if it is over, too.
    pub fn transaction_id(&self, transaction: Token) -> Option<TransactionId> {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.id(transaction.handle)
    }

    /// How often the first batch of a transaction was begun again, as another transaction each time. 0 if it has ended
    /// and was forgotten.
    pub fn times_begun_again(&self, transaction: Token) -> u32 {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.repeats(transaction.handle)
    }

    /// Why a transaction was rolled back that nobody has asked to roll back: the cluster did it, or the connection was
    /// lost. `None` while it is open, and if it has ended as was asked.
    pub fn rollback_cause(&self, transaction: Token) -> Option<ErrorCode> {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.cause(transaction.handle)
    }

    /// Begins to read a batch of keys as a transaction sees them whose next operation has this number: with its own
    /// changes. Only when no batch of it is under way: what a batch changes would be overtaken.
    ///
    /// # Errors
    /// As [`Client::read`]; why the transaction has ended; `NotSupportedYet` while a batch is under way.
    pub fn read_within(
        &mut self,
        transaction: Token,
        operation: OperationNumber,
        batch: ReadBatch,
    ) -> Result<Token> {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        let within = self.transactions.within(transaction.handle)?;
        let within = within.map(|transaction| Within { transaction, operation });
        let handle = self.reads.submit(&mut self.net, batch, Urgency::Now, within)?;
        Ok(Token { kind: TokenKind::Read, handle })
    }

    /// Takes a batch of reads that is complete; `None` while it is not.
    #[inline]
    pub fn take_read(&mut self, token: Token) -> Option<ReadBatch> {
        debug_assert_eq!(token.kind, TokenKind::Read);
        self.reads.take(token.handle)
    }

    /// Begins operations that commit each by itself.
    ///
    /// # Errors
    /// `Overloaded` if too many are under way.
    #[inline]
    pub fn write(&mut self, batch: WriteBatch, urgency: Urgency) -> Result<Token> {
        let handle = self.writes.submit(&mut self.net, batch, urgency)?;
        Ok(Token { kind: TokenKind::Write, handle })
    }

    /// Takes a batch of writes that is complete; `None` while it is not.
    #[inline]
    pub fn take_write(&mut self, token: Token) -> Option<WriteBatch> {
        debug_assert_eq!(token.kind, TokenKind::Write);
        self.writes.take(token.handle)
    }

    /// A new transaction. Nothing is sent before its first batch.
    ///
    /// # Errors
    /// `Overloaded` if too many are open.
    pub fn begin(&mut self) -> Result<Token> {
        let handle = self.transactions.begin()?;
        Ok(Token { kind: TokenKind::Transaction, handle })
    }

    /// From the next batch on: whether the commit of a transaction is answered when it is on disk, not as soon as it is
    /// in the memory of all replicas. Where nothing is kept on disk, it is rolled back with `NoDisk`.
    pub fn set_durable(&mut self, transaction: Token, is_durable: bool) {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.set_durable(transaction.handle, is_durable);
    }

    /// Sends a batch. There is news when it is over, whatever happens. There must be none of this transaction under
    /// way.
    pub fn send(&mut self, transaction: Token, batch: OperationBatch, end: BatchEnd) {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.submit(&mut self.net, transaction.handle, batch, end);
    }

    /// The commit of a transaction that is under way is wanted no more: it is rolled back if nothing is decided yet.
    /// Its batch ends in any case, and says what was decided (`TransactionAborted` if it was given up).
    pub fn stop_commit(&mut self, transaction: Token) {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.stop_commit(&mut self.net, transaction.handle);
    }

    /// Takes a batch that is over; `None` while it is not. The transaction's token stays until it is cancelled.
    pub fn take_operations(&mut self, transaction: Token) -> Option<OperationBatch> {
        debug_assert_eq!(transaction.kind, TokenKind::Transaction);
        self.transactions.take(transaction.handle)
    }

    /// Asks some partitions of a table what they know of an index, and how many rows are in these ranges.
    ///
    /// # Errors
    /// `ClusterFailure`, `BadProgram` if there are too many ranges, `Overloaded`.
    pub fn statistics(&mut self, table: &Table, ranges: &RangeSpec) -> Result<Token> {
        let handle = self.statistics.submit(&mut self.net, table, ranges)?;
        Ok(Token { kind: TokenKind::Statistics, handle })
    }

    /// Takes statistics that are complete; `None` while they are not.
    pub fn take_statistics(&mut self, token: Token) -> Option<Result<Sample>> {
        debug_assert_eq!(token.kind, TokenKind::Statistics);
        self.statistics.take(token.handle)
    }

    /// Begins a scan, of all rows or of ranges; with a transaction and the number of its next operation it sees its own
    /// changes.
    ///
    /// # Errors
    /// `ClusterFailure`, `OutOfScans`, `BadProgram`; as [`Client::read_within`] for a transaction.
    pub fn scan(
        &mut self,
        table: &Table,
        spec: ScanSpec,
        within: Option<(Token, OperationNumber)>,
    ) -> Result<Token> {
        let within = match within {
            Some((token, operation)) => {
                self.transactions.within(token.handle)?.map(|transaction| (transaction, operation))
            }
            None => None,
        };
        let handle = self.scans.open(&mut self.net, table, spec, within)?;
        Ok(Token { kind: TokenKind::Scan, handle })
    }

    /// Takes what a scan has. When it says that it has ended, or that these are its last rows, its token is gone.
    pub fn next_rows(&mut self, scan: Token) -> ScanProgress {
        debug_assert_eq!(scan.kind, TokenKind::Scan);
        self.scans.next(&mut self.net, scan.handle)
    }

    /// Gives the memory of rows back that have been looked at.
    pub fn recycle(&mut self, rows: ScanRows) {
        self.scans.recycle(rows);
    }

    /// Sends a request to the dictionary or for an information table. If the data node that leads the cluster was lost
    /// a moment ago, it waits for that or the next one. A data node that is asked for its rows of a table is waited for
    /// only while no other one is connected.
    ///
    /// # Errors
    /// `ClusterFailure` if the data node is not connected to which it goes; `Overloaded`.
    pub fn request(&mut self, request: &Request) -> Result<Token> {
        let (way, awaited_until) = match request {
            Request::BackupOpen(partition) | Request::BackupNext { partition, .. } => {
                (self.net.routes.way(*partition).map(|(link, data_manager)| (data_manager, link)), Tick(0))
            }
            _ => self.sessions.way(&self.net, request.asked_node()),
        };
        let handle = self.requests.submit(&mut self.net, request, way, awaited_until)?;
        Ok(Token { kind: TokenKind::Request, handle })
    }

    /// Nothing more is wanted of a backup of a partition. (Data managers end it by themselves when this client is
    /// gone.)
    pub fn close_backup(&mut self, partition: PartitionId) {
        if let Some((link, data_manager)) = self.net.routes.way(partition) {
            self.net.frame(link, SignalNumber::BackupCloseOrder, data_manager);
            self.net.link(link).hurry();
        }
    }

    /// Takes the answer to a request; `None` while there is none.
    pub fn take_answer(&mut self, token: Token) -> Option<Result<Answer>> {
        debug_assert_eq!(token.kind, TokenKind::Request);
        self.requests.take(token.handle)
    }

    /// Whether a token of [`Request::Lock`] that was answered still has the lock. `None`: the connection to the data
    /// node that leads was lost; the token is notified when its successor has said which of both it is.
    pub fn holds_lock(&self, token: Token) -> Option<bool> {
        debug_assert_eq!(token.kind, TokenKind::Request);
        self.requests.holds_lock(token.handle)
    }

    /// Wants to know of schema changes: the first news says that everything may have changed.
    ///
    /// # Errors
    /// `Overloaded` if too many want to know already.
    pub fn watch_schema(&mut self) -> Result<Token> {
        let way = self.president();
        let handle = self.schema_events.watch(&mut self.net, way, self.sessions.cluster_incarnation())?;
        Ok(Token { kind: TokenKind::SchemaEvents, handle })
    }

    /// The next change; `None` while there is none.
    pub fn take_schema_news(&mut self, token: Token) -> Option<(NewsId, SchemaNews)> {
        debug_assert_eq!(token.kind, TokenKind::SchemaEvents);
        self.schema_events.take(token.handle)
    }

    /// News, and all before it, has been acted on.
    pub fn confirm_schema_news(&mut self, token: Token, news: NewsId) {
        debug_assert_eq!(token.kind, TokenKind::SchemaEvents);
        self.schema_events.confirm(&mut self.net, token.handle, news);
    }

    /// Nobody wants what this token names any more: what it waits for is discarded when it comes, an open transaction
    /// is rolled back, a scan closed. A token that is gone already is none of a fault.
    pub fn cancel(&mut self, token: Token) {
        match token.kind {
            TokenKind::Read => self.reads.cancel(token.handle),
            TokenKind::Write => self.writes.cancel(token.handle),
            TokenKind::Transaction => self.transactions.abandon(&mut self.net, token.handle),
            TokenKind::Scan => self.scans.cancel(&mut self.net, token.handle),
            TokenKind::Request => {
                self.requests.cancel(&mut self.net, token.handle);
                self.go_on_with_requests();
            }
            TokenKind::Statistics => self.statistics.cancel(token.handle),
            TokenKind::SchemaEvents => self.schema_events.cancel(&mut self.net, token.handle),
        }
    }
}
