//! The two rings of an area, seen from one side: a stream of bytes each way, and sleep.
//!
//! A ring's positions count bytes for ever, modulo 2^32; between head and tail lie the bytes that were written and not
//! yet read. The writer copies bytes in and then publishes them by a store of the tail (release); the reader loads the
//! tail (acquire), copies bytes out and frees their place by a store of the head. Frames may lie across the end of the
//! ring: the reader puts them together.
//!
//! *Sleep.* A side that will sleep sets bits in its word that name what it wants to be woken for: that there is
//! [`INPUT`], or [`ROOM`] for more bytes. Then it looks once more, and sleeps only if what it wants is still not there.
//! A side that has moved a tail or a head then looks at the other side's word; if a bit is set that this concerns, it
//! clears all bits, and only if they were still set does it make the system call that wakes. Between each side's store
//! and its load stands a sequentially consistent fence, so that one of the two sees the other's store: no wake-up is
//! lost, and a side that is awake is never woken.
//!
//! *Scribbling.* Impossible positions, with more bytes between them than the ring has, are reported as [`Scribbled`].
//! Anything else that the other process may write causes a stream of other bytes, a superfluous wake-up, or a wake-up
//! that this other process misses.

use crate::area::Area;
use crate::sync::{AtomicU32, Ordering, PlainArc as Arc, fence};
use std::fmt;

/// One of the two sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The data node.
    Node,
    /// The client.
    Client,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Node => Side::Client,
            Side::Client => Side::Node,
        }
    }
}

/// In a sleep word: wake me when there is something to read.
pub const INPUT: u32 = 1;
/// In a sleep word: wake me when there is room for more.
pub const ROOM: u32 = 2;

/// The other process has written impossible positions into the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scribbled;

impl fmt::Display for Scribbled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the shared memory holds positions that can't be")
    }
}

impl From<Scribbled> for std::io::Error {
    fn from(scribbled: Scribbled) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, scribbled.to_string())
    }
}

/// The result of a read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Bytes.
    pub bytes: usize,
    /// The other side sleeps and must be woken.
    pub wakes: bool,
}

/// Both ends of one side.
pub fn ends(area: Arc<Area>, side: Side) -> (Sender, Receiver) {
    (Sender { area: area.clone(), side, tail: 0, head: 0 }, Receiver { area, side, head: 0 })
}

/// The end that writes.
pub struct Sender {
    area: Arc<Area>,
    side: Side,
    /// Bytes ever written.
    tail: u32,
    /// The head as last loaded; the true one may have advanced since.
    head: u32,
}

impl Sender {
    /// Writes as many of these bytes as there is room for.
    ///
    /// # Errors
    /// The other side has scribbled.
    pub fn write(&mut self, bytes: &[u8]) -> Result<Moved, Scribbled> {
        let capacity = self.area.capacity();
        let control = self.area.control();
        let ring = control.written_by(self.side);
        let mut room = capacity - self.tail.wrapping_sub(self.head) as usize;
        if room < bytes.len() {
            let head = ring.head.0.load(Ordering::Acquire);
            let used = self.tail.wrapping_sub(head) as usize;
            room = capacity.checked_sub(used).ok_or(Scribbled)?;
            self.head = head;
        }
        let bytes = &bytes[..bytes.len().min(room)];
        if bytes.is_empty() {
            return Ok(Moved { bytes: 0, wakes: false });
        }
        let at = self.tail as usize & (capacity - 1);
        let (front, back) = bytes.split_at(bytes.len().min(capacity - at));
        self.area.copy_in(self.side, at, front);
        self.area.copy_in(self.side, 0, back);
        self.tail = self.tail.wrapping_add(bytes.len() as u32);
        ring.tail.0.store(self.tail, Ordering::Release);
        Ok(Moved { bytes: bytes.len(), wakes: must_wake(control.sleep_of(self.side.other()), INPUT) })
    }

    /// Whether there is room for at least a byte, or the other side has scribbled, which the next write will detect.
    pub fn has_room(&self) -> bool {
        let head = self.area.control().written_by(self.side).head.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(head) as usize != self.area.capacity()
    }
}

/// The end that reads.
pub struct Receiver {
    area: Arc<Area>,
    side: Side,
    /// Bytes ever read.
    head: u32,
}

impl Receiver {
    /// Reads as many bytes as are there and fit in `into`.
    ///
    /// # Errors
    /// The other side has scribbled.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Moved, Scribbled> {
        let capacity = self.area.capacity();
        let control = self.area.control();
        let writer = self.side.other();
        let ring = control.written_by(writer);
        let there = ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head) as usize;
        if there > capacity {
            return Err(Scribbled);
        }
        let count = there.min(into.len());
        if count == 0 {
            return Ok(Moved { bytes: 0, wakes: false });
        }
        let at = self.head as usize & (capacity - 1);
        let (front, back) = into[..count].split_at_mut(count.min(capacity - at));
        self.area.copy_out(writer, at, front);
        self.area.copy_out(writer, 0, back);
        self.head = self.head.wrapping_add(count as u32);
        ring.head.0.store(self.head, Ordering::Release);
        Ok(Moved { bytes: count, wakes: must_wake(control.sleep_of(writer), ROOM) })
    }

    /// Whether there is something to read, or the other side has scribbled, which the next read will detect.
    #[inline]
    pub fn has_input(&self) -> bool {
        let writer = self.side.other();
        self.area.control().written_by(writer).tail.0.load(Ordering::Acquire) != self.head
    }

    /// From now on the other side will wake this one for what `wants` names. False if that is there already: then this
    /// side is awake and must not sleep. `sender` is the other end of the same side.
    pub fn begin_sleep(&self, sender: &Sender, wants: u32) -> bool {
        let word = self.area.control().sleep_of(self.side);
        word.store(wants, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_there = wants & INPUT != 0 && self.has_input() || wants & ROOM != 0 && sender.has_room();
        if is_there {
            word.store(0, Ordering::Relaxed);
        }
        !is_there
    }

    /// This side is awake, whatever the cause, and will look at both rings before it sleeps again.
    pub fn end_sleep(&self) {
        self.area.control().sleep_of(self.side).store(0, Ordering::Relaxed);
    }
}

/// Whether the side with this word must be woken, because `what` is now true.
fn must_wake(word: &AtomicU32, what: u32) -> bool {
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed) & what != 0 && word.swap(0, Ordering::AcqRel) & what != 0
}
