//! The check of lists accepts transactions that have an order, and names those that have none.

use vinga_base::Epoch;
use vinga_wire::operation::{LockWait, OperationKind};
use vinga_workloads::check::{atomic, lists};
use vinga_workloads::history::{Event, History, Loss, OperationRecord, OperationResult, Transaction};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Body, Change, Fate, Operation, TableRef};
use vinga_workloads::workload::Contents;

const TABLE: TableRef = TableRef(0);
const VERSION: u64 = 7;
const COMMITTED: Fate = Fate::Committed(Epoch(5));

/// What a transaction does with a list: its key, the element and the position.
#[derive(Clone, Copy)]
enum Op {
    /// Sees an element as the last one, under a shared lock.
    Read(u64, u64, u64),
    /// The same without a lock.
    Look(u64, u64, u64),
    /// Writes a row.
    Append(u64, u64, u64),
    /// Appends by a program, which does not say at which position.
    Add(u64, u64),
    /// Lets go of the lock of the operation of this number.
    Unlock(u64, u32),
}

/// A committed transaction between two times.
fn transaction(id: u64, (begun, ended): (u64, u64), ops: &[Op]) -> Transaction {
    let event = |(number, op): (u32, &Op)| {
        let seen = |value, count| OperationResult::Row(Some(Value { value, count }));
        let (kind, key, body, result) = match *op {
            Op::Read(key, value, count) => (OperationKind::ReadShared, key, Body::None, seen(value, count)),
            Op::Look(key, value, count) => {
                (OperationKind::ReadCommitted, key, Body::None, seen(value, count))
            }
            Op::Append(key, value, count) => {
                (OperationKind::Write, key, Body::Row(Value { value, count }), OperationResult::Done)
            }
            Op::Add(key, value) => {
                let change = Change { set: Some(value), add: 1, ..Change::default() };
                (OperationKind::Update, key, Body::Change(change), OperationResult::Done)
            }
            Op::Unlock(key, read) => (OperationKind::Unlock, key, Body::Unlock(read), OperationResult::Done),
        };
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
        Event::Operation(OperationRecord {
            operation,
            version: VERSION,
            sent: begun,
            answered: Some(ended),
            result,
        })
    };
    Transaction {
        id: 145 << 56 | id,
        session: 1,
        events: (1..).zip(ops).map(event).collect(),
        commit_sent: Some(begun),
        ended: Some(ended),
        fate: COMMITTED,
    }
}

/// Two lists of one element each, then these transactions.
fn history(transactions: &[Transaction]) -> History {
    let loader = transaction(1, (0, 9), &[Op::Append(1, 100, 0), Op::Append(2, 200, 0)]);
    History {
        transactions: [&[loader][..], transactions].concat(),
        lists: [TABLE].into(),
        ..History::default()
    }
}

fn verdict_with(history: &History, contents: &Contents) -> String {
    let writers = atomic::Writers::new(history).expect("values are written once");
    let proven = atomic::check(history, contents, &writers).expect("what is seen was written");
    match lists::check(history, contents, &writers, &proven) {
        Ok(()) => String::from("in order"),
        Err(what) => what,
    }
}

fn verdict(history: &History) -> String {
    verdict_with(history, &Contents::default())
}

/// The first line.
fn cycle(history: &History) -> String {
    verdict(history).lines().next().expect("there is a line").to_string()
}

#[test]
fn transactions_in_order_are_well() {
    let history = history(&[
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Append(2, 201, 1)]),
        transaction(3, (10, 50), &[Op::Read(2, 201, 1), Op::Append(1, 101, 1), Op::Read(1, 101, 1)]),
        transaction(4, (60, 70), &[Op::Add(1, 102), Op::Read(2, 201, 1)]),
        transaction(5, (80, 90), &[Op::Read(1, 102, 2), Op::Read(2, 201, 1)]),
    ]);
    assert_eq!(verdict(&history), "in order");
}

#[test]
fn a_lost_update_is_noticed() {
    // Both saw the first element and put theirs behind it.
    let history = history(&[
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Append(1, 101, 1)]),
        transaction(3, (10, 50), &[Op::Read(1, 100, 0), Op::Append(1, 102, 1)]),
    ]);
    let text =
        "row 1 of table 0 (version 7): two elements have position 1, 0x65 of T145.0.2 and 0x66 of T145.0.3";
    assert_eq!(verdict(&history), text);
}

#[test]
fn an_update_that_does_not_see_the_last_one_is_noticed() {
    // The second one counts on, but had seen the list as it was before the first one.
    let history = history(&[
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Append(1, 101, 1)]),
        transaction(3, (10, 50), &[Op::Read(1, 100, 0), Op::Add(1, 102), Op::Read(1, 102, 2)]),
    ]);
    assert_eq!(cycle(&history), "transactions have no order: T145.0.2 -ww-> T145.0.3 -rw-> T145.0.2");
}

#[test]
fn write_skew_is_noticed() {
    let skew = [
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Append(2, 201, 1)]),
        transaction(3, (10, 50), &[Op::Read(2, 200, 0), Op::Append(1, 101, 1)]),
    ];
    assert_eq!(
        verdict(&history(&skew)),
        "transactions have no order: T145.0.2 -rw-> T145.0.3 -rw-> T145.0.2\
         \n    T145.0.2 (from 10 to 40) saw row 1 of table 0 (version 7) up to position 0, \
         and T145.0.3 appended position 1\
         \n    T145.0.3 (from 10 to 50) saw row 2 of table 0 (version 7) up to position 0, \
         and T145.0.2 appended position 1"
    );
    // Reads without locks, and locks that are let go, promise nothing.
    let mut looks = skew.clone();
    looks[0] = transaction(2, (10, 40), &[Op::Look(1, 100, 0), Op::Append(2, 201, 1)]);
    assert_eq!(verdict(&history(&looks)), "in order");
    looks[0] = transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Unlock(1, 1), Op::Append(2, 201, 1)]);
    assert_eq!(verdict(&history(&looks)), "in order");
    // What was rolled back is in no order, nor is what may not have been committed and was seen by nobody.
    for fate in [Fate::RolledBack { error: None, operation: 0 }, Fate::Unknown] {
        let mut one = history(&skew);
        one.transactions[2].fate = fate;
        assert_eq!(verdict(&one), "in order");
    }
}

#[test]
fn read_skew_is_noticed() {
    // One reads the first list before, and the second behind the transaction that appends to both (G-single).
    let history = history(&[
        transaction(2, (10, 40), &[Op::Append(1, 101, 1), Op::Append(2, 201, 1)]),
        transaction(3, (10, 50), &[Op::Read(1, 100, 0), Op::Read(2, 201, 1)]),
    ]);
    assert_eq!(cycle(&history), "transactions have no order: T145.0.2 -wr-> T145.0.3 -rw-> T145.0.2");
}

#[test]
fn a_read_of_half_a_transaction_is_noticed() {
    let history = history(&[
        transaction(2, (10, 40), &[Op::Append(1, 101, 1), Op::Append(1, 102, 2)]),
        transaction(3, (10, 50), &[Op::Read(1, 101, 1)]),
    ]);
    assert_eq!(cycle(&history), "transactions have no order: T145.0.2 -wr-> T145.0.3 -rw-> T145.0.2");
}

#[test]
fn a_long_cycle_over_three_lists_is_noticed() {
    let mut history = history(&[
        transaction(2, (10, 40), &[Op::Append(3, 300, 0)]),
        transaction(3, (50, 90), &[Op::Read(1, 100, 0), Op::Append(2, 201, 1)]),
        transaction(4, (50, 90), &[Op::Read(2, 200, 0), Op::Append(3, 301, 1)]),
        transaction(5, (50, 90), &[Op::Read(3, 300, 0), Op::Append(1, 101, 1)]),
    ]);
    let text = "transactions have no order: T145.0.3 -rw-> T145.0.5 -rw-> T145.0.4 -rw-> T145.0.3";
    assert_eq!(cycle(&history), text);
    history.lists.clear();
    assert_eq!(verdict(&history), "in order", "the order of what is no list is not known");
}

#[test]
fn an_end_that_was_known_comes_before_what_began_later() {
    // The reader has an order with the appends, but only one in which the second append comes before the first ended.
    let mut history = history(&[
        transaction(2, (10, 20), &[Op::Append(1, 101, 1)]),
        transaction(3, (30, 40), &[Op::Append(2, 201, 1)]),
        transaction(4, (5, 50), &[Op::Read(1, 100, 0), Op::Read(2, 201, 1)]),
    ]);
    let text = "transactions have no order: T145.0.4 -rw-> T145.0.2 -real time-> T145.0.3 -wr-> T145.0.4";
    assert_eq!(cycle(&history), text);
    assert!(
        verdict(&history).contains("\n    T145.0.2 (from 10 to 20) had ended before T145.0.3 began at 30")
    );
    // If its end was not known before, it may have happened later.
    history.transactions[1].ended = Some(30);
    assert_eq!(verdict(&history), "in order");
}

#[test]
fn what_was_seen_is_committed_without_an_answer() {
    let mut history = history(&[
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Add(2, 201)]),
        transaction(3, (10, 50), &[Op::Read(2, 200, 0), Op::Append(1, 101, 1)]),
        transaction(4, (60, 70), &[Op::Read(2, 201, 1)]),
    ]);
    (history.transactions[1].fate, history.transactions[1].ended) = (Fate::Unknown, None);
    assert_eq!(cycle(&history), "transactions have no order: T145.0.2 -rw-> T145.0.3 -rw-> T145.0.2");
    // The rows that are left are seen as well.
    history.transactions.pop();
    assert_eq!(verdict(&history), "in order");
    let contents = Contents {
        versions: [(TABLE, VERSION)].into(),
        rows: [((TABLE, 2), (Value { value: 201, count: 1 }, 5))].into(),
    };
    let text = verdict_with(&history, &contents);
    assert!(text.starts_with("transactions have no order: T145.0.2 -rw-> T145.0.3 -rw-> T145.0.2"), "{text}");
}

#[test]
fn a_place_that_nobody_saw_is_passed_over() {
    // Nobody knows which element has position 1; who appended position 2 comes behind it all the same.
    let history = history(&[
        transaction(2, (10, 40), &[Op::Add(1, 101)]),
        transaction(3, (10, 50), &[Op::Add(1, 102), Op::Read(1, 102, 2), Op::Append(2, 201, 1)]),
        transaction(4, (10, 60), &[Op::Read(2, 201, 1), Op::Read(1, 100, 0)]),
    ]);
    assert_eq!(cycle(&history), "transactions have no order: T145.0.3 -wr-> T145.0.4 -rw-> T145.0.3");
}

#[test]
fn what_a_transaction_has_undone_is_nobody_elses() {
    let mut one = transaction(2, (10, 40), &[Op::Add(1, 101), Op::Read(1, 101, 1), Op::Append(2, 201, 1)]);
    one.events.insert(2, Event::RollbackTo(1));
    // The position goes to another's element, which the first one has not seen.
    let history = history(&[one, transaction(3, (10, 50), &[Op::Read(2, 201, 1), Op::Append(1, 102, 1)])]);
    assert_eq!(verdict(&history), "in order");
}

#[test]
fn what_a_restart_has_lost_orders_nothing() {
    let mut history = history(&[
        transaction(2, (10, 40), &[Op::Read(1, 100, 0), Op::Append(2, 201, 1)]),
        transaction(3, (10, 50), &[Op::Read(2, 200, 0), Op::Append(1, 101, 1)]),
        transaction(4, (80, 90), &[Op::Read(1, 100, 0), Op::Read(2, 201, 1), Op::Append(1, 102, 1)]),
    ]);
    history.transactions[2].fate = Fate::Committed(Epoch(6));
    history.transactions[3].fate = Fate::Committed(Epoch(9));
    // The cluster has gone back to the end of epoch 5: the second is gone, and its position has another's element.
    let loss = Loss { after: Epoch(5), before: Epoch(8), at: 70 };
    assert_eq!(verdict(&history.surviving(&[loss])), "in order");
    assert!(verdict(&history).contains("two elements have position 1"));
}
