//! Data nodes that join a cluster that runs.

use crate::raw_links::{
    answer_to_greeting, confirm, confirm_next, greet, hello, hello_frame_of, order_view, report_connected,
};
use crate::support::{self, HANG_GUARD};
use crate::talker::{
    Records, addresses, again, all_talk, begin, settings, start, start_all, start_with, wait_until,
};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId};
use vinga_wire::formation::{BegunCluster, NodeHello, NodesConnectedReport, ProcessIdentity};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// Any number of times, whichever it is; with other numbers of threads, so of links.
#[test]
fn a_node_that_comes_back_joins() {
    let addresses = addresses(3);
    let threads = [2, 3, 2];
    let own = |node: u8| settings(node, threads[usize::from(node) - 1], &addresses);
    let started = start_all((1..=3).map(own).collect());
    let mut nodes: BTreeMap<u8, _> = (1..).zip(started).collect();
    for (late, number) in [(3, 100), (3, 101), (1, 102), (2, 103), (1, 104)] {
        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        let late_settings = again(own(late), number);
        let (process, records) = start(late_settings).expect("it joins");
        let opened = |records: &Records, node: u8, start: u32| {
            records.opened.lock().unwrap().contains(&(node, start))
                && records.joining.lock().unwrap().contains(&(node, start))
        };
        for (_, other) in nodes.values() {
            wait_until("it is reported with its start", || opened(other, late, number));
        }
        let linked: Vec<u8> = records.opened.lock().unwrap().iter().map(|&(node, _)| node).collect();
        assert_eq!(linked.len(), 2, "each once: {linked:?}");
        nodes.insert(late, (process, records));
        all_talk(&nodes, &threads);
    }
    nodes.into_values().for_each(|(node, _)| node.stop());
}

#[test]
fn two_nodes_that_come_back_at_once_join() {
    let addresses = addresses(3);
    let threads = [2, 1, 2];
    let own = |node: u8| settings(node, threads[usize::from(node) - 1], &addresses);
    let started = start_all((1..=3).map(own).collect());
    let mut nodes: BTreeMap<u8, _> = (1..).zip(started).collect();
    for stay in [2u8, 1] {
        let late: Vec<u8> = (1..=3).filter(|&node| node != stay).collect();
        for node in &late {
            nodes.remove(node).unwrap().0.stop();
        }
        let starts = start_all(late.iter().map(|&node| again(own(node), 100 + u32::from(stay))).collect());
        nodes.extend(late.into_iter().zip(starts));
        all_talk(&nodes, &threads);
    }
    nodes.into_values().for_each(|(node, _)| node.stop());
}

#[test]
fn api_nodes_are_refused_as_long_as_a_node_joins() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (mut link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    drop(link);
    wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
    first.stop();
    // A member that makes no view with the one that joins.
    let listener = TcpListener::bind(addresses[0]).unwrap();
    let records = Arc::new(Records::default());
    let joining = {
        let records = records.clone();
        thread::spawn(move || start_with(again(second, 100), &records))
    };
    let link = confirm_next(&listener, &settings(1, 1, &addresses), &[1]);
    wait_until("its threads run", || records.opened.lock().unwrap().contains(&(1, 1)));
    let why = support::connect_with(addresses[1], &vinga_rig::raw::hello());
    assert_eq!(why.err().and_then(|why| why.code()), Some(ErrorCode::NodeStarting));
    assert!(!joining.is_finished());
    drop(link);
    let why = joining.join().unwrap().err().expect("it can't join");
    assert!(why.contains("the links to data node 1 were closed: 20030 (Temporary)"), "{why}");
}

/// Else it could not join after another one that it has missed, or has lost the link to.
#[test]
fn a_node_that_waits_looks_for_those_that_it_has_no_links_to() {
    let addresses = addresses(3);
    let own = |node: u8| settings(node, 1, &addresses);
    let member = TcpListener::bind(addresses[0]).unwrap();
    let records = Arc::new(Records::default());
    let joining = {
        let (third, records) = (own(3), records.clone());
        thread::spawn(move || start_with(third, &records))
    };
    let link = confirm_next(&member, &own(1), &[1]);
    let times = |node: u8| {
        let opened = records.opened.lock().unwrap();
        opened.iter().filter(|&&(other, _)| other == node).count()
    };
    wait_until("its threads run", || times(1) == 1);
    // The second one joins, too.
    let waiting = TcpListener::bind(addresses[1]).unwrap();
    for time in 1..4 {
        let to_second = confirm_next(&waiting, &own(2), &[]);
        wait_until("it is linked", || times(2) == time);
        drop(to_second);
    }
    assert_eq!((times(1), joining.is_finished()), (1, false));
    drop(link);
    let why = joining.join().unwrap().err().expect("it can't join");
    assert!(why.contains("the links to data node 1 were closed: 20030 (Temporary)"), "{why}");
}

/// A node looks for another one that is to join, too, and is a member before that one has answered. The other one takes
/// these links for the links between the two; so does the member, which accepts no others meanwhile.
#[test]
fn links_that_a_node_begins_to_open_while_it_waits_count_when_it_is_a_member() {
    while !joins_while_it_searches(false) {}
}

/// The same with a search that begins before it has found the cluster that runs.
#[test]
fn links_that_a_node_begins_to_open_before_its_threads_run_count_as_well() {
    while !joins_while_it_searches(true) {}
}

/// False if its search has taken longer than it waits for an answer.
fn joins_while_it_searches(is_forming: bool) -> bool {
    let addresses = addresses(3);
    let own = |node: u8| settings(node, 1, &addresses);
    let records = Arc::new(Records::default());
    let joining = {
        let (third, records) = (own(3), records.clone());
        thread::spawn(move || start_with(third, &records))
    };
    let searched = || {
        let newcomer = TcpListener::bind(addresses[0]).unwrap();
        if is_forming {
            // It must have been looked for once.
            drop(newcomer.accept().unwrap());
        }
        let (mut searched, _) = newcomer.accept().unwrap();
        let begun = Instant::now();
        searched.set_read_timeout(Some(HANG_GUARD)).unwrap();
        assert!(searched.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
        (searched, begun)
    };
    let member = || {
        let member = TcpListener::bind(addresses[1]).unwrap();
        let link = confirm_next(&member, &own(2), &[2]);
        wait_until("its threads run", || !records.opened.lock().unwrap().is_empty());
        link
    };
    let (mut link, (mut searched, begun)) = if is_forming {
        let searched = searched();
        (member(), searched)
    } else {
        (member(), searched())
    };
    order_view(&mut link, &own(2), &own(3));
    let node = joining.join().unwrap().expect("it is a member");
    let greeted = answer_to_greeting(&own(1), addresses[2]);
    confirm(&mut searched, &own(1), &[]);
    searched.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut is_open = || !matches!(searched.read(&mut [0; 1024]), Ok(0));
    let is_linked = || records.opened.lock().unwrap().contains(&(1, 1));
    while is_open() && !is_linked() {
        assert!(begun.elapsed() < HANG_GUARD, "it neither takes nor closes the link");
    }
    let is_open = is_open();
    node.stop();
    if !is_open {
        assert!(begun.elapsed() >= Duration::from_secs(2), "it closes the link that it has begun to open");
        return false;
    }
    assert_ne!(greeted, Some(SignalNumber::NodeHelloConfirm), "it accepts other links");
    true
}

/// The threads of a data node that joins serve its links: what nodes that form a cluster report is nothing for them.
#[test]
fn nothing_is_reported_to_a_first_node_that_joins_itself() {
    for joins in [false, true] {
        let addresses = addresses(3);
        let listener = TcpListener::bind(addresses[0]).unwrap();
        // It looks for the third one in vain.
        begin(settings(2, 1, &addresses));
        let (mut link, _) = listener.accept().unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        let mut bytes = vec![0; 64 * 1024];
        assert!(link.read(&mut bytes).unwrap() > 0);
        let begun = joins.then(|| BegunCluster { cluster_incarnation: 1, database: 1, members: Vec::new() });
        let confirm = NodeHello { begun, ..hello(&settings(1, 1, &addresses), &ProcessIdentity::default()) };
        link.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm)).unwrap();
        if joins {
            link.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert_eq!(link.read(&mut bytes).map_err(|why| why.kind()), Err(ErrorKind::WouldBlock));
        } else {
            let count = link.read(&mut bytes).unwrap();
            let report = Frame::first(&bytes[..count]).expect("a frame").expect("a whole one");
            assert_eq!(report.signal(), Some(SignalNumber::NodesConnectedReport));
        }
    }
}

/// It was searched for, and refused that as one that has begun. Then it has ended, and its next start came by itself.
#[test]
fn what_an_earlier_start_has_answered_keeps_nobody_from_reporting() {
    let addresses = addresses(3);
    let first = TcpListener::bind(addresses[0]).unwrap();
    let third = TcpListener::bind(addresses[2]).unwrap();
    begin(settings(2, 1, &addresses));
    let next = |listener: &TcpListener| {
        let (mut link, _) = listener.accept().unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        assert!(link.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
        link
    };
    let mut to_first = next(&first);
    let confirm = hello(&settings(1, 1, &addresses), &ProcessIdentity::default());
    to_first.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm)).unwrap();
    let mut search = next(&third);
    let driver = |node| Address::new(NodeId(node), BlockNumber::Driver, 0);
    let mut refusal = Vec::new();
    cold::write(
        &mut FrameWriter::begin(&mut refusal, SignalNumber::HelloRefuse, 0, driver(2), driver(3), 0),
        &Refusal { request: 0, code: ErrorCode::NodeStopping as u16, detail: String::new() },
    );
    search.write_all(&refusal).unwrap();
    drop(search);
    // It is searched for again, unless it comes before: it does not answer then.
    thread::sleep(Duration::from_millis(50));
    let (_third, is_accepted) = greet(&settings(3, 1, &addresses), &ProcessIdentity::default(), addresses[1]);
    assert!(is_accepted);
    let mut bytes = vec![0; 64 * 1024];
    let count = to_first.read(&mut bytes).expect("it is reported to");
    let report = Frame::first(&bytes[..count]).expect("a frame").expect("a whole one");
    let NodesConnectedReport { nodes } = cold::read(&report).expect("a report");
    assert_eq!(nodes, [1, 2, 3].map(|node| (NodeId(node), Incarnation(u32::from(node)))));
}
