//! Rows as they came in a frame of a scan.

use alloc::vec::Vec;
use vinga_wire::range_scan::RangeRow;
use zerocopy::{FromBytes, IntoBytes};

/// How the rows stand in the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Form {
    /// Each behind its length, as [`vinga_wire::scan`] says.
    #[default]
    Plain,
    /// Each behind a head and perhaps its key, as [`vinga_wire::range_scan`] says.
    Ranged,
}

/// Rows of a scan in a frame's form: of one partition, or merged.
#[derive(Default, Debug)]
pub struct ScanRows {
    pub(super) form: Form,
    pub(super) bytes: Vec<u8>,
    pub(super) count: u32,
}

/// One row of a scan, in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanRow<'a> {
    /// In which of the scan's ranges it lies, from 0.
    pub range: u16,
    /// Its row id in its partition; 0 for a scan without ranges.
    pub row: u32,
    /// Its key in the index, if it was sent.
    pub key: &'a [u8],
    /// The row: an image or a selection.
    pub bytes: &'a [u8],
}

impl ScanRows {
    /// The rows of a `ScanConfirm` of ranges; `None` if they are not whole.
    pub fn of_ranges(count: u16, bytes: &[u8]) -> Option<Self> {
        ScanRows::of(Form::Ranged, count, bytes)
    }

    /// The rows of a `ScanConfirm` of a full scan; `None` if they are not whole.
    pub fn of_scan(count: u16, bytes: &[u8]) -> Option<Self> {
        ScanRows::of(Form::Plain, count, bytes)
    }

    fn of(form: Form, count: u16, bytes: &[u8]) -> Option<Self> {
        let mut rows = ScanRows::default();
        rows.fill(form, count.into(), bytes);
        rows.check()?;
        Some(rows)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rows, each an image or a selection as was asked for.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.rows().map(|row| row.bytes)
    }

    /// The rows, with what else is known of them.
    pub fn rows(&self) -> ScanRowsIter<'_> {
        ScanRowsIter { rows: self, at: 0 }
    }

    /// The row at this byte offset, from 0, and the offset of the row behind it; `None` at the end.
    #[inline]
    pub fn row_at(&self, offset: usize) -> Option<(ScanRow<'_>, usize)> {
        let rest = self.bytes.get(offset..)?;
        match self.form {
            Form::Plain => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let bytes = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
                Some((ScanRow { range: 0, row: 0, key: &[], bytes }, offset + 2 + bytes.len()))
            }
            Form::Ranged => {
                let (head, rest) = RangeRow::ref_from_prefix(rest).ok()?;
                let (key, rest) = rest.split_at_checked(usize::from(head.key_bytes.get()))?;
                let bytes = rest.get(..usize::from(head.row_bytes.get()))?;
                let row = ScanRow { range: head.range.get(), row: head.row.get(), key, bytes };
                Some((row, offset + size_of::<RangeRow>() + key.len() + bytes.len()))
            }
        }
    }

    /// Takes over what a frame brought.
    pub(super) fn fill(&mut self, form: Form, count: u32, bytes: &[u8]) {
        self.form = form;
        self.count = count;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the rows are all there; cuts what pads the frame. Where the last row stands, if there is one.
    pub(super) fn check(&mut self) -> Option<Option<usize>> {
        let (mut last, mut end) = (None, 0);
        for _ in 0..self.count {
            last = Some(end);
            (_, end) = self.row_at(end)?;
        }
        self.bytes.truncate(end);
        Some(last)
    }

    /// Appends other rows of the same scan.
    pub(super) fn append(&mut self, other: &ScanRows) {
        debug_assert_eq!(self.form, other.form);
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// Keeps only the first rows.
    pub(super) fn truncate(&mut self, count: u32) {
        if count < self.count {
            self.count = count;
            self.check().expect("checked when it came");
        }
    }

    /// Appends a row of a range, without its key.
    pub(super) fn push(&mut self, row: &ScanRow<'_>) {
        debug_assert_eq!(self.form, Form::Ranged);
        let head = RangeRow {
            row: row.row.into(),
            range: row.range.into(),
            key_bytes: 0.into(),
            row_bytes: (row.bytes.len() as u16).into(),
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(row.bytes);
        self.count += 1;
    }
}

/// See [`ScanRows::rows`].
pub struct ScanRowsIter<'a> {
    rows: &'a ScanRows,
    at: usize,
}

impl<'a> Iterator for ScanRowsIter<'a> {
    type Item = ScanRow<'a>;

    #[inline]
    fn next(&mut self) -> Option<ScanRow<'a>> {
        let (row, next) = self.rows.row_at(self.at)?;
        self.at = next;
        Some(row)
    }
}
