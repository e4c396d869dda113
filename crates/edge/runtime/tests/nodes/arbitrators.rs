//! Data nodes ask an arbitrator.

use crate::keys::keys;
use crate::support::HANG_GUARD;
use crate::talker::{NEXT_TICKET, Records, addresses, settings, start_all, wait_until};
use std::net::SocketAddr;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_key::ClusterKey;
use vinga_mgm::{Handout, ManagementNode, ManagementSettings};
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::OtherManagementNode;
use vinga_wire::configuration::ConfigurationStamp;
use vinga_wire::view::NO_TICKET;

/// A management node of the cluster of two nodes, at this address.
fn arbitrator(listen: SocketAddr, cluster: &str) -> ManagementNode {
    arbitrator_with(listen, cluster, None)
}

fn arbitrator_with(listen: SocketAddr, cluster: &str, key: Option<Arc<ClusterKey>>) -> ManagementNode {
    let data_nodes = vec![(NodeId(1), 0), (NodeId(2), 0)];
    let handout = Handout { stamp: ConfigurationStamp::default(), text: String::new(), hosts: Vec::new() };
    let settings = ManagementSettings {
        node: NodeId(3),
        cluster: cluster.to_string(),
        key,
        data_nodes,
        handout,
        folder: None,
        listen,
    };
    ManagementNode::start(settings).expect("nobody listens there")
}

/// Two nodes with these management nodes.
fn pair_with(arbitrators: &[(u8, SocketAddr)]) -> Vec<(NodeProcess, Arc<Records>)> {
    pair_with_key(arbitrators, None)
}

fn pair_with_key(
    arbitrators: &[(u8, SocketAddr)],
    key: Option<&Arc<ClusterKey>>,
) -> Vec<(NodeProcess, Arc<Records>)> {
    let addresses = addresses(2);
    let arbitrators =
        arbitrators.iter().map(|&(node, address)| OtherManagementNode { node: NodeId(node), address });
    let arbitrators: Vec<_> = arbitrators.collect();
    let all = (1..=2).map(|node| {
        let mut settings = settings(node, 2, &addresses);
        settings.arbitrators.clone_from(&arbitrators);
        settings.key = key.cloned();
        settings.arbitration_timeout = HANG_GUARD;
        settings
    });
    start_all(all.collect())
}

/// Stops the second node, and returns what the arbitrator answers to the first one then.
fn answer_without_the_second(nodes: Vec<(NodeProcess, Arc<Records>)>) -> Result<u64, String> {
    let mut nodes = nodes.into_iter();
    let ((first, records), (second, _)) = (nodes.next().unwrap(), nodes.next().unwrap());
    second.stop();
    wait_until("the arbitrator has answered", || !records.answers.lock().unwrap().is_empty());
    first.stop();
    let answers = records.answers.lock().unwrap();
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

#[test]
fn an_arbitrator_is_asked_with_the_key() {
    let [key, other] = keys();
    let at_any_port = "127.0.0.1:0".parse().unwrap();
    let node = arbitrator_with(at_any_port, "test", Some(key.clone()));
    let verdict = answer_without_the_second(pair_with_key(&[(3, node.address())], Some(&key)));
    assert_eq!(verdict, Ok(NEXT_TICKET));
    node.stop();
    for its in [Some(other), None] {
        let node = arbitrator_with(at_any_port, "test", its);
        for (one, records) in pair_with_key(&[(3, node.address())], Some(&key)) {
            assert_eq!(*records.ticket.lock().unwrap(), Some(NO_TICKET));
            one.stop();
        }
        node.stop();
    }
}

#[test]
fn an_arbitrator_takes_the_ticket_of_the_first_view_and_is_asked_later() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "test");
    let [unused] = addresses(1)[..] else { panic!("one") };
    // Nobody is there at the address of another one.
    let nodes = pair_with(&[(3, node.address()), (4, unused)]);
    let ticket = |at: usize| nodes[at].1.ticket.lock().unwrap().expect("it has begun");
    assert!(ticket(0) != NO_TICKET && ticket(0) == ticket(1));
    assert_eq!(answer_without_the_second(nodes), Ok(NEXT_TICKET));
    node.stop();
}

#[test]
fn an_arbitrator_that_has_started_again_refuses() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "test");
    let address = node.address();
    let nodes = pair_with(&[(3, address)]);
    node.stop();
    let node = arbitrator(address, "test");
    let why = answer_without_the_second(nodes).expect_err("it knows no ticket");
    assert!(why.contains("does not know their ticket (management node 3)"), "{why}");
    node.stop();
}

#[test]
fn without_an_arbitrator_that_takes_it_the_first_view_has_no_ticket() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "other");
    let [unused] = addresses(1)[..] else { panic!("one") };
    let nodes = pair_with(&[(3, node.address()), (4, unused)]);
    for (node, records) in nodes {
        assert_eq!(*records.ticket.lock().unwrap(), Some(NO_TICKET));
        assert!(records.answers.lock().unwrap().is_empty());
        node.stop();
    }
    node.stop();
}
