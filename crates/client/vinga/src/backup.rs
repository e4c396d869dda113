//! Pieces of an on-line backup and the definitions of all tables, for the program that writes it (`vinga admin
//! backup`). Which of them are wanted when is said by [`crate::backup_steps`].

use crate::Cluster;
use crate::cluster::mixed_up;
use crate::engine::Handle;
use crate::pending::Pending;
use std::sync::Arc;
use vinga_base::{Epoch, PartitionId};
use vinga_client_core::backup_steps::{Definitions, DefinitionsReader};
use vinga_client_core::{Answer, BackupBatch, Client, Request, Result, Token};

/// A backup of one partition that is being made: its rows, and what is changed while they are read. Ends when it is
/// dropped.
pub struct PartitionBackup {
    handle: Arc<Handle>,
    partition: PartitionId,
    /// The newest epoch that its data manager knew when it began.
    epoch: Epoch,
}

/// A piece of it that is under way.
pub struct PieceTicket {
    pending: Pending<Result<Answer>>,
    until: Epoch,
}

impl Cluster {
    /// Number of the cluster's partitions.
    pub fn partitions(&self) -> u16 {
        self.handle.engine.look(|client| client.view().partitions().len()) as u16
    }

    /// Begins a backup of a partition: all changes that are committed from now on are noted there.
    ///
    /// # Errors
    /// `BackupRunning` if another is being made; if the partition's owner can't be reached.
    pub async fn back_up_partition(&self, partition: u16) -> Result<PartitionBackup> {
        let partition = PartitionId(partition);
        let request = Request::BackupOpen(partition);
        let token = self.handle.engine.submit(|client| client.request(&request))?;
        match Pending::new(&self.handle, token, take_answer).await? {
            Answer::BackupOpened(epoch) => {
                Ok(PartitionBackup { handle: Arc::clone(&self.handle), partition, epoch })
            }
            _ => Err(mixed_up()),
        }
    }

    /// All databases and tables. Those that are dropped meanwhile are left out.
    ///
    /// # Errors
    /// If the cluster can't be asked.
    pub async fn definitions(&self) -> Result<Definitions> {
        let mut reader = DefinitionsReader::default();
        while let Some(request) = reader.request() {
            reader.on_answer(self.request(request).await)?;
        }
        Ok(reader.finish())
    }
}

impl PartitionBackup {
    /// The newest epoch of any commit at the partition's owner when changes began to be noted.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Requests the next piece, and whether all changes up to an epoch were sent (0: of none). Pieces come in the order
    /// of the requests, of which a few may be under way.
    ///
    /// # Errors
    /// If the partition's owner can't be reached.
    pub fn request(&self, until: Epoch) -> Result<PieceTicket> {
        let request = Request::BackupNext { partition: self.partition, until };
        let token = self.handle.engine.submit(|client| client.request(&request))?;
        Ok(PieceTicket { pending: Pending::new(&self.handle, token, take_answer), until })
    }
}

impl PieceTicket {
    /// The epoch that was asked for.
    pub fn until(&self) -> Epoch {
        self.until
    }

    /// Waits on this thread for the piece.
    ///
    /// # Errors
    /// `BackupBufferFull`, `NodeFailure` and `NoSuchBackup` if the backup was given up; if the connection was lost.
    pub fn wait(self) -> Result<BackupBatch> {
        match self.pending.wait()? {
            Answer::Backup(batch) => Ok(batch),
            _ => Err(mixed_up()),
        }
    }
}

impl Drop for PartitionBackup {
    fn drop(&mut self) {
        let partition = self.partition;
        self.handle.engine.submit(|client| client.close_backup(partition));
    }
}

fn take_answer(client: &mut Client, token: Token) -> Option<Result<Answer>> {
    client.take_answer(token)
}
