//! The deterministic simulator: a whole cluster in one thread of the operating system, from one seed.
//!
//! Data nodes run their real blocks: each of their threads is an executor that is fed, as the edge would feed it, with
//! frames that come through [`pipe`]s: rings, links between data nodes, connections of API nodes. API nodes run
//! sessions of `vinga-workloads`. A [`profile::Profile`] that follows from the seed says how large all of it is and
//! what goes wrong. A run loads tables, works under faults, lets everything come to its end, and then checks
//!
//! - that nothing is left of any transaction, scan, lock or marker, and all replicas are equal ([`rest`]);
//! - that backups never showed more than their primary had shown (`backups`, looked at all the time);
//! - that some cluster which keeps its promises could have given all the answers (`vinga_workloads::check`);
//! - that the workloads find what they expect;
//! - that backups which clients have made are the state of one moment (`online_backups`).
//!
//! The same seed in the same build gives the same history, to the byte: see [`Report::hash`].

mod additions;
pub mod agenda;
mod api;
mod backups;
mod clock;
mod connection;
pub mod coverage_marks;
mod decisions;
pub mod disk;
mod failure;
mod fault;
mod files;
mod going_on;
pub mod injected_bugs;
mod join_points;
mod management;
mod nemesis;
mod online_backups;
mod operator;
pub mod pipe;
pub mod profile;
pub mod range;
mod rest;
mod restart;
mod returns;
pub mod run;
mod schema;
mod stops;
mod thread;
mod topology;
mod world;

pub use run::{Options, Report, run_seed, run_twice};
