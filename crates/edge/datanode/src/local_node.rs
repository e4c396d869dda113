//! A small data node inside of this process, on a port that nobody else has.

use crate::{Assembly, this_machine};
use vinga_config::configuration::Configuration;
use vinga_runtime::node_process::NodeProcess;

/// What makes it small. `DataMemory` is address space until rows fill it.
const PARAMETERS: [(&str, &str); 4] =
    [("HostName", "127.0.0.1"), ("ServerPort", "0"), ("DataMemory", "64M"), ("SchedulerSpinTimer", "0")];

/// A running node; it stops when this is dropped. It is a real one in all respects: threads, sockets, time-outs.
pub struct LocalNode {
    /// Always there until the node is dropped.
    process: Option<NodeProcess>,
    address: String,
}

impl LocalNode {
    /// Starts a node.
    ///
    /// # Errors
    /// A sentence.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// Starts a node with these parameters (name, value), over those that make it small.
    ///
    /// # Errors
    /// A sentence.
    pub fn start_with(parameters: &[(&str, &str)]) -> Result<Self, String> {
        let parameters = [&PARAMETERS[..], parameters].concat();
        let configuration = Configuration::new(None, &parameters, &this_machine());
        let process = Assembly::new(&configuration.map_err(|error| error.to_string())?)?.start()?;
        let address = process.address().to_string();
        Ok(LocalNode { process: Some(process), address })
    }

    /// Where it listens, as clients are told: `127.0.0.1` and a port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}
