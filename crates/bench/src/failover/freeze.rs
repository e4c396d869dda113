//! A data node stands still (`SIGSTOP`) while rows are updated, with default parameters.
//!
//! Its process exists and its connections stay open, so only time says that it has failed: the other node suspects it
//! after four intervals of `HeartbeatIntervalDbDb`, and then has to know that this one does not go on without it. So
//! the cluster has a management node that arbitrates, as `vinga up` makes one where there are several replicas. The
//! node is killed at the end: if it ran again it would stop by itself.

use super::FailoverOptions;
use super::outage::{self, Outage};
use crate::cluster::ClusterProgram;
use crate::failure::Result;
use crate::node::NodeProgram;
use crate::progress::Progress;
use rustix::process::Signal;
use std::time::Duration;

/// How long updates go on after the node was stopped.
const AFTER: Duration = Duration::from_secs(5);

/// Runs all repetitions.
///
/// # Errors
/// A cluster does not start, or does not go on without the node that stands still.
pub fn run(node: &NodeProgram, options: &FailoverOptions, progress: &mut Progress) -> Result<Vec<Outage>> {
    let cluster = ClusterProgram { management_nodes: 1, ..ClusterProgram::two_replicas(node.clone()) };
    options.repeat(progress, outage::line, |victim| {
        outage::measure(&cluster, options, victim, (Signal::STOP, AFTER))
    })
}
