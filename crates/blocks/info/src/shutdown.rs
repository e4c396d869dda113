//! A client has this data node stop.
//!
//! ```text
//!   API node ── ShutdownRequest ──▶ info 0 ── ShutdownPermitRequest ──▶ info 0 of one member after the other
//!            info 0 ◀── ShutdownPermitConfirm ──
//!            info 0 ── ShutdownCheckRequest ──▶ agreement of its node
//!            info 0 ◀── ShutdownCheckConfirm ──
//!   API node ◀── ShutdownConfirm ── info 0, a moment later: ── ShutdownOrder ──▶ driver
//! ```
//! Each member counts those that it has permitted to stop as gone, and permits no other one that the rest can't do
//! without then. A data node stops when all members have permitted it, this one among them. So of several that can't
//! be missed together, the one that is permitted last by any of them is refused there, and not all of them stop. All
//! ask in the order of the members: so the first one that comes to the oldest member is not refused on account of
//! another one, which is refused then.
//!
//! All that counts in the view in which it was permitted. The next one may leave others out of a partition: so it asks
//! agreement last, which agrees to no such view any more (`growth/stopping.rs` there).
//!
//! A data node that is to stop *unnoticed* leaves when all have permitted it (`LeaveOrder` to its restart block), and
//! stops when nobody needs it any more, or the wait for that is over.

use crate::Info;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, LogLevel, Span, Tick};
use vinga_wire::handshake::Refusal;
use vinga_wire::restart::LeaveReport;
use vinga_wire::shutdown::{
    ShutdownCheck, ShutdownConfirm, ShutdownOrder, ShutdownPermitBody, ShutdownPermitRequest,
    ShutdownRequest, ShutdownTerms,
};
use vinga_wire::view::{ClusterView, Lack, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// The timer behind which the driver is ordered to stop: no number of a request that rows are gathered for.
const TIMER: u64 = u64::MAX;

/// The timer that ends the wait until this data node has left.
const WAIT_TIMER: u64 = u64::MAX - 1;

/// Why a data node can't stop though it could in the present view.
const NEEDED_SOON: &str =
    "others that have the same rows are about to leave them to this data node, or to others that stop";

/// How long after its confirmation: in a later turn, so that the thread has handed the confirmation over by then.
const PAUSE: Span = Span::from_millis(1);

/// Requests of API nodes that wait for the answer of the other members, at most.
pub(crate) const WAITING_MAX: usize = 16;

/// Which data nodes stop, as far as this one has permitted it, and whether this one does.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// Members that were permitted to stop, by this one at least.
    leaving: Vec<(NodeId, Incarnation)>,
    own: Own,
    /// Those of them that have left the cluster since, the latest start of each.
    left: Vec<(NodeId, Incarnation)>,
    /// The number of the latest attempt to stop.
    attempt: u32,
    /// Whether this data node is started again when it has stopped, as the first request of this attempt wants it.
    starts_again: bool,
}

/// How far this data node is.
#[derive(Default)]
enum Own {
    #[default]
    Stays,
    /// The members are asked.
    Asks(Asking),
    /// All have permitted it, and it leaves: these API nodes wait for that.
    Leaves(Asking),
    /// Agreement is asked last: these API nodes wait for that.
    IsChecked(Asking),
    /// The driver is ordered to stop the node, in a moment.
    Stops {
        /// Whether it has left before.
        has_left: bool,
    },
}

/// The members are asked whether this data node may stop.
#[derive(Default)]
struct Asking {
    /// Until when it is to leave before (the clock of this thread); `None` if it stops at once.
    leaves_until: Option<Tick>,
    /// The API nodes that have requested it, each with its tag.
    waiting: Vec<(Address, u32)>,
    /// The members that have permitted it.
    permitted: Vec<NodeId>,
    /// The member that is asked now; it has not answered.
    asked: Option<NodeId>,
}

impl Shutdown {
    /// Why the cluster can't do without a data node, if those that stop are missing, too.
    fn objection(&self, view: &ClusterView, node: NodeId) -> Option<String> {
        let stops = |one: NodeId| self.leaving.iter().any(|(other, _)| *other == one);
        let lack = view.lack_of(|one| one != node && !stops(one))?;
        let (what, is_such): (String, &dyn Fn(&Member) -> bool) = match &lack {
            Lack::NodeGroup(group) => {
                (format!("of node group {group} that has all its rows"), &|member| member.group == *group)
            }
            Lack::Coordinators => ("with coordinators".into(), &|member| member.coordinators > 0),
        };
        let others = view.members().iter().filter(|one| one.node != node && stops(one.node) && is_such(one));
        let others: Vec<String> = others.map(|one| format!("data node {}", one.node)).collect();
        let also = match others.is_empty() {
            true => String::new(),
            false => format!(", as {} is about to stop", others.join(" and ")),
        };
        Some(format!("data node {node} is the last one {what}{also}"))
    }

    /// A member is permitted to stop, whatever comes of it.
    fn permit(&mut self, view: &ClusterView, node: NodeId) {
        let member = view.member(node).map(Member::identity);
        self.leaving.extend(member.filter(|member| !self.leaving.contains(member)));
    }

    /// Panics if it contradicts itself; see `vinga_kernel::Block::check_invariants`.
    pub(crate) fn check_invariants(&self) {
        if let Own::Leaves(Asking { asked, leaves_until, .. }) = &self.own {
            assert!(asked.is_none() && leaves_until.is_some(), "all have permitted it, and it is to leave");
        }
        if let Own::Asks(Asking { waiting, permitted, asked, .. }) = &self.own {
            assert!(waiting.len() <= WAITING_MAX, "at most {WAITING_MAX} requests to stop wait");
            let asked = asked.expect("a member is asked until all have permitted it");
            assert!(!permitted.contains(&asked), "a member is asked once");
        }
    }
}

impl Info {
    /// Has the members asked whether this data node may stop, or has it stop in any case.
    pub(crate) fn on_shutdown_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ShutdownRequest { request, terms, starts_again } = cold::read(frame)?;
        let requester = frame.sender();
        if cx.own().instance() != 0 {
            return None;
        }
        let api = requester.node();
        cx.log(LogLevel::Info, format_args!("API node {api} has requested that this data node stops"));
        let is_full = matches!(
            &self.shutdown.own,
            Own::Asks(asking) | Own::Leaves(asking) | Own::IsChecked(asking)
                if asking.waiting.len() >= WAITING_MAX
        );
        if is_full {
            refuse(cx, requester, request, ErrorCode::Overloaded, String::new());
            return Some(());
        }
        if !matches!(self.shutdown.own, Own::Stays) && self.shutdown.starts_again != starts_again {
            let plan = if starts_again { "stop for good" } else { "be started again" };
            let why = format!("it is to {plan}, as somebody else has requested");
            refuse(cx, requester, request, ErrorCode::NodeStopping, why);
            return Some(());
        }
        let leaves_until = self.leaves_until(cx, terms);
        match &mut self.shutdown.own {
            Own::Stops { has_left } => {
                confirm(cx, requester, request, *has_left);
                return Some(());
            }
            Own::Asks(asking) | Own::Leaves(asking) | Own::IsChecked(asking) => {
                asking.waiting.push((requester, request));
                // Whoever is in more of a hurry decides.
                asking.leaves_until = asking.leaves_until.min(leaves_until);
            }
            Own::Stays => {
                self.shutdown.attempt = self.shutdown.attempt.wrapping_add(1);
                self.shutdown.starts_again = starts_again;
                let waiting = [(requester, request)].into();
                self.shutdown.own = Own::Asks(Asking { waiting, leaves_until, ..Asking::default() });
                if terms != ShutdownTerms::InAnyCase {
                    self.ask_next(cx);
                    return Some(());
                }
            }
        }
        match terms {
            ShutdownTerms::InAnyCase => self.stop_in_any_case(cx),
            ShutdownTerms::IfDispensable | ShutdownTerms::Unnoticed { .. } => self.hurry(cx),
        }
        Some(())
    }

    /// Until when this data node is to leave before it stops; `None` if it stops at once, as one does that has not all
    /// its rows yet.
    fn leaves_until(&self, cx: &Context<'_>, terms: ShutdownTerms) -> Option<Tick> {
        let has_started = cx.view().has_started(cx.own().node());
        match terms {
            ShutdownTerms::Unnoticed { wait } if has_started => {
                Some(cx.now() + Span::from_millis(u64::from(wait)))
            }
            _ => None,
        }
    }

    /// Another request has come while this data node leaves: it may not wait for as long.
    fn hurry(&mut self, cx: &mut Context<'_>) {
        if let Own::Leaves(asking) = &mut self.shutdown.own {
            match asking.leaves_until {
                Some(until) => cx.send_after(until - cx.now(), WAIT_TIMER),
                None => {
                    asking.leaves_until = Some(cx.now());
                    self.end_wait(cx);
                }
            }
        }
    }

    /// All have permitted it: it stops, or leaves before.
    fn leave_or_stop(&mut self, cx: &mut Context<'_>) {
        let Own::Asks(asking) = &mut self.shutdown.own else { return };
        let Some(until) = asking.leaves_until else { return self.check_and_stop(cx) };
        cx.log(LogLevel::Info, format_args!("this data node leaves before it stops"));
        self.shutdown.own = Own::Leaves(core::mem::take(asking));
        let restart = Address::new(cx.own().node(), BlockNumber::Restart, 0);
        cx.frame(SignalNumber::LeaveOrder, restart);
        cx.send_after(until - cx.now(), WAIT_TIMER);
    }

    /// It has left, or the others can't do without it any more.
    pub(crate) fn on_leave_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let LeaveReport { is_free } = cold::read(frame)?;
        if let Own::Leaves(_) = self.shutdown.own {
            if is_free {
                self.stop(cx, true);
            } else {
                let why = self.shutdown.objection(cx.view(), cx.own().node());
                self.give_up(cx, &why.unwrap_or_else(|| "the others can't do without it".into()));
            }
        }
        Some(())
    }

    /// It has not left in time: it stops all the same, if the others can go on.
    fn end_wait(&mut self, cx: &mut Context<'_>) {
        let Own::Leaves(Asking { leaves_until: Some(until), .. }) = self.shutdown.own else { return };
        if cx.now() < until {
            return;
        }
        match self.shutdown.objection(cx.view(), cx.own().node()) {
            Some(why) => self.give_up(cx, &why),
            None => {
                cx.mark("data node stops though it has not left");
                cx.log(LogLevel::Warning, format_args!("this data node stops though it has not left"));
                self.check_and_stop(cx);
            }
        }
    }

    /// Stops if the others can go on without it in the view that may follow, too.
    fn check_and_stop(&mut self, cx: &mut Context<'_>) {
        if let Own::Asks(asking) | Own::Leaves(asking) = &mut self.shutdown.own {
            self.shutdown.own = Own::IsChecked(core::mem::take(asking));
            self.send_check(cx, false);
        }
    }

    fn send_check(&self, cx: &mut Context<'_>, is_decided: bool) {
        let stopping = self.shutdown.leaving.iter().map(|(node, _)| *node).collect();
        let agreement = Address::new(cx.own().node(), BlockNumber::Agreement, 0);
        let body = ShutdownCheck { stopping, is_decided };
        cold::write(&mut cx.frame(SignalNumber::ShutdownCheckRequest, agreement), &body);
    }

    /// Agreement leaves nobody out from now on.
    pub(crate) fn on_check_confirm(&mut self, cx: &mut Context<'_>) -> Option<()> {
        if let Own::IsChecked(_) = self.shutdown.own {
            self.stop(cx, false);
        }
        Some(())
    }

    /// The next view may leave others out of a partition that this data node has, too.
    pub(crate) fn on_check_refuse(&mut self, cx: &mut Context<'_>) -> Option<()> {
        if let Own::IsChecked(_) = self.shutdown.own {
            let why = self.shutdown.objection(cx.view(), cx.own().node());
            let why = why.unwrap_or_else(|| String::from(NEEDED_SOON));
            self.give_up(cx, &why);
        }
        Some(())
    }

    /// Asks the next member whether this data node may stop; if there is none, it stops.
    fn ask_next(&mut self, cx: &mut Context<'_>) {
        let own = cx.own().node();
        loop {
            let Own::Asks(asking) = &mut self.shutdown.own else { return };
            let members = cx.view().members().iter().map(|member| member.node);
            let next = members.clone().find(|node| !asking.permitted.contains(node));
            asking.asked = next.filter(|&node| node != own);
            match next {
                Some(node) if node == own => {
                    asking.permitted.push(own);
                    if let Some(why) = self.shutdown.objection(cx.view(), own) {
                        return self.give_up(cx, &why);
                    }
                    self.shutdown.permit(cx.view(), own);
                }
                Some(node) => return self.ask(cx, node, ShutdownTerms::IfDispensable),
                None => {
                    // Members may have been lost since this one has permitted it.
                    return match self.shutdown.objection(cx.view(), own) {
                        Some(why) => self.give_up(cx, &why),
                        None => self.leave_or_stop(cx),
                    };
                }
            }
        }
    }

    fn ask(&self, cx: &mut Context<'_>, node: NodeId, terms: ShutdownTerms) {
        let body = ShutdownPermitRequest { request: self.shutdown.attempt, terms };
        let info = Address::new(node, BlockNumber::Info, 0);
        cold::write(&mut cx.frame(SignalNumber::ShutdownPermitRequest, info), &body);
    }

    /// Stops although nobody has permitted it, so that the others count this data node as gone at once.
    fn stop_in_any_case(&mut self, cx: &mut Context<'_>) {
        let own = cx.own().node();
        self.shutdown.permit(cx.view(), own);
        let members: Vec<NodeId> = cx.view().members().iter().map(|member| member.node).collect();
        for node in members.into_iter().filter(|&node| node != own) {
            self.ask(cx, node, ShutdownTerms::InAnyCase);
        }
        self.send_check(cx, true);
        self.stop(cx, false);
    }

    fn stop(&mut self, cx: &mut Context<'_>, has_left: bool) {
        let before = core::mem::replace(&mut self.shutdown.own, Own::Stops { has_left });
        if let Own::Asks(asking) | Own::Leaves(asking) | Own::IsChecked(asking) = before {
            asking
                .waiting
                .into_iter()
                .for_each(|(requester, request)| confirm(cx, requester, request, has_left));
            cx.send_after(PAUSE, TIMER);
        }
    }

    /// It does not stop: those that have permitted it learn that.
    fn give_up(&mut self, cx: &mut Context<'_>, why: &str) {
        let own = cx.own().node();
        let own_plan = core::mem::take(&mut self.shutdown.own);
        let (Own::Asks(asking) | Own::Leaves(asking) | Own::IsChecked(asking)) = own_plan else { return };
        self.shutdown.leaving.retain(|(node, _)| *node != own);
        cx.log(LogLevel::Info, format_args!("this data node goes on: {why}"));
        let body = ShutdownPermitBody { request: self.shutdown.attempt };
        let mut permitted = asking.permitted;
        permitted.retain(|&node| node != own && cx.view().has(node));
        for node in permitted {
            let info = Address::new(node, BlockNumber::Info, 0);
            cold::write(&mut cx.frame(SignalNumber::ShutdownPermitReturnOrder, info), &body);
        }
        for (requester, request) in asking.waiting {
            refuse(cx, requester, request, ErrorCode::NodeIsNeeded, why.into());
        }
    }

    /// Another data node asks whether it may stop.
    pub(crate) fn on_permit_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ShutdownPermitRequest { request, terms } = cold::read(frame)?;
        let (sender, node) = (frame.sender(), frame.sender().node());
        let objection = match terms {
            ShutdownTerms::IfDispensable | ShutdownTerms::Unnoticed { .. } => {
                self.shutdown.objection(cx.view(), node)
            }
            ShutdownTerms::InAnyCase => None,
        };
        if let Some(detail) = objection {
            cx.mark("shutdown: another member does not permit it");
            let body = Refusal { request, code: ErrorCode::NodeIsNeeded as u16, detail };
            cold::write(&mut cx.frame(SignalNumber::ShutdownPermitRefuse, sender), &body);
            return Some(());
        }
        self.shutdown.permit(cx.view(), node);
        let body = ShutdownPermitBody { request };
        cold::write(&mut cx.frame(SignalNumber::ShutdownPermitConfirm, sender), &body);
        Some(())
    }

    /// A member permits that this data node stops.
    pub(crate) fn on_permit_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ShutdownPermitBody { request } = cold::read(frame)?;
        let (node, attempt) = (frame.sender().node(), self.shutdown.attempt);
        if let Own::Asks(asking) = &mut self.shutdown.own
            && (asking.asked, request) == (Some(node), attempt)
        {
            asking.permitted.push(node);
            self.ask_next(cx);
        }
        Some(())
    }

    /// A member does not permit it.
    pub(crate) fn on_permit_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Refusal { request, detail, .. } = cold::read(frame)?;
        if let Own::Asks(asking) = &self.shutdown.own
            && (asking.asked, request) == (Some(frame.sender().node()), self.shutdown.attempt)
        {
            self.give_up(cx, &detail);
        }
        Some(())
    }

    /// Another data node does not stop after all.
    pub(crate) fn on_permit_return(&mut self, frame: &Frame<'_>) -> Option<()> {
        let ShutdownPermitBody { .. } = cold::read(frame)?;
        let sender = frame.sender().node();
        self.shutdown.leaving.retain(|(node, _)| *node != sender);
        Some(())
    }

    /// Whoever is lost is none of those that are about to stop, and is not waited for.
    pub(crate) fn forget_lost_members(&mut self, cx: &mut Context<'_>) {
        let is_member = |one: &(NodeId, Incarnation)| {
            cx.view().member(one.0).is_some_and(|member| member.identity() == *one)
        };
        let (leaving, left) = (&mut self.shutdown.leaving, &mut self.shutdown.left);
        for lost in leaving.extract_if(.., |one| !is_member(one)) {
            left.retain(|(node, _)| *node != lost.0);
            left.push(lost);
        }
        if let Own::Asks(asking) = &self.shutdown.own
            && asking.asked.is_some_and(|node| !cx.view().has(node))
        {
            self.ask_next(cx);
        }
    }

    /// The data nodes that have left the cluster after they were permitted to stop.
    pub fn stopped_nodes(&self) -> &[(NodeId, Incarnation)] {
        &self.shutdown.left
    }

    /// An API node has gone: nothing is sent to it any more. What it has requested is done.
    pub(crate) fn forget_requests_to_stop(&mut self, api: NodeId) {
        if let Own::Asks(asking) | Own::Leaves(asking) | Own::IsChecked(asking) = &mut self.shutdown.own {
            asking.waiting.retain(|(requester, _)| requester.node() != api);
        }
    }

    /// If it is the timer of a shutdown, the driver is ordered to stop the node; returns whether it is.
    pub(crate) fn on_shutdown_timer(&mut self, cx: &mut Context<'_>, token: u64) -> bool {
        if token == WAIT_TIMER {
            self.end_wait(cx);
            return true;
        }
        if token != TIMER {
            return false;
        }
        let driver = cx.driver();
        let body = ShutdownOrder { starts_again: self.shutdown.starts_again };
        cold::write(&mut cx.frame(SignalNumber::ShutdownOrder, driver), &body);
        true
    }
}

fn confirm(cx: &mut Context<'_>, requester: Address, request: u32, has_left: bool) {
    let body = ShutdownConfirm { request, has_left };
    cold::write(&mut cx.frame(SignalNumber::ShutdownConfirm, requester), &body);
}

fn refuse(cx: &mut Context<'_>, requester: Address, request: u32, code: ErrorCode, detail: String) {
    let body = Refusal { request, code: code as u16, detail };
    cold::write(&mut cx.frame(SignalNumber::ShutdownRefuse, requester), &body);
}
