//! Where operations go: from a partition to the connection that leads straight to the owner of the row, and to the
//! coordinator beside it.
//!
//! Committed reads of tables whose backups answer reads (`READ_BACKUP`) go to the *nearest* replica that is connected:
//! one that shares memory with the client, else one by the client's id, the same as long as the connections and the
//! view are the same. So clients spread over the replicas, and what one of them reads does not go back in time.

use crate::error::Error;
use crate::link::LinkId;
use alloc::vec::Vec;
use vinga_base::time::Tick;
use vinga_base::{Incarnation, NodeId, PartitionId, ViewNumber};
use vinga_wire::take_over::CoordinatorName;
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode};

/// Index of a coordinator in the client's list ([`crate::outcomes`]), which only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoordinatorIndex(pub u16);

/// Where a committed read goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadWay {
    /// The connection to the thread that hosts the data manager.
    pub link: LinkId,
    /// The data manager that answers.
    pub data_manager: Address,
    /// Whether that is a backup in the client's view.
    pub is_backup: bool,
}

/// The way to one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The data manager that answers for it.
    pub data_manager: Address,
    /// The connection to the thread that hosts it; `None` while its node is not connected.
    pub link: Option<LinkId>,
    /// The endpoint by which this start of its node is connected, or was; `None` if it never was.
    pub endpoint: Option<u16>,
    /// The nearest replica that is connected, for reads that backups answer.
    pub nearest: Option<ReadWay>,
    /// A coordinator on the same thread, else some other of the same node.
    pub coordinator: Option<CoordinatorIndex>,
    /// Until when a connection may be hoped for, while there is none.
    pub awaited_until: Tick,
}

impl Route {
    fn owner_way(self) -> Option<ReadWay> {
        Some(ReadWay { link: self.link?, data_manager: self.data_manager, is_backup: false })
    }
}

/// Former owners of a partition that are known one by one.
const FORMER_MAX: usize = 6;

/// Where a former owner of a partition was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// By the connections that this endpoint had since that event ([`crate::net::Turnovers`]).
    At {
        /// The endpoint.
        endpoint: u16,
        /// When they were opened.
        connected: u64,
    },
    /// Nowhere, ever.
    NotConnected,
    /// Where the last one was that is known; there may have been several, in views that this client has not had.
    NotKnown {
        /// The endpoint of the last one that is known.
        endpoint: u16,
        /// When its connections were opened.
        connected: u64,
    },
}

/// For each partition the connection to its owner and a coordinator beside it.
#[derive(Default)]
pub struct PartitionRoutes {
    view: ClusterView,
    lost_in: ViewNumber,
    /// Data nodes that have left in order, each with its last start that did.
    left: Vec<(NodeId, Incarnation)>,
    /// Of each partition the last owners before the present one, each with the last view in which it was that.
    former: Vec<Vec<(ViewNumber, Owner)>>,
    /// Of each partition the newest view that was known in which it had another owner.
    other_owner_in: Vec<ViewNumber>,
    partitions: Vec<Route>,
    /// Whether the owners of all partitions are connected.
    is_whole: bool,
    reachable: Vec<CoordinatorIndex>,
    next: usize,
    /// The members of the view that are not connected, and why.
    unconnected: Vec<(NodeId, Error)>,
}

impl PartitionRoutes {
    /// Adopts a view if it is newer than the one that is known. `connected` says when the connections of an endpoint
    /// were opened.
    pub fn adopt(&mut self, view: ClusterView, connected: impl Fn(u16) -> u64) {
        if view.number() <= self.view.number() {
            return;
        }
        let mut has_lost = self.view.number() == ViewNumber(0);
        let is_gone = |one: &&Member| !view.members().iter().any(|other| other.identity() == one.identity());
        for one in self.view.members().iter().filter(is_gone) {
            // Nothing was lost with one that had nothing any more.
            if self.view.has_given_up_all(one.node) {
                self.left.retain(|(node, _)| *node != one.node);
                self.left.push((one.node, one.incarnation));
            } else {
                has_lost = true;
            }
        }
        if has_lost {
            self.lost_in = view.number();
        }
        self.note_owners(&view, connected);
        self.view = view;
    }

    /// Whether this start of a data node is no member any more, as it has left in order.
    pub fn has_left(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.left.contains(&(node, incarnation))
    }

    /// Another view follows: notes the owners of partitions that are none any more in it.
    fn note_owners(&mut self, next: &ClusterView, connected: impl Fn(u16) -> u64) {
        let last = ViewNumber(next.number().0 - 1);
        // A primary moves once within two views, unless its data node has failed. (A number that was not used, as
        // agreement on its view was given up, is as good as a view that this client has missed.)
        let are_known = last.0 <= self.view.number().0 + 1;
        self.former.resize(self.view.partitions().len(), Vec::new());
        self.other_owner_in.resize(self.view.partitions().len(), ViewNumber(0));
        for (at, (old, new)) in self.view.partitions().iter().zip(next.partitions()).enumerate() {
            let owner = old.primary();
            if new.primary() != owner {
                self.other_owner_in[at] = self.view.number();
            }
            let identity = |view: &ClusterView| view.member(owner.node()).map(Member::identity);
            let stays = new.primary() == owner && identity(&self.view) == identity(next);
            if are_known && stays {
                continue;
            }
            let route = self.partitions.get(at).filter(|route| route.data_manager == owner);
            let who = match route.and_then(|route| route.endpoint) {
                None => Owner::NotConnected,
                Some(endpoint) if !are_known => Owner::NotKnown { endpoint, connected: connected(endpoint) },
                Some(endpoint) => Owner::At { endpoint, connected: connected(endpoint) },
            };
            let list = &mut self.former[at];
            list.push((last, who));
            if list.len() > FORMER_MAX {
                list.remove(0);
                list[0].1 = Owner::NotConnected;
            }
        }
    }

    /// Those that were owners of a partition in this view, or a later one, and are none any more.
    pub fn former_owners(&self, partition: PartitionId, since: ViewNumber) -> impl Iterator<Item = Owner> {
        let list = self.former.get(usize::from(partition.0)).into_iter().flatten();
        list.filter(move |(last, _)| *last >= since).map(|(_, owner)| *owner)
    }

    /// The newest view that was known in which a partition had another owner than it has now; 0 if there was none.
    pub fn other_owner_in(&self, partition: PartitionId) -> ViewNumber {
        self.other_owner_in.get(usize::from(partition.0)).copied().unwrap_or(ViewNumber(0))
    }

    /// The newest view that lacks a member of the one before, unless that had left; or the first one that this client
    /// knows of the cluster.
    pub fn lost_in(&self) -> ViewNumber {
        self.lost_in
    }

    /// The cluster has been restarted: the view that is known is not one of it.
    pub fn forget(&mut self) {
        self.view = ClusterView::default();
        self.left.clear();
    }

    /// The members of the view are connected, or why they are not.
    pub fn note_unconnected(&mut self, why: impl Fn(&Member) -> Option<Error>) {
        let members = self.view.members().iter();
        self.unconnected = members.filter_map(|member| Some((member.node, why(member)?))).collect();
    }

    /// Why there is no connection to any of these data nodes, though one of them is enough. If all of them refuse this
    /// client for good, that is it; else a connection may come back, so the error is retryable.
    pub fn why_not_connected(&self, nodes: impl IntoIterator<Item = NodeId>) -> Error {
        let why = |node| self.unconnected.iter().find(|(one, _)| *one == node).map(|(_, why)| why);
        let mut refusal = None;
        for node in nodes {
            match why(node) {
                Some(why) if why.is_refusal_for_good() => refusal = refusal.or(Some(why)),
                Some(why) => return why.clone(),
                None => return Error::new(ErrorCode::ClusterFailure),
            }
        }
        refusal.cloned().unwrap_or_else(|| Error::new(ErrorCode::ClusterFailure))
    }

    /// Why there is no way to the rows of a partition: to their owner, or to any replica if backups answer.
    pub fn why_no_way(&self, partition: PartitionId, backups_answer: bool) -> Error {
        let chain = self.view.partitions().get(usize::from(partition.0)).map(|partition| partition.chain);
        match chain {
            Some(chain) if backups_answer => self.why_not_connected(chain.nodes()),
            chain => self.why_not_connected(chain.map(|chain| chain.primary())),
        }
    }

    /// Why there is no way to any coordinator.
    pub fn why_no_coordinator(&self) -> Error {
        self.why_not_connected(self.view.members().iter().map(|member| member.node))
    }

    /// Why the row of a partition has not come that its owner was to send: with a connection that was lost, unless it
    /// refuses this client for good.
    pub fn why_row_is_lost(&self, partition: PartitionId) -> Error {
        let why = self.why_no_way(partition, false);
        if why.is_refusal_for_good() { why } else { Error::new(ErrorCode::ConnectionLost) }
    }

    /// Finds all ways again, for the client with the id `own`. `link` says which connection leads to a thread of a
    /// node, `is_near` whether it is by shared memory, `awaited` until when one to a node may be hoped for,
    /// `coordinator` the index of a coordinator that is reached by it.
    pub fn rebuild(
        &mut self,
        own: NodeId,
        mut link: impl FnMut(NodeId, u16) -> Option<LinkId>,
        is_near: impl Fn(LinkId) -> bool,
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
                    if !member.is_to_stop() {
                        self.reachable.push(index);
                    }
                }
            }
        }
        // One that is to stop may have closed its coordinators: it is asked only where there is no other.
        if self.reachable.is_empty() {
            self.reachable.extend(coordinators.iter().map(|&(.., index)| index));
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
            let replicas = partition.chain.nodes().filter(|&node| self.view.may_answer(partition, node));
            let replicas = replicas.map(|replica| partition.owner.at(replica));
            let connected = replicas.filter_map(|replica| {
                let link = link(replica.node(), self.connection_of(replica)?)?;
                Some(ReadWay { link, data_manager: replica, is_backup: replica != data_manager })
            });
            let mut connected: Vec<ReadWay> = connected.collect();
            if connected.iter().any(|way| is_near(way.link)) {
                connected.retain(|way| is_near(way.link));
            }
            self.partitions.push(Route {
                data_manager,
                nearest: connected.get(usize::from(own.0) % connected.len().max(1)).copied(),
                link: connection.and_then(|connection| link(node, connection)),
                endpoint: None,
                coordinator: choice
                    .get(usize::from(partition.owner.instance()) % choice.len().max(1))
                    .map(|(_, _, index)| *index),
                awaited_until: awaited(node),
            });
        }
        self.is_whole = self.partitions.iter().all(|route| route.link.is_some());
    }

    /// Notes by which endpoints the owners of partitions are connected, or were.
    pub fn note_endpoints(&mut self, endpoint: impl Fn(&Member) -> Option<u16>) {
        for route in &mut self.partitions {
            route.endpoint = self.view.member(route.data_manager.node()).and_then(&endpoint);
        }
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

    /// Where a committed read of a partition goes: to the owner; or to the nearest replica, if backups answer it.
    /// `None` while that is not connected.
    #[inline]
    pub fn read_way(&self, partition: PartitionId, backups_answer: bool) -> Option<ReadWay> {
        let route = self.partition(partition)?;
        if backups_answer { route.nearest } else { route.owner_way() }
    }

    /// Where a committed read goes that was not answered at first: to the owner, else, if backups answer it, to the
    /// nearest replica.
    pub fn second_read_way(&self, partition: PartitionId, backups_answer: bool) -> Option<ReadWay> {
        let route = self.partition(partition)?;
        route.owner_way().or(route.nearest.filter(|_| backups_answer))
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
        routes.adopt(ClusterView::first(vec![member]), |_| 0);
        routes.rebuild(
            NodeId(145),
            |node, c| Some(LinkId::new(node.0.into(), c)),
            |_| false,
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
        let nothing = |_, _| unreachable!("nothing is connected");
        routes.rebuild(NodeId(145), |_, _| None, |_| false, |_| Tick(9), nothing);
        assert_eq!(routes.partition(PartitionId(2)).unwrap().link, None);
        assert_eq!(routes.awaited_until(PartitionId(2)), Tick(9));
        assert_eq!(routes.coordinator(Some(PartitionId(7))), None);
    }

    /// Three data nodes of a group, with a partition each; node 1 + p is the primary of partition p.
    fn three_replicas() -> PartitionRoutes {
        let member = |node| {
            let connections = vec![ConnectionHosts { data_managers: vec![0, 1, 2], coordinators: vec![0] }];
            Member::started(NodeId(node), Incarnation(1), 0, 3, 1).with_connections(connections)
        };
        let mut routes = PartitionRoutes::default();
        routes.adopt(ClusterView::first((1..=3).map(member).collect()), |_| 0);
        routes
    }

    /// The nodes that a client reads at, by partition, when these nodes are connected and those near.
    fn read_at(own: u8, connected: &[u8], near: &[u8]) -> Vec<Option<(u8, bool)>> {
        let mut routes = three_replicas();
        routes.rebuild(
            NodeId(own),
            |node, c| connected.contains(&node.0).then(|| LinkId::new(node.0.into(), c)),
            |link| near.contains(&(link.endpoint() as u8)),
            |_| Tick(0),
            |name, _| CoordinatorIndex(name.address.instance()),
        );
        let nearest = |p| routes.read_way(PartitionId(p), true);
        for p in 0..3 {
            let owner = routes.read_way(PartitionId(p), false);
            assert_eq!(owner.map(|way| (way.link, way.data_manager)), routes.way(PartitionId(p)));
            assert_eq!(routes.second_read_way(PartitionId(p), true), owner.or(nearest(p)));
            assert_eq!(routes.second_read_way(PartitionId(p), false), owner);
        }
        (0..3).map(|p| nearest(p).map(|way| (way.data_manager.node().0, way.is_backup))).collect()
    }

    #[test]
    fn clients_spread_over_the_replicas_and_prefer_what_is_near() {
        let all = [1, 2, 3];
        for p in 0..3 {
            let mut read: Vec<u8> =
                (150..153).map(|own| read_at(own, &all, &[])[p].expect("it is there").0).collect();
            read.sort_unstable();
            assert_eq!(read, all, "three clients read partition {p} at three nodes");
        }
        for own in 150..153 {
            let mut read: Vec<u8> =
                read_at(own, &all, &[]).iter().map(|way| way.expect("it is there").0).collect();
            read.sort_unstable();
            assert_eq!(read, all, "client {own} reads three partitions at three nodes");
            assert_eq!(read_at(own, &all, &[2]).iter().filter(|way| **way == Some((2, true))).count(), 2);
            assert_eq!(read_at(own, &[3], &[]).iter().filter(|way| **way == Some((3, true))).count(), 2);
            assert_eq!(read_at(own, &[], &[]), [None; 3]);
        }
    }
}
