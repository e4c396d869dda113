//! What keeping rows on disk costs, and how fast they are there again.
//!
//! Every node that is measured here has its files in a folder below the one for results; its tables are logged and
//! checkpointed. Four pieces:
//!
//! - [`rates`]: flexAsynch on a node with a disk and on one without, in turn, and SET on Redis with its log;
//! - [`commits`]: small transactions through SQL that wait for the disk, on tables of Vinga and of InnoDB;
//! - [`restart`]: the time from a node's process to its first answer, after a kill and after an orderly stop, from
//!   checkpoints and from the log alone; the same of Redis with a snapshot;
//! - [`checkpoint`]: how fast checkpoints are written by a node that does nothing else, beside the disk's own rate, and
//!   what they cost an update that is under way meanwhile.
//!
//! Waiting for an idle node is part of each: one that still writes a checkpoint would take time from the other side.

pub mod checkpoint;
pub mod commits;
pub mod disk_rate;
pub mod rates;
pub mod restart;

use crate::failure::{Context, Failure, Result};
use crate::figure::Figure;
use crate::flexasynch::FlexAsynchOptions;
use crate::node::NodeProgram;
use crate::progress::Progress;
use crate::target::TableShape;
use crate::vinga_target::{VingaTable, VingaTarget};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use vinga::InfoTable;
use vinga::blocking::Cluster;

/// Bytes of the column behind the key: rows have 108 bytes.
const VALUE_BYTES: u16 = 100;
/// Rows as they are kept.
const SHAPE: TableShape = TableShape::Value { bytes: VALUE_BYTES };
/// A log in which the changes of a repetition have room whatever checkpoints do: 2 GiB.
const LARGE_LOG: [&str; 2] = ["NoOfFragmentLogFiles=64", "FragmentLogFileSize=32M"];
/// How long checkpoints may go on when nothing is changed any more.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(30);
/// For so long there must have been none.
const QUIET_TIME: Duration = Duration::from_millis(250);
/// What the information table says of a stream without a checkpoint under way.
const NO_CHECKPOINT: &str = "no checkpoint is being written";

/// Options of this benchmark.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct DurableOptions {
    /// Rows of flexAsynch, and rows that are restored
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub rows: u64,
    /// Rows of which checkpoints are written
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    pub checkpoint_rows: u64,
    /// How often the update phase goes over all rows again
    #[arg(long, default_value_t = 1)]
    pub extra_updates: u32,
    /// Seconds of each run through SQL
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Repetitions
    #[arg(short, long, visible_alias = "repetitions", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: u32,
    /// Only these, with commas or blanks between
    #[arg(long, value_name = "PIECE", value_enum, value_delimiter = ',', num_args = 1.., default_values_t = Piece::ALL)]
    pub only: Vec<Piece>,
}

/// A piece of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Piece {
    Rates,
    Commits,
    Restart,
    Checkpoint,
}

impl Piece {
    /// All, in the order in which they are run.
    pub const ALL: [Piece; 4] = [Piece::Rates, Piece::Commits, Piece::Restart, Piece::Checkpoint];

    fn name(self) -> &'static str {
        match self {
            Piece::Rates => "rates",
            Piece::Commits => "commits",
            Piece::Restart => "restart",
            Piece::Checkpoint => "checkpoint",
        }
    }
}

impl DurableOptions {
    /// The options as a command line.
    pub fn command(&self) -> String {
        let DurableOptions { rows, checkpoint_rows, extra_updates, seconds, loops, only } = self;
        let only: Vec<&str> = only.iter().map(|piece| piece.name()).collect();
        format!(
            "vinga bench durable --rows {rows} --checkpoint-rows {checkpoint_rows} --extra-updates {extra_updates} \
             --seconds {seconds} --loops {loops} --only {}",
            only.join(",")
        )
    }

    fn flexasynch(&self) -> FlexAsynchOptions {
        FlexAsynchOptions {
            rows: self.rows,
            value_bytes: VALUE_BYTES,
            loops: self.loops,
            extra_updates: self.extra_updates,
            ..FlexAsynchOptions::default()
        }
    }
}

/// The results of all pieces that were run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurableResult {
    /// Of each repetition.
    pub rates: Vec<rates::Round>,
    /// Of each repetition and number of connections; empty without SQL.
    pub commits: Vec<commits::Pair>,
    /// All restarts.
    pub restart: Option<restart::Restarts>,
    /// Of each repetition.
    pub checkpoint: Vec<checkpoint::Round>,
}

/// Runs the pieces that are wanted; nodes are started by `program`, in folders beside its own.
///
/// # Errors
/// The database's, or that something is not there that must be.
pub fn run(
    program: &NodeProgram,
    out: &Path,
    options: &DurableOptions,
    progress: &mut Progress,
) -> Result<DurableResult> {
    let mut result = DurableResult::default();
    for &piece in &options.only {
        progress.line(&format!("  {}", piece.name()));
        match piece {
            Piece::Rates => result.rates = rates::run(program, out, options, progress)?,
            Piece::Commits => result.commits = commits::run(program, out, options, progress)?,
            Piece::Restart => result.restart = Some(restart::run(program, out, options, progress)?),
            Piece::Checkpoint => result.checkpoint = checkpoint::run(program, out, options, progress)?,
        }
    }
    Ok(result)
}

/// The figures of a run.
pub fn figures(command: &str, result: &DurableResult) -> Vec<Figure> {
    let mut figures = rates::figures(command, &result.rates);
    figures.extend(commits::figures(command, &result.commits));
    figures.extend(result.restart.iter().flat_map(|restarts| restart::figures(command, restarts)));
    figures.extend(checkpoint::figures(command, &result.checkpoint));
    figures
}

/// A node with these parameters and `DataMemory` for so many rows, in a folder of its own.
fn node(program: &NodeProgram, name: &str, rows: u64, parameters: &[&str]) -> NodeProgram {
    let name_of = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    // A parameter may be given once: the user's value counts.
    let is_users = |own: &str| program.parameters.iter().any(|given| name_of(given) == name_of(own));
    let own_parameters = parameters.iter().filter(|&&own| !is_users(own)).map(|&own| own.to_owned());
    NodeProgram {
        data_memory: Some(rows * 300 + (512 << 20)),
        parameters: own_parameters.chain(program.parameters.iter().cloned()).collect(),
        ..program.beside(name)
    }
}

/// Waits until everything is on disk, and no checkpoint is under way or begins before more is logged.
///
/// # Errors
/// The database's, or that checkpoints go on for ever.
fn finish_checkpoints(target: &VingaTarget, table: &VingaTable) -> Result<()> {
    let cluster = target.first_cluster()?;
    // A checkpoint that is written ends with the next global checkpoint, and another one may begin then.
    for _ in 0..3 {
        wait_for_checkpoints(&cluster)?;
        target.flush(table)?;
    }
    wait_for_checkpoints(&cluster)
}

/// Waits until no checkpoint is being written.
fn wait_for_checkpoints(cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    let mut quiet_since: Option<Instant> = None;
    while begun.elapsed() < CHECKPOINT_PATIENCE {
        let failed = || "cannot ask how fast checkpoints are written".to_owned();
        let info = cluster.info(InfoTable::DiskWriteSpeedAggregate).context(failed)?;
        let is_quiet = |row: &Vec<vinga::InfoValue>| {
            row.last()
                .is_some_and(|reason| matches!(reason, vinga::InfoValue::Text(text) if text == NO_CHECKPOINT))
        };
        if info.rows.is_empty() || !info.rows.iter().all(is_quiet) {
            quiet_since = None;
        } else if quiet_since.get_or_insert_with(Instant::now).elapsed() > QUIET_TIME {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(Failure::new("checkpoints are written without end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: DurableOptions,
    }

    #[test]
    fn the_command_line_says_the_options() {
        let parse = |line: &str| Line::parse_from(line.split(' ')).options;
        let usual = parse("x");
        assert_eq!(usual.only, Piece::ALL);
        for options in [usual, parse("x --rows 5000 -l 2 --seconds 9 --only commits,checkpoint")] {
            let command = options.command();
            assert_eq!(parse(command.strip_prefix("vinga bench ").unwrap()), options);
        }
    }

    #[test]
    fn nodes_have_folders_of_their_own_and_the_user_has_the_last_word() {
        let program = NodeProgram {
            program: "vinga".into(),
            folder: "out/node-7".into(),
            data_memory: None,
            parameters: vec!["RedoBuffer=64M".into()],
            member: None,
        };
        let node = node(&program, "memory", 1000, &["Diskless=yes", "redobuffer=32M"]);
        assert_eq!(node.folder, Path::new("out/node-7-memory"));
        assert_eq!(node.parameters, ["Diskless=yes", "RedoBuffer=64M"]);
    }
}
