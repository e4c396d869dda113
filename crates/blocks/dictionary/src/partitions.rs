//! Chooses the partitions of the cluster in which a new table lies.
//!
//! Of g node groups, partition p of the cluster is in the (p mod g)-th and owned by instance p / g there. A table's
//! partitions are dealt to the groups in turn, and within a group they stand as far from each other as its instances
//! allow, so that they fall to different threads and, where there are replicas, to primaries on different nodes. Where
//! the first one stands depends on the table's id: so tables of few partitions share the load.

use alloc::format;
use alloc::string::String;
use vinga_base::{PartitionId, TablePartitions};
use vinga_wire::view::ClusterView;

/// What the cluster has, and how much of it a table gets.
#[derive(Clone, Copy, Debug)]
pub struct Partitioning {
    /// Node groups.
    pub groups: u16,
    /// Data manager instances of each node; the cluster has so many partitions for each group.
    pub instances: u16,
    /// Partitions of a table that does not say how many it wants.
    pub usual: u16,
}

impl Partitioning {
    /// That of a cluster, in which a table that does not say how many partitions it wants gets `usual` ones.
    pub fn of(view: &ClusterView, usual: u16) -> Self {
        let groups = view.groups();
        Partitioning { groups, instances: view.partitions().len() as u16 / groups, usual }
    }

    /// The partitions of a table with this id. `wanted` is their number, 0 for the usual one.
    ///
    /// # Errors
    /// A sentence, if it wants more than there are.
    pub fn choose(&self, table: u32, wanted: u16) -> Result<TablePartitions, String> {
        let Partitioning { groups, instances, usual } = *self;
        let all = groups * instances;
        let count = if wanted == 0 { usual.clamp(1, all) } else { wanted };
        if count > all {
            return Err(format!("{wanted} partitions; in this cluster a table has 1 to {all}"));
        }
        let in_group = count.div_ceil(groups);
        let first = (table.saturating_sub(1) % u32::from(all)) as u16;
        let place = |k: u16| {
            let group = (k + first) % groups;
            let instance = (first / groups + k / groups * instances / in_group) % instances;
            PartitionId(instance * groups + group)
        };
        Ok(TablePartitions::new((0..count).map(place).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn groups_and_instances_share_a_table() {
        for groups in 1..5u16 {
            for instances in [1, 2, 3, 8, 16] {
                let partitioning = Partitioning { groups, instances, usual: 1 };
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

    #[test]
    fn tables_begin_in_turn() {
        let partitioning = Partitioning { groups: 2, instances: 4, usual: 1 };
        let first = |table| partitioning.choose(table, 0).expect("one there is").iter().next();
        let firsts: Vec<Option<PartitionId>> = (1..=8).map(first).collect();
        assert_eq!(firsts, (0..8).map(|p| Some(PartitionId(p))).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_gets_more_than_there_is() {
        let partitioning = Partitioning { groups: 2, instances: 4, usual: 100 };
        assert_eq!(partitioning.choose(1, 0).unwrap().len(), 8);
        let refused = partitioning.choose(1, 9).unwrap_err();
        assert_eq!(refused, "9 partitions; in this cluster a table has 1 to 8");
    }
}
