//! The replica groups that take part in transactions, and what they are ordered to do at the end of one.
//!
//! Which of its replicas hold a row is the primary's decision. A coordinator addresses all of them that its view has:
//! those that hold nothing of the transaction pass the order on.
//!
//! A transaction's participants are a list in one pool: most have one or two, and a record of its own for each of them
//! would be most of a transaction's size.

use crate::Coordinator;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{ABORT_ONE, AbortBody, Actor, Chain, CommitBody, WHOLE_TRANSACTION};
use vinga_wire::view::{ClusterView, ReplicaGroup};
use vinga_wire::{SignalNumber, U16, U32, U64};

/// A replica group that takes part in a transaction.
pub struct Participant {
    pub owner: ReplicaGroup,
    /// Whether an operation that changes something was sent.
    pub changes: bool,
    /// Whether it holds records of the transaction.
    pub holds: bool,
    /// Whether it has confirmed the end of the transaction.
    pub ended: bool,
    next: Option<Handle>,
}

impl Participant {
    /// The replicas that may know of the transaction: read locks exist only at the primary.
    pub fn replicas(&self, view: &ClusterView) -> Chain {
        let partition = view.owned_by(self.owner);
        if self.changes { partition.replicas() } else { Chain::new(&[partition.chain.primary()]) }
    }
}

/// A transaction's participants; nothing but its record has this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParticipantList(Option<Handle>);

/// The participants of all transactions of a coordinator.
pub struct Participants {
    pool: Pool<Participant>,
}

impl Participants {
    /// Room for so many.
    pub fn new(capacity: u32) -> Self {
        Participants { pool: Pool::new(capacity) }
    }

    /// Those of a transaction.
    pub fn of(&self, list: ParticipantList) -> impl Iterator<Item = &Participant> {
        let mut next = list.0;
        core::iter::from_fn(move || {
            let participant = &self.pool[next?];
            next = participant.next;
            Some(participant)
        })
    }

    /// Starts to load the first of them into the caches.
    #[inline]
    pub fn prefetch(&self, list: ParticipantList) {
        if let Some(first) = list.0 {
            self.pool.prefetch(first.index());
        }
    }

    /// One of them, to change it.
    pub fn find_mut(&mut self, list: ParticipantList, owner: ReplicaGroup) -> Option<&mut Participant> {
        let mut next = list.0;
        while let Some(at) = next {
            if self.pool[at].owner == owner {
                return Some(&mut self.pool[at]);
            }
            next = self.pool[at].next;
        }
        None
    }

    /// One of them.
    pub fn find(&self, list: ParticipantList, owner: ReplicaGroup) -> Option<&Participant> {
        self.of(list).find(|participant| participant.owner == owner)
    }

    /// One of them, made if it was not there. `None` if the pool is empty.
    #[inline]
    pub fn find_or_add(
        &mut self,
        list: &mut ParticipantList,
        owner: ReplicaGroup,
    ) -> Option<&mut Participant> {
        let mut next = list.0;
        while let Some(at) = next {
            if self.pool[at].owner == owner {
                return Some(&mut self.pool[at]);
            }
            next = self.pool[at].next;
        }
        let made = Participant { owner, changes: false, holds: false, ended: false, next: list.0 };
        let made = self.pool.insert(made).ok()?;
        list.0 = Some(made);
        Some(&mut self.pool[made])
    }

    /// Forgets the participants of a transaction that is over.
    pub fn remove(&mut self, list: ParticipantList) {
        let mut next = list.0;
        while let Some(at) = next {
            next = self.pool.remove(at).expect("the list holds live participants").next;
        }
    }

    /// How many there are.
    pub fn used(&self) -> u32 {
        self.pool.used()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes()
    }
}

impl Coordinator {
    /// On whose behalf signals about a transaction act: this coordinator's own.
    #[inline]
    pub(crate) fn actor(&self, cx: &Context<'_>, handle: Handle) -> Actor {
        let own = cx.own();
        Actor {
            coordinator: U32::new(own.0),
            incarnation: U32::new(self.settings.incarnation.0),
            acting: U32::new(own.0),
            record: U32::new(handle.index()),
        }
    }

    /// Orders about a transaction.
    pub(crate) fn orders(&self, cx: &Context<'_>, handle: Handle) -> Orders {
        Orders { transaction: self.transactions[handle].id, actor: self.actor(cx, handle) }
    }
}

/// What a participant is to undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undo {
    /// Everything, locks included: the transaction is rolled back.
    Everything,
    /// The operations from this number on; locks stay.
    From(u32),
    /// This operation with its sub-operations.
    One(u32),
}

/// Orders participants what to do with a transaction, on behalf of the coordinator that acts for it.
#[derive(Clone, Copy)]
pub struct Orders {
    pub transaction: TransactionId,
    pub actor: Actor,
}

impl Orders {
    /// Has a participant commit: begins at its last replica. `marker` is the number of the operation that leaves a
    /// marker, 0 for none.
    pub fn commit(self, cx: &mut Context<'_>, participant: &Participant, epoch: Epoch, marker: u32) {
        let replicas = participant.replicas(cx.view());
        self.commit_at(cx, participant.owner, replicas, epoch, marker);
    }

    /// The same for these replicas of a replica group.
    pub fn commit_at(
        self,
        cx: &mut Context<'_>,
        owner: ReplicaGroup,
        replicas: Chain,
        epoch: Epoch,
        marker: u32,
    ) {
        cx.frame(SignalNumber::CommitRequest, owner.at(replicas.last())).put(&CommitBody {
            transaction: U64::new(self.transaction.0),
            epoch: U64::new(epoch.0),
            actor: self.actor,
            owner,
            replicas,
            marker: U32::new(marker),
            flags: U32::ZERO,
        });
    }

    /// Has a participant undo: begins at its primary.
    pub fn undo(self, cx: &mut Context<'_>, participant: &Participant, undo: Undo) {
        let replicas = participant.replicas(cx.view());
        self.undo_at(cx, participant.owner, replicas, undo);
    }

    /// The same for these replicas of a replica group.
    pub fn undo_at(self, cx: &mut Context<'_>, owner: ReplicaGroup, replicas: Chain, undo: Undo) {
        let (from, flags) = match undo {
            Undo::Everything => (WHOLE_TRANSACTION, 0),
            Undo::From(number) => (number, 0),
            Undo::One(number) => (number, ABORT_ONE),
        };
        let body = AbortBody {
            transaction: U64::new(self.transaction.0),
            actor: self.actor,
            owner,
            replicas,
            from: U32::new(from),
            flags: U16::new(flags),
            unused: U16::ZERO,
        };
        if undo == Undo::Everything && cx.has_bug(InjectedBug::AbortToEveryReplica) {
            for node in replicas.nodes() {
                let alone = AbortBody { replicas: Chain::new(&[node]), ..body };
                cx.frame(SignalNumber::AbortRequest, owner.at(node)).put(&alone);
            }
            return;
        }
        cx.frame(SignalNumber::AbortRequest, owner.at(replicas.primary())).put(&body);
    }
}
