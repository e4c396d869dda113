//! Which members are to go on, and whether this node is the one to begin a round about the others.

use crate::picture::{Picture, Row};
use crate::{Agreement, SILENT_INTERVALS, Timer};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Context, Span, Tick};
use vinga_wire::agreement::NodeSuspectReport;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Heartbeat intervals without anything from a member, after which it is not reached if somebody else suspects it.
const QUIET_INTERVALS: u64 = 2;

/// Heartbeat intervals for which a report counts; it is repeated in each.
const REPORT_INTERVALS: u64 = 3;

/// Heartbeat intervals for which a choice must stand before it is acted on, if not all of the set have found that they
/// do not reach the others: two members may find out about the same failure more than one interval apart.
const CHOICE_INTERVALS: u64 = 2;

/// Heartbeat intervals that each older member has to begin a round, if it does not choose as this node expects.
const TURN_INTERVALS: u64 = 4;

/// Heartbeat intervals after which a node stops if no set of members with it could go on.
const LOST_INTERVALS: u64 = 8;

/// Nodes, for people.
pub(crate) fn list(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

impl Agreement {
    fn row(&self, now: Tick) -> Row {
        Row {
            suspects: self.peers.unreached(now, self.intervals(SILENT_INTERVALS)),
            unreached: self.peers.unreached(now, self.intervals(QUIET_INTERVALS)),
        }
    }

    /// Whether this node has not run lately: what the others have sent meanwhile may lie unread in its sockets.
    fn is_behind(&self, now: Tick) -> bool {
        now.since(self.beat_due) > self.settings.heartbeat_interval
    }

    /// Reports to all whom this node does not reach.
    pub(crate) fn report(&self, cx: &mut Context<'_>) {
        let row = self.row(cx.now());
        if self.is_stopping || self.is_behind(cx.now()) || row.unreached.is_empty() {
            return;
        }
        let report = NodeSuspectReport {
            view: self.view.number(),
            suspects: row.suspects.into_iter().collect(),
            unreached: row.unreached.into_iter().collect(),
        };
        for node in self.peers.served() {
            cold::write(&mut cx.frame(SignalNumber::NodeSuspectReport, Self::address_of(node)), &report);
        }
    }

    pub(crate) fn on_node_suspect_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: NodeSuspectReport = cold::read(frame)?;
        let node = frame.sender().node();
        if report.view == self.view.number() {
            let row = Row {
                suspects: report.suspects.into_iter().collect(),
                unreached: report.unreached.into_iter().collect(),
            };
            self.reports.note(node, cx.now(), row);
            self.act(cx);
        } else {
            self.send_missed_view(cx, node, report.view.0);
        }
        Some(())
    }

    /// Does what suspicions demand.
    pub(crate) fn act(&mut self, cx: &mut Context<'_>) {
        if self.is_stopping || self.is_behind(cx.now()) {
            return;
        }
        let view = self.view.clone();
        let own = self.settings.node;
        let row = self.row(cx.now());
        let span = self.intervals(REPORT_INTERVALS);
        let picture = Picture::of(&view, (own, row.clone()), &self.reports, cx.now(), span);
        if !picture.is_anybody_suspected() {
            self.choice = None;
            return;
        }
        let is_left = |node| !self.peers.is_gone(node);
        // The president may be about to send a view in which the others can go on.
        let later_lacks = || self.growth.agreed().is_none_or(|agreed| agreed.view.lack_of(is_left).is_some());
        if let Some(lack) = view.lack_of(is_left).filter(|_| later_lacks()) {
            let failed = list(&row.suspects);
            return self.stop(cx, ErrorCode::Partitioned, format_args!("{lack} is left (failed: {failed})"));
        }
        let candidates: Vec<NodeId> = view
            .members()
            .iter()
            .map(|member| member.node)
            .filter(|&node| !self.peers.is_gone(node) && !self.peers.is_given_up(node))
            .collect();
        let candidates = picture.within_reach(own, &candidates);
        // Those that are given up may have a view that leaves others out of partitions. If all that are left have
        // agreed to it, as this node has, a set stops that lacks something there; so another one is chosen, if there
        // is one. If there is none it may be that one of them has not agreed: their round finds out.
        let later = self.growth.agreed().map(|agreed| agreed.view.clone());
        let later = later.filter(|later| view.leaves_out_in(later));
        let picture = picture.with_later(later.as_ref());
        let (picture, best) = match picture.best(&candidates) {
            None if later.is_some() => {
                let picture = picture.with_later(None);
                let best = picture.best(&candidates);
                (picture, best)
            }
            best => (picture, best),
        };
        let best = best.unwrap_or_default();
        let waited = self.note_choice(cx, &best);
        if self.leader_of(&best) == Some(own) {
            // Others may just be about to find the same, or that it is this node that does not reach anybody.
            let leaving = candidates.iter().copied().filter(|node| !best.contains(node));
            if picture.is_agreed(&best, leaving) || waited >= self.intervals(CHOICE_INTERVALS) {
                self.lead_with(cx, &best);
            }
            return;
        }
        if self.led_by.is_some_and(|leader| !row.suspects.contains(&leader)) {
            return;
        }
        self.lead_in_doubt(cx, &picture, &candidates, &best, waited);
    }

    /// The member of a set that leads: the oldest one that has started.
    fn leader_of(&self, set: &[NodeId]) -> Option<NodeId> {
        set.iter().copied().find(|&node| self.view.has_started(node))
    }

    /// Notes which members are to go on, as this node finds now; returns for how long it has found the same.
    fn note_choice(&mut self, cx: &mut Context<'_>, best: &[NodeId]) -> Span {
        match &self.choice {
            Some((since, choice)) if choice == best => cx.now().since(*since),
            Some(_) | None => {
                self.choice = Some((cx.now(), best.to_vec()));
                cx.send_after(self.intervals(CHOICE_INTERVALS), Timer::ChoiceStands.token());
                Span(0)
            }
        }
    }

    /// Others could go on, without this node or led by an older one. If they do not, this node leads those that are
    /// younger.
    fn lead_in_doubt(
        &mut self,
        cx: &mut Context<'_>,
        picture: &Picture<'_>,
        candidates: &[NodeId],
        best: &[NodeId],
        waited: Span,
    ) {
        let own = self.settings.node;
        let older: Vec<NodeId> = candidates.iter().copied().take_while(|&node| node != own).collect();
        let older: Vec<NodeId> = older.into_iter().filter(|&node| self.view.has_started(node)).collect();
        let followers: Vec<NodeId> = candidates
            .iter()
            .copied()
            .filter(|node| !older.contains(node) && !picture.are_apart(own, *node))
            .collect();
        match picture.best(&followers).filter(|set| self.leader_of(set) == Some(own)) {
            Some(set) => {
                // The one that should lead has its turn before, and each of the older ones.
                let is_younger = self.leader_of(best).is_some_and(|leader| !older.contains(&leader));
                let turns = older.len() as u64 + u64::from(is_younger);
                if waited >= self.intervals(TURN_INTERVALS * turns) {
                    self.lead_with(cx, &set);
                } else {
                    cx.mark("younger data node lets an older one lead");
                }
            }
            None if !best.contains(&own) && waited >= self.intervals(LOST_INTERVALS) => self.stop_alone(cx),
            None => {}
        }
    }

    /// Leads a round about all that are not in this set.
    fn lead_with(&mut self, cx: &mut Context<'_>, set: &[NodeId]) {
        let members = self.view.members().iter().map(|member| member.node);
        let failed: BTreeSet<NodeId> = members.filter(|node| !set.contains(node)).collect();
        if !failed.is_empty() {
            self.lead(cx, failed);
        }
    }

    /// Stops, because no set of members with this one could go on: others may run, but are not reached.
    fn stop_alone(&mut self, cx: &mut Context<'_>) {
        cx.mark("data node stopped: no set of members with it could go on");
        let suspects = self.row(cx.now()).suspects;
        let own = self.settings.node;
        let unreached = list(&suspects);
        let why = match self.view.lack_of(|node| node == own || !suspects.contains(&node)) {
            Some(lack) => format!("{lack} is reached (not reached: {unreached}; they may run)"),
            None => format!("too few data nodes reach this one and each other (not reached: {unreached})"),
        };
        self.stop(cx, ErrorCode::Partitioned, format_args!("{why}"));
    }
}
