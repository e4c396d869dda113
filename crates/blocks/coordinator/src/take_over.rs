//! Take-over: this coordinator ends the transactions of coordinators that have failed.
//!
//! When a view says that it acts for a coordinator, it asks every data manager what it has of that one's transactions
//! (`docs/protocols/take-over.md`). When all have said everything, it decides: a transaction that anybody has committed
//! is committed everywhere, in the epoch that it was given; any other is rolled back. Nothing that was reported can
//! change in between, because data managers obey nobody else (freeze rule). If this node fails, too, its successor
//! begins again and decides the same: what was reported has only moved in the direction that was decided.
//!
//! ```text
//!   Gathering ──────────────▶ Ending ─────────────────────▶ Done
//!     all data managers        every transaction has ended
//!     have reported            at every replica group
//! ```
//!
//! Outcomes are kept until their API node *releases* the dead coordinator: it does so when it has nothing (more) to
//! ask. Until the take-over is done, questions wait. Both may arrive before this thread has adopted the view from which
//! they follow.

use crate::clients::send_outcome;
use crate::copied_markers::CopiedMarkers;
use crate::participants::{Orders, Undo};
use crate::shares::Shares;
use crate::{Coordinator, LazyOrders};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use vinga_base::{Epoch, NodeId, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{Actor, Chain};
use vinga_wire::take_over::{
    CoordinatorBody, CoordinatorName, InheritedOutcomeRequest, OutcomesReleasedOrder, TRACE_HOLDS,
    TRACE_READ_AT_BACKUPS, TakeOverDoneReport, TakeOverReport, TransactionTrace,
};
use vinga_wire::transaction::Outcome;
use vinga_wire::view::{ClusterView, ReplicaGroup, Succession, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U32, U64};

/// Questions of one API node that may wait at one coordinator in any case.
const QUESTIONS_EACH: usize = 1 << 12;

/// Questions of API nodes that may wait at one coordinator before each has to do with its share.
const QUESTIONS_TOGETHER: usize = 1 << 16;

/// Coordinators that one API node may have released before their take-over is done: far more than fail at once.
const RELEASED_EACH: usize = 1 << 10;

/// What this coordinator does, or has done, in the place of others.
pub struct TakeOvers {
    list: Vec<TakeOver>,
    /// By the node that asks.
    questions: Shares<Question>,
    /// By the owner of an API node's transactions: what it has released of coordinators whose take-over is not done.
    released: Shares<CoordinatorName>,
}

/// One coordinator that has failed.
struct TakeOver {
    coordinator: CoordinatorName,
    state: State,
    transactions: BTreeMap<TransactionId, Inherited>,
    /// The newest epoch of those that are committed.
    newest: Epoch,
    /// Committed transactions whose API node has not released the coordinator.
    outcomes: BTreeMap<TransactionId, Kept>,
    /// Markers that copies have brought to data managers while it was not known which transactions there are.
    copied: Vec<CopiedMarkers>,
}

enum State {
    /// These data managers have not reported everything.
    Gathering(BTreeSet<Address>),
    /// Transactions are being ended.
    Ending,
    Done,
}

/// A transaction that has not ended everywhere.
#[derive(Default)]
struct Inherited {
    /// It is to be committed in this epoch; 0: to be rolled back.
    epoch: Epoch,
    /// The operation that leaves the marker, and where, if anybody knows it.
    marker: Option<(u32, ReplicaGroup)>,
    /// The operation that leaves the marker if nobody does: any that changes something will do.
    first_change: Option<(u32, ReplicaGroup)>,
    /// Where it has operations, and whether it has ended there.
    groups: Vec<(ReplicaGroup, bool)>,
    /// Whether it changes a table whose backups answer reads: if it is committed, it has ended when all replicas show
    /// its changes.
    is_read_at_backups: bool,
    /// Data managers that were asked to complete it and have not confirmed that.
    completing: BTreeSet<Address>,
}

/// The outcome of a committed transaction.
struct Kept {
    epoch: Epoch,
    marker: ReplicaGroup,
}

/// Somebody wants to know an outcome.
struct Question {
    requester: Address,
    request: u32,
    id: TransactionId,
    coordinator: CoordinatorName,
}

impl TakeOvers {
    /// Of a coordinator that has taken nothing over.
    pub fn new() -> Self {
        TakeOvers {
            list: Vec::new(),
            questions: Shares::new(QUESTIONS_EACH, QUESTIONS_TOGETHER),
            released: Shares::new(RELEASED_EACH, 0),
        }
    }

    fn find(&mut self, coordinator: CoordinatorName) -> Option<&mut TakeOver> {
        self.list.iter_mut().find(|one| one.coordinator == coordinator)
    }

    /// Whether nothing is under way and nobody waits.
    pub fn is_at_rest(&self) -> bool {
        self.questions.is_empty() && self.list.iter().all(|one| matches!(one.state, State::Done))
    }

    /// Outcomes of coordinators that have not been released.
    pub fn unreleased(&self) -> usize {
        self.list.iter().map(|one| one.outcomes.len()).sum()
    }

    /// Panics if what is known contradicts itself.
    pub fn check(&self) {
        for one in &self.list {
            match &one.state {
                State::Gathering(awaited) => {
                    assert!(
                        !awaited.is_empty() && one.outcomes.is_empty(),
                        "it decides with the last report"
                    );
                }
                State::Ending => assert!(!one.transactions.is_empty(), "it is done with the last one"),
                State::Done => assert!(one.transactions.is_empty(), "nothing is under way when it is done"),
            }
        }
    }
}

impl TakeOver {
    /// Takes a report over.
    fn note(&mut self, trace: &TransactionTrace, owner: ReplicaGroup) {
        let inherited = self.transactions.entry(TransactionId(trace.transaction.get())).or_default();
        inherited.epoch = inherited.epoch.max(Epoch(trace.epoch.get()));
        let marker = (trace.marker.get(), owner);
        if marker.0 != 0 {
            inherited.marker = Some(marker);
        }
        let first = (trace.first_change.get(), owner);
        if first.0 != 0 && inherited.first_change.is_none_or(|known| first.0 < known.0) {
            inherited.first_change = Some(first);
        }
        inherited.is_read_at_backups |= trace.flags.get() & TRACE_READ_AT_BACKUPS != 0;
        let is_known = inherited.groups.iter().any(|(group, _)| *group == owner);
        if trace.flags.get() & TRACE_HOLDS != 0 && !is_known {
            inherited.groups.push((owner, false));
        }
    }
}

impl Inherited {
    fn is_over(&self) -> bool {
        self.groups.iter().all(|(_, has_ended)| *has_ended)
    }
}

/// Nobody asks for a committed transaction of this API node any more: its markers go.
fn release(lazy_orders: &mut LazyOrders, view: &ClusterView, one: &mut TakeOver, owner: u32) {
    one.outcomes.retain(|id, kept| {
        let is_released = id.owner() == owner;
        if is_released {
            lazy_orders.drop_marker(kept.marker, view.owned_by(kept.marker).replicas(), *id);
        }
        !is_released
    });
}

impl Coordinator {
    /// On whose behalf signals about an inherited transaction act.
    fn inherited_orders(
        cx: &Context<'_>,
        coordinator: CoordinatorName,
        transaction: TransactionId,
    ) -> Orders {
        let CoordinatorBody { coordinator, incarnation } = coordinator.into();
        let (acting, record) = (U32::new(cx.own().0), U32::new(u32::MAX));
        Orders { transaction, actor: Actor { coordinator, incarnation, acting, record } }
    }

    /// The view has changed: begins take-overs that fall to this coordinator, goes on with those under way.
    pub(crate) fn take_over_in(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let own = cx.own();
        let inherited = change.new.successions().iter().flat_map(Succession::coordinators);
        for (coordinator, acting) in inherited.collect::<Vec<_>>() {
            if acting == own && self.take_overs.find(coordinator).is_none() {
                self.begin_take_over(cx, coordinator);
            }
        }
        for at in 0..self.take_overs.list.len() {
            let one = &mut self.take_overs.list[at];
            one.copied.retain(|copied| !change.has_lost(copied.data_manager.node()));
            match &mut one.state {
                State::Gathering(awaited) => {
                    let before = awaited.len();
                    awaited.retain(|data_manager| !change.has_lost(data_manager.node()));
                    if awaited.len() < before {
                        cx.mark("take-over goes on without the report of a failed data manager");
                    }
                    if awaited.is_empty() {
                        self.end_inherited(cx, at);
                    }
                }
                State::Ending => self.end_without(cx, at, change),
                State::Done => {}
            }
        }
        self.answer_questions(cx);
    }

    fn begin_take_over(&mut self, cx: &mut Context<'_>, coordinator: CoordinatorName) {
        let data_managers: BTreeSet<Address> = cx.view().addresses(BlockNumber::DataManager).collect();
        for &data_manager in &data_managers {
            cx.frame(SignalNumber::TakeOverOrder, data_manager).put(&CoordinatorBody::from(coordinator));
        }
        self.take_overs.list.push(TakeOver {
            coordinator,
            state: State::Gathering(data_managers),
            transactions: BTreeMap::new(),
            newest: Epoch(0),
            outcomes: BTreeMap::new(),
            copied: Vec::new(),
        });
    }

    pub(crate) fn on_take_over_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (report, rest) = frame.head::<TakeOverReport>()?;
        let traces = TransactionTrace::list(rest, report.count.get())?;
        let name = report.coordinator.name();
        let at = self.take_overs.list.iter().position(|one| one.coordinator == name)?;
        let one = &mut self.take_overs.list[at];
        let State::Gathering(awaited) = &mut one.state else { return Some(()) };
        if report.is_last.get() != 0 {
            awaited.remove(&frame.sender());
        } else {
            cx.mark("data manager reports to a successor in several signals");
        }
        let is_over = awaited.is_empty() || cx.has_bug(InjectedBug::TakeOverDecidesEarly);
        for trace in traces {
            one.note(trace, report.owner);
        }
        if is_over {
            self.end_inherited(cx, at);
        }
        Some(())
    }

    /// Everything is known: decides about each transaction, and has it ended.
    fn end_inherited(&mut self, cx: &mut Context<'_>, at: usize) {
        let one = &mut self.take_overs.list[at];
        one.state = State::Ending;
        let (name, copied) = (one.coordinator, mem::take(&mut one.copied));
        for copied in copied {
            self.answer_about_inherited(cx, name, copied);
        }
        let one = &mut self.take_overs.list[at];
        for (&id, inherited) in &mut one.transactions {
            if cx.has_bug(InjectedBug::TakeOverIgnoresCommits) && !inherited.groups.is_empty() {
                inherited.epoch = Epoch(0);
            }
            if inherited.epoch == Epoch(0) {
                cx.mark("successor rolls a transaction back");
            } else if inherited.groups.is_empty() {
                cx.mark("successor finds only the marker of a transaction");
            } else {
                cx.mark("successor commits a transaction");
                if inherited.marker.is_none() {
                    cx.mark("successor chooses where the marker is left");
                    inherited.marker = inherited.first_change;
                }
            }
            one.newest = one.newest.max(inherited.epoch);
            let orders = Self::inherited_orders(cx, one.coordinator, id);
            for &(group, _) in &inherited.groups {
                order_end(cx, orders, inherited, group);
            }
        }
        let newest = one.newest;
        self.use_epoch(cx, newest);
        let over: Vec<TransactionId> = self.take_overs.list[at]
            .transactions
            .iter()
            .filter(|(_, inherited)| inherited.is_over())
            .map(|(&id, _)| id)
            .collect();
        for id in over {
            self.forget_inherited(cx, at, id);
        }
        self.finish_take_over_if_done(cx, at);
    }

    /// A copy has brought a data manager these markers of a coordinator that has failed: drops those of which nobody
    /// has reported anything, or whose outcome was released. That is known when all have reported.
    pub(crate) fn answer_about_inherited(
        &mut self,
        cx: &mut Context<'_>,
        coordinator: CoordinatorName,
        mut copied: CopiedMarkers,
    ) {
        if let Some(one) = self.take_overs.find(coordinator) {
            if matches!(one.state, State::Gathering(_)) {
                cx.mark("copied markers wait for a take-over");
                one.copied.push(copied);
                return;
            }
            copied.ids.retain(|id| !one.transactions.contains_key(id) && !one.outcomes.contains_key(id));
        }
        self.drop_copied(cx, copied);
    }

    /// Goes on without what is lost: repeats orders, and awaits no confirmation from there.
    fn end_without(&mut self, cx: &mut Context<'_>, at: usize, change: &ViewChange) {
        self.order_again(cx, at, change);
        let mut over = Vec::new();
        for (&id, inherited) in &mut self.take_overs.list[at].transactions {
            let before = inherited.completing.len();
            inherited.completing.retain(|one| !has_left(change, *one));
            if before > 0 && inherited.completing.is_empty() {
                over.push(id);
            }
        }
        for id in over {
            self.forget_inherited(cx, at, id);
        }
        self.finish_take_over_if_done(cx, at);
    }

    /// Repeats orders to replica groups that have lost a member.
    fn order_again(&mut self, cx: &mut Context<'_>, at: usize, change: &ViewChange) {
        let one = &self.take_overs.list[at];
        for (&id, inherited) in &one.transactions {
            let orders = Self::inherited_orders(cx, one.coordinator, id);
            for &(group, has_ended) in &inherited.groups {
                let had_lost =
                    change.old.owned_by(group).replicas().nodes().any(|node| change.has_left(group, node));
                if had_lost && !has_ended {
                    cx.mark("successor repeats its order without a failed replica");
                    order_end(cx, orders, inherited, group);
                }
            }
        }
    }

    /// A replica group has committed or rolled back its part of an inherited transaction.
    pub(crate) fn inherited_ended(
        &mut self,
        cx: &mut Context<'_>,
        coordinator: CoordinatorName,
        id: TransactionId,
        owner: ReplicaGroup,
    ) {
        let list = &mut self.take_overs.list;
        let Some(at) = list.iter().position(|one| one.coordinator == coordinator) else { return };
        let Some(inherited) = list[at].transactions.get_mut(&id) else { return };
        if let Some((_, has_ended)) = inherited.groups.iter_mut().find(|(group, _)| *group == owner) {
            *has_ended = true;
        }
        if inherited.is_over() && inherited.completing.is_empty() {
            self.complete_inherited(cx, at, id);
            self.finish_take_over_if_done(cx, at);
        }
    }

    /// An inherited transaction has ended at all replica groups. If it is committed, and backups answer reads of what
    /// it has changed, all replicas have to show that before it is forgotten.
    fn complete_inherited(&mut self, cx: &mut Context<'_>, at: usize, id: TransactionId) {
        let one = &mut self.take_overs.list[at];
        let orders = Self::inherited_orders(cx, one.coordinator, id);
        let inherited = one.transactions.get_mut(&id).expect("the caller has found it");
        if inherited.epoch != Epoch(0)
            && inherited.is_read_at_backups
            && !cx.has_bug(InjectedBug::TakeOverAnswersBeforeComplete)
            && !cx.has_bug(InjectedBug::TakeOverLeavesRecords)
        {
            cx.mark("successor has a transaction completed before it answers");
            for &(group, _) in &inherited.groups {
                for node in cx.view().owned_by(group).replicas().nodes() {
                    inherited.completing.insert(group.at(node));
                    orders.complete_at(cx, group, node);
                }
            }
            return;
        }
        self.forget_inherited(cx, at, id);
    }

    /// A data manager shows the changes of an inherited transaction, and has dropped its records.
    pub(crate) fn inherited_completed(
        &mut self,
        cx: &mut Context<'_>,
        coordinator: CoordinatorName,
        id: TransactionId,
        data_manager: Address,
    ) {
        let list = &mut self.take_overs.list;
        let Some(at) = list.iter().position(|one| one.coordinator == coordinator) else { return };
        let Some(inherited) = list[at].transactions.get_mut(&id) else { return };
        if inherited.completing.remove(&data_manager) && inherited.completing.is_empty() {
            self.forget_inherited(cx, at, id);
            self.finish_take_over_if_done(cx, at);
        }
    }

    /// An inherited transaction has ended everywhere. If it is committed its records are dropped, and its outcome is
    /// kept if anybody may ask for it.
    fn forget_inherited(&mut self, cx: &mut Context<'_>, at: usize, id: TransactionId) {
        let one = &mut self.take_overs.list[at];
        let inherited = one.transactions.remove(&id).expect("the caller has found it");
        if inherited.epoch == Epoch(0) {
            return;
        }
        let is_complete =
            inherited.is_read_at_backups && !cx.has_bug(InjectedBug::TakeOverAnswersBeforeComplete);
        if !is_complete && !cx.has_bug(InjectedBug::TakeOverLeavesRecords) {
            for (group, _) in inherited.groups {
                self.lazy_orders.complete(group, cx.view().owned_by(group).replicas(), id);
            }
        }
        // Who has only read has left nothing to be committed.
        let Some((_, marker)) = inherited.marker else { return };
        one.outcomes.insert(id, Kept { epoch: inherited.epoch, marker });
    }

    fn finish_take_over_if_done(&mut self, cx: &mut Context<'_>, at: usize) {
        let one = &mut self.take_overs.list[at];
        if !one.transactions.is_empty() {
            return;
        }
        one.state = State::Done;
        cx.mark("take-over of a coordinator is done");
        let (coordinator, newest) = (one.coordinator, one.newest);
        let owners: BTreeSet<u32> = one.outcomes.keys().map(|id| id.owner()).collect();
        for owner in owners {
            let is_released = self.take_overs.released.of(owner).contains(&coordinator);
            // Nobody will ask if the API node has failed, or has said so.
            if is_released || self.clients.get_mut(owner).is_none() {
                release(&mut self.lazy_orders, cx.view(), &mut self.take_overs.list[at], owner);
            }
        }
        self.take_overs.released.take(|released| *released == coordinator);
        let view = cx.view();
        let blocks = [BlockNumber::Distribution, BlockNumber::Dictionary];
        let everybody: Vec<Address> = blocks.into_iter().flat_map(|block| view.addresses(block)).collect();
        for block in everybody {
            let report = TakeOverDoneReport { coordinator: coordinator.into(), epoch: U64::new(newest.0) };
            cx.frame(SignalNumber::TakeOverDoneReport, block).put(&report);
        }
        self.answer_questions(cx);
    }

    /// An API node wants to know what has become of a transaction of a coordinator that has failed.
    pub(crate) fn on_inherited_outcome_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (question, _) = frame.head::<InheritedOutcomeRequest>()?;
        let id = TransactionId(question.transaction.get());
        if !self.is_owner(cx, frame, id) {
            return Some(());
        }
        let requester = frame.sender();
        let (request, coordinator) = (question.request.get(), question.coordinator.name());
        let question = Question { requester, request, id, coordinator };
        if knows(cx, &self.take_overs.list, coordinator) {
            self.answer(cx, &question);
        } else if self.take_overs.questions.push(requester.node().0.into(), question).is_ok() {
            cx.mark("question about a dead coordinator waits");
        } else {
            cx.reject(frame, ErrorCode::Overloaded);
        }
        Some(())
    }

    /// Answers questions about coordinators whose take-over is done.
    fn answer_questions(&mut self, cx: &mut Context<'_>) {
        let TakeOvers { list, questions, .. } = &mut self.take_overs;
        for question in questions.take(|question| knows(cx, list, question.coordinator)) {
            self.answer(cx, &question);
        }
    }

    /// Answers a question about a coordinator whose take-over is done.
    fn answer(&mut self, cx: &mut Context<'_>, question: &Question) {
        let &Question { requester, request, id, coordinator } = question;
        let one = self.take_overs.find(coordinator).expect("it answers for this coordinator");
        let (outcome, epoch) = match one.outcomes.get(&id) {
            Some(kept) => (Outcome::Committed, kept.epoch),
            None => (Outcome::NotFound, Epoch(0)),
        };
        cx.mark("successor answers for a dead coordinator");
        send_outcome(cx, requester, request, id, outcome, epoch, 0);
    }

    /// An API node has nothing to ask of a dead coordinator.
    pub(crate) fn on_outcomes_released_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (order, _) = frame.head::<OutcomesReleasedOrder>()?;
        let (any, name) = (TransactionId(order.owner.get()), order.coordinator.name());
        if !self.is_owner(cx, frame, any) {
            return Some(());
        }
        let owner = any.owner();
        if let Some(one) = self.take_overs.find(name)
            && matches!(one.state, State::Done)
        {
            release(&mut self.lazy_orders, cx.view(), one, owner);
            return Some(());
        }
        let released = &mut self.take_overs.released;
        if released.of(owner).contains(&name) {
            return Some(());
        }
        if released.push(owner, name).is_ok() {
            cx.mark("dead coordinator is released before its take-over is done");
        } else {
            cx.reject(frame, ErrorCode::Overloaded);
        }
        Some(())
    }

    /// An API node's connections are closed: nobody waits for its answers. It will ask again if it comes back.
    pub(crate) fn forget_questions(&mut self, api: NodeId) {
        self.take_overs.questions.remove(api.0.into());
    }

    /// An API node has failed: nobody will ask for its outcomes.
    pub(crate) fn forget_inherited_of(&mut self, cx: &Context<'_>, owner: u32) {
        for one in &mut self.take_overs.list {
            release(&mut self.lazy_orders, cx.view(), one, owner);
        }
        self.take_overs.released.remove(owner);
    }
}

/// Whether a data manager is no replica of its partition any more.
fn has_left(change: &ViewChange, data_manager: Address) -> bool {
    let held = change.old.held_at(data_manager);
    held.is_none_or(|partition| change.has_left(partition.owner, data_manager.node()))
}

/// Whether it is known what has become of the transactions of a dead coordinator.
fn knows(cx: &Context<'_>, list: &[TakeOver], coordinator: CoordinatorName) -> bool {
    let is_early = cx.has_bug(InjectedBug::TakeOverAnswersEarly);
    list.iter().any(|one| one.coordinator == coordinator && (matches!(one.state, State::Done) || is_early))
}

/// Has a replica group commit its part of an inherited transaction, the primary last, or roll it back, the primary
/// first.
fn order_end(cx: &mut Context<'_>, orders: Orders, inherited: &Inherited, group: ReplicaGroup) {
    let replicas = cx.view().owned_by(group).replicas();
    if inherited.epoch == Epoch(0) {
        return orders.undo_at(cx, group, replicas, Undo::Everything);
    }
    let marker = inherited.marker.filter(|&(_, owner)| owner == group).map_or(0, |(number, _)| number);
    if cx.has_bug(InjectedBug::TakeOverCommitsForwards) {
        for node in replicas.nodes() {
            orders.commit_at(cx, group, Chain::new(&[node]), inherited.epoch, marker);
        }
        return;
    }
    orders.commit_at(cx, group, replicas, inherited.epoch, marker);
}
