//! Nanoseconds of the steps of every locked, updated or filtered operation: a row lock, an update program, preparing a
//! filter. Each figure is the median of nine runs, with the range beside it.
//!
//! `cargo run --release --example operation_speed`

use std::hint::black_box;
use std::time::Instant;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Incarnation, NodeId, TransactionId};
use vinga_fragment::lock_table::{LockMode, LockRef, LockTable, Locker};
use vinga_program::comparison::Comparison;
use vinga_program::filter::tree::column;
use vinga_program::filter::{Program, codec};
use vinga_program::update_program::{Action, Instruction, UpdateProgram, write};

const RUNS: usize = 9;

fn measure(what: &str, repeats: usize, mut operations: impl FnMut() -> usize) {
    operations();
    let mut nanoseconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let done: usize = (0..repeats).map(|_| operations()).sum();
            start.elapsed().as_nanos() as f64 / done as f64
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    println!(
        "{what:<58} {:>8.2} ns  ({:.2} to {:.2})",
        nanoseconds[RUNS / 2],
        nanoseconds[0],
        nanoseconds[RUNS - 1]
    );
}

fn locks() {
    let mut table: LockTable<u64> = LockTable::new(100_000, 100_000);
    let locker = |number: u64, mode| Locker {
        operation: Handle::from_bits(number),
        transaction: TransactionId::new(NodeId(1), Incarnation(1), number),
        mode,
    };
    measure("lock and release one free row", 1_000_000, || {
        let lock = table.lock(LockRef::NONE, 7, black_box(locker(1, LockMode::Exclusive))).expect("room");
        usize::from(table.release(lock.entry, |_, _| {}))
    });
    let mut entries = Vec::with_capacity(100_000);
    for batch in [128, 10_000] {
        measure(
            &format!("the same, {batch} rows locked before the first is released"),
            1_000_000 / batch,
            || {
                for row in 0..batch as u64 {
                    let lock = table.lock(LockRef::NONE, row, locker(row + 1, LockMode::Exclusive));
                    entries.push(lock.expect("room").entry);
                }
                entries.drain(..).map(|entry| usize::from(table.release(entry, |_, _| {}))).sum()
            },
        );
    }
    let held = table.lock(LockRef::NONE, 7, locker(1, LockMode::Shared)).expect("room");
    measure("share a row that another shares, and release", 1_000_000, || {
        let lock = table.lock(held.row, 7, locker(2, LockMode::Shared)).expect("room");
        usize::from(!table.release(lock.entry, |_, _| {}))
    });
    let _ = table.release(held.entry, |_, _| {});
    for waiters in [1, 10, 1000] {
        measure(&format!("wait for a row, search, be granted; {waiters} waiting"), 100_000 / waiters, || {
            let mut holder =
                table.lock(LockRef::NONE, 7, locker(1, LockMode::Exclusive)).expect("room").entry;
            let row = table.row_of(holder);
            for number in 0..waiters as u64 {
                let lock = table.lock(row, 7, locker(number + 2, LockMode::Exclusive)).expect("room");
                assert_eq!(table.find_deadlock(lock.entry), None);
            }
            loop {
                let mut next = None;
                if table.release(holder, |entry, _| next = Some(entry)) {
                    break waiters;
                }
                holder = next.expect("the row is granted to the waiter");
            }
        });
    }
}

fn layout() -> RowLayout {
    let int = ColumnType::Integer { bytes: 8, signed: true };
    let types = [int, int, ColumnType::Binary { bytes: 100 }, ColumnType::VarBinary { bytes_max: 100 }];
    let definition = TableDefinition {
        name: "speed.t".into(),
        columns: types
            .iter()
            .enumerate()
            .map(|(i, &column_type)| ColumnDefinition {
                name: format!("c{i}"),
                column_type,
                nullable: i != 0,
            })
            .collect(),
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    };
    definition.check().expect("a valid table");
    RowLayout::new(&definition)
}

fn updates() {
    let layout = layout();
    let mut row = Vec::new();
    let values: [Option<&[u8]>; 4] = [Some(&[1; 8]), Some(&[2; 8]), Some(&[3; 100]), Some(&[4; 60])];
    layout.build_image(&values, &mut row).expect("values fit");
    let (fixed, variable) = layout.split(&row);
    let mut image = Vec::with_capacity(1024);
    measure("copy the row and 100 bytes, for comparison", 1_000_000, || {
        image.clear();
        image.extend_from_slice(black_box(fixed));
        image[17..117].copy_from_slice(black_box(values[2].expect("a value")));
        image.extend_from_slice(black_box(variable));
        usize::from(black_box(&image).len() > 100)
    });
    let mut update = |what: &str, actions: &[(u16, Action<'_>)]| {
        let mut instructions: Vec<_> =
            actions.iter().map(|&(id, action)| Instruction { column: ColumnId(id), action }).collect();
        let mut wire = Vec::new();
        write(&mut instructions, &layout, &mut wire).expect("a valid program");
        measure(what, 1_000_000, || {
            image.clear();
            let program = UpdateProgram::check(black_box(&wire), &layout).expect("a valid program");
            program.apply(&layout, black_box(fixed), black_box(variable), &mut image).expect("it fits");
            usize::from(black_box(&image).len() > 100)
        });
    };
    update("check and apply: set 100 bytes", &[(2, Action::Set(&[9; 100]))]);
    update("check and apply: set 60 variable bytes", &[(3, Action::Set(&[9; 60]))]);
    update("check and apply: add to an integer", &[(1, Action::Add(&[1, 0, 0, 0, 0, 0, 0, 0]))]);
    let holds = Action::Check(Comparison::Equal, &[2; 8]);
    update("check and apply: compare and set an integer", &[(1, holds), (1, Action::Set(&[5; 8]))]);
}

fn filters() {
    let layout = layout();
    let five = column(1).greater_than(5).and(column(1).less_than(9).or(column(0).equal(7)));
    let five = five.and(column(2).is_not_null()).and(column(3).starts_with("abc"));
    for (what, filter) in [
        ("decode, check and lower a filter of one comparison", column(1).greater_than(5)),
        ("decode, check and lower a filter of five comparisons", five),
    ] {
        let mut wire = Vec::new();
        codec::encode(&filter, &[], &mut wire).expect("a small filter");
        measure(what, 100_000, || {
            let filter = codec::decode(black_box(&wire)).expect("a valid filter");
            black_box(Program::new(&filter, &layout).expect("it fits"));
            1
        });
    }
}

fn main() {
    locks();
    updates();
    filters();
}
