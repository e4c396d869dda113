//! The Rust half of the storage engine for MariaDB: everything that does not have to be in the server's own C++.
//!
//! `crates/sql/plugin/vinga_engine.h` is the interface between the halves; [`abi`] is its Rust side, which only
//! converts: pointers to references, panics to errors. The other modules:
//!
//! | module | contents |
//! |---|---|
//! | [`node`] | the state of the whole SQL node: connections, counters, the watchdog |
//! | [`session`] | a connection of the server: its transaction, and changes that are sent together |
//! | [`table`] | an open table |
//! | [`cursor`] | one use of it: reads by key, batches, scans, changes |
//! | [`definition`] | translates the server's description of a table to the data nodes' |
//! | [`native_tables`] | the SQL definition of tables that native clients have created |
//! | [`sayable`] | which tables have names and types that SQL can represent |
//! | [`schema`] | operations on whole tables: create, drop, look up |
//! | [`copying`] | statements that copy a table, which no other client may change meanwhile, and then replace it |
//! | [`leftovers`] | tables that are to be dropped once the data nodes are back |
//! | [`backoff`] | backoff after conflicts with a change of a table's definition |
//! | [`plan`] | converts records and keys of the server to rows and keys, and back |
//! | [`condition`] | conditions that the data nodes check |
//! | [`auto_increment`] | values of auto-increment columns |
//! | [`presence`] | which connection of the server has which transaction |
//! | [`waiting`] | waits that end by a kill or a time-out |
//! | [`databases`] | databases that users create |
//! | [`folder_watch`] | notices new and altered databases by means of the operating system |
//! | [`cached_tables`] | which definitions that the server has cached are still right |
//! | [`schema_watch`] | follows the schema changes of other SQL nodes |
//! | [`failure`] | errors in the form in which the server knows them |
//! | [`status`] | the text of `SHOW ENGINE VINGA STATUS` |

pub mod abi;
pub mod auto_increment;
pub mod backoff;
pub mod cached_tables;
mod condition;
pub mod copying;
pub mod cursor;
pub mod databases;
pub mod definition;
pub mod disk;
pub mod failure;
pub mod folder_watch;
pub mod leftovers;
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
