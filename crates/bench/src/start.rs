//! Cold start: from nothing to a node that serves.
//!
//! The folder is empty, the parameters are the defaults. The time runs from before the process is made until the node
//! has announced its address; then a connection is made, to verify that the node really serves.

use crate::failure::{Context, Result};
use crate::figure::Figure;
use crate::node::NodeProgram;
use crate::progress::Progress;
use serde::{Deserialize, Serialize};
use std::net::TcpStream;

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct StartOptions {
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
}

impl StartOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        format!("vinga bench start --loops {}", self.loops)
    }
}

/// Starts and stops nodes; returns seconds.
///
/// # Errors
/// A node does not start.
pub fn run(node: &NodeProgram, options: &StartOptions, progress: &mut Progress) -> Result<Vec<f64>> {
    (1..=options.loops)
        .map(|number| {
            let node = node.start()?;
            let seconds = node.ready_after().as_secs_f64();
            TcpStream::connect(node.address()).context(|| format!("cannot connect to {}", node.address()))?;
            node.stop()?;
            progress.line(&format!("  {number}/{} start to ready {seconds:.3} s", options.loops));
            Ok(seconds)
        })
        .collect()
}

/// The figures of a run.
pub fn figures(command: &str, seconds: &[f64]) -> Vec<Figure> {
    vec![Figure::from_samples("start.cold", "s", command, seconds)]
}
