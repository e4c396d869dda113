//! The schema lock: one claim at a time has it, and keeps it as long as its client's session lives, whichever data
//! nodes die.
//!
//! A client whose connections are closed learns that later than the data nodes, and may believe meanwhile to have a
//! lock that is somebody else's. So whoever is not admitted where the newest president looks does not count, nor do
//! locks of an earlier admission than its present one there, of which the client has not learned.

use crate::api::backups::OpenBackup;
use crate::api::caller::{Caller, SessionState};
use crate::world::World;
use vinga_base::Incarnation;
use vinga_client_core::{Admission, Token};
use vinga_node::Blocks;

/// A claim that was granted.
#[derive(Clone, Copy)]
pub struct GrantedLock {
    pub token: Token,
    /// When it was: no other one ends the lock.
    admission: Admission,
}

impl Caller {
    pub(super) fn granted(&self, token: Token) -> GrantedLock {
        GrantedLock { token, admission: self.client.admission() }
    }

    fn granted_locks(&self) -> impl Iterator<Item = GrantedLock> {
        let of_backup = |session: &SessionState| session.backup.as_ref().and_then(OpenBackup::lock);
        self.sessions.iter().flat_map(move |session| session.lock.into_iter().chain(of_backup(session)))
    }

    /// Claims that are known to have the lock, of those that were granted in this admission of this incarnation.
    fn held_locks(&self, admission: (Incarnation, u32)) -> usize {
        let is_of = |lock: &GrantedLock| (lock.admission.incarnation, lock.admission.number) == admission;
        let held = self.granted_locks().filter(|lock| self.client.holds_lock(lock.token) == Some(true));
        held.filter(is_of).count()
    }

    /// Whether a claim has lost the lock though its session lives.
    fn has_lost_lock(&self) -> bool {
        let admission = self.client.admission();
        let is_same = |lock: &GrantedLock| lock.admission == admission;
        self.granted_locks().filter(is_same).any(|lock| self.client.holds_lock(lock.token) == Some(false))
    }
}

impl World {
    /// The blocks of the president's main thread, in the newest view.
    fn leading_blocks(&self) -> Option<&Blocks> {
        let live = self.threads.iter().filter(|thread| thread.is_alive);
        let leads = live.filter_map(|thread| {
            let (view, blocks) = (thread.executor.view(), thread.executor.host());
            let is_own = view.president().is_some_and(|president| president.0 == thread.node);
            (is_own && blocks.dictionary().is_some()).then_some((view.number(), blocks))
        });
        leads.max_by_key(|(view, _)| *view).map(|(_, blocks)| blocks)
    }

    /// An API node may have got the schema lock, or learned that it has lost it.
    pub(super) fn check_schema_lock(&mut self, api: usize) {
        let caller = &self.apis[api].caller;
        if caller.has_lost_lock() {
            let text = format!("API node {} has lost the schema lock though its session lives", caller.node);
            self.violations.push(text);
        }
        if caller.granted_locks().next().is_none() {
            return;
        }
        let Some(blocks) = self.leading_blocks() else { return };
        let callers = self.apis.iter().filter(|api| api.is_alive).map(|api| &api.caller);
        let is_admitted =
            |caller: &&Caller| blocks.dictionary().is_some_and(|one| one.is_admitted(caller.node));
        let held_by = |caller: &Caller| {
            let admission = blocks.membership()?.admission(caller.node)?;
            Some((caller.node, caller.held_locks(admission))).filter(|one| one.1 > 0)
        };
        let held: Vec<_> = callers.filter(is_admitted).filter_map(held_by).collect();
        if held.iter().map(|one| one.1).sum::<usize>() > 1 {
            let text = format!("several claims have the schema lock, by API node: {held:?}");
            self.violations.push(text);
        }
    }
}
