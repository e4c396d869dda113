//! The president has primaries handed over, one at a time, until each data node of a node group has its share; and it
//! has those that are to stop, or that partitions move away from, left out of partitions, which takes the same: the
//! primary comes to rest, and the next view is another one for it.
//!
//! ```text
//!   clients are ─▶ schema changes ─▶ all threads are ─▶ the primary has ─▶ the next view ─▶ the next one
//!   connected      are held          in the view        come to rest       names another
//! ```
//! What the primary has promised holds in its view only. So this block forgets a hand-over with every view: if the next
//! one names no other primary, that one goes on by itself.

use crate::Restart;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId, PartitionId};
use vinga_kernel::{Context, Span};
use vinga_wire::agreement::WantedChange;
use vinga_wire::restart::{ClientsBody, HandOverBody};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// The pause behind an attempt of which nothing came, while somebody is to stop and waits for it.
const LEAVING_PAUSE: Span = Span::from_millis(1_000);

/// What a primary is to come to rest for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// Another replica is to be the primary.
    Move(PartitionId, NodeId),
    /// Those that are to go are to be left out of the partition.
    LeaveOut(PartitionId),
}

impl Rest {
    fn partition(self) -> PartitionId {
        match self {
            Rest::Move(partition, _) | Rest::LeaveOut(partition) => partition,
        }
    }

    fn change(self) -> WantedChange {
        match self {
            Rest::Move(partition, node) => WantedChange::MovePrimary(partition, node),
            Rest::LeaveOut(partition) => WantedChange::LeaveOut(partition),
        }
    }
}

/// What is to be done next of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextRest {
    None,
    /// A primary is to move, and membership has not answered whether all API nodes are connected to the next one.
    Awaited,
    Rest(Rest),
}

/// A primary that is asked to come to rest.
#[derive(Clone, Copy)]
struct HandOver {
    primary: Address,
    body: HandOverBody,
    rest: Rest,
}

/// What the president knows of hand-overs.
#[derive(Default)]
pub(crate) struct HandOvers {
    /// In the present view.
    under_way: Option<HandOver>,
    attempts: u32,
    /// How often nothing came of one since the view has changed: the next attempt is made with another partition, and
    /// later each time.
    failures: u32,
    /// The number of the timer that ends the pause behind a failure.
    pause: Option<u64>,
    /// Starts of data nodes to which all API nodes are connected, as they have said in this view.
    connected: BTreeSet<(NodeId, Incarnation)>,
    /// The one whose membership is asked in this view whether they are.
    asked: Option<(NodeId, Incarnation)>,
}

impl HandOvers {
    pub fn are_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// A view has begun: what was under way is over, with success or without, and what was in the way may be gone. API
    /// nodes may have come since it was asked whether all are connected.
    pub fn begin_view(&mut self) {
        *self = HandOvers { attempts: self.attempts, ..HandOvers::default() };
    }

    /// Which primary is to come to rest now, and what for: first they move away from those that are to stop.
    pub fn next(&self, view: &ClusterView) -> Option<Rest> {
        if self.pause.is_some() {
            return None;
        }
        let moves = view.hand_overs().into_iter().map(|(partition, node)| Rest::Move(partition, node));
        let mut choices: Vec<Rest> = moves.collect();
        let mut primaries = choices.iter().map(|one| view.partition(one.partition()).chain.primary());
        let moves_away = primaries.any(|primary| view.is_leaving(primary));
        if !moves_away {
            let left_out = view.leave_outs().into_iter().map(Rest::LeaveOut);
            // Primaries are balanced when nobody leaves.
            if view.leaving().next().is_some() {
                choices.clear();
            }
            choices.extend(left_out);
        }
        choices.get(self.failures as usize % choices.len().max(1)).copied()
    }

    /// A timer has run out; returns whether it was the pause's.
    pub fn end_pause(&mut self, number: u64) -> bool {
        self.pause.take_if(|pause| *pause == number).is_some()
    }
}

impl Restart {
    /// Which primary is to come to rest now, and what for. One is not handed over before all API nodes are connected to
    /// the next: what that answers goes by their connections to it.
    pub(crate) fn next_rest(&mut self, cx: &mut Context<'_>) -> NextRest {
        let view = cx.shared_view();
        let Some(next) = self.leader.hand_overs.next(&view) else { return NextRest::None };
        let Rest::Move(_, target) = next else { return NextRest::Rest(next) };
        let (node, incarnation) = view.member(target).expect("a replica is a member").identity();
        let hand_overs = &mut self.leader.hand_overs;
        if hand_overs.connected.contains(&(node, incarnation)) {
            return NextRest::Rest(next);
        }
        if hand_overs.asked.replace((node, incarnation)) != Some((node, incarnation)) {
            let membership = Address::new(node, BlockNumber::Membership, 0);
            let body = ClientsBody { incarnation };
            cold::write(&mut cx.frame(SignalNumber::ClientsRequest, membership), &body);
        }
        NextRest::Awaited
    }

    pub(crate) fn on_clients_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ClientsBody { incarnation } = cold::read(frame)?;
        self.leader.hand_overs.connected.insert((frame.sender().node(), incarnation));
        self.go_on(cx);
        Some(())
    }

    /// Asks a primary to come to rest, if all threads are in the present view: then none is ever many views behind,
    /// however many primaries move.
    pub(crate) fn hand_over(&mut self, cx: &mut Context<'_>, rest: Rest) {
        let view = cx.view().number();
        if !self.threads.have_been_asked(view) {
            return self.ask_threads(cx);
        }
        if !self.threads.have_adopted(view) {
            return;
        }
        let primary = cx.view().partition(rest.partition()).primary();
        let hand_overs = &mut self.leader.hand_overs;
        hand_overs.attempts += 1;
        let body = HandOverBody { view, attempt: hand_overs.attempts };
        hand_overs.under_way = Some(HandOver { primary, body, rest });
        cold::write(&mut cx.frame(SignalNumber::HandOverRequest, primary), &body);
    }

    pub(crate) fn on_hand_over_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        if let Some(HandOver { rest, .. }) = self.leader.hand_overs.under_way.filter(|it| it.body == body) {
            self.ask_for(cx, rest.change());
        }
        Some(())
    }

    pub(crate) fn on_hand_over_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        if self.leader.hand_overs.under_way.take_if(|it| it.body == body).is_some() {
            self.pause_hand_overs(cx);
            self.go_on(cx);
        }
        Some(())
    }

    /// The view does not change: a primary that has come to rest for that goes on.
    pub(crate) fn give_up_hand_over(&mut self, cx: &mut Context<'_>) {
        if let Some(HandOver { primary, body, .. }) = self.leader.hand_overs.under_way.take() {
            cx.mark("primary is not handed over as the view does not change");
            cold::write(&mut cx.frame(SignalNumber::HandOverReleaseOrder, primary), &body);
            self.pause_hand_overs(cx);
        }
    }

    /// Nothing has come of a hand-over: the next attempt is made after a pause, which is doubled each time. Schema
    /// changes, and others that join, do not wait for it.
    fn pause_hand_overs(&mut self, cx: &mut Context<'_>) {
        let leaves = cx.view().leaving().next().is_some();
        let usual = self.settings.pause_after(self.leader.hand_overs.failures);
        let pause = if leaves { usual.min(LEAVING_PAUSE) } else { usual };
        let number = self.begin_timer(cx, pause);
        let hand_overs = &mut self.leader.hand_overs;
        hand_overs.failures += 1;
        hand_overs.pause = Some(number);
        if !cx.view().has_begun_to_leave() {
            self.release_schema(cx);
        }
    }
}
