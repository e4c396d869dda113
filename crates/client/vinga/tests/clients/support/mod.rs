//! What the tests of the client share: a real data node in this process, what it says of itself, and a stand-in for the
//! network before it.

pub mod proxy;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{InfoTable, InfoValue};
use vinga_datanode::LocalNode;

/// A node whose clients have several connections each, on whatever machine.
pub fn start_node() -> LocalNode {
    LocalNode::start_with(&[("ThreadConfig", "worker={count=2}")]).expect("a small node can be started")
}

/// The same, where a lock is waited for until it is let go, however busy the machine is.
pub fn start_patient_node() -> LocalNode {
    let parameters =
        [("ThreadConfig", "worker={count=2}"), ("TransactionDeadlockDetectionTimeout", "600000")];
    LocalNode::start_with(&parameters).expect("a small node can be started")
}

/// Waits until something holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(180), "it happens within some time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What somebody left behind at the data node: all places of pools that are in use, and outcomes that are kept. Empty
/// when there are no open transactions, operations, locks or scans.
pub fn left_behind(observer: &Cluster) -> BTreeMap<String, u64> {
    let rows = |table, block: usize, name: usize, value: usize| {
        let rows = observer.info(table).expect("the node tells").rows;
        rows.into_iter().map(move |row| match (&row[block], &row[name], &row[value]) {
            (InfoValue::Text(block), InfoValue::Text(name), InfoValue::Number(value)) => {
                (format!("{block}: {name}"), *value)
            }
            other => panic!("{other:?} is no row of this table"),
        })
    };
    let pools = rows(InfoTable::Pools, 1, 2, 3);
    let outcomes =
        rows(InfoTable::Blocks, 1, 2, 3).filter(|(what, _)| what.ends_with("unconfirmed outcomes"));
    pools.chain(outcomes).filter(|(_, used)| *used > 0).collect()
}

/// Waits until nobody has left anything behind.
pub fn assert_nothing_left(observer: &Cluster) {
    let begin = Instant::now();
    loop {
        let left = left_behind(observer);
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "left behind: {left:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future: a tiny executor that knows nothing of sockets.
pub fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let begin = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !unpark.is_woken.swap(false, Ordering::Acquire) {
            thread::park_timeout(Duration::from_secs(1));
            assert!(begin.elapsed() < Duration::from_secs(180), "somebody wakes it");
        }
    }
}

/// Polls a future so many times, with pauses, unless it ends before; then it is dropped.
pub fn poll_and_drop<F: Future>(future: F, polls: u32, pause: Duration) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for poll in 0..polls {
        if poll > 0 && pause > Duration::ZERO {
            thread::sleep(pause);
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
    }
    None
}
