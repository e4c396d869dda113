//! Whether the data nodes keep something on disk: what they have said of it. [`crate::auto_increment::has_disk`] asks.

use std::sync::atomic::{AtomicU64, Ordering};
use vinga::blocking::Cluster;

/// The incarnation of the cluster that has said that it keeps nothing on disk; 0 if none has. It is not asked again.
static DISKLESS: AtomicU64 = AtomicU64::new(0);

/// Whether the cluster may keep something on disk: its data nodes have not said that they don't.
pub fn may_be_there(cluster: &Cluster) -> bool {
    DISKLESS.load(Ordering::Relaxed) != cluster.incarnation()
}

/// Notes that the data nodes have refused a commit because they keep nothing on disk.
pub fn note_missing(cluster: &Cluster) {
    DISKLESS.store(cluster.incarnation(), Ordering::Relaxed);
}
