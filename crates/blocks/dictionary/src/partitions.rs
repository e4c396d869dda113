//! Chooses the partitions of the cluster in which a new table lies.
//!
//! A table's partitions are dealt to the node groups in turn, and within a group they stand as far from each other as
//! its instances allow, so that they fall to different threads and, where there are replicas, to primaries on different
//! nodes. Where the first one stands depends on the table's id: so tables of few partitions share the load. A node
//! group that was added has the partitions that have moved to it, in the order of their instances.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::{PartitionId, TablePartitions};
use vinga_wire::view::ClusterView;

/// What the cluster has, and how much of it a table gets.
#[derive(Clone, Debug)]
pub struct Partitioning {
    /// The partitions of each node group that has any, by instance.
    groups: Vec<Vec<PartitionId>>,
    /// Partitions of a table that does not say how many it wants.
    usual: u16,
}

impl Partitioning {
    /// That of a cluster, in which a table that does not say how many partitions it wants gets `usual` ones.
    pub fn of(view: &ClusterView, usual: u16) -> Self {
        let mut groups = vec![Vec::new(); view.groups().into()];
        for (number, partition) in (0..).map(PartitionId).zip(view.partitions()) {
            // In the order of their numbers: that of instances.
            groups[usize::from(partition.group)].push(number);
        }
        groups.retain(|own| !own.is_empty());
        Partitioning { groups, usual }
    }

    /// The partitions of a table with this id. `wanted` is their number, 0 for the usual one.
    ///
    /// # Errors
    /// A sentence, if it wants more than there are.
    pub fn choose(&self, table: u32, wanted: u16) -> Result<TablePartitions, String> {
        let groups = self.groups.len();
        let all: usize = self.groups.iter().map(Vec::len).sum();
        let count = if wanted == 0 { usize::from(self.usual).clamp(1, all) } else { usize::from(wanted) };
        if count > all {
            return Err(format!("{count} partitions; in this cluster a table has 1 to {all}"));
        }
        let first = table.saturating_sub(1) as usize % all;
        // Which group each one falls to: those that have no more are passed over.
        let mut shares = vec![0; groups];
        let mut dealt = Vec::with_capacity(count);
        for group in (0..groups).cycle().skip(first % groups) {
            if dealt.len() == count {
                break;
            }
            if shares[group] < self.groups[group].len() {
                dealt.push((group, shares[group]));
                shares[group] += 1;
            }
        }
        let place = |(group, nth): (usize, usize)| {
            let own = &self.groups[group];
            let share = shares[group].max(count.div_ceil(groups).min(own.len()));
            own[(first / groups + nth * own.len() / share) % own.len()]
        };
        Ok(TablePartitions::new(dealt.into_iter().map(place).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the first view, in which all have equally many.
    fn equal(groups: u16, instances: u16, usual: u16) -> Partitioning {
        let own = |group| (0..instances).map(|instance| PartitionId(instance * groups + group)).collect();
        Partitioning { groups: (0..groups).map(own).collect(), usual }
    }

    #[test]
    fn groups_and_instances_share_a_table() {
        for groups in 1..5u16 {
            for instances in [1, 2, 3, 8, 16] {
                let partitioning = equal(groups, instances, 1);
                for (table, count) in (1..40).flat_map(|t| (1..=groups * instances).map(move |c| (t, c))) {
                    let chosen = partitioning.choose(table, count).expect("so many there are");
                    assert_eq!(chosen.len(), usize::from(count));
                    let mut of_group = vec![Vec::new(); usize::from(groups)];
                    chosen.iter().for_each(|p| of_group[usize::from(p.0 % groups)].push(p.0 / groups));
                    let sizes = of_group.iter().map(Vec::len);
                    assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{of_group:?}");
                    for mut own in of_group.into_iter().filter(|own| own.len() > 1) {
                        own.sort_unstable();
                        let nearest = own.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
                        assert!(nearest >= instances / count.div_ceil(groups), "{own:?} of {instances}");
                    }
                }
            }
        }
    }

    /// After partitions have moved: each table has as many of each group as the others, if there are so many.
    #[test]
    fn groups_of_different_sizes_share_a_table() {
        for sizes in [&[3, 3, 2][..], &[8, 1], &[1, 2, 5], &[4, 4]] {
            let mut next = 0..;
            let mut own = |size: usize| next.by_ref().take(size).map(PartitionId).collect();
            let groups = sizes.iter().map(|&size| own(size)).collect();
            let partitioning = Partitioning { groups, usual: 1 };
            let all: usize = sizes.iter().sum();
            for (table, count) in (1..20).flat_map(|t| (1..=all).map(move |count| (t, count))) {
                let chosen = partitioning.choose(table, count as u16).expect("so many there are");
                assert_eq!(chosen.len(), count);
                let shares: Vec<usize> = partitioning
                    .groups
                    .iter()
                    .map(|own| chosen.iter().filter(|one| own.contains(one)).count())
                    .collect();
                let greatest = shares.iter().max().expect("there is a group");
                for (share, size) in shares.iter().zip(sizes) {
                    assert!(share + 1 >= *greatest || share == size, "{shares:?} of {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn tables_begin_in_turn() {
        let partitioning = equal(2, 4, 1);
        let first = |table| partitioning.choose(table, 0).expect("one there is").iter().next();
        let firsts: Vec<Option<PartitionId>> = (1..=8).map(first).collect();
        assert_eq!(firsts, (0..8).map(|p| Some(PartitionId(p))).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_gets_more_than_there_is() {
        let partitioning = equal(2, 4, 100);
        assert_eq!(partitioning.choose(1, 0).unwrap().len(), 8);
        let refused = partitioning.choose(1, 9).unwrap_err();
        assert_eq!(refused, "9 partitions; in this cluster a table has 1 to 8");
    }
}
