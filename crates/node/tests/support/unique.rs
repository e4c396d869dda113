//! The test table with unique indexes: one on its number, one on its text.

use super::{Cluster, Op, Row};
use std::collections::BTreeSet;
use vinga_base::ColumnId;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};

/// Ids of the indexes.
pub const ON_NUMBER: u16 = 11;
pub const ON_TEXT: u16 = 12;

/// A hidden row that is there, for a test.
pub const FOUND: Row = Row(0, 0, None);

pub fn indexes() -> Vec<IndexDefinition> {
    let index = |id, name: &str, column| IndexDefinition {
        id,
        name: name.into(),
        columns: vec![OrderColumn { column: ColumnId(column), direction: Direction::Ascending }],
        kind: IndexKind::Unique,
    };
    vec![index(ON_NUMBER, "by_n", 1), index(ON_TEXT, "by_s", 2)]
}

impl Cluster {
    /// The table that an operation is for.
    pub(super) fn table_of(&self, op: &Op) -> (u32, u64) {
        match op {
            Op::Find(..) | Op::Release(..) => self.hidden[0],
            _ => self.table,
        }
    }

    /// The unique indexes that the newest answer blames: of the cause first, then of operations that failed alone.
    pub fn blamed(&self) -> &[u16] {
        &self.indexes_received
    }

    /// At rest: the hidden tables of each node are what the rows there say. Returns the number of hidden rows.
    pub fn check_unique(&self) -> usize {
        let mut count = None;
        for node in self.live_nodes() {
            let mut expected = BTreeSet::new();
            let mut found = BTreeSet::new();
            for data_manager in self.node(node).data_managers() {
                for partition in (0..self.view.partitions().len() as u16).map(vinga_base::PartitionId) {
                    data_manager.inspect_projection(partition, |table, version, image| {
                        assert!(expected.insert((table, version, image)), "two rows with one unique key");
                    });
                }
                data_manager.inspect_rows(|row| {
                    if self.hidden.contains(&(row.table, row.birth)) {
                        assert!(found.insert((row.table, row.birth, row.image)), "a hidden row twice");
                    }
                });
            }
            assert_eq!(found, expected, "hidden rows of node {node}, and those that its rows should have");
            let same = *count.get_or_insert(found.len());
            assert_eq!(same, found.len(), "all nodes have all rows");
        }
        count.expect("a node is alive")
    }

    /// The data manager that owns a number's place in the unique index on it.
    pub fn owner_of_number(&self, n: i64) -> vinga_wire::Address {
        let hash = vinga_base::hash::KeyHash::of(&n.to_le_bytes());
        self.view.partition(self.partitions.of(hash)).primary()
    }
}
