//! Single data nodes and SQL nodes as processes, and the commands that start, show and stop them.

#[allow(dead_code, reason = "each test program uses its part of it")]
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod bench;
mod cluster_folder;
mod command_line;
mod handed_out;
mod local;
mod lookups;
mod newcomer;
mod other_users;
mod scheduling_and_kills;
mod sql_nodes;
mod stops;
mod threads;
