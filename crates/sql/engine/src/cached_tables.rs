//! Definitions of tables that the server has cached, after this node may have missed schema events.
//!
//! Only those that differ from what the data nodes have now are forgotten: as long as a statement uses a definition
//! that is to be forgotten (`LOCK TABLES` does so until `UNLOCK TABLES`) all others that need the table wait for it.
//! And events may be missed whenever a data node is lost.

use crate::definition::split_own_part;
use crate::native_tables;
use crate::node::Node;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Table};

/// How often tables are looked up in vain while the data nodes give no answer, and the pause between two times.
const LOOKS: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Makes the server forget cached definitions that are not those of the data nodes any more; all, if these are of
/// another incarnation: numbers and versions of tables begin anew then.
pub fn forget_stale(node: &Arc<Node>, cluster: &Cluster, is_same_incarnation: bool) {
    let mut looks = if is_same_incarnation { LOOKS } else { 0 };
    for (name, version) in node.server.cached_tables() {
        if !is_current(node, cluster, &name, &version, &mut looks) {
            node.server.forget_cached(&name);
        }
    }
}

/// Whether the data nodes have a table of this name with this version of the server's definition, and it is the one
/// that statements here have opened: one that was emptied by `TRUNCATE` is another, with the same definition.
fn is_current(node: &Arc<Node>, cluster: &Cluster, name: &str, version: &[u8], looks: &mut u32) -> bool {
    let Some(table) = find(node, cluster, name, looks) else { return false };
    native_tables::own_part(table.definition())
        .is_ok_and(|own| split_own_part(&own).is_some_and(|(stored, _)| stored == version))
        && node.tables_named(name).iter().all(|open| open.is(&table))
}

/// A table of the data nodes; `None` if it is not there, or no look is left at which they might answer.
fn find(node: &Arc<Node>, cluster: &Cluster, name: &str, looks: &mut u32) -> Option<Table> {
    while *looks > 0 && !node.is_stopping() {
        match cluster.table(name) {
            Ok(table) => return Some(table),
            Err(error) if error.code() == ErrorCode::NoSuchTable => return None,
            Err(_) => *looks -= 1,
        }
        thread::sleep(LOOK_PAUSE);
    }
    None
}
