//! The power fails while the head of a segment is written over that of a segment which the newest head on the disk
//! still names as needed. The disk writes 512 bytes as a whole.

use crate::support::{Log, large_batch};
use vinga_format::redo::PARTICIPANTS_MAX;

/// Pieces that the disk writes as a whole, of the block that is a segment's head.
const ATOMS: usize = 8;
/// Less than what a data manager is given credit for, of as many as there may be.
const BATCH_BYTES: usize = 8000;

/// Starts again from what a power cut has left of the head of a segment, in the file of the oldest one that the head
/// before names; `keeps` says which pieces of it were written.
fn start_after_a_torn_head(participants: u16, keeps: impl Fn(usize) -> bool) -> Result<(), String> {
    let mut log = Log::new(participants);
    log.make(1);
    let mut epoch = 10;
    // Segment 2 names segment 1 as needed; then checkpoints contain everything. All but one have logged long ago.
    (1..participants).for_each(|one| log.trim(one.into(), 500));
    while log.segments() < 2 {
        log.append(0, &large_batch(BATCH_BYTES, epoch));
        log.end_epoch(epoch);
        epoch += 1;
    }
    let mut next = vec![(0, log.next_batch(0))];
    next.extend((1..participants).map(|one| (one, 1000)));
    for &(participant, batch) in &next {
        log.trim(participant.into(), batch);
    }
    assert_eq!(log.segments(), 1, "segment 1 is forgotten");
    // Segment 3 comes into the file of segment 1.
    log.set_flushes(false);
    while log.segments() < 2 {
        log.append(0, &large_batch(BATCH_BYTES, epoch));
    }
    log.crash_in_heads(keeps);
    let scanned = log.scan(&[(1, None)], epoch - 1)?;
    assert_eq!(scanned.complete.0, epoch - 1, "what was promised is there");
    log.replay(epoch - 1, &next).map(|_| ())
}

#[test]
fn a_torn_head_of_the_newest_segment_harms_nothing() {
    for participants in [1, 8, PARTICIPANTS_MAX as u16] {
        for cut in 0..=ATOMS {
            start_after_a_torn_head(participants, |atom| atom < cut).expect("the head is old or new");
            start_after_a_torn_head(participants, |atom| atom >= cut).expect("the head is old or new");
        }
    }
}

/// That is what the limit is for: a stream that an earlier program has given more data managers may be refused. Nothing
/// is lost silently then.
#[test]
fn a_longer_head_could_be_torn() {
    let why = start_after_a_torn_head(PARTICIPANTS_MAX as u16 + 1, |atom| atom == 0).expect_err("it is torn");
    assert!(
        why.contains("segment 1 of stream 0 of the redo log is missing, or its head is damaged"),
        "{why}"
    );
}
