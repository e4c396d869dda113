//! Primaries that have come to rest so that somebody can be left out of their partitions, and go on as that was
//! refused: from then on they send something to that replica. So nobody goes on from the view that would have left it
//! out.

use super::Network;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::{PartitionId, ViewNumber};
use vinga_wire::agreement::{ViewChangeRefusal, WantedChange};
use vinga_wire::view::ClusterView;

/// A primary, in the view in which it has come to rest.
type Rest = (ViewNumber, PartitionId);

#[derive(Default)]
pub struct Rests {
    /// What each request of a node is for.
    asked: BTreeMap<(u8, u32), Rest>,
    /// Primaries that go on.
    released: BTreeSet<Rest>,
}

impl Rests {
    /// The primary comes to rest before that is asked for.
    pub fn note_request(&mut self, node: u8, request: u32, view: ViewNumber, change: &WantedChange) {
        if let WantedChange::LeaveOut(partition) = *change {
            self.asked.insert((node, request), (view, partition));
            self.released.remove(&(view, partition));
        }
    }

    /// A request is refused. If another one is under way, that one's primary does not go on.
    pub fn note_refusal(&mut self, node: u8, request: u32, reason: ViewChangeRefusal) {
        let rest = self.asked.remove(&(node, request));
        self.released.extend(rest.filter(|_| reason != ViewChangeRefusal::OtherChange));
    }

    /// A node has one view, and installs another one.
    fn check(&self, before: &ClusterView, view: &ClusterView) {
        for (_, partition) in self.released.iter().filter(|(number, _)| *number == before.number()) {
            let (old, new) = (before.partition(*partition).chain, view.partition(*partition).chain);
            let is_left_out = |node| {
                let after = view
                    .member(node)
                    .is_some_and(|one| before.member(node).map(|it| it.incarnation) == Some(one.incarnation));
                after && !new.contains(node)
            };
            assert!(
                !old.nodes().any(is_left_out),
                "view {} leaves somebody out of partition {partition:?}, whose primary goes on in view {}",
                view.number(),
                before.number()
            );
        }
    }
}

impl Network {
    /// Before a node has another view.
    pub(super) fn check_rests(&self, node: u8, view: &ClusterView) {
        self.rests.check(self.view(node), view);
    }
}
