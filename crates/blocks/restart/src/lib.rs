//! Restart: has data nodes join the cluster that come back, or come for the first time.
//!
//! The block of the president leads a *newcomer*, one at a time, through the views that make it a full member
//! (`leader`); the block of the newcomer finds out when all blocks of its node have done their parts (`newcomer`);
//! `threads` finds out when all threads of all members have adopted a view. When nobody is on the way, primaries are
//! handed over to data nodes that have come back (`hand_over`). A data node that is to stop leaves before, in the other
//! direction (`leaving`). Partitions move to node groups that were added (`placement`).
//!
//! ```text
//!   connected ─▶ schema changes ─▶ a view  ─▶ it is sent all  ─▶ a view in ─▶ it has all rows, ─▶ a view in
//!                are held          with it    tables and         which it     and all threads     which it
//!                                             sessions           is copied    know that view      has started
//!                                                                to
//! ```
//! Where a newcomer stands is in the view; what this block remembers is only what it waits for. So the next president
//! goes on where the last one was: but a newcomer that has not got all tables and sessions from one president starts
//! again.
//!
//! The signals are described in `vinga_wire::restart`, the protocol in `docs/protocols/node-restart.md`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod hand_over;
mod leader;
mod leaving;
mod newcomer;
mod placement;
mod threads;

use alloc::vec::Vec;
use leader::Leader;
use leaving::Leaving;
use newcomer::Newcomer;
use threads::Threads;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Block, Context, Scrutiny, Span, Tick};
use vinga_wire::start::{STARTED, StartKind, StartProgressReport};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64};

/// What the restart block is configured with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Its threads that run blocks.
    pub threads: u16,
    /// How long to wait before a change of the view that was refused is asked for again.
    pub retry: Span,
}

/// The longest pause between attempts of which nothing comes: each one keeps others waiting.
const PAUSE_MAX: Span = Span::from_millis(30_000);

/// What part of the usual pause the first one is of a data node that could not join.
const FIRST_PAUSE_PART: u64 = 32;

impl Settings {
    /// The pause behind an attempt of which nothing came, as nothing came of so many before it.
    fn pause_after(&self, failures: u32) -> Span {
        self.doubled(self.retry, failures)
    }

    /// The same for a data node that could not join. The first pauses are short: most often one of the members has not
    /// noticed yet that it is connected, and has a moment later.
    fn pause_of_candidate(&self, refusals: u32) -> Span {
        self.doubled(Span((self.retry.0 / FIRST_PAUSE_PART).max(1)), refusals)
    }

    fn doubled(&self, first: Span, times: u32) -> Span {
        Span((first.0 << times.min(20)).min(PAUSE_MAX.0.max(self.retry.0)))
    }
}

/// The restart block.
pub struct Restart {
    settings: Settings,
    leader: Leader,
    /// While this node is no full member.
    newcomer: Option<Newcomer>,
    threads: Threads,
    /// Whether this node is to stop.
    leaving: Leaving,
    /// The last start of this node, once it is over, and when it began.
    started: Option<(Tick, StartProgressReport)>,
}

/// The token of the timer for reports of progress; others are counted.
const REPORT_TIMER: u64 = u64::MAX;

/// The token of the timers for candidates that wait for their next attempt.
const CANDIDATE_TIMER: u64 = u64::MAX - 1;

/// A start of a data node, as this block knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownStart {
    /// Which start of which data node.
    pub node: NodeId,
    /// See `node`.
    pub incarnation: Incarnation,
    /// When it began, by this node's clock.
    pub begun: Tick,
    /// How far it is, or how it went.
    pub progress: StartProgressReport,
}

impl Restart {
    /// Before it is known whether there is a view already.
    pub fn new(settings: Settings) -> Self {
        Restart {
            settings,
            leader: Leader::default(),
            newcomer: None,
            threads: Threads::default(),
            leaving: Leaving::default(),
            started: None,
        }
    }

    /// The last start of this node, and at the president those of nodes that join.
    pub fn starts(&self, now: Tick) -> Vec<KnownStart> {
        let present = self.newcomer.as_ref().map(|newcomer| (newcomer.begun(), newcomer.progress(now)));
        let Settings { node, incarnation, .. } = self.settings;
        let own = present.or_else(|| self.started.clone());
        let own = own.map(|(begun, progress)| KnownStart { node, incarnation, begun, progress });
        own.into_iter().chain(self.leader.known_starts(now)).collect()
    }

    fn address_of(node: NodeId) -> Address {
        Address::new(node, BlockNumber::Restart, 0)
    }
}

impl Block for Restart {
    /// A node that starts without a view is to join.
    fn start(&mut self, cx: &mut Context<'_>) {
        if cx.view().members().is_empty() {
            self.newcomer = Some(Newcomer::new(cx));
        } else {
            self.leader.note_view(cx.view().president() == Some(self.settings.node));
            self.started = Some((cx.now(), StartProgressReport::new(StartKind::First, STARTED)));
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::JoiningReport) => self.on_joining_report(cx, frame),
            Some(SignalNumber::SchemaHoldConfirm) => self.on_schema_hold_confirm(cx, frame),
            Some(SignalNumber::ViewChangeConfirm) => self.on_view_change_confirm(cx, frame),
            Some(SignalNumber::ViewChangeRefuse) => self.on_view_change_refuse(cx, frame),
            Some(SignalNumber::NewcomerReport) => self.on_newcomer_report(cx, frame),
            Some(SignalNumber::CopyingReport) => self.on_copying_report(frame),
            Some(SignalNumber::NewcomerProgressReport) => self.on_newcomer_progress(cx, frame),
            Some(SignalNumber::StepDoneReport) => self.on_step_done_report(cx, frame),
            Some(SignalNumber::ThreadsRequest) => self.on_threads_request(cx, frame),
            Some(SignalNumber::ThreadsConfirm) => self.on_threads_confirm(cx, frame),
            Some(SignalNumber::TurnConfirm) => self.on_turn_confirm(cx, frame),
            Some(SignalNumber::ClientsConfirm) => self.on_clients_confirm(cx, frame),
            Some(SignalNumber::HandOverConfirm) => self.on_hand_over_confirm(cx, frame),
            Some(SignalNumber::HandOverRefuse) => self.on_hand_over_refuse(cx, frame),
            Some(SignalNumber::LeaveOrder) => self.on_leave_order(cx),
            Some(SignalNumber::LeaveRequest) => self.on_leave_request(cx, frame),
            Some(SignalNumber::LeaveRefuse) => self.on_leave_refuse(cx, frame),
            Some(SignalNumber::LeaveConfirm) => self.on_leave_confirm(cx, frame),
            Some(SignalNumber::DrainConfirm) => self.on_drain_confirm(cx, frame),
            Some(SignalNumber::PartitionSizeConfirm) => self.on_partition_size_confirm(cx, frame),
            Some(SignalNumber::PlaceConfirm) => self.on_place_confirm(cx, frame),
            Some(SignalNumber::PlaceRefuse) => self.on_place_refuse(cx, frame),
            Some(SignalNumber::ReorganizeRequest) => self.on_reorganize_request(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.follow_view(cx, change);
        self.lead_in_view(cx, change);
        self.follow_leaving(cx);
    }

    fn check_invariants(&self, _: Scrutiny) {
        self.leader.check_invariants();
    }
}

impl Restart {
    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match token.get() {
            REPORT_TIMER => self.on_report_timer(cx),
            CANDIDATE_TIMER => self.go_on(cx),
            number => self.on_timer(cx, number),
        }
        Some(())
    }
}
