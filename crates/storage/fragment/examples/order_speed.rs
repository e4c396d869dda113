//! Nanoseconds for the operations of an ordered index, and its memory: keys of 8 bytes that need no row, then keys of
//! 35 bytes of which 24 are always the same, which are compared in the rows.
//!
//! `cargo run --release --example order_speed [rows]`. Keys are in random order. *Batched* is how a data node does it:
//! 16 keys at a time, inner nodes and leaves prefetched before they are read. Times are processor time.

use std::hint::black_box;
use std::time::Duration;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::{Direction, OrderColumn, OrderKey};
use vinga_base::page_pool::{PAGE_BYTES, PagePool, Purpose};
use vinga_base::schema::ColumnType;
use vinga_base::{ColumnId, RowId};
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::fragment::{Fragment, NewRow};
use vinga_fragment::ordered_index::{
    Cut, DistinctSample, Entry, EntrySorter, KeySource, OrderedIndex, Range, TreeBuilder, sort_entries,
};
use vinga_fragment::row::RowHeader;

#[path = "support/huge_region.rs"]
mod huge_region;
#[path = "../tests/support/mod.rs"]
mod support;

const BATCH: usize = 16;
/// Units of a slice.
const SLICE: u32 = 512;
const SCANNED: usize = 100;
const SHARED: &str = "customer/europe/account/";

/// The rows of a fragment, with one version each.
struct Rows {
    fragment: Fragment,
    chunks: ChunkStore,
    order: OrderKey,
    key: Vec<u8>,
}

impl Rows {
    fn write_key(&mut self, pool: &PagePool, row: RowId) {
        let (fixed, variable) = self.fragment.parts(pool, &self.chunks, row);
        self.key.clear();
        self.order.write_row(self.fragment.layout(), fixed, variable, &mut self.key);
    }
}

impl KeySource for Rows {
    #[inline]
    fn keys(&mut self, pool: &PagePool, row: RowId, mut each: impl FnMut(&[u8])) {
        self.write_key(pool, row);
        each(&self.key);
    }

    #[inline]
    fn prefetch(&self, pool: &PagePool, row: RowId) {
        self.fragment.rows().prefetch(pool, row);
    }

    #[inline]
    fn prefetch_rest(&self, pool: &PagePool, row: RowId) {
        if let Some(chunk) = self.fragment.rows().row(pool, row).variable() {
            self.chunks.prefetch(pool, chunk);
        }
    }
}

struct World {
    pool: PagePool,
    rows: Rows,
    /// In random order.
    keys: Vec<(Vec<u8>, RowId)>,
}

impl World {
    fn new(count: u64, of_text: bool) -> Self {
        let value = if of_text {
            ColumnType::VarChar { bytes_max: 60 }
        } else {
            ColumnType::Integer { bytes: 8, signed: false }
        };
        let bigint = ColumnType::Integer { bytes: 8, signed: false };
        let layout = support::layout(&[(bigint, false), (value, false)], &[0]);
        let column = OrderColumn { column: ColumnId(1), direction: Direction::Ascending };
        let order = OrderKey::new(&layout, &[column]).expect("the column exists");
        // Rows with their chunks and their hash index, and twice the expected size of the ordered index.
        let bytes = count * if of_text { 32 + 64 + 12 + 50 } else { 28 + 12 + 50 };
        let mut pool = huge_region::pool((bytes / PAGE_BYTES as u64) as u32 + 64);
        let mut rows =
            Rows { fragment: Fragment::new(layout), chunks: ChunkStore::new(), order, key: Vec::new() };
        let keys = (0..count)
            .map(|number| {
                // The rows are stored in the order of their numbers, the keys are not.
                let mixed = KeyHash::of(&number.to_le_bytes()).0;
                let text = format!("{SHARED}{:010x}", mixed >> 24);
                let value = if of_text { text.into_bytes() } else { mixed.to_le_bytes().to_vec() };
                let mut image = Vec::new();
                let id = number.to_le_bytes();
                let values = [Some(&id[..]), Some(&value[..])];
                rows.fragment.layout().build_image(&values, &mut image).expect("values fit");
                let new = NewRow { hash: KeyHash(mixed), image: &image, header: RowHeader::default() };
                let new = NewRow { hash: KeyHash::of(&id), ..new };
                let Rows { fragment, chunks, .. } = &mut rows;
                let row = fragment.insert_row(&mut pool, chunks, Purpose::Ordinary, new).expect("memory");
                rows.write_key(&pool, row);
                (rows.key.clone(), row)
            })
            .collect();
        World { pool, rows, keys }
    }

    /// Calls `each` for every key and returns the time per key.
    fn time(
        &mut self,
        what: &str,
        tree: &mut OrderedIndex,
        batched: bool,
        mut each: impl FnMut(&mut OrderedIndex, &mut PagePool, &mut Rows, &[u8], RowId),
    ) {
        let World { pool, rows, keys } = self;
        let start = processor_time();
        for batch in keys.chunks(BATCH) {
            if batched {
                let mut approaches = [None; BATCH];
                for ((key, _), approach) in batch.iter().zip(&mut approaches) {
                    *approach = Some(tree.approach(pool, key));
                }
                for ((key, _), approach) in batch.iter().zip(approaches) {
                    tree.prefetch_leaf(pool, key, approach.expect("each key has one"));
                }
            }
            for (key, row) in batch {
                each(tree, pool, rows, key, *row);
            }
        }
        print(what, start, keys.len());
    }
}

/// Processor time of this thread, so that other work on the machine has less influence. The scheduler updates it every
/// few milliseconds.
fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has this file");
    let nanoseconds = statistics.split(' ').next().expect("the first number is the time");
    Duration::from_nanos(nanoseconds.parse().expect("it is a number"))
}

fn print(what: &str, start: Duration, count: usize) {
    let nanoseconds = (processor_time() - start).as_nanos() as f64 / count as f64;
    println!("{what:<44} {nanoseconds:9.1} ns   {:8.3} million/s", 1e3 / nanoseconds);
}

fn print_usage(what: &str, tree: &OrderedIndex) {
    let usage = tree.usage();
    println!(
        "{what:<44} {:9.2} bytes an entry, {} levels",
        (usage.bytes + usage.heap_bytes) as f64 / usage.entries as f64,
        usage.height
    );
}

fn main() {
    let count = std::env::args().nth(1).map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    for of_text in [false, true] {
        println!("\n{} keys of {}", count, if of_text { "35 bytes, 24 of them the same" } else { "8 bytes" });
        let mut world = World::new(count, of_text);
        let mut tree = OrderedIndex::new();
        build_in_slices(&mut world, &mut tree);
        tree.clear(&mut world.pool);
        for percent in [100, 90] {
            build(&mut world, &mut tree, percent);
            if percent == 100 {
                read(&mut world, &mut tree);
            }
            tree.clear(&mut world.pool);
        }
        for batched in [false, true] {
            let name = if batched { "insert, batched" } else { "insert" };
            world.time(name, &mut tree, batched, |tree, pool, rows, key, row| {
                tree.insert(pool, Purpose::Ordinary, rows, key, row).expect("memory for all entries");
            });
            print_usage("inserted in random order", &tree);
            if batched {
                read(&mut world, &mut tree);
            }
            let name = if batched { "remove, batched" } else { "remove" };
            world.time(name, &mut tree, batched, |tree, pool, rows, key, row| {
                tree.remove(pool, rows, key, row);
            });
        }
        assert_eq!(tree.usage().pages, 0, "all pages were returned");
    }
}

fn build(world: &mut World, tree: &mut OrderedIndex, percent: usize) {
    let World { pool, rows, keys } = world;
    let begin = processor_time();
    let mut entries = Vec::with_capacity(keys.len());
    // The rows are read in the order in which they are stored.
    for (_, row) in keys.iter() {
        rows.write_key(pool, *row);
        entries.push(Entry::new(&rows.key, *row));
    }
    print("build: make keys and entries", begin, keys.len());
    let start = processor_time();
    sort_entries(pool, rows, &mut entries).expect("memory to sort");
    print("build: sort", start, keys.len());
    let start = processor_time();
    tree.build(pool, Purpose::Ordinary, rows, percent, entries).expect("memory for all entries");
    print("build: nodes", start, keys.len());
    print("build: all", begin, keys.len());
    print_usage(if percent == 100 { "built full" } else { "built nine tenths full" }, tree);
}

/// As a data node does it: some rows at a time.
fn build_in_slices(world: &mut World, tree: &mut OrderedIndex) {
    let World { pool, rows, keys } = world;
    let begin = processor_time();
    let mut sorter = EntrySorter::new(keys.len()).expect("memory for all entries");
    for (_, row) in keys.iter() {
        rows.write_key(pool, *row);
        sorter.add(&rows.key, *row);
    }
    print("build in slices: make keys and entries", begin, keys.len());
    let start = processor_time();
    sorter.begin();
    let mut builder = TreeBuilder::new(tree, 90);
    while sorter.sort_some(pool, rows, &mut { SLICE }) {
        while let Some(entry) = sorter.take(pool, rows) {
            builder.add(tree, pool, Purpose::Ordinary, rows, entry).expect("memory for all entries");
        }
    }
    builder.finish(tree, pool, rows);
    print("build in slices: sort, nodes", start, keys.len());
    print("build in slices: all", begin, keys.len());
    print_usage("built in slices", tree);
}

fn read(world: &mut World, tree: &mut OrderedIndex) {
    for batched in [false, true] {
        let name = if batched { "find, batched" } else { "find" };
        world.time(name, tree, batched, |tree, pool, rows, key, row| {
            let range = Range { from: Cut::before_key(key), to: Some(Cut::after_key(key)) };
            let mut cursor = tree.cursor(pool, rows, range, Direction::Ascending);
            let mut found = cursor.next(rows);
            // A few of the text keys occur twice.
            while found.is_some_and(|entry| entry.row() != row) {
                found = cursor.next(rows);
            }
            assert!(found.is_some(), "all keys are in the index");
        });
    }
    let World { pool, rows, keys } = world;
    let scans = &keys[..keys.len().min(100_000)];
    for (direction, with_rows) in
        [(Direction::Ascending, false), (Direction::Descending, false), (Direction::Ascending, true)]
    {
        let start = processor_time();
        let mut sum = 0;
        for (key, row) in scans {
            let range = match direction {
                Direction::Ascending => Range { from: Cut::before(key, *row), to: None },
                Direction::Descending => Range { from: Cut::START, to: Some(Cut::after(key, *row)) },
            };
            if with_rows {
                let mut cursor = tree.cursor(pool, rows, range, direction);
                for _ in 0..SCANNED {
                    let Some(entry) = cursor.next(rows) else { break };
                    sum += u64::from(rows.fragment.rows().fixed(pool, entry.row())[0]);
                }
            } else {
                let mut nothing = NoRows(rows);
                let mut cursor = tree.cursor(pool, &mut nothing, range, direction);
                for _ in 0..SCANNED {
                    let Some(entry) = cursor.next(&mut nothing) else { break };
                    sum += u64::from(entry.row().0);
                }
            }
        }
        black_box(sum);
        let with_rows = if with_rows { ", rows read" } else { "" };
        print(&format!("scan of {SCANNED} {direction:?}{with_rows}"), start, scans.len());
    }
    let start = processor_time();
    let mut sum = 0;
    for ((from, _), (to, _)) in scans.iter().zip(&scans[1..]) {
        let range = Range { from: Cut::before_key(from), to: Some(Cut::before_key(to)) };
        sum += tree.estimate(pool, rows, &range);
    }
    black_box(sum);
    print("estimate of a range", start, scans.len());
    let start = processor_time();
    let mut sample = DistinctSample::new(1);
    for _ in 0..1000 {
        tree.sample(pool, rows, &rows.order.clone(), &mut sample);
    }
    print("one way of a sample", start, 1000);
    println!("{:<44} {:?}", "different keys, estimated from 1,000 ways", tree.distinct(&sample));
}

/// The same keys, but rows are not prefetched: measures the index alone.
struct NoRows<'a>(&'a mut Rows);

impl KeySource for NoRows<'_> {
    fn keys(&mut self, pool: &PagePool, row: RowId, each: impl FnMut(&[u8])) {
        self.0.keys(pool, row, each);
    }
}
