//! One replica of one partition: its rows, found by their keys.
//!
//! A row has three parts: the fixed part in a slot of the row store, a chunk for the variable part (in tables with
//! columns of variable size), and an entry in the hash index. They are added and removed together: each call here does
//! all of its work or, when memory is refused, none. The ordered indexes are kept beside them, but callers maintain
//! their entries.
//!
//! The fragment knows nothing of transactions. A row is found from the moment it is inserted until it is removed,
//! whatever its header says, and two rows may have the same key for a while (a deleted one that is still visible and
//! its successor; during a restart, one row that has moved). Callers decide which one is valid.

use crate::chunk_store::ChunkStore;
use crate::fragment_index::FragmentIndex;
use crate::hash_index::HashIndex;
use crate::row::{Row, RowHeader};
use crate::row_store::{PlaceError, RowStore};
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::KEY_BYTES_MAX;

/// The contents of a new row.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'a> {
    /// The hash of its key.
    pub hash: KeyHash,
    /// A checked image.
    pub image: &'a [u8],
    /// The header.
    pub header: RowHeader,
}

/// The rows of one replica of one partition, with their indexes.
pub struct Fragment {
    layout: RowLayout,
    rows: RowStore,
    index: HashIndex,
    /// In ascending order of their ids.
    indexes: Vec<FragmentIndex>,
    /// Buffer for a key that is not stored in one piece in its row; sized for the longest key.
    key: Vec<u8>,
    /// The page at which [`Fragment::release_slice`] continues.
    released_from: Option<u32>,
}

impl Fragment {
    /// A fragment without rows and ordered indexes.
    pub fn new(layout: RowLayout) -> Self {
        let rows = RowStore::new(layout.fixed_bytes(), layout.has_variable());
        let key_bytes_max = if layout.key_bytes().is_some() { 0 } else { KEY_BYTES_MAX };
        Fragment {
            layout,
            rows,
            index: HashIndex::new(),
            indexes: Vec::new(),
            key: Vec::with_capacity(key_bytes_max),
            released_from: None,
        }
    }

    /// The row with this key, which has been checked. If there are two, any of them.
    #[inline]
    pub fn find(&self, pool: &PagePool, chunks: &ChunkStore, hash: KeyHash, key: &[u8]) -> Option<RowId> {
        self.find_all(pool, chunks, hash, key).next()
    }

    /// All rows with this key, which has been checked.
    #[inline]
    pub fn find_all<'a>(
        &'a self,
        pool: &'a PagePool,
        chunks: &'a ChunkStore,
        hash: KeyHash,
        key: &'a [u8],
    ) -> impl Iterator<Item = RowId> + 'a {
        self.index.candidates(pool, hash).filter(move |&row| {
            let row = self.rows.row(pool, row);
            // The variable part is only looked up if the key needs it.
            let variable =
                if self.layout.key_bytes().is_some() { &[][..] } else { variable_of(pool, chunks, row) };
            self.layout.key_equals(key, row.fixed(), variable)
        })
    }

    /// First step of a batch: starts to load the index entries of a hash.
    #[inline]
    pub fn prefetch_index(&self, pool: &PagePool, hash: KeyHash) {
        self.index.prefetch(pool, hash);
    }

    /// Second step of a batch: starts to load the row that most likely has this hash.
    #[inline]
    pub fn prefetch_row(&self, pool: &PagePool, hash: KeyHash) {
        if let Some(row) = self.index.candidates(pool, hash).next() {
            self.rows.prefetch(pool, row);
        }
    }

    /// Third step of a batch: starts to load the variable part of that row.
    #[inline]
    pub fn prefetch_variable(&self, pool: &PagePool, chunks: &ChunkStore, hash: KeyHash) {
        if let Some(row) = self.index.candidates(pool, hash).next()
            && let Some(chunk) = self.rows.row(pool, row).variable()
        {
            chunks.prefetch(pool, chunk);
        }
    }

    /// The fixed and the variable part of an existing row.
    #[inline]
    pub fn parts<'a>(&self, pool: &'a PagePool, chunks: &ChunkStore, row: RowId) -> (&'a [u8], &'a [u8]) {
        let row = self.rows.row(pool, row);
        (row.fixed(), variable_of(pool, chunks, row))
    }

    /// Appends the image of an existing row.
    #[inline]
    pub fn row_image(&self, pool: &PagePool, chunks: &ChunkStore, row: RowId, out: &mut Vec<u8>) {
        let (fixed, variable) = self.parts(pool, chunks, row);
        out.extend_from_slice(fixed);
        out.extend_from_slice(variable);
    }

    /// Adds a row in any free slot.
    ///
    /// # Errors
    /// [`OutOfPages`]; then nothing has changed.
    #[inline]
    pub fn insert_row(
        &mut self,
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        new: NewRow<'_>,
    ) -> Result<RowId, OutOfPages> {
        let row = self.rows.allocate(pool, purpose, new.header)?;
        self.fill_row(pool, chunks, purpose, row, new)?;
        Ok(row)
    }

    /// Adds a row in the slot that another replica has chosen.
    ///
    /// # Errors
    /// If the slot can't be used, or there is no memory for the rest; then nothing has changed.
    #[inline]
    pub fn insert_row_at(
        &mut self,
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        row: RowId,
        new: NewRow<'_>,
    ) -> Result<(), PlaceError> {
        self.rows.allocate_at(pool, purpose, row, new.header)?;
        Ok(self.fill_row(pool, chunks, purpose, row, new)?)
    }

    /// Adds the other parts of a row that has just got its slot, or frees the slot again.
    #[inline]
    fn fill_row(
        &mut self,
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        row: RowId,
        new: NewRow<'_>,
    ) -> Result<(), OutOfPages> {
        let filled = self.store_image(pool, chunks, purpose, row, new.image).and_then(|()| {
            debug_assert_eq!(self.key_hash(pool, chunks, row), new.hash, "the hash is that of the key");
            let Fragment { layout, rows, index, key, .. } = self;
            let rehash = |pool: &PagePool, row| hash_of(layout, pool, chunks, rows.row(pool, row), key);
            index.insert(pool, purpose, new.hash, row, rehash)
        });
        match filled {
            // The index will soon read some rows again, to grow: prefetch them one insert ahead.
            Ok(()) => self.index.rows_of_next_step(pool).for_each(|row| self.rows.prefetch(pool, row)),
            Err(OutOfPages) => self.free_row(pool, chunks, row),
        }
        filled
    }

    /// Overwrites a row in place, header and key excepted.
    ///
    /// # Errors
    /// [`OutOfPages`] when the variable part needs more room; then nothing has changed.
    #[inline]
    pub fn store_image(
        &self,
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        row: RowId,
        image: &[u8],
    ) -> Result<(), OutOfPages> {
        let (fixed, variable) = self.layout.split(image);
        if self.layout.has_variable() {
            self.store_variable(pool, chunks, purpose, row, variable)?;
        } else {
            assert!(variable.is_empty(), "the table has no columns of variable size");
        }
        self.rows.fixed_mut(pool, row).copy_from_slice(fixed);
        Ok(())
    }

    fn store_variable(
        &self,
        pool: &mut PagePool,
        chunks: &mut ChunkStore,
        purpose: Purpose,
        row: RowId,
        variable: &[u8],
    ) -> Result<(), OutOfPages> {
        let old = self.rows.row(pool, row).variable();
        if old.is_none_or(|old| !chunks.fits_tightly(old, variable.len())) {
            match chunks.store(pool, purpose, variable) {
                Ok(new) => {
                    self.rows.row_mut(pool, row).set_variable(Some(new));
                    if let Some(old) = old {
                        chunks.free(pool, old);
                    }
                    return Ok(());
                }
                // A slot that is too large wastes memory, but that is better than failing when memory is full.
                Err(OutOfPages) if old.is_some_and(|old| chunks.can_hold(old, variable.len())) => {}
                Err(OutOfPages) => return Err(OutOfPages),
            }
        }
        let chunk = old.expect("the row has a chunk with room");
        chunks.resize(pool, chunk, variable.len());
        chunks.bytes_mut(pool, chunk).copy_from_slice(variable);
        Ok(())
    }

    /// Removes a row: index entry, variable part, slot.
    #[inline]
    pub fn remove_row(&mut self, pool: &mut PagePool, chunks: &mut ChunkStore, hash: KeyHash, row: RowId) {
        let Fragment { layout, rows, index, key, .. } = self;
        let rehash = |pool: &PagePool, row| hash_of(layout, pool, chunks, rows.row(pool, row), key);
        index.remove(pool, hash, row, rehash);
        self.free_row(pool, chunks, row);
    }

    /// Frees a row that is not in the index.
    #[inline]
    fn free_row(&mut self, pool: &mut PagePool, chunks: &mut ChunkStore, row: RowId) {
        if let Some(variable) = self.rows.row(pool, row).variable() {
            chunks.free(pool, variable);
        }
        self.rows.free(pool, row);
    }

    /// The hash of the key of an existing row, for callers that only have its row id.
    #[inline]
    pub fn key_hash(&mut self, pool: &PagePool, chunks: &ChunkStore, row: RowId) -> KeyHash {
        hash_of(&self.layout, pool, chunks, self.rows.row(pool, row), &mut self.key)
    }

    /// Frees the whole fragment in slices: at most `steps` rows or pages of one kind per call. True when nothing is
    /// left and the fragment is empty again; until then no other method may be called, because the index still contains
    /// rows that have been freed.
    pub fn release_slice(&mut self, pool: &mut PagePool, chunks: &mut ChunkStore, steps: u32) -> bool {
        while let Some(last) = self.indexes.last_mut() {
            if !last.tree.release_slice(pool, steps) {
                return false;
            }
            self.indexes.pop();
        }
        let mut pages = self.released_from.unwrap_or(self.rows.page_count());
        for _ in 0..steps {
            if pages == 0 {
                self.index.clear(pool);
                self.released_from = None;
                return true;
            }
            let page = pages - 1;
            let first = self.rows.page(pool, page).and_then(|view| view.live_slots().next());
            match first {
                Some(slot) if self.layout.has_variable() => {
                    self.free_row(pool, chunks, RowId::new(page, slot as u32));
                }
                Some(_) => {
                    self.rows.free_page(pool, page);
                    pages = page;
                }
                None => pages = page,
            }
        }
        self.released_from = Some(pages);
        false
    }

    /// How rows are laid out.
    #[inline]
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The rows' slots: headers, pages, memory usage.
    #[inline]
    pub fn rows(&self) -> &RowStore {
        &self.rows
    }

    /// Notes that what is committed of a row has changed: see [`RowStore::note_changed`].
    #[inline]
    pub fn note_changed(&mut self, row: RowId) {
        self.rows.note_changed(row);
    }

    /// See [`RowStore::take_changed`].
    pub fn take_changed(&mut self, page: u32) -> bool {
        self.rows.take_changed(page)
    }

    /// Notes that operations begin to name a row: see [`RowStore::note_named`].
    #[inline]
    pub fn note_named(&mut self, row: RowId) {
        self.rows.note_named(row);
    }

    /// Notes that no operation names a row any more: see [`RowStore::note_unnamed`].
    #[inline]
    pub fn note_unnamed(&mut self, row: RowId) {
        self.rows.note_unnamed(row);
    }

    /// The ordered indexes, in ascending order of their ids.
    #[inline]
    pub fn indexes(&self) -> &[FragmentIndex] {
        &self.indexes
    }

    /// The ordered index with an id.
    #[inline]
    pub fn ordered_index(&self, id: u16) -> Option<&FragmentIndex> {
        self.indexes.iter().find(|index| index.id() == id)
    }

    /// The ordered index with an id, to change it.
    pub fn ordered_index_mut(&mut self, id: u16) -> Option<&mut FragmentIndex> {
        self.indexes.iter_mut().find(|index| index.id() == id)
    }

    /// The ordered indexes, to change them, and the parts of the fragment that this needs.
    #[inline]
    pub fn split_indexes(&mut self) -> (&RowLayout, &RowStore, &mut [FragmentIndex]) {
        (&self.layout, &self.rows, &mut self.indexes)
    }

    /// Adds an ordered index.
    pub fn add_index(&mut self, index: FragmentIndex) {
        let at = self.indexes.partition_point(|other| other.id() < index.id());
        assert!(
            self.indexes.get(at).is_none_or(|other| other.id() != index.id()),
            "ids of indexes are unique in a table"
        );
        self.indexes.insert(at, index);
    }

    /// Removes an ordered index; the caller must free its memory.
    pub fn take_index(&mut self, id: u16) -> Option<FragmentIndex> {
        let at = self.indexes.iter().position(|index| index.id() == id)?;
        Some(self.indexes.remove(at))
    }

    /// The hash index, for its memory usage.
    pub fn index(&self) -> &HashIndex {
        &self.index
    }
}

/// The variable part of a row; empty if it has none.
#[inline]
fn variable_of<'a>(pool: &'a PagePool, chunks: &ChunkStore, row: Row<'a>) -> &'a [u8] {
    row.variable().map_or(&[], |variable| chunks.bytes(pool, variable))
}

/// The hash of a row's key, which is assembled in `key` if it is not stored in one piece.
#[inline]
fn hash_of(
    layout: &RowLayout,
    pool: &PagePool,
    chunks: &ChunkStore,
    row: Row<'_>,
    key: &mut Vec<u8>,
) -> KeyHash {
    match layout.key_bytes() {
        Some(bytes) => KeyHash::of(&row.fixed()[..usize::from(bytes)]),
        None => {
            key.clear();
            layout.write_key(row.fixed(), variable_of(pool, chunks, row), key);
            KeyHash::of(key)
        }
    }
}
