//! The blocking face against a real data node.

use crate::support::proxy::Proxy;
use crate::support::{assert_nothing_left, start_node};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::value::{Date, Decimal};
use vinga::{
    ColumnType, ConnectOptions, ErrorCode, InfoTable, Lock, NewTable, ReadBatch, Record, Table, Update,
    Value, WriteBatch,
};
use vinga_datanode::LocalNode;

const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: true };

vinga::row! {
    #[derive(Clone, PartialEq, Debug)]
    struct Person {
        id: i64,
        name: String,
        born: Option<Date>,
        wealth: Option<Decimal>,
    }
}

vinga::row! {
    #[derive(PartialEq, Debug)]
    struct Name {
        name: String,
    }
}

fn people() -> NewTable {
    NewTable::new("test.person")
        .column("id", BIGINT)
        .column("name", ColumnType::VarChar { bytes_max: 50 })
        .nullable_column("born", ColumnType::Date)
        .nullable_column("wealth", ColumnType::Decimal { precision: 12, scale: 2 })
        .primary_key(&["id"])
}

fn person(id: i64) -> Person {
    Person {
        id,
        name: format!("person {id}"),
        born: (id % 3 != 0).then(|| Date::new(1900 + (id % 100) as u16, 1, 31)),
        wealth: (id % 2 == 0).then(|| format!("{}.50", id * 1000).parse().unwrap()),
    }
}

fn start() -> (LocalNode, Cluster, Table<Person>) {
    let node = start_node();
    let (cluster, table) = open(node.address());
    (node, cluster, table)
}

fn open(address: &str) -> (Cluster, Table<Person>) {
    let cluster = Cluster::connect(address).unwrap();
    cluster.create_table(people()).unwrap();
    let table = cluster.table_of::<Person>("test.person").unwrap();
    (cluster, table)
}

/// Number of rows of the table.
fn count(cluster: &Cluster, table: &Table<Person>) -> usize {
    cluster.scan(table, |scan| scan).unwrap().map(Result::unwrap).count()
}

#[test]
fn single_operations() {
    let (_node, cluster, table) = start();
    assert_eq!(cluster.get(&table, 7).unwrap(), None);
    cluster.insert(&table, &person(7)).unwrap();
    assert_eq!(cluster.get(&table, 7i64).unwrap(), Some(person(7)));
    let error = cluster.insert(&table, &person(7)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    cluster.update(&table, 7, &Update::new().set("name", "other").set("born", None::<Date>)).unwrap();
    let changed = cluster.get(&table, 7).unwrap().unwrap();
    assert_eq!((changed.name.as_str(), changed.born), ("other", None));
    cluster.write(&table, &person(7)).unwrap();
    assert_eq!(cluster.get(&table, 7).unwrap(), Some(person(7)));
    let check = Update::new().when("name", "=", "somebody").unwrap().set("name", "x");
    assert_eq!(cluster.update(&table, 7, &check).unwrap_err().code(), ErrorCode::ConditionFailed);
    cluster.delete(&table, 7).unwrap();
    assert_eq!(cluster.delete(&table, 7).unwrap_err().code(), ErrorCode::NoSuchRow);
}

#[test]
fn errors_are_named_before_anything_is_sent() {
    let (_node, cluster, table) = start();
    let message = |result: vinga::Result<()>| result.unwrap_err().to_string();
    assert_eq!(
        message(cluster.insert(&table, &[("id", 1)])),
        "error 20012 (Usage): The row does not fit the table's columns. \
         (column 'name' of test.person: it has no value and can't be NULL)"
    );
    let long = [("id", Value::from(1)), ("name", "x".repeat(60).into())];
    assert!(message(cluster.insert(&table, &long)).contains("60 bytes are too long for varchar(50)"));
    let missing = message(cluster.insert(&table, &[("nome", "x")]));
    assert!(missing.contains("has no column 'nome'; it has id, name, born, wealth"), "{missing}");
    let text = cluster.get(&table, "seven").unwrap_err().to_string();
    assert!(text.contains("column 'id' of test.person: a text does not fit the type bigint"), "{text}");
    let pair = cluster.get(&table, (1, 2)).unwrap_err().to_string();
    assert!(pair.contains("2 values; the primary key of test.person has 1 columns"), "{pair}");
    let filter = table.column("name").unwrap().less_than(5);
    let error = cluster.scan(&table, |scan| scan.filter(filter)).err().unwrap();
    assert_eq!(error.code(), ErrorCode::BadProgram, "{error}");
    let key = message(cluster.update(&table, 1, &Update::new().set("id", 2)));
    assert!(key.contains("belongs to the primary key"), "{key}");
    assert_eq!(cluster.table("test.nothing").unwrap_err().code(), ErrorCode::NoSuchTable);
    assert!(cluster.table_of::<Person>("test.person").is_ok());
}

#[test]
fn records_by_name() {
    let (_node, cluster, typed) = start();
    let table = cluster.table("test.person").unwrap();
    let row = Record::new([
        ("id", Value::from(3)),
        ("name", "Ada".into()),
        ("born", Date::new(1815, 12, 10).into()),
    ]);
    cluster.insert(&table, &row).unwrap();
    let read = cluster.get(&table, 3).unwrap().unwrap();
    assert_eq!((&read["name"], &read["BORN"]), (&"Ada".into(), &Date::new(1815, 12, 10).into()));
    assert_eq!(read.to_string(), "id=3 name=Ada born=1815-12-10 wealth=NULL");
    let some = cluster.get(&table.select(&["born", "id"]).unwrap(), 3).unwrap().unwrap();
    assert_eq!(some.to_string(), "born=1815-12-10 id=3");
    assert_eq!(some.get("name"), None);
    let names = typed.rows::<Name>().unwrap();
    assert_eq!(cluster.get(&names, 3).unwrap(), Some(Name { name: "Ada".into() }));
}

#[test]
fn many_rows_at_once() {
    let (_node, cluster, table) = start();
    let mut writes = WriteBatch::new();
    (0..500).for_each(|id| writes.insert(&table, &person(id)).unwrap());
    let writes = cluster.start_writes(writes).unwrap().wait();
    assert_eq!(writes.endings().filter(Result::is_ok).count(), 500);
    let rows = cluster.get_many(&table, (0..600).rev()).unwrap();
    assert_eq!(rows.len(), 600);
    for (id, row) in (0..600).rev().zip(rows) {
        assert_eq!(row, (id < 500).then(|| person(id)));
    }
    // Several batches under way, asked from time to time.
    let mut tickets: Vec<_> = (0..4)
        .map(|start| {
            let mut reads = ReadBatch::new(&table);
            (start..500).step_by(4).for_each(|id| reads.push(id).unwrap());
            (start, Some(cluster.start_reads(reads).unwrap()))
        })
        .collect();
    while tickets.iter().any(|(_, ticket)| ticket.is_some()) {
        cluster.drive(Duration::from_millis(10));
        for (start, place) in &mut tickets {
            let Some(ticket) = place else { continue };
            let Some(reads) = ticket.try_finish() else { continue };
            *place = None;
            for (index, row) in reads.rows().enumerate() {
                assert_eq!(row.unwrap(), Some(person(*start + 4 * index as i64)));
            }
        }
    }
}

#[test]
fn transactions() {
    let (_node, cluster, table) = start();
    let mut tx = cluster.begin().unwrap();
    (0..10).for_each(|id| {
        tx.insert(&table, &person(id)).unwrap();
    });
    assert_eq!(tx.read(&table, 4).unwrap(), Some(person(4)), "it sees its own changes");
    assert_eq!(cluster.get(&table, 4).unwrap(), None, "others do not");
    assert_eq!(tx.read(&table, 5).unwrap(), Some(person(5)), "directly, too");
    let savepoint = tx.savepoint();
    tx.delete(&table, 4).unwrap();
    assert_eq!(tx.read_locked(&table, 4, Lock::Exclusive).unwrap(), None);
    tx.roll_back_to(savepoint).unwrap();
    assert_eq!(tx.read(&table, 4).unwrap(), Some(person(4)));
    tx.set_lenient(true);
    let fails = tx.delete(&table, 99).unwrap();
    let works = tx.delete(&table, 9).unwrap();
    tx.execute().unwrap();
    assert_eq!(tx.result(fails).unwrap_err().code(), ErrorCode::NoSuchRow);
    assert!(tx.result(works).is_ok());
    let rows = tx.scan(&table, |scan| scan).unwrap().count();
    assert_eq!(rows, 9);
    let reading = tx.define_read(&table, 3, Lock::Shared).unwrap();
    let committed = tx.commit().unwrap();
    assert_eq!(committed.row(&reading).unwrap(), Some(person(3)));
    assert!(committed.epoch().0 > 0);
    assert_eq!(cluster.get(&table, 4).unwrap(), Some(person(4)));

    let mut tx = cluster.begin().unwrap();
    tx.delete(&table, 1).unwrap();
    tx.insert(&table, &person(2)).unwrap();
    let error = tx.execute().unwrap_err();
    assert_eq!((error.code(), error.operation().unwrap().0), (ErrorCode::DuplicateKey, 2));
    assert_eq!(tx.execute().unwrap_err().code(), ErrorCode::TransactionAborted);
    drop(tx);
    let mut tx = cluster.begin().unwrap();
    tx.delete(&table, 1).unwrap();
    tx.execute().unwrap();
    drop(tx);
    assert_eq!(cluster.get(&table, 1).unwrap(), Some(person(1)));
    let mut tx = cluster.begin().unwrap();
    tx.delete(&table, 1).unwrap();
    tx.roll_back().unwrap();
    assert_eq!(cluster.get(&table, 1).unwrap(), Some(person(1)));
    assert_nothing_left(&cluster);
}

#[test]
fn a_locking_read_of_a_missing_row_is_no_error() {
    let (_node, cluster, table) = start();
    cluster.insert(&table, &person(1)).unwrap();
    for lock in [Lock::None, Lock::Shared, Lock::Exclusive] {
        let mut tx = cluster.begin().unwrap();
        assert_eq!(tx.read_locked(&table, 7, lock).unwrap(), None, "as its first operation");
        assert_eq!(tx.read_locked(&table, 1, lock).unwrap(), Some(person(1)));
        let missing = tx.define_read(&table, 8, lock).unwrap();
        tx.update(&table, 1, &Update::new().set("name", "x")).unwrap();
        tx.delete(&table, 1).unwrap();
        let deleted = tx.define_read(&table, 1, lock).unwrap();
        tx.execute().unwrap();
        assert_eq!((tx.row(&missing).unwrap(), tx.row(&deleted).unwrap()), (None, None));
        // Nobody holds what is not there.
        cluster.insert(&table, &person(8)).unwrap();
        tx.insert(&table, &person(1)).unwrap();
        let last = tx.define_read(&table, 9, lock).unwrap();
        let committed = tx.commit().unwrap();
        assert_eq!(committed.row(&last).unwrap(), None);
        // The whole transaction is one read.
        let mut tx = cluster.begin().unwrap();
        let only = tx.define_read(&table, 7, lock).unwrap();
        assert_eq!(tx.commit().unwrap().row(&only).unwrap(), None);
        cluster.delete(&table, 8).unwrap();
    }
    assert_nothing_left(&cluster);
}

#[test]
fn scans_and_filters() {
    let (_node, cluster, table) = start();
    let mut writes = WriteBatch::new();
    (0..1000).for_each(|id| writes.insert(&table, &person(id)).unwrap());
    cluster.start_writes(writes).unwrap().wait();
    let mut all: Vec<Person> = cluster.scan(&table, |scan| scan).unwrap().map(Result::unwrap).collect();
    all.sort_by_key(|person| person.id);
    assert_eq!(all, (0..1000).map(person).collect::<Vec<_>>());
    let old =
        table.column("born").unwrap().less_than(table.constant("born", &Date::new(1910, 1, 1)).unwrap());
    let found: Vec<Person> = cluster
        .scan(&table, |scan| scan.filter(old).filter(table.column("id").unwrap().at_least(500)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let expected = (500..1000).filter(|id| id % 3 != 0 && id % 100 < 10).count();
    assert_eq!(found.len(), expected);
    let ids = table.rows::<Name>().unwrap();
    assert_eq!(cluster.scan(&ids, |scan| scan.limit(17).batch_rows(2)).unwrap().count(), 17);
    let mut scan = cluster.scan(&table, |scan| scan.batch_rows(5)).unwrap();
    assert!(scan.next().unwrap().is_ok());
    drop(scan);
    assert_nothing_left(&cluster);
    let mut bytes = cluster.scan(&table, |scan| scan).unwrap();
    let mut count = 0;
    while let Some(batch) = bytes.next_batch().unwrap() {
        count += batch.bytes().count();
    }
    assert_eq!(count, 1000);
}

#[test]
fn dictionary_and_information() {
    let (_node, cluster, _) = start();
    for n in 0..5 {
        cluster
            .create_table(NewTable::new(format!("test.t{n}")).column("id", BIGINT).primary_key(&["id"]))
            .unwrap();
    }
    assert_eq!(
        cluster.tables().unwrap(),
        ["test.person", "test.t0", "test.t1", "test.t2", "test.t3", "test.t4"]
    );
    let stale = cluster.table("test.t1").unwrap();
    cluster.drop_table("test.t1").unwrap();
    let error = cluster.get(&stale, 1).unwrap_err();
    assert!(matches!(error.code(), ErrorCode::NoSuchTable | ErrorCode::StaleTable), "{error}");
    let error = cluster.create_table(people()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TableExists);
    let error = cluster.create_table(NewTable::new("x").column("id", BIGINT)).unwrap_err();
    assert!(error.to_string().contains("write 'database.table'"), "{error}");
    let info = cluster.info(InfoTable::Threads).unwrap();
    assert_eq!((&info.columns[..2], info.rows.len()), (&["node_id".to_owned(), "thread".to_owned()][..], 2));
}

#[test]
fn many_threads_share_a_cluster() {
    let (_node, cluster, table) = start();
    let cluster = Arc::new(cluster);
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let (cluster, table) = (Arc::clone(&cluster), table.clone());
            thread::spawn(move || {
                for n in 0..200 {
                    let id = thread * 1000 + n;
                    cluster.insert(&table, &person(id)).unwrap();
                    assert_eq!(cluster.get(&table, id).unwrap(), Some(person(id)));
                    if n % 10 == 0 {
                        let mut tx = cluster.begin().unwrap();
                        assert_eq!(tx.read_locked(&table, id, Lock::Exclusive).unwrap(), Some(person(id)));
                        tx.update(&table, id, &Update::new().set("name", "x")).unwrap();
                        tx.commit().unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(count(&cluster, &table), 1600);
    assert_nothing_left(&cluster);
}

#[test]
fn it_connects_again() {
    let node = start_node();
    let network = Proxy::before(node.address());
    let (cluster, table) = open(network.address());
    cluster.insert(&table, &person(1)).unwrap();
    for round in 0..5 {
        network.break_connections();
        let begin = Instant::now();
        let row = loop {
            match cluster.get(&table, 1) {
                Ok(row) => break row,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            thread::sleep(Duration::from_millis(1));
            assert!(
                begin.elapsed() < Duration::from_secs(180),
                "round {round}: {:?}",
                cluster.get(&table, 1)
            );
        };
        assert_eq!(row, Some(person(1)));
        cluster.run(|tx| tx.insert(&table, &person(10 + round)).map(|_| ())).unwrap();
    }
    assert_eq!(count(&cluster, &table), 6);
    assert_nothing_left(&cluster);
}

#[test]
fn nobody_listens() {
    let begin = Instant::now();
    let error = Cluster::connect("127.0.0.1:1").err().unwrap();
    assert_eq!(error.code(), ErrorCode::ClusterFailure);
    assert!(error.to_string().contains("can't connect to 127.0.0.1:1"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(180));
    assert!(Cluster::connect(" , ").is_err());
}

#[test]
fn some_addresses_may_be_dead_or_the_same() {
    let (node, first, table) = start();
    first.insert(&table, &person(1)).unwrap();
    let address = node.address();
    for addresses in
        [format!("127.0.0.1:1,{address}"), format!("{address}, 127.0.0.1:1"), format!("{address},{address}")]
    {
        let options = ConnectOptions::new().spin(Duration::from_micros(20));
        let cluster = Cluster::connect_with(&addresses, options).unwrap();
        assert_ne!(cluster.node(), first.node());
        let table = cluster.table_of::<Person>("test.person").unwrap();
        for _ in 0..100 {
            assert_eq!(cluster.get(&table, 1).unwrap(), Some(person(1)));
            thread::sleep(Duration::from_micros(500));
        }
        let connected = cluster.endpoints().iter().filter(|endpoint| endpoint.is_connected).count();
        assert_eq!(connected, 1, "{addresses}");
    }
}

#[test]
fn retries_until_it_works() {
    let (_node, cluster, table) = start();
    let mut attempts = 0;
    let value = cluster
        .run(|tx| {
            attempts += 1;
            tx.write(&table, &person(attempts))?;
            if attempts < 4 { Err(ErrorCode::Deadlock.into()) } else { Ok(attempts) }
        })
        .unwrap();
    assert_eq!((value, attempts), (4, 4));
    assert_eq!(cluster.get_many(&table, 1..=4).unwrap().iter().flatten().count(), 1);
    let error = cluster.run(|_| Err::<(), _>(ErrorCode::NoSuchRow.into())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchRow);
    let begin = Instant::now();
    let error = cluster.run(|_| Err::<(), _>(ErrorCode::Overloaded.into())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded);
    assert!(begin.elapsed() > Duration::from_millis(500), "it has paused in between");
}
