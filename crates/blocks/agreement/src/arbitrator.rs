//! The arbitrator's part: a process outside of the data nodes that lets one of several sets go on.
//!
//! It holds one ticket. Members that show it may go on, and the arbitrator holds another ticket from then on, that of
//! their next view. So of two sets in the same view only the first that asks goes on. Should the one that asked fail
//! before the others have received that view, another of the same set may ask with the old ticket once more; only
//! they may.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use vinga_base::NodeId;
use vinga_wire::agreement::ArbitrationRequest;

/// What the arbitrator answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They go on; their next view has this ticket.
    GoOn {
        /// The ticket.
        ticket: u64,
    },
    /// They do not.
    Stop {
        /// Why not, for people.
        reason: String,
    },
}

/// An arbitrator.
pub struct Arbitrator {
    /// The ticket that counts.
    ticket: u64,
    /// The ticket before, and those who have exchanged it for the one that counts.
    winners: Option<(u64, BTreeSet<NodeId>)>,
}

impl Arbitrator {
    /// An arbitrator of a view with this ticket.
    pub fn new(ticket: u64) -> Self {
        Arbitrator { ticket, winners: None }
    }

    /// Decides whether these members go on.
    pub fn decide(&mut self, request: &ArbitrationRequest) -> Verdict {
        let members: BTreeSet<NodeId> = request.members.iter().copied().collect();
        let ask_again = |(before, winners): &(u64, BTreeSet<NodeId>)| {
            *before == request.ticket && members.is_subset(winners)
        };
        if request.ticket == self.ticket || self.winners.as_ref().is_some_and(ask_again) {
            self.winners = Some((request.ticket, members));
            self.ticket = request.next;
            return Verdict::GoOn { ticket: self.ticket };
        }
        let reason = match &self.winners {
            Some((_, winners)) => {
                let winners: alloc::vec::Vec<_> = winners.iter().map(NodeId::to_string).collect();
                format!("data nodes {} have gone on", winners.join(", "))
            }
            None => "the arbitrator does not know their ticket".to_string(),
        };
        Verdict::Stop { reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ask(ticket: u64, next: u64, members: &[u8]) -> ArbitrationRequest {
        let members: Vec<NodeId> = members.iter().map(|&node| NodeId(node)).collect();
        ArbitrationRequest { round: 1, ticket, next, members }
    }

    #[test]
    fn the_first_set_that_asks_goes_on() {
        let mut arbitrator = Arbitrator::new(7);
        assert_eq!(arbitrator.decide(&ask(7, 8, &[1, 3])), Verdict::GoOn { ticket: 8 });
        let Verdict::Stop { reason } = arbitrator.decide(&ask(7, 9, &[2, 4])) else {
            panic!("two sets go on")
        };
        assert_eq!(reason, "data nodes 1, 3 have gone on");
        assert_eq!(arbitrator.decide(&ask(8, 10, &[3])), Verdict::GoOn { ticket: 10 });
        assert!(matches!(arbitrator.decide(&ask(8, 11, &[1])), Verdict::Stop { .. }));
    }

    #[test]
    fn what_is_left_of_the_winners_may_ask_once_more() {
        let mut arbitrator = Arbitrator::new(7);
        assert_eq!(arbitrator.decide(&ask(7, 8, &[1, 2, 3])), Verdict::GoOn { ticket: 8 });
        assert!(matches!(arbitrator.decide(&ask(7, 9, &[2, 3, 4])), Verdict::Stop { .. }));
        assert_eq!(arbitrator.decide(&ask(7, 10, &[2])), Verdict::GoOn { ticket: 10 });
        assert!(matches!(arbitrator.decide(&ask(7, 11, &[3])), Verdict::Stop { .. }));
        assert!(matches!(arbitrator.decide(&ask(8, 11, &[1, 3])), Verdict::Stop { .. }));
    }

    #[test]
    fn an_unknown_ticket_is_refused() {
        let verdict = Arbitrator::new(7).decide(&ask(6, 8, &[1]));
        assert_eq!(
            verdict,
            Verdict::Stop { reason: "the arbitrator does not know their ticket".to_string() }
        );
    }
}
