//! Ordered indexes after a restart: they are built from the rows.

#[allow(dead_code, reason = "this uses only a part of it")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Node, table};
use vinga_base::ColumnId;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::page_pool::PAGE_BYTES;
use vinga_base::schema::{IndexDefinition, IndexKind};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::operation::OperationKind;

const ROWS: u64 = 1500;

/// The heap memory for the entries of all rows.
const ENTRIES_BYTES: usize = ROWS as usize * 16;

/// Refuses requests for so many bytes.
struct Refusing;

static REFUSED_BYTES: AtomicUsize = AtomicUsize::new(0);
static REFUSALS: AtomicUsize = AtomicUsize::new(0);
/// One test after the other: they share the heap.
static TURN: Mutex<()> = Mutex::new(());

// SAFETY: what is not refused is passed on to the system's allocator.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == REFUSED_BYTES.load(Ordering::Relaxed) {
            REFUSALS.fetch_add(1, Ordering::Relaxed);
            return core::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// A table with an index over values that begin with the same bytes, too.
fn two_indexes() -> TableRecord {
    let mut record = table(false);
    record.definition.indexes.push(IndexDefinition {
        id: 2,
        name: "by value".into(),
        columns: vec![OrderColumn { column: ColumnId(2), direction: Direction::Ascending }],
        kind: IndexKind::Ordered,
    });
    record
}

/// A node with rows whose keys and values are in no order, a third of which have the same value as another one.
fn full_node() -> Node {
    let mut node = Node::new(two_indexes());
    for number in 0..ROWS {
        let key = number * 7_919 % 100_003;
        let value = format!("all values begin with this{:>6}", key % (ROWS / 3 * 2));
        node.change(OperationKind::Insert, key, value.as_bytes(), 10).expect("there is room");
    }
    node.durable(10);
    node
}

#[test]
fn built_indexes_are_right_and_not_larger() {
    let _turn = TURN.lock().unwrap();
    let node = full_node();
    let (rows, before) = (node.rows(), node.harness.block().memory().ordered_index_bytes);
    // It compares the indexes with the rows.
    let mut node = node.restart(10).expect("it has as much memory as before");
    assert_eq!(node.rows(), rows);
    let after = node.harness.block().memory().ordered_index_bytes;
    assert!(after <= before, "{after} bytes, {before} before");
    for number in 0..ROWS {
        node.change(OperationKind::Delete, number * 7_919 % 100_003, b"", 12).expect("rows can be deleted");
    }
    let left = node.harness.block().memory().ordered_index_bytes;
    assert!(left < PAGE_BYTES as u64, "no page is left of them: {left} bytes");
}

#[test]
fn without_heap_memory_rows_are_entered_one_after_the_other() {
    let _turn = TURN.lock().unwrap();
    let node = full_node();
    let rows = node.rows();
    REFUSED_BYTES.store(ENTRIES_BYTES, Ordering::Relaxed);
    let node = node.restart(10);
    REFUSED_BYTES.store(0, Ordering::Relaxed);
    let node = node.expect("it does not need the heap for this");
    assert_eq!(REFUSALS.load(Ordering::Relaxed), 2, "one for each index");
    assert_eq!(node.rows(), rows);
}
