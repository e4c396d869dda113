//! The atomics of the rings: the standard ones, or those of the model checker `loom` in a build with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};

pub(crate) use std::sync::Arc as PlainArc;

/// A value on cache lines of its own. 128 bytes, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct OwnLine<T>(pub T);
