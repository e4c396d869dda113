//! A pool of records of one type, addressed by handles that detect when they are stale.
//!
//! A pool has a fixed capacity; it allocates memory when it first needs it. A handle is an index and a generation:
//! freeing a record raises the generation of its place, so a handle that outlives its record finds nothing instead of
//! another record. Index 0 is never given out, so a handle's bits are never 0 and 0 can mean "none" in a row header.

use crate::prefetch::prefetch;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::num::NonZeroU64;

/// Names one record of a [`Pool`].
///
/// Both parts are in one number, which is never 0: so an `Option<Handle>` takes no more room than a handle, and is
/// written and read as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(NonZeroU64);

impl Handle {
    #[inline]
    fn new(index: u32, generation: u32) -> Self {
        Self::from_bits(u64::from(generation) << 32 | u64::from(index))
    }

    /// The place in the pool; unique among the records that exist at the same time.
    #[inline]
    pub fn index(self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// Both parts in one number, for a signal that carries the handle there and back.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The inverse of [`Handle::to_bits`]. Bits that are not those of a handle find nothing: no pool has an index with
    /// all bits set.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Handle(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MAX))
    }
}

/// In the order of their places.
impl Ord for Handle {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.index(), self.generation()).cmp(&(other.index(), other.generation()))
    }
}

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = (self.index(), self.generation());
        f.debug_struct("Handle").field("index", &index).field("generation", &generation).finish()
    }
}

enum Place<T> {
    Used(T),
    /// The next free place; 0 ends the list.
    Free(u32),
}

struct Slot<T> {
    generation: u32,
    place: Place<T>,
}

/// Number of records that a pool allocates at first.
const FIRST_RECORDS: u32 = 1024;

/// Records of one type with a fixed capacity, addressed by [`Handle`]s.
pub struct Pool<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    used: u32,
    capacity: u32,
    used_max: u32,
}

impl<T> Pool<T> {
    /// A pool of at most `capacity` records. It allocates memory when it is needed, doubling its size each time, and
    /// keeps it.
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < u32::MAX, "a pool's index is 32 bits wide");
        let mut slots = Vec::with_capacity(capacity.min(FIRST_RECORDS) as usize + 1);
        slots.push(Slot { generation: 0, place: Place::Free(0) });
        Pool { slots, free: 0, used: 0, capacity, used_max: 0 }
    }

    /// Adds a record, or returns it if all places are taken.
    ///
    /// # Errors
    /// `Err(record)`: the pool is full, or the system has no memory to extend it.
    #[inline]
    pub fn insert(&mut self, record: T) -> Result<Handle, T> {
        let index = if self.free != 0 {
            let index = self.free;
            let Place::Free(next) = self.slots[index as usize].place else {
                unreachable!("the free list holds free places only")
            };
            self.free = next;
            self.slots[index as usize].place = Place::Used(record);
            index
        } else {
            let is_full = self.slots.len() > self.capacity as usize;
            if is_full || self.slots.len() == self.slots.capacity() && !self.grow() {
                return Err(record);
            }
            let index = self.slots.len() as u32;
            self.slots.push(Slot { generation: 1, place: Place::Used(record) });
            index
        };
        self.used += 1;
        self.used_max = self.used_max.max(self.used);
        Ok(Handle::new(index, self.slots[index as usize].generation))
    }

    /// Makes room for more records; false if there is no memory for them. Large blocks of memory are moved by their
    /// addresses, not copied.
    #[cold]
    fn grow(&mut self) -> bool {
        let more = self.slots.len().min(self.capacity as usize + 1 - self.slots.len());
        self.slots.try_reserve_exact(more).is_ok()
    }

    /// Frees a record and returns it; `None` if the handle is stale.
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        if slot.generation != handle.generation() || matches!(slot.place, Place::Free(_)) {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let place = core::mem::replace(&mut slot.place, Place::Free(self.free));
        self.free = handle.index();
        self.used -= 1;
        match place {
            Place::Used(record) => Some(record),
            Place::Free(_) => unreachable!("checked above"),
        }
    }

    /// The record behind a handle; `None` if the handle is stale.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        match self.slots.get(handle.index() as usize) {
            Some(Slot { generation, place: Place::Used(record) }) if *generation == handle.generation() => {
                Some(record)
            }
            _ => None,
        }
    }

    /// The record behind a handle, to change it; `None` if the handle is stale.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slots.get_mut(handle.index() as usize) {
            Some(Slot { generation, place: Place::Used(record) }) if *generation == handle.generation() => {
                Some(record)
            }
            _ => None,
        }
    }

    /// The handle of the live record at an index, for places that only have 32 bits (a row header).
    #[inline]
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        match self.slots.get(index as usize) {
            Some(Slot { generation, place: Place::Used(_) }) => Some(Handle::new(index, *generation)),
            _ => None,
        }
    }

    /// Starts to load the record at an index into the caches; the index may be anything.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(slot) = self.slots.get(index as usize) {
            prefetch((&raw const *slot).cast(), size_of::<Slot<T>>());
        }
    }

    /// Records in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The greatest number of records that were ever in use at the same time.
    pub fn used_max(&self) -> u32 {
        self.used_max
    }

    /// Number of records that the pool can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of bytes that the pool has allocated.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
    }

    /// All live records with their handles, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.place {
            Place::Used(record) => Some((Handle::new(index as u32, slot.generation), record)),
            Place::Free(_) => None,
        })
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| match &mut slot.place {
            Place::Used(record) => Some((Handle::new(index as u32, slot.generation), record)),
            Place::Free(_) => None,
        })
    }
}

impl<T> core::ops::Index<Handle> for Pool<T> {
    type Output = T;

    /// The record behind a handle that is known to be live.
    #[inline]
    fn index(&self, handle: Handle) -> &T {
        self.get(handle).expect("the caller holds a live handle")
    }
}

impl<T> core::ops::IndexMut<Handle> for Pool<T> {
    #[inline]
    fn index_mut(&mut self, handle: Handle) -> &mut T {
        self.get_mut(handle).expect("the caller holds a live handle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_stale_handle_finds_nothing() {
        let mut pool = Pool::new(1);
        let first = pool.insert("first").unwrap();
        assert_eq!(pool.insert("too many"), Err("too many"));
        assert_eq!(pool.remove(first), Some("first"));
        let second = pool.insert("second").unwrap();
        assert_eq!(second.index(), first.index());
        assert_eq!(pool.get(first), None);
        assert_eq!(pool.remove(first), None);
        assert_eq!(pool[second], "second");
        assert_eq!(Handle::from_bits(second.to_bits()), second);
        assert_eq!(pool.get(Handle::from_bits(u64::MAX)), None);
        assert_eq!(pool.get(Handle::from_bits(0)), None);
    }

    #[test]
    fn it_grows_to_its_capacity() {
        let capacity = 5 * FIRST_RECORDS + 7;
        let mut pool = Pool::new(capacity);
        let at_first = pool.memory_bytes();
        let handles: Vec<Handle> = (0..capacity).map(|record| pool.insert(record).unwrap()).collect();
        assert_eq!(pool.insert(0), Err(0));
        assert!(handles.iter().zip(0..).all(|(&handle, record)| pool[handle] == record));
        assert_eq!(pool.memory_bytes() / at_first, 5);
        assert_eq!((pool.remove(handles[9]), pool.insert(1).map(Handle::index)), (Some(9), Ok(10)));
        assert_eq!(pool.insert(0), Err(0));
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_map(operations in proptest::collection::vec((0u8..3, 0usize..40), 0..400)) {
            let mut pool = Pool::new(16);
            let mut model = BTreeMap::new();
            let mut given = Vec::new();
            for (step, (kind, pick)) in operations.into_iter().enumerate() {
                match kind {
                    0 => match pool.insert(step) {
                        Ok(handle) => {
                            assert!(model.insert(handle, step).is_none());
                            given.push(handle);
                        }
                        Err(_) => assert_eq!(model.len(), 16),
                    },
                    _ if given.is_empty() => {}
                    1 => {
                        let handle = given[pick % given.len()];
                        assert_eq!(pool.remove(handle), model.remove(&handle));
                    }
                    _ => {
                        let handle = given[pick % given.len()];
                        assert_eq!(pool.get(handle), model.get(&handle));
                    }
                }
                assert_eq!(pool.used() as usize, model.len());
                assert_eq!(pool.iter().count(), model.len());
            }
        }
    }
}
