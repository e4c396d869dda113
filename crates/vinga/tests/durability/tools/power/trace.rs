//! The calls by which a node changes its files, recorded in their order.
//!
//! Each call is recorded twice: when it is about to be made, and when it has returned. Whoever is answered by the
//! node takes the number of events so far as the moment of the answer: what the answer promises must be there after a
//! power cut at that moment, or any later one.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use vinga_runtime::files::{FileCall, FileObserver};

/// What was written. Zeros, of which the log's files are filled, are not stored.
#[derive(Clone, Debug)]
pub enum Bytes {
    Zeros(usize),
    These(Vec<u8>),
}

/// A call; paths are those below the node's folder, which itself is the empty path.
#[derive(Clone, Debug)]
pub enum Call {
    MakeFolder(String),
    Create(String),
    Write {
        file: String,
        offset: u64,
        bytes: Bytes,
    },
    Grow {
        file: String,
        bytes: u64,
    },
    Flush(String),
    FlushFolder(String),
    Rename {
        from: String,
        to: String,
    },
    Remove(String),
    /// About something outside of the node's folder.
    Elsewhere,
}

/// What was recorded at a moment.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call is about to be made.
    Begin(Call),
    /// The call that was recorded as the event with this number has returned.
    End { of: usize, is_done: bool },
}

/// Records what is done to the files in a folder.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    events: Mutex<Vec<Event>>,
}

impl Bytes {
    pub fn len(&self) -> usize {
        match self {
            Bytes::Zeros(count) => *count,
            Bytes::These(bytes) => bytes.len(),
        }
    }

    /// The bytes from `at` on, as many as `to` has.
    pub fn copy(&self, at: usize, to: &mut [u8]) {
        match self {
            Bytes::Zeros(_) => to.fill(0),
            Bytes::These(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
        }
    }
}

impl Recorder {
    pub fn new(folder: &Path) -> Self {
        Recorder { folder: folder.to_owned(), events: Mutex::default() }
    }

    /// How much was recorded so far: this moment.
    pub fn moment(&self) -> usize {
        self.locked().len()
    }

    /// Everything that was recorded.
    pub fn events(&self) -> Vec<Event> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().expect("nothing panics while it is held")
    }

    fn below(&self, path: &Path) -> Option<String> {
        Some(path.strip_prefix(&self.folder).ok()?.to_str()?.to_owned())
    }

    fn call(&self, call: FileCall<'_>) -> Option<Call> {
        Some(match call {
            FileCall::MakeFolder(folder) => Call::MakeFolder(self.below(folder)?),
            FileCall::Create(file) => Call::Create(self.below(file)?),
            FileCall::Write(file, offset, pieces) => {
                let is_empty = pieces.iter().all(|piece| piece.iter().all(|&byte| byte == 0));
                let bytes = match is_empty {
                    true => Bytes::Zeros(pieces.iter().map(|piece| piece.len()).sum()),
                    false => Bytes::These(pieces.concat()),
                };
                Call::Write { file: self.below(file)?, offset, bytes }
            }
            FileCall::Grow(file, bytes) => Call::Grow { file: self.below(file)?, bytes },
            FileCall::Flush(file) => Call::Flush(self.below(file)?),
            FileCall::FlushFolder(folder) => Call::FlushFolder(self.below(folder)?),
            FileCall::Rename(from, to) => Call::Rename { from: self.below(from)?, to: self.below(to)? },
            FileCall::Remove(file) => Call::Remove(self.below(file)?),
        })
    }
}

impl FileObserver for Recorder {
    fn begin(&self, call: FileCall<'_>) -> u64 {
        let call = self.call(call).unwrap_or(Call::Elsewhere);
        let mut events = self.locked();
        events.push(Event::Begin(call));
        events.len() as u64 - 1
    }

    fn end(&self, number: u64, is_done: bool) {
        self.locked().push(Event::End { of: number as usize, is_done });
    }
}
