//! Random interleavings: API nodes ask and die, blocks answer late or refuse, a data node fails. A table is never half
//! made: what the dictionary shows, everybody has; at rest nobody has anything else.

mod common;

use common::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_dictionary::Dictionary;
use vinga_kernel::testkit::{Harness, Sent};
use vinga_wire::dictionary::{DropTableConfirm, ListTablesConfirm, TableAddRequest, TableBody, TableConfirm};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

/// A coordinator or data manager.
#[derive(Default)]
struct Block {
    inbox: VecDeque<Sent>,
    outbox: VecDeque<(SignalNumber, u32, u64)>,
    /// Versions of the tables that it has, by id.
    tables: BTreeMap<u32, u64>,
    /// All versions that it was ever told of.
    versions: BTreeSet<u64>,
}

struct World {
    harness: Harness<Dictionary>,
    blocks: BTreeMap<Address, Block>,
    /// Requests without an answer, by API node.
    open: BTreeMap<u8, BTreeSet<u32>>,
    request_next: u32,
    second_node_failed: bool,
}

fn is_data_manager(address: Address) -> bool {
    address.block() == Some(BlockNumber::DataManager)
}

impl World {
    fn new() -> Self {
        World {
            harness: harness(),
            blocks: COORDINATORS.into_iter().chain(DATA_MANAGERS).map(|a| (a, Block::default())).collect(),
            open: BTreeMap::new(),
            request_next: 0,
            second_node_failed: false,
        }
    }

    /// Carries what the dictionary has sent to the inboxes; ticks off answered requests.
    fn carry(&mut self) {
        for sent in self.harness.take_sent() {
            let receiver = sent.receiver();
            if receiver.block() == Some(BlockNumber::Api) {
                let request = tag(&sent);
                let open = self.open.entry(receiver.node().0).or_default();
                assert!(open.remove(&request), "one answer, and only to a life that asked");
            } else if receiver != MEMBERSHIP {
                self.blocks.get_mut(&receiver).expect("only live blocks are told").inbox.push_back(sent);
            }
        }
        for table in self.harness.block().tables() {
            for (address, block) in &self.blocks {
                assert_eq!(
                    block.tables.get(&table.table),
                    Some(&table.version),
                    "{address} has what is shown"
                );
            }
        }
    }

    fn ask(&mut self, node: u8, kind: u8, name: u8) {
        self.request_next += 1;
        let request = self.request_next;
        self.open.entry(node).or_default().insert(request);
        let name = ["test.a", "TEST.a", "test.B", "test.c", "test.d", "nonsense"][usize::from(name % 6)];
        let h = &mut self.harness;
        match kind % 6 {
            0..=2 => create(h, api(node), request, name),
            3 => named(h, api(node), SignalNumber::DropTableRequest, request, name),
            4 => named(h, api(node), SignalNumber::DescribeTableRequest, request, name),
            _ => list(h, api(node), request, 0),
        }
        self.carry();
    }

    fn pick(&self, pick: u8) -> Address {
        *self.blocks.keys().nth(usize::from(pick) % self.blocks.len()).expect("some block is alive")
    }

    fn hear(&mut self, address: Address, refuses: bool) -> bool {
        let everybody: Vec<(Address, BTreeMap<u32, u64>)> =
            self.blocks.iter().map(|(a, b)| (*a, b.tables.clone())).collect();
        let who_has = |table, version, data_managers| {
            everybody
                .iter()
                .filter(move |(a, _)| is_data_manager(*a) == data_managers)
                .map(move |(_, tables)| tables.get(&table) == Some(&version))
        };
        let block = self.blocks.get_mut(&address).expect("a live block");
        let Some(sent) = block.inbox.pop_front() else { return false };
        match sent.signal() {
            SignalNumber::TableAddRequest => {
                let TableAddRequest { table } = cold::read(&sent.frame()).expect("a whole body");
                let (id, version) = (table.table, table.version);
                assert!(!block.tables.contains_key(&id), "an id has one table");
                assert!(block.versions.insert(version), "a version is given once");
                assert!(is_data_manager(address) || who_has(id, version, true).all(|has| has));
                if refuses {
                    block.outbox.push_back((SignalNumber::TableAddRefuse, id, version));
                } else {
                    block.tables.insert(id, version);
                    block.outbox.push_back((SignalNumber::TableAddConfirm, id, version));
                }
            }
            signal => {
                let TableBody { table, version } = cold::read(&sent.frame()).expect("a whole body");
                assert_eq!(
                    block.tables.remove(&table),
                    Some(version),
                    "only who has a table is told to drop it"
                );
                let confirm = if is_data_manager(address) {
                    assert_eq!(signal, SignalNumber::TableRemoveRequest);
                    assert!(!who_has(table, version, false).any(|has| has), "coordinators stop first");
                    SignalNumber::TableRemoveConfirm
                } else {
                    assert_eq!(signal, SignalNumber::TableStopRequest);
                    SignalNumber::TableStopConfirm
                };
                block.outbox.push_back((confirm, table, version));
            }
        }
        true
    }

    fn say(&mut self, address: Address) -> bool {
        let block = self.blocks.get_mut(&address).expect("a live block");
        let Some((signal, table, version)) = block.outbox.pop_front() else { return false };
        match signal {
            SignalNumber::TableAddRefuse => {
                refuse(&mut self.harness, address, ErrorCode::DataMemoryFull, table, version);
            }
            confirm => answer(&mut self.harness, address, confirm, table, version),
        }
        self.carry();
        true
    }

    fn step(&mut self, (action, a, b): (u8, u8, u8)) {
        match action {
            0 | 1 => self.ask(150 + a % 3, b, b / 6),
            2..=4 => {
                self.hear(self.pick(a), b < 25);
            }
            5..=7 => {
                self.say(self.pick(a));
            }
            8 if b < 64 => {
                let node = 150 + a % 3;
                api_gone(&mut self.harness, SignalNumber::ApiConnectionClosedOrder, node);
                self.open.remove(&node);
                self.carry();
            }
            9 if b < 8 && !self.second_node_failed => {
                self.second_node_failed = true;
                self.blocks.retain(|address, _| address.node().0 == 1);
                fail_node(&mut self.harness, 2);
                self.carry();
            }
            _ => {}
        }
    }

    /// Nothing more is asked, everybody answers.
    fn come_to_rest(&mut self) {
        let addresses: Vec<Address> = self.blocks.keys().copied().collect();
        while addresses.iter().any(|&address| self.hear(address, false) || self.say(address)) {}
    }
}

/// The tag of an answer.
fn tag(sent: &Sent) -> u32 {
    let frame = sent.frame();
    match sent.signal() {
        SignalNumber::CreateTableConfirm | SignalNumber::DescribeTableConfirm => {
            cold::read::<TableConfirm>(&frame).map(|body| body.request)
        }
        SignalNumber::DropTableConfirm => cold::read::<DropTableConfirm>(&frame).map(|body| body.request),
        SignalNumber::ListTablesConfirm => cold::read::<ListTablesConfirm>(&frame).map(|body| body.request),
        _ => cold::read::<Refusal>(&frame).map(|body| body.request),
    }
    .expect("a whole body")
}

fn run(steps: impl IntoIterator<Item = (u8, u8, u8)>) -> World {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
    world.come_to_rest();
    assert!(!world.harness.block().is_changing());
    let shown: BTreeMap<u32, u64> =
        world.harness.block().tables().map(|table| (table.table, table.version)).collect();
    for (address, block) in &world.blocks {
        assert_eq!(block.tables, shown, "{address} has what is shown and nothing else");
    }
    assert!(
        world.open.values().all(BTreeSet::is_empty),
        "everybody who asked and is still there was answered"
    );
    world
}

/// Steps that are the same in every run of the test.
fn steps(seed: u64) -> impl Iterator<Item = (u8, u8, u8)> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        // Knuth's MMIX generator; its high bits are good enough here.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 56) as u8 % 10, (state >> 48) as u8, (state >> 40) as u8)
    })
    .take(400)
}

#[test]
fn rare_branches_are_met() {
    let mut missing = BTreeSet::from([
        "asker of a schema change has gone",
        "schema change goes on without a failed data node",
        "queue of schema changes is full",
    ]);
    for seed in 0..300 {
        let world = run(steps(seed));
        missing.retain(|probe| !world.harness.has_met(probe));
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_table_is_half_made(steps in proptest::collection::vec((0u8..10, any::<u8>(), any::<u8>()), 0..400)) {
        run(steps);
    }

    /// Whatever an API node puts into a signal to the dictionary, the block lives on.
    #[test]
    fn malformed_bodies_do_no_harm(number in 0u16..200, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut harness = harness();
        if let Some(signal) = SignalNumber::from_number(number) {
            let _ = harness.send(api(150), signal, |writer| {
                writer.bytes(&body);
            });
            // The same with a length that fits, so that the deserialiser gets to see it.
            let _ = harness.send(api(150), signal, |writer| {
                writer.bytes(&(body.len() as u32).to_le_bytes()).bytes(&body);
            });
        }
    }
}
