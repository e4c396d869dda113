//! Whether the data nodes keep something on disk.

use std::sync::atomic::{AtomicU64, Ordering};
use vinga::ErrorCode;
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

/// Whether the cluster keeps something on disk. Asks a data node, with an empty transaction whose commit would wait for
/// the disk; true if that fails for another reason.
pub fn is_there(cluster: &Cluster) -> bool {
    let ask = || {
        let mut transaction = cluster.begin()?;
        transaction.set_durable(true);
        transaction.execute()?;
        transaction.roll_back()
    };
    if may_be_there(cluster) && ask().is_err_and(|error: vinga::Error| error.code() == ErrorCode::NoDisk) {
        note_missing(cluster);
    }
    may_be_there(cluster)
}
