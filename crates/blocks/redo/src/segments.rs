//! Which file of the stream holds which segment, and which segments are still needed.
//!
//! A segment is needed as long as a data manager has a batch in it that is in no usable checkpoint. The segment with
//! the end record of the restore point, and all behind it, are needed in any case: replay has to meet that record.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use vinga_format::redo::SEGMENT_HEAD_BYTES;

/// A segment that is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveSegment {
    /// Its number.
    pub number: u64,
    /// The file that it is in.
    pub file: u32,
    /// The number of its first block.
    pub first_block: u64,
    /// By data manager of the stream: the greatest batch in it; 0 for none.
    pub batches: Vec<u64>,
}

/// The files of a stream and what is in them.
pub struct Segments {
    /// Bytes of each file; 0 while there is no such file.
    files: Vec<u64>,
    /// The segments that are needed, oldest first. Invariant: their numbers are consecutive.
    live: VecDeque<LiveSegment>,
    /// By data manager of the stream: the first batch that is needed.
    needed_from: Vec<u64>,
    /// The segment with the end record of the restore point.
    end_segment: u64,
}

impl Segments {
    /// Of a stream without files, that this many data managers share.
    pub fn new(participants: usize) -> Self {
        Segments {
            files: Vec::new(),
            live: VecDeque::new(),
            needed_from: vec![0; participants],
            end_segment: 0,
        }
    }

    /// There is a file of this size.
    pub fn note_file(&mut self, file: u32, bytes: u64) {
        let at = file as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, 0);
        }
        self.files[at] = bytes;
    }

    /// The size of a file.
    pub fn file_bytes(&self, file: u32) -> u64 {
        self.files[file as usize]
    }

    /// The files that there are.
    pub fn files(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.files.iter().copied()).filter(|&(_, bytes)| bytes > 0)
    }

    /// The segments that are needed, oldest first.
    pub fn live(&self) -> impl Iterator<Item = &LiveSegment> {
        self.live.iter()
    }

    /// The oldest segment that is needed.
    pub fn tail(&self) -> u64 {
        self.live.front().map_or(1, |segment| segment.number)
    }

    /// The newest segment.
    pub fn newest(&self) -> Option<&LiveSegment> {
        self.live.back()
    }

    /// The newest segment, to be changed.
    pub fn newest_mut(&mut self) -> Option<&mut LiveSegment> {
        self.live.back_mut()
    }

    /// A file that no needed segment is in.
    pub fn free_file(&self) -> Option<u32> {
        self.files().map(|(file, _)| file).find(|&file| self.live.iter().all(|segment| segment.file != file))
    }

    /// Adds the next segment, in a file that was free.
    pub fn push(&mut self, number: u64, file: u32, first_block: u64) {
        assert!(self.live.back().is_none_or(|last| last.number + 1 == number), "segments are consecutive");
        assert!(self.live.iter().all(|segment| segment.file != file), "a file has one segment");
        let batches = vec![0; self.needed_from.len()];
        self.live.push_back(LiveSegment { number, file, first_block, batches });
    }

    /// The end record of the restore point is in this segment.
    pub fn note_end(&mut self, number: u64) {
        self.end_segment = number;
    }

    /// A data manager needs only batches from this one on.
    pub fn need_from(&mut self, participant: usize, batch: u64) {
        self.needed_from[participant] = self.needed_from[participant].max(batch);
    }

    /// By data manager of the stream: the first batch that is needed.
    pub fn needed_from(&self) -> &[u64] {
        &self.needed_from
    }

    /// Forgets segments that nobody needs any more; returns how many.
    pub fn trim(&mut self) -> usize {
        let before = self.live.len();
        while let Some(first) = self.live.front()
            && first.number < self.end_segment
            && first.batches.iter().zip(&self.needed_from).all(|(&last, &from)| last < from)
        {
            self.live.pop_front();
        }
        before - self.live.len()
    }

    /// Bytes that the stream has room for altogether.
    pub fn capacity(&self) -> u64 {
        self.files().map(|(_, bytes)| bytes - SEGMENT_HEAD_BYTES as u64).sum()
    }

    /// Bytes of the files of all needed segments but the newest.
    pub fn full_bytes(&self) -> u64 {
        let full = self.live.iter().take(self.live.len().saturating_sub(1));
        full.map(|segment| self.file_bytes(segment.file) - SEGMENT_HEAD_BYTES as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Segments {
        let mut segments = Segments::new(2);
        for file in 0..4 {
            segments.note_file(file, 1 << 20);
        }
        for (number, file) in [(7, 2), (8, 0), (9, 1)] {
            segments.push(number, file, number * 10);
        }
        segments.live[0].batches = vec![5, 0];
        segments.live[1].batches = vec![6, 3];
        segments
    }

    #[test]
    fn segments_go_when_nobody_needs_them() {
        let mut segments = three();
        segments.note_end(9);
        assert_eq!((segments.trim(), segments.tail(), segments.free_file()), (0, 7, Some(3)));
        segments.need_from(0, 6);
        assert_eq!(
            (segments.trim(), segments.tail()),
            (0, 7),
            "the other has batches from 0 on, as far as is known"
        );
        segments.need_from(1, 1);
        assert_eq!((segments.trim(), segments.tail(), segments.free_file()), (1, 8, Some(2)));
        segments.need_from(0, 7);
        segments.need_from(1, 4);
        assert_eq!((segments.trim(), segments.tail()), (1, 9));
        segments.need_from(0, 100);
        segments.need_from(1, 100);
        assert_eq!(segments.trim(), 0, "the end record stays");
    }

    #[test]
    fn the_end_record_of_the_restore_point_stays() {
        let mut segments = three();
        segments.note_end(8);
        segments.need_from(0, 100);
        segments.need_from(1, 100);
        assert_eq!((segments.trim(), segments.tail()), (1, 8));
        assert_eq!(segments.full_bytes(), (1 << 20) - 4096);
        assert_eq!(segments.newest().map(|s| s.number), Some(9));
    }
}
