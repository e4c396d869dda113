//! Clusters of several data nodes, each a process: what clients and administrators see, also when some fail.

mod bank;
#[allow(dead_code, reason = "each test program uses its part of it")]
#[path = "../support/mod.rs"]
mod support;

mod admin_of_several;
mod admin_tools;
mod arbitrators;
mod cluster;
mod cluster_clients;
mod cluster_key;
mod cluster_kills;
mod growing;
mod histories;
mod leaving;
mod loads;
mod networks;
mod restarts;
mod returning;
mod several_data_nodes;
mod upgrading;
