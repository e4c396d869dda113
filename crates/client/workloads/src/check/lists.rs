//! Transactions on lists have one order: that in which each of them saw all that came before it, and nothing else.
//!
//! The order of the appends of a list is known ([`crate::list_append`]), and so is what each transaction saw under
//! locks. From these follow the edges of a graph of transactions that are committed:
//! - *ww*: this one appended the next element behind that one's;
//! - *wr*: this one saw the other's element as the last one;
//! - *rw*: this one saw the last element before the other's: it did not see the other's append;
//! - *real time*: the end of this one was known before the other one began.
//!
//! A cycle means that no order of the transactions explains what they saw: they are not serialisable, or, if edges of
//! real time belong to it, not strictly so. The method is that of Elle (Kingsbury, Alvaro: Elle: Inferring Isolation
//! Anomalies from Experimental Observations, VLDB 2020).
//!
//! Reads without locks, and those whose lock was let go by an unlock, see what is committed at their moment, which may
//! fit no order: they say where elements stand, and make no edges. Neither do reads that found no list, since nothing
//! is locked where there is no row. A position of which nobody knows whose element stands there is passed over: the
//! edges from and to the next known ones follow from those that it would have.

mod order;

use crate::check::atomic::Writers;
use crate::check::describe;
use crate::history::{Event, History, OperationRecord, OperationResult, RowName, Time};
use crate::shape::Value;
use crate::step::{Body, Fate};
use crate::workload::Contents;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;
use order::{Graph, Span, Step};
use vinga_base::TransactionId;
use vinga_wire::operation::OperationKind;

/// Why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    kind: Kind,
    row: RowName,
    /// The position that the first of the two saw or filled, and that of the second.
    positions: (u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    WriteWrite,
    WriteRead,
    ReadWrite,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::WriteWrite => "ww",
            Kind::WriteRead => "wr",
            Kind::ReadWrite => "rw",
        }
    }
}

/// Checks all transactions on the history's lists. `proven` are transactions that are committed although nobody was
/// answered, `contents` the rows that are left.
///
/// # Errors
/// Two elements at one position, or a shortest cycle of transactions.
pub fn check(
    history: &History,
    contents: &Contents,
    writers: &Writers,
    proven: &BTreeSet<usize>,
) -> Result<(), String> {
    if history.lists.is_empty() {
        return Ok(());
    }
    let lists = Lists { history, writers, proven };
    let positions = lists.positions(contents)?;
    let (nodes, graph) = lists.graph(&positions);
    match graph.shortest_cycle() {
        None => Ok(()),
        Some(cycle) => Err(lists.explain(&nodes, &cycle)),
    }
}

/// Who appended the element at each known position of a list, and which element it is.
type Positions = BTreeMap<RowName, BTreeMap<u64, (usize, u64)>>;

struct Lists<'a> {
    history: &'a History,
    writers: &'a Writers,
    proven: &'a BTreeSet<usize>,
}

impl Lists<'_> {
    fn is_committed(&self, transaction: usize) -> bool {
        matches!(self.history.transactions[transaction].fate, Fate::Committed(_))
            || self.proven.contains(&transaction)
    }

    fn operations(&self, transaction: usize) -> impl Iterator<Item = &OperationRecord> {
        self.history.transactions[transaction].events.iter().filter_map(|event| match event {
            Event::Operation(record)
                if record.is_about_row() && self.history.lists.contains(&record.operation.table) =>
            {
                Some(record)
            }
            Event::Operation(_) | Event::OwnRead(..) | Event::RollbackTo(_) => None,
        })
    }

    /// All positions of which anybody has said, by a row that was written or seen, whose element stands there.
    fn positions(&self, contents: &Contents) -> Result<Positions, String> {
        let mut positions = Positions::new();
        let history = self.history;
        for (index, transaction) in history.transactions.iter().enumerate() {
            let sights_count = history.trusts(transaction);
            for record in self.operations(index) {
                match (record.operation.body, record.result) {
                    (_, OperationResult::Failed(_) | OperationResult::FailedInIndex(_)) => {}
                    (Body::Row(value), _) => self.note(&mut positions, record.row(), value)?,
                    (_, OperationResult::Row(Some(value)) | OperationResult::NotLocked(Some(value)))
                        if sights_count =>
                    {
                        self.note(&mut positions, record.row(), value)?;
                    }
                    _ => {}
                }
            }
        }
        for read in history.reads.iter().filter(|read| history.lists.contains(&read.row.table)) {
            if let Some(value) = read.seen {
                self.note(&mut positions, read.row, value)?;
            }
        }
        for (&(table, key), &(value, _)) in &contents.rows {
            if let Some(&version) = contents.versions.get(&table).filter(|_| history.lists.contains(&table)) {
                self.note(&mut positions, RowName { table, version, key }, value)?;
            }
        }
        Ok(positions)
    }

    /// Notes the position of an element that has come to stay.
    fn note(&self, positions: &mut Positions, row: RowName, value: Value) -> Result<(), String> {
        let Some(writer) = self.writers.of(value) else { return Ok(()) };
        if writer.undone || !self.is_committed(writer.transaction) {
            return Ok(());
        }
        let new = (writer.transaction, value.value);
        let at_position = *positions.entry(row).or_default().entry(value.count).or_insert(new);
        if at_position == new {
            return Ok(());
        }
        Err(format!(
            "{}: two elements have position {}, {:#x} of {:?} and {:#x} of {:?}",
            describe(row),
            value.count,
            at_position.1,
            self.id(at_position.0),
            new.1,
            self.id(new.0)
        ))
    }

    /// The committed transactions on lists, and what orders them.
    fn graph(&self, positions: &Positions) -> (Vec<usize>, Graph<Edge>) {
        let nodes: Vec<usize> = (0..self.history.transactions.len())
            .filter(|&index| self.is_committed(index) && self.operations(index).next().is_some())
            .collect();
        let node_of: BTreeMap<usize, usize> = nodes.iter().zip(0..).map(|(&index, at)| (index, at)).collect();
        let mut graph = Graph::new(nodes.iter().map(|&index| self.span(index)).collect());
        for (&row, elements) in positions {
            for ((&before, first), (&behind, second)) in elements.iter().zip(elements.iter().skip(1)) {
                let edge = Edge { kind: Kind::WriteWrite, row, positions: (before, behind) };
                graph.add(node_of[&first.0], node_of[&second.0], edge);
            }
        }
        for (&reader, &at) in &node_of {
            for (row, seen) in self.locked_sights(reader) {
                let Some(elements) = positions.get(&row) else { continue };
                // What it has appended itself, and perhaps undone since, says nothing of others.
                let is_others = |&&(writer, value): &&(usize, u64)| writer != reader && value == seen.value;
                let Some(&(writer, _)) = elements.get(&seen.count).filter(is_others) else { continue };
                let seen = seen.count;
                let edge = Edge { kind: Kind::WriteRead, row, positions: (seen, seen) };
                graph.add(node_of[&writer], at, edge);
                let behind = (Bound::Excluded(seen), Bound::Unbounded);
                if let Some((&next, &(writer, _))) = elements.range(behind).next() {
                    let edge = Edge { kind: Kind::ReadWrite, row, positions: (seen, next) };
                    graph.add(at, node_of[&writer], edge);
                }
            }
        }
        (nodes, graph)
    }

    /// What a transaction saw under locks which it kept to its end.
    fn locked_sights(&self, transaction: usize) -> Vec<(RowName, Value)> {
        let record = &self.history.transactions[transaction];
        if !self.history.trusts(record) {
            return Vec::new();
        }
        let unlocked: BTreeSet<u32> = record
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Operation(operation) => match operation.operation.body {
                    Body::Unlock(number) => Some(number),
                    Body::None | Body::Row(_) | Body::Change(_) => None,
                },
                Event::OwnRead(..) | Event::RollbackTo(_) => None,
            })
            .collect();
        let sight = |record: &OperationRecord| match (record.operation.kind, record.result) {
            (OperationKind::ReadShared | OperationKind::ReadExclusive, OperationResult::Row(Some(value)))
                if !unlocked.contains(&record.operation.number) =>
            {
                Some((record.row(), value))
            }
            _ => None,
        };
        self.operations(transaction).filter_map(sight).collect()
    }

    /// From when a transaction may have seen anything until when its end was known.
    fn span(&self, transaction: usize) -> Span {
        let record = &self.history.transactions[transaction];
        let ended = match record.fate {
            Fate::Committed(_) => record.ended.unwrap_or(Time::MAX),
            Fate::Open | Fate::Unknown | Fate::RolledBack { .. } => Time::MAX,
        };
        Span { begun: record.begun().unwrap_or(0), ended }
    }

    fn id(&self, transaction: usize) -> TransactionId {
        TransactionId(self.history.transactions[transaction].id)
    }

    /// The cycle in one line, then each of its steps.
    fn explain(&self, nodes: &[usize], cycle: &[Step<Edge>]) -> String {
        let name = |node: usize| format!("{:?}", self.id(nodes[node]));
        let kind = |step: &Step<Edge>| step.edge.map_or("real time", |edge| edge.kind.name());
        let mut text = String::from("transactions have no order:");
        for step in cycle {
            text += &format!(" {} -{}->", name(step.from), kind(step));
        }
        text += &format!(" {}", cycle.first().map(|step| name(step.from)).unwrap_or_default());
        for step in cycle {
            let (from, to) = (name(step.from), name(step.to));
            let Span { begun, ended } = self.span(nodes[step.from]);
            text += &format!("\n    {from} (from {begun} to {ended}) ");
            text += &match step.edge {
                Some(Edge { kind: Kind::WriteWrite, row, positions: (before, behind) }) => {
                    format!("appended position {before} of {}, and {to} position {behind}", describe(row))
                }
                Some(Edge { kind: Kind::WriteRead, row, positions: (before, _) }) => {
                    format!("appended position {before} of {}, which {to} saw", describe(row))
                }
                Some(Edge { kind: Kind::ReadWrite, row, positions: (before, behind) }) => {
                    format!(
                        "saw {} up to position {before}, and {to} appended position {behind}",
                        describe(row)
                    )
                }
                None => format!("had ended before {to} began at {}", self.span(nodes[step.to]).begun),
            };
        }
        text
    }
}
