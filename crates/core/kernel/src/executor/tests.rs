//! How signals pass through an executor.

use super::*;
use crate::outbox::Routes;
use alloc::vec;
use core::cell::RefCell;
use vinga_base::Incarnation;
use vinga_base::time::Span;
use vinga_wire::agreement::LinkBody;
use vinga_wire::frame::HEADER_BYTES;
use vinga_wire::view::Member;

const NODE: NodeId = NodeId(1);
const TC: Address = Address::new(NODE, BlockNumber::Coordinator, 0);
const API: Address = Address::new(NodeId(200), BlockNumber::Api, 0);

/// Records the frames that it receives; answers `OutcomeRequest` by a local signal, which answers the API node.
#[derive(Default)]
struct Echo {
    prefetched: RefCell<Vec<(Prefetch, u32)>>,
    handled: Vec<(SignalNumber, u32)>,
    slices: u32,
    /// What blocks might do in the background, one after the other.
    background: Vec<u32>,
    views_adopted: u32,
}

/// View 1 of a cluster of three nodes.
fn view() -> ClusterView {
    let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
    ClusterView::first(vec![member(1), member(2), member(3)])
}

/// The order to adopt view 2, in which node 2 has failed.
fn view_change() -> Vec<u8> {
    let mut bytes = vec![];
    let mut writer = FrameWriter::begin(&mut bytes, SignalNumber::ViewChangedOrder, 2, TC, TC, 20);
    cold::write(&mut writer, &view().without(&[NodeId(2)]));
    drop(writer);
    bytes
}

impl Host for Echo {
    fn start(&mut self, _: &mut Context<'_>) {}

    fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) -> bool {
        let trace = frame.header.trace.get();
        self.prefetched.borrow_mut().push((pass, trace));
        // Only these have something for a second pass.
        pass == Prefetch::Index && trace < 10
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let signal = frame.signal().unwrap();
        self.handled.push((signal, frame.header.trace.get()));
        match signal {
            SignalNumber::OutcomeRequest => drop(cx.frame(SignalNumber::CompleteOrder, TC)),
            SignalNumber::CompleteOrder => {
                drop(cx.frame(SignalNumber::OutcomeConfirm, API));
                cx.send_after(Span(10), 5);
            }
            SignalNumber::EpochClaimReport => cx.reject(frame, ErrorCode::UnexpectedSignal),
            _ => {}
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        assert!(change.old.number() < change.new.number() && change.new.number() == cx.view().number());
        self.views_adopted += 1;
    }

    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        self.slices += 1;
        self.background = vec![cx.background_units(), cx.background_units()];
        false
    }
}

fn executor() -> (Executor<Echo>, LaneId) {
    executor_in(view())
}

fn executor_in(view: ClusterView) -> (Executor<Echo>, LaneId) {
    let mut routes = Routes::new(NODE, 0);
    routes.add_instance(BlockNumber::Coordinator, 0);
    let mut outbox = Outbox::new(routes, 1, 1000);
    let lane = outbox.open_lane(0);
    outbox.routes.set_node(API.node(), Some(lane));
    (Executor::new(NODE, Arc::new(view), Echo::default(), outbox, 1, Tick(0)), lane)
}

fn frames(number: SignalNumber, sender: Address, view: u8, traces: core::ops::Range<u32>) -> Vec<u8> {
    let mut bytes = vec![];
    for trace in traces {
        FrameWriter::begin(&mut bytes, number, view, TC, sender, trace);
    }
    bytes
}

#[test]
fn a_turn_finishes_what_it_began() {
    let (mut executor, lane) = executor();
    let bytes = frames(SignalNumber::OutcomeRequest, API, 0, 0..100);
    executor.begin_turn(Tick(5));
    // Half a frame at the end stays with the driver.
    let consumed = executor.feed(&bytes[..bytes.len() - 4], Origin::Api(API.node())).unwrap();
    assert_eq!(consumed, bytes.len() - HEADER_BYTES);
    assert!(!executor.finish_turn());
    let answers: Vec<u32> = Frames(executor.outbox().lane(lane)).map(|f| f.header.trace.get()).collect();
    assert_eq!(answers, (0..99).collect::<Vec<u32>>());
    let of = |e: &Executor<Echo>, s| e.host().handled.iter().filter(|(n, _)| *n == s).count();
    assert_eq!(of(&executor, SignalNumber::CompleteOrder), 99);
    assert_eq!(of(&executor, SignalNumber::TimerReport), 0);
    assert_eq!(executor.next_due(), Some(Tick(15)));
    executor.begin_turn(Tick(15));
    executor.finish_turn();
    assert_eq!(of(&executor, SignalNumber::TimerReport), 99);
    assert_eq!(executor.host().slices, 2);
    assert!(executor.is_idle());
}

#[test]
fn one_block_works_in_the_background_while_it_is_to_be_brief() {
    let (mut executor, _) = executor();
    executor.set_slice_units(100);
    for (is_brief, expected) in [(false, [100, 100]), (true, [1, 0]), (true, [1, 0]), (false, [100, 100])] {
        executor.set_brief(is_brief);
        executor.begin_turn(Tick(1));
        executor.run_slices();
        assert_eq!(executor.host().background, expected);
        assert_eq!(executor.was_brief(), is_brief);
    }
}

#[test]
fn what_follows_is_left_and_stays_in_order() {
    let (mut executor, lane) = executor();
    executor.set_patient(true);
    let traces = |e: &mut Executor<Echo>| -> Vec<u32> {
        Frames(e.outbox().lane(lane)).map(|f| f.header.trace.get()).collect()
    };
    let api = Origin::Api(API.node());
    let bytes = frames(SignalNumber::OutcomeRequest, API, 0, 0..100);
    // A batch, but none of the signals that follow from it.
    let consumed = executor.feed(&bytes, api).unwrap();
    assert_eq!(consumed, BATCH_FRAMES * HEADER_BYTES);
    assert!(executor.has_local() && !executor.is_idle());
    let mut asked = 0;
    let goes_on = || {
        asked += 1;
        asked < 4
    };
    assert!(executor.drain_while(goes_on));
    assert_eq!(traces(&mut executor), (0..1 + 2 + 4 + 8).collect::<Vec<u32>>());
    // Another request is handled at once; its local signal is queued behind the others.
    executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 200..201), api).unwrap();
    assert_eq!(executor.handled(), 64 + 15 + 1);
    executor.finish_turn();
    assert!(executor.has_local());
    assert!(!executor.drain_while(|| true));
    let expected: Vec<u32> = (0..64).chain([200]).collect();
    assert_eq!(traces(&mut executor), expected);
    // Frames of other origins wait until the lane is empty.
    executor.feed(&bytes[consumed..], api).unwrap();
    assert!(executor.has_local());
    executor.feed(&frames(SignalNumber::EpochOrder, TC, 1, 300..301), Origin::Node).unwrap();
    assert!(!executor.has_local());
    assert_eq!(executor.host().handled.last(), Some(&(SignalNumber::EpochOrder, 300)));
    assert_eq!(traces(&mut executor).len(), 101);
}

#[test]
fn what_was_parked_comes_first_also_if_signals_are_left() {
    let (mut executor, _) = executor();
    executor.set_patient(true);
    let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
    executor.feed(&frames(SignalNumber::EpochOrder, peer, 2, 10..15), Origin::Peer(peer.node())).unwrap();
    let api = Origin::Api(API.node());
    executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 0..3), api).unwrap();
    assert!(executor.has_local());
    executor.feed(&view_change(), Origin::Node).unwrap();
    executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 30..31), api).unwrap();
    let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 10, 11, 12, 13, 14, 30]);
    assert_eq!(executor.host().views_adopted, 1);
}

#[test]
fn what_was_parked_of_a_member_that_the_view_has_lost_is_dropped() {
    let (mut executor, _) = executor();
    let of = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
    executor.feed(&frames(SignalNumber::EpochOrder, of(2), 2, 10..12), Origin::Peer(NodeId(2))).unwrap();
    executor.feed(&frames(SignalNumber::EpochOrder, of(3), 2, 12..14), Origin::Peer(NodeId(3))).unwrap();
    executor.feed(&view_change(), Origin::Node).unwrap();
    let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
    assert_eq!(order, [12, 13]);
    assert!(executor.is_idle());
}

/// A data node joins in a view whose low byte makes number 0 look like a later one.
#[test]
fn what_a_block_has_sent_before_its_node_had_a_view_is_handled_in_the_first_one() {
    for number in [2, 100, 200, 256, 300] {
        let (mut executor, _) = executor_in(ClusterView::default());
        // The request is handled, and what follows from it waits.
        let request = frames(SignalNumber::OutcomeRequest, API, 0, 1..2);
        executor.feed(&request, Origin::Api(API.node())).unwrap();
        executor.finish_turn();
        assert!(executor.parked_bytes() > 0);
        let mut first = view();
        while first.number().0 < number {
            let back = first.member(NodeId(2)).unwrap().clone();
            first = first.without(&[NodeId(2)]).with_joined(back);
        }
        let mut order = vec![];
        let mut writer = FrameWriter::begin(
            &mut order,
            SignalNumber::ViewChangedOrder,
            first.number().0 as u8,
            TC,
            TC,
            20,
        );
        cold::write(&mut writer, &first);
        drop(writer);
        executor.feed(&order, Origin::Node).unwrap();
        executor.finish_turn();
        let handled: Vec<SignalNumber> = executor.host().handled.iter().map(|&(signal, _)| signal).collect();
        assert_eq!(handled, [SignalNumber::OutcomeRequest, SignalNumber::CompleteOrder], "view {number}");
        assert!(executor.is_idle());
    }
}

#[test]
fn what_an_api_node_may_not_send_is_rejected() {
    let (mut executor, _) = executor();
    let api = Origin::Api(API.node());
    let rejected = |e: &mut Executor<Echo>, bytes: &[u8]| e.feed(bytes, api).unwrap_err();
    let internal = frames(SignalNumber::CommitRequest, API, 0, 0..1);
    assert_eq!(rejected(&mut executor, &internal).code, ErrorCode::UnexpectedSignal);
    let forged = frames(SignalNumber::OutcomeRequest, TC, 0, 0..1);
    assert_eq!(rejected(&mut executor, &forged).code, ErrorCode::UnexpectedSignal);
    let mut unknown = frames(SignalNumber::OutcomeRequest, API, 0, 0..1);
    unknown[4..6].copy_from_slice(&9999u16.to_le_bytes());
    assert_eq!(
        rejected(&mut executor, &unknown),
        Rejected { code: ErrorCode::UnexpectedSignal, signal: 9999 }
    );
    let mut nobody = frames(SignalNumber::OutcomeRequest, API, 0, 0..1);
    nobody[8..10].copy_from_slice(&7u16.to_le_bytes());
    assert_eq!(rejected(&mut executor, &nobody).code, ErrorCode::UnexpectedSignal);
    assert_eq!(rejected(&mut executor, &[0xff; 64]).code, ErrorCode::MalformedFrame);
    assert!(executor.host().handled.is_empty());
}

#[test]
fn what_another_data_node_may_not_send_is_rejected() {
    let (mut executor, _) = executor();
    let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
    let mut code = |signal, sender, receiver: Address| {
        let mut bytes = vec![];
        FrameWriter::begin(&mut bytes, signal, 1, receiver, sender, 0);
        let Rejected { code, signal: number } = executor.feed(&bytes, Origin::Peer(peer.node())).unwrap_err();
        assert_eq!((code, number), (ErrorCode::UnexpectedSignal, signal as u16));
    };
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    code(SignalNumber::OutcomeRequest, peer, TC);
    code(SignalNumber::TimerReport, peer, TC);
    code(SignalNumber::ViewChangedOrder, peer, TC);
    code(SignalNumber::StopNodeOrder, peer, driver(NODE));
    // Of another node, of this one, of no block; and for a driver, another node, a block that is not there.
    code(SignalNumber::EpochOrder, Address::new(NodeId(2), BlockNumber::Coordinator, 0), TC);
    code(SignalNumber::EpochOrder, TC, TC);
    code(SignalNumber::EpochOrder, driver(peer.node()), TC);
    code(SignalNumber::EpochOrder, peer, driver(NODE));
    code(SignalNumber::EpochOrder, peer, API);
    code(SignalNumber::EpochOrder, peer, Address::new(NODE, BlockNumber::Coordinator, 1));
    assert!(executor.host().handled.is_empty());
}

#[test]
fn nothing_more_is_handled_of_a_data_node_that_a_block_has_rejected() {
    let (mut executor, _) = executor();
    let of = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
    let rejected = frames(SignalNumber::EpochClaimReport, of(2), 1, 1..4);
    executor.feed(&rejected, Origin::Peer(NodeId(2))).unwrap();
    executor.feed(&frames(SignalNumber::EpochOrder, of(2), 1, 4..6), Origin::Peer(NodeId(2))).unwrap();
    executor.feed(&frames(SignalNumber::EpochOrder, of(3), 1, 6..8), Origin::Peer(NodeId(3))).unwrap();
    let traces: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
    assert_eq!(traces, [1, 6, 7]);
    let orders: Vec<LinkBody> = Frames(executor.outbox().lane(LaneId::DRIVER))
        .map(|frame| {
            assert_eq!(frame.signal(), Some(SignalNumber::LinkCloseOrder));
            cold::read(&frame).unwrap()
        })
        .collect();
    assert_eq!(orders, [LinkBody { node: NodeId(2), incarnation: Incarnation(1), is_gone: false }]);
    let log = executor.take_log();
    let [entry] = &log[..] else { panic!("{log:?}") };
    assert!(entry.text.contains("data node 2") && entry.text.contains("signal 32"), "{}", entry.text);
    // Its id may be another node's when it has been left out.
    executor.feed(&view_change(), Origin::Node).unwrap();
    assert!(executor.shared.rejected.is_empty());
}

#[test]
#[should_panic(expected = "1/Coordinator/0 sent signal 32, which can't be handled")]
fn a_signal_of_an_own_block_that_can_not_be_handled_stops_the_node() {
    let (mut executor, _) = executor();
    let _ = executor.feed(&frames(SignalNumber::EpochClaimReport, TC, 1, 1..2), Origin::Node);
}

#[test]
fn frames_of_a_newer_view_wait() {
    let (mut executor, _) = executor();
    let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
    executor.feed(&frames(SignalNumber::EpochOrder, peer, 2, 10..12), Origin::Peer(peer.node())).unwrap();
    executor.feed(&frames(SignalNumber::EpochOrder, peer, 1, 12..13), Origin::Peer(peer.node())).unwrap();
    assert!(!executor.is_idle());
    // The failure and a later frame of the newer view in one batch: the parked ones still come first.
    let mut batch = view_change();
    batch.extend(frames(SignalNumber::EpochOrder, peer, 2, 14..15));
    executor.feed(&batch, Origin::Node).unwrap();
    let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
    assert_eq!(order, [12, 10, 11, 14]);
    // The same order once more changes nothing.
    executor.feed(&view_change(), Origin::Node).unwrap();
    assert_eq!(executor.host().views_adopted, 1);
    assert!(executor.is_idle());
}

#[test]
fn each_pass_sees_the_whole_batch() {
    let (mut executor, _) = executor();
    executor.feed(&frames(SignalNumber::EpochOrder, TC, 1, 0..70), Origin::Node).unwrap();
    let prefetched = executor.host().prefetched.borrow();
    let passes = [(Prefetch::Index, 0..64), (Prefetch::Row, 0..64), (Prefetch::Index, 64..70)];
    let expected = passes.into_iter().flat_map(|(pass, batch)| batch.map(move |trace| (pass, trace)));
    assert_eq!(*prefetched, expected.collect::<Vec<(Prefetch, u32)>>());
    assert_eq!(executor.handled(), 70);
}
