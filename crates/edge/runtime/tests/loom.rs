//! The ring, the relay that is made of it and the wake-up event under a model checker: every interleaving of two
//! threads, within a bound on preemptions, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vinga-runtime --release --test loom`; the bound is 3 preemptions, which takes
//! seconds, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use vinga_runtime::parker::{MESSAGE, WakeEvent, thread_bit};
use vinga_runtime::ring::{Consumer, Producer, ring};

/// A frame of `length` bytes: only the length matters to a ring; the rest distinguishes frames.
fn frame(length: usize, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; length];
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    frame
}

/// Sends `frames` as a worker does: what does not fit stays in the lane; it sleeps when there is no space.
fn produce(mut producer: Producer, own: &WakeEvent, other: &WakeEvent, frames: &[u8]) {
    let mut lane = frames;
    while !lane.is_empty() {
        let mut taken = producer.push(lane);
        if taken < lane.len() {
            producer.want_space();
            taken += producer.push(&lane[taken..]);
        }
        lane = &lane[taken..];
        if taken > 0 {
            other.signal(thread_bit(0));
        }
        if !lane.is_empty() && own.take() == 0 {
            sleep(own);
        }
    }
}

/// Takes everything that is there.
const ALL: &[usize] = &[usize::MAX];

/// Receives until all of `frames` are there, in their order; sleeps while there is nothing. It takes this many bytes at
/// a time (`pieces`, repeated), as a send thread does, or [`ALL`], as a thread does that handles frames.
fn consume(mut consumer: Consumer, own: &WakeEvent, other: &WakeEvent, mut frames: &[u8], pieces: &[usize]) {
    let mut pieces = pieces.iter().cycle();
    while !frames.is_empty() {
        if own.take() != 0 {
            loop {
                let run = consumer.peek();
                let count = run.len().min(*pieces.next().expect("the pieces repeat"));
                assert_eq!(run[..count], frames[..count]);
                if count == 0 {
                    break;
                }
                frames = &frames[count..];
                if consumer.release(count) {
                    other.signal(thread_bit(1));
                }
            }
        } else {
            sleep(own);
        }
    }
}

fn sleep(own: &WakeEvent) {
    if own.begin_sleep() {
        own.alarm().wait();
        own.end_sleep();
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(body);
}

/// Checks that all that one thread sends reaches the other; both sleep whenever they have nothing to do. A lost wake-up
/// is a deadlock, which the model checker reports.
fn passes(capacity: usize, frames: Vec<u8>) {
    passes_to(capacity, frames, ALL);
}

fn passes_to(capacity: usize, frames: Vec<u8>, pieces: &'static [usize]) {
    model(move || {
        let (producer, consumer) = ring(capacity);
        let events = Arc::new((WakeEvent::new().unwrap(), WakeEvent::new().unwrap()));
        let sending = {
            let (events, frames) = (events.clone(), frames.clone());
            thread::spawn(move || produce(producer, &events.0, &events.1, &frames))
        };
        consume(consumer, &events.1, &events.0, &frames, pieces);
        sending.join().unwrap();
    });
}

#[test]
fn frames_arrive_and_no_wake_up_is_lost() {
    passes(64, [frame(20, 1), frame(24, 2)].concat());
}

#[test]
fn a_full_ring_wraps_and_its_producer_is_woken() {
    passes(32, [frame(12, 1), frame(12, 2), frame(16, 3)].concat());
}

#[test]
fn large_frames_go_by_the_side_slot() {
    passes(16, [frame(8, 1), frame(20, 2), frame(24, 3), frame(8, 4)].concat());
}

/// A relay to a send thread: a socket takes any number of bytes, also of a large frame.
#[test]
fn bytes_are_passed_on_in_pieces() {
    passes_to(32, [frame(12, 1), frame(12, 2), frame(16, 3)].concat(), &[13, 6]);
    passes_to(16, [frame(8, 1), frame(20, 2), frame(8, 3)].concat(), &[7, 15]);
}

/// Two producers signal one wake-up event; the owner misses neither.
#[test]
fn two_producers_one_sleeper() {
    model(|| {
        let event = Arc::new(WakeEvent::new().unwrap());
        let rings: Vec<Consumer> = (0..2)
            .map(|thread| {
                let (mut producer, consumer) = ring(32);
                let event = event.clone();
                thread::spawn(move || {
                    assert_eq!(producer.push(&frame(8, 1)), 8);
                    event.signal(thread_bit(thread));
                });
                consumer
            })
            .collect();
        let mut rings = rings;
        let mut arrived = 0;
        while arrived < 2 {
            let bits = event.take();
            for thread in vinga_runtime::parker::threads_of(bits, 2) {
                let ring = &mut rings[usize::from(thread)];
                assert_eq!(ring.peek(), frame(8, 1));
                assert!(!ring.release(8));
                arrived += 1;
            }
            if bits == 0 {
                sleep(&event);
            }
        }
    });
}

/// A message is posted to two threads, and the one that has read it sends a frame to the other, which empties the ring
/// for any reason: whenever it finds the frame there, it has seen the message.
#[test]
fn a_message_is_seen_before_a_frame_that_was_sent_after_it() {
    model(|| {
        let events = Arc::new((WakeEvent::new().unwrap(), WakeEvent::new().unwrap()));
        let (mut producer, mut consumer) = ring(32);
        let posting = {
            let events = events.clone();
            thread::spawn(move || {
                events.0.signal(MESSAGE);
                events.1.signal(MESSAGE);
            })
        };
        let sending = {
            let events = events.clone();
            thread::spawn(move || {
                if events.1.take() & MESSAGE != 0 {
                    producer.push(&frame(8, 1));
                    events.0.signal(thread_bit(1));
                }
            })
        };
        let has_read = events.0.take() & MESSAGE != 0;
        if !consumer.peek().is_empty() {
            assert!(has_read || events.0.has_message(), "the frame arrived without the message");
        }
        posting.join().unwrap();
        sending.join().unwrap();
    });
}
