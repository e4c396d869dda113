//! A map from 64-bit ids to pool indexes that allocates all its memory when it is created.
//!
//! Open addressing with linear probing, in which ids stand in the order of their homes (Robin Hood hashing; Celis,
//! 1986), and backward-shift deletion, so there are no tombstones and no rehash. A probe or a deletion ends at an id
//! that is nearer to its home than what is looked for, or moved, would be. Otherwise it would go on to the end of the
//! ids that stand together, and many of them do: see below.
//!
//! The hash is a multiplication (Fibonacci hashing): we choose the ids ourselves. An API node that picked bad ones
//! would make one long probe sequence, no longer than the pool of the ids, which slows down transactions whose homes
//! are in it.
//!
//! API nodes number their transactions one after the other, and those of a batch arrive together. So the last bits of
//! an id are not hashed: [`RUN`] consecutive ids have their homes in consecutive places, four in each cache line. That
//! spares cache lines, and pages for the processor's address translation. Longer runs would make longer probe sequences
//! where two of them overlap.

use crate::prefetch::prefetch;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Places in a cache line.
#[cfg(test)]
const LINE: usize = LINE_BYTES / PLACE_BYTES;
/// Bytes of a place, which is two words: an id, and its index.
const PLACE_BYTES: usize = 2 * size_of::<u64>();

/// Consecutive ids with consecutive homes.
const RUN: usize = 1 << RUN_BITS;
const RUN_BITS: u32 = 6;

/// Maps ids to pool indexes. The id 0 marks an empty place and can't be a key.
pub struct IdMap {
    /// Places, from the first cache line on: ids, each with its index. The system gives the memory when it is first
    /// used, so a map that is much larger than what is in it takes little. (It would not if the words were in a type
    /// that is aligned to cache lines: memory of that kind is filled with zeros when it is allocated.)
    words: Vec<u64>,
    /// The first word of the first cache line.
    first: usize,
    places: usize,
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
        let words = vec![0u64; (places * PLACE_BYTES + LINE_BYTES) / size_of::<u64>()];
        let first = (words.as_ptr().addr().wrapping_neg() % LINE_BYTES) / size_of::<u64>();
        IdMap { words, first, places, shift, length: 0 }
    }

    /// Number of places.
    #[inline]
    fn places(&self) -> usize {
        self.places
    }

    /// The id at a place.
    #[inline]
    fn id_at(&self, at: usize) -> u64 {
        self.words[self.first + 2 * at]
    }

    #[inline]
    fn place(&self, at: usize) -> (u64, u32) {
        (self.id_at(at), self.words[self.first + 2 * at + 1] as u32)
    }

    #[inline]
    fn put(&mut self, at: usize, (id, index): (u64, u32)) {
        let word = self.first + 2 * at;
        self.words[word] = id;
        self.words[word + 1] = u64::from(index);
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        let run = (id >> RUN_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        run as usize * RUN + id as usize % RUN
    }

    /// How many places an id that stands at a place is behind its home.
    #[inline]
    fn distance(&self, id: u64, at: usize) -> usize {
        at.wrapping_sub(self.home(id)) & (self.places() - 1)
    }

    /// The place of an id, or that which it would take, and how far that is from its home.
    #[inline]
    fn find(&self, id: u64) -> Result<usize, (usize, usize)> {
        let mask = self.places() - 1;
        let mut at = self.home(id);
        let mut distance = 0;
        loop {
            match self.id_at(at) {
                0 => return Err((at, distance)),
                key if key == id => return Ok(at),
                key if self.distance(key, at) < distance => return Err((at, distance)),
                _ => (at, distance) = ((at + 1) & mask, distance + 1),
            }
        }
    }

    /// Starts to load the home of an id into the caches.
    #[inline]
    pub fn prefetch(&self, id: u64) {
        prefetch((&raw const self.words[self.first + 2 * self.home(id)]).cast(), PLACE_BYTES);
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
        let Err((mut at, mut distance)) = self.find(id) else { panic!("the id is new") };
        let mut moved = (id, index);
        loop {
            let there = self.place(at);
            if there.0 == 0 {
                break;
            }
            // Whatever is nearer to its home goes on.
            let its_distance = self.distance(there.0, at);
            if its_distance < distance {
                self.put(at, moved);
                (moved, distance) = (there, its_distance);
            }
            (at, distance) = ((at + 1) & (self.places() - 1), distance + 1);
        }
        self.put(at, moved);
        self.length += 1;
    }

    /// Removes an id.
    #[inline]
    pub fn remove(&mut self, id: u64) -> Option<u32> {
        let mut hole = self.find(id).ok()?;
        let index = self.place(hole).1;
        let mask = self.places() - 1;
        loop {
            let next = (hole + 1) & mask;
            let (key, value) = self.place(next);
            // What is at its home stays there, and so does all behind it.
            if key == 0 || self.distance(key, next) == 0 {
                break;
            }
            self.put(hole, (key, value));
            hole = next;
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
        for first in (0..1_000).map(|step| 0x0012_3456_0000_0000 + step * LINE as u64) {
            let line = |id| (&raw const map.words[map.first + 2 * map.home(id)]).addr() / LINE_BYTES;
            assert!((first..first + LINE as u64).all(|id| line(id) == line(first)));
        }
        let run = 0x0012_3456_0000_0000;
        assert!((0..RUN as u64).all(|step| map.home(run + step) == map.home(run) + step as usize));
    }

    /// No id is further from its home than the one before it and one place more: ids stand in the order of their homes,
    /// and none is behind an empty place that is not before its home.
    fn assert_in_order(map: &IdMap) {
        let distance = |at| Some(map.id_at(at)).filter(|&id| id != 0).map(|id| map.distance(id, at));
        let mut before = distance(map.places() - 1);
        for at in 0..map.places() {
            let here = distance(at);
            assert!(here.is_none_or(|here| here <= before.map_or(0, |before| before + 1)), "place {at}");
            before = here;
        }
    }

    /// Resident memory of this process, in bytes.
    #[cfg(target_os = "linux")]
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("the system has it");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says that");
        let kilobytes = line.trim().strip_suffix(" kB").expect("in kilobytes");
        kilobytes.parse::<usize>().expect("a number") * 1024
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_taken_when_it_is_used() {
        let before = resident_bytes();
        let mut map = IdMap::new(1 << 24);
        map.insert(7, 70);
        let taken = resident_bytes().saturating_sub(before);
        let bytes = map.places() * PLACE_BYTES;
        assert!(taken < bytes / 4, "{taken} of {bytes} bytes are taken for one id");
        assert_eq!((map.get(7), map.get(0), map.remove(0)), (Some(70), None, None));
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
                assert_in_order(&map);
                for (&id, &index) in &model {
                    assert_eq!(map.get(id), Some(index));
                }
            }
        }
    }
}
