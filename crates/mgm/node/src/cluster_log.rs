//! The log of the cluster: what its nodes have logged, in one file of the management node's folder.
//!
//! ```text
//!   cluster.log           2026-03-01T12:00:00.123Z warning node 2, 2/Membership/0: data node 1 is given up: …
//!   cluster.log.1 … .6    the ones before, the newest first
//! ```
//! Lines stand in the order in which they have come. Their times are those of the nodes' own clocks.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vinga_base::NodeId;
use vinga_wire::configuration::{ClusterLogSwitch, LogSeverity};

/// Bytes of a file, about; NDB's default.
const BYTES_MAX: u64 = 1_000_000;

/// Earlier files that are kept; NDB's default.
const FILES_MAX: u32 = 6;

/// The files.
pub(crate) struct ClusterLog {
    path: PathBuf,
    file: Option<(File, u64)>,
    /// The position of the present file's first byte: bytes of the files before it.
    begin: u64,
    /// The severities whose lines are written.
    written: BTreeSet<LogSeverity>,
    /// Whether the last line could be written: a failure is logged once.
    is_failing: bool,
}

impl ClusterLog {
    /// That in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        let (path, written) = (folder.join("cluster.log"), LogSeverity::ALL.into());
        let mut log = ClusterLog { path, file: None, begin: 0, written, is_failing: false };
        let bytes = |number| fs::metadata(log.earlier(number)).map_or(0, |found| found.len());
        log.begin = (1..=FILES_MAX).map(bytes).sum();
        log
    }

    /// The files as they are now, the newest first, each with the position of its first byte.
    ///
    /// # Errors
    /// The file system's.
    pub fn files(&self) -> io::Result<Vec<(u64, File)>> {
        let mut files = Vec::new();
        let mut begin = self.begin;
        for number in 0..=FILES_MAX {
            let path = if number == 0 { self.path.clone() } else { self.earlier(number) };
            let file = match File::open(path) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            if number > 0 {
                begin = begin.saturating_sub(file.metadata()?.len());
            }
            files.push((begin, file));
        }
        Ok(files)
    }

    /// Switches severities on or off.
    pub fn switch(&mut self, ClusterLogSwitch { severities, is_on }: &ClusterLogSwitch) {
        self.written.retain(|severity| !severities.contains(severity));
        self.written.extend(severities.iter().filter(|_| *is_on));
    }

    /// The severities whose lines are written, the most serious first.
    pub fn written(&self) -> Vec<LogSeverity> {
        self.written.iter().copied().collect()
    }

    /// Writes a line of a node's log, unless its severity is switched off. If that fails, the line is lost, and this
    /// node's own log says so.
    pub fn write(&mut self, node: NodeId, line: &str) {
        // Time and level stand before the source.
        let line = match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            [_, level, _] if LogSeverity::named(level).is_some_and(|one| !self.written.contains(&one)) => {
                return;
            }
            [time, level, rest] => format!("{time} {level} node {node}, {rest}\n"),
            _ => format!("node {node}, {line}\n"),
        };
        match self.append(line.as_bytes()) {
            Ok(()) => self.is_failing = false,
            Err(why) => {
                self.file = None;
                if !std::mem::replace(&mut self.is_failing, true) {
                    log::warn!(target: "cluster log", "{} can't be written: {why}", self.path.display());
                }
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.leave_a_moved_file();
        if let Some((_, bytes)) = &self.file
            && *bytes > 0
            && bytes + line.len() as u64 > BYTES_MAX
        {
            let bytes = *bytes;
            self.file = None;
            self.rotate()?;
            self.begin += bytes;
        }
        if self.file.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let bytes = file.metadata()?.len();
            self.file = Some((file, bytes));
        }
        let (file, bytes) = self.file.as_mut().expect("it has just been opened");
        write_whole(file, *bytes, |mut file| file.write_all(line))?;
        *bytes += line.len() as u64;
        Ok(())
    }

    /// Somebody may have moved or removed the file: what is written into it then is not found by anybody, and its room
    /// on the disk is not free.
    fn leave_a_moved_file(&mut self) {
        let identity = |about: fs::Metadata| (about.dev(), about.ino());
        if let Some((file, _)) = &self.file {
            let is_there = match (file.metadata(), fs::metadata(&self.path)) {
                (Ok(own), Ok(there)) => identity(own) == identity(there),
                (Err(_), _) | (_, Err(_)) => false,
            };
            if !is_there {
                self.file = None;
            }
        }
    }

    /// Makes room for a new file.
    fn rotate(&self) -> io::Result<()> {
        for number in (1..FILES_MAX).rev() {
            match fs::rename(self.earlier(number), self.earlier(number + 1)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                Ok(()) | Err(_) => {}
            }
        }
        fs::rename(&self.path, self.earlier(1))
    }

    fn earlier(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Has something written at the end of a file that has so many bytes: all of it or nothing, or the next line would go
/// on in the middle of this one.
fn write_whole(file: &File, bytes: u64, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    write(file).inspect_err(|_| {
        // If that fails, too, there is nothing left to do.
        let _ = file.set_len(bytes);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_their_node_and_files_are_kept_for_some_time() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let mut log = ClusterLog::in_folder(folder.path());
        log.write(NodeId(2), "2026-03-01T12:00:00.123Z warning 2/Membership/0: it is late");
        log.write(NodeId(3), "odd");
        drop(log);
        let expected = "2026-03-01T12:00:00.123Z warning node 2, 2/Membership/0: it is late\nnode 3, odd\n";
        assert_eq!(read("cluster.log"), expected);
        // Another start goes on behind it.
        let mut log = ClusterLog::in_folder(folder.path());
        let long = "x".repeat(300_000);
        for number in 0..30 {
            log.write(NodeId(1), &format!("time info {number} {long}"));
        }
        assert!(read("cluster.log").starts_with("time info node 1, 27 "), "{:.40}", read("cluster.log"));
        assert!(read("cluster.log.6").starts_with("time info node 1, 9 "), "{:.40}", read("cluster.log.6"));
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 7);
    }

    #[test]
    fn severities_are_switched_on_and_off() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut log = ClusterLog::in_folder(folder.path());
        assert_eq!(log.written(), LogSeverity::ALL);
        let switch =
            |severities: &[LogSeverity], is_on| ClusterLogSwitch { severities: severities.into(), is_on };
        log.switch(&switch(&[LogSeverity::Info, LogSeverity::Debug], false));
        let write = |log: &mut ClusterLog| {
            for line in ["t error a", "t warning b", "t info c", "t debug d", "odd"] {
                log.write(NodeId(1), line);
            }
        };
        write(&mut log);
        log.switch(&switch(&[LogSeverity::Debug], true));
        log.switch(&switch(&[LogSeverity::Error, LogSeverity::Warning], false));
        assert_eq!(log.written(), [LogSeverity::Debug]);
        write(&mut log);
        let text = fs::read_to_string(folder.path().join("cluster.log")).expect("it is there");
        // What is no line of a log has no severity.
        let lines =
            ["t error node 1, a", "t warning node 1, b", "node 1, odd", "t debug node 1, d", "node 1, odd"];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_line_that_can_not_be_written_is_lost_and_the_next_one_is_tried() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("not yet");
        let mut log = ClusterLog::in_folder(&place);
        log.write(NodeId(1), "a b c");
        assert!(log.is_failing);
        fs::create_dir(&place).expect("it is ours");
        log.write(NodeId(1), "d e f");
        assert!(!log.is_failing);
        assert_eq!(fs::read_to_string(place.join("cluster.log")).expect("it was written"), "d e node 1, f\n");
    }

    /// A full disk took a part of a line, and the next one followed it without an end of line between.
    #[test]
    fn of_a_line_that_does_not_fit_nothing_stays() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut log = ClusterLog::in_folder(folder.path());
        log.write(NodeId(1), "a b c");
        let (file, bytes) = log.file.as_ref().expect("it is open");
        let fails = |mut file: &File| {
            file.write_all(b"d e no").expect("there is room");
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        write_whole(file, *bytes, fails).expect_err("it is said");
        log.write(NodeId(1), "g h i");
        let text = fs::read_to_string(folder.path().join("cluster.log")).expect("it is there");
        assert_eq!(text, "a b node 1, c\ng h node 1, i\n");
    }

    #[test]
    fn a_file_that_was_moved_or_removed_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (path, moved) = (folder.path().join("cluster.log"), folder.path().join("moved"));
        let mut log = ClusterLog::in_folder(folder.path());
        log.write(NodeId(1), "a b c");
        fs::rename(&path, &moved).expect("it is ours");
        log.write(NodeId(1), "d e f");
        fs::remove_file(&path).expect("it is ours");
        log.write(NodeId(1), "g h i");
        fs::copy(&moved, folder.path().join("other")).expect("it is ours");
        fs::rename(folder.path().join("other"), &path).expect("it is ours");
        log.write(NodeId(1), "j k l");
        let read = |path| fs::read_to_string(path).expect("it is there");
        assert_eq!(read(&moved), "a b node 1, c\n");
        assert_eq!(read(&path), "a b node 1, c\nj k node 1, l\n");
    }
}
