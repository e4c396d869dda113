//! `vinga admin add nodegroup`: a cluster on this machine gets one more node group.
//!
//! The data nodes of the group are written into the cluster's file; all nodes are restarted one after the other, as a
//! node admits only those that it knows; then they are started, and join. The file is locked all the time. A command
//! that has failed on the way is given again: it goes on with data nodes that stand in the file and that have not
//! joined yet, and adds no others.

use super::begun::{Begun, check_memory};
use super::port_choice::PortChoice;
use super::several::{self, Wanted};
use crate::admin::{leave, rolling_restart};
use crate::arguments::{name_and_value, whole};
use crate::cluster_file::{ClusterFile, HOST, more_ports};
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use vinga::NodeId;
use vinga::blocking::Cluster;
use vinga_config::configuration::Configuration;
use vinga_config::data_nodes::DataNodes;
use vinga_config::file::ConfigFile;
use vinga_config::parameters::Parameter;
use vinga_datanode::this_machine;
use vinga_runtime::say;

/// The greatest id of a data node.
const ID_MAX: u8 = 144;

/// `vinga admin add nodegroup`.
#[derive(Args)]
pub struct NodeGroupArguments {
    /// A parameter of its data nodes, which is written into the file (may be given several times);
    /// docs/configuration.md lists them
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    parameters: Vec<(String, String)>,
    /// Behind so many seconds a data node that is restarted stops also if it has not left
    #[arg(long, value_name = "SECONDS", default_value = leave::WAIT,
          value_parser = whole(1..=leave::WAIT_MAX))]
    wait: u32,
}

/// Adds a node group to the cluster in this folder; `None` if it was found in another way.
///
/// # Errors
/// A text: it can't be added, or something has failed on the way.
pub fn add_node_group(
    folder: Option<&Path>,
    cluster: &Cluster,
    wanted: &NodeGroupArguments,
    json: bool,
) -> Result<(), String> {
    let begun = Instant::now();
    let folder = folder.ok_or(
        "a node group is added to the cluster of a folder on this machine (--folder). For one on several machines \
         docs/operations.md has the steps",
    )?;
    let file = ClusterFile::of(folder);
    // Locking it would make one.
    file.read()?.ok_or_else(|| of_one(&file))?;
    // Both until the data nodes run.
    let _ports = PortChoice::begin();
    let mut locked = file.lock()?;
    let found = read(&file)?;
    let missing = not_in_cluster(&found, &file, cluster)?;
    let goes_on = !missing.is_empty();
    if goes_on {
        check_same(&found, &file, &missing, &wanted.parameters)?;
    }
    let ids = if goes_on {
        missing
    } else {
        let group = Group::of(&found, cluster)?;
        locked.append(&group.describe(&file, &wanted.parameters)?)?;
        group.ids
    };
    if !json {
        say!("{}: in {}", list(&ids), file.path().display());
    }
    let start = Start { folder, file: &file, ids: &ids, json };
    // Those that run may know them already.
    let first = if goes_on { start.run() } else { Err(String::new()) };
    if let Err(first) = first {
        let restarted =
            rolling_restart::Wanted { cluster, folder: Some(folder), wait: wanted.wait, is_said: !json };
        let restarted = rolling_restart::restart_all(&restarted).map_err(|why| match first.as_str() {
            "" => why,
            first => format!("{first}\n{why}"),
        });
        restarted.and_then(|_| start.run()).map_err(|why| {
            let (names, path) = (list(&ids), file.path().display());
            format!(
                "{why}\nthe same command goes on with {names}, as {path} has them, where their parameters may be changed \
                 before. Without their sections, 'vinga admin rolling-restart' brings the cluster back to where it was, as \
                 long as none of them has joined"
            )
        })?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        say!("{}", json!({ "data_nodes": ids, "were_in_file": goes_on, "seconds": seconds }));
    } else {
        say!("the cluster has them, after {seconds:.2} s; 'vinga admin reorganize' moves partitions there");
        if goes_on {
            say!("they stood in the file before: no other node group was added");
        }
    }
    Ok(())
}

fn list(ids: &[u8]) -> String {
    let names = ids.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    format!("data node{} {names}", if ids.len() == 1 { "" } else { "s" })
}

fn of_one(file: &ClusterFile) -> String {
    format!(
        "{} does not describe several data nodes: a cluster that began with one can't get more. Make another one \
         ('vinga up --data-nodes N --replicas R', in another --folder)",
        file.path().display()
    )
}

/// A file with its data nodes.
struct Read {
    text: String,
    whole: ConfigFile,
    data_nodes: DataNodes,
    management: Vec<u8>,
    ports: Vec<u16>,
}

fn read(file: &ClusterFile) -> Result<Read, String> {
    let path = file.path().display().to_string();
    let text =
        std::fs::read_to_string(file.path()).map_err(|error| format!("cannot read {path}: {error}"))?;
    let whole = ConfigFile::parse(&path, &text);
    if whole.data_node_ids().len() < 2 {
        return Err(of_one(file));
    }
    let nodes =
        vinga_config::ConfiguredNodes::new(&whole, &this_machine()).map_err(|errors| errors.to_string())?;
    let ports = nodes.data_nodes.all().iter().map(|node| node.port);
    let ports = ports.chain(nodes.management_nodes.iter().map(|node| node.port)).collect();
    let management = whole.management_node_ids();
    Ok(Read { text, whole, data_nodes: nodes.data_nodes, management, ports })
}

/// The data nodes of the file that were added before, and are not in the cluster yet.
fn not_in_cluster(found: &Read, file: &ClusterFile, cluster: &Cluster) -> Result<Vec<u8>, String> {
    Begun::check(cluster, file.path(), &found.whole)?;
    let members = cluster.data_nodes();
    let ids = found.data_nodes.all().iter().map(|one| one.node);
    let missing: Vec<u8> = ids.filter(|&id| !members.contains(&NodeId(id))).collect();
    let groups = cluster.node_groups();
    let has_ended = |id: &&u8| {
        let group = found.data_nodes.get(**id).map(|one| one.group);
        groups.iter().any(|one| Some(one.group) == group && one.partitions > 0)
    };
    match missing.iter().find(has_ended) {
        None => Ok(missing),
        Some(ended) => Err(format!(
            "data node {ended} of the cluster is not in it at the moment: data nodes are added when all others are there. \
             'vinga up' starts it, and 'vinga admin status' says how it is. Nothing was changed"
        )),
    }
}

/// Whether data nodes of the file have these parameters already.
fn check_same(
    found: &Read,
    file: &ClusterFile,
    ids: &[u8],
    parameters: &[(String, String)],
) -> Result<(), String> {
    for &id in ids {
        let own = id.to_string();
        let with = |parameters: &[(String, String)]| {
            let given = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let flags: Vec<_> = [(Parameter::NodeId.name(), own.as_str())].into_iter().chain(given).collect();
            let configuration = Configuration::new(Some(&found.whole), &flags, &this_machine());
            configuration.map(|one| one.parameters).map_err(|errors| errors.to_string())
        };
        let (has, wanted) = (with(&[])?, with(parameters)?);
        for (name, value) in parameters {
            let parameter = Parameter::named(name)?;
            if has.get(parameter) != wanted.get(parameter) {
                return Err(format!(
                    "{} has data nodes that are not in the cluster yet, {}, and this command goes on with these: data node \
                     {id} has no {name}={value} there. Leave --set out, or change it there",
                    file.path().display(),
                    list(ids)
                ));
            }
        }
    }
    Ok(())
}

/// A node group that is to be added.
struct Group<'a> {
    file: &'a Read,
    group: u16,
    ids: Vec<u8>,
    ports: Vec<u16>,
}

impl<'a> Group<'a> {
    fn of(file: &'a Read, cluster: &Cluster) -> Result<Self, String> {
        let replicas = file.data_nodes.replicas();
        if replicas < 2 {
            return Err(
                "each row is on one data node (NoOfReplicas=1): data nodes can't be restarted one after the other, nor can \
                 partitions move. Nothing was changed"
                    .to_owned(),
            );
        }
        let groups = cluster.node_groups();
        let partitions: usize = groups.iter().map(|group| group.partitions).sum();
        if usize::from(file.data_nodes.groups()) >= partitions {
            return Err(format!(
                "there are {} node groups, and {partitions} partitions, of which each node group has one at least: \
                 NoOfFragmentLogParts says how many a cluster begins with. Nothing was changed",
                file.data_nodes.groups()
            ));
        }
        let taken: Vec<u8> =
            file.data_nodes.all().iter().map(|one| one.node).chain(file.management.iter().copied()).collect();
        let ids: Vec<u8> =
            (1..=ID_MAX).filter(|id| !taken.contains(id)).take(usize::from(replicas)).collect();
        if ids.len() < usize::from(replicas) {
            return Err(format!("data nodes have the ids 1 to {ID_MAX}, and {} are free", ids.len()));
        }
        let ports = more_ports(ids.len(), &file.ports)?;
        Ok(Group { file, group: file.data_nodes.groups(), ids, ports })
    }

    /// Their sections of the file, which is good with them.
    fn describe(&self, file: &ClusterFile, parameters: &[(String, String)]) -> Result<String, String> {
        let text = self.sections(parameters);
        let name = format!("{} with the node group added", file.path().display());
        let whole = ConfigFile::parse(&name, &format!("{}{text}", self.file.text));
        let memory =
            check_memory(&whole, &this_machine()).map_err(|why| format!("{why}. Nothing was changed"))?;
        let is_given = |(name, _): &(String, String)| Parameter::named(name) == Ok(Parameter::DataMemory);
        if parameters.iter().any(is_given) {
            return Ok(text);
        }
        // By default each data node takes up to a quarter of the machine's memory. The rows need no more than before.
        let all: u64 = memory.iter().map(|(_, memory)| memory).sum();
        let machine = this_machine().memory_bytes;
        if all <= machine {
            return Ok(text);
        }
        Err(format!(
            "all data nodes together would have a DataMemory of {} MiB, and this machine has {} MiB. Give them less in {}, \
             which 'vinga admin rolling-restart' brings to those that run; or say how much the new ones have, by --set \
             DataMemory=SIZE: partitions move there as long as there is room. Nothing was changed",
            all >> 20,
            machine >> 20,
            file.path().display()
        ))
    }

    fn sections(&self, parameters: &[(String, String)]) -> String {
        let mut text = String::new();
        if !self.file.text.ends_with('\n') {
            text.push('\n');
        }
        let host = self.file.data_nodes.all().first().map_or(HOST, |one| one.host.as_str());
        for (id, port) in self.ids.iter().zip(&self.ports) {
            let _ = write!(
                text,
                "\n[ndbd]\nNodeId={id}\nNodeGroup={}\nHostName={host}\nServerPort={port}\n",
                self.group
            );
            for (name, value) in parameters {
                let _ = writeln!(text, "{name}={value}");
            }
        }
        text
    }
}

/// Data nodes that are started.
struct Start<'a> {
    folder: &'a Path,
    file: &'a ClusterFile,
    ids: &'a [u8],
    json: bool,
}

impl Start<'_> {
    /// Starts them, and all else of the file that does not run.
    fn run(&self) -> Result<(), String> {
        let &Start { folder, file, ids, json } = self;
        let found = file.read()?.ok_or_else(|| format!("{} is gone", file.path().display()))?;
        let (all, management) = (found.data_node_ids(), found.management_node_ids());
        let wanted = Wanted { cluster: folder, file, ids: &all, management: &management, parameters: &[] };
        let running = several::start(&wanted)?;
        if !running.failures.is_empty() {
            return Err(running.failures.join("\n"));
        }
        for (id, address, _) in running.nodes.iter().filter(|(id, ..)| !json && ids.contains(id)) {
            say!("data node {id} is ready on {address}: it has joined the others");
        }
        Ok(())
    }
}
