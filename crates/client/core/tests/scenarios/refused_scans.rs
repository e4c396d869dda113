//! Scans that are begun anew: of data nodes that have another view than the client, and counts whose data node is lost;
//! with frames written by hand.

use crate::lost_data_nodes::{answer_open, batches_sent, insert, key_at, pair};
use crate::rig::{Rig, Sent, first_view, table};
use vinga_base::{NodeId, OperationNumber};
use vinga_client_core::{BatchEnd, LinkId, OperationBatch, RangeSpec, ScanProgress, ScanSpec, Token};
use vinga_wire::range_scan::{RangeRow, RangeScanOpenHead};
use vinga_wire::scan::{SCAN_END, ScanAnswer, ScanOpenHead, ScanRefusal};
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64, cold};

/// A count of all entries of an index.
fn count_along_index() -> ScanSpec {
    let mut ranges = RangeSpec::new(1);
    ranges.push_bounds(&[0], &[]);
    ScanSpec { counts: true, ranges: Some(ranges), parallel: 16, ..ScanSpec::default() }
}

/// Where parts of counts were opened, and their names.
fn counts_opened(rig: &mut Rig) -> Vec<(LinkId, u32)> {
    let read = |sent: Sent| (sent.link, sent.frame().head::<RangeScanOpenHead>().unwrap().0.scan.get());
    rig.sent(SignalNumber::RangeScanOpenRequest).into_iter().map(read).collect()
}

fn scans_opened(rig: &mut Rig) -> Vec<(LinkId, u32)> {
    let read = |sent: Sent| (sent.link, sent.frame().head::<ScanOpenHead>().unwrap().0.scan.get());
    rig.sent(SignalNumber::ScanOpenRequest).into_iter().map(read).collect()
}

/// A data manager has counted so many entries since its last figure.
fn figure(rig: &mut Rig, (link, scan): (LinkId, u32), entries: u64, flags: u16) {
    rig.feed(link, SignalNumber::ScanConfirm, BlockNumber::DataManager, |w| {
        w.put(&ScanAnswer {
            epoch: U64::new(1),
            scan: U32::new(scan),
            next_row: U32::ZERO,
            count: U16::new(1),
            flags: flags.into(),
        });
        w.put(&RangeRow { row: U32::ZERO, range: U16::ZERO, key_bytes: U16::ZERO, row_bytes: U16::new(8) });
        w.put(&U64::new(entries));
    });
}

fn refuse(rig: &mut Rig, (link, scan): (LinkId, u32), code: ErrorCode) {
    rig.feed(link, SignalNumber::ScanRefuse, BlockNumber::DataManager, |w| {
        let code = U16::new(code as u16);
        w.put(&ScanRefusal { scan: U32::new(scan), next_row: U32::ZERO, code, unused: U16::ZERO });
    });
}

/// What a count has given, if it has ended.
fn counted(rig: &mut Rig, token: Token) -> Option<u64> {
    let mut sum = 0;
    loop {
        let (rows, is_last) = match rig.client.next_rows(token) {
            ScanProgress::Rows(rows) => (rows, false),
            ScanProgress::Last(rows) => (rows, true),
            ScanProgress::Waiting => return None,
            ScanProgress::Ended(result) => return result.map(|()| Some(sum)).unwrap(),
        };
        sum += rows.iter().map(|figure| u64::from_le_bytes(figure.try_into().unwrap())).sum::<u64>();
        if is_last {
            return Some(sum);
        }
    }
}

/// Figures do not say where to go on in an index: what a lost data node has counted so far is forgotten, and counted
/// again by the next owner.
#[test]
fn a_count_along_an_index_begins_anew_at_the_next_owner() {
    let (first, table) = (first_view(&[0, 0]), table(2));
    let mut rig = Rig::connected(2, &first);
    let scan = rig.client.scan(&table, count_along_index(), None).unwrap();
    let parts = counts_opened(&mut rig);
    let (lost, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(link, _)| link.endpoint() == 1);
    let expected = 10 * others.len() as u64 + 9 * lost.len() as u64;
    assert!(!lost.is_empty() && !others.is_empty());
    others.iter().for_each(|&part| figure(&mut rig, part, 10, SCAN_END));
    lost.iter().for_each(|&part| figure(&mut rig, part, 7, 0));
    rig.break_link(LinkId::new(1, 0));
    rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &first.without(&[NodeId(2)]));
    });
    let again = counts_opened(&mut rig);
    assert_eq!(again.len(), lost.len());
    for part in again {
        figure(&mut rig, part, 5, 0);
        // It is refused in the middle, too.
        refuse(&mut rig, part, ErrorCode::ScanTimeout);
    }
    for part in counts_opened(&mut rig) {
        figure(&mut rig, part, 5, 0);
        figure(&mut rig, part, 4, SCAN_END);
    }
    assert_eq!(counted(&mut rig, scan), Some(expected));
}

/// The data node has adopted another view than the client, or not yet the one that the client has. A scan that has
/// given nothing is begun again, that of a transaction, too.
#[test]
fn a_scan_is_begun_again_at_the_next_owner() {
    for is_in_transaction in [false, true] {
        let (mut rig, view) = pair();
        let table = table(2);
        let transaction = is_in_transaction.then(|| {
            let open = rig.client.begin().unwrap();
            let mut batch = OperationBatch::default();
            let mut image = Vec::new();
            batch.push(&insert(&table, &mut image, key_at(&table, &view, 1))).unwrap();
            rig.client.send(open, batch, BatchEnd::Open);
            let sent = batches_sent(&mut rig)[0];
            answer_open(&mut rig, sent);
            (open, OperationNumber(2))
        });
        let spec = ScanSpec { parallel: 16, ..ScanSpec::default() };
        let scan = rig.client.scan(&table, spec, transaction).unwrap();
        for _ in 0..3 {
            for part in scans_opened(&mut rig) {
                refuse(&mut rig, part, ErrorCode::Moved);
            }
            assert!(matches!(rig.client.next_rows(scan), ScanProgress::Waiting));
            rig.advance(1);
        }
        for (link, scan) in scans_opened(&mut rig) {
            rig.feed(link, SignalNumber::ScanConfirm, BlockNumber::DataManager, |w| {
                w.put(&ScanAnswer {
                    epoch: U64::new(1),
                    scan: U32::new(scan),
                    next_row: U32::ZERO,
                    count: U16::ZERO,
                    flags: SCAN_END.into(),
                });
            });
        }
        assert!(matches!(rig.client.next_rows(scan), ScanProgress::Ended(Ok(()))));
    }
}
