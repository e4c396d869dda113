//! The configuration of a data node: from a file, flags and the machine's resources to a checked configuration.
//!
//! ```text
//! file text ──► ConfigFile ─┐                              ┌─ ThreadConfig            ─┐
//! flags ────────────────────┼─► Parameters ──► threads by ─┼─ MaxNoOfExecutionThreads ─┼─► Placement
//! Machine ──────────────────┘                              └─ automatic               ─┘
//! ```
//! [`Configuration::new`] is the entry point: it takes the three inputs on the left and returns the parameters, the
//! placement and the warnings, or all errors. Nothing here reads files, asks the operating system or panics on bad
//! input: the edge reads the text and describes the [`Machine`], and every error is a [`ConfigError`] that quotes the
//! offending piece, says where it stands and what is allowed there.
//!
//! | module | subject |
//! |---|---|
//! | [`configuration`] | the complete configuration |
//! | [`machine`] | resources that the process may use |
//! | [`parameters`] | the table of all parameters: names, limits, defaults, meaning; the values of one node |
//! | [`value`] | one value: kinds, units, how text becomes a value |
//! | [`mod@file`] | the configuration file |
//! | [`data_nodes`] | all data nodes of the file, and their node groups |
//! | [`management`] | the management nodes of the file; what one of them is configured with |
//! | [`threads`] | kinds of threads and groups of equal threads |
//! | [`thread_config`] | the grammar of `ThreadConfig` |
//! | [`execution_threads`] | the table behind `MaxNoOfExecutionThreads` |
//! | [`automatic`] | threads from the number of CPUs |
//! | [`placement`] | which thread hosts what |
//! | [`cpus`] | CPU numbers, lists and sets |
//! | [`config_error`] | what is wrong, where, and the nearest name |
//! | [`describe`] | the reference page and the table of current values |
#![no_std]

extern crate alloc;

pub mod automatic;
pub mod binding;
pub mod config_error;
pub mod configuration;
pub mod cpus;
pub mod data_nodes;
pub mod describe;
pub mod execution_threads;
pub mod file;
pub mod links;
pub mod machine;
pub mod management;
mod ndb_parameters;
mod node_ids;
pub mod parameters;
pub mod placement;
mod sections;
pub mod thread_config;
pub mod threads;
pub mod value;

pub use config_error::{ConfigError, ConfigErrors, Origin, ParameterError};
pub use configuration::Configuration;
pub use cpus::{Cpu, CpuSet};
pub use data_nodes::{DataNode, DataNodes};
pub use file::ConfigFile;
pub use links::Link;
pub use machine::Machine;
pub use management::{ConfiguredNodes, ManagementConfiguration, ManagementNode};
pub use parameters::{Parameter, Parameters};
pub use placement::{Affinity, Placement, Scheduling, ThreadPlan};
pub use threads::ThreadKind;
