//! The connections that a thread serves, in which order, and how it polls them.
//!
//! While only one API node has work to offer, all bytes of one read of its connection are handled, with all that
//! follows from them. When there are others, they share the thread's time ([`crate::shares`]): a connection then gives
//! a piece of work that is bounded in time, and the rest of what was read stays with it. What follows from requests
//! inside the thread stands in the executor's lane of local signals, and is done in pieces, too; an API node whose
//! signals stand there gives nothing more until the lane is empty. Connections that have something left stand in the
//! queue: the thread does not sleep.

use crate::api_nodes::Closing;
use crate::clock::Clock;
use crate::connection::{Bounds, Broken, Connection, Piece, READ_BYTES, Way};
use crate::lane_progress::LANE_BYTES;
use crate::log::RateLimit;
use crate::poller::{Interest, Poller, Ready};
use crate::relay::relay;
use crate::settings::Limits;
use crate::shares::{Allowance, FairShares, Left};
use crate::statistics::ThreadStatistics;
use crate::switchboard::{Adoption, Message, Switchboard};
use log::Level;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Host, LaneId, Outbox, Tick};
use vinga_local::Socket;
use vinga_wire::handshake::{ALL_SENT, Refusal};
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, cold};

/// Lines a second about connections that break.
const LINES_PER_SECOND: u32 = 10;

/// The poller knows sockets by the node ids of their API nodes; there are at most this many.
pub(crate) const NODE_IDS: usize = 256;

/// A lease that does not end.
const FOREVER: Tick = Tick(u64::MAX);

/// The source of the log lines.
const WHO: &str = "sockets";

/// The last that is sent on a connection of an API node.
pub(crate) struct LastWords {
    /// Why it is closed.
    pub code: ErrorCode,
    /// Nothing of what this node had to send to the API node is lost with it ([`ALL_SENT`]), if nothing waits for the
    /// connection.
    pub has_sent_all: bool,
}

impl From<ErrorCode> for LastWords {
    fn from(code: ErrorCode) -> Self {
        LastWords { code, has_sent_all: false }
    }
}

/// The connections that one thread serves.
pub(crate) struct Sockets {
    /// The send threads that write for this one; see
    /// [`ProcessSettings::senders_for`](crate::settings::ProcessSettings).
    senders: Vec<u16>,
    buffer: Box<[u8]>,
    threads: u16,
    connections: Vec<Connection>,
    /// Place in `connections` by node id.
    places: [Option<u16>; NODE_IDS],
    /// The lane of each node that was ever connected here. Lanes are never freed, so they are kept.
    lanes: [Option<LaneId>; NODE_IDS],
    /// Number of links to other data nodes.
    links: usize,
    /// Until when API nodes may be answered (`LeaseOrder`); the end of time if there are no other data nodes.
    pub lease: Tick,
    /// API nodes whose connection may have something to do.
    queue: Vec<NodeId>,
    pub shares: FairShares,
    /// What may be done at a time in this turn, if time is shared.
    pub allowance: Option<Allowance>,
    /// Where the first piece of this turn started on the clock of shares, if there was one.
    pub turn_started: Option<u64>,
    /// API nodes with signals in the lane of local ones, in their order. They give nothing more until it is empty.
    followed_up: Vec<NodeId>,
    clock: Clock,
    /// Number of connections by shared memory.
    locals: usize,
    lines: RateLimit,
}

impl Sockets {
    /// Without any connection yet, for a thread of a node with `threads` threads, of which `senders` write for it. The
    /// links to other data nodes that it will serve have lanes already.
    pub fn new(
        threads: u16,
        senders: Vec<u16>,
        links: &[(NodeId, LaneId)],
        lease: Tick,
        clock: Clock,
    ) -> Self {
        let mut lanes = [None; NODE_IDS];
        for &(node, lane) in links {
            lanes[usize::from(node.0)] = Some(lane);
        }
        Sockets {
            links: 0,
            lease,
            shares: FairShares::default(),
            allowance: None,
            turn_started: None,
            followed_up: Vec::new(),
            clock,
            senders,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            threads,
            connections: Vec::new(),
            places: [None; NODE_IDS],
            lanes,
            queue: Vec::with_capacity(NODE_IDS),
            locals: 0,
            lines: RateLimit::new(LINES_PER_SECOND),
        }
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Notes what a socket has reported, whose name is below [`NODE_IDS`].
    #[inline]
    pub fn note(&mut self, ready: Ready) {
        // The connection may have been closed since.
        let Some(place) = self.places[ready.token as usize] else { return };
        let connection = &mut self.connections[usize::from(place)];
        connection.note_events(ready.is_readable, ready.is_ending, ready.is_writable);
        if connection.has_input() && !connection.is_queued {
            connection.is_queued = true;
            self.queue.push(connection.api);
        }
    }

    /// Looks into the memory that is shared with clients on this machine; to be called once a turn.
    pub fn look(&mut self) {
        if self.locals == 0 {
            return;
        }
        for connection in self.connections.iter_mut().filter(|connection| connection.is_local()) {
            connection.look();
            if connection.has_input() && !connection.is_queued {
                connection.is_queued = true;
                self.queue.push(connection.api);
            }
        }
    }

    /// Whether there are connections by shared memory.
    pub fn has_locals(&self) -> bool {
        self.locals > 0
    }

    /// Whether unseen bytes have arrived by shared memory.
    pub fn has_news(&self) -> bool {
        self.locals > 0 && self.connections.iter().any(Connection::has_news)
    }

    /// The thread will sleep: clients on this machine will wake it. False if it must not, because one of them has sent
    /// something.
    pub fn begin_sleep(&mut self) -> bool {
        if self.locals == 0 {
            return true;
        }
        let may_sleep = self.connections.iter_mut().all(Connection::begin_sleep);
        if !may_sleep {
            self.end_sleep();
        }
        may_sleep
    }

    /// The thread is awake.
    pub fn end_sleep(&mut self) {
        if self.locals > 0 {
            self.connections.iter().for_each(Connection::end_sleep);
        }
    }

    /// Begins to serve a connection and to send the frames for its API node by it.
    pub fn adopt<H: Host>(
        &mut self,
        adoption: Adoption,
        executor: &mut Executor<H>,
        poller: &Poller,
        switchboard: &Switchboard,
        nanos: u64,
    ) {
        let api = adoption.api;
        let id = usize::from(api.0);
        assert!(self.places[id].is_none(), "a node has one connection to a thread");
        let is_link = adoption.is_link;
        let outbox = executor.outbox();
        let lane = *self.lanes[id].get_or_insert_with(|| outbox.open_lane(LANE_BYTES));
        outbox.lane_mut(lane).extend_from_slice(&adoption.welcome);
        outbox.routes.set_node(api, Some(lane));
        let stream = Arc::new(adoption.stream);
        let mut ready = Ok(());
        let (way, interest) = match (adoption.local, self.senders.get(id % self.senders.len().max(1))) {
            // Copying bytes into memory is less work than having another thread do it.
            (Some(mut local), _) => {
                ready = poller.add_wake_event(&local.wake_event).and_then(|()| local.introduce(&stream));
                (Way::Local(local), Interest::Read)
            }
            (None, None) => (Way::Socket, Interest::ReadWrite),
            (None, Some(&sender)) => {
                let (entrance, outlet) = relay(outbox.routes.own_thread(), sender, api, stream.clone());
                switchboard.threads[usize::from(sender)].post(Message::OpenOutlet(Box::new(outlet)));
                (Way::Relayed(entrance), Interest::Read)
            }
        };
        let added = ready.and_then(|()| poller.add(&*stream, u64::from(api.0), interest));
        let node = (api, is_link);
        let mut connection = Connection::new(stream, adoption.peer, node, &adoption.early, lane, way, nanos);
        self.locals += usize::from(connection.is_local());
        self.links += usize::from(is_link);
        connection.is_queued = true;
        self.places[id] = Some(self.connections.len() as u16);
        self.connections.push(connection);
        self.queue.push(api);
        if let Err(why) = added {
            self.give_up(self.connections.len() - 1, Broken::Failed(why), switchboard);
        }
    }

    /// Handles the connections' input: one read of each, or the shares that are due if there are several.
    pub fn serve<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        limits: &Limits,
        statistics: &ThreadStatistics,
        now: u64,
    ) {
        if self.links > 0 {
            self.serve_links(executor, switchboard, limits, statistics);
        }
        self.allowance = self.shares.begin(&self.queue, now);
        executor.set_patient(self.allowance.is_some());
        if let Some(allowance) = self.allowance {
            return self.serve_shared(executor, switchboard, limits, statistics, allowance);
        }
        let bounds = Bounds { threads: self.threads, limits, piece: None, may_write: self.lease == FOREVER };
        let mut at = 0;
        while at < self.queue.len() {
            if let Some(place) = self.places[usize::from(self.queue[at].0)].map(usize::from) {
                let connection = &mut self.connections[place];
                if connection.can_be_served(executor.outbox(), self.threads, limits) {
                    let served = connection.serve(executor, &mut self.buffer, &bounds, statistics);
                    if let Err(why) = served {
                        self.give_up(place, why, switchboard);
                    }
                }
                let connection = &mut self.connections[place];
                if connection.has_input() {
                    at += 1;
                    continue;
                }
                connection.is_queued = false;
            }
            self.queue.swap_remove(at);
        }
    }

    /// Serves the links to other data nodes, and nobody else.
    pub fn serve_links_alone<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        limits: &Limits,
        statistics: &ThreadStatistics,
    ) {
        self.allowance = None;
        self.serve_links(executor, switchboard, limits, statistics);
    }

    /// Serves the links to other data nodes, which come first: work that has begun elsewhere waits for them.
    fn serve_links<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        limits: &Limits,
        statistics: &ThreadStatistics,
    ) {
        executor.set_patient(false);
        let bounds = Bounds { threads: self.threads, limits, piece: None, may_write: true };
        let mut at = 0;
        while at < self.queue.len() {
            let place = self.places[usize::from(self.queue[at].0)].map(usize::from);
            let Some(place) = place.filter(|&place| self.connections[place].is_link) else {
                at += 1;
                continue;
            };
            let connection = &mut self.connections[place];
            // One read each; what is left has its turn with the other connections.
            if connection.has_input()
                && let Err(why) = connection.serve(executor, &mut self.buffer, &bounds, statistics)
            {
                self.give_up(place, why, switchboard);
            }
            let connection = &mut self.connections[place];
            connection.is_queued = connection.has_input();
            if connection.is_queued {
                at += 1;
            } else {
                self.queue.swap_remove(at);
            }
        }
    }

    /// Serves the next party, and those that start not much later.
    fn serve_shared<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        switchboard: &Switchboard,
        limits: &Limits,
        statistics: &ThreadStatistics,
        allowance: Allowance,
    ) {
        self.turn_started = None;
        if !executor.has_local() {
            self.followed_up.clear();
        }
        let begun = self.clock.nanos();
        let mut now = begun;
        while now - begun < allowance.turn_nanos {
            let Some((at, place)) = self.next(executor.outbox(), limits) else { return };
            let api = self.queue[at];
            let first = self.turn_started.get_or_insert(self.shares.start_of(api.0));
            if !self.shares.may_follow(*first, api.0) {
                return;
            }
            let Allowance { piece_nanos, slice_bytes, read_bytes, .. } = allowance;
            let piece =
                Piece { clock: self.clock, begun: now, nanos: piece_nanos, slice_bytes_max: slice_bytes };
            let may_write = self.lease == FOREVER;
            let bounds = Bounds { threads: self.threads, limits, piece: Some(piece), may_write };
            let connection = &mut self.connections[place];
            let local_bytes = executor.local_bytes();
            let served = connection.serve(executor, &mut self.buffer[..read_bytes], &bounds, statistics);
            let left = if connection.has_input() { Left::Some } else { Left::Nothing };
            if let Err(why) = served {
                self.give_up(place, why, switchboard);
            }
            if executor.local_bytes() > local_bytes {
                self.followed_up.push(api);
            }
            let connection = &mut self.connections[place];
            if !connection.has_input() {
                connection.is_queued = false;
                self.queue.swap_remove(at);
            }
            let ended = self.clock.nanos();
            self.shares.serve(api.0, ended - now, left, ended);
            now = ended;
        }
    }

    /// The connection that starts first of those that can be served: its place in the queue and that of the connection.
    fn next(&mut self, outbox: &Outbox, limits: &Limits) -> Option<(usize, usize)> {
        let (connections, places) = (&mut self.connections, &self.places);
        // Removes connections that were closed, and those that have nothing more.
        self.queue.retain(|api| {
            let Some(place) = places[usize::from(api.0)] else { return false };
            let connection = &mut connections[usize::from(place)];
            connection.is_queued = connection.has_input();
            connection.is_queued
        });
        let waiting = self.queue.iter().enumerate().filter(|(_, api)| !self.followed_up.contains(api));
        let able = waiting.filter_map(|(at, api)| {
            let place = usize::from(self.places[usize::from(api.0)]?);
            let able = self.connections[place].can_be_served(outbox, self.threads, limits);
            able.then(|| (self.shares.start_of(api.0), at, place))
        });
        able.min().map(|(_, at, place)| (at, place))
    }

    /// Continues with left-over signals within the thread, for as long as a piece of work. The time is charged to the
    /// node whose signals stood in front.
    pub fn follow_up<H: Host>(&mut self, executor: &mut Executor<H>, allowance: Allowance) {
        let begun = self.clock.nanos();
        let mut now = begun;
        executor.drain_while(|| {
            now = self.clock.nanos();
            now - begun < allowance.piece_nanos
        });
        if let Some(api) = self.followed_up.first() {
            self.shares.charge(api.0, now - begun);
        }
    }

    /// Whether a connection may have input that can be handled now. To be checked after everything was sent that can
    /// be: that may have released connections that were held back.
    pub fn can_be_served(&self, outbox: &Outbox, limits: &Limits) -> bool {
        self.any_queued(|connection| connection.can_be_served(outbox, self.threads, limits))
    }

    /// The same of links to other data nodes.
    pub fn links_can_be_served(&self, outbox: &Outbox, limits: &Limits) -> bool {
        self.any_queued(|one| one.is_link && one.can_be_served(outbox, self.threads, limits))
    }

    fn any_queued(&self, is_meant: impl Fn(&Connection) -> bool) -> bool {
        self.queue.iter().any(|api| {
            let place = self.places[usize::from(api.0)];
            place.is_some_and(|place| is_meant(&self.connections[usize::from(place)]))
        })
    }

    /// Writes what waits; returns how many bytes are left.
    pub fn flush(
        &mut self,
        outbox: &mut Outbox,
        switchboard: &Switchboard,
        limits: &Limits,
        statistics: &ThreadStatistics,
    ) -> usize {
        let mut left = 0;
        let mut to_wake = 0u128;
        let may_answer = self.may_answer();
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            if !may_answer && !connection.is_link {
                left += connection.bytes_waiting(outbox);
                continue;
            }
            let flushed = if self.allowance.is_some() && connection.has_output(outbox) {
                let begun = self.clock.nanos();
                let flushed = connection.flush(outbox, limits, statistics);
                self.shares.charge(connection.api.0, self.clock.nanos() - begun);
                flushed
            } else {
                connection.flush(outbox, limits, statistics)
            };
            left += connection.bytes_waiting(outbox);
            to_wake |= connection.take_unannounced().map_or(0, |sender| 1 << sender);
            if let Err(why) = flushed {
                self.give_up(place, why, switchboard);
            }
        }
        while to_wake != 0 {
            let own = outbox.routes.own_thread();
            switchboard.wake(to_wake.trailing_zeros() as u16, own, statistics);
            to_wake &= to_wake - 1;
        }
        left
    }

    /// Whether API nodes may be answered now. To be asked when everything that is to be sent was read from the data:
    /// then it was right when it was read, though others may go on without this node soon.
    pub fn may_answer(&self) -> bool {
        self.lease == FOREVER || Clock::tick(self.clock.nanos()) <= self.lease
    }

    /// Closes connections whose other side takes nothing, or whose send thread has failed; to be called about once a
    /// second.
    pub fn check_readers(&mut self, outbox: &Outbox, switchboard: &Switchboard, limits: &Limits, nanos: u64) {
        for place in 0..self.connections.len() {
            if let Err(why) = self.connections[place].check_reader(outbox, limits, nanos) {
                self.give_up(place, why, switchboard);
            }
        }
    }

    /// Has all connections of the API node closed because it broke a rule.
    pub fn refuse(
        &mut self,
        api: NodeId,
        code: ErrorCode,
        signal: u16,
        switchboard: &Switchboard,
    ) -> Closing {
        let why = Broken::Rule(code, signal);
        if let Some(place) = self.places[usize::from(api.0)] {
            self.give_up(usize::from(place), why, switchboard);
            return Closing::UnderWay;
        }
        let closing = switchboard.close(api, Some(code));
        if closing == Closing::Begins {
            let (level, text) = reported(&why);
            self.lines.write(level, WHO, format_args!("API node {api}: {text}"));
        }
        closing
    }

    fn give_up(&mut self, place: usize, why: Broken, switchboard: &Switchboard) {
        let connection = &mut self.connections[place];
        if std::mem::replace(&mut connection.is_broken, true) {
            return;
        }
        let (api, peer) = (connection.api, connection.peer);
        let kind = if connection.is_link { "data node" } else { "API node" };
        let reason = match &why {
            Broken::Ended | Broken::Failed(_) => None,
            Broken::Rule(code, _) => Some(*code),
        };
        if switchboard.close(api, reason) == Closing::Begins {
            let (level, text) = reported(&why);
            self.lines.write(level, WHO, format_args!("{kind} {api} ({peer}): {text}"));
        }
    }

    /// Closes the connection to an API node, if there is one, and sends it the reason; returns whether there was one.
    pub fn close(
        &mut self,
        api: NodeId,
        reason: Option<LastWords>,
        outbox: &mut Outbox,
        poller: &Poller,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) -> bool {
        let Some(place) = self.places[usize::from(api.0)].take() else { return false };
        let connection = self.connections.swap_remove(usize::from(place));
        self.locals -= usize::from(connection.is_local());
        self.links -= usize::from(connection.is_link);
        if let Some(moved) = self.connections.get(usize::from(place)) {
            self.places[usize::from(moved.api.0)] = Some(place);
        }
        if let Some(LastWords { code, has_sent_all }) = reason.filter(|_| !connection.is_link) {
            let has_sent_all = has_sent_all && connection.bytes_waiting(outbox) == 0;
            let own = outbox.routes.own_thread();
            let driver = Address::new(outbox.routes.own_node(), BlockNumber::Driver, own);
            let receiver = Address::new(api, BlockNumber::Api, 0);
            let lane = outbox.lane_mut(connection.lane);
            let mut writer = FrameWriter::begin(lane, SignalNumber::HelloRefuse, 0, receiver, driver, 0);
            let (request, detail) = (if has_sent_all { ALL_SENT } else { 0 }, code.sentence().into());
            cold::write(&mut writer, &Refusal { request, code: code as u16, detail });
        }
        let may_write = connection.is_link || self.may_answer();
        if let Some(sender) = connection.close(outbox, poller, may_write, statistics) {
            let owner = outbox.routes.own_thread();
            switchboard.threads[usize::from(sender)].post(Message::CloseOutlet { owner, api });
        }
        true
    }

    /// The links to other data nodes of which everything was sent.
    pub fn quiet_links(&self, outbox: &Outbox) -> Vec<(NodeId, Arc<Socket>)> {
        let is_quiet = |one: &&Connection| one.is_link && !one.is_broken && one.bytes_waiting(outbox) == 0;
        self.connections.iter().filter(is_quiet).map(|one| (one.api, one.stream())).collect()
    }

    /// The API nodes that are connected here, and other data nodes.
    pub fn api_nodes(&self) -> Vec<NodeId> {
        self.connections.iter().map(|connection| connection.api).collect()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }
}

/// The log line about a connection that is given up.
fn reported(why: &Broken) -> (Level, String) {
    match why {
        Broken::Ended => (Level::Info, "it has disconnected".to_string()),
        Broken::Failed(why) => (Level::Warn, format!("its connection broke: {why}")),
        // No rule was broken: this is the reason for connections that are closed along with another one, or after a
        // disconnect notice.
        Broken::Rule(ErrorCode::ConnectionLost, 0) => {
            (Level::Info, "its connections are closed, since it leaves or has closed one of them".to_string())
        }
        Broken::Rule(code, 0) => (Level::Warn, format!("it is disconnected: {code}")),
        Broken::Rule(code, signal) => {
            (Level::Warn, format!("it is disconnected for its signal {signal}: {code}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_disconnects_causes_no_warning() {
        let (level, text) = reported(&Broken::Rule(ErrorCode::ConnectionLost, 0));
        assert_eq!(level, Level::Info);
        assert!(!text.contains("4002"), "{text}");
        assert_eq!(reported(&Broken::Rule(ErrorCode::SlowReader, 0)).0, Level::Warn);
        assert_eq!(reported(&Broken::Rule(ErrorCode::ConnectionLost, 7)).0, Level::Warn);
    }
}
