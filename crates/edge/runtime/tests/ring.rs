//! The ring between two real threads: for all sizes, the bytes that come out are those that went in.
#![cfg(not(loom))]

use proptest::prelude::*;
use std::sync::Arc;
use std::thread;
use vinga_runtime::parker::{WakeEvent, thread_bit};
use vinga_runtime::ring::{Consumer, RING_BYTES, ring};
use vinga_wire::frame::{FRAME_BYTES_MAX, Frames, HEADER_BYTES};

/// A frame whose every word contains its number.
fn frame(number: u32, words: usize) -> Vec<u8> {
    let mut frame = number.to_le_bytes().repeat(HEADER_BYTES / 4 + words);
    let length = frame.len() as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Sends frames of these body sizes through a ring, in batches of this many; both sides yield when they can't continue,
/// so that it also works on one CPU.
fn passes(capacity: usize, words: &[usize], batch: usize) {
    passes_to(capacity, words, batch, |consumer, own, other| take_frames(consumer, words, own, other));
}

fn passes_to(
    capacity: usize,
    words: &[usize],
    batch: usize,
    receive: impl FnOnce(Consumer, &WakeEvent, &WakeEvent),
) {
    let (mut producer, consumer) = ring(capacity);
    let events = Arc::new((WakeEvent::new().unwrap(), WakeEvent::new().unwrap()));
    let sender = thread::spawn({
        let (words, events) = (words.to_vec(), events.clone());
        move || {
            let mut number = 0;
            for batch in words.chunks(batch) {
                let mut lane = Vec::new();
                for &words in batch {
                    lane.extend_from_slice(&frame(number, words));
                    number += 1;
                }
                while !lane.is_empty() {
                    let mut taken = producer.push(&lane);
                    if taken < lane.len() {
                        producer.want_space();
                        taken += producer.push(&lane[taken..]);
                    }
                    lane.drain(..taken);
                    events.1.signal(thread_bit(0));
                    while !lane.is_empty() && events.0.take() == 0 {
                        thread::yield_now();
                    }
                }
            }
        }
    });
    receive(consumer, &events.1, &events.0);
    sender.join().unwrap();
}

/// Takes whole frames, as a thread does that handles them.
fn take_frames(mut consumer: Consumer, words: &[usize], own: &WakeEvent, other: &WakeEvent) {
    let mut number = 0;
    while (number as usize) < words.len() {
        if own.take() == 0 {
            thread::yield_now();
            continue;
        }
        loop {
            let run = consumer.peek();
            if run.is_empty() {
                break;
            }
            for one in Frames(run) {
                let expected = frame(number, words[number as usize]);
                assert_eq!(one.body, &expected[HEADER_BYTES..]);
                number += 1;
            }
            let count = run.len();
            if consumer.release(count) {
                other.signal(thread_bit(1));
            }
        }
    }
}

/// Takes pieces of this many bytes, repeated, as a socket does.
fn take_pieces(mut consumer: Consumer, all: &[u8], pieces: &[usize], own: &WakeEvent, other: &WakeEvent) {
    let mut pieces = pieces.iter().cycle();
    let mut received = 0;
    while received < all.len() {
        if own.take() == 0 {
            thread::yield_now();
            continue;
        }
        loop {
            let run = consumer.peek();
            let count = run.len().min(*pieces.next().unwrap());
            assert!(run[..count] == all[received..][..count], "behind byte {received}");
            if count == 0 {
                break;
            }
            received += count;
            if consumer.release(count) {
                other.signal(thread_bit(1));
            }
        }
    }
    assert!(consumer.peek().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn frames_pass_whole_and_in_order(
        capacity in prop::sample::select(vec![64usize, 256, 1024, 4096]),
        words in prop::collection::vec(prop_oneof![9 => 0usize..30, 1 => 0usize..3000], 1..800),
        batch in 1usize..50,
    ) {
        passes(capacity, &words, batch);
    }

    #[test]
    fn bytes_pass_in_order_whatever_a_socket_takes(
        capacity in prop::sample::select(vec![64usize, 256, 1024, 4096]),
        words in prop::collection::vec(prop_oneof![9 => 0usize..30, 1 => 0usize..3000], 1..400),
        batch in 1usize..50,
        pieces in prop::collection::vec(1usize..700, 1..20),
    ) {
        let all: Vec<u8> = (0..).zip(&words).flat_map(|(number, &words)| frame(number, words)).collect();
        passes_to(capacity, &words, batch, |consumer, own, other| {
            take_pieces(consumer, &all, &pieces, own, other);
        });
    }
}

#[test]
fn the_largest_frames_pass() {
    let largest = (FRAME_BYTES_MAX - HEADER_BYTES) / 4;
    let words: Vec<usize> = (0..600).map(|n| if n % 7 == 0 { largest - n } else { n * 13 % 9000 }).collect();
    passes(RING_BYTES, &words, 5);
}
