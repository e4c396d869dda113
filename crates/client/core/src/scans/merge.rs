//! Rows of several partitions, each sorted, as one sorted sequence.
//!
//! Every partition sends its rows in the order of (range, key); the merge gives the least of what stands first in each.
//! It can do so only as long as each partition that has not ended has a row here: a partition that has none might send
//! the least of all next. Among equal keys the partitions come in no particular order.

use super::rows::{Form, ScanRow, ScanRows};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// What a partition has sent and was not taken.
#[derive(Default)]
struct Queue {
    batches: VecDeque<ScanRows>,
    /// Where the first row stands in the first batch.
    offset: usize,
    has_ended: bool,
}

impl Queue {
    fn first(&self) -> Option<ScanRow<'_>> {
        Some(self.batches.front()?.row_at(self.offset)?.0)
    }
}

/// Sorted rows of several partitions, merged into one sequence.
pub struct Merge {
    is_descending: bool,
    queues: Vec<Queue>,
    /// Queues that have a row, the one with the least row last.
    sorted: Vec<usize>,
    /// Queues that have no row and have not ended.
    awaited: usize,
}

impl Merge {
    /// A merge of so many partitions, of which nothing has come yet.
    pub fn new(partitions: usize, is_descending: bool) -> Self {
        Merge {
            is_descending,
            queues: (0..partitions).map(|_| Queue::default()).collect(),
            sorted: Vec::new(),
            awaited: partitions,
        }
    }

    /// Rows of a partition have come, with their keys.
    pub fn push(&mut self, partition: usize, rows: ScanRows) {
        if rows.is_empty() {
            return;
        }
        let queue = &mut self.queues[partition];
        assert!(!queue.has_ended, "an ended partition sends nothing");
        queue.batches.push_back(rows);
        if queue.batches.len() == 1 {
            self.awaited -= 1;
            self.sort_in(partition);
        }
    }

    /// A partition has sent all it has.
    pub fn end(&mut self, partition: usize) {
        let queue = &mut self.queues[partition];
        if !core::mem::replace(&mut queue.has_ended, true) {
            self.awaited -= usize::from(queue.batches.is_empty());
        }
    }

    fn order(&self, a: usize, b: usize) -> Ordering {
        let first = |queue: usize| self.queues[queue].first().expect("it has a row");
        let (a, b) = (first(a), first(b));
        let keys = if self.is_descending { b.key.cmp(a.key) } else { a.key.cmp(b.key) };
        a.range.cmp(&b.range).then(keys)
    }

    fn sort_in(&mut self, queue: usize) {
        let at = self.sorted.partition_point(|&other| self.order(other, queue) == Ordering::Greater);
        self.sorted.insert(at, queue);
    }

    /// Appends the next rows, until it is not known which is next, or so many rows or bytes are there. Batches that are
    /// used up are handed to `used`, with their partition.
    pub fn take(
        &mut self,
        out: &mut ScanRows,
        rows_max: u32,
        bytes_max: usize,
        mut used: impl FnMut(usize, ScanRows),
    ) {
        if out.is_empty() {
            out.fill(Form::Ranged, 0, &[]);
        }
        while self.awaited == 0 && out.count < rows_max && out.bytes.len() < bytes_max {
            let Some(at) = self.sorted.pop() else { return };
            let queue = &mut self.queues[at];
            let batch = queue.batches.front().expect("it is sorted by it");
            let (row, next) = batch.row_at(queue.offset).expect("it is sorted by it");
            out.push(&row);
            queue.offset = next;
            if batch.row_at(next).is_none() {
                queue.offset = 0;
                used(at, queue.batches.pop_front().expect("seen just now"));
            }
            if !queue.batches.is_empty() {
                self.sort_in(at);
            } else if !queue.has_ended {
                self.awaited += 1;
            }
        }
    }

    /// Whether nothing is left and nothing will come.
    pub fn is_over(&self) -> bool {
        self.awaited == 0 && self.sorted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// A batch of rows whose keys and contents are given.
    fn batch(rows: &[(u16, u8)]) -> ScanRows {
        use vinga_wire::range_scan::RangeRow;
        use zerocopy::IntoBytes;
        let mut out = ScanRows::default();
        let mut bytes = Vec::new();
        for &(range, key) in rows {
            let head =
                RangeRow { row: 0.into(), range: range.into(), key_bytes: 1.into(), row_bytes: 1.into() };
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(&[key, key]);
        }
        out.fill(Form::Ranged, rows.len() as u32, &bytes);
        out.check().expect("it is whole");
        out
    }

    fn taken(merge: &mut Merge, rows_max: u32) -> Vec<(u16, u8)> {
        let mut out = ScanRows::default();
        merge.take(&mut out, rows_max, 1 << 20, |_, _| {});
        out.rows().map(|row| (row.range, row.bytes[0])).collect()
    }

    #[test]
    fn rows_come_in_order_and_only_when_it_is_known() {
        let mut merge = Merge::new(3, false);
        merge.push(0, batch(&[(0, 1), (0, 4), (1, 2)]));
        merge.push(1, batch(&[(0, 2)]));
        assert_eq!(taken(&mut merge, 9), vec![], "the third may have less");
        merge.end(2);
        // Behind its row the second partition may go on with less than 4.
        assert_eq!(taken(&mut merge, 9), [(0, 1), (0, 2)]);
        merge.push(1, batch(&[(0, 3), (1, 1)]));
        assert_eq!(taken(&mut merge, 1), [(0, 3)]);
        merge.end(1);
        merge.end(0);
        assert_eq!(taken(&mut merge, 9), [(0, 4), (1, 1), (1, 2)]);
        assert!(merge.is_over());
    }

    #[test]
    fn ranges_ascend_even_if_keys_descend() {
        let mut merge = Merge::new(2, true);
        merge.push(0, batch(&[(0, 9), (0, 3), (1, 8)]));
        merge.push(1, batch(&[(0, 5), (1, 9)]));
        (0..2).for_each(|at| merge.end(at));
        assert_eq!(taken(&mut merge, 9), [(0, 9), (0, 5), (0, 3), (1, 9), (1, 8)]);
    }
}
