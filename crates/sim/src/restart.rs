//! The whole cluster dies, and starts again from what is on its disks.
//!
//! All that data nodes had in memory is gone; of what was on the way to them nothing arrives, of what was on the way to
//! clients a part. A start goes through the phases of `docs/protocols/durability.md`, and may die in the middle of any
//! of them. Clients reach a node when it is started.
//!
//! It is looked at twice whether the histories can be true. When the cluster dies, all that was answered so far must
//! fit together. When it is started, before any client is let in, the rows must be those that the transactions up to
//! the restore point have left ([`vinga_workloads::history::History::surviving`]): everything of these, nothing of
//! others. Tables that are not logged must be there, and empty. The restore point must not lie before any commit that
//! was answered as durable, and epochs and incarnations must go on above all that were used before. That holds for each
//! start but the very first, also if no client was answered about any commit before: what a transaction wrote whose
//! client had no answer yet, others may have seen, and it is lost with what they saw.

use crate::agenda::Time;
use crate::connection::Side;
use crate::disk::Disk;
use crate::thread::{Source, Thread, ThreadId};
use crate::topology::{self, FIRST_NODE};
use crate::world::{End, Event, Stage, World};
use std::collections::BTreeSet;
use std::sync::Arc;
use vinga_base::{Epoch, NodeId};
use vinga_format::checksum::Checksum;
use vinga_kernel::files::{FileKind, FileName};
use vinga_lifecycle::phase_zero::{self, Beginning, Configured, Drawn};
use vinga_node::StartFrom;
use vinga_wire::ErrorCode;
use vinga_wire::view::ClusterView;
use vinga_workloads::check;
use vinga_workloads::history::{Decided, History, Loss};
use vinga_workloads::workload::Contents;

#[cfg(test)]
mod tests;

/// The starts of a cluster with disks, and what they have cost.
#[derive(Default)]
pub struct Starts {
    /// What each start could not restore.
    pub losses: Vec<Loss>,
    /// When the cluster died last.
    pub died_at: Time,
    /// The newest epoch of a commit that was answered as durable.
    pub acknowledged: Epoch,
    /// The first epoch of the present incarnation; 0 before the first start is complete.
    first: Epoch,
    /// How often the cluster may still die.
    deaths_left: u32,
    /// Starts that were refused, one after the other.
    refused: u32,
    /// Incarnations of nodes that clients have met.
    incarnations: BTreeSet<(u8, u32)>,
    /// Rows of which it could not be decided, when the cluster died or was started, whether their histories can be
    /// true.
    pub undecided: usize,
    /// Why the cluster can't be started any more: something on its disks has changed by itself.
    pub lost_for_good: Option<String>,
}

/// What clients learn of a node's present start.
#[derive(Clone, Copy, Debug)]
pub struct NodeStart {
    /// Whether clients are let in.
    pub is_started: bool,
    /// The node's incarnation.
    pub incarnation: u32,
    /// That of the cluster.
    pub cluster_incarnation: u64,
    /// The random number of the database.
    pub database: u64,
}

/// How often the cluster dies in a run, at most.
const DEATHS_MAX: u32 = 10;
/// So many starts in a row are tried if they are refused, once faults are over.
const ATTEMPTS_MAX: u32 = 3;
/// How long a cluster stays dead, at most.
const PAUSE_MAX: Time = 200_000;
/// How long after the beginning of a start the next death may come.
const START_SPAN: Time = 60_000;

impl Starts {
    /// Before the first one.
    pub fn new() -> Self {
        Starts { deaths_left: DEATHS_MAX, ..Starts::default() }
    }
}

/// The bytes of a copy of the system file; none if there is no such file.
fn system_copy(disk: &Disk, copy: u64) -> Vec<u8> {
    let found = disk.contents(FileName::new(FileKind::System, 0, copy));
    found.map_or_else(Vec::new, |contents| {
        let (bytes, filled) = contents.read(0, contents.size() as usize);
        bytes[..filled].to_vec()
    })
}

impl World {
    /// What a node begins from: phase 0 of its start.
    ///
    /// # Errors
    /// Why it can't start from what is on its disk.
    fn begin_start(&mut self, node: u8) -> Result<StartFrom, String> {
        let disk = &self.disks[usize::from(node) - 1];
        let copies = [system_copy(disk, 0), system_copy(disk, 1)];
        let others = disk.list().iter().filter(|(name, _)| name.kind != FileKind::System).count();
        let data_managers = self.profile.threads * self.profile.instances;
        let configured = Configured {
            cluster_name: "simulated".into(),
            node: NodeId(node),
            data_managers,
            streams: self.profile.threads,
        };
        let random = &mut self.disk_random;
        let drawn = Drawn { cluster: random.u64(1..), cluster_incarnation: random.u64(1..), time_of_day: 0 };
        let copies = [&copies[0][..], &copies[1][..]];
        let found = phase_zero::begin(configured, copies, others, drawn, Checksum::SOFTWARE);
        let Beginning { disk, streams, .. } = found.map_err(|why| why.to_string())?;
        assert_eq!(streams, self.profile.threads, "the log has as many streams as at the first start");
        let log = self.profile.log.expect("the data nodes use their disks");
        Ok(StartFrom { epoch_reserve: log.epoch_reserve, ..disk })
    }

    /// Starts the threads of a node. Those of one without a disk are ready at once.
    ///
    /// # Errors
    /// Why it can't start from what is on its disk.
    pub(crate) fn start_node(&mut self, node: u8, view: &Arc<ClusterView>) -> Result<(), String> {
        let start = self.profile.log.is_some().then(|| self.begin_start(node)).transpose()?;
        if self.starts.deaths_left < DEATHS_MAX {
            // Other threads than before: streams and data managers are hosted elsewhere.
            self.profile.hosts = self.disk_random.u16(1..=self.profile.threads);
        }
        let settings = topology::settings(&self.profile, node, start.clone());
        let is_coming_back = view.members().is_empty();
        let settings = if is_coming_back { self.returning(settings) } else { settings };
        let view = match &start {
            None => view.clone(),
            Some(_) => Arc::new(ClusterView::first(vec![settings.member()])),
        };
        self.starts_of_nodes[usize::from(node) - 1] = NodeStart {
            is_started: start.is_none() && !is_coming_back,
            incarnation: settings.incarnation.0,
            cluster_incarnation: start.as_ref().map_or(1, |start| start.cluster_incarnation),
            database: start.map_or(1, |start| start.state.cluster),
        };
        let now = self.clocks[usize::from(node) - 1].at(self.now());
        for index in 0..self.profile.threads {
            let seed = self.random.u64(..);
            let thread = Thread::new(&self.profile, &settings, view.clone(), index, seed, self.bug, now);
            let ThreadId(at) = self.thread_of(node, index);
            if at == self.threads.len() {
                self.threads.push(thread);
            } else {
                let old = std::mem::replace(&mut self.threads[at], thread);
                self.marks_before.extend(old.executor.marks());
                self.signals_before += old.executor.handled();
            }
        }
        Ok(())
    }

    /// Makes the rings between the threads of a node.
    pub(crate) fn make_rings(&mut self, node: u8) {
        for from in 0..self.profile.threads {
            for to in (0..self.profile.threads).filter(|&to| to != from) {
                let (from, to) = (self.thread_of(node, from), self.thread_of(node, to));
                let pipe =
                    self.make_pipe(self.profile.ring_delay, usize::MAX, End::Thread(to, Source::Ring(from)));
                self.rings.insert((from, to), pipe);
            }
        }
    }

    /// The cluster dies now and then while faults happen.
    pub(crate) fn strike_cluster(&mut self) {
        if self.disk_random.u8(..4) == 0 {
            self.kill_cluster();
        }
    }

    /// All data nodes die.
    pub(crate) fn kill_cluster(&mut self) {
        if !self.is_alive(FIRST_NODE) || self.starts.deaths_left == 0 {
            return;
        }
        self.starts.deaths_left -= 1;
        self.note(|| "the cluster dies".to_string());
        self.stop_cluster();
        let pause = self.disk_random.u64(1_000..PAUSE_MAX);
        self.agenda.enter(self.now() + pause, Event::StartCluster);
    }

    fn stop_cluster(&mut self) {
        let was_started = self.has_started(FIRST_NODE);
        for node in 1..=self.alive.len() as u8 {
            self.alive[usize::from(node) - 1] = false;
            self.crash_disk(node);
        }
        self.threads.iter_mut().for_each(|thread| thread.is_alive = false);
        for pipe in std::mem::take(&mut self.rings).into_values() {
            self.ends[pipe.0] = End::Gone;
        }
        let is_silent = self.nemesis.draw_silence();
        for connection in 0..self.connections.len() {
            let it = &mut self.connections[connection];
            let (up, down) = (it.up, it.down);
            if std::mem::replace(&mut it.side, Side::Closed).has_ended() {
                continue;
            }
            self.ends[up.0] = End::Gone;
            if is_silent {
                self.pipes[down.0].shatter(&mut self.random);
            } else {
                self.break_pipe(down);
            }
        }
        if was_started {
            self.starts.died_at = self.now();
            self.check_before_death();
        }
    }

    /// What was answered so far fits together, whatever is restored.
    fn check_before_death(&mut self) {
        let history = self.surviving_history();
        let result = check::check(&history, &Contents::default(), self.now(), self.profile.lock_waits());
        match result {
            Ok(summary) => self.starts.undecided += summary.undecided,
            Err(what) => self.violations.push(format!("before the cluster died: {what}")),
        }
    }

    pub(crate) fn on_start_cluster(&mut self) {
        self.note(|| "the cluster starts".to_string());
        let view = Arc::new(topology::first_view(&self.profile));
        for node in 1..=self.alive.len() as u8 {
            if let Err(why) = self.start_node(node, &view) {
                self.on_refused(&why, None);
                return;
            }
            self.alive[usize::from(node) - 1] = true;
            self.make_rings(node);
        }
        for thread in 0..self.threads.len() {
            let at = self.now() + self.random.u64(..100);
            self.wake_thread(ThreadId(thread), at);
        }
        if self.may_fail() && self.disk_random.u8(..3) == 0 {
            let span = self.disk_random.u64(1..START_SPAN);
            self.agenda.enter(self.now() + span, Event::KillCluster);
        }
    }

    fn may_fail(&self) -> bool {
        self.stage == Stage::Running && self.now() < self.nemesis.until
    }

    pub(crate) fn on_kill_cluster(&mut self) {
        if self.may_fail() {
            self.kill_cluster();
        }
    }

    /// A block has stopped its node: the disk has failed, or the node can't start from what is on it.
    pub(crate) fn on_stopped(&mut self, node: u8, reason: &str, error: Option<ErrorCode>) {
        let was_started = self.has_started(node);
        self.stop_cluster();
        if was_started {
            let has_cause = self.disks.iter().any(Disk::has_failed);
            if !has_cause {
                self.violations
                    .push(format!("data node {node} stops itself, though its disk is well: {reason}"));
            }
            let pause = self.disk_random.u64(1_000..PAUSE_MAX);
            self.agenda.enter(self.now() + pause, Event::StartCluster);
        } else {
            self.on_refused(reason, error);
        }
    }

    /// A start was refused. The disk may do better the next time, unless something on it has changed by itself. But
    /// each start has as much memory as the one before, so it must not be refused for want of that.
    fn on_refused(&mut self, why: &str, error: Option<ErrorCode>) {
        self.note(|| format!("the start is refused: {why}"));
        if error == Some(ErrorCode::DataMemoryFull) {
            self.violations.push(format!("a start with as much memory as before is refused: {why}"));
            return;
        }
        let is_over = !self.may_fail();
        self.starts.refused += u32::from(is_over);
        if self.starts.refused < ATTEMPTS_MAX {
            let pause = self.disk_random.u64(1_000..PAUSE_MAX);
            self.agenda.enter(self.now() + pause, Event::StartCluster);
            return;
        }
        if self.disks.iter().any(|disk| !disk.corruptions().is_empty()) {
            self.starts.lost_for_good = Some(why.to_string());
        } else {
            self.violations.push(format!("the cluster can't be started from whole disks: {why}"));
        }
    }

    /// A node has restored everything, and lets clients in from now on.
    pub(crate) fn on_node_started(&mut self, node: u8) {
        // Its disk may have failed in the same turn: then it stops, and what it has can't be looked at.
        if !self.is_alive(node) {
            return;
        }
        self.starts_of_nodes[usize::from(node) - 1].is_started = true;
        self.starts.refused = 0;
        self.meet_start(node);
        if self.starts_of_nodes.iter().all(|start| start.is_started) && self.profile.log.is_some() {
            let result = self.check_restored();
            self.violations.extend(result.err());
        }
    }

    /// The epoch that everything was restored to, and the first one after it.
    fn restored(&self) -> (Epoch, Epoch) {
        let own = self.threads.iter().filter(|thread| thread.node == FIRST_NODE);
        let host = own.map(|thread| thread.executor.host()).find(|host| host.lifecycle().is_some());
        let host = host.expect("the president has a disk");
        let restored = host.lifecycle().expect("it was looked for").restored();
        (restored, host.distribution().expect("it is on the same thread").epoch())
    }

    /// What is there is what the transactions up to the restore point have left.
    fn check_restored(&mut self) -> Result<(), String> {
        let (restored, first) = self.restored();
        self.note(|| format!("the cluster is started: restored to epoch {restored}, first epoch {first}"));
        for (at, start) in self.starts_of_nodes.iter().enumerate() {
            if !self.starts.incarnations.insert((at as u8 + 1, start.incarnation)) {
                return Err(format!(
                    "incarnation {} of data node {} was used before",
                    start.incarnation,
                    at + 1
                ));
            }
        }
        if self.starts.first == Epoch::default() {
            // Nobody was let in before, so there is nothing yet that could be lost.
            self.starts.first = first;
            return Ok(());
        }
        let has_corruption = self.disks.iter().any(|disk| !disk.corruptions().is_empty());
        if restored < self.starts.acknowledged && !has_corruption {
            let acknowledged = self.starts.acknowledged;
            return Err(format!(
                "restored to epoch {restored}, though {acknowledged} was answered as durable"
            ));
        }
        let newest = self.newest_used();
        if first <= newest {
            return Err(format!("epochs go on at {first}, though {newest} was used before"));
        }
        self.starts.losses.push(Loss { after: restored, before: first, at: self.starts.died_at });
        self.starts.first = first;
        self.name_tables();
        let contents = self.contents().map_err(|what| format!("restored to epoch {restored}: {what}"))?;
        let history = self.surviving_history();
        let now = self.now();
        let summary = check::check(&history, &contents, now, self.profile.lock_waits())
            .map_err(|what| format!("restored to epoch {restored}: {what}"))?;
        self.starts.undecided += summary.undecided;
        for running in &self.running {
            let checked = running.workload.check(&contents, &history);
            checked.map_err(|what| format!("restored to epoch {restored}: {what}"))?;
        }
        Ok(())
    }

    /// The history without what restarts have cost.
    pub(crate) fn surviving_history(&self) -> History {
        self.history_after(&self.starts.losses)
    }

    /// The history without what some of the restarts have cost.
    pub(crate) fn history_after(&self, losses: &[Loss]) -> History {
        let mut history = self.history.surviving(losses);
        history.empty(|table| self.shapes[usize::from(table.0)].is_unlogged());
        // Rows of hidden tables are not written by anybody whom the history knows, those of copies are not new.
        history.leave_out(|table| !self.shapes[usize::from(table.0)].is_recorded());
        history
    }

    /// The newest epoch that anybody was answered; none before anything was committed.
    fn newest_epoch(&self) -> Option<Epoch> {
        use vinga_workloads::step::Fate;
        let epochs = self.history.transactions.iter().filter_map(|transaction| match transaction.fate {
            Fate::Committed(epoch) => Some(epoch),
            Fate::Open | Fate::Unknown | Fate::RolledBack { .. } => None,
        });
        epochs.max()
    }

    /// The newest epoch that is known to have been given out. Whoever committed in it need not have been answered.
    fn newest_used(&self) -> Epoch {
        let decided =
            self.history.epochs.values().map(|&(Decided::Commit(epoch) | Decided::Perhaps(epoch))| epoch);
        decided.chain(self.newest_epoch()).fold(self.starts.first, Epoch::max)
    }

    /// Whether what was loaded is on disk.
    pub(crate) fn is_durable(&self) -> bool {
        if self.profile.log.is_none() {
            return true;
        }
        let main = self.threads.iter().find_map(|thread| thread.executor.host().distribution());
        let durable = main.expect("the president has one").durable();
        self.newest_epoch().is_none_or(|newest| newest <= durable)
    }
}
