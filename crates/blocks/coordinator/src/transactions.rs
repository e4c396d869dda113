//! The open transactions of a coordinator, by handle and by id.

use crate::transaction::Transaction;
use core::ops::{Index, IndexMut};
use vinga_base::TransactionId;
use vinga_base::id_map::IdMap;
use vinga_base::pool::{Handle, Pool};

/// The open transactions. Invariant: each record is found by its id, and nothing else is.
pub struct Transactions {
    pool: Pool<Transaction>,
    by_id: IdMap,
}

impl Transactions {
    /// Room for so many.
    pub fn new(capacity: u32) -> Self {
        Transactions { pool: Pool::new(capacity), by_id: IdMap::new(capacity) }
    }

    /// Adds a transaction whose id is not known. `None` if there is no room.
    #[inline]
    pub fn insert(&mut self, transaction: Transaction) -> Option<Handle> {
        let id = transaction.id;
        let handle = self.pool.insert(transaction).ok()?;
        self.by_id.insert(id.0, handle.index());
        Some(handle)
    }

    /// Removes a transaction that has ended.
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Transaction {
        let transaction = self.pool.remove(handle).expect("it was open until now");
        self.by_id.remove(transaction.id.0);
        transaction
    }

    /// The transaction with an id.
    #[inline]
    pub fn find(&self, id: TransactionId) -> Option<Handle> {
        self.pool.handle_at(self.by_id.get(id.0)?)
    }

    /// The transaction that an answer of a data manager is for: `record` is only a hint, the id decides.
    #[inline]
    pub fn find_record(&self, record: u32, id: TransactionId) -> Option<Handle> {
        let handle = self.pool.handle_at(record)?;
        (self.pool[handle].id == id).then_some(handle)
    }

    /// Starts to load the place of an id into the caches.
    #[inline]
    pub fn prefetch_id(&self, id: TransactionId) {
        self.by_id.prefetch(id.0);
    }

    /// Starts to load a record into the caches; the index may be anything.
    #[inline]
    pub fn prefetch_record(&self, record: u32) {
        self.pool.prefetch(record);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &Transaction)> {
        self.pool.iter()
    }

    /// How many there are, how many there have been at most, and how many there may be.
    pub fn usage(&self) -> (u32, u32, u32) {
        (self.pool.used(), self.pool.used_max(), self.pool.capacity())
    }

    /// How many there are.
    pub fn used(&self) -> u32 {
        self.pool.used()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes()
    }

    /// Panics if they are not found by their ids.
    pub fn check_ids(&self) {
        assert_eq!(self.by_id.len(), self.pool.used() as usize, "each transaction is found by its id");
    }
}

impl Index<Handle> for Transactions {
    type Output = Transaction;

    #[inline]
    fn index(&self, handle: Handle) -> &Transaction {
        &self.pool[handle]
    }
}

impl IndexMut<Handle> for Transactions {
    #[inline]
    fn index_mut(&mut self, handle: Handle) -> &mut Transaction {
        &mut self.pool[handle]
    }
}
