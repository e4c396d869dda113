//! What is on disk and what is restored from it: restarts, power cuts, damaged files, backups.

#[allow(dead_code, reason = "each test program uses its part of it")]
#[path = "../support/mod.rs"]
mod support;
mod tools;

mod backup;
mod backup_definitions;
mod backup_sql;
mod damaged_folders;
mod durable;
mod durable_files;
mod durable_limits;
mod durable_memory;
mod durable_stop;
mod full_log;
mod inspect;
mod inspect_folder;
mod power_loss;
