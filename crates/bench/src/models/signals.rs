//! A signal through the thread's own queue against a direct call to the same handler.
//!
//! The queue is a pair of byte buffers: handlers append whole frames to one while the other is drained, then they are
//! swapped. So a frame never wraps, is never copied, and the borrow checker sees that a handler reads one buffer and
//! writes the other.

use std::hint::black_box;
use std::time::Instant;

use crate::figure::Figure;
use crate::models::frame::{self, Body, Frame, Header};
use crate::models::measuring::{Scale, measure};

const REPETITIONS: u32 = 9;
/// Signals that a turn finds in the queue: about as many as one read from a busy socket.
const BATCH: u64 = 32;
const QUEUE_BYTES: usize = 16 * 1024;

/// Runs the measurement.
pub fn run(scale: Scale) -> Vec<Figure> {
    let rounds = scale.pick(3_000, 60_000);
    let direct = |name, payload: &'static [u8]| {
        let mut block = Block::default();
        measure(name, "ns", REPETITIONS, || per_signal(rounds, || direct_round(&mut block, payload)))
    };
    let queued = |name, payload: &'static [u8]| {
        let mut block = Block::default();
        let mut queue = Queue::new();
        measure(name, "ns", REPETITIONS, || {
            per_signal(rounds, || queued_round(&mut block, &mut queue, payload))
        })
    };
    let chained = |name| {
        let mut block = Block::default();
        let mut queue = Queue::new();
        measure(name, "ns", REPETITIONS, || per_signal(rounds, || chained_round(&mut block, &mut queue)))
    };
    vec![
        queued("spike.signal_local", &[]),
        queued("spike.signal_local_payload100", &[7; 100]),
        chained("spike.signal_local_chain"),
        direct("spike.signal_direct", &[]),
        direct("spike.signal_direct_payload100", &[7; 100]),
    ]
}

fn per_signal(rounds: u64, mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..rounds {
        round();
    }
    start.elapsed().as_nanos() as f64 / (rounds * BATCH) as f64
}

/// Numbers of the signals that the block understands, in turn.
const NUMBERS: [u16; 4] = [LOOKUP, PREPARE, COMMIT, FORWARD];
const LOOKUP: u16 = 1;
const PREPARE: u16 = 2;
const COMMIT: u16 = 3;
const FORWARD: u16 = 4;

fn number_of(i: u64) -> u16 {
    // The last of the four sends onward, which only the chain uses.
    NUMBERS[i as usize % 3]
}

fn body_of(i: u64) -> Body {
    Body(black_box([i, 2, 3, 4, 5]))
}

/// The state that handlers change.
#[derive(Default)]
struct Block {
    lookups: u64,
    prepared: [u64; 2],
    committed: u64,
    payload_bytes: u64,
}

impl Block {
    #[inline(never)]
    fn on_lookup(&mut self, header: &Header, body: &Body, payload: &[u8]) {
        self.lookups += body.0[0] ^ body.0[4] ^ u64::from(header.sender);
        self.payload_bytes += payload.len() as u64 + payload.last().map_or(0, |&byte| u64::from(byte));
    }

    #[inline(never)]
    fn on_prepare(&mut self, header: &Header, body: &Body, payload: &[u8]) {
        self.prepared[(body.0[0] & 1) as usize] += body.0[1] + u64::from(header.view);
        self.payload_bytes += payload.len() as u64;
    }

    #[inline(never)]
    fn on_commit(&mut self, header: &Header, body: &Body, payload: &[u8]) {
        self.committed = self.committed.max(body.0[2] + u64::from(header.receiver));
        self.payload_bytes += payload.len() as u64;
    }

    /// Sends the same signal on until its count has run down.
    #[inline(never)]
    fn on_forward(&mut self, header: &Header, body: &Body, out: &mut Buffer) {
        self.lookups += 1;
        let mut next = *body;
        if next.0[0] > 1 {
            next.0[0] -= 1;
            out.append(*header, &next, &[]);
        }
    }

    /// The router's match. An unknown number is dropped, as the node does after logging.
    #[inline(always)]
    fn dispatch(&mut self, header: &Header, body: &Body, payload: &[u8], out: &mut Buffer) {
        match header.number {
            LOOKUP => self.on_lookup(header, body, payload),
            PREPARE => self.on_prepare(header, body, payload),
            COMMIT => self.on_commit(header, body, payload),
            FORWARD => self.on_forward(header, body, out),
            _ => {}
        }
    }
}

/// Consecutive frames in memory that was allocated once.
struct Buffer {
    bytes: Box<[u8]>,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; QUEUE_BYTES].into(), end: 0 }
    }

    /// Writes a frame at its final place; false when there is no room.
    #[inline(always)]
    fn append(&mut self, header: Header, body: &Body, payload: &[u8]) -> bool {
        let end = self.end + header.length as usize;
        let Some(place) = self.bytes.get_mut(self.end..end) else { return false };
        frame::write(place, header, body, payload);
        self.end = end;
        true
    }
}

/// The thread's own queue.
struct Queue {
    filling: Buffer,
    draining: Buffer,
}

impl Queue {
    fn new() -> Self {
        Self { filling: Buffer::new(), draining: Buffer::new() }
    }

    /// Passes every queued signal to the block, including those that are sent meanwhile.
    fn drain(&mut self, block: &mut Block) {
        while self.filling.end > 0 {
            std::mem::swap(&mut self.filling, &mut self.draining);
            let mut rest = &self.draining.bytes[..self.draining.end];
            while !rest.is_empty() {
                let frame = Frame::read(rest);
                block.dispatch(&frame.header, &frame.body, frame.payload, &mut self.filling);
                rest = &rest[frame.header.length as usize..];
            }
            self.draining.end = 0;
        }
    }
}

fn queued_round(block: &mut Block, queue: &mut Queue, payload: &[u8]) {
    for i in 0..BATCH {
        let header = Header::new(number_of(i), 1, 2, payload.len());
        assert!(queue.filling.append(header, &body_of(i), payload), "a batch fits the queue");
    }
    queue.drain(block);
    black_box(block);
}

fn chained_round(block: &mut Block, queue: &mut Queue) {
    let first = Body([BATCH, 0, 0, 0, 0]);
    assert!(queue.filling.append(Header::new(FORWARD, 1, 2, 0), &first, &[]), "the queue was empty");
    queue.drain(block);
    black_box(block);
}

fn direct_round(block: &mut Block, payload: &[u8]) {
    let mut unused = Buffer { bytes: Box::default(), end: 0 };
    for i in 0..BATCH {
        let header = Header::new(number_of(i), 1, 2, payload.len());
        block.dispatch(&header, &body_of(i), payload, &mut unused);
    }
    black_box(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_and_direct_signals_do_the_same() {
        let (mut queued, mut direct) = (Block::default(), Block::default());
        queued_round(&mut queued, &mut Queue::new(), &[7; 100]);
        direct_round(&mut direct, &[7; 100]);
        assert_eq!(queued.lookups, direct.lookups);
        assert_eq!(queued.prepared, direct.prepared);
        assert_eq!(queued.committed, direct.committed);
        assert_eq!(queued.payload_bytes, direct.payload_bytes);
        assert!(queued.payload_bytes >= 32 * 100);
    }

    #[test]
    fn a_chain_runs_to_its_end() {
        let mut block = Block::default();
        chained_round(&mut block, &mut Queue::new());
        assert_eq!(block.lookups, BATCH);
    }

    #[test]
    fn a_full_buffer_refuses() {
        let mut buffer = Buffer::new();
        let header = Header::new(LOOKUP, 0, 0, 0);
        let fits = QUEUE_BYTES / header.length as usize;
        for _ in 0..fits {
            assert!(buffer.append(header, &Body([0; 5]), &[]));
        }
        assert!(!buffer.append(header, &Body([0; 5]), &[]));
        assert_eq!(buffer.end, fits * header.length as usize);
    }
}
