//! The checks accept what can be true and name what can't.

use vinga_base::{Epoch, NodeId};
use vinga_wire::ErrorCode;
use vinga_wire::operation::{LockWait, OperationKind};
use vinga_workloads::check;
use vinga_workloads::history::{
    Event, History, KeyRead, OperationRecord, OperationResult, RowName, ScanRecord, Transaction,
};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Body, Change, Fate, Operation, Scan, TableRef};
use vinga_workloads::workload::Contents;

const TABLE: TableRef = TableRef(0);
const VERSION: u64 = 7;

fn value(value: u64) -> Value {
    Value { value, count: 0 }
}

fn row(key: u64) -> RowName {
    RowName { table: TABLE, version: VERSION, key }
}

fn operation(
    number: u32,
    kind: OperationKind,
    key: u64,
    body: Body,
    (sent, answered): (u64, u64),
    result: OperationResult,
) -> Event {
    let operation = Operation {
        number,
        kind,
        table: TABLE,
        key,
        body,
        condition: None,
        error_is_local: false,
        wait: LockWait::Default,
        selects: false,
    };
    Event::Operation(OperationRecord { operation, version: VERSION, sent, answered: Some(answered), result })
}

/// A transaction that writes one row and commits.
fn write(key: u64, written: u64, (sent, ended): (u64, u64), fate: Fate) -> Transaction {
    let body = Body::Row(value(written));
    let event = operation(1, OperationKind::Write, key, body, (sent, ended), OperationResult::Done);
    Transaction {
        id: written,
        session: 1,
        events: vec![event],
        commit_sent: Some(sent),
        ended: Some(ended),
        fate,
    }
}

fn read(key: u64, (sent, answered): (u64, u64), seen: Option<u64>) -> KeyRead {
    KeyRead { row: row(key), sent, answered, condition: None, seen: seen.map(value), backup: None }
}

fn contents(rows: &[(u64, u64, u64)]) -> Contents {
    Contents {
        versions: [(TABLE, VERSION)].into(),
        rows: rows.iter().map(|&(key, v, epoch)| ((TABLE, key), (value(v), epoch))).collect(),
    }
}

const COMMITTED: Fate = Fate::Committed(Epoch(5));

fn verdict(history: &History, contents: &Contents) -> String {
    match check::check(history, contents, 10_000, 500) {
        Ok(_) => "true".to_string(),
        Err(what) => what.lines().next().unwrap().to_string(),
    }
}

#[test]
fn reads_see_the_newest_write() {
    let mut history = History {
        transactions: vec![write(1, 100, (10, 20), COMMITTED), write(1, 101, (30, 50), COMMITTED)],
        ..History::default()
    };
    history.reads = vec![
        read(1, (1, 12), None),
        read(1, (11, 13), Some(100)),
        read(1, (21, 60), Some(100)),
        read(1, (32, 40), Some(101)),
    ];
    let end = contents(&[(1, 101, 5)]);
    assert_eq!(verdict(&history, &end), "true");
    history.reads.push(read(1, (45, 46), Some(100)));
    assert!(
        verdict(&history, &end).contains("can be put in order"),
        "the old value after the new one was seen"
    );
    history.reads.pop();
    assert!(verdict(&history, &contents(&[(1, 100, 5)])).contains("can be put in order"), "a lost write");
    assert!(verdict(&history, &contents(&[])).contains("can be put in order"), "a lost row");
    history.reads.push(read(1, (70, 80), Some(999)));
    assert!(verdict(&history, &end).contains("which nobody wrote"));
}

/// Until a commit is answered a backup may show the old version, though the primary shows the new one.
#[test]
fn each_backup_has_an_order_of_its_own() {
    let at = |node, times, seen| KeyRead { backup: Some(NodeId(node)), ..read(1, times, seen) };
    let judge = |reads: &[KeyRead]| {
        let transactions = vec![write(1, 100, (10, 20), COMMITTED), write(1, 101, (30, 50), COMMITTED)];
        let history = History { transactions, reads: reads.to_vec(), ..History::default() };
        verdict(&history, &contents(&[(1, 101, 5)]))
    };
    let (at_primary, later) = (read(1, (32, 40), Some(101)), at(2, (45, 46), Some(100)));
    assert_eq!(judge(&[at_primary, later, at(2, (60, 61), Some(101))]), "true");
    assert_eq!(judge(&[at(3, (32, 40), Some(101)), later]), "true");
    let at_one = judge(&[at(2, (32, 40), Some(101)), later]);
    assert!(at_one.contains("at node 2, a backup") && at_one.contains("can be put in order"), "{at_one}");
    let answered = judge(&[at_primary, at(2, (51, 60), Some(100))]);
    assert!(answered.contains("at node 2, a backup"), "the commit was answered before: {answered}");
    assert!(
        judge(&[read(1, (32, 40), Some(101)), read(1, (45, 46), Some(100))]).contains("can be put in order")
    );
}

#[test]
fn what_is_not_committed_is_not_seen() {
    let rolled_back = Fate::RolledBack { error: None, operation: 0 };
    let mut history =
        History { transactions: vec![write(1, 100, (10, 20), rolled_back)], ..History::default() };
    assert_eq!(verdict(&history, &contents(&[])), "true");
    assert!(verdict(&history, &contents(&[(1, 100, 5)])).contains("which was rolled back"));
    history.transactions[0].fate = Fate::Unknown;
    assert_eq!(verdict(&history, &contents(&[])), "true");
    assert_eq!(verdict(&history, &contents(&[(1, 100, 5)])), "true");
    history.reads = vec![read(1, (1, 5), Some(100))];
    assert!(verdict(&history, &contents(&[])).contains("which was not to be committed by then"));
}

#[test]
fn an_unknown_transaction_is_there_as_a_whole_or_not_at_all() {
    let mut both = write(1, 100, (10, 20), Fate::Unknown);
    let body = Body::Row(value(101));
    both.events.push(operation(2, OperationKind::Write, 2, body, (10, 20), OperationResult::Unknown));
    let history = History { transactions: vec![both], ..History::default() };
    assert_eq!(verdict(&history, &contents(&[(1, 100, 5), (2, 101, 5)])), "true");
    assert_eq!(verdict(&history, &contents(&[])), "true");
    assert!(verdict(&history, &contents(&[(1, 100, 5)])).contains("row 2"));
}

#[test]
fn undone_operations_leave_nothing() {
    let mut transaction = write(1, 100, (10, 90), COMMITTED);
    let change = Body::Change(Change { set: Some(101), ..Change::default() });
    transaction.events.push(operation(2, OperationKind::Update, 1, change, (20, 30), OperationResult::Done));
    transaction.events.push(Event::OwnRead(read(1, (31, 32), Some(101)), 3));
    transaction.events.push(Event::RollbackTo(2));
    transaction.events.push(Event::OwnRead(read(1, (41, 42), Some(100)), 3));
    let mut history = History { transactions: vec![transaction], ..History::default() };
    assert_eq!(verdict(&history, &contents(&[(1, 100, 5)])), "true");
    assert!(verdict(&history, &contents(&[(1, 101, 5)])).contains("which was undone"));
    history.transactions[0].events[4] = Event::OwnRead(read(1, (41, 42), Some(101)), 3);
    assert!(verdict(&history, &contents(&[(1, 100, 5)])).contains("can be put in order"));
}

#[test]
fn errors_say_what_is_there() {
    let mut failed = write(1, 100, (30, 40), Fate::RolledBack { error: None, operation: 1 });
    let result = OperationResult::Failed(ErrorCode::DuplicateKey);
    failed.events[0] = operation(1, OperationKind::Insert, 1, Body::Row(value(100)), (30, 40), result);
    let mut history = History { transactions: vec![failed], ..History::default() };
    assert!(verdict(&history, &contents(&[])).contains("can be put in order"), "there was no row");
    history.transactions.insert(0, write(1, 99, (10, 20), COMMITTED));
    assert_eq!(verdict(&history, &contents(&[(1, 99, 5)])), "true");
}

#[test]
fn locked_rows_stay_as_they_were_read() {
    let read_locked = |seen| {
        operation(1, OperationKind::ReadExclusive, 1, Body::None, (21, 25), OperationResult::Row(seen))
    };
    let mut transaction = write(1, 200, (60, 70), COMMITTED);
    transaction.events.insert(0, read_locked(Some(value(100))));
    let history = |between: bool| {
        let mut transactions = vec![write(1, 100, (10, 20), COMMITTED), transaction.clone()];
        if between {
            transactions.push(write(1, 150, (30, 50), COMMITTED));
        }
        History { transactions, ..History::default() }
    };
    assert_eq!(verdict(&history(false), &contents(&[(1, 200, 5)])), "true");
    assert!(verdict(&history(true), &contents(&[(1, 200, 5)])).contains("can be put in order"));
}

/// The end of a lock may name a row of a table of which nothing is known; it is that of the read's row all the same.
#[test]
fn the_end_of_a_lock_counts_whichever_table_it_names() {
    const OTHER: TableRef = TableRef(1);
    let seen = OperationResult::Row(Some(value(100)));
    let mut unlock = operation(2, OperationKind::Unlock, 3, Body::Unlock(1), (32, 33), OperationResult::Done);
    if let Event::Operation(record) = &mut unlock {
        record.operation.table = OTHER;
    }
    let mut reader = write(1, 300, (50, 60), COMMITTED);
    let write_behind =
        operation(3, OperationKind::Write, 1, Body::Row(value(300)), (50, 60), OperationResult::Done);
    reader.events =
        vec![operation(1, OperationKind::ReadExclusive, 1, Body::None, (30, 31), seen), unlock, write_behind];
    let transactions = vec![write(1, 100, (10, 20), COMMITTED), write(1, 200, (34, 40), COMMITTED), reader];
    let history = History { transactions, died_at: 100, ..History::default() };
    let end = contents(&[(1, 300, 5)]);
    assert_eq!(verdict(&history, &end), "true");
    let (mut left_out, mut emptied) = (history.clone(), history.clone());
    left_out.leave_out(|table| table == OTHER);
    emptied.empty(|table| table == OTHER);
    for history in [left_out, emptied] {
        assert_eq!(verdict(&history, &end), "true");
    }
    let mut without = history;
    without.transactions[2].events.remove(1);
    assert!(verdict(&without, &end).contains("can be put in order"));
}

#[test]
fn epochs_follow_each_other() {
    let mut history = History {
        transactions: vec![
            write(1, 100, (10, 20), Fate::Committed(Epoch(9))),
            write(1, 101, (30, 40), Fate::Committed(Epoch(8))),
        ],
        ..History::default()
    };
    assert!(verdict(&history, &contents(&[(1, 101, 8)])).contains("in epoch 8 follows"));
    history.transactions[1].fate = Fate::Committed(Epoch(9));
    assert_eq!(verdict(&history, &contents(&[(1, 101, 9)])), "true");
    assert!(verdict(&history, &contents(&[(1, 101, 8)])).contains("has epoch 8"));
    // Another row: it follows what its client knew, not what others did.
    history.transactions[1] = write(2, 101, (30, 40), Fate::Committed(Epoch(8)));
    let end = contents(&[(1, 100, 9), (2, 101, 8)]);
    assert!(verdict(&history, &end).contains("one client: transaction"));
    history.transactions[1].id |= 1 << 56;
    assert_eq!(verdict(&history, &end), "true");
    // A read of the row that the first has changed follows it; the end of a lock that it names by that row does not.
    let mut touch = |number, kind, body, result| {
        history.transactions[1].events.truncate(1);
        history.transactions[1].events.push(operation(number, kind, 1, body, (30, 40), result));
        verdict(&history, &end)
    };
    let unlocked = touch(2, OperationKind::Unlock, Body::Unlock(1), OperationResult::Done);
    assert_eq!(unlocked, "true");
    let seen = OperationResult::Row(Some(value(100)));
    assert!(touch(2, OperationKind::ReadShared, Body::None, seen).contains("in epoch 8"));
}

#[test]
fn scans_meet_what_is_there() {
    let scan = |rows: &[(u64, u64)], own_before| ScanRecord {
        scan: Scan {
            table: TABLE,
            range: None,
            condition: None,
            batch_rows: 1,
            own_before,
            selects: false,
            counts: false,
        },
        version: VERSION,
        transaction: own_before.map(|_| 1),
        opened: 100,
        ended: Some(200),
        parts: Vec::new(),
        rows: rows.iter().map(|&(key, v)| (100, 200, key, value(v))).collect(),
        counted: 0,
    };
    let count = |counted, own_before| {
        let mut record = scan(&[], own_before);
        record.scan.counts = true;
        ScanRecord { counted, ..record }
    };
    let mut own = write(2, 300, (150, 160), COMMITTED);
    own.events.push(operation(
        2,
        OperationKind::Write,
        3,
        Body::Row(value(301)),
        (150, 160),
        OperationResult::Done,
    ));
    let transactions = vec![write(1, 100, (10, 20), COMMITTED), own];
    let end = contents(&[(1, 100, 5), (2, 300, 5), (3, 301, 5)]);
    let verdict_of = |record| {
        verdict(
            &History { transactions: transactions.clone(), scans: vec![record], ..History::default() },
            &end,
        )
    };
    assert_eq!(verdict_of(scan(&[(1, 100)], None)), "true");
    assert_eq!(verdict_of(scan(&[(1, 100), (2, 300)], None)), "true", "it came meanwhile");
    assert!(verdict_of(scan(&[], None)).contains("0 times"));
    assert!(verdict_of(scan(&[(1, 100), (1, 100)], None)).contains("2 times"));
    assert_eq!(verdict_of(scan(&[(1, 100), (2, 300)], Some(2))), "true");
    assert!(verdict_of(scan(&[(1, 100), (3, 301)], Some(2))).contains("opened before operation 2"));
    assert!(verdict_of(count(0, None)).contains("counted 0 rows, not 1 to"));
    assert_eq!(verdict_of(count(1, None)), "true");
    assert_eq!(verdict_of(count(3, None)), "true", "two came meanwhile");
    assert!(verdict_of(count(9, None)).contains("counted 9 rows"));
    assert_eq!(verdict_of(count(3, Some(3))), "true");
    assert!(verdict_of(count(2, Some(3))).contains("counted 2 rows, not 3 to 3"), "it has locked two");
}

#[test]
fn an_operation_that_waits_for_a_lock_waits_for_a_holder() {
    let mut waiter =
        write(1, 200, (1000, 1600), Fate::RolledBack { error: Some(ErrorCode::LockTimeout), operation: 1 });
    let result = OperationResult::Failed(ErrorCode::LockTimeout);
    waiter.events[0] = operation(1, OperationKind::Write, 1, Body::Row(value(200)), (1000, 1600), result);
    let verdict_of = |holders: &[(u64, u64)]| {
        let mut transactions = vec![waiter.clone()];
        transactions.extend((300..).zip(holders).map(|(v, &times)| write(1, v, times, COMMITTED)));
        let last = holders.len() as u64 + 299;
        verdict(&History { transactions, ..History::default() }, &contents(&[(1, last, 5)]))
    };
    assert_eq!(verdict_of(&[(900, 1550)]), "true");
    assert_eq!(verdict_of(&[(900, 1200), (1190, 1550)]), "true", "one after the other");
    assert!(verdict_of(&[(900, 1200), (1300, 1590)]).contains("nobody held it for more than 290"));
}

#[test]
fn an_operation_that_may_not_wait_finds_another_holder() {
    let denied = |wait: LockWait, result: OperationResult, fate: Fate| {
        let mut transaction = write(1, 200, (1000, 1600), fate);
        let mut event = operation(2, OperationKind::ReadExclusive, 1, Body::None, (1100, 1200), result);
        if let Event::Operation(record) = &mut event {
            record.operation.wait = wait;
        }
        transaction.events = vec![event];
        transaction
    };
    let asked = Fate::RolledBack { error: None, operation: 0 };
    let locked = OperationResult::Failed(ErrorCode::RowLocked);
    let verdict_of = |mut transaction: Transaction, holder: Option<(u64, u64)>, before: Option<Event>| {
        transaction.events.splice(0..0, before);
        let written = write(1, 300, holder.unwrap_or((100, 200)), COMMITTED);
        verdict(
            &History { transactions: vec![written, transaction], ..History::default() },
            &contents(&[(1, 300, 5)]),
        )
    };
    let meanwhile = Some((1150, 1300));
    for wait in [LockWait::NoWait, LockWait::SkipLocked, LockWait::Millis(0)] {
        assert_eq!(verdict_of(denied(wait, locked, asked), meanwhile, None), "true");
        assert!(verdict_of(denied(wait, locked, asked), None, None).contains("nobody had it"));
        for code in [ErrorCode::LockTimeout, ErrorCode::Deadlock] {
            let failed = denied(wait, OperationResult::Failed(code), asked);
            assert!(verdict_of(failed, meanwhile, None).contains("was not to wait"));
        }
    }
    for wait in [LockWait::Default, LockWait::Millis(3)] {
        assert!(verdict_of(denied(wait, locked, asked), meanwhile, None).contains("was not waited for"));
    }
    // Its own length counts, not the usual one.
    let timed_out = OperationResult::Failed(ErrorCode::LockTimeout);
    let mut waited = denied(LockWait::Millis(1), timed_out, asked);
    if let Event::Operation(record) = &mut waited.events[0] {
        record.answered = Some(2200);
    }
    assert!(verdict_of(waited.clone(), meanwhile, None).contains("time-out of 1000"));
    assert_eq!(verdict_of(waited, Some((1050, 2150)), None), "true");
    // A lost transaction; a committed version without anybody in the way; a lock that it had itself.
    let lost = Fate::RolledBack { error: Some(ErrorCode::RowLocked), operation: 2 };
    assert_eq!(verdict_of(denied(LockWait::NoWait, locked, lost), meanwhile, None), "true");
    let cost = verdict_of(denied(LockWait::SkipLocked, locked, lost), meanwhile, None);
    assert!(cost.contains("cost its transaction"), "{cost}");
    let seen = OperationResult::NotLocked(Some(value(300)));
    let instead = |holder| verdict_of(denied(LockWait::ElseCommitted, seen, asked), holder, None);
    assert_eq!(instead(meanwhile), "true");
    assert!(instead(None).contains("nobody had it"));
    let seen = OperationResult::Row(Some(value(300)));
    let own = || operation(1, OperationKind::ReadExclusive, 1, Body::None, (1010, 1020), seen);
    let twice = verdict_of(denied(LockWait::NoWait, locked, asked), Some((900, 1005)), Some(own()));
    assert!(twice.contains("nobody had it"), "{twice}");
    let twice = verdict_of(denied(LockWait::NoWait, locked, asked), Some((900, 1500)), Some(own()));
    assert!(twice.contains("though its transaction had locked it"), "{twice}");
}
