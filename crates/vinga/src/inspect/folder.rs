//! `vinga inspect folder`: whether a data node would start from its folder.
//!
//! It is the start itself that decides, with the same blocks and the same configuration (`Assembly::look_into`). It
//! ends before anything is written.

use crate::arguments::whole;
use crate::cluster_file::ClusterFile;
use crate::data::{self, DataOptions, ParameterArguments};
use crate::data_node;
use crate::database_note::DatabaseNote;
use crate::table::{Table, counted, grouped};
use clap::Args;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_datanode::{Assembly, Outlook, check_existing, why_refused};
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;
use vinga_wire::start::{Restored, RestoredFrom};

#[derive(Args)]
pub(super) struct FolderArguments {
    /// The folder of a data node that does not run, or that of its cluster
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Which data node of the configuration this is [default: that of the folder's name, as node-1]
    #[arg(long, value_name = "ID", value_parser = whole(1..=255u8))]
    node: Option<u8>,
    #[command(flatten)]
    parameters: ParameterArguments,
}

/// Finds out whether a start would work; says what it would restore.
///
/// # Errors
/// The text with which the start would be refused; or the folder can't be looked into, as a node runs in it.
pub(super) fn inspect(arguments: &FolderArguments, is_json: bool) -> Result<(), String> {
    let folder = folder_of_node(&arguments.folder)?;
    let outlook = look(arguments, &folder);
    let place = folder.path().display().to_string();
    if is_json {
        let verdict = match &outlook {
            Ok(Outlook::NotRead) => json!({ "folder": place, "starts": true, "database": null }),
            Ok(Outlook::Nothing) => json!({ "folder": place, "starts": true, "database": "none" }),
            Ok(Outlook::Restored { restored, from }) => json!({
                "folder": place, "starts": true, "database": "restored", "restored": restored, "from": from,
            }),
            Err(why) => json!({ "folder": place, "starts": false, "why": why }),
        };
        say!("{verdict}");
        return outlook.map(drop);
    }
    match outlook? {
        Outlook::NotRead => {
            say!("{place}: a start does not look at these files: Diskless=yes keeps all in memory");
        }
        Outlook::Nothing => say!("{place}: a start begins with an empty database, as there is none here"),
        Outlook::Restored { restored, from } => show(&place, &restored, &from),
    }
    Ok(())
}

/// The node's own folder, if that of its cluster is named.
fn folder_of_node(named: &Path) -> Result<NodeFolder, String> {
    let cannot_look = |why: &io::Error| format!("cannot look into {}: {}", named.display(), why_refused(why));
    let nodes = match data_node::numbers(named) {
        Ok(nodes) => nodes,
        // A node that is to have a database says itself that there is none.
        Err(_) if !named.exists() => Vec::new(),
        Err(why) => return Err(cannot_look(&why)),
    };
    match nodes[..] {
        // One such as "." has no name of its own, which a note on it or its number could be found by.
        [] if named.file_name().is_none() => {
            let place = named.canonicalize().map_err(|why| cannot_look(&why))?;
            Ok(NodeFolder::at(place))
        }
        [] => Ok(NodeFolder::at(named.to_owned())),
        [node] => Ok(NodeFolder::new(named, node)),
        [node, ..] => Err(format!(
            "there are folders of {} data nodes in {}: name one of them, such as {}",
            nodes.len(),
            named.display(),
            named.join(format!("node-{node}")).display()
        )),
    }
}

fn look(arguments: &FolderArguments, folder: &NodeFolder) -> Result<Outlook, String> {
    let configuration = configuration(arguments, folder)?;
    let place = folder.path();
    let is_needed = DatabaseNote::of(folder).exists()?;
    if is_needed {
        check_existing(&configuration, place)?;
    }
    if !place.is_dir() {
        return Err(format!("there is no folder {}", place.display()));
    }
    let cannot_use = |why| format!("cannot use the folder {}: {}", place.display(), why_refused(&why));
    let lock = folder.lock_to_read().map_err(cannot_use)?;
    let _lock = lock.ok_or_else(|| format!("another data node runs in {}", place.display()))?;
    // What the start would warn of: a checkpoint that is passed over, for example.
    let level =
        arguments.parameters.log_level().and_then(log::level_named).unwrap_or(::log::LevelFilter::Warn);
    log::begin(&LogSettings { file: None, stderr: true, level, copy: None })?;
    for warning in &configuration.warnings {
        ::log::warn!(target: "configuration", "{warning}");
    }
    Assembly::look_into(&configuration, place, is_needed)
}

/// The configuration with which `vinga up` would start the node.
fn configuration(arguments: &FolderArguments, folder: &NodeFolder) -> Result<Configuration, String> {
    let mut parameters = arguments.parameters.flags();
    let mut config = arguments.parameters.config()?;
    let mut node = arguments.node;
    let name = folder.path().file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix("node-")).and_then(|number| number.parse().ok());
    let cluster = folder.path().parent().filter(|_| number.is_some());
    if let Some(cluster) = cluster {
        let file = ClusterFile::of(cluster);
        if config.is_none() && file.read()?.is_some() {
            config = Some(file.path().to_owned());
        }
        let is_one_of_several = match &config {
            Some(config) => data::read_file(config)?.data_node_ids().len() > 1,
            None => false,
        };
        node = node.or(number.filter(|_| is_one_of_several));
    }
    if let Some(node) = node {
        parameters.push((Parameter::NodeId.name().to_owned(), node.to_string()));
    }
    let options = DataOptions { config, parameters };
    let configuration = data::configuration(&options)?;
    // 'vinga up' gives it the cluster's own one.
    let key = cluster.map(|cluster| cluster.join("cluster.key")).filter(|key| key.exists());
    match key.filter(|_| configuration.parameters.text(Parameter::ClusterKeyFile).is_none()) {
        None => Ok(configuration),
        Some(key) => {
            let DataOptions { config, mut parameters } = options;
            parameters.push((Parameter::ClusterKeyFile.name().to_owned(), key.display().to_string()));
            data::configuration(&DataOptions { config, parameters })
        }
    }
}

fn show(place: &str, restored: &Restored, from: &[RestoredFrom]) {
    let Restored { epoch, rows, batches, durable_at, millis: _ } = *restored;
    let moment = match durable_at {
        0 => String::new(),
        at => format!(" ({})", humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at))),
    };
    say!("{place}: a start works, and restores {} up to epoch {epoch}{moment}", counted(rows, "row"));
    let mut table = Table::new(["data manager", "checkpoint", "builds on", "its rows", "log from batch"]);
    [0, 1, 3, 4].into_iter().for_each(|column| table.align_right(column));
    for RestoredFrom { data_manager, files, rows, batch } in from {
        let (newest, earlier) = match files.split_last() {
            Some((newest, earlier)) => (newest.to_string(), earlier),
            None => ("none".to_owned(), &[][..]),
        };
        let earlier: Vec<String> = earlier.iter().map(ToString::to_string).collect();
        let earlier = if earlier.is_empty() { "-".to_owned() } else { earlier.join(", ") };
        let first = (*batch).max(1);
        table.row([data_manager.to_string(), newest, earlier, grouped(*rows), first.to_string()]);
    }
    say!("{}", table.to_string().trim_end());
    let are = if batches == 1 { "batch is" } else { "batches are" };
    say!("of the log {} {are} applied, up to the end of epoch {epoch}", grouped(batches));
}
