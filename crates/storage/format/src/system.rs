//! The system file: what a node knows of the cluster's durable state.
//!
//! One sealed block in each of two files, written alternately: write `n` goes to copy `n % 2`, so a write that is torn
//! leaves the one before. The copy with the greater number counts.

use crate::block::{Block, BlockError, Head, Origin, is_blank, read_block};
use crate::block_writer::block_of;
use crate::checksum::Checksum;
use crate::cold;
use crate::format::{BlockKind, Format};
use crate::malformed::Malformed;
use crate::schema::SchemaExtent;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use vinga_base::aligned::AlignedBuffer;
use vinga_base::{Epoch, NodeId};

/// What a node knows of the cluster's durable state.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct SystemState {
    /// The cluster's name.
    pub cluster_name: String,
    /// The cluster's random number, which all of its files carry.
    pub cluster: u64,
    /// The node whose file it is.
    pub node: NodeId,
    /// How many data managers the node has: its files fit no other number.
    pub data_managers: u16,
    /// How many times the node has started.
    pub node_incarnation: u32,
    /// The present incarnation of the cluster: each system restart begins one.
    pub cluster_incarnation: ClusterIncarnation,
    /// All earlier incarnations of the cluster, oldest first.
    pub earlier: Vec<EndedIncarnation>,
    /// The incarnations of the node's log of which records may still be needed, oldest first; the last one is written.
    pub log_incarnations: Vec<LogIncarnation>,
    /// The newest epoch that is durable on all nodes.
    pub durable_epoch: Epoch,
    /// The newest epoch that this node can restore by itself: `durable_epoch` if it is among `restorable`, else an
    /// older one.
    pub own_epoch: Epoch,
    /// The nodes that can restore `durable_epoch`, ascending.
    pub restorable: Vec<NodeId>,
    /// No epoch above it was ever given out.
    pub epoch_limit: Epoch,
    /// Whether the node stopped in order: nothing was committed behind `durable_epoch`.
    pub is_clean: bool,
    /// Reserved for the oldest segment that is needed of each stream of the log; empty: each segment says in its head.
    pub tails: Vec<u64>,
    /// How far the definitions on the disk reach, at least.
    pub definitions: SchemaExtent,
    /// When `durable_epoch` was found to be durable, by the node's clock, in milliseconds since 1970; 0: not known. For
    /// people only: nothing depends on a clock. Since version 2.
    pub durable_at: u64,
}

/// An incarnation of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct ClusterIncarnation {
    /// Its number, from 1.
    pub number: u32,
    /// A random number: two groups of nodes that both began this incarnation, apart from each other, have two.
    pub id: u64,
}

/// An incarnation of the cluster that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct EndedIncarnation {
    /// Which one.
    pub incarnation: ClusterIncarnation,
    /// The last epoch of it that was restored; later ones never happened.
    pub last_epoch: Epoch,
}

/// An incarnation of a node's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct LogIncarnation {
    /// Its number, from 1.
    pub number: u32,
    /// How many streams the log had.
    pub streams: u16,
    /// The last epoch whose records count; `None` while it is written.
    pub last_epoch: Option<Epoch>,
}

/// A copy of the system file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemCopy {
    /// How many times the file was written before.
    pub number: u64,
    /// What it says.
    pub state: SystemState,
}

/// Why a copy of the system file can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemError {
    /// There is no file, or nothing was written to it: it is empty, or only zeros.
    Missing,
    /// The bytes are no block.
    Block(BlockError),
    /// The file is of another format.
    OtherFormat(Format),
    /// The content of the block.
    Malformed(Malformed),
    /// It is the other copy: a file was copied over this one, or the two were exchanged.
    OtherCopy {
        /// The number of the write.
        number: u64,
    },
}

/// The copy that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// What it says.
    pub copy: SystemCopy,
    /// Why the other copy can't be used; `None` if it is the older one.
    pub other: Option<SystemError>,
}

/// Why there is no copy that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChooseError {
    /// There is no file: no node has ever started here.
    Missing,
    /// Both copies are damaged, or one of them is and the other is missing.
    Damaged([SystemError; 2]),
    /// A copy was written by a newer program.
    Newer {
        /// Which one.
        copy: usize,
        /// What it says.
        error: SystemError,
    },
    /// The copies are of different clusters or nodes.
    Foreign([(u64, NodeId); 2]),
}

/// The copy that a write goes to.
pub const fn copy_of(number: u64) -> usize {
    (number % 2) as usize
}

/// The bytes of a copy of the system file, of the write with this number.
pub fn encode(state: &SystemState, number: u64, checksum: Checksum) -> AlignedBuffer {
    let log = state.log_incarnations.last().map_or(0, |incarnation| incarnation.number);
    let origin = Origin { cluster: state.cluster, node: state.node, incarnation: log, owner: 0 };
    block_of(Head::new(BlockKind::SystemState, number, origin), &cold::encode(state), checksum)
}

/// Reads a copy of the system file.
///
/// # Errors
/// See [`SystemError`].
pub fn decode(bytes: &[u8], checksum: Checksum) -> Result<SystemCopy, SystemError> {
    if is_blank(bytes) {
        return Err(SystemError::Missing);
    }
    let block = read_block(bytes, checksum).map_err(SystemError::Block)?;
    let format = block.head.kind.format();
    if format != Format::System {
        return Err(SystemError::OtherFormat(format));
    }
    let state = state_of(&block).map_err(SystemError::Malformed)?;
    check(&state, &block).map_err(|reason| SystemError::Malformed(Malformed::new(0, reason)))?;
    Ok(SystemCopy { number: block.head.number, state })
}

/// What a copy says. Version 1 ends before `durable_at`.
fn state_of(block: &Block<'_>) -> Result<SystemState, Malformed> {
    match block.version {
        1 => cold::decode(&[block.payload, &cold::encode(&0_u64)].concat()),
        _ => cold::decode(block.payload),
    }
}

fn check(state: &SystemState, block: &Block<'_>) -> Result<(), &'static str> {
    let SystemState { earlier, log_incarnations, restorable, .. } = state;
    let origin = block.head.origin;
    if (state.cluster, state.node) != (origin.cluster, origin.node) {
        return Err("the cluster or the node is not that of the block's head");
    }
    let ends = earlier.iter().map(|ended| ended.last_epoch);
    let log_ends = log_incarnations.iter().filter_map(|incarnation| incarnation.last_epoch);
    let mut epochs = ends.chain(log_ends).chain([state.durable_epoch, state.own_epoch, state.epoch_limit]);
    if epochs.any(|epoch| epoch > Epoch::MAX) {
        return Err("an epoch has more than 48 bits");
    }
    if state.own_epoch > state.durable_epoch || state.durable_epoch > state.epoch_limit {
        return Err("the epochs own, durable, limit are not ascending");
    }
    let numbers = earlier.iter().map(|ended| ended.incarnation.number);
    if !numbers.chain([state.cluster_incarnation.number]).is_sorted_by(|a, b| a < b) {
        return Err("the incarnations of the cluster are not ascending");
    }
    if !log_incarnations.is_sorted_by(|a, b| a.number < b.number) {
        return Err("the incarnations of the log are not ascending");
    }
    if !restorable.is_sorted_by(|a, b| a < b) {
        return Err("the restorable nodes are not ascending");
    }
    Ok(())
}

/// Chooses between the two copies of the system file: the newer one, or the older if the newer is damaged. An empty
/// slice is a file that does not exist.
///
/// # Errors
/// See [`ChooseError`]. A copy of a newer program is not passed over: what it says is newer.
pub fn choose(copies: [&[u8]; 2], checksum: Checksum) -> Result<Chosen, ChooseError> {
    let mut index = 0;
    let read = copies.map(|bytes| {
        let copy = decode(bytes, checksum);
        index += 1;
        match copy {
            Ok(SystemCopy { number, .. }) if copy_of(number) != index - 1 => {
                Err(SystemError::OtherCopy { number })
            }
            copy => copy,
        }
    });
    for (copy, read) in read.iter().enumerate() {
        if let Some(&error) = read.as_ref().err().filter(|error| error.is_newer()) {
            return Err(ChooseError::Newer { copy, error });
        }
    }
    match read {
        [Ok(first), Ok(second)] => {
            let whose = [&first, &second].map(|copy| (copy.state.cluster, copy.state.node));
            if whose[0] != whose[1] {
                return Err(ChooseError::Foreign(whose));
            }
            let copy = if first.number > second.number { first } else { second };
            Ok(Chosen { copy, other: None })
        }
        [Ok(copy), Err(other)] | [Err(other), Ok(copy)] => Ok(Chosen { copy, other: Some(other) }),
        [Err(SystemError::Missing), Err(SystemError::Missing)] => Err(ChooseError::Missing),
        [Err(first), Err(second)] => Err(ChooseError::Damaged([first, second])),
    }
}

impl SystemError {
    fn is_newer(&self) -> bool {
        matches!(self, SystemError::Block(BlockError::UnknownVersion { .. }))
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SystemError::Missing => f.write_str("there is no such file, or nothing but zeros is in it"),
            SystemError::Block(error) => error.fmt(f),
            SystemError::OtherFormat(format) => write!(f, "this is a {format}, not a {}", Format::System),
            SystemError::Malformed(malformed) => malformed.fmt(f),
            SystemError::OtherCopy { number } => {
                write!(f, "this is write {number}, which belongs into copy {}", copy_of(*number))
            }
        }
    }
}

impl core::error::Error for SystemError {}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChooseError::Missing => f.write_str("there is no system file"),
            ChooseError::Damaged([first, second]) => {
                write!(f, "no copy of the system file can be used; copy 0: {first}; copy 1: {second}")
            }
            ChooseError::Newer { error, .. } => error.fmt(f),
            ChooseError::Foreign([first, second]) => write!(
                f,
                "copy 0 of the system file is of cluster {:016x}, node {}, copy 1 of cluster {:016x}, node {}",
                first.0, first.1, second.0, second.1
            ),
        }
    }
}

impl core::error::Error for ChooseError {}
