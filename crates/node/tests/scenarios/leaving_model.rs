//! Data nodes that leave, stop and come back at random, while transactions of several batches go on: none of them is
//! rolled back on account of that, what is committed counts once, and at the end replicas are equal. The same in a
//! cluster that gets another node group meanwhile, and whose partitions move.

use crate::support::{Cluster, Op, Received, Setup, committed, dm, row, strict, tc};
use std::collections::BTreeMap;
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::OperationKind;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_START};
use vinga_wire::view::MemberState;
use vinga_wire::{ErrorCode, SignalNumber};

const KEYS: u64 = 12;
const SEEDS: u64 = 120;
const STEPS: u32 = 120;

/// Numbers of operations, and so of requests, are those of their transaction times this.
const NUMBERS: u32 = 1000;

/// A transaction that has not ended, as far as its client knows.
struct Open {
    id: TransactionId,
    coordinator: u8,
    next: u32,
    /// Rows that it has increased.
    keys: Vec<u64>,
    /// Whether the answer to its batch is awaited, and whether that is the first one, or the last.
    awaits: Option<(bool, bool)>,
}

struct Play {
    c: Cluster,
    random: fastrand::Rng,
    nodes: u8,
    /// Another node group may come: this many nodes at most.
    nodes_max: u8,
    open: BTreeMap<u32, Open>,
    begun: u32,
    expected: BTreeMap<u64, i64>,
    /// Data nodes that were asked to leave.
    leaving: Vec<u8>,
    /// How many have said that they stop, and have not ended yet.
    stopping: u32,
    /// How many have ended.
    ended: u32,
}

impl Play {
    fn new(seed: u64, bug: Option<InjectedBug>, grows: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u8(2..=3);
        let nodes_max = if grows { 2 * nodes } else { nodes };
        let mut c = Cluster::with(&Setup {
            nodes,
            coordinators: nodes,
            commits_at_last_replica: random.bool(),
            read_backup: random.u8(..3) == 0,
            unique: false,
            copy_piece: random.usize(40..400),
            ending_slice: random.u32(1..4),
            node_heartbeat_interval: Span::from_millis(50),
            bug,
            ..Setup::default()
        });
        for key in 1..=KEYS {
            assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 0))]), [committed(1)]);
        }
        c.forget_all_outcomes();
        let expected = (1..=KEYS).map(|key| (key, 0)).collect();
        let (open, leaving) = (BTreeMap::new(), vec![]);
        Play { c, random, nodes, nodes_max, open, begun: 0, expected, leaving, stopping: 0, ended: 0 }
    }

    fn step(&mut self) {
        match self.random.u8(..16) {
            0..=4 => self.begin(),
            5..=9 => self.go_on(),
            10 => {
                let (from, to) = (self.random.u8(1..=self.nodes), self.random.u8(1..=self.nodes));
                let instance = self.random.u16(..2);
                if from != to {
                    self.c.hold(dm(from, instance), dm(to, instance));
                }
            }
            11 => self.release_all(),
            12 => self.leave(),
            13 => self.come_back(),
            14 if self.nodes_max > self.first_nodes() => self.grow(),
            _ => {
                let span = self.random.u64(1..200);
                self.advance(span);
            }
        }
        self.take_answers();
    }

    /// Nothing is held back for long: nobody is taken for dead.
    fn advance(&mut self, millis: u64) {
        self.release_all();
        self.c.advance(Span::from_millis(millis));
    }

    fn release_all(&mut self) {
        for from in 1..=self.nodes {
            for to in (1..=self.nodes).filter(|&to| to != from) {
                (0..2).for_each(|instance| self.c.release(dm(from, instance), dm(to, instance)));
            }
        }
    }

    fn operations(&mut self, keys: &mut Vec<u64>) -> Vec<Op> {
        let random = &mut self.random;
        let operations = (0..random.usize(1..4)).map(|_| {
            let key = random.u64(1..=KEYS);
            if random.u8(..5) == 0 {
                return Op::Read(OperationKind::ReadShared, key);
            }
            keys.push(key);
            Op::Add(key, 1)
        });
        operations.collect()
    }

    /// A client begins at a data node that does not leave, as far as it knows, or sometimes at one that does.
    fn begin(&mut self) {
        if self.open.len() >= 8 {
            return;
        }
        let knows_late = self.random.u8(..4) == 0;
        let may_be = |node: &u8| {
            let state = self.c.state_of(*node);
            let is_to_stop = matches!(state, Some(MemberState::Leaving | MemberState::LeftOut));
            state == Some(MemberState::Started) || knows_late && is_to_stop
        };
        let nodes: Vec<u8> = self.c.live_nodes().into_iter().filter(may_be).collect();
        let coordinator = nodes[self.random.usize(..nodes.len())];
        self.begun += 1;
        let id = self.c.begin();
        let next = self.begun * NUMBERS;
        self.open.insert(self.begun, Open { id, coordinator, next, keys: vec![], awaits: None });
        let ends = self.random.u8(..3) == 0;
        self.send(self.begun, true, ends);
    }

    fn go_on(&mut self) {
        let ready: Vec<u32> =
            self.open.iter().filter(|(_, one)| one.awaits.is_none()).map(|(&number, _)| number).collect();
        if !ready.is_empty() {
            let ends = self.random.bool();
            let number = ready[self.random.usize(..ready.len())];
            self.send(number, false, ends);
        }
    }

    fn send(&mut self, number: u32, is_first: bool, ends: bool) {
        let mut keys = vec![];
        let operations = self.operations(&mut keys);
        let one = self.open.get_mut(&number).expect("it is open");
        one.keys.append(&mut keys);
        one.awaits = Some((is_first, ends));
        let flags = if is_first { FLAG_START } else { 0 } | if ends { FLAG_COMMIT } else { 0 };
        let first = one.next;
        one.next += operations.len() as u32;
        self.c.batch_at(tc(one.coordinator), one.id, flags, first, 0, &strict(&operations));
    }

    fn take_answers(&mut self) {
        for received in self.c.received() {
            match received {
                Received::Confirm { request, outcome, errors } => {
                    assert!(errors.is_empty());
                    let number = request / NUMBERS;
                    if outcome == 1 {
                        let one = self.open.remove(&number).expect("it was open");
                        for key in one.keys {
                            *self.expected.get_mut(&key).expect("it is there") += 1;
                        }
                    } else if outcome == 0 {
                        self.open.get_mut(&number).expect("it is open").awaits = None;
                    } else {
                        self.open.remove(&number);
                    }
                }
                Received::Refuse { request, code, .. } => {
                    let one = self.open.remove(&(request / NUMBERS)).expect("it was open");
                    let is_begun_again = code == ErrorCode::NodeFailure
                        && one.awaits.is_some_and(|(is_first, _)| is_first)
                        && self.leaving.contains(&one.coordinator);
                    let conflicts = [ErrorCode::LockTimeout, ErrorCode::Deadlock, ErrorCode::InactiveTimeout];
                    assert!(is_begun_again || conflicts.contains(&code), "{code:?}");
                }
                Received::Stops(has_left) => {
                    assert!(has_left, "it has time enough");
                    self.stopping += 1;
                }
                Received::Row { .. }
                | Received::Other(SignalNumber::ShutdownOrder | SignalNumber::ReorganizeConfirm) => {}
                Received::Refused(ErrorCode::Overloaded) => {}
                // The other one has been asked before.
                Received::Refused(ErrorCode::NodeIsNeeded) => {
                    self.leaving.pop();
                }
                other => panic!("{other:?}"),
            }
        }
        let left: Vec<u8> =
            self.leaving.iter().copied().filter(|&node| self.c.view.has_given_up_all(NodeId(node))).collect();
        for node in left {
            if self.stopping > 0 {
                self.stopping -= 1;
                self.ended += 1;
                self.leaving.retain(|&one| one != node);
                self.c.forget_all_outcomes();
                let has_open = self.open.values().any(|one| one.coordinator == node);
                assert!(!has_open, "all that it has begun has ended");
                self.c.die(node);
                return self.take_answers();
            }
        }
    }

    fn leave(&mut self) {
        let nodes = self.c.live_nodes();
        let all_started = nodes.iter().all(|&node| self.c.state_of(node) == Some(MemberState::Started));
        if nodes.len() < 2 || !all_started || !self.leaving.is_empty() {
            return;
        }
        let node = nodes[self.random.usize(..nodes.len())];
        self.leaving.push(node);
        self.c.ask_to_leave(node, 600_000);
    }

    fn come_back(&mut self) {
        let all_started =
            self.c.live_nodes().iter().all(|&node| self.c.state_of(node) == Some(MemberState::Started));
        let missing: Vec<u8> =
            (1..=self.nodes).filter(|&node| !self.c.live_nodes().contains(&node)).collect();
        if let (true, false) = (all_started, missing.is_empty()) {
            let node = missing[self.random.usize(..missing.len())];
            self.c.join(node);
            for to in [tc(node), dm(node, 0), dm(node, 1)] {
                self.c.notify_one_of_api(to, SignalNumber::ApiConnectedOrder);
            }
        }
    }

    /// Data nodes of the first node group.
    fn first_nodes(&self) -> u8 {
        self.c.view.replicas()
    }

    /// A data node of another node group comes, or partitions begin to move to it, or no further ones do.
    fn grow(&mut self) {
        let is_quiet = self.c.live_nodes().len() == usize::from(self.nodes) && self.leaving.is_empty();
        if self.nodes < self.nodes_max && self.random.bool() {
            if is_quiet {
                self.nodes += 1;
                self.release_all();
                self.c.add(self.nodes, 1);
            }
        } else {
            self.c.reorganize(self.random.u8(..4) > 0);
        }
    }

    /// All data nodes are there, and each node group has its share.
    fn ends_grown(&mut self) {
        while self.c.live_nodes().len() < usize::from(self.nodes) {
            self.come_back();
            self.advance(500);
        }
        self.c.reorganize(true);
        self.advance(35_000);
        self.take_answers();
        if self.nodes == self.nodes_max {
            let (shares, reorganizes) = (self.c.shares(), self.c.view.reorganizes());
            assert_eq!((shares, reorganizes), (vec![1, 1], false));
        }
        assert_eq!(self.c.view.moving(), None);
    }

    /// Returns how many data nodes have left and ended.
    fn ends_well(mut self) -> u32 {
        for _ in 0..40 {
            self.advance(100);
            self.take_answers();
            let ready: Vec<u32> =
                self.open.iter().filter(|(_, o)| o.awaits.is_none()).map(|(&n, _)| n).collect();
            for number in ready {
                let one = self.open.get_mut(&number).expect("it is open");
                one.awaits = Some((false, true));
                self.c.batch_at(tc(one.coordinator), one.id, FLAG_ROLLBACK, one.next, 0, &[]);
            }
            self.take_answers();
        }
        assert!(self.open.is_empty() && self.leaving.is_empty(), "all have ended");
        if self.nodes_max > self.first_nodes() {
            self.ends_grown();
        }
        for (key, expected) in std::mem::take(&mut self.expected) {
            let found = self.c.read(&[key], None).pop().flatten().map(|row| row.1);
            assert_eq!(found, Some(expected), "row {key}");
        }
        self.c.ends_well();
        self.ended
    }
}

/// How many data nodes have left and ended in the course of a seed; what goes wrong is printed.
fn course(seed: u64, bug: Option<InjectedBug>, grows: bool) -> Option<u32> {
    let play = || {
        let mut play = Play::new(seed, bug, grows);
        (0..STEPS).for_each(|_| play.step());
        play.ends_well()
    };
    std::panic::catch_unwind(play).ok()
}

#[test]
fn nobody_notices_data_nodes_that_leave_and_come_back() {
    let mut ended = 0;
    for seed in 0..SEEDS {
        ended += course(seed, None, false).unwrap_or_else(|| panic!("seed {seed}"));
    }
    assert!(ended > SEEDS as u32, "data nodes leave in most courses, often several times: {ended}");
}

#[test]
fn nobody_notices_partitions_that_move() {
    for seed in 0..SEEDS {
        course(seed, None, true).unwrap_or_else(|| panic!("seed {seed}"));
    }
}

#[cfg(feature = "injected-bugs")]
#[test]
fn a_data_node_that_stops_early_is_noticed() {
    let is_noticed =
        (0..SEEDS).any(|seed| course(seed, Some(InjectedBug::LeaverNotDrained), false).is_none());
    assert!(is_noticed, "nobody notices {}", InjectedBug::LeaverNotDrained.name());
}
