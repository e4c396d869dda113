//! What a backup says of the rows of a partition: of each the last change up to the backup's epoch, else what the scan
//! has met.

use crate::redo::{Record, RecordKind};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::{Epoch, RowId};

/// Which row: id and birth of its table, and its place in the partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowPlace {
    /// The table's id.
    pub table: u32,
    /// The version with which its rows began.
    pub birth: u64,
    /// The place.
    pub row: RowId,
}

impl RowPlace {
    /// The place of a record's row.
    pub fn of(record: &Record<'_>) -> Self {
        let change = &record.change;
        RowPlace { table: change.table.0, birth: change.birth.0, row: change.row }
    }
}

/// What has become of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedRow {
    /// The epoch of the change.
    pub epoch: Epoch,
    /// The row; `None` if there is none.
    pub image: Option<Vec<u8>>,
}

/// A row that the scan has met is of a later epoch than the backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaterRow(pub Epoch);

impl fmt::Display for LaterRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row is of a later epoch ({}) than the backup", self.0)
    }
}

/// The changes of a partition: all of them go in before the first row is looked at.
#[derive(Debug)]
pub struct BackupChanges {
    epoch: Epoch,
    rows: BTreeMap<RowPlace, ChangedRow>,
}

impl BackupChanges {
    /// None yet, of a backup of this epoch.
    pub fn new(epoch: Epoch) -> Self {
        BackupChanges { epoch, rows: BTreeMap::new() }
    }

    /// Takes the next change, in the order of the file. Those of later epochs don't count.
    pub fn add(&mut self, record: &Record<'_>) {
        let epoch = record.change.epoch;
        if epoch <= self.epoch {
            let image = (record.change.kind == RecordKind::Write).then(|| record.image.to_vec());
            self.rows.insert(RowPlace::of(record), ChangedRow { epoch, image });
        }
    }

    /// Whether a row counts as the scan has met it.
    ///
    /// # Errors
    /// It is of a later epoch than the backup.
    pub fn leaves(&self, record: &Record<'_>) -> Result<bool, LaterRow> {
        let epoch = record.change.epoch;
        if epoch > self.epoch {
            return Err(LaterRow(epoch));
        }
        Ok(!self.rows.contains_key(&RowPlace::of(record)))
    }

    /// What the changes have made of all rows that they are about.
    pub fn rows(&self) -> impl Iterator<Item = (RowPlace, &ChangedRow)> {
        self.rows.iter().map(|(&place, row)| (place, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redo::{Change, append_record, records};
    use alloc::vec;
    use vinga_base::{PartitionId, TableId, TableVersion};

    fn log(changes: &[(u32, u64, Option<&[u8]>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(row, epoch, image) in changes {
            let kind = if image.is_some() { RecordKind::Write } else { RecordKind::Delete };
            let (table, birth, partition) = (TableId(1), TableVersion(7), PartitionId(0));
            let change = Change { kind, table, birth, partition, row: RowId(row), epoch: Epoch(epoch) };
            append_record(&mut bytes, &change, image.unwrap_or_default(), &[]);
        }
        bytes
    }

    #[test]
    fn the_last_change_up_to_the_epoch_counts() {
        let mut changes = BackupChanges::new(Epoch(10));
        let image = |byte: u8| [byte; 16];
        let bytes = log(&[
            (1, 8, Some(&image(1))),
            (1, 10, Some(&image(2))),
            (1, 11, Some(&image(3))),
            (2, 9, Some(&image(4))),
            (2, 10, None),
            (3, 11, None),
        ]);
        records(&bytes).for_each(|record| changes.add(&record.expect("whole records")));
        let row = |epoch, image: Option<[u8; 16]>| ChangedRow {
            epoch: Epoch(epoch),
            image: image.map(|image| image.to_vec()),
        };
        let found: Vec<_> = changes.rows().map(|(place, row)| (place.row.0, row.clone())).collect();
        assert_eq!(found, vec![(1, row(10, Some(image(2)))), (2, row(10, None))]);
        let scanned = log(&[
            (1, 7, Some(&image(0))),
            (2, 7, Some(&image(0))),
            (3, 7, Some(&image(9))),
            (4, 11, Some(&image(9))),
        ]);
        let leaves: Vec<_> =
            records(&scanned).map(|record| changes.leaves(&record.expect("whole records"))).collect();
        assert_eq!(leaves, [Ok(false), Ok(false), Ok(true), Err(LaterRow(Epoch(11)))]);
    }
}
