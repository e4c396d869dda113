//! Who is notified of schema changes.
//!
//! Each *watcher* gets every change, in order, and confirms what it has acted on; a data node is notified of what all
//! of them have confirmed. Whenever the client has begun to get events from a data node, at first and after its
//! connection was lost, each watcher gets [`SchemaNews::Everything`] before anything else: changes may have been
//! missed.

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::settings::SCHEMA_WATCHERS_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::{Span, Tick};
use vinga_wire::handshake::Refusal;
use vinga_wire::schema::{SchemaEvent, SchemaEventsConfirm, SchemaEventsRequest, SchemaEventsSeenOrder};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// After how long a data node is asked again that has refused.
const ASK_AGAIN: Span = Span::from_millis(50);

/// What a watcher is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaNews {
    /// Nothing that is remembered of tables and databases may be relied on.
    Everything {
        /// Which incarnation of the cluster this is. If it is not that of the last time, all rows are gone, too.
        incarnation: u64,
    },
    /// This has changed.
    Changed(SchemaEvent),
}

/// Names news, to confirm it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NewsId {
    /// Counts subscriptions: what came in an earlier one needs no confirmation any more.
    subscription: u32,
    sequence: u64,
}

/// Somebody who wants to know.
struct Watcher {
    news: VecDeque<(NewsId, SchemaNews)>,
    /// The newest that was confirmed.
    confirmed: NewsId,
}

/// The data node that sends events.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Nobody.
    None,
    /// This node was asked to, or does.
    Node {
        node: NodeId,
        link: LinkId,
        /// Whether it has agreed.
        is_confirmed: bool,
    },
}

/// The subscription to schema events, and those who watch them.
pub(crate) struct SchemaEvents {
    watchers: Pool<Watcher>,
    source: Source,
    subscription: u32,
    /// The newest news that came.
    newest: u64,
    /// What was last confirmed to the node.
    received: u64,
    /// No node is asked before: the last one has refused, as it does not know yet that it leads the cluster.
    ask_at: Tick,
}

impl SchemaEvents {
    pub fn new() -> Self {
        SchemaEvents {
            watchers: Pool::new(SCHEMA_WATCHERS_MAX),
            source: Source::None,
            subscription: 0,
            newest: 0,
            received: 0,
            ask_at: Tick(0),
        }
    }

    /// One more watcher.
    pub fn watch(
        &mut self,
        net: &mut Net,
        way: Option<(NodeId, LinkId)>,
        incarnation: u64,
    ) -> Result<Handle> {
        let confirmed = NewsId { subscription: 0, sequence: 0 };
        let watcher = Watcher { news: VecDeque::new(), confirmed };
        let handle = self.watchers.insert(watcher).map_err(|_| Error::new(ErrorCode::Overloaded))?;
        match self.source {
            Source::None => self.subscribe(net, way),
            Source::Node { is_confirmed: false, .. } => {}
            Source::Node { is_confirmed: true, .. } => {
                let id = NewsId { subscription: self.subscription, sequence: self.newest };
                self.watchers[handle].news.push_back((id, SchemaNews::Everything { incarnation }));
                net.notify(TokenKind::SchemaEvents, handle);
            }
        }
        Ok(handle)
    }

    /// Subscribes at a node, if somebody wants events and none sends them.
    pub fn subscribe(&mut self, net: &mut Net, way: Option<(NodeId, LinkId)>) {
        let (Source::None, Some((node, link))) = (self.source, way) else { return };
        if self.watchers.used() == 0 || net.now < self.ask_at {
            return;
        }
        self.subscription += 1;
        self.source = Source::Node { node, link, is_confirmed: false };
        let body = SchemaEventsRequest { request: self.subscription };
        cold::write(&mut net.frame(link, SignalNumber::SchemaEventsRequest, dictionary(node)), &body);
        net.link(link).hurry();
    }

    /// Whether a signal of this connection comes from the node that sends events.
    fn is_source(&self, from: LinkId) -> bool {
        matches!(self.source, Source::Node { link, .. } if link.endpoint() == from.endpoint())
    }

    pub fn on_confirm(
        &mut self,
        net: &mut Net,
        from: LinkId,
        frame: &Frame<'_>,
        incarnation: u64,
    ) -> Option<()> {
        let SchemaEventsConfirm { request, sequence } = cold::read(frame)?;
        if request == self.subscription
            && self.is_source(from)
            && let Source::Node { is_confirmed, .. } = &mut self.source
        {
            *is_confirmed = true;
            (self.newest, self.received) = (sequence, sequence);
            let id = NewsId { subscription: self.subscription, sequence };
            self.push(net, id, &SchemaNews::Everything { incarnation });
        }
        Some(())
    }

    /// The node does not lead the cluster in its own view, which is older than this client's: it is asked again.
    pub fn on_refuse(&mut self, net: &Net, from: LinkId, frame: &Frame<'_>) -> Option<()> {
        let Refusal { request, .. } = cold::read(frame)?;
        if request == self.subscription && self.is_source(from) {
            self.source = Source::None;
            self.ask_at = net.now + ASK_AGAIN;
        }
        Some(())
    }

    /// When [`SchemaEvents::subscribe`] is to be called, though no connection has changed.
    pub fn due_at(&self, net: &Net) -> Option<Tick> {
        let is_refused = matches!(self.source, Source::None) && self.watchers.used() > 0;
        (is_refused && net.now < self.ask_at).then_some(self.ask_at)
    }

    pub fn on_report(&mut self, net: &mut Net, from: LinkId, frame: &Frame<'_>) -> Option<()> {
        let event: SchemaEvent = cold::read(frame)?;
        // What came before the node has agreed belongs to an earlier subscription.
        let is_received = matches!(self.source, Source::Node { is_confirmed: true, .. });
        if is_received && self.is_source(from) {
            self.newest = event.sequence;
            let id = NewsId { subscription: self.subscription, sequence: event.sequence };
            self.push(net, id, &SchemaNews::Changed(event));
        }
        Some(())
    }

    fn push(&mut self, net: &mut Net, id: NewsId, news: &SchemaNews) {
        let handles: Vec<Handle> = self.watchers.iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            let watcher = &mut self.watchers[handle];
            if let SchemaNews::Everything { .. } = news {
                watcher.news.clear();
            }
            watcher.news.push_back((id, news.clone()));
            net.notify(TokenKind::SchemaEvents, handle);
        }
    }

    /// The next news of a watcher.
    pub fn take(&mut self, handle: Handle) -> Option<(NewsId, SchemaNews)> {
        self.watchers.get_mut(handle)?.news.pop_front()
    }

    /// A watcher has acted on news, and on all before it.
    pub fn confirm(&mut self, net: &mut Net, handle: Handle, id: NewsId) {
        if let Some(watcher) = self.watchers.get_mut(handle) {
            watcher.confirmed = watcher.confirmed.max(id);
            self.send_confirmed(net);
        }
    }

    /// Tells the node what all watchers have confirmed, if that is more than it knows.
    fn send_confirmed(&mut self, net: &mut Net) {
        let Source::Node { node, link, is_confirmed: true } = self.source else { return };
        let Some(all) = self.watchers.iter().map(|(_, watcher)| watcher.confirmed).min() else { return };
        if all.subscription == self.subscription && all.sequence > self.received {
            self.received = all.sequence;
            let body = SchemaEventsSeenOrder { sequence: all.sequence };
            cold::write(&mut net.frame(link, SignalNumber::SchemaEventsSeenOrder, dictionary(node)), &body);
            net.link(link).hurry();
        }
    }

    /// A watcher wants to know no more.
    pub fn cancel(&mut self, net: &mut Net, handle: Handle) {
        if self.watchers.remove(handle).is_none() {
            return;
        }
        if self.watchers.used() > 0 {
            self.send_confirmed(net);
        } else if let Source::Node { node, link, .. } = core::mem::replace(&mut self.source, Source::None) {
            net.frame(link, SignalNumber::SchemaEventsStopOrder, dictionary(node));
            net.link(link).hurry();
        }
    }

    /// All connections to an endpoint are gone.
    pub fn on_lost(&mut self, endpoint: u16) {
        if matches!(self.source, Source::Node { link, .. } if link.endpoint() == endpoint) {
            self.source = Source::None;
        }
    }

    /// Whether nobody wants to know.
    pub fn is_at_rest(&self) -> bool {
        self.watchers.used() == 0
    }
}

fn dictionary(node: NodeId) -> Address {
    Address::new(node, BlockNumber::Dictionary, 0)
}
