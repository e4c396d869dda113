//! Links between data nodes, as `[tcp]` sections of the file describe them: `[tcp default]` all of them, a `[tcp]` the
//! link of the two nodes that it names.
//!
//! Of NDB's parameters only the sizes of the sockets' buffers have a counterpart here. The others are allowed, with a
//! warning: they have no effect.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config_error::{ConfigError, enumerate, suggestion};
use crate::data_nodes::DataNodes;
use crate::file::{ConfigFile, Entry};
use crate::management::NODE_ID_MAX;
use crate::value::{Kind, Unit, Value};

/// Bytes of a socket's buffer, at most.
const BUFFER_BYTES_MAX: u64 = (1 << 31) - 1;

/// The link of two data nodes, as far as it is not what the system makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The two data nodes, the lower number first.
    pub nodes: (u8, u8),
    /// Bytes of the buffer for what is sent, at each end; 0: the system chooses.
    pub send_buffer: u32,
    /// Bytes of the buffer for what is received, at each end; 0: the system chooses.
    pub receive_buffer: u32,
}

/// A parameter of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkParameter {
    NodeId1,
    NodeId2,
    SendBuffer,
    ReceiveBuffer,
}

/// Names, kinds, and whether each link has its own.
const TABLE: &[(&str, LinkParameter, Kind, bool)] = {
    const NODE: Kind = Kind::Integer { unit: Unit::Count, min: 1, max: NODE_ID_MAX };
    const BUFFER: Kind = Kind::Integer { unit: Unit::Bytes, min: 0, max: BUFFER_BYTES_MAX };
    use LinkParameter as P;
    &[
        ("NodeId1", P::NodeId1, NODE, true),
        ("NodeId2", P::NodeId2, NODE, true),
        ("TCP_SND_BUF_SIZE", P::SendBuffer, BUFFER, false),
        ("TCP_RCV_BUF_SIZE", P::ReceiveBuffer, BUFFER, false),
    ]
};

/// NDB's parameters that lead a link over a network of its own. To ignore them would send what is meant for that
/// network over another one.
const OTHER_NETWORK: [&str; 2] = ["HostName1", "HostName2"];

/// NDB's other parameters of TCP connections.
const WITHOUT_EFFECT: [&str; 17] = [
    "AllowUnresolvedHostNames",
    "Checksum",
    "Group",
    "NodeIdServer",
    "OverloadLimit",
    "PortNumber",
    "PreferIPVersion",
    "PreSendChecksum",
    "Proxy",
    "ReceiveBufferMemory",
    "RequireTls",
    "SendBufferMemory",
    "SendSignalId",
    "TCP_MAXSEG_SIZE",
    "TcpBind_INADDR_ANY",
    "TcpSendBufferMemory",
    "TcpSpinTime",
];

impl LinkParameter {
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
        if OTHER_NETWORK.into_iter().any(is_wanted) {
            return Err("a network of its own for one link is not supported: data nodes reach each other where their \
                        HostName is, so give each the HostName that it has in the network that is meant, and remove \
                        this line"
                .to_owned());
        }
        let known = TABLE.iter().map(|(known, ..)| *known);
        let meant = suggestion(name, known.clone().chain(WITHOUT_EFFECT));
        let allowed: Vec<&str> = known.collect();
        Err(format!(
            "no parameter of a link has this name; allowed are {}{meant}",
            enumerate(&allowed, "and")
        ))
    }

    fn row(self) -> &'static (&'static str, LinkParameter, Kind, bool) {
        TABLE.iter().find(|(_, parameter, ..)| *parameter == self).expect("each has a row")
    }

    pub(crate) fn kind(self) -> Kind {
        self.row().2
    }

    /// Whether it may not stand in the section for all.
    pub(crate) fn is_of_one(self) -> bool {
        self.row().3
    }
}

/// A `[tcp]` section.
#[derive(Clone, Debug)]
pub(crate) struct LinkSection {
    /// Its header as it was written, and where.
    pub(crate) header: String,
    pub(crate) line: u32,
    pub(crate) entries: Vec<Entry<LinkParameter>>,
}

fn integer(entries: &[Entry<LinkParameter>], parameter: LinkParameter) -> Option<u64> {
    let entry = entries.iter().find(|entry| entry.parameter == parameter)?;
    match entry.value {
        Value::Integer(number) => Some(number),
        _ => None,
    }
}

/// The links of these data nodes for which the file says something, in the order of their nodes. Errors go to `errors`,
/// remarks to `warnings`.
pub(crate) fn read(
    file: &ConfigFile,
    data_nodes: &DataNodes,
    errors: &mut Vec<ConfigError>,
    warnings: &mut Vec<String>,
) -> Vec<Link> {
    let mut sections: Vec<((u64, u64), &LinkSection)> = Vec::new();
    for section in file.links() {
        let about = |problem: String| ConfigError::new(file.origin(section.line), &section.header, problem);
        let ends = [LinkParameter::NodeId1, LinkParameter::NodeId2].map(|end| integer(&section.entries, end));
        let [Some(one), Some(other)] = ends else {
            // An id that can't be read has been reported.
            if file.errors().is_empty() {
                errors.push(about("which link? Write NodeId1 and NodeId2, the two nodes of it".to_owned()));
            }
            continue;
        };
        let nodes = (one.min(other), one.max(other));
        let is_data = |id: u64| data_nodes.all().iter().any(|node| u64::from(node.node) == id);
        if one == other {
            errors.push(about(format!("NodeId1 and NodeId2 are both {one}; a link has two nodes")));
        } else if let Some((_, earlier)) = sections.iter().find(|(of, _)| *of == nodes) {
            let problem =
                format!("the section in line {} is about the same link; keep one of the two", earlier.line);
            errors.push(about(problem));
        } else if is_data(one) && is_data(other) {
            sections.push((nodes, section));
        } else {
            let problem =
                "accepted without effect: only links between two data nodes have parameters".to_owned();
            warnings.push(about(problem).to_string());
        }
    }
    let ids: Vec<u8> = data_nodes.all().iter().map(|node| node.node).collect();
    let pairs =
        ids.iter().enumerate().flat_map(|(at, &one)| ids[at + 1..].iter().map(move |&other| (one, other)));
    let links = pairs.map(|nodes| {
        let wide = (u64::from(nodes.0), u64::from(nodes.1));
        let own =
            sections.iter().find(|(of, _)| *of == wide).map_or(&[][..], |(_, section)| &section.entries);
        let bytes = |parameter| {
            let bytes = integer(own, parameter).or_else(|| integer(file.link_default(), parameter));
            bytes.unwrap_or(0) as u32
        };
        let (send_buffer, receive_buffer) =
            (bytes(LinkParameter::SendBuffer), bytes(LinkParameter::ReceiveBuffer));
        Link { nodes, send_buffer, receive_buffer }
    });
    links.filter(|link| (link.send_buffer, link.receive_buffer) != (0, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::cpus::Cpu;
    use crate::machine::Machine;

    const DATA: &str = "[data]\nServerPort=1\n[data]\nServerPort=2\n[data]\nServerPort=3\n[mgm]\n";

    fn read(text: &str) -> Result<(Vec<Link>, Vec<String>), String> {
        let machine =
            Machine { memory_bytes: 8 << 30, cpus: [Cpu(0)].into_iter().collect(), cpus_granted: None };
        let file = ConfigFile::parse("f", &format!("{DATA}{text}"));
        let configuration = Configuration::new(Some(&file), &[("NodeId", "1")], &machine);
        let configuration = configuration.map_err(|errors| errors.to_string())?;
        let of_links = |warning: &String| warning.contains("effect") && !warning.contains("Diskless");
        Ok((configuration.links, configuration.warnings.into_iter().filter(of_links).collect()))
    }

    #[test]
    fn a_link_has_what_its_section_says_or_that_for_all() {
        let (links, warnings) = read("").expect("it is good");
        assert!(links.is_empty() && warnings.is_empty(), "{links:?} {warnings:?}");
        let text = "[tcp default]\nTCP_SND_BUF_SIZE=1M\nSendBufferMemory=4M\n[tcp]\nNodeId1=3\nNodeId2=1\n\
                    TcpSndBufSize=2M\nTCP_RCV_BUF_SIZE=64K\n[tcp]\nNodeId1=1\nNodeId2=4\n";
        let (links, warnings) = read(text).expect("it is good");
        let link = |nodes, send_buffer, receive_buffer| Link { nodes, send_buffer, receive_buffer };
        assert_eq!(
            links,
            [link((1, 2), 1 << 20, 0), link((1, 3), 2 << 20, 64 << 10), link((2, 3), 1 << 20, 0)]
        );
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().any(|one| one.contains("SendBufferMemory=4M") && one.contains("without effect"))
        );
        assert!(warnings.iter().any(|one| one.contains("[tcp]") && one.contains("between two data nodes")));
    }

    #[test]
    fn a_link_has_two_nodes_and_one_section() {
        for (text, why) in [
            ("[tcp]\nNodeId1=1\n", "Write NodeId1 and NodeId2"),
            ("[tcp]\nNodeId1=2\nNodeId2=2\n", "are both 2"),
            ("[tcp]\nNodeId1=1\nNodeId2=2\n[tcp]\nNodeId1=2\nNodeId2=1\n", "is about the same link"),
            ("[tcp default]\nNodeId1=1\n", "each link has its own"),
            ("[tcp]\nNodeId1=1\nNodeId2=2\nTCP_SND_BUF_SIZE=4G\n", "TCP_SND_BUF_SIZE"),
            ("[tcp]\nNodeId1=1\nNodeId2=2\nHostName1=10.1.0.1\n", "'HostName1': a network"),
            (
                "[tcp]\nNodeId1=1\nNodeId2=4\nhost-name2=10.1.0.1\n",
                "a network of its own for one link is not supported",
            ),
            (
                "[tcp default]\nHostName2=10.1.0.1\n",
                "give each the HostName that it has in the network that is meant",
            ),
            ("[tcp]\nNodeId1=1\nNodeId2=2\nTCP_SND_BUFSIZ=1\n", "did you mean TCP_SND_BUF_SIZE"),
            (
                "[tcp]\nNodeId1=1\nNodeId2=2\nSendBufferMem=2M\n",
                "allowed are NodeId1, NodeId2, TCP_SND_BUF_SIZE and TCP_RCV_BUF_SIZE; did you mean SendBufferMemory?",
            ),
        ] {
            let found = read(text).expect_err(text);
            assert!(found.contains(why) && found.lines().count() == 1, "{found}");
        }
    }
}
