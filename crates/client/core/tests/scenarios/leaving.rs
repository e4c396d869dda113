//! One of two data nodes leaves before it stops, with frames written by hand: nobody is answered that it has failed.

use crate::lost_data_nodes::{FIRST, SECOND, answer, batches_sent, key_at, locking_read, pair};
use crate::rig::{Rig, Sent, node_at, table};
use vinga_base::schema::TableDefinition;
use vinga_base::{NodeId, OperationNumber};
use vinga_client_core::{Answer, BatchEnd, LinkId, Request};
use vinga_wire::dictionary::{CreateTableRequest, TableConfirm, TableRecord};
use vinga_wire::key_read::NO_ROW;
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
        rig.feed(FIRST, SignalNumber::TransactionRowReport, BlockNumber::DataManager, |w| {
            w.put(&TransactionRow {
                transaction: U64::new(sent.1),
                epoch: U64::new(5),
                operation: U32::new(1),
                row_bytes: U16::new(NO_ROW),
                unused: U16::ZERO,
            });
        });
        let batch = rig.client.take_operations(token).expect("it is over");
        assert_eq!(batch.result(OperationNumber(1)), Ok(None));
    }
}

/// The president ends before it has read a change of the schema. It could only stop when that was sent: so it is sent
/// to the next one. What was sent before may have been carried out.
#[test]
fn a_change_is_sent_again_if_the_president_could_only_stop() {
    for could_only_stop in [false, true] {
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
        rig.break_link(FIRST);
        adopt(&mut rig, SECOND, &views.last().expect("there are some").without(&[NodeId(1)]));
        if !could_only_stop {
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
