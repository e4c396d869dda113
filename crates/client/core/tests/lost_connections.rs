//! What a client does when connections and data nodes are lost, with frames written by hand: a scripted node does not
//! send what these scenarios need, answers in another order than the questions, or views of other data nodes.

use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Incarnation, NodeId, TablePartitions};
use vinga_client_core::{
    BatchEnd, Client, Command, LinkId, OperationBatch, OperationSpec, RowBuilder, ScanProgress, ScanSpec,
    Settings, Span, Standing, Table, Tick, Token,
};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::frame::Frames;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, PROTOCOL_VERSION, Refusal};
use vinga_wire::membership::HeartbeatBody;
use vinga_wire::operation::OperationKind;
use vinga_wire::scan::{SCAN_END, ScanAnswer, ScanOpenHead};
use vinga_wire::transaction::{Outcome, OutcomeConfirm, OutcomeRequest, TransactionHead};
use vinga_wire::view::{ClusterView, ConnectionHosts, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U16, U32, U64, cold};
use zerocopy::IntoBytes;

/// View 1 of data nodes 1, 2 … in these node groups.
fn first_view(groups: &[u16]) -> ClusterView {
    let hosts = || vec![ConnectionHosts { data_managers: vec![0, 1], coordinators: vec![0] }];
    let member =
        |(id, &group)| Member::started(NodeId(id), Incarnation(1), group, 2, 1).with_connections(hosts());
    ClusterView::first((1..).zip(groups).map(member).collect())
}

fn table(partitions: u16) -> Table {
    let definition = TableDefinition {
        name: "test.t".into(),
        columns: vec![ColumnDefinition {
            name: "id".into(),
            column_type: ColumnType::Integer { bytes: 8, signed: false },
            nullable: false,
        }],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    };
    Table::new(TableRecord::new(1, 1, TablePartitions::first(partitions), definition)).unwrap()
}

/// Address number `endpoint` leads to data node `endpoint + 1`.
fn node_at(link: LinkId) -> u8 {
    link.endpoint() as u8 + 1
}

/// A client whose data nodes are played by the test.
struct Rig {
    client: Client,
    now: Tick,
    /// How often the cluster has admitted it.
    admission: u32,
}

/// A frame that the client has sent, and by which connection.
struct Sent {
    link: LinkId,
    bytes: Vec<u8>,
}

impl Sent {
    fn frame(&self) -> Frame<'_> {
        Frame::first(&self.bytes).unwrap().unwrap()
    }
}

impl Rig {
    fn new(endpoints: u16) -> Self {
        let addresses = (1..=endpoints).map(|node| format!("node{node}")).collect();
        let client = Client::new(Settings { addresses, ..Settings::default() });
        Rig { client, now: Tick(0), admission: 1 }
    }

    fn advance(&mut self, millis: u64) {
        self.now = self.now + Span::from_millis(millis);
        self.client.on_time(self.now);
    }

    /// Takes what the client has sent, of this kind.
    fn sent(&mut self, signal: SignalNumber) -> Vec<Sent> {
        let (mut all, mut buffer) = (vec![], vec![]);
        while let Some(link) = self.client.next_output(&mut buffer) {
            for frame in Frames(&buffer) {
                all.push(Sent { link, bytes: [frame.header.as_bytes(), frame.body].concat() });
            }
            buffer.clear();
        }
        all.retain(|sent| sent.frame().signal() == Some(signal));
        all
    }

    fn feed(
        &mut self,
        link: LinkId,
        signal: SignalNumber,
        from: BlockNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let mut bytes = vec![];
        let (to, from) =
            (Address::new(NodeId(145), BlockNumber::Api, 0), Address::new(NodeId(node_at(link)), from, 0));
        body(&mut FrameWriter::begin(&mut bytes, signal, 1, to, from, 0));
        assert_eq!(self.client.on_bytes(link, &bytes), bytes.len());
    }

    /// Opens what the client wants opened, and returns its greetings.
    fn greetings(&mut self) -> Vec<(LinkId, HelloRequest)> {
        while let Some(command) = self.client.next_command() {
            if let Command::Open(link) = command {
                self.client.on_opened(link);
            }
        }
        let greetings = self.sent(SignalNumber::HelloRequest).into_iter();
        greetings.map(|sent| (sent.link, cold::read(&sent.frame()).unwrap())).collect()
    }

    /// The data node at the other end admits the client.
    fn admit(&mut self, link: LinkId, view: &ClusterView) {
        let confirm = HelloConfirm {
            version: PROTOCOL_VERSION,
            node: node_at(link),
            incarnation: 1,
            cluster_incarnation: 7,
            database: 7,
            api: 145,
            ticket: 99,
            view: view.clone(),
            api_incarnation: 1,
            admission: self.admission,
        };
        self.feed(link, SignalNumber::HelloConfirm, BlockNumber::Driver, |w| cold::write(w, &confirm));
    }

    /// The client is admitted wherever it greets now.
    fn admit_all(&mut self, view: &ClusterView) {
        for (link, _) in self.greetings() {
            self.admit(link, view);
        }
    }

    /// A client that is connected to all data nodes of a view.
    fn connected(endpoints: u16, view: &ClusterView) -> Self {
        let mut rig = Rig::new(endpoints);
        for _ in 0..endpoints {
            rig.advance(11);
            rig.admit_all(view);
        }
        assert!(rig.client.endpoints().iter().all(|endpoint| endpoint.is_connected));
        rig
    }

    /// A connection breaks; the client closes all to that data node.
    fn break_link(&mut self, link: LinkId) {
        self.client.on_broken(link, "broken");
        while self.client.next_command().is_some() {}
    }

    fn commit_insert(&mut self, table: &Table, key: u64) -> Token {
        let mut image = vec![];
        let mut builder = RowBuilder::default();
        builder.begin(table);
        builder.set(table, ColumnId(0), &key).unwrap();
        builder.finish(table, &mut image).unwrap();
        let mut batch = OperationBatch::default();
        batch.push(&OperationSpec::new(table, OperationKind::Insert, &[], &image)).unwrap();
        let token = self.client.begin().unwrap();
        self.client.send(token, batch, BatchEnd::Commit);
        token
    }

    /// The transactions that were sent, with the outcomes that the client says to have seen.
    fn transactions_sent(&mut self) -> Vec<(u64, u32)> {
        let read = |sent: Sent| {
            let frame = sent.frame();
            let (head, _) = frame.head::<TransactionHead>().unwrap();
            (head.transaction.get(), head.outcomes_seen.get())
        };
        self.sent(SignalNumber::TransactionRequest).into_iter().map(read).collect()
    }

    /// The transactions whose outcomes the client asks for, with the tags of its questions.
    fn questions(&mut self) -> Vec<(u64, u32)> {
        let read = |sent: Sent| {
            let frame = sent.frame();
            let (question, _) = frame.head::<OutcomeRequest>().unwrap();
            (question.transaction.get(), question.request.get())
        };
        self.sent(SignalNumber::OutcomeRequest).into_iter().map(read).collect()
    }

    /// The coordinator answers a question: with an outcome's number, or that there is none.
    fn answer(&mut self, link: LinkId, question: (u64, u32), number: Option<u32>) {
        let (transaction, request) = question;
        let body = OutcomeConfirm {
            transaction: U64::new(transaction),
            epoch: U64::new(5),
            request: U32::new(request),
            outcome_number: U32::new(number.unwrap_or(0)),
            outcome: number.map_or(Outcome::NotFound, |_| Outcome::Committed) as u8,
            unused: [0; 3],
        };
        self.feed(link, SignalNumber::OutcomeConfirm, BlockNumber::Coordinator, |w| {
            w.put(&body);
        });
    }

    fn standing(&mut self, token: Token) -> vinga_client_core::Result<Standing> {
        self.client.take_operations(token).expect("it is over").standing()
    }
}

/// A client that has no ticket greets one data node at a time. Those that don't answer keep it from none of the others.
#[test]
fn each_data_node_is_greeted_in_turn() {
    let mut rig = Rig::new(3);
    let mut greeted = Vec::new();
    for _ in 0..60 {
        rig.advance(1000);
        greeted.extend(rig.greetings().into_iter().map(|(link, _)| node_at(link)));
    }
    let in_turn: Vec<u8> = (1..=3).cycle().take(greeted.len()).collect();
    assert!(greeted.len() >= 6, "each greeting is given up after a while: {greeted:?}");
    assert_eq!(greeted, in_turn);
}

/// The answers to two commits are lost with a connection. The second was committed first, so the answer to the first
/// question has the greater number: when it comes alone, the other outcome is not known yet.
#[test]
fn outcomes_are_seen_when_all_questions_are_answered() {
    let link = LinkId::new(0, 0);
    let (view, table) = (first_view(&[0]), table(2));
    let mut rig = Rig::connected(1, &view);
    let (first, second) = (rig.commit_insert(&table, 1), rig.commit_insert(&table, 2));
    let ids: Vec<u64> = rig.transactions_sent().into_iter().map(|(id, _)| id).collect();
    rig.break_link(link);
    rig.advance(50);
    rig.admit_all(&view);
    let questions = rig.questions();
    assert_eq!(questions.iter().map(|&(id, _)| id).collect::<Vec<_>>(), ids);
    rig.answer(link, questions[0], Some(2));
    assert_eq!(rig.client.rollback_cause(first), None, "it was not rolled back");
    assert!(matches!(rig.standing(first), Ok(Standing::Committed(_))));
    let _third = rig.commit_insert(&table, 3);
    let seen: Vec<u32> = rig.transactions_sent().into_iter().map(|(_, seen)| seen).collect();
    assert_eq!(seen, [0], "the coordinator would forget number 1, of which the client knows nothing");
    // Nor is it said when the client is idle.
    for _ in 0..30 {
        rig.advance(20);
        let orders = rig.sent(SignalNumber::OutcomesSeenOrder);
        assert!(orders.is_empty());
    }
    // The other answer is lost, too, and asked for once more.
    rig.break_link(link);
    rig.advance(100);
    rig.admit_all(&view);
    let questions = rig.questions();
    assert_eq!(questions.len(), 2, "the third one is asked for as well");
    let of_second = questions.iter().find(|(id, _)| *id == ids[1]).unwrap();
    rig.answer(link, *of_second, Some(1));
    assert!(matches!(rig.standing(second), Ok(Standing::Committed(_))));
    rig.commit_insert(&table, 4);
    assert_eq!(rig.transactions_sent()[0].1, 0, "what became of the third is not known");
    let of_third = questions.iter().find(|(id, _)| *id != ids[1]).unwrap();
    rig.answer(link, *of_third, Some(3));
    rig.commit_insert(&table, 5);
    assert_eq!(rig.transactions_sent()[0].1, 3);
}

/// Nobody waits for the answer to a question any more: the outcome is not known all the same.
#[test]
fn questions_of_nobody_are_open_until_they_are_answered() {
    let link = LinkId::new(0, 0);
    let (view, table) = (first_view(&[0]), table(2));
    let mut rig = Rig::connected(1, &view);
    let (first, second) = (rig.commit_insert(&table, 1), rig.commit_insert(&table, 2));
    rig.break_link(link);
    rig.client.cancel(first);
    rig.advance(50);
    rig.admit_all(&view);
    let questions = rig.questions();
    rig.answer(link, questions[0], Some(2));
    rig.commit_insert(&table, 3);
    assert_eq!(rig.transactions_sent()[0].1, 0);
    rig.answer(link, questions[1], Some(1));
    let _ = rig.client.take_operations(second);
    rig.commit_insert(&table, 4);
    assert_eq!(rig.transactions_sent()[0].1, 2);
}

/// A greeting says which data nodes may not know that the session's connections to them are lost.
#[test]
fn a_greeting_names_the_data_nodes_whose_connections_were_lost() {
    let view = first_view(&[0, 0]);
    let mut rig = Rig::connected(2, &view);
    let (first, second) = (LinkId::new(0, 0), LinkId::new(1, 0));
    let lost_of = |rig: &mut Rig| -> Vec<(LinkId, Vec<u8>)> {
        rig.greetings().into_iter().map(|(link, hello)| (link, hello.lost)).collect()
    };
    rig.break_link(second);
    rig.advance(50);
    assert_eq!(lost_of(&mut rig), [(second, vec![2])]);
    // The attempt fails; meanwhile the other one is lost, too.
    rig.break_link(second);
    rig.break_link(first);
    rig.advance(50);
    assert_eq!(lost_of(&mut rig), [(first, vec![1, 2]), (second, vec![1, 2])]);
    // The next admission means that everything before is over.
    rig.admission = 2;
    rig.admit(first, &view);
    rig.break_link(second);
    rig.advance(100);
    assert_eq!(lost_of(&mut rig), [(second, vec![])]);
    rig.admit(second, &view);
    rig.break_link(first);
    rig.advance(100);
    assert_eq!(lost_of(&mut rig), [(first, vec![1])]);
}

/// The cluster may have begun a session for a greeting whose answer was lost: a session that is asked for later must not
/// count as the older one. A refusal leaves nothing behind.
#[test]
fn who_asks_for_a_session_once_more_asks_for_a_newer_one() {
    let view = first_view(&[0]);
    let link = LinkId::new(0, 0);
    let mut rig = Rig::new(1);
    let requested = |rig: &mut Rig| {
        rig.advance(2000);
        let greetings = rig.greetings();
        assert_eq!((greetings.len(), greetings[0].1.ticket), (1, 0));
        greetings[0].1.incarnation
    };
    let refuse = |rig: &mut Rig, code: ErrorCode| {
        let refusal = Refusal { request: 0, code: code as u16, detail: String::new() };
        rig.feed(link, SignalNumber::HelloRefuse, BlockNumber::Driver, |w| cold::write(w, &refusal));
        while rig.client.next_command().is_some() {}
    };
    assert_eq!(requested(&mut rig), 1);
    rig.break_link(link);
    assert_eq!(requested(&mut rig), 2);
    refuse(&mut rig, ErrorCode::NodeIdInUse);
    assert_eq!(requested(&mut rig), 2);
    // It is admitted as incarnation 1, and later declared failed.
    rig.admit(link, &view);
    rig.break_link(link);
    rig.advance(2000);
    assert_eq!(rig.greetings()[0].1.incarnation, 1);
    refuse(&mut rig, ErrorCode::UnknownOutcome);
    assert_eq!(requested(&mut rig), 3);
}

/// The partitions of scans that were opened, and where.
fn opened(rig: &mut Rig) -> Vec<(LinkId, u32, u16)> {
    let read = |sent: Sent| {
        let frame = sent.frame();
        let (head, _) = frame.head::<ScanOpenHead>().unwrap();
        (sent.link, head.scan.get(), head.partition.get())
    };
    rig.sent(SignalNumber::ScanOpenRequest).into_iter().map(read).collect()
}

/// A data node that is not there any more accepts no connections; the others go on.
fn minutes_pass(rig: &mut Rig, lost: &[u16], alive: &[u16]) {
    for _ in 0..300 {
        rig.advance(1000);
        for &endpoint in alive {
            let link = LinkId::new(endpoint, 0);
            rig.feed(link, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
                w.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
            });
        }
        rig.greetings();
        lost.iter().for_each(|&endpoint| rig.break_link(LinkId::new(endpoint, 0)));
    }
}

/// A data node dies without a word. The client learns the next view, in which another one owns its partitions, before
/// its connection breaks: with the greeting of a third, or by an order.
#[test]
fn a_scan_ends_with_the_connection_by_which_it_was_opened() {
    for by_order in [false, true] {
        let (first, table) = (first_view(&[0, 0, 0]), table(2));
        let mut rig = Rig::connected(3, &first);
        let scan = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
        assert!(opened(&mut rig).iter().any(|(link, ..)| link.endpoint() == 1));
        let second = first.without(&[NodeId(2)]);
        if by_order {
            rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
                cold::write(w, &second);
            });
        } else {
            rig.break_link(LinkId::new(2, 0));
            rig.advance(50);
            rig.admit_all(&second);
        }
        let connected: Vec<bool> = rig.client.endpoints().iter().map(|e| e.is_connected).collect();
        assert_eq!(connected, [true, false, true], "nothing is expected of who is no member");
        minutes_pass(&mut rig, &[1], &[0, 2]);
        match rig.client.next_rows(scan) {
            ScanProgress::Ended(Err(error)) => assert_eq!(error.code(), ErrorCode::ConnectionLost),
            other => panic!("{other:?}"),
        }
    }
}

/// One view loses two data nodes. When the client closes its connections to the first of them, the ways are found anew,
/// also to what the second owned.
#[test]
fn a_scan_ends_when_a_view_loses_two_data_nodes() {
    let (first, table) = (first_view(&[0, 0, 1, 1]), table(4));
    let mut rig = Rig::connected(4, &first);
    let scan = rig.client.scan(&table, ScanSpec { parallel: 16, ..ScanSpec::default() }, None).unwrap();
    // Only what node 4 owns is left to be scanned.
    for (link, name, _) in opened(&mut rig).into_iter().filter(|(link, ..)| link.endpoint() != 3) {
        rig.feed(link, SignalNumber::ScanConfirm, BlockNumber::DataManager, |w| {
            w.put(&ScanAnswer {
                epoch: U64::new(1),
                scan: U32::new(name),
                next_row: U32::ZERO,
                count: U16::ZERO,
                flags: SCAN_END.into(),
            });
        });
    }
    let second = first.without(&[NodeId(2), NodeId(4)]);
    rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &second);
    });
    minutes_pass(&mut rig, &[1, 3], &[0, 2]);
    assert!(matches!(rig.client.next_rows(scan), ScanProgress::Ended(Err(_))));
}

/// The node that has sent schema events fails. The client learns that another one leads before its connection breaks, or
/// after.
#[test]
fn schema_events_come_from_the_next_president() {
    for breaks_first in [false, true] {
        let first = first_view(&[0, 0]);
        let mut rig = Rig::connected(2, &first);
        rig.client.watch_schema().unwrap();
        let asked = |rig: &mut Rig| -> Vec<u8> {
            rig.sent(SignalNumber::SchemaEventsRequest).iter().map(|sent| node_at(sent.link)).collect()
        };
        assert_eq!(asked(&mut rig), [1]);
        if breaks_first {
            rig.break_link(LinkId::new(0, 0));
            assert!(asked(&mut rig).is_empty(), "nobody knows yet who leads");
        }
        rig.feed(LinkId::new(1, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
            cold::write(w, &first.without(&[NodeId(1)]));
        });
        assert_eq!(asked(&mut rig), [2]);
    }
}
