//! Which data nodes can go on without the others: the nemesis leaves enough.
//!
//! As long as no node group is added each one keeps a data node. Partitions that move have replicas on data nodes of
//! two node groups: then it is the views that say who has what.

use crate::topology;
use crate::world::World;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_wire::view::ClusterView;

impl World {
    /// Data nodes that the cluster can do without: the others, apart from those that are to stop, can go on.
    pub(crate) fn victims(&self) -> Vec<u8> {
        let groups = self.node_groups();
        let present = self.present_views();
        (1..=groups.len() as u8)
            .filter(|&node| self.may_die(node) && self.is_alive(node))
            .filter(|&node| {
                if !self.has_started(node) {
                    return true;
                }
                if self.has_grown() {
                    return self.can_go_on(&present, |other| other != node);
                }
                let group = groups[usize::from(node - 1)];
                let members = (1..=groups.len() as u8).filter(|&n| groups[usize::from(n - 1)] == group);
                let others = members.filter(|&member| member != node && !self.stops.is_asked(member));
                others.into_iter().any(|other| self.has_started(other))
            })
            .collect()
    }

    /// Whether the data nodes that are chosen can go on, or the others.
    pub(crate) fn can_be_split(&self, chosen: &[bool]) -> bool {
        let groups = self.node_groups();
        let is_chosen = |node: u8| is_chosen(chosen, node);
        let present = self.present_views();
        let can_go_on = |side: bool| {
            if self.has_grown() {
                return self.can_go_on(&present, |node| is_chosen(node) == side);
            }
            let has = |group: u16| {
                let started = (1..=groups.len() as u8).filter(|&node| {
                    self.has_started(node) && !self.stops.is_asked(node) && is_chosen(node) == side
                });
                started.into_iter().any(|node| groups[usize::from(node) - 1] == group)
            };
            groups.iter().all(|&group| has(group))
        };
        can_go_on(true) || can_go_on(false)
    }

    /// Whether data nodes have, without the others, a replica of each partition that is not to be left out next, by all
    /// views that data nodes are in.
    fn can_go_on(&self, present: &[Arc<ClusterView>], is_left: impl Fn(u8) -> bool) -> bool {
        let goes_on =
            |node: NodeId| self.has_started(node.0) && !self.stops.is_asked(node.0) && is_left(node.0);
        present.iter().all(|view| {
            let is_kept = |&partition: &_| {
                let to_go = view.to_go(partition);
                view.partition(partition).chain.nodes().any(|node| goes_on(node) && !to_go.contains(node))
            };
            view.lack_of(goes_on).is_none() && view.leave_outs().iter().all(is_kept)
        })
    }

    /// The newest views of the data nodes that are alive.
    pub(crate) fn present_views(&self) -> Vec<Arc<ClusterView>> {
        let alive = (1..=self.alive.len() as u8).filter(|&node| self.is_alive(node));
        let view = |node: u8| match self.newest_view(node) {
            Some(view) => Some(view.clone()),
            None if self.start_of(node).is_newcomer() => None,
            None => Some(Arc::new(topology::first_view(&self.profile))),
        };
        alive.filter_map(view).collect()
    }
}

/// Whether a data node is one of those that were chosen. Some may have been added since.
pub fn is_chosen(chosen: &[bool], node: u8) -> bool {
    chosen.get(usize::from(node) - 1).copied().unwrap_or_default()
}
