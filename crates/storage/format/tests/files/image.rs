//! Checkpoints: round trips in blocks of any size, and what the reader refuses.

use crate::support::{self, SOFTWARE, image_file, origin, read_image};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vinga_base::{Epoch, NodeId, PartitionId, TableId, TableVersion};
use vinga_format::image::{ImageEnd, ImageFragment, ImageHead};
use vinga_format::image_reader::{ImageContent, ImageError, ImageReader};
use vinga_format::image_writer::{ImageWriter, row_bytes_max};
use vinga_format::{BlockError, BlockKind, Format, system};

fn fragment(table: u32, fixed_bytes: u32, has_variable: bool) -> ImageFragment {
    let (birth, partition) = (TableVersion(70), PartitionId(2));
    ImageFragment { table: TableId(table), birth, partition, fixed_bytes, has_variable }
}

fn head(fragments: Vec<ImageFragment>) -> ImageHead {
    let epoch = Epoch(99);
    ImageHead { instance: 1, checkpoint: 30, base: vec![], batch: 1, incarnation: 7, epoch, fragments }
}

/// A row: epoch, fixed part, variable part.
type Row = (Epoch, Vec<u8>, Vec<u8>);

/// Pages of a fragment: fragment, page, slots, rows by slot.
type Page = (usize, u32, u16, BTreeMap<u16, Row>);

fn write(head: &ImageHead, pages: &[Page], block_bytes: usize) -> (Vec<u8>, ImageEnd) {
    let mut writer = ImageWriter::with_block_bytes(origin().cluster, NodeId(3), head, SOFTWARE, block_bytes);
    let mut file = Vec::new();
    let mut newest = Epoch(0);
    for (fragment, page, slots, rows) in pages {
        writer.begin_piece(*fragment, *page, 0, *slots);
        for (slot, (epoch, fixed, variable)) in rows {
            writer.row(*slot, *epoch, fixed, variable);
            newest = newest.max(*epoch);
            while let Some(block) = writer.take_block() {
                file.extend_from_slice(&block);
                writer.give(block);
            }
        }
        writer.end_piece();
    }
    let totals = writer.finish(newest);
    assert_eq!(totals, writer.totals());
    while let Some(block) = writer.take_block() {
        file.extend_from_slice(&block);
    }
    (file, ImageEnd { epoch: newest, totals })
}

/// Slots of each page by (fragment, page), and the rows by place.
type Content = (BTreeMap<(usize, u32), u16>, BTreeMap<(usize, u32, u16), Row>);

fn read(file: &[u8]) -> (ImageHead, Content, ImageEnd) {
    let mut reader = ImageReader::new(SOFTWARE);
    let (mut at, mut slots, mut rows) = (0, BTreeMap::new(), BTreeMap::new());
    loop {
        let block = reader.read(&file[at..]).expect("it was just written");
        at += block.bytes;
        match block.content {
            ImageContent::Head => {}
            ImageContent::Pages(pieces) => {
                for piece in pieces {
                    let covered = slots.entry((piece.fragment, piece.page)).or_insert(0);
                    assert_eq!(*covered, piece.first_slot, "pieces of a page follow each other");
                    *covered += piece.slots;
                    let live: u32 = piece.live().map(u64::count_ones).sum();
                    assert_eq!(live, u32::from(piece.rows));
                    for row in piece.rows() {
                        assert!((piece.first_slot..*covered).contains(&row.slot));
                        let content = (row.epoch, row.fixed.to_vec(), row.variable.to_vec());
                        rows.insert((piece.fragment, piece.page, row.slot), content);
                    }
                }
            }
            ImageContent::End(end) => {
                assert_eq!(reader.read(&file[at..]), Err(ImageError::IsComplete));
                assert_eq!((at, reader.totals()), (file.len(), end.totals));
                return (reader.head().clone(), (slots, rows), end);
            }
        }
    }
}

#[test]
fn the_longest_rows_fit() {
    let block_bytes = 8192;
    let fixed = row_bytes_max(block_bytes) - 100;
    let head = head(vec![fragment(1, fixed as u32, true)]);
    let rows = (0..5).map(|slot| (slot * 400, (Epoch(1), vec![slot as u8; fixed], vec![9; 100]))).collect();
    let pages = vec![(0, 8, 2048, rows)];
    let (file, end) = write(&head, &pages, block_bytes);
    assert_eq!((end.totals.rows, end.totals.blocks), (5, 7));
    let (_, (slots, read), _) = read(&file);
    assert_eq!((slots[&(0, 8)], read.len()), (2048, 5));
}

#[test]
#[should_panic(expected = "does not fit a block")]
fn a_row_that_fits_no_block_is_refused() {
    let mut writer =
        ImageWriter::with_block_bytes(1, NodeId(1), &head(vec![fragment(1, 5000, false)]), SOFTWARE, 4096);
    writer.begin_piece(0, 0, 0, 10);
    writer.row(0, Epoch(1), &[0; 5000], &[]);
}

#[test]
#[should_panic(expected = "ascending")]
fn rows_that_descend_are_refused() {
    let mut writer = ImageWriter::new(1, NodeId(1), &head(vec![fragment(1, 5, false)]), SOFTWARE);
    writer.begin_piece(0, 0, 0, 10);
    writer.row(3, Epoch(1), &[0; 5], &[]);
    writer.row(3, Epoch(1), &[0; 5], &[]);
}

#[test]
fn an_empty_checkpoint_is_a_head_and_an_end() {
    let (file, end) = write(&head(vec![]), &[], 4096);
    assert_eq!((file.len(), end.totals.blocks, end.totals.rows), (8192, 2, 0));
    assert!(read_image(&file).is_ok());
}

#[test]
fn many_fragments_make_a_long_head() {
    let fragments = (0..40_000).map(|table| fragment(table, 100_000, false)).collect();
    let (file, _) = write(&head(fragments), &[], 4096);
    assert!(file.len() > 300_000 && read_image(&file).is_ok());
}

#[test]
fn blocks_of_another_file_are_refused() {
    let file = image_file();
    let blocks: Vec<&[u8]> = file.chunks(4096).collect();
    let result = |blocks: &[&[u8]]| {
        let mut reader = ImageReader::new(SOFTWARE);
        blocks.iter().find_map(|block| reader.read(block).err())
    };
    assert_eq!(result(&blocks), None);
    assert_eq!(result(&blocks[1..]), Some(ImageError::WrongNumber { due: 0, found: 1 }));
    let (last, last_but_one) = (blocks.len() as u64 - 1, blocks.len() as u64 - 2);
    let without_one = [&blocks[..blocks.len() - 2], &blocks[blocks.len() - 1..]].concat();
    assert_eq!(result(&without_one), Some(ImageError::WrongNumber { due: last_but_one, found: last }));
    let (other, _) = write(&ImageHead { instance: 2, ..head(vec![]) }, &[], 4096);
    assert!(matches!(result(&[blocks[0], &other[4096..]]), Some(ImageError::Foreign(_))));
    let (other, _) = write(&head(vec![]), &[], 4096);
    assert!(matches!(
        result(&[&blocks[..2], &[&other[4096..]]].concat()),
        Some(ImageError::WrongNumber { .. })
    ));
    let system = system::encode(&support::system_state(), 2, SOFTWARE);
    assert_eq!(result(&[&system]), Some(ImageError::OtherFormat(Format::System)));
    assert_eq!(result(&[&[0; 4096]]), Some(ImageError::Block(BlockError::NotABlock)));
    assert_eq!(result(&[&blocks[0][..100]]), Some(ImageError::Block(BlockError::NeedsMore(4096))));
    let two = head(vec![fragment(1, 5, false); 2]);
    assert!(matches!(result(&[&write(&two, &[], 4096).0]), Some(ImageError::Malformed(_))));
    assert_eq!(BlockKind::ImagePages.format(), Format::Checkpoint);
}

#[test]
fn the_last_block_must_be_newer_than_all_rows() {
    let head = head(vec![fragment(1, 5, false)]);
    let mut writer = ImageWriter::new(1, NodeId(1), &head, SOFTWARE);
    writer.begin_piece(0, 0, 0, 10);
    writer.row(0, Epoch(50), &[0; 5], &[]);
    writer.end_piece();
    writer.finish(Epoch(49));
    let mut reader = ImageReader::new(SOFTWARE);
    let mut results = Vec::new();
    while let Some(block) = writer.take_block() {
        results.push(reader.read(&block).map(|_| ()));
    }
    assert_eq!(results, [Ok(()), Ok(()), Err(ImageError::NewerRow(Epoch(50)))]);
}

fn any_pages() -> impl Strategy<Value = (ImageHead, Vec<Page>)> {
    let shapes = prop::collection::vec((0u32..300, any::<bool>()), 1..4);
    shapes.prop_flat_map(|shapes| {
        let fragments =
            shapes.iter().zip(1..).map(|(&(fixed, variable), table)| fragment(table, fixed, variable));
        let head = head(fragments.collect());
        let page = (0..shapes.len(), 1u16..=2048).prop_flat_map(move |(fragment, slots)| {
            let (fixed, has_variable) = shapes[fragment];
            let variable = prop::collection::vec(any::<u8>(), 0..if has_variable { 1000 } else { 1 });
            let row = (0u64..1 << 48, any::<u8>(), variable).prop_map(move |(epoch, byte, variable)| {
                (Epoch(epoch), vec![byte; fixed as usize], variable)
            });
            let rows = prop::collection::btree_map(0..slots, row, 0..40);
            rows.prop_map(move |rows| (fragment, slots, rows))
        });
        let pages = prop::collection::vec(page, 0..8).prop_map(|pages| {
            let number = |(page, (fragment, slots, rows))| (fragment, page, slots, rows);
            (0..).zip(pages).map(number).collect()
        });
        (Just(head), pages)
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read((head, pages) in any_pages(), sectors in 1usize..10) {
        let (file, end) = write(&head, &pages, sectors * 4096);
        let (read_head, (slots, rows), read_end) = read(&file);
        prop_assert_eq!((read_head, read_end), (head, end));
        let all_slots: BTreeMap<_, _> =
            pages.iter().map(|(fragment, page, slots, _)| ((*fragment, *page), *slots)).collect();
        prop_assert_eq!(slots, all_slots);
        let all_rows: BTreeMap<_, _> = pages.iter().flat_map(|(fragment, page, _, rows)| {
            rows.iter().map(|(slot, row)| ((*fragment, *page, *slot), row.clone()))
        }).collect();
        prop_assert_eq!(end.totals.rows, all_rows.len() as u64);
        prop_assert_eq!(rows, all_rows);
    }
}
