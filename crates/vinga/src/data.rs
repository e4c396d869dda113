//! `vinga data`: a data node.

use std::path::{Path, PathBuf};
use vinga_config::configuration::Configuration;
use vinga_config::file::ConfigFile;
use vinga_config::parameters::Parameter;
use vinga_datanode::{Assembly, this_machine};
use vinga_runtime::crash::{self, CrashSettings};
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::node_folder::NodeFolder;

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
    let mut assembly = Assembly::new(&configuration)?;
    if let Some(folder) = &folder {
        assembly = assembly.listening_at(folder.socket());
    }
    let announced = folder.clone();
    let result = assembly.run(|process| {
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
