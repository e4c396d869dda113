//! What tests of data nodes, and the hostile load of `vinga bench`, are made with: a client that sends any bytes
//! ([`raw`]), and data nodes as processes ([`process`]).

pub mod process;
pub mod raw;
