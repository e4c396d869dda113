//! Nodes that are started as a cluster for a measurement, each as a process.

use crate::failure::{Context, Failure, Result};
use crate::node::{Member, MemberKind, Node, NodeProgram, StartingNode};
use std::fmt::Write;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How far the ports of processes with consecutive ids are apart.
const PORTS_APART: u32 = 61;

/// How to start a cluster on this machine.
#[derive(Clone, Debug)]
pub struct ClusterProgram {
    /// How to start one of its data nodes. The cluster's folder is the node's; each node gets one below it.
    pub node: NodeProgram,
    /// Data nodes.
    pub data_nodes: u8,
    /// Nodes of a node group, which all have its rows.
    pub replicas: u8,
    /// Management nodes: without one no data node goes on that can't know whether the others do.
    pub management_nodes: u8,
}

/// A cluster that was started. Its nodes end when this is dropped.
#[derive(Debug)]
pub struct RunningCluster {
    /// The data nodes, in the order of their ids. A measurement may take some of them away.
    pub data_nodes: Vec<Node>,
    management_nodes: Vec<Node>,
    folder: PathBuf,
    ready_after: Duration,
}

impl ClusterProgram {
    /// Two data nodes that both have all rows, and nobody who arbitrates.
    pub fn two_replicas(node: NodeProgram) -> Self {
        ClusterProgram { node, data_nodes: 2, replicas: 2, management_nodes: 0 }
    }

    /// Starts all nodes in empty folders and waits until they are ready. The thread that does must not end before the
    /// nodes: they end with it.
    ///
    /// # Errors
    /// One of them can't be started, or ends.
    pub fn start(&self) -> Result<RunningCluster> {
        let folder = &self.node.folder;
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
        let file = self.file();
        fs::write(&file, self.configuration()?).context(|| format!("cannot write {}", file.display()))?;
        let first_manager = self.data_nodes + 1;
        let managers = first_manager..first_manager + self.management_nodes;
        // Data nodes ask for their ticket when they begin.
        let managers = managers.map(|id| self.member(id, MemberKind::Management).start());
        let management_nodes = managers.collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        let members = (1..=self.data_nodes).map(|id| self.member(id, MemberKind::Data));
        // Each waits for the others.
        let starting = members.map(|member| member.begin()).collect::<Result<Vec<_>>>()?;
        let data_nodes = starting.into_iter().map(StartingNode::wait).collect::<Result<Vec<_>>>()?;
        let ready_after = begun.elapsed();
        Ok(RunningCluster { data_nodes, management_nodes, folder: folder.clone(), ready_after })
    }

    /// Starts a data node that has ended again, by the command that it was started with, and waits until it is ready:
    /// it has joined the others then.
    ///
    /// # Errors
    /// As for [`NodeProgram::start`].
    pub fn start_again(&self, id: u8) -> Result<Node> {
        self.member(id, MemberKind::Data).start_again()
    }

    /// Adds a node group to the file that describes the cluster: data nodes that are started from now on know it. Its
    /// data nodes are the last ones then; there are no management nodes.
    ///
    /// # Errors
    /// There are no ports for them, or the file can't be written.
    pub fn add_node_group(&mut self) -> Result<()> {
        assert_eq!(self.management_nodes, 0, "their ids come behind those of data nodes");
        let mut text = String::new();
        for (id, port) in (self.data_nodes + 1..).zip(free_ports(self.replicas.into())?) {
            write!(text, "[ndbd]\nNodeId={id}\nServerPort={port}\n").expect("a string takes all");
        }
        let file = self.file();
        let opened = fs::File::options().append(true).open(&file);
        opened
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .context(|| format!("cannot write {}", file.display()))?;
        self.data_nodes += self.replicas;
        Ok(())
    }

    /// Starts the last data nodes, so many, which join the others.
    ///
    /// # Errors
    /// As for [`NodeProgram::start`].
    pub fn start_last(&self, count: u8, running: &mut RunningCluster) -> Result<()> {
        for id in self.data_nodes - count + 1..=self.data_nodes {
            running.data_nodes.push(self.member(id, MemberKind::Data).start()?);
        }
        Ok(())
    }

    /// The file that describes the cluster.
    fn file(&self) -> PathBuf {
        self.node.folder.join("config.ini")
    }

    fn member(&self, id: u8, kind: MemberKind) -> NodeProgram {
        NodeProgram {
            folder: self.node.folder.join(format!("node-{id}")),
            member: Some(Member { file: self.file(), id, kind }),
            ..self.node.clone()
        }
    }

    fn configuration(&self) -> Result<String> {
        let mut text = format!("[ndbd default]\nNoOfReplicas={}\nHostName=127.0.0.1\n", self.replicas);
        let ports = free_ports(usize::from(self.data_nodes) + usize::from(self.management_nodes))?;
        let (of_data, of_managers) = ports.split_at(usize::from(self.data_nodes));
        for (id, port) in (1..).zip(of_data) {
            write!(text, "[ndbd]\nNodeId={id}\nServerPort={port}\n").expect("a string takes all");
        }
        for (id, port) in (self.data_nodes + 1..).zip(of_managers) {
            write!(text, "[ndb_mgmd]\nNodeId={id}\nHostName=127.0.0.1\nPortNumber={port}\n")
                .expect("a string takes all");
        }
        Ok(text)
    }
}

/// Ports that nobody has now.
fn free_ports(wanted: usize) -> Result<Vec<u16>> {
    // Below the ports that the system gives to connections, so that they are still free when the nodes listen. Far from
    // those of a process that was started just before this one, which tests ports at the same time.
    let first = 10_000 + (std::process::id().wrapping_mul(PORTS_APART) % 20_000) as u16;
    let is_free = |&port: &u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let ports: Vec<u16> = (first..32_000).filter(is_free).take(wanted).collect();
    if ports.len() < wanted {
        return Err(Failure::new(format!("no {wanted} ports from {first} on are free")));
    }
    Ok(ports)
}

impl RunningCluster {
    /// The addresses of all data nodes, as clients are given them.
    pub fn addresses(&self) -> String {
        self.data_nodes.iter().map(Node::address).collect::<Vec<_>>().join(",")
    }

    /// The process ids of the data nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.data_nodes.iter().map(Node::pid).collect()
    }

    /// The time from before the processes of the data nodes were made until all of them were ready.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Stops the nodes that are left, and removes the cluster's folder. One that is only dropped leaves it: the logs
    /// are in it.
    ///
    /// # Errors
    /// One of them does not stop.
    pub fn stop(self) -> Result<()> {
        self.data_nodes.into_iter().chain(self.management_nodes).try_for_each(Node::stop)?;
        fs::remove_dir_all(&self.folder).context(|| format!("cannot remove {}", self.folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_all_nodes() {
        let node = NodeProgram {
            program: "vinga".into(),
            folder: "nowhere".into(),
            data_memory: None,
            parameters: Vec::new(),
            member: None,
        };
        let cluster = ClusterProgram::two_replicas(node);
        let text = cluster.configuration().unwrap();
        assert!(text.starts_with("[ndbd default]\nNoOfReplicas=2\n") && !text.contains("mgmd"), "{text}");
        let cluster = ClusterProgram { management_nodes: 1, ..cluster };
        let text = cluster.configuration().unwrap();
        let numbers = |name: &str| -> Vec<u16> {
            text.lines().filter_map(|line| line.strip_prefix(name)?.parse().ok()).collect()
        };
        assert_eq!(numbers("NodeId="), [1, 2, 3]);
        let mut ports = numbers("ServerPort=");
        ports.extend(numbers("PortNumber="));
        ports.dedup();
        assert!(ports.len() == 3 && ports.iter().all(|port| (10_000..32_000).contains(port)), "{text}");
    }
}
