//! A redo log that is much smaller than what is written to it: checkpoints keep it from filling up for good.

use crate::support::disk::{LogSize, MemoryDisk};
use crate::support::{Cluster, Op, Received, Row, Setup, committed};
use vinga_kernel::files::FileKind;
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::ErrorCode;
use vinga_wire::info::{InfoTable, InfoValue};

const LOG: LogSize = LogSize { files: 4, file_bytes: 128 << 10 };
/// Rows that are changed again and again.
const KEYS: u64 = 150;

/// A node with a small log, and somebody who changes rows.
struct Writing {
    cluster: Cluster,
    random: fastrand::Rng,
    refused: u64,
}

impl Writing {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let cluster = Cluster::with(&Setup { nodes: 1, log: Some(LOG), bug, ..Setup::default() });
        Writing { cluster, random: fastrand::Rng::with_seed(seed), refused: 0 }
    }

    /// Changes some rows in a transaction; false if there was no room in the log.
    fn change(&mut self) -> bool {
        let random = &mut self.random;
        let ops: Vec<Op> = (0..random.u64(1..8))
            .map(|_| {
                Op::Write(Row(random.u64(0..KEYS), random.i64(..), Some("x".repeat(random.usize(0..40)))))
            })
            .collect();
        match self.cluster.at_once(&ops)[..] {
            [Received::Refuse { code: ErrorCode::RedoLogFull, .. }] => {
                self.refused += 1;
                false
            }
            ref other => {
                assert_eq!(other, [committed(1)]);
                self.cluster.forget_outcomes(self.cluster.outcomes());
                true
            }
        }
    }

    /// The same, as often as need be within this time; returns whether it was done.
    fn change_within(&mut self, span: Span) -> bool {
        const PAUSE: Span = Span::from_millis(50);
        let attempts = span.0 / PAUSE.0;
        (0..attempts).any(|_| {
            let is_done = self.change();
            if !is_done {
                self.cluster.advance(PAUSE);
            }
            is_done
        })
    }

    fn disk(&mut self) -> &mut MemoryDisk {
        self.cluster.disks.get_mut(&1).expect("it has one")
    }

    /// Bytes of records that were logged.
    fn logged(&self) -> u64 {
        self.cluster.node(1).streams()[0].statistics().record_bytes
    }

    fn capacity(&self) -> u64 {
        self.cluster.node(1).streams()[0].usage().capacity
    }
}

#[test]
fn changes_without_end_go_through_a_small_log() {
    for seed in 0..3 {
        let mut writing = Writing::new(seed, None);
        while writing.logged() < 20 * writing.capacity() {
            // Sometimes much is written between two global checkpoints, sometimes little, and sometimes the disk stops.
            for _ in 0..writing.random.u64(1..400) {
                assert!(writing.change_within(Span::from_millis(500)), "seed {seed}: it is refused for long");
            }
            if writing.random.u8(..4) == 0 {
                writing.disk().stands_still = true;
                while writing.change() {}
                writing.disk().stands_still = false;
                assert!(writing.change_within(Span::from_millis(500)), "seed {seed}: it is refused for good");
            }
            let pause = writing.random.u64(1..500);
            writing.cluster.advance(Span::from_millis(pause));
        }
        let stream = &writing.cluster.node(1).streams()[0];
        let rounds = stream.round_statistics();
        assert!(rounds.rounds > 20 && rounds.for_room > 0 && rounds.given_up == 0, "seed {seed}: {rounds:?}");
        assert!(writing.refused > 0, "seed {seed}: the log was full at times");
        assert_eq!(writing.cluster.disks[&1].bytes(FileKind::Redo), u64::from(LOG.files) * LOG.file_bytes);
        // Everybody stops: so do the checkpoints, and nothing waits for anything.
        writing.cluster.advance(Span::from_millis(10_000));
        let written = writing.cluster.disks[&1].clone();
        writing.cluster.advance(Span::from_millis(10_000));
        assert!(written == writing.cluster.disks[&1], "seed {seed}: an idle node leaves its disk alone");
        assert!(writing.cluster.is_at_rest(), "seed {seed}");
        let rows = writing.cluster.contents(1);
        writing.cluster.restart();
        assert!(
            rows == writing.cluster.contents(1),
            "seed {seed}: what was cut from the log is in checkpoints"
        );
        assert!(rows.len() as u64 == KEYS && writing.change(), "seed {seed}: it goes on");
    }
}

#[test]
fn what_is_written_is_shown_to_people() {
    let mut writing = Writing::new(1, None);
    let text = |text: &str| InfoValue::Text(text.into());
    writing.cluster.advance(Span::from_millis(100_000));
    let aggregate = writing.cluster.info(InfoTable::DiskWriteSpeedAggregate);
    let target = InfoValue::Number(20 << 20);
    let [row] = &aggregate[..] else { panic!("there is one stream: {aggregate:?}") };
    assert_eq!(row[..3], [1, 0, 0].map(InfoValue::Number));
    assert_eq!(row[3..12], [const { InfoValue::Number(0) }; 9]);
    assert_eq!(row[12..], [target, text("no checkpoint is being written")]);
    assert!(
        writing.cluster.info(InfoTable::DiskWriteSpeedBase).is_empty(),
        "nothing was written for a minute"
    );
    // A second's writing, of which nothing is left to be written then.
    while writing.cluster.node(1).streams()[0].round_statistics().rounds == 0 {
        writing.change();
        writing.cluster.advance(Span::from_millis(2));
    }
    writing.cluster.advance(Span::from_millis(1500));
    let number = |value: &InfoValue| match value {
        InfoValue::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    };
    let base = writing.cluster.info(InfoTable::DiskWriteSpeedBase);
    assert!(!base.is_empty() && base.len() < 10, "{base:?}");
    assert!(base.iter().all(|row| number(&row[4]) <= 1000 && number(&row[3]) < 60_000), "{base:?}");
    let written = |column: usize| base.iter().map(|row| number(&row[column])).sum::<u64>();
    assert!(written(5) > 10_000 && written(6) > writing.logged() / 2, "{base:?}");
    let row = writing.cluster.info(InfoTable::DiskWriteSpeedAggregate).remove(0);
    assert_eq!(number(&row[7]), written(5) / 60, "{row:?}: {base:?}");
    let row = writing.cluster.info(InfoTable::RedoLogs).remove(0);
    let usage = writing.cluster.node(1).streams()[0].usage();
    let (capacity, used) = (usage.capacity, usage.used);
    let log = [u64::from(LOG.files), LOG.file_bytes, capacity, used, capacity - used];
    assert_eq!(row[3..8], log.map(InfoValue::Number));
    assert!(number(&row[8]) > 0 && number(&row[8]) <= number(&row[10]), "tail and head: {row:?}");
    assert!(number(&row[12]) > 0 && number(&row[12]) <= LOG.file_bytes, "the head's offset: {row:?}");
    assert_eq!(number(&row[13]), written(6) / 60, "{row:?}");
    assert!(number(&row[14]) >= written(6) / 10, "the busiest seconds: {row:?}");
    assert!(number(&row[15]) > 0 && number(&row[16]) == 20 << 20, "data and speed: {row:?}");
    let [bytes, writing_ms, whole_ms, ago_ms] = [17, 18, 19, 20].map(|column| number(&row[column]));
    assert!(bytes > 0 && bytes <= written(5), "of the last round: {row:?}");
    assert!(writing_ms <= whole_ms && whole_ms < 3000 && (1500..60_000).contains(&ago_ms), "{row:?}");
    let seconds_of_data = number(&row[15]) as f64 / f64::from(20 << 20);
    let seconds = seconds_of_data.max(whole_ms as f64 / 1000.0);
    let needed = number(&row[14]) as f64 * seconds * 4.0;
    assert!((number(&row[21]) as f64 - needed).abs() <= needed / 100.0 + 16.0, "{needed}: {row:?}");
    assert_eq!(
        (number(&row[23]), number(&row[24])),
        (256 << 10, writing.refused),
        "reserve, refusals: {row:?}"
    );
}

/// The disk has no room for checkpoints for some time, so that the log fills up; then it has. Returns whether changes
/// go on by themselves.
fn goes_on_after_a_full_disk(bug: Option<InjectedBug>) -> bool {
    let mut writing = Writing::new(1, bug);
    assert!(writing.change());
    writing.disk().is_full = true;
    while writing.change_within(Span::from_millis(5000)) {
        assert!(writing.logged() < 2 * writing.capacity(), "the log is full at some time");
    }
    assert!(writing.cluster.node(1).streams()[0].round_statistics().given_up > 0);
    assert!(!writing.change_within(Span::from_millis(60_000)), "the disk is still full");
    let row = writing.cluster.info(InfoTable::RedoLogs).remove(0);
    let [capacity, needed, refusals] = [5, 21, 24].map(|column| match row[column] {
        InfoValue::Number(number) => number,
        _ => panic!("{row:?}"),
    });
    assert!(refusals >= writing.refused && needed > capacity, "it was too small: {row:?}");
    let why = |row: &[InfoValue]| match &row[25] {
        InfoValue::Text(why) => why.clone(),
        other => panic!("{other:?}"),
    };
    assert!(why(&row).contains("no space left"), "{row:?}");
    writing.disk().is_full = false;
    writing.cluster.advance(Span::from_millis(40_000));
    let row = writing.cluster.info(InfoTable::RedoLogs).remove(0);
    let is_usable = row[22] == InfoValue::Number(0);
    assert_eq!(why(&row).is_empty(), is_usable, "{row:?}");
    writing.change()
}

#[test]
fn a_log_that_is_full_because_the_disk_was_gets_room_again() {
    assert!(goes_on_after_a_full_disk(None));
}

#[cfg(feature = "injected-bugs")]
#[test]
fn checkpoints_that_are_not_tried_again_are_noticed() {
    assert!(!goes_on_after_a_full_disk(Some(InjectedBug::CheckpointsGivenUpForGood)));
}
