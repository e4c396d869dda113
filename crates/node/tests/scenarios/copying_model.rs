//! Data nodes that die and come back at random, while transactions change the rows that are copied to them: at the end
//! all replicas have the same rows, and nothing is left of anything.

use crate::support::{ALL, Cluster, Op, Setup, dm, row, tc};
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};
use vinga_wire::view::{MemberState, Succession};

const KEYS: u64 = 14;
const SEEDS: u64 = 200;
const STEPS: u32 = 80;

/// A transaction that is open.
struct Open {
    id: TransactionId,
    coordinator: u8,
    next: u32,
}

struct Play {
    c: Cluster,
    random: fastrand::Rng,
    nodes: u8,
    open: Vec<Open>,
    /// All that were begun at coordinators that have not failed since, and by which. Some wait for a lock when they
    /// are to end, and can't be sent another batch.
    begun: Vec<(TransactionId, u8)>,
}

impl Play {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u8(2..=4);
        let c = Cluster::with(&Setup {
            nodes,
            coordinators: nodes,
            commits_at_last_replica: random.bool(),
            unique: random.u8(..4) == 0,
            copy_piece: random.usize(1..120),
            ending_slice: random.u32(1..4),
            bug,
            ..Setup::default()
        });
        Play { c, random, nodes, open: vec![], begun: vec![] }
    }

    fn operations(&mut self) -> Vec<(Op, bool)> {
        (0..self.random.usize(1..4)).map(|_| (self.operation(), true)).collect()
    }

    fn operation(&mut self) -> Op {
        let random = &mut self.random;
        let key = random.u64(1..=KEYS);
        match random.u8(..6) {
            0 => Op::Insert(row(key, random.i64(..1000))),
            1 => Op::Write(row(key, random.i64(..1000))),
            2 | 3 => Op::Add(key, random.i64(1..1000)),
            4 => Op::SetText(key, ["", "short", "a text that is a little longer"][random.usize(..3)]),
            _ => Op::Delete(key),
        }
    }

    /// Members that have all rows.
    fn started(&self) -> Vec<u8> {
        let started = self.c.view.members().iter().filter(|member| member.state == MemberState::Started);
        started.map(|member| member.node.0).collect()
    }

    /// The member that comes back, if there is one, and whether it is copied to yet.
    fn coming_back(&self) -> Option<(u8, bool)> {
        let coming = self.c.view.members().iter().find(|member| member.state != MemberState::Started)?;
        Some((coming.node.0, coming.state == MemberState::Copying))
    }

    fn step(&mut self) {
        match self.random.u8(..24) {
            0..=8 => self.change(),
            9 | 10 => self.end(),
            11 => self.undo_a_part(),
            12 => self.hold(),
            13 => self.release_all(),
            14 => {
                let nodes = self.c.live_nodes();
                let node = nodes[self.random.usize(..nodes.len())];
                self.c.hold_slices(node);
            }
            15..=17 => {
                for node in self.c.live_nodes() {
                    self.c.slice(node);
                }
            }
            18 => {
                for node in self.c.live_nodes() {
                    self.c.release_slices(node);
                }
            }
            19 => self.kill(),
            20..=22 => self.come_back(),
            _ => self.c.forget_all_outcomes(),
        }
    }

    fn change(&mut self) {
        let ops = self.operations();
        if !self.open.is_empty() && self.random.bool() {
            let at = self.random.usize(..self.open.len());
            let Open { id, coordinator, next } = self.open[at];
            self.c.batch_at(tc(coordinator), id, 0, next, 0, &ops);
            self.open[at].next += ops.len() as u32;
            return;
        }
        let started = self.started();
        let coordinator = started[self.random.usize(..started.len())];
        let id = self.c.begin();
        self.begun.push((id, coordinator));
        let commits = self.random.u8(..3) > 0;
        self.c.batch_at(tc(coordinator), id, if commits { ALL } else { FLAG_START }, 1, 0, &ops);
        if !commits {
            self.open.push(Open { id, coordinator, next: 1 + ops.len() as u32 });
        }
    }

    fn end(&mut self) {
        if let Some(Open { id, coordinator, next }) = self.open.pop() {
            if self.random.u8(..3) > 0 {
                let ops = if self.random.bool() { self.operations() } else { vec![] };
                self.c.batch_at(tc(coordinator), id, FLAG_COMMIT, next, 0, &ops);
            } else {
                self.c.batch_at(tc(coordinator), id, FLAG_ROLLBACK, next, 0, &[]);
            }
        }
    }

    fn undo_a_part(&mut self) {
        if let Some(Open { id, coordinator, next }) = self.open.last_mut() {
            let from = self.random.u32(1..=*next);
            self.c.batch_at(tc(*coordinator), *id, FLAG_ROLLBACK_TO, *next, from, &[]);
            *next += 1;
        }
    }

    fn hold(&mut self) {
        let (from, to) = (self.random.u8(1..=self.nodes), self.random.u8(1..=self.nodes));
        if from != to {
            let instance = self.random.u16(..2);
            self.c.hold(dm(from, instance), dm(to, instance));
        }
    }

    fn release_all(&mut self) {
        for from in 1..=self.nodes {
            for to in (1..=self.nodes).filter(|&to| to != from) {
                (0..2).for_each(|instance| self.c.release(dm(from, instance), dm(to, instance)));
            }
        }
    }

    /// Somebody dies, but never the last one with all rows.
    fn kill(&mut self) {
        let (nodes, started) = (self.c.live_nodes(), self.started());
        let node = nodes[self.random.usize(..nodes.len())];
        if started == [node] {
            return;
        }
        self.c.kill(node);
        self.begun.retain(|&(_, coordinator)| coordinator != node);
        self.open.retain(|open| open.coordinator != node);
    }

    /// Whoever comes back goes on with that, or somebody comes back.
    fn come_back(&mut self) {
        match self.coming_back() {
            Some((node, false)) => self.c.copy_to(node),
            Some((node, true)) if self.c.is_copied(node) => self.c.start(node),
            Some((_, true)) => {}
            None => {
                let missing = (1..=self.nodes).filter(|&node| !self.c.view.has(NodeId(node)));
                let missing: Vec<u8> = missing.collect();
                if !missing.is_empty() {
                    self.c.come_back(missing[self.random.usize(..missing.len())]);
                }
            }
        }
    }

    fn ends_well(mut self) {
        self.release_all();
        for node in self.c.live_nodes() {
            self.c.release_slices(node);
        }
        // Nobody waits for a lock any more.
        self.c.advance(Span::from_millis(1300));
        for (id, coordinator) in std::mem::take(&mut self.begun) {
            self.c.batch_at(tc(coordinator), id, FLAG_ROLLBACK, 1000, 0, &[]);
        }
        let successions: Vec<Succession> = self.c.view.successions().to_vec();
        for (name, _) in successions.iter().flat_map(Succession::coordinators) {
            self.c.release_inherited(name);
        }
        for _ in 0..3 {
            if self.coming_back().is_some() {
                self.come_back();
            }
        }
        assert_eq!(self.coming_back(), None, "nothing keeps a copy from its end");
        self.c.ends_well();
    }
}

/// Whether all goes well with a seed; what goes wrong is printed.
fn goes_well(seed: u64, bug: Option<InjectedBug>) -> bool {
    let play = || {
        let mut play = Play::new(seed, bug);
        (0..STEPS).for_each(|_| play.step());
        play.ends_well();
    };
    std::panic::catch_unwind(play).is_ok()
}

#[test]
fn replicas_are_equal_whoever_dies_and_comes_back() {
    for seed in 0..SEEDS {
        assert!(goes_well(seed, None), "seed {seed}");
    }
}

#[cfg(feature = "injected-bugs")]
#[test]
fn rules_that_are_broken_are_noticed() {
    for (bug, seeds) in [
        (InjectedBug::CopyForgetsOpenRows, 0..SEEDS),
        (InjectedBug::CopyKeepsOldRows, 0..SEEDS),
        // One seed in thousands.
        (InjectedBug::AbortForgetsCopy, 2660..2670),
    ] {
        let is_noticed = seeds.into_iter().any(|seed| !goes_well(seed, Some(bug)));
        assert!(is_noticed, "nobody notices {}", bug.name());
    }
}
