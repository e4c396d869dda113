//! Golden scenarios of schema changes, and what API nodes can get wrong.

use crate::common::*;
use std::path::PathBuf;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{ColumnDefinition, IndexDefinition, IndexKind, TableDefinition};
use vinga_base::{ColumnId, Epoch, NodeId};
use vinga_dictionary::{Dictionary, EVENT_WAIT_MAX, QUEUED_CHANGES_MAX, first_version};
use vinga_kernel::Span;
use vinga_kernel::testkit::{Harness, check_golden};
use vinga_wire::dictionary::{ListTablesConfirm, TableConfirm, VersionedTable};
use vinga_wire::handshake::Refusal;
use vinga_wire::schema::{Database, SchemaChange};
use vinga_wire::schema_round::{RoundName, SchemaRoundRequest};
use vinga_wire::{Address, ErrorCode, SignalNumber, cold};

fn check(name: &str, harness: &Harness<Dictionary>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    check_golden(&path, harness.scenario());
}

const V: u64 = first_version(1).0;

/// What blocks were asked and have not answered yet.
#[derive(Default)]
struct Asked(Vec<(Address, RoundName)>);

impl Asked {
    /// The other dictionary takes note of everything at once.
    fn note(&mut self, h: &mut Harness<Dictionary>) {
        loop {
            let mut noted = Vec::new();
            for sent in h.take_sent() {
                if sent.signal() == SignalNumber::SchemaRoundRequest {
                    let body: SchemaRoundRequest = cold::read(&sent.frame()).expect("a whole body");
                    let is_noted = sent.receiver() == OTHER_DICTIONARY;
                    if is_noted { &mut noted } else { &mut self.0 }.push((sent.receiver(), body.round));
                }
            }
            if noted.is_empty() {
                return;
            }
            for (other, round) in noted {
                confirm(h, other, round);
            }
        }
    }

    /// What a block was asked first.
    fn first_of(&mut self, h: &mut Harness<Dictionary>, block: Address) -> RoundName {
        self.note(h);
        let at = self.0.iter().position(|asked| asked.0 == block).expect("it was asked");
        self.0.remove(at).1
    }

    /// A block does what it was asked.
    fn confirm(&mut self, h: &mut Harness<Dictionary>, block: Address) {
        let round = self.first_of(h, block);
        confirm(h, block, round);
    }

    /// A block can't do what it was asked.
    fn refuse(&mut self, h: &mut Harness<Dictionary>, block: Address, code: ErrorCode) {
        let round = self.first_of(h, block);
        refuse(h, block, code, round);
    }

    /// Everybody does what was asked so far: the present round ends.
    fn end_round(&mut self, h: &mut Harness<Dictionary>) {
        self.note(h);
        for (block, round) in std::mem::take(&mut self.0) {
            confirm(h, block, round);
        }
    }

    /// Everybody does what is asked until nothing more is.
    fn end_all(&mut self, h: &mut Harness<Dictionary>) {
        self.note(h);
        while !self.0.is_empty() {
            self.end_round(h);
            self.note(h);
        }
    }
}

/// Everybody does what was asked.
fn carry_out(h: &mut Harness<Dictionary>) {
    Asked::default().end_all(h);
}

/// The refusals since the last call.
fn refusals(h: &mut Harness<Dictionary>) -> Vec<(SignalNumber, u32, ErrorCode)> {
    let refusal = |signal| {
        matches!(
            signal,
            SignalNumber::CreateTableRefuse
                | SignalNumber::DropTableRefuse
                | SignalNumber::DescribeTableRefuse
                | SignalNumber::ListTablesRefuse
                | SignalNumber::SchemaChangeRefuse
                | SignalNumber::SchemaLockRefuse
                | SignalNumber::SchemaEventsRefuse
                | SignalNumber::DescribeDatabaseRefuse
                | SignalNumber::ListDatabasesRefuse
        )
    };
    h.take_sent()
        .iter()
        .filter(|sent| refusal(sent.signal()))
        .map(|sent| {
            let body: Refusal = cold::read(&sent.frame()).expect("a whole body");
            (sent.signal(), body.request, ErrorCode::from_number(body.code).expect("a known error"))
        })
        .collect()
}

fn names(h: &Harness<Dictionary>) -> Vec<(u32, u64, &str)> {
    h.block().tables().map(|t| (t.table, t.version, t.definition.name.as_str())).collect()
}

#[test]
fn create_and_drop() {
    let (mut h, mut asked) = (harness(), Asked::default());
    h.heading("create: data managers first, then coordinators, then the API node is answered");
    create(&mut h, api(150), 1, "test.Items");
    asked.end_all(&mut h);
    h.heading("describe: letter case counts; list");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 2, "test.Items");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 2, "test.items");
    list(&mut h, api(150), 3, 0);
    h.heading("a second table of that name is refused");
    create(&mut h, api(151), 4, "test.Items");
    h.heading("drop: coordinators let go of it; until then there is a way back, and it can be seen");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 5, "test.Items");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 6, "test.Items");
    h.heading("a create of the same name waits for that");
    create(&mut h, api(151), 7, "test.Items");
    asked.end_round(&mut h);
    h.heading("it is decided: whoever describes it is refused and may come again");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 6, "test.Items");
    h.heading("the id is used again with another version");
    asked.end_all(&mut h);
    h.heading("what is not there can't be dropped");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 8, "test.other");
    assert_eq!(names(&h), [(1, V + 1, "test.Items")]);
    check("create_and_drop.txt", &h);
}

#[test]
fn create_with_a_refusing_data_manager() {
    let (mut h, mut asked) = (harness(), Asked::default());
    h.heading(
        "one data manager refuses: the other is ordered to remove the table, no coordinator has received it",
    );
    create(&mut h, api(150), 1, "test.items");
    asked.refuse(&mut h, DATA_MANAGERS[0], ErrorCode::DataMemoryFull);
    asked.end_all(&mut h);
    h.heading("all refuse: nothing is to be removed, the first reason counts");
    create(&mut h, api(150), 2, "test.items");
    asked.refuse(&mut h, DATA_MANAGERS[1], ErrorCode::OutOfTables);
    asked.refuse(&mut h, DATA_MANAGERS[0], ErrorCode::DataMemoryFull);
    assert!(names(&h).is_empty() && !h.block().is_changing());
    check("create_with_a_refusing_data_manager.txt", &h);
}

fn dies(h: &mut Harness<Dictionary>) {
    api_gone(h, SignalNumber::ApiConnectionClosedOrder, 150);
    api_gone(h, SignalNumber::ApiFailedOrder, 150);
}

/// The API node dies after each round of each kind of change: until the decision nothing has happened, from then on the
/// change is carried out.
#[test]
fn requester_dies_in_each_step() {
    let mut indexed = definition("test.t");
    indexed.indexes.push(index(1, IndexKind::Ordered));
    type Ask = fn(&mut Harness<Dictionary>);
    let asks: [(&str, Ask, u32); 5] = [
        ("create", |h| create(h, api(150), 2, "test.new"), 1),
        ("drop", |h| named(h, api(150), SignalNumber::DropTableRequest, 2, "test.t"), 1),
        ("rename", |h| rename(h, api(150), 2, "test.t", "other.t"), 2),
        ("truncate", |h| truncate(h, api(150), 2, "test.t"), 2),
        ("add an index", |h| alter(h, api(150), 2, indexed_definition()), 3),
    ];
    assert_eq!(indexed, indexed_definition());
    let mut scenario = String::new();
    for (what, ask, before_decision) in asks {
        for rounds in 0..6 {
            let (mut h, mut asked) = (harness(), Asked::default());
            create(&mut h, api(151), 1, "test.t");
            asked.end_all(&mut h);
            let before: Vec<_> = h.block().tables().cloned().collect();
            let received = h.scenario().len();
            h.heading(&format!("{what}: it dies after {rounds} rounds"));
            ask(&mut h);
            for _ in 0..rounds {
                asked.end_round(&mut h);
            }
            if !h.block().is_changing() {
                break;
            }
            dies(&mut h);
            asked.end_all(&mut h);
            assert!(!h.block().is_changing());
            let is_undone = h.block().tables().eq(&before);
            assert_eq!(is_undone, rounds < before_decision, "{what}, {rounds} rounds");
            if what != "create" && what != "drop" {
                scenario.push_str(&h.scenario()[received..]);
            }
        }
    }
    h_check("requester_dies_in_each_step.txt", &scenario);
    let (mut h, mut asked) = (harness(), Asked::default());
    // What it asked for and waits behind somebody else's change is forgotten.
    create(&mut h, api(151), 8, "test.others");
    create(&mut h, api(150), 9, "test.waits");
    dies(&mut h);
    asked.end_all(&mut h);
    assert_eq!(names(&h), [(1, V, "test.others")]);
    assert!(!h.block().is_changing());
}

fn h_check(name: &str, scenario: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    check_golden(&path, scenario);
}

fn index(id: u16, kind: IndexKind) -> IndexDefinition {
    let column = OrderColumn { column: ColumnId(0), direction: Direction::Ascending };
    IndexDefinition { id, name: format!("i{id}"), columns: vec![column], kind }
}

fn indexed_definition() -> TableDefinition {
    TableDefinition { indexes: vec![index(1, IndexKind::Ordered)], ..definition("test.t") }
}

#[test]
fn rename_and_alter() {
    let (mut h, mut asked) = (harness(), Asked::default());
    create(&mut h, api(150), 1, "test.t");
    asked.end_all(&mut h);
    h.heading("rename to another database, which is made: the rows stay where they are");
    rename(&mut h, api(150), 2, "test.t", "other.T");
    asked.end_round(&mut h);
    h.heading("data managers accept both versions, coordinators let go of the old one");
    asked.end_round(&mut h);
    h.heading("it is decided: neither name can be described until the old version is refused everywhere");
    for name in ["test.t", "other.T"] {
        named(&mut h, api(151), SignalNumber::DescribeTableRequest, 3, name);
    }
    asked.end_all(&mut h);
    named(&mut h, api(151), SignalNumber::DescribeTableRequest, 4, "other.T");
    h.heading("what the requester thinks of it is no longer true");
    let pinned = Some(VersionedTable { table: 1, version: V });
    let (name, new_name) = ("other.T".into(), "test.t".into());
    change(&mut h, api(150), 5, SchemaChange::RenameTable { name, new_name, pinned });
    h.heading("an index is added: data managers fill it when nobody writes");
    let definition = TableDefinition { name: "other.T".into(), ..indexed_definition() };
    alter(&mut h, api(150), 6, definition);
    asked.end_all(&mut h);
    assert_eq!(names(&h), [(1, V + 2, "other.T")]);
    let databases: Vec<_> = h.block().databases().map(|d| d.name.as_str()).collect();
    assert_eq!(databases, ["other", "test"]);
    check("rename_and_alter.txt", &h);
}

#[test]
fn truncate_with_a_unique_index() {
    let (mut h, mut asked) = (harness_for(4), Asked::default());
    h.heading("a unique index has a hidden table, made in the same change and never listed");
    let unique = TableDefinition { indexes: vec![index(3, IndexKind::Unique)], ..definition("test.t") };
    send_create(&mut h, api(150), 1, unique.clone());
    asked.end_all(&mut h);
    list(&mut h, api(150), 2, 0);
    h.heading("truncate: both are made anew, then the old ones are freed");
    truncate(&mut h, api(150), 3, "test.t");
    asked.end_all(&mut h);
    assert_eq!(names(&h), [(3, V + 2, "test.t")]);
    h.heading("there is no room for both: nothing is taken");
    create(&mut h, api(150), 4, "test.u");
    asked.end_all(&mut h);
    truncate(&mut h, api(150), 5, "test.t");
    h.heading("the index is dropped: its hidden table goes");
    alter(&mut h, api(150), 6, definition("test.t"));
    asked.end_all(&mut h);
    h.heading("a new unique index is refused by whoever has rows: what was made is freed");
    alter(&mut h, api(150), 7, unique);
    asked.end_round(&mut h);
    asked.end_round(&mut h);
    asked.refuse(&mut h, DATA_MANAGERS[1], ErrorCode::NotSupportedYet);
    asked.end_all(&mut h);
    assert!(!h.block().is_changing());
    check("truncate_with_a_unique_index.txt", &h);
}

#[test]
fn a_fence() {
    let (mut h, mut asked) = (harness(), Asked::default());
    create(&mut h, api(150), 1, "test.t");
    asked.end_all(&mut h);
    h.heading("only 150 may change rows; the others' changes end first");
    fence(&mut h, api(150), 2, "test.t");
    asked.end_all(&mut h);
    h.heading("nobody else changes or fences the table");
    rename(&mut h, api(151), 3, "test.t", "test.u");
    fence(&mut h, api(151), 4, "test.t");
    h.heading("its owner may; the fence stays");
    rename(&mut h, api(150), 5, "test.t", "test.u");
    asked.end_all(&mut h);
    assert_eq!(h.block().fences().collect::<Vec<_>>(), [(1, NodeId(150))]);
    h.heading("it is lifted when its owner dies");
    dies(&mut h);
    h.heading(
        "what had been read of it before is not carried out: nobody would lift that fence, or free that lock",
    );
    fence(&mut h, api(150), 16, "test.u");
    lock(&mut h, api(150), 17, "late", 0);
    subscribe(&mut h, api(150), 18);
    assert!(!h.block().is_changing());
    assert_eq!((h.block().lock_holder(), h.block().subscribers().count()), (None, 0));
    h.heading("it is admitted again");
    api_connects(&mut h, 150);
    fence(&mut h, api(150), 6, "test.u");
    asked.note(&mut h);
    h.heading("it dies while the others' changes end: it never had it");
    dies(&mut h);
    asked.end_all(&mut h);
    assert_eq!(h.block().fences().count(), 0);
    api_connects(&mut h, 150);
    fence(&mut h, api(151), 7, "test.u");
    asked.end_all(&mut h);
    h.heading("it is lifted by its owner only");
    change(&mut h, api(150), 8, SchemaChange::LiftFence { table: 1 });
    assert_eq!(h.block().fences().count(), 1);
    change(&mut h, api(151), 9, SchemaChange::LiftFence { table: 1 });
    assert_eq!(h.block().fences().count(), 0);
    asked.end_all(&mut h);
    check("a_fence.txt", &h);
}

#[test]
fn a_copy_takes_the_place_of_a_fenced_table() {
    let (mut h, mut asked) = (harness(), Asked::default());
    subscribe(&mut h, api(151), 1);
    for (request, name) in [(2, "test.t"), (3, "test.copy")] {
        create(&mut h, api(150), request, name);
        asked.end_all(&mut h);
        seen(&mut h, api(151), u64::MAX);
    }
    h.take_sent();
    h.heading("refused: nobody has fenced the table, or somebody else; and a third table may have the name");
    let refused = |request, code| (SignalNumber::SchemaChangeRefuse, request, code);
    rename_copy(&mut h, api(150), 4, "test.copy", "test.t", 1);
    assert_eq!(refusals(&mut h), [refused(4, ErrorCode::StaleTable)]);
    fence(&mut h, api(150), 5, "test.t");
    asked.end_all(&mut h);
    rename_copy(&mut h, api(151), 6, "test.copy", "test.t", 1);
    rename_copy(&mut h, api(150), 7, "test.copy", "test.copy", 2);
    rename_copy(&mut h, api(150), 8, "test.t", "test.copy", 1);
    assert_eq!(
        refusals(&mut h),
        [
            refused(6, ErrorCode::StaleTable),
            refused(7, ErrorCode::StaleTable),
            refused(8, ErrorCode::TableExists),
        ]
    );
    h.heading("undone: both tables keep their names, and the fence stays");
    rename_copy(&mut h, api(150), 9, "test.copy", "test.t", 1);
    asked.refuse(&mut h, DATA_MANAGERS[0], ErrorCode::InternalError);
    asked.end_all(&mut h);
    assert_eq!(names(&h).iter().map(|table| table.2).collect::<Vec<_>>(), ["test.t", "test.copy"]);
    assert_eq!(h.block().fences().collect::<Vec<_>>(), [(1, NodeId(150))]);
    h.heading(
        "carried out: one event; the table that is replaced goes with its fence, which stands meanwhile",
    );
    rename_copy(&mut h, api(150), 10, "test.copy", "test.t", 1);
    asked.note(&mut h);
    change(&mut h, api(150), 14, SchemaChange::LiftFence { table: 1 });
    assert_eq!(refusals(&mut h).last(), Some(&refused(14, ErrorCode::SchemaBusy)));
    asked.end_all(&mut h);
    seen(&mut h, api(151), u64::MAX);
    assert_eq!(names(&h).iter().map(|table| (table.0, table.2)).collect::<Vec<_>>(), [(2, "test.t")]);
    assert_eq!(h.block().fences().count(), 0);
    h.heading("with another name the fenced table stays, and its fence");
    create(&mut h, api(150), 11, "test.copy");
    asked.end_all(&mut h);
    seen(&mut h, api(151), u64::MAX);
    fence(&mut h, api(150), 12, "test.t");
    asked.end_all(&mut h);
    rename_copy(&mut h, api(150), 13, "test.copy", "test.u", 2);
    asked.end_all(&mut h);
    seen(&mut h, api(151), u64::MAX);
    assert_eq!(
        names(&h).iter().map(|table| (table.0, table.2)).collect::<Vec<_>>(),
        [(1, "test.u"), (2, "test.t")]
    );
    assert_eq!(h.block().fences().collect::<Vec<_>>(), [(2, NodeId(150))]);
    check("a_copy_takes_the_place_of_a_fenced_table.txt", &h);
}

#[test]
fn a_fence_awaits_no_subscriber() {
    let (mut h, mut asked) = (harness(), Asked::default());
    create(&mut h, api(150), 1, "test.t");
    asked.end_all(&mut h);
    subscribe(&mut h, api(151), 2);
    h.heading("a fence has no event, so nobody is awaited");
    fence(&mut h, api(150), 3, "test.t");
    asked.end_all(&mut h);
    assert!(!h.block().is_changing());
    h.advance(EVENT_WAIT_MAX);
    h.heading("and nobody is late: the next change awaits who has had nothing to confirm");
    rename(&mut h, api(150), 4, "test.t", "test.u");
    asked.end_all(&mut h);
    assert!(h.block().is_changing());
    seen(&mut h, api(151), 3);
    assert!(!h.block().is_changing());
    check("a_fence_awaits_no_subscriber.txt", &h);
}

#[test]
fn events_are_awaited() {
    let (mut h, mut asked) = (harness(), Asked::default());
    for node in [150, 151, 152] {
        subscribe(&mut h, api(node), 1);
    }
    h.heading("the requester is answered when all the others have confirmed");
    create(&mut h, api(150), 2, "test.t");
    asked.end_all(&mut h);
    seen(&mut h, api(151), 2);
    h.heading("half of it is not enough");
    seen(&mut h, api(152), 1);
    assert!(h.block().is_changing());
    seen(&mut h, api(152), 2);
    assert!(!h.block().is_changing());
    h.heading("who dies is not awaited");
    rename(&mut h, api(150), 3, "test.t", "test.u");
    asked.end_all(&mut h);
    seen(&mut h, api(151), 3);
    api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 152);
    h.heading("who does not confirm is awaited for a while, and then no more until it has caught up");
    let database = Database { name: "new".into(), attachment: vec![1, 2] };
    change(&mut h, api(150), 4, SchemaChange::CreateDatabase(database));
    asked.end_all(&mut h);
    h.advance(EVENT_WAIT_MAX);
    assert!(h.has_met("subscriber did not confirm a schema event in time"));
    change(&mut h, api(150), 5, SchemaChange::DropDatabase { name: "new".into() });
    asked.end_all(&mut h);
    seen(&mut h, api(151), 5);
    change(&mut h, api(150), 6, SchemaChange::DropDatabase { name: "test".into() });
    asked.end_all(&mut h);
    h.heading("a later subscriber is notified from then on");
    api_connects(&mut h, 152);
    subscribe(&mut h, api(152), 7);
    named(&mut h, api(150), SignalNumber::DropTableRequest, 8, "test.u");
    asked.end_all(&mut h);
    seen(&mut h, api(152), 6);
    seen(&mut h, api(151), 6);
    assert!(!h.block().is_changing());
    check("events_are_awaited.txt", &h);
}

#[test]
fn the_schema_lock() {
    let mut h = harness();
    let noted = |h: &mut Harness<Dictionary>| confirm(h, OTHER_DICTIONARY, RoundName::NO_CHANGE);
    lock(&mut h, api(150), 1, "ALTER TABLE t", 1000);
    noted(&mut h);
    h.heading("others wait, each for its time");
    lock(&mut h, api(151), 2, "DROP TABLE t", 3000);
    lock(&mut h, api(152), 3, "TRUNCATE t", 2000);
    lock(&mut h, api(153), 4, "RENAME t", 60_000);
    lock(&mut h, api(154), 5, "never", 0);
    h.advance(Span::from_millis(2000));
    h.heading("it is let go, the next gets it; who has gone is passed over");
    unlock(&mut h, api(150), 1);
    noted(&mut h);
    noted(&mut h);
    assert_eq!(h.block().lock_holder(), Some(NodeId(151)));
    lock(&mut h, api(150), 6, "again", 60_000);
    api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 153);
    api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 151);
    noted(&mut h);
    noted(&mut h);
    assert_eq!(h.block().lock_holder(), Some(NodeId(150)));
    h.heading("nobody lets go of what is another's, or wanted by another request");
    unlock(&mut h, api(152), 6);
    noted(&mut h);
    unlock(&mut h, api(150), 1);
    noted(&mut h);
    assert_eq!(h.block().lock_holder(), Some(NodeId(150)));
    unlock(&mut h, api(150), 6);
    noted(&mut h);
    assert_eq!(h.block().lock_holder(), None);
    check("the_schema_lock.txt", &h);
}

#[test]
fn data_node_failure() {
    let mut h = harness();
    h.heading("create while node 2 fails: its answers are not awaited, it is sent nothing more");
    create(&mut h, api(150), 1, "test.items");
    let mut asked = Asked::default();
    asked.confirm(&mut h, DATA_MANAGERS[0]);
    h.lose_node(NodeId(2));
    assert!(h.has_met("schema change goes on without a failed data node"));
    carry_out(&mut h);
    assert_eq!(names(&h), [(1, V, "test.items")]);
    h.heading("transactions of its coordinator use the table until its successor has ended them");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 2, "test.items");
    carry_out(&mut h);
    assert!(h.has_met("schema change waits for transactions of a failed coordinator"));
    assert_eq!(names(&h), [(1, V, "test.items")]);
    taken_over(&mut h, COORDINATORS[1], COORDINATORS[0]);
    carry_out(&mut h);
    assert!(names(&h).is_empty() && !h.block().is_changing());
    check("data_node_failure.txt", &h);
}

#[test]
fn limits_are_named() {
    let mut h = harness();
    create(&mut h, api(150), 1, "nodatabase");
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 1, ErrorCode::BadTableDefinition)]);
    assert!(h.scenario().contains("detail: \"the table name 'nodatabase' has no database"));
    for request in 1..=TABLES_MAX {
        create(&mut h, api(150), request, &format!("test.t{request}"));
        carry_out(&mut h);
    }
    create(&mut h, api(150), 9, "test.t9");
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 9, ErrorCode::OutOfTables)]);
    assert!(h.scenario().contains("detail: \"MaxNoOfTables is 3\""));
    // One change is under way, as many as may wait do, then there is no more room.
    named(&mut h, api(150), SignalNumber::DropTableRequest, 10, "test.t1");
    for request in 0..QUEUED_CHANGES_MAX as u32 {
        named(&mut h, api(150), SignalNumber::DropTableRequest, request, "test.t2");
    }
    assert_eq!(refusals(&mut h), []);
    named(&mut h, api(150), SignalNumber::DropTableRequest, 100, "test.t3");
    create(&mut h, api(150), 101, "test.t4");
    assert_eq!(
        refusals(&mut h),
        [
            (SignalNumber::DropTableRefuse, 100, ErrorCode::SchemaBusy),
            (SignalNumber::CreateTableRefuse, 101, ErrorCode::SchemaBusy)
        ]
    );
}

/// The greatest definition that is allowed fits every frame; a greater one is refused with a sentence.
#[test]
fn a_definition_fits_its_frames() {
    let wide = |extra: usize| {
        let mut definition = definition(&format!("{}.{}", "d".repeat(64), "t".repeat(64)));
        let column = definition.columns[0].clone();
        // 440 names of 256 bytes, all different; an attachment takes what is left to the limit.
        definition.columns.extend((0..440u32).map(|i| {
            let suffix: String =
                format!("{i:04}").chars().map(|c| char::from_u32(0x1F600 + c as u32).unwrap()).collect();
            ColumnDefinition { name: "😀".repeat(60) + &suffix, ..column.clone() }
        }));
        let used: usize =
            definition.columns.iter().map(|c| c.name.len()).sum::<usize>() + definition.name.len();
        assert!(used < 120_000);
        let left = 120_000 - cold::length(&definition) + extra;
        // A length above 127 takes two bytes.
        definition.attachment = vec![7; left - 2 + 1];
        definition.attachment.truncate(left - 1);
        assert_eq!(cold::length(&definition), 120_000 + extra);
        assert_eq!(definition.check(), Ok(()));
        definition
    };
    let mut h = harness();
    send_create(&mut h, api(150), 1, wide(0));
    carry_out(&mut h);
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 2, &wide(0).name);
    let sent = h.take_sent();
    let described: TableConfirm = cold::read(&sent[0].frame()).expect("a whole body");
    assert_eq!(described.table.definition, wide(0));
    send_create(&mut h, api(150), 3, wide(1));
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 3, ErrorCode::BadTableDefinition)]);
    assert!(h.scenario().contains("names, indexes and attachment of 120001 bytes; 120000 are allowed"));
}

#[test]
fn a_long_list_comes_in_pieces() {
    let mut h = harness_for(1000);
    let name = |i: u32| format!("{}.{i:03}", "😀".repeat(64));
    for i in 0..300 {
        create(&mut h, api(150), i, &name(i));
        carry_out(&mut h);
    }
    let (mut after, mut listed, mut pieces) = (0, Vec::new(), 0);
    loop {
        list(&mut h, api(150), 1, after);
        let sent = h.take_sent();
        let piece: ListTablesConfirm = cold::read(&sent[0].frame()).expect("a whole body");
        after = piece.tables.last().expect("a piece holds a table").0;
        listed.extend(piece.tables.into_iter().map(|(_, _, name)| name));
        pieces += 1;
        if !piece.more {
            break;
        }
    }
    assert_eq!(listed, (0..300).map(name).collect::<Vec<_>>());
    assert!(pieces > 2);
    list(&mut h, api(150), 1, u32::MAX);
    let sent = h.take_sent();
    let piece: ListTablesConfirm = cold::read(&sent[0].frame()).expect("a whole body");
    assert!(piece.tables.is_empty() && !piece.more);
}

#[test]
fn malformed_requests_are_refused() {
    let mut h = harness();
    let cases = [
        (SignalNumber::CreateTableRequest, SignalNumber::CreateTableRefuse),
        (SignalNumber::DropTableRequest, SignalNumber::DropTableRefuse),
        (SignalNumber::DescribeTableRequest, SignalNumber::DescribeTableRefuse),
        (SignalNumber::SchemaChangeRequest, SignalNumber::SchemaChangeRefuse),
        (SignalNumber::SchemaLockRequest, SignalNumber::SchemaLockRefuse),
        (SignalNumber::DescribeDatabaseRequest, SignalNumber::DescribeDatabaseRefuse),
        (SignalNumber::ListDatabasesRequest, SignalNumber::ListDatabasesRefuse),
    ];
    for (request, refusal) in cases {
        h.send(api(150), request, |_| ()).expect("the executor sees no body");
        // A tag and then nonsense: the tag is sent back.
        h.send(api(150), request, |writer| {
            writer.bytes(&[3, 0, 0, 0, 77, 200, 1]);
        })
        .expect("the executor sees no body");
        let malformed = ErrorCode::MalformedSignal;
        assert_eq!(refusals(&mut h), [(refusal, 0, malformed), (refusal, 77, malformed)]);
    }
    // Whatever follows a tag may be a place in the list.
    h.send(api(150), SignalNumber::ListTablesRequest, |_| ()).expect("the executor sees no body");
    assert_eq!(refusals(&mut h), [(SignalNumber::ListTablesRefuse, 0, ErrorCode::MalformedSignal)]);
    h.send(api(150), SignalNumber::HeartbeatRequest, |_| ())
        .expect("the executor doesn't know who handles what");
    assert_eq!(h.take_sent()[0].signal(), SignalNumber::CloseConnectionOrder);
}

/// An answer that nobody waits for, or that is about another version, changes nothing.
#[test]
fn stray_answers_change_nothing() {
    let mut h = harness();
    let stray = |h: &mut Harness<Dictionary>, from: Address, round| {
        confirm(h, from, round);
        refuse(h, from, ErrorCode::OutOfTables, round);
    };
    let (noting, round) = (RoundName { change: 1, step: 1 }, RoundName { change: 1, step: 2 });
    stray(&mut h, DATA_MANAGERS[0], noting);
    create(&mut h, api(150), 1, "test.items");
    h.take_sent();
    stray(&mut h, DATA_MANAGERS[0], round);
    stray(&mut h, DATA_MANAGERS[0], noting);
    assert!(h.take_sent().is_empty());
    confirm(&mut h, OTHER_DICTIONARY, noting);
    h.take_sent();
    stray(&mut h, COORDINATORS[0], round);
    stray(&mut h, OTHER_DICTIONARY, round);
    stray(&mut h, DATA_MANAGERS[0], noting);
    stray(&mut h, DATA_MANAGERS[0], RoundName { step: 3, ..round });
    stray(&mut h, DATA_MANAGERS[0], RoundName { change: 2, ..round });
    assert!(h.take_sent().is_empty());
    for block in DATA_MANAGERS {
        confirm(&mut h, block, round);
    }
    carry_out(&mut h);
    assert_eq!(names(&h), [(1, V, "test.items")]);
}

/// A transaction that ended before a table was changed has an epoch that is not after the change's.
#[test]
fn the_epoch_of_a_change_is_not_before_what_came_before_it() {
    let mut h = harness();
    create(&mut h, api(150), 1, "test.items");
    let mut epochs = Vec::new();
    loop {
        let sent = h.take_sent();
        if sent.is_empty() {
            break;
        }
        for sent in sent.iter().filter(|sent| sent.signal() == SignalNumber::SchemaRoundRequest) {
            let body: SchemaRoundRequest = cold::read(&sent.frame()).expect("a whole body");
            epochs.push(body.epoch);
            let newest = if sent.receiver() == DATA_MANAGERS[1] { Epoch(40) } else { Epoch(7) };
            confirm_in(&mut h, sent.receiver(), body.round, newest);
        }
    }
    let expected = [0, 0, 0, 40, 40, 40, 0].map(Epoch);
    assert_eq!(
        epochs, expected,
        "the other dictionary, two data managers, the other dictionary, two coordinators, and its end"
    );
}
