//! The signals that a thread handled last: header and first bytes of each, for crash reports.

use alloc::boxed::Box;
use alloc::vec;
use vinga_base::time::Tick;
use vinga_wire::frame::{Frame, HEADER_BYTES};
use vinga_wire::{Address, Header, SignalNumber};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a signal that are kept.
pub const TRACE_BYTES: usize = 40;

/// Signals that are kept. A power of two.
pub const TRACE_ENTRIES: usize = 1024;

/// One signal: when its turn began, its length, its first bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TraceEntry {
    /// The turn's tick.
    pub tick: Tick,
    /// Bytes of the whole frame; 0 in an entry that was never written.
    pub length: u32,
    /// Its first bytes: the header, then as much of the body as fits.
    pub bytes: [u8; TRACE_BYTES],
}

/// A ring of the last [`TRACE_ENTRIES`] signals.
pub struct TraceRing {
    entries: Box<[TraceEntry]>,
    next: usize,
}

impl Default for TraceRing {
    fn default() -> Self {
        let empty = TraceEntry { tick: Tick(0), length: 0, bytes: [0; TRACE_BYTES] };
        TraceRing { entries: vec![empty; TRACE_ENTRIES].into_boxed_slice(), next: 0 }
    }
}

impl TraceRing {
    /// Records a signal.
    #[inline]
    pub fn record(&mut self, tick: Tick, frame: &Frame<'_>) {
        let entry = &mut self.entries[self.next % TRACE_ENTRIES];
        self.next += 1;
        entry.tick = tick;
        entry.length = frame.length() as u32;
        let (header, body) = entry.bytes.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(frame.header.as_bytes());
        // A constant length where possible: the compiler then copies in registers.
        match frame.body.first_chunk::<{ TRACE_BYTES - HEADER_BYTES }>() {
            Some(begin) => body.copy_from_slice(begin),
            None => {
                body.fill(0);
                body[..frame.body.len()].copy_from_slice(frame.body);
            }
        }
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TraceEntry> {
        self.last(TRACE_ENTRIES)
    }

    /// The last `count` entries, or all if there are fewer; oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &TraceEntry> {
        let first = self.next.saturating_sub(count.min(TRACE_ENTRIES));
        (first..self.next).map(|i| &self.entries[i % TRACE_ENTRIES])
    }
}

impl TraceEntry {
    /// Which signal it was.
    pub fn signal(&self) -> Option<SignalNumber> {
        let (header, _) = Header::ref_from_prefix(&self.bytes).expect("an entry holds a header");
        SignalNumber::from_number(header.number.get())
    }
}

impl core::fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (header, body) = Header::ref_from_prefix(&self.bytes).expect("an entry holds a header");
        let number = header.number.get();
        write!(
            f,
            "{:>12}µs {} -> {} ",
            self.tick.0,
            Address(header.sender.get()),
            Address(header.receiver.get())
        )?;
        match self.signal() {
            Some(signal) => write!(f, "{signal:?}")?,
            None => write!(f, "signal {number}")?,
        }
        write!(f, " ({} bytes, trace {})", self.length, header.trace.get())?;
        for byte in &body[..body.len().min((self.length as usize).saturating_sub(HEADER_BYTES))] {
            write!(f, " {byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::string::ToString;
    use vinga_base::NodeId;
    use vinga_wire::{BlockNumber, FrameWriter};

    #[test]
    fn keeps_the_last_ones() {
        let mut ring = TraceRing::default();
        let a = Address::new(NodeId(1), BlockNumber::Coordinator, 0);
        for i in 0..TRACE_ENTRIES as u32 + 3 {
            let mut bytes = Vec::new();
            FrameWriter::begin(&mut bytes, SignalNumber::EpochOrder, 0, a, a, i).bytes(&[1, 2, 3, 4]);
            ring.record(Tick(u64::from(i)), &Frame::first(&bytes).unwrap().unwrap());
        }
        let kept: Vec<_> = ring.iter().collect();
        assert_eq!(kept.len(), TRACE_ENTRIES);
        assert_eq!((kept[0].tick, kept[0].length), (Tick(3), 24));
        assert_eq!(
            kept[0].to_string(),
            "           3µs 1/Coordinator/0 -> 1/Coordinator/0 EpochOrder (24 bytes, trace 3) 01 02 03 04"
        );
    }
}
