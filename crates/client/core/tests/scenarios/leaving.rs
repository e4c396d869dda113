//! One of two data nodes leaves before it stops, with frames written by hand: nobody is answered that it has failed.

use crate::lost_data_nodes::{
    FIRST, SECOND, answer, answer_reads, batches_sent, key_at, locking_read, pair, read, reads_sent,
};
use crate::rig::{Rig, Sent, first_view_with, node_at, table};
use vinga_base::schema::TableDefinition;
use vinga_base::{NodeId, OperationNumber};
use vinga_client_core::{
    Answer, BatchEnd, Command, LinkId, OperationBatch, OperationSpec, Request, Standing, Table, Token,
};
use vinga_wire::dictionary::{CreateTableRequest, TableConfirm, TableRecord};
use vinga_wire::handshake::ALL_SENT;
use vinga_wire::key_read::{KeyReadHead, NO_ROW};
use vinga_wire::membership::HeartbeatBody;
use vinga_wire::operation::OperationKind;
use vinga_wire::take_over::InheritedOutcomeRequest;
use vinga_wire::transaction::{Outcome, TransactionRow};
use vinga_wire::view::ClusterView;
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64, cold};

fn adopt(rig: &mut Rig, link: LinkId, view: &ClusterView) {
    rig.feed(link, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, view));
}

/// The views in which a data node leaves; in the last one it is a replica of nothing.
fn leave(view: &ClusterView, node: u8) -> Vec<ClusterView> {
    let mut views = vec![view.with_leaving(NodeId(node))];
    let newest = |views: &[ClusterView]| views.last().expect("it begins with one").clone();
    while let Some(&(partition, next)) = newest(&views).hand_overs().first() {
        views.push(newest(&views).with_primary(partition, next));
    }
    while let Some(&partition) = newest(&views).leave_outs().first() {
        views.push(newest(&views).with_left_out(partition));
    }
    views
}

/// A batch waits for a lock while a data node ends that had left: its row comes from elsewhere.
#[test]
fn a_row_is_awaited_though_a_data_node_has_ended_that_had_left() {
    for is_closed_first in [false, true] {
        let (mut rig, view) = pair();
        let table = table(2);
        let key = key_at(&table, &view, 1);
        let views = leave(&view, 2);
        views.iter().for_each(|view| adopt(&mut rig, FIRST, view));
        let token = rig.client.begin().unwrap();
        rig.client.send(token, locking_read(&table, key), BatchEnd::Open);
        let sent = batches_sent(&mut rig)[0];
        assert_eq!(sent.0, 1);
        if is_closed_first {
            rig.break_link(SECOND);
        }
        let last = views.last().expect("there are some");
        adopt(&mut rig, FIRST, &last.without(&[NodeId(2)]));
        answer(&mut rig, sent, Outcome::Open, None, 1);
        assert!(rig.client.take_operations(token).is_none(), "its row comes");
        send_row(&mut rig, FIRST, sent.1, 1);
        let batch = rig.client.take_operations(token).expect("it is over");
        assert_eq!(batch.result(OperationNumber(1)), Ok(None));
    }
}

/// A data manager sends that there is no row.
pub fn send_row(rig: &mut Rig, link: LinkId, transaction: u64, operation: u32) {
    rig.feed(link, SignalNumber::TransactionRowReport, BlockNumber::DataManager, |w| {
        w.put(&TransactionRow {
            transaction: U64::new(transaction),
            epoch: U64::new(5),
            operation: U32::new(operation),
            row_bytes: U16::new(NO_ROW),
            unused: U16::ZERO,
        });
    });
}

/// A client that is connected to two data nodes by two connections each.
fn pair_with_two_connections() -> (Rig, ClusterView) {
    let view = first_view_with(2, &[0, 0]);
    let mut rig = Rig::new(2);
    for _ in 0..4 {
        rig.advance(11);
        rig.admit_all(&view);
    }
    assert!(rig.client.endpoints().iter().all(|endpoint| endpoint.is_connected));
    (rig, view)
}

/// Nothing comes for a while but answers to heartbeats, by the first connection to each data node.
fn be_connected_for_long(rig: &mut Rig) {
    for _ in 0..20 {
        rig.advance(400);
        for link in [FIRST, SECOND] {
            rig.feed(link, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
                w.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
            });
        }
    }
}

/// The data node at the other end says as the last on a connection that it has sent everything, and closes it.
fn say_all_sent(rig: &mut Rig, link: LinkId) {
    rig.refuse(link, ErrorCode::NodeStopping, ALL_SENT);
    rig.client.on_broken(link, "it has ended");
}

/// A transaction whose first batch has read a row of the first of two data nodes, which coordinates it, and the next
/// batch, with a read of a row of the other one.
fn read_at_both(rig: &mut Rig, table: &Table, view: &ClusterView, nodes: [u8; 2]) -> (Token, OperationBatch) {
    let token = rig.client.begin().unwrap();
    rig.client.send(token, locking_read(table, key_at(table, view, nodes[0])), BatchEnd::Open);
    let sent = batches_sent(rig)[0];
    assert_eq!(sent.0, nodes[0]);
    answer(rig, sent, Outcome::Open, None, 1);
    send_row(rig, if nodes[0] == 1 { FIRST } else { SECOND }, sent.1, 1);
    let mut batch = rig.client.take_operations(token).expect("it is answered");
    batch.clear();
    let key = key_at(table, view, nodes[1]).to_le_bytes();
    batch.push(&OperationSpec::new(table, OperationKind::ReadExclusive, &key, &[])).unwrap();
    (token, batch)
}

/// A row was sent by a data node that has left since, by one of its two connections. The client reads the other one
/// before, or what the other data node says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadBefore {
    ViewWithoutIt,
    LastOfTheOtherConnection,
    /// As before, and it has not received the views in which its primary moved.
    LastWithoutViews,
    EndOfTheOtherConnection,
    LastOfBoth,
    /// As before, and nobody answers any more at its address.
    LastOfBothAndNobody,
}

/// What a data node has sent that leaves is not lost, whatever else the client reads before it; nor is a row that comes
/// from another one, as its primary has moved. If the connections just end it may be.
#[test]
fn what_one_has_sent_that_has_left_is_read() {
    use ReadBefore::*;
    let all = [
        ViewWithoutIt,
        LastOfTheOtherConnection,
        LastWithoutViews,
        EndOfTheOtherConnection,
        LastOfBoth,
        LastOfBothAndNobody,
    ];
    for before in all {
        let (mut rig, view) = pair_with_two_connections();
        be_connected_for_long(&mut rig);
        let table = table(2);
        let second = [LinkId::new(1, 0), LinkId::new(1, 1)];
        // Its coordinator is that of the first row's data node, which stays.
        let (token, batch) = read_at_both(&mut rig, &table, &view, [1, 2]);
        rig.client.send(token, batch, BatchEnd::Open);
        let sent = batches_sent(&mut rig)[0];
        let views = leave(&view, 2);
        let has_views = before != LastWithoutViews;
        views.iter().filter(|_| has_views).for_each(|view| adopt(&mut rig, FIRST, view));
        match before {
            ViewWithoutIt => {
                adopt(&mut rig, FIRST, &views.last().expect("there are some").without(&[NodeId(2)]));
            }
            LastOfTheOtherConnection | LastWithoutViews => say_all_sent(&mut rig, second[0]),
            EndOfTheOtherConnection => rig.break_link(second[0]),
            LastOfBoth => second.iter().for_each(|&link| say_all_sent(&mut rig, link)),
            LastOfBothAndNobody => {
                second.iter().for_each(|&link| say_all_sent(&mut rig, link));
                rig.advance(50);
                assert_eq!(rig.client.next_command(), Some(Command::Open(second[0])));
                rig.break_link(second[0]);
            }
        }
        rig.advance(100);
        answer(&mut rig, sent, Outcome::Open, None, 1);
        let is_over = rig.client.take_operations(token);
        if before == EndOfTheOtherConnection {
            let batch = is_over.expect("its row is not awaited");
            assert_eq!(batch.result(OperationNumber(2)).unwrap_err().code(), ErrorCode::ConnectionLost);
            continue;
        }
        assert!(is_over.is_none(), "its row is there to be read: {before:?}");
        let is_read = matches!(before, LastOfBoth | LastOfBothAndNobody);
        send_row(&mut rig, if is_read { FIRST } else { second[1] }, sent.1, 2);
        let batch = rig.client.take_operations(token).expect("it is over");
        assert_eq!(batch.result(OperationNumber(2)), Ok(None), "{before:?}");
        if !is_read {
            second.iter().for_each(|&link| say_all_sent(&mut rig, link));
        }
        adopt(&mut rig, FIRST, &views.last().expect("there are some").without(&[NodeId(2)]));
        assert!(!rig.client.endpoints()[1].is_connected, "it has ended: {before:?}");
        rig.advance(50);
        let greeted: Vec<u8> = rig.greetings().iter().map(|(link, _)| node_at(*link)).collect();
        assert_eq!(greeted, [2], "it may have been started again: {before:?}");
    }
}

/// A row is asked for of a data node that is not connected, so it can't come; its data node leaves in order, while the
/// client misses views. It is not waited for.
#[test]
fn a_row_is_not_awaited_of_one_that_was_not_connected() {
    let (mut rig, view) = pair();
    let table = table(2);
    let (token, batch) = read_at_both(&mut rig, &table, &view, [1, 2]);
    rig.break_link(SECOND);
    rig.client.send(token, batch, BatchEnd::Open);
    let sent = batches_sent(&mut rig)[0];
    let views = leave(&view, 2);
    assert!(views.len() > 2, "it misses more than one");
    adopt(&mut rig, FIRST, views.last().expect("there are some"));
    answer(&mut rig, sent, Outcome::Open, None, 1);
    let batch = rig.client.take_operations(token).expect("its row is not awaited");
    assert_eq!(batch.result(OperationNumber(2)).unwrap_err().code(), ErrorCode::ConnectionLost);
}

/// The coordinator has left when it has committed a transaction. A row of its last batch comes from the other data
/// node.
#[test]
fn a_row_is_awaited_though_the_coordinator_has_left() {
    let (mut rig, view) = pair();
    let table = table(2);
    let (token, batch) = read_at_both(&mut rig, &table, &view, [2, 1]);
    rig.client.send(token, batch, BatchEnd::Commit);
    let sent = batches_sent(&mut rig)[0];
    leave(&view, 2).iter().for_each(|view| adopt(&mut rig, SECOND, view));
    answer(&mut rig, sent, Outcome::Committed, None, 1);
    say_all_sent(&mut rig, SECOND);
    assert!(rig.client.take_operations(token).is_none(), "its row comes");
    send_row(&mut rig, FIRST, sent.1, 2);
    let batch = rig.client.take_operations(token).expect("it is over");
    assert!(matches!(batch.standing(), Ok(Standing::Committed(_))));
    assert_eq!(batch.result(OperationNumber(2)), Ok(None));
}

/// What a data node that has left has not read any more goes to the other one, which is asked for the outcome of a
/// commit, too: when everything was read that the first has sent, and not before.
#[test]
fn what_one_has_not_read_that_has_left_goes_to_the_other() {
    for all_is_said_first in [false, true] {
        let (mut rig, view) = pair();
        let table = table(2);
        let key = key_at(&table, &view, 2);
        let token = read(&mut rig, &table, key);
        assert_eq!(reads_sent(&mut rig)[0].0, 2);
        let commit = rig.commit_insert(&table, key);
        let transaction = rig.transactions_sent()[0].0;
        let views = leave(&view, 2);
        let last = views.last().expect("there are some").without(&[NodeId(2)]);
        views.iter().for_each(|view| adopt(&mut rig, FIRST, view));
        if all_is_said_first {
            say_all_sent(&mut rig, SECOND);
            adopt(&mut rig, FIRST, &last);
        } else {
            adopt(&mut rig, FIRST, &last);
            rig.advance(200);
            let mut sent = rig.all_sent();
            sent.retain(|sent| sent.frame().signal() != Some(SignalNumber::HeartbeatRequest));
            assert!(sent.is_empty(), "its answers may be there to be read");
            say_all_sent(&mut rig, SECOND);
        }
        let sent = rig.all_sent();
        let of = |signal| {
            sent.iter().find(move |sent| sent.frame().signal() == Some(signal)).expect("it was sent")
        };
        let (again, question) = (of(SignalNumber::KeyReadRequest), of(SignalNumber::InheritedOutcomeRequest));
        assert!(again.link == FIRST && question.link == FIRST, "all is said first: {all_is_said_first}");
        let tag = again.frame().head::<KeyReadHead>().unwrap().0.request.get();
        answer_reads(&mut rig, (1, tag), 1);
        assert!(rig.client.take_read(token).is_some());
        let tag = question.frame().head::<InheritedOutcomeRequest>().unwrap().0.request.get();
        rig.answer(FIRST, (transaction, tag), Some(1));
        assert!(matches!(rig.standing(commit), Ok(Standing::Committed(_))));
    }
}

/// The president ends before it has read a change of the schema. It could only stop when that was sent, or has said
/// that it has sent everything: so the change is sent to the next one. Else it may have been carried out.
#[test]
fn a_change_is_sent_again_if_the_president_could_only_stop() {
    for (could_only_stop, says_all) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut rig, view) = pair();
        let views = leave(&view, 1);
        let before = if could_only_stop { views.len() } else { 1 };
        views[..before].iter().for_each(|view| adopt(&mut rig, SECOND, view));
        let create = Request::CreateTable(TableDefinition::default());
        let token = rig.client.request(&create).expect("it is connected");
        let read = |sent: Sent| -> (u8, CreateTableRequest) {
            (node_at(sent.link), cold::read(&sent.frame()).unwrap())
        };
        let sent = |rig: &mut Rig| -> Vec<_> {
            rig.sent(SignalNumber::CreateTableRequest).into_iter().map(read).collect()
        };
        assert_eq!(sent(&mut rig)[0].0, 1);
        views[before..].iter().for_each(|view| adopt(&mut rig, SECOND, view));
        if says_all {
            say_all_sent(&mut rig, FIRST);
            rig.advance(100);
            assert!(rig.client.take_answer(token).is_none(), "there will be another president");
        } else {
            rig.break_link(FIRST);
        }
        adopt(&mut rig, SECOND, &views.last().expect("there are some").without(&[NodeId(1)]));
        if !could_only_stop && !says_all {
            let code = rig.client.take_answer(token).expect("it is over").unwrap_err().code();
            assert_eq!(code, ErrorCode::UnknownOutcome);
            continue;
        }
        assert!(rig.client.take_answer(token).is_none(), "it is under way");
        let (node, body) = sent(&mut rig).remove(0);
        assert_eq!(node, 2);
        let partitions = vinga_base::TablePartitions::first(2);
        let table = TableRecord::new(7, 70, partitions, TableDefinition::default());
        let confirm = TableConfirm { request: body.request, table };
        rig.feed(SECOND, SignalNumber::CreateTableConfirm, BlockNumber::Dictionary, |w| {
            cold::write(w, &confirm);
        });
        assert!(matches!(rig.client.take_answer(token), Some(Ok(Answer::Table(_)))));
    }
}
