//! The nodes of one index: equal parts of its pages.
//!
//! A node is identified by a number: page index times nodes per page, plus the place in the page. Free nodes of a page
//! are linked through their first two bytes (place of the next plus one, 0 = none), pages with free nodes are linked
//! with each other, and a page without nodes in use is returned to the pool at once.

use super::node::{Level, Node};
use crate::page_table::{PageList, PageTable};
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PagePool, Purpose};
use vinga_base::prefetch::prefetch;

#[derive(Clone, Copy, Default)]
struct PageState {
    used: u16,
    /// Place plus one of the free node to be used next, 0 for none.
    free: u16,
    /// Places from here on have never been used.
    fresh: u16,
}

pub(super) struct NodeStore<const N: usize> {
    pages: PageTable<PageState>,
    with_room: PageList,
    used: u32,
}

impl<const N: usize> NodeStore<N> {
    /// Nodes per page.
    pub(super) const PER_PAGE: u32 = (PAGE_BYTES / N) as u32;

    pub(super) fn new() -> Self {
        NodeStore { pages: PageTable::new(u32::MAX / Self::PER_PAGE), with_room: PageList::EMPTY, used: 0 }
    }

    #[inline]
    pub(super) fn node<'a>(&self, pool: &'a PagePool, number: u32, level: Level) -> Node<&'a [u8; N], N> {
        let page = self.pages.bytes(pool, number / Self::PER_PAGE);
        Node::new(node_in(&page[offset::<N>(number)..]), level)
    }

    #[inline]
    pub(super) fn node_mut<'a>(
        &self,
        pool: &'a mut PagePool,
        number: u32,
        level: Level,
    ) -> Node<&'a mut [u8; N], N> {
        let page = self.pages.bytes_mut(pool, number / Self::PER_PAGE);
        let bytes = page[offset::<N>(number)..].first_chunk_mut().expect("a node lies in its page");
        Node::new(bytes, level)
    }

    /// A copy of a node.
    #[inline]
    pub(super) fn copy(&self, pool: &PagePool, number: u32, level: Level) -> Node<[u8; N], N> {
        let page = self.pages.bytes(pool, number / Self::PER_PAGE);
        Node::new(*node_in(&page[offset::<N>(number)..]), level)
    }

    /// Overwrites a node.
    pub(super) fn write(&self, pool: &mut PagePool, number: u32, node: &Node<[u8; N], N>) {
        let page = self.pages.bytes_mut(pool, number / Self::PER_PAGE);
        page[offset::<N>(number)..][..N].copy_from_slice(node.bytes());
    }

    /// Starts to load the first half of a node, where the parts are.
    #[inline]
    pub(super) fn prefetch_parts(&self, pool: &PagePool, number: u32) {
        if let Some(page) = self.pages.address(pool, number / Self::PER_PAGE) {
            prefetch(page.wrapping_add(offset::<N>(number)), N / 2);
        }
    }

    /// Starts to load a node.
    #[inline]
    pub(super) fn prefetch(&self, pool: &PagePool, number: u32) {
        if let Some(page) = self.pages.address(pool, number / Self::PER_PAGE) {
            let node = page.wrapping_add(offset::<N>(number));
            prefetch(node, N / 2);
            prefetch(node.wrapping_add(N / 2), N / 2);
        }
    }

    /// Makes sure that this many nodes can be taken, at most as many as a page has.
    pub(super) fn reserve(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        nodes: u32,
    ) -> Result<(), OutOfPages> {
        debug_assert!(nodes <= Self::PER_PAGE);
        if self.pages.used() * Self::PER_PAGE - self.used < nodes {
            let index = self.pages.next_index();
            self.pages.add(pool, purpose, index, PageState::default())?;
            self.pages.link(&mut self.with_room, index);
        }
        Ok(())
    }

    /// Takes a reserved node and makes it an empty one.
    pub(super) fn take(&mut self, pool: &mut PagePool, level: Level) -> u32 {
        let index = self.with_room.first().expect("nodes are reserved before they are taken");
        let PageState { used, free, fresh } = *self.pages.state(index);
        let place = if free == 0 { u32::from(fresh) } else { u32::from(free) - 1 };
        let number = index * Self::PER_PAGE + place;
        let mut node = self.node_mut(pool, number, level);
        let state = match free {
            0 => PageState { used: used + 1, free, fresh: fresh + 1 },
            _ => PageState { used: used + 1, free: node.len() as u16, fresh },
        };
        node.set_len(0);
        node.set_skip(0);
        *self.pages.state_mut(index) = state;
        if u32::from(state.used) == Self::PER_PAGE {
            self.pages.unlink(&mut self.with_room, index);
        }
        self.used += 1;
        number
    }

    /// Frees a node.
    pub(super) fn free(&mut self, pool: &mut PagePool, number: u32) {
        let (index, place) = (number / Self::PER_PAGE, number % Self::PER_PAGE);
        let state = *self.pages.state(index);
        if u32::from(state.used) == Self::PER_PAGE {
            self.pages.link(&mut self.with_room, index);
        }
        let page = self.pages.bytes_mut(pool, index);
        page[offset::<N>(number)..][..2].copy_from_slice(&state.free.to_le_bytes());
        *self.pages.state_mut(index) = PageState { used: state.used - 1, free: place as u16 + 1, ..state };
        self.used -= 1;
        if state.used == 1 {
            self.pages.unlink(&mut self.with_room, index);
            self.pages.remove(pool, index);
        }
    }

    /// Returns at most this many pages to the pool, nodes in use included; true when none is left.
    pub(super) fn release_slice(&mut self, pool: &mut PagePool, steps: u32) -> bool {
        let mut steps = steps;
        for index in (0..self.pages.len()).rev() {
            if self.pages.holds(index) {
                if steps == 0 {
                    return false;
                }
                steps -= 1;
                let used = u32::from(self.pages.state(index).used);
                if used < Self::PER_PAGE {
                    self.pages.unlink(&mut self.with_room, index);
                }
                self.pages.remove(pool, index);
                self.used -= used;
            }
        }
        true
    }

    /// Nodes in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Pages of the pool.
    pub(super) fn pages(&self) -> u32 {
        self.pages.used()
    }

    /// Bytes of bookkeeping outside of the pool.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pages.heap_bytes()
    }
}

/// Where a node begins in its page.
#[inline]
fn offset<const N: usize>(number: u32) -> usize {
    (number % NodeStore::<N>::PER_PAGE) as usize * N
}

#[inline]
fn node_in<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a node lies in its page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn pages_come_and_go_with_nodes() {
        let mut pool = PagePool::standalone(2);
        let mut nodes = NodeStore::<1024>::new();
        let mut taken = Vec::new();
        for _ in 0..64 {
            nodes.reserve(&mut pool, Purpose::Ordinary, 1).unwrap();
            taken.push(nodes.take(&mut pool, Level::Leaf));
        }
        assert_eq!(nodes.reserve(&mut pool, Purpose::Ordinary, 1), Err(OutOfPages));
        assert_eq!((nodes.used(), nodes.pages(), pool.owned()), (64, 2, 2));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 64);
        for &number in &taken[1..32] {
            nodes.free(&mut pool, number);
        }
        assert_eq!(nodes.reserve(&mut pool, Purpose::Ordinary, 31), Ok(()));
        let again = nodes.take(&mut pool, Level::Inner);
        assert!(taken[1..32].contains(&again));
        nodes.free(&mut pool, again);
        nodes.free(&mut pool, taken[0]);
        assert_eq!((nodes.used(), nodes.pages(), pool.owned()), (32, 1, 1));
        assert!(nodes.release_slice(&mut pool, u32::MAX));
        assert_eq!((nodes.used(), nodes.pages(), pool.owned()), (0, 0, 0));
        nodes.reserve(&mut pool, Purpose::Ordinary, 1).unwrap();
        nodes.take(&mut pool, Level::Leaf);
        assert!(nodes.release_slice(&mut pool, u32::MAX));
        assert_eq!(pool.owned(), 0);
    }
}
