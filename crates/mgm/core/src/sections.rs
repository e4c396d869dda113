//! The sections of a configuration file, by the names that NDB has for them, too.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config_error::{enumerate, nearest_name};

/// What a section header opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Cluster,
    DataDefault,
    Data,
    ManagementDefault,
    Management,
    LinkDefault,
    Link,
    ApiDefault,
    /// An API node, of which data nodes need nothing; but its number may be no other node's.
    Api,
    /// Something that has no counterpart.
    OfOthers,
    /// Its header is an error, so its lines are not checked.
    Unknown,
}

/// Headers and their sections.
const SECTIONS: &[(&str, Section)] = &[
    ("cluster", Section::Cluster),
    ("system", Section::Cluster),
    ("data default", Section::DataDefault),
    ("ndbd default", Section::DataDefault),
    ("db default", Section::DataDefault),
    ("data", Section::Data),
    ("ndbd", Section::Data),
    ("db", Section::Data),
    ("mgm default", Section::ManagementDefault),
    ("ndb_mgmd default", Section::ManagementDefault),
    ("mgm", Section::Management),
    ("ndb_mgmd", Section::Management),
    ("mysqld default", Section::ApiDefault),
    ("sql default", Section::ApiDefault),
    ("api default", Section::ApiDefault),
    ("mysqld", Section::Api),
    ("sql", Section::Api),
    ("api", Section::Api),
    ("tcp default", Section::LinkDefault),
    ("tcp", Section::Link),
    ("shm default", Section::OfOthers),
    ("shm", Section::OfOthers),
    ("computer", Section::OfOthers),
];

impl Section {
    /// The section with this name, in small letters with single blanks.
    ///
    /// # Errors
    /// A text: there is none.
    pub(crate) fn named(name: &str) -> Result<Section, String> {
        if let Some((_, section)) = SECTIONS.iter().find(|(known, _)| *known == name) {
            return Ok(*section);
        }
        let nearest = nearest_name(name, SECTIONS.iter().map(|(known, _)| *known));
        let meant = nearest.map_or_else(String::new, |nearest| format!("; did you mean [{nearest}]?"));
        let all: Vec<String> = SECTIONS.iter().map(|(known, _)| format!("[{known}]")).collect();
        Err(format!("no such section; allowed are {}{meant}", enumerate(&all, "and")))
    }
}
