//! Scans of ranges and statistics, with a scripted node behind wires that deliver in any order.

use crate::world::World;
use vinga_base::ColumnId;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{ColumnDefinition, ColumnType, IndexDefinition, IndexKind, TableDefinition};
use vinga_client_core::{
    Answer, OperationSpec, RangeSpec, Request, RowBuilder, Sample, ScanProgress, ScanSpec,
};
use vinga_client_core::{Table, Token, Urgency, WriteBatch};
use vinga_testnode::Layout;
use vinga_wire::operation::OperationKind;
use vinga_wire::{ErrorCode, SignalNumber};

const BY_COUNT: u16 = 3;

/// A table with rows whose count is their key modulo ten, indexed by it.
fn loaded(rows: u64, seed: u64) -> (World, Table) {
    let layout = Layout { connections: 2, ..Layout::default() };
    let mut world = World::new(layout, seed);
    let number = ColumnType::Integer { bytes: 8, signed: false };
    let column = |name: &str| ColumnDefinition { name: name.into(), column_type: number, nullable: false };
    let by = OrderColumn { column: ColumnId(1), direction: Direction::Ascending };
    let definition = TableDefinition {
        name: "test.counts".into(),
        columns: vec![column("id"), column("count")],
        primary_key: vec![ColumnId(0)],
        indexes: vec![IndexDefinition {
            id: BY_COUNT,
            name: "by_count".into(),
            columns: vec![by],
            kind: IndexKind::Ordered,
        }],
        ..TableDefinition::default()
    };
    let Ok(Answer::Table(record)) = world.ask(&Request::CreateTable(definition)) else {
        panic!("the table is created")
    };
    let table = Table::new(record).unwrap();
    let mut batch = WriteBatch::default();
    let mut builder = RowBuilder::default();
    for id in 0..rows {
        let mut image = Vec::new();
        builder.begin(&table);
        builder.set(&table, ColumnId(0), &id).unwrap();
        builder.set(&table, ColumnId(1), &(id % 10)).unwrap();
        builder.finish(&table, &mut image).unwrap();
        batch.push(&OperationSpec::new(&table, OperationKind::Write, &[], &image)).unwrap();
    }
    let token = world.client.write(batch, Urgency::Now).unwrap();
    world.run_until_idle();
    assert!(world.client.take_write(token).unwrap().endings().all(|ending| ending.is_ok()));
    (world, table)
}

/// Counts from `low` on and below `high`.
fn range(low: u64, high: u64) -> RangeSpec {
    let mut spec = RangeSpec::new(BY_COUNT);
    spec.push_bounds(&low.to_be_bytes(), &high.to_be_bytes());
    spec
}

fn count(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[8..16].try_into().unwrap())
}

/// The counts of all rows, until `stop` says that it is enough.
fn take(world: &mut World, token: Token, stop: impl Fn(&[u64]) -> bool) -> Result<Vec<u64>, ErrorCode> {
    let mut counts = Vec::new();
    for _ in 0..1_000_000 {
        match world.client.next_rows(token) {
            ScanProgress::Rows(batch) => {
                counts.extend(batch.iter().map(count));
                world.client.recycle(batch);
                if stop(&counts) {
                    return Ok(counts);
                }
            }
            ScanProgress::Last(batch) => {
                counts.extend(batch.iter().map(count));
                world.client.recycle(batch);
                return Ok(counts);
            }
            // What waits for time goes on when it passes.
            ScanProgress::Waiting => {
                if !world.step() {
                    world.advance(1000);
                }
            }
            ScanProgress::Ended(result) => return result.map(|()| counts).map_err(|error| error.code()),
        }
    }
    panic!("a scan ends");
}

fn all(world: &mut World, token: Token) -> Result<Vec<u64>, ErrorCode> {
    let counts = take(world, token, |_| false);
    world.run_until_idle();
    assert!(world.client.is_at_rest() && world.node.is_at_rest());
    counts
}

fn asked(world: &World, signal: SignalNumber) -> u64 {
    world.node.handled.get(&(signal as u16)).copied().unwrap_or(0)
}

#[test]
fn rows_of_all_partitions_are_merged() {
    for seed in 0..20 {
        let (mut world, table) = loaded(1000, seed);
        for (is_descending, limit) in [(false, 0), (true, 0), (false, 7), (true, 333)] {
            let mut ranges = range(2, 8);
            (ranges.in_order, ranges.is_descending) = (true, is_descending);
            let batch_rows = world.random.u16(1..200);
            let spec = ScanSpec { ranges: Some(ranges), limit, batch_rows, ..ScanSpec::default() };
            let token = world.client.scan(&table, spec, None).unwrap();
            let mut expected: Vec<u64> = (0..1000).map(|id| id % 10).filter(|c| (2..8).contains(c)).collect();
            expected.sort_unstable();
            if is_descending {
                expected.reverse();
            }
            expected.truncate(if limit == 0 { usize::MAX } else { limit as usize });
            assert_eq!(all(&mut world, token), Ok(expected));
        }
    }
}

#[test]
fn a_short_range_is_one_round_trip_and_a_long_one_begins_small() {
    let (mut world, table) = loaded(4000, 1);
    let mut ranges = range(0, 9);
    ranges.in_order = true;
    let spec = ScanSpec { ranges: Some(ranges.clone()), limit: 1, ..ScanSpec::default() };
    let token = world.client.scan(&table, spec, None).unwrap();
    assert_eq!(all(&mut world, token), Ok(vec![0]));
    assert_eq!(asked(&world, SignalNumber::ScanNextRequest), 0);
    assert_eq!(asked(&world, SignalNumber::ScanCloseOrder), 0);
    let spec = ScanSpec { ranges: Some(ranges), ..ScanSpec::default() };
    let token = world.client.scan(&table, spec.clone(), None).unwrap();
    world.run_until_idle();
    assert_eq!(asked(&world, SignalNumber::ScanNextRequest), 0, "nobody has taken the first batches");
    let first = take(&mut world, token, |counts| !counts.is_empty()).unwrap();
    assert!(first.len() <= 8 * 64);
    world.client.cancel(token);
    world.run_until_idle();
    assert!(world.client.is_at_rest() && world.node.is_at_rest());
    let token = world.client.scan(&table, spec, None).unwrap();
    assert_eq!(all(&mut world, token).unwrap().len(), 3600);
}

#[test]
fn a_scan_goes_on_behind_its_last_row() {
    for seed in 0..20 {
        for in_order in [false, true] {
            let (mut world, table) = loaded(2000, seed);
            let mut ranges = range(0, 10);
            ranges.in_order = in_order;
            let spec = ScanSpec { ranges: Some(ranges), batch_rows: 40, ..ScanSpec::default() };
            let token = world.client.scan(&table, spec, None).unwrap();
            let mut counts = take(&mut world, token, |counts| counts.len() > 500).unwrap();
            world.run_until_idle();
            world.node.time_out_scans();
            world.node.refuses_scans = 3;
            counts.extend(all(&mut world, token).unwrap());
            assert_eq!(counts.len(), 2000);
            if !in_order {
                counts.sort_unstable();
            }
            assert!(counts.is_sorted());
        }
    }
}

#[test]
fn refusals_for_want_of_room_end_a_scan_at_last() {
    let (mut world, table) = loaded(10, 3);
    world.node.refuses_scans = u32::MAX;
    let spec = ScanSpec { ranges: Some(range(0, 10)), ..ScanSpec::default() };
    let token = world.client.scan(&table, spec, None).unwrap();
    let before = world.now;
    assert_eq!(all(&mut world, token), Err(ErrorCode::Overloaded));
    assert!(world.now.0 - before.0 >= 5_000_000);
    world.node.refuses_scans = 0;
    let wrong = ScanSpec { ranges: Some(RangeSpec::new(BY_COUNT)), ..ScanSpec::default() };
    assert_eq!(world.client.scan(&table, wrong, None).unwrap_err().code(), ErrorCode::BadProgram);
    let mut unknown = range(0, 1);
    unknown.index = 9;
    let spec = ScanSpec { ranges: Some(unknown), ..ScanSpec::default() };
    let token = world.client.scan(&table, spec, None).unwrap();
    assert_eq!(all(&mut world, token), Err(ErrorCode::NoSuchIndex));
}

#[test]
fn statistics_come_from_all_of_few_partitions() {
    let (mut world, table) = loaded(500, 4);
    let token = world.client.statistics(&table, &range(3, 5)).unwrap();
    world.run_until_idle();
    let sample = world.client.take_statistics(token).unwrap().unwrap();
    assert_eq!((sample.partitions, sample.sampled.len()), (8, 8));
    assert_eq!(sample.sampled.iter().map(|partition| partition.entries).sum::<u64>(), 500);
    assert_eq!(sample.sampled.iter().map(|partition| partition.rows[0]).sum::<u64>(), 100);
    assert!(sample.sampled.iter().all(|partition| partition.distinct == [10]));
    // The connection is lost meanwhile: what has not been answered is asked again, and once only.
    for _ in 0..10 {
        let token = world.client.statistics(&table, &range(3, 5)).unwrap();
        world.break_any();
        world.run_until_idle();
        let again = world.client.take_statistics(token).unwrap().unwrap();
        let entries = |sample: &Sample| {
            let mut entries: Vec<u64> = sample.sampled.iter().map(|partition| partition.entries).collect();
            entries.sort_unstable();
            entries
        };
        assert_eq!(entries(&again), entries(&sample));
        assert!(world.client.is_at_rest());
    }
}
