//! What a cluster that runs has begun with, beside its file, which may have been changed since: that holds when all
//! nodes are started again.

use crate::admin::gone;
use crate::admin::show::Node;
use crate::data::host_and_port;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use vinga::InfoTable;
use vinga::blocking::Cluster;
use vinga_config::configuration::Configuration;
use vinga_config::data_nodes::DataNodes;
use vinga_config::file::ConfigFile;
use vinga_config::parameters::Parameter;
use vinga_config::{ConfiguredNodes, Machine};
use vinga_datanode::this_machine;

/// The data nodes of a cluster, those that have ended among them.
#[derive(PartialEq, Eq, Debug)]
pub struct Begun {
    /// By their numbers.
    nodes: BTreeMap<u8, Begin>,
}

/// What a data node has begun with.
#[derive(PartialEq, Eq, Debug)]
struct Begin {
    group: u16,
    /// Where it listens.
    address: String,
}

impl Begun {
    /// Those of a cluster that begins now.
    pub fn now(file: &DataNodes) -> Self {
        let begin = |host: &str, port, group| Begin { group, address: host_and_port(host, port) };
        Begun {
            nodes: file.all().iter().map(|one| (one.node, begin(&one.host, one.port, one.group))).collect(),
        }
    }

    /// Those of a cluster; `None` if it does not say that.
    pub fn of_running(cluster: &Cluster) -> Option<Self> {
        let rows = cluster.info(InfoTable::Nodes).ok()?;
        let members = Node::all(&rows).filter(|node| node.kind == "data");
        let members = members.map(|node| (node.id, node.group, node.address));
        let lost = gone::lost(cluster).into_iter().map(|(node, lost)| (node, lost.group, lost.address));
        let mut nodes = BTreeMap::new();
        for (node, group, address) in members.chain(lost) {
            let group = u16::try_from(group?).ok()?;
            nodes.entry(u8::try_from(node).ok()?).or_insert(Begin { group, address });
        }
        (!nodes.is_empty()).then_some(Begun { nodes })
    }

    /// Whether the cluster that runs can go on with the file of its folder, on this machine, once its nodes are started
    /// again one after the other.
    ///
    /// # Errors
    /// A text: the file does not describe it, or asks for more memory than there is.
    pub fn check(cluster: &Cluster, path: &Path, file: &ConfigFile) -> Result<(), String> {
        let machine = this_machine();
        let nodes = ConfiguredNodes::new(file, &machine).map_err(|errors| errors.to_string())?;
        let running =
            Begun::of_running(cluster).ok_or("the data nodes do not say with what they have begun")?;
        if let Some(difference) = running.differences(&nodes.data_nodes).first() {
            let path = path.display();
            return Err(format!("{path} does not describe the cluster that runs: {difference}"));
        }
        check_memory(file, &machine).map(drop)
    }

    /// Whether the cluster has, or may have had, a data node of the file. No present member need have seen one leave.
    /// But each node group that the cluster has begun with has a member, as it can't go on without: so those of other
    /// groups were added since.
    pub fn may_have(&self, node: u8, file: &DataNodes) -> bool {
        let group = file.get(node).map(|one| one.group);
        self.nodes.contains_key(&node) || self.nodes.values().any(|begin| Some(begin.group) == group)
    }

    /// How many data nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of node groups.
    pub fn groups(&self) -> usize {
        self.by_group().len()
    }

    /// Copies of the data.
    pub fn replicas(&self) -> usize {
        self.by_group().values().map(Vec::len).max().unwrap_or(1)
    }

    fn by_group(&self) -> BTreeMap<u16, Vec<u8>> {
        let mut groups: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for (node, begin) in &self.nodes {
            groups.entry(begin.group).or_default().push(*node);
        }
        groups
    }

    /// Whether a file has all these data nodes, in the same node groups. It may have more.
    fn stands_in(&self, file: &Begun) -> bool {
        self.nodes
            .iter()
            .all(|(node, begin)| file.nodes.get(node).is_some_and(|one| one.group == begin.group))
    }

    fn describe(&self) -> String {
        let nodes: Vec<String> =
            self.nodes.iter().map(|(node, begin)| format!("{node} ({})", begin.group)).collect();
        format!("{} with NoOfReplicas={}", nodes.join(", "), self.replicas())
    }

    /// Whether management nodes with this file decide between these data nodes.
    pub fn is_of(&self, file: &DataNodes) -> bool {
        self.stands_in(&Begun::now(file))
    }

    /// In sentences what a file has otherwise, but for data nodes that were added.
    pub fn differences(&self, file: &DataNodes) -> Vec<String> {
        let file = Begun::now(file);
        let mut differences = Vec::new();
        if !self.stands_in(&file) {
            differences.push(format!(
                "the data nodes (node groups) of the cluster that runs are {}, and those of the file {}",
                self.describe(),
                file.describe()
            ));
        }
        for (node, begin) in &self.nodes {
            if let Some(other) =
                file.nodes.get(node).filter(|other| is_elsewhere(&begin.address, &other.address))
            {
                let (here, there) = (&begin.address, &other.address);
                differences.push(format!("data node {node} listens on {here}, and by the file on {there}"));
            }
        }
        differences
    }
}

/// Each data node's `DataMemory`, in bytes, of which none is more than the machine has.
///
/// # Errors
/// A text: all errors of a node's configuration, or it has more.
pub fn check_memory(file: &ConfigFile, machine: &Machine) -> Result<Vec<(u8, u64)>, String> {
    let memory = file.data_node_ids().into_iter().map(|id| {
        let own = id.to_string();
        let configuration = Configuration::new(Some(file), &[(Parameter::NodeId.name(), &own)], machine);
        let configuration = configuration.map_err(|errors| errors.to_string())?;
        let bytes = configuration.parameters.integer(Parameter::DataMemory);
        if bytes > machine.memory_bytes {
            let (wanted, has) = (bytes >> 20, machine.memory_bytes >> 20);
            return Err(format!(
                "data node {id} would have a DataMemory of {wanted} MiB, and this machine has {has} MiB"
            ));
        }
        Ok((id, bytes))
    });
    memory.collect()
}

/// Whether two addresses are not the same place. A name may have any address.
fn is_elsewhere(one: &str, other: &str) -> bool {
    let parts = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        Some((host, port.parse::<u16>().ok().filter(|&port| port != 0)?))
    };
    match (parts(one), parts(other)) {
        (Some((one_host, one_port)), Some((other_host, other_port))) => {
            one_port != other_port || one_host.zip(other_host).is_some_and(|(one, other)| one != other)
        }
        _ => false,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn begun(nodes: &[(u8, u16, &str)]) -> Begun {
        let begin = |group, address: &str| Begin { group, address: address.to_owned() };
        Begun { nodes: nodes.iter().map(|&(node, group, address)| (node, begin(group, address))).collect() }
    }

    fn file(text: &str) -> DataNodes {
        let read = ConfigFile::parse("config.ini", text);
        ConfiguredNodes::new(&read, &this_machine()).expect("it is good").data_nodes
    }

    pub fn with(replicas: u8, nodes: &[(u8, u16)]) -> DataNodes {
        let mut text = format!("[ndbd default]\nNoOfReplicas={replicas}\nDiskless=yes\nHostName=127.0.0.1\n");
        for (node, port) in nodes {
            text.push_str(&format!("[ndbd]\nNodeId={node}\nServerPort={port}\n"));
        }
        file(&text)
    }

    #[test]
    fn what_was_changed_in_the_file_is_said() {
        let running = begun(&[(1, 0, "127.0.0.1:71"), (2, 0, "127.0.0.1:72")]);
        assert_eq!((running.count(), running.groups(), running.replicas()), (2, 1, 2));
        let same = with(2, &[(1, 71), (2, 72)]);
        assert!(running.is_of(&same) && running.differences(&same).is_empty());
        assert_eq!(Begun::now(&same), running);

        let apart = with(1, &[(1, 71), (2, 72)]);
        assert!(!running.is_of(&apart));
        assert_eq!(
            running.differences(&apart),
            [
                "the data nodes (node groups) of the cluster that runs are 1 (0), 2 (0) with NoOfReplicas=2, and those of the \
              file 1 (0), 2 (1) with NoOfReplicas=1"
            ]
        );
        let more = with(2, &[(1, 71), (2, 72), (5, 75), (6, 76)]);
        assert!(running.is_of(&more) && running.differences(&more).is_empty(), "they can be added");
        let less = with(1, &[(1, 71)]);
        assert!(
            !running.is_of(&less) && running.differences(&less)[0].ends_with("1 (0) with NoOfReplicas=1")
        );
        let elsewhere = with(2, &[(1, 71), (2, 79)]);
        assert!(running.is_of(&elsewhere));
        assert_eq!(
            running.differences(&elsewhere),
            ["data node 2 listens on 127.0.0.1:72, and by the file on 127.0.0.1:79"]
        );
    }

    #[test]
    fn names_may_be_any_host() {
        assert!(!is_elsewhere("127.0.0.1:7", "localhost:7") && is_elsewhere("127.0.0.1:7", "localhost:8"));
        assert!(is_elsewhere("127.0.0.1:7", "127.0.0.2:7") && is_elsewhere("[::1]:7", "[::2]:7"));
        assert!(!is_elsewhere("127.0.0.1:7", "127.0.0.1:0") && !is_elsewhere("", "127.0.0.1:7"));
    }
}
