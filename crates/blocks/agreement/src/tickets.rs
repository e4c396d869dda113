//! The ticket that counts in a view, and how it changes when another arbitrator is chosen.
//!
//! The president looks for the arbitrator in each heartbeat interval. If nobody holds the ticket of the view any more,
//! it has a management node take another one, and replaces the ticket, while the view is whole:
//!
//! ```text
//!             nobody holds the ticket      one has taken the next       all others have agreed
//!   Checking ────────────────────────▶ Choosing ─────────────▶ Preparing ─────────────────────▶ the next ticket counts
//!      ▲  │ one does                       │ nobody has            │ one refuses, somebody is given up, it takes long
//!      └──┴────────────────────────────────┘                       ▼
//!                                                        the ticket before counts
//! ```
//! Two arbitrators may hold tickets at that time. So a member that has agreed to the next one does not show the one
//! before any more, and none shows the next one before the president has all answers. Which ticket members show is
//! found in a round about failed members ([`resolve`]): what one of them knows helps the others. A member that has
//! given up another one agrees to no change in this view.
//!
//! The protocol is described in `docs/protocols/arbitrators.md`.

use crate::{Agreement, SILENT_INTERVALS};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{NodeId, ViewNumber};
use vinga_kernel::{Context, InjectedBug, LogLevel, Tick};
use vinga_wire::agreement::{TicketAnswer, TicketBody, TicketState};
use vinga_wire::arbitration::{
    ArbitratorCheckConfirm, ArbitratorCheckRequest, ArbitratorChooseConfirm, ArbitratorChooseRequest,
    NoArbitrator,
};
use vinga_wire::view::{ClusterView, NO_TICKET};
use vinga_wire::{Frame, SignalNumber, cold};

/// How it is called that nobody takes the next ticket.
const NONE_LEFT: &str = "none left";

/// Reasons that are logged until there is an arbitrator again.
const REASONS_LOGGED_MAX: usize = 16;

/// What this node knows of the ticket of its newest view.
#[derive(Default)]
pub(crate) struct Tickets {
    state: TicketState,
    /// At the president: what it does about the arbitrator.
    stage: Stage,
    /// What is known of the arbitrator.
    standing: Standing,
    /// Why nobody has taken the next ticket, in their order, as far as that was logged since there was an arbitrator.
    reasons: Vec<String>,
    /// The newest of them, whether it was logged or not.
    reason: String,
    /// Questions that the driver was asked, to tell their answers apart.
    requests: u32,
}

/// What the president does about the arbitrator.
#[derive(Default)]
enum Stage {
    /// Nothing.
    #[default]
    Idle,
    /// It asks who holds the ticket that counts.
    Checking,
    /// It has a management node take the next ticket.
    Choosing,
    /// Members agree to the next ticket, which an arbitrator holds.
    Preparing(Preparation),
}

/// Members agree to the next ticket.
struct Preparation {
    ticket: u64,
    arbitrator: NodeId,
    /// Those that have not agreed yet.
    awaited: BTreeSet<NodeId>,
    begun: Tick,
}

/// What the president has found about the arbitrator.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    /// Not looked at yet.
    #[default]
    Unknown,
    /// It holds the ticket.
    Present(NodeId),
    /// There was one, or none from the beginning; another one is looked for.
    Lost,
    /// Nobody took another ticket.
    NoneLeft,
}

/// What the data node that leads has found of the arbitrator, for information tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArbitratorFound<'a> {
    /// The management node that held the ticket when it was asked last; `None` if nobody did.
    pub arbitrator: Option<NodeId>,
    /// In a few words.
    pub state: &'static str,
    /// The view that the ticket belongs to.
    pub view: ViewNumber,
    /// How often another ticket was to be agreed in this view.
    pub changes: u32,
    /// Why nobody has taken another one, if that is so; else empty.
    pub why: &'a str,
}

/// Which tickets members may go on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// The one that they may show; `NO_TICKET` if there is none, or if others may show another one.
    pub(crate) shown: u64,
    /// The one of their next view if they need not ask: an arbitrator may hold it.
    pub(crate) kept: u64,
}

/// Which ticket a set of members may show, all of which have given up all others.
///
/// Nobody shows a ticket before all members of the view have agreed to it. So one that has not agreed to any after the
/// newest that counts proves that none of those counts, or ever will: it has given up others, and agrees no more. If
/// all have agreed to a later one, others may know that it counts, or that it does not.
pub(crate) fn resolve(states: &[TicketState]) -> Resolved {
    let change = states.iter().map(|state| state.change).max().unwrap_or_default();
    let newest = || states.iter().filter(|state| state.change == change);
    let ticket = newest().next().map_or(NO_TICKET, |state| state.ticket);
    if newest().any(|state| state.prepared.is_none()) {
        return Resolved { shown: ticket, kept: ticket };
    }
    let prepared = states.iter().filter_map(|state| state.prepared).max();
    Resolved { shown: NO_TICKET, kept: prepared.map_or(NO_TICKET, |(_, ticket)| ticket) }
}

impl Tickets {
    /// The ticket of a view that begins.
    pub(crate) fn of(view: &ClusterView, before: &Self) -> Self {
        Tickets {
            state: TicketState { change: 0, ticket: view.ticket(), prepared: None },
            stage: Stage::Idle,
            standing: before.standing,
            reasons: before.reasons.clone(),
            reason: before.reason.clone(),
            requests: before.requests,
        }
    }

    pub(crate) fn state(&self) -> TicketState {
        self.state
    }

    /// Whether another ticket is about to count.
    pub(crate) fn is_changing(&self) -> bool {
        matches!(self.stage, Stage::Choosing | Stage::Preparing(_))
    }

    /// Changes of the ticket, up to the newest one that counts.
    pub(crate) fn change(&self) -> u32 {
        self.state.change
    }

    fn next_request(&mut self, stage: Stage) -> u32 {
        self.requests += 1;
        self.stage = stage;
        self.requests
    }

    fn set_present(&mut self, arbitrator: NodeId) {
        self.standing = Standing::Present(arbitrator);
        self.reasons.clear();
        self.reason.clear();
    }

    /// Nobody has taken the next ticket; returns whether that is to be logged. What is tried again in each interval
    /// fails for the same few reasons.
    fn set_none_left(&mut self, reason: String) -> bool {
        self.standing = Standing::NoneLeft;
        let is_new = !self.reasons.contains(&reason) && self.reasons.len() < REASONS_LOGGED_MAX;
        if is_new {
            self.reasons.push(reason.clone());
        }
        self.reason = reason;
        is_new
    }

    pub(crate) fn check_invariants(&self) {
        let TicketState { change, prepared, .. } = self.state;
        assert!(prepared.is_none_or(|(later, _)| later > change), "what counts is not prepared");
    }
}

impl Agreement {
    /// The ticket that counts, as far as this node knows; `None` if there is none.
    pub fn ticket(&self) -> Option<u64> {
        Some(self.tickets.state.ticket).filter(|&ticket| ticket != NO_TICKET)
    }

    /// What this node has found of the arbitrator, if it leads, and if arbitrators are configured.
    pub fn arbitrator_found(&self) -> Option<ArbitratorFound<'_>> {
        let leads = self.view.president() == Some(self.settings.node);
        if !leads || !self.settings.has_arbitrators {
            return None;
        }
        let is_alone = self.view.members().len() == 1;
        let (arbitrator, state) = match (self.tickets.standing, &self.tickets.stage) {
            (_, _) if is_alone => (None, "alone"),
            (Standing::Present(node), _) => (Some(node), "holds the ticket"),
            (_, Stage::Preparing(preparation)) => (Some(preparation.arbitrator), "is being agreed"),
            (Standing::Unknown, _) => (None, "not asked yet"),
            (Standing::Lost, _) => (None, "lost"),
            (Standing::NoneLeft, _) => (None, NONE_LEFT),
        };
        let why = if state == NONE_LEFT { self.tickets.reason.as_str() } else { "" };
        let (view, changes) = (self.view.number(), self.tickets.change());
        Some(ArbitratorFound { arbitrator, state, view, changes, why })
    }

    /// Whether all members of the view reach this node, and nobody is to be left out: as far as is known here.
    pub(crate) fn is_whole(&self, cx: &Context<'_>) -> bool {
        self.round.is_none()
            && self.choice.is_none()
            && self.peers.given_up().next().is_none()
            && self.peers.unreached(cx.now(), self.intervals(SILENT_INTERVALS)).is_empty()
    }

    /// Once in an interval: the president looks for the arbitrator.
    pub(crate) fn look_for_arbitrator(&mut self, cx: &mut Context<'_>) {
        if let Stage::Preparing(preparation) = &self.tickets.stage
            && cx.now().since(preparation.begun) >= self.intervals(SILENT_INTERVALS)
        {
            return self.give_up_change(cx, "data nodes have not agreed in time");
        }
        let is_idle = matches!(self.tickets.stage, Stage::Idle) && !self.is_stopping;
        let is_president = self.view.president() == Some(self.settings.node) && self.view.members().len() > 1;
        let may_look = self.settings.has_arbitrators && is_president && is_idle && !self.is_growing();
        if !may_look || !self.is_whole(cx) {
            return;
        }
        let ticket = self.tickets.state.ticket;
        if ticket == NO_TICKET {
            return self.choose_arbitrator(cx);
        }
        let request = self.tickets.next_request(Stage::Checking);
        let driver = cx.driver();
        let body = ArbitratorCheckRequest { request, ticket };
        cold::write(&mut cx.frame(SignalNumber::ArbitratorCheckRequest, driver), &body);
    }

    pub(crate) fn on_arbitrator_check_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let ArbitratorCheckConfirm { request, arbitrator } = cold::read(frame)?;
        if matches!(self.tickets.stage, Stage::Checking) && self.tickets.requests == request {
            self.tickets.stage = Stage::Idle;
            if matches!(self.tickets.standing, Standing::Lost | Standing::NoneLeft) {
                cx.mark("arbitrator was lost for a while");
                cx.log(
                    LogLevel::Info,
                    format_args!("the arbitrator, management node {arbitrator}, answers again"),
                );
            }
            self.tickets.set_present(arbitrator);
        }
        Some(())
    }

    pub(crate) fn on_arbitrator_check_refuse(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let NoArbitrator { request, reason } = cold::read(frame)?;
        if matches!(self.tickets.stage, Stage::Checking) && self.tickets.requests == request {
            self.tickets.stage = Stage::Idle;
            if !matches!(self.tickets.standing, Standing::Lost | Standing::NoneLeft) {
                cx.mark("arbitrator was lost");
                let which = match self.tickets.standing {
                    Standing::Present(node) => alloc::format!(", management node {node},"),
                    Standing::Unknown | Standing::Lost | Standing::NoneLeft => String::new(),
                };
                cx.log(LogLevel::Warning, format_args!("the arbitrator{which} is lost: {reason}"));
                self.tickets.standing = Standing::Lost;
            }
            self.choose_arbitrator(cx);
        }
        Some(())
    }

    /// Has a management node take the next ticket, if the view is whole and does not change.
    fn choose_arbitrator(&mut self, cx: &mut Context<'_>) {
        if !self.is_whole(cx) || self.is_growing() {
            return;
        }
        let request = self.tickets.next_request(Stage::Choosing);
        let driver = cx.driver();
        let body = ArbitratorChooseRequest {
            request,
            view: self.view.number(),
            before: self.tickets.state.ticket,
            members: self.view.members().iter().map(|member| member.node).collect(),
        };
        cold::write(&mut cx.frame(SignalNumber::ArbitratorChooseRequest, driver), &body);
    }

    pub(crate) fn on_arbitrator_choose_refuse(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let NoArbitrator { request, reason } = cold::read(frame)?;
        if matches!(self.tickets.stage, Stage::Choosing) && self.tickets.requests == request {
            self.tickets.stage = Stage::Idle;
            if self.tickets.standing != Standing::NoneLeft {
                cx.mark("no arbitrator was left");
            }
            if self.tickets.set_none_left(reason) {
                let reason = &self.tickets.reason;
                cx.log(
                    LogLevel::Warning,
                    format_args!(
                        "no arbitrator is left: data nodes that lose others stop, if these may go on ({reason})"
                    ),
                );
            }
        }
        Some(())
    }

    /// An arbitrator holds the next ticket: all members are to agree to it.
    pub(crate) fn on_arbitrator_choose_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let ArbitratorChooseConfirm { request, arbitrator, ticket } = cold::read(frame)?;
        if !matches!(self.tickets.stage, Stage::Choosing) || self.tickets.requests != request {
            return Some(());
        }
        self.tickets.stage = Stage::Idle;
        if !self.is_whole(cx) {
            cx.mark("arbitrator was chosen too late");
            return Some(());
        }
        let mut awaited: BTreeSet<NodeId> = self.peers.served().collect();
        let change = self.tickets.change() + 1;
        let body = TicketBody { view: self.view.number(), change, ticket };
        for &node in &awaited {
            cold::write(&mut cx.frame(SignalNumber::TicketPrepareRequest, Self::address_of(node)), &body);
        }
        if cx.has_bug(InjectedBug::TicketCountsEarly) {
            awaited.clear();
        }
        self.tickets.stage = Stage::Preparing(Preparation { ticket, arbitrator, awaited, begun: cx.now() });
        self.end_change_if_agreed(cx);
        Some(())
    }

    /// The president wants another ticket.
    pub(crate) fn on_ticket_prepare_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let TicketBody { view, change, ticket } = cold::read(frame)?;
        let answer = TicketAnswer { view, change };
        let is_later = change > self.tickets.change()
            && self.tickets.state.prepared.is_none_or(|(prepared, _)| change > prepared);
        let is_ours = view == self.view.number() && self.view.president() == Some(frame.sender().node());
        let has_given_up = self.peers.given_up().next().is_some();
        let signal = if is_ours && is_later && !has_given_up {
            self.tickets.state.prepared = Some((change, ticket));
            SignalNumber::TicketPrepareConfirm
        } else {
            cx.mark("data node did not agree to another ticket");
            SignalNumber::TicketPrepareRefuse
        };
        cold::write(&mut cx.frame(signal, frame.sender()), &answer);
        Some(())
    }

    /// What the president waits for, if it is this.
    fn preparation(&mut self, answer: TicketAnswer) -> Option<&mut Preparation> {
        let is_present = answer.view == self.view.number() && answer.change == self.tickets.change() + 1;
        match &mut self.tickets.stage {
            Stage::Preparing(preparation) if is_present => Some(preparation),
            Stage::Preparing(_) | Stage::Idle | Stage::Checking | Stage::Choosing => None,
        }
    }

    pub(crate) fn on_ticket_prepare_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let answer: TicketAnswer = cold::read(frame)?;
        if let Some(preparation) = self.preparation(answer) {
            preparation.awaited.remove(&frame.sender().node());
            self.end_change_if_agreed(cx);
        }
        Some(())
    }

    pub(crate) fn on_ticket_prepare_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let answer: TicketAnswer = cold::read(frame)?;
        if self.preparation(answer).is_some() {
            self.give_up_change(cx, "a data node has not agreed");
        }
        Some(())
    }

    /// When all have agreed, the next ticket counts. This node has given up nobody, or it would not wait any more.
    fn end_change_if_agreed(&mut self, cx: &mut Context<'_>) {
        let Stage::Preparing(preparation) = &self.tickets.stage else { return };
        if !preparation.awaited.is_empty() {
            return;
        }
        cx.mark("another arbitrator was chosen");
        let (ticket, arbitrator) = (preparation.ticket, preparation.arbitrator);
        cx.log(LogLevel::Info, format_args!("management node {arbitrator} arbitrates from now on"));
        self.tickets.set_present(arbitrator);
        self.tickets.stage = Stage::Idle;
        self.count_next(cx, ticket);
    }

    /// The president does not replace the ticket after all: nobody else can have begun to show the next one, so the one
    /// before counts.
    pub(crate) fn give_up_change(&mut self, cx: &mut Context<'_>, why: &str) {
        let stage = core::mem::take(&mut self.tickets.stage);
        if let Stage::Preparing(preparation) = stage {
            cx.mark("change of the ticket was given up");
            let arbitrator = preparation.arbitrator;
            cx.log(
                LogLevel::Warning,
                format_args!("management node {arbitrator} does not arbitrate yet: {why}"),
            );
            // Not the same change once more: members may have agreed to that.
            let ticket = self.tickets.state.ticket;
            self.count_next(cx, ticket);
        }
    }

    /// A ticket counts from the next change on, at all members.
    fn count_next(&mut self, cx: &mut Context<'_>, ticket: u64) {
        self.tickets.state.change += 1;
        self.tickets.state.ticket = ticket;
        let nodes: Vec<NodeId> = self.peers.served().collect();
        for node in nodes {
            self.send_ticket(cx, node);
        }
    }

    fn send_ticket(&self, cx: &mut Context<'_>, node: NodeId) {
        let TicketState { change, ticket, .. } = self.tickets.state;
        let body = TicketBody { view: self.view.number(), change, ticket };
        cold::write(&mut cx.frame(SignalNumber::TicketOrder, Self::address_of(node)), &body);
    }

    /// Sends the ticket that counts to a member of the same view that does not have it.
    pub(crate) fn send_missed_ticket(&self, cx: &mut Context<'_>, node: NodeId, view: u32, change: u32) {
        if view == self.view.number().0 && change < self.tickets.change() {
            cx.mark("data node had missed a ticket");
            self.send_ticket(cx, node);
        }
    }

    pub(crate) fn on_ticket_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let TicketBody { view, change, ticket } = cold::read(frame)?;
        let state = &mut self.tickets.state;
        if view == self.view.number() && change > state.change {
            let prepared = state.prepared.filter(|(prepared, _)| *prepared > change);
            *state = TicketState { change, ticket, prepared };
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(change: u32, prepared: Option<u32>) -> TicketState {
        let ticket_of = |change: u32| 100 + u64::from(change);
        TicketState {
            change,
            ticket: ticket_of(change),
            prepared: prepared.map(|change| (change, ticket_of(change))),
        }
    }

    #[test]
    fn each_reason_is_logged_once_until_there_is_an_arbitrator() {
        let mut tickets = Tickets::default();
        assert!(tickets.set_none_left("not reached".into()) && !tickets.set_none_left("not reached".into()));
        assert!(tickets.set_none_left("refused".into()) && !tickets.set_none_left("not reached".into()));
        assert_eq!(tickets.reason, "not reached");
        tickets.set_present(NodeId(3));
        assert!(tickets.set_none_left("refused".into()));
        let logged = (0..100).filter(|number| tickets.set_none_left(alloc::format!("{number}"))).count();
        assert_eq!(logged, REASONS_LOGGED_MAX - 1);
    }

    #[test]
    fn the_newest_ticket_that_counts_is_shown() {
        let resolved = resolve(&[state(0, Some(1)), state(1, None), state(0, Some(1))]);
        assert_eq!(resolved, Resolved { shown: 101, kept: 101 });
    }

    #[test]
    fn one_that_has_not_agreed_proves_that_the_next_does_not_count() {
        let resolved = resolve(&[state(0, Some(1)), state(0, None)]);
        assert_eq!(resolved, Resolved { shown: 100, kept: 100 });
    }

    #[test]
    fn nothing_is_shown_if_all_have_agreed_to_what_may_count() {
        let resolved = resolve(&[state(0, Some(1)), state(0, Some(1))]);
        assert_eq!(resolved, Resolved { shown: NO_TICKET, kept: 101 });
        let resolved = resolve(&[state(0, Some(2)), state(1, Some(2))]);
        assert_eq!(resolved, Resolved { shown: NO_TICKET, kept: 102 });
    }
}
