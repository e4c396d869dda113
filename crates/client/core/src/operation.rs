//! One operation as a caller defines it, checked and written as it travels.

use crate::error::{Error, Result};
use crate::table::Table;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::row_layout::RowError;
use vinga_base::{ColumnId, OperationNumber, PartitionId};
use vinga_wire::operation::{ALL_COLUMNS, FLAG_ERROR_IS_LOCAL, LockWait, OperationHead, OperationKind};
use vinga_wire::{ErrorCode, U16, U32, U64};
use zerocopy::IntoBytes;

/// What is to be done with one row.
#[derive(Clone, Copy)]
pub struct OperationSpec<'a> {
    /// The row's table.
    pub table: &'a Table,
    /// What is done.
    pub kind: OperationKind,
    /// The encoded key; empty for an insert or write, whose image holds it.
    pub key: &'a [u8],
    /// Insert, write: the row's image; update: the update program; else empty.
    pub body: &'a [u8],
    /// Reads: which columns, `None` for the whole image.
    pub columns: Option<&'a [ColumnId]>,
    /// Condition on the row, as a filter program; empty for none.
    pub filter: &'a [u8],
    /// An error of this operation alone leaves the transaction open.
    pub error_is_local: bool,
    /// How long it waits for its lock.
    pub wait: LockWait,
}

impl<'a> OperationSpec<'a> {
    /// An operation without filter, whose error rolls the transaction back, on the whole row.
    pub fn new(table: &'a Table, kind: OperationKind, key: &'a [u8], body: &'a [u8]) -> Self {
        OperationSpec {
            table,
            kind,
            key,
            body,
            columns: None,
            filter: &[],
            error_is_local: false,
            wait: LockWait::Default,
        }
    }

    /// Checks it and appends it; returns the hash of its row's key.
    ///
    /// # Errors
    /// `BadKey`, `BadRow` or `BadProgram`. What was appended is taken back.
    pub(crate) fn write(&self, number: OperationNumber, out: &mut Vec<u8>) -> Result<KeyHash> {
        self.check()?;
        let layout = self.table.layout();
        let is_image = matches!(self.kind, OperationKind::Insert | OperationKind::Write);
        let body = if is_image { layout.image_with_one_zero(self.body) } else { Cow::Borrowed(self.body) };
        let key = layout.key_with_one_zero(self.key);
        OperationSpec { key: &key, body: &body, ..*self }.write_checked(number, out)
    }

    fn write_checked(&self, number: OperationNumber, out: &mut Vec<u8>) -> Result<KeyHash> {
        let hash = self.hash();
        let (Ok(body_bytes), Ok(filter_bytes)) =
            (u16::try_from(self.body.len()), u16::try_from(self.filter.len()))
        else {
            return Err(Error::with_detail(ErrorCode::BadProgram, "more than 65535 bytes"));
        };
        let columns = match (self.kind.is_read(), self.columns) {
            (false, _) => 0,
            (true, None) => ALL_COLUMNS,
            (true, Some(columns)) => columns.len() as u16,
        };
        let head = OperationHead {
            version: U64::new(self.table.version().0),
            hash: U64::ZERO,
            table: U32::new(self.table.id().0),
            number: U32::new(number.0),
            row_or_wait: U32::new(self.wait.number()),
            kind: self.kind as u8,
            flags: if self.error_is_local { FLAG_ERROR_IS_LOCAL } else { 0 },
            key_bytes: U16::new(self.key.len() as u16),
            body_bytes: U16::new(body_bytes),
            columns: U16::new(columns),
            filter_bytes: U16::new(filter_bytes),
            sub: 0,
            unused: 0,
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.body);
        if self.kind.is_read() {
            for column in self.columns.into_iter().flatten() {
                out.extend_from_slice(&column.0.to_le_bytes());
            }
        }
        out.extend_from_slice(self.filter);
        Ok(hash)
    }

    fn check(&self) -> Result<()> {
        match self.kind {
            OperationKind::Insert | OperationKind::Write => {
                assert!(self.key.is_empty(), "the key of a new row is in its image");
                self.table.layout().check_image(self.body).map_err(|error| match error {
                    RowError::RowTooLong => Error::new(ErrorCode::RowTooLong),
                    _ => Error::with_detail(
                        ErrorCode::BadRow,
                        format!("the bytes are no row of {}: {error:?}", self.table.name()),
                    ),
                })
            }
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Update
            | OperationKind::Delete
            | OperationKind::Unlock => self.table.check_key(self.key),
        }
    }

    /// Of what has been checked.
    fn hash(&self) -> KeyHash {
        match self.kind {
            OperationKind::Insert | OperationKind::Write => {
                KeyHash::of(&self.table.layout().key_of(self.body))
            }
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Update
            | OperationKind::Delete
            | OperationKind::Unlock => KeyHash::of(self.key),
        }
    }
}

/// The lock of a row that a read has asked for: what it takes to let go of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenLock {
    /// The read's number.
    pub read: OperationNumber,
    table: u32,
    version: u64,
    hash: KeyHash,
    /// Where the row is.
    pub partition: PartitionId,
}

impl TakenLock {
    pub fn new(read: OperationNumber, table: &Table, hash: KeyHash) -> Self {
        let partition = table.partition_of(hash);
        TakenLock { read, table: table.id().0, version: table.version().0, hash, partition }
    }

    /// Appends the operation that lets go of it. Its error leaves the transaction open: then the lock stays.
    pub fn write_unlock(&self, number: OperationNumber, out: &mut Vec<u8>) {
        let body = self.read.0.to_le_bytes();
        let head = OperationHead {
            version: U64::new(self.version),
            hash: U64::new(self.hash.0),
            table: U32::new(self.table),
            number: U32::new(number.0),
            row_or_wait: U32::ZERO,
            kind: OperationKind::Unlock as u8,
            flags: FLAG_ERROR_IS_LOCAL,
            key_bytes: U16::ZERO,
            body_bytes: U16::new(body.len() as u16),
            columns: U16::ZERO,
            filter_bytes: U16::ZERO,
            sub: 0,
            unused: 0,
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    }
}

/// Bytes of operations in one batch, at most: what a coordinator accepts, less the heads.
pub(crate) const BATCH_BYTES_MAX: usize = vinga_wire::frame::FRAME_BYTES_MAX - 512;
