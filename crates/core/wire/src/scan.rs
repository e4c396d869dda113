//! Scans of committed rows: between an API node and the data manager that owns a fragment.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ScanOpenRequest` | API node | data manager | scan one partition of a table; first batch |
//! | `ScanNextRequest` | API node | data manager | the next batch |
//! | `ScanCloseOrder` | API node | data manager | no more rows are wanted |
//! | `ScanConfirm` | data manager | API node | rows; flags mark the last frame of a batch and of the scan |
//! | `ScanRefuse` | data manager | API node | the scan has ended, with an error and its position |
//!
//! A scan visits the rows in the order of their row ids. It is identified by the API node's node id and `scan`, which
//! the API node chooses. A batch is limited in rows and bytes; it may be sent as several frames. A scan with a
//! transaction's id sees that transaction's own changes with lower operation numbers than `operation`, and no others of
//! its own (so it never finds rows that were changed because of it).
//!
//! A scan with [`COUNT_ROWS`] for its columns sends figures instead of rows: the number of rows that it would have sent
//! since the previous figure. It is one batch, whatever batch sizes the request has, and has no limit. A figure is sent
//! each time that it has examined about `batch_bytes` rows; the last figure ends the scan. A new scan from `next_row`
//! on continues behind the rows that the figures so far have counted.
//!
//! ```text
//!   ScanOpenRequest:  ScanOpenHead, columns * u16, filter
//!   ScanNextRequest:  ScanNextBody
//!   ScanCloseOrder:   ScanBody
//!   ScanConfirm:      ScanAnswer, then `count` times u16 length and the row (image or selection; a figure is a u64)
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Beginning of `ScanOpenRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ScanOpenHead {
    /// Version of the table's definition that the API node knows.
    pub version: U64,
    /// Transaction whose own changes are visible; 0 for none.
    pub transaction: U64,
    /// The API node's identifier of the scan.
    pub scan: U32,
    /// The table.
    pub table: U32,
    /// Own changes from this operation number on are not visible.
    pub operation: U32,
    /// Rows with this row id and above are scanned: 0 for all, otherwise the position of an earlier scan.
    pub from_row: U32,
    /// Bytes of rows after which a batch ends; with [`COUNT_ROWS`] the number of rows that are examined between two
    /// figures.
    pub batch_bytes: U32,
    /// Rows after which the whole scan ends; 0 for no limit.
    pub limit: U32,
    /// The partition.
    pub partition: U16,
    /// Rows after which a batch ends, at least 1.
    pub batch_rows: U16,
    /// Number of selected columns, [`crate::operation::ALL_COLUMNS`], or [`COUNT_ROWS`].
    pub columns: U16,
    /// Bytes of the filter program.
    pub filter_bytes: U16,
    /// Flags defined in this file.
    pub flags: U16,
    /// Zero.
    pub unused: U16,
}

/// In `flags` of a request: it is meant for a backup, of a table whose backups answer reads. Without it only the
/// primary answers.
pub const SCAN_AT_BACKUP: u16 = 1;

/// In `columns` of a scan: rows are counted, not sent.
pub const COUNT_ROWS: u16 = u16::MAX - 1;
/// Bytes of a figure.
pub const FIGURE_BYTES: usize = 8;

/// `ScanNextRequest`. The sizes hold for this batch and later ones, so that an API node can begin with few rows and
/// request more per batch once it is clear that many are needed. A body that ends after `scan` leaves the sizes
/// unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ScanNextBody {
    /// The API node's identifier of the scan.
    pub scan: U32,
    /// Bytes of rows after which a batch ends.
    pub batch_bytes: U32,
    /// Rows after which a batch ends; 0 to leave both sizes unchanged.
    pub batch_rows: U16,
    /// Zero.
    pub unused: U16,
}

/// `ScanCloseOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ScanBody {
    /// The API node's identifier of the scan.
    pub scan: U32,
}

/// The batch ends with this frame; `ScanNextRequest` may follow.
pub const SCAN_BATCH_END: u16 = 1;
/// The scan ends with this frame, and its record is freed.
pub const SCAN_END: u16 = 2;

/// Beginning of `ScanConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ScanAnswer {
    /// Newest epoch of any commit at this data manager.
    pub epoch: U64,
    /// The API node's identifier of the scan.
    pub scan: U32,
    /// The row id from which a new scan would continue behind these rows.
    pub next_row: U32,
    /// Number of rows in this frame.
    pub count: U16,
    /// Flags defined in this file.
    pub flags: U16,
}

/// `ScanRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ScanRefusal {
    /// The API node's identifier of the scan.
    pub scan: U32,
    /// The row id from which a new scan would continue.
    pub next_row: U32,
    /// [`crate::ErrorCode`].
    pub code: U16,
    /// Zero.
    pub unused: U16,
}
