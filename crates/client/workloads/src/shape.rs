//! The tables of workloads: what their rows hold, as numbers and as bytes.
//!
//! A row is a key and a [`Value`]: a number that says who wrote the row (each write of a run has its own), and a count
//! that update programs add to. Tables of the shape *noted* have a column of variable size besides, whose content
//! follows from the value, so that a row put together from two versions is noticed. Keys are numbers, or text that
//! holds the number.

use crate::step::{Body, Change, Condition};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{
    ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
};
use vinga_program::comparison::Comparison;
use vinga_program::filter::codec;
use vinga_program::filter::tree::{Constant, column};
use vinga_program::update_program::{self, Action, Instruction};

/// A row without its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value {
    /// Who wrote it; unique among all writes of a run.
    pub value: u64,
    /// What update programs add to.
    pub count: u64,
}

/// How keys look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// An unsigned integer of 8 bytes.
    Number,
    /// Text of variable size.
    Text,
}

/// A table of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    definition: TableDefinition,
    layout: RowLayout,
    key_form: KeyForm,
    noted: bool,
    /// It is a hidden table: a row's key is a count, its value the key of the row that has it.
    holds_places: bool,
    /// It is being filled with rows of another table.
    is_copy: bool,
    /// Its rows are lists that only grow.
    is_list: bool,
}

const ID: ColumnId = ColumnId(0);
const VALUE: ColumnId = ColumnId(1);
const COUNT: ColumnId = ColumnId(2);
const NOTE: ColumnId = ColumnId(3);

/// Bytes of a note, at most.
const NOTE_BYTES_MAX: u16 = 300;

/// The ordered indexes of a table: none of tables of numbers alone, and keys of all sizes, NULL among them, of others.
fn indexes(key_form: KeyForm, noted: bool) -> Vec<IndexDefinition> {
    let of = |id: u16, columns: &[(ColumnId, Direction)]| IndexDefinition {
        id,
        name: format!("index{id}"),
        columns: columns.iter().map(|&(column, direction)| OrderColumn { column, direction }).collect(),
        kind: IndexKind::Ordered,
    };
    let mut indexes = Vec::new();
    if key_form == KeyForm::Text {
        indexes.push(of(2, &[(ID, Direction::Ascending)]));
    }
    if noted {
        indexes.push(of(3, &[(COUNT, Direction::Ascending)]));
        indexes.push(of(4, &[(NOTE, Direction::Ascending), (VALUE, Direction::Descending)]));
    }
    indexes
}

impl Shape {
    /// A table of this name, `database.table`. `noted`: with the column of variable size.
    pub fn new(name: &str, key_form: KeyForm, noted: bool) -> Self {
        let number = ColumnType::Integer { bytes: 8, signed: false };
        let of = |name: &str, column_type, nullable| ColumnDefinition {
            name: name.to_string(),
            column_type,
            nullable,
        };
        let id = match key_form {
            KeyForm::Number => number,
            KeyForm::Text => ColumnType::VarBinary { bytes_max: 40 },
        };
        let mut columns = vec![of("id", id, false), of("value", number, false), of("count", number, false)];
        if noted {
            columns.push(of("note", ColumnType::VarBinary { bytes_max: NOTE_BYTES_MAX }, true));
        }
        let definition = TableDefinition {
            name: name.to_string(),
            columns,
            primary_key: vec![ID],
            indexes: indexes(key_form, noted),
            ..TableDefinition::default()
        };
        let layout = RowLayout::new(&definition);
        Shape { definition, layout, key_form, noted, holds_places: false, is_copy: false, is_list: false }
    }

    /// The same with backups that answer reads.
    #[must_use]
    pub fn read_backup(mut self) -> Self {
        self.definition.read_backup = true;
        self
    }

    /// The same with unique indexes: on the count, and if it is noted on the note.
    #[must_use]
    pub fn unique(mut self) -> Self {
        let columns = [(10, COUNT), (11, NOTE)].into_iter().take(1 + usize::from(self.noted));
        self.definition.indexes.extend(columns.map(|(id, column)| IndexDefinition {
            id,
            name: format!("unique{id}"),
            columns: vec![OrderColumn { column, direction: Direction::Ascending }],
            kind: IndexKind::Unique,
        }));
        self
    }

    /// The same, neither logged nor checkpointed.
    #[must_use]
    pub fn unlogged(mut self) -> Self {
        self.definition.durability = Durability::NotLogged;
        self
    }

    /// The same; whoever changes a row waits for the disk.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.definition.durability = Durability::Disk;
        self
    }

    /// Whether its rows are gone when the cluster has died.
    pub fn is_unlogged(&self) -> bool {
        self.definition.durability == Durability::NotLogged
    }

    /// Whether whoever changes a row waits for the disk.
    pub fn is_durable(&self) -> bool {
        self.definition.durability == Durability::Disk
    }

    /// The hidden table of the unique index on the count, of a table whose keys are numbers. It is read only, and comes
    /// and goes with its table; in a workload's tables it stands behind it.
    ///
    /// # Panics
    /// If there is no such index.
    #[must_use]
    pub fn places(&self) -> Self {
        let is_it =
            |index: &&IndexDefinition| index.kind == IndexKind::Unique && index.column_ids().eq([COUNT]);
        let index = self.definition.indexes.iter().find(is_it).expect("there is such an index");
        let definition = self.definition.unique_table(0, index);
        let layout = RowLayout::new(&definition);
        let (key_form, noted) = (KeyForm::Number, false);
        Shape { definition, layout, key_form, noted, holds_places: true, is_copy: false, is_list: false }
    }

    /// The same as the name of copies until they are complete: nobody but who makes one writes or reads its rows.
    #[must_use]
    pub fn copy(mut self) -> Self {
        self.is_copy = true;
        self
    }

    /// Whether it is such a name.
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// The same with rows that are lists: the value is the last element, the count its position
    /// ([`crate::list_append`]).
    #[must_use]
    pub fn list(mut self) -> Self {
        self.is_list = true;
        self
    }

    /// Whether its rows are lists.
    pub fn is_list(&self) -> bool {
        self.is_list
    }

    /// Whether histories say what its rows are: those of hidden tables and of incomplete copies follow from others.
    pub fn is_recorded(&self) -> bool {
        !self.holds_places && !self.is_copy
    }

    /// Whether it is such a table.
    pub fn holds_places(&self) -> bool {
        self.holds_places
    }

    /// What the table is created as.
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// `database.table`.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Where columns lie.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The ordered index by count; `None` if the table has none.
    pub fn count_index(&self) -> Option<u16> {
        let is_it = |index: &&IndexDefinition| index.column_ids().eq([COUNT]);
        self.definition.indexes.iter().find(is_it).map(|index| index.id)
    }

    /// The key of a count in that index.
    pub fn count_key(count: u64) -> [u8; 8] {
        count.to_be_bytes()
    }

    /// The bytes of a key column.
    fn key_column(&self, key: u64) -> Vec<u8> {
        match self.key_form {
            KeyForm::Number => key.to_le_bytes().to_vec(),
            // The length of the text varies, as keys of users do.
            KeyForm::Text => format!("{key}{}", &"-abcdefghijklmnop"[..1 + key as usize % 16]).into_bytes(),
        }
    }

    /// The encoded key.
    pub fn key(&self, key: u64) -> Vec<u8> {
        let column = self.key_column(key);
        match self.key_form {
            KeyForm::Number => column,
            KeyForm::Text => [&(column.len() as u16).to_le_bytes(), column.as_slice()].concat(),
        }
    }

    /// The hash of a key, which says where its row is.
    pub fn key_hash(&self, key: u64) -> KeyHash {
        KeyHash::of(&self.key(key))
    }

    /// The image of a row.
    pub fn image(&self, key: u64, value: Value) -> Vec<u8> {
        let note = note(value.value);
        let (id, number, count) =
            (self.key_column(key), value.value.to_le_bytes(), value.count.to_le_bytes());
        let mut values: Vec<Option<&[u8]>> = vec![Some(&id), Some(&number), Some(&count)];
        if self.noted {
            values.push(note.as_deref());
        }
        let mut image = Vec::new();
        self.layout.build_image(&values, &mut image).expect("values fit their columns");
        image
    }

    /// Reads a whole image.
    ///
    /// # Errors
    /// A sentence that says what is wrong: a cluster that gives such a row has damaged it.
    pub fn read_image(&self, image: &[u8]) -> Result<(u64, Value), String> {
        self.layout.check_image(image).map_err(|error| format!("the image is no row: {error:?}"))?;
        let (fixed, variable) = self.layout.split(image);
        let columns = self.layout.columns();
        let values = columns.iter().map(|column| {
            (!self.layout.is_null(fixed, column)).then(|| self.layout.bytes(fixed, variable, column))
        });
        self.read_values(values.collect())
    }

    /// Reads a whole image, or what [`Shape::selection`] selects.
    ///
    /// # Errors
    /// As [`Shape::read_image`].
    pub fn read(&self, selects: bool, bytes: &[u8]) -> Result<(u64, Value), String> {
        if selects { self.read_selection(bytes) } else { self.read_image(bytes) }
    }

    /// Which columns are asked for: all, or the minimum. Reads with a selection take another way through a data node.
    pub fn selection(&self) -> &'static [ColumnId] {
        &[COUNT, ID, VALUE]
    }

    /// Reads a row of [`Shape::selection`].
    ///
    /// # Errors
    /// As [`Shape::read_image`].
    pub fn read_selection(&self, bytes: &[u8]) -> Result<(u64, Value), String> {
        let values = self
            .layout
            .read_selection(self.selection(), bytes)
            .map_err(|error| format!("the bytes are no selection: {error:?}"))?;
        let [count, id, value] = values[..] else { return Err("a selection of three columns".to_string()) };
        let key = self.read_key(id)?;
        Ok((key, Value { value: read_number(value)?, count: read_number(count)? }))
    }

    /// The column of the index by count alone: all of it stands in the index.
    pub fn count_alone(&self) -> &'static [ColumnId] {
        &[COUNT]
    }

    /// Reads a row of [`Shape::count_alone`].
    ///
    /// # Errors
    /// As [`Shape::read_image`].
    pub fn read_count_alone(&self, bytes: &[u8]) -> Result<u64, String> {
        let values = self
            .layout
            .read_selection(self.count_alone(), bytes)
            .map_err(|error| format!("the bytes are no selection: {error:?}"))?;
        let [count] = values[..] else { return Err("a selection of one column".to_string()) };
        read_number(count)
    }

    fn read_values(&self, values: Vec<Option<&[u8]>>) -> Result<(u64, Value), String> {
        let key = self.read_key(values[0])?;
        if self.holds_places {
            return Ok((key, Value { value: read_number(values[1])?, count: key }));
        }
        let value = Value { value: read_number(values[1])?, count: read_number(values[2])? };
        if self.noted && values[3] != note(value.value).as_deref() {
            return Err(format!("row {key} has value {:#x} and the note of another version", value.value));
        }
        Ok((key, value))
    }

    fn read_key(&self, column: Option<&[u8]>) -> Result<u64, String> {
        let bytes = column.ok_or("a key is never NULL")?;
        let key = match self.key_form {
            KeyForm::Number => read_number(Some(bytes))?,
            KeyForm::Text => core::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.split('-').next()?.parse().ok())
                .ok_or_else(|| format!("key {bytes:?} is none of ours"))?,
        };
        if self.key_column(key) == bytes { Ok(key) } else { Err(format!("key {bytes:?} is none of ours")) }
    }

    /// What an operation on a row carries: an image, a program, the number of a read.
    pub fn body(&self, key: u64, body: &Body) -> Vec<u8> {
        match body {
            Body::None => Vec::new(),
            Body::Row(value) => self.image(key, *value),
            Body::Change(change) => self.program(change),
            Body::Unlock(number) => number.to_le_bytes().to_vec(),
        }
    }

    fn program(&self, change: &Change) -> Vec<u8> {
        let expect = change.expect.map(u64::to_le_bytes);
        let set = change.set.map(u64::to_le_bytes);
        let (add, subtract) = (change.add.to_le_bytes(), change.subtract.to_le_bytes());
        let note = change.set.filter(|_| self.noted).map(note);
        let mut instructions = Vec::new();
        if let Some(expect) = &expect {
            let action = Action::Check(Comparison::Equal, expect);
            instructions.push(Instruction { column: VALUE, action });
        }
        if let Some(set) = &set {
            instructions.push(Instruction { column: VALUE, action: Action::Set(set) });
        }
        if change.add != 0 {
            instructions.push(Instruction { column: COUNT, action: Action::Add(&add) });
        }
        if change.subtract != 0 {
            instructions.push(Instruction { column: COUNT, action: Action::Subtract(&subtract) });
        }
        if let Some(note) = &note {
            let action = note.as_deref().map_or(Action::SetNull, Action::Set);
            instructions.push(Instruction { column: NOTE, action });
        }
        let mut program = Vec::new();
        update_program::write(&mut instructions, &self.layout, &mut program)
            .expect("the program fits the table");
        program
    }

    /// The filter program of a condition; empty for none.
    pub fn filter(&self, condition: Option<&Condition>) -> Vec<u8> {
        let Some(condition) = condition else { return Vec::new() };
        let expression = match *condition {
            Condition::ValueIs(value) => column(VALUE.0).equal(Constant::Unsigned(value)),
            Condition::CountBelow(count) => column(COUNT.0).less_than(Constant::Unsigned(count)),
            Condition::CountIs(count) => column(COUNT.0).equal(Constant::Unsigned(count)),
            Condition::CountAtLeast(count) => column(COUNT.0).at_least(Constant::Unsigned(count)),
        };
        let mut filter = Vec::new();
        codec::encode(&expression, &[], &mut filter).expect("a small filter");
        filter
    }
}

/// The note that belongs to a value: NULL, or bytes of a length of its own.
fn note(value: u64) -> Option<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(value);
    if random.u8(..) < 30 {
        return None;
    }
    let length = if random.bool() { random.u16(..20) } else { random.u16(..=NOTE_BYTES_MAX) };
    Some((0..length).map(|_| random.u8(..)).collect())
}

fn read_number(column: Option<&[u8]>) -> Result<u64, String> {
    let bytes = column.and_then(|bytes| bytes.try_into().ok());
    Ok(u64::from_le_bytes(bytes.ok_or("a number column has 8 bytes and is never NULL")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_program::update_program::UpdateProgram;

    #[test]
    fn rows_are_read_back() {
        for (key_form, noted) in
            [(KeyForm::Number, false), (KeyForm::Number, true), (KeyForm::Text, false), (KeyForm::Text, true)]
        {
            let shape = Shape::new("test.rows", key_form, noted);
            shape.definition().check().unwrap();
            for key in 0..200 {
                let value = Value { value: key * 77, count: key };
                let image = shape.image(key, value);
                assert_eq!(shape.read_image(&image), Ok((key, value)));
                shape.layout().check_key(&shape.key(key)).unwrap();
                assert_eq!(shape.layout().key_of(&image), shape.key(key));
                let (fixed, variable) = shape.layout().split(&image);
                let mut selected = Vec::new();
                shape.layout().write_selection(shape.selection(), fixed, variable, &mut selected);
                assert_eq!(shape.read_selection(&selected), Ok((key, value)));
                let change = Change { expect: Some(value.value), set: Some(5), add: 3, subtract: 0 };
                let program = shape.body(key, &Body::Change(change));
                let program = UpdateProgram::check(&program, shape.layout()).unwrap();
                let mut after = Vec::new();
                program.apply(shape.layout(), fixed, variable, &mut after).unwrap();
                assert_eq!(shape.read_image(&after), Ok((key, Value { value: 5, count: key + 3 })));
            }
        }
    }

    #[test]
    fn a_torn_row_is_noticed() {
        let shape = Shape::new("test.rows", KeyForm::Number, true);
        let mut image = shape.image(1, Value { value: 1, count: 0 });
        image[8] = 2;
        assert!(shape.read_image(&image).is_err());
    }
}
