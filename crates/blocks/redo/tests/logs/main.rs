//! The redo log on files in memory, which lose what was not flushed.

mod support;

mod checkpoints;
mod full_and_cut_logs;
mod streams;
mod torn_heads;
