//! What becomes of a client when all data nodes were started again: another incarnation of the cluster, with frames
//! written by hand.

use crate::lost_data_nodes::{FIRST, read};
use crate::rig::{Rig, first_view, table, view_of_start};
use vinga_client_core::{Command, LinkId, RangeSpec, ScanProgress, ScanSpec};
use vinga_wire::scan::{SCAN_BATCH_END, ScanAnswer, ScanOpenHead};
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64};

/// All data nodes are started again, and do not know the client's ticket any more: it is to ask for a session anew.
/// Returns whom it greets then.
fn restart(rig: &mut Rig, endpoints: u16) -> LinkId {
    (0..endpoints).for_each(|at| rig.break_link(LinkId::new(at, 0)));
    (rig.cluster, rig.start) = (rig.cluster + 1, rig.start + 1);
    rig.advance(1000);
    let greeted = rig.greetings();
    assert_eq!(greeted.len(), usize::from(endpoints), "with the ticket that it has");
    rig.refuse(greeted[0].0, ErrorCode::UnknownOutcome, 0);
    rig.advance(3000);
    let greeted = rig.greetings();
    assert_eq!((greeted.len(), greeted[0].1.ticket), (1, 0), "one is asked for a session");
    greeted[0].0
}

/// One data node has admitted the client, and the others are greeted together. The answer of the first of them brings
/// the view once more; it does not end the greetings of the rest, of whose new start nothing was known before.
#[test]
fn one_greeting_does_not_end_another() {
    let mut rig = Rig::connected(3, &first_view(&[0, 0, 0]));
    let first = restart(&mut rig, 3);
    let view = view_of_start(2, 1, &[0, 0, 0]);
    rig.admit(first, &view);
    rig.advance(2000);
    let greeted = rig.greetings();
    assert_eq!(greeted.len(), 2);
    for (link, _) in greeted {
        rig.admit(link, &view);
        let closed: Vec<Command> = std::iter::from_fn(|| rig.client.next_command()).collect();
        assert_eq!(closed, []);
    }
    assert!(rig.client.endpoints().iter().all(|endpoint| endpoint.is_connected));
}

/// What has come of a scan, and the number of the row behind which it would go on, are of the cluster before. Nor does
/// one begin there of which nothing has come, as no read does that waits.
#[test]
fn scans_and_reads_do_not_go_on_in_another_cluster() {
    let table = table(1);
    let mut rig = Rig::connected(1, &first_view(&[0]));
    let scans = [(); 2].map(|()| rig.client.scan(&table, ScanSpec::default(), None).unwrap());
    let opened = rig.sent(SignalNumber::ScanOpenRequest);
    assert_eq!(opened.len(), 2);
    let name = opened[0].frame().head::<ScanOpenHead>().unwrap().0.scan;
    rig.feed(FIRST, SignalNumber::ScanConfirm, BlockNumber::DataManager, |w| {
        w.put(&ScanAnswer {
            epoch: U64::new(1),
            scan: name,
            next_row: U32::new(4711),
            count: U16::ZERO,
            flags: SCAN_BATCH_END.into(),
        });
    });
    let token = read(&mut rig, &table, 1);
    let statistics = rig.client.statistics(&table, &RangeSpec::new(0)).unwrap();
    let greeted = restart(&mut rig, 1);
    rig.admit(greeted, &view_of_start(2, 1, &[0]));
    assert_eq!(rig.sent(SignalNumber::ScanOpenRequest).len(), 0);
    assert!(rig.client.take_statistics(statistics).expect("it is over").is_err());
    for scan in scans {
        match rig.client.next_rows(scan) {
            ScanProgress::Ended(Err(error)) => assert_eq!(error.code(), ErrorCode::ConnectionLost),
            other => panic!("{other:?}"),
        }
    }
    let error = rig.client.take_read(token).expect("it is over").row(0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ConnectionLost);
    assert!(rig.client.is_at_rest());
}
