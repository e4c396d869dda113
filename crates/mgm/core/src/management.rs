//! The management nodes of a cluster, as its file describes them. One of them arbitrates when data nodes lose each
//! other.
//!
//! Data nodes read the same file, and so know where management nodes are. NDB's other parameters of a management node
//! are allowed, with a warning: they have no effect.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config_error::{ConfigError, ConfigErrors, Origin, enumerate, suggestion};
use crate::configuration::Draft;
use crate::data_nodes::DataNodes;
use crate::file::{ConfigFile, Entry};
use crate::machine::Machine;
use crate::parameters::{Parameter, Parameters};
use crate::value::{Kind, Unit, Value};

/// Management nodes of a cluster, at most.
pub const MANAGEMENT_NODES_MAX: usize = 2;

/// The greatest number of a node.
pub(crate) const NODE_ID_MAX: u64 = 255;

/// The port on which management nodes listen, as NDB's do.
const PORT: u16 = 1186;

/// Like most clusters, all nodes of one without a `HostName` are on one machine.
const HOST: &str = "localhost";

const RANK: u8 = 1;

/// A management node, as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementNode {
    /// Its number.
    pub node: u8,
    /// `HostName`.
    pub host: String,
    /// `PortNumber`.
    pub port: u16,
    /// `ArbitrationRank`: one with 1 arbitrates rather than one with 2, and one with 0 never.
    pub rank: u8,
    /// `ClusterKeyFile`.
    pub key_file: Option<String>,
    /// `DataDir`.
    pub folder: Option<String>,
}

/// A parameter of a management node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagementParameter {
    NodeId,
    HostName,
    PortNumber,
    ArbitrationRank,
    ClusterKeyFile,
    DataDir,
}

/// Names, kinds, and whether each node has its own.
const TABLE: &[(&str, ManagementParameter, Kind, bool)] = {
    const fn count(min: u64, max: u64) -> Kind {
        Kind::Integer { unit: Unit::Count, min, max }
    }
    use ManagementParameter as P;
    &[
        ("NodeId", P::NodeId, count(1, NODE_ID_MAX), true),
        ("Id", P::NodeId, count(1, NODE_ID_MAX), true),
        ("HostName", P::HostName, Kind::Text { bytes_max: 255 }, false),
        ("PortNumber", P::PortNumber, count(1, 65_535), false),
        ("ArbitrationRank", P::ArbitrationRank, count(0, 2), false),
        ("ClusterKeyFile", P::ClusterKeyFile, Kind::Text { bytes_max: 4_096 }, false),
        ("DataDir", P::DataDir, Kind::Text { bytes_max: 4_096 }, false),
    ]
};

/// NDB's other parameters of management nodes.
const WITHOUT_EFFECT: [&str; 12] = [
    "ArbitrationDelay",
    "ExecuteOnComputer",
    "ExtraSendBufferMemory",
    "HeartbeatIntervalMgmdMgmd",
    "HeartbeatThreadPriority",
    "LocationDomainId",
    "LogDestination",
    "MaxNoOfSavedEvents",
    "PortNumberStats",
    "TotalSendBufferMemory",
    "Wan",
    "RequireTls",
];

impl ManagementParameter {
    /// The parameter with this name; `None` if it is one of NDB's that has no effect.
    ///
    /// # Errors
    /// A text: there is none.
    pub(crate) fn named(name: &str) -> Result<Option<Self>, String> {
        let letters = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let is_wanted = |known: &str| letters(known) == letters(name);
        if let Some((_, parameter, ..)) = TABLE.iter().find(|(known, ..)| is_wanted(known)) {
            return Ok(Some(*parameter));
        }
        if WITHOUT_EFFECT.into_iter().any(is_wanted) {
            return Ok(None);
        }
        let meant = suggestion(name, TABLE.iter().map(|(known, ..)| *known));
        Err(format!("no parameter of a management node has this name{meant}"))
    }

    fn row(self) -> &'static (&'static str, ManagementParameter, Kind, bool) {
        TABLE.iter().find(|(_, parameter, ..)| *parameter == self).expect("each has a row")
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn kind(self) -> Kind {
        self.row().2
    }

    /// Whether it may not stand in the section for all.
    pub(crate) fn is_of_one(self) -> bool {
        self.row().3
    }
}

/// A `[mgm]` section.
#[derive(Clone, Debug)]
pub(crate) struct ManagementSection {
    /// 0 until all are read, if the section has no `NodeId`.
    pub(crate) id: u64,
    /// Its header as it was written, and where.
    pub(crate) header: String,
    pub(crate) line: u32,
    pub(crate) entries: Vec<Entry<ManagementParameter>>,
}

impl ManagementSection {
    /// Its own entry for a parameter.
    pub(crate) fn entry(&self, parameter: ManagementParameter) -> Option<&Entry<ManagementParameter>> {
        self.entries.iter().find(|entry| entry.parameter == parameter)
    }
}

/// The management nodes of a file, in the order of their ranks and numbers; errors go to `errors`.
pub(crate) fn read(
    file: &ConfigFile,
    data_nodes: Option<&DataNodes>,
    errors: &mut Vec<ConfigError>,
) -> Vec<ManagementNode> {
    let mut nodes: Vec<ManagementNode> = Vec::new();
    for section in file.management_nodes() {
        let node = node(file, section);
        let is_there = |host: &str, port: u16| port == node.port && host.eq_ignore_ascii_case(&node.host);
        let among_data = data_nodes.into_iter().flat_map(DataNodes::all);
        let data = among_data.filter(|other| is_there(&other.host, other.port));
        let management = nodes.iter().filter(|other| is_there(&other.host, other.port));
        let other = data
            .map(|other| format!("data node {}", other.node))
            .chain(management.map(|other| format!("management node {}", other.node)))
            .next();
        if let Some(other) = other {
            let problem = format!(
                "management node {} would be at {}, port {}, where {other} is; give it another PortNumber, or its own \
                 HostName",
                node.node, node.host, node.port
            );
            errors.push(error(
                file,
                section,
                &[ManagementParameter::PortNumber, ManagementParameter::HostName],
                problem,
            ));
        }
        nodes.push(node);
    }
    nodes.sort_by_key(|node| (node.rank == 0, node.rank, node.node));
    nodes
}

/// Data nodes and management nodes with the cluster's key refuse those without, and the other way round: nobody would
/// arbitrate. An error goes to `errors`.
pub(crate) fn check_keys(file: &ConfigFile, errors: &mut Vec<ConfigError>) {
    // A key's name that can't be read has been reported.
    if !file.errors().is_empty() {
        return;
    }
    let data = file.nodes().iter().map(|section| {
        let key = file.entry_for(section, Parameter::ClusterKeyFile).map(|entry| entry.line);
        (format!("data node {}", section.id), section.line, &section.header, key)
    });
    let management = file.management_nodes().iter().map(|section| {
        let key = entry_for(file, section, ManagementParameter::ClusterKeyFile).map(|entry| entry.line);
        (format!("management node {}", section.id), section.line, &section.header, key)
    });
    let all: Vec<_> = data.chain(management).collect();
    let with = all.iter().find_map(|(name, _, _, key)| Some((name, (*key)?)));
    let without = all.iter().find(|(_, _, _, key)| key.is_none());
    if let (Some((other, key)), Some((name, line, header, _))) = (with, without) {
        let problem = format!(
            "{name} has no ClusterKeyFile, and {other} has one (line {key}); all data nodes and management nodes need it, or \
             none has it"
        );
        errors.push(ConfigError::new(file.origin(*line), header, problem));
    }
}

/// The entry that counts for a parameter at a management node.
fn entry_for<'a>(
    file: &'a ConfigFile,
    section: &'a ManagementSection,
    parameter: ManagementParameter,
) -> Option<&'a Entry<ManagementParameter>> {
    let of_all = || file.management_default().iter().find(|entry| entry.parameter == parameter);
    section.entry(parameter).or_else(of_all)
}

fn node(file: &ConfigFile, section: &ManagementSection) -> ManagementNode {
    let value = |parameter| entry_for(file, section, parameter).map(|entry| &entry.value);
    let integer = |parameter, otherwise: u64| match value(parameter) {
        Some(Value::Integer(number)) => *number,
        _ => otherwise,
    };
    let text = |parameter| match value(parameter) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    ManagementNode {
        node: section.id as u8,
        host: text(ManagementParameter::HostName).unwrap_or_else(|| HOST.to_owned()),
        port: integer(ManagementParameter::PortNumber, PORT.into()) as u16,
        rank: integer(ManagementParameter::ArbitrationRank, RANK.into()) as u8,
        key_file: text(ManagementParameter::ClusterKeyFile),
        folder: text(ManagementParameter::DataDir),
    }
}

/// An error about an entry of a section, if it has that, else about the section.
fn error(
    file: &ConfigFile,
    section: &ManagementSection,
    parameters: &[ManagementParameter],
    problem: String,
) -> ConfigError {
    let entry = parameters.iter().find_map(|&parameter| section.entry(parameter));
    let (line, piece) = match entry {
        Some(entry) => (entry.line, format!("{}={}", entry.parameter.name(), entry.written)),
        None => (section.line, section.header.clone()),
    };
    ConfigError::new(file.origin(line), &piece, problem)
}

/// All nodes of a cluster, for whoever is none of them.
#[derive(Clone, Debug)]
pub struct ConfiguredNodes {
    /// `Name` of the cluster.
    pub cluster: String,
    /// The data nodes.
    pub data_nodes: DataNodes,
    /// The management nodes: first those that arbitrate rather than others.
    pub management_nodes: Vec<ManagementNode>,
    /// `ClusterKeyFile` of the first data node.
    pub key_file: Option<String>,
}

impl ConfiguredNodes {
    /// Those of a file.
    ///
    /// # Errors
    /// All errors of the file, as far as they do not depend on the machine of a data node.
    pub fn new(file: &ConfigFile, machine: &Machine) -> Result<Self, ConfigErrors> {
        let mut errors = file.errors().to_vec();
        let found = ConfiguredNodes::read(file, machine, &mut errors);
        found.filter(|_| errors.is_empty()).ok_or_else(|| ConfigErrors::new(errors))
    }

    /// The same; `None` if the data nodes have errors. All errors go to `errors`.
    fn read(file: &ConfigFile, machine: &Machine, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let mut parameters = Parameters::defaults(machine);
        let first = file.nodes().iter().min_by_key(|section| section.id);
        let id = first.map_or(1, |section| section.id);
        parameters.set(Parameter::NodeId, Value::Integer(id), &id.to_string(), Origin::Default);
        for entry in file.entries(first) {
            let origin = file.origin(entry.line);
            parameters.set(entry.parameter, entry.value.clone(), &entry.written, origin);
        }
        let data_nodes = DataNodes::read(Some(file), &parameters, file.doubtful(), errors);
        let management_nodes = read(file, data_nodes.as_ref(), errors);
        check_keys(file, errors);
        let text = |parameter| parameters.text(parameter).map(ToOwned::to_owned);
        Some(ConfiguredNodes {
            cluster: text(Parameter::Name).unwrap_or_default(),
            data_nodes: data_nodes?,
            management_nodes,
            key_file: text(Parameter::ClusterKeyFile),
        })
    }
}

/// What a management node is configured with.
#[derive(Clone, Debug)]
pub struct ManagementConfiguration {
    /// The file that it was read from, as the reader has named it.
    pub file: String,
    /// This node.
    pub own: ManagementNode,
    /// `Name` of the cluster.
    pub cluster: String,
    /// The data nodes of the cluster.
    pub data_nodes: DataNodes,
    /// Remarks on unusual but allowed settings, one line each, for the log.
    pub warnings: Vec<String>,
}

impl ManagementConfiguration {
    /// That of the management node with this number; `None` means the only one of the file.
    ///
    /// # Errors
    /// All errors of the file, those of each data node among them, as far as they do not depend on its machine; or
    /// there is no such node.
    pub fn new(
        file: &ConfigFile,
        node: Option<u64>,
        machine: &Machine,
    ) -> Result<ManagementConfiguration, ConfigErrors> {
        let mut errors = file.errors().to_vec();
        let all = ConfiguredNodes::read(file, machine, &mut errors);
        check_data_nodes(file, machine, &mut errors);
        let Some(all) = all else {
            let chosen = choose(file, &read(file, None, &mut Vec::new()), node);
            errors.extend(chosen.err().filter(|_| !file.numbers_clash()));
            return Err(ConfigErrors::new(errors));
        };
        let ConfiguredNodes { cluster, data_nodes, mut management_nodes, .. } = all;
        match choose(file, &management_nodes, node) {
            Ok(place) if errors.is_empty() => {
                let own = management_nodes.swap_remove(place);
                let warnings = file.warnings().to_vec();
                Ok(ManagementConfiguration {
                    file: file.name().to_owned(),
                    own,
                    cluster,
                    data_nodes,
                    warnings,
                })
            }
            chosen => {
                // Numbers that are there twice are reported already.
                errors.extend(chosen.err().filter(|_| !file.numbers_clash()));
                Err(ConfigErrors::new(errors))
            }
        }
    }
}

/// What is handed out is what data nodes can start with: each error of theirs goes to `errors`, unless it is there.
fn check_data_nodes(file: &ConfigFile, machine: &Machine, errors: &mut Vec<ConfigError>) {
    if file.nodes().is_empty() {
        let problem = format!("{} has no data node: add a section [data] (or [ndbd])", file.name());
        errors.push(ConfigError::new(Origin::Flag, "[data]", problem));
    }
    // Numbers that are no data nodes' are reported already.
    if file.numbers_clash() || file.doubtful().contains(&Parameter::NodeId) {
        return;
    }
    for section in file.nodes() {
        let flags = [(Parameter::NodeId.name(), &*section.id.to_string())];
        for error in Draft::new(Some(file), &flags, machine).errors {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
    }
}

/// Which of the management nodes is meant.
fn choose(file: &ConfigFile, nodes: &[ManagementNode], id: Option<u64>) -> Result<usize, ConfigError> {
    let name = file.name();
    let mut ids: Vec<u64> = nodes.iter().map(|node| node.node.into()).collect();
    ids.sort_unstable();
    let ids = enumerate(&ids, "and");
    let (piece, problem) = match (id, nodes) {
        (_, []) => (
            "[mgm]".to_owned(),
            format!("{name} has no management node: add a section [mgm] (or [ndb_mgmd])"),
        ),
        (None, [_]) => return Ok(0),
        (None, _) => {
            ("NodeId".to_owned(), format!("{name} has the management nodes {ids}; say which one this is"))
        }
        (Some(id), nodes) => match nodes.iter().position(|node| u64::from(node.node) == id) {
            Some(place) => return Ok(place),
            None => (format!("NodeId={id}"), format!("{name} has no such management node; it has {ids}")),
        },
    };
    Err(ConfigError::new(Origin::Flag, &piece, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpu;

    fn configuration(text: &str, node: Option<u64>) -> Result<ManagementConfiguration, String> {
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        let file = ConfigFile::parse("f", text);
        ManagementConfiguration::new(&file, node, &machine).map_err(|errors| errors.to_string())
    }

    const DATA: &str =
        "[system]\nName=shop\n[ndbd default]\nNoOfReplicas=2\n[ndbd]\nServerPort=1\n[ndbd]\nServerPort=2\n";

    #[test]
    fn a_management_node_knows_itself_and_the_data_nodes() {
        let text = format!("[ndb_mgmd]\n{DATA}");
        let found = configuration(&text, None).expect("it is good");
        let own = ManagementNode {
            node: 3,
            host: "localhost".into(),
            port: 1186,
            rank: 1,
            key_file: None,
            folder: None,
        };
        assert_eq!((found.own, found.cluster.as_str()), (own, "shop"));
        assert_eq!(found.data_nodes.all().iter().map(|node| node.node).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(found.warnings, Vec::<String>::new());
        // Data nodes get the numbers that are left.
        let text = format!("[mgm default]\nPortNumber=7\n[mgm]\nNodeId=1\nHostName=a\nDataDir=/x\n{DATA}");
        let found = configuration(&text, Some(1)).expect("it is good");
        assert_eq!((found.own.port, found.own.folder.as_deref()), (7, Some("/x")));
        assert_eq!(found.data_nodes.all().iter().map(|node| node.node).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn one_of_two_has_to_be_named() {
        let text = format!(
            "{DATA}[mgm]\nNodeId=8\nPortNumber=5\nArbitrationRank=2\n[mgm]\nNodeId=9\nPortNumber=6\n"
        );
        let which = |node| configuration(&text, node).map(|found| found.own.node);
        assert_eq!((which(Some(8)), which(Some(9))), (Ok(8), Ok(9)));
        assert_eq!(
            which(None),
            Err("command line: 'NodeId': f has the management nodes 8 and 9; say which one this is".into())
        );
        assert_eq!(
            which(Some(1)),
            Err("command line: 'NodeId=1': f has no such management node; it has 8 and 9".into())
        );
        let none = configuration(DATA, None).expect_err("there is none");
        assert!(none.contains("f has no management node: add a section [mgm]"), "{none}");
    }

    #[test]
    fn a_folder_may_be_that_of_all() {
        let found = configuration(&format!("{DATA}[ndb_mgmd default]\nDataDir=/a\n[ndb_mgmd]\n"), None);
        assert_eq!(found.map(|found| found.own.folder), Ok(Some("/a".into())));
    }

    #[test]
    fn a_number_that_is_there_twice_is_one_error() {
        let text = "[data]\nNodeId=2\n[mgm]\nNodeId=2\n[mgm]\nNodeId=8\nPortNumber=5\n";
        for node in [None, Some(8), Some(2), Some(9)] {
            let why = configuration(text, node).expect_err("two nodes have one number");
            assert!(why.lines().count() == 1 && why.contains("'NodeId=2': the node in line"), "{why}");
        }
    }

    /// They would be handed out, and no data node would start.
    #[test]
    fn what_no_data_node_accepts_is_refused() {
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        for (of_all, of_second, links) in [
            ("Diskless=0", "", ""),
            ("TimeBetweenEpochs=5000", "", ""),
            ("", "ThreadConfig=ldm={count=4,cpubnd=1-3}", ""),
            ("", "ThreadConfig=ldm={count=4},tcc={count=2}", ""),
            ("", "", "[tcp]\nNodeId1=1\n"),
            ("", "", "[tcp]\nNodeId1=1\nNodeId2=1\n"),
            ("", "", "[tcp]\nNodeId1=1\nNodeId2=2\n[tcp]\nNodeId1=2\nNodeId2=1\n"),
        ] {
            let text = format!(
                "[ndbd default]\n{of_all}\n[ndbd]\nServerPort=1\n[ndbd]\nServerPort=2\n{of_second}\n[ndb_mgmd]\n{links}"
            );
            let flags = [("NodeId", "2")];
            let of_data = crate::Configuration::new(Some(&ConfigFile::parse("f", &text)), &flags, &machine);
            let of_data = of_data.expect_err(&text).to_string();
            assert_eq!(configuration(&text, None).expect_err(&text), of_data);
        }
        let why = configuration("[ndb_mgmd]\n", None).expect_err("it has no data node");
        assert_eq!(why, "command line: '[data]': f has no data node: add a section [data] (or [ndbd])");
    }

    #[test]
    fn all_nodes_have_the_key_or_none_has() {
        let file = |default: &str, data: &str, of_all: &str, own: &str| {
            format!(
                "[ndbd default]\n{default}\n[ndbd]\nServerPort=1\n{data}\n[ndbd]\nServerPort=2\n[mgm default]\n{of_all}\n\
                 [mgm]\n{own}\n"
            )
        };
        let key = "ClusterKeyFile=/k";
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        let of_data = |text: &str, flags: &[(&str, &str)]| {
            let flags = [&[("NodeId", "1")], flags].concat();
            let found = crate::Configuration::new(Some(&ConfigFile::parse("f", text)), &flags, &machine);
            found.map(drop).map_err(|errors| errors.to_string())
        };
        for good in [file("", "", "", ""), file(key, "", "", key), file(key, "", key, "")] {
            assert_eq!((configuration(&good, None).map(drop), of_data(&good, &[])), (Ok(()), Ok(())));
        }
        let [of_management, of_all, of_one] =
            [file("", "", "", key), file(key, "", "", ""), file("", key, key, "")];
        for (bad, why) in [
            (
                &of_management,
                "f line 3: '[ndbd]': data node 1 has no ClusterKeyFile, and management node 3 has one (line 11)",
            ),
            (
                &of_all,
                "f line 10: '[mgm]': management node 3 has no ClusterKeyFile, and data node 1 has one (line 2)",
            ),
            (
                &of_one,
                "f line 6: '[ndbd]': data node 2 has no ClusterKeyFile, and data node 1 has one (line 5)",
            ),
        ] {
            for found in [configuration(bad, None).map(drop), of_data(bad, &[])] {
                let found = found.expect_err("nobody arbitrates");
                assert!(found.starts_with(why) && found.lines().count() == 1, "{found}");
            }
        }
        // The command line has it for this node, and may have it for the others.
        assert_eq!(of_data(&of_management, &[("ClusterKeyFile", "/k")]), Ok(()));
    }

    #[test]
    fn those_that_arbitrate_first_come_first() {
        let file = |ranks: [u8; 2]| {
            let [one, two] = ranks;
            let text = format!(
                "[mgm]\nNodeId=8\nPortNumber=5\nArbitrationRank={one}\n[mgm]\nNodeId=9\nArbitrationRank={two}\n"
            );
            let nodes = read(&ConfigFile::parse("f", &text), None, &mut Vec::new());
            nodes.iter().map(|node| node.node).collect::<Vec<_>>()
        };
        assert_eq!((file([1, 1]), file([2, 1]), file([0, 2])), ([8, 9].into(), [9, 8].into(), [9, 8].into()));
    }
}
