//! In a steady state a thread allocates nothing, and its system calls are per batch.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Echoes, both_ways, connect, join, start, wait_until};
use vinga_runtime::settings::ProcessSettings;
use vinga_wire::SignalNumber;

/// Counts what the threads of the node allocate, but not those of the test.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_TEST.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !IS_TEST.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const BATCH: u32 = 128;
const BATCHES: u32 = 2_000;
/// Exchanges of so many batches, at most, until one is free of allocations.
const ROUNDS: u32 = 10;

#[test]
fn a_steady_state_is_free_of_both() {
    IS_TEST.set(true);
    both_ways(2).into_iter().for_each(is_free_of_both);
}

fn is_free_of_both(settings: ProcessSettings) {
    let (node, _) = start(settings);
    let mut clients = [connect(node.address()), connect(node.address())];
    let second = join(&clients[0], node.address(), 1).unwrap();
    // Batches that go straight to their thread and, half of them, by the ring to the other one and back.
    let requests: Vec<Vec<u8>> = clients
        .iter()
        .map(|client| {
            let mut batch = Vec::new();
            for trace in 0..BATCH {
                client.request(&mut batch, SignalNumber::KeyReadRequest, (trace % 2) as u16, trace, &[1; 30]);
            }
            batch
        })
        .collect();
    let mut reader = second;
    let mut exchange = |batches: u32| {
        for _ in 0..batches {
            for (client, batch) in clients.iter_mut().zip(&requests) {
                // Cut anywhere: the beginning of a frame waits for its rest.
                client.stream.write_all(&batch[..1000]).unwrap();
                client.stream.write_all(&batch[1000..]).unwrap();
            }
            clients[0].receive_many(BATCH as usize / 2);
            reader.receive_many(BATCH as usize / 2);
            clients[1].receive_many(BATCH as usize);
        }
    };
    let handled = || node.statistics().iter().map(|thread| thread.signals.get()).sum::<u64>();
    let calls = || node.statistics().iter().map(|thread| thread.system_calls()).sum::<u64>();

    exchange(200);
    // A buffer may still grow when more waits in it than ever before, which the system's sharing of CPUs decides: that
    // ends, whereas an allocation for a signal or a batch is in every round.
    let mut least = u64::MAX;
    let mut calls_of_round = 0;
    for _ in 0..ROUNDS {
        let (allocations, handled_before, calls_before) =
            (ALLOCATIONS.load(Ordering::Relaxed), handled(), calls());
        exchange(BATCHES);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
        let signals = u64::from(2 * BATCH * BATCHES);
        wait_until("the figures are there", || handled() - handled_before >= signals);
        calls_of_round = calls() - calls_before;
        println!("{signals} signals, {calls_of_round} system calls, {allocations} allocations");
        least = least.min(allocations);
        if least == 0 {
            break;
        }
    }
    assert_eq!(least, 0, "each of {ROUNDS} rounds has allocated");
    // Two reads and writes of each batch, on two threads, with a wait and a wake-up for each at the most.
    assert!(calls_of_round < u64::from(BATCHES) * 40, "{calls_of_round} system calls");
    node.stop();
}
