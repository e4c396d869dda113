//! The configuration file: sections of `name=value` lines, in the style of NDB's `config.ini`.
//!
//! ```text
//! [cluster]                     # one value for the cluster; NDB's [system]
//! Name=shop
//! [data default]                # for all data nodes; NDB's [ndbd default]
//! DataMemory=2G
//! [data]                        # one data node; NDB's [ndbd]
//! NodeId=1
//! ThreadConfig=ldm={count=4},tc={count=2}
//! ```
//!
//! - Letter case does not count in section and parameter names. Blanks around names, values and brackets do not count.
//! - `=` or `:` stands between name and value.
//! - A line whose first character is `#` or `;` is a comment; so is the rest of a line from a `#` or `;` that follows
//!   a blank. A value in single or double quotes may contain them; the quotes are taken off.
//! - A section may be opened several times, except `[data]`, which begins another node each time. A parameter stands
//!   once in a section. `[data]` overrides `[data default]`.
//! - A `[data]` without `NodeId` gets the lowest number that is free, and then a `[mgm]` without one.
//! - `[mgm]` (NDB's `[ndb_mgmd]`) is a management node, `[mgm default]` holds for all of them ([`crate::management`]).
//! - `[tcp]` is the link of two data nodes, `[tcp default]` holds for all of them ([`crate::links`]).
//! - Sections of other kinds of nodes (`[api]`, `[mysqld]`, … and their defaults) are allowed. Their lines have to have
//!   the form `name=value` and are otherwise ignored, but for the `NodeId` of an API node: no other node may have it.
//! - Parameters of NDB that have no counterpart are accepted with a warning (`ndb_parameters.rs`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config_error::{ConfigError, Origin, enumerate};
use crate::links::{LinkParameter, LinkSection};
use crate::management::{MANAGEMENT_NODES_MAX, ManagementParameter, ManagementSection};
use crate::ndb_parameters::{Without, without_counterpart, without_effect};
use crate::node_ids::{self, API_ID, ApiSection, is_api_id};
use crate::parameters::{Parameter, Place};
use crate::sections::Section;
use crate::value::Value;

/// A file that was read: its valid entries, and its errors. The values are within their own limits, but may conflict
/// with each other.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    name: String,
    cluster: Vec<Entry>,
    data_default: Vec<Entry>,
    nodes: Vec<NodeSection>,
    management_default: Vec<Entry<ManagementParameter>>,
    management_nodes: Vec<ManagementSection>,
    link_default: Vec<Entry<LinkParameter>>,
    links: Vec<LinkSection>,
    apis: Vec<ApiSection>,
    warnings: Vec<String>,
    errors: Vec<ConfigError>,
    /// Some nodes have one number.
    numbers_clash: bool,
    /// Parameters to which the file gives an invalid value.
    doubtful: Vec<Parameter>,
}

/// A line `name=value`.
#[derive(Clone, Debug)]
pub(crate) struct Entry<P = Parameter> {
    pub(crate) parameter: P,
    pub(crate) value: Value,
    /// The text of the value.
    pub(crate) written: String,
    pub(crate) line: u32,
}

/// A `[data]` section.
#[derive(Clone, Debug)]
pub(crate) struct NodeSection {
    /// 0 until all are read, if the section has no `NodeId`.
    pub(crate) id: u64,
    /// Its header as it was written, and where.
    pub(crate) header: String,
    pub(crate) line: u32,
    entries: Vec<Entry>,
}

impl NodeSection {
    /// All of its own entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Its own entry for a parameter.
    pub(crate) fn entry(&self, parameter: Parameter) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.parameter == parameter)
    }
}

impl ConfigFile {
    /// Reads the text of the file called `name`. Text that breaks the form above, and invalid values, are its errors;
    /// [`crate::Configuration::new`] reports them.
    pub fn parse(name: &str, text: &str) -> ConfigFile {
        let mut file = ConfigFile {
            name: name.to_owned(),
            cluster: Vec::new(),
            data_default: Vec::new(),
            nodes: Vec::new(),
            management_default: Vec::new(),
            management_nodes: Vec::new(),
            link_default: Vec::new(),
            links: Vec::new(),
            apis: Vec::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
            numbers_clash: false,
            doubtful: Vec::new(),
        };
        let mut section = None;
        // Some editors begin a file with a byte order mark.
        for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            let read = match text.strip_prefix('[') {
                Some(header) => {
                    let opened = file.open(text, header, line);
                    section = Some(*opened.as_ref().unwrap_or(&Section::Unknown));
                    opened.map(|_| ())
                }
                None => file.read_entry(section, text, line),
            };
            if let Err(error) = read {
                file.errors.push(error);
                // A missing first section is reported once.
                section = section.or(Some(Section::Unknown));
            }
        }
        let wrong = |line, piece: &str, problem| {
            ConfigError::new(Origin::Line { file: name.to_owned(), line }, piece, problem)
        };
        let errors = node_ids::number(&mut file.nodes, &mut file.management_nodes, &file.apis, wrong);
        file.numbers_clash = !errors.is_empty();
        file.errors.extend(errors);
        if file.nodes.len() as u64 > node_ids::data_max() {
            // Nothing more can be said of so many.
            file.doubtful.push(Parameter::NodeId);
        }
        file
    }

    /// The errors in the file, in the order of its lines.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// Parameters to which the file gives an invalid value.
    pub(crate) fn doubtful(&self) -> &[Parameter] {
        &self.doubtful
    }

    /// Whether some nodes have one number, so that it does not say which one is meant.
    pub(crate) fn numbers_clash(&self) -> bool {
        self.numbers_clash
    }

    /// The file's name as the reader gave it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The numbers of its data nodes, ascending; none if it has no `[data]` section.
    pub fn data_node_ids(&self) -> Vec<u8> {
        let mut ids: Vec<u8> = self.nodes.iter().map(|node| node.id as u8).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The data nodes, in the order of the file.
    pub(crate) fn nodes(&self) -> &[NodeSection] {
        &self.nodes
    }

    /// The management nodes, in the order of the file.
    pub(crate) fn management_nodes(&self) -> &[ManagementSection] {
        &self.management_nodes
    }

    /// The entries for all management nodes.
    pub(crate) fn management_default(&self) -> &[Entry<ManagementParameter>] {
        &self.management_default
    }

    /// The sections of links between two nodes, in the order of the file.
    pub(crate) fn links(&self) -> &[LinkSection] {
        &self.links
    }

    /// The entries for all links.
    pub(crate) fn link_default(&self) -> &[Entry<LinkParameter>] {
        &self.link_default
    }

    /// The numbers of its management nodes, ascending.
    pub fn management_node_ids(&self) -> Vec<u8> {
        let mut ids: Vec<u8> = self.management_nodes.iter().map(|node| node.id as u8).collect();
        ids.sort_unstable();
        ids
    }

    /// Data node `id`; `None` means the only node of the file. `None` if it has no node at all.
    ///
    /// # Errors
    /// There is no such node, or several to choose from.
    pub(crate) fn node(&self, id: Option<u64>) -> Result<Option<&NodeSection>, ConfigError> {
        let refuse = |piece: &str, problem: String| Err(ConfigError::new(Origin::Flag, piece, problem));
        let ids = || {
            let mut ids: Vec<u64> = self.nodes.iter().map(|node| node.id).collect();
            ids.sort_unstable();
            enumerate(&ids, "and")
        };
        match (id, &self.nodes[..]) {
            (_, []) => Ok(None),
            (None, [only]) => Ok(Some(only)),
            (None, _) => {
                let problem = format!("{} has the data nodes {}; say which one this is", self.name, ids());
                refuse("NodeId", problem)
            }
            (Some(id), nodes) => match nodes.iter().find(|node| node.id == id) {
                Some(node) => Ok(Some(node)),
                None => {
                    let problem = format!("{} has no such data node; it has {}", self.name, ids());
                    refuse(&format!("NodeId={id}"), problem)
                }
            },
        }
    }

    /// The entries that a data node has, in ascending priority; `None` for those that all nodes share.
    pub(crate) fn entries<'a>(&'a self, node: Option<&'a NodeSection>) -> impl Iterator<Item = &'a Entry> {
        let own = node.map_or(&[][..], |node| &node.entries);
        self.cluster.iter().chain(&self.data_default).chain(own)
    }

    /// The entry that counts for a parameter at a data node.
    pub(crate) fn entry_for<'a>(&'a self, node: &'a NodeSection, parameter: Parameter) -> Option<&'a Entry> {
        let of_all = || self.data_default.iter().find(|entry| entry.parameter == parameter);
        node.entry(parameter).or_else(of_all)
    }

    /// Remarks on entries that are allowed but have no effect.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The origin of a value in `line`.
    pub(crate) fn origin(&self, line: u32) -> Origin {
        Origin::Line { file: self.name.clone(), line }
    }

    fn wrong(&self, line: u32, piece: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(self.origin(line), piece, problem)
    }

    /// Opens the section with this header.
    fn open(&mut self, text: &str, header: &str, line: u32) -> Result<Section, ConfigError> {
        let Some((inside, after)) = header.split_once(']') else {
            return Err(self.wrong(
                line,
                text,
                "the closing bracket is missing; sections are written as [data]",
            ));
        };
        if !matches!(after.trim_start().chars().next(), None | Some('#' | ';')) {
            return Err(self.wrong(line, text, "nothing but a comment may follow the closing bracket"));
        }
        let name = inside.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        let section = Section::named(&name).map_err(|problem| self.wrong(line, text, problem))?;
        match section {
            Section::Cluster
            | Section::DataDefault
            | Section::ManagementDefault
            | Section::LinkDefault
            | Section::Unknown => {}
            Section::Link => {
                self.links.push(LinkSection { header: text.to_owned(), line, entries: Vec::new() });
            }
            Section::Management if self.management_nodes.len() == MANAGEMENT_NODES_MAX => {
                let problem = format!("a cluster has at most {MANAGEMENT_NODES_MAX} management nodes");
                return Err(self.wrong(line, text, problem));
            }
            Section::Management => {
                let header = text.to_owned();
                self.management_nodes.push(ManagementSection { id: 0, header, line, entries: Vec::new() });
            }
            Section::Data => {
                let header = text.to_owned();
                self.nodes.push(NodeSection { id: 0, header, line, entries: Vec::new() });
            }
            Section::Api | Section::ApiDefault | Section::OfOthers => {
                if section == Section::Api {
                    self.apis.push(ApiSection::default());
                }
                let remark = self.wrong(line, text, "a data node does not look at this section");
                self.warnings.push(remark.to_string());
            }
        }
        Ok(section)
    }

    /// Reads `name=value` into the section.
    fn read_entry(&mut self, section: Option<Section>, text: &str, line: u32) -> Result<(), ConfigError> {
        let Some(section) = section else {
            return Err(self.wrong(line, text, "stands before the first section; begin with [data]"));
        };
        if section == Section::Unknown {
            return Ok(());
        }
        let Some((name, value)) = text.split_once(['=', ':']) else {
            return Err(self.wrong(line, text, "neither a section nor name=value nor a comment"));
        };
        let name = name.trim();
        let written = strip(value).map_err(|problem| self.wrong(line, text, problem))?;
        match section {
            Section::OfOthers => return Ok(()),
            Section::Api | Section::ApiDefault => {
                return self.read_api_entry(section, name, written, text, line);
            }
            Section::Management | Section::ManagementDefault => {
                return self.read_management_entry(section, name, written, text, line);
            }
            Section::Link | Section::LinkDefault => {
                return self.read_link_entry(section, name, written, text, line);
            }
            _ => {}
        }
        let parameter = match (Parameter::named(name), without_counterpart(name, written)) {
            (Ok(parameter), _) => parameter,
            (Err(_), Some(Without::Effect(why))) => {
                self.warnings.push(self.wrong(line, text, without_effect(why)).to_string());
                return Ok(());
            }
            (Err(_), Some(Without::Protection(problem))) => return Err(self.wrong(line, text, problem)),
            (Err(problem), None) => return Err(self.wrong(line, name, problem)),
        };
        if let Some(problem) = misplaced(parameter, section) {
            return Err(self.wrong(line, text, problem));
        }
        let value = match parameter.description().kind.parse(written) {
            Ok(value) => value,
            Err(problem) => {
                self.doubtful.push(parameter);
                return Err(self.wrong(line, text, problem));
            }
        };
        let entries = match section {
            Section::Cluster => &mut self.cluster,
            Section::DataDefault => &mut self.data_default,
            Section::Data => &mut self.nodes.last_mut().expect("the header made it").entries,
            _ => unreachable!("lines of other sections were left above"),
        };
        add(entries, Entry { parameter, value, written: written.to_owned(), line })
            .map_err(|problem| self.wrong(line, text, problem))
    }

    /// Reads a line of an API node, or of all of them: of these only numbers are looked at.
    fn read_api_entry(
        &mut self,
        section: Section,
        name: &str,
        written: &str,
        text: &str,
        line: u32,
    ) -> Result<(), ConfigError> {
        if !is_api_id(name) {
            return Ok(());
        }
        if section == Section::ApiDefault {
            return Err(self.wrong(
                line,
                text,
                "each API node has its own; write it under [api] or [mysqld]",
            ));
        }
        let value = API_ID.parse(written).map_err(|problem| self.wrong(line, text, problem))?;
        let api = self.apis.last_mut().expect("the header made it");
        match (api.id, value) {
            (Some((_, earlier)), _) => Err(self.wrong(line, text, twice(earlier))),
            (None, Value::Integer(id)) => {
                api.id = Some((id, line));
                Ok(())
            }
            (None, _) => unreachable!("it is an integer"),
        }
    }

    /// Reads a line of a management node, or of all of them.
    fn read_management_entry(
        &mut self,
        section: Section,
        name: &str,
        written: &str,
        text: &str,
        line: u32,
    ) -> Result<(), ConfigError> {
        self.refuse_protection(name, written, text, line)?;
        let named = ManagementParameter::named(name).map_err(|problem| self.wrong(line, name, problem))?;
        let Some(parameter) = named else {
            let remark = self.wrong(line, text, "accepted without effect: management nodes do not need it");
            self.warnings.push(remark.to_string());
            return Ok(());
        };
        let is_default = section == Section::ManagementDefault;
        if is_default && parameter.is_of_one() {
            return Err(self.wrong(line, text, "each management node has its own; write it under [mgm]"));
        }
        let parsed = parameter.kind().parse(written);
        let value = parsed.map_err(|problem| self.wrong(line, text, problem))?;
        let entries = match is_default {
            true => &mut self.management_default,
            false => &mut self.management_nodes.last_mut().expect("the header made it").entries,
        };
        add(entries, Entry { parameter, value, written: written.to_owned(), line })
            .map_err(|problem| self.wrong(line, text, problem))
    }

    /// What NDB protects by a parameter must not be unprotected silently.
    fn refuse_protection(&self, name: &str, written: &str, text: &str, line: u32) -> Result<(), ConfigError> {
        match without_counterpart(name, written) {
            Some(Without::Protection(problem)) => Err(self.wrong(line, text, problem)),
            Some(Without::Effect(_)) | None => Ok(()),
        }
    }

    /// Reads a line of a link, or of all of them.
    fn read_link_entry(
        &mut self,
        section: Section,
        name: &str,
        written: &str,
        text: &str,
        line: u32,
    ) -> Result<(), ConfigError> {
        self.refuse_protection(name, written, text, line)?;
        let named = LinkParameter::named(name).map_err(|problem| self.wrong(line, name, problem))?;
        let Some(parameter) = named else {
            let remark =
                self.wrong(line, text, "accepted without effect: links between data nodes do not need it");
            self.warnings.push(remark.to_string());
            return Ok(());
        };
        let is_default = section == Section::LinkDefault;
        if is_default && parameter.is_of_one() {
            return Err(self.wrong(line, text, "each link has its own; write it under [tcp]"));
        }
        let parsed = parameter.kind().parse(written);
        let value = parsed.map_err(|problem| self.wrong(line, text, problem))?;
        let entries = match is_default {
            true => &mut self.link_default,
            false => &mut self.links.last_mut().expect("the header made it").entries,
        };
        add(entries, Entry { parameter, value, written: written.to_owned(), line })
            .map_err(|problem| self.wrong(line, text, problem))
    }
}

/// Adds an entry to its section.
fn add<P: PartialEq>(entries: &mut Vec<Entry<P>>, entry: Entry<P>) -> Result<(), String> {
    if let Some(earlier) = entries.iter().find(|earlier| earlier.parameter == entry.parameter) {
        return Err(twice(earlier.line));
    }
    entries.push(entry);
    Ok(())
}

fn twice(earlier: u32) -> String {
    format!("the section has it in line {earlier} already; keep one of the two")
}

/// Why `parameter` may not stand in `section`; `None` if it may.
fn misplaced(parameter: Parameter, section: Section) -> Option<&'static str> {
    match (parameter.description().place, section) {
        (Place::Cluster, Section::Cluster)
        | (Place::AllDataNodes, Section::DataDefault)
        | (Place::DataNode, Section::DataDefault | Section::Data)
        | (Place::OneDataNode, Section::Data) => None,
        (Place::Cluster, _) => Some("the whole cluster has one; write it under [cluster]"),
        (Place::AllDataNodes, _) => Some("all data nodes must agree on it; write it under [data default]"),
        (Place::DataNode, _) => Some("belongs to data nodes; write it under [data] or [data default]"),
        (Place::OneDataNode, _) => Some("each data node has its own; write it under [data]"),
    }
}

/// A value without quotes, comment and blanks around it.
fn strip(value: &str) -> Result<&str, &'static str> {
    let value = value.trim();
    if let Some(quote) = value.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        let (inside, after) = value[1..].split_once(quote).ok_or("the closing quote is missing")?;
        return match after.trim_start().chars().next() {
            None | Some('#' | ';') => Ok(inside),
            Some(_) => Err("nothing but a comment may follow the closing quote"),
        };
    }
    let mut previous = ' ';
    for (place, character) in value.char_indices() {
        if matches!(character, '#' | ';') && previous.is_whitespace() {
            return Ok(value[..place].trim_end());
        }
        previous = character;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str, id: Option<u64>) -> Vec<(&'static str, String)> {
        let file = ConfigFile::parse("f", text);
        assert_eq!(file.errors(), []);
        let node = file.node(id).expect("the node exists");
        file.entries(node)
            .map(|entry| (entry.parameter.name(), entry.parameter.description().kind.show(&entry.value)))
            .collect()
    }

    #[test]
    fn comments_quotes_and_blanks() {
        let text = "\u{feff}# head\r\n; more\r\n[ NDBD   Default ] # all\r\n DataMemory : 1G ; much\r\n\
                    DataDir=\"/a #b\" # c\r\nHostName='x;y'\n[data]\nThreadConfig=ldm={ count = 2 }\n";
        let expected = [
            ("DataMemory", "1G"),
            ("DataDir", "/a #b"),
            ("HostName", "x;y"),
            ("ThreadConfig", "ldm={ count = 2 }"),
        ];
        assert_eq!(entries(text, None), expected.map(|(name, value)| (name, value.to_string())));
        assert_eq!(entries("[data]\nDataDir=/a#b", None), [("DataDir", "/a#b".to_string())]);
    }

    #[test]
    fn nodes_are_numbered_around_those_that_have_a_number() {
        let text = "[data]\nServerPort=1\n[data]\nNodeId=1\nServerPort=2\n[data]\nServerPort=3\n";
        let port = |id| {
            entries(text, Some(id)).into_iter().find(|(name, _)| *name == "ServerPort").map(|(_, port)| port)
        };
        assert_eq!([port(1), port(2), port(3)], ["2", "1", "3"].map(|port| Some(port.to_string())));
    }

    #[test]
    fn sections_of_others_leave_a_remark() {
        let file = ConfigFile::parse("f", "[mysqld]\nfoo=bar\n[data]\n");
        assert_eq!(file.errors(), []);
        assert_eq!(file.warnings(), ["f line 1: '[mysqld]': a data node does not look at this section"]);
    }
}
