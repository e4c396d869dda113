//! A single-producer single-consumer ring of frames between two threads.
//!
//! 16 KiB of bytes; `tail` (written by the producer) and `head` (written by the consumer) count bytes ever passed,
//! modulo 2^32, and are on cache lines of their own. Each side keeps its own position and a copy of the other's, and
//! reads the other's line only when the copy indicates full or empty. The producer appends frames behind `tail` in
//! place and publishes them together, so the line of `tail` changes hands once a batch. A frame is never cut: where it
//! does not fit before the end of the memory, a filler (a length with the top bit set, counting the skipped bytes)
//! leads back to the start.
//!
//! Sleeping: the consumer sets `sleeping`, looks at `tail` once more, and sleeps only if nothing has arrived; the
//! producer publishes, then looks at `sleeping`, and the side that clears it wakes. A full fence between the two steps
//! on both sides makes it impossible that both miss each other.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use crate::models::frame::{self, Body, Frame, Header};

const RING_BYTES: u32 = 16 * 1024;
/// Set in a length: not a frame but this many bytes to skip.
const FILLER: u32 = 1 << 31;

#[repr(align(64))]
struct OwnLine<T>(T);

#[repr(align(64))]
struct Bytes(UnsafeCell<[u8; RING_BYTES as usize]>);

struct Shared {
    tail: OwnLine<AtomicU32>,
    head: OwnLine<AtomicU32>,
    sleeping: OwnLine<AtomicBool>,
    bytes: Bytes,
}

// SAFETY: between `head` and `tail` only the consumer touches the bytes, elsewhere only the producer; the
// acquire/release pairs on the two hand the ranges over.
unsafe impl Sync for Shared {}

/// The sending end.
pub(crate) struct Producer {
    shared: Arc<Shared>,
    written: u32,
    head_seen: u32,
}

/// The receiving end.
pub(crate) struct Consumer {
    shared: Arc<Shared>,
    read: u32,
}

/// A new ring.
pub(crate) fn ring() -> (Producer, Consumer) {
    let shared = Arc::new(Shared {
        tail: OwnLine(AtomicU32::new(0)),
        head: OwnLine(AtomicU32::new(0)),
        sleeping: OwnLine(AtomicBool::new(false)),
        bytes: Bytes(UnsafeCell::new([0; RING_BYTES as usize])),
    });
    (Producer { shared: Arc::clone(&shared), written: 0, head_seen: 0 }, Consumer { shared, read: 0 })
}

impl Producer {
    /// Writes a frame in place, not yet visible to the consumer; false when there is no room.
    #[inline]
    pub(crate) fn append(&mut self, header: Header, body: &Body, payload: &[u8]) -> bool {
        let to_end = RING_BYTES - self.written % RING_BYTES;
        let skipped = if header.length > to_end { to_end } else { 0 };
        if !self.has_room(skipped + header.length) {
            return false;
        }
        if skipped > 0 {
            self.claim(4).copy_from_slice(&(FILLER | skipped).to_le_bytes());
            self.written = self.written.wrapping_add(skipped);
        }
        frame::write(self.claim(header.length), header, body, payload);
        self.written = self.written.wrapping_add(header.length);
        true
    }

    /// Makes all appended frames visible. True when the consumer sleeps and the caller must wake it.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        self.shared.tail.0.store(self.written, Ordering::Release);
        fence(Ordering::SeqCst);
        self.shared.sleeping.0.load(Ordering::Relaxed)
            && self.shared.sleeping.0.swap(false, Ordering::Relaxed)
    }

    fn has_room(&mut self, bytes: u32) -> bool {
        let fits = |head: u32, written: u32| written.wrapping_sub(head) + bytes <= RING_BYTES;
        if fits(self.head_seen, self.written) {
            return true;
        }
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        fits(self.head_seen, self.written)
    }

    /// The next `length` bytes behind the written ones; they do not wrap and `has_room` has returned true.
    #[inline(always)]
    fn claim(&mut self, length: u32) -> &mut [u8] {
        let offset = self.written % RING_BYTES;
        assert!(offset + length <= RING_BYTES, "frames do not wrap");
        // SAFETY: the range lies within the memory (asserted) and outside head..tail (`has_room`), so the
        // consumer does not touch it; `&mut self` is the only producer.
        unsafe {
            let start = self.shared.bytes.0.get().cast::<u8>().add(offset as usize);
            std::slice::from_raw_parts_mut(start, length as usize)
        }
    }
}

impl Consumer {
    /// Passes all published frames to `handler`, then frees their room. Returns how many there were.
    #[inline]
    pub(crate) fn drain(&mut self, mut handler: impl FnMut(&Frame<'_>)) -> u64 {
        let tail = self.shared.tail.0.load(Ordering::Acquire);
        let mut frames = 0;
        while self.read != tail {
            let rest = self.readable(tail);
            let length = u32::from_le_bytes(*rest.first_chunk().expect("frames have a length"));
            if length & FILLER == 0 {
                handler(&Frame::read(rest));
                frames += 1;
            }
            self.read = self.read.wrapping_add(length & !FILLER);
        }
        if frames > 0 {
            self.shared.head.0.store(self.read, Ordering::Release);
        }
        frames
    }

    /// Announces sleep. True when nothing has arrived and the caller may sleep until it is woken.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        self.shared.sleeping.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.shared.tail.0.load(Ordering::Acquire) == self.read {
            return true;
        }
        self.shared.sleeping.0.store(false, Ordering::Relaxed);
        false
    }

    /// The published bytes from the read position to the tail or the end of the memory.
    #[inline(always)]
    fn readable(&self, tail: u32) -> &[u8] {
        let offset = self.read % RING_BYTES;
        let length = tail.wrapping_sub(self.read).min(RING_BYTES - offset);
        // SAFETY: the range lies within the memory and within head..tail: the acquire load of the tail
        // made it visible, and the producer leaves it alone until the head has passed it.
        unsafe {
            let start = self.shared.bytes.0.get().cast::<u8>().add(offset as usize);
            std::slice::from_raw_parts(start, length as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_order_across_the_end_of_the_memory() {
        let (mut producer, mut consumer) = ring();
        let (mut sent, mut received) = (0u64, 0u64);
        for round in 0..5_000usize {
            let payload = vec![round as u8; 4 * (round % 40)];
            while producer.append(Header::new(1, 0, 0, payload.len()), &Body([sent, 0, 0, 0, 0]), &payload) {
                sent += 1;
                if sent % 7 == 0 {
                    break;
                }
            }
            producer.publish();
            consumer.drain(|frame| {
                assert_eq!(frame.body.0[0], received);
                received += 1;
            });
        }
        assert_eq!(sent, received);
    }

    #[test]
    fn a_full_ring_refuses_until_it_is_drained() {
        let (mut producer, mut consumer) = ring();
        let header = Header::new(1, 0, 0, 0);
        let mut count = 0;
        while producer.append(header, &Body([0; 5]), &[]) {
            count += 1;
        }
        assert_eq!(count, u64::from(RING_BYTES / header.length));
        producer.publish();
        assert_eq!(consumer.drain(|_| {}), count);
        assert!(producer.append(header, &Body([0; 5]), &[]));
    }

    #[test]
    fn two_threads_agree_and_nobody_sleeps_through() {
        let (mut producer, mut consumer) = ring();
        let count = 200_000u64;
        let receiver = std::thread::spawn(move || {
            let mut next = 0;
            while next < count {
                let before = next;
                consumer.drain(|frame| {
                    assert_eq!(frame.body.0, [next; 5]);
                    next += 1;
                });
                if next == before && consumer.prepare_sleep() {
                    std::thread::park();
                }
            }
        });
        for i in 0..count {
            while !producer.append(Header::new(1, 0, 0, 0), &Body([i; 5]), &[]) {
                std::thread::yield_now();
            }
            if producer.publish() {
                receiver.thread().unpark();
            }
        }
        receiver.join().expect("every signal arrived in order");
    }

    #[test]
    fn sleep_is_refused_when_something_has_come() {
        let (mut producer, mut consumer) = ring();
        assert!(consumer.prepare_sleep());
        producer.append(Header::new(1, 0, 0, 0), &Body([0; 5]), &[]);
        assert!(producer.publish(), "the consumer sleeps");
        assert!(!producer.publish(), "one wake-up is enough");
        assert!(!consumer.prepare_sleep());
    }
}
