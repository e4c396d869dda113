//! The view has changed: chains get shorter, backups become primaries.

use crate::DataManager;
use crate::operation::State;
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_fragment::lock_table::LockRef;
use vinga_kernel::{Context, InjectedBug};

impl DataManager {
    /// Where this data manager is the primary now, its committed versions are shown at once (all replicas behind it
    /// committed before it), and what is prepared holds its row's lock.
    pub(crate) fn take_over_partitions(&mut self, cx: &mut Context<'_>) {
        let view = cx.view();
        let promoted: Vec<Handle> = self
            .versions
            .rows
            .iter()
            .filter(|(_, row)| row.lock == LockRef::NONE && self.is_primary_of(view, row.place.partition))
            .map(|(handle, _)| handle)
            .collect();
        for state in promoted {
            let Some(newest) = self.versions.rows.get(state).and_then(|r| r.newest_change) else { continue };
            match self.versions.operations[newest].state {
                State::Committed { epoch, .. } => {
                    cx.mark("promoted backup shows a committed version");
                    if !cx.has_bug(InjectedBug::PromotedHidesCommitted) {
                        self.install(cx, state, epoch);
                    }
                }
                State::Prepared => {
                    cx.mark("promoted backup locks a prepared row");
                    self.lock_prepared(state);
                }
                State::Waiting { .. } => unreachable!("nothing waits at a backup"),
            }
        }
    }

    /// Gives the prepared changes of a row its lock; they were ordered by the old primary, so nobody is in the way.
    fn lock_prepared(&mut self, state: Handle) {
        let mut next = self.versions.rows[state].newest_change;
        while let Some(handle) = next {
            self.lock_fresh(handle, state);
            next = self.versions.operations[handle].older_change;
        }
    }
}
