//! Nothing counts behind a failed write or flush.
//!
//! When a write or flush of a block's files has failed, nobody knows what of them is on the disk, and a later flush
//! that succeeds says nothing about it: the system may have forgotten what it could not write. So it is never tried
//! again: the node stops. Until it has stopped, its blocks are still answered; whatever these answers say, nothing may
//! be confirmed to anybody because of them.

use crate::Context;
use vinga_wire::ErrorCode;
use vinga_wire::file::{FileErrorKind, FileRefuse};

/// Whether a write or flush of a block's files has failed.
#[derive(Default, Debug)]
pub struct FailedWrites {
    has_failed: bool,
}

impl FailedWrites {
    /// One has failed: the node is to stop. `what` names what was to be written.
    pub fn stop_node(&mut self, cx: &mut Context<'_>, what: &str, refuse: &FileRefuse) {
        self.has_failed = true;
        let error = match refuse.kind {
            FileErrorKind::NotPermitted => ErrorCode::FileNotPermitted,
            FileErrorKind::DiskFull => ErrorCode::DiskFull,
            FileErrorKind::NotFound | FileErrorKind::Failed => ErrorCode::FileFailed,
        };
        cx.stop_node_for(error as u16, format_args!("{what} can't be written: {}", refuse.describe()));
    }

    /// Whether one has failed: then no answer about files counts.
    pub fn is_any(&self) -> bool {
        self.has_failed
    }
}
