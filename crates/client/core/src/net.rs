//! What all parts of the machine share: connections, ways, what is known of the cluster, and what the driver is ordered
//! to do.

use crate::link::{Link, LinkId};
use crate::outcomes::Outcomes;
use crate::routes::{Owner, PartitionRoutes};
use crate::settings::Settings;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::time::Tick;
use vinga_base::{Incarnation, NodeId, PartitionId, TransactionId, ViewNumber};
use vinga_wire::handshake::CONNECTIONS_MAX;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber};

/// What something under way is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TokenKind {
    /// A batch of committed reads.
    Read,
    /// A batch of autocommitted operations.
    Write,
    /// A transaction.
    Transaction,
    /// A scan.
    Scan,
    /// A request to the dictionary or for an information table.
    Request,
    /// A question for statistics.
    Statistics,
    /// Somebody who wants to know of schema changes.
    SchemaEvents,
}

impl TokenKind {
    /// Number of kinds.
    pub const COUNT: usize = 7;
}

/// Names something that is under way. A token that has been taken or cancelled finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) handle: Handle,
}

impl Token {
    /// What it is.
    pub fn kind(self) -> TokenKind {
        self.kind
    }

    /// Its place among the tokens of its kind, so that a driver can keep something of its own beside it.
    pub fn index(self) -> usize {
        self.handle.index() as usize
    }
}

/// What the driver has to do with connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Open a connection, then call `on_opened` or `on_open_failed`.
    Open(LinkId),
    /// Close it; no call follows.
    Close(LinkId),
}

/// What becomes of that which a data node may have sent, and which has not been read, when its connections are closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It is lost.
    Lost,
    /// There is nothing.
    Nothing,
}

/// When endpoints were connected, and when something may have been lost with their connections, in the order of these
/// events.
pub struct Turnovers {
    /// How many there have been.
    count: u64,
    /// The newest of each endpoint that was a connection; 0 for none.
    connected: Vec<u64>,
    /// The newest that was a loss.
    lost: Vec<u64>,
    /// The view that was known when each was connected last.
    connected_in: Vec<ViewNumber>,
}

impl Turnovers {
    fn new(endpoints: usize) -> Self {
        let none = vec![0; endpoints];
        let connected_in = vec![ViewNumber(0); endpoints];
        Turnovers { count: 0, connected: none.clone(), lost: none, connected_in }
    }

    /// An endpoint is connected, in this view or an earlier one of its data node.
    pub fn note_connected(&mut self, endpoint: u16, view: ViewNumber) {
        self.count += 1;
        self.connected[usize::from(endpoint)] = self.count;
        self.connected_in[usize::from(endpoint)] = view;
    }

    /// The connections of an endpoint are lost, and what its data node may have sent by them. Those that end when
    /// everything has come are none of these events.
    pub fn note_lost(&mut self, endpoint: u16) {
        self.count += 1;
        self.lost[usize::from(endpoint)] = self.count;
    }

    fn add_endpoint(&mut self) {
        self.connected.push(0);
        self.lost.push(0);
        self.connected_in.push(ViewNumber(0));
    }

    /// When the connections of an endpoint were opened, the last time.
    pub fn connected(&self, endpoint: u16) -> u64 {
        self.connected[usize::from(endpoint)]
    }

    /// Whether an answer may be missing to what was asked for when there had been `asked` events, and which was sent by
    /// the connections that an endpoint had since `connected`: they were opened later, or lost.
    fn may_lack(&self, endpoint: u16, connected: u64, asked: u64) -> bool {
        connected > asked || self.is_lost_since(endpoint, connected)
    }

    fn is_lost_since(&self, endpoint: u16, event: u64) -> bool {
        self.lost[usize::from(endpoint)] > event
    }
}

/// What was known of connections and owners when something was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    turnovers: u64,
    view: ViewNumber,
}

/// The part of the machine that all others use.
pub struct Net {
    pub settings: Settings,
    pub now: Tick,
    pub api: NodeId,
    pub incarnation: Incarnation,
    /// What it asks for when it begins a session: more each time.
    pub requested: Incarnation,
    pub epoch_seen: u64,
    pub links: Vec<Link>,
    pub routes: PartitionRoutes,
    pub outcomes: Outcomes,
    pub turnovers: Turnovers,
    /// Tokens about which there is news for the driver.
    pub news: Vec<Token>,
    pub commands: VecDeque<Command>,
    transactions: u64,
    trace: u32,
}

impl Net {
    pub fn new(settings: Settings) -> Self {
        let endpoints = settings.addresses.len();
        let links = endpoints * usize::from(CONNECTIONS_MAX);
        Net {
            now: Tick(0),
            api: NodeId(settings.node),
            incarnation: settings.incarnation,
            requested: settings.incarnation,
            epoch_seen: 0,
            links: (0..links).map(|_| Link::default()).collect(),
            routes: PartitionRoutes::default(),
            outcomes: Outcomes::default(),
            turnovers: Turnovers::new(endpoints),
            news: Vec::new(),
            commands: VecDeque::new(),
            transactions: 0,
            trace: 0,
            settings,
        }
    }

    /// Adopts a view if it is newer than the one that is known.
    pub fn adopt(&mut self, view: ClusterView) {
        let turnovers = &self.turnovers;
        self.routes.adopt(view, |endpoint| turnovers.connected(endpoint));
    }

    /// Makes room for one more endpoint.
    pub fn add_endpoint(&mut self) {
        self.links.extend((0..CONNECTIONS_MAX).map(|_| Link::default()));
        self.turnovers.add_endpoint();
    }

    #[inline]
    pub fn link(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link.index()]
    }

    /// The next session that is asked for is newer than all that this client has had or may have been given.
    pub fn request_newer(&mut self) {
        self.requested = Incarnation(self.requested.max(self.incarnation).0.saturating_add(1));
    }

    /// This client's address.
    #[inline]
    pub fn own(&self) -> Address {
        Address::new(self.api, BlockNumber::Api, 0)
    }

    /// Begins a frame at the end of what waits on a connection.
    #[inline]
    pub fn frame(&mut self, link: LinkId, signal: SignalNumber, receiver: Address) -> FrameWriter<'_> {
        self.trace = self.trace.wrapping_add(1).max(1);
        let (view, own) = (self.routes.view().number().0 as u8, self.own());
        FrameWriter::begin(&mut self.links[link.index()].out, signal, view, receiver, own, self.trace)
    }

    /// Takes a newer epoch over. No data node sends one beyond the greatest that there is.
    #[inline]
    pub fn note_epoch(&mut self, epoch: u64) {
        self.epoch_seen = self.epoch_seen.max(epoch.min(vinga_base::Epoch::MAX.0));
    }

    /// The id of the next transaction.
    #[inline]
    pub fn next_transaction(&mut self) -> TransactionId {
        self.transactions += 1;
        let id = TransactionId::new(self.api, self.incarnation, self.transactions);
        if id.number() == 0 { self.next_transaction() } else { id }
    }

    /// The moment: what is sent now may be answered by way of connections that are lost later.
    #[inline]
    pub fn moment(&self) -> Moment {
        Moment { turnovers: self.turnovers.count, view: self.routes.view().number() }
    }

    /// Whether everything that was asked for at a moment can still be answered by the data nodes themselves.
    #[inline]
    pub fn is_unbroken_since(&self, moment: Moment) -> bool {
        self.moment() == moment && self.routes.is_whole()
    }

    /// Whether a row of a partition that was asked for at a moment may have been lost on its way from its owner: the
    /// connections to that, or to one that was the owner since, are not those of then, or a data node has failed that
    /// may have been it. Without that the row has come, or comes, from one of them. What becomes of other connections
    /// says nothing: of those to a data node that stops, say, which has handed its partitions over before. Nor does it
    /// if the present owner was connected since, before it was the owner.
    pub fn may_have_lost(&self, partition: PartitionId, moment: Moment) -> bool {
        let now = self.moment();
        if now.view < moment.view || self.routes.lost_in() > moment.view {
            return true;
        }
        let mut former = self.routes.former_owners(partition, moment.view);
        let was_lost = former.any(|owner| match owner {
            Owner::At { endpoint, connected } => {
                self.turnovers.may_lack(endpoint, connected, moment.turnovers)
            }
            Owner::NotConnected => true,
            Owner::NotKnown { endpoint, connected } => {
                now.turnovers != moment.turnovers
                    || self.turnovers.may_lack(endpoint, connected, moment.turnovers)
            }
        });
        let Some(endpoint) = self.routes.partition(partition).and_then(|route| route.endpoint) else {
            return true;
        };
        let connected = self.turnovers.connected(endpoint);
        let is_other = connected > moment.turnovers;
        let is_first = !self.turnovers.is_lost_since(endpoint, moment.turnovers);
        let was_before =
            self.turnovers.connected_in[usize::from(endpoint)] <= self.routes.other_owner_in(partition);
        let is_lost = self.turnovers.is_lost_since(endpoint, connected);
        was_lost || is_lost || is_other && !(is_first && was_before)
    }

    /// Tells the driver that there is news.
    #[inline]
    pub fn notify(&mut self, kind: TokenKind, handle: Handle) {
        self.news.push(Token { kind, handle });
    }
}
