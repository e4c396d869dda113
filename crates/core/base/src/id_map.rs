//! A map from 64-bit ids to pool indexes that allocates all its memory when it is created.
//!
//! Open addressing with linear probing and backward-shift deletion, so there are no tombstones and no rehash. The hash
//! is a multiplication (Fibonacci hashing): we choose the ids ourselves, and an API node that picked bad ones would
//! only slow down its own transactions, by the little that a long probe sequence costs.
//!
//! API nodes number their transactions one after the other, and those of a batch arrive together. So the last bits of
//! an id are not hashed: [`RUN`] consecutive ids have their homes in consecutive places, four in each cache line. That
//! spares cache lines, and pages for the processor's address translation. Longer runs would make longer probe sequences
//! where two of them overlap.

use crate::prefetch::prefetch;
use alloc::vec;
use alloc::vec::Vec;

/// Places in a cache line.
const LINE: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 2;

/// Consecutive ids with consecutive homes.
const RUN: usize = 1 << RUN_BITS;
const RUN_BITS: u32 = 6;

/// A cache line of places: ids, each with its index. The id 0 marks an empty place.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([(u64, u32); LINE]);

const _: () = assert!(size_of::<Line>() == 64, "as many places as a cache line has room for");

/// Maps ids to pool indexes. The id 0 marks an empty place and can't be a key.
pub struct IdMap {
    lines: Vec<Line>,
    /// How many bits of a hash are shifted out; the others name a run of places.
    shift: u32,
    length: usize,
}

impl IdMap {
    /// A map for at most `capacity` ids; half of its places stay empty.
    pub fn new(capacity: u32) -> Self {
        // At least two runs: a shift by all bits of a hash is none.
        let places = (capacity as usize * 2).next_power_of_two().max(2 * RUN);
        let shift = 64 - (places / RUN).trailing_zeros();
        IdMap { lines: vec![Line([(0, 0); LINE]); places / LINE], shift, length: 0 }
    }

    /// Number of places.
    #[inline]
    fn places(&self) -> usize {
        self.lines.len() * LINE
    }

    #[inline]
    fn place(&self, at: usize) -> (u64, u32) {
        self.lines[at / LINE].0[at % LINE]
    }

    #[inline]
    fn put(&mut self, at: usize, place: (u64, u32)) {
        self.lines[at / LINE].0[at % LINE] = place;
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        let run = (id >> RUN_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        run as usize * RUN + id as usize % RUN
    }

    #[inline]
    fn find(&self, id: u64) -> Result<usize, usize> {
        let mask = self.places() - 1;
        let mut at = self.home(id);
        loop {
            match self.place(at).0 {
                0 => return Err(at),
                key if key == id => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Starts to load the home of an id into the caches.
    #[inline]
    pub fn prefetch(&self, id: u64) {
        prefetch((&raw const self.lines[self.home(id) / LINE]).cast(), size_of::<Line>());
    }

    /// The index under an id.
    #[inline]
    pub fn get(&self, id: u64) -> Option<u32> {
        self.find(id).ok().map(|at| self.place(at).1)
    }

    /// Puts an index under an id that is not in the map yet. The caller's pool limits the number of ids.
    #[inline]
    pub fn insert(&mut self, id: u64, index: u32) {
        assert!(id != 0 && self.length < self.places() / 2, "the map has room for its pool");
        match self.find(id) {
            Ok(_) => panic!("the id is new"),
            Err(at) => self.put(at, (id, index)),
        }
        self.length += 1;
    }

    /// Removes an id.
    #[inline]
    pub fn remove(&mut self, id: u64) -> Option<u32> {
        let mut hole = self.find(id).ok()?;
        let index = self.place(hole).1;
        let mask = self.places() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (key, value) = self.place(at);
            if key == 0 {
                break;
            }
            // A key may move into the hole unless its home lies behind the hole.
            let home = self.home(key);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.put(hole, (key, value));
                hole = at;
            }
        }
        self.put(hole, (0, 0));
        self.length -= 1;
        Some(index)
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn consecutive_ids_share_cache_lines() {
        let map = IdMap::new(1_000);
        for first in (0..1_000).map(|step| 0x0012_3456_0000_0000 | step << LINE_BITS) {
            let line = map.home(first) / LINE;
            assert!((first..first + 4).all(|id| map.home(id) / LINE == line));
        }
        let run = 0x0012_3456_0000_0000;
        assert!((0..RUN as u64).all(|step| map.home(run + step) == map.home(run) + step as usize));
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_map(operations in proptest::collection::vec((proptest::bool::ANY, 1u64..60), 0..500)) {
            let mut map = IdMap::new(64);
            let mut model = BTreeMap::new();
            for (step, (add, id)) in operations.into_iter().enumerate() {
                // Some ids share their home place, or are in the way of those of the next line.
                let id = if id % 3 == 0 { id << 58 | id } else { id };
                if add && !model.contains_key(&id) {
                    map.insert(id, step as u32);
                    model.insert(id, step as u32);
                } else {
                    assert_eq!(map.remove(id), model.remove(&id));
                }
                assert_eq!(map.len(), model.len());
                for (&id, &index) in &model {
                    assert_eq!(map.get(id), Some(index));
                }
            }
        }
    }
}
