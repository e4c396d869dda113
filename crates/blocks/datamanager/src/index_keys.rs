//! The keys that rows have in ordered indexes: of the version in the slot, and of those that open operations have made.

use crate::DataManager;
use crate::operation::Change;
use crate::versions::Versions;
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::order_key::OrderKey;
use vinga_base::page_pool::PagePool;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowLayout;
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::fragment::Fragment;
use vinga_fragment::ordered_index::KeySource;
use vinga_fragment::row_store::RowStore;
use vinga_fragment::row_version::RowVersion;

/// Some keys, one behind the other.
#[derive(Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn last(&self) -> &[u8] {
        self.key(self.len() - 1)
    }

    pub fn key(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[at]]
    }

    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Buffers for keys, used again and again.
#[derive(Default)]
pub struct KeyScratch {
    /// Keys that are entered or removed.
    pub keys: KeyList,
    /// The keys of a row that is overwritten, one for each index.
    pub replaced: KeyList,
    /// Changes of a row, newest first.
    pub changes: Vec<Handle>,
    /// Where [`RowKeys`] makes keys.
    pub key: Vec<u8>,
}

/// Where versions of rows are: what the keys of entries are found with.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub chunks: &'a ChunkStore,
    pub layout: &'a RowLayout,
    pub rows: &'a RowStore,
    pub versions: &'a Versions,
}

impl<'a> Places<'a> {
    /// The places of a fragment's rows.
    #[inline]
    pub fn of(data_manager: &'a DataManager, fragment: &'a Fragment) -> Self {
        Places {
            chunks: &data_manager.store.chunks,
            layout: fragment.layout(),
            rows: fragment.rows(),
            versions: &data_manager.versions,
        }
    }

    /// Appends the key of the version in a row's slot.
    #[inline]
    pub fn write_slot(&self, pool: &PagePool, order: &OrderKey, row: RowId, out: &mut Vec<u8>) {
        let row = self.rows.row(pool, row);
        let variable = row.variable().map_or(&[][..], |variable| self.chunks.bytes(pool, variable));
        order.write_row(self.layout, row.fixed(), variable, out);
    }

    pub fn write_image(&self, pool: &PagePool, order: &OrderKey, image: &RowVersion, out: &mut Vec<u8>) {
        let (fixed, variable) = image.parts(pool, self.chunks);
        order.write_row(self.layout, fixed, variable, out);
    }

    /// The newest change of a row.
    #[inline]
    pub fn newest_change(&self, pool: &PagePool, row: RowId) -> Option<Handle> {
        match self.rows.row(pool, row).operation().0 {
            0 => None,
            reference => {
                let state = self.versions.row_state_at(reference);
                self.versions.rows[state].newest_change
            }
        }
    }

    /// A chain of changes, newest first.
    pub fn changes(&self, newest: Option<Handle>) -> impl Iterator<Item = Handle> + use<'a> {
        let operations = &self.versions.operations;
        core::iter::successors(newest, |&at| operations[at].older_change)
    }

    /// The images of a chain of changes, newest first.
    pub fn images(&self, newest: Option<Handle>) -> impl Iterator<Item = &'a RowVersion> + use<'a> {
        let operations = &self.versions.operations;
        self.changes(newest).filter_map(|at| match &operations[at].change {
            Change::Replace(image) => Some(image),
            Change::Insert | Change::Delete => None,
            Change::None => unreachable!("only changes are linked"),
        })
    }

    /// The first row from a row id on.
    pub fn next_row(&self, pool: &PagePool, from: RowId) -> Option<RowId> {
        let mut slot = from.slot();
        for page in from.page()..self.rows.page_count() {
            let found = self.rows.page(pool, page).and_then(|view| view.next_live_slot(slot));
            if let Some(slot) = found {
                return Some(RowId::new(page, slot));
            }
            slot = 0;
        }
        None
    }

    /// Calls `each` with the key of each version of a row, oldest first.
    pub fn for_each_version(
        &self,
        pool: &PagePool,
        order: &OrderKey,
        row: RowId,
        mut each: impl FnMut(&[u8]),
    ) {
        let mut key = Vec::new();
        self.write_slot(pool, order, row, &mut key);
        each(&key);
        let images: Vec<_> = self.images(self.newest_change(pool, row)).collect();
        for image in images.into_iter().rev() {
            key.clear();
            self.write_image(pool, order, image, &mut key);
            each(&key);
        }
    }

    /// Appends the key of a row's newest version.
    pub fn write_newest(&self, pool: &PagePool, order: &OrderKey, row: RowId, out: &mut Vec<u8>) {
        match self.images(self.newest_change(pool, row)).next() {
            Some(image) => self.write_image(pool, order, image, out),
            None => self.write_slot(pool, order, row, out),
        }
    }
}

/// Names the keys of all versions of rows to an index: see `index_entries`.
pub struct RowKeys<'a> {
    places: Places<'a>,
    order: &'a OrderKey,
    /// The row of which keys are being removed, and the keys of it that are left, from a place on.
    pub removing: Option<(RowId, &'a KeyList, usize)>,
    /// The byte of the fixed part that decides whether more of a row is looked at, if that is known.
    pub decisive_byte: Option<usize>,
    /// Whether rows are looked at.
    pub needs_rows: bool,
    /// Whether their variable parts are.
    pub needs_variable: bool,
    key: &'a mut Vec<u8>,
}

impl<'a> RowKeys<'a> {
    /// A source of the keys of one index. `key` is where they are made.
    #[inline]
    pub fn new(places: Places<'a>, order: &'a OrderKey, key: &'a mut Vec<u8>) -> Self {
        RowKeys {
            places,
            order,
            removing: None,
            decisive_byte: None,
            needs_rows: true,
            needs_variable: false,
            key,
        }
    }
}

impl KeySource for RowKeys<'_> {
    fn keys(&mut self, pool: &PagePool, row: RowId, mut each: impl FnMut(&[u8])) {
        let RowKeys { places, order, removing, key, .. } = self;
        if let Some((_, keys, from)) = removing.filter(|removing| removing.0 == row) {
            return (from..keys.len()).for_each(|at| each(keys.key(at)));
        }
        key.clear();
        places.write_slot(pool, order, row, key);
        each(key);
        for image in places.images(places.newest_change(pool, row)) {
            key.clear();
            places.write_image(pool, order, image, key);
            each(key);
        }
    }

    #[inline]
    fn prefetch(&self, pool: &PagePool, row: RowId) {
        match self.decisive_byte {
            _ if !self.needs_rows => {}
            Some(byte) => self.places.rows.prefetch_byte(pool, row, byte),
            None => self.places.rows.prefetch(pool, row),
        }
    }

    #[inline]
    fn prefetch_rest(&self, pool: &PagePool, row: RowId) {
        if self.needs_variable
            && let Some(chunk) = self.places.rows.row(pool, row).variable()
        {
            self.places.chunks.prefetch(pool, chunk);
        }
    }
}
