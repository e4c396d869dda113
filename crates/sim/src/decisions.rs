//! In which order transactions were decided, as one sees it who looks into the nodes.
//!
//! A transaction is decided when its first `CommitRequest` is handled; in the one-phase commit, which has none, and
//! at the last replica of a chain, when its last `PrepareRequest` is, unless that is refused. Transactions that lock
//! the same row are decided in the order in which they had it, so a search for an order that fits the answers finds
//! one at once if it tries this one first. It is a hint: the checks believe only what clients were answered.

use crate::thread::ThreadId;
use crate::world::World;
use std::collections::BTreeMap;
use vinga_base::Epoch;
use vinga_wire::{Address, BlockNumber, Header, SignalNumber};
use vinga_workloads::history::Decided;
use zerocopy::FromBytes;

/// What was seen of decisions.
#[derive(Default)]
pub struct Decisions {
    /// Ascends with everything that is noted.
    count: u64,
    /// Transactions of which a `CommitRequest` was handled. Others may have been decided in the one-phase commit.
    committed: BTreeMap<u64, Committed>,
}

/// A transaction of which a `CommitRequest` was handled.
#[derive(Default)]
struct Committed {
    /// A bit for each data node that has handled one and is alive.
    nodes: u32,
    /// The data node whose coordinator has sent one last.
    coordinator: u8,
}

impl World {
    /// A thread has handled this many signals in its turn.
    pub(crate) fn see_handled(&mut self, id: ThreadId, count: usize) {
        let node = self.threads[id.0].node;
        let (decisions, decided) = (&mut self.decisions, &mut self.history.decided);
        for entry in self.threads[id.0].executor.trace().last(count) {
            let (header, body) = Header::ref_from_prefix(&entry.bytes).expect("an entry holds a header");
            // All these bodies begin with the transaction.
            let Some(transaction) = body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
                continue;
            };
            // In these the epoch follows.
            let epoch = || body.get(8..16)?.first_chunk().map(|bytes| Epoch(u64::from_le_bytes(*bytes)));
            match SignalNumber::from_number(header.number.get()) {
                Some(SignalNumber::CommitRequest) => {
                    let epoch = epoch().expect("a whole body");
                    self.history.epochs.insert(transaction, Decided::Commit(epoch));
                }
                // Of what the only replica has committed by itself there is no request.
                Some(SignalNumber::CommitConfirm) if !decisions.committed.contains_key(&transaction) => {
                    let epoch = epoch().expect("a whole body");
                    self.history.epochs.insert(transaction, Decided::Commit(epoch));
                }
                Some(SignalNumber::PrepareConfirm) if !decisions.committed.contains_key(&transaction) => {
                    let epoch = epoch().expect("a whole body");
                    self.history.epochs.insert(transaction, Decided::Perhaps(epoch));
                }
                // The last replica of a chain may commit, and whoever it says so to may have died: it commits in this
                // epoch or a later one. The only replica is the last one, too, so it matters not who has asked.
                Some(SignalNumber::PrepareRequest) => {
                    let epoch = epoch().expect("a whole body");
                    self.history.epochs.entry(transaction).or_insert(Decided::Perhaps(epoch));
                }
                _ => {}
            }
            let is_committed = decisions.committed.contains_key(&transaction);
            match SignalNumber::from_number(header.number.get()) {
                Some(SignalNumber::CommitRequest) => {
                    let committed = decisions.committed.entry(transaction).or_default();
                    committed.nodes |= 1 << node;
                    let sender = Address(header.sender.get());
                    if sender.block() == Some(BlockNumber::Coordinator) {
                        committed.coordinator = sender.node().0;
                    }
                    let coordinator = committed.coordinator;
                    if coordinator != 0
                        && (!self.alive[usize::from(coordinator - 1)]
                            || self.starts_of_nodes[usize::from(coordinator - 1)].incarnation > 1)
                    {
                        // It had died before this arrived, or may have: an earlier start may have sent it.
                        doubt(&mut self.history.epochs, transaction);
                    }
                    if is_committed {
                        continue;
                    }
                }
                Some(SignalNumber::PrepareRequest) if is_committed => continue,
                Some(SignalNumber::PrepareRequest) => {}
                Some(SignalNumber::PrepareRefuse | SignalNumber::AbortRequest) if !is_committed => {
                    decided.remove(&transaction);
                    continue;
                }
                _ => continue,
            }
            decisions.count += 1;
            decided.insert(transaction, decisions.count);
        }
    }

    /// A data node has died, or was left out. What only such nodes have committed others may have rolled back; and so
    /// with what its coordinators have decided: who else has handled the request may have had nothing but locks, and
    /// keeps no trace of it. What clients were answered counts all the same.
    pub(crate) fn doubt_commits_of(&mut self, node: u8) {
        for (transaction, committed) in &mut self.decisions.committed {
            let had_some = committed.nodes != 0;
            committed.nodes &= !(1 << node);
            let is_doubtful = had_some && committed.nodes == 0 || committed.coordinator == node;
            if is_doubtful {
                doubt(&mut self.history.epochs, *transaction);
            }
        }
    }
}

/// A transaction was perhaps rolled back.
fn doubt(epochs: &mut BTreeMap<u64, Decided>, transaction: u64) {
    if let Some(decided) = epochs.get_mut(&transaction)
        && let Decided::Commit(epoch) = *decided
    {
        *decided = Decided::Perhaps(epoch);
    }
}
