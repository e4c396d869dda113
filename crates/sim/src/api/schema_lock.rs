//! The schema lock: one claim at a time has it, and keeps it as long as its client's session lives, whichever data
//! nodes die.
//!
//! A client whose connections are closed learns that later than the data nodes, and may believe meanwhile to have a
//! lock that is somebody else's. So whoever is not admitted where the newest president looks does not count.

use crate::api::backups::OpenBackup;
use crate::api::caller::{Caller, SessionState};
use crate::world::World;
use vinga_client_core::{Admission, Token};
use vinga_dictionary::Dictionary;

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

    /// Claims that are known to have the lock.
    fn held_locks(&self) -> usize {
        self.granted_locks().filter(|lock| self.client.holds_lock(lock.token) == Some(true)).count()
    }

    /// Whether a claim has lost the lock though its session lives.
    fn has_lost_lock(&self) -> bool {
        let admission = self.client.admission();
        let is_same = |lock: &GrantedLock| lock.admission == admission;
        self.granted_locks().filter(is_same).any(|lock| self.client.holds_lock(lock.token) == Some(false))
    }
}

impl World {
    /// The dictionary that leads in the newest view.
    fn leading_dictionary(&self) -> Option<&Dictionary> {
        let live = self.threads.iter().filter(|thread| thread.is_alive);
        let leads = live.filter_map(|thread| {
            let view = thread.executor.view();
            let is_own = view.president().is_some_and(|president| president.0 == thread.node);
            Some((view.number(), thread.executor.host().dictionary().filter(|_| is_own)?))
        });
        leads.max_by_key(|(view, _)| *view).map(|(_, dictionary)| dictionary)
    }

    /// An API node may have got the schema lock, or learned that it has lost it.
    pub(super) fn check_schema_lock(&mut self, api: usize) {
        let caller = &self.apis[api].caller;
        if caller.has_lost_lock() {
            let text = format!("API node {} has lost the schema lock though its session lives", caller.node);
            self.violations.push(text);
        }
        if caller.held_locks() == 0 {
            return;
        }
        let Some(dictionary) = self.leading_dictionary() else { return };
        let callers = self.apis.iter().filter(|api| api.is_alive).map(|api| &api.caller);
        let admitted = callers.filter(|caller| dictionary.is_admitted(caller.node));
        let held: Vec<_> =
            admitted.map(|caller| (caller.node, caller.held_locks())).filter(|one| one.1 > 0).collect();
        if held.iter().map(|one| one.1).sum::<usize>() > 1 {
            let text = format!("several claims have the schema lock, by API node: {held:?}");
            self.violations.push(text);
        }
    }
}
