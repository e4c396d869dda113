//! `vinga restore`: loads a backup into a cluster without tables, of any shape.
//!
//! Everything is verified first. Then databases and tables are created as they were defined, with their indexes; rows
//! are written by ordinary operations of a client, several partitions of the backup at a time; then SQL nodes make
//! again what belongs to them. Rows find their places in the new cluster by their keys.

mod rows;
mod sql;
mod tables;

use crate::arguments::{ConnectArguments, whole};
use crate::backup::input::{Backup, Problem};
use crate::inspect::NEWER;
use crate::table::counted;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use tables::WithoutDisk;
use vinga::blocking::Cluster;
use vinga_runtime::{complain, say};

/// What to do when a backup is damaged.
const OTHER: &str = "use another backup";

/// `vinga restore …`.
#[derive(Args)]
pub struct RestoreArguments {
    /// The folder of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Leave out what belongs to SQL nodes: accounts, views, routines, triggers, events
    #[arg(long)]
    no_sql: bool,
    /// If the cluster keeps nothing on disk: restore tables with DURABILITY=disk as usual ones, whose commits do not
    /// wait for a disk. Without this such a backup is refused there
    #[arg(long)]
    memory_only: bool,
    /// Parts of the backup that are loaded at the same time [default: twice the CPUs]
    #[arg(long, value_name = "NUMBER", value_parser = whole(1..=64u16))]
    threads: Option<u16>,
}

/// Restores a backup.
///
/// # Errors
/// A text that says what failed.
pub fn run(arguments: &RestoreArguments, is_json: bool) -> Result<(), String> {
    let begun = Instant::now();
    // Sentences of errors end with a full stop already.
    let refused = |why: String| {
        format!("the backup can't be restored: {}. Nothing was changed", why.trim_end_matches('.'))
    };
    let unusable = |problems: &[Problem]| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let advice = if problems.iter().any(|problem| problem.is_newer) { NEWER } else { OTHER };
        format!("{}; {advice}", refused(lines.join("; ")))
    };
    let backup = Backup::open(&arguments.backup).map_err(|problem| unusable(&[problem]))?;
    let cluster = Cluster::connect(&arguments.connect.address()?).map_err(|error| error.to_string())?;
    tables::check_empty(&cluster)?;
    backup.verify().map_err(|problems| unusable(&problems))?;
    let mut definitions = backup.definitions().map_err(|problem| unusable(&[problem]))?;
    let without_disk = if arguments.memory_only { WithoutDisk::MakeUsual } else { WithoutDisk::Refuse };
    let made_usual = tables::fit_disk(&cluster, &mut definitions, without_disk).map_err(refused)?;
    let plan = if arguments.no_sql {
        sql::Plan::nothing()
    } else {
        sql::Plan::make(&backup, &arguments.connect).map_err(refused)?
    };
    if !is_json {
        say!(
            "{} is whole: a backup of epoch {}, complete since {}",
            arguments.backup.display(),
            backup.manifest.epoch,
            humantime::format_rfc3339_seconds(
                std::time::UNIX_EPOCH + std::time::Duration::from_secs(backup.manifest.ended)
            )
        );
    }
    let is_partial = |error: String| {
        format!(
            "{}. The cluster holds a part of the backup now: drop its tables before you try again",
            error.trim_end_matches('.')
        )
    };
    let incarnation = cluster.incarnation();
    let made = tables::create(&cluster, &definitions).map_err(is_partial)?;
    let usual = || 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or_else(usual, usize::from);
    let loaded = rows::load(&cluster, &backup, &made, threads, !is_json).map_err(is_partial)?;
    // What was acknowledged before a crash, and was not on disk, is gone, though all that came later was written.
    if cluster.incarnation() != incarnation {
        return Err(is_partial(
            "the data nodes were started again while rows were loaded, so some of them may be lost"
                .to_owned(),
        ));
    }
    let nodes = plan.run().map_err(|error| {
        format!("{error}; all tables and rows are restored, but not all that belongs to SQL nodes")
    })?;
    let done = Done { epoch: backup.manifest.epoch, tables: made.len(), rows: loaded, made_usual, begun };
    done.report(&nodes, is_json);
    match nodes.failed {
        0 => Ok(()),
        failed => Err(format!(
            "{} failed at SQL nodes; all tables and rows are restored",
            counted(failed as u64, "statement")
        )),
    }
}

/// What was restored.
struct Done {
    epoch: u64,
    tables: usize,
    rows: u64,
    /// The tables whose commits waited for the disk, and do not any more.
    made_usual: Vec<String>,
    begun: Instant,
}

impl Done {
    /// Prints it.
    fn report(&self, nodes: &sql::Made, is_json: bool) {
        let Done { epoch, tables, rows, made_usual, begun } = self;
        let seconds = begun.elapsed().as_secs_f64();
        if let [first, ..] = &made_usual[..] {
            complain!(
                "note: commits to {} with DURABILITY=disk wait for no disk here, {first} among them. SQL's \
                 definition of such a table still says it: give ALTER TABLE … DURABILITY=memory with the next change of it",
                counted(made_usual.len() as u64, "table")
            );
        }
        if is_json {
            say!(
                "{}",
                json!({
                    "epoch": epoch, "tables": tables, "rows": rows, "statements": nodes.statements,
                    "failed_statements": nodes.failed, "memory_only": made_usual, "seconds": seconds,
                })
            );
        } else {
            say!(
                "restored epoch {epoch}: {}, {}, {} at SQL nodes, in {seconds:.1} s",
                counted(*tables as u64, "table"),
                counted(*rows, "row"),
                counted(nodes.statements as u64, "statement")
            );
        }
    }
}
