//! What the blocks of data nodes do together, signal by signal, in a cluster without delays.

#[macro_use]
#[allow(dead_code, reason = "other test programs need more of it")]
#[path = "../support/mod.rs"]
mod support;

mod api_nodes;
mod copying;
mod copying_model;
mod cut_log;
mod full_log;
mod handover;
mod hazards;
mod joining;
mod last_replica;
mod leaving;
mod leaving_model;
mod ordered_indexes;
mod protocols;
mod read_backup;
mod reorganizing;

mod schema_changes;
mod serialisability;
mod sliced_ends;
mod take_over;
mod unique;
mod unique_model;
