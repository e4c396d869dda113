//! Definitions of tables and databases, as an append-only log in two generations.
//!
//! ```text
//!   file    block SchemaHead   block SchemaEntries   block SchemaEntries   …
//!   block   entry   entry   …
//!   entry   u64 epoch   u32 length   u32 0   bytes, of which this format knows nothing
//! ```
//! A change appends a block, which is flushed before the next one is written. Now and then all that is still valid is
//! rewritten as the next generation, into the other file; the older file is removed when the newer is on the disk. The
//! head of a generation says how many blocks the rewriting had, so one that was cut short is not taken for a whole.

use crate::block::{
    BLOCK_BYTES, Block, BlockError, BlockSearch, HEAD_BYTES, Head, Origin, is_blank, read_block,
};
use crate::block_writer::{BlockWriter, block_of};
use crate::checksum::Checksum;
use crate::format::{BlockKind, Format};
use crate::malformed::Malformed;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use vinga_base::Epoch;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The payload of a file's first block, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct SchemaHead {
    /// The blocks of the rewriting with which the generation began, with this one.
    pub blocks: U64,
}

/// The head of an entry, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "described at `SchemaEntry`")]
pub struct SchemaEntryHead {
    pub epoch: U64,
    pub length: U32,
    pub reserved: U32,
}

const ENTRY_HEAD_BYTES: usize = size_of::<SchemaEntryHead>();

/// A change of the definitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchemaEntry<'a> {
    /// The epoch of the change.
    pub epoch: Epoch,
    /// What has changed.
    pub bytes: &'a [u8],
}

/// What a schema file contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaFile<'a> {
    /// Who has written it: the incarnation is that of the newest block.
    pub origin: Origin,
    /// Its generation.
    pub generation: u64,
    /// The entries in the order in which they were written.
    pub entries: Vec<SchemaEntry<'a>>,
    /// Where the bytes of each entry stand in the file.
    pub offsets: Vec<u64>,
    /// Where the next block goes, and which number it has.
    pub end: SchemaPlace,
    /// What is there is no block, but something was written: a write that was torn, or a damaged block.
    pub remains: Option<BlockError>,
}

/// How far the definitions reach, as somebody remembers it ([`crate::system::SystemState`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct SchemaExtent {
    /// The generation.
    pub generation: u64,
    /// How many blocks of it are on the disk.
    pub blocks: u64,
}

/// A place between two blocks of a schema file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchemaPlace {
    /// The offset in the file.
    pub offset: u64,
    /// The number of the next block.
    pub number: u64,
}

/// Why a schema file can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaError {
    /// There is no file, or nothing was written to it.
    Missing,
    /// The first block is none.
    Block(BlockError),
    /// The file is of another format.
    OtherFormat(Format),
    /// A block that its writer has made so, and that this program does not understand.
    Unknown {
        /// Its offset.
        offset: u64,
        /// What is not understood.
        error: BlockError,
    },
    /// A block whose content its writer should not have made.
    Malformed {
        /// Its offset.
        offset: u64,
        /// What is the matter.
        malformed: Malformed,
    },
    /// The rewriting was cut short: the generation before is the one that counts.
    Incomplete {
        /// The generation.
        generation: u64,
        /// Where it ends.
        end: SchemaPlace,
        /// The number of blocks that it should have.
        blocks: u64,
    },
    /// A block is missing: later ones were written when it was on the disk.
    Damaged {
        /// Where the block should be, and its number.
        missing: SchemaPlace,
        /// The place of a later block.
        later: SchemaPlace,
    },
}

/// The first generation, or the next one: all of its blocks, which begin the file.
pub fn rewrite<'a>(
    origin: Origin,
    generation: u64,
    entries: impl IntoIterator<Item = SchemaEntry<'a>>,
    checksum: Checksum,
) -> Vec<AlignedBuffer> {
    let mut blocks = append(origin, generation, 1, entries, checksum);
    let head = Head { generation, ..Head::new(BlockKind::SchemaHead, 0, origin) };
    let payload = SchemaHead { blocks: (blocks.len() as u64 + 1).into() };
    blocks.insert(0, block_of(head, payload.as_bytes(), checksum));
    blocks
}

/// Blocks with more entries, the first of which has that number; usually one block.
pub fn append<'a>(
    origin: Origin,
    generation: u64,
    number: u64,
    entries: impl IntoIterator<Item = SchemaEntry<'a>>,
    checksum: Checksum,
) -> Vec<AlignedBuffer> {
    let mut blocks = Vec::new();
    let mut writer = BlockWriter::new();
    for entry in entries {
        let bytes = ENTRY_HEAD_BYTES + entry.bytes.len();
        if writer.is_open() && writer.room() < bytes {
            writer.seal(checksum);
            blocks.push(writer.take());
        }
        if !writer.is_open() {
            let number = number + blocks.len() as u64;
            let head = Head { generation, ..Head::new(BlockKind::SchemaEntries, number, origin) };
            writer.begin(head, BLOCK_BYTES.max((HEAD_BYTES + bytes).next_multiple_of(SECTOR_BYTES)));
        }
        let head = SchemaEntryHead {
            epoch: entry.epoch.0.into(),
            length: (entry.bytes.len() as u32).into(),
            reserved: 0.into(),
        };
        writer.put(head.as_bytes());
        writer.put(entry.bytes);
    }
    if writer.is_open() {
        writer.seal(checksum);
        blocks.push(writer.take());
    }
    blocks
}

/// Reads a schema file, which may have anything behind its last block.
///
/// # Errors
/// See [`SchemaError`].
pub fn read(bytes: &[u8], checksum: Checksum) -> Result<SchemaFile<'_>, SchemaError> {
    if is_blank(bytes) {
        return Err(SchemaError::Missing);
    }
    let first = match read_block(bytes, checksum) {
        Ok(first) => first,
        Err(error) if error.is_of_writer() => return Err(SchemaError::Unknown { offset: 0, error }),
        Err(error) => return Err(SchemaError::Block(error)),
    };
    let blocks = read_head(&first)?;
    let generation = first.head.generation;
    let mut file = SchemaFile {
        origin: first.head.origin,
        generation,
        entries: Vec::new(),
        offsets: Vec::new(),
        end: SchemaPlace { offset: first.bytes as u64, number: 1 },
        remains: None,
    };
    let mut rest = &bytes[first.bytes..];
    loop {
        let offset = file.end.offset;
        let block = match read_block(rest, checksum) {
            Err(error) if error.is_of_writer() => return Err(SchemaError::Unknown { offset, error }),
            Ok(block) if continues(&file, &block) && block.head.number == file.end.number => block,
            Ok(_) => break,
            Err(error) => {
                let sector = &rest[..rest.len().min(SECTOR_BYTES)];
                file.remains = (!is_blank(sector)).then_some(error);
                break;
            }
        };
        read_entries(block.payload, offset + HEAD_BYTES as u64, &mut file)
            .map_err(|malformed| SchemaError::Malformed { offset, malformed })?;
        file.origin = block.head.origin;
        file.end = SchemaPlace { offset: offset + block.bytes as u64, number: file.end.number + 1 };
        rest = &rest[block.bytes..];
    }
    let missing = file.end;
    let later = BlockSearch::new(rest, true, checksum)
        .filter(|(_, block)| continues(&file, block) && block.head.number > missing.number)
        .map(|(at, block)| SchemaPlace { offset: missing.offset + at as u64, number: block.head.number })
        .last();
    match later {
        // The blocks of a rewriting are flushed together: one of them proves nothing of the others.
        Some(later) if later.number >= blocks => Err(SchemaError::Damaged { missing, later }),
        _ if missing.number < blocks => Err(SchemaError::Incomplete { generation, end: missing, blocks }),
        _ => Ok(file),
    }
}

/// Whether a block is of the same file and generation, and not older.
fn continues(file: &SchemaFile<'_>, block: &Block<'_>) -> bool {
    let Head { kind, origin, generation, .. } = block.head;
    kind == BlockKind::SchemaEntries
        && generation == file.generation
        && origin.incarnation >= file.origin.incarnation
        && origin == Origin { incarnation: origin.incarnation, ..file.origin }
}

/// The number of blocks that the generation began with.
fn read_head(first: &Block<'_>) -> Result<u64, SchemaError> {
    let Head { kind, number, .. } = first.head;
    if kind.format() != Format::Schema {
        return Err(SchemaError::OtherFormat(kind.format()));
    }
    let malformed = |reason| Err(SchemaError::Malformed { offset: 0, malformed: Malformed::new(0, reason) });
    if kind != BlockKind::SchemaHead || number != 0 {
        return malformed("the file begins with another block than the head of a generation");
    }
    let Ok(head) = SchemaHead::ref_from_bytes(first.payload) else {
        return malformed("the head of a generation has another length");
    };
    if head.blocks.get() == 0 { malformed("a generation without blocks") } else { Ok(head.blocks.get()) }
}

/// Reads the entries of a payload, which begins at an offset of the file.
fn read_entries<'a>(payload: &'a [u8], begins: u64, file: &mut SchemaFile<'a>) -> Result<(), Malformed> {
    let mut rest = payload;
    while !rest.is_empty() {
        let at = payload.len() - rest.len();
        let malformed = |reason| Malformed::new(at, reason);
        let (head, behind) = SchemaEntryHead::ref_from_prefix(rest)
            .map_err(|_| malformed("an entry is cut off in its head"))?;
        let (bytes, behind) = behind
            .split_at_checked(head.length.get() as usize)
            .ok_or(malformed("an entry is longer than its block"))?;
        let epoch = Epoch(head.epoch.get());
        if head.reserved.get() != 0 || epoch > Epoch::MAX {
            return Err(malformed("an entry has an impossible epoch or reserved field"));
        }
        file.entries.push(SchemaEntry { epoch, bytes });
        file.offsets.push(begins + (at + ENTRY_HEAD_BYTES) as u64);
        rest = behind;
    }
    Ok(())
}

impl SchemaFile<'_> {
    /// How far it reaches.
    pub fn extent(&self) -> SchemaExtent {
        SchemaExtent { generation: self.generation, blocks: self.end.number }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Missing => f.write_str("there is no such file, or it is empty"),
            SchemaError::Block(error) | SchemaError::Unknown { error, .. } => error.fmt(f),
            SchemaError::OtherFormat(format) => write!(f, "this is a {format}, not a {}", Format::Schema),
            SchemaError::Malformed { malformed, .. } => malformed.fmt(f),
            SchemaError::Incomplete { generation, end, blocks } => {
                write!(f, "generation {generation} was cut short: it has {} of {blocks} blocks", end.number)
            }
            SchemaError::Damaged { missing, later } => write!(
                f,
                "block {} is damaged or missing, as block {} at offset {} was written after it",
                missing.number, later.number, later.offset
            ),
        }
    }
}

impl SchemaError {
    /// The offset in the file of what is wrong.
    pub fn offset(&self) -> u64 {
        match self {
            SchemaError::Missing | SchemaError::Block(_) | SchemaError::OtherFormat(_) => 0,
            SchemaError::Unknown { offset, .. } | SchemaError::Malformed { offset, .. } => *offset,
            SchemaError::Incomplete { end, .. } => end.offset,
            SchemaError::Damaged { missing, .. } => missing.offset,
        }
    }
}

impl core::error::Error for SchemaError {}
