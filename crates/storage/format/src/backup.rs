//! An on-line backup: a folder of files that a client of the cluster has written, and a manifest that says what belongs
//! to it.
//!
//! ```text
//!   file      block BackupHead   block of items   block of items   …   block BackupEnd
//!   items     rows, changes: records of the redo log (`redo::Record`)
//!             definitions, statements: u32 length, then a `BackupDefinition` or `BackupStatement`
//!   manifest  one block
//! ```
//! The manifest is written when everything else is on the disk: a folder without one is a backup that was cut off. It
//! counts the bytes, blocks and items of each file, so none can be missing or shorter. All blocks carry the backup's
//! random number in the place of the cluster's, so none can be of another backup.

use crate::block::{BLOCK_BYTES, Block, BlockError, HEAD_BYTES, Head, Origin, read_block};
use crate::block_writer::{BlockWriter, block_of};
use crate::checksum::Checksum;
use crate::cold;
use crate::format::{BlockKind, Format};
use crate::malformed::Malformed;
use crate::redo;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_base::schema::TableDefinition;
use vinga_base::{Epoch, NodeId};

/// What a file of a backup contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, Debug)]
pub enum BackupContent {
    /// Rows of a partition, each as the scan has met it.
    #[default]
    Rows,
    /// What was changed in a partition since the backup began.
    Changes,
    /// Databases and tables.
    Definitions,
    /// Statements that make what belongs to SQL nodes: users, views …
    Statements,
}

impl BackupContent {
    /// The kind of the blocks of items.
    pub const fn kind(self) -> BlockKind {
        match self {
            BackupContent::Rows => BlockKind::BackupRows,
            BackupContent::Changes => BlockKind::BackupChanges,
            BackupContent::Definitions => BlockKind::BackupDefinitions,
            BackupContent::Statements => BlockKind::BackupStatements,
        }
    }
}

/// The payload of a file's first block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupHead {
    /// What the file contains.
    pub content: BackupContent,
    /// The partition that it is of; 0 if it is of none.
    pub partition: u16,
}

/// The payload of a file's last block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupEnd {
    /// Blocks, the first and the last one, too.
    pub blocks: u64,
    /// Records, definitions or statements.
    pub items: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// A database or a table.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum BackupDefinition {
    /// A database.
    Database(BackupDatabase),
    /// A table.
    Table(BackupTable),
}

/// A database.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupDatabase {
    /// Its name.
    pub name: String,
    /// Bytes that SQL nodes keep with it.
    pub attachment: Vec<u8>,
}

/// A table.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupTable {
    /// Its id in the cluster that it is from, as records name it.
    pub table: u32,
    /// The version with which its rows began, as records name it.
    pub birth: u64,
    /// Columns, keys, indexes, options.
    pub definition: TableDefinition,
}

/// A statement for SQL nodes.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupStatement {
    /// The number of the SQL node that it is from.
    pub node: u16,
    /// What it makes, for people: `user 'a'@'%'`.
    pub what: String,
    /// The database in which it is to be run; none if empty.
    pub database: String,
    /// Settings of the session for it, as assignments with commas between.
    pub settings: String,
    /// The statement.
    pub text: String,
    /// The character set in which it was entered, and which the server keeps with it; empty: that of the session. The
    /// text here is UTF-8 all the same.
    pub character_set: String,
    /// The collation that the database had when the statement was entered: texts in routines, triggers and events have
    /// it. Empty: the statement does not depend on it.
    pub collation: String,
}

/// A statement in version 1 of the format.
#[derive(Deserialize)]
struct BackupStatement1 {
    node: u16,
    what: String,
    database: String,
    settings: String,
    text: String,
}

impl From<BackupStatement1> for BackupStatement {
    fn from(old: BackupStatement1) -> Self {
        let BackupStatement1 { node, what, database, settings, text } = old;
        let (character_set, collation) = (String::new(), String::new());
        BackupStatement { node, what, database, settings, text, character_set, collation }
    }
}

/// The payload of the manifest.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupManifest {
    /// The backup's random number, also in the head of each block.
    pub backup: u64,
    /// The program that has written it.
    pub program: String,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it was complete, in seconds since 1970.
    pub ended: u64,
    /// The backup is the state of the cluster at the end of this epoch.
    pub epoch: u64,
    /// The partitions of the cluster.
    pub partitions: u16,
    /// Whether a SQL node was asked for what belongs to SQL nodes.
    pub has_sql: bool,
    /// All other files.
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct BackupFile {
    /// Its name in the folder.
    pub name: String,
    /// What it contains.
    pub head: BackupHead,
    /// Its length in bytes.
    pub bytes: u64,
    /// What its last block says.
    pub end: BackupEnd,
}

/// Writes one file: items in, sealed blocks out.
pub struct BackupWriter {
    writer: BlockWriter,
    checksum: Checksum,
    origin: Origin,
    kind: BlockKind,
    end: BackupEnd,
}

fn origin(backup: u64) -> Origin {
    Origin { cluster: backup, node: NodeId(0), incarnation: 0, owner: 0 }
}

impl BackupWriter {
    /// A file of a backup, and its first block.
    pub fn new(backup: u64, head: BackupHead, checksum: Checksum) -> (Self, AlignedBuffer) {
        let origin = origin(backup);
        let first = block_of(Head::new(BlockKind::BackupHead, 0, origin), &cold::encode(&head), checksum);
        let end = BackupEnd { blocks: 1, ..BackupEnd::default() };
        (BackupWriter { writer: BlockWriter::new(), checksum, origin, kind: head.content.kind(), end }, first)
    }

    /// Appends some whole records. Returns the block before if they did not fit it.
    pub fn records(&mut self, records: &[u8], count: u64) -> Option<AlignedBuffer> {
        let full = self.make_room(records.len());
        self.writer.put(records);
        self.end.items += count;
        self.end.bytes += records.len() as u64;
        full
    }

    /// Appends a definition. Returns the block before if it did not fit it.
    pub fn definition(&mut self, definition: &BackupDefinition) -> Option<AlignedBuffer> {
        self.item(&cold::encode(definition))
    }

    /// Appends a statement. Returns the block before if it did not fit it.
    pub fn statement(&mut self, statement: &BackupStatement) -> Option<AlignedBuffer> {
        self.item(&cold::encode(statement))
    }

    fn item(&mut self, bytes: &[u8]) -> Option<AlignedBuffer> {
        let full = self.make_room(size_of::<u32>() + bytes.len());
        self.writer.put(&(bytes.len() as u32).to_le_bytes());
        self.writer.put(bytes);
        self.end.items += 1;
        self.end.bytes += bytes.len() as u64;
        full
    }

    fn make_room(&mut self, bytes: usize) -> Option<AlignedBuffer> {
        let full = (self.writer.is_open() && self.writer.room() < bytes).then(|| self.seal());
        if !self.writer.is_open() {
            let bytes_max = BLOCK_BYTES.max((HEAD_BYTES + bytes).next_multiple_of(SECTOR_BYTES));
            self.writer.begin(Head::new(self.kind, self.end.blocks, self.origin), bytes_max);
        }
        full
    }

    fn seal(&mut self) -> AlignedBuffer {
        self.writer.seal(self.checksum);
        self.end.blocks += 1;
        self.writer.take()
    }

    /// The last blocks, and what the very last one says.
    pub fn finish(mut self) -> (Vec<AlignedBuffer>, BackupEnd) {
        let mut blocks = Vec::new();
        if self.writer.is_open() {
            blocks.push(self.seal());
        }
        let number = self.end.blocks;
        self.end.blocks += 1;
        let head = Head::new(BlockKind::BackupEnd, number, self.origin);
        blocks.push(block_of(head, &cold::encode(&self.end), self.checksum));
        (blocks, self.end)
    }
}

impl BackupManifest {
    /// The bytes of the manifest's file.
    pub fn encode(&self, checksum: Checksum) -> AlignedBuffer {
        block_of(Head::new(BlockKind::BackupManifest, 0, origin(self.backup)), &cold::encode(self), checksum)
    }

    /// Reads the manifest's file.
    ///
    /// # Errors
    /// It is cut off, damaged, of another format or a newer version.
    pub fn decode(bytes: &[u8], checksum: Checksum) -> Result<Self, BackupError> {
        let block = read_block(bytes, checksum)?;
        if block.head.kind != BlockKind::BackupManifest {
            return Err(BackupError::Other(block.head.kind));
        }
        if block.bytes != bytes.len() {
            return Err(Malformed::new(block.bytes, "something stands behind the manifest's block").into());
        }
        let manifest: BackupManifest = cold::decode(block.payload)?;
        if manifest.backup != block.head.origin.cluster {
            return Err(BackupError::OtherBackup);
        }
        if manifest.epoch > Epoch::MAX.0 {
            return Err(Malformed::new(0, "the epoch has more than 48 bits").into());
        }
        Ok(manifest)
    }
}

/// Why a file of a backup can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupError {
    /// A block is damaged, cut off or of a newer version.
    Block(BlockError),
    /// The content of a block, whose checksum is right.
    Malformed(Malformed),
    /// A block of another kind than is due here.
    Other(BlockKind),
    /// The block has not the number that is due.
    Number(u64),
    /// The block belongs to another backup.
    OtherBackup,
    /// The file is another one than the manifest says.
    OtherFile,
    /// The last block counts something else than was read.
    Counts,
    /// Something stands behind the last block.
    Behind,
}

impl From<BlockError> for BackupError {
    fn from(error: BlockError) -> Self {
        BackupError::Block(error)
    }
}

impl From<Malformed> for BackupError {
    fn from(malformed: Malformed) -> Self {
        BackupError::Malformed(malformed)
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Block(error) => error.fmt(f),
            BackupError::Malformed(malformed) => malformed.fmt(f),
            BackupError::Other(kind) if kind.format() != Format::Backup => {
                write!(f, "this is no file of a backup, but of the {}", kind.format())
            }
            BackupError::Other(kind) => write!(f, "a block {kind:?} does not belong here"),
            BackupError::Number(number) => {
                write!(f, "the block has the number {number}: one is missing before it")
            }
            BackupError::OtherBackup => f.write_str("the block belongs to another backup"),
            BackupError::OtherFile => f.write_str("the file is not the one that the manifest names"),
            BackupError::Counts => f.write_str("the last block counts something else than the file contains"),
            BackupError::Behind => f.write_str("something stands behind the last block"),
        }
    }
}

impl core::error::Error for BackupError {}

/// A block of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupBlock<'a> {
    /// The first one.
    Head(BackupHead),
    /// Records of the redo log: [`redo::records`].
    Records(&'a [u8]),
    /// Definitions or statements.
    Items(BackupItems<'a>),
    /// The last one: the file is complete, and all of it is as it was written.
    End(BackupEnd),
}

/// The reader of one file: blocks in, what they contain out.
pub struct BackupReader {
    backup: u64,
    checksum: Checksum,
    head: Option<BackupHead>,
    end: BackupEnd,
}

impl BackupReader {
    /// A reader of a file of the backup with this number.
    pub fn new(backup: u64, checksum: Checksum) -> Self {
        BackupReader { backup, checksum, head: None, end: BackupEnd::default() }
    }

    /// Reads the block with which these bytes begin; returns how many bytes of the file it takes. All records of it are
    /// checked.
    ///
    /// # Errors
    /// [`BlockError::NeedsMore`] if the block goes on behind these bytes; everything else that is wrong with it.
    pub fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, BackupBlock<'a>), BackupError> {
        let block = read_block(bytes, self.checksum)?;
        if block.head.kind.format() != Format::Backup {
            return Err(BackupError::Other(block.head.kind));
        }
        if block.head.origin.cluster != self.backup {
            return Err(BackupError::OtherBackup);
        }
        if block.head.number != self.end.blocks {
            return Err(BackupError::Number(block.head.number));
        }
        self.end.blocks += 1;
        Ok((block.bytes, self.content(&block)?))
    }

    fn content<'a>(&mut self, block: &Block<'a>) -> Result<BackupBlock<'a>, BackupError> {
        let Some(head) = self.head else {
            if block.head.kind != BlockKind::BackupHead {
                return Err(BackupError::Other(block.head.kind));
            }
            let head: BackupHead = cold::decode(block.payload)?;
            self.head = Some(head);
            return Ok(BackupBlock::Head(head));
        };
        match block.head.kind {
            BlockKind::BackupEnd => {
                let end: BackupEnd = cold::decode(block.payload)?;
                if end != self.end {
                    return Err(BackupError::Counts);
                }
                Ok(BackupBlock::End(end))
            }
            kind if kind == head.content.kind() => match head.content {
                BackupContent::Rows | BackupContent::Changes => {
                    for record in redo::records(block.payload) {
                        record?;
                        self.end.items += 1;
                    }
                    self.end.bytes += block.payload.len() as u64;
                    Ok(BackupBlock::Records(block.payload))
                }
                BackupContent::Definitions | BackupContent::Statements => {
                    let all = BackupItems { version: block.version, bytes: block.payload };
                    for item in items(block.payload) {
                        let item = item?;
                        match head.content {
                            BackupContent::Definitions => drop(cold::decode::<BackupDefinition>(item)?),
                            _ => drop(all.statement(item)?),
                        }
                        self.end.items += 1;
                        self.end.bytes += item.len() as u64;
                    }
                    Ok(BackupBlock::Items(all))
                }
            },
            other => Err(BackupError::Other(other)),
        }
    }
}

/// The items of a block, in bytes.
fn items(payload: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let mut rest = payload;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = payload.len() - rest.len();
        let cut = core::mem::take(&mut rest)
            .split_first_chunk()
            .and_then(|(length, behind)| behind.split_at_checked(u32::from_le_bytes(*length) as usize));
        Some(match cut {
            Some((item, behind)) => {
                rest = behind;
                Ok(item)
            }
            None => Err(Malformed::new(at, "an item is longer than its block")),
        })
    })
}

/// What a block of definitions or statements contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupItems<'a> {
    /// The version of the format in which the block was written.
    version: u16,
    bytes: &'a [u8],
}

impl BackupItems<'_> {
    /// The definitions.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn definitions(&self) -> Result<Vec<BackupDefinition>, Malformed> {
        items(self.bytes).map(|item| cold::decode(item?)).collect()
    }

    /// The statements.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn statements(&self) -> Result<Vec<BackupStatement>, Malformed> {
        items(self.bytes).map(|item| self.statement(item?)).collect()
    }

    fn statement(&self, item: &[u8]) -> Result<BackupStatement, Malformed> {
        match self.version {
            1 => cold::decode::<BackupStatement1>(item).map(BackupStatement::from),
            _ => cold::decode(item),
        }
    }
}
