//! The services of the SQL server that this side uses: sort keys, its log, its caches and its databases.
//!
//! All of these except sort keys are also used by this side's own threads, which the server does not know: when it
//! shuts down it would free its caches while they use them. Therefore their calls pass a gate, which closes before
//! that. Closing waits for the calls inside; later calls do nothing, which is harmless as nothing depends on them any
//! more.

use crate::abi::{RowTaker, Slice};
use crate::failure::{Failure, Result, ha};
use std::ffi::c_void;
use std::sync::RwLock;

/// A collation of the server, opaque to this side. Collations live as long as the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collation(pub *const c_void);

// SAFETY: collations are never changed once they are loaded, and only the server's own functions read them, which may
// be called from any thread.
unsafe impl Send for Collation {}
// SAFETY: as above.
unsafe impl Sync for Collation {}

/// Of which databases something is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Databases {
    /// Those that are new in the server, or have new options, since the last call; none at the first call.
    New,
    /// All.
    All,
}

/// `vinga_server` in `vinga_engine.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Server {
    /// Size of this struct on the C++ side.
    pub bytes: u32,
    /// Writes a sort key.
    pub sort_key: unsafe extern "C" fn(*const c_void, *const u8, usize, *mut u8, usize) -> usize,
    /// Writes a line into the log.
    pub log: unsafe extern "C" fn(i32, *const u8, usize),
    /// Forgets the definition of a table.
    pub forget: unsafe extern "C" fn(*const u8, usize),
    /// Returns names and versions of cached definitions.
    pub cached_tables: unsafe extern "C" fn(RowTaker, *mut c_void),
    /// Forgets the cached definition of a table.
    pub forget_cached: unsafe extern "C" fn(*const u8, usize),
    /// Removes files with definitions; returns whether none is left.
    pub remove_definitions: unsafe extern "C" fn() -> u8,
    /// Drops the triggers of a table.
    pub drop_triggers: unsafe extern "C" fn(*const u8, usize),
    /// Creates a database, or sets its options.
    pub make_database: unsafe extern "C" fn(Slice, Slice),
    /// Removes a database, if it is empty.
    pub remove_database: unsafe extern "C" fn(Slice),
    /// Returns names and options of new and changed databases.
    pub new_databases: unsafe extern "C" fn(u8, RowTaker, *mut c_void),
}

/// `VINGA_SORT_KEY_FAILED`
const SORT_KEY_FAILED: usize = usize::MAX - 1;

/// Whether the server is shutting down.
static IS_ENDING: RwLock<bool> = RwLock::new(false);

const NO_PANIC: &str = "nothing panics inside the gate";

/// Opens the gate, or closes it: then no call is inside any more.
pub fn set_ending(is_ending: bool) {
    *IS_ENDING.write().expect(NO_PANIC) = is_ending;
}

/// Runs `work`, unless the server is shutting down.
fn with_server(work: impl FnOnce()) {
    let is_ending = IS_ENDING.read().expect(NO_PANIC);
    if !*is_ending {
        work();
    }
}

/// Appends a row of two values to a list of names, each with some bytes.
unsafe extern "C" fn take_pair(context: *mut c_void, row: *const Slice, count: u32) -> i32 {
    // SAFETY: callers pass such a list as the context, and the row has this many values.
    let (found, row) = unsafe {
        (&mut *context.cast::<Vec<(String, Vec<u8>)>>(), std::slice::from_raw_parts(row, count as usize))
    };
    if let [name, bytes] = row {
        found.push((name.text(), bytes.get().to_vec()));
    }
    0
}

impl Server {
    /// Appends the sort key of a value.
    ///
    /// # Errors
    /// If it is longer than `room`, or the server has no memory for it.
    pub fn sort_key(&self, collation: Collation, value: &[u8], room: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if self.sort_key_within(collation, value, room, out)? {
            return Ok(());
        }
        out.truncate(start);
        let text = format!("the value's sort key is longer than the {room} bytes that the key has for it");
        Err(Failure::new(ha::INDEX_COLUMN_TOO_LONG, text))
    }

    /// Appends the sort key of a value as far as there is room; returns whether it is complete.
    ///
    /// # Errors
    /// If the server has no memory for it.
    pub fn sort_key_within(
        &self,
        collation: Collation,
        value: &[u8],
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        out.resize(start + room, 0);
        // SAFETY: the server writes at most `room` bytes, which are reserved, and reads the value's bytes.
        let length = unsafe {
            (self.sort_key)(collation.0, value.as_ptr(), value.len(), out[start..].as_mut_ptr(), room)
        };
        if length == SORT_KEY_FAILED {
            out.truncate(start);
            return Err(Failure::new(ha::OUT_OF_MEMORY, "the SQL node has no memory for a sort key"));
        }
        out.truncate(start + length.min(room));
        Ok(length <= room)
    }

    /// Makes the server forget the definition of a table, `database.table`.
    pub fn forget(&self, table: &str) {
        // SAFETY: the server copies the name.
        with_server(|| unsafe { (self.forget)(table.as_ptr(), table.len()) });
    }

    /// The tables whose definitions the server has cached, and the versions of these.
    pub fn cached_tables(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        // SAFETY: the list is valid during the call.
        with_server(|| unsafe { (self.cached_tables)(RowTaker::new(take_pair), (&raw mut found).cast()) });
        found
    }

    /// Makes the server forget the cached definition of a table, `database.table`, but not the file that it has while a
    /// statement has locked the table.
    pub fn forget_cached(&self, table: &str) {
        // SAFETY: the server copies the name.
        with_server(|| unsafe { (self.forget_cached)(table.as_ptr(), table.len()) });
    }

    /// Removes the files with definitions that statements of the server have left; returns whether none is left. Those
    /// of tables that are locked stay.
    pub fn remove_definitions(&self) -> bool {
        let mut is_done = true;
        // SAFETY: it has no arguments.
        with_server(|| is_done = unsafe { (self.remove_definitions)() } != 0);
        is_done
    }

    /// Drops the triggers that the server has for a dropped table, `database.table`.
    pub fn drop_triggers(&self, table: &str) {
        // SAFETY: the server copies the name.
        with_server(|| unsafe { (self.drop_triggers)(table.as_ptr(), table.len()) });
    }

    /// Creates a database in the server, or sets its options.
    pub fn make_database(&self, name: &str, options: &[u8]) {
        // SAFETY: the server copies both.
        with_server(|| unsafe { (self.make_database)(Slice::of(name.as_bytes()), Slice::of(options)) });
    }

    /// Removes a database of the server, if it is empty.
    pub fn remove_database(&self, name: &str) {
        // SAFETY: the server copies the name.
        with_server(|| unsafe { (self.remove_database)(Slice::of(name.as_bytes())) });
    }

    /// Names and options of databases. Only one thread may call it.
    pub fn databases(&self, which: Databases) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        // SAFETY: the list is valid during the call.
        with_server(|| unsafe {
            (self.new_databases)(
                u8::from(which == Databases::All),
                RowTaker::new(take_pair),
                (&raw mut found).cast(),
            );
        });
        found
    }

    /// Writes a note into the log.
    pub fn note(&self, text: &str) {
        // SAFETY: the server copies the text.
        with_server(|| unsafe { (self.log)(0, text.as_ptr(), text.len()) });
    }

    /// Writes a warning into the log.
    pub fn warn(&self, text: &str) {
        // SAFETY: the server copies the text.
        with_server(|| unsafe { (self.log)(1, text.as_ptr(), text.len()) });
    }
}
