//! A ring of bytes from one thread to another: frames go in at one end and come out at the other, whole and in order.
//!
//! ```text
//!          head (consumer's)        tail (producer's)
//!            v                        v
//!   |........|########################|..................|      not wrapped: frames from head to tail
//!
//!          tail          head                 mark
//!            v             v                    v
//!   |########|.............|####################|........|      wrapped: from head to mark, then from 0 to tail
//! ```
//! A frame never straddles the end. When the next frame does not fit between tail and the end but does before head, the
//! producer notes the tail as *mark* and continues at 0; the consumer continues at 0 when it has reached the mark. So
//! it always gets contiguous runs of whole frames, without looking at any of them. `head == tail` means empty; while
//! wrapped the tail stays below the head. All positions are multiples of 4, as frame lengths are.
//!
//! The producer copies a whole batch and then publishes it by one store of the tail (release). The mark is written
//! only when the ring is not wrapped and before the tail that makes it so; the consumer reads it only when it has seen
//! a tail below its head; the next one can't be written before the consumer has wrapped around.
//!
//! *Large frames.* A frame of at most half of the ring always finds room in time: when the ring is empty, either the
//! part before the position or the one behind it has that size. A larger one goes by the *side slot*, a buffer of one
//! frame that is made when first needed. The producer fills it only when the ring is empty, and puts nothing into the
//! ring until the consumer has emptied it; so order is kept and no memory changes hands.
//!
//! *Taking bytes.* A consumer that passes on bytes that need not be whole frames, such as a socket, may take any part
//! of a run: the published head is then rounded down to a multiple of 4, and the side slot is freed when all of it was
//! taken.
//!
//! *Want of space.* What does not fit stays where it was. A producer that will sleep with something left calls
//! [`Producer::want_space`], which sets the lowest bit of the head, and tries again before it sleeps. The consumer
//! publishes each new head by a swap, and if that clears the bit, it wakes the producer. Both are read-modify-write
//! operations of one word, so either the producer sees the new head or the consumer sees the bit.

use crate::sync::{Arc, AtomicU32, Ordering, OwnLine, SharedBytes};
use std::sync::OnceLock;
use vinga_wire::frame::FRAME_BYTES_MAX;

/// Bytes of a ring, as the node makes them: enough for the frames of several turns, and small enough for the
/// second-level cache.
pub const RING_BYTES: usize = 64 * 1024;

/// Bytes of the side slot. (The model checker follows each of them: it gets few.)
const SIDE_BYTES: usize = if cfg!(loom) { 64 } else { FRAME_BYTES_MAX };

/// In the head: the producer waits for space.
const WANTED: u32 = 1;

struct Shared {
    producer: OwnLine<ProducerLine>,
    /// Where the consumer reads next; lowest bit: [`WANTED`].
    head: OwnLine<AtomicU32>,
    bytes: SharedBytes,
    side: OnceLock<SharedBytes>,
}

/// What the producer writes and the consumer reads.
struct ProducerLine {
    /// Where the producer writes next.
    tail: AtomicU32,
    /// Where the frames before the end stop, while the ring is wrapped.
    mark: AtomicU32,
    /// Bytes of the frame in the side slot. The producer makes it non-zero, the consumer zero.
    side_length: AtomicU32,
}

/// A new ring of `capacity` bytes: a multiple of 8, more than 0, less than 2^31.
pub fn ring(capacity: usize) -> (Producer, Consumer) {
    assert!(capacity.is_multiple_of(8) && (8..1 << 31).contains(&capacity), "no capacity of a ring");
    let shared = Arc::new(Shared {
        producer: OwnLine(ProducerLine {
            tail: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            side_length: AtomicU32::new(0),
        }),
        head: OwnLine(AtomicU32::new(0)),
        bytes: SharedBytes::new(capacity),
        side: OnceLock::new(),
    });
    (
        Producer { shared: shared.clone(), tail: 0, head: 0, side_in_use: false },
        Consumer { shared, at: 0, side_taken: 0, front: Front::Nothing },
    )
}

/// The sending end.
pub struct Producer {
    shared: Arc<Shared>,
    /// Where the next frame goes.
    tail: usize,
    /// The head as last loaded; the true one may have advanced since.
    head: usize,
    /// The side slot was filled and has not been seen empty since.
    side_in_use: bool,
}

impl Producer {
    /// Takes as many whole frames from the front of `frames` as fit, publishes them and returns how many bytes they
    /// are.
    pub fn push(&mut self, frames: &[u8]) -> usize {
        if frames.is_empty() || !self.is_side_free() {
            return 0;
        }
        let before = self.tail;
        let mut taken = self.fill(frames);
        if taken < frames.len() {
            self.head = (self.shared.head.0.load(Ordering::Acquire) & !WANTED) as usize;
            taken += self.fill(&frames[taken..]);
        }
        if self.tail != before {
            self.shared.producer.0.tail.store(self.tail as u32, Ordering::Release);
        }
        if taken == 0 && self.head == self.tail {
            taken = self.fill_side(frames);
        }
        taken
    }

    /// Asks the consumer to wake this thread when it has made space. To be called when something is left, and before
    /// another [`Producer::push`]: if that too leaves something, a [`Consumer::release`] will return that the producer
    /// waits.
    pub fn want_space(&mut self) {
        self.shared.head.0.fetch_or(WANTED, Ordering::AcqRel);
    }

    /// Copies what fits, publishes nothing.
    fn fill(&mut self, frames: &[u8]) -> usize {
        let capacity = self.shared.bytes.len();
        let mut taken = 0;
        if self.head <= self.tail {
            taken = self.copy(frames, capacity - self.tail);
            let rest = &frames[taken..];
            // Before the head there is room for less than the head: the tail must not catch up with it.
            if rest.is_empty() || first_length(rest) >= self.head {
                return taken;
            }
            self.shared.producer.0.mark.store(self.tail as u32, Ordering::Relaxed);
            self.tail = 0;
        }
        taken + self.copy(&frames[taken..], self.head - self.tail - 4)
    }

    /// Copies the whole frames at the front of `frames` that fit into `space` bytes behind the tail.
    fn copy(&mut self, frames: &[u8], space: usize) -> usize {
        let count = whole_frames(frames, space);
        // SAFETY: bytes behind the tail that lie before the head or the end are the producer's until it publishes a
        // tail behind them; the head was read with acquire.
        unsafe { self.shared.bytes.write(self.tail, &frames[..count]) };
        self.tail += count;
        count
    }

    /// Puts the first frame into the side slot if it is too large for the ring. The ring is empty.
    fn fill_side(&mut self, frames: &[u8]) -> usize {
        let length = first_length(frames);
        if length <= self.shared.bytes.len() / 2 {
            return 0;
        }
        let side = self.shared.side.get_or_init(|| SharedBytes::new(SIDE_BYTES));
        // SAFETY: the slot is free, as `push` has seen with acquire; so it is the producer's.
        unsafe { side.write(0, &frames[..length]) };
        self.side_in_use = true;
        self.shared.producer.0.side_length.store(length as u32, Ordering::Release);
        length
    }

    fn is_side_free(&mut self) -> bool {
        if self.side_in_use {
            self.side_in_use = self.shared.producer.0.side_length.load(Ordering::Acquire) != 0;
        }
        !self.side_in_use
    }
}

/// The receiving end.
pub struct Consumer {
    shared: Arc<Shared>,
    /// The first byte that was not taken. The published head is this, rounded down to where a frame may begin.
    at: usize,
    /// Bytes of the frame in the side slot that were taken already.
    side_taken: usize,
    /// Where the bytes of the last peek are.
    front: Front,
}

/// Where bytes can be taken.
#[derive(Clone, Copy)]
enum Front {
    Nothing,
    /// The run from `at` to here. After a run up to the mark it continues at 0.
    Run {
        end: usize,
        is_wrapped: bool,
    },
    /// The rest of this many bytes in the side slot.
    Side {
        length: usize,
    },
}

impl Consumer {
    /// The next bytes, as many as lie in one piece; none if the ring is empty. For a consumer that always takes whole
    /// frames they are whole frames. [`Consumer::release`] says how many of them were taken.
    pub fn peek(&mut self) -> &[u8] {
        self.front = self.find_front();
        match self.front {
            Front::Nothing => &[],
            // SAFETY: from the head to the tail that was read with acquire all bytes are the consumer's, until it
            // publishes a head behind them, which takes `&mut self`.
            Front::Run { end, .. } => unsafe { self.shared.bytes.read(self.at, end) },
            Front::Side { length } => {
                let side = self.shared.side.get().expect("a slot with a length was made");
                // SAFETY: a length that was read with acquire makes the slot the consumer's until it has set it to 0,
                // which takes `&mut self`.
                unsafe { side.read(self.side_taken, length) }
            }
        }
    }

    /// Frees the space of the first `count` bytes of the last peek; returns whether the producer waits for it and must
    /// be woken.
    pub fn release(&mut self, count: usize) -> bool {
        match self.front {
            Front::Nothing => assert!(count == 0, "bytes can be released that are there"),
            Front::Run { end, is_wrapped } => {
                self.at += count;
                assert!(self.at <= end, "bytes can be released that are there");
                if self.at == end && is_wrapped {
                    self.at = 0;
                    self.front = Front::Nothing;
                }
            }
            Front::Side { length } => {
                self.side_taken += count;
                assert!(self.side_taken <= length, "bytes can be released that are there");
                if self.side_taken < length {
                    return false;
                }
                self.side_taken = 0;
                self.front = Front::Nothing;
                // The head stays, but its swap is where a waiting producer is detected.
                self.shared.producer.0.side_length.store(0, Ordering::Release);
            }
        }
        self.shared.head.0.swap((self.at & !3) as u32, Ordering::AcqRel) & WANTED != 0
    }

    fn find_front(&mut self) -> Front {
        let line = &self.shared.producer.0;
        let tail = line.tail.load(Ordering::Acquire) as usize;
        if tail == self.at {
            return match line.side_length.load(Ordering::Acquire) as usize {
                0 => Front::Nothing,
                length => Front::Side { length },
            };
        }
        if self.at > tail {
            let mark = line.mark.load(Ordering::Relaxed) as usize;
            if mark != self.at {
                return Front::Run { end: mark, is_wrapped: true };
            }
            self.at = 0;
        }
        Front::Run { end: tail, is_wrapped: false }
    }
}

/// Bytes of the frame at the front, which is whole: our own lanes hold nothing else.
fn first_length(frames: &[u8]) -> usize {
    let length = *frames.first_chunk::<4>().expect("a frame is longer than its length");
    u32::from_le_bytes(length) as usize
}

/// Bytes of the whole frames at the front of `frames` that fit into `space` bytes.
fn whole_frames(frames: &[u8], space: usize) -> usize {
    if frames.len() <= space {
        return frames.len();
    }
    let mut count = 0;
    loop {
        let next = count + first_length(&frames[count..]);
        if next > space {
            return count;
        }
        count = next;
    }
}
