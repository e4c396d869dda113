//! Data nodes prove the key of their cluster to each other.

use crate::raw_links::hello_frame;
use crate::support::HANG_GUARD;
use crate::talker::{addresses, again, settings, start, start_all, wait_until};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use vinga_base::NodeId;
use vinga_key::ClusterKey;
use vinga_wire::formation::ProcessIdentity;
use vinga_wire::handshake::Refusal;
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// A key, and another one.
pub fn keys() -> [Arc<ClusterKey>; 2] {
    let folder = tempfile::tempdir().expect("a folder can be made");
    ["one", "other"].map(|name| Arc::new(ClusterKey::make(&folder.path().join(name)).expect("there is room")))
}

#[test]
fn nodes_prove_the_key_of_their_cluster_to_each_other() {
    let [key, other] = keys();
    let addresses = addresses(3);
    let with = |node, key: Option<&Arc<ClusterKey>>| {
        let mut settings = settings(node, 2, &addresses);
        settings.key = key.cloned();
        settings
    };
    let first = with(1, Some(&key));
    let first = thread::spawn(|| start(first));
    let why = start(with(2, Some(&other))).err().expect("it has another key");
    assert!(why.contains("20033") && why.contains("data node 1"), "{why}");
    let why = start(with(2, None)).err().expect("it has none");
    assert!(why.contains("20032") && why.contains("data node 1"), "{why}");
    // It goes on waiting for those that have its key.
    let others = start_all(vec![with(2, Some(&key)), with(3, Some(&key))]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}

/// Those that have begun look for nobody: the one with the lowest id has to find it out itself.
#[test]
fn a_node_with_another_key_does_not_join_a_cluster_that_runs() {
    let [key, other] = keys();
    for late in [2, 1] {
        let addresses = addresses(2);
        let with = |node, key: Option<&Arc<ClusterKey>>| {
            let mut settings = settings(node, 1, &addresses);
            settings.key = key.cloned();
            settings
        };
        let nodes = start_all(vec![with(1, Some(&key)), with(2, Some(&key))]);
        let mut nodes: BTreeMap<u8, _> = (1..).zip(nodes).collect();
        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        for (its, number) in [(Some(&other), "20033"), (None, "20032")] {
            let why = start(again(with(late, its), 100)).err().expect("it is refused");
            assert!(why.contains(number) && why.contains(&format!("data node {}", 3 - late)), "{why}");
        }
        nodes.into_values().for_each(|(node, _)| node.stop());
    }
}

#[test]
fn a_node_with_a_key_does_not_join_one_without() {
    let [key, _] = keys();
    let addresses = addresses(2);
    let first = settings(1, 1, &addresses);
    let first = thread::spawn(|| start(first));
    let mut second = settings(2, 1, &addresses);
    second.key = Some(key);
    let why = start(second).err().expect("the first one can't prove it");
    assert!(why.contains("20033") && why.contains("no cluster key at this node"), "{why}");
    let second = start_all(vec![settings(2, 1, &addresses)]);
    let (first, _) = first.join().unwrap().expect("the other one has come");
    first.stop();
    second.into_iter().for_each(|(node, _)| node.stop());
}

#[test]
fn a_node_greets_as_the_one_that_has_proven_the_key() {
    let [key, _] = keys();
    let addresses = addresses(3);
    let with = |node| {
        let mut settings = settings(node, 1, &addresses);
        settings.key = Some(key.clone());
        settings
    };
    let (first, second) = (with(1), with(2));
    let first = thread::spawn(|| start(first));
    wait_until("it listens", || TcpStream::connect(addresses[0]).is_ok());
    let mut link = TcpStream::connect(addresses[0]).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let terms =
        ConnectionTerms::new(ConnectionPurpose::Link, NodeId(3), NodeId(1), &second.cluster).to(addresses[0]);
    vinga_key::prove(&mut link, &key, Address::NONE, terms).expect("it has the key");
    link.write_all(&hello_frame(&second, &ProcessIdentity::default())).unwrap();
    let mut answer = Vec::new();
    link.read_to_end(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer).expect("a frame").expect("a whole one");
    assert_eq!(answer.signal(), Some(SignalNumber::NodeHelloRefuse));
    let refusal: Refusal = cold::read(&answer).expect("it can be read");
    assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::KeyForAnother), "{refusal:?}");
    // Both are awaited as before.
    let others = start_all(vec![second, with(3)]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}
