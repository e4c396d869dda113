//! The configuration of a data node as management nodes hand it out, and its copy in the node's folder, by which the node
//! starts when none of them answers.
//!
//! ```text
//!   node-1/configuration.cached     # generation=3 digest=1f2e3d4c5b6a7988 node=1 from=db1:1186
//!                                   and behind that line the text, a configuration file like any other
//! ```

use std::fs;
use std::io;
use std::path::PathBuf;
use vinga_base::NodeId;
use vinga_config::file::ConfigFile;
use vinga_mgm::{Fetched, ManagementAddresses, NotFetched, fetch};
use vinga_runtime::exchange::Exchange;
use vinga_runtime::node_folder::NodeFolder;
use vinga_wire::configuration::{ConfigurationReader, ConfigurationStamp};

/// A configuration that a management node has handed out, now or before an earlier start.
pub struct HandedOut {
    /// Which data node this is.
    pub node: u64,
    /// Which configuration it is.
    pub stamp: ConfigurationStamp,
    /// Its text.
    text: String,
    /// Where the text is from, for messages about its lines.
    name: String,
    /// The address of the management node.
    from: String,
    /// Why the copy is used, if it is.
    pub why_cached: Option<String>,
    /// Open as long as the node runs.
    _connection: Option<Exchange>,
}

/// Gets the configuration from one of these management nodes; or from the copy in the folder, if none answers. `node`: who this
/// is, unless the management node is to say it.
///
/// # Errors
/// A text: an address is wrong, a management node refuses, or none answers and there is no copy.
pub fn get(addresses: &str, node: Option<u64>, folder: Option<&NodeFolder>) -> Result<HandedOut, String> {
    let addresses = ManagementAddresses::parse(addresses).map_err(|why| format!("--mgm {why}"))?;
    let reader = match node.map(u8::try_from) {
        None => ConfigurationReader::AnyDataNode,
        Some(Ok(node)) => ConfigurationReader::DataNode(NodeId(node)),
        Some(Err(_)) => return Err("--node: the ids of data nodes are 1 to 144".to_owned()),
    };
    match fetch(&addresses, reader) {
        Ok(Fetched { stamp, node, text, from, connection }) => Ok(HandedOut {
            node: node.0.into(),
            stamp,
            text,
            name: format!("configuration of {from}"),
            from,
            why_cached: None,
            _connection: Some(connection),
        }),
        Err(NotFetched::Refused(why)) => Err(format!("no configuration: {why}")),
        Err(NotFetched::NotReached(why)) => {
            let Some(folder) = folder else {
                return Err(format!(
                    "no management node answers ({why}), and no --folder has a copy of the configuration"
                ));
            };
            let copy = read_copy(folder)?
                .ok_or_else(|| format!("no management node answers ({why}), and {}", no_copy(folder)))?;
            Ok(HandedOut { node: node.unwrap_or(copy.node), why_cached: Some(why), ..copy })
        }
    }
}

fn no_copy(folder: &NodeFolder) -> String {
    format!("there is no copy of an earlier configuration, {}", copy_of(folder).display())
}

fn copy_of(folder: &NodeFolder) -> PathBuf {
    folder.path().join("configuration.cached")
}

fn read_copy(folder: &NodeFolder) -> Result<Option<HandedOut>, String> {
    let file = copy_of(folder);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(format!("cannot read {}: {why}", file.display())),
    };
    let bad =
        || format!("{} is no copy of a configuration: it should begin with # generation=…", file.display());
    let first = text.lines().next().and_then(|line| line.strip_prefix("# ")).ok_or_else(bad)?;
    let field = |name: &str| first.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok()).ok_or_else(bad);
    let digest = field("digest").and_then(|digest| u64::from_str_radix(digest, 16).ok()).ok_or_else(bad)?;
    let (generation, node) = (number("generation")?, number("node")?);
    let from = field("from").ok_or_else(bad)?.to_owned();
    Ok(Some(HandedOut {
        node,
        stamp: ConfigurationStamp { generation, digest },
        text,
        name: file.display().to_string(),
        from,
        why_cached: None,
        _connection: None,
    }))
}

impl HandedOut {
    /// The configuration file.
    pub fn file(&self) -> ConfigFile {
        ConfigFile::parse(&self.name, &self.text)
    }

    /// Where it is from, for the log.
    pub fn describe(&self) -> String {
        format!("generation {} of the configuration, from {}", self.stamp.generation, self.from)
    }

    /// Keeps a copy in the node's folder, which this process has locked, unless this is the copy.
    ///
    /// # Errors
    /// A text: it can't be written.
    pub fn keep_copy(&self, folder: &NodeFolder) -> Result<(), String> {
        if self.why_cached.is_some() {
            return Ok(());
        }
        let ConfigurationStamp { generation, digest } = self.stamp;
        let file = copy_of(folder);
        let text = format!(
            "# generation={generation} digest={digest:016x} node={} from={}\n{}",
            self.node, self.from, self.text
        );
        let unfinished = file.with_extension("new");
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &file));
        written.map_err(|why| format!("cannot write {}: {why}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed_out() -> HandedOut {
        HandedOut {
            node: 2,
            stamp: ConfigurationStamp { generation: 3, digest: 0xab },
            text: "[data]\nNodeId=2\n".to_owned(),
            name: "there".to_owned(),
            from: "db1:1186".to_owned(),
            why_cached: None,
            _connection: None,
        }
    }

    #[test]
    fn a_copy_is_the_configuration() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        assert!(read_copy(&folder).expect("there is none").is_none());
        handed_out().keep_copy(&folder).expect("it can be written");
        let copy = read_copy(&folder).expect("it is good").expect("it is there");
        assert_eq!((copy.node, copy.stamp, copy.from.as_str()), (2, handed_out().stamp, "db1:1186"));
        assert_eq!(copy.file().data_node_ids(), [2]);
        assert!(copy.file().errors().is_empty());
        // One that starts from the copy leaves it alone.
        let cached = HandedOut { why_cached: Some("nobody answers".to_owned()), text: String::new(), ..copy };
        cached.keep_copy(&folder).expect("nothing is written");
        assert_eq!(read_copy(&folder).expect("it is good").expect("it is there").file().data_node_ids(), [2]);
    }

    #[test]
    fn what_is_no_copy_is_named() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        for bad in ["", "[data]\n", "# generation=1\n", "# generation=x digest=1 node=1 from=a:1\n"] {
            fs::write(copy_of(&folder), bad).expect("it is ours");
            let why = read_copy(&folder).err().expect("it is no copy");
            assert!(why.contains("configuration.cached is no copy"), "{why}");
        }
    }
}
