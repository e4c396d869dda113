//! Which cluster a command is about: where its data nodes are, and what is known of its nodes before any of them is
//! asked.
//!
//! Data nodes know those that are in their view, and no others. Which nodes a cluster is configured with stands in
//! `config.ini` of its folder, and management nodes hand it out.

use crate::arguments::ConnectArguments;
use crate::cluster_file::ClusterFile;
use crate::data::host_and_port;
use crate::data_node;
use crate::management_node;
use std::path::{Path, PathBuf};
use vinga_base::NodeId;
use vinga_config::ConfiguredNodes;
use vinga_config::file::ConfigFile;
use vinga_config::management::ManagementNode;
use vinga_datanode::this_machine;
use vinga_mgm::{Fetched, ManagementAddresses, NotFetched, fetch};
use vinga_runtime::node_folder::NodeFolder;
use vinga_wire::configuration::ConfigurationReader;

/// A cluster as the command line names it.
pub struct Place<'a> {
    connect: &'a ConnectArguments,
    /// What a management node has said, if the cluster is found by that.
    handed_out: Option<HandedOut>,
}

/// A configuration from a management node.
struct HandedOut {
    nodes: ConfiguredNodes,
    /// The file of the cluster's key that was given with the management node's address.
    key: Option<PathBuf>,
    /// The management node that has answered, and the address by which it has.
    by: u8,
    from: String,
}

/// The nodes that a cluster is configured with, as far as they are known here.
pub struct Configured {
    /// The data nodes, in the order of their ids.
    pub data: Vec<ConfiguredData>,
    /// The management nodes, in the order of their ids.
    pub management: Vec<ConfiguredManagement>,
    /// The one that the command names, if it does.
    pub named: Option<u8>,
}

/// A data node that the cluster has, whether it runs or not.
pub struct ConfiguredData {
    /// Its id.
    pub node: u8,
    /// Its node group, if that is known.
    pub group: Option<u16>,
    /// Where it listens, as clients write it, with the key's file; `None` if that is not known.
    pub address: Option<String>,
    /// Its folder, if that is on this machine.
    pub folder: Option<NodeFolder>,
}

/// A management node that the cluster has, whether it runs or not.
pub struct ConfiguredManagement {
    /// Its id.
    pub node: u8,
    /// Where it listens by the configuration.
    pub address: String,
    /// How to ask it, or why that is not known.
    way: Result<ManagementAddresses, String>,
    /// Its folder, if that is on this machine.
    pub folder: Option<NodeFolder>,
}

impl ConfiguredManagement {
    /// One that can't be asked, with this folder.
    #[cfg(test)]
    pub fn in_folder(node: u8, folder: &Path) -> Self {
        let folder = Some(NodeFolder::at(folder.to_owned()));
        ConfiguredManagement { node, address: "h:1186".to_owned(), way: Err("it is gone".to_owned()), folder }
    }

    /// Where to ask it.
    ///
    /// # Errors
    /// Why it can't be asked.
    pub fn way(&self) -> Result<&ManagementAddresses, String> {
        self.way.as_ref().map_err(Clone::clone)
    }

    /// Asks it for its configuration.
    ///
    /// # Errors
    /// There was no answer, or it does not let this command in.
    pub fn ask(&self) -> Result<Fetched, NotFetched> {
        let fetched = fetch(self.way().map_err(NotFetched::NotReached)?, ConfigurationReader::Onlooker)?;
        if fetched.node == NodeId(self.node) {
            Ok(fetched)
        } else {
            Err(NotFetched::NotReached(format!("management node {} answers in its place", fetched.node)))
        }
    }
}

impl<'a> Place<'a> {
    /// The cluster of these arguments, or that of the management nodes at these addresses.
    ///
    /// # Errors
    /// A text: no management node answers.
    pub fn of(connect: &'a ConnectArguments, management: Option<&str>) -> Result<Self, String> {
        let Some(addresses) = management else { return Ok(Place { connect, handed_out: None }) };
        let addresses = ManagementAddresses::parse(addresses).map_err(|why| format!("--mgm {why}"))?;
        let fetched = fetch(&addresses, ConfigurationReader::Onlooker).map_err(|why| match why {
            NotFetched::NotReached(why) => format!("--mgm: no management node answers: {why}"),
            NotFetched::Refused(why) => format!("--mgm: no configuration is given: {why}"),
        })?;
        let file = ConfigFile::parse(&format!("configuration of {}", fetched.from), &fetched.text);
        let nodes = ConfiguredNodes::new(&file, &this_machine()).map_err(|errors| errors.to_string())?;
        let (by, from) = (fetched.node.0, fetched.from);
        Ok(Place { connect, handed_out: Some(HandedOut { nodes, key: addresses.key, by, from }) })
    }

    /// The addresses of data nodes, with commas between them.
    ///
    /// # Errors
    /// A text: no cluster is named, or none of its data nodes runs in the folder.
    pub fn address(&self) -> Result<String, String> {
        let Some(HandedOut { nodes, key, .. }) = &self.handed_out else { return self.connect.address() };
        let addresses = nodes.data_nodes.all().iter().map(|node| host_and_port(&node.host, node.port));
        Ok(with_key(key.as_deref(), &addresses.collect::<Vec<_>>().join(",")))
    }

    /// The cluster's folder, if it is found by that.
    pub fn folder(&self) -> Option<PathBuf> {
        (self.handed_out.is_none() && self.connect.is_by_folder()).then(|| self.connect.folder())
    }

    /// The nodes of the cluster; `None` if it is found by addresses of data nodes, which know them in part only.
    ///
    /// # Errors
    /// A text: the folder's file can't be read, or has errors.
    pub fn configured(&self) -> Result<Option<Configured>, String> {
        if let Some(HandedOut { nodes, key, by, from }) = &self.handed_out {
            let management = |node: &ManagementNode| {
                let address = host_and_port(&node.host, node.port);
                // By the configuration's address it may not be reached from here.
                let reached = if node.node == *by { from } else { &address };
                let way = ManagementAddresses { key: key.clone(), addresses: vec![reached.clone()] };
                ConfiguredManagement { node: node.node, address, way: Ok(way), folder: None }
            };
            let configured = Configured::of(nodes, key.as_deref(), |_| None, management);
            return Ok(Some(Configured { named: Some(*by), ..configured }));
        }
        self.folder().as_deref().map(Configured::in_folder).transpose()
    }
}

impl Configured {
    /// Those of a cluster's folder: by its file, or else the one data node that is there.
    ///
    /// # Errors
    /// A text: the folder or the file can't be read, or the file has errors.
    pub fn in_folder(cluster: &Path) -> Result<Self, String> {
        let file = ClusterFile::of(cluster);
        let here = data_node::numbers(cluster)
            .map_err(|error| format!("cannot look into {}: {error}", cluster.display()))?;
        let folder = |node: u8| here.contains(&node).then(|| NodeFolder::new(cluster, node));
        let Some(read) = file.read()? else {
            let only = |&node: &u8| ConfiguredData { node, group: None, address: None, folder: folder(node) };
            let data = here.iter().map(only).collect();
            return Ok(Configured { data, management: Vec::new(), named: None });
        };
        let nodes = ConfiguredNodes::new(&read, &this_machine()).map_err(|errors| errors.to_string())?;
        let management = |node: &ManagementNode| {
            let own = management_node::folder(cluster, node.node);
            ConfiguredManagement {
                node: node.node,
                address: host_and_port(&node.host, node.port),
                way: management_node::way(cluster, node),
                folder: own.path().is_dir().then_some(own),
            }
        };
        Ok(Configured::of(&nodes, nodes.key_file.as_deref().map(Path::new), folder, management))
    }

    fn of(
        nodes: &ConfiguredNodes,
        key: Option<&Path>,
        folder: impl Fn(u8) -> Option<NodeFolder>,
        management: impl Fn(&ManagementNode) -> ConfiguredManagement,
    ) -> Self {
        let data = nodes.data_nodes.all().iter().map(|node| ConfiguredData {
            node: node.node,
            group: Some(node.group),
            // One that is alone may take any port.
            address: (node.port != 0).then(|| with_key(key, &host_and_port(&node.host, node.port))),
            folder: folder(node.node),
        });
        let mut management: Vec<ConfiguredManagement> =
            nodes.management_nodes.iter().map(management).collect();
        management.sort_by_key(|node| node.node);
        Configured { data: data.collect(), management, named: None }
    }
}

fn with_key(key: Option<&Path>, addresses: &str) -> String {
    match key {
        Some(key) => format!("key={},{addresses}", key.display()),
        None => addresses.to_owned(),
    }
}
