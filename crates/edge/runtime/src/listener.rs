//! The thread that accepts connections ("socket server") and admits API nodes.
//!
//! A *pending connection* is one that is not admitted yet. By TCP it must prove the key of the cluster, if there is one
//! ([`vinga_key`]). It must send a whole greeting (`HelloRequest`) within [`Limits::greeting`]; then Membership is
//! asked by signal (`ApiConnectRequest`, which goes to the thread that hosts it like a message), and when that has
//! confirmed, the socket is handed to the thread that serves connections of this index, whose first frame is the
//! `HelloConfirm`. From then on this thread has nothing to do with it.
//!
//! Clients on this machine connect by a Unix socket ([`LocalSocket`]) and are treated as all others; they may offer to
//! share memory ([`vinga_local`]), which is made when they are admitted. If the system has none left for that, their
//! connections are ordinary streams.
//!
//! Everything that a peer can cause without being admitted has a bound. There are at most [`Limits::greetings_max`]
//! pending connections, and never so many that file descriptors run out. When all places are taken, the oldest one of
//! which nothing has come makes room, or else the oldest one that has not proven the key: however many of them come,
//! they keep nobody out who has it. If all have, one does whose greeting is not whole after [`SILENCE_MIN`]; if there
//! is none, the new connection is refused. A refused peer gets the reason (`HelloRefuse`) before its connection is
//! closed, and the log gets a line, some of them a second.

use crate::api_nodes::Admission;
use crate::formation::search::Searches;
use crate::formation::{self, Linked};
use crate::greeting::{self, Expected, GREETING_BYTES_MAX, NotAdmitted};
use crate::late_node::{self, AcceptedLink, LateNodes, Way};
use crate::local_socket::{Accepted, LocalSocket};
use crate::log::RateLimit;
use crate::peer::Peer;
use crate::poller::{Interest, Poller};
use crate::settings::ProcessSettings;
use crate::switchboard::{Adoption, Message, Switchboard};
use log::Level;
use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_key::{Gate, Listening, Step};
use vinga_local::{NodeLink, OFFER, Socket};
use vinga_wire::formation::NodeHello;
use vinga_wire::handshake::{HelloConfirm, HelloRequest};
use vinga_wire::key::NodeKind;
use vinga_wire::membership::{ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest};
use vinga_wire::protocol::Protocol;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, cold};

/// How long the greeting of a pending connection that has proven the key may take before it makes room for another.
const SILENCE_MIN: Duration = Duration::from_millis(50);

/// How long a refused pending connection may take to read the refusal.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// How often silent pending connections are checked.
const PENDING_CHECK: Duration = Duration::from_millis(100);

/// Connections accepted in one go, before pending connections are read again.
const ACCEPTS_MAX: usize = 64;

/// File descriptors that are kept for everything but pending connections: admitted connections, files, the process's
/// own.
const DESCRIPTORS_KEPT: u64 = 4096;

/// How long accepting pauses when the system has no descriptor left.
const EXHAUSTION_PAUSE: Duration = Duration::from_millis(50);

/// Bits of a pending connection's name that are its place.
const PLACE_BITS: u32 = 16;

/// How often a node that waits to join looks for the data nodes that it has no links to.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);

/// How often it looks whether a search has ended, while one is under way.
const RESULT_PAUSE: Duration = Duration::from_millis(10);

const LINES_PER_SECOND: u32 = 10;
const WHO: &str = "listener";

/// In place of a pending connection's place: the socket that is listened on.
const SOCKET: u64 = u64::MAX - 1;
/// The same for clients on this machine.
const LOCAL_SOCKET: u64 = u64::MAX - 2;

/// Messages to the listener.
pub(crate) enum ListenerMessage {
    /// Membership has admitted a pending connection. `admission` is `None` if all connections of that API node are
    /// being closed meanwhile.
    Confirm { confirm: ApiConnectConfirm, admission: Option<Admission> },
    /// Membership has refused it.
    Refuse(ApiConnectRefuse),
    /// All threads have this view, or are about to.
    View(Arc<ClusterView>),
    /// Agreement has installed this view.
    Installed(Arc<ClusterView>),
    /// The node is started: API nodes are let in.
    Started,
    /// The node stops.
    Stop,
}

/// The thread that accepts connections, with the pending ones.
pub(crate) struct Listener {
    socket: TcpListener,
    local: Option<LocalSocket>,
    poller: Poller,
    switchboard: Arc<Switchboard>,
    settings: Arc<ProcessSettings>,
    late_nodes: LateNodes,
    /// For other data nodes.
    searches: Searches,
    search_due: Instant,
    /// Whether API nodes are let in.
    is_started: bool,
    socket_threads: Vec<u16>,
    /// By place; a pending connection's place is part of the name by which Membership knows it.
    pending: Vec<Option<PendingConnection>>,
    greeted: u64,
    /// Closed for a moment when no other descriptor is left, so that a new connection can be refused.
    spare: Option<File>,
    lines: RateLimit,
}

struct PendingConnection {
    stream: Socket,
    peer: Peer,
    /// It has offered to share memory.
    shares: bool,
    since: Instant,
    stage: Stage,
}

enum Stage {
    /// Its greeting is not complete.
    Greeting { gate: Gate, bytes: Vec<u8>, progress: Progress },
    /// Membership has been asked about it, under this name.
    Asked { name: u64, hello: HelloRequest, early: Vec<u8> },
    /// It was refused; it has some time to read the refusal.
    Leaving,
}

/// How far a greeting has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Progress {
    /// Nothing has come.
    Silent,
    /// The key is not proven.
    Unproven,
    /// It is, if there is one.
    Proven,
}

impl PendingConnection {
    /// Whether it may make room for another one: the greatest does first.
    fn evictable(&self, now: Instant) -> Option<(Reverse<u8>, Duration)> {
        let age = now.duration_since(self.since);
        let rank = match self.stage {
            Stage::Leaving => 0,
            Stage::Greeting { progress: Progress::Silent, .. } => 1,
            Stage::Greeting { progress: Progress::Unproven, .. } => 2,
            Stage::Greeting { progress: Progress::Proven, .. } if age >= SILENCE_MIN => 3,
            Stage::Greeting { .. } | Stage::Asked { .. } => return None,
        };
        Some((Reverse(rank), age))
    }
}

impl Listener {
    /// A listener that accepts on `socket`, and clients on this machine on `local`.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub fn new(
        socket: TcpListener,
        local: Option<LocalSocket>,
        switchboard: Arc<Switchboard>,
        settings: Arc<ProcessSettings>,
        descriptors: Option<u64>,
        (own, is_started): (NodeHello, bool),
        searches: Searches,
    ) -> io::Result<Self> {
        let (incarnation, database) = (settings.cluster_incarnation, settings.database);
        socket.set_nonblocking(true)?;
        let poller = Poller::new(switchboard.listener.wake_event.alarm())?;
        poller.add(&socket, SOCKET, Interest::Accept)?;
        if let Some(local) = &local {
            poller.add(local, LOCAL_SOCKET, Interest::Accept)?;
        }
        let pending_max = settings.limits.greetings_max.min(pending_affordable(descriptors));
        Ok(Listener {
            socket,
            local,
            poller,
            switchboard,
            socket_threads: settings.socket_threads(),
            late_nodes: LateNodes::new(own, settings.view.clone(), incarnation, database),
            searches,
            search_due: Instant::now(),
            is_started,
            settings,
            pending: (0..pending_max).map(|_| None).collect(),
            greeted: 0,
            spare: open_spare(),
            lines: RateLimit::new(LINES_PER_SECOND),
        })
    }

    /// Accepts and admits until the node stops.
    pub fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready);
            for token in ready.drain(..) {
                match token {
                    SOCKET | LOCAL_SOCKET => self.accept(token),
                    place => self.read(place as usize),
                }
            }
            self.switchboard.listener.wake_event.take();
            for message in self.switchboard.listener.collect() {
                match message {
                    ListenerMessage::Confirm { confirm, admission } => self.on_confirm(confirm, admission),
                    ListenerMessage::Refuse(refuse) => self.on_refuse(refuse),
                    ListenerMessage::View(view) => self.late_nodes.note_view(view),
                    ListenerMessage::Installed(view) => self.late_nodes.note_installed(view),
                    ListenerMessage::Started => self.is_started = true,
                    ListenerMessage::Stop => return self.stop(),
                }
            }
            self.expire(Instant::now());
            self.note_found();
            self.search(Instant::now());
        }
    }

    /// As long as this node waits to join, it looks for the data nodes that it has no links to: it may have looked for
    /// another one that joins, too, in the moment in which that did not listen, or a link between the two has failed.
    /// Whoever becomes a member after that other one must have links to it.
    fn search(&mut self, now: Instant) {
        if now < self.search_due || !self.late_nodes.is_waiting() {
            return;
        }
        self.search_due = now + SEARCH_PAUSE;
        for other in &self.settings.others {
            if !self.switchboard.is_unlinked(other.node) || self.searches.has(other.node) {
                continue;
            }
            if let Err(why) = self.searches.begin(self.late_nodes.own(), other, self.settings.key.as_ref()) {
                let text = format_args!("no thread to look for data node {}: {why}", other.node);
                self.lines.write(Level::Warn, WHO, text);
            }
        }
    }

    /// Has the threads serve the links to those that are found. This node may be a member by now: the other one has
    /// these links all the same.
    fn note_found(&mut self) {
        while let Some((node, result)) = self.searches.take_result() {
            let Ok(found) = result else { continue };
            if self.late_nodes.has(node) {
                // It has joined by links that it had before: these are lost, and agreement has to decide about that.
                continue;
            }
            self.lines.write(Level::Info, WHO, format_args!("data node {node} is found"));
            let links = formation::linked(found, self.late_nodes.own());
            self.switchboard.hand_over(links, self.settings.listen);
        }
    }

    fn wait(&mut self, ready: &mut Vec<u64>) {
        let wake_event = &self.switchboard.listener.wake_event;
        let timeout = match (wake_event.begin_sleep(), self.pending.iter().any(Option::is_some)) {
            (false, _) => Duration::ZERO,
            (true, _) if !self.searches.is_empty() => RESULT_PAUSE,
            (true, true) => PENDING_CHECK,
            (true, false) if self.late_nodes.is_waiting() => SEARCH_PAUSE,
            (true, false) => Duration::from_secs(1),
        };
        self.poller.wait(timeout.as_nanos() as u64, |one| ready.push(one.token));
        wake_event.end_sleep();
    }

    fn accept(&mut self, socket: u64) {
        for _ in 0..ACCEPTS_MAX {
            match self.accept_one(socket) {
                Ok(Accepted { stream, peer, is_permitted: true, reached }) => {
                    self.welcome(stream, peer, reached);
                }
                Ok(Accepted { stream, peer, is_permitted: false, .. }) => {
                    let place = self.find_place(Instant::now());
                    let why = NotAdmitted::new(ErrorCode::NotPermitted, "");
                    match place
                        .filter(|&place| self.poller.add(&stream, place as u64, Interest::Read).is_ok())
                    {
                        Some(place) => self.refuse(place, stream, peer, &why),
                        None => self.send_refusal(&stream, peer, &why),
                    }
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(why) if is_exhausted(&why) => return self.refuse_with_spare(socket, &why),
                // The peer has closed the connection while it waited, or the network has a problem that is not ours.
                Err(_) => {}
            }
        }
    }

    /// Accepts the next connection of one of the sockets and makes it non-blocking.
    fn accept_one(&self, socket: u64) -> io::Result<Accepted> {
        if socket == LOCAL_SOCKET {
            let local = self.local.as_ref().ok_or(ErrorKind::WouldBlock)?;
            return local.accept();
        }
        let (stream, peer) = self.socket.accept()?;
        prepare(&stream)?;
        let reached = stream.local_addr().ok();
        Ok(Accepted { stream: stream.into(), peer: Peer::Remote(peer), is_permitted: true, reached })
    }

    /// No descriptor is left for a new connection: uses the spare one to refuse it.
    fn refuse_with_spare(&mut self, socket: u64, why: &io::Error) {
        self.lines.write(Level::Error, WHO, format_args!("no connection can be accepted: {why}"));
        self.spare = None;
        if let Ok(Accepted { stream, peer, .. }) = self.accept_one(socket) {
            self.turn_away(
                stream,
                peer,
                "no file descriptor is left: raise the limit of the process (ulimit -n)",
            );
        }
        self.spare = open_spare();
        std::thread::sleep(EXHAUSTION_PAUSE);
    }

    fn welcome(&mut self, stream: Socket, peer: Peer, reached: Option<SocketAddr>) {
        let now = Instant::now();
        let Some(place) = self.find_place(now) else {
            return self.turn_away(stream, peer, "too many connections are being opened");
        };
        match self.poller.add(&stream, place as u64, Interest::Read) {
            Ok(()) => {
                let gate = if peer.is_local() { Gate::open() } else { Gate::closed(reached) };
                let stage = Stage::Greeting { gate, bytes: Vec::new(), progress: Progress::Silent };
                self.pending[place] =
                    Some(PendingConnection { stream, peer, shares: false, since: now, stage });
            }
            Err(why) => self.lines.write(Level::Warn, WHO, format_args!("{peer}: {why}")),
        }
    }

    /// A free place, or one from which another pending connection was evicted.
    fn find_place(&mut self, now: Instant) -> Option<usize> {
        if let Some(free) = self.pending.iter().position(Option::is_none) {
            return Some(free);
        }
        let candidates = self.pending.iter().enumerate();
        let candidates =
            candidates.filter_map(|(place, pending)| Some((pending.as_ref()?.evictable(now)?, place)));
        let (_, place) = candidates.max()?;
        let pending = self.pending[place].take().expect("the candidate is pending");
        if let Stage::Greeting { .. } = pending.stage {
            let why = "others wanted to be admitted while its greeting was awaited";
            self.turn_away(pending.stream, pending.peer, why);
        }
        Some(place)
    }

    /// Refuses a connection that has no place.
    fn turn_away(&mut self, stream: Socket, peer: Peer, detail: &str) {
        // With unread bytes the connection would be reset, and the answer lost.
        let _ = stream.read(&mut [0; GREETING_BYTES_MAX]);
        self.send_refusal(&stream, peer, &NotAdmitted::new(ErrorCode::Overloaded, detail));
    }

    /// Refuses a pending connection, which keeps its place until it has read the refusal.
    fn refuse(&mut self, place: usize, stream: Socket, peer: Peer, why: &NotAdmitted) {
        self.send_refusal(&stream, peer, why);
        let stage = Stage::Leaving;
        self.pending[place] =
            Some(PendingConnection { stream, peer, shares: false, since: Instant::now(), stage });
    }

    fn send_refusal(&mut self, stream: &Socket, peer: Peer, why: &NotAdmitted) {
        match return_refused(why.code) {
            Some((level, text)) => self.lines.write(level, WHO, format_args!("{peer} {text}")),
            None => self.lines.write(
                Level::Warn,
                WHO,
                format_args!("{peer} is not admitted: {} {}", why.code, why.detail),
            ),
        }
        // It fits an empty socket buffer; a peer that does not read it is closed without it.
        let _ = stream.write(&greeting::refuse_frame(self.driver(), why));
        stream.end_writing();
    }

    /// Reads what has arrived from a pending connection.
    fn read(&mut self, place: usize) {
        let Some(mut pending) = self.pending[place].take() else { return };
        match pending.stage {
            Stage::Asked { .. } => self.pending[place] = Some(pending),
            Stage::Leaving => {
                let mut rest = Vec::new();
                if matches!(read_some(&pending.stream, &mut rest), Ok(Reading::Open)) {
                    self.pending[place] = Some(pending);
                }
            }
            Stage::Greeting { ref mut gate, ref mut bytes, ref mut progress } => {
                let Ok(mut reading) = read_some(&pending.stream, bytes) else { return };
                if !bytes.is_empty() {
                    *progress = (*progress).max(Progress::Unproven);
                }
                if pending.peer.is_local() && !pending.shares {
                    match take_offer(bytes) {
                        Some(shares) => pending.shares = shares,
                        None if matches!(reading, Reading::Open) => {
                            self.pending[place] = Some(pending);
                            return;
                        }
                        None => return,
                    }
                }
                match self.pass(gate, &pending.stream, bytes) {
                    Ok(true) => *progress = Progress::Proven,
                    Ok(false) => {
                        if let Reading::Open = reading {
                            self.pending[place] = Some(pending);
                        }
                        return;
                    }
                    Err(why) => return self.refuse(place, pending.stream, pending.peer, &why),
                }
                if late_node::is_greeting(bytes) {
                    // It may be longer than what was read before that was clear.
                    if matches!(reading, Reading::Open) {
                        let Ok(read) = read_some(&pending.stream, bytes) else { return };
                        reading = read;
                    }
                    let greeted = if pending.peer.is_local() {
                        // Whoever may use the socket is trusted as a client, and has proven nothing.
                        Err(NotAdmitted::new(ErrorCode::BadHandshake, "data nodes connect by TCP"))
                    } else {
                        self.greet_data_node(gate, bytes)
                    };
                    match (greeted, reading) {
                        (Err(why), _) => self.refuse(place, pending.stream, pending.peer, &why),
                        (Ok(Some((hello, length))), Reading::Open) => {
                            let early = bytes.split_off(length);
                            self.accept_link(pending.stream, pending.peer, hello, early);
                        }
                        (Ok(None), Reading::Open) => self.pending[place] = Some(pending),
                        // It has waited for long enough, and may have another link by now.
                        (Ok(_), Reading::Ended) => {}
                    }
                    return;
                }
                let expected = Expected {
                    node: self.settings.node,
                    cluster: &self.settings.cluster,
                    connections: self.socket_threads.len() as u16,
                };
                match greeting::read(bytes, &expected) {
                    Ok(Some(_)) if !self.is_started => {
                        let why = NotAdmitted::new(ErrorCode::NodeStarting, "");
                        self.refuse(place, pending.stream, pending.peer, &why);
                    }
                    Ok(Some((hello, length))) => {
                        let early = bytes.split_off(length);
                        self.ask(place, pending, hello, early);
                    }
                    Ok(None) => match reading {
                        Reading::Open => self.pending[place] = Some(pending),
                        Reading::Ended => {}
                    },
                    Err(why) => self.refuse(place, pending.stream, pending.peer, &why),
                }
            }
        }
    }

    /// The greeting of a data node, and its length, if it is accepted; `None` if it is not all there yet.
    fn greet_data_node(
        &mut self,
        gate: &Gate,
        bytes: &[u8],
    ) -> Result<Option<(NodeHello, usize)>, NotAdmitted> {
        let (switchboard, searches) = (&self.switchboard, &self.searches);
        let way = |node| Way { is_free: switchboard.is_unlinked(node), is_searched: searches.has(node) };
        let greeting = self.late_nodes.greeting(bytes, Instant::now(), way)?;
        if let Some((hello, _)) = &greeting {
            gate.check_sender(hello.member.node).map_err(|why| NotAdmitted::new(why.code, why.detail))?;
        }
        Ok(greeting)
    }

    /// Confirms a link to a data node, and has the threads serve its links when all are open.
    fn accept_link(&mut self, stream: Socket, peer: Peer, hello: NodeHello, early: Vec<u8>) {
        let node = hello.member.node;
        let other = self.settings.others.iter().find(|other| other.node == node);
        self.poller.remove(&stream);
        // It fits an empty buffer of the system's choice, not any that is configured. Without it the other node closes
        // the link, and tries again.
        let confirm = self.late_nodes.confirm(hello.link);
        let confirmed = stream.write(&confirm).and_then(|count| match count == confirm.len() {
            true => other.map_or(Ok(()), |other| formation::set_buffers(&stream, other, hello.link)),
            false => Err(io::Error::other("the socket's buffer has no room for the confirm of its greeting")),
        });
        if let Err(why) = confirmed {
            return self.lines.write(Level::Warn, WHO, format_args!("data node {node} ({peer}): {why}"));
        }
        let link = AcceptedLink { stream, peer, early };
        let Some((hello, links)) = self.late_nodes.accept(hello, link, Instant::now()) else { return };
        self.lines.write(Level::Info, WHO, format_args!("data node {node} ({peer}) has come"));
        let adoption = |AcceptedLink { stream, peer, early }| Adoption::of_link(stream, peer, node, early);
        let adoptions = links.into_iter().map(adoption).collect();
        self.switchboard.link(Linked::new(hello, self.late_nodes.own()), adoptions);
    }

    /// Has what was read of a pending connection go through its gate; returns whether it has passed.
    fn pass(&self, gate: &mut Gate, stream: &Socket, bytes: &mut Vec<u8>) -> Result<bool, NotAdmitted> {
        let own = Listening {
            key: self.settings.key.as_deref(),
            kind: NodeKind::Data,
            driver: self.driver(),
            cluster: &self.settings.cluster,
        };
        loop {
            match gate.advance(&own, bytes) {
                Ok(Step::Passed) => return Ok(true),
                Ok(Step::More) => return Ok(false),
                // It fits an empty socket buffer.
                Ok(Step::Answer(answer)) => _ = stream.write(&answer),
                Err(why) => {
                    return Err(NotAdmitted {
                        refusal: why.refusal,
                        ..NotAdmitted::new(why.code, why.detail)
                    });
                }
            }
        }
    }

    /// Asks Membership whether a pending connection may be admitted.
    fn ask(&mut self, place: usize, pending: PendingConnection, hello: HelloRequest, early: Vec<u8>) {
        self.greeted += 1;
        let name = self.greeted << PLACE_BITS | place as u64;
        let request = ApiConnectRequest {
            waiting: name,
            node: hello.node,
            incarnation: hello.incarnation,
            connection: hello.connection,
            ticket: hello.ticket,
            admission: hello.admission,
            lost: hello.lost.clone(),
        };
        let membership = Address::new(self.settings.node, BlockNumber::Membership, 0);
        let mut frame = Vec::new();
        cold::write(
            &mut FrameWriter::begin(
                &mut frame,
                SignalNumber::ApiConnectRequest,
                0,
                membership,
                self.driver(),
                0,
            ),
            &request,
        );
        // From here on it is not read until another thread does.
        self.poller.remove(&pending.stream);
        self.pending[place] =
            Some(PendingConnection { stage: Stage::Asked { name, hello, early }, ..pending });
        self.switchboard.threads[usize::from(self.switchboard.main_thread)].post(Message::Frames(frame));
    }

    /// The pending connection about which Membership was asked under this name. It exists: nothing else removes it.
    fn take_asked(&mut self, waiting: u64) -> (usize, PendingConnection, HelloRequest, Vec<u8>) {
        let place = (waiting & ((1 << PLACE_BITS) - 1)) as usize;
        let pending = self.pending.get_mut(place).and_then(Option::take);
        match pending {
            Some(PendingConnection {
                stream,
                peer,
                shares,
                since,
                stage: Stage::Asked { name, hello, early },
            }) if name == waiting => (
                place,
                PendingConnection { stream, peer, shares, since, stage: Stage::Leaving },
                hello,
                early,
            ),
            _ => panic!("Membership answers about a pending connection of which it was not asked"),
        }
    }

    fn on_confirm(&mut self, confirm: ApiConnectConfirm, admission: Option<Admission>) {
        let (place, pending, hello, early) = self.take_asked(confirm.waiting);
        let welcome = HelloConfirm {
            protocol: Protocol::own(),
            node: self.settings.node.0,
            incarnation: self.settings.incarnation.0,
            cluster_incarnation: self.settings.cluster_incarnation,
            database: self.settings.database,
            api: confirm.api,
            ticket: confirm.ticket,
            view: confirm.view,
            api_incarnation: confirm.incarnation,
            admission: confirm.admission,
        };
        let local = match pending.shares.then(NodeLink::make).transpose() {
            Ok(local) => local.map(Box::new),
            Err(why) => {
                let text = format_args!("{}: no memory is shared with it: {why}", pending.peer);
                self.lines.write(Level::Warn, WHO, text);
                None
            }
        };
        let adoption = Adoption {
            stream: pending.stream,
            local,
            peer: pending.peer,
            api: NodeId(confirm.api),
            is_link: false,
            welcome: greeting::confirm_frame(self.driver(), &welcome),
            early,
        };
        let thread = self.socket_threads[usize::from(hello.connection)];
        let handed_over = match admission {
            Some(admission) => self.switchboard.join(adoption, admission, thread),
            None => Err((adoption, ErrorCode::ConnectionLost)),
        };
        match handed_over {
            Ok(()) => {
                let (api, peer, index) = (confirm.api, pending.peer, hello.connection);
                self.settings.peers.note(NodeId(api), peer);
                self.lines.write(
                    // The first connection logs the client; the others of the same client add nothing new.
                    if index == 0 { Level::Info } else { Level::Debug },
                    WHO,
                    format_args!("API node {api} ({peer}): connection {index}"),
                );
            }
            Err((adoption, code)) => {
                if code == ErrorCode::NodeIdInUse {
                    // A client that opens a connection again has given the old one up, and the others with it.
                    self.switchboard.close(adoption.api, None);
                }
                let why = NotAdmitted::new(
                    ErrorCode::ConnectionLost,
                    "the earlier connections are being closed: try again",
                );
                self.refuse(place, adoption.stream, adoption.peer, &why);
            }
        }
    }

    fn on_refuse(&mut self, refuse: ApiConnectRefuse) {
        let (place, pending, ..) = self.take_asked(refuse.waiting);
        let code = ErrorCode::from_number(refuse.code).unwrap_or(ErrorCode::InternalError);
        self.refuse(place, pending.stream, pending.peer, &NotAdmitted::new(code, refuse.detail));
    }

    /// Closes the pending connections that have taken too long.
    fn expire(&mut self, now: Instant) {
        self.late_nodes.expire(now);
        for place in 0..self.pending.len() {
            let Some(pending) = &self.pending[place] else { continue };
            let age = now.duration_since(pending.since);
            match pending.stage {
                Stage::Greeting { .. } if age >= self.settings.limits.greeting => {
                    let pending = self.pending[place].take().expect("it was just looked at");
                    let why = NotAdmitted::new(ErrorCode::HandshakeTimeout, "");
                    self.refuse(place, pending.stream, pending.peer, &why);
                }
                Stage::Leaving if age >= LEAVING_MAX => self.pending[place] = None,
                Stage::Greeting { .. } | Stage::Leaving | Stage::Asked { .. } => {}
            }
        }
    }

    fn stop(mut self) {
        for pending in mem::take(&mut self.pending).into_iter().flatten() {
            if !matches!(pending.stage, Stage::Leaving) {
                self.send_refusal(
                    &pending.stream,
                    pending.peer,
                    &NotAdmitted::new(ErrorCode::NodeStopping, ""),
                );
            }
        }
    }

    fn driver(&self) -> Address {
        self.switchboard.driver(self.switchboard.main_thread)
    }
}

/// The log line for a client that reconnects and must begin anew, or has to try again: nothing is wrong with it, and
/// what these codes mean for transactions is the client's business.
fn return_refused(code: ErrorCode) -> Option<(Level, &'static str)> {
    match code {
        ErrorCode::UnknownOutcome => Some((
            Level::Info,
            "comes back as a client that this node does not know (any more), and is asked to begin anew",
        )),
        ErrorCode::ConnectionLost => Some((
            Level::Info,
            "comes back while its earlier connections are being closed, and is asked to try again",
        )),
        // Each client tries again every second or so.
        ErrorCode::NodeStarting => {
            Some((Level::Debug, "comes before this node is started, and is asked to try again"))
        }
        _ => None,
    }
}

/// Whether more bytes may arrive from a pending connection.
enum Reading {
    Open,
    Ended,
}

/// Appends the bytes that have arrived, until none are left or there are more than any greeting has.
fn read_some(stream: &Socket, bytes: &mut Vec<u8>) -> io::Result<Reading> {
    let mut buffer = [0; GREETING_BYTES_MAX];
    let most = |bytes: &[u8]| {
        if late_node::is_greeting(bytes) { late_node::GREETING_BYTES_MAX } else { GREETING_BYTES_MAX }
    };
    while bytes.len() <= most(bytes) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(Reading::Ended),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(why) if why.kind() == ErrorKind::WouldBlock => break,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(Reading::Open)
}

/// Takes the offer to share memory from the front of the bytes of a pending connection; returns whether it was there,
/// `None` if that is not clear yet.
fn take_offer(bytes: &mut Vec<u8>) -> Option<bool> {
    if bytes.starts_with(&OFFER) {
        bytes.drain(..OFFER.len());
        return Some(true);
    }
    if OFFER.starts_with(bytes) { None } else { Some(false) }
}

/// Sets the options of a TCP connection.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)
}

/// How many pending connections the limit on file descriptors leaves room for.
fn pending_affordable(descriptors: Option<u64>) -> usize {
    descriptors.map_or(usize::MAX, |limit| limit.saturating_sub(DESCRIPTORS_KEPT).max(limit / 8) as usize)
}

fn is_exhausted(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}
