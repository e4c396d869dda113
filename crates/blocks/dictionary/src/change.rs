//! One schema change, in rounds.
//!
//! ```text
//!   Prepare ─▶ Switch ─▶ Build ─▶ Fence ─▶ (Record) ══decision══▶ Publish ─▶ Complete ─▶ Remove ─▶ (Durability)
//!      │ somebody refuses, or the requester goes │                                            ─▶ Events ─▶ (answer)
//!      └──────────────┬──────────────────────────┘
//!                     ▼
//!                  Restore ─▶ Forget ─▶ Discard ─▶ (refused)
//! ```
//! Rounds in brackets are those of a node with a disk (`record`).
//!
//! In each round all participants get an order, then all confirms are awaited; only then the next begins. A round of
//! nobody ends at once, so each kind of change has just the rounds that it needs. Data managers have a version before
//! any coordinator and keep it longer, so no operation reaches a data manager that does not know its table.

use crate::plan::{ChangeRequest, DatabaseStep, Plan, Refused};
use crate::{Dictionary, Requester, Timer};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId};
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::dictionary::VersionedTable;
use vinga_wire::epoch::EpochBody;
use vinga_wire::schema::SchemaEventKind;
use vinga_wire::schema_round::{
    RoundName, RoundTask, SchemaRoundConfirm, SchemaRoundRefuse, SchemaRoundRequest,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

use crate::events::EVENT_WAIT_MAX;

/// The round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Round {
    Prepare,
    Switch,
    Build,
    Fence,
    /// The change is written to disk.
    Record,
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
    fn next(self, is_refused: bool, is_kept: bool) -> Option<Round> {
        match self {
            Round::Prepare | Round::Switch | Round::Build | Round::Fence | Round::Record if is_refused => {
                Some(Round::Restore)
            }
            Round::Prepare => Some(Round::Switch),
            Round::Switch => Some(Round::Build),
            Round::Build => Some(Round::Fence),
            Round::Fence if is_kept => Some(Round::Record),
            Round::Fence | Round::Record => Some(Round::Publish),
            Round::Publish => Some(Round::Complete),
            Round::Complete => Some(Round::Remove),
            Round::Remove if is_kept => Some(Round::Durability),
            Round::Remove | Round::Durability => Some(Round::Events),
            Round::Restore => Some(Round::Forget),
            Round::Forget => Some(Round::Discard),
            Round::Events | Round::Discard => None,
        }
    }

    fn is_before_decision(self) -> bool {
        matches!(self, Round::Prepare | Round::Switch | Round::Build | Round::Fence | Round::Record)
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
    requester: Option<Requester>,
    pub plan: Plan,
    pub refused: Option<Refused>,
    round: Round,
    /// Whether it is written to disk.
    is_kept: bool,
    /// How far that is done.
    pub recording: Recording,
    name: RoundName,
    /// The newest epoch in which anybody that has confirmed a round has committed.
    newest: Epoch,
    /// The epoch of the change; 0 as long as it is not decided.
    pub epoch: Epoch,
    /// Who has not answered in this round.
    awaited: BTreeSet<Address>,
    /// Who has prepared the change, or was ordered to hold the table or to fence it: what an undo has to take back.
    touched: BTreeSet<Address>,
    /// Subscribers that have not confirmed the events.
    subscribers: BTreeSet<NodeId>,
}

impl Change {
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
            Round::Prepare => cx.mark("requester has gone while data managers prepare its change"),
            Round::Switch => cx.mark("requester has gone while transactions end for its change"),
            Round::Build => cx.mark("requester has gone while indexes are built for its change"),
            Round::Fence => cx.mark("requester has gone while changes end for its fence"),
            Round::Record => cx.mark("requester has gone while its change is recorded"),
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
        if self.awaited.len() < before {
            cx.mark("schema change goes on without a failed data node");
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
        matches!(self.round, Round::Publish | Round::Complete)
            && self.plan.fence.is_none()
            && self.plan.concerns(name)
    }

    /// Whether nobody has to answer for the next round to begin.
    fn is_round_over(&self) -> bool {
        let is_being_written = matches!(self.recording, Recording::MakingRoom | Recording::Writing);
        self.awaited.is_empty() && self.subscribers.is_empty() && !is_being_written
    }

    /// A new change has the epoch that its participants have reached, or the present one if that is greater.
    pub fn take_epoch(&mut self, current: Epoch) -> Epoch {
        self.epoch = self.newest.max(current);
        self.epoch
    }

    /// Whether an answer belongs to this round and is awaited; then it no longer is.
    fn is_answer(&mut self, frame: &Frame<'_>, round: RoundName) -> bool {
        round == self.name && self.awaited.remove(&frame.sender())
    }

    /// What is to be done in a round; `None` if nobody takes part.
    fn task(&self, round: Round) -> Option<RoundTask> {
        let Plan { before, after, replaced, made, gone, ordered, must_be_empty, fence, .. } = &self.plan;
        let is_in_place = self.plan.is_in_place();
        if let Some(api) = fence {
            let table = before.as_ref().expect("a table is fenced").table;
            return match round {
                Round::Fence => Some(RoundTask::Fence { table, api: api.0 }),
                Round::Restore => Some(RoundTask::Fence { table, api: 0 }),
                _ => None,
            };
        }
        match round {
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
            Round::Fence | Round::Record | Round::Durability | Round::Events => None,
        }
    }
}

impl Dictionary {
    /// Begins a change, or says why not.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        requester: Requester,
        change: ChangeRequest,
    ) -> Result<(), Refused> {
        let plan = self.plan(cx, requester, change)?;
        let is_kept = self.file.is_some() && plan.fence.is_none();
        self.changes += 1;
        self.change = Some(Change {
            requester: Some(requester),
            plan,
            refused: None,
            round: Round::Prepare,
            is_kept,
            recording: Recording::None,
            name: RoundName { change: self.changes, step: 0 },
            newest: Epoch(0),
            epoch: Epoch(0),
            awaited: BTreeSet::new(),
            touched: BTreeSet::new(),
            subscribers: BTreeSet::new(),
        });
        self.enter_round(cx, Round::Prepare);
        Ok(())
    }

    /// Tells everybody who takes part in a round of the present change.
    fn enter_round(&mut self, cx: &mut Context<'_>, round: Round) {
        let change = self.change.as_mut().expect("a change is under way");
        change.round = round;
        change.name.step += 1;
        if round == Round::Events {
            let events = core::mem::take(&mut change.plan.events);
            let by = change.requester.map(|requester| requester.address.node());
            change.subscribers = self.subscribers.notify(cx, events, by);
            if !change.subscribers.is_empty() {
                cx.send_after(EVENT_WAIT_MAX, Timer::EventWait(change.name.change).token());
            }
            return;
        }
        if round == Round::Restore && change.plan.replaced.is_some() {
            cx.mark("the place of a fenced table is kept as the change is undone");
        }
        match round {
            Round::Record => return self.begin_recording(cx),
            Round::Durability if cx.has_bug(InjectedBug::ChangeAnsweredTooEarly) => return,
            Round::Durability => return self.await_durability(cx),
            _ => {}
        }
        let Some(task) = change.task(round) else { return };
        let everybody = match round {
            Round::Switch | Round::Fence | Round::Publish | Round::Restore => BlockNumber::Coordinator,
            Round::Prepare
            | Round::Build
            | Round::Complete
            | Round::Remove
            | Round::Record
            | Round::Durability
            | Round::Events
            | Round::Forget
            | Round::Discard => BlockNumber::DataManager,
        };
        let everybody = cx.view().addresses(everybody);
        change.awaited = match round {
            Round::Restore | Round::Forget | Round::Discard => {
                everybody.filter(|block| change.touched.contains(block)).collect()
            }
            _ => everybody.collect(),
        };
        if matches!(round, Round::Switch | Round::Fence) {
            change.touched.extend(&change.awaited);
        }
        if matches!(round, Round::Forget | Round::Discard) && cx.has_bug(InjectedBug::UndoForgetsPrepared) {
            change.awaited.clear();
        }
        let body = SchemaRoundRequest { round: change.name, epoch: change.epoch, task };
        for &block in &change.awaited {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, block), &body);
        }
    }

    /// Goes from round to round, and from change to change, as long as nobody is awaited.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        while let Some(change) = &self.change
            && change.is_round_over()
            && !self.awaits_orphans(cx)
        {
            match change.round.next(change.refused.is_some(), change.is_kept) {
                Some(round) => {
                    if round == Round::Publish {
                        self.decide(cx);
                    }
                    self.enter_round(cx, round);
                }
                None => self.finish(cx),
            }
        }
    }

    /// Whether the present round has to wait for transactions of coordinators that have failed: a dead coordinator has
    /// answered when its take-over is done.
    fn awaits_orphans(&self, cx: &mut Context<'_>) -> bool {
        let waits_for_transactions = self.change.as_ref().is_some_and(|change| {
            matches!(change.round, Round::Switch | Round::Fence) && change.task(change.round).is_some()
        });
        if !waits_for_transactions || self.take_overs.is_empty() {
            return false;
        }
        cx.mark("schema change waits for transactions of a failed coordinator");
        !cx.has_bug(InjectedBug::SchemaForgetsOrphans)
    }

    /// All transactions of a coordinator that has failed have ended.
    pub(crate) fn on_take_over_done_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let newest = self.take_overs.on_done(frame)?;
        if let Some(change) = &mut self.change {
            change.newest = change.newest.max(newest);
            self.go_on(cx);
        }
        Some(())
    }

    /// From now on the change is carried out whatever happens.
    fn decide(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_mut().expect("a change is under way");
        if change.recording == Recording::None {
            self.epoch = change.take_epoch(self.epoch);
        }
        let plan = &mut change.plan;
        if let Some(api) = plan.fence {
            let table = plan.before.as_ref().expect("a table is fenced").table;
            self.fences.insert(table, api);
            return;
        }
        if plan.replaced.is_some() {
            cx.mark("a copy takes the place of a fenced table");
        }
        for record in plan.before.iter().chain(&plan.replaced) {
            self.tables.remove(&record.definition.name);
        }
        for gone in &plan.gone {
            self.fences.remove(&gone.table);
        }
        if let Some(after) = &plan.after {
            self.tables.insert(after.clone());
        }
        match plan.database.take() {
            Some(DatabaseStep::Put(database)) => self.databases.put(database),
            Some(DatabaseStep::Remove(name)) => self.databases.remove(&name),
            None => {}
        }
        for event in &plan.events {
            let (name, new_name, table, version) = (&event.name, &event.new_name, event.table, event.version);
            let what = match event.kind {
                SchemaEventKind::CreateTable => "created",
                SchemaEventKind::DropTable => "dropped",
                SchemaEventKind::RenameTable => "renamed",
                SchemaEventKind::TruncateTable => "truncated",
                SchemaEventKind::AlterTable => "altered",
                SchemaEventKind::CreateDatabase => "created",
                SchemaEventKind::AlterDatabase => "altered",
                SchemaEventKind::DropDatabase => "dropped",
            };
            match (table, new_name.as_str()) {
                (0, _) => cx.log(LogLevel::Info, format_args!("database '{name}' {what}")),
                (_, "") => {
                    cx.log(LogLevel::Info, format_args!("table {table} '{name}' {what}, version {version}"));
                }
                (_, new) if plan.replaced.is_some() => cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{name}' takes the place of '{new}', version {version}"),
                ),
                (_, new) => cx.log(
                    LogLevel::Info,
                    format_args!("table {table} '{name}' renamed to '{new}', version {version}"),
                ),
            }
        }
    }

    /// The change has come to its end: its requester is answered, the next one begins.
    fn finish(&mut self, cx: &mut Context<'_>) {
        let Change { requester, plan, refused, .. } = self.change.take().expect("a change is under way");
        let free = if refused.is_some() { &plan.made } else { &plan.gone };
        for &VersionedTable { table, .. } in free {
            self.tables.release_id(table);
        }
        match (requester, refused) {
            (Some(requester), Some(refused)) => self.refuse(cx, requester, refused),
            (Some(requester), None) => self.confirm(cx, requester, plan.after.or(plan.before)),
            (None, _) => {
                if let (Some(owner), Some(record)) = (plan.fence, &plan.before)
                    && self.fences.get(&record.table) == Some(&owner)
                {
                    self.lift_fence(cx, record.table);
                }
            }
        }
        while self.change.is_none()
            && let Some((requester, change)) = self.queue.pop_front()
        {
            self.begin_or_refuse(cx, requester, change);
        }
    }

    pub(crate) fn on_schema_round_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundConfirm { round, epoch } = cold::read(frame)?;
        if round.change == 0 {
            self.on_table_made(cx, frame.sender(), round.step);
        }
        if let Some(change) = &mut self.change
            && change.is_answer(frame, round)
        {
            change.newest = change.newest.max(epoch);
            if change.round == Round::Prepare {
                change.touched.insert(frame.sender());
            }
            self.go_on(cx);
        }
        Some(())
    }

    /// Somebody can't do its part. What was asked of the others is answered first, then they are ordered to undo it.
    pub(crate) fn on_schema_round_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundRefuse { round, code } = cold::read(frame)?;
        if round.change == 0 {
            self.on_table_refused(cx, frame.sender(), code);
        }
        if let Some(change) = &mut self.change
            && change.is_answer(frame, round)
        {
            assert!(change.round.is_before_decision(), "what is decided can't be refused");
            if change.refused.is_none() {
                let code = ErrorCode::from_number(code).unwrap_or(ErrorCode::InternalError);
                let detail = format!("{} refused it", frame.sender());
                change.refused = Some(Refused { code, detail });
            }
            self.go_on(cx);
        }
        Some(())
    }

    /// Asks the president for an end record of the change's epoch. That the epoch is durable is not enough: it may have
    /// been closed, and found durable without an end record, before the change was on disk.
    pub(crate) fn await_durability(&mut self, cx: &mut Context<'_>) {
        let change = self.change.as_mut().expect("a change is under way");
        let president = cx.view().president().expect("the own node is a member");
        let distribution = Address::new(president, BlockNumber::Distribution, 0);
        change.awaited.insert(distribution);
        cx.frame(SignalNumber::DurabilityRequest, distribution).put(&EpochBody::new(change.epoch));
    }

    /// The change is restored by any restart.
    pub(crate) fn on_durability_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochBody>()?;
        if let Some(change) = &mut self.change
            && change.round == Round::Durability
            && change.epoch == confirm.epoch()
            && change.awaited.remove(&frame.sender())
        {
            self.go_on(cx);
        }
        Some(())
    }

    /// Everybody may change rows of a table again. Nobody's answer is awaited: coordinators receive it before anything
    /// else that the dictionary sends from now on.
    pub(crate) fn lift_fence(&mut self, cx: &mut Context<'_>, table: u32) {
        self.fences.remove(&table);
        self.changes += 1;
        let body = SchemaRoundRequest {
            round: RoundName { change: self.changes, step: 1 },
            epoch: Epoch(0),
            task: RoundTask::Fence { table, api: 0 },
        };
        let coordinators: Vec<Address> = cx.view().addresses(BlockNumber::Coordinator).collect();
        for block in coordinators {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, block), &body);
        }
    }

    /// The write fences of an API node that has gone.
    pub(crate) fn lift_fences_of(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let own: Vec<u32> =
            self.fences.iter().filter(|(_, owner)| **owner == api).map(|(table, _)| *table).collect();
        if own.is_empty() || cx.has_bug(InjectedBug::FenceOutlivesOwner) {
            return;
        }
        cx.mark("fences of an API node are lifted because it has gone");
        for table in own {
            self.lift_fence(cx, table);
        }
    }
}
