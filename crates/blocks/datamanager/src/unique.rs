//! What a change of a row must be followed by in the hidden tables of its table's unique indexes.
//!
//! The last replica of the chain knows it when it has prepared the change: the version that the transaction saw before
//! the operation, and the version that the operation makes. An index whose columns are the same in both needs nothing,
//! which one comparison of their bytes shows. All deletes are listed before all inserts. The layout of the list is that
//! of `vinga_wire::unique`; the coordinator has it done.

use crate::DataManager;
use crate::operation::Change;
use crate::prepare::Answers;
use crate::store::Version;
use crate::versions::Viewer;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowLayout;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::operation::OperationKind;
use vinga_wire::unique::IndexChange;
use vinga_wire::{U16, U32, U64};

/// A unique index of a table.
struct UniqueIndex {
    id: u16,
    /// The hidden table.
    table: u32,
    version: u64,
    /// Of the hidden table's rows.
    layout: RowLayout,
    /// The columns of the base table that make a hidden row.
    columns: Vec<ColumnId>,
    /// So many of them are the index's own: the hidden table's key.
    key_columns: usize,
}

/// The unique indexes of a table; while it is changed, those of both versions.
pub struct UniqueIndexes(Vec<UniqueIndex>);

impl UniqueIndexes {
    /// Those of a table as the dictionary knows it.
    pub fn of(record: &TableRecord) -> Self {
        let indexes = record.unique_tables.iter().filter_map(|unique| {
            let index = record.definition.index(unique.index)?;
            let hidden = record.definition.unique_table(record.table, index);
            let own: Vec<ColumnId> = index.column_ids().collect();
            let key_columns = own.len();
            let rest = record.definition.primary_key.iter().copied().filter(|id| !own.contains(id));
            Some(UniqueIndex {
                id: unique.index,
                table: unique.table,
                version: unique.version,
                layout: RowLayout::new(&hidden),
                columns: own.iter().copied().chain(rest).collect(),
                key_columns,
            })
        });
        UniqueIndexes(indexes.collect())
    }

    /// Their hidden tables, with their versions.
    pub fn tables(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().map(|index| (index.table, index.version))
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those that are not there yet.
    pub fn add(&mut self, others: Self) {
        for other in others.0 {
            if !self.0.iter().any(|index| index.table == other.table) {
                self.0.push(other);
            }
        }
    }

    /// Whether anything has to follow a change of a row of this layout from one version to another.
    #[inline]
    pub fn follows(&self, base: &RowLayout, old: Option<Version<'_>>, new: Option<Version<'_>>) -> bool {
        self.0.iter().any(|index| {
            index.differs(base, old, new)
                && (index.held(base, old).is_some() || index.held(base, new).is_some())
        })
    }

    /// The hidden rows that belong to a version: hidden table, its version, image.
    pub fn project(&self, base: &RowLayout, version: Version<'_>, mut see: impl FnMut(u32, u64, Vec<u8>)) {
        for index in &self.0 {
            if let Some(held) = index.held(base, Some(version)) {
                let mut image = Vec::new();
                index.write_image(base, held, &mut image);
                see(index.table, index.version, image);
            }
        }
    }
}

impl UniqueIndex {
    /// Whether the index's columns are not the same in both.
    fn differs(&self, base: &RowLayout, old: Option<Version<'_>>, new: Option<Version<'_>>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return old.is_some() || new.is_some() };
        self.columns[..self.key_columns].iter().any(|&id| {
            let column = base.column(id).expect("the index was checked with its table");
            base.bytes(old.fixed, old.variable, column) != base.bytes(new.fixed, new.variable, column)
                || base.is_null(old.fixed, column) != base.is_null(new.fixed, column)
        })
    }

    /// The version, if it is in the index: none of its columns is NULL.
    fn held<'a>(&self, base: &RowLayout, version: Option<Version<'a>>) -> Option<Version<'a>> {
        version.filter(|version| {
            self.columns[..self.key_columns].iter().all(|&id| {
                let column = base.column(id).expect("the index was checked with its table");
                !base.is_null(version.fixed, column)
            })
        })
    }

    /// Appends the hidden row of a version.
    fn write_image(&self, base: &RowLayout, version: Version<'_>, out: &mut Vec<u8>) {
        let value = |&id: &ColumnId| {
            let column = base.column(id).expect("the index was checked with its table");
            Some(base.bytes(version.fixed, version.variable, column))
        };
        let values: Vec<Option<&[u8]>> = self.columns.iter().map(value).collect();
        self.layout.build_image(&values, out).expect("its columns have the types of the base table's");
    }
}

/// Bytes of index changes in one signal; one change more may stand behind them.
const PART_BYTES: usize = 32 * 1024;

/// What follows the operations of some answers.
#[derive(Default)]
pub struct IndexChanges {
    bytes: Vec<u8>,
    /// Where each change ends.
    ends: Vec<usize>,
}

/// As much of it as goes with one signal.
pub struct IndexChangesPart<'a> {
    pub count: u16,
    pub bytes: &'a [u8],
}

impl IndexChangesPart<'_> {
    pub const NONE: Self = IndexChangesPart { count: 0, bytes: &[] };
}

impl IndexChanges {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, change: &IndexChange, bytes: &[u8]) {
        change.write(bytes, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Cuts it into what has to go before the answers, and what goes with them.
    pub fn parts(&self) -> (Vec<IndexChangesPart<'_>>, IndexChangesPart<'_>) {
        let mut early = Vec::new();
        let (mut begin, mut count) = (0, 0);
        for &end in &self.ends {
            count += 1;
            if end - begin > PART_BYTES {
                early.push(IndexChangesPart { count, bytes: &self.bytes[begin..end] });
                (begin, count) = (end, 0);
            }
        }
        (early, IndexChangesPart { count, bytes: &self.bytes[begin..] })
    }
}

impl DataManager {
    /// Answers that an operation is prepared, with what has to follow it.
    pub(crate) fn confirm(&self, cx: &mut Context<'_>, handle: Handle, flags: u8, answers: &mut Answers) {
        let record = &self.versions.operations[handle];
        answers.confirmed.push(record.name().answer(0, flags));
        if record.change == Change::None {
            return;
        }
        let table = self.store.tables.current(record.table);
        if table.unique.0.is_empty() {
            return;
        }
        let viewer =
            Viewer { transaction: self.versions.transactions[record.transaction].id, before: record.number };
        let old = self.store.visible(&self.versions, table, record.partition, record.row, viewer);
        let new = match &record.change {
            Change::Insert => Some(self.store.slot(table, record.partition, record.row)),
            Change::Replace(image) => Some(self.store.image(image)),
            Change::Delete => None,
            Change::None => unreachable!("sent back above"),
        };
        let differing = || table.unique.0.iter().filter(|index| index.differs(&table.layout, old, new));
        let mut image = Vec::new();
        for (version, kind) in [(old, OperationKind::Delete), (new, OperationKind::Insert)] {
            if kind == OperationKind::Delete
                && new.is_some()
                && cx.has_bug(InjectedBug::HiddenDeleteForgotten)
            {
                continue;
            }
            for index in differing() {
                let Some(held) = index.held(&table.layout, version) else { continue };
                image.clear();
                index.write_image(&table.layout, held, &mut image);
                let key = index.layout.key_of(&image);
                let hash = KeyHash::of(&key);
                let bytes = if kind == OperationKind::Delete { key } else { Cow::Borrowed(image.as_slice()) };
                let change = IndexChange {
                    version: U64::new(index.version),
                    hash: U64::new(hash.0),
                    table: U32::new(index.table),
                    operation: U32::new(record.number),
                    index: U16::new(index.id),
                    bytes: U16::new(bytes.len() as u16),
                    kind: kind as u8,
                    unused: 0,
                };
                answers.changes.push(&change, &bytes);
            }
        }
    }
}
