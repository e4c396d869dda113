//! Cold starts of two data nodes with two replicas: from nothing to a cluster that serves.
//!
//! Folders are empty, and parameters are the defaults. The time runs from before the processes are made until both
//! nodes have announced their addresses; then a client connects, to verify that they serve.

use crate::cluster::ClusterProgram;
use crate::failure::Result;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::vinga_target::VingaTarget;

/// Starts and stops clusters; returns seconds.
///
/// # Errors
/// A node does not start, or the cluster does not serve.
pub fn run(program: &NodeProgram, loops: u32, progress: &mut Progress) -> Result<Vec<f64>> {
    let program = NodeProgram { data_memory: None, ..program.clone() };
    let program = ClusterProgram::two_replicas(program.beside("start"));
    (1..=loops)
        .map(|number| {
            let cluster = program.start()?;
            let seconds = cluster.ready_after().as_secs_f64();
            VingaTarget::connect(&cluster.addresses())?;
            cluster.stop()?;
            progress.line(&format!("  {number}/{loops} start of two data nodes to ready {seconds:.3} s"));
            Ok(seconds)
        })
        .collect()
}
