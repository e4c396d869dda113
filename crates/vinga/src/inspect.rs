//! `vinga inspect`: prints and verifies the durable files of a data node, and backups. It changes nothing.

mod backup;
mod checkpoint;
mod folder;
mod items;
mod redo;
mod schema;
mod system;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use vinga_format::{BlockError, Checksum, Origin};
use vinga_kernel::files::{FileKind, FileName};
use vinga_runtime::{complain, say};

/// `vinga inspect …`.
#[derive(Args)]
pub struct InspectArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A node's folder: whether the node would start from it, and what it would restore. All files are read and
    /// compared, as by a start, with as much memory; the node must not run
    Folder(folder::FolderArguments),
    /// Files of the redo log: segments, blocks, ends of epochs, batches of each data manager
    Redo {
        /// All files of a stream, or the folder of the log or of the node
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Print each record
        #[arg(long)]
        records: bool,
    },
    /// Checkpoints: fragments, rows, epochs
    Checkpoint(Files),
    /// The system file: the node's view of the cluster's durable state
    #[command(visible_alias = "sysfile")]
    System(Files),
    /// Definitions of tables and databases
    Schema(Files),
    /// A backup: tables, files, epoch; all files of it are verified
    Backup {
        /// The folder of the backup, or one of its files
        #[arg(value_name = "FOLDER", required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Files {
    /// Files, or the folder that they are in, or the folder of the node
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// The checksum of all blocks.
const CHECKSUM: Checksum = Checksum::SOFTWARE;

/// What to do with a file that is damaged.
const KEEP: &str = "keep a copy of the node's files. The node can't start from them: restore them from a copy of its \
                    folder, all of the same moment; or begin anew with --initial and restore a backup";

/// What to do with a file of a newer program.
pub const NEWER: &str = vinga_kernel::USE_NEWER_PROGRAM;

/// What is wrong with a file.
#[derive(Debug)]
struct Problem {
    file: PathBuf,
    offset: u64,
    what: String,
    advice: &'static str,
}

impl Problem {
    fn new(file: &Path, offset: u64, what: impl Display) -> Self {
        Problem { file: file.to_owned(), offset, what: what.to_string(), advice: KEEP }
    }

    /// The problem with a block that can't be read.
    fn of_block(file: &Path, offset: u64, error: BlockError) -> Self {
        let advice = if error.is_of_writer() { NEWER } else { KEEP };
        Problem { advice, ..Problem::new(file, offset, error) }
    }

    fn with_advice(self, advice: &'static str) -> Self {
        Problem { advice, ..self }
    }
}

/// What is found, printed at once or collected as JSON.
struct Report {
    is_json: bool,
    values: Vec<Value>,
    problems: Vec<Problem>,
}

impl Report {
    /// Prints a line, unless JSON is wanted.
    fn line(&self, text: impl Display) {
        if !self.is_json {
            say!("{text}");
        }
    }
}

/// Inspects files; returns whether they are well.
///
/// # Errors
/// A text: a file can't be read, or there are none; or a node can't start from its folder.
pub fn run(arguments: &InspectArguments, is_json: bool) -> Result<bool, String> {
    let mut report = Report { is_json, values: Vec::new(), problems: Vec::new() };
    match &arguments.what {
        What::Folder(arguments) => return folder::inspect(arguments, is_json).map(|()| true),
        What::Redo { files, records } => {
            redo::inspect(&find(files, FileKind::Redo, &report)?, *records, &mut report)?;
        }
        What::Checkpoint(Files { files }) => {
            for file in find(files, FileKind::Checkpoint, &report)? {
                checkpoint::inspect(&file, &mut report)?;
            }
        }
        What::System(Files { files }) => {
            system::inspect(&find(files, FileKind::System, &report)?, &mut report)?;
        }
        What::Schema(Files { files }) => {
            schema::inspect(&find(files, FileKind::Schema, &report)?, &mut report)?;
        }
        What::Backup { files } => files.iter().for_each(|path| backup::inspect(path, &mut report)),
    }
    let Report { values, problems, .. } = report;
    if is_json {
        let problems: Vec<Value> = problems
            .iter()
            .map(|problem| {
                let Problem { file, offset, what, advice } = problem;
                json!({ "file": file.to_string_lossy(), "offset": offset, "what": what, "advice": advice })
            })
            .collect();
        say!("{}", json!({ "found": values, "problems": problems }));
    } else {
        for Problem { file, offset, what, advice } in &problems {
            complain!("vinga: {}: at offset {offset}: {what}", file.display());
            complain!("vinga: what to do: {advice}");
        }
    }
    Ok(problems.is_empty())
}

/// The files that are named, or are in the folders that are named; by name. Files that no node reads are left out.
fn find(named: &[PathBuf], kind: FileKind, report: &Report) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in named {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let below = path.join(kind.folder());
        let in_cluster = path.join("node-1").join(kind.folder());
        let folder = [&below, &in_cluster].into_iter().find(|folder| folder.is_dir()).unwrap_or(path);
        let failed = |error| format!("cannot look into {}: {error}", folder.display());
        let before = found.len();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = format!("{}/{}", kind.folder(), entry.file_name().to_string_lossy());
            match FileName::from_path(&name).filter(|name| name.kind == kind) {
                Some(name) if is_read(name) => found.push(entry.path()),
                Some(_) => {
                    report.line(format_args!("{}: not a file that a node reads", entry.path().display()));
                }
                None => {}
            }
        }
        if found.len() == before {
            return Err(format!(
                "there are no files of the kind '{}' in {}: name the node's folder, such as vinga-cluster/node-1",
                kind.folder(),
                folder.display()
            ));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether a node reads a file of this name: of the system file and of definitions there are two files each.
fn is_read(name: FileName) -> bool {
    match name.kind {
        FileKind::System | FileKind::Schema => name.owner == 0 && name.number < 2,
        FileKind::Redo | FileKind::Checkpoint | FileKind::Backup => true,
    }
}

/// All bytes of a file.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Cluster and node of a file.
fn whose(origin: Origin) -> String {
    format!("cluster {:016x}, node {}", origin.cluster, origin.node)
}
