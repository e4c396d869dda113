//! Ranges of ordered indexes.

use crate::border::Items;
use crate::failure::{Failure, Misuse, Outcome};
use crate::row::Cells;
use crate::value::{CValue, Given, Kept, KeyValues};
use std::ffi::c_int;
use std::ops::Bound;
use vinga::value::Key;
use vinga::{Error, ErrorCode, IndexKind, KeyRange, ScanRequest, Table};

/// `vinga_bound`: where a range begins or ends.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CBound {
    /// Values of the first columns of the index.
    pub values: Items<CValue>,
    /// How many; 0 for no bound.
    pub count: usize,
    /// Whether keys with these values are outside of the range.
    pub is_excluded: c_int,
}

/// `vinga_range`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CRange {
    /// Where it begins.
    pub low: CBound,
    /// Where it ends.
    pub high: CBound,
}

impl CBound {
    fn get<'a>(&self, values: &'a KeyValues<Given<'_>>) -> Bound<&'a dyn Key> {
        match (values.is_empty(), self.is_excluded) {
            (true, _) => Bound::Unbounded,
            (false, 0) => Bound::Included(values),
            (false, _) => Bound::Excluded(values),
        }
    }
}

impl CRange {
    /// The keys of an index that lie in it.
    fn keys(&self, table: &Table<Cells>, index: &str) -> Outcome<KeyRange> {
        let low = KeyValues::new(self.low.values.get(self.low.count)?)?;
        let high = KeyValues::new(self.high.values.get(self.high.count)?)?;
        Ok(table.index_range(index, self.low.get(&low), self.high.get(&high))?)
    }
}

/// The keys of an index that lie in ranges.
///
/// # Errors
/// `BadArgument`; `BadProgram` if there is no such index, `BadKey` if a value does not fit its column.
pub fn keys(table: &Table<Cells>, index: &str, ranges: &[CRange]) -> Outcome<Vec<KeyRange>> {
    ranges.iter().map(|range| range.keys(table, index)).collect()
}

/// Along which index a scan goes, if along one, and through which parts of it.
#[derive(Default)]
pub struct Way {
    index: Option<String>,
    ranges: Vec<KeyRange>,
    /// What the keys of the only range begin with, if that is all that it asks for.
    prefix: Option<KeyValues<Kept>>,
    /// From the end to the beginning.
    pub is_descending: bool,
    /// In the order of the index.
    pub in_order: bool,
}

impl Way {
    /// Chooses an index.
    ///
    /// # Errors
    /// `BadProgram` if there is none of this name; `BadArgument` if there are ranges of another one already.
    pub fn choose(&mut self, table: &Table<Cells>, index: &str) -> Outcome {
        table.core().index(index, IndexKind::Ordered)?;
        if !self.ranges.is_empty() {
            return Err(Failure::misuse(Misuse::BadArgument, "the scan has ranges of an index already"));
        }
        self.index = Some(index.to_owned());
        Ok(())
    }

    /// Appends ranges.
    ///
    /// # Errors
    /// As [`keys`]; `BadProgram` if no index was chosen.
    pub fn add(&mut self, table: &Table<Cells>, ranges: &[CRange]) -> Outcome {
        let Some(index) = &self.index else {
            let detail = "ranges without an index: name the index before them";
            return Err(Error::with_detail(ErrorCode::BadProgram, detail).into());
        };
        self.ranges.extend(keys(table, index, ranges)?);
        self.prefix = None;
        Ok(())
    }

    /// Appends the range of all keys that begin with these values.
    ///
    /// # Errors
    /// As [`Way::add`].
    pub fn add_prefix(&mut self, table: &Table<Cells>, values: Items<CValue>, count: usize) -> Outcome {
        let bound = CBound { values, count, is_excluded: 0 };
        self.add(table, &[CRange { low: bound, high: bound }])?;
        if self.ranges.len() == 1 {
            self.prefix = Some(KeyValues::new(values.get(count)?)?.keep());
        }
        Ok(())
    }

    /// The request with all this.
    pub fn apply(&self, request: ScanRequest<Cells>) -> ScanRequest<Cells> {
        let request = match &self.index {
            Some(index) => request.index(index),
            None => request,
        };
        let request = match &self.prefix {
            // The client knows then which partition has the rows, if only one has them.
            Some(values) => request.prefix(values),
            None => self.ranges.iter().fold(request, ScanRequest::range),
        };
        let request = if self.is_descending { request.descending() } else { request };
        if self.in_order { request.in_order() } else { request }
    }
}
