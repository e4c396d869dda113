//! Tasks on files as system calls.

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_kernel::files::{FileError, FileKind, FileName, FileTask};
use vinga_wire::file::FileErrorKind;

const WHO: &str = "files";

/// Zeros are written in pieces of this many bytes.
pub(super) const FILL_BYTES: u64 = 1024 * 1024;

/// A file that is open for reading and writing.
pub(super) struct OpenFile(File);

/// The folder of a node's files.
pub(super) struct FileSystem {
    folder: PathBuf,
    /// Cleared when the file system has no direct transfers.
    is_direct: AtomicBool,
}

impl FileSystem {
    pub fn new(folder: PathBuf) -> Self {
        FileSystem { folder, is_direct: AtomicBool::new(true) }
    }

    /// What an error of the system means, with a text for people.
    pub fn error(&self, task: &FileTask, file: FileName, why: Errno) -> FileError {
        let kind = match why {
            Errno::NOENT => FileErrorKind::NotFound,
            Errno::NOSPC | Errno::DQUOT => FileErrorKind::DiskFull,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FileErrorKind::NotPermitted,
            _ => FileErrorKind::Failed,
        };
        let text = format!("{} {}: {}", task.name(), self.path(file).display(), io::Error::from(why));
        FileError { kind, text }
    }

    /// Opens a file that exists.
    pub fn open(&self, file: FileName) -> Result<OpenFile, Errno> {
        self.open_with(file, OFlags::empty())
    }

    /// Makes the file, if there is none, with room for so many bytes; a file that can't get them is not made.
    pub fn allocate(&self, file: FileName, bytes: u64) -> Result<OpenFile, Errno> {
        let (open, is_new) = match self.open(file) {
            Ok(open) => (open, false),
            Err(Errno::NOENT) => {
                self.make_folder(file.kind)?;
                (self.open_with(file, OFlags::CREATE | OFlags::EXCL)?, true)
            }
            Err(why) => return Err(why),
        };
        // The names of a file that is there may not be on the disk yet: the node may have crashed behind their making.
        let result = open
            .reserve(bytes)
            .and_then(|()| flush_folder(&self.folder_of(file.kind)))
            .and_then(|()| flush_folder(&self.folder));
        if let Err(why) = result {
            if is_new {
                // It is no use; that it stays, if it does, harms nobody.
                let _ = rustix::fs::unlink(self.path(file));
            }
            return Err(why);
        }
        Ok(open)
    }

    /// Removes a file; that there is none is no error.
    pub fn remove(&self, file: FileName) -> Result<(), Errno> {
        match rustix::fs::unlink(self.path(file)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(why) => return Err(why),
        }
        match flush_folder(&self.folder_of(file.kind)) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    /// Gives a file another name, in place of the file that has it.
    pub fn rename(&self, file: FileName, to: FileName) -> Result<(), Errno> {
        self.make_folder(to.kind)?;
        rustix::fs::rename(self.path(file), self.path(to))?;
        flush_folder(&self.folder_of(to.kind))?;
        if to.kind == file.kind { Ok(()) } else { flush_folder(&self.folder_of(file.kind)) }
    }

    /// The files of the same kind and owner, with their sizes, by name.
    pub fn list(&self, file: FileName) -> Result<Vec<(FileName, u64)>, Errno> {
        let entries = match fs::read_dir(self.folder_of(file.kind)) {
            Ok(entries) => entries,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(errno(&why)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|why| errno(&why))?;
            let path = format!("{}/{}", file.kind.folder(), entry.file_name().to_string_lossy());
            let Some(name) = FileName::from_path(&path).filter(|name| name.owner == file.owner) else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) => found.push((name, metadata.len())),
                // It was removed just now.
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(errno(&why)),
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn path(&self, file: FileName) -> PathBuf {
        self.folder.join(file.path())
    }

    fn folder_of(&self, kind: FileKind) -> PathBuf {
        self.folder.join(kind.folder())
    }

    /// Makes the folder of the files of a kind, if there is none.
    fn make_folder(&self, kind: FileKind) -> Result<(), Errno> {
        let folder = self.folder_of(kind);
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&folder).map_err(|why| errno(&why))?;
        flush_folder(&self.folder)?;
        // The node's folder may be new, too.
        let parent = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        flush_folder(parent.unwrap_or(Path::new(".")))
    }

    fn open_with(&self, file: FileName, flags: OFlags) -> Result<OpenFile, Errno> {
        let path = self.path(file);
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o640);
        let open = |flags| rustix::fs::open(&path, flags, mode).map(|file| OpenFile(File::from(file)));
        if !self.is_direct.load(Ordering::Relaxed) {
            return open(flags);
        }
        match open(flags | OFlags::DIRECT) {
            Err(Errno::INVAL) => {}
            result => return result,
        }
        // A file that was made by the attempt is left by some file systems.
        let buffered = open(flags.difference(OFlags::EXCL))?;
        if self.is_direct.swap(false, Ordering::Relaxed) {
            log::warn!(
                target: WHO,
                "the file system of {} can't write past the system's cache (O_DIRECT): files are slower, and take \
                 more CPU time",
                self.folder.display()
            );
        }
        Ok(buffered)
    }
}

impl OpenFile {
    /// Reads so many bytes; returns how many the file has of them.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<(AlignedBuffer, usize), Errno> {
        let mut buffer = AlignedBuffer::zeroed(bytes);
        let mut filled = 0;
        while filled < bytes {
            match rustix::io::pread(&self.0, &mut buffer[filled..bytes], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                // The end of the file is within a sector, and was reached before.
                Err(Errno::INVAL) if !filled.is_multiple_of(SECTOR_BYTES) => break,
                Err(why) => return Err(why),
            }
        }
        if filled < bytes && offset + (filled as u64) < self.size()? {
            return Err(Errno::IO);
        }
        Ok((buffer, filled))
    }

    /// Writes these pieces one behind the other. Returns how many bytes were written, and why not all.
    pub fn write(&self, offset: u64, pieces: &[&[u8]]) -> (u64, Result<(), Errno>) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let (mut rest, mut written) = (&mut slices[..], 0);
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.0, rest, offset + written) {
                Ok(0) => return (written, Err(Errno::IO)),
                Ok(count) => {
                    written += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(why) => return (written, Err(why)),
            }
        }
        (written, Ok(()))
    }

    /// Writes zeros, of which `zeros` are some.
    pub fn fill(&self, offset: u64, bytes: u64, zeros: &[u8]) -> Result<(), Errno> {
        let (mut offset, end) = (offset, offset + bytes);
        while offset < end {
            // Each piece but the first begins at a multiple of its size.
            let piece_end = ((offset / FILL_BYTES + 1) * FILL_BYTES).min(end);
            let (_, result) = self.write(offset, &[&zeros[..(piece_end - offset) as usize]]);
            result?;
            offset = piece_end;
        }
        Ok(())
    }

    /// Forces what was written to the disk.
    pub fn flush(&self) -> Result<(), Errno> {
        again_if_interrupted(|| rustix::fs::fdatasync(&self.0))
    }

    /// Makes room for so many bytes, on the disk too.
    fn reserve(&self, bytes: u64) -> Result<(), Errno> {
        if bytes > 0 {
            let result =
                again_if_interrupted(|| rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes));
            match result {
                // The file system can't reserve room; it gives it as the file is filled.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.size()? < bytes => {
                    rustix::fs::ftruncate(&self.0, bytes)?;
                }
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(why) => return Err(why),
            }
        }
        again_if_interrupted(|| rustix::fs::fsync(&self.0))
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(rustix::fs::fstat(&self.0)?.st_size as u64)
    }
}

/// Forces the names in a folder to the disk. Some file systems always do, and refuse to be asked.
pub(super) fn flush_folder(folder: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(folder, flags, Mode::empty())?;
    match again_if_interrupted(|| rustix::fs::fsync(open.as_fd())) {
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}

fn again_if_interrupted(call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn errno(why: &io::Error) -> Errno {
    Errno::from_io_error(why).unwrap_or(Errno::IO)
}
