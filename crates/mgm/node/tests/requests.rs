//! A management node is asked by data nodes, by those of other clusters, and by what is no node at all.

use rustix::process::Resource;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId, ViewNumber};
use vinga_key::{ClusterKey, NotAccepted};
use vinga_mgm::{
    ClusterLogReader, Handout, ManagementAddresses, ManagementNode, ManagementSettings, NotFetched, fetch,
};
use vinga_runtime::exchange::{Exchange, frame};
use vinga_runtime::memory::raise_to_hard_limit;
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest};
use vinga_wire::arbitration::{
    ArbitrationBeginConfirm, ArbitrationBeginRefuse, ArbitrationBeginRequest, ArbitratorCheckConfirm,
    ArbitratorCheckRequest, ArbitratorHello, ArbitratorTakeConfirm, ArbitratorTakeRefuse,
    ArbitratorTakeRequest,
};
use vinga_wire::configuration::{
    ClusterLogFilter, ClusterLogReport, ClusterLogRequest, ClusterLogSwitch, ClusterLogTakenReport,
    ConfigurationReader, ConfigurationRequest, ConfigurationStamp, LogSeverity, RunningConfiguration,
};
use vinga_wire::handshake::{MAGIC, Refusal};
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::protocol::{PROTOCOL_VERSION, Protocol};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Of a build that does not speak this one's version any more.
const UNKNOWN_PROTOCOL: Protocol = Protocol { version: PROTOCOL_VERSION + 1, oldest: PROTOCOL_VERSION + 1 };

/// How long a test waits for an expected event: no machine is so busy that it takes longer.
const HANG_GUARD: Duration = Duration::from_secs(180);

const ARBITRATOR: NodeId = NodeId(3);

const TEXT: &str = "[data]\nNodeId=1\n[data]\nNodeId=2\n[mgm]\nNodeId=3\n";

fn data_nodes() -> Vec<(NodeId, u16)> {
    vec![(NodeId(1), 0), (NodeId(2), 0)]
}

fn start() -> ManagementNode {
    start_with(|_| ())
}

fn start_in(folder: PathBuf) -> ManagementNode {
    start_with(|settings| settings.folder = Some(folder))
}

fn start_with(change: impl FnOnce(&mut ManagementSettings)) -> ManagementNode {
    // Tests have both ends of all connections.
    raise_to_hard_limit(Resource::Nofile);
    let mut settings = ManagementSettings {
        node: ARBITRATOR,
        cluster: "test".to_string(),
        key: None,
        data_nodes: data_nodes(),
        folder: None,
        handout: Handout {
            stamp: ConfigurationStamp { generation: 5, digest: 7 },
            text: TEXT.to_string(),
            hosts: vec![(NodeId(1), "127.0.0.1".to_string()), (NodeId(2), "127.0.0.1".to_string())],
        },
        listen: "127.0.0.1:0".parse().unwrap(),
    };
    change(&mut settings);
    ManagementNode::start(settings).expect("there is a free port")
}

fn hello(node: u8) -> ArbitratorHello {
    ArbitratorHello {
        magic: MAGIC,
        protocol: Protocol::own(),
        cluster: "test".to_string(),
        data_nodes: data_nodes(),
        node: NodeId(node),
    }
}

fn until() -> Instant {
    Instant::now() + HANG_GUARD
}

/// What is answered to a greeting.
fn greet(exchange: &mut Exchange, hello: &ArbitratorHello) -> Vec<u8> {
    let request = frame(SignalNumber::ArbitratorHelloRequest, hello.node, |w| cold::write(w, hello));
    exchange.send(&request, until()).unwrap();
    exchange.receive(until()).unwrap()
}

fn connect(address: SocketAddr, node: u8) -> Exchange {
    let mut exchange = Exchange::connect(address, until()).unwrap();
    let answer = greet(&mut exchange, &hello(node));
    let answer = Frame::first(&answer).unwrap().unwrap();
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorHelloConfirm));
    assert_eq!(cold::read::<ArbitratorHello>(&answer).unwrap().node, ARBITRATOR);
    exchange
}

/// Hands over the first ticket of a cluster; returns why it is refused.
fn begin(exchange: &mut Exchange, cluster: u64, ticket: u64, members: &[u8]) -> Result<(), String> {
    let members = members.iter().map(|&node| (NodeId(node), Incarnation(1))).collect();
    let request = ArbitrationBeginRequest { cluster_incarnation: cluster, attempt: 0, ticket, members };
    let bytes = frame(SignalNumber::ArbitrationBeginRequest, NodeId(1), |w| cold::write(w, &request));
    exchange.send(&bytes, until()).unwrap();
    let answer = exchange.receive(until()).unwrap();
    let answer = Frame::first(&answer).unwrap().unwrap();
    if answer.signal() == Some(SignalNumber::ArbitrationBeginConfirm) {
        assert_eq!(cold::read::<ArbitrationBeginConfirm>(&answer).unwrap().ticket, ticket);
        return Ok(());
    }
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitrationBeginRefuse));
    Err(cold::read::<ArbitrationBeginRefuse>(&answer).unwrap().reason)
}

/// Asks whether members go on; returns the next ticket, or why not.
fn ask(exchange: &mut Exchange, ticket: u64, next: u64, members: &[u8]) -> Result<u64, String> {
    let members = members.iter().map(|&node| NodeId(node)).collect();
    let request = ArbitrationRequest { round: 5, view: ViewNumber(1), ticket, next, members };
    let bytes = frame(SignalNumber::ArbitrationRequest, NodeId(1), |w| cold::write(w, &request));
    exchange.send(&bytes, until()).unwrap();
    let answer = exchange.receive(until()).unwrap();
    let answer = Frame::first(&answer).unwrap().unwrap();
    if answer.signal() == Some(SignalNumber::ArbitrationConfirm) {
        let confirm: ArbitrationConfirm = cold::read(&answer).unwrap();
        assert_eq!(confirm.round, 5);
        return Ok(confirm.ticket);
    }
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitrationRefuse));
    let refuse: ArbitrationRefuse = cold::read(&answer).unwrap();
    assert_eq!(refuse.round, 5);
    Err(refuse.reason)
}

#[test]
fn one_of_two_halves_goes_on() {
    let node = start();
    let mut one = connect(node.address(), 1);
    assert!(ask(&mut one, 7, 8, &[1]).unwrap_err().contains("does not know"), "no cluster has begun");
    assert_eq!(begin(&mut one, 100, 7, &[1, 2]), Ok(()));
    // Both ask at the same time.
    let address = node.address();
    let answers: Vec<_> = [1, 2]
        .map(|node| thread::spawn(move || ask(&mut connect(address, node), 7, 7 + u64::from(node), &[node])))
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    // The winner may ask again: its answer may have been lost.
    let winner = if answers[0].is_ok() { 1 } else { 2 };
    assert_eq!(ask(&mut connect(address, winner), 7, 20, &[winner]), Ok(20));
    // A cluster that begins is another one.
    assert_eq!(begin(&mut one, 200, 30, &[1, 2]), Ok(()));
    assert!(ask(&mut one, 20, 21, &[winner]).is_err());
    assert!(begin(&mut one, 100, 40, &[1, 2]).unwrap_err().contains("a later cluster"));
    assert!(begin(&mut one, 300, 50, &[1]).unwrap_err().contains("begins with the data nodes 1, 2"));
    assert_eq!(ask(&mut one, 30, 31, &[1]), Ok(31));
    node.stop();
}

/// Hands over another ticket of a cluster that runs; returns why it is refused.
fn take(exchange: &mut Exchange, before: u64, ticket: u64, members: &[u8]) -> Result<(), String> {
    let request = ArbitratorTakeRequest {
        cluster_incarnation: 100,
        view: ViewNumber(1),
        request: ticket as u32,
        before,
        ticket,
        members: members.iter().map(|&node| NodeId(node)).collect(),
    };
    let bytes = frame(SignalNumber::ArbitratorTakeRequest, NodeId(1), |w| cold::write(w, &request));
    exchange.send(&bytes, until()).unwrap();
    let answer = exchange.receive(until()).unwrap();
    let answer = Frame::first(&answer).unwrap().unwrap();
    if answer.signal() == Some(SignalNumber::ArbitratorTakeConfirm) {
        assert_eq!(cold::read::<ArbitratorTakeConfirm>(&answer).unwrap().ticket, ticket);
        return Ok(());
    }
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorTakeRefuse));
    Err(cold::read::<ArbitratorTakeRefuse>(&answer).unwrap().reason)
}

/// Whether the management node holds a ticket.
fn holds(exchange: &mut Exchange, ticket: u64) -> bool {
    let request = ArbitratorCheckRequest { request: 9, ticket };
    let bytes = frame(SignalNumber::ArbitratorCheckRequest, NodeId(1), |w| cold::write(w, &request));
    exchange.send(&bytes, until()).unwrap();
    let answer = exchange.receive(until()).unwrap();
    let answer = Frame::first(&answer).unwrap().unwrap();
    if answer.signal() == Some(SignalNumber::ArbitratorCheckRefuse) {
        return false;
    }
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorCheckConfirm));
    let confirm: ArbitratorCheckConfirm = cold::read(&answer).unwrap();
    assert_eq!((confirm.request, confirm.arbitrator), (9, ARBITRATOR));
    true
}

/// All by one connection, which stays open.
#[test]
fn another_ticket_is_taken_of_a_cluster_that_runs() {
    let node = start();
    let mut one = connect(node.address(), 1);
    assert!(!holds(&mut one, 7));
    assert_eq!(take(&mut one, 6, 7, &[1, 2]), Ok(()));
    assert!(holds(&mut one, 7));
    assert!(take(&mut one, 7, 8, &[1, 2]).unwrap_err().contains("holds the ticket that counts"));
    assert!(take(&mut one, 6, 9, &[1, 5]).unwrap_err().contains("not all of the data nodes 1, 5"));
    assert_eq!(ask(&mut one, 7, 20, &[1]), Ok(20));
    assert!(take(&mut one, 7, 21, &[1, 2]).unwrap_err().contains("data nodes 1 have gone on"));
    assert!(holds(&mut one, 20) && !holds(&mut one, 7));
    node.stop();
}

#[test]
fn who_is_of_another_cluster_is_refused_with_a_reason() {
    let node = start();
    let refused = |change: &dyn Fn(&mut ArbitratorHello)| {
        let mut exchange = Exchange::connect(node.address(), until()).unwrap();
        let mut hello = hello(1);
        change(&mut hello);
        let answer = greet(&mut exchange, &hello);
        let answer = Frame::first(&answer).unwrap().unwrap();
        assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorHelloRefuse));
        assert!(exchange.receive(until()).is_err(), "it is closed");
        let refusal: Refusal = cold::read(&answer).unwrap();
        format!("{} {}", refusal.code, refusal.detail)
    };
    let why = refused(&|hello| hello.cluster = "other".to_string());
    assert!(why.contains("20002") && why.contains("\"test\"") && why.contains("\"other\""), "{why}");
    let why = refused(&|hello| hello.data_nodes[1].1 = 1);
    assert!(why.contains("20031") && why.contains("1 (0), 2 (0)") && why.contains("1 (0), 2 (1)"), "{why}");
    let why = refused(&|hello| hello.data_nodes[1].0 = NodeId(5));
    assert!(why.contains("20031") && why.contains("1 (0), 5 (0)"), "neither has all of the other: {why}");
    let why = refused(&|hello| hello.node = NodeId(9));
    assert!(why.contains("data node 9 is not configured"), "{why}");
    let why = refused(&|hello| hello.protocol = UNKNOWN_PROTOCOL);
    assert!(why.contains("20001"), "{why}");
    let why = refused(&|hello| hello.magic += 1);
    assert!(why.contains("not Vinga's"), "{why}");
    node.stop();
}

/// It has the file of before. One of those that were added may lead the others when they lose each other.
#[test]
fn it_decides_between_data_nodes_that_were_added_to_the_file_of_the_others() {
    let node = start();
    let hello_of = |asks: u8| {
        let mut hello = hello(asks);
        hello.data_nodes.extend([(NodeId(5), 1), (NodeId(6), 1)]);
        hello
    };
    for asks in [1, 5] {
        let mut exchange = Exchange::connect(node.address(), until()).unwrap();
        let answer = greet(&mut exchange, &hello_of(asks));
        let answer = Frame::first(&answer).unwrap().unwrap();
        assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorHelloConfirm), "data node {asks}");
        if asks == 1 {
            assert_eq!(take(&mut exchange, 6, 7, &[1, 2, 5, 6]), Ok(()));
        }
        assert!(holds(&mut exchange, 7));
        if asks == 5 {
            assert_eq!(ask(&mut exchange, 7, 20, &[5, 1]), Ok(20));
        }
    }
    node.stop();
}

#[test]
fn it_survives_what_is_no_node() {
    let node = start();
    let mut asking = connect(node.address(), 1);
    assert_eq!(begin(&mut asking, 1, 7, &[1, 2]), Ok(()));
    let zeros = [0; 4096];
    let short = [16, 0, 0, 0, 0];
    let request = frame(SignalNumber::ArbitrationRequest, NodeId(1), |writer| _ = writer.bytes(&[255; 8]));
    let api = frame(SignalNumber::HelloRequest, NodeId(1), |writer| _ = writer.bytes(&[0; 8]));
    for garbage in [&zeros[..], b"GET / HTTP/1.1\r\n\r\n", &[255; 70_000], &short, &request, &api] {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        // It may close the connection before it has read all.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // Also behind a greeting.
    let mut greeted = connect(node.address(), 2);
    greeted.send(&request, until()).unwrap();
    let answer = greeted.receive(until()).unwrap();
    let answer = Frame::first(&answer).unwrap().unwrap();
    assert_eq!(answer.signal(), Some(SignalNumber::ArbitratorHelloRefuse));
    assert_eq!(ask(&mut connect(node.address(), 2), 7, 8, &[2]), Ok(8));
    // One that says nothing does not keep it from stopping.
    let silent = TcpStream::connect(node.address()).unwrap();
    node.stop();
    drop((silent, asking));
}

fn addresses(node: &ManagementNode) -> ManagementAddresses {
    ManagementAddresses { key: None, addresses: vec![node.address().to_string()] }
}

#[test]
fn the_configuration_is_handed_out() {
    let node = start();
    let addresses = addresses(&node);
    let get = |reader| fetch(&addresses, reader);
    let one = get(ConfigurationReader::AnyDataNode).expect("one is free");
    assert_eq!(
        (one.node, one.stamp, one.text.as_str()),
        (NodeId(1), ConfigurationStamp { generation: 5, digest: 7 }, TEXT)
    );
    let two = get(ConfigurationReader::DataNode(NodeId(2))).expect("it is configured");
    assert_eq!(two.node, NodeId(2));
    let onlooker = get(ConfigurationReader::Onlooker).expect("whoever looks is nobody");
    assert_eq!(onlooker.node, ARBITRATOR);
    let Err(NotFetched::Refused(why)) = get(ConfigurationReader::AnyDataNode) else {
        panic!("both have ids")
    };
    assert!(
        why.contains("20031") && why.contains("no data node that is free is configured for 127.0.0.1"),
        "{why}"
    );
    let Err(NotFetched::Refused(why)) = get(ConfigurationReader::DataNode(NodeId(9))) else {
        panic!("there is none")
    };
    assert!(why.contains("data node 9 is not configured; there are 1 (127.0.0.1), 2 (127.0.0.1)"), "{why}");
    // Its process ends.
    drop(one.connection);
    let again = loop {
        if let Ok(again) = get(ConfigurationReader::AnyDataNode) {
            break again;
        }
    };
    assert_eq!(again.node, NodeId(1));
    let address = node.address();
    // A node stops though data nodes have connections.
    node.stop();
    let gone = ManagementAddresses { key: None, addresses: vec![address.to_string()] };
    let Err(NotFetched::NotReached(why)) = fetch(&gone, ConfigurationReader::Onlooker) else {
        panic!("it is gone")
    };
    assert!(why.contains("Connection refused"), "{why}");
}

/// Whoever reaches the port could fill all places with connections on which it said nothing.
#[test]
fn silent_connections_take_no_place_from_those_that_have_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.key");
    let key = Arc::new(ClusterKey::make(&file).unwrap());
    let node = start_with(|settings| settings.key = Some(key.clone()));
    let addresses = ManagementAddresses { key: Some(file), ..addresses(&node) };
    let mut before = fetch(&addresses, ConfigurationReader::DataNode(NodeId(1))).expect("it has the key");
    let mut silent: Vec<_> = (0..600).map(|_| TcpStream::connect(node.address()).unwrap()).collect();
    // The first ones have made room for the last ones.
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
    fetch(&addresses, ConfigurationReader::DataNode(NodeId(2))).expect("it has the key");
    let mut asking = Exchange::connect(node.address(), until()).unwrap();
    let terms = ConnectionTerms::new(ConnectionPurpose::Arbitration, NodeId(2), ARBITRATOR, "test");
    asking.prove(&key, terms, until()).unwrap();
    let answer = greet(&mut asking, &hello(2));
    assert_eq!(Frame::first(&answer).unwrap().unwrap().signal(), Some(SignalNumber::ArbitratorHelloConfirm));
    before.connection.check_open().expect("those that have proven the key stay");
    // Whoever has another key, or none, learns that.
    for other in [Some(folder.path().join("other.key")), None] {
        if let Some(other) = &other {
            ClusterKey::make(other).unwrap();
        }
        let addresses = ManagementAddresses { key: other, ..addresses.clone() };
        let why =
            fetch(&addresses, ConfigurationReader::Onlooker).expect_err("it is not the key").to_string();
        assert!(why.contains("20032") || why.contains("20033"), "{why}");
    }
    node.stop();
}

/// Each data node keeps two connections: that by which it has its configuration, and that of its reports.
#[test]
fn the_largest_cluster_has_places() {
    let all: Vec<_> = (1..=144).map(NodeId).collect();
    let node = start_with(|settings| {
        settings.data_nodes = all.iter().map(|&node| (node, 0)).collect();
        settings.handout.hosts = all.iter().map(|&node| (node, "127.0.0.1".to_string())).collect();
    });
    let addresses = addresses(&node);
    let twice = all.iter().chain(&all);
    let held: Vec<_> = twice
        .map(|&node| fetch(&addresses, ConfigurationReader::DataNode(node)).expect("there is a place"))
        .collect();
    let mut asking = Exchange::connect(node.address(), until()).unwrap();
    let own = ArbitratorHello { data_nodes: all.iter().map(|&node| (node, 0)).collect(), ..hello(1) };
    let answer = greet(&mut asking, &own);
    assert_eq!(Frame::first(&answer).unwrap().unwrap().signal(), Some(SignalNumber::ArbitratorHelloConfirm));
    drop(held);
    node.stop();
}

/// A data node that has read another cluster's file wrote into this one's log, and had one of its ids.
#[test]
fn a_data_node_of_another_cluster_does_not_report_here() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_with(|settings| settings.folder = Some(folder.path().to_owned()));
    let begin = |cluster: &str| {
        let running = RunningConfiguration { cluster: cluster.to_string(), stamp: Default::default() };
        let request = ConfigurationRequest {
            running: Some(running),
            ..ConfigurationRequest::new(ConfigurationReader::DataNode(NodeId(1)))
        };
        let mut exchange = Exchange::connect(node.address(), until()).unwrap();
        let request = frame(SignalNumber::ConfigurationRequest, NodeId(1), |w| cold::write(w, &request));
        exchange.send(&request, until()).unwrap();
        let answer = exchange.receive(until()).unwrap();
        (exchange, answer)
    };
    let (mut exchange, answer) = begin("other");
    let answer = Frame::first(&answer).unwrap().unwrap();
    assert_eq!(answer.signal(), Some(SignalNumber::ConfigurationRefuse));
    let refusal: Refusal = cold::read(&answer).unwrap();
    assert_eq!(refusal.code, 20002);
    assert!(
        refusal.detail.contains("\"test\"") && refusal.detail.contains("\"other\""),
        "{}",
        refusal.detail
    );
    assert!(exchange.receive(until()).is_err(), "it is closed");
    let any = fetch(&addresses(&node), ConfigurationReader::AnyDataNode).expect("both ids are free");
    assert_eq!(any.node, NodeId(1));

    let (mut exchange, answer) = begin("test");
    let answer = Frame::first(&answer).unwrap().unwrap();
    assert_eq!(answer.signal(), Some(SignalNumber::ConfigurationConfirm));
    let report = ClusterLogReport { line: "time info source: text".to_string(), left_out: 0 };
    let report = frame(SignalNumber::ClusterLogReport, NodeId(1), |w| cold::write(w, &report));
    for lines in 1..=2 {
        exchange.send(&report, until()).unwrap();
        let answer = exchange.receive(until()).unwrap();
        let answer = Frame::first(&answer).unwrap().unwrap();
        assert_eq!(answer.signal(), Some(SignalNumber::ClusterLogTakenReport));
        assert_eq!(cold::read(&answer), Some(ClusterLogTakenReport { lines }));
        let log = std::fs::read_to_string(folder.path().join("cluster.log")).unwrap();
        assert_eq!(log, "time info node 1, source: text\n".repeat(lines as usize));
    }
    node.stop();
}

/// A data node's lines are read, page by page, by whoever asks; a management node without a folder has none.
#[test]
fn the_log_of_the_cluster_is_read() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let node = start_in(folder.path().to_owned());
    let fetched =
        fetch(&addresses(&node), ConfigurationReader::DataNode(NodeId(2))).expect("it is configured");
    let mut connection = fetched.connection;
    for number in 0..50 {
        let line = format!("2026-03-01T12:00:00.000Z info source: {number}");
        let report = ClusterLogReport { line, left_out: if number == 49 { 7 } else { 0 } };
        let bytes = frame(SignalNumber::ClusterLogReport, NodeId(2), |w| cold::write(w, &report));
        connection.send(&bytes, until()).expect("it reads");
    }
    let all = ClusterLogFilter { severity: LogSeverity::Debug, nodes: Vec::new(), category: None };
    let mut reader = ClusterLogReader::connect(&addresses(&node)).expect("it is there");
    let ask = |reader: &mut ClusterLogReader, until, lines_max| {
        reader.read(&ClusterLogRequest::new(0, until, lines_max, all.clone())).expect("it has a log")
    };
    let last = loop {
        let last = ask(&mut reader, u64::MAX, 2);
        if last.lines.last().is_some_and(|line| line.ends_with("node 2, source: 49")) {
            break last;
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(last.lines[0].ends_with("warning node 2, reports: 7 lines before the next one are missing here"));
    let before = ask(&mut reader, last.more_until.expect("there are more"), u32::MAX);
    assert_eq!((before.lines.len(), before.more_until), (49, None));
    assert_eq!(before.written, LogSeverity::ALL);

    // Severities are switched off, for all that is written afterwards.
    let switch = ClusterLogSwitch { severities: vec![LogSeverity::Info], is_on: false };
    let answer = reader.read(&ClusterLogRequest::of_severities(Some(switch))).expect("it has a log");
    assert!(answer.lines.is_empty() && !answer.written.contains(&LogSeverity::Info), "{answer:?}");
    for (number, severity) in [(50, "info"), (51, "error")] {
        let line = format!("2026-03-01T12:00:00.000Z {severity} source: {number}");
        let report = ClusterLogReport { line, left_out: 0 };
        let bytes = frame(SignalNumber::ClusterLogReport, NodeId(2), |w| cold::write(w, &report));
        connection.send(&bytes, until()).expect("it reads");
    }
    let last = loop {
        let last = ask(&mut reader, u64::MAX, 2);
        if last.lines.last().is_some_and(|line| line.ends_with("node 2, source: 51")) {
            break last;
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(last.lines[0].ends_with("node 2, source: 49"), "{last:?}");
    drop(connection);
    node.stop();

    let node = start();
    let mut reader = ClusterLogReader::connect(&addresses(&node)).expect("it is there");
    let request = ClusterLogRequest::new(0, u64::MAX, 1, all.clone());
    match reader.read(&request) {
        Err(NotFetched::Refused(why)) => assert!(why.contains("20077") && why.contains("no folder"), "{why}"),
        other => panic!("{other:?}"),
    }
    // One of another version is refused.
    let mut reader = ClusterLogReader::connect(&addresses(&node)).expect("it is there");
    let other = ClusterLogRequest { protocol: UNKNOWN_PROTOCOL, ..request };
    match reader.read(&other) {
        Err(NotFetched::Refused(why)) => assert!(why.contains("20001"), "{why}"),
        other => panic!("{other:?}"),
    }
    node.stop();
}

#[test]
fn a_proven_key_is_good_for_one_purpose_and_one_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.key");
    let key = Arc::new(ClusterKey::make(&file).unwrap());
    let node = start_with(|settings| settings.key = Some(key.clone()));
    let proven = |purpose, sender, receiver| {
        let mut exchange = Exchange::connect(node.address(), until()).unwrap();
        let terms = ConnectionTerms::new(purpose, NodeId(sender), NodeId(receiver), "test");
        exchange.prove(&key, terms, until()).map(|()| exchange)
    };
    // What is for a data node, or for another management node, is proven to nobody here.
    for (purpose, receiver) in [
        (ConnectionPurpose::Client, 0),
        (ConnectionPurpose::Link, ARBITRATOR.0),
        (ConnectionPurpose::Arbitration, 4),
    ] {
        match proven(purpose, 1, receiver) {
            Err(NotAccepted::Refused(ErrorCode::KeyForAnother, _)) => {}
            other => panic!("{purpose}: {other:?}"),
        }
    }
    // What is proven for one purpose, or by one node, is no greeting of another one.
    let arbitration = frame(SignalNumber::ArbitratorHelloRequest, NodeId(1), |w| cold::write(w, &hello(1)));
    let request = ConfigurationRequest::new(ConfigurationReader::DataNode(NodeId(1)));
    let configuration = frame(SignalNumber::ConfigurationRequest, NodeId(1), |w| cold::write(w, &request));
    for (purpose, sender, greeting, is_taken) in [
        (ConnectionPurpose::Arbitration, 1, &arbitration, true),
        (ConnectionPurpose::Arbitration, 2, &arbitration, false),
        (ConnectionPurpose::Arbitration, 1, &configuration, false),
        (ConnectionPurpose::Configuration, 1, &configuration, true),
        (ConnectionPurpose::Configuration, 2, &configuration, false),
        (ConnectionPurpose::Configuration, 0, &configuration, false),
        (ConnectionPurpose::Configuration, 1, &arbitration, false),
    ] {
        let mut exchange = proven(purpose, sender, 0).expect("it has the key");
        exchange.send(greeting, until()).unwrap();
        let answer = exchange.receive(until()).unwrap();
        let answer = Frame::first(&answer).unwrap().unwrap();
        let number = answer.signal().expect("it is known");
        if is_taken {
            let confirms = [SignalNumber::ArbitratorHelloConfirm, SignalNumber::ConfigurationConfirm];
            assert!(confirms.contains(&number), "{purpose} of {sender}: {number:?}");
            continue;
        }
        let refusal: Refusal = cold::read(&answer).unwrap();
        let code = ErrorCode::from_number(refusal.code);
        assert_eq!(code, Some(ErrorCode::KeyForAnother), "{purpose} of {sender}: {refusal:?}");
    }
    let with_key = ManagementAddresses { key: Some(file), ..addresses(&node) };
    fetch(&with_key, ConfigurationReader::Onlooker).expect("it has the key, and asks for itself");
    node.stop();
}
