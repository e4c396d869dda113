//! The record of a transaction.

use crate::participants::{Participant, ParticipantList};
use crate::unique::UniqueWork;
use alloc::boxed::Box;
use alloc::vec::Vec;
use vinga_base::{Epoch, TransactionId, ViewNumber};
use vinga_kernel::Tick;
use vinga_wire::commit::Chain;
use vinga_wire::view::{ClusterView, ReplicaGroup};
use vinga_wire::{Address, ErrorCode};

/// Where a transaction stands; see the head of the crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing is under way; the API node's turn.
    Open {
        /// Since when.
        since: Tick,
    },
    /// Data managers work on a batch.
    Preparing {
        /// Operations, and partial rollbacks of chains, that have not been answered.
        outstanding: u32,
        /// Commit when all are.
        commit: bool,
        /// The data manager may already have committed (`PREPARE_LAST`): only its answer decides.
        last: bool,
    },
    /// A replica may have committed it by itself (`PREPARE_LAST`), and one has failed: those that are left are asked.
    InDoubt {
        /// Replicas that have not answered.
        awaited: Chain,
        /// The view of the question.
        view: ViewNumber,
    },
    /// Decided: commit.
    Committing {
        /// Participants whose primary has not confirmed.
        outstanding: u32,
    },
    /// Committed on all replicas; answered when its epoch is on disk.
    AwaitingDisk,
    /// Decided: roll back.
    RollingBack {
        /// Participants whose chain has not confirmed.
        outstanding: u32,
    },
}

/// An operation that failed, and why.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub operation: u32,
    pub code: ErrorCode,
    /// The unique index that is to blame, 0 if it is the row itself.
    pub index: u16,
}

/// Tables of a transaction that its record itself has room for.
const TABLES_AT_HAND: usize = 4;

/// One open transaction.
pub struct Transaction {
    pub id: TransactionId,
    /// Who is answered; the instance is the API node's own business.
    pub api: Address,
    pub state: State,
    /// When it began.
    pub began: Tick,
    /// The API node's tag of the batch under way.
    pub request: u32,
    /// Newest epoch of any commit at the data managers of its operations, and that the API node has seen.
    /// Once committing: its epoch.
    pub epoch: Epoch,
    /// The epoch that it has entered ([`crate::epochs::Epochs::enter`]); 0 for none.
    pub entered: Epoch,
    /// The replica groups that take part.
    pub participants: ParticipantList,
    /// The highest operation number so far.
    pub operation: u32,
    /// Rows sent to the API node for the batch under way.
    pub rows: u16,
    /// Whether an operation that changes something was sent.
    pub has_changes: bool,
    /// Whether its commit is answered only when it is on disk.
    pub is_durable: bool,
    /// Number of the first operation that changed something, and its owner, if any. Only what can't fail alone any more
    /// counts.
    pub first_change: Option<(u32, ReplicaGroup)>,
    /// What follows in unique indexes, and operations of the batch that wait for it.
    pub unique: Option<Box<UniqueWork>>,
    /// What few transactions have. Apart, because records are moved, and small ones with a few instructions.
    special: Option<Box<Special>>,
    tables: [u32; TABLES_AT_HAND],
    table_count: u8,
}

/// What few transactions have.
#[derive(Default)]
pub struct Special {
    /// Why it rolls back, and which operation caused it (0 for none).
    pub cause: Option<Failure>,
    /// Operations of the batch under way that failed alone.
    pub errors: Vec<Failure>,
    /// Somebody asks for the outcome (after a reconnect): address and tag.
    pub asked: Option<(Address, u32)>,
    /// The last probe for deadlocks that was passed on: initiator and number.
    pub probe: Option<(TransactionId, u32)>,
    /// Its API node has given up the batch while a data manager may have committed it.
    pub is_given_up: bool,
    /// The tables that it uses, beyond those that the record has room for; in order.
    tables: Vec<u32>,
}

impl Transaction {
    pub fn new(id: TransactionId, api: Address, now: Tick) -> Self {
        Transaction {
            id,
            api,
            state: State::Open { since: now },
            began: now,
            request: 0,
            epoch: Epoch(0),
            entered: Epoch(0),
            participants: ParticipantList::default(),
            operation: 0,
            rows: 0,
            has_changes: false,
            is_durable: false,
            first_change: None,
            unique: None,
            special: None,
            tables: [0; TABLES_AT_HAND],
            table_count: 0,
        }
    }

    /// Notes that it uses a table.
    #[inline]
    pub fn use_table(&mut self, table: u32) {
        let known = usize::from(self.table_count);
        if self.tables[..known].contains(&table) {
            return;
        }
        if known < TABLES_AT_HAND {
            self.tables[known] = table;
            self.table_count += 1;
        } else {
            self.use_one_more_table(table);
        }
    }

    #[cold]
    fn use_one_more_table(&mut self, table: u32) {
        let others = &mut self.special_mut().tables;
        if let Err(place) = others.binary_search(&table) {
            others.insert(place, table);
        }
    }

    /// Whether it uses a table.
    pub fn uses_table(&self, table: u32) -> bool {
        let at_hand = &self.tables[..usize::from(self.table_count)];
        at_hand.contains(&table)
            || self.special().is_some_and(|special| special.tables.binary_search(&table).is_ok())
    }

    /// What few transactions have, if it has any of it.
    #[inline]
    pub fn special(&self) -> Option<&Special> {
        self.special.as_deref()
    }

    /// The same, to be changed.
    #[cold]
    pub fn special_mut(&mut self) -> &mut Special {
        self.special.get_or_insert_default()
    }

    /// A batch begins: the errors of the one before count no more.
    #[inline]
    pub fn clear_errors(&mut self) {
        if let Some(special) = &mut self.special {
            special.errors.clear();
        }
    }

    /// Notes a change that can't fail alone any more.
    #[inline]
    pub fn note_change(&mut self, number: u32, owner: ReplicaGroup) {
        if self.first_change.is_none_or(|(first, _)| number < first) {
            self.first_change = Some((number, owner));
        }
    }

    /// Where a marker is left when it is complete: by the first change, unless the cluster is configured with one
    /// replica, as coordinators have no successors then.
    pub fn marker(&self, view: &ClusterView) -> Option<(u32, ReplicaGroup)> {
        self.first_change.filter(|_| view.is_replicated())
    }

    /// Number of the operation that leaves the marker, if it is one of this participant's, else 0.
    pub fn marker_at(&self, view: &ClusterView, participant: &Participant) -> u32 {
        self.marker(view).filter(|&(_, owner)| owner == participant.owner).map_or(0, |(number, _)| number)
    }

    /// Whether it has neither been decided nor may be decided by a data manager.
    pub fn may_be_rolled_back(&self) -> bool {
        match self.state {
            State::Open { .. } => true,
            State::Preparing { last, .. } => !last,
            State::InDoubt { .. }
            | State::Committing { .. }
            | State::AwaitingDisk
            | State::RollingBack { .. } => false,
        }
    }
}
