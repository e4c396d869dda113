//! Tables and rows: what is committed, and what each open transaction has changed.

use std::collections::BTreeMap;
use vinga_base::TablePartitions;
use vinga_base::hash::KeyHash;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::TableDefinition;
use vinga_program::filter::{Program, codec};
use vinga_program::update_program::{UpdateErrorKind, UpdateProgram};
use vinga_wire::ErrorCode;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::operation::{Operation, OperationKind};

/// One table.
pub struct Table {
    pub record: TableRecord,
    pub layout: RowLayout,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A transaction's own changes: by table and key, the new row or that it is gone; with the operation's number.
pub type Changes = Vec<(u32, u32, Vec<u8>, Option<Vec<u8>>)>;

/// The tables of a scripted node.
#[derive(Default)]
pub struct Store {
    tables: BTreeMap<u32, Table>,
    next_table: u32,
    next_version: u64,
}

impl Store {
    /// Makes a table that lies in the first so many partitions.
    pub fn create(
        &mut self,
        definition: TableDefinition,
        partitions: u16,
    ) -> Result<TableRecord, (ErrorCode, String)> {
        definition.check().map_err(|error| (ErrorCode::BadTableDefinition, error.text))?;
        if self.by_name(&definition.name).is_some() {
            return Err((ErrorCode::TableExists, definition.name));
        }
        self.next_table += 1;
        self.next_version += 1;
        let partitions = TablePartitions::first(partitions);
        let record = TableRecord::new(self.next_table, self.next_version, partitions, definition);
        let layout = RowLayout::new(&record.definition);
        self.tables.insert(record.table, Table { record: record.clone(), layout, rows: BTreeMap::new() });
        Ok(record)
    }

    pub fn drop_table(&mut self, name: &str) -> Result<(), (ErrorCode, String)> {
        let id = self.by_name(name).ok_or((ErrorCode::NoSuchTable, name.to_string()))?.record.table;
        self.tables.remove(&id);
        Ok(())
    }

    pub fn by_name(&self, name: &str) -> Option<&Table> {
        self.tables.values().find(|table| table.record.definition.name == name)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// A table in the version that the requester knows.
    pub fn table(&self, id: u32, version: u64) -> Result<&Table, ErrorCode> {
        let table = self.tables.get(&id).ok_or(ErrorCode::NoSuchTable)?;
        if table.record.version == version { Ok(table) } else { Err(ErrorCode::StaleTable) }
    }

    pub fn commit(&mut self, changes: Changes) {
        for (_, table, key, row) in changes {
            let Some(table) = self.tables.get_mut(&table) else { continue };
            match row {
                Some(row) => table.rows.insert(key, row),
                None => table.rows.remove(&key),
            };
        }
    }

    /// The key of an operation: given, or in its image.
    pub fn key(table: &Table, operation: &Operation<'_>) -> Result<Vec<u8>, ErrorCode> {
        match operation.kind().ok_or(ErrorCode::MalformedSignal)? {
            OperationKind::Insert | OperationKind::Write => {
                table.layout.check_image(operation.body).map_err(|_| ErrorCode::BadRow)?;
                let (fixed, variable) = table.layout.split(operation.body);
                let mut key = Vec::new();
                table.layout.write_key(fixed, variable, &mut key);
                Ok(key)
            }
            _ => {
                table.layout.check_key(operation.key).map_err(|_| ErrorCode::BadKey)?;
                Ok(operation.key.to_vec())
            }
        }
    }

    /// Runs one operation of a transaction; a read gives its row.
    pub fn run(
        &self,
        changes: &mut Changes,
        operation: &Operation<'_>,
    ) -> Result<Option<Option<Vec<u8>>>, ErrorCode> {
        let head = operation.head;
        let table = self.table(head.table.get(), head.version.get())?;
        let filter = filter(table, operation.filter)?;
        let key = Self::key(table, operation)?;
        let number = head.number.get();
        let present = row(table, changes, u32::MAX, &key);
        if let (Some(filter), Some(image)) = (&filter, present)
            && !passes(table, filter, image)
        {
            return Err(ErrorCode::ConditionFailed);
        }
        let kind = operation.kind().ok_or(ErrorCode::MalformedSignal)?;
        if kind.is_read() {
            let columns: Vec<u16> = operation.selection.iter().map(|c| c.get()).collect();
            let all = head.columns.get() == vinga_wire::operation::ALL_COLUMNS;
            return Ok(Some(present.map(|image| select(table, image, (!all).then_some(&columns)))));
        }
        let updated = match present {
            Some(image) if kind == OperationKind::Update => Some(update(table, image, operation.body)?),
            Some(_) | None => None,
        };
        let exists = present.is_some();
        let mut change = |row: Option<&[u8]>| {
            changes.push((number, head.table.get(), key.clone(), row.map(<[u8]>::to_vec)));
            Ok(None)
        };
        match kind {
            OperationKind::Insert if exists => Err(ErrorCode::DuplicateKey),
            OperationKind::Insert | OperationKind::Write => change(Some(operation.body)),
            OperationKind::Update | OperationKind::Delete if !exists => Err(ErrorCode::NoSuchRow),
            OperationKind::Update => change(updated.as_deref()),
            OperationKind::Delete => change(None),
            _ => Ok(None),
        }
    }
}

/// A row as a transaction sees it: with its own changes that have lower operation numbers.
pub fn row<'a>(table: &'a Table, changes: &'a Changes, below: u32, key: &[u8]) -> Option<&'a [u8]> {
    let own = changes
        .iter()
        .rev()
        .find(|(number, id, k, _)| *number < below && *id == table.record.table && k == key);
    match own {
        Some((_, _, _, row)) => row.as_deref(),
        None => table.rows.get(key).map(Vec::as_slice),
    }
}

/// A filter, if there is one.
pub fn filter(table: &Table, bytes: &[u8]) -> Result<Option<Program>, ErrorCode> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let expression = codec::decode(bytes).map_err(|_| ErrorCode::BadProgram)?;
    Program::new(&expression, &table.layout).map(Some).map_err(|_| ErrorCode::BadProgram)
}

pub fn passes(table: &Table, filter: &Program, image: &[u8]) -> bool {
    let (fixed, variable) = table.layout.split(image);
    filter.matches(&table.layout, fixed, variable)
}

fn update(table: &Table, image: &[u8], program: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    let program = UpdateProgram::check(program, &table.layout).map_err(|_| ErrorCode::BadProgram)?;
    let (fixed, variable) = table.layout.split(image);
    let mut out = Vec::new();
    match program.apply(&table.layout, fixed, variable, &mut out).map_err(|error| error.kind) {
        Ok(()) => Ok(out),
        Err(UpdateErrorKind::ConditionFailed(_)) => Err(ErrorCode::ConditionFailed),
        Err(UpdateErrorKind::Overflow(_)) => Err(ErrorCode::NumericOverflow),
        Err(UpdateErrorKind::RowTooLong) => Err(ErrorCode::RowTooLong),
        Err(_) => Err(ErrorCode::BadProgram),
    }
}

/// The whole image, or some of its columns.
pub fn select(table: &Table, image: &[u8], columns: Option<&Vec<u16>>) -> Vec<u8> {
    match columns {
        None => image.to_vec(),
        Some(columns) => {
            let ids: Vec<_> = columns.iter().map(|&c| vinga_base::ColumnId(c)).collect();
            let (fixed, variable) = table.layout.split(image);
            let mut out = Vec::new();
            table.layout.write_selection(&ids, fixed, variable, &mut out);
            out
        }
    }
}

/// The partition of a key among so many.
pub fn partition(key: &[u8], partitions: u16) -> u16 {
    TablePartitions::first(partitions).of(KeyHash::of(key)).0
}
