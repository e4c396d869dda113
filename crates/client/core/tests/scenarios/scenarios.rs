//! What a client does, one scenario a test, with a scripted node.

use crate::world::{World, definition, image, push_insert, text_of};
use vinga_base::{ColumnId, OperationNumber};
use vinga_client_core::{
    Answer, BatchEnd, OperationBatch, OperationSpec, ReadBatch, Request, RowRef, ScanProgress, ScanSpec,
    Standing, Token, Urgency, WriteBatch,
};
use vinga_testnode::Layout;
use vinga_wire::operation::OperationKind;
use vinga_wire::{ErrorClass, ErrorCode, SignalNumber};

fn world(seed: u64) -> World {
    World::new(Layout { connections: 3, answer_bytes: 100, ..Layout::default() }, seed)
}

/// Sends a batch and waits until it is over.
fn run(world: &mut World, transaction: Token, batch: OperationBatch, end: BatchEnd) -> OperationBatch {
    world.client.send(transaction, batch, end);
    world.run_until_idle();
    world.client.take_operations(transaction).expect("it is over")
}

#[test]
fn many_rows_are_read_in_few_frames() {
    let mut world = world(1);
    let table = world.create("test.t");
    world.load(&table, 0..1000);
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    for key in 0..1100u64 {
        batch.push(&key.to_le_bytes()).unwrap();
    }
    let requests = |world: &World| world.node.handled.get(&(SignalNumber::KeyReadRequest as u16)).copied();
    let token = world.client.read(batch, Urgency::Now).unwrap();
    assert!(world.client.take_read(token).is_none());
    world.run_until_idle();
    assert!((9..=16).contains(&requests(&world).unwrap()), "full frames, then one a partition");
    let batch = world.client.take_read(token).unwrap();
    for key in 0..1000u64 {
        let bytes = batch.row(key as usize).unwrap().unwrap();
        let row = RowRef::new(&table, None, bytes).unwrap();
        assert_eq!(row.get::<u64>(ColumnId(0)).unwrap(), key);
        assert_eq!(row.get::<String>(ColumnId(1)).unwrap(), text_of(key));
    }
    assert!((1000..1100).all(|key| batch.row(key).unwrap().is_none()));
    assert!(world.client.is_at_rest());
    world.client.release_shape(shape);
}

#[test]
fn refused_reads_are_sent_again_for_some_seconds() {
    let mut world = world(3);
    let table = world.create("test.t");
    world.load(&table, 0..300);
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    (0..300u64).for_each(|key| batch.push(&key.to_le_bytes()).unwrap());
    world.node.refuses_reads = 20;
    let token = world.client.read(batch, Urgency::Now).unwrap();
    world.run_until_idle();
    let batch = world.client.take_read(token).expect("the node has room again");
    assert!(batch.rows().all(|row| matches!(row, Ok(Some(_)))));

    world.node.refuses_reads = u32::MAX;
    let token = world.client.read(batch, Urgency::Now).unwrap();
    let abandoned = {
        let mut batch = ReadBatch::new(shape);
        batch.push(&1u64.to_le_bytes()).unwrap();
        world.client.read(batch, Urgency::Now).unwrap()
    };
    world.run_until_idle();
    assert!(world.client.take_read(token).is_none(), "it goes on trying");
    world.client.cancel(abandoned);
    (0..3).for_each(|_| world.run_until_idle());
    let batch = world.client.take_read(token).expect("it has given up");
    assert!(batch.rows().all(|row| row == Err(ErrorCode::Overloaded.into())));
    assert!(world.client.is_at_rest());
    world.client.release_shape(shape);
}

#[test]
fn lone_readers_travel_together() {
    let mut world = world(2);
    let table = world.create("test.t");
    world.load(&table, 0..100);
    let id = [ColumnId(1)];
    let shape = world.client.add_shape(&table, Some(&id), &[]).unwrap();
    let tokens: Vec<Token> = (0..100u64)
        .map(|key| {
            let mut batch = ReadBatch::new(shape);
            batch.push(&key.to_le_bytes()).unwrap();
            let token = world.client.read(batch, Urgency::Gather).unwrap();
            let mut buffer = Vec::new();
            // Nothing is answered in between.
            let _ = world.client.next_output(&mut buffer).map(|_| buffer.clear());
            token
        })
        .collect();
    // What went out before was swallowed by this test; break so that those are asked for again.
    world.break_any();
    world.run_until_idle();
    for token in tokens {
        assert!(world.client.take_read(token).unwrap().row(0).unwrap().is_some());
    }
    let tokens: Vec<Token> = (0..100u64)
        .map(|key| {
            let mut batch = ReadBatch::new(shape);
            batch.push(&key.to_le_bytes()).unwrap();
            world.client.read(batch, Urgency::Gather).unwrap()
        })
        .collect();
    let request = SignalNumber::KeyReadRequest as u16;
    let before = world.node.handled.get(&request).copied().unwrap_or(0);
    world.run_until_idle();
    let frames = world.node.handled[&request] - before;
    assert!(frames <= 8, "{frames} frames");
    for (key, token) in tokens.into_iter().enumerate() {
        let batch = world.client.take_read(token).unwrap();
        let row = RowRef::new(&table, Some(&id), batch.row(0).unwrap().unwrap()).unwrap();
        assert_eq!(row.get::<String>(ColumnId(1)).unwrap(), text_of(key as u64));
    }
    assert!(world.client.is_at_rest());
}

#[test]
fn a_transaction_reads_writes_and_undoes() {
    let mut world = world(3);
    let table = world.create("test.t");
    world.load(&table, 0..10);
    let transaction = world.client.begin().unwrap();
    let key = |key: u64| key.to_le_bytes();
    let mut batch = OperationBatch::default();
    let read = batch.push(&OperationSpec::new(&table, OperationKind::ReadExclusive, &key(3), &[])).unwrap();
    let none = batch.push(&OperationSpec::new(&table, OperationKind::ReadCommitted, &key(77), &[])).unwrap();
    let missing = key(77);
    let delete = OperationSpec::new(&table, OperationKind::Delete, &missing, &[]);
    let fails = batch.push(&OperationSpec { error_is_local: true, ..delete }).unwrap();
    let inserted = image(&table, 50, "own");
    batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &inserted)).unwrap();
    let mut batch = run(&mut world, transaction, batch, BatchEnd::Open);
    assert_eq!(batch.standing().unwrap(), Standing::Open);
    assert_eq!(batch.result(read).unwrap().unwrap(), image(&table, 3, &text_of(3)));
    assert_eq!(batch.result(none), Ok(None));
    assert_eq!(batch.result(fails), Err(ErrorCode::NoSuchRow.into()));
    // A direct read sees its own change, another's does not.
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let read_50 = |world: &mut World, within: Option<OperationNumber>| {
        let mut batch = ReadBatch::new(shape);
        batch.push(&key(50)).unwrap();
        let token = match within {
            Some(operation) => world.client.read_within(transaction, operation, batch).unwrap(),
            None => world.client.read(batch, Urgency::Now).unwrap(),
        };
        world.run_until_idle();
        let batch = world.client.take_read(token).unwrap();
        batch.row(0).unwrap().map(<[u8]>::to_vec)
    };
    assert_eq!(read_50(&mut world, Some(batch.next_number())), Some(inserted.clone()));
    assert_eq!(read_50(&mut world, None), None);
    // Undone from there on, and again.
    batch.clear();
    let savepoint = batch.next_number();
    assert_eq!(savepoint, OperationNumber(5));
    batch.push(&OperationSpec::new(&table, OperationKind::Delete, &key(3), &[])).unwrap();
    let mut batch = run(&mut world, transaction, batch, BatchEnd::Open);
    batch.clear();
    batch.roll_back_to(savepoint);
    batch.push(&OperationSpec::new(&table, OperationKind::Delete, &key(4), &[])).unwrap();
    batch.roll_back_to(OperationNumber(6));
    batch.push(&OperationSpec::new(&table, OperationKind::Delete, &key(5), &[])).unwrap();
    let batch = run(&mut world, transaction, batch, BatchEnd::Commit);
    assert!(matches!(batch.standing().unwrap(), Standing::Committed(epoch) if epoch.0 > 100));
    let rows = world.node.rows("test.t");
    assert!(
        rows.contains_key(&key(3)[..]) && rows.contains_key(&key(4)[..]) && rows.contains_key(&key(50)[..])
    );
    assert!(!rows.contains_key(&key(5)[..]));
    // It is over, whatever is asked of it.
    let batch = run(&mut world, transaction, OperationBatch::default(), BatchEnd::Commit);
    assert_eq!(batch.standing().unwrap_err().code(), ErrorCode::NoSuchTransaction);
    world.client.cancel(transaction);
    assert!(world.client.is_at_rest() && world.node.is_at_rest());
    assert_eq!(world.node.unconfirmed(), 0, "idle clients confirm what they have seen");
}

#[test]
fn the_first_error_rolls_back_and_names_its_operation() {
    let mut world = world(4);
    let table = world.create("test.t");
    world.load(&table, 0..1);
    let transaction = world.client.begin().unwrap();
    let mut batch = OperationBatch::default();
    for key in [5, 0, 6] {
        let row = image(&table, key, "x");
        batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &row)).unwrap();
    }
    let batch = run(&mut world, transaction, batch, BatchEnd::Commit);
    let error = batch.standing().unwrap_err();
    assert_eq!((error.code(), error.operation()), (ErrorCode::DuplicateKey, Some(OperationNumber(2))));
    assert!(!error.is_retryable());
    assert_eq!(world.node.rows("test.t").len(), 1);
    let batch = run(&mut world, transaction, batch, BatchEnd::Commit);
    assert_eq!(batch.standing().unwrap_err().code(), ErrorCode::TransactionAborted);
    world.client.cancel(transaction);
    assert!(world.client.is_at_rest());
}

#[test]
fn long_batches_go_in_shares() {
    let mut world = world(5);
    let table = world.create("test.t");
    let transaction = world.client.begin().unwrap();
    let mut batch = OperationBatch::default();
    let mut reads = Vec::new();
    for key in 0..3000u64 {
        let row = image(&table, key, &text_of(key));
        batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &row)).unwrap();
        if key % 10 == 0 {
            let read = OperationSpec::new(&table, OperationKind::ReadCommitted, &row[..8], &[]);
            reads.push((key, batch.push(&read).unwrap()));
        }
    }
    let batch = run(&mut world, transaction, batch, BatchEnd::Commit);
    assert!(matches!(batch.standing().unwrap(), Standing::Committed(_)));
    for (key, read) in reads {
        assert_eq!(batch.result(read).unwrap().unwrap(), image(&table, key, &text_of(key)));
    }
    assert_eq!(world.node.rows("test.t").len(), 3000);
    assert!(world.node.handled[&(SignalNumber::TransactionRequest as u16)] >= 4);
    world.client.cancel(transaction);
}

#[test]
fn abandoned_transactions_are_rolled_back() {
    let mut world = world(6);
    let table = world.create("test.t");
    // Open, with a batch under way, fresh, and with a batch of many shares under way.
    for (batches, operations) in [(1, 1), (0, 1), (0, 0), (0, 3000u64)] {
        let transaction = world.client.begin().unwrap();
        let mut batch = OperationBatch::default();
        for key in 0..operations {
            let row = image(&table, key, "x");
            batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &row)).unwrap();
        }
        world.client.send(transaction, batch, BatchEnd::Open);
        if batches == 1 {
            world.run_until_idle();
        }
        world.client.cancel(transaction);
        assert!(operations == 0 || world.client.wants_reader());
        world.run_until_idle();
        assert!(!world.client.wants_reader());
        assert!(world.client.is_at_rest() && world.node.is_at_rest());
    }
    assert!(world.node.rows("test.t").is_empty());
}

/// The request comes when the commit is decided, when it has failed, or when one of its shares is done.
#[test]
fn a_client_that_stops_a_commit_learns_the_decision() {
    let mut world = world(6);
    let table = world.create("test.t");
    let cases = [
        (0..1u64, Ok(())),
        (0..1, Err(ErrorCode::DuplicateKey)),
        (1..3000, Err(ErrorCode::TransactionAborted)),
        (1..2, Ok(())),
    ];
    for (keys, expected) in cases {
        let transaction = world.client.begin().unwrap();
        let mut batch = OperationBatch::default();
        for key in keys {
            let row = image(&table, key, "x");
            batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &row)).unwrap();
        }
        world.client.stop_commit(transaction);
        world.client.send(transaction, batch, BatchEnd::Commit);
        world.client.stop_commit(transaction);
        world.client.stop_commit(transaction);
        world.run_until_idle();
        let batch = world.client.take_operations(transaction).expect("it is over");
        assert_eq!(batch.standing().map(|_| ()).map_err(|error| error.code()), expected);
        world.client.stop_commit(transaction);
        world.run_until_idle();
        world.client.cancel(transaction);
        assert!(world.client.is_at_rest() && world.node.is_at_rest());
    }
    assert_eq!(world.node.rows("test.t").len(), 2);
}

fn scan(world: &mut World, token: Token) -> (Vec<Vec<u8>>, Result<(), ErrorCode>) {
    let mut rows = Vec::new();
    for _ in 0..1_000_000 {
        match world.client.next_rows(token) {
            ScanProgress::Rows(batch) => {
                rows.extend(batch.iter().map(<[u8]>::to_vec));
                world.client.recycle(batch);
            }
            ScanProgress::Last(batch) => {
                rows.extend(batch.iter().map(<[u8]>::to_vec));
                return (rows, Ok(()));
            }
            ScanProgress::Waiting => assert!(world.step(), "it goes on"),
            ScanProgress::Ended(result) => return (rows, result.map_err(|error| error.code())),
        }
    }
    panic!("a scan ends");
}

#[test]
fn scans_give_every_row_once() {
    let mut world = world(7);
    let table = world.create("test.t");
    world.load(&table, 0..500);
    for (batch_rows, parallel, limit) in [(7, 1, 0), (100, 16, 0), (3, 3, 0), (50, 16, 123), (1000, 2, 1)] {
        let spec = ScanSpec { batch_rows, parallel, limit, ..ScanSpec::default() };
        let token = world.client.scan(&table, spec, None).unwrap();
        let (mut rows, result) = scan(&mut world, token);
        assert_eq!(result, Ok(()));
        rows.sort();
        let count = rows.len();
        rows.dedup();
        assert_eq!(rows.len(), count);
        assert_eq!(count, if limit == 0 { 500 } else { limit as usize });
        world.run_until_idle();
        assert!(world.client.is_at_rest() && world.node.is_at_rest());
    }
    // One that is dropped in the middle is closed.
    let token = world.client.scan(&table, ScanSpec { batch_rows: 2, ..ScanSpec::default() }, None).unwrap();
    for _ in 0..20 {
        world.step();
    }
    world.client.cancel(token);
    world.run_until_idle();
    assert!(world.client.is_at_rest() && world.node.is_at_rest());
}

#[test]
fn a_slow_consumer_holds_two_batches_of_a_partition() {
    let mut world = world(8);
    let table = world.create("test.t");
    world.load(&table, 0..2000);
    let spec = ScanSpec { batch_rows: 1000, batch_bytes: 300, ..ScanSpec::default() };
    let token = world.client.scan(&table, spec, None).unwrap();
    world.run_until_idle();
    let next = world.node.handled.get(&(SignalNumber::ScanNextRequest as u16)).copied().unwrap_or(0);
    assert!(next <= 8 * 2, "{next} batches were asked for and nobody took one");
    let (rows, result) = scan(&mut world, token);
    assert_eq!((rows.len(), result), (2000, Ok(())));
}

#[test]
fn a_scan_sees_own_changes_below_its_number() {
    let mut world = world(9);
    let table = world.create("test.t");
    world.load(&table, 0..3);
    let transaction = world.client.begin().unwrap();
    let mut batch = OperationBatch::default();
    let row = image(&table, 10, "own");
    batch.push(&OperationSpec::new(&table, OperationKind::Insert, &[], &row)).unwrap();
    let delete = OperationSpec::new(&table, OperationKind::Delete, &row[..8], &[]);
    batch.push(&delete).unwrap();
    let batch = run(&mut world, transaction, batch, BatchEnd::Open);
    for (number, count) in [(1, 3), (2, 4), (3, 3)] {
        let within = Some((transaction, OperationNumber(number)));
        let token = world.client.scan(&table, ScanSpec::default(), within).unwrap();
        assert_eq!(scan(&mut world, token).0.len(), count);
    }
    assert_eq!(batch.next_number(), OperationNumber(3));
    world.client.cancel(transaction);
    world.run_until_idle();
    assert!(world.client.is_at_rest() && world.node.is_at_rest());
}

#[test]
fn the_dictionary_answers() {
    let mut world = world(10);
    let tables: Vec<_> = (0..5).map(|n| world.create(&format!("test.t{n}"))).collect();
    let error = world.ask(&Request::CreateTable(definition("test.t3"))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TableExists);
    assert!(error.message().contains("test.t3"), "{error}");
    let error = world.ask(&Request::CreateTable(definition("nodatabase"))).unwrap_err();
    assert!(error.message().contains("write 'database.table'"), "{error}");
    let Answer::Table(found) = world.ask(&Request::DescribeTable("test.t3".into())).unwrap() else {
        panic!()
    };
    assert_eq!((found.table, found.version), (tables[3].id().0, tables[3].version().0));
    assert!(matches!(world.ask(&Request::DropTable("test.t3".into())), Ok(Answer::Dropped)));
    let error = world.ask(&Request::DescribeTable("test.t3".into())).unwrap_err();
    assert_eq!((error.code(), error.class()), (ErrorCode::NoSuchTable, ErrorClass::Schema));
    let Answer::Tables(list) = world.ask(&Request::ListTables(0)).unwrap() else { panic!() };
    assert_eq!((list.tables.len(), list.more), (2, true));
    // Whoever still has the old definition is refused.
    world.create("test.t3");
    let mut batch = WriteBatch::default();
    push_insert(&mut batch, &tables[3], 1);
    let token = world.client.write(batch, Urgency::Now).unwrap();
    world.run_until_idle();
    assert_eq!(world.client.take_write(token).unwrap().ending(0), Err(ErrorCode::NoSuchTable.into()));
    assert!(world.client.is_at_rest());
}

#[test]
fn a_restart_makes_open_commits_unknown() {
    let mut world = world(11);
    let table = world.create("test.t");
    let mut batch = WriteBatch::default();
    push_insert(&mut batch, &table, 1);
    let token = world.client.write(batch, Urgency::Now).unwrap();
    let transaction = world.client.begin().unwrap();
    world.client.send(transaction, one_insert(&table, 2), BatchEnd::Open);
    let before = world.client.node();
    world.restart_node();
    world.run_until_idle();
    assert_eq!(world.client.take_write(token).unwrap().ending(0), Err(ErrorCode::UnknownOutcome.into()));
    // What would not have been committed is begun again.
    let batch = world.client.take_operations(transaction).unwrap();
    assert_eq!(batch.standing().unwrap(), Standing::Open);
    world.client.cancel(transaction);
    // It goes on with a new incarnation.
    world.load(&table, [7]);
    assert!(world.client.is_at_rest());
    assert_eq!(world.client.node(), before);
}

#[test]
fn an_outcome_is_asked_for_and_unknown_only_after_long() {
    let mut world = world(12);
    let table = world.create("test.t");
    let mut batch = WriteBatch::default();
    push_insert(&mut batch, &table, 1);
    let token = world.client.write(batch, Urgency::Now).unwrap();
    world.is_cut = true;
    world.break_any();
    world.advance(20_000_000);
    assert!(world.client.take_write(token).is_none(), "it still hopes");
    world.advance(11_000_000);
    assert_eq!(world.client.take_write(token).unwrap().ending(0), Err(ErrorCode::UnknownOutcome.into()));
    let mut batch = WriteBatch::default();
    push_insert(&mut batch, &table, 2);
    let token = world.client.write(batch, Urgency::Now).unwrap();
    assert_eq!(
        world.client.take_write(token).unwrap().ending(0).map_err(|error| error.code()),
        Err(ErrorCode::ClusterFailure)
    );
    world.is_cut = false;
    world.run_until_idle();
    world.load(&table, [3]);
    assert!(world.client.is_at_rest());
}

fn one_insert(table: &vinga_client_core::Table, key: u64) -> OperationBatch {
    let mut batch = OperationBatch::default();
    let row = image(table, key, &text_of(key));
    batch.push(&OperationSpec::new(table, OperationKind::Insert, &[], &row)).unwrap();
    batch
}

#[test]
fn a_silent_node_is_given_up() {
    let mut world = world(13);
    let table = world.create("test.t");
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&1u64.to_le_bytes()).unwrap();
    let token = world.client.read(batch, Urgency::Now).unwrap();
    // Time passes and nothing moves but the client's own output: the node does not answer, nor a greeting.
    for _ in 0..130 {
        world.advance(100_000);
    }
    assert_eq!(world.client.take_read(token).unwrap().row(0), Err(ErrorCode::ConnectionLost.into()));
    world.run_until_idle();
    world.load(&table, [1]);
}

#[test]
fn a_node_is_not_silent_because_the_client_did_not_run() {
    let mut world = world(13);
    let table = world.create("test.t");
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&1u64.to_le_bytes()).unwrap();
    let token = world.client.read(batch, Urgency::Now).unwrap();
    // The machine stands still; the answer comes when the client runs again.
    world.advance(60_000_000);
    world.run_until_idle();
    assert!(world.client.take_read(token).unwrap().row(0).is_ok());
}

#[test]
fn a_silent_node_is_given_up_by_a_client_that_runs_now_and_then() {
    let mut world = world(13);
    let table = world.create("test.t");
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    let mut batch = ReadBatch::new(shape);
    batch.push(&1u64.to_le_bytes()).unwrap();
    let token = world.client.read(batch, Urgency::Now).unwrap();
    // Nothing arrives, and each time the client runs it has not run for longer than two heartbeats take.
    for _ in 0..60 {
        world.advance(1_100_000);
    }
    let read = world.client.take_read(token).expect("it does not wait for ever");
    assert_eq!(read.row(0), Err(ErrorCode::ConnectionLost.into()));
    world.run_until_idle();
    world.load(&table, [1]);
}

#[test]
fn garbage_closes_the_connection() {
    for seed in 0..200 {
        let mut world = World::new(Layout::default(), seed);
        let table = world.create("test.t");
        let shape = world.client.add_shape(&table, None, &[]).unwrap();
        let mut batch = ReadBatch::new(shape);
        (0..50u64).for_each(|key| batch.push(&key.to_le_bytes()).unwrap());
        let token = world.client.read(batch, Urgency::Now).unwrap();
        let mut garbage = Vec::new();
        for _ in 0..world.random.usize(1..20) {
            let signal = world.random.choice(SignalNumber::ALL).unwrap();
            let length = 4 * world.random.u32(5..40);
            garbage.extend_from_slice(&length.to_le_bytes());
            garbage.extend_from_slice(&(*signal as u16).to_le_bytes());
            (6..length).for_each(|_| {
                let byte = if world.random.bool() { 0 } else { world.random.u8(..) };
                garbage.push(byte);
            });
        }
        world.client.on_bytes(vinga_client_core::LinkId::new(0, 0), &garbage);
        world.run_until_idle();
        world.run_until_idle();
        assert!(world.client.take_read(token).is_some());
        let mut batch = ReadBatch::new(shape);
        batch.push(&1u64.to_le_bytes()).unwrap();
        let token = world.client.read(batch, Urgency::Now).unwrap();
        world.run_until_idle();
        assert_eq!(world.client.take_read(token).unwrap().row(0), Ok(None));
    }
}

#[test]
fn a_busy_client_says_that_it_is_alive() {
    let mut world = world(14);
    let table = world.create("test.t");
    let shape = world.client.add_shape(&table, None, &[]).unwrap();
    for _ in 0..1000 {
        let mut batch = ReadBatch::new(shape);
        batch.push(&1u64.to_le_bytes()).unwrap();
        let token = world.client.read(batch, Urgency::Now).unwrap();
        world.advance(5_000);
        while world.step() {}
        assert!(world.client.take_read(token).is_some());
    }
    let heartbeats = world.node.handled[&(SignalNumber::HeartbeatRequest as u16)];
    assert!((9..=20).contains(&heartbeats), "{heartbeats} in five seconds");
}

#[test]
fn the_disconnect_notice_is_the_last_frame() {
    let mut world = World::new(Layout { connections: 3, ..Layout::default() }, 1);
    let notices = |world: &World| world.node.handled.get(&(SignalNumber::DisconnectOrder as u16)).copied();
    world.client.leave();
    assert!(!world.client.has_left(), "it has not been sent yet");
    world.run_until_idle();
    assert!(world.client.has_left());
    assert_eq!(notices(&world), Some(3), "one on each connection");
    world.break_any();
    world.run_until_idle();
    assert!(world.client.has_left(), "nothing is opened again");
}

#[test]
fn a_node_that_is_being_greeted_gets_the_disconnect_notice_when_it_has_answered() {
    for steps in 0..12 {
        let mut world = World::before_idle(Layout { connections: 2, ..Layout::default() }, steps);
        if steps > 0 {
            world.advance(50_000);
            (1..steps).for_each(|_| _ = world.step());
        }
        world.client.leave();
        world.run_until_idle();
        assert!(world.client.has_left());
        let count = |signal| world.node.handled.get(&(signal as u16)).copied().unwrap_or(0);
        let (hellos, notices) = (count(SignalNumber::HelloRequest), count(SignalNumber::DisconnectOrder));
        assert_eq!(hellos, notices, "after {steps} steps");
    }
}

/// Moves things until the node has handled one more of these signals.
fn until_handled(world: &mut World, signal: SignalNumber) {
    let count = |world: &World| world.node.handled.get(&(signal as u16)).copied().unwrap_or(0);
    let before = count(world);
    while count(world) == before {
        world.advance(1_000);
        world.step();
    }
}

#[test]
fn a_batch_may_cross_the_end_of_its_idle_transaction() {
    for seed in 30..50 {
        let mut world = world(seed);
        let table = world.create("test.t");
        let transaction = world.client.begin().unwrap();
        let mut batch = run(&mut world, transaction, one_insert(&table, 1), BatchEnd::Open);
        world.node.give_up_idle();
        batch.clear();
        world.client.send(transaction, batch, BatchEnd::Commit);
        world.run_until_idle();
        let batch = world.client.take_operations(transaction).expect("it is over");
        assert_eq!(batch.standing().unwrap_err().code(), ErrorCode::InactiveTimeout);
        assert_eq!(world.client.rollback_cause(transaction), Some(ErrorCode::InactiveTimeout));
        assert_eq!(world.client.endpoints()[0].connects, 1, "nobody did anything wrong");
        world.client.cancel(transaction);
        world.run_until_idle();
        assert!(world.client.is_at_rest() && world.node.unconfirmed() == 0);
    }
}

#[test]
fn a_scan_ends_with_the_transaction_whose_changes_it_sees() {
    let mut world = world(51);
    let table = world.create("test.t");
    world.load(&table, 0..100);
    let transaction = world.client.begin().unwrap();
    let batch = run(&mut world, transaction, one_insert(&table, 1000), BatchEnd::Open);
    let spec = ScanSpec { batch_rows: 2, batch_bytes: 1, parallel: 1, ..ScanSpec::default() };
    let within = Some((transaction, batch.next_number()));
    let scan = world.client.scan(&table, spec, within).unwrap();
    world.run_until_idle();
    assert!(matches!(world.client.next_rows(scan), ScanProgress::Rows(_)));
    world.node.give_up_idle();
    world.run_until_idle();
    let ScanProgress::Ended(Err(error)) = world.client.next_rows(scan) else { panic!("it has ended") };
    assert_eq!(error.code(), ErrorCode::InactiveTimeout);
    world.client.cancel(transaction);
    world.run_until_idle();
    assert!(world.client.is_at_rest());
}

#[test]
fn an_outcome_that_nobody_waits_for_any_more_is_confirmed_all_the_same() {
    let mut world = world(52);
    let table = world.create("test.t");
    let mut batch = WriteBatch::default();
    push_insert(&mut batch, &table, 1);
    let token = world.client.write(batch, Urgency::Now).unwrap();
    let transaction = world.client.begin().unwrap();
    until_handled(&mut world, SignalNumber::TransactionRequest);
    world.client.send(transaction, one_insert(&table, 2), BatchEnd::Commit);
    until_handled(&mut world, SignalNumber::TransactionRequest);
    world.is_cut = true;
    world.break_any();
    world.advance(20_000_000);
    world.client.cancel(transaction);
    world.advance(11_000_000);
    assert_eq!(world.client.take_write(token).unwrap().ending(0), Err(ErrorCode::UnknownOutcome.into()));
    world.is_cut = false;
    world.run_until_idle();
    assert_eq!(world.node.unconfirmed(), 0);
    assert_eq!(world.node.rows("test.t").len(), 2);
    assert!(world.client.is_at_rest());
}

#[test]
fn what_has_failed_alone_is_not_known_when_the_answer_is_lost() {
    let mut world = world(53);
    let table = world.create("test.t");
    world.load(&table, [1]);
    let transaction = world.client.begin().unwrap();
    let mut batch = one_insert(&table, 2);
    let row = image(&table, 1, "another");
    let mut insert = OperationSpec::new(&table, OperationKind::Insert, &[], &row);
    insert.error_is_local = true;
    batch.push(&insert).unwrap();
    world.client.send(transaction, batch, BatchEnd::Commit);
    until_handled(&mut world, SignalNumber::TransactionRequest);
    world.break_any();
    world.run_until_idle();
    let batch = world.client.take_operations(transaction).expect("it is over");
    assert!(matches!(batch.standing(), Ok(Standing::Committed(_))));
    assert_eq!(batch.result(OperationNumber(1)), Ok(None), "it is done, or nothing would be committed");
    assert_eq!(batch.result(OperationNumber(2)), Err(ErrorCode::UnknownOutcome.into()));
    world.client.cancel(transaction);
    assert!(world.client.is_at_rest());
}
