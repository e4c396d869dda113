//! A restart with as much memory as before: it may need more for a moment, and must never go on with less than all
//! rows.

use crate::support::{MUCH, Node, table};
use vinga_wire::operation::OperationKind;

/// Long values, of which sixteen fill a page, and short ones.
const LONG: [u8; 2000] = [7; 2000];
const SHORT: [u8; 2] = [7; 2];

/// Fills a node with rows until its memory is full; returns how many there are.
fn fill(node: &mut Node, value: &[u8]) -> u64 {
    for key in 0.. {
        match node.change(OperationKind::Insert, key, value, 10) {
            Ok(()) => {}
            Err(827) => return key,
            Err(code) => panic!("error {code}"),
        }
    }
    unreachable!("the memory is finite")
}

/// Memory that is full, with as much again for restarts.
const FULL: (u32, u32) = (40, 40);

#[test]
fn a_full_node_starts_again_from_log_or_checkpoint() {
    for with_checkpoint in [false, true] {
        let mut node = Node::with_memory(table(false), FULL);
        let rows = fill(&mut node, &LONG);
        node.durable(10);
        if with_checkpoint {
            node.order_checkpoint(1 << 30);
        }
        let before = node.rows();
        let mut node = node.restart(10).expect("it has as much memory as before");
        assert_eq!((node.rows() == before, before.len() as u64), (true, rows));
        assert_eq!(node.change(OperationKind::Insert, rows, &LONG, 12), Err(827), "it is as full as it was");
        node.change(OperationKind::Delete, 0, b"", 12).expect("rows can be deleted");
    }
}

const ROWS: u64 = 400;

/// A node whose first rows have long values, and the others short ones.
fn half_long(memory: (u32, u32)) -> Node {
    let mut node = Node::with_memory(table(false), memory);
    for key in 0..ROWS {
        let value = if key < ROWS / 2 { &LONG[..] } else { &SHORT[..] };
        node.change(OperationKind::Insert, key, value, 10).expect("there is room");
    }
    node
}

/// Long values move from rows that the scan has passed to rows that it has not, in the same memory: the checkpoint has
/// them twice.
#[test]
fn a_checkpoint_that_has_met_the_same_memory_twice_can_be_loaded() {
    let (needed, _) = half_long(MUCH).harness.block().pages();
    // A row that is changed is there twice for a moment.
    let memory = needed + 5;
    let mut node = half_long((memory, memory));
    node.durable(10);
    node.order_checkpoint(500_000);
    let written = node.harness.block().checkpoint_statistics().bytes;
    assert!((400_000..800_000).contains(&written), "about the first half is scanned: {written}");
    // From the end of the first half on, so that the rows that the scan has yet to pass there have short values.
    for key in (0..ROWS / 2).rev() {
        node.change(OperationKind::Write, key, &SHORT, 11).expect("it needs less than before");
        node.change(OperationKind::Write, ROWS - 1 - key, &LONG, 11).expect("it needs as much as before");
    }
    node.durable(11);
    node.give_quota(1 << 30);
    assert!(node.trimmed > 1, "the checkpoint is usable");
    let before = node.rows();
    let (pages, _) = node.harness.block().pages();
    let mut without_more = Node::stopped(table(false), node.files.clone(), node.log.clone());
    (without_more.memory, without_more.trimmed) = ((memory, 0), node.trimmed);
    let why = without_more.restart(11).err().expect("its rows do not fit all at the same time");
    assert!(why.starts_with("827: "), "{why}");
    let mut node = node.restart(11).expect("a restart may use more");
    assert_eq!(node.rows(), before);
    let (after, _) = node.harness.block().pages();
    assert!(after <= pages + 2, "what was there twice is gone: {after} pages, {pages} before");
    node.change(OperationKind::Write, 0, &SHORT, 13).expect("it goes on");
}

/// Of a node whose memory was made smaller, nothing may be left out.
#[test]
fn rows_that_do_not_fit_are_noticed() {
    for with_checkpoint in [false, true] {
        let mut node = Node::with_memory(table(false), FULL);
        fill(&mut node, &LONG);
        node.durable(10);
        if with_checkpoint {
            node.order_checkpoint(1 << 30);
        }
        // The rows take nearly all of it, so the index is what does not fit any more; or rows do not.
        for pages in [(36, 0), (12, 12)] {
            let mut smaller = Node::stopped(table(false), node.files.clone(), node.log.clone());
            smaller.memory = pages;
            smaller.trimmed = node.trimmed;
            let why = smaller.restart(10).err().expect("it does not fit");
            assert!(why.starts_with("827: ") && why.contains("DataMemory"), "{why}");
        }
    }
}
