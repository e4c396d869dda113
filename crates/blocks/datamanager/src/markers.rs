//! Markers: what is left of committed transactions until their API nodes know the outcome.
//!
//! Most go soon, as an API node confirms outcomes with its next batch. So there are places for as many as transactions
//! may be open, found by id without a search; those of API nodes that confirm nothing for long are kept in a tree.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::id_map::IdMap;
use vinga_base::pool::Pool;
use vinga_base::{Epoch, TransactionId};
use vinga_wire::take_over::CoordinatorName;

/// What is left of a committed transaction until its API node knows the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    pub epoch: Epoch,
    /// The operation that has left it.
    pub number: u32,
    /// Whose transaction it was.
    pub coordinator: CoordinatorName,
}

/// The markers of a data manager.
pub struct Markers {
    by_id: IdMap,
    pool: Pool<(TransactionId, Marker)>,
    /// Those that had no place in the pool.
    more: BTreeMap<TransactionId, Marker>,
}

impl Markers {
    /// With places for so many.
    pub fn new(places: u32) -> Self {
        Markers { by_id: IdMap::new(places), pool: Pool::new(places), more: BTreeMap::new() }
    }

    /// Leaves a marker; one that the transaction has left before is replaced.
    pub fn insert(&mut self, id: TransactionId, marker: Marker) {
        self.remove(id);
        match self.pool.insert((id, marker)) {
            Ok(handle) => self.by_id.insert(id.0, handle.index()),
            Err((id, marker)) => {
                self.more.insert(id, marker);
            }
        }
    }

    /// A transaction's marker, if it has left one.
    pub fn get(&self, id: TransactionId) -> Option<Marker> {
        match self.by_id.get(id.0) {
            Some(index) => self.pool.handle_at(index).map(|handle| self.pool[handle].1),
            None if self.more.is_empty() => None,
            None => self.more.get(&id).copied(),
        }
    }

    /// Takes a transaction's marker away, if it has one.
    fn remove(&mut self, id: TransactionId) {
        if let Some(index) = self.by_id.remove(id.0) {
            let handle = self.pool.handle_at(index).expect("the map names live markers");
            self.pool.remove(handle);
        } else if !self.more.is_empty() {
            self.more.remove(&id);
        }
    }

    /// Takes a transaction's marker away, if it has one that fulfils a condition; returns it.
    pub fn remove_if(
        &mut self,
        id: TransactionId,
        condition: impl FnOnce(&Marker) -> bool,
    ) -> Option<Marker> {
        let found = self.get(id).filter(condition)?;
        self.remove(id);
        Some(found)
    }

    /// Takes all markers away.
    pub fn clear(&mut self) {
        let all: Vec<TransactionId> = self.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.remove(id));
    }

    /// Starts to load the place of a transaction's marker into the caches.
    #[inline]
    pub fn prefetch(&self, id: TransactionId) {
        self.by_id.prefetch(id.0);
    }

    /// Starts to load a marker that has a place.
    #[inline]
    pub fn prefetch_marker(&self, id: TransactionId) {
        if let Some(index) = self.by_id.get(id.0) {
            self.pool.prefetch(index);
        }
    }

    /// All of them, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (TransactionId, &Marker)> {
        let placed = self.pool.iter().map(|(_, (id, marker))| (*id, marker));
        placed.chain(self.more.iter().map(|(&id, marker)| (id, marker)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pool.used() as usize + self.more.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Panics if the map and the pool contradict each other.
    pub fn check(&self) {
        assert_eq!(self.by_id.len(), self.pool.used() as usize, "each marker in the pool is found by its id");
        assert!(self.more.keys().all(|id| self.by_id.get(id.0).is_none()), "a transaction has one marker");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;
    use vinga_wire::Address;

    fn marker(number: u32) -> Marker {
        let coordinator = CoordinatorName { address: Address(1), incarnation: Incarnation(1) };
        Marker { epoch: Epoch(7), number, coordinator }
    }

    fn found(markers: &Markers) -> Vec<(u64, u32)> {
        markers.check();
        let mut found: Vec<(u64, u32)> = markers.iter().map(|(id, marker)| (id.0, marker.number)).collect();
        found.sort_unstable();
        assert_eq!(found.len(), markers.len());
        found
    }

    #[test]
    fn markers_beyond_the_places_are_kept_as_well() {
        let mut markers = Markers::new(2);
        for id in 1..=4 {
            markers.insert(TransactionId(id), marker(id as u32));
        }
        assert_eq!(found(&markers), [(1, 1), (2, 2), (3, 3), (4, 4)]);
        // One of the places is free again; what is left a second time stands once.
        markers.remove(TransactionId(1));
        markers.insert(TransactionId(4), marker(40));
        markers.insert(TransactionId(2), marker(20));
        assert_eq!(found(&markers), [(2, 20), (3, 3), (4, 40)]);
        assert_eq!(
            [1, 2, 3].map(|id| markers.get(TransactionId(id)).map(|m| m.number)),
            [None, Some(20), Some(3)]
        );
        for id in [9, 3, 2, 4] {
            markers.remove(TransactionId(id));
        }
        assert!(markers.is_empty() && found(&markers).is_empty());
    }
}
