//! The president makes global checkpoints of closed epochs.

use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_distribution::{Distribution, Settings};
use vinga_kernel::Span;
use vinga_kernel::testkit::Harness;
use vinga_wire::backup::EpochClosedConfirm;
use vinga_wire::epoch::{EpochBody, EpochClosedReport, LogRoom, LogRoomBody};
use vinga_wire::start::{StartRequest, StartTask};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, U64, cold};

const NODE: NodeId = NodeId(1);

fn address(block: BlockNumber, instance: u16) -> Address {
    Address::new(NODE, block, instance)
}

/// The distribution of a node with two coordinators and two log streams, in epoch 100.
fn harness() -> Harness<Distribution> {
    let member = Member { redo_streams: 2, ..Member::started(NODE, Incarnation(1), 0, 2, 2) };
    let settings = Settings {
        epoch: Epoch(100),
        time_between_epochs: Span::from_millis(100),
        time_between_checkpoints: Span::from_millis(1000),
        waits_for_begin: false,
    };
    let view = ClusterView::first(vec![member]);
    let mut h = Harness::new(address(BlockNumber::Distribution, 0), 1, view, Distribution::new(settings));
    h.take_sent();
    h
}

/// A coordinator has closed an epoch, and committed changes in another.
fn close(h: &mut Harness<Distribution>, coordinator: u16, epoch: u64, changed: u64) {
    let sender = address(BlockNumber::Coordinator, coordinator);
    h.send(sender, SignalNumber::EpochClosedReport, |writer| {
        writer.put(&EpochClosedReport { epoch: U64::new(epoch), changed: U64::new(changed) });
    })
    .expect("a block may send this");
}

fn send_epoch(h: &mut Harness<Distribution>, sender: Address, signal: SignalNumber, epoch: u64) {
    h.send(sender, signal, |writer| {
        writer.put(&EpochBody::new(Epoch(epoch)));
    })
    .expect("a block may send this");
}

fn wait_for(h: &mut Harness<Distribution>, epoch: u64) {
    send_epoch(h, address(BlockNumber::Coordinator, 0), SignalNumber::DurabilityOrder, epoch);
}

fn confirm(h: &mut Harness<Distribution>, stream: u16, epoch: u64) {
    send_epoch(h, address(BlockNumber::Redo, stream), SignalNumber::EpochEndConfirm, epoch);
}

/// Epochs of the signals of a kind that were sent since the last call, each of them once; others are dropped.
fn sent(h: &mut Harness<Distribution>, signal: SignalNumber) -> Vec<u64> {
    let of_kind = h.take_sent().into_iter().filter(|sent| sent.signal() == signal);
    let mut epochs: Vec<u64> =
        of_kind.map(|sent| sent.frame().head::<EpochBody>().expect("a whole body").0.epoch.get()).collect();
    epochs.dedup();
    epochs
}

#[test]
fn an_epoch_is_durable_when_all_coordinators_have_closed_it_and_all_streams_confirmed() {
    let mut h = harness();
    wait_for(&mut h, 100);
    assert_eq!(sent(&mut h, SignalNumber::EpochOrder), [101], "the epoch ends at once");
    close(&mut h, 0, 100, 100);
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [], "the other coordinator has not closed it");
    close(&mut h, 1, 100, 0);
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [100]);
    confirm(&mut h, 0, 100);
    assert_eq!((sent(&mut h, SignalNumber::DurableEpochOrder), h.block().durable()), (vec![], Epoch(0)));
    confirm(&mut h, 1, 100);
    assert_eq!((sent(&mut h, SignalNumber::DurableEpochOrder), h.block().durable()), (vec![100], Epoch(100)));
}

#[test]
fn those_who_begin_to_wait_meanwhile_are_served_together() {
    let mut h = harness();
    wait_for(&mut h, 100);
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 100, 100));
    h.take_sent();
    wait_for(&mut h, 101);
    wait_for(&mut h, 101);
    assert_eq!(sent(&mut h, SignalNumber::EpochOrder), [], "one checkpoint at a time");
    (0..2).for_each(|stream| confirm(&mut h, stream, 100));
    assert_eq!(sent(&mut h, SignalNumber::EpochOrder), [102]);
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 101, 101));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [101]);
    assert_eq!(h.block().statistics().checkpoints, 1);
}

#[test]
fn checkpoints_are_made_from_time_to_time_and_only_of_changes() {
    let mut h = harness();
    h.advance(Span::from_millis(950));
    assert_eq!(h.block().epoch(), Epoch(109));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 108, 105));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [], "nobody waits, and it is not time");
    h.advance(Span::from_millis(100));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [108]);
    (0..2).for_each(|stream| confirm(&mut h, stream, 108));
    h.take_sent();
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 118, 105));
    assert_eq!(sent(&mut h, SignalNumber::DurableEpochOrder), [118], "nothing has changed since");
    assert!(h.has_met("epochs without changes are durable as they are"));
    // A change in a later epoch than the one that was closed is not forgotten.
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 125, 126));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [125]);
}

/// The dictionary has recorded a change in an epoch.
fn request(h: &mut Harness<Distribution>, epoch: u64) {
    send_epoch(h, address(BlockNumber::Dictionary, 0), SignalNumber::DurabilityRequest, epoch);
}

#[test]
fn a_schema_change_is_confirmed_when_its_epoch_has_an_end_record() {
    let mut h = harness();
    request(&mut h, 100);
    assert_eq!(sent(&mut h, SignalNumber::EpochOrder), [101], "the epoch ends at once");
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 100, 0));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [100], "though nobody has committed anything");
    confirm(&mut h, 0, 100);
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), []);
    confirm(&mut h, 1, 100);
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), [100]);
    request(&mut h, 100);
    assert_eq!(
        sent(&mut h, SignalNumber::DurabilityConfirm),
        [100],
        "a later one in the same epoch, at once"
    );
}

#[test]
fn an_epoch_that_is_durable_as_it_is_gets_an_end_record_behind_it() {
    let mut h = harness();
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 105, 0));
    assert_eq!(sent(&mut h, SignalNumber::DurableEpochOrder), [105]);
    // The change is in epoch 104: it was decided, and not on disk yet, when that was found durable.
    request(&mut h, 104);
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), [], "a restart would go back to epoch 0");
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 109, 0));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [109]);
    (0..2).for_each(|stream| confirm(&mut h, stream, 109));
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), [104]);
    // Nothing has changed since.
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 118, 0));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), []);
}

#[test]
fn changes_that_come_during_a_checkpoint_get_the_next_one() {
    let mut h = harness();
    request(&mut h, 100);
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 100, 0));
    request(&mut h, 101);
    request(&mut h, 103);
    h.take_sent();
    (0..2).for_each(|stream| confirm(&mut h, stream, 100));
    let answered = h.take_sent();
    let of_kind = |signal| answered.iter().filter(move |sent| sent.signal() == signal);
    assert_eq!(of_kind(SignalNumber::DurabilityConfirm).count(), 1);
    assert_eq!(h.block().epoch(), Epoch(104));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 103, 0));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [103]);
    (0..2).for_each(|stream| confirm(&mut h, stream, 103));
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), [101, 103]);
}

/// A log stream reports whether it has room for the ends of epochs.
fn report_room(h: &mut Harness<Distribution>, stream: u16, room: LogRoom, has_records: bool) {
    h.send(address(BlockNumber::Redo, stream), SignalNumber::LogRoomReport, |writer| {
        writer.put(&LogRoomBody::new(room, has_records));
    })
    .expect("a block may send this");
}

/// What was said of the room in the logs since the last call, and to whom.
fn rooms(h: &mut Harness<Distribution>) -> Vec<(BlockNumber, LogRoom)> {
    let of_kind = h.take_sent().into_iter().filter(|sent| sent.signal() == SignalNumber::LogRoomOrder);
    of_kind
        .map(|sent| {
            let (body, _) = sent.frame().head::<LogRoomBody>().expect("a whole body");
            let block = sent.frame().receiver().block().expect("a block");
            (block, body.room().expect("a number of one"))
        })
        .collect()
}

#[test]
fn only_those_who_wait_get_an_end_while_a_log_is_full() {
    let to_all = |room| {
        let coordinators = [(BlockNumber::Coordinator, room); 2];
        [&coordinators[..], &[(BlockNumber::Dictionary, room), (BlockNumber::Lifecycle, room)]].concat()
    };
    let mut h = harness();
    report_room(&mut h, 0, LogRoom::Short, false);
    assert_eq!(rooms(&mut h), to_all(LogRoom::Short));
    report_room(&mut h, 1, LogRoom::None, false);
    assert_eq!(rooms(&mut h), to_all(LogRoom::None));
    report_room(&mut h, 1, LogRoom::Enough, false);
    assert_eq!(rooms(&mut h), to_all(LogRoom::Short), "the other one");
    // It is time for a checkpoint: nobody waits, and what has changed is in no log.
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 105, 105));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), []);
    // Who waits already is served.
    wait_for(&mut h, 106);
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 106, 106));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [106]);
    (0..2).for_each(|stream| confirm(&mut h, stream, 106));
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 115, 115));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), []);
    // Records that were logged all the same are brought to the disk.
    report_room(&mut h, 0, LogRoom::Short, true);
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [115]);
    (0..2).for_each(|stream| confirm(&mut h, stream, 115));
    h.advance(Span::from_millis(1000));
    (0..2).for_each(|coordinator| close(&mut h, coordinator, 125, 125));
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), []);
    report_room(&mut h, 0, LogRoom::Enough, false);
    assert_eq!(sent(&mut h, SignalNumber::EpochEndRequest), [125], "it was put off");
}

#[test]
fn a_cluster_without_disks_makes_no_checkpoints() {
    let settings = Settings {
        epoch: Epoch(100),
        time_between_epochs: Span::from_millis(100),
        time_between_checkpoints: Span::from_millis(200),
        waits_for_begin: false,
    };
    let view = ClusterView::first(vec![Member::started(NODE, Incarnation(1), 0, 1, 1)]);
    let mut h = Harness::new(address(BlockNumber::Distribution, 0), 1, view, Distribution::new(settings));
    h.advance(Span::from_millis(1000));
    close(&mut h, 0, 105, 105);
    h.take_sent();
    h.advance(Span::from_millis(1000));
    assert_eq!(sent(&mut h, SignalNumber::DurableEpochOrder), []);
    assert_eq!(h.block().durable(), Epoch(0));
}

/// A node with a disk gives out no epoch before it has restored what is there; then it goes on above it.
#[test]
fn epochs_begin_when_everything_is_restored() {
    let member = Member { redo_streams: 1, ..Member::started(NODE, Incarnation(1), 0, 1, 1) };
    let settings = Settings {
        epoch: Epoch(1),
        time_between_epochs: Span::from_millis(100),
        time_between_checkpoints: Span::from_millis(1000),
        waits_for_begin: true,
    };
    let view = ClusterView::first(vec![member]);
    let mut h = Harness::new(address(BlockNumber::Distribution, 0), 1, view, Distribution::new(settings));
    h.advance(Span::from_millis(5000));
    assert_eq!(h.take_sent().len(), 0);
    let task = StartTask::Begin { epoch: Epoch(501), limit: Epoch(503), durable: Epoch(400), incarnation: 2 };
    h.send(address(BlockNumber::Lifecycle, 0), SignalNumber::StartRequest, |writer| {
        cold::write(writer, &StartRequest { step: 9, task });
    })
    .expect("a block may send this");
    let signals: Vec<SignalNumber> = h.take_sent().iter().map(vinga_kernel::testkit::Sent::signal).collect();
    assert!(signals.contains(&SignalNumber::StartConfirm) && signals.contains(&SignalNumber::EpochOrder));
    assert_eq!((h.block().epoch(), h.block().durable()), (Epoch(501), Epoch(400)));
    h.advance(Span::from_millis(500));
    assert_eq!(h.block().epoch(), Epoch(503), "the disk allows no more of them");
    send_epoch(&mut h, address(BlockNumber::Coordinator, 0), SignalNumber::EpochClaimReport, 503);
    assert_eq!(h.block().epoch(), Epoch(503));
    // Somebody waits for the end of the last one.
    wait_for(&mut h, 503);
    assert_eq!(h.block().epoch(), Epoch(503));
    send_epoch(&mut h, address(BlockNumber::Lifecycle, 0), SignalNumber::EpochLimitOrder, 600);
    assert_eq!(h.block().epoch(), Epoch(504));
    // What was restored needs no end record.
    send_epoch(&mut h, address(BlockNumber::Dictionary, 0), SignalNumber::DurabilityRequest, 400);
    assert_eq!(sent(&mut h, SignalNumber::DurabilityConfirm), [400]);
}

/// System files record how far the log reaches.
#[test]
fn lifecycles_learn_of_end_records_only() {
    let mut h = harness();
    let recorded = |h: &mut Harness<Distribution>| -> Vec<u64> {
        let all = h.take_sent();
        let of_kind = all.iter().filter(|sent| {
            sent.signal() == SignalNumber::DurableEpochOrder
                && sent.frame().receiver().block() == Some(BlockNumber::Lifecycle)
        });
        of_kind.map(|sent| sent.frame().head::<EpochBody>().expect("a whole body").0.epoch.get()).collect()
    };
    close(&mut h, 0, 100, 0);
    close(&mut h, 1, 100, 0);
    wait_for(&mut h, 100);
    assert_eq!(recorded(&mut h), [], "nobody has changed anything");
    assert_eq!(h.block().durable(), Epoch(100));
    close(&mut h, 0, 101, 101);
    close(&mut h, 1, 101, 0);
    wait_for(&mut h, 101);
    confirm(&mut h, 0, 101);
    confirm(&mut h, 1, 101);
    assert_eq!(recorded(&mut h), [101]);
}

#[test]
fn a_closed_epoch_is_confirmed_to_those_who_ask_with_the_current_one() {
    let mut h = harness();
    let ask = |h: &mut Harness<Distribution>, instance, epoch| {
        send_epoch(h, address(BlockNumber::DataManager, instance), SignalNumber::EpochClosedRequest, epoch);
    };
    let confirmed = |h: &mut Harness<Distribution>| -> Vec<(Address, u64, u64)> {
        let sent = h.take_sent();
        let confirms = sent.iter().filter(|sent| sent.signal() == SignalNumber::EpochClosedConfirm);
        confirms
            .map(|sent| {
                let frame = sent.frame();
                let (body, _) = frame.head::<EpochClosedConfirm>().expect("a whole body");
                (frame.receiver(), body.epoch.get(), body.current.get())
            })
            .collect()
    };
    ask(&mut h, 0, 101);
    ask(&mut h, 1, 100);
    h.advance(Span::from_millis(250));
    assert_eq!(confirmed(&mut h), [], "no coordinator has closed anything");
    close(&mut h, 0, 101, 0);
    assert_eq!(confirmed(&mut h), [], "the other one has not");
    close(&mut h, 1, 100, 0);
    let [first, second] = [0, 1].map(|instance| address(BlockNumber::DataManager, instance));
    assert_eq!(confirmed(&mut h), [(second, 100, 102)]);
    close(&mut h, 1, 101, 0);
    assert_eq!(confirmed(&mut h), [(first, 101, 102)], "no disk is waited for, and each is answered once");
    ask(&mut h, 1, 7);
    assert_eq!(confirmed(&mut h), [(second, 7, 102)], "at once, if it is closed already");
}
