//! The Rust half of the storage engine for MariaDB: everything that can live outside the server's own C++.
//!
//! `crates/sql/plugin/vinga_engine.h` is the interface between the halves; [`abi`] is its Rust side, where nothing but
//! conversion happens: pointers to references, panics to errors. Behind it:
//!
//! | module | does |
//! |---|---|
//! | [`node`] | what the SQL node shares: connections, counters, the watchdog |
//! | [`session`] | a connection of the server: its transaction, changes that are sent together |
//! | [`table`] | an open table |
//! | [`cursor`] | one use of it: reads by key, batches, scans, changes |
//! | [`definition`] | the server's description of a table to the data nodes' |
//! | [`native_tables`] | what SQL has of tables that native clients have made |
//! | [`sayable`] | which tables have names and types of SQL |
//! | [`schema`] | tables as a whole: made, dropped, found |
//! | [`fences`] | tables that are copied, which others may not change meanwhile |
//! | [`holding_off`] | pauses of those who meet a change of a table's definition |
//! | [`plan`] | records and keys of the server to rows and keys, and back |
//! | [`condition`] | conditions that the data nodes check |
//! | [`auto_increment`] | values of auto-increment columns |
//! | [`presence`] | which connection of the server has which transaction |
//! | [`waiting`] | waits that a kill or a time-out ends |
//! | [`databases`] | databases that users create |
//! | [`folder_watch`] | the system's notices of them |
//! | [`schema_watch`] | what other SQL nodes do to tables |
//! | [`failure`] | errors as the server knows them |
//! | [`status`] | what `SHOW ENGINE VINGA STATUS` says |

pub mod abi;
pub mod auto_increment;
pub mod condition;
pub mod cursor;
pub mod databases;
pub mod definition;
pub mod failure;
pub mod fences;
pub mod folder_watch;
pub mod holding_off;
pub mod native_tables;
pub mod node;
pub mod plan;
pub mod presence;
pub mod row_name;
pub mod sayable;
pub mod schema;
pub mod schema_watch;
pub mod server;
pub mod session;
pub mod status;
pub mod table;
pub mod waiting;
