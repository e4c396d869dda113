//! A small data node inside this process, on a free port.
//!
//! When one of its blocks says that the node can't go on, it stops, and the process goes on.

use crate::{Assembly, this_machine};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use vinga_config::configuration::Configuration;
use vinga_runtime::stop_request::{StopCause, StopRequest};

/// Parameters that make it small. `DataMemory` and the records of operations take only address space until they are
/// used.
const PARAMETERS: [(&str, &str); 5] = [
    ("HostName", "127.0.0.1"),
    ("ServerPort", "0"),
    ("DataMemory", "64M"),
    ("MaxNoOfConcurrentOperations", "262144"),
    ("SchedulerSpinTimer", "0"),
];

/// A running node; it stops when this is dropped. In all respects it is a real one: threads, sockets, time-outs.
pub struct LocalNode {
    /// The thread that stops the node when it is asked to; `Some` until this is dropped.
    stopper: Option<JoinHandle<()>>,
    stop_request: Arc<StopRequest>,
    address: String,
    local_address: Option<String>,
}

/// Number of nodes that this process has started: each has a socket of its own.
static STARTED: AtomicU32 = AtomicU32::new(0);

impl LocalNode {
    /// Starts a node.
    ///
    /// # Errors
    /// A text that says why it could not start.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// Starts a node with these parameters (name, value), which override those that make it small.
    ///
    /// # Errors
    /// A text that says why it could not start.
    pub fn start_with(parameters: &[(&str, &str)]) -> Result<Self, String> {
        let is_given = |name| parameters.iter().any(|(given, _)| *given == name);
        let own = PARAMETERS.into_iter().filter(|&(name, _)| !is_given(name));
        let parameters: Vec<_> = own.chain(parameters.iter().copied()).collect();
        let configuration = Configuration::new(None, &parameters, &this_machine());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("vinga-{}-{number}.sock", std::process::id()));
        let assembly = Assembly::new(&configuration.map_err(|error| error.to_string())?)?;
        let process = assembly.listening_at(socket).start()?;
        let address = process.address().to_string();
        let local_address = process.local().map(|path| format!("unix:{}", path.display()));
        let stop_request = process.stop_request().clone();
        let stop = move || {
            process.stop_request().wait();
            process.stop();
        };
        let stopper = thread::Builder::new().name("stopper".to_owned()).spawn(stop);
        let stopper = stopper.map_err(|why| format!("the system has no threads left: {why}"))?;
        Ok(LocalNode { stopper: Some(stopper), stop_request, address, local_address })
    }

    /// The address for clients on this machine; `None` if the node has no such socket.
    pub fn local_address(&self) -> Option<&str> {
        self.local_address.as_deref()
    }

    /// The address for clients: `127.0.0.1` and a port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        self.stop_request.make(StopCause::Asked("the program that has started it"));
        if let Some(stopper) = self.stopper.take()
            && let Err(why) = stopper.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(why);
        }
    }
}
