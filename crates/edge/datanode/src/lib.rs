//! A data node, put together from a configuration: the blocks of `vinga-node` on the threads of `vinga-runtime`.
//!
//! [`Assembly`] is what a process's `main` runs until it is asked to stop. [`LocalNode`] is a small node inside a
//! process that also does something else: programs that test against a real node without starting one.
//!
//! A node that has a folder and is not `Diskless` keeps its data there ([`disk`]).

mod data_memory;
mod database_files;
mod disk;
mod facts;
mod first_start;
mod local_node;
mod machine;
mod others;
mod outlook;
mod settings;

pub use database_files::{DatabaseFiles, Removed, why_refused};
pub use disk::check_existing;
pub use local_node::LocalNode;
pub use machine::this_machine;
pub use outlook::Outlook;

use data_memory::DataMemory;
use disk::{FoundDisk, Looked, Needed};
use facts::EdgeFacts;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vinga_base::Epoch;
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_kernel::InjectedBug;
use vinga_node::{Blocks, NodeSettings};
use vinga_runtime::files::FileObserver;
use vinga_runtime::node_folder::NodeFolder;
use vinga_runtime::node_process::{self, NodeProcess, Statistics};
use vinga_runtime::settings as edge;
use vinga_runtime::stop_request::StopCause;
pub use vinga_runtime::termination::Termination;
use vinga_wire::configuration::ConfigurationStamp;
use vinga_wire::start::NodeStartedOrder;

/// A node whose memory is mapped and which can be started.
pub struct Assembly {
    node: NodeSettings,
    edge: edge::ProcessSettings,
    pages: DataMemory,
    allows_local: bool,
    /// What each thread hosts and where it may run.
    descriptions: Vec<String>,
}

impl Assembly {
    /// A node that keeps everything in memory. Maps the memory that the configuration asks for, and logs where the
    /// threads will run.
    ///
    /// # Errors
    /// A text that says what failed: the memory can't be mapped, or the address to listen on can't be resolved.
    pub fn new(configuration: &Configuration) -> Result<Self, String> {
        Self::with_disk(configuration, None, None)
    }

    /// A node whose files are in this folder, which exists and which the caller has locked. Unless the node is
    /// `Diskless` this reads what is there; nothing is written before the node is started, but the mark of a first
    /// start.
    ///
    /// # Errors
    /// As [`Assembly::new`]; or the node can't start from the files in the folder.
    pub fn stored_in(configuration: &Configuration, folder: &Path) -> Result<Self, String> {
        Self::found_in(configuration, folder, Needed::Nothing)
    }

    /// The same, for a node that has kept a database in this folder before: without one it does not begin anew.
    ///
    /// # Errors
    /// As [`Assembly::stored_in`]; or there is no database, as if the folder's disk were not mounted.
    pub fn existing_in(configuration: &Configuration, folder: &Path) -> Result<Self, String> {
        Self::found_in(configuration, folder, Needed::Database)
    }

    /// What a start from this folder would come to, which exists and in which no node runs: everything that is there is
    /// read, judged and restored into memory as by a start ([`Assembly::stored_in`]; with `is_needed`:
    /// [`Assembly::existing_in`]), and nothing is changed.
    ///
    /// # Errors
    /// The text with which the start would be refused.
    pub fn look_into(
        configuration: &Configuration,
        folder: &Path,
        is_needed: bool,
    ) -> Result<Outlook, String> {
        if configuration.parameters.flag(Parameter::Diskless) {
            return Ok(Outlook::NotRead);
        }
        let needed = if is_needed { Needed::Database } else { Needed::Nothing };
        let Looked { is_first, mut settings, .. } = disk::look(configuration, folder, needed)?;
        if is_first {
            return Ok(Outlook::Nothing);
        }
        settings.start.is_trial = true;
        let found = FoundDisk { settings, mark: None };
        let mut assembly = Self::with_disk(configuration, Some(found), Some(folder.to_owned()))?;
        assembly.edge.files.is_read_only = true;
        // Nobody is informed, and nobody is let in: the port may be in use by another node.
        assembly.edge.start_progress = None;
        assembly.edge.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (edge, make_host) = assembly.into_parts();
        let NodeStartedOrder { restored, from } = NodeProcess::try_start(edge, make_host)?;
        let restored = restored.ok_or("the node has restored nothing, though it has a database")?;
        Ok(Outlook::Restored { restored, from })
    }

    fn found_in(configuration: &Configuration, folder: &Path, needed: Needed) -> Result<Self, String> {
        let has_disk = !configuration.parameters.flag(Parameter::Diskless);
        let disk = has_disk.then(|| disk::find(configuration, folder, needed)).transpose()?;
        Self::with_disk(configuration, disk, Some(folder.to_owned()))
    }

    fn with_disk(
        configuration: &Configuration,
        disk: Option<FoundDisk>,
        folder: Option<PathBuf>,
    ) -> Result<Self, String> {
        let progress = folder.clone();
        let restores = disk.is_some();
        let (disk, mark) = disk.map(|found| (found.settings, found.mark)).unzip();
        let node = settings::node_settings(configuration, disk)?;
        let mut edge = settings::edge_settings(configuration, &node, folder)?;
        log_cluster(configuration, &edge);
        edge.first_start = mark.flatten();
        edge.start_progress = progress.map(|folder| NodeFolder::at(folder).progress_file());
        let pages = DataMemory::map(configuration, restores)?;
        let descriptions: Vec<String> =
            configuration.placement.executors().iter().map(ToString::to_string).collect();
        for description in &descriptions {
            log::info!(target: "placement", "{description}");
        }
        let allows_local = configuration.parameters.flag(Parameter::LocalConnections);
        Ok(Assembly { node, edge, pages, allows_local, descriptions })
    }

    /// The node also listens for clients on this machine at this path, unless the configuration switches that off.
    #[must_use]
    pub fn listening_at(mut self, path: PathBuf) -> Self {
        self.edge.listen_locally = self.allows_local.then_some(path);
        self
    }

    /// Which configuration a management node has handed out; the default if it was read from a file.
    #[must_use]
    pub fn configured_as(mut self, configuration: ConfigurationStamp) -> Self {
        self.edge.configuration = configuration;
        self
    }

    /// Shows what the node does to its files, from its start on, to this observer. For tests.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn FileObserver>) -> Self {
        self.edge.files.observer = Some(observer);
        self
    }

    /// How long the node waits for its disk when it stops, instead of the usual time. For tests.
    #[must_use]
    pub fn waiting_for_disk(mut self, longest: Duration) -> Self {
        self.edge.limits.disk_patience = longest;
        self
    }

    /// The node breaks a rule on purpose, to show that a test notices. Without effect but in builds with injected bugs.
    #[must_use]
    pub fn breaking(mut self, bug: InjectedBug) -> Self {
        self.edge.bug = Some(bug);
        self
    }

    /// Whether the node keeps its data on disk.
    pub fn has_disk(&self) -> bool {
        self.node.disk.is_some()
    }

    /// Runs the node until the process is asked to stop, or a block orders it; see [`node_process::run`].
    ///
    /// # Errors
    /// A text that says why it could not start.
    pub fn run(
        self,
        termination: Termination,
        ready: impl FnOnce(&NodeProcess),
    ) -> Result<StopCause, String> {
        let (edge, make_host) = self.into_parts();
        node_process::run(edge, make_host, termination, ready)
    }

    /// Starts the node in this process; see [`NodeProcess::start`].
    ///
    /// # Errors
    /// A text that says why it could not start.
    pub fn start(self) -> Result<NodeProcess, String> {
        let (edge, make_host) = self.into_parts();
        NodeProcess::start(edge, make_host)
    }

    /// The settings of the edge, and the function that makes the blocks of each thread.
    fn into_parts(
        self,
    ) -> (edge::ProcessSettings, impl Fn(u16, &Statistics) -> Blocks + Send + Sync + 'static) {
        let Assembly { node, edge, pages, descriptions, .. } = self;
        let (peers, io) = (edge.peers.clone(), edge.files.io_threads());
        let joins = edge.joins.clone();
        let make_host = move |thread, statistics: &Statistics| {
            let at = usize::from(thread);
            let (figures, description) = (statistics[at].clone(), descriptions[at].clone());
            let facts = EdgeFacts::new(figures, description, peers.clone(), io.clone());
            let mut node = node.clone();
            if joins.load(Ordering::Acquire) {
                // It learns the cluster's.
                node.epoch = Epoch(1);
            }
            Blocks::new(&node, thread, |_| pages.pool(), Box::new(facts))
        };
        (edge, make_host)
    }
}

/// Logs the place of a node in a cluster of several.
fn log_cluster(configuration: &Configuration, edge: &edge::ProcessSettings) {
    let nodes = &configuration.data_nodes;
    if !nodes.are_several() {
        return;
    }
    let (node, all, replicas) = (edge.node.0, nodes.all().len(), nodes.replicas());
    let group = nodes.get(node).map_or(0, |own| own.group);
    log::info!(target: "cluster", "data node {node} of {all}, {replicas} replicas; it is in node group {group}");
    for other in &edge.others {
        log::info!(
            target: "cluster",
            "data node {} is expected at {}; it is in node group {}", other.node, other.address, other.group
        );
    }
}
