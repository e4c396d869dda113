//! Nanoseconds per row for the operations of a fragment: 1 million rows of 8 + 100 bytes in 8 fragments.
//!
//! `cargo run --release --example row_speed [rows]`. Keys are in random order. *Batched* is how a data node does it: 32
//! keys at a time, index and rows prefetched before they are read.

use std::hint::black_box;
use std::time::Instant;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{PAGE_BYTES, PagePool, Purpose};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::ColumnType;
use vinga_base::{Epoch, RowId};
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::fragment::{Fragment, NewRow};
use vinga_fragment::page_view::SLOT_WORDS_MAX;
use vinga_fragment::row::{OperationRef, RowHeader};
use vinga_fragment::row_version::RowVersion;

#[path = "support/huge_region.rs"]
mod huge_region;
#[path = "../tests/support/mod.rs"]
mod support;

const FRAGMENTS: usize = 8;
const BATCH: usize = 32;
const REPETITIONS: usize = 5;

struct World {
    pool: PagePool,
    chunks: ChunkStore,
    fragments: Vec<Fragment>,
    keys: Vec<(u64, KeyHash)>,
    layout: RowLayout,
}

impl World {
    fn new(rows: u64) -> Self {
        let bigint = ColumnType::Integer { bytes: 8, signed: false };
        let layout = support::layout(&[(bigint, false), (ColumnType::Char { bytes: 100 }, false)], &[0]);
        // Twice what the rows need, and some more for each fragment.
        let pages = (rows * 120 * 2 / PAGE_BYTES as u64) as u32 + 64;
        let pool = huge_region::pool(pages);
        let fragments = (0..FRAGMENTS).map(|_| Fragment::new(layout.clone())).collect();
        // Multiplying by an odd number visits all keys in an order that looks random.
        let mask = rows.next_power_of_two() - 1;
        let keys = (0..=mask)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask)
            .filter(|&key| key < rows)
            .map(|key| (key, KeyHash::of(&key.to_le_bytes())))
            .collect();
        World { pool, chunks: ChunkStore::new(), fragments, keys, layout }
    }

    /// Calls `each` for all keys, batched or not, and returns the time per key.
    fn time(
        &mut self,
        what: &str,
        batched: bool,
        mut each: impl FnMut(&mut World, usize, u64, KeyHash),
    ) -> f64 {
        let keys = std::mem::take(&mut self.keys);
        let start = Instant::now();
        for batch in keys.chunks(BATCH) {
            if batched {
                for &(_, hash) in batch {
                    self.fragments[fragment_of(hash)].prefetch_index(&self.pool, hash);
                }
                for &(_, hash) in batch {
                    self.fragments[fragment_of(hash)].prefetch_row(&self.pool, hash);
                }
            }
            for &(key, hash) in batch {
                each(self, fragment_of(hash), key, hash);
            }
        }
        let nanoseconds = start.elapsed().as_nanos() as f64 / keys.len() as f64;
        self.keys = keys;
        println!("{what:<44} {nanoseconds:7.1} ns");
        nanoseconds
    }

    #[inline(always)]
    fn find(&self, fragment: usize, key: u64, hash: KeyHash) -> RowId {
        self.fragments[fragment]
            .find(&self.pool, &self.chunks, hash, &key.to_le_bytes())
            .expect("all keys are present")
    }

    fn scan(&self, what: &str, mut each: impl FnMut(&Fragment, u32) -> u64) {
        let start = Instant::now();
        let mut sum = 0;
        for fragment in &self.fragments {
            for page in 0..fragment.rows().page_count() {
                sum += each(fragment, page);
            }
        }
        black_box(sum);
        let nanoseconds = start.elapsed().as_nanos() as f64 / self.keys.len() as f64;
        println!("{what:<44} {nanoseconds:7.2} ns");
    }
}

fn main() {
    let rows = std::env::args().nth(1).map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    let mut world = World::new(rows);
    let mut image = [7; 108];
    let header = RowHeader::default();
    let insert = |world: &mut World, fragment: usize, key: u64, hash: KeyHash| {
        image[..8].copy_from_slice(&key.to_le_bytes());
        let new = NewRow { hash, image: &image, header };
        let World { pool, chunks, fragments, .. } = world;
        fragments[fragment].insert_row(pool, chunks, Purpose::Ordinary, new).expect("memory for all rows");
    };
    world.time("insert, first", true, insert);
    let (used, _) = world.pool.usage();
    let usage = |world: &World| world.fragments.iter().map(|f| f.rows().usage()).collect::<Vec<_>>();
    let pages: u32 = usage(&world).iter().map(|usage| usage.pages).sum();
    let heap: u64 = usage(&world).iter().map(|usage| usage.heap_bytes).sum();
    println!(
        "rows take {:.2} B each in {pages} pages of {used} (index included), {:.3} B of bookkeeping",
        f64::from(pages) * PAGE_BYTES as f64 / rows as f64,
        heap as f64 / rows as f64
    );
    for _ in 0..REPETITIONS {
        println!();
        repeat(&mut world);
    }
}

fn repeat(world: &mut World) {
    for batched in [false, true] {
        let name = |what: &str| format!("{what}{}", if batched { ", batched" } else { "" });
        let mut sum = 0;
        world.time(&name("find"), batched, |world, fragment, key, hash| {
            sum += u64::from(world.find(fragment, key, hash).0);
        });
        let mut out = Vec::with_capacity(10_000);
        world.time(&name("find and copy the image"), batched, |world, fragment, key, hash| {
            let row = world.find(fragment, key, hash);
            if out.len() > 9_000 {
                out.clear();
            }
            world.fragments[fragment].row_image(&world.pool, &world.chunks, row, &mut out);
        });
        black_box((sum, &out));
        let mut image = [8; 108];
        world.time(&name("find and overwrite in place"), batched, |world, fragment, key, hash| {
            let row = world.find(fragment, key, hash);
            image[..8].copy_from_slice(&key.to_le_bytes());
            let World { pool, chunks, fragments, .. } = world;
            fragments[fragment].store_image(pool, chunks, Purpose::Ordinary, row, &image).expect("in place");
        });
        world.time(&name("find, make version, exchange, free"), batched, |world, fragment, key, hash| {
            let row = world.find(fragment, key, hash);
            image[..8].copy_from_slice(&key.to_le_bytes());
            let World { pool, chunks, fragments, layout, .. } = world;
            let rows = fragments[fragment].rows();
            rows.row_mut(pool, row).set_operation(OperationRef(1));
            let mut version =
                RowVersion::new(pool, chunks, Purpose::Ordinary, layout, &image).expect("memory for one");
            version.exchange(pool, chunks, rows, row);
            rows.row_mut(pool, row).set_header(RowHeader { epoch: Epoch(key), ..RowHeader::default() });
            version.free(pool, chunks);
        });
    }
    world.scan("scan: live and busy bitmaps, a row", |fragment, page| {
        let Some(page) = fragment.rows().page(&world.pool, page) else { return 0 };
        let mut busy = [0; SLOT_WORDS_MAX];
        page.read_busy(&mut busy);
        page.live().iter().zip(&busy).map(|(live, busy)| u64::from((live & !busy).count_ones())).sum()
    });
    world.scan("scan: newest epoch, a row", |fragment, page| {
        fragment.rows().page(&world.pool, page).map_or(0, |page| page.newest_epoch().0)
    });
    world.scan("scan: busy bitmap 20 times in cache, a row/20", |fragment, page| {
        let Some(page) = fragment.rows().page(&world.pool, page) else { return 0 };
        let mut busy = [0; SLOT_WORDS_MAX];
        for _ in 0..20 {
            black_box(&page).read_busy(&mut busy);
        }
        busy[0]
    });
    world.time("find and remove, batched", true, |world, fragment, key, hash| {
        let row = world.find(fragment, key, hash);
        let World { pool, chunks, fragments, .. } = world;
        fragments[fragment].remove_row(pool, chunks, hash, row);
    });
    assert_eq!(world.pool.owned(), 0, "all pages were returned");
    let mut image = [7; 108];
    world.time("insert, again", true, |world, fragment, key, hash| {
        image[..8].copy_from_slice(&key.to_le_bytes());
        let new = NewRow { hash, image: &image, header: RowHeader::default() };
        let World { pool, chunks, fragments, .. } = world;
        fragments[fragment].insert_row(pool, chunks, Purpose::Ordinary, new).expect("memory for all rows");
    });
}

#[inline(always)]
fn fragment_of(hash: KeyHash) -> usize {
    (hash.0 >> 61) as usize
}
