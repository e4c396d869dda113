//! What ordered indexes cost on the thread that executes them, without sockets, in time of one processor: building one
//! over rows that are there, scanning ranges of 100 rows over eight partitions, and of 100 and 10,000 with a condition
//! that leaves none of them, changing rows that have one.
//!
//! `cargo run --release -p vinga-node --example range_speed`

#[allow(dead_code, reason = "each example uses its part of it")]
mod support;

use support::{API, Bench, NODE, ROWS, TABLE, VERSION, processor_time};
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};
use vinga_base::{ColumnId, PartitionId};
use vinga_program::comparison::Comparison;
use vinga_program::filter::codec::encode;
use vinga_program::filter::tree::{Constant, Expression};
use vinga_wire::operation::{ALL_COLUMNS, OperationKind};
use vinga_wire::range_scan::{RANGE_KEYS, RangeHead, RangeScanOpenHead};
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, U16, U32, U64};

/// Rows of a range.
const RANGE: u64 = 100;
/// Ranges that are scanned.
const SCANS: u64 = 100_000;
/// Rows of a long range, and how many are scanned.
const LONG: (u64, u64) = (10_000, 4_000);

fn index() -> IndexDefinition {
    IndexDefinition {
        id: 1,
        name: "PRIMARY".into(),
        columns: vec![OrderColumn { column: ColumnId(0), direction: Direction::Ascending }],
        kind: IndexKind::Ordered,
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Query<'a> {
    rows: u64,
    flags: u16,
    filter: &'a [u8],
}

/// Requests for the rows from a key on, one for each partition.
fn scan(bench: &Bench, number: u64, first: u64, query: Query<'_>, out: &mut Vec<u8>) {
    let Query { rows, flags, filter } = query;
    for partition in 0..8 {
        let instance = bench.view.partition(PartitionId(partition)).owner.instance();
        let to = Address::new(NODE, BlockNumber::DataManager, instance);
        let mut writer = FrameWriter::begin(out, SignalNumber::RangeScanOpenRequest, 1, to, API, 0);
        writer.put(&RangeScanOpenHead {
            version: U64::new(VERSION),
            transaction: U64::ZERO,
            scan: U32::new(number as u32 * 8 + u32::from(partition)),
            table: U32::new(TABLE),
            operation: U32::ZERO,
            batch_bytes: U32::new(1 << 18),
            limit: U32::ZERO,
            from_row: U32::ZERO,
            from_range: U16::ZERO,
            key_bytes: U16::ZERO,
            index: U16::new(1),
            partition: U16::new(partition),
            batch_rows: U16::new(1000),
            columns: U16::new(ALL_COLUMNS),
            filter_bytes: U16::new(filter.len() as u16),
            ranges: U16::new(1),
            flags: U16::new(flags),
            unused: U16::ZERO,
        });
        writer.bytes(filter);
        writer.put(&RangeHead { low_bytes: U16::new(8), high_bytes: U16::new(8) });
        writer.bytes(&first.to_be_bytes()).bytes(&(first + rows).to_be_bytes());
    }
}

fn scans(bench: &mut Bench, name: &str, (count, together): (u64, u64), query: Query<'_>) {
    let mut random = fastrand::Rng::with_seed(7);
    let mut requests = vec![];
    for _ in 0..count / together {
        let mut out = vec![];
        (0..together).for_each(|n| scan(bench, n, random.u64(..ROWS - query.rows), query, &mut out));
        requests.push(out);
    }
    let begun = processor_time();
    let mut answered = 0;
    for request in &requests {
        answered += bench.turns(request);
    }
    let spent = processor_time() - begun;
    let nanos = spent.as_nanos() as f64 / count as f64;
    println!(
        "scan of {} rows, {name}, {together} in a turn: {:.2} us, {:.1} ns a row, {} bytes answered",
        query.rows,
        nanos / 1e3,
        nanos / query.rows as f64,
        answered as u64 / count
    );
}

fn changes(bench: &mut Bench, name: &str, kind: OperationKind, keys: &[u64]) {
    let mut requests = vec![];
    for chunk in keys.chunks(128) {
        let mut out = vec![];
        bench.writes(kind, chunk, &mut out);
        requests.push(out);
    }
    let begun = processor_time();
    for request in &requests {
        bench.turn(request);
    }
    let spent = processor_time() - begun;
    println!("{name}: {:.1} ns a row", spent.as_nanos() as f64 / keys.len() as f64);
}

fn build(bench: &mut Bench) {
    for data_manager in bench.executor.host_mut().data_managers_mut() {
        data_manager.begin_index_build(TABLE, &index());
    }
    let (begun, mut turns) = (processor_time(), 0u32);
    loop {
        bench.turn(&[]);
        turns += 1;
        let managers = bench.executor.host_mut().data_managers_mut();
        if is_built(managers) {
            break;
        }
    }
    let spent = processor_time() - begun;
    let entries: u64 =
        bench.executor.host().data_managers().iter().map(|d| d.memory().ordered_index_bytes).sum();
    println!(
        "build: {:.0} rows a second, {:.1} us a turn of eight slices, {:.1} bytes an entry",
        ROWS as f64 / spent.as_secs_f64(),
        spent.as_secs_f64() * 1e6 / f64::from(turns),
        entries as f64 / ROWS as f64
    );
}

/// A condition on a number that no row fulfils.
fn filter() -> Vec<u8> {
    let column = Expression::Column(ColumnId(0));
    let never = Expression::Constant(Constant::Unsigned(1 << 40));
    let condition = Expression::Compare(Comparison::Equal, Box::new(column), Box::new(never));
    let mut bytes = vec![];
    encode(&Expression::And(vec![condition]), &[], &mut bytes).expect("it is short");
    bytes
}

fn is_built(managers: &mut [vinga_datamanager::DataManager]) -> bool {
    for data_manager in &mut *managers {
        if let Some(built) = data_manager.take_built_index() {
            built.result.expect("there is memory");
        }
    }
    managers.iter().all(vinga_datamanager::DataManager::is_at_rest)
}

fn main() {
    let mut bench = Bench::new(vec![]);
    let mut keys: Vec<u64> = (0..ROWS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    changes(&mut bench, "insert without an index", OperationKind::Insert, &keys);
    changes(&mut bench, "update without an index", OperationKind::Update, &keys);
    build(&mut bench);
    // Which no row fulfils.
    let filter = filter();
    for together in [1, 16] {
        let all = Query { rows: RANGE, flags: 0, filter: &[] };
        scans(&mut bench, "all sent", (SCANS, together), all);
        scans(&mut bench, "sent with keys", (SCANS, together), Query { flags: RANGE_KEYS, ..all });
        let filtered = Query { flags: RANGE_KEYS, filter: &filter, ..all };
        scans(&mut bench, "filtered", (SCANS, together), filtered);
        scans(&mut bench, "filtered", (LONG.1, together), Query { rows: LONG.0, ..filtered });
    }
    changes(&mut bench, "update beside an index", OperationKind::Update, &keys);
    changes(&mut bench, "delete with an index", OperationKind::Delete, &keys);
    changes(&mut bench, "insert with an index", OperationKind::Insert, &keys);
    println!("at rest: {}", bench.executor.host().is_at_rest());
}
