//! API nodes that come, go, and do what no client of ours does: what they send may neither stop a data node nor leave
//! anything behind.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use support::{ALL, API, Cluster, Op, Received, Setup, TC, committed, open, refused, row, strict};
use vinga_base::{Incarnation, TransactionId};
use vinga_kernel::Span;
use vinga_wire::operation::OperationKind::ReadExclusive;
use vinga_wire::transaction::{FLAG_START, OutcomeRequest, OutcomesSeenOrder};
use vinga_wire::{ErrorCode, SignalNumber, U32, U64};

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
    let outcomes: usize = c.node(1).coordinators().iter().map(|t| t.unconfirmed_outcomes()).sum();
    assert_eq!(outcomes, 0, "nobody will ever ask for them");
    // Who comes next finds no locks.
    c.api_is_back();
    assert_eq!(c.at_once(&[Op::Add(1, 1)]), [committed(1)]);
}
