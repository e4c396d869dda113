//! Reads a backup: its manifest, and its files block by block. Everything is verified.

use super::{CHECKSUM, MANIFEST};
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vinga_format::BlockError;
use vinga_format::backup::{
    BackupBlock, BackupContent, BackupDefinition, BackupError, BackupFile, BackupItems, BackupManifest,
    BackupReader, BackupStatement,
};

/// Why the items of a block that was read can be taken apart.
const CHECKED: &str = "the reader has checked them";

/// What is wrong with a file of a backup.
#[derive(Debug)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where the block begins.
    pub offset: u64,
    /// What is the matter.
    pub what: String,
    /// Whether a newer program has written it.
    pub is_newer: bool,
}

impl Problem {
    fn new(file: &Path, offset: u64, what: impl Display) -> Self {
        Problem { file: file.to_owned(), offset, what: what.to_string(), is_newer: false }
    }

    fn of(file: &Path, offset: u64, error: BackupError) -> Self {
        let is_newer = matches!(error, BackupError::Block(error) if error.is_of_writer());
        Problem { is_newer, ..Problem::new(file, offset, error) }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at offset {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// A backup, of which the manifest was read.
pub struct Backup {
    /// Its folder.
    pub folder: PathBuf,
    /// What it consists of.
    pub manifest: BackupManifest,
}

impl Backup {
    /// Reads the manifest of the backup in a folder.
    ///
    /// # Errors
    /// A problem: there is no such folder, or no manifest in it, or that is damaged or of a newer version.
    pub fn open(folder: &Path) -> Result<Self, Problem> {
        let path = folder.join(MANIFEST);
        let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound if !folder.is_dir() => Problem::new(folder, 0, "there is no such folder"),
            ErrorKind::NotFound => Problem::new(
                &path,
                0,
                "there is no manifest: this folder is no backup, or one that was cut off before it was complete",
            ),
            _ => Problem::new(&path, 0, error),
        })?;
        let manifest =
            BackupManifest::decode(&bytes, CHECKSUM).map_err(|error| Problem::of(&path, 0, error))?;
        for file in &manifest.files {
            // A name leads to nowhere else.
            if file.name.contains(['/', '\0']) || file.name.starts_with('.') {
                return Err(Problem::new(&path, 0, "the manifest names a file outside of the folder"));
            }
        }
        Ok(Backup { folder: folder.to_owned(), manifest })
    }

    /// The files with some content, in the order of the partitions.
    pub fn files(&self, content: BackupContent) -> impl Iterator<Item = &BackupFile> {
        self.manifest.files.iter().filter(move |file| file.head.content == content)
    }

    /// Reads a file to its end; `each` is given the content of each block, and may end it with an error.
    ///
    /// # Errors
    /// What is wrong with the file; what `each` says.
    pub fn read<E: From<Problem>>(
        &self,
        expected: &BackupFile,
        mut each: impl FnMut(BackupBlock<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.folder.join(&expected.name);
        let failed = |offset, error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Problem::new(&path, 0, "the file is missing"),
            _ => Problem::new(&path, offset, error),
        };
        let mut file = File::open(&path).map_err(|error| failed(0, error))?;
        let length = file.metadata().map_err(|error| failed(0, error))?.len();
        if length < expected.bytes {
            let what = format!("the file was cut off: it had {} bytes", expected.bytes);
            return Err(Problem::new(&path, length, what).into());
        }
        let mut reader = BackupReader::new(self.manifest.backup, CHECKSUM);
        let (mut offset, mut bytes, mut ends_file) = (0u64, Vec::new(), false);
        loop {
            let at = offset;
            let problem = |error| E::from(Problem::of(&path, at, error));
            match reader.read(&bytes) {
                Ok((taken, block)) => {
                    let is_end = match block {
                        BackupBlock::Head(head) if head != expected.head => {
                            return Err(problem(BackupError::OtherFile));
                        }
                        BackupBlock::End(end) if end != expected.end => {
                            return Err(problem(BackupError::OtherFile));
                        }
                        BackupBlock::End(_) => true,
                        _ => false,
                    };
                    each(block)?;
                    offset += taken as u64;
                    bytes.drain(..taken);
                    if is_end {
                        let is_behind = !bytes.is_empty() || offset != length;
                        return if is_behind { Err(problem(BackupError::Behind)) } else { Ok(()) };
                    }
                }
                Err(BackupError::Block(BlockError::NeedsMore(needed))) if !ends_file => {
                    let more = (needed - bytes.len()) as u64;
                    let read = (&mut file).take(more).read_to_end(&mut bytes);
                    let read = read.map_err(|error| failed(offset, error))?;
                    ends_file = (read as u64) < more;
                }
                Err(error) => return Err(problem(error)),
            }
        }
    }

    /// Verifies all files, several at a time.
    ///
    /// # Errors
    /// All that are not well.
    pub fn verify(&self) -> Result<(), Vec<Problem>> {
        let next = AtomicUsize::new(0);
        let problems = Mutex::new(Vec::new());
        let work = || {
            while let Some(file) = self.manifest.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(problem) = self.read::<Problem>(file, |_| Ok(())) {
                    problems.lock().expect("nobody panics with it").push(problem);
                }
            }
        };
        std::thread::scope(|threads| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                threads.spawn(work);
            }
        });
        let mut problems = problems.into_inner().expect("nobody has panicked");
        problems.sort_by(|a, b| a.file.cmp(&b.file));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// All databases and tables.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn definitions(&self) -> Result<Vec<BackupDefinition>, Problem> {
        let mut all = Vec::new();
        self.items(BackupContent::Definitions, |items| all.extend(items.definitions().expect(CHECKED)))?;
        Ok(all)
    }

    /// All statements for SQL nodes.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn statements(&self) -> Result<Vec<BackupStatement>, Problem> {
        let mut all = Vec::new();
        self.items(BackupContent::Statements, |items| all.extend(items.statements().expect(CHECKED)))?;
        Ok(all)
    }

    fn items(&self, content: BackupContent, mut take: impl FnMut(&BackupItems<'_>)) -> Result<(), Problem> {
        for file in self.files(content) {
            self.read::<Problem>(file, |block| {
                if let BackupBlock::Items(items) = block {
                    take(&items);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
