//! Looking into a data manager from outside: what the simulator's checks and tests compare. Nothing here changes
//! anything, and nothing on the way of a request comes here.

use crate::DataManager;
use crate::index_keys::{Places, RowKeys};
use crate::operation::State;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::schema::TableDefinition;
use vinga_base::{Epoch, PartitionId, RowId, TransactionId};
use vinga_fragment::fragment::Fragment;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::lock_table::LockMode;
use vinga_fragment::ordered_index::{Direction, Range};
use vinga_fragment::row::RowFlags;
use vinga_kernel::{Span, Tick};

/// A row as it lies in its slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRow {
    /// The table.
    pub table: u32,
    /// The version with which its rows began.
    pub birth: u64,
    /// The partition that this data manager has a replica of.
    pub partition: PartitionId,
    /// The place in the fragment.
    pub row: RowId,
    /// The epoch in the row's header.
    pub epoch: Epoch,
    /// Fixed part and variable part.
    pub image: Vec<u8>,
}

/// What readers of one table are shown of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownRows {
    /// The table.
    pub table: u32,
    /// The version with which its rows began.
    pub birth: u64,
    /// Whether backups answer reads of it.
    pub read_backup: bool,
    /// Used slots in the order of row ids: the epoch of the version shown, none if the row is hidden (its insert is
    /// not committed, or not known to be so everywhere).
    pub rows: Vec<(RowId, Option<Epoch>)>,
}

/// A row that an operation holds or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowLock<'a> {
    /// The table's name, as its users know it.
    pub table: &'a str,
    /// The table's unique index that it is an entry of; `None` if it is a row of the table.
    pub index: Option<u16>,
    /// The partition of the row.
    pub partition: PartitionId,
    /// The place of the row in its partition.
    pub row: RowId,
    /// Whether nobody else may share it.
    pub is_exclusive: bool,
    /// The operation's transaction, and which of its operations it is.
    pub transaction: TransactionId,
    /// See there.
    pub operation: u32,
    /// For how long it has been waited for; `None` if it is held.
    pub waits: Option<Span>,
    /// The first transaction that a waiting one has to wait for; `NONE` if it holds the row, or waits for itself.
    pub blocker: TransactionId,
}

impl DataManager {
    /// Calls `see` with the locks of all transactions, those that are waited for first, `most` of them at the most;
    /// returns how many more there are. It takes as long as there are locks that are seen.
    pub fn inspect_locks(&self, now: Tick, most: usize, mut see: impl FnMut(RowLock<'_>)) -> usize {
        let is_waiting = |at: Handle| matches!(self.versions.operations[at].state, State::Waiting { .. });
        let usual = self.locks.waiting.iter().filter_map(|&(began, at)| {
            match self.versions.operations.get(at)?.state {
                State::Waiting { since, .. } if since == began => Some(at),
                _ => None,
            }
        });
        let waiting = usual.chain(self.locks.bounded_waits.iter().map(|&(_, at)| at));
        let held = self.versions.transactions.iter().flat_map(|(_, transaction)| {
            core::iter::successors(transaction.operations, |&at| self.versions.operations[at].next)
        });
        let all = waiting.chain(held.filter(|&at| !is_waiting(at)));
        let mut seen = 0;
        for lock in all.filter_map(|at| self.row_lock(at, now)).take(most) {
            seen += 1;
            see(lock);
        }
        (self.locks.table.used().1 as usize).saturating_sub(seen)
    }

    /// The lock of an operation, if it holds one or waits for one.
    fn row_lock(&self, at: Handle, now: Tick) -> Option<RowLock<'_>> {
        let operation = &self.versions.operations[at];
        let row = &self.versions.rows[operation.row_state?];
        let (locker, is_granted) = self.locks.table.entry(operation.lock?)?;
        let mut others =
            self.locks.table.holders(row.lock).filter(|holder| holder.transaction != locker.transaction);
        let blocker = if is_granted { None } else { others.next() };
        let own_name = self.store.tables.current(row.place.table).name.as_str();
        let of_index = TableDefinition::index_of_hidden(own_name)
            .and_then(|(table, index)| Some((self.store.tables.name_of(table)?, Some(index))));
        let (table, index) = of_index.unwrap_or((own_name, None));
        Some(RowLock {
            table,
            index,
            partition: row.place.partition,
            row: row.place.row,
            is_exclusive: locker.mode == LockMode::Exclusive,
            transaction: locker.transaction,
            operation: operation.number,
            waits: match operation.state {
                State::Waiting { since, .. } if !is_granted => Some(now.since(since)),
                _ => None,
            },
            blocker: blocker.map_or(TransactionId::NONE, |holder| holder.transaction),
        })
    }

    /// The fragments that are here: table, the version with which its rows began, partition.
    pub fn inspect_fragments(&self) -> impl Iterator<Item = (u32, u64, PartitionId)> {
        self.store.tables.iter().flat_map(|(id, table)| {
            table.fragments().map(move |(partition, _)| (id, table.birth.0, partition))
        })
    }

    /// The hidden tables of unique indexes, with their versions.
    pub fn inspect_hidden_tables(&self) -> impl Iterator<Item = (u32, u64)> {
        self.store.tables.iter().flat_map(|(_, table)| table.unique.tables())
    }

    /// Calls `see` with each hidden row that the rows of a partition should have in unique indexes: hidden table, its
    /// version, image.
    pub fn inspect_projection(&self, partition: PartitionId, mut see: impl FnMut(u32, u64, Vec<u8>)) {
        let tables = self.store.tables.iter().filter(|(_, table)| table.has_fragment(partition));
        for (_, table) in tables {
            let rows = table.fragment(partition).rows();
            for page in 0..rows.page_count() {
                let Some(view) = rows.page(&self.store.pages, page) else { continue };
                for slot in view.live_slots() {
                    let version = self.store.slot(table, partition, RowId::new(page, slot as u32));
                    table.unique.project(&table.layout, version, &mut see);
                }
            }
        }
    }

    /// Calls `see` with each row of each table, in the order of table, partition and row id.
    pub fn inspect_rows(&self, mut see: impl FnMut(StoredRow)) {
        for (id, table) in self.store.tables.iter() {
            for (partition, fragment) in table.fragments() {
                for page in 0..fragment.rows().page_count() {
                    let Some(view) = fragment.rows().page(&self.store.pages, page) else { continue };
                    for slot in view.live_slots() {
                        let row = RowId::new(page, slot as u32);
                        let mut image = Vec::new();
                        fragment.row_image(&self.store.pages, &self.store.chunks, row, &mut image);
                        see(StoredRow {
                            table: id,
                            birth: table.birth.0,
                            partition,
                            row,
                            epoch: view.row(slot).epoch(),
                            image,
                        });
                    }
                }
            }
        }
    }

    /// What readers of a partition are shown, for each table that is not being removed.
    pub fn inspect_shown(&self, partition: PartitionId) -> Vec<ShownRows> {
        let mut shown = Vec::new();
        for (id, table) in self.store.tables.iter().filter(|(_, table)| !table.is_gone) {
            if !table.has_fragment(partition) {
                continue;
            }
            let store = table.fragment(partition).rows();
            let mut rows = Vec::new();
            for page in 0..store.page_count() {
                let Some(view) = store.page(&self.store.pages, page) else { continue };
                for slot in view.live_slots() {
                    let row = view.row(slot);
                    let is_hidden = row.flags().contains(RowFlags::PENDING_INSERT);
                    let epoch = (!is_hidden).then(|| row.epoch());
                    rows.push((RowId::new(page, slot as u32), epoch));
                }
            }
            shown.push(ShownRows { table: id, birth: table.birth.0, read_backup: table.read_backup, rows });
        }
        shown
    }

    /// The ordered indexes that there are, by table and partition.
    pub fn inspect_ordered_indexes(&self) -> BTreeMap<(u32, PartitionId), BTreeSet<u16>> {
        let fragments = self.store.tables.iter().flat_map(|(id, table)| {
            table.fragments().map(move |(partition, fragment)| ((id, partition), fragment))
        });
        let ids = |fragment: &Fragment| fragment.indexes().iter().map(FragmentIndex::id).collect();
        fragments.map(|(place, fragment)| (place, ids(fragment))).collect()
    }

    /// Checks that each hash index leads to exactly the rows that there are, and that each ordered index has exactly
    /// the entries that it should have.
    ///
    /// # Errors
    /// The first row that is not found, or an index that knows of more rows.
    pub fn inspect_indexes(&self) -> Result<(), String> {
        let is_at_rest = self.has_begun && self.versions.operations.used() == 0;
        for (id, table) in self.store.tables.iter() {
            for (partition, fragment) in table.fragments() {
                let mut rows = 0;
                for page in 0..fragment.rows().page_count() {
                    let Some(view) = fragment.rows().page(&self.store.pages, page) else { continue };
                    for slot in view.live_slots() {
                        rows += 1;
                        let row = RowId::new(page, slot as u32);
                        let (fixed, variable) = fragment.parts(&self.store.pages, &self.store.chunks, row);
                        let mut key = Vec::new();
                        table.layout.write_key(fixed, variable, &mut key);
                        let hash = KeyHash::of(&key);
                        let found: Vec<RowId> =
                            fragment.find_all(&self.store.pages, &self.store.chunks, hash, &key).collect();
                        if !found.contains(&row) {
                            return Err(format!(
                                "table {id}, partition {partition}: row {row} is not found by its key"
                            ));
                        }
                        // Else one of them may be a deleted one that is still shown.
                        if is_at_rest && found.len() > 1 {
                            return Err(format!(
                                "table {id}, partition {partition}: rows {found:?} have the same key"
                            ));
                        }
                    }
                }
                let entries = fragment.index().len();
                if entries != rows {
                    return Err(format!(
                        "table {id}, partition {partition}: {rows} rows, {entries} entries in the index"
                    ));
                }
                for index in fragment.indexes() {
                    self.inspect_ordered_index(fragment, index).map_err(|what| {
                        format!("table {id}, partition {partition}, ordered index {}: {what}", index.id())
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks that an ordered index has exactly the entries that the versions of all rows make, in order.
    fn inspect_ordered_index(&self, fragment: &Fragment, index: &FragmentIndex) -> Result<(), String> {
        let (places, pages) = (Places::of(self, fragment), &self.store.pages);
        let mut expected: BTreeMap<(Vec<u8>, RowId), u32> = BTreeMap::new();
        for page in 0..fragment.rows().page_count() {
            let Some(view) = fragment.rows().page(pages, page) else { continue };
            for slot in view.live_slots() {
                let row = RowId::new(page, slot as u32);
                let mut before = None;
                places.for_each_version(pages, index.order(), row, |key| {
                    if before.as_deref() != Some(key) {
                        *expected.entry((key.to_vec(), row)).or_default() += 1;
                    }
                    before = Some(key.to_vec());
                });
            }
        }
        let (mut scratch, mut key) = (Vec::new(), Vec::new());
        let mut source = RowKeys::new(places, index.order(), &mut scratch);
        let mut cursor = index.tree.cursor(pages, &mut source, Range::ALL, Direction::Ascending);
        let mut expected = expected.into_iter();
        loop {
            let found = cursor.next(&mut source).map(|entry| {
                key.clear();
                index.tree.write_key(pages, &mut source, &entry, &mut key);
                ((key.clone(), entry.row()), entry.count())
            });
            match (found, expected.next()) {
                (None, None) => return Ok(()),
                (found, expected) if found == expected => {}
                (found, expected) => return Err(format!("has {found:?} where rows make {expected:?}")),
            }
        }
    }

    /// Pages that this data manager holds.
    pub fn pages_owned(&self) -> u32 {
        self.store.pages.owned()
    }

    /// What is left of transactions and scans, for people.
    pub fn describe_rest(&self) -> String {
        let mut text = format!(
            "{} row states, {} markers, {} waiting, locks {:?}",
            self.versions.rows.used(),
            self.markers.len(),
            self.waiting(),
            self.locks.table.used(),
        );
        for (_, operation) in self.versions.operations.iter() {
            let transaction = &self.versions.transactions[operation.transaction];
            text += &format!(
                "; operation {}.{} of {:?} ({:?}, {:?}, chain {:?})",
                operation.number,
                operation.sub,
                transaction.id,
                operation.kind,
                operation.state,
                operation.chain
            );
        }
        if self.backup.is_some() {
            text += "; a backup";
        }
        for (id, _) in self.markers.iter() {
            text += &format!("; marker of {id:?}");
        }
        text
    }
}
