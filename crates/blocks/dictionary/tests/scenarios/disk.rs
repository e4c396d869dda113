//! Definitions on disk: what is written before what, and what a restart makes of files that have lost any part of what
//! was not flushed.

use crate::support::{Files, Node, State, definition};
use std::collections::BTreeSet;
use std::path::PathBuf;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{IndexDefinition, IndexKind, TableDefinition};
use vinga_base::{ColumnId, Epoch};
use vinga_dictionary::VERSIONS_RESERVED;
use vinga_format::Checksum;
use vinga_kernel::files::{FileKind, FileName};
use vinga_kernel::testkit::check_golden;
use vinga_wire::ErrorCode;
use vinga_wire::epoch::LogRoom;
use vinga_wire::schema::{Database, SchemaChange};
use vinga_wire::start::{DefinitionsExtent, StartResult, StartTask};

fn extent(generation: u64, blocks: u64) -> DefinitionsExtent {
    DefinitionsExtent { generation, blocks }
}

fn file(number: u64) -> FileName {
    FileName::new(FileKind::Schema, 0, number)
}

fn database(name: &str, attachment: usize) -> Database {
    Database { name: name.into(), attachment: vec![7; attachment] }
}

fn names(node: &Node) -> Vec<String> {
    node.state().tables.into_iter().map(|table| table.definition.name).collect()
}

fn at(node: &Node, event: &str) -> usize {
    node.events.iter().position(|one| one == event).unwrap_or_else(|| panic!("{event} in {:?}", node.events))
}

#[test]
fn a_change_is_on_disk_before_anybody_receives_it_and_durable_before_it_is_answered() {
    let mut node = Node::initial();
    node.harness.begin_scenario();
    node.harness
        .heading("create: recorded before it is published, and answered when its epoch has an end record");
    node.epoch(20);
    node.events.clear();
    node.create("test.t");
    let order = ["Prepare", "flushed", "Publish", "DurabilityRequest", "CreateTableConfirm"]
        .map(|event| at(&node, event));
    assert!(order.is_sorted_by(|a, b| a < b), "{:?}", node.events);
    node.harness.heading("a database has no rounds, but is on disk too");
    node.events.clear();
    node.change(SchemaChange::CreateDatabase(database("shop", 0)));
    let order = ["flushed", "DurabilityRequest", "SchemaChangeConfirm"].map(|event| at(&node, event));
    assert!(order.is_sorted_by(|a, b| a < b), "{:?}", node.events);
    node.harness.heading("drop: what is gone is gone before it is durable");
    node.events.clear();
    node.drop_table("test.t");
    let order =
        ["Switch", "flushed", "Publish", "Complete", "Remove", "DurabilityRequest", "DropTableConfirm"];
    assert!(order.map(|event| at(&node, event)).is_sorted_by(|a, b| a < b), "{:?}", node.events);
    node.harness.heading("a write fence ends with its owner: it is not kept");
    node.create("test.u");
    node.events.clear();
    node.change(SchemaChange::FenceTable { name: "test.u".into(), pinned: None });
    assert!(!node.events.contains(&"flushed".into()));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/changes_on_disk.txt");
    check_golden(&path, node.harness.scenario());
}

#[test]
fn a_change_is_answered_when_a_restart_restores_it() {
    let mut node = Node::initial();
    node.is_never_durable = true;
    node.epoch(20);
    node.create("test.t");
    assert_eq!(node.requested, Epoch(20));
    assert!(!node.events.contains(&"CreateTableConfirm".into()));
    node.confirm_durability(Epoch(19));
    assert!(!node.events.contains(&"CreateTableConfirm".into()), "that is another change");
    node.confirm_durability(Epoch(20));
    assert!(node.events.contains(&"CreateTableConfirm".into()));
    // Who asked may go meanwhile: the change stays.
    node.create("test.u");
    node.close_api();
    assert!(node.harness.has_met("requester has gone while its change becomes durable"));
    assert!(node.harness.block().is_changing());
    node.confirm_durability(Epoch(20));
    assert!(!node.harness.block().is_changing());
    assert_eq!(names(&node), ["test.t", "test.u"]);
}

/// A change needs an end record in the redo log, which is full.
#[test]
fn changes_are_refused_while_the_log_is_full() {
    let mut node = Node::initial();
    node.create("test.t");
    let before = node.state();
    node.events.clear();
    node.log_room(LogRoom::Short);
    node.create("test.u");
    node.drop_table("test.t");
    node.change(SchemaChange::CreateDatabase(database("shop", 0)));
    let codes: Vec<ErrorCode> = node.refused.drain(..).map(|(code, _)| code).collect();
    assert_eq!(codes, [ErrorCode::RedoLogFull; 3]);
    assert_eq!(node.state(), before);
    assert!(!node.events.contains(&"flushed".into()), "nothing of them is on the disk");
    node.log_room(LogRoom::Enough);
    node.create("test.u");
    assert_eq!(names(&node), ["test.t", "test.u"]);
}

/// The log is found full when a change is on disk already, and others wait for it.
#[test]
fn a_change_that_waits_for_its_end_record_in_vain_is_answered_and_goes_on() {
    let mut node = Node::initial();
    node.is_never_durable = true;
    node.epoch(20);
    node.create("test.t");
    node.create("test.u");
    node.log_room(LogRoom::Short);
    let refused = |node: &mut Node| node.refused.drain(..).map(|(code, _)| code).collect::<Vec<_>>();
    assert_eq!(refused(&mut node), [ErrorCode::RedoLogFull], "the one that waits for the first one");
    node.log_room(LogRoom::None);
    assert_eq!(refused(&mut node), [ErrorCode::NotOnDisk]);
    assert!(node.harness.block().is_changing() && names(&node) == ["test.t"]);
    node.create("test.v");
    assert_eq!(refused(&mut node), [ErrorCode::RedoLogFull]);
    node.log_room(LogRoom::Enough);
    node.create("test.v");
    node.confirm_durability(Epoch(20));
    node.confirm_durability(Epoch(20));
    assert!(!node.harness.block().is_changing() && names(&node) == ["test.t", "test.v"]);
    assert_eq!(node.events.iter().filter(|event| *event == "CreateTableConfirm").count(), 1);
}

#[test]
fn a_full_disk_undoes_the_change_and_the_next_one_may_fit() {
    let mut node = Node::initial();
    node.create("test.t");
    let before = node.state();
    node.quota = 64 << 10;
    // The sixteenth block is the last one for which there is room.
    while node.refused.is_empty() {
        node.change(SchemaChange::CreateDatabase(database(&format!("d{}", node.state().databases.len()), 0)));
    }
    node.refused.clear();
    let databases = node.state().databases;
    assert_eq!(
        databases.len(),
        14,
        "of the blocks one is the head, one the limit of versions, one the table"
    );
    node.create("test.u");
    node.drop_table("test.t");
    node.change(SchemaChange::TruncateTable { name: "test.t".into(), pinned: None });
    let codes: Vec<ErrorCode> = node.refused.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [ErrorCode::DiskFull; 3]);
    assert!(node.refused[0].1.contains("schema/000-00000000.schema: no space left"), "{}", node.refused[0].1);
    assert_eq!(node.state(), State { databases, ..before });
    node.check_blocks();
    assert!(node.harness.has_met("schema change is refused because the disk is full"));
    node.quota = u64::MAX;
    node.create("test.u");
    assert_eq!(names(&node), ["test.t", "test.u"]);
    node.check_blocks();
    let state = node.state();
    let (node, result) = Node::restart(node.files, 1, extent(1, 2), 2, usize::MAX);
    assert_eq!((result, node.state()), (Some(Ok(())), state));
}

#[test]
fn a_failed_write_or_flush_stops_the_node() {
    let mut node = Node::initial();
    node.flush_fails = true;
    node.create("test.t");
    let reason = node.stopped.take().expect("the node stops");
    assert!(
        reason.contains("the schema file can't be written: flush schema/000-00000000.schema"),
        "{reason}"
    );
    assert!(
        names(&node).is_empty() && !node.events.contains(&"Publish".into()),
        "nobody knows what is on disk"
    );
    node.flush_fails = false;
    node.serve();
    assert_eq!(node.events.iter().filter(|event| *event == "flushed").count(), 1, "it is never tried again");
}

#[test]
fn a_flush_behind_a_failed_write_means_nothing() {
    let mut node = Node::initial();
    node.write_fails = true;
    node.create("test.t");
    let reason = node.stopped.take().expect("the node stops");
    assert!(
        reason.contains("the schema file can't be written: write schema/000-00000000.schema"),
        "{reason}"
    );
    assert_eq!(node.events.iter().filter(|event| *event == "flushed").count(), 2, "the flush has succeeded");
    assert!(names(&node).is_empty() && !node.events.contains(&"Publish".into()));
}

#[test]
fn a_requester_that_goes_before_the_write_undoes_its_change_and_behind_it_does_not() {
    for tasks in [0, 1] {
        let mut node = Node::initial();
        node.is_never_durable = true;
        node.tasks_served = tasks;
        node.create("test.t");
        node.close_api();
        node.go_on();
        let expected: &[&str] = if tasks == 0 { &[] } else { &["test.t"] };
        assert_eq!(names(&node), expected);
        assert!(node.harness.has_met("requester has gone while its change is recorded"));
        if tasks == 0 {
            assert_eq!(node.made[0].len(), 0, "what was prepared is removed");
            assert!(!node.harness.block().is_changing());
        } else {
            node.confirm_durability(node.requested);
        }
        node.check_blocks();
        let (node, result) = Node::restart(node.files, 1, extent(1, 2), 2, usize::MAX);
        assert_eq!(result, Some(Ok(())));
        assert_eq!(names(&node), expected);
    }
}

#[test]
fn a_first_start_and_a_restart_without_definitions() {
    let mut node = Node::new(Files::default());
    let on_disk = |extent, greatest| Ok(StartResult::DefinitionsOnDisk { extent, greatest: Epoch(greatest) });
    assert_eq!(node.start(StartTask::MakeFiles), on_disk(extent(1, 2), 0));
    // The machine stopped before the system file was written: it is a first start again.
    let mut node = Node::new(node.files);
    assert_eq!(node.start(StartTask::MakeFiles), on_disk(extent(1, 2), 0));
    assert_eq!(node.start(StartTask::OpenLog { incarnation: 1 }), on_disk(extent(1, 2), 0));
    node.begin(1, 0);
    let mut node = Node::new(node.files);
    let restore = StartTask::RestoreDefinitions { epoch: Epoch(0), known: extent(1, 2) };
    assert_eq!(node.start(restore), on_disk(extent(1, 2), 0));
    assert_eq!(node.start(StartTask::OpenLog { incarnation: 2 }), on_disk(extent(2, 2), 0));
    assert_eq!(node.files.0.keys().copied().collect::<Vec<_>>(), [file(1)]);
    node.begin(2, 0);
    node.create("test.t");
    let expected = 65536 + VERSIONS_RESERVED;
    assert_eq!(node.state().tables[0].version, expected, "the first ones may have been given");
}

/// A node with changes in epochs 10, 20, and 30.
fn three_changes() -> Node {
    let mut node = Node::initial();
    for (epoch, name) in [(10, "test.a"), (20, "test.b"), (30, "test.c")] {
        node.epoch(epoch);
        node.create(name);
    }
    node
}

#[test]
fn what_is_beyond_the_restore_point_is_dropped_for_good() {
    let files = three_changes().files;
    let mut node = Node::new(files);
    let restore = StartTask::RestoreDefinitions { epoch: Epoch(25), known: extent(1, 2) };
    let found = StartResult::DefinitionsOnDisk { extent: extent(1, 5), greatest: Epoch(30) };
    assert_eq!(node.start(restore), Ok(found), "epochs begin above all of them");
    assert!(node.harness.has_met("definitions beyond the restore point are dropped"));
    assert_eq!(names(&node), ["test.a", "test.b"]);
    node.check_blocks();
    let before = node.files.0[&file(0)].bytes.clone();
    assert_eq!(node.files.0.len(), 1, "nothing is written before the system file is");
    assert_eq!(node.files.0[&file(0)].bytes, before);
    node.start(StartTask::OpenLog { incarnation: 2 }).expect("there is room");
    node.begin(31, 25);
    node.create("test.d");
    let (node, result) = Node::restart(node.files, 40, extent(2, 2), 3, usize::MAX);
    assert_eq!(
        (result, names(&node)),
        (Some(Ok(())), vec!["test.a".into(), "test.b".into(), "test.d".into()])
    );
}

/// They are not damaged, and no older generation takes their place.
#[test]
fn files_of_a_newer_program_are_refused() {
    let Node { files, known, .. } = three_changes();
    for block in [0, 1, 4] {
        let mut newer = files.clone();
        let bytes = &mut newer.0.get_mut(&file(0)).expect("it is there").bytes[block * 4096..];
        let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
        bytes[12..14].copy_from_slice(&99_u16.to_le_bytes());
        let checksum = Checksum::SOFTWARE.of(&bytes[8..length]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        let mut node = Node::with_tables(newer, 20);
        let restore = StartTask::RestoreDefinitions { epoch: Epoch(30), known };
        let why = node.start(restore).expect_err("it is refused");
        assert!(why.contains("format version 99") && why.contains("use the program that"), "{block}: {why}");
    }
}

#[test]
fn files_that_hold_less_than_was_on_disk_are_refused() {
    let refused = |files: &Files, known, tables_max| {
        let mut node = Node::with_tables(files.clone(), tables_max);
        let restore = StartTask::RestoreDefinitions { epoch: Epoch(30), known };
        node.start(restore).expect_err("it is refused")
    };
    let Node { files, known, .. } = three_changes();
    assert_eq!(known, extent(1, 5));
    let why = refused(&files, extent(1, 6), 20);
    assert!(
        why.contains("end at block 4 of generation 1, but block 5 of generation 1 was on the disk"),
        "{why}"
    );
    let why = refused(&Files::default(), extent(1, 2), 20);
    assert!(why.contains("there is no schema file"), "{why}");
    let mut damaged = files.clone();
    damaged.0.get_mut(&file(0)).expect("it is there").bytes[2 * 4096 + 100] ^= 1;
    let why = refused(&damaged, extent(1, 2), 20);
    assert!(why.contains("schema file 0 can't be used: at offset 8192: block 2 is damaged"), "{why}");
    // The last block is damaged: only who knows that it was there can tell it from a torn write.
    let mut damaged = files.clone();
    damaged.0.get_mut(&file(0)).expect("it is there").bytes[4 * 4096 + 100] ^= 1;
    let why = refused(&damaged, known, 20);
    assert!(
        why.contains("end at block 3 of generation 1, but block 4 of generation 1 was on the disk"),
        "{why}"
    );
    let why = refused(&files, extent(1, 2), 2);
    assert!(why.contains("table 'test.c' needs id 3, but MaxNoOfTables is 2"), "{why}");
    let mut node = Node::new(files.clone());
    node.refuses = true;
    let restore = StartTask::RestoreDefinitions { epoch: Epoch(30), known: extent(1, 2) };
    let why = node.start(restore).expect_err("data managers refuse");
    assert!(why.contains("can't make table 'test.a' again"), "{why}");
}

#[test]
fn a_start_without_room_is_refused() {
    let files = three_changes().files;
    let mut node = Node::new(files);
    let restore = StartTask::RestoreDefinitions { epoch: Epoch(30), known: extent(1, 2) };
    node.start(restore).expect("the files are whole");
    node.quota = 0;
    let why = node.start(StartTask::OpenLog { incarnation: 2 }).expect_err("there is no room");
    assert!(why.contains("definitions of tables can't be written") && why.contains("no space left"), "{why}");
    let (node, result) = Node::restart(node.files, 30, extent(1, 5), 3, usize::MAX);
    assert_eq!((result, names(&node).len()), (Some(Ok(())), 3));
}

/// The changes of a random history, by their number: all kinds, and long ones that have the file rewritten.
fn carry_out(node: &mut Node, number: u64) {
    node.epoch(10 * number);
    let pinned = None;
    match number {
        1 => node.create("test.a"),
        2 => node.change(SchemaChange::CreateDatabase(database("empty", 0))),
        3 => node.create_as(TableDefinition { indexes: vec![unique()], ..definition("test.b") }),
        4 => {
            node.change(SchemaChange::RenameTable {
                name: "test.a".into(),
                new_name: "new.a".into(),
                pinned,
            });
        }
        5 => node.change(SchemaChange::TruncateTable { name: "test.b".into(), pinned }),
        6 => node.change(SchemaChange::AlterTable {
            name: "new.a".into(),
            definition: TableDefinition { attachment: vec![1, 2, 3], ..definition("new.a") },
            pinned,
        }),
        7 => node.create("test.a"),
        8 => node.drop_table("test.b"),
        9 => node.change(SchemaChange::DropDatabase { name: "empty".into() }),
        10..34 => {
            node.change(SchemaChange::AlterDatabase(database("new", 55_000 + number as usize)));
        }
        34 => node.create("test.c"),
        _ => node.drop_table("new.a"),
    }
}

const CHANGES: u64 = 35;

fn unique() -> IndexDefinition {
    let columns = vec![OrderColumn { column: ColumnId(0), direction: Direction::Ascending }];
    IndexDefinition { id: 1, name: "u".into(), columns, kind: IndexKind::Unique }
}

/// States of the definitions after each change, and how many tasks on files had been done then.
fn history() -> Vec<(State, usize)> {
    let mut node = Node::initial();
    let mut states = vec![(node.state(), node.tasks_done)];
    for number in 1..=CHANGES {
        carry_out(&mut node, number);
        assert_eq!(node.refused, []);
        assert_eq!(node.requested, Epoch(10 * number));
        states.push((node.state(), node.tasks_done));
    }
    assert!(node.harness.has_met("definitions are rewritten because their file has grown"));
    assert!(node.files.bytes() < 2 << 20, "the older generation is removed");
    states
}

/// The machine stops at each task on a file, loses any part of what was not flushed, and restarts up to different
/// epochs, perhaps in several attempts.
#[test]
fn a_restart_has_the_definitions_up_to_the_restore_point() {
    let states = history();
    let all_tasks = states.last().expect("there are some").1;
    let mut random = fastrand::Rng::with_seed(1);
    let (mut restarts, mut attempts) = (0, 0);
    for tasks in states[0].1 + 1..=all_tasks {
        let finished =
            states.iter().rposition(|(_, done)| *done < tasks).expect("the first is before that") as u64;
        for restored in [10 * finished, 10 * finished + 5, 10 * finished + 10, 10 * finished + 17] {
            let mut node = Node::initial();
            node.tasks_left = tasks - node.tasks_done;
            let mut number = 0;
            while !node.is_dead() {
                number += 1;
                carry_out(&mut node, number);
            }
            assert_eq!(number, finished + 1);
            let (versions, mut files, known) = (node.versions, node.files, node.known);
            let chance = random.f32();
            files.crash(|| random.f32() < chance);
            // Attempts that are given up change nothing.
            let mut incarnation = 2;
            let mut node = loop {
                attempts += 1;
                let limit = if random.bool() { usize::MAX } else { random.usize(1..14) };
                let (node, result) = Node::restart(files, restored, known, incarnation, limit);
                match result {
                    Some(result) => {
                        assert_eq!(result, Ok(()), "task {tasks}, epoch {restored}");
                        break node;
                    }
                    None => files = node.files,
                }
                files.crash(|| random.f32() < chance);
                incarnation += 1;
            };
            restarts += 1;
            (node.versions, node.tasks_left) = (versions, usize::MAX);
            check_restored(node, &states, finished, restored);
        }
    }
    println!("{restarts} restarts in {attempts} attempts, at each of {all_tasks} tasks");
}

/// Compares with the history, of which the machine has stopped in the change behind `finished`.
fn check_restored(mut node: Node, states: &[(State, usize)], finished: u64, restored: u64) {
    let found = node.state();
    let is = |number: u64| states.get(number as usize).is_some_and(|(state, _)| *state == found);
    let is_next_allowed = restored >= 10 * finished + 10;
    assert!(
        is(finished) || is_next_allowed && is(finished + 1),
        "change {finished} is finished, up to epoch {restored}: {found:?}"
    );
    node.check_blocks();
    // It goes on, and what was not restored does not come back.
    node.begin(10 * CHANGES + 100, restored);
    node.change(SchemaChange::CreateDatabase(database("later", 3)));
    node.create("later.table");
    assert_eq!(node.refused, []);
    let (state, known) = (node.state(), node.known);
    let versions: BTreeSet<u64> = state.tables.iter().map(|table| table.version).collect();
    assert!(versions.is_subset(&node.versions));
    let (again, result) = Node::restart(node.files, node.requested.0, known, 99, usize::MAX);
    assert_eq!((result, again.state()), (Some(Ok(())), state));
    again.check_blocks();
}

#[test]
fn versions_of_changes_that_fail_are_not_given_again() {
    let mut node = Node::initial();
    node.create("test.t");
    node.refuses = true;
    for _ in 0..100 {
        node.create("test.u");
    }
    assert_eq!(node.refused.len(), 100);
    let (versions, files) = (node.versions, node.files);
    let (mut node, result) = Node::restart(files, 1, extent(1, 2), 2, usize::MAX);
    assert_eq!(result, Some(Ok(())));
    node.versions = versions;
    node.begin(2, 1);
    node.create("test.u");
    assert_eq!(names(&node), ["test.t", "test.u"]);
}

#[test]
fn a_rewriting_without_room_is_put_off() {
    let mut node = Node::initial();
    node.change(SchemaChange::CreateDatabase(database("large", 0)));
    for round in 0..17 {
        node.change(SchemaChange::AlterDatabase(database("large", 59_500 + round)));
    }
    assert!(!node.harness.has_met("definitions are rewritten because their file has grown"));
    // There is no room for another file, but some is left in this one.
    node.is_without_new_files = true;
    for round in 0..4 {
        node.change(SchemaChange::AlterDatabase(database("large", 59_000 + round)));
    }
    assert!(node.harness.has_met("rewriting of definitions is put off because the disk is full"));
    assert_eq!((node.refused.len(), node.state().databases[0].attachment.len()), (0, 59_003));
    assert_eq!(node.files.0.keys().copied().collect::<Vec<_>>(), [file(0)]);
    node.is_without_new_files = false;
    for round in 0..20 {
        node.change(SchemaChange::AlterDatabase(database("large", 58_000 + round)));
    }
    assert_eq!(node.files.0.keys().copied().collect::<Vec<_>>(), [file(1)], "it was rewritten later");
    let (again, result) = Node::restart(node.files, node.requested.0, extent(1, 2), 2, usize::MAX);
    assert_eq!((result, again.state().databases[0].attachment.len()), (Some(Ok(())), 58_019));
}
