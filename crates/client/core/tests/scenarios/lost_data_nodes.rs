//! What becomes of each kind of request when one of two data nodes dies, with frames written by hand: which are asked
//! for again, which end with an error, and which notice nothing.

use crate::leaving::send_row;
use crate::lost_connections::{end_part, opened};
use crate::rig::{Rig, Sent, first_view, node_at, table};
use vinga_base::{ColumnId, NodeId, OperationNumber, PartitionId};
use vinga_client_core::{
    BatchEnd, Error, LinkId, OperationBatch, OperationSpec, RangeSpec, ReadBatch, Request, RowBuilder,
    ScanProgress, ScanSpec, Standing, Table, Token, Urgency, WriteBatch,
};
use vinga_wire::backup::{BackupOpenConfirm, BackupOpenRequest};
use vinga_wire::dictionary::NamedTableRequest;
use vinga_wire::info::InfoTable;
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW};
use vinga_wire::operation::OperationKind;
use vinga_wire::schema::SchemaChange;
use vinga_wire::take_over::InheritedOutcomeRequest;
use vinga_wire::transaction::{Outcome, TransactionAnswer, TransactionHead};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64, cold};

pub const FIRST: LinkId = LinkId(0);
pub const SECOND: LinkId = LinkId(8);

/// Two data nodes with the same rows; the first one leads.
pub fn pair() -> (Rig, ClusterView) {
    let view = first_view(&[0, 0]);
    (Rig::connected(2, &view), view)
}

/// The first data node dies; the second one does not know yet.
pub fn die(rig: &mut Rig) {
    rig.break_link(FIRST);
}

/// The second goes on alone.
pub fn go_on(rig: &mut Rig, view: &ClusterView) {
    let next = view.without(&[NodeId(1)]);
    rig.feed(SECOND, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, &next));
}

/// Nobody answers at the address of the first.
pub fn stay_dead(rig: &mut Rig, millis: u64) {
    for _ in 0..millis / 100 {
        rig.advance(100);
        rig.feed(SECOND, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
            w.put(&vinga_wire::membership::HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
        });
        rig.greetings();
        rig.break_link(FIRST);
    }
}

/// Keys of which the first, or the second, data node owns the row.
pub fn key_at(table: &Table, view: &ClusterView, node: u8) -> u64 {
    let owner = |key: u64| {
        let hash = vinga_base::hash::KeyHash::of(&key.to_le_bytes());
        view.partition(table.partitions().of(hash)).chain.primary()
    };
    (1..).find(|&key| owner(key) == NodeId(node)).expect("each owns some")
}

pub fn read(rig: &mut Rig, table: &Table, key: u64) -> Token {
    let shape = rig.client.add_shape(table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&key.to_le_bytes()).unwrap();
    rig.client.read(batch, Urgency::Now).unwrap()
}

/// The tags of reads that were sent, and the data nodes that they went to.
pub fn reads_sent(rig: &mut Rig) -> Vec<(u8, u32)> {
    let read = |sent: Sent| {
        let frame = sent.frame();
        let (head, _) = frame.head::<KeyReadHead>().unwrap();
        (node_at(sent.link), head.request.get())
    };
    rig.sent(SignalNumber::KeyReadRequest).into_iter().map(read).collect()
}

/// The data node answers that there are no such rows.
pub fn answer_reads(rig: &mut Rig, (node, tag): (u8, u32), count: u16) {
    let link = LinkId::new(u16::from(node) - 1, 0);
    rig.feed(link, SignalNumber::KeyReadConfirm, BlockNumber::DataManager, |w| {
        let (epoch, request) = (U64::new(1), U32::new(tag));
        w.put(&KeyReadAnswer { epoch, request, count: U16::new(count), unused: U16::ZERO });
        for _ in 0..count {
            w.put(&U16::new(NO_ROW));
        }
    });
}

fn result(rig: &mut Rig, token: Token) -> Option<Result<bool, ErrorCode>> {
    Some(rig.client.take_read(token)?.row(0).map(|row| row.is_some()).map_err(|error| error.code()))
}

#[test]
fn a_read_at_the_other_data_node_notices_nothing() {
    let (mut rig, view) = pair();
    let table = table(2);
    let token = read(&mut rig, &table, key_at(&table, &view, 2));
    let sent = reads_sent(&mut rig);
    assert_eq!(sent[0].0, 2);
    die(&mut rig);
    assert_eq!(result(&mut rig, token), None, "it goes on");
    answer_reads(&mut rig, sent[0], 1);
    assert_eq!(result(&mut rig, token), Some(Ok(false)));
}

#[test]
fn a_read_is_repeated_at_the_next_owner() {
    let (mut rig, view) = pair();
    let table = table(2);
    let key = key_at(&table, &view, 1);
    let before = read(&mut rig, &table, key);
    assert_eq!(reads_sent(&mut rig)[0].0, 1);
    die(&mut rig);
    let after = read(&mut rig, &table, key);
    let abandoned = read(&mut rig, &table, key);
    rig.client.cancel(abandoned);
    stay_dead(&mut rig, 5_000);
    assert!(reads_sent(&mut rig).is_empty() && result(&mut rig, before).is_none());
    go_on(&mut rig, &view);
    let sent = reads_sent(&mut rig);
    assert_eq!((sent.len(), sent[0].0), (1, 2), "they travel together");
    // The thread that owns the row there has not adopted the view yet.
    rig.feed(SECOND, SignalNumber::KeyReadRefuse, BlockNumber::DataManager, |w| {
        let code = U16::new(ErrorCode::Moved as u16);
        w.put(&KeyReadRefusal { request: U32::new(sent[0].1), count: U16::new(2), code, view: U32::new(1) });
    });
    rig.advance(20);
    let again = reads_sent(&mut rig);
    assert_eq!((again.len(), again[0].0), (1, 2));
    answer_reads(&mut rig, again[0], 2);
    assert_eq!([before, after].map(|token| result(&mut rig, token)), [Some(Ok(false)); 2]);
    assert!(rig.client.is_at_rest());
}

/// If nobody goes on with the rows of the dead one, whoever reads them gets an error after a while; from then on at
/// once.
#[test]
fn a_read_does_not_wait_for_ever() {
    let (mut rig, view) = pair();
    let table = table(2);
    let key = key_at(&table, &view, 1);
    let token = read(&mut rig, &table, key);
    die(&mut rig);
    stay_dead(&mut rig, 30_000);
    assert_eq!(result(&mut rig, token), Some(Err(ErrorCode::ConnectionLost)));
    let late = read(&mut rig, &table, key);
    assert_eq!(result(&mut rig, late), Some(Err(ErrorCode::ClusterFailure)));
}

/// Nobody answers at any address: that is not waited for.
#[test]
fn nothing_is_hoped_for_when_all_data_nodes_are_dead() {
    let (mut rig, view) = pair();
    let table = table(2);
    let tokens = [1, 2].map(|node| read(&mut rig, &table, key_at(&table, &view, node)));
    rig.break_link(FIRST);
    rig.break_link(SECOND);
    assert_eq!(tokens.map(|token| result(&mut rig, token)), [None; 2], "they may come back");
    for link in [FIRST, SECOND, FIRST] {
        rig.advance(30);
        rig.greetings();
        rig.break_link(link);
    }
    let lost = Some(Err(ErrorCode::ConnectionLost));
    assert_eq!(tokens.map(|token| result(&mut rig, token)), [lost; 2]);
}

pub fn insert<'a>(table: &'a Table, image: &'a mut Vec<u8>, key: u64) -> OperationSpec<'a> {
    let mut builder = RowBuilder::default();
    builder.begin(table);
    builder.set(table, ColumnId(0), &key).unwrap();
    builder.finish(table, image).unwrap();
    OperationSpec::new(table, OperationKind::Insert, &[], image)
}

/// Batches that were sent: data node, id and tag.
pub fn batches_sent(rig: &mut Rig) -> Vec<(u8, u64, u32)> {
    let read = |sent: Sent| {
        let frame = sent.frame();
        let (head, _) = frame.head::<TransactionHead>().unwrap();
        (node_at(sent.link), head.transaction.get(), head.request.get())
    };
    rig.sent(SignalNumber::TransactionRequest).into_iter().map(read).collect()
}

/// A coordinator's answer: committed, or rolled back because of an error.
fn answer_batch(rig: &mut Rig, sent: (u8, u64, u32), error: Option<ErrorCode>) {
    answer(rig, sent, error.map_or(Outcome::Committed, |_| Outcome::RolledBack), error, 0);
}

/// A coordinator's answer to a batch: what became of it, and how many rows come from elsewhere.
pub fn answer(
    rig: &mut Rig,
    (node, transaction, request): (u8, u64, u32),
    outcome: Outcome,
    error: Option<ErrorCode>,
    rows: u16,
) {
    let body = TransactionAnswer {
        transaction: U64::new(transaction),
        epoch: U64::new(5),
        request: U32::new(request),
        outcome_number: U32::ZERO,
        failed_operation: U32::ZERO,
        error: U16::new(error.map_or(0, |code| code as u16)),
        errors: U16::ZERO,
        rows: U16::new(rows),
        outcome: outcome as u8,
        view: 1,
        failed_index: U16::ZERO,
    };
    let signal =
        if error.is_some() { SignalNumber::TransactionRefuse } else { SignalNumber::TransactionConfirm };
    let link = LinkId::new(u16::from(node) - 1, 0);
    rig.feed(link, signal, BlockNumber::Coordinator, |w| {
        w.put(&body);
    });
}

/// An operation that commits by itself, and a transaction of one batch: begun after the death of a data node, before
/// the others know of it. The coordinator finds out, and rolls them back. They are done again.
#[test]
fn what_was_rolled_back_with_a_data_node_is_done_again() {
    let (mut rig, view) = pair();
    let table = table(2);
    let key = key_at(&table, &view, 1);
    die(&mut rig);
    let mut batch = WriteBatch::default();
    let mut image = Vec::new();
    batch.push(&insert(&table, &mut image, key)).unwrap();
    let single = rig.client.write(batch, Urgency::Now).unwrap();
    let commit = rig.commit_insert(&table, key);
    let first = batches_sent(&mut rig);
    assert_eq!(first.iter().map(|sent| sent.0).collect::<Vec<_>>(), [2, 2]);
    go_on(&mut rig, &view);
    for &sent in &first {
        answer_batch(&mut rig, sent, Some(ErrorCode::NodeFailure));
    }
    assert_eq!(rig.client.rollback_cause(commit), None);
    let second = batches_sent(&mut rig);
    assert_eq!(second.len(), 2);
    assert!(first.iter().zip(&second).all(|(before, now)| before.1 != now.1), "they are others");
    // A thread there has not adopted the view yet: the client does not ask again and again.
    for &sent in &second {
        answer_batch(&mut rig, sent, Some(ErrorCode::NodeFailure));
    }
    assert_eq!(batches_sent(&mut rig), []);
    rig.advance(20);
    let second = batches_sent(&mut rig);
    assert_eq!(second.len(), 2);
    for &sent in &second {
        answer_batch(&mut rig, sent, None);
    }
    assert_eq!(rig.client.take_write(single).unwrap().ending(0), Ok(()));
    assert!(matches!(rig.standing(commit), Ok(Standing::Committed(_))));
}

/// The coordinator dies while it has a first batch that does not commit: it is done again by another one, whatever the
/// first one had done. A later batch is not: its transaction has gone.
#[test]
fn a_first_batch_that_does_not_commit_is_done_again() {
    let (mut rig, view) = pair();
    let table = table(2);
    let key = key_at(&table, &view, 1);
    let send = |rig: &mut Rig, token, key| {
        let mut batch = OperationBatch::default();
        let mut image = Vec::new();
        batch.push(&insert(&table, &mut image, key)).unwrap();
        rig.client.send(token, batch, BatchEnd::Open);
    };
    let [first, later] = [(); 2].map(|()| rig.client.begin().unwrap());
    send(&mut rig, later, key);
    let sent = batches_sent(&mut rig)[0];
    answer_open(&mut rig, sent);
    rig.client.take_operations(later).unwrap();
    send(&mut rig, first, key);
    send(&mut rig, later, key);
    let before = batches_sent(&mut rig);
    assert_eq!(before.iter().map(|sent| sent.0).collect::<Vec<_>>(), [1, 1]);
    die(&mut rig);
    assert_eq!(rig.standing(later).unwrap_err().code(), ErrorCode::ConnectionLost);
    assert!(rig.client.take_operations(first).is_none());
    go_on(&mut rig, &view);
    let after = batches_sent(&mut rig);
    assert_eq!((after.len(), after[0].0), (1, 2));
    assert!(before.iter().all(|sent| sent.1 != after[0].1), "it is another transaction");
    answer_open(&mut rig, after[0]);
    assert_eq!(rig.standing(first).unwrap(), Standing::Open);
    assert_eq!(rig.client.rollback_cause(first), None);
}

/// The coordinator dies, and its successor says that the transaction is committed. Which operations have failed alone
/// is lost with the answer; but a change that is the only one must be what is committed.
#[test]
fn a_single_change_is_done_if_a_successor_knows_of_its_commit() {
    for changes in [1, 2] {
        let (mut rig, view) = pair();
        let table = table(2);
        let mut batch = OperationBatch::default();
        let first = key_at(&table, &view, 1);
        for key in first..first + changes {
            let mut image = Vec::new();
            let mut operation = insert(&table, &mut image, key);
            operation.error_is_local = true;
            batch.push(&operation).unwrap();
        }
        let token = rig.client.begin().unwrap();
        rig.client.send(token, batch, BatchEnd::Commit);
        let (node, transaction, _) = batches_sent(&mut rig)[0];
        assert_eq!(node, 1, "the owner of the first row coordinates");
        die(&mut rig);
        go_on(&mut rig, &view);
        let question = rig.sent(SignalNumber::InheritedOutcomeRequest).remove(0);
        let frame = question.frame();
        let (question, _) = frame.head::<InheritedOutcomeRequest>().unwrap();
        assert_eq!(question.transaction.get(), transaction);
        rig.answer(SECOND, (transaction, question.request.get()), Some(0));
        let batch = rig.client.take_operations(token).expect("it is over");
        assert!(matches!(batch.standing(), Ok(Standing::Committed(_))));
        let expected = if changes == 1 { Ok(None) } else { Err(ErrorCode::UnknownOutcome.into()) };
        assert_eq!(batch.result(OperationNumber(1)), expected);
    }
}

/// The coordinator of a commit dies, and the connection to its successor is lost as well. The successor is asked once
/// each time that it is connected, also if its greeting brings the view that makes it the successor.
#[test]
fn a_successor_is_asked_once_by_each_connection() {
    let (mut rig, view) = pair();
    let table = table(2);
    let commit = rig.commit_insert(&table, key_at(&table, &view, 1));
    let (node, transaction, _) = batches_sent(&mut rig)[0];
    assert_eq!(node, 1);
    die(&mut rig);
    let next = view.without(&[NodeId(1)]);
    let mut question = 0;
    for _ in 0..2 {
        rig.break_link(SECOND);
        rig.advance(200);
        rig.open_links();
        rig.admit(SECOND, &next);
        let asked = rig.sent(SignalNumber::InheritedOutcomeRequest);
        assert_eq!(asked.len(), 1);
        question = asked[0].frame().head::<InheritedOutcomeRequest>().unwrap().0.request.get();
    }
    rig.answer(SECOND, (transaction, question), Some(0));
    assert!(matches!(rig.standing(commit), Ok(Standing::Committed(_))));
}

/// A later batch of a transaction can't be repeated: its owner has seen what the earlier ones gave. Nor can it if its
/// owner has given it up, or if it failed by itself.
#[test]
fn only_a_first_batch_is_done_again() {
    let (mut rig, view) = pair();
    let table = table(2);
    let key = key_at(&table, &view, 2);
    let open = rig.client.begin().unwrap();
    let mut batch = OperationBatch::default();
    let mut image = Vec::new();
    batch.push(&insert(&table, &mut image, key)).unwrap();
    rig.client.send(open, batch, BatchEnd::Open);
    let sent = batches_sent(&mut rig)[0];
    answer_open(&mut rig, sent);
    let batch = rig.client.take_operations(open).unwrap();
    assert_eq!(batch.standing().unwrap(), Standing::Open);
    rig.client.send(open, batch, BatchEnd::Commit);
    let given_up = rig.commit_insert(&table, key);
    rig.client.stop_commit(given_up);
    let duplicate = rig.commit_insert(&table, key);
    let sent = batches_sent(&mut rig);
    assert_eq!(sent.len(), 4, "with the order to give up");
    answer_batch(&mut rig, sent[0], Some(ErrorCode::NodeFailure));
    answer_batch(&mut rig, sent[1], Some(ErrorCode::NodeFailure));
    answer_batch(&mut rig, sent[3], Some(ErrorCode::DuplicateKey));
    assert_eq!(batches_sent(&mut rig), []);
    for (token, code) in [
        (open, ErrorCode::NodeFailure),
        (given_up, ErrorCode::NodeFailure),
        (duplicate, ErrorCode::DuplicateKey),
    ] {
        assert_eq!(rig.standing(token).unwrap_err().code(), code);
    }
}

pub fn answer_open(rig: &mut Rig, sent: (u8, u64, u32)) {
    answer(rig, sent, Outcome::Open, None, 0);
}

pub fn locking_read(table: &Table, key: u64) -> OperationBatch {
    let mut batch = OperationBatch::default();
    batch.push(&OperationSpec::new(table, OperationKind::ReadExclusive, &key.to_le_bytes(), &[])).unwrap();
    batch
}

/// A batch with a read is sent when a connection is back, as its owner has begun it while there was none, or is begun
/// then. Its confirm comes before its row, which comes by the connection that is there: it is waited for.
#[test]
fn the_row_of_a_batch_that_has_waited_is_awaited() {
    let (view, table) = (first_view(&[0]), table(2));
    let cases = [(false, BatchEnd::Open), (true, BatchEnd::Open), (true, BatchEnd::Commit)];
    for (has_waited, end) in cases {
        let mut rig = Rig::connected(1, &view);
        let token = rig.client.begin().unwrap();
        let send = |rig: &mut Rig| rig.client.send(token, locking_read(&table, 1), end);
        rig.break_link(FIRST);
        if has_waited {
            send(&mut rig);
        }
        rig.advance(50);
        rig.admit_all(&view);
        if !has_waited {
            send(&mut rig);
        }
        let sent = batches_sent(&mut rig);
        assert_eq!(sent.len(), 1);
        let outcome = if end == BatchEnd::Commit { Outcome::Committed } else { Outcome::Open };
        answer(&mut rig, sent[0], outcome, None, 1);
        assert!(rig.client.take_operations(token).is_none(), "its row comes ({has_waited}, {end:?})");
        send_row(&mut rig, FIRST, sent[0].1, 1);
        let batch = rig.client.take_operations(token).expect("it is over");
        assert!(batch.standing().is_ok());
        assert_eq!(batch.result(OperationNumber(1)), Ok(None));
    }
}

/// The primary moves while a row is on its way from the former one, or is read at the next one: nothing is lost. When a
/// data node has failed meanwhile it may be.
#[test]
fn the_row_of_a_primary_that_moves_is_awaited() {
    for has_failed in [false, true] {
        let (mut rig, view) = pair();
        let table = table(2);
        let key = key_at(&table, &view, 2);
        let partition = view.partitions().iter().position(|one| one.chain.primary() == NodeId(2)).unwrap();
        // Its coordinator is that of the first row's data node, which stays.
        let token = rig.client.begin().unwrap();
        rig.client.send(token, locking_read(&table, key_at(&table, &view, 1)), BatchEnd::Open);
        let sent = batches_sent(&mut rig)[0];
        assert_eq!(sent.0, 1);
        answer(&mut rig, sent, Outcome::Open, None, 1);
        send_row(&mut rig, FIRST, sent.1, 1);
        let mut batch = rig.client.take_operations(token).expect("it is answered");
        batch.clear();
        batch
            .push(&OperationSpec::new(&table, OperationKind::ReadExclusive, &key.to_le_bytes(), &[]))
            .unwrap();
        rig.client.send(token, batch, BatchEnd::Open);
        let sent = batches_sent(&mut rig)[0];
        let moved = view.with_primary(PartitionId(partition as u16), NodeId(1));
        let next = if has_failed { moved.without(&[NodeId(2)]) } else { moved };
        rig.feed(FIRST, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, &next));
        answer(&mut rig, sent, Outcome::Open, None, 1);
        if has_failed {
            let batch = rig.client.take_operations(token).expect("its row is not awaited");
            assert!(batch.result(OperationNumber(2)).is_err());
            continue;
        }
        assert!(rig.client.take_operations(token).is_none(), "its row comes");
        send_row(&mut rig, SECOND, sent.1, 2);
        let batch = rig.client.take_operations(token).expect("it is over");
        assert_eq!(batch.result(OperationNumber(2)), Ok(None));
    }
}

/// A batch reads a row, changes it, and commits. Its row is lost with a connection: that the transaction was committed
/// must not look like something that may be done again.
#[test]
fn a_row_that_is_lost_behind_a_commit_is_nothing_to_repeat() {
    for was_confirmed in [false, true] {
        let (mut rig, view) = pair();
        let table = table(2);
        let key = key_at(&table, &view, 1);
        let mut batch = locking_read(&table, key);
        batch.push(&OperationSpec::new(&table, OperationKind::Delete, &key.to_le_bytes(), &[])).unwrap();
        let token = rig.client.begin().unwrap();
        rig.client.send(token, batch, BatchEnd::Commit);
        let sent = batches_sent(&mut rig)[0];
        assert_eq!(sent.0, 1, "the owner of the row coordinates");
        if was_confirmed {
            answer(&mut rig, sent, Outcome::Committed, None, 1);
            assert!(rig.client.take_operations(token).is_none(), "its row may come");
        }
        die(&mut rig);
        if !was_confirmed {
            go_on(&mut rig, &view);
            let question = rig.sent(SignalNumber::InheritedOutcomeRequest).remove(0);
            let frame = question.frame();
            let (question, _) = frame.head::<InheritedOutcomeRequest>().unwrap();
            rig.answer(SECOND, (sent.1, question.request.get()), Some(0));
        }
        let batch = rig.client.take_operations(token).expect("it is over");
        assert!(matches!(batch.standing(), Ok(Standing::Committed(_))));
        let error = batch.result(OperationNumber(1)).unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (ErrorCode::RowLost, false));
        assert_eq!(batch.result(OperationNumber(2)), Ok(None));
    }
}

/// The data node of a transaction's coordinator is lost, and with it the transaction. A scan within it, whose rows
/// another data node sends, would lack its changes from now on: it ends.
#[test]
fn a_scan_ends_with_the_coordinator_of_its_transaction() {
    let (mut rig, view) = pair();
    let table = table(2);
    let token = rig.client.begin().unwrap();
    rig.client.send(token, locking_read(&table, key_at(&table, &view, 1)), BatchEnd::Open);
    let sent = batches_sent(&mut rig)[0];
    assert_eq!(sent.0, 1);
    answer(&mut rig, sent, Outcome::Open, None, 0);
    assert!(rig.client.take_operations(token).is_some());
    let scan = rig.client.scan(&table, ScanSpec::default(), Some((token, OperationNumber(1)))).unwrap();
    let parts = opened(&mut rig);
    assert!(parts.iter().any(|part| part.0 == SECOND));
    parts.into_iter().filter(|part| part.0 == FIRST).for_each(|part| end_part(&mut rig, part));
    assert!(matches!(rig.client.next_rows(scan), ScanProgress::Waiting));
    rig.break_link(FIRST);
    match rig.client.next_rows(scan) {
        ScanProgress::Ended(Err(error)) => assert_eq!(error.code(), ErrorCode::ConnectionLost),
        other => panic!("{other:?}"),
    }
}

/// While nobody is connected, what is begun waits; one who does not want it any more takes it back.
#[test]
fn what_is_begun_between_two_connections_waits() {
    let view = first_view(&[0]);
    let mut rig = Rig::connected(1, &view);
    let table = table(2);
    rig.break_link(FIRST);
    let (kept, stopped, abandoned) =
        (rig.commit_insert(&table, 1), rig.commit_insert(&table, 2), rig.commit_insert(&table, 3));
    let mut batch = WriteBatch::default();
    let mut image = Vec::new();
    batch.push(&insert(&table, &mut image, 4)).unwrap();
    let single = rig.client.write(batch, Urgency::Now).unwrap();
    rig.client.stop_commit(stopped);
    assert_eq!(rig.standing(stopped).unwrap_err().code(), ErrorCode::TransactionAborted);
    rig.client.cancel(abandoned);
    rig.advance(50);
    rig.admit_all(&view);
    let sent = batches_sent(&mut rig);
    assert_eq!(sent.len(), 2);
    sent.iter().for_each(|&sent| answer_batch(&mut rig, sent, None));
    assert!(matches!(rig.standing(kept), Ok(Standing::Committed(_))));
    assert_eq!(rig.client.take_write(single).unwrap().ending(0), Ok(()));
    [kept, stopped].into_iter().for_each(|token| rig.client.cancel(token));
    assert!(rig.client.is_at_rest());
}

/// Another change may not be carried out twice: its outcome is unknown at once. A question is asked again.
#[test]
fn a_schema_change_has_an_unknown_outcome_and_a_question_is_asked_again() {
    let (mut rig, view) = pair();
    let changes = [
        Request::DropTable("test.t".into()),
        Request::ChangeSchema(SchemaChange::TruncateTable { name: "test.t".into(), pinned: None }),
    ];
    let tokens = changes.map(|change| rig.client.request(&change).unwrap());
    let question = rig.client.request(&Request::DescribeTable("test.t".into())).unwrap();
    die(&mut rig);
    for token in tokens {
        let code = rig.client.take_answer(token).expect("it is over").unwrap_err().code();
        assert_eq!(code, ErrorCode::UnknownOutcome);
    }
    // Nothing was sent of what is begun now.
    let drop = rig.client.request(&Request::DropTable("test.u".into())).unwrap();
    assert!(rig.client.take_answer(drop).is_none());
    stay_dead(&mut rig, 500);
    rig.sent(SignalNumber::DropTableRequest);
    go_on(&mut rig, &view);
    let mut sent = Vec::new();
    let mut names = |signal| {
        for one in rig.sent(signal) {
            let request: NamedTableRequest = cold::read(&one.frame()).unwrap();
            sent.push((node_at(one.link), request.name));
        }
    };
    // What is sent goes together.
    names(SignalNumber::DropTableRequest);
    assert_eq!(sent, [(2, "test.u".to_owned())]);
    assert!(rig.client.take_answer(question).is_none());
    rig.client.cancel(question);
    rig.client.cancel(drop);
}

/// A backup of a partition has begun, and its connection is lost before anybody has seen that: what is opened anew
/// begins with a greeting, not with the order to close the backup.
#[test]
fn a_backup_that_is_not_wanted_is_not_closed_by_a_lost_connection() {
    let (mut rig, view) = pair();
    let partition = (0..2).map(PartitionId).find(|&one| view.partition(one).primary().node() == NodeId(1));
    let token = rig.client.request(&Request::BackupOpen(partition.expect("each owns one"))).unwrap();
    let sent = rig.sent(SignalNumber::BackupOpenRequest).remove(0);
    let request: BackupOpenRequest = cold::read(&sent.frame()).unwrap();
    rig.feed(sent.link, SignalNumber::BackupOpenConfirm, BlockNumber::DataManager, |w| {
        cold::write(w, &BackupOpenConfirm { request: request.request, epoch: 1 });
    });
    die(&mut rig);
    rig.client.cancel(token);
    rig.advance(1000);
    rig.open_links();
    assert!(rig.sent(SignalNumber::BackupCloseOrder).is_empty());
    assert!(rig.client.is_at_rest());
}

/// Two data nodes, of which the second one does not admit the client, and says so with this code.
fn pair_of_which_one_refuses(code: ErrorCode) -> (Rig, ClusterView) {
    let view = first_view(&[0, 0]);
    let with_address = |member: &Member| Member { address: format!("node{}", member.node), ..member.clone() };
    let view = ClusterView::first(view.members().iter().map(with_address).collect());
    let mut rig = Rig::new(2);
    for _ in 0..2 {
        rig.advance(11);
        greet(&mut rig, &view, code);
    }
    assert_eq!(rig.client.endpoints().iter().map(|one| one.is_connected).collect::<Vec<_>>(), [true, false]);
    (rig, view)
}

/// The first admits the client where it greets now, the second refuses it.
fn greet(rig: &mut Rig, view: &ClusterView, code: ErrorCode) {
    for (link, _) in rig.greetings() {
        match node_at(link) {
            1 => rig.admit(link, view),
            _ => rig.client.on_refused(link, code, "node2"),
        }
    }
}

/// How a read, a scan, a read of a transaction, a question for statistics and one for an information table end whose
/// rows the second data node has.
fn ends_at_the_second(rig: &mut Rig, view: &ClusterView) -> Vec<Error> {
    let table = table(2);
    let key = key_at(&table, view, 2);
    let token = read(rig, &table, key);
    let mut errors = vec![rig.client.take_read(token).expect("it is over").row(0).unwrap_err()];
    let token = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
    match rig.client.next_rows(token) {
        ScanProgress::Ended(Err(error)) => errors.push(error),
        other => panic!("{other:?}"),
    }
    let token = rig.client.begin().unwrap();
    rig.client.send(token, locking_read(&table, key), BatchEnd::Open);
    let sent = batches_sent(rig).remove(0);
    assert_eq!(sent.0, 1, "any coordinator does");
    answer(rig, sent, Outcome::Open, None, 1);
    errors.push(
        rig.client
            .take_operations(token)
            .expect("its row can't come")
            .result(OperationNumber(1))
            .unwrap_err(),
    );
    errors.push(rig.client.statistics(&table, &RangeSpec::new(0)).unwrap_err());
    errors.push(rig.client.request(&Request::Info(InfoTable::Pools, NodeId(2))).unwrap_err());
    errors
}

/// A data node wants a key that the client does not have. To try again is of no use: that is what each of its requests
/// says, with the address, while the rows of the other one can be had.
#[test]
fn a_data_node_that_refuses_a_client_for_good_is_no_outage() {
    for code in [ErrorCode::KeyRequired, ErrorCode::WrongKey, ErrorCode::KeyForAnother] {
        let (mut rig, view) = pair_of_which_one_refuses(code);
        let errors = ends_at_the_second(&mut rig, &view);
        assert_eq!(errors.len(), 5);
        for error in errors {
            assert_eq!((error.code(), error.is_retryable()), (code, false), "{error}");
            assert!(error.message().ends_with("(data node 2, node2)"), "{error}");
        }
        let table = table(2);
        let key = key_at(&table, &view, 1);
        read(&mut rig, &table, key);
        assert_eq!(reads_sent(&mut rig)[0].0, 1);
    }
}

/// One that starts is another matter, and so is one of which nobody answers: it is named, and one may try again.
#[test]
fn a_data_node_that_is_not_there_yet_may_be_later() {
    let (mut rig, view) = pair_of_which_one_refuses(ErrorCode::NodeStarting);
    let errors = ends_at_the_second(&mut rig, &view);
    for (at, error) in errors.iter().enumerate() {
        // The row of the transaction may have been on its way.
        let code = if at == 2 { ErrorCode::ConnectionLost } else { ErrorCode::ClusterFailure };
        assert_eq!((error.code(), error.is_retryable()), (code, true), "{error}");
        assert!(at == 2 || error.message().starts_with("Data node 2 is not connected: node2"), "{error}");
    }
    let (mut rig, view) = pair_of_which_one_refuses(ErrorCode::KeyRequired);
    rig.advance(1000);
    rig.open_links();
    rig.break_link(SECOND);
    let errors = ends_at_the_second(&mut rig, &view);
    assert_eq!(errors[0].code(), ErrorCode::ClusterFailure);
    assert_eq!(errors[0].message(), "Data node 2 is not connected: node2: broken. Retry when it is.");
}

/// The only data node that admits the client dies. What any of them could do may be done when it is back.
#[test]
fn one_that_refuses_for_good_does_not_hide_that_the_other_may_come_back() {
    let (mut rig, view) = pair_of_which_one_refuses(ErrorCode::KeyRequired);
    let key = key_at(&table(2), &view, 2);
    let change = |rig: &mut Rig| {
        let mut batch = WriteBatch::default();
        batch.push(&insert(&table(2), &mut Vec::new(), key)).unwrap();
        let write = rig.client.write(batch, Urgency::Now).unwrap();
        let commit = rig.commit_insert(&table(2), key);
        (write, commit)
    };
    rig.break_link(FIRST);
    let ended = |rig: &mut Rig, (write, commit)| {
        let write = rig.client.take_write(write).expect("it is over").ending(0).unwrap_err();
        (write.code(), rig.standing(commit).unwrap_err().code())
    };
    let both = change(&mut rig);
    assert_eq!(ended(&mut rig, both), (ErrorCode::ClusterFailure, ErrorCode::ClusterFailure));
    // Now it refuses, too.
    for _ in 0..20 {
        rig.advance(200);
        for (link, _) in rig.greetings() {
            rig.client.on_refused(link, ErrorCode::KeyRequired, "");
        }
    }
    let both = change(&mut rig);
    assert_eq!(ended(&mut rig, both), (ErrorCode::KeyRequired, ErrorCode::KeyRequired));
}

#[test]
fn each_partition_has_an_owner_in_the_tests() {
    let (view, table) = (first_view(&[0, 0]), table(2));
    let keys = [1, 2].map(|node| key_at(&table, &view, node));
    assert_ne!(keys[0], keys[1]);
    assert_ne!(
        view.partition(PartitionId(0)).primary().node(),
        view.partition(PartitionId(1)).primary().node()
    );
}
