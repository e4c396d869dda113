//! The rounds of a schema change: which follows which, who takes part, and what each does.
//!
//! ```text
//!   (Note) ─▶ Prepare ─▶ Switch ─▶ Build ─▶ Fence ─▶ (Record) ─▶ (Decide) ══decision══▶ Publish ─▶ Complete
//!      │ somebody refuses, or the requester goes              │    ─▶ Remove ─▶ (Durability) ─▶ Events ─▶ (answer)
//!      └──────────────┬───────────────────────────────────────┘
//!                     ▼
//!                  Restore ─▶ Forget ─▶ Discard ─▶ (refused)
//! ```
//! Rounds in brackets are those of a node with a disk (`record`), and those with the dictionaries of other data nodes
//! (`replication`).
//!
//! In each round all participants get an order, then all confirms are awaited; only then the next begins. A round of
//! nobody ends at once, so each kind of change has just the rounds that it needs. Data managers have a version before
//! any coordinator and keep it longer, so no operation reaches a data manager that does not know its table.

use crate::Requester;
use crate::plan::{Plan, Refused};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::schema_round::{RoundName, RoundTask};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame};

/// The round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Round {
    /// The other dictionaries take note of the change.
    Note,
    Prepare,
    Switch,
    Build,
    Fence,
    /// The change is written to disk.
    Record,
    /// The other dictionaries know that it is decided: from now on it is carried out, whoever is president.
    Decide,
    Publish,
    Complete,
    Remove,
    /// The change's epoch is on disk.
    Durability,
    Events,
    /// Undo: coordinators go on with the old version.
    Restore,
    /// Undo: data managers forget the new version.
    Forget,
    /// Undo: data managers free what they had made.
    Discard,
}

impl Round {
    /// The round that follows: of a change that was refused meanwhile or not, that is kept on disk or not.
    pub fn next(self, is_refused: bool, is_kept: bool) -> Option<Round> {
        match self {
            Round::Note | Round::Prepare | Round::Switch | Round::Build | Round::Fence | Round::Record
                if is_refused =>
            {
                Some(Round::Restore)
            }
            Round::Note => Some(Round::Prepare),
            Round::Prepare => Some(Round::Switch),
            Round::Switch => Some(Round::Build),
            Round::Build => Some(Round::Fence),
            Round::Fence if is_kept => Some(Round::Record),
            Round::Fence | Round::Record => Some(Round::Decide),
            Round::Decide => Some(Round::Publish),
            Round::Publish => Some(Round::Complete),
            Round::Complete => Some(Round::Remove),
            Round::Remove if is_kept => Some(Round::Durability),
            Round::Remove | Round::Durability => Some(Round::Events),
            Round::Restore => Some(Round::Forget),
            Round::Forget => Some(Round::Discard),
            Round::Events | Round::Discard => None,
        }
    }

    pub fn is_before_decision(self) -> bool {
        self < Round::Decide
    }

    /// Who takes part in it; `None`: nobody that is sent a task.
    pub fn participants(self) -> Option<BlockNumber> {
        match self {
            Round::Note | Round::Decide => Some(BlockNumber::Dictionary),
            Round::Switch | Round::Fence | Round::Publish | Round::Restore => Some(BlockNumber::Coordinator),
            Round::Prepare
            | Round::Build
            | Round::Complete
            | Round::Remove
            | Round::Forget
            | Round::Discard => Some(BlockNumber::DataManager),
            Round::Record | Round::Durability | Round::Events => None,
        }
    }
}

/// How far a change is written to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recording {
    /// Not begun, or given up.
    None,
    /// It is being seen to that there is room. The change may still be undone.
    MakingRoom,
    /// It is being written: perhaps it is on disk already, so it can't be undone.
    Writing,
    /// It is on disk.
    Done,
}

/// The schema change under way.
#[derive(Debug)]
pub struct Change {
    /// Who is answered at the end; `None` if it has gone.
    pub requester: Option<Requester>,
    pub plan: Plan,
    pub refused: Option<Refused>,
    pub round: Round,
    /// Whether it is written to disk.
    pub is_kept: bool,
    /// How far that is done.
    pub recording: Recording,
    pub name: RoundName,
    /// The newest epoch in which anybody that has confirmed a round has committed.
    pub newest: Epoch,
    /// The epoch of the change; 0 as long as it is not decided.
    pub epoch: Epoch,
    /// Who has not answered in this round.
    pub awaited: BTreeSet<Address>,
    /// Who has prepared the change, or was ordered to hold the table or to fence it: what an undo has to take back.
    pub touched: BTreeSet<Address>,
    /// Subscribers that have not confirmed the events.
    pub subscribers: BTreeSet<NodeId>,
    /// Whether the definitions that are listed are those after the change: it is decided.
    pub is_listed: bool,
}

impl Change {
    /// The change with this number, of which nothing was done yet.
    pub fn new(number: u64, plan: Plan) -> Self {
        Change {
            requester: None,
            plan,
            refused: None,
            round: Round::Note,
            is_kept: false,
            recording: Recording::None,
            name: RoundName { change: number, step: 0 },
            newest: Epoch(0),
            epoch: Epoch(0),
            awaited: BTreeSet::new(),
            touched: BTreeSet::new(),
            subscribers: BTreeSet::new(),
            is_listed: false,
        }
    }

    /// The API node that waits for it, its number, and how many rounds have begun.
    pub fn progress(&self) -> Option<(NodeId, u64, u32)> {
        Some((self.requester?.address.node(), self.name.change, self.name.step))
    }

    /// The asking API node has gone: what is not decided is undone.
    pub fn forget_requester(&mut self, cx: &mut Context<'_>, api: NodeId) {
        if self.requester.is_none_or(|requester| requester.address.node() != api) {
            return;
        }
        cx.mark("requester of a schema change has gone");
        match self.round {
            Round::Note => cx.mark("requester has gone while other dictionaries note its change"),
            Round::Prepare => cx.mark("requester has gone while data managers prepare its change"),
            Round::Switch => cx.mark("requester has gone while transactions end for its change"),
            Round::Build => cx.mark("requester has gone while indexes are built for its change"),
            Round::Fence => cx.mark("requester has gone while changes end for its fence"),
            Round::Record => cx.mark("requester has gone while its change is recorded"),
            Round::Decide => cx.mark("requester has gone while other dictionaries note the decision"),
            Round::Publish => cx.mark("requester has gone while its change is published"),
            Round::Complete => cx.mark("requester has gone while its change is completed"),
            Round::Remove => cx.mark("requester has gone while its change frees what it replaces"),
            Round::Durability => cx.mark("requester has gone while its change becomes durable"),
            Round::Events => cx.mark("requester has gone while subscribers are awaited"),
            Round::Restore | Round::Forget | Round::Discard => {
                cx.mark("requester has gone while its change is undone");
            }
        }
        self.requester = None;
        let is_written = matches!(self.recording, Recording::Writing | Recording::Done);
        if self.round.is_before_decision() && !is_written && self.refused.is_none() {
            cx.mark("schema change is undone because its requester has gone");
            self.refused = Some(Refused { code: ErrorCode::ConnectionLost, detail: String::new() });
        }
    }

    /// A data node has failed: what it had is gone with it.
    pub fn forget_node(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let before = self.awaited.len();
        self.awaited.retain(|block| block.node() != node);
        self.touched.retain(|block| block.node() != node);
        if self.awaited.len() == before {
            return;
        }
        cx.mark("schema change goes on without a failed data node");
        // The primaries of partitions alone look whether there are rows, and one that has failed may have found some.
        if self.round == Round::Build && self.plan.must_be_empty && self.refused.is_none() {
            if cx.has_bug(InjectedBug::LostRefusalIsConsent) {
                return;
            }
            cx.mark("a data node fails that looks whether a table is empty");
            self.refused = Some(Refused { code: ErrorCode::NodeFailure, detail: String::new() });
        }
    }

    /// A subscriber has confirmed, or has gone.
    pub fn no_longer_await(&mut self, node: NodeId) {
        self.subscribers.remove(&node);
    }

    /// Takes out those who have not confirmed the events of the change with this number.
    pub fn take_awaited_subscribers(&mut self, number: u64) -> BTreeSet<NodeId> {
        if number == self.name.change { core::mem::take(&mut self.subscribers) } else { BTreeSet::new() }
    }

    /// Whether a name can't be described because its table is between two versions, or about to go.
    pub fn hides(&self, name: &str) -> bool {
        matches!(self.round, Round::Decide | Round::Publish | Round::Complete)
            && self.plan.fence.is_none()
            && self.plan.concerns(name)
    }

    /// Whether a write fence of this table is made, and the other dictionaries are learning that it is decided.
    pub fn is_deciding_fence_of(&self, table: u32) -> bool {
        let is_of = |before: &TableRecord| before.table == table;
        self.round == Round::Decide
            && self.plan.fence.is_some()
            && self.plan.before.as_ref().is_some_and(is_of)
    }

    /// Whether a copy takes the place of this table.
    pub fn replaces(&self, table: u32) -> bool {
        self.plan.replaced.as_ref().is_some_and(|replaced| replaced.table == table)
    }

    /// Whether nobody has to answer for the next round to begin.
    pub fn is_round_over(&self) -> bool {
        let is_being_written = matches!(self.recording, Recording::MakingRoom | Recording::Writing);
        self.awaited.is_empty() && self.subscribers.is_empty() && !is_being_written
    }

    /// A new change has the epoch that its participants have reached, or the present one if that is greater.
    pub fn take_epoch(&mut self, current: Epoch) -> Epoch {
        self.epoch = self.newest.max(current);
        self.epoch
    }

    /// Whether an answer belongs to this round and is awaited; then it no longer is.
    pub fn is_answer(&mut self, frame: &Frame<'_>, round: RoundName) -> bool {
        round == self.name && self.awaited.remove(&frame.sender())
    }

    /// What is to be done in a round; `None` if nobody takes part.
    pub fn task(&self, round: Round) -> Option<RoundTask> {
        let Plan { before, after, replaced, made, gone, ordered, must_be_empty, fence, .. } = &self.plan;
        let is_in_place = self.plan.is_in_place();
        if let Some(api) = fence {
            let table = before.as_ref().expect("a table is fenced").table;
            return match round {
                Round::Fence => Some(RoundTask::Fence { table, api: api.0 }),
                Round::Decide => Some(RoundTask::Decide),
                Round::Restore => Some(RoundTask::Fence { table, api: 0 }),
                _ => None,
            };
        }
        match round {
            Round::Decide => Some(RoundTask::Decide),
            Round::Prepare => {
                let record = after.clone()?;
                let made = made.iter().map(|made| made.table).collect();
                Some(RoundTask::Prepare { record, made })
            }
            Round::Switch => {
                let own = before.as_ref()?.own();
                let others = gone.iter().copied().filter(|&name| name != own);
                Some(RoundTask::Switch { tables: core::iter::once(own).chain(others).collect() })
            }
            Round::Build if ordered.is_empty() && !must_be_empty => None,
            Round::Build => {
                let record = after.as_ref()?;
                let ordered = ordered.iter().filter_map(|&id| record.definition.index(id).cloned()).collect();
                Some(RoundTask::Build { table: record.table, ordered, must_be_empty: *must_be_empty })
            }
            Round::Publish if before.is_none() && after.is_none() => None,
            Round::Publish => {
                Some(RoundTask::Publish { records: after.iter().cloned().collect(), gone: gone.clone() })
            }
            Round::Complete => {
                before.as_ref()?;
                let record = after.clone().filter(|_| is_in_place);
                Some(RoundTask::Complete { record, gone: gone.clone() })
            }
            Round::Remove if gone.is_empty() => None,
            Round::Remove => Some(RoundTask::Remove { tables: gone.clone() }),
            Round::Restore => {
                before.as_ref()?;
                let records = before.iter().chain(replaced).cloned().collect();
                Some(RoundTask::Publish { records, gone: Vec::new() })
            }
            Round::Forget => {
                let record = Some(before.clone().filter(|_| is_in_place)?);
                Some(RoundTask::Complete { record, gone: Vec::new() })
            }
            Round::Discard if made.is_empty() => None,
            Round::Discard => Some(RoundTask::Remove { tables: made.clone() }),
            // What is noted has the present versions: see `Dictionary::note`.
            Round::Note | Round::Fence | Round::Record | Round::Durability | Round::Events => None,
        }
    }
}
