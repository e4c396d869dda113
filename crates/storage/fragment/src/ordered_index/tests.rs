//! The index against a model, and tests of its edge cases.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::order_key::{Direction, OrderColumn, OrderKey};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};

mod bulk;

/// Small nodes make high trees.
type SmallTree = Tree<128>;

type Key = Vec<u8>;

/// Keys with equal first 8 bytes and equal hashes as far as an entry stores them, in groups of two and three.
static COLLIDING: LazyLock<Vec<Vec<Key>>> = LazyLock::new(|| {
    let mut by_word: BTreeMap<u32, Vec<Key>> = BTreeMap::new();
    for number in 0..200_000u32 {
        let key = [&b"prefix__"[..], &number.to_be_bytes()].concat();
        by_word.entry(Entry::new(&key, RowId(0)).word).or_default().push(key);
    }
    let mut groups: Vec<Vec<Key>> = by_word.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| core::cmp::Reverse(group.len()));
    assert!(groups[0].len() > 2, "three keys agree");
    groups.truncate(40);
    groups
});

/// The keys that an index is tested with.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Of 8 bytes.
    Numbers,
    /// Of up to 8 bytes, few different ones, some of them prefixes of others.
    Short,
    /// Of any length, with long common prefixes.
    Long,
    /// Of 3 to 36 bytes, with common prefixes of all lengths.
    Branching,
    /// Of any length, with zeros at their ends.
    Padded,
    /// Those that an entry does not distinguish.
    Colliding,
    /// All of these.
    Mixed,
}

impl Keys {
    const ALL: [Keys; 7] =
        [Keys::Numbers, Keys::Short, Keys::Long, Keys::Branching, Keys::Padded, Keys::Colliding, Keys::Mixed];

    fn key(self, number: u32) -> Key {
        match self {
            Keys::Numbers => u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
            Keys::Short => std::vec![(number % 3) as u8; (number / 3 % 9) as usize],
            Keys::Long => {
                let shared =
                    &b"a beginning that many of the keys have in common"[..(number % 7 * 8) as usize];
                [shared, &(number / 7 % 300).to_be_bytes()[2..]].concat()
            }
            Keys::Branching => {
                let mixed = number.wrapping_mul(0x9e37_79b9) >> 20;
                (0..1 + number % 12).flat_map(|bit| [b'a' + (mixed >> bit & 1) as u8; 3]).collect()
            }
            Keys::Padded => {
                let zeros = std::vec![0; (number / 4 % 35) as usize];
                [&b"begins"[..(number % 4 * 2) as usize], &zeros, &b"\x01"[..(number / 140 % 2) as usize]]
                    .concat()
            }
            Keys::Colliding => {
                let group = &COLLIDING[number as usize % COLLIDING.len()];
                group[number as usize / COLLIDING.len() % group.len()].clone()
            }
            Keys::Mixed => {
                let kinds = &Self::ALL[..6];
                kinds[number as usize % 6].key(number / 6)
            }
        }
    }
}

/// The rows' versions: how many versions of each row have each key.
#[derive(Default)]
struct Rows {
    versions: BTreeMap<RowId, BTreeMap<Key, u32>>,
    /// A key that is being inserted or removed: the row may have it or not.
    moving: Option<(RowId, Key)>,
    /// Whether the row's keys include `moving`.
    is_seen: bool,
    /// How often a row was read.
    reads: u64,
}

impl KeySource for Rows {
    fn keys(&mut self, _: &PagePool, row: RowId, mut each: impl FnMut(&[u8])) {
        self.reads += 1;
        let moving = self.moving.as_ref().filter(|moving| moving.0 == row && self.is_seen);
        moving.iter().for_each(|moving| each(&moving.1));
        for key in self.versions.get(&row).into_iter().flat_map(BTreeMap::keys) {
            each(key);
            each(key);
        }
    }
}

/// An index beside what must be in it.
struct Pair<const N: usize> {
    pool: PagePool,
    tree: Tree<N>,
    rows: Rows,
    model: BTreeMap<(Key, RowId), u32>,
}

impl<const N: usize> Pair<N> {
    fn new(pages: u32) -> Self {
        let (pool, rows, model) = (PagePool::standalone(pages), Rows::default(), BTreeMap::new());
        Pair { pool, tree: Tree::new(), rows, model }
    }

    /// Returns whether there was memory.
    fn insert(&mut self, key: &[u8], row: u32, is_seen: bool) -> bool {
        let row = RowId(row);
        self.rows.moving = Some((row, key.to_vec()));
        self.rows.is_seen = is_seen;
        let pages = self.tree.nodes.pages();
        let result = self.tree.insert(&mut self.pool, Purpose::Ordinary, &mut self.rows, key, row);
        self.rows.moving = None;
        if result.is_ok() {
            *self.rows.versions.entry(row).or_default().entry(key.to_vec()).or_default() += 1;
            *self.model.entry((key.to_vec(), row)).or_default() += 1;
        } else {
            assert_eq!(pages, self.tree.nodes.pages());
        }
        result.is_ok()
    }

    /// Removes a key that is in the index.
    fn remove(&mut self, key: &[u8], row: u32, is_seen: bool) {
        let row = RowId(row);
        let count = self.model.get_mut(&(key.to_vec(), row)).expect("the key is in the model");
        *count -= 1;
        if *count == 0 {
            self.model.remove(&(key.to_vec(), row));
        }
        let versions = self.rows.versions.get_mut(&row).unwrap();
        *versions.get_mut(key).unwrap() -= 1;
        versions.retain(|_, count| *count > 0);
        if versions.is_empty() {
            self.rows.versions.remove(&row);
        }
        self.rows.moving = Some((row, key.to_vec()));
        self.rows.is_seen = is_seen;
        self.tree.remove(&mut self.pool, &mut self.rows, key, row);
        self.rows.moving = None;
    }

    fn check(&mut self) {
        self.tree.check(&self.pool, &mut self.rows);
        assert_eq!(self.pool.owned(), self.tree.nodes.pages());
        let counts: u32 = self.model.values().sum();
        let found = if self.tree.height == 0 { 0 } else { self.counts(0, self.tree.root) };
        assert_eq!(found, counts, "counts are those of the model");
        let expected: Vec<(Key, RowId)> = self.model.keys().cloned().collect();
        assert_eq!(self.read(Range::ALL, Direction::Ascending), expected);
    }

    /// The sum of the counts of all entries below a node.
    fn counts(&self, depth: usize, number: u32) -> u32 {
        let level = self.tree.level(depth);
        let node = self.tree.nodes.node(&self.pool, number, level);
        let of_place = |place| match level {
            Level::Leaf => node.entry(place).count(),
            Level::Inner => self.counts(depth + 1, node.child(place)),
        };
        (0..node.len()).map(of_place).sum()
    }

    fn read(&mut self, range: Range<'_>, direction: Direction) -> Vec<(Key, RowId)> {
        let mut cursor = self.tree.cursor(&self.pool, &mut self.rows, range, direction);
        let mut found = Vec::new();
        while let Some(entry) = cursor.next(&mut self.rows) {
            let mut key = Vec::new();
            self.tree.write_key(&self.pool, &mut self.rows, &entry, &mut key);
            found.push((key, entry.row()));
        }
        assert!(cursor.next(&mut self.rows).is_none(), "the end stays the end");
        found
    }

    /// Reads a range in slices of some entries, each with a new cursor.
    fn read_in_slices(&mut self, range: Range<'_>, direction: Direction, slice: usize) -> Vec<(Key, RowId)> {
        let mut found: Vec<(Key, RowId)> = Vec::new();
        loop {
            let last = found.last().cloned();
            let rest = match (&last, direction) {
                (None, _) => range,
                (Some((key, row)), Direction::Ascending) => Range { from: Cut::after(key, *row), ..range },
                (Some((key, row)), Direction::Descending) => {
                    Range { to: Some(Cut::before(key, *row)), ..range }
                }
            };
            let mut next = self.read(rest, direction);
            next.truncate(slice);
            if next.is_empty() {
                return found;
            }
            found.append(&mut next);
        }
    }

    /// Compares a range, both ways, with the model.
    fn check_range(&mut self, from: (&[u8], u32), to: Option<(&[u8], u32)>, slice: usize) {
        fn cut<'a>(&(key, row): &(&'a [u8], u32)) -> Cut<'a> {
            match row % 5 {
                0 => Cut::before_key(key),
                1 => Cut::after_key(key),
                2 | 3 => Cut::before(key, RowId(row)),
                _ => Cut::after(key, RowId(row)),
            }
        }
        // The first row id that is not before the cut.
        let border = |row: u32| match row % 5 {
            0 => 0,
            1 => u64::MAX,
            2 | 3 => u64::from(row),
            _ => u64::from(row) + 1,
        };
        let range = Range { from: cut(&from), to: to.as_ref().map(cut) };
        let place = |(key, row): &(Key, RowId)| (key.clone(), u64::from(row.0));
        let mut expected: Vec<(Key, RowId)> = self
            .model
            .keys()
            .filter(|entry| place(entry) >= (from.0.to_vec(), border(from.1)))
            .filter(|entry| to.is_none_or(|to| place(entry) < (to.0.to_vec(), border(to.1))))
            .cloned()
            .collect();
        assert_eq!(self.read(range, Direction::Ascending), expected);
        assert_eq!(self.read_in_slices(range, Direction::Ascending, slice), expected);
        let estimate = self.tree.estimate(&self.pool, &mut self.rows, &range);
        assert!(estimate <= self.tree.entries);
        let mut downwards = self.read(range, Direction::Descending);
        let mut sliced = self.read_in_slices(range, Direction::Descending, slice);
        downwards.reverse();
        sliced.reverse();
        assert_eq!(downwards, expected);
        assert_eq!(sliced, expected);
        expected.clear();
    }

    fn remove_all(&mut self) {
        while let Some(((key, row), _)) = self.model.first_key_value() {
            let (key, row) = (key.clone(), row.0);
            self.remove(&key, row, row % 2 == 0);
        }
        self.check();
        assert_eq!((self.tree.height, self.pool.owned()), (0, 0), "an empty index has no pages");
    }
}

/// One random step: what to do, with which key, with which row.
type Operation = (u8, u32, u32);

fn operations(count: usize) -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec((0u8..8, 0u32..400, 0u32..40), 1..count)
}

fn run<const N: usize>(pair: &mut Pair<N>, keys: Keys, operations: &[Operation], checked_every: usize) {
    for (step, &(what, key, row)) in operations.iter().enumerate() {
        let (key, is_seen) = (keys.key(key), what % 2 == 0);
        let is_there = pair.model.contains_key(&(key.clone(), RowId(row)));
        if what < 5 || !is_there {
            pair.insert(&key, row, is_seen);
        } else {
            pair.remove(&key, row, is_seen);
        }
        if step % checked_every == 0 {
            pair.check();
        }
    }
    pair.check();
}

fn any_keys() -> impl Strategy<Value = Keys> {
    prop::sample::select(&Keys::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn it_holds_what_the_model_holds(
        operations in operations(400),
        keys in any_keys(),
        ranges in prop::collection::vec((0u32..400, 0u32..40, 0u32..500, 0u32..40, 1usize..20), 4),
    ) {
        let mut pair = Pair::<128>::new(40);
        run(&mut pair, keys, &operations, 7);
        for (from, from_row, to, to_row, slice) in ranges {
            let to = (to < 400).then(|| (keys.key(to), to_row));
            let to = to.as_ref().map(|(key, row)| (&key[..], *row));
            pair.check_range((&keys.key(from), from_row), to, slice);
        }
        pair.remove_all();
    }

    #[test]
    fn it_holds_what_the_model_holds_in_nodes_of_the_usual_size(
        operations in operations(3000),
        keys in any_keys(),
    ) {
        let mut pair = Pair::<NODE_BYTES>::new(40);
        run(&mut pair, keys, &operations, 499);
        pair.remove_all();
    }

    #[test]
    fn running_out_of_pages_changes_nothing(
        phases in prop::collection::vec((operations(2500), 0u32..4), 1..4),
        keys in any_keys(),
    ) {
        let mut pair = Pair::<128>::new(4);
        for (operations, taken) in phases {
            let others: Vec<_> =
                (0..taken).map_while(|_| pair.pool.allocate(Purpose::Ordinary).ok()).collect();
            for &(what, key, row) in &operations {
                let key = keys.key(key);
                if what > 5 && pair.model.contains_key(&(key.clone(), RowId(row))) {
                    pair.remove(&key, row, true);
                } else if !pair.insert(&key, row, what == 0) {
                    pair.tree.check(&pair.pool, &mut pair.rows);
                    assert_eq!(pair.tree.nodes.pages() as usize + others.len(), 4, "no page was left");
                    break;
                }
            }
            others.into_iter().for_each(|page| pair.pool.free(page));
            pair.check();
        }
        pair.remove_all();
    }
}

#[test]
fn ascending_keys_fill_the_nodes_and_trees_grow_high() {
    let mut pair = Pair::<128>::new(200);
    for number in 0..20_000u32 {
        assert!(pair.insert(&number.to_be_bytes(), number, false));
    }
    pair.check();
    let usage = pair.tree.usage();
    assert_eq!((usage.entries, usage.leaves, usage.height), (20_000, 20_000u32.div_ceil(7), 6));
    assert_eq!(usage.bytes, u64::from(usage.pages) * 32_768);
    // From the end backwards, then from both ends of the rest.
    for number in (15_000..20_000u32).rev().chain((0..5_000).rev()).chain(5_000..9_000) {
        pair.remove(&number.to_be_bytes(), number, true);
        if number % 501 == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.remove_all();
}

#[test]
fn descending_and_random_keys_leave_no_node_nearly_empty() {
    let mut pair = Pair::<NODE_BYTES>::new(200);
    for number in (0..30_000u32).rev() {
        assert!(pair.insert(&number.to_be_bytes(), number, false));
    }
    pair.check();
    for number in 0..30_000u32 {
        let number = number.wrapping_mul(7_919) % 30_000;
        if number % 10 != 0 {
            pair.remove(&number.to_be_bytes(), number, true);
        }
        if number % 3_000 == 0 {
            pair.check();
        }
    }
    pair.check();
    let usage = pair.tree.usage();
    assert!(usage.leaves < 3_000 / 10 + 2, "{usage:?}");
    pair.remove_all();
}

#[test]
fn one_key_of_one_row_is_counted_beyond_what_an_entry_can_count() {
    for key in [&b"short"[..], b"a key of more than eight bytes"] {
        let mut pair = Pair::<128>::new(40);
        for _ in 0..2_000 {
            assert!(pair.insert(key, 7, true));
            assert!(pair.insert(key, 8, false));
        }
        pair.insert(b"", 7, true);
        pair.check();
        assert!(pair.tree.usage().height > 1);
        for from in [6, 7, 8, 9] {
            pair.check_range((key, from), None, 1);
        }
        for count in 0..2_000 {
            pair.remove(key, 7, count % 2 == 0);
        }
        pair.check();
        assert_eq!(pair.read(Range::ALL, Direction::Descending).len(), 2);
        pair.remove_all();
    }
}

/// A transaction changes a key to another one that an entry does not distinguish from it, and back, and to a third one.
#[test]
fn versions_of_a_row_with_equal_hashes_are_told_apart() {
    let group = &COLLIDING[0];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for removed in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for is_seen in [false, true] {
                let mut pair = Pair::<128>::new(40);
                for row in 1..30 {
                    for step in order {
                        assert!(pair.insert(&group[step], row, is_seen));
                        assert!(pair.insert(&group[order[0]], row, is_seen));
                    }
                }
                pair.check();
                assert_eq!(pair.tree.listed.entries(), 2 * 29);
                for row in 1..30 {
                    for step in removed {
                        pair.remove(&group[step], row, is_seen);
                        pair.check_range((&group[step], row), None, 3);
                    }
                }
                pair.check();
                pair.remove_all();
                assert_eq!(pair.tree.listed.entries(), 0);
            }
        }
    }
}

/// Without skipping, each of the fifteen comparisons on the way down would read a row.
#[test]
fn nodes_skip_what_their_keys_have_in_common() {
    let key = |number: u32| [b"a beginning of all keys", &number.to_be_bytes()[..]].concat();
    let count = 30_000u32;
    let mut entered: Vec<u32> = (0..count).collect();
    entered.sort_unstable_by_key(|number| vinga_base::hash::KeyHash::of(&number.to_le_bytes()).0);
    for is_built in [false, true] {
        let mut pair = Pair::<NODE_BYTES>::new(100);
        let mut entries = Vec::new();
        for &number in &entered {
            if is_built {
                entries.push(Entry::new(&key(number), RowId(number)));
                pair.rows.versions.insert(RowId(number), BTreeMap::from([(key(number), 1)]));
                pair.model.insert((key(number), RowId(number)), 1);
            } else {
                assert!(pair.insert(&key(number), number, true));
            }
        }
        let reads = pair.rows.reads;
        assert!(reads < u64::from(count) * 12, "{reads} reads for {count} inserts");
        sort_entries(&pair.pool, &mut pair.rows, &mut entries).unwrap();
        if is_built {
            pair.tree.build(&mut pair.pool, Purpose::Ordinary, &mut pair.rows, 90, entries).unwrap();
            let reads = pair.rows.reads - reads;
            assert!(reads < u64::from(count) * 6, "{reads} reads to sort and build {count} entries");
        }
        pair.check();
        pair.rows.reads = 0;
        for number in 0..count {
            let key = key(number);
            let range = Range { from: Cut::before_key(&key), to: Some(Cut::after_key(&key)) };
            let mut cursor = pair.tree.cursor(&pair.pool, &mut pair.rows, range, Direction::Ascending);
            assert!(cursor.next(&mut pair.rows).is_some_and(|entry| entry.row() == RowId(number)));
            assert!(cursor.next(&mut pair.rows).is_none());
        }
        let reads = pair.rows.reads;
        assert!(reads < u64::from(count) * 8, "{reads} reads for {count} searches");
        pair.remove_all();
    }
}

#[test]
fn keys_may_share_more_than_a_node_can_skip() {
    let mut pair = Pair::<128>::new(10);
    let key = |number: u32| [&[7; 70_000], &number.to_be_bytes()[..]].concat();
    for number in 0..40u32 {
        assert!(pair.insert(&key(number * 11 % 40), number, true));
    }
    pair.check();
    pair.remove_all();
}

#[test]
fn passes_over_a_batch_change_nothing() {
    let mut pair = Pair::<128>::new(40);
    for number in 0..1_000u32 {
        let keys = [Keys::Numbers.key(number), Keys::Long.key(number)];
        let approaches = keys.each_ref().map(|key| pair.tree.approach(&pair.pool, key));
        for (key, approach) in keys.iter().zip(approaches) {
            pair.tree.prefetch_leaf(&pair.pool, key, approach);
        }
        keys.iter().for_each(|key| assert!(pair.insert(key, number, true)));
    }
    pair.check();
}

#[test]
#[should_panic(expected = "in the index")]
fn removing_what_is_not_there_is_a_broken_invariant() {
    let mut pair = Pair::<128>::new(5);
    pair.insert(b"a", 1, true);
    pair.insert(b"c", 1, true);
    pair.tree.remove(&mut pair.pool, &mut pair.rows, b"b", RowId(1));
}

#[test]
fn estimates_are_exact_nearby_and_close_far_away() {
    let rows = 200_000u32;
    let key = |number: u32| u64::from(number).to_be_bytes();
    let in_pattern = (0..rows).map(|number| (u64::from(number) * 104_729 % u64::from(rows)) as u32);
    let mut random: Vec<u32> = (0..rows).collect();
    random.sort_unstable_by_key(|number| vinga_base::hash::KeyHash::of(&number.to_le_bytes()).0);
    for (numbers, error_max) in [(in_pattern.collect(), 0.5), (random, 0.17)] {
        let mut pair = Pair::<NODE_BYTES>::new(2_000);
        for number in numbers {
            let (pool, rows) = (&mut pair.pool, &mut pair.rows);
            pair.tree.insert(pool, Purpose::Ordinary, rows, &key(number), RowId(number)).unwrap();
        }
        let mut worst = 0.0f64;
        for (from, length) in (0..500u32).map(|i| (i * 397 % 150_000, 1 << (i % 15))) {
            let (low, high) = (key(from), key(from + length));
            let range = Range { from: Cut::before_key(&low), to: Some(Cut::before_key(&high)) };
            let estimate = pair.tree.estimate(&pair.pool, &mut pair.rows, &range);
            if length <= 64 {
                assert_eq!(estimate, u64::from(length), "below two nodes beside each other");
            }
            if length >= 1_000 {
                worst = worst.max((estimate as f64 / f64::from(length) - 1.0).abs());
            }
        }
        assert!(worst < error_max, "wrong by {worst}");
        let all = pair.tree.estimate(&pair.pool, &mut pair.rows, &Range::ALL);
        assert!(all.abs_diff(rows.into()) < u64::from(rows) / 50, "{all} of {rows}");
        let backwards = Range { from: Cut::before_key(&[1]), to: Some(Cut::before_key(&[0])) };
        assert_eq!(pair.tree.estimate(&pair.pool, &mut pair.rows, &backwards), 0);
    }
}

/// A key of eight bytes and `columns` columns of unsigned integers of two bytes, never NULL.
fn layout_of_small_integers(columns: usize) -> RowLayout {
    let column = |(number, bytes): (usize, u8)| ColumnDefinition {
        name: std::format!("c{number}"),
        column_type: ColumnType::Integer { bytes, signed: false },
        nullable: false,
    };
    let widths = core::iter::once(8).chain(core::iter::repeat_n(2, columns));
    let definition = TableDefinition {
        name: "d.t".into(),
        columns: widths.enumerate().map(column).collect(),
        primary_key: Vec::from([ColumnId(0)]),
        ..TableDefinition::default()
    };
    definition.check().unwrap();
    RowLayout::new(&definition)
}

#[test]
fn different_values_are_counted_at_all_scales() {
    let layout = layout_of_small_integers(3);
    let columns = [1, 2, 3].map(|id| OrderColumn { column: ColumnId(id), direction: Direction::Descending });
    let order = OrderKey::new(&layout, &columns).unwrap();
    let rows = 300_000u32;
    for (first, second) in [(1, 3), (7, 300), (400, 12), (3_000, 20), (60_000, 1)] {
        let mut pair = Pair::<NODE_BYTES>::new(1_000);
        let mut entries: Vec<Entry> = (0..rows)
            .map(|row| {
                let values = [row % first, row / first % second, row / first / second]
                    .map(|value| (value as u16).to_le_bytes());
                let mut key = Vec::new();
                order.write_values(&values.each_ref().map(|value| Some(&value[..])), &mut key).unwrap();
                Entry::new(&key, RowId(row))
            })
            .collect();
        sort_entries(&pair.pool, &mut pair.rows, &mut entries).unwrap();
        pair.tree.build(&mut pair.pool, Purpose::Ordinary, &mut pair.rows, 80, entries).unwrap();
        let mut sample = DistinctSample::new(3);
        for _ in 0..30 {
            pair.tree.sample(&pair.pool, &mut pair.rows, &order, &mut sample);
        }
        let found = pair.tree.distinct(&sample);
        let two = (first * second).min(rows);
        for (found, expected) in found.iter().zip([first, two, rows]) {
            let ratio = *found as f64 / f64::from(expected);
            assert!(
                (0.5..1.6).contains(&ratio) || found.abs_diff(expected.into()) <= 3,
                "{found} for {expected} of {first} × {second}"
            );
        }
    }
    let empty = SmallTree::new();
    assert_eq!(empty.distinct(&DistinctSample::new(2)), [0, 0]);
}
