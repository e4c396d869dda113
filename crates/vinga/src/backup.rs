//! `vinga admin backup`: one consistent state of a running cluster in a folder (`docs/protocols/backup.md`).
//!
//! This program is a client of the data nodes, and writes what they send: rows and changes of all partitions at the
//! same time, a thread each. The manifest comes last, when all other files are on the disk.

mod definitions;
pub mod input;
mod output;
mod partitions;
pub mod sql;

use crate::arguments::whole;
use crate::sql_nodes;
use crate::table::{counted, grouped};
use clap::Args;
use output::Target;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vinga::backup_steps::Task;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, SchemaLock};
use vinga_format::backup::{BackupContent, BackupFile, BackupHead, BackupManifest};
use vinga_format::{Checksum, backup::BackupStatement};
use vinga_runtime::{complain, say};

pub use definitions::OWN_DATABASE;

/// The checksum of all blocks.
pub const CHECKSUM: Checksum = Checksum(crc32c::crc32c_append);

/// The manifest's name in the folder of a backup.
pub const MANIFEST: &str = "manifest.backup";

/// Seconds that a command may wait, at most: a year.
const WAIT_MAX: u64 = 365 * 86_400;

/// `vinga admin backup`.
#[derive(Args)]
pub struct BackupArguments {
    /// The folder to write; it must not exist, or be empty [default: vinga-backup-DATE-TIME here]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Leave out what belongs to SQL nodes: accounts, views, routines, triggers, events
    #[arg(long)]
    no_sql: bool,
    /// How long to wait, in seconds, while others change definitions (such as an ALTER TABLE that copies rows)
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = whole(0..=WAIT_MAX))]
    wait: u64,
}

/// What a backup has come to.
struct Outcome {
    manifest: BackupManifest,
    tables: usize,
    statements: usize,
}

/// Makes a backup. `folder` is that of a cluster on this machine, if it is one: its SQL nodes are asked, too.
///
/// # Errors
/// A text that says what failed. What was written is removed then.
pub fn run(
    arguments: &BackupArguments,
    cluster: &Cluster,
    folder: Option<&Path>,
    json: bool,
) -> Result<(), String> {
    let begun = Instant::now();
    let folder = if arguments.no_sql { None } else { check_sql_nodes(folder)? };
    let target = Target::make(arguments.to.clone().unwrap_or_else(default_target))?;
    let made = make(arguments, cluster, folder, &target, json);
    let Outcome { manifest, tables, statements } = match made {
        Ok(made) => made,
        Err(error) => {
            target.remove();
            return Err(error);
        }
    };
    let sum = |content: BackupContent| {
        let files = manifest.files.iter().filter(|file| file.head.content == content);
        files.map(|file| file.end.items).sum::<u64>()
    };
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let (rows, changes) = (sum(BackupContent::Rows), sum(BackupContent::Changes));
    let seconds = begun.elapsed().as_secs_f64();
    let place = target.path().display();
    if json {
        say!(
            "{}",
            json!({
                "folder": target.path().to_string_lossy(), "epoch": manifest.epoch, "tables": tables, "rows": rows,
                "changes": changes, "statements": statements, "bytes": bytes, "seconds": seconds,
            })
        );
    } else {
        say!(
            "backup of epoch {}: {}, {} and {} made meanwhile, {} for SQL nodes; {} bytes in {seconds:.1} s, in {place}",
            manifest.epoch,
            counted(tables as u64, "table"),
            counted(rows, "row"),
            counted(changes, "change"),
            counted(statements as u64, "statement"),
            grouped(bytes)
        );
    }
    Ok(())
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn default_target() -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let stamp: String = now.chars().filter(|c| !matches!(c, '-' | ':' | 'Z')).collect();
    format!("vinga-backup-{}", stamp.replace('T', "-")).into()
}

fn make(
    arguments: &BackupArguments,
    cluster: &Cluster,
    folder: Option<&Path>,
    target: &Target,
    json: bool,
) -> Result<Outcome, String> {
    let began = seconds_since_1970();
    let partitions = cluster.partitions();
    let mut running = partitions::Running::new(target, partitions, !json);
    let mut lock = None;
    let epoch = loop {
        match running.next_task()? {
            Task::Open(partition) => running.open(cluster, partition)?,
            Task::Lock => {
                lock = Some(lock_schema(cluster, &running, Duration::from_secs(arguments.wait))?);
                running.on_locked();
            }
            Task::ReadDefinitions => {
                let read = cluster.definitions();
                running
                    .on_definitions(read.map_err(|error| format!("definitions can't be read: {error}"))?)?;
            }
            Task::Await => {}
            Task::Finish(epoch) => break epoch,
        }
    };
    if !lock.is_some_and(|lock| cluster.block_on(lock.is_still_held())) {
        return Err(
            "the schema lock was lost with the session: statements may have changed definitions".to_owned()
        );
    }
    let (mut files, definitions) = running.finish()?;
    let tables = definitions.tables.len();
    files.push(definitions::write(definitions, target)?);
    let statements = folder.map(statements).transpose()?;
    let has_sql = statements.is_some();
    let statements = statements.unwrap_or_default();
    files.push(write_statements(target, &statements)?);
    let manifest = BackupManifest {
        backup: target.number(),
        program: crate::version::VERSION.to_owned(),
        began,
        ended: seconds_since_1970(),
        epoch: epoch.0,
        partitions,
        has_sql,
        files,
    };
    target.write_manifest(&manifest)?;
    Ok(Outcome { tables, statements: statements.len(), manifest })
}

/// Waits for the schema lock: statements of SQL nodes that change definitions in several steps are over then. Meanwhile
/// the changes of rows go on being written.
fn lock_schema(
    cluster: &Cluster,
    running: &partitions::Running,
    patience: Duration,
) -> Result<SchemaLock, String> {
    const STEP: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    loop {
        running.check()?;
        match cluster.schema_lock("a backup", STEP) {
            Err(error) if error.code() == ErrorCode::SchemaLockTimeout && begun.elapsed() < patience => {}
            Err(error) => return Err(format!("definitions can't be read: {error}")),
            Ok(lock) => return Ok(lock),
        }
    }
}

/// Whether the SQL nodes of a cluster on this machine can be asked, before rows are read. Says what will be missing.
/// Returns the folder if any of them runs.
fn check_sql_nodes(folder: Option<&Path>) -> Result<Option<&Path>, String> {
    let Some(folder) = folder else {
        complain!(
            "note: the cluster was named by an address, so its SQL nodes are not known: their accounts, views, routines, \
             triggers and events are not in the backup"
        );
        return Ok(None);
    };
    let running = sql_nodes::running(folder)?;
    let numbers = sql_nodes::numbers(folder)
        .map_err(|error| format!("cannot look into {}: {error}", folder.display()))?;
    for node in numbers.into_iter().filter(|number| running.iter().all(|(node, _)| node != number)) {
        complain!(
            "warning: SQL node {node} does not run: its accounts, views, routines, triggers and events are not in the backup"
        );
    }
    for (node, running) in &running {
        sql_nodes::log_in(*node, running)?.quit();
    }
    Ok((!running.is_empty()).then_some(folder))
}

/// What belongs to the SQL nodes of a cluster on this machine.
fn statements(folder: &Path) -> Result<Vec<BackupStatement>, String> {
    let mut all = Vec::new();
    for (node, running) in &sql_nodes::running(folder)? {
        all.extend(sql::read(*node, running)?);
    }
    Ok(all)
}

fn write_statements(target: &Target, statements: &[BackupStatement]) -> Result<BackupFile, String> {
    let mut file = target
        .create("statements.backup", BackupHead { content: BackupContent::Statements, partition: 0 })?;
    for statement in statements {
        file.statement(statement)?;
    }
    file.finish()
}
