//! What holds of a coordinator between two signals.

use crate::Coordinator;
use crate::transaction::{State, Transaction};
use alloc::collections::BTreeMap;
use vinga_base::Epoch;
use vinga_kernel::Scrutiny;

impl Coordinator {
    /// See `vinga_kernel::Block::check_invariants`.
    pub(crate) fn check(&self, scrutiny: Scrutiny) {
        self.transactions.check_ids();
        self.epochs.check();
        self.disk_waits.check();
        self.take_overs.check();
        if scrutiny < Scrutiny::Full {
            return;
        }
        let mut participants = 0;
        let mut open: BTreeMap<u32, u32> = BTreeMap::new();
        for (handle, transaction) in self.transactions.iter() {
            assert_eq!(
                self.transactions.find(transaction.id),
                Some(handle),
                "{:?} is found by its id",
                transaction.id
            );
            participants += self.participants.of(transaction.participants).count();
            *open.entry(transaction.id.owner()).or_default() += 1;
            self.check_transaction(transaction);
        }
        assert_eq!(
            participants,
            self.participants.used() as usize,
            "each participant is in the list of one transaction"
        );
        let entered = self.transactions.iter().filter(|(_, t)| t.entered != Epoch(0)).count();
        assert_eq!(entered as u64, self.epochs.committing(), "transactions that are going to commit");
        let awaiting = self.transactions.iter().filter(|(_, t)| t.state == State::AwaitingDisk).count();
        assert_eq!(awaiting, self.disk_waits.len(), "transactions that wait for the disk");
        for (owner, count) in self.clients.open() {
            assert_eq!(open.remove(&owner).unwrap_or(0), count, "open transactions of API node {owner:x}");
        }
        assert!(open.is_empty(), "transactions of API nodes that are not known: {open:x?}");
    }

    fn check_transaction(&self, transaction: &Transaction) {
        let id = transaction.id;
        let all = || self.participants.of(transaction.participants);
        for (at, participant) in all().enumerate() {
            let is_double = all().skip(at + 1).any(|other| other.owner == participant.owner);
            assert!(!is_double, "{id:?} has {:?} twice as a participant", participant.owner);
            assert!(
                transaction.has_changes || !participant.changes,
                "{id:?}: a participant knows of a change"
            );
        }
        match transaction.state {
            State::Open { .. } => {
                assert!(all().all(|p| !p.ended), "{id:?}: nothing has ended before the decision");
            }
            State::Preparing { outstanding, commit, last } => {
                assert!(outstanding > 0, "{id:?} prepares without waiting for an answer");
                assert!(all().all(|p| !p.ended), "{id:?}: nothing has ended before the decision");
                assert!(commit || !last, "{id:?}: only a commit is left to a data manager");
                assert!(!last || all().count() == 1, "{id:?}: one data manager commits in one phase");
            }
            State::InDoubt { awaited, .. } => {
                assert!(!awaited.is_empty(), "{id:?} is in doubt, and nobody is asked");
                assert!(all().all(|p| !p.ended), "{id:?}: nothing has ended before the decision");
                assert_eq!(all().count(), 1, "{id:?}: one replica group commits by itself");
                assert!(transaction.entered != Epoch(0), "{id:?} may be committed in an epoch");
            }
            State::Committing { outstanding } => {
                let awaited = all().filter(|p| p.holds && !p.ended).count();
                assert_eq!(
                    awaited, outstanding as usize,
                    "{id:?} commits: primaries that have not confirmed"
                );
                assert!(awaited > 0, "{id:?} has committed and is not removed");
            }
            State::AwaitingDisk => {
                assert!(transaction.is_durable && transaction.has_changes, "{id:?} waits for the disk");
            }
            State::RollingBack { outstanding } => {
                let awaited = all().filter(|p| !p.ended).count();
                assert_eq!(awaited, outstanding as usize, "{id:?} rolls back: participants not confirmed");
                assert!(awaited > 0, "{id:?} has rolled back and is not removed");
                assert!(transaction.unique.is_none(), "{id:?}: nothing follows in a unique index any more");
            }
        }
        if let Some((number, owner)) = transaction.first_change {
            assert!(transaction.has_changes && number <= transaction.operation, "{id:?}: its first change");
            let is_participant = self.participants.find(transaction.participants, owner).is_some();
            assert!(is_participant, "{id:?}: the owner of its first change takes part");
        }
    }
}
