//! Membership alone, with everything around it scripted: scenarios signal by signal, and models of whole clusters.

mod cluster;
mod common;

mod greetings;
mod incarnations;
mod model;
mod other_data_node;
mod random_courses;
mod scenarios;
mod skipped_views;
mod successions;
