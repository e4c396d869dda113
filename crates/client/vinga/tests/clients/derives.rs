//! Structs as rows and as definitions of tables, and the calls for many rows.

use std::time::{Duration, SystemTime};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, IndexKind, Lock, ReadRow, Record, Result, TableRow, Update, WriteRow};
use vinga_datanode::LocalNode;

#[derive(Clone, Debug, PartialEq, WriteRow, ReadRow, TableRow)]
#[vinga(table = "shop.order", index(by_customer(customer, at)), unique(number_of_day(day, r#type)))]
struct Order {
    #[vinga(key)]
    id: u64,
    #[vinga(key)]
    part: i8,
    #[vinga(index)]
    customer: u32,
    at: SystemTime,
    took: Option<Duration>,
    day: vinga::value::Date,
    r#type: u16,
    #[vinga(name = "text", column_type = ColumnType::Text)]
    remark: Option<String>,
    picture: Vec<u8>,
    hash: [u8; 16],
    is_paid: bool,
    weight: f32,
    #[vinga(skip)]
    seen: bool,
}

fn order(id: u64) -> Order {
    Order {
        id,
        part: -1,
        customer: id as u32 % 3,
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_000 + id),
        took: id.is_multiple_of(2).then(|| Duration::from_millis(id)),
        day: vinga::value::Date::new(2026, 11, 23),
        r#type: id as u16,
        remark: (id == 1).then(|| "first".into()),
        picture: vec![id as u8; 3],
        hash: [7; 16],
        is_paid: id > 3,
        weight: 0.5,
        seen: false,
    }
}

/// A row of any key, which is borrowed: written, not read.
#[derive(WriteRow)]
struct Line<'a, K, const N: usize> {
    id: K,
    text: &'a str,
    code: [u8; N],
}

vinga::row! {
    struct Named<'a> {
        id: u64,
        text: &'a str,
        code: [u8; 2],
    }
}

vinga::row! {
    #[derive(Debug, PartialEq)]
    pub(crate) struct Text<T> {
        text: T,
    }
}

fn start() -> Result<(LocalNode, Cluster)> {
    let node = LocalNode::start().expect("a node starts");
    let cluster = Cluster::connect(node.address())?;
    Ok((node, cluster))
}

#[test]
fn a_struct_is_a_table() -> Result<()> {
    let (_node, cluster) = start()?;
    let orders = cluster.open_table::<Order>()?;
    let definition = orders.definition();
    let columns: Vec<String> = definition
        .columns
        .iter()
        .map(|c| format!("{} {}{}", c.name, c.column_type, if c.nullable { " null" } else { "" }))
        .collect();
    assert_eq!(
        columns.join(", "),
        "id bigint unsigned, part tinyint, customer int unsigned, at timestamp(6), took time(6) null, day date, \
         type smallint unsigned, text text null, picture varbinary(255), hash binary(16), is_paid tinyint unsigned, \
         weight float"
    );
    let indexes: Vec<(&str, IndexKind)> =
        definition.indexes.iter().map(|i| (i.name.as_str(), i.kind)).collect();
    let expected = [
        ("customer", IndexKind::Ordered),
        ("by_customer", IndexKind::Ordered),
        ("number_of_day", IndexKind::Unique),
    ];
    assert_eq!(indexes, expected);

    cluster.insert(&orders, &order(1))?;
    cluster.write(&orders, &Order { seen: true, ..order(2) })?;
    assert_eq!(cluster.get(&orders, (1u64, -1i8))?, Some(order(1)));
    assert_eq!(cluster.get(&orders, (2, -1))?, Some(order(2)), "what is skipped is not kept");
    // It is there by now, for others as well.
    let same = cluster.open_table::<Order>()?;
    assert_eq!(same.core().id(), orders.core().id());
    assert_eq!(cluster.create_table_if_missing(Order::new_table())?.core().id(), orders.core().id());
    let wrong = vinga::NewTable::new("shop.order").column("other", ColumnType::I8).primary_key(&["other"]);
    assert_eq!(cluster.create_table(wrong).unwrap_err().code(), ErrorCode::TableExists);
    let now = SystemTime::now();
    cluster.update(&orders, (1, -1), &Update::new().set("at", now))?;
    let kept = cluster.get(&orders, (1, -1))?.expect("it is there").at;
    assert!(now.duration_since(kept).expect("it is cut, not rounded") < Duration::from_micros(1));
    Ok(())
}

#[test]
fn rows_borrow_and_are_generic() -> Result<()> {
    let (_node, cluster) = start()?;
    let table = vinga::NewTable::new("d.line")
        .column("id", ColumnType::U64)
        .column("text", ColumnType::varchar(20))
        .column("code", ColumnType::Binary { bytes: 2 })
        .primary_key(&["id"]);
    let lines = cluster.create_table(table)?;
    let text = String::from("one");
    cluster.insert(&lines, &Line { id: 1u8, text: &text, code: *b"ab" })?;
    cluster.insert_many(
        &lines,
        [Line { id: 2i64, text: "two", code: *b"cd" }, Line { id: 3, text: "three", code: *b"ef" }],
    )?;
    cluster.insert(&lines, &Named { id: 4, text: &text, code: [0, 1] })?;
    let texts = lines.rows::<Text<String>>()?;
    assert_eq!(cluster.get(&texts, 2)?, Some(Text { text: "two".to_owned() }));
    Ok(())
}

#[test]
fn many_rows_are_added_and_removed_together() -> Result<()> {
    let (_node, cluster) = start()?;
    let orders = cluster.open_table::<Order>()?;
    cluster.insert_many(&orders, (0..3000).map(order))?;
    let error = cluster.insert_many(&orders, [order(5000), order(17), order(5001)]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    assert!(error.to_string().contains("id 17"), "{error}");
    assert_eq!(cluster.get(&orders, (5000, -1))?, None, "all or none");

    assert_eq!(cluster.delete_matching(&orders, |scan| scan.index("customer").prefix(1u32))?, 1000);
    assert_eq!(cluster.scan(&orders, |scan| scan.index("customer").prefix(1u32))?.count(), 0);
    // Of a selection as well, and what the transaction has added itself.
    let some = orders.select(&["is_paid"])?;
    let mut tx = cluster.begin()?;
    tx.insert(&orders, &Order { customer: 2, ..order(7000) })?;
    assert_eq!(tx.delete_matching(&some, |scan| scan.index("customer").prefix(2u32))?, 1001);
    tx.roll_back()?;
    assert_eq!(cluster.delete_matching(&some, |scan| scan.limit(1500))?, 1500);
    assert_eq!(cluster.delete_matching(&some, |scan| scan)?, 500);
    assert_eq!(cluster.delete_matching(&some, |scan| scan)?, 0);
    Ok(())
}

#[derive(Debug)]
enum OwnError {
    Refused,
    Vinga(vinga::Error),
}

impl From<vinga::Error> for OwnError {
    fn from(error: vinga::Error) -> Self {
        OwnError::Vinga(error)
    }
}

/// Two transactions that wait for each other: one of them is tried again, whatever its errors are wrapped in.
#[test]
fn work_with_errors_of_its_own_is_tried_again() -> Result<()> {
    let (_node, cluster) = start()?;
    let orders = cluster.open_table::<Order>()?;
    cluster.insert_many(&orders, (0..2).map(order))?;
    let meeting = std::sync::Barrier::new(2);
    let attempts = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for first in 0..2u64 {
            let (cluster, orders, meeting, attempts) = (&cluster, &orders, &meeting, &attempts);
            scope.spawn(move || {
                let mut is_first_attempt = true;
                let done: Result<(), OwnError> = cluster.try_run(|tx| {
                    attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tx.read_locked(orders, (first, -1), Lock::Exclusive)?;
                    if std::mem::take(&mut is_first_attempt) {
                        meeting.wait();
                    }
                    tx.read_locked(orders, (1 - first, -1), Lock::Exclusive)?;
                    tx.update(orders, (first, -1), &Update::new().add("customer", 1))?;
                    Ok(())
                });
                done.expect("the one that was rolled back is tried again");
            });
        }
    });
    assert!(attempts.into_inner() >= 3, "they have waited for each other");

    // What is not temporary is passed on, and undone.
    let refused: Result<(), OwnError> = cluster.try_run(|tx| {
        tx.delete(&orders, (0, -1))?;
        Err(OwnError::Refused)
    });
    assert!(matches!(refused, Err(OwnError::Refused)));
    let failed: Result<Option<Record>, OwnError> = cluster.try_run(|tx| {
        tx.insert(&orders, &order(0))?;
        Ok(None)
    });
    assert!(matches!(failed, Err(OwnError::Vinga(error)) if error.code() == ErrorCode::DuplicateKey));
    // An error of ours that is temporary is known in a box, too.
    let mut attempts = 0;
    let boxed: Result<u32, Box<dyn std::error::Error + Send + Sync>> = cluster.try_run(|_| {
        attempts += 1;
        if attempts < 3 { Err(vinga::Error::new(ErrorCode::Overloaded).into()) } else { Ok(attempts) }
    });
    assert_eq!(boxed.expect("it was tried again"), 3);
    assert!(cluster.get(&orders, (0, -1))?.is_some());
    Ok(())
}
