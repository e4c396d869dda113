//! Restarts of all data nodes, one after the other. The measurement is whoever keeps them running: it starts them
//! again.

use crate::cluster::{ClusterProgram, RunningCluster};
use crate::failure::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{DataNode, NodeId, ShutdownTerms};
use vinga_runtime::node_process::EXIT_START_AGAIN;

/// How long a data node may take to leave, to come back, or to get its share of the primaries.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at the view.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A data node that was restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartedNode {
    /// Its id.
    pub node: u8,
    /// From the request until it has left, in seconds.
    pub left_after: f64,
    /// From then until it is a full member again.
    pub back_after: f64,
    /// From then until it has its share of the primaries.
    pub balanced_after: f64,
}

impl RestartedNode {
    /// How long all of it has taken.
    pub(super) fn seconds(&self) -> f64 {
        self.left_after + self.back_after + self.balanced_after
    }

    #[cfg(test)]
    pub(super) fn example(node: u8, left_after: f64) -> Self {
        RestartedNode { node, left_after, back_after: 0.0, balanced_after: 0.0 }
    }
}

impl fmt::Display for RestartedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestartedNode { node, left_after, back_after, balanced_after } = self;
        write!(
            f,
            "node {node} left in {left_after:.3} s, back in {back_after:.3} s, balanced in {balanced_after:.3} s"
        )
    }
}

/// Restarts all of them, the one that leads the cluster at last.
///
/// # Errors
/// One does not leave in time, end as it should, or come back.
pub(crate) fn restart_all(
    program: &ClusterProgram,
    running: &mut RunningCluster,
    cluster: &Cluster,
) -> Result<Vec<RestartedNode>> {
    let order = DataNode::in_rolling_order(&cluster.data_node_states());
    order.into_iter().map(|node| restart(program, running, cluster, node)).collect()
}

fn restart(
    program: &ClusterProgram,
    running: &mut RunningCluster,
    cluster: &Cluster,
    node: NodeId,
) -> Result<RestartedNode> {
    let find = || cluster.data_node_states().into_iter().find(|one| one.node == node);
    let before = find().ok_or_else(|| Failure::new(format!("data node {node} is no member")))?.incarnation;
    let begun = Instant::now();
    let terms = ShutdownTerms::Unnoticed { wait: PATIENCE.as_millis() as u32 };
    let has_left = cluster.restart(node, terms).context(|| format!("data node {node} does not stop"))?;
    if !has_left {
        return Err(Failure::new(format!("data node {node} has not left after {} s", PATIENCE.as_secs())));
    }
    let left = Instant::now();
    let place = usize::from(node.0 - 1);
    running.data_nodes.remove(place).await_end(EXIT_START_AGAIN)?;
    running.data_nodes.insert(place, program.start_again(node.0)?);
    let is_back = || find().is_some_and(|one| one.incarnation != before);
    await_that(is_back, || format!("data node {node} has come back"))?;
    let back = Instant::now();
    let is_balanced = || DataNode::are_balanced(&cluster.data_node_states());
    await_that(is_balanced, || format!("data node {node} has its share of the primaries"))?;
    Ok(RestartedNode {
        node: node.0,
        left_after: (left - begun).as_secs_f64(),
        back_after: (back - left).as_secs_f64(),
        balanced_after: back.elapsed().as_secs_f64(),
    })
}

pub(crate) fn await_that(is_so: impl Fn() -> bool, what: impl Fn() -> String) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!("after {} s it is not so that {}", PATIENCE.as_secs(), what())));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}
