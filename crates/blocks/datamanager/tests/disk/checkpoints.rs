//! A data manager with files in memory: what is committed is logged, checkpoints contain it, and both together restore
//! it, to any epoch that was on disk.

use crate::support::{FILLER, Node, Rows, change_rows, rows_at, table};
use std::collections::BTreeMap;
use vinga_base::Epoch;
use vinga_format::redo::records;
use vinga_wire::file::FileErrorKind;
use vinga_wire::operation::OperationKind;
use vinga_wire::start::{LogIncarnation, StartResult, StartTask};

#[test]
fn any_epoch_since_the_last_usable_checkpoint_can_be_restored() {
    let mut met = [0; 2];
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut node = Node::new(table(false));
        let mut history = Vec::new();
        let (mut epoch, mut durable) = (10, 0);
        for _ in 0..random.u32(1..30) {
            epoch = change_rows(&mut node, &mut random, epoch, &mut history);
            match random.u32(0..3) {
                // A checkpoint with a quota that stops it half-way: changes go on, and it ends later.
                0 => node.order_checkpoint(1),
                1 => node.order_checkpoint(1 << 30),
                _ => {}
            }
            if random.bool() {
                durable = if random.bool() { epoch } else { random.u64(durable..=epoch) };
                node.durable(durable);
            }
        }
        let restored = random.u64(durable..=epoch);
        let statistics = node.harness.block().checkpoint_statistics();
        met[0] += statistics.full;
        met[1] += statistics.partial;
        let node = node.restart(restored).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(node.rows(), rows_at(&history, restored), "seed {seed}, epoch {restored}");
    }
    assert!(met[0] > 20 && met[1] > 5, "full and partial checkpoints: {met:?}");
}

#[test]
fn what_was_restored_goes_on_and_can_be_restored_again() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut node = Node::new(table(false));
        let mut history = Vec::new();
        let mut epoch = change_rows(&mut node, &mut random, 10, &mut history);
        for round in 0..4 {
            if random.bool() {
                node.order_checkpoint(1 << 30);
            }
            node.durable(epoch);
            node = node.restart(epoch).unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}"));
            assert_eq!(node.rows(), rows_at(&history, epoch), "seed {seed}, round {round}");
            epoch = change_rows(&mut node, &mut random, epoch + 1, &mut history);
        }
    }
}

#[test]
fn a_checkpoint_that_is_not_covered_is_not_used() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (2, 1), "it is covered as soon as it is written");
    node.change(OperationKind::Delete, 1, b"", 11).expect("it is there");
    node.change(OperationKind::Insert, 2, b"two", 11).expect("it is new");
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (2, 2), "epoch 11 is not on disk: the older file is needed");
    let node = node.restart(10).expect("the older checkpoint has everything");
    assert_eq!(node.rows().keys().collect::<Vec<_>>(), [&1], "the row that was deleted in epoch 11 is there");
    assert_eq!(node.files.len(), 1, "the file that does not count is gone");
}

/// The scan meets a row before it is deleted, and its key again in the place where it was inserted since: both are in
/// the file, which is loaded whole before the log says which of them is left.
#[test]
fn a_key_that_the_scan_meets_in_two_places_has_one_row_in_the_end() {
    const KEY: u64 = 0x1122_3344_5566_7788;
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, KEY, b"first", 10).expect("it is new");
    // More than a block of the file.
    for key in 1..600 {
        node.change(OperationKind::Insert, key, b"", 10).expect("it is new");
    }
    node.durable(10);
    node.order_checkpoint(1);
    node.change(OperationKind::Delete, KEY, b"", 11).expect("it is there");
    node.change(OperationKind::Insert, 1000, b"in its place", 11).expect("it is new");
    node.change(OperationKind::Insert, KEY, b"second", 12).expect("it is new");
    let rows = node.rows();
    node.give_quota(1 << 30);
    node.durable(12);
    let file = node.files.values().next_back().expect("it was written");
    assert_eq!(
        file.windows(8).filter(|bytes| *bytes == KEY.to_le_bytes()).count(),
        2,
        "the scan met it twice"
    );
    assert!(node.trimmed > 1, "the checkpoint counts");
    let node = node.restart(12).expect("file and log have everything");
    assert_eq!(node.rows(), rows);
}

/// A table is dropped in an epoch that no restart restores yet: what the checkpoint lacks may still be needed.
#[test]
fn a_checkpoint_without_a_dropped_table_counts_when_the_drop_does() {
    for is_before_scan in [true, false] {
        let mut node = Node::new(table(false));
        for key in 1..600 {
            node.change(OperationKind::Insert, key, b"", 10).expect("it is new");
        }
        node.durable(10);
        node.order_checkpoint(1 << 30);
        let trimmed = node.trimmed;
        for key in 1..400 {
            node.change(OperationKind::Delete, key, b"", 10).expect("it is there");
        }
        let rows = node.rows();
        if is_before_scan {
            node.drop_table(11);
            node.order_checkpoint(1 << 30);
        } else {
            node.order_checkpoint(1);
            node.drop_table(11);
            node.give_quota(1 << 30);
        }
        assert_eq!((node.trimmed, node.files.len()), (trimmed, 2), "the drop is not on disk");
        let mut node = node.restart(10).expect("the older checkpoint and the log have everything");
        assert_eq!(node.rows(), rows);
        node.drop_table(11);
        node.order_checkpoint(1 << 30);
        assert_eq!((node.trimmed, node.files.len()), (1, 2), "the drop is not on disk");
        node.durable(11);
        assert!(node.trimmed > trimmed, "it counts now");
    }
}

/// A backup does not show what is committed before it is committed at the primary, too. The checkpoint has it all the
/// same: it was logged before the place from which the log is replayed.
#[test]
fn a_checkpoint_has_what_is_committed_and_not_shown_yet() {
    let mut node = Node::new(table(false));
    for key in 1..4 {
        node.change(OperationKind::Insert, key, b"old", 10).expect("it is new");
    }
    let before = node.rows();
    node.is_backup = true;
    node.change(OperationKind::Write, 1, b"new", 11).expect("it is there");
    node.change(OperationKind::Delete, 2, b"", 11).expect("it is there");
    node.change(OperationKind::Insert, 5, b"new", 11).expect("it is new");
    node.durable(11);
    node.order_checkpoint(1 << 30);
    assert!(node.trimmed > *node.log.keys().last().expect("all was logged"), "the log is not needed");
    let rows = node.restart(11).expect("the checkpoint has everything").rows();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [1, 3, 5]);
    assert!(rows[&1] != before[&1] && rows[&3] == before[&3]);
    assert_eq!(rows[&1].1, 11, "with the epoch of the change");
}

/// A checkpoint has changes beyond the restore point of its incarnation. Its epoch is on disk later, in another
/// history; the file may still be there if the machine stopped before its removal was.
#[test]
fn a_checkpoint_of_an_incarnation_that_did_not_get_so_far_is_never_used() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.order_checkpoint(1 << 30);
    node.change(OperationKind::Delete, 1, b"", 11).expect("it is there");
    node.change(OperationKind::Insert, 2, b"dead", 11).expect("it is new");
    node.order_checkpoint(1 << 30);
    let (dead, bytes) = node.files.iter().next_back().map(|(name, file)| (*name, file.clone())).expect("two");
    node.log.retain(|_, records| records_are_of(records, 10));
    let mut node = node.restart(10).expect("the older checkpoint has everything");
    node.files.insert(dead, bytes);
    node.change(OperationKind::Insert, 3, b"three", 11).expect("it is new");
    node.durable(11);
    let node = node.restart(11).expect("the older checkpoint and the log have everything");
    assert_eq!(node.rows().keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert!(!node.files.contains_key(&dead), "it is removed again");
}

/// Whether all of these records are of epochs up to this one.
fn records_are_of(bytes: &[u8], epoch: u64) -> bool {
    records(bytes).all(|record| record.expect("a whole record").change.epoch <= Epoch(epoch))
}

#[test]
fn a_damaged_checkpoint_is_replaced_by_the_older_one_or_refused() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.order_checkpoint(1 << 30);
    node.change(OperationKind::Insert, 2, b"two", 11).expect("it is new");
    node.order_checkpoint(1 << 30);
    let newest = *node.files.keys().last().expect("there are two");
    node.files.get_mut(&newest).expect("it is there")[5000] ^= 1;
    let mut node = node.restart(11).expect("the older checkpoint and the log have everything");
    assert_eq!(node.rows().len(), 2);
    node.change(OperationKind::Insert, 3, b"three", 12).expect("it is new");
    node.durable(12);
    node.order_checkpoint(1 << 30);
    for file in node.files.values_mut() {
        file[5000] ^= 1;
    }
    let why = node.restart(12).err().expect("the log was cut behind the checkpoint");
    assert!(why.contains("checkpoint/000-") && why.contains("offset 4096"), "{why}");
}

#[test]
fn a_start_that_is_refused_leaves_the_checkpoint_that_could_not_be_read() {
    let mut node = Node::new(table(false));
    for key in 1..200 {
        node.change(OperationKind::Insert, key, &[1; 1000], 10).expect("it is new");
    }
    node.durable(10);
    node.order_checkpoint(1 << 30);
    node.change(OperationKind::Insert, 1000, b"later", 11).expect("it is new");
    node.durable(11);
    node.order_checkpoint(1 << 30);
    assert_eq!(node.files.len(), 2, "the newer file builds on the older one");
    let newest = *node.files.keys().last().expect("there are two");
    // The disk fails for a moment.
    let (table, trimmed) = (node.table.clone(), node.trimmed);
    let mut node = Node::stopped(table, node.files, node.log);
    node.unreadable = Some(newest);
    node.make_table();
    let incarnations = vec![LogIncarnation { number: 1, last_valid: Some(Epoch(11)) }];
    let loaded = node.start(StartTask::LoadCheckpoint { epoch: Epoch(11), incarnations });
    let StartResult::CheckpointLoaded { batch, .. } = loaded else { panic!("one is loaded: {loaded:?}") };
    assert!(batch < trimmed, "the log refuses this start");
    assert!(node.files.contains_key(&newest), "it may be whole");
}

#[test]
fn a_checkpoint_that_is_cut_off_anywhere_is_replaced_by_the_log() {
    for bytes in [0, 1, 671, 4096, 5000] {
        let mut node = Node::new(table(false));
        node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
        node.durable(10);
        node.order_checkpoint(1 << 30);
        node.trimmed = 1;
        node.files.values_mut().for_each(|file| file.truncate(bytes));
        let node = node.restart(10).expect("the log has everything");
        assert_eq!(node.rows().len(), 1, "of {bytes} bytes");
    }
}

#[test]
fn answers_to_reads_that_nobody_needs_any_more_mean_nothing() {
    // Several reads are under way when the last block of the checkpoint is met, or when it is given up.
    for is_damaged in [false, true] {
        let mut node = Node::new(table(false));
        node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
        node.durable(10);
        node.order_checkpoint(1 << 30);
        node.trimmed = 1;
        for file in node.files.values_mut() {
            file.resize(3 << 20, 7);
            file[100] ^= u8::from(is_damaged);
        }
        let node = node.restart(10).expect("the log has everything");
        assert_eq!(node.rows().len(), 1);
    }
}

#[test]
fn tables_that_are_not_logged_are_empty_afterwards() {
    let mut node = Node::new(table(true));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.order_checkpoint(1 << 30);
    assert!(node.log.is_empty());
    assert_eq!(node.restart(10).expect("there is nothing to be restored").rows(), Rows::new());
}

#[test]
fn changes_are_refused_when_the_log_has_no_room_and_nothing_is_done() {
    let mut node = Node::stopped(table(false), BTreeMap::new(), BTreeMap::new());
    node.start(StartTask::Begin { epoch: Epoch(1), limit: Epoch::MAX, durable: Epoch(0), incarnation: 1 });
    node.make_table();
    assert_eq!(node.change(OperationKind::Insert, 1, b"one", 10), Err(410));
    node.give_credit(100 + FILLER as u64);
    assert_eq!(node.change(OperationKind::Insert, 1, &[7; 100], 10), Err(410));
    assert_eq!(node.change(OperationKind::Insert, 1, &[7; 20], 10), Ok(()));
    assert_eq!(node.change(OperationKind::Delete, 1, b"", 10), Ok(()), "there is room for that");
    assert_eq!(node.change(OperationKind::Insert, 1, b"", 10), Err(410));
    assert_eq!(node.rows(), Rows::new());
    let logged: usize = node.log.values().map(|bytes| records(bytes).count()).sum();
    assert_eq!(logged, 2);
}

#[test]
fn credit_is_asked_for_when_it_does_not_suffice_and_not_in_vain() {
    let mut node = Node::stopped(table(false), BTreeMap::new(), BTreeMap::new());
    node.start(StartTask::Begin { epoch: Epoch(1), limit: Epoch::MAX, durable: Epoch(0), incarnation: 1 });
    node.make_table();
    assert_eq!(node.change(OperationKind::Insert, 1, b"one", 10), Err(410));
    assert_eq!(node.asked, 1, "not again before it is answered");
    node.give_credit(1500);
    assert_eq!(node.change(OperationKind::Insert, 1, &[7; 1000], 10), Err(410));
    assert_eq!(node.asked, 2, "most of it is left, but too little for this change");
    // The log has no more, and gives the rest by itself.
    node.give_credit_with(0, 410);
    assert_eq!(node.change(OperationKind::Insert, 1, &[7; 1000], 10), Err(410));
    node.go_on();
    node.take_sent();
    assert_eq!(node.asked, 2);
    node.give_credit(1500);
    assert_eq!(node.change(OperationKind::Insert, 1, &[7; 1000], 10), Ok(()));
    assert_eq!(node.asked, 3, "less than half of it is left");
}

#[test]
fn what_was_written_beyond_a_quota_is_paid_back() {
    let mut node = Node::new(table(false));
    for key in 0..400 {
        node.change(OperationKind::Insert, key, &[7; 1000], 10).expect("it is new");
    }
    node.durable(10);
    let written = |node: &Node| node.harness.block().checkpoint_statistics().bytes;
    // One byte more than the head of the file has.
    node.order_checkpoint(4097);
    let first = written(&node);
    assert!(first > 200_000, "a block can't be cut: {first}");
    node.give_quota(first / 2);
    assert_eq!(written(&node), first, "half of the block is still to be paid for");
    node.give_quota(first / 2);
    let second = written(&node);
    assert!(second > first);
    for _ in 0..3 {
        node.give_quota(1);
    }
    assert_eq!((written(&node), node.trimmed), (second, 1));
    node.give_quota(u64::MAX);
    assert!(node.trimmed > 1, "without a limit it comes to its end");
}

#[test]
fn the_log_is_kept_from_where_the_file_says_although_nothing_has_changed_since() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    // The scan has not begun: it meets what is changed now, and the page does not change any more.
    node.order_checkpoint(0);
    node.change(OperationKind::Insert, 2, b"two", 10).expect("it is new");
    node.give_quota(1 << 30);
    node.durable(10);
    assert_eq!((node.trimmed, node.files.len()), (2, 1), "the file says that it has the first batch only");
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (3, 2), "a file without pages says that it has both");
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (3, 2), "nothing was logged since");
    let mut node = node.restart(10).expect("checkpoint and log have everything");
    assert_eq!(node.rows().len(), 2);
    node.order_checkpoint(1 << 30);
    assert_eq!(node.files.len(), 2, "nothing was logged since the checkpoint that was loaded");
    assert_eq!(node.restart(10).expect("nothing was done").rows().len(), 2);
}

#[test]
fn a_full_disk_costs_only_the_checkpoint() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.is_full = true;
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (1, 0));
    node.is_full = false;
    node.order_checkpoint(1 << 30);
    assert_eq!((node.trimmed, node.files.len()), (2, 1));
    assert_eq!(node.restart(10).expect("it is in the checkpoint").rows().len(), 1);
}

/// The node goes on for a moment after it has asked to be stopped.
#[test]
fn a_flush_behind_a_failed_write_makes_no_checkpoint() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.failing_writes = Some(FileErrorKind::Failed);
    node.order_checkpoint(1 << 30);
    node.durable(11);
    assert_eq!(node.trimmed, 1, "the log is needed");
    node.failing_writes = None;
    node.order_checkpoint(1 << 30);
    assert_eq!(node.trimmed, 1, "nobody knows what is on disk");
}

/// The disk is full in the middle of a checkpoint, and the next one begins before the last task of this one is
/// answered.
#[test]
fn answers_for_a_checkpoint_that_was_given_up_mean_nothing_for_the_next() {
    let mut node = Node::new(table(false));
    node.change(OperationKind::Insert, 1, b"one", 10).expect("it is new");
    node.durable(10);
    node.failing_writes = Some(FileErrorKind::DiskFull);
    node.holds_flushes = true;
    node.order_checkpoint(1 << 30);
    assert!(node.harness.has_met("checkpoint is given up because the disk is full"));
    node.failing_writes = None;
    node.order_checkpoint(1 << 30);
    assert_eq!((node.held.len(), node.trimmed), (2, 1), "nothing was flushed");
    let late = node.held.remove(0);
    node.answer(late);
    assert_eq!(node.trimmed, 1, "the flush of the next one is under way");
    let own = node.held.remove(0);
    node.answer(own);
    assert_eq!(node.trimmed, 2);
}
