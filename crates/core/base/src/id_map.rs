//! A map from 64-bit ids to pool indexes that allocates all its memory when it is created.
//!
//! Open addressing with linear probing and backward-shift deletion, so there are no tombstones and no rehash. The hash
//! is a multiplication (Fibonacci hashing): we choose the ids ourselves, and an API node that picked bad ones would
//! only slow down its own transactions, by the little that a long probe sequence costs.

use alloc::vec;
use alloc::vec::Vec;

/// Maps ids to pool indexes. The id 0 marks an empty place and can't be a key.
pub struct IdMap {
    places: Vec<(u64, u32)>,
    shift: u32,
    length: usize,
}

impl IdMap {
    /// A map for at most `capacity` ids; half of its places stay empty.
    pub fn new(capacity: u32) -> Self {
        let places = (capacity.max(4) as usize * 2).next_power_of_two();
        IdMap { places: vec![(0, 0); places], shift: 64 - places.trailing_zeros(), length: 0 }
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    fn find(&self, id: u64) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let mut at = self.home(id);
        loop {
            match self.places[at].0 {
                0 => return Err(at),
                key if key == id => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The index under an id.
    #[inline]
    pub fn get(&self, id: u64) -> Option<u32> {
        self.find(id).ok().map(|at| self.places[at].1)
    }

    /// Puts an index under an id that is not in the map yet. The caller's pool limits the number of ids.
    #[inline]
    pub fn insert(&mut self, id: u64, index: u32) {
        assert!(id != 0 && self.length < self.places.len() / 2, "the map has room for its pool");
        match self.find(id) {
            Ok(_) => panic!("the id is new"),
            Err(at) => self.places[at] = (id, index),
        }
        self.length += 1;
    }

    /// Removes an id.
    #[inline]
    pub fn remove(&mut self, id: u64) -> Option<u32> {
        let mut hole = self.find(id).ok()?;
        let index = self.places[hole].1;
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (key, value) = self.places[at];
            if key == 0 {
                break;
            }
            // A key may move into the hole unless its home lies behind the hole.
            let home = self.home(key);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = (key, value);
                hole = at;
            }
        }
        self.places[hole] = (0, 0);
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

    proptest::proptest! {
        #[test]
        fn behaves_like_a_map(operations in proptest::collection::vec((proptest::bool::ANY, 1u64..60), 0..500)) {
            let mut map = IdMap::new(64);
            let mut model = BTreeMap::new();
            for (step, (add, id)) in operations.into_iter().enumerate() {
                // Ids that share their home place collide on purpose.
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
