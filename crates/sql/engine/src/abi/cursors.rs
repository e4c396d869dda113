//! Entries that read and change rows.

use super::layout::{DirectChange, RecordIn, RecordOut, array, end_of, lock_of};
use super::{Found, calm, entries};
use crate::cursor::{Ahead, Cursor, Deferral, RangeOptions, ScanLock};
use crate::failure::{Result, ha};
use crate::plan::PrimaryKey;
use crate::session::{Numbered, Session};
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::LockWait;

pub(super) unsafe extern "C" fn cursor_new(table: *const OpenTable) -> Option<Box<Cursor>> {
    calm(|| {
        // SAFETY: the table is open; its count is raised by one for the cursor.
        let table = unsafe {
            Arc::increment_strong_count(table);
            Arc::from_raw(table)
        };
        Some(Box::new(Cursor::new(table)))
    })
}

pub(super) unsafe extern "C" fn cursor_free(cursor: Option<Box<Cursor>>) {
    calm(|| drop(cursor));
}

pub(super) unsafe extern "C" fn cursor_reset(cursor: &mut Cursor) {
    calm(|| cursor.reset());
}

pub(super) unsafe extern "C" fn use_columns(
    cursor: &mut Cursor,
    places: *const u16,
    count: u32,
    names_rows: u8,
) {
    // SAFETY: the list is valid during the call.
    let places = unsafe { array(places, count) };
    let primary = if names_rows != 0 { PrimaryKey::Included } else { PrimaryKey::LeftOut };
    calm(|| cursor.use_columns(places, primary));
}

/// Takes a `vinga_wait`.
pub(super) unsafe extern "C" fn set_wait(cursor: &mut Cursor, wait: u8, milliseconds: u32) {
    let wait = match wait {
        1 => LockWait::NoWait,
        2 => LockWait::SkipLocked,
        3 => LockWait::Millis(milliseconds),
        _ => LockWait::Default,
    };
    calm(|| cursor.set_wait(wait));
}

pub(super) unsafe extern "C" fn set_may_look(cursor: &mut Cursor, may_look: u8) {
    calm(|| cursor.set_may_look(may_look != 0));
}

pub(super) unsafe extern "C" fn is_lacking(cursor: &Cursor) -> u8 {
    calm(|| cursor.is_lacking().into())
}

pub(super) unsafe extern "C" fn has_deferred(cursor: &Cursor) -> u8 {
    calm(|| cursor.has_deferred().into())
}

pub(super) unsafe extern "C" fn end_deferred(cursor: &mut Cursor) {
    calm(|| cursor.end_deferred());
}

pub(super) unsafe extern "C" fn set_condition(cursor: &mut Cursor, program: *const u8, bytes: usize) -> i32 {
    // SAFETY: the program is valid during the call.
    let program = unsafe { array(program, bytes as u32) };
    calm(|| cursor.set_condition(program)) as i32
}

pub(super) unsafe extern "C" fn batch_clear(cursor: &mut Cursor) {
    calm(|| cursor.clear_batch());
}

pub(super) unsafe extern "C" fn batch_add(
    cursor: &mut Cursor,
    key: u32,
    value: *const u8,
    bytes: u32,
) -> i32 {
    // SAFETY: the key is valid during the call.
    let value = unsafe { array(value, bytes) };
    number_of(calm(|| Some(cursor.add_to_batch(key as usize, value))), |()| 0)
}

/// `VINGA_BATCH_FULL`
const BATCH_FULL: i32 = -1;

#[allow(clippy::too_many_arguments, reason = "two ends of a range, as the server has them")]
pub(super) unsafe extern "C" fn batch_add_range(
    cursor: &mut Cursor,
    key: u32,
    low: *const u8,
    low_bytes: u32,
    low_is_excluded: u32,
    high: *const u8,
    high_bytes: u32,
    high_is_excluded: u32,
) -> i32 {
    // SAFETY: both ends are valid during the call.
    let (low, high) =
        unsafe { (end_of(low, low_bytes, low_is_excluded), end_of(high, high_bytes, high_is_excluded)) };
    let added = calm(|| Some(cursor.add_range_to_batch(key as usize, low, high)));
    number_of(added, |has_room| if has_room { 0 } else { BATCH_FULL })
}

/// The result code of a call without a session; `None` stands for a panic.
fn number_of<T>(result: Option<Result<T>>, number: impl FnOnce(T) -> i32) -> i32 {
    match result {
        Some(Ok(value)) => number(value),
        Some(Err(failure)) => failure.number,
        None => ha::INTERNAL_ERROR,
    }
}

pub(super) unsafe extern "C" fn scan_range(cursor: &Cursor) -> u32 {
    calm(|| cursor.range().into())
}

/// Takes a sum of `VINGA_RANGE` numbers.
fn range_options_of(options: u8) -> RangeOptions {
    RangeOptions { is_descending: options & 1 != 0, in_order: options & 2 != 0, is_short: options & 4 != 0 }
}

fn scan_lock_of(lock: u8, enough: u32) -> ScanLock {
    ScanLock { lock: lock_of(lock), enough }
}

/// `VINGA_DEFERRED_FULL`
const DEFERRED_FULL: i32 = -2;
/// `VINGA_DEFERRED_CONFLICT`
const DEFERRED_CONFLICT: i32 = -3;
/// `VINGA_NO_ROW`
const NO_ROW: u32 = u32::MAX;

/// `VINGA_NEXT_ROW`
const NEXT_ROW: u64 = u64::MAX;

pub(super) unsafe extern "C" fn peek_row(cursor: &Cursor, place: &mut u64, record: RecordOut) -> i32 {
    let from = if *place == NEXT_ROW { None } else { Some(*place as usize) };
    let next = calm(|| Some(cursor.peek(from, record.of(cursor.table()))));
    number_of(next, |next| match next {
        Some(next) => {
            *place = next as u64;
            0
        }
        None => ha::END_OF_FILE,
    })
}

pub(super) unsafe extern "C" fn unlock_ahead(cursor: &mut Cursor, session: Option<&mut Session>) {
    if let Some(session) = session {
        calm(|| cursor.unlock_ahead(session));
    }
}

/// `VINGA_ROW_HAS_CHANGED`
const ROW_HAS_CHANGED: i32 = -5;

/// `VINGA_DIRECT_UNSUITED`
const DIRECT_UNSUITED: i32 = -4;

/// `VINGA_WRITE_LATER`
const WRITE_LATER: u8 = 1;
/// `VINGA_WRITE_PORTIONS`
const WRITE_PORTIONS: u8 = 2;
/// `VINGA_WRITE_NUMBERED`
const WRITE_NUMBERED: u8 = 4;
/// `VINGA_WRITE_RENUMBER`
const WRITE_RENUMBER: u8 = 8;

fn numbered_of(when: u8) -> Numbered {
    match (when & WRITE_NUMBERED != 0, when & WRITE_RENUMBER != 0) {
        (true, true) => Numbered::Free,
        (true, false) => Numbered::Fixed,
        (false, _) => Numbered::No,
    }
}

entries! {
    fn read_key(cursor: &mut Cursor; session, key: u32, value: *const u8, bytes: u32, lock: u8, record: RecordOut) {
        let record = record.of(cursor.table());
        // SAFETY: the key is valid during the call.
        let value = unsafe { array(value, bytes) };
        let is_found = cursor.read_key(session, key as usize, value, lock_of(lock), record)?;
        Ok(Found { is_found, otherwise: ha::KEY_NOT_FOUND })
    }

    fn read_position(cursor: &mut Cursor; session, position: *const u8, lock: u8, record: RecordOut) {
        let record = record.of(cursor.table());
        // SAFETY: it is a position of this table.
        let position = unsafe { array(position, Cursor::position_bytes(cursor.table()) as u32) };
        let is_found = cursor.read_position(session, position, lock_of(lock), record)?;
        Ok(Found { is_found, otherwise: ha::RECORD_DELETED })
    }

    fn unlock_shown(cursor: &mut Cursor; session) {
        cursor.unlock_shown(session);
        Ok(())
    }

    fn lock_shown(cursor: &mut Cursor; session, lock: u8, record: RecordOut) {
        let record = record.of(cursor.table());
        let is_found = cursor.lock_shown(session, lock_of(lock), record)?;
        Ok(Found { is_found, otherwise: ha::KEY_NOT_FOUND })
    }

    fn position(cursor: &mut Cursor; session, record: RecordIn, position: *mut u8) {
        let bytes = Cursor::position_bytes(cursor.table());
        // SAFETY: the server gives room for a position.
        let position = unsafe { std::slice::from_raw_parts_mut(position, bytes) };
        let record = record.of(cursor.table());
        // SAFETY: long values that the record points to are valid during the call.
        unsafe { cursor.position(session, record, position) }
    }

    fn scan_begin(cursor: &mut Cursor; session, lock: u8, enough: u32) {
        cursor.begin_scan(session, scan_lock_of(lock, enough))
    }

    fn count_rows(cursor: &mut Cursor; session, rows: &mut u64) {
        *rows = cursor.count_rows(session)?;
        Ok(())
    }

    fn count_ranges(cursor: &mut Cursor; session, key: u32, rows: &mut u64) {
        *rows = cursor.count_ranges(session, key as usize)?;
        Ok(())
    }

    fn scan_next(cursor: &mut Cursor; session, record: RecordOut) {
        let record = record.of(cursor.table());
        Ok(Found { is_found: cursor.next(session, record)?, otherwise: ha::END_OF_FILE })
    }

    fn range_begin(cursor: &mut Cursor; session, key: u32, low: *const u8, low_bytes: u32, low_is_excluded: u32,
                   high: *const u8, high_bytes: u32, high_is_excluded: u32, options: u8, lock: u8, enough: u32) {
        // SAFETY: both ends are valid during the call.
        let range = unsafe {
            (end_of(low, low_bytes, low_is_excluded), end_of(high, high_bytes, high_is_excluded))
        };
        cursor.begin_range(session, key as usize, range, range_options_of(options), scan_lock_of(lock, enough))
    }

    fn batch_scan(cursor: &mut Cursor; session, key: u32, options: u8, lock: u8, enough: u32) {
        cursor.begin_batch_scan(session, key as usize, range_options_of(options), scan_lock_of(lock, enough))
    }

    fn batch_run(cursor: &mut Cursor; session, lock: u8) {
        cursor.run_batch(session, lock_of(lock))
    }

    fn batch_row(cursor: &mut Cursor; session, index: u32, record: RecordOut) {
        let record = record.of(cursor.table());
        let is_found = cursor.batch_row(session, index as usize, record)?;
        Ok(Found { is_found, otherwise: ha::KEY_NOT_FOUND })
    }

    fn run_ahead(cursor: &mut Cursor; session, lock: u8) {
        cursor.run_ahead(session, lock_of(lock))
    }

    fn row_ahead(cursor: &mut Cursor; session, index: u32, record: RecordOut) {
        let record = record.of(cursor.table());
        Ok(match cursor.row_ahead(session, index as usize, record)? {
            Ahead::Row => 0,
            Ahead::NoRow => ha::KEY_NOT_FOUND,
            Ahead::Changed => ROW_HAS_CHANGED,
        })
    }

    fn peek_ahead(cursor: &mut Cursor; session, index: u32, record: RecordOut) {
        let record = record.of(cursor.table());
        let is_found = cursor.peek_ahead(session, index as usize, record)?;
        Ok(Found { is_found, otherwise: ha::KEY_NOT_FOUND })
    }

    fn insert(cursor: &mut Cursor; session, record: RecordIn, when: u8) {
        let record = record.of(cursor.table());
        if when & WRITE_PORTIONS != 0 {
            session.commit_in_portions();
        }
        // SAFETY: long values that the record points to are valid during the call.
        unsafe { cursor.insert(session, record, when & WRITE_LATER == 0, numbered_of(when))? };
        session.commit_portion()
    }

    fn defer_row(cursor: &mut Cursor; session, record: RecordIn) {
        let record = record.of(cursor.table());
        // SAFETY: long values that the record points to are valid during the call.
        Ok(match unsafe { cursor.defer(session, record)? } {
            Deferral::Done => 0,
            Deferral::Full => DEFERRED_FULL,
            Deferral::Conflict => DEFERRED_CONFLICT,
        })
    }

    fn send_deferred(cursor: &mut Cursor; session, locks_rows: u8, count: &mut u32, row: &mut u32) {
        let (sent, failed_at) = cursor.send_deferred(session, locks_rows != 0);
        *row = failed_at.map_or(NO_ROW, |at| at as u32);
        *count = sent? as u32;
        Ok(())
    }

    fn duplicate_row(cursor: &mut Cursor; _session, at: u32, record: RecordOut, row: &mut u32, key: &mut u32) {
        let record = record.of(cursor.table());
        let found = cursor.duplicate_row(at as usize, record)?;
        if let Some((of, server_key)) = found {
            (*row, *key) = (of as u32, server_key as u32);
        }
        Ok(Found { is_found: found.is_some(), otherwise: ha::END_OF_FILE })
    }

    fn row_in_the_way(cursor: &mut Cursor; session, at: u32, record: RecordOut) {
        let record = record.of(cursor.table());
        let is_found = cursor.show_row_in_the_way(session, at as usize, record)?;
        Ok(Found { is_found, otherwise: ha::KEY_NOT_FOUND })
    }

    fn update(cursor: &mut Cursor; session, before: RecordIn, after: RecordIn, places: *const u16, count: u32) {
        let (before, after) = (before.of(cursor.table()), after.of(cursor.table()));
        // SAFETY: the list is valid during the call.
        let places = unsafe { array(places, count) };
        // SAFETY: long values that the record points to are valid during the call.
        unsafe { cursor.update(session, before, after, places)? };
        // An existing row is finished with its update, so the portion may end here.
        session.commit_portion()
    }

    fn erase(cursor: &mut Cursor; session, record: RecordIn) {
        let record = record.of(cursor.table());
        // SAFETY: long values that the record points to are valid during the call.
        unsafe { cursor.erase(session, record) }
    }

    fn change_directly(cursor: &mut Cursor; session, change: &DirectChange, found: &mut u64, changed: &mut u64) {
        // SAFETY: what it points to is valid during the call.
        let (candidates, what) = unsafe { change.read(cursor.table()) };
        // SAFETY: long values that the record points to are valid during the call.
        match unsafe { cursor.change_directly(session, candidates, what, change.share())? } {
            Some(touched) => {
                (*found, *changed) = (touched.found, touched.changed);
                Ok(0)
            }
            None => Ok(DIRECT_UNSUITED),
        }
    }
}
