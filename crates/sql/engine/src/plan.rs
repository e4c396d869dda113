//! How records and keys of the server become rows and keys of the data nodes, and back: made once for each open table,
//! then nothing but copying.

use crate::definition::{Column, Description, Form, HIDDEN_KEY, sort_column_name};
use crate::failure::{Failure, Result, ha};
use crate::server::{Collation, Server};
use std::ops::Bound;
use vinga::{ColumnId, IndexKind, KeyRange, OrderKey, TableDefinition};
use vinga_base::row_layout::{ColumnLayout, Place, RowLayout};
use vinga_base::schema::ROW_BYTES_MAX;

/// One column.
#[derive(Clone, Debug)]
struct Step {
    id: ColumnId,
    layout: ColumnLayout,
    form: Form,
    offset: usize,
    bytes: usize,
    null: (usize, u8),
}

/// Where the bytes of a variable column come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A column of the server, by its place.
    Column(usize),
    /// The sort key of one.
    SortKey { column: usize, bytes: usize },
}

/// One column of a key.
#[derive(Clone, Copy, Debug)]
struct KeyStep {
    column: usize,
    /// In the server's keys.
    bytes: usize,
    has_length: bool,
    is_nullable: bool,
    /// Greatest size of the sort key that stands for it.
    sort_bytes: Option<usize>,
    form: Form,
    is_variable: bool,
    is_descending: bool,
}

/// One key of the server.
#[derive(Debug)]
struct KeyPlan {
    /// Its indexes have it, too.
    name: String,
    steps: Vec<KeyStep>,
    /// How keys of the ordered index are made. None for hashes.
    ordered: Option<OrderKey>,
    /// The unique index behind it, if it is not the primary key.
    unique: Option<u16>,
    is_unique: bool,
}

/// What an end of a range is in the server's form: bytes of a key or of the beginning of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End<'a> {
    /// No end.
    Open,
    /// Keys that begin so belong to it.
    Included(&'a [u8]),
    /// They do not.
    Excluded(&'a [u8]),
}

/// What a range has of the keys that begin as its end.
#[derive(Clone, Copy, Debug)]
enum Belongs {
    Included,
    Excluded,
    /// There is no end.
    Everything,
}

impl Belongs {
    fn bound(self, key: &[u8]) -> Bound<&[u8]> {
        match self {
            Belongs::Included => Bound::Included(key),
            Belongs::Excluded => Bound::Excluded(key),
            Belongs::Everything => Bound::Unbounded,
        }
    }
}

/// What was taken off a key of the server.
enum Taken {
    Null,
    Whole,
    /// The beginning of a sort key that is longer than any in the index.
    Cut,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Plan {
    layout: RowLayout,
    steps: Vec<Step>,
    /// By the order of the variable columns in a row.
    variable: Vec<Source>,
    key: Vec<KeyStep>,
    keys: Vec<KeyPlan>,
    primary: usize,
    collations: Vec<Collation>,
    hidden_key: Option<usize>,
    record_bytes: usize,
    key_bytes_max: usize,
}

impl Plan {
    /// The plan for a table.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if server and data nodes do not mean the same table.
    pub fn new(description: &Description, definition: &TableDefinition, layout: &RowLayout) -> Result<Self> {
        let changed =
            || Failure::new(ha::TABLE_DEF_CHANGED, "the table has another definition at the data nodes");
        let find = |name: &str| {
            let at = definition.columns.iter().position(|column| column.name == name).ok_or_else(changed)?;
            Ok::<_, Failure>(ColumnId(at as u16))
        };
        let mut steps = Vec::new();
        for column in &description.columns {
            let id = find(&column.name)?;
            let found = &definition.columns[usize::from(id.0)];
            if found.column_type != column.column_type || found.nullable != (column.null.1 != 0) {
                return Err(changed());
            }
            let layout = *layout.column(id).ok_or_else(changed)?;
            let Column { form, offset, bytes, null, .. } = *column;
            steps.push(Step { id, layout, form, offset, bytes, null });
        }
        let mut variable = Vec::new();
        for id in layout.variable() {
            let name = &definition.columns[usize::from(id.0)].name;
            let source = match description.columns.iter().position(|column| column.name == *name) {
                Some(column) => Source::Column(column),
                None => {
                    let column = (0..description.columns.len())
                        .find(|&column| sort_column_name(column) == *name)
                        .ok_or_else(changed)?;
                    Source::SortKey { column, bytes: sort_room(definition, *id) }
                }
            };
            variable.push(source);
        }
        let mut hidden_key = None;
        let mut keys = Vec::new();
        for server_key in &description.keys {
            let find_index = |kind: IndexKind| {
                definition.indexes.iter().find(|index| index.kind == kind && index.name == server_key.name)
            };
            let ordered = find_index(IndexKind::Ordered);
            let unique = find_index(IndexKind::Unique);
            let ids: Vec<ColumnId> = match (server_key.is_primary, ordered.or(unique)) {
                (true, _) => definition.primary_key.clone(),
                (false, Some(index)) => index.column_ids().collect(),
                (false, None) => return Err(changed()),
            };
            if ids.len() != server_key.parts.len() {
                return Err(changed());
            }
            let step = |(part, id): (&crate::definition::KeyPart, &ColumnId)| {
                let column = &description.columns[part.column];
                let is_sorted = definition.columns[usize::from(id.0)].name != column.name;
                KeyStep {
                    column: part.column,
                    bytes: part.bytes,
                    has_length: part.has_length,
                    is_nullable: part.is_nullable,
                    sort_bytes: is_sorted.then(|| sort_room(definition, *id)),
                    form: column.form,
                    is_variable: matches!(column.form, Form::Varying(_) | Form::Long(_) | Form::Padded),
                    is_descending: part.is_descending,
                }
            };
            let ordered = match ordered {
                Some(index) => Some(OrderKey::new(layout, &index.columns).ok_or_else(changed)?),
                None => None,
            };
            keys.push(KeyPlan {
                name: server_key.name.clone(),
                steps: server_key.parts.iter().zip(&ids).map(step).collect(),
                ordered,
                unique: unique.map(|index| index.id),
                is_unique: server_key.is_unique,
            });
        }
        let primary = description.keys.iter().position(|key| key.is_primary);
        let key = match primary {
            Some(primary) => keys[primary].steps.clone(),
            None => {
                let Place::Fixed { offset, .. } = layout.column(find(HIDDEN_KEY)?).ok_or_else(changed)?.place
                else {
                    return Err(changed());
                };
                hidden_key = Some(usize::from(offset));
                Vec::new()
            }
        };
        let key_bytes_max = definition
            .primary_key
            .iter()
            .map(|id| {
                let kind = definition.columns[usize::from(id.0)].column_type.kind();
                kind.fixed_bytes().map_or_else(|| 2 + sort_room(definition, *id), usize::from)
            })
            .sum();
        Ok(Plan {
            layout: layout.clone(),
            steps,
            variable,
            key,
            keys,
            primary: primary.unwrap_or(usize::MAX),
            collations: description.columns.iter().map(|column| column.collation).collect(),
            hidden_key,
            record_bytes: description.record_bytes,
            key_bytes_max,
        })
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Bytes of an encoded primary key, at most.
    pub fn key_bytes_max(&self) -> usize {
        self.key_bytes_max
    }

    /// The name of the unique index of a key; `None` if it is another key, or the primary one.
    pub fn unique_index(&self, key: usize) -> Option<&str> {
        let key = self.keys.get(key)?;
        key.unique.map(|_| key.name.as_str())
    }

    /// Whether a change of a row can fail because of other rows, even if nobody else can change that row.
    pub fn has_unique_index(&self) -> bool {
        self.keys.iter().any(|key| key.unique.is_some())
    }

    /// Whether all primary keys have the same length.
    pub fn has_fixed_key(&self) -> bool {
        self.layout.key_bytes().is_some()
    }

    /// Whether the table has no primary key of its own.
    pub fn has_hidden_key(&self) -> bool {
        self.hidden_key.is_some()
    }

    /// Where columns lie in a row.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The column of a row that the server's column is.
    pub fn column(&self, place: usize) -> Option<ColumnId> {
        self.steps.get(place).map(|step| step.id)
    }

    /// The value of a column in a record; `None` if it is NULL.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    unsafe fn value<'a>(&self, step: &Step, record: &'a [u8]) -> Result<Option<&'a [u8]>> {
        if step.null.1 != 0 && record[step.null.0] & step.null.1 != 0 {
            return Ok(None);
        }
        match step.form {
            Form::Same | Form::Reversed => Ok(Some(&record[step.offset..step.offset + step.bytes])),
            Form::Padded => Ok(Some(without_padding(&record[step.offset..step.offset + step.bytes]))),
            Form::Varying(length_bytes) => {
                let (length, begin) = read_length(record, step.offset, length_bytes);
                if length > step.bytes {
                    return Err(Failure::new(ha::INTERNAL_ERROR, "a value is longer than its column"));
                }
                Ok(Some(&record[begin..begin + length]))
            }
            Form::Long(length_bytes) => {
                let (length, begin) = read_length(record, step.offset, length_bytes);
                if length == 0 {
                    return Ok(Some(&[]));
                }
                let pointer = usize::from_ne_bytes(record[begin..begin + 8].try_into().expect("eight bytes"));
                // SAFETY: the server keeps the value alive as long as the record, as the caller promises.
                Ok(Some(unsafe { std::slice::from_raw_parts(pointer as *const u8, length) }))
            }
        }
    }

    /// Appends the row of a record. `hidden_key` is its primary key if it has none of its own.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If it is too long, or a sort key is.
    pub unsafe fn write_image(
        &self,
        record: &[u8],
        hidden_key: u64,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        out.resize(start + self.layout.fixed_bytes(), 0);
        for step in &self.steps {
            // SAFETY: as the caller promises.
            let value = unsafe { self.value(step, record)? };
            let Some(value) = value else {
                self.layout.set_null(&mut out[start..], &step.layout, true);
                continue;
            };
            if let Place::Fixed { offset, bytes } = step.layout.place {
                let at = start + usize::from(offset);
                put_fixed(step.form, value, &mut out[at..at + usize::from(bytes)]);
            }
        }
        if let Some(offset) = self.hidden_key {
            out[start + offset..start + offset + 8].copy_from_slice(&hidden_key.to_le_bytes());
        }
        if !self.variable.is_empty() {
            let ends = out.len();
            out.resize(ends + 2 * self.variable.len(), 0);
            let begin = out.len();
            for (place, source) in self.variable.iter().enumerate() {
                match *source {
                    Source::Column(column) => {
                        // SAFETY: as the caller promises.
                        if let Some(value) = unsafe { self.value(&self.steps[column], record)? } {
                            if out.len() + value.len() - start > ROW_BYTES_MAX {
                                return Err(row_too_long());
                            }
                            out.extend_from_slice(value);
                        }
                    }
                    Source::SortKey { column, bytes } => {
                        // SAFETY: as the caller promises.
                        match unsafe { self.value(&self.steps[column], record)? } {
                            Some(value) => server.sort_key(self.collations[column], value, bytes, out)?,
                            None => {
                                let id = self.layout.variable()[place];
                                let layout = &self.layout.columns()[usize::from(id.0)];
                                self.layout.set_null(&mut out[start..], layout, true);
                            }
                        }
                    }
                }
                let end = (out.len() - begin) as u16;
                out[ends + 2 * place..ends + 2 * place + 2].copy_from_slice(&end.to_le_bytes());
            }
        }
        if out.len() - start > ROW_BYTES_MAX { Err(row_too_long()) } else { Ok(()) }
    }

    /// Puts a row into a record. Long values stay where they are: the record points to them.
    ///
    /// # Errors
    /// If a value is longer than its column, which no data node sends.
    pub fn read_image(&self, image: &[u8], record: &mut [u8]) -> Result<()> {
        if image.len() < self.layout.fixed_bytes() {
            return Err(Failure::new(ha::INTERNAL_ERROR, "a data node sent what is no row of the table"));
        }
        let (fixed, variable) = self.layout.split(image);
        for step in &self.steps {
            if step.null.1 != 0 {
                if self.layout.is_null(fixed, &step.layout) {
                    record[step.null.0] |= step.null.1;
                    // Whoever looks at the value in spite of that finds nothing.
                    match step.form {
                        Form::Same | Form::Reversed => {}
                        Form::Padded => record[step.offset..step.offset + step.bytes].fill(b' '),
                        Form::Varying(bytes) | Form::Long(bytes) => {
                            record[step.offset..step.offset + usize::from(bytes)].fill(0);
                        }
                    }
                    continue;
                }
                record[step.null.0] &= !step.null.1;
            }
            let value = self.layout.bytes(fixed, variable, &step.layout);
            if value.len() > step.bytes && !matches!(step.form, Form::Long(_)) {
                return Err(Failure::new(
                    ha::INTERNAL_ERROR,
                    "a data node sent a value that is longer than its column",
                ));
            }
            let place = &mut record[step.offset..];
            match step.form {
                Form::Same => place[..value.len()].copy_from_slice(value),
                Form::Reversed => {
                    for (to, from) in place.iter_mut().zip(value.iter().rev()) {
                        *to = *from;
                    }
                }
                Form::Padded => {
                    let (begin, end) = place[..step.bytes].split_at_mut(value.len());
                    begin.copy_from_slice(value);
                    end.fill(b' ');
                }
                Form::Varying(1) => {
                    place[0] = value.len() as u8;
                    place[1..=value.len()].copy_from_slice(value);
                }
                Form::Varying(_) => {
                    place[..2].copy_from_slice(&(value.len() as u16).to_le_bytes());
                    place[2..2 + value.len()].copy_from_slice(value);
                }
                Form::Long(length_bytes) => {
                    let bytes = usize::from(length_bytes);
                    place[..bytes].copy_from_slice(&(value.len() as u32).to_le_bytes()[..bytes]);
                    place[bytes..bytes + 8].copy_from_slice(&(value.as_ptr() as usize).to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    /// The server's place of the primary key.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The server's key that a unique index of the data nodes stands for.
    pub fn key_of_index(&self, index: u16) -> Option<usize> {
        self.keys.iter().position(|key| key.unique == Some(index))
    }

    /// Whether a column is in a unique index: changes of it may fail.
    pub fn is_unique_column(&self, id: ColumnId, definition: &TableDefinition) -> bool {
        let of_unique = |index: &&vinga::IndexDefinition| index.kind == IndexKind::Unique;
        definition.indexes.iter().filter(of_unique).any(|index| index.column_ids().any(|column| column == id))
    }

    /// The ordered index of a key; `None` if there is none.
    pub fn ordered_index(&self, key: usize) -> Option<&str> {
        let key = self.keys.get(key)?;
        key.ordered.as_ref().map(|_| key.name.as_str())
    }

    /// Ordered indexes: the server's key and the index's name.
    pub fn ordered_indexes(&self) -> impl Iterator<Item = (usize, &str)> {
        let named = |(at, key): (usize, &'_ KeyPlan)| key.ordered.is_some().then_some(at);
        let places: Vec<usize> = self.keys.iter().enumerate().filter_map(named).collect();
        places.into_iter().filter_map(|at| Some((at, self.ordered_index(at)?)))
    }

    /// How many columns of a key a piece of it has, and whether that is a whole unique one without NULL.
    pub fn parts_of(&self, key: usize, bytes: &[u8]) -> (usize, bool) {
        let Some(plan) = self.keys.get(key) else { return (0, false) };
        let mut rest = bytes;
        let mut parts = 0;
        let mut has_null = false;
        for step in &plan.steps {
            let stored = usize::from(step.is_nullable) + if step.has_length { 2 } else { 0 } + step.bytes;
            if rest.len() < stored {
                break;
            }
            has_null |= step.is_nullable && rest[0] != 0;
            rest = &rest[stored..];
            parts += 1;
        }
        (parts, plan.is_unique && !has_null && parts == plan.steps.len())
    }

    /// The first column's value of a piece of a key, if that is an integer.
    pub fn first_integer(
        &self,
        key: usize,
        bytes: &[u8],
        is_signed: impl Fn(ColumnId) -> Option<bool>,
    ) -> Option<i128> {
        let step = self.keys.get(key)?.steps.first()?;
        if step.form != Form::Same || step.sort_bytes.is_some() {
            return None;
        }
        let is_signed = is_signed(self.steps[step.column].id)?;
        let begin = usize::from(step.is_nullable);
        let value = bytes.get(begin..begin + step.bytes)?;
        let mut wide = [if is_signed && value.last()? & 0x80 != 0 { 0xff } else { 0 }; 16];
        wide[..value.len()].copy_from_slice(value);
        Some(i128::from_le_bytes(wide))
    }

    /// The range of an ordered index between two ends in the server's form.
    ///
    /// # Errors
    /// If the key has no ordered index or a value is too long for it.
    pub fn range(&self, key: usize, low: End<'_>, high: End<'_>, server: &Server) -> Result<KeyRange> {
        let none = || Failure::new(ha::WRONG_COMMAND, "the key has no ordered index");
        let plan = self.keys.get(key).ok_or_else(none)?;
        let order = plan.ordered.as_ref().ok_or_else(none)?;
        let (mut low_bytes, mut high_bytes) = (Vec::new(), Vec::new());
        let low = self.write_end(plan, order, (low, true), server, &mut low_bytes)?;
        let high = self.write_end(plan, order, (high, false), server, &mut high_bytes)?;
        Ok(KeyRange::new(low.bound(&low_bytes), high.bound(&high_bytes)))
    }

    /// Writes the key of an end of a range; what keys that begin so are to the range. A value whose sort key is longer than
    /// any in the index is cut off: what begins with the rest is less than the value.
    fn write_end(
        &self,
        plan: &KeyPlan,
        order: &OrderKey,
        (end, is_low): (End<'_>, bool),
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<Belongs> {
        let (bytes, belongs) = match end {
            End::Open => return Ok(Belongs::Everything),
            End::Included(bytes) => (bytes, Belongs::Included),
            End::Excluded(bytes) => (bytes, Belongs::Excluded),
        };
        Ok(match self.write_order_key(plan, order, bytes, server, out)? {
            None => belongs,
            Some(cut) if cut.is_descending == is_low => Belongs::Included,
            Some(_) => Belongs::Excluded,
        })
    }

    /// Writes the key of an ordered index; the column whose value was cut off, which is the last one then.
    fn write_order_key<'a>(
        &self,
        plan: &'a KeyPlan,
        order: &OrderKey,
        key: &[u8],
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<Option<&'a KeyStep>> {
        let mut values: Vec<Option<Vec<u8>>> = Vec::with_capacity(plan.steps.len());
        let mut rest = key;
        let mut cut = None;
        for step in &plan.steps {
            if rest.is_empty() {
                break;
            }
            let mut value = Vec::new();
            match self.take_value(step, &mut rest, server, &mut value)? {
                Taken::Null => values.push(None),
                Taken::Whole => values.push(Some(value)),
                Taken::Cut => {
                    values.push(Some(value));
                    cut = Some(step);
                    break;
                }
            }
        }
        let slices: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        order.write_values(&slices, out).map_err(|error| {
            Failure::new(ha::INTERNAL_ERROR, format!("a key does not fit its index: {error:?}"))
        })?;
        Ok(cut)
    }

    /// Takes one column's value off a key of the server, as rows have it.
    fn take_value(
        &self,
        step: &KeyStep,
        rest: &mut &[u8],
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<Taken> {
        let short = || Failure::new(ha::INTERNAL_ERROR, "a key ends within a column");
        let mut bytes = *rest;
        let mut is_null = false;
        if step.is_nullable {
            let (null, after) = bytes.split_first().ok_or_else(short)?;
            is_null = *null != 0;
            bytes = after;
        }
        let mut length = step.bytes;
        if step.has_length {
            let (count, after) = bytes.split_first_chunk::<2>().ok_or_else(short)?;
            length = usize::from(u16::from_le_bytes(*count)).min(step.bytes);
            bytes = after;
        }
        let (value, after) = bytes.split_at_checked(step.bytes).ok_or_else(short)?;
        *rest = after;
        if is_null {
            return Ok(Taken::Null);
        }
        let value = in_row(step.form, &value[..length]);
        if let Some(room) = step.sort_bytes {
            let is_whole = server.sort_key_within(self.collations[step.column], value, room, out);
            return Ok(if is_whole { Taken::Whole } else { Taken::Cut });
        }
        out.resize(value.len(), 0);
        put_fixed(if step.is_variable { Form::Same } else { step.form }, value, out);
        Ok(Taken::Whole)
    }

    /// Appends the primary key of a record.
    ///
    /// # Safety
    /// `record` is a record of this table.
    ///
    /// # Errors
    /// If a sort key is too long.
    pub unsafe fn key_of_record(&self, record: &[u8], server: &Server, out: &mut Vec<u8>) -> Result<()> {
        for part in &self.key {
            // SAFETY: as the caller promises.
            let value = unsafe { self.value(&self.steps[part.column], record)? }.unwrap_or_default();
            self.put_key_value(part, value, server, out)?;
        }
        Ok(())
    }

    /// Appends the whole unique key that the server gives in its own form: as rows have it if it is the primary key, else
    /// as the hidden table of the unique index has it.
    ///
    /// # Errors
    /// `WRONG_COMMAND` if it is not a whole key, `KEY_NOT_FOUND` if there can be no such row.
    pub fn key_of_server(&self, key: usize, value: &[u8], server: &Server, out: &mut Vec<u8>) -> Result<()> {
        let short = || Failure::new(ha::WRONG_COMMAND, "only whole unique keys can be looked up");
        let plan = self.keys.get(key).filter(|plan| plan.is_unique).ok_or_else(short)?;
        let mut rest = value;
        for part in &plan.steps {
            if part.is_nullable {
                let (is_null, after) = rest.split_first().ok_or_else(short)?;
                rest = after;
                if *is_null != 0 {
                    return Err(Failure::new(ha::KEY_NOT_FOUND, "no unique index has keys with NULL"));
                }
            }
            let mut length = part.bytes;
            if part.has_length {
                let (bytes, after) = rest.split_first_chunk::<2>().ok_or_else(short)?;
                length = usize::from(u16::from_le_bytes(*bytes)).min(part.bytes);
                rest = after;
            }
            if rest.len() < part.bytes {
                return Err(short());
            }
            self.put_key_value(part, &rest[..length], server, out).map_err(|failure| {
                match failure.number {
                    ha::INDEX_COLUMN_TOO_LONG => Failure::new(ha::KEY_NOT_FOUND, failure.text),
                    _ => failure,
                }
            })?;
            rest = &rest[part.bytes..];
        }
        if rest.is_empty() { Ok(()) } else { Err(short()) }
    }

    fn put_key_value(&self, part: &KeyStep, value: &[u8], server: &Server, out: &mut Vec<u8>) -> Result<()> {
        let value = in_row(part.form, value);
        if let Some(room) = part.sort_bytes {
            let start = out.len();
            out.extend_from_slice(&[0, 0]);
            server.sort_key(self.collations[part.column], value, room, out)?;
            let length = (out.len() - start - 2) as u16;
            out[start..start + 2].copy_from_slice(&length.to_le_bytes());
        } else if part.is_variable {
            out.extend_from_slice(&(value.len() as u16).to_le_bytes());
            out.extend_from_slice(value);
        } else {
            let start = out.len();
            out.resize(start + value.len(), 0);
            put_fixed(part.form, value, &mut out[start..]);
        }
        Ok(())
    }

    /// A value in the server's form as rows have it; `None` if it does not fit the column.
    pub fn stored_value(&self, place: usize, value: &[u8]) -> Option<Vec<u8>> {
        let step = self.steps.get(place)?;
        match step.form {
            Form::Same | Form::Reversed => {
                let mut stored = vec![0; step.bytes];
                if value.len() != step.bytes {
                    return None;
                }
                put_fixed(step.form, value, &mut stored);
                Some(stored)
            }
            Form::Varying(_) | Form::Long(_) | Form::Padded => {
                (value.len() <= step.bytes).then(|| in_row(step.form, value).to_vec())
            }
        }
    }
}

fn sort_room(definition: &TableDefinition, id: ColumnId) -> usize {
    match definition.columns[usize::from(id.0)].column_type.kind() {
        vinga_base::schema::Kind::VarBytes(max) => usize::from(max),
        fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
    }
}

/// What of a value of the server rows have.
fn in_row(form: Form, value: &[u8]) -> &[u8] {
    if form == Form::Padded { without_padding(value) } else { value }
}

/// A value without the spaces behind it: eight at a time, as most of a column may be spaces.
fn without_padding(value: &[u8]) -> &[u8] {
    let mut rest = value;
    while let Some((before, b"        ")) = rest.split_last_chunk::<8>() {
        rest = before;
    }
    while let Some((b' ', before)) = rest.split_last() {
        rest = before;
    }
    rest
}

fn put_fixed(form: Form, value: &[u8], out: &mut [u8]) {
    if form == Form::Reversed {
        for (to, from) in out.iter_mut().zip(value.iter().rev()) {
            *to = *from;
        }
    } else {
        out.copy_from_slice(value);
    }
}

/// A length of 1 to 4 bytes, and where what follows it begins.
fn read_length(record: &[u8], offset: usize, length_bytes: u8) -> (usize, usize) {
    let mut wide = [0; 4];
    let count = usize::from(length_bytes);
    wide[..count].copy_from_slice(&record[offset..offset + count]);
    (u32::from_le_bytes(wide) as usize, offset + count)
}

fn row_too_long() -> Failure {
    Failure::new(ha::ROW_TOO_BIG, format!("the row is longer than {ROW_BYTES_MAX} bytes"))
}
