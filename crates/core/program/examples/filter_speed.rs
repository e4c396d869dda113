//! Nanoseconds per row of filters over pages in row order, as a scan reads them.
//!
//! A million rows of 120 bytes (16 of them header) in pages of 32 KiB with 272 slots each; the working set is 120 MB,
//! so the cost of memory access is included. Each figure is the median of nine passes over all pages, with the range
//! beside it. For comparison there are a pass that only builds the bitmap from the row headers, one hand-written loop
//! over rows with the same five comparisons, and the program evaluated row by row.
//!
//! `cargo run --release --example filter_speed [rows]`

use std::hint::black_box;
use std::time::Instant;
use vinga_base::ColumnId;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_program::filter::tree::{Expression, column, not};
use vinga_program::filter::{NoVariable, Program, RowBlock};

const PAGE_BYTES: usize = 32 * 1024;
const STRIDE: usize = 120;
const SLOTS: usize = 272;
const FIRST: usize = PAGE_BYTES - SLOTS * STRIDE;
const HEADER: usize = 16;
const PASSES: usize = 9;

fn layout() -> RowLayout {
    let int = |bytes| ColumnType::Integer { bytes, signed: true };
    let columns = [
        (int(8), false),
        (int(4), false),
        (int(4), true),
        (ColumnType::Double, false),
        (ColumnType::Date, false),
        (ColumnType::Char { bytes: 76 }, false),
    ];
    let definition = TableDefinition {
        name: "speed.t".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(i, &(column_type, nullable))| ColumnDefinition {
                name: format!("c{i}"),
                column_type,
                nullable,
            })
            .collect(),
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    };
    definition.check().expect("a valid table");
    RowLayout::new(&definition)
}

struct Table {
    layout: RowLayout,
    pages: Vec<u8>,
    rows: usize,
}

impl Table {
    /// c1 and c2 are uniform in 0..1000 (c2 NULL in a tenth), c3 in 0..1, c4 one of 1000 days.
    fn new(rows: usize) -> Self {
        let layout = layout();
        assert_eq!(layout.fixed_bytes() + HEADER, STRIDE);
        let mut pages = vec![0u8; rows.div_ceil(SLOTS) * PAGE_BYTES];
        let mut state = 88172645463325252u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut image = Vec::new();
        for row in 0..rows {
            let at = row / SLOTS * PAGE_BYTES + FIRST + row % SLOTS * STRIDE;
            let c1 = (random(1000) as i32).to_le_bytes();
            let c2 = (random(1000) as i32).to_le_bytes();
            let c3 = (random(1 << 20) as f64 / f64::from(1 << 20)).to_le_bytes();
            let c4 = &(random(1000) as u32 + (2000 << 9)).to_be_bytes()[1..];
            let c5 = format!("{:<76}", random(1 << 40));
            let c2 = if random(10) == 0 { None } else { Some(&c2[..]) };
            image.clear();
            layout
                .build_image(
                    &[
                        Some(&(row as u64).to_le_bytes()),
                        Some(&c1),
                        c2,
                        Some(&c3),
                        Some(c4),
                        Some(c5.as_bytes()),
                    ],
                    &mut image,
                )
                .expect("values fit");
            pages[at + 6] = 1; // The header's flag of a slot in use.
            pages[at + HEADER..at + STRIDE].copy_from_slice(&image);
        }
        Table { layout, pages, rows }
    }

    fn pages(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let rows = self.rows;
        self.pages
            .chunks_exact(PAGE_BYTES)
            .enumerate()
            .map(move |(number, page)| (page, (rows - number * SLOTS).min(SLOTS)))
    }

    fn select(&self, program: &Program) -> usize {
        let mut found = 0;
        for (page, count) in self.pages() {
            let block = RowBlock::new(&self.layout, page, FIRST + HEADER, STRIDE, count, &NoVariable);
            let mut selected = [u64::MAX; SLOTS.div_ceil(64)];
            program.select(&block, &mut selected);
            found += selected.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        }
        found
    }

    fn select_row_by_row(&self, program: &Program) -> usize {
        self.count(|fixed| program.matches(&self.layout, fixed, &[]))
    }

    #[inline(always)]
    fn count(&self, passes: impl Fn(&[u8]) -> bool) -> usize {
        let mut found = 0;
        for (page, count) in self.pages() {
            for slot in 0..count {
                let at = FIRST + HEADER + slot * STRIDE;
                found += usize::from(passes(&page[at..at + STRIDE - HEADER]));
            }
        }
        found
    }

    fn bitmap_from_headers(&self) -> usize {
        let mut found = 0;
        for (page, count) in self.pages() {
            let mut words = [0u64; SLOTS.div_ceil(64)];
            for slot in 0..count {
                words[slot / 64] |= u64::from(page[FIRST + slot * STRIDE + 6] & 1) << (slot % 64);
            }
            found += black_box(words).iter().map(|word| word.count_ones() as usize).sum::<usize>();
        }
        found
    }
}

fn measure(what: &str, rows: usize, pass: impl Fn() -> usize) {
    let mut found = pass();
    // Small tables are repeated, so that a pass lasts long enough for the clock.
    let repeats = (1_000_000 / rows).max(1);
    let mut nanoseconds: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                found = black_box(pass());
            }
            start.elapsed().as_nanos() as f64 / (rows * repeats) as f64
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    println!(
        "{what:<58} {:>6.2} ns/row  ({:.2} to {:.2})  {found} found",
        nanoseconds[PASSES / 2],
        nanoseconds[0],
        nanoseconds[PASSES - 1]
    );
}

/// Five comparisons: ((c1 < 500 and c2 >= 500) or (c3 < 0.5 and c4 > day 500)) and c0 < 0. Each of the first four
/// passes half of the rows, the last none; it is the most expensive one and comes last, so that all are evaluated.
fn tree() -> Expression {
    let day = &[0x0f, 0xa1, 0xf4][..]; // 2000 << 9 | 500
    let first = column(1).less_than(500).and(column(2).at_least(500));
    let second = column(3).less_than(0.5).and(column(4).greater_than(day));
    (first.or(second)).and((column(0) + 0).less_than(0))
}

fn plain_tree() -> Expression {
    let day = &[0x0f, 0xa1, 0xf4][..];
    let first = column(1).less_than(500).and(column(2).at_least(500));
    let second = column(3).less_than(0.5).and(column(4).greater_than(day));
    let third = column(1).less_than(0).or(column(0).less_than(0));
    (first.or(second)).and(third)
}

fn fused(fixed: &[u8]) -> bool {
    let int = |at: usize| i32::from_le_bytes(fixed[at..at + 4].try_into().expect("four bytes"));
    let c0 = i64::from_le_bytes(fixed[..8].try_into().expect("eight bytes"));
    let c3 = f64::from_le_bytes(fixed[17..25].try_into().expect("eight bytes"));
    ((int(9) < 500 && fixed[8] & 1 == 0 && int(13) >= 500)
        || (c3 < 0.5 && fixed[25..28] > [0x0f, 0xa1, 0xf4][..]))
        && (int(9) < 0 || c0 < 0)
}

fn main() {
    let rows: usize = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of rows"));
    for rows in [rows, 2 * SLOTS] {
        let table = Table::new(rows);
        let program = |filter: &Expression| Program::new(filter, &table.layout).expect("a valid filter");
        println!("{rows} rows, {} KiB of pages", table.pages.len() / 1024);
        measure("bitmap from row headers alone", rows, || table.bitmap_from_headers());
        for (what, filter) in [
            ("int > constant, none pass", column(1).greater_than(1000)),
            ("int > constant, half pass", column(1).at_least(500)),
            ("nullable int < constant, half pass", column(2).less_than(500)),
            ("bigint = constant", column(0).equal(-1)),
            ("double < constant, none pass", column(3).less_than(-1.0)),
            ("date between constants, none pass", column(4).between(&[0u8, 0, 1][..], &[0u8, 0, 9][..])),
            ("char(76) = constant, none pass", column(5).equal(format!("{:<76}", "x").as_str())),
            ("int in (20 values)", column(1).is_in((0..20).map(|i| 1001 + 3 * i))),
            ("int % 10 = 11", (column(1) % 10).equal(11)),
            ("int + int > 3000", (column(1) + column(2)).greater_than(3000)),
            ("and of two, half pass the first", column(1).at_least(500).and(not(column(2).at_least(0)))),
            ("and/or tree of five, none pass", plain_tree()),
            ("the same with arithmetic in the last", tree()),
        ] {
            let program = program(&filter);
            measure(what, rows, || table.select(&program));
        }
        let five = program(&plain_tree());
        measure("tree of five, one hand-written loop over rows", rows, || table.count(fused));
        measure("tree of five, row by row", rows, || table.select_row_by_row(&five));
        let one = program(&column(1).greater_than(1000));
        measure("int > constant, row by row", rows, || table.select_row_by_row(&one));
    }
}
