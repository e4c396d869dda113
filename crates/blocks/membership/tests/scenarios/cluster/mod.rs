//! A cluster of memberships, with drivers and blocks that keep the contract that `docs/protocols/membership.md` states,
//! and with API nodes. Data nodes may fail, the president too: what a failed one has sent arrives up to some signal,
//! and each of the others adopts the view without it some time after that.

use crate::common::{self, API_NODES_MAX, HEARTBEAT};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_kernel::Span;
use vinga_kernel::testkit::{Harness, Sent};
use vinga_membership::{Membership, Phase};
use vinga_wire::handshake::DataNodeStart;
use vinga_wire::membership::{
    ApiAdmissionConfirm, ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiNodeBody,
    CloseConnectionOrder, HeartbeatBody, SessionStage,
};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, U16, U32, U64, cold};

/// What a driver has to say.
enum Saying {
    Connect(ApiConnectRequest),
    Disconnected { api: u8, incarnation: u32 },
}

/// A socket whose greeting was passed on.
pub struct Waiting {
    client: usize,
    request: ApiConnectRequest,
    /// The other end hung up meanwhile.
    pub dead: bool,
    /// Closed together with its session's other connections, which was reported: the answer means nothing.
    covered: bool,
    /// If it greets behind a broken connection of its session to the same node: how often each block had finished what
    /// the session had begun when that broke.
    behind: Option<Finished>,
    /// The data nodes to which its session has lost its connections, in the same way.
    lost: Vec<(usize, Finished)>,
}

/// What a client knows of its session.
#[derive(Default)]
struct Known {
    /// The newest admission.
    admission: u32,
    /// In which admission connections to a data node are open.
    open: BTreeMap<usize, u32>,
    /// In which admission they were lost, and how often each block there had finished what the session had begun.
    lost: BTreeMap<usize, (Finished, u32)>,
}

/// How often each block of a node has finished what a session had begun.
type Finished = [u32; 2];

#[derive(Default)]
pub struct Driver {
    inbox: VecDeque<Sent>,
    outbox: VecDeque<Saying>,
    pub waiting: BTreeMap<u64, Waiting>,
    /// Of each API node: its incarnation and connections.
    pub connections: BTreeMap<u8, (u32, BTreeSet<u16>)>,
}

#[derive(Default)]
pub struct Block {
    inbox: VecDeque<Sent>,
    /// Confirms to be sent.
    outbox: VecDeque<(SessionStage, u8, u32)>,
    /// Sessions that are admitted.
    admitted: BTreeSet<(u8, u32)>,
    /// Sessions that were reported closed, and not yet failed.
    closed: BTreeSet<(u8, u32)>,
    /// How often it has finished what a session had begun.
    finished: BTreeMap<(u8, u32), u32>,
}

/// One session of an API node.
pub struct Client {
    pub wants: u8,
    pub incarnation: u32,
    /// Id and ticket.
    pub admitted: Option<(u8, u64)>,
}

pub struct DataNode {
    pub harness: Harness<Membership>,
    pub drivers: [Driver; 2],
    blocks: [Block; 2],
    pub is_alive: bool,
    /// Nodes whose loss it has not adopted yet, in the order of the views.
    losses: VecDeque<u8>,
}

pub struct Cluster {
    /// Node 1 is the first.
    pub nodes: Vec<DataNode>,
    /// What memberships have sent to those of other nodes.
    wires: BTreeMap<(u8, u8), VecDeque<Sent>>,
    pub clients: Vec<Client>,
    /// Nodes and sessions, of which a connection has broken since they were last admitted.
    broken: BTreeMap<(usize, u8, u32), Finished>,
    /// What clients know of their sessions.
    known: BTreeMap<(u8, u32), Known>,
    /// Confirms that their clients have not read: of which session, from which node, and of which admission.
    unread: VecDeque<((u8, u32), usize, u32)>,
    /// Sessions that a block wants closed: the node of the block, and how often each block there had finished what the
    /// session had begun.
    wanted_closed: Vec<(usize, (u8, u32), Finished)>,
    /// With which incarnation each id was given last.
    given: BTreeMap<u8, u32>,
    waiting_next: u64,
    pub answered: BTreeSet<u64>,
    /// Greetings at nodes that have failed.
    lost: BTreeSet<u64>,
    /// Whether a heartbeat period has passed in which a driver may not have run.
    pub is_late: bool,
    /// Signals that were received by anybody.
    pub received: usize,
}

const BLOCKS: [BlockNumber; 2] = [BlockNumber::Coordinator, BlockNumber::DataManager];

fn node(id: u8, view: &ClusterView) -> DataNode {
    let driver = |thread| Address::new(NodeId(id), BlockNumber::Driver, thread);
    let settings = common::settings(vec![driver(0), driver(1)]);
    let address = Address::new(NodeId(id), BlockNumber::Membership, 0);
    DataNode {
        harness: Harness::new(address, u64::from(id), view.clone(), Membership::new(settings)),
        drivers: Default::default(),
        blocks: Default::default(),
        is_alive: true,
        losses: VecDeque::new(),
    }
}

impl DataNode {
    fn has_view_of(&self, losses: usize) -> bool {
        self.losses.len() <= losses
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("DBG").is_some() {
            for node in &self.nodes {
                eprintln!("=== {}\n{}", node.is_alive, node.harness.scenario());
            }
        }
    }
}

impl Cluster {
    pub fn new(nodes: u8) -> Self {
        Cluster::in_groups(nodes, 1)
    }

    /// With several node groups, whose nodes are numbered in turn.
    pub fn in_groups(nodes: u8, groups: u8) -> Self {
        let group = |node| u16::from((node - 1) % groups);
        let member = |node| Member::started(NodeId(node), Incarnation(1), group(node), 1, 1);
        let view = ClusterView::first((1..=nodes).map(member).collect());
        Cluster {
            nodes: (1..=nodes).map(|id| node(id, &view)).collect(),
            wires: BTreeMap::new(),
            clients: Vec::new(),
            broken: BTreeMap::new(),
            known: BTreeMap::new(),
            unread: VecDeque::new(),
            wanted_closed: Vec::new(),
            given: BTreeMap::new(),
            waiting_next: 0,
            answered: BTreeSet::new(),
            lost: BTreeSet::new(),
            is_late: false,
            received: 0,
        }
    }

    fn live(&self) -> impl Iterator<Item = &DataNode> {
        self.nodes.iter().filter(|node| node.is_alive)
    }

    /// The node whose membership is the registrar, or is going to be.
    pub fn president(&self) -> usize {
        self.nodes.iter().position(|node| node.is_alive).expect("a node is left")
    }

    /// Carries what a membership has sent to where it goes, and checks what must hold at that moment.
    fn carry(&mut self, at: usize) {
        for sent in self.nodes[at].harness.take_sent() {
            match stage(&sent) {
                Some((SessionStage::Closed, api, _)) if !self.is_late => {
                    assert!(
                        !self.is_open(api),
                        "blocks are notified that API node {api} is closed before it is"
                    );
                }
                Some((SessionStage::Admitted, api, _)) if !self.is_late => {
                    assert!(
                        !self.is_open(api),
                        "API node {api} is admitted before its connections are closed"
                    );
                }
                _ => {}
            }
            match sent.signal() {
                SignalNumber::ApiAdmissionConfirm => {
                    let confirm: ApiAdmissionConfirm = cold::read(&sent.frame()).expect("a whole body");
                    self.check_admission(confirm.api, confirm.incarnation);
                }
                SignalNumber::ApiConnectConfirm if at == self.president() => {
                    let confirm: ApiConnectConfirm = cold::read(&sent.frame()).expect("a whole body");
                    self.check_admission(confirm.api, confirm.incarnation);
                }
                _ => {}
            }
            let receiver = sent.receiver();
            match receiver.block() {
                Some(BlockNumber::Driver) => {
                    self.nodes[at].drivers[usize::from(receiver.instance())].inbox.push_back(sent);
                }
                Some(BlockNumber::Api) => assert!(
                    matches!(sent.signal(), SignalNumber::HeartbeatConfirm | SignalNumber::ViewChangedOrder),
                    "API nodes are sent nothing else"
                ),
                Some(BlockNumber::Membership) => {
                    let to = receiver.node().0;
                    if self.nodes[usize::from(to) - 1].is_alive {
                        self.wires.entry((at as u8 + 1, to)).or_default().push_back(sent);
                    }
                }
                block => {
                    let index = BLOCKS.iter().position(|&known| Some(known) == block).expect("a known block");
                    self.nodes[at].blocks[index].inbox.push_back(sent);
                }
            }
        }
        let in_use = self.nodes[at].harness.block().api_nodes().count();
        assert!(
            in_use <= usize::from(API_NODES_MAX) + 1,
            "an admission that was given up, and those there may be"
        );
    }

    fn is_open(&self, api: u8) -> bool {
        self.live().flat_map(|node| &node.drivers).any(|driver| driver.connections.contains_key(&api))
    }

    /// Who is admitted is met by blocks that have finished everything about the connections before, and that know
    /// nothing of an earlier session.
    fn check_admission(&self, api: u8, incarnation: u32) {
        for block in self.live().flat_map(|node| &node.blocks) {
            let is_about = |sent: &Sent| stage(sent).is_some_and(|(_, other, _)| other == api);
            assert!(!block.inbox.iter().any(is_about), "all orders are carried out");
            assert!(block.admitted.contains(&(api, incarnation)), "every block accepts its requests");
            assert!(!block.outbox.iter().any(|(_, other, _)| *other == api), "all confirms have come");
            assert!(!block.closed.iter().any(|(other, _)| *other == api), "who is admitted is not closed");
        }
    }

    /// When nothing is on its way, whom a block wanted closed was closed, even if a president has failed meanwhile.
    fn check_wanted_closed(&mut self) {
        for (at, session, before) in core::mem::take(&mut self.wanted_closed) {
            let finished = self.finished(at, session);
            assert!(
                !self.nodes[at].is_alive || finished > before,
                "a block of node {} wanted session {session:?} closed",
                at + 1
            );
        }
    }

    /// When nothing is on its way, who is taken for connected is.
    fn check_connections(&self) {
        for (api, incarnation, phase) in self.nodes[self.president()].harness.block().api_nodes() {
            let connected =
                |driver: &Driver| driver.connections.get(&api.0).is_some_and(|c| c.0 == incarnation.0);
            let is_connected = self.live().flat_map(|node| &node.drivers).any(connected);
            assert!(phase != Phase::Connected || is_connected, "API node {api} is connected");
        }
    }

    pub fn greet(&mut self, client: usize, at: usize, connection: u16) {
        if !self.nodes[at].is_alive {
            return;
        }
        self.waiting_next += 1;
        let Client { wants, incarnation, admitted } = self.clients[client];
        let (node, ticket) = admitted.unwrap_or((wants, 0));
        let known = self.known.entry((node, incarnation)).or_default();
        let admission = if ticket == 0 { 0 } else { known.admission };
        let lost = known.lost.iter().filter(|(_, (_, lost_in))| *lost_in == admission);
        let lost: Vec<(usize, Finished)> = lost.map(|(&at, &(finished, _))| (at, finished)).collect();
        let start = |at: usize| DataNodeStart { node: at as u8 + 1, incarnation: 1 };
        let (waiting, names) = (self.waiting_next, lost.iter().map(|&(at, _)| start(at)).collect());
        let request =
            ApiConnectRequest { waiting, node, incarnation, connection, ticket, admission, lost: names };
        let driver = &mut self.nodes[at].drivers[usize::from(connection % 2)];
        driver.outbox.push_back(Saying::Connect(request.clone()));
        let waiting = Waiting { client, request, dead: false, covered: false, behind: None, lost };
        driver.waiting.insert(self.waiting_next, waiting);
    }

    /// The driver closes all that it has of an API node, greetings that wait too, and reports that.
    pub fn hang_up(&mut self, at: usize, driver: usize, api: u8) {
        let removed = self.nodes[at].drivers[driver].connections.remove(&api);
        if let Some((incarnation, connections)) = removed {
            let finished = self.finished(at, (api, incarnation));
            self.unread.retain(|&(session, from, _)| (session, from) != ((api, incarnation), at));
            let known = self.known.entry((api, incarnation)).or_default();
            if let Some(admission) = known.open.remove(&at) {
                known.lost.insert(at, (finished, admission));
            }
            let driver = &mut self.nodes[at].drivers[driver];
            for Waiting { request, covered, .. } in driver.waiting.values_mut() {
                *covered |= (request.node, request.incarnation) == (api, incarnation) && request.ticket != 0;
            }
            // It may report each of them.
            driver.outbox.extend(connections.iter().map(|_| Saying::Disconnected { api, incarnation }));
        }
    }

    fn finished(&self, at: usize, session: (u8, u32)) -> Finished {
        [0, 1].map(|block| self.nodes[at].blocks[block].finished.get(&session).copied().unwrap_or(0))
    }

    /// How often each block of a node has finished what a session had begun.
    pub fn finished_at(&self, at: usize, session: (u8, u32)) -> [u32; 2] {
        self.finished(at, session)
    }

    pub fn driver_receives(&mut self, at: usize, driver: usize) -> bool {
        let Some(sent) = self.nodes[at].drivers[driver].inbox.pop_front() else { return false };
        self.received += 1;
        match sent.signal() {
            SignalNumber::ApiConnectConfirm => {
                let confirm: ApiConnectConfirm = cold::read(&sent.frame()).expect("a whole body");
                self.driver_is_confirmed(at, driver, &confirm);
            }
            SignalNumber::ApiConnectRefuse => {
                let refuse: ApiConnectRefuse = cold::read(&sent.frame()).expect("a whole body");
                assert!(self.answered.insert(refuse.waiting), "one answer");
                self.nodes[at].drivers[driver].waiting.remove(&refuse.waiting).expect("it asked");
            }
            SignalNumber::CloseConnectionOrder => {
                let frame = sent.frame();
                let (order, _) = frame.head::<CloseConnectionOrder>().expect("a whole body");
                self.hang_up(at, driver, order.api);
            }
            other => panic!("a driver was sent {other:?}"),
        }
        true
    }

    fn driver_is_confirmed(&mut self, at: usize, driver: usize, confirm: &ApiConnectConfirm) {
        assert!(self.answered.insert(confirm.waiting), "one answer");
        let waiting = self.nodes[at].drivers[driver].waiting.remove(&confirm.waiting);
        let Waiting { client, request, dead, covered, behind, lost } = waiting.expect("it asked");
        if covered {
            return;
        }
        let session = (confirm.api, confirm.incarnation);
        if let Some(before) = behind {
            let finished = self.finished(at, session);
            assert!(
                finished.iter().zip(before).all(|(&now, before)| now > before),
                "a session is admitted again when everything that it has sent is finished"
            );
            self.broken.remove(&(at, confirm.api, confirm.incarnation));
        }
        for (other, before) in lost.into_iter().filter(|_| !self.is_late) {
            let finished = self.finished(other, session);
            let is_finished = finished.iter().zip(before).all(|(&now, before)| now > before);
            assert!(
                is_finished || !self.nodes[other].is_alive,
                "a session is admitted elsewhere when everything that it has sent is finished"
            );
        }
        self.unread.push_back((session, at, confirm.admission));
        assert!(request.node == 0 || request.node == confirm.api);
        assert!(request.ticket == 0 || request.ticket == confirm.ticket);
        assert!(request.ticket == 0 || request.incarnation == confirm.incarnation);
        if request.ticket == 0
            && let Some(before) = self.given.insert(confirm.api, confirm.incarnation)
        {
            let transaction =
                |incarnation| TransactionId::new(NodeId(confirm.api), Incarnation(incarnation), 1);
            assert!(confirm.incarnation > before, "an id has ever greater incarnations");
            assert_ne!(transaction(confirm.incarnation), transaction(before), "and other transactions");
        }
        for other in self.live().flat_map(|node| &node.drivers) {
            if let Some((incarnation, _)) = other.connections.get(&confirm.api) {
                assert_eq!(*incarnation, confirm.incarnation, "an id has one owner");
            }
        }
        self.clients[client].admitted = Some((confirm.api, confirm.ticket));
        self.clients[client].incarnation = confirm.incarnation;
        let new = || (confirm.incarnation, BTreeSet::new());
        let connections = &mut self.nodes[at].drivers[driver].connections;
        connections.entry(confirm.api).or_insert_with(new).1.insert(request.connection);
        if dead {
            self.hang_up(at, driver, confirm.api);
        }
    }

    pub fn driver_says(&mut self, at: usize, driver: usize) -> bool {
        let Some(saying) = self.nodes[at].drivers[driver].outbox.pop_front() else { return false };
        let address = Address::new(NodeId(at as u8 + 1), BlockNumber::Driver, driver as u16);
        self.received += 1;
        match &saying {
            // A late driver may report when the blocks have finished already.
            Saying::Connect(request) if request.ticket != 0 && !self.is_late => {
                let behind = self.broken.get(&(at, request.node, request.incarnation)).copied();
                if let Some(waiting) = self.nodes[at].drivers[driver].waiting.get_mut(&request.waiting) {
                    waiting.behind = behind;
                }
            }
            Saying::Connect(_) => {}
            &Saying::Disconnected { api, incarnation } => {
                let finished = self.finished(at, (api, incarnation));
                self.broken.entry((at, api, incarnation)).or_insert(finished);
            }
        }
        let harness = &mut self.nodes[at].harness;
        match saying {
            Saying::Connect(request) => harness
                .send(address, SignalNumber::ApiConnectRequest, |writer| cold::write(writer, &request))
                .expect("a driver may send this"),
            Saying::Disconnected { api, incarnation } => {
                let body = ApiNodeBody::new(NodeId(api), Incarnation(incarnation));
                harness
                    .send(address, SignalNumber::ApiDisconnectedReport, |writer| {
                        writer.put(&body);
                    })
                    .expect("a driver may send this");
            }
        }
        self.carry(at);
        true
    }

    pub fn block_receives(&mut self, at: usize, block: usize) -> bool {
        let Some(sent) = self.nodes[at].blocks[block].inbox.pop_front() else { return false };
        self.received += 1;
        let (stage, api, incarnation) = stage(&sent).expect("blocks are sent nothing else");
        let block = &mut self.nodes[at].blocks[block];
        match stage {
            SessionStage::Admitted => {
                block.closed.remove(&(api, incarnation));
                assert!(block.closed.iter().all(|(other, _)| *other != api), "earlier ones are forgotten");
                assert!(block.admitted.insert((api, incarnation)), "it was not admitted");
            }
            SessionStage::Closed => {
                assert!(block.admitted.remove(&(api, incarnation)), "it was admitted");
                block.closed.insert((api, incarnation));
                *block.finished.entry((api, incarnation)).or_default() += 1;
            }
            SessionStage::Failed => {
                assert!(block.closed.remove(&(api, incarnation)), "closed first, failed once");
            }
        }
        let known = block.closed.iter().chain(&block.admitted);
        assert!(known.filter(|(a, _)| *a == api).count() <= 1, "a session is forgotten in time");
        block.outbox.push_back((stage, api, incarnation));
        true
    }

    pub fn block_says(&mut self, at: usize, block: usize) -> bool {
        let Some((stage, api, incarnation)) = self.nodes[at].blocks[block].outbox.pop_front() else {
            return false;
        };
        self.received += 1;
        let address = Address::new(NodeId(at as u8 + 1), BLOCKS[block], 0);
        common::confirm(&mut self.nodes[at].harness, address, stage, api, incarnation);
        self.carry(at);
        true
    }

    /// The next signal from one membership to another arrives.
    pub fn wire_delivers(&mut self, from: u8, to: u8) -> bool {
        let wire = self.wires.get_mut(&(from, to));
        let Some(sent) = wire.and_then(VecDeque::pop_front) else { return false };
        self.received += 1;
        let at = usize::from(to) - 1;
        self.nodes[at].harness.deliver(&sent);
        self.carry(at);
        true
    }

    /// A data node dies. Of what it has sent to each other node so many signals arrive.
    pub fn kill(&mut self, at: usize, arrive: usize) {
        if !self.nodes[at].is_alive || self.live().count() == 1 {
            return;
        }
        let dead = at as u8 + 1;
        self.nodes[at].is_alive = false;
        for driver in &mut self.nodes[at].drivers {
            self.lost.extend(driver.waiting.keys());
        }
        for (&(from, to), wire) in &mut self.wires {
            if to == dead {
                wire.clear();
            } else if from == dead {
                wire.truncate(arrive);
            }
        }
        for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
            node.losses.push_back(dead);
        }
    }

    /// A data node adopts the next view. Everything that the dead one has sent was received before.
    pub fn adopt(&mut self, at: usize) -> bool {
        if !self.nodes[at].is_alive {
            return false;
        }
        let Some(dead) = self.nodes[at].losses.front().copied() else { return false };
        while self.wire_delivers(dead, at as u8 + 1) {}
        self.nodes[at].losses.pop_front();
        self.nodes[at].harness.lose_node(NodeId(dead));
        self.carry(at);
        true
    }

    pub fn send_heartbeat(&mut self, at: usize, api: u8) {
        if !self.nodes[at].is_alive {
            return;
        }
        let sender = Address::new(NodeId(api), BlockNumber::Api, 0);
        self.nodes[at]
            .harness
            .send(sender, SignalNumber::HeartbeatRequest, |writer| {
                writer.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
            })
            .expect("an API node may send this");
        self.carry(at);
    }

    /// A block wants an API node closed; a driver that has no connection of it passes that on.
    pub fn want_closed(&mut self, at: usize, driver: usize, api: u8) {
        let node = &mut self.nodes[at];
        if !node.is_alive || node.drivers[driver].connections.contains_key(&api) {
            return;
        }
        let admitted = node.blocks[0].admitted.iter().find(|(admitted, _)| *admitted == api).copied();
        if let Some(session) = admitted.filter(|_| self.is_open(api)) {
            self.wanted_closed.push((at, session, self.finished(at, session)));
        }
        let node = &mut self.nodes[at];
        let sender = Address::new(NodeId(at as u8 + 1), BlockNumber::Driver, driver as u16);
        let (reason, signal) = (U16::new(1), U16::new(1));
        let order = CloseConnectionOrder { api, unused: 0, reason, signal };
        node.harness
            .send(sender, SignalNumber::CloseConnectionOrder, |writer| {
                writer.put(&order);
            })
            .expect("a driver may send this");
        self.carry(at);
    }

    pub fn leave(&mut self, at: usize, api: u8, incarnation: u32) {
        if !self.nodes[at].is_alive {
            return;
        }
        let sender = Address::new(NodeId(api), BlockNumber::Api, 0);
        let harness = &mut self.nodes[at].harness;
        common::report(harness, sender, SignalNumber::DisconnectOrder, api, incarnation);
        self.carry(at);
    }

    pub fn advance(&mut self, span: Span) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_alive {
                self.nodes[at].harness.advance(span);
                self.carry(at);
            }
        }
    }

    /// Drivers are threads of the same node: mostly their signals don't take a heartbeat period.
    pub fn drivers_catch_up(&mut self) -> bool {
        let mut has_worked = false;
        for at in 0..self.nodes.len() {
            while self.nodes[at].is_alive
                && (0..2).any(|driver| self.driver_receives(at, driver) || self.driver_says(at, driver))
            {
                has_worked = true;
            }
        }
        has_worked
    }

    /// A client reads that a data node has confirmed a connection.
    fn client_reads(&mut self) -> bool {
        let Some((session, at, admission)) = self.unread.pop_front() else { return false };
        let known = self.known.entry(session).or_default();
        known.admission = known.admission.max(admission);
        known.open.insert(at, admission);
        known.lost.remove(&at);
        true
    }

    /// One signal is received, of those that wait: which, is for the caller to choose. False if none waits.
    pub fn receive_one(&mut self, choice: usize) -> bool {
        let nodes = self.nodes.len();
        let ways = nodes * (nodes + 9) + 1;
        (0..ways).map(|way| (way + choice) % ways).any(|way| {
            if way + 1 == ways {
                return self.client_reads();
            }
            let (at, what) = (way / (nodes + 9), way % (nodes + 9));
            if !self.nodes[at].is_alive {
                return false;
            }
            match what {
                0 | 1 => self.driver_receives(at, what),
                2 | 3 => self.driver_says(at, what - 2),
                4 | 5 => self.block_receives(at, what - 4),
                6 | 7 => self.block_says(at, what - 6),
                8 => self.adopt(at),
                from => self.wire_delivers(from as u8 - 8, at as u8 + 1),
            }
        })
    }

    /// Drivers and blocks of these nodes answer until only signals between memberships are on their way, if any.
    pub fn quiet_but_wires(&mut self, nodes: &[usize]) {
        let mut has_worked = true;
        while has_worked {
            has_worked = false;
            for &at in nodes {
                while (0..2).any(|which| {
                    self.driver_receives(at, which)
                        || self.driver_says(at, which)
                        || self.block_receives(at, which)
                        || self.block_says(at, which)
                }) {
                    has_worked = true;
                }
            }
        }
    }

    /// Everything arrives that one membership has sent to another.
    pub fn deliver_all(&mut self, from: u8, to: u8) {
        while self.wire_delivers(from, to) {}
    }

    /// A client greets a data node for the first time, and is answered; nothing else is under way.
    pub fn come(&mut self, wants: u8, incarnation: u32, at: usize) -> usize {
        self.clients.push(Client { wants, incarnation, admitted: None });
        let client = self.clients.len() - 1;
        self.greet(client, at, 0);
        self.finish_all();
        client
    }

    /// Everybody answers until nothing is on its way.
    pub fn finish_all(&mut self) {
        while self.receive_one(0) {}
    }

    /// Nothing new happens, everybody answers, time goes by; then nothing may be left of anybody.
    pub fn come_to_rest(&mut self) {
        for _ in 0..20 {
            self.finish_all();
            self.check_connections();
            self.check_wanted_closed();
            self.advance(HEARTBEAT);
        }
        for node in self.nodes.iter().filter(|node| node.is_alive) {
            assert!(node.has_view_of(0), "all views are adopted");
            assert_eq!(node.harness.block().api_nodes().count(), 0, "no id is leaked");
            let is_idle = |driver: &Driver| driver.connections.is_empty() && driver.waiting.is_empty();
            assert!(node.drivers.iter().all(is_idle), "everybody who asked was answered");
            let has_nothing = |block: &Block| block.closed.is_empty() && block.admitted.is_empty();
            assert!(node.blocks.iter().all(has_nothing), "blocks have forgotten everybody");
        }
        let all: BTreeSet<u64> = self.answered.union(&self.lost).copied().collect();
        assert_eq!(all.len() as u64, self.waiting_next, "everybody who asked was answered, or died");
    }

    /// Whether a membership has recorded this coverage mark.
    pub fn has_met(&self, mark: &str) -> bool {
        self.nodes.iter().any(|node| node.harness.has_met(mark))
    }
}

/// What a block is notified of: which session, and its stage.
fn stage(sent: &Sent) -> Option<(SessionStage, u8, u32)> {
    let stage = match sent.signal() {
        SignalNumber::ApiConnectedOrder => SessionStage::Admitted,
        SignalNumber::ApiConnectionClosedOrder => SessionStage::Closed,
        SignalNumber::ApiFailedOrder => SessionStage::Failed,
        _ => return None,
    };
    let frame = sent.frame();
    let (body, _) = frame.head::<ApiNodeBody>().expect("a whole body");
    Some((stage, body.api, body.incarnation.get()))
}
