//! The rings of a local connection and the sleep of its sides under a model checker: every interleaving of the node and
//! the client, within a bound on preemptions, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vinga-local --release --test loom`; the bound is 3 preemptions unless
//! `LOOM_MAX_PREEMPTIONS` says otherwise.
#![cfg(loom)]

use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use vinga_local::area::Area;
use vinga_local::pipe::{INPUT, ROOM, Receiver, Sender, Side, ends};

/// Wakes a side: an eventfd, or a byte on the socket.
struct Alarm {
    is_raised: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn new() -> Self {
        Alarm { is_raised: Mutex::new(false), changed: Condvar::new() }
    }

    fn raise(&self) {
        *self.is_raised.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_raised = self.is_raised.lock().unwrap();
        while !*is_raised {
            is_raised = self.changed.wait(is_raised).unwrap();
        }
        *is_raised = false;
    }
}

/// Runs one side until it has sent and received everything; it sleeps whenever it can do nothing.
fn run(ends: (Sender, Receiver), own: &Alarm, other: &Alarm, mut send: &[u8], mut receive: &[u8]) {
    let (mut sender, mut receiver) = ends;
    while !send.is_empty() || !receive.is_empty() {
        let sent = sender.write(send).unwrap();
        send = &send[sent.bytes..];
        let mut buffer = [0; 3];
        let received = receiver.read(&mut buffer).unwrap();
        assert_eq!(buffer[..received.bytes], receive[..received.bytes]);
        receive = &receive[received.bytes..];
        if sent.wakes || received.wakes {
            other.raise();
        }
        if sent.bytes == 0 && received.bytes == 0 {
            let room = if send.is_empty() { 0 } else { ROOM };
            if receiver.begin_sleep(&sender, INPUT | room) {
                own.wait();
                receiver.end_sleep();
            }
        }
    }
}

/// Checks that all that both sides send arrives: a lost wake-up is a deadlock, which the model checker reports.
fn passes(capacity: usize, to_node: &'static [u8], to_client: &'static [u8]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let area = Arc::new(Area::with_capacity(capacity));
        let alarms = Arc::new((Alarm::new(), Alarm::new()));
        let client = {
            let (area, alarms) = (area.clone(), alarms.clone());
            thread::spawn(move || run(ends(area, Side::Client), &alarms.1, &alarms.0, to_node, to_client))
        };
        run(ends(area, Side::Node), &alarms.0, &alarms.1, to_client, to_node);
        client.join().unwrap();
    });
}

#[test]
fn bytes_arrive_and_no_wake_up_is_lost() {
    passes(4, b"ab", b"");
    passes(4, b"", b"ab");
}

#[test]
fn both_ways_at_once() {
    passes(2, b"a", b"b");
}

#[test]
fn a_full_ring_wraps_and_its_writer_is_woken() {
    passes(2, b"abc", b"");
}
