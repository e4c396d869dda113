//! The key and its file: 64 hexadecimal digits, and nothing that others than its owner may read.

use crate::proof::{KEY_BYTES, random};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fmt;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use vinga_wire::ErrorCode;

/// Only its owner may read or change it.
const MODE: u32 = 0o600;

/// Permissions that no file of a key may give: any to its group and to others.
const FORBIDDEN: u32 = 0o077;

/// The key of a cluster. Is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub(crate) [u8; KEY_BYTES]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ClusterKey(…)")
    }
}

/// Why the file of a key can't be used: a sentence that names the file, without a period. Displayed with the number of
/// the error, [`ErrorCode::BadKeyFile`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadKeyFile(pub(crate) String);

impl BadKeyFile {
    /// The sentence alone.
    pub fn into_detail(self) -> String {
        self.0
    }
}

impl fmt::Display for BadKeyFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", ErrorCode::BadKeyFile, self.0)
    }
}

impl ClusterKey {
    /// Reads the key from its file. Root may use that of another user: it is what an administrator does.
    ///
    /// # Errors
    /// It can't be read, is no file, or that of another user, others may read it, or it holds something else.
    pub fn read(path: &Path) -> Result<Self, BadKeyFile> {
        read(path, geteuid().is_root())
    }

    /// Reads the key of a node from its file, which has to belong to the node's user, or to root: whoever owns it knows
    /// the key, and can change it.
    ///
    /// # Errors
    /// As [`ClusterKey::read`].
    pub fn read_own(path: &Path) -> Result<Self, BadKeyFile> {
        read(path, false)
    }

    /// Makes a key, and a file that holds it: one that is complete whenever it is there.
    ///
    /// # Errors
    /// The system's: there is such a file, or its folder can't be written.
    pub fn make(path: &Path) -> io::Result<Self> {
        make_secret(path).map(|(bytes, _)| ClusterKey(bytes))
    }
}

/// Makes 32 bytes that nobody can foretell, and a file of mode 0600 that holds them, as the text of hexadecimal digits
/// that is returned beside them: one that is complete whenever it is there.
///
/// # Errors
/// The system's: there is such a file, or its folder can't be written.
pub fn make_secret(path: &Path) -> io::Result<([u8; KEY_BYTES], String)> {
    let bytes: [u8; KEY_BYTES] = random()?;
    // Several processes may make it at the same time: the first one's counts.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", std::process::id()));
    let unfinished = Path::new(&unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(unfinished)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    let made = written.and_then(|()| fs::hard_link(unfinished, path));
    fs::remove_file(unfinished)?;
    made.map(|()| (bytes, text))
}

fn read(path: &Path, of_anybody: bool) -> Result<ClusterKey, BadKeyFile> {
    let name = path.display();
    let bad = |why: io::Error| {
        let place = std::path::absolute(path).ok().filter(|place| place != path);
        let place = place.map_or_else(String::new, |place| format!(" (looked for at {})", place.display()));
        BadKeyFile(format!("the file of the cluster key, {name}, can't be read: {why}{place}"))
    };
    // What it is is looked up before it is opened: some devices do something then, and a socket can't be opened.
    check(path, &fs::metadata(path).map_err(bad)?, of_anybody)?;
    // It may be another one by now: nothing waits for the other end of a pipe. A symbolic link is followed: the file
    // that it leads to is what counts, and secrets are often put in place so.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(bad)?;
    check(path, &file.metadata().map_err(bad)?, of_anybody)?;
    let mut text = String::new();
    // A file that is no key may be long.
    match file.take(4 * KEY_BYTES as u64).read_to_string(&mut text) {
        Err(why) if why.kind() != ErrorKind::InvalidData => return Err(bad(why)),
        Ok(_) | Err(_) => {}
    }
    let digits = 2 * KEY_BYTES;
    parse(text.trim())
        .ok_or_else(|| BadKeyFile(format!("{name} holds no cluster key: {digits} hexadecimal digits")))
}

/// Whether it is a file that nobody else may use.
fn check(path: &Path, about: &Metadata, of_anybody: bool) -> Result<(), BadKeyFile> {
    let name = path.display();
    let (kind, own, owner) = (about.file_type(), geteuid().as_raw(), about.uid());
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe (FIFO)"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else if !(of_anybody || owner == own || owner == 0) {
        return Err(BadKeyFile(format!(
            "{name} belongs to another user (id {owner}) than this process (id {own}), who knows the key and can change it: \
             chown {own} {name}, or run this as that user"
        )));
    } else if about.mode() & FORBIDDEN != 0 {
        let mode = about.mode() & 0o777;
        return Err(BadKeyFile(format!(
            "others than its owner may use the cluster key in {name} (mode {mode:03o}): chmod {MODE:o} {name}"
        )));
    } else {
        return Ok(());
    };
    Err(BadKeyFile(format!("{name} should hold the cluster key, but is no file: it is {what}")))
}

fn parse(text: &str) -> Option<ClusterKey> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(ClusterKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let made = ClusterKey::make(&path).unwrap();
        assert_eq!(ClusterKey::read(&path), Ok(made.clone()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(ClusterKey::make(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(format!("{made:?}"), "ClusterKey(…)");
        assert_ne!(ClusterKey::make(&folder.path().join("other")).unwrap(), made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let refused = || ClusterKey::read(&path).unwrap_err().to_string();
        assert!(refused().starts_with("20079 "), "{}", refused());
        assert!(refused().contains("cluster.key, can't be read"), "{}", refused());
        for bad in ["", "12", &"x".repeat(64), &"a".repeat(65), &"é".repeat(32)] {
            fs::write(&path, bad).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(refused().contains("holds no cluster key: 64 hexadecimal digits"), "{}", refused());
        }
        fs::write(&path, "A".repeat(64)).unwrap();
        assert_eq!(ClusterKey::read(&path), Ok(ClusterKey([0xaa; 32])));
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused().contains(&format!("(mode {mode:03o}): chmod 600")), "{}", refused());
        }
    }

    /// Somebody who waits for the other end of a pipe waits for ever.
    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket) = (folder.path().join("pipe"), folder.path().join("socket"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (folder.path(), "it is a folder"),
            (&pipe, "it is a named pipe (FIFO)"),
            (&socket, "it is a socket"),
            (Path::new("/dev/null"), "it is a device"),
        ] {
            for read in [ClusterKey::read, ClusterKey::read_own] {
                let why = read(path).unwrap_err().into_detail();
                assert!(why.starts_with(&path.display().to_string()) && why.ends_with(what), "{why}");
            }
        }
    }

    #[test]
    fn a_link_leads_to_the_file_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("cluster.key"), folder.path().join("link"));
        let made = ClusterKey::make(&path).unwrap();
        symlink(&path, &link).unwrap();
        assert_eq!(ClusterKey::read_own(&link), Ok(made));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let why = ClusterKey::read_own(&link).unwrap_err().into_detail();
        assert!(why.contains("(mode 644)"), "{why}");
        fs::remove_file(&path).unwrap();
        let why = ClusterKey::read_own(&link).unwrap_err().into_detail();
        assert!(why.contains("can't be read"), "{why}");
    }

    /// Only root can give a file away; elsewhere nothing is shown.
    #[test]
    fn a_node_takes_no_key_of_another_user() {
        const NOBODY: u32 = 65_534;
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let made = ClusterKey::make(&path).unwrap();
        assert_eq!(ClusterKey::read_own(&path), Ok(made.clone()));
        chown(&path, Some(NOBODY), None).unwrap();
        let why = ClusterKey::read_own(&path).unwrap_err().into_detail();
        assert!(why.contains("belongs to another user (id 65534) than this process (id 0)"), "{why}");
        assert_eq!(ClusterKey::read(&path), Ok(made), "root asks as an administrator");
    }

    #[test]
    fn where_a_file_was_looked_for_is_said() {
        let why = ClusterKey::read(Path::new("no/cluster.key")).unwrap_err().into_detail();
        let place = std::env::current_dir().unwrap().join("no/cluster.key");
        assert!(why.ends_with(&format!("(looked for at {})", place.display())), "{why}");
        let why = ClusterKey::read(Path::new("/no/cluster.key")).unwrap_err().into_detail();
        assert!(why.contains("/no/cluster.key, can't be read") && !why.contains("looked for"), "{why}");
    }
}
