//! The pages of one store, by their index in it.
//!
//! A store numbers its pages by a small index of its own, because an index into the whole region would need more bits
//! than a row id has. An index whose page was returned to the pool is *vacant* and is used again before the table
//! grows. In addition to the page's number the table holds what the store has to know of a page (its *state*). It is
//! kept here and not at the beginning of the page, because here the states of five pages share a cache line: freeing a
//! random row then causes no cache miss but that of the row.
//!
//! Pages can be put in lists (those with room, for example); a page is in at most one list at a time. The vacant
//! indices are such a list, too.
//!
//! The table itself is on the heap: 4 bytes and the state with its two links, about 0.05 % of the page. It grows by
//! fallible allocation, so that a lack of memory is refused like a lack of pages.

use alloc::vec::Vec;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PageNumber, PagePool, Purpose};

/// "No page": the end of a list, and the number of a vacant page (no region is that large).
const NONE: u32 = u32::MAX;

/// A doubly linked list of pages of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageList(u32);

impl PageList {
    /// The list without pages.
    pub(crate) const EMPTY: PageList = PageList(NONE);

    /// The page that was inserted last.
    #[inline]
    pub(crate) fn first(self) -> Option<u32> {
        (self.0 != NONE).then_some(self.0)
    }
}

struct Entry<S> {
    previous: u32,
    next: u32,
    state: S,
}

pub(crate) struct PageTable<S> {
    pages: Vec<PageNumber>,
    entries: Vec<Entry<S>>,
    vacant: PageList,
    used: u32,
    pages_max: u32,
}

impl<S> PageTable<S> {
    /// A table without pages that never holds more than `pages_max` indices.
    pub(crate) fn new(pages_max: u32) -> Self {
        PageTable { pages: Vec::new(), entries: Vec::new(), vacant: PageList::EMPTY, used: 0, pages_max }
    }

    /// Indices in use are below this; vacant ones may lie between them.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Pages that the table holds.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Bytes that the table takes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageNumber>() + self.entries.capacity() * size_of::<Entry<S>>()
    }

    /// Whether there is a page with this index.
    #[inline]
    pub(crate) fn holds(&self, index: u32) -> bool {
        self.pages.get(index as usize).is_some_and(|page| page.0 != NONE)
    }

    /// The bytes of a page that the table holds.
    #[inline]
    pub(crate) fn bytes<'a>(&self, pool: &'a PagePool, index: u32) -> &'a [u8; PAGE_BYTES] {
        pool.bytes(self.pages[index as usize])
    }

    /// The bytes of a page that the table holds, to change them.
    #[inline]
    pub(crate) fn bytes_mut<'a>(&self, pool: &'a mut PagePool, index: u32) -> &'a mut [u8; PAGE_BYTES] {
        pool.bytes_mut(self.pages[index as usize])
    }

    /// The address of a page, if there is one with this index; only for prefetching, not to read.
    #[inline]
    pub(crate) fn address(&self, pool: &PagePool, index: u32) -> Option<*const u8> {
        let page = *self.pages.get(index as usize)?;
        (page.0 != NONE).then(|| pool.address(page).cast_const())
    }

    /// The store's state of a page that the table holds.
    #[inline]
    pub(crate) fn state(&self, index: u32) -> &S {
        &self.entries[index as usize].state
    }

    /// The store's state of a page that the table holds, to change it.
    #[inline]
    pub(crate) fn state_mut(&mut self, index: u32) -> &mut S {
        &mut self.entries[index as usize].state
    }

    /// The index that a new page should get: a vacant one, or the next at the end.
    pub(crate) fn next_index(&self) -> u32 {
        self.vacant.first().unwrap_or(self.len())
    }

    /// Takes a page from the pool for an index that has none. The page is in no list.
    ///
    /// # Errors
    /// [`OutOfPages`] if the pool refuses, or when the index is beyond the last or the heap is used up.
    pub(crate) fn add(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        index: u32,
        state: S,
    ) -> Result<(), OutOfPages>
    where
        S: Default,
    {
        assert!(!self.holds(index), "an index has one page");
        if index >= self.pages_max {
            return Err(OutOfPages);
        }
        let missing = (index as usize + 1).saturating_sub(self.pages.len());
        self.pages.try_reserve(missing).map_err(|_| OutOfPages)?;
        self.entries.try_reserve(missing).map_err(|_| OutOfPages)?;
        let page = pool.allocate(purpose)?;
        while self.len() <= index {
            let added = self.len();
            self.pages.push(PageNumber(NONE));
            self.entries.push(Entry { previous: NONE, next: NONE, state: S::default() });
            link(&mut self.entries, &mut self.vacant, added);
        }
        unlink(&mut self.entries, &mut self.vacant, index);
        self.pages[index as usize] = page;
        self.entries[index as usize].state = state;
        self.used += 1;
        Ok(())
    }

    /// Returns a page, which must be in no list, to the pool. Its index becomes vacant; when it was the last page, the
    /// table is emptied.
    pub(crate) fn remove(&mut self, pool: &mut PagePool, index: u32) {
        assert!(self.holds(index), "only a page that is there can be given back");
        pool.free(core::mem::replace(&mut self.pages[index as usize], PageNumber(NONE)));
        self.used -= 1;
        if self.used == 0 {
            self.pages.clear();
            self.entries.clear();
            self.vacant = PageList::EMPTY;
        } else {
            link(&mut self.entries, &mut self.vacant, index);
        }
    }

    /// Puts a page, which must be in no list, at the front of one.
    #[inline]
    pub(crate) fn link(&mut self, list: &mut PageList, index: u32) {
        link(&mut self.entries, list, index);
    }

    /// Removes a page from the list that it is in.
    #[inline]
    pub(crate) fn unlink(&mut self, list: &mut PageList, index: u32) {
        unlink(&mut self.entries, list, index);
    }
}

fn link<S>(entries: &mut [Entry<S>], list: &mut PageList, index: u32) {
    let entry = &mut entries[index as usize];
    entry.previous = NONE;
    entry.next = list.0;
    if list.0 != NONE {
        entries[list.0 as usize].previous = index;
    }
    list.0 = index;
}

fn unlink<S>(entries: &mut [Entry<S>], list: &mut PageList, index: u32) {
    let Entry { previous, next, .. } = entries[index as usize];
    if previous == NONE {
        debug_assert_eq!(list.0, index, "a page without a predecessor is the first of its list");
        list.0 = next;
    } else {
        entries[previous as usize].next = next;
    }
    if next != NONE {
        entries[next as usize].previous = previous;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_next(table: &mut PageTable<u8>, pool: &mut PagePool, state: u8) -> Result<u32, OutOfPages> {
        let index = table.next_index();
        table.add(pool, Purpose::Ordinary, index, state).map(|()| index)
    }

    #[test]
    fn vacant_indices_are_used_again_and_gaps_are_vacant() {
        let mut pool = PagePool::standalone(9);
        let mut table = PageTable::<u8>::new(6);
        assert_eq!(add_next(&mut table, &mut pool, 1), Ok(0));
        assert_eq!(table.add(&mut pool, Purpose::Ordinary, 3, 2), Ok(()));
        assert_eq!((table.len(), table.used()), (4, 2));
        assert!(!table.holds(1) && !table.holds(2) && table.holds(3) && !table.holds(4));
        let mut added = [0, 0].map(|_| add_next(&mut table, &mut pool, 3).unwrap());
        added.sort_unstable();
        assert_eq!(added, [1, 2]);
        assert_eq!(add_next(&mut table, &mut pool, 4), Ok(4));
        assert_eq!(add_next(&mut table, &mut pool, 4), Ok(5));
        assert_eq!(add_next(&mut table, &mut pool, 5), Err(OutOfPages));
        assert_eq!((table.len(), table.used(), pool.owned()), (6, 6, 6));
        for index in [3, 0, 5, 4, 2] {
            table.remove(&mut pool, index);
        }
        assert_eq!((table.len(), table.used(), *table.state(1)), (6, 1, 3));
        table.remove(&mut pool, 1);
        assert_eq!((table.len(), pool.owned()), (0, 0));
        assert_eq!(add_next(&mut table, &mut pool, 1), Ok(0));
    }

    #[test]
    fn a_refused_page_changes_nothing() {
        let mut pool = PagePool::standalone(1);
        let mut table = PageTable::<u8>::new(6);
        assert_eq!(add_next(&mut table, &mut pool, 1), Ok(0));
        assert_eq!(table.add(&mut pool, Purpose::Ordinary, 4, 1), Err(OutOfPages));
        assert_eq!((table.len(), table.used(), table.next_index()), (1, 1, 1));
    }

    #[test]
    #[should_panic]
    fn a_vacant_page_has_no_bytes() {
        let mut pool = PagePool::standalone(4);
        let mut table = PageTable::<u8>::new(6);
        table.add(&mut pool, Purpose::Ordinary, 1, 0).unwrap();
        table.bytes(&pool, 0);
    }
}
