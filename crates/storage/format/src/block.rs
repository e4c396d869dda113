//! The sealed block: the unit of every durable file.
//!
//! ```text
//!   byte 0    u32  magic: which format ([`Format::magic`])
//!   byte 4    u32  CRC-32C of all that follows, up to `length`
//!   byte 8    u32  length: head and payload
//!   byte 12   u16  version of the format
//!   byte 14   u16  kind ([`BlockKind`])
//!   byte 16   u64  running number of the block in its stream or file
//!   byte 24   u64  cluster: a random number
//!   byte 32   u32  incarnation of the node's log
//!   byte 36   u8   node
//!   byte 37   u8   0
//!   byte 38   u16  owner: stream or data manager
//!   byte 40   u64  redo: all blocks up to this number were on the disk when this one was made; else 0
//!   byte 48   u64  redo: the epoch that ends with this block, or 0; else 0
//!   byte 56   u64  schema: generation; else 0
//!   byte 64   payload, then zeros up to a multiple of 4096 bytes
//! ```
//! All numbers are little-endian. The fields up to the version are in the same place in all versions, and a block's
//! checksum is compared before its version: a damaged block is not taken for one of a newer program.

use crate::checksum::Checksum;
use crate::format::{BlockKind, Format};
use core::fmt;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_base::{Epoch, NodeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The head of a block, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the head of the module describes the fields")]
pub struct BlockHead {
    pub magic: U32,
    pub checksum: U32,
    pub length: U32,
    pub version: U16,
    pub kind: U16,
    pub number: U64,
    pub cluster: U64,
    pub incarnation: U32,
    pub node: u8,
    pub reserved: u8,
    pub owner: U16,
    pub flushed: U64,
    pub ends_epoch: U64,
    pub generation: U64,
}

/// Bytes of a block's head.
pub const HEAD_BYTES: usize = size_of::<BlockHead>();

/// Bytes of a block, unless its writer says otherwise.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a block at most. A head that says more is damaged: nothing is read, and no memory is taken for it.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Where the bytes begin that the checksum covers.
pub(crate) const CHECKED_FROM: usize = core::mem::offset_of!(BlockHead, length);

/// Who has written a block: a stream of the redo log, or a data manager, in one incarnation of a node's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Origin {
    /// The random number of the cluster.
    pub cluster: u64,
    /// The node.
    pub node: NodeId,
    /// The incarnation of the node's log.
    pub incarnation: u32,
    /// Stream or data manager.
    pub owner: u16,
}

/// What the head of a block says beyond the block's length and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// What the block contains, and thereby the file's format.
    pub kind: BlockKind,
    /// Its running number in its stream or file.
    pub number: u64,
    /// Who has written it.
    pub origin: Origin,
    /// Redo: all blocks up to this number were on the disk when this one was made.
    pub flushed: u64,
    /// Redo: the epoch that ends with this block; 0 = none.
    pub ends_epoch: Epoch,
    /// Schema: which rewriting of the definitions the block belongs to.
    pub generation: u64,
}

impl Head {
    /// The head of a block, with zeros in the fields that only some formats use.
    pub fn new(kind: BlockKind, number: u64, origin: Origin) -> Self {
        Head { kind, number, origin, flushed: 0, ends_epoch: Epoch(0), generation: 0 }
    }

    /// The bytes of the head of a block of `length` bytes, without the checksum.
    pub(crate) fn to_bytes(self, length: usize) -> BlockHead {
        let format = self.kind.format();
        BlockHead {
            magic: format.magic().into(),
            checksum: 0.into(),
            length: (length as u32).into(),
            version: format.version().into(),
            kind: self.kind.number().into(),
            number: self.number.into(),
            cluster: self.origin.cluster.into(),
            incarnation: self.origin.incarnation.into(),
            node: self.origin.node.0,
            reserved: 0,
            owner: self.origin.owner.into(),
            flushed: self.flushed.into(),
            ends_epoch: self.ends_epoch.0.into(),
            generation: self.generation.into(),
        }
    }
}

/// A block that was read and is as it was written.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// What its head says.
    pub head: Head,
    /// The version of the format that it was written in.
    pub version: u16,
    /// What it contains.
    pub payload: &'a [u8],
    /// How many bytes of the file it takes, with padding.
    pub bytes: usize,
}

/// Why bytes are no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockError {
    /// So many bytes are needed to tell.
    NeedsMore(usize),
    /// No format's blocks begin so.
    NotABlock,
    /// The length in the head is that of no block.
    BadLength(u32),
    /// What is read is not what was written.
    BadChecksum {
        /// The checksum of what is read.
        found: u32,
        /// The checksum in the head.
        expected: u32,
    },
    /// The block was written by a newer program.
    UnknownVersion {
        /// The format.
        format: Format,
        /// The block's version.
        found: u16,
        /// The newest version that this program knows.
        known: u16,
    },
    /// The format has no such kind of blocks.
    UnknownKind(u16),
    /// A byte that must be 0 is not: a reserved one of the head, or padding.
    NotZero(usize),
    /// The epoch in the head has more than 48 bits.
    BadEpoch(u64),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::NeedsMore(bytes) => write!(f, "the file ends inside a block of {bytes} bytes"),
            BlockError::NotABlock => f.write_str("no block begins here"),
            BlockError::BadLength(length) => {
                write!(f, "the head of the block says that it has {length} bytes")
            }
            BlockError::BadChecksum { found, expected } => {
                write!(f, "the block's checksum is {found:08x}, its head says {expected:08x}")
            }
            BlockError::UnknownVersion { format, found, known } => {
                write!(f, "the {format} has format version {found}, this program knows up to {known}")
            }
            BlockError::UnknownKind(kind) => write!(f, "the block is of the unknown kind {kind}"),
            BlockError::NotZero(at) => write!(f, "byte {at} of the block must be 0"),
            BlockError::BadEpoch(epoch) => {
                write!(f, "the head of the block has the impossible epoch {epoch}")
            }
        }
    }
}

impl core::error::Error for BlockError {}

impl BlockError {
    /// Whether these bytes, which could not be read as a block, look as if no block was ever written there: the file
    /// ends, or there are only zeros. Writes under way are done in any order, so others may stand behind.
    pub fn is_unwritten(&self, bytes: &[u8]) -> bool {
        match self {
            BlockError::NeedsMore(_) => true,
            BlockError::NotABlock => bytes.iter().take(SECTOR_BYTES).all(|&byte| byte == 0),
            _ => false,
        }
    }

    /// Whether the block is what its writer has made, but this program does not understand it. All other errors say
    /// that the bytes are not what was written, or that nothing was written here.
    pub fn is_of_writer(&self) -> bool {
        matches!(
            self,
            BlockError::UnknownVersion { .. } | BlockError::UnknownKind(_) | BlockError::BadEpoch(_)
        )
    }
}

/// Reads the block with which these bytes begin, of any format.
///
/// # Errors
/// See [`BlockError`].
pub fn read_block(bytes: &[u8], checksum: Checksum) -> Result<Block<'_>, BlockError> {
    let Some(first) = bytes.get(..SECTOR_BYTES) else { return Err(BlockError::NeedsMore(SECTOR_BYTES)) };
    let (head, _) = BlockHead::ref_from_prefix(first).expect("a sector is longer than a head");
    let format = Format::from_magic(head.magic.get()).ok_or(BlockError::NotABlock)?;
    let length = head.length.get() as usize;
    if !(HEAD_BYTES..=BLOCK_BYTES_MAX).contains(&length) {
        return Err(BlockError::BadLength(head.length.get()));
    }
    let padded = length.next_multiple_of(SECTOR_BYTES);
    let Some(block) = bytes.get(..padded) else { return Err(BlockError::NeedsMore(padded)) };
    let (found, expected) = (checksum.of(&block[CHECKED_FROM..length]), head.checksum.get());
    if found != expected {
        return Err(BlockError::BadChecksum { found, expected });
    }
    let (version, known) = (head.version.get(), format.version());
    if version == 0 || version > known {
        return Err(BlockError::UnknownVersion { format, found: version, known });
    }
    let kind = head.kind.get();
    let kind = BlockKind::from_number(format, kind).ok_or(BlockError::UnknownKind(kind))?;
    if head.reserved != 0 {
        return Err(BlockError::NotZero(core::mem::offset_of!(BlockHead, reserved)));
    }
    if let Some(at) = block[length..].iter().position(|&byte| byte != 0) {
        return Err(BlockError::NotZero(length + at));
    }
    let ends_epoch = Epoch(head.ends_epoch.get());
    if ends_epoch > Epoch::MAX {
        return Err(BlockError::BadEpoch(ends_epoch.0));
    }
    let origin = Origin {
        cluster: head.cluster.get(),
        node: NodeId(head.node),
        incarnation: head.incarnation.get(),
        owner: head.owner.get(),
    };
    let head = Head {
        kind,
        number: head.number.get(),
        origin,
        flushed: head.flushed.get(),
        ends_epoch,
        generation: head.generation.get(),
    };
    Ok(Block { head, version, payload: &block[HEAD_BYTES..length], bytes: padded })
}

/// Whether nothing was ever written to these bytes of a file: they are zeros.
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Looks for blocks in bytes of which some may be damaged or left from earlier: one may begin at each sector.
pub struct BlockSearch<'a> {
    bytes: &'a [u8],
    at: usize,
    ends_file: bool,
    checksum: Checksum,
}

impl<'a> BlockSearch<'a> {
    /// Looks in `bytes`, which begin at a sector; `ends_file` says that the file ends behind them.
    pub fn new(bytes: &'a [u8], ends_file: bool, checksum: Checksum) -> Self {
        BlockSearch { bytes, at: 0, ends_file, checksum }
    }

    /// Where the bytes begin that have to be looked at again, with more of the file behind them.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for BlockSearch<'a> {
    type Item = (usize, Block<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            let at = self.at;
            match read_block(&self.bytes[at..], self.checksum) {
                Ok(block) => {
                    self.at += block.bytes;
                    return Some((at, block));
                }
                Err(BlockError::NeedsMore(_)) if !self.ends_file => return None,
                Err(_) => self.at += SECTOR_BYTES,
            }
        }
        None
    }
}
