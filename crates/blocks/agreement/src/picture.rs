//! Who reaches whom, as far as this node knows, and which members could go on together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Span, Tick};
use vinga_wire::view::ClusterView;

/// Whom one member does not reach.
#[derive(Clone, Default, Debug)]
pub(crate) struct Row {
    /// It suspects these.
    pub(crate) suspects: BTreeSet<NodeId>,
    /// These, too, have been silent for a while: that counts if somebody suspects one of the two.
    pub(crate) unreached: BTreeSet<NodeId>,
}

/// What other members have reported last.
#[derive(Default)]
pub(crate) struct Reports(BTreeMap<NodeId, (Tick, Row)>);

impl Reports {
    /// A member has reported whom it does not reach. That counts until it has not been repeated for a while.
    pub(crate) fn note(&mut self, node: NodeId, now: Tick, row: Row) {
        self.0.insert(node, (now, row));
    }

    /// A member has given up these, besides what it has reported.
    pub(crate) fn note_given_up(&mut self, node: NodeId, now: Tick, given_up: &[NodeId]) {
        let (at, row) = self.0.entry(node).or_default();
        *at = now;
        row.suspects.extend(given_up);
        row.unreached.extend(given_up);
    }

    /// Forgets all reports: they are about another view.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn fresh(&self, now: Tick, span: Span) -> impl Iterator<Item = (NodeId, &Row)> {
        self.0.iter().filter(move |(_, (at, _))| now.since(*at) <= span).map(|(&node, (_, row))| (node, row))
    }
}

/// Who reaches whom at one moment.
pub(crate) struct Picture<'a> {
    view: &'a ClusterView,
    /// A later view which somebody may have, and that leaves members out of partitions: those that are to go on should
    /// lack nothing in it either, or they stop.
    later: Option<&'a ClusterView>,
    /// Pairs of which one does not reach the other: each in both orders.
    apart: BTreeSet<(NodeId, NodeId)>,
    is_anybody_suspected: bool,
}

impl<'a> Picture<'a> {
    /// This node's own row, and what others have reported within the last `span`.
    pub(crate) fn of(
        view: &'a ClusterView,
        (own, own_row): (NodeId, Row),
        reports: &Reports,
        now: Tick,
        span: Span,
    ) -> Self {
        let mut rows: Vec<(NodeId, &Row)> = reports.fresh(now, span).collect();
        rows.push((own, &own_row));
        let suspected: BTreeSet<NodeId> = rows.iter().flat_map(|(_, row)| &row.suspects).copied().collect();
        let mut apart = BTreeSet::new();
        for (node, row) in rows {
            let unreached =
                row.unreached.iter().filter(|other| [node, **other].iter().any(|n| suspected.contains(n)));
            for &other in row.suspects.iter().chain(unreached) {
                apart.extend([(node, other), (other, node)]);
            }
        }
        Picture { view, later: None, apart, is_anybody_suspected: !suspected.is_empty() }
    }

    /// The same if somebody may have a later view, in which those that are to go on should lack nothing either.
    pub(crate) fn with_later(self, later: Option<&'a ClusterView>) -> Self {
        Picture { later, ..self }
    }

    /// Whether a set of members lacks something, so that it can't be a cluster by itself.
    fn is_lacking(&self, is_in: impl Fn(NodeId) -> bool) -> bool {
        [Some(self.view), self.later].into_iter().flatten().any(|view| view.lack_of(&is_in).is_some())
    }

    pub(crate) fn is_anybody_suspected(&self) -> bool {
        self.is_anybody_suspected
    }

    pub(crate) fn are_apart(&self, one: NodeId, other: NodeId) -> bool {
        self.apart.contains(&(one, other))
    }

    /// Those of the candidates that this node reaches, directly or by others: they may be alive.
    pub(crate) fn within_reach(&self, own: NodeId, candidates: &[NodeId]) -> Vec<NodeId> {
        let mut reached = BTreeSet::from([own]);
        loop {
            let is_next = |node: &NodeId| {
                !reached.contains(node) && reached.iter().any(|&other| !self.are_apart(*node, other))
            };
            let next: Vec<NodeId> = candidates.iter().copied().filter(is_next).collect();
            if next.is_empty() {
                return candidates.iter().copied().filter(|node| reached.contains(node)).collect();
            }
            reached.extend(next);
        }
    }

    /// The members of a set that are to go on: all reach each other, they can be a cluster by themselves, they are as
    /// many as possible, and the older ones if there is a choice. The candidates come in order of age, and so does the
    /// result. `None` if no such set is found.
    ///
    /// Leaves out one after the other: always the one that reaches the fewest; of several one that has not started, or
    /// one that is to stop, or the youngest; but never the last one with a partition, or with coordinators. That may
    /// miss the largest set if links fail all over the place, but it takes the same decision wherever the same is
    /// known. Nobody is left out for not reaching members that have not started: these go.
    pub(crate) fn best(&self, candidates: &[NodeId]) -> Option<Vec<NodeId>> {
        let mut left = candidates.to_vec();
        loop {
            let has_started = |node| self.view.has_started(node);
            let is_needed = |node| self.is_lacking(|other| other != node && left.contains(&other));
            let lonely: Vec<(usize, bool, bool, usize)> = left
                .iter()
                .enumerate()
                .filter_map(|(at, &node)| {
                    let apart = || left.iter().filter(|&&other| self.are_apart(node, other));
                    let counts = |other: &&NodeId| !has_started(node) || has_started(**other);
                    let leaves = self.view.is_leaving(node);
                    apart().next().map(|_| (apart().filter(counts).count(), !has_started(node), leaves, at))
                })
                .collect();
            if lonely.is_empty() {
                break;
            }
            let (.., at) = lonely.into_iter().filter(|&(.., at)| !is_needed(left[at])).max()?;
            left.remove(at);
        }
        (!self.is_lacking(|node| left.contains(&node))).then_some(left)
    }

    /// Whether all of a set that have started do not reach any of those that are to go.
    pub(crate) fn is_agreed(&self, set: &[NodeId], leaving: impl IntoIterator<Item = NodeId>) -> bool {
        let started = || set.iter().filter(|&&member| self.view.has_started(member));
        leaving.into_iter().all(|node| started().all(|&member| self.are_apart(member, node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::{Incarnation, PartitionId};
    use vinga_wire::view::Member;

    /// Nodes 1, 2 … in these groups.
    fn view(groups: &[u16]) -> ClusterView {
        let member = |(node, &group)| Member::started(NodeId(node), Incarnation(1), group, 1, 1);
        ClusterView::first((1..).zip(groups).map(member).collect())
    }

    fn best(groups: &[u16], apart: &[(u8, u8)]) -> Option<Vec<u8>> {
        let view = view(groups);
        let mut reports = Reports::default();
        for &(one, other) in apart {
            reports.note_given_up(NodeId(one), Tick(0), &[NodeId(other)]);
        }
        let own = (NodeId(1), Row::default());
        let picture = Picture::of(&view, own, &reports, Tick(0), Span(1));
        let all: Vec<NodeId> = view.members().iter().map(|member| member.node).collect();
        picture.best(&all).map(|set| set.iter().map(|node| node.0).collect())
    }

    #[test]
    fn one_link_costs_the_younger_one() {
        assert_eq!(best(&[0, 0, 1, 1], &[(1, 2)]), Some(vec![1, 3, 4]));
        assert_eq!(best(&[0, 0, 1, 1], &[(4, 3)]), Some(vec![1, 2, 3]));
    }

    #[test]
    fn the_last_one_of_a_group_stays() {
        assert_eq!(best(&[0, 0, 1], &[(1, 3)]), Some(vec![2, 3]));
        assert_eq!(best(&[0, 1, 1], &[(1, 2)]), Some(vec![1, 3]));
        assert_eq!(best(&[0, 1], &[(1, 2)]), None);
        assert_eq!(best(&[0, 1, 1], &[(1, 2), (1, 3)]), None);
    }

    #[test]
    fn the_only_one_with_coordinators_stays() {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, u16::from(node == 2));
        let view = ClusterView::first((1..=3).map(member).collect());
        let mut reports = Reports::default();
        reports.note_given_up(NodeId(1), Tick(0), &[NodeId(2)]);
        let picture = Picture::of(&view, (NodeId(1), Row::default()), &reports, Tick(0), Span(1));
        assert_eq!(picture.best(&[NodeId(1), NodeId(2), NodeId(3)]), Some(vec![NodeId(2), NodeId(3)]));
    }

    /// The last two of five have joined and not started.
    #[test]
    fn whoever_has_not_started_does_not_weigh() {
        let joined = Member::started(NodeId(5), Incarnation(1), 0, 1, 1);
        let another = Member { node: NodeId(6), ..joined.clone() };
        let view = view(&[0, 0, 1]).with_joined(joined).with_joined(another);
        let all: Vec<NodeId> = view.members().iter().map(|member| member.node).collect();
        let best = |apart: &[(u8, u8)]| {
            let mut reports = Reports::default();
            for &(one, other) in apart {
                reports.note_given_up(NodeId(one), Tick(0), &[NodeId(other)]);
            }
            let picture = Picture::of(&view, (NodeId(1), Row::default()), &reports, Tick(0), Span(1));
            picture.best(&all).map(|set| set.iter().map(|node| node.0).collect::<Vec<u8>>())
        };
        // Whoever does not reach them stays, however many they are.
        assert_eq!(best(&[(5, 1)]), Some(vec![1, 2, 3, 6]));
        assert_eq!(best(&[(5, 2), (6, 2)]), Some(vec![1, 2, 3]));
        // One that reaches nobody goes, and they do not.
        assert_eq!(best(&[(2, 1), (2, 3), (2, 5), (2, 6)]), Some(vec![1, 3, 5, 6]));
        assert_eq!(best(&[(1, 3), (2, 3)]), None, "they do not complete a cluster");
    }

    /// Of three with two partitions each the second one leaves, and is in the second partition only.
    #[test]
    fn one_that_leaves_goes_before_others_but_not_the_last_one_of_a_partition() {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 2, 1);
        let first = ClusterView::first((1..=3).map(member).collect());
        let leaving = first.with_leaving(NodeId(2)).with_primary(PartitionId(1), NodeId(3));
        let later = leaving.with_left_out(PartitionId(0));
        let best = |view: &ClusterView, later: Option<&ClusterView>, apart: &[(u8, u8)]| {
            let all: Vec<NodeId> = view.members().iter().map(|member| member.node).collect();
            let mut reports = Reports::default();
            for &(one, other) in apart {
                reports.note_given_up(NodeId(one), Tick(0), &[NodeId(other)]);
            }
            let picture = Picture::of(view, (NodeId(1), Row::default()), &reports, Tick(0), Span(1));
            let set = picture.with_later(later).best(&all);
            set.map(|set| set.iter().map(|node| node.0).collect::<Vec<u8>>())
        };
        let second_alone = [(2, 3), (1, 2), (1, 3)];
        assert_eq!(best(&first, None, &[(2, 3)]), Some(vec![1, 2]));
        assert_eq!(best(&leaving, None, &[(2, 3)]), Some(vec![1, 3]));
        assert_eq!(best(&leaving, None, &second_alone), Some(vec![1]));
        assert_eq!(best(&later, None, &[(1, 3)]), Some(vec![1, 2]), "it has the second partition still");
        // The first one, which is lost, may have the later view: the third one alone has the first partition for
        // certain.
        let first_alone = [(1, 2), (1, 3), (1, 4), (1, 5)];
        let third_lonely = [(1, 2), (1, 3), (1, 4), (1, 5), (3, 2), (3, 4)];
        let member = |node| Member::started(NodeId(node), Incarnation(1), u16::from(node > 3), 2, 1);
        let first = ClusterView::first((1..=5).map(member).collect());
        let leaving = first.with_leaving(NodeId(2)).with_primary(PartitionId(2), NodeId(3));
        let later = leaving.with_left_out(PartitionId(0));
        let best = |later: Option<&ClusterView>, apart: &[(u8, u8)]| best(&leaving, later, apart);
        assert_eq!(best(None, &first_alone), Some(vec![2, 3, 4, 5]));
        assert_eq!(best(Some(&later), &first_alone), Some(vec![2, 3, 4, 5]));
        assert_eq!(best(None, &third_lonely), Some(vec![2, 4, 5]));
        assert_eq!(best(Some(&later), &third_lonely), Some(vec![3, 5]));
    }

    #[test]
    fn whoever_reaches_nobody_goes() {
        assert_eq!(best(&[0, 0, 1, 1], &[(1, 2), (1, 3), (1, 4)]), Some(vec![2, 3, 4]));
    }

    #[test]
    fn the_larger_part_of_a_split_goes_on_and_the_older_of_two_halves() {
        assert_eq!(
            best(&[0, 0, 1, 1, 0], &[(1, 2), (1, 4), (1, 5), (3, 2), (3, 4), (3, 5)]),
            Some(vec![2, 4, 5])
        );
        assert_eq!(best(&[0, 0, 1, 1], &[(1, 2), (1, 4), (3, 2), (3, 4)]), Some(vec![1, 3]));
    }

    /// As large as any set that reaches each other and has all groups, with up to two links that fail among up to five.
    #[test]
    fn the_set_is_as_large_as_possible_if_two_links_fail() {
        for groups in [&[0, 0, 0][..], &[0, 0, 1, 1], &[0, 1, 1], &[0, 0, 0, 0], &[0, 1, 0, 1, 0], &[0, 0, 1]]
        {
            let count = groups.len() as u8;
            let pairs: Vec<(u8, u8)> =
                (1..=count).flat_map(|a| (a + 1..=count).map(move |b| (a, b))).collect();
            for &one in &pairs {
                for &other in &pairs {
                    let apart = [one, other];
                    let is_good = |set: u32| {
                        let has = |node: u8| set & 1 << (node - 1) != 0;
                        let view = view(groups);
                        view.lack_of(|node| has(node.0)).is_none()
                            && apart.iter().all(|&(a, b)| !(has(a) && has(b)))
                    };
                    let most = (0..1 << count).filter(|&set| is_good(set)).map(u32::count_ones).max();
                    let found = best(groups, &apart).map(|set| set.len() as u32);
                    assert_eq!(found, most, "{groups:?} {apart:?}");
                }
            }
        }
    }
}
