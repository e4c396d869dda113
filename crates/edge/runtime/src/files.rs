//! Files of a node: *io threads* carry out what blocks ask of files ([`vinga_kernel::files`]).
//!
//! ```text
//!   worker --tasks, once a turn--> queues, one a file --batches--> io threads --system calls--> the node's folder
//!      ^------------- answers, as a message in the worker's inbox -----------------'
//! ```
//! Io threads run no turns and do nothing but system calls that may take long. Each file has a queue; any io thread may
//! serve it, but only one at a time, so that tasks on one file are done in their order while those on different files
//! do not wait for each other (`queue`). An io thread takes a *batch* of a file's tasks at once: writes that adjoin are
//! one system call, flushes in a row are one flush, and all answers of a batch to a worker are one message
//! (`io_thread`).
//!
//! Files are opened when they are first used, past the system's cache (`O_DIRECT`) if the file system can do that, and
//! stay open, up to a number at which the least recently used one is closed (`file_system`).
//!
//! When the node stops, workers wait for their answers as long as they wait for other threads; then the io threads
//! finish all tasks and end. If the disk does not answer, they are left behind in their calls: the process ends without
//! them.

mod file_system;
mod io_thread;
mod observer;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use observer::observed;
pub use observer::{FileCall, FileObserver, Observer};

use crate::clock::Clock;
use crate::settings::ThreadSettings;
use crate::statistics::{Counter, ThreadStatistics};
use file_system::FileSystem;
use queue::TaskQueue;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga_kernel::files::{FileAnswer, FileError, FileRequest};
use vinga_wire::file::FileErrorKind;

/// Forces the names in a folder to the disk: what was made or removed there stays so.
///
/// # Errors
/// The file system's.
pub fn flush_folder(folder: &Path) -> io::Result<()> {
    flush_folder_observed(folder, &None)
}

/// The same, while somebody watches.
pub(crate) fn flush_folder_observed(folder: &Path, observer: &Observer) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    Ok(file_system::flush_folder(folder, observer)?)
}

/// Where a node's files are, and who serves them.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The folder that they are in; without one each task is refused, and there are no io threads.
    pub folder: Option<PathBuf>,
    /// The plan of the io threads. Only CPUs, priority and real-time priority matter to them.
    pub plan: ThreadSettings,
    /// Files that stay open while nothing is done with them, at most (`MaxNoOfOpenFiles`).
    pub open_max: usize,
    /// Whoever watches what is done to files; nobody, but in tests.
    pub observer: Observer,
    /// Tasks that would change something are refused: for a node whose start is only tried.
    pub is_read_only: bool,
    /// The figures of the io threads: one for each that there is to be.
    statistics: IoStatistics,
}

/// The figures of all io threads.
pub type IoStatistics = Arc<[Arc<IoThreadStatistics>]>;

/// The figures of one io thread.
#[derive(Default, Debug)]
pub struct IoThreadStatistics {
    /// Those that it has as other threads have them. Its turns are batches of tasks; bytes are those of files.
    pub thread: Arc<ThreadStatistics>,
    /// Tasks that it has carried out.
    pub tasks: Counter,
    /// Flushes of files; several tasks may share one.
    pub flushes: Counter,
    /// Nanoseconds that they took.
    pub flush_nanos: Counter,
    /// Tasks of the node that waited for an io thread when this one last took some.
    pub tasks_waiting: Counter,
    /// The longest time that a task waited until this thread took it, in nanoseconds.
    pub longest_wait_nanos: Counter,
}

impl FileSettings {
    /// Settings with so many io threads.
    pub fn new(folder: Option<PathBuf>, threads: usize, open_max: usize, plan: ThreadSettings) -> Self {
        let figures = |index: usize| {
            let thread = ThreadStatistics::new(&format!("io{index}"));
            Arc::new(IoThreadStatistics { thread, ..IoThreadStatistics::default() })
        };
        FileSettings {
            folder,
            plan,
            open_max,
            observer: None,
            is_read_only: false,
            statistics: (0..threads).map(figures).collect(),
        }
    }

    /// The figures of the io threads that there are.
    pub fn io_threads(&self) -> IoStatistics {
        if self.folder.is_some() { self.statistics.clone() } else { IoStatistics::default() }
    }
}

impl Default for FileSettings {
    /// Those of a node that has no folder.
    fn default() -> Self {
        Self::new(None, 0, 0, ThreadSettings::default())
    }
}

/// What a task becomes in the end: an answer for the worker with this index.
type Deliver = Box<dyn Fn(u16, Vec<FileAnswer>) + Send + Sync>;

/// Pause between two looks whether the io threads of a node that stops have ended.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// State that workers and io threads share.
struct Shared {
    /// `None` for a node that has no folder.
    file_system: Option<FileSystem>,
    is_read_only: bool,
    queue: TaskQueue,
    clock: Clock,
    deliver: Deliver,
}

/// The way for workers to hand tasks over.
#[derive(Clone)]
pub(crate) struct Files(Arc<Shared>);

/// The io threads of a node.
pub(crate) struct IoPool {
    files: Files,
    threads: Vec<JoinHandle<()>>,
}

impl IoPool {
    /// Starts the io threads. `spawn` starts a thread of that name; `deliver` hands answers to the worker with an
    /// index, in their order, and never waits.
    ///
    /// # Errors
    /// Those of `spawn`.
    pub fn start<E>(
        settings: &FileSettings,
        spawn: impl Fn(&str, Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, E>,
        deliver: impl Fn(u16, Vec<FileAnswer>) + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let shared = Arc::new(Shared {
            file_system: settings
                .folder
                .clone()
                .map(|folder| FileSystem::new(folder, settings.observer.clone())),
            is_read_only: settings.is_read_only,
            queue: TaskQueue::new(settings.open_max),
            clock: Clock::new(),
            deliver: Box::new(deliver),
        });
        let statistics = settings.io_threads();
        assert!(!statistics.is_empty() || settings.folder.is_none(), "a node with a folder has io threads");
        let start = |statistics: &Arc<IoThreadStatistics>| {
            let (shared, own) = (shared.clone(), statistics.clone());
            spawn(&statistics.thread.name, Box::new(move || io_thread::run(&shared, &own)))
        };
        let threads = statistics.iter().map(start).collect::<Result<_, E>>()?;
        Ok(IoPool { files: Files(shared), threads })
    }

    /// For workers.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Finishes all tasks and waits until the threads have ended, at most this long. Nobody may hand over any more
    /// then.
    ///
    /// # Errors
    /// How many threads are left, which wait for the disk.
    pub fn stop(self, longest: Duration) -> Result<(), usize> {
        self.files.0.queue.end();
        let begun = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if begun.elapsed() >= longest {
                return Err(self.threads.iter().filter(|thread| !thread.is_finished()).count());
            }
            thread::sleep(LOOK_PAUSE);
        }
        for thread in self.threads {
            if let Err(why) = thread.join() {
                std::panic::resume_unwind(why);
            }
        }
        Ok(())
    }
}

impl Files {
    /// Hands over what the blocks of the worker with this index ask for, in order. Does not wait.
    pub fn submit(&self, thread: u16, requests: Vec<FileRequest>) {
        let shared = &*self.0;
        if shared.file_system.is_none() {
            (shared.deliver)(thread, requests.into_iter().map(refuse_without_folder).collect());
            return;
        }
        let (allowed, others): (Vec<_>, Vec<_>) = match shared.is_read_only {
            false => (requests, Vec::new()),
            true => requests.into_iter().partition(|request| request.task.only_reads()),
        };
        if !others.is_empty() {
            (shared.deliver)(thread, others.into_iter().map(refuse_change).collect());
        }
        shared.queue.submit(thread, allowed, shared.clock.nanos());
    }
}

fn refuse_without_folder(request: FileRequest) -> FileAnswer {
    refuse(request, "the node has no folder for files; DataDir or --folder gives it one")
}

fn refuse_change(request: FileRequest) -> FileAnswer {
    refuse(request, "nothing is changed, as the start of the node is only tried")
}

fn refuse(request: FileRequest, why: &str) -> FileAnswer {
    let FileRequest { requester, token, file, task } = request;
    let text = format!("{} {}: {why}", task.name(), file.path());
    FileAnswer { requester, token, result: Err(FileError { kind: FileErrorKind::NotPermitted, text }) }
}
