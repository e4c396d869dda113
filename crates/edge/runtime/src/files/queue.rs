//! What waits to be done with files: a queue for each file, and which of the files an io thread may take next.
//!
//! A file's queue is served by one io thread at a time, which takes tasks from its front, a batch at once. A rename is
//! a task on two files: it stands in the queue of its file and, as [`Entry::ReplacedBy`], in that of the file whose
//! name it takes. Both are entered at the same moment, so renames never wait for each other; one is carried out when it
//! is at the front of both and no thread is busy with either.

use super::file_system::OpenFile;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use vinga_kernel::files::{FileName, FileRequest, FileTask};

/// Tasks of a batch, at most. Also bounds the buffers of one `pwritev`, of which the system takes 1024.
const TASKS_MAX: usize = 64;

/// A batch takes no further task when it has this many bytes: a disk of the kind that we measure on writes them in a
/// millisecond.
const BYTES_MAX: u64 = 1024 * 1024;

/// A task of a worker.
pub(super) struct Task {
    /// The worker.
    pub thread: u16,
    /// When it was handed over, in nanoseconds of the clock.
    pub since: u64,
    pub request: FileRequest,
}

/// What one io thread does with one file before it looks for the next.
pub(super) struct Batch {
    pub file: FileName,
    /// Never empty. A rename is alone.
    pub tasks: Vec<Task>,
    /// The file, if it is open.
    pub open: Option<OpenFile>,
    /// Tasks of the node that wait behind these.
    pub waiting: usize,
    /// Whether the thread had to wait for it.
    pub was_awaited: bool,
}

/// A batch that is done.
pub(super) struct Done {
    pub file: FileName,
    /// The file, if it is open now.
    pub open: Option<OpenFile>,
    /// The other name of the file, if the task was a rename.
    pub replaced: Option<FileName>,
}

enum Entry {
    Task(Task),
    /// Its file is about to be replaced by this one.
    ReplacedBy(FileName),
}

#[derive(Default)]
struct FileQueue {
    entries: VecDeque<Entry>,
    /// An io thread is busy with it, or it is listed as ready.
    is_taken: bool,
    /// `None` while a thread is busy with it.
    open: Option<OpenFile>,
    /// The number of the batch that used it last.
    used: u64,
}

#[derive(Default)]
struct State {
    files: HashMap<FileName, FileQueue>,
    /// Files whose first task can be carried out.
    ready: VecDeque<FileName>,
    /// Tasks in all queues.
    waiting: usize,
    /// Open files that no thread is busy with.
    open: usize,
    /// Io threads that sleep.
    asleep: usize,
    /// Batches taken.
    batches: u64,
    is_ending: bool,
}

/// The queues of all files of a node.
pub(super) struct TaskQueue {
    state: Mutex<State>,
    /// A file is ready for a thread that sleeps, or the node stops.
    arrived: Condvar,
    /// Files that stay open while no thread is busy with them, at most.
    open_max: usize,
}

impl TaskQueue {
    pub fn new(open_max: usize) -> Self {
        TaskQueue { state: Mutex::default(), arrived: Condvar::new(), open_max }
    }

    /// Enters tasks of a worker, in order.
    pub fn submit(&self, thread: u16, requests: Vec<FileRequest>, now: u64) {
        let mut state = self.lock();
        let ready_before = state.ready.len();
        for request in requests {
            state.enter(Task { thread, since: now, request });
        }
        let wakes = (state.ready.len() - ready_before).min(state.asleep);
        drop(state);
        (0..wakes).for_each(|_| self.arrived.notify_one());
    }

    /// For an io thread: returns the batch that is done, and takes the next one. Waits until there is one; `None` when
    /// the node stops and nothing is left to do.
    pub fn next(&self, done: Option<Done>) -> Option<Batch> {
        let mut state = self.lock();
        let closed = done.map(|done| state.finish(done, self.open_max));
        if closed.as_ref().is_some_and(|files| !files.is_empty()) {
            // Closing may take the system a while.
            drop(state);
            drop(closed);
            state = self.lock();
        }
        // This thread takes one of the files that are ready, others the rest.
        let wakes = state.ready.len().saturating_sub(1).min(state.asleep);
        (0..wakes).for_each(|_| self.arrived.notify_one());
        let mut was_awaited = false;
        loop {
            if let Some(file) = state.ready.pop_front() {
                return Some(Batch { was_awaited, ..state.begin(file) });
            }
            if state.is_ending && state.waiting == 0 {
                self.arrived.notify_all();
                return None;
            }
            state.asleep += 1;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
            was_awaited = true;
        }
    }

    /// From now on [`TaskQueue::next`] returns `None` when nothing is left to do.
    pub fn end(&self) {
        self.lock().is_ending = true;
        self.arrived.notify_all();
    }

    /// A holder that panicked stops the node, so what it left behind is never used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, task: Task) {
        let file = task.request.file;
        self.waiting += 1;
        if let FileTask::Rename { to } = task.request.task
            && to != file
        {
            self.files.entry(to).or_default().entries.push_back(Entry::ReplacedBy(file));
        }
        self.files.entry(file).or_default().entries.push_back(Entry::Task(task));
        self.look_at(file);
    }

    /// Lists a file as ready if its first task can be carried out now. If it is about to be replaced, the file that
    /// replaces it may be the one that is ready.
    fn look_at(&mut self, file: FileName) {
        let Some(queue) = self.files.get(&file).filter(|queue| !queue.is_taken) else { return };
        match queue.entries.front() {
            None => {}
            Some(&Entry::ReplacedBy(other)) => {
                // Its own queue may begin with something else.
                let renames_to = self.files.get(&other).and_then(FileQueue::renames_to);
                if renames_to == Some(file) {
                    self.look_at(other);
                }
            }
            Some(Entry::Task(_)) => {
                let other = queue.renames_to().filter(|&other| other != file);
                let is_ready = other.is_none_or(|other| {
                    let replaced = self.files.get(&other).expect("a rename stands in both queues");
                    let is_next =
                        matches!(replaced.entries.front(), Some(&Entry::ReplacedBy(by)) if by == file);
                    is_next && !replaced.is_taken
                });
                if is_ready {
                    self.files.get_mut(&file).expect("it was found above").is_taken = true;
                    self.ready.push_back(file);
                }
            }
        }
    }

    /// Takes the next batch of a file that was ready.
    fn begin(&mut self, file: FileName) -> Batch {
        self.batches += 1;
        let queue = self.files.get_mut(&file).expect("it was listed");
        queue.used = self.batches;
        let tasks = queue.take_batch();
        self.waiting -= tasks.len();
        let open = queue.open.take();
        self.open -= usize::from(open.is_some());
        Batch { file, tasks, open, waiting: self.waiting, was_awaited: false }
    }

    /// A thread is done with a file; returns the files to be closed.
    fn finish(&mut self, done: Done, open_max: usize) -> Vec<OpenFile> {
        let mut closed = Vec::new();
        let queue = self.files.get_mut(&done.file).expect("a file with a busy thread is kept");
        queue.is_taken = false;
        self.open += usize::from(done.open.is_some());
        queue.open = done.open;
        if let Some(other) = done.replaced {
            let queue = self.files.get_mut(&other).expect("a rename stands in both queues");
            queue.entries.pop_front();
            self.open -= usize::from(queue.open.is_some());
            closed.extend(queue.open.take());
            self.look_at(other);
            self.forget_if_unused(other);
        }
        self.look_at(done.file);
        self.forget_if_unused(done.file);
        while self.open > open_max {
            // One that has failed is kept: by that it is known that nothing may be written to it any more.
            let may_close = |queue: &FileQueue| queue.open.as_ref().is_some_and(|open| !open.has_failed());
            let open = self.files.iter().filter(|(_, queue)| may_close(queue));
            let Some((&oldest, _)) = open.min_by_key(|(_, queue)| queue.used) else { break };
            closed.extend(self.files.get_mut(&oldest).and_then(|queue| queue.open.take()));
            self.open -= 1;
            self.forget_if_unused(oldest);
        }
        closed
    }

    fn forget_if_unused(&mut self, file: FileName) {
        let is_unused =
            |queue: &FileQueue| queue.entries.is_empty() && queue.open.is_none() && !queue.is_taken;
        if self.files.get(&file).is_some_and(is_unused) {
            self.files.remove(&file);
        }
    }
}

impl FileQueue {
    /// The new name of the file, if the first task is a rename.
    fn renames_to(&self) -> Option<FileName> {
        match self.entries.front() {
            Some(Entry::Task(Task {
                request: FileRequest { task: FileTask::Rename { to }, .. }, ..
            })) => Some(*to),
            _ => None,
        }
    }

    /// Takes tasks from the front, until they are many, or a flush is among them: then its answer is due.
    fn take_batch(&mut self) -> Vec<Task> {
        let (mut tasks, mut bytes, mut is_flushed): (Vec<Task>, u64, bool) = (Vec::new(), 0, false);
        while tasks.len() < TASKS_MAX && bytes < BYTES_MAX {
            let Some(Entry::Task(next)) = self.entries.front() else { break };
            let is_flush = matches!(next.request.task, FileTask::Flush);
            let is_rename = matches!(next.request.task, FileTask::Rename { .. });
            if is_flushed && !is_flush || is_rename && !tasks.is_empty() {
                break;
            }
            is_flushed |= is_flush;
            bytes += next.request.task.place().1;
            let Some(Entry::Task(task)) = self.entries.pop_front() else { unreachable!("it was looked at") };
            tasks.push(task);
            if is_rename {
                break;
            }
        }
        tasks
    }
}
