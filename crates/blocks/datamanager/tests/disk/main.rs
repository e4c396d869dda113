//! A data manager with a disk: checkpoints, backups, restarts.

#[path = "../support/mod.rs"]
mod support;

mod backups;
mod checkpoints;
mod memory_of_restarts;
