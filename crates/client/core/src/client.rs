//! The client as a machine: what arrives goes in, what is to be sent and what has come of it comes out. What its user
//! asks for is in `calls`.

mod calls;

use crate::error::Error;
use crate::link::LinkId;
use crate::net::{Command, Net, Token, Unread};
use crate::outcomes::Coordinator;
use crate::reads::Reads;
use crate::request::{BATCH_TAG, write_question};
use crate::requests::Requests;
use crate::scans::Scans;
use crate::schema_events::SchemaEvents;
use crate::sessions::{Admission, EndpointState, Greeted, Readiness, Sessions};
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::transactions::Transactions;
use crate::writes::Writes;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::time::{Span, Tick};
use vinga_base::{NodeId, TransactionId};
use vinga_wire::handshake::{ALL_SENT, HelloConfirm, Refusal};
use vinga_wire::membership::HeartbeatBody;
use vinga_wire::take_over::OutcomesReleasedOrder;
use vinga_wire::transaction::{OutcomeConfirm, OutcomesSeenOrder, TransactionAnswer};
use vinga_wire::view::ClusterView;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U32, U64, cold};

/// How often it is looked whether what waits for a way or a coordinator can go on, or has waited for too long.
const HELD_CHECK: Span = CHECK_INTERVAL;
/// How often time-outs are looked for.
const CHECK_INTERVAL: Span = Span::from_millis(10);

/// See the head of the crate.
pub struct Client {
    net: Net,
    sessions: Sessions,
    reads: Reads,
    writes: Writes,
    transactions: Transactions,
    scans: Scans,
    requests: Requests,
    statistics: Statistics,
    schema_events: SchemaEvents,
    next_check: Tick,
}

/// # Rules that are broken on purpose
#[cfg(feature = "injected-bugs")]
impl Client {
    /// Reports outcomes as seen up to the greatest number that has come, whatever questions are open.
    pub fn let_seen_cover_open_questions(&mut self) {
        self.net.outcomes.seen_covers_open_questions = true;
    }
}

/// # The driver's side: connections and time
impl Client {
    /// A client that is not connected. The first call of [`Client::on_time`] makes it try.
    pub fn new(settings: Settings) -> Self {
        Client {
            sessions: Sessions::new(&settings.addresses),
            net: Net::new(settings),
            reads: Reads::new(),
            writes: Writes::new(),
            transactions: Transactions::new(),
            scans: Scans::new(),
            requests: Requests::new(),
            statistics: Statistics::new(),
            schema_events: SchemaEvents::new(),
            next_check: Tick(0),
        }
    }

    /// Says what time it is; time never goes back. Does what is due.
    #[inline]
    pub fn on_time(&mut self, now: Tick) {
        let before = self.net.now;
        self.net.now = before.max(now);
        let span = self.net.now - before;
        let usual = self.net.settings.heartbeat_interval + self.net.settings.heartbeat_interval;
        if span > usual {
            self.forgive(span - usual);
        }
        if self.net.now >= self.next_check {
            self.next_check = self.net.now + CHECK_INTERVAL;
            self.check();
            self.check_when_due();
        }
    }

    /// The client itself did not run for a while, though heartbeats were due. What data nodes have sent meanwhile may
    /// lie unread: they were not silent. What is forgiven is less than the whole pause, so that a node which is really
    /// silent is found by a client, too, that runs in pauses only: it has read between two of them.
    #[cold]
    fn forgive(&mut self, span: Span) {
        for link in &mut self.net.links {
            link.last_received = self.net.now.min(link.last_received + span);
        }
    }

    /// Refused reads and scans wait less than the interval between checks.
    fn check_when_due(&mut self) {
        if let Some(at) = self.resend_at() {
            self.next_check = self.next_check.min(at);
        }
    }

    fn resend_at(&self) -> Option<Tick> {
        let requests = self.requests.due_at(&self.net);
        let held = self.transactions.has_held() || self.writes.has_held() || self.scans.has_lost();
        let held = held.then(|| self.net.now + HELD_CHECK);
        let reads = [self.reads.resend_at(), self.reads.go_on_at()];
        let events = self.schema_events.due_at(&self.net);
        let others = [self.scans.resend_at(), self.statistics.resend_at(), requests, events, held];
        reads.into_iter().chain(others).flatten().min()
    }

    fn check(&mut self) {
        for (endpoint, error) in self.sessions.on_time(&mut self.net) {
            self.lose(endpoint, error);
        }
        self.sessions.send_heartbeats(&mut self.net);
        let owner = TransactionId::new(self.net.api, self.net.incarnation, 1);
        let idle: Vec<_> = self.net.outcomes.take_idle(self.net.now).collect();
        for (link, coordinator, seen) in idle {
            self.net
                .frame(link, SignalNumber::OutcomesSeenOrder, coordinator)
                .put(&OutcomesSeenOrder { owner: U64::new(owner.0), outcomes_seen: U32::new(seen) });
            self.net.link(link).hurry();
        }
        for (link, successor, name) in self.net.outcomes.take_released() {
            let order = OutcomesReleasedOrder { owner: U64::new(owner.0), coordinator: name.into() };
            self.net.frame(link, SignalNumber::OutcomesReleasedOrder, successor).put(&order);
            self.net.link(link).hurry();
        }
        self.reads.resend(&mut self.net);
        if self.reads.go_on_at().is_some_and(|at| self.net.now >= at) {
            self.reads.go_on(&mut self.net);
        }
        self.writes.go_on(&mut self.net);
        self.transactions.go_on(&mut self.net);
        self.scans.go_on(&mut self.net);
        self.scans.resend(&mut self.net);
        self.statistics.resend(&mut self.net);
        self.go_on_with_requests();
        let is_too_late = |net: &Net, _, until| net.now > until;
        self.writes.give_up(&mut self.net, ErrorCode::UnknownOutcome, is_too_late);
        self.transactions.give_up(&mut self.net, ErrorCode::UnknownOutcome, is_too_late);
    }

    /// The client leaves for good. Data nodes are notified, so that its node id is free at once; what waits for a
    /// connection ends with an error, as nothing is sent any more, and what is under way does not end. The driver goes
    /// on until [`Client::has_left`], then it closes all connections.
    pub fn leave(&mut self) {
        for endpoint in self.sessions.parting() {
            self.end(endpoint, Error::new(ErrorCode::ConnectionLost), Unread::Lost);
        }
        self.sessions.leave(&mut self.net);
        self.rebuild_routes();
        self.go_on_with_requests();
    }

    /// Whether the client has left: the disconnect notice was sent, and given to the driver, wherever it can be sent.
    pub fn has_left(&self) -> bool {
        self.sessions.has_left() && self.net.links.iter().all(|link| !link.is_open || link.out.is_empty())
    }

    /// When [`Client::on_time`] or [`Client::next_output`] is to be called at the latest.
    pub fn next_deadline(&self) -> Option<Tick> {
        let held = self.net.links.iter().filter_map(|link| link.due_at(self.net.settings.hold_max)).min();
        let sessions = self.sessions.next_deadline(&self.net);
        let questions = (self.asking() > 0).then(|| self.net.now + Span::from_millis(100));
        let resend = self.resend_at();
        let checks = [sessions, self.net.outcomes.idle_at(self.net.now), questions, resend]
            .into_iter()
            .flatten()
            .min();
        [held, checks.map(|at| at.max(self.next_check))].into_iter().flatten().min()
    }

    /// What the driver has to do with connections, in this order.
    pub fn next_command(&mut self) -> Option<Command> {
        self.net.commands.pop_front()
    }

    /// A connection that was asked for is open.
    pub fn on_opened(&mut self, link: LinkId) {
        self.sessions.on_opened(&mut self.net, link);
    }

    /// A connection could not be opened, or has broken. When an order to close a connection has been taken it must not
    /// be named any more until it is to be opened again; before, its end may be reported, and counts for nothing.
    pub fn on_broken(&mut self, link: LinkId, detail: impl Into<String>) {
        if self.sessions.is_wanted(link) {
            self.lose(link.endpoint(), Error::with_detail(ErrorCode::ClusterFailure, detail));
        }
    }

    /// A connection could not be opened: what listens there refuses it before the greeting, for want of the cluster's
    /// key, for example.
    pub fn on_refused(&mut self, link: LinkId, code: ErrorCode, detail: impl Into<String>) {
        self.lose(link.endpoint(), Error::with_detail(code, detail));
    }

    /// Bytes have arrived. Returns how many were used; the others are the beginning of a frame and must be given again,
    /// with more behind them.
    pub fn on_bytes(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        let now = self.net.now;
        self.net.link(link).last_received = now;
        let mut used = 0;
        while self.net.link(link).is_open {
            if self.sessions.awaits_greeting(link) && is_no_greeting(&bytes[used..]) {
                let detail = "what answers at this address is no data node";
                self.lose(link.endpoint(), Error::with_detail(ErrorCode::BadHandshake, detail));
                continue;
            }
            match Frame::first(&bytes[used..]) {
                Ok(Some(frame)) => {
                    used += frame.length();
                    if self.on_frame(link, &frame).is_none() {
                        let detail = format!("the data node sent a bad signal {}", frame.header.number.get());
                        self.lose(link.endpoint(), Error::with_detail(ErrorCode::MalformedSignal, detail));
                    }
                }
                Ok(None) => return used,
                Err(_) => self.lose(link.endpoint(), Error::new(ErrorCode::MalformedFrame)),
            }
        }
        bytes.len()
    }

    /// The next connection on which something is to be sent now, with what is to be sent, in exchange for an empty
    /// buffer. Once taken it has to be sent, before anything that is taken later.
    #[inline]
    pub fn next_output(&mut self, buffer: &mut Vec<u8>) -> Option<LinkId> {
        let (now, hold_max) = (self.net.now, self.net.settings.hold_max);
        while let Some(at) = self.net.links.iter().position(|link| link.is_due(now, hold_max)) {
            let link = LinkId(at as u16);
            self.reads.write_frames(&mut self.net, link);
            self.net.link(link).take_output(buffer);
            // What was gathered may have gone with its shape.
            if !buffer.is_empty() {
                return Some(link);
            }
        }
        None
    }

    /// Whether [`Client::next_output`] or [`Client::next_command`] has something to give.
    pub fn has_output(&self) -> bool {
        let (now, hold_max) = (self.net.now, self.net.settings.hold_max);
        !self.net.commands.is_empty() || self.net.links.iter().any(|link| link.is_due(now, hold_max))
    }

    /// Nothing is given out for a blocked connection: the driver has not been able to send all it took before.
    pub fn set_blocked(&mut self, link: LinkId, is_blocked: bool) {
        self.net.link(link).is_blocked = is_blocked;
    }

    /// Sending on this connection costs next to nothing, until it is closed: operations go one by one, at once.
    pub fn set_eager(&mut self, link: LinkId) {
        self.net.link(link).is_eager = true;
        self.sessions.rebuild_routes(&mut self.net);
    }

    /// Tokens about which there is news: what they name has ended, or (a scan) has rows. A token may be named although
    /// its news has been taken already.
    pub fn take_news(&mut self, news: &mut Vec<Token>) {
        news.append(&mut self.net.news);
    }

    /// Whether the client can be used.
    pub fn readiness(&self) -> Readiness {
        self.sessions.readiness(self.net.routes.view())
    }

    /// Whether the data node is connected whose dictionary answers: the one that leads the cluster.
    pub fn reaches_dictionary(&self) -> bool {
        self.president().is_some()
    }

    /// The address of an endpoint, which may be one that the cluster has given.
    pub fn address(&self, endpoint: u16) -> &str {
        self.sessions.address(endpoint)
    }

    /// How it stands with each address of a data node: those that were given in their order, then those of members of
    /// the cluster to which none of these leads.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        self.sessions.endpoints(self.net.routes.view())
    }

    /// Whether somebody has to read what arrives even if nobody waits for anything: greetings, questions for outcomes
    /// and abandoned transactions are under way.
    pub fn wants_reader(&self) -> bool {
        self.sessions.is_greeting()
            || self.asking() > 0
            || self.transactions.abandoned() > 0
            || self.requests.has_unawaited()
    }

    /// Whether operations are under way or wait on any connection.
    pub fn is_busy(&self) -> bool {
        self.net.links.iter().any(crate::link::Link::is_busy)
    }

    fn asking(&self) -> u32 {
        self.writes.asking() + self.transactions.asking()
    }

    /// The parts that still have something under way. There are none when all tokens have been taken or cancelled and
    /// answered.
    pub fn left_over(&self) -> impl Iterator<Item = &'static str> {
        let parts = [
            ("reads", self.reads.is_at_rest()),
            ("writes", self.writes.is_at_rest()),
            ("transactions", self.transactions.is_at_rest()),
            ("scans", self.scans.is_at_rest()),
            ("requests", self.requests.is_at_rest()),
            ("statistics", self.statistics.is_at_rest()),
            ("schema events", self.schema_events.is_at_rest()),
        ];
        parts.into_iter().filter(|(_, is_at_rest)| !is_at_rest).map(|(name, _)| name)
    }

    /// Whether no part has anything under way.
    pub fn is_at_rest(&self) -> bool {
        self.left_over().next().is_none()
    }

    /// This client's node id, 0 before it has one.
    pub fn node(&self) -> NodeId {
        self.net.api
    }

    /// Which admission of this client to the cluster it is: as long as it is the same one its connections have not all
    /// been closed, and the data nodes have ended nothing of it for that reason.
    pub fn admission(&self) -> Admission {
        let (incarnation, cluster) = (self.net.incarnation, self.sessions.cluster_incarnation());
        Admission { cluster, incarnation, number: self.sessions.admission() }
    }

    /// Which incarnation of the cluster this client knows: another one after a restart in which everything was lost. 0
    /// before the first data node was connected.
    pub fn cluster_incarnation(&self) -> u64 {
        self.sessions.cluster_incarnation()
    }

    /// The random number of the database that this client is connected to: data nodes that keep it on disk have the
    /// same one over restarts. 0 before the first connection.
    pub fn database(&self) -> u64 {
        self.sessions.database()
    }

    /// The newest epoch that was seen.
    pub fn epoch_seen(&self) -> u64 {
        self.net.epoch_seen
    }

    /// The newest view of the cluster that a data node has sent; number 0 before the first.
    pub fn view(&self) -> &ClusterView {
        self.net.routes.view()
    }
}

/// # Frames
impl Client {
    #[inline]
    fn on_frame(&mut self, link: LinkId, frame: &Frame<'_>) -> Option<()> {
        let net = &mut self.net;
        match frame.signal()? {
            SignalNumber::KeyReadConfirm => self.reads.on_confirm(net, link, frame),
            SignalNumber::KeyReadRefuse => {
                self.reads.on_refuse(net, link, frame)?;
                self.check_when_due();
                Some(())
            }
            SignalNumber::TransactionConfirm | SignalNumber::TransactionRefuse => {
                let (answer, errors) = frame.head::<TransactionAnswer>()?;
                net.note_epoch(answer.epoch.get());
                if answer.request.get() & BATCH_TAG != 0 {
                    self.transactions.on_answer(net, answer, errors)?;
                    self.end_within_rolled_back();
                    Some(())
                } else {
                    self.writes.on_answer(net, answer)
                }
            }
            SignalNumber::TransactionRowReport => self.transactions.on_row(net, frame),
            SignalNumber::OutcomeConfirm => {
                let (confirm, _) = frame.head::<OutcomeConfirm>()?;
                let (id, number) = (TransactionId(confirm.transaction.get()), confirm.outcome_number.get());
                if net.outcomes.take_unanswered(id, number) {
                    return Some(());
                }
                if confirm.request.get() & BATCH_TAG != 0 {
                    self.transactions.on_outcome(net, confirm)
                } else {
                    self.writes.on_outcome(net, confirm)
                }
            }
            SignalNumber::ScanConfirm => self.scans.on_confirm(net, frame),
            SignalNumber::ScanRefuse => {
                self.scans.on_refuse(net, frame)?;
                self.check_when_due();
                Some(())
            }
            SignalNumber::IndexStatisticsConfirm => self.statistics.on_confirm(net, frame),
            SignalNumber::IndexStatisticsRefuse => {
                self.statistics.on_refuse(net, frame)?;
                self.check_when_due();
                Some(())
            }
            SignalNumber::HeartbeatConfirm => {
                let (body, _) = frame.head::<HeartbeatBody>()?;
                net.note_epoch(body.epoch.get());
                Some(())
            }
            SignalNumber::ViewChangedOrder => {
                let view = cold::read(frame)?;
                self.on_view_changed(view);
                Some(())
            }
            SignalNumber::HelloConfirm => {
                let confirm = cold::read(frame)?;
                self.on_hello_confirm(link, confirm);
                Some(())
            }
            SignalNumber::HelloRefuse => {
                let refusal: Refusal = cold::read(frame)?;
                self.on_hello_refuse(link, refusal);
                Some(())
            }
            signal @ (SignalNumber::CreateTableConfirm
            | SignalNumber::CreateTableRefuse
            | SignalNumber::DropTableConfirm
            | SignalNumber::DropTableRefuse
            | SignalNumber::DescribeTableConfirm
            | SignalNumber::DescribeTableRefuse
            | SignalNumber::ListTablesConfirm
            | SignalNumber::ListTablesRefuse
            | SignalNumber::SchemaChangeConfirm
            | SignalNumber::SchemaChangeRefuse
            | SignalNumber::DescribeDatabaseConfirm
            | SignalNumber::DescribeDatabaseRefuse
            | SignalNumber::ListDatabasesConfirm
            | SignalNumber::ListDatabasesRefuse
            | SignalNumber::SchemaLockConfirm
            | SignalNumber::SchemaLockRefuse
            | SignalNumber::SchemaUnlockConfirm
            | SignalNumber::SchemaUnlockRefuse
            | SignalNumber::InfoConfirm
            | SignalNumber::InfoRefuse
            | SignalNumber::ParameterSetConfirm
            | SignalNumber::ParameterSetRefuse
            | SignalNumber::ShutdownConfirm
            | SignalNumber::ShutdownRefuse
            | SignalNumber::ReorganizeConfirm
            | SignalNumber::ReorganizeRefuse
            | SignalNumber::BackupOpenConfirm
            | SignalNumber::BackupOpenRefuse
            | SignalNumber::BackupNextConfirm
            | SignalNumber::BackupNextRefuse) => {
                self.requests.on_answer(net, signal, frame)?;
                self.go_on_with_requests();
                Some(())
            }
            SignalNumber::SchemaEventsConfirm => {
                self.schema_events.on_confirm(net, link, frame, self.sessions.cluster_incarnation())
            }
            SignalNumber::SchemaEventReport => self.schema_events.on_report(net, link, frame),
            SignalNumber::SchemaEventsRefuse => {
                self.schema_events.on_refuse(net, link, frame)?;
                self.check_when_due();
                Some(())
            }
            _ => None,
        }
    }

    fn on_hello_confirm(&mut self, link: LinkId, confirm: HelloConfirm) {
        let endpoint = link.endpoint();
        match self.sessions.on_hello_confirm(&mut self.net, link, confirm) {
            // Nothing that waits for a connection goes before the notice, nor behind it.
            Ok(Greeted { is_ready, .. }) if self.sessions.is_leaving() => {
                if is_ready {
                    self.sessions.send_disconnect(&mut self.net, endpoint);
                }
            }
            Ok(Greeted { is_ready, is_restarted }) => {
                self.requests.on_admitted(self.admission());
                if is_restarted {
                    self.give_up_questions(ErrorCode::ClusterRestarted);
                    self.reads.fail_parked(&mut self.net);
                    self.scans.end_all(&mut self.net, ErrorCode::ConnectionLost);
                    self.statistics.end_all(&mut self.net, ErrorCode::ConnectionLost);
                }
                self.go_on_in_view();
                if is_ready && self.sessions.is_open(endpoint) {
                    self.become_ready(endpoint);
                }
            }
            Err(error) => self.lose(endpoint, error),
        }
    }

    fn become_ready(&mut self, endpoint: u16) {
        self.rebuild_routes();
        // Successors have been asked when the ways were found.
        self.ask(|coordinator| !coordinator.is_dead() && coordinator.is_reached_by(endpoint));
        self.go_on_with_requests();
    }

    /// Asks for the outcomes that are not known, of transactions of these coordinators.
    fn ask(&mut self, of: impl Fn(&Coordinator) -> bool) {
        let net = &mut self.net;
        self.writes.ask(net, &of);
        self.transactions.ask(net, &of);
        for (coordinator, transaction) in net.outcomes.unanswered(&of) {
            write_question(net, coordinator, transaction, BATCH_TAG);
        }
    }

    fn on_hello_refuse(&mut self, link: LinkId, refusal: Refusal) {
        if refusal.code == ErrorCode::NodeStopping as u16
            && refusal.request == ALL_SENT
            && let Some(is_all) = self.sessions.note_all_sent(&mut self.net, link)
        {
            if is_all {
                self.end(link.endpoint(), Error::new(ErrorCode::NodeStopping), Unread::Nothing);
            }
            return self.go_on_in_view();
        }
        self.sessions.note_refused(link.endpoint());
        let is_declared_failed = self.sessions.is_declared_failed(&refusal);
        let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::BadHandshake);
        if code == ErrorCode::SameDataNode {
            self.sessions.note_same_node(link.endpoint(), &refusal);
        }
        self.lose(link.endpoint(), Error::with_detail(code, refusal.detail));
        if is_declared_failed {
            self.begin_new_incarnation();
        }
    }

    /// The cluster has declared this client failed: all that it had is gone.
    fn begin_new_incarnation(&mut self) {
        for endpoint in 0..self.sessions.count() {
            if self.sessions.is_open(endpoint) {
                self.lose(endpoint, Error::new(ErrorCode::ConnectionLost));
            }
        }
        self.give_up_questions(ErrorCode::UnknownOutcome);
        self.net.outcomes.reset();
        self.net.request_newer();
        self.net.api = NodeId(self.net.settings.node);
        self.sessions.forget_ticket();
    }

    fn give_up_questions(&mut self, code: ErrorCode) {
        self.writes.give_up(&mut self.net, code, |_, _, _| true);
        self.transactions.give_up(&mut self.net, code, |_, _, _| true);
    }

    /// The cluster has another view.
    fn on_view_changed(&mut self, view: ClusterView) {
        self.net.adopt(view);
        self.go_on_in_view();
    }

    /// A data node has sent a view, perhaps a new one: nothing more is expected of data nodes that are no members.
    fn go_on_in_view(&mut self) {
        for (endpoint, has_left) in self.sessions.without_member(&self.net) {
            if has_left {
                self.sessions.part(&self.net, endpoint);
            } else if self.sessions.is_open(endpoint) {
                self.end(endpoint, Error::new(ErrorCode::NodeFailure), Unread::Lost);
            }
        }
        self.rebuild_routes();
        self.transactions.finish_without_rows(&mut self.net);
        self.go_on_with_requests();
    }

    /// Sends what waits for the president or another data node, and has the president's dictionary send events, if
    /// somebody wants them and none does.
    fn go_on_with_requests(&mut self) {
        self.requests.go_on(&mut self.net, &self.sessions);
        let president = self.president();
        self.schema_events.subscribe(&mut self.net, president);
    }

    /// Finds all ways again. Coordinators that have failed have successors then, which are asked at once, if they are
    /// connected, or as soon as they are. All endpoints whose data nodes have failed were given up before.
    fn rebuild_routes(&mut self) {
        self.sessions.rebuild_routes(&mut self.net);
        self.sessions.add_members(&mut self.net);
        self.reads.go_on(&mut self.net);
        self.writes.go_on(&mut self.net);
        self.transactions.go_on(&mut self.net);
        self.scans.go_on(&mut self.net);
        self.ask_successors();
    }

    /// Asks the successors of coordinators that have failed, each once.
    fn ask_successors(&mut self) {
        let inherited = self.sessions.find_successors(&mut self.net);
        if !inherited.is_empty() {
            let names: Vec<_> = inherited.iter().map(|&index| self.net.outcomes.get(index).name).collect();
            self.ask(|coordinator| names.contains(&coordinator.name));
            self.next_check = self.next_check.min(self.net.now);
        }
    }

    /// Where the dictionary is that answers; `None` while it is not connected.
    fn president(&self) -> Option<(NodeId, LinkId)> {
        self.sessions.president(self.net.routes.view())
    }

    /// Ends what reads within transactions that have been rolled back: it would lack their changes from now on.
    fn end_within_rolled_back(&mut self) {
        while let Some((transaction, code)) = self.transactions.take_rolled_back() {
            self.scans.end_within(&mut self.net, transaction, code);
            self.reads.end_within(&mut self.net, transaction, code);
        }
    }

    /// The connections of an endpoint are lost, with what may have been on its way here.
    fn lose(&mut self, endpoint: u16, error: Error) {
        self.end(endpoint, error, Unread::Lost);
        self.ask_successors();
    }

    /// Gives an endpoint up: everything that was under way there ends, or will be asked for.
    fn end(&mut self, endpoint: u16, error: Error, unread: Unread) {
        let net = &mut self.net;
        self.reads.on_lost(net, endpoint);
        self.writes.on_lost(net, endpoint);
        self.transactions.on_lost(net, endpoint);
        self.scans.on_lost(net, endpoint);
        self.end_within_rolled_back();
        let net = &mut self.net;
        self.requests.on_lost(net, endpoint, unread);
        self.statistics.on_lost(net, endpoint);
        self.schema_events.on_lost(endpoint);
        net.outcomes.unlink(endpoint);
        // Nothing was to come from one that was not admitted.
        if unread == Unread::Lost && self.sessions.is_admitted(endpoint) {
            net.turnovers.note_lost(endpoint);
        }
        self.sessions.become_lost(net, endpoint, error);
        self.sessions.rebuild_routes(net);
        self.sessions.add_members(net);
        self.reads.go_on(net);
        self.writes.go_on(net);
        self.transactions.go_on(net);
        self.scans.go_on(net);
        self.transactions.finish_without_rows(net);
        self.go_on_with_requests();
    }
}

/// Whether bytes, perhaps the beginning of a frame only, can't be a data node's answer to a greeting.
fn is_no_greeting(bytes: &[u8]) -> bool {
    let Some(&[low, high]) = bytes.get(4..6) else { return false };
    let number = u16::from_le_bytes([low, high]);
    ![SignalNumber::HelloConfirm, SignalNumber::HelloRefuse].iter().any(|&answer| answer as u16 == number)
}
