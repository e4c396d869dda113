//! An API node: a client, and the sessions that use it.
//!
//! Its client is the one that users have, `vinga_client_core`; the world is its driver: it opens the connections that
//! the client asks for, carries bytes and says what time it is (`links`). What the sessions want the client to do, and
//! what comes of it, is the business of `caller`.
//!
//! An API node begins each time by learning the tables, then its sessions run. It may stall (what comes meanwhile
//! waits), read slowly, die, or leave with a disconnect notice (what its sessions had under way is then known to
//! nobody) and start again in a new incarnation with new sessions.

mod backups;
mod caller;
mod copying;
mod links;
mod reads;
mod scans;
mod schema;
mod schema_lock;
mod transactions;

use crate::agenda::Time;
use crate::clock::Clock;
use crate::pipe::{Payload, PipeId};
use crate::topology::API_FIRST;
use crate::world::{Event, Stage, World};
use backups::BackingUp;
use caller::{Caller, Surroundings};
use fastrand::Rng;
use links::Links;
use std::collections::VecDeque;
use vinga_base::NodeId;
use vinga_wire::ErrorCode;
use vinga_workloads::step::{Answer, Fate, Step, TableRef};
use vinga_workloads::workload::Session;

/// One of the connections to one of the data nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkKey {
    /// The data node.
    pub node: u8,
    /// Which connection.
    pub index: u16,
}

/// See the head of this file.
pub struct ApiNode {
    caller: Caller,
    /// How often it has been started.
    pub start: u32,
    /// Whether it is alive.
    pub is_alive: bool,
    sessions: Vec<Slot>,
    links: Links,
    /// What came while it was stalled.
    backlog: VecDeque<(usize, PipeId, Payload)>,
    /// Until when it is stalled.
    pub stalled_until: Time,
    /// Until when it reads slowly, and what it takes at a time.
    pub slow_until: Time,
    wake_at: Option<Time>,
    clock: Clock,
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

/// Learns the tables, makes them or drops them, one after the other: each until it is done, or can't be.
struct Bootstrap {
    /// The first one is under way, once it has been begun.
    left: VecDeque<Step>,
    is_under_way: bool,
}

/// How long it waits before it tries something again.
const RETRY_PAUSE: Time = 5_000;

impl Bootstrap {
    fn new(steps: impl Iterator<Item = Step>) -> Self {
        Bootstrap { left: steps.collect(), is_under_way: false }
    }
}

impl Session for Bootstrap {
    fn next(&mut self, _: &mut Rng, last: &Answer) -> Step {
        if std::mem::take(&mut self.is_under_way) {
            match (last, self.left.front()) {
                (Answer::Failed(code), _) if is_passing(*code) => return Step::Wait(RETRY_PAUSE),
                // It was made before the connection was lost.
                (Answer::Failed(ErrorCode::TableExists), Some(Step::Create(table))) => {
                    self.left[0] = Step::Describe(*table);
                }
                _ => {
                    self.left.pop_front();
                }
            }
        }
        self.is_under_way = true;
        self.left.front().cloned().unwrap_or(Step::End)
    }
}

/// Whether the same request may do better later.
fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConnectionLost
            | ErrorCode::ClusterFailure
            | ErrorCode::NodeFailure
            | ErrorCode::SchemaBusy
            | ErrorCode::UnknownOutcome
            | ErrorCode::NotOnDisk
            | ErrorCode::RedoLogFull
            | ErrorCode::Overloaded
    )
}

/// How long a slow reader waits between two pieces.
const SLOW_PAUSE: Time = 700;

impl World {
    /// The API nodes, before their first start: the first one loads the tables, then all begin to work.
    pub(crate) fn make_apis(&mut self) {
        for api in 0..self.profile.apis {
            let node = NodeId(API_FIRST + api as u8);
            let mut random = Rng::with_seed(self.random.u64(..));
            let mut node = ApiNode {
                caller: Caller::new(node, 1, &self.profile, random.fork(), self.bug),
                start: 1,
                is_alive: true,
                sessions: Vec::new(),
                links: Links::default(),
                backlog: VecDeque::new(),
                stalled_until: 0,
                slow_until: 0,
                wake_at: None,
                clock: Clock::draw(&mut self.clock_random, self.profile.drift_max),
                random,
            };
            if api == 0 {
                let steps = Bootstrap::new(self.named_tables().map(Step::Create));
                node.add_session(Box::new(steps));
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
        self.with_caller(api, Caller::forget_sessions);
        let bootstrap = Bootstrap::new(self.named_tables().map(Step::Describe));
        self.apis[api].add_session(Box::new(bootstrap));
        for session in 0..self.profile.sessions {
            let workload = (api + session) % self.running.len();
            let made = self.make_session(workload, false);
            self.apis[api].add_session(made);
        }
        if let Some(profile) = self.profile.backups.filter(|backups| api < backups.apis) {
            let seed = profile.seed ^ (api as u64) << 32 ^ u64::from(self.apis[api].start);
            self.apis[api].add_session(Box::new(BackingUp::new(&profile, seed)));
        }
        self.wake_api(api, self.now());
    }

    /// Reads the definitions of all tables again, so that their versions are known.
    pub(crate) fn begin_describing(&mut self) {
        self.begin_last(Step::Describe);
    }

    /// Drops all tables: the last thing that happens. What sessions have left open is given up before, so that
    /// it has gone when that is done: the report that a transaction was inactive for too long may still be on its way.
    pub(crate) fn begin_dropping(&mut self) {
        for api in 0..self.apis.len() {
            self.on_api_time(api);
            self.with_caller(api, Caller::forget_sessions);
            self.pump(api);
        }
        self.begin_last(Step::Drop);
    }

    fn begin_last(&mut self, step: fn(TableRef) -> Step) {
        let bootstrap = Bootstrap::new(self.named_tables().map(step));
        self.with_caller(0, Caller::forget_sessions);
        let api = &mut self.apis[0];
        api.sessions.clear();
        api.add_session(Box::new(bootstrap));
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
        self.on_api_time(api);
        while let Some((connection, pipe, payload)) = self.apis[api].backlog.pop_front() {
            self.take_payload(api, connection, pipe, payload);
            if now < self.apis[api].slow_until {
                break;
            }
        }
        self.pump(api);
    }

    /// Says to a client what time it is.
    fn on_api_time(&mut self, api: usize) {
        let now = self.apis[api].clock.at(self.now());
        self.apis[api].caller.client.on_time(now);
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
        self.on_api_time(api);
        self.take_payload(api, connection, pipe, payload);
        self.pump(api);
    }

    fn take_payload(&mut self, api: usize, connection: usize, pipe: PipeId, payload: Payload) {
        let link = self.connections[connection].client_link;
        match payload {
            Payload::Bytes(bytes) | Payload::Epochs(bytes) => {
                let Some(from) = self.apis[api].links.get_mut(link, connection) else { return };
                self.pipes[pipe.0].take(bytes.len());
                let mut all = std::mem::take(&mut from.partial);
                self.mix(self.now() ^ (api as u64 + 1) << 56);
                self.mix_bytes(&bytes);
                all.extend(bytes);
                let node = &mut self.apis[api];
                let consumed = node.caller.client.on_bytes(link, &all);
                all.drain(..consumed);
                node.links.get_mut(link, connection).expect("it was there just now").partial = all;
            }
            Payload::End => self.on_api_connection_end(api, connection),
            Payload::FailureMarker(_) => unreachable!("failure markers are for data nodes"),
        }
        // What it closes now must not receive what came before.
        self.carry_out(api);
    }

    /// Calls the program with what it needs.
    fn with_caller<R>(
        &mut self,
        api: usize,
        call: impl FnOnce(&mut Caller, &mut Surroundings<'_>) -> R,
    ) -> R {
        let mut cx = Surroundings {
            now: self.agenda.now(),
            shapes: &self.shapes,
            history: &mut self.history,
            violations: &mut self.violations,
            names: &mut self.names,
            bug: self.bug,
            changes: &mut self.changes,
            losses: self.starts.losses.len(),
            acknowledged: self.profile.log.is_some().then_some(&mut self.starts.acknowledged),
            backups: &mut self.backups,
            marks: &mut self.marks_before,
        };
        call(&mut self.apis[api].caller, &mut cx)
    }

    /// Lets sessions go on, does what the client wants of the world, and sends what it has to say.
    fn pump(&mut self, api: usize) {
        self.on_api_time(api);
        self.run_sessions(api);
        self.carry_out(api);
        self.flush(api);
        self.carry_out(api);
        self.check_schema_lock(api);
        let node = &self.apis[api];
        let pauses = node.sessions.iter().filter_map(|slot| match slot.state {
            SlotState::Pausing(until) => Some(until),
            SlotState::Fresh | SlotState::Asking | SlotState::Ended => None,
        });
        let client = node.caller.client.next_deadline().map(|due| node.clock.when(due));
        let due = pauses.chain(client).chain(node.caller.watching.due()).min();
        let backlog = (!node.backlog.is_empty()).then_some(self.now() + SLOW_PAUSE);
        if let Some(at) = due.into_iter().chain(backlog).min() {
            self.wake_api(api, at.max(self.now() + 1));
        }
    }

    fn run_sessions(&mut self, api: usize) {
        let now = self.now();
        loop {
            self.with_caller(api, Caller::go_on);
            let node = &mut self.apis[api];
            let answer = node.caller.answers.pop_front().or_else(|| node.due_session(now));
            let Some((session, answer)) = answer else { return };
            self.check_calm(api, session, &answer);
            let node = &mut self.apis[api];
            let Some(slot) = node.sessions.get_mut(session) else { continue };
            let step = slot.session.next(&mut node.random, &answer);
            self.mix(session as u64 ^ now);
            if self.trace.is_some() {
                self.note(|| format!("API node {api}, session {session}: {answer:?} -> {step:?}"));
            }
            let is_ending = self.stage == Stage::Ending;
            let is_copying = self.apis[api].caller.is_copying(session);
            let slot = &mut self.apis[api].sessions[session];
            match step {
                // When the end has come nothing is begun any more.
                step if is_ending && session > 0 && step.begins_something() && !is_copying => {
                    slot.state = SlotState::Ended;
                }
                Step::Wait(span) => slot.state = SlotState::Pausing(now + span),
                Step::End => slot.state = SlotState::Ended,
                step => {
                    slot.state = SlotState::Asking;
                    self.with_caller(api, |caller, cx| caller.submit(cx, session, step));
                }
            }
        }
    }

    /// An API node dies. What its sessions had under way nobody knows any more.
    pub(crate) fn kill_api(&mut self, api: usize) {
        self.note(|| format!("API node {api} dies"));
        self.with_caller(api, Caller::die);
        for connection in self.end_start(api) {
            self.break_pipe(self.connections[connection].up);
        }
    }

    /// An API node ends in good order: it disconnects and closes its connections, whatever its sessions had under way.
    pub(crate) fn leave_api(&mut self, api: usize) {
        self.note(|| format!("API node {api} disconnects"));
        self.with_caller(api, Caller::die);
        self.on_api_time(api);
        self.apis[api].caller.client.leave();
        self.carry_out(api);
        self.flush(api);
        let connections = self.end_start(api);
        self.close_behind(connections);
    }

    /// An API node has ended; returns the connections that it had.
    fn end_start(&mut self, api: usize) -> Vec<usize> {
        let node = &mut self.apis[api];
        node.is_alive = false;
        node.backlog.clear();
        node.links.take_all()
    }

    pub(crate) fn on_revive(&mut self, api: usize) {
        self.note(|| format!("API node {api} begins a new incarnation"));
        let node = &mut self.apis[api];
        node.start += 1;
        node.caller = Caller::new(node.caller.node, node.start, &self.profile, node.random.fork(), self.bug);
        node.is_alive = true;
        node.wake_at = None;
        self.begin_work(api);
    }

    /// The sessions of an API node give up the batches that they have under way.
    pub(crate) fn give_up_batches(&mut self, api: usize) {
        self.note(|| format!("API node {api} gives up its batches"));
        self.on_api_time(api);
        self.with_caller(api, Caller::give_up_batches);
        self.pump(api);
    }

    /// Breaks the connections of an API node, or one of them.
    pub(crate) fn disconnect_api(&mut self, api: usize) {
        let connections: Vec<usize> = self.apis[api].links.open().collect();
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
        self.apis
            .iter()
            .all(|api| api.caller.is_idle() && api.links.is_idle() || is_loading && api.sessions.is_empty())
    }

    /// A schema event that was confirmed only after the requester of the change was answered, if there is one. Nobody
    /// waits for a client whose connections were closed, which that may not have noticed yet.
    pub(crate) fn late_schema_event(&self) -> Option<&String> {
        let is_closed = |connection: usize| {
            let connection = &self.connections[connection];
            self.may_have_led(connection.link.node) && connection.side.has_ended()
        };
        let has_noticed = |api: &&ApiNode| !api.links.open().any(is_closed);
        self.apis.iter().filter(has_noticed).find_map(|api| api.caller.watching.suspicion())
    }

    /// Whether the clients have nothing left once all sessions have come to their end.
    ///
    /// # Errors
    /// Which of them has.
    pub(crate) fn check_clients(&mut self) -> Result<(), String> {
        for api in 0..self.apis.len() {
            let left = self.with_caller(api, Caller::left_over);
            if !left.is_empty() {
                return Err(format!("the client of API node {api} has something left: {}", left.join(", ")));
            }
        }
        Ok(())
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
                    api.caller.describe()
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
        self.caller.add_session();
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
