//! Data nodes watch each other, agree on the failure of some of them, and on every other change of the view.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `NodeHeartbeatRequest` / `…Confirm` | agreement | agreement of each other member | I am alive / so am I |
//! | `NodeSuspectReport` | agreement | agreement of each other member | nothing comes from these members |
//! | `FailPrepareRequest` | the one that leads | agreement of each member that is left | give up these members |
//! | `FailPrepareConfirm` | agreement | the one that leads | I have, and perhaps more of them: for good |
//! | `FailPrepareRefuse` | agreement | the one that leads | there is a newer view |
//! | `ViewOrder` | agreement | agreement | this view is agreed |
//! | `LinkClosedReport` | driver | agreement | the connections to a member are closed |
//! | `NodeEndedReport` | a data node that has stopped | agreement of each other member | my process answers nobody any more, and ends (no body) |
//! | `LinkCloseOrder` | agreement, a block that has rejected a signal | driver | close the connections to a member, and accept no other ones |
//! | `ViewInstallOrder` | agreement | driver | have all threads adopt this view |
//! | `LeaseOrder` | agreement | drivers | answers may be sent to API nodes until then |
//! | `ArbitrationRequest` | agreement | driver, for the arbitrator | may these members go on? |
//! | `ArbitrationConfirm` / `…Refuse` | arbitrator, by the driver | agreement | yes, with another ticket / no |
//! | `TicketPrepareRequest` | the president | agreement of each other member | the view gets another ticket |
//! | `TicketPrepareConfirm` / `…Refuse` | agreement | the president | I show the present one no more / I do not agree |
//! | `TicketOrder` | agreement | agreement | this ticket counts now |
//! | `ViewChangeRequest` | a block of the president's node | agreement | make this change of the view |
//! | `ViewChangeConfirm` / `…Refuse` | agreement | the block that asked | the view is installed here / it is not made, and why |
//! | `ViewPrepareRequest` | the president | agreement of each other member, and of the one that joins | this is to be the next view |
//! | `ViewPrepareConfirm` / `…Refuse` | agreement | the president | I agree / I do not |
//! | `ViewCancelOrder` | the president | agreement of each that was asked | it will not be the next view |
//! | `ViewCancelConfirm` | agreement | the president | I agree to it no more |
//! | `LinkOpenedReport` | driver | agreement | all connections to a data node are open that is no member yet; or, before this one is a member, to any |
//!
//! How the president finds another arbitrator is in [`crate::arbitration`].
//!
//! The protocol is described in `docs/protocols/agreement.md`.

use crate::view::{ClusterView, Member, Placement};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId, PartitionId, ViewNumber};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// In place of the time of a heartbeat in its answer: that counts for no lease.
pub const COUNTS_FOR_NO_LEASE: u64 = u64::MAX;

/// Body of `NodeHeartbeatRequest` and `NodeHeartbeatConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NodeHeartbeatBody {
    /// When the request was sent, by the requester's clock (microseconds). The confirm repeats it, or has
    /// [`COUNTS_FOR_NO_LEASE`].
    pub sent: U64,
    /// The newest view that the sender knows to be agreed.
    pub view: U32,
    /// Changes of the ticket in that view, up to the newest one that counts, as far as the sender knows.
    pub change: U32,
}

/// Body of `NodeSuspectReport` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeSuspectReport {
    /// The newest view that the sender knows.
    pub view: ViewNumber,
    /// Members of it that the sender suspects, or has given up.
    pub suspects: Vec<NodeId>,
    /// Those, and members of which nothing has come for a while.
    pub unreached: Vec<NodeId>,
}

/// Body of `FailPrepareRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailPrepareRequest {
    /// The sender's number of the round.
    pub round: u32,
    /// The newest view that is agreed, as far as the sender knows.
    pub view: ClusterView,
    /// The members of it that are to be given up.
    pub failed: Vec<NodeId>,
}

/// Body of `FailPrepareConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailPrepareConfirm {
    /// From the request.
    pub round: u32,
    /// The members that the sender has given up: those of the request, and others that it suspects.
    pub failed: Vec<NodeId>,
    /// Of those: what the sender knows of each, in the same order.
    pub known: Vec<LostMember>,
    /// Which ticket the sender may show to the arbitrator. It agrees to no change of it any more in this view.
    pub ticket: TicketState,
    /// The attempt to change the view without a failure to which the sender has agreed: others may have that view. It
    /// agrees to no other one any more in its present view.
    pub agreed: Option<u32>,
}

/// What a member knows of its view's ticket, which changes when another arbitrator is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TicketState {
    /// Changes in this view, up to the newest one that counts, as far as the member knows; 0 for the view's own ticket.
    pub change: u32,
    /// The ticket of that change.
    pub ticket: u64,
    /// A later change to which the member has agreed, and its ticket: whether that counts it does not know. The one
    /// before it shows no more.
    pub prepared: Option<(u32, u64)>,
}

/// Body of `TicketPrepareRequest` and of `TicketOrder` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TicketBody {
    /// The view whose ticket changes.
    pub view: ViewNumber,
    /// Which change of it.
    pub change: u32,
    /// The next ticket.
    pub ticket: u64,
}

/// Body of `TicketPrepareConfirm` and `TicketPrepareRefuse` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TicketAnswer {
    /// From the request.
    pub view: ViewNumber,
    /// From the request.
    pub change: u32,
}

/// What one member knows of another one that it has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostMember {
    /// How long ago it has last answered the other one's heartbeats (microseconds).
    pub unanswered: u64,
    /// Whether the other's process has ended beyond doubt.
    pub is_gone: bool,
}

/// Body of `FailPrepareRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailPrepareRefuse {
    /// From the request.
    pub round: u32,
    /// A newer view, which is agreed.
    pub view: ClusterView,
}

/// Body of `ViewChangeRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewChangeRequest {
    /// The requester's number of the request.
    pub request: u32,
    /// The view that is changed: if there is a later one the change is refused.
    pub view: ViewNumber,
    /// The change.
    pub change: WantedChange,
}

/// A change of the view without a failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WantedChange {
    /// A data node becomes a member that is starting; its state, and since when it is one, are not looked at.
    Join(Member),
    /// This start of a member that is starting is being sent the rows of its partitions.
    Copy(NodeId, Incarnation),
    /// This start of a member to which rows were copied has all of them. All threads of all members have adopted the
    /// view in which it is being copied to.
    Start(NodeId, Incarnation),
    /// A replica with all rows of a partition becomes its primary. The present one has come to rest for that.
    MovePrimary(PartitionId, NodeId),
    /// Those that are to go are no replicas of a partition any more ([`ClusterView::to_go`]). Its primary has come to
    /// rest for that.
    LeaveOut(PartitionId),
    /// This start of a member is to stop.
    Leave(NodeId, Incarnation),
    /// This start of a member that was to stop, and was left out of no partition yet, does not.
    Stay(NodeId, Incarnation),
    /// Partitions are to move until each node group has its share, or no further one is.
    Reorganize(bool),
    /// The next step of that ([`ClusterView::next_placement`]): the data manager that rows are to be sent to is free;
    /// or that it is impossible.
    Place(Placement),
    /// This start of a member has all rows of a partition that it was sent. All threads of all members have adopted the
    /// view in which it is being sent them.
    Copied(PartitionId, NodeId, Incarnation),
}

/// Body of `ViewChangeConfirm` (cold): the view is installed at the president, and sent to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewChangeConfirm {
    /// From the request.
    pub request: u32,
    /// The view with the change.
    pub view: ViewNumber,
}

/// Body of `ViewChangeRefuse` (cold): nobody has the view, nor ever will.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewChangeRefuse {
    /// From the request.
    pub request: u32,
    /// Why it is not made.
    pub reason: ViewChangeRefusal,
}

/// Why a change of the view is not made. What does not fit will not; all else may be otherwise when it is asked for
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ViewChangeRefusal {
    /// This node is not the president.
    NotPresident,
    /// Another change of the view, or of its ticket, is under way.
    OtherChange,
    /// Somebody is suspected or was given up, or a round about failed members is under way.
    NotWhole,
    /// The view has changed since the request was made.
    OtherView,
    /// The change does not fit the view that it was asked for: the request is wrong.
    DoesNotFit,
    /// The one that is to join is not connected.
    NotConnected,
    /// A member does not agree: it has given up others, say, or has no links to the one that is to join.
    NotAgreed,
    /// Some have not answered in time.
    NotAnswered,
    /// A member, or the one that is to join, was lost meanwhile.
    MemberLost,
}

impl fmt::Display for ViewChangeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPresident => "this data node is not the president",
            Self::OtherChange => "another change of the view, or of its ticket, is under way",
            Self::NotWhole => "not all members are reached",
            Self::OtherView => "the view has changed meanwhile",
            Self::DoesNotFit => "the change does not fit the view",
            Self::NotConnected => "the data node that is to join is not connected",
            Self::NotAgreed => "a data node has not agreed",
            Self::NotAnswered => "data nodes have not agreed in time",
            Self::MemberLost => "a data node was lost meanwhile",
        })
    }
}

/// Body of `ViewPrepareRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewPrepareRequest {
    /// The sender's number of the attempt. Several views may be prepared with one number one after the other, of which
    /// one at most is installed; no two have one attempt.
    pub attempt: u32,
    /// Which change of the present view's ticket counts: its ticket is that of the next view.
    pub change: u32,
    /// The next view.
    pub view: ClusterView,
}

/// Body of `ViewPrepareConfirm`, `ViewPrepareRefuse`, `ViewCancelOrder` and `ViewCancelConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewAttempt {
    /// The number of the next view.
    pub view: ViewNumber,
    /// The president's number of the attempt.
    pub attempt: u32,
}

/// Body of `LinkOpenedReport`, `LinkClosedReport` and `LinkCloseOrder` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkBody {
    /// The data node at the other end.
    pub node: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// With `LinkClosedReport`: whether the other process has ended beyond doubt. It has if it was on the same machine
    /// and its system closed the connection.
    pub is_gone: bool,
}

/// Body of `LeaseOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LeaseOrder {
    /// Until when this node is certain that no others have gone on without it, by its own clock (microseconds); the
    /// greatest number means for ever.
    pub until: U64,
}

/// Body of `ArbitrationRequest` (cold). The arbitrator holds one ticket. Whoever shows it gets another one, with
/// which it goes on; the arbitrator holds that from then on. So of two sets that have the same ticket only one goes
/// on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationRequest {
    /// The requester's number of the round.
    pub round: u32,
    /// The view that the members are in.
    pub view: ViewNumber,
    /// The ticket of that view.
    pub ticket: u64,
    /// The ticket that is to take its place: a random number.
    pub next: u64,
    /// The members that want to go on, as far as they have started.
    pub members: Vec<NodeId>,
}

/// Body of `ArbitrationConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationConfirm {
    /// From the request.
    pub round: u32,
    /// The ticket of the next view.
    pub ticket: u64,
}

/// Body of `ArbitrationRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationRefuse {
    /// From the request.
    pub round: u32,
    /// Why not, for people.
    pub reason: String,
}
