//! An API node: a client, and the sessions that use it.
//!
//! It begins each time by learning the tables, then its sessions run. It may stall (what comes meanwhile waits), read
//! slowly, die, or leave with a disconnect notice (everything that its sessions had under way is then known to nobody)
//! and come back in a new incarnation with new sessions.

mod client;

use crate::agenda::Time;
use crate::pipe::{Payload, PipeId};
use crate::topology::{API_FIRST, PRESIDENT};
use crate::world::{Event, Stage, World};
use client::{Client, Command, Surroundings};
use fastrand::Rng;
use std::collections::{BTreeMap, VecDeque};
use vinga_base::{Incarnation, NodeId};
use vinga_workloads::step::{Answer, Fate, Step, TableChange, TableRef};
use vinga_workloads::workload::Session;

pub use client::LinkKey;

/// See the head of this file.
pub struct ApiNode {
    pub(crate) client: Client,
    /// Number of its lives so far.
    pub start: u32,
    /// Whether it is alive.
    pub is_alive: bool,
    sessions: Vec<Slot>,
    /// Its connections in the world.
    links: BTreeMap<LinkKey, usize>,
    /// Beginnings of frames.
    partial: BTreeMap<usize, Vec<u8>>,
    /// What came while it was stalled.
    backlog: VecDeque<(usize, PipeId, Payload)>,
    /// Until when it is stalled.
    pub stalled_until: Time,
    /// Until when it reads slowly, and what it takes at a time.
    pub slow_until: Time,
    wake_at: Option<Time>,
    random: Rng,
}

struct Slot {
    session: Box<dyn Session>,
    state: SlotState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    /// Not begun: the tables must be learned first.
    Fresh,
    /// Waits for the answer to a step.
    Asking,
    /// Pauses until then.
    Pausing(Time),
    /// Has come to its end.
    Ended,
}

/// Learns the tables, or makes them.
struct Bootstrap {
    left: VecDeque<Step>,
}

impl Session for Bootstrap {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        self.left.pop_front().unwrap_or(Step::End)
    }
}

/// Whether a step begins something, so that a session may as well end before it.
fn begins_something(step: &Step) -> bool {
    match step {
        Step::Execute(batch) => batch.begin,
        Step::Read(read) => read.own_before.is_none(),
        Step::ScanOpen(scan) => scan.own_before.is_none(),
        Step::Change(_, change) => *change != TableChange::LiftFence,
        Step::Create(_) | Step::Drop(_) | Step::Describe(_) | Step::Lock => true,
        Step::Seek { .. } => true,
        Step::Sought(_) | Step::Unlock | Step::ScanNext | Step::ScanClose | Step::Wait(_) | Step::End => {
            false
        }
    }
}

/// How long a slow reader waits between two pieces.
const SLOW_PAUSE: Time = 700;

impl World {
    /// The API nodes, before their first start: the first one loads the tables, then all begin to work.
    pub(crate) fn make_apis(&mut self) {
        for api in 0..self.profile.apis {
            let node = NodeId(API_FIRST + api as u8);
            let heartbeat = self.profile.heartbeat_interval / 2;
            let mut node = ApiNode {
                client: Client::new(node, PRESIDENT, Incarnation(1), heartbeat),
                start: 1,
                is_alive: true,
                sessions: Vec::new(),
                links: BTreeMap::new(),
                partial: BTreeMap::new(),
                backlog: VecDeque::new(),
                stalled_until: 0,
                slow_until: 0,
                wake_at: None,
                random: Rng::with_seed(self.random.u64(..)),
            };
            if api == 0 {
                let left = self.named_tables().map(Step::Create).collect();
                node.add_session(Box::new(Bootstrap { left }));
            }
            self.apis.push(node);
        }
        for workload in 0..self.running.len() {
            let loader = self.make_session(workload, true);
            self.apis[0].add_session(loader);
        }
        self.wake_api(0, 0);
    }

    /// Gives an API node the sessions of a new incarnation and lets it begin.
    pub(crate) fn begin_work(&mut self, api: usize) {
        self.apis[api].sessions.clear();
        self.apis[api].client.forget_sessions();
        let bootstrap = Bootstrap { left: self.named_tables().map(Step::Describe).collect() };
        self.apis[api].add_session(Box::new(bootstrap));
        for session in 0..self.profile.sessions {
            let workload = (api + session) % self.running.len();
            let made = self.make_session(workload, false);
            self.apis[api].add_session(made);
        }
        self.wake_api(api, self.now());
    }

    /// Reads the definitions of all tables again, so that their versions are known.
    pub(crate) fn begin_describing(&mut self) {
        self.begin_last(Step::Describe);
    }

    /// Drops all tables: the last thing that happens.
    pub(crate) fn begin_dropping(&mut self) {
        self.begin_last(Step::Drop);
    }

    fn begin_last(&mut self, step: fn(TableRef) -> Step) {
        let left = self.named_tables().map(step).collect();
        let api = &mut self.apis[0];
        api.sessions.clear();
        api.client.forget_sessions();
        api.add_session(Box::new(Bootstrap { left }));
        self.wake_api(0, self.now());
    }

    /// All tables but the hidden ones, which come and go with others.
    fn named_tables(&self) -> impl Iterator<Item = TableRef> {
        let tables = self.shapes.iter().zip(0..).filter(|(shape, _)| !shape.holds_places());
        tables.map(|(_, at)| TableRef(at))
    }

    pub(crate) fn wake_api(&mut self, api: usize, at: Time) {
        let node = &mut self.apis[api];
        let at = at.max(node.stalled_until);
        if node.wake_at.is_none_or(|planned| at < planned) {
            node.wake_at = Some(at);
            self.agenda.enter(at, Event::Wake(api));
        }
    }

    pub(crate) fn on_wake(&mut self, api: usize) {
        let now = self.now();
        let node = &mut self.apis[api];
        if node.wake_at != Some(now) || !node.is_alive {
            return;
        }
        node.wake_at = None;
        if now < node.stalled_until {
            let until = node.stalled_until;
            self.wake_api(api, until);
            return;
        }
        while let Some((connection, pipe, payload)) = self.apis[api].backlog.pop_front() {
            self.take_payload(api, connection, pipe, payload);
            if now < self.apis[api].slow_until {
                break;
            }
        }
        self.with_client(api, Client::on_time);
        self.pump(api);
    }

    pub(crate) fn on_api_arrival(&mut self, api: usize, connection: usize, pipe: PipeId, payload: Payload) {
        let now = self.now();
        let node = &mut self.apis[api];
        if !node.is_alive || node.start != self.connections[connection].start {
            return;
        }
        if now < node.stalled_until || now < node.slow_until || !node.backlog.is_empty() {
            node.backlog.push_back((connection, pipe, payload));
            let until = if now < node.slow_until { now + SLOW_PAUSE } else { now };
            self.wake_api(api, until);
            return;
        }
        self.take_payload(api, connection, pipe, payload);
        self.pump(api);
    }

    fn take_payload(&mut self, api: usize, connection: usize, pipe: PipeId, payload: Payload) {
        let link = self.connections[connection].link;
        if self.apis[api].links.get(&link) != Some(&connection) {
            return;
        }
        match payload {
            Payload::Bytes(bytes) | Payload::Epochs(bytes) => {
                self.pipes[pipe.0].take(bytes.len());
                self.mix(self.now() ^ (api as u64 + 1) << 56);
                self.mix_bytes(&bytes);
                let mut all = self.apis[api].partial.remove(&connection).unwrap_or_default();
                all.extend(bytes);
                let consumed = self.with_client(api, |client, cx| client.on_bytes(cx, link, &all));
                all.drain(..consumed);
                self.apis[api].partial.insert(connection, all);
            }
            Payload::End => {
                self.apis[api].links.remove(&link);
                self.apis[api].partial.remove(&connection);
                self.break_pipe(self.connections[connection].up);
                self.with_client(api, |client, cx| client.on_closed(cx, link));
            }
            Payload::FailureMarker(_) => unreachable!("failure markers are for data nodes"),
        }
    }

    pub(crate) fn on_connection_opened(&mut self, connection: usize) {
        let (api, start) = (self.connections[connection].api, self.connections[connection].start);
        let link = self.connections[connection].link;
        if !self.apis[api].is_alive || self.apis[api].start != start {
            self.break_pipe(self.connections[connection].up);
            return;
        }
        if !self.is_alive(link.node) {
            self.on_connection_not_opened(api, start, link);
            return;
        }
        if self.apis[api].client.wants(link) {
            self.apis[api].links.insert(link, connection);
            self.apis[api].client.on_opened(link);
        } else {
            self.break_pipe(self.connections[connection].up);
        }
        self.pump(api);
    }

    pub(crate) fn on_connection_not_opened(&mut self, api: usize, start: u32, link: LinkKey) {
        if self.apis[api].is_alive && self.apis[api].start == start {
            self.with_client(api, |client, cx| client.on_closed(cx, link));
            self.pump(api);
        }
    }

    /// Calls the client with what it needs.
    fn with_client<R>(
        &mut self,
        api: usize,
        call: impl FnOnce(&mut Client, &mut Surroundings<'_>) -> R,
    ) -> R {
        let mut cx = Surroundings {
            now: self.agenda.now(),
            shapes: &self.shapes,
            history: &mut self.history,
            violations: &mut self.violations,
            names: &mut self.names,
            bug: self.bug,
            changes: &mut self.changes,
        };
        call(&mut self.apis[api].client, &mut cx)
    }

    /// Lets sessions go on, does what the client wants of the world, and sends what it has to say.
    fn pump(&mut self, api: usize) {
        self.run_sessions(api);
        while let Some(command) = self.apis[api].client.commands.pop_front() {
            match command {
                Command::Open(link) => self.open_connection(api, link),
                Command::Close(link) => {
                    if let Some(connection) = self.apis[api].links.remove(&link) {
                        self.apis[api].partial.remove(&connection);
                        self.pipes[self.connections[connection].down.0].shatter(&mut self.random);
                        self.break_pipe(self.connections[connection].up);
                    }
                }
            }
        }
        self.flush(api);
        let node = &self.apis[api];
        let pauses = node.sessions.iter().filter_map(|slot| match slot.state {
            SlotState::Pausing(until) => Some(until),
            SlotState::Fresh | SlotState::Asking | SlotState::Ended => None,
        });
        let due = pauses.chain(node.client.due()).min();
        let backlog = (!node.backlog.is_empty()).then_some(self.now() + SLOW_PAUSE);
        if let Some(at) = due.into_iter().chain(backlog).min() {
            self.wake_api(api, at.max(self.now() + 1));
        }
    }

    fn run_sessions(&mut self, api: usize) {
        let now = self.now();
        loop {
            let node = &mut self.apis[api];
            let answer = node.client.answers.pop_front().or_else(|| node.due_session(now));
            let Some((session, answer)) = answer else { return };
            let Some(slot) = node.sessions.get_mut(session) else { continue };
            let step = slot.session.next(&mut node.random, &answer);
            self.mix(session as u64 ^ now);
            if self.trace.is_some() {
                self.note(|| format!("API node {api}, session {session}: {answer:?} -> {step:?}"));
            }
            let is_ending = self.stage == Stage::Ending;
            let slot = &mut self.apis[api].sessions[session];
            match step {
                // When the end has come nothing is begun any more.
                step if is_ending && session > 0 && begins_something(&step) => slot.state = SlotState::Ended,
                Step::Wait(span) => slot.state = SlotState::Pausing(now + span),
                Step::End => slot.state = SlotState::Ended,
                step => {
                    slot.state = SlotState::Asking;
                    self.with_client(api, |client, cx| client.submit(cx, session, step));
                }
            }
        }
    }

    /// Moves what the client has to say into its connections.
    fn flush(&mut self, api: usize) {
        let mut pieces = Vec::new();
        let mut is_held_up = false;
        let node = &mut self.apis[api];
        for (link, out) in node.client.outputs() {
            if out.is_empty() {
                continue;
            }
            let Some(&connection) = node.links.get(&link) else { continue };
            let up = self.connections[connection].up;
            let taken: Vec<u8> = out.drain(..out.len().min(self.pipes[up.0].room())).collect();
            is_held_up |= !out.is_empty();
            pieces.push((up, taken));
        }
        for (up, bytes) in pieces {
            if !bytes.is_empty() {
                self.put_split(up, self.now(), bytes);
            }
        }
        if is_held_up {
            self.wake_api(api, self.now() + 200);
        }
    }

    /// An API node dies. What its sessions had under way nobody knows any more.
    pub(crate) fn kill_api(&mut self, api: usize) {
        self.note(|| format!("API node {api} dies"));
        self.with_client(api, Client::die);
        for connection in self.end_start(api) {
            self.break_pipe(self.connections[connection].up);
        }
    }

    /// An API node ends in good order: it disconnects and closes its connections, whatever its sessions had under way.
    pub(crate) fn leave_api(&mut self, api: usize) {
        self.note(|| format!("API node {api} disconnects"));
        self.with_client(api, Client::die);
        self.apis[api].client.send_disconnect();
        self.flush(api);
        for connection in self.end_start(api) {
            self.put(self.connections[connection].up, self.now(), Payload::End);
        }
    }

    /// An API node has ended; returns the connections that it had.
    fn end_start(&mut self, api: usize) -> Vec<usize> {
        let node = &mut self.apis[api];
        node.is_alive = false;
        node.backlog.clear();
        node.partial.clear();
        std::mem::take(&mut node.links).into_values().collect()
    }

    pub(crate) fn on_revive(&mut self, api: usize) {
        self.note(|| format!("API node {api} begins a new incarnation"));
        let node = &mut self.apis[api];
        node.client = node.client.successor();
        node.start += 1;
        node.is_alive = true;
        node.wake_at = None;
        self.begin_work(api);
    }

    /// The sessions of an API node give up the batches that they have under way.
    pub(crate) fn give_up_batches(&mut self, api: usize) {
        self.note(|| format!("API node {api} gives up its batches"));
        self.apis[api].client.give_up_batches();
        self.pump(api);
    }

    /// Breaks the connections of an API node, or one of them.
    pub(crate) fn disconnect_api(&mut self, api: usize) {
        let connections: Vec<usize> = self.apis[api].links.values().copied().collect();
        if connections.is_empty() {
            return;
        }
        self.note(|| format!("connections of API node {api} break"));
        let one = self.random.usize(..connections.len());
        let all = self.random.bool();
        for (at, connection) in connections.into_iter().enumerate() {
            if all || at == one {
                self.break_pipe(self.connections[connection].up);
                self.break_pipe(self.connections[connection].down);
            }
        }
    }

    /// Whether all sessions of all API nodes have come to their end.
    pub(crate) fn sessions_have_ended(&self) -> bool {
        self.apis.iter().all(ApiNode::has_ended)
    }

    /// Whether clients have nothing under way and have confirmed what they know.
    pub(crate) fn clients_are_idle(&self) -> bool {
        let is_loading = self.stage == Stage::Loading;
        self.apis.iter().all(|api| api.client.is_idle() || is_loading && api.sessions.is_empty())
    }

    /// What sessions wait for, for people.
    pub(crate) fn describe_sessions(&self) -> String {
        let mut text = String::new();
        for (index, api) in self.apis.iter().enumerate() {
            let waiting = api.sessions.iter().filter(|slot| slot.state != SlotState::Ended).count();
            if waiting > 0 || !api.is_alive {
                text += &format!(
                    "API node {index} (alive: {}): {waiting} sessions have not ended: {}; ",
                    api.is_alive,
                    api.client.describe()
                );
            }
        }
        for transaction in &self.history.transactions {
            if transaction.fate == Fate::Open && transaction.commit_sent.is_some() {
                text += &format!("transaction {:#x} has no end; ", transaction.id);
            }
        }
        text
    }
}

impl ApiNode {
    /// Whether all its sessions have come to their end.
    pub fn has_ended(&self) -> bool {
        self.is_alive && self.sessions.iter().all(|slot| slot.state == SlotState::Ended)
    }

    fn add_session(&mut self, session: Box<dyn Session>) {
        self.client.add_session();
        self.sessions.push(Slot { session, state: SlotState::Fresh });
    }

    /// A session that may go on: those behind the first wait until that has ended.
    fn due_session(&self, now: Time) -> Option<(usize, Answer)> {
        let first_has_ended = self.sessions.first().is_none_or(|slot| slot.state == SlotState::Ended);
        self.sessions.iter().enumerate().find_map(|(at, slot)| match slot.state {
            SlotState::Fresh if at == 0 || first_has_ended => Some((at, Answer::Begin)),
            SlotState::Pausing(until) if until <= now => Some((at, Answer::Done)),
            SlotState::Fresh | SlotState::Pausing(_) | SlotState::Asking | SlotState::Ended => None,
        })
    }
}
