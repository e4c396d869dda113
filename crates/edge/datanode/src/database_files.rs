//! The files of a database in a node's folder, as the start of a node finds them before any thread runs. Whoever calls
//! this has the lock on the folder.
//!
//! **How they are removed** (`--initial`). Both copies of the system file go first, and that is on the disk before any
//! other file is touched. So whatever interrupts it,
//! - nothing is removed, or the older copy is left: the node starts with everything, as if nobody had asked;
//! - both copies are gone and other files are left: a start is refused until it is asked to begin anew, once more.
//!
//! There is no state in between in which a node starts with a part of its data. In the other order there would be: a
//! system file says nothing of checkpoints, so a node whose newest ones are gone may start from older ones, if the log
//! reaches back so far; and it would then have to notice everywhere that something is missing.
//!
//! **A first start** makes the files of the log and the definitions before it writes the system file. If it is
//! interrupted in between, the folder looks like that of a node that has lost its system file. To tell the two apart, a
//! first start begins by writing a mark (`vinga.initial`), in a folder that has no files of a database, and removes it
//! before the first client is let in. Files beside the mark, without a system file, have never contained anything, if
//! nobody has put them there (`first_start`).

use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vinga_kernel::files::{FileKind, FileName};
use vinga_runtime::files::flush_folder;
use vinga_wire::ErrorCode;
use vinga_wire::file::NEEDS_PERMISSION;

/// Kinds of files that are the database's, in the order in which they are removed. Backups are not: they are made to be
/// kept.
const KINDS: [FileKind; 4] = [FileKind::System, FileKind::Schema, FileKind::Redo, FileKind::Checkpoint];

/// A copy of the system file is a few kilobytes long; what is longer than this is none.
const SYSTEM_BYTES_MAX: u64 = 16 << 20;

/// The files of the database in a node's folder.
pub struct DatabaseFiles<'a> {
    folder: &'a Path,
}

/// What was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    folder: PathBuf,
    counts: Vec<(usize, FileKind)>,
}

impl<'a> DatabaseFiles<'a> {
    /// Those in this folder.
    pub fn new(folder: &'a Path) -> Self {
        DatabaseFiles { folder }
    }

    /// The path of a copy of the system file.
    pub fn system_file(&self, copy: usize) -> PathBuf {
        self.folder.join(FileName::new(FileKind::System, 0, copy as u64).path())
    }

    /// The bytes of both copies of the system file; none of a copy that does not exist.
    ///
    /// # Errors
    /// One can't be read; the text names it.
    pub fn system_copies(&self) -> Result<[Vec<u8>; 2], String> {
        let read = |copy| {
            let path = self.system_file(copy);
            let mut bytes = Vec::new();
            let result =
                File::open(&path).and_then(|file| file.take(SYSTEM_BYTES_MAX).read_to_end(&mut bytes));
            match result {
                Err(why) if why.kind() != io::ErrorKind::NotFound => Err(format!(
                    "the node can't start (error {}): the system file {} can't be read: {}",
                    number_of(&why),
                    path.display(),
                    why_refused(&why)
                )),
                _ => Ok(bytes),
            }
        };
        Ok([read(0)?, read(1)?])
    }

    /// How many files there are besides the copies of the system file.
    ///
    /// # Errors
    /// A folder can't be read; the text names it.
    pub fn count_others(&self) -> Result<usize, String> {
        let others = KINDS.into_iter().filter(|kind| *kind != FileKind::System);
        others.map(|kind| Ok(self.list(kind)?.len())).sum()
    }

    /// The mark of a first start.
    pub fn mark(&self) -> PathBuf {
        self.folder.join("vinga.initial")
    }

    /// Marks a first start, on the disk too. There must be no files of a database.
    ///
    /// # Errors
    /// The file system's; the text names the file.
    pub fn begin_first_start(&self) -> Result<(), String> {
        let mark = self.mark();
        let text = "The first start of this data node has not been finished.\n";
        let written = fs::write(&mark, text).and_then(|()| File::open(&mark)?.sync_all());
        written
            .and_then(|()| flush_folder(self.folder))
            .map_err(|why| format!("can't write {}: {}", mark.display(), why_refused(&why)))
    }

    /// Removes all files of the database; other files in the folder stay.
    ///
    /// # Errors
    /// The file system's; the text names the file.
    pub fn remove_all(&self) -> Result<Removed, String> {
        let mut counts = Vec::new();
        for kind in KINDS {
            let files = self.list(kind)?;
            for file in &files {
                fs::remove_file(file)
                    .map_err(|why| format!("can't remove {}: {}", file.display(), why_refused(&why)))?;
            }
            if !files.is_empty() {
                let folder = self.folder.join(kind.folder());
                flush_folder(&folder).map_err(|why| format!("can't flush {}: {why}", folder.display()))?;
                counts.push((files.len(), kind));
            }
        }
        Ok(Removed { folder: self.folder.to_owned(), counts })
    }

    /// The files of a kind.
    ///
    /// # Errors
    /// The folder can't be read; the text names it.
    pub fn list(&self, kind: FileKind) -> Result<Vec<PathBuf>, String> {
        let folder = self.folder.join(kind.folder());
        let failed =
            |why: io::Error| format!("the folder {} can't be read: {}", folder.display(), why_refused(&why));
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(failed(why)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if FileName::from_path(&format!("{}/{}", kind.folder(), name.to_string_lossy())).is_some() {
                files.push(folder.join(name));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// The number of the error that a file can't be read.
fn number_of(why: &io::Error) -> u16 {
    match why.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorCode::FileNotPermitted as u16
        }
        _ => ErrorCode::FileFailed as u16,
    }
}

/// Why the system refuses something, and what to do if it does not permit it.
pub fn why_refused(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{why}: {NEEDS_PERMISSION}")
        }
        _ => why.to_string(),
    }
}

/// So many files of a kind.
fn in_words(count: usize, kind: FileKind) -> String {
    let (one, several) = match kind {
        FileKind::System => ("copy of the system file", "copies of the system file"),
        FileKind::Schema => ("file of definitions", "files of definitions"),
        FileKind::Redo => ("file of the redo log", "files of the redo log"),
        FileKind::Checkpoint => ("checkpoint", "checkpoints"),
        FileKind::Backup => ("file of backups", "files of backups"),
    };
    format!("{count} {}", if count == 1 { one } else { several })
}

impl Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        if self.counts.is_empty() {
            return write!(f, "no database was in {folder}: nothing is removed");
        }
        let counts: Vec<String> = self.counts.iter().map(|(count, kind)| in_words(*count, *kind)).collect();
        write!(f, "the database in {folder} is removed: {}", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files of a database, and others.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for file in [
            "system/000-00000000.sys",
            "system/000-00000001.sys",
            "schema/000-00000000.schema",
            "redo/000-00000000.redo",
            "redo/000-00000001.redo",
            "redo/notes.txt",
            "checkpoint/003-00000007.image",
            "backup/001-00000000.backup",
            "vinga.log",
        ] {
            let path = place.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        place
    }

    #[test]
    fn only_files_of_the_database_are_removed() {
        let place = place();
        let files = DatabaseFiles::new(place.path());
        assert_eq!(files.count_others(), Ok(4));
        assert_eq!(files.system_copies().unwrap()[1], b"system/000-00000001.sys");
        let removed = files.remove_all().unwrap().to_string();
        let expected = "is removed: 2 copies of the system file, 1 file of definitions, 2 files of the redo log, \
                        1 checkpoint";
        assert!(removed.ends_with(expected), "{removed}");
        assert_eq!((files.count_others(), files.system_copies()), (Ok(0), Ok([Vec::new(), Vec::new()])));
        for stays in ["redo/notes.txt", "backup/001-00000000.backup", "vinga.log"] {
            assert!(place.path().join(stays).exists(), "{stays}");
        }
        assert!(files.remove_all().unwrap().to_string().contains("nothing is removed"));
    }

    #[test]
    fn a_removal_that_is_interrupted_has_removed_the_system_file_first() {
        let place = place();
        // A folder in the place of a file can't be removed.
        for in_the_way in ["schema/000-00000001.schema", "redo/000-00000002.redo"] {
            let folder = place.path().join(in_the_way);
            fs::create_dir_all(&folder).unwrap();
            let why = DatabaseFiles::new(place.path()).remove_all().unwrap_err();
            assert!(why.contains(in_the_way), "{why}");
            let files = DatabaseFiles::new(place.path());
            assert_eq!(files.system_copies(), Ok([Vec::new(), Vec::new()]));
            assert!(files.count_others().unwrap() > 0, "a start is refused");
            fs::remove_dir(folder).unwrap();
        }
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("system/000-00000001.sys")).unwrap();
        fs::write(place.path().join("redo"), "no folder").unwrap();
        let files = DatabaseFiles::new(place.path());
        let why = files.system_copies().unwrap_err();
        assert!(
            why.contains("(error 20056)") && why.contains("system/000-00000001.sys can't be read"),
            "{why}"
        );
        let why = files.count_others().unwrap_err();
        assert!(why.contains("/redo can't be read"), "{why}");
    }
}
