//! Random interleavings: API nodes connect, break, come back and die; drivers and blocks answer late; time goes by; a
//! data node fails. The drivers and blocks of this file keep the contract that `docs/protocols/membership.md` states.

mod common;

use common::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::NodeId;
use vinga_kernel::Span;
use vinga_kernel::testkit::{Harness, Sent};
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::{
    ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiNodeBody, CloseConnectionOrder, HeartbeatBody,
};
use vinga_wire::{Address, BlockNumber, SignalNumber, U32, U64, cold};

/// What a driver has to say.
enum Saying {
    Connect(ApiConnectRequest),
    Disconnected { api: u8, incarnation: u32 },
}

/// A socket whose greeting was passed on.
struct Waiting {
    client: usize,
    request: ApiConnectRequest,
    /// The other end hung up meanwhile.
    dead: bool,
    /// Closed together with its session's other connections, which was reported: the answer means nothing.
    covered: bool,
}

#[derive(Default)]
struct Driver {
    inbox: VecDeque<Sent>,
    outbox: VecDeque<Saying>,
    waiting: BTreeMap<u64, Waiting>,
    /// Per API node: its incarnation and connections.
    connections: BTreeMap<u8, (u32, BTreeSet<u16>)>,
}

#[derive(Default)]
struct Block {
    inbox: VecDeque<Sent>,
    /// Sessions that are admitted.
    admitted: BTreeSet<(u8, u32)>,
    /// Signals to be sent.
    outbox: VecDeque<(SignalNumber, u8, u32)>,
    /// Sessions that were reported closed, and not yet failed.
    closed: BTreeSet<(u8, u32)>,
}

/// One session of an API node.
struct Client {
    wants: u8,
    incarnation: u32,
    /// Id and ticket.
    admitted: Option<(u8, u64)>,
}

struct World {
    harness: Harness<Membership>,
    drivers: [Driver; 2],
    blocks: [Block; 3],
    clients: Vec<Client>,
    waiting_next: u64,
    answered: BTreeSet<u64>,
    /// Whether a heartbeat period has passed in which a driver may not have run.
    is_late: bool,
    second_node_failed: bool,
}

impl World {
    fn new() -> Self {
        World {
            harness: harness(),
            drivers: Default::default(),
            blocks: Default::default(),
            clients: Vec::new(),
            waiting_next: 0,
            answered: BTreeSet::new(),
            is_late: false,
            second_node_failed: false,
        }
    }

    /// Carries what membership has sent to the inboxes and checks what must hold at that moment.
    fn carry(&mut self) {
        for sent in self.harness.take_sent() {
            let is_open = |api: u8| self.drivers.iter().any(|driver| driver.connections.contains_key(&api));
            if sent.signal() == SignalNumber::ApiConnectionClosedOrder && !self.is_late {
                let (api, _) = api_node(&sent);
                assert!(!is_open(api), "blocks are notified that API node {api} is closed before it is");
            }
            if sent.signal() == SignalNumber::ApiConnectedOrder {
                let (api, _) = api_node(&sent);
                assert!(
                    !is_open(api),
                    "API node {api} is admitted before its connections of before are closed"
                );
            }
            if sent.signal() == SignalNumber::ApiConnectConfirm {
                self.check_admission(&sent);
            }
            match sent.receiver().block() {
                Some(BlockNumber::Driver) => {
                    let index = DRIVERS.iter().position(|&d| d == sent.receiver()).expect("a known driver");
                    self.drivers[index].inbox.push_back(sent);
                }
                Some(BlockNumber::Api) => assert!(
                    matches!(sent.signal(), SignalNumber::HeartbeatConfirm | SignalNumber::ViewChangedOrder),
                    "API nodes are sent nothing else"
                ),
                _ => {
                    let index = BLOCKS.iter().position(|&b| b == sent.receiver()).expect("a known block");
                    assert!(index != 2 || !self.second_node_failed, "a failed node is sent nothing");
                    self.blocks[index].inbox.push_back(sent);
                }
            }
        }
        let in_use = self.harness.block().api_nodes().count();
        assert!(in_use <= usize::from(API_NODES_MAX));
    }

    /// Who is admitted is met by blocks that have finished everything about the connections before, and that know
    /// nothing of an earlier session.
    fn check_admission(&self, sent: &Sent) {
        let confirm: ApiConnectConfirm = cold::read(&sent.frame()).expect("a whole body");
        let waiting = self.drivers.iter().find_map(|driver| driver.waiting.get(&confirm.waiting));
        let is_new = waiting.expect("somebody asked").request.ticket == 0;
        for (index, block) in self.blocks.iter().enumerate() {
            assert!(
                !block.inbox.iter().any(|sent| api_node(sent).0 == confirm.api),
                "all orders are carried out"
            );
            let is_admitted = block.admitted.contains(&(confirm.api, confirm.incarnation));
            assert!(is_admitted || index == 2 && self.second_node_failed, "every block accepts its requests");
            assert!(!block.outbox.iter().any(|(_, api, _)| *api == confirm.api), "all confirms have come");
            let is_known = block.closed.iter().any(|(api, _)| *api == confirm.api);
            assert!(!(is_new && is_known), "a new session begins with nothing");
            assert!(!is_known, "who is admitted is not closed");
        }
    }

    /// When nothing is on its way, who is taken for connected is.
    fn check_connections(&self) {
        for (api, incarnation, phase) in self.harness.block().api_nodes() {
            let connected =
                |driver: &Driver| driver.connections.get(&api.0).is_some_and(|c| c.0 == incarnation.0);
            assert!(phase != Phase::Connected || self.drivers.iter().any(connected));
        }
    }

    fn greet(&mut self, client: usize, connection: u16) {
        self.waiting_next += 1;
        let Client { wants, incarnation, admitted } = self.clients[client];
        let (node, ticket) = admitted.unwrap_or((wants, 0));
        let request = ApiConnectRequest { waiting: self.waiting_next, node, incarnation, connection, ticket };
        let driver = &mut self.drivers[usize::from(connection % 2)];
        driver.outbox.push_back(Saying::Connect(request.clone()));
        driver.waiting.insert(self.waiting_next, Waiting { client, request, dead: false, covered: false });
    }

    /// The driver closes all that it has of an API node, greetings that wait too, and reports that.
    fn hang_up(&mut self, driver: usize, api: u8) {
        let driver = &mut self.drivers[driver];
        if let Some((incarnation, connections)) = driver.connections.remove(&api) {
            for Waiting { request, covered, .. } in driver.waiting.values_mut() {
                *covered |= (request.node, request.incarnation) == (api, incarnation) && request.ticket != 0;
            }
            // It may report each of them.
            driver.outbox.extend(connections.iter().map(|_| Saying::Disconnected { api, incarnation }));
        }
    }

    fn driver_receives(&mut self, driver: usize) -> bool {
        let Some(sent) = self.drivers[driver].inbox.pop_front() else { return false };
        match sent.signal() {
            SignalNumber::ApiConnectConfirm => {
                let confirm: ApiConnectConfirm = cold::read(&sent.frame()).expect("a whole body");
                assert!(self.answered.insert(confirm.waiting), "one answer");
                let Waiting { client, request, dead, covered } =
                    self.drivers[driver].waiting.remove(&confirm.waiting).expect("it asked");
                if covered {
                    return true;
                }
                assert!(request.node == 0 || request.node == confirm.api);
                assert!(request.ticket == 0 || request.ticket == confirm.ticket);
                assert!(request.ticket == 0 || request.incarnation == confirm.incarnation);
                assert!(request.incarnation <= confirm.incarnation);
                for other in &self.drivers {
                    if let Some((incarnation, _)) = other.connections.get(&confirm.api) {
                        assert_eq!(*incarnation, confirm.incarnation, "an id has one owner");
                    }
                }
                self.clients[client].admitted = Some((confirm.api, confirm.ticket));
                self.clients[client].incarnation = confirm.incarnation;
                self.drivers[driver]
                    .connections
                    .entry(confirm.api)
                    .or_insert_with(|| (confirm.incarnation, BTreeSet::new()))
                    .1
                    .insert(request.connection);
                if dead {
                    self.hang_up(driver, confirm.api);
                }
            }
            SignalNumber::ApiConnectRefuse => {
                let refuse: ApiConnectRefuse = cold::read(&sent.frame()).expect("a whole body");
                assert!(self.answered.insert(refuse.waiting), "one answer");
                self.drivers[driver].waiting.remove(&refuse.waiting).expect("it asked");
            }
            SignalNumber::CloseConnectionOrder => {
                let frame = sent.frame();
                let (order, _) = frame.head::<CloseConnectionOrder>().expect("a whole body");
                self.hang_up(driver, order.api);
            }
            other => panic!("a driver was sent {other:?}"),
        }
        true
    }

    fn driver_says(&mut self, driver: usize) -> bool {
        let Some(saying) = self.drivers[driver].outbox.pop_front() else { return false };
        match saying {
            Saying::Connect(request) => connect(&mut self.harness, driver, &request),
            Saying::Disconnected { api, incarnation } => {
                let signal = SignalNumber::ApiDisconnectedReport;
                report(&mut self.harness, DRIVERS[driver], signal, api, incarnation);
            }
        }
        self.carry();
        true
    }

    fn block_receives(&mut self, block: usize) -> bool {
        let Some(sent) = self.blocks[block].inbox.pop_front() else { return false };
        let (api, incarnation) = api_node(&sent);
        let block = &mut self.blocks[block];
        let answer = match sent.signal() {
            SignalNumber::ApiConnectedOrder => {
                block.closed.remove(&(api, incarnation));
                assert!(block.closed.iter().all(|(other, _)| *other != api), "earlier ones are forgotten");
                assert!(block.admitted.insert((api, incarnation)), "it was not admitted");
                SignalNumber::ApiConnectedConfirm
            }
            SignalNumber::ApiConnectionClosedOrder => {
                assert!(block.admitted.remove(&(api, incarnation)), "it was admitted");
                block.closed.insert((api, incarnation));
                SignalNumber::ApiConnectionClosedConfirm
            }
            SignalNumber::ApiFailedOrder => {
                assert!(block.closed.remove(&(api, incarnation)), "closed first, failed once");
                SignalNumber::ApiFailedConfirm
            }
            other => panic!("a block was sent {other:?}"),
        };
        let known = block.closed.iter().chain(&block.admitted);
        assert!(known.filter(|(a, _)| *a == api).count() <= 1, "a session is forgotten in time");
        block.outbox.push_back((answer, api, incarnation));
        true
    }

    fn block_says(&mut self, block: usize) -> bool {
        let Some((signal, api, incarnation)) = self.blocks[block].outbox.pop_front() else { return false };
        report(&mut self.harness, BLOCKS[block], signal, api, incarnation);
        self.carry();
        true
    }

    /// Drivers are threads of the same node: mostly their signals don't take a heartbeat period.
    fn drivers_catch_up(&mut self) {
        while (0..2).any(|driver| self.driver_receives(driver) || self.driver_says(driver)) {}
    }

    fn fail_second_node(&mut self) {
        if !self.second_node_failed {
            self.second_node_failed = true;
            self.harness.lose_node(NodeId(2));
            self.blocks[2] = Block::default();
            self.carry();
        }
    }

    fn step(&mut self, (action, a, b): (u8, u8, u8)) {
        let some_client = |clients: &[Client]| (!clients.is_empty()).then(|| usize::from(a) % clients.len());
        match action {
            0 => {
                let wants = if b % 2 == 0 { 0 } else { 145 + b % 5 };
                let incarnation = self.clients.len() as u32 / 3 + u32::from(b % 3);
                self.clients.push(Client { wants, incarnation, admitted: None });
                self.greet(self.clients.len() - 1, u16::from(a % 2));
            }
            1 => {
                if let Some(client) = some_client(&self.clients) {
                    self.greet(client, u16::from(b % 4));
                }
            }
            2 => {
                let driver = usize::from(a % 2);
                let apis: Vec<u8> = self.drivers[driver].connections.keys().copied().collect();
                if !apis.is_empty() {
                    self.hang_up(driver, apis[usize::from(b) % apis.len()]);
                }
            }
            3 => {
                let waiting = &mut self.drivers[usize::from(a % 2)].waiting;
                if let Some(socket) = waiting.values_mut().nth(usize::from(b % 4)) {
                    socket.dead = true;
                }
            }
            4 | 5 => {
                self.driver_says(usize::from(a % 2));
            }
            6 => {
                self.driver_receives(usize::from(a % 2));
            }
            7 => {
                // Mostly a block answers at once.
                self.block_receives(usize::from(a % 3));
                if b % 4 != 0 {
                    self.block_says(usize::from(a % 3));
                }
            }
            8 => {
                self.block_says(usize::from(a % 3));
            }
            9 if b % 8 == 7 => {
                self.is_late = true;
                self.harness.advance(Span(2 * HEARTBEAT.0));
                self.carry();
            }
            9 => {
                for _ in 0..b / 8 {
                    self.drivers_catch_up();
                    self.harness.advance(Span::from_millis(100));
                    self.carry();
                }
            }
            10 => {
                if let Some(client) = some_client(&self.clients)
                    && let Some((api, _)) = self.clients[client].admitted
                {
                    let sender = Address::new(NodeId(api), BlockNumber::Api, 0);
                    self.harness
                        .send(sender, SignalNumber::HeartbeatRequest, |writer| {
                            writer.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
                        })
                        .expect("an API node may send this");
                    self.carry();
                }
            }
            11 if b % 4 == 0 => {
                let known = some_client(&self.clients).map(|client| &self.clients[client]);
                if let Some(&Client { admitted: Some((api, _)), incarnation, .. }) = known {
                    let sender = Address::new(NodeId(api), BlockNumber::Api, 0);
                    report(&mut self.harness, sender, SignalNumber::DisconnectOrder, api, incarnation);
                    self.carry();
                }
            }
            _ if a == 0 => self.fail_second_node(),
            _ => {}
        }
    }

    /// Nothing new happens, everybody answers, time goes by.
    fn come_to_rest(&mut self) {
        for _ in 0..20 {
            loop {
                self.drivers_catch_up();
                if !(0..3).any(|block| self.block_receives(block) || self.block_says(block)) {
                    break;
                }
            }
            self.check_connections();
            self.harness.advance(HEARTBEAT);
            self.carry();
        }
    }
}

fn api_node(sent: &Sent) -> (u8, u32) {
    let frame = sent.frame();
    let (body, _) = frame.head::<ApiNodeBody>().expect("a whole body");
    (body.api, body.incarnation.get())
}

fn run(steps: impl IntoIterator<Item = (u8, u8, u8)>) -> World {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
    world.come_to_rest();
    assert_eq!(world.harness.block().api_nodes().count(), 0, "no id is leaked");
    assert_eq!(world.answered.len() as u64, world.waiting_next, "everybody who asked was answered");
    assert!(world.drivers.iter().all(|driver| driver.connections.is_empty() && driver.waiting.is_empty()));
    assert!(world.blocks.iter().all(|block| block.closed.is_empty() && block.admitted.is_empty()));
    world
}

/// Steps that are the same in every run of the test.
fn steps(seed: u64) -> impl Iterator<Item = (u8, u8, u8)> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        // Knuth's MMIX generator; its high bits are good enough here.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 56) as u8 % 12, (state >> 48) as u8, (state >> 40) as u8)
    })
    .take(400)
}

#[test]
fn rare_branches_are_met() {
    let mut missing = BTreeSet::from([
        "newer session waits for the older to close",
        "newer session ends the grace time of the older",
        "newer session waits for the older to be forgotten",
        "same session waits for its connections to close",
        "waiting connection was closed with its session",
        "closing goes on without a failed data node",
        "forgetting goes on without a failed data node",
        "admission goes on without a failed data node",
        "further connection of a session that is being admitted",
        "driver did not report a closed connection",
    ]);
    for seed in 0..600 {
        let world = run(steps(seed));
        missing.retain(|mark| !world.harness.has_met(mark));
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_id_is_leaked_or_shared(
        steps in proptest::collection::vec((0u8..12, any::<u8>(), any::<u8>()), 0..400),
    ) {
        run(steps);
    }

    /// Whatever an API node puts into a signal to membership, the block sessions on.
    #[test]
    fn malformed_bodies_do_no_harm(number in 0u16..200, body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut harness = harness();
        let sender = Address::new(NodeId(150), BlockNumber::Api, 0);
        if let Some(signal) = SignalNumber::from_number(number) {
            let _ = harness.send(sender, signal, |writer| {
                writer.bytes(&body);
            });
        }
    }
}
