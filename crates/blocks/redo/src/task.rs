//! What the answers of files are about.

/// A task on a file of the stream that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// A block of this many bytes is written.
    Block(u32),
    /// So is the head of a segment.
    SegmentHead(u32),
    /// This file is flushed.
    Flush(u32),
    /// The head of the segment in this file is flushed, before anything is written behind it.
    FlushHead(u32),
    /// The files of the stream are listed.
    List,
    /// This file is made.
    Allocate(u32),
    /// This file is filled with zeros.
    Fill(u32),
    /// The head of the segment in this file is read.
    ReadHead(u32),
    /// A piece of a file is read; counted over the scan or replay.
    Read(u32),
    /// This file is removed.
    Remove(u32),
}

impl Task {
    /// As a token of a file task.
    pub fn token(self) -> u64 {
        let (kind, number) = match self {
            Task::Block(bytes) => (0u64, bytes),
            Task::SegmentHead(bytes) => (1, bytes),
            Task::Flush(file) => (2, file),
            Task::List => (3, 0),
            Task::Allocate(file) => (4, file),
            Task::Fill(file) => (5, file),
            Task::ReadHead(file) => (6, file),
            Task::Read(count) => (7, count),
            Task::Remove(file) => (8, file),
            Task::FlushHead(file) => (9, file),
        };
        kind << 32 | u64::from(number)
    }

    /// The inverse of [`Task::token`].
    pub fn from_token(token: u64) -> Self {
        let number = token as u32;
        match token >> 32 {
            0 => Task::Block(number),
            1 => Task::SegmentHead(number),
            2 => Task::Flush(number),
            3 => Task::List,
            4 => Task::Allocate(number),
            5 => Task::Fill(number),
            6 => Task::ReadHead(number),
            7 => Task::Read(number),
            8 => Task::Remove(number),
            9 => Task::FlushHead(number),
            kind => unreachable!("no file task has kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_tasks() {
        for task in [
            Task::Block(4096),
            Task::SegmentHead(4096),
            Task::Flush(3),
            Task::FlushHead(4),
            Task::List,
            Task::Allocate(u32::MAX),
            Task::Fill(0),
            Task::ReadHead(15),
            Task::Read(77),
            Task::Remove(1),
        ] {
            assert_eq!(Task::from_token(task.token()), task);
        }
    }
}
