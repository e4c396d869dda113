//! Ordered and unique indexes, on a real data node.

use crate::support::{eventually, left_behind, start_node, start_patient_node};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use vinga::blocking::{Cluster, Transaction};
use vinga::{ColumnType, ErrorCode, Lock, NewTable, Record, Table, Update, Value};

const INT: ColumnType = ColumnType::Integer { bytes: 4, signed: true };

vinga::row! {
    #[derive(Debug, PartialEq, Clone)]
    struct Item {
        id: u64,
        kind: i32,
        size: Option<i32>,
        code: String,
    }
}

fn item(id: u64) -> Item {
    let size = if id % 10 == 9 { None } else { Some((id * 7 % 50) as i32) };
    Item { id, kind: (id % 8) as i32 - 4, size, code: format!("c{id:04}") }
}

fn items(cluster: &Cluster, count: u64) -> Table<Item> {
    cluster
        .create_table(
            NewTable::new("test.item")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("kind", INT)
                .nullable_column("size", INT)
                .column("code", ColumnType::VarChar { bytes_max: 20 })
                .primary_key(&["id"])
                .ordered_index("by_kind", &["kind", "size"])
                .ordered_index("by_id", &["id"])
                .unique_index("code", &["code"]),
        )
        .expect("it is a good table");
    let table = cluster.table_of::<Item>("test.item").expect("it was just made");
    let mut tx = cluster.begin().expect("one is free");
    for id in 0..count {
        tx.insert(&table, &item(id)).expect("it fits");
        if id % 500 == 499 {
            tx.execute().expect("it is new");
        }
    }
    tx.commit().expect("they are new");
    table
}

fn keys(items: &[Item]) -> Vec<(i32, Option<i32>)> {
    items.iter().map(|item| (item.kind, item.size)).collect()
}

#[test]
fn ranges_give_their_rows_in_order() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 2000);
    let all: Vec<Item> = (0..2000).map(item).collect();
    let expect = |wanted: &dyn Fn(&Item) -> bool, descending: bool, limit: usize| {
        let mut rows = keys(&all.iter().filter(|i| wanted(i)).cloned().collect::<Vec<_>>());
        rows.sort();
        if descending {
            rows.reverse();
        }
        rows.truncate(limit);
        rows
    };
    for descending in [false, true] {
        for limit in [0u32, 1, 5, 100, 700] {
            let most = if limit == 0 { usize::MAX } else { limit as usize };
            let read = |request: &dyn Fn(vinga::ScanRequest<Item>) -> vinga::ScanRequest<Item>| {
                let scan = cluster.scan(&table, |scan| {
                    let scan = request(scan.index("by_kind")).in_order();
                    let scan = if descending { scan.descending() } else { scan };
                    if limit > 0 { scan.limit(limit) } else { scan }
                });
                keys(&scan.unwrap().collect::<vinga::Result<Vec<_>>>().unwrap())
            };
            assert_eq!(read(&|scan| scan), expect(&|_| true, descending, most));
            assert_eq!(read(&|scan| scan.prefix(2)), expect(&|i| i.kind == 2, descending, most));
            assert_eq!(
                read(&|scan| scan.between((-1, 10), 1)),
                expect(&|i| (i.kind, i.size) >= (-1, Some(10)) && i.kind <= 1, descending, most)
            );
            assert_eq!(
                read(&|scan| scan.after((0, None::<i32>)).before((0, 31))),
                expect(&|i| i.kind == 0 && i.size.is_some_and(|s| s < 31), descending, most)
            );
            assert_eq!(read(&|scan| scan.from(9)), []);
        }
    }
    // Not in order: the same rows.
    let rows = cluster.scan(&table, |scan| scan.index("by_kind").prefix(3)).unwrap();
    let mut rows = keys(&rows.collect::<vinga::Result<Vec<_>>>().unwrap());
    rows.sort();
    assert_eq!(rows, expect(&|i| i.kind == 3, false, usize::MAX));
    // A filter, and a selection of columns.
    let some = table.select(&["code"]).unwrap().rows::<Record>();
    drop(some);
    let big = table.column("size").unwrap().at_least(40);
    let rows = cluster.scan(&table, |scan| scan.index("by_kind").prefix(1).filter(big).in_order()).unwrap();
    let rows = keys(&rows.collect::<vinga::Result<Vec<_>>>().unwrap());
    assert_eq!(rows, expect(&|i| i.kind == 1 && i.size >= Some(40), false, usize::MAX));
    eventually("no scan is left open", || left_behind(&cluster).is_empty());
}

#[test]
fn several_ranges_say_which_they_are() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 200);
    let range = |low: i32, high: i32| {
        table.index_range("by_kind", Included(&low), Excluded(&high)).expect("they fit")
    };
    let ranges = [range(3, 4), range(-4, -3), range(0, 0), range(3, 4)];
    let request = |scan: vinga::ScanRequest<Item>| {
        ranges.iter().fold(scan.index("by_kind"), vinga::ScanRequest::range).in_order()
    };
    let mut scan = cluster.scan(&table, request).unwrap();
    let mut met = Vec::new();
    while let Some(row) = scan.next() {
        met.push((scan.range(), row.unwrap().kind));
    }
    let mut expected = vec![(0, 3); 25];
    expected.extend(vec![(1, -4); 25]);
    expected.extend(vec![(3, 3); 25]);
    assert_eq!(met, expected);
    let mut batches = cluster.scan(&table, request).unwrap();
    let mut count = 0;
    while let Some(batch) = batches.next_batch().unwrap() {
        count += batch.ranged().filter(|(range, bytes)| *range != 2 && !bytes.is_empty()).count();
    }
    assert_eq!(count, 75);
}

#[test]
fn a_point_of_the_primary_key_asks_one_partition() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 200);
    for id in 0..200u64 {
        let rows = cluster.scan(&table, |scan| scan.index("by_id").prefix(id).in_order()).unwrap();
        assert_eq!(rows.collect::<vinga::Result<Vec<_>>>().unwrap(), [item(id)]);
    }
}

#[test]
fn errors_are_named() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 1);
    let error = |request: fn(vinga::ScanRequest<Item>) -> vinga::ScanRequest<Item>| {
        let error = cluster.scan(&table, request).map(|_| ()).unwrap_err();
        (error.code(), error.to_string())
    };
    let (code, text) = error(|scan| scan.index("by_size"));
    assert_eq!(code, ErrorCode::BadProgram);
    assert!(text.contains("it has by_kind, by_id"), "{text}");
    assert_eq!(error(|scan| scan.from(1)).0, ErrorCode::BadProgram);
    assert_eq!(error(vinga::ScanRequest::in_order).0, ErrorCode::BadProgram);
    assert_eq!(error(|scan| scan.index("by_kind").from((1, 2, 3))).0, ErrorCode::BadKey);
    assert_eq!(error(|scan| scan.index("by_kind").from("x")).0, ErrorCode::BadKey);
    assert_eq!(error(|scan| scan.index("by_kind").from(Value::Null)).0, ErrorCode::BadKey);
    let error = cluster.get_by(&table, "code", Value::Null).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadKey);
    let error = cluster.get_by(&table, "by_kind", 1).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadProgram);
    let mut tx = cluster.begin().unwrap();
    let error = tx.scan_locked(&table, Lock::None, |scan| scan).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadProgram);
}

#[test]
fn a_transaction_scans_its_own_changes_and_locks_what_it_meets() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 400);
    let mut tx = cluster.begin().unwrap();
    tx.update(&table, 5u64, &Update::new().set("kind", 100)).unwrap();
    tx.delete(&table, 3u64).unwrap();
    let plain = tx.scan(&table, |scan| scan.index("by_kind").from(3).in_order()).unwrap();
    let rows: Vec<Item> = plain.collect::<vinga::Result<_>>().unwrap();
    assert_eq!(rows.len(), 50 + 1);
    assert_eq!(rows.last().unwrap().id, 5);
    // Everything moves up, and nothing is met again.
    let mut scan = tx
        .scan_locked(&table, Lock::Exclusive, |scan| scan.index("by_kind").from(-4).to(99).in_order())
        .unwrap();
    let mut met = BTreeMap::new();
    while let Some(row) = scan.next(&mut tx).unwrap() {
        *met.entry(row.id).or_insert(0) += 1;
        tx.update(&table, row.id, &Update::new().add("kind", 8)).unwrap();
    }
    assert_eq!(met.len(), 398);
    assert!(met.values().all(|&times| times == 1));
    // Nobody else gets at them.
    let other = cluster.begin().unwrap();
    let locked = |mut other: Transaction, id: u64| other.read_locked(&table, id, Lock::Shared).map(|_| ());
    assert_eq!(locked(other, 17).unwrap_err().code(), ErrorCode::LockTimeout);
    tx.commit().unwrap();
    let moved = cluster.scan(&table, |scan| scan.index("by_kind").from(4)).unwrap();
    assert_eq!(moved.count(), 399);
    // A limit counts rows that were locked; a full scan with a filter locks, too.
    let mut tx = cluster.begin().unwrap();
    let request = |scan: vinga::ScanRequest<Item>| scan.index("by_kind").descending().in_order().limit(3);
    let rows = tx.scan_locked(&table, Lock::Shared, request).unwrap().collect(&mut tx).unwrap();
    assert_eq!(rows.iter().map(|row| row.kind).collect::<Vec<_>>(), [100, 11, 11]);
    let kind = table.column("kind").unwrap().at_least(100);
    let rows = tx.scan_locked(&table, Lock::Exclusive, |scan| scan.filter(kind)).unwrap();
    assert_eq!(rows.collect(&mut tx).unwrap().len(), 1);
    tx.roll_back().unwrap();
    eventually("no lock is left", || left_behind(&cluster).is_empty());
}

#[test]
fn rows_that_fit_no_longer_are_left_out_and_let_go() {
    let node = start_patient_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 80);
    // The scan has met the rows of kind 0 when one of them is given another.
    let mut changing = cluster.begin().unwrap();
    changing.update(&table, 4u64, &Update::new().set("kind", 50)).unwrap();
    changing.execute().unwrap();
    std::thread::scope(|scope| {
        let scanning = scope.spawn(|| {
            let mut tx = cluster.begin().unwrap();
            let scan =
                tx.scan_locked(&table, Lock::Exclusive, |scan| scan.index("by_kind").prefix(0)).unwrap();
            let rows = scan.collect(&mut tx).unwrap();
            // The row that was left out is free again when the transaction has said so.
            tx.execute().unwrap();
            let update = Update::new().add("kind", 1);
            cluster.update(&table, 4u64, &update).unwrap();
            (rows, tx.commit())
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        changing.commit().unwrap();
        let (rows, _) = scanning.join().unwrap();
        let mut ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..80).filter(|id| id % 8 == 4 && *id != 4).collect::<Vec<u64>>());
    });
    assert_eq!(cluster.get(&table, 4u64).unwrap().unwrap().kind, 51);
    eventually("no lock is left", || left_behind(&cluster).is_empty());
}

#[test]
fn rows_are_found_by_unique_values() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 100);
    assert_eq!(cluster.get_by(&table, "code", "c0042").unwrap(), Some(item(42)));
    assert_eq!(cluster.get_by(&table, "code", "nothing").unwrap(), None);
    let many = cluster.get_many_by(&table, "code", ["c0007", "x", "c0003"]).unwrap();
    assert_eq!(many, [Some(item(7)), None, Some(item(3))]);
    // Columns that the check needs are not given if they were not asked for.
    let sizes: Table<Record> = cluster.table("test.item").unwrap().select(&["size"]).unwrap();
    let row = cluster.get_by(&sizes, "code", "c0042").unwrap().unwrap();
    assert_eq!(row.to_string(), "size=44");
    let mut tx = cluster.begin().unwrap();
    tx.update(&table, 42u64, &Update::new().set("code", "new")).unwrap();
    for lock in [Lock::None, Lock::Shared, Lock::Exclusive] {
        assert_eq!(tx.get_by(&table, "code", "new", lock).unwrap().map(|row| row.id), Some(42));
        assert_eq!(tx.get_by(&table, "code", "c0042", lock).unwrap(), None);
    }
    assert_eq!(cluster.get_by(&table, "code", "c0042").unwrap(), Some(item(42)));
    assert_eq!(tx.get_by(&table, "code", "c0050", Lock::Exclusive).unwrap(), Some(item(50)));
    let mut other = cluster.begin().unwrap();
    let error = other.get_by(&table, "code", "c0050", Lock::Shared).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LockTimeout);
    tx.commit().unwrap();
    assert_eq!(cluster.get_by(&table, "code", "c0042").unwrap(), None);
    eventually("no lock is left", || left_behind(&cluster).is_empty());
}

/// Two rows exchange a code for ever, so exactly one has it at every moment; which, and since which exchange, is
/// written into the row. A search that begins when an exchange is committed and ends before another has begun has one
/// answer only.
#[test]
fn reads_by_unique_values_never_mix_two_states() {
    const TURNS: u64 = 400;
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 2);
    let (begun, committed) = (AtomicU64::new(0), AtomicU64::new(0));
    let update = |code: String, turn: u64| Update::new().set("code", code).set("kind", turn as i32);
    cluster.update(&table, 0u64, &update("c0000".into(), 0)).unwrap();
    let check = |found: Option<Item>, before: u64| {
        let row = found.expect("some row has it at every moment");
        assert_eq!(row.code, "c0000");
        let turn = row.kind as u64;
        assert_eq!(row.id, turn % 2, "the row that has it since that turn");
        let newest = begun.load(Ordering::SeqCst);
        assert!((before..=newest).contains(&turn), "{turn} is not of {before}..={newest}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                let (from, to) = (1 - turn % 2, turn % 2);
                begun.store(turn, Ordering::SeqCst);
                let exchange = |tx: &mut Transaction| {
                    tx.update(&table, from, &update(format!("free{turn}"), turn))?;
                    tx.update(&table, to, &update("c0000".into(), turn)).map(|_| ())
                };
                cluster.run(exchange).unwrap();
                committed.store(turn, Ordering::SeqCst);
            }
        });
        for lock in [Lock::None, Lock::Shared] {
            let (cluster, table, committed, check) = (&cluster, &table, &committed, &check);
            scope.spawn(move || {
                let mut before = 0;
                while before < TURNS {
                    before = committed.load(Ordering::SeqCst);
                    check(cluster.run(|tx| tx.get_by(table, "code", "c0000", lock)).unwrap(), before);
                    let before = committed.load(Ordering::SeqCst);
                    check(cluster.get_by(table, "code", "c0000").unwrap(), before);
                }
            });
        }
    });
    eventually("no lock is left", || left_behind(&cluster).is_empty());
}

#[test]
fn statistics_are_near_the_truth() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 4000);
    let range = table.index_range("by_kind", Included(&0), Unbounded).unwrap();
    let nothing = table.index_range("by_kind", Included(&70), Unbounded).unwrap();
    let known = cluster.index_statistics(&table, "by_kind", &[range, nothing]).unwrap();
    assert!((3900..4100).contains(&known.entries), "{known:?}");
    assert!((6..=12).contains(&known.distinct[0]), "{known:?}");
    assert!((1500..2500).contains(&known.rows[0]) && known.rows[1] < 50, "{known:?}");
    let known = cluster.index_statistics(&table, "by_id", &[]).unwrap();
    assert!((3500..4100).contains(&known.distinct[0]), "{known:?}");
}

#[test]
fn rows_are_read_in_bytes_by_keys_of_a_unique_index() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = cluster.create_table(
        NewTable::new("test.pair")
            .column("id", INT)
            .column("code", ColumnType::VarChar { bytes_max: 20 })
            .column("size", INT)
            .primary_key(&["id"])
            .unique_index("both", &["code", "size"]),
    );
    let table = table.unwrap();
    for id in 0..10i32 {
        let code = format!("c{id}");
        cluster
            .insert(&table, &[("id", Value::from(id)), ("code", code.into()), ("size", (7 * id).into())])
            .unwrap();
    }
    let key = |id: i32| [&[2, 0, b'c', b'0' + id as u8][..], &(7 * id).to_le_bytes()].concat();
    let keys = || vec![key(3), key(8), [&[1, 0, b'c'][..], &[0; 4]].concat()];
    let ids = |rows: Vec<Option<Vec<u8>>>| -> Vec<Option<i32>> {
        let id = |row: Vec<u8>| i32::from_le_bytes(row[..4].try_into().unwrap());
        rows.into_iter().map(|row| row.map(id)).collect()
    };
    let plain = cluster.block_on(cluster.as_async().get_images_by(&table, "both", keys()));
    assert_eq!(ids(plain.unwrap()), [Some(3), Some(8), None]);
    let mut tx = cluster.as_async().begin().unwrap();
    tx.delete(&table, 8).unwrap();
    let locked = cluster.block_on(tx.get_images_by(&table, "both", keys(), Lock::Exclusive));
    assert_eq!(ids(locked.unwrap()), [Some(3), None, None]);
    assert_eq!(
        cluster.update(&table, 3, &Update::new().set("size", 1)).unwrap_err().code(),
        ErrorCode::LockTimeout
    );
    cluster.block_on(tx.roll_back()).unwrap();
    let bad = cluster.block_on(cluster.as_async().get_images_by(&table, "both", vec![vec![1, 2, 3]]));
    assert_eq!(bad.unwrap_err().code(), ErrorCode::BadKey);
}

#[test]
fn changes_that_became_strict_roll_the_transaction_back() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 10);
    let mut tx = cluster.as_async().begin().unwrap();
    tx.set_lenient(true);
    tx.delete(&table, 1).unwrap();
    let missing = tx.delete(&table, 99).unwrap();
    tx.make_strict().unwrap();
    let error = cluster.block_on(tx.execute()).unwrap_err();
    assert_eq!((error.code(), error.operation()), (ErrorCode::NoSuchRow, Some(missing)));
    assert_eq!(cluster.block_on(tx.execute()).unwrap_err().code(), ErrorCode::TransactionAborted);
    assert!(cluster.get(&table, 1).unwrap().is_some());
    // What was executed before stays as it was defined, and what is defined behind it is lenient again.
    let mut tx = cluster.as_async().begin().unwrap();
    tx.set_lenient(true);
    tx.delete(&table, 99).unwrap();
    cluster.block_on(tx.execute()).unwrap();
    tx.make_strict().unwrap();
    tx.delete(&table, 99).unwrap();
    tx.delete(&table, 1).unwrap();
    cluster.block_on(tx.commit()).unwrap();
    assert!(cluster.get(&table, 1).unwrap().is_none());
}

#[test]
fn the_end_of_a_locking_scan_is_found_without_executing() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 200);
    let mut tx = cluster.as_async().begin().unwrap();
    let request = cluster.as_async().scan(&table).index("by_id").from(199u64).in_order();
    let mut scan = cluster.block_on(tx.scan_locked(request, Lock::Exclusive)).unwrap();
    let mut ids = Vec::new();
    while cluster.block_on(scan.find()).unwrap() {
        assert!(cluster.block_on(scan.find()).unwrap(), "asked again");
        let rows = cluster.block_on(scan.next_batch(&mut tx)).unwrap().expect("it was found");
        ids.extend(rows.iter().map(|row| row.unwrap().id));
        tx.update(&table, 0, &Update::new().set("kind", 100)).unwrap();
    }
    assert_eq!(ids, [199]);
    let other = cluster.update(&table, 0, &Update::new().set("kind", 50));
    other.expect("the change of the same row waits to be sent");
    drop(tx);
}

#[test]
fn a_scan_that_expects_few_rows_locks_few() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let table = items(&cluster, 400);
    for in_order in [true, false] {
        let mut tx = cluster.begin().unwrap();
        let request = |scan: vinga::ScanRequest<Item>| match in_order {
            true => scan.index("by_id").in_order(),
            false => scan,
        };
        let mut scan = tx.scan_locked(&table, Lock::Exclusive, request).unwrap();
        scan.expect_rows(3);
        let mut met = BTreeSet::new();
        let mut portions = Vec::new();
        while let Some(rows) = scan.next_batch(&mut tx).unwrap() {
            met.extend(rows.iter().map(|row| row.unwrap().id));
            portions.push(rows.len());
            // Rows of the next portion are free.
            let free = (0..400).rev().find(|id| !met.contains(id));
            if let Some(free) = free.filter(|_| in_order) {
                cluster.update(&table, free, &Update::new().add("kind", 0)).unwrap();
            }
        }
        assert_eq!(met.len(), 400);
        assert_eq!(portions[..2], [3, 9], "{portions:?}");
        for at in 1..portions.len() {
            let before: usize = portions[..at].iter().sum();
            assert!(portions[at] <= 3 * before, "{portions:?}");
        }
        tx.roll_back().unwrap();
    }
    // With a limit beside it.
    let mut tx = cluster.begin().unwrap();
    let request = |scan: vinga::ScanRequest<Item>| scan.index("by_id").in_order().limit(20);
    let mut scan = tx.scan_locked(&table, Lock::Exclusive, request).unwrap();
    scan.expect_rows(3);
    let rows = scan.collect(&mut tx).unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    cluster.update(&table, 20u64, &Update::new().add("kind", 0)).expect("it is not locked");
    tx.roll_back().unwrap();
}
