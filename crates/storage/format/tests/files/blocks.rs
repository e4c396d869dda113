//! Blocks: what is put in comes out, and each kind of damage has its own error.

use crate::support::{SOFTWARE, origin};
use proptest::prelude::*;
use vinga_base::Epoch;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_format::block::{BLOCK_BYTES_MAX, BlockSearch, HEAD_BYTES};
use vinga_format::{BlockError, BlockKind, BlockWriter, Format, Head, read_block};

fn block(payload: &[u8]) -> AlignedBuffer {
    let mut writer = BlockWriter::new();
    writer.begin(Head::new(BlockKind::RedoEntries, 5, origin()), 64 << 10);
    writer.put(payload);
    writer.seal(SOFTWARE);
    writer.take()
}

/// Corrects the checksum of a block.
fn reseal(block: &mut [u8]) {
    let length = u32::from_le_bytes(block[8..12].try_into().unwrap()) as usize;
    let sum = SOFTWARE.of(&block[8..length]);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn error(block: &[u8]) -> BlockError {
    read_block(block, SOFTWARE).expect_err("it is damaged")
}

#[test]
fn each_error_has_its_cause() {
    let whole = block(&[9; 5000]);
    assert_eq!((whole.len(), read_block(&whole, SOFTWARE).unwrap().payload), (8192, &[9; 5000][..]));
    assert_eq!(error(&whole[..0]), BlockError::NeedsMore(4096));
    assert_eq!(error(&whole[..4095]), BlockError::NeedsMore(4096));
    assert_eq!(error(&whole[..8191]), BlockError::NeedsMore(8192));
    assert_eq!(error(&[0; 4096]), BlockError::NotABlock);
    let with = |at: usize, bytes: &[u8]| {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        damaged
    };
    for length in [0, HEAD_BYTES as u32 - 1, BLOCK_BYTES_MAX as u32 + 1, u32::MAX] {
        assert_eq!(error(&with(8, &length.to_le_bytes())), BlockError::BadLength(length));
    }
    assert!(matches!(error(&with(100, &[8])), BlockError::BadChecksum { .. }));
    assert_eq!(error(&with(8191, &[1])), BlockError::NotZero(8191));
    let resealed = |at, bytes: &[u8]| {
        let mut damaged = with(at, bytes);
        reseal(&mut damaged);
        error(&damaged)
    };
    for version in [0, 3, u16::MAX] {
        let expected = BlockError::UnknownVersion { format: Format::Redo, found: version, known: 2 };
        assert_eq!(resealed(12, &version.to_le_bytes()), expected);
    }
    assert_eq!(resealed(14, &[99, 0]), BlockError::UnknownKind(99));
    assert_eq!(resealed(14, &[BlockKind::ImageHead as u8, 0]), BlockError::UnknownKind(3));
    assert_eq!(resealed(37, &[1]), BlockError::NotZero(37));
    assert_eq!(resealed(54, &[1]), BlockError::BadEpoch(1 << 48));
}

#[test]
fn a_buffer_is_used_again() {
    let mut writer = BlockWriter::new();
    writer.begin(Head::new(BlockKind::RedoEntries, 1, origin()), 16 << 10);
    assert_eq!((writer.room(), writer.payload_bytes()), ((16 << 10) - HEAD_BYTES, 0));
    writer.space(10_000).fill(0xff);
    assert_eq!(writer.seal(SOFTWARE), 12 << 10);
    let first = writer.take();
    let address = first.as_ptr();
    assert_eq!(first.len(), 12 << 10);
    writer.give(first);
    writer.begin(Head::new(BlockKind::RedoEntries, 2, origin()), 8 << 10);
    writer.put(b"short");
    assert_eq!(writer.seal(SOFTWARE), 4 << 10);
    let second = writer.take();
    assert_eq!(second.as_ptr(), address);
    assert_eq!(read_block(&second, SOFTWARE).expect("its padding is zeros").payload, b"short");
}

#[test]
#[should_panic(expected = "has room")]
fn more_than_there_is_room_for_is_refused() {
    let mut writer = BlockWriter::new();
    writer.begin(Head::new(BlockKind::RedoEntries, 1, origin()), 4096);
    writer.put(&[0; 4096 - HEAD_BYTES + 1]);
}

#[test]
fn blocks_are_found_among_others() {
    let bytes = [&[7; SECTOR_BYTES][..], &block(&[1; 5000]), &[0; SECTOR_BYTES], &block(&[2; 9000])].concat();
    let found: Vec<_> =
        BlockSearch::new(&bytes, true, SOFTWARE).map(|(at, block)| (at, block.bytes)).collect();
    assert_eq!(found, [(4096, 8192), (16384, 12288)]);
    let mut search = BlockSearch::new(&bytes[..20480], false, SOFTWARE);
    assert_eq!((search.by_ref().count(), search.position()), (1, 16384));
    let mut search = BlockSearch::new(&bytes[..20480], true, SOFTWARE);
    assert_eq!((search.by_ref().count(), search.position()), (1, 20480));
}

proptest! {
    #[test]
    fn what_is_put_in_comes_out(
        kind in 0usize..8,
        numbers: (u64, u64, u32, u8, u16, u64, u64),
        epoch in 0u64..1 << 48,
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..6),
    ) {
        let (number, cluster, incarnation, node, owner, flushed, generation) = numbers;
        let node = vinga_base::NodeId(node);
        let origin = vinga_format::Origin { cluster, node, incarnation, owner };
        let head = Head { kind: BlockKind::ALL[kind], number, origin, flushed, ends_epoch: Epoch(epoch), generation };
        let mut writer = BlockWriter::new();
        writer.begin(head, 32 << 10);
        parts.iter().for_each(|part| writer.put(part));
        let bytes = writer.seal(SOFTWARE);
        let block = read_block(writer.sealed(), SOFTWARE).expect("it was just written");
        let version = head.kind.format().version();
        prop_assert_eq!((block.head, block.bytes, block.version), (head, bytes, version));
        prop_assert_eq!(block.payload, parts.concat());
    }
}
