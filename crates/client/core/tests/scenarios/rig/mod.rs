//! A client whose data nodes are played by the test, with frames written by hand.

use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Incarnation, NodeId, TablePartitions};
use vinga_client_core::{
    BatchEnd, Client, Command, LinkId, OperationBatch, OperationSpec, RowBuilder, Settings, Span, Standing,
    Table, Tick, Token,
};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::frame::Frames;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, Refusal};
use vinga_wire::operation::OperationKind;
use vinga_wire::protocol::Protocol;
use vinga_wire::transaction::{Outcome, OutcomeConfirm, OutcomeRequest, TransactionHead};
use vinga_wire::view::{ClusterView, ConnectionHosts, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U32, U64, cold};
use zerocopy::IntoBytes;

/// View 1 of data nodes 1, 2 … in these node groups, started for the first time.
pub fn first_view(groups: &[u16]) -> ClusterView {
    first_view_with(1, groups)
}

/// As [`first_view`], of data nodes that want so many connections each.
pub fn first_view_with(connections: usize, groups: &[u16]) -> ClusterView {
    view_of_start(1, connections, groups)
}

/// View 1 of the cluster when each data node was started so many times.
pub fn view_of_start(start: u32, connections: usize, groups: &[u16]) -> ClusterView {
    let hosts = ConnectionHosts { data_managers: vec![0, 1], coordinators: vec![0] };
    let member = |(id, &group)| {
        let hosts = vec![hosts.clone(); connections];
        Member::started(NodeId(id), Incarnation(start), group, 2, 1).with_connections(hosts)
    };
    ClusterView::first((1..).zip(groups).map(member).collect())
}

pub fn table(partitions: u16) -> Table {
    table_with(partitions, false)
}

/// A table in so many partitions, whose backups perhaps answer reads.
pub fn table_with(partitions: u16, read_backup: bool) -> Table {
    let definition = TableDefinition {
        name: "test.t".into(),
        columns: vec![ColumnDefinition {
            name: "id".into(),
            column_type: ColumnType::Integer { bytes: 8, signed: false },
            nullable: false,
        }],
        primary_key: vec![ColumnId(0)],
        read_backup,
        ..TableDefinition::default()
    };
    Table::new(TableRecord::new(1, 1, TablePartitions::first(partitions), definition)).unwrap()
}

/// Address number `endpoint` leads to data node `endpoint + 1`.
pub fn node_at(link: LinkId) -> u8 {
    link.endpoint() as u8 + 1
}

/// A client whose data nodes are played by the test.
pub struct Rig {
    pub client: Client,
    pub now: Tick,
    /// How often the cluster has admitted it.
    pub admission: u32,
    /// The incarnation of the cluster.
    pub cluster: u64,
    /// Which start of each data node it is that admits the client.
    pub start: u32,
}

/// A frame that the client has sent, and by which connection.
pub struct Sent {
    pub link: LinkId,
    bytes: Vec<u8>,
}

impl Sent {
    pub fn frame(&self) -> Frame<'_> {
        Frame::first(&self.bytes).unwrap().unwrap()
    }
}

impl Rig {
    pub fn new(endpoints: u16) -> Self {
        let addresses = (1..=endpoints).map(|node| format!("node{node}")).collect();
        let client = Client::new(Settings { addresses, ..Settings::default() });
        Rig { client, now: Tick(0), admission: 1, cluster: 7, start: 1 }
    }

    pub fn advance(&mut self, millis: u64) {
        self.now = self.now + Span::from_millis(millis);
        self.client.on_time(self.now);
    }

    /// Takes what the client has sent, of this kind.
    pub fn sent(&mut self, signal: SignalNumber) -> Vec<Sent> {
        let mut all = self.all_sent();
        all.retain(|sent| sent.frame().signal() == Some(signal));
        all
    }

    /// Takes everything that the client has sent.
    pub fn all_sent(&mut self) -> Vec<Sent> {
        let (mut all, mut buffer) = (vec![], vec![]);
        while let Some(link) = self.client.next_output(&mut buffer) {
            for frame in Frames(&buffer) {
                all.push(Sent { link, bytes: [frame.header.as_bytes(), frame.body].concat() });
            }
            buffer.clear();
        }
        all
    }

    pub fn feed(
        &mut self,
        link: LinkId,
        signal: SignalNumber,
        from: BlockNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        self.feed_in_view(1, link, signal, from, body);
    }

    /// As [`Rig::feed`], from a data node that has this view.
    pub fn feed_in_view(
        &mut self,
        view: u8,
        link: LinkId,
        signal: SignalNumber,
        from: BlockNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let mut bytes = vec![];
        let (to, from) =
            (Address::new(NodeId(145), BlockNumber::Api, 0), Address::new(NodeId(node_at(link)), from, 0));
        body(&mut FrameWriter::begin(&mut bytes, signal, view, to, from, 0));
        assert_eq!(self.client.on_bytes(link, &bytes), bytes.len());
    }

    /// Opens what the client wants opened.
    pub fn open_links(&mut self) {
        while let Some(command) = self.client.next_command() {
            if let Command::Open(link) = command {
                self.client.on_opened(link);
            }
        }
    }

    /// Opens what the client wants opened, and returns its greetings.
    pub fn greetings(&mut self) -> Vec<(LinkId, HelloRequest)> {
        self.open_links();
        let greetings = self.sent(SignalNumber::HelloRequest).into_iter();
        greetings.map(|sent| (sent.link, cold::read(&sent.frame()).unwrap())).collect()
    }

    /// The data node at the other end admits the client.
    pub fn admit(&mut self, link: LinkId, view: &ClusterView) {
        self.admit_as(link, node_at(link), view);
    }

    /// The data node at the other end, which is this one, admits the client.
    pub fn admit_as(&mut self, link: LinkId, node: u8, view: &ClusterView) {
        let confirm = HelloConfirm {
            protocol: Protocol::own(),
            node,
            incarnation: self.start,
            cluster_incarnation: self.cluster,
            database: 7,
            api: 145,
            ticket: 99,
            view: view.clone(),
            api_incarnation: 1,
            admission: self.admission,
        };
        self.feed(link, SignalNumber::HelloConfirm, BlockNumber::Driver, |w| cold::write(w, &confirm));
    }

    /// The data node at the other end refuses the greeting, and has no more to say; the client closes the connection.
    pub fn refuse(&mut self, link: LinkId, code: ErrorCode, request: u32) {
        let refusal = Refusal { request, code: code as u16, detail: String::new() };
        self.feed(link, SignalNumber::HelloRefuse, BlockNumber::Driver, |w| cold::write(w, &refusal));
        while self.client.next_command().is_some() {}
    }

    /// The dictionary at the other end refuses a request.
    pub fn refuse_with(&mut self, link: LinkId, signal: SignalNumber, code: ErrorCode, request: u32) {
        let refusal = Refusal { request, code: code as u16, detail: String::new() };
        self.feed(link, signal, BlockNumber::Dictionary, |w| cold::write(w, &refusal));
    }

    /// The client is admitted wherever it greets now.
    pub fn admit_all(&mut self, view: &ClusterView) {
        for (link, _) in self.greetings() {
            self.admit(link, view);
        }
    }

    /// A client that is connected to all data nodes of a view.
    pub fn connected(endpoints: u16, view: &ClusterView) -> Self {
        let mut rig = Rig::new(endpoints);
        for _ in 0..endpoints {
            rig.advance(11);
            rig.admit_all(view);
        }
        assert!(rig.client.endpoints().iter().all(|endpoint| endpoint.is_connected));
        rig
    }

    /// A connection breaks; the client closes all to that data node.
    pub fn break_link(&mut self, link: LinkId) {
        self.client.on_broken(link, "broken");
        while self.client.next_command().is_some() {}
    }

    pub fn commit_insert(&mut self, table: &Table, key: u64) -> Token {
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
    pub fn transactions_sent(&mut self) -> Vec<(u64, u32)> {
        let read = |sent: Sent| {
            let frame = sent.frame();
            let (head, _) = frame.head::<TransactionHead>().unwrap();
            (head.transaction.get(), head.outcomes_seen.get())
        };
        self.sent(SignalNumber::TransactionRequest).into_iter().map(read).collect()
    }

    /// The epochs that transactions which were sent say to have seen.
    pub fn epochs_sent(&mut self) -> Vec<u64> {
        let read = |sent: Sent| sent.frame().head::<TransactionHead>().unwrap().0.epoch_seen.get();
        self.sent(SignalNumber::TransactionRequest).into_iter().map(read).collect()
    }

    /// The transactions whose outcomes the client asks for, with the tags of its questions.
    pub fn questions(&mut self) -> Vec<(u64, u32)> {
        let read = |sent: Sent| {
            let frame = sent.frame();
            let (question, _) = frame.head::<OutcomeRequest>().unwrap();
            (question.transaction.get(), question.request.get())
        };
        self.sent(SignalNumber::OutcomeRequest).into_iter().map(read).collect()
    }

    /// The coordinator answers a question: with an outcome's number, or that there is none.
    pub fn answer(&mut self, link: LinkId, question: (u64, u32), number: Option<u32>) {
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

    pub fn standing(&mut self, token: Token) -> vinga_client_core::Result<Standing> {
        self.client.take_operations(token).expect("it is over").standing()
    }
}
