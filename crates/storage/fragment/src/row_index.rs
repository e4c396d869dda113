//! What a fragment needs of its hash index.

use vinga_base::RowId;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};

/// Finds rows by the hash of their key. It stores no keys and no whole hashes: when it grows or shrinks it asks for the
/// hashes of some rows again.
pub trait RowIndex {
    /// Starts to load what a search for this hash will read first.
    fn prefetch(&self, pool: &PagePool, hash: KeyHash);

    /// The rows that may have this hash, all that have it among them.
    fn candidates<'a>(&'a self, pool: &'a PagePool, hash: KeyHash) -> impl Iterator<Item = RowId> + 'a;

    /// Adds a row, which is there already so that `rehash` can read it. Rows with equal hashes, even equal keys, are
    /// different entries.
    ///
    /// # Errors
    /// [`OutOfPages`], and the index is as it was.
    fn insert(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) -> Result<(), OutOfPages>;

    /// Removes a row, which is still there.
    fn remove(
        &mut self,
        pool: &mut PagePool,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    );

    /// Number of rows in the index.
    fn len(&self) -> u64;

    /// Whether no row is in the index.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all rows and gives all pages back.
    fn clear(&mut self, pool: &mut PagePool);
}

impl RowIndex for crate::hash_index::HashIndex {
    #[inline]
    fn prefetch(&self, pool: &PagePool, hash: KeyHash) {
        self.prefetch(pool, hash);
    }

    #[inline]
    fn candidates<'a>(&'a self, pool: &'a PagePool, hash: KeyHash) -> impl Iterator<Item = RowId> + 'a {
        self.candidates(pool, hash)
    }

    #[inline]
    fn insert(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) -> Result<(), OutOfPages> {
        self.insert(pool, purpose, hash, row, rehash)
    }

    #[inline]
    fn remove(
        &mut self,
        pool: &mut PagePool,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        self.remove(pool, hash, row, rehash);
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn clear(&mut self, pool: &mut PagePool) {
        self.clear(pool);
    }
}
