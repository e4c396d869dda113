//! Converts records of the server to rows of the data nodes, and back.

use super::{Plan, Source, Step};
use crate::definition::Form;
use crate::failure::{Failure, Result, ha};
use crate::server::Server;
use std::ops::Range;
use vinga::ColumnId;
use vinga_base::row_layout::Place;
use vinga_base::schema::ROW_BYTES_MAX;

/// A column of a row that gets another value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedColumn {
    /// The column.
    pub id: ColumnId,
    /// The place of the value among the values of all columns; `None` for NULL.
    pub value: Option<Range<usize>>,
}

impl Plan {
    /// The value of a column in a record; `None` if it is NULL.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    pub(super) unsafe fn value<'a>(&self, step: &Step, record: &'a [u8]) -> Result<Option<&'a [u8]>> {
        if step.null.1 != 0 && record[step.null.0] & step.null.1 != 0 {
            return Ok(None);
        }
        match step.form {
            Form::Same | Form::Float | Form::Reversed => {
                Ok(Some(&record[step.offset..step.offset + step.bytes]))
            }
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

    /// Appends the row of a record. `hidden_key` is the primary key of a table that has a hidden one.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If the row or a sort key is too long.
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
                            self.steps[column].check(value)?;
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

    /// Appends the values that columns of the row get when these columns of the server change, including sort keys;
    /// returns which columns get which of these bytes, or NULL.
    ///
    /// # Safety
    /// Both are records of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If a sort key is too long.
    pub unsafe fn write_changes(
        &self,
        before: &[u8],
        after: &[u8],
        places: &[u16],
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<Vec<ChangedColumn>> {
        let mut changed = Vec::new();
        for &place in places {
            let place = usize::from(place);
            let step = &self.steps[place];
            // SAFETY: as the caller promises.
            let (was, is) = unsafe { (self.value(step, before)?, self.value(step, after)?) };
            if was == is {
                continue;
            }
            changed.push(ChangedColumn { id: step.id, value: put_changed(step, is, out)? });
            let Some((id, room)) = self.sort_keys[place] else { continue };
            let mut key_of = |value: Option<&[u8]>| {
                let begin = out.len();
                let Some(value) = value else { return Ok(None) };
                server.sort_key(self.collations[place], value, room, out)?;
                Ok(Some(begin..out.len()))
            };
            // The sort keys of an existing row are not too long.
            let (old, new) = (key_of(was)?, key_of(is)?);
            if old.map(|old| &out[old]) != new.clone().map(|new| &out[new]) {
                changed.push(ChangedColumn { id, value: new });
            }
        }
        Ok(changed)
    }

    /// Whether two records differ in any of these columns, by their places.
    ///
    /// # Safety
    /// Both are records of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If a value is longer than its column.
    pub unsafe fn differs(&self, before: &[u8], after: &[u8], places: &[u16]) -> Result<bool> {
        for &place in places {
            let step = &self.steps[usize::from(place)];
            // SAFETY: as the caller promises.
            if unsafe { self.value(step, before)? != self.value(step, after)? } {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The values of columns (by their places) in a record, with the sort keys of texts; the bytes are appended to
    /// `out`.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If a value or a sort key is too long.
    pub unsafe fn write_values(
        &self,
        record: &[u8],
        places: &[u16],
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<Vec<ChangedColumn>> {
        let mut values = Vec::with_capacity(places.len());
        for &place in places {
            let place = usize::from(place);
            let step = &self.steps[place];
            // SAFETY: as the caller promises.
            let value = unsafe { self.value(step, record)? };
            values.push(ChangedColumn { id: step.id, value: put_changed(step, value, out)? });
            if let Some((id, room)) = self.sort_keys[place] {
                let value = match value {
                    Some(value) => {
                        let begin = out.len();
                        server.sort_key(self.collations[place], value, room, out)?;
                        Some(begin..out.len())
                    }
                    None => None,
                };
                values.push(ChangedColumn { id, value });
            }
        }
        Ok(values)
    }

    /// Fills a NULL value with the bytes of the server's default: it compares records without looking at null bits.
    fn put_default(&self, step: &Step, record: &mut [u8]) {
        let bytes = match step.form {
            Form::Same | Form::Float | Form::Reversed | Form::Padded => step.bytes,
            Form::Varying(length_bytes) => {
                let (length, begin) = read_length(&self.default_record, step.offset, length_bytes);
                begin + length.min(step.bytes) - step.offset
            }
            // A long default is not stored in the record.
            Form::Long(length_bytes) => {
                record[step.offset..step.offset + usize::from(length_bytes)].fill(0);
                return;
            }
        };
        let place = step.offset..step.offset + bytes;
        record[place.clone()].copy_from_slice(&self.default_record[place]);
    }

    /// Puts a NULL into a record.
    ///
    /// # Errors
    /// If the column can't be NULL.
    pub(super) fn put_null(&self, step: &Step, record: &mut [u8]) -> Result<()> {
        if step.null.1 == 0 {
            return Err(Failure::new(ha::INTERNAL_ERROR, "a data node sent NULL for a column that has none"));
        }
        record[step.null.0] |= step.null.1;
        self.put_default(step, record);
        Ok(())
    }

    /// Puts a value into a record. A long one is not copied: the record points to it.
    ///
    /// # Errors
    /// If it is longer than its column.
    #[inline]
    pub(super) fn put_value(&self, step: &Step, value: &[u8], record: &mut [u8]) -> Result<()> {
        if step.null.1 != 0 {
            record[step.null.0] &= !step.null.1;
        }
        if value.len() > step.bytes && !matches!(step.form, Form::Long(_)) {
            return Err(Failure::new(
                ha::INTERNAL_ERROR,
                "a data node sent a value that is longer than its column",
            ));
        }
        let place = &mut record[step.offset..];
        match step.form {
            Form::Same | Form::Float => place[..value.len()].copy_from_slice(value),
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
        Ok(())
    }

    /// Puts a whole row into a record.
    ///
    /// # Errors
    /// If a value is longer than its column, which no data node sends.
    pub fn read_image(&self, image: &[u8], record: &mut [u8]) -> Result<()> {
        if image.len() < self.layout.fixed_bytes() {
            return Err(Failure::new(ha::INTERNAL_ERROR, "a data node sent what is no row of the table"));
        }
        let (fixed, variable) = self.layout.split(image);
        for step in &self.steps {
            if step.null.1 != 0 && self.layout.is_null(fixed, &step.layout) {
                self.put_null(step, record)?;
            } else {
                self.put_value(step, self.layout.bytes(fixed, variable, &step.layout), record)?;
            }
        }
        Ok(())
    }
}

/// The part of a server's value that rows contain.
pub(super) fn in_row(form: Form, value: &[u8]) -> &[u8] {
    if form == Form::Padded { without_padding(value) } else { value }
}

/// A value without trailing spaces: eight at a time, as most of a column may be spaces.
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

/// Puts a value of fixed size into a row or a key.
pub(super) fn put_fixed(form: Form, value: &[u8], out: &mut [u8]) {
    if form == Form::Reversed {
        for (to, from) in out.iter_mut().zip(value.iter().rev()) {
            *to = *from;
        }
    } else {
        out.copy_from_slice(value);
        // The server turns numbers that are too small for a FLOAT into a negative zero; keys are compared by their
        // bytes.
        if form == Form::Float
            && let Some((0x80, rest)) = value.split_last()
            && rest.iter().all(|&byte| byte == 0)
        {
            out.fill(0);
        }
    }
}

/// Appends a column's new value in the form of update programs; returns its place, `None` for NULL.
fn put_changed(step: &Step, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<Option<Range<usize>>> {
    let Some(value) = value else { return Ok(None) };
    step.check(value)?;
    let begin = out.len();
    out.resize(begin + value.len(), 0);
    put_fixed(step.form, value, &mut out[begin..]);
    if out.len() > ROW_BYTES_MAX { Err(row_too_long()) } else { Ok(Some(begin..out.len())) }
}

/// A length of 1 to 4 bytes, and the offset of the bytes after it.
fn read_length(record: &[u8], offset: usize, length_bytes: u8) -> (usize, usize) {
    let mut wide = [0; 4];
    let count = usize::from(length_bytes);
    wide[..count].copy_from_slice(&record[offset..offset + count]);
    (u32::from_le_bytes(wide) as usize, offset + count)
}

fn row_too_long() -> Failure {
    Failure::new(ha::ROW_TOO_BIG, format!("the row is longer than {ROW_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_zero() {
        let put = |form, value: &[u8]| {
            let mut out = vec![1; value.len()];
            put_fixed(form, value, &mut out);
            out
        };
        assert_eq!(put(Form::Float, &(-0.0_f32).to_le_bytes()), [0; 4]);
        assert_eq!(put(Form::Float, &(-0.0_f64).to_le_bytes()), [0; 8]);
        for number in [-1.5_f64, -f64::from_bits(1), f64::MIN, 0.0] {
            assert_eq!(put(Form::Float, &number.to_le_bytes()), number.to_le_bytes());
        }
        assert_eq!(put(Form::Same, &i32::MIN.to_le_bytes()), i32::MIN.to_le_bytes());
    }
}
