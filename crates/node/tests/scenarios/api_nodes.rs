//! API nodes that come, go, and do what no client of ours does: what they send may neither stop a data node nor leave
//! anything behind.

use crate::support::{ALL, API, Cluster, Op, Received, Setup, TC, committed, open, refused, row, strict, tc};
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_kernel::Span;
use vinga_wire::dictionary::NamedTableRequest;
use vinga_wire::epoch::EPOCH_LEAP_MAX;
use vinga_wire::operation::OperationKind::ReadExclusive;
use vinga_wire::transaction::{FLAG_ROLLBACK_TO, FLAG_START, OutcomeRequest, OutcomesSeenOrder};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, U32, U64, cold};

/// A node whose drivers are expected to report within this time.
const REPORT_TIME: Span = Span::from_millis(1500);

fn with_short_heartbeat() -> Cluster {
    Cluster::with(&Setup { nodes: 1, heartbeat_interval: REPORT_TIME, ..Setup::default() })
}

/// Asks for a row's lock by a transaction of an open one.
fn lock(c: &mut Cluster, id: TransactionId, key: u64) -> Vec<Received> {
    c.batch(id, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, key)]));
    c.received()
}

/// A thread does not run for longer than a heartbeat period while an API node is closed: membership goes on without its
/// report. What the thread had read is passed on to a coordinator afterwards.
#[test]
fn what_a_late_driver_passes_on_is_not_carried_out() {
    let mut c = with_short_heartbeat();
    c.at_once(&[Op::Insert(row(1, 1))]);
    c.greet(0, 1);
    c.greet(1, 2);
    let held = c.begin();
    c.received();
    assert!(lock(&mut c, held, 1).contains(&open(1)));
    c.disconnected(0);
    c.advance(REPORT_TIME + Span::from_millis(1));
    // The lock is free although the driver of the second connection has not reported.
    assert_eq!(c.received(), [refused(1, ErrorCode::ConnectionLost, 0)]);
    let id = c.begin();
    assert_eq!(lock(&mut c, id, 1), [refused(1, ErrorCode::ConnectionLost, 0)]);
    c.send(SignalNumber::OutcomeRequest, TC, |w| {
        w.put(&OutcomeRequest { transaction: U64::new(id.0), request: U32::new(1) });
    });
    assert_eq!(c.received(), [], "nobody waits for an answer");
    let partition = c.partition_of(1);
    c.open_scan(partition, c.owner_of(1), None, 1);
    assert_eq!(c.received(), []);
    // The session may come back, but not before the late driver has passed everything on.
    c.greet(0, 3);
    assert_eq!(c.received(), []);
    c.disconnected(1);
    assert_eq!(c.received(), [Received::Admitted(3)]);
    let again = c.begin();
    assert!(lock(&mut c, again, 1).contains(&open(1)));
    c.disconnected(0);
    c.received();
    // The grace time is over.
    c.advance(Span::from_millis(4_000));
    assert!(c.is_at_rest());
}

/// The session has incarnation 1. What names transactions of another one begins nothing, and ends with the session.
#[test]
fn transactions_of_another_incarnation_are_not_the_api_nodes_own() {
    let foreign = TransactionId::new(API.node(), Incarnation(9), 1);
    let closed = [Received::Closed(ErrorCode::NotYourTransaction)];
    let mut c = Cluster::new(1);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 1))]), [committed(1)]);
    assert_eq!(lock(&mut c, foreign, 1), closed);
    c.batch(foreign, ALL, 1, &strict(&[Op::Insert(row(2, 1))]));
    assert_eq!(c.received(), closed);
    c.send(SignalNumber::OutcomeRequest, TC, |w| {
        w.put(&OutcomeRequest { transaction: U64::new(foreign.0), request: U32::new(1) });
    });
    assert_eq!(c.received(), closed);
    c.send(SignalNumber::OutcomesSeenOrder, TC, |w| {
        w.put(&OutcomesSeenOrder { owner: U64::new(foreign.0), outcomes_seen: U32::new(1) });
    });
    assert_eq!(c.received(), closed);
    let partition = c.partition_of(1);
    c.open_scan(partition, c.owner_of(1), Some((foreign, 1)), 1);
    assert_eq!(c.received(), closed);
    c.send_read(c.owner_of(1), 1, Some((foreign, 1)));
    assert_eq!(c.received(), closed);
    c.api_is_gone();
    assert!(c.is_at_rest());
    let outcomes: usize =
        c.node(1).coordinators().iter().map(vinga_coordinator::Coordinator::unconfirmed_outcomes).sum();
    assert_eq!(outcomes, 0, "nobody will ever ask for them");
    // Who comes next finds no locks.
    c.api_is_back();
    assert_eq!(c.at_once(&[Op::Add(1, 1)]), [committed(1)]);
}

/// One id at two coordinators, the second with earlier operation numbers than the first.
#[test]
fn a_transaction_has_one_coordinator_at_all_data_managers() {
    let mut c = Cluster::with(&Setup { nodes: 3, coordinators: 2, ..Setup::default() });
    let one = c.keys_at(1).next().expect("it owns rows");
    c.at_once(&[Op::Insert(row(one, 1))]);
    let id = c.begin();
    c.batch_at(tc(1), id, FLAG_START, 10, 0, &strict(&[Op::Add(one, 1)]));
    assert_eq!(c.received(), [open(10)]);
    let again = |c: &mut Cluster| {
        c.batch_at(tc(2), id, FLAG_START, 5, 0, &strict(&[Op::Add(one, 1)]));
        c.received()
    };
    assert_eq!(again(&mut c), [refused(5, ErrorCode::NotYourTransaction, 5)]);
    assert_eq!(again(&mut c), [refused(5, ErrorCode::MalformedSignal, 0)], "its number is used up there");
    c.batch_at(tc(1), id, FLAG_ROLLBACK_TO, 20, 8, &[]);
    c.received();
    c.api_is_gone();
    assert!(c.is_at_rest());
    assert_eq!(c.read(&[one], None), [Some(row(one, 1))], "what was open is undone");
}

/// A coordinator has believed the greatest epoch that it may. Who reads what was committed there is no liar, whichever
/// coordinator it sends that to next, and however far that one lags behind.
#[test]
fn an_epoch_that_a_data_node_gave_disconnects_nobody() {
    let mut c = Cluster::with(&Setup { nodes: 2, coordinators: 2, ..Setup::default() });
    let distribution = Address::new(NodeId(1), BlockNumber::Distribution, 0);
    c.at_once(&[Op::Insert(row(1, 1))]);
    c.hold(distribution, tc(2));
    c.advance(Span::from_millis(150));
    c.at_once(&[Op::Add(1, 1)]);
    let add_with = |c: &mut Cluster, node: u8, request: u32, seen: u64| {
        let id = c.begin();
        let mut bytes = c.batch_bytes(tc(node), id, ALL, request, 0, &strict(&[Op::Add(1, 1)]));
        bytes[28..36].copy_from_slice(&seen.to_le_bytes());
        c.send_bytes(node, &bytes);
        c.received()
    };
    let seen = c.epoch_received() + EPOCH_LEAP_MAX;
    assert_eq!(add_with(&mut c, 1, 7, seen), [committed(7)]);
    assert_eq!(add_with(&mut c, 2, 8, seen), [refused(8, ErrorCode::EpochNotKnown, 0)]);
    c.release(distribution, tc(2));
    assert_eq!(add_with(&mut c, 2, 9, seen), [committed(9)]);
}

/// With leaps without end a client would use up all epochs in an hour, and the node would stop.
#[test]
fn epochs_are_not_used_up_by_a_client_that_leaps_again_and_again() {
    let mut c = Cluster::with(&Setup { nodes: 1, ..Setup::default() });
    c.at_once(&[Op::Insert(row(1, 1))]);
    let mut newest = 0;
    let mut add_with = |request: u32, leap: u64, wait: Span| {
        c.advance(wait);
        // A refusal has no epoch.
        newest = c.epoch_received().max(newest);
        let seen = newest + leap;
        let id = c.begin();
        let mut bytes = c.batch_bytes(tc(1), id, ALL, request, 0, &strict(&[Op::Add(1, 1)]));
        bytes[28..36].copy_from_slice(&seen.to_le_bytes());
        c.send_bytes(1, &bytes);
        c.received()
    };
    assert_eq!(add_with(7, EPOCH_LEAP_MAX, Span(0)), [committed(7)]);
    assert_eq!(add_with(8, EPOCH_LEAP_MAX, Span(0)), [refused(8, ErrorCode::EpochNotKnown, 0)]);
    assert_eq!(add_with(9, 50_000, Span(0)), [refused(9, ErrorCode::EpochNotKnown, 0)]);
    // What a client that has read from another node may have seen meanwhile.
    assert_eq!(add_with(10, 50_000, Span::from_millis(600)), [committed(10)]);
    assert_eq!(add_with(11, 0, Span(0)), [committed(11)]);
}

/// Two dictionaries would give one id to two tables.
#[test]
fn a_dictionary_that_does_not_lead_refuses_changes() {
    let mut c = Cluster::new(2);
    let elsewhere = Address::new(NodeId(2), BlockNumber::Dictionary, 0);
    c.send(SignalNumber::DropTableRequest, elsewhere, |w| {
        cold::write(w, &NamedTableRequest { request: 1, name: "test.t".into() });
    });
    let received = c.received();
    assert!(format!("{received:?}").contains("DropTableRefuse"), "{received:?}");
    assert_eq!(c.at_once(&[Op::Insert(row(1, 1))]), [committed(1)], "the table is there");
}
