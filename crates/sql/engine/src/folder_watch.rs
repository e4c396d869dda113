//! Notices databases that are created or altered in a server: the operating system (inotify) reports new folders in the
//! server's data folder, and files of database options in these.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{self, Errno};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file of a database's options.
const OPTIONS_FILE: &[u8] = b"db.opt";
/// Buffer size for the events that are read at a time; one has a name of at most 255 bytes.
const NOTICES_BYTES: usize = 4096;

/// A watch on a server's data folder and the folders in it.
pub struct FolderWatch {
    notices: OwnedFd,
    folder: PathBuf,
    /// The watch descriptor of the data folder itself.
    data: i32,
}

impl FolderWatch {
    /// Watches a data folder, and the folders in it.
    ///
    /// # Errors
    /// Errors of the operating system, which limits the number of watches for a user.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let notices = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let data = inotify::add_watch(&notices, folder, flags)?;
        let watch = FolderWatch { notices, folder: folder.to_owned(), data };
        watch.watch_all();
        Ok(watch)
    }

    /// Waits for an event, at most for `longest`; returns whether there was one. All events that have arrived count as
    /// one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn wait(&self, longest: Duration) -> io::Result<bool> {
        let until = Instant::now() + longest;
        loop {
            if self.read()? {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let left = Timespec::try_from(left).expect("a pause is short");
            match poll(&mut [PollFd::new(&self.notices, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads all events; returns whether one of them concerned a database.
    fn read(&self) -> io::Result<bool> {
        let mut room = [const { MaybeUninit::uninit() }; NOTICES_BYTES];
        let mut reader = Reader::new(&self.notices, &mut room);
        let mut is_of_database = false;
        loop {
            let notice = match reader.next() {
                Ok(notice) => notice,
                Err(Errno::AGAIN) => return Ok(is_of_database),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = notice.file_name().map(CStr::to_bytes).unwrap_or_default();
            if notice.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.watch_all();
                is_of_database = true;
            } else if notice.wd() != self.data {
                is_of_database |= name == OPTIONS_FILE;
            } else if notice.events().contains(ReadFlags::ISDIR) {
                self.watch(Path::new(OsStr::from_bytes(name)));
                is_of_database = true;
            }
        }
    }

    fn watch_all(&self) {
        let Ok(entries) = self.folder.read_dir() else { return };
        for entry in entries.flatten() {
            self.watch(Path::new(&entry.file_name()));
        }
    }

    /// Watches the files that are written in a folder. If that fails (it may have been removed already) nothing is
    /// noticed there.
    fn watch(&self, name: &Path) {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let _ = inotify::add_watch(&self.notices, self.folder.join(name), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LONG: Duration = Duration::from_secs(60);

    fn is_quiet(watch: &FolderWatch) -> bool {
        !watch.wait(Duration::ZERO).unwrap()
    }

    #[test]
    fn new_folders_and_files_of_options_are_noticed() {
        let folder = std::env::temp_dir().join(format!("vinga-folder-watch-{}", std::process::id()));
        fs::create_dir_all(folder.join("old")).unwrap();
        let watch = FolderWatch::new(&folder).unwrap();
        assert!(is_quiet(&watch));
        fs::write(folder.join("old/db.opt"), "options").unwrap();
        assert!(watch.wait(LONG).unwrap(), "options in an existing folder");
        assert!(is_quiet(&watch));
        fs::create_dir(folder.join("new")).unwrap();
        assert!(watch.wait(LONG).unwrap(), "a new folder");
        fs::write(folder.join("new/db.opt"), "options").unwrap();
        assert!(watch.wait(LONG).unwrap(), "options in a new folder");
        fs::write(folder.join("passing"), "options").unwrap();
        fs::write(folder.join("new/t.ibd"), "rows").unwrap();
        assert!(is_quiet(&watch), "other files are ignored");
        fs::rename(folder.join("passing"), folder.join("new/db.opt")).unwrap();
        assert!(watch.wait(LONG).unwrap(), "options that replace others");
        fs::rename(folder.join("new"), folder.join("newer")).unwrap();
        assert!(watch.wait(LONG).unwrap(), "a folder that is moved with its contents");
        fs::remove_dir_all(&folder).unwrap();
    }
}
