//! The protocols of transactions, as scenarios.

use crate::support::{
    ALL, Cluster, Op, Received, Row, TC, check_golden, committed, dm, open, refused, row, strict,
};
use vinga_base::TransactionId;
use vinga_datamanager::DataManager;
use vinga_kernel::{Span, Tick};
use vinga_wire::ErrorCode;
use vinga_wire::operation::LockWait;
use vinga_wire::operation::OperationKind::{ReadExclusive, ReadShared};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

#[test]
fn single_operations_on_one_node() {
    let mut c = Cluster::new(1);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 10))]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 11))]), [refused(1, ErrorCode::DuplicateKey, 1)]);
    assert_eq!(c.at_once(&[Op::Add(1, 5)]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::SetText(1, "a longer text than before")]), [committed(1)]);
    assert_eq!(c.read(&[1, 2], None), [Some(Row(1, 15, Some("a longer text than before".into()))), None]);
    assert_eq!(c.at_once(&[Op::Write(row(1, 7))]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::Write(row(2, 8))]), [committed(1)]);
    assert_eq!(
        c.at_once(&[Op::Read(ReadShared, 2)]),
        [Received::Row { operation: 1, row: Some(row(2, 8)) }, committed(1)]
    );
    for kind in [ReadShared, ReadExclusive] {
        let nothing = Received::Row { operation: 1, row: None };
        assert_eq!(c.at_once(&[Op::Read(kind, 3)]), [nothing, committed(1)], "where no row is");
    }
    assert_eq!(c.at_once(&[Op::Add(3, 1)]), [refused(1, ErrorCode::NoSuchRow, 1)]);
    assert_eq!(c.at_once(&[Op::Add(1, i64::MAX)]), [refused(1, ErrorCode::NumericOverflow, 1)]);
    assert_eq!(c.scan(None, 1), Ok(vec![row(1, 7), row(2, 8)]));
    assert_eq!(c.at_once(&[Op::Delete(1)]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::Delete(1)]), [refused(1, ErrorCode::NoSuchRow, 1)]);
    assert_eq!(c.scan(None, 10), Ok(vec![row(2, 8)]));
    assert!(c.is_at_rest());
    check_golden("single-operations.txt", &c.scenario());
}

#[test]
fn a_transaction_with_one_backup() {
    let mut c = Cluster::new(2);
    let other = c.key_elsewhere(1);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 10)), Op::Insert(row(other, 20))]), [committed(1)]);
    assert_eq!(c.at_once(&[Op::Add(1, -3), Op::Add(other, 3)]), [committed(1)]);
    assert_eq!(c.read(&[1, other], None), [Some(row(1, 7)), Some(row(other, 23))]);
    assert_eq!(c.node(1).coordinators()[0].unconfirmed_outcomes(), 2);
    let markers =
        |c: &Cluster, node| c.node(node).data_managers().iter().map(DataManager::markers).sum::<usize>();
    assert_eq!((markers(&c, 1), markers(&c, 2)), (2, 2));
    c.forget_all_outcomes();
    assert_eq!((markers(&c, 1), markers(&c, 2)), (0, 0));
    assert!(c.is_at_rest());
    check_golden("one-backup.txt", &c.scenario());
}

#[test]
fn a_chain_of_three_rolls_back() {
    let mut c = Cluster::new(3);
    let other = c.key_elsewhere(1);
    assert_eq!(c.at_once(&[Op::Insert(row(1, 10))]), [committed(1)]);
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Add(1, 1), Op::Insert(row(other, 2))]));
    assert_eq!(c.received(), [open(1)]);
    assert_eq!(c.read(&[1, other], None), [Some(row(1, 10)), None]);
    assert_eq!(c.read(&[1, other], Some((id, 3))), [Some(row(1, 11)), Some(row(other, 2))]);
    c.batch(id, FLAG_COMMIT, 3, &strict(&[Op::Insert(row(1, 0))]));
    assert_eq!(c.received(), [refused(3, ErrorCode::DuplicateKey, 3)]);
    assert_eq!(c.read(&[1, other], None), [Some(row(1, 10)), None]);
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
    check_golden("three-replicas-roll-back.txt", &c.scenario());
}

#[test]
fn own_changes_are_seen_by_number() {
    let mut c = Cluster::new(2);
    c.at_once(&[Op::Insert(row(1, 1)), Op::Insert(row(2, 2))]);
    let id = c.begin();
    c.batch(
        id,
        FLAG_START,
        1,
        &strict(&[
            Op::Add(1, 10),
            Op::Delete(2),
            Op::Add(1, 100),
            Op::Insert(row(2, 22)),
            Op::Insert(row(3, 3)),
        ]),
    );
    assert_eq!(c.received(), [open(1)]);
    assert_eq!(c.read(&[1, 2, 3], Some((id, 2))), [Some(row(1, 11)), Some(row(2, 2)), None]);
    assert_eq!(c.read(&[1, 2, 3], Some((id, 3))), [Some(row(1, 11)), None, None]);
    assert_eq!(c.read(&[1, 2, 3], Some((id, 6))), [Some(row(1, 111)), Some(row(2, 22)), Some(row(3, 3))]);
    assert_eq!(c.scan(Some((id, 5)), 2), Ok(vec![row(1, 111), row(2, 22)]));
    assert_eq!(c.scan(Some((id, 6)), 2), Ok(vec![row(1, 111), row(2, 22), row(3, 3)]));
    assert_eq!(c.scan(None, 2), Ok(vec![row(1, 1), row(2, 2)]));
    c.batch(id, FLAG_COMMIT, 6, &[]);
    assert_eq!(c.received(), [committed(6)]);
    assert_eq!(c.scan(None, 2), Ok(vec![row(1, 111), row(2, 22), row(3, 3)]));
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

#[test]
fn partial_rollback_undoes_later_operations_and_keeps_locks() {
    let mut c = Cluster::new(2);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Add(1, 10), Op::Insert(row(2, 2)), Op::Add(1, 100)]));
    assert_eq!(c.received(), [open(1)]);
    c.batch_with(id, FLAG_ROLLBACK_TO, 4, 2, &strict(&[Op::Add(1, 1000)]));
    assert_eq!(c.received(), [open(4)]);
    assert_eq!(c.read(&[1, 2], Some((id, 9))), [Some(row(1, 1011)), None]);
    // The lock of the row that was changed is held; the key of the undone insert is free.
    let other = c.begin();
    c.batch(other, ALL, 1, &strict(&[Op::Insert(row(2, 222))]));
    assert_eq!(c.received(), [committed(1)]);
    let waiting = c.begin();
    c.batch(waiting, ALL, 1, &strict(&[Op::Add(1, 5)]));
    assert_eq!(c.received(), []);
    c.batch(id, FLAG_COMMIT, 9, &[]);
    assert_eq!(c.received(), [committed(9), committed(1)]);
    assert_eq!(c.read(&[1, 2], None), [Some(row(1, 1016)), Some(row(2, 222))]);
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

#[test]
fn an_error_may_be_local() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let id = c.begin();
    c.batch(
        id,
        ALL,
        1,
        &[(Op::Insert(row(1, 5)), true), (Op::Insert(row(2, 2)), false), (Op::Delete(9), true)],
    );
    let received = c.received();
    let [Received::Confirm { request: 1, outcome: 1, errors }] = received.as_slice() else {
        panic!("{received:?}")
    };
    let mut errors = errors.clone();
    errors.sort_unstable();
    assert_eq!(errors, [(1, ErrorCode::DuplicateKey), (3, ErrorCode::NoSuchRow)]);
    assert_eq!(c.scan(None, 10), Ok(vec![row(1, 1), row(2, 2)]));
    assert!(c.is_at_rest());
}

#[test]
fn waiters_go_on_in_order() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let holder = c.begin();
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Delete(1)]));
    let (second, third, fourth) = (c.begin(), c.begin(), c.begin());
    c.batch(second, ALL, 21, &strict(&[Op::Insert(row(1, 2))]));
    c.batch(third, ALL, 31, &strict(&[Op::Add(1, 10)]));
    c.batch(fourth, ALL, 41, &strict(&[Op::Insert(row(1, 4))]));
    assert_eq!(c.received(), [open(1)]);
    c.batch(holder, FLAG_COMMIT, 2, &[]);
    let received = c.received();
    assert_eq!(
        received,
        [committed(2), committed(21), committed(31), refused(41, ErrorCode::DuplicateKey, 41)]
    );
    assert_eq!(
        c.read(&[1], None),
        [Some(row(1, 12))].map(|r| r.map(|Row(k, n, _)| Row(k, n, Some("row 1".into()))))
    );
    assert!(c.is_at_rest());
}

#[test]
fn a_deadlock_is_found_at_once() {
    let mut c = Cluster::new(1);
    // Two keys of the same data manager, so that it sees the whole cycle.
    let a = 1;
    let b = (2..).find(|&key| c.owner_of(key) == c.owner_of(a)).expect("one of many keys");
    c.at_once(&[Op::Insert(row(a, 1)), Op::Insert(row(b, 2))]);
    let (old, young) = (c.begin(), c.begin());
    c.batch(old, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, a)]));
    c.batch(young, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, b)]));
    c.received();
    c.batch(young, 0, 2, &strict(&[Op::Add(a, 1)]));
    assert_eq!(c.received(), []);
    c.batch(old, FLAG_COMMIT, 3, &strict(&[Op::Add(b, 1)]));
    assert_eq!(c.received(), [refused(2, ErrorCode::Deadlock, 2), committed(3)]);
    assert!(c.is_at_rest());
}

/// A row is deleted, and the first of those who wait makes it again: the second waits on, not for as long as if it had
/// just come.
#[test]
fn a_lock_wait_is_no_longer_when_its_row_goes_and_comes_back() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, maker, waiter) = (c.begin(), c.begin(), c.begin());
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Delete(1)]));
    c.received();
    c.batch(maker, FLAG_START, 1, &strict(&[Op::Write(row(1, 2))]));
    c.batch(waiter, FLAG_START, 1, &strict(&[Op::Add(1, 1)]));
    c.advance(Span::from_millis(1100));
    assert_eq!(c.received(), []);
    c.batch(holder, FLAG_COMMIT, 2, &[]);
    let received = c.received();
    assert_eq!(received.len(), 2, "the commit and the write are answered: {received:?}");
    assert!(received.contains(&committed(2)), "{received:?}");
    c.advance(Span::from_millis(90));
    assert_eq!(c.received(), []);
    c.advance(Span::from_millis(60));
    assert_eq!(c.received(), [refused(1, ErrorCode::LockTimeout, 1)]);
    c.batch(maker, FLAG_COMMIT, 2, &[]);
    assert_eq!(c.received(), [committed(2)]);
    assert!(c.is_at_rest());
}

/// Of those who wait for a row that comes and goes many are in the queue for long: they stand in the data manager's
/// lists once.
#[test]
fn an_operation_that_waits_for_a_row_that_comes_and_goes_is_listed_once() {
    let mut c = Cluster::new(1);
    let makers: Vec<TransactionId> = (0..12).map(|_| c.begin()).collect();
    for &maker in &makers {
        c.batch(maker, FLAG_START, 1, &strict(&[Op::Insert(row(1, 1))]));
    }
    for (at, &maker) in makers.iter().enumerate() {
        let waiting: usize = c.node(1).data_managers().iter().map(DataManager::waiting).sum();
        assert!(waiting < makers.len(), "{waiting} waits are listed when {at} of 12 are over");
        // The row vanishes, the next one makes it again, and all others wait on.
        c.batch(maker, FLAG_ROLLBACK, 2, &[]);
    }
    c.received();
    assert!(c.is_at_rest());
}

/// Who looks at locks sees those who wait as long as they say themselves, too.
#[test]
fn a_wait_of_a_length_of_its_own_is_seen() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, waiters) = (c.begin(), [c.begin(), c.begin()]);
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, 1)]));
    for (waiter, wait) in waiters.into_iter().zip([LockWait::Default, LockWait::Millis(500)]) {
        c.wait = wait;
        c.batch(waiter, ALL, 1, &strict(&[Op::Add(1, 1)]));
    }
    let mut seen = Vec::new();
    for manager in c.node(1).data_managers() {
        manager.inspect_locks(Tick(0), 100, |lock| seen.push((lock.transaction, lock.waits.is_some())));
    }
    seen.sort_unstable();
    let mut expected = vec![(holder, false), (waiters[0], true), (waiters[1], true)];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    c.batch(holder, FLAG_COMMIT, 2, &[]);
    c.received();
    assert!(c.is_at_rest());
}

#[test]
fn a_lock_wait_times_out() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, waiter) = (c.begin(), c.begin());
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadShared, 1)]));
    c.received();
    c.batch(waiter, FLAG_START, 1, &strict(&[Op::Add(1, 1)]));
    c.advance(Span::from_millis(1100));
    assert_eq!(c.received(), []);
    c.advance(Span::from_millis(150));
    assert_eq!(c.received(), [refused(1, ErrorCode::LockTimeout, 1)]);
    // The holder is forgotten by its API node, and ended in the end.
    c.advance(Span::from_millis(5000));
    c.batch(holder, FLAG_COMMIT, 2, &[]);
    let received = c.received();
    assert!(received.contains(&refused(2, ErrorCode::TransactionAborted, 0)), "{received:?}");
    assert!(c.is_at_rest());
}

#[test]
fn an_unlocked_read_lets_others_go_on() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (reader, writer) = (c.begin(), c.begin());
    c.batch(reader, FLAG_START, 1, &strict(&[Op::Read(ReadShared, 1)]));
    c.batch(writer, ALL, 1, &strict(&[Op::Add(1, 1)]));
    c.received();
    c.batch(reader, 0, 2, &strict(&[Op::Unlock(1, 1)]));
    assert_eq!(c.received(), [open(2), committed(1)]);
    c.batch(reader, FLAG_ROLLBACK, 3, &[]);
    assert_eq!(c.received(), [Received::Confirm { request: 3, outcome: 2, errors: vec![] }]);
    assert!(c.is_at_rest());
}

/// The batch lets go of a row that it still waits for: it does so when it has it, and not before.
#[test]
fn an_unlock_waits_for_the_read_that_it_lets_go_of() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, reader, writer) = (c.begin(), c.begin(), c.begin());
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, 1)]));
    c.received();
    c.batch(reader, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, 1), Op::Unlock(1, 1)]));
    c.batch(writer, ALL, 2, &strict(&[Op::Add(1, 1)]));
    assert_eq!(c.received(), []);
    c.batch(holder, FLAG_COMMIT, 3, &[]);
    let received = c.received();
    for answer in [committed(3), open(1), committed(2)] {
        assert!(received.contains(&answer), "{answer:?} is not among {received:?}");
    }
    c.batch(reader, FLAG_COMMIT, 4, &[]);
    assert_eq!(c.received(), [committed(4)]);
    assert!(c.is_at_rest());
}

#[test]
fn a_batch_that_waits_is_given_up() {
    const ROLLED_BACK: Received = Received::Confirm { request: 1, outcome: 2, errors: vec![] };
    for nodes in [1, 3] {
        let mut c = Cluster::new(nodes);
        c.at_once(&[Op::Insert(row(1, 1)), Op::Insert(row(2, 2))]);
        let (holder, waiter, behind, last) = (c.begin(), c.begin(), c.begin(), c.begin());
        c.batch(holder, FLAG_START, 11, &strict(&[Op::Read(ReadShared, 1)]));
        c.batch(waiter, FLAG_START, 1, &strict(&[Op::Add(2, 10), Op::Add(1, 10)]));
        c.batch(behind, ALL, 21, &strict(&[Op::Add(2, 100)]));
        c.batch(last, FLAG_START, 31, &strict(&[Op::Read(ReadShared, 1)]));
        let received = c.received();
        assert_eq!(received.last(), Some(&open(11)), "the others wait: {received:?}");
        // It gives way to who waits for its row, and to who waits behind it in the queue; one answer is all.
        c.batch(waiter, FLAG_ROLLBACK, 1, &[]);
        let received = c.received();
        for expected in [ROLLED_BACK, committed(21), open(31)] {
            assert_eq!(
                received.iter().filter(|&one| *one == expected).count(),
                1,
                "{expected:?} in {received:?}"
            );
        }
        c.batch(holder, FLAG_COMMIT, 12, &[]);
        c.batch(last, FLAG_COMMIT, 32, &[]);
        assert_eq!(c.received(), [committed(12), committed(32)]);
        let numbers: Vec<i64> =
            c.read(&[1, 2], None).into_iter().map(|row| row.expect("it is there").1).collect();
        assert_eq!(numbers, [1, 102]);
        c.forget_all_outcomes();
        assert!(c.is_at_rest());
    }
}

/// A rollback waits for the data nodes that are left. A batch that comes meanwhile is refused at its end, with what the
/// transaction is rolled back for.
#[test]
fn a_batch_of_a_transaction_that_is_being_rolled_back_is_refused_with_the_cause() {
    let mut c = Cluster::new(3);
    let lost = c.keys_at(2).next().expect("a key");
    c.at_once(&[Op::Insert(row(lost, 1))]);
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Add(lost, 1)]));
    assert_eq!(c.received(), [open(1)]);
    let mut pairs = vec![];
    for instance in 1..=2 {
        pairs.extend([TC, dm(1, instance)].map(|from| (from, dm(3, instance))));
    }
    pairs.iter().for_each(|&(from, to)| c.hold(from, to));
    c.kill(2);
    assert_eq!(c.received(), [], "it is still being rolled back");
    c.batch(id, 0, 2, &strict(&[Op::Add(lost, 1)]));
    assert_eq!(c.received(), []);
    pairs.into_iter().for_each(|(from, to)| c.release(from, to));
    assert_eq!(c.received(), [refused(2, ErrorCode::NodeFailure, 0)]);
    assert_eq!(c.read(&[lost], None), [Some(row(lost, 1))]);
    c.ends_well();
}

/// What comes too late to give a batch up: the answer to it, or to both, says what became of the transaction.
#[test]
fn what_comes_too_late_to_give_a_batch_up_is_answered_or_passed_over() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, waiter) = (c.begin(), c.begin());
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, 1)]));
    c.batch(waiter, ALL, 11, &strict(&[Op::Add(1, 10)]));
    c.batch(holder, FLAG_ROLLBACK, 1, &[]);
    assert_eq!(c.received().last(), Some(&committed(11)));
    // Over already.
    c.batch(waiter, FLAG_ROLLBACK, 11, &[]);
    assert_eq!(c.received(), [refused(11, ErrorCode::TransactionAborted, 0)]);
    assert!(c.is_at_rest());
}

/// The data manager was allowed to commit the only operation with its prepare, and has to wait.
#[test]
fn an_operation_alone_that_waits_is_given_up() {
    let mut c = Cluster::new(1);
    c.at_once(&[Op::Insert(row(1, 1))]);
    let (holder, waiter) = (c.begin(), c.begin());
    c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, 1)]));
    c.batch(waiter, ALL, 11, &strict(&[Op::Add(1, 10)]));
    c.received();
    c.batch(waiter, FLAG_ROLLBACK, 11, &[]);
    assert_eq!(c.received(), [Received::Confirm { request: 11, outcome: 2, errors: vec![] }]);
    c.batch(holder, FLAG_COMMIT, 2, &[]);
    assert_eq!(c.received(), [committed(2)]);
    assert_eq!(c.read(&[1], None), [Some(row(1, 1))]);
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

/// The rollback comes before the answer of a data manager that may have committed: that answer decides.
#[test]
fn a_client_that_gives_up_just_after_the_commit_learns_the_decision() {
    const ROLLED_BACK: Received = Received::Confirm { request: 11, outcome: 2, errors: vec![] };
    for (is_locked, expected) in [(true, ROLLED_BACK), (false, committed(11))] {
        let mut c = Cluster::new(1);
        c.at_once(&[Op::Insert(row(1, 1))]);
        let (holder, hasty) = (c.begin(), c.begin());
        c.batch(holder, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, if is_locked { 1 } else { 2 })]));
        c.received();
        let mut both = c.batch_bytes(TC, hasty, ALL, 11, 0, &strict(&[Op::Add(1, 10)]));
        both.extend(c.batch_bytes(TC, hasty, FLAG_ROLLBACK, 11, 0, &[]));
        c.send_bytes(1, &both);
        assert_eq!(c.received(), [expected]);
        c.batch(holder, FLAG_ROLLBACK, 1, &[]);
        c.received();
        let number = if is_locked { 1 } else { 11 };
        assert_eq!(c.read(&[1], None), [Some(row(1, number))]);
        c.forget_all_outcomes();
        assert!(c.is_at_rest());
    }
}

#[test]
fn outcomes_are_kept_until_they_are_confirmed() {
    let mut c = Cluster::new(1);
    let id = c.begin();
    c.batch(id, ALL, 1, &strict(&[Op::Insert(row(1, 1))]));
    let failed = c.begin();
    c.batch(failed, ALL, 1, &strict(&[Op::Insert(row(1, 1))]));
    assert_eq!(c.ask(id), [Received::Outcome(1)]);
    // Of a transaction that was rolled back nothing is kept: not found is not committed.
    assert_eq!(c.ask(failed), [Received::Outcome(3)]);
    // A number that was never given out confirms nothing.
    c.forget_outcomes(7);
    assert_eq!(c.ask(id), [Received::Outcome(1)]);
    c.forget_outcomes(1);
    assert_eq!(c.ask(id), [Received::Outcome(3)]);
    assert_eq!(c.settings(1).node.0, 1);
}

#[test]
fn a_backup_takes_over_what_was_committed_and_what_was_prepared() {
    let mut c = Cluster::new(3);
    let keys: Vec<u64> = (1..=8).collect();
    for &key in &keys {
        c.at_once(&[Op::Insert(row(key, 0))]);
    }
    let id = c.begin();
    let ops: Vec<Op> = keys.iter().map(|&key| Op::Add(key, 1)).collect();
    c.batch(id, FLAG_START, 1, &strict(&ops));
    assert_eq!(c.received().pop(), Some(open(1)));
    c.kill(2);
    assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
    let all: Vec<Option<Row>> = keys.iter().map(|&key| Some(row(key, 0))).collect();
    assert_eq!(c.read(&keys, None), all);
    assert_eq!(c.at_once(&ops), [committed(1)]);
    c.kill(3);
    let all: Vec<Option<Row>> = keys.iter().map(|&key| Some(row(key, 1))).collect();
    assert_eq!(c.read(&keys, None), all);
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

#[test]
fn full_pools_refuse_and_recover() {
    let mut c = Cluster::new(1);
    let id = c.begin();
    let many: Vec<Op> = (0..200).map(|key| Op::Insert(row(key, 0))).collect();
    c.batch(id, ALL, 1, &strict(&many));
    let received = c.received();
    let [Received::Refuse { code: ErrorCode::OutOfOperations, .. }] = received.as_slice() else {
        panic!("{received:?}")
    };
    assert!(c.is_at_rest());
    let open: Vec<TransactionId> = (0..32).map(|_| c.begin()).collect();
    for &id in &open {
        c.batch(id, FLAG_START, 1, &[]);
    }
    c.received();
    assert_eq!(c.at_once(&[Op::Insert(row(1, 1))]), [refused(1, ErrorCode::OutOfTransactions, 0)]);
    c.batch(open[0], FLAG_ROLLBACK, 1, &[]);
    c.received();
    assert_eq!(c.at_once(&[Op::Insert(row(1, 1))]), [committed(1)]);
    // 64 pages for both data managers: long rows fill them.
    let mut key = 1000;
    loop {
        match c.at_once(&[Op::Insert(Row(key, 0, Some("x".repeat(40))))]).pop() {
            Some(Received::Confirm { .. }) => {
                key += 1;
                c.forget_all_outcomes();
            }
            Some(Received::Refuse { code: ErrorCode::DataMemoryFull, .. }) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(key > 5000);
    for victim in 1000..key {
        assert_eq!(c.at_once(&[Op::Delete(victim)]), [committed(1)]);
        c.forget_all_outcomes();
    }
    assert_eq!(c.at_once(&[Op::Insert(row(2, 2))]), [committed(1)]);
}

#[test]
fn what_is_forwarded_twice_is_prepared_once() {
    for nodes in [2, 3] {
        let mut c = Cluster::new(nodes);
        let key = c.keys_at(1).next().expect("each node has some");
        let primary = c.owner_of(key);
        let backup = dm(2, primary.instance());
        c.at_once(&[Op::Insert(row(key, 1))]);
        let id = c.begin();
        c.hold(primary, backup);
        let ops = [Op::Delete(key), Op::Insert(row(key, 10)), Op::Add(key, 1), Op::Add(key, 1)];
        c.batch(id, FLAG_START, 1, &strict(&ops));
        assert_eq!(c.held(primary, backup), ops.len());
        c.deliver_copies(primary, backup);
        assert_eq!(c.received(), [open(1)]);
        c.release(primary, backup);
        let records = c.node(2).data_managers()[usize::from(primary.instance())].pools()[0].used;
        assert_eq!(records as usize, ops.len());
        c.batch(id, FLAG_COMMIT, 5, &[]);
        assert_eq!(c.received(), [committed(5)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 12))]);
        c.forget_all_outcomes();
        assert!(c.is_at_rest());
    }
}

/// An answer before that would have the client begin anew, and meet locks of its own.
#[test]
fn a_request_that_meets_a_rollback_is_answered_when_that_is_done() {
    for flags in [FLAG_ROLLBACK, 0, FLAG_COMMIT] {
        let mut c = Cluster::new(2);
        let (here, there) = (c.keys_at(1).next(), c.keys_at(2).next());
        let (here, there) = (here.expect("there are some"), there.expect("there are some"));
        c.at_once(&[Op::Insert(row(here, 1))]);
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Insert(row(there, 2))]));
        assert_eq!(c.received(), [open(1)]);
        let owner = dm(2, 1);
        c.hold(TC, owner);
        c.batch(id, 0, 2, &strict(&[Op::Insert(row(here, 3))]));
        assert_eq!((c.received(), c.held(TC, owner)), (vec![], 1), "the rollback is on its way");
        c.batch(id, flags, 3, &[]);
        assert_eq!(c.received(), []);
        c.release(TC, owner);
        assert_eq!(c.received(), [refused(3, ErrorCode::DuplicateKey, 2)]);
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Insert(row(there, 4))]));
        assert_eq!(c.received(), [committed(1)]);
    }
}
