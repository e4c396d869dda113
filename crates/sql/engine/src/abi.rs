//! The Rust side of `crates/sql/plugin/vinga_engine.h`, which says what each of these means. A change here is a change there.
//!
//! Every entry catches panics: a mistake of ours ends the statement with an internal error, not the server.

use crate::cursor::{Cursor, RangeWish};
use crate::definition::{Column, Description, Form, Key, KeyPart, split_attachment};
use crate::failure::{Failure, Result, ha};
use crate::node::{self, node};
use crate::plan::End;
use crate::server::{Collation, Server};
use crate::session::Session;
use crate::table::OpenTable;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vinga::{ColumnType, InfoTable, InfoValue, Lock, OperationNumber};

const INTERFACE: u32 = 1;

/// `VINGA_WRITE_LATER`
const WRITE_LATER: u8 = 1;
/// `VINGA_WRITE_PORTIONS`
const WRITE_PORTIONS: u8 = 2;

/// The database of the engine's own tables, which SQL does not see.
pub const OWN_DATABASE: &str = "vinga";

/// Bytes that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    bytes: *const u8,
    length: usize,
}

impl Slice {
    fn of(bytes: &[u8]) -> Self {
        Slice { bytes: bytes.as_ptr(), length: bytes.len() }
    }

    /// # Safety
    /// The bytes are there as long as they are used.
    unsafe fn get<'a>(self) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }

    /// # Safety
    /// The bytes are there as long as they are used.
    unsafe fn text(self) -> String {
        // SAFETY: as the caller promises.
        String::from_utf8_lossy(unsafe { self.get() }).into_owned()
    }
}

/// `vinga_column`
#[repr(C)]
pub struct ColumnAbi {
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
}

/// `vinga_key_part`
#[repr(C)]
pub struct KeyPartAbi {
    column: u16,
    bytes: u16,
    has_length: u8,
    is_nullable: u8,
    is_descending: u8,
}

/// `vinga_key`
#[repr(C)]
pub struct KeyAbi {
    name: Slice,
    parts: *const KeyPartAbi,
    part_count: u32,
    is_primary: u8,
    is_unique: u8,
    is_hash: u8,
}

/// `vinga_definition`
#[repr(C)]
pub struct DefinitionAbi {
    name: Slice,
    columns: *const ColumnAbi,
    keys: *const KeyAbi,
    column_count: u32,
    key_count: u32,
    record_bytes: u32,
    attachment: Slice,
    auto_increment: u64,
    partitions: u32,
    no_logging: u8,
    read_backup: u8,
    has_auto_increment: u8,
}

/// `vinga_statistics`
#[repr(C)]
pub struct StatisticsAbi {
    rows: u64,
    row_bytes: u64,
    data_bytes: u64,
}

/// `vinga_counters`
#[repr(C)]
pub struct CountersAbi {
    auto_increment_fetches: u64,
    auto_increment_waits: u64,
    auto_increment_long_waits: u64,
    round_trips: u64,
    batches_of_rows: u64,
    rows_of_scans: u64,
    pushed_conditions: u64,
    transactions: u64,
    sessions: u64,
    connected: u64,
}

/// `vinga_settings`
#[repr(C)]
pub struct SettingsAbi {
    connectstring: Slice,
    connections: u32,
    spin_us: u32,
}

type NameTaker = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> i32;
type RowTaker = unsafe extern "C" fn(*mut c_void, *const Slice, u32) -> i32;

impl ColumnAbi {
    unsafe fn read(&self) -> Result<Column> {
        // SAFETY: the name is there during the call.
        let name = unsafe { self.name.text() };
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
            13 => ColumnType::VarChar { bytes_max: bytes as u16 },
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
            5 | 6 => Form::Reversed,
            13 | 14 => Form::Varying(self.length_bytes),
            15 | 16 => Form::Long(self.length_bytes),
            _ => Form::Same,
        };
        Ok(Column {
            name,
            column_type,
            form,
            offset: self.offset as usize,
            bytes,
            null: (self.null_offset as usize, self.null_mask),
            collation: Collation(self.collation),
            sort_bytes: self.sort_bytes as usize,
        })
    }
}

impl KeyAbi {
    unsafe fn read(&self) -> Key {
        // SAFETY: the parts are there during the call.
        let parts = unsafe { array(self.parts, self.part_count) };
        Key {
            // SAFETY: the name is there during the call.
            name: unsafe { self.name.text() },
            parts: parts
                .iter()
                .map(|part| KeyPart {
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

impl DefinitionAbi {
    unsafe fn read(&self) -> Result<Description> {
        // SAFETY: all that it points to is there during the call.
        unsafe {
            let columns = array(self.columns, self.column_count).iter();
            Ok(Description {
                name: self.name.text(),
                columns: columns.map(|column| column.read()).collect::<Result<_>>()?,
                keys: array(self.keys, self.key_count).iter().map(|key| key.read()).collect(),
                record_bytes: self.record_bytes as usize,
                attachment: self.attachment.get().to_vec(),
                auto_increment: self.auto_increment,
                no_logging: self.no_logging != 0,
                read_backup: self.read_backup != 0,
                partitions: self.partitions,
            })
        }
    }
}

unsafe fn array<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

fn lock_of(lock: u8) -> Lock {
    match lock {
        0 => Lock::None,
        1 => Lock::Shared,
        _ => Lock::Exclusive,
    }
}

/// Runs something for a session; what fails is remembered there.
#[inline]
unsafe fn enter(session: *mut Session, work: impl FnOnce(&mut Session) -> Result<i32>) -> i32 {
    // SAFETY: a session is used by one thread at a time.
    let session = unsafe { &mut *session };
    match catch_unwind(AssertUnwindSafe(|| work(session))) {
        Ok(Ok(number)) => number,
        Ok(Err(failure)) => session.fail(failure),
        Err(panic) => {
            let text = panic_text(&*panic);
            session.node().server.warn(&format!("a mistake of the storage engine: {text}"));
            session.fail(
                Failure::new(ha_internal(), format!("a mistake of the storage engine: {text}")).doomed(),
            )
        }
    }
}

fn ha_internal() -> i32 {
    vinga::ErrorCode::InternalError as i32
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Runs something that can't fail; a panic gives the default.
fn calm<T: Default>(work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}

/// What a read returns.
fn found(is_found: bool, otherwise: i32) -> i32 {
    if is_found { 0 } else { otherwise }
}

unsafe extern "C" fn start(settings: *const SettingsAbi, server: *const Server) -> i32 {
    // SAFETY: both are there during the call.
    let (settings, server) = unsafe { (&*settings, *server) };
    let started = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as above.
        let connectstring = unsafe { settings.connectstring.text() };
        let spin = Duration::from_micros(u64::from(settings.spin_us));
        node::start(connectstring, settings.connections as usize, spin, server)
    }));
    match started {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            server.warn(&failure.text);
            failure.number
        }
        Err(_) => ha_internal(),
    }
}

unsafe extern "C" fn stop() {
    calm(node::stop);
}

unsafe extern "C" fn set_auto_increment_prefetch(values: u64) {
    calm(|| {
        if let Some(node) = node() {
            node.set_prefetch(values);
        }
    });
}

unsafe extern "C" fn set_wait_max_ms(milliseconds: u64) {
    calm(|| {
        if let Some(node) = node() {
            node.set_wait_max_ms(milliseconds);
        }
    });
}

unsafe extern "C" fn counters(out: *mut CountersAbi) {
    calm(|| {
        let Some(node) = node() else { return };
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &node.counters;
        // SAFETY: the caller gives room for it.
        unsafe {
            *out = CountersAbi {
                auto_increment_fetches: get(&counters.auto_increment_fetches),
                auto_increment_waits: get(&counters.auto_increment_waits),
                auto_increment_long_waits: get(&counters.auto_increment_long_waits),
                round_trips: get(&counters.round_trips),
                batches_of_rows: get(&counters.batches),
                rows_of_scans: get(&counters.scanned_rows),
                pushed_conditions: get(&counters.conditions),
                transactions: get(&counters.transactions),
                sessions: get(&counters.sessions),
                connected: node.connected(),
            };
        }
    });
}

unsafe extern "C" fn session_new(thread: u64) -> *mut Session {
    let made = catch_unwind(|| node().map(|node| Box::new(Session::new(node, thread))));
    made.ok().flatten().map_or(std::ptr::null_mut(), Box::into_raw)
}

unsafe extern "C" fn session_free(session: *mut Session) {
    // SAFETY: it was made by `session_new` and is not used any more.
    calm(|| drop(unsafe { Box::from_raw(session) }));
}

unsafe extern "C" fn session_kill(session: *mut Session) {
    // SAFETY: the session is there; the waiter may be used by any thread.
    let waiter = unsafe { Arc::clone((*session).waiter()) };
    calm(|| waiter.kill());
}

unsafe extern "C" fn session_revive(session: *mut Session) {
    // SAFETY: the session is there.
    unsafe { (*session).waiter().revive() };
}

unsafe extern "C" fn session_error(session: *const Session, temporary: *mut u8, doomed: *mut u8) -> Slice {
    // SAFETY: the session and room for both are there.
    unsafe {
        let failure = (*session).failure();
        *temporary = failure.is_temporary.into();
        *doomed = failure.is_doomed.into();
        Slice::of(failure.text.as_bytes())
    }
}

unsafe extern "C" fn statement_begin(session: *mut Session, stands_alone: u8) {
    // SAFETY: the session is there.
    unsafe {
        enter(session, |session| {
            session.begin_statement(stands_alone != 0);
            Ok(0)
        })
    };
}

unsafe extern "C" fn statement_flush(session: *mut Session) -> i32 {
    // SAFETY: the session is there.
    unsafe { enter(session, |session| session.flush().map(|()| 0)) }
}

unsafe extern "C" fn statement_roll_back(session: *mut Session) -> i32 {
    // SAFETY: the session is there.
    unsafe {
        enter(session, |session| {
            session.roll_back_statement();
            Ok(0)
        })
    }
}

unsafe extern "C" fn commit(session: *mut Session) -> i32 {
    // SAFETY: the session is there.
    unsafe { enter(session, |session| session.commit().map(|()| 0)) }
}

unsafe extern "C" fn roll_back(session: *mut Session) -> i32 {
    // SAFETY: the session is there.
    unsafe {
        enter(session, |session| {
            session.roll_back();
            Ok(0)
        })
    }
}

unsafe extern "C" fn savepoint(session: *mut Session, place: *mut u32) -> i32 {
    // SAFETY: the session and room for the place are there.
    unsafe {
        enter(session, |session| {
            *place = session.savepoint()?.0;
            Ok(0)
        })
    }
}

unsafe extern "C" fn roll_back_to(session: *mut Session, place: u32) -> i32 {
    // SAFETY: the session is there.
    unsafe {
        enter(session, |session| {
            session.roll_back_to(OperationNumber(place));
            Ok(0)
        })
    }
}

unsafe extern "C" fn duplicate(
    session: *mut Session,
    table: *const OpenTable,
    record: *mut u8,
    key: *mut u32,
) -> i32 {
    // SAFETY: all are there; the record is one of this table.
    unsafe {
        enter(session, |session| {
            let table = &*table;
            let Some((place, image)) = session.duplicate(table) else { return Ok(ha::KEY_NOT_FOUND) };
            *key = place as u32;
            if !image.is_empty() && !record.is_null() {
                let record = std::slice::from_raw_parts_mut(record, table.plan.record_bytes());
                table.plan.read_image(image, record)?;
            }
            Ok(0)
        })
    }
}

unsafe extern "C" fn create_table(session: *mut Session, definition: *const DefinitionAbi) -> i32 {
    // SAFETY: both are there.
    unsafe {
        enter(session, |session| {
            let description = (*definition).read()?;
            let definition = description.to_definition()?;
            let cluster = session.cluster()?.clone();
            let node = Arc::clone(session.node());
            let table = session
                .wait(cluster.as_async().create_table(definition))?
                .map_err(|error| node.failure(&error))?;
            if description.auto_increment > 1 {
                let counter = crate::auto_increment::Counter::new(table.core().birth().0);
                counter.move_to(session, description.auto_increment)?;
            }
            Ok(0)
        })
    }
}

fn drop_by_name(session: &mut Session, name: &str) -> Result<()> {
    let cluster = session.cluster()?.clone();
    match session.wait(cluster.as_async().drop_table(name))? {
        Ok(()) => Ok(()),
        Err(error) if error.code() == vinga::ErrorCode::NoSuchTable => {
            Err(Failure::new(ha::NO_SUCH_TABLE, format!("there is no table {name}")))
        }
        Err(error) => Err(session.node().failure(&error)),
    }
}

unsafe extern "C" fn drop_table(session: *mut Session, name: Slice) -> i32 {
    // SAFETY: both are there.
    unsafe { enter(session, |session| drop_by_name(session, &name.text()).map(|()| 0)) }
}

unsafe extern "C" fn rename_table(session: *mut Session, from: Slice, to: Slice) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let (from, to) = (from.text(), to.text());
            let cluster = session.cluster()?.clone();
            let renamed = session.wait(cluster.as_async().rename_table(&from, &to))?;
            renamed.map(|_| 0).map_err(|error| schema_failure(session, &error))
        })
    }
}

unsafe extern "C" fn truncate_table(session: *mut Session, name: Slice) -> i32 {
    // SAFETY: both are there.
    unsafe {
        enter(session, |session| {
            let name = name.text();
            let cluster = session.cluster()?.clone();
            let emptied = session.wait(cluster.as_async().truncate_table(&name))?;
            emptied.map(|_| 0).map_err(|error| schema_failure(session, &error))
        })
    }
}

fn schema_failure(session: &Session, error: &vinga::Error) -> Failure {
    let failure = session.node().failure(error);
    if error.code() == vinga::ErrorCode::NoSuchTable {
        return Failure { number: ha::NO_SUCH_TABLE, ..failure };
    }
    failure
}

unsafe extern "C" fn discover(
    session: *mut Session,
    name: Slice,
    take: NameTaker,
    context: *mut c_void,
) -> i32 {
    // SAFETY: all are there; the taker copies.
    unsafe {
        enter(session, |session| {
            let name = name.text();
            let table = session.describe(&name)?;
            match split_attachment(&table.definition().attachment) {
                Some((_, image)) => Ok(take(context, image.as_ptr(), image.len())),
                None => Err(Failure::unsupported(format!(
                    "table {name} was not made by a SQL node and can't be used by one yet"
                ))),
            }
        })
    }
}

fn all_names(session: &mut Session) -> Result<Vec<String>> {
    let cluster = session.cluster()?.clone();
    let names = session.wait(cluster.as_async().tables())?;
    names.map_err(|error| session.node().failure(&error))
}

unsafe extern "C" fn table_names(
    session: *mut Session,
    database: Slice,
    take: NameTaker,
    context: *mut c_void,
) -> i32 {
    // SAFETY: all are there; the taker copies.
    unsafe {
        enter(session, |session| {
            let database = database.text();
            for name in all_names(session)? {
                if let Some((of, table)) = name.split_once('.')
                    && of == database
                    && of != OWN_DATABASE
                    && !table.starts_with('$')
                {
                    take(context, table.as_ptr(), table.len());
                }
            }
            Ok(0)
        })
    }
}

unsafe extern "C" fn database_names(session: *mut Session, take: NameTaker, context: *mut c_void) -> i32 {
    // SAFETY: all are there; the taker copies.
    unsafe {
        enter(session, |session| {
            let names = all_names(session)?;
            let databases: std::collections::BTreeSet<&str> =
                names.iter().filter_map(|name| name.split_once('.').map(|(database, _)| database)).collect();
            for database in databases {
                take(context, database.as_ptr(), database.len());
            }
            Ok(0)
        })
    }
}

unsafe extern "C" fn table_open(
    session: *mut Session,
    definition: *const DefinitionAbi,
    out: *mut *const OpenTable,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let description = (*definition).read()?;
            *out = Arc::into_raw(OpenTable::open(session, &description)?);
            Ok(0)
        })
    }
}

unsafe extern "C" fn table_close(table: *const OpenTable) {
    // SAFETY: it was made by `table_open`, which counted it.
    calm(|| drop(unsafe { Arc::from_raw(table) }));
}

unsafe extern "C" fn table_is_stale(table: *const OpenTable) -> u8 {
    // SAFETY: it is there.
    unsafe { (*table).is_stale().into() }
}

unsafe extern "C" fn position_bytes(table: *const OpenTable) -> u32 {
    // SAFETY: it is there.
    unsafe { Cursor::position_bytes(&*table) as u32 }
}

unsafe extern "C" fn statistics(
    session: *mut Session,
    table: *const OpenTable,
    refresh: u8,
    out: *mut StatisticsAbi,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        if refresh != 0 && !session.is_null() {
            enter(session, |session| {
                (*table).refresh(session);
                Ok(0)
            });
        }
        let (rows, row_bytes) = (*table).statistics();
        *out = StatisticsAbi { rows: rows.max(2), row_bytes, data_bytes: rows.saturating_mul(row_bytes) };
    }
    0
}

unsafe extern "C" fn rows_per_value(table: *const OpenTable, key: u32, columns: u32) -> u64 {
    // SAFETY: it is there.
    calm(|| unsafe { (*table).rows_per_value(key as usize, columns as usize) }).max(1)
}

/// # Safety
/// The bytes are there as long as they are used.
unsafe fn end_of<'a>(bytes: *const u8, length: u32, is_excluded: u32) -> End<'a> {
    if bytes.is_null() {
        return End::Open;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { array(bytes, length) };
    if is_excluded == 0 { End::Included(bytes) } else { End::Excluded(bytes) }
}

#[allow(clippy::too_many_arguments, reason = "two ends of a range, as the server has them")]
unsafe extern "C" fn rows_in_range(
    table: *const OpenTable,
    key: u32,
    low: *const u8,
    low_bytes: u32,
    low_is_excluded: u32,
    high: *const u8,
    high_bytes: u32,
    high_is_excluded: u32,
) -> u64 {
    // SAFETY: all are there.
    calm(|| unsafe {
        let low = end_of(low, low_bytes, low_is_excluded);
        let high = end_of(high, high_bytes, high_is_excluded);
        (*table).rows_in_range(key as usize, low, high)
    })
    .max(1)
}

unsafe extern "C" fn reserve_values(
    session: *mut Session,
    table: *const OpenTable,
    wanted: u64,
    first: *mut u64,
    count: *mut u64,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            (*first, *count) = (*table).counter.take(session, wanted)?;
            Ok(0)
        })
    }
}

unsafe extern "C" fn value_used(session: *mut Session, table: *const OpenTable, value: u64) -> i32 {
    // SAFETY: all are there.
    unsafe { enter(session, |session| (*table).counter.use_value(session, value).map(|()| 0)) }
}

unsafe extern "C" fn set_next_value(session: *mut Session, table: *const OpenTable, value: u64) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| match value.checked_sub(1) {
            Some(used) => (*table).counter.use_value(session, used).map(|()| 0),
            None => Ok(0),
        })
    }
}

unsafe extern "C" fn next_value(session: *mut Session, table: *const OpenTable, value: *mut u64) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            *value = (*table).counter.peek(session)?;
            Ok(0)
        })
    }
}

unsafe extern "C" fn cursor_new(table: *const OpenTable) -> *mut Cursor {
    // SAFETY: the table is there, and counted once more for the cursor.
    let table = unsafe {
        Arc::increment_strong_count(table);
        Arc::from_raw(table)
    };
    Box::into_raw(Box::new(Cursor::new(table)))
}

unsafe extern "C" fn cursor_free(cursor: *mut Cursor) {
    // SAFETY: it was made by `cursor_new` and is not used any more.
    calm(|| drop(unsafe { Box::from_raw(cursor) }));
}

unsafe extern "C" fn cursor_reset(cursor: *mut Cursor) {
    // SAFETY: it is there.
    calm(|| unsafe { (*cursor).reset() });
}

/// # Safety
/// The cursor is there, and the record is one of its table.
unsafe fn record_of<'a>(cursor: &Cursor, record: *mut u8) -> &'a mut [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(record, cursor.table().plan.record_bytes()) }
}

unsafe extern "C" fn read_key(
    cursor: *mut Cursor,
    session: *mut Session,
    _key: u32,
    value: *const u8,
    bytes: u32,
    lock: u8,
    record: *mut u8,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = record_of(cursor, record);
            let is_found = cursor.read_key(session, array(value, bytes), lock_of(lock), record)?;
            Ok(found(is_found, ha::KEY_NOT_FOUND))
        })
    }
}

unsafe extern "C" fn read_position(
    cursor: *mut Cursor,
    session: *mut Session,
    position: *const u8,
    lock: u8,
    record: *mut u8,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = record_of(cursor, record);
            let position = array(position, Cursor::position_bytes(cursor.table()) as u32);
            let is_found = cursor.read_position(session, position, lock_of(lock), record)?;
            Ok(found(is_found, ha::RECORD_DELETED))
        })
    }
}

unsafe extern "C" fn position(cursor: *mut Cursor, record: *const u8, position: *mut u8) {
    calm(|| {
        let Some(node) = node() else { return };
        // SAFETY: all are there.
        unsafe {
            let cursor = &mut *cursor;
            let record = std::slice::from_raw_parts(record, cursor.table().plan.record_bytes());
            let bytes = Cursor::position_bytes(cursor.table());
            let position = std::slice::from_raw_parts_mut(position, bytes);
            if let Err(failure) = cursor.position(record, &node.server, position) {
                node.server.warn(&failure.text);
            }
        }
    });
}

unsafe extern "C" fn set_condition(cursor: *mut Cursor, program: *const u8, bytes: usize) -> i32 {
    // SAFETY: all are there.
    let taken = calm(|| unsafe { (*cursor).set_condition(array(program, bytes as u32)) });
    i32::from(!taken)
}

unsafe extern "C" fn scan_begin(cursor: *mut Cursor, session: *mut Session, lock: u8) -> i32 {
    // SAFETY: all are there.
    unsafe { enter(session, |session| (*cursor).begin_scan(session, lock_of(lock)).map(|()| 0)) }
}

unsafe extern "C" fn scan_next(cursor: *mut Cursor, session: *mut Session, record: *mut u8) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = record_of(cursor, record);
            Ok(found(cursor.next(session, record)?, ha::END_OF_FILE))
        })
    }
}

#[allow(clippy::too_many_arguments, reason = "two ends of a range, as the server has them")]
unsafe extern "C" fn range_begin(
    cursor: *mut Cursor,
    session: *mut Session,
    key: u32,
    low: *const u8,
    low_bytes: u32,
    low_is_excluded: u32,
    high: *const u8,
    high_bytes: u32,
    high_is_excluded: u32,
    wish: u8,
    lock: u8,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let low = end_of(low, low_bytes, low_is_excluded);
            let high = end_of(high, high_bytes, high_is_excluded);
            let wish =
                RangeWish { is_descending: wish & 1 != 0, in_order: wish & 2 != 0, is_short: wish & 4 != 0 };
            (*cursor).begin_range(session, key as usize, (low, high), wish, lock_of(lock)).map(|()| 0)
        })
    }
}

unsafe extern "C" fn batch_clear(cursor: *mut Cursor) {
    // SAFETY: it is there.
    calm(|| unsafe { (*cursor).clear_batch() });
}

unsafe extern "C" fn batch_add(cursor: *mut Cursor, _key: u32, value: *const u8, bytes: u32) -> i32 {
    calm(|| {
        let node = node()?;
        // SAFETY: all are there.
        let added = unsafe { (*cursor).add_to_batch(&node.server, array(value, bytes)) };
        Some(added.map_or_else(|failure| failure.number, |()| 0))
    })
    .unwrap_or(ha::INTERNAL_ERROR)
}

unsafe extern "C" fn batch_add_position(cursor: *mut Cursor, position: *const u8) -> i32 {
    // SAFETY: all are there.
    calm(|| unsafe {
        let cursor = &mut *cursor;
        let bytes = Cursor::position_bytes(cursor.table()) as u32;
        cursor.add_position_to_batch(array(position, bytes));
    });
    0
}

unsafe extern "C" fn batch_run(cursor: *mut Cursor, session: *mut Session, lock: u8) -> i32 {
    // SAFETY: all are there.
    unsafe { enter(session, |session| (*cursor).run_batch(session, lock_of(lock)).map(|()| 0)) }
}

unsafe extern "C" fn batch_row(
    cursor: *mut Cursor,
    session: *mut Session,
    index: u32,
    record: *mut u8,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = record_of(cursor, record);
            Ok(found(cursor.batch_row(session, index as usize, record)?, ha::KEY_NOT_FOUND))
        })
    }
}

unsafe extern "C" fn insert(cursor: *mut Cursor, session: *mut Session, record: *const u8, when: u8) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = std::slice::from_raw_parts(record, cursor.table().plan.record_bytes());
            cursor.insert(session, record, when & WRITE_LATER == 0)?;
            if when & WRITE_PORTIONS != 0 {
                session.commit_portion()?;
            }
            Ok(0)
        })
    }
}

unsafe extern "C" fn update(
    cursor: *mut Cursor,
    session: *mut Session,
    before: *const u8,
    after: *const u8,
) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let bytes = cursor.table().plan.record_bytes();
            let before = std::slice::from_raw_parts(before, bytes);
            let after = std::slice::from_raw_parts(after, bytes);
            cursor.update(session, before, after).map(|()| 0)
        })
    }
}

unsafe extern "C" fn erase(cursor: *mut Cursor, session: *mut Session, record: *const u8) -> i32 {
    // SAFETY: all are there.
    unsafe {
        enter(session, |session| {
            let cursor = &mut *cursor;
            let record = std::slice::from_raw_parts(record, cursor.table().plan.record_bytes());
            cursor.erase(session, record).map(|()| 0)
        })
    }
}

unsafe extern "C" fn erase_all(_cursor: *mut Cursor, _session: *mut Session) -> i32 {
    ha::WRONG_COMMAND
}

unsafe extern "C" fn information(
    session: *mut Session,
    table: u32,
    take: RowTaker,
    context: *mut c_void,
) -> i32 {
    // SAFETY: all are there; the taker copies.
    unsafe {
        enter(session, |session| {
            let table = match table {
                0 => InfoTable::Threads,
                1 => InfoTable::Memory,
                2 => InfoTable::Pools,
                _ => InfoTable::Blocks,
            };
            let cluster = session.cluster()?.clone();
            let node = Arc::clone(session.node());
            let info = session.wait(cluster.as_async().info(table))?.map_err(|error| node.failure(&error))?;
            let texts: Vec<Vec<String>> = info
                .rows
                .iter()
                .map(|row| {
                    row.iter()
                        .map(|value| match value {
                            InfoValue::Text(text) => text.clone(),
                            InfoValue::Number(number) => number.to_string(),
                            InfoValue::Real(real) => format!("{real:.3}"),
                        })
                        .collect()
                })
                .collect();
            for row in std::iter::once(&info.columns).chain(&texts) {
                let slices: Vec<Slice> = row.iter().map(|text| Slice::of(text.as_bytes())).collect();
                if take(context, slices.as_ptr(), slices.len() as u32) != 0 {
                    break;
                }
            }
            Ok(0)
        })
    }
}

macro_rules! interface {
    ($($name:ident: $type:ty,)*) => {
        /// `vinga_engine`
        #[repr(C)]
        #[allow(missing_docs, reason = "vinga_engine.h says what they do")]
        pub struct Interface {
            interface: u32,
            $($name: $type,)*
        }

        static INTERFACE_TABLE: Interface = Interface { interface: INTERFACE, $($name,)* };
    };
}

interface! {
    start: unsafe extern "C" fn(*const SettingsAbi, *const Server) -> i32,
    stop: unsafe extern "C" fn(),
    set_auto_increment_prefetch: unsafe extern "C" fn(u64),
    set_wait_max_ms: unsafe extern "C" fn(u64),
    counters: unsafe extern "C" fn(*mut CountersAbi),
    session_new: unsafe extern "C" fn(u64) -> *mut Session,
    session_free: unsafe extern "C" fn(*mut Session),
    session_kill: unsafe extern "C" fn(*mut Session),
    session_revive: unsafe extern "C" fn(*mut Session),
    session_error: unsafe extern "C" fn(*const Session, *mut u8, *mut u8) -> Slice,
    statement_begin: unsafe extern "C" fn(*mut Session, u8),
    statement_flush: unsafe extern "C" fn(*mut Session) -> i32,
    statement_roll_back: unsafe extern "C" fn(*mut Session) -> i32,
    commit: unsafe extern "C" fn(*mut Session) -> i32,
    roll_back: unsafe extern "C" fn(*mut Session) -> i32,
    savepoint: unsafe extern "C" fn(*mut Session, *mut u32) -> i32,
    roll_back_to: unsafe extern "C" fn(*mut Session, u32) -> i32,
    duplicate: unsafe extern "C" fn(*mut Session, *const OpenTable, *mut u8, *mut u32) -> i32,
    create_table: unsafe extern "C" fn(*mut Session, *const DefinitionAbi) -> i32,
    drop_table: unsafe extern "C" fn(*mut Session, Slice) -> i32,
    rename_table: unsafe extern "C" fn(*mut Session, Slice, Slice) -> i32,
    truncate_table: unsafe extern "C" fn(*mut Session, Slice) -> i32,
    discover: unsafe extern "C" fn(*mut Session, Slice, NameTaker, *mut c_void) -> i32,
    table_names: unsafe extern "C" fn(*mut Session, Slice, NameTaker, *mut c_void) -> i32,
    database_names: unsafe extern "C" fn(*mut Session, NameTaker, *mut c_void) -> i32,
    table_open: unsafe extern "C" fn(*mut Session, *const DefinitionAbi, *mut *const OpenTable) -> i32,
    table_close: unsafe extern "C" fn(*const OpenTable),
    table_is_stale: unsafe extern "C" fn(*const OpenTable) -> u8,
    position_bytes: unsafe extern "C" fn(*const OpenTable) -> u32,
    statistics: unsafe extern "C" fn(*mut Session, *const OpenTable, u8, *mut StatisticsAbi) -> i32,
    rows_per_value: unsafe extern "C" fn(*const OpenTable, u32, u32) -> u64,
    rows_in_range: unsafe extern "C" fn(
        *const OpenTable, u32, *const u8, u32, u32, *const u8, u32, u32,
    ) -> u64,
    reserve_values: unsafe extern "C" fn(*mut Session, *const OpenTable, u64, *mut u64, *mut u64) -> i32,
    value_used: unsafe extern "C" fn(*mut Session, *const OpenTable, u64) -> i32,
    set_next_value: unsafe extern "C" fn(*mut Session, *const OpenTable, u64) -> i32,
    next_value: unsafe extern "C" fn(*mut Session, *const OpenTable, *mut u64) -> i32,
    cursor_new: unsafe extern "C" fn(*const OpenTable) -> *mut Cursor,
    cursor_free: unsafe extern "C" fn(*mut Cursor),
    cursor_reset: unsafe extern "C" fn(*mut Cursor),
    read_key: unsafe extern "C" fn(*mut Cursor, *mut Session, u32, *const u8, u32, u8, *mut u8) -> i32,
    read_position: unsafe extern "C" fn(*mut Cursor, *mut Session, *const u8, u8, *mut u8) -> i32,
    position: unsafe extern "C" fn(*mut Cursor, *const u8, *mut u8),
    set_condition: unsafe extern "C" fn(*mut Cursor, *const u8, usize) -> i32,
    scan_begin: unsafe extern "C" fn(*mut Cursor, *mut Session, u8) -> i32,
    scan_next: unsafe extern "C" fn(*mut Cursor, *mut Session, *mut u8) -> i32,
    range_begin: unsafe extern "C" fn(
        *mut Cursor, *mut Session, u32, *const u8, u32, u32, *const u8, u32, u32, u8, u8,
    ) -> i32,
    batch_clear: unsafe extern "C" fn(*mut Cursor),
    batch_add: unsafe extern "C" fn(*mut Cursor, u32, *const u8, u32) -> i32,
    batch_add_position: unsafe extern "C" fn(*mut Cursor, *const u8) -> i32,
    batch_run: unsafe extern "C" fn(*mut Cursor, *mut Session, u8) -> i32,
    batch_row: unsafe extern "C" fn(*mut Cursor, *mut Session, u32, *mut u8) -> i32,
    insert: unsafe extern "C" fn(*mut Cursor, *mut Session, *const u8, u8) -> i32,
    update: unsafe extern "C" fn(*mut Cursor, *mut Session, *const u8, *const u8) -> i32,
    erase: unsafe extern "C" fn(*mut Cursor, *mut Session, *const u8) -> i32,
    erase_all: unsafe extern "C" fn(*mut Cursor, *mut Session) -> i32,
    information: unsafe extern "C" fn(*mut Session, u32, RowTaker, *mut c_void) -> i32,
}

/// The functions behind `vinga_engine.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_engine_interface() -> *const Interface {
    &raw const INTERFACE_TABLE
}
