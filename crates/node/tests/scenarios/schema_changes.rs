//! Data nodes die in the midst of schema changes. Like `hazards`, each scenario is run with all rules and, with the
//! feature `injected-bugs`, with one broken, which it must notice.

use crate::support::{Cluster, Op, Received, Setup, committed, row, tc};
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind, TableDefinition};
use vinga_base::{ColumnId, NodeId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::schema::SchemaChange;
use vinga_wire::{Address, BlockNumber, SignalNumber};

const fn dictionary(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Dictionary, 0)
}

fn three(bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes: 3, coordinators: 3, bug, ..Setup::default() })
}

fn with_unique_index() -> TableDefinition {
    let mut definition = Cluster::definition_of("test.t");
    definition.indexes.push(IndexDefinition {
        id: 11,
        name: "by_n".into(),
        columns: vec![OrderColumn { column: ColumnId(1), direction: Direction::Ascending }],
        kind: IndexKind::Unique,
    });
    definition
}

hazards! {
    /// The primary alone looks whether there are rows; the backup, which has them too, has answered that it is ready.
    a_unique_index_is_not_made_on_rows_whose_primary_dies_meanwhile breaks LostRefusalIsConsent;

    /// The president answers the owner of a write fence, and dies: its successor must not take the change for one whose
    /// requester was not answered.
    a_write_fence_that_was_given_outlives_the_president breaks FenceGivenTooEarly;
}

mod scenarios {
    use super::*;

    pub fn a_unique_index_is_not_made_on_rows_whose_primary_dies_meanwhile(bug: Option<InjectedBug>) {
        for dies in [false, true] {
            let mut c = three(bug);
            let key = c.keys_at(2).next().expect("there are keys without end");
            assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 10))]), [committed(1)]);
            c.advance(Span::from_millis(300));
            let before = c.table();
            let owner = c.owner_of(key);
            let change = SchemaChange::AlterTable {
                name: "test.t".into(),
                definition: with_unique_index(),
                pinned: None,
            };
            c.hold(owner, dictionary(1));
            c.change_schema(change);
            // That it has prepared the change arrives; that it has found a row does not.
            c.deliver_copies(owner, dictionary(1));
            if dies {
                c.kill(2);
            } else {
                c.release(owner, dictionary(1));
            }
            c.advance(Span::from_millis(2000));
            assert!(c.received().contains(&Received::Other(SignalNumber::SchemaChangeRefuse)));
            assert_eq!(c.table(), before);
        }
    }

    pub fn a_write_fence_that_was_given_outlives_the_president(bug: Option<InjectedBug>) {
        let mut c = three(bug);
        let key = c.keys_at(2).next().expect("there are keys without end");
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(key, 10))]), [committed(1)]);
        c.advance(Span::from_millis(300));
        c.hold(dictionary(1), dictionary(2));
        c.change_schema(SchemaChange::FenceTable { name: "test.t".into(), pinned: None });
        let is_given =
            |c: &mut Cluster| c.received().contains(&Received::Other(SignalNumber::SchemaChangeConfirm));
        // One signal to the second dictionary after the other, until the owner is answered.
        let arrived = (1..10).find(|_| {
            c.deliver(dictionary(1), dictionary(2));
            is_given(&mut c)
        });
        assert!(arrived.is_some(), "the fence is given");
        c.kill(1);
        c.advance(Span::from_millis(500));
        for node in [2, 3] {
            let dictionary = c.node(node).dictionary().expect("each node has one");
            assert_eq!(dictionary.fences().count(), 1, "of node {node}");
        }
    }
}
