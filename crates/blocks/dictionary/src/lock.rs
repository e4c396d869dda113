//! The schema lock: one API node at a time has it, the others wait in a queue.
//!
//! The dictionary itself needs no lock, for it carries out one change at a time. The lock is for what consists of
//! several changes, like a statement of a SQL node, and binds only those who ask for it. It belongs to an incarnation
//! of an API node and is free when that ends, whatever the API node requested.

use crate::{Dictionary, Requester, Timer};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use vinga_base::NodeId;
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::schema::{SchemaLockBody, SchemaLockRequest};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

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
    /// Since when it waits, or has the lock.
    since: Tick,
}

/// Who has the schema lock, and the queue behind.
#[derive(Default)]
pub struct SchemaLock {
    holder: Option<Claim>,
    queue: VecDeque<Claim>,
    tickets: u64,
}

impl SchemaLock {
    /// The API node that has it.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder.as_ref().map(|claim| claim.requester.address.node())
    }

    /// Takes claims back. Says whether the lock is free now although somebody wants it.
    fn withdraw(&mut self, is_meant: impl Fn(&Requester) -> bool) -> bool {
        self.queue.retain(|claim| !is_meant(&claim.requester));
        if self.holder.as_ref().is_some_and(|claim| is_meant(&claim.requester)) {
            self.holder = None;
        }
        self.holder.is_none() && !self.queue.is_empty()
    }
}

impl Dictionary {
    pub(crate) fn on_schema_lock_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(SchemaLockRequest { request, purpose, wait_millis }) = cold::read(frame) else {
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
        let ticket = self.lock.tickets;
        self.lock.queue.push_back(Claim { requester, purpose, ticket, since: cx.now() });
        if self.lock.holder.is_none() {
            self.grant(cx);
        } else if wait_millis == 0 {
            self.on_lock_wait_over(cx, ticket);
        } else {
            cx.send_after(Span::from_millis(u64::from(wait_millis)), Timer::LockWait(ticket).token());
        }
        Some(())
    }

    /// The lock is free: the first in the queue gets it.
    fn grant(&mut self, cx: &mut Context<'_>) {
        let Some(mut claim) = self.lock.queue.pop_front() else { return };
        claim.since = cx.now();
        let body = SchemaLockBody { request: claim.requester.request };
        cold::write(&mut cx.frame(SignalNumber::SchemaLockConfirm, claim.requester.address), &body);
        self.lock.holder = Some(claim);
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

    pub(crate) fn on_schema_unlock_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaLockBody { request } = cold::read(frame)?;
        let node = frame.sender().node();
        if self.lock.withdraw(|requester| requester.address.node() == node && requester.request == request) {
            self.grant(cx);
        }
        Some(())
    }

    /// An API node has gone.
    pub(crate) fn release_lock_of(&mut self, cx: &mut Context<'_>, api: NodeId) {
        if self.lock.holder() == Some(api) {
            if cx.has_bug(InjectedBug::LockOutlivesOwner) {
                return;
            }
            cx.mark("holder of the schema lock has gone");
            cx.log(LogLevel::Warning, format_args!("client {api} has gone, and the schema lock that it had"));
        }
        if self.lock.withdraw(|requester| requester.address.node() == api) {
            self.grant(cx);
        }
    }
}
