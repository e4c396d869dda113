//! Native changes of tables that SQL has made: refused, or made right, so that SQL finds each row as it would have made
//! it.

use vinga::blocking::Cluster;
use vinga::sql_rules::{ColumnRules, SortKeys, SqlRules, Values};
use vinga::{
    ColumnDefinition, ColumnId, ColumnType, Direction, ErrorCode, IndexDefinition, IndexKind, Lock,
    OrderColumn, Record, Result, TableDefinition, Update, Value, WriteBatch,
};
use vinga_datanode::LocalNode;

/// `person(id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT)` as a SQL node defines it.
fn person(name: &str, column: ColumnRules, keeps_history: bool) -> TableDefinition {
    let column_of =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    let int = ColumnType::Integer { bytes: 4, signed: true };
    let index = |id, kind| IndexDefinition {
        id,
        name: "name".into(),
        columns: vec![OrderColumn { column: ColumnId(3), direction: Direction::Ascending }],
        kind,
    };
    let rules = SqlRules { columns: vec![ColumnRules::default(), column], keeps_history };
    TableDefinition {
        name: name.into(),
        columns: vec![
            column_of("id", int, false),
            column_of("name", ColumnType::VarChar { bytes_max: 80 }, true),
            column_of("age", int, true),
            column_of("$s1", ColumnType::VarBinary { bytes_max: 200 }, true),
        ],
        primary_key: vec![ColumnId(0)],
        indexes: vec![index(1, IndexKind::Ordered), index(2, IndexKind::Unique)],
        attachment: rules.attachment(b"\x03v01frm"),
        ..TableDefinition::default()
    }
}

fn row(id: i32, name: Option<&str>) -> Record {
    Record::new([("id", Value::from(id)), ("name", name.into()), ("age", 30.into())])
}

#[track_caller]
fn assert_needs_sql<T>(result: Result<T>, words: &[&str]) {
    let Err(error) = result else { panic!("it must be refused") };
    assert_eq!(error.code(), ErrorCode::NeedsSql, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn what_would_need_a_collation_is_refused() -> Result<()> {
    let node = LocalNode::start().expect("a node starts");
    let cluster = Cluster::connect(node.address())?;
    let people = cluster.create_table(person("d.person", ColumnRules::default(), false))?;
    let words = ["table d.person", "column 'name'", "SQL"];

    assert_needs_sql(cluster.insert(&people, &row(1, Some("Ann"))), &words);
    assert_needs_sql(cluster.write(&people, &row(1, Some("Ann"))), &words);
    // NULL is NULL in every collation.
    cluster.insert(&people, &row(1, None))?;
    let rename = Update::new().set("name", "Zed");
    assert_needs_sql(cluster.update(&people, 1, &rename), &words);
    cluster.update(&people, 1, &Update::new().add("age", 1).set("name", None::<String>))?;

    let mut tx = cluster.begin()?;
    assert_needs_sql(tx.insert(&people, &row(2, Some("Bob"))), &words);
    assert_needs_sql(tx.write(&people, &row(2, Some("Bob"))), &words);
    assert_needs_sql(tx.update(&people, 1, &rename), &words);
    tx.update(&people, 1, &Update::new().add("age", 1))?;
    tx.commit()?;
    let mut batch = WriteBatch::new();
    assert_needs_sql(batch.insert(&people, &row(2, Some("Bob"))), &words);
    assert_needs_sql(batch.write(&people, &row(2, Some("Bob"))), &words);
    assert_needs_sql(batch.update(&people, 1, &rename), &words);
    assert!(batch.is_empty(), "what was refused is not in the batch");

    // Hidden columns are not there for users.
    let read = cluster.get(&people, 1)?.expect("it was inserted");
    assert_eq!(read.to_string(), "id=1 name=NULL age=32");
    let hidden = cluster.update(&people, 1, &Update::new().set("$s1", "x")).unwrap_err();
    assert!(hidden.to_string().contains("has no column '$s1'; it has id, name, age"), "{hidden}");
    let hidden = Record::new([("id", Value::from(5)), ("$s1", Value::from("x"))]);
    assert_eq!(cluster.insert(&people, &hidden).unwrap_err().code(), ErrorCode::BadRow);
    let own = vinga::NewTable::new("d.own").column("$x", ColumnType::Date).primary_key(&["$x"]);
    let error = cluster.create_table(own).unwrap_err();
    assert!(error.to_string().contains("names that begin with $ are reserved"), "{error}");
    // A list of values is one of those that users see.
    cluster.insert(&people, &vec![Value::from(7), Value::Null, 1.into()])?;

    // Nor is anything found by values whose sort keys only SQL knows: it would not be found though it is there.
    assert_needs_sql(cluster.get_by(&people, "name", "Ann"), &words);
    assert_needs_sql(cluster.scan(&people, |scan| scan.index("name").prefix("Ann")), &words);
    cluster.delete(&people, 7)?;
    cluster.delete(&people, 1)?;
    Ok(())
}

#[test]
fn sort_keys_of_binary_collations_are_made() -> Result<()> {
    let node = LocalNode::start().expect("a node starts");
    let cluster = Cluster::connect(node.address())?;
    let rules = ColumnRules { sort_keys: SortKeys::PlainPadded, ..ColumnRules::default() };
    let people = cluster.create_table(person("d.person", rules, false))?;
    for (id, name) in [(1, "Ann"), (2, "Bob"), (3, "Cleo")] {
        cluster.insert(&people, &row(id, Some(name)))?;
    }
    let duplicate = cluster.insert(&people, &row(4, Some("Bob  "))).unwrap_err();
    assert_eq!(duplicate.code(), ErrorCode::DuplicateKey);
    cluster.update(&people, 2, &Update::new().set("name", "Zed").add("age", 1))?;
    assert!(cluster.get_by(&people, "name", "Bob")?.is_none());
    assert_eq!(cluster.get_by(&people, "name", "Zed ")?.expect("he was renamed")["id"], 2.into());
    let found = cluster.scan(&people, |scan| scan.index("name").between("B", "Zz").in_order())?;
    let names: Vec<Value> = found.map(|row| Ok(row?["name"].clone())).collect::<Result<_>>()?;
    assert_eq!(names, ["Cleo".into(), "Zed".into()]);
    cluster.run(|tx| {
        let zed = tx.get_by(&people, "name", "Zed", Lock::Exclusive)?.expect("he is there");
        tx.update(&people, zed["id"].clone(), &Update::new().set("name", None::<String>)).map(|_| ())
    })?;
    assert!(cluster.get_by(&people, "name", "Zed")?.is_none());
    Ok(())
}

#[test]
fn what_sql_alone_keeps_is_refused() -> Result<()> {
    let node = LocalNode::start().expect("a node starts");
    let cluster = Cluster::connect(node.address())?;
    let plain = || ColumnRules { sort_keys: SortKeys::PlainPadded, ..ColumnRules::default() };
    let rename = Update::new().set("name", "Zed");

    let checked = ColumnRules { read_by: "CHECK 'short'".into(), ..plain() };
    let table = cluster.create_table(person("d.checked", checked, false))?;
    assert_needs_sql(cluster.insert(&table, &row(1, Some("A"))), &["d.checked", "'name'", "CHECK 'short'"]);
    assert_needs_sql(cluster.update(&table, 1, &rename), &["CHECK 'short'"]);
    let not_there = cluster.update(&table, 1, &Update::new().add("age", 1)).unwrap_err();
    assert_eq!(not_there.code(), ErrorCode::NoSuchRow, "other columns may be changed");

    let generated = ColumnRules { values: Values::Generated, ..plain() };
    let table = cluster.create_table(person("d.generated", generated, false))?;
    assert_needs_sql(cluster.insert(&table, &row(1, None)), &["'name'", "computes"]);
    let table = cluster.create_table(person("d.history", plain(), true))?;
    assert_needs_sql(cluster.insert(&table, &row(1, Some("A"))), &["d.history", "SYSTEM VERSIONING"]);
    assert_needs_sql(cluster.update(&table, 1, &rename), &["SYSTEM VERSIONING"]);
    assert_needs_sql(cluster.delete(&table, 1), &["SYSTEM VERSIONING"]);
    assert_needs_sql(cluster.begin()?.delete(&table, 1), &["SYSTEM VERSIONING"]);
    assert_needs_sql(WriteBatch::new().delete(&table, 1), &["SYSTEM VERSIONING"]);

    let three = Values::Utf8 { char_bytes: 4, chars_max: 3, bytes_max: 12 };
    let table = cluster.create_table(person("d.short", ColumnRules { values: three, ..plain() }, false))?;
    let error = cluster.insert(&table, &row(1, Some("Anna"))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRow);
    assert!(
        error.to_string().contains("column 'name' of d.short: it has 4 characters; 3 are allowed"),
        "{error}"
    );
    cluster.insert(&table, &row(1, Some("äöü")))?;
    assert_eq!(
        cluster.update(&table, 1, &Update::new().set("name", "Zed")).map_err(|error| error.code()),
        Ok(())
    );

    // Rules of a version that is not known are not guessed.
    let mut foreign = person("d.foreign", plain(), false);
    foreign.attachment.truncate(14);
    let table = cluster.create_table(foreign)?;
    assert_needs_sql(cluster.insert(&table, &row(1, None)), &["d.foreign", "another version"]);

    // A table without a primary key of its own.
    let mut keyless = person("d.keyless", plain(), false);
    keyless.columns.push(ColumnDefinition {
        name: "$key".into(),
        column_type: ColumnType::Integer { bytes: 8, signed: false },
        nullable: false,
    });
    keyless.primary_key = vec![ColumnId(4)];
    let table = cluster.create_table(keyless)?;
    assert_needs_sql(cluster.insert(&table, &row(1, None)), &["d.keyless", "no primary key"]);
    assert_needs_sql(cluster.get(&table, 1u64), &["d.keyless", "no primary key"]);
    assert_eq!(cluster.scan(&table, |scan| scan)?.count(), 0);
    Ok(())
}
