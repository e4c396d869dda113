//! Megabytes a second: checksums, checkpoints written and read, redo records appended and read.
//!
//! `cargo run --release -p vinga-format --example format_speed`. Rows are of 8 + 100 bytes, 270 a page, and lie in
//! memory as in a data node's pages, more of them than fit the caches.

use std::hint::black_box;
use std::time::Instant;
use vinga_base::{Epoch, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::block::{BLOCK_BYTES, Origin};
use vinga_format::image::{ImageFragment, ImageHead};
use vinga_format::image_reader::{ImageContent, ImageReader, Piece};
use vinga_format::image_writer::ImageWriter;
use vinga_format::redo::{
    Change, Entry, RecordKind, append_record, begin_entries, entries, put_entry, records,
};
use vinga_format::{BlockWriter, Checksum};

const PAGES: usize = 8000;
const ROWS_OF_PAGE: usize = 270;
const FIXED_BYTES: usize = 108;
const STRIDE: usize = 120;
const REPETITIONS: usize = 5;

/// The best of some repetitions, in megabytes a second.
fn measure(what: &str, mut run: impl FnMut() -> usize) {
    let mut best = 0.0f64;
    for _ in 0..REPETITIONS {
        let begin = Instant::now();
        let bytes = run();
        best = best.max(bytes as f64 / begin.elapsed().as_secs_f64() / 1e6);
    }
    println!("{what:<48}{best:>8.0} MB/s");
}

fn head(has_variable: bool) -> ImageHead {
    let fragment = ImageFragment {
        table: TableId(1),
        birth: TableVersion(1),
        partition: PartitionId(0),
        fixed_bytes: FIXED_BYTES as u32,
        has_variable,
    };
    ImageHead { fragments: vec![fragment], ..ImageHead::default() }
}

/// Writes all rows and passes the blocks on.
fn write(memory: &[u8], has_variable: bool, checksum: Checksum, mut each: impl FnMut(&[u8])) -> usize {
    let mut writer = ImageWriter::new(1, NodeId(1), &head(has_variable), checksum);
    let variable = &[7; 20][..if has_variable { 20 } else { 0 }];
    let mut bytes = 0;
    let mut pass_on = |writer: &mut ImageWriter| {
        while let Some(block) = writer.take_block() {
            bytes += block.len();
            each(&block);
            writer.give(block);
        }
    };
    for (page, rows) in memory.chunks_exact(STRIDE * ROWS_OF_PAGE).enumerate() {
        writer.begin_piece(0, page as u32, 0, 273);
        for (slot, row) in rows.chunks_exact(STRIDE).enumerate() {
            writer.row(slot as u16, Epoch(5), &row[12..], variable);
        }
        writer.end_piece();
        pass_on(&mut writer);
    }
    writer.finish(Epoch(5));
    pass_on(&mut writer);
    bytes
}

fn main() {
    let hardware = Checksum(crc32c::crc32c_append);
    let none = Checksum(|_, _| 0);
    let memory: Vec<u8> = (0..PAGES * ROWS_OF_PAGE * STRIDE).map(|i| i as u8).collect();

    let block = &memory[..BLOCK_BYTES];
    for (what, checksum) in [("software", Checksum::SOFTWARE), ("hardware", hardware)] {
        measure(&format!("checksum of 256 KiB, {what}"), || {
            for _ in 0..500 {
                black_box(checksum.of(black_box(block)));
            }
            500 * BLOCK_BYTES
        });
    }
    for (what, checksum) in [("none", none), ("software", Checksum::SOFTWARE), ("hardware", hardware)] {
        measure(&format!("checkpoint written, checksum {what}"), || {
            write(&memory, false, checksum, |block| {
                black_box(block);
            })
        });
    }
    measure("checkpoint written, 20 variable bytes, none", || {
        write(&memory, true, none, |block| {
            black_box(block);
        })
    });

    for (what, has_variable) in [("", false), (", 20 variable bytes", true)] {
        let mut file = Vec::new();
        write(&memory, has_variable, hardware, |block| file.extend_from_slice(block));
        measure(&format!("checkpoint read, checksum hardware{what}"), || {
            let mut reader = ImageReader::new(hardware);
            let (mut at, mut rows) = (0, 0);
            while at < file.len() {
                let block = reader.read(&file[at..]).expect("it was just written");
                at += block.bytes;
                if let ImageContent::Pages(pieces) = block.content {
                    for row in pieces.iter().flat_map(Piece::rows) {
                        rows += 1;
                        black_box((row.fixed, row.variable));
                    }
                }
            }
            assert_eq!(rows, PAGES * ROWS_OF_PAGE);
            file.len()
        });
    }

    let change = |row| Change {
        kind: RecordKind::Write,
        table: TableId(1),
        birth: TableVersion(1),
        partition: PartitionId(0),
        row: RowId(row),
        epoch: Epoch(5),
    };
    let mut batch = Vec::with_capacity(BLOCK_BYTES);
    let mut writer = BlockWriter::new();
    let mut log = Vec::new();
    measure("redo records appended and sealed, hardware", || {
        let mut bytes = 0;
        for rows in memory.chunks_exact(STRIDE * 200).take(10_000) {
            batch.clear();
            for (row, image) in rows.chunks_exact(STRIDE).enumerate() {
                append_record(&mut batch, &change(row as u32), &image[12..], &[]);
            }
            begin_entries(&mut writer, 1, Origin::default(), BLOCK_BYTES);
            assert!(put_entry(&mut writer, &Entry { participant: 0, batch: 1, records: &batch }));
            bytes += writer.seal(hardware);
            if log.is_empty() {
                log.extend_from_slice(writer.sealed());
            }
        }
        bytes
    });
    measure("redo records read, images untouched", || {
        let block = vinga_format::read_block(&log, hardware).expect("it was just written");
        for _ in 0..10_000 {
            for entry in entries(black_box(&block)).flatten() {
                for record in records(entry.records).flatten() {
                    black_box(record);
                }
            }
        }
        10_000 * block.bytes
    });
}
