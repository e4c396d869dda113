//! `vinga admin restart`: has a data node leave, stop, and come back as a full member.
//!
//! The data node itself stops; whoever keeps it running starts it again: its parent (`vinga up`), or a service manager.

use super::leave::{self, Then};
use super::{reorganize, status};
use crate::data_node::LOOK_PAUSE;
use crate::node_log;
use crate::waiting::{Said, Waiting};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{DataNode, ErrorCode, NodeId, Reorganization};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;

/// How long a data node that has stopped may show no sign that it starts.
const SIGN_PATIENCE: Duration = Duration::from_secs(30);

/// The same if it has no parent on this machine: a service manager may start it, which is quick.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two questions to the others whether it starts.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// When a data node can be restarted that the others can't do without.
pub const WITH_ANOTHER: &str = "it can be restarted when another one with the same rows is a full member ('vinga admin \
                                status' says which are away; 'vinga up' starts those of a folder that do not run); where \
                                there is none, 'vinga down' and 'vinga up' restart it, and what is in memory only is gone";

/// A data node that was started again.
pub struct Restarted {
    node: NodeId,
    /// Whether it has left before it stopped.
    has_left: bool,
    /// How long it was waited for that, in seconds, at most.
    wait: u32,
    /// From the request until it has left.
    left_after: Duration,
    /// From then until it is a full member again.
    back_after: Duration,
}

impl Restarted {
    /// A line for people.
    pub fn describe(&self) -> String {
        let Restarted { node, has_left, wait, left_after, back_after } = self;
        let (left_after, back_after) = (left_after.as_secs_f64(), back_after.as_secs_f64());
        let left = match has_left {
            true => format!("it has left after {left_after:.2} s"),
            false => leave::not_in_time(*wait),
        };
        format!("data node {node} is started again: {left}; {back_after:.2} s later it was a full member")
    }

    /// The same for programs.
    pub fn as_json(&self) -> Value {
        json!({
            "node": self.node.0,
            "has_left": self.has_left,
            "left_after_ms": self.left_after.as_millis() as u64,
            "back_after_ms": self.back_after.as_millis() as u64,
        })
    }
}

/// Restarts a data node, and says when it has come back. `folder`: its folder, if that is on this machine.
///
/// # Errors
/// A text: the others can't go on without it, or it has not come back.
pub fn run(
    cluster: &Cluster,
    node: u8,
    folder: Option<&NodeFolder>,
    wait: u32,
    json: bool,
) -> Result<(), String> {
    let restarted = restart(cluster, NodeId(node), folder, wait, cluster.reorganization())?;
    if json {
        say!("{}", restarted.as_json());
    } else {
        say!("{}", restarted.describe());
    }
    Ok(())
}

/// Restarts a member; returns when it is a full member again.
///
/// # Errors
/// A text: it is none, the others can't go on without it, it has not come back, or the cluster is not the one of
/// `cluster_before` any more, as all have ended.
pub fn restart(
    cluster: &Cluster,
    node: NodeId,
    folder: Option<&NodeFolder>,
    wait: u32,
    cluster_before: Reorganization,
) -> Result<Restarted, String> {
    let before =
        find(cluster, node).ok_or_else(|| format!("data node {node} is not in the cluster any more"))?;
    let begun = Instant::now();
    let has_left =
        leave::leave(cluster, node, wait, Then::StartsAgain).map_err(|error| match error.code() {
            ErrorCode::NodeIsNeeded => {
                format!("{error}: {WITH_ANOTHER}")
            }
            ErrorCode::ConnectionLost | ErrorCode::NodeFailure | ErrorCode::UnknownOutcome => format!(
                "the answer of data node {node} is lost, so it may be restarted or not: {error}; 'vinga admin status' \
                 shows since when it runs"
            ),
            _ => format!("data node {node} can't be asked: {error}"),
        })?;
    let stopped = Instant::now();
    await_return(cluster, &before, folder, cluster_before)?;
    Ok(Restarted { node, has_left, wait, left_after: stopped - begun, back_after: stopped.elapsed() })
}

fn find(cluster: &Cluster, node: NodeId) -> Option<DataNode> {
    cluster.data_node_states().into_iter().find(|one| one.node == node)
}

/// Waits until another start of a data node is a full member.
fn await_return(
    cluster: &Cluster,
    before: &DataNode,
    folder: Option<&NodeFolder>,
    cluster_before: Reorganization,
) -> Result<(), String> {
    let node = before.node;
    let mut waiting = Waiting::begin();
    let (mut signed, mut asked) = (Instant::now(), Instant::now());
    let (mut phase, mut attempts, mut said) = (None, node_log::Attempts::default(), Said::default());
    loop {
        reorganize::is_same(cluster_before, cluster.reorganization())?;
        if find(cluster, node).is_some_and(|one| one.incarnation != before.incarnation) {
            return Ok(());
        }
        if asked.elapsed() >= ASK_PAUSE {
            asked = Instant::now();
            phase = status::start_under_way(cluster, node);
        }
        let runs = folder.is_some_and(|folder| matches!(folder.running(), Ok(Some(_))));
        if runs || phase.is_some() {
            signed = Instant::now();
        }
        if let Some(failure) = folder.and_then(|folder| attempts.have_failed(folder)) {
            return Err(format!("data node {node} has stopped, and does not come back: {failure}"));
        }
        let orphan = folder.filter(|folder| matches!(folder.parent(), Ok(None)));
        if orphan.is_some() && signed.elapsed() >= ORPHAN_PATIENCE {
            return Err(format!(
                "data node {node} has stopped, and nobody has started it again: it has no parent process that does \
                 ('vinga data --restarts', without StopOnError), nor has anybody else; 'vinga up' starts it"
            ));
        }
        if signed.elapsed() >= SIGN_PATIENCE {
            let seconds = SIGN_PATIENCE.as_secs();
            return Err(match folder.and_then(node_log::failure) {
                Some(failure) => format!("data node {node} has stopped, and does not come back: {failure}"),
                None => format!(
                    "data node {node} has stopped, and there has been no sign of its next start for {seconds} s: nobody \
                     starts it again, or it can't start, and then its log says why"
                ),
            });
        }
        waiting.say_from_time_to_time(|| {
            let failure = || folder.and_then(node_log::failure);
            let more = phase.clone().or_else(failure).unwrap_or_default();
            format!("waiting until data node {node} has come back{}", said.again(&more))
        });
        std::thread::sleep(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_had_not_left_is_said_to_have_rolled_back_transactions() {
        let restarted = |has_left| Restarted {
            node: NodeId(3),
            has_left,
            wait: 60,
            left_after: Duration::from_millis(1_230),
            back_after: Duration::from_millis(2_500),
        };
        let text =
            "data node 3 is started again: it has left after 1.23 s; 2.50 s later it was a full member";
        assert_eq!(restarted(true).describe(), text);
        let text = restarted(false).describe();
        assert!(text.contains("had not left after 60 s") && text.contains("were rolled back"), "{text}");
        let json = json!({ "node": 3, "has_left": false, "left_after_ms": 1_230, "back_after_ms": 2_500 });
        assert_eq!(restarted(false).as_json(), json);
    }
}
