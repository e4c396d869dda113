//! `vinga mgm`: a management node.

use crate::arguments::whole;
use crate::data;
use crate::version::VERSION;
use clap::Args;
use std::path::{Path, PathBuf};
use vinga_config::ManagementConfiguration;
use vinga_config::file::ConfigFile;
use vinga_datanode::this_machine;
use vinga_mgm::ManagementSettings;
use vinga_runtime::crash::{self, CrashSettings};
use vinga_runtime::log::{self, LogSettings};
use vinga_runtime::node_folder::NodeFolder;

/// `vinga mgm`.
#[derive(Args)]
pub struct MgmArguments {
    /// The configuration file of the cluster, the same that data nodes have
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which management node of the file this is; needed if it has two
    #[arg(long, value_name = "ID", value_parser = whole(1..=255u64))]
    node: Option<u64>,
    /// The node's folder: process id, address, crash reports [default: DataDir]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// What the node logs: error, warning, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info",
          value_parser = ["error", "warning", "info", "debug"])]
    log_level: String,
}

/// The configuration of a management node.
///
/// # Errors
/// All errors, one a line.
pub fn configuration(file: &Path, node: Option<u64>) -> Result<ManagementConfiguration, String> {
    configuration_in(&data::read_file(file)?, node)
}

fn configuration_in(file: &ConfigFile, node: Option<u64>) -> Result<ManagementConfiguration, String> {
    ManagementConfiguration::new(file, node, &this_machine()).map_err(|errors| errors.to_string())
}

/// Runs a management node until it is asked to stop.
///
/// # Errors
/// A text that says why it could not start.
pub fn run(arguments: &MgmArguments) -> Result<(), String> {
    let text = data::read_text(&arguments.config)?;
    let file = ConfigFile::parse(&arguments.config.to_string_lossy(), &text);
    let configuration = configuration_in(&file, arguments.node)?;
    let data_dir = configuration.own.folder.as_ref().map(PathBuf::from);
    let folder = arguments.folder.clone().or(data_dir).map(NodeFolder::at);
    let _occupied = folder.as_ref().map(|folder| data::occupy(folder, "node")).transpose()?;
    let settings = ManagementSettings::of(&configuration, text, folder.as_ref().map(NodeFolder::path))?;
    let level = log::level_named(&arguments.log_level).expect("only names of levels are allowed");
    log::begin(&LogSettings { file: None, stderr: true, level, copy: None })?;
    crash::install(CrashSettings {
        file: folder.as_ref().map_or(Path::new("."), NodeFolder::path).join("crash.txt"),
        who: format!("management node {}", settings.node),
    })?;
    ::log::info!(target: "node", "Vinga {VERSION}");
    for warning in &configuration.warnings {
        ::log::warn!(target: "configuration", "{warning}");
    }
    let key = configuration.own.key_file.as_ref().map(Path::new);
    let result = vinga_mgm::run(settings, |node| {
        if let Some(folder) = &folder
            && let Err(error) = folder.announce(&node.address().to_string(), VERSION, key, None)
        {
            ::log::error!(target: "node", "cannot write into {}: {error}", folder.path().display());
        }
    });
    if let Some(folder) = &folder {
        folder.withdraw();
    }
    result
}
