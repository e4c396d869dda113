//! The data that is passed between the halves of the plugin: structs, texts, records and keys, as `vinga_engine.h`
//! declares them.
//!
//! Only the C side creates the pointers in these; they are valid during the call to which they are passed.

use crate::auto_increment;
use crate::cursor::{self, Candidates, TransactionShare};
use crate::definition::{self, Description, Form};
use crate::failure::{Failure, Result};
use crate::plan::End;
use crate::server::Collation;
use crate::table::OpenTable;
use std::ffi::c_void;
use std::ptr::NonNull;
use vinga::sql_rules::{ColumnRules, SortKeys, Values};
use vinga::{ColumnType, Lock};

/// Bytes that this struct does not own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    bytes: *const u8,
    length: usize,
}

impl Slice {
    /// Refers to bytes that outlive its use.
    pub fn of(bytes: &[u8]) -> Self {
        Slice { bytes: bytes.as_ptr(), length: bytes.len() }
    }

    /// The bytes; empty if there are none.
    pub fn get(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the C side made the pointer, and it is valid during the call (see the top of this file).
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }

    /// The bytes as a text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.get()).into_owned()
    }
}

/// A record of the server, to be read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RecordIn(*const u8);

impl RecordIn {
    /// The record's bytes. It must be a record of this table.
    pub fn of<'a>(self, table: &OpenTable) -> &'a [u8] {
        // SAFETY: the C side passes records of the table that it passes with them.
        unsafe { std::slice::from_raw_parts(self.0, table.plan.record_bytes()) }
    }
}

/// A record of the server, to be written.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RecordOut(NonNull<u8>);

impl RecordOut {
    /// The record's bytes. It must be a record of this table.
    pub fn of<'a>(self, table: &OpenTable) -> &'a mut [u8] {
        // SAFETY: as above, and nothing else uses it during the call.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), table.plan.record_bytes()) }
    }
}

/// `vinga_column`
#[repr(C)]
pub struct Column {
    name: Slice,
    collation: *const c_void,
    offset: u32,
    bytes: u32,
    null_offset: u32,
    sort_bytes: u32,
    null_mask: u8,
    form: u8,
    length_bytes: u8,
    is_signed: u8,
    precision: u8,
    scale: u8,
    values: u8,
    sort_form: u8,
    read_by: Slice,
    limit: u64,
    values_bytes_max: u32,
}

/// `vinga_key_part`
#[repr(C)]
pub struct KeyPart {
    column: u16,
    bytes: u16,
    has_length: u8,
    is_nullable: u8,
    is_descending: u8,
}

/// `vinga_key`
#[repr(C)]
pub struct Key {
    name: Slice,
    parts: *const KeyPart,
    part_count: u32,
    is_primary: u8,
    is_unique: u8,
    is_hash: u8,
}

/// `vinga_definition`
#[repr(C)]
pub struct Definition {
    name: Slice,
    columns: *const Column,
    keys: *const Key,
    column_count: u32,
    key_count: u32,
    record_bytes: u32,
    default_record: *const u8,
    attachment: Slice,
    database_options: Slice,
    auto_increment: u64,
    partitions: u32,
    no_logging: u8,
    durable: u8,
    read_backup: u8,
    keeps_history: u8,
    /// -1 if there is no such column.
    auto_increment_column: i32,
}

/// `vinga_direct_change`
#[repr(C)]
pub struct DirectChange {
    record: Option<NonNull<u8>>,
    places: *const u16,
    additions: *const cursor::Addition,
    place_count: u32,
    addition_count: u32,
    key: u32,
    candidates: u8,
    share: u8,
}

impl DirectChange {
    /// What it is of the transaction.
    pub fn share(&self) -> TransactionShare {
        match self.share {
            1 => TransactionShare::PartThatLocksAll,
            2 => TransactionShare::Whole,
            _ => TransactionShare::Part,
        }
    }

    /// Translates it into a change of this table.
    ///
    /// # Safety
    /// Everything that it points to outlives the result.
    pub unsafe fn read<'a>(&self, table: &OpenTable) -> (Candidates, cursor::DirectChange<'a>) {
        let candidates = match self.candidates {
            1 => Candidates::Keys,
            2 => Candidates::Ranges(self.key as usize),
            _ => Candidates::All,
        };
        let change = match self.record {
            None => cursor::DirectChange::Delete,
            // SAFETY: it is a record of the table, and the lists have the given lengths.
            Some(record) => unsafe {
                cursor::DirectChange::Update {
                    record: std::slice::from_raw_parts(record.as_ptr(), table.plan.record_bytes()),
                    places: array(self.places, self.place_count),
                    additions: array(self.additions, self.addition_count),
                }
            },
        };
        (candidates, change)
    }
}

/// `vinga_value_request`
#[repr(C)]
pub struct ValueRequest {
    count: u64,
    step: u64,
    offset: u64,
    max: u64,
}

impl ValueRequest {
    pub fn read(&self) -> auto_increment::ValueRequest {
        let ValueRequest { count, step, offset, max } = *self;
        auto_increment::ValueRequest { step: step.max(1), offset, max, count }.of(count)
    }
}

/// `vinga_statistics`
#[repr(C)]
pub struct Statistics {
    pub rows: u64,
    pub row_bytes: u64,
    pub data_bytes: u64,
    pub revision: u64,
}

/// `vinga_counters`
#[repr(C)]
pub struct Counters {
    pub auto_increment_fetches: u64,
    pub auto_increment_waits: u64,
    pub auto_increment_long_waits: u64,
    pub round_trips: u64,
    pub batches_of_rows: u64,
    pub rows_of_scans: u64,
    pub pushed_conditions: u64,
    pub whole_conditions: u64,
    pub direct_changes: u64,
    pub counts: u64,
    pub transactions: u64,
    pub sessions: u64,
    pub databases_noticed: u64,
    pub databases_found: u64,
    pub connected: u64,
}

/// `vinga_settings`
#[repr(C)]
pub struct Settings {
    pub connectstring: Slice,
    pub temporary_folder: Slice,
    pub connections: u32,
    pub spin_us: u32,
}

/// Receives a name or other bytes, and copies them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct NameTaker(unsafe extern "C" fn(*mut c_void, *const u8, usize) -> i32);

impl NameTaker {
    pub(crate) fn take(self, context: *mut c_void, name: &[u8]) -> i32 {
        // SAFETY: the C side passes a context that fits its function, which copies the bytes.
        unsafe { (self.0)(context, name.as_ptr(), name.len()) }
    }
}

/// Receives a row of texts and copies them; a result other than 0 stops the sender.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RowTaker(unsafe extern "C" fn(*mut c_void, *const Slice, u32) -> i32);

impl RowTaker {
    pub(crate) fn new(take: unsafe extern "C" fn(*mut c_void, *const Slice, u32) -> i32) -> Self {
        RowTaker(take)
    }

    /// Passes on a row.
    pub(crate) fn take(self, context: *mut c_void, row: &[Slice]) -> i32 {
        // SAFETY: as above.
        unsafe { (self.0)(context, row.as_ptr(), row.len() as u32) }
    }
}

impl Column {
    fn read(&self) -> Result<definition::Column> {
        let name = self.name.text();
        let bytes = self.bytes as usize;
        let column_type = match self.form {
            1 => ColumnType::Integer { bytes: bytes as u8, signed: self.is_signed != 0 },
            2 => ColumnType::Float,
            3 => ColumnType::Double,
            4 => ColumnType::Decimal { precision: self.precision, scale: self.scale },
            5 => ColumnType::Bit { bits: self.precision },
            6 => ColumnType::Date,
            7 => ColumnType::Time { fraction: self.scale },
            8 => ColumnType::DateTime { fraction: self.scale },
            9 => ColumnType::Timestamp { fraction: self.scale },
            10 => ColumnType::Year,
            11 => ColumnType::Char { bytes: bytes as u16 },
            12 => ColumnType::Binary { bytes: bytes as u16 },
            13 | 17 => ColumnType::VarChar { bytes_max: bytes as u16 },
            14 => ColumnType::VarBinary { bytes_max: bytes as u16 },
            15 => ColumnType::Text,
            16 => ColumnType::Blob,
            _ => {
                return Err(Failure::unsupported(format!(
                    "column '{name}' has a type that is not supported"
                )));
            }
        };
        let form = match self.form {
            2 | 3 => Form::Float,
            5 | 6 => Form::Reversed,
            13 | 14 => Form::Varying(self.length_bytes),
            15 | 16 => Form::Long(self.length_bytes),
            17 => Form::Padded,
            _ => Form::Same,
        };
        Ok(definition::Column {
            name,
            column_type,
            form,
            offset: self.offset as usize,
            bytes,
            null: (self.null_offset as usize, self.null_mask),
            collation: Collation(self.collation),
            sort_bytes: self.sort_bytes as usize,
            rules: self.rules(),
        })
    }
}

impl Column {
    /// The rules that native clients must follow.
    fn rules(&self) -> ColumnRules {
        let chars_max = u32::try_from(self.limit).unwrap_or(u32::MAX);
        let utf8 = |char_bytes| Values::Utf8 { char_bytes, chars_max, bytes_max: self.values_bytes_max };
        let values = match self.values {
            0 => Values::Any,
            1 => Values::Enum { members: chars_max },
            2 => Values::Set { members: self.limit },
            3 => Values::Finite,
            4 => Values::NotNegative,
            5 => utf8(4),
            6 => utf8(3),
            7 => Values::Ascii { chars_max },
            8 => Values::Bytes { bytes_max: chars_max },
            10 => Values::Generated,
            _ => Values::OfSqlOnly,
        };
        let sort_keys = match self.sort_form {
            1 => SortKeys::Plain,
            2 => SortKeys::PlainPadded,
            _ => SortKeys::OfSqlOnly,
        };
        ColumnRules { values, sort_keys, read_by: self.read_by.text() }
    }
}

impl Key {
    fn read(&self) -> definition::Key {
        // SAFETY: the parts are valid during the call.
        let parts = unsafe { array(self.parts, self.part_count) };
        definition::Key {
            name: self.name.text(),
            parts: parts
                .iter()
                .map(|part| definition::KeyPart {
                    column: usize::from(part.column),
                    bytes: usize::from(part.bytes),
                    has_length: part.has_length != 0,
                    is_nullable: part.is_nullable != 0,
                    is_descending: part.is_descending != 0,
                })
                .collect(),
            is_primary: self.is_primary != 0,
            is_unique: self.is_unique != 0,
            is_hash: self.is_hash != 0,
        }
    }
}

impl Definition {
    pub fn read(&self) -> Result<Description> {
        // SAFETY: everything that it points to is valid during the call.
        let (columns, keys, default_record) = unsafe {
            (
                array(self.columns, self.column_count),
                array(self.keys, self.key_count),
                array(self.default_record, self.record_bytes),
            )
        };
        Ok(Description {
            name: self.name.text(),
            columns: columns.iter().map(Column::read).collect::<Result<_>>()?,
            keys: keys.iter().map(Key::read).collect(),
            record_bytes: self.record_bytes as usize,
            default_record: default_record.to_vec(),
            attachment: self.attachment.get().to_vec(),
            database_options: self.database_options.get().to_vec(),
            auto_increment: self.auto_increment,
            auto_increment_column: usize::try_from(self.auto_increment_column).ok(),
            keeps_history: self.keeps_history != 0,
            no_logging: self.no_logging != 0,
            is_durable: self.durable != 0,
            read_backup: self.read_backup != 0,
            partitions: self.partitions,
        })
    }
}

/// # Safety
/// `first` points to `count` values that stay valid as long as the result is used.
pub unsafe fn array<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

/// An end of a range.
///
/// # Safety
/// `bytes` points to `length` bytes that stay valid as long as the result is used.
pub unsafe fn end_of<'a>(bytes: *const u8, length: u32, is_excluded: u32) -> End<'a> {
    if bytes.is_null() {
        return End::Open;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { array(bytes, length) };
    if is_excluded == 0 { End::Included(bytes) } else { End::Excluded(bytes) }
}

/// `vinga_lock`
pub fn lock_of(lock: u8) -> Lock {
    match lock {
        0 => Lock::None,
        1 => Lock::Shared,
        _ => Lock::Exclusive,
    }
}
