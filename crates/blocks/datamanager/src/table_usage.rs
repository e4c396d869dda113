//! What each table takes here, for people.

use crate::DataManager;
use crate::tables::Table;
use alloc::collections::BTreeMap;
use vinga_base::RowId;
use vinga_base::page_pool::PAGE_BYTES;
use vinga_base::schema::TableDefinition;
use vinga_fragment::fragment::Fragment;

/// Rows of a fragment whose variable parts are looked at: they stand for the others, so that a large table takes no
/// more time than a small one.
const SAMPLES: u32 = 4;

/// What a table takes at one data manager.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableUsage {
    /// Rows; those whose insert or delete is not committed yet are counted.
    pub rows: u64,
    /// Bytes of rows: pages of their fixed parts, and an estimate of their variable parts.
    pub row_bytes: u64,
    /// Bytes of its hash index, its ordered indexes and its unique ones.
    pub index_bytes: u64,
}

impl DataManager {
    /// What the tables take here that users know, by name; what unique indexes take is their tables'.
    pub fn table_usage(&self) -> BTreeMap<&str, TableUsage> {
        let mut tables: BTreeMap<&str, TableUsage> = BTreeMap::new();
        for (_, table) in self.store.tables.iter().filter(|(_, table)| !table.is_gone) {
            let of_index = TableDefinition::index_of_hidden(&table.name);
            // A hidden table goes with the table that it belongs to.
            let owner = match of_index {
                Some((owner, _)) => self.store.tables.present(owner).map(|owner| owner.name.as_str()),
                None => Some(table.name.as_str()),
            };
            let Some(owner) = owner else { continue };
            let mut own = TableUsage::default();
            for (_, fragment) in table.fragments() {
                self.add_fragment(fragment, &mut own);
            }
            let sum = tables.entry(owner).or_default();
            if of_index.is_some() {
                sum.index_bytes += own.row_bytes + own.index_bytes;
            } else {
                sum.rows += own.rows;
                sum.row_bytes += own.row_bytes;
                sum.index_bytes += own.index_bytes;
            }
        }
        tables
    }

    /// Bytes of the rows of tables that are logged: what a checkpoint with all pages contains, with an estimate of
    /// their variable parts.
    pub fn logged_bytes(&self) -> u64 {
        let mut sum = TableUsage::default();
        let logged = self.store.tables.iter().filter(|(_, table)| table.is_logged && !table.is_gone);
        for (_, fragment) in logged.flat_map(|(_, table)| table.fragments()) {
            self.add_fragment(fragment, &mut sum);
        }
        sum.row_bytes
    }

    fn add_fragment(&self, fragment: &Fragment, sum: &mut TableUsage) {
        let rows = fragment.rows().usage();
        sum.rows += rows.rows;
        sum.row_bytes += u64::from(rows.pages) * PAGE_BYTES as u64 + rows.heap_bytes;
        sum.row_bytes += self.variable_bytes(fragment, rows.rows);
        sum.index_bytes += fragment.index().memory_bytes() as u64;
        for index in fragment.indexes() {
            let tree = index.tree.usage();
            sum.index_bytes += tree.bytes + tree.heap_bytes;
        }
    }

    /// Bytes of the images of all rows of a fragment, about.
    pub(crate) fn image_bytes(&self, table: &Table, fragment: &Fragment) -> u64 {
        let rows = fragment.rows().usage().rows;
        rows * table.layout.fixed_bytes() as u64 + self.variable_bytes(fragment, rows)
    }

    /// Bytes of the variable parts of all rows, from those of a few in pages far apart.
    fn variable_bytes(&self, fragment: &Fragment, rows: u64) -> u64 {
        let pages = fragment.rows().page_count();
        let (mut bytes, mut seen) = (0, 0);
        for sample in 0..SAMPLES.min(pages) {
            let page = u64::from(sample) * u64::from(pages) / u64::from(SAMPLES.min(pages));
            let page = page as u32;
            let view = fragment.rows().page(&self.store.pages, page);
            if let Some(slot) = view.and_then(|view| view.next_live_slot(0)) {
                let row = RowId::new(page, slot);
                bytes += fragment.parts(&self.store.pages, &self.store.chunks, row).1.len() as u64;
                seen += 1;
            }
        }
        bytes * rows / u64::max(seen, 1)
    }
}
