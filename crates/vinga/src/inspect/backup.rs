//! `vinga inspect backup`.

use super::{NEWER, Problem, Report};
use crate::backup::input::{self, Backup};
use crate::table::{Table, counted, grouped};
use serde_json::json;
use std::path::Path;
use vinga_format::backup::{BackupBlock, BackupContent, BackupDefinition, BackupFile};

/// What to do with a backup that is damaged.
const OTHER: &str = "it can't be restored: use another one";

fn problem(found: input::Problem) -> Problem {
    let advice = if found.is_newer { NEWER } else { OTHER };
    Problem::new(&found.file, found.offset, found.what).with_advice(advice)
}

/// Reads a whole backup, or one file of it.
pub(super) fn inspect(path: &Path, report: &mut Report) {
    let is_file = path.is_file();
    // That of a mere name is empty.
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = if is_file { parent().unwrap_or(Path::new(".")) } else { path };
    report.line(path.display());
    let backup = match Backup::open(folder) {
        Ok(backup) => backup,
        Err(found) => {
            report.problems.push(problem(found));
            return;
        }
    };
    let manifest = &backup.manifest;
    let at = |seconds| {
        humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
            .to_string()
    };
    report.line(format_args!(
        "backup {:016x} of epoch {}: {}, begun {}, complete {}, by vinga {}{}",
        manifest.backup,
        manifest.epoch,
        counted(manifest.partitions.into(), "partition"),
        at(manifest.began),
        at(manifest.ended),
        manifest.program,
        if manifest.has_sql { "" } else { "; without accounts and views of SQL nodes" }
    ));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let wanted = |file: &&BackupFile| !is_file || name.as_deref() == Some(&file.name);
    let mut table = Table::new(["file", "blocks", "items", "bytes"]);
    (1..4).for_each(|column| table.align_right(column));
    let mut is_well = true;
    for file in manifest.files.iter().filter(wanted) {
        table.row([
            file.name.clone(),
            grouped(file.end.blocks),
            grouped(file.end.items),
            grouped(file.bytes),
        ]);
        if let Err(found) = backup.read::<input::Problem>(file, |_: BackupBlock<'_>| Ok(())) {
            is_well = false;
            report.problems.push(problem(found));
        }
    }
    report.line(table);
    if is_well && !is_file {
        definitions(&backup, report);
    }
    if report.is_json {
        let files = manifest.files.iter().filter(wanted).map(|file| {
            json!({
                "name": file.name, "content": format!("{:?}", file.head.content), "partition": file.head.partition,
                "blocks": file.end.blocks, "items": file.end.items, "bytes": file.bytes,
            })
        });
        report.values.push(json!({
            "folder": folder.to_string_lossy(), "epoch": manifest.epoch, "partitions": manifest.partitions,
            "program": manifest.program, "began": manifest.began, "ended": manifest.ended,
            "has_sql": manifest.has_sql, "files": files.collect::<Vec<_>>(),
        }));
    }
}

/// Prints what the backup has definitions of.
fn definitions(backup: &Backup, report: &mut Report) {
    let (definitions, statements) = match (backup.definitions(), backup.statements()) {
        (Ok(definitions), Ok(statements)) => (definitions, statements),
        (Err(found), _) | (_, Err(found)) => return report.problems.push(problem(found)),
    };
    for definition in &definitions {
        match definition {
            BackupDefinition::Database(database) => report.line(format_args!("database {}", database.name)),
            BackupDefinition::Table(table) => report.line(format_args!(
                "table {}: {} columns, {} indexes",
                table.definition.name,
                table.definition.columns.len(),
                table.definition.indexes.len()
            )),
        }
    }
    for statement in &statements {
        report.line(format_args!("SQL node {}: {}", statement.node, statement.what));
    }
    let items = |content| backup.files(content).map(|file| file.end.items).sum::<u64>();
    report.line(format_args!(
        "complete: {}, {} made meanwhile, {} for SQL nodes",
        counted(items(BackupContent::Rows), "row"),
        counted(items(BackupContent::Changes), "change"),
        counted(statements.len() as u64, "statement")
    ));
}
