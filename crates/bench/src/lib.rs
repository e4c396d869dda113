//! Measures Vinga, and other databases beside it on the same machine.
//!
//! | module | what is measured |
//! |---|---|
//! | [`flexasynch`] | many small operations by primary key: rate, latency, CPU of the data node for each |
//! | [`lookup`] | one lookup at a time |
//! | [`scan`] | full scans, filtered and not |
//! | [`memory`] | bytes of memory for a row |
//! | [`start`] | cold start of a data node |
//! | [`durable`] | what a disk costs, restarts, checkpoints |
//! | [`replicas`] | what a second replica of each row costs |
//! | [`failover`] | how long nothing is answered when a data node fails |
//! | [`restart`] | how soon a data node that was killed is a full member again, and what that costs |
//! | [`rolling`] | whether clients notice that all data nodes are restarted, one after the other |
//! | [`reorganize`] | what it costs that partitions move to a node group that was added |
//! | [`hostile`] | a well-behaved client beside a hostile one |
//! | [`nonblocking`] | the non-blocking C interface against the blocking one |
//! | [`spike`] | building blocks alone |
//! | [`redis`] | the peer |
//! | [`all`] | all of these in turn, and `summary.json` |
//! | [`compare`] | two results |
//! | [`goals`] | goals of the figures |
//!
//! [`commands`] makes them subcommands of `vinga bench`. A result is a [`report::Report`] with [`figure::Figure`]s.
//! Benchmarks use a database through [`target::Target`]. Processes that are started for a measurement are bounded and
//! do not outlive it ([`process`]).

pub mod ab;
pub mod all;
pub mod cluster;
pub mod commands;
pub mod compare;
mod count;
pub mod cpu_time;
mod disturbance;
pub mod durable;
pub mod failover;
pub mod failure;
pub mod figure;
pub mod flexasynch;
pub mod goals;
pub mod hostile;
pub mod idle;
pub mod keys;
pub mod latency;
pub mod load;
pub mod lookup;
pub mod machine;
pub mod machine_use;
pub mod memory;
pub mod meter;
mod models;
pub mod node;
pub mod nonblocking;
pub mod process;
pub mod progress;
pub mod ranges;
pub mod redis;
pub mod reorganize;
pub mod replicas;
pub mod report;
pub mod restart;
pub mod rolling;
pub mod scan;
pub mod spike;
pub mod sql;
pub mod sql_server;
pub mod start;
pub mod summary;
pub mod sysbench;
pub mod target;
pub mod tpcb;
pub mod updates;
pub mod upserts;
pub mod vinga_target;

#[cfg(test)]
mod fake_target;
