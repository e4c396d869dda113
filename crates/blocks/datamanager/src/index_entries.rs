//! The entries of ordered indexes: when they come and when they go.
//!
//! A row has one version in its slot (the committed one that readers are shown, or an insert that is not committed) and
//! one in each change that open operations have made of it, oldest first: `v0`, `v1` … `vn`; deletes are no versions.
//! In each ordered index it is entered
//!
//! - once for `v0`, and
//! - once for each `vi` whose key differs from that of the version before it.
//!
//! So a change of other columns costs no entry, and a row that goes from key a to b and back to a has a twice and b
//! once. An entry comes when its operation is prepared, at the primary and at backups alike; if memory is refused for
//! one, those in other indexes are taken out again and the operation is refused. Entries go
//!
//! - when the newest change is undone: what it had entered;
//! - when the newest version is installed in the slot, which is when readers are no longer shown the old one at this
//!   replica (at the primary at commit, at a backup when it learns that all have committed): for each `vi` that was
//!   entered, that of the version before it. What is left is one entry for `vn`; if the row vanishes, that goes too,
//!   before its slot does.
//!
//! Removing takes no memory and can't fail. While one key after the other is removed, the index must not be told of
//! keys that have no entry any more: [`Versions`] then names those that are left (`index_keys`).

use crate::index_keys::{KeyScratch, Places, Versions};
use crate::operation::{Change, State};
use crate::{DataManager, Store};
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::pool::Handle;
use vinga_base::{PartitionId, RowId};
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::ordered_index::KeySource;
use vinga_fragment::row_version::RowVersion;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::ErrorCode;

/// A version of a row that is not, or not yet, one of those that [`Places`] knows.
#[derive(Clone, Copy)]
pub enum Image<'a> {
    Stored(&'a RowVersion),
    /// Fixed and variable part.
    Bytes(&'a [u8], &'a [u8]),
}

/// The ordered indexes of a fragment, and all that changing them takes.
struct Work<'a> {
    pages: &'a mut PagePool,
    places: Places<'a>,
    indexes: &'a mut [FragmentIndex],
    scratch: &'a mut KeyScratch,
}

impl Work<'_> {
    /// Enters the last of the gathered keys in an index.
    fn insert(&mut self, at: usize, row: RowId) -> Result<(), OutOfPages> {
        let KeyScratch { keys, key, .. } = &mut *self.scratch;
        let (tree, order) = self.indexes[at].parts();
        let mut source = Versions::new(self.places, order, key);
        tree.insert(self.pages, Purpose::Ordinary, &mut source, keys.last(), row)
    }

    /// Removes the last of the gathered keys from an index.
    fn remove(&mut self, at: usize, row: RowId) {
        let KeyScratch { keys, key, .. } = &mut *self.scratch;
        let (tree, order) = self.indexes[at].parts();
        let mut source = Versions::new(self.places, order, key);
        tree.remove(self.pages, &mut source, keys.last(), row);
    }

    /// Gathers the key in an index of the version in a row's slot.
    fn gather_slot(&mut self, at: usize, row: RowId) {
        let keys = &mut self.scratch.keys;
        keys.clear();
        keys.push(|out| self.places.write_slot(self.pages, self.indexes[at].order(), row, out));
    }

    /// Gathers the keys in an index of a row's newest version and of an image; says whether they differ.
    fn gather_image(&mut self, at: usize, row: RowId, image: Image<'_>) -> bool {
        let (places, order) = (&self.places, self.indexes[at].order());
        let keys = &mut self.scratch.keys;
        keys.clear();
        keys.push(|out| places.write_newest(self.pages, order, row, out));
        keys.push(|out| match image {
            Image::Stored(image) => places.write_image(self.pages, order, image, out),
            Image::Bytes(fixed, variable) => order.write_row(places.layout, fixed, variable, out),
        });
        keys.key(0) != keys.key(1)
    }

    fn enter_slot(&mut self, row: RowId) -> Result<(), OutOfPages> {
        for at in 0..self.indexes.len() {
            self.gather_slot(at, row);
            if let Err(refused) = self.insert(at, row) {
                self.leave_slot(row, at);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Removes a row with one version from the first indexes.
    fn leave_slot(&mut self, row: RowId, indexes: usize) {
        for at in 0..indexes {
            self.gather_slot(at, row);
            self.remove(at, row);
        }
    }

    fn enter_image(&mut self, row: RowId, image: Image<'_>) -> Result<(), OutOfPages> {
        for at in 0..self.indexes.len() {
            if self.gather_image(at, row, image)
                && let Err(refused) = self.insert(at, row)
            {
                self.leave_image(row, image, at);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Removes what an image, which is not among the row's changes, has entered in the first indexes.
    fn leave_image(&mut self, row: RowId, image: Image<'_>, indexes: usize) {
        for at in 0..indexes {
            if self.gather_image(at, row, image) {
                self.remove(at, row);
            }
        }
    }

    /// Removes from an index what the versions of a row have entered before the newest one, and that one too if the row
    /// vanishes.
    fn leave_older(&mut self, at: usize, row: RowId, newest: Handle) {
        let Work { pages, places, indexes, scratch } = self;
        let (tree, order) = indexes[at].parts();
        let KeyScratch { keys, changes, key, .. } = &mut **scratch;
        keys.clear();
        changes.clear();
        changes.extend(places.changes(Some(newest)));
        keys.push(|out| places.write_slot(pages, order, row, out));
        for &change in changes.iter().rev() {
            if let Change::Replace(image) = &places.operations[change].change {
                keys.push(|out| places.write_image(pages, order, image, out));
            }
        }
        let (versions, vanishes) = (keys.len(), places.operations[newest].change == Change::Delete);
        for version in 0..versions {
            let is_entered = match version + 1 {
                next if next == versions => vanishes,
                next => keys.key(version) != keys.key(next),
            };
            if is_entered {
                let mut source = Versions::new(*places, order, key);
                source.removing = Some((row, keys, version + 1));
                tree.remove(pages, &mut source, keys.key(version), row);
            }
        }
    }
}

impl DataManager {
    /// What changing the ordered indexes of a fragment takes; `None` if it has none.
    #[inline]
    fn index_work(&mut self, table: u32, partition: PartitionId) -> Option<Work<'_>> {
        let Store { pages, chunks, tables } = &mut self.store;
        let (layout, rows, indexes) = tables.current_mut(table).fragment_mut(partition).split_indexes();
        if indexes.is_empty() {
            return None;
        }
        let places = Places { chunks, layout, rows, operations: &self.operations, states: &self.rows };
        Some(Work { pages, places, indexes, scratch: &mut self.scratch.keys })
    }

    /// Enters a row that has just got its slot.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and the row is gone again.
    #[inline]
    pub(crate) fn enter_row(
        &mut self,
        table: u32,
        partition: PartitionId,
        hash: KeyHash,
        row: RowId,
    ) -> Result<(), ErrorCode> {
        let Some(mut work) = self.index_work(table, partition) else { return Ok(()) };
        if work.enter_slot(row).is_ok() {
            return Ok(());
        }
        let store = &mut self.store;
        let fragment = store.tables.current_mut(table).fragment_mut(partition);
        fragment.remove_row(&mut store.pages, &mut store.chunks, hash, row);
        Err(ErrorCode::DataMemoryFull)
    }

    /// Removes the entries of a row with one version, which is about to lose its slot.
    #[inline]
    pub(crate) fn leave_row(&mut self, table: u32, partition: PartitionId, row: RowId) {
        if let Some(mut work) = self.index_work(table, partition) {
            work.leave_slot(row, work.indexes.len());
        }
    }

    /// Makes an image a new version of a row, entered where its key is another. It is still to be linked to the row.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and nothing is left of it.
    pub(crate) fn make_version(
        &mut self,
        cx: &Context<'_>,
        table: u32,
        partition: PartitionId,
        row: RowId,
        image: &[u8],
    ) -> Result<Change, ErrorCode> {
        let image = self.store_image(table, image)?;
        if let Some(mut work) = self.index_work(table, partition) {
            if cx.has_bug(InjectedBug::EntriesAreNotCounted) && work.knows_keys_of(row, &image) {
                return Ok(Change::Replace(image));
            }
            if work.enter_image(row, Image::Stored(&image)).is_err() {
                self.free_image(image);
                return Err(ErrorCode::DataMemoryFull);
            }
        }
        Ok(Change::Replace(image))
    }

    /// Removes what an image has entered, which is not linked to its row any more.
    #[inline]
    pub(crate) fn leave_version(
        &mut self,
        table: u32,
        partition: PartitionId,
        row: RowId,
        image: &RowVersion,
    ) {
        if let Some(mut work) = self.index_work(table, partition) {
            work.leave_image(row, Image::Stored(image), work.indexes.len());
        }
    }

    /// The newest of a chain of changes, which the row does not name any more, is about to be installed: removes what
    /// older versions have entered.
    #[inline]
    pub(crate) fn leave_replaced_entries(
        &mut self,
        cx: &Context<'_>,
        table: u32,
        partition: PartitionId,
        row: RowId,
        newest: Handle,
    ) {
        // What was removed too early must not be removed again.
        let is_gone = cx.has_bug(InjectedBug::EntriesGoAtCommit)
            && matches!(self.operations[newest].state, State::Committed { shown: false, .. });
        if !is_gone && let Some(mut work) = self.index_work(table, partition) {
            (0..work.indexes.len()).for_each(|at| work.leave_older(at, row, newest));
        }
    }

    /// Overwrites a row that no operation names.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and all is as it was.
    pub(crate) fn overwrite_row(
        &mut self,
        table: u32,
        partition: PartitionId,
        row: RowId,
        image: &[u8],
    ) -> Result<(), ErrorCode> {
        let Some(mut work) = self.index_work(table, partition) else {
            return self.overwrite_slot(table, partition, row, image).map_err(|_| ErrorCode::DataMemoryFull);
        };
        let (fixed, variable) = work.places.layout.split(image);
        let image_parts = Image::Bytes(fixed, variable);
        let refused = |OutOfPages| ErrorCode::DataMemoryFull;
        work.enter_image(row, image_parts).map_err(refused)?;
        work.gather_replaced(row);
        if let Err(OutOfPages) = self.overwrite_slot(table, partition, row, image) {
            let mut work = self.index_work(table, partition).expect("it has indexes");
            let (fixed, variable) = work.places.layout.split(image);
            work.leave_image(row, Image::Bytes(fixed, variable), work.indexes.len());
            return Err(ErrorCode::DataMemoryFull);
        }
        self.index_work(table, partition).expect("it has indexes").leave_replaced(row);
        Ok(())
    }

    fn overwrite_slot(
        &mut self,
        table: u32,
        partition: PartitionId,
        row: RowId,
        image: &[u8],
    ) -> Result<(), OutOfPages> {
        let store = &mut self.store;
        let fragment = store.tables.current(table).fragment(partition);
        fragment.store_image(&mut store.pages, &mut store.chunks, Purpose::Ordinary, row, image)
    }
}

/// Overwriting a row in its slot.
impl Work<'_> {
    /// Gathers the key of a row's slot in each index.
    fn gather_replaced(&mut self, row: RowId) {
        let replaced = &mut self.scratch.replaced;
        replaced.clear();
        for index in &*self.indexes {
            replaced.push(|out| self.places.write_slot(self.pages, index.order(), row, out));
        }
    }

    /// The slot was overwritten: removes the gathered keys where it has others now.
    fn leave_replaced(&mut self, row: RowId) {
        for at in 0..self.indexes.len() {
            self.gather_slot(at, row);
            let KeyScratch { keys, replaced, key, .. } = &mut *self.scratch;
            if replaced.key(at) != keys.last() {
                let (tree, order) = self.indexes[at].parts();
                let mut source = Versions::new(self.places, order, key);
                tree.remove(self.pages, &mut source, replaced.key(at), row);
            }
        }
    }

    /// Whether in some index the key of an image is that of an older version of its row but not of the newest one.
    fn knows_keys_of(&mut self, row: RowId, image: &RowVersion) -> bool {
        (0..self.indexes.len()).any(|at| {
            let differs = self.gather_image(at, row, Image::Stored(image));
            let KeyScratch { keys, key, .. } = &mut *self.scratch;
            let mut is_known = false;
            let mut source = Versions::new(self.places, self.indexes[at].order(), key);
            source.keys(self.pages, row, |known| is_known |= known == keys.last());
            differs && is_known
        })
    }
}
