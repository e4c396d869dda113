//! Data nodes with a disk, what is done to their files, and loads whose outcome can be checked.

pub mod backups;
pub mod durable;
pub mod image;
pub mod power;
