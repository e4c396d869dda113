//! What a client does when connections and data nodes are lost, with frames written by hand: a scripted node does not
//! send what these scenarios need, answers in another order than the questions, or views of other data nodes.

use crate::lost_data_nodes::read;
use crate::rig::{Rig, Sent, first_view, first_view_with, node_at, table, view_of_start};
use vinga_base::NodeId;
use vinga_base::time::{Span, Tick};
use vinga_client_core::{Command, LinkId, Readiness, Request, ScanProgress, ScanSpec, Standing};
use vinga_wire::handshake::HelloRequest;
use vinga_wire::membership::HeartbeatBody;
use vinga_wire::scan::{SCAN_END, ScanAnswer, ScanOpenHead};
use vinga_wire::schema::SchemaChange;
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{BlockNumber, ErrorCode, SignalNumber, U16, U32, U64, cold};

/// A client that has no ticket greets one data node at a time. Those that don't answer keep it from none of the others.
#[test]
fn each_data_node_is_greeted_in_turn() {
    let mut rig = Rig::new(3);
    let mut greeted = Vec::new();
    for _ in 0..60 {
        rig.advance(1000);
        greeted.extend(rig.greetings().into_iter().map(|(link, _)| node_at(link)));
    }
    let in_turn: Vec<u8> = (1..=3).cycle().take(greeted.len()).collect();
    assert!(greeted.len() >= 6, "each greeting is given up after a while: {greeted:?}");
    assert_eq!(greeted, in_turn);
}

/// What the client wants opened: numbers of addresses. `Close` has no part in it.
fn wanted(rig: &mut Rig) -> Vec<u16> {
    let commands = std::iter::from_fn(|| rig.client.next_command());
    let opened = commands.filter_map(|command| match command {
        Command::Open(link) => Some(link.endpoint()),
        Command::Close(_) => None,
    });
    opened.collect()
}

/// The frames that a client greets with, and whether it has a ticket.
fn greeted(rig: &mut Rig) -> Vec<(LinkId, bool)> {
    let greetings = rig.sent(SignalNumber::HelloRequest).into_iter();
    let hello = |sent: &Sent| cold::read::<HelloRequest>(&sent.frame()).unwrap();
    greetings.map(|sent| (sent.link, hello(&sent).ticket != 0)).collect()
}

/// What one data node has answered says more than that another can't be reached.
#[test]
fn a_refusal_is_named_rather_than_that_others_are_not_reached() {
    let mut rig = Rig::new(2);
    rig.advance(1);
    assert_eq!(wanted(&mut rig), [0]);
    rig.client.on_broken(LinkId::new(0, 0), "nobody listens");
    rig.advance(250);
    assert_eq!(wanted(&mut rig), [1]);
    rig.client.on_refused(LinkId::new(1, 0), ErrorCode::WrongKey, "its proof is wrong");
    let Readiness::Failed(error) = rig.client.readiness() else { panic!("none is connected") };
    assert_eq!(error.code(), ErrorCode::WrongKey);
    assert!(error.message().contains("its proof is wrong"), "{error}");
}

/// The machine of the first address is gone, and the others have gone on without it: nobody waits for it.
#[test]
fn an_address_that_does_not_answer_holds_up_nobody() {
    let second = LinkId::new(1, 0);
    let view = first_view(&[0, 0]).without(&[NodeId(1)]);
    let mut rig = Rig::new(2);
    rig.advance(1);
    assert_eq!(wanted(&mut rig), [0]);
    rig.advance(249);
    assert_eq!(wanted(&mut rig), [], "it may answer still");
    rig.advance(10);
    assert_eq!(wanted(&mut rig), [1]);
    rig.client.on_opened(second);
    assert_eq!(greeted(&mut rig), [(second, false)]);
    rig.admit(second, &view);
    assert_eq!(rig.client.readiness(), Readiness::Ready);
    // It is connected all the same when it answers.
    rig.client.on_opened(LinkId::new(0, 0));
    assert_eq!(greeted(&mut rig), [(LinkId::new(0, 0), true)]);
}

/// The same, if the data node that answers is not one of the addresses that were given.
#[test]
fn members_are_looked_for_beside_an_address_that_does_not_answer() {
    let hosts = |member: &Member| Member { address: format!("at{}", member.node), ..member.clone() };
    let view = first_view(&[0, 0, 0]).without(&[NodeId(1)]);
    let view = ClusterView::first(view.members().iter().map(hosts).collect());
    let mut rig = Rig::new(2);
    rig.advance(1);
    wanted(&mut rig);
    rig.advance(260);
    assert_eq!(wanted(&mut rig), [1]);
    rig.client.on_opened(LinkId::new(1, 0));
    rig.admit(LinkId::new(1, 0), &view);
    assert_eq!(rig.client.readiness(), Readiness::Connecting, "data node 3 may be reached");
    rig.advance(20);
    assert_eq!(wanted(&mut rig), [2]);
    assert_eq!(rig.client.address(2), "at3");
    rig.client.on_opened(LinkId::new(2, 0));
    rig.admit(LinkId::new(2, 0), &view);
    assert_eq!(rig.client.readiness(), Readiness::Ready);
}

/// Two connections open one after the other: still only one data node is asked for a session.
#[test]
fn one_session_is_asked_for_though_two_addresses_are_tried() {
    let (first, second) = (LinkId::new(0, 0), LinkId::new(1, 0));
    let view = first_view(&[0, 0]);
    let mut rig = Rig::new(2);
    rig.advance(1);
    rig.advance(260);
    assert_eq!(wanted(&mut rig), [0, 1]);
    rig.client.on_opened(second);
    rig.client.on_opened(first);
    assert_eq!(greeted(&mut rig), [(second, false)]);
    assert!(matches!(rig.client.next_command(), Some(Command::Close(link)) if link == first));
    rig.advance(100);
    assert_eq!(wanted(&mut rig), [], "it waits for the other one");
    rig.admit(second, &view);
    assert_eq!(rig.client.readiness(), Readiness::Connecting);
    rig.advance(20);
    assert_eq!(wanted(&mut rig), [0]);
    rig.client.on_opened(first);
    assert_eq!(greeted(&mut rig), [(first, true)]);
    rig.admit(first, &view);
    assert_eq!(rig.client.readiness(), Readiness::Ready);
}

/// The answers to two commits are lost with a connection. The second was committed first, so the answer to the first
/// question has the greater number: when it comes alone, the other outcome is not known yet.
#[test]
fn outcomes_are_seen_when_all_questions_are_answered() {
    let link = LinkId::new(0, 0);
    let (view, table) = (first_view(&[0]), table(2));
    let mut rig = Rig::connected(1, &view);
    let (first, second) = (rig.commit_insert(&table, 1), rig.commit_insert(&table, 2));
    let ids: Vec<u64> = rig.transactions_sent().into_iter().map(|(id, _)| id).collect();
    rig.break_link(link);
    rig.advance(50);
    rig.admit_all(&view);
    let questions = rig.questions();
    assert_eq!(questions.iter().map(|&(id, _)| id).collect::<Vec<_>>(), ids);
    rig.answer(link, questions[0], Some(2));
    assert_eq!(rig.client.rollback_cause(first), None, "it was not rolled back");
    assert!(matches!(rig.standing(first), Ok(Standing::Committed(_))));
    let _third = rig.commit_insert(&table, 3);
    let seen: Vec<u32> = rig.transactions_sent().into_iter().map(|(_, seen)| seen).collect();
    assert_eq!(seen, [0], "the coordinator would forget number 1, of which the client knows nothing");
    // Nor is it said when the client is idle.
    for _ in 0..30 {
        rig.advance(20);
        let orders = rig.sent(SignalNumber::OutcomesSeenOrder);
        assert!(orders.is_empty());
    }
    // The other answer is lost, too, and asked for once more.
    rig.break_link(link);
    rig.advance(100);
    rig.admit_all(&view);
    let questions = rig.questions();
    assert_eq!(questions.len(), 2, "the third one is asked for as well");
    let of_second = questions.iter().find(|(id, _)| *id == ids[1]).unwrap();
    rig.answer(link, *of_second, Some(1));
    assert!(matches!(rig.standing(second), Ok(Standing::Committed(_))));
    rig.commit_insert(&table, 4);
    assert_eq!(rig.transactions_sent()[0].1, 0, "what became of the third is not known");
    let of_third = questions.iter().find(|(id, _)| *id != ids[1]).unwrap();
    rig.answer(link, *of_third, Some(3));
    rig.commit_insert(&table, 5);
    assert_eq!(rig.transactions_sent()[0].1, 3);
}

/// Nobody waits for the answer to a question any more: the outcome is not known all the same.
#[test]
fn questions_of_nobody_are_open_until_they_are_answered() {
    let link = LinkId::new(0, 0);
    let (view, table) = (first_view(&[0]), table(2));
    let mut rig = Rig::connected(1, &view);
    let (first, second) = (rig.commit_insert(&table, 1), rig.commit_insert(&table, 2));
    rig.break_link(link);
    rig.client.cancel(first);
    rig.advance(50);
    rig.admit_all(&view);
    let questions = rig.questions();
    rig.answer(link, questions[0], Some(2));
    rig.commit_insert(&table, 3);
    assert_eq!(rig.transactions_sent()[0].1, 0);
    rig.answer(link, questions[1], Some(1));
    let _ = rig.client.take_operations(second);
    rig.commit_insert(&table, 4);
    assert_eq!(rig.transactions_sent()[0].1, 2);
}

/// What the client has closed: numbers of addresses.
fn closed(rig: &mut Rig) -> Vec<u16> {
    let commands = std::iter::from_fn(|| rig.client.next_command());
    let closed = commands.filter_map(|command| match command {
        Command::Close(link) => Some(link.endpoint()),
        Command::Open(_) => None,
    });
    closed.collect()
}

/// Two addresses lead to the first data node; the second one is greeted when nobody answers at the first. That the
/// other data node answers meanwhile does not end that greeting: no view says which data node will answer.
#[test]
fn a_greeting_by_a_second_address_is_not_ended_by_a_view() {
    let view = first_view(&[0, 0]);
    let (first, other, second) = (LinkId::new(0, 0), LinkId::new(1, 0), LinkId::new(2, 0));
    let mut rig = Rig::new(3);
    for _ in 0..3 {
        rig.advance(11);
        for (link, _) in rig.greetings() {
            match link == second {
                true => rig.refuse(second, ErrorCode::SameDataNode, 1),
                false => rig.admit(link, &view),
            }
        }
    }
    let connected: Vec<bool> = rig.client.endpoints().iter().map(|one| one.is_connected).collect();
    assert_eq!(connected, [true, true, false]);
    rig.break_link(first);
    rig.break_link(other);
    let mut greeted = Vec::new();
    for _ in 0..200 {
        rig.advance(10);
        while let Some(command) = rig.client.next_command() {
            match command {
                Command::Open(link) if link == first => rig.client.on_broken(link, "nobody listens"),
                Command::Open(link) => rig.client.on_opened(link),
                Command::Close(_) => {}
            }
        }
        greeted.extend(rig.sent(SignalNumber::HelloRequest).into_iter().map(|sent| sent.link));
        if greeted.contains(&second) && greeted.contains(&other) {
            break;
        }
    }
    assert!(greeted.contains(&second), "{greeted:?}");
    rig.admit(other, &view);
    assert_eq!(closed(&mut rig), []);
}

/// A data node that was lost is there again, and is greeted: it may answer when it is a member, or refuse the client.
/// The others send the view without it meanwhile, as they do to each client whose heartbeat names an older one.
#[test]
fn a_greeting_of_a_data_node_that_comes_back_is_not_ended_by_a_view() {
    let (first, view) = (LinkId::new(0, 0), first_view(&[0, 0]));
    let mut rig = Rig::connected(2, &view);
    rig.break_link(first);
    let view_comes = |rig: &mut Rig| {
        let next = view.without(&[NodeId(1)]);
        rig.feed(LinkId::new(1, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
            cold::write(w, &next);
        });
    };
    view_comes(&mut rig);
    rig.advance(50);
    assert_eq!(rig.greetings().iter().map(|(link, _)| *link).collect::<Vec<_>>(), [first]);
    view_comes(&mut rig);
    assert_eq!(closed(&mut rig), []);
}

/// The data nodes that a greeting names as those whose connections were lost, each with its incarnation.
fn lost_in(hello: &HelloRequest) -> Vec<(u8, u32)> {
    hello.lost.iter().map(|start| (start.node, start.incarnation)).collect()
}

/// A greeting says which data nodes may not know that the session's connections to them are lost. It means the starts
/// to which it was connected: a data node that is greeted at the same time, and admits it, is another start.
#[test]
fn a_greeting_names_the_data_nodes_whose_connections_were_lost() {
    let view = first_view(&[0, 0]);
    let mut rig = Rig::connected(2, &view);
    let (first, second) = (LinkId::new(0, 0), LinkId::new(1, 0));
    let lost_of = |rig: &mut Rig| -> Vec<(LinkId, Vec<(u8, u32)>)> {
        rig.greetings().into_iter().map(|(link, hello)| (link, lost_in(&hello))).collect()
    };
    rig.break_link(second);
    rig.advance(50);
    assert_eq!(lost_of(&mut rig), [(second, vec![(2, 1)])]);
    // The attempt fails; meanwhile the other one is lost, too.
    rig.break_link(second);
    rig.break_link(first);
    rig.advance(50);
    assert_eq!(lost_of(&mut rig), [(first, vec![(1, 1), (2, 1)]), (second, vec![(1, 1), (2, 1)])]);
    // The next admission means that everything before is over.
    rig.admission = 2;
    rig.admit(first, &view);
    rig.break_link(second);
    rig.advance(100);
    assert_eq!(lost_of(&mut rig), [(second, vec![])]);
    rig.admit(second, &view);
    rig.break_link(first);
    rig.advance(100);
    assert_eq!(lost_of(&mut rig), [(first, vec![(1, 1)])]);
}

/// Two data nodes have started again, and each is greeted before the other one has answered: what is lost are
/// connections to the starts before, not those that the other one may have admitted by now.
#[test]
fn greetings_of_two_data_nodes_that_have_started_again_name_the_starts_before() {
    let mut rig = Rig::new(3);
    rig.start = 7;
    let view = view_of_start(7, 1, &[0, 0, 0]);
    for _ in 0..3 {
        rig.advance(11);
        rig.admit_all(&view);
    }
    for endpoint in [1, 2] {
        rig.break_link(LinkId::new(endpoint, 0));
    }
    let next = view.without(&[NodeId(2), NodeId(3)]);
    rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &next);
    });
    rig.advance(50);
    let greetings = rig.greetings();
    assert_eq!(greetings.iter().map(|(link, _)| node_at(*link)).collect::<Vec<_>>(), [2, 3]);
    for (_, hello) in &greetings {
        assert_eq!(lost_in(hello), [(2, 7), (3, 7)]);
    }
}

/// On the same machine the address that was given is a socket, and that of the view is not: a data node that comes back
/// may be reached by the other one first. Its connections are no lost ones then.
#[test]
fn a_greeting_names_no_data_node_that_is_connected_by_another_address() {
    let view = first_view(&[0, 0]);
    let mut rig = Rig::new(3);
    let [first, second, other] = [0, 1, 2].map(|endpoint| LinkId::new(endpoint, 0));
    for _ in 0..3 {
        rig.advance(11);
        for (link, _) in rig.greetings() {
            if link == other {
                rig.break_link(link);
            } else {
                rig.admit(link, &view);
            }
        }
    }
    let lost_of = |rig: &mut Rig, link: LinkId| -> Option<Vec<(u8, u32)>> {
        let greetings = rig.greetings();
        greetings.into_iter().find(|(greeted, _)| *greeted == link).map(|(_, hello)| lost_in(&hello))
    };
    rig.break_link(second);
    let mut named = None;
    for _ in 0..100 {
        rig.advance(50);
        named = lost_of(&mut rig, other);
        if named.is_some() {
            break;
        }
        rig.break_link(second);
    }
    assert_eq!(named, Some(vec![(2, 1)]));
    rig.break_link(second);
    rig.admit_as(other, 2, &view);
    rig.break_link(first);
    rig.advance(50);
    assert_eq!(lost_of(&mut rig, first), Some(vec![(1, 1)]));
}

/// A data node that comes back is reached by the socket that was given, and by the address of the view. Of two
/// greetings at the same time neither would name the other: the data node admits both, and when the client closes the
/// one that it needs not, all connections of the session are closed.
#[test]
fn a_data_node_that_comes_back_is_greeted_at_one_address() {
    let hosts = |member: &Member| Member { address: format!("at{}", member.node), ..member.clone() };
    let view = first_view(&[0, 0]);
    let view = ClusterView::first(view.members().iter().map(hosts).collect());
    let (socket, by_view) = (LinkId::new(1, 0), LinkId::new(2, 0));
    let mut rig = Rig::connected(2, &view);
    rig.break_link(socket);
    while rig.client.endpoints().len() < 3 {
        rig.advance(10);
        for endpoint in wanted(&mut rig) {
            rig.client.on_broken(LinkId::new(endpoint, 0), "nobody listens");
        }
    }
    let mut tried = Vec::new();
    while tried.len() < 2 {
        rig.advance(10);
        tried.extend(wanted(&mut rig));
        assert!(
            rig.now < Tick(0) + Span::from_millis(5000),
            "both are tried, the second if the first is slow"
        );
    }
    tried.sort();
    assert_eq!(tried, [1, 2]);
    rig.client.on_opened(by_view);
    rig.client.on_opened(socket);
    assert_eq!(greeted(&mut rig), [(by_view, true)]);
    assert_eq!(closed(&mut rig), [1]);
    rig.admit_as(by_view, 2, &view);
    let connected: Vec<bool> = rig.client.endpoints().iter().map(|one| one.is_connected).collect();
    assert_eq!(connected, [true, false, true]);
    // The socket is of no use now.
    rig.advance(20);
    assert_eq!((wanted(&mut rig), closed(&mut rig)), (vec![], vec![]));
}

/// The cluster may have begun a session for a greeting whose answer was lost: a session that is asked for later must
/// not count as the older one. A refusal leaves nothing behind.
#[test]
fn who_asks_for_a_session_once_more_asks_for_a_newer_one() {
    let view = first_view(&[0]);
    let link = LinkId::new(0, 0);
    let mut rig = Rig::new(1);
    let requested = |rig: &mut Rig| {
        rig.advance(2000);
        let greetings = rig.greetings();
        assert_eq!((greetings.len(), greetings[0].1.ticket), (1, 0));
        greetings[0].1.incarnation
    };
    assert_eq!(requested(&mut rig), 1);
    rig.break_link(link);
    assert_eq!(requested(&mut rig), 2);
    rig.refuse(link, ErrorCode::NodeIdInUse, 0);
    assert_eq!(requested(&mut rig), 2);
    // It is admitted as incarnation 1, and later declared failed.
    rig.admit(link, &view);
    rig.break_link(link);
    rig.advance(2000);
    assert_eq!(rig.greetings()[0].1.incarnation, 1);
    rig.refuse(link, ErrorCode::UnknownOutcome, 0);
    assert_eq!(requested(&mut rig), 3);
}

/// A cluster that has restarted begins where its disks say. What the client has seen before may be far beyond, and
/// then no coordinator would believe it.
#[test]
fn an_epoch_that_was_seen_counts_in_its_incarnation_of_the_cluster() {
    let (view, table, link) = (first_view(&[0]), table(2), LinkId::new(0, 0));
    for (cluster, seen) in [(7, 1000), (8, 0)] {
        let mut rig = Rig::connected(1, &view);
        rig.feed(link, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
            w.put(&HeartbeatBody { epoch: U64::new(1000), view: U32::new(1) });
        });
        rig.commit_insert(&table, 1);
        assert_eq!(rig.epochs_sent(), [1000]);
        rig.break_link(link);
        rig.cluster = cluster;
        rig.advance(2000);
        rig.admit_all(&view);
        rig.commit_insert(&table, 2);
        assert_eq!(rig.epochs_sent(), [seen], "incarnation {cluster}");
    }
}

/// The views that heartbeats of the next second name, as their headers do.
fn views_named(rig: &mut Rig) -> Vec<u32> {
    rig.advance(1000);
    let read = |sent: Sent| {
        let frame = sent.frame();
        let view = frame.head::<HeartbeatBody>().unwrap().0.view.get();
        assert_eq!(u32::from(frame.header.view), view);
        view
    };
    rig.sent(SignalNumber::HeartbeatRequest).into_iter().map(read).collect()
}

/// A view that was sent when a connection was on the way to its thread is lost. It is sent again to clients whose
/// heartbeats name an older one; that others speak of the newer view must not hide it.
#[test]
fn a_heartbeat_names_the_view_that_the_client_has() {
    let (first, link) = (first_view(&[0, 0]), LinkId::new(0, 0));
    let mut rig = Rig::connected(2, &first);
    let second = first.without(&[NodeId(2)]);
    assert_eq!(second.number().0, 2);
    rig.feed_in_view(2, link, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
        w.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(2) });
    });
    assert_eq!(views_named(&mut rig), [1, 1]);
    rig.feed(link, SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| cold::write(w, &second));
    assert_eq!(views_named(&mut rig), [2]);
}

/// A data node is lost while a client greets another one: the answer to its first greeting has the view before, that to
/// its second the view after.
#[test]
fn further_greetings_bring_their_view() {
    let first = first_view_with(2, &[0, 0]);
    let second = first.without(&[NodeId(2)]);
    let mut rig = Rig::new(1);
    rig.advance(11);
    rig.admit_all(&first);
    let further = rig.greetings();
    assert_eq!(further.iter().map(|(link, _)| *link).collect::<Vec<_>>(), [LinkId::new(0, 1)]);
    rig.admit(LinkId::new(0, 1), &second);
    assert_eq!(views_named(&mut rig), [2]);
    for key in 1..=8 {
        rig.commit_insert(&table(2), key);
    }
    assert_eq!(rig.transactions_sent().len(), 8, "the owner of every partition is connected");
}

/// A client leaves while it is greeting a data node, having lost all its connections. The data node gets nothing but
/// the disconnect notice when it has answered: nobody would know what has become of the rest. What waits ends.
#[test]
fn a_client_that_leaves_begins_nothing() {
    let (view, table, link) = (first_view_with(2, &[0]), table(2), LinkId::new(0, 0));
    let mut rig = Rig::new(1);
    rig.advance(11);
    (0..2).for_each(|_| rig.admit_all(&view));
    assert_eq!(rig.client.readiness(), Readiness::Ready);
    rig.break_link(link);
    rig.client.watch_schema().unwrap();
    let commit = rig.commit_insert(&table, 1);
    let key = read(&mut rig, &table, 1);
    let scan = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
    let drop = rig.client.request(&Request::DropTable("test.t".into())).unwrap();
    let lift = rig.client.request(&Request::ChangeSchema(SchemaChange::LiftFence { table: 1 })).unwrap();
    rig.advance(50);
    assert_eq!(rig.greetings().len(), 1);
    assert!(rig.client.take_operations(commit).is_none(), "it waits");
    rig.client.leave();
    let late = rig.commit_insert(&table, 2);
    let mut codes = [commit, late].map(|token| rig.standing(token).unwrap_err().code()).to_vec();
    codes.push(rig.client.take_read(key).expect("it is over").row(0).unwrap_err().code());
    codes.extend([drop, lift].map(|token| rig.client.take_answer(token).unwrap().unwrap_err().code()));
    match rig.client.next_rows(scan) {
        ScanProgress::Ended(Err(error)) => codes.push(error.code()),
        other => panic!("{other:?}"),
    }
    assert_eq!(codes, [ErrorCode::ClusterFailure; 6]);
    let signals = |rig: &mut Rig| -> Vec<SignalNumber> {
        rig.all_sent().iter().map(|sent| sent.frame().signal().unwrap()).collect()
    };
    rig.admit(link, &view);
    rig.open_links();
    assert_eq!(signals(&mut rig), [SignalNumber::HelloRequest]);
    rig.advance(100);
    rig.admit(LinkId::new(0, 1), &view);
    assert_eq!(signals(&mut rig), [SignalNumber::DisconnectOrder; 2]);
    assert!(rig.client.has_left());
    for _ in 0..50 {
        rig.advance(100);
        assert_eq!(signals(&mut rig), []);
    }
}

/// A view that comes late, with the answer to a greeting or by an order, changes nothing.
#[test]
fn an_older_view_is_not_taken_over() {
    let first = first_view_with(2, &[0, 0]);
    let second = first.without(&[NodeId(2)]);
    let mut rig = Rig::new(1);
    rig.advance(11);
    rig.admit_all(&second);
    rig.open_links();
    rig.admit(LinkId::new(0, 1), &first);
    assert_eq!(rig.client.view().number(), second.number());
    rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &first);
    });
    assert_eq!(rig.client.view().number(), second.number());
    assert_eq!(views_named(&mut rig), [2]);
}

/// The partitions of scans that were opened, and where.
pub fn opened(rig: &mut Rig) -> Vec<(LinkId, u32, u16)> {
    let read = |sent: Sent| {
        let frame = sent.frame();
        let (head, _) = frame.head::<ScanOpenHead>().unwrap();
        (sent.link, head.scan.get(), head.partition.get())
    };
    rig.sent(SignalNumber::ScanOpenRequest).into_iter().map(read).collect()
}

/// A data node that is not there any more accepts no connections; the others go on.
fn minutes_pass(rig: &mut Rig, lost: &[u16], alive: &[u16]) {
    for _ in 0..300 {
        rig.advance(1000);
        for &endpoint in alive {
            let link = LinkId::new(endpoint, 0);
            rig.feed(link, SignalNumber::HeartbeatConfirm, BlockNumber::Membership, |w| {
                w.put(&HeartbeatBody { epoch: U64::new(1), view: U32::new(1) });
            });
        }
        rig.greetings();
        lost.iter().for_each(|&endpoint| rig.break_link(LinkId::new(endpoint, 0)));
    }
}

/// A data manager has no more rows.
pub fn end_part(rig: &mut Rig, (link, name, _): (LinkId, u32, u16)) {
    rig.feed(link, SignalNumber::ScanConfirm, BlockNumber::DataManager, |w| {
        w.put(&ScanAnswer {
            epoch: U64::new(1),
            scan: U32::new(name),
            next_row: U32::ZERO,
            count: U16::ZERO,
            flags: SCAN_END.into(),
        });
    });
}

/// A data node dies without a word. The client learns the next view, in which another one owns its partitions, before
/// its connection breaks: with the greeting of a third, or by an order. A scan goes on there.
#[test]
fn a_scan_goes_on_when_its_connection_is_lost() {
    for by_order in [false, true] {
        let (first, table) = (first_view(&[0, 0, 0]), table(2));
        let mut rig = Rig::connected(3, &first);
        let scan = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
        let parts = opened(&mut rig);
        assert!(parts.iter().any(|(link, ..)| link.endpoint() == 1));
        parts.into_iter().filter(|(link, ..)| link.endpoint() == 0).for_each(|part| end_part(&mut rig, part));
        let second = first.without(&[NodeId(2)]);
        if by_order {
            rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
                cold::write(w, &second);
            });
        } else {
            rig.break_link(LinkId::new(2, 0));
            rig.advance(50);
            rig.admit_all(&second);
        }
        let connected: Vec<bool> = rig.client.endpoints().iter().map(|e| e.is_connected).collect();
        assert_eq!(connected, [true, false, true], "nothing is expected of who is no member");
        let parts = opened(&mut rig);
        assert!(!parts.is_empty() && parts.iter().all(|(link, ..)| link.endpoint() != 1));
        assert!(matches!(rig.client.next_rows(scan), ScanProgress::Waiting));
        parts.into_iter().for_each(|part| end_part(&mut rig, part));
        assert!(matches!(rig.client.next_rows(scan), ScanProgress::Ended(Ok(()))));
    }
}

/// Nobody goes on with the rows of the one that is lost: the scan does not wait for ever.
#[test]
fn a_scan_ends_if_there_is_no_way_to_go_on() {
    let (first, table) = (first_view(&[0, 0]), table(2));
    let mut rig = Rig::connected(2, &first);
    let scan = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
    minutes_pass(&mut rig, &[1], &[0]);
    match rig.client.next_rows(scan) {
        ScanProgress::Ended(Err(error)) => assert_eq!(error.code(), ErrorCode::ConnectionLost),
        other => panic!("{other:?}"),
    }
    let late = rig.client.scan(&table, ScanSpec::default(), None).unwrap();
    assert!(matches!(rig.client.next_rows(late), ScanProgress::Ended(Err(_))), "nothing is hoped for now");
}

/// One view loses two data nodes. When the client closes its connections to the first of them, the ways are found anew,
/// also to what the second owned.
#[test]
fn a_scan_goes_on_when_a_view_loses_two_data_nodes() {
    let (first, table) = (first_view(&[0, 0, 1, 1]), table(4));
    let mut rig = Rig::connected(4, &first);
    let scan = rig.client.scan(&table, ScanSpec { parallel: 16, ..ScanSpec::default() }, None).unwrap();
    // Only what node 4 owns is left to be scanned.
    let parts = opened(&mut rig);
    parts.into_iter().filter(|(link, ..)| link.endpoint() != 3).for_each(|part| end_part(&mut rig, part));
    let second = first.without(&[NodeId(2), NodeId(4)]);
    rig.feed(LinkId::new(0, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &second);
    });
    let parts = opened(&mut rig);
    assert!(!parts.is_empty() && parts.iter().all(|(link, ..)| link.endpoint() == 2));
    parts.into_iter().for_each(|part| end_part(&mut rig, part));
    assert!(matches!(rig.client.next_rows(scan), ScanProgress::Ended(Ok(()))));
}

/// The node that has sent schema events fails. The client learns that another one leads before its connection breaks,
/// or after.
#[test]
fn schema_events_come_from_the_next_president() {
    for breaks_first in [false, true] {
        let first = first_view(&[0, 0]);
        let mut rig = Rig::connected(2, &first);
        rig.client.watch_schema().unwrap();
        let asked = |rig: &mut Rig| -> Vec<u8> {
            rig.sent(SignalNumber::SchemaEventsRequest).iter().map(|sent| node_at(sent.link)).collect()
        };
        assert_eq!(asked(&mut rig), [1]);
        if breaks_first {
            rig.break_link(LinkId::new(0, 0));
            assert!(asked(&mut rig).is_empty(), "nobody knows yet who leads");
        }
        rig.feed(LinkId::new(1, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
            cold::write(w, &first.without(&[NodeId(1)]));
        });
        assert_eq!(asked(&mut rig), [2]);
    }
}

/// The dictionary of the next president does not know yet that its node leads the cluster, as the client does: it
/// refuses. It is asked again, for events and for a change.
#[test]
fn a_president_that_does_not_know_it_yet_is_asked_again() {
    let first = first_view(&[0, 0]);
    let mut rig = Rig::connected(2, &first);
    rig.client.watch_schema().unwrap();
    rig.feed(LinkId::new(1, 0), SignalNumber::ViewChangedOrder, BlockNumber::Membership, |w| {
        cold::write(w, &first.without(&[NodeId(1)]));
    });
    let change = rig.client.request(&Request::DropTable("test.t".into())).unwrap();
    let signals = [
        (SignalNumber::SchemaEventsRequest, SignalNumber::SchemaEventsRefuse),
        (SignalNumber::DropTableRequest, SignalNumber::DropTableRefuse),
    ];
    for _ in 0..3 {
        let mut requests = rig.all_sent();
        requests.retain(|sent| node_at(sent.link) == 2);
        for (signal, refusal) in signals {
            let is_it = |sent: &&Sent| sent.frame().signal() == Some(signal);
            let asked: Vec<&Sent> = requests.iter().filter(is_it).collect();
            assert_eq!(asked.len(), 1, "{signal:?}");
            let request = cold::read::<u32>(&asked[0].frame()).unwrap();
            rig.refuse_with(LinkId::new(1, 0), refusal, ErrorCode::LedByAnother, request);
        }
        assert!(rig.client.take_answer(change).is_none());
        rig.advance(60);
    }
}
