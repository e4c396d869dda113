//! What tests of data nodes, and the hostile load of `vinga bench`, are made with: a client that sends any bytes
//! ([`raw`]), data nodes as processes ([`process`]), and hosts with a network between them that fails ([`network`]).

pub mod network;
pub mod process;
pub mod raw;
