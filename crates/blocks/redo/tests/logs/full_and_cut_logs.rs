//! What a stream must survive: crashes in the first global checkpoint, end records without anything else, files that
//! are missing or were half made.

use crate::support::{Log, Order, batch, large_batch, settings};
use vinga_base::Epoch;
use vinga_kernel::Span;
use vinga_wire::checkpoint::CheckpointState;
use vinga_wire::epoch::LogRoom;

/// The machine stops in the first global checkpoint, when this stream's end record is on disk and another stream's is
/// not: the restore point is 0.
#[test]
fn a_stream_whose_first_end_record_does_not_count_begins_anew() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    log.crash(|_| true);
    assert_eq!(log.scan(&[(1, None)], 0).expect("the log is whole").complete, Epoch(10));
    // Nothing that counts was logged before epoch 0.
    let applied = log.replay(0, &[(0, 1)]).expect("there is nothing to apply");
    assert!(applied.iter().all(|&(_, _, last)| last == 0), "{applied:?}");
    log.open(2);
    log.crash(|_| true);
    let scanned = log.scan(&[(1, Some(0)), (2, None)], 0).expect("the log is whole");
    assert_eq!(scanned.complete, Epoch(0), "epoch 10 is dead");
}

/// A log whose first file has a segment, and whose other files were never used.
fn with_one_segment() -> Log {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    log.crash(|_| true);
    log
}

/// A node was started with more files of the log, or for the first time, and the machine stopped when a file had been
/// made and had a part of its room, or none.
#[test]
fn a_file_that_has_a_part_of_its_room_is_made_again() {
    let files = settings(1).files;
    for file in [files, files - 1] {
        for bytes in [0, 100, 4096, 5000, 8192, (512 << 10) - 4096] {
            let mut log = with_one_segment();
            log.set_files(file + 1);
            log.add_file(file, bytes);
            log.scan(&[(1, None)], 10).expect("a file that nothing was ever written to is no loss");
            log.replay(10, &[(0, 1)]).expect("it is there");
            log.open(2);
            let capacity = u64::from(file + 1) * ((512 << 10) - 4096);
            assert_eq!(log.block().usage().capacity, capacity, "file {file} had {bytes} bytes");
            // All files are used.
            while log.segments() < u64::from(file + 1) {
                log.append(0, &large_batch(60_000, 11));
            }
            log.end_epoch(11);
            log.crash(|_| false);
            let scanned = log.scan(&[(1, Some(10)), (2, None)], 11).expect("the log is whole");
            assert_eq!(scanned.complete, Epoch(11));
        }
    }
}

/// A file with a segment was cut off: that is said, whatever is read of the others.
#[test]
fn a_file_that_is_cut_off_is_refused() {
    for (left, bytes) in [(8192, 8192), (5000, 4096)] {
        let mut log = with_one_segment();
        log.cut_off(0, left);
        let why = log.scan(&[(1, None)], 10).expect_err("it was longer");
        let what = format!("redo/000-00000000.redo has {bytes} bytes of 524288 and holds segment 1");
        assert!(why.contains(&what) && why.contains("cut off"), "{why}");
    }
    let mut log = with_one_segment();
    log.cut_off(0, 100);
    let why = log.scan(&[(1, None)], 10).expect_err("its segment is missing");
    assert!(why.contains("redo/000-00000000.redo has only 100 bytes") && why.contains("no segment"), "{why}");
}

/// Somebody has copied a file with a needed segment over another one. The node could start from either now; but it
/// would write to one of them only, and might take the other one for it at the next start.
#[test]
fn a_segment_that_is_in_two_files_is_refused() {
    let mut log = with_one_segment();
    log.copy_file(0, 2);
    let why = log.scan(&[(1, None)], 10).expect_err("it is there twice");
    assert!(
        why.contains("redo/000-00000000.redo and redo/000-00000002.redo both hold segment 1")
            && why.contains("copy"),
        "{why}"
    );
    // Without the copy all is well: its file is made again.
    log.remove_file(2);
    log.scan(&[(1, None)], 10).expect("it is there once");
    log.replay(10, &[(0, 1)]).expect("it is whole");
}

/// A data manager whose checkpoint has all that it has ever logged has nothing in the log any more. An older checkpoint
/// of it that appears again would be taken for the newest one.
#[test]
fn a_checkpoint_that_is_older_than_the_log_is_refused() {
    let mut log = Log::new(2);
    log.make(1);
    log.append(1, &batch(&[(1, 10)]));
    log.append(1, &batch(&[(1, 11)]));
    log.end_epoch(11);
    let mut epoch = 12;
    let mut fill = |log: &mut Log, segments: u32| {
        for _ in 0..segments * 9 {
            log.append(0, &large_batch(60_000, epoch));
            log.end_epoch(epoch);
            let next = log.next_batch(0);
            log.trim(0, next);
            epoch += 1;
        }
        epoch - 1
    };
    log.trim(1, 3);
    let durable = fill(&mut log, 6);
    let incarnations = [(1, None)];
    log.crash(|_| true);
    log.scan(&incarnations, durable).expect("the log is whole");
    let next = log.next_batch(0);
    for older in [1, 2] {
        let why =
            log.replay(durable, &[(0, next), (1, older)]).expect_err("it lacks what the log has forgotten");
        let parts = ["data manager 1", "batch 3 on", "checkpoint/001-"];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        log.crash(|_| true);
        log.scan(&incarnations, durable).expect("the log is whole");
    }
    log.replay(durable, &[(0, next), (1, 3)]).expect("the newest one has everything");
    // The data manager makes no checkpoint in this incarnation.
    log.open(2);
    let durable_later = fill(&mut log, 6);
    let incarnations = [(1, Some(durable)), (2, None)];
    log.crash(|_| true);
    log.scan(&incarnations, durable_later).expect("the log is whole");
    let next = log.next_batch(0);
    let why = log.replay(durable_later, &[(0, next), (1, 2)]).expect_err("the log is not longer than it was");
    assert!(why.contains("batch 3 on"), "{why}");
}

/// Dead segments behind the restore point are in files that are removed, because fewer are configured, and in files
/// that are not.
#[test]
fn dead_segments_in_files_that_are_removed_are_not_missed() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    // Files 0 to 3 are used; what is behind epoch 10 is lost.
    while log.segments() < 3 {
        log.append(0, &large_batch(60_000, 11));
    }
    log.crash(|_| true);
    log.swap_files(1, 2);
    log.set_files(2);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    log.replay(10, &[(0, 1)]).expect("it is there");
    log.open(2);
    log.append(0, &batch(&[(2, 20)]));
    log.end_epoch(20);
    log.crash(|_| true);
    let scanned = log.scan(&[(1, Some(10)), (2, None)], 20).expect("nothing that is needed is missing");
    assert_eq!(scanned.complete, Epoch(20));
}

/// The same when the head of the first segment of the new incarnation is torn, in the file of a dead one.
#[test]
fn a_torn_head_over_a_dead_segment_is_no_damage() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    while log.segments() < 3 {
        log.append(0, &large_batch(60_000, 11));
    }
    log.crash(|_| true);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    log.replay(10, &[(0, 1)]).expect("it is there");
    log.open(2);
    let mut epoch = 20;
    while log.segments() < 2 {
        log.append(0, &large_batch(20_000, epoch));
        if log.segments() < 2 {
            log.end_epoch(epoch);
            epoch += 1;
        }
    }
    log.crash(|_| false);
    log.tear_head(1);
    let scanned = log.scan(&[(1, Some(10)), (2, None)], epoch - 1).expect("what was promised is there");
    assert_eq!(scanned.complete, Epoch(epoch - 1));
}

/// The log would seem to end before it, at an epoch that the system file may already know as durable, or not yet.
#[test]
fn a_segment_of_a_newer_program_is_refused() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    while log.segments() < 2 {
        log.append(0, &large_batch(20_000, 11));
    }
    log.end_epoch(11);
    log.crash(|_| true);
    log.make_newer(1, 0);
    for durable in [10, 11] {
        let why = log.scan(&[(1, None)], durable).expect_err("the segment is not understood");
        let parts = [
            "redo/000-00000001.redo",
            "offset 0",
            "format version 99",
            "use the program that has written it",
        ];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        log.crash(|_| true);
    }
}

/// A newer program goes on in the segment that it finds.
#[test]
fn a_block_of_a_newer_program_is_refused() {
    let mut log = Log::new(1);
    log.make(1);
    for epoch in 10..14 {
        log.append(0, &batch(&[(1, epoch)]));
        log.end_epoch(epoch);
    }
    log.crash(|_| true);
    log.make_newer(0, 2);
    let why = log.scan(&[(1, None)], 10).expect_err("the block is not understood");
    let parts =
        ["redo/000-00000000.redo, offset", "format version 99", "use the program that has written it"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
}

/// Nobody logs anything, but epochs with changes end: those of tables that are not logged, or of other streams.
#[test]
fn end_records_alone_do_not_fill_the_log() {
    let mut log = Log::new(1);
    log.make(1);
    log.node_started();
    log.ask_for_credit(0);
    for epoch in 10..10 + 2 * log.capacity() / 4096 {
        log.end_epoch(epoch);
        for order in log.orders() {
            if let Order::Checkpoint(instance) = order {
                // There is nothing to write.
                log.trim(instance.into(), log.next_batch(instance.into()));
                log.report(instance, CheckpointState::Usable, 0);
            }
        }
    }
}

/// The only checkpoint of a data manager is missing, and the log was cut because of it.
#[test]
fn a_missing_checkpoint_of_a_data_manager_that_has_nothing_in_the_log_is_noticed() {
    let mut log = Log::new(2);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.append(1, &batch(&[(2, 10)]));
    log.end_epoch(10);
    // Both are in checkpoints; then only one of them goes on.
    log.trim(0, log.next_batch(0));
    let mut epoch = 11;
    while log.written() < 2 * log.capacity() {
        log.append(1, &large_batch(20_000, epoch));
        log.end_epoch(epoch);
        log.trim(1, log.next_batch(1));
        epoch += 1;
    }
    log.crash(|_| true);
    log.scan(&[(1, None)], epoch - 1).expect("the log is whole");
    let result = log.replay(epoch - 1, &[(0, 0), (1, log.next_batch(1))]);
    let why = result.expect_err("batch 1 of data manager 0 is nowhere");
    assert!(why.contains("data manager 0 has no checkpoint"), "{why}");
}

/// Everything is out as credit and reserved by transactions that are prepared; each commits by itself and waits for the
/// disk, while no checkpoint can be made.
#[test]
fn prepared_changes_have_room_however_they_commit() {
    let mut log = Log::new(1);
    log.make(1);
    log.node_started();
    // 1000 prepared changes of one small row.
    let record = batch(&[(1, 10)]);
    log.ask_for_credit(0);
    let reserved = 1000 * record.len() as u64;
    // Others use up the rest.
    loop {
        let (bytes, _) = log.ask_for_credit_beside(0, reserved);
        let free = log.credit_of(0).saturating_sub(reserved);
        if free < 60_000 && bytes == 0 {
            break;
        }
        log.use_credit(0, free);
    }
    log.orders();
    let mut epoch = 10;
    loop {
        log.append_reserved(0, &record);
        if !log.tries_to_end_epoch(epoch) {
            break;
        }
        log.durable(epoch);
        epoch += 1;
    }
    assert!(epoch > 20, "the margin is for ends of epochs: {epoch}");
    // What is prepared has room all the same.
    for _ in epoch..1009 {
        log.append_reserved(0, &record);
    }
    assert!(log.has_met("end of an epoch waits for room in the log"));
}

/// The log is full, and the disk too, so no checkpoint can be made; changes are refused. Epochs with changes go on
/// ending, as long as there is room for their ends: those of tables that are not logged, and of definitions. Then they
/// wait for a checkpoint.
#[test]
fn epochs_end_when_a_checkpoint_has_made_room() {
    let mut log = Log::new(1);
    log.make(1);
    log.node_started();
    loop {
        let (bytes, _) = log.ask_for_credit(0);
        if bytes == 0 {
            break;
        }
        log.use_credit(0, log.credit_of(0));
    }
    let mut epoch = 10;
    while log.tries_to_end_epoch(epoch) {
        log.durable(epoch);
        epoch += 1;
    }
    assert!(epoch > 20, "the margin is for ends of epochs: {epoch}");
    // A checkpoint has been ordered. When it is written only the end of the epoch is lacking, which has room then.
    assert!(log.orders().contains(&Order::Checkpoint(0)));
    let batch = log.next_batch(0);
    assert!(!log.is_epoch_confirmed());
    log.report_with(0, CheckpointState::Written, 1 << 20, epoch);
    assert!(log.is_epoch_confirmed());
    log.durable(epoch);
    log.trim(0, batch);
    log.report(0, CheckpointState::Usable, 0);
    for epoch in epoch + 1..epoch + 1000 {
        log.end_epoch(epoch);
        for order in log.orders() {
            if order == Order::Checkpoint(0) {
                log.trim(0, log.next_batch(0));
                log.report(0, CheckpointState::Usable, 0);
            }
        }
    }
}

/// What was reported of the room for ends of epochs.
fn rooms(log: &mut Log) -> Vec<(LogRoom, bool)> {
    let room = |order| match order {
        Order::Room(room, has_records) => Some((room, has_records)),
        _ => None,
    };
    log.orders().into_iter().filter_map(room).collect()
}

/// Nobody may begin to wait for an end of an epoch while there are some left for those who wait already.
#[test]
fn the_president_learns_that_there_is_no_room_for_ends_before_there_is_none() {
    let mut log = Log::new(1);
    log.make(1);
    log.node_started();
    let record = batch(&[(1, 10)]);
    log.ask_for_credit_beside(0, 2 * record.len() as u64);
    let mut epoch = 10;
    while rooms(&mut log).is_empty() {
        log.end_epoch(epoch);
        log.durable(epoch);
        epoch += 1;
    }
    // Something that was prepared is logged: it is worth an end, once.
    log.append_reserved(0, &record);
    log.append_reserved(0, &record);
    assert_eq!(rooms(&mut log), [(LogRoom::Short, true)]);
    let mut left = 0;
    while log.tries_to_end_epoch(epoch) {
        log.durable(epoch);
        epoch += 1;
        left += 1;
    }
    assert!(left >= 4, "some ends are kept: {left}");
    assert_eq!(rooms(&mut log), [], "a checkpoint is being made that may make room");
    log.report(0, CheckpointState::GivenUp, 0);
    assert_eq!(rooms(&mut log), [(LogRoom::None, false)]);
    log.advance(Span::from_millis(1000));
    assert_eq!(rooms(&mut log), [(LogRoom::Short, false)], "it is tried again");
    let next = log.next_batch(0);
    log.report_with(0, CheckpointState::Written, 1 << 20, epoch);
    assert!(log.is_epoch_confirmed());
    log.durable(epoch);
    log.trim(0, next);
    log.report(0, CheckpointState::Usable, 0);
    assert_eq!(rooms(&mut log), [(LogRoom::Enough, false)]);
}
