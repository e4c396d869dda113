//! Waiting in an event loop: nothing is lost, whoever reads the answer; nobody looks again and again for nothing.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::{CString, c_int};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use vinga::{ColumnType, NewTable, Update};
use vinga_capi::border::{Items, Out, Text};
use vinga_capi::call::{WAIT_READ, WAIT_TIMEOUT};
use vinga_capi::cluster::*;
use vinga_capi::handle::Handle;
use vinga_capi::row::*;
use vinga_capi::table::*;
use vinga_capi::transaction::*;
use vinga_capi::value::{CValue, Payload, kind};
use vinga_datanode::LocalNode;

const EXCLUSIVE: c_int = 2;

/// How long a test waits for what has to come: no machine is so busy that it takes longer.
const HANG_GUARD: Duration = Duration::from_secs(180);

struct World {
    node: LocalNode,
    cluster: Handle<Cluster>,
    table: Handle<Table>,
}

// SAFETY: each test uses its handles as `vinga.h` says: one thread at a time, but for the table.
unsafe impl Sync for World {}

/// A place in the test, which outlives the call.
fn out<T>(place: &mut T) -> Out<T> {
    // SAFETY: the tests keep their places until calls have ended.
    unsafe { Out::new(place) }
}

fn good(error: c_int) {
    assert_eq!(error, 0);
}

impl World {
    /// A table with rows 0 to 99 that count from 0.
    fn new() -> Self {
        // Who waits for a lock does so until it is let go, however busy the machine is.
        let parameters = [("TransactionDeadlockDetectionTimeout", "600000")];
        let node = LocalNode::start_with(&parameters).expect("a small node can be started");
        let rust = vinga::blocking::Cluster::connect(node.address()).expect("it can be connected");
        let table = rust
            .create_table(
                NewTable::new("test.t")
                    .column("id", ColumnType::Integer { bytes: 8, signed: false })
                    .column("n", ColumnType::Integer { bytes: 8, signed: true })
                    .primary_key(&["id"]),
            )
            .expect("it is new");
        for id in 0..100u64 {
            rust.insert(&table, &[("id", id), ("n", 0)]).expect("it is new");
        }
        let address = CString::new(node.address()).expect("it has no NUL");
        let mut world = World { node, cluster: Handle::null(), table: Handle::null() };
        good(vinga_cluster_new(out(&mut world.cluster)));
        // SAFETY: the texts live until the calls have ended.
        let (address, name) = unsafe { (Text::of(&address), Text::of(c"test.t")) };
        good(vinga_connect(world.cluster, address));
        good(vinga_table_open(world.cluster, name, out(&mut world.table)));
        world
    }

    fn rust(&self) -> vinga::blocking::Cluster {
        vinga::blocking::Cluster::connect(self.node.address()).expect("it can be connected")
    }

    fn clone_handle(&self) -> Handle<Cluster> {
        let mut clone = Handle::null();
        good(vinga_cluster_clone(self.cluster, out(&mut clone)));
        clone
    }

    fn row(&self) -> Handle<Row> {
        let mut row = Handle::null();
        good(vinga_row_new(self.table, out(&mut row)));
        row
    }

    fn start_get(&self, error: &mut c_int, cluster: Handle<Cluster>, id: u64, row: Handle<Row>) -> c_int {
        let key = [CValue::new(kind::U64, Payload { u64: id })];
        // SAFETY: it is copied before the start has returned.
        let key = unsafe { Items::new(&key) };
        vinga_get_start(out(error), cluster, self.table, key, 1, row)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        good(vinga_table_close(self.table));
        good(vinga_cluster_close(self.cluster));
    }
}

fn id_of(row: Handle<Row>) -> u64 {
    let mut id = u64::MAX;
    good(vinga_row_get_u64(row, 0, out(&mut id)));
    id
}

/// Waits as a program would.
fn wait(cluster: Handle<Cluster>) -> c_int {
    let timeout = vinga_get_timeout_value_ms(cluster);
    // SAFETY: the handle is open.
    let socket = unsafe { BorrowedFd::borrow_raw(vinga_get_socket(cluster)) };
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout) * 1_000_000 };
    let mut events = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut events, Some(&timeout)) {
        Ok(1..) => WAIT_READ,
        Ok(0) | Err(_) => WAIT_TIMEOUT,
    }
}

#[test]
fn a_thread_that_waits_for_a_lock_sleeps() {
    let world = World::new();
    let rust = world.rust();
    let table = rust.table("test.t").expect("it is there");
    let mut holder = rust.begin().expect("there is room");
    holder.update(&table, 5u64, &Update::new().add("n", 1)).expect("it is one");
    holder.execute().expect("nobody else has locked it");

    let (mut tx, row, mut error) = (Handle::null(), world.row(), -1);
    good(vinga_tx_begin(world.cluster, out(&mut tx)));
    let key = [CValue::new(kind::U64, Payload { u64: 5 })];
    // SAFETY: it is copied before the start has returned.
    let key = unsafe { Items::new(&key) };
    let mut waits = vinga_tx_read_start(out(&mut error), tx, world.table, key, 1, EXCLUSIVE, row);
    assert_eq!(waits, WAIT_READ | WAIT_TIMEOUT);
    let begun = Instant::now();
    let mut turns = 0;
    let mut holder = Some(holder);
    while waits != 0 {
        turns += 1;
        let ready = wait(world.cluster);
        waits = vinga_tx_read_cont(out(&mut error), tx, ready);
        if begun.elapsed() > Duration::from_millis(600)
            && let Some(holder) = holder.take()
        {
            holder.commit().expect("nothing is in its way");
        }
    }
    good(error);
    // Who looks again and again makes thousands of turns in that time.
    let turns_max = 100 + begun.elapsed().as_millis() / 5;
    assert!(turns < turns_max, "{turns} turns in {:?}", begun.elapsed());
    let mut n = 0;
    good(vinga_row_get_i64(row, 1, out(&mut n)));
    assert_eq!(n, 1);
    good(vinga_tx_rollback(tx));
    good(vinga_tx_close(tx));
    good(vinga_row_close(row));
}

/// Threads that block on the same connection read the answers of the loop's calls; the loop is woken for each.
#[test]
fn answers_that_others_read_are_not_lost() {
    /// Also when the test fails: the threads must end then, too.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let world = World::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&is_over);
        for thread in 0..2 {
            let (world, is_over) = (&world, &is_over);
            // A handle may be used, and cloned, by one thread at a time.
            let has_its_own = Arc::new(Barrier::new(2));
            let ready = Arc::clone(&has_its_own);
            scope.spawn(move || {
                let (cluster, row) = (world.clone_handle(), world.row());
                ready.wait();
                let mut gets = 0u64;
                while !is_over.load(Ordering::Relaxed) {
                    let id = (gets * 7 + thread) % 100;
                    let key = [CValue::new(kind::U64, Payload { u64: id })];
                    // SAFETY: it lives until the call has ended.
                    let key = unsafe { Items::new(&key) };
                    good(vinga_get(cluster, world.table, key, 1, row));
                    assert_eq!(id_of(row), id);
                    gets += 1;
                }
                good(vinga_row_close(row));
                good(vinga_cluster_close(cluster));
            });
            has_its_own.wait();
        }
        let begun = Instant::now();
        let mut calls: Vec<_> = (0..10).map(|_| (world.clone_handle(), world.row(), 0u64)).collect();
        let mut errors = [0; 10];
        let mut ended = 0;
        // Another thread may have read the answer before the start has looked for it: then it has ended at once.
        let start = |error: &mut c_int, (cluster, row, id): &mut (Handle<Cluster>, Handle<Row>, u64)| {
            let mut ended = 0;
            while world.start_get(error, *cluster, *id, *row) == 0 {
                good(*error);
                assert_eq!(id_of(*row), *id);
                *id = (*id + 13) % 100;
                ended += 1;
            }
            ended
        };
        for (at, call) in calls.iter_mut().enumerate() {
            call.2 = at as u64;
            ended += start(&mut errors[at], call);
        }
        while ended < 20_000 {
            let ready = vinga_next_ready(world.cluster);
            if ready.is_null() {
                wait(world.cluster);
                continue;
            }
            let at = calls
                .iter()
                .position(|(cluster, _, _)| std::ptr::eq(cluster.address().cast(), ready))
                .expect("it is one of these");
            let call = &mut calls[at];
            if vinga_get_cont(out(&mut errors[at]), call.0, 0) == 0 {
                good(errors[at]);
                assert_eq!(id_of(call.1), call.2);
                call.2 = (call.2 + 13) % 100;
                ended += 1 + start(&mut errors[at], call);
            }
            assert!(begun.elapsed() < HANG_GUARD, "{ended} calls have ended");
        }
        drop(ends);
        for (cluster, row, _) in calls {
            good(vinga_cluster_close(cluster));
            good(vinga_row_close(row));
        }
    });
    let begun = Instant::now();
    while vinga_is_at_rest(world.cluster) != 1 {
        assert!(begun.elapsed() < HANG_GUARD, "something is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All calls are continued whenever the socket is readable, without asking which: the plain convention. Each may be
/// continued by another thread than the one that began it.
#[test]
fn all_are_continued_on_any_thread() {
    struct Call(Handle<Cluster>, Handle<Row>, u64, Box<c_int>, c_int);
    // SAFETY: one thread at a time has them.
    unsafe impl Send for Call {}

    let world = World::new();
    let mut calls: Vec<Call> =
        (0..8).map(|id| Call(world.clone_handle(), world.row(), id, Box::new(-1), 0)).collect();
    for round in 0..50 {
        for Call(cluster, row, id, error, waits) in &mut calls {
            *waits = world.start_get(error, *cluster, *id, *row);
        }
        while calls.iter().any(|call| call.4 != 0) {
            calls = std::thread::scope(|scope| {
                let world = &world;
                let continue_all = move || {
                    let ready = wait(world.cluster);
                    for Call(cluster, _, _, error, waits) in calls.iter_mut().filter(|call| call.4 != 0) {
                        *waits = vinga_get_cont(out(&mut **error), *cluster, ready);
                    }
                    calls
                };
                scope.spawn(continue_all).join().expect("it does not panic")
            });
        }
        for Call(_, row, id, error, _) in &mut calls {
            good(**error);
            assert_eq!(id_of(*row), *id);
            *id = (*id + round) % 100;
        }
    }
    for Call(cluster, row, ..) in calls {
        good(vinga_cluster_close(cluster));
        good(vinga_row_close(row));
    }
}

/// The node goes away while calls wait: they end with an error, and the handle can be used again when it is back.
#[test]
fn a_lost_connection_ends_the_calls() {
    let mut world = World::new();
    let rust = world.rust();
    let table = rust.table("test.t").expect("it is there");
    let mut holder = rust.begin().expect("there is room");
    holder.update(&table, 5u64, &Update::new().add("n", 1)).expect("it is one");
    holder.execute().expect("nobody else has locked it");
    let (mut tx, row, mut error) = (Handle::null(), world.row(), -1);
    good(vinga_tx_begin(world.cluster, out(&mut tx)));
    let key = [CValue::new(kind::U64, Payload { u64: 5 })];
    // SAFETY: it is copied before the start has returned.
    let key = unsafe { Items::new(&key) };
    let mut waits = vinga_tx_read_start(out(&mut error), tx, world.table, key, 1, EXCLUSIVE, row);
    let other = LocalNode::start().expect("a small node can be started");
    drop(std::mem::replace(&mut world.node, other));
    let begun = Instant::now();
    while waits != 0 {
        let ready = wait(world.cluster);
        waits = vinga_tx_read_cont(out(&mut error), tx, ready);
        assert!(begun.elapsed() < HANG_GUARD, "it never ends");
    }
    assert_eq!(vinga_capi::failure::vinga_error_is_retryable_of(error), 1, "{error}");
    good(vinga_tx_close(tx));
    good(vinga_row_close(row));
    drop(holder);
}
