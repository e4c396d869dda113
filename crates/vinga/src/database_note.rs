//! A note beside a data node's folder that there is a database in it: `vinga-cluster/node-1.database`.
//!
//! The folder may be on a disk of its own. If that is not mounted, the folder is there and empty, and a node would
//! begin anew in it without a word. So `vinga up` notes that a node has started with a database, in the cluster's
//! folder, and from then on has the node start only from one (`vinga data --existing`). A start that begins anew on
//! purpose (`--initial`) removes the note before it removes anything else: whatever interrupts it, no database is
//! demanded that may be gone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use vinga_datanode::why_refused;
use vinga_runtime::files::flush_folder;
use vinga_runtime::node_folder::NodeFolder;

/// The note on the database of a data node.
pub struct DatabaseNote {
    file: PathBuf,
}

impl DatabaseNote {
    /// That of the node with this folder, which is in the cluster's folder.
    pub fn of(folder: &NodeFolder) -> Self {
        DatabaseNote { file: folder.path().with_extension("database") }
    }

    /// Whether there is one.
    ///
    /// # Errors
    /// A text that names the file: the system does not say.
    pub fn exists(&self) -> Result<bool, String> {
        self.file.try_exists().map_err(|why| self.failure("look at", &why))
    }

    /// Writes it, also to the disk, unless it is there.
    ///
    /// # Errors
    /// A text that names the file.
    pub fn write(&self) -> Result<(), String> {
        if self.exists()? {
            return Ok(());
        }
        let folder = self.file.with_extension("");
        let text = format!(
            "The data node keeps a database in {}. As long as this file is here, 'vinga up' does not start it without one.\n",
            folder.display()
        );
        let written = fs::write(&self.file, text).and_then(|()| File::open(&self.file)?.sync_all());
        written.and_then(|()| flush_folder(self.place())).map_err(|why| self.failure("write", &why))
    }

    /// Removes it, also from the disk, if it is there.
    ///
    /// # Errors
    /// A text that names the file.
    pub fn remove(&self) -> Result<(), String> {
        let removed = match fs::remove_file(&self.file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed,
        };
        removed.and_then(|()| flush_folder(self.place())).map_err(|why| self.failure("remove", &why))
    }

    /// The cluster's folder.
    fn place(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    fn failure(&self, what: &str, why: &io::Error) -> String {
        format!("can't {what} {}: {}", self.file.display(), why_refused(why))
    }
}
