//! The stream's part in the start of the node.
//!
//! | task | what is done |
//! |---|---|
//! | `MakeFiles` | the files are made, and the first one is filled |
//! | `ScanLog` | see `scan` |
//! | `ReplayLog` | see `replay` |
//! | `OpenLog` | missing files are made; the log goes on behind the end record of the restore point |
//!
//! A file that was being made when the machine stopped may have a part of its room, or none. It holds no segment, so
//! nothing is lost: it is made again. A file that holds a segment has the size that its head says, or it was cut off,
//! and the start is refused.
//!
//! Once the log is open, files that were never written to are filled with zeros, one after the other.

use crate::Redo;
use crate::reader::{LogReader, Place};
use crate::replay::Replay;
use crate::scan::{Advanced, EndMark, Found, Scan};
use crate::task::Task;
use crate::writer::Writer;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_format::redo::SEGMENT_HEAD_BYTES;
use vinga_kernel::files::{FileData, FileKind, FileName, FileTask};
use vinga_kernel::{AskedTask, Context, USE_NEWER_PROGRAM};
use vinga_wire::file::FileRefuse;
use vinga_wire::redo::BatchBody;
use vinga_wire::start::{LogIncarnation, StartResult, StartTask};
use vinga_wire::{ErrorCode, Frame};

/// What a stream does of the start, and has found.
#[derive(Default)]
pub struct Start {
    /// Who waits for the present task.
    asked: AskedTask,
    scan: Option<Scan>,
    replay: Option<Replay>,
    found: Found,
    incarnations: Vec<LogIncarnation>,
    /// The end record of the restore point; `None` if there is no log yet.
    end: Option<EndMark>,
    /// Files that are still to be made.
    missing: VecDeque<u32>,
    /// Files that are still to be filled, once the log is open.
    unfilled: VecDeque<u32>,
    /// The incarnation to open the log with when all files are there.
    opening: Option<u32>,
    /// Files that were made.
    made: Vec<u32>,
    /// Why the start is refused when they are removed: the others have no room.
    no_room: Option<String>,
}

impl Start {
    /// Whether files that were made are being removed, as there is no room for all of them.
    pub fn is_giving_back(&self) -> bool {
        self.no_room.is_some()
    }

    /// The node can't start.
    pub fn refuse(&mut self, cx: &mut Context<'_>, reason: String) {
        (self.scan, self.replay) = (None, None);
        // Reads of a task that was refused before may be answered later.
        self.asked.refuse(cx, reason);
    }

    /// The node can't start because of a file.
    pub fn refuse_for_file(&mut self, cx: &mut Context<'_>, refuse: &FileRefuse) {
        (self.scan, self.replay) = (None, None);
        self.asked.refuse_for_file(cx, refuse);
    }

    /// The node can't start because of this error.
    pub fn refuse_for(&mut self, cx: &mut Context<'_>, error: ErrorCode, reason: String) {
        (self.scan, self.replay) = (None, None);
        self.asked.refuse_for(cx, error, reason);
    }
}

impl Redo {
    pub(crate) fn on_start_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        match self.start.asked.take_on(frame)? {
            StartTask::MakeFiles => {
                self.start.missing = (0..self.settings.files).collect();
                self.start.unfilled = self.start.missing.clone();
                self.make_next_file(cx);
            }
            StartTask::ScanLog { incarnations, durable } => {
                self.start.incarnations.clone_from(&incarnations);
                let origin = self.origin(0);
                let (checksum, participants) = (self.settings.checksum, self.settings.participants.clone());
                self.start.scan = Some(Scan::new(origin, checksum, participants, incarnations, durable));
                cx.file(self.file(0), Task::List.token(), FileTask::List);
            }
            StartTask::ReplayLog { epoch, from } => self.begin_replay(cx, epoch, &from),
            StartTask::OpenLog { incarnation } => {
                self.start.opening = Some(incarnation);
                let is_there = |file: u32| self.segments.files().any(|(known, _)| known == file);
                self.start.missing = (0..self.settings.files).filter(|&file| !is_there(file)).collect();
                self.start.unfilled.extend(&self.start.missing);
                self.make_next_file(cx);
            }
            StartTask::RestoreDefinitions { .. }
            | StartTask::LoadCheckpoint { .. }
            | StartTask::EndRestore
            | StartTask::Begin { .. } => return None,
        }
        Some(())
    }

    fn file(&self, file: u32) -> FileName {
        FileName::new(FileKind::Redo, self.settings.stream.into(), file.into())
    }

    /// A task on a file is done that belongs to the start, or fills files behind it.
    pub(crate) fn go_on_with_start(
        &mut self,
        cx: &mut Context<'_>,
        task: Task,
        data: FileData,
    ) -> Result<(), String> {
        match (task, data) {
            (Task::Allocate(file), _) => {
                self.segments.note_file(file, self.settings.file_bytes);
                self.start.made.push(file);
                self.make_next_file(cx);
            }
            (Task::Fill(_), _) => self.fill_next_file(cx),
            (Task::List, FileData::Names(names)) => self.read_heads(cx, &names)?,
            (Task::ReadHead(file), FileData::Bytes(head, bytes)) if bytes >= SECTOR_BYTES => {
                self.on_head(cx, file, head)?;
            }
            (Task::Read(count), FileData::Bytes(data, bytes)) => {
                if let Some(scan) = &mut self.start.scan {
                    scan.on_read(count, data, bytes)?;
                    self.go_on_with_scan(cx)?;
                } else if let Some(replay) = &mut self.start.replay {
                    replay.on_read(count, data, bytes)?;
                    self.go_on_with_replay(cx)?;
                }
            }
            (Task::Remove(_), _) => self.go_on_giving_back(cx),
            (task, data) => return Err(format!("the answer to {task:?} makes no sense: {data:?}")),
        }
        Ok(())
    }

    /// Makes the next file that is missing; when there is none, the task is done.
    fn make_next_file(&mut self, cx: &mut Context<'_>) {
        match self.start.missing.pop_front() {
            Some(file) => {
                let bytes = self.settings.file_bytes;
                cx.file(self.file(file), Task::Allocate(file).token(), FileTask::Allocate { bytes });
            }
            None => match self.start.opening.take() {
                Some(incarnation) => self.open(cx, incarnation),
                None => self.start.asked.confirm(cx, StartResult::Done),
            },
        }
    }

    /// The disk has no room for the log's files: those that this start has made are removed, then it is refused. Their
    /// room may be what somebody else needs, and they are of no use until the next start.
    pub(crate) fn give_back(&mut self, cx: &mut Context<'_>, reason: String) {
        self.start.no_room = Some(reason);
        self.go_on_giving_back(cx);
    }

    /// The next of them; when there is none any more, the start is refused.
    pub(crate) fn go_on_giving_back(&mut self, cx: &mut Context<'_>) {
        if self.start.no_room.is_none() {
            return;
        }
        if let Some(file) = self.start.made.pop() {
            self.segments.note_file(file, 0);
            cx.file(self.file(file), Task::Remove(file).token(), FileTask::Remove);
        } else if let Some(reason) = self.start.no_room.take() {
            self.start.refuse_for(cx, ErrorCode::DiskFull, reason);
        }
    }

    /// Fills the next file that was never written to and holds no segment.
    fn fill_next_file(&mut self, cx: &mut Context<'_>) {
        while let Some(file) = self.start.unfilled.pop_front() {
            if self.segments.live().all(|segment| segment.file != file) {
                // The head is left out: nothing of it is needed, and the file may be taken into use meanwhile, whose
                // tasks come behind this one.
                let fill = FileTask::Fill { offset: 0, bytes: self.segments.file_bytes(file) };
                cx.file(self.file(file), Task::Fill(file).token(), fill);
                return;
            }
        }
    }

    /// The files of the stream are known: reads what each of them holds.
    fn read_heads(&mut self, cx: &mut Context<'_>, names: &[(FileName, u64)]) -> Result<(), String> {
        let stream = u32::from(self.settings.stream);
        let scan = self.start.scan.as_mut().expect("a scan has begun");
        let mut files = Vec::new();
        for &(name, bytes) in names.iter().filter(|(name, _)| name.owner == stream) {
            let file =
                u32::try_from(name.number).map_err(|_| format!("{} is no file of ours", name.path()))?;
            if bytes < SECTOR_BYTES as u64 {
                // There is not even room for the head of a segment.
                scan.note_unfinished(&name, bytes);
            } else {
                files.push((file, name, bytes - bytes % SECTOR_BYTES as u64));
            }
        }
        // Nothing is read before it is certain that all files can be.
        let count = files.len();
        for (file, name, bytes) in files {
            self.segments.note_file(file, bytes);
            let read = FileTask::Read { offset: 0, bytes: SECTOR_BYTES as u32 };
            cx.file(name, Task::ReadHead(file).token(), read);
        }
        let scan = self.start.scan.as_mut().expect("a scan has begun");
        scan.expect_heads(count);
        if count == 0 {
            self.scan_blocks(cx)?;
        }
        Ok(())
    }

    /// The first sector of a file was read.
    fn on_head(&mut self, cx: &mut Context<'_>, file: u32, head: AlignedBuffer) -> Result<(), String> {
        let (name, file_bytes) = (self.file(file), self.segments.file_bytes(file));
        let Some(scan) = &mut self.start.scan else { return Ok(()) };
        if let Some(why) = scan.not_understood(&head) {
            self.refuse_newer(cx, &format!("{}, offset 0: {why}", name.path()));
            return Ok(());
        }
        let segment = scan.segment_in(&head);
        match segment {
            Some(segment) if file_bytes < segment.file_bytes => {
                return Err(format!(
                    "{} has {file_bytes} bytes of {} and holds segment {} of the log: it is cut off",
                    name.path(),
                    segment.file_bytes,
                    segment.number
                ));
            }
            None if file_bytes < self.settings.file_bytes => {
                scan.note_unfinished(&name, file_bytes);
                self.segments.note_file(file, 0);
            }
            Some(_) | None => {}
        }
        if scan.on_head(file, file_bytes, head) { self.scan_blocks(cx) } else { Ok(()) }
    }

    /// The node can't start with a file that a newer program has written.
    fn refuse_newer(&mut self, cx: &mut Context<'_>, what: &str) {
        self.start.refuse_for(cx, ErrorCode::NewerFiles, format!("{what}; {USE_NEWER_PROGRAM}"));
    }

    fn scan_blocks(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let scan = self.start.scan.as_mut().expect("a scan has begun");
        if scan.begin_reading()? { self.go_on_with_scan(cx) } else { self.end_scan(cx) }
    }

    fn go_on_with_scan(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let scan = self.start.scan.as_mut().expect("a scan has begun");
        match scan.advance(cx)? {
            Advanced::Reading => Ok(()),
            Advanced::Ended => self.end_scan(cx),
            Advanced::NotUnderstood(reason) => {
                self.refuse_newer(cx, &reason);
                Ok(())
            }
        }
    }

    fn end_scan(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let scan = self.start.scan.take().expect("a scan has begun");
        self.start.found = scan.finish()?;
        let complete = self.start.found.ends.last().map_or(Epoch(0), |end| end.epoch);
        let greatest = self.start.found.greatest;
        let incarnations = self.start.found.incarnations.iter().copied().collect();
        self.start.asked.confirm(cx, StartResult::LogScanned { complete, greatest, incarnations });
        Ok(())
    }

    fn begin_replay(&mut self, cx: &mut Context<'_>, epoch: Epoch, from: &[(u16, u64)]) {
        let mut next: Vec<u64> = self.settings.participants.clone().map(|_| 1).collect();
        for &(instance, batch) in from {
            if self.settings.participants.contains(&instance) {
                next[self.place_of(instance)] = batch;
            }
        }
        match self.make_replay(epoch, next) {
            Ok(Some(replay)) => {
                self.start.replay = Some(replay);
                if let Err(reason) = self.go_on_with_replay(cx) {
                    self.refuse_start(cx, reason);
                }
            }
            Ok(None) => self.start.asked.confirm(cx, StartResult::LogReplayed { batches: 0 }),
            Err(reason) => self.refuse_start(cx, reason),
        }
    }

    /// The replay up to the end record of an epoch; `None` if nothing was ever logged, or nothing that counts: the
    /// first global checkpoint has not come to its end, and other streams do not reach it.
    fn make_replay(&mut self, epoch: Epoch, next: Vec<u64>) -> Result<Option<Replay>, String> {
        let Some(at) = self.start.found.ends.iter().rposition(|end| end.epoch == epoch) else {
            let reason = || format!("stream {} has no end record of epoch {epoch}", self.settings.stream);
            return if epoch == Epoch(0) { Ok(None) } else { Err(reason()) };
        };
        let end = self.start.found.ends.swap_remove(at);
        for (place, &needed) in next.iter().enumerate() {
            let last = end.batches.iter().map(|(_, batches)| batches[place]).max().unwrap_or(0);
            if last != 0 && needed > last + 1 {
                return Err(format!(
                    "the checkpoint of data manager {} goes on with batch {needed}, but the log ends with batch {last}",
                    usize::from(self.settings.participants.start) + place
                ));
            }
        }
        // The log is not cut before all data managers of the stream have a checkpoint.
        let oldest = self.start.found.segments.first().map_or(1, |found| found.number);
        if let Some(place) = next.iter().position(|&needed| needed == 0).filter(|_| oldest > 1) {
            let data_manager = usize::from(self.settings.participants.start) + place;
            return Err(format!(
                "data manager {data_manager} has no checkpoint that counts, but the log begins with segment {oldest}: \
                 what was logged before is in a file checkpoint/{data_manager:03}-….image that is damaged or missing"
            ));
        }
        let next: Vec<u64> = next.into_iter().map(|needed| needed.max(1)).collect();
        for (place, (&goes_on, &kept)) in next.iter().zip(&self.start.found.needed_from).enumerate() {
            if goes_on < kept {
                let data_manager = usize::from(self.settings.participants.start) + place;
                return Err(format!(
                    "what data manager {data_manager} has restored from its checkpoints ends before batch {goes_on}, but \
                     the log was kept from batch {kept} on: a newer file checkpoint/{data_manager:03}-….image was there, \
                     which is damaged or missing"
                ));
            }
        }
        for (place, &goes_on) in next.iter().enumerate() {
            self.segments.need_from(place, goes_on);
        }
        // Earlier segments have nothing that is needed.
        let is_needed = |number: u64| {
            let met = end.batches.iter().find(|(segment, _)| *segment == number);
            number >= end.place.segment
                || met.is_some_and(|(_, last)| last.iter().zip(&next).any(|(&last, &next)| last >= next))
        };
        let segments = &self.start.found.segments;
        let first = segments.iter().position(|found| is_needed(found.number)).expect("the last is needed");
        let (stream, checksum) = (self.settings.stream, self.settings.checksum);
        let reader =
            LogReader::new(stream, checksum, self.start.incarnations.clone(), segments[first..].to_vec())?;
        let replay = Replay::new(reader, epoch, end.place, self.settings.participants.clone(), next);
        self.start.end = Some(end);
        Ok(Some(replay))
    }

    pub(crate) fn on_redo_replay_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<BatchBody>()?;
        if let Some(replay) = &mut self.start.replay {
            replay.on_applied(frame.sender().instance(), confirm.batch.get());
            if let Err(reason) = self.go_on_with_replay(cx) {
                self.refuse_start(cx, reason);
            }
        }
        Some(())
    }

    fn go_on_with_replay(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        let Some(replay) = &mut self.start.replay else { return Ok(()) };
        // What is still being read is of no use, but must not meet a later task.
        if replay.advance(cx)? && !replay.has_reads() {
            let (batches, amount) = (replay.batches(), replay.amount());
            self.start.replay = None;
            self.start.asked.report_amount(cx, amount);
            self.start.asked.confirm(cx, StartResult::LogReplayed { batches });
        } else {
            let amount = replay.amount();
            self.start.asked.note_amount(cx, amount);
        }
        Ok(())
    }

    /// All files are there: the log goes on behind the end record of the restore point, or begins.
    fn open(&mut self, cx: &mut Context<'_>, incarnation: u32) {
        let place = match self.start.end.take() {
            Some(EndMark { place, batches, .. }) => {
                for found in &self.start.found.segments {
                    let Some((_, last)) = batches.iter().find(|(segment, _)| *segment == found.number) else {
                        continue;
                    };
                    self.segments.push(found.number, found.file, 0);
                    self.segments.newest_mut().expect("it was added").batches.clone_from(last);
                }
                self.segments.note_end(place.segment);
                place
            }
            None => Place { segment: 0, offset: SEGMENT_HEAD_BYTES as u64, block: 0 },
        };
        self.start.found = Found::default();
        let (origin, checksum) = (self.origin(incarnation), self.settings.checksum);
        self.writer = Some(Writer::new(origin, checksum, place.block, place.offset));
        self.remove_surplus_files(cx);
        let used = self.room().used;
        self.writer.as_mut().expect("it was just made").note_used(used);
        self.checkpoints.note_open(self.segments.capacity(), used);
        self.start.asked.confirm(cx, StartResult::Done);
        self.give_rest(cx, ErrorCode::RedoLogFull);
        self.fill_next_file(cx);
    }

    /// Removes files that are more than are configured, as far as no segment is in them.
    fn remove_surplus_files(&mut self, cx: &mut Context<'_>) {
        let files: Vec<u32> = self.segments.files().map(|(file, _)| file).collect();
        let surplus = files.into_iter().filter(|&file| file >= self.settings.files);
        for file in surplus {
            if self.segments.live().all(|segment| segment.file != file) {
                self.segments.note_file(file, 0);
                cx.file(self.file(file), Task::Remove(file).token(), FileTask::Remove);
            }
        }
    }
}
