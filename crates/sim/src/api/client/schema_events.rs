//! Clients that watch the schema: some confirm at once, some late, some never.

use super::{Client, LinkKey, Surroundings};
use crate::schema::{EVENT_WAIT, TICK_LAG_MAX};
use vinga_base::{Incarnation, NodeId};
use vinga_wire::schema::{SchemaEvent, SchemaEventKind, SchemaEventsRequest, SchemaEventsSeenOrder};
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
    /// Events that seem to have been confirmed too late. If the connection breaks, the data node may have given this
    /// client up before.
    suspicions: Vec<String>,
}

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

    /// An event that was confirmed too late, as is certain when everything is at rest.
    pub fn suspicion(&self) -> Option<&String> {
        self.suspicions.first()
    }

    /// The connection is gone.
    pub fn forget(&mut self) {
        self.unconfirmed.clear();
        self.suspicions.clear();
    }
}

impl Client {
    /// A schema event that was confirmed only after the requester of the change was told, if there is one.
    pub fn late_schema_event(&self) -> Option<&String> {
        self.watching.suspicion()
    }

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
        if self.watching.manner == Manner::Deaf || self.watching.unconfirmed.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.watching.unconfirmed);
        for event in &events {
            if let Some((told, waited)) = cx.changes.told(event.version)
                && waited < EVENT_WAIT - TICK_LAG_MAX
                && event.by != self.node.0
                && event.kind != SchemaEventKind::DropTable
            {
                let what = format!(
                    "the requester of version {} was told at {told} µs, API node {} had not confirmed the event",
                    event.version, self.node
                );
                self.watching.suspicions.push(what);
            }
        }
        let sequence = events.last().expect("it is not empty").sequence;
        let (link, dictionary) = self.dictionary();
        if let Some(mut frame) = self.frame(link, SignalNumber::SchemaEventsSeenOrder, dictionary, 0) {
            cold::write(&mut frame, &SchemaEventsSeenOrder { sequence });
        }
    }
}
