//! A data node is killed (`kill -9`) while rows are updated.
//!
//! The system says at once that its process has ended, so no time-out passes and nobody arbitrates. Every update is
//! committed on both nodes, so none can go on before the other node has taken over.

use super::FailoverOptions;
use super::outage::{self, Outage};
use crate::cluster::ClusterProgram;
use crate::failure::Result;
use crate::node::NodeProgram;
use crate::progress::Progress;
use rustix::process::Signal;
use std::time::Duration;

/// How long updates go on after the kill.
const AFTER: Duration = Duration::from_secs(2);

/// Runs all repetitions.
///
/// # Errors
/// A cluster does not start, or does not go on after a node was killed.
pub fn run(node: &NodeProgram, options: &FailoverOptions, progress: &mut Progress) -> Result<Vec<Outage>> {
    let cluster = ClusterProgram::two_replicas(node.clone());
    options.repeat(progress, outage::line, |victim| {
        outage::measure(&cluster, options, victim, (Signal::KILL, AFTER))
    })
}
