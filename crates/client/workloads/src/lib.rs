//! Workloads as data: what sessions ask of a cluster, what they are answered, and whether the answers can be true.
//!
//! A [`workload::Workload`] brings tables and makes *sessions*; a session is asked for its next [`step::Step`] and is
//! given the answer to the last one. Who carries the steps out is the *runner's* business: the simulator does it with
//! clients in a virtual network, `crates/client/runner` with connections to a real cluster. The runner writes down in a
//! [`history::History`] what was asked and answered, and when; [`check`] decides whether any cluster that keeps its
//! promises could have answered so.
//!
//! Rows are made by [`shape::Shape`], so that a row read back says which transaction wrote it, and whether it is
//! whole.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bank;
pub mod check;
pub mod counter;
pub mod history;
pub mod key_value;
pub mod list_append;
pub mod picking;
pub mod range_scanning;
pub mod recording;
pub mod scan_ahead;
pub mod scanning;
pub mod schema_churn;
pub mod shape;
pub mod step;
pub mod unique_reading;
pub mod workload;
