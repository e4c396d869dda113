//! A database in a map, for tests, which can inspect what the benchmarks do with a target.

use crate::failure::{Failure, Result};
use crate::target::{Kind, Lane, MemoryUse, Outcome, ScanKind, TableShape, Target};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Rows = BTreeMap<u64, Vec<u8>>;

/// A database in a map.
#[derive(Default)]
pub struct FakeTarget {
    /// Operations of each kind that were done.
    pub done: Arc<Mutex<BTreeMap<String, u64>>>,
    /// A row whose updates get lost.
    pub forgets: Option<u64>,
}

/// A table; its rows stay visible to tests when it is dropped.
#[derive(Clone, Default)]
pub struct FakeTable {
    rows: Arc<Mutex<Rows>>,
}

pub struct FakeLane {
    table: FakeTable,
    done: Arc<Mutex<BTreeMap<String, u64>>>,
    forgets: Option<u64>,
    slots: Vec<FakeSlot>,
    under_way: Vec<usize>,
}

#[derive(Default)]
struct FakeSlot {
    kind: Option<Kind>,
    operations: Vec<(u64, Vec<u8>)>,
    outcomes: Vec<FakeOutcome>,
}

enum FakeOutcome {
    Done,
    Row(Vec<u8>),
    NoRow,
    Failed(&'static str),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Target for FakeTarget {
    type Table = FakeTable;
    type Lane = FakeLane;

    fn create_table(&self, _name: &str, _shape: &TableShape) -> Result<FakeTable> {
        Ok(FakeTable::default())
    }

    fn drop_table(&self, _table: FakeTable) -> Result<()> {
        Ok(())
    }

    fn lane(&self, table: &FakeTable, _connection: usize, slots: usize, _batch: usize) -> Result<FakeLane> {
        Ok(FakeLane {
            table: table.clone(),
            done: self.done.clone(),
            forgets: self.forgets,
            slots: (0..slots).map(|_| FakeSlot::default()).collect(),
            under_way: Vec::new(),
        })
    }

    fn get(&self, table: &FakeTable, id: u64, value: &mut Vec<u8>) -> Result<bool> {
        let rows = lock(&table.rows);
        value.extend(rows.get(&id).into_iter().flatten());
        Ok(rows.contains_key(&id))
    }

    fn scan(&self, table: &FakeTable, kind: ScanKind) -> Result<u64> {
        Ok(match kind {
            ScanKind::OneComparison | ScanKind::FiveComparisons => 0,
            ScanKind::Everything => lock(&table.rows).len() as u64,
        })
    }

    fn memory(&self) -> Result<Vec<MemoryUse>> {
        Ok(vec![MemoryUse { block: "node".into(), purpose: "DataMemory".into(), used_bytes: 0 }])
    }
}

impl Lane for FakeLane {
    fn begin(&mut self, slot: usize, kind: Kind) {
        assert!(!self.under_way.contains(&slot), "a slot under way is left alone");
        self.slots[slot] = FakeSlot { kind: Some(kind), ..FakeSlot::default() };
    }

    fn push(&mut self, slot: usize, id: u64, value: &[u8]) -> Result<()> {
        self.slots[slot].operations.push((id, value.to_vec()));
        Ok(())
    }

    fn start(&mut self, slot: usize) -> Result<()> {
        self.under_way.push(slot);
        Ok(())
    }

    /// The batch that was started last ends first.
    fn wait(&mut self) -> Result<usize> {
        let number = self.under_way.pop().ok_or_else(|| Failure::new("nothing is under way"))?;
        let slot = &mut self.slots[number];
        let kind = slot.kind.expect("it was begun");
        let mut rows = lock(&self.table.rows);
        for (id, value) in &slot.operations {
            let is_there = rows.contains_key(id);
            slot.outcomes.push(match kind {
                Kind::Insert if is_there => FakeOutcome::Failed("there is such a row"),
                Kind::Update if !is_there => FakeOutcome::Failed("there is no such row"),
                Kind::Update if self.forgets == Some(*id) => FakeOutcome::Done,
                Kind::Insert | Kind::Update | Kind::Write => {
                    rows.insert(*id, value.clone());
                    FakeOutcome::Done
                }
                Kind::Delete => match rows.remove(id) {
                    Some(_) => FakeOutcome::Done,
                    None => FakeOutcome::NoRow,
                },
                Kind::Read => {
                    rows.get(id).map_or(FakeOutcome::NoRow, |value| FakeOutcome::Row(value.clone()))
                }
            });
        }
        *lock(&self.done).entry(format!("{kind:?}")).or_default() += slot.operations.len() as u64;
        Ok(number)
    }

    fn outcome(&self, slot: usize, index: usize) -> Outcome<'_> {
        match &self.slots[slot].outcomes[index] {
            FakeOutcome::Done => Outcome::Done,
            FakeOutcome::Row(value) => Outcome::Row(value),
            FakeOutcome::NoRow => Outcome::NoRow,
            FakeOutcome::Failed(why) => Outcome::Failed((*why).to_owned()),
        }
    }
}
