//! Files, as blocks use them: a block asks for a task, the driver has it done and answers with a signal.
//!
//! Files are named by what they are for ([`FileName`]), never by paths; the driver opens them when they are first used.
//! All of a node's files are in one folder. Tasks of one block on one file are done in their order; those on different
//! files in any order; a rename is a task on both files. Data that is written is handed over with the task, without a
//! copy; data that was read is handed over beside the answer ([`crate::Context::take_file_data`]).
//!
//! What a task promises when it is confirmed:
//!
//! | task | promise |
//! |---|---|
//! | [`FileTask::Read`] | these bytes are in the file; fewer than asked for if it ends before |
//! | [`FileTask::Write`] | reads see it; it may be lost when the machine stops, sector by sector, until a flush |
//! | [`FileTask::Flush`] | all that was written to the file before is on the disk |
//! | [`FileTask::Allocate`] | the file exists, on the disk too, has that size at least, and the disk has room for it |
//! | [`FileTask::Fill`] | that part of the file holds zeros, so that later writes change no metadata |
//! | [`FileTask::Remove`], [`FileTask::Rename`] | on the disk, too |
//! | [`FileTask::List`] | the files of a kind that there are, with their sizes |
//!
//! A flush that has failed says nothing about what is on the disk, and neither would the next one (the system forgets
//! the error): whoever relies on it stops the node ([`crate::Context::stop_node`]).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::aligned::AlignedBuffer;
use vinga_wire::Address;
use vinga_wire::file::FileErrorKind;

/// What a file is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// The node's view of the cluster's durable state, in two copies.
    System,
    /// Definitions of tables and databases, in two generations.
    Schema,
    /// Redo log.
    Redo,
    /// Checkpoints of data managers.
    Checkpoint,
    /// Backups.
    Backup,
}

/// The name of a file of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName {
    /// What it is for.
    pub kind: FileKind,
    /// The block instance that it belongs to; of a backup its number.
    pub owner: u32,
    /// Which of the owner's files.
    pub number: u64,
}

impl FileKind {
    /// All of them, with the folder that its files are in and the ending of their names.
    const PLACES: [(FileKind, &'static str, &'static str); 5] = [
        (FileKind::System, "system", "sys"),
        (FileKind::Schema, "schema", "schema"),
        (FileKind::Redo, "redo", "redo"),
        (FileKind::Checkpoint, "checkpoint", "image"),
        (FileKind::Backup, "backup", "backup"),
    ];

    fn place(self) -> (&'static str, &'static str) {
        let (_, folder, ending) =
            Self::PLACES.into_iter().find(|(kind, ..)| *kind == self).expect("each kind has a place");
        (folder, ending)
    }

    /// The folder of its files, below the node's.
    pub fn folder(self) -> &'static str {
        self.place().0
    }
}

impl FileName {
    /// A file of a block instance.
    pub fn new(kind: FileKind, owner: u32, number: u64) -> Self {
        FileName { kind, owner, number }
    }

    /// Its path below the node's folder.
    pub fn path(&self) -> String {
        let (folder, ending) = self.kind.place();
        format!("{folder}/{:03}-{:08}.{ending}", self.owner, self.number)
    }

    /// The inverse of [`FileName::path`]; `None` if no file of a node has such a path.
    pub fn from_path(path: &str) -> Option<Self> {
        let (folder, file) = path.rsplit_once('/')?;
        let (numbers, ending) = file.rsplit_once('.')?;
        let kind = FileKind::PLACES.into_iter().find(|place| (place.1, place.2) == (folder, ending))?.0;
        let (owner, number) = numbers.split_once('-')?;
        let name = FileName { kind, owner: owner.parse().ok()?, number: number.parse().ok()? };
        (name.path() == path).then_some(name)
    }
}

/// What is to be done with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileTask {
    /// Read so many bytes from an offset; both are whole sectors.
    Read {
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// Write at an offset, which is a whole number of sectors.
    Write {
        /// Where it begins.
        offset: u64,
        /// What is written.
        data: Data,
    },
    /// Force what was written to the disk.
    Flush,
    /// Make the file, if there is none, with room for so many bytes.
    Allocate {
        /// Its size at least.
        bytes: u64,
    },
    /// Write zeros, in whole sectors.
    Fill {
        /// Where they begin.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Remove the file; that there is none is no error.
    Remove,
    /// Give the file another name, in place of the file that has it.
    Rename {
        /// The new name.
        to: FileName,
    },
    /// List the files of the same kind and owner.
    List,
}

impl FileTask {
    /// In a word, for errors.
    pub fn name(&self) -> &'static str {
        match self {
            FileTask::Read { .. } => "read",
            FileTask::Write { .. } => "write",
            FileTask::Flush => "flush",
            FileTask::Allocate { .. } => "allocate",
            FileTask::Fill { .. } => "fill",
            FileTask::Remove => "remove",
            FileTask::Rename { .. } => "rename",
            FileTask::List => "list",
        }
    }

    /// Whether it changes nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            FileTask::Read { .. } | FileTask::List => true,
            FileTask::Write { .. }
            | FileTask::Flush
            | FileTask::Allocate { .. }
            | FileTask::Fill { .. }
            | FileTask::Remove
            | FileTask::Rename { .. } => false,
        }
    }

    /// Where in the file it reads or writes: offset and number of bytes. Zeros for other tasks.
    pub fn place(&self) -> (u64, u64) {
        match self {
            FileTask::Read { offset, bytes } => (*offset, u64::from(*bytes)),
            FileTask::Write { offset, data } => (*offset, data.0.len() as u64),
            FileTask::Fill { offset, bytes } => (*offset, *bytes),
            FileTask::Flush
            | FileTask::Allocate { .. }
            | FileTask::Remove
            | FileTask::Rename { .. }
            | FileTask::List => (0, 0),
        }
    }
}

/// Bytes to be written, compared by content.
#[derive(Clone, Debug)]
pub struct Data(pub AlignedBuffer);

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        self.0[..] == other.0[..]
    }
}

impl Eq for Data {}

/// A task of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// The block that is answered.
    pub requester: Address,
    /// Its identifier of the task.
    pub token: u64,
    /// The file.
    pub file: FileName,
    /// What is to be done.
    pub task: FileTask,
}

/// What is handed over with the confirmation of a task.
#[derive(Clone, Debug, Default)]
pub enum FileData {
    /// Nothing.
    #[default]
    None,
    /// What was read, and how many bytes of it the file has.
    Bytes(AlignedBuffer, usize),
    /// Files with their sizes, by name.
    Names(Vec<(FileName, u64)>),
}

/// Why a task has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// What kind of failure.
    pub kind: FileErrorKind,
    /// For people: task, path and the system's reason.
    pub text: String,
}

/// The answer to a task.
#[derive(Clone, Debug)]
pub struct FileAnswer {
    /// The block that asked.
    pub requester: Address,
    /// Its identifier of the task.
    pub token: u64,
    /// What became of it.
    pub result: Result<FileData, FileError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_and_paths_are_names() {
        for name in [
            FileName::new(FileKind::System, 0, 1),
            FileName::new(FileKind::Redo, 31, 15),
            FileName::new(FileKind::Checkpoint, 1234, 123_456_789_012),
        ] {
            assert_eq!(FileName::from_path(&name.path()), Some(name), "{}", name.path());
        }
        assert_eq!(FileName::new(FileKind::Redo, 2, 7).path(), "redo/002-00000007.redo");
        for path in [
            "redo/2-7.redo",
            "redo/002-00000007.image",
            "redo/002-00000007",
            "002-00000007.redo",
            "redo/x-y.redo",
            "",
        ] {
            assert_eq!(FileName::from_path(path), None, "{path}");
        }
    }
}
