//! The client's part of the protocols, with data nodes that are written by hand or scripted.

mod rig;
mod world;

mod every_token_ends_once;
mod information;
mod leaving;
mod locks_and_fences;
mod lost_connections;
mod lost_data_nodes;
mod ranges;
mod read_backup;
mod refused_scans;
mod restarted_clusters;
mod scenarios;
