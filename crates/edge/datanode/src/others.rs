//! The other data nodes of the cluster: where they are.
//!
//! A host name is resolved once, at the start of the node. All nodes have to agree on who is where, so what can't be
//! right is refused before any thread runs.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use vinga_base::NodeId;
use vinga_config::Link;
use vinga_config::configuration::Configuration;
use vinga_config::data_nodes::DataNode;
use vinga_config::parameters::Parameter;
use vinga_runtime::settings::{LinkBuffers, OtherDataNode, OtherManagementNode};
use vinga_wire::formation::ConfiguredPlace;

/// The address that a host has for `port`. `whose` is how an error names the parameter that the host is from.
///
/// # Errors
/// A text: the host has none.
pub fn resolve(whose: &str, host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| format!("{whose} '{host}': {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("{whose} '{host}' has no address"))
}

/// All data nodes but this one, which listens on `own`.
///
/// # Errors
/// A text: a host has no address; two nodes have the same one; or the nodes can't all reach each other.
pub fn others(configuration: &Configuration, own: SocketAddr) -> Result<Vec<OtherDataNode>, String> {
    let nodes = &configuration.data_nodes;
    let id = configuration.parameters.integer(Parameter::NodeId) as u8;
    if !nodes.are_several() {
        return Ok(Vec::new());
    }
    let mut places = Vec::new();
    for node in nodes.all() {
        let whose = format!("HostName of data node {}", node.node);
        let address = if node.node == id { own } else { resolve(&whose, &node.host, node.port)? };
        places.push((node, address));
    }
    check(&places)?;
    let buffers = |node: u8| {
        let is_it = |link: &&Link| link.nodes == (id.min(node), id.max(node));
        let link = configuration.links.iter().find(is_it);
        link.map_or_else(LinkBuffers::default, |link| LinkBuffers {
            send: link.send_buffer,
            receive: link.receive_buffer,
        })
    };
    let other = |&(node, address): &(&DataNode, SocketAddr)| OtherDataNode {
        node: NodeId(node.node),
        group: node.group,
        address,
        buffers: buffers(node.node),
    };
    Ok(places.iter().filter(|(node, _)| node.node != id).map(other).collect())
}

/// Where all data nodes are, by the configuration.
pub fn places(configuration: &Configuration) -> Vec<ConfiguredPlace> {
    let place = |node: &DataNode| ConfiguredPlace {
        node: NodeId(node.node),
        host: node.host.clone(),
        port: node.port,
    };
    configuration.data_nodes.all().iter().map(place).collect()
}

/// Whether there are management nodes that arbitrate between data nodes.
pub fn has_arbitrators(configuration: &Configuration) -> bool {
    configuration.data_nodes.are_several() && configuration.management_nodes.iter().any(|node| node.rank > 0)
}

/// The management nodes that arbitrate between data nodes, of which this one listens on `own`.
///
/// # Errors
/// A text: a host has no address, or one that this node can't reach.
pub fn arbitrators(
    configuration: &Configuration,
    own: SocketAddr,
) -> Result<Vec<OtherManagementNode>, String> {
    if !configuration.data_nodes.are_several() {
        return Ok(Vec::new());
    }
    let arbitrators = configuration.management_nodes.iter().filter(|node| node.rank > 0);
    let places = arbitrators.map(|node| {
        let whose = format!("HostName of management node {}", node.node);
        let address = resolve(&whose, &node.host, node.port)?;
        if address.ip().is_unspecified() || address.ip().is_loopback() && !own.ip().is_loopback() {
            return Err(format!(
                "{whose} is '{}', which is {address}: no address under which data nodes on other machines can reach it",
                node.host
            ));
        }
        Ok(OtherManagementNode { node: NodeId(node.node), address })
    });
    places.collect()
}

/// Each node has an address of its own, under which the others reach it.
fn check(places: &[(&DataNode, SocketAddr)]) -> Result<(), String> {
    let described = |(node, address): &(&DataNode, SocketAddr)| {
        format!("data node {} (HostName '{}') is at {address}", node.node, node.host)
    };
    for (at, place) in places.iter().enumerate() {
        if place.1.ip().is_unspecified() {
            return Err(format!(
                "{}, which is no address that the other data nodes can reach: HostName is the one that they use",
                described(place)
            ));
        }
        if let Some(earlier) = places[..at].iter().find(|(_, address)| *address == place.1) {
            return Err(format!(
                "{}, and {}: give one of them another ServerPort, or its own HostName",
                described(earlier),
                described(place)
            ));
        }
    }
    let is_loopback = |(_, address): &&(&DataNode, SocketAddr)| address.ip().is_loopback();
    let inside = places.iter().find(is_loopback);
    let outside = places.iter().find(|place| !is_loopback(place));
    match (inside, outside) {
        (Some(inside), Some(outside)) => Err(format!(
            "{}, which only processes on its own machine reach, and {}: let HostName of each data node be the one that \
             the others reach it by (a machine may resolve its own name to a loopback address: /etc/hosts)",
            described(inside),
            described(outside)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::this_machine;
    use vinga_config::file::ConfigFile;

    fn configuration(hosts: &[&str], own: &str) -> Configuration {
        let mut text = "[data default]\nNoOfReplicas=2\n".to_owned();
        for (host, port) in hosts.iter().zip(2202..) {
            text.push_str(&format!("[data]\nHostName={host}\nServerPort={port}\n"));
        }
        let file = ConfigFile::parse("f", &text);
        Configuration::new(Some(&file), &[("NodeId", own)], &this_machine()).expect("it is good")
    }

    fn others_of(hosts: &[&str], own: &str) -> Result<Vec<OtherDataNode>, String> {
        let configuration = configuration(hosts, own);
        let own = configuration.data_nodes.get(own.parse().unwrap()).expect("it is one of them");
        others(&configuration, resolve("HostName", &own.host, own.port).expect("it is an address"))
    }

    #[test]
    fn the_others_are_known_by_address_and_group() {
        let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.1", "::1"];
        let found = others_of(&hosts, "3").expect("all are addresses");
        let other = |node, group, address: &str| OtherDataNode {
            node: NodeId(node),
            group,
            address: address.parse().unwrap(),
            buffers: LinkBuffers::default(),
        };
        let expected =
            [other(1, 0, "127.0.0.1:2202"), other(2, 0, "127.0.0.2:2203"), other(4, 1, "[::1]:2205")];
        assert_eq!(found, expected);
    }

    #[test]
    fn management_nodes_are_where_data_nodes_reach_them() {
        let found = |host: &str, management: &str| {
            let text = format!(
                "[data default]\nNoOfReplicas=2\nHostName={host}\n[data]\nServerPort=1\n[data]\nServerPort=2\n{management}"
            );
            let file = ConfigFile::parse("f", &text);
            let configuration = Configuration::new(Some(&file), &[("NodeId", "1")], &this_machine());
            let own = resolve("HostName", host, 1).expect("it is an address");
            arbitrators(&configuration.expect("it is good"), own)
        };
        let two = "[mgm]\nNodeId=8\nArbitrationRank=2\nHostName=10.0.0.8\n[mgm]\nNodeId=9\nHostName=10.0.0.9\nPortNumber=7\n";
        let expected = [(9, "10.0.0.9:7"), (8, "10.0.0.8:1186")].map(|(node, address)| OtherManagementNode {
            node: NodeId(node),
            address: address.parse().unwrap(),
        });
        assert_eq!(found("10.0.0.1", two), Ok(expected.into()));
        assert_eq!(found("10.0.0.1", "[mgm]\nArbitrationRank=0\n"), Ok(Vec::new()));
        assert_eq!(found("127.0.0.1", "[mgm]\nHostName=127.0.0.1\n").map(|found| found.len()), Ok(1));
        let why =
            found("10.0.0.1", "[mgm]\nHostName=127.0.0.1\n").expect_err("data nodes are on other machines");
        assert!(
            why.starts_with("HostName of management node 3 is '127.0.0.1', which is 127.0.0.1:1186"),
            "{why}"
        );
    }

    #[test]
    fn what_can_not_be_right_is_refused() {
        // A label may not be that long, so no resolver asks anybody for it.
        let long = "a".repeat(64);
        let why = others_of(&["127.0.0.1", &long], "1").expect_err("nobody has this name");
        assert!(why.starts_with("HostName of data node 2 'aaaa"), "{why}");
        let why = others_of(&["10.0.0.1", "127.0.0.1"], "1").expect_err("one is on another machine");
        assert!(
            why.starts_with(
                "data node 2 (HostName '127.0.0.1') is at 127.0.0.1:2203, which only processes on its own"
            ),
            "{why}"
        );
        assert!(why.contains("data node 1 (HostName '10.0.0.1') is at 10.0.0.1:2202"), "{why}");
        let why = others_of(&["10.0.0.1", "0.0.0.0"], "1").expect_err("that is everywhere");
        assert!(why.contains("'0.0.0.0') is at 0.0.0.0:2203, which is no address"), "{why}");
        let configuration = configuration(&["127.0.0.1", "127.0.0.1"], "1");
        let why = others(&configuration, "127.0.0.1:2203".parse().unwrap()).expect_err("both are there");
        assert!(
            why.contains("data node 1") && why.contains("data node 2") && why.contains("ServerPort"),
            "{why}"
        );
    }
}
