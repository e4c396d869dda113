//! Node groups are added while the cluster runs: their data nodes start one after the other, at any moment, and join as
//! newcomers (`docs/protocols/reorganize.md`). Somebody asks for reorganisation meanwhile (`operator.rs`).
//!
//! A data node that is added is to the others as one that comes back (`returns.rs`): its first start that anybody meets
//! is the second one. Some have less memory than the others, so that they have no room for partitions.

use crate::agenda::Time;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::profile::Profile;
use crate::restart::NodeStart;
use crate::world::{Event, World};
use fastrand::Rng;

/// A data node that is added.
#[derive(Clone, Copy, Debug)]
pub struct AddedNode {
    /// Its node group.
    pub group: u16,
    /// Pages of each of its data managers.
    pub pages: u32,
}

/// Whether node groups are added in the runs of a seed, by numbers of its own.
pub fn are_drawn(seed: u64) -> bool {
    Rng::with_seed(seed.wrapping_mul(149)).u8(..2) == 0
}

impl Profile {
    /// The data nodes that are added. Where no partition has several replicas none can move.
    #[must_use]
    pub fn with_added_nodes(mut self, seed: u64) -> Self {
        if !self.groups.have_replicas() {
            self.faults.remove(&Fault::AddNodeGroup);
        }
        if !self.faults.contains(&Fault::AddNodeGroup) {
            return self;
        }
        let mut random = Rng::with_seed(seed.wrapping_mul(151));
        let list = self.groups.list();
        let size = |group: u16| list.iter().filter(|other| **other == group).count();
        let first = list.iter().max().map_or(0, |last| last + 1);
        let replicas = (0..first).map(size).max().unwrap_or(1);
        // Nobody may fail in a calm run for want of memory.
        let are_small = !self.is_calm && random.u8(..3) == 0;
        let groups = if random.u8(..6) == 0 { 2 } else { 1 };
        for group in first..first + groups {
            for _ in 0..replicas {
                let is_small = are_small && random.bool();
                let pages = if is_small { random.u32(2..12) } else { self.pools.pages };
                self.added.push(AddedNode { group, pages });
            }
        }
        if !self.is_calm {
            // Enough to do for as long as partitions move.
            self.transactions = self.transactions.max(random.u32(50..400));
            self.fault_time = self.fault_time.max(random.u64(500_000..2_500_000));
        }
        self
    }

    /// The node group of each data node, those too that are added.
    pub fn node_groups(&self) -> Vec<u16> {
        self.groups.list().into_iter().chain(self.added.iter().map(|node| node.group)).collect()
    }

    /// The data nodes that are added, for people.
    pub fn describe_added(&self) -> String {
        if self.added.is_empty() {
            return String::new();
        }
        let pages: Vec<String> = self.added.iter().map(|node| node.pages.to_string()).collect();
        format!(" with {} added data nodes of {} pages", pages.len(), pages.join(", "))
    }

    /// Pages of each data manager of a data node.
    pub fn pages_of(&self, node: u8) -> u32 {
        let added = usize::from(node).checked_sub(self.groups.list().len() + 1);
        added.and_then(|at| self.added.get(at)).map_or(self.pools.pages, |node| node.pages)
    }
}

/// Data nodes that are added.
pub struct Additions {
    random: Rng,
    /// So many are going to start for the first time.
    left: usize,
}

impl Additions {
    pub fn new(seed: u64) -> Self {
        Additions { random: Rng::with_seed(seed ^ 0x0061_6464), left: 0 }
    }

    /// Whether data nodes are going to start for the first time.
    pub fn are_under_way(&self) -> bool {
        self.left > 0
    }
}

impl World {
    /// The node group of each data node that there has been so far.
    pub(crate) fn node_groups(&self) -> Vec<u16> {
        let mut groups = self.profile.node_groups();
        groups.truncate(self.alive.len());
        groups
    }

    /// Whether data nodes were added.
    pub(crate) fn has_grown(&self) -> bool {
        self.alive.len() > self.profile.groups.list().len()
    }

    /// Data nodes are added from now on.
    pub(crate) fn begin_additions(&mut self) {
        self.additions.left = self.profile.added.len();
        if self.additions.are_under_way() {
            let part = [2, 8, 40][self.additions.random.usize(..3)];
            let pause = self.additions.random.u64(1_000..self.profile.fault_time / part);
            self.agenda.enter(self.now() + pause, Event::AddNode);
            self.begin_reorganizing();
        }
    }

    /// Whether a data node waits for a node group before its own, of which nobody is there nor going to come.
    fn waits_in_vain(&self, node: u8) -> bool {
        let groups = self.node_groups();
        let known = self.present_views().iter().map(|view| view.groups()).max().unwrap_or_default();
        let comes = |group: u16| {
            let mut own = (1..).zip(&groups).filter(|(_, of)| **of == group).map(|(node, _)| node);
            own.any(|node| self.is_alive(node) || self.returns.is_pending(node))
        };
        self.is_alive(node)
            && !self.has_started(node)
            && (known..groups[usize::from(node) - 1]).any(|group| !comes(group))
    }

    /// Whether data nodes are on their way that may become members.
    pub(crate) fn may_anybody_join(&self) -> bool {
        let may_join = |node: u8| self.is_alive(node) && !self.has_started(node) && !self.waits_in_vain(node);
        self.returns.is_anybody_pending()
            || self.additions.are_under_way()
            || (1..=self.alive.len() as u8).any(may_join)
    }

    /// Data nodes that wait in vain end, and do not come back.
    pub(crate) fn end_waiting_in_vain(&mut self) {
        let waiting: Vec<u8> =
            (1..=self.alive.len() as u8).filter(|&node| self.waits_in_vain(node)).collect();
        for node in waiting {
            self.note(|| format!("data node {node} ends: there is no node group before its own"));
            self.returns.end();
            self.kill_node(node);
        }
    }

    /// The next data node starts that was never there.
    pub(crate) fn on_add_node(&mut self) {
        self.additions.left -= 1;
        if !self.is_anybody_there() {
            self.additions.left = 0;
            return;
        }
        self.clocks.push(Clock::draw(&mut self.clock_random, self.profile.drift_max));
        self.disks.push(Disk::new(self.profile.disk, self.disk_random.u64(..)));
        let start = NodeStart { is_started: false, incarnation: 1, cluster_incarnation: 1, database: 1 };
        self.starts_of_nodes.push(start);
        self.alive.push(false);
        let node = self.alive.len() as u8;
        self.note(|| format!("data node {node} is added"));
        self.join(node);
        if self.additions.are_under_way() {
            let random = &mut self.additions.random;
            let pause: Time = if random.u8(..4) > 0 { random.u64(..30_000) } else { random.u64(..400_000) };
            self.agenda.enter(self.now() + pause, Event::AddNode);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::{Fault, Profile};
    use crate::{Options, run_seed};
    use std::collections::BTreeSet;

    #[test]
    fn partitions_move_to_node_groups_that_are_added() {
        let has_some = |seed: &u64| !Profile::of(*seed, &BTreeSet::new()).added.is_empty();
        let moves = |seed: u64| {
            let report = run_seed(seed, &Options { returning_nodes: true, ..Options::default() });
            assert_eq!(report.violation, None, "seed {seed}");
            report.marks.contains("memory of a partition that was given up is free")
        };
        assert!((1..).filter(has_some).take(10).any(moves));
    }

    #[test]
    fn an_added_node_group_has_as_many_data_nodes_as_a_partition_has_replicas() {
        for profile in (1..300).map(|seed| Profile::of(seed, &BTreeSet::new())) {
            assert_eq!(profile.added.is_empty(), !profile.faults.contains(&Fault::AddNodeGroup));
            let groups = profile.node_groups();
            let size = |group: u16| groups.iter().filter(|other| **other == group).count();
            let replicas = profile.groups.list().into_iter().map(size).max();
            assert!(profile.added.iter().all(|node| Some(size(node.group)) == replicas));
        }
    }
}
