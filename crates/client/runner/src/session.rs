//! A session that is carried out: what it works with, and its loop.

use crate::AnySession;
use crate::shared::Shared;
use crate::transactions::OpenTransaction;
use fastrand::Rng;
use vinga::Table;
use vinga::blocking::Cluster;
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, Step, TableRef};

/// A table as a client has it.
pub(crate) struct OpenTable {
    pub shape: Shape,
    /// Of which rows are read as they are.
    pub whole: Table,
    /// Of whose rows only [`Shape::selection`] is read.
    pub selected: Table,
}

impl OpenTable {
    fn new(cluster: &Cluster, shape: &Shape) -> vinga::Result<Self> {
        let whole = cluster.table(shape.name())?;
        let selected = whole.select_ids(shape.selection())?;
        Ok(OpenTable { shape: shape.clone(), whole, selected })
    }

    /// The birth of its rows.
    pub fn birth(&self) -> u64 {
        self.whole.core().birth().0
    }

    /// The table that reads as it is asked.
    pub fn reading(&self, selects: bool) -> &Table {
        if selects { &self.selected } else { &self.whole }
    }
}

/// An API node and the tables of the run.
pub(crate) struct Client {
    pub cluster: Cluster,
    pub tables: Vec<OpenTable>,
}

impl Client {
    pub fn new(cluster: Cluster, shapes: &[Shape]) -> Result<Self, String> {
        let open = |shape: &Shape| {
            let opened = OpenTable::new(&cluster, shape);
            opened.map_err(|error| format!("table {}: {error}", shape.name()))
        };
        let tables = shapes.iter().map(open).collect::<Result<Vec<_>, String>>()?;
        Ok(Client { cluster, tables })
    }

    pub fn table(&self, table: TableRef) -> &OpenTable {
        &self.tables[usize::from(table.0)]
    }
}

/// Carries out the steps of one session.
pub(crate) struct Worker<'a> {
    pub shared: &'a Shared,
    pub client: &'a Client,
    /// The session's number.
    pub session: u32,
    pub open: Option<OpenTransaction>,
    random: Rng,
}

impl<'a> Worker<'a> {
    pub fn new(shared: &'a Shared, client: &'a Client, session: u32, random: Rng) -> Self {
        Worker { shared, client, session, open: None, random }
    }

    /// Runs a session until it has come to its end, or is stopped where it would begin something.
    ///
    /// # Errors
    /// The step that is not supported.
    pub fn run(mut self, mut session: AnySession) -> Result<(), String> {
        let mut answer = Answer::Begin;
        loop {
            let step = session.next(&mut self.random, &answer);
            if self.shared.is_stopped() && step.begins_something() {
                break;
            }
            answer = match step {
                Step::Execute(batch) => self.execute(&batch),
                Step::Read(read) => self.read(&read),
                Step::Wait(micros) => {
                    self.shared.pause(micros);
                    Answer::Done
                }
                Step::End => break,
                other => return Err(format!("a session asks for what is not supported here: {other:?}")),
            };
        }
        self.abandon();
        Ok(())
    }
}
