//! Converts keys of the server to keys of the data nodes: complete ones, and the ends of ranges.

use super::records::{in_row, put_fixed};
use super::{Belongs, End, KeyPlan, KeyStep, Plan, Taken};
use crate::definition::Form;
use crate::failure::{Failure, Result, ha};
use crate::server::Server;
use vinga::{ColumnId, KeyRange, OrderKey};

impl Plan {
    /// How many columns of a key these bytes contain, and whether they are a complete unique key without NULL.
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

    /// The value of the first column of a part of a key, if it is an integer.
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

    /// Writes the key of an end of a range; returns whether keys that begin with it belong to the range. A value whose
    /// sort key is longer than any in the index is truncated: keys that begin with the truncated value are less than
    /// the value.
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

    /// Writes a key of an ordered index; returns the column whose value was truncated, which is the last one written.
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

    /// Takes one column's value off a key of the server, in the form in which rows contain it.
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
            let is_whole = server.sort_key_within(self.collations[step.column], value, room, out)?;
            return Ok(if is_whole { Taken::Whole } else { Taken::Cut });
        }
        // As with sort keys: no row contains a longer value.
        let (value, taken) = match value.split_at_checked(step.room) {
            Some((begin, [_, ..])) => (begin, Taken::Cut),
            _ => (value, Taken::Whole),
        };
        out.resize(value.len(), 0);
        put_fixed(if step.is_variable { Form::Same } else { step.form }, value, out);
        Ok(taken)
    }

    /// Passes the unique keys of a row to `take`, including the primary one: the number of the server's key (the number
    /// of keys for a hidden primary key), and bytes that are equal if and only if the values are. Keys that contain
    /// NULL are omitted.
    pub fn unique_keys(&self, image: &[u8], mut take: impl FnMut(usize, &[u8])) {
        let primary = self.primary.min(self.keys.len());
        take(primary, &self.layout.key_of(image));
        let (fixed, variable) = self.layout.split(image);
        let mut bytes = Vec::new();
        for (at, key) in self.keys.iter().enumerate().filter(|(_, key)| key.unique.is_some()) {
            bytes.clear();
            let mut has_null = false;
            for id in &key.columns {
                let column = &self.layout.columns()[usize::from(id.0)];
                has_null |= self.layout.is_null(fixed, column);
                let value = self.layout.bytes(fixed, variable, column);
                bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
                bytes.extend_from_slice(value);
            }
            if !has_null {
                take(at, &bytes);
            }
        }
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

    /// Appends a complete unique key, given in the server's form: in the form of rows if it is the primary key,
    /// otherwise in the form of the unique index's hidden table.
    ///
    /// # Errors
    /// `WRONG_COMMAND` if it is not a complete key, `KEY_NOT_FOUND` if no such row can exist.
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
            if value.len() > part.room {
                return Err(Failure::new(ha::INDEX_COLUMN_TOO_LONG, "no row has so long a value"));
            }
            out.extend_from_slice(&(value.len() as u16).to_le_bytes());
            out.extend_from_slice(value);
        } else {
            let start = out.len();
            out.resize(start + value.len(), 0);
            put_fixed(part.form, value, &mut out[start..]);
        }
        Ok(())
    }

    /// The sort key of a value of the server's column, truncated where no row can have more, and whether it is
    /// complete; `None` if rows have no sort key for it, or if there is no memory for it.
    pub fn sort_key_of(&self, place: usize, value: &[u8], server: &Server) -> Option<(Vec<u8>, bool)> {
        let (_, room) = self.sort_source(place)?;
        let mut key = Vec::new();
        let is_whole = server.sort_key_within(self.collations[place], value, room, &mut key).ok()?;
        Some((key, is_whole))
    }

    /// A value in the server's form, converted to that of rows; `None` if it does not fit the column.
    pub fn stored_value(&self, place: usize, value: &[u8]) -> Option<Vec<u8>> {
        let step = self.steps.get(place)?;
        match step.form {
            Form::Same | Form::Float | Form::Reversed => {
                let mut stored = vec![0; step.bytes];
                if value.len() != step.bytes {
                    return None;
                }
                put_fixed(step.form, value, &mut stored);
                Some(stored)
            }
            Form::Varying(_) | Form::Long(_) | Form::Padded => {
                (value.len() <= step.bytes.min(step.room)).then(|| in_row(step.form, value).to_vec())
            }
        }
    }
}
