//! What this side needs of the SQL server: sort keys and its log.

use crate::failure::{Failure, Result, ha};
use std::ffi::c_void;

/// A collation of the server, which only the server looks into. Collations live as long as the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collation(pub *const c_void);

// SAFETY: collations are never changed once they are loaded, and only the server's own functions, which may be called from
// any thread, look into them.
unsafe impl Send for Collation {}
// SAFETY: as above.
unsafe impl Sync for Collation {}

/// `vinga_server` in `vinga_engine.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Server {
    /// Writes a sort key.
    pub sort_key: unsafe extern "C" fn(*const c_void, *const u8, usize, *mut u8, usize) -> usize,
    /// Writes a line into the log.
    pub log: unsafe extern "C" fn(i32, *const u8, usize),
}

impl Server {
    /// Appends the sort key of a value.
    ///
    /// # Errors
    /// If it is longer than `room`.
    pub fn sort_key(&self, collation: Collation, value: &[u8], room: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + room, 0);
        // SAFETY: the server writes at most `room` bytes, for which there is room, and reads the value's bytes.
        let length = unsafe {
            (self.sort_key)(collation.0, value.as_ptr(), value.len(), out[start..].as_mut_ptr(), room)
        };
        if length > room {
            out.truncate(start);
            let text = format!("the value's sort key is longer than the {room} bytes that the key has for it");
            return Err(Failure::new(ha::INDEX_COLUMN_TOO_LONG, text));
        }
        out.truncate(start + length);
        Ok(())
    }

    /// Writes a note into the log.
    pub fn note(&self, text: &str) {
        // SAFETY: the server copies the text.
        unsafe { (self.log)(0, text.as_ptr(), text.len()) }
    }

    /// Writes a warning into the log.
    pub fn warn(&self, text: &str) {
        // SAFETY: the server copies the text.
        unsafe { (self.log)(1, text.as_ptr(), text.len()) }
    }
}
