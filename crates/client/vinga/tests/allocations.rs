//! Nothing is allocated for a batch once it has grown, however often its thread waits for the sockets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, OperationKind, ReadBatch, WriteBatch};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator with the arguments that it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the rules of this function, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from the system's allocator, by the functions here.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the memory came from the system's allocator, by the functions here.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread in one of many rounds; those that not each round needs don't count.
fn allocations(mut round: impl FnMut()) -> u64 {
    const ROUNDS: u64 = 50;
    (0..ROUNDS).for_each(|_| round());
    let before = COUNT.get();
    (0..ROUNDS).for_each(|_| round());
    (COUNT.get() - before) / ROUNDS
}

#[test]
fn operations_allocate_nothing() {
    let node = vinga_datanode::LocalNode::start().unwrap();
    let cluster = Cluster::connect(node.address()).unwrap();
    let definition = NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("data", ColumnType::Binary { bytes: 100 })
        .primary_key(&["id"]);
    let table = cluster.create_table(definition).unwrap();
    let mut image = [0; 108];
    let mut batch = Some(WriteBatch::new());
    let writes = allocations(|| {
        let mut writes = batch.take().unwrap();
        writes.clear();
        for id in 0..128u64 {
            image[..8].copy_from_slice(&id.to_le_bytes());
            writes.push_encoded(&table, OperationKind::Write, &[], &image).unwrap();
        }
        let writes = cluster.start_writes(writes).unwrap().wait();
        assert!(writes.endings().all(|ending| ending.is_ok()));
        batch = Some(writes);
    });
    assert_eq!(writes, 0, "allocations for 128 writes");
    let mut batch = Some(ReadBatch::new(&table));
    let reads = allocations(|| {
        let mut reads = batch.take().unwrap();
        reads.clear();
        (0..128u64).for_each(|id| reads.push(id).unwrap());
        let reads = cluster.start_reads(reads).unwrap().wait();
        assert!((0..128).all(|index| reads.bytes(index).unwrap().is_some()));
        batch = Some(reads);
    });
    assert_eq!(reads, 0, "allocations for 128 reads");
}
