//! Indexes that are built from sorted entries.

use super::*;

/// The entries of rows that have one key each, in any order; some are there several times. The rows and the model of
/// the pair get them, too.
fn entries_of<const N: usize>(pair: &mut Pair<N>, keys: Keys, entered: &[(u32, u32)]) -> Vec<Entry> {
    let keys_of_rows: BTreeMap<u32, Key> = entered.iter().map(|&(key, row)| (row, keys.key(key))).collect();
    let mut entries = Vec::new();
    for &(_, row) in entered {
        let (key, row) = (keys_of_rows[&row].clone(), RowId(row));
        entries.push(Entry::new(&key, row));
        *pair.rows.versions.entry(row).or_default().entry(key.clone()).or_default() += 1;
        *pair.model.entry((key, row)).or_default() += 1;
    }
    entries
}

/// A sorter that has the entries of the pair's rows, in the order of the row ids.
fn sorter_of<const N: usize>(pair: &Pair<N>) -> EntrySorter {
    let mut sorter = EntrySorter::new(pair.rows.versions.len()).unwrap();
    for (&row, keys) in &pair.rows.versions {
        sorter.add(keys.keys().next().unwrap(), row);
    }
    sorter.begin();
    sorter
}

/// Builds the tree in slices of so many units.
fn build_from<const N: usize>(pair: &mut Pair<N>, sorter: &mut EntrySorter, percent: usize, units: u32) {
    let Pair { pool, tree, rows, .. } = pair;
    let mut builder = TreeBuilder::new(tree, percent);
    while sorter.sort_some(pool, rows, &mut { units }) {
        while let Some(entry) = sorter.take(pool, rows) {
            builder.add(tree, pool, Purpose::Ordinary, rows, entry).unwrap();
        }
    }
    assert_eq!(sorter.take(pool, rows), None, "the end stays the end");
    builder.finish(tree, pool, rows);
}

/// The same entries, inserted in the order of the rows.
fn grown<const N: usize>(pair: &Pair<N>, pages: u32) -> Pair<N> {
    let mut grown = Pair::new(pages);
    for (&row, keys) in &pair.rows.versions {
        assert!(grown.insert(keys.keys().next().unwrap(), row.0, true));
    }
    grown
}

fn add_row<const N: usize>(pair: &mut Pair<N>, key: &[u8], row: RowId) {
    pair.rows.versions.insert(row, BTreeMap::from([(key.to_vec(), 1)]));
    pair.model.insert((key.to_vec(), row), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn what_is_built_is_what_inserts_make(
        entered in prop::collection::vec((0u32..4000, 0u32..3000), 0..1500),
        keys in any_keys(),
        percent in 1usize..=100,
        more in operations(200),
    ) {
        let mut pair = Pair::<128>::new(60);
        let mut entries = entries_of(&mut pair, keys, &entered);
        sort_entries(&pair.pool, &mut pair.rows, &mut entries).unwrap();
        pair.tree.build(&mut pair.pool, Purpose::Ordinary, &mut pair.rows, percent, entries).unwrap();
        pair.check();
        run(&mut pair, keys, &more, 20);
        pair.remove_all();
    }

    #[test]
    fn what_is_sorted_in_slices_is_what_inserts_make(
        entered in prop::collection::vec(0u32..4000, 0..4000),
        different in 1u32..4000,
        keys in any_keys(),
        units in prop::sample::select(&[1, 2, 7, 50, 1_000_000][..]),
        percent in 1usize..=100,
        more in operations(200),
    ) {
        let mut pair = Pair::<128>::new(100);
        for (row, key) in (0..).map(RowId).zip(entered) {
            add_row(&mut pair, &keys.key(key % different), row);
        }
        let mut sorter = sorter_of(&pair);
        build_from(&mut pair, &mut sorter, percent, units);
        pair.check();
        let mut grown = grown(&pair, 100);
        assert_eq!(pair.tree.entries, grown.tree.entries);
        for direction in [Direction::Ascending, Direction::Descending] {
            assert_eq!(pair.read(Range::ALL, direction), grown.read(Range::ALL, direction));
        }
        run(&mut pair, keys, &more, 50);
        pair.remove_all();
    }
}

/// However long the bytes are that keys have in common, a row is read a few times.
#[test]
fn rows_are_hardly_read_again_for_bytes_in_common() {
    let count = 30_000u32;
    for shared in [9, 40, 1_000] {
        let mut pair = Pair::<NODE_BYTES>::new(100);
        for row in 0..count {
            let mixed = vinga_base::hash::KeyHash::of(&row.to_le_bytes()).0;
            let key = [&std::vec![b'a'; shared][..], &mixed.to_be_bytes()].concat();
            add_row(&mut pair, &key, RowId(row));
        }
        let mut sorter = sorter_of(&pair);
        assert!(!sorter.is_ascending());
        build_from(&mut pair, &mut sorter, 90, 100);
        let reads = pair.rows.reads;
        assert!(reads < u64::from(count) * 4, "{reads} reads to build an index of {count} entries");
        pair.check();
    }
}

/// What is built takes no more nodes than what inserts in the same order make.
#[test]
fn rows_in_the_order_of_their_keys_fill_nodes() {
    let key = |number: u32| [b"a beginning of all keys", &number.to_be_bytes()[..]].concat();
    // One in so many rows has a key that is less than all others.
    for (exception, is_ascending) in
        [(u32::MAX, true), (400, true), (20, true), (5, true), (3, false), (2, false)]
    {
        let mut pair = Pair::<NODE_BYTES>::new(100);
        for row in 1..20_000u32 {
            let number = if row % exception == 0 { 20_000 - row } else { 20_000 + row };
            add_row(&mut pair, &key(number), RowId(row));
        }
        let mut sorter = sorter_of(&pair);
        assert_eq!(sorter.is_ascending(), is_ascending, "one in {exception}");
        build_from(&mut pair, &mut sorter, if is_ascending { 100 } else { 90 }, 1000);
        pair.check();
        let (built, grown) = (pair.tree.usage(), grown(&pair, 100).tree.usage());
        assert!(built.leaves <= grown.leaves, "{} leaves built, {} grown", built.leaves, grown.leaves);
    }
}

#[test]
fn a_refused_build_leaves_nothing() {
    let mut pair = Pair::<128>::new(1);
    let entries = (0..4_000u32).map(|number| Entry::new(&number.to_be_bytes(), RowId(number)));
    let built = pair.tree.build(&mut pair.pool, Purpose::Ordinary, &mut pair.rows, 100, entries);
    assert_eq!(built, Err(OutOfPages));
    pair.check();
    assert_eq!(pair.pool.owned(), 0);
    assert!(pair.insert(b"and it can be used", 1, true));
    pair.tree.clear(&mut pair.pool);
    assert_eq!(pair.pool.owned(), 0);
}

#[test]
fn a_refused_builder_has_what_came_before() {
    let mut pair = Pair::<128>::new(2);
    let mut builder = TreeBuilder::new(&pair.tree, 90);
    let Pair { pool, tree, rows, .. } = &mut pair;
    let mut added = 0u64;
    for number in 0..10_000u32 {
        let entry = Entry::new(&number.to_be_bytes(), RowId(number));
        match builder.add(tree, pool, Purpose::Ordinary, rows, entry) {
            Ok(()) => added += 1,
            Err(OutOfPages) => break,
        }
    }
    assert!(added > 1_000 && added < 10_000, "{added} entries fit");
    assert_eq!((tree.entries, pool.owned()), (added, 2));
    tree.check(pool, rows);
    assert!(!tree.release_slice(pool, 1));
    assert!(tree.release_slice(pool, 1));
    assert_eq!(pool.owned(), 0);
}
