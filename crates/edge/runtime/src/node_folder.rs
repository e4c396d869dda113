//! A node's folder: its log, its process id, its address, its crash reports. SQL nodes have one too, with more files in
//! it.
//!
//! ```text
//!   node-1/vinga.pid       process id; locked (flock) by the node for as long as it runs; behind it, why a data node
//!                          has ended, if that was not in order
//!   node-1/vinga.parent    process id of the parent that starts a data node again; locked for as long as it runs
//!   node-1/vinga.address   host:port, written when the node is ready, removed when it stops
//!   node-1/vinga.start     the last start: where, when, which version, which file has the cluster's key, whether its
//!                          data is on disk and what was restored; stays when the node stops
//!   node-1/vinga.starting  how far the start of a data node is, or the phases of the last one (`start_progress`)
//!   node-1/vinga.sock      where it listens for clients on this machine, as long as it runs
//!   node-1/vinga.log       the log
//!   node-1/crash.txt       crash reports
//! ```
//! A data node's database is in folders beside them (`vinga_kernel::files`).
//!
//! Whether the node runs is decided by the lock alone: a stale process id is harmless. The node locks the folder
//! itself, too: if somebody removes `vinga.pid` while it runs, nobody finds it any more, but no second node writes its
//! files.

use crate::start_progress::StartProgress;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often the lock is tried, and how long the pauses between are: a process that only checks whether a node runs
/// ([`NodeFolder::running`]) holds it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Writes a file that is complete whenever it exists, and is on disk when this returns: after a power cut, too, there
/// is the one before or this one.
///
/// # Errors
/// The file system's.
pub fn replace_durably(file: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(".new");
    let mut written = File::create(&unfinished)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(unfinished, file)?;
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

/// Locks a file, or a folder; returns whether that was possible.
fn lock_patiently(file: &File) -> io::Result<bool> {
    try_patiently(|| file.try_lock())
}

fn try_patiently(lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<bool> {
    let mut tries = 1;
    loop {
        match lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if tries == LOCK_TRIES => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        tries += 1;
    }
}

/// A node's folder.
#[derive(Clone, Debug)]
pub struct NodeFolder {
    path: PathBuf,
}

/// The last start of a node, which its folder records even after the node has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastStart {
    /// `host:port`.
    pub address: String,
    /// When it was ready, such as `2026-11-22T12:58:58Z`.
    pub since: String,
    /// The version of the program.
    pub version: String,
    /// The file of the cluster's key, which those who connect by TCP have to prove; `None` if it has none.
    pub key: Option<PathBuf>,
    /// What a data node keeps; `None` of other nodes.
    pub data: Option<KeptData>,
}

/// The lock on a node's folder, which lasts until this is dropped.
#[derive(Debug)]
pub struct FolderLock {
    /// `vinga.pid`. A process that inherits the file has the lock, too, as those see it who look for the node.
    pub pid_file: File,
    /// The folder itself.
    _folder: File,
}

/// What stands before the reason for which a node has ended.
const END: &str = "ended: ";

/// Bytes of such a reason, at most. With the process id they have room in the block that the file has on its disk.
const REASON_BYTES_MAX: usize = 2048;

impl FolderLock {
    /// Notes why the node ends, which is not in order. That takes no room of a disk that is full, as the log does.
    ///
    /// # Errors
    /// The file system's.
    pub fn note_end(&mut self, why: &str) -> io::Result<()> {
        let mut why = why.replace('\n', " ");
        let longest = why.len().min(REASON_BYTES_MAX);
        why.truncate((0..=longest).rev().find(|&at| why.is_char_boundary(at)).unwrap_or(0));
        writeln!(self.pid_file, "{END}{why}")
    }
}

/// Where a data node keeps its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeptData {
    /// In memory only: it is gone when the node stops.
    InMemory,
    /// On disk.
    OnDisk {
        /// What was restored at the start, in words; `None` at the first start.
        restored: Option<String>,
    },
}

impl KeptData {
    /// As lines of the file.
    fn lines(&self) -> String {
        match self {
            KeptData::InMemory => "data=memory\n".to_owned(),
            KeptData::OnDisk { restored: None } => "data=disk\n".to_owned(),
            KeptData::OnDisk { restored: Some(text) } => format!("data=disk\nrestored={text}\n"),
        }
    }
}

impl LastStart {
    /// The port of the address.
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit_once(':')?.1.parse().ok()
    }
}

impl NodeFolder {
    /// The folder of the node with this id, in the cluster's folder.
    pub fn new(cluster: &Path, node: u8) -> Self {
        NodeFolder { path: cluster.join(format!("node-{node}")) }
    }

    /// A folder given by its path.
    pub fn at(path: PathBuf) -> Self {
        NodeFolder { path }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.path.join("vinga.log")
    }

    /// The Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("vinga.sock")
    }

    /// Where clients on this machine can reach the running node; `None` if it has no such socket.
    pub fn local_address(&self) -> Option<String> {
        let socket = self.socket();
        let path = socket.exists().then(|| fs::canonicalize(&socket).unwrap_or(socket))?;
        Some(format!("unix:{}", path.display()))
    }

    fn pid_file(&self) -> PathBuf {
        self.path.join("vinga.pid")
    }

    fn parent_file(&self) -> PathBuf {
        self.path.join("vinga.parent")
    }

    fn address_file(&self) -> PathBuf {
        self.path.join("vinga.address")
    }

    fn start_file(&self) -> PathBuf {
        self.path.join("vinga.start")
    }

    /// Where a data node with a disk writes how far its start is.
    pub fn progress_file(&self) -> PathBuf {
        self.path.join("vinga.starting")
    }

    /// How far the start of the node is that runs or starts, or how the last one went; `None` of nodes without a disk.
    pub fn start_progress(&self) -> Option<StartProgress> {
        StartProgress::read(&self.progress_file())
    }

    /// Makes the folder if it does not exist.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)
    }

    /// Called by the node itself: takes the lock and writes the process id. `None` if another node has the lock.
    ///
    /// # Errors
    /// The file system's.
    pub fn occupy(&self) -> io::Result<Option<FolderLock>> {
        let Some(mut lock) = self.lock()? else { return Ok(None) };
        writeln!(lock.pid_file, "{}", std::process::id())?;
        Ok(Some(lock))
    }

    /// Takes the lock for a node that is about to be started; `None` if another node has it. A caller may pass the pid
    /// file on to the new process, so that the lock lasts as long as that process runs, and write its process id into
    /// it.
    ///
    /// # Errors
    /// The file system's.
    pub fn lock(&self) -> io::Result<Option<FolderLock>> {
        let pid_file = File::options().create(true).truncate(false).write(true).open(self.pid_file())?;
        let folder = File::open(&self.path)?;
        if !lock_patiently(&pid_file)? || !lock_patiently(&folder)? {
            return Ok(None);
        }
        pid_file.set_len(0)?;
        // That of the last start says nothing about this one.
        let _ = fs::remove_file(self.progress_file());
        self.withdraw();
        Ok(Some(FolderLock { pid_file, _folder: folder }))
    }

    /// Keeps nodes from being started in the folder until the file is dropped, and changes nothing in it. `None` if a
    /// node runs there.
    ///
    /// # Errors
    /// The file system's.
    pub fn lock_to_read(&self) -> io::Result<Option<File>> {
        let folder = File::open(&self.path)?;
        let is_free = try_patiently(|| folder.try_lock_shared())? && self.running()?.is_none();
        Ok(is_free.then_some(folder))
    }

    /// Called when the node is ready, by the node itself or by the process that has started it. `key` is the file of
    /// the cluster's key, as the node has it in its configuration.
    ///
    /// # Errors
    /// The file system's.
    pub fn announce(
        &self,
        address: &str,
        version: &str,
        key: Option<&Path>,
        data: Option<&KeptData>,
    ) -> io::Result<()> {
        let since = humantime::format_rfc3339_seconds(SystemTime::now());
        let data = data.map(KeptData::lines).unwrap_or_default();
        // Those who read this are in other folders.
        let key = key.map(std::path::absolute).transpose()?;
        let key = key.map(|key| format!("key={}\n", key.display())).unwrap_or_default();
        let start = format!("address={address}\nsince={since}\nversion={version}\n{key}{data}");
        Self::replace(&self.start_file(), &start)?;
        // This file is written last: it is what processes that wait for the node look for.
        Self::replace(&self.address_file(), &format!("{address}\n"))
    }

    /// Writes a file that is complete whenever it exists.
    fn replace(file: &Path, text: &str) -> io::Result<()> {
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".new");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, file)
    }

    /// The last start of a node in this folder that became ready, whether it still runs or not.
    pub fn last_start(&self) -> Option<LastStart> {
        let text = fs::read_to_string(self.start_file()).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
            Some(line.to_owned())
        };
        let data = field("data").map(|kept| match kept.as_str() {
            "disk" => KeptData::OnDisk { restored: field("restored") },
            _ => KeptData::InMemory,
        });
        Some(LastStart {
            address: field("address")?,
            since: field("since")?,
            version: field("version")?,
            key: field("key").map(PathBuf::from),
            data,
        })
    }

    /// Called by the node when it stops.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(self.address_file());
    }

    /// Called by a process that starts the node again when that ends: as long as the file is open it is the only one.
    /// `None` if there is another one.
    ///
    /// # Errors
    /// The file system's.
    pub fn occupy_as_parent(&self) -> io::Result<Option<File>> {
        let mut file = File::options().create(true).truncate(false).write(true).open(self.parent_file())?;
        if !lock_patiently(&file)? {
            return Ok(None);
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Some(file))
    }

    /// The process id of the parent that starts the node again when that ends; `None` if there is none.
    ///
    /// # Errors
    /// The file system's.
    pub fn parent(&self) -> io::Result<Option<i32>> {
        Self::locked_by(&self.parent_file())
    }

    /// The process id of the running node; `None` if none runs.
    ///
    /// # Errors
    /// The file system's.
    pub fn running(&self) -> io::Result<Option<i32>> {
        Self::locked_by(&self.pid_file())
    }

    /// The process id in a file, if that process has it locked.
    fn locked_by(path: &Path) -> io::Result<Option<i32>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                // A SQL node has this file as its standard output: any output would stand behind the number.
                let text = fs::read_to_string(path)?;
                Ok(text.lines().next().and_then(|line| line.trim().parse().ok()))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Why the last node here has ended, if that was not in order, and it could say why.
    pub fn end(&self) -> Option<String> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        text.lines().find_map(|line| line.strip_prefix(END)).map(str::to_owned)
    }

    /// The address of the running node; `None` while it is not ready.
    pub fn address(&self) -> Option<String> {
        fs::read_to_string(self.address_file()).ok().map(|text| text.trim().to_owned())
    }

    /// Warnings and errors in the log behind its first `before` bytes, as "source: text".
    pub fn log_warnings(&self, before: u64) -> Vec<String> {
        self.log_behind(before)
            .lines()
            .filter_map(|line| {
                let (_time, rest) = line.split_once(' ')?;
                rest.strip_prefix("warning ").or_else(|| rest.strip_prefix("error ")).map(str::to_owned)
            })
            .collect()
    }

    /// How long the log is, in bytes.
    pub fn log_bytes(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// The last lines of the log, but none of its first `before` bytes.
    pub fn log_tail(&self, before: u64, lines: usize) -> String {
        let text = self.log_behind(before);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Bytes that are not UTF-8 are replaced: a server that crashes may write anything.
    fn log_behind(&self, before: u64) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(before as usize..).unwrap_or_default()).into_owned()
    }
}

/// Sends a signal to a node's process; if the process has ended meanwhile, that is no error.
///
/// # Errors
/// A text: the process belongs to another user.
pub fn send_signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(refusal(pid, error)),
    }
}

fn refusal(pid: Pid, error: Errno) -> io::Error {
    let pid = pid.as_raw_nonzero();
    let text = match error {
        Errno::PERM => format!("process {pid} belongs to another user: only that user or root can stop it"),
        other => format!("process {pid}: {other}"),
    };
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_end_is_there_until_the_next_start() {
        let place = tempfile::tempdir().unwrap();
        let folder = NodeFolder::at(place.path().to_owned());
        let mut lock = folder.occupy().unwrap().expect("nobody has it");
        assert_eq!(folder.end(), None);
        lock.note_end(&format!("the disk\nis full: {}", "é".repeat(3000))).unwrap();
        assert_eq!(folder.running().unwrap(), Some(std::process::id() as i32));
        drop(lock);
        let why = folder.end().expect("it was noted");
        assert!(why.starts_with("the disk is full: éé") && why.len() <= REASON_BYTES_MAX, "{why}");
        let block = fs::metadata(folder.pid_file()).unwrap().len();
        assert!(block < 4096, "{block} bytes");
        let _lock = folder.occupy().unwrap().expect("nobody has it");
        assert_eq!(folder.end(), None, "that was another node");
    }

    #[test]
    fn a_process_of_another_user_is_reported_as_such() {
        let pid = Pid::from_raw(77).expect("it is no zero");
        let error = refusal(pid, Errno::PERM);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            error.to_string(),
            "process 77 belongs to another user: only that user or root can stop it"
        );
    }

    #[test]
    fn a_node_starts_though_somebody_looks_whether_one_runs() {
        let place = std::env::temp_dir().join(format!("vinga-looked-at-{}", std::process::id()));
        let folder = NodeFolder::new(&place, 1);
        folder.create().unwrap();
        drop(folder.occupy().unwrap());
        let looking = File::open(folder.pid_file()).unwrap();
        looking.lock_shared().unwrap();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(LOCK_PAUSE);
            drop(looking);
        });
        assert!(folder.occupy().unwrap().is_some());
        reader.join().unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_node_keeps_its_folder_though_its_process_id_is_removed() {
        let place = std::env::temp_dir().join(format!("vinga-without-pid-{}", std::process::id()));
        let folder = NodeFolder::new(&place, 1);
        folder.create().unwrap();
        let lock = folder.occupy().unwrap().expect("the lock is free");
        fs::remove_file(folder.pid_file()).unwrap();
        assert!(folder.lock().unwrap().is_none() && folder.occupy().unwrap().is_none());
        assert!(folder.lock_to_read().unwrap().is_none());
        drop(lock);
        let readers = [folder.lock_to_read().unwrap(), folder.lock_to_read().unwrap()];
        assert!(readers.iter().all(Option::is_some) && folder.occupy().unwrap().is_none());
        drop(readers);
        assert!(folder.occupy().unwrap().is_some());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn only_a_locked_folder_is_a_running_node() {
        let place = std::env::temp_dir().join(format!("vinga-folder-{}", std::process::id()));
        let folder = NodeFolder::new(&place, 1);
        folder.create().unwrap();
        assert_eq!(folder.running().unwrap(), None);
        let lock = folder.occupy().unwrap().expect("the lock is free");
        let restored = KeptData::OnDisk { restored: Some("5 rows".to_owned()) };
        folder
            .announce("127.0.0.1:2202", "1.2.3", Some(Path::new("/a/cluster.key")), Some(&restored))
            .unwrap();
        // A lock belongs to an open file, so a second open file in the same process counts as another holder.
        assert_eq!(folder.running().unwrap(), Some(std::process::id() as i32));
        assert!(folder.occupy().unwrap().is_none());
        assert_eq!(folder.address().as_deref(), Some("127.0.0.1:2202"));
        drop(lock);
        assert_eq!(folder.running().unwrap(), None);
        let again = folder.occupy().unwrap();
        assert!(again.is_some() && folder.address().is_none());
        let last = folder.last_start().expect("it was ready once");
        assert_eq!((last.port(), last.version.as_str()), (Some(2202), "1.2.3"));
        assert!(last.since.ends_with('Z'), "{last:?}");
        assert_eq!((last.data, last.key.as_deref()), (Some(restored), Some(Path::new("/a/cluster.key"))));
        for data in [Some(KeptData::InMemory), Some(KeptData::OnDisk { restored: None }), None] {
            folder.announce("127.0.0.1:2202", "1.2.3", None, data.as_ref()).unwrap();
            assert_eq!(folder.last_start().map(|last| last.data), Some(data));
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn warnings_are_those_of_this_start() {
        let place = std::env::temp_dir().join(format!("vinga-warnings-{}", std::process::id()));
        let folder = NodeFolder::new(&place, 1);
        folder.create().unwrap();
        let old = "2026-03-01T12:00:00.123Z warning sockets: of the last start\n";
        let new = "2026-03-02T12:00:00.123Z info node: starts\n\
                   2026-03-02T12:00:00.124Z warning ldm0: no real time\nsomething else\n";
        fs::write(folder.log(), [old, new].concat()).unwrap();
        assert_eq!(folder.log_warnings(old.len() as u64), ["ldm0: no real time"]);
        assert!(folder.log_warnings(1 << 40).is_empty());
        assert_eq!(folder.log_tail(old.len() as u64, 1), "something else");
        assert_eq!(folder.log_tail(old.len() as u64, 100), new.trim_end());
        assert_eq!(folder.log_bytes(), (old.len() + new.len()) as u64);
        fs::remove_dir_all(place).unwrap();
    }
}
