//! What the main thread does about the links to other data nodes: it reports that they are closed, and has all threads
//! adopt a view when nothing of those that it has lost can arrive any more.
//!
//! Links are closed by the same steps as the connections of an API node ([`crate::api_nodes`]): when the last one is
//! done, every thread has handled what was read from them: perhaps that the other node has stopped in order. Agreement
//! gets its report then, or a little while after a link was found closed, should a thread be busy. If the other process
//! runs on this machine, the system says whether it has ended, which is reported at once. It closes the connections of
//! a process that ends a moment before it says so, which is why that is awaited for the same little while.

use crate::formation::{ProcessWatch, Processes};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::view::{ClusterView, ViewChange};

/// How long it may take from the end of a process's connections until the system says that it has ended, or until
/// everything is handled that was read from them, in nanoseconds.
const END_NANOS: u64 = 100_000_000;

/// How often it is asked meanwhile.
const ASK_NANOS: u64 = 500_000;

/// The other data nodes, on the main thread.
pub(crate) struct DataNodes {
    processes: Processes,
    /// Links that are closed, about which nothing was reported yet: until when it is asked whether the process has
    /// ended.
    closed: Vec<(NodeId, Incarnation, u64)>,
    /// Nodes of which nothing can arrive any more.
    drained: BTreeSet<NodeId>,
    /// The view that all threads have, or have been ordered to adopt.
    view: Arc<ClusterView>,
    /// Later ones, in their order.
    installed: VecDeque<Arc<ClusterView>>,
}

impl DataNodes {
    pub fn new(view: Arc<ClusterView>, processes: Processes) -> Self {
        DataNodes {
            processes,
            closed: Vec::new(),
            drained: BTreeSet::new(),
            view,
            installed: VecDeque::new(),
        }
    }

    /// Whether a node is a data node with which this one has begun.
    pub fn incarnation_of(&self, node: NodeId) -> Option<Incarnation> {
        let views = [&self.view].into_iter().chain(&self.installed);
        views.filter_map(|view| view.member(node)).map(|member| member.incarnation).next()
    }

    /// The links to a node are being closed.
    pub fn note_closed(&mut self, node: NodeId, now: u64) {
        if let Some(incarnation) = self.incarnation_of(node) {
            self.closed.push((node, incarnation, now + END_NANOS));
        }
    }

    /// Closed links that are to be reported now, and whether the processes have ended.
    pub fn take_closed(&mut self, now: u64) -> Vec<(NodeId, Incarnation, bool)> {
        let mut known = Vec::new();
        let (processes, drained) = (&self.processes, &self.drained);
        self.closed.retain(|&(node, incarnation, until)| {
            let process = processes.get(&node);
            let has_ended = process.is_some_and(ProcessWatch::has_ended);
            let is_elsewhere = process.is_none();
            let is_known = has_ended || is_elsewhere && drained.contains(&node) || now >= until;
            if is_known {
                known.push((node, incarnation, has_ended));
            }
            !is_known
        });
        known
    }

    /// When to look again, if something is not known yet.
    pub fn next_due(&self, now: u64) -> Option<u64> {
        (!self.closed.is_empty()).then_some(now + ASK_NANOS)
    }

    /// Nothing more can arrive from a node.
    pub fn note_drained(&mut self, node: NodeId) {
        self.drained.insert(node);
    }

    /// Agreement has installed a view.
    pub fn install(&mut self, view: ClusterView) {
        self.installed.push_back(Arc::new(view));
    }

    /// The next view that all threads can adopt.
    pub fn take_adoptable(&mut self) -> Option<Arc<ClusterView>> {
        let change = ViewChange { old: self.view.clone(), new: self.installed.front()?.clone() };
        if !change.lost().all(|member| self.drained.contains(&member.node)) {
            return None;
        }
        self.view = self.installed.pop_front()?;
        Some(self.view.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_wire::view::Member;

    fn first() -> ClusterView {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
        ClusterView::first((1..=3).map(member).collect())
    }

    #[test]
    fn a_view_is_adopted_when_nothing_of_lost_members_can_come() {
        let view = first();
        let mut nodes = DataNodes::new(Arc::new(view.clone()), Processes::new());
        let second = view.without(&[NodeId(3)]);
        let third = second.without(&[NodeId(2)]);
        nodes.install(second.clone());
        nodes.install(third.clone());
        nodes.note_drained(NodeId(2));
        assert_eq!(nodes.take_adoptable(), None, "node 3 is not drained");
        nodes.note_drained(NodeId(3));
        assert_eq!(nodes.take_adoptable().as_deref(), Some(&second));
        assert_eq!(nodes.take_adoptable().as_deref(), Some(&third));
        assert_eq!(nodes.take_adoptable(), None);
    }

    #[test]
    fn a_process_elsewhere_is_reported_as_not_known_to_have_ended_behind_what_it_has_sent() {
        let mut nodes = DataNodes::new(Arc::new(first()), Processes::new());
        nodes.note_closed(NodeId(2), 5);
        assert!(nodes.next_due(5).is_some());
        assert_eq!(nodes.take_closed(5), [], "it may have said that it has");
        nodes.note_drained(NodeId(2));
        assert_eq!(nodes.take_closed(6), [(NodeId(2), Incarnation(1), false)]);
        assert_eq!((nodes.take_closed(7), nodes.next_due(7)), (Vec::new(), None));
    }

    #[test]
    fn a_thread_that_is_busy_is_not_waited_for() {
        let mut nodes = DataNodes::new(Arc::new(first()), Processes::new());
        nodes.note_closed(NodeId(2), 5);
        assert_eq!(nodes.take_closed(4 + END_NANOS), []);
        assert_eq!(nodes.take_closed(5 + END_NANOS), [(NodeId(2), Incarnation(1), false)]);
    }
}
