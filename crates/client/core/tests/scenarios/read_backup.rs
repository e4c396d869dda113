//! Where committed reads of tables go whose backups answer them, with two data nodes that are played by the test. The
//! client has the id 145: it reads the rows of each at the other one, unless that is farther away.

use crate::lost_data_nodes::{
    FIRST, SECOND, answer, answer_open, answer_reads, batches_sent, insert, key_at, pair, read, reads_sent,
};
use crate::rig::{Rig, Sent, node_at, table, table_with};
use vinga_base::{NodeId, OperationNumber, PartitionId};
use vinga_client_core::{BatchEnd, OperationBatch, RangeSpec, ReadBatch, Table, Token, Urgency};
use vinga_wire::key_read::{KeyReadHead, KeyReadRefusal};
use vinga_wire::range_scan::{IndexStatisticsAnswer, IndexStatisticsHead, IndexStatisticsRefusal};
use vinga_wire::transaction::Outcome;
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64, cold};

/// A read that is over: the backup that has answered, if it was one.
fn answered_by(rig: &mut Rig, token: Token) -> Option<Result<Option<NodeId>, ErrorCode>> {
    let batch = rig.client.take_read(token)?;
    let answered = batch.row(0).map(|row| {
        assert_eq!(row, None, "there are no rows");
        batch.backup(0)
    });
    Some(answered.map_err(|error| error.code()))
}

/// A read that may wait for others.
fn read_later(rig: &mut Rig, table: &Table, key: u64) -> Token {
    let shape = rig.client.add_shape(table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&key.to_le_bytes()).unwrap();
    rig.client.read(batch, Urgency::Gather).unwrap()
}

#[test]
fn a_backup_answers() {
    let (mut rig, view) = pair();
    let table = table_with(2, true);
    for (owner, backup) in [(1, 2), (2, 1)] {
        let token = read(&mut rig, &table, key_at(&table, &view, owner));
        let sent = reads_sent(&mut rig);
        assert_eq!((sent.len(), sent[0].0), (1, backup));
        answer_reads(&mut rig, sent[0], 1);
        assert_eq!(answered_by(&mut rig, token), Some(Ok(Some(NodeId(backup)))));
    }
    assert!(rig.client.is_at_rest());
}

#[test]
fn rows_of_other_tables_are_read_at_their_owner() {
    let (mut rig, view) = pair();
    let table = table(2);
    for owner in [1, 2] {
        let token = read(&mut rig, &table, key_at(&table, &view, owner));
        let sent = reads_sent(&mut rig);
        assert_eq!((sent.len(), sent[0].0), (1, owner));
        answer_reads(&mut rig, sent[0], 1);
        assert_eq!(answered_by(&mut rig, token), Some(Ok(None)));
    }
}

#[test]
fn shared_memory_is_nearer_than_anything_else() {
    for (near, node) in [(FIRST, 1), (SECOND, 2)] {
        let (mut rig, view) = pair();
        let table = table_with(2, true);
        rig.client.set_eager(near);
        for owner in [1, 2] {
            let token = read(&mut rig, &table, key_at(&table, &view, owner));
            let sent = reads_sent(&mut rig);
            assert_eq!((sent.len(), sent[0].0), (1, node));
            answer_reads(&mut rig, sent[0], 1);
            assert_eq!(answered_by(&mut rig, token), Some(Ok(Some(NodeId(node)).filter(|_| node != owner))));
        }
    }
}

/// A transaction's changes are at the owner only.
#[test]
fn the_reads_of_a_transaction_go_to_the_owner() {
    let (mut rig, view) = pair();
    let table = table_with(2, true);
    let key = key_at(&table, &view, 1);
    let open = rig.client.begin().unwrap();
    let mut batch = OperationBatch::default();
    let mut image = Vec::new();
    batch.push(&insert(&table, &mut image, key)).unwrap();
    rig.client.send(open, batch, BatchEnd::Open);
    let sent = batches_sent(&mut rig)[0];
    answer_open(&mut rig, sent);
    rig.client.take_operations(open).unwrap();
    let shape = rig.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&key.to_le_bytes()).unwrap();
    let token = rig.client.read_within(open, OperationNumber(2), batch).unwrap();
    let sent = reads_sent(&mut rig);
    assert_eq!((sent.len(), sent[0].0), (1, 1));
    // Another replica is to be the owner, and has not adopted that view yet: it is asked for the transaction again.
    rig.feed(FIRST, SignalNumber::KeyReadRefuse, BlockNumber::DataManager, |w| {
        let (request, code) = (U32::new(sent[0].1), U16::new(ErrorCode::Moved as u16));
        w.put(&KeyReadRefusal { request, count: U16::new(1), code, view: U32::new(1) });
    });
    rig.advance(20);
    let sent = rig.sent(SignalNumber::KeyReadRequest);
    let (head, _) = sent[0].frame().head::<KeyReadHead>().unwrap();
    assert_eq!((sent.len(), head.operation.get()), (1, 2));
    assert_ne!(head.transaction.get(), 0);
    answer_reads(&mut rig, (1, head.request.get()), 1);
    assert_eq!(answered_by(&mut rig, token), Some(Ok(None)));
    // While it waits to be asked again the transaction is rolled back: what it would read lacks its changes.
    let mut batch = ReadBatch::new(shape);
    batch.push(&key.to_le_bytes()).unwrap();
    let token = rig.client.read_within(open, OperationNumber(3), batch).unwrap();
    let sent = reads_sent(&mut rig);
    let (mut batch, mut image) = (OperationBatch::default(), Vec::new());
    batch.push(&insert(&table, &mut image, key)).unwrap();
    rig.client.send(open, batch, BatchEnd::Open);
    let under_way = batches_sent(&mut rig)[0];
    rig.feed(FIRST, SignalNumber::KeyReadRefuse, BlockNumber::DataManager, |w| {
        let (request, code) = (U32::new(sent[0].1), U16::new(ErrorCode::Moved as u16));
        w.put(&KeyReadRefusal { request, count: U16::new(1), code, view: U32::new(1) });
    });
    answer(&mut rig, under_way, Outcome::RolledBack, Some(ErrorCode::Deadlock), 0);
    assert_eq!(answered_by(&mut rig, token), Some(Err(ErrorCode::Deadlock)));
    rig.advance(20);
    assert_eq!(reads_sent(&mut rig), []);
}

/// The data node that is to answer has another view than the client. It is asked again, or the next one, which has the
/// primary by then; the other partition's answer counts as it came.
#[test]
fn statistics_of_a_partition_whose_primary_moves_are_asked_for_again() {
    let (mut rig, view) = pair();
    let table = table_with(2, true);
    let token = rig.client.statistics(&table, &RangeSpec::new(0)).unwrap();
    let asked = |rig: &mut Rig| -> Vec<(u8, u16, u32)> {
        let read = |sent: Sent| {
            let frame = sent.frame();
            let (head, _) = frame.head::<IndexStatisticsHead>().unwrap();
            (node_at(sent.link), head.partition.get(), head.request.get())
        };
        rig.sent(SignalNumber::IndexStatisticsRequest).into_iter().map(read).collect()
    };
    let answer = |rig: &mut Rig, (node, _, request): (u8, u16, u32)| {
        let link = if node == 1 { FIRST } else { SECOND };
        rig.feed(link, SignalNumber::IndexStatisticsConfirm, BlockNumber::DataManager, |w| {
            let (entries, request) = (U64::new(u64::from(node)), U32::new(request));
            w.put(&IndexStatisticsAnswer { entries, request, columns: U16::ZERO, ranges: U16::ZERO });
        });
    };
    let mut first = asked(&mut rig);
    first.sort();
    let [at_first, at_second] = first[..] else { panic!("each has a partition: {first:?}") };
    rig.feed(SECOND, SignalNumber::IndexStatisticsRefuse, BlockNumber::DataManager, |w| {
        let (_, partition, request) = at_second;
        let code = U16::new(ErrorCode::Moved as u16);
        w.put(&IndexStatisticsRefusal { request: U32::new(request), code, partition: U16::new(partition) });
    });
    answer(&mut rig, at_first);
    assert!(rig.client.take_statistics(token).is_none());
    // The primary is the other one.
    let next = view.with_primary(PartitionId(at_second.1), NodeId(1));
    rig.feed(FIRST, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, &next));
    rig.advance(20);
    let again = asked(&mut rig);
    assert_eq!(again, [(1, at_second.1, at_second.2)]);
    answer(&mut rig, again[0]);
    let sample = rig.client.take_statistics(token).unwrap().unwrap();
    assert_eq!(sample.sampled.iter().map(|one| one.entries).collect::<Vec<_>>(), [1, 1]);
    assert!(rig.client.is_at_rest());
    // One that never has another view is an error in the end.
    let token = rig.client.statistics(&table, &RangeSpec::new(0)).unwrap();
    let error = loop {
        for (_, partition, request) in asked(&mut rig) {
            rig.feed(FIRST, SignalNumber::IndexStatisticsRefuse, BlockNumber::DataManager, |w| {
                let code = U16::new(ErrorCode::Moved as u16);
                let (request, partition) = (U32::new(request), U16::new(partition));
                w.put(&IndexStatisticsRefusal { request, code, partition });
            });
        }
        match rig.client.take_statistics(token) {
            Some(result) => break result.unwrap_err(),
            None => rig.advance(20),
        }
    };
    assert_eq!(error.code(), ErrorCode::Moved);
}

/// A backup that has not all rows yet, or that has too much to answer.
#[test]
fn what_a_backup_refuses_the_owner_is_asked() {
    for code in [ErrorCode::Moved, ErrorCode::Overloaded] {
        let (mut rig, view) = pair();
        let table = table_with(2, true);
        let token = read(&mut rig, &table, key_at(&table, &view, 1));
        let sent = reads_sent(&mut rig);
        assert_eq!(sent[0].0, 2);
        rig.feed(SECOND, SignalNumber::KeyReadRefuse, BlockNumber::DataManager, |w| {
            let (request, code) = (U32::new(sent[0].1), U16::new(code as u16));
            w.put(&KeyReadRefusal { request, count: U16::new(1), code, view: U32::new(1) });
        });
        rig.advance(20);
        let sent = reads_sent(&mut rig);
        assert_eq!((sent.len(), sent[0].0), (1, 1));
        answer_reads(&mut rig, sent[0], 1);
        assert_eq!(answered_by(&mut rig, token), Some(Ok(None)));
        assert!(rig.client.is_at_rest());
    }
}

/// Whichever of the two dies, the other one is asked at once: nobody has to wait for the next view.
#[test]
fn what_a_data_node_has_not_answered_when_it_dies_the_other_one_is_asked() {
    for (dead, owner) in [(FIRST, 1), (FIRST, 2), (SECOND, 1), (SECOND, 2)] {
        let (mut rig, view) = pair();
        let table = table_with(2, true);
        let key = key_at(&table, &view, owner);
        let before = read(&mut rig, &table, key);
        let mut under_way = reads_sent(&mut rig);
        rig.break_link(dead);
        let after = read(&mut rig, &table, key);
        let live = if dead == FIRST { 2 } else { 1 };
        under_way.extend(reads_sent(&mut rig));
        under_way.retain(|sent| sent.0 == live);
        // The two travel together, or the first was at the other one already.
        let counts: &[u16] = if under_way.len() == 1 { &[2] } else { &[1, 1] };
        for (sent, count) in under_way.into_iter().zip(counts) {
            answer_reads(&mut rig, sent, *count);
        }
        let backup = Some(NodeId(live)).filter(|_| live != owner);
        assert_eq!([before, after].map(|token| answered_by(&mut rig, token)), [Some(Ok(backup)); 2]);
        assert!(rig.client.is_at_rest());
    }
}

/// A key that waits for company is sent the way for which it was meant, though there is a nearer replica now.
#[test]
fn keys_that_gather_go_one_way() {
    let (mut rig, view) = pair();
    let table = table_with(2, true);
    let key = key_at(&table, &view, 2);
    // So many are under way that the next one waits.
    for _ in 0..5 {
        read_later(&mut rig, &table, key);
        assert_eq!(reads_sent(&mut rig).len(), 1);
    }
    let waiting = read_later(&mut rig, &table, key);
    assert_eq!(reads_sent(&mut rig), []);
    rig.client.set_eager(SECOND);
    let later = read_later(&mut rig, &table, key);
    let sent = reads_sent(&mut rig);
    assert_eq!((sent.len(), sent[0].0), (1, 2));
    answer_reads(&mut rig, sent[0], 1);
    assert_eq!((answered_by(&mut rig, later), answered_by(&mut rig, waiting)), (Some(Ok(None)), None));
    rig.advance(10);
    let sent = reads_sent(&mut rig);
    assert_eq!((sent.len(), sent[0].0), (1, 1));
    answer_reads(&mut rig, sent[0], 1);
    assert_eq!(answered_by(&mut rig, waiting), Some(Ok(Some(NodeId(1)))));
}
