//! Projections: the columns that a statement uses, how they are requested, and how the received values are put into the
//! server's record.
//!
//! A projection is a *selection* as `vinga_base::row_layout` describes it: the columns of the primary key, in its order
//! and as the data nodes store them (including sort keys of texts), then the columns that the statement reads. So the
//! key of a row is always at the beginning of the received bytes, and a row can be named without its other columns. If
//! rows need not be named the key is left out; it may be the only part that an index entry does not contain.

use super::{Plan, Step};
use crate::failure::{Failure, Result, ha};
use std::borrow::Cow;
use std::sync::OnceLock;
use vinga::{ColumnId, Table};
use vinga_base::row_layout::Place;

/// How a selected column is stored in a selection, and which column of the server it is.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its size in bytes if that is fixed; `None` if two bytes of length stand in front of it.
    fixed_bytes: Option<u16>,
    /// The place of the server's column; `None` for one that the server does not know.
    step: Option<usize>,
}

/// The columns that are read, and the handles for reading them.
#[derive(Debug)]
pub struct Projection {
    /// The server's columns in it, by their places, ascending.
    places: Vec<u16>,
    /// `None` if it contains all columns of the data nodes: then whole rows are received.
    selection: Option<Selection>,
    /// The table with this selection, for each connection of the pool.
    tables: Vec<OnceLock<Table>>,
}

#[derive(Debug)]
struct Selection {
    columns: Vec<ColumnId>,
    parts: Vec<Part>,
    /// How many columns of the primary key stand at its beginning.
    key_columns: usize,
}

/// Whether a projection has the columns of the primary key, by which the server names rows, though nobody asks for
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PrimaryKey {
    /// It has.
    Included,
    /// It has them only if they are asked for.
    LeftOut,
}

impl Projection {
    /// The projection of a table to these columns of the server, by their places, ascending, and to those of one of its
    /// keys, for this number of connections.
    pub fn new(
        plan: &Plan,
        places: &[u16],
        key: Option<usize>,
        primary: PrimaryKey,
        connections: usize,
    ) -> Self {
        let of_key = key.and_then(|key| plan.keys.get(key)).map_or(&[][..], |key| &key.columns);
        let of_places = places.iter().map(|place| plan.steps[usize::from(*place)].id);
        // For a text the primary key contains only the sort key, but the server needs the text.
        let of_primary = plan.key.iter().map(|part| plan.steps[part.column].id);
        // At least one column must be requested.
        let has_primary = primary == PrimaryKey::Included || (places.is_empty() && of_key.is_empty());
        let mut columns = if has_primary { plan.layout.key().to_vec() } else { Vec::new() };
        let key_columns = columns.len();
        for id in of_primary.filter(|_| has_primary).chain(of_places).chain(of_key.iter().copied()) {
            if !columns.contains(&id) {
                columns.push(id);
            }
        }
        let part = |id: &ColumnId| Part {
            fixed_bytes: match plan.layout.columns()[usize::from(id.0)].place {
                Place::Fixed { bytes, .. } => Some(bytes),
                Place::Variable { .. } => None,
            },
            step: plan.steps.iter().position(|step| step.id == *id),
        };
        let is_whole = columns.len() == plan.layout.columns().len();
        let parts = columns.iter().map(part).collect();
        let selection = (!is_whole).then_some(Selection { columns, parts, key_columns });
        let tables = (0..connections).map(|_| OnceLock::new()).collect();
        Projection { places: places.to_vec(), selection, tables }
    }

    /// Whether it contains these columns of the server, by their places.
    pub fn covers(&self, places: &[u16]) -> bool {
        places.iter().all(|place| self.places.binary_search(place).is_ok())
    }

    /// The table with this selection over a connection, derived from the whole table at the first call.
    ///
    /// # Errors
    /// If it can't be created.
    #[inline]
    pub fn table(&self, slot: usize, whole: impl FnOnce() -> Result<Table>) -> Result<&Table> {
        let place = &self.tables[slot];
        if let Some(table) = place.get() {
            return Ok(table);
        }
        let whole = whole()?;
        let made = match &self.selection {
            None => whole,
            Some(selection) => whole
                .select_ids(&selection.columns)
                .map_err(|error| Failure::new(ha::INTERNAL_ERROR, error.to_string()))?,
        };
        Ok(place.get_or_init(|| made))
    }

    /// The encoded primary key of a row of this selection.
    ///
    /// # Errors
    /// If the row is not well-formed, which no data node sends.
    pub fn key_of<'a>(&self, plan: &Plan, row: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let Some(selection) = &self.selection else {
            let is_row = row.len() >= plan.layout.fixed_bytes();
            return if is_row { Ok(plan.layout.key_of(row)) } else { Err(no_row()) };
        };
        if selection.key_columns == 0 {
            return Err(Failure::new(ha::INTERNAL_ERROR, "a row that was read without its key is named"));
        }
        let begin = selection.columns.len().div_ceil(8);
        let mut rest = row.get(begin..).ok_or_else(no_row)?;
        for part in &selection.parts[..selection.key_columns] {
            part.take(&mut rest)?;
        }
        Ok(Cow::Borrowed(&row[begin..row.len() - rest.len()]))
    }

    /// Puts a row of this selection into a record; other columns of the record are unchanged. Long values are not
    /// copied: the record points to them.
    ///
    /// # Errors
    /// If the row is not well-formed, or a value is longer than its column, which no data node sends.
    pub fn read(&self, plan: &Plan, row: &[u8], record: &mut [u8]) -> Result<()> {
        let Some(selection) = &self.selection else { return plan.read_image(row, record) };
        let nulls = selection.columns.len().div_ceil(8);
        let (nulls, mut rest) = row.split_at_checked(nulls).ok_or_else(no_row)?;
        for (at, part) in selection.parts.iter().enumerate() {
            let is_null = nulls[at / 8] & 1 << (at % 8) != 0;
            let value = if is_null { None } else { Some(part.take(&mut rest)?) };
            if let Some(step) = part.step {
                let step: &Step = &plan.steps[step];
                match value {
                    Some(value) => plan.put_value(step, value, record)?,
                    None => plan.put_null(step, record)?,
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(no_row()) }
    }
}

impl Part {
    /// Takes the column's bytes off the front.
    #[inline]
    fn take<'a>(&self, rest: &mut &'a [u8]) -> Result<&'a [u8]> {
        let bytes = match self.fixed_bytes {
            Some(bytes) => bytes,
            None => {
                let (length, behind) = rest.split_first_chunk::<2>().ok_or_else(no_row)?;
                *rest = behind;
                u16::from_le_bytes(*length)
            }
        };
        let (value, behind) = rest.split_at_checked(usize::from(bytes)).ok_or_else(no_row)?;
        *rest = behind;
        Ok(value)
    }
}

#[cold]
fn no_row() -> Failure {
    Failure::new(ha::INTERNAL_ERROR, "a data node sent what is no row of the table")
}
