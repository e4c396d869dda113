//! What an io thread does: it takes a batch, carries it out, answers, and takes the next.

use super::file_system::{FILL_BYTES, FileSystem, OpenFile};
use super::queue::{Batch, Done, Task};
use super::{IoThreadStatistics, Shared};
use rustix::io::Errno;
use std::time::Instant;
use vinga_base::aligned::AlignedBuffer;
use vinga_kernel::files::{FileAnswer, FileData, FileName, FileTask};

/// Serves files until the node has stopped.
pub(super) fn run(shared: &Shared, statistics: &IoThreadStatistics) {
    let files = shared.file_system.as_ref().expect("without a folder there are no io threads");
    statistics.thread.thread_id.set(rustix::thread::gettid().as_raw_nonzero().get() as u64);
    let mut thread = IoThread { files, statistics, zeros: AlignedBuffer::default() };
    let mut done = None;
    let mut ended = shared.clock.nanos();
    while let Some(batch) = shared.queue.next(done.take()) {
        let begun = shared.clock.nanos();
        thread.note_begin(&batch, begun, begun - ended);
        let (result, answers) = thread.carry_out(batch);
        for (worker, answers) in answers {
            (shared.deliver)(worker, answers);
        }
        done = Some(result);
        ended = shared.clock.nanos();
        statistics.thread.busy_nanos.add(ended - begun);
        statistics.thread.sample_cpu();
    }
}

/// Answers by worker.
type Answers = Vec<(u16, Vec<FileAnswer>)>;

struct IoThread<'a> {
    files: &'a FileSystem,
    statistics: &'a IoThreadStatistics,
    /// For filling; allocated when it is first needed.
    zeros: AlignedBuffer,
}

impl IoThread<'_> {
    fn note_begin(&self, batch: &Batch, now: u64, slept: u64) {
        let common = &self.statistics.thread;
        common.turns.add(1);
        common.sleep_nanos.add(slept);
        common.sleeps.add(u64::from(batch.was_awaited));
        self.statistics.tasks.add(batch.tasks.len() as u64);
        self.statistics.tasks_waiting.set(batch.waiting as u64);
        let waited = batch.tasks.iter().map(|task| now.saturating_sub(task.since)).max().unwrap_or(0);
        if waited > self.statistics.longest_wait_nanos.get() {
            self.statistics.longest_wait_nanos.set(waited);
        }
    }

    fn carry_out(&mut self, batch: Batch) -> (Done, Answers) {
        let Batch { file, tasks, mut open, .. } = batch;
        let mut answers = Answers::new();
        let mut replaced = None;
        let mut rest = &tasks[..];
        while let Some((first, others)) = rest.split_first() {
            let count = match &first.request.task {
                FileTask::Write { .. } => self.write(file, &mut open, rest, &mut answers),
                FileTask::Flush => {
                    let count = 1 + others.iter().take_while(|t| t.request.task == FileTask::Flush).count();
                    let result = self.open(file, &mut open).and_then(|open| self.flush(open));
                    for task in &rest[..count] {
                        self.answer(task, result.map(|()| FileData::None), &mut answers);
                    }
                    count
                }
                FileTask::Rename { to } => {
                    replaced = (*to != file).then_some(*to);
                    let result = self.single(file, &mut open, &first.request.task);
                    self.answer(first, result, &mut answers);
                    1
                }
                task => {
                    let result = self.single(file, &mut open, task);
                    self.answer(first, result, &mut answers);
                    1
                }
            };
            rest = &rest[count..];
        }
        (Done { file, open, replaced }, answers)
    }

    /// The first of these tasks is a write: carries it out together with those that follow and adjoin. Returns how many
    /// tasks were answered.
    fn write(
        &self,
        file: FileName,
        open: &mut Option<OpenFile>,
        tasks: &[Task],
        answers: &mut Answers,
    ) -> usize {
        let (mut pieces, mut begin, mut end) = (Vec::new(), 0, 0);
        for task in tasks {
            match &task.request.task {
                FileTask::Write { offset, data } if pieces.is_empty() || *offset == end => {
                    begin = if pieces.is_empty() { *offset } else { begin };
                    pieces.push(&data.0[..]);
                    end = offset + data.0.len() as u64;
                }
                _ => break,
            }
        }
        let (written, result) = match self.open(file, open) {
            Ok(open) => open.write(begin, &pieces),
            Err(why) => (0, Err(why)),
        };
        self.statistics.thread.writes.add(1);
        self.statistics.thread.bytes_written.add(written);
        let mut piece_end = 0;
        for (task, piece) in tasks.iter().zip(&pieces) {
            piece_end += piece.len() as u64;
            let result = if piece_end <= written { Ok(()) } else { result };
            self.answer(task, result.map(|()| FileData::None), answers);
        }
        pieces.len()
    }

    fn flush(&self, open: &OpenFile) -> Result<(), Errno> {
        let begun = Instant::now();
        let result = open.flush();
        self.statistics.flushes.add(1);
        self.statistics.flush_nanos.add(begun.elapsed().as_nanos() as u64);
        result
    }

    /// A task that is carried out by itself.
    fn single(
        &mut self,
        file: FileName,
        open: &mut Option<OpenFile>,
        task: &FileTask,
    ) -> Result<FileData, Errno> {
        match task {
            FileTask::Read { offset, bytes } => {
                let (data, filled) = self.open(file, open)?.read(*offset, *bytes as usize)?;
                self.statistics.thread.reads.add(1);
                self.statistics.thread.bytes_read.add(filled as u64);
                return Ok(FileData::Bytes(data, filled));
            }
            FileTask::Allocate { bytes } => *open = Some(self.files.allocate(file, *bytes)?),
            FileTask::Fill { offset, bytes } => {
                self.zeros.resize(FILL_BYTES as usize);
                self.open(file, open)?.fill(*offset, *bytes, &self.zeros)?;
                self.statistics.thread.writes.add(bytes.div_ceil(FILL_BYTES));
                self.statistics.thread.bytes_written.add(*bytes);
            }
            FileTask::Remove => {
                *open = None;
                self.files.remove(file)?;
            }
            FileTask::Rename { to } => {
                *open = None;
                self.files.rename(file, *to)?;
            }
            FileTask::List => return Ok(FileData::Names(self.files.list(file)?)),
            FileTask::Write { .. } | FileTask::Flush => {
                unreachable!("these are carried out together with others")
            }
        }
        Ok(FileData::None)
    }

    /// The file, opened if it is not open yet.
    fn open<'o>(&self, file: FileName, open: &'o mut Option<OpenFile>) -> Result<&'o OpenFile, Errno> {
        let opened = match open.take() {
            Some(open) => open,
            None => self.files.open(file)?,
        };
        Ok(open.insert(opened))
    }

    fn answer(&self, task: &Task, result: Result<FileData, Errno>, answers: &mut Answers) {
        let request = &task.request;
        let result = result.map_err(|why| self.files.error(&request.task, request.file, why));
        let answer = FileAnswer { requester: request.requester, token: request.token, result };
        match answers.iter_mut().find(|(worker, _)| *worker == task.thread) {
            Some((_, own)) => own.push(answer),
            None => answers.push((task.thread, vec![answer])),
        }
    }
}
