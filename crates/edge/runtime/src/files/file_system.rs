//! Tasks on files as system calls. Each that changes something is shown to the observer, if there is one.

use super::observer::{FileCall, Observer, observed};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
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
///
/// When a write or flush of it has failed, nothing is written to it any more: whoever has sent several tasks relies on
/// that a later one is not on the disk without those before it, and may not know of the failure yet. A full disk is
/// none: what had no room is tried again.
pub(super) struct OpenFile {
    file: File,
    has_failed: Cell<bool>,
    /// For the observer: its path, if there is one.
    observed: Option<Box<(PathBuf, Observer)>>,
}

/// The folder of a node's files.
pub(super) struct FileSystem {
    folder: PathBuf,
    /// Cleared when the file system has no direct transfers.
    is_direct: AtomicBool,
    observer: Observer,
}

/// What kind of failure an error of the system is.
fn kind_of(why: Errno) -> FileErrorKind {
    match why {
        Errno::NOENT => FileErrorKind::NotFound,
        // A limit of the size of files (`ulimit -f`) is no room either.
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FileErrorKind::DiskFull,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => FileErrorKind::NotPermitted,
        _ => FileErrorKind::Failed,
    }
}

/// What the error of a write that ends here means, with this limit of the size of files. The limit cuts a write off; if
/// it is no multiple of a sector, the system refuses the rest as no direct transfer, not as too large.
fn error_of_write(why: Errno, end: u64, limit: Option<u64>) -> Errno {
    if why == Errno::INVAL && limit.is_some_and(|limit| end > limit) { Errno::FBIG } else { why }
}

impl FileSystem {
    pub fn new(folder: PathBuf, observer: Observer) -> Self {
        FileSystem { folder, is_direct: AtomicBool::new(true), observer }
    }

    /// What an error of the system means, with a text for people.
    pub fn error(&self, task: &FileTask, file: FileName, why: Errno) -> FileError {
        let path = self.path(file);
        let text = match why {
            Errno::CANCELED => {
                format!("{} {}: an earlier write or flush of it has failed", task.name(), path.display())
            }
            why => format!("{} {}: {}", task.name(), path.display(), io::Error::from(why)),
        };
        FileError { kind: kind_of(why), text }
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
                let path = self.path(file);
                let make = || self.open_with(file, OFlags::CREATE | OFlags::EXCL);
                (observed(&self.observer, FileCall::Create(&path), make)?, true)
            }
            Err(why) => return Err(why),
        };
        // The names of a file that is there may not be on the disk yet: the node may have crashed behind their making.
        let result = open
            .reserve(bytes)
            .and_then(|()| self.flush_folder(&self.folder_of(file.kind)))
            .and_then(|()| self.flush_folder(&self.folder));
        if let Err(why) = result {
            if is_new {
                // It is no use; that it stays, if it does, harms nobody.
                let _ = self.unlink(&self.path(file));
            }
            return Err(why);
        }
        Ok(open)
    }

    /// Removes a file; that there is none is no error.
    pub fn remove(&self, file: FileName) -> Result<(), Errno> {
        match self.unlink(&self.path(file)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(why) => return Err(why),
        }
        match self.flush_folder(&self.folder_of(file.kind)) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    /// Gives a file another name, in place of the file that has it.
    pub fn rename(&self, file: FileName, to: FileName) -> Result<(), Errno> {
        self.make_folder(to.kind)?;
        let (old, new) = (self.path(file), self.path(to));
        observed(&self.observer, FileCall::Rename(&old, &new), || rustix::fs::rename(&old, &new))?;
        self.flush_folder(&self.folder_of(to.kind))?;
        if to.kind == file.kind { Ok(()) } else { self.flush_folder(&self.folder_of(file.kind)) }
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
        let make = || fs::create_dir_all(&folder).map_err(|why| errno(&why));
        observed(&self.observer, FileCall::MakeFolder(&folder), make)?;
        self.flush_folder(&self.folder)?;
        // The node's folder may be new, too.
        let parent = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.flush_folder(parent.unwrap_or(Path::new(".")))
    }

    fn unlink(&self, path: &Path) -> Result<(), Errno> {
        observed(&self.observer, FileCall::Remove(path), || rustix::fs::unlink(path))
    }

    fn flush_folder(&self, folder: &Path) -> Result<(), Errno> {
        flush_folder(folder, &self.observer)
    }

    fn open_with(&self, file: FileName, flags: OFlags) -> Result<OpenFile, Errno> {
        let path = self.path(file);
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o640);
        let open = |flags| {
            let file = File::from(rustix::fs::open(&path, flags, mode)?);
            let observed = self.observer.as_ref().map(|one| Box::new((path.clone(), Some(one.clone()))));
            Ok(OpenFile { file, has_failed: Cell::new(false), observed })
        };
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
            match rustix::io::pread(&self.file, &mut buffer[filled..bytes], offset + filled as u64) {
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

    /// Whether a write or flush of it has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Carries out a call that changes the file, unless one has failed before.
    fn unless_failed(&self, call: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        if self.has_failed.get() {
            return Err(Errno::CANCELED);
        }
        let result = call();
        let has_failed = result.is_err_and(|why| kind_of(why) == FileErrorKind::Failed);
        self.has_failed.set(has_failed);
        result
    }

    /// Makes a call that is about this file, and shows it to the observer.
    #[inline]
    fn observed<'c>(
        &'c self,
        call: impl FnOnce(&'c Path) -> FileCall<'c>,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match &self.observed {
            None => make(),
            Some(watched) => observed(&watched.1, call(&watched.0), make),
        }
    }

    /// Writes these pieces one behind the other. Returns how many bytes were written, and why not all.
    pub fn write(&self, offset: u64, pieces: &[&[u8]]) -> (u64, Result<(), Errno>) {
        let mut written = 0;
        let call = |path| FileCall::Write(path, offset, pieces);
        let result = self.unless_failed(|| {
            self.observed(call, || {
                let (count, result) = self.write_pieces(offset, pieces);
                written = count;
                result
            })
        });
        (written, result)
    }

    fn write_pieces(&self, offset: u64, pieces: &[&[u8]]) -> (u64, Result<(), Errno>) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let (mut rest, mut written) = (&mut slices[..], 0);
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.file, rest, offset + written) {
                Ok(0) => return (written, Err(Errno::IO)),
                Ok(count) => {
                    written += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(why) => {
                    let end = offset + written + rest.iter().map(|piece| piece.len() as u64).sum::<u64>();
                    let limit = getrlimit(Resource::Fsize).current;
                    return (written, Err(error_of_write(why, end, limit)));
                }
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
        self.unless_failed(|| {
            self.observed(FileCall::Flush, || again_if_interrupted(|| rustix::fs::fdatasync(&self.file)))
        })
    }

    /// Makes room for so many bytes, on the disk too.
    fn reserve(&self, bytes: u64) -> Result<(), Errno> {
        if bytes > 0 {
            self.observed(|path| FileCall::Grow(path, bytes), || self.grow(bytes))?;
        }
        self.observed(FileCall::Flush, || again_if_interrupted(|| rustix::fs::fsync(&self.file)))
    }

    fn grow(&self, bytes: u64) -> Result<(), Errno> {
        let result =
            again_if_interrupted(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes));
        match result {
            // The file system can't reserve room; it gives it as the file is filled.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.size()? < bytes => {
                rustix::fs::ftruncate(&self.file, bytes)
            }
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(why) => Err(why),
        }
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(rustix::fs::fstat(&self.file)?.st_size as u64)
    }
}

/// Forces the names in a folder to the disk. Some file systems always do, and refuse to be asked.
pub(super) fn flush_folder(folder: &Path, observer: &Observer) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(folder, flags, Mode::empty())?;
    observed(observer, FileCall::FlushFolder(folder), || {
        match again_if_interrupted(|| rustix::fs::fsync(open.as_fd())) {
            Err(Errno::INVAL) => Ok(()),
            result => result,
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_a_limit_cuts_off_has_no_room() {
        let kind = |why, end, limit| kind_of(error_of_write(why, end, limit));
        assert_eq!(kind(Errno::INVAL, 8192, Some(5000)), FileErrorKind::DiskFull);
        assert_eq!(kind(Errno::INVAL, 8192, Some(8192)), FileErrorKind::Failed, "it has room");
        assert_eq!(kind(Errno::INVAL, 8192, None), FileErrorKind::Failed);
        assert_eq!(kind(Errno::IO, 8192, Some(5000)), FileErrorKind::Failed);
    }
}
