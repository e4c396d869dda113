//! Going through a range, upwards or downwards.
//!
//! A cursor lives for one slice of a scan and borrows the index, so it need not care about changes. Between slices a
//! scan keeps the key and the row id of the last entry that it has dealt with: the next slice goes over what is left of
//! the range, from behind that entry on ([`Cut::after`], downwards up to [`Cut::before`]), whatever has happened to the
//! entry meanwhile.
//!
//! In each node above the leaves the cursor first finds out which leaves belong to the range as a whole, and in the
//! others how many of their entries do; then it hands them out without any comparison. The next leaf is loaded
//! meanwhile, and so are the rows of the entries to come.

use super::cut::{Cut, KeySource, Shared};
use super::entry::Entry;
use super::node::{Level, Node};
use super::{Path, Tree};
use vinga_base::page_pool::PagePool;

pub use vinga_base::order_key::Direction;

/// How many entries before an entry is handed out its row is loaded.
const ROWS_AHEAD: usize = 8;

/// How many entries before an entry is handed out that is loaded to which its row leads.
const RESTS_AHEAD: usize = 4;

/// The entries between two cuts.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// They are behind this.
    pub from: Cut<'a>,
    /// And before this; `None` if the range goes to the end.
    pub to: Option<Cut<'a>>,
}

impl Range<'static> {
    /// All entries.
    pub const ALL: Range<'static> = Range { from: Cut::START, to: None };
}

/// See the head of this file.
pub struct Cursor<'a, const N: usize> {
    tree: &'a Tree<N>,
    pool: &'a PagePool,
    range: Range<'a>,
    direction: Direction,
    path: Path,
    leaf: Option<Node<&'a [u8; N], N>>,
    /// The child of the node above the leaf in which the range ends: the leaves before it (downwards: behind it) belong
    /// to the range as a whole. `None` if the range does not end, or there is no such node.
    last_child: Option<usize>,
    /// The entries of the leaf that are still to be handed out are in the places from `low` on and before `high`.
    low: usize,
    high: usize,
    /// Entries that count the same key of the same row are one for whoever reads.
    last: Option<Entry>,
}

impl<const N: usize> Tree<N> {
    /// Goes over a range.
    #[inline]
    pub fn cursor<'a, S: KeySource>(
        &'a self,
        pool: &'a PagePool,
        source: &mut S,
        range: Range<'a>,
        direction: Direction,
    ) -> Cursor<'a, N> {
        let path = Path::new();
        let mut cursor = Cursor {
            tree: self,
            pool,
            range,
            direction,
            path,
            leaf: None,
            last_child: None,
            low: 0,
            high: 0,
            last: None,
        };
        if self.height > 0 {
            cursor.begin(source);
        }
        cursor
    }

    /// Appends the key of an entry that a cursor has handed out since the index was changed last.
    pub fn write_key<S: KeySource>(
        &self,
        pool: &PagePool,
        source: &mut S,
        entry: &Entry,
        out: &mut alloc::vec::Vec<u8>,
    ) {
        self.reader(pool, source).with_key(entry, |key| out.extend_from_slice(key));
    }
}

impl<const N: usize> Cursor<'_, N> {
    /// The next entry.
    #[inline]
    pub fn next<S: KeySource>(&mut self, source: &mut S) -> Option<Entry> {
        if self.advance(source) { self.last } else { None }
    }

    /// The entry that [`Cursor::advance`] has come to, and nobody has gone on since.
    #[inline]
    pub fn current(&self) -> &Entry {
        self.last.as_ref().expect("it has come to an entry")
    }

    /// Goes on to the next entry; false if there is none. For whoever needs only a part of most entries: one that is
    /// given back is written in parts and read as a whole, for which a processor waits until it is all written.
    #[inline]
    pub fn advance<S: KeySource>(&mut self, source: &mut S) -> bool {
        loop {
            while self.low < self.high {
                let leaf = self.leaf.as_ref().expect("places are places of a leaf");
                let entry = match self.direction {
                    Direction::Ascending => {
                        self.low += 1;
                        if self.low + ROWS_AHEAD <= self.high {
                            source.prefetch(self.pool, leaf.row(self.low + ROWS_AHEAD - 1));
                        }
                        if self.low + RESTS_AHEAD <= self.high {
                            source.prefetch_rest(self.pool, leaf.row(self.low + RESTS_AHEAD - 1));
                        }
                        leaf.entry(self.low - 1)
                    }
                    Direction::Descending => {
                        self.high -= 1;
                        if self.high >= self.low + ROWS_AHEAD {
                            source.prefetch(self.pool, leaf.row(self.high - ROWS_AHEAD));
                        }
                        if self.high >= self.low + RESTS_AHEAD {
                            source.prefetch_rest(self.pool, leaf.row(self.high - RESTS_AHEAD));
                        }
                        leaf.entry(self.high)
                    }
                };
                if self.last.is_none_or(|last| !last.is_same(&entry)) {
                    self.last = Some(entry);
                    return true;
                }
            }
            if !self.next_leaf(source) {
                return false;
            }
        }
    }

    /// Finds the first leaf.
    fn begin<S: KeySource>(&mut self, source: &mut S) {
        let Cursor { tree, pool, range, .. } = *self;
        let mut resolver = tree.reader(pool, source);
        let cut = match self.direction {
            Direction::Ascending => Some(&range.from),
            Direction::Descending => range.to.as_ref(),
        };
        match cut {
            Some(cut) => tree.descend(&mut resolver, cut, &mut self.path),
            None => tree.descend_to_end(pool, &mut self.path),
        }
        self.find_last_child(source);
        let step = self.path.steps[tree.height - 1];
        self.enter(source, step.node, Some(step.at.into()));
    }

    /// The cut at which the cursor ends, if it does not go to the end of the index.
    fn end(&self) -> Option<&Cut<'_>> {
        match self.direction {
            Direction::Ascending => self.range.to.as_ref(),
            Direction::Descending => Some(&self.range.from).filter(|from| !from.is_start()),
        }
    }

    /// Finds out in which child of the node above the leaf the range ends.
    fn find_last_child<S: KeySource>(&mut self, source: &mut S) {
        self.last_child = None;
        if let (Some(depth), Some(end)) = (self.tree.height.checked_sub(2), self.end()) {
            let parent = self.tree.nodes.node(self.pool, self.path.steps[depth].node, Level::Inner);
            let first = Level::Inner.first();
            let place =
                self.tree.reader(self.pool, source).search(&parent, first, end, &mut Shared::default());
            self.last_child = Some(place - 1);
        }
    }

    /// Whether all entries of the leaf to which the path leads are before the end of the range.
    fn is_whole(&self) -> bool {
        let (Some(end), Some(depth)) = (self.last_child, self.tree.height.checked_sub(2)) else {
            return self.end().is_none();
        };
        match self.direction {
            Direction::Ascending => usize::from(self.path.steps[depth].at) < end,
            Direction::Descending => usize::from(self.path.steps[depth].at) > end,
        }
    }

    /// Takes the leaf to which the path leads. `border` is how many of its entries are before the cut from which the
    /// cursor comes, if that is in this leaf.
    fn enter<S: KeySource>(&mut self, source: &mut S, number: u32, border: Option<usize>) {
        let Cursor { tree, pool, .. } = *self;
        let leaf = tree.nodes.node(pool, number, Level::Leaf);
        let end = if self.is_whole() { None } else { self.end() };
        let from = match self.direction {
            Direction::Ascending => border.unwrap_or(0),
            Direction::Descending => 0,
        };
        let end = end.map(|end| tree.reader(pool, source).search(&leaf, from, end, &mut Shared::default()));
        let ahead = match self.direction {
            Direction::Ascending => {
                (self.low, self.high) = (from, end.unwrap_or(leaf.len()));
                self.low..self.high.min(self.low + ROWS_AHEAD)
            }
            Direction::Descending => {
                (self.low, self.high) = (end.unwrap_or(0), border.unwrap_or(leaf.len()));
                self.low.max(self.high.saturating_sub(ROWS_AHEAD))..self.high
            }
        };
        ahead.for_each(|place| source.prefetch(pool, leaf.row(place)));
        self.leaf = Some(leaf);
        if let Some(neighbour) = self.neighbour_in_parent() {
            tree.nodes.prefetch(pool, neighbour);
        }
    }

    /// The leaf to come next, if it has the same parent.
    fn neighbour_in_parent(&self) -> Option<u32> {
        let depth = self.tree.height.checked_sub(2)?;
        let step = self.path.steps[depth];
        let parent = self.tree.nodes.node(self.pool, step.node, Level::Inner);
        self.neighbour(usize::from(step.at), parent.len()).map(|at| parent.child(at))
    }

    /// The place behind or in front of this one.
    fn neighbour(&self, at: usize, len: usize) -> Option<usize> {
        match self.direction {
            Direction::Ascending => (at + 1 < len).then_some(at + 1),
            Direction::Descending => at.checked_sub(1),
        }
    }

    /// Goes on to the next leaf; false if no entry of the range can be there.
    fn next_leaf<S: KeySource>(&mut self, source: &mut S) -> bool {
        let Some(leaf) = &self.leaf else { return false };
        let range_ends_here = match self.direction {
            Direction::Ascending => self.high < leaf.len(),
            Direction::Descending => self.low > 0,
        };
        if range_ends_here || !self.step(source) {
            self.leaf = None;
            (self.low, self.high) = (0, 0);
            return false;
        }
        let number = self.path.steps[self.tree.height - 1].node;
        self.enter(source, number, None);
        true
    }

    /// Moves the path by one leaf.
    fn step<S: KeySource>(&mut self, source: &mut S) -> bool {
        let Cursor { tree, pool, .. } = *self;
        for depth in (0..tree.height - 1).rev() {
            let step = self.path.steps[depth];
            let node = tree.nodes.node(pool, step.node, Level::Inner);
            let Some(at) = self.neighbour(step.at.into(), node.len()) else { continue };
            self.path.steps[depth].at = at as u16;
            let mut number = node.child(at);
            for below in depth + 1..tree.height {
                self.path.steps[below].node = number;
                if below + 1 < tree.height {
                    let node = tree.nodes.node(pool, number, Level::Inner);
                    let at = match self.direction {
                        Direction::Ascending => 0,
                        Direction::Descending => node.len() - 1,
                    };
                    self.path.steps[below].at = at as u16;
                    number = node.child(at);
                }
            }
            if depth + 2 < tree.height {
                self.find_last_child(source);
            }
            return true;
        }
        false
    }
}

impl<const N: usize> Tree<N> {
    /// The way to the end. There must be a root.
    pub(super) fn descend_to_end(&self, pool: &PagePool, path: &mut Path) {
        let mut number = self.root;
        for depth in 0..self.height {
            let level = self.level(depth);
            let node = self.nodes.node(pool, number, level);
            let step = &mut path.steps[depth];
            step.node = number;
            step.is_last = true;
            step.at = match level {
                Level::Leaf => node.len(),
                Level::Inner => node.len() - 1,
            } as u16;
            if level == Level::Inner {
                number = node.child(usize::from(step.at));
            }
        }
    }
}
