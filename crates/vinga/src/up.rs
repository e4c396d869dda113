//! `vinga up` and `vinga down`: a cluster on this machine, for development and tests.

mod begun;
mod down;
mod first_start;
mod messages;
mod node_group;
mod port_choice;
mod several;
mod started;

pub use down::down;
pub use node_group::{NodeGroupArguments, add_node_group};
pub use several::{check_file, management_that_runs, restart_management};

use crate::arguments::{FolderArgument, InstallationArguments, name_and_value, whole, with_key};
use crate::cluster_file::{ClusterFile, Size};
use crate::data::ParameterArguments;
use crate::data_node::{self, Found};
use crate::sql_nodes;
use clap::Args;
use first_start::FirstStart;
use messages::{say_fresh, say_several};
use port_choice::PortChoice;
use std::io;
use std::path::{Path, PathBuf};
use vinga_config::parameters::Parameter;
use vinga_datanode::this_machine;
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::say;

/// `vinga up`.
#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    folder: FolderArgument,
    /// How many data nodes a new cluster has; several keep everything in memory only [default: as many as there are,
    /// else 1]
    #[arg(long, value_name = "N", value_parser = whole(1..=144u8))]
    data_nodes: Option<u8>,
    /// How many data nodes hold each row; it divides the number of data nodes [default: 1]
    #[arg(long, value_name = "R", value_parser = whole(1..=4u8))]
    replicas: Option<u8>,
    /// How many management nodes a new cluster has: they decide which data nodes go on when they lose each other
    /// [default: 1 if there are several replicas, else none]
    #[arg(long, value_name = "N", value_parser = whole(0..=2u8))]
    management_nodes: Option<u8>,
    /// Where the data node listens [default: ServerPort, else the port that it had before, else 2202]; of several, the
    /// first one, and the others on the ports behind it [default: free ones from 2202 on]
    #[arg(long, value_parser = whole(0..=u16::MAX))]
    port: Option<u16>,
    /// Begin anew: remove the database of the data node first, all tables and rows. SQL nodes keep what they store
    /// themselves
    #[arg(long)]
    initial: bool,
    #[command(flatten)]
    parameters: ParameterArguments,
    #[command(flatten)]
    sql: SqlArguments,
}

#[derive(Args)]
#[command(next_help_heading = "SQL nodes")]
struct SqlArguments {
    /// How many SQL nodes (MariaDB servers over the cluster's tables) shall run
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=64u16))]
    sql_nodes: u16,
    /// Where the first SQL node listens on 127.0.0.1; the others on the ports behind it [default: those that they had
    /// before, else 3307]
    #[arg(long, value_name = "PORT", value_parser = whole(0..=u16::MAX))]
    sql_port: Option<u16>,
    /// A server variable for SQL nodes that are started (may be given several times); docs/sql.md lists those that
    /// Vinga sets
    #[arg(long = "sql-set", value_name = "NAME=VALUE", value_parser = sql_variable)]
    sql_variables: Vec<(String, String)>,
    #[command(flatten)]
    installation: InstallationArguments,
}

/// `NAME=VALUE` of a variable that users may set.
fn sql_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = name_and_value(text)?;
    if vinga_sqlnode::is_own(&name) {
        return Err(format!(
            "Vinga sets {name} itself, for each SQL node (--sql-port names the first one's port)"
        ));
    }
    Ok((name, value))
}

/// The data nodes, when everything runs that can run.
struct DataNodesUp {
    /// Their addresses, for SQL nodes.
    addresses: String,
    /// Why others of the cluster's data nodes and management nodes could not be started.
    failures: Vec<String>,
}

/// Starts the nodes that do not run yet.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: UpArguments) -> Result<(), String> {
    let UpArguments { folder, data_nodes, replicas, management_nodes, port, initial, parameters, sql } =
        arguments;
    let cluster = folder.folder;
    refuse_folder_of_node(&cluster)?;
    // Without SQL nodes to start no server is needed.
    let installation = if sql.sql_nodes == 0 { None } else { Some(sql.installation.find()?) };
    // Problems with them are reported before anything is started; a cluster that runs gets what it can have.
    let ports = sql_nodes::check_ports(&sql_nodes::Wanted {
        cluster: &cluster,
        nodes: sql.sql_nodes,
        port: sql.sql_port,
        installation: None,
        data_nodes: "",
        variables: &[],
    });
    if !runs(&cluster)? {
        ports?;
    }
    let asked =
        DataNodes { cluster: &cluster, data_nodes, replicas, management_nodes, port, initial, parameters };
    let DataNodesUp { addresses, mut failures } = asked.up()?;
    let sql = sql_nodes::up(&sql_nodes::Wanted {
        cluster: &cluster,
        nodes: sql.sql_nodes,
        port: sql.sql_port,
        installation,
        data_nodes: &addresses,
        variables: &sql.sql_variables,
    });
    failures.extend(sql.err());
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    Ok(())
}

/// Whether a data node of the cluster has a process.
fn runs(cluster: &Path) -> Result<bool, String> {
    let failed = |error: io::Error| look_failed(cluster, &error);
    for number in data_node::numbers(cluster).map_err(failed)? {
        if NodeFolder::new(cluster, number).running().map_err(failed)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A folder that is a node's own holds no cluster: a new one in it would be taken for the old one without its data.
fn refuse_folder_of_node(cluster: &Path) -> Result<(), String> {
    if NodeFolder::at(cluster.to_owned()).last_start().is_none() {
        return Ok(());
    }
    // A relative path may have no parent that can be named.
    let parent = std::path::absolute(cluster).ok().and_then(|path| path.parent().map(Path::to_owned));
    Err(format!(
        "{} is the folder of a single node: name the folder of its cluster{}",
        cluster.display(),
        parent.map(|parent| format!(", as --folder {}", parent.display())).unwrap_or_default()
    ))
}

/// The data nodes that shall run.
struct DataNodes<'a> {
    cluster: &'a Path,
    data_nodes: Option<u8>,
    replicas: Option<u8>,
    management_nodes: Option<u8>,
    port: Option<u16>,
    initial: bool,
    parameters: ParameterArguments,
}

impl DataNodes<'_> {
    /// Makes them run.
    fn up(&self) -> Result<DataNodesUp, String> {
        let file = ClusterFile::of(self.cluster);
        let is_several = match file.read()? {
            Some(found) => found.data_node_ids().len() > 1,
            None => {
                self.refuse_folders_of_several(&file)?;
                self.data_nodes.unwrap_or(1) > 1
            }
        };
        if is_several {
            return self.several(&file);
        }
        let size = self.size();
        if size.data_nodes > 1 {
            return Err(self.other_number(1, file.path()));
        }
        size.check()?;
        self.one(&file).map(|addresses| DataNodesUp { addresses, failures: Vec::new() })
    }

    /// The size of a new cluster.
    fn size(&self) -> Size {
        let replicas = self.replicas.unwrap_or(1);
        // Where each row is on one data node, no part of them goes on without the others.
        let management_nodes =
            self.management_nodes.unwrap_or((replicas > 1 && self.data_nodes > Some(1)).into());
        Size { data_nodes: self.data_nodes.unwrap_or(1), replicas, management_nodes }
    }

    /// Several data nodes without their configuration are no cluster of one.
    fn refuse_folders_of_several(&self, file: &ClusterFile) -> Result<(), String> {
        match data_node::numbers(self.cluster).map_err(|error| look_failed(self.cluster, &error))?.len() {
            0 | 1 => Ok(()),
            more => Err(format!(
                "there are folders of {more} data nodes in {}, but not their configuration, {}: put it back, or move the \
                 folders away",
                self.cluster.display(),
                file.path().display()
            )),
        }
    }

    /// The cluster of the folder has another number of data nodes than was asked for.
    fn other_number(&self, has: usize, said_by: &Path) -> String {
        format!(
            "the cluster in {} has {has} data node{} ({}): leave --data-nodes out; {}",
            self.cluster.display(),
            if has == 1 { "" } else { "s" },
            said_by.display(),
            if has == 1 {
                "one that began with one data node can't get more: make another cluster in another --folder"
            } else {
                "'vinga admin add nodegroup' adds some"
            }
        )
    }

    /// One data node; returns its address for SQL nodes.
    fn one(&self, file: &ClusterFile) -> Result<String, String> {
        let given = self.parameters.as_written();
        let wanted = data_node::Wanted {
            cluster: self.cluster.to_owned(),
            port: self.port,
            config: self.config_of_one(file)?,
            parameters: self.parameters.flags(),
            is_initial: self.initial,
        };
        let address = match data_node::start(&wanted)? {
            Found::Fresh(fresh) => {
                say_fresh(&fresh);
                fresh.address
            }
            Found::Already(address) => {
                say!("data node 1 is running already, on {address}");
                if !given.is_empty() {
                    say!(
                        "it keeps the settings that it was started with: {given} does not hold; 'vinga down' stops it"
                    );
                }
                address
            }
        };
        let folder = NodeFolder::new(self.cluster, 1);
        let address = with_key(&folder, &address);
        say!("clients connect to {address}");
        let local_address = folder.local_address();
        if let Some(address) = &local_address {
            say!("clients on this machine reach it faster by {address}");
        }
        say!("its folder with the log: {}", self.cluster.join("node-1").display());
        Ok(local_address.unwrap_or(address))
    }

    /// The configuration file of a cluster of one: that of the command line, else that in the folder.
    fn config_of_one(&self, file: &ClusterFile) -> Result<Option<PathBuf>, String> {
        let given = self.parameters.config()?;
        let own = match file.read()? {
            Some(_) => file.path().canonicalize().ok(),
            None => None,
        };
        match (given, own) {
            (Some(given), Some(own)) if given != own => Err(format!(
                "the cluster in {} has a configuration file, {}: leave --config out, or change that one",
                self.cluster.display(),
                own.display()
            )),
            (given, own) => Ok(given.or(own)),
        }
    }

    /// Several data nodes.
    fn several(&self, file: &ClusterFile) -> Result<DataNodesUp, String> {
        let given = self.parameters.flags();
        self.check_several(file, &given)?;
        let mut locked = file.lock()?;
        if let Some(found) = file.read()? {
            return self.start_several(file, &given, &found.data_node_ids(), &found.management_node_ids());
        }
        let size = self.size();
        let _until_they_are_taken = PortChoice::begin();
        let described = locked.describe(size, self.port, this_machine().memory_bytes);
        described.map_err(|why| locked.withdraw(why))?;
        let all: Vec<u8> = (1..=size.data_nodes + size.management_nodes).collect();
        let (data, management) = all.split_at(usize::from(size.data_nodes));
        let first = FirstStart::of(self.cluster, data, management);
        self.start_several(file, &given, data, management).map_err(|why| first.undo(&locked, why))
    }

    /// Starts the nodes of the configuration file, which is locked.
    fn start_several(
        &self,
        file: &ClusterFile,
        given: &[(String, String)],
        ids: &[u8],
        management: &[u8],
    ) -> Result<DataNodesUp, String> {
        let wanted = several::Wanted { cluster: self.cluster, file, ids, management, parameters: given };
        let configured = several::check(&wanted)?;
        if self.data_nodes.is_some_and(|wanted| usize::from(wanted) != ids.len()) {
            return Err(self.other_number(ids.len(), file.path()));
        }
        if let Some(replicas) = self.replicas.filter(|&replicas| replicas != configured.replicas()) {
            return Err(format!(
                "the cluster in {} has NoOfReplicas={} ({}), and not {replicas}: leave --replicas out, or make another \
                 cluster in another --folder",
                self.cluster.display(),
                configured.replicas(),
                file.path().display()
            ));
        }
        if self.management_nodes.is_some_and(|wanted| usize::from(wanted) != management.len()) {
            return Err(format!(
                "the cluster in {} has {} management nodes ({}): leave --management-nodes out, or change its sections [ndb_mgmd] \
                 while no data node runs",
                self.cluster.display(),
                management.len(),
                file.path().display()
            ));
        }
        let first = configured.all().first().map(|node| node.port);
        if let (Some(wanted), Some(first)) = (self.port.filter(|&port| port != 0), first)
            && wanted != first
        {
            return Err(format!(
                "the first data node listens on port {first} ({}): leave --port out, or change ports there",
                file.path().display()
            ));
        }
        let running = several::start(&wanted)?;
        say_several(self.cluster, file, &running, &self.parameters.as_written());
        let addresses = running.addresses(self.cluster).unwrap_or_default();
        Ok(DataNodesUp { addresses, failures: running.failures })
    }

    /// What can't be asked of several data nodes.
    fn check_several(&self, file: &ClusterFile, given: &[(String, String)]) -> Result<(), String> {
        if let Some(config) = self.parameters.config()? {
            return Err(format!(
                "--config {}: several data nodes have their configuration in {}, which the first 'vinga up' writes; copy \
                 the file there, or change that one",
                config.display(),
                file.path().display()
            ));
        }
        if self.initial {
            return Err("--initial removes a database from the disk, and several data nodes keep none there: 'vinga down' \
                        is enough"
                .to_owned());
        }
        if given.iter().any(|(name, _)| Parameter::named(name) == Ok(Parameter::NodeId)) {
            return Err("NodeId belongs to one data node, and 'vinga up' starts all of them".to_owned());
        }
        let replicas = |(name, _): &&(String, String)| Parameter::named(name) == Ok(Parameter::NoOfReplicas);
        if let (Some(asked), Some((_, set))) = (self.replicas, given.iter().find(replicas))
            && set.trim() != asked.to_string()
        {
            return Err(format!(
                "--replicas {asked} and --set NoOfReplicas={set} contradict each other: leave one of them out"
            ));
        }
        if file.read()?.is_some() {
            return Ok(());
        }
        self.size().check()?;
        let present = data_node::numbers(self.cluster).map_err(|error| look_failed(self.cluster, &error))?;
        match present.first() {
            None => Ok(()),
            Some(_) => {
                Err(self.other_number(present.len(), NodeFolder::new(self.cluster, present[0]).path()))
            }
        }
    }
}

fn look_failed(cluster: &Path, error: &io::Error) -> String {
    format!("cannot look into {}: {error}", cluster.display())
}
