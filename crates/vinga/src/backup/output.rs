//! The folder of a backup that is being written, and its files.

use super::{CHECKSUM, MANIFEST};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use vinga_format::backup::{
    BackupDefinition, BackupFile, BackupHead, BackupManifest, BackupStatement, BackupWriter,
};

/// The folder.
pub struct Target {
    path: PathBuf,
    /// The backup's random number.
    number: u64,
    /// Whether the folder was made for it.
    is_new: bool,
}

impl Target {
    /// Makes the folder, or takes an empty one.
    ///
    /// # Errors
    /// There is something in it, or it can't be made or written to.
    pub fn make(path: PathBuf) -> Result<Self, String> {
        let place = path.display();
        let is_new = match fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(&path)
                    .map_err(|error| format!("{place} is there and no folder that can be used: {error}"))?;
                if entries.next().is_some() {
                    return Err(format!(
                        "the folder {place} is not empty: --to names one that is not there yet"
                    ));
                }
                false
            }
            Err(error) => return Err(format!("cannot make the folder {place} for the backup: {error}")),
        };
        // Each of these has keys of its own.
        let number = RandomState::new().build_hasher().finish();
        Ok(Target { path, number, is_new })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The backup's random number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Begins a file.
    ///
    /// # Errors
    /// A text with the file.
    pub fn create(&self, name: impl Into<String>, head: BackupHead) -> Result<Output, String> {
        let name = name.into();
        let path = self.path.join(&name);
        let file =
            File::create_new(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let (writer, first) = BackupWriter::new(self.number, head, CHECKSUM);
        let mut output = Output { file, path, name, head, writer, bytes: 0 };
        output.write(&first)?;
        Ok(output)
    }

    /// Writes the manifest, which makes the backup whole. All other files are on the disk.
    ///
    /// # Errors
    /// A text with the file.
    pub fn write_manifest(&self, manifest: &BackupManifest) -> Result<(), String> {
        let path = self.path.join(MANIFEST);
        let write = || -> io::Result<()> {
            let mut file = File::create_new(&path)?;
            file.write_all(&manifest.encode(CHECKSUM))?;
            file.sync_all()?;
            File::open(&self.path)?.sync_all()?;
            // The name of the folder, too, if it is new.
            match self.path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
                _ => File::open(".")?.sync_all(),
            }
        };
        write().map_err(|error| cannot_write(&path, &error))
    }

    /// Removes what was written: the backup has failed.
    pub fn remove(&self) {
        // What can't be removed has no manifest, so it is not taken for a backup.
        if self.is_new {
            let _ = fs::remove_dir_all(&self.path);
        } else if let Ok(entries) = fs::read_dir(&self.path) {
            for entry in
                entries.flatten().filter(|entry| entry.path().extension().is_some_and(|e| e == "backup"))
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// A file of a backup that is being written.
pub struct Output {
    file: File,
    path: PathBuf,
    name: String,
    head: BackupHead,
    writer: BackupWriter,
    bytes: u64,
}

impl Output {
    fn write(&mut self, block: &[u8]) -> Result<(), String> {
        self.file.write_all(block).map_err(|error| cannot_write(&self.path, &error))?;
        self.bytes += block.len() as u64;
        Ok(())
    }

    fn write_full(&mut self, block: Option<impl AsRef<[u8]>>) -> Result<(), String> {
        block.map_or(Ok(()), |block| self.write(block.as_ref()))
    }

    /// Appends whole records.
    ///
    /// # Errors
    /// A text with the file.
    pub fn records(&mut self, records: &[u8], count: u64) -> Result<(), String> {
        let full = self.writer.records(records, count);
        self.write_full(full.as_deref())
    }

    /// Appends a definition.
    ///
    /// # Errors
    /// A text with the file.
    pub fn definition(&mut self, definition: &BackupDefinition) -> Result<(), String> {
        let full = self.writer.definition(definition);
        self.write_full(full.as_deref())
    }

    /// Appends a statement.
    ///
    /// # Errors
    /// A text with the file.
    pub fn statement(&mut self, statement: &BackupStatement) -> Result<(), String> {
        let full = self.writer.statement(statement);
        self.write_full(full.as_deref())
    }

    /// Ends the file and brings it to the disk.
    ///
    /// # Errors
    /// A text with the file.
    pub fn finish(self) -> Result<BackupFile, String> {
        let Output { mut file, path, name, head, writer, mut bytes } = self;
        let (blocks, end) = writer.finish();
        for block in blocks {
            file.write_all(&block).map_err(|error| cannot_write(&path, &error))?;
            bytes += block.len() as u64;
        }
        file.sync_all().map_err(|error| cannot_write(&path, &error))?;
        Ok(BackupFile { name, head, bytes, end })
    }
}
