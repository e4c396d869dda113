//! The formats of files: what is written is read again, and damage is found.

#[path = "../support/mod.rs"]
mod support;

mod backups;
mod blocks;
mod damage;
mod documents;
mod image;
mod redo;
mod system_and_schema;
