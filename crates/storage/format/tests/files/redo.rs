//! The redo log: round trips, and where it goes on and ends.

use crate::support::{SOFTWARE, change, origin};
use proptest::prelude::*;
use vinga_base::{Epoch, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::block::BlockSearch;
use vinga_format::log_cursor::{LogCursor, LogDamage, LogEnd, LogStop, NotEntered, Verdict};
use vinga_format::redo::{
    Change, ENTRY_HEAD_BYTES, Entry, RECORD_HEAD_BYTES, RecordKind, Segment, append_record, begin_entries,
    check, entries, put_entry, records, records_max,
};
use vinga_format::{BlockError, BlockKind, BlockWriter, Head, Origin, read_block};

const SEGMENT: Segment = Segment { number: 3, first_block: 10, file_bytes: 1 << 20, tail: 2 };

fn with_incarnation(incarnation: u32) -> Origin {
    Origin { incarnation, ..origin() }
}

fn segment_block(segment: Segment, origin: Origin) -> Vec<u8> {
    let mut writer = BlockWriter::new();
    segment.write(&mut writer, origin, segment.first_block.saturating_sub(1), &[], SOFTWARE);
    writer.sealed().to_vec()
}

/// A block of entries that takes so many sectors.
fn entries_block(number: u64, origin: Origin, flushed: u64, sectors: usize) -> Vec<u8> {
    let mut writer = BlockWriter::new();
    begin_entries(&mut writer, number, origin, 64 << 10);
    let records = vec![1; sectors * 4096 - 64 - ENTRY_HEAD_BYTES];
    assert!(put_entry(&mut writer, &Entry { participant: 0, batch: number, records: &records }));
    writer.head_mut().flushed = flushed;
    writer.seal(SOFTWARE);
    writer.sealed().to_vec()
}

fn cursor(segment: Segment, origin: Origin) -> LogCursor {
    let bytes = segment_block(segment, origin);
    LogCursor::begin(&read_block(&bytes, SOFTWARE).unwrap()).expect("it is a head").0
}

/// Reads blocks until no more follow; returns their numbers and why it ended, and how it is to be judged.
fn follow(cursor: &mut LogCursor, bytes: &[u8]) -> (Vec<u64>, LogStop, LogEnd) {
    let (mut numbers, mut at) = (Vec::new(), 0);
    loop {
        match cursor.judge(&bytes[at..], true, SOFTWARE) {
            Verdict::Next(block) => {
                numbers.push(block.head.number);
                at += block.bytes;
            }
            Verdict::End(stop) => {
                let later: Vec<Head> =
                    BlockSearch::new(&bytes[at..], true, SOFTWARE).map(|(_, block)| block.head).collect();
                return (numbers, stop, cursor.judge_end(&later));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_log_ends_where_nothing_follows() {
    let block = |number, incarnation| entries_block(number, with_incarnation(incarnation), number - 1, 1);
    let ends = |bytes: &[Vec<u8>]| {
        let (numbers, stop, end) = follow(&mut cursor(SEGMENT, origin()), &bytes.concat());
        assert_eq!((numbers, end), (vec![10, 11], LogEnd::Clean));
        stop
    };
    let (first, second) = (block(10, 7), block(11, 7));
    assert_eq!(ends(&[first.clone(), second.clone()]), LogStop::FileEnds);
    assert_eq!(ends(&[first.clone(), second.clone(), vec![0; 8192]]), LogStop::Blank);
    let middle = entries_block(3, origin(), 2, 3)[4096..].to_vec();
    assert_eq!(
        ends(&[first.clone(), second.clone(), [middle, vec![5; 100]].concat()]),
        LogStop::NoBlock(BlockError::NotABlock)
    );
    let old = block(9, 7);
    assert_eq!(ends(&[first.clone(), second.clone(), old]), LogStop::Older { number: 9, incarnation: 7 });
    // The number is right, the incarnation has ended before.
    let second_of_next = block(11, 8);
    assert_eq!(
        ends(&[first.clone(), second_of_next, block(12, 7)]),
        LogStop::Older { number: 12, incarnation: 7 }
    );
    let foreign = Origin { node: NodeId(4), ..origin() };
    let foreign_block = entries_block(12, foreign, 11, 1);
    assert_eq!(ends(&[first, second, foreign_block]), LogStop::Foreign(foreign));
}

#[test]
fn a_torn_tail_is_allowed_and_a_missing_block_is_not() {
    let torn = |flushed_of_third| {
        let mut second = entries_block(11, origin(), 10, 2);
        second[5000] ^= 1;
        let third = entries_block(12, origin(), flushed_of_third, 1);
        let bytes = [entries_block(10, origin(), 9, 1), second, third].concat();
        let (numbers, stop, end) = follow(&mut cursor(SEGMENT, origin()), &bytes);
        assert_eq!(numbers, [10]);
        assert!(matches!(stop, LogStop::NoBlock(BlockError::BadChecksum { .. })));
        end
    };
    assert_eq!(torn(10), LogEnd::Clean);
    assert_eq!(torn(11), LogEnd::Missing { due: 11, later: 12, flushed: 11 });
    // The proof may also be the head of a later segment.
    let mut cursor = cursor(SEGMENT, origin());
    let next = segment_block(Segment { number: 4, first_block: 15, ..SEGMENT }, origin());
    let next = read_block(&next, SOFTWARE).unwrap();
    assert_eq!(cursor.enter(&next), Err(NotEntered::End(LogStop::Gap { segment: 4, first_block: 15 })));
    assert_eq!(cursor.judge_end([&next.head]), LogEnd::Missing { due: 10, later: 15, flushed: 14 });
}

#[test]
fn dead_blocks_prove_nothing() {
    // Incarnation 7 had written blocks up to 13; restored was the epoch that ended with block 10. Incarnation 8 was
    // writing block 11 in the place of the old one.
    let mut torn = entries_block(11, with_incarnation(8), 10, 1);
    torn[300] ^= 1;
    let dead = |number| entries_block(number, origin(), number - 1, 1);
    let bytes = [torn, dead(12), dead(13)].concat();
    let mut behind_first = cursor(SEGMENT, origin());
    assert!(matches!(behind_first.judge(&dead(10), true, SOFTWARE), Verdict::Next(_)));
    let mut knows = behind_first;
    knows.require_incarnation(8);
    assert_eq!(follow(&mut knows, &bytes).2, LogEnd::Clean);
    assert!(matches!(follow(&mut behind_first, &bytes).2, LogEnd::Missing { due: 11, .. }));
}

#[test]
fn what_cannot_be_there_is_damage() {
    let damage = |bytes: &[u8]| match cursor(SEGMENT, origin()).judge(bytes, true, SOFTWARE) {
        Verdict::Damaged(damage) => damage,
        other => panic!("{other:?}"),
    };
    assert_eq!(damage(&entries_block(12, origin(), 9, 1)), LogDamage::Skipped { due: 10, found: 12 });
    let flushed = LogDamage::FlushedItself { number: 10, flushed: 10 };
    assert_eq!(damage(&entries_block(10, origin(), 10, 1)), flushed);
    let next = Segment { number: 4, ..SEGMENT };
    assert_eq!(damage(&segment_block(next, origin())), LogDamage::WrongKind(BlockKind::SegmentHead));
    let data = entries_block(10, origin(), 9, 1);
    let block = read_block(&data, SOFTWARE).unwrap();
    assert_eq!(LogCursor::begin(&block).unwrap_err(), LogDamage::WrongKind(BlockKind::RedoEntries));
}

#[test]
fn segments_follow_each_other() {
    let enter = |segment: Segment, incarnation| {
        let mut cursor = cursor(SEGMENT, origin());
        for number in 10..14 {
            let block = entries_block(number, origin(), number - 1, 1);
            assert!(matches!(cursor.judge(&block, true, SOFTWARE), Verdict::Next(_)));
        }
        let block = segment_block(segment, with_incarnation(incarnation));
        let entered = cursor.enter(&read_block(&block, SOFTWARE).unwrap());
        entered.map(|_| (cursor.segment(), cursor.next_number(), cursor.incarnation()))
    };
    let next = Segment { number: 4, first_block: 14, ..SEGMENT };
    assert_eq!(enter(next, 7), Ok((4, 14, 7)));
    assert_eq!(enter(next, 8), Ok((4, 14, 8)));
    // The node has started again behind block 11.
    assert_eq!(enter(Segment { first_block: 12, ..next }, 8), Ok((4, 12, 8)));
    let older = |number, incarnation| Err(NotEntered::End(LogStop::Older { number, incarnation }));
    assert_eq!(enter(Segment { first_block: 12, ..next }, 7), older(12, 7));
    assert_eq!(enter(next, 6), older(14, 6));
    assert_eq!(enter(Segment { number: 5, ..next }, 7), older(14, 7));
    let gap = LogStop::Gap { segment: 4, first_block: 20 };
    assert_eq!(enter(Segment { first_block: 20, ..next }, 7), Err(NotEntered::End(gap)));
}

#[test]
fn more_bytes_are_asked_for() {
    let block = entries_block(10, origin(), 9, 3);
    let needs = |bytes: &[u8]| match cursor(SEGMENT, origin()).judge(bytes, false, SOFTWARE) {
        Verdict::NeedsMore(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!((needs(&block[..0]), needs(&block[..4096])), (4096, 12288));
}

#[test]
fn malformed_records_and_entries_are_named() {
    let mut batch = Vec::new();
    append_record(&mut batch, &change(RecordKind::Write, 1, 5), b"fixed", b"variable");
    append_record(&mut batch, &change(RecordKind::Delete, 2, 5), &[], &[]);
    let reason = |at: usize, byte: u8| {
        let mut damaged = batch.clone();
        damaged[at] = byte;
        let result = records(&damaged).find_map(Result::err);
        result.map(|malformed| (malformed.at, malformed.reason))
    };
    let second = RECORD_HEAD_BYTES + 13;
    assert_eq!(reason(0, 3), Some((0, "a record is of an unknown kind")));
    assert_eq!(reason(1, 1), Some((0, "a reserved field of a record is not 0")));
    assert_eq!(reason(22, 1), Some((0, "the epoch of a record has more than 48 bits")));
    assert_eq!(reason(14, 1), Some((0, "a record is longer than its entry")));
    assert_eq!(reason(0, 2), Some((0, "a record without a row has an image")));
    assert_eq!(reason(12, 12), Some((second - 1, "a record is of an unknown kind")));
    assert_eq!(reason(second + 12, 1), Some((second, "a record without a row has an image")));
    let cut = records(&batch[..batch.len() - 1]).last().unwrap().unwrap_err();
    assert_eq!((cut.at, cut.reason), (second, "a record is cut off in its head"));

    let mut writer = BlockWriter::new();
    begin_entries(&mut writer, 1, origin(), 8192);
    assert!(put_entry(&mut writer, &Entry { participant: 1, batch: 1, records: &batch }));
    batch[second] = 9;
    assert!(put_entry(&mut writer, &Entry { participant: 1, batch: 2, records: &batch }));
    writer.seal(SOFTWARE);
    let found = check(&read_block(writer.sealed(), SOFTWARE).unwrap()).unwrap_err();
    assert_eq!(found.at, 2 * ENTRY_HEAD_BYTES + batch.len() + second);
}

fn any_change() -> impl Strategy<Value = (Change, Vec<u8>, Vec<u8>)> {
    let image = || prop::collection::vec(any::<u8>(), 0..300);
    let numbers = (any::<u32>(), any::<u64>(), any::<u16>(), any::<u32>(), 0u64..1 << 48);
    (any::<bool>(), numbers, image(), image()).prop_map(|(is_write, numbers, fixed, variable)| {
        let (table, birth, partition, row, epoch) = numbers;
        let kind = if is_write { RecordKind::Write } else { RecordKind::Delete };
        let change = Change {
            kind,
            table: TableId(table),
            birth: TableVersion(birth),
            partition: PartitionId(partition),
            row: RowId(row),
            epoch: Epoch(epoch),
        };
        if is_write { (change, fixed, variable) } else { (change, vec![], vec![]) }
    })
}

proptest! {
    #[test]
    fn what_is_logged_is_read(
        batches in prop::collection::vec((any::<u16>(), any::<u64>(), prop::collection::vec(any_change(), 0..8)), 0..9),
    ) {
        let mut writer = BlockWriter::new();
        begin_entries(&mut writer, 1, origin(), 16 << 10);
        let mut taken = Vec::new();
        for (participant, batch, changes) in batches {
            let mut bytes = Vec::new();
            for (change, fixed, variable) in &changes {
                append_record(&mut bytes, change, fixed, variable);
            }
            let room = writer.room();
            if put_entry(&mut writer, &Entry { participant, batch, records: &bytes }) {
                taken.push((participant, batch, changes));
            } else {
                prop_assert!(bytes.len() + ENTRY_HEAD_BYTES > room && writer.room() == room);
                prop_assert!(!taken.is_empty() || bytes.len() > records_max(16 << 10));
            }
        }
        writer.seal(SOFTWARE);
        let block = read_block(writer.sealed(), SOFTWARE).expect("it was just written");
        prop_assert_eq!(check(&block), Ok(()));
        let read: Vec<_> = entries(&block).map(|entry| {
            let entry = entry.expect("it was just written");
            let changes: Vec<_> = records(entry.records).map(|record| {
                let record = record.expect("it was just written");
                (record.change, record.image.to_vec())
            }).collect();
            (entry.participant, entry.batch, changes)
        }).collect();
        let taken: Vec<_> = taken.into_iter().map(|(participant, batch, changes)| {
            let image = |(change, fixed, variable): (Change, Vec<u8>, Vec<u8>)| (change, [fixed, variable].concat());
            (participant, batch, changes.into_iter().map(image).collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(read, taken);
    }
}
