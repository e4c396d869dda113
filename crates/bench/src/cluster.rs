//! Data nodes that are started as a cluster for a measurement, each as a process.

use crate::failure::{Context, Failure, Result};
use crate::node::{Node, NodeProgram, StartingNode};
use std::fmt::Write;
use std::fs;
use std::net::TcpListener;

/// How to start a cluster on this machine.
#[derive(Clone, Debug)]
pub struct ClusterProgram {
    /// How to start one of its nodes. The cluster's folder is the node's; each node gets one below it.
    pub node: NodeProgram,
    /// Data nodes.
    pub data_nodes: u8,
    /// Nodes of a node group, which all have its rows.
    pub replicas: u8,
}

impl ClusterProgram {
    /// Starts all data nodes in empty folders and waits until they are ready; in order of their ids.
    ///
    /// # Errors
    /// One of them can't be started, or ends.
    pub fn start(&self) -> Result<Vec<Node>> {
        let folder = &self.node.folder;
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join("config.ini");
        fs::write(&file, self.configuration()?).context(|| format!("cannot write {}", file.display()))?;
        let programs = (1..=self.data_nodes).map(|id| NodeProgram {
            folder: folder.join(format!("node-{id}")),
            member: Some((file.clone(), id)),
            ..self.node.clone()
        });
        // Each waits for the others.
        let starting = programs.map(|program| program.begin()).collect::<Result<Vec<_>>>()?;
        starting.into_iter().map(StartingNode::wait).collect()
    }

    fn configuration(&self) -> Result<String> {
        let mut text = format!("[ndbd default]\nNoOfReplicas={}\nHostName=127.0.0.1\n", self.replicas);
        // Below the ports that the system gives to connections, so that they are still free when the nodes listen.
        let first = 10_000 + (std::process::id() % 20_000) as u16;
        let is_free = |&port: &u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let ports: Vec<u16> = (first..32_000).filter(is_free).take(usize::from(self.data_nodes)).collect();
        if ports.len() < usize::from(self.data_nodes) {
            return Err(Failure::new(format!("no {} ports from {first} on are free", self.data_nodes)));
        }
        for (id, port) in (1..).zip(&ports) {
            write!(text, "[ndbd]\nNodeId={id}\nServerPort={port}\n").expect("a string takes all");
        }
        Ok(text)
    }
}

/// The addresses of all of them, as clients are given them.
pub fn addresses(nodes: &[Node]) -> String {
    nodes.iter().map(Node::address).collect::<Vec<_>>().join(",")
}
