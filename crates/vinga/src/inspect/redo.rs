//! `vinga inspect redo`.

mod stream;

use super::{CHECKSUM, Problem, Report, read, whose};
use crate::table::{Table, grouped};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use stream::{Batches, Line, Stream};
use vinga_format::block::is_blank;
use vinga_format::log_cursor::LogCursor;
use vinga_format::redo::{Change, Entry, Record, RecordKind, SEGMENT_HEAD_BYTES, Segment, needed_from};
use vinga_format::{Format, Origin, read_block};

/// A file with a segment.
#[derive(Clone)]
struct SegmentFile {
    path: PathBuf,
    bytes: u64,
    origin: Origin,
    segment: Segment,
    /// By data manager of the stream: the first batch that was needed when the segment was begun.
    needed_from: Vec<u64>,
}

/// Reads all files, stream by stream.
pub(super) fn inspect(files: &[PathBuf], shows_records: bool, report: &mut Report) -> Result<(), String> {
    let mut streams: BTreeMap<(u64, u8, u16), Vec<SegmentFile>> = BTreeMap::new();
    for path in files {
        if let Some(file) = read_head(path, report)? {
            let Origin { cluster, node, owner, .. } = file.origin;
            streams.entry((cluster, node.0, owner)).or_default().push(file);
        }
    }
    for (_, mut files) in streams {
        files.sort_by_key(|file| (file.segment.number, file.origin.incarnation));
        show(&files, shows_records, report)?;
    }
    Ok(())
}

/// The segment that a file holds; `None` if it holds none.
fn read_head(path: &Path, report: &mut Report) -> Result<Option<SegmentFile>, String> {
    let failed = |error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut first = Vec::new();
    file.take(SEGMENT_HEAD_BYTES as u64).read_to_end(&mut first).map_err(failed)?;
    if is_blank(&first) {
        report.line(format_args!("{}: not used yet", path.display()));
        return Ok(None);
    }
    match read_block(&first, CHECKSUM) {
        Err(error) => report.problems.push(Problem::of_block(path, 0, error)),
        Ok(block) => match LogCursor::begin(&block) {
            Ok((_, segment)) => {
                if bytes < segment.file_bytes {
                    let what = format!("the file ends here, but should have {} bytes", segment.file_bytes);
                    report.problems.push(Problem::new(path, bytes, what));
                }
                let (path, origin) = (path.to_owned(), block.head.origin);
                let needed_from = needed_from(&block).collect();
                return Ok(Some(SegmentFile { path, bytes, origin, segment, needed_from }));
            }
            Err(_) if block.head.kind.format() != Format::Redo => {
                let what = format!("this is a {}, not a {}", block.head.kind.format(), Format::Redo);
                report
                    .problems
                    .push(Problem::new(path, 0, what).with_advice("name a file of the folder 'redo'"));
            }
            Err(damage) => report.problems.push(Problem::new(path, 0, damage)),
        },
    }
    Ok(None)
}

/// Prints a stream, whose files are sorted by segment.
fn show(files: &[SegmentFile], shows_records: bool, report: &mut Report) -> Result<(), String> {
    let newest = &files[files.len() - 1];
    report.line(format_args!(
        "stream {}: {}, incarnation {}; segments {} to {} are needed",
        newest.origin.owner,
        whose(newest.origin),
        newest.origin.incarnation,
        newest.segment.tail,
        newest.segment.number
    ));
    report.line(segments(files, newest.segment.tail));
    if !newest.needed_from.is_empty() {
        let batches: Vec<String> = newest.needed_from.iter().map(u64::to_string).collect();
        report.line(format_args!(
            "batches needed when the newest segment was begun, by data manager of the stream: from {} on",
            batches.join(", ")
        ));
    }
    let (is_json, mut records) = (report.is_json, Vec::new());
    let mut show_record = |entry: &Entry<'_>, record: &Record<'_>| {
        if !shows_records {
        } else if is_json {
            records.push(record_as_json(entry, record));
        } else {
            vinga_runtime::say!("{}", record_as_text(entry, record));
        }
    };
    let stream = stream::follow(files, &mut show_record)?;
    if !stream.blocks.is_empty() {
        report.line(blocks(&stream.blocks));
    }
    if !stream.batches.is_empty() {
        report.line(batches(&stream.batches));
    }
    let ends: Vec<String> =
        stream.ends.iter().map(|(epoch, number)| format!("{epoch} (block {number})")).collect();
    report.line(format_args!(
        "epochs that end: {}",
        if ends.is_empty() { "none".into() } else { ends.join(", ") }
    ));
    report.line(format_args!(
        "the log ends in {} at offset {}, before block {}: {}",
        stream.end.0.display(),
        stream.end.1,
        stream.next,
        stream.stop
    ));
    if is_json {
        report.values.push(as_json(newest, &stream, shows_records.then_some(records)));
    }
    report.problems.extend(stream.problems);
    Ok(())
}

fn segments(files: &[SegmentFile], tail: u64) -> Table {
    let mut table = Table::new(["segment", "first block", "incarnation", "bytes", "state", "file"]);
    (0..4).for_each(|column| table.align_right(column));
    for SegmentFile { path, bytes, origin, segment, .. } in files {
        let state = if segment.number < tail { "may be used again" } else { "needed" };
        table.row([
            segment.number.to_string(),
            segment.first_block.to_string(),
            origin.incarnation.to_string(),
            grouped(*bytes),
            state.to_owned(),
            path.display().to_string(),
        ]);
    }
    table
}

fn blocks(lines: &[Line]) -> Table {
    let heads = [
        "block",
        "segment",
        "offset",
        "bytes",
        "incarnation",
        "flushed",
        "entries",
        "records",
        "epochs",
        "ends",
    ];
    let mut table = Table::new(heads);
    (0..8).for_each(|column| table.align_right(column));
    for line in lines {
        let epochs = match line.epochs {
            Some((oldest, newest)) if oldest == newest => oldest.to_string(),
            Some((oldest, newest)) => format!("{oldest} to {newest}"),
            None => "–".to_owned(),
        };
        let ends =
            if line.head.ends_epoch.0 == 0 { "–".to_owned() } else { line.head.ends_epoch.to_string() };
        table.row([
            line.head.number.to_string(),
            line.segment.to_string(),
            line.offset.to_string(),
            grouped(line.bytes as u64),
            line.head.origin.incarnation.to_string(),
            line.head.flushed.to_string(),
            line.entries.to_string(),
            line.records.to_string(),
            epochs,
            ends,
        ]);
    }
    table
}

fn batches(batches: &BTreeMap<u16, Batches>) -> Table {
    let mut table = Table::new(["data manager", "first batch", "last batch", "batches", "records", "bytes"]);
    (0..6).for_each(|column| table.align_right(column));
    for (participant, batches) in batches {
        let Batches { first, last, count, records, bytes, .. } = *batches;
        let numbers = [u64::from(*participant), first, last];
        let sums = [count, records, bytes].map(grouped);
        table.row(numbers.map(|number| number.to_string()).into_iter().chain(sums));
    }
    table
}

fn record_as_text(entry: &Entry<'_>, record: &Record<'_>) -> String {
    let Entry { participant, batch, .. } = entry;
    let Change { kind, table, birth, partition, row, epoch } = &record.change;
    let (page, slot) = (row.page(), row.slot());
    let what = match kind {
        RecordKind::Write => format!("write {} bytes", record.image.len()),
        RecordKind::Delete => "delete".to_owned(),
    };
    format!(
        "data manager {participant}, batch {batch}: epoch {epoch}, table {table} of birth {birth}, partition {partition}, \
         page {page}, slot {slot}: {what}"
    )
}

fn record_as_json(entry: &Entry<'_>, record: &Record<'_>) -> Value {
    let Entry { participant, batch, .. } = entry;
    let Change { kind, table, birth, partition, row, epoch } = &record.change;
    let bytes = (*kind == RecordKind::Write).then_some(record.image.len());
    json!({
        "data_manager": participant, "batch": batch, "epoch": epoch.0, "table": table.0, "birth": birth.0,
        "partition": partition.0, "page": row.page(), "slot": row.slot(), "written_bytes": bytes,
    })
}

fn as_json(newest: &SegmentFile, stream: &Stream, records: Option<Vec<Value>>) -> Value {
    let blocks: Vec<Value> = stream
        .blocks
        .iter()
        .map(|line| {
            json!({
                "block": line.head.number, "segment": line.segment, "offset": line.offset, "bytes": line.bytes,
                "incarnation": line.head.origin.incarnation, "flushed": line.head.flushed, "entries": line.entries,
                "records": line.records, "ends_epoch": line.head.ends_epoch.0,
            })
        })
        .collect();
    let batches: Vec<Value> = stream
        .batches
        .iter()
        .map(|(participant, batches)| {
            json!({
                "data_manager": participant, "first": batches.first, "last": batches.last, "batches": batches.count,
                "records": batches.records, "bytes": batches.bytes,
            })
        })
        .collect();
    json!({
        "stream": newest.origin.owner, "cluster": newest.origin.cluster, "node": newest.origin.node.0,
        "tail": newest.segment.tail, "needed_from": newest.needed_from, "newest_segment": newest.segment.number, "blocks": blocks, "batches": batches,
        "end": { "file": stream.end.0.to_string_lossy(), "offset": stream.end.1, "next_block": stream.next },
        "records": records,
    })
}
