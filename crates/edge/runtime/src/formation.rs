//! Data nodes that start find each other, and begin together: the formation of the cluster.
//!
//! A node that is configured with others listens, and looks for those with lower ids, which do the same. Each pair
//! opens its links ([`links_between`]); the first frames say who both are. Each node reports to the one with the lowest
//! id to which others it has all links. When each is connected to all, and to the very starts of them that that one is
//! connected to itself, it makes the first view and sends it to all. Then the threads begin, with that view, and from
//! then on `vinga-agreement` watches the links.
//!
//! A node that dies before is noticed by its links, also if its machine has vanished ([`silence`]), and may come back:
//! its next start is another incarnation, which is greeted anew. If the one with the lowest id dies after it has sent
//! the view to some, those begin, and agree that it has failed.
//!
//! A node that finds others which have begun opens links to all of their members, and begins without a view: it joins
//! ([`Formed::joins`]).
//!
//! This runs on one thread, with all links polled a few hundred times a second: it lasts for a moment, once.

mod buffers;
pub(crate) mod greeting;
mod pending;
mod process;
pub(crate) mod search;
pub(crate) mod silence;
mod ticket;

pub(crate) use process::ProcessWatch;

use crate::greeting::{NotAdmitted, refuse_frame};
use crate::late_node::LINKS_MAX;
use crate::log::RateLimit;
use crate::settings::{LinkBuffers, OtherDataNode, ProcessSettings};
use crate::stop_request::{StopCause, StopRequest};
use greeting::{Progress, Refused, refusal};
use pending::{GREETING_MAX, Pending};
use search::{Found, Searches};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use ticket::FirstTicket;
use vinga_base::{Incarnation, NodeId};
use vinga_key::{Listening, Step};
use vinga_wire::formation::{BegunCluster, FirstViewOrder, NodeHello, NodesConnectedReport};
use vinga_wire::handshake::MAGIC;
use vinga_wire::key::NodeKind;
use vinga_wire::protocol::Protocol;
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

/// How often links are polled.
const PAUSE: Duration = Duration::from_millis(2);
/// How long after a failed search for a node the next one begins.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);
/// The same if this node was not left out yet, or another one has its id: that may take some heartbeats.
const IN_USE_PAUSE: Duration = Duration::from_millis(200);
/// How often a node that should look for this one is asked whether it has begun without it.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long a node that should look for this one may have another key: if it forms, it finds this one meanwhile, and
/// ends. So after that it has begun.
const KEY_PATIENCE: Duration = Duration::from_secs(5);
/// How often the log says which nodes are missing.
const LOG_PAUSE: Duration = Duration::from_secs(5);
/// How many refused connections are logged in a second: one that is refused may try again twenty times in it.
const REFUSALS_LOGGED: u32 = 2;

const WHO: &str = "formation";

/// Links between two data nodes: one for each thread that serves sockets, of the node that has fewer of them.
pub(crate) fn links_between(one: &Member, other: &Member) -> u16 {
    one.connections.len().min(other.connections.len()).max(1) as u16
}

/// What a node begins with.
pub(crate) struct Formed {
    /// The first view; the one without members, if this node joins a cluster that runs.
    pub view: ClusterView,
    pub cluster_incarnation: u64,
    pub database: u64,
    /// The members of the cluster that it joins.
    pub joins: Vec<NodeId>,
    /// To the others.
    pub links: Vec<AllLinks>,
    /// Those that are under way.
    pub searches: Searches,
}

/// Another data node with all links to it, in their order; with each what was read behind the frames of the formation.
pub(crate) type AllLinks = (Linked, Vec<(TcpStream, Vec<u8>)>);

/// Another data node, to which all links are open.
pub(crate) struct Linked {
    /// As it has greeted.
    pub member: Member,
    /// Its process, if it runs on this machine and the system lets it be watched.
    pub process: Option<ProcessWatch>,
}

/// A data node, at the moment in which threads begin to serve the links to it.
pub(crate) fn linked(Found { hello, links }: Found, own: &NodeHello) -> AllLinks {
    for (stream, _) in &links {
        // A link that fails here is found closed by the thread that serves it.
        let _ = silence::unwatch(stream);
    }
    (Linked::new(hello, own), links)
}

impl Linked {
    pub fn new(hello: NodeHello, own: &NodeHello) -> Self {
        Linked { process: ProcessWatch::on(&hello.process, &own.process), member: hello.member }
    }
}

/// How a data node greets by its first link, before it has begun.
pub(crate) fn own_hello(settings: &ProcessSettings) -> NodeHello {
    let member = settings.view.member(settings.node).expect("a node knows itself").clone();
    NodeHello {
        magic: MAGIC,
        protocol: Protocol::own(),
        cluster: settings.cluster.clone(),
        data_nodes: settings.data_nodes(),
        heartbeat_interval: settings.heartbeat_interval.as_micros() as u64,
        configuration: settings.configuration,
        member,
        process: process::this_process(),
        link: 0,
        places: settings.places.clone(),
        begun: None,
    }
}

/// Forms the cluster of this node and the others that it is configured with.
///
/// # Errors
/// The node was asked to stop before, or another one says why nothing can come of it.
pub(crate) fn form(
    settings: &ProcessSettings,
    own: &NodeHello,
    listener: &TcpListener,
    stop: &StopRequest,
) -> Result<Formed, StopCause> {
    let mut formation = Formation::new(settings, own.clone(), listener);
    loop {
        if let Some(cause) = stop.cause() {
            return Err(cause);
        }
        if let Some(begin) = formation.turn() {
            return Ok(formation.finish(begin));
        }
        if let Some(why) = formation.hopeless.take() {
            return Err(StopCause::CannotGoOn(why));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Gives a link the buffers that are configured for it, if any are; the log says of the first one what that comes to.
pub(crate) fn set_buffers(link: &impl AsFd, to: &OtherDataNode, index: u16) -> io::Result<()> {
    if to.buffers == LinkBuffers::default() {
        return Ok(());
    }
    let LinkBuffers { send, receive } = buffers::set(link, to.buffers)?;
    if index == 0 {
        log::info!(
            target: WHO,
            "links to data node {}: the system has {send} bytes to send and {receive} to receive for each",
            to.node
        );
    }
    Ok(())
}

/// Another data node.
struct Other {
    configured: OtherDataNode,
    search_due: Instant,
    /// Why the last search for it has failed.
    why: String,
    /// Since when each search has found that it has another key.
    other_key_since: Option<Instant>,
    present: Option<Present>,
    /// Whether a search for it has ended.
    was_searched: bool,
    /// Whether its threads ran when it was last asked: a cluster runs.
    has_begun: bool,
}

/// A data node that has greeted.
struct Present {
    hello: NodeHello,
    /// With what was read of each.
    links: Vec<Option<(TcpStream, Vec<u8>)>>,
    /// Whom it has reported to be connected to, itself among them, if this node has the lowest id.
    connected: Vec<(NodeId, Incarnation)>,
    /// Whom this node has reported to it.
    reported: Vec<(NodeId, Incarnation)>,
    /// Since when it is here.
    since: Instant,
}

impl Other {
    /// It, if all links to it are open.
    fn complete(&self) -> Option<&Present> {
        self.present.as_ref().filter(|present| present.is_complete())
    }

    /// Whether one that joins need not wait for it. It was looked for, and that goes on behind the begin; it may answer
    /// nobody for ever.
    fn is_settled(&self, now: Instant) -> bool {
        match &self.present {
            None => self.was_searched,
            Some(present) => present.is_complete() || now.duration_since(present.since) >= LINKS_MAX,
        }
    }
}

impl Present {
    fn new(hello: NodeHello, links: Vec<Option<(TcpStream, Vec<u8>)>>, since: Instant) -> Self {
        Present { hello, links, connected: Vec::new(), reported: Vec::new(), since }
    }

    /// Whether a greeting comes from the same process.
    fn is_of(&self, hello: &NodeHello) -> bool {
        self.hello.member == hello.member && self.hello.process == hello.process
    }

    /// The cluster that runs, if it is a member of one.
    fn cluster(&self) -> Option<&BegunCluster> {
        self.hello.begun.as_ref().filter(|begun| !begun.members.is_empty())
    }

    fn is_complete(&self) -> bool {
        self.links.iter().all(Option::is_some)
    }
}

struct Formation<'a> {
    settings: &'a ProcessSettings,
    listener: &'a TcpListener,
    own: NodeHello,
    others: BTreeMap<NodeId, Other>,
    pending: Vec<Pending>,
    searches: Searches,
    log_due: Instant,
    /// Lines about refused connections.
    refusals: RateLimit,
    first_ticket: FirstTicket,
    /// Why it is of no use to go on.
    hopeless: Option<String>,
}

impl<'a> Formation<'a> {
    fn new(settings: &'a ProcessSettings, own: NodeHello, listener: &'a TcpListener) -> Self {
        let now = Instant::now();
        let other = |&configured: &OtherDataNode| {
            let why = "it has not come yet".to_string();
            let (was_searched, has_begun) = (false, false);
            let (search_due, other_key_since, present) = (now, None, None);
            let other =
                Other { configured, search_due, why, other_key_since, present, was_searched, has_begun };
            (configured.node, other)
        };
        let first_ticket = FirstTicket::new(settings, &own.data_nodes);
        Formation {
            settings,
            listener,
            own,
            others: settings.others.iter().map(other).collect(),
            pending: Vec::new(),
            searches: Searches::new(),
            log_due: now + LOG_PAUSE,
            refusals: RateLimit::new(REFUSALS_LOGGED),
            first_ticket,
            hopeless: None,
        }
    }

    /// One look at everything; returns what to begin with if it is there.
    fn turn(&mut self) -> Option<Begin> {
        let now = Instant::now();
        pending::accept(self.listener, &mut self.pending, now);
        self.read_pending(now);
        self.begin_searches(now);
        self.note_found(now);
        let order = self.read_links(now).or_else(|| self.make_view());
        let begin = order.map(Begin::View).or_else(|| self.joined(now).map(Begin::Join));
        self.report();
        if now >= self.log_due {
            self.log_due = now + LOG_PAUSE;
            self.log_missing();
            if begin.is_none() {
                self.forget_begun(now);
            }
        }
        begin
    }

    /// The cluster that runs, if some have begun, and all links to all of its members are open. Another data node that
    /// is to join, too, may listen by its threads already, and look for nobody: so each is looked for once.
    fn joined(&self, now: Instant) -> Option<BegunCluster> {
        let begun = || self.others.values().filter_map(|other| other.complete()?.cluster());
        let is_linked = |&(node, start): &(NodeId, Incarnation)| {
            let other = self.others.get(&node).and_then(Other::complete);
            node == self.own.member.node
                || other.is_some_and(|one| one.hello.member.identity() == (node, start))
        };
        let are_linked = begun().flat_map(|cluster| &cluster.members).all(is_linked);
        let is_all = are_linked && self.others.values().all(|other| other.is_settled(now));
        begun().next().filter(|_| is_all).cloned()
    }

    /// Those that have begun may have other members by now, so they are greeted anew.
    fn forget_begun(&mut self, now: Instant) {
        for other in self.others.values_mut() {
            if other.present.as_ref().is_some_and(|present| present.cluster().is_some()) {
                (other.present, other.search_due) = (None, now + SEARCH_PAUSE);
                other.why = "it is asked again whom its cluster has".to_string();
            }
        }
    }

    fn log_missing(&self) {
        for line in self.missing() {
            log::info!(target: WHO, "{line}");
        }
    }

    /// What this node waits for, as far as it knows.
    fn missing(&self) -> Vec<String> {
        let own = self.connected();
        let first = self.first_node();
        let mut lines = Vec::new();
        for other in self.others.values() {
            let (node, address) = (other.configured.node, other.configured.address);
            let Some(present) = other.complete() else {
                lines.push(format!("waiting for data node {node} ({address}): {}", other.why));
                continue;
            };
            // The node with the lowest id knows to whom the others are connected.
            if first == self.own.member.node {
                let is_missing =
                    |(to, start): &&(NodeId, Incarnation)| !present.connected.contains(&(*to, *start));
                let missing: Vec<String> =
                    own.iter().filter(is_missing).map(|(to, _)| to.to_string()).collect();
                if !missing.is_empty() {
                    let missing = missing.join(", ");
                    lines.push(format!("data node {node} has not all links to data node {missing} yet"));
                }
            }
        }
        if lines.is_empty() && first != self.own.member.node {
            lines.push(format!(
                "all links are open; waiting for the first view, which data node {first} makes"
            ));
        }
        lines
    }

    fn read_pending(&mut self, now: Instant) {
        for mut pending in std::mem::take(&mut self.pending) {
            let progress = greeting::read_some(&mut pending.stream, &mut pending.bytes);
            match self.try_greeting(&mut pending, progress, now) {
                Ok(true) => {}
                Ok(false) => {
                    if progress == Progress::Open && now.duration_since(pending.since) < GREETING_MAX {
                        self.pending.push(pending);
                    }
                }
                Err(why) => refuse(&mut pending.stream, self.own.member.node, &why, &mut self.refusals),
            }
        }
    }

    /// Has what was read of a pending connection go through its gate; returns whether it has passed.
    fn pass(&self, pending: &mut Pending) -> Result<bool, Refused> {
        let own = Listening {
            key: self.settings.key.as_deref(),
            kind: NodeKind::Data,
            driver: Address::new(self.own.member.node, BlockNumber::Driver, 0),
            cluster: &self.settings.cluster,
        };
        loop {
            match pending.gate.advance(&own, &mut pending.bytes) {
                Ok(Step::Passed) => return Ok(true),
                Ok(Step::More) => return Ok(false),
                // It fits an empty socket buffer; if the connection has failed, nothing more comes.
                Ok(Step::Answer(answer)) => _ = pending.stream.write_all(&answer),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Handles the greeting of a pending connection; false if it is not all there.
    fn try_greeting(
        &mut self,
        pending: &mut Pending,
        progress: Progress,
        now: Instant,
    ) -> Result<bool, Refused> {
        if !self.pass(pending)? {
            return Ok(false);
        }
        let Some(frame) = greeting::first_frame(&pending.bytes)? else { return Ok(false) };
        if frame.signal() == Some(SignalNumber::HelloRequest) {
            return Err(Refused::new(ErrorCode::NodeStarting, ""));
        }
        let hello = greeting::hello(&frame, SignalNumber::NodeHelloRequest)?;
        let length = frame.length();
        greeting::check(&hello, &self.own, false)?;
        let node = hello.member.node;
        pending.gate.check_sender(node)?;
        if progress != Progress::Open {
            // It has waited for long enough, and may have another link by now.
            return Ok(true);
        }
        let other = self.others.get_mut(&node).expect("it was checked that it is configured");
        let is_present = other.present.as_ref().is_some_and(|present| present.is_of(&hello));
        // The links of another start were found open in the last turn. An incarnation does not tell which of the two is
        // the newer one: two that are configured with the same id count in folders of their own.
        let is_in_use = other.present.is_some() && !is_present;
        let in_use =
            || Refused::new(ErrorCode::NodeIdInUse, format!("another process runs as data node {node}"));
        if node < self.own.member.node {
            // It wants to know whether this one has begun without it.
            return Err(if is_in_use { in_use() } else { Refused::new(ErrorCode::NodeStarting, "") });
        }
        let links = links_between(&self.own.member, &hello.member);
        if hello.link >= links {
            return Err(Refused::new(ErrorCode::BadHandshake, format!("there are {links} links")));
        }
        if is_in_use {
            return Err(in_use());
        }
        // It was a member when this node found it, and has looked for nobody since: that is a greeting of before, and
        // it has closed that link.
        if other.complete().is_some_and(|present| present.hello.begun.is_some()) {
            let detail = format!("this node is connected to data node {node}");
            return Err(Refused::new(ErrorCode::NodeIdInUse, detail));
        }
        if !is_present {
            if hello.link != 0 {
                return Err(Refused::new(ErrorCode::BadHandshake, "link 0 is the first to be opened"));
            }
            log::info!(target: WHO, "data node {node} is here");
        }
        let stream = pending.stream.try_clone();
        let mut stream = stream.map_err(|why| Refused::new(ErrorCode::Overloaded, why.to_string()))?;
        let rest = pending.bytes.split_off(length);
        let confirm = NodeHello { link: hello.link, ..self.own.clone() };
        let confirm = greeting::frame(SignalNumber::NodeHelloConfirm, self.own.member.node, |writer| {
            cold::write(writer, &confirm);
        });
        // It fits an empty buffer of the system's choice, not any that is configured.
        if stream.write_all(&confirm).is_err() {
            return Ok(true);
        }
        set_buffers(&stream, &other.configured, hello.link)
            .map_err(|why| Refused::new(ErrorCode::Overloaded, why.to_string()))?;
        let link = usize::from(hello.link);
        if link == 0 {
            // It begins anew: earlier links are not its any more.
            let links = (0..links).map(|_| None).collect();
            other.present = Some(Present::new(hello, links, now));
            // It looks for others itself: what an earlier start has answered holds no more.
            (other.has_begun, other.other_key_since) = (false, None);
        }
        let present = other.present.as_mut().expect("it was just made, or is the same");
        present.links[link] = Some((stream, rest));
        Ok(true)
    }

    /// Looks for the nodes that are missing. Those with greater ids look for this one, and refuse it; but if they have
    /// begun without this one, they don't, and say so when they are asked.
    fn begin_searches(&mut self, now: Instant) {
        for other in self.others.values_mut() {
            let is_searched = self.searches.has(other.configured.node);
            let is_missing = other.present.is_none() && !is_searched && now >= other.search_due;
            if !is_missing {
                continue;
            }
            let key = self.settings.key.as_ref();
            if let Err(why) = self.searches.begin(&self.own, &other.configured, key) {
                other.why = format!("no thread to look for it: {why}");
                other.search_due = now + SEARCH_PAUSE;
            }
        }
    }

    fn note_found(&mut self, now: Instant) {
        while let Some((node, result)) = self.searches.take_result() {
            let Some(other) = self.others.get_mut(&node) else { continue };
            other.was_searched = true;
            other.has_begun = match &result {
                Ok(found) => found.hello.begun.is_some(),
                Err(not_found) => not_found.has_begun,
            };
            match result {
                Ok(Found { hello, links }) => {
                    log::info!(target: WHO, "data node {node} is found");
                    other.other_key_since = None;
                    let links = links.into_iter().map(Some).collect();
                    other.present = Some(Present::new(hello, links, now));
                }
                Err(not_found) => {
                    let why = &not_found.why;
                    // One that looks for this node finds out itself whether it is configured in another way.
                    let is_awaited = node > self.own.member.node;
                    let since = other.other_key_since.unwrap_or(now);
                    other.other_key_since = not_found.is_of_key().then_some(since);
                    let has_another_key = not_found.is_of_key() && now.duration_since(since) >= KEY_PATIENCE;
                    if not_found.is_too_late() || not_found.is_final() && !is_awaited || has_another_key {
                        self.hopeless =
                            Some(format!("data node {node} ({}): {why}", other.configured.address));
                    }
                    other.why = match not_found.unexpected() {
                        None if is_awaited => "it has not come yet".to_string(),
                        _ => why.clone(),
                    };
                    other.search_due = now
                        + match (not_found.is_in_use(), is_awaited) {
                            (true, _) => IN_USE_PAUSE,
                            (false, true) => ASK_PAUSE,
                            (false, false) => SEARCH_PAUSE,
                        };
                }
            }
        }
    }

    /// Reads all links. A node of which one is closed is missing again. Returns the first view if it has come.
    fn read_links(&mut self, now: Instant) -> Option<FirstViewOrder> {
        let mut order = None;
        let first = self.first_node();
        let is_first = first == self.own.member.node;
        for other in self.others.values_mut() {
            let Some(present) = &mut other.present else { continue };
            let mut is_well = true;
            for (index, link) in present.links.iter_mut().enumerate() {
                let Some((stream, bytes)) = link else { continue };
                is_well &= greeting::read_some(stream, bytes) == Progress::Open;
                // From others come signals of blocks, if they have begun already.
                if index == 0 && present.hello.begun.is_none() && (is_first || other.configured.node == first)
                {
                    match take_frame(bytes) {
                        Ok(None) => {}
                        Ok(Some(Read::Connected(nodes))) => present.connected = nodes,
                        Ok(Some(Read::View(view))) => order = Some(view),
                        Err(()) => is_well = false,
                    }
                }
            }
            if !is_well && order.is_none() {
                log::info!(target: WHO, "data node {} has gone", other.configured.node);
                (other.present, other.search_due) = (None, now + SEARCH_PAUSE);
                other.why = "its connections were closed".to_string();
            }
        }
        order.filter(|order| self.is_about_us(&order.view))
    }

    /// The nodes to which all links are open, in order of id, this one among them.
    fn connected(&self) -> Vec<(NodeId, Incarnation)> {
        let complete = self.others.values().filter_map(Other::complete);
        let mut nodes: Vec<_> = complete.map(|present| present.hello.member.identity()).collect();
        nodes.push(self.own.member.identity());
        nodes.sort_unstable();
        nodes
    }

    /// The same, if these are all.
    fn all_connected(&self) -> Option<Vec<(NodeId, Incarnation)>> {
        Some(self.connected()).filter(|nodes| nodes.len() == self.own.data_nodes.len())
    }

    fn first_node(&self) -> NodeId {
        self.own.data_nodes[0].0
    }

    /// Reports to the node with the lowest id which nodes are connected, whenever that has changed; not if a cluster
    /// runs: the threads of that node may serve the link already, as it joins, too.
    fn report(&mut self) {
        let first = self.first_node();
        if first == self.own.member.node {
            return;
        }
        let may_run = |other: &Other| other.has_begun || other.complete().is_none() && !other.was_searched;
        if self.others.values().any(may_run) {
            return;
        }
        let nodes = self.connected();
        let present = self.others.get_mut(&first).and_then(|other| other.present.as_mut());
        let is_due = |present: &&mut Present| present.reported != nodes;
        let Some(present) = present.filter(is_due) else { return };
        let report = NodesConnectedReport { nodes: nodes.clone() };
        let frame = greeting::frame(SignalNumber::NodesConnectedReport, self.own.member.node, |writer| {
            cold::write(writer, &report);
        });
        present.reported = nodes;
        send(&mut present.links[0], &frame);
    }

    /// The node with the lowest id makes the first view, when all others are connected to the same starts of all nodes.
    fn make_view(&mut self) -> Option<FirstViewOrder> {
        let nodes = self.all_connected().filter(|_| self.first_node() == self.own.member.node)?;
        let mut present = self.others.values().filter_map(|other| other.present.as_ref());
        if !present.all(|present| present.connected == nodes) {
            return None;
        }
        let taken = self.first_ticket.of(&nodes)?;
        let others = self.others.values().filter_map(|other| other.present.as_ref());
        let mut members: Vec<Member> = others.map(|present| present.hello.member.clone()).collect();
        members.push(self.own.member.clone());
        members.sort_by_key(|member| member.node);
        let view = ClusterView::first(members);
        let order = FirstViewOrder {
            view: match taken {
                Some((ticket, arbitrator)) => view.with_ticket(ticket).with_arbitrator(arbitrator),
                None => view,
            },
            cluster_incarnation: self.settings.cluster_incarnation,
            database: self.settings.database,
        };
        let frame = greeting::frame(SignalNumber::FirstViewOrder, self.own.member.node, |writer| {
            cold::write(writer, &order);
        });
        for present in self.others.values_mut().filter_map(|other| other.present.as_mut()) {
            send(&mut present.links[0], &frame);
        }
        Some(order)
    }

    /// Whether a first view has the members that this node is connected to.
    fn is_about_us(&self, view: &ClusterView) -> bool {
        let members: Vec<(NodeId, Incarnation)> = view.members().iter().map(Member::identity).collect();
        self.all_connected() == Some(members)
    }

    fn finish(mut self, begin: Begin) -> Formed {
        let mut all_links = Vec::new();
        // One to which not all links are open opens them again.
        let (others, searches) = (self.others.into_values(), self.searches);
        let others = others.filter(|other| other.complete().is_some());
        for present in others.filter_map(|other| other.present) {
            let links = present.links.into_iter().flatten().collect();
            all_links.push(linked(Found { hello: present.hello, links }, &self.own));
        }
        for mut pending in self.pending {
            let why = Refused::new(ErrorCode::NodeStarting, "");
            refuse(&mut pending.stream, self.own.member.node, &why, &mut self.refusals);
        }
        match begin {
            Begin::View(FirstViewOrder { view, cluster_incarnation, database }) => {
                log::info!(target: WHO, "the cluster has begun with {} data nodes", view.members().len());
                Formed { view, cluster_incarnation, database, joins: Vec::new(), links: all_links, searches }
            }
            Begin::Join(BegunCluster { cluster_incarnation, database, members }) => {
                let is_other = |node: &NodeId| *node != self.own.member.node;
                let joins: Vec<NodeId> = members.into_iter().map(|(node, _)| node).filter(is_other).collect();
                log::info!(target: WHO, "the cluster runs with {} data nodes: this one joins", joins.len());
                let view = ClusterView::default();
                Formed { view, cluster_incarnation, database, joins, links: all_links, searches }
            }
        }
    }
}

/// With what a node begins.
enum Begin {
    /// The cluster begins, with its first view.
    View(FirstViewOrder),
    /// The cluster runs.
    Join(BegunCluster),
}

/// What comes on a link before the threads begin.
enum Read {
    Connected(Vec<(NodeId, Incarnation)>),
    View(FirstViewOrder),
}

/// Takes the next frame of the formation from the front of what was read. `Err` if something else is there.
fn take_frame(bytes: &mut Vec<u8>) -> Result<Option<Read>, ()> {
    let Some(frame) = greeting::first_frame(bytes).map_err(|_| ())? else { return Ok(None) };
    let read = match frame.signal() {
        Some(SignalNumber::NodesConnectedReport) => {
            cold::read(&frame).map(|NodesConnectedReport { nodes }| Read::Connected(nodes))
        }
        Some(SignalNumber::FirstViewOrder) => cold::read(&frame).map(Read::View),
        // Another one that joins has begun: its blocks' signals wait for ours.
        _ if frame.sender().block() != Some(BlockNumber::Driver) => return Ok(None),
        _ => None,
    };
    let length = frame.length();
    let read = read.ok_or(())?;
    bytes.drain(..length);
    Ok(Some(read))
}

/// A frame of the formation always fits into the socket: little was sent before. A link that takes none is found
/// closed.
fn send(link: &mut Option<(TcpStream, Vec<u8>)>, frame: &[u8]) {
    if let Some((stream, _)) = link {
        let _ = stream.write_all(frame);
    }
}

/// Refuses a connection, and closes it.
fn refuse(stream: &mut TcpStream, own: NodeId, why: &Refused, lines: &mut RateLimit) {
    if why.code != ErrorCode::NodeStarting {
        let from = stream.peer_addr().map_or_else(|why| why.to_string(), |address| address.to_string());
        let text = format_args!("{from} is refused: {} {}", why.code, why.detail);
        lines.write(log::Level::Warn, WHO, text);
    }
    let refusal = match why.code {
        // API nodes are refused for that; data nodes understand it, too.
        ErrorCode::NodeStarting | ErrorCode::KeyRequired => {
            let driver = Address::new(own, BlockNumber::Driver, 0);
            refuse_frame(driver, &NotAdmitted::new(why.code, ""))
        }
        _ => why.refusal.clone().unwrap_or_else(|| refusal(own, why)),
    };
    // One that does not read it is closed without it.
    if stream.write_all(&refusal).is_ok() {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_wire::configuration::ConfigurationStamp;
    use vinga_wire::formation::ProcessIdentity;

    /// Those that are looked for in vain have times of their own: they need not be at rest in the same moment.
    #[test]
    fn one_that_does_not_answer_is_waited_for_until_it_was_looked_for_once() {
        let (node, now) = (NodeId(2), Instant::now());
        let address = "127.0.0.1:1".parse().expect("an address");
        let mut other = Other {
            configured: OtherDataNode { node, group: 0, address, buffers: LinkBuffers::default() },
            search_due: now,
            why: String::new(),
            other_key_since: None,
            present: None,
            was_searched: false,
            has_begun: false,
        };
        assert!(!other.is_settled(now));
        other.was_searched = true;
        assert!(other.is_settled(now), "it is looked for again");
        let hello = NodeHello {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: String::new(),
            data_nodes: Vec::new(),
            heartbeat_interval: 1,
            configuration: ConfigurationStamp::default(),
            member: Member::started(node, Incarnation(1), 0, 1, 1),
            process: ProcessIdentity::default(),
            link: 0,
            places: Vec::new(),
            begun: None,
        };
        other.present = Some(Present::new(hello, vec![None], now));
        assert!(!other.is_settled(now) && other.is_settled(now + LINKS_MAX), "it has stopped in between");
    }
}
