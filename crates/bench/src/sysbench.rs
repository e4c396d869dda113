//! `sysbench` as the load on a SQL server: its own OLTP scripts and those in `crates/bench/sysbench`.
//!
//! Each load names a script, a database, options and how many threads run it for how long. Sysbench's output at the end
//! is read into an [`Outcome`]; an error of a statement ends it with a status that is not 0, and so fails the
//! measurement.

use crate::failure::{Context, Failure, Result};
use crate::machine_use::{MachineCounters, MachineUse};
use crate::process::Program;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// How much longer than its set time sysbench may run.
const PATIENCE: Duration = Duration::from_secs(120);

/// Our own scripts, by name.
const OWN_SCRIPTS: [(&str, &str); 6] = [
    ("autoinc", include_str!("../sysbench/autoinc.lua")),
    ("filter", include_str!("../sysbench/filter.lua")),
    ("in_list", include_str!("../sysbench/in_list.lua")),
    ("join", include_str!("../sysbench/join.lua")),
    ("plans", include_str!("../sysbench/plans.lua")),
    ("tpcb", include_str!("../sysbench/tpcb.lua")),
];

/// Paths of sysbench, and the server that it loads.
#[derive(Clone, Debug)]
pub struct Sysbench {
    /// A program that runs sysbench with the libraries that it needs.
    pub program: PathBuf,
    /// The folder of its own scripts.
    pub stock: PathBuf,
    /// The folder to which ours were written.
    own: PathBuf,
    /// The servers' Unix sockets: connections go to each of them in turn.
    sockets: Vec<PathBuf>,
}

/// A load to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Name of one of our scripts, or of one that comes with sysbench.
    pub script: String,
    /// The database of its tables.
    pub database: String,
    /// The script's options, each without the dashes.
    pub options: Vec<String>,
    /// Number of connections.
    pub threads: u16,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Statements a second.
    pub queries: f64,
    /// Transactions, or what the script counts as such, a second.
    pub transactions: f64,
    /// Errors that sysbench ignored, such as deadlocks: it repeated these transactions.
    pub ignored_errors: u64,
    /// Mean time of a transaction in milliseconds.
    pub mean_ms: f64,
    /// The time that 95 % did not exceed.
    pub p95_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// The cost of a transaction for the machine.
    #[serde(default)]
    pub machine: MachineUse,
}

impl Load {
    /// A load of one thread without options.
    pub fn new(script: &str, database: &str) -> Self {
        Load { script: script.into(), database: database.into(), options: Vec::new(), threads: 1 }
    }

    /// Adds an option, `name=value`.
    #[must_use]
    pub fn with(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// With this many connections.
    #[must_use]
    pub fn threads(mut self, threads: u16) -> Self {
        self.threads = threads;
        self
    }
}

impl Sysbench {
    /// For the server behind a socket. `folder` gets our scripts.
    ///
    /// # Errors
    /// The scripts can't be written.
    pub fn new(program: &Path, stock: &Path, folder: &Path, socket: &Path) -> Result<Self> {
        let own = folder.join("sysbench");
        fs::create_dir_all(&own).context(|| format!("cannot make {}", own.display()))?;
        for (name, text) in OWN_SCRIPTS {
            let path = own.join(format!("{name}.lua"));
            fs::write(&path, text).context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Sysbench { program: program.into(), stock: stock.into(), own, sockets: vec![socket.into()] })
    }

    /// For the server behind another socket, too.
    #[must_use]
    pub fn beside(mut self, socket: &Path) -> Self {
        self.sockets.push(socket.into());
        self
    }

    /// Runs a command of a script that prepares, checks or cleans up; returns its output.
    ///
    /// # Errors
    /// It fails.
    pub fn command(&self, load: &Load, command: &str) -> Result<String> {
        self.start(load, command, Duration::ZERO)
    }

    /// Runs a load for a time.
    ///
    /// # Errors
    /// A statement fails, or the output can't be parsed.
    pub fn run(&self, load: &Load, time: Duration) -> Result<Outcome> {
        let before = MachineCounters::now();
        let text = self.start(load, "run", time)?;
        let after = MachineCounters::now();
        let mut outcome = parse(&text)
            .ok_or_else(|| Failure::new(format!("cannot understand what sysbench prints:\n{text}")))?;
        let transactions = outcome.transactions * time.as_secs_f64();
        outcome.machine = after.since(&before, transactions);
        Ok(outcome)
    }

    fn start(&self, load: &Load, command: &str, time: Duration) -> Result<String> {
        let Load { script, database, options, threads } = load;
        let is_own = OWN_SCRIPTS.iter().any(|(name, _)| name == script);
        let folder = if is_own { &self.own } else { &self.stock };
        let mut arguments: Vec<OsString> = vec![folder.join(format!("{script}.lua")).into()];
        let mut add = |name: &str, value: &dyn std::fmt::Display| {
            arguments.push(format!("--{name}={value}").into());
        };
        let sockets: Vec<_> = self.sockets.iter().map(|socket| socket.display().to_string()).collect();
        add("mysql-socket", &sockets.join(","));
        add("mysql-user", &"root");
        add("mysql-db", database);
        add("threads", threads);
        add("time", &time.as_secs().max(1));
        add("db-ps-mode", &"auto");
        for option in options {
            arguments.push(format!("--{option}").into());
        }
        arguments.push(command.into());
        let program = Program {
            name: "sysbench",
            path: self.program.clone(),
            arguments,
            memory_bytes_max: MEMORY_BYTES_MAX,
            run_max: time + PATIENCE,
        };
        program.run().map_err(|failure| Failure::new(format!("{script} {command} on {database}: {failure}")))
    }
}

/// Parses the output of sysbench 1.0 at the end of a run.
fn parse(text: &str) -> Option<Outcome> {
    let line = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let first = |name: &str| line(name)?.split_whitespace().next()?.parse().ok();
    // "transactions:   20768  (6914.55 per sec.)"
    let rate = |name: &str| line(name)?.split('(').nth(1)?.split_whitespace().next()?.parse().ok();
    Some(Outcome {
        queries: rate("queries:")?,
        transactions: rate("transactions:")?,
        ignored_errors: first("ignored errors:")? as u64,
        mean_ms: first("avg:")?,
        p95_ms: first("95th percentile:")?,
        max_ms: first("max:")?,
        machine: MachineUse::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 16

SQL statistics:
    queries performed:
        read:                            0
        write:                           130269
        total:                           130269
    transactions:                        130269 (65022.07 per sec.)
    queries:                             390807 (195066.25 per sec.)
    ignored errors:                      3      (1.50 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          2.0026s
    total number of events:              130269

Latency (ms):
         min:                                    0.01
         avg:                                    0.25
         max:                                   20.22
         95th percentile:                        0.51
         sum:                                31986.03
";

    #[test]
    fn what_it_prints_is_understood() {
        let outcome = parse(PRINTED).unwrap();
        let expected = Outcome {
            queries: 195_066.25,
            transactions: 65_022.07,
            ignored_errors: 3,
            mean_ms: 0.25,
            p95_ms: 0.51,
            max_ms: 20.22,
            machine: MachineUse::default(),
        };
        assert_eq!(outcome, expected);
        assert_eq!(parse("FATAL: nothing works"), None);
    }
}
