//! A management node: it gives the data nodes of a cluster their configuration, and arbitrates between them.
//!
//! Data nodes that start ask it for the configuration, of which it numbers the generations
//! (`docs/protocols/configuration.md`). It takes the ticket of the first view from the one that makes it, and decides
//! which data nodes go on when they have lost each other (`vinga_agreement::Arbitrator`,
//! `docs/protocols/agreement.md`). On disk it keeps the number of the generation only: one that starts again arbitrates
//! for nobody, until the cluster begins anew.
//!
//! Little is asked of it, and seldom: a thread for each connection, which answers one request after the other.

mod addresses;
mod cluster_log;
mod connection;
mod fetch;
mod generation;
mod handout;
mod log_page;
mod log_reader;
mod pending;
mod repeated;
mod report;
mod server;

pub use addresses::ManagementAddresses;
pub use fetch::{Fetched, NotFetched, fetch};
pub use handout::Handout;
pub use log_page::{ClusterLogLine, read_cluster_log};
pub use log_reader::ClusterLogReader;
pub use report::Reports;
pub use server::{ManagementNode, ManagementSettings};

use rustix::process::Resource;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_config::ManagementConfiguration;
use vinga_key::key_of_node;
use vinga_runtime::memory::raise_to_hard_limit;
use vinga_runtime::termination::Termination;
use vinga_wire::configuration::CONFIGURATION_BYTES_MAX;

impl ManagementSettings {
    /// The settings that follow from a configuration, which was read from this text. The generations are counted in
    /// this folder, if there is one.
    ///
    /// # Errors
    /// A text: `HostName` has no address, there is no cluster key where others could connect, the text is too long to
    /// be handed out, or the folder can't be used.
    pub fn of(
        configuration: &ManagementConfiguration,
        text: String,
        folder: Option<&Path>,
    ) -> Result<Self, String> {
        if text.len() > CONFIGURATION_BYTES_MAX {
            return Err(format!(
                "the configuration file has {} bytes; a management node hands out {CONFIGURATION_BYTES_MAX} at most",
                text.len()
            ));
        }
        let ManagementConfiguration { file, own, cluster, data_nodes, .. } = configuration;
        let listen = resolve(&own.host, own.port)?;
        let hosts = data_nodes.all().iter().map(|node| (NodeId(node.node), node.host.clone())).collect();
        let handout = Handout { stamp: generation::stamp(folder, &text)?, text, hosts };
        Ok(ManagementSettings {
            node: NodeId(own.node),
            cluster: cluster.clone(),
            data_nodes: data_nodes.all().iter().map(|node| (NodeId(node.node), node.group)).collect(),
            key: key_of_node(own.key_file.as_deref(), Some(file), listen)?.map(Arc::new),
            handout,
            folder: folder.map(Path::to_owned),
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

/// Runs a management node until the process is asked to stop (`SIGTERM`, `SIGINT`). `ready` is called when it listens.
/// To be called by a process's `main` before it has started threads.
///
/// # Errors
/// A text: it can't listen.
pub fn run(settings: ManagementSettings, ready: impl FnOnce(&ManagementNode)) -> Result<(), String> {
    let termination = Termination::prepare().map_err(|why| format!("signals can't be waited for: {why}"))?;
    // A data node has several connections, and nobody is to be refused for want of descriptors.
    raise_to_hard_limit(Resource::Nofile);
    let node = ManagementNode::start(settings)?;
    ready(&node);
    let signal = termination.wait();
    log::info!(target: "node", "the node is asked to stop by {signal}");
    node.stop();
    log::info!(target: "node", "the node has stopped");
    Ok(())
}
