//! Unique indexes within transactions, as scenarios.

use crate::support::unique::{ON_NUMBER, ON_TEXT};
use crate::support::{
    ALL, Cluster, Op, Received, Row, Setup, TC, check_golden, committed, dm, open, refused, row, strict,
};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::ErrorCode::{self, DuplicateKey};
use vinga_wire::SignalNumber;
use vinga_wire::operation::OperationKind::{ReadCommitted, ReadExclusive, ReadShared};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

fn cluster(nodes: u8) -> Cluster {
    broken(nodes, None)
}

fn broken(nodes: u8, bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes, unique: true, bug, ..Setup::default() })
}

/// A row without a text.
fn bare(key: u64, n: i64) -> Row {
    Row(key, n, None)
}

fn text(key: u64, n: i64, s: &str) -> Row {
    Row(key, n, Some(s.into()))
}

/// Everything has ended, and the hidden rows are what the rows say: so many.
fn at_rest(c: &mut Cluster, hidden: usize) {
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
    assert_eq!(c.check_unique(), hidden);
}

fn alone(ops: &[Op]) -> Vec<(Op, bool)> {
    ops.iter().map(|op| (op.clone(), true)).collect()
}

fn confirmed(request: u32, outcome: u8, errors: &[(u32, ErrorCode)]) -> Received {
    Received::Confirm { request, outcome, errors: errors.to_vec() }
}

/// Some keys whose rows have their primary at a node.
fn keys<const N: usize>(c: &Cluster, node: u8) -> [u64; N] {
    let mut keys = c.keys_at(node);
    std::array::from_fn(|_| keys.next().expect("there are keys without end"))
}

/// Some numbers, from the first on, whose places in the index have their primary at a node.
fn numbers<const N: usize>(c: &Cluster, node: u8) -> [i64; N] {
    let mut numbers = (1..).filter(|&n| c.owner_of_number(n).node().0 == node);
    std::array::from_fn(|_| numbers.next().expect("there are numbers without end"))
}

#[test]
fn an_insert_an_update_and_a_delete_take_the_index_along() {
    let mut c = cluster(2);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 10))]), [committed(1)]);
    assert_eq!(c.check_unique(), 2);
    assert_eq!(c.at_once(&[Op::Set(1, 11)]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::Delete(1)]), [committed(1)]);
    at_rest(&mut c, 0);
    check_golden("unique-index.txt", &c.scenario());
}

#[test]
fn a_duplicate_names_its_index() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        assert_eq!(
            c.at_once(&[Op::Insert(text(1, 10, "ten")), Op::Insert(text(2, 20, "twenty"))]),
            [committed(1)]
        );
        let cases = [
            (Op::Insert(text(1, 30, "thirty")), 0),
            (Op::Insert(text(3, 10, "thirty")), ON_NUMBER),
            (Op::Insert(text(3, 30, "ten")), ON_TEXT),
            (Op::Write(text(2, 10, "thirty")), ON_NUMBER),
            (Op::Set(2, 10), ON_NUMBER),
            (Op::Add(2, -10), ON_NUMBER),
            (Op::SetText(2, "ten"), ON_TEXT),
        ];
        for (op, index) in cases {
            assert_eq!(c.at_once(std::slice::from_ref(&op)), [refused(1, DuplicateKey, 1)], "{op:?}");
            assert_eq!(c.blamed(), [index], "{op:?}");
            assert_eq!(
                c.read(&[1, 2, 3], None),
                [Some(text(1, 10, "ten")), Some(text(2, 20, "twenty")), None]
            );
        }
        at_rest(&mut c, 4);
    }
}

#[test]
fn rows_with_null_are_not_in_the_index() {
    let mut c = cluster(2);
    assert_eq!(c.at_once(&[Op::Insert(bare(1, 1)), Op::Insert(bare(2, 2))]), [committed(1)]);
    assert_eq!(c.check_unique(), 2, "by number only");
    assert_eq!(c.at_once(&[Op::SetText(1, "x")]), [committed(1)]);
    assert_eq!(c.check_unique(), 3);
    assert_eq!(c.at_once(&[Op::SetText(2, "x")]), [refused(1, DuplicateKey, 1)]);
    assert_eq!(c.at_once(&[Op::SetNull(1), Op::SetText(2, "x"), Op::SetNull(1)]), [committed(1)]);
    // The empty text is not NULL.
    assert_eq!(c.at_once(&[Op::SetText(1, "")]), [committed(1)]);
    assert_eq!(c.check_unique(), 4);
    assert_eq!(c.at_once(&[Op::SetText(2, "")]), [refused(1, DuplicateKey, 1)]);
    assert_eq!(c.at_once(&[Op::SetNull(1), Op::SetText(2, "")]), [committed(1)]);
    at_rest(&mut c, 3);
}

#[test]
fn there_and_back_within_a_transaction() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        c.at_once(&[Op::Insert(bare(1, 10))]);
        // In one batch.
        assert_eq!(c.at_once(&[Op::Set(1, 11), Op::Set(1, 12), Op::Set(1, 10)]), [committed(1)]);
        assert_eq!(
            c.at_once(&[Op::Delete(1), Op::Insert(bare(1, 10)), Op::Set(1, 11), Op::Set(1, 10)]),
            [committed(1)]
        );
        // In several.
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Set(1, 11)]));
        c.batch(id, 0, 2, &strict(&[Op::Set(1, 10)]));
        c.batch(id, 0, 3, &strict(&[Op::Insert(bare(2, 11))]));
        c.batch(id, FLAG_COMMIT, 4, &[]);
        assert_eq!(c.received(), [open(1), open(2), open(3), committed(4)]);
        at_rest(&mut c, 2);
    }
}

/// Rows and hidden rows are anywhere, so answers come in any order: the operations still count in theirs.
#[test]
fn rows_exchange_their_values() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        let rows: Vec<Op> = (1..=20).map(|key| Op::Insert(bare(key, key as i64))).collect();
        assert_eq!(c.at_once(&rows), [committed(1)]);
        for (a, b) in (1..=10).zip(11..=20) {
            let (x, y) = (a as i64, b as i64);
            // By way of a third value.
            assert_eq!(c.at_once(&[Op::Set(a, 99), Op::Set(b, x), Op::Set(a, y)]), [committed(1)]);
            // And back, by taking one away first.
            assert_eq!(c.at_once(&[Op::Delete(b), Op::Set(a, x), Op::Insert(bare(b, y))]), [committed(1)]);
            // Not without: the place is taken when the first comes.
            assert_eq!(c.at_once(&[Op::Set(a, y), Op::Set(b, x)]), [refused(1, DuplicateKey, 1)]);
        }
        // All move up by one, the last one first; then none of them may, the first one first.
        let up: Vec<Op> = (1..=20).rev().map(|key| Op::Add(key, 1)).collect();
        assert_eq!(c.at_once(&up), [committed(1)]);
        let up: Vec<Op> = (1..=20).map(|key| Op::Add(key, 1)).collect();
        let received = c.at_once(&up);
        assert!(matches!(received[..], [Received::Refuse { code: DuplicateKey, .. }]), "{received:?}");
        at_rest(&mut c, 20);
    }
}

#[test]
fn a_change_of_no_unique_column_touches_no_index() {
    let mut c = cluster(1);
    c.at_once(&[Op::Insert(bare(1, 10))]);
    let one_phase_commits = |c: &Cluster| -> u64 {
        c.node(1).data_managers().iter().map(|d| d.statistics().one_phase_commits).sum()
    };
    let operations =
        |c: &Cluster| -> u64 { c.node(1).data_managers().iter().map(|d| d.statistics().operations).sum() };
    let (in_one_phase, before) = (one_phase_commits(&c), operations(&c));
    for op in [Op::Set(1, 10), Op::Add(1, 0), Op::SetNull(1), Op::Write(bare(1, 10))] {
        assert_eq!(c.at_once(&[op]), [committed(1)]);
    }
    assert_eq!(
        (one_phase_commits(&c) - in_one_phase, operations(&c) - before),
        (4, 0),
        "prepared and committed in one step"
    );
    // What has to be followed is prepared first, and so is what follows: a delete and an insert.
    assert_eq!(c.at_once(&[Op::Set(1, 11)]), [committed(1)]);
    assert_eq!((one_phase_commits(&c) - in_one_phase, operations(&c) - before), (4, 3));
    at_rest(&mut c, 1);
}

#[test]
fn what_fails_alone_is_undone_alone() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        c.at_once(&[Op::Insert(text(1, 10, "ten")), Op::Insert(text(2, 20, "twenty"))]);
        let id = c.begin();
        let ops = alone(&[
            Op::Insert(text(3, 30, "thirty")),
            // The number is new, the text is not.
            Op::Insert(text(4, 40, "ten")),
            Op::Insert(text(5, 10, "fifty")),
            // Both the number's old place and its new one come back.
            Op::Write(text(2, 50, "ten")),
            // So they are as before for those behind.
            Op::Insert(text(6, 20, "sixty")),
            Op::Insert(text(7, 50, "seventy")),
        ]);
        c.batch(id, FLAG_START, 1, &ops);
        let errors = [(2, DuplicateKey), (3, DuplicateKey), (4, DuplicateKey), (5, DuplicateKey)];
        let received = c.received();
        let [Received::Confirm { request: 1, outcome: 0, errors: found }] = &received[..] else {
            panic!("{received:?}");
        };
        let mut found = found.clone();
        found.sort_unstable();
        assert_eq!(found, errors);
        let mut blamed = c.blamed().to_vec();
        blamed.sort_unstable();
        assert_eq!(blamed, [0, ON_NUMBER, ON_NUMBER, ON_TEXT, ON_TEXT]);
        assert_eq!(c.read(&[2, 4], Some((id, 9))), [Some(text(2, 20, "twenty")), None]);
        c.batch(id, FLAG_COMMIT, 7, &strict(&[Op::Set(3, 31)]));
        assert_eq!(c.received(), [committed(7)]);
        at_rest(&mut c, 8);
    }
}

/// SQL nodes count on it: REPLACE and ON DUPLICATE KEY UPDATE change the row that is in the way in the first index.
#[test]
fn of_two_duplicates_of_an_operation_the_first_index_is_named() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        let places: Vec<i64> = (1..=nodes.min(2)).flat_map(|node| numbers::<6>(&c, node)).collect();
        for (n, key) in places.into_iter().zip((0..).step_by(3)) {
            let s = format!("text {n}");
            c.at_once(&[Op::Insert(bare(key, n)), Op::Insert(text(key + 1, -n, &s))]);
            let id = c.begin();
            c.batch(id, ALL, 1, &alone(&[Op::Insert(text(key + 2, n, &s))]));
            assert_eq!(c.received(), [confirmed(1, 1, &[(1, DuplicateKey)])]);
            assert_eq!(c.blamed(), [0, ON_NUMBER], "{nodes} nodes, number {n}");
        }
    }
}

/// Who comes behind an operation that may fail alone, on the same row, sees what is left of it.
#[test]
fn operations_behind_one_that_fails_alone_see_that_it_was_undone() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        c.at_once(&[Op::Insert(bare(1, 10)), Op::Insert(bare(2, 20))]);
        let id = c.begin();
        let ops = alone(&[
            Op::Insert(bare(3, 10)),
            Op::Add(3, 5),
            Op::Set(2, 10),
            Op::Read(ReadCommitted, 2),
            Op::Add(2, 1),
            Op::Delete(2),
            Op::Insert(bare(2, 10)),
            Op::Insert(bare(2, 30)),
            Op::Find(ReadCommitted, 30),
            Op::Find(ReadCommitted, 20),
        ]);
        c.batch(id, FLAG_START | FLAG_COMMIT, 1, &ops);
        let errors = [(1, DuplicateKey), (2, ErrorCode::NoSuchRow), (3, DuplicateKey), (7, DuplicateKey)];
        let mut received = c.received();
        received.sort_by_key(|received| match received {
            Received::Row { operation, .. } => *operation,
            _ => u32::MAX,
        });
        // Answers of stages come one behind the other.
        assert_eq!(
            received,
            [
                Received::Row { operation: 4, row: Some(bare(2, 20)) },
                Received::Row { operation: 9, row: Some(Row(0, 0, None)) },
                Received::Row { operation: 10, row: None },
                confirmed(1, 1, &errors),
            ],
            "{nodes} nodes"
        );
        assert_eq!(c.read(&[1, 2, 3], None), [Some(bare(1, 10)), Some(bare(2, 30)), None]);
        at_rest(&mut c, 2);
    }
}

#[test]
fn a_partial_rollback_takes_the_index_along() {
    scenarios::a_partial_rollback_takes_the_index_along(None);
}

#[test]
fn a_place_in_the_index_is_locked_like_a_row() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        c.at_once(&[Op::Insert(bare(1, 10))]);
        for (end, expected) in [(FLAG_COMMIT, refused(1, DuplicateKey, 1)), (FLAG_ROLLBACK, committed(1))] {
            // One brings a number, the next one waits to see whether it stays.
            let (first, second) = (c.begin(), c.begin());
            c.batch(first, FLAG_START, 1, &strict(&[Op::Insert(bare(2, 20))]));
            c.batch(second, ALL, 1, &strict(&[Op::Insert(bare(3, 20))]));
            assert_eq!(c.received(), [open(1)]);
            c.batch(first, end, 2, &[]);
            assert!(c.received().contains(&expected));
            c.at_once(&[Op::Delete(2)]);
            c.at_once(&[Op::Delete(3)]);
        }
        for (end, expected) in [(FLAG_COMMIT, committed(1)), (FLAG_ROLLBACK, refused(1, DuplicateKey, 1))] {
            // One takes it away, the next one waits for the place.
            let (first, second) = (c.begin(), c.begin());
            c.batch(first, FLAG_START, 1, &strict(&[Op::Delete(1)]));
            c.batch(second, ALL, 1, &strict(&[Op::Insert(bare(4, 10))]));
            assert_eq!(c.received(), [open(1)]);
            c.batch(first, end, 2, &[]);
            assert!(c.received().contains(&expected));
            c.at_once(&[Op::Delete(4)]);
            c.at_once(&[Op::Write(bare(1, 10))]);
        }
        at_rest(&mut c, 1);
    }
}

/// Who reads by the index lets go of its lock there before it locks the row, or both would wait for each other.
#[test]
fn a_reader_by_index_lets_go_of_it_before_it_locks_the_row() {
    let mut c = cluster(2);
    c.at_once(&[Op::Insert(bare(1, 10))]);
    let (reader, writer) = (c.begin(), c.begin());
    c.batch(reader, FLAG_START, 1, &strict(&[Op::Find(ReadShared, 10)]));
    c.batch(writer, ALL, 1, &strict(&[Op::Set(1, 11)]));
    assert_eq!(
        c.received(),
        [Received::Row { operation: 1, row: Some(Row(0, 0, None)) }, open(1)],
        "the writer waits"
    );
    c.batch(reader, 0, 2, &strict(&[Op::Release(10, 1)]));
    assert_eq!(c.received(), [open(2), committed(1)]);
    c.batch(reader, FLAG_COMMIT, 3, &strict(&[Op::Read(ReadExclusive, 1)]));
    assert_eq!(c.received(), [Received::Row { operation: 3, row: Some(bare(1, 11)) }, committed(3)]);
    // One that does not let go makes the writer wait until its time is over, and the base row comes back too.
    let (reader, writer) = (c.begin(), c.begin());
    c.batch(reader, FLAG_START, 1, &strict(&[Op::Find(ReadShared, 11)]));
    c.batch(writer, ALL, 1, &strict(&[Op::Set(1, 12)]));
    c.received();
    c.advance(Span::from_millis(1300));
    assert_eq!(c.received(), [refused(1, ErrorCode::LockTimeout, 1)]);
    assert_eq!(c.blamed(), [ON_NUMBER]);
    // Alone it loses only that operation.
    let writer = c.begin();
    c.batch(writer, ALL, 1, &alone(&[Op::Set(1, 12), Op::Insert(bare(2, 20))]));
    c.advance(Span::from_millis(1300));
    assert_eq!(c.received(), [confirmed(1, 1, &[(1, ErrorCode::LockTimeout)])]);
    c.batch(reader, FLAG_ROLLBACK, 2, &[]);
    c.received();
    assert_eq!(c.read(&[1, 2], None), [Some(bare(1, 11)), Some(bare(2, 20))]);
    at_rest(&mut c, 2);
}

/// The first of two operations waits for its row, and then fails because of a place that the second one would free.
#[test]
fn the_second_waits_for_the_first_one_that_fails_alone() {
    for nodes in 1..=3 {
        let mut c = cluster(nodes);
        c.at_once(&[Op::Insert(bare(1, 10)), Op::Insert(bare(2, 20))]);
        let (holder, id) = (c.begin(), c.begin());
        c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadShared, 1)]));
        c.received();
        c.batch(id, ALL, 1, &alone(&[Op::Write(bare(1, 20)), Op::Write(bare(2, 30))]));
        assert_eq!(c.received(), []);
        c.batch(holder, FLAG_COMMIT, 2, &[]);
        assert_eq!(c.received(), [committed(2), confirmed(1, 1, &[(1, DuplicateKey)])]);
        assert_eq!(c.read(&[1, 2], None), [Some(bare(1, 10)), Some(bare(2, 30))]);
        at_rest(&mut c, 2);
    }
}

/// Two transactions take each other's values: one of them gives way, by the search within a data manager or in time.
#[test]
fn a_deadlock_in_the_index_ends() {
    let mut c = cluster(2);
    c.at_once(&[Op::Insert(bare(1, 10)), Op::Insert(bare(2, 20))]);
    let (one, other) = (c.begin(), c.begin());
    c.batch(one, FLAG_START, 1, &strict(&[Op::Set(1, 11)]));
    c.batch(other, FLAG_START, 1, &strict(&[Op::Set(2, 21)]));
    assert_eq!(c.received(), [open(1), open(1)]);
    c.batch(one, FLAG_COMMIT, 2, &strict(&[Op::Insert(bare(3, 20))]));
    c.batch(other, FLAG_COMMIT, 2, &strict(&[Op::Insert(bare(4, 10))]));
    c.advance(Span::from_millis(1300));
    let received = c.received();
    let is_victim = |received: &Received| {
        matches!(
            received,
            Received::Refuse { code: ErrorCode::LockTimeout | ErrorCode::Deadlock, operation: 2, .. }
        )
    };
    assert!(received.iter().any(is_victim), "{received:?}");
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
    c.check_unique();
}

#[test]
fn hidden_rows_are_not_for_users_to_change() {
    let mut c = cluster(1);
    c.at_once(&[Op::Insert(bare(1, 10))]);
    let id = c.begin();
    let mut bytes = c.batch_bytes(TC, id, ALL, 1, 0, &strict(&[Op::Find(ReadShared, 10)]));
    let head = bytes.len() - 8 - size_of::<vinga_wire::operation::OperationHead>();
    let kind = head + std::mem::offset_of!(vinga_wire::operation::OperationHead, kind);
    bytes[kind] = vinga_wire::operation::OperationKind::Delete as u8;
    c.send_bytes(1, &bytes);
    assert_eq!(c.received(), [refused(1, ErrorCode::HiddenTable, 1)]);
    // Nor does a user name sub-operations.
    let id = c.begin();
    let mut bytes = c.batch_bytes(TC, id, ALL, 1, 0, &strict(&[Op::Find(ReadShared, 10)]));
    let sub = head + std::mem::offset_of!(vinga_wire::operation::OperationHead, sub);
    bytes[sub] = 1;
    c.send_bytes(1, &bytes);
    assert_eq!(c.received(), [refused(1, ErrorCode::MalformedSignal, 1)]);
    at_rest(&mut c, 1);
}

/// A data node dies when a row is prepared and its place in the index is not.
#[test]
fn a_node_dies_between_the_row_and_its_place_in_the_index() {
    for victim in [2, 3] {
        let mut c = cluster(3);
        let [key, other] = keys(&c, 1);
        let [n] = numbers(&c, 2);
        assert_eq!(c.at_once(&[Op::Insert(bare(other, 1_000_000))]), [committed(1)]);
        let owner = c.owner_of_number(n);
        c.hold(TC, owner);
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Insert(bare(key, n)), Op::Set(other, 1_000_001)]));
        assert!(c.held(TC, owner) > 0, "the sub-operation is on its way");
        assert_eq!(c.received(), []);
        c.kill(victim);
        if victim != owner.node().0 {
            c.release(TC, owner);
        }
        assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
        assert_eq!(c.at_once(&[Op::Insert(bare(key, n)), Op::Set(other, 1_000_001)]), [committed(1)]);
        at_rest(&mut c, 2);
    }
}

/// The owner of the place in the index dies while the transaction commits, and while it rolls back.
#[test]
fn a_node_dies_while_the_index_is_committed_or_rolled_back() {
    for held in [SignalNumber::CommitRequest, SignalNumber::AbortRequest] {
        let is_commit = held == SignalNumber::CommitRequest;
        let mut c = cluster(3);
        let [key] = keys(&c, 1);
        let [n] = numbers(&c, 2);
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Insert(bare(key, n))]));
        assert_eq!(c.received(), [open(1)]);
        // Commits begin at the end of the chain 2, 3, 1 and come to node 2 last; roll-backs begin there.
        let from = if is_commit { dm(3, c.owner_of_number(n).instance()) } else { TC };
        let owner = c.owner_of_number(n);
        c.hold(from, owner);
        c.batch(id, if is_commit { FLAG_COMMIT } else { FLAG_ROLLBACK }, 2, &[]);
        assert_eq!(c.held(from, owner), 1);
        assert_eq!(c.received(), []);
        c.kill(2);
        let expected = if is_commit { committed(2) } else { confirmed(2, 2, &[]) };
        assert_eq!(c.received(), [expected]);
        at_rest(&mut c, usize::from(is_commit));
    }
}

/// The API node goes away when a row is prepared and its place in the index is not.
#[test]
fn an_api_node_dies_between_the_row_and_its_place_in_the_index() {
    let mut c = cluster(2);
    let [key] = keys(&c, 1);
    let [n] = numbers(&c, 2);
    c.hold(TC, c.owner_of_number(n));
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Insert(bare(key, n))]));
    c.notify_of_api(SignalNumber::ApiConnectionClosedOrder);
    c.release(TC, c.owner_of_number(n));
    c.notify_of_api(SignalNumber::ApiFailedOrder);
    c.received();
    assert!(c.is_at_rest());
    assert_eq!(c.check_unique(), 0);
}

/// There is no room for what follows: the transaction comes to nothing, and so do rows that fail alone.
#[test]
fn too_little_room_for_the_index() {
    for nodes in 1..=2 {
        let mut c = cluster(nodes);
        let rows: Vec<Op> = (1..=70).map(|key| Op::Insert(bare(key, key as i64))).collect();
        let received = c.at_once(&rows);
        assert!(
            matches!(received[..], [Received::Refuse { code: ErrorCode::OutOfOperations, .. }]),
            "{received:?}"
        );
        at_rest(&mut c, 0);
        if nodes == 1 {
            let id = c.begin();
            c.batch(id, ALL, 1, &alone(&rows));
            let received = c.received();
            let [Received::Confirm { outcome: 1, errors, .. }] = &received[..] else {
                panic!("{received:?}")
            };
            assert!(errors.iter().all(|(_, code)| *code == ErrorCode::OutOfOperations), "{errors:?}");
            assert!((1..70).contains(&errors.len()), "{errors:?}");
            at_rest(&mut c, 70 - errors.len());
        }
    }
}

/// Scenarios that are run with a rule broken, too.
mod scenarios {
    use super::*;

    pub fn a_partial_rollback_takes_the_index_along(bug: Option<InjectedBug>) {
        for nodes in 1..=3 {
            let mut c = broken(nodes, bug);
            c.at_once(&[Op::Insert(bare(1, 10)), Op::Insert(bare(2, 20))]);
            let id = c.begin();
            c.batch(id, FLAG_START, 1, &strict(&[Op::Set(1, 11)]));
            c.batch(id, 0, 2, &strict(&[Op::Set(1, 12), Op::Set(2, 10), Op::Insert(bare(3, 20))]));
            assert_eq!(c.received(), [open(1), open(2)]);
            c.batch_with(id, FLAG_ROLLBACK_TO, 5, 2, &strict(&[Op::Insert(bare(4, 10))]));
            assert_eq!(c.received(), [open(5)]);
            c.batch(id, FLAG_COMMIT, 6, &strict(&[Op::Insert(bare(5, 12))]));
            assert_eq!(c.received(), [committed(6)]);
            assert_eq!(
                c.read(&[1, 2, 3, 4, 5], None),
                [Some(bare(1, 11)), Some(bare(2, 20)), None, Some(bare(4, 10)), Some(bare(5, 12))]
            );
            at_rest(&mut c, 4);
        }
    }

    /// A second row with a unique value is not let in.
    pub fn a_duplicate_is_refused(bug: Option<InjectedBug>) {
        let mut c = broken(2, bug);
        assert_eq!(c.at_once(&[Op::Insert(bare(1, 10))]), [committed(1)]);
        assert_eq!(c.at_once(&[Op::Insert(bare(2, 10))]), [refused(1, DuplicateKey, 1)]);
    }

    /// A value that a row gives up is free.
    pub fn what_a_row_gives_up_is_free(bug: Option<InjectedBug>) {
        let mut c = broken(2, bug);
        assert_eq!(c.at_once(&[Op::Insert(bare(1, 10))]), [committed(1)]);
        assert_eq!(c.at_once(&[Op::Set(1, 11)]), [committed(1)]);
        assert_eq!(c.at_once(&[Op::Insert(bare(2, 10))]), [committed(1)]);
        at_rest(&mut c, 2);
    }

    /// A commit waits for the index.
    pub fn nothing_is_committed_before_the_index_is_prepared(bug: Option<InjectedBug>) {
        let mut c = broken(2, bug);
        let [key] = keys(&c, 1);
        let [n] = numbers(&c, 2);
        c.hold(TC, c.owner_of_number(n));
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Insert(bare(key, n))]));
        assert_eq!(c.held(TC, c.owner_of_number(n)), 1);
        assert_eq!(c.received(), []);
        assert_eq!(c.read(&[key], None), [None]);
        c.release(TC, c.owner_of_number(n));
        assert_eq!(c.received(), [committed(1)]);
        at_rest(&mut c, 1);
    }
}

#[test]
fn nothing_is_committed_before_the_index_is_prepared() {
    scenarios::nothing_is_committed_before_the_index_is_prepared(None);
}

#[test]
fn what_a_row_gives_up_is_free() {
    scenarios::what_a_row_gives_up_is_free(None);
    scenarios::a_duplicate_is_refused(None);
}

#[cfg(feature = "injected-bugs")]
#[test]
fn broken_rules_are_noticed() {
    type Scenario = fn(Option<InjectedBug>);
    let scenarios: [(InjectedBug, Scenario); 4] = [
        (InjectedBug::PartialRollbackForgetsSubs, scenarios::a_partial_rollback_takes_the_index_along),
        (InjectedBug::SubErrorIgnored, scenarios::a_duplicate_is_refused),
        (InjectedBug::HiddenDeleteForgotten, scenarios::what_a_row_gives_up_is_free),
        (InjectedBug::CommitBeforeSubs, scenarios::nothing_is_committed_before_the_index_is_prepared),
    ];
    for (bug, scenario) in scenarios {
        let received = std::panic::catch_unwind(|| scenario(Some(bug)));
        assert!(received.is_err(), "nobody notices {}", bug.name());
    }
}
