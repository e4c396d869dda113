//! A data node leaves (`docs/protocols/node-restart.md`), or a partition has moved away from it
//! (`docs/protocols/reorganize.md`): what may need it ends before it stops, or gives up what it has of the partition.
//!
//! In the view of the request it is a replica of nothing any more. Two kinds of work may be under way all the same:
//!
//! - Signals that were sent in an earlier view may be on their way through it, so that their answers come from it. What
//!   ends a transaction was sent again when the view was adopted (`failure`); of all else the answers are awaited: each
//!   transaction that waits for any when the request comes has had its answers when it waits no more, or waits for
//!   those of another batch.
//! - Its own coordinators have open transactions. They begin no other ones, and wait until these have ended. An API
//!   node whose transaction is refused begins it again at another coordinator, as if the data node had failed.

use crate::Coordinator;
use crate::transaction::{State, Transaction};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{Context, InjectedBug, Span};
use vinga_wire::restart::DrainBody;
use vinga_wire::view::{Member, ReplicaGroup, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// How often it is looked whether all that is awaited has ended.
const LOOK: Span = Span::from_millis(2);

/// The timer for that.
pub(crate) const DRAIN_TIMER: u64 = 2;

/// What is known of data nodes that leave.
#[derive(Default)]
pub(crate) struct Draining {
    /// This coordinator's own data node leaves: no transaction begins here any more.
    is_closed: bool,
    /// Of different requesters.
    requests: Vec<Request>,
    /// Data nodes that leave, of which nothing is awaited here any more.
    needless: Vec<NodeId>,
    /// Members that were left out of partitions, of which something may be awaited here still.
    left_out: Vec<(NodeId, ReplicaGroup)>,
}

/// A request that is not confirmed.
struct Request {
    requester: Address,
    body: DrainBody,
    /// Its data node is to stop: the president asks. A data manager asks if a partition has moved away from it.
    leaves: bool,
    /// It is this coordinator's own data node that is to stop.
    closes: bool,
    /// What it waits for: transactions, each with the batch that was under way.
    awaited: BTreeMap<TransactionId, u32>,
}

impl Draining {
    /// Whether no transaction begins here any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a member that is lost was about to stop, and something may have been awaited of it: what was sent in a
    /// view in which it was a replica, though it is none in the view before this one.
    pub fn is_missed(&self, lost: &Member) -> bool {
        lost.is_to_stop() && !self.needless.contains(&lost.node)
    }

    /// Whether a member that is lost was left out of a partition in an earlier view, and something may have been
    /// awaited of it there.
    pub fn is_missed_of(&self, lost: &Member, owner: ReplicaGroup) -> bool {
        self.left_out.contains(&(lost.node, owner))
    }

    /// Another view has begun, and work goes on in it: whoever leads asks anew.
    pub fn begin_view(&mut self, change: &ViewChange) {
        self.requests.clear();
        self.needless.retain(|&node| !change.has_lost(node));
        self.left_out.retain(|&(node, owner)| {
            !change.has_lost(node) && !change.new.owned_by(owner).replicas().contains(node)
        });
        let both = change.old.partitions().iter().zip(change.new.partitions());
        for (before, after) in both.filter(|(before, after)| before.owner == after.owner) {
            let after = after.replicas();
            let is_member = |node: &NodeId| change.new.member(*node).is_some() && !change.has_lost(*node);
            for node in before.replicas().nodes().filter(|&node| !after.contains(node)).filter(is_member) {
                self.left_out.push((node, before.owner));
            }
        }
    }

    /// Nothing is awaited any more of what a member had in the place of one of its data managers, or in any place.
    fn note_drained(&mut self, node: NodeId, requester: Address) {
        let is_of_data_manager = requester.block() == Some(BlockNumber::DataManager);
        let is_drained =
            |owner: ReplicaGroup| !is_of_data_manager || owner.instance() == requester.instance();
        self.left_out.retain(|&(one, owner)| one != node || !is_drained(owner));
    }
}

impl Coordinator {
    /// A data node leaves: confirms when nothing here needs it any more.
    pub(crate) fn on_drain_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: DrainBody = cold::read(frame)?;
        if body.view != cx.view().number() {
            cx.mark("request of a leaving data node is of an earlier view");
            return Some(());
        }
        let leaves = frame.sender().block() == Some(BlockNumber::Restart);
        let closes = leaves && body.node == self.settings.node;
        self.draining.is_closed |= closes;
        let all = self.transactions.iter().map(|(_, transaction)| transaction);
        let awaited = all.filter(|one| is_in_the_way(one, closes)).map(|one| (one.id, one.request));
        let (requester, awaited) = (frame.sender(), awaited.collect());
        self.draining.requests.retain(|request| request.requester != requester);
        self.draining.requests.push(Request { requester, body, leaves, closes, awaited });
        self.look_at_draining(cx);
        Some(())
    }

    /// Confirms requests of which nothing is awaited any more; looks again later at others.
    pub(crate) fn look_at_draining(&mut self, cx: &mut Context<'_>) {
        let mut requests = core::mem::take(&mut self.draining.requests);
        requests.retain_mut(|request| !self.confirm_if_drained(cx, request));
        if !requests.is_empty() {
            cx.mark("coordinator waits for transactions before a data node leaves");
            cx.send_after(LOOK, DRAIN_TIMER);
        }
        self.draining.requests = requests;
    }

    fn confirm_if_drained(&mut self, cx: &mut Context<'_>, request: &mut Request) -> bool {
        let closes = request.closes;
        request.awaited.retain(|&id, batch| {
            let found = self.transactions.find(id).map(|handle| &self.transactions[handle]);
            found.is_some_and(|one| is_in_the_way(one, closes) && (closes || one.request == *batch))
        });
        let is_drained = request.awaited.is_empty() || cx.has_bug(InjectedBug::LeaverNotDrained);
        if is_drained {
            cx.mark("coordinator needs a leaving data node no more");
            if request.leaves {
                self.draining.needless.push(request.body.node);
            }
            self.draining.note_drained(request.body.node, request.requester);
            cold::write(&mut cx.frame(SignalNumber::DrainConfirm, request.requester), &request.body);
        }
        is_drained
    }
}

/// Whether a transaction may need the data node that leaves. `closes`: it is this coordinator's own.
fn is_in_the_way(transaction: &Transaction, closes: bool) -> bool {
    closes || !matches!(transaction.state, State::Open { .. })
}
