//! The arbitrator's part: a process outside of the data nodes that lets one of several sets go on.
//!
//! It holds one ticket. Members that show it may go on, and the arbitrator holds another ticket from then on, that of
//! their next view. So of two sets in the same view only the first that asks goes on. Should the one that asked fail
//! before the others have received that view, another of the same set may ask with the old ticket once more; only
//! they may.
//!
//! A cluster that begins hands over the ticket of its first view. From then on that of an earlier cluster counts no
//! more: what is left of that one is refused, and so is whatever it has sent before and that comes late.
//!
//! A cluster that runs may hand over another ticket of its present view, if it has lost its arbitrator. If members have
//! gone on with the ticket before, only they may.

use crate::choice::list;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use vinga_base::{NodeId, ViewNumber};
use vinga_wire::agreement::ArbitrationRequest;
use vinga_wire::arbitration::{ArbitrationBeginRequest, ArbitratorTakeRequest};
use vinga_wire::view::NO_TICKET;

/// Incarnations of clusters of which it is known that later ones have begun, at most: many more than can have something
/// on its way.
const EARLIER_MAX: usize = 64;

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
#[derive(Default)]
pub struct Arbitrator {
    /// The ticket that counts, if there is one.
    ticket: u64,
    /// Those that have exchanged the ticket before for the one that counts.
    winners: Option<Winners>,
    /// The cluster that has begun last.
    begun: Option<Begun>,
    /// The view of that cluster, and the request, for which it has taken a ticket last.
    taken: (u32, u32),
    /// Incarnations of clusters before it.
    earlier: VecDeque<u64>,
}

/// Members that have gone on.
#[derive(Debug)]
struct Winners {
    /// The view that they were in; their next one has a greater number.
    view: ViewNumber,
    /// The ticket of that view.
    ticket: u64,
    members: BTreeSet<NodeId>,
}

/// A cluster that has begun: its incarnation, which of its requests that was, and the first ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Begun {
    cluster_incarnation: u64,
    attempt: u32,
    ticket: u64,
}

impl Arbitrator {
    /// An arbitrator of a view with this ticket.
    pub fn new(ticket: u64) -> Self {
        Arbitrator { ticket, ..Arbitrator::default() }
    }

    /// The incarnation of the cluster whose ticket counts, if one has begun.
    pub fn cluster(&self) -> Option<u64> {
        self.begun.map(|begun| begun.cluster_incarnation)
    }

    /// Takes the first ticket of a cluster that begins. The same request may come again.
    ///
    /// # Errors
    /// Why it is not taken, for people.
    pub fn begin(&mut self, request: &ArbitrationBeginRequest) -> Result<(), String> {
        let &ArbitrationBeginRequest { cluster_incarnation, attempt, ticket, .. } = request;
        if ticket == NO_TICKET {
            return Err(format!("{NO_TICKET} is no ticket"));
        }
        if self.earlier.contains(&cluster_incarnation) {
            return Err("a later cluster has begun".to_string());
        }
        let begins = Begun { cluster_incarnation, attempt, ticket };
        if let Some(begun) = self.begun.filter(|begun| begun.cluster_incarnation == cluster_incarnation) {
            if self.winners.is_some() {
                return Err(
                    "the cluster has begun, and data nodes of it have gone on without others".to_string()
                );
            }
            if begins != begun && attempt <= begun.attempt {
                return Err("a later request of the same start has come".to_string());
            }
        } else {
            self.forget_begun();
        }
        (self.begun, self.ticket, self.winners, self.taken) = (Some(begins), ticket, None, (0, 0));
        Ok(())
    }

    /// What is left of the cluster that has begun last counts no more.
    fn forget_begun(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        self.earlier.push_back(begun.cluster_incarnation);
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.pop_front();
        }
        (self.winners, self.taken) = (None, (0, 0));
    }

    /// Takes another ticket of a cluster that runs, in place of the one that was held. The same request may come again.
    ///
    /// # Errors
    /// Why it is not taken, for people.
    pub fn take(&mut self, request: &ArbitratorTakeRequest) -> Result<(), String> {
        let &ArbitratorTakeRequest { cluster_incarnation, ticket, ref members, .. } = request;
        if ticket == NO_TICKET {
            return Err(format!("{NO_TICKET} is no ticket"));
        }
        if self.earlier.contains(&cluster_incarnation) {
            return Err("a later cluster has begun".to_string());
        }
        if self.begun.is_some_and(|begun| begun.cluster_incarnation != cluster_incarnation) {
            self.forget_begun();
        }
        let taken = (request.view.0, request.request);
        if taken < self.taken || taken == self.taken && ticket != self.ticket {
            return Err("a later request of the same cluster has come".to_string());
        }
        if self.holds(request.before) {
            return Err("it holds the ticket that counts".to_string());
        }
        // In later views others may have joined them. Those that they have gone on without may have been in the next
        // view, which the others had agreed to and did not know of yet: these still have the ticket of before. (So may
        // the winners, if they did not need the answer in the end; but who joins them does so in a view behind that.)
        let is_before = |winners: &Winners| {
            let is_next = request.view.0 == winners.view.0 + 1;
            request.view <= winners.view || is_next && request.before == winners.ticket
        };
        if let Some(winners) = &self.winners
            && is_before(winners)
            && !members.iter().all(|member| winners.members.contains(member))
        {
            return Err(format!("data nodes {} have gone on", list(&winners.members)));
        }
        // No request of its start counts any more.
        self.begun = Some(Begun { cluster_incarnation, attempt: u32::MAX, ticket });
        (self.ticket, self.winners, self.taken) = (ticket, None, taken);
        Ok(())
    }

    /// Whether it holds a ticket.
    pub fn holds(&self, ticket: u64) -> bool {
        ticket != NO_TICKET && ticket == self.ticket
    }

    /// Decides whether these members go on.
    pub fn decide(&mut self, request: &ArbitrationRequest) -> Verdict {
        let stop = |reason: &str| Verdict::Stop { reason: reason.to_string() };
        if [request.ticket, request.next].contains(&NO_TICKET) {
            return stop("they have no ticket");
        }
        let members: BTreeSet<NodeId> = request.members.iter().copied().collect();
        let ask_again =
            |winners: &Winners| winners.ticket == request.ticket && members.is_subset(&winners.members);
        if request.ticket == self.ticket || self.winners.as_ref().is_some_and(ask_again) {
            self.winners = Some(Winners { view: request.view, ticket: request.ticket, members });
            self.ticket = request.next;
            return Verdict::GoOn { ticket: self.ticket };
        }
        match &self.winners {
            Some(winners) => stop(&format!("data nodes {} have gone on", list(&winners.members))),
            None => stop("the arbitrator does not know their ticket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ask(ticket: u64, next: u64, members: &[u8]) -> ArbitrationRequest {
        let members: Vec<NodeId> = members.iter().map(|&node| NodeId(node)).collect();
        ArbitrationRequest { round: 1, view: ViewNumber(1), ticket, next, members }
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

    fn begins(cluster_incarnation: u64, attempt: u32, ticket: u64) -> ArbitrationBeginRequest {
        ArbitrationBeginRequest { cluster_incarnation, attempt, ticket, members: Vec::new() }
    }

    #[test]
    fn the_ticket_of_an_earlier_cluster_counts_no_more() {
        let mut arbitrator = Arbitrator::default();
        assert!(matches!(arbitrator.decide(&ask(7, 8, &[1])), Verdict::Stop { .. }), "it knows no ticket");
        assert!(arbitrator.begin(&begins(1, 0, NO_TICKET)).is_err());
        assert_eq!(arbitrator.begin(&begins(1, 0, 7)), Ok(()));
        assert_eq!(arbitrator.decide(&ask(7, 8, &[1, 2])), Verdict::GoOn { ticket: 8 });
        assert_eq!(arbitrator.begin(&begins(2, 0, 70)), Ok(()));
        // Neither those that have gone on, nor what is left of them, nor the others.
        for ticket in [7, 8] {
            let verdict = arbitrator.decide(&ask(ticket, 9, &[1]));
            assert_eq!(
                verdict,
                Verdict::Stop { reason: "the arbitrator does not know their ticket".to_string() }
            );
        }
        assert_eq!(arbitrator.begin(&begins(1, 1, 71)), Err("a later cluster has begun".to_string()));
        assert_eq!(arbitrator.decide(&ask(70, 80, &[1])), Verdict::GoOn { ticket: 80 });
    }

    #[test]
    fn of_the_requests_of_one_start_the_latest_counts() {
        let mut arbitrator = Arbitrator::default();
        assert_eq!(arbitrator.begin(&begins(1, 1, 7)), Ok(()));
        assert_eq!(arbitrator.begin(&begins(1, 1, 7)), Ok(()), "the answer was lost");
        assert!(arbitrator.begin(&begins(1, 0, 6)).is_err(), "it is late");
        assert!(arbitrator.begin(&begins(1, 1, 6)).is_err(), "two of one number");
        assert_eq!(arbitrator.begin(&begins(1, 2, 8)), Ok(()));
        assert!(matches!(arbitrator.decide(&ask(7, 9, &[1])), Verdict::Stop { .. }));
        assert_eq!(arbitrator.decide(&ask(8, 9, &[1])), Verdict::GoOn { ticket: 9 });
        assert!(arbitrator.begin(&begins(1, 3, 10)).is_err(), "it has gone on");
        assert_eq!(arbitrator.decide(&ask(9, 11, &[1])), Verdict::GoOn { ticket: 11 });
    }

    /// Request of the view that a cluster is in, with a ticket in place of another one.
    fn takes(
        cluster_incarnation: u64,
        (view, request): (u32, u32),
        (before, ticket): (u64, u64),
        members: &[u8],
    ) -> ArbitratorTakeRequest {
        let members = members.iter().map(|&node| NodeId(node)).collect();
        let view = ViewNumber(view);
        ArbitratorTakeRequest { cluster_incarnation, view, request, before, ticket, members }
    }

    #[test]
    fn one_that_has_started_again_takes_the_ticket_of_a_cluster_that_runs() {
        let mut arbitrator = Arbitrator::default();
        assert_eq!(arbitrator.take(&takes(1, (3, 1), (7, 8), &[1, 2])), Ok(()));
        assert!(arbitrator.holds(8) && !arbitrator.holds(7));
        assert_eq!(arbitrator.take(&takes(1, (3, 1), (7, 8), &[1, 2])), Ok(()), "the answer was lost");
        assert!(arbitrator.take(&takes(1, (3, 1), (7, 9), &[1, 2])).is_err(), "two of one number");
        assert!(arbitrator.take(&takes(1, (2, 9), (7, 9), &[1, 2])).is_err(), "of an earlier view");
        assert!(arbitrator.take(&takes(1, (3, 2), (8, 9), &[1, 2])).is_err(), "it holds what counts");
        assert!(arbitrator.begin(&begins(1, 9, 10)).is_err(), "the cluster has begun before");
        assert_eq!(
            arbitrator.take(&takes(1, (3, 2), (7, 9), &[1, 2])),
            Ok(()),
            "the other one never counted"
        );
        assert!(matches!(arbitrator.decide(&ask(8, 10, &[1])), Verdict::Stop { .. }));
        assert_eq!(arbitrator.decide(&ask(9, 10, &[1])), Verdict::GoOn { ticket: 10 });
        assert!(arbitrator.take(&takes(1, (3, 1), (7, 8), &[1, 2])).is_err(), "late");
        assert!(!arbitrator.holds(NO_TICKET));
    }

    #[test]
    fn only_those_that_have_gone_on_replace_a_ticket() {
        let mut arbitrator = Arbitrator::default();
        assert_eq!(arbitrator.begin(&begins(1, 0, 7)), Ok(()));
        assert_eq!(arbitrator.decide(&ask(7, 8, &[1, 3])), Verdict::GoOn { ticket: 8 });
        assert!(arbitrator.take(&takes(1, (1, 1), (7, 9), &[1, 2, 3, 4])).is_err());
        assert!(arbitrator.take(&takes(1, (1, 2), (7, 9), &[2, 4])).is_err());
        assert!(
            arbitrator.take(&takes(1, (2, 1), (7, 9), &[1, 2, 3, 4])).is_err(),
            "of a view that all agreed to"
        );
        let mut unasked = Arbitrator::default();
        assert_eq!(unasked.begin(&begins(1, 0, 7)), Ok(()));
        assert_eq!(unasked.decide(&ask(7, 8, &[1, 3])), Verdict::GoOn { ticket: 8 });
        assert_eq!(
            unasked.take(&takes(1, (3, 1), (7, 9), &[1, 3, 5])),
            Ok(()),
            "they have gone on without the answer, and 5 has joined them"
        );
        assert!(arbitrator.holds(8));
        assert_eq!(arbitrator.take(&takes(1, (2, 1), (6, 9), &[1, 3])), Ok(()));
        assert!(arbitrator.holds(9));
        assert_eq!(arbitrator.decide(&ask(9, 10, &[1])), Verdict::GoOn { ticket: 10 });
        assert_eq!(arbitrator.take(&takes(1, (4, 1), (6, 11), &[1, 5])), Ok(()), "5 has joined since");
    }

    #[test]
    fn a_cluster_that_was_followed_by_another_one_does_not_return() {
        let mut arbitrator = Arbitrator::default();
        assert_eq!(arbitrator.begin(&begins(1, 0, 7)), Ok(()));
        assert_eq!(arbitrator.take(&takes(2, (1, 1), (20, 21), &[1, 2])), Ok(()));
        assert!(arbitrator.take(&takes(1, (5, 1), (7, 8), &[1, 2])).is_err());
        assert!(arbitrator.begin(&begins(1, 1, 9)).is_err());
        assert!(matches!(arbitrator.decide(&ask(7, 9, &[1])), Verdict::Stop { .. }));
        assert!(arbitrator.holds(21));
    }

    #[test]
    fn nobody_goes_on_without_a_ticket() {
        let mut arbitrator = Arbitrator::default();
        let why = Verdict::Stop { reason: "they have no ticket".to_string() };
        assert_eq!(arbitrator.decide(&ask(NO_TICKET, 8, &[1])), why);
        assert_eq!(Arbitrator::new(7).decide(&ask(7, NO_TICKET, &[1])), why);
    }
}
