//! The next registrar: it takes over when the president fails.
//!
//! Every host knows the sessions as the registrar has last described them, and which of them have connections to its
//! own node. The next registrar asks all of them (`ApiNodesRequest`). A host receives that when it has adopted the view
//! in which the sender is the president; from then on it sends what it has to report there, and asks once more about
//! each greeting that was not answered. What arrives before all hosts have answered waits.
//!
//! The registrar asks for a session's next stage only when all hosts have confirmed the one before. So hosts that know
//! a session differ by one stage at most, and what they know of it says how far it had come:
//!
//! | stages at hosts | what was under way | it goes on as |
//! |---|---|---|
//! | *failed* at one of them, or *closed* at some and unknown to all others | it is being forgotten | *Failing* |
//! | *admitted* at some and unknown to others (perhaps *closed* at others: two registrars died one after the other) | its first admission: nobody has been confirmed | *Closing*, then *Failing*, unless its greeting is asked about once more: that is admitted after *Closing* |
//! | *admitted* at all, with connections | nothing | *Connected* |
//! | *admitted* at all, without connections or with closed ones; *closed* at some or all | it was being closed, or came back | *Disconnecting* or *Closing*, then *Closed*, with the whole grace time |
//!
//! A greeting that is asked about once more has the ticket which its host has drawn: so the session is found that the
//! registrar before has begun for it, however far its admission had come, and goes on. What a block wants closed is
//! asked for once more, too. A stage that a host has reached already is confirmed without the blocks. A disconnect
//! notice may be lost with the president: that costs the grace time.

use crate::Membership;
use crate::api_nodes::{Next, Session, State};
use crate::closing::connection_lost;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::membership::{ApiNodesConfirm, KnownConnections, KnownSession, SessionStage};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// What the next registrar knows before it decides about anything.
pub struct Succession {
    /// Hosts that have not answered. Never empty.
    awaited: BTreeSet<Address>,
    answers: BTreeMap<Address, ApiNodesConfirm>,
    /// Signals to the registrar that have come too early: senders and frames, in their order.
    early: Vec<(Address, Vec<u8>)>,
}

impl Succession {
    pub fn check_invariants(&self) {
        assert!(!self.awaited.is_empty(), "a host has not answered");
        assert!(self.awaited.iter().all(|host| !self.answers.contains_key(host)), "each answers once");
    }
}

/// Whether a signal is for the registrar, and waits for its succession.
pub fn waits_for_succession(signal: SignalNumber) -> bool {
    matches!(
        signal,
        SignalNumber::ApiAdmissionRequest
            | SignalNumber::ApiConnectionsClosedReport
            | SignalNumber::ApiUnwantedReport
            | SignalNumber::ApiLeavingReport
    )
}

impl Membership {
    /// The president has failed, and this node is the next one.
    pub(crate) fn become_registrar(&mut self, cx: &mut Context<'_>) {
        cx.mark("next president becomes the registrar");
        let view = cx.shared_view();
        // One that has only joined may not know all sessions yet, and starts again without the president who knew them.
        let members = view.members().iter().filter(|member| member.state != MemberState::Starting);
        let awaited: BTreeSet<Address> =
            members.map(|member| Address::new(member.node, BlockNumber::Membership, 0)).collect();
        for &host in &awaited {
            cx.frame(SignalNumber::ApiNodesRequest, host);
        }
        self.succession = Some(Succession { awaited, answers: BTreeMap::new(), early: Vec::new() });
    }

    /// Keeps a signal for the registrar until that knows everything; says whether it has to wait.
    pub(crate) fn postpone(&mut self, frame: &Frame<'_>) -> bool {
        let Some(succession) = &mut self.succession else { return false };
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes);
        succession.early.push((frame.sender(), bytes));
        true
    }

    /// The next registrar asks what this host knows.
    pub(crate) fn on_api_nodes_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let sessions = self.sessions.described().map(|(described, has_closed)| {
            let connections = match self.host.has_open_connections(NodeId(described.api)) {
                Some(true) => KnownConnections::Some,
                Some(false) => KnownConnections::Closed,
                None if has_closed => KnownConnections::Closed,
                None => KnownConnections::None,
            };
            KnownSession { described, connections }
        });
        let confirm = ApiNodesConfirm { sessions: sessions.collect(), newest: self.sessions.newest() };
        cold::write(&mut cx.frame(SignalNumber::ApiNodesConfirm, frame.sender()), &confirm);
        Some(())
    }

    pub(crate) fn on_api_nodes_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let confirm: ApiNodesConfirm = cold::read(frame)?;
        if let Some(succession) = &mut self.succession
            && succession.awaited.remove(&frame.sender())
        {
            succession.answers.insert(frame.sender(), confirm);
            self.end_succession(cx);
        }
        Some(())
    }

    /// A member is lost: its answer is not awaited, and does not count.
    pub(crate) fn succeed_without(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let Some(succession) = &mut self.succession else { return };
        succession.awaited.retain(|host| host.node() != node);
        succession.answers.retain(|host, _| host.node() != node);
        succession.early.retain(|(sender, _)| sender.node() != node);
        self.end_succession(cx);
    }

    /// Goes on from what all hosts know, as soon as all have answered.
    fn end_succession(&mut self, cx: &mut Context<'_>) {
        let Some(Succession { mut answers, early, .. }) =
            self.succession.take_if(|succession| succession.awaited.is_empty())
        else {
            return;
        };
        if cx.has_bug(InjectedBug::NextRegistrarKnowsNobody) {
            answers.clear();
        }
        let hosts = answers.len();
        let mut known: BTreeMap<u8, Vec<(Address, KnownSession)>> = BTreeMap::new();
        for (host, answer) in answers {
            for (api, incarnation) in answer.newest {
                self.api_nodes.note_incarnation(NodeId(api), Incarnation(incarnation));
            }
            for session in answer.sessions {
                known.entry(session.described.api).or_default().push((host, session));
            }
        }
        cx.log(
            LogLevel::Info,
            format_args!("this node is the president now; {} API nodes are known", known.len()),
        );
        for (api, at) in known {
            self.resume(cx, NodeId(api), hosts, &at);
        }
        for (_, bytes) in early {
            let frame = Frame::first(&bytes).ok().flatten().expect("it was a whole frame");
            self.handle_signal(cx, &frame);
        }
    }

    /// Goes on with one session, of which so many hosts know what is given here. See the table in the file's head.
    fn resume(&mut self, cx: &mut Context<'_>, api: NodeId, hosts: usize, at: &[(Address, KnownSession)]) {
        let described = at[0].1.described;
        let incarnation = Incarnation(described.incarnation);
        assert!(
            at.iter().all(|(_, known)| known.described.incarnation == described.incarnation),
            "API node {api}: a session begins when all hosts have forgotten the one before"
        );
        let requested = Incarnation(described.requested);
        let admission = at.iter().map(|(_, known)| known.described.admission).max().unwrap_or(1);
        let session = Session { incarnation, requested, ticket: described.ticket, admission };
        let has = |stage| at.iter().any(|(_, known)| known.described.stage == stage);
        let is_everywhere = at.len() == hosts;
        // Another registrar may have died while it gave an admission up: then it is admitted at some still.
        let is_forgotten = has(SessionStage::Closed) && !has(SessionStage::Admitted) && !is_everywhere;
        if has(SessionStage::Failed) || is_forgotten {
            cx.mark("next registrar goes on forgetting a session");
            self.enter_failing(cx, api, session, None);
        } else if !is_everywhere {
            // If its greeting is asked about once more, that goes on with it.
            cx.mark("next registrar gives up an admission");
            let session = Session { requested: Incarnation(0), ..session };
            self.notify_closed(cx, api, session, Next::NotThisSession);
        } else if has(SessionStage::Closed) {
            cx.mark("next registrar goes on closing a session");
            self.notify_closed(cx, api, session, Next::Nobody);
        } else {
            let with = |what| at.iter().filter(move |(_, known)| known.connections == what);
            let open = with(KnownConnections::Some).map(|&(host, _)| host).collect();
            let is_whole = with(KnownConnections::Closed).next().is_none();
            let is_connected = is_whole && with(KnownConnections::Some).next().is_some();
            self.api_nodes.set(api, State::Connected { session, hosts: open, held: Vec::new() });
            if is_connected {
                cx.mark("next registrar goes on with a connected session");
            } else {
                cx.mark("next registrar closes a session");
                self.enter_disconnecting(cx, &connection_lost(api), Next::Nobody);
            }
        }
    }

    /// Adopts a view: greetings that are not answered, and all reports from now on, go to its president. Closing that
    /// was asked of the president before is asked for once more.
    pub(crate) fn follow_president(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let (before, now) = (change.old.president(), change.new.president());
        if before == now {
            return;
        }
        if now == Some(cx.own().node()) {
            self.become_registrar(cx);
        }
        self.ask_again(cx);
        self.demand_again(cx);
    }
}
