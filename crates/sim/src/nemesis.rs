//! Who makes things go wrong: one fault after the other, of the kinds that the profile allows, until its time is over.

use crate::agenda::Time;
use crate::pipe::PipeId;
use crate::profile::Fault;
use crate::thread::ThreadId;
use crate::topology::PRESIDENT;
use crate::world::{Event, Stage, World};
use fastrand::Rng;

/// Its own generator, so that the chances of the world stay the same when a kind of fault is turned off.
pub struct Nemesis {
    random: Rng,
    /// When it stops.
    pub until: Time,
    /// What it may still do of the kinds that can't be done often.
    api_deaths_left: u32,
}

impl Nemesis {
    /// For a seed.
    pub fn new(seed: u64) -> Self {
        Nemesis { random: Rng::with_seed(seed ^ 0x6e65_6d65), until: 0, api_deaths_left: 6 }
    }
}

/// The faults that happen at a moment; the others are properties of the whole run.
const STRIKES: [Fault; 8] = [
    Fault::KillNode,
    Fault::StallThread,
    Fault::StallNode,
    Fault::CutLink,
    Fault::Disconnect,
    Fault::KillApi,
    Fault::StallApi,
    Fault::SlowReader,
];

impl World {
    /// Faults begin.
    pub(crate) fn begin_faults(&mut self) {
        self.nemesis.until = self.now() + self.profile.fault_time;
        self.plan_strike();
    }

    fn plan_strike(&mut self) {
        let pause = self.nemesis.random.u64(..=self.profile.fault_interval * 2);
        let at = self.now() + pause;
        self.agenda.enter(at, Event::Strike);
    }

    pub(crate) fn on_strike(&mut self) {
        if self.now() >= self.nemesis.until || self.stage != Stage::Running {
            return;
        }
        self.plan_strike();
        let kind = STRIKES[self.nemesis.random.usize(..STRIKES.len())];
        let api = self.nemesis.random.usize(..self.apis.len());
        let thread = ThreadId(self.nemesis.random.usize(..self.threads.len()));
        let span = self.nemesis.random.u64(500..60_000);
        if !self.profile.faults.contains(&kind) {
            return;
        }
        match kind {
            Fault::KillNode => self.strike_node(),
            Fault::StallThread => self.stall_thread(thread, span),
            Fault::StallNode => {
                let node = self.threads[thread.0].node;
                for index in 0..self.profile.threads {
                    self.stall_thread(self.thread_of(node, index), span);
                }
            }
            Fault::CutLink => self.strike_link(span),
            Fault::Disconnect => self.disconnect_api(api),
            Fault::KillApi => {
                if self.apis[api].is_alive && self.nemesis.api_deaths_left > 0 {
                    self.nemesis.api_deaths_left -= 1;
                    self.kill_api(api);
                    let back = self.now() + self.nemesis.random.u64(1_000..self.profile.reconnect_grace * 2);
                    self.agenda.enter(back, Event::Revive(api));
                }
            }
            // Sometimes longer than it takes to be declared failed.
            Fault::StallApi => {
                let span = if self.nemesis.random.bool() { span } else { span * 8 };
                self.apis[api].stalled_until = self.now() + span;
            }
            Fault::SlowReader => self.apis[api].slow_until = self.now() + span,
            Fault::SlowRings
            | Fault::SlowLinks
            | Fault::SlowClients
            | Fault::SmallPools
            | Fault::SmallMemory
            | Fault::Congestion
            | Fault::SplitFrames
            | Fault::FewSockets => unreachable!("these are properties of a run"),
        }
    }

    /// Kills a data node that the cluster can do without: no coordinator is on it, and its group keeps another.
    fn strike_node(&mut self) {
        let groups = self.profile.groups.list();
        let candidates: Vec<u8> = (1..=groups.len() as u8)
            .filter(|&node| node != PRESIDENT && self.is_alive(node))
            .filter(|&node| {
                let group = groups[usize::from(node - 1)];
                let members = (1..=groups.len() as u8).filter(|&n| groups[usize::from(n - 1)] == group);
                members.filter(|&member| self.is_alive(member)).count() > 1
            })
            .collect();
        if !candidates.is_empty() {
            let node = candidates[self.nemesis.random.usize(..candidates.len())];
            self.kill_node(node);
        }
    }

    /// Cuts the link between two data nodes for a while, one way or both ways.
    fn strike_link(&mut self, span: Time) {
        let nodes = self.profile.groups.list().len() as u8;
        if nodes < 2 {
            return;
        }
        let from = self.nemesis.random.u8(1..=nodes);
        let to = (from - 1 + self.nemesis.random.u8(1..nodes)) % nodes + 1;
        let both = self.nemesis.random.bool();
        let cut: Vec<PipeId> = self
            .links
            .iter()
            .filter(|((f, t, _), _)| (*f, *t) == (from, to) || both && (*f, *t) == (to, from))
            .map(|(_, &pipe)| pipe)
            .filter(|pipe| !self.pipes[pipe.0].is_broken())
            .collect();
        for pipe in &cut {
            self.pipes[pipe.0].cut();
        }
        self.note(|| format!("the link from data node {from} to {to} is cut, both ways: {both}"));
        self.agenda.enter(self.now() + span, Event::Heal(cut));
    }
}
