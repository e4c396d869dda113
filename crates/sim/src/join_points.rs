//! What happens at certain moments of data nodes that come back: of the copies of rows to them, and of primaries that
//! move to them. By chance nearly nothing happens there, since they are short.
//!
//! - While rows are copied, and then, the source's answers are held back from an API node: so it is going to ask for
//!   outcomes that it would have known. Sometimes another replica dies, so that the copy begins anew.
//! - When a data node has started, another one of its node group dies: then what the newcomer has counts.
//! - Some thread learns late that rows are copied to somebody.
//! - What a primary that is handed over has sent to its backups is on its way for a while.
//!
//! Nothing is cut for so long that somebody would be given up for it.

use crate::agenda::Time;
use crate::pipe::PipeId;
use crate::profile::{Fault, Profile};
use crate::returns::Start;
use crate::world::{Event, Stage, World};
use fastrand::Rng;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{Frame, SignalNumber};

/// How much later a thread learns of a copy, at most.
const LATE_MAX: Time = 80_000;

/// How long a data node still lives behind such a moment, at most.
const LIFE_MAX: Time = 5_000;

/// Somebody dies at one of so many.
const ROWS_ONE_IN: u8 = 12;

/// What happens at such moments, by numbers of its own.
pub struct JoinPoints {
    random: Rng,
    /// Answers are held back until then.
    held_until: Time,
}

impl JoinPoints {
    pub fn new(seed: u64) -> Self {
        JoinPoints { random: Rng::with_seed(seed ^ 0x6a6f_696e), held_until: 0 }
    }
}

impl Profile {
    /// The times of a run with such moments: data nodes that come back have the time to start, mostly, and there is
    /// load until then.
    pub fn with_join_points(self, seed: u64) -> Self {
        if !self.faults.contains(&Fault::JoinPoint) {
            return self;
        }
        let mut random = Rng::with_seed(seed.wrapping_mul(179));
        let (is_busy, interval) = (random.u8(..4) == 0, random.u64(30_000..150_000));
        Profile {
            fault_interval: if is_busy { self.fault_interval } else { self.fault_interval.max(interval) },
            transactions: self.transactions.max(random.u32(100..400)),
            fault_time: self.fault_time.max(random.u64(600_000..2_500_000)),
            ..self
        }
    }
}

impl World {
    fn has_join_points(&self) -> bool {
        self.stage == Stage::Running && self.profile.faults.contains(&Fault::JoinPoint)
    }

    /// A signal leaves a data node for another one.
    pub(crate) fn meet_join_point(&mut self, frame: &Frame<'_>, from: u8, to: u8, way: PipeId) {
        let Some(signal) = frame.signal().filter(|_| self.has_join_points()) else { return };
        match signal {
            SignalNumber::CopyRowsRequest if self.join_points.random.u8(..4) == 0 => {
                self.hold_answers(from);
                if self.join_points.random.u8(..ROWS_ONE_IN) == 0 {
                    self.have_one_follow(to, LIFE_MAX);
                }
            }
            SignalNumber::CopyConfirm if self.join_points.random.u8(..3) == 0 => {
                let span = self.draw_span();
                self.hold(vec![way], span);
            }
            SignalNumber::HandOverRequest if self.join_points.random.bool() => self.hold_chain(to, from),
            _ => {}
        }
    }

    /// A data node has started that has come back, or was added.
    pub(crate) fn meet_start(&mut self, node: u8) {
        if !self.has_join_points() {
            return;
        }
        if self.now() < self.join_points.held_until {
            self.have_one_follow(node, 1_000);
        } else if self.join_points.random.bool() {
            self.have_one_follow(node, LIFE_MAX);
        }
    }

    /// How much later than others a thread adopts a view in which rows are copied to somebody.
    pub(crate) fn draw_lateness(&mut self, change: &ViewChange) -> Time {
        let copied = |view: &ClusterView| {
            let partitions = view.partitions().iter();
            partitions.filter(|partition| !partition.copying.is_empty()).count()
        };
        let begins = self.has_join_points() && copied(&change.new) > copied(&change.old);
        if begins && self.join_points.random.u8(..4) == 0 {
            self.join_points.random.u64(..LATE_MAX)
        } else {
            0
        }
    }

    /// Another data node of the same node group dies, if the cluster can do without it by then.
    fn have_one_follow(&mut self, node: u8, life_max: Time) {
        let groups = self.node_groups();
        let is_beside =
            |other: u8| other != node && groups[usize::from(other) - 1] == groups[usize::from(node) - 1];
        let others: Vec<u8> =
            (1..=groups.len() as u8).filter(|&other| is_beside(other) && self.has_started(other)).collect();
        if others.is_empty() {
            return;
        }
        let chosen = others[self.join_points.random.usize(..others.len())];
        let life = self.join_points.random.u64(..life_max);
        self.agenda.enter(self.now() + life, Event::Follow(self.start_of(chosen)));
    }

    pub(crate) fn on_follow(&mut self, start: Start) {
        if self.has_join_points() && self.is_running(start) && self.victims().contains(&start.node) {
            self.kill_node(start.node);
        }
    }

    /// The answers of a data node to an API node wait for a while: if it dies meanwhile they are lost.
    fn hold_answers(&mut self, node: u8) {
        if self.now() < self.join_points.held_until {
            return;
        }
        let random = &mut self.join_points.random;
        let (api, span) =
            (random.usize(..self.apis.len()), random.u64(1_000..3 * self.profile.heartbeat_interval));
        let is_for_all = random.bool();
        self.join_points.held_until = self.now() + span;
        let of_both =
            self.connections.iter().filter(|it| it.link.node == node && (is_for_all || it.api == api));
        let ways: Vec<PipeId> = of_both.map(|it| it.down).collect();
        self.note(|| format!("answers of data node {node} wait for {span} µs"));
        self.hold(ways, span);
    }

    fn hold(&mut self, ways: Vec<PipeId>, span: Time) {
        let ways: Vec<PipeId> = ways.into_iter().filter(|way| !self.pipes[way.0].is_broken()).collect();
        for way in &ways {
            self.pipes[way.0].cut();
        }
        self.agenda.enter(self.now() + span, Event::Heal(ways));
    }

    /// How long a link is cut.
    fn draw_span(&mut self) -> Time {
        self.join_points.random.u64(500..self.profile.node_heartbeat_interval.min(30_000))
    }

    /// What a primary has sent to others is on its way for a while, but for what goes to the president.
    fn hold_chain(&mut self, primary: u8, president: u8) {
        let span = self.draw_span();
        self.note(|| format!("what data node {primary} sends to replicas waits"));
        self.cut_links(|from, to| from == primary && to != president, span);
    }
}
