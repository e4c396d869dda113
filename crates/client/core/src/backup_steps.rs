//! An on-line backup as a machine: what is to be asked of whom, and of which epoch the backup is.
//!
//! The protocol is that of `docs/protocols/backup.md`. This machine knows nothing of connections, files and threads:
//! its driver does what [`Backup::task`] says, has pieces of all partitions under way as [`Backup::next_piece`] allows,
//! keeps the rows and changes that come, and reports each of these as done. The first error ends a backup; then the
//! driver forgets the machine, and closes the backup at the data managers by [`crate::Client::close_backup`].

mod definitions;

pub use definitions::{Definitions, DefinitionsReader};

use crate::error::{Error, Result};
use crate::requests::BackupBatch;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::{Epoch, PartitionId};
use vinga_wire::ErrorCode;

/// Pieces of each partition that may be under way, so that its data manager need not wait for whoever writes them.
const WINDOW: u32 = 4;
/// How often the definitions may change while the last epoch is awaited.
const ATTEMPTS_MAX: u32 = 100;

/// What is to be done next, besides asking for pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Open the backup of this partition ([`crate::Request::BackupOpen`]); then [`Backup::on_opened`].
    Open(PartitionId),
    /// Nothing but to wait for pieces.
    Await,
    /// Take the schema lock, and keep it to the end; then [`Backup::on_locked`].
    Lock,
    /// Read all definitions ([`DefinitionsReader`]); then [`Backup::on_definitions`].
    ReadDefinitions,
    /// Nothing: it is complete, and is the state at the end of this epoch.
    Finish(Epoch),
}

/// How far a backup is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Data managers are asked, one after the other, to note changes.
    Opening,
    /// Rows are read.
    Scanning,
    /// The schema lock is awaited.
    Locking,
    /// The definitions are read.
    Defining,
    /// All data managers are to pass on what the president says of an epoch that is closed already: its current one.
    AskingEpoch,
    /// The end of the chosen epoch is awaited.
    Closing,
    /// The definitions are read again.
    Comparing,
    /// Everything is there.
    Finished,
}

/// How far a partition is.
#[derive(Clone, Copy, Default, Debug)]
struct Partition {
    under_way: u32,
    is_scanned: bool,
    /// The newest epoch that its data manager knows.
    epoch: Epoch,
    /// All changes up to this epoch have come.
    closed: Epoch,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Backup {
    partitions: Vec<Partition>,
    opened: u16,
    stage: Stage,
    /// The epoch whose end is wanted.
    until: Epoch,
    definitions: Option<Definitions>,
    attempts: u32,
    /// A rule that is broken on purpose: the epoch is chosen from what was known before rows were read.
    is_chosen_early: bool,
}

impl Backup {
    /// A backup of a cluster with so many partitions.
    pub fn new(partitions: u16) -> Self {
        Backup {
            partitions: vec![Partition::default(); usize::from(partitions)],
            opened: 0,
            stage: Stage::Opening,
            until: Epoch(0),
            definitions: None,
            attempts: 0,
            is_chosen_early: false,
        }
    }

    /// What is to be done now. The same as before until that is reported.
    pub fn task(&self) -> Task {
        match self.stage {
            Stage::Opening => Task::Open(PartitionId(self.opened)),
            Stage::Scanning | Stage::AskingEpoch | Stage::Closing => Task::Await,
            Stage::Locking => Task::Lock,
            Stage::Defining | Stage::Comparing => Task::ReadDefinitions,
            Stage::Finished => Task::Finish(self.until),
        }
    }

    /// Partitions of which a backup is opened: they are to be closed at the end, however it comes.
    pub fn opened(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.opened).map(PartitionId)
    }

    /// The data manager of the partition that was to be opened notes changes; `epoch` is the newest one that it knows.
    pub fn on_opened(&mut self, epoch: Epoch) {
        debug_assert_eq!(self.stage, Stage::Opening);
        self.partitions[usize::from(self.opened)].epoch = epoch;
        self.opened += 1;
        if usize::from(self.opened) == self.partitions.len() {
            self.stage = Stage::Scanning;
        }
    }

    /// If one more piece of a partition is to be requested now: the epoch of which the request is to ask. It counts as
    /// under way then.
    pub fn next_piece(&mut self, partition: PartitionId) -> Option<Epoch> {
        let of = self.partitions.get_mut(usize::from(partition.0))?;
        let is_wanted = !matches!(self.stage, Stage::Opening | Stage::Finished) && of.under_way < WINDOW;
        is_wanted.then(|| {
            of.under_way += 1;
            self.until
        })
    }

    /// A piece has come that was requested with an epoch. Its rows and changes are the driver's to keep.
    pub fn on_piece(&mut self, partition: PartitionId, until: Epoch, piece: &BackupBatch) {
        let of = &mut self.partitions[usize::from(partition.0)];
        of.under_way -= 1;
        of.is_scanned |= piece.is_scanned;
        if !self.is_chosen_early {
            of.epoch = of.epoch.max(piece.epoch);
        }
        if piece.is_closed {
            of.closed = of.closed.max(until);
        }
        self.advance();
    }

    fn advance(&mut self) {
        let is_closed = self.partitions.iter().all(|partition| partition.closed >= self.until);
        match self.stage {
            Stage::Scanning if self.partitions.iter().all(|partition| partition.is_scanned) => {
                self.stage = Stage::Locking;
            }
            Stage::AskingEpoch if is_closed => {
                // What any data manager knows: nothing that a scan has met is beyond that, and no change of definitions
                // so far.
                let newest =
                    self.partitions.iter().map(|partition| partition.epoch).max().unwrap_or_default();
                self.until = newest.max(self.until);
                self.stage = Stage::Closing;
                self.advance();
            }
            Stage::Closing if is_closed => self.stage = Stage::Comparing,
            _ => {}
        }
    }

    /// The schema lock is there: statements of SQL nodes that change definitions in several steps are over.
    pub fn on_locked(&mut self) {
        debug_assert_eq!(self.stage, Stage::Locking);
        self.stage = Stage::Defining;
    }

    /// The definitions were read.
    ///
    /// # Errors
    /// `SchemaBusy`: they change again and again.
    pub fn on_definitions(&mut self, definitions: Definitions) -> Result<()> {
        debug_assert!(matches!(self.stage, Stage::Defining | Stage::Comparing));
        if self.stage == Stage::Comparing {
            if self.definitions.as_ref() == Some(&definitions) {
                self.stage = Stage::Finished;
                return Ok(());
            }
            // A client without the schema lock has changed something: they are not those of the chosen epoch.
            self.attempts += 1;
            if self.attempts == ATTEMPTS_MAX {
                return Err(Error::with_detail(
                    ErrorCode::SchemaBusy,
                    "clients change definitions again and again, so no backup can be of one moment",
                ));
            }
        }
        self.definitions = Some(definitions);
        self.until = Epoch(self.until.0 + 1);
        self.stage = Stage::AskingEpoch;
        Ok(())
    }

    /// How often definitions were changed while the end of an epoch was awaited, so that another one was chosen.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The definitions of what the backup is of, once it is complete.
    pub fn into_definitions(self) -> Option<Definitions> {
        self.definitions.filter(|_| self.stage == Stage::Finished)
    }

    /// Breaks a rule: the epoch is chosen from what data managers knew before rows were read.
    #[cfg(feature = "injected-bugs")]
    pub fn choose_epoch_early(&mut self) {
        self.is_chosen_early = true;
    }
}

#[cfg(test)]
mod tests;
