//! Info: what a person wants to know about a running node, as rows of information tables.
//!
//! Each thread has an info block; its instance is the thread's index. The rows are the host's: it passes an
//! [`InfoSource`] to [`Info::handle_with`]. A request is answered by the instance that it is sent to. Instance 0 (the
//! main thread) first asks the others of its node and puts their rows behind its own, in the order of threads:
//!
//! ```text
//!   API node ── InfoRequest ──▶ info 0 ── InfoRequest ──▶ info 1, info 2, …
//!   API node ◀── InfoConfirm ── info 0 ◀── InfoConfirm ──
//! ```
//! A thread that has not answered after [`ANSWER_TIME`] is not waited for. What is missing in an answer is said by a
//! *note*: a last row with a sentence in its first column and empty text in the others. So an answer always fits a
//! frame, and always comes; only an API node for which too much waits already is refused.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod gathering;
mod parameters;
mod rows;
mod shutdown;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use gathering::Gathering;
use rows::Rows;
use shutdown::Shutdown;
use vinga_base::{LiveValues, NodeId};
use vinga_kernel::{Context, Scrutiny, Span, Tick};
use vinga_wire::handshake::Refusal;
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoTable, InfoValue};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::restart::ThreadsBody;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64, cold};

/// How long the main thread waits for the others' rows.
pub const ANSWER_TIME: Span = Span::from_millis(1000);

/// Rows that a thread puts together for one request, at most: that takes no longer than other work of one turn.
pub const ROWS_MAX: usize = 1500;

/// Requests that the main thread may be gathering rows for at the same time.
pub const GATHERINGS_MAX: usize = 16;

/// Where a thread's rows come from.
pub trait InfoSource {
    /// The names of a table's columns, the same on all threads.
    fn columns(&self, table: InfoTable) -> &'static [&'static str];

    /// Appends this thread's rows of a table, each with one value for every column, [`ROWS_MAX`] at most; returns how
    /// many more there are. What concerns the whole node is given by thread 0 only.
    fn rows(&self, table: InfoTable, now: Tick, out: &mut Vec<Vec<InfoValue>>) -> usize;

    /// The values of parameters that may change live.
    fn parameters(&self) -> &LiveValues;
}

/// The info block of one thread.
pub struct Info {
    /// Threads of this node.
    threads: u16,
    gatherings: Vec<Gathering>,
    gathering_next: u32,
    shutdown: Shutdown,
}

impl Info {
    /// The info block of one of `threads` threads.
    pub fn new(threads: u16) -> Self {
        Info { threads, gatherings: Vec::new(), gathering_next: 0, shutdown: Shutdown::default() }
    }

    /// Whoever asks learns that this thread has adopted the view in which the request was sent.
    fn on_turn_request(cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ThreadsBody = cold::read(frame)?;
        cold::write(&mut cx.frame(SignalNumber::TurnConfirm, frame.sender()), &body);
        Some(())
    }

    /// Handles one signal, with the rows that this thread has now.
    pub fn handle_with(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, source: &dyn InfoSource) {
        let handled = match frame.signal() {
            Some(SignalNumber::InfoRequest) => self.on_info_request(cx, frame, source),
            Some(SignalNumber::InfoConfirm) => self.on_info_confirm(cx, frame),
            Some(SignalNumber::ParameterSetRequest) => {
                self.on_parameter_set_request(cx, frame, source.parameters())
            }
            Some(SignalNumber::ShutdownRequest) => self.on_shutdown_request(cx, frame),
            Some(SignalNumber::ShutdownPermitRequest) => self.on_permit_request(cx, frame),
            Some(SignalNumber::ShutdownPermitConfirm) => self.on_permit_confirm(cx, frame),
            Some(SignalNumber::ShutdownPermitRefuse) => self.on_permit_refuse(cx, frame),
            Some(SignalNumber::ShutdownPermitReturnOrder) => self.on_permit_return(frame),
            Some(SignalNumber::ShutdownCheckConfirm) => self.on_check_confirm(cx),
            Some(SignalNumber::ShutdownCheckRefuse) => self.on_check_refuse(cx),
            Some(SignalNumber::LeaveReport) => self.on_leave_report(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            Some(SignalNumber::TurnRequest) => Self::on_turn_request(cx, frame),
            // Whoever asks is answered: nothing is begun for it.
            Some(SignalNumber::ApiConnectedOrder) => confirm_connected(cx, frame),
            Some(SignalNumber::ApiConnectionClosedOrder) => {
                self.on_api_gone(cx, frame, SignalNumber::ApiConnectionClosedConfirm)
            }
            Some(SignalNumber::ApiFailedOrder) => self.on_api_gone(cx, frame, SignalNumber::ApiFailedConfirm),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    /// The thread has adopted another view.
    pub fn view_changed(&mut self, cx: &mut Context<'_>) {
        self.forget_lost_members(cx);
    }

    /// Panics if it gathers more than it may, or for nobody; see `vinga_kernel::Block::check_invariants`.
    pub fn check_invariants(&self, _: Scrutiny) {
        assert!(
            self.gatherings.len() <= GATHERINGS_MAX,
            "at most {GATHERINGS_MAX} requests are gathered for"
        );
        assert!(self.gatherings.iter().all(|one| !one.is_complete()), "a complete answer is sent");
        self.shutdown.check_invariants();
    }

    fn on_info_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        source: &dyn InfoSource,
    ) -> Option<()> {
        let InfoRequest { request, table } = cold::read(frame)?;
        if cx.is_congested(frame.sender()) && frame.sender().block() == Some(BlockNumber::Api) {
            cx.mark("information refused because too many answers wait for its API node");
            let body = Refusal { request, code: ErrorCode::Overloaded as u16, detail: String::new() };
            cold::write(&mut cx.frame(SignalNumber::InfoRefuse, frame.sender()), &body);
            return Some(());
        }
        let columns = source.columns(table);
        let mut rows = Rows::default();
        let mut own = Vec::new();
        let more = source.rows(table, cx.now(), &mut own);
        rows.append(own);
        rows.leave_out(more);
        if cx.own().instance() != 0 || self.threads == 1 {
            answer(cx, frame.sender(), request, columns, rows);
        } else if self.gatherings.len() >= GATHERINGS_MAX {
            cx.mark("too many information requests at once");
            let note = "other threads were not asked: too many requests are under way".to_string();
            rows.note(note);
            answer(cx, frame.sender(), request, columns, rows);
        } else {
            self.gather(cx, Gathering::new(frame.sender(), request, table, columns, rows, self.threads));
        }
        Some(())
    }

    /// Asks the other threads.
    fn gather(&mut self, cx: &mut Context<'_>, mut gathering: Gathering) {
        self.gathering_next = self.gathering_next.wrapping_add(1);
        gathering.number = self.gathering_next;
        let request = InfoRequest { request: gathering.number, table: gathering.table };
        for thread in 1..self.threads {
            let other = Address::new(cx.own().node(), BlockNumber::Info, thread);
            cold::write(&mut cx.frame(SignalNumber::InfoRequest, other), &request);
        }
        cx.send_after(ANSWER_TIME, u64::from(gathering.number));
        self.gatherings.push(gathering);
    }

    fn on_info_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let InfoConfirm { request, rows, .. } = cold::read(frame)?;
        if let Some(at) = self.gatherings.iter().position(|g| g.number == request) {
            self.gatherings[at].add(frame.sender().instance(), rows);
            if self.gatherings[at].is_complete() {
                self.finish(cx, at);
            }
        }
        Some(())
    }

    /// The time for an answer is over, or the node is to stop.
    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        if self.on_shutdown_timer(cx, token.get()) {
            return Some(());
        }
        if let Some(at) = self.gatherings.iter().position(|g| u64::from(g.number) == token.get()) {
            cx.mark("thread did not give its information rows in time");
            self.finish(cx, at);
        }
        Some(())
    }

    fn finish(&mut self, cx: &mut Context<'_>, at: usize) {
        let (requester, request, columns, rows) = self.gatherings.remove(at).into_answer();
        answer(cx, requester, request, columns, rows);
    }

    /// An API node's connections are closed: nothing is gathered for it any more.
    fn on_api_gone(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, confirm: SignalNumber) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        self.gatherings.retain(|gathering| gathering.requester.node() != NodeId(body.api));
        self.forget_requests_to_stop(NodeId(body.api));
        cx.frame(confirm, frame.sender()).put(body);
        Some(())
    }

    /// Requests that rows are gathered for.
    pub fn gatherings(&self) -> usize {
        self.gatherings.len()
    }
}

fn confirm_connected(cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
    let (body, _) = frame.head::<ApiNodeBody>()?;
    cx.frame(SignalNumber::ApiConnectedConfirm, frame.sender()).put(body);
    Some(())
}

fn answer(
    cx: &mut Context<'_>,
    requester: Address,
    request: u32,
    columns: &'static [&'static str],
    rows: Rows,
) {
    let body = InfoConfirm {
        request,
        rows: rows.into_rows(cx.own().instance(), columns.len()),
        columns: columns.iter().map(|&name| String::from(name)).collect(),
    };
    cold::write(&mut cx.frame(SignalNumber::InfoConfirm, requester), &body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};
    use vinga_base::{Incarnation, LiveParameter};
    use vinga_kernel::Block;
    use vinga_kernel::testkit::Harness;
    use vinga_wire::parameter::{ParameterChange, ParameterSetConfirm, ParameterSetRequest};
    use vinga_wire::shutdown::{ShutdownPermitBody, ShutdownPermitRequest, ShutdownRequest, ShutdownTerms};
    use vinga_wire::view::{ClusterView, Member, MemberState};

    const NODE: NodeId = NodeId(1);
    const THREADS: u16 = 3;
    const API: Address = Address::new(NodeId(150), BlockNumber::Api, 0);
    const MEMBERSHIP: Address = Address::new(NODE, BlockNumber::Membership, 0);

    const fn info(thread: u16) -> Address {
        Address::new(NODE, BlockNumber::Info, thread)
    }

    struct Source(LiveValues);

    impl InfoSource for Source {
        fn columns(&self, _: InfoTable) -> &'static [&'static str] {
            &["pool", "used"]
        }

        fn rows(&self, table: InfoTable, _: Tick, out: &mut Vec<Vec<InfoValue>>) -> usize {
            match table {
                InfoTable::Pools => out.push(vec![InfoValue::Text("pages".into()), InfoValue::Number(7)]),
                InfoTable::Blocks => {
                    let row =
                        |i| vec![InfoValue::Text(format!("block {i} {:990}", "")), InfoValue::Real(0.5)];
                    out.extend((0..1000).map(row));
                }
                InfoTable::Transactions => {
                    out.push(vec![InfoValue::Text("one".into()), InfoValue::Number(1)]);
                    return 7;
                }
                InfoTable::Threads
                | InfoTable::Memory
                | InfoTable::Nodes
                | InfoTable::Locks
                | InfoTable::Tables
                | InfoTable::DiskWriteSpeedBase
                | InfoTable::DiskWriteSpeedAggregate
                | InfoTable::RedoLogs
                | InfoTable::Parameters
                | InfoTable::LostNodes
                | InfoTable::Arbitration
                | InfoTable::Restarts => {}
            }
            0
        }

        fn parameters(&self) -> &LiveValues {
            &self.0
        }
    }

    /// Those of a node without a disk.
    fn values() -> LiveValues {
        let mut values = LiveValues::default();
        values.set(LiveParameter::TimeBetweenEpochs, 100);
        values
    }

    /// An info block with its rows.
    struct Hosted(Info);

    impl Block for Hosted {
        fn start(&mut self, _: &mut Context<'_>) {}

        fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
            self.0.handle_with(cx, frame, &Source(values()));
        }

        fn check_invariants(&self, scrutiny: Scrutiny) {
            self.0.check_invariants(scrutiny);
        }
    }

    fn harness(thread: u16, threads: u16) -> Harness<Hosted> {
        let view = ClusterView::first(vec![Member::started(NODE, Incarnation(1), 0, 1, 1)]);
        Harness::new(info(thread), 1, view, Hosted(Info::new(threads)))
    }

    fn ask(h: &mut Harness<Hosted>, from: Address, request: u32, table: InfoTable) {
        let body = InfoRequest { request, table };
        h.send(from, SignalNumber::InfoRequest, |w| cold::write(w, &body)).expect("anybody may ask");
    }

    fn row(name: &str, used: u64) -> Vec<InfoValue> {
        vec![InfoValue::Text(name.into()), InfoValue::Number(used)]
    }

    fn note(text: &str) -> Vec<InfoValue> {
        vec![InfoValue::Text(text.into()), InfoValue::Text(String::new())]
    }

    /// The tags of the requests to other threads, and the rows of the answers to the API node.
    fn sent(h: &mut Harness<Hosted>) -> (Vec<(Address, u32)>, Vec<InfoConfirm>) {
        let (mut asked, mut answers) = (vec![], vec![]);
        for sent in h.take_sent() {
            match cold::read::<InfoConfirm>(&sent.frame()) {
                Some(confirm) if sent.receiver() == API => answers.push(confirm),
                _ => {
                    let InfoRequest { request, .. } = cold::read(&sent.frame()).expect("a request");
                    asked.push((sent.receiver(), request));
                }
            }
        }
        (asked, answers)
    }

    fn confirm(h: &mut Harness<Hosted>, thread: u16, request: u32, rows: Vec<Vec<InfoValue>>) {
        let body = InfoConfirm { request, columns: vec![], rows };
        h.send(info(thread), SignalNumber::InfoConfirm, |w| cold::write(w, &body))
            .expect("a block may answer");
    }

    #[test]
    fn the_main_thread_gathers_in_the_order_of_threads() {
        let mut h = harness(0, THREADS);
        ask(&mut h, API, 77, InfoTable::Pools);
        let (asked, answers) = sent(&mut h);
        let tag = asked[0].1;
        assert_eq!((asked, answers), (vec![(info(1), tag), (info(2), tag)], vec![]));
        confirm(&mut h, 2, tag, vec![row("c", 3)]);
        confirm(&mut h, 2, tag, vec![row("twice", 3)]);
        confirm(&mut h, 1, tag.wrapping_add(9), vec![row("of another request", 3)]);
        confirm(&mut h, 1, tag, vec![row("b", 2)]);
        let (_, answers) = sent(&mut h);
        assert_eq!(answers[0].request, 77);
        assert_eq!(answers[0].columns, ["pool", "used"]);
        assert_eq!(answers[0].rows, [row("pages", 7), row("b", 2), row("c", 3)]);
        assert_eq!(h.block().0.gatherings(), 0);
    }

    #[test]
    fn a_thread_that_is_late_is_named() {
        let mut h = harness(0, THREADS);
        ask(&mut h, API, 77, InfoTable::Pools);
        let tag = sent(&mut h).0[0].1;
        confirm(&mut h, 1, tag, vec![row("b", 2)]);
        h.advance(ANSWER_TIME);
        let (_, answers) = sent(&mut h);
        let expected = [row("pages", 7), row("b", 2), note("threads that did not answer in time: [2]")];
        assert_eq!(answers[0].rows, expected);
        confirm(&mut h, 2, tag, vec![row("c", 3)]);
        assert!(h.take_sent().is_empty() && h.block().0.gatherings() == 0);
    }

    #[test]
    fn a_thread_alone_answers_at_once() {
        let mut h = harness(0, 1);
        ask(&mut h, API, 1, InfoTable::Pools);
        ask(&mut h, API, 2, InfoTable::Memory);
        let (_, answers) = sent(&mut h);
        assert_eq!(answers[0].rows, [row("pages", 7)]);
        assert!(answers[1].rows.is_empty() && answers[1].columns.len() == 2);
        let mut h = harness(2, THREADS);
        ask(&mut h, info(0), 9, InfoTable::Pools);
        assert_eq!(h.take_sent()[0].receiver(), info(0));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut h = harness(2, THREADS);
        ask(&mut h, API, 1, InfoTable::Blocks);
        let (_, answers) = sent(&mut h);
        let kept = answers[0].rows.len() - 1;
        let text = format!("{} more rows of thread 2 do not fit the answer", 1000 - kept);
        assert_eq!(answers[0].rows[kept], note(&text));
        assert!((80..100).contains(&kept), "{kept}");
        // All threads have more than fits: their rows come one thread after the other until the answer is full.
        let mut h = harness(0, THREADS);
        ask(&mut h, API, 1, InfoTable::Blocks);
        let tag = sent(&mut h).0[0].1;
        confirm(&mut h, 1, tag, answers[0].rows.clone());
        confirm(&mut h, 2, tag, vec![row("c", 3)]);
        let (_, answers) = sent(&mut h);
        let missing = 1000 - kept + kept + 2;
        assert_eq!(answers[0].rows[kept], note(&format!("{missing} more rows do not fit the answer")));
    }

    #[test]
    fn what_was_not_put_together_is_counted() {
        let mut h = harness(0, 1);
        ask(&mut h, API, 1, InfoTable::Transactions);
        let (_, answers) = sent(&mut h);
        assert_eq!(answers[0].rows, [row("one", 1), note("7 more rows do not fit the answer")]);
    }

    #[test]
    fn gatherings_are_bounded_and_end_with_their_requester() {
        let mut h = harness(0, THREADS);
        for request in 0..GATHERINGS_MAX as u32 + 1 {
            ask(&mut h, API, request, InfoTable::Pools);
        }
        let (_, answers) = sent(&mut h);
        let refused = note("other threads were not asked: too many requests are under way");
        assert_eq!(answers[0].rows, [row("pages", 7), refused]);
        assert_eq!((answers.len(), h.block().0.gatherings()), (1, GATHERINGS_MAX));
        let body = ApiNodeBody::new(API.node(), Incarnation(7));
        h.send(MEMBERSHIP, SignalNumber::ApiConnectionClosedOrder, |w| {
            w.put(&body);
        })
        .expect("a block may send this");
        assert_eq!(h.take_sent()[0].signal(), SignalNumber::ApiConnectionClosedConfirm);
        assert_eq!(h.block().0.gatherings(), 0);
        h.advance(ANSWER_TIME);
        assert!(h.take_sent().is_empty());
    }

    fn set(h: &mut Harness<Hosted>, parameter: u16, value: u64) {
        let body = ParameterSetRequest { request: 5, change: ParameterChange { parameter, value } };
        h.send(API, SignalNumber::ParameterSetRequest, |w| cold::write(w, &body))
            .expect("an API node may ask");
    }

    #[test]
    fn a_parameter_is_set_on_all_threads_of_all_data_nodes() {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
        let view = ClusterView::first(vec![member(1), member(2)]);
        let mut h = Harness::new(info(0), 1, view, Hosted(Info::new(THREADS)));
        let parameter = LiveParameter::TimeBetweenEpochs as u16;
        set(&mut h, parameter, 10);
        let sent = h.take_sent();
        let (orders, confirms): (Vec<_>, Vec<_>) =
            sent.iter().partition(|one| one.signal() == SignalNumber::ParameterOrder);
        let receivers: Vec<Address> = orders.iter().map(|one| one.receiver()).collect();
        // Its own thread has carried it out.
        assert_eq!(receivers, [Address::new(NodeId(2), BlockNumber::Info, 0), info(1), info(2)]);
        for order in orders {
            assert_eq!(cold::read(&order.frame()), Some(ParameterChange { parameter, value: 10 }));
        }
        assert_eq!(confirms.len(), 1);
        assert_eq!(cold::read(&confirms[0].frame()), Some(ParameterSetConfirm { request: 5 }));
    }

    #[test]
    fn a_parameter_that_cant_have_a_value_is_refused() {
        let mut h = harness(0, THREADS);
        let disk = LiveParameter::MinDiskWriteSpeed as u16;
        for (parameter, value, reason) in [
            (0, 1, "this version has no live parameter with the number 0"),
            (LiveParameter::TimeBetweenEpochs as u16, 0, "TimeBetweenEpochs may be 1 to 32000 ms, not 0"),
            (disk, 2 << 20, "MinDiskWriteSpeed has no effect: the data nodes keep nothing on disk"),
        ] {
            set(&mut h, parameter, value);
            let sent = h.take_sent();
            assert_eq!((sent.len(), sent[0].signal()), (1, SignalNumber::ParameterSetRefuse));
            let refusal: Refusal = cold::read(&sent[0].frame()).expect("well-formed");
            assert_eq!((refusal.request, refusal.code), (5, ErrorCode::BadParameter as u16));
            assert_eq!(refusal.detail, reason);
        }
    }

    fn ask_to_stop(h: &mut Harness<Hosted>, terms: ShutdownTerms) -> Vec<(Address, SignalNumber, String)> {
        let body = ShutdownRequest { request: 5, terms, starts_again: false };
        h.send(API, SignalNumber::ShutdownRequest, |w| cold::write(w, &body)).expect("an API node may ask");
        let mut sent = h.take_sent();
        // The other members permit it.
        while let Some(at) = sent.iter().position(|one| one.signal() == SignalNumber::ShutdownPermitRequest) {
            let asked = sent.remove(at);
            let body: ShutdownPermitRequest = cold::read(&asked.frame()).expect("well-formed");
            let body = ShutdownPermitBody { request: body.request };
            h.send(asked.receiver(), SignalNumber::ShutdownPermitConfirm, |w| cold::write(w, &body))
                .expect("a block may answer");
            sent.extend(h.take_sent());
        }
        // And agreement.
        sent.retain(|one| {
            let is_check = one.signal() == SignalNumber::ShutdownCheckRequest;
            if is_check {
                h.send(one.receiver(), SignalNumber::ShutdownCheckConfirm, |_| {}).expect("a block may");
            }
            !is_check
        });
        h.advance(Span::from_millis(10));
        let sent = sent.into_iter().chain(h.take_sent());
        sent.map(|one| {
            let refusal = (one.signal() == SignalNumber::ShutdownRefuse)
                .then(|| cold::read::<Refusal>(&one.frame()).expect("well-formed"));
            if let Some(Refusal { request, code, .. }) = refusal {
                assert_eq!((request, code), (5, ErrorCode::NodeIsNeeded as u16));
            }
            (one.receiver(), one.signal(), refusal.map_or_else(String::new, |refusal| refusal.detail))
        })
        .collect()
    }

    #[test]
    fn a_node_stops_once_that_is_confirmed_unless_the_others_need_it() {
        let driver = Address::new(NODE, BlockNumber::Driver, 0);
        let stops = [(API, SignalNumber::ShutdownConfirm), (driver, SignalNumber::ShutdownOrder)]
            .map(|(to, signal)| (to, signal, String::new()));
        let member =
            |node, group, coordinators| Member::started(NodeId(node), Incarnation(1), group, 1, coordinators);
        let among =
            |members| Harness::new(info(0), 1, ClusterView::first(members), Hosted(Info::new(THREADS)));
        let mut pair = among(vec![member(1, 0, 1), member(2, 0, 1)]);
        assert_eq!(ask_to_stop(&mut pair, ShutdownTerms::IfDispensable), stops);
        for (others, why) in [
            (vec![member(1, 0, 1), member(2, 1, 1)], "the last one of node group 0"),
            (vec![member(1, 0, 1), member(2, 0, 0)], "the last one with coordinators"),
            (vec![member(1, 0, 1)], "the last one of node group 0"),
        ] {
            let mut h = among(others);
            let answer = ask_to_stop(&mut h, ShutdownTerms::IfDispensable);
            assert!(answer.len() == 1 && answer[0].2.contains(why), "{answer:?}");
            assert_eq!(answer[0].1, SignalNumber::ShutdownRefuse);
            assert_eq!(ask_to_stop(&mut h, ShutdownTerms::InAnyCase), stops);
        }
        // One that has not all rows yet may always go.
        let copying = Member { state: MemberState::Copying, ..member(1, 0, 1) };
        let mut h = among(vec![copying, member(2, 0, 1)]);
        assert_eq!(ask_to_stop(&mut h, ShutdownTerms::IfDispensable), stops);
    }

    proptest::proptest! {
        /// Whatever an API node puts into a signal to info, the block lives on and answers or closes.
        #[test]
        fn malformed_bodies_do_no_harm(number in 0u16..200, body in proptest::collection::vec(0u8.., 0..40)) {
            let mut h = harness(0, THREADS);
            if let Some(signal) = SignalNumber::from_number(number) {
                for length in [None, Some((body.len() as u32).to_le_bytes())] {
                    let fed = h.send(API, signal, |w| {
                        w.bytes(length.as_ref().map_or(&[], |l| &l[..])).bytes(&body);
                    });
                    assert!(fed.is_err() || !h.take_sent().is_empty());
                }
            }
        }
    }
}
