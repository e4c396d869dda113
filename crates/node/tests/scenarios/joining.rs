//! Data nodes that come back and join, with all that they agree on.

use crate::support::{Cluster, Op, Setup, committed, dm, row, tc};
use std::collections::BTreeSet;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind, TableDefinition};
use vinga_base::{ColumnId, NodeId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::dictionary::{CreateTableRequest, TableRecord};
use vinga_wire::info::{InfoTable, InfoValue};
use vinga_wire::schema::SchemaChange;
use vinga_wire::view::MemberState;
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

fn cluster(nodes: u8, bug: Option<InjectedBug>) -> Cluster {
    let mut c = Cluster::with(&Setup {
        nodes,
        coordinators: nodes,
        commits_at_last_replica: true,
        copy_piece: 1,
        node_heartbeat_interval: Span::from_millis(50),
        bug,
        ..Setup::default()
    });
    for key in 1..10 {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    c.forget_all_outcomes();
    c
}

fn restart(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Restart, 0)
}

fn dictionary(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Dictionary, 0)
}

fn agreement(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Agreement, 0)
}

fn wait(c: &mut Cluster) {
    c.advance(Span::from_millis(1000));
}

fn write(c: &mut Cluster, by: u8, key: u64, n: i64) {
    assert_eq!(c.at_once_by(tc(by), &[Op::Write(row(key, n))]), [committed(1)]);
    c.forget_all_outcomes();
}

fn truncation() -> SchemaChange {
    SchemaChange::TruncateTable { name: "test.t".into(), pinned: None }
}

/// The test table gets another index.
pub fn with_third_index() -> SchemaChange {
    let mut definition = Cluster::definition_of("test.t");
    definition.indexes.push(IndexDefinition {
        id: 3,
        name: "third".into(),
        columns: vec![OrderColumn { column: ColumnId(1), direction: Direction::Descending }],
        kind: IndexKind::Ordered,
    });
    SchemaChange::AlterTable { name: "test.t".into(), definition, pinned: None }
}

/// All nodes that are there are full members, and have the same rows.
fn all_are_equal(c: &Cluster, nodes: &[u8]) {
    assert_eq!(c.live_nodes(), nodes);
    for &node in nodes {
        assert_eq!(c.state_of(node), Some(MemberState::Started), "data node {node}");
        assert_eq!(c.contents(node), c.contents(nodes[0]), "data node {node}");
    }
}

/// The tables that a data node's dictionary knows.
fn tables(c: &Cluster, node: u8) -> Vec<TableRecord> {
    c.node(node).dictionary().expect("each node has one").tables().cloned().collect()
}

#[test]
fn a_data_node_that_comes_back_becomes_a_full_member() {
    let mut c = cluster(3, None);
    for round in 0..3 {
        c.die(3);
        write(&mut c, 2, 4, 10 + round);
        c.join(3);
        wait(&mut c);
        all_are_equal(&c, &[1, 2, 3]);
        write(&mut c, 2, 5, 10 + round);
        all_are_equal(&c, &[1, 2, 3]);
    }
    // It is as good as the others.
    c.die(1);
    c.die(2);
    assert_eq!((c.live_nodes(), c.contents(3).len()), (vec![3], 9));
}

/// Views are compared by the low bytes of their numbers.
#[test]
fn a_data_node_comes_back_in_a_view_of_any_number() {
    let mut c = cluster(2, None);
    let mut low = BTreeSet::new();
    for round in 0..70 {
        c.die(2);
        write(&mut c, 1, 4, round);
        c.join(2);
        wait(&mut c);
        all_are_equal(&c, &[1, 2]);
        assert_eq!(c.parked(), 0, "in view {}", c.view.number());
        low.insert(c.view.number().0 as u8 / 64);
    }
    assert_eq!(low.len(), 4);
}

#[test]
fn two_that_come_back_join_one_after_the_other() {
    let mut c = cluster(3, None);
    c.die(2);
    c.die(3);
    write(&mut c, 1, 4, 10);
    c.join(3);
    c.join(2);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    write(&mut c, 1, 4, 11);
    all_are_equal(&c, &[1, 2, 3]);
}

/// Node 3 stands in the middle of a step: what its restart block reports does not arrive.
fn stands_still(c: &mut Cluster, state: MemberState) {
    c.die(3);
    if state == MemberState::Copying {
        for instance in 0..2 {
            c.hold(dm(3, instance), dm(1, instance));
            c.hold(dm(3, instance), dm(2, instance));
        }
    } else {
        c.hold(restart(3), restart(1));
    }
    c.join(3);
    wait(c);
    assert_eq!(c.state_of(3), Some(state));
}

/// What was copied is confirmed from now on.
fn let_copy(c: &mut Cluster) {
    for instance in 0..2 {
        c.release(dm(3, instance), dm(1, instance));
        c.release(dm(3, instance), dm(2, instance));
    }
}

#[test]
fn one_that_is_copied_to_goes_on_with_the_next_president() {
    let mut c = cluster(3, None);
    stands_still(&mut c, MemberState::Copying);
    c.die(1);
    let_copy(&mut c);
    wait(&mut c);
    all_are_equal(&c, &[2, 3]);
    write(&mut c, 2, 4, 10);
    all_are_equal(&c, &[2, 3]);
    c.join(1);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

#[test]
fn one_that_has_only_joined_starts_again_with_the_next_president() {
    let mut c = cluster(3, None);
    stands_still(&mut c, MemberState::Starting);
    c.die(1);
    wait(&mut c);
    all_are_equal(&c, &[2]);
    c.join(3);
    c.join(1);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

#[test]
fn one_that_dies_again_keeps_nobody_up() {
    for state in [MemberState::Starting, MemberState::Copying] {
        let mut c = cluster(3, None);
        stands_still(&mut c, state);
        c.die(3);
        write(&mut c, 2, 4, 10);
        c.release(restart(3), restart(1));
        let_copy(&mut c);
        c.join(3);
        wait(&mut c);
        all_are_equal(&c, &[1, 2, 3]);
        c.change_schema(truncation());
        assert!(c.contents(3).is_empty(), "no change is held any more");
    }
}

/// The change is asked for while node 3 learns of the tables: it waits, and node 3 has part in it.
#[test]
fn a_schema_change_waits_for_one_that_has_joined() {
    let mut c = cluster(3, None);
    stands_still(&mut c, MemberState::Starting);
    c.change_schema(truncation());
    wait(&mut c);
    assert_eq!(c.contents(1).len(), 9, "it waits");
    c.release(restart(3), restart(1));
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    assert!(c.contents(1).is_empty());
    assert!(!tables(&c, 1).is_empty());
    assert!(tables(&c, 1) == tables(&c, 3) && tables(&c, 1) == tables(&c, 2));
}

/// More definitions than a frame holds.
#[test]
fn one_that_joins_learns_definitions_piece_by_piece() {
    let mut c = cluster(3, None);
    for number in 0..4u8 {
        let attachment = vec![number; 50_000];
        let definition =
            TableDefinition { attachment, ..Cluster::definition_of(&format!("test.other_{number}")) };
        c.send(SignalNumber::CreateTableRequest, dictionary(1), |w| {
            cold::write(w, &CreateTableRequest { request: 2, definition });
        });
        wait(&mut c);
    }
    c.die(3);
    c.join(3);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    assert_eq!(tables(&c, 3).len(), 5);
    assert!(tables(&c, 1) == tables(&c, 3) && tables(&c, 1) == tables(&c, 2));
}

/// Node 3 is connected while a change is under way: it joins when that is over.
#[test]
fn one_that_comes_back_waits_for_a_schema_change() {
    let mut c = cluster(3, None);
    c.die(3);
    c.hold(dictionary(2), dictionary(1));
    c.change_schema(truncation());
    c.join(3);
    wait(&mut c);
    assert_eq!(c.state_of(3), None);
    let waits = start_of(&mut c, 3).expect("it is connected");
    assert_eq!((waits("kind"), waits("phase")), (text("node restart"), text("cluster joined")));
    assert_eq!(waits("elapsed_ms"), InfoValue::Number(1000));
    let now = c.now;
    let others = c.node(2).restart().expect("each node has one").starts(now);
    assert_eq!(
        others.iter().map(|start| start.node).collect::<Vec<_>>(),
        [NodeId(2)],
        "the president says it"
    );
    c.release(dictionary(2), dictionary(1));
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    assert!(c.contents(3).is_empty());
}

/// When rows are copied, and node 3 has not started yet, a change goes on, in which it has part.
#[test]
fn the_schema_changes_before_a_copy_has_started() {
    let mut c = cluster(3, None);
    stands_still(&mut c, MemberState::Copying);
    c.hold(restart(3), restart(1));
    let_copy(&mut c);
    c.change_schema(truncation());
    c.received();
    for key in 20..25 {
        write(&mut c, 2, key, 7);
    }
    assert_eq!((c.state_of(3), c.contents(3).len()), (Some(MemberState::Copying), 5));
    c.release(restart(3), restart(1));
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

/// The table gets an index while its rows are copied: some come to node 3 when it has begun to build the index there.
#[test]
fn rows_that_are_copied_while_an_index_is_built_are_in_it() {
    let mut c = cluster(3, None);
    for key in 20..40 {
        write(&mut c, 1, key, 7);
    }
    stands_still(&mut c, MemberState::Copying);
    c.hold_slices(3);
    c.set_slice_units(3, 1);
    c.change_schema(with_third_index());
    (0..4).for_each(|_| c.slice(3));
    let_copy(&mut c);
    c.release_slices(3);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    assert_eq!(c.contents(3).len(), 29);
    assert_eq!(c.node(3).dictionary().unwrap().tables().next().unwrap().definition.indexes.len(), 3);
}

/// A change that begins before node 3 is copied to has built the index there, and is not complete, when node 3 makes
/// its fragments for what is copied.
#[test]
fn an_index_that_is_made_when_rows_are_about_to_be_copied_is_there() {
    let mut c = cluster(3, None);
    stands_still(&mut c, MemberState::Starting);
    c.hold(agreement(2), agreement(1));
    c.hold_slices(2);
    c.release(restart(3), restart(1));
    assert_eq!(c.state_of(3), Some(MemberState::Starting), "the next view is about to begin");
    c.change_schema(with_third_index());
    c.release(agreement(2), agreement(1));
    assert_eq!(c.state_of(3), Some(MemberState::Copying));
    c.release_slices(2);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    for data_manager in c.node(3).data_managers() {
        for (place, indexes) in data_manager.inspect_ordered_indexes() {
            assert_eq!(indexes, [1, 2, 3].into(), "{place:?}");
        }
    }
}

/// It has another number of data managers than the others, so that it can't hold their partitions.
#[test]
fn one_that_does_not_fit_keeps_nobody_up() {
    let mut c = cluster(3, None);
    c.die(2);
    c.die(3);
    c.join_as(2, |member| member.data_managers = 1);
    wait(&mut c);
    assert_eq!(c.state_of(2), None);
    c.change_schema(truncation());
    wait(&mut c);
    assert!(c.contents(1).is_empty(), "no change is held");
    c.join(3);
    wait(&mut c);
    assert_eq!(c.state_of(3), Some(MemberState::Started));
    c.die(2);
    c.join(2);
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

/// A member that has not adopted the view in which node 3 is copied to keeps that from starting: its transactions would
/// leave node 3 out.
fn nobody_starts_before_all_know(bug: Option<InjectedBug>) {
    let mut c = cluster(3, bug);
    c.hold(restart(2), restart(1));
    stands_still(&mut c, MemberState::Copying);
    let_copy(&mut c);
    wait(&mut c);
    assert_eq!(c.state_of(3), Some(MemberState::Copying), "node 2 has not said that it knows");
    c.release(restart(2), restart(1));
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

#[test]
fn nobody_starts_before_all_threads_know() {
    nobody_starts_before_all_know(None);
}

#[cfg(feature = "injected-bugs")]
#[test]
#[should_panic(expected = "node 2 has not said that it knows")]
fn a_start_that_is_too_early_is_noticed() {
    nobody_starts_before_all_know(Some(InjectedBug::NewcomerStartsEarly));
}

/// What one newcomer has reported does not count for the next, though both have started as often.
#[test]
fn each_newcomer_reports_for_itself() {
    let mut c = cluster(3, None);
    c.die(2);
    c.join(2);
    wait(&mut c);
    stands_still(&mut c, MemberState::Starting);
    c.release(restart(3), restart(1));
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
}

/// The row of a data node in the table of starts that node 1 answers with, by the names of columns.
fn start_of(c: &mut Cluster, node: u64) -> Option<impl Fn(&str) -> InfoValue + use<>> {
    const COLUMNS: [&str; 14] = [
        "node_id",
        "incarnation",
        "kind",
        "phase",
        "started_at",
        "finished_at",
        "elapsed_ms",
        "phase_times",
        "rows_done",
        "rows_all",
        "bytes_done",
        "bytes_all",
        "percent",
        "seconds_left",
    ];
    let row = c.info(InfoTable::Restarts).into_iter().find(|row| row[0] == InfoValue::Number(node))?;
    assert_eq!(row.len(), COLUMNS.len());
    Some(move |column: &str| {
        let at = COLUMNS.iter().position(|&name| name == column).expect("it is a column");
        row[at].clone()
    })
}

fn text(text: &str) -> InfoValue {
    InfoValue::Text(text.into())
}

/// The president says how far a newcomer is, until that is started and says it itself.
#[test]
fn people_see_how_far_a_newcomer_is() {
    const ROWS: u64 = 100;
    let mut c = cluster(3, None);
    for key in 10..=ROWS {
        write(&mut c, 1, key, 1);
    }
    let first = start_of(&mut c, 1).expect("it has started");
    assert_eq!((first("kind"), first("phase")), (text("first start"), text("started")));
    assert_eq!((first("percent"), first("rows_all")), (InfoValue::Number(100), InfoValue::Number(0)));
    assert!(start_of(&mut c, 3).is_none(), "it says so itself");
    c.die(3);
    for instance in 0..2 {
        c.hold(dm(3, instance), dm(1, instance));
    }
    c.join(3);
    wait(&mut c);
    assert_eq!(c.state_of(3), Some(MemberState::Copying));
    let number = |value: InfoValue| match value {
        InfoValue::Number(number) => number,
        other => panic!("{other:?}"),
    };
    let copies = start_of(&mut c, 3).expect("it copies");
    assert_eq!((copies("phase"), copies("incarnation")), (text("rows copied"), InfoValue::Number(2)));
    let (rows, bytes) = (number(copies("rows_done")), number(copies("bytes_done")));
    assert!((1..ROWS / 2).contains(&rows), "{rows}");
    assert_eq!(number(copies("rows_all")), ROWS);
    assert_eq!(number(copies("percent")), bytes * 100 / number(copies("bytes_all")));
    assert_eq!(copies("finished_at"), text(""));
    for instance in 0..2 {
        c.release(dm(3, instance), dm(1, instance));
    }
    wait(&mut c);
    all_are_equal(&c, &[1, 2, 3]);
    assert!(start_of(&mut c, 3).is_none(), "the president leaves that to it");
    let now = c.now;
    let own = c.node(3).restart().expect("each node has one").starts(now);
    let own = &own.first().expect("its own").progress;
    let phases: Vec<&str> = own.finished.iter().map(|phase| phase.work.as_str()).collect();
    assert_eq!(phases, ["cluster joined", "tables and clients learned", "rows copied"]);
    assert!(own.is_started() && own.amount.percent() == Some(100), "{own:?}");
    assert_eq!((own.amount.rows, own.amount.rows_all), (ROWS, ROWS));
    assert!(own.amount.bytes > bytes);
    assert_eq!(own.finished.iter().map(|phase| phase.micros).sum::<u64>(), own.elapsed);
}
