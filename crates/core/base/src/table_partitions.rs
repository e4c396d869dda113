//! Which of the cluster's partitions hold the rows of a table.
//!
//! The cluster has one partition for each data manager of a node group. A table uses some of them, in a certain order:
//! the hash of a row's primary key chooses one of 3,840 buckets, and ranges of neighbouring buckets are assigned to the
//! table's partitions in shares that are as equal as possible. Fewer partitions make scans of ranges cheaper, because
//! each partition has to be read; more partitions let more threads work on one table.

use crate::hash::{HASH_MAP_BUCKETS, KeyHash};
use crate::ids::PartitionId;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The partitions of one table, in its order. Never empty, without duplicates; a value that was read from a signal must
/// be checked with [`TablePartitions::is_sound`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TablePartitions(Vec<PartitionId>);

impl TablePartitions {
    /// A table in these partitions of the cluster.
    ///
    /// # Panics
    /// If there are none, or more than buckets, or one occurs twice.
    pub fn new(partitions: Vec<PartitionId>) -> Self {
        let made = TablePartitions(partitions);
        assert!(made.is_sound(), "a table has partitions, each once");
        made
    }

    /// A table in the first `count` partitions of the cluster.
    ///
    /// # Panics
    /// If `count` is 0, or greater than the number of buckets.
    pub fn first(count: u16) -> Self {
        TablePartitions::new((0..count).map(PartitionId).collect())
    }

    /// Whether the invariants of this type hold.
    pub fn is_sound(&self) -> bool {
        let mut seen: Vec<PartitionId> = self.0.clone();
        seen.sort_unstable();
        seen.dedup();
        (1..=HASH_MAP_BUCKETS as usize).contains(&self.0.len()) && seen.len() == self.0.len()
    }

    /// The partition of the row whose primary key has this hash.
    #[inline]
    pub fn of(&self, hash: KeyHash) -> PartitionId {
        let at = hash.map_bucket() as usize * self.0.len() / HASH_MAP_BUCKETS as usize;
        self.0[at]
    }

    /// Number of partitions.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All partitions, in the table's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PartitionId> + '_ {
        self.0.iter().copied()
    }

    /// Whether the table uses this partition.
    pub fn contains(&self, partition: PartitionId) -> bool {
        self.0.contains(&partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_partition_gets_its_share() {
        let ids = [7, 0, 3, 12, 5];
        for count in 1..=ids.len() {
            let partitions = TablePartitions::new(ids[..count].iter().copied().map(PartitionId).collect());
            let mut counts = [0; 13];
            for key in 0..40_000u64 {
                counts[usize::from(partitions.of(KeyHash::of(&key.to_le_bytes())).0)] += 1;
            }
            let share = 40_000 / count;
            for id in ids {
                let rows: usize = counts[usize::from(id)];
                let belongs = partitions.contains(PartitionId(id));
                assert_eq!(rows > 0, belongs);
                assert!(!belongs || rows.abs_diff(share) < share / 10, "{rows} rows of {share}");
            }
        }
    }

    #[test]
    fn the_last_bucket_belongs_to_the_last_partition() {
        for count in [1, 2, 7, 128, HASH_MAP_BUCKETS as u16] {
            assert_eq!(TablePartitions::first(count).of(KeyHash(u64::MAX)), PartitionId(count - 1));
            assert_eq!(TablePartitions::first(count).of(KeyHash(0)), PartitionId(0));
        }
    }

    #[test]
    fn unsound_partitions_are_refused_with_a_reason() {
        for ids in [vec![], vec![1, 1]] {
            assert!(!TablePartitions(ids.into_iter().map(PartitionId).collect()).is_sound());
        }
    }
}
