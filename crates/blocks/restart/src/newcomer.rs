//! A node that joins: it reports to the president what its blocks have done.

use crate::{REPORT_TIMER, Restart};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::{Amount, Millis, NodeId, Pace, Seconds};
use vinga_kernel::{Context, LogLevel, Span, Tick};
use vinga_wire::restart::{CopyingReport, NewcomerProgress, NewcomerReport, NewcomerStep, StepDoneReport};
use vinga_wire::start::{NodeStartedOrder, PhaseTime, STARTED, StartKind, StartProgressReport};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// How often it is reported how far a copy has come.
const REPORT_AGAIN: Span = Span::from_millis(500);

/// Reports between two lines of the log.
const REPORTS_A_LINE: u64 = 4;

/// A node on its way to a full member.
pub(crate) struct Newcomer {
    /// The president that it was sent its first view by.
    president: Option<NodeId>,
    /// How far it has come; `None` before its first view.
    state: Option<MemberState>,
    /// Blocks of this node that take part in the present step, and those that have not done their part of it.
    asked: u32,
    awaited: BTreeSet<Address>,
    begun: Tick,
    phase_begun: Tick,
    finished: Vec<PhaseTime>,
    /// What was copied to each data manager.
    copied: BTreeMap<Address, Amount>,
    pace: Pace,
    /// Reports while rows are copied, and what the last line of the log said.
    reports: u64,
    logged: Amount,
    /// The last line of the log said that no rows come.
    is_held_up: bool,
}

/// What is done until a state ends, for people.
fn work(state: Option<MemberState>) -> &'static str {
    match state {
        None => "cluster joined",
        Some(MemberState::Starting) => "tables and clients learned",
        Some(MemberState::Copying) => "rows copied",
        Some(MemberState::Started | MemberState::Leaving | MemberState::LeftOut) => STARTED,
    }
}

/// A node that is connected, as the president sees it before it is a member.
pub(crate) fn waiting(since: Span) -> StartProgressReport {
    StartProgressReport { elapsed: since.0, ..StartProgressReport::new(StartKind::NodeRestart, work(None)) }
}

impl Newcomer {
    pub fn new(cx: &mut Context<'_>) -> Self {
        let newcomer = Newcomer {
            president: None,
            state: None,
            asked: 0,
            awaited: BTreeSet::new(),
            begun: cx.now(),
            phase_begun: cx.now(),
            finished: Vec::new(),
            copied: BTreeMap::new(),
            pace: Pace::default(),
            reports: 0,
            logged: Amount::default(),
            is_held_up: false,
        };
        newcomer.report_progress(cx);
        newcomer
    }

    fn amount(&self) -> Amount {
        let sum: Amount = self.copied.values().copied().sum();
        // How much there is in all is known when each data manager has said it.
        let is_known = self.copied.len() as u32 >= self.asked;
        if is_known { sum } else { Amount { rows_all: 0, bytes_all: 0, ..sum } }
    }

    /// The node goes on to another state.
    fn enter(&mut self, cx: &mut Context<'_>, state: MemberState) {
        let micros = cx.now().since(self.phase_begun).0;
        let done = work(self.state);
        let time = Millis(micros);
        if self.state == Some(MemberState::Copying) {
            let amount = self.amount();
            cx.log(LogLevel::Info, format_args!("{done} in {time}: {amount}"));
        } else {
            cx.log(LogLevel::Info, format_args!("{done} in {time}"));
        }
        self.finished.push(PhaseTime { work: done.into(), micros });
        (self.state, self.phase_begun) = (Some(state), cx.now());
        self.awaited.clear();
        match state {
            MemberState::Copying => {
                cx.log(LogLevel::Info, format_args!("rows are being copied to this node"));
                self.pace.note(cx.now().0, 0);
            }
            MemberState::Started | MemberState::Leaving | MemberState::LeftOut => {
                let time = Seconds(cx.now().since(self.begun).0);
                cx.log(LogLevel::Info, format_args!("the node restart has taken {time}"));
            }
            MemberState::Starting => {}
        }
    }

    /// How far the start is.
    pub fn progress(&self, now: Tick) -> StartProgressReport {
        let amount = self.amount();
        let is_copying = self.state == Some(MemberState::Copying) && amount.bytes_all > 0;
        StartProgressReport {
            asked: self.asked,
            awaited: self.awaited.len() as u32,
            finished: self.finished.clone(),
            amount,
            left: if is_copying { self.pace.time_for(amount.bytes_left()) } else { None },
            elapsed: now.since(self.begun).0,
            ..StartProgressReport::new(StartKind::NodeRestart, work(self.state))
        }
    }

    /// When the start has begun.
    pub fn begun(&self) -> Tick {
        self.begun
    }

    fn report_progress(&self, cx: &mut Context<'_>) {
        let report = self.progress(cx.now());
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::StartProgressReport, driver), &report);
    }

    /// Says in the log how far the copy is; if nothing has changed, what may hold it up, once.
    fn log_progress(&mut self, cx: &mut Context<'_>) {
        let StartProgressReport { amount, left, .. } = self.progress(cx.now());
        let was_held_up = core::mem::replace(&mut self.is_held_up, amount == self.logged);
        if self.is_held_up {
            if !was_held_up && self.state == Some(MemberState::Copying) {
                cx.log(LogLevel::Info, format_args!("no rows come: open transactions may hold the rest up"));
            }
            return;
        }
        self.logged = amount;
        match left {
            Some(left) => cx.log(LogLevel::Info, format_args!("copied {amount}, {} left", Seconds(left))),
            None => cx.log(LogLevel::Info, format_args!("copied {amount}")),
        }
    }
}

impl Restart {
    /// This node has adopted a view.
    pub(crate) fn follow_view(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let node = self.settings.node;
        let Some(newcomer) = &mut self.newcomer else { return };
        let state = change.new.member(node).expect("a thread adopts views that have its node").state;
        let president = change.new.president();
        if newcomer.state == Some(MemberState::Starting) && newcomer.president != president {
            cx.mark("newcomer starts again as its president is lost");
            return cx.stop_node_for(
                ErrorCode::NodeFailure as u16,
                format_args!(
                    "the president has failed before this node had all tables and clients: start it again"
                ),
            );
        }
        newcomer.president = president;
        if newcomer.state != Some(state) {
            newcomer.enter(cx, state);
            if state == MemberState::Starting {
                let own = |block| Address::new(node, block, 0);
                newcomer.awaited =
                    BTreeSet::from([own(BlockNumber::Dictionary), own(BlockNumber::Membership)]);
                newcomer.asked = newcomer.awaited.len() as u32;
            } else if state == MemberState::Copying {
                cx.send_after(REPORT_AGAIN, REPORT_TIMER);
            }
        }
        if state == MemberState::Copying {
            // A copy counts in a view, and each data manager says so in each that a partition is copied to.
            let partitions = change.new.partitions().iter().filter(|one| one.copying.contains(node));
            newcomer.awaited = partitions.map(|one| one.owner.at(node)).collect();
            newcomer.asked = newcomer.awaited.len() as u32;
            // The first nodes of a node group have none.
            if newcomer.awaited.is_empty() {
                self.report_step(cx, NewcomerStep::Copied);
            }
        }
        let Some(newcomer) = &mut self.newcomer else { return };
        newcomer.report_progress(cx);
        self.report_to_president(cx);
        if matches!(state, MemberState::Started | MemberState::Leaving | MemberState::LeftOut) {
            self.started =
                self.newcomer.take().map(|newcomer| (newcomer.begun(), newcomer.progress(cx.now())));
            let order = NodeStartedOrder { restored: None, from: Vec::new() };
            let driver = cx.driver();
            cold::write(&mut cx.frame(SignalNumber::NodeStartedOrder, driver), &order);
        }
    }

    /// A block of this node has done its part of a step.
    pub(crate) fn on_step_done_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: StepDoneReport = cold::read(frame)?;
        let view = cx.view().number();
        let Some(newcomer) = &mut self.newcomer else {
            // A partition moves to this node: one at a time.
            if report.step == NewcomerStep::Copied && report.view == view {
                self.report_step(cx, report.step);
            }
            return Some(());
        };
        let counts = match report.step {
            NewcomerStep::Informed => newcomer.state == Some(MemberState::Starting),
            NewcomerStep::Copied => newcomer.state == Some(MemberState::Copying) && report.view == view,
        };
        if !counts || !newcomer.awaited.remove(&frame.sender()) {
            return Some(());
        }
        newcomer.report_progress(cx);
        if newcomer.awaited.is_empty() {
            self.report_step(cx, report.step);
        }
        Some(())
    }

    /// Reports to the president that all parts of a step are done, in this view.
    fn report_step(&self, cx: &mut Context<'_>, step: NewcomerStep) {
        let Some(president) = cx.view().president() else { return };
        let report =
            NewcomerReport { incarnation: self.settings.incarnation, step, view: cx.view().number() };
        cold::write(&mut cx.frame(SignalNumber::NewcomerReport, Self::address_of(president)), &report);
    }

    /// So much was copied to a data manager of this node.
    pub(crate) fn on_copying_report(&mut self, frame: &Frame<'_>) -> Option<()> {
        let CopyingReport { amount } = cold::read(frame)?;
        if let Some(newcomer) = &mut self.newcomer {
            newcomer.copied.insert(frame.sender(), amount);
        }
        Some(())
    }

    /// It is time to say again how far the copy is.
    pub(crate) fn on_report_timer(&mut self, cx: &mut Context<'_>) {
        let Some(newcomer) = &mut self.newcomer else { return };
        newcomer.reports += 1;
        newcomer.pace.note(cx.now().0, newcomer.amount().bytes);
        newcomer.report_progress(cx);
        if newcomer.reports.is_multiple_of(REPORTS_A_LINE) {
            newcomer.log_progress(cx);
        }
        self.report_to_president(cx);
        cx.send_after(REPORT_AGAIN, REPORT_TIMER);
    }

    /// API nodes do not know this node before it is started: the president says for it how far it is.
    fn report_to_president(&self, cx: &mut Context<'_>) {
        if let Some(newcomer) = &self.newcomer
            && let Some(president) = newcomer.president
        {
            let progress = newcomer.progress(cx.now());
            let body = NewcomerProgress { incarnation: self.settings.incarnation, progress };
            let to = Self::address_of(president);
            cold::write(&mut cx.frame(SignalNumber::NewcomerProgressReport, to), &body);
        }
    }
}
