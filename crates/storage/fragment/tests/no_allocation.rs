//! Finding rows, copying their images and overwriting them in place do not allocate; neither do reading an ordered
//! index and changing one that has had its size before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use vinga_base::RowId;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::Direction;
use vinga_base::page_pool::{PagePool, Purpose};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::ColumnType;
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::fragment::{Fragment, NewRow};
use vinga_fragment::ordered_index::{Cut, KeySource, OrderedIndex, Range};
use vinga_fragment::row::RowHeader;
use vinga_fragment::row_version::RowVersion;

mod support;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: u64 = 10_000;

fn allocations_of(layout: &RowLayout, image_of: impl Fn(u64, u8) -> Vec<u8>) -> u64 {
    let mut pool = PagePool::standalone(400);
    let mut chunks = ChunkStore::new();
    let mut fragment = Fragment::new(layout.clone());
    let mut keys = Vec::new();
    for i in 0..ROWS {
        let image = image_of(i, 1);
        let mut key = Vec::new();
        let (fixed, variable) = layout.split(&image);
        layout.write_key(fixed, variable, &mut key);
        let hash = KeyHash::of(&key);
        let new = NewRow { hash, image: &image, header: RowHeader::default() };
        fragment.insert_row(&mut pool, &mut chunks, Purpose::Ordinary, new).unwrap();
        keys.push((key, hash, image_of(i, 2)));
    }
    let (_, _, image) = &keys[0];
    let mut version = RowVersion::new(&mut pool, &mut chunks, Purpose::Ordinary, layout, image).unwrap();
    let mut out = Vec::with_capacity(1000);

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for (key, hash, image) in &keys {
        fragment.prefetch_index(&pool, *hash);
        fragment.prefetch_row(&pool, *hash);
        let row = fragment.find(&pool, &chunks, *hash, key).unwrap();
        fragment.store_image(&mut pool, &mut chunks, Purpose::Ordinary, row, image).unwrap();
        out.clear();
        fragment.row_image(&pool, &chunks, row, &mut out);
        assert_eq!(out, *image);
        version.exchange(&mut pool, &chunks, fragment.rows(), row);
        version.exchange(&mut pool, &chunks, fragment.rows(), row);
        assert_eq!(fragment.key_hash(&pool, &chunks, row), *hash);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Keys by row.
struct Keys(Vec<Vec<u8>>);

impl KeySource for Keys {
    fn keys(&mut self, _: &PagePool, row: RowId, mut each: impl FnMut(&[u8])) {
        each(&self.0[row.0 as usize]);
    }
}

fn index_allocations() -> u64 {
    let mut pool = PagePool::standalone(100);
    let mut index = OrderedIndex::new();
    let keys: Vec<Vec<u8>> = (0..ROWS)
        .map(|row| format!("a long beginning and {:016x}", KeyHash::of(&row.to_le_bytes()).0).into_bytes())
        .collect();
    let mut source = Keys(keys.clone());
    let mut before = 0;
    // In the second pass the buffers are large enough.
    for _ in 0..2 {
        before = ALLOCATIONS.load(Ordering::Relaxed);
        for (row, key) in keys.iter().enumerate() {
            let row = RowId(row as u32);
            index.insert(&mut pool, Purpose::Ordinary, &mut source, key, row).unwrap();
            let range = Range { from: Cut::before(key, row), to: Some(Cut::after_key(key)) };
            let mut cursor = index.cursor(&pool, &mut source, range, Direction::Descending);
            assert_eq!(cursor.next(&mut source).map(|entry| entry.row()), Some(row));
        }
        for (row, key) in keys.iter().enumerate() {
            index.remove(&mut pool, &mut source, key, RowId(row as u32));
        }
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn the_hot_path_does_not_allocate() {
    assert_eq!(index_allocations(), 0);

    let text = ColumnType::VarChar { bytes_max: 200 };
    let char100 = ColumnType::Char { bytes: 100 };
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let image = |layout: &RowLayout, values: &[Option<&[u8]>]| {
        let mut image = Vec::new();
        layout.build_image(values, &mut image).unwrap();
        image
    };

    let fixed = support::layout(&[(bigint, false), (char100, false)], &[0]);
    let fixed_image = |i: u64, fill: u8| image(&fixed, &[Some(&i.to_le_bytes()), Some(&[fill; 100])]);
    assert_eq!(allocations_of(&fixed, fixed_image), 0);

    let variable = support::layout(&[(text, false), (text, true)], &[0]);
    let variable_image = |i: u64, fill: u8| {
        let key = format!("key number {i}");
        image(&variable, &[Some(key.as_bytes()), Some(&vec![fill; i as usize % 200])])
    };
    assert_eq!(allocations_of(&variable, variable_image), 0);
}
