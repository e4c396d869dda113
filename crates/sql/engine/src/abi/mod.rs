//! The Rust side of `crates/sql/plugin/vinga_engine.h`, which documents each entry. A change on one side must be
//! made on both.
//!
//! | module | contents |
//! |---|---|
//! | [`layout`] | the data that is passed: structs, texts, records, keys |
//! | [`sessions`] | the node as a whole, sessions, transactions |
//! | [`definitions`] | creating, changing and looking up tables |
//! | [`tables`] | open tables: statistics, auto-increment values |
//! | [`cursors`] | reading and changing rows |
//! | [`information`] | information about the data nodes |
//!
//! An entry is written with [`entries!`]: a Rust function that takes the C side's pointers as references and returns a
//! [`Result`]. The macro adds the rest: a null session is refused, a failure is stored in the session, and a panic (a
//! bug of ours) ends the statement with an internal error, not the server. Entries that can't fail catch panics with
//! `calm`. Only if the allocator of this side runs out of memory does the process end, as Rust does not unwind then.

mod cursors;
mod definitions;
mod information;
mod layout;
mod sessions;
mod tables;

pub use layout::{RowTaker, Slice};

use crate::failure::{Failure, Result, ha};
use crate::node::node;
use crate::session::Session;
use std::panic::{AssertUnwindSafe, catch_unwind};

const INTERFACE: u32 = 21;

/// The result of an entry that did not fail.
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

/// The result of a read: whether there was a row.
struct Found {
    is_found: bool,
    otherwise: i32,
}

impl Outcome for Found {
    fn number(self) -> i32 {
        if self.is_found { 0 } else { self.otherwise }
    }
}

/// Runs `work` for a session, and stores a failure in the session.
#[inline]
fn enter<T: Outcome>(session: Option<&mut Session>, work: impl FnOnce(&mut Session) -> Result<T>) -> i32 {
    let Some(session) = session else { return ha::NO_CONNECTION };
    match guarded(|| work(session)) {
        Ok(outcome) => outcome.number(),
        Err(failure) => calm_or(internal_error(), || session.fail(failure)),
    }
}

/// Runs `work`; a panic becomes an error that ends the whole transaction, as its cause is not known.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = text_of(&*panic);
        warn(&text);
        Err(Failure::new(internal_error(), text).doomed())
    })
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    format!("an internal error of the storage engine: {}", panic_text(panic))
}

/// Writes a warning into the server's log, if the engine has been started.
fn warn(text: &str) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(node) = node() {
            node.server.warn(text);
        }
    }));
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

/// Runs `work`, which can't fail; a panic is logged and gives the default.
#[inline]
fn calm<T: Default>(work: impl FnOnce() -> T) -> T {
    calm_or(T::default(), work)
}

/// Like [`calm`], with another result for a panic.
#[inline]
fn calm_or<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        warn(&text_of(&*panic));
        otherwise
    })
}

/// Defines entries for a session, which may fail. The session stands behind the `;` among the arguments of the C
/// function, and those before it come first.
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

/// The struct of function pointers. Their types are those of `vinga_engine.h`, in its order; `tests/header.rs` compares
/// them.
#[repr(C)]
pub struct Interface {
    interface: u32,
    bytes: u32,
    entries: [*const (); NAMES.len()],
}

// SAFETY: it contains only addresses of functions, and is never changed.
unsafe impl Sync for Interface {}

macro_rules! interface {
    ($($module:ident: $($name:ident)*;)*) => {
        const NAMES: &[&str] = &[$($(stringify!($name)),*),*];
        static INTERFACE_TABLE: Interface =
            Interface { interface: INTERFACE, bytes: size_of::<Interface>() as u32, entries: [$($($module::$name as *const ()),*),*] };
    };
}

interface! {
    sessions: start stop set_auto_increment_prefetch set_wait_max_ms counters
        session_new session_free session_kill session_revive session_error session_error_table
        statement_begin send_at_once statement_flush prepare set_durable statement_roll_back commit roll_back savepoint roll_back_to duplicate
        renumbered;
    definitions: create_table drop_database drop_table rename_table truncate_table fence_table lift_fences discover table_names;
    tables: table_open table_close position_bytes statistics analyze rows_per_value rows_in_range
        reserve_values leave_values has_met_rows value_used set_next_value next_value;
    cursors: cursor_new cursor_free cursor_reset use_columns set_wait set_may_look is_lacking unlock_shown lock_shown read_key read_position position set_condition scan_begin count_rows count_ranges scan_next
        range_begin batch_clear batch_add batch_add_range batch_scan scan_range batch_run batch_row run_ahead row_ahead peek_ahead unlock_ahead peek_row insert
        defer_row send_deferred duplicate_row row_in_the_way has_deferred end_deferred update erase change_directly;
    information: information status;
}

/// The function table that `vinga_engine.h` declares.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_engine_interface() -> *const Interface {
    &raw const INTERFACE_TABLE
}

#[cfg(test)]
mod tests;
