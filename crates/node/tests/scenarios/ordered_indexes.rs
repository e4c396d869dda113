//! Ordered indexes of whole data nodes: kept with random changes, and scanned while they change.

use crate::support::ranges::{Ask, Found, key_of};
use crate::support::{
    ALL, BY_NUMBER, BY_TEXT, Cluster, Op, Received, Row, Setup, TC, committed, dm, open, row, strict,
};
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind};
use vinga_base::{ColumnId, NodeId, PartitionId, TransactionId};
use vinga_wire::ErrorCode;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

/// Texts with much in common, of all lengths.
const TEXTS: [Option<&str>; 8] = [
    None,
    Some(""),
    Some("b"),
    Some("eight by"),
    Some("a text that begins like others do"),
    Some("a text that begins like others do, 1"),
    Some("a text that begins like others do, 22"),
    Some("\u{1}\0"),
];

fn random_row(random: &mut fastrand::Rng, key: u64) -> Row {
    let text = random.choice(TEXTS).expect("there are texts").map(String::from);
    Row(key, random.i64(-3..12), text)
}

/// What a scan of one partition must find: what a scan of the same rows without an index finds, sorted.
fn expected(c: &mut Cluster, partition: PartitionId, ask: &Ask) -> Vec<(u16, Vec<u8>, Row)> {
    let rows = c.scan_partition(partition, ask.node, ask.viewer);
    let mut expected = vec![];
    for (range, (low, high)) in ask.ranges.iter().enumerate() {
        let mut of_range: Vec<(Vec<u8>, Row)> = rows
            .iter()
            .map(|row| (key_of(c, ask.index, row), row.clone()))
            .filter(|(key, _)| key >= low && (high.is_empty() || key < high))
            .collect();
        of_range.sort_by(|left, right| left.0.cmp(&right.0));
        if ask.descending {
            of_range.reverse();
        }
        expected.extend(of_range.into_iter().map(|(key, row)| (range as u16, key, row)));
    }
    if ask.limit > 0 {
        expected.truncate(ask.limit as usize);
    }
    expected
}

/// Compares a range scan with what it must find; rows with equal keys may come in any order of their own.
fn compare(c: &mut Cluster, partition: PartitionId, ask: &Ask, what: &str) -> Vec<Found> {
    let found = c.ranges_of(partition, ask).unwrap_or_else(|code| panic!("{what}: {code}"));
    let expected = expected(c, partition, ask);
    let of = |found: &Found| (found.range, found.key.clone());
    assert_eq!(
        found.iter().map(of).collect::<Vec<_>>(),
        expected.iter().map(|(range, key, _)| (*range, key.clone())).collect::<Vec<_>>(),
        "{what}: {ask:?}"
    );
    for pair in found.windows(2) {
        let (left, right) = (&pair[0], &pair[1]);
        let is_ascending = left.id < right.id;
        assert!(
            of(left) != of(right) || is_ascending != ask.descending,
            "{what}: rows of a key are in order"
        );
    }
    let limited = ask.limit > 0;
    let mut rows: Vec<&Row> = found.iter().map(|found| &found.row).collect();
    let mut expected: Vec<&Row> = expected.iter().map(|(_, _, row)| row).collect();
    rows.sort_by_key(|row| row.0);
    expected.sort_by_key(|row| row.0);
    assert!(limited || rows == expected, "{what}: {rows:?} instead of {expected:?}");
    for found in &found {
        assert_eq!(key_of(c, ask.index, &found.row), found.key, "{what}: a row comes under its key");
    }
    found
}

fn random_ask(c: &Cluster, random: &mut fastrand::Rng) -> Ask {
    let index = random.choice([BY_NUMBER, BY_TEXT]).expect("two indexes");
    let mut bound = || match random.u8(..4) {
        0 => vec![],
        1 => (0..random.usize(..10)).map(|_| random.u8(..)).collect(),
        _ => {
            let row = random_row(random, 0);
            key_of(c, index, &row)
        }
    };
    let ranges = (0..3).map(|_| (bound(), bound())).collect::<Vec<_>>();
    let count = 1 + random.usize(..3);
    Ask {
        index,
        ranges: ranges[..count].to_vec(),
        descending: random.bool(),
        viewer: None,
        batch: random.choice([1, 2, 7, 100]).expect("four"),
        limit: if random.u8(..4) == 0 { random.u32(1..6) } else { 0 },
        behind: None,
        node: None,
    }
}

fn check_indexes(c: &Cluster, what: &str) {
    for node in c.live_nodes() {
        for data_manager in c.node(node).data_managers() {
            data_manager.inspect_indexes().unwrap_or_else(|error| panic!("{what}, node {node}: {error}"));
        }
    }
}

/// A transaction of the random test: each has keys of its own, so that it waits only for what is held back.
struct Open {
    id: TransactionId,
    slot: u64,
    next: u32,
}

const SLOTS: u64 = 3;

fn play(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let nodes = random.u8(1..=3);
    let read_backup = random.bool();
    let mut c = Cluster::with(&Setup { nodes, read_backup, ..Setup::default() });
    let mut transactions: Vec<Open> = vec![];
    let mut may_kill = nodes > 1 && random.bool();
    for step in 0..60 {
        let what = format!("seed {seed}, step {step}");
        match random.u8(..20) {
            0..=9 => {
                let slot = random.u64(..SLOTS);
                let at = transactions.iter().position(|open| open.slot == slot);
                let ops: Vec<(Op, bool)> = (0..1 + random.usize(..4))
                    .map(|_| {
                        let key = slot + SLOTS * random.u64(..12);
                        let row = random_row(&mut random, key);
                        let op = match random.u8(..8) {
                            0 | 1 => Op::Insert(row),
                            2 | 3 => Op::Write(row),
                            4 => Op::Add(key, random.i64(-2..3)),
                            5 | 6 => Op::SetText(key, TEXTS[1 + random.usize(..7)].expect("a text")),
                            _ => Op::Delete(key),
                        };
                        (op, true)
                    })
                    .collect();
                match at {
                    None => {
                        let id = c.begin();
                        let commits = random.bool();
                        let flags = if commits { ALL } else { FLAG_START };
                        c.batch(id, flags, 1, &ops);
                        if !commits {
                            transactions.push(Open { id, slot, next: 1 + ops.len() as u32 });
                        }
                    }
                    Some(at) => {
                        let open = &mut transactions[at];
                        c.batch(open.id, 0, open.next, &ops);
                        open.next += ops.len() as u32;
                    }
                }
            }
            10 | 11 if !transactions.is_empty() => {
                let at = random.usize(..transactions.len());
                let open = transactions.swap_remove(at);
                let flags = if random.u8(..3) > 0 { FLAG_COMMIT } else { FLAG_ROLLBACK };
                c.batch(open.id, flags, open.next, &[]);
            }
            12 | 13 if !transactions.is_empty() => {
                let at = random.usize(..transactions.len());
                let open = &mut transactions[at];
                let from = random.u32(1..=open.next);
                c.batch_with(open.id, FLAG_ROLLBACK_TO, open.next, from, &[]);
                open.next += 1;
            }
            14 if nodes > 1 => c.hold(TC, dm(random.u8(2..=nodes), random.u16(..2))),
            15 => {
                for node in c.live_nodes() {
                    (0..2).for_each(|instance| c.release(TC, dm(node, instance)));
                }
            }
            16 if may_kill && c.live_nodes().len() > 1 => {
                may_kill = false;
                let nodes = c.live_nodes();
                c.kill(nodes[nodes.len() - 1]);
                // Transactions that were open may be gone.
                for open in transactions.drain(..) {
                    c.batch(open.id, FLAG_ROLLBACK, open.next, &[]);
                }
            }
            _ => {
                let mut ask = random_ask(&c, &mut random);
                if read_backup && random.bool() {
                    let nodes = c.live_nodes();
                    ask.node = Some(nodes[random.usize(..nodes.len())]);
                }
                if let Some(open) = transactions.first().filter(|_| random.bool()) {
                    ask.viewer = Some((open.id, random.u32(1..=open.next)));
                }
                let partitions = c.partitions();
                let partition = partitions[random.usize(..partitions.len())];
                c.received();
                let found = compare(&mut c, partition, &ask, &what);
                if ask.limit == 0 && !found.is_empty() {
                    // A scan that begins behind one of the rows finds the rest.
                    let at = random.usize(..found.len());
                    ask.behind = Some(found[at].clone());
                    assert_eq!(c.ranges_of(partition, &ask).as_deref(), Ok(&found[at + 1..]), "{what}");
                }
            }
        }
        c.received();
        check_indexes(&c, &what);
    }
    for open in transactions {
        c.batch(open.id, FLAG_COMMIT, open.next, &[]);
    }
    for node in c.live_nodes() {
        (0..2).for_each(|instance| c.release(TC, dm(node, instance)));
    }
    // What waits for a lock still, or was refused because an earlier batch was not answered, ends with its API node.
    c.api_is_gone();
    for node in c.live_nodes() {
        for data_manager in c.node(node).data_managers() {
            let rest = data_manager.describe_rest();
            assert!(data_manager.is_at_rest(), "seed {seed}: node {node}: {rest}");
        }
    }
    check_indexes(&c, "at rest");
    let replicas: Vec<_> = c.live_nodes().into_iter().map(|node| c.contents(node)).collect();
    replicas.windows(2).for_each(|pair| assert_eq!(pair[0], pair[1], "seed {seed}: replicas differ"));
}

#[test]
fn indexes_follow_random_changes() {
    (0..150).for_each(play);
}

#[test]
fn ranges_come_in_order_and_in_batches() {
    let mut c = Cluster::new(1);
    for first in (1..400).step_by(10) {
        let ops: Vec<Op> = (first..first + 10).map(|key| Op::Insert(row(key, key as i64 % 97))).collect();
        c.at_once(&ops);
    }
    for partition in c.partitions() {
        for batch in [1, 3, 500] {
            for descending in [false, true] {
                let ask = Ask { batch, descending, ..Ask::numbers(10, 60) };
                let found = compare(&mut c, partition, &ask, "numbers");
                assert!(found.len() > 30);
                compare(&mut c, partition, &Ask { limit: 7, ..ask }, "limited numbers");
                let both = [Ask::numbers(50, 60), Ask::numbers(5, 20)].map(|ask| ask.ranges[0].clone());
                let ask = Ask { ranges: both.to_vec(), batch, descending, ..Ask::all(BY_NUMBER) };
                compare(&mut c, partition, &ask, "two ranges");
                compare(&mut c, partition, &Ask { batch, descending, ..Ask::all(BY_TEXT) }, "texts");
            }
        }
    }
}

#[test]
fn what_is_no_range_scan_is_refused() {
    let mut c = Cluster::new(1);
    let partition = c.partitions()[0];
    let refused = |c: &mut Cluster, ask: &Ask| c.ranges_of(partition, ask).map(|_| ());
    assert_eq!(refused(&mut c, &Ask::all(9)), Err(ErrorCode::NoSuchIndex));
    assert_eq!(refused(&mut c, &Ask { batch: 0, ..Ask::all(1) }), Err(ErrorCode::MalformedSignal));
    assert_eq!(refused(&mut c, &Ask { ranges: vec![], ..Ask::all(1) }), Err(ErrorCode::MalformedSignal));
    let many = vec![(vec![], vec![]); 1025];
    assert_eq!(refused(&mut c, &Ask { ranges: many, ..Ask::all(1) }), Err(ErrorCode::MalformedSignal));
    let behind = Found { row: row(1, 1), id: 0, range: 1, key: vec![] };
    let ask = Ask { behind: Some(behind), ..Ask::all(1) };
    assert_eq!(refused(&mut c, &ask), Err(ErrorCode::MalformedSignal));
    assert!(c.is_at_rest());
}

/// The memory runs out while entries are made: the operation is refused and nothing is left of it.
#[test]
fn a_full_memory_refuses_changes_and_leaves_indexes_whole() {
    let mut c = Cluster::new(2);
    let mut refused = 0;
    'fill: for first in 1.. {
        let long = "x".repeat(40);
        for key in first * 20..first * 20 + 20 {
            let received =
                c.at_once(&[Op::Insert(Row(key, (key * 7919 % 10_007) as i64, Some(long.clone())))]);
            if received != [committed(1)] {
                assert!(
                    matches!(received[..], [Received::Refuse { code: ErrorCode::DataMemoryFull, .. }]),
                    "{received:?}"
                );
                refused += 1;
            }
            if refused > 60 {
                break 'fill;
            }
        }
    }
    check_indexes(&c, "full");
    let found = c.ranges(&Ask { batch: 1000, ..Ask::all(BY_NUMBER) }).expect("it can be scanned");
    for row in found.iter().take(200) {
        // Changes of all kinds, some of which need memory that is not there.
        c.at_once(&[Op::Add(row.0, 20_000)]);
        c.at_once(&[Op::SetText(row.0, "another"), Op::Add(row.0, -50_000)]);
    }
    check_indexes(&c, "full");
    for row in &found {
        assert_eq!(c.at_once(&[Op::Delete(row.0)]), [committed(1)]);
    }
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
    check_indexes(&c, "empty");
    for node in c.live_nodes() {
        for data_manager in c.node(node).data_managers() {
            assert_eq!(data_manager.memory().rows, 0);
        }
    }
}

/// A backup that takes over scans what it was hiding.
#[test]
fn a_promoted_backup_scans_by_the_new_keys() {
    let mut c = Cluster::with(&Setup::default());
    let keys: Vec<u64> = c.keys_at(2).take(2).collect();
    c.at_once(&[Op::Insert(row(keys[0], 1)), Op::Insert(row(keys[1], 5))]);
    c.hold(TC, dm(3, 1));
    assert_eq!(c.at_once(&[Op::Add(keys[0], 9), Op::Delete(keys[1])]), [committed(1)]);
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Add(keys[0], 90)]));
    assert_eq!(c.received(), [open(1)]);
    c.kill(2);
    c.received();
    assert_eq!(c.ranges(&Ask::numbers(0, 200)), Ok(vec![row(keys[0], 10)]));
    check_indexes(&c, "promoted");
    assert_eq!(c.owner_of(keys[0]).node(), NodeId(3));
    c.forget_all_outcomes();
}

/// Builds an index of the test table at a node and says how that ended, data manager by data manager.
fn build(c: &mut Cluster, node: u8, id: u16, column: u16) -> Vec<Result<(), ErrorCode>> {
    let index = IndexDefinition {
        id,
        name: format!("index {id}"),
        columns: vec![OrderColumn { column: ColumnId(column), direction: Direction::Descending }],
        kind: IndexKind::Ordered,
    };
    let (table, _) = c.table();
    for data_manager in c.node_mut(node).data_managers_mut() {
        data_manager.begin_index_build(table, &index);
    }
    c.run();
    let managers = c.node_mut(node).data_managers_mut();
    let built =
        managers.iter_mut().map(|data_manager| data_manager.take_built_index().expect("it has ended"));
    built
        .map(|built| {
            assert_eq!((built.table, built.index), (table, id));
            built.result
        })
        .collect()
}

#[test]
fn an_index_is_built_over_rows_that_are_there() {
    let mut c = Cluster::new(2);
    for first in (1..600).step_by(10) {
        let ops: Vec<Op> = (first..first + 10).map(|key| Op::Insert(row(key, key as i64 % 57))).collect();
        assert_eq!(c.at_once(&ops), [committed(1)]);
    }
    for key in (1..600).step_by(7) {
        c.at_once(&[Op::Delete(key)]);
    }
    for node in [1, 2] {
        assert_eq!(build(&mut c, node, 7, 2), [Ok(()), Ok(())]);
    }
    check_indexes(&c, "built");
    // It goes with the rows from now on.
    c.at_once(&[Op::SetText(2, "changed"), Op::Delete(3), Op::Insert(row(1, 5))]);
    check_indexes(&c, "changed");
    let whole = c.ranges(&Ask::all(7)).expect("it can be scanned");
    assert_eq!(whole.len(), c.scan(None, 100).expect("it can be scanned").len());
    // Another one is built and dropped again.
    let before: Vec<u64> = ordered_bytes(&c);
    assert_eq!(build(&mut c, 1, 8, 0), [Ok(()), Ok(())]);
    let (table, _) = c.table();
    for data_manager in c.node_mut(1).data_managers_mut() {
        data_manager.drop_index(table, 8);
        data_manager.drop_index(table, 9);
    }
    c.run();
    assert_eq!(c.ranges(&Ask { node: None, ..Ask::all(8) }), Err(ErrorCode::NoSuchIndex));
    assert_eq!(ordered_bytes(&c), before);
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

fn ordered_bytes(c: &Cluster) -> Vec<u64> {
    let of_node = |node| c.node(node).data_managers().iter().map(|d| d.memory().ordered_index_bytes);
    c.live_nodes().into_iter().flat_map(of_node).collect()
}

#[test]
fn a_build_waits_for_what_is_not_complete() {
    let mut c = Cluster::new(2);
    c.at_once(&[Op::Insert(row(1, 1)), Op::Insert(row(2, 1))]);
    c.hold(TC, dm(2, 0));
    c.hold(TC, dm(2, 1));
    let keys: Vec<u64> = c.keys_at(1).take(2).collect();
    c.at_once(&[Op::Write(row(keys[0], 5)), Op::Write(row(keys[1], 5))]);
    let index = IndexDefinition {
        id: 5,
        name: "later".into(),
        columns: vec![OrderColumn { column: ColumnId(1), direction: Direction::Ascending }],
        kind: IndexKind::Ordered,
    };
    let (table, _) = c.table();
    for data_manager in c.node_mut(2).data_managers_mut() {
        data_manager.begin_index_build(table, &index);
    }
    c.run();
    let built = |c: &mut Cluster| {
        let managers = c.node_mut(2).data_managers_mut();
        managers.iter_mut().filter_map(vinga_datamanager::DataManager::take_built_index).count()
    };
    let at_first = built(&mut c);
    assert!(at_first < 2, "one of them has a hidden version");
    c.release(TC, dm(2, 0));
    c.release(TC, dm(2, 1));
    assert_eq!(at_first + built(&mut c), 2);
    check_indexes(&c, "built");
}

#[test]
fn a_build_without_memory_leaves_nothing() {
    let mut c = Cluster::new(1);
    let mut key = 0;
    loop {
        key += 1;
        // Rows without entries in the present indexes that are worth their size.
        let received = c.at_once(&[Op::Insert(Row(key, 0, None))]);
        if received != [committed(1)] {
            break;
        }
    }
    let before = ordered_bytes(&c);
    let refused = Err(ErrorCode::DataMemoryFull);
    assert!(build(&mut c, 1, 7, 0).contains(&refused));
    let (table, _) = c.table();
    for data_manager in c.node_mut(1).data_managers_mut() {
        data_manager.drop_index(table, 7);
    }
    c.run();
    assert_eq!(ordered_bytes(&c), before);
    check_indexes(&c, "as before");
}

#[test]
fn statistics_tell_how_much_is_where() {
    let mut c = Cluster::new(1);
    for first in (0..2000).step_by(20) {
        let ops: Vec<Op> =
            (first..first + 20).map(|key| Op::Insert(Row(key, key as i64 % 50, Some("t".into())))).collect();
        assert_eq!(c.at_once(&ops), [committed(1)]);
    }
    let numbers = |low, high| Ask::numbers(low, high).ranges[0].clone();
    let ranges = [numbers(0, 49), numbers(10, 19), numbers(60, 70), (vec![9], vec![1]), (vec![], vec![])];
    let (mut rows, mut all) = ([0; 5], 0);
    for partition in c.partitions() {
        let (entries, distinct, of_ranges) =
            c.statistics(partition, BY_NUMBER, &ranges).expect("there is one");
        all += entries;
        rows.iter_mut().zip(&of_ranges).for_each(|(sum, more)| *sum += more);
        assert!((40..=60).contains(&distinct[0]), "{distinct:?}");
        let (_, distinct, _) = c.statistics(partition, BY_TEXT, &[]).expect("there is one");
        assert!(distinct[0] <= 2 && (40..=60).contains(&distinct[1]), "{distinct:?}");
        // Once more, from what is remembered.
        assert_eq!(c.statistics(partition, BY_TEXT, &[]).expect("there is one").1, distinct);
    }
    assert_eq!((all, rows[2], rows[3]), (2000, 0, 0));
    assert!((1500..=2500).contains(&rows[0]) && (300..=500).contains(&rows[1]), "{rows:?}");
    assert!((1500..=2500).contains(&rows[4]), "{rows:?}");
    assert_eq!(c.statistics(PartitionId(0), 9, &[]), Err(ErrorCode::NoSuchIndex));
    assert_eq!(c.statistics(PartitionId(99), 1, &[]), Err(ErrorCode::Moved));
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}

/// All rows of a table in one partition have one owner, and whoever is asked for another partition of the cluster says
/// so.
#[test]
fn a_table_in_one_partition() {
    let mut c = Cluster::with(&Setup { nodes: 2, unique: true, partitions: 1, ..Setup::default() });
    assert_eq!(c.partitions(), [PartitionId(0)]);
    for key in 1..=50 {
        let new = Row(key, -(key as i64), Some(format!("text {key}")));
        assert_eq!(c.at_once(&[Op::Insert(new)]), [committed(1)]);
        assert_eq!(c.owner_of(key), c.owner_of(1));
    }
    assert_eq!(c.scan(None, 7).expect("it is there").len(), 50);
    let in_order = c.ranges(&Ask::all(BY_NUMBER)).expect("it is there");
    assert!(in_order.iter().map(|row| row.0).eq((1..=50).rev()));
    assert_eq!(c.check_unique(), 100);
    let other = PartitionId(1);
    let everything = Ask::all(BY_NUMBER);
    assert_eq!(c.try_scan_partition(other), Err(ErrorCode::Moved));
    assert_eq!(c.ranges_of(other, &everything).map(|found| found.len()), Err(ErrorCode::Moved));
    assert_eq!(c.statistics(other, BY_NUMBER, &[]).map(|_| ()), Err(ErrorCode::Moved));
    c.forget_all_outcomes();
    assert!(c.is_at_rest());
}
