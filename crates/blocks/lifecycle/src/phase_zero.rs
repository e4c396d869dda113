//! Phase 0 of a start, before any thread runs: whose files these are, and what the start begins from.
//!
//! The driver reads the two copies of the system file and lists the others. Nothing of a node's files is touched before
//! it is certain that they are this node's, of this cluster, and that the configuration fits them.

use crate::{Disk, EPOCH_RESERVE};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::{Epoch, NodeId};
use vinga_format::checksum::Checksum;
use vinga_format::system::{ChooseError, Chosen, SystemError, SystemState, choose};

/// What the configuration says of a node.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The cluster's name.
    pub cluster_name: String,
    /// The node.
    pub node: NodeId,
    /// How many data managers it has.
    pub data_managers: u16,
    /// How many log streams it has if it starts for the first time.
    pub streams: u16,
}

/// What is new with each start: random numbers for what may begin with it, and the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// A new cluster.
    pub cluster: u64,
    /// A new incarnation of the cluster.
    pub cluster_incarnation: u64,
    /// Milliseconds since 1970, by the node's clock. For people only.
    pub time_of_day: u64,
}

/// What a start begins from.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// For the lifecycle block.
    pub disk: Disk,
    /// How many log streams the node has: as many as at its first start.
    pub streams: u16,
    /// Why one copy of the system file can't be used, although the start can go on with the other one.
    pub damaged_copy: Option<SystemError>,
}

/// Why a node can't start from what is on its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// There are files of a node, but no system file.
    OnlyOtherFiles {
        /// How many.
        files: usize,
    },
    /// No copy of the system file can be used.
    NoCopy(ChooseError),
    /// They are the files of another cluster.
    OtherCluster {
        /// Its name.
        found: String,
        /// The configured one.
        configured: String,
    },
    /// They are the files of another node.
    OtherNode {
        /// Its id.
        found: NodeId,
        /// The configured one.
        configured: NodeId,
    },
    /// The node had another number of data managers.
    OtherDataManagers {
        /// How many it had.
        found: u16,
        /// How many are configured.
        configured: u16,
    },
}

/// Finds out what a start begins from. `copies` are the bytes of the two copies of the system file, empty if they don't
/// exist; `other_files` is the number of other files of a node.
///
/// # Errors
/// See [`Unfit`].
pub fn begin(
    configured: Configured,
    copies: [&[u8]; 2],
    other_files: usize,
    drawn: Drawn,
    checksum: Checksum,
) -> Result<Beginning, Unfit> {
    let Drawn { cluster, cluster_incarnation, time_of_day } = drawn;
    let Configured { cluster_name, node, data_managers, streams } = configured;
    let epoch_reserve = EPOCH_RESERVE;
    let begin_with = |state, next_write| Disk {
        state,
        next_write,
        cluster_incarnation,
        epoch_reserve,
        checksum,
        time_of_day,
        is_trial: false,
    };
    let Chosen { copy, other } = match choose(copies, checksum) {
        Ok(chosen) => chosen,
        Err(ChooseError::Missing) if other_files > 0 => {
            return Err(Unfit::OnlyOtherFiles { files: other_files });
        }
        Err(ChooseError::Missing) => {
            let state = SystemState {
                cluster_name,
                cluster,
                node,
                data_managers,
                node_incarnation: 1,
                epoch_limit: Epoch(0),
                restorable: Vec::from([node]),
                ..SystemState::default()
            };
            let disk = begin_with(state, 0);
            return Ok(Beginning { disk, streams, damaged_copy: None });
        }
        Err(why) => return Err(Unfit::NoCopy(why)),
    };
    let mut state = copy.state;
    if state.cluster_name != cluster_name {
        return Err(Unfit::OtherCluster { found: state.cluster_name, configured: cluster_name });
    }
    if state.node != node {
        return Err(Unfit::OtherNode { found: state.node, configured: node });
    }
    if state.data_managers != data_managers {
        return Err(Unfit::OtherDataManagers { found: state.data_managers, configured: data_managers });
    }
    // It counts with the first write of this start.
    state.node_incarnation += 1;
    let streams = state.log_incarnations.last().map_or(streams, |last| last.streams);
    let disk = begin_with(state, copy.number + 1);
    Ok(Beginning { disk, streams, damaged_copy: other })
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::OnlyOtherFiles { files } => write!(
                f,
                "both copies of the system file are missing or nothing but zeros, but {files} other files of a node are \
                 there: restore one copy, or begin anew with --initial, which removes everything"
            ),
            Unfit::NoCopy(why) => why.fmt(f),
            Unfit::OtherCluster { found, configured } => {
                write!(f, "these are files of cluster \"{found}\", but \"{configured}\" is configured")
            }
            Unfit::OtherNode { found, configured } => {
                write!(f, "these are files of node {found}, but node {configured} is configured")
            }
            Unfit::OtherDataManagers { found, configured } => write!(
                f,
                "these are files of a node with {found} data managers, but {configured} are configured: the rows lie \
                 in as many parts, so the number can't be changed by a restart"
            ),
        }
    }
}

impl core::error::Error for Unfit {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use vinga_format::system::{LogIncarnation, encode};

    const CHECKSUM: Checksum = Checksum::SOFTWARE;
    const DRAWN: Drawn = Drawn { cluster: 77, cluster_incarnation: 78, time_of_day: 1_760_000_000_000 };

    fn configured() -> Configured {
        Configured { cluster_name: "vinga".into(), node: NodeId(3), data_managers: 8, streams: 2 }
    }

    fn begin_with(
        configured: Configured,
        copies: [&[u8]; 2],
        other_files: usize,
    ) -> Result<Beginning, String> {
        begin(configured, copies, other_files, DRAWN, CHECKSUM).map_err(|why| why.to_string())
    }

    #[test]
    fn a_first_start_begins_a_cluster() {
        let Beginning { disk, streams, .. } =
            begin_with(configured(), [&[], &[]], 0).expect("nothing is there");
        assert_eq!((disk.state.cluster, disk.next_write, streams), (77, 0, 2));
        assert_eq!(
            (disk.state.node, disk.state.data_managers, disk.state.node_incarnation),
            (NodeId(3), 8, 1)
        );
    }

    #[test]
    fn a_later_one_goes_on_with_what_fits() {
        let first = begin_with(configured(), [&[], &[]], 0).expect("nothing is there").disk.state;
        let log = LogIncarnation { number: 1, streams: 2, last_epoch: None };
        let state = SystemState { log_incarnations: Vec::from([log]), ..first };
        let (older, newer) = (encode(&state, 4, CHECKSUM), encode(&state, 5, CHECKSUM));
        let copies = [&older[..], &newer[..]];
        // The log keeps the streams that it was made with.
        let more = Configured { streams: 4, ..configured() };
        let found = begin_with(more, copies, 9).expect("they fit");
        assert_eq!((found.disk.next_write, found.disk.state.node_incarnation, found.streams), (6, 2, 2));
        assert_eq!(found.damaged_copy, None);
        let found = begin_with(configured(), [&older, &[]], 9).expect("one copy is enough");
        assert_eq!((found.disk.next_write, found.damaged_copy), (5, Some(SystemError::Missing)));
        for (wrong, named) in [
            (Configured { cluster_name: "other".into(), ..configured() }, "cluster \"vinga\""),
            (Configured { node: NodeId(4), ..configured() }, "files of node 3"),
            (Configured { data_managers: 4, ..configured() }, "8 data managers"),
        ] {
            let why = begin_with(wrong, copies, 9).expect_err("they don't fit");
            assert!(why.contains(named), "{why}");
        }
        let why = begin_with(configured(), [&[], &[]], 9).expect_err("something is lost");
        assert!(why.contains("9 other files") && why.contains("--initial"), "{why}");
        let why = begin_with(configured(), [&[1; 4096], &[]], 9).expect_err("it is damaged");
        assert!(why.contains("no copy of the system file can be used"), "{why}");
    }
}
