//! The formats of files, each with a version of its own, and the kinds of blocks that they consist of.

use core::fmt;

/// What a file contains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Segments of a stream of the redo log ([`crate::redo`]).
    Redo,
    /// A checkpoint of a data manager ([`crate::image`]).
    Checkpoint,
    /// The node's view of the cluster's durable state ([`crate::system`]).
    System,
    /// Definitions of tables and databases ([`crate::schema`]).
    Schema,
    /// A backup of the cluster ([`crate::backup`]).
    Backup,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 5] =
        [Format::Redo, Format::Checkpoint, Format::System, Format::Schema, Format::Backup];

    /// What its blocks begin with. Any two differ in three bytes, so that one damaged byte does not make one another.
    pub const fn magic(self) -> u32 {
        u32::from_le_bytes(match self {
            Format::Redo => *b"VRDO",
            Format::Checkpoint => *b"VIMG",
            Format::System => *b"VSYS",
            Format::Schema => *b"VDEF",
            Format::Backup => *b"VBAK",
        })
    }

    /// The version that is written. Older ones, from 1 on, can be read.
    pub const fn version(self) -> u16 {
        match self {
            Format::Checkpoint => 1,
            // Since 2 it says when the durable epoch was.
            Format::System => 2,
            // Since 2 the head of a segment says from where on batches are needed.
            Format::Redo => 2,
            // Since 2 a table may have `Durability::Disk`.
            Format::Schema => 2,
            // Since 2 a statement has the character set and the collation under which it was entered.
            Format::Backup => 2,
        }
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Redo => "redo log",
            Format::Checkpoint => "checkpoint",
            Format::System => "system file",
            Format::Schema => "schema file",
            Format::Backup => "backup",
        }
    }

    /// The format whose blocks begin so.
    #[inline]
    pub fn from_magic(magic: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.magic() == magic)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a block contains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockKind {
    /// The first block of a file of the redo log: which segment the file holds.
    SegmentHead = 1,
    /// Redo records.
    RedoEntries = 2,
    /// The first block of a checkpoint: what it consists of.
    ImageHead = 3,
    /// Rows.
    ImagePages = 4,
    /// The last block of a checkpoint.
    ImageEnd = 5,
    /// A node's view of the cluster's durable state.
    SystemState = 6,
    /// The first block of a schema file: which generation it holds.
    SchemaHead = 7,
    /// Definitions.
    SchemaEntries = 8,
    /// The first block of a file of a backup: what the file contains.
    BackupHead = 9,
    /// Rows.
    BackupRows = 10,
    /// What was changed while the rows were read.
    BackupChanges = 11,
    /// Databases and tables.
    BackupDefinitions = 12,
    /// Statements for SQL nodes.
    BackupStatements = 13,
    /// The last block of a file of a backup.
    BackupEnd = 14,
    /// What belongs to a backup.
    BackupManifest = 15,
}

impl BlockKind {
    /// All of them.
    pub const ALL: [BlockKind; 15] = [
        BlockKind::SegmentHead,
        BlockKind::RedoEntries,
        BlockKind::ImageHead,
        BlockKind::ImagePages,
        BlockKind::ImageEnd,
        BlockKind::SystemState,
        BlockKind::SchemaHead,
        BlockKind::SchemaEntries,
        BlockKind::BackupHead,
        BlockKind::BackupRows,
        BlockKind::BackupChanges,
        BlockKind::BackupDefinitions,
        BlockKind::BackupStatements,
        BlockKind::BackupEnd,
        BlockKind::BackupManifest,
    ];

    /// The number in a block's head.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The format whose files have such blocks.
    pub const fn format(self) -> Format {
        match self {
            BlockKind::SegmentHead | BlockKind::RedoEntries => Format::Redo,
            BlockKind::ImageHead | BlockKind::ImagePages | BlockKind::ImageEnd => Format::Checkpoint,
            BlockKind::SystemState => Format::System,
            BlockKind::SchemaHead | BlockKind::SchemaEntries => Format::Schema,
            BlockKind::BackupHead
            | BlockKind::BackupRows
            | BlockKind::BackupChanges
            | BlockKind::BackupDefinitions
            | BlockKind::BackupStatements
            | BlockKind::BackupEnd
            | BlockKind::BackupManifest => Format::Backup,
        }
    }

    /// The kind with a number, if files of that format have such blocks.
    #[inline]
    pub fn from_number(format: Format, number: u16) -> Option<BlockKind> {
        BlockKind::ALL.into_iter().find(|kind| kind.number() == number && kind.format() == format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again() {
        for format in Format::ALL {
            assert_eq!(Format::from_magic(format.magic()), Some(format));
            for other in Format::ALL.into_iter().filter(|&other| other != format) {
                let differing =
                    (format.magic() ^ other.magic()).to_le_bytes().iter().filter(|&&b| b != 0).count();
                assert!(differing >= 2, "{format} and {other}");
            }
        }
        assert_eq!(Format::from_magic(0), None);
        for (i, kind) in BlockKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), i + 1);
            for format in Format::ALL {
                let found = BlockKind::from_number(format, kind.number());
                assert_eq!(found, (kind.format() == format).then_some(kind));
            }
        }
    }
}
