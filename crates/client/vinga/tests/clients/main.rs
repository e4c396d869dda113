//! The client against real data nodes of this process.

mod support;

mod blocking;
mod counting;
mod data_nodes;
mod derives;
mod drops;
mod encoded;
mod futures;
mod indexes;
mod leaving;
mod local;
mod locks;
mod schema;
mod sql_tables;
