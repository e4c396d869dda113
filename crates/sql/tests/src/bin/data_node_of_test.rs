//! A data node as a separate process, which a test can kill: `data_node_of_test SOCKET NAME=VALUE…`.
//!
//! Its files are in the folder that `DataDir` names, which exists; without that it keeps everything in memory. It
//! prints its address in one line, and ends on request (SIGTERM), when it is killed, or with the test.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::{Path, PathBuf};
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_datanode::{Assembly, this_machine};

fn main() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (socket, parameters) = arguments.split_first().ok_or("the path of a socket is missing")?;
    let parameters: Vec<(&str, &str)> =
        parameters.iter().filter_map(|parameter| parameter.split_once('=')).collect();
    let configuration =
        Configuration::new(None, &parameters, &this_machine()).map_err(|error| error.to_string())?;
    let folder = configuration.parameters.text(Parameter::DataDir);
    let assembly = match folder {
        Some(folder) => Assembly::stored_in(&configuration, Path::new(folder))?,
        None => Assembly::new(&configuration)?,
    };
    let assembly = assembly.listening_at(PathBuf::from(socket));
    assembly.run(|process| println!("{}", process.address())).map(|_| ())
}
