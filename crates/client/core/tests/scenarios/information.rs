//! Rows of information tables are asked of each data node by itself: what becomes of that when one of them dies.

use crate::rig::{Rig, first_view, node_at};
use vinga_base::NodeId;
use vinga_client_core::{Answer, LinkId, Request, Token};
use vinga_wire::handshake::Refusal;
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoTable, InfoValue};
use vinga_wire::shutdown::{ShutdownConfirm, ShutdownRequest, ShutdownTerms};
use vinga_wire::view::ClusterView;
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, cold};

const FIRST: LinkId = LinkId(0);
const SECOND: LinkId = LinkId(8);

/// Two data nodes with the same rows; the first one leads.
fn pair() -> (Rig, ClusterView) {
    let view = first_view(&[0, 0]);
    (Rig::connected(2, &view), view)
}

fn ask(rig: &mut Rig, node: u8) -> Token {
    rig.client.request(&Request::Info(InfoTable::Pools, NodeId(node))).expect("it is connected, or awaited")
}

/// The data nodes that were asked, with the tags of the requests.
fn asked(rig: &mut Rig) -> Vec<(u8, u32)> {
    let sent = rig.sent(SignalNumber::InfoRequest).into_iter();
    sent.map(|one| {
        let InfoRequest { request, table } = cold::read(&one.frame()).expect("well-formed");
        assert_eq!(table, InfoTable::Pools);
        (node_at(one.link), request)
    })
    .collect()
}

/// A data node answers with one row: its id.
fn answer(rig: &mut Rig, (node, request): (u8, u32)) {
    let body = InfoConfirm {
        request,
        columns: vec!["used".into()],
        rows: vec![vec![InfoValue::Number(u64::from(node))]],
    };
    let link = LinkId::new(u16::from(node) - 1, 0);
    rig.feed(link, SignalNumber::InfoConfirm, BlockNumber::Info, |w| cold::write(w, &body));
}

/// The data node that has answered, or why none has; `None` as long as that is not known.
fn answered(rig: &mut Rig, token: Token) -> Option<Result<u64, ErrorCode>> {
    rig.client.take_answer(token).map(|answer| match answer {
        Ok(Answer::Info(InfoConfirm { rows, .. })) => match rows[..] {
            [ref row] => match row[..] {
                [InfoValue::Number(node)] => Ok(node),
                _ => panic!("{row:?}"),
            },
            _ => panic!("{rows:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.code()),
    })
}

#[test]
fn each_data_node_answers_for_itself() {
    let (mut rig, _) = pair();
    let tokens = [ask(&mut rig, 1), ask(&mut rig, 2)];
    let asked = asked(&mut rig);
    assert_eq!(asked.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1, 2]);
    answer(&mut rig, asked[1]);
    assert_eq!(tokens.map(|token| answered(&mut rig, token)), [None, Some(Ok(2))]);
    answer(&mut rig, asked[0]);
    assert_eq!(answered(&mut rig, tokens[0]), Some(Ok(1)));
    assert!(rig.client.is_at_rest());
}

/// Whichever of them it is, whether it leads or not: the other one's answer comes, and nobody waits for what does not.
#[test]
fn one_that_dies_while_it_is_asked_is_not_waited_for() {
    for (dead, link) in [(1, FIRST), (2, SECOND)] {
        let (mut rig, _) = pair();
        let tokens = [ask(&mut rig, dead), ask(&mut rig, 3 - dead)];
        let other = asked(&mut rig).into_iter().find(|(node, _)| *node != dead).expect("both were asked");
        rig.break_link(link);
        assert_eq!(answered(&mut rig, tokens[0]), Some(Err(ErrorCode::ConnectionLost)));
        assert!(answered(&mut rig, tokens[1]).is_none() && asked(&mut rig).is_empty());
        answer(&mut rig, other);
        assert_eq!(answered(&mut rig, tokens[1]), Some(Ok(u64::from(3 - dead))));
        // Asked again at once, it is not connected.
        let refused = rig.client.request(&Request::Info(InfoTable::Pools, NodeId(dead)));
        assert_eq!(refused.expect_err("nobody waits for it").code(), ErrorCode::ClusterFailure);
        assert!(rig.client.is_at_rest());
    }
}

/// The others have gone on without it; its connection does not know that yet.
#[test]
fn one_that_is_no_member_any_more_is_not_waited_for() {
    let (mut rig, view) = pair();
    let token = ask(&mut rig, 2);
    assert_eq!(asked(&mut rig).len(), 1);
    let next = view.without(&[NodeId(2)]);
    rig.feed(FIRST, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, &next));
    assert_eq!(answered(&mut rig, token), Some(Err(ErrorCode::ConnectionLost)));
    assert!(rig.client.is_at_rest());
}

/// It stands still: its connections are open, and nothing comes.
#[test]
fn one_that_is_silent_is_not_waited_for_longer_than_its_connection() {
    let (mut rig, _) = pair();
    let tokens = [ask(&mut rig, 1), ask(&mut rig, 2)];
    let first = asked(&mut rig)[0];
    answer(&mut rig, first);
    assert_eq!(answered(&mut rig, tokens[0]), Some(Ok(1)));
    let mut end = None;
    for _ in 0..100 {
        rig.advance(100);
        let beat = vinga_wire::membership::HeartbeatBody { epoch: 1.into(), view: 1.into() };
        rig.feed(FIRST, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
            w.put(&beat);
        });
        end = end.or(answered(&mut rig, tokens[1]));
    }
    assert_eq!(end, Some(Err(ErrorCode::ConnectionLost)));
}

/// While no data node is connected each is waited for: that they are back in a moment is all that there is to hope for.
/// The first that comes back answers; the other one is not waited for any more.
#[test]
fn all_are_waited_for_while_none_is_connected() {
    let (mut rig, view) = pair();
    let tokens = [ask(&mut rig, 1), ask(&mut rig, 2)];
    asked(&mut rig);
    rig.break_link(FIRST);
    assert_eq!(answered(&mut rig, tokens[0]), Some(Err(ErrorCode::ConnectionLost)));
    rig.break_link(SECOND);
    assert_eq!(answered(&mut rig, tokens[1]), None);
    let again = ask(&mut rig, 1);
    assert!(asked(&mut rig).is_empty());
    rig.admission += 1;
    rig.advance(100);
    for (link, _) in rig.greetings() {
        if link == SECOND {
            rig.admit(link, &view);
        }
    }
    assert_eq!(answered(&mut rig, again), Some(Err(ErrorCode::ClusterFailure)));
    let second = asked(&mut rig)[0];
    assert_eq!(second.0, 2);
    answer(&mut rig, second);
    assert_eq!(answered(&mut rig, tokens[1]), Some(Ok(2)));
    assert!(rig.client.is_at_rest());
}

#[test]
fn a_refusal_is_that_data_node_s_alone() {
    let (mut rig, _) = pair();
    let tokens = [ask(&mut rig, 1), ask(&mut rig, 2)];
    let asked = asked(&mut rig);
    let body = Refusal { request: asked[0].1, code: ErrorCode::Overloaded as u16, detail: String::new() };
    rig.feed(FIRST, SignalNumber::InfoRefuse, BlockNumber::Info, |w| cold::write(w, &body));
    answer(&mut rig, asked[1]);
    assert_eq!(
        tokens.map(|token| answered(&mut rig, token)),
        [Some(Err(ErrorCode::Overloaded)), Some(Ok(2))]
    );
}

/// A data node is asked by its own connection whether it stops, and not again if that is lost: it may have gone because
/// of it.
#[test]
fn a_data_node_is_asked_to_stop_once() {
    let (mut rig, _) = pair();
    let ask = |rig: &mut Rig| {
        let request = Request::Shutdown(NodeId(2), ShutdownTerms::IfDispensable, false);
        rig.client.request(&request).expect("it is connected")
    };
    let sent = |rig: &mut Rig| -> Vec<(u8, ShutdownRequest)> {
        let sent = rig.sent(SignalNumber::ShutdownRequest).into_iter();
        sent.map(|one| (node_at(one.link), cold::read(&one.frame()).expect("well-formed"))).collect()
    };
    let tokens = [ask(&mut rig), ask(&mut rig)];
    let asked = sent(&mut rig);
    assert!(
        asked.len() == 2
            && asked.iter().all(|(node, one)| *node == 2 && one.terms == ShutdownTerms::IfDispensable)
    );
    let body = ShutdownConfirm { request: asked[0].1.request, has_left: false };
    rig.feed(SECOND, SignalNumber::ShutdownConfirm, BlockNumber::Info, |w| cold::write(w, &body));
    assert!(matches!(rig.client.take_answer(tokens[0]), Some(Ok(Answer::Stops { has_left: false }))));
    rig.break_link(SECOND);
    match rig.client.take_answer(tokens[1]) {
        Some(Err(error)) => assert_eq!(error.code(), ErrorCode::ConnectionLost),
        other => panic!("{other:?}"),
    }
    assert!(sent(&mut rig).is_empty() && rig.client.is_at_rest());
}
