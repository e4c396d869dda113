//! The database in a node's folder, in memory: to be put elsewhere, changed or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files are written in pieces; those of zeros are left out.
const PIECE: usize = 4096;
/// Folders whose files are the database's, and the mark of a first start.
const FOLDERS: [&str; 4] = ["system", "schema", "redo", "checkpoint"];
const MARK: &str = "vinga.initial";

/// The database in a node's folder: its folders, and its files with what they contain.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub folders: BTreeSet<String>,
    /// By path below the node's folder.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Image {
    /// The database that is in a folder.
    pub fn read(place: &Path) -> Self {
        let mut image = Image::default();
        for folder in FOLDERS {
            let Ok(entries) = fs::read_dir(place.join(folder)) else { continue };
            image.folders.insert(folder.to_owned());
            for entry in entries {
                let path = entry.expect("it can be read").path();
                let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
                match fs::read(&path) {
                    Ok(bytes) => _ = image.files.insert(format!("{folder}/{name}"), bytes),
                    // A node that runs has just removed it.
                    Err(why) => assert_eq!(why.kind(), io::ErrorKind::NotFound, "{}: {why}", path.display()),
                }
            }
        }
        if let Ok(bytes) = fs::read(place.join(MARK)) {
            image.files.insert(MARK.to_owned(), bytes);
        }
        image
    }

    /// Puts it into a folder that has no database.
    pub fn write(&self, place: &Path) {
        for folder in &self.folders {
            fs::create_dir_all(place.join(folder)).expect("it can be made");
        }
        for (name, bytes) in &self.files {
            let file = File::create(place.join(name)).expect("it can be made");
            file.set_len(bytes.len() as u64).expect("it can have that size");
            for (at, piece) in (0..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
                if piece.iter().any(|&byte| byte != 0) {
                    file.write_all_at(piece, at).expect("it can be written");
                }
            }
        }
    }

    /// The files, with their sizes.
    pub fn describe(&self) -> String {
        let files: Vec<_> =
            self.files.iter().map(|(name, bytes)| format!("{name} ({})", bytes.len())).collect();
        files.join(", ")
    }
}
