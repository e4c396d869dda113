//! A SQL node for a test or a benchmark: on any free port, in a folder that is removed with it.

use crate::{Installation, Settings, SqlNode, StartError};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Address space that a server gets here: a runaway engine must hurt only itself, not the machine.
const ADDRESS_SPACE: u64 = 3 << 30;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A SQL node that is killed, and its folder removed, when this is dropped; its log is shown if a test fails.
#[derive(Debug)]
pub struct ScopedSqlNode {
    node: SqlNode,
    folder: TemporaryFolder,
}

#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl ScopedSqlNode {
    /// Starts a node for these data nodes.
    ///
    /// # Errors
    /// As of [`SqlNode::start`].
    pub fn start(data_nodes: &str) -> Result<Self, StartError> {
        Self::start_with(data_nodes, |_| ())
    }

    /// Starts a node with settings that `change` has changed.
    ///
    /// # Errors
    /// As of [`SqlNode::start`].
    pub fn start_with(data_nodes: &str, change: impl FnOnce(&mut Settings)) -> Result<Self, StartError> {
        let unique = format!("vinga-sql-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = TemporaryFolder(std::env::temp_dir().join(unique));
        let mut settings = Settings::new(&folder.0, data_nodes, Installation::find()?);
        settings.address_space_max = Some(ADDRESS_SPACE);
        change(&mut settings);
        let node = SqlNode::start(settings)?;
        Ok(ScopedSqlNode { node, folder })
    }
}

impl Deref for ScopedSqlNode {
    type Target = SqlNode;

    fn deref(&self) -> &SqlNode {
        &self.node
    }
}

impl DerefMut for ScopedSqlNode {
    fn deref_mut(&mut self) -> &mut SqlNode {
        &mut self.node
    }
}

impl Drop for ScopedSqlNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the SQL node in {}:\n{}", self.folder.0.display(), self.node.log_tail(40));
        }
        let _ = self.node.kill();
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
