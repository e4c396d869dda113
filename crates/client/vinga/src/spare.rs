//! Memory for single operations, kept by each thread from one to the next.

use std::cell::RefCell;
use vinga_client_core::{ReadBatch, RowBuilder, ShapeId, WriteBatch};

/// Buffers that an operation is put together in.
#[derive(Default)]
pub(crate) struct Scratch {
    pub key: Vec<u8>,
    pub body: Vec<u8>,
    pub builder: RowBuilder,
}

thread_local! {
    static READS: RefCell<Vec<ReadBatch>> = const { RefCell::new(Vec::new()) };
    static WRITES: RefCell<Vec<WriteBatch>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Batches that a thread keeps, at most.
const KEPT_MAX: usize = 8;

/// An empty batch of reads.
pub(crate) fn read_batch(shape: ShapeId) -> ReadBatch {
    match READS.with_borrow_mut(Vec::pop) {
        Some(mut batch) => {
            batch.begin(shape);
            batch
        }
        None => ReadBatch::new(shape),
    }
}

/// An empty batch of writes.
pub(crate) fn write_batch() -> WriteBatch {
    let mut batch = WRITES.with_borrow_mut(Vec::pop).unwrap_or_default();
    batch.clear();
    batch
}

pub(crate) fn keep_read(batch: ReadBatch) {
    READS.with_borrow_mut(|kept| {
        if kept.len() < KEPT_MAX {
            kept.push(batch);
        }
    });
}

pub(crate) fn keep_write(batch: WriteBatch) {
    WRITES.with_borrow_mut(|kept| {
        if kept.len() < KEPT_MAX {
            kept.push(batch);
        }
    });
}

/// Runs something with this thread's empty buffers; what runs in it may begin other operations.
pub(crate) fn with_scratch<T>(run: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take();
    scratch.key.clear();
    scratch.body.clear();
    let result = run(&mut scratch);
    SCRATCH.set(scratch);
    result
}
