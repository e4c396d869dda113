//! The view of the cluster: who is a member, which data managers own which partition, and who acts for coordinators
//! that have failed. It is one value with a number. The president makes the next one, and each thread of each member
//! adopts it as a whole; between two views nobody changes anything of it. Blocks read it from their context
//! (`vinga_kernel::Context::view`) and keep no list of nodes of their own; clients get the same value with their
//! admission and with each change.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ViewChangedOrder` | driver, when agreement has agreed on it | each thread of each member | adopt this view |
//! | the same | membership | API node | the members and the owners of partitions have changed |
//!
//! Members are distinguished by id *and* incarnation: a node that has failed and has started again under its id is
//! another member, and nothing that was agreed with the first one holds for it.
//!
//! **Owners.** A *node group* is a set of data nodes that hold the same partitions. The data managers with the same
//! instance number on all nodes of a group form a *replica group* ([`ReplicaGroup`]); each owns one partition of the
//! cluster. A replica group is what takes part in transactions; which of its replicas hold a given row is the
//! primary's decision, because a replica that is still being copied has some rows and not others.
//!
//! **Placement.** Node groups may be added while the cluster runs, and partitions move to them (`placement`): a
//! partition keeps its number, its name and its instance number, and other data nodes hold it. Each data manager holds
//! one partition or none.

mod balance;
mod changes;
mod layout;
mod placement;

pub use placement::{NoRoom, Placement};

use crate::address::{Address, BlockNumber};
use crate::commit::Chain;
use crate::protocol::PROTOCOL_VERSION;
use crate::take_over::CoordinatorName;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId, PartitionId, ViewNumber};
use zerocopy::little_endian::U16;

/// Stands for no ticket in a view without an arbitrator.
pub const NO_TICKET: u64 = 0;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The data managers of one partition: they have the same instance number on all nodes of a node group. The name stays
/// when the partition moves: it says which node group had it first.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct ReplicaGroup {
    group: [u8; 2],
    instance: [u8; 2],
}

impl ReplicaGroup {
    /// The data managers with this instance number, of a partition that this node group had first.
    #[inline]
    pub const fn new(group: u16, instance: u16) -> Self {
        ReplicaGroup { group: group.to_le_bytes(), instance: instance.to_le_bytes() }
    }

    /// The node group that had the partition first. Which one has it: [`Partition::group`].
    #[inline]
    pub const fn group(self) -> u16 {
        u16::from_le_bytes(self.group)
    }

    /// The data managers' instance number.
    #[inline]
    pub const fn instance(self) -> u16 {
        u16::from_le_bytes(self.instance)
    }

    /// The data manager of the replica group on one of its nodes.
    #[inline]
    pub const fn at(self, node: NodeId) -> Address {
        Address::new(node, BlockNumber::DataManager, self.instance())
    }
}

/// How far a member has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemberState {
    /// It has joined and owns nothing yet.
    Starting,
    /// It is being sent the rows of its partitions.
    Copying,
    /// It takes part in everything.
    Started,
    /// It is to stop, and takes part in everything, but gets nothing new to do. It is in all its partitions still.
    Leaving,
    /// It is to stop, and is left out of one partition after the other, when nobody has anything open there: it does
    /// not learn of all changes any more. It stays only if the others can't do without it
    /// ([`ClusterView::is_needed`]).
    LeftOut,
}

/// The instances that are reached through one connection of a member: those on the thread that serves it, and a share
/// of those on threads that serve none. Each instance of a node is listed with exactly one connection.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionHosts {
    /// Data manager instances.
    pub data_managers: Vec<u16>,
    /// Coordinator instances.
    pub coordinators: Vec<u16>,
}

/// The connection by which a thread is reached, and by which its answers go: the one that it serves, if it serves one;
/// threads that serve none share the connections. `serving` are those that do, in the order of their connections.
pub fn connection_of(thread: u16, serving: &[u16]) -> usize {
    let own = serving.iter().position(|&owner| owner == thread);
    own.unwrap_or(usize::from(thread) % serving.len())
}

/// A data node that is a member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub node: NodeId,
    /// Which start of the node it is.
    pub incarnation: Incarnation,
    /// Where it accepts connections (`host:port`); empty where connections are made in another way.
    pub address: String,
    /// Its node group; they are numbered from 0.
    pub group: u16,
    /// How far it has come.
    pub state: MemberState,
    /// The first view that it was a member of.
    pub since: ViewNumber,
    /// For each connection that it accepts from a client, what is reached through it.
    pub connections: Vec<ConnectionHosts>,
    /// Data manager instances on it.
    pub data_managers: u16,
    /// Coordinator instances on it.
    pub coordinators: u16,
    /// Streams of its redo log; 0 if it has no disk.
    pub redo_streams: u16,
    /// The version of the protocol of its build.
    pub protocol: u16,
}

impl Member {
    /// Its id and incarnation, which nobody else ever has.
    pub fn identity(&self) -> (NodeId, Incarnation) {
        (self.node, self.incarnation)
    }

    /// Whether it is to stop.
    pub fn is_to_stop(&self) -> bool {
        matches!(self.state, MemberState::Leaving | MemberState::LeftOut)
    }

    /// Number of instances of a block on it.
    pub fn instances(&self, block: BlockNumber) -> u16 {
        match block {
            BlockNumber::DataManager => self.data_managers,
            BlockNumber::Coordinator => self.coordinators,
            BlockNumber::Redo => self.redo_streams,
            // Only a node with a disk has something to restore.
            BlockNumber::Lifecycle => u16::from(self.redo_streams > 0),
            _ => 1,
        }
    }
}

/// Who owns a partition of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Its replica group, which never changes.
    pub owner: ReplicaGroup,
    /// The node group that is to have it. Replicas on data nodes of another one are there until it has moved.
    pub group: u16,
    /// The nodes that have all its rows, primary first. Invariant: there is one.
    pub chain: Chain,
    /// The nodes that are being sent its rows.
    pub copying: Chain,
}

impl Partition {
    /// The data manager that answers for it.
    #[inline]
    pub fn primary(&self) -> Address {
        self.owner.at(self.chain.primary())
    }

    /// All nodes that may hold a row of it, primary first. Those that are being sent its rows come last: so the ways
    /// between the others stay what they are when one comes, and what follows on one way keeps its order.
    #[inline]
    pub fn replicas(&self) -> Chain {
        self.copying.nodes().fold(self.chain, |all, node| all.with(node))
    }
}

/// Who acts for the coordinators of a node that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Succession {
    /// The node that has failed.
    pub failed: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Coordinators that it had.
    pub coordinators: u16,
    /// The member whose coordinators act for those of the failed node.
    pub successor: NodeId,
    /// Coordinators of the successor.
    pub successors: u16,
}

impl Succession {
    /// The coordinators that have failed, and who acts for each: instances in turn, as the successor may have fewer.
    pub fn coordinators(&self) -> impl Iterator<Item = (CoordinatorName, Address)> + use<> {
        let Succession { failed, incarnation, coordinators, successor, successors } = *self;
        (0..coordinators).map(move |instance| {
            let address = Address::new(failed, BlockNumber::Coordinator, instance);
            let acting = Address::new(successor, BlockNumber::Coordinator, instance % successors);
            (CoordinatorName { address, incarnation }, acting)
        })
    }
}

/// The state of the cluster that all members have agreed on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterView {
    number: ViewNumber,
    /// In the order in which they joined.
    members: Vec<Member>,
    /// By number.
    partitions: Vec<Partition>,
    /// Node groups.
    groups: u16,
    /// Those of the first view: partitions are numbered through them.
    homes: u16,
    /// Whether partitions are to move until each node group has its share.
    reorganizes: bool,
    /// Why it has ended before, when it has last ended.
    no_room: Option<NoRoom>,
    /// Nodes of a node group, as configured.
    replicas: u8,
    successions: Vec<Succession>,
    /// What the arbitrator holds for this view; see `agreement.rs`. 0 if there is no arbitrator.
    ticket: u64,
    /// The management node that holds the ticket.
    arbitrator: Option<NodeId>,
}

impl ClusterView {
    /// Its number; that of a view that was adopted is at least 1.
    #[inline]
    pub fn number(&self) -> ViewNumber {
        self.number
    }

    /// The members, in the order in which they joined.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member with an id.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// Whether there is a member with this id.
    pub fn has(&self, node: NodeId) -> bool {
        self.member(node).is_some()
    }

    /// Whether the node with this id has been the same member since a view, or longer.
    pub fn has_since(&self, node: NodeId, view: ViewNumber) -> bool {
        self.member(node).is_some_and(|member| member.since <= view)
    }

    /// The version of the protocol in which its members talk: the lowest of those of their builds
    /// ([`crate::protocol`]).
    pub fn protocol(&self) -> u16 {
        self.members.iter().map(|member| member.protocol).min().unwrap_or(PROTOCOL_VERSION)
    }

    /// The members that take part in everything, in the order in which they joined; those that are to stop are among
    /// them. The others count for nothing when it is decided who goes on.
    pub fn started(&self) -> impl Iterator<Item = &Member> {
        use MemberState as S;
        self.members.iter().filter(|member| matches!(member.state, S::Started | S::Leaving | S::LeftOut))
    }

    /// The members that are to stop, in the order in which they joined.
    pub fn leaving(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_to_stop())
    }

    /// Whether there is a member with this id that is to stop.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving().any(|member| member.node == node)
    }

    /// The partitions of which a node has all rows.
    pub fn held_by(&self, node: NodeId) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(move |partition| partition.chain.contains(node))
    }

    /// Whether a member that is to stop has been left out of all partitions: nobody misses its rows.
    pub fn has_given_up_all(&self, node: NodeId) -> bool {
        self.is_leaving(node) && self.held_by(node).next().is_none()
    }

    /// Whether a member that is to stop can't: of some partition nobody else has the rows but others that are to stop.
    pub fn is_needed(&self, node: NodeId) -> bool {
        let has_others = |one: &Partition| one.chain.nodes().any(|other| !self.is_leaving(other));
        self.is_leaving(node) && !self.held_by(node).all(has_others)
    }

    /// Whether some member that is to stop was left out of a partition, or has none to be left out of. No schema is
    /// changed before it has stopped, or stays.
    pub fn has_begun_to_leave(&self) -> bool {
        self.leaving().any(|member| self.was_left_out(member.node))
    }

    /// Whether that is so of this member.
    pub fn was_left_out(&self, node: NodeId) -> bool {
        let is_left_out = |member: &Member| member.state == MemberState::LeftOut;
        self.member(node).is_some_and(is_left_out) || self.has_given_up_all(node)
    }

    /// Whether a view that follows on this one without a failure has left somebody out of a partition: then whoever has
    /// that view may change rows there that this one does not learn of.
    pub fn leaves_out_in(&self, next: &Self) -> bool {
        let mut both = self.partitions.iter().zip(&next.partitions);
        both.any(|(old, new)| old.chain.nodes().any(|node| !new.chain.contains(node)))
    }

    /// Whether there is a member with this id that takes part in everything.
    pub fn has_started(&self, node: NodeId) -> bool {
        self.started().any(|member| member.node == node)
    }

    /// The member that makes the next view: of the started ones that which joined first.
    pub fn president(&self) -> Option<NodeId> {
        self.started().next().map(|member| member.node)
    }

    /// The ticket with which one set of these members may go on, if the arbitrator is asked; [`NO_TICKET`] if there is
    /// no arbitrator.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The same view with another ticket.
    #[must_use]
    pub fn with_ticket(self, ticket: u64) -> Self {
        ClusterView { ticket, ..self }
    }

    /// The management node that has taken the ticket of the first view, and so decides which members go on when they
    /// lose each other; `None` if there is none.
    pub fn arbitrator(&self) -> Option<NodeId> {
        self.arbitrator
    }

    /// The same view with the management node that holds its ticket.
    #[must_use]
    pub fn with_arbitrator(self, arbitrator: NodeId) -> Self {
        ClusterView { arbitrator: Some(arbitrator), ..self }
    }

    /// What API nodes receive of it: all but the ticket, with which they could ask the arbitrator, and members that
    /// have not started, which let no API node in.
    #[must_use]
    pub fn for_api_nodes(&self) -> Self {
        let mut view = self.clone().with_ticket(NO_TICKET);
        view.members.retain(|member| self.has_started(member.node));
        for partition in &mut view.partitions {
            partition.copying = Chain::default();
        }
        view
    }

    /// What a set of nodes lacks, so that it can't be a cluster by itself; `None` if it can: of each partition one of
    /// them has all rows, and a started one has coordinators.
    pub fn lack_of(&self, is_in: impl Fn(NodeId) -> bool) -> Option<Lack> {
        let is_kept = |partition: &&Partition| partition.chain.nodes().any(&is_in);
        let lost = self.partitions.iter().filter(|partition| !is_kept(partition));
        let group = lost.map(|partition| partition.group).min();
        let has_coordinators = |member: &Member| member.coordinators > 0;
        // Tests of single blocks have views without coordinators.
        let needs_coordinators = self.members.iter().any(has_coordinators);
        let has = self.started().any(|member| has_coordinators(member) && is_in(member.node));
        let lacks_coordinators = needs_coordinators && !has;
        group.map(Lack::NodeGroup).or(lacks_coordinators.then_some(Lack::Coordinators))
    }

    /// Number of node groups.
    pub fn groups(&self) -> u16 {
        self.groups
    }

    /// Number of node groups in the first view. Each partition is named after one of them ([`ReplicaGroup::group`]).
    pub fn homes(&self) -> u16 {
        self.homes
    }

    /// Nodes of a node group, as configured (`NoOfReplicas`).
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// Whether the cluster is configured with several replicas (`NoOfReplicas`), so that it goes on when a data node
    /// fails: somebody may then need to know what the coordinators of that node were doing. That only one replica of
    /// something is left at present does not count: others may return.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.replicas > 1
    }

    /// Who owns a partition.
    #[inline]
    pub fn partition(&self, partition: PartitionId) -> &Partition {
        &self.partitions[usize::from(partition.0)]
    }

    /// All partitions in order of their numbers.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The partition of a replica group.
    #[inline]
    pub fn owned_by(&self, owner: ReplicaGroup) -> &Partition {
        let partition = self.partition(self.number_of(owner));
        assert!(partition.owner == owner, "partitions are numbered through the first node groups");
        partition
    }

    /// The number of the partition of a replica group.
    #[inline]
    pub fn number_of(&self, owner: ReplicaGroup) -> PartitionId {
        PartitionId(owner.instance() * self.homes + owner.group())
    }

    /// The partition that a data manager holds, or is being sent the rows of.
    pub fn held_at(&self, data_manager: Address) -> Option<&Partition> {
        let (node, instance) = (data_manager.node(), data_manager.instance());
        let mut of_instance = self.partitions.iter().filter(|one| one.owner.instance() == instance);
        of_instance.find(|one| one.replicas().contains(node))
    }

    /// All instances of a block, on all members.
    pub fn addresses(&self, block: BlockNumber) -> impl Iterator<Item = Address> {
        self.members
            .iter()
            .flat_map(move |m| (0..m.instances(block)).map(move |i| Address::new(m.node, block, i)))
    }

    /// Who acts for a coordinator: itself while its node is a member, else its successor; `None` if it is not known
    /// (any more).
    #[inline]
    pub fn acts_for(&self, name: CoordinatorName) -> Option<Address> {
        if self.has_coordinator(name) {
            return Some(name.address);
        }
        self.successor(name)
    }

    /// Whether the node of a coordinator is a member still: that very start of it.
    #[inline]
    pub fn has_coordinator(&self, name: CoordinatorName) -> bool {
        self.member(name.address.node()).is_some_and(|member| member.incarnation == name.incarnation)
    }

    #[cold]
    fn successor(&self, name: CoordinatorName) -> Option<Address> {
        let failed = |one: &&Succession| one.coordinators().any(|(failed, _)| failed == name);
        let succession = self.successions.iter().find(failed)?;
        succession.coordinators().find(|(failed, _)| *failed == name).map(|(_, acting)| acting)
    }

    /// Who acts for the coordinators of which nodes that have failed. Those that had not started are not among them.
    pub fn successions(&self) -> &[Succession] {
        &self.successions
    }
}

/// Why a set of data nodes can't be a cluster by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// None of them has all rows of this node group.
    NodeGroup(u16),
    /// None of them has coordinators: nobody could act for those that have failed, or begin a transaction.
    Coordinators,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeGroup(group) => write!(f, "no data node with all rows of node group {group}"),
            Self::Coordinators => f.write_str("no data node with coordinators"),
        }
    }
}

/// A change from one view to a later one, as a thread goes through it.
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The view that is left.
    pub old: Arc<ClusterView>,
    /// The view that is adopted.
    pub new: Arc<ClusterView>,
}

impl ViewChange {
    /// The members of the old view that are none of the new one: their ids may be there again, in another incarnation.
    pub fn lost(&self) -> impl Iterator<Item = &Member> {
        let stays = |member: &Member| self.new.members.iter().any(|m| m.identity() == member.identity());
        self.old.members.iter().filter(move |&member| !stays(member))
    }

    /// The members of the new view that are none of the old one.
    pub fn joined(&self) -> impl Iterator<Item = &Member> {
        let was = |member: &Member| self.old.members.iter().any(|m| m.identity() == member.identity());
        self.new.members.iter().filter(move |&member| !was(member))
    }

    /// Whether the member with this id, of the old view, is lost.
    pub fn has_lost(&self, node: NodeId) -> bool {
        self.lost().any(|member| member.node == node)
    }

    /// Whether a node that was a replica of a replica group's partition is none any more: it is lost, or was left out.
    pub fn has_left(&self, owner: ReplicaGroup, node: NodeId) -> bool {
        self.has_lost(node) || !self.new.owned_by(owner).replicas().contains(node)
    }
}

const _: () = assert!(size_of::<ReplicaGroup>() == size_of::<[U16; 2]>(), "two numbers in a signal");

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn member(node: u8, group: u16) -> Member {
        Member::started(NodeId(node), Incarnation(7), group, 2, 1)
    }

    #[test]
    fn the_next_replica_becomes_primary_and_the_next_member_succeeds() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 0)]);
        assert_eq!((first.number(), first.president()), (ViewNumber(1), Some(NodeId(1))));
        let second = first.without(&[NodeId(1)]);
        assert_eq!((second.number(), second.president()), (ViewNumber(3), Some(NodeId(2))));
        assert_eq!(second.owned_by(ReplicaGroup::new(0, 0)).chain, Chain::new(&[NodeId(2), NodeId(3)]));
        let coordinator = |node, incarnation| CoordinatorName {
            address: Address::new(NodeId(node), BlockNumber::Coordinator, 0),
            incarnation: Incarnation(incarnation),
        };
        assert_eq!(first.acts_for(coordinator(1, 7)), Some(coordinator(1, 7).address));
        assert_eq!(second.acts_for(coordinator(1, 7)), Some(coordinator(2, 7).address));
        assert_eq!(second.acts_for(coordinator(1, 8)), None);
        let third = second.without(&[NodeId(2)]);
        assert_eq!(third.owned_by(ReplicaGroup::new(0, 1)).primary(), ReplicaGroup::new(0, 1).at(NodeId(3)));
        for failed in [1, 2] {
            assert_eq!(third.acts_for(coordinator(failed, 7)), Some(coordinator(3, 7).address));
        }
        assert_eq!(third.addresses(BlockNumber::DataManager).count(), 2);
    }

    #[test]
    fn a_set_can_go_on_if_it_has_a_member_of_each_group() {
        let view = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1)]);
        assert_eq!(view.lack_of(|node| node != NodeId(1)), None);
        assert_eq!(view.lack_of(|node| node != NodeId(3)), Some(Lack::NodeGroup(1)));
        assert_eq!(view.lack_of(|_| false), Some(Lack::NodeGroup(0)));
        assert_eq!(view.arbitrator(), None);
        let view = view.with_ticket(7).with_arbitrator(NodeId(9));
        let (shown, next) = (view.for_api_nodes(), view.without(&[NodeId(1)]));
        assert_eq!((shown.ticket(), next.ticket()), (0, 7));
        assert_eq!((shown.arbitrator(), next.arbitrator()), (Some(NodeId(9)), Some(NodeId(9))));
    }

    #[test]
    fn a_set_can_go_on_if_it_has_coordinators() {
        let without_coordinators = Member { coordinators: 0, ..member(2, 0) };
        let view = ClusterView::first(vec![member(1, 0), without_coordinators]);
        assert_eq!(view.lack_of(|node| node == NodeId(1)), None);
        assert_eq!(view.lack_of(|node| node == NodeId(2)), Some(Lack::Coordinators));
    }

    #[test]
    fn a_member_that_has_started_again_is_another_one() {
        let old = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let mut new = old.without(&[NodeId(2)]);
        let restarted = Member { incarnation: Incarnation(8), since: ViewNumber(3), ..member(2, 0) };
        new.members.push(restarted);
        let change = ViewChange { old: Arc::new(old), new: Arc::new(new) };
        assert!(change.has_lost(NodeId(2)) && change.new.has(NodeId(2)));
        assert!(!change.has_lost(NodeId(1)));
    }
}
