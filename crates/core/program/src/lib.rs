//! Programs that a client writes and a data node runs on rows: filters ([`filter`]), which accept or reject a row, and
//! updates ([`update_program`]), which make a new row of an old one.
//!
//! Both sides use this crate: clients build and encode programs, data nodes check and run them. It knows the layout of
//! rows, but not where they are stored. A program is received from a client, so it is checked completely before it
//! runs, and its cost is bounded.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod comparison;
pub mod filter;
mod stored_value;
#[cfg(test)]
mod test_rows;
pub mod update_program;
