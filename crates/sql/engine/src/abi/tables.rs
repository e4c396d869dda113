//! Entries for open tables: statistics for the optimizer, and auto-increment values.

use super::layout::{Definition, Statistics, ValueRequest, end_of};
use super::{calm, calm_or, enter, entries, internal_error};
use crate::cursor::Cursor;
use crate::session::Session;
use crate::table::OpenTable;
use std::sync::Arc;

pub(super) unsafe extern "C" fn table_close(table: *const OpenTable) {
    // SAFETY: it was made by `table_open`, which raised its count.
    calm(|| drop(unsafe { Arc::from_raw(table) }));
}

pub(super) unsafe extern "C" fn position_bytes(table: &OpenTable) -> u32 {
    calm(|| Cursor::position_bytes(table) as u32)
}

pub(super) unsafe extern "C" fn rows_per_value(table: &OpenTable, key: u32, columns: u32) -> u64 {
    calm(|| table.rows_per_value(key as usize, columns as usize)).max(1)
}

pub(super) unsafe extern "C" fn leave_values(table: &OpenTable, value: u64) {
    calm(|| table.counter.leave(value));
}

pub(super) unsafe extern "C" fn has_met_rows(table: &OpenTable) -> u8 {
    calm(|| table.counter.has_met_rows()).into()
}

#[allow(clippy::too_many_arguments, reason = "two ends of a range, as the server has them")]
pub(super) unsafe extern "C" fn rows_in_range(
    session: Option<&mut Session>,
    table: &OpenTable,
    key: u32,
    low: *const u8,
    low_bytes: u32,
    low_is_excluded: u32,
    high: *const u8,
    high_bytes: u32,
    high_is_excluded: u32,
    has_choice: u8,
) -> u64 {
    // SAFETY: both ends are valid during the call.
    let (low, high) =
        unsafe { (end_of(low, low_bytes, low_is_excluded), end_of(high, high_bytes, high_is_excluded)) };
    let key = key as usize;
    calm(|| match session {
        Some(session) => table.rows_in_range(session, key, low, high, has_choice != 0),
        None => table.guess_rows_in_range(key, low, high),
    })
    .max(1)
}

/// Without a session it returns what is known already.
pub(super) unsafe extern "C" fn statistics(
    session: Option<&mut Session>,
    table: &OpenTable,
    refresh: u8,
    out: &mut Statistics,
) -> i32 {
    if refresh != 0 && session.is_some() {
        enter(session, |session| {
            table.refresh(session);
            Ok(())
        });
    }
    calm_or(internal_error(), || {
        let (rows, row_bytes) = table.statistics();
        let (data_bytes, revision) = (rows.saturating_mul(row_bytes), table.revision());
        *out = Statistics { rows, row_bytes, data_bytes, revision };
        0
    })
}

entries! {
    fn table_open(; session, definition: &Definition, out: &mut *const OpenTable) {
        *out = Arc::into_raw(OpenTable::open(session, &definition.read()?)?);
        Ok(())
    }

    fn reserve_values(; session, table: &OpenTable, request: &ValueRequest, first: &mut u64, count: &mut u64) {
        let request = request.read();
        session.note_value_request(request);
        (*first, *count) = table.counter.take(session, &request)?;
        Ok(())
    }

    fn analyze(; session, table: &OpenTable) {
        table.refresh_now(session)
    }

    fn value_used(; session, table: &OpenTable, value: u64) {
        table.counter.use_value(session, value)
    }

    fn set_next_value(; session, table: &OpenTable, value: u64) {
        if value > 1 { table.counter.begin_at(session, value) } else { Ok(()) }
    }

    fn next_value(; session, table: &OpenTable, value: &mut u64) {
        *value = table.counter.peek(session)?;
        Ok(())
    }
}
