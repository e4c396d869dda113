//! A hop: a signal from one thread to another through a ring.
//!
//! Busy: the sender appends as fast as the ring takes, the receiver spins and drains; one signal or 32 a publication.
//! Asleep: two threads answer each other and sleep in between, so that each hop includes a wake-up; half a round trip
//! is one hop.

use std::hint::{black_box, spin_loop};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::figure::Figure;
use crate::models::frame::{Body, Header};
use crate::models::machine::{bind_to, two_cpus};
use crate::models::measuring::{Scale, measure};
use crate::models::ring::{Consumer, Producer, ring};

const REPETITIONS: u32 = 7;

/// Runs the measurements.
pub fn run(scale: Scale) -> Vec<Figure> {
    let signals = scale.pick(200_000, 3_000_000);
    let round_trips = scale.pick(1_000, 5_000);
    vec![
        measure("spike.hop_busy", "ns", REPETITIONS, || busy(signals, 32)),
        measure("spike.hop_busy_single", "ns", REPETITIONS, || busy(signals, 1)),
        measure("spike.hop_asleep", "ns", REPETITIONS, || asleep_parked(round_trips)),
        measure("spike.hop_asleep_eventfd", "ns", REPETITIONS, || asleep_polling(round_trips)),
    ]
}

fn header() -> Header {
    Header::new(1, 1, 2, 0)
}

/// Spins a little, then yields the CPU, for machines with one CPU.
struct Spinner(u32);

impl Spinner {
    fn spin(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(4096) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Nanoseconds a signal, from the first sent to the last received.
fn busy(signals: u64, batch: u64) -> f64 {
    let (mut producer, mut consumer) = ring();
    let (cpu_a, cpu_b) = two_cpus();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            bind_to(&[cpu_b]);
            let (mut received, mut sum, mut spinner) = (0, 0u64, Spinner(0));
            while received < signals {
                match consumer.drain(|frame| sum = sum.wrapping_add(frame.body.0[0] ^ frame.body.0[4])) {
                    0 => spinner.spin(),
                    frames => received += frames,
                }
            }
            black_box(sum);
            Instant::now()
        });
        let sender = scope.spawn(move || {
            bind_to(&[cpu_a]);
            let start = Instant::now();
            let mut spinner = Spinner(0);
            for i in 0..signals {
                let body = Body(black_box([i, 2, 3, 4, 5]));
                while !producer.append(header(), &body, &[]) {
                    producer.publish();
                    spinner.spin();
                }
                if i % batch == batch - 1 {
                    producer.publish();
                }
            }
            producer.publish();
            start
        });
        let start = sender.join().expect("the sender only sends");
        let end = receiver.join().expect("the receiver only receives");
        (end - start).as_nanos() as f64 / signals as f64
    })
}

fn send(producer: &mut Producer, body: &Body) -> bool {
    assert!(producer.append(header(), body, &[]), "one signal is under way at a time");
    producer.publish()
}

/// Waits for one signal, calling `sleep` whenever nothing is there.
fn receive(consumer: &mut Consumer, mut sleep: impl FnMut()) -> Body {
    let mut body = None;
    loop {
        consumer.drain(|frame| body = Some(frame.body));
        if let Some(body) = body {
            return body;
        }
        if consumer.prepare_sleep() {
            sleep();
        }
    }
}

/// The two ends of a thread in a ping-pong, and how it sleeps and wakes the other.
fn answer(
    signals: u64,
    mut from: Consumer,
    mut to: Producer,
    mut sleep: impl FnMut(),
    mut wake: impl FnMut(),
) {
    for _ in 0..signals {
        let body = receive(&mut from, &mut sleep);
        if send(&mut to, &body) {
            wake();
        }
    }
}

fn ask(
    signals: u64,
    mut to: Producer,
    mut from: Consumer,
    mut sleep: impl FnMut(),
    mut wake: impl FnMut(),
) -> f64 {
    let start = Instant::now();
    for i in 0..signals {
        if send(&mut to, &Body([i; 5])) {
            wake();
        }
        assert_eq!(receive(&mut from, &mut sleep).0[0], i, "the answer belongs to the question");
    }
    start.elapsed().as_nanos() as f64 / (2 * signals) as f64
}

/// Sleep is the standard library's parking, which is a futex on Linux.
fn asleep_parked(round_trips: u64) -> f64 {
    let ((to_b, from_a), (to_a, from_b)) = (ring(), ring());
    let (cpu_a, cpu_b) = two_cpus();
    let (tell_b_who_a_is, who_is_a) = std::sync::mpsc::channel::<Thread>();
    thread::scope(|scope| {
        let b = scope.spawn(move || {
            bind_to(&[cpu_b]);
            let a = who_is_a.recv().expect("a sends its handle");
            answer(round_trips, from_a, to_a, thread::park, || a.unpark());
        });
        let b = b.thread().clone();
        let a = scope.spawn(move || {
            bind_to(&[cpu_a]);
            tell_b_who_a_is.send(thread::current()).expect("b receives");
            ask(round_trips, to_b, from_b, thread::park, || b.unpark())
        });
        a.join().expect("a only asks")
    })
}

/// Sleep is a poll on an event descriptor, beside which a thread can poll its sockets.
fn asleep_polling(round_trips: u64) -> f64 {
    let ((to_b, from_a), (to_a, from_b)) = (ring(), ring());
    let (cpu_a, cpu_b) = two_cpus();
    let (wake_up_a, wake_up_b) = (WakeUp::new(), WakeUp::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            bind_to(&[cpu_b]);
            answer(round_trips, from_a, to_a, || wake_up_b.wait(), || wake_up_a.raise());
        });
        let a = scope.spawn(|| {
            bind_to(&[cpu_a]);
            ask(round_trips, to_b, from_b, || wake_up_a.wait(), || wake_up_b.raise())
        });
        a.join().expect("a only asks")
    })
}

/// An event descriptor.
struct WakeUp(OwnedFd);

impl WakeUp {
    fn new() -> Self {
        // SAFETY: a new descriptor, without another owner; the result is checked.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        assert!(descriptor >= 0, "a process has room for four descriptors");
        // SAFETY: the descriptor is open and ours.
        Self(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, as the call wants.
        let written = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        assert_eq!(written, 8, "an event counter does not overflow here");
    }

    fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut count = [0u8; 8];
        // SAFETY: one valid `pollfd`, and eight writable bytes. An interrupted or empty poll only means
        // that the caller looks at its ring once more.
        unsafe {
            libc::poll(&raw mut poll, 1, -1);
            libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_delivers() {
        assert!(busy(10_000, 1) > 0.0);
        assert!(busy(10_000, 32) > 0.0);
        assert!(asleep_parked(200) > 0.0);
        assert!(asleep_polling(200) > 0.0);
    }

    #[test]
    fn a_raised_wake_up_does_not_wait() {
        let wake_up = WakeUp::new();
        wake_up.raise();
        wake_up.raise();
        wake_up.wait();
    }
}
