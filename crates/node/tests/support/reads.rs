//! What an API node asks data managers: committed reads and scans.

use super::*;
use vinga_wire::key_read::{KeyReadHead, READ_AT_BACKUP};
use vinga_wire::scan::{SCAN_AT_BACKUP, ScanBody, ScanOpenHead};

impl Cluster {
    /// A committed read, straight from the owner; with a transaction, its own changes before `operation` count.
    pub fn read(&mut self, keys: &[u64], viewer: Option<(TransactionId, u32)>) -> Vec<Option<Row>> {
        keys.iter().map(|&key| self.read_from(self.owner_of(key), key, viewer)).collect()
    }

    /// A committed read at a certain node, which is the primary or the table's backups answer reads.
    pub fn read_at(&mut self, node: u8, key: u64) -> Option<Row> {
        let owner = self.owner_of(key);
        self.read_from(dm(node, owner.instance()), key, None)
    }

    fn read_from(
        &mut self,
        data_manager: Address,
        key: u64,
        viewer: Option<(TransactionId, u32)>,
    ) -> Option<Row> {
        self.send_read(data_manager, key, viewer);
        match self.received().pop() {
            Some(Received::Rows(mut rows)) => rows.pop().expect("one key was asked for"),
            other => panic!("a read is answered by rows, not {other:?}"),
        }
    }

    /// Asks a data manager for a row.
    pub fn send_read(&mut self, data_manager: Address, key: u64, viewer: Option<(TransactionId, u32)>) {
        self.send_read_with(data_manager, key, viewer, if viewer.is_none() { READ_AT_BACKUP } else { 0 });
    }

    /// The same with certain flags.
    pub fn send_read_with(
        &mut self,
        data_manager: Address,
        key: u64,
        viewer: Option<(TransactionId, u32)>,
        flags: u16,
    ) {
        let (table, version) = self.table;
        self.send(SignalNumber::KeyReadRequest, data_manager, |w| {
            w.put(&KeyReadHead {
                version: U64::new(version),
                transaction: U64::new(viewer.map_or(0, |(id, _)| id.0)),
                request: U32::ZERO,
                table: U32::new(table),
                operation: U32::new(viewer.map_or(0, |(_, operation)| operation)),
                count: U16::new(1),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                flags: U16::new(flags),
            })
            .bytes(&key.to_le_bytes());
        });
    }

    /// Scans all partitions, in batches of `batch` rows.
    pub fn scan(&mut self, viewer: Option<(TransactionId, u32)>, batch: u16) -> Result<Vec<Row>, ErrorCode> {
        self.scan_with(None, viewer, batch, |_, _| ())
    }

    /// Scans at a certain node, if the table's backups answer reads, and calls `meet` with each batch before the next
    /// one is asked for.
    pub fn scan_with(
        &mut self,
        node: Option<u8>,
        viewer: Option<(TransactionId, u32)>,
        batch: u16,
        mut meet: impl FnMut(&mut Self, &[Row]),
    ) -> Result<Vec<Row>, ErrorCode> {
        let mut found = vec![];
        for partition in self.partitions() {
            found.extend(self.scan_partition_with(partition, node, viewer, batch, &mut meet)?);
        }
        found.sort_by_key(|row| row.0);
        Ok(found)
    }

    /// Scans one partition, which must go well.
    pub fn scan_partition(
        &mut self,
        partition: PartitionId,
        node: Option<u8>,
        viewer: Option<(TransactionId, u32)>,
    ) -> Vec<Row> {
        self.scan_partition_with(partition, node, viewer, 100, &mut |_, _| ()).expect("it can be scanned")
    }

    /// Scans a partition that may not be the table's.
    pub fn try_scan_partition(&mut self, partition: PartitionId) -> Result<Vec<Row>, ErrorCode> {
        self.scan_partition_with(partition, None, None, 100, &mut |_, _| ())
    }

    /// Opens the scan of a partition, whose name is by one greater than the number of that.
    pub fn open_scan(
        &mut self,
        partition: PartitionId,
        owner: Address,
        viewer: Option<(TransactionId, u32)>,
        batch: u16,
    ) {
        let is_primary = owner == self.view.partition(partition).primary();
        self.open_scan_with(partition, owner, viewer, batch, if is_primary { 0 } else { SCAN_AT_BACKUP });
    }

    /// The same with certain flags.
    pub fn open_scan_with(
        &mut self,
        partition: PartitionId,
        owner: Address,
        viewer: Option<(TransactionId, u32)>,
        batch: u16,
        flags: u16,
    ) {
        let (table, version) = self.table;
        self.send(SignalNumber::ScanOpenRequest, owner, |w| {
            w.put(&ScanOpenHead {
                version: U64::new(version),
                transaction: U64::new(viewer.map_or(0, |(id, _)| id.0)),
                scan: U32::new(u32::from(partition.0) + 1),
                table: U32::new(table),
                operation: U32::new(viewer.map_or(0, |(_, operation)| operation)),
                from_row: U32::ZERO,
                batch_bytes: U32::new(1 << 16),
                limit: U32::ZERO,
                partition: U16::new(partition.0),
                batch_rows: U16::new(batch),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                flags: U16::new(flags),
                unused: U16::ZERO,
            });
        });
    }

    fn scan_partition_with(
        &mut self,
        partition: PartitionId,
        node: Option<u8>,
        viewer: Option<(TransactionId, u32)>,
        batch: u16,
        meet: &mut dyn FnMut(&mut Self, &[Row]),
    ) -> Result<Vec<Row>, ErrorCode> {
        let primary = self.view.partition(partition).primary();
        let owner = node.map_or(primary, |node| dm(node, primary.instance()));
        let name = u32::from(partition.0) + 1;
        let mut found = vec![];
        self.open_scan(partition, owner, viewer, batch);
        loop {
            let mut is_over = false;
            for received in self.received() {
                match received {
                    Received::Scanned { rows, end } => {
                        meet(self, &rows);
                        found.extend(rows);
                        is_over |= end;
                    }
                    Received::Refused(code) => return Err(code),
                    other => panic!("a scan is answered by rows, not {other:?}"),
                }
            }
            if is_over {
                return Ok(found);
            }
            self.send(SignalNumber::ScanNextRequest, owner, |w| {
                w.put(&ScanBody { scan: U32::new(name) });
            });
        }
    }
}
