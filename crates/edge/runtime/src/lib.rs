//! w
pub mod parker;
pub mod ring;
mod sync;
