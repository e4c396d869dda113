//! Which outcomes of transactions are known, for each coordinator.
//!
//! A coordinator numbers its final answers to this client and keeps them until the client says that it has seen all up
//! to some number. It sends them in their order on one connection, so the greatest number seen covers all before it.
//! Answers that are lost with a connection have greater numbers than any that was seen, and are asked for before
//! anything else is sent on the next connection, so their answers come before any later outcome does.
//!
//! The number goes with each batch; when there are none, an `OutcomesSeenOrder` goes after a while.
//!
//! An answer that was lost and that nobody waits for any more is *unanswered*: it is asked for all the same when its
//! coordinator is connected again, so that this can forget it.

use crate::link::LinkId;
use crate::routes::CoordinatorIndex;
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_base::time::{Span, Tick};
use vinga_wire::Address;

/// Outcomes that no batch confirms are confirmed by an order of their own after this time.
const IDLE: Span = Span::from_millis(200);

/// One coordinator.
pub struct Coordinator {
    /// Where it is.
    pub address: Address,
    /// How it is reached; `None` while its node is not connected.
    pub link: Option<LinkId>,
    seen: u32,
    confirmed: u32,
    confirmed_at: Tick,
    /// Transactions whose answers may have been lost, and that nobody here knows any more.
    unanswered: Vec<TransactionId>,
}

impl Coordinator {
    /// Whether it is reached by a connection to this endpoint.
    pub fn is_reached_by(&self, endpoint: u16) -> bool {
        self.link.is_some_and(|link| link.endpoint() == endpoint)
    }
}

/// What the client knows of outcomes, by coordinator.
#[derive(Default)]
pub struct Outcomes {
    coordinators: Vec<Coordinator>,
}

impl Outcomes {
    /// The index of a coordinator, which is now reached by this connection.
    pub fn coordinator(&mut self, address: Address, link: LinkId) -> CoordinatorIndex {
        match self.coordinators.iter().position(|c| c.address == address) {
            Some(at) => {
                self.coordinators[at].link = Some(link);
                CoordinatorIndex(at as u16)
            }
            None => {
                self.coordinators.push(Coordinator {
                    address,
                    link: Some(link),
                    seen: 0,
                    confirmed: 0,
                    confirmed_at: Tick(0),
                    unanswered: Vec::new(),
                });
                CoordinatorIndex(self.coordinators.len() as u16 - 1)
            }
        }
    }

    #[inline]
    pub fn get(&self, index: CoordinatorIndex) -> &Coordinator {
        &self.coordinators[usize::from(index.0)]
    }

    /// No coordinator of this endpoint can be reached now. What was confirmed last may have been lost with the
    /// connection.
    pub fn unlink(&mut self, endpoint: u16) {
        for coordinator in &mut self.coordinators {
            if coordinator.is_reached_by(endpoint) {
                coordinator.link = None;
                coordinator.confirmed = 0;
            }
        }
    }

    /// All outcomes up to this one are known: what a batch reports to its coordinator.
    #[inline]
    pub fn seen_for_batch(&mut self, index: CoordinatorIndex, now: Tick) -> u32 {
        let coordinator = &mut self.coordinators[usize::from(index.0)];
        coordinator.confirmed = coordinator.seen;
        coordinator.confirmed_at = now;
        coordinator.seen
    }

    /// A numbered outcome has arrived. 0 is no number.
    #[inline]
    pub fn note(&mut self, index: CoordinatorIndex, number: u32) {
        let coordinator = &mut self.coordinators[usize::from(index.0)];
        // Numbers may wrap.
        if number != 0 && number.wrapping_sub(coordinator.seen) as i32 > 0 {
            coordinator.seen = number;
        }
    }

    /// The answer to a transaction may have been lost, and nobody waits for it.
    pub fn note_unanswered(&mut self, index: CoordinatorIndex, transaction: TransactionId) {
        self.coordinators[usize::from(index.0)].unanswered.push(transaction);
    }

    /// What is to be asked for when an endpoint is connected again: coordinators and transactions.
    pub fn unanswered(&self, endpoint: u16) -> Vec<(CoordinatorIndex, TransactionId)> {
        let reached = (0..).map(CoordinatorIndex).zip(&self.coordinators);
        let reached = reached.filter(|(_, coordinator)| coordinator.is_reached_by(endpoint));
        reached.flat_map(|(index, c)| c.unanswered.iter().map(move |&id| (index, id))).collect()
    }

    /// A coordinator has answered a question; false if somebody else waits for that.
    pub fn take_unanswered(&mut self, address: Address, transaction: TransactionId, number: u32) -> bool {
        let Some(at) = self.coordinators.iter().position(|c| c.address == address) else { return false };
        let unanswered = &mut self.coordinators[at].unanswered;
        let Some(found) = unanswered.iter().position(|&id| id == transaction) else { return false };
        unanswered.swap_remove(found);
        self.note(CoordinatorIndex(at as u16), number);
        true
    }

    /// Coordinators that have waited long enough for word of which outcomes are known: connection, address, number.
    pub fn take_idle(&mut self, now: Tick) -> impl Iterator<Item = (LinkId, Address, u32)> {
        self.coordinators.iter_mut().filter_map(move |coordinator| {
            let link = coordinator.link?;
            if coordinator.confirmed == coordinator.seen || now < coordinator.confirmed_at + IDLE {
                return None;
            }
            coordinator.confirmed = coordinator.seen;
            coordinator.confirmed_at = now;
            Some((link, coordinator.address, coordinator.seen))
        })
    }

    /// When [`Outcomes::take_idle`] has something to give.
    pub fn idle_at(&self) -> Option<Tick> {
        let waiting = self.coordinators.iter().filter(|c| c.link.is_some() && c.confirmed != c.seen);
        waiting.map(|c| c.confirmed_at + IDLE).min()
    }

    /// The client begins a new incarnation: coordinators count from 1 again.
    pub fn reset(&mut self) {
        for coordinator in &mut self.coordinators {
            (coordinator.seen, coordinator.confirmed) = (0, 0);
            coordinator.unanswered.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Tick = Tick(0);

    #[test]
    fn outcomes_are_confirmed_with_batches_or_when_idle() {
        let mut outcomes = Outcomes::default();
        let one = outcomes.coordinator(Address(7), LinkId(0));
        outcomes.note(one, 1);
        outcomes.note(one, 2);
        outcomes.note(one, 0);
        assert_eq!(outcomes.seen_for_batch(one, START), 2);
        assert!(outcomes.idle_at().is_none());
        outcomes.note(one, 7);
        assert_eq!(outcomes.idle_at(), Some(START + IDLE));
        assert_eq!(outcomes.take_idle(START).count(), 0);
        assert_eq!(outcomes.take_idle(START + IDLE).next(), Some((LinkId(0), Address(7), 7)));
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).count(), 0);
        outcomes.unlink(0);
        outcomes.note(one, 9);
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).count(), 0, "nobody can be reached");
        outcomes.coordinator(Address(7), LinkId(1));
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).next(), Some((LinkId(1), Address(7), 9)));
        outcomes.unlink(0);
        outcomes.coordinator(Address(7), LinkId(1));
        let later = START + IDLE + IDLE + IDLE;
        assert_eq!(
            outcomes.take_idle(later).next(),
            Some((LinkId(1), Address(7), 9)),
            "it may have been lost"
        );
    }
}
