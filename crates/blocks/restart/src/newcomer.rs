//! A node that joins: it reports to the president what its blocks have done.

use crate::Restart;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Context, LogLevel, Tick};
use vinga_wire::restart::{NewcomerReport, NewcomerStep, StepDoneReport};
use vinga_wire::start::{NodeStartedOrder, PhaseTime, StartProgressReport};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// A node on its way to a full member.
pub(crate) struct Newcomer {
    /// The president that it was sent its first view by.
    president: Option<NodeId>,
    /// How far it has come; `None` before its first view.
    state: Option<MemberState>,
    /// Blocks of this node that have not done their part of the present step.
    awaited: BTreeSet<Address>,
    phase_begun: Tick,
    finished: Vec<PhaseTime>,
}

/// What is done until a state ends, for people.
fn work(state: Option<MemberState>) -> &'static str {
    match state {
        None => "join the cluster",
        Some(MemberState::Starting) => "learn which tables and clients there are",
        Some(MemberState::Copying) => "copy rows",
        Some(MemberState::Started) => "started",
    }
}

impl Newcomer {
    pub fn new(cx: &mut Context<'_>) -> Self {
        let newcomer = Newcomer {
            president: None,
            state: None,
            awaited: BTreeSet::new(),
            phase_begun: cx.now(),
            finished: Vec::new(),
        };
        newcomer.report_progress(cx);
        newcomer
    }

    /// The node goes on to another state.
    fn enter(&mut self, cx: &mut Context<'_>, state: MemberState) {
        let micros = cx.now().since(self.phase_begun).0;
        let done = work(self.state);
        cx.log(LogLevel::Info, format_args!("{done}: {}.{:03} s", micros / 1_000_000, micros / 1000 % 1000));
        self.finished.push(PhaseTime { work: done.into(), micros });
        (self.state, self.phase_begun) = (Some(state), cx.now());
        self.awaited.clear();
    }

    fn report_progress(&self, cx: &mut Context<'_>) {
        let report = StartProgressReport {
            phase: work(self.state).into(),
            asked: 0,
            awaited: self.awaited.len() as u32,
            rows: 0,
            batches: 0,
            epoch: 0,
            finished: self.finished.clone(),
        };
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::StartProgressReport, driver), &report);
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
            }
        }
        if state == MemberState::Copying {
            // A copy counts in a view, and each data manager says so in each.
            let data_managers = change.new.addresses(BlockNumber::DataManager);
            newcomer.awaited = data_managers.filter(|one| one.node() == node).collect();
        }
        newcomer.report_progress(cx);
        if state == MemberState::Started {
            self.newcomer = None;
            let order = NodeStartedOrder { restored: None, from: Vec::new() };
            let driver = cx.driver();
            cold::write(&mut cx.frame(SignalNumber::NodeStartedOrder, driver), &order);
        }
    }

    /// A block of this node has done its part of a step.
    pub(crate) fn on_step_done_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: StepDoneReport = cold::read(frame)?;
        let view = cx.view().number();
        let Some(newcomer) = &mut self.newcomer else { return Some(()) };
        let counts = match report.step {
            NewcomerStep::Informed => newcomer.state == Some(MemberState::Starting),
            NewcomerStep::Copied => newcomer.state == Some(MemberState::Copying) && report.view == view,
        };
        if !counts || !newcomer.awaited.remove(&frame.sender()) {
            return Some(());
        }
        newcomer.report_progress(cx);
        if newcomer.awaited.is_empty()
            && let Some(president) = newcomer.president
        {
            let incarnation = self.settings.incarnation;
            let report = NewcomerReport { incarnation, step: report.step, view };
            cold::write(&mut cx.frame(SignalNumber::NewcomerReport, Self::address_of(president)), &report);
        }
        Some(())
    }
}
