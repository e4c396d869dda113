//! The president of three nodes fails: the second one's dictionary goes on with what it was doing.

use crate::common::*;
use vinga_base::{Epoch, Incarnation, NodeId, TablePartitions};
use vinga_dictionary::Dictionary;
use vinga_kernel::testkit::{Harness, Sent};
use vinga_wire::dictionary::{TableRecord, VersionedTable};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::schema::SchemaChange;
use vinga_wire::schema_round::{
    LockHolder, NotedChange, RoundName, RoundTask, SchemaRoundRequest, SchemaStateConfirm,
};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

const THIRD: Address = Address::new(NodeId(3), BlockNumber::Dictionary, 0);
const NAME: VersionedTable = VersionedTable { table: 1, version: 900 };

/// The dictionary of the second node, which the API nodes are admitted to.
fn second() -> Harness<Dictionary> {
    let mut h = harness_among(3, OTHER_DICTIONARY, TABLES_MAX, None);
    (API_FIRST..=API_LAST).for_each(|node| api_connects(&mut h, node));
    h.take_sent();
    h
}

/// The president has this done.
fn ordered(h: &mut Harness<Dictionary>, change: u64, step: u32, epoch: u64, task: RoundTask) {
    let body = SchemaRoundRequest { round: RoundName { change, step }, epoch: Epoch(epoch), task };
    h.send(DICTIONARY, SignalNumber::SchemaRoundRequest, |w| cold::write(w, &body)).expect("allowed");
    let answers: Vec<SignalNumber> = h.take_sent().iter().map(Sent::signal).collect();
    assert_eq!(answers, [SignalNumber::SchemaRoundConfirm]);
}

fn record() -> TableRecord {
    TableRecord::new(NAME.table, NAME.version, TablePartitions::first(1), definition("test.t"))
}

/// A table is created.
fn creation(record: TableRecord) -> NotedChange {
    NotedChange {
        before: None,
        made: vec![record.own()],
        version_next: record.version + 1,
        after: Some(record),
        replaced: None,
        gone: vec![],
        fence: 0,
        database: None,
    }
}

/// Change 5 creates a table.
fn note(h: &mut Harness<Dictionary>) {
    ordered(h, 5, 1, 0, RoundTask::Note { change: creation(record()) });
}

/// The president carries out a whole change.
fn carried_out(h: &mut Harness<Dictionary>, number: u64, change: NotedChange) {
    ordered(h, number, 1, 0, RoundTask::Note { change });
    ordered(h, number, 6, 44, RoundTask::Decide);
    ordered(h, number, 11, 0, RoundTask::End);
}

/// The third dictionary answers the new president.
fn state(h: &mut Harness<Dictionary>, change: u64, is_decided: bool, epoch: u64) {
    let body = SchemaStateConfirm { view: 3, change, is_decided, epoch: Epoch(epoch), version_next: 1000 };
    h.send(THIRD, SignalNumber::SchemaStateConfirm, |w| cold::write(w, &body)).expect("allowed");
}

/// What was asked of whom since the last call.
fn asked(h: &mut Harness<Dictionary>) -> Vec<(Address, SchemaRoundRequest)> {
    let sent = h.take_sent();
    let rounds = sent.iter().filter(|sent| sent.signal() == SignalNumber::SchemaRoundRequest);
    rounds.map(|sent| (sent.receiver(), cold::read(&sent.frame()).expect("a whole body"))).collect()
}

/// Everybody confirms everything until nothing more is asked; returns the tasks, each once.
fn carry_out(h: &mut Harness<Dictionary>) -> Vec<RoundTask> {
    let mut tasks: Vec<RoundTask> = vec![];
    loop {
        let round = asked(h);
        if round.is_empty() {
            return tasks;
        }
        for (block, body) in round {
            assert_ne!(block.node(), NodeId(1), "nothing is sent to the failed node");
            if !tasks.contains(&body.task) {
                tasks.push(body.task);
            }
            confirm(h, block, body.round);
        }
    }
}

fn tables(h: &Harness<Dictionary>) -> Vec<VersionedTable> {
    h.block().tables().map(TableRecord::own).collect()
}

fn fences(owners: &[(u32, u8)]) -> RoundTask {
    RoundTask::Fences { owners: owners.to_vec() }
}

const LOCK_IS_FREE: RoundTask = RoundTask::SchemaLock { holder: None };

fn finishing() -> Vec<RoundTask> {
    vec![
        fences(&[]),
        LOCK_IS_FREE,
        RoundTask::Decide,
        RoundTask::Publish { records: vec![record()], gone: vec![] },
        RoundTask::End,
    ]
}

#[test]
fn a_change_that_is_decided_here_is_finished() {
    let mut h = second();
    note(&mut h);
    ordered(&mut h, 5, 6, 44, RoundTask::Decide);
    assert_eq!(tables(&h), [NAME]);
    h.lose_node(NodeId(1));
    assert!(asked(&mut h).is_empty(), "the third one is asked first");
    state(&mut h, 5, false, 0);
    assert_eq!(carry_out(&mut h), finishing());
    assert_eq!(tables(&h), [NAME]);
}

/// The decision was on its way to this dictionary, and has reached another one.
#[test]
fn a_change_that_another_dictionary_knows_as_decided_is_finished() {
    let mut h = second();
    note(&mut h);
    h.lose_node(NodeId(1));
    h.take_sent();
    state(&mut h, 5, true, 55);
    let round = asked(&mut h);
    let decided: Vec<Epoch> =
        round.iter().filter(|(_, body)| body.task == RoundTask::Decide).map(|(_, body)| body.epoch).collect();
    assert_eq!(decided, [Epoch(55)], "it keeps its epoch");
    for (block, body) in round {
        confirm(&mut h, block, body.round);
    }
    assert_eq!(carry_out(&mut h), finishing()[3..]);
    assert_eq!(tables(&h), [NAME]);
}

/// Nobody can have used it.
#[test]
fn a_change_that_nobody_knows_as_decided_is_undone() {
    let mut h = second();
    note(&mut h);
    h.lose_node(NodeId(1));
    h.take_sent();
    state(&mut h, 5, false, 0);
    let undoing = [fences(&[]), LOCK_IS_FREE, RoundTask::Remove { tables: vec![NAME] }, RoundTask::End];
    assert_eq!(carry_out(&mut h), undoing);
    assert_eq!(tables(&h), []);
    create(&mut h, api(150), 1, "test.other");
    carry_out(&mut h);
    let again = tables(&h);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].table, 1, "the id is free");
    assert!(again[0].version >= 1000, "no version is given twice: {again:?}");
}

/// A change that this dictionary has not noted was not begun, and an older one is over.
#[test]
fn a_change_that_was_not_noted_here_is_ended_everywhere() {
    let mut h = second();
    note(&mut h);
    ordered(&mut h, 5, 6, 44, RoundTask::Decide);
    h.lose_node(NodeId(1));
    h.take_sent();
    state(&mut h, 6, false, 0);
    assert_eq!(carry_out(&mut h), [fences(&[]), LOCK_IS_FREE, RoundTask::End]);
    assert_eq!(tables(&h), [NAME], "the older one was carried out");
    create(&mut h, api(150), 1, "test.other");
    assert!(matches!(&asked(&mut h)[..], [(THIRD, body)] if body.round.change == 7));
}

#[test]
fn requests_wait_until_it_is_known_what_goes_on() {
    let mut h = second();
    note(&mut h);
    h.lose_node(NodeId(1));
    create(&mut h, api(150), 1, "test.other");
    assert!(asked(&mut h).is_empty());
    h.lose_node(NodeId(3));
    let tasks = carry_out(&mut h);
    assert!(matches!(
        &tasks[..],
        [_, RoundTask::Remove { .. }, RoundTask::Prepare { .. }, RoundTask::Publish { .. }]
    ));
    assert_eq!(tables(&h).len(), 1);
}

/// Nothing has to be finished or undone, and there is nobody who has to note what begins.
#[test]
fn a_request_that_has_waited_is_carried_out_by_the_last_node() {
    let mut h = second();
    h.lose_node(NodeId(1));
    create(&mut h, api(150), 1, "test.other");
    h.lose_node(NodeId(3));
    carry_out(&mut h);
    assert!(!h.block().is_changing());
    assert_eq!(tables(&h).len(), 1);
}

/// The president sets a write fence.
fn fenced(h: &mut Harness<Dictionary>, number: u64, table: u32, api: u8) {
    let fence = NotedChange {
        before: Some(table),
        after: None,
        replaced: None,
        made: vec![],
        gone: vec![],
        fence: api,
        database: None,
        version_next: 960,
    };
    carried_out(h, number, fence);
}

/// The predecessor had lifted a write fence at some coordinators, and the owner is there again: it counts on nothing.
#[test]
fn a_write_fence_ends_with_its_owner() {
    let mut h = second();
    let other = TableRecord::new(2, 950, TablePartitions::first(1), definition("test.u"));
    carried_out(&mut h, 5, creation(record()));
    carried_out(&mut h, 6, creation(other));
    fenced(&mut h, 7, 1, 150);
    fenced(&mut h, 8, 2, 151);
    api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 150);
    api_connects(&mut h, 150);
    h.lose_node(NodeId(1));
    state(&mut h, 8, false, 0);
    assert!(h.has_met("a new president lifts a write fence whose owner has gone"));
    assert_eq!(carry_out(&mut h), [fences(&[(2, 151)]), LOCK_IS_FREE, RoundTask::End]);
    assert_eq!(h.block().fences().collect::<Vec<_>>(), [(2, NodeId(151))]);
}

/// The next president would keep it, and its owner would not ask again.
#[test]
fn a_lifted_fence_is_answered_when_the_other_dictionaries_know_that() {
    #[derive(PartialEq)]
    enum Then {
        Confirms,
        Fails,
        OwnerGoes,
    }
    for then in [Then::Confirms, Then::Fails, Then::OwnerGoes] {
        let mut h = second();
        carried_out(&mut h, 5, creation(record()));
        fenced(&mut h, 6, 1, 150);
        h.lose_node(NodeId(1));
        state(&mut h, 6, false, 0);
        // It has not confirmed this one yet.
        let restated: Vec<RoundTask> =
            asked(&mut h).into_iter().filter(|(to, _)| *to == THIRD).map(|(_, body)| body.task).collect();
        assert_eq!(restated, [fences(&[(1, 150)]), LOCK_IS_FREE, RoundTask::End]);
        change(&mut h, api(150), 9, SchemaChange::LiftFence { table: 1 });
        let lifted = asked(&mut h).into_iter().find(|(block, _)| *block == THIRD).expect("it is sent");
        assert_eq!(lifted.1.task, RoundTask::Fence { table: 1, api: 0 });
        assert_eq!(h.block().fences().count(), 0);
        for _ in 0..2 {
            confirm(&mut h, THIRD, RoundName::NO_CHANGE);
            assert!(h.take_sent().is_empty(), "another order was confirmed");
        }
        match then {
            Then::Confirms => confirm(&mut h, THIRD, lifted.1.round),
            Then::Fails => h.lose_node(NodeId(3)),
            Then::OwnerGoes => {
                api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 150);
                h.take_sent();
                confirm(&mut h, THIRD, lifted.1.round);
            }
        }
        let answers: Vec<_> = h.take_sent().iter().map(|sent| (sent.signal(), sent.receiver())).collect();
        let answer = (SignalNumber::SchemaChangeConfirm, api(150));
        assert_eq!(answers, if then == Then::OwnerGoes { vec![] } else { vec![answer] });
    }
}

fn lock_orders(h: &mut Harness<Dictionary>) -> Vec<Option<u32>> {
    let to_third = asked(h).into_iter().filter(|(to, _)| *to == THIRD);
    let order = |task| match task {
        RoundTask::SchemaLock { holder } => Some(holder.map(|holder| holder.request)),
        _ => None,
    };
    to_third.filter_map(|(_, body)| order(body.task)).collect()
}

/// The president has given the lock to a claim of this API node, in its first incarnation here.
fn holder(api: u8, request: u32) -> RoundTask {
    let owner = ApiNodeBody::new(NodeId(api), Incarnation(7)).owner();
    RoundTask::SchemaLock { holder: Some(LockHolder { api, owner, request, purpose: "test".into() }) }
}

/// What API nodes were answered.
fn answers(h: &mut Harness<Dictionary>) -> Vec<(SignalNumber, Address)> {
    let sent = h.take_sent();
    let to_api = sent.iter().filter(|sent| sent.receiver().block() == Some(BlockNumber::Api));
    to_api.map(|sent| (sent.signal(), sent.receiver())).collect()
}

/// Its holder asks the new president, others wait for it; it is given to nobody before the third node has noted that.
#[test]
fn the_schema_lock_stays_with_its_holder() {
    let mut h = second();
    ordered(&mut h, 0, 0, 0, holder(150, 7));
    h.lose_node(NodeId(1));
    lock(&mut h, api(151), 8, "another", 1000);
    lock(&mut h, api(152), 9, "does not wait", 0);
    lock_again(&mut h, api(150), 7);
    assert_eq!(answers(&mut h), [], "it is not known yet what others have noted");
    state(&mut h, 0, false, 0);
    let sent: Vec<_> = h.take_sent();
    let refused = sent.iter().filter(|sent| sent.signal() == SignalNumber::SchemaLockRefuse);
    assert_eq!(refused.map(Sent::receiver).collect::<Vec<_>>(), [api(152)]);
    assert_eq!(h.block().lock_holder(), Some(NodeId(150)));
    // The fences, the lock as it is, and as it is for its holder.
    confirm(&mut h, THIRD, RoundName::NO_CHANGE);
    confirm(&mut h, THIRD, RoundName::NO_CHANGE);
    assert_eq!(answers(&mut h), []);
    confirm(&mut h, THIRD, RoundName::NO_CHANGE);
    assert_eq!(answers(&mut h), [(SignalNumber::SchemaLockConfirm, api(150))]);
    unlock(&mut h, api(150), 7);
    assert_eq!(lock_orders(&mut h), [None, Some(8)]);
    confirm(&mut h, THIRD, RoundName::NO_CHANGE);
    assert_eq!(answers(&mut h), [(SignalNumber::SchemaUnlockConfirm, api(150))]);
    h.lose_node(NodeId(3));
    assert_eq!(answers(&mut h), [(SignalNumber::SchemaLockConfirm, api(151))]);
    // Whoever has lost it does not get it again.
    lock_again(&mut h, api(150), 7);
    assert_eq!(answers(&mut h), [(SignalNumber::SchemaLockRefuse, api(150))]);
    assert!(h.has_met("a new president confirms a claim for the schema lock"));
    assert!(h.has_met("claim for the schema lock waits for a new president"));
}

/// Behind the order, before it has come, or so much before that its next incarnation is there.
#[test]
fn the_schema_lock_ends_with_the_session_of_its_holder() {
    for goes_at in 0..3 {
        let mut h = second();
        let gone = |h: &mut Harness<Dictionary>, is_now: bool| {
            if is_now {
                api_gone(h, SignalNumber::ApiFailedOrder, 150);
                h.take_sent();
            }
        };
        let comes = |h: &mut Harness<Dictionary>, is_now: bool| {
            if is_now {
                api_connects_as(h, 150, 8);
                h.take_sent();
            }
        };
        gone(&mut h, goes_at < 2);
        comes(&mut h, goes_at == 0);
        ordered(&mut h, 0, 0, 0, holder(150, 7));
        gone(&mut h, goes_at == 2);
        comes(&mut h, goes_at > 0);
        h.lose_node(NodeId(1));
        lock(&mut h, api(151), 8, "another", 1000);
        h.lose_node(NodeId(3));
        assert!(h.has_met("a new president takes the schema lock back whose holder has gone"));
        assert!(answers(&mut h).contains(&(SignalNumber::SchemaLockConfirm, api(151))));
    }
}

/// The third dictionary, which leads when both others have failed: what it knows of then is what counts.
fn third() -> Harness<Dictionary> {
    let mut h = harness_among(3, THIRD, TABLES_MAX, None);
    (API_FIRST..=API_LAST).for_each(|node| api_connects(&mut h, node));
    h.take_sent();
    h
}

/// What the new president has ordered the third dictionary to note, unless an API node was answered already.
fn orders_before_an_answer(h: &mut Harness<Dictionary>) -> Vec<SchemaRoundRequest> {
    let sent = h.take_sent();
    let to_api = sent.iter().filter(|sent| sent.receiver().block() == Some(BlockNumber::Api));
    assert_eq!(to_api.count(), 0, "it is answered before the third dictionary has confirmed anything");
    let orders = sent
        .iter()
        .filter(|sent| sent.receiver() == THIRD && sent.signal() == SignalNumber::SchemaRoundRequest);
    let orders = orders.map(|sent| cold::read(&sent.frame()).expect("a whole body"));
    orders.filter(|order: &SchemaRoundRequest| order.round == RoundName::NO_CHANGE).collect()
}

/// The third dictionary does what it was ordered, and confirms it.
fn pass_on(h: &mut Harness<Dictionary>, third: &mut Harness<Dictionary>, orders: &[SchemaRoundRequest]) {
    for order in orders {
        third
            .send(OTHER_DICTIONARY, SignalNumber::SchemaRoundRequest, |w| cold::write(w, order))
            .expect("allowed");
        third.take_sent();
        confirm(h, THIRD, order.round);
    }
}

/// The president's order to lift a fence has reached the second dictionary and not the third one: whoever asks for it
/// again is answered when that knows of it, too.
#[test]
fn a_fence_is_lifted_everywhere_before_its_owner_is_answered() {
    for is_concluded in [false, true] {
        let (mut h, mut last) = (second(), third());
        for one in [&mut h, &mut last] {
            carried_out(one, 5, creation(record()));
            fenced(one, 6, 1, 150);
        }
        ordered(&mut h, 0, 0, 0, RoundTask::Fence { table: 1, api: 0 });
        h.lose_node(NodeId(1));
        last.lose_node(NodeId(1));
        last.take_sent();
        if is_concluded {
            state(&mut h, 6, false, 0);
        }
        let mut orders = orders_before_an_answer(&mut h);
        change(&mut h, api(150), 9, SchemaChange::LiftFence { table: 1 });
        orders.extend(orders_before_an_answer(&mut h));
        pass_on(&mut h, &mut last, &orders);
        assert_eq!(answers(&mut h), [(SignalNumber::SchemaChangeConfirm, api(150))]);
        assert_eq!(last.block().fences().count(), 0);
    }
}

/// The president's grant of the lock has reached the third dictionary and not the second one, and is given up there.
#[test]
fn the_schema_lock_is_free_everywhere_before_whoever_gives_it_up_is_answered() {
    for is_concluded in [false, true] {
        let (mut h, mut last) = (second(), third());
        ordered(&mut last, 0, 0, 0, holder(150, 7));
        h.lose_node(NodeId(1));
        last.lose_node(NodeId(1));
        last.take_sent();
        if is_concluded {
            state(&mut h, 0, false, 0);
        }
        let mut orders = orders_before_an_answer(&mut h);
        unlock(&mut h, api(150), 7);
        orders.extend(orders_before_an_answer(&mut h));
        pass_on(&mut h, &mut last, &orders);
        assert_eq!(answers(&mut h), [(SignalNumber::SchemaUnlockConfirm, api(150))]);
        assert_eq!(last.block().lock_holder(), None);
    }
}

/// The owner goes when its fence is noted here and before it is decided; the president fails before it lifts the fence.
#[test]
fn a_fence_does_not_outlive_an_owner_that_goes_before_it_stands() {
    let mut h = second();
    carried_out(&mut h, 5, creation(record()));
    let fence =
        NotedChange { before: Some(NAME.table), after: None, made: vec![], fence: 150, ..creation(record()) };
    ordered(&mut h, 6, 1, 0, RoundTask::Note { change: fence });
    api_gone(&mut h, SignalNumber::ApiConnectionClosedOrder, 150);
    h.take_sent();
    ordered(&mut h, 6, 6, 44, RoundTask::Decide);
    ordered(&mut h, 6, 11, 0, RoundTask::End);
    h.lose_node(NodeId(1));
    state(&mut h, 6, false, 0);
    assert_eq!(h.block().fences().count(), 0);
}
