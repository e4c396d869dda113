//! What becomes of the rows of partitions: a change is answered when all that are replicas in the primary's view have
//! it. Whoever is a replica in a later view must have it, too.

use super::Network;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::{Incarnation, NodeId};
use vinga_wire::view::{ClusterView, Member, MemberState, Partition};

/// A start of a data node.
type Identity = (NodeId, Incarnation);

/// The changes of all partitions that were answered.
pub struct Rows {
    /// How many, by partition.
    changes: Vec<u64>,
    /// How many of them a data node has.
    known: BTreeMap<(Identity, usize), u64>,
    /// Those that had all rows in a view that somebody has installed.
    complete: BTreeSet<Identity>,
    /// Those that are being sent a partition, which are complete otherwise.
    fresh: BTreeSet<(Identity, usize)>,
}

fn identity(view: &ClusterView, node: NodeId) -> Identity {
    view.member(node).expect("a replica is a member").identity()
}

impl Rows {
    /// Before the first change.
    pub fn of(view: &ClusterView) -> Self {
        let changes = vec![0; view.partitions().len()];
        let mut rows =
            Rows { changes, known: BTreeMap::new(), complete: BTreeSet::new(), fresh: BTreeSet::new() };
        rows.begin_view(view);
        rows
    }

    /// Somebody is the first to install a view: its replicas have all that was answered. How rows are copied is no part
    /// of this model: whoever is being sent them has them at once.
    pub fn begin_view(&mut self, view: &ClusterView) {
        for (at, partition) in view.partitions().iter().enumerate() {
            for node in partition.copying.nodes() {
                self.known.insert((identity(view, node), at), self.changes[at]);
                self.fresh.insert((identity(view, node), at));
            }
            for node in partition.chain.nodes() {
                let one = identity(view, node);
                if self.fresh.remove(&(one, at)) || !self.complete.contains(&one) {
                    self.known.insert((one, at), self.changes[at]);
                }
                let (number, known) = (view.number(), self.known[&(one, at)]);
                assert_eq!(known, self.changes[at], "in view {number} node {node} has partition {at}");
            }
        }
        self.complete.extend(view.started().map(Member::identity));
    }
}

/// Whoever was a replica once and then was not lacks changes: it is none in a later view. `before` is an earlier view.
/// Where partitions move, it may have been sent the rows since: there [`Rows::begin_view`] checks what it has.
pub fn check_chains(before: &ClusterView, view: &ClusterView) {
    if view.groups() > view.homes() {
        return;
    }
    for (at, (old, new)) in before.partitions().iter().zip(view.partitions()).enumerate() {
        for node in new.chain.nodes() {
            let one = identity(view, node);
            let earlier = before.members().iter().find(|member| member.identity() == one);
            let has_come = earlier
                .is_none_or(|member| matches!(member.state, MemberState::Starting | MemberState::Copying));
            let (first, second) = (before.number(), view.number());
            assert!(
                has_come || old.chain.contains(node),
                "view {first} leaves node {node} out of partition {at}, of which it is a replica in view {second}"
            );
        }
    }
}

impl Network {
    /// Partitions change, each whose primary may answer API nodes, and reaches all replicas, which are in its view.
    pub(super) fn change_rows(&mut self) {
        let runs = |id: u8| {
            let node = &self.nodes[&id];
            node.is_alive && node.stopped.is_none() && node.stalled_until <= self.now
        };
        let mut changed: Vec<(usize, ClusterView)> = Vec::new();
        for (&id, node) in &self.nodes {
            let is_adopted = node.driver_view == node.view.number().0;
            if !runs(id) || !is_adopted || node.lease <= self.now * 1000 {
                continue;
            }
            let agrees = |other: NodeId| {
                let is_open = |pair| {
                    !self.cut.contains(&pair)
                        && !self.broken.contains(&pair)
                        && !self.closed.contains_key(&pair)
                };
                let is_reached = other.0 == id || is_open((id, other.0)) && is_open((other.0, id));
                is_reached && runs(other.0) && self.nodes[&other.0].view == node.view
            };
            let is_changed =
                |one: &Partition| one.chain.primary() == NodeId(id) && one.replicas().nodes().all(agrees);
            let own = node.view.partitions().iter().enumerate().filter(|(_, one)| is_changed(one));
            changed.extend(own.map(|(at, _)| (at, node.view.clone())));
        }
        for (at, view) in changed {
            self.rows.changes[at] += 1;
            for node in view.partitions()[at].replicas().nodes() {
                self.rows.known.insert((identity(&view, node), at), self.rows.changes[at]);
            }
        }
    }
}
