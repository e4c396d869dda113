//! Ends of transactions of which something is to be asked afterwards.

use crate::transaction::Transaction;
use vinga_base::{Epoch, TransactionId};
use vinga_client_core::{BatchEnd, Error, Result, Standing};
use vinga_wire::ErrorCode;

impl Transaction {
    /// As [`Transaction::commit`], and what became of its operations can be looked at afterwards, also if it has
    /// failed: [`Transaction::result`], [`Transaction::row_bytes`]. Returns the epoch, as [`Committed::epoch`] does.
    ///
    /// # Errors
    /// As of [`Transaction::commit`].
    ///
    /// [`Committed::epoch`]: crate::Committed::epoch
    pub async fn commit_in_place(&mut self) -> Result<Epoch> {
        match self.send(BatchEnd::Commit).await? {
            Standing::Committed(epoch) => Ok(epoch),
            Standing::Open | Standing::RolledBack => Err(Error::new(ErrorCode::InternalError)),
        }
    }

    /// As [`Transaction::roll_back`], and [`Transaction::rollback_cause`] can be asked afterwards.
    ///
    /// # Errors
    /// As of [`Transaction::roll_back`].
    pub async fn roll_back_in_place(&mut self) -> Result<()> {
        self.send(BatchEnd::RollBack).await.map(|_| ())
    }

    /// Why it was rolled back although nobody has asked for that: the cluster did it, or the connection was lost.
    /// `None` while it is open, and if it has ended as was asked.
    pub fn rollback_cause(&self) -> Option<ErrorCode> {
        self.handle.engine.look(|client| client.rollback_cause(self.token))
    }

    /// By which id data nodes know it: the one that [`Transaction::name`] gives as text. `None` before anything was
    /// sent.
    pub fn id(&self) -> Option<TransactionId> {
        self.handle.engine.look(|client| client.transaction_id(self.token))
    }

    /// How often it was begun again, with another id each time, because data nodes have failed before anything of it
    /// was answered.
    pub fn times_begun_again(&self) -> u32 {
        self.handle.engine.look(|client| client.times_begun_again(self.token))
    }
}
