//! `vinga inspect schema`.

use super::items::{self, Item};
use super::{CHECKSUM, KEEP, NEWER, Problem, Report, read, whose};
use crate::table::{Table, counted, grouped};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use vinga_format::schema::{self, SchemaError, SchemaExtent, SchemaFile};
use vinga_format::schema_choice::{ChooseError, choose};

/// Reads one file or both.
pub(super) fn inspect(files: &[PathBuf], report: &mut Report) -> Result<(), String> {
    let contents = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let counts = match &contents[..] {
        [first, second] => match choose([first, second], SchemaExtent::default(), CHECKSUM) {
            Ok((file, _)) => Some(file),
            Err(error @ ChooseError::SameGeneration(_)) => {
                report.problems.push(Problem::new(&files[0], 0, error));
                None
            }
            // The files' own problems say it.
            Err(ChooseError::Missing | ChooseError::Damaged { .. } | ChooseError::Behind { .. }) => None,
        },
        _ => None,
    };
    for (i, (file, bytes)) in files.iter().zip(&contents).enumerate() {
        report.line(file.display());
        let is_other = counts.is_some_and(|counts| counts != i);
        match schema::read(bytes, CHECKSUM) {
            Ok(content) => show(file, &content, counts.map(|counts| counts == i), report),
            // What can be there while definitions are rewritten.
            Err(error @ (SchemaError::Missing | SchemaError::Incomplete { .. } | SchemaError::Block(_)))
                if is_other =>
            {
                report.line(format_args!("does not count: {error}"));
            }
            Err(error) => {
                let advice = match error {
                    SchemaError::Unknown { .. } => NEWER,
                    SchemaError::OtherFormat(_) => "name a file of the folder 'schema'",
                    _ => KEEP,
                };
                report.problems.push(Problem::new(file, error.offset(), error).with_advice(advice));
            }
        }
    }
    Ok(())
}

fn show(file: &Path, content: &SchemaFile<'_>, counts: Option<bool>, report: &mut Report) {
    let word = match counts {
        Some(true) => ": this one counts",
        Some(false) => ": the newer one counts",
        None => "",
    };
    report.line(format_args!(
        "generation {}{word}; {}; {}, {}",
        content.generation,
        whose(content.origin),
        counted(content.end.number, "block"),
        match content.entries.len() {
            1 => "1 entry".to_owned(),
            entries => format!("{entries} entries"),
        }
    ));
    let mut table = Table::new(["entry", "epoch", "bytes"]);
    (0..3).for_each(|column| table.align_right(column));
    for (entry, i) in content.entries.iter().zip(1u64..) {
        table.row([i.to_string(), entry.epoch.to_string(), grouped(entry.bytes.len() as u64)]);
    }
    report.line(table);
    let entries = show_entries(file, content, report);
    if let Some(error) = content.remains {
        report.line(format_args!(
            "at offset {}, behind the last block: {error}. This is a write that was torn when the node stopped, or damage: \
             'vinga inspect system' shows how many blocks there were",
            content.end.offset
        ));
    }
    if report.is_json {
        report.values.push(json!({
            "file": file.to_string_lossy(), "generation": content.generation, "counts": counts,
            "blocks": content.end.number, "bytes": content.end.offset, "entries": entries,
            "remains": content.remains.map(|error| error.to_string()),
        }));
    }
}

/// Shows what each entry says, and verifies that it can be: returns the entries for programs.
fn show_entries(file: &Path, content: &SchemaFile<'_>, report: &mut Report) -> Vec<Value> {
    let mut entries = Vec::new();
    for ((entry, &offset), number) in content.entries.iter().zip(&content.offsets).zip(1u64..) {
        let found = items::read(entry.bytes);
        let list: &[Item] = found.as_deref().unwrap_or_default();
        for item in list {
            report.line(format_args!("entry {number}, epoch {}: {}", entry.epoch, items::describe(item)));
            if let Err(why) = items::verify(item) {
                let what = format!("entry {number}, of epoch {}, says what can't be: {why}", entry.epoch);
                report.problems.push(Problem::new(file, offset, what));
            }
        }
        if found.is_none() {
            let what = format!("entry {number}, of epoch {}, can't be read", entry.epoch);
            report.problems.push(Problem::new(file, offset, what));
        }
        let items: Vec<Value> = list.iter().map(items::as_json).collect();
        entries.push(json!({ "epoch": entry.epoch.0, "bytes": entry.bytes.len(), "items": items }));
    }
    entries
}
