//! Looking into a coordinator from outside, for people. Nothing here changes anything.

use crate::Coordinator;
use crate::transaction::State;
use vinga_base::TransactionId;
use vinga_kernel::{Span, Tick};

/// An open transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenTransaction {
    /// Which one; it names the API node.
    pub id: TransactionId,
    /// What it does.
    pub state: &'static str,
    /// How long ago it began.
    pub age: Span,
    /// For how long it has been the API node's turn; `None` if it is not.
    pub idle: Option<Span>,
    /// The number of its last operation: how many there were, with those that were undone.
    pub operations: u32,
}

impl Coordinator {
    /// Calls `see` with the open transactions, `most` of them at the most; returns how many more there are.
    pub fn inspect_transactions(
        &self,
        now: Tick,
        most: usize,
        mut see: impl FnMut(OpenTransaction),
    ) -> usize {
        for (_, transaction) in self.transactions.iter().take(most) {
            let (state, idle) = match transaction.state {
                State::Open { since } => ("open", Some(now.since(since))),
                State::Preparing { .. } => ("preparing", None),
                State::InDoubt { .. } => ("in doubt", None),
                State::Committing { .. } => ("committing", None),
                State::AwaitingDisk => ("committed, not on disk", None),
                State::RollingBack { .. } => ("rolling back", None),
            };
            see(OpenTransaction {
                id: transaction.id,
                state,
                age: now.since(transaction.began),
                idle,
                operations: transaction.operation,
            });
        }
        (self.transactions.used() as usize).saturating_sub(most)
    }
}
