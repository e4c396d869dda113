//! Indexes that are built from sorted entries.

use super::*;

/// The entries of rows that have one key each, in any order; some are there several times. The rows and the model of the
/// pair get them, too.
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

/// A sorter whose entries were sorted whenever so many were there, and that all runs have entered.
fn sorted_in_runs<const N: usize>(pair: &mut Pair<N>, entries: &[Entry], run: usize) -> EntrySorter {
    let mut sorter = EntrySorter::new(entries.len());
    for run in entries.chunks(run) {
        run.iter().for_each(|&entry| sorter.add(entry).unwrap());
        sorter.sort_added(&pair.pool, &mut pair.rows).unwrap();
        assert_eq!(sorter.added(), 0);
    }
    sorter.begin_tournament().unwrap();
    while sorter.enter_run(&pair.pool, &mut pair.rows) {}
    sorter
}

fn build_from<const N: usize>(pair: &mut Pair<N>, sorter: &mut EntrySorter, percent: usize) {
    let Pair { pool, tree, rows, .. } = pair;
    let mut builder = TreeBuilder::new(tree, percent);
    while let Some(entry) = sorter.take(pool, rows) {
        builder.add(tree, pool, Purpose::Ordinary, rows, entry).unwrap();
    }
    assert_eq!(sorter.take(pool, rows), None, "the end stays the end");
    builder.finish(tree, pool, rows);
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
    fn what_is_sorted_in_runs_is_what_inserts_make(
        entered in prop::collection::vec((0u32..4000, 0u32..3000), 0..1500),
        keys in any_keys(),
        in_run in 1usize..200,
        percent in 1usize..=100,
        more in operations(200),
    ) {
        let mut pair = Pair::<128>::new(60);
        let entries = entries_of(&mut pair, keys, &entered);
        let mut sorter = sorted_in_runs(&mut pair, &entries, in_run);
        build_from(&mut pair, &mut sorter, percent);
        pair.check();
        let mut grown = Pair::<128>::new(60);
        for entry in entries {
            let key = pair.rows.versions[&entry.row].keys().next().unwrap().clone();
            assert!(grown.insert(&key, entry.row.0, true));
        }
        assert_eq!(pair.tree.entries, grown.tree.entries);
        for direction in [Direction::Ascending, Direction::Descending] {
            assert_eq!(pair.read(Range::ALL, direction), grown.read(Range::ALL, direction));
        }
        run(&mut pair, keys, &more, 20);
        pair.remove_all();
    }
}

/// However many runs there are, and however long the bytes that all keys have in common, a row is read a few times.
#[test]
fn rows_are_hardly_read_again_for_more_runs() {
    let key = |number: u32| [b"a beginning of all keys", &number.to_be_bytes()[..]].concat();
    let count = 30_000u32;
    let mut numbers: Vec<u32> = (0..count).collect();
    numbers.sort_unstable_by_key(|number| vinga_base::hash::KeyHash::of(&number.to_le_bytes()).0);
    for in_run in [40, 400, 4_000] {
        let mut pair = Pair::<NODE_BYTES>::new(100);
        let mut entries = Vec::new();
        for (row, &number) in (0..).map(RowId).zip(&numbers) {
            entries.push(Entry::new(&key(number), row));
            pair.rows.versions.insert(row, BTreeMap::from([(key(number), 1)]));
            pair.model.insert((key(number), row), 1);
        }
        let mut sorter = sorted_in_runs(&mut pair, &entries, in_run);
        assert!(!sorter.ascends_with_rows());
        let sorted = pair.rows.reads;
        build_from(&mut pair, &mut sorter, 90);
        let built = pair.rows.reads - sorted;
        assert!(sorted < u64::from(count) * 4, "{sorted} reads to sort runs of {in_run} of {count}");
        assert!(built < u64::from(count) * 6, "{built} reads to merge runs of {in_run} of {count}");
        pair.check();
    }
}

#[test]
fn rows_in_the_order_of_their_keys_are_noticed() {
    let key = |number: u32| [b"a beginning of all keys", &number.to_be_bytes()[..]].concat();
    // One in so many rows has a key that is less than all others.
    for (exception, ascends) in [(u32::MAX, true), (400, true), (20, true), (5, true), (3, false), (2, false)]
    {
        let mut pair = Pair::<NODE_BYTES>::new(100);
        let mut entries = Vec::new();
        for row in 1..20_000u32 {
            let key = if row % exception == 0 { key(20_000 - row) } else { key(20_000 + row) };
            entries.push(Entry::new(&key, RowId(row)));
            pair.rows.versions.insert(RowId(row), BTreeMap::from([(key.clone(), 1)]));
            pair.model.insert((key, RowId(row)), 1);
        }
        let mut sorter = sorted_in_runs(&mut pair, &entries, 100);
        assert_eq!(sorter.ascends_with_rows(), ascends, "one in {exception}");
        build_from(&mut pair, &mut sorter, if ascends { 100 } else { 90 });
        pair.check();
        let mut grown = Pair::<NODE_BYTES>::new(100);
        for entry in entries {
            let key = pair.rows.versions[&entry.row].keys().next().unwrap().clone();
            assert!(grown.insert(&key, entry.row.0, true));
        }
        let (built, grown) = (pair.tree.usage(), grown.tree.usage());
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
