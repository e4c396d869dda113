//! A log stream on files in memory: what it writes, what it finds again, and what it has data managers apply.

use crate::support::{Log, batch, large_batch};
use vinga_base::Epoch;
use vinga_wire::ErrorCode;
use vinga_wire::file::FileErrorKind;

#[test]
fn what_was_flushed_is_replayed() {
    let mut log = Log::new(2);
    log.make(1);
    log.append(0, &batch(&[(1, 10), (2, 10)]));
    log.append(1, &batch(&[(3, 10)]));
    log.end_epoch(10);
    log.append(0, &batch(&[(4, 11)]));
    log.crash(|_| false);
    let scanned = log.scan(&[(1, None)], 10).expect("the log is whole");
    assert_eq!(scanned.complete, Epoch(10));
    let applied = log.replay(10, &[(0, 1), (1, 1)]).expect("everything is there");
    assert_eq!(applied, [(0, 1, 10), (1, 1, 10)]);
}

#[test]
fn batches_that_a_checkpoint_has_are_left_out() {
    let mut log = Log::new(1);
    log.make(1);
    for number in 1..=5 {
        log.append(0, &batch(&[(number, 10)]));
    }
    log.end_epoch(10);
    log.crash(|_| true);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    assert_eq!(log.replay(10, &[(0, 4)]).expect("they are there"), [(0, 4, 10), (0, 5, 10)]);
}

#[test]
fn a_missing_batch_is_noticed() {
    let mut log = Log::new(1);
    log.make(1);
    log.skip_batches(0, 3);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    log.crash(|_| true);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    let why = log.replay(10, &[(0, 2)]).expect_err("batches 2 and 3 are nowhere");
    assert!(
        why.contains("batches 2 to 3 of data manager 0 are neither in the log nor in its checkpoint"),
        "{why}"
    );
}

#[test]
fn a_log_that_ends_too_early_is_refused() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    log.append(0, &batch(&[(2, 11)]));
    log.end_epoch(11);
    log.damage_last_block();
    log.crash(|_| true);
    let why = log.scan(&[(1, None)], 11).expect_err("epoch 11 was on disk");
    let place = "redo/000-00000000.redo, offset 8192";
    assert!(why.contains(&format!("ends with epoch 10 ({place}), but epoch 11 was on disk")), "{why}");
    let mut log = log.again();
    assert_eq!(log.scan(&[(1, None)], 10).expect("nobody says that there was more").complete, Epoch(10));
}

#[test]
fn a_damaged_block_in_the_middle_is_no_end() {
    let mut log = Log::new(1);
    log.make(1);
    for epoch in 10..14 {
        log.append(0, &batch(&[(epoch, epoch)]));
        log.end_epoch(epoch);
    }
    log.damage_block_of_epoch(11);
    log.crash(|_| true);
    let why = log.scan(&[(1, None)], 10).expect_err("a later block says that it was on disk");
    assert!(why.contains("redo/000-00000000.redo") && why.contains("was on the disk once"), "{why}");
}

#[test]
fn a_file_that_is_cut_off_is_named_whatever_is_read_of_others() {
    for bytes in [4096, 10_000] {
        let mut log = Log::new(1);
        log.make(1);
        while log.segments() < 3 {
            log.append(0, &large_batch(60_000, 10));
        }
        log.end_epoch(10);
        log.crash(|_| true);
        // The heads of the files behind it are being read when this one is noticed, and answered afterwards.
        log.cut_off(1, bytes);
        let why = log.scan(&[(1, None)], 10).expect_err("a file has lost its size");
        assert!(why.contains("redo/000-00000001.redo") && why.contains("cut off"), "{why}");
    }
}

#[test]
fn a_flush_behind_a_failed_write_means_nothing() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch_with_a_failed_write(10);
}

/// What a start has made of the files is of no use if the others have no room, and takes that of others.
#[test]
fn a_start_without_room_leaves_no_files_of_the_log() {
    let mut log = Log::new(1);
    log.set_room(2);
    let why = "allocate x: No space left on device";
    let (error, reason) = log.fail_to_make(FileErrorKind::DiskFull, why);
    assert_eq!(error, ErrorCode::DiskFull as u16, "{reason}");
    assert!(reason.contains(why) && log.file_count() == 0, "{} files: {reason}", log.file_count());
}

/// Only some reasons are a disk without room, and no sentence says so instead of the system's reason.
#[test]
fn files_that_can_not_be_made_are_reported_with_the_reason_of_the_system() {
    let no_room = ErrorCode::DiskFull as u16;
    for (kind, text, error, advice) in [
        (FileErrorKind::DiskFull, "allocate x: No space left on device", no_room, "Make room"),
        (
            FileErrorKind::DiskFull,
            "allocate x: File too large",
            no_room,
            "smaller ones (FragmentLogFileSize)",
        ),
        (
            FileErrorKind::Failed,
            "allocate x: Input/output error",
            ErrorCode::FileFailed as u16,
            "the redo log can't be written",
        ),
        (
            FileErrorKind::NotPermitted,
            "allocate x: Permission denied",
            ErrorCode::FileNotPermitted as u16,
            "needs",
        ),
    ] {
        let (found, reason) = Log::new(1).fail_to_make(kind, text);
        assert_eq!(found, error, "{reason}");
        assert!(reason.contains(text) && reason.contains(advice), "{reason}");
        assert!(!reason.contains("is full") && !reason.contains("no room"), "{reason}");
    }
}

#[test]
fn records_of_a_later_epoch_are_dead_in_every_later_start() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10), (2, 11)]));
    log.end_epoch(10);
    log.append(0, &batch(&[(3, 11)]));
    log.crash(|_| true);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    // One batch, of which only records up to epoch 10 count.
    assert_eq!(log.replay(10, &[(0, 1)]).expect("it is there"), [(0, 1, 10)]);
    log.open(2);
    log.append(0, &batch(&[(4, 12)]));
    log.end_epoch(12);
    log.crash(|_| true);
    let scanned = log.scan(&[(1, Some(10)), (2, None)], 12).expect("the log is whole");
    assert_eq!(scanned.complete, Epoch(12));
    assert_eq!(log.replay(12, &[(0, 1)]).expect("they are there"), [(0, 1, 10), (0, 2, 12)]);
}

#[test]
fn a_start_that_wrote_nothing_leaves_dead_blocks_dead() {
    let mut log = Log::new(1);
    log.make(1);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    for epoch in 11..14 {
        log.append(0, &batch(&[(epoch, epoch)]));
        log.end_epoch(epoch);
    }
    log.crash(|_| true);
    // Another node had only epoch 10: that is what was restored. Then the node died twice before it logged anything.
    let scanned = log.scan(&[(1, Some(10)), (2, Some(10)), (3, None)], 10).expect("the log is whole");
    assert_eq!(scanned.complete, Epoch(10), "epochs 11 to 13 are dead");
    assert_eq!(log.replay(10, &[(0, 1)]).expect("it is there"), [(0, 1, 10)]);
    log.open(4);
    log.append(0, &batch(&[(9, 20)]));
    log.end_epoch(20);
    log.crash(|_| true);
    let known = [(1, Some(10)), (2, Some(10)), (3, Some(10)), (4, None)];
    assert_eq!(log.scan(&known, 20).expect("the log is whole").complete, Epoch(20));
    assert_eq!(log.replay(20, &[(0, 1)]).expect("they are there"), [(0, 1, 10), (0, 2, 20)]);
}

#[test]
fn an_incarnation_that_the_system_file_does_not_know_is_refused() {
    let mut log = Log::new(1);
    log.make(7);
    log.append(0, &batch(&[(1, 10)]));
    log.end_epoch(10);
    log.crash(|_| true);
    let why = log.scan(&[(1, None)], 0).expect_err("incarnation 7 is not listed");
    assert!(why.contains("log incarnation 7"), "{why}");
}

#[test]
fn files_are_used_again_when_nobody_needs_them() {
    let mut log = Log::new(2);
    log.make(1);
    let mut epoch = 10;
    let mut last = 0;
    for round in 0..400 {
        log.append(round % 2, &large_batch(20_000, epoch));
        log.end_epoch(epoch);
        if round % 8 == 7 {
            for participant in 0..2 {
                log.trim(participant, log.next_batch(participant) - 2);
            }
            last = epoch;
        }
        epoch += 1;
    }
    assert!(last > 0 && log.written() > 3 * log.capacity(), "the files were used several times");
    log.crash(|_| true);
    let from = [(0, log.next_batch(0) - 5), (1, log.next_batch(1) - 5)];
    log.scan(&[(1, None)], epoch - 1).expect("the log is whole");
    let applied = log.replay(epoch - 1, &from).expect("they are there");
    assert_eq!(applied.len(), 10);
}

#[test]
fn credit_ends_before_the_log_does() {
    let mut log = Log::new(1);
    log.make(1);
    let mut given = 0;
    loop {
        let (bytes, shortage) = log.ask_for_credit(0);
        if bytes == 0 {
            assert_eq!(shortage, 410);
            break;
        }
        given += bytes;
        // All of it is used, in batches as large as they can be.
        log.use_credit(0, bytes);
    }
    assert!(given > log.capacity() / 2 && given < log.capacity(), "{given} of {}", log.capacity());
    log.end_epoch(10);
    log.durable(10);
    log.trim(0, log.next_batch(0));
    assert!(log.ask_for_credit(0).0 > 0, "there is room again");
}

#[test]
fn any_part_of_unflushed_writes_may_be_lost() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut log = Log::new(2);
        log.make(1);
        let mut epoch = 9;
        for _ in 0..random.u32(0..6) {
            for _ in 0..random.u32(0..4) {
                log.append(random.usize(0..2), &batch(&[(u64::from(random.u32(1..100)), epoch + 1)]));
            }
            epoch += 1;
            log.end_epoch(epoch);
        }
        let flushed = [log.next_batch(0), log.next_batch(1)];
        for _ in 0..random.u32(0..6) {
            log.append(random.usize(0..2), &large_batch(random.usize(1000..60_000), epoch + 1));
        }
        if random.bool() {
            log.end_epoch_without_flush(epoch + 1);
        }
        log.crash(|_| random.bool());
        let durable = if epoch == 9 { 0 } else { epoch };
        let scanned = log.scan(&[(1, None)], durable).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(scanned.complete >= Epoch(durable), "seed {seed}");
        if scanned.complete == Epoch(durable) {
            let applied =
                log.replay(durable, &[(0, 1), (1, 1)]).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            let count = |participant| applied.iter().filter(|(one, ..)| *one == participant).count() as u64;
            assert_eq!([count(0) + 1, count(1) + 1], flushed, "seed {seed}");
        }
    }
}

#[test]
fn any_part_of_segments_may_be_lost_that_are_begun_in_used_files() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut log = Log::new(1);
        log.make(1);
        while log.segments() < 3 {
            log.append(0, &large_batch(60_000, 10));
        }
        log.end_epoch(10);
        // The head of the newest segment says that the log begins with segment 1; now nothing before the third is
        // needed, and the next segments are begun in the files of the first two.
        let from = log.next_batch(0);
        log.trim(0, from);
        log.hold_writes(true);
        for _ in 0..random.u32(1..20) {
            log.append(0, &large_batch(60_000, 11));
        }
        let mut keeps = fastrand::Rng::with_seed(seed);
        log.crash_while_held(|tasks| random.usize(..=tasks), |_| keeps.bool());
        let scanned = log.scan(&[(1, None)], 10).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(scanned.complete, Epoch(10), "seed {seed}");
        let applied = log.replay(10, &[(0, from)]).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(applied.is_empty(), "seed {seed}: nothing of a later epoch counts");
        // The log goes on, and all of it is found again.
        log.open(2);
        log.trim(0, from);
        for _ in 0..15 {
            log.append(0, &large_batch(60_000, 12));
        }
        log.end_epoch(12);
        log.crash(|_| true);
        log.scan(&[(1, Some(10)), (2, None)], 12).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let applied = log.replay(12, &[(0, from)]).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(applied.len(), 15, "seed {seed}");
    }
}
