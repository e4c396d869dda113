//! Schema changes through the public interface, on a real data node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{
    ColumnId, ColumnType, Direction, ErrorCode, IndexDefinition, IndexKind, NewTable, OrderColumn, Record,
    SchemaEventKind, SchemaNews, TableDefinition, Update,
};
use vinga_datanode::LocalNode;

fn connect(node: &LocalNode) -> Cluster {
    Cluster::connect(node.address()).expect("the node is up")
}

fn new_table(name: &str) -> TableDefinition {
    NewTable::new(name)
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("n", ColumnType::Integer { bytes: 8, signed: false })
        .primary_key(&["id"])
        .finish()
        .expect("it is allowed")
}

fn row(id: u64, n: u64) -> Record {
    Record::new([("id", id.into()), ("n", vinga::Value::from(n))])
}

fn index(id: u16, name: &str, column: u16, kind: IndexKind) -> IndexDefinition {
    let column = OrderColumn { column: ColumnId(column), direction: Direction::Ascending };
    IndexDefinition { id, name: name.into(), columns: vec![column], kind }
}

#[test]
fn tables_are_renamed_truncated_and_altered() {
    let node = LocalNode::start().expect("a node starts");
    let (one, other) = (connect(&node), connect(&node));
    let old = one.create_table(new_table("d.t")).expect("it is new");
    one.insert(&old, &row(1, 10)).expect("it is new");

    let renamed = one.rename_table("d.t", "e.u").expect("the name is free");
    assert_eq!((renamed.name(), renamed.core().id()), ("e.u", old.core().id()));
    assert_eq!(renamed.core().birth(), old.core().birth());
    assert_eq!(other.get(&other.table("e.u").unwrap(), 1u64).unwrap().unwrap()["n"], 10u64.into());
    // Who holds the old definition is refused, whatever it wants.
    assert_eq!(one.get(&old, 1u64).unwrap_err().code(), ErrorCode::StaleTable);
    assert_eq!(one.insert(&old, &row(2, 0)).unwrap_err().code(), ErrorCode::StaleTable);
    let scanned = one.scan(&old, |scan| scan).and_then(|mut rows| rows.next().expect("an error"));
    assert_eq!(scanned.unwrap_err().code(), ErrorCode::StaleTable);
    assert_eq!(one.table("d.t").unwrap_err().code(), ErrorCode::NoSuchTable);

    let mut definition = renamed.definition().clone();
    definition.attachment = vec![7; 50_000];
    definition.columns[1].name = "number".into();
    definition.indexes.push(index(1, "by_n", 1, IndexKind::Ordered));
    let altered = one.alter_table(&renamed, definition.clone()).expect("it fits");
    assert_eq!(one.get(&altered, 1u64).unwrap().unwrap()["number"], 10u64.into());
    assert_eq!(*other.table("e.u").unwrap().definition(), definition);
    assert_eq!(one.alter_table(&renamed, definition.clone()).unwrap_err().code(), ErrorCode::StaleTable);

    // A unique index of a table with rows is made by copying; of an empty one it is made at once.
    definition.indexes.push(index(2, "u", 1, IndexKind::Unique));
    let refused = one.alter_table(&altered, definition.clone()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NotSupportedYet);
    one.update(&altered, 1u64, &Update::new().set("number", 11u64)).expect("all is as before");
    let truncated = one.truncate_table("e.u").expect("it is there");
    assert_ne!(truncated.core().birth(), altered.core().birth());
    assert_eq!(one.get(&altered, 1u64).unwrap_err().code(), ErrorCode::StaleTable);
    assert_eq!(one.scan(&truncated, |scan| scan).unwrap().count(), 0);
    let unique = one.alter_table(&truncated, definition).expect("it is empty");
    let hidden = unique.core().unique_table(2).expect("it has one");
    assert_eq!(hidden.definition().columns.len(), 2);
    assert_eq!(one.tables().unwrap(), ["e.u"]);

    let mut definition = unique.definition().clone();
    definition.columns[1].nullable = true;
    assert_eq!(one.alter_table(&unique, definition).unwrap_err().code(), ErrorCode::NotSupportedYet);
    one.drop_table("e.u").expect("it is there");
    assert_eq!(one.databases().unwrap(), ["d", "e"]);
}

#[test]
fn databases_come_and_go() {
    let node = LocalNode::start().expect("a node starts");
    let cluster = connect(&node);
    cluster.create_database("shop", b"utf8").expect("it is new");
    assert_eq!(cluster.create_database("shop", b"").unwrap_err().code(), ErrorCode::DatabaseExists);
    cluster.alter_database("shop", b"latin1").expect("it is there");
    let shop = cluster.database("shop").expect("it is there");
    assert_eq!((shop.name.as_str(), shop.attachment.as_slice()), ("shop", &b"latin1"[..]));
    // One of other letters is another.
    assert_eq!(cluster.database("Shop").unwrap_err().code(), ErrorCode::NoSuchDatabase);
    cluster.create_database("Shop", b"").expect("it is new");
    cluster.create_table(new_table("Shop.Item")).expect("it is new");
    cluster.create_table(new_table("Shop.item")).expect("it is new");
    assert_eq!(cluster.databases().unwrap(), ["Shop", "shop"]);
    cluster.create_table(new_table("shop.item")).expect("it is new");
    let error = cluster.drop_database("shop").unwrap_err();
    assert_eq!(error.code(), ErrorCode::DatabaseNotEmpty);
    assert!(error.to_string().contains("'shop.item' is in it"), "{error}");
    cluster.drop_table("shop.item").expect("it is there");
    cluster.drop_database("shop").expect("it is empty");
    assert_eq!(cluster.database("shop").unwrap_err().code(), ErrorCode::NoSuchDatabase);
    assert_eq!(cluster.create_database("a.b", b"").unwrap_err().code(), ErrorCode::BadTableDefinition);
}

#[test]
fn the_schema_lock_is_handed_on() {
    let node = LocalNode::start().expect("a node starts");
    let (one, other) = (connect(&node), connect(&node));
    let held = one.schema_lock("ALTER TABLE t", Duration::from_secs(1)).expect("it is free");
    assert!(held.is_held());
    let error = other.schema_lock("DROP", Duration::from_millis(20)).err().expect("it is held");
    assert_eq!(error.code(), ErrorCode::SchemaLockTimeout);
    let text = error.to_string();
    assert!(text.contains(&format!("client {}", one.node())) && text.contains("ALTER TABLE t"), "{text}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.schema_lock("DROP", Duration::from_secs(180)));
        thread::sleep(Duration::from_millis(20));
        drop(held);
        let lock = waiting.join().expect("no panic").expect("it is free now");
        // Whoever has it goes: the next gets it.
        let third = connect(&node);
        let next = scope.spawn(move || third.schema_lock("next", Duration::from_secs(180)).map(|_| ()));
        thread::sleep(Duration::from_millis(20));
        drop(lock);
        next.join().expect("no panic").expect("it is free now");
    });
}

#[test]
fn a_fence_keeps_others_from_changing_rows() {
    let node = LocalNode::start().expect("a node starts");
    let (one, other) = (connect(&node), connect(&node));
    let table = one.create_table(new_table("d.t")).expect("it is new");
    let theirs = other.table("d.t").expect("it is there");
    // What the other has begun is ended before the write fence is granted.
    let mut open = other.begin().unwrap();
    open.write(&theirs, &row(1, 1)).unwrap();
    open.execute().unwrap();
    let fence = one.fence_table(&table).expect("nobody else has one");
    assert_eq!(open.commit().err().map(|error| error.code()), Some(ErrorCode::SchemaBusy));
    one.insert(&table, &row(1, 1)).expect("it is mine");
    let mut transaction = other.begin().unwrap();
    transaction.write(&theirs, &row(1, 2)).unwrap();
    assert_eq!(transaction.execute().unwrap_err().code(), ErrorCode::SchemaBusy);
    drop(transaction);
    assert_eq!(other.get(&theirs, 1u64).unwrap().unwrap()["n"], 1u64.into());
    thread::scope(|scope| {
        let begun = Instant::now();
        let waiting = scope.spawn(|| other.write(&theirs, &row(1, 3)));
        thread::sleep(Duration::from_millis(50));
        fence.lift().expect("connected");
        waiting.join().expect("no panic").expect("single operations try again");
        assert!(begun.elapsed() > Duration::from_millis(50));
    });
    // Dropping it lifts it, too.
    drop(one.fence_table(&table).expect("nobody has one"));
    other.write(&theirs, &row(1, 4)).expect("the data node knows soon");
}

#[test]
fn a_copy_takes_the_place_of_its_table() {
    let node = LocalNode::start().expect("a node starts");
    let (one, other) = (connect(&node), connect(&node));
    let old = one.create_table(new_table("d.t")).expect("it is new");
    one.insert(&old, &row(1, 1)).unwrap();
    let theirs = other.table("d.t").expect("it is there");
    let fence = one.fence_table(&old).expect("nobody else has one");
    let copy = one.create_table(new_table("d.copy")).expect("it is new");
    one.insert(&copy, &row(1, 10)).unwrap();
    let stale = |result: vinga::Result<vinga::Table>| result.map(|_| ()).map_err(|error| error.code());
    // A write fence of somebody else, or of another table, is none.
    let mine = other.create_table(new_table("d.mine")).expect("it is new");
    let of_mine = other.fence_table(&mine).expect("nobody else has one");
    assert_eq!(stale(other.rename_copy("d.copy", "d.t", &of_mine)), Err(ErrorCode::TableExists));
    assert_eq!(stale(one.rename_copy("d.copy", "d.t", &of_mine)), Err(ErrorCode::StaleTable));
    let new = one.rename_copy("d.copy", "d.t", &fence).expect("it is fenced");
    assert_eq!((new.name(), new.core().id()), ("d.t", copy.core().id()));
    assert_eq!(one.tables().unwrap().iter().filter(|name| name.starts_with("d.")).count(), 2);
    assert_eq!(other.get(&theirs, 1u64).unwrap_err().code(), ErrorCode::StaleTable);
    let theirs = other.table("d.t").expect("it is there");
    assert_eq!(other.get(&theirs, 1u64).unwrap().unwrap()["n"], 10u64.into());
    // The write fence went with the table that was replaced.
    other.write(&theirs, &row(1, 11)).expect("nobody has fenced it");
    let again = one.create_table(new_table("d.copy")).expect("the name is free");
    assert_eq!(stale(one.rename_copy("d.copy", "d.t", &fence)), Err(ErrorCode::StaleTable));
    assert_eq!(again.name(), "d.copy");
}

#[test]
fn the_requester_waits_until_subscribers_have_confirmed() {
    let node = LocalNode::start().expect("a node starts");
    let (one, other) = (connect(&node), connect(&node));
    assert_ne!(one.incarnation(), 0);
    let mut events = other.schema_events().expect("it is the first");
    let (first, news) = events.next();
    assert_eq!(news, SchemaNews::Everything { incarnation: one.incarnation() });
    events.confirm(first);
    let is_confirmed = AtomicBool::new(false);
    thread::scope(|scope| {
        let requester = scope.spawn(|| {
            one.create_table(new_table("d.t")).expect("it is new");
            assert!(is_confirmed.load(Ordering::SeqCst));
        });
        let kinds: Vec<_> = (0..2)
            .map(|_| {
                let (id, SchemaNews::Changed(event)) = events.next() else { panic!("nothing was missed") };
                thread::sleep(Duration::from_millis(30));
                is_confirmed.store(event.kind == SchemaEventKind::CreateTable, Ordering::SeqCst);
                events.confirm(id);
                (event.kind, event.name, event.by)
            })
            .collect();
        let by = one.node().0;
        assert_eq!(
            kinds,
            [
                (SchemaEventKind::CreateDatabase, "d".into(), by),
                (SchemaEventKind::CreateTable, "d.t".into(), by)
            ]
        );
        requester.join().expect("no panic");
    });
    // The requester is not awaited, but notified; who has gone is not awaited either.
    other.rename_table("d.t", "d.u").expect("it is there");
    let (id, SchemaNews::Changed(event)) = events.next() else { panic!("nothing was missed") };
    assert_eq!((event.name.as_str(), event.new_name.as_str(), event.by), ("d.t", "d.u", other.node().0));
    events.confirm(id);
    drop(events);
    one.drop_table("d.u").expect("it is there");
    assert_eq!(
        other.schema_events().unwrap().next_within(Duration::from_secs(180)).map(|(_, news)| news),
        Some(news)
    );
}

/// Writers go on while the table is altered again and again; each acknowledged write is there at the end.
#[test]
fn nothing_is_lost_under_load() {
    let node = LocalNode::start().expect("a node starts");
    let one = connect(&node);
    let mut table = one.create_table(new_table("d.t")).expect("it is new");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (node, is_over) = (&node, &is_over);
                scope.spawn(move || {
                    let cluster = connect(node);
                    let find = || ["d.t", "d.u"].iter().find_map(|name| cluster.table(name).ok());
                    let mut table = find();
                    let mut written = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let Some(known) = &table else {
                            table = find();
                            continue;
                        };
                        match cluster.insert(known, &row(written << 8 | writer, 0)) {
                            Ok(()) => written += 1,
                            Err(error) if error.code() == ErrorCode::StaleTable => table = None,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    written
                })
            })
            .collect();
        for round in 0..40 {
            // Writers get their turn on a busy machine, too.
            thread::sleep(Duration::from_millis(10));
            let (from, to) = if round % 2 == 0 { ("d.t", "d.u") } else { ("d.u", "d.t") };
            table = one.rename_table(from, to).expect("it is there");
            let mut definition = table.definition().clone();
            definition.attachment = vec![round; 10];
            table = one.alter_table(&table, definition).expect("nobody else changes it");
        }
        is_over.store(true, Ordering::Relaxed);
        let written: u64 = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
        assert!(written > 0);
        assert_eq!(one.scan(&table, |scan| scan).unwrap().count() as u64, written);
    });
}
