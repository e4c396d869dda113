//! Data nodes of one process find each other, exchange signals by their links, refuse each other, and lose each other.

use crate::raw_links::{greet, greet_slowly, hello_frame, report_connected, vanish};
use crate::support::HANG_GUARD;
use crate::talker::{
    SIGNALS, addresses, again, await_and_stop, begin, settings, start, start_all, wait_until,
};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use vinga_base::NodeId;
use vinga_runtime::log::LogSettings;
use vinga_runtime::settings::ProcessSettings;
use vinga_wire::configuration::ConfigurationStamp;
use vinga_wire::formation::ProcessIdentity;
use vinga_wire::handshake::Refusal;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

#[test]
fn nodes_find_each_other_and_exchange_signals_in_order() {
    let addresses = addresses(3);
    let threads = [1, 3, 2];
    let all = (1..).zip(threads).map(|(node, threads)| settings(node, threads, &addresses)).collect();
    let nodes = start_all(all);
    for ((node, records), own) in nodes.iter().zip(threads) {
        let pairs = usize::from(own * (threads.iter().sum::<u16>() - own));
        wait_until("all signals have come", || {
            let received = records.received.lock().unwrap();
            received.len() == pairs && received.values().all(|&count| count == SIGNALS)
        });
        assert!(records.closed.lock().unwrap().is_empty(), "{}", node.address());
    }
    // One leaves; all threads of the others adopt a view without it.
    let mut nodes = nodes;
    let (second, _) = nodes.remove(1);
    second.stop();
    for ((_, records), threads) in nodes.iter().zip([1, 2]) {
        wait_until("all threads have the next view", || {
            let views = records.views.lock().unwrap();
            views.len() == threads && views.values().all(|members| *members == [1, 3])
        });
        assert_eq!(*records.closed.lock().unwrap(), [2], "one report for all links");
        let ended = records.ended.lock().unwrap();
        assert!(!ended.is_empty() && ended.iter().all(|&node| node == 2), "it has said so before: {ended:?}");
    }
    nodes.into_iter().for_each(|(node, _)| node.stop());
}

/// Whoever may use a node's local socket is a client, and has not proven the cluster's key.
#[test]
fn data_nodes_do_not_connect_by_the_local_socket() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let socket = folder.path().join("node.sock");
    let addresses = addresses(2);
    let first = ProcessSettings { listen_locally: Some(socket.clone()), ..settings(1, 1, &addresses) };
    let starts = vec![begin(first), begin(settings(2, 1, &addresses))];
    wait_until("they find each other", || starts.iter().all(JoinHandle::is_finished));
    let nodes: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().expect("they begin")).collect();
    let mut link = UnixStream::connect(&socket).expect("it listens there");
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let greeting = hello_frame(&again(settings(2, 1, &addresses), 100), &ProcessIdentity::default());
    link.write_all(&greeting).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer[..count]).expect("a frame").expect("a whole one");
    let refusal: Refusal = cold::read(&answer).expect("it is refused");
    assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::BadHandshake), "{refusal:?}");
    nodes.into_iter().for_each(|(node, _)| node.stop());
}

/// By a node that forms the cluster, and by one that has begun.
#[test]
fn a_long_greeting_is_confirmed_as_a_whole_by_a_link_with_a_small_buffer() {
    let addresses = addresses(2);
    let own = |node: u8| {
        let mut settings = settings(node, 1, &addresses);
        settings.places.iter_mut().for_each(|place| place.host = "h".repeat(14_000));
        settings.others[0].buffers.send = 4096;
        settings
    };
    let first = begin(own(1));
    let (mut link, answer) = greet_slowly(&own(2), addresses[0]);
    assert_eq!(answer, Some(SignalNumber::NodeHelloConfirm));
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    drop(link);
    wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
    // It may still be giving up the earlier start.
    wait_until("the next start is confirmed", || {
        let (_link, answer) = greet_slowly(&again(own(2), 100), addresses[0]);
        answer == Some(SignalNumber::NodeHelloConfirm)
    });
    first.stop();
}

/// Whatever else is the matter with it. The one with the lowest id is not looked for any more, either.
#[test]
fn a_node_that_does_not_fit_is_refused_as_that_by_those_that_have_begun() {
    for late in [2, 1] {
        let addresses = addresses(2);
        let nodes = start_all(vec![settings(1, 1, &addresses), settings(2, 1, &addresses)]);
        let mut nodes: BTreeMap<u8, _> = (1..).zip(nodes).collect();
        let own = settings(late, 1, &addresses);
        let others = addresses[usize::from(2 - late)];
        let mut link = TcpStream::connect(others).unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        link.write_all(&hello_frame(&again(own, 900), &ProcessIdentity::default())).unwrap();
        let mut answer = Vec::new();
        link.read_to_end(&mut answer).expect("it is answered");
        let answer = Frame::first(&answer).expect("a frame").expect("a whole one");
        let refusal: Refusal = cold::read(&answer).expect("it can be read");
        assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::NodeIdInUse), "{refusal:?}");

        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        let (other, records) = nodes.into_values().next().unwrap();
        wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
        let refused = |change: fn(&mut ProcessSettings)| {
            let mut settings = settings(late, 1, &addresses);
            change(&mut settings);
            start(settings).err().expect("it is refused")
        };
        let why = refused(|settings| settings.cluster = "other".to_string());
        assert!(why.contains("20002") && why.contains("\"other\"") && why.contains("\"test\""), "{why}");
        let why = refused(|settings| settings.places[0].port ^= 1);
        assert!(why.contains("20031") && why.contains("data node 1 is at"), "{why}");
        let why = refused(|settings| settings.heartbeat_interval *= 2);
        assert!(why.contains("20031") && why.contains("HeartbeatIntervalDbDb"), "{why}");
        other.stop();
    }
}

#[test]
fn nodes_that_are_configured_differently_refuse_each_other() {
    let addresses = addresses(3);
    let start_first = || {
        let settings = settings(1, 1, &addresses);
        thread::spawn(|| start(settings))
    };
    let first = start_first();
    let refused = |change: fn(&mut ProcessSettings)| {
        let mut settings = settings(2, 1, &addresses);
        change(&mut settings);
        start(settings).err().expect("it is refused")
    };
    let why = refused(|settings| settings.cluster = "other".to_string());
    assert!(why.contains("20002") && why.contains("\"other\"") && why.contains("\"test\""), "{why}");
    let why = refused(|settings| settings.others.truncate(1));
    assert!(why.contains("20031") && why.contains("1 (0), 2 (0), 3 (0)"), "{why}");
    let why = refused(|settings| settings.configuration = ConfigurationStamp { generation: 4, digest: 9 });
    assert!(
        why.contains("data node 1 has generation 3, data node 2 generation 4; start data node 1"),
        "{why}"
    );
    let why = refused(|settings| settings.heartbeat_interval *= 2);
    assert!(
        why.contains("20031") && why.contains("HeartbeatIntervalDbDb is 250 ms here, 500 ms at data node 2"),
        "{why}"
    );
    let why = refused(|settings| settings.places[1].host = "127.0.0.9".to_string());
    assert!(
        why.contains("20031")
            && why.contains("data node 2 is at 127.0.0.1")
            && why.contains("127.0.0.9, port"),
        "{why}"
    );
    let why = refused(|settings| settings.places[2].port += 1);
    assert!(why.contains("20031") && why.contains("data node 3 is at"), "{why}");
    // It goes on waiting for those that are configured like itself.
    let others = start_all(vec![settings(2, 1, &addresses), settings(3, 1, &addresses)]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}

/// Nothing closes the links of a machine that was switched off; its next start must be greeted all the same.
#[test]
fn a_machine_that_vanishes_before_the_first_view_may_come_back() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    vanish(&link);
    await_and_stop(vec![first, begin(second)]);
}

/// Which links are missing is known to the two that miss them, and to the node with the lowest id.
#[test]
fn the_first_node_says_which_links_others_miss() {
    let path = std::env::temp_dir().join(format!("vinga-formation-{}.log", std::process::id()));
    let settings_of_log =
        LogSettings { level: log::LevelFilter::Info, file: Some(path.clone()), stderr: false, copy: None };
    vinga_runtime::log::begin(&settings_of_log).expect("no other test logs");
    let addresses = addresses(3);
    let first = begin(settings(1, 1, &addresses));
    let others = [2, 3].map(|node| settings(node, 1, &addresses));
    let links = others.each_ref().map(|other| {
        let (mut link, is_accepted) = greet(other, &ProcessIdentity::default(), addresses[0]);
        assert!(is_accepted);
        report_connected(&mut link, other.node, &[NodeId(1), other.node]);
        link
    });
    let says = |text: &str| {
        wait_until(text, || std::fs::read_to_string(&path).is_ok_and(|log| log.contains(text)));
    };
    says("data node 2 has not all links to data node 3 yet");
    says("data node 3 has not all links to data node 2 yet");
    // What others send is shown in one line.
    let mut strange = settings(2, 1, &addresses);
    strange.cluster = "a\nb".to_string();
    assert!(start(strange).is_err());
    says("the other node's is \"a\\nb\"");
    drop(links);
    await_and_stop([first].into_iter().chain(others.map(begin)).collect());
    let _ = std::fs::remove_file(&path);
}

/// The one that is there is not disturbed, though both have counted the same number of starts.
#[test]
fn a_second_process_with_the_id_of_one_that_is_there_is_refused() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let process = |process| ProcessIdentity { process, ..ProcessIdentity::default() };
    let (mut link, is_accepted) = greet(&second, &process(1), addresses[0]);
    assert!(is_accepted);
    let (_, is_accepted) = greet(&second, &process(2), addresses[0]);
    assert!(!is_accepted, "two processes have one id");
    link.set_nonblocking(true).unwrap();
    assert_eq!(link.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "the first one stays");
    drop(link);
    await_and_stop(vec![first, begin(second)]);
}

/// A data node that begins properly, and then sends such a frame: the other one goes on without it.
fn goes_on_without_one_that_sends(signal: SignalNumber, sender: Address, receiver: Address) {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (mut link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    let mut wrong = Vec::new();
    FrameWriter::begin(&mut wrong, signal, 1, receiver, sender, 0);
    link.write_all(&wrong).unwrap();
    // Everything that was sent before, and then the end.
    let mut buffer = vec![0; 64 * 1024];
    while link.read(&mut buffer).is_ok_and(|count| count > 0) {}
    wait_until("it has gone on", || !records.views.lock().unwrap().is_empty());
    assert_eq!(*records.closed.lock().unwrap(), [2]);
    assert_eq!(records.views.lock().unwrap()[&0], [1]);
    first.stop();
}

#[test]
fn a_data_node_whose_signal_a_block_rejects_is_given_up() {
    let coordinator = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
    goes_on_without_one_that_sends(SignalNumber::EpochClaimReport, coordinator(2), coordinator(1));
}

#[test]
fn a_data_node_that_sends_orders_to_a_driver_is_given_up() {
    let sender = Address::new(NodeId(2), BlockNumber::Agreement, 0);
    let driver = Address::new(NodeId(1), BlockNumber::Driver, 0);
    goes_on_without_one_that_sends(SignalNumber::StopNodeOrder, sender, driver);
}
