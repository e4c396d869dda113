//! Waits for locks that the client bounds, rows that are skipped, and rows that are let go of, on a real data node.

use crate::support::{assert_nothing_left, eventually, run};
use std::thread;
use std::time::Duration;
use vinga::blocking::{Cluster, Transaction};
use vinga::{
    ColumnType, ErrorCode, Found, InfoTable, InfoValue, Lock, LockRequest, LockWait, NewTable, Table, Update,
};
use vinga_datanode::LocalNode;

vinga::row! {
    #[derive(Debug, PartialEq, Clone)]
    struct Job {
        id: u64,
        state: i32,
        code: String,
    }
}

fn job(id: u64, state: i32) -> Job {
    Job { id, state, code: format!("c{id:03}") }
}

/// Locks are waited for by default for so long that whoever does it by accident does not come back.
const FOR_EVER: &str = "3600000";

fn start(lock_timeout: &str, jobs: u64) -> (LocalNode, Cluster, Table<Job>) {
    let node = LocalNode::start_with(&[
        ("ThreadConfig", "worker={count=2}"),
        ("TransactionDeadlockDetectionTimeout", lock_timeout),
    ])
    .expect("a small node can be started");
    let cluster = Cluster::connect(node.address()).expect("it listens");
    let table = cluster
        .create_table(
            NewTable::new("test.job")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("state", ColumnType::Integer { bytes: 4, signed: true })
                .column("code", ColumnType::VarChar { bytes_max: 20 })
                .primary_key(&["id"])
                .ordered_index("by_id", &["id"])
                .unique_index("code", &["code"]),
        )
        .expect("it is a good table");
    let table = table.rows::<Job>().expect("it fits");
    let mut tx = cluster.begin().expect("one is free");
    for id in 0..jobs {
        tx.insert(&table, &job(id, 0)).expect("it fits");
    }
    tx.commit().expect("they are new");
    (node, cluster, table)
}

/// A transaction that has locked some rows.
fn holder(cluster: &Cluster, table: &Table<Job>, ids: &[u64], lock: Lock) -> Transaction {
    let mut tx = cluster.begin().unwrap();
    for &id in ids {
        tx.define_read(table, id, lock).unwrap();
    }
    tx.execute().unwrap();
    tx
}

/// Whether somebody else could lock a row now.
fn is_free(cluster: &Cluster, table: &Table<Job>, id: u64, lock: Lock) -> bool {
    let mut tx = cluster.begin().unwrap();
    tx.read_locked(table, id, lock.skip_locked()).unwrap().is_some()
}

/// A counter of all blocks of the node together.
fn counter(cluster: &Cluster, name: &str) -> u64 {
    let rows = cluster.info(InfoTable::Blocks).unwrap().rows;
    let of_row = |row: &Vec<InfoValue>| match (&row[2], &row[3]) {
        (InfoValue::Text(counter), InfoValue::Number(value)) if counter == name => *value,
        _ => 0,
    };
    rows.iter().map(of_row).sum()
}

fn code<T: std::fmt::Debug>(result: vinga::Result<T>) -> ErrorCode {
    result.unwrap_err().code()
}

#[test]
fn an_operation_that_may_not_wait_fails_immediately() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let mut holder = holder(&cluster, &table, &[1], Lock::Exclusive);
    holder.insert(&table, &job(9, 0)).unwrap();
    holder.execute().unwrap();
    // The first error costs the transaction, and is none that is tried again.
    let mut tx = cluster.begin().unwrap();
    let error = tx.read_locked(&table, 1u64, Lock::Shared.no_wait()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RowLocked);
    assert!(!error.is_retryable());
    assert_eq!(code(tx.read_locked(&table, 2u64, Lock::Shared)), ErrorCode::TransactionAborted);
    // Unless it is lenient: then all goes on, and nothing stays of what has failed.
    let mut tx = cluster.begin().unwrap();
    tx.set_lenient(true);
    tx.set_lock_wait(LockWait::NoWait);
    let read = tx.define_read(&table, 1u64, Lock::Shared).unwrap().operation();
    let denied = [
        read,
        tx.update(&table, 1u64, &Update::new().set("state", 7)).unwrap(),
        tx.delete(&table, 1u64).unwrap(),
        tx.write(&table, &job(1, 7)).unwrap(),
        tx.insert(&table, &job(1, 7)).unwrap(),
        tx.insert(&table, &job(9, 7)).unwrap(),
    ];
    let changed = tx.update(&table, 2u64, &Update::new().set("state", 5)).unwrap();
    tx.execute().unwrap();
    for operation in denied {
        assert_eq!(code(tx.result(operation)), ErrorCode::RowLocked);
    }
    tx.result(changed).unwrap();
    // Reads without a lock wait for nobody.
    assert_eq!(tx.read(&table, 1u64).unwrap(), Some(job(1, 0)));
    assert_eq!(tx.read_locked(&table, 1u64, Lock::None.no_wait()).unwrap(), Some(job(1, 0)));
    tx.commit().unwrap();
    holder.commit().unwrap();
    assert_eq!(cluster.get(&table, 1u64).unwrap(), Some(job(1, 0)));
    assert_eq!(cluster.get(&table, 2u64).unwrap(), Some(job(2, 5)));
    assert_eq!(cluster.get(&table, 9u64).unwrap(), Some(job(9, 0)));
    assert_nothing_left(&cluster);
}

#[test]
fn locked_rows_are_skipped() {
    let (_node, cluster, table) = start(FOR_EVER, 6);
    let holder = holder(&cluster, &table, &[1, 3], Lock::Exclusive);
    let mut tx = cluster.begin().unwrap();
    let reads: Vec<_> =
        (0..7u64).map(|id| tx.define_read(&table, id, Lock::Exclusive.skip_locked()).unwrap()).collect();
    tx.execute().unwrap();
    for (id, read) in (0..7u64).zip(&reads) {
        match id {
            1 | 3 => {
                assert_eq!(code(tx.row(read)), ErrorCode::RowLocked);
                assert_eq!(code(tx.result(read.operation())), ErrorCode::RowLocked);
                assert_eq!(code(tx.committed_row(read)), ErrorCode::NoSuchTransaction, "not asked for");
            }
            6 => assert_eq!(tx.row(read).unwrap(), None),
            id => assert_eq!(tx.row(read).unwrap(), Some(job(id, 0))),
        }
    }
    assert_eq!(tx.read_locked(&table, 1u64, Lock::Shared.skip_locked()).unwrap(), None);
    let found = tx.find(&table, 1u64, Lock::Shared.skip_locked()).unwrap();
    assert_eq!(found, Found::NotLocked { committed: None });
    assert_eq!(tx.find(&table, 6u64, Lock::Shared.skip_locked()).unwrap(), Found::NoRow);
    // Changes that skip: of those that have to follow in an index, too.
    tx.set_lock_wait(LockWait::SkipLocked);
    let skipped = tx.update(&table, 3u64, &Update::new().set("code", "taken")).unwrap();
    let done = tx.update(&table, 2u64, &Update::new().set("code", "mine")).unwrap();
    tx.execute().unwrap();
    assert_eq!(code(tx.result(skipped)), ErrorCode::RowLocked);
    tx.result(done).unwrap();
    // Another error of the same operation is the transaction's.
    assert_eq!(code(tx.insert(&table, &job(4, 1)).and_then(|_| tx.execute())), ErrorCode::DuplicateKey);
    holder.roll_back().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn a_place_in_an_index_that_others_have_locked_is_skipped_alone() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let mut holder = cluster.begin().unwrap();
    holder.update(&table, 1u64, &Update::new().set("code", "new")).unwrap();
    holder.execute().unwrap();
    for wait in [LockWait::SkipLocked, LockWait::NoWait, LockWait::Millis(1)] {
        let mut tx = cluster.begin().unwrap();
        tx.set_lock_wait(wait);
        tx.set_lenient(!wait.skips());
        let first = tx.update(&table, 0u64, &Update::new().set("state", 3)).unwrap();
        let clash = tx.update(&table, 2u64, &Update::new().set("code", "new").set("state", 3)).unwrap();
        tx.execute().unwrap();
        tx.result(first).unwrap();
        let error = tx.result(clash).unwrap_err();
        let expected =
            if wait == LockWait::Millis(1) { ErrorCode::LockTimeout } else { ErrorCode::RowLocked };
        assert_eq!(error.code(), expected);
        assert_eq!(error.index(), Some(2), "the unique index is to blame");
        assert_eq!(tx.read(&table, 2u64).unwrap(), Some(job(2, 0)), "it was undone alone");
        tx.commit().unwrap();
        assert_eq!(cluster.get(&table, 0u64).unwrap(), Some(job(0, 3)));
        cluster.update(&table, 0u64, &Update::new().set("state", 0)).unwrap();
    }
    holder.commit().unwrap();
    assert_eq!(cluster.get_by(&table, "code", "new").unwrap().unwrap().id, 1);
    assert_nothing_left(&cluster);
}

#[test]
fn own_locks_are_in_nobodys_own_way() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let mut tx = holder(&cluster, &table, &[1], Lock::Exclusive);
    for lock in [Lock::Exclusive, Lock::Shared] {
        assert_eq!(tx.read_locked(&table, 1u64, lock.no_wait()).unwrap(), Some(job(1, 0)));
    }
    // An upgrade of a lock that nobody shares.
    tx.read_locked(&table, 2u64, Lock::Shared).unwrap();
    tx.read_locked(&table, 2u64, Lock::Exclusive.no_wait()).unwrap().unwrap();
    // Of one that somebody shares: at once, and the shared lock stays.
    let mut other = holder(&cluster, &table, &[3], Lock::Shared);
    tx.set_lenient(true);
    tx.read_locked(&table, 3u64, Lock::Shared).unwrap();
    assert_eq!(code(tx.read_locked(&table, 3u64, Lock::Exclusive.no_wait())), ErrorCode::RowLocked);
    assert_eq!(tx.read_locked(&table, 3u64, Lock::Exclusive.skip_locked()).unwrap(), None);
    other.set_lenient(true);
    assert_eq!(code(other.read_locked(&table, 3u64, Lock::Exclusive.no_wait())), ErrorCode::RowLocked);
    tx.commit().unwrap();
    other.read_locked(&table, 3u64, Lock::Exclusive.no_wait()).unwrap().unwrap();
    other.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn waits_have_the_length_that_was_asked_for() {
    let (_node, cluster, table) = start(FOR_EVER, 2);
    let mut holder = holder(&cluster, &table, &[1], Lock::Shared);
    let mut tx = cluster.begin().unwrap();
    tx.set_lenient(true);
    let wait = Lock::Exclusive.within(Duration::from_millis(30));
    assert_eq!(code(tx.read_locked(&table, 1u64, wait)), ErrorCode::LockTimeout);
    tx.set_lock_wait(LockWait::Millis(1));
    let update = tx.update(&table, 1u64, &Update::new().set("state", 1)).unwrap();
    tx.execute().unwrap();
    assert_eq!(code(tx.result(update)), ErrorCode::LockTimeout);
    // Zero is not at all.
    for wait in [Lock::Exclusive.within(Duration::ZERO), Lock::Exclusive.waiting(LockWait::Millis(0))] {
        assert_eq!(code(tx.read_locked(&table, 1u64, wait)), ErrorCode::RowLocked);
    }
    // Who stood in the queue behind one that has given up goes on: this shared lock fits.
    thread::scope(|scope| {
        let before = counter(&cluster, "lock waits");
        let waiting = scope.spawn(|| {
            let mut tx = cluster.begin().unwrap();
            code(tx.read_locked(&table, 1u64, Lock::Exclusive.within(Duration::from_millis(400))))
        });
        eventually("it waits", || counter(&cluster, "lock waits") > before);
        let mut behind = cluster.begin().unwrap();
        behind.read_locked(&table, 1u64, Lock::Shared).unwrap().unwrap();
        assert_eq!(waiting.join().unwrap(), ErrorCode::LockTimeout);
        behind.commit().unwrap();
    });
    tx.commit().unwrap();
    holder.update(&table, 1u64, &Update::new().set("state", 2)).unwrap();
    holder.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn a_wait_may_be_longer_than_is_usual() {
    let (_node, cluster, table) = start("50", 2);
    let holder = holder(&cluster, &table, &[1], Lock::Exclusive);
    thread::scope(|scope| {
        let before = counter(&cluster, "lock waits");
        let waiting = scope.spawn(|| {
            let mut tx = cluster.begin().unwrap();
            tx.set_lock_wait(LockWait::Millis(u32::MAX));
            // Behind it, in one batch, what waits for it.
            let update = tx.update(&table, 1u64, &Update::new().set("state", 4)).unwrap();
            let read = tx.define_read(&table, 1u64, Lock::None).unwrap();
            tx.execute().unwrap();
            tx.result(update).unwrap();
            let row = tx.row(&read).unwrap();
            tx.commit().unwrap();
            row
        });
        eventually("it waits", || counter(&cluster, "lock waits") > before);
        // Two that have come later have waited as long as is usual, one after the other.
        for _ in 0..2 {
            let mut tx = cluster.begin().unwrap();
            assert_eq!(code(tx.read_locked(&table, 1u64, Lock::Shared)), ErrorCode::LockTimeout);
        }
        holder.roll_back().unwrap();
        assert_eq!(waiting.join().unwrap(), Some(job(1, 4)));
    });
    assert_nothing_left(&cluster);
}

#[test]
fn a_row_is_read_as_it_is_committed_if_it_can_not_be_locked() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let mut holder = cluster.begin().unwrap();
    holder.update(&table, 1u64, &Update::new().set("state", 8)).unwrap();
    holder.delete(&table, 2u64).unwrap();
    holder.insert(&table, &job(9, 9)).unwrap();
    holder.execute().unwrap();
    let mut tx = cluster.begin().unwrap();
    let lock = Lock::Exclusive.else_committed();
    let not_locked = |committed| Found::NotLocked { committed };
    assert_eq!(tx.find(&table, 1u64, lock).unwrap(), not_locked(Some(job(1, 0))));
    assert_eq!(tx.find(&table, 2u64, lock).unwrap(), not_locked(Some(job(2, 0))));
    assert_eq!(tx.find(&table, 9u64, lock).unwrap(), not_locked(None), "it is not committed");
    assert_eq!(tx.find(&table, 8u64, lock).unwrap(), Found::NoRow);
    let found = tx.find(&table, 3u64, lock).unwrap();
    assert!(matches!(&found, Found::Row { row, operation: Some(_) } if *row == job(3, 0)), "{found:?}");
    assert!(!is_free(&cluster, &table, 3, Lock::Shared));
    // Several in one batch.
    let reads: Vec<_> = (1..4u64).map(|id| tx.define_read(&table, id, lock).unwrap()).collect();
    tx.execute().unwrap();
    assert_eq!(code(tx.row(&reads[0])), ErrorCode::RowLocked);
    assert_eq!(tx.committed_row(&reads[0]).unwrap(), Some(job(1, 0)));
    assert_eq!(tx.committed_row(&reads[1]).unwrap(), Some(job(2, 0)));
    assert_eq!(tx.row(&reads[2]).unwrap(), Some(job(3, 0)));
    assert_eq!(code(tx.committed_row(&reads[2])), ErrorCode::NoSuchTransaction, "it is locked");
    // Who wants it after all waits, and looks again.
    holder.commit().unwrap();
    assert_eq!(tx.read_locked(&table, 1u64, Lock::Exclusive).unwrap(), Some(job(1, 8)));
    tx.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn rows_are_let_go_of() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let free = |id, lock| is_free(&cluster, &table, id, lock);
    let mut tx = cluster.begin().unwrap();
    let once = tx.define_read(&table, 0u64, Lock::Exclusive).unwrap();
    let twice = tx.define_read(&table, 1u64, Lock::Exclusive).unwrap();
    tx.define_read(&table, 1u64, Lock::Exclusive).unwrap();
    let changed = tx.define_read(&table, 2u64, Lock::Exclusive).unwrap();
    let update = tx.update(&table, 2u64, &Update::new().set("state", 1)).unwrap();
    let shared = tx.define_read(&table, 3u64, Lock::Shared).unwrap();
    let upgraded = tx.define_read(&table, 3u64, Lock::Exclusive).unwrap();
    tx.execute().unwrap();
    for reading in [&once, &twice, &changed, &upgraded] {
        tx.unlock(reading.operation()).unwrap();
    }
    // What they gave is still there, and so are the locks until something is sent.
    assert_eq!(tx.row(&once).unwrap(), Some(job(0, 0)));
    assert!(!free(0, Lock::Shared));
    tx.execute().unwrap();
    assert!(free(0, Lock::Exclusive));
    assert!(!free(1, Lock::Shared), "it was locked twice");
    assert!(!free(2, Lock::Shared), "it was changed");
    assert!(free(3, Lock::Shared), "it is shared again");
    assert!(!free(3, Lock::Exclusive));
    // Twice is once; and what is no read with a lock is reported.
    tx.unlock(once.operation()).unwrap();
    tx.unlock(shared.operation()).unwrap();
    assert_eq!(code(tx.unlock(update)), ErrorCode::BadProgram);
    assert_eq!(code(tx.unlock(vinga::OperationNumber(99))), ErrorCode::BadProgram);
    let plain = tx.define_read(&table, 0u64, Lock::None).unwrap();
    assert_eq!(code(tx.unlock(plain.operation())), ErrorCode::BadProgram);
    tx.execute().unwrap();
    assert!(free(3, Lock::Exclusive));
    // A row whose change was undone stays locked, whatever reads let go.
    let place = tx.savepoint();
    let reading = tx.define_read(&table, 0u64, Lock::Exclusive).unwrap();
    tx.update(&table, 0u64, &Update::new().set("state", 1)).unwrap();
    tx.execute().unwrap();
    tx.roll_back_to(place).unwrap();
    tx.execute().unwrap();
    tx.unlock(reading.operation()).unwrap();
    tx.execute().unwrap();
    assert!(!free(0, Lock::Shared));
    // Operations that were never sent have locked nothing; their numbers are given again.
    let place = tx.savepoint();
    let unsent = tx.define_read(&table, 3u64, Lock::Exclusive).unwrap().operation();
    tx.roll_back_to(place).unwrap();
    assert_eq!(code(tx.unlock(unsent)), ErrorCode::BadProgram);
    tx.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn many_rows_are_let_go_of_with_the_next_request() {
    let (_node, cluster, table) = start(FOR_EVER, 300);
    let mut tx = cluster.begin().unwrap();
    let reads: Vec<_> =
        (0..300u64).map(|id| tx.define_read(&table, id, Lock::Exclusive).unwrap().operation()).collect();
    tx.execute().unwrap();
    let batches = counter(&cluster, "batches");
    for &read in &reads[..299] {
        tx.unlock(read).unwrap();
    }
    assert_eq!(tx.read(&table, 7u64).unwrap(), Some(job(7, 0)), "straight from the owner");
    assert_eq!(counter(&cluster, "batches"), batches);
    tx.read_locked(&table, 0u64, Lock::Shared).unwrap();
    assert_eq!(counter(&cluster, "batches"), batches + 1);
    assert!((1..299).all(|id| is_free(&cluster, &table, id, Lock::Exclusive)));
    assert!(is_free(&cluster, &table, 0, Lock::Shared) && !is_free(&cluster, &table, 299, Lock::Shared));
    // What is left when the transaction ends need not be said.
    tx.unlock(reads[299]).unwrap();
    tx.commit().unwrap();
    assert_nothing_left(&cluster);
}

/// Rows of a scan of all jobs in order, with whether each is locked.
fn scanned(
    tx: &mut Transaction,
    table: &Table<Job>,
    lock: impl Into<LockRequest>,
) -> vinga::Result<Vec<(u64, bool)>> {
    let mut scan = tx.scan_locked(table, lock, |scan| scan.index("by_id").from(0u64).in_order())?;
    let mut rows = Vec::new();
    while let Some(row) = scan.next(tx)? {
        rows.push((row.id, scan.is_locked()));
    }
    Ok(rows)
}

#[test]
fn scans_skip_locked_rows_or_fail_at_them() {
    let (_node, cluster, table) = start(FOR_EVER, 10);
    let mut holder = holder(&cluster, &table, &[5], Lock::Exclusive);
    holder.update(&table, 3u64, &Update::new().set("state", 6)).unwrap();
    holder.delete(&table, 8u64).unwrap();
    holder.execute().unwrap();
    let locked = |ids: &[u64]| ids.iter().map(|&id| (id, true)).collect::<Vec<_>>();
    let mut tx = cluster.begin().unwrap();
    let rows = scanned(&mut tx, &table, Lock::Exclusive.skip_locked()).unwrap();
    assert_eq!(rows, locked(&[0, 1, 2, 4, 6, 7, 9]));
    tx.roll_back().unwrap();
    // With the committed versions of the others.
    let mut tx = cluster.begin().unwrap();
    let rows = scanned(&mut tx, &table, Lock::Exclusive.else_committed()).unwrap();
    let expected: Vec<_> = (0..10).map(|id| (id, ![3, 5, 8].contains(&id))).collect();
    assert_eq!(rows, expected);
    tx.roll_back().unwrap();
    // Those before the first locked row are given; those behind it are let go of.
    let mut tx = cluster.begin().unwrap();
    let mut scan = tx
        .scan_locked(&table, Lock::Exclusive.no_wait(), |scan| scan.index("by_id").from(0u64).in_order())
        .unwrap();
    for id in 0..3 {
        assert_eq!(scan.next(&mut tx).unwrap().map(|row| row.id), Some(id));
    }
    let error = scan.next(&mut tx).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RowLocked);
    assert!(scan.next(&mut tx).unwrap().is_none(), "it is over");
    tx.execute().unwrap();
    assert!(is_free(&cluster, &table, 4, Lock::Exclusive) && !is_free(&cluster, &table, 2, Lock::Shared));
    // Who wants no more than are free does not meet the locked one.
    let mut few = tx
        .scan_locked(&table, Lock::Shared.no_wait(), |scan| {
            scan.index("by_id").from(0u64).in_order().limit(3)
        })
        .unwrap();
    let mut met = 0;
    while few.next(&mut tx).unwrap().is_some() {
        met += 1;
    }
    assert_eq!(met, 3);
    tx.commit().unwrap();
    // A limit counts rows that are given.
    let mut tx = cluster.begin().unwrap();
    let scan = tx
        .scan_locked(&table, Lock::Shared.skip_locked(), |scan| {
            scan.index("by_id").from(2u64).in_order().limit(4)
        })
        .unwrap();
    let ids: Vec<u64> = scan.collect(&mut tx).unwrap().iter().map(|row| row.id).collect();
    assert_eq!(ids, [2, 4, 6, 7]);
    tx.commit().unwrap();
    // As the transaction says, if nothing else is said.
    let mut tx = cluster.begin().unwrap();
    tx.set_lock_wait(LockWait::SkipLocked);
    assert_eq!(scanned(&mut tx, &table, Lock::Shared).unwrap().len(), 7);
    tx.commit().unwrap();
    holder.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn rows_of_scans_are_let_go_of() {
    let (_node, cluster, table) = start(FOR_EVER, 200);
    let mut tx = cluster.begin().unwrap();
    let mut scan =
        tx.scan_locked(&table, Lock::Exclusive, |scan| scan.index("by_id").from(0u64).in_order()).unwrap();
    // Only every tenth row is wanted.
    while let Some(row) = scan.next(&mut tx).unwrap() {
        if row.id % 10 > 0 {
            tx.unlock(scan.operation()).unwrap();
        }
    }
    tx.execute().unwrap();
    for id in 0..200 {
        assert_eq!(is_free(&cluster, &table, id, Lock::Exclusive), id % 10 > 0, "{id}");
    }
    // By batches; what is left out by the filter is not locked.
    let mut scan = tx
        .scan_locked(&table, Lock::Exclusive, |scan| {
            scan.index("by_id").from(100u64).in_order().filter(table.column("id").unwrap().less_than(103u64))
        })
        .unwrap();
    while let Some(rows) = scan.next_batch(&mut tx).unwrap() {
        for at in 0..rows.len() {
            assert!(rows.is_locked(at));
            tx.unlock(rows.operation(at).unwrap()).unwrap();
        }
        assert_eq!((rows.operation(rows.len()), rows.is_locked(rows.len())), (None, false));
    }
    tx.execute().unwrap();
    assert!(!is_free(&cluster, &table, 100, Lock::Shared), "an earlier scan holds it");
    assert!(
        is_free(&cluster, &table, 101, Lock::Exclusive) && is_free(&cluster, &table, 102, Lock::Exclusive)
    );
    assert!(is_free(&cluster, &table, 103, Lock::Exclusive));
    tx.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn reads_by_a_unique_index_bound_their_waits() {
    let (_node, cluster, table) = start(FOR_EVER, 6);
    let mut holder = holder(&cluster, &table, &[1], Lock::Exclusive);
    holder.update(&table, 2u64, &Update::new().set("code", "moved")).unwrap();
    holder.execute().unwrap();
    let mut tx = cluster.begin().unwrap();
    let codes = ["c000", "c001", "c002", "moved", "none"];
    let found = tx.find_by(&table, "code", codes, Lock::Exclusive.skip_locked()).unwrap();
    let Found::Row { row, operation: Some(operation) } = &found[0] else { panic!("{:?}", found[0]) };
    assert_eq!(*row, job(0, 0));
    let not_locked = |committed: Option<Job>| Found::NotLocked { committed };
    assert_eq!(found[1..], [not_locked(None), not_locked(None), Found::NoRow, Found::NoRow]);
    assert_eq!(tx.get_by(&table, "code", "c001", Lock::Shared.skip_locked()).unwrap(), None);
    let found = tx.find_by(&table, "code", ["c001", "c003"], Lock::Shared.else_committed()).unwrap();
    assert_eq!(found[0], not_locked(Some(job(1, 0))));
    assert!(matches!(found[1], Found::Row { .. }));
    // Rows that are let go of, by the operation.
    tx.unlock(*operation).unwrap();
    tx.execute().unwrap();
    assert!(is_free(&cluster, &table, 0, Lock::Exclusive));
    tx.set_lenient(true);
    assert_eq!(code(tx.get_by(&table, "code", "c002", Lock::Shared.no_wait())), ErrorCode::RowLocked);
    let wait = Lock::Shared.within(Duration::from_millis(20));
    assert_eq!(code(tx.get_by(&table, "code", "c002", wait)), ErrorCode::LockTimeout);
    assert_eq!(tx.get_by(&table, "code", "c002", Lock::None.no_wait()).unwrap(), Some(job(2, 0)));
    tx.commit().unwrap();
    holder.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn a_locked_place_in_a_unique_index_keeps_nobody_waiting_who_does_not() {
    let (_node, cluster, table) = start(FOR_EVER, 2);
    // The row of the index leads to no row that fits any more, and is locked until that is so for everybody.
    let mut holder = cluster.begin().unwrap();
    holder.update(&table, 1u64, &Update::new().set("code", "moved")).unwrap();
    holder.execute().unwrap();
    let mut tx = cluster.begin().unwrap();
    assert_eq!(tx.get_by(&table, "code", "c001", Lock::None).unwrap(), Some(job(1, 0)));
    assert_eq!(tx.get_by(&table, "code", "c001", Lock::Exclusive.skip_locked()).unwrap(), None);
    holder.commit().unwrap();
    assert_eq!(tx.get_by(&table, "code", "c001", Lock::Exclusive.skip_locked()).unwrap(), None);
    assert_eq!(tx.get_by(&table, "code", "moved", Lock::Exclusive.no_wait()).unwrap().unwrap().id, 1);
    tx.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn futures_skip_and_let_go_as_well() {
    let (_node, cluster, table) = start(FOR_EVER, 4);
    let holder = holder(&cluster, &table, &[1], Lock::Exclusive);
    let inner = cluster.as_async();
    run(async {
        let mut tx = inner.begin().unwrap();
        assert_eq!(tx.read_locked(&table, 1u64, Lock::Exclusive.skip_locked()).await.unwrap(), None);
        let found = tx.find(&table, 2u64, Lock::Exclusive.else_committed()).await.unwrap();
        let Found::Row { operation: Some(operation), .. } = found else { panic!("{found:?}") };
        assert!(!is_free(&cluster, &table, 2, Lock::Shared));
        tx.unlock(operation).unwrap();
        tx.execute().await.unwrap();
        assert!(is_free(&cluster, &table, 2, Lock::Exclusive));
        let request = inner.scan(&table).index("by_id").from(0u64).in_order();
        let scan = tx.scan_locked(request, Lock::Shared.skip_locked()).await.unwrap();
        let ids: Vec<u64> = scan.collect(&mut tx).await.unwrap().iter().map(|row| row.id).collect();
        assert_eq!(ids, [0, 2, 3]);
        tx.commit().await.unwrap();
    });
    holder.commit().unwrap();
    assert_nothing_left(&cluster);
}

#[test]
fn rows_that_vanish_are_left_out_of_scans_that_skip() {
    const JOBS: u64 = 60;
    let (_node, cluster, table) = start("20000", JOBS);
    // Two that take jobs and remove them, each one that it has got; nobody waits for the other, and none is done twice.
    let work = || {
        let mut taken = Vec::new();
        loop {
            let mut tx = cluster.begin().unwrap();
            let mut scan = tx
                .scan_locked(&table, Lock::Exclusive.skip_locked(), |scan| {
                    scan.index("by_id").from(0u64).in_order().limit(1)
                })
                .unwrap();
            let Some(row) = scan.next(&mut tx).unwrap() else {
                // All that are left are the other's.
                tx.commit().unwrap();
                if cluster.scan(&table, |scan| scan).unwrap().next().is_none() {
                    return taken;
                }
                continue;
            };
            tx.delete(&table, row.id).unwrap();
            tx.commit().unwrap();
            taken.push(row.id);
        }
    };
    let mut taken = thread::scope(|scope| {
        let (one, other) = (scope.spawn(work), scope.spawn(work));
        [one.join().unwrap(), other.join().unwrap()].concat()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..JOBS).collect::<Vec<_>>());
    assert_eq!(counter(&cluster, "lock waits"), 0, "nobody has waited");
    assert_nothing_left(&cluster);
}
