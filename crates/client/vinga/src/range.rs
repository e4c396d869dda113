//! Ranges of an ordered index, from values to bytes.

use std::ops::Bound;
use vinga_base::ColumnId;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::{KeyRange, OrderKey};
use vinga_base::row_layout::RowError;
use vinga_base::schema::IndexKind;
use vinga_client_core::value::Key;
use vinga_client_core::{Error, RangeSpec, Result, Table};
use vinga_wire::ErrorCode;

/// The values of a bound: a column and its bytes as they stand in a row, `None` for NULL.
type BoundValues = Vec<(ColumnId, Option<Vec<u8>>)>;

/// Makes bounds of one index.
pub(crate) struct Bounds {
    index: u16,
    columns: Vec<ColumnId>,
    key: OrderKey,
}

impl Bounds {
    /// Those of the ordered index of that name.
    pub fn of(table: &Table, index: &str) -> Result<Self> {
        let index = table.index(index, IndexKind::Ordered)?;
        Ok(Bounds { index: index.id, columns: index.column_ids().collect(), key: table.order_key(index) })
    }

    /// The values as they stand in a row.
    fn values(&self, table: &Table, values: &dyn Key) -> Result<BoundValues> {
        let mut found = Vec::new();
        values.each(&mut |value| {
            let Some(&column) = self.columns.get(found.len()) else {
                let detail = format!("more values than the index has columns, {}", self.columns.len());
                return Err(Error::with_detail(ErrorCode::BadKey, detail));
            };
            found.push((column, table.index_value(column, value)?));
            Ok(())
        })?;
        Ok(found)
    }

    fn encode(&self, values: &BoundValues) -> Result<Vec<u8>> {
        let values: Vec<Option<&[u8]>> = values.iter().map(|(_, value)| value.as_deref()).collect();
        let mut bytes = Vec::new();
        self.key.write_values(&values, &mut bytes).map_err(|error| {
            let detail = match error {
                RowError::NullNotEmpty(column) => format!("NULL for column {column}, which can't be NULL"),
                other => format!("a value does not fit its column: {other:?}"),
            };
            Error::with_detail(ErrorCode::BadKey, detail)
        })?;
        Ok(bytes)
    }

    fn bound(&self, table: &Table, bound: Bound<&dyn Key>) -> Result<Bound<Vec<u8>>> {
        let encode = |values: &dyn Key| self.encode(&self.values(table, values)?);
        Ok(match bound {
            Bound::Included(values) => Bound::Included(encode(values)?),
            Bound::Excluded(values) => Bound::Excluded(encode(values)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    }

    /// The range between two bounds.
    pub fn range(&self, table: &Table, lower: Bound<&dyn Key>, upper: Bound<&dyn Key>) -> Result<KeyRange> {
        let (lower, upper) = (self.bound(table, lower)?, self.bound(table, upper)?);
        Ok(range_of(&lower, &upper))
    }
}

fn range_of(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> KeyRange {
    let bytes = |bound| Bound::map(bound, Vec::as_slice);
    KeyRange::new(bytes(lower.as_ref()), bytes(upper.as_ref()))
}

/// The ranges of a request that is being put together. The first error is returned when it is finished.
pub(crate) struct RangeBuilder {
    bounds: Option<Bounds>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// The hash of all rows' keys, if the bounds leave only one.
    hash: Option<KeyHash>,
    listed: RangeSpec,
    pub is_descending: bool,
    pub in_order: bool,
    error: Option<Error>,
}

impl Default for RangeBuilder {
    fn default() -> Self {
        RangeBuilder {
            bounds: None,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            hash: None,
            listed: RangeSpec::default(),
            is_descending: false,
            in_order: false,
            error: None,
        }
    }
}

fn bad(detail: &str) -> Error {
    Error::with_detail(ErrorCode::BadProgram, detail)
}

impl RangeBuilder {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error.get_or_insert(error);
                None
            }
        }
    }

    /// Names the index.
    pub fn choose(&mut self, table: &Table, index: &str) {
        let bounds = Bounds::of(table, index);
        self.bounds = self.note(bounds);
    }

    fn bound(&mut self, table: &Table, bound: Bound<&dyn Key>) -> Option<Bound<Vec<u8>>> {
        self.hash = None;
        let made = match &self.bounds {
            Some(bounds) => bounds.bound(table, bound),
            None => Err(bad("a bound without an index: name the index before it")),
        };
        self.note(made)
    }

    pub fn set_lower(&mut self, table: &Table, bound: Bound<&dyn Key>) {
        if let Some(bound) = self.bound(table, bound) {
            self.lower = bound;
        }
    }

    pub fn set_upper(&mut self, table: &Table, bound: Bound<&dyn Key>) {
        if let Some(bound) = self.bound(table, bound) {
            self.upper = bound;
        }
    }

    /// All keys that begin with these values.
    pub fn set_prefix(&mut self, table: &Table, values: &dyn Key) {
        self.set_lower(table, Bound::Included(values));
        self.upper = self.lower.clone();
        let hash =
            self.bounds.as_ref().and_then(|bounds| hash_of(table, &bounds.values(table, values).ok()?));
        self.hash = hash;
    }

    /// One more range beside others.
    pub fn push(&mut self, low: &[u8], high: &[u8]) {
        if low.len().max(high.len()) > usize::from(u16::MAX) {
            self.error.get_or_insert(bad("a bound of a range is no key: it has more than 65535 bytes"));
        } else {
            self.listed.push_bounds(low, high);
        }
    }

    /// The ranges; `None` if no index was named.
    pub fn finish(self) -> Result<Option<RangeSpec>> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let is_bounded = self.lower != Bound::Unbounded || self.upper != Bound::Unbounded;
        let Some(bounds) = self.bounds else {
            if self.is_descending || self.in_order || !self.listed.is_empty() {
                return Err(bad("ranges, descending() and in_order() need an index"));
            }
            return Ok(None);
        };
        let mut spec = self.listed;
        if spec.is_empty() {
            spec.push(&range_of(&self.lower, &self.upper));
            spec.hash = self.hash;
        } else if is_bounded {
            return Err(bad("ranges are given either by bounds or one by one"));
        }
        spec.index = bounds.index;
        spec.is_descending = self.is_descending;
        spec.in_order = self.in_order;
        Ok(Some(spec))
    }
}

/// The hash of the primary key, if these values hold all of it.
fn hash_of(table: &Table, values: &BoundValues) -> Option<KeyHash> {
    let mut key = Vec::new();
    let value = |id: ColumnId| {
        let found = values.iter().find(|(column, _)| *column == id);
        Ok(found.and_then(|(_, value)| value.as_deref()))
    };
    table.write_key_of(value, &mut key).ok()?;
    Some(KeyHash::of(&key))
}
