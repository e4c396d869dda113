//! A client and a scripted node with wires between them that a generator of choices moves.

use std::collections::{BTreeMap, VecDeque};
use vinga_base::ColumnId;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_client_core::{
    Answer, Client, Command, LinkId, OperationSpec, Readiness, Request, RowBuilder, Settings, Span, Table,
    Tick, WriteBatch,
};
use vinga_testnode::{Layout, ScriptedNode};
use vinga_wire::operation::OperationKind;

/// A client and a scripted node, and the bytes between them.
pub struct World {
    pub client: Client,
    pub node: ScriptedNode,
    pub random: fastrand::Rng,
    pub now: Tick,
    links: BTreeMap<LinkId, usize>,
    next_connection: usize,
    to_node: BTreeMap<usize, VecDeque<u8>>,
    to_client: BTreeMap<LinkId, Vec<u8>>,
    /// While true connections can't be opened.
    pub is_cut: bool,
}

impl World {
    pub fn new(layout: Layout, seed: u64) -> Self {
        let mut world = World::before_idle(layout, seed);
        world.run_until_idle();
        assert_eq!(world.client.readiness(), Readiness::Ready);
        world
    }

    /// One in which nothing has moved yet.
    pub fn before_idle(layout: Layout, seed: u64) -> Self {
        World {
            client: Client::new(Settings::default()),
            node: ScriptedNode::new(layout),
            random: fastrand::Rng::with_seed(seed),
            now: Tick(0),
            links: BTreeMap::new(),
            next_connection: 0,
            to_node: BTreeMap::new(),
            to_client: BTreeMap::new(),
            is_cut: false,
        }
    }

    /// Does what the client wants done with connections.
    fn carry_out(&mut self) {
        while let Some(command) = self.client.next_command() {
            match command {
                Command::Open(link) if self.is_cut => self.client.on_broken(link, "cut"),
                Command::Open(link) => {
                    self.links.insert(link, self.next_connection);
                    self.to_node.insert(self.next_connection, VecDeque::new());
                    self.to_client.insert(link, Vec::new());
                    self.next_connection += 1;
                    self.client.on_opened(link);
                }
                Command::Close(link) => {
                    if let Some(connection) = self.links.remove(&link) {
                        self.node_loses(connection);
                    }
                    self.to_client.remove(&link);
                }
            }
        }
    }

    fn node_loses(&mut self, connection: usize) {
        self.to_node.remove(&connection);
        for closed in self.node.on_closed(connection) {
            self.to_node.remove(&closed);
        }
    }

    fn send(&mut self) {
        let mut buffer = Vec::new();
        while let Some(link) = self.client.next_output(&mut buffer) {
            self.carry_out();
            if let Some(to_node) = self.links.get(&link).and_then(|c| self.to_node.get_mut(c)) {
                to_node.extend(buffer.drain(..));
            }
            buffer.clear();
        }
    }

    /// One thing moves; false if nothing could.
    pub fn step(&mut self) -> bool {
        self.carry_out();
        self.send();
        let mut choices: Vec<Move> = Vec::new();
        choices.extend(self.to_node.iter().filter(|(_, b)| !b.is_empty()).map(|(c, _)| Move::ToNode(*c)));
        choices.extend(self.node.waiting().map(|(c, sender)| Move::Answer(c, sender)));
        choices.extend(self.to_client.iter().filter(|(_, b)| !b.is_empty()).map(|(l, _)| Move::ToClient(*l)));
        choices.retain(|choice| !self.stuck(choice));
        let Some(choice) = (!choices.is_empty()).then(|| self.random.choice(choices)).flatten() else {
            return false;
        };
        match choice {
            Move::ToNode(connection) => {
                let waiting = self.to_node.get_mut(&connection).expect("chosen from what is there");
                let count = self.random.usize(1..=waiting.len());
                let bytes: Vec<u8> = waiting.drain(..count).collect();
                if !self.node.on_bytes(connection, &bytes) {
                    self.break_connection(connection);
                }
            }
            Move::Answer(connection, sender) => {
                let frame = self.node.take((connection, sender)).expect("chosen from what is there");
                let link = self.link_of(connection);
                if let Some(wire) = link.and_then(|link| self.to_client.get_mut(&link)) {
                    wire.extend_from_slice(&frame);
                }
            }
            Move::ToClient(link) => {
                let waiting = self.to_client.get_mut(&link).expect("chosen from what is there");
                let count = self.random.usize(1..=waiting.len());
                let used = self.client.on_bytes(link, &waiting[..count]);
                self.carry_out();
                if let Some(waiting) = self.to_client.get_mut(&link) {
                    waiting.drain(..used.min(waiting.len()));
                }
            }
        }
        self.carry_out();
        self.send();
        true
    }

    /// Bytes of an incomplete frame wait for the rest; only time moves then.
    fn stuck(&self, choice: &Move) -> bool {
        let Move::ToClient(link) = choice else { return false };
        let waiting = &self.to_client[link];
        let length = waiting.first_chunk::<4>().map(|l| u32::from_le_bytes(*l) as usize);
        length.is_none_or(|length| waiting.len() < length) && {
            let connection = self.links.get(link);
            connection.is_none_or(|c| !self.node.waiting().any(|(of, _)| of == *c))
        }
    }

    fn link_of(&self, connection: usize) -> Option<LinkId> {
        self.links.iter().find(|(_, c)| **c == connection).map(|(link, _)| *link)
    }

    fn break_connection(&mut self, connection: usize) {
        let link = self.link_of(connection);
        self.node_loses(connection);
        if let Some(link) = link {
            self.links.remove(&link);
            self.to_client.remove(&link);
            self.client.on_broken(link, "broken");
        }
        self.carry_out();
    }

    /// Breaks some connection; what is on its way is lost.
    pub fn break_any(&mut self) {
        let connections: Vec<usize> = self.links.values().copied().collect();
        if let Some(connection) = self.random.choice(connections) {
            self.break_connection(connection);
        }
    }

    /// The node dies and comes back.
    pub fn restart_node(&mut self) {
        self.node.restart();
        self.to_node.clear();
        for (link, _) in std::mem::take(&mut self.links) {
            self.to_client.remove(&link);
            self.client.on_broken(link, "broken");
            self.carry_out();
        }
    }

    pub fn advance(&mut self, micros: u64) {
        self.now = self.now + Span(micros);
        self.client.on_time(self.now);
        self.carry_out();
        self.send();
    }

    /// Moves everything until nothing is left to be done for a while.
    pub fn run_until_idle(&mut self) {
        for _ in 0..40 {
            self.advance(50_000);
            while self.step() {}
        }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Request) -> vinga_client_core::Result<Answer> {
        let token = self.client.request(request)?;
        self.run_until_idle();
        self.client.take_answer(token).expect("the node answers")
    }

    /// A table with an 8-byte key and a text.
    pub fn create(&mut self, name: &str) -> Table {
        match self.ask(&Request::CreateTable(definition(name))).unwrap() {
            Answer::Table(record) => Table::new(record).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Commits rows with these keys.
    pub fn load(&mut self, table: &Table, keys: impl IntoIterator<Item = u64>) {
        let mut batch = WriteBatch::default();
        for key in keys {
            push_insert(&mut batch, table, key);
        }
        let token = self.client.write(batch, vinga_client_core::Urgency::Now).unwrap();
        self.run_until_idle();
        let batch = self.client.take_write(token).expect("all are answered");
        assert!(batch.endings().all(|ending| ending.is_ok()));
    }
}

enum Move {
    ToNode(usize),
    Answer(usize, vinga_wire::Address),
    ToClient(LinkId),
}

pub fn definition(name: &str) -> TableDefinition {
    let column =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    TableDefinition {
        name: name.into(),
        columns: vec![
            column("id", ColumnType::Integer { bytes: 8, signed: false }, false),
            column("text", ColumnType::VarChar { bytes_max: 100 }, true),
        ],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    }
}

pub fn text_of(key: u64) -> String {
    format!("row {key}")
}

/// The image of the row of a key.
pub fn image(table: &Table, key: u64, text: &str) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    let mut out = Vec::new();
    builder.begin(table);
    builder.set(table, ColumnId(0), &key).unwrap();
    builder.set(table, ColumnId(1), text).unwrap();
    builder.finish(table, &mut out).unwrap();
    out
}

pub fn push_insert(batch: &mut WriteBatch, table: &Table, key: u64) {
    let image = image(table, key, &text_of(key));
    batch.push(&OperationSpec::new(table, OperationKind::Insert, &[], &image)).unwrap();
}
