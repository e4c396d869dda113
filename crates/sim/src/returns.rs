//! Data nodes that have died start again, with nothing, and join the others: the driver's part of
//! `docs/protocols/node-restart.md`.
//!
//! A node that comes back is another start of it, with the next incarnation: whatever was on the way to the one before
//! is lost. It opens links to all that live. A node accepts them when all its threads have adopted a view without the
//! earlier start, and nothing of that can come any more: so a node that comes back at once waits until the others have
//! agreed on its death. When the links between two nodes are open, the drivers of both say so to agreement, and to the
//! restart block that the other one waits to become a member, if it does.
//!
//! Data nodes that are added (`additions.rs`) join in the same way.
//!
//! A node may die again at any time. Until it has started it counts for nothing. If it has no view yet, it ends when a
//! link of it breaks: it could not join.

use crate::agenda::Time;
use crate::connection::Side;
use crate::pipe::PipeId;
use crate::profile::Fault;
use crate::thread::ThreadId;
use crate::topology;
use crate::world::{End, Event, World};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_node::NodeSettings;
use vinga_wire::agreement::LinkBody;
use vinga_wire::restart::JoiningReport;
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{BlockNumber, SignalNumber, cold};

/// One start of a data node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Start {
    pub node: u8,
    pub incarnation: u32,
}

impl Start {
    /// That of a member.
    pub fn of(member: &Member) -> Self {
        Start { node: member.node.0, incarnation: member.incarnation.0 }
    }

    /// What a view says of it.
    pub fn member_of(self, view: &ClusterView) -> Option<&Member> {
        view.members().iter().find(|member| Start::of(member) == self)
    }

    pub fn is_member(self, view: &ClusterView) -> bool {
        self.member_of(view).is_some()
    }

    /// Whether it is not the first one, which only those have that are there from the beginning: it joins.
    pub fn is_newcomer(self) -> bool {
        self.incarnation > 1
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_newcomer() {
            write!(f, "{} (start {})", self.node, self.incarnation)
        } else {
            write!(f, "{}", self.node)
        }
    }
}

/// Data nodes that come back.
pub struct Returns {
    random: Rng,
    /// Dead ones that are going to start again.
    pending: BTreeSet<u8>,
    /// How often nodes may still come back.
    left: u32,
    /// How often they have.
    count: u32,
    /// No links open before: the network does not carry everything.
    links_from: Time,
}

/// How often data nodes come back in a run without any that are added, at most.
const RETURNS_MAX: u32 = 12;

impl Returns {
    /// For a seed; so many data nodes are added. They end often before they can join.
    pub fn new(seed: u64, added: usize) -> Self {
        Returns {
            random: Rng::with_seed(seed ^ 0x7265_7475_726e),
            pending: BTreeSet::new(),
            left: RETURNS_MAX + 3 * added as u32,
            count: 0,
            links_from: 0,
        }
    }

    /// Whether a data node is going to start again.
    pub fn is_pending(&self, node: u8) -> bool {
        self.pending.contains(&node)
    }

    /// Whether some data node is.
    pub fn is_anybody_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nobody comes back any more who dies from now on.
    pub fn end(&mut self) {
        self.left = 0;
    }

    /// Nothing passes between some data nodes until then.
    pub fn hold_links(&mut self, until: Time) {
        self.links_from = self.links_from.max(until);
    }
}

impl World {
    /// The present start of a data node, or the last one if it is dead.
    pub(crate) fn start_of(&self, node: u8) -> Start {
        Start { node, incarnation: self.starts_of_nodes[usize::from(node) - 1].incarnation }
    }

    /// Whether this very start of a data node is alive.
    pub(crate) fn is_running(&self, start: Start) -> bool {
        self.is_alive(start.node) && self.start_of(start.node) == start
    }

    /// Whether a data node takes part in everything: then clients can reach it, too.
    pub(crate) fn has_started(&self, node: u8) -> bool {
        self.is_alive(node) && self.starts_of_nodes[usize::from(node) - 1].is_started
    }

    /// Whether clients can connect to a data node.
    pub(crate) fn lets_in(&self, node: u8) -> bool {
        self.has_started(node) && !self.stops.is_ending(node)
    }

    /// Whether a data node is on its way to take part, or is going to be.
    pub(crate) fn is_anybody_starting(&self) -> bool {
        // Those with disks all start again, those without only if they come back.
        let is_starting = |node: u8| {
            let has_started = self.starts_of_nodes[usize::from(node) - 1].is_started;
            !has_started && (self.profile.log.is_some() || self.is_alive(node))
        };
        !self.returns.pending.is_empty()
            || self.additions.are_under_way()
            || (1..=self.alive.len() as u8).any(is_starting)
    }

    /// Whether a data node leads the cluster, or may have before.
    pub(crate) fn may_have_led(&self, node: u8) -> bool {
        self.returns.count > 0 || self.has_grown() || node <= self.president()
    }

    /// The links from one data node to another, if they are open.
    pub(crate) fn links_between(&self, from: u8, to: u8) -> Vec<PipeId> {
        self.links.range((from, to, 0)..=(from, to, u16::MAX)).map(|(_, &pipe)| pipe).collect()
    }

    /// The links from a start of a data node, which may be no more, to another one.
    pub(crate) fn links_from_start(&self, from: Start, to: u8) -> Vec<PipeId> {
        if self.start_of(from.node) == from {
            return self.links_between(from.node, to);
        }
        self.past_links.get(&(from, to)).cloned().unwrap_or_default()
    }

    /// What a node is configured with that starts again.
    pub(crate) fn returning(&self, settings: NodeSettings) -> NodeSettings {
        let incarnation = Incarnation(self.start_of(settings.node.0).incarnation + 1);
        // It gets to know the epoch as a member.
        NodeSettings { incarnation, epoch: Epoch(1), ..settings }
    }

    /// A data node has died: it may come back.
    pub(crate) fn plan_return(&mut self, node: u8) {
        if !self.profile.faults.contains(&Fault::ReturnNode) || self.alive.len() < 2 || self.returns.left == 0
        {
            return;
        }
        self.returns.left -= 1;
        let (interval, fault_time) = (self.profile.node_heartbeat_interval, self.profile.fault_time);
        let is_soon = self.profile.faults.contains(&Fault::JoinPoint);
        let random = &mut self.returns.random;
        let pause = match random.u8(..4) {
            1..4 if is_soon => random.u64(..interval * 4),
            // Before the others know.
            0 => random.u64(..interval),
            1 => random.u64(..interval * 16),
            _ => random.u64(..fault_time / 4),
        };
        self.returns.pending.insert(node);
        self.agenda.enter(self.now() + pause, Event::ReturnNode(node));
    }

    /// A data node starts again, unless there is no cluster any more that it could join.
    pub(crate) fn on_return(&mut self, node: u8) {
        self.returns.pending.remove(&node);
        if !self.is_anybody_there() {
            return;
        }
        self.returns.count += 1;
        self.retire(node);
        self.join(node);
    }

    /// Whether there is a cluster.
    pub(crate) fn is_anybody_there(&self) -> bool {
        (1..=self.alive.len() as u8).any(|node| self.has_started(node))
    }

    /// A data node starts with nothing, and is to join the others.
    pub(crate) fn join(&mut self, node: u8) {
        self.start_node(node, &Arc::new(ClusterView::default())).expect("there are no files");
        self.alive[usize::from(node) - 1] = true;
        let start = self.start_of(node);
        self.note(|| format!("data node {start} starts"));
        self.make_rings(node);
        for index in 0..self.profile.threads {
            let at = self.now() + self.returns.random.u64(..100);
            self.wake_thread(self.thread_of(node, index), at);
        }
        for other in (1..=self.alive.len() as u8).filter(|&other| other != node) {
            if self.is_alive(other) {
                self.plan_links(start, self.start_of(other));
            }
        }
    }

    /// Nothing reaches an earlier start of a data node any more. Others may still read what it has sent.
    fn retire(&mut self, node: u8) {
        let old = self.start_of(node);
        self.rings.retain(|(from, _), pipe| {
            let is_of = self.threads[from.0].node == node;
            if is_of {
                self.ends[pipe.0] = End::Gone;
            }
            !is_of
        });
        for other in (1..=self.alive.len() as u8).filter(|&other| other != node) {
            for pipe in self.links_between(other, node) {
                self.ends[pipe.0] = End::Gone;
            }
            let sent = self.links_between(node, other);
            if !sent.is_empty() {
                self.past_links.insert((old, other), sent);
            }
        }
        // Others that have come back since may have left something on its way.
        for (_, pipes) in self.past_links.iter().filter(|((_, to), _)| *to == node) {
            for pipe in pipes {
                self.ends[pipe.0] = End::Gone;
            }
        }
        self.links.retain(|&(from, to, _), _| from != node && to != node);
        self.past_links.retain(|&(_, to), _| to != node);
        self.agreed.forget(node);
        // The machine says that nobody has these connections.
        for down in self.close_client_connections(node) {
            self.break_pipe(down);
        }
    }

    /// A data node that has ended has no connections of API nodes any more. Returns the ways to these nodes that had
    /// not ended before.
    pub(crate) fn close_client_connections(&mut self, node: u8) -> Vec<PipeId> {
        let mut ways = Vec::new();
        for it in self.connections.iter_mut().filter(|it| it.link.node == node) {
            if !std::mem::replace(&mut it.side, Side::Closed).has_ended() {
                self.ends[it.up.0] = End::Gone;
                ways.push(it.down);
            }
        }
        ways
    }

    fn plan_links(&mut self, newcomer: Start, other: Start) {
        let pause = self.returns.random.u64(..self.profile.node_heartbeat_interval);
        let at = (self.now() + pause).max(self.returns.links_from);
        self.agenda.enter(at, Event::OpenLinks(newcomer, other));
    }

    /// The links between a data node that has come back and another one open, if both want it.
    pub(crate) fn on_open_links(&mut self, newcomer: Start, other: Start) {
        if !self.is_running(newcomer) || !self.is_running(other) {
            return;
        }
        let is_held = self.now() < self.returns.links_from;
        if is_held || !self.is_done_with(other.node, newcomer) || !self.is_done_with(newcomer.node, other) {
            return self.plan_links(newcomer, other);
        }
        for (own, peer) in [(other, newcomer), (newcomer, other)] {
            self.make_links(peer.node, own.node);
            for index in 0..self.profile.threads {
                let ThreadId(at) = self.thread_of(own.node, index);
                self.threads[at].open_node_lane(peer.node);
            }
        }
        self.note(|| format!("links between data nodes {newcomer} and {other} are open"));
        self.report_opened(other, newcomer);
        self.report_opened(newcomer, other);
    }

    /// Whether a data node has nothing to do any more with earlier starts of another one.
    fn is_done_with(&self, node: u8, peer: Start) -> bool {
        let threads: Vec<ThreadId> = (0..self.profile.threads).map(|i| self.thread_of(node, i)).collect();
        for incarnation in 1..peer.incarnation {
            let earlier = Start { incarnation, ..peer };
            if !self.past_links.contains_key(&(earlier, node)) {
                continue;
            }
            let connections = self.profile.connections;
            if !threads.iter().all(|&id| self.agreed.has_markers(id, node, earlier, connections)) {
                return false;
            }
        }
        let id = NodeId(peer.node);
        // A thread that is some views behind may still adopt one with an earlier start, and handle what that has sent.
        // (A real one adopts it before it closes the links to that start.)
        threads.iter().all(|thread| {
            let view = self.threads[thread.0].executor.view();
            !view.has(id) && !self.agreed.is_in_later_view(node, id, view.number())
        })
    }

    /// Whether a start of a data node is a member, as far as the driver of another one knows.
    fn is_member_at(&self, node: u8, other: Start) -> bool {
        match self.agreed.newest(node) {
            Some(view) => other.is_member(view),
            None => !self.start_of(node).is_newcomer() && !other.is_newcomer(),
        }
    }

    /// Whether a data node waits for its first view.
    fn has_no_view(&self, start: Start) -> bool {
        start.is_newcomer() && self.agreed.newest(start.node).is_none()
    }

    /// The drivers of a data node say that the links to another one are open.
    fn report_opened(&mut self, own: Start, peer: Start) {
        let id = self.thread_of(own.node, 0);
        let (node, incarnation) = (NodeId(peer.node), Incarnation(peer.incarnation));
        let link = LinkBody { node, incarnation, is_gone: false };
        self.notify_agreement(id, SignalNumber::LinkOpenedReport, |frame| cold::write(frame, &link));
        if self.has_no_view(peer) {
            let settings = topology::settings(&self.profile, peer.node, None);
            let member = NodeSettings { incarnation, ..settings }.member();
            let report = JoiningReport { member };
            self.notify_block(id, BlockNumber::Restart, SignalNumber::JoiningReport, |frame| {
                cold::write(frame, &report);
            });
        }
    }

    /// A data node has found its links to another one closed, of which one may not be a member.
    pub(crate) fn on_newcomer_link_end(&mut self, node: u8, other: Start) {
        if !self.end_if_it_has_no_view(node) && !self.is_member_at(node, other) {
            // Agreement orders that for members only.
            self.close_link(node, other);
        }
    }

    /// A data node that waits for its first view ends when a link of it is closed; says whether it is one. (A process
    /// would look for the others again.)
    pub(crate) fn end_if_it_has_no_view(&mut self, node: u8) -> bool {
        let own = self.start_of(node);
        let waits = self.has_no_view(own);
        if waits {
            self.agenda.enter(self.now(), Event::NodeEnds(own));
        }
        waits
    }

    /// The process of a data node ends that can't join this time.
    pub(crate) fn on_node_ends(&mut self, start: Start) {
        if self.is_running(start) {
            self.note(|| format!("data node {start} ends: a link has broken before it could join"));
            self.kill_node(start.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, run_seed};

    #[test]
    fn a_data_node_that_comes_back_is_sent_all_rows_and_starts_if_that_is_asked_for() {
        let is_copied = |returning_nodes: bool| {
            let report = run_seed(10, &Options { returning_nodes, ..Options::default() });
            assert_eq!(report.violation, None);
            report.marks.contains("copy of a partition is complete")
        };
        assert!(is_copied(true));
        assert!(!is_copied(false));
    }
}
