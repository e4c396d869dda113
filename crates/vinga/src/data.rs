//! `vinga data`: a data node.

use crate::facts::EdgeFacts;
use crate::folder::NodeFolder;
use crate::machine::this_machine;
use crate::settings::{edge_settings, node_settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vinga_base::page_pool::{PAGE_BYTES, PagePool, PageRegion};
use vinga_config::configuration::Configuration;
use vinga_config::file::ConfigFile;
use vinga_config::parameters::Parameter;
use vinga_node::Blocks;
use vinga_runtime::crash::{self, CrashSettings};
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::memory::{MappedRegion, SharedPages};
use vinga_runtime::node_process;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct DataOptions {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The node's folder; without one, log lines go to standard error and nothing is written.
    pub folder: Option<PathBuf>,
    /// Parameters by name, over those of the file.
    pub parameters: Vec<(String, String)>,
}

/// Reads the configuration as it would hold.
///
/// # Errors
/// A sentence.
pub fn configuration(options: &DataOptions) -> Result<Configuration, String> {
    let machine = this_machine();
    let file = match &options.config {
        None => None,
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            Some(ConfigFile::parse(&path.to_string_lossy(), &text).map_err(|error| error.to_string())?)
        }
    };
    let flags: Vec<(&str, &str)> = options.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    Configuration::new(file.as_ref(), &flags, &machine).map_err(|error| error.to_string())
}

/// Runs a data node until it is asked to stop.
///
/// # Errors
/// A sentence, if it could not start.
pub fn run(options: &DataOptions) -> Result<(), String> {
    let configuration = configuration(options)?;
    let folder = options.folder.clone().map(NodeFolder::at);
    let _occupied = match &folder {
        None => None,
        Some(folder) => {
            let place = folder.path().display();
            folder.create().map_err(|error| format!("cannot make the folder {place}: {error}"))?;
            let lock = folder.occupy().map_err(|error| format!("cannot use the folder {place}: {error}"))?;
            Some(lock.ok_or_else(|| format!("another data node runs in {place}"))?)
        }
    };
    log::begin(&LogSettings { file: None, stderr: true })?;
    crash::install(CrashSettings {
        file: folder.as_ref().map_or(Path::new("."), NodeFolder::path).join("crash.txt"),
        who: format!("data node {}", configuration.parameters.integer(Parameter::NodeId)),
    })?;
    for warning in &configuration.warnings {
        ::log::warn!(target: "configuration", "{warning}");
    }
    let node = node_settings(&configuration);
    let edge = edge_settings(&configuration, &node)?;
    let pages = data_memory(&configuration)?;
    let descriptions: Vec<String> =
        configuration.placement.executors().iter().map(ToString::to_string).collect();
    for description in &descriptions {
        ::log::info!(target: "placement", "{description}");
    }
    let make_host = move |thread: u16, statistics: &node_process::Statistics| {
        let at = usize::from(thread);
        let facts = EdgeFacts::new(statistics[at].clone(), descriptions[at].clone());
        Blocks::new(&node, thread, |_| pages.pool(), Box::new(facts))
    };
    let announced = folder.clone();
    let result = node_process::run(edge, make_host, |process| {
        if let Some(folder) = &announced
            && let Err(error) = folder.announce(&process.address().to_string())
        {
            ::log::error!(target: "node", "cannot write into {}: {error}", folder.path().display());
        }
    });
    if let Some(folder) = &folder {
        folder.withdraw();
    }
    result
}

/// `DataMemory`: one region, shared by all data managers of the node.
struct DataMemory {
    region: Arc<dyn PageRegion>,
    supply: SharedPages,
}

impl DataMemory {
    fn pool(&self) -> PagePool {
        PagePool::new(self.region.clone(), Box::new(self.supply.clone()))
    }
}

fn data_memory(configuration: &Configuration) -> Result<DataMemory, String> {
    let bytes = configuration.parameters.integer(Parameter::DataMemory);
    let pages = u32::try_from(bytes / PAGE_BYTES as u64)
        .map_err(|_| format!("DataMemory: {bytes} bytes are more than {} pages of 32K", u32::MAX))?;
    let lock = configuration.parameters.integer(Parameter::LockPagesInMemory);
    let region = MappedRegion::new(pages, lock > 0)
        .map_err(|error| format!("DataMemory: {bytes} bytes could not be mapped: {error}"))?;
    let locked = match lock {
        0 => Ok(()),
        1 => region.lock(),
        _ => vinga_runtime::memory::lock_all(),
    };
    if let Err(why) = locked {
        ::log::warn!(target: "memory", "LockPagesInMemory: {why}");
    }
    Ok(DataMemory { region: Arc::new(region), supply: SharedPages::new(pages) })
}
