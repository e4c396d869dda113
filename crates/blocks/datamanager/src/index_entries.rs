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
//! Removing takes no memory and can't fail. While one key after the other is removed, the index must not be shown
//! keys that have no entry any more: [`RowKeys`] then names those that are left (`index_keys`).

use crate::index_keys::{KeyScratch, Places, RowKeys};
use crate::operation::Change;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::pool::Handle;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::ordered_index::KeySource;
use vinga_fragment::row_version::RowVersion;

/// A version of a row that is not, or not yet, one of those that [`Places`] knows.
#[derive(Clone, Copy)]
pub enum Image<'a> {
    Stored(&'a RowVersion),
    /// Fixed and variable part.
    Bytes(&'a [u8], &'a [u8]),
}

/// The ordered indexes of a fragment, and all that changing them takes.
pub struct IndexEntries<'a> {
    pub pages: &'a mut PagePool,
    pub places: Places<'a>,
    pub indexes: &'a mut [FragmentIndex],
    pub scratch: &'a mut KeyScratch,
}

impl IndexEntries<'_> {
    /// Enters the last of the gathered keys in an index.
    fn insert(&mut self, at: usize, row: RowId) -> Result<(), OutOfPages> {
        let KeyScratch { keys, key, .. } = &mut *self.scratch;
        let (tree, order) = self.indexes[at].parts();
        let mut source = RowKeys::new(self.places, order, key);
        tree.insert(self.pages, Purpose::Ordinary, &mut source, keys.last(), row)
    }

    /// Removes the last of the gathered keys from an index.
    fn remove(&mut self, at: usize, row: RowId) {
        let KeyScratch { keys, key, .. } = &mut *self.scratch;
        let (tree, order) = self.indexes[at].parts();
        let mut source = RowKeys::new(self.places, order, key);
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

    /// The parts of an image that is in no chunk.
    pub fn image<'b>(&self, image: &'b [u8]) -> Image<'b> {
        let (fixed, variable) = self.places.layout.split(image);
        Image::Bytes(fixed, variable)
    }

    /// Enters a row that has just got its slot.
    ///
    /// # Errors
    /// [`OutOfPages`]: it is in no index.
    pub fn enter_slot(&mut self, row: RowId) -> Result<(), OutOfPages> {
        for at in 0..self.indexes.len() {
            self.gather_slot(at, row);
            if let Err(refused) = self.insert(at, row) {
                self.leave_slot_of(row, at);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Removes a row with one version, which is about to lose its slot.
    pub fn leave_slot(&mut self, row: RowId) {
        self.leave_slot_of(row, self.indexes.len());
    }

    /// Removes a row with one version from the first indexes.
    fn leave_slot_of(&mut self, row: RowId, indexes: usize) {
        for at in 0..indexes {
            self.gather_slot(at, row);
            self.remove(at, row);
        }
    }

    /// Enters an image that becomes the newest version of a row, where its key is another.
    ///
    /// # Errors
    /// [`OutOfPages`]: it is in no index.
    pub fn enter_image(&mut self, row: RowId, image: Image<'_>) -> Result<(), OutOfPages> {
        for at in 0..self.indexes.len() {
            if self.gather_image(at, row, image)
                && let Err(refused) = self.insert(at, row)
            {
                self.leave_image_of(row, image, at);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Removes what an image, which is not among the row's changes any more, has entered.
    pub fn leave_image(&mut self, row: RowId, image: Image<'_>) {
        self.leave_image_of(row, image, self.indexes.len());
    }

    /// The same in the first indexes.
    fn leave_image_of(&mut self, row: RowId, image: Image<'_>, indexes: usize) {
        for at in 0..indexes {
            if self.gather_image(at, row, image) {
                self.remove(at, row);
            }
        }
    }

    /// Removes what the versions of a row have entered before the newest one, and that one too if the row vanishes.
    pub fn leave_older(&mut self, row: RowId, newest: Handle) {
        (0..self.indexes.len()).for_each(|at| self.leave_older_of(at, row, newest));
    }

    /// The same in one index.
    fn leave_older_of(&mut self, at: usize, row: RowId, newest: Handle) {
        let IndexEntries { pages, places, indexes, scratch } = self;
        let (tree, order) = indexes[at].parts();
        let KeyScratch { keys, changes, key, .. } = &mut **scratch;
        keys.clear();
        changes.clear();
        changes.extend(places.changes(Some(newest)));
        keys.push(|out| places.write_slot(pages, order, row, out));
        for &change in changes.iter().rev() {
            if let Change::Replace(image) = &places.versions.operations[change].change {
                keys.push(|out| places.write_image(pages, order, image, out));
            }
        }
        let (versions, vanishes) = (keys.len(), places.versions.operations[newest].change == Change::Delete);
        for version in 0..versions {
            let is_entered = match version + 1 {
                next if next == versions => vanishes,
                next => keys.key(version) != keys.key(next),
            };
            if is_entered {
                let mut source = RowKeys::new(*places, order, key);
                source.removing = Some((row, keys, version + 1));
                tree.remove(pages, &mut source, keys.key(version), row);
            }
        }
    }
}

/// Overwriting a row in its slot.
impl IndexEntries<'_> {
    /// Gathers the key of a row's slot in each index.
    pub fn gather_replaced(&mut self, row: RowId) {
        let replaced = &mut self.scratch.replaced;
        replaced.clear();
        for index in &*self.indexes {
            replaced.push(|out| self.places.write_slot(self.pages, index.order(), row, out));
        }
    }

    /// The slot was overwritten: removes the gathered keys where it has others now.
    pub fn leave_replaced(&mut self, row: RowId) {
        for at in 0..self.indexes.len() {
            self.gather_slot(at, row);
            let KeyScratch { keys, replaced, key, .. } = &mut *self.scratch;
            if replaced.key(at) != keys.last() {
                let (tree, order) = self.indexes[at].parts();
                let mut source = RowKeys::new(self.places, order, key);
                tree.remove(self.pages, &mut source, replaced.key(at), row);
            }
        }
    }

    /// Whether in some index the key of an image is that of an older version of its row but not of the newest one.
    pub fn knows_keys_of(&mut self, row: RowId, image: &RowVersion) -> bool {
        (0..self.indexes.len()).any(|at| {
            let differs = self.gather_image(at, row, Image::Stored(image));
            let KeyScratch { keys, key, .. } = &mut *self.scratch;
            let mut is_known = false;
            let mut source = RowKeys::new(self.places, self.indexes[at].order(), key);
            source.keys(self.pages, row, |known| is_known |= known == keys.last());
            differs && is_known
        })
    }
}
