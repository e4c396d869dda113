//! When a log stream has its data managers make checkpoints, and how fast: against data managers that answer by hand.

use crate::support::{Log, Order, large_batch, settings};
use vinga_kernel::Span;
use vinga_redo::{Reason, Settings};
use vinga_wire::checkpoint::CheckpointState::{GivenUp, Usable, Writing, Written};

const M: u64 = 1 << 20;
/// A quota's time.
const TENTH: Span = Span::from_millis(100);

/// An open stream of a node that is started. A round begins after so many bytes.
fn started(participants: u16, bytes_between: u64) -> Log {
    let mut log = Log::with(with_bytes_between(settings(participants), bytes_between));
    log.make(1);
    log.node_started();
    log
}

fn with_bytes_between(mut settings: Settings, bytes: u64) -> Settings {
    settings.checkpoints.bytes_between = bytes;
    settings
}

/// Logs about so many bytes.
fn log_bytes(log: &mut Log, participant: usize, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        let records = large_batch(left.min(30_000), 10);
        log.append(participant, &records);
        left = left.saturating_sub(records.len());
    }
}

/// The data managers that were ordered to begin a checkpoint.
fn begun(orders: &[Order]) -> Vec<u16> {
    orders
        .iter()
        .filter_map(|order| match order {
            Order::Checkpoint(instance) => Some(*instance),
            _ => None,
        })
        .collect()
}

/// The quotas that were given to a data manager.
fn quotas(orders: &[Order], of: u16) -> Vec<u64> {
    orders
        .iter()
        .filter_map(|order| match *order {
            Order::Quota(instance, bytes) if instance == of => Some(bytes),
            _ => None,
        })
        .collect()
}

/// What other streams were sent: the stream, and how many data managers write here.
fn writers(orders: &[Order]) -> Vec<(u16, u16)> {
    orders
        .iter()
        .filter_map(|order| match *order {
            Order::Writers(stream, data_managers) => Some((stream, data_managers)),
            _ => None,
        })
        .collect()
}

/// All checkpoints of the round become usable.
fn end_round(log: &mut Log, participants: u16) {
    for instance in 0..participants {
        log.report(instance, Written, 1000);
        log.trim(usize::from(instance), log.next_batch(usize::from(instance)));
        log.report(instance, Usable, 0);
    }
}

#[test]
fn a_round_begins_when_enough_was_logged() {
    let mut log = started(2, 100_000);
    log_bytes(&mut log, 0, 60_000);
    assert_eq!(begun(&log.orders()), []);
    log_bytes(&mut log, 1, 60_000);
    assert_eq!(begun(&log.orders()), [0, 1]);
    log_bytes(&mut log, 0, 60_000);
    end_round(&mut log, 2);
    assert_eq!(begun(&log.orders()), [], "what was logged since it began counts for the next one");
    log_bytes(&mut log, 0, 60_000);
    assert_eq!(begun(&log.orders()), [0, 1]);
    assert_eq!(log.block().round_statistics().rounds, 1);
}

#[test]
fn a_stream_counts_its_part_of_what_the_node_logs() {
    let mut log = Log::with(Settings { data_managers: 4, ..with_bytes_between(settings(1), 100_000) });
    log.make(1);
    log.node_started();
    (1..4).for_each(|stream| log.report_writers(stream, 1));
    log_bytes(&mut log, 0, 20_000);
    assert_eq!(begun(&log.orders()), []);
    log_bytes(&mut log, 0, 10_000);
    let orders = log.orders();
    assert_eq!(begun(&orders), [0]);
    assert_eq!(quotas(&orders, 0), [10 * M], "a tenth of a second, and a quarter of the node's speed");
    assert_eq!(writers(&orders), [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn a_small_log_makes_them_before_it_is_full() {
    let mut log = started(1, 1 << 30);
    let quarter = log.capacity() as usize / 4;
    log_bytes(&mut log, 0, quarter * 3 / 4);
    assert_eq!(begun(&log.orders()), []);
    log_bytes(&mut log, 0, quarter / 3);
    assert_eq!(begun(&log.orders()), [0]);
}

#[test]
fn a_round_begins_at_once_when_somebody_gets_too_little() {
    let mut log = started(2, 1 << 30);
    // Without global checkpoints rounds free nothing.
    while log.ask_for_credit(0).1 == 0 {
        log_bytes(&mut log, 0, 20_000);
        if !begun(&log.orders()).is_empty() {
            end_round(&mut log, 2);
            log_bytes(&mut log, 0, 20_000);
        }
    }
    assert_eq!(begun(&log.orders()), [0, 1], "a quarter of the log was not logged since the last one");
    assert_eq!(log.block().round_statistics().for_room, 1);
    assert!(log.has_met("checkpoints begin because the log is short of room"));
    end_round(&mut log, 2);
    assert_eq!(log.ask_for_credit(1).1, 410);
    assert_eq!(begun(&log.orders()), [], "nothing was logged since the last one began");
}

#[test]
fn a_global_checkpoint_is_asked_for_when_only_that_is_missing() {
    let mut log = started(2, 10_000);
    log_bytes(&mut log, 0, 20_000);
    log.report_with(0, Written, 1000, 17);
    log.report_with(1, Written, 1000, 15);
    let hurries =
        |log: &mut Log| log.orders().iter().any(|order| matches!(order, Order::GlobalCheckpoint(_)));
    assert!(!hurries(&mut log), "there is room");
    while log.ask_for_credit(0).1 == 0 {
        assert!(!hurries(&mut log), "there is still room");
        log_bytes(&mut log, 0, 20_000);
    }
    assert!(log.orders().contains(&Order::GlobalCheckpoint(17)));
    assert_eq!(log.ask_for_credit(1).1, 410);
    assert!(!hurries(&mut log), "it was asked for");
    // The next round begins at once; the room that the first one frees is not enough without a global checkpoint.
    end_round(&mut log, 2);
    let orders = log.orders();
    assert_eq!(begun(&orders), [0, 1]);
    log.report_with(1, Written, 1000, 18);
    assert!(!hurries(&mut log), "the other one is being written");
    log.report_with(0, Written, 1000, 18);
    assert_eq!(log.orders(), [Order::GlobalCheckpoint(18)]);
}

#[test]
fn nobody_is_asked_before_the_node_is_started() {
    let mut log = Log::with(with_bytes_between(settings(1), 10_000));
    assert_eq!(log.ask_for_credit(0), (0, 410), "the log is not open");
    log.make(1);
    let given = log.orders();
    assert!(
        matches!(given[..], [Order::Credit(0, bytes, 0)] if bytes > 100_000),
        "as soon as it is: {given:?}"
    );
    log_bytes(&mut log, 0, 50_000);
    assert_eq!(begun(&log.orders()), []);
    log.node_started();
    assert_eq!(begun(&log.orders()), [0]);
}

#[test]
fn what_was_in_the_log_when_it_was_opened_counts() {
    let mut log = started(1, 100_000);
    log_bytes(&mut log, 0, 90_000);
    log.end_epoch(10);
    log.crash(|_| true);
    log.scan(&[(1, None)], 10).expect("the log is whole");
    log.replay(10, &[(0, 1)]).expect("everything is there");
    log.open(2);
    log.node_started();
    assert_eq!(begun(&log.orders()), []);
    log.append(0, &large_batch(20_000, 11));
    let orders = log.orders();
    assert_eq!(begun(&orders), [0]);
    assert_eq!(quotas(&orders, 0), [40 * M], "the speed of a restart");
}

#[test]
fn a_stream_at_rest_has_no_timers() {
    let mut log = started(2, 10_000);
    log.advance(Span::from_millis(10_000));
    assert!(!log.has_timer(), "nothing was logged");
    log_bytes(&mut log, 0, 20_000);
    assert!(log.has_timer());
    log.report(0, Written, 100);
    log.report(1, Written, 100);
    log.advance(TENTH);
    assert!(!log.has_timer(), "it waits for a global checkpoint");
    end_round(&mut log, 2);
    log.advance(Span::from_millis(10_000));
    assert_eq!((begun(&log.orders()), log.has_timer()), (vec![0, 1], false), "only the round that there was");
    log.end_epoch(10);
    assert_eq!((begun(&log.orders()), log.has_timer()), (vec![], false), "an end record is no change");
}

#[test]
fn quotas_add_up_to_the_speed_of_the_node() {
    let mut log = started(4, 10_000);
    log_bytes(&mut log, 0, 20_000);
    log.advance(Span::from_millis(1950));
    let orders = log.orders();
    for instance in 0..4 {
        let given: u64 = quotas(&orders, instance).iter().sum();
        assert_eq!((given, quotas(&orders, instance).len()), (2 * 100 * M, 20), "400 MiB/s for two seconds");
    }
    // The three others share what one has no more use for.
    log.report(2, Written, 1000);
    log.report(3, Writing, 1000);
    log.stall(Span::from_millis(250));
    let late = log.orders();
    assert_eq!(quotas(&late, 2), []);
    assert_eq!(quotas(&late, 3), [40 * M], "the time since the last quota");
    log.stall(Span::from_millis(5000));
    assert_eq!(quotas(&log.orders(), 3), [(400 * M).div_ceil(3)], "a second at most");
}

/// One table may be all that is to be written.
#[test]
fn streams_and_data_managers_that_write_nothing_leave_their_part_to_the_others() {
    let mut log = Log::with(Settings { data_managers: 8, ..with_bytes_between(settings(4), 10_000) });
    log.make(1);
    log.node_started();
    log_bytes(&mut log, 0, 20_000);
    let orders = log.orders();
    assert_eq!(quotas(&orders, 0), [10 * M], "a quarter of 40 MiB in a tenth of a second: it writes alone");
    assert_eq!(writers(&orders), [(1, 4)], "the other stream knows");
    log.report_writers(1, 4);
    log.advance(TENTH);
    assert_eq!(quotas(&log.orders(), 0), [5 * M], "the other one writes, too");
    assert_eq!(log.block().target_speed(), Some(200 * M));
    for instance in 1..4 {
        log.report(instance, Usable, 0);
    }
    log.advance(TENTH);
    assert_eq!(quotas(&log.orders(), 0), [20 * M], "of the stream's part it has all");
    log.report_writers(1, 0);
    log.advance(TENTH);
    assert_eq!(quotas(&log.orders(), 0), [40 * M], "one data manager has the speed of the node");
    log.report(0, Written, 1000);
    assert_eq!(writers(&log.orders()), [(1, 0)], "as soon as all is written");
    log.report(0, Usable, 0);
    assert_eq!(writers(&log.orders()), [], "once");
}

#[test]
fn a_full_disk_puts_checkpoints_off() {
    let mut log = started(2, 10_000);
    log_bytes(&mut log, 0, 20_000);
    assert_eq!(begun(&log.orders()), [0, 1]);
    let mut waited = Vec::new();
    for _ in 0..8 {
        log.report(0, Usable, 0);
        log.report(1, GivenUp, 0);
        let since = log.now();
        assert_eq!(begun(&log.orders()), [], "not at once");
        log_bytes(&mut log, 0, 20_000);
        assert_eq!(begun(&log.orders()), [], "not because there is more to do");
        while begun(&log.orders()).is_empty() {
            assert!(log.has_timer(), "it is tried again");
            log.advance(TENTH);
        }
        waited.push(log.now().since(since).millis() / 1000);
    }
    assert_eq!(waited, [1, 2, 4, 8, 16, 30, 30, 30]);
    end_round(&mut log, 2);
    log_bytes(&mut log, 0, 20_000);
    assert_eq!(begun(&log.orders()), [0, 1]);
    log.report(0, GivenUp, 0);
    log.report(1, GivenUp, 0);
    let since = log.now();
    while begun(&log.orders()).is_empty() {
        log.advance(TENTH);
    }
    assert_eq!(log.now().since(since).millis() / 1000, 1, "the disk was not full meanwhile");
    assert_eq!(log.block().round_statistics().given_up, 9);
}

#[test]
fn a_busy_thread_and_a_slow_disk_lower_the_speed() {
    let mut log = started(1, 10_000);
    log_bytes(&mut log, 0, 20_000);
    end_round(&mut log, 1);
    log_bytes(&mut log, 0, 20_000);
    log.orders();
    assert_eq!(log.block().write_speed(), (Some(200 * M), Reason::NotOverloaded));
    log.set_load(96);
    log.advance(Span::from_millis(1000));
    assert_eq!(log.block().write_speed(), (Some(100 * M), Reason::BusyThread));
    assert_eq!(quotas(&log.orders(), 0).last(), Some(&(10 * M)));
    log.set_load(20);
    log.advance(Span::from_millis(20_000));
    assert_eq!(log.block().write_speed(), (Some(200 * M), Reason::NotOverloaded));
    log.hold_writes(true);
    log.begin_to_end_epoch(10);
    log.advance(Span::from_millis(400));
    assert_eq!(log.block().write_speed().1, Reason::NotOverloaded, "a disk may take a moment");
    log.advance(Span::from_millis(2600));
    assert_eq!(log.block().write_speed(), (Some(25 * M), Reason::RedoLag));
    log.hold_writes(false);
    log.advance(Span::from_millis(2000));
    assert_eq!(log.block().write_speed().1, Reason::Recovering);
    let slowdowns = log.block().slowdowns();
    assert_eq!((slowdowns.busy_thread, slowdowns.redo_lag, slowdowns.at_min), (1, 3, 0));
    end_round(&mut log, 1);
    assert_eq!(log.block().write_speed().1, Reason::NoCheckpoint);
}

#[test]
fn a_log_that_fills_up_is_worse_than_a_busy_thread() {
    let mut log = started(1, 1 << 30);
    log.set_load(100);
    let mut met = Vec::new();
    while log.ask_for_credit(0).1 == 0 {
        log_bytes(&mut log, 0, 20_000);
        log.advance(TENTH);
        let reason = log.block().write_speed().1;
        if met.last() != Some(&reason) {
            met.push(reason);
        }
    }
    log.advance(TENTH);
    assert_eq!(log.block().write_speed(), (None, Reason::HardlyAnyRoom));
    assert_eq!(met[0], Reason::NoCheckpoint);
    assert!(met.contains(&Reason::LittleRoom), "{met:?}");
    assert_eq!(quotas(&log.orders(), 0).last(), Some(&u64::MAX), "no limit");
    log.end_epoch(10);
    end_round(&mut log, 1);
    let orders = log.orders();
    assert!(
        orders.iter().any(|order| matches!(order, Order::Credit(0, bytes, 0) if *bytes > 0)),
        "{orders:?}"
    );
}

#[test]
fn what_is_written_is_shown_by_the_second() {
    let mut log = started(1, 10_000);
    log.advance(Span::from_millis(5000));
    assert_eq!(log.block().written(log.now()).count(), 0);
    log_bytes(&mut log, 0, 20_000);
    log.report(0, Writing, 7000);
    log.end_epoch(10);
    log.advance(Span::from_millis(1500));
    let samples: Vec<_> = log.block().written(log.now()).collect();
    assert_eq!(samples.len(), 1);
    assert_eq!((samples[0].age.millis(), samples[0].length.millis()), (500, 1000));
    assert_eq!((samples[0].written.checkpoint, samples[0].target), (7000, Some(400 * M)));
    assert!(samples[0].written.redo > 20_000, "{samples:?}");
    let average = log.block().average_written(log.now(), 10);
    assert_eq!(average.checkpoint, 700);
}
