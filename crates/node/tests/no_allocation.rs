//! The lookup path allocates nothing: a counting allocator watches while a warmed-up node answers reads by key, and
//! while it runs single-operation transactions.

#[allow(dead_code, reason = "this uses only a part of it")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{API, Cluster, Op, Row, TC};
use vinga_wire::key_read::KeyReadHead;
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::{FrameWriter, SignalNumber, U16, U32, U64};

thread_local! {
    /// `Some` while allocations of this thread are counted.
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

struct Counting;

fn count() {
    // During the end of a thread there is nothing to be counted any more.
    let _ = COUNT.try_with(|count| count.set(count.get().map(|n| n + 1)));
}

// SAFETY: everything is passed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().expect("it was set above")
}

/// Frames that read all keys, grouped by owner as a client does.
fn reads(c: &Cluster, keys: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![];
    let (table, version) = c.table();
    for owner in c.owners() {
        let owned: Vec<u64> = keys.clone().filter(|&key| c.owner_of(key) == owner).collect();
        let mut writer = FrameWriter::begin(&mut bytes, SignalNumber::KeyReadRequest, 1, owner, API, 0);
        writer.put(&KeyReadHead {
            version: U64::new(version),
            transaction: U64::ZERO,
            request: U32::ZERO,
            table: U32::new(table),
            operation: U32::ZERO,
            count: U16::new(owned.len() as u16),
            columns: U16::new(ALL_COLUMNS),
            filter_bytes: U16::ZERO,
            flags: U16::ZERO,
        });
        for key in owned {
            writer.bytes(&key.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn lookups_allocate_nothing() {
    let mut c = Cluster::new(1);
    for key in 0..200 {
        let id = c.begin();
        let row = Row(key, key as i64, Some(format!("text of row {key}")));
        c.batch(id, 3, 1, &[(Op::Insert(row), false)]);
    }
    let seen = c.outcomes();
    assert_eq!(seen, 200);
    let batch = reads(&c, 100..300);
    // Buffers grow to their size once.
    let first = c.feed_raw(1, &batch);
    assert!(first > 100 * 20, "rows come back");
    let counted = allocations(|| {
        for _ in 0..100 {
            assert_eq!(c.feed_raw(1, &batch), first);
        }
    });
    assert_eq!(counted, 0, "20,000 lookups allocated");
    assert_eq!(TC.node(), c.owner_of(1).node());
}
