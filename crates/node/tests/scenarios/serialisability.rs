//! What would give transactions that have no order if locks were not kept as they are: each test plays a sequence of
//! events signal by signal, with all rules and with one broken, as in `hazards.rs`.

use crate::support::{Cluster, Op, Received, Setup, committed, dm, open, refused, row, strict, tc};
use vinga_kernel::InjectedBug;
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind::{ReadExclusive, ReadShared};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK_TO, FLAG_START};

/// Three nodes that hold all rows, with coordinators on the first two.
fn three(bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes: 3, coordinators: 2, bug, ..Setup::default() })
}

/// The first keys whose primary is at a node.
fn keys<const N: usize>(c: &Cluster, node: u8) -> [u64; N] {
    let mut keys = c.keys_at(node);
    std::array::from_fn(|_| keys.next().expect("there are keys without end"))
}

hazards! {
    /// Two transactions read a row each and change the other's, both in a single batch. If the reads of a last batch
    /// take no locks, since nothing follows them, neither sees the other's change (write skew).
    reads_of_a_last_batch_are_locked_until_all_of_it_is_prepared breaks LastReadsTakeNoLock;

    /// A transaction that has changed a row reads another one that somebody has changed and not committed yet. If it
    /// reads the committed version rather than wait, somebody else's read of what it has changed may have come before.
    a_shared_read_waits_whatever_its_transaction_has_changed breaks ChangerReadsPastLock;

    /// The primary of a row dies that a transaction has read under a lock: the next primary knows of no lock, so
    /// the row may change before the transaction ends.
    a_transaction_that_loses_a_read_lock_is_rolled_back breaks LostReadLocksIgnored;

    /// A transaction undoes a read by a partial rollback. What it knows of the row must stay true to its end, as
    /// the client may go on with it.
    a_partial_rollback_keeps_the_locks breaks PartialRollbackLetsGo;
}

mod scenarios {
    use super::*;

    pub fn reads_of_a_last_batch_are_locked_until_all_of_it_is_prepared(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let ([x], [y]) = (keys(&c, 1), keys(&c, 2));
        c.at_once(&[Op::Insert(row(x, 0)), Op::Insert(row(y, 0))]);
        let (first, second) = (c.begin(), c.begin());
        // The first one has read x; its change of y is on its way to the backup.
        c.hold(dm(2, 1), dm(3, 1));
        c.batch(first, FLAG_START | FLAG_COMMIT, 1, &strict(&[Op::Read(ReadShared, x), Op::Add(y, 1)]));
        let seen = |key, n| Received::Row { operation: 1, row: Some(row(key, n)) };
        assert_eq!(c.received(), [seen(x, 0)]);
        let batch = strict(&[Op::Read(ReadShared, y), Op::Add(x, 1)]);
        c.batch_at(tc(2), second, FLAG_START | FLAG_COMMIT, 1, 0, &batch);
        assert_eq!(c.received(), [], "both rows are locked");
        c.release(dm(2, 1), dm(3, 1));
        let received = c.received();
        assert_eq!(received.iter().filter(|received| **received == committed(1)).count(), 2, "{received:?}");
        assert!(received.contains(&seen(y, 1)), "the second comes behind the first: {received:?}");
        assert_eq!(c.read(&[x, y], None), [Some(row(x, 1)), Some(row(y, 1))]);
        c.ends_well();
    }

    pub fn a_shared_read_waits_whatever_its_transaction_has_changed(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [x, y] = keys(&c, 2);
        c.at_once(&[Op::Insert(row(x, 0)), Op::Insert(row(y, 0))]);
        let (first, second) = (c.begin(), c.begin());
        c.batch(first, FLAG_START, 1, &strict(&[Op::Add(x, 1)]));
        c.batch_at(tc(2), second, FLAG_START, 1, 0, &strict(&[Op::Add(y, 1)]));
        assert_eq!(c.received(), [open(1), open(1)]);
        c.batch_at(tc(2), second, FLAG_COMMIT, 2, 0, &strict(&[Op::Read(ReadShared, x)]));
        assert_eq!(c.received(), [], "the row is locked");
        c.batch(first, FLAG_COMMIT, 2, &[]);
        let received = c.received();
        assert!(received.contains(&Received::Row { operation: 2, row: Some(row(x, 1)) }), "{received:?}");
        assert_eq!(received.iter().filter(|received| **received == committed(2)).count(), 2, "{received:?}");
        c.ends_well();
    }

    pub fn a_transaction_that_loses_a_read_lock_is_rolled_back(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let ([x], [y]) = (keys(&c, 2), keys(&c, 1));
        c.at_once(&[Op::Insert(row(x, 0)), Op::Insert(row(y, 0))]);
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Read(ReadShared, x)]));
        assert_eq!(c.received(), [Received::Row { operation: 1, row: Some(row(x, 0)) }, open(1)]);
        c.kill(2);
        assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
        assert_eq!(c.at_once(&[Op::Add(x, 1)]), [committed(1)]);
        c.batch(id, FLAG_COMMIT, 2, &strict(&[Op::Add(y, 1)]));
        assert_eq!(c.received(), [refused(2, ErrorCode::TransactionAborted, 0)]);
        assert_eq!(c.read(&[x, y], None), [Some(row(x, 1)), Some(row(y, 0))]);
        c.ends_well();
    }

    pub fn a_partial_rollback_keeps_the_locks(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let [x, y] = keys(&c, 2);
        c.at_once(&[Op::Insert(row(x, 0)), Op::Insert(row(y, 0))]);
        let (id, other) = (c.begin(), c.begin());
        c.batch(id, FLAG_START, 1, &strict(&[Op::Read(ReadExclusive, x), Op::Add(y, 5)]));
        c.received();
        c.batch_with(id, FLAG_ROLLBACK_TO, 3, 1, &strict(&[Op::Add(y, 1)]));
        assert_eq!(c.received(), [open(3)]);
        c.batch_at(tc(2), other, FLAG_START | FLAG_COMMIT, 1, 0, &strict(&[Op::Add(x, 10)]));
        assert_eq!(c.received(), [], "the row is locked");
        c.batch(id, FLAG_COMMIT, 4, &[]);
        let received = c.received();
        assert_eq!(received.len(), 2, "{received:?}");
        assert!(received.contains(&committed(4)) && received.contains(&committed(1)), "{received:?}");
        assert_eq!(c.read(&[x, y], None), [Some(row(x, 10)), Some(row(y, 1))]);
        c.ends_well();
    }
}
