//! Operations in bytes: what they have in common with those in values.

use crate::support::start_node;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, OperationKind, ReadBatch, Record, Update, Value, WriteBatch};

fn row(key: f64, unique: f64, n: i64) -> Record {
    Record::new([("k", Value::from(key)), ("u", Value::from(unique)), ("n", n.into())])
}

/// The image of such a row: the key, then the other columns.
fn image(key: f64, unique: f32, n: i64) -> Vec<u8> {
    [&key.to_le_bytes()[..], &unique.to_le_bytes(), &n.to_le_bytes()].concat()
}

#[test]
fn the_two_zeros_are_one_value() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).unwrap();
    let definition = NewTable::new("test.zeros")
        .column("k", ColumnType::Double)
        .column("u", ColumnType::Float)
        .column("n", ColumnType::Integer { bytes: 8, signed: true })
        .primary_key(&["k"])
        .unique_index("by_u", &["u"]);
    let table = cluster.create_table(definition).unwrap();
    let code = |result: Result<(), vinga::Error>| result.map_err(|error| error.code());
    let insert = |image: &[u8]| {
        let mut transaction = cluster.as_async().begin().unwrap();
        transaction.define_encoded(&table, OperationKind::Insert, &[], image).unwrap();
        code(cluster.block_on(transaction.commit()).map(|_| ()))
    };
    for (first, second) in [(0.0, -0.0), (-0.0, 0.0)] {
        assert_eq!(insert(&image(first, 1.0, 5)), Ok(()));
        // By the primary key, in bytes and in values.
        assert_eq!(insert(&image(second, 2.0, 6)), Err(ErrorCode::DuplicateKey));
        assert_eq!(code(cluster.insert(&table, &row(second, 2.0, 6))), Err(ErrorCode::DuplicateKey));
        assert_eq!(cluster.get::<Record>(&table, second).unwrap(), Some(row(0.0, 1.0, 5)));
        let mut reads = ReadBatch::new(&table);
        reads.push_encoded(&second.to_le_bytes()).unwrap();
        reads.push_encoded(&first.to_le_bytes()).unwrap();
        let reads = cluster.start_reads(reads).unwrap().wait();
        assert_eq!(reads.bytes(0).unwrap(), Some(&image(0.0, 1.0, 5)[..]));
        assert_eq!(reads.bytes(1).unwrap(), Some(&image(0.0, 1.0, 5)[..]));
        // By a unique one, also when it is changed.
        let (first, second) = (first as f32, second as f32);
        assert_eq!(insert(&image(1.0, first, 7)), Ok(()));
        assert_eq!(insert(&image(2.0, second, 8)), Err(ErrorCode::DuplicateKey));
        let update = Update::new().set("u", second);
        assert_eq!(code(cluster.update(&table, 0.0, &update)), Err(ErrorCode::DuplicateKey));
        let found: Option<Record> = cluster.get_by(&table, "by_u", second).unwrap();
        assert_eq!(found, Some(row(1.0, 0.0, 7)));
        let mut writes = WriteBatch::new();
        writes.push_encoded(&table, OperationKind::Delete, &f64::from(second).to_le_bytes(), &[]).unwrap();
        writes.push_encoded(&table, OperationKind::Delete, &1.0_f64.to_le_bytes(), &[]).unwrap();
        let writes = cluster.start_writes(writes).unwrap().wait();
        assert!(writes.endings().all(|ending| ending.is_ok()));
    }
    // What is no key or row is refused, as ever.
    let mut reads = ReadBatch::new(&table);
    assert_eq!(reads.push_encoded(&[0; 7]).unwrap_err().code(), ErrorCode::BadKey);
    let mut transaction = cluster.as_async().begin().unwrap();
    let bad = transaction.define_encoded(&table, OperationKind::Insert, &[], &[0; 19]);
    assert_eq!(bad.unwrap_err().code(), ErrorCode::BadRow);
}
