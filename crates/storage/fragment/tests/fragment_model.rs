//! Random operations on a fragment and its replica against a map, with memory refused in the middle of any of them.

use proptest::prelude::*;
use std::collections::BTreeMap;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::ColumnType;
use vinga_base::{Epoch, RowId};
use vinga_fragment::chunk_store::{ChunkStore, ChunkUsage};
use vinga_fragment::fragment::{Fragment, NewRow};
use vinga_fragment::page_view::SLOT_WORDS_MAX;
use vinga_fragment::row::{OperationRef, RowFlags, RowHeader};
use vinga_fragment::row_store::{PlaceError, RowUsage};
use vinga_fragment::row_version::RowVersion;

mod support;
use support::{Fuse, layout};

/// One replica with its own memory.
struct Replica {
    pool: PagePool,
    fuse: Fuse,
    chunks: ChunkStore,
    fragment: Fragment,
}

impl Replica {
    fn new(layout: &RowLayout) -> Self {
        let (pool, fuse) = Fuse::pool(300);
        let fragment = Fragment::new(layout.clone());
        Replica { pool, fuse, chunks: ChunkStore::new(), fragment }
    }

    /// The memory usage that must be unchanged when memory is refused.
    fn memory(&self) -> (u32, RowUsage, ChunkUsage, u64) {
        (
            self.pool.owned(),
            RowUsage { heap_bytes: 0, ..self.fragment.rows().usage() },
            ChunkUsage { heap_bytes: 0, ..self.chunks.usage() },
            self.fragment.index().len(),
        )
    }

    fn insert(&mut self, new: NewRow<'_>) -> Result<RowId, OutOfPages> {
        let before = self.memory();
        let result = self.fragment.insert_row(&mut self.pool, &mut self.chunks, Purpose::Ordinary, new);
        assert!(result.is_ok() || self.memory() == before);
        result
    }

    fn insert_at(&mut self, row: RowId, new: NewRow<'_>) -> Result<(), PlaceError> {
        let before = self.memory();
        let result =
            self.fragment.insert_row_at(&mut self.pool, &mut self.chunks, Purpose::Ordinary, row, new);
        assert!(result.is_ok() || self.memory() == before);
        result
    }

    fn store(&mut self, row: RowId, image: &[u8]) -> Result<(), OutOfPages> {
        let before = self.memory();
        let result =
            self.fragment.store_image(&mut self.pool, &mut self.chunks, Purpose::Ordinary, row, image);
        assert!(result.is_ok() || self.memory() == before);
        result
    }

    fn version(&mut self, image: &[u8]) -> Result<RowVersion, OutOfPages> {
        let before = self.memory();
        let layout = self.fragment.layout();
        let result = RowVersion::new(&mut self.pool, &mut self.chunks, Purpose::Ordinary, layout, image);
        assert!(result.is_ok() || self.memory() == before);
        result
    }

    fn remove(&mut self, row: RowId) {
        let hash = self.fragment.key_hash(&self.pool, &self.chunks, row);
        self.fragment.remove_row(&mut self.pool, &mut self.chunks, hash, row);
    }

    /// Checks that every row can be found and that there are no others.
    fn check(&self, model: &BTreeMap<RowId, ModelRow>) {
        let Replica { pool, chunks, fragment, .. } = self;
        assert_eq!(fragment.index().len() as usize, model.len());
        assert_eq!(fragment.rows().usage().rows as usize, model.len());
        for (&row, expected) in model {
            let found: Vec<RowId> = fragment.find_all(pool, chunks, expected.hash(), &expected.key).collect();
            assert!(found.contains(&row));
            let mut image = Vec::new();
            fragment.row_image(pool, chunks, row, &mut image);
            assert_eq!(image, expected.image);
            assert_eq!(fragment.rows().row(pool, row).header(), expected.header);
        }
        let mut live = model.iter();
        for index in 0..fragment.rows().page_count() {
            let Some(page) = fragment.rows().page(pool, index) else { continue };
            let mut busy = [u64::MAX; SLOT_WORDS_MAX];
            page.read_busy(&mut busy);
            let mut newest = Epoch(0);
            let mut busy_expected = vec![0; page.live().len()];
            for slot in page.live_slots() {
                let (&row, expected) = live.next().expect("no more rows than the model");
                assert_eq!(row, RowId::new(index, slot as u32));
                assert_eq!(page.row(slot).header(), expected.header);
                let at = page.fixed_at() + slot * page.stride();
                let fixed = &page.bytes()[at..at + fragment.layout().fixed_bytes()];
                assert_eq!(fixed, fragment.layout().split(&expected.image).0);
                newest = newest.max(expected.header.epoch);
                if expected.header.operation != OperationRef::NONE {
                    busy_expected[slot / 64] |= 1 << (slot % 64);
                }
            }
            assert_eq!(page.newest_epoch(), newest);
            assert_eq!(busy[..busy_expected.len()], busy_expected);
        }
        assert!(live.next().is_none());
    }
}

#[derive(Clone)]
struct ModelRow {
    key: Vec<u8>,
    image: Vec<u8>,
    header: RowHeader,
}

impl ModelRow {
    fn new(layout: &RowLayout, image: Vec<u8>, header: RowHeader) -> Self {
        let mut key = Vec::new();
        let (fixed, variable) = layout.split(&image);
        layout.write_key(fixed, variable, &mut key);
        ModelRow { key, image, header }
    }

    fn hash(&self) -> KeyHash {
        KeyHash::of(&self.key)
    }

    fn new_row(&self) -> NewRow<'_> {
        NewRow { hash: self.hash(), image: &self.image, header: self.header }
    }
}

const INT: ColumnType = ColumnType::Integer { bytes: 4, signed: true };
const CHAR: ColumnType = ColumnType::Char { bytes: 1000 };
const TEXT: ColumnType = ColumnType::VarChar { bytes_max: 20_000 };
const NAME: ColumnType = ColumnType::VarChar { bytes_max: 40 };

/// Tables whose rows are large enough for pages to be added and removed.
fn tables() -> [RowLayout; 4] {
    [
        layout(&[(INT, false), (CHAR, false), (CHAR, true), (CHAR, true)], &[0]),
        layout(&[(INT, false), (CHAR, true), (TEXT, true)], &[0]),
        layout(&[(NAME, false), (TEXT, true), (CHAR, true)], &[0]),
        layout(&[(CHAR, false), (NAME, false)], &[0, 1]),
    ]
}

/// An image with this key; the rest varies with `fill`, which also decides the columns that are NULL, and `length`.
fn image(layout: &RowLayout, key: u32, fill: u8, length: usize) -> Vec<u8> {
    let values: Vec<Option<Vec<u8>>> = layout
        .columns()
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let is_key = layout.key().iter().any(|id| usize::from(id.0) == i);
            if column.null_bit.is_some() && fill >> i & 1 == 1 {
                return None;
            }
            let (bytes, fill) = if is_key { (key as usize % 40, 7) } else { (length, fill) };
            let mut value = vec![fill; column.kind.fixed_bytes().map_or(bytes, usize::from)];
            if is_key {
                let end = value.len().min(4);
                value[..end].copy_from_slice(&key.to_le_bytes()[..end]);
            }
            Some(value)
        })
        .collect();
    let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
    let mut image = Vec::new();
    layout.build_image(&values, &mut image).unwrap();
    layout.check_image(&image).unwrap();
    image
}

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u32, fill: u8, length: usize },
    InsertAt { row: u32, key: u32 },
    Store { pick: usize, fill: u8, length: usize },
    Exchange { pick: usize, fill: u8, length: usize, undo: bool },
    Mark { pick: usize, epoch: u64, operation: u32 },
    Remove { pick: usize },
}

fn step() -> impl Strategy<Value = (Step, u32)> {
    let length = || prop_oneof![0usize..40, 0usize..1000, 0usize..20_000];
    let step = prop_oneof![
        4 => (0u32..200, any::<u8>(), length()).prop_map(|(key, fill, length)| Step::Insert { key, fill, length }),
        1 => (0u32..40 << 11, 0u32..200).prop_map(|(row, key)| Step::InsertAt { row, key }),
        2 => (any::<usize>(), any::<u8>(), length())
            .prop_map(|(pick, fill, length)| Step::Store { pick, fill, length }),
        2 => (any::<usize>(), any::<u8>(), length(), any::<bool>())
            .prop_map(|(pick, fill, length, undo)| Step::Exchange { pick, fill, length, undo }),
        2 => (any::<usize>(), 0..1u64 << 48, 0u32..3)
            .prop_map(|(pick, epoch, operation)| Step::Mark { pick, epoch, operation }),
        2 => any::<usize>().prop_map(|pick| Step::Remove { pick }),
    ];
    (step, prop_oneof![3 => Just(u32::MAX), 1 => 0u32..4])
}

/// Runs the steps on a primary, whose fuse may blow, and on a replica that follows it.
fn run(layout: &RowLayout, steps: Vec<(Step, u32)>, release_steps: Option<u32>) {
    let mut primary = Replica::new(layout);
    let mut backup = Replica::new(layout);
    let mut model: BTreeMap<RowId, ModelRow> = BTreeMap::new();
    let pending = RowHeader { epoch: Epoch(0), flags: RowFlags::PENDING_INSERT, operation: OperationRef(9) };
    for (count, (step, fuse)) in steps.into_iter().enumerate() {
        let picked = |pick: usize| model.keys().nth(pick % model.len().max(1)).copied();
        let key_of = |row: RowId| model[&row].key.clone();
        primary.fuse.set(fuse);
        match step {
            Step::Insert { key, fill, length } => {
                let new = ModelRow::new(layout, image(layout, key, fill, length), pending);
                if let Ok(row) = primary.insert(new.new_row()) {
                    backup.insert_at(row, new.new_row()).unwrap();
                    assert_eq!(backup.insert_at(row, new.new_row()), Err(PlaceError::Taken));
                    assert!(model.insert(row, new).is_none());
                }
            }
            Step::InsertAt { row, key } => {
                let row = RowId(row);
                let new = ModelRow::new(layout, image(layout, key, 1, 3), pending);
                match primary.insert_at(row, new.new_row()) {
                    Ok(()) => {
                        backup.insert_at(row, new.new_row()).unwrap();
                        assert!(model.insert(row, new).is_none());
                    }
                    Err(PlaceError::Taken) => assert!(model.contains_key(&row)),
                    Err(PlaceError::NoSuchSlot) => {
                        assert!(row.slot() as usize >= primary.fragment.rows().slots());
                        assert!(!primary.fragment.rows().is_live(row));
                    }
                    Err(PlaceError::OutOfPages) => assert!(fuse < u32::MAX),
                }
            }
            Step::Store { pick, fill, length } => {
                let Some(row) = picked(pick) else { continue };
                let image = with_key(layout, &key_of(row), fill, length);
                if primary.store(row, &image).is_ok() {
                    backup.store(row, &image).unwrap();
                    model.get_mut(&row).unwrap().image = image;
                }
            }
            Step::Exchange { pick, fill, length, undo } => {
                let Some(row) = picked(pick) else { continue };
                let image = with_key(layout, &key_of(row), fill, length);
                let Ok(mut version) = primary.version(&image) else { continue };
                let Replica { pool, chunks, fragment, .. } = &mut primary;
                version.exchange(pool, chunks, fragment.rows(), row);
                let (fixed, variable) = version.parts(pool, chunks);
                assert_eq!([fixed, variable].concat(), model[&row].image);
                if undo {
                    version.exchange(pool, chunks, fragment.rows(), row);
                } else {
                    backup.store(row, &image).unwrap();
                    model.get_mut(&row).unwrap().image = image;
                }
                version.free(pool, chunks);
            }
            Step::Mark { pick, epoch, operation } => {
                let Some(row) = picked(pick) else { continue };
                let header = RowHeader {
                    epoch: Epoch(epoch),
                    flags: RowFlags::NONE,
                    operation: OperationRef(operation),
                };
                for replica in [&mut primary, &mut backup] {
                    let mut slot = replica.fragment.rows().row_mut(&mut replica.pool, row);
                    slot.set_epoch(header.epoch);
                    slot.set_flags(header.flags);
                    slot.set_operation(header.operation);
                }
                model.get_mut(&row).unwrap().header = header;
            }
            Step::Remove { pick } => {
                let Some(row) = picked(pick) else { continue };
                primary.remove(row);
                backup.remove(row);
                model.remove(&row);
                assert!(!primary.fragment.rows().is_live(row));
            }
        }
        if count % 8 == 0 {
            primary.check(&model);
        }
    }
    primary.check(&model);
    backup.check(&model);
    for mut replica in [primary, backup] {
        match release_steps {
            Some(steps) => {
                let Replica { pool, chunks, fragment, .. } = &mut replica;
                while !fragment.release_slice(pool, chunks, steps) {}
            }
            None => model.keys().for_each(|&row| replica.remove(row)),
        }
        let nothing = (0, RowUsage::default(), ChunkUsage::default(), 0);
        assert_eq!(replica.memory(), nothing);
    }
}

/// An image with the same encoded key as another one.
fn with_key(layout: &RowLayout, key: &[u8], fill: u8, length: usize) -> Vec<u8> {
    let same = (0..200).map(|k| image(layout, k, fill, length)).find(|image| {
        let (fixed, variable) = layout.split(image);
        layout.key_equals(key, fixed, variable)
    });
    same.expect("all keys come from `image`")
}

#[test]
fn a_shrunken_row_gives_memory_back_unless_there_is_none_to_move_to() {
    let layout = &tables()[1];
    let mut replica = Replica::new(layout);
    let row = |length| ModelRow::new(layout, image(layout, 1, 0, length), RowHeader::default());
    let id = replica.insert(row(20_000).new_row()).unwrap();
    let used = |replica: &Replica| replica.chunks.usage().bytes_used;
    assert!(used(&replica) > 20_000);
    replica.fuse.set(0);
    replica.store(id, &row(100).image).unwrap();
    assert!(used(&replica) > 20_000);
    assert_eq!(replica.store(id, &row(20_000).image), Ok(()), "it still has room");
    replica.fuse.set(1);
    replica.store(id, &row(100).image).unwrap();
    assert!(used(&replica) < 200);
    assert_eq!(replica.store(id, &row(20_000).image), Err(OutOfPages));
    replica.check(&BTreeMap::from([(id, row(100))]));
}

#[test]
fn rows_with_equal_keys_are_all_found() {
    let layout = &tables()[2];
    let mut replica = Replica::new(layout);
    let row = |fill| ModelRow::new(layout, image(layout, 1, fill, 10), RowHeader::default());
    let (old, new) = (row(0), row(8));
    let first = replica.insert(old.new_row()).unwrap();
    let second = replica.insert(new.new_row()).unwrap();
    replica.check(&BTreeMap::from([(first, old), (second, new.clone())]));
    replica.remove(first);
    let Replica { pool, chunks, fragment, .. } = &replica;
    assert_eq!(fragment.find(pool, chunks, new.hash(), &new.key), Some(second));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn fixed_rows(steps in prop::collection::vec(step(), 0..250), release in prop::option::of(1u32..50)) {
        run(&tables()[0], steps, release);
    }

    #[test]
    fn variable_rows(steps in prop::collection::vec(step(), 0..250), release in prop::option::of(1u32..50)) {
        run(&tables()[1], steps, release);
    }

    #[test]
    fn variable_keys(steps in prop::collection::vec(step(), 0..250), release in prop::option::of(1u32..50)) {
        run(&tables()[2], steps, release);
    }

    #[test]
    fn mixed_keys(steps in prop::collection::vec(step(), 0..250), release in prop::option::of(1u32..50)) {
        run(&tables()[3], steps, release);
    }
}
