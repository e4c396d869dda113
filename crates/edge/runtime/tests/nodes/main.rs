//! Whole nodes with real sockets and files, whose blocks only echo, write or talk.

#[path = "../support/mod.rs"]
mod support;

mod end_to_end;
mod files;
mod formation;
mod shares;
