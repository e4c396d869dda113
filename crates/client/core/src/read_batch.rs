//! Keys to be read and the rows that were found: memory that its owner uses again and again.
//!
//! Keys lie one behind the other, each with its hash; rows are appended as they arrive, and for each key stands where
//! its row lies.

use crate::error::{Detailed, Error, Result};
use alloc::vec::Vec;
use core::ops::Range;
use vinga_base::NodeId;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::time::Tick;
use vinga_wire::ErrorCode;

/// What is read of a row: a table's rows with a selection of columns and a filter. Made by
/// [`crate::Client::add_shape`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShapeId {
    pub(crate) handle: Handle,
    /// Bytes of every key, if all are of one size.
    pub(crate) key_bytes: Option<u16>,
}

/// What has become of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Waiting,
    /// `backup` is 0 if the owner of the row has answered.
    Row {
        offset: u32,
        length: u16,
        backup: u8,
    },
    NoRow {
        backup: u8,
    },
    Failed(ErrorCode),
}

/// Keys to be read together, and the rows that were found.
#[derive(Debug)]
pub struct ReadBatch {
    shape: ShapeId,
    keys: Vec<u8>,
    hashes: Vec<KeyHash>,
    answers: Vec<Answer>,
    rows: Vec<u8>,
    waiting: u32,
    detailed: Detailed,
    /// When one of its keys was refused for want of room for the first time.
    refused_since: Option<Tick>,
    /// When there was no way to the row of one of its keys for the first time.
    parked_since: Option<Tick>,
}

impl ReadBatch {
    /// An empty batch.
    pub fn new(shape: ShapeId) -> Self {
        ReadBatch {
            shape,
            keys: Vec::new(),
            hashes: Vec::new(),
            answers: Vec::new(),
            rows: Vec::new(),
            waiting: 0,
            detailed: Detailed::default(),
            refused_since: None,
            parked_since: None,
        }
    }

    /// Empties it for other keys; its memory stays.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.hashes.clear();
        self.answers.clear();
        self.rows.clear();
        self.waiting = 0;
    }

    /// Empties it for keys of another shape.
    pub fn begin(&mut self, shape: ShapeId) {
        self.clear();
        self.shape = shape;
    }

    /// What is read.
    pub fn shape(&self) -> ShapeId {
        self.shape
    }

    /// Appends a key that `write` appends to the buffer it is given, encoded as the table's layout says.
    ///
    /// # Errors
    /// That of `write`; `BadKey` if what was written has not the size of the table's keys, or no key's size at all.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let start = self.keys.len();
        if self.shape.key_bytes.is_none() {
            self.keys.extend_from_slice(&[0, 0]);
        }
        let begin = self.keys.len();
        let written = write(&mut self.keys);
        let length = self.keys.len() - begin;
        let fits = match self.shape.key_bytes {
            Some(bytes) => length == usize::from(bytes),
            None => (1..=vinga_base::schema::KEY_BYTES_MAX).contains(&length),
        };
        if written.is_err() || !fits {
            self.keys.truncate(start);
            return written.and(Err(Error::new(ErrorCode::BadKey)));
        }
        if self.shape.key_bytes.is_none() {
            self.keys[start..begin].copy_from_slice(&(length as u16).to_le_bytes());
        }
        self.hashes.push(KeyHash::of(&self.keys[begin..]));
        Ok(())
    }

    /// Appends an encoded key.
    ///
    /// # Errors
    /// `BadKey` if it has not the size of the table's keys.
    #[inline]
    pub fn push(&mut self, key: &[u8]) -> Result<()> {
        self.push_with(|keys| {
            keys.extend_from_slice(key);
            Ok(())
        })
    }

    /// Number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The row of a key, by the order in which the keys were appended; `None` if there is none, or the filter rejects
    /// it. Rows stay until the batch is cleared.
    ///
    /// # Errors
    /// Why that key was not read.
    #[inline]
    pub fn row(&self, index: usize) -> Result<Option<&[u8]>> {
        match self.answers.get(index).copied().unwrap_or(Answer::Waiting) {
            Answer::Row { offset, length, .. } => {
                Ok(Some(&self.rows[offset as usize..offset as usize + usize::from(length)]))
            }
            Answer::NoRow { .. } => Ok(None),
            Answer::Failed(code) => Err(self.detailed.error(index, code)),
            // It was never sent.
            Answer::Waiting => Err(ErrorCode::InternalError.into()),
        }
    }

    /// The data node that has answered for a key, if it was a backup when it was asked: reads at different replicas may
    /// see a commit one after the other until it is answered.
    pub fn backup(&self, index: usize) -> Option<NodeId> {
        match self.answers.get(index)? {
            Answer::Row { backup, .. } | Answer::NoRow { backup } => {
                (*backup != 0).then_some(NodeId(*backup))
            }
            Answer::Waiting | Answer::Failed(_) => None,
        }
    }

    /// The rows of all keys in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Result<Option<&[u8]>>> {
        (0..self.len()).map(|index| self.row(index))
    }

    /// Makes ready for answers.
    pub(crate) fn become_waiting(&mut self) {
        self.answers.clear();
        self.answers.resize(self.hashes.len(), Answer::Waiting);
        self.rows.clear();
        self.detailed.clear();
        self.waiting = self.hashes.len() as u32;
        self.refused_since = None;
        self.parked_since = None;
    }

    /// One of its keys is refused now for want of room. Since when that has been so.
    pub(crate) fn refused_since(&mut self, now: Tick) -> Tick {
        *self.refused_since.get_or_insert(now)
    }

    /// There is no way to the row of one of its keys now. Since when that has been so for the first time.
    pub(crate) fn parked_since(&mut self, now: Tick) -> Tick {
        *self.parked_since.get_or_insert(now)
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.waiting == 0
    }

    #[inline]
    pub(crate) fn hash(&self, index: usize) -> KeyHash {
        self.hashes[index]
    }

    /// The keys as they stand in a request, in order: those of varying size behind their length.
    #[inline]
    pub(crate) fn wire_keys(&self) -> WireKeys<'_> {
        WireKeys { size: self.shape.key_bytes.map(usize::from), rest: &self.keys }
    }

    #[inline]
    fn answer(&mut self, index: u32, answer: Answer) {
        let place = &mut self.answers[index as usize];
        debug_assert_eq!(*place, Answer::Waiting, "each key is answered once");
        *place = answer;
        self.waiting -= 1;
    }

    /// One key has no row, or could not be read.
    #[inline]
    pub(crate) fn fail(&mut self, index: u32, error: &Error) {
        let code = self.detailed.keep(index, error);
        self.answer(index, Answer::Failed(code));
    }

    /// Takes the bytes of a frame over, rows and what stands between them; returns where they lie.
    #[inline]
    pub(crate) fn take_bytes(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.rows.len();
        self.rows.extend_from_slice(bytes);
        start..self.rows.len()
    }

    /// One key's row lies there in what was taken over; or there is none. So says this backup, or the owner.
    #[inline]
    pub(crate) fn found(&mut self, index: u32, row: Option<(usize, usize)>, backup: Option<NodeId>) {
        let backup = backup.map_or(0, |node| node.0);
        let answer = match row {
            None => Answer::NoRow { backup },
            Some((offset, length)) => match (u32::try_from(offset), u16::try_from(length)) {
                (Ok(offset), Ok(length)) => Answer::Row { offset, length, backup },
                // More than 4 GiB of rows in one batch.
                _ => Answer::Failed(ErrorCode::Overloaded),
            },
        };
        self.answer(index, answer);
    }
}

/// See [`ReadBatch::wire_keys`].
pub(crate) struct WireKeys<'a> {
    size: Option<usize>,
    rest: &'a [u8],
}

impl<'a> Iterator for WireKeys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let size = match self.size {
            Some(size) => size,
            None => 2 + usize::from(u16::from_le_bytes([self.rest[0], self.rest[1]])),
        };
        let (key, rest) = self.rest.split_at(size);
        self.rest = rest;
        Some(key)
    }
}
