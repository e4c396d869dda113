//! The first start of a cluster of several data nodes, which makes its configuration file and the folders of its nodes.
//! If it fails nothing counts of what it has made, so that the next one may ask for another size, or other ports.

use crate::cluster_file::LockedFile;
use crate::management_node;
use std::fs;
use std::path::{Path, PathBuf};
use vinga_runtime::node_folder::NodeFolder;

/// What a first start makes.
pub struct FirstStart {
    /// Folders that are not there before.
    folders: Vec<NodeFolder>,
}

impl FirstStart {
    /// That of the nodes with these numbers, before anything is made for them.
    pub fn of(cluster: &Path, data: &[u8], management: &[u8]) -> Self {
        let data = data.iter().map(|&id| NodeFolder::new(cluster, id));
        let management = management.iter().map(|&id| management_node::folder(cluster, id));
        let all = data.chain(management);
        FirstStart { folders: all.filter(|folder| !folder.path().exists()).collect() }
    }

    /// Takes everything back but the logs of nodes, which stand beside their folders then; returns the text about the
    /// failure, which may name them. If a node could not be stopped everything stays.
    pub fn undo(&self, file: &LockedFile<'_>, mut why: String) -> String {
        let made: Vec<&NodeFolder> = self.folders.iter().filter(|folder| folder.path().exists()).collect();
        if made.iter().any(|folder| !matches!(folder.running(), Ok(None))) {
            return why;
        }
        for folder in made {
            let (log, kept) = (folder.log(), kept_log(folder));
            if fs::rename(&log, &kept).is_ok() {
                why = why.replace(&log.display().to_string(), &kept.display().to_string());
            }
            // An empty folder that stays is one of a node that has not run: the next start says so.
            let _ = fs::remove_dir_all(folder.path());
        }
        file.withdraw(why)
    }
}

/// Where the log stays.
fn kept_log(folder: &NodeFolder) -> PathBuf {
    folder.path().with_extension("log")
}
