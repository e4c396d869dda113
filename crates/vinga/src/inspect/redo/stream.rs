//! Follows a stream of the redo log from its tail to its end.

use super::super::{CHECKSUM, NEWER, Problem};
use super::{SegmentFile, read};
use std::collections::BTreeMap;
use std::path::PathBuf;
use vinga_base::Epoch;
use vinga_format::block::BlockSearch;
use vinga_format::log_cursor::{LogCursor, LogDamage, LogEnd, NotEntered, Verdict};
use vinga_format::redo::{self, Entry, Record, SEGMENT_HEAD_BYTES};
use vinga_format::{Block, Head, read_block};

/// What is printed of a block.
pub(super) struct Line {
    pub(super) head: Head,
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) entries: u64,
    pub(super) records: u64,
    /// The oldest and the newest epoch of its records.
    pub(super) epochs: Option<(Epoch, Epoch)>,
}

/// The batches of a data manager.
#[derive(Default)]
pub(super) struct Batches {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    incarnation: u32,
}

/// A stream up to its end.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) blocks: Vec<Line>,
    pub(super) batches: BTreeMap<u16, Batches>,
    /// Epochs with the blocks that end them.
    pub(super) ends: Vec<(Epoch, u64)>,
    /// File and offset at which the log ends.
    pub(super) end: (PathBuf, u64),
    /// The number of the block that would follow.
    pub(super) next: u64,
    /// Why it ends.
    pub(super) stop: String,
    pub(super) problems: Vec<Problem>,
}

/// Follows the stream of these files, which are sorted by segment and incarnation. `each` is called for each record.
///
/// # Errors
/// A text: a file can't be read.
pub(super) fn follow(
    files: &[SegmentFile],
    each: &mut dyn FnMut(&Entry<'_>, &Record<'_>),
) -> Result<Stream, String> {
    let mut stream = Stream::default();
    // Of two files with one segment the later incarnation's counts.
    let by_number: BTreeMap<u64, &SegmentFile> =
        files.iter().map(|file| (file.segment.number, file)).collect();
    let newest = &files[files.len() - 1];
    let tail = newest.segment.tail;
    let (_, mut file) = by_number.range(tail..).next().expect("the newest segment is not below its own tail");
    for missing in (tail..newest.segment.number).filter(|number| !by_number.contains_key(number)) {
        let what = format!("segment {missing}, which is needed, is in none of the files");
        let advice = "name all files of the stream, or their folder; if that has no more, keep a copy of it: the node \
                      can't start from these files";
        stream.problems.push(Problem::new(&newest.path, 0, what).with_advice(advice));
    }
    let mut bytes = read(&file.path)?;
    let mut cursor = match read_block(&bytes, CHECKSUM).map(|block| LogCursor::begin(&block)) {
        Ok(Ok((cursor, _))) => cursor,
        _ => return Err(format!("{} has changed while it was read", file.path.display())),
    };
    let mut at = SEGMENT_HEAD_BYTES;
    let stop = loop {
        let offset = at as u64;
        let stop = match cursor.judge(&bytes[at..], true, CHECKSUM) {
            Verdict::Next(block) => {
                if let Err(what) = stream.add(&block, cursor.segment(), offset, each) {
                    stream.problems.push(Problem::new(&file.path, offset, &what));
                    break what;
                }
                at += block.bytes;
                continue;
            }
            Verdict::Damaged(damage) => {
                let is_newer = matches!(damage, LogDamage::Block(_));
                let problem = Problem::new(&file.path, offset, damage);
                stream.problems.push(if is_newer { problem.with_advice(NEWER) } else { problem });
                break damage.to_string();
            }
            Verdict::End(stop) => stop.to_string(),
            Verdict::NeedsMore(_) => unreachable!("the file ends behind these bytes"),
        };
        // The next segment continues the log, or the log ends here.
        let Some(next) = by_number.get(&(cursor.segment() + 1)) else { break stop };
        let next_bytes = read(&next.path)?;
        let entered = match read_block(&next_bytes, CHECKSUM) {
            Ok(block) => cursor.enter(&block),
            Err(_) => return Err(format!("{} has changed while it was read", next.path.display())),
        };
        match entered {
            Ok(_) => (file, bytes, at) = (next, next_bytes, SEGMENT_HEAD_BYTES),
            Err(NotEntered::End(why)) => break format!("{stop}; the next segment does not follow: {why}"),
            Err(NotEntered::Damaged(damage)) => {
                stream.problems.push(Problem::new(&next.path, 0, damage));
                break damage.to_string();
            }
        }
    };
    stream.end = (file.path.clone(), at as u64);
    stream.next = cursor.next_number();
    if stream.problems.is_empty() {
        let mut later: Vec<Head> =
            BlockSearch::new(&bytes[at..], true, CHECKSUM).map(|(_, block)| block.head).collect();
        for file in by_number.range(cursor.segment() + 1..).map(|(_, file)| file) {
            let bytes = read(&file.path)?;
            later.extend(BlockSearch::new(&bytes, true, CHECKSUM).map(|(_, block)| block.head));
        }
        if let LogEnd::Missing { due, later, flushed } = cursor.judge_end(&later) {
            let what = format!(
                "block {due} is damaged or missing ({stop}): when block {later} was written, all up to block {flushed} \
                 were on the disk"
            );
            stream.problems.push(Problem::new(&file.path, at as u64, what));
        }
    }
    stream.stop = stop;
    Ok(stream)
}

impl Stream {
    /// Adds a block; `Err` says what is wrong with its content.
    fn add(
        &mut self,
        block: &Block<'_>,
        segment: u64,
        offset: u64,
        each: &mut dyn FnMut(&Entry<'_>, &Record<'_>),
    ) -> Result<(), String> {
        redo::check(block).map_err(|malformed| malformed.to_string())?;
        let head = block.head;
        let mut line =
            Line { head, segment, offset, bytes: block.bytes, entries: 0, records: 0, epochs: None };
        for entry in redo::entries(block).flatten() {
            line.entries += 1;
            let is_first = !self.batches.contains_key(&entry.participant);
            let batches = self.batches.entry(entry.participant).or_default();
            if is_first {
                batches.first = entry.batch;
            } else if batches.incarnation == head.origin.incarnation && entry.batch <= batches.last {
                return Err(format!(
                    "batch {} of data manager {} follows batch {}",
                    entry.batch, entry.participant, batches.last
                ));
            }
            (batches.last, batches.incarnation) = (entry.batch, head.origin.incarnation);
            batches.count += 1;
            batches.bytes += entry.records.len() as u64;
            for record in redo::records(entry.records).flatten() {
                each(&entry, &record);
                batches.records += 1;
                line.records += 1;
                let epoch = record.change.epoch;
                let (oldest, newest) = line.epochs.unwrap_or((epoch, epoch));
                line.epochs = Some((oldest.min(epoch), newest.max(epoch)));
            }
        }
        if head.ends_epoch != Epoch(0) {
            self.ends.push((head.ends_epoch, head.number));
        }
        self.blocks.push(line);
        Ok(())
    }
}
