//! The configuration of a data node as management nodes hand it out, and its copy in the node's folder, by which the
//! node starts when none of them answers.
//!
//! ```text
//!   node-1/configuration.cached     # generation=3 digest=1f2e3d4c5b6a7988 node=1 from=db1:1186
//!                                   and behind that line the text, a configuration file like any other
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vinga_base::NodeId;
use vinga_base::hash::text_digest;
use vinga_config::file::ConfigFile;
use vinga_mgm::{Fetched, ManagementAddresses, NotFetched, fetch};
use vinga_runtime::exchange::Exchange;
use vinga_runtime::node_folder::{NodeFolder, replace_durably};
use vinga_wire::ErrorCode;
use vinga_wire::configuration::{ConfigurationReader, ConfigurationStamp};

/// A configuration that a management node has handed out, now or before an earlier start.
pub struct HandedOut {
    /// Which data node this is; `None` if that is not known, as it was only to be shown.
    pub node: Option<u64>,
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
    /// That another management node seems to have a later one, if so.
    pub warning: Option<String>,
    /// Open as long as the node runs.
    _connection: Option<Exchange>,
}

/// What a configuration is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The data node runs with it, and has its id as long as it does.
    Run,
    /// It is shown: nobody is given an id.
    Show,
}

/// Gets the configuration from one of these management nodes; or from the copy in the folder, if none answers. `node`:
/// who this is, unless the management node is to say it.
///
/// # Errors
/// A text: an address is wrong, a management node refuses, or none answers and there is no copy that can be used.
pub fn get(
    addresses: &str,
    node: Option<u64>,
    folder: Option<&NodeFolder>,
    purpose: Purpose,
) -> Result<HandedOut, String> {
    let addresses = ManagementAddresses::parse(addresses).map_err(|why| format!("--mgm {why}"))?;
    let reader = match (purpose, node.map(u8::try_from)) {
        (_, Some(Err(_))) => return Err("--node: the ids of data nodes are 1 to 144".to_owned()),
        (Purpose::Show, _) => ConfigurationReader::Onlooker,
        (Purpose::Run, None) => ConfigurationReader::AnyDataNode,
        (Purpose::Run, Some(Ok(node))) => ConfigurationReader::DataNode(NodeId(node)),
    };
    match fetch(&addresses, reader) {
        Ok(Fetched { stamp, node: given, text, from, connection, .. }) => {
            // One that is damaged is replaced.
            let copy = folder.and_then(|folder| read_copy(folder).ok().flatten());
            Ok(HandedOut {
                node: match purpose {
                    Purpose::Run => Some(given.0.into()),
                    Purpose::Show => node.or_else(|| copy.as_ref()?.node),
                },
                warning: copy.and_then(|copy| lower_generation(stamp, &from, &copy)),
                stamp,
                text,
                name: format!("configuration of {from}"),
                from,
                why_cached: None,
                _connection: Some(connection),
            })
        }
        Err(NotFetched::Refused(why)) => Err(format!("no configuration: {why}")),
        Err(NotFetched::NotReached(why)) => {
            let Some(folder) = folder else {
                return Err(format!(
                    "no management node answers ({why}), and no --folder has a copy of the configuration"
                ));
            };
            let copy = read_copy(folder)
                .map_err(|damaged| format!("no management node answers ({why}), and {damaged}"))?
                .ok_or_else(|| format!("no management node answers ({why}), and {}", no_copy(folder)))?;
            Ok(HandedOut { node: node.or(copy.node), why_cached: Some(why), ..copy })
        }
    }
}

/// The warning that a configuration may be older than the copy of the one before.
fn lower_generation(stamp: ConfigurationStamp, from: &str, copy: &HandedOut) -> Option<String> {
    let is_lower = stamp.generation < copy.stamp.generation && stamp.digest != copy.stamp.digest;
    is_lower.then(|| {
        format!(
            "generation {} of the configuration, which {from} hands out, is below that of this node's last start, {}, from \
             {}: it may be an older file. Management nodes count for themselves",
            stamp.generation, copy.stamp.generation, copy.from
        )
    })
}

fn no_copy(folder: &NodeFolder) -> String {
    format!("there is no copy of an earlier configuration, {}", copy_of(folder).display())
}

fn copy_of(folder: &NodeFolder) -> PathBuf {
    folder.path().join("configuration.cached")
}

/// The copy in a folder, if there is one.
///
/// # Errors
/// A text: it can't be read, or is not what was written.
fn read_copy(folder: &NodeFolder) -> Result<Option<HandedOut>, String> {
    let file = copy_of(folder);
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(format!("cannot read {}: {why}", file.display())),
    };
    let text = String::from_utf8(text).map_err(|_| damaged(&file, "it is no text in UTF-8"))?;
    let bad = || damaged(&file, "it should begin with # generation=…");
    let (first, configuration) = text.split_once('\n').ok_or_else(bad)?;
    let first = first.strip_prefix("# ").ok_or_else(bad)?;
    let field = |name: &str| first.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok()).ok_or_else(bad);
    let digest = field("digest").and_then(|digest| u64::from_str_radix(digest, 16).ok()).ok_or_else(bad)?;
    let (generation, node) = (number("generation")?, number("node")?);
    let from = field("from").ok_or_else(bad)?.to_owned();
    // Data nodes compare digests only: with another text behind this one they would begin together nevertheless.
    if text_digest(configuration) != digest {
        return Err(damaged(
            &file,
            "its text has another digest than its first line: it was changed or cut off",
        ));
    }
    Ok(Some(HandedOut {
        node: Some(node),
        stamp: ConfigurationStamp { generation, digest },
        text,
        name: file.display().to_string(),
        from,
        why_cached: None,
        warning: None,
        _connection: None,
    }))
}

fn damaged(file: &Path, what: &str) -> String {
    format!(
        "the copy of the configuration can't be used (error {}), {}: {what}. Start a management node, or remove the copy and \
         name a file by --config",
        ErrorCode::DamagedConfiguration as u16,
        file.display()
    )
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
        let Some(node) = self.node.filter(|_| self.why_cached.is_none()) else { return Ok(()) };
        let ConfigurationStamp { generation, digest } = self.stamp;
        let file = copy_of(folder);
        let text = format!(
            "# generation={generation} digest={digest:016x} node={node} from={}\n{}",
            self.from, self.text
        );
        replace_durably(&file, &text).map_err(|why| format!("cannot write {}: {why}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[data]\nNodeId=2\n";

    fn handed_out() -> HandedOut {
        HandedOut {
            node: Some(2),
            stamp: ConfigurationStamp { generation: 3, digest: text_digest(TEXT) },
            text: TEXT.to_owned(),
            name: "there".to_owned(),
            from: "db1:1186".to_owned(),
            why_cached: None,
            warning: None,
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
        assert_eq!((copy.node, copy.stamp, copy.from.as_str()), (Some(2), handed_out().stamp, "db1:1186"));
        assert_eq!(copy.file().data_node_ids(), [2]);
        assert!(copy.file().errors().is_empty());
        // One that starts from the copy leaves it alone.
        let cached = HandedOut { why_cached: Some("nobody answers".to_owned()), text: String::new(), ..copy };
        cached.keep_copy(&folder).expect("nothing is written");
        assert_eq!(read_copy(&folder).expect("it is good").expect("it is there").file().data_node_ids(), [2]);
    }

    /// A copy of which the last lines were missing, or that somebody had changed, was started from: with the digest of
    /// the whole one, so that other data nodes did not notice.
    #[test]
    fn what_is_no_copy_any_more_is_refused_by_name() {
        let place = tempfile::tempdir().expect("a folder can be made");
        let folder = NodeFolder::at(place.path().to_owned());
        handed_out().keep_copy(&folder).expect("it can be written");
        let good = fs::read_to_string(copy_of(&folder)).expect("it was written");
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|end| good.as_bytes()[..end].to_vec()).collect();
        bad.extend(
            ["[data]\n", "# generation=1\n", "# generation=x digest=1 node=1 from=a:1\n"].map(Into::into),
        );
        bad.push(good.replace("NodeId=2", "NodeId=1").into());
        bad.push(vec![0; good.len()]);
        bad.push(vec![0xff; good.len()]);
        for bad in bad {
            fs::write(copy_of(&folder), &bad).expect("it is ours");
            let why = read_copy(&folder).err().expect("it is no copy");
            assert!(why.contains("error 20055") && why.contains("configuration.cached"), "{why}");
        }
    }

    #[test]
    fn a_lower_generation_is_warned_of() {
        let warned = |generation, digest| {
            let stamp = ConfigurationStamp { generation, digest };
            lower_generation(stamp, "db2:1186", &handed_out())
        };
        let why = warned(2, 1).expect("it is lower");
        assert!(why.contains("generation 2") && why.contains("last start, 3, from db1:1186"), "{why}");
        // Another management node may count otherwise.
        assert_eq!([warned(2, text_digest(TEXT)), warned(3, 1), warned(4, 1)], [None, None, None]);
    }
}
