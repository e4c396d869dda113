//! What the main thread does about the links to other data nodes: it reports that they are closed, and has all threads
//! adopt a view when nothing of those that it has lost can arrive any more.
//!
//! Links are closed by the same steps as the connections of an API node ([`crate::api_nodes`]): when the last one is
//! done, every thread has handled what was read from them: perhaps that the other node has stopped in order. Agreement
//! gets its report then, or a little while after a link was found closed, should a thread be busy. If the other process
//! runs on this machine, the system says whether it has ended, which is reported at once. It closes the connections of
//! a process that ends a moment before it says so, which is why that is awaited for the same little while.

use crate::formation::{Linked, ProcessWatch};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vinga_base::{Incarnation, NodeId, ViewNumber};
use vinga_wire::view::{ClusterView, Member, ViewChange};

/// How long it may take from the end of a process's connections until the system says that it has ended, or until
/// everything is handled that was read from them, in nanoseconds.
const END_NANOS: u64 = 100_000_000;

/// How often it is asked meanwhile.
const ASK_NANOS: u64 = 500_000;

/// The other data nodes, on the main thread.
pub(crate) struct DataNodes {
    /// Those of which something may arrive: links to them are open, or are being closed. One start of each at a time.
    linked: BTreeMap<NodeId, Incarnation>,
    /// The processes of those to which links are open, as far as they can be watched.
    processes: BTreeMap<NodeId, ProcessWatch>,
    /// Links that are closed, about which nothing was reported yet.
    closed: Vec<Closed>,
    /// The members of the cluster that this node joins, as long as it is none itself.
    joins: Vec<NodeId>,
    /// The view that all threads have, or have been ordered to adopt.
    view: Arc<ClusterView>,
    /// Later ones, in their order.
    installed: VecDeque<Arc<ClusterView>>,
}

/// A start of a data node to which the links are closed.
struct Closed {
    node: NodeId,
    incarnation: Incarnation,
    process: Option<ProcessWatch>,
    /// Until when it is asked whether the process has ended.
    until: u64,
}

impl DataNodes {
    /// With this view the threads begin. If it has no members, this node joins the cluster of these.
    pub fn new(view: Arc<ClusterView>, joins: Vec<NodeId>) -> Self {
        DataNodes {
            // The node begins with links to all other members: these may come a moment later.
            linked: view.members().iter().map(Member::identity).collect(),
            processes: BTreeMap::new(),
            closed: Vec::new(),
            joins,
            view,
            installed: VecDeque::new(),
        }
    }

    /// All links to a data node are open. Returns whether that is to be reported: it is a member of no view, or this
    /// node has none yet.
    pub fn note_linked(&mut self, linked: Linked) -> Option<Member> {
        let Linked { member, process } = linked;
        self.linked.insert(member.node, member.incarnation);
        self.processes.extend(process.map(|process| (member.node, process)));
        let is_member = self.is_member(&member);
        (!is_member).then_some(member)
    }

    /// Whether the newest view has another start of this node: then these links must not stay. A view that comes behind
    /// links finds that out itself ([`DataNodes::install`]).
    pub fn is_wrong(&self, member: &Member) -> bool {
        let newest = self.installed.back().unwrap_or(&self.view);
        newest.member(member.node).is_some_and(|own| own.identity() != member.identity())
    }

    fn is_member(&self, member: &Member) -> bool {
        let mut views = [&self.view].into_iter().chain(&self.installed);
        views.any(|view| view.member(member.node).is_some_and(|own| own.identity() == member.identity()))
    }

    /// Whether a node is a data node of which something may arrive.
    pub fn is_linked(&self, node: NodeId) -> bool {
        self.linked.contains_key(&node)
    }

    /// The links to a node are being closed. Returns whether this node can't join any more for that: a member of the
    /// cluster is lost before it has a view.
    pub fn note_closed(&mut self, node: NodeId, now: u64) -> bool {
        let Some(&incarnation) = self.linked.get(&node) else { return false };
        if self.closed.iter().any(|closed| (closed.node, closed.incarnation) == (node, incarnation)) {
            return false;
        }
        let process = self.processes.remove(&node);
        self.closed.push(Closed { node, incarnation, process, until: now + END_NANOS });
        self.view.number() == ViewNumber(0) && self.installed.is_empty() && self.joins.contains(&node)
    }

    /// Closed links to a node that are still to be reported, and whether the processes have ended: it has opened
    /// others, and what is reported of those comes behind.
    pub fn take_closed_of(&mut self, node: NodeId) -> Vec<(NodeId, Incarnation, bool)> {
        let closed = self.closed.extract_if(.., |closed| closed.node == node);
        let has_ended = |process: Option<ProcessWatch>| process.is_some_and(|process| process.has_ended());
        closed
            .map(|Closed { node, incarnation, process, .. }| (node, incarnation, has_ended(process)))
            .collect()
    }

    /// Closed links that are to be reported now, and whether the processes have ended.
    pub fn take_closed(&mut self, now: u64) -> Vec<(NodeId, Incarnation, bool)> {
        let mut known = Vec::new();
        let linked = &self.linked;
        self.closed.retain(|&Closed { node, incarnation, ref process, until }| {
            let has_ended = process.as_ref().is_some_and(ProcessWatch::has_ended);
            let is_drained = linked.get(&node) != Some(&incarnation);
            let is_known = has_ended || process.is_none() && is_drained || now >= until;
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

    /// Nothing more can arrive from a node, until another start of it, or the same, is linked.
    pub fn note_drained(&mut self, node: NodeId) {
        self.linked.remove(&node);
    }

    /// Agreement has installed a view. Returns the links that must not stay: to other starts of its members. Members
    /// that have joined with it, and whose links were closed before it came, are reported once more.
    pub fn install(&mut self, view: ClusterView, now: u64) -> Vec<(NodeId, Incarnation)> {
        let last = self.installed.back().unwrap_or(&self.view).clone();
        let had_view = last.number() > ViewNumber(0);
        let was_member =
            |member: &Member| last.members().iter().any(|one| one.identity() == member.identity());
        let mut wrong = Vec::new();
        for member in view.members() {
            let (node, incarnation) = member.identity();
            match self.linked.get(&node) {
                Some(&present) if present != incarnation => wrong.push((node, present)),
                _ => {}
            }
            let is_lost = self.linked.get(&node) != Some(&incarnation);
            // This node itself has no links, and is a member from its first view on.
            if had_view && is_lost && !was_member(member) {
                self.closed.push(Closed { node, incarnation, process: None, until: now });
            }
        }
        self.installed.push_back(Arc::new(view));
        wrong
    }

    /// The next view that all threads can adopt.
    pub fn take_adoptable(&mut self) -> Option<Arc<ClusterView>> {
        let change = ViewChange { old: self.view.clone(), new: self.installed.front()?.clone() };
        if change.lost().any(|member| self.linked.get(&member.node) == Some(&member.incarnation)) {
            return None;
        }
        self.view = self.installed.pop_front()?;
        Some(self.view.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u8, incarnation: u32) -> Member {
        Member::started(NodeId(node), Incarnation(incarnation), 0, 1, 1)
    }

    fn first() -> ClusterView {
        ClusterView::first((1..=3).map(|node| member(node, 1)).collect())
    }

    fn link(nodes: &mut DataNodes, node: u8, incarnation: u32) -> bool {
        nodes.note_linked(Linked { member: member(node, incarnation), process: None }).is_some()
    }

    /// Node 1, with links to the others.
    fn begun(view: &ClusterView) -> DataNodes {
        let mut nodes = DataNodes::new(Arc::new(view.clone()), Vec::new());
        assert!(!link(&mut nodes, 2, 1) && !link(&mut nodes, 3, 1), "they are members");
        nodes
    }

    #[test]
    fn a_view_is_adopted_when_nothing_of_lost_members_can_come() {
        let view = first();
        let mut nodes = begun(&view);
        let second = view.without(&[NodeId(3)]);
        let third = second.without(&[NodeId(2)]);
        assert_eq!((nodes.install(second.clone(), 1), nodes.install(third.clone(), 1)), (vec![], vec![]));
        nodes.note_drained(NodeId(2));
        assert_eq!(nodes.take_adoptable(), None, "node 3 is not drained");
        nodes.note_drained(NodeId(3));
        assert_eq!(nodes.take_adoptable().as_deref(), Some(&second));
        assert_eq!(nodes.take_adoptable().as_deref(), Some(&third));
        assert_eq!(nodes.take_adoptable(), None);
    }

    /// The links of the formation may come behind the view.
    #[test]
    fn a_view_is_not_adopted_before_the_links_to_lost_members_have_come_and_gone() {
        let mut nodes = DataNodes::new(Arc::new(first()), Vec::new());
        let second = first().without(&[NodeId(3)]);
        assert_eq!(nodes.install(second.clone(), 1), []);
        assert_eq!(nodes.take_adoptable(), None, "they are still to come");
        assert!(!link(&mut nodes, 3, 1));
        assert_eq!(nodes.take_adoptable(), None);
        nodes.note_closed(NodeId(3), 2);
        nodes.note_drained(NodeId(3));
        assert_eq!(nodes.take_adoptable().as_deref(), Some(&second));
    }

    /// What is known of one start says nothing of the next.
    #[test]
    fn a_node_comes_back_and_is_lost_any_number_of_times() {
        let mut view = first();
        let mut nodes = begun(&view);
        for start in 1..4 {
            let now = u64::from(start) * 10;
            assert!(!nodes.note_closed(NodeId(3), now));
            assert_eq!(nodes.take_closed(now), []);
            view = view.without(&[NodeId(3)]);
            assert_eq!(nodes.install(view.clone(), now), []);
            assert_eq!(nodes.take_adoptable(), None, "it is not drained in this start");
            nodes.note_drained(NodeId(3));
            assert_eq!(nodes.take_closed(now), [(NodeId(3), Incarnation(start), false)]);
            assert_eq!(nodes.take_adoptable().as_deref(), Some(&view));
            assert!(link(&mut nodes, 3, start + 1), "it is no member");
            view = view.with_joined(member(3, start + 1));
            assert_eq!(nodes.install(view.clone(), now), []);
            assert_eq!(nodes.take_adoptable().as_deref(), Some(&view), "nobody is lost");
            assert_eq!(nodes.take_closed(now), []);
        }
    }

    #[test]
    fn a_view_with_one_that_was_lost_before_is_known_to_lack_it() {
        let without = first().without(&[NodeId(3)]);
        let mut nodes = DataNodes::new(Arc::new(without.clone()), Vec::new());
        link(&mut nodes, 2, 1);
        link(&mut nodes, 3, 3);
        let wrong = nodes.install(without.with_joined(member(3, 2)), 1);
        assert_eq!(wrong, [(NodeId(3), Incarnation(3))], "another start has come");
        nodes.note_closed(NodeId(3), 1);
        nodes.note_drained(NodeId(3));
        let closed = nodes.take_closed(1);
        assert_eq!(closed, [(NodeId(3), Incarnation(2), false), (NodeId(3), Incarnation(3), false)]);
    }

    /// The same in the other order.
    #[test]
    fn links_to_another_start_than_that_of_the_newest_view_do_not_stay() {
        let without = first().without(&[NodeId(3)]);
        let mut nodes = DataNodes::new(Arc::new(without.clone()), Vec::new());
        assert_eq!(nodes.install(without.with_joined(member(3, 2)), 1), []);
        link(&mut nodes, 3, 3);
        assert!(nodes.is_wrong(&member(3, 3)), "another start has come");
        assert!(!nodes.is_wrong(&member(3, 2)) && !nodes.is_wrong(&member(2, 1)));
        nodes.note_closed(NodeId(3), 1);
        nodes.note_drained(NodeId(3));
        nodes.install(without, 2);
        assert!(!nodes.is_wrong(&member(3, 3)), "it was left out again");
    }

    #[test]
    fn a_node_without_a_view_cannot_lose_members() {
        let mut nodes = DataNodes::new(Arc::default(), vec![NodeId(1)]);
        assert!(link(&mut nodes, 1, 1) && link(&mut nodes, 3, 1));
        assert!(!nodes.note_closed(NodeId(3), 1), "it joins, too");
        assert!(nodes.note_closed(NodeId(1), 1));
    }

    #[test]
    fn a_process_elsewhere_is_reported_as_not_known_to_have_ended_behind_what_it_has_sent() {
        let mut nodes = begun(&first());
        nodes.note_closed(NodeId(2), 5);
        assert!(nodes.next_due(5).is_some());
        assert_eq!(nodes.take_closed(5), [], "it may have said that it has");
        nodes.note_drained(NodeId(2));
        assert_eq!(nodes.take_closed(6), [(NodeId(2), Incarnation(1), false)]);
        assert_eq!((nodes.take_closed(7), nodes.next_due(7)), (Vec::new(), None));
    }

    #[test]
    fn a_thread_that_is_busy_is_not_waited_for() {
        let mut nodes = begun(&first());
        nodes.note_closed(NodeId(2), 5);
        assert_eq!(nodes.take_closed(4 + END_NANOS), []);
        assert_eq!(nodes.take_closed(5 + END_NANOS), [(NodeId(2), Incarnation(1), false)]);
    }
}
