//! The program of an API node: it carries out the steps of its sessions by calls of the client, the same that users
//! have, and writes down what was asked and answered.
//!
//! Each session has at most one step under way. What a step asks for has a token; when there is news of it
//! (`Caller::take_news`), the answer goes to the session. Steps become calls and answers become records of the history
//! in `transactions`, `reads`, `scans` and `schema`.

use crate::agenda::Time;
use crate::api::backups::{BackupCall, OpenBackup};
use crate::api::copying::Copying;
use crate::api::reads::{ReadCall, Search};
use crate::api::scans::OpenScan;
use crate::api::schema::{SchemaCall, Watching};
use crate::api::schema_lock::GrantedLock;
use crate::api::transactions::OpenTransaction;
use crate::online_backups::FinishedBackup;
use crate::pipe::Delay;
use crate::profile::Profile;
use crate::schema::Changes;
use crate::topology::address;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_client_core::{Client, Readiness, Settings, Span, Table, Token, TokenKind};
use vinga_kernel::InjectedBug;
use vinga_wire::ErrorCode;
use vinga_workloads::history::History;
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, Fate, Step, TableRef};

/// What the program needs of the world in each call.
pub struct Surroundings<'a> {
    /// What time it is.
    pub now: Time,
    /// The tables of the run.
    pub shapes: &'a [Shape],
    /// Where everything is written down.
    pub history: &'a mut History,
    /// What can't be true.
    pub violations: &'a mut Vec<String>,
    /// Which table a birth belongs to.
    pub names: &'a mut BTreeMap<u64, TableRef>,
    /// The rule that is broken on purpose.
    pub bug: Option<InjectedBug>,
    /// What is known of schema changes.
    pub changes: &'a mut Changes,
    /// The newest epoch of a commit that was answered as durable; `None` if nothing is kept on disk.
    pub acknowledged: Option<&'a mut Epoch>,
    /// How often the cluster has gone back to its disks.
    pub losses: usize,
    /// Backups that were finished.
    pub backups: &'a mut Vec<FinishedBackup>,
    /// Rare branches that were met.
    pub marks: &'a mut BTreeSet<&'static str>,
}

impl<'a> Surroundings<'a> {
    /// The shape of a table.
    pub fn shape(&self, table: TableRef) -> &'a Shape {
        &self.shapes[usize::from(table.0)]
    }

    /// A rare branch was taken.
    pub fn mark(&mut self, name: &'static str) {
        self.marks.insert(name);
    }
}

/// What one session has open.
#[derive(Default)]
pub struct SessionState {
    pub transaction: Option<OpenTransaction>,
    pub scan: Option<OpenScan>,
    pub search: Option<Search>,
    /// Its schema lock.
    pub lock: Option<GrantedLock>,
    pub backup: Option<OpenBackup>,
}

/// What an answer is awaited of, besides transactions and scans.
pub enum Call {
    /// A committed read.
    Read(ReadCall),
    /// A request to the dictionary.
    Schema(SchemaCall),
    /// A request of a backup.
    Backup(BackupCall),
}

/// See the head of this file.
pub struct Caller {
    pub(super) client: Client,
    pub(super) node: NodeId,
    /// What the program knows of the tables.
    pub(super) tables: BTreeMap<TableRef, Table>,
    pub(super) watching: Watching,
    pub(super) calls: BTreeMap<Token, Call>,
    pub(super) sessions: Vec<SessionState>,
    /// What one of them copies.
    pub(super) copying: Option<Copying>,
    /// Steps that wait until the client is connected.
    waiting: VecDeque<(usize, Step)>,
    /// Whether steps wait for a connection; else they are tried at once, and fail.
    is_patient: bool,
    /// Whether that ends with the first connection.
    loses_patience: bool,
    /// For sessions.
    pub(super) answers: VecDeque<(usize, Answer)>,
    pub(super) random: Rng,
    news: Vec<Token>,
}

/// Incarnations of a client from one start of its process to the next: it begins new ones by itself, too.
const INCARNATIONS: u32 = 1000;

impl Caller {
    /// The program in one of its starts, from 1; the client is going to connect.
    pub fn new(
        node: NodeId,
        start: u32,
        profile: &Profile,
        mut random: Rng,
        bug: Option<InjectedBug>,
    ) -> Self {
        let incarnation = Incarnation(start * INCARNATIONS);
        let client = Client::new(settings(node, incarnation, profile, &mut random));
        let client = with_bug(client, bug);
        let is_patient = start == 1 || random.bool();
        // While no data node fails nothing is to fail without a connection to the one that leads, either.
        let loses_patience = profile.is_calm && random.bool();
        Caller {
            client,
            node,
            tables: BTreeMap::new(),
            watching: Watching::new(node, start, profile),
            calls: BTreeMap::new(),
            sessions: Vec::new(),
            copying: None,
            waiting: VecDeque::new(),
            is_patient,
            loses_patience,
            answers: VecDeque::new(),
            random,
            news: Vec::new(),
        }
    }

    /// The process dies: nobody will learn what became of what it had under way.
    pub fn die(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            if let Some(transaction) = &self.sessions[session].transaction {
                let fate = match cx.history.transactions[transaction.index()].commit_sent {
                    Some(_) => Fate::Unknown,
                    None => Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), operation: 0 },
                };
                self.end_transaction(cx, session, fate);
            }
        }
    }

    /// Sessions that have ended make room for new ones; what they have left open is given up.
    pub fn forget_sessions(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            self.abandon_transaction(cx, session);
            self.end_backup(session);
            let SessionState { scan, lock, .. } = std::mem::take(&mut self.sessions[session]);
            let tokens = scan.map(|scan| scan.token()).into_iter().chain(lock.map(|lock| lock.token));
            tokens.for_each(|token| self.client.cancel(token));
        }
        for token in std::mem::take(&mut self.calls).into_keys() {
            self.client.cancel(token);
        }
        self.sessions.clear();
        self.copying = None;
        self.waiting.clear();
        self.answers.clear();
    }

    /// Where it stands, for people.
    pub fn describe(&self) -> String {
        let connected: Vec<_> = self.client.endpoints().iter().map(|state| state.is_connected).collect();
        let calls: Vec<_> = self.calls.keys().map(|token| (token.kind(), token.index())).collect();
        format!("connected {connected:?}, under way {calls:?}, waiting {}", self.waiting.len())
    }

    /// Makes room for one more session.
    pub fn add_session(&mut self) {
        self.sessions.push(SessionState::default());
    }

    /// Whether the client may be asked for anything: the data node that leads the cluster is connected.
    fn is_connected(&self) -> bool {
        self.client.readiness() == Readiness::Ready && self.client.reaches_dictionary()
    }

    /// A session's step.
    pub fn submit(&mut self, cx: &mut Surroundings<'_>, session: usize, step: Step) {
        if self.is_patient && !self.is_connected() {
            self.waiting.push_back((session, step));
            return;
        }
        if self.refuse_beside_copying(cx, session, &step) {
            return;
        }
        match step {
            Step::Execute(batch) => self.send_batch(cx, session, &batch),
            Step::Read(read) => self.send_read(cx, session, read),
            Step::ScanOpen(scan) => self.open_scan(cx, session, scan),
            Step::ScanNext => self.next_batch(cx, session),
            Step::ScanClose => self.close_scan(session),
            Step::Seek { table, count } => self.begin_search(cx, session, table, count),
            Step::Sought(found) => self.end_search(cx, session, found),
            Step::Create(table) => self.send_create(cx, session, table),
            Step::Drop(table) => self.send_drop(cx, session, table),
            Step::Describe(table) => self.send_describe(cx, session, table),
            Step::Change(table, change) => self.send_change(cx, session, table, change),
            Step::Lock => self.send_lock(cx, session),
            Step::Unlock => self.unlock(session),
            Step::Backup => self.send_backup(cx, session),
            Step::Wait(_) | Step::End => unreachable!("waiting is not the client's business"),
        }
    }

    /// Submits what has waited for a connection, and takes what there is news of.
    pub fn go_on(&mut self, cx: &mut Surroundings<'_>) {
        if self.loses_patience && self.is_patient && self.is_connected() {
            self.is_patient = false;
        }
        if !self.waiting.is_empty() && self.is_connected() {
            for (session, step) in std::mem::take(&mut self.waiting) {
                self.submit(cx, session, step);
            }
        }
        self.note_ids(cx);
        self.watch_schema(cx);
        let mut news = std::mem::take(&mut self.news);
        self.client.take_news(&mut news);
        while let Some(token) = (!news.is_empty()).then(|| news.remove(0)) {
            self.on_news(cx, token);
            self.client.take_news(&mut news);
        }
        self.news = news;
    }

    fn on_news(&mut self, cx: &mut Surroundings<'_>, token: Token) {
        match token.kind() {
            TokenKind::Transaction => self.on_batch_over(cx, token),
            TokenKind::Read => self.on_read_over(cx, token),
            TokenKind::Scan => self.on_scan_news(cx, token),
            TokenKind::Request => self.on_request_over(cx, token),
            TokenKind::SchemaEvents => self.on_schema_news(cx),
            TokenKind::Write | TokenKind::Statistics => {}
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let is_waiting = |session: &SessionState| {
            session.transaction.as_ref().is_some_and(OpenTransaction::is_under_way)
                || session.scan.as_ref().is_some_and(OpenScan::is_awaited)
        };
        self.calls.is_empty()
            && self.waiting.is_empty()
            && !self.client.wants_reader()
            && !self.sessions.iter().any(is_waiting)
            && self.is_connected()
    }

    /// Gives everything up that does not belong to a session, after all sessions have come to their end; what
    /// the client has left then.
    pub fn left_over(&mut self, cx: &mut Surroundings<'_>) -> Vec<&'static str> {
        self.forget_sessions(cx);
        self.stop_watching();
        self.client.left_over().collect()
    }

    pub(super) fn fail(&mut self, session: usize, error: ErrorCode) {
        self.answers.push_back((session, Answer::Failed(error)));
    }
}

/// The client breaks this rule, if it is one of a client's.
#[cfg(feature = "injected-bugs")]
fn with_bug(mut client: Client, bug: Option<InjectedBug>) -> Client {
    if bug == Some(InjectedBug::SeenCoversOpenQuestions) {
        client.let_seen_cover_open_questions();
    }
    client
}

/// Clients keep all rules.
#[cfg(not(feature = "injected-bugs"))]
fn with_bug(client: Client, _: Option<InjectedBug>) -> Client {
    client
}

/// The data nodes that a client is given the addresses of: mostly all, sometimes those of one node group, of which one
/// is alive as long as the cluster is.
fn addresses(profile: &Profile, random: &mut Rng) -> Vec<String> {
    let groups = profile.groups.list();
    let only = (random.u8(..3) == 0).then(|| groups[random.usize(..groups.len())]);
    let given = (1..).zip(groups).filter(|&(_, group)| only.is_none_or(|only| group == only));
    let mut addresses: Vec<String> = given.map(|(node, _)| address(NodeId(node))).collect();
    if random.bool() {
        random.shuffle(&mut addresses);
    }
    addresses
}

/// Settings that differ from one client to the next, with times that fit those of the run.
fn settings(node: NodeId, incarnation: Incarnation, profile: &Profile, random: &mut Rng) -> Settings {
    let heartbeat = profile.heartbeat_interval / 2;
    // A client that gives its data nodes up sooner than signals may be held up never gets anything done.
    let ways = [profile.client_delay, profile.link_delay, profile.ring_delay];
    let held_up = ways.iter().map(Delay::held_up_max).max().unwrap_or(0);
    // Mostly a question waits as long as it takes.
    let is_short = random.u8(..4) == 0;
    let patience = if is_short && !profile.is_calm { random.u64(50_000..1_000_000) } else { 30_000_000 };
    Settings {
        addresses: addresses(profile, random),
        cluster: String::new(),
        node: node.0,
        incarnation,
        heartbeat_interval: Span(heartbeat),
        silence_max: Span((heartbeat * random.u64(4..16)).max(4 * held_up)),
        greeting_timeout: Span(random.u64(50_000..500_000).max(8 * held_up)),
        reconnect_pause: (Span(random.u64(500..3_000)), Span(random.u64(3_000..50_000))),
        outcome_patience: Span(patience),
        way_patience: Span(patience.min(20_000_000)),
        hold_max: Span(random.u64(..1_000)),
        attempt_patience: Span(random.u64(1_000..50_000)),
    }
}
