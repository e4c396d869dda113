//! Whole nodes with real sockets and files, whose blocks only echo, write or talk.

#[path = "../support/mod.rs"]
mod support;

mod arbitrators;
mod end_to_end;
mod files;
mod formation;
mod joining;
mod keys;
mod raw_links;
mod shares;
mod talker;
