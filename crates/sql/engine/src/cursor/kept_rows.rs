//! Rows that are kept as long as a statement may ask for them by their positions.
//!
//! The server names a row by its *position*, here its primary key, and asks for it again later: for a sort that can't
//! carry the rows with it, updates and deletions in several tables, or an update of the key by which it reads. It must
//! then get the row that it has read, not a newer state from another transaction: otherwise it could get rows that do
//! not fulfil the statement's condition. This also saves a round trip for each row.
//!
//! Rows lie one after another in memory, and beyond [`MEMORY_MAX`] in a temporary file. A row that the statement itself
//! has changed since is not taken from here; [`crate::session::Session::has_changed`] reports these.
//!
//! For some positions the row is not at hand when the server names it (it comes from a join buffer): their keys are
//! stored, so that many rows can be read at a time when the first of them is requested. The server requests them in the
//! order in which it named them, or sorted; [`KeptRows::upcoming`] finds out which.

use crate::failure::{Failure, Result, TEMPORARY_FILE_FAILED};
use crate::plan::Projection;
use crate::row_name::{RowMap, RowName};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Maximum size in bytes of the rows that one use of a table keeps in memory.
const MEMORY_MAX: usize = 16 << 20;

/// The folder for temporary files.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder for temporary files; only the first call has an effect.
pub fn set_temporary_folder(folder: PathBuf) {
    let _ = FOLDER.set(folder);
}

/// Where a row lies: an offset from the beginning of the file, in which the bytes in memory follow those of the file.
#[derive(Clone, Copy)]
struct Place {
    begin: u64,
    length: u32,
    /// Index into the list of projections.
    projection: u32,
}

/// Result of looking up a position.
pub enum Kept {
    /// The row was appended to the given buffer, in this projection.
    Row(Arc<Projection>),
    /// There was no such row when it was read.
    Gone,
    /// The row is not kept.
    Unknown,
}

/// The kept rows of one use of a table.
#[derive(Default)]
pub struct KeptRows {
    places: RowMap<Option<Place>>,
    projections: Vec<Arc<Projection>>,
    memory: Vec<u8>,
    file: Option<File>,
    file_bytes: u64,
    /// The keys of positions without a row, and which of them is expected next; `is_sorted` tells whether they are
    /// sorted.
    keys: Vec<Box<[u8]>>,
    next_key: usize,
    is_sorted: bool,
    /// Why rows could not be kept: reported to the server when it asks for one.
    failure: Option<Failure>,
}

impl KeptRows {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            *self = KeptRows::default();
        }
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.keys.is_empty()
    }

    /// Keeps a row in this projection.
    pub fn keep(&mut self, name: RowName, projection: &Arc<Projection>, row: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let projection = self.number_of(projection);
        if let Some(Some(place)) = self.places.get(&name)
            && place.projection == projection
            && place.length as usize == row.len()
            && let Some(begin) = place.begin.checked_sub(self.file_bytes)
        {
            self.memory[begin as usize..][..row.len()].copy_from_slice(row);
            return;
        }
        if !self.memory.is_empty()
            && self.memory.len() + row.len() > MEMORY_MAX
            && let Err(failure) = self.write_out()
        {
            self.failure = Some(failure);
            return;
        }
        let begin = self.file_bytes + self.memory.len() as u64;
        self.memory.extend_from_slice(row);
        self.places.insert(name, Some(Place { begin, length: row.len() as u32, projection }));
    }

    /// Notes that there is no row with this name.
    pub fn keep_gone(&mut self, name: RowName) {
        self.places.insert(name, None);
    }

    /// Stores the key of a position whose row is not at hand.
    pub fn note_key(&mut self, key: &[u8]) {
        self.keys.push(key.into());
    }

    fn number_of(&mut self, projection: &Arc<Projection>) -> u32 {
        let same = |known: &Arc<Projection>| Arc::ptr_eq(known, projection);
        let at = self.projections.iter().rposition(same).unwrap_or_else(|| {
            self.projections.push(Arc::clone(projection));
            self.projections.len() - 1
        });
        at as u32
    }

    /// Moves the rows in memory to the file.
    fn write_out(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| {
            Failure::new(TEMPORARY_FILE_FAILED, format!("rows can't be kept in a temporary file: {error}"))
        };
        if self.file.is_none() {
            let folder = FOLDER.get().cloned().unwrap_or_else(std::env::temp_dir);
            self.file = Some(tempfile::tempfile_in(folder).map_err(failed)?);
        }
        let file = self.file.as_ref().expect("made just before");
        file.write_all_at(&self.memory, self.file_bytes).map_err(failed)?;
        self.file_bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Appends a kept row to `out`.
    ///
    /// # Errors
    /// `TEMPORARY_FILE_FAILED`.
    pub fn get(&self, name: RowName, out: &mut Vec<u8>) -> Result<Kept> {
        let place = match self.places.get(&name) {
            Some(Some(place)) => place,
            Some(None) => return Ok(Kept::Gone),
            None => return self.failure.clone().map_or(Ok(Kept::Unknown), Err),
        };
        let length = place.length as usize;
        match place.begin.checked_sub(self.file_bytes) {
            Some(begin) => out.extend_from_slice(&self.memory[begin as usize..][..length]),
            None => {
                let file = self.file.as_ref().expect("it has the bytes that are not in memory");
                let start = out.len();
                out.resize(start + length, 0);
                file.read_exact_at(&mut out[start..], place.begin).map_err(|error| {
                    let text = format!("a row can't be read from a temporary file: {error}");
                    Failure::new(TEMPORARY_FILE_FAILED, text)
                })?;
            }
        }
        Ok(Kept::Row(Arc::clone(&self.projections[place.projection as usize])))
    }

    /// The keys of positions without rows that will be requested next, this one first: at most `count`.
    pub fn upcoming(&mut self, key: &[u8], count: usize) -> &[Box<[u8]>] {
        let is_at = |keys: &[Box<[u8]>], at: usize| keys.get(at).is_some_and(|known| **known == *key);
        if !is_at(&self.keys, self.next_key) {
            if !self.is_sorted {
                self.keys.sort_unstable();
                self.keys.dedup();
                self.is_sorted = true;
            }
            match self.keys.binary_search_by(|known| (**known).cmp(key)) {
                Ok(at) => self.next_key = at,
                Err(_) => return &[],
            }
        }
        let begin = self.next_key;
        self.next_key = (begin + count).min(self.keys.len());
        &self.keys[begin..self.next_key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PrimaryKey;
    use crate::plan::tests::two_columns;

    fn name(n: u32) -> RowName {
        RowName::new(1, &n.to_le_bytes())
    }

    fn row(n: u32) -> Vec<u8> {
        n.to_le_bytes().repeat(64 * 1024)
    }

    #[test]
    fn rows_come_back_from_memory_and_from_the_file() {
        let plan = two_columns();
        let (all, one) = (
            Arc::new(Projection::new(&plan, &[0, 1], None, PrimaryKey::Included, 1)),
            Arc::new(Projection::new(&plan, &[1], None, PrimaryKey::Included, 1)),
        );
        let mut kept = KeptRows::default();
        // Four times as many as fit in memory.
        let rows = (4 * MEMORY_MAX / row(0).len()) as u32;
        for n in 0..rows {
            kept.keep(name(n), if n % 2 == 0 { &all } else { &one }, &row(n));
        }
        kept.keep_gone(name(rows));
        assert!(kept.memory.len() <= MEMORY_MAX && kept.file_bytes > 0);
        // The last row lies in memory, the first one in the file: both may be kept again.
        kept.keep(name(rows - 1), &one, &row(7));
        kept.keep(name(0), &all, &row(8));
        let mut out = Vec::new();
        for n in (0..rows).rev() {
            out.clear();
            let Kept::Row(projection) = kept.get(name(n), &mut out).unwrap() else {
                panic!("row {n} is lost")
            };
            assert!(Arc::ptr_eq(&projection, if n % 2 == 0 { &all } else { &one }));
            let expected = if n == 0 {
                8
            } else if n == rows - 1 {
                7
            } else {
                n
            };
            assert!(out == row(expected), "row {n}");
        }
        assert!(matches!(kept.get(name(rows), &mut out), Ok(Kept::Gone)));
        assert!(matches!(kept.get(name(rows + 1), &mut out), Ok(Kept::Unknown)));
    }

    #[test]
    fn keys_are_foreseen_in_the_order_of_naming_or_sorted() {
        let named: Vec<&[u8]> = vec![b"c", b"a", b"d", b"a", b"b"];
        let noted = || {
            let mut kept = KeptRows::default();
            named.iter().for_each(|key| kept.note_key(key));
            kept
        };
        let texts = |keys: &[Box<[u8]>]| keys.iter().map(|key| key[0] as char).collect::<String>();
        let mut kept = noted();
        assert_eq!(texts(kept.upcoming(b"c", 3)), "cad");
        assert_eq!(texts(kept.upcoming(b"a", 3)), "ab");
        let mut kept = noted();
        assert_eq!(texts(kept.upcoming(b"a", 3)), "abc");
        assert_eq!(texts(kept.upcoming(b"d", 3)), "d");
        assert_eq!(texts(kept.upcoming(b"b", 2)), "bc");
        assert_eq!(texts(kept.upcoming(b"x", 2)), "");
    }
}
