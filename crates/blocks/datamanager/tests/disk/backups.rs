//! Backups of one data manager: whatever is changed while its rows are read, rows and notes together give the state at
//! the end of the epoch that is chosen.

use crate::support::{NODE, Node, Rows, address, change_rows, rows_at, table};
use std::collections::BTreeMap;
use vinga_base::{Incarnation, NodeId};
use vinga_format::redo::{RecordKind, records};
use vinga_kernel::testkit::Sent;
use vinga_wire::backup::{
    BACKUP_CLOSED, BACKUP_SCANNED, BackupBatchHead, BackupNextBody, BackupOpenRequest, EpochClosedConfirm,
};
use vinga_wire::epoch::EpochBody;
use vinga_wire::handshake::Refusal;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::operation::OperationKind;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, U32, U64, cold};

/// The client that makes backups.
const API: Address = Address::new(NodeId(201), BlockNumber::Api, 0);

/// What a client has received.
#[derive(Default)]
struct Received {
    /// Rows as the scan has met them, by place: image and epoch.
    rows: BTreeMap<u32, (Vec<u8>, u64)>,
    /// Changes: place, epoch, image; and whether all rows had been sent before.
    changes: Vec<(u32, u64, Option<Vec<u8>>, bool)>,
    is_scanned: bool,
    is_closed: bool,
    /// The newest epoch that was reported.
    epoch: u64,
    answers: u32,
}

impl Received {
    fn take(&mut self, sent: &Sent) {
        let frame = sent.frame();
        let (head, body) = frame.head::<BackupBatchHead>().expect("a whole body");
        let (rows, rest) = body.split_at(head.row_bytes.get() as usize);
        for record in records(rows) {
            let record = record.expect("whole records");
            let row = (record.image.to_vec(), record.change.epoch.0);
            assert!(self.rows.insert(record.change.row.0, row).is_none(), "a row is met once");
        }
        for record in records(&rest[..head.change_bytes.get() as usize]) {
            let record = record.expect("whole records");
            let image = (record.change.kind == RecordKind::Write).then(|| record.image.to_vec());
            self.changes.push((record.change.row.0, record.change.epoch.0, image, self.is_scanned));
        }
        self.is_scanned |= head.flags.get() & BACKUP_SCANNED != 0;
        self.is_closed = head.flags.get() & BACKUP_CLOSED != 0;
        self.epoch = self.epoch.max(head.epoch.get());
        self.answers += 1;
    }

    /// The rows by key at the end of an epoch. `forgets`: as if changes were not noted while rows were read.
    fn restore(&self, epoch: u64, forgets: bool) -> Rows {
        let mut places: BTreeMap<u32, Option<(Vec<u8>, u64)>> =
            self.rows.iter().map(|(&place, row)| (place, Some(row.clone()))).collect();
        assert!(self.rows.values().all(|&(_, at)| at <= epoch), "no row is of a later epoch");
        for (place, at, image, is_behind) in &self.changes {
            if *at <= epoch && (*is_behind || !forgets) {
                places.insert(*place, image.clone().map(|image| (image, *at)));
            }
        }
        let rows = places.into_values().flatten();
        rows.map(|row| (u64::from_le_bytes(row.0[..8].try_into().expect("the key")), row)).collect()
    }
}

fn node(no_logging: bool) -> Node {
    connected(Node::new(table(no_logging)))
}

fn connected(mut node: Node) -> Node {
    node.send(address(BlockNumber::Membership), SignalNumber::ApiConnectedOrder, |writer| {
        writer.put(&ApiNodeBody::new(API.node(), Incarnation(1)));
    });
    node.take_sent();
    node
}

fn open(node: &mut Node, from: Address) -> Vec<Sent> {
    let request = BackupOpenRequest { request: 1, partition: 0 };
    node.send(from, SignalNumber::BackupOpenRequest, |writer| cold::write(writer, &request));
    node.take_sent()
}

fn next(node: &mut Node, until: u64, received: &mut Received) {
    let body = BackupNextBody { request: U32::new(2), unused: U32::ZERO, until: U64::new(until) };
    node.send(API, SignalNumber::BackupNextRequest, |writer| {
        writer.put(&body);
    });
    collect(node, received);
}

/// Takes answers; returns the epochs that the president was asked for.
fn collect(node: &mut Node, received: &mut Received) -> Vec<u64> {
    // A request is answered after 20 ms at the latest.
    let mut asked = Vec::new();
    for _ in 0..6 {
        node.go_on();
        for sent in node.take_sent() {
            match sent.signal() {
                SignalNumber::BackupNextConfirm => received.take(&sent),
                SignalNumber::EpochClosedRequest => {
                    asked.push(sent.frame().head::<EpochBody>().expect("a whole body").0.epoch().0);
                }
                SignalNumber::BackupNextRefuse => {
                    let refusal: Refusal = cold::read(&sent.frame()).expect("a whole body");
                    panic!("refused: {}", refusal.code);
                }
                _ => {}
            }
        }
    }
    asked
}

fn confirm_closed(node: &mut Node, epoch: u64, current: u64) {
    node.send(address(BlockNumber::Distribution), SignalNumber::EpochClosedConfirm, |writer| {
        writer.put(&EpochClosedConfirm { epoch: U64::new(epoch), current: U64::new(current) });
    });
}

#[test]
fn rows_and_notes_give_the_state_at_the_end_of_the_epoch() {
    let (mut wrong, mut during) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut node = node(random.bool());
        let (mut history, mut epoch) = (Vec::new(), 10);
        // Rows of several batches.
        for key in 0..random.u64(0..200) {
            node.change(OperationKind::Insert, key, &[5; 200], epoch).expect("it is new");
        }
        history.push((epoch, node.rows()));
        for _ in 0..random.u32(0..4) {
            epoch = change_rows(&mut node, &mut random, epoch, &mut history);
        }
        assert!(open(&mut node, API).iter().any(|sent| sent.signal() == SignalNumber::BackupOpenConfirm));
        let mut received = Received::default();
        while !received.is_scanned {
            epoch = change_rows(&mut node, &mut random, epoch, &mut history);
            next(&mut node, 0, &mut received);
        }
        during += received.changes.len();
        // Its newest commit is the least epoch that may be chosen; it may have gone on since.
        let chosen = received.epoch + random.u64(0..2);
        change_rows(&mut node, &mut random, epoch.max(chosen), &mut history);
        next(&mut node, chosen, &mut received);
        assert!(!received.is_closed, "the president has not confirmed it");
        confirm_closed(&mut node, chosen, chosen + 3);
        collect(&mut node, &mut received);
        while !received.is_closed {
            next(&mut node, chosen, &mut received);
        }
        assert!(received.epoch >= chosen + 3, "the president's epoch is passed on");
        let expected = rows_at(&history, chosen);
        assert_eq!(received.restore(chosen, false), expected, "seed {seed}, epoch {chosen}");
        wrong += u32::from(received.restore(chosen, true) != expected);
    }
    assert!(
        during > 100 && wrong > 5,
        "{during} changes during scans; {wrong} backups are wrong without them"
    );
}

/// The president has left in order, and does not answer what it was asked: the next one is asked.
#[test]
fn the_next_president_is_asked_for_the_end_of_the_epoch() {
    let president = NodeId(NODE.0 + 1);
    let mut node = connected(Node::led_by(table(false), president));
    node.change(OperationKind::Insert, 1, &[5; 200], 10).expect("it is new");
    open(&mut node, API);
    let mut received = Received::default();
    while !received.is_scanned {
        next(&mut node, 0, &mut received);
    }
    let ask = |node: &mut Node| {
        let body = BackupNextBody { request: U32::new(2), unused: U32::ZERO, until: U64::new(12) };
        node.send(API, SignalNumber::BackupNextRequest, |writer| {
            writer.put(&body);
        });
        let sent = node.take_sent();
        let asked = sent.iter().find(|one| one.signal() == SignalNumber::EpochClosedRequest);
        asked.map(|one| one.receiver().node())
    };
    assert_eq!([ask(&mut node), ask(&mut node)], [Some(president), None], "it is asked once");
    node.harness.lose_node(president);
    assert_eq!(ask(&mut node), Some(NODE));
    confirm_closed(&mut node, 12, 15);
    collect(&mut node, &mut received);
    while !received.is_closed {
        next(&mut node, 12, &mut received);
    }
    assert_eq!(received.restore(12, false), node.rows());
}

#[test]
fn a_backup_is_the_client_s_that_has_opened_it() {
    let mut node = node(false);
    open(&mut node, API);
    let other = Address::new(NodeId(202), BlockNumber::Api, 0);
    node.send(address(BlockNumber::Membership), SignalNumber::ApiConnectedOrder, |writer| {
        writer.put(&ApiNodeBody::new(NodeId(202), Incarnation(1)));
    });
    node.take_sent();
    let refusal = |sent: &[Sent]| -> Option<u16> {
        let refused = [SignalNumber::BackupOpenRefuse, SignalNumber::BackupNextRefuse];
        let found = sent.iter().find(|sent| refused.contains(&sent.signal()))?;
        Some(cold::read::<Refusal>(&found.frame()).expect("a whole body").code)
    };
    assert_eq!(refusal(&open(&mut node, other)), Some(ErrorCode::BackupRunning as u16));
    let body = BackupNextBody { request: U32::new(2), unused: U32::ZERO, until: U64::ZERO };
    node.send(other, SignalNumber::BackupNextRequest, |writer| {
        writer.put(&body);
    });
    assert_eq!(refusal(&node.take_sent()), Some(ErrorCode::NoSuchBackup as u16));
    assert!(!node.harness.block().is_at_rest());
    // The client's connections are closed: its backup is gone, and another one may be made.
    node.send(address(BlockNumber::Membership), SignalNumber::ApiConnectionClosedOrder, |writer| {
        writer.put(&ApiNodeBody::new(API.node(), Incarnation(1)));
    });
    node.take_sent();
    assert!(node.harness.block().is_at_rest());
    assert_eq!(refusal(&open(&mut node, other)), None);
    node.send(other, SignalNumber::BackupCloseOrder, |_| ());
    assert!(node.harness.block().is_at_rest());
}

#[test]
fn changes_never_wait_and_too_many_end_the_backup() {
    let mut node = node(true);
    open(&mut node, API);
    for epoch in 10..1000 {
        node.change(OperationKind::Write, epoch % 50, &[3; 200], epoch).expect("it is changed all the same");
    }
    let body = BackupNextBody { request: U32::new(2), unused: U32::ZERO, until: U64::ZERO };
    let mut codes = Vec::new();
    for _ in 0..2 {
        node.send(API, SignalNumber::BackupNextRequest, |writer| {
            writer.put(&body);
        });
        let sent = node.take_sent();
        let refused = sent.iter().filter(|sent| sent.signal() == SignalNumber::BackupNextRefuse);
        codes.extend(refused.map(|sent| cold::read::<Refusal>(&sent.frame()).expect("a whole body").code));
    }
    assert_eq!(codes, [ErrorCode::BackupBufferFull as u16, ErrorCode::NoSuchBackup as u16]);
    assert!(node.harness.block().is_at_rest());
}
