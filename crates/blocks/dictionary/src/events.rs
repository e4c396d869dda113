//! Schema events: who is notified of changes, and who has confirmed.
//!
//! The requester of a change is answered when all subscribers but itself have confirmed the change's events, or
//! have gone, or [`EVENT_WAIT_MAX`] has passed. Who has let that time pass is *late*: it is notified of further
//! changes, but nobody waits for it until it has caught up. (What it believes of tables is never used for anything
//! wrong: table versions see to that.)

use crate::{Dictionary, Requester};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Context, InjectedBug, LogLevel, Span};
use vinga_wire::schema::{SchemaEvent, SchemaEventsConfirm, SchemaEventsRequest, SchemaEventsSeenOrder};
use vinga_wire::{Address, Frame, SignalNumber, cold};

/// How long the requester of a change waits for a subscriber.
pub const EVENT_WAIT_MAX: Span = Span::from_millis(10_000);

/// An API node that is notified of events.
struct Subscriber {
    address: Address,
    /// The newest event that it has confirmed, or that was there when it came.
    seen: u64,
    is_late: bool,
}

/// All of them.
#[derive(Default)]
pub struct Subscribers {
    by_node: BTreeMap<NodeId, Subscriber>,
    /// Number of the newest event.
    sequence: u64,
}

impl Subscribers {
    /// Who is notified of events.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.by_node.keys().copied()
    }

    /// Numbers events and notifies everybody; returns who has to confirm them. Where nobody is notified (a write fence
    /// has no event) nobody could ever confirm, so nobody has to.
    pub fn notify(
        &mut self,
        cx: &mut Context<'_>,
        events: Vec<SchemaEvent>,
        by: Option<NodeId>,
    ) -> BTreeSet<NodeId> {
        if events.is_empty() {
            return BTreeSet::new();
        }
        for mut event in events {
            self.sequence += 1;
            event.sequence = self.sequence;
            for subscriber in self.by_node.values() {
                cold::write(&mut cx.frame(SignalNumber::SchemaEventReport, subscriber.address), &event);
            }
        }
        if cx.has_bug(InjectedBug::EventNotAwaited) {
            return BTreeSet::new();
        }
        let others = self.by_node.iter().filter(|(node, s)| Some(**node) != by && !s.is_late);
        others.map(|(node, _)| *node).collect()
    }
}

impl Dictionary {
    pub(crate) fn on_schema_events_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let Some(SchemaEventsRequest { request }) = cold::read(frame) else {
            return self.refuse_malformed(cx, SignalNumber::SchemaEventsRefuse, frame);
        };
        let (address, sequence) = (frame.sender(), self.subscribers.sequence);
        // Who asks again begins again, but is awaited for what it was sent.
        let subscriber = Subscriber { address, seen: sequence, is_late: false };
        self.subscribers.by_node.entry(address.node()).or_insert(subscriber);
        let body = SchemaEventsConfirm { request, sequence };
        cold::write(&mut cx.frame(SignalNumber::SchemaEventsConfirm, address), &body);
        Some(())
    }

    pub(crate) fn on_schema_events_seen_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let SchemaEventsSeenOrder { sequence } = cold::read(frame)?;
        let (node, newest) = (frame.sender().node(), self.subscribers.sequence);
        if let Some(subscriber) = self.subscribers.by_node.get_mut(&node) {
            subscriber.seen = subscriber.seen.max(sequence.min(newest));
            if subscriber.seen == newest {
                subscriber.is_late = false;
                self.no_longer_await(cx, node);
            }
        }
        Some(())
    }

    pub(crate) fn on_schema_events_stop_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        self.end_subscription(cx, frame.sender().node());
    }

    /// An API node is notified of nothing more.
    pub(crate) fn end_subscription(&mut self, cx: &mut Context<'_>, node: NodeId) {
        if self.subscribers.by_node.remove(&node).is_some() {
            self.no_longer_await(cx, node);
        }
    }

    fn no_longer_await(&mut self, cx: &mut Context<'_>, node: NodeId) {
        if let Some(change) = &mut self.change {
            change.no_longer_await(node);
            self.go_on(cx);
        }
    }

    /// Time is up for those who have not confirmed the events of a change.
    pub(crate) fn on_event_wait_over(&mut self, cx: &mut Context<'_>, number: u64) {
        let Some(change) = &mut self.change else { return };
        for node in change.take_awaited_subscribers(number) {
            cx.mark("subscriber did not confirm a schema event in time");
            let text =
                format_args!("client {node} did not confirm a schema event in time: nobody waits for it");
            cx.log(LogLevel::Warning, text);
            if let Some(subscriber) = self.subscribers.by_node.get_mut(&node) {
                subscriber.is_late = true;
            }
        }
        self.go_on(cx);
    }
}

/// An event that is not numbered yet.
pub fn event(kind: vinga_wire::schema::SchemaEventKind, requester: Requester, name: &str) -> SchemaEvent {
    SchemaEvent {
        sequence: 0,
        kind,
        name: name.into(),
        new_name: String::new(),
        table: 0,
        version: 0,
        by: requester.address.node().0,
    }
}
