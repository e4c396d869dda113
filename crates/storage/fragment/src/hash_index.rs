//! stub
use crate::row_index::RowIndex;
use alloc::vec::Vec;
use vinga_base::{RowId, hash::KeyHash, page_pool::*};
#[allow(missing_docs)]
#[derive(Default)]
pub struct HashIndex(Vec<(u64, RowId)>);
#[allow(missing_docs)]
impl HashIndex {
    pub fn new() -> Self {
        HashIndex(Vec::new())
    }
}
impl RowIndex for HashIndex {
    fn prefetch(&self, _: &PagePool, _: KeyHash) {}
    fn candidates<'a>(&'a self, _: &'a PagePool, h: KeyHash) -> impl Iterator<Item = RowId> + 'a {
        self.0.iter().filter(move |e| e.0 == h.0).map(|e| e.1)
    }
    fn insert(
        &mut self,
        _: &mut PagePool,
        _: Purpose,
        h: KeyHash,
        r: RowId,
        _: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) -> Result<(), OutOfPages> {
        self.0.push((h.0, r));
        Ok(())
    }
    fn remove(&mut self, _: &mut PagePool, h: KeyHash, r: RowId, _: impl FnMut(&PagePool, RowId) -> KeyHash) {
        self.0.retain(|e| *e != (h.0, r))
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn clear(&mut self, _: &mut PagePool) {
        self.0.clear()
    }
}
