//! The bytes of everything durable: redo log, checkpoints, system file, definitions, backups.
//!
//! All files consist of sealed blocks ([`block`]). This crate makes and reads them, in memory only: who writes them
//! where and when is decided elsewhere. Readers are given bytes that may be anything, and answer with errors that say
//! what is wrong; they never panic and take no memory for what bytes merely claim. `docs/formats` describes each
//! format, and a test compares the two.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod backup;
pub mod backup_rows;
pub mod block;
pub mod block_writer;
pub mod checksum;
mod cold;
pub mod format;
pub mod image;
pub mod image_reader;
pub mod image_writer;
pub mod log_cursor;
pub mod malformed;
pub mod redo;
pub mod schema;
pub mod schema_choice;
pub mod system;

pub use block::{Block, BlockError, Head, Origin, read_block};
pub use block_writer::BlockWriter;
pub use checksum::Checksum;
pub use format::{BlockKind, Format};
pub use malformed::Malformed;
