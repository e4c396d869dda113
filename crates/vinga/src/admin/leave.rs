//! A data node leaves the cluster before it stops, so that nobody's transaction is rolled back by that; what is waited
//! for is said meanwhile.

use crate::data_node::LOOK_PAUSE;
use crate::waiting::Waiting;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ErrorCode, NodeId, Result, ShutdownTerms};

/// How long it is waited, in seconds, if nothing else is given.
pub const WAIT: &str = "60";

/// How long a data node may be waited for, in seconds.
pub const WAIT_MAX: u32 = 3600;

/// What becomes of the data node when it has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It stays down.
    StaysDown,
    /// Whoever keeps it running starts it again.
    StartsAgain,
}

/// How long it is tried to connect to a data node that is to be asked, if others are connected.
const CONNECTING_MAX: Duration = Duration::from_secs(5);

/// Has a data node leave, for so many seconds at most, and stop. Returns when it stops, and whether it has left before.
///
/// # Errors
/// Those of [`Cluster::shut_down`].
pub fn leave(cluster: &Cluster, node: NodeId, wait: u32, then: Then) -> Result<bool> {
    let terms = ShutdownTerms::Unnoticed { wait: wait * 1_000 };
    let ask = || match then {
        Then::StaysDown => cluster.shut_down(node, terms),
        Then::StartsAgain => cluster.restart(node, terms),
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            loop {
                match ask() {
                    // It was asked nothing, as it is not connected at this moment.
                    Err(error)
                        if error.code() == ErrorCode::ClusterFailure && begun.elapsed() < CONNECTING_MAX =>
                    {
                        thread::sleep(LOOK_PAUSE);
                    }
                    answer => return answer,
                }
            }
        });
        let mut waiting = Waiting::begin();
        while !asking.is_finished() {
            waiting.say_from_time_to_time(|| awaited(cluster, node, wait));
            thread::sleep(LOOK_PAUSE);
        }
        asking.join().expect("it does not panic")
    })
}

/// What is waited for, as a sentence.
fn awaited(cluster: &Cluster, node: NodeId, wait: u32) -> String {
    let known = cluster.data_node_states().into_iter().find(|one| one.node == node);
    let what = match known.map_or((0, 0), |one| (one.partitions, one.primaries)) {
        (0, _) => "transactions that it coordinates end".to_owned(),
        (partitions, primaries) => {
            format!(
                "{partitions} partitions can do without it (of {primaries} it is the primary): open transactions hold them up"
            )
        }
    };
    format!(
        "waiting, for {wait} s at most, until data node {node} has left: until {what} ('vinga admin transactions')"
    )
}

/// What it means that a data node has stopped before it had left.
pub fn not_in_time(wait: u32) -> String {
    format!(
        "it had not left after {wait} s, and has stopped all the same: transactions that were open there were rolled back"
    )
}
