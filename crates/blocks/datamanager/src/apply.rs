//! The one place where rows change: their slots, their after-images in chunks, their entries in indexes.
//!
//! | change | by | what |
//! |---|---|---|
//! | [`Store::insert`] | prepare; one-phase commit | a row gets a slot: pending, or committed at once |
//! | [`Store::add_version`] | prepare | an after-image that a transaction has made, beside the slot |
//! | [`Store::drop_version`] | abort; a backup that resolves an earlier prepare | takes that back |
//! | [`Store::note_committed`] | commit at a backup | the newest version is final, and hidden still |
//! | [`Store::install`] | commit, or when a backup learns that all have committed | the newest version goes into the slot, or the row vanishes |
//! | [`Store::remove`] | abort of an insert; one-phase delete | the row vanishes |
//! | [`Store::overwrite`] | one-phase commit | another image in the slot, without a version beside it |
//! | [`Store::build_entries`] | schema change | rows are entered in an index that their table gets |
//!
//! Whatever has to follow rows (a log, checkpoints, copies to other replicas, streams of events) is a [`RowListener`]:
//! the store has one, which is notified of each change. Entries of ordered indexes come and go as `index_entries` says.
//!
//! A change that takes memory may be refused; then all is as it was. Installing, dropping and removing take none.

use crate::index_entries::{Image, IndexEntries};
use crate::index_keys::Places;
use crate::operation::{Change, State};
use crate::store::Store;
use crate::tables::Tables;
use crate::versions::{RowPlace, Versions};
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::pool::Handle;
use vinga_base::{Epoch, PartitionId, RowId, TableVersion};
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::fragment::{Fragment, NewRow};
use vinga_fragment::row::{OperationRef, RowFlags, RowHeader};
use vinga_fragment::row_version::RowVersion;
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_wire::ErrorCode;

/// Where a row and its versions are, for somebody who follows it.
pub struct Rows<'a> {
    /// The pages of rows and short chunks.
    pub pages: &'a PagePool,
    /// Variable parts and after-images.
    pub chunks: &'a ChunkStore,
    /// The fragment that the row is in.
    pub fragment: &'a mut Fragment,
    /// The version with which the table's rows began.
    pub birth: TableVersion,
    /// Whether the table's rows are to survive a restart of the cluster.
    pub is_logged: bool,
    /// Whether it is the hidden table of a unique index.
    pub is_hidden: bool,
}

/// What has become of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowEvent<'a> {
    /// It has got a slot; `None`: pending, so that only its own transaction sees it.
    Inserted(Option<Epoch>),
    /// It has got a version beside its slot.
    VersionAdded,
    /// Its newest version is given up.
    VersionDropped,
    /// Its newest version is committed in this epoch, and not in the slot yet: fixed and variable part, or none if it
    /// is deleted.
    Committed(Epoch, Option<(&'a [u8], &'a [u8])>),
    /// What was `Committed` is in the slot now, or the slot is free.
    Shown,
    /// Its newest version is in the slot, committed in this epoch.
    Installed(Epoch),
    /// There is another image in its slot, committed in this epoch.
    Overwritten(Epoch),
    /// It has no slot any more: deleted in this epoch; `None`: it never was committed.
    Removed(Option<Epoch>),
}

/// Follows the changes of rows.
pub trait RowListener {
    /// Whether it wants to know of changes at present.
    #[inline(always)]
    fn listens(&self) -> bool {
        true
    }

    /// The content of a row's slot is going to change; it still is what it was.
    #[inline(always)]
    fn before(&mut self, _rows: Rows<'_>, _place: RowPlace) {}

    /// A row has changed.
    #[inline(always)]
    fn after(&mut self, _rows: Rows<'_>, _place: RowPlace, _event: RowEvent<'_>) {}
}

/// A row that is to be inserted.
#[derive(Clone, Copy)]
pub struct Insert<'a> {
    pub table: u32,
    pub partition: PartitionId,
    /// Its place, if a primary has chosen it; `None` for any free one.
    pub row: Option<RowId>,
    /// The hash of its key.
    pub hash: KeyHash,
    /// Its checked image.
    pub image: &'a [u8],
    /// The epoch in which it is committed; `None`: it is pending.
    pub epoch: Option<Epoch>,
}

/// What a listener gets of a row's table.
#[inline]
fn rows_of<'a>(
    pages: &'a PagePool,
    chunks: &'a ChunkStore,
    tables: &'a mut Tables,
    place: RowPlace,
) -> Rows<'a> {
    let table = tables.current_mut(place.table);
    let (birth, is_logged, is_hidden) = (table.birth, table.is_logged, table.is_hidden);
    Rows { pages, chunks, fragment: table.fragment_mut(place.partition), birth, is_logged, is_hidden }
}

fn refused(_: OutOfPages) -> ErrorCode {
    ErrorCode::DataMemoryFull
}

impl<L: RowListener> Store<L> {
    /// What changing the ordered indexes of a fragment takes; `None` if it has none.
    #[inline]
    fn entries<'a>(
        &'a mut self,
        versions: &'a Versions,
        table: u32,
        partition: PartitionId,
    ) -> Option<IndexEntries<'a>> {
        let Store { pages, chunks, tables, keys, .. } = self;
        let (layout, rows, indexes) = tables.current_mut(table).fragment_mut(partition).split_indexes();
        if indexes.is_empty() {
            return None;
        }
        Some(IndexEntries {
            pages,
            places: Places { chunks, layout, rows, versions },
            indexes,
            scratch: keys,
        })
    }

    #[inline]
    fn notify_before(&mut self, place: RowPlace) {
        let Store { pages, chunks, tables, listener, .. } = self;
        if !listener.listens() {
            return;
        }
        listener.before(rows_of(pages, chunks, tables, place), place);
    }

    #[inline]
    fn notify_after(&mut self, place: RowPlace, event: RowEvent<'_>) {
        let Store { pages, chunks, tables, listener, .. } = self;
        if !listener.listens() {
            return;
        }
        listener.after(rows_of(pages, chunks, tables, place), place, event);
    }

    /// Gives a row a slot and enters it in the indexes.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and there is no such row.
    pub fn insert(&mut self, versions: &Versions, new: Insert<'_>) -> Result<RowId, ErrorCode> {
        let header = match new.epoch {
            Some(epoch) => RowHeader { epoch, flags: RowFlags::NONE, operation: OperationRef::NONE },
            None => PENDING,
        };
        let Insert { table, partition, hash, image, .. } = new;
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(table).fragment_mut(partition);
        let made = NewRow { hash, image, header };
        let row = match new.row {
            None => fragment.insert_row(pages, chunks, Purpose::Ordinary, made).map_err(refused)?,
            Some(row) => {
                fragment
                    .insert_row_at(pages, chunks, Purpose::Ordinary, row, made)
                    .map_err(|_| ErrorCode::DataMemoryFull)?;
                row
            }
        };
        if let Some(mut entries) = self.entries(versions, table, partition)
            && entries.enter_slot(row).is_err()
        {
            let Store { pages, chunks, tables, .. } = self;
            tables.current_mut(table).fragment_mut(partition).remove_row(pages, chunks, hash, row);
            return Err(ErrorCode::DataMemoryFull);
        }
        self.notify_after(RowPlace { table, partition, row }, RowEvent::Inserted(new.epoch));
        Ok(row)
    }

    /// Makes an image a new version of a row, entered where its key is another. It is still to be linked to the row.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and nothing is left of it.
    pub fn add_version(
        &mut self,
        versions: &Versions,
        place: RowPlace,
        image: &[u8],
        bug: Option<InjectedBug>,
    ) -> Result<RowVersion, ErrorCode> {
        let Store { pages, chunks, tables, .. } = self;
        let layout = &tables.current(place.table).layout;
        let image = RowVersion::new(pages, chunks, Purpose::Ordinary, layout, image).map_err(refused)?;
        if let Some(mut entries) = self.entries(versions, place.table, place.partition) {
            let is_left_out =
                is_on(bug, InjectedBug::EntriesAreNotCounted) && entries.knows_keys_of(place.row, &image);
            if !is_left_out && entries.enter_image(place.row, Image::Stored(&image)).is_err() {
                image.free(&mut self.pages, &mut self.chunks);
                return Err(ErrorCode::DataMemoryFull);
            }
        }
        self.notify_after(place, RowEvent::VersionAdded);
        Ok(image)
    }

    /// Gives up a version, which is not linked to its row any more.
    pub fn drop_version(&mut self, versions: &Versions, place: RowPlace, image: RowVersion) {
        if let Some(mut entries) = self.entries(versions, place.table, place.partition) {
            entries.leave_image(place.row, Image::Stored(&image));
        }
        image.free(&mut self.pages, &mut self.chunks);
        self.notify_after(place, RowEvent::VersionDropped);
    }

    /// The newest version of a row is committed in an epoch, and stays hidden for the time being.
    pub fn note_committed(&mut self, versions: &Versions, state: Handle, epoch: Epoch) {
        let place = versions.rows[state].place;
        let newest = versions.rows[state].newest_change.expect("there is something to commit");
        let Store { pages, chunks, tables, listener, .. } = self;
        let rows = rows_of(pages, chunks, tables, place);
        let content = match &versions.operations[newest].change {
            Change::Insert => Some(rows.fragment.parts(pages, chunks, place.row)),
            Change::Replace(image) => Some(image.parts(pages, chunks)),
            Change::Delete => None,
            Change::None => unreachable!("only changes are linked"),
        };
        listener.after(rows, place, RowEvent::Committed(epoch, content));
    }

    /// Puts the newest version of a row into its slot, or removes the row if that is a delete. All changes of the row
    /// belong to one transaction, which is committed; they are no changes any more, and stay linked to each other, from
    /// the one that is returned on. Says whether the row has vanished.
    pub fn install(
        &mut self,
        versions: &mut Versions,
        state: Handle,
        epoch: Epoch,
        bug: Option<InjectedBug>,
    ) -> (Handle, bool) {
        let place = versions.rows[state].place;
        let newest = versions.rows[state].newest_change.take().expect("there is something to install");
        let was_hidden = matches!(versions.operations[newest].state, State::Committed { shown: false, .. });
        self.notify_before(place);
        self.leave_replaced(versions, place, newest, bug);
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(place.table).fragment_mut(place.partition);
        let vanishes = match &mut versions.operations[newest].change {
            Change::Insert => false,
            Change::Replace(image) => {
                image.exchange(pages, chunks, fragment.rows(), place.row);
                false
            }
            Change::Delete => {
                let hash = fragment.key_hash(pages, chunks, place.row);
                fragment.remove_row(pages, chunks, hash, place.row);
                true
            }
            Change::None => unreachable!("only changes are linked"),
        };
        if !vanishes {
            let mut slot = fragment.rows().row_mut(pages, place.row);
            slot.set_epoch(epoch);
            slot.set_flags(RowFlags::NONE);
        }
        // What the newest image has been exchanged for, and the images of older changes, are of no use any more.
        let mut next = Some(newest);
        while let Some(at) = next {
            let record = &mut versions.operations[at];
            next = record.older_change;
            if let State::Committed { shown, .. } = &mut record.state {
                *shown = true;
            }
            if let Change::Replace(image) = core::mem::replace(&mut record.change, Change::None) {
                image.free(pages, chunks);
            }
        }
        let event = match (was_hidden, vanishes) {
            (true, _) => RowEvent::Shown,
            (false, true) => RowEvent::Removed(Some(epoch)),
            (false, false) => RowEvent::Installed(epoch),
        };
        self.notify_after(place, event);
        (newest, vanishes)
    }

    /// The newest of a chain of changes, which the row does not name any more, is about to be installed, or would be:
    /// removes what older versions have entered.
    #[inline]
    pub fn leave_replaced(
        &mut self,
        versions: &Versions,
        place: RowPlace,
        newest: Handle,
        bug: Option<InjectedBug>,
    ) {
        // What was removed too early must not be removed again.
        let is_gone = is_on(bug, InjectedBug::EntriesGoAtCommit)
            && matches!(versions.operations[newest].state, State::Committed { shown: false, .. });
        if !is_gone && let Some(mut entries) = self.entries(versions, place.table, place.partition) {
            entries.leave_older(place.row, newest);
        }
    }

    /// The hash of a row's key.
    pub fn key_hash(&mut self, place: RowPlace) -> KeyHash {
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(place.table).fragment_mut(place.partition);
        fragment.key_hash(pages, chunks, place.row)
    }

    /// Removes a row that has one version, and a key with this hash: a pending one, or a committed one that is deleted
    /// in an epoch.
    pub fn remove(&mut self, versions: &Versions, place: RowPlace, hash: KeyHash, epoch: Option<Epoch>) {
        self.notify_before(place);
        if let Some(mut entries) = self.entries(versions, place.table, place.partition) {
            entries.leave_slot(place.row);
        }
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(place.table).fragment_mut(place.partition);
        fragment.remove_row(pages, chunks, hash, place.row);
        self.notify_after(place, RowEvent::Removed(epoch));
    }

    /// Replaces the image of a row that no operation names.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`], and all is as it was.
    pub fn overwrite(
        &mut self,
        versions: &Versions,
        place: RowPlace,
        image: &[u8],
        epoch: Epoch,
    ) -> Result<(), ErrorCode> {
        let RowPlace { table, partition, row } = place;
        self.notify_before(place);
        let mut is_entered = false;
        if let Some(mut entries) = self.entries(versions, table, partition) {
            entries.enter_image(row, entries.image(image)).map_err(refused)?;
            entries.gather_replaced(row);
            is_entered = true;
        }
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current(table).fragment(partition);
        let stored = fragment.store_image(pages, chunks, Purpose::Ordinary, row, image);
        if stored.is_ok() {
            fragment.rows().row_mut(pages, row).set_epoch(epoch);
        }
        if is_entered && let Some(mut entries) = self.entries(versions, table, partition) {
            match stored {
                Ok(()) => entries.leave_replaced(row),
                Err(OutOfPages) => entries.leave_image(row, entries.image(image)),
            }
        }
        stored.map_err(refused)?;
        self.notify_after(place, RowEvent::Overwritten(epoch));
        Ok(())
    }
}

/// The header of a row that is inserted but not committed.
const PENDING: RowHeader =
    RowHeader { epoch: Epoch(0), flags: RowFlags::PENDING_INSERT, operation: OperationRef::NONE };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{OperationRecord, Patience, TransactionRecord};
    use crate::tables::{RowsOfTable, Table};
    use alloc::vec;
    use alloc::vec::Vec;
    use vinga_base::order_key::{Direction, OrderColumn};
    use vinga_base::row_layout::RowLayout;
    use vinga_base::schema::{ColumnDefinition, ColumnType, IndexDefinition, IndexKind, TableDefinition};
    use vinga_base::{ColumnId, TablePartitions, TransactionId};
    use vinga_wire::Address;
    use vinga_wire::commit::{Actor, Chain};
    use vinga_wire::dictionary::TableRecord;
    use vinga_wire::operation::OperationKind;
    use vinga_wire::{U32, U64};

    const TABLE: u32 = 1;
    const PARTITION: PartitionId = PartitionId(0);

    /// Writes down what it is notified of: the second column of the row in its slot, before and after.
    #[derive(Default)]
    struct Follower {
        before: Option<u64>,
        seen: Vec<(RowEvent<'static>, Option<u64>, Option<u64>)>,
    }

    /// The second column of the row in a slot.
    fn shown(rows: Rows<'_>, place: RowPlace) -> Option<u64> {
        let is_live = rows.fragment.rows().is_live(place.row);
        let (fixed, _) = is_live.then(|| rows.fragment.parts(rows.pages, rows.chunks, place.row))?;
        Some(u64::from_le_bytes(fixed[8..16].try_into().expect("eight bytes")))
    }

    impl RowListener for Follower {
        fn before(&mut self, rows: Rows<'_>, place: RowPlace) {
            self.before = shown(rows, place);
        }

        fn after(&mut self, rows: Rows<'_>, place: RowPlace, event: RowEvent<'_>) {
            let event = match event {
                RowEvent::Inserted(epoch) => RowEvent::Inserted(epoch),
                RowEvent::VersionAdded => RowEvent::VersionAdded,
                RowEvent::VersionDropped => RowEvent::VersionDropped,
                RowEvent::Committed(epoch, _) => RowEvent::Committed(epoch, None),
                RowEvent::Shown => RowEvent::Shown,
                RowEvent::Installed(epoch) => RowEvent::Installed(epoch),
                RowEvent::Overwritten(epoch) => RowEvent::Overwritten(epoch),
                RowEvent::Removed(epoch) => RowEvent::Removed(epoch),
            };
            self.seen.push((event, self.before.take(), shown(rows, place)));
        }
    }

    struct Fixture {
        store: Store<Follower>,
        versions: Versions,
        layout: RowLayout,
        transaction: Handle,
    }

    fn fixture() -> Fixture {
        let column = |name: &str| ColumnDefinition {
            name: name.into(),
            column_type: ColumnType::Integer { bytes: 8, signed: false },
            nullable: false,
        };
        let index = IndexDefinition {
            id: 1,
            name: "by v".into(),
            columns: vec![OrderColumn { column: ColumnId(1), direction: Direction::Ascending }],
            kind: IndexKind::Ordered,
        };
        let definition = TableDefinition {
            name: "test.t".into(),
            columns: vec![column("id"), column("v")],
            primary_key: vec![ColumnId(0)],
            indexes: vec![index],
            ..TableDefinition::default()
        };
        let layout = RowLayout::new(&definition);
        let record = TableRecord::new(TABLE, 1, TablePartitions::first(1), definition);
        let mut store = Store::new(PagePool::standalone(64), 8, Follower::default());
        store.tables.add(TABLE, Table::new(&record, [true].into_iter(), RowsOfTable::None));
        let mut versions = Versions::new(8, 8);
        let actor =
            Actor { coordinator: U32::ZERO, incarnation: U32::ZERO, acting: U32::ZERO, record: U32::ZERO };
        let transaction = TransactionRecord::new(TransactionId(7), actor, Address(0));
        let transaction = versions.add_transaction(transaction).expect("there is room");
        Fixture { store, versions, layout, transaction }
    }

    impl Fixture {
        fn image(&self, v: u64) -> Vec<u8> {
            let image = [U64::new(1), U64::new(v)].map(U64::to_bytes).concat();
            self.layout.check_image(&image).expect("a row of the table");
            image
        }

        fn insert(&mut self, v: u64, epoch: Option<Epoch>) -> RowPlace {
            let (hash, image) = (KeyHash::of(&1u64.to_le_bytes()), self.image(v));
            let new = Insert { table: TABLE, partition: PARTITION, row: None, hash, image: &image, epoch };
            let row = self.store.insert(&self.versions, new).expect("there is memory");
            RowPlace { table: TABLE, partition: PARTITION, row }
        }

        /// An operation with this change of a row.
        fn operate(&mut self, place: RowPlace, number: u32, change: Change) -> Handle {
            let operation = OperationRecord {
                transaction: self.transaction,
                number,
                sub: 0,
                kind: OperationKind::Update,
                error_is_local: false,
                patience: Patience::Usual,
                state: State::Prepared,
                change: Change::None,
                table: place.table,
                partition: place.partition,
                row: place.row,
                row_state: None,
                older_change: None,
                lock: None,
                waits_since: None,
                is_noted: false,
                reserved: 0,
                chain: Chain::default(),
                next: None,
            };
            let operation = self.versions.operations.insert(operation).ok().expect("there is room");
            let state = self.store.row_state(&mut self.versions, place).expect("there is room");
            self.versions.attach(operation, state);
            self.versions.push_change(operation, change);
            operation
        }

        fn update(&mut self, place: RowPlace, number: u32, v: u64) -> Handle {
            let image = self.image(v);
            let made = self.store.add_version(&self.versions, place, &image, None).expect("there is memory");
            self.operate(place, number, Change::Replace(made))
        }

        fn install(&mut self, operation: Handle, epoch: u64) {
            let state = self.versions.operations[operation].row_state.expect("it names its row");
            self.store.install(&mut self.versions, state, Epoch(epoch), None);
            self.store.detach(&mut self.versions, operation);
        }

        fn seen(&mut self) -> Vec<(RowEvent<'static>, Option<u64>, Option<u64>)> {
            core::mem::take(&mut self.store.listener.seen)
        }

        /// Entries of the ordered index, all of them.
        fn entries(&self) -> u64 {
            let fragment = self.store.tables.current(TABLE).fragment(PARTITION);
            fragment.indexes()[0].tree.usage().entries
        }
    }

    #[test]
    fn a_listener_follows_prepared_changes_to_their_commit() {
        let mut f = fixture();
        let place = f.insert(10, None);
        let insert = f.operate(place, 1, Change::Insert);
        assert_eq!(f.seen(), [(RowEvent::Inserted(None), None, Some(10))]);
        f.install(insert, 5);
        assert_eq!(f.seen(), [(RowEvent::Installed(Epoch(5)), Some(10), Some(10))]);
        // A version that is dropped leaves what was there.
        let update = f.update(place, 2, 20);
        assert_eq!(f.entries(), 2);
        let Change::Replace(image) = f.versions.pop_change(update) else { unreachable!("it has an image") };
        f.store.drop_version(&f.versions, place, image);
        f.store.detach(&mut f.versions, update);
        let events: Vec<_> = f.seen().into_iter().map(|(event, ..)| event).collect();
        assert_eq!((events, f.entries()), (vec![RowEvent::VersionAdded, RowEvent::VersionDropped], 1));
        let update = f.update(place, 3, 30);
        f.install(update, 6);
        assert_eq!(f.seen()[1], (RowEvent::Installed(Epoch(6)), Some(10), Some(30)));
        let delete = f.operate(place, 4, Change::Delete);
        f.install(delete, 7);
        assert_eq!(f.seen(), [(RowEvent::Removed(Some(Epoch(7))), Some(30), None)]);
        assert_eq!((f.entries(), f.versions.rows.used()), (0, 0));
    }

    #[test]
    fn a_listener_follows_changes_that_are_committed_at_once() {
        let mut f = fixture();
        let place = f.insert(10, Some(Epoch(5)));
        let image = f.image(20);
        f.store.overwrite(&f.versions, place, &image, Epoch(6)).expect("there is memory");
        let hash = f.store.key_hash(place);
        f.store.remove(&f.versions, place, hash, Some(Epoch(7)));
        let expected = [
            (RowEvent::Inserted(Some(Epoch(5))), None, Some(10)),
            (RowEvent::Overwritten(Epoch(6)), Some(10), Some(20)),
            (RowEvent::Removed(Some(Epoch(7))), Some(20), None),
        ];
        assert_eq!((f.seen().as_slice(), f.entries()), (&expected[..], 0));
    }
}
