//! A row's image outside its slot: the one that an open operation will install, or the one that it has replaced.
//!
//! All memory that an operation needs is taken when it is prepared. Installing is then an exchange between slot and
//! version, which can't fail: the row gets the new image, and the version holds the old one for as long as it may be
//! read or needed.

use crate::chunk_store::{ChunkRef, ChunkStore};
use crate::row_store::RowStore;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::row_layout::RowLayout;

/// An image outside its row's slot. It owns its chunks: if it is dropped without [`RowVersion::free`], they leak.
#[derive(PartialEq, Eq, Debug)]
pub struct RowVersion {
    fixed: ChunkRef,
    variable: Option<ChunkRef>,
}

impl RowVersion {
    /// Makes a version of a checked image.
    ///
    /// # Errors
    /// [`OutOfPages`]; then nothing is kept.
    pub fn new(
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        layout: &RowLayout,
        image: &[u8],
    ) -> Result<Self, OutOfPages> {
        let (fixed, variable) = layout.split(image);
        let fixed = chunks.store(pool, purpose, fixed)?;
        if !layout.has_variable() {
            assert!(variable.is_empty(), "the table has no columns of variable size");
            return Ok(RowVersion { fixed, variable: None });
        }
        match chunks.store(pool, purpose, variable) {
            Ok(variable) => Ok(RowVersion { fixed, variable: Some(variable) }),
            Err(refused) => {
                chunks.free(pool, fixed);
                Err(refused)
            }
        }
    }

    /// Starts to load the fixed part into the caches.
    #[inline]
    pub fn prefetch(&self, pool: &PagePool, chunks: &ChunkStore) {
        chunks.prefetch(pool, self.fixed);
    }

    /// Fixed and variable part of the image.
    #[inline]
    pub fn parts<'a>(&self, pool: &'a PagePool, chunks: &ChunkStore) -> (&'a [u8], &'a [u8]) {
        let variable = self.variable.map_or(&[][..], |variable| chunks.bytes(pool, variable));
        (chunks.bytes(pool, self.fixed), variable)
    }

    /// Exchanges the images of a row and this version, which are of one table. The row's header stays.
    pub fn exchange(&mut self, pool: &mut PagePool, chunks: &ChunkStore, rows: &RowStore, row: RowId) {
        // Slot and chunk are in two pages of one pool, so the bytes are copied through a buffer, piece by piece.
        let mut buffer = [0; 256];
        let bytes = rows.fixed(pool, row).len();
        for at in (0..bytes).step_by(buffer.len()) {
            let piece = at..bytes.min(at + buffer.len());
            let buffer = &mut buffer[..piece.len()];
            let version = &mut chunks.bytes_mut(pool, self.fixed)[piece.clone()];
            buffer.copy_from_slice(version);
            let row = &mut rows.fixed_mut(pool, row)[piece.clone()];
            row.swap_with_slice(buffer);
            chunks.bytes_mut(pool, self.fixed)[piece].copy_from_slice(buffer);
        }
        self.variable = rows.row_mut(pool, row).replace_variable(self.variable);
    }

    /// Number of its chunks.
    pub fn chunks(&self) -> u64 {
        1 + u64::from(self.variable.is_some())
    }

    /// Frees the version's memory.
    pub fn free(self, pool: &mut PagePool, chunks: &mut ChunkStore) {
        chunks.free(pool, self.fixed);
        if let Some(variable) = self.variable {
            chunks.free(pool, variable);
        }
    }
}
