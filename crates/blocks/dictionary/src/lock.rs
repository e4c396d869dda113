//! The schema lock: one claim of an API node has it at a time, the others wait in a queue.
//!
//! The dictionary itself needs no lock, for it carries out one change at a time. The lock is for what consists of
//! several changes, like a statement of a SQL node, and binds only those who ask for it. It belongs to an incarnation
//! of an API node and is free when that ends, whatever the API node requested.
//!
//! All dictionaries note which claim has it (`orders`): a claim is granted, and a release is confirmed, when all have
//! noted that. So the next president leaves the lock to the claim that it has noted, and makes all others note the
//! same. Whoever was granted it asks the next president, and so does whoever waited, or wants to give it back:
//!
//! - the claim that is noted gets it confirmed, whether its API node knew that it has the lock or not. If it was not
//!   granted, not all may have noted it, but all have by now;
//! - any other one that was granted once has lost it: its API node's connections were closed meanwhile;
//! - the others wait, as long as they would with a new claim.
//!
//! Claims that come before the new president knows what its predecessor was doing (`succession`) are looked at then.

use crate::{Dictionary, Requester, Timer};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use vinga_base::NodeId;
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::schema::{SchemaLockBody, SchemaLockRequest};
use vinga_wire::schema_round::{LockHolder, RoundName, RoundTask};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

use crate::plan::Refused;

/// Requests that may wait for the lock.
pub const LOCK_QUEUE_MAX: usize = 256;

/// Characters of a purpose that are kept.
const PURPOSE_CHARS_MAX: usize = 100;

/// Who has the lock, or wants it.
struct Claim {
    requester: Requester,
    purpose: String,
    /// Names the claim to its timer.
    ticket: u64,
    /// Since when it has the lock.
    since: Tick,
    /// How long it waits for it.
    wait: Span,
    /// It had the lock of a president that has failed.
    was_granted: bool,
}

impl Claim {
    fn is(&self, api: NodeId, request: u32) -> bool {
        (self.requester.address.node(), self.requester.request) == (api, request)
    }
}

/// Which claim has the schema lock, and the queue behind; at dictionaries that do not lead, which one has it.
#[derive(Default)]
pub struct SchemaLock {
    holder: Option<Claim>,
    /// The connections of the holder's API node were closed, which the president has not acted on: its dictionary
    /// hands the lock on, or its successor's does.
    is_ending: bool,
    queue: VecDeque<Claim>,
    tickets: u64,
}

impl SchemaLock {
    /// The API node that has it.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder.as_ref().map(|claim| claim.requester.address.node())
    }
}

impl Dictionary {
    pub(crate) fn on_schema_lock_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(SchemaLockRequest { request, purpose, wait_millis, was_granted }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::SchemaLockRefuse, frame);
        };
        let requester =
            Requester { address: frame.sender(), request, refusal: SignalNumber::SchemaLockRefuse };
        if self.lock.queue.len() >= LOCK_QUEUE_MAX {
            let detail = format!("{LOCK_QUEUE_MAX} clients wait for the schema lock already");
            self.refuse(cx, requester, Refused { code: ErrorCode::SchemaBusy, detail });
            return Some(());
        }
        let purpose = purpose.chars().take(PURPOSE_CHARS_MAX).collect();
        self.lock.tickets += 1;
        let wait = Span::from_millis(u64::from(wait_millis));
        let ticket = self.lock.tickets;
        let claim = Claim { requester, purpose, ticket, since: cx.now(), wait, was_granted };
        if self.succession.is_some() {
            cx.mark("claim for the schema lock waits for a new president");
            self.lock.queue.push_back(claim);
        } else {
            self.consider(cx, claim);
        }
        Some(())
    }

    /// A claim gets the lock, waits for it, or has lost it.
    fn consider(&mut self, cx: &mut Context<'_>, claim: Claim) {
        let Requester { address, request, .. } = claim.requester;
        if self.lock.holder.as_ref().is_some_and(|holder| holder.is(address.node(), request)) {
            cx.mark("a new president confirms a claim for the schema lock");
            return self.order_lock(cx, Some(claim.requester));
        }
        if claim.was_granted {
            let detail = "the claim has lost it".into();
            return self.refuse(cx, claim.requester, Refused { code: ErrorCode::SchemaLockTimeout, detail });
        }
        let (ticket, wait) = (claim.ticket, claim.wait);
        self.lock.queue.push_back(claim);
        if self.lock.holder.is_none() {
            self.grant(cx);
        } else if wait == Span(0) {
            self.on_lock_wait_over(cx, ticket);
        } else {
            cx.send_after(wait, Timer::LockWait(ticket).token());
        }
    }

    /// The lock is free: the first in the queue gets it, if it is known that nobody else has it.
    fn grant(&mut self, cx: &mut Context<'_>) {
        if self.succession.is_some() {
            return;
        }
        let Some(mut claim) = self.lock.queue.pop_front() else { return };
        claim.since = cx.now();
        let requester = claim.requester;
        self.lock.holder = Some(claim);
        self.order_lock(cx, Some(requester));
    }

    /// Has the other dictionaries note which claim has the lock; `requester` is answered then.
    fn order_lock(&mut self, cx: &mut Context<'_>, requester: Option<Requester>) {
        let holder = self.lock.holder.as_ref().map(|claim| {
            let api = claim.requester.address.node();
            let owner = self.admitted.owner(api);
            LockHolder { api: api.0, owner, request: claim.requester.request, purpose: claim.purpose.clone() }
        });
        let answered = requester.map(|requester| (requester, None));
        self.order_others(cx, RoundName::NO_CHANGE, RoundTask::SchemaLock { holder }, answered);
    }

    /// The president's dictionary has given the lock to a claim, or taken it back.
    pub(crate) fn note_lock_holder(&mut self, cx: &Context<'_>, holder: Option<LockHolder>) {
        // The API node may have been closed here before this order has come.
        let has_gone = |holder: &LockHolder| self.admitted.owner(NodeId(holder.api)) != holder.owner;
        self.lock.is_ending = holder.as_ref().is_some_and(has_gone);
        self.lock.holder = holder.map(|LockHolder { api, owner: _, request, purpose }| Claim {
            requester: Requester {
                address: Address::new(NodeId(api), BlockNumber::Api, 0),
                request,
                refusal: SignalNumber::SchemaLockRefuse,
            },
            purpose,
            ticket: 0,
            since: cx.now(),
            wait: Span(0),
            was_granted: true,
        });
    }

    /// A new president leaves the lock to the claim that is noted, if its API node was not closed, and looks at those
    /// that have come meanwhile.
    pub(crate) fn restate_lock(&mut self, cx: &mut Context<'_>) {
        if core::mem::take(&mut self.lock.is_ending) {
            cx.mark("a new president takes the schema lock back whose holder has gone");
            self.lock.holder = None;
        }
        if cx.has_bug(InjectedBug::LockDiesWithPresident) {
            self.lock.holder = None;
        }
        self.order_lock(cx, None);
        for claim in core::mem::take(&mut self.lock.queue) {
            self.consider(cx, claim);
        }
    }

    pub(crate) fn on_lock_wait_over(&mut self, cx: &mut Context<'_>, ticket: u64) {
        let Some(at) = self.lock.queue.iter().position(|claim| claim.ticket == ticket) else { return };
        let requester = self.lock.queue.remove(at).expect("it was found").requester;
        let holder = self.lock.holder.as_ref().expect("somebody waits only while somebody else has it");
        let (api, purpose) = (holder.requester.address.node(), &holder.purpose);
        let seconds = cx.now().since(holder.since).0 / 1_000_000;
        let detail = format!("client {api} has held the schema lock for {seconds} s: {purpose}");
        self.refuse(cx, requester, Refused { code: ErrorCode::SchemaLockTimeout, detail });
    }

    /// A claim ends, whether it waits, has the lock, or is not known any more.
    pub(crate) fn on_schema_unlock_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(SchemaLockBody { request }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::SchemaUnlockRefuse, frame);
        };
        let api = frame.sender().node();
        let requester =
            Requester { address: frame.sender(), request, refusal: SignalNumber::SchemaUnlockRefuse };
        self.lock.queue.retain(|claim| !claim.is(api, request));
        if self.lock.holder.take_if(|holder| holder.is(api, request)).is_some() {
            self.lock.is_ending = false;
        }
        // Also if it is not known here: others may know of it, if the predecessor's order has reached no more of them.
        self.order_lock(cx, Some(requester));
        if self.lock.holder.is_none() {
            self.grant(cx);
        }
        Some(())
    }

    /// An API node has gone.
    pub(crate) fn release_lock_of(&mut self, cx: &mut Context<'_>, api: NodeId) {
        self.lock.queue.retain(|claim| claim.requester.address.node() != api);
        if self.lock.holder() != Some(api) {
            return;
        }
        if cx.view().president() != Some(cx.own().node()) {
            self.lock.is_ending = true;
            return;
        }
        if cx.has_bug(InjectedBug::LockOutlivesOwner) {
            return;
        }
        cx.mark("holder of the schema lock has gone");
        cx.log(LogLevel::Warning, format_args!("client {api} has gone, and the schema lock that it had"));
        (self.lock.holder, self.lock.is_ending) = (None, false);
        self.order_lock(cx, None);
        self.grant(cx);
    }
}
