//! Graphs of transactions that are ordered by edges and by time, and cycles in them.
//!
//! What ended before another one began comes before it. There are too many of these pairs to be edges: both searches
//! find them by the transactions' times.

use crate::history::Time;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// When a transaction happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Not before.
    pub begun: Time,
    /// Not after; [`Time::MAX`] if nobody knows.
    pub ended: Time,
}

/// A step of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step<E> {
    /// This node comes
    pub from: usize,
    /// before this one.
    pub to: usize,
    /// Why; `None`: it had ended before the other one began.
    pub edge: Option<E>,
}

/// Nodes with their times, and edges between them.
pub struct Graph<E> {
    spans: Vec<Span>,
    /// Of each node, by the node that comes behind it: the first edge that was given.
    edges: Vec<BTreeMap<usize, E>>,
}

impl<E: Copy> Graph<E> {
    /// Nodes without edges, by number.
    pub fn new(spans: Vec<Span>) -> Self {
        let edges = spans.iter().map(|_| BTreeMap::new()).collect();
        Graph { spans, edges }
    }

    /// One node comes before another. Nothing happens if they are the same.
    pub fn add(&mut self, from: usize, to: usize, edge: E) {
        if from != to {
            self.edges[from].entry(to).or_insert(edge);
        }
    }

    /// A cycle of as few nodes as possible, in order; `None` if there is none.
    pub fn shortest_cycle(&self) -> Option<Vec<Step<E>>> {
        let left = self.without_order();
        let mut by_begin: Vec<usize> = left.iter().copied().collect();
        by_begin.sort_by_key(|&node| (self.spans[node].begun, node));
        let mut shortest: Option<Vec<Step<E>>> = None;
        for &node in &by_begin {
            let length_max = shortest.as_ref().map_or(usize::MAX, |cycle| cycle.len() - 1);
            // No edge leads from a node to itself, so none is shorter.
            if length_max < 2 {
                break;
            }
            shortest = self.cycle_through(node, &left, &by_begin, length_max).or(shortest);
        }
        shortest
    }

    /// The nodes that remain when one after the other is taken away which no remaining node comes before: none if there
    /// is no cycle; all nodes of all cycles are among them.
    fn without_order(&self) -> BTreeSet<usize> {
        let mut before = vec![0_usize; self.spans.len()];
        self.edges.iter().flat_map(BTreeMap::keys).for_each(|&to| before[to] += 1);
        let mut left: BTreeSet<(Time, usize)> =
            self.spans.iter().zip(0..).map(|(span, node)| (span.ended, node)).collect();
        let mut free: BTreeSet<(Time, usize)> =
            self.spans.iter().zip(0..).map(|(s, n)| (s.begun, n)).collect();
        free.retain(|&(_, node)| before[node] == 0);
        while let (Some(&(begun, node)), Some(&(first_end, _))) = (free.first(), left.first()) {
            // If the first that begins must wait for somebody's end, so must all others.
            if begun > first_end {
                break;
            }
            free.pop_first();
            left.remove(&(self.spans[node].ended, node));
            for &to in self.edges[node].keys() {
                before[to] -= 1;
                if before[to] == 0 {
                    free.insert((self.spans[to].begun, to));
                }
            }
        }
        left.into_iter().map(|(_, node)| node).collect()
    }

    /// A shortest cycle through a node, of nodes that are left, with at most so many steps. `by_begin` are all of these
    /// in the order in which they began.
    fn cycle_through(
        &self,
        root: usize,
        left: &BTreeSet<usize>,
        by_begin: &[usize],
        length_max: usize,
    ) -> Option<Vec<Step<E>>> {
        // How each node was reached, and in how many steps.
        let mut reached: BTreeMap<usize, (Step<E>, usize)> = BTreeMap::new();
        // All nodes from this index on were reached because of their times.
        let mut all_from = by_begin.len();
        let mut queue = VecDeque::from([(root, 0)]);
        while let Some((from, length)) = queue.pop_front() {
            if length >= length_max {
                return None;
            }
            let ended = self.spans[from].ended;
            let first = by_begin.partition_point(|&node| self.spans[node].begun <= ended);
            let by_edges = self.edges[from]
                .iter()
                .filter(|(to, _)| left.contains(*to))
                .map(|(&to, &edge)| (to, Some(edge)));
            let by_time = by_begin[first.min(all_from)..all_from].iter().map(|&to| (to, None));
            all_from = all_from.min(first);
            for (to, edge) in by_edges.chain(by_time) {
                let step = Step { from, to, edge };
                if to == root {
                    return Some(self.way_to(step, root, &reached));
                }
                if let alloc::collections::btree_map::Entry::Vacant(entry) = reached.entry(to) {
                    entry.insert((step, length + 1));
                    queue.push_back((to, length + 1));
                }
            }
        }
        None
    }

    /// The steps from a root, as far as this last one.
    fn way_to(
        &self,
        last: Step<E>,
        root: usize,
        reached: &BTreeMap<usize, (Step<E>, usize)>,
    ) -> Vec<Step<E>> {
        let mut steps = vec![last];
        let mut at = last.from;
        while at != root {
            let (step, _) = reached[&at];
            steps.push(step);
            at = step.from;
        }
        steps.reverse();
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of nodes that all happen at the same time, with these edges.
    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph<()> {
        let mut graph = Graph::new(vec![Span { begun: 0, ended: 10 }; nodes]);
        edges.iter().for_each(|&(from, to)| graph.add(from, to, ()));
        graph
    }

    fn cycle(graph: &Graph<()>) -> Option<Vec<(usize, usize)>> {
        graph.shortest_cycle().map(|steps| steps.iter().map(|step| (step.from, step.to)).collect())
    }

    #[test]
    fn the_shortest_cycle_is_found() {
        assert_eq!(cycle(&graph(0, &[])), None);
        assert_eq!(cycle(&graph(4, &[(0, 1), (1, 2), (0, 2), (2, 3), (3, 3)])), None);
        let long = [(0, 1), (1, 2), (2, 3), (3, 0)];
        assert_eq!(cycle(&graph(5, &[&long[..], &[(3, 4)]].concat())), Some(long.to_vec()));
        let both = [&long[..], &[(4, 5), (5, 6), (6, 4), (2, 4)]].concat();
        assert_eq!(cycle(&graph(7, &both)), Some(vec![(4, 5), (5, 6), (6, 4)]));
    }

    #[test]
    fn time_belongs_to_cycles() {
        let span = |begun, ended| Span { begun, ended };
        let mut graph = Graph::new(vec![span(0, 10), span(11, 20), span(5, 15), span(21, Time::MAX)]);
        graph.add(0, 2, ());
        graph.add(2, 1, ());
        assert_eq!(cycle(&graph), None);
        // It had ended when the other began: that can't come before it.
        graph.add(1, 0, ());
        let steps = graph.shortest_cycle().unwrap();
        assert_eq!(steps, [Step { from: 0, to: 1, edge: None }, Step { from: 1, to: 0, edge: Some(()) }]);
    }

    #[test]
    fn what_ends_as_another_begins_may_come_behind_it() {
        let mut graph = Graph::new(vec![Span { begun: 0, ended: 10 }, Span { begun: 10, ended: 20 }]);
        graph.add(1, 0, ());
        assert_eq!(cycle(&graph), None);
    }

    /// Small random graphs have a cycle exactly if a search through all ways finds one, and none is shorter.
    #[test]
    fn all_cycles_of_small_graphs_are_found() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let nodes = random.usize(2..7);
            let spans = (0..nodes).map(|_| {
                let begun = random.u64(..20);
                Span { begun, ended: begun + random.u64(..20) }
            });
            let mut graph = Graph::new(spans.collect());
            for _ in 0..random.usize(..9) {
                graph.add(random.usize(..nodes), random.usize(..nodes), ());
            }
            let leads = |from: usize, to: usize| {
                graph.edges[from].contains_key(&to) || graph.spans[from].ended < graph.spans[to].begun
            };
            // For each pair the fewest steps from one to the other (Floyd and Warshall).
            let mut steps = vec![vec![usize::MAX; nodes]; nodes];
            for (from, to) in (0..nodes * nodes).map(|at| (at / nodes, at % nodes)) {
                if leads(from, to) {
                    steps[from][to] = 1;
                }
            }
            for by in 0..nodes {
                for (from, to) in (0..nodes * nodes).map(|at| (at / nodes, at % nodes)) {
                    steps[from][to] = steps[from][to].min(steps[from][by].saturating_add(steps[by][to]));
                }
            }
            let shortest = (0..nodes).map(|node| steps[node][node]).min().filter(|&least| least < usize::MAX);
            let found = graph.shortest_cycle();
            assert_eq!(found.as_ref().map(Vec::len), shortest, "seed {seed}");
            for step in found.into_iter().flatten() {
                assert!(leads(step.from, step.to), "seed {seed}: {step:?}");
            }
        }
    }
}
