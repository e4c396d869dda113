//! Answers of files to blocks. What blocks ask for is no frame: see `vinga_kernel::files`.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `FileConfirm` | driver | the block that asked | the task is done |
//! | `FileRefuse` | driver | the block that asked | the task has failed |
//! | `StopNodeOrder` | any block | driver | the node can't go on: log the reason, end the process |
//!
//! Each task is answered once. A block that asks for several tasks on the same file gets them done, and answered, in
//! their order.

use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Body of `FileConfirm`. What was read is handed over beside it (`Context::take_file_data`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FileConfirm {
    /// The block's identifier of the task.
    pub token: U64,
}

/// What kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileErrorKind {
    /// There is no such file.
    NotFound,
    /// The disk has no room.
    DiskFull,
    /// The node may not use the file or its folder.
    NotPermitted,
    /// The disk has failed.
    Failed,
}

/// Body of `FileRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRefuse {
    /// The block's identifier of the task.
    pub token: u64,
    /// What kind of failure.
    pub kind: FileErrorKind,
    /// For people: task, path and the system's reason.
    pub text: String,
}

/// What to do when the system does not permit a node to use its files.
pub const NEEDS_PERMISSION: &str =
    "the user that runs the data node needs permission to read and write it and the folder that it is in";

impl FileRefuse {
    /// What has failed, for people, and what to do if that was not permitted.
    pub fn describe(&self) -> String {
        match self.kind {
            FileErrorKind::NotPermitted => format!("{}: {NEEDS_PERMISSION}", self.text),
            FileErrorKind::NotFound | FileErrorKind::DiskFull | FileErrorKind::Failed => self.text.clone(),
        }
    }
}

/// Body of `StopNodeOrder` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StopNodeOrder {
    /// For people: why the node can't go on, and what to do.
    pub reason: String,
    /// The number of an error, if it is one that programs have to know; 0 if not.
    pub error: u16,
}
