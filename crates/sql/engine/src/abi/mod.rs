//! The Rust side of `crates/sql/plugin/vinga_engine.h`, which says what each entry means. A change here is a change there.
//!
//! | module | has |
//! |---|---|
//! | [`layout`] | what is passed: structs, texts, records, keys |
//! | [`sessions`] | the node as a whole, sessions, transactions |
//! | [`definitions`] | tables are made, changed, found |
//! | [`tables`] | open tables: statistics, auto-increment values |
//! | [`cursors`] | rows are read and changed |
//! | [`information`] | what the data nodes tell of themselves |
//!
//! An entry is written with [`entries!`]: a function of Rust, whose references are the C side's pointers, that gives a
//! [`Result`]. Around it: a null session is refused, what fails is remembered in the session, and a panic, a mistake of
//! ours, ends the statement with an internal error, not the server.

mod cursors;
mod definitions;
mod information;
mod layout;
mod sessions;
mod tables;

pub use layout::{RowTaker, Slice};

use crate::failure::{Failure, Result, ha};
use crate::session::Session;
use std::panic::{AssertUnwindSafe, catch_unwind};

const INTERFACE: u32 = 11;

/// What an entry returns if it does not fail.
trait Outcome {
    fn number(self) -> i32;
}

impl Outcome for () {
    fn number(self) -> i32 {
        0
    }
}

impl Outcome for i32 {
    fn number(self) -> i32 {
        self
    }
}

/// What a read returns.
struct Found {
    is_found: bool,
    otherwise: i32,
}

impl Outcome for Found {
    fn number(self) -> i32 {
        if self.is_found { 0 } else { self.otherwise }
    }
}

/// Runs something for a session; what fails is remembered there.
#[inline]
fn enter<T: Outcome>(session: Option<&mut Session>, work: impl FnOnce(&mut Session) -> Result<T>) -> i32 {
    let Some(session) = session else { return ha::NO_CONNECTION };
    match catch_unwind(AssertUnwindSafe(|| work(session))) {
        Ok(Ok(outcome)) => outcome.number(),
        Ok(Err(failure)) => session.fail(failure),
        Err(panic) => {
            let text = format!("a mistake of the storage engine: {}", panic_text(&*panic));
            session.node().server.warn(&text);
            session.fail(Failure::new(internal_error(), text).doomed())
        }
    }
}

fn internal_error() -> i32 {
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

/// Entries for a session, which may fail. `in` names the session among the arguments of the C function; it comes after
/// those before `;`.
macro_rules! entries {
    ($(fn $name:ident($($before:ident: $before_type:ty),*; $session:ident $(, $after:ident: $after_type:ty)*) $work:block)*) => {
        $(pub(super) unsafe extern "C" fn $name(
            $($before: $before_type,)*
            $session: Option<&mut $crate::session::Session>
            $(, $after: $after_type)*
        ) -> i32 {
            $crate::abi::enter($session, |$session| $work)
        })*
    };
}
use entries;

/// The struct of function pointers. Their types are those of `vinga_engine.h`, in its order.
#[repr(C)]
pub struct Interface {
    interface: u32,
    entries: [*const (); NAMES.len()],
}

// SAFETY: it has nothing but addresses of functions, and is never changed.
unsafe impl Sync for Interface {}

macro_rules! interface {
    ($($module:ident: $($name:ident)*;)*) => {
        const NAMES: &[&str] = &[$($(stringify!($name)),*),*];
        static INTERFACE_TABLE: Interface =
            Interface { interface: INTERFACE, entries: [$($($module::$name as *const ()),*),*] };
    };
}

interface! {
    sessions: start stop set_auto_increment_prefetch set_wait_max_ms counters
        session_new session_free session_kill session_revive session_error session_error_table
        statement_begin send_at_once statement_flush prepare statement_roll_back commit roll_back savepoint roll_back_to duplicate
        renumbered;
    definitions: create_table drop_database drop_table rename_table truncate_table fence_table lift_fences discover table_names;
    tables: table_open table_close position_bytes statistics rows_per_value rows_in_range
        reserve_values leave_values has_met_rows value_used set_next_value next_value;
    cursors: cursor_new cursor_free cursor_reset use_columns set_wait set_may_look is_lacking unlock_shown lock_shown read_key read_position position set_condition scan_begin scan_next
        range_begin batch_clear batch_add batch_add_range batch_scan scan_range batch_run batch_row run_ahead row_ahead peek_ahead unlock_ahead peek_row insert
        defer_row send_deferred duplicate_row row_in_the_way has_deferred end_deferred update erase change_directly;
    information: information status;
}

/// The functions behind `vinga_engine.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_engine_interface() -> *const Interface {
    &raw const INTERFACE_TABLE
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn the_header_has_the_same_entries_in_the_same_order() {
        let header = include_str!("../../../plugin/vinga_engine.h");
        let (_, engine) = header.split_once("typedef struct vinga_engine {").expect("the struct is there");
        let names = engine.split("(*").skip(1).filter_map(|rest| Some(rest.split_once(")(")?.0));
        assert_eq!(names.collect::<Vec<_>>(), NAMES);
    }
}
