//! A data node as a separate process, which a test can kill: `data_node_of_test SOCKET NAME=VALUE…`.
//!
//! `ConfigFile=PATH` names a configuration file with all data nodes of the cluster, among which `NodeId` chooses; the
//! other parameters override it. `InjectedBug=NAME` names a rule that the node breaks on purpose; only builds with the
//! feature `injected-bugs` do. The node's files are in the folder that `DataDir` names, which exists; without that it
//! keeps everything in memory. It prints its address in one line, and ends on request (SIGTERM), when it is killed, or
//! with the test.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::{Path, PathBuf};
use vinga_config::configuration::Configuration;
use vinga_config::file::ConfigFile;
use vinga_config::parameters::Parameter;
use vinga_datanode::{Assembly, Termination, this_machine};
use vinga_kernel::InjectedBug;

fn main() -> Result<(), String> {
    let termination = Termination::prepare().map_err(|error| error.to_string())?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (socket, parameters) = arguments.split_first().ok_or("the path of a socket is missing")?;
    let parameters: Vec<(&str, &str)> =
        parameters.iter().filter_map(|parameter| parameter.split_once('=')).collect();
    let (ours, parameters): (Vec<_>, Vec<_>) =
        parameters.into_iter().partition(|(name, _)| ["ConfigFile", "InjectedBug"].contains(name));
    let own = |name| ours.iter().find_map(|&(given, value)| (given == name).then_some(value));
    let file = own("ConfigFile").map(read).transpose()?;
    let bug = own("InjectedBug").map(|name| InjectedBug::from_name(name).ok_or("no such bug")).transpose()?;
    let configuration = Configuration::new(file.as_ref(), &parameters, &this_machine());
    let configuration = configuration.map_err(|error| error.to_string())?;
    let folder = configuration.parameters.text(Parameter::DataDir);
    let assembly = match folder {
        Some(folder) => Assembly::stored_in(&configuration, Path::new(folder))?,
        None => Assembly::new(&configuration)?,
    };
    let assembly = bug.into_iter().fold(assembly, Assembly::breaking);
    let assembly = assembly.listening_at(PathBuf::from(socket));
    assembly.run(termination, |process| println!("{}", process.address())).map(|_| ())
}

fn read(path: &str) -> Result<ConfigFile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(ConfigFile::parse(path, &text))
}
