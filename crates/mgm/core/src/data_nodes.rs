//! The data nodes of a cluster, as its file describes them, and the node groups that they form.
//!
//! All data nodes read the same file, so each knows where the others are, and in which group. A file without `[data]`
//! sections, or no file, describes a cluster of one.
//!
//! - A node group has `NoOfReplicas` data nodes. Nodes with a `NodeGroup` come first; the others fill the groups in the
//!   order of their numbers.
//! - With several data nodes, each needs a `ServerPort` that the others know, and nothing is kept on disk.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::config_error::{ConfigError, Origin, enumerate};
use crate::file::{ConfigFile, NodeSection};
use crate::parameters::{Default, Parameter, Parameters};
use crate::value::{Kind, Value};

/// A data node, as all data nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataNode {
    /// Its number.
    pub node: u8,
    /// `HostName`.
    pub host: String,
    /// `ServerPort`; 0, for any free port, only if it is the only data node.
    pub port: u16,
    /// Its node group; they are numbered from 0, and each has as many nodes as there are replicas.
    pub group: u16,
}

/// All data nodes of a cluster, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataNodes {
    /// In the order of their numbers.
    all: Vec<DataNode>,
    replicas: u8,
}

impl DataNodes {
    /// All of them, in the order of their numbers.
    pub fn all(&self) -> &[DataNode] {
        &self.all
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The one with this number.
    pub fn get(&self, node: u8) -> Option<&DataNode> {
        self.all.iter().find(|one| one.node == node)
    }

    /// All but the one with this number.
    pub fn others(&self, node: u8) -> impl Iterator<Item = &DataNode> {
        self.all.iter().filter(move |one| one.node != node)
    }

    /// Copies of the data, which is the number of nodes of each group.
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// Number of node groups.
    pub fn groups(&self) -> u16 {
        self.all.len() as u16 / u16::from(self.replicas)
    }

    /// The data nodes of a cluster with this file, for the node that has these parameters; `None` if there are errors.
    /// What depends on a parameter of which some value can't be read (`doubtful`) is not checked.
    pub(crate) fn read(
        file: Option<&ConfigFile>,
        parameters: &Parameters,
        doubtful: &[Parameter],
        errors: &mut Vec<ConfigError>,
    ) -> Option<Self> {
        let several = file.filter(|file| file.nodes().len() > 1);
        let described = several.map(|file| Description { file, sections: sections(file), doubtful });
        let before = errors.len();
        let are_numbered = !doubtful.contains(&Parameter::NodeId);
        if let Some(described) = described.as_ref().filter(|_| are_numbered) {
            described.check_places(errors);
            described.check_data_managers(errors);
            described.check_flags(parameters, errors);
        }
        let nodes = described.as_ref().map_or(1, |described| described.sections.len());
        let groups = match groups(nodes, parameters, doubtful) {
            Ok(Some(groups)) => match &described {
                Some(described) => described.assign_groups(groups, errors),
                None => only_group(parameters, errors),
            },
            Ok(None) => Vec::new(),
            Err(error) => {
                errors.push(error);
                Vec::new()
            }
        };
        // A value that can't be read has been reported.
        if errors.len() > before || !doubtful.is_empty() {
            return None;
        }
        let all = match &described {
            Some(described) => described.data_nodes(&groups),
            None => vec![only_node(parameters)],
        };
        Some(DataNodes { all, replicas: parameters.integer(Parameter::NoOfReplicas) as u8 })
    }
}

/// The node groups of a cluster.
#[derive(Clone, Copy)]
struct Groups {
    count: u16,
    /// Nodes of each.
    size: u16,
}

/// As many groups as `NoOfReplicas` allows; `None` if that is not known.
fn groups(
    nodes: usize,
    parameters: &Parameters,
    doubtful: &[Parameter],
) -> Result<Option<Groups>, ConfigError> {
    if doubtful.contains(&Parameter::NoOfReplicas) {
        return Ok(None);
    }
    let replicas = parameters.integer(Parameter::NoOfReplicas) as usize;
    if nodes.is_multiple_of(replicas) {
        return Ok(Some(Groups { count: (nodes / replicas) as u16, size: replicas as u16 }));
    }
    let Kind::Integer { max, .. } = Parameter::NoOfReplicas.description().kind else {
        panic!("NoOfReplicas is an integer")
    };
    let allowed: Vec<usize> = (1..=max as usize).filter(|&replicas| nodes.is_multiple_of(replicas)).collect();
    let counted = match nodes {
        1 => "there is one data node, as each [data] section of the file is one".to_owned(),
        _ => format!("the {nodes} data nodes can't be divided into groups of {replicas}"),
    };
    let problem = format!("{counted}; allowed: {}", enumerate(&allowed, "and"));
    Err(parameters
        .refuse(Parameter::NoOfReplicas, problem)
        .at(parameters.origin(Parameter::NoOfReplicas).clone()))
}

/// The group of the only data node.
fn only_group(parameters: &Parameters, errors: &mut Vec<ConfigError>) -> Vec<u16> {
    if parameters.optional_integer(Parameter::NodeGroup).is_some_and(|group| group > 0) {
        let problem = "there is one data node, and so one node group; allowed: 0";
        let origin = parameters.origin(Parameter::NodeGroup).clone();
        errors.push(parameters.refuse(Parameter::NodeGroup, problem).at(origin));
    }
    vec![0]
}

fn only_node(parameters: &Parameters) -> DataNode {
    DataNode {
        node: parameters.integer(Parameter::NodeId) as u8,
        host: parameters.text(Parameter::HostName).unwrap_or_default().to_owned(),
        port: parameters.integer(Parameter::ServerPort) as u16,
        group: 0,
    }
}

/// The sections of a file, in the order of their numbers.
fn sections(file: &ConfigFile) -> Vec<&NodeSection> {
    let mut sections: Vec<&NodeSection> = file.nodes().iter().collect();
    sections.sort_by_key(|section| section.id);
    sections
}

/// What a file says about several data nodes.
struct Description<'a> {
    file: &'a ConfigFile,
    sections: Vec<&'a NodeSection>,
    doubtful: &'a [Parameter],
}

impl<'a> Description<'a> {
    /// A value that the file has for one of the nodes, in its own section or in that for all.
    fn value(&self, section: &'a NodeSection, parameter: Parameter) -> Option<&'a Value> {
        let entry = self.file.entry_for(section, parameter)?;
        Some(&entry.value)
    }

    fn integer(&self, section: &'a NodeSection, parameter: Parameter) -> Option<u64> {
        match self.value(section, parameter)? {
            Value::Integer(number) => Some(*number),
            other => panic!("{} is {other:?}, no integer", parameter.name()),
        }
    }

    fn host(&self, section: &'a NodeSection) -> &'a str {
        match (self.value(section, Parameter::HostName), Parameter::HostName.description().default) {
            (Some(Value::Text(host)), _) => host,
            (None, Default::Text(host)) => host,
            (value, _) => panic!("HostName is {value:?}, no text"),
        }
    }

    /// An error about an entry of a node's own section, if it has that, else about the section.
    fn error(&self, section: &NodeSection, parameters: &[Parameter], problem: String) -> ConfigError {
        let entry = parameters.iter().find_map(|&parameter| section.entry(parameter));
        let (line, piece) = match entry {
            Some(entry) => (entry.line, format!("{}={}", entry.parameter.name(), entry.written)),
            None => (section.line, section.header.clone()),
        };
        ConfigError::new(self.file.origin(line), &piece, problem)
    }

    /// Each node is somewhere, and no two at the same place.
    fn check_places(&self, errors: &mut Vec<ConfigError>) {
        let is_doubtful = |parameter| self.doubtful.contains(&parameter);
        if is_doubtful(Parameter::ServerPort) || is_doubtful(Parameter::HostName) {
            return;
        }
        let mut places: Vec<(&str, u64, u64)> = Vec::new();
        for &section in &self.sections {
            let id = section.id;
            let port = self.integer(section, Parameter::ServerPort);
            let Some(port) = port.filter(|&port| port > 0) else {
                let problem = format!(
                    "data node {id} has no ServerPort of its own; where there are several data nodes, each needs one that \
                     the others know; allowed: 1 to 65535"
                );
                errors.push(self.error(section, &[Parameter::ServerPort], problem));
                continue;
            };
            let host = self.host(section);
            let earlier =
                places.iter().find(|(other, same, _)| *same == port && host.eq_ignore_ascii_case(other));
            if let Some((_, _, earlier)) = earlier {
                let problem = format!(
                    "data node {id} would be at {host}, port {port}, where data node {earlier} is; give it another \
                     ServerPort, or its own HostName"
                );
                errors.push(self.error(section, &[Parameter::ServerPort, Parameter::HostName], problem));
            }
            places.push((host, port, id));
        }
    }

    /// A partition belongs to the data managers with the same number on all nodes of a group.
    fn check_data_managers(&self, errors: &mut Vec<ConfigError>) {
        let parts = Parameter::NoOfFragmentLogParts;
        if self.doubtful.contains(&parts) {
            return;
        }
        let shown = |parts: Option<u64>| parts.map_or_else(|| "none".to_owned(), |parts| format!("{parts}"));
        let (first, others) = self.sections.split_first().expect("there are several");
        let expected = self.integer(first, parts);
        for &section in others.iter().filter(|section| self.integer(section, parts) != expected) {
            let problem = format!(
                "all data nodes have the same number of data managers, and data node {} has NoOfFragmentLogParts {}, data \
                 node {} {}; write it under [data default]",
                first.id,
                shown(expected),
                section.id,
                shown(self.integer(section, parts))
            );
            errors.push(self.error(section, &[parts], problem));
        }
    }

    /// The others read the file, and not the flags of this node.
    fn check_flags(&self, parameters: &Parameters, errors: &mut Vec<ConfigError>) {
        let own = parameters.integer(Parameter::NodeId);
        let Some(&section) = self.sections.iter().find(|section| section.id == own) else { return };
        for parameter in [Parameter::HostName, Parameter::ServerPort, Parameter::NodeGroup] {
            let is_flag = *parameters.origin(parameter) == Origin::Flag;
            if is_flag && parameters.get(parameter) != self.value(section, parameter) {
                let problem = format!(
                    "{} has another value for data node {own}, and that is what the other data nodes read; change it there",
                    self.file.name()
                );
                errors.push(parameters.refuse(parameter, problem).at(Origin::Flag));
            }
        }
    }

    /// The group of each node.
    fn assign_groups(&self, groups: Groups, errors: &mut Vec<ConfigError>) -> Vec<u16> {
        let Groups { count, size } = groups;
        if [Parameter::NodeGroup, Parameter::NodeId].iter().any(|one| self.doubtful.contains(one)) {
            return Vec::new();
        }
        let mut members: Vec<Vec<u64>> = vec![Vec::new(); usize::from(count)];
        let mut assigned: Vec<Option<u16>> = vec![None; self.sections.len()];
        for (assigned, section) in assigned.iter_mut().zip(&self.sections) {
            let Some(wanted) = self.integer(section, Parameter::NodeGroup) else { continue };
            let Some(members) = members.get_mut(wanted as usize) else {
                let problem = format!(
                    "{} data nodes in groups of {size} (NoOfReplicas) are {count} node groups; allowed: 0 to {}",
                    self.sections.len(),
                    count - 1
                );
                errors.push(self.error(section, &[Parameter::NodeGroup], problem));
                continue;
            };
            if members.len() == usize::from(size) {
                let problem = format!(
                    "node groups have {size} data nodes each (NoOfReplicas), and this one has {} already",
                    enumerate(members, "and")
                );
                errors.push(self.error(section, &[Parameter::NodeGroup], problem));
                continue;
            }
            members.push(section.id);
            *assigned = Some(wanted as u16);
        }
        let mut fill = |section: &NodeSection| {
            let free = members.iter().position(|members| members.len() < usize::from(size));
            let group = free.expect("there is room for all nodes that have not been refused");
            members[group].push(section.id);
            group as u16
        };
        let both = assigned.iter().zip(&self.sections);
        both.map(|(assigned, section)| assigned.unwrap_or_else(|| fill(section))).collect()
    }

    fn data_nodes(&self, groups: &[u16]) -> Vec<DataNode> {
        let node = |(&section, &group): (&&NodeSection, &u16)| DataNode {
            node: section.id as u8,
            host: self.host(section).to_owned(),
            port: self.integer(section, Parameter::ServerPort).expect("it was checked") as u16,
            group,
        };
        self.sections.iter().zip(groups).map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpu;
    use crate::machine::Machine;

    fn read(text: &str) -> DataNodes {
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        let file = ConfigFile::parse("f", text);
        let flags = [("NodeId", "1")];
        crate::Configuration::new(Some(&file), &flags, &machine).expect("it is good").data_nodes
    }

    fn groups(text: &str) -> Vec<(u8, u16)> {
        read(text).all().iter().map(|node| (node.node, node.group)).collect()
    }

    #[test]
    fn every_node_knows_all_of_them() {
        let text = "[ndbd default]\nNoOfReplicas=2\nServerPort=7\n[ndbd]\nNodeId=3\nHostName=b\nServerPort=8\n\
                    [ndbd]\nNodeId=1\nHostName=a\n";
        let nodes = read(text);
        let node = |node, host: &str, port| DataNode { node, host: host.into(), port, group: 0 };
        assert_eq!(nodes.all(), [node(1, "a", 7), node(3, "b", 8)]);
        assert_eq!((nodes.replicas(), nodes.groups(), nodes.are_several()), (2, 1, true));
        assert_eq!(nodes.others(1).collect::<Vec<_>>(), [&node(3, "b", 8)]);
        assert_eq!((nodes.get(3).map(|node| node.port), nodes.get(2)), (Some(8), None));
        let one = read("[data]\nServerPort=0\n");
        assert_eq!(one.all(), [node(1, "localhost", 0)]);
        assert_eq!((one.replicas(), one.groups(), one.are_several()), (1, 1, false));
    }

    #[test]
    fn groups_are_made_in_the_order_of_numbers() {
        let cluster = |replicas: u8, own: [&str; 4]| {
            let mut text = format!("[data default]\nNoOfReplicas={replicas}\n");
            for (id, own) in (1..).zip(own) {
                text.push_str(&format!("[data]\nNodeId={id}\nServerPort={id}\n{own}\n"));
            }
            groups(&text)
        };
        let none = [""; 4];
        assert_eq!(cluster(1, none), [(1, 0), (2, 1), (3, 2), (4, 3)]);
        assert_eq!(cluster(2, none), [(1, 0), (2, 0), (3, 1), (4, 1)]);
        assert_eq!(cluster(4, none), [(1, 0), (2, 0), (3, 0), (4, 0)]);
        let alternating = ["NodeGroup=0", "NodeGroup=1", "NodeGroup=0", "NodeGroup=1"];
        assert_eq!(cluster(2, alternating), [(1, 0), (2, 1), (3, 0), (4, 1)]);
        assert_eq!(cluster(2, ["", "NodeGroup=0", "NodeGroup=1", ""]), [(1, 0), (2, 0), (3, 1), (4, 1)]);
        assert_eq!(cluster(2, ["", "", "NodeGroup=0", ""]), [(1, 0), (2, 1), (3, 0), (4, 1)]);
    }
}
