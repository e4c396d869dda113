//! The contents of a file on a disk: what is durable, and what was written and may be lost.
//!
//! The disk writes *atoms* of 512 bytes, each as a whole and in any order. A crash leaves of each atom the durable
//! content or one of those that were written since; so a sector of 4096 bytes may be torn.

use fastrand::Rng;
use std::collections::BTreeMap;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};

/// Bytes that a disk writes as a whole.
pub const ATOM_BYTES: usize = 512;

const SECTOR: u64 = SECTOR_BYTES as u64;
const ATOM: u64 = ATOM_BYTES as u64;

/// What was written at once.
#[derive(Clone)]
struct Write {
    offset: u64,
    bytes: u64,
    /// `None`: zeros.
    data: Option<AlignedBuffer>,
    fate: Fate,
}

/// What is to become of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The next flush brings it to the disk.
    Unflushed,
    /// A flush of it has failed, and no other one will be tried.
    Forgotten,
    /// It is durable. It is kept because reads see it in front of an earlier one that is not.
    Durable,
}

/// What a crash keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    All,
    Nothing,
    /// Some writes, in any order, some of them in part.
    SomeWrites,
    /// Of each atom any content.
    AnyAtoms,
}

/// The contents of a file.
#[derive(Clone, Default)]
pub struct Contents {
    /// The file's size after a crash, if that keeps nothing.
    durable_size: u64,
    /// Sectors by number; those that are missing are zeros.
    durable: BTreeMap<u64, Box<[u8; SECTOR_BYTES]>>,
    /// What reads see in front of that, oldest first.
    writes: Vec<Write>,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The part of it that begins at this offset of the file, with so many bytes.
    fn copy_to(&self, offset: u64, to: &mut [u8]) {
        let begin = (offset - self.offset) as usize;
        match &self.data {
            Some(data) => to.copy_from_slice(&data[begin..begin + to.len()]),
            None => to.fill(0),
        }
    }
}

impl Contents {
    /// Its size, as reads see it.
    pub fn size(&self) -> u64 {
        self.writes.iter().map(Write::end).fold(self.durable_size, u64::max)
    }

    /// The file has this size at least, on the disk too.
    pub fn allocate(&mut self, bytes: u64) {
        self.durable_size = self.durable_size.max(bytes);
    }

    /// Writes whole sectors.
    pub fn write(&mut self, offset: u64, data: AlignedBuffer) {
        let bytes = data.len() as u64;
        self.writes.push(Write { offset, bytes, data: Some(data), fate: Fate::Unflushed });
    }

    /// Writes zeros.
    pub fn fill(&mut self, offset: u64, bytes: u64) {
        self.writes.push(Write { offset, bytes, data: None, fate: Fate::Unflushed });
    }

    /// Reads bytes; returns how many of them the file has.
    pub fn read(&self, offset: u64, bytes: usize) -> (AlignedBuffer, usize) {
        let filled = self.size().saturating_sub(offset).min(bytes as u64) as usize;
        let mut buffer = AlignedBuffer::zeroed(bytes);
        let end = offset + filled as u64;
        for (&number, sector) in self.durable.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            let at = (number * SECTOR - offset) as usize;
            buffer[at..at + SECTOR_BYTES].copy_from_slice(&sector[..]);
        }
        for write in &self.writes {
            let (from, to) = (write.offset.max(offset), write.end().min(end));
            if from < to {
                write.copy_to(from, &mut buffer[(from - offset) as usize..(to - offset) as usize]);
            }
        }
        // A crash may have left an end within a sector.
        buffer[filled..].fill(0);
        (buffer, filled)
    }

    /// All that was written before becomes durable, but for what a failed flush has forgotten.
    pub fn flush(&mut self) {
        let mut writes = std::mem::take(&mut self.writes);
        for write in writes.iter_mut().filter(|write| write.fate == Fate::Unflushed) {
            for at in (write.offset..write.end()).step_by(ATOM_BYTES) {
                self.set_atom(at / ATOM, write);
            }
            self.durable_size = self.durable_size.max(write.end());
            write.fate = Fate::Durable;
        }
        let first = writes.iter().position(|write| write.fate != Fate::Durable).unwrap_or(writes.len());
        self.writes = writes.split_off(first);
    }

    /// A flush has failed: what was to become durable never will, though reads see it.
    pub fn forget_unflushed(&mut self) {
        for write in self.writes.iter_mut().filter(|write| write.fate == Fate::Unflushed) {
            write.fate = Fate::Forgotten;
        }
    }

    /// A write has failed.
    pub fn forget_last(&mut self) {
        self.writes.last_mut().expect("it has just been written").fate = Fate::Forgotten;
    }

    /// What was not flushed is kept or lost, atom by atom.
    pub fn crash(&mut self, random: &mut Rng) {
        let writes = std::mem::take(&mut self.writes);
        let kept = [Kept::All, Kept::Nothing, Kept::SomeWrites, Kept::AnyAtoms][random.usize(..4)];
        // In which order the writes come to the disk, by number, and which of them in part.
        let mut order: Vec<usize> = (0..writes.len()).collect();
        random.shuffle(&mut order);
        let fates: Vec<(bool, bool)> = writes.iter().map(|_| (random.bool(), random.u8(..4) == 0)).collect();
        for (atom, candidates) in candidates(&writes) {
            let chosen = match kept {
                Kept::All => candidates.last().copied(),
                Kept::Nothing => None,
                Kept::SomeWrites => {
                    let mut is_kept = |write: &usize| {
                        let (is_kept, is_torn) = fates[*write];
                        is_kept && (!is_torn || random.bool())
                    };
                    candidates.into_iter().filter(&mut is_kept).max_by_key(|&write| order[write])
                }
                Kept::AnyAtoms => candidates.get(random.usize(..=candidates.len())).copied(),
            };
            if let Some(write) = chosen {
                self.set_atom(atom, &writes[write]);
                self.durable_size = self.durable_size.max((atom + 1) * ATOM);
            }
        }
    }

    /// Turns a bit that is durable; returns its place, or `None` if nothing is.
    pub fn corrupt(&mut self, random: &mut Rng) -> Option<u64> {
        let sector = random.usize(..self.durable.len().max(1));
        let (number, bytes) = self.durable.iter_mut().nth(sector)?;
        let at = random.usize(..SECTOR_BYTES);
        bytes[at] ^= 1 << random.u32(..8);
        Some(number * SECTOR + at as u64)
    }

    /// An atom becomes durable as a write has it.
    fn set_atom(&mut self, atom: u64, write: &Write) {
        let (number, at) = (atom * ATOM / SECTOR, (atom * ATOM % SECTOR) as usize);
        if write.data.is_none() && !self.durable.contains_key(&number) {
            return;
        }
        let sector = self.durable.entry(number).or_insert_with(|| Box::new([0; SECTOR_BYTES]));
        write.copy_to(atom * ATOM, &mut sector[at..at + ATOM_BYTES]);
    }
}

/// For each atom the writes that are not durable and behind which it was not written by one that is, oldest first.
fn candidates(writes: &[Write]) -> BTreeMap<u64, Vec<usize>> {
    let mut atoms: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, write) in writes.iter().enumerate() {
        for at in (write.offset..write.end()).step_by(ATOM_BYTES) {
            match write.fate {
                Fate::Durable => drop(atoms.remove(&(at / ATOM))),
                Fate::Unflushed | Fate::Forgotten => atoms.entry(at / ATOM).or_default().push(number),
            }
        }
    }
    atoms
}
