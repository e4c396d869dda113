//! Who watches what a node does to its files: each call to the system that changes them, before it is made and when it
//! has returned.
//!
//! From what was seen so, a test makes the folder as a power cut could have left it at any moment
//! (`crates/vinga/tests/durability/power_loss.rs`). A node that runs as a process of its own has no observer: all that
//! is left of this then is one look at an `Option` for each call to the system.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// A call that changes files or folders. Paths are as they are given to the system.
#[derive(Clone, Copy, Debug)]
pub enum FileCall<'a> {
    /// A folder is made.
    MakeFolder(&'a Path),
    /// A file is made, which is empty.
    Create(&'a Path),
    /// These pieces are written, one behind the other, from an offset on.
    Write(&'a Path, u64, &'a [&'a [u8]]),
    /// The file gets this size at least.
    Grow(&'a Path, u64),
    /// What was written to the file, and its size, are forced to the disk.
    Flush(&'a Path),
    /// The names in a folder are forced to the disk.
    FlushFolder(&'a Path),
    /// A file gets another name, in place of the one that has it.
    Rename(&'a Path, &'a Path),
    /// A file's name is removed.
    Remove(&'a Path),
}

/// Watches what is done to files. It is called by several threads at the same time, but for one file never for two
/// calls at once.
pub trait FileObserver: Debug + Send + Sync {
    /// The call is about to be made. Returns a number for [`FileObserver::end`].
    fn begin(&self, call: FileCall<'_>) -> u64;

    /// The call with this number has returned, and has done all it was to do, or has failed.
    fn end(&self, number: u64, is_done: bool);
}

/// Whoever watches, if anybody does.
pub type Observer = Option<Arc<dyn FileObserver>>;

/// Makes a call, and shows it to the observer.
#[inline]
pub(crate) fn observed<T, E>(
    observer: &Observer,
    call: FileCall<'_>,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(observer) = observer else { return make() };
    let number = observer.begin(call);
    let result = make();
    observer.end(number, result.is_ok());
    result
}
