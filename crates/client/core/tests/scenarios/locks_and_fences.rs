//! What becomes of write fences and the schema lock when the data node that leads dies, with frames written by hand.

use crate::lost_data_nodes::{FIRST, SECOND, die, go_on, pair, stay_dead};
use crate::rig::{Rig, Sent, node_at};
use vinga_base::NodeId;
use vinga_base::schema::TableDefinition;
use vinga_client_core::{LinkId, Request, Span, Token};
use vinga_wire::dictionary::{NamedTableRequest, TableConfirm, TableRecord};
use vinga_wire::handshake::Refusal;
use vinga_wire::schema::{
    SchemaChange, SchemaChangeConfirm, SchemaChangeRequest, SchemaLockBody, SchemaLockRequest,
};
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U32, U64, cold};

/// Changes of the schema that were sent: data node and request.
fn changes_sent(rig: &mut Rig) -> Vec<(u8, SchemaChangeRequest)> {
    let read = |sent: Sent| (node_at(sent.link), cold::read(&sent.frame()).unwrap());
    rig.sent(SignalNumber::SchemaChangeRequest).into_iter().map(read).collect()
}

fn record() -> TableRecord {
    TableRecord::new(7, 70, vinga_base::TablePartitions::first(2), TableDefinition::default())
}

fn confirm_change(rig: &mut Rig, link: LinkId, request: u32, table: Option<TableRecord>) {
    let body = SchemaChangeConfirm { request, table };
    rig.feed(link, SignalNumber::SchemaChangeConfirm, BlockNumber::Dictionary, |w| cold::write(w, &body));
}

fn refuse_change(rig: &mut Rig, link: LinkId, request: u32, code: ErrorCode) {
    let body = Refusal { request, code: code as u16, detail: String::new() };
    rig.feed(link, SignalNumber::SchemaChangeRefuse, BlockNumber::Dictionary, |w| cold::write(w, &body));
}

/// The second data node answers which table the fenced one is.
fn describe(rig: &mut Rig, table: TableRecord) {
    let sent = rig.sent(SignalNumber::DescribeTableRequest).remove(0);
    let described: NamedTableRequest = cold::read(&sent.frame()).unwrap();
    assert_eq!(described.name, "test.t");
    let body = TableConfirm { request: described.request, table };
    rig.feed(SECOND, SignalNumber::DescribeTableConfirm, BlockNumber::Dictionary, |w| cold::write(w, &body));
}

fn fence() -> Request {
    Request::ChangeSchema(SchemaChange::FenceTable { name: "test.t".into(), pinned: None })
}

fn lift() -> SchemaChange {
    SchemaChange::LiftFence { table: 7 }
}

/// The president dies while a write fence is lifted: the next one is asked to lift it, whether anybody waits for that
/// or not.
#[test]
fn a_write_fence_is_lifted_at_the_next_president() {
    for is_awaited in [true, false] {
        let (mut rig, view) = pair();
        let token = rig.client.request(&Request::ChangeSchema(lift())).unwrap();
        if !is_awaited {
            rig.client.cancel(token);
        }
        assert_eq!(changes_sent(&mut rig)[0].0, 1);
        die(&mut rig);
        stay_dead(&mut rig, 500);
        go_on(&mut rig, &view);
        let (node, request) = changes_sent(&mut rig).remove(0);
        assert_eq!((node, request.change), (2, lift()));
        assert!(rig.client.wants_reader() || is_awaited, "somebody has to read the answer");
        confirm_change(&mut rig, SECOND, request.request, None);
        assert_eq!(rig.client.take_answer(token).map(|answer| answer.is_ok()), is_awaited.then_some(true));
        assert!(rig.client.is_at_rest());
    }
}

/// There is no next president for long: whoever waits gets an error, and the write fence is lifted when there is one.
#[test]
fn a_write_fence_is_lifted_even_after_long() {
    let (mut rig, view) = pair();
    let token = rig.client.request(&Request::ChangeSchema(lift())).unwrap();
    changes_sent(&mut rig);
    die(&mut rig);
    stay_dead(&mut rig, 30_000);
    let code = rig.client.take_answer(token).expect("it is over").unwrap_err().code();
    assert_eq!(code, ErrorCode::UnknownOutcome);
    go_on(&mut rig, &view);
    let (node, request) = changes_sent(&mut rig).remove(0);
    assert_eq!((node, request.change), (2, lift()));
    confirm_change(&mut rig, SECOND, request.request, None);
    assert!(rig.client.is_at_rest());
}

/// The next president does not know yet that it is one, and refuses to lift a write fence: it is asked again.
#[test]
fn a_write_fence_is_lifted_though_the_next_president_is_busy() {
    for is_awaited in [true, false] {
        let (mut rig, view) = pair();
        die(&mut rig);
        go_on(&mut rig, &view);
        let token = rig.client.request(&Request::ChangeSchema(lift())).unwrap();
        if !is_awaited {
            rig.client.cancel(token);
        }
        for code in [ErrorCode::SchemaBusy, ErrorCode::Overloaded, ErrorCode::SchemaBusy] {
            let (node, request) = changes_sent(&mut rig).remove(0);
            assert_eq!((node, request.change), (2, lift()));
            refuse_change(&mut rig, SECOND, request.request, code);
            assert!(rig.client.take_answer(token).is_none());
            assert!(changes_sent(&mut rig).is_empty(), "not at once");
            rig.advance(100);
        }
        let (_, request) = changes_sent(&mut rig).remove(0);
        confirm_change(&mut rig, SECOND, request.request, None);
        assert_eq!(rig.client.take_answer(token).map(|answer| answer.is_ok()), is_awaited.then_some(true));
        assert!(rig.client.is_at_rest());
    }
}

/// The dictionary is busy for long: whoever waits is answered that, and the write fence is lifted all the same.
#[test]
fn a_write_fence_is_lifted_though_nobody_waits_any_more() {
    let (mut rig, _) = pair();
    let token = rig.client.request(&Request::ChangeSchema(lift())).unwrap();
    let mut answer = None;
    for _ in 0..300 {
        let (_, request) = changes_sent(&mut rig).remove(0);
        refuse_change(&mut rig, FIRST, request.request, ErrorCode::SchemaBusy);
        answer = answer.or_else(|| rig.client.take_answer(token));
        rig.advance(100);
        rig.feed(FIRST, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
            w.put(&vinga_wire::membership::HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
        });
        rig.feed(SECOND, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
            w.put(&vinga_wire::membership::HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
        });
    }
    assert_eq!(answer.expect("it was answered").unwrap_err().code(), ErrorCode::SchemaBusy);
    let (_, request) = changes_sent(&mut rig).remove(0);
    confirm_change(&mut rig, FIRST, request.request, None);
    assert!(rig.client.is_at_rest());
}

/// The president dies while a table is fenced: the next one finishes that, or undoes it. If it was finished the same
/// request is refused, and the write fence that nobody was given is lifted. If it was undone, it is done now.
#[test]
fn a_write_fence_is_asked_for_again_at_the_next_president() {
    for was_finished in [true, false] {
        for is_awaited in [true, false] {
            let (mut rig, view) = pair();
            let token = rig.client.request(&fence()).unwrap();
            if !is_awaited {
                rig.client.cancel(token);
            }
            changes_sent(&mut rig);
            die(&mut rig);
            go_on(&mut rig, &view);
            let (node, request) = changes_sent(&mut rig).remove(0);
            assert!(node == 2 && matches!(request.change, SchemaChange::FenceTable { .. }));
            if was_finished {
                refuse_change(&mut rig, SECOND, request.request, ErrorCode::SchemaBusy);
                describe(&mut rig, record());
            } else {
                confirm_change(&mut rig, SECOND, request.request, Some(record()));
            }
            if was_finished || !is_awaited {
                let (_, request) = changes_sent(&mut rig).remove(0);
                assert_eq!(request.change, lift());
                assert!(rig.client.take_answer(token).is_none(), "nobody is answered before");
                confirm_change(&mut rig, SECOND, request.request, None);
            }
            let answer = rig.client.take_answer(token).map(|answer| answer.map_err(|error| error.code()));
            match (is_awaited, was_finished) {
                (true, true) => assert_eq!(answer.unwrap().unwrap_err(), ErrorCode::SchemaBusy),
                (true, false) => assert!(answer.unwrap().is_ok()),
                (false, _) => assert!(answer.is_none()),
            }
            assert!(rig.client.is_at_rest());
        }
    }
}

/// Two requesters of one client want the same fence while the president dies: the one that is refused must not lift
/// what the other one was given, but for one that has ended with the session.
#[test]
fn a_write_fence_that_another_requester_was_given_is_not_lifted() {
    for session_has_ended in [false, true] {
        let (mut rig, view) = pair();
        let tokens = [(), ()].map(|()| rig.client.request(&fence()).unwrap());
        changes_sent(&mut rig);
        die(&mut rig);
        go_on(&mut rig, &view);
        let sent = changes_sent(&mut rig);
        assert_eq!(sent.len(), 2);
        confirm_change(&mut rig, SECOND, sent[0].1.request, Some(record()));
        if session_has_ended {
            rig.break_link(SECOND);
            rig.admission += 1;
            rig.advance(1000);
            rig.admit_all(&view.without(&[NodeId(1)]));
            changes_sent(&mut rig);
        }
        refuse_change(&mut rig, SECOND, sent[1].1.request, ErrorCode::SchemaBusy);
        describe(&mut rig, record());
        let lifted = changes_sent(&mut rig);
        assert_eq!(lifted.len(), usize::from(session_has_ended));
        for (_, request) in lifted {
            assert_eq!(request.change, lift());
            confirm_change(&mut rig, SECOND, request.request, None);
        }
        let answers = tokens.map(|token| rig.client.take_answer(token).expect("it is over").map(drop));
        assert!(answers[0].is_ok());
        assert_eq!(answers[1].as_ref().unwrap_err().code(), ErrorCode::SchemaBusy);
        assert!(rig.client.is_at_rest());
    }
}

/// The next president refuses the second requester of a client before all dictionaries have confirmed the fence of the
/// first one: the fence is not lifted before that one is answered, and then only if it was not given it.
#[test]
fn a_write_fence_that_another_requester_may_be_given_is_not_lifted() {
    for is_given in [true, false] {
        let (mut rig, view) = pair();
        let tokens = [(), ()].map(|()| rig.client.request(&fence()).unwrap());
        changes_sent(&mut rig);
        die(&mut rig);
        go_on(&mut rig, &view);
        let sent = changes_sent(&mut rig);
        refuse_change(&mut rig, SECOND, sent[1].1.request, ErrorCode::SchemaBusy);
        let definition = TableDefinition { name: "test.t".into(), ..TableDefinition::default() };
        let table = TableRecord { definition, ..record() };
        for _ in 0..3 {
            describe(&mut rig, table.clone());
            assert!(changes_sent(&mut rig).is_empty(), "it may be the other one's");
            assert!(rig.client.take_answer(tokens[1]).is_none());
            rig.advance(100);
        }
        match is_given {
            true => confirm_change(&mut rig, SECOND, sent[0].1.request, Some(table.clone())),
            false => refuse_change(&mut rig, SECOND, sent[0].1.request, ErrorCode::NoSuchTable),
        }
        describe(&mut rig, table);
        let lifted = changes_sent(&mut rig);
        assert_eq!(lifted.len(), usize::from(!is_given));
        for (_, request) in lifted {
            assert_eq!(request.change, lift());
            confirm_change(&mut rig, SECOND, request.request, None);
        }
        let answers = tokens.map(|token| rig.client.take_answer(token).expect("it is over").map(drop));
        assert_eq!(answers[0].is_ok(), is_given);
        assert_eq!(answers[1].as_ref().unwrap_err().code(), ErrorCode::SchemaBusy);
        assert!(rig.client.is_at_rest());
    }
}

/// A write fence that was got, and is not wanted when its president is dead.
#[test]
fn a_write_fence_that_was_not_taken_is_lifted_at_the_next_president() {
    let (mut rig, view) = pair();
    let token = rig.client.request(&fence()).unwrap();
    let (_, request) = changes_sent(&mut rig).remove(0);
    confirm_change(&mut rig, FIRST, request.request, Some(record()));
    die(&mut rig);
    rig.client.cancel(token);
    assert!(changes_sent(&mut rig).is_empty());
    go_on(&mut rig, &view);
    let (node, request) = changes_sent(&mut rig).remove(0);
    assert_eq!((node, request.change), (2, lift()));
    confirm_change(&mut rig, SECOND, request.request, None);
    assert!(rig.client.is_at_rest());
}

/// Claims for the schema lock that were sent: data node, and claim.
fn claims_sent(rig: &mut Rig) -> Vec<(u8, SchemaLockRequest)> {
    let read = |sent: Sent| (node_at(sent.link), cold::read(&sent.frame()).unwrap());
    rig.sent(SignalNumber::SchemaLockRequest).into_iter().map(read).collect()
}

fn answer_lock(rig: &mut Rig, link: LinkId, signal: SignalNumber, request: u32) {
    rig.feed(link, signal, BlockNumber::Dictionary, |w| cold::write(w, &SchemaLockBody { request }));
}

fn refuse_lock(rig: &mut Rig, link: LinkId, signal: SignalNumber, request: u32, code: ErrorCode) {
    let body = Refusal { request, code: code as u16, detail: String::new() };
    rig.feed(link, signal, BlockNumber::Dictionary, |w| cold::write(w, &body));
}

fn claim() -> Request {
    Request::Lock { purpose: "test".into(), wait: Span::from_millis(60_000) }
}

/// A claim that has the lock of the first data node, and its tag.
fn locked(rig: &mut Rig) -> (Token, u32) {
    let held = rig.client.request(&claim()).unwrap();
    let (_, sent) = claims_sent(rig).remove(0);
    answer_lock(rig, FIRST, SignalNumber::SchemaLockConfirm, sent.request);
    assert!(rig.client.take_answer(held).unwrap().is_ok());
    assert_eq!(rig.client.holds_lock(held), Some(true));
    (held, sent.request)
}

/// The next president knows who has the schema lock: that one is in doubt until it has said so, and whoever waited
/// waits there.
#[test]
fn the_schema_lock_is_confirmed_by_the_next_president() {
    let (mut rig, view) = pair();
    let (held, tag) = locked(&mut rig);
    let waiting = rig.client.request(&claim()).unwrap();
    let (_, second) = claims_sent(&mut rig).remove(0);
    die(&mut rig);
    assert_eq!(rig.client.holds_lock(held), None, "the session may be closed");
    go_on(&mut rig, &view);
    let mut sent = claims_sent(&mut rig);
    sent.sort_by_key(|(_, claim)| claim.was_granted);
    let shown = |(node, claim): &(u8, SchemaLockRequest)| (*node, claim.request, claim.was_granted);
    assert_eq!(sent.iter().map(shown).collect::<Vec<_>>(), [(2, second.request, false), (2, tag, true)]);
    // It does not know yet that it leads the cluster.
    for request in [tag, second.request] {
        refuse_lock(&mut rig, SECOND, SignalNumber::SchemaLockRefuse, request, ErrorCode::SchemaBusy);
    }
    assert_eq!(rig.client.holds_lock(held), None);
    rig.advance(60);
    assert_eq!(claims_sent(&mut rig).len(), 2);
    answer_lock(&mut rig, SECOND, SignalNumber::SchemaLockConfirm, tag);
    assert_eq!(rig.client.holds_lock(held), Some(true));
    assert!(rig.client.take_answer(waiting).is_none());
    // It is given back where it is known.
    rig.client.cancel(held);
    assert!(!rig.sent(SignalNumber::SchemaUnlockRequest).is_empty());
    answer_lock(&mut rig, SECOND, SignalNumber::SchemaUnlockConfirm, tag);
    answer_lock(&mut rig, SECOND, SignalNumber::SchemaLockConfirm, second.request);
    assert!(rig.client.take_answer(waiting).unwrap().is_ok());
    rig.client.cancel(waiting);
    answer_lock(&mut rig, SECOND, SignalNumber::SchemaUnlockConfirm, second.request);
    assert!(rig.client.is_at_rest());
}

/// Both data nodes are lost before anybody has seen that the lock was granted, the second one while it is asked.
#[test]
fn a_lock_in_doubt_is_not_given_back_by_a_lost_connection() {
    let (mut rig, view) = pair();
    let token = rig.client.request(&claim()).unwrap();
    let (_, sent) = claims_sent(&mut rig).remove(0);
    answer_lock(&mut rig, FIRST, SignalNumber::SchemaLockConfirm, sent.request);
    die(&mut rig);
    go_on(&mut rig, &view);
    assert_eq!(claims_sent(&mut rig).len(), 1);
    rig.break_link(SECOND);
    rig.client.cancel(token);
    rig.advance(1000);
    rig.open_links();
    assert!(rig.sent(SignalNumber::SchemaUnlockRequest).is_empty());
}

/// The session was closed meanwhile: another client may have it. It can be seen, and what is given back is nothing.
#[test]
fn a_schema_lock_that_is_lost_can_be_seen_to_be() {
    let (mut rig, view) = pair();
    let (held, tag) = locked(&mut rig);
    die(&mut rig);
    go_on(&mut rig, &view);
    let code = ErrorCode::SchemaLockTimeout;
    refuse_lock(&mut rig, SECOND, SignalNumber::SchemaLockRefuse, tag, code);
    assert_eq!(rig.client.holds_lock(held), Some(false));
    rig.client.cancel(held);
    assert!(rig.sent(SignalNumber::SchemaUnlockRequest).is_empty());
    assert!(rig.client.is_at_rest());
}

/// Whoever gives it back, or does not want it any more, while there is no president: else nobody would get it as long
/// as the session lives.
#[test]
fn a_schema_lock_is_given_back_at_the_next_president() {
    for has_lock in [true, false] {
        for is_sent in [true, false] {
            let (mut rig, view) = pair();
            let (token, tag) = if has_lock {
                locked(&mut rig)
            } else {
                let token = rig.client.request(&claim()).unwrap();
                (token, claims_sent(&mut rig).remove(0).1.request)
            };
            if is_sent {
                rig.client.cancel(token);
                assert_eq!(rig.sent(SignalNumber::SchemaUnlockRequest).len(), 1);
            }
            die(&mut rig);
            if !is_sent {
                rig.client.cancel(token);
            }
            go_on(&mut rig, &view);
            let sent = rig.sent(SignalNumber::SchemaUnlockRequest);
            assert_eq!(sent.iter().map(|sent| node_at(sent.link)).collect::<Vec<_>>(), [2]);
            refuse_lock(&mut rig, SECOND, SignalNumber::SchemaUnlockRefuse, tag, ErrorCode::SchemaBusy);
            rig.advance(60);
            assert_eq!(rig.sent(SignalNumber::SchemaUnlockRequest).len(), 1);
            // A confirmation of the claim that has crossed with it.
            answer_lock(&mut rig, SECOND, SignalNumber::SchemaLockConfirm, tag);
            assert!(!rig.client.is_at_rest());
            answer_lock(&mut rig, SECOND, SignalNumber::SchemaUnlockConfirm, tag);
            assert!(rig.client.is_at_rest());
        }
    }
}

/// Whoever has waited for too long gets an error; a claim that the lost president may have granted is given back.
#[test]
fn a_claim_is_given_up_when_nobody_leads() {
    let (mut rig, view) = pair();
    let token = rig.client.request(&claim()).unwrap();
    let (_, sent) = claims_sent(&mut rig).remove(0);
    die(&mut rig);
    stay_dead(&mut rig, 25_000);
    let code = rig.client.take_answer(token).expect("it is over").unwrap_err().code();
    assert_eq!(code, ErrorCode::ConnectionLost);
    go_on(&mut rig, &view);
    assert_eq!(rig.sent(SignalNumber::SchemaUnlockRequest).len(), 1);
    answer_lock(&mut rig, SECOND, SignalNumber::SchemaUnlockConfirm, sent.request);
    assert!(rig.client.is_at_rest());
}
