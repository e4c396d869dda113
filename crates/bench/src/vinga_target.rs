//! Vinga as a target: everything through the public interface of the Rust client.
//!
//! A lane's slots hold the client's batches, which are returned with their memory. Rows are passed to the client as
//! bytes, as programs do that hold prepared operations: an image is the key followed by the value, an update is a
//! program that was encoded once and whose operand is replaced.
//!
//! The executor is the client's: a definer that starts a batch sends it, one that waits reads, and if there are several
//! definers on a connection one of them reads for all. The definers are spread over `connections` of them.

use crate::failure::{Context, Failure, Result};
use crate::scan;
use crate::target::{Kind, Lane, MemoryUse, Outcome, ScanKind, TableShape, Target};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use vinga::blocking::Cluster;
use vinga::{ColumnType, InfoTable, InfoValue, NewTable, OperationKind, ReadBatch, ReadTicket, Table};
use vinga::{Update, WriteBatch, WriteTicket};
use vinga_base::schema::IndexDefinition;

/// Vinga, through one or more connections of the Rust client.
pub struct VingaTarget {
    address: String,
    /// The first one serves everything but the lanes.
    clusters: Mutex<Vec<Cluster>>,
    /// Whether the rows of tables that are made are logged and checkpointed, where the node has a disk.
    is_logged: bool,
}

vinga::row! {
    /// A row as the lookups read it.
    #[derive(Debug)]
    struct ValueRow {
        id: u64,
        value: Vec<u8>,
    }
}

/// A table: for scans, and for lookups.
pub struct VingaTable {
    whole: Table,
    /// Its rows typed, if it is a table of values.
    typed: Option<Table<ValueRow>>,
    cluster: Cluster,
}

/// A definer's lane; see [`crate::target`].
pub struct VingaLane {
    cluster: Cluster,
    table: Table,
    update: UpdateTemplate,
    image: Vec<u8>,
    slots: Vec<Slot>,
    /// Slots under way, the oldest first.
    under_way: VecDeque<usize>,
}

struct Slot {
    kind: Kind,
    state: SlotState,
    reads: Option<ReadBatch>,
    writes: Option<WriteBatch>,
}

enum SlotState {
    Resting,
    Reading(ReadTicket),
    Writing(WriteTicket),
}

impl VingaTarget {
    /// Connects to a data node.
    ///
    /// # Errors
    /// Why it could not connect.
    pub fn connect(address: &str) -> Result<Self> {
        let clusters = Mutex::new(Vec::new());
        let target = VingaTarget { address: address.to_owned(), clusters, is_logged: false };
        target.cluster(0)?;
        Ok(target)
    }

    /// Tables that are made from now on are kept on disk, if the node has one.
    #[must_use]
    pub fn logged(self) -> Self {
        VingaTarget { is_logged: true, ..self }
    }

    /// Makes a table with an index; an existing one of this name is replaced.
    ///
    /// # Errors
    /// The database's.
    pub fn create_indexed(
        &self,
        name: &str,
        shape: &TableShape,
        index: IndexDefinition,
    ) -> Result<VingaTable> {
        self.add_index(&self.create_table(name, shape)?, shape, index)
    }

    /// Adds an index to a table.
    ///
    /// # Errors
    /// The database's.
    pub fn add_index(
        &self,
        table: &VingaTable,
        shape: &TableShape,
        index: IndexDefinition,
    ) -> Result<VingaTable> {
        let mut indexed = table.whole.definition().clone();
        indexed.indexes.push(index);
        let altered = table.cluster.alter_table(&table.whole, indexed);
        let failed = || format!("cannot add an index to the table {}", table.whole.name());
        self.table_of(altered.context(failed)?, shape)
    }

    /// A table that exists, for lookups and lanes.
    ///
    /// # Errors
    /// There is none of this name, or the database's.
    pub fn existing_table(&self, name: &str, shape: &TableShape) -> Result<VingaTable> {
        let whole = self.cluster(0)?.table(name).context(|| format!("cannot find the table {name}"))?;
        self.table_of(whole, shape)
    }

    fn table_of(&self, whole: Table, shape: &TableShape) -> Result<VingaTable> {
        let typed = match shape {
            TableShape::Value { .. } => Some(whole.rows().context(|| "the table has other columns".into())?),
            TableShape::Scan => None,
        };
        Ok(VingaTable { whole, typed, cluster: self.cluster(0)? })
    }

    /// Returns when everything that was committed in a table of values so far is on disk.
    ///
    /// # Errors
    /// The node has no disk, or the database's.
    pub fn flush(&self, table: &VingaTable) -> Result<()> {
        let failed = || "cannot wait for the disk".to_owned();
        let typed = table.typed.as_ref().ok_or_else(|| Failure::new("only tables of values are flushed"))?;
        // What was committed before is on disk when a later commit is.
        let row = table.cluster.get(typed, 0_u64).context(failed)?;
        let mut transaction = table.cluster.begin().context(failed)?;
        transaction.set_durable(true);
        if let Some(row) = row {
            transaction.write(typed, &row).context(failed)?;
        }
        transaction.commit().context(failed).map(|_| ())
    }

    /// The first connection.
    ///
    /// # Errors
    /// It can't be made.
    pub fn first_cluster(&self) -> Result<Cluster> {
        self.cluster(0)
    }

    /// The connection of this number, made when it is first needed.
    fn cluster(&self, number: usize) -> Result<Cluster> {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        while clusters.len() <= number {
            let cluster = Cluster::connect(&self.address);
            clusters.push(cluster.context(|| format!("cannot connect to {}", self.address))?);
        }
        Ok(clusters[number].clone())
    }
}

impl Target for VingaTarget {
    type Table = VingaTable;
    type Lane = VingaLane;

    fn create_table(&self, name: &str, shape: &TableShape) -> Result<VingaTable> {
        let cluster = self.cluster(0)?;
        let failed = || format!("cannot create the table {name}");
        if cluster.tables().context(failed)?.iter().any(|known| known == name) {
            cluster.drop_table(name).context(|| format!("cannot drop the table {name}"))?;
        }
        let integer = |bytes, signed| ColumnType::Integer { bytes, signed };
        let table = NewTable::new(name).column("id", integer(8, false));
        let table = match *shape {
            TableShape::Value { bytes } => table.column("value", ColumnType::Binary { bytes }),
            TableShape::Scan => table
                .column("a", integer(8, true))
                .column("b", integer(4, true))
                .column("c", integer(2, true))
                .column("d", integer(2, true))
                .column("e", integer(4, true))
                .column("value", ColumnType::Binary { bytes: scan::VALUE_BYTES }),
        };
        let table = if self.is_logged { table } else { table.no_logging() };
        let whole = cluster.create_table(table.primary_key(&["id"])).context(failed)?;
        self.table_of(whole, shape)
    }

    fn drop_table(&self, table: VingaTable) -> Result<()> {
        let name = table.whole.name();
        self.cluster(0)?.drop_table(name).context(|| format!("cannot drop the table {name}"))
    }

    fn lane(&self, table: &VingaTable, connection: usize, slots: usize, _batch: usize) -> Result<VingaLane> {
        let cluster = self.cluster(connection)?;
        let name = table.whole.name();
        // A table belongs to its connection.
        let table = cluster.table(name).context(|| format!("cannot find the table {name}"))?;
        let slot = || Slot {
            kind: Kind::Read,
            state: SlotState::Resting,
            reads: Some(ReadBatch::new(&table)),
            writes: Some(WriteBatch::new()),
        };
        Ok(VingaLane {
            update: UpdateTemplate::new(&table)?,
            image: Vec::new(),
            slots: (0..slots).map(|_| slot()).collect(),
            under_way: VecDeque::new(),
            cluster,
            table,
        })
    }

    fn get(&self, table: &VingaTable, id: u64, value: &mut Vec<u8>) -> Result<bool> {
        let typed = table.typed.as_ref().ok_or_else(|| Failure::new("lookups are for tables of values"))?;
        let row = table.cluster.get(typed, id).context(|| format!("lookup of row {id}"))?;
        match row {
            Some(row) if row.id == id => value.extend_from_slice(&row.value),
            Some(row) => return Err(Failure::new(format!("lookup of row {id} has found row {}", row.id))),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn scan(&self, table: &VingaTable, kind: ScanKind) -> Result<u64> {
        let failed = || format!("scan of {}", table.whole.name());
        let filter = filter(&table.whole, kind).context(failed)?;
        let request = |request: vinga::ScanRequest| match filter {
            Some(filter) => request.filter(filter),
            None => request,
        };
        let mut scan = self.cluster(0)?.scan(&table.whole, request).context(failed)?;
        let mut rows = 0;
        while let Some(batch) = scan.next_batch().context(failed)? {
            // All bytes have arrived; each row is examined.
            rows += batch.bytes().filter(|row| !row.is_empty()).count() as u64;
        }
        Ok(rows)
    }

    fn memory(&self) -> Result<Vec<MemoryUse>> {
        let info = self.cluster(0)?.info(InfoTable::Memory).context(|| "cannot ask for memory".into())?;
        let place = |name: &str| {
            let at = info.columns.iter().position(|column| column == name);
            at.ok_or_else(|| Failure::new(format!("the table on memory has no column {name}")))
        };
        let places = [place("block")?, place("memory")?, place("used_bytes")?];
        info.rows
            .iter()
            .map(|row| match places.map(|place| row.get(place)) {
                [
                    Some(InfoValue::Text(block)),
                    Some(InfoValue::Text(purpose)),
                    Some(InfoValue::Number(used_bytes)),
                ] => {
                    Ok(MemoryUse { block: block.clone(), purpose: purpose.clone(), used_bytes: *used_bytes })
                }
                _ => Err(Failure::new(format!("a row of the table on memory is odd: {row:?}"))),
            })
            .collect()
    }
}

/// The filters of the head of [`crate::scan`].
fn filter(table: &Table, kind: ScanKind) -> vinga::Result<Option<vinga::filter::Expression>> {
    let column = |name| table.column(name);
    Ok(match kind {
        ScanKind::OneComparison => Some(column("b")?.less_than(0)),
        ScanKind::FiveComparisons => {
            let left = column("a")?.at_least(500).and(column("b")?.less_than(500));
            let inner = column("d")?.not_equal(7).or(column("e")?.at_least(9));
            Some(left.or(column("c")?.equal(3).and(inner)))
        }
        ScanKind::Everything => None,
    })
}

impl Lane for VingaLane {
    fn begin(&mut self, slot: usize, kind: Kind) {
        let slot = &mut self.slots[slot];
        slot.kind = kind;
        match kind {
            Kind::Read => slot.reads.as_mut().expect("it is not under way").clear(),
            Kind::Insert | Kind::Update | Kind::Write | Kind::Delete => {
                slot.writes.as_mut().expect("it is not under way").clear();
            }
        }
    }

    #[inline]
    fn push(&mut self, slot: usize, id: u64, value: &[u8]) -> Result<()> {
        let key = id.to_le_bytes();
        let slot = &mut self.slots[slot];
        let (table, writes) = (&self.table, slot.writes.as_mut());
        let pushed = match slot.kind {
            Kind::Read => slot.reads.as_mut().expect("it was begun").push_encoded(&key),
            Kind::Insert | Kind::Write => {
                self.image.clear();
                self.image.extend_from_slice(&key);
                self.image.extend_from_slice(value);
                let kind =
                    if slot.kind == Kind::Insert { OperationKind::Insert } else { OperationKind::Write };
                writes.expect("it was begun").push_encoded(table, kind, &[], &self.image)
            }
            Kind::Update => {
                let program = self.update.with(value);
                writes.expect("it was begun").push_encoded(table, OperationKind::Update, &key, program)
            }
            Kind::Delete => {
                writes.expect("it was begun").push_encoded(table, OperationKind::Delete, &key, &[])
            }
        };
        pushed.context(|| format!("row {id}"))
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let slot = &mut self.slots[number];
        let failed = || "a batch can't be started".to_owned();
        slot.state = match slot.kind {
            Kind::Read => {
                let batch = slot.reads.take().expect("it was begun");
                SlotState::Reading(self.cluster.start_reads(batch).context(failed)?)
            }
            Kind::Insert | Kind::Update | Kind::Write | Kind::Delete => {
                let batch = slot.writes.take().expect("it was begun");
                SlotState::Writing(self.cluster.start_writes(batch).context(failed)?)
            }
        };
        self.under_way.push_back(number);
        Ok(())
    }

    fn wait(&mut self) -> Result<usize> {
        for at in 0..self.under_way.len() {
            let number = self.under_way[at];
            if self.slots[number].is_finished() {
                self.under_way.remove(at);
                return Ok(number);
            }
        }
        // Batches usually end in the order in which they were sent.
        let number = self.under_way.pop_front().ok_or_else(|| Failure::new("no batch is under way"))?;
        self.slots[number].finish();
        Ok(number)
    }

    #[inline]
    fn outcome(&self, slot: usize, index: usize) -> Outcome<'_> {
        let slot = &self.slots[slot];
        let failed = |error: vinga::Error| Outcome::Failed(error.to_string());
        match slot.kind {
            Kind::Read => match slot.reads.as_ref().expect("it was returned").bytes(index) {
                // An image: the key, then the value.
                Ok(Some(row)) => Outcome::Row(row.get(8..).unwrap_or_default()),
                Ok(None) => Outcome::NoRow,
                Err(error) => failed(error),
            },
            Kind::Insert | Kind::Update | Kind::Write | Kind::Delete => {
                let ending = slot.writes.as_ref().expect("it was returned").ending(index);
                ending.map_or_else(failed, |()| Outcome::Done)
            }
        }
    }
}

impl Slot {
    /// Takes its batch back if it is complete.
    fn is_finished(&mut self) -> bool {
        match &mut self.state {
            SlotState::Resting => return true,
            SlotState::Reading(ticket) => match ticket.try_finish() {
                Some(batch) => self.reads = Some(batch),
                None => return false,
            },
            SlotState::Writing(ticket) => match ticket.try_finish() {
                Some(batch) => self.writes = Some(batch),
                None => return false,
            },
        }
        self.state = SlotState::Resting;
        true
    }

    /// Waits until its batch is complete and takes it back.
    fn finish(&mut self) {
        match std::mem::replace(&mut self.state, SlotState::Resting) {
            SlotState::Resting => {}
            SlotState::Reading(ticket) => self.reads = Some(ticket.wait()),
            SlotState::Writing(ticket) => self.writes = Some(ticket.wait()),
        }
    }
}

/// A program that sets the column `value`, encoded except for the value.
struct UpdateTemplate {
    program: Vec<u8>,
    operand: Range<usize>,
}

impl UpdateTemplate {
    /// Encodes two programs with different values: the value is where they differ.
    fn new(table: &Table) -> Result<Self> {
        let failed = || "cannot prepare an update".to_owned();
        let column = table.core().column("value").context(failed)?;
        let ColumnType::Binary { bytes } = table.definition().columns[usize::from(column.0)].column_type
        else {
            return Err(Failure::new("the column value is not binary"));
        };
        let encode = |fill: u8| {
            let mut program = Vec::new();
            let update = Update::new().set("value", vec![fill; usize::from(bytes)]);
            update.encode(table, &mut program).context(failed).map(|()| program)
        };
        let (program, other) = (encode(0)?, encode(0xff)?);
        let differs = |at: &usize| program[*at] != other[*at];
        let first = (0..program.len()).find(differs).unwrap_or(program.len());
        let operand = first..first + usize::from(bytes);
        assert!(operand.clone().all(|at| differs(&at)), "the value is contiguous in the program");
        Ok(UpdateTemplate { program, operand })
    }

    #[inline]
    fn with(&mut self, value: &[u8]) -> &[u8] {
        self.program[self.operand.clone()].copy_from_slice(value);
        &self.program
    }
}
