//! The key and its file: 64 hexadecimal digits, and nothing that others than its owner may read.

use crate::proof::{KEY_BYTES, random};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

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

impl ClusterKey {
    /// Reads the key from its file.
    ///
    /// # Errors
    /// A sentence that names the file: it can't be read, others may read it, or it holds something else.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let bad = |why: io::Error| format!("the file of the cluster key, {name}, can't be read: {why}");
        let file = File::open(path).map_err(bad)?;
        let about = file.metadata().map_err(bad)?;
        if !about.is_file() {
            return Err(format!("{name} should hold the cluster key, but is no file"));
        }
        if about.mode() & FORBIDDEN != 0 {
            let mode = about.mode() & 0o777;
            return Err(format!(
                "others than its owner may use the cluster key in {name} (mode {mode:03o}): chmod {MODE:o} {name}"
            ));
        }
        let mut text = String::new();
        // A file that is no key may be long.
        let read = file.take(4 * KEY_BYTES as u64).read_to_string(&mut text);
        let key = read.ok().and_then(|_| parse(text.trim()));
        key.ok_or_else(|| format!("{name} holds no cluster key: {} hexadecimal digits", 2 * KEY_BYTES))
    }

    /// Makes a key, and a file that holds it: one that is complete whenever it is there.
    ///
    /// # Errors
    /// The system's: there is such a file, or its folder can't be written.
    pub fn make(path: &Path) -> io::Result<Self> {
        let key = ClusterKey(random()?);
        // Several processes may make it at the same time: the first one's counts.
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(format!(".{}.new", std::process::id()));
        let unfinished = Path::new(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(unfinished)?;
        let text: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
        let made = written.and_then(|()| fs::hard_link(unfinished, path));
        fs::remove_file(unfinished)?;
        made.map(|()| key)
    }
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
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let made = ClusterKey::make(&path).unwrap();
        assert_eq!(ClusterKey::read(&path), Ok(made.clone()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(ClusterKey::make(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(format!("{made:?}"), "ClusterKey(…)");
        assert_ne!(ClusterKey::make(&folder.path().join("other")).unwrap(), made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let refused = || ClusterKey::read(&path).unwrap_err();
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
        assert!(ClusterKey::read(folder.path()).unwrap_err().contains("is no file"));
    }
}
