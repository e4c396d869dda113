//! Golden stories of schema changes, and what API nodes can get wrong.

mod common;

use common::*;
use std::path::PathBuf;
use vinga_base::schema::ColumnDefinition;
use vinga_dictionary::{Dictionary, QUEUED_CHANGES_MAX, first_version};
use vinga_kernel::testkit::{Harness, check_golden};
use vinga_wire::dictionary::{ListTablesConfirm, TableAddRequest, TableBody, TableConfirm};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, ErrorCode, SignalNumber, cold};

fn check(name: &str, harness: &Harness<Dictionary>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    check_golden(&path, harness.story());
}

const V: u64 = first_version(1).0;

/// What blocks were asked and have not answered yet: (block, the confirming signal, table, version).
#[derive(Default)]
struct Asked(Vec<(Address, SignalNumber, u32, u64)>);

impl Asked {
    fn note(&mut self, h: &mut Harness<Dictionary>) {
        for sent in h.take_sent() {
            let frame = sent.frame();
            let (confirm, body) = match sent.signal() {
                SignalNumber::TableAddRequest => {
                    let TableAddRequest { table } = cold::read(&frame).expect("a whole body");
                    let body = TableBody { table: table.table, version: table.version };
                    (SignalNumber::TableAddConfirm, Some(body))
                }
                SignalNumber::TableStopRequest => (SignalNumber::TableStopConfirm, cold::read(&frame)),
                SignalNumber::TableRemoveRequest => (SignalNumber::TableRemoveConfirm, cold::read(&frame)),
                _ => continue,
            };
            let TableBody { table, version } = body.expect("a whole body");
            self.0.push((sent.receiver(), confirm, table, version));
        }
    }

    /// What a block was asked first.
    fn first_of(&mut self, h: &mut Harness<Dictionary>, block: Address) -> (SignalNumber, u32, u64) {
        self.note(h);
        let at = self.0.iter().position(|asked| asked.0 == block).expect("it was asked");
        let (_, confirm, table, version) = self.0.remove(at);
        (confirm, table, version)
    }

    /// A block does what it was asked.
    fn confirm(&mut self, h: &mut Harness<Dictionary>, block: Address) {
        let (confirm, table, version) = self.first_of(h, block);
        answer(h, block, confirm, table, version);
    }

    /// A block can't do what it was asked.
    fn refuse(&mut self, h: &mut Harness<Dictionary>, block: Address, code: ErrorCode) {
        let (_, table, version) = self.first_of(h, block);
        refuse(h, block, code, table, version);
    }

    /// Everybody does what was asked so far: the present round ends.
    fn end_round(&mut self, h: &mut Harness<Dictionary>) {
        self.note(h);
        for (block, confirm, table, version) in std::mem::take(&mut self.0) {
            answer(h, block, confirm, table, version);
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
fn obey(h: &mut Harness<Dictionary>) {
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
    h.heading("create: data managers first, then coordinators, then the API node is told");
    create(&mut h, api(150), 1, "test.Items");
    asked.end_all(&mut h);
    h.heading("describe, without regard to case; list");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 2, "TEST.items");
    list(&mut h, api(150), 3, 0);
    h.heading("a second table of that name is refused");
    create(&mut h, api(151), 4, "test.ITEMS");
    h.heading("drop: coordinators let go of it, then data managers free it; nobody can see it meanwhile");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 5, "test.items");
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 6, "test.items");
    h.heading("a create of the same name waits for that");
    create(&mut h, api(151), 7, "test.items");
    asked.end_round(&mut h);
    h.heading("the id is used again with another version");
    asked.end_all(&mut h);
    h.heading("what is not there can't be dropped");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 8, "test.other");
    assert_eq!(names(&h), [(1, V + 1, "test.items")]);
    check("create_and_drop.txt", &h);
}

#[test]
fn create_with_a_refusing_data_manager() {
    let (mut h, mut asked) = (harness(), Asked::default());
    h.heading(
        "one data manager refuses: the other is told to remove the table, no coordinator ever heard of it",
    );
    create(&mut h, api(150), 1, "test.items");
    asked.refuse(&mut h, DATA_MANAGERS[0], ErrorCode::DataMemoryFull);
    asked.end_all(&mut h);
    h.heading("all refuse: nothing is to be removed, the first reason counts");
    create(&mut h, api(150), 2, "test.items");
    asked.refuse(&mut h, DATA_MANAGERS[1], ErrorCode::OutOfTables);
    asked.refuse(&mut h, DATA_MANAGERS[0], ErrorCode::DataMemoryFull);
    h.heading("a coordinator refuses: the other lets go of the table first");
    create(&mut h, api(150), 3, "test.items");
    asked.end_round(&mut h);
    asked.confirm(&mut h, COORDINATORS[1]);
    asked.refuse(&mut h, COORDINATORS[0], ErrorCode::OutOfTables);
    asked.end_all(&mut h);
    assert!(names(&h).is_empty() && !h.block().is_changing());
    check("create_with_a_refusing_data_manager.txt", &h);
}

/// Steps of a create, of a create that is undone, and of a drop: in each of them the API node dies once.
#[test]
fn asker_dies_in_each_step() {
    let (mut h, mut asked) = (harness(), Asked::default());
    let dies = |h: &mut Harness<Dictionary>| {
        api_gone(h, SignalNumber::ApiConnectionClosedOrder, 150);
        api_gone(h, SignalNumber::ApiFailedOrder, 150);
    };
    h.heading("create, the API node dies while data managers make their fragments: the table is made");
    create(&mut h, api(150), 1, "test.first");
    asked.confirm(&mut h, DATA_MANAGERS[0]);
    dies(&mut h);
    asked.end_all(&mut h);
    h.heading("create, it dies while coordinators learn the table: the table is made");
    create(&mut h, api(150), 2, "test.second");
    asked.end_round(&mut h);
    dies(&mut h);
    asked.end_all(&mut h);
    h.heading("create, it dies before somebody refuses: the create is undone");
    create(&mut h, api(150), 3, "test.undone");
    dies(&mut h);
    asked.refuse(&mut h, DATA_MANAGERS[1], ErrorCode::DataMemoryFull);
    asked.end_all(&mut h);
    h.heading("create, it dies while data managers undo it");
    create(&mut h, api(150), 4, "test.undone");
    asked.refuse(&mut h, DATA_MANAGERS[1], ErrorCode::DataMemoryFull);
    asked.end_round(&mut h);
    dies(&mut h);
    asked.end_all(&mut h);
    h.heading("create, it dies while coordinators undo it");
    create(&mut h, api(150), 5, "test.undone");
    asked.end_round(&mut h);
    asked.refuse(&mut h, COORDINATORS[0], ErrorCode::OutOfTables);
    asked.end_round(&mut h);
    dies(&mut h);
    asked.end_all(&mut h);
    h.heading("drop, it dies while coordinators let go: the table is dropped");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 6, "test.first");
    dies(&mut h);
    asked.end_all(&mut h);
    h.heading("drop, it dies while data managers free the rows: the table is dropped");
    named(&mut h, api(150), SignalNumber::DropTableRequest, 7, "test.second");
    asked.end_round(&mut h);
    dies(&mut h);
    asked.end_all(&mut h);
    assert!(names(&h).is_empty());
    h.heading("what it asked for and waits behind somebody else's change is forgotten");
    create(&mut h, api(151), 8, "test.others");
    create(&mut h, api(150), 9, "test.waits");
    dies(&mut h);
    asked.end_all(&mut h);
    assert_eq!(names(&h), [(1, V + 5, "test.others")]);
    assert!(!h.block().is_changing());
    check("asker_dies_in_each_step.txt", &h);
}

#[test]
fn data_node_failure() {
    let mut h = harness();
    h.heading("create while node 2 fails: its answers are not awaited, it is told nothing more");
    create(&mut h, api(150), 1, "test.items");
    answer(&mut h, DATA_MANAGERS[0], SignalNumber::TableAddConfirm, 1, V);
    h.take_sent();
    fail_node(&mut h, 2);
    assert!(h.has_met("schema change goes on without a failed data node"));
    obey(&mut h);
    assert_eq!(names(&h), [(1, V, "test.items")]);
    named(&mut h, api(150), SignalNumber::DropTableRequest, 2, "test.items");
    obey(&mut h);
    assert!(names(&h).is_empty() && !h.block().is_changing());
    check("data_node_failure.txt", &h);
}

#[test]
fn limits_are_named() {
    let mut h = harness();
    create(&mut h, api(150), 1, "nodatabase");
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 1, ErrorCode::BadTableDefinition)]);
    assert!(h.story().contains("detail: \"the table name 'nodatabase' has no database"));
    for request in 1..=TABLES_MAX {
        create(&mut h, api(150), request, &format!("test.t{request}"));
        obey(&mut h);
    }
    create(&mut h, api(150), 9, "test.t9");
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 9, ErrorCode::OutOfTables)]);
    assert!(h.story().contains("detail: \"MaxNoOfTables is 3\""));
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
        // 467 names of 256 bytes, all different; then what is left to the limit.
        definition.columns.extend((0..467u32).map(|i| {
            let suffix: String =
                format!("{i:04}").chars().map(|c| char::from_u32(0x1F600 + c as u32).unwrap()).collect();
            ColumnDefinition { name: "😀".repeat(60) + &suffix, ..column.clone() }
        }));
        let used: usize =
            definition.columns.iter().map(|c| c.name.len()).sum::<usize>() + definition.name.len();
        let mut left = 120_000 - used + extra;
        while left > 0 {
            let bytes = left.min(60);
            let name = format!("{:x<bytes$}", definition.columns.len());
            left -= name.len();
            definition.columns.push(ColumnDefinition { name, ..column.clone() });
        }
        assert_eq!(definition.check(), Ok(()));
        definition
    };
    let mut h = harness();
    send_create(&mut h, api(150), 1, wide(0));
    obey(&mut h);
    named(&mut h, api(150), SignalNumber::DescribeTableRequest, 2, &wide(0).name);
    let sent = h.take_sent();
    let described: TableConfirm = cold::read(&sent[0].frame()).expect("a whole body");
    assert_eq!(described.table.definition, wide(0));
    send_create(&mut h, api(150), 3, wide(1));
    assert_eq!(refusals(&mut h), [(SignalNumber::CreateTableRefuse, 3, ErrorCode::BadTableDefinition)]);
    assert!(h.story().contains("names of 120001 bytes together; 120000 are allowed"));
}

#[test]
fn a_long_list_comes_in_pieces() {
    let mut h = harness_for(1000);
    let name = |i: u32| format!("{}.{i:03}", "😀".repeat(64));
    for i in 0..300 {
        create(&mut h, api(150), i, &name(i));
        obey(&mut h);
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
    ];
    for (request, refusal) in cases {
        h.send(api(150), request, |_| ()).expect("the executor sees no body");
        // A tag and then nonsense: the tag is told back.
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
    let stray = |h: &mut Harness<Dictionary>, from: Address, version| {
        answer(h, from, SignalNumber::TableAddConfirm, 1, version);
        refuse(h, from, ErrorCode::OutOfTables, 1, version);
        answer(h, from, SignalNumber::TableStopConfirm, 1, version);
        answer(h, from, SignalNumber::TableRemoveConfirm, 1, version);
    };
    stray(&mut h, DATA_MANAGERS[0], V);
    create(&mut h, api(150), 1, "test.items");
    h.take_sent();
    stray(&mut h, COORDINATORS[0], V);
    stray(&mut h, DATA_MANAGERS[0], V + 1);
    assert!(h.take_sent().is_empty());
    for block in DATA_MANAGERS.into_iter().chain(COORDINATORS) {
        answer(&mut h, block, SignalNumber::TableAddConfirm, 1, V);
    }
    assert_eq!(names(&h), [(1, V, "test.items")]);
}
