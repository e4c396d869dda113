//! An array of index lines in pages of the pool, which grows and shrinks at its end.
//!
//! Line n is line n % 512 of page n / 512. The list of pages is on the heap, 4 bytes per page; it grows by fallible
//! allocation, so that a lack of memory is refused like a lack of pages.

use super::line::{LINE_BYTES, Line};
use alloc::vec::Vec;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PageNumber, PagePool, Purpose};
use vinga_base::prefetch::prefetch;

/// Lines of a page.
pub(super) const LINES_PER_PAGE: u32 = (PAGE_BYTES / LINE_BYTES) as u32;

#[derive(Default)]
pub(super) struct LineArray {
    pages: Vec<PageNumber>,
    lines: u32,
}

impl LineArray {
    /// Number of lines.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.lines
    }

    /// Number of pages, including those that are kept for future lines.
    pub(super) fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageNumber>()
    }

    /// A line; also a removed one, as long as its page has not been returned.
    #[inline]
    pub(super) fn line<'a>(&self, pool: &'a PagePool, number: u32) -> Line<&'a [u8; LINE_BYTES]> {
        let (lines, _) = pool.bytes(self.page_of(number)).as_chunks();
        Line(&lines[(number % LINES_PER_PAGE) as usize])
    }

    /// A line, to change it.
    #[inline]
    pub(super) fn line_mut<'a>(&self, pool: &'a mut PagePool, number: u32) -> Line<&'a mut [u8; LINE_BYTES]> {
        let (lines, _) = pool.bytes_mut(self.page_of(number)).as_chunks_mut();
        Line(&mut lines[(number % LINES_PER_PAGE) as usize])
    }

    /// Starts to load a line into the caches.
    #[inline]
    pub(super) fn prefetch(&self, pool: &PagePool, number: u32) {
        let page = pool.address(self.page_of(number)).cast_const();
        prefetch(page.wrapping_add((number % LINES_PER_PAGE) as usize * LINE_BYTES), LINE_BYTES);
    }

    #[inline]
    fn page_of(&self, number: u32) -> PageNumber {
        self.pages[(number / LINES_PER_PAGE) as usize]
    }

    /// Makes sure that `more` lines can be added without another reservation; at most a page's worth.
    ///
    /// # Errors
    /// [`OutOfPages`]; then the array is unchanged.
    pub(super) fn reserve(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        more: u32,
    ) -> Result<(), OutOfPages> {
        assert!(more <= LINES_PER_PAGE, "at most one page is taken, so there is nothing to undo");
        if self.lines + more > self.pages() * LINES_PER_PAGE {
            self.pages.try_reserve(1).map_err(|_| OutOfPages)?;
            self.pages.push(pool.allocate(purpose)?);
        }
        Ok(())
    }

    /// Adds an empty line, for which there is a page, and returns its number.
    #[inline]
    pub(super) fn push(&mut self, pool: &mut PagePool) -> u32 {
        self.lines += 1;
        *self.line_mut(pool, self.lines - 1).0 = Line::EMPTY.0;
        self.lines - 1
    }

    /// Removes the last line. Its page is kept until [`LineArray::trim`].
    pub(super) fn pop(&mut self) {
        self.lines -= 1;
    }

    /// Returns the pages that are needed neither now nor for `more` lines.
    pub(super) fn trim(&mut self, pool: &mut PagePool, more: u32) {
        let needed = (self.lines + more).div_ceil(LINES_PER_PAGE) as usize;
        for page in self.pages.drain(needed.min(self.pages.len())..) {
            pool.free(page);
        }
    }

    /// Removes all lines and returns all pages.
    pub(super) fn clear(&mut self, pool: &mut PagePool) {
        self.lines = 0;
        self.trim(pool, 0);
        self.pages = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go_with_lines() {
        let mut pool = PagePool::standalone(2);
        let mut lines = LineArray::default();
        for number in 0..2 * LINES_PER_PAGE {
            lines.reserve(&mut pool, Purpose::Ordinary, 1).unwrap();
            assert_eq!(lines.push(&mut pool), number);
            lines.line_mut(&mut pool, number).set_link(Some(number));
        }
        assert_eq!(lines.reserve(&mut pool, Purpose::Ordinary, 1), Err(OutOfPages));
        for number in 0..2 * LINES_PER_PAGE {
            lines.prefetch(&pool, number);
            assert_eq!(lines.line(&pool, number).link(), Some(number));
        }
        for _ in 0..LINES_PER_PAGE {
            lines.pop();
        }
        lines.trim(&mut pool, 1);
        assert_eq!((lines.pages(), pool.owned()), (2, 2));
        lines.trim(&mut pool, 0);
        assert_eq!((lines.pages(), pool.owned()), (1, 1));
        lines.clear(&mut pool);
        assert_eq!((lines.len(), pool.owned(), lines.heap_bytes()), (0, 0, 0));
    }
}
