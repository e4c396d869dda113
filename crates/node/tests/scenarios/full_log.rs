//! The log is full, and the disk has no room for the checkpoints that would make some: what is to wait for the disk is
//! refused, and nobody waits in vain. Each commit that waits takes a sector of the log, though the rows of the table
//! are in no log.

use crate::support::disk::LogSize;
use crate::support::{ALL, API, Cluster, Op, Received, Setup, committed, open, refused, row, strict};
use vinga_base::{Epoch, Incarnation, TransactionId};
use vinga_kernel::Span;
use vinga_wire::dictionary::CreateTableRequest;
use vinga_wire::epoch::{EpochBody, LogRoom, LogRoomBody};
use vinga_wire::schema::SchemaChange;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_DURABLE, FLAG_START, Outcome};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

const LOG: LogSize = LogSize { files: 4, file_bytes: 128 << 10 };
/// End records that the log has room for, at most.
const SECTORS: u64 = LOG.files as u64 * LOG.file_bytes / 4096;

/// A node whose disk has no room for checkpoints.
fn with_full_disk() -> Cluster {
    let mut cluster =
        Cluster::with(&Setup { nodes: 1, no_logging: true, log: Some(LOG), ..Setup::default() });
    cluster.disks.get_mut(&1).expect("it has one").is_full = true;
    cluster
}

/// A transaction of one batch that is answered when it is on the disk.
fn durable(cluster: &mut Cluster, key: u64) -> Vec<Received> {
    let id = cluster.begin();
    cluster.batch(id, ALL | FLAG_DURABLE, 1, &strict(&[Op::Write(row(key, 1))]));
    cluster.received()
}

/// Commits until the log is full; returns the answer that says so.
fn fill(cluster: &mut Cluster) -> Vec<Received> {
    for key in 0..SECTORS {
        let answer = durable(cluster, key);
        if answer != [committed(1)] {
            return answer;
        }
        cluster.forget_outcomes(cluster.outcomes());
    }
    panic!("each commit takes a sector of the log");
}

fn create(cluster: &mut Cluster, name: &str) -> Vec<Received> {
    let dictionary = Address::new(cluster.settings(1).node, BlockNumber::Dictionary, 0);
    let definition = Cluster::definition_of(name);
    cluster.send(SignalNumber::CreateTableRequest, dictionary, |w| {
        cold::write(w, &CreateTableRequest { request: 1, definition });
    });
    cluster.received()
}

/// The node is asked to stop in order; how that ends.
fn stop(cluster: &mut Cluster) -> Vec<Received> {
    cluster.send_own(SignalNumber::NodeStopRequest, BlockNumber::Driver, BlockNumber::Lifecycle, |_| ());
    cluster.received()
}

/// Epochs end until there is no room for the end of another one.
fn use_up_reserve(cluster: &mut Cluster) {
    let newest = cluster.epoch_received();
    for epoch in newest + 1..newest + SECTORS {
        let (from, to) = (BlockNumber::Lifecycle, BlockNumber::Distribution);
        cluster.send_own(SignalNumber::DurabilityRequest, from, to, |w| {
            w.put(&EpochBody::new(Epoch(epoch)));
        });
    }
}

#[test]
fn what_would_wait_for_a_full_log_is_refused_and_the_rest_goes_on() {
    let mut cluster = with_full_disk();
    let full = [refused(1, ErrorCode::RedoLogFull, 1)];
    assert_eq!(fill(&mut cluster), full);
    assert_eq!(create(&mut cluster, "test.other"), [Received::Refused(ErrorCode::RedoLogFull)]);
    // It holds for all ways to commit.
    let id = cluster.begin();
    cluster.batch(id, FLAG_START, 1, &strict(&[Op::Write(row(1, 2))]));
    assert_eq!(cluster.received(), [open(1)]);
    cluster.batch(id, FLAG_COMMIT | FLAG_DURABLE, 2, &[]);
    assert_eq!(cluster.received(), [refused(2, ErrorCode::RedoLogFull, 0)]);
    let rows = cluster.read(&[1], None);
    assert_eq!(rows, [Some(row(1, 1))], "it is rolled back");
    // Commits in memory go on, and what is left of the log is not used up by them.
    for key in 0..4 * SECTORS {
        assert_eq!(cluster.at_once(&[Op::Write(row(key % 50, 3))]), [committed(1)]);
        cluster.forget_outcomes(cluster.outcomes());
        cluster.advance(Span::from_millis(500));
    }
    assert_eq!(durable(&mut cluster, 1), full, "the disk is still full");
    // Everything clears by itself.
    cluster.disks.get_mut(&1).expect("it has one").is_full = false;
    cluster.advance(Span::from_millis(40_000));
    assert_eq!(durable(&mut cluster, 1), [committed(1)]);
    let created = create(&mut cluster, "test.other");
    assert_eq!(created, [Received::Other(SignalNumber::CreateTableConfirm)]);
    cluster.ends_well();
}

#[test]
fn a_node_stops_in_order_though_its_log_is_full() {
    let mut cluster = with_full_disk();
    fill(&mut cluster);
    assert_eq!(stop(&mut cluster), [Received::Other(SignalNumber::NodeStopConfirm)]);
}

/// What was kept for those who wait already, and for a stop, is used up.
#[test]
fn a_node_ends_at_once_if_there_is_no_room_for_its_stop() {
    let mut cluster = with_full_disk();
    fill(&mut cluster);
    use_up_reserve(&mut cluster);
    assert_eq!(create(&mut cluster, "test.other"), [Received::Refused(ErrorCode::RedoLogFull)]);
    assert_eq!(stop(&mut cluster), [Received::Other(SignalNumber::StopNodeOrder)]);
}

/// A stop that waits for a checkpoint which may make room, and is given up.
#[test]
fn a_stop_is_given_up_with_the_checkpoint_that_it_waits_for() {
    let mut cluster = with_full_disk();
    fill(&mut cluster);
    use_up_reserve(&mut cluster);
    cluster.disks.get_mut(&1).expect("it has one").stands_still = true;
    cluster.advance(Span::from_millis(30_000));
    assert_eq!(stop(&mut cluster), [], "a checkpoint is being made");
    cluster.disks.get_mut(&1).expect("it has one").stands_still = false;
    cluster.run();
    assert_eq!(cluster.received(), [Received::Other(SignalNumber::StopNodeOrder)]);
}

/// The president has a block know of the room in the log.
fn order(cluster: &mut Cluster, to: BlockNumber, room: LogRoom) {
    cluster.send_own(SignalNumber::LogRoomOrder, BlockNumber::Distribution, to, |w| {
        w.put(&LogRoomBody::new(room, false));
    });
}

/// A change waits for a transaction when the log is found full.
#[test]
fn a_definition_that_comes_too_late_is_undone() {
    let mut cluster = Cluster::with(&Setup { nodes: 1, log: Some(LOG), ..Setup::default() });
    let holder = cluster.begin();
    cluster.batch(holder, FLAG_START, 1, &strict(&[Op::Write(row(1, 1))]));
    assert_eq!(cluster.received(), [open(1)]);
    cluster.change_schema(SchemaChange::TruncateTable { name: "test.t".into(), pinned: None });
    order(&mut cluster, BlockNumber::Dictionary, LogRoom::Short);
    assert_eq!(cluster.received(), []);
    cluster.batch(holder, FLAG_COMMIT, 2, &[]);
    assert_eq!(cluster.received(), [committed(2)]);
    cluster.advance(Span::from_millis(300));
    assert_eq!(cluster.received(), [Received::Other(SignalNumber::SchemaChangeRefuse)]);
    assert_eq!(cluster.at_once(&[Op::Write(row(2, 1))]), [committed(1)], "the table is as it was");
    assert_eq!(cluster.read(&[1], None), [Some(row(1, 1))]);
    cluster.advance(Span::from_millis(3000));
    cluster.ends_well();
}

#[test]
fn a_commit_that_waits_in_vain_is_answered() {
    let mut cluster =
        Cluster::with(&Setup { nodes: 1, no_logging: true, log: Some(LOG), ..Setup::default() });
    let order = |cluster: &mut Cluster, room| order(cluster, BlockNumber::Coordinator, room);
    cluster.disks.get_mut(&1).expect("it has one").stands_still = true;
    assert_eq!(durable(&mut cluster, 1), []);
    let id = TransactionId::new(API.node(), Incarnation(1), 1);
    order(&mut cluster, LogRoom::Short);
    assert_eq!(cluster.received(), [], "it has its end");
    order(&mut cluster, LogRoom::None);
    assert_eq!(cluster.received(), [refused(1, ErrorCode::NotOnDisk, 0)]);
    assert_eq!(cluster.read(&[1], None), [Some(row(1, 1))], "it is committed");
    assert_eq!(cluster.ask(id), [Received::Outcome(Outcome::NotOnDisk as u8)]);
    // There is room again, and the end is written.
    order(&mut cluster, LogRoom::Enough);
    cluster.disks.get_mut(&1).expect("it has one").stands_still = false;
    cluster.advance(Span::from_millis(100));
    assert_eq!(cluster.ask(id), [Received::Outcome(Outcome::Committed as u8)]);
    cluster.ends_well();
}
