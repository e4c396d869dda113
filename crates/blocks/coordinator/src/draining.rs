//! A data node leaves (`docs/protocols/node-restart.md`): what may need it ends before it stops.
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
use vinga_wire::view::{Member, ViewChange};
use vinga_wire::{Address, Frame, SignalNumber, cold};

/// How often it is looked whether all that is awaited has ended.
const LOOK: Span = Span::from_millis(2);

/// The timer for that.
pub(crate) const DRAIN_TIMER: u64 = 2;

/// What is known of data nodes that leave.
#[derive(Default)]
pub(crate) struct Draining {
    /// This coordinator's own data node leaves: no transaction begins here any more.
    is_closed: bool,
    request: Option<Request>,
    /// Data nodes that leave, of which nothing is awaited here any more.
    needless: Vec<NodeId>,
}

/// The latest request that is not confirmed.
struct Request {
    requester: Address,
    body: DrainBody,
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

    /// Another view has begun: whoever leads asks anew.
    pub fn begin_view(&mut self, change: &ViewChange) {
        self.request = None;
        self.needless.retain(|&node| !change.has_lost(node));
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
        if body.node == self.settings.node {
            self.draining.is_closed = true;
        }
        let all = self.transactions.iter().map(|(_, transaction)| transaction);
        let awaited = all.filter(|one| self.is_in_the_way(one, body)).map(|one| (one.id, one.request));
        let awaited = awaited.collect();
        self.draining.request = Some(Request { requester: frame.sender(), body, awaited });
        self.look_at_draining(cx);
        Some(())
    }

    /// Whether a transaction may need the data node that leaves.
    fn is_in_the_way(&self, transaction: &Transaction, body: DrainBody) -> bool {
        body.node == self.settings.node || !matches!(transaction.state, State::Open { .. })
    }

    /// Confirms when nothing is awaited any more; looks again later if something is.
    pub(crate) fn look_at_draining(&mut self, cx: &mut Context<'_>) {
        let Some(mut request) = self.draining.request.take() else { return };
        let is_own = request.body.node == self.settings.node;
        request.awaited.retain(|&id, batch| {
            let found = self.transactions.find(id).map(|handle| &self.transactions[handle]);
            found
                .is_some_and(|one| self.is_in_the_way(one, request.body) && (is_own || one.request == *batch))
        });
        if request.awaited.is_empty() || cx.has_bug(InjectedBug::LeaverNotDrained) {
            cx.mark("coordinator needs a leaving data node no more");
            self.draining.needless.push(request.body.node);
            cold::write(&mut cx.frame(SignalNumber::DrainConfirm, request.requester), &request.body);
        } else {
            cx.mark("coordinator waits for transactions before a data node leaves");
            cx.send_after(LOOK, DRAIN_TIMER);
            self.draining.request = Some(request);
        }
    }
}
