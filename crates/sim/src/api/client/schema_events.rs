//! Clients that watch the schema: some confirm at once, some late, some never.

use super::{Client, LinkKey, Surroundings};
use crate::agenda::Time;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::schema::{SchemaEvent, SchemaEventsRequest, SchemaEventsSeenOrder};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// How a client watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Not at all.
    Not,
    /// It confirms at once.
    Prompt,
    /// With its next heartbeat.
    Lazy,
    /// Never.
    Deaf,
}

/// What a client has to do about schema events.
pub struct Watching {
    manner: Manner,
    /// Events that came and were not confirmed.
    unconfirmed: Vec<SchemaEvent>,
    /// Events that seem to have been confirmed too late: since when it seems so, and what. If the connection breaks soon, the
    /// data node had given this client up.
    suspicions: Vec<(Time, String)>,
}

/// How long the dictionary waits for a subscriber.
const EVENT_WAIT: Time = 10_000_000;

/// After so long a client knows that a data node has given it up.
const CERTAINTY: Time = 4_000_000;

impl Watching {
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        let manner = match (u32::from(node.0) + incarnation.0) % 8 {
            0 | 1 => Manner::Not,
            2..=4 => Manner::Prompt,
            5 | 6 => Manner::Lazy,
            _ => Manner::Deaf,
        };
        Watching { manner, unconfirmed: Vec::new(), suspicions: Vec::new() }
    }

    /// The connection is gone.
    pub fn forget(&mut self) {
        self.unconfirmed.clear();
        self.suspicions.clear();
    }
}

impl Client {
    fn dictionary(&self) -> (LinkKey, Address) {
        let dictionary = Address::new(NodeId(self.president), BlockNumber::Dictionary, 0);
        (LinkKey { node: self.president, index: 0 }, dictionary)
    }

    /// Connected: asks to be told.
    pub(super) fn watch_schema(&mut self) {
        if self.watching.manner == Manner::Not {
            return;
        }
        let (link, dictionary) = self.dictionary();
        let mut frame = self
            .frame(link, SignalNumber::SchemaEventsRequest, dictionary, 0)
            .expect("while the client is up it is open");
        cold::write(&mut frame, &SchemaEventsRequest { request: 0 });
    }

    pub(super) fn on_schema_event(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        self.watching.unconfirmed.push(cold::read(frame)?);
        if self.watching.manner == Manner::Prompt {
            self.confirm_schema_events(cx);
        }
        Some(())
    }

    /// Confirms what has come, unless it never does.
    pub(super) fn confirm_schema_events(&mut self, cx: &mut Surroundings<'_>) {
        let now = cx.now;
        if let Some(at) = self.watching.suspicions.iter().position(|(since, _)| now > since + CERTAINTY) {
            cx.violations.push(self.watching.suspicions.swap_remove(at).1);
        }
        if self.watching.manner == Manner::Deaf || self.watching.unconfirmed.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.watching.unconfirmed);
        for event in &events {
            if let Some((told, waited)) = cx.changes.told(event.version)
                && waited < EVENT_WAIT
                && event.by != self.node.0
            {
                let what = format!(
                    "the asker of version {} was told at {told} µs, API node {} had not confirmed the event",
                    event.version, self.node
                );
                self.watching.suspicions.push((now, what));
            }
        }
        let sequence = events.last().expect("it is not empty").sequence;
        let (link, dictionary) = self.dictionary();
        if let Some(mut frame) = self.frame(link, SignalNumber::SchemaEventsSeenOrder, dictionary, 0) {
            cold::write(&mut frame, &SchemaEventsSeenOrder { sequence });
        }
    }
}
