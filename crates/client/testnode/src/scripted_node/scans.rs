//! Scans of whole tables, by row id.

use super::{ScriptedNode, take_columns};
use crate::store::{Changes, filter, partition, passes, row, select};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanOpenHead, ScanRefusal};
use vinga_wire::{Address, Frame, SignalNumber, U16, U32, U64};

/// A scan of a table.
pub struct Scan {
    head: ScanOpenHead,
    columns: Option<Vec<u16>>,
    filter: Vec<u8>,
    next: u32,
    given: u32,
}

impl ScriptedNode {
    pub(super) fn on_scan_open(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<ScanOpenHead>()?;
        let columns = take_columns(head.columns.get(), &mut rest)?;
        let program = rest.get(..usize::from(head.filter_bytes.get()))?;
        assert_eq!(head.partition.get(), at.instance(), "each data manager has one partition");
        let table = self.store.table(head.table.get(), head.version.get());
        if let Err(code) = table.and_then(|table| filter(table, program)) {
            let body = ScanRefusal {
                scan: head.scan,
                next_row: head.from_row,
                code: U16::new(code as u16),
                unused: U16::ZERO,
            };
            self.send(api, at, SignalNumber::ScanRefuse, |w| {
                w.put(&body);
            });
            return Some(());
        }
        let scan =
            Scan { head: *head, columns, filter: program.to_vec(), next: head.from_row.get(), given: 0 };
        self.sessions.get_mut(&api)?.scans.insert(head.scan.get(), scan);
        self.scan_batch(api, at, head.scan.get());
        Some(())
    }

    /// One batch, each in two frames.
    pub(super) fn scan_batch(&mut self, api: u8, at: Address, scan_id: u32) {
        let session = self.sessions.get_mut(&api).expect("it has sent a frame");
        let Some(scan) = session.scans.get(&scan_id) else { return };
        let none = Changes::new();
        let changes = session.open.get(&scan.head.transaction.get()).map_or(&none, |open| &open.changes);
        let Ok(table) = self.store.table(scan.head.table.get(), scan.head.version.get()) else { return };
        let filter = filter(table, &scan.filter).expect("checked when it was opened");
        let mut keys: Vec<&Vec<u8>> = table.rows.keys().collect();
        keys.extend(
            changes.iter().filter(|(n, ..)| *n < scan.head.operation.get()).map(|(_, _, key, _)| key),
        );
        keys.sort();
        keys.dedup();
        keys.retain(|key| partition(key, self.layout.data_managers) == at.instance());
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let (mut next, mut given, mut bytes) = (scan.next, scan.given, 0);
        let limit = match scan.head.limit.get() {
            0 => u32::MAX,
            limit => limit,
        };
        while rows.len() < usize::from(scan.head.batch_rows.get())
            && bytes < scan.head.batch_bytes.get() as usize
            && given < limit
        {
            let Some(key) = keys.get(next as usize) else { break };
            next += 1;
            let image = row(table, changes, scan.head.operation.get(), key)
                .filter(|image| filter.as_ref().is_none_or(|filter| passes(table, filter, image)));
            if let Some(image) = image {
                let selected = select(table, image, scan.columns.as_ref());
                bytes += selected.len();
                given += 1;
                rows.push(selected);
            }
        }
        let ends = next as usize >= keys.len() || given >= limit;
        let scan = session.scans.get_mut(&scan_id).expect("found before");
        (scan.next, scan.given) = (next, given);
        if ends {
            session.scans.remove(&scan_id);
        }
        let epoch = self.epoch;
        let (first, second) = rows.split_at(rows.len() / 2);
        for (part, flags) in [(first, 0), (second, SCAN_BATCH_END | if ends { SCAN_END } else { 0 })] {
            self.send(api, at, SignalNumber::ScanConfirm, |w| {
                w.put(&ScanAnswer {
                    epoch: U64::new(epoch),
                    scan: U32::new(scan_id),
                    next_row: U32::new(next),
                    count: U16::new(part.len() as u16),
                    flags: U16::new(flags),
                });
                for row in part {
                    w.bytes(&(row.len() as u16).to_le_bytes()).bytes(row);
                }
            });
        }
    }
}
