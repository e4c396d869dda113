//! Shared by the tests in this folder: tables, a pool that refuses on demand, a plain index.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::{Arc, Mutex};
use vinga_base::ColumnId;
use vinga_base::page_pool::{FreePages, HeapRegion, PageNumber, PagePool, PageSupply, Purpose};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};

/// A checked layout with these columns (type, nullable) and this key.
pub fn layout(columns: &[(ColumnType, bool)], key: &[u16]) -> RowLayout {
    let definition = TableDefinition {
        name: "d.t".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(i, &(column_type, nullable))| ColumnDefinition {
                name: format!("c{i}"),
                column_type,
                nullable,
            })
            .collect(),
        primary_key: key.iter().map(|&k| ColumnId(k)).collect(),
        ..TableDefinition::default()
    };
    definition.check().unwrap();
    RowLayout::new(&definition)
}

/// How many more pages a pool may allocate.
#[derive(Clone)]
pub struct Fuse(Arc<Mutex<(FreePages, u32)>>);

impl Fuse {
    /// A pool of `pages` pages with its fuse.
    pub fn pool(pages: u32) -> (PagePool, Fuse) {
        let fuse = Fuse(Arc::new(Mutex::new((FreePages::new(pages), u32::MAX))));
        (PagePool::new(Arc::new(HeapRegion::new(pages)), Box::new(fuse.clone())), fuse)
    }

    /// Refuses after this many pages.
    pub fn set(&self, pages: u32) {
        self.0.lock().unwrap().1 = pages;
    }
}

impl PageSupply for Fuse {
    fn take(&self, purpose: Purpose) -> Option<PageNumber> {
        let (pages, left) = &mut *self.0.lock().unwrap();
        *left = left.checked_sub(1)?;
        pages.take(purpose)
    }

    fn give_back(&self, page: PageNumber) {
        self.0.lock().unwrap().0.give_back(page);
    }

    fn usage(&self) -> (u32, u32) {
        let pages = &self.0.lock().unwrap().0;
        (pages.used(), pages.all())
    }
}
