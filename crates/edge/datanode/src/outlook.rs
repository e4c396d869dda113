//! What a start from a node's folder would come to.

use vinga_wire::start::{Restored, RestoredFrom};

/// What a start would begin with, if it is not refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// The node keeps nothing on disk (`Diskless`): a start does not look at the files.
    NotRead,
    /// There is no database: a start would make an empty one.
    Nothing,
    /// The database that is there.
    Restored {
        /// What of it.
        restored: Restored,
        /// From what, by data manager, ascending.
        from: Vec<RestoredFrom>,
    },
}
