//! A management node: the arbitrator of a cluster.
//!
//! It listens for data nodes of its cluster, takes the ticket of the first view from the one that makes it, and decides
//! which data nodes go on when they have lost each other (`vinga_agreement::Arbitrator`, `docs/protocols/agreement.md`). It
//! keeps nothing on disk: one that starts again refuses all, until the cluster begins anew.
//!
//! Little is asked of it, and seldom: a thread for each connection, which answers one request after the other.

mod connection;
mod probe;
mod server;

pub use probe::probe;
pub use server::{ManagementNode, ManagementSettings};

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_config::ManagementConfiguration;
use vinga_key::key_of_node;
use vinga_runtime::termination::Termination;

impl ManagementSettings {
    /// The settings that follow from a configuration.
    ///
    /// # Errors
    /// A text: `HostName` has no address, or there is no cluster key where others could connect.
    pub fn of(configuration: &ManagementConfiguration) -> Result<Self, String> {
        let ManagementConfiguration { own, cluster, data_nodes, .. } = configuration;
        let listen = resolve(&own.host, own.port)?;
        Ok(ManagementSettings {
            node: NodeId(own.node),
            cluster: cluster.clone(),
            data_nodes: data_nodes.all().iter().map(|node| (NodeId(node.node), node.group)).collect(),
            key: key_of_node(own.key_file.as_deref(), listen)?.map(Arc::new),
            listen,
        })
    }
}

/// The address that a host has for `port`.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| format!("HostName '{host}': {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("HostName '{host}' has no address"))
}

/// Runs a management node until the process is asked to stop (`SIGTERM`, `SIGINT`). `ready` is called when it listens. To be
/// called by a process's `main` before it has started threads.
///
/// # Errors
/// A text: it can't listen.
pub fn run(settings: ManagementSettings, ready: impl FnOnce(&ManagementNode)) -> Result<(), String> {
    let termination = Termination::prepare().map_err(|why| format!("signals can't be waited for: {why}"))?;
    let node = ManagementNode::start(settings)?;
    ready(&node);
    let signal = termination.wait();
    log::info!(target: "node", "the node is asked to stop by {signal}");
    node.stop();
    log::info!(target: "node", "the node has stopped");
    Ok(())
}
