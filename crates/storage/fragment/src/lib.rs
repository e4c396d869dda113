//! Storage inside a data manager: rows, their indexes and their locks.
//!
//! Single-threaded plain data: no latches, no signals, no nodes, no time. Memory comes from a page pool that can
//! refuse; every call that may need a page returns that as an error and then leaves everything unchanged.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod chunk_store;
pub mod fragment;
pub mod fragment_index;
pub mod hash_index;
pub mod lock_table;
pub mod ordered_index;
mod page_table;
pub mod page_view;
pub mod row;
pub mod row_store;
pub mod row_version;
