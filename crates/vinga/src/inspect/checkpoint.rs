//! `vinga inspect checkpoint`.

use super::{CHECKSUM, NEWER, Problem, Report, whose};
use crate::table::{Table, counted, grouped};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use vinga_format::image::{ImageEnd, ImageFragment, ImageHead};
use vinga_format::image_reader::{ImageContent, ImageError, ImageReader};
use vinga_format::{BlockError, Origin};
use vinga_kernel::files::{FileKind, FileName};

/// What was read of a fragment: pieces, rows, bytes.
type Sums = [u64; 3];

/// Reads a whole checkpoint, block by block.
pub(super) fn inspect(path: &Path, report: &mut Report) -> Result<(), String> {
    let failed = |error| format!("cannot read {}: {error}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let mut reader = ImageReader::new(CHECKSUM);
    let mut sums: Vec<Sums> = Vec::new();
    let (mut offset, mut bytes, mut ends_file) = (0, Vec::new(), false);
    let outcome = loop {
        match reader.read(&bytes) {
            Ok(block) => {
                match block.content {
                    ImageContent::Head => sums = vec![[0; 3]; reader.head().fragments.len()],
                    ImageContent::Pages(pieces) => {
                        for piece in pieces {
                            let sum = &mut sums[piece.fragment];
                            *sum = [sum[0] + 1, sum[1] + u64::from(piece.rows), sum[2] + piece.bytes()];
                        }
                    }
                    ImageContent::End(end) => break Ok(end),
                }
                offset += block.bytes as u64;
                let taken = block.bytes;
                bytes.drain(..taken);
            }
            Err(ImageError::Block(BlockError::NeedsMore(needed))) if !ends_file => {
                let more = (needed - bytes.len()) as u64;
                let read = (&mut file).take(more).read_to_end(&mut bytes).map_err(failed)?;
                ends_file = (read as u64) < more;
            }
            Err(error) => break Err(error),
        }
    };
    report.line(format_args!("{}", path.display()));
    if let Some(origin) = reader.origin() {
        print(origin, reader.head(), &sums, report);
    }
    match outcome {
        Ok(ImageEnd { epoch, totals }) => report.line(format_args!(
            "complete: newest change in epoch {epoch}; {}, {}, {}, {} of rows",
            counted(totals.blocks, "block"),
            counted(totals.pieces, "piece"),
            counted(totals.rows, "row"),
            counted(totals.bytes, "byte")
        )),
        Err(ImageError::Block(why)) if why.is_unwritten(&bytes) && is_newest(path) => report.line(format_args!(
            "not finished: nothing was written at byte {} and behind. The node has stopped while it wrote this checkpoint, which is no damage; \
             it uses the one before, or the redo log alone, and removes this file at its next start",
            grouped(offset)
        )),
        Err(error) => report.problems.push(problem(path, offset, error)),
    }
    if report.is_json {
        report.values.push(as_json(path, reader.head(), &sums, outcome.ok()));
    }
    Ok(())
}

/// Whether a data manager has made no checkpoint behind this one. Only such a one may be without its end.
fn is_newest(path: &Path) -> bool {
    let name = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        FileName::from_path(&format!("{}/{name}", FileKind::Checkpoint.folder()))
    };
    let Some(own) = name(path) else { return false };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut others = entries.flatten().filter_map(|entry| name(&entry.path()));
    !others.any(|other| other.owner == own.owner && other.number > own.number)
}

fn problem(path: &Path, offset: u64, error: ImageError) -> Problem {
    const OLDER: &str = "keep a copy of the node's files. The node uses the checkpoint before, if that is whole and the \
                         redo log reaches back to it; else restore them from a copy of its folder, all of the same \
                         moment, or begin anew with --initial and restore a backup";
    let advice = match error {
        ImageError::Block(error) if error.is_of_writer() => NEWER,
        ImageError::OtherFormat(_) => "name a file of the folder 'checkpoint'",
        _ => OLDER,
    };
    Problem::new(path, offset, error).with_advice(advice)
}

fn print(origin: Origin, head: &ImageHead, sums: &[Sums], report: &Report) {
    let base = match &head.base[..] {
        [] => "complete".to_owned(),
        base => format!("builds on {base:?}"),
    };
    report.line(format_args!(
        "checkpoint {} of data manager {}: {}, incarnation {}; {base}",
        head.checkpoint,
        head.instance,
        whose(origin),
        head.incarnation
    ));
    report.line(format_args!("begun when epoch {} was durable; redo from batch {}", head.epoch, head.batch));
    let heads = ["table", "birth", "partition", "fixed bytes", "variable", "pieces", "rows", "bytes"];
    let mut table = Table::new(heads);
    (0..heads.len()).for_each(|column| table.align_right(column));
    for (fragment, sums) in head.fragments.iter().zip(sums) {
        let ImageFragment { table: id, birth, partition, fixed_bytes, has_variable } = fragment;
        let variable = if *has_variable { "yes" } else { "no" };
        let shape = [
            id.to_string(),
            birth.to_string(),
            partition.to_string(),
            fixed_bytes.to_string(),
            variable.to_owned(),
        ];
        table.row(shape.into_iter().chain(sums.map(grouped)));
    }
    report.line(table);
}

fn as_json(path: &Path, head: &ImageHead, sums: &[Sums], end: Option<ImageEnd>) -> Value {
    let fragments: Vec<Value> = head
        .fragments
        .iter()
        .zip(sums)
        .map(|(fragment, [pieces, rows, bytes])| {
            json!({
                "table": fragment.table.0, "birth": fragment.birth.0, "partition": fragment.partition.0,
                "fixed_bytes": fragment.fixed_bytes, "has_variable": fragment.has_variable,
                "pieces": pieces, "rows": rows, "bytes": bytes,
            })
        })
        .collect();
    json!({
        "file": path.to_string_lossy(), "checkpoint": head.checkpoint, "data_manager": head.instance,
        "base": head.base, "batch": head.batch, "incarnation": head.incarnation, "epoch": head.epoch.0,
        "fragments": fragments, "is_complete": end.is_some(), "newest_epoch": end.map(|end| end.epoch.0),
    })
}
