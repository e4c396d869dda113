//! Filter programs: the condition on the rows that a client wants from a scan or read.
//!
//! The steps of a filter:
//! 1. The client builds a [`tree::Expression`] and encodes it ([`codec::encode`]), together with the parameters: values
//!    that change from call to call.
//! 2. The data node decodes it and puts the parameters in ([`codec::decode`]), bounded in time and memory.
//! 3. [`Program::new`] checks the types against the table's layout and lowers the tree: NOT is pushed to the leaves,
//!    constants are folded, ranges of one column are joined, cheap leaves come first.
//! 4. [`Program::select`] evaluates it over a block of rows, [`Program::matches`] over one row.
//!
//! [`Program::read`] does 2 and 3 at once, in a faster way if the filter is plain (`plain.rs`).
//!
//! Every error of a client is a [`ProgramError`] that names its position.

mod bytes_test;
mod check;
pub mod codec;
mod error;
mod evaluate;
mod kernels;
mod lower;
mod number_test;
mod numbers;
mod plain;
mod row_block;
#[cfg(test)]
mod tests;
pub mod tree;

pub use error::{Position, ProgramError, ProgramErrorKind, ValueType};
pub use evaluate::Program;
pub use row_block::{NoVariable, ROWS_MAX, RowBlock, VariableSource};

/// Bytes of an encoded filter, parameters included, at most: messages give its length in 16 bits.
pub const PROGRAM_BYTES_MAX: usize = u16::MAX as usize;
/// Nodes of a program, at most. Each operation, column, constant and parameter is a node, and each parameter value,
/// too.
pub const NODES_MAX: usize = 4096;
/// Levels of a program, at most: limits the depth of recursion over it.
pub const DEPTH_MAX: usize = 64;
/// Bytes in all constants of a program after parameters were replaced by their values (each use counts), at most.
pub const CONSTANT_BYTES_MAX: usize = 64 * 1024;
/// The version of the encoded form.
pub const VERSION: u8 = 1;
