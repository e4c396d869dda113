//! The C interface of the client, `vinga.h`, on top of the Rust client.
//!
//! | module | what is there |
//! |---|---|
//! | [`border`] | what comes over the border: pointers with their promises |
//! | [`handle`] | handles, which are checked before they are followed |
//! | [`failure`] | error numbers, classes, sentences |
//! | [`call`] | the three forms of a call that may wait |
//! | [`coroutine`] | calls that are put aside where they would wait |
//! | [`connection`] | waiting: on this thread, or in somebody else's event loop |
//! | [`cluster`], [`last_error`], [`table`], [`row`], [`value`], [`result_set`] | connecting, single operations, what is read and written |
//! | [`update`], [`filter`], [`range`] | what is done to rows, and which rows are meant |
//! | [`transaction`], [`tx_scan`], [`scan`], [`read_batch`], [`write_batch`], [`unique`], [`statistics`] | many rows |
//! | [`definition`], [`schema`], [`database`], [`schema_lock`], [`schema_events`] | the schema |
//!
//! What a function means, who owns what, and which threads may do what, stands in `include/vinga.h`, not here.
//!
//! Each call that may wait is one function in plain nested calls; where it would wait it calls
//! [`connection::Waiting::wait`]. Its blocking form runs it on the caller's stack, where waiting is that of the Rust
//! client; its non-blocking form runs it on a co-routine, where waiting means to be put aside. What came from C (keys,
//! names, rows) has been used up when a call waits for the first time: futures of the client encode what they are given
//! when they are polled first.
//!
//! No panic crosses the border: each entry catches it, and each co-routine inside of itself; the handle then has the
//! error `VINGA_ERROR_INTERNAL_ERROR`.

#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "pointers are followed in `border` and `handle` only")]

pub mod border;
pub mod call;
pub mod cluster;
pub mod connection;
pub mod coroutine;
pub mod database;
pub mod definition;
pub mod failure;
pub mod filter;
pub mod handle;
pub mod last_error;
pub mod range;
pub mod read_batch;
pub mod result_set;
pub mod row;
pub mod scan;
pub mod schema;
pub mod schema_events;
pub mod schema_lock;
pub mod statistics;
pub mod table;
pub mod transaction;
pub mod tx_scan;
pub mod unique;
pub mod update;
pub mod value;
pub mod write_batch;
