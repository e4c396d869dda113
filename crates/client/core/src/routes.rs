//! Where operations go: from a partition to the connection that leads straight to the owner of the row, and to the
//! coordinator beside it.

use crate::link::LinkId;
use alloc::vec::Vec;
use vinga_base::time::Tick;
use vinga_base::{NodeId, PartitionId};
use vinga_wire::take_over::CoordinatorName;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber};

/// Index of a coordinator in the client's list ([`crate::outcomes`]), which only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoordinatorIndex(pub u16);

/// The way to one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The data manager that answers for it.
    pub data_manager: Address,
    /// The connection to the thread that hosts it; `None` while its node is not connected.
    pub link: Option<LinkId>,
    /// A coordinator on the same thread, else some other of the same node.
    pub coordinator: Option<CoordinatorIndex>,
    /// Until when a connection may be hoped for, while there is none.
    pub awaited_until: Tick,
}

/// For each partition the connection to its owner and a coordinator beside it.
#[derive(Default)]
pub struct PartitionRoutes {
    view: ClusterView,
    partitions: Vec<Route>,
    /// Whether the owners of all partitions are connected.
    is_whole: bool,
    reachable: Vec<CoordinatorIndex>,
    next: usize,
}

impl PartitionRoutes {
    /// Adopts a view if it is newer than the one that is known.
    pub fn adopt(&mut self, view: ClusterView) {
        if view.number() > self.view.number() {
            self.view = view;
        }
    }

    /// The cluster has been restarted: the view that is known is not one of it.
    pub fn forget(&mut self) {
        self.view = ClusterView::default();
    }

    /// Finds all ways again. `link` says which connection leads to a thread of a node, `awaited` until when one to a
    /// node may be hoped for, `coordinator` the index of a coordinator that is reached by it.
    pub fn rebuild(
        &mut self,
        mut link: impl FnMut(NodeId, u16) -> Option<LinkId>,
        awaited: impl Fn(NodeId) -> Tick,
        mut coordinator: impl FnMut(CoordinatorName, LinkId) -> CoordinatorIndex,
    ) {
        self.partitions.clear();
        self.reachable.clear();
        let mut coordinators: Vec<(NodeId, u16, CoordinatorIndex)> = Vec::new();
        for member in self.view.members() {
            let id = member.node;
            for (connection, hosts) in member.connections.iter().enumerate() {
                let Some(to) = link(id, connection as u16) else { continue };
                for &instance in &hosts.coordinators {
                    let address = Address::new(id, BlockNumber::Coordinator, instance);
                    let index = coordinator(CoordinatorName { address, incarnation: member.incarnation }, to);
                    coordinators.push((id, connection as u16, index));
                    self.reachable.push(index);
                }
            }
        }
        for partition in self.view.partitions() {
            let data_manager = partition.primary();
            let node = data_manager.node();
            let connection = self.connection_of(data_manager);
            // Several coordinators on that thread share its partitions.
            let beside: Vec<_> =
                coordinators.iter().filter(|(n, c, _)| *n == node && Some(*c) == connection).collect();
            let anywhere: Vec<_> = coordinators.iter().filter(|(n, _, _)| *n == node).collect();
            let choice = if beside.is_empty() { anywhere } else { beside };
            self.partitions.push(Route {
                data_manager,
                link: connection.and_then(|connection| link(node, connection)),
                coordinator: choice
                    .get(usize::from(partition.owner.instance()) % choice.len().max(1))
                    .map(|(_, _, index)| *index),
                awaited_until: awaited(node),
            });
        }
        self.is_whole = self.partitions.iter().all(|route| route.link.is_some());
    }

    /// The connection of its node that leads to a coordinator.
    pub fn connection_to(&self, coordinator: Address) -> Option<u16> {
        let connections = &self.view.member(coordinator.node())?.connections;
        let leads_there =
            connections.iter().position(|hosts| hosts.coordinators.contains(&coordinator.instance()));
        leads_there.map(|connection| connection as u16)
    }

    fn connection_of(&self, data_manager: Address) -> Option<u16> {
        let connections = &self.view.member(data_manager.node())?.connections;
        let leads_there =
            connections.iter().position(|hosts| hosts.data_managers.contains(&data_manager.instance()));
        // An instance that is not listed is reached through any connection.
        (!connections.is_empty()).then_some(leads_there.unwrap_or(0) as u16)
    }

    /// The way to a partition; `None` as long as no view is known.
    #[inline]
    pub fn partition(&self, partition: PartitionId) -> Option<&Route> {
        self.partitions.get(usize::from(partition.0))
    }

    /// The connection to the owner of a partition, and the owner; `None` while that is not connected.
    #[inline]
    pub fn way(&self, partition: PartitionId) -> Option<(LinkId, Address)> {
        let route = self.partition(partition)?;
        Some((route.link?, route.data_manager))
    }

    /// Until when a way to a partition may be hoped for, while there is none.
    pub fn awaited_until(&self, partition: PartitionId) -> Tick {
        self.partition(partition).map_or(Tick(0), |route| route.awaited_until)
    }

    /// Whether the owners of all partitions are connected.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Number of the cluster's partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The coordinator for a transaction whose first row is in this partition: beside its primary, else in turn.
    #[inline]
    pub fn coordinator(&mut self, hint: Option<PartitionId>) -> Option<CoordinatorIndex> {
        let beside = hint.and_then(|partition| self.partition(partition)?.coordinator);
        beside.or_else(|| {
            self.next = self.next.wrapping_add(1);
            self.reachable.get(self.next % self.reachable.len().max(1)).copied()
        })
    }

    /// Connections that a node wants, at least one.
    pub fn connections_wanted(&self, node: NodeId) -> u16 {
        let wanted = self.view.member(node).map_or(1, |member| member.connections.len());
        (wanted as u16).clamp(1, vinga_wire::handshake::CONNECTIONS_MAX)
    }

    /// The newest view that a data node has sent; number 0 before the first.
    pub fn view(&self) -> &ClusterView {
        &self.view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::Incarnation;
    use vinga_wire::view::{ConnectionHosts, Member};

    #[test]
    fn keys_go_to_the_thread_of_their_owner() {
        let connection = |data_managers: &[u16], coordinators: &[u16]| ConnectionHosts {
            data_managers: data_managers.to_vec(),
            coordinators: coordinators.to_vec(),
        };
        let connections = vec![connection(&[0, 1], &[0]), connection(&[2, 3], &[])];
        let member = Member::started(NodeId(3), Incarnation(1), 0, 4, 1).with_connections(connections);
        let mut routes = PartitionRoutes::default();
        routes.adopt(ClusterView::first(vec![member]));
        routes.rebuild(
            |node, c| Some(LinkId::new(node.0.into(), c)),
            |_| Tick(0),
            |name, _| CoordinatorIndex(name.address.instance()),
        );
        let links: Vec<_> =
            (0..4).map(|p| routes.partition(PartitionId(p)).unwrap().link.unwrap().connection()).collect();
        assert_eq!(links, [0, 0, 1, 1]);
        assert!(
            (0..4)
                .all(|p| routes.partition(PartitionId(p)).unwrap().coordinator == Some(CoordinatorIndex(0)))
        );
        assert_eq!(routes.coordinator(None), Some(CoordinatorIndex(0)));
        routes.rebuild(|_, _| None, |_| Tick(9), |_, _| unreachable!("nothing is connected"));
        assert_eq!(routes.partition(PartitionId(2)).unwrap().link, None);
        assert_eq!(routes.awaited_until(PartitionId(2)), Tick(9));
        assert_eq!(routes.coordinator(Some(PartitionId(7))), None);
    }
}
