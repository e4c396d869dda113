//! Which outcomes of transactions are known, for each coordinator.
//!
//! A coordinator numbers its final answers to this client and keeps them until the client says that it has seen all up
//! to some number. It sends them in their order on one connection, so the greatest number seen covers all before it, as
//! long as no answer is lost.
//!
//! Answers that are lost with a connection are asked for on the next one. These *questions* are answered in any order:
//! that of the questions is not that of the numbers, and a transaction that is still under way is answered when it
//! ends, behind later outcomes. So while a question is open, no more is reported as seen than was known when the first
//! one arose: the coordinator would forget an outcome of which nothing is known here. When all are answered, everything
//! up to the greatest number is known again.
//!
//! The number goes with each batch; when there are none, an `OutcomesSeenOrder` goes after a while.
//!
//! A question that nobody waits for any more is *unanswered*: it is asked all the same when its coordinator is
//! connected again, so that this can forget the outcome.
//!
//! A coordinator whose node has failed has a *successor*, which the view names: questions go there. When all are
//! answered the client *releases* the dead coordinator: it says that it will ask nothing more of it, so that the
//! outcomes can be forgotten. It does so again at the next successor, if that fails, too.

use crate::link::LinkId;
use crate::routes::CoordinatorIndex;
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_base::time::{Span, Tick};
use vinga_wire::Address;
use vinga_wire::take_over::CoordinatorName;

/// Outcomes that no batch confirms are confirmed by an order of their own after this time.
const IDLE: Span = Span::from_millis(200);

/// One coordinator.
pub struct Coordinator {
    /// Which one it is.
    pub name: CoordinatorName,
    /// Who acts for it: itself, or its successor. That may have the same address: another start of its node.
    pub acting: Address,
    is_dead: bool,
    /// How the one who acts is reached; `None` while its node is not connected.
    pub link: Option<LinkId>,
    /// The successor that knows that nothing will be asked any more.
    released_to: Option<Address>,
    /// The greatest number that has come.
    seen: u32,
    /// All outcomes up to this number are known: the greatest that had come when the first of the open questions arose.
    known: u32,
    /// Open questions, the unanswered ones included.
    questions: u32,
    /// What was reported last.
    confirmed: u32,
    confirmed_at: Tick,
    /// Transactions whose answers may have been lost, and that nobody here knows any more.
    unanswered: Vec<TransactionId>,
}

impl Coordinator {
    /// Whether another one acts for it, as its node has failed.
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Whether its successor is to know that nothing will be asked.
    fn can_be_released(&self) -> bool {
        self.is_dead() && self.link.is_some() && self.questions == 0 && self.released_to != Some(self.acting)
    }

    /// Whether it is reached by a connection to this endpoint.
    pub fn is_reached_by(&self, endpoint: u16) -> bool {
        self.link.is_some_and(|link| link.endpoint() == endpoint)
    }
}

/// What the client knows of outcomes, by coordinator.
#[derive(Default)]
pub struct Outcomes {
    coordinators: Vec<Coordinator>,
    /// Breaks the rule about open questions on purpose.
    #[cfg(feature = "injected-bugs")]
    pub seen_covers_open_questions: bool,
}

impl Outcomes {
    /// The index of a coordinator, which is now reached by this connection.
    pub fn coordinator(&mut self, name: CoordinatorName, link: LinkId) -> CoordinatorIndex {
        match self.coordinators.iter().position(|c| c.name == name) {
            Some(at) => {
                self.coordinators[at].link = Some(link);
                CoordinatorIndex(at as u16)
            }
            None => {
                self.coordinators.push(Coordinator {
                    name,
                    acting: name.address,
                    is_dead: false,
                    link: Some(link),
                    released_to: None,
                    seen: 0,
                    known: 0,
                    questions: 0,
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

    /// Finds the successors of coordinators whose nodes have failed: `acts_for` says who acts for a coordinator,
    /// `is_alive` whether that is itself, `link` how the one who acts is reached. Returns those whose successor can be
    /// reached now, and was another one before, or not connected: it has been asked nothing by this connection. One
    /// whose data node has left, but may still have sent answers (`still_answers`), has no successor before these have
    /// come.
    pub fn find_successors(
        &mut self,
        acts_for: impl Fn(CoordinatorName) -> Option<Address>,
        is_alive: impl Fn(CoordinatorName) -> bool,
        link: impl Fn(Address) -> Option<LinkId>,
        still_answers: impl Fn(u16) -> bool,
    ) -> Vec<CoordinatorIndex> {
        let mut changed = Vec::new();
        for (index, coordinator) in (0..).map(CoordinatorIndex).zip(&mut self.coordinators) {
            if coordinator.link.is_some_and(|link| still_answers(link.endpoint())) {
                continue;
            }
            // Nobody is known for one of another incarnation of the cluster: it is asked nothing.
            let Some(acting) = acts_for(coordinator.name) else {
                coordinator.link = None;
                continue;
            };
            if is_alive(coordinator.name) {
                continue;
            }
            coordinator.is_dead = true;
            let was_acting = core::mem::replace(&mut coordinator.acting, acting);
            let was_linked = core::mem::replace(&mut coordinator.link, link(acting)).is_some();
            if coordinator.link.is_some() && (acting != was_acting || !was_linked) {
                changed.push(index);
            }
        }
        changed
    }

    /// Dead coordinators of which nothing will be asked any more, with their successors, which don't know it yet.
    pub fn take_released(&mut self) -> Vec<(LinkId, Address, CoordinatorName)> {
        let releasable = self.coordinators.iter_mut().filter(|coordinator| coordinator.can_be_released());
        let release = |coordinator: &mut Coordinator| {
            coordinator.released_to = Some(coordinator.acting);
            Some((coordinator.link?, coordinator.acting, coordinator.name))
        };
        releasable.filter_map(release).collect()
    }

    /// No coordinator of this endpoint can be reached now. What was confirmed last may have been lost with the
    /// connection, and so may what was released.
    pub fn unlink(&mut self, endpoint: u16) {
        for coordinator in &mut self.coordinators {
            if coordinator.is_reached_by(endpoint) {
                coordinator.link = None;
                coordinator.confirmed = 0;
                coordinator.released_to = None;
            }
        }
    }

    /// All outcomes up to this one are known: what a batch reports to its coordinator.
    #[inline]
    pub fn seen_for_batch(&mut self, index: CoordinatorIndex, now: Tick) -> u32 {
        let coordinator = &mut self.coordinators[usize::from(index.0)];
        coordinator.confirmed = coordinator.known;
        coordinator.confirmed_at = now;
        coordinator.known
    }

    /// A numbered outcome has arrived. 0 is no number.
    #[inline]
    pub fn note(&mut self, index: CoordinatorIndex, number: u32) {
        let covers_questions = self.covers_questions();
        let coordinator = &mut self.coordinators[usize::from(index.0)];
        // Numbers may wrap.
        if number != 0 && number.wrapping_sub(coordinator.seen) as i32 > 0 {
            coordinator.seen = number;
        }
        if coordinator.questions == 0 || covers_questions {
            coordinator.known = coordinator.seen;
        }
    }

    #[inline]
    fn covers_questions(&self) -> bool {
        #[cfg(feature = "injected-bugs")]
        return self.seen_covers_open_questions;
        #[cfg(not(feature = "injected-bugs"))]
        false
    }

    /// The answer to a transaction may have been lost: from now on it is an open question.
    pub fn open_question(&mut self, index: CoordinatorIndex) {
        self.coordinators[usize::from(index.0)].questions += 1;
    }

    /// A question is answered by this number, 0 for none, or somebody else asks it.
    pub fn close_question(&mut self, index: CoordinatorIndex, number: u32) {
        let questions = &mut self.coordinators[usize::from(index.0)].questions;
        *questions = questions.checked_sub(1).expect("a question is answered once");
        self.note(index, number);
    }

    /// The answer to a transaction may have been lost, and nobody waits for it: it is an open question of this.
    pub fn note_unanswered(&mut self, index: CoordinatorIndex, transaction: TransactionId) {
        self.coordinators[usize::from(index.0)].unanswered.push(transaction);
        self.open_question(index);
    }

    /// What nobody waits for any more, of these coordinators: coordinators and transactions.
    pub fn unanswered(&self, of: impl Fn(&Coordinator) -> bool) -> Vec<(CoordinatorIndex, TransactionId)> {
        let all = (0..).map(CoordinatorIndex).zip(&self.coordinators);
        let asked = all.filter(|(_, coordinator)| of(coordinator));
        asked.flat_map(|(index, c)| c.unanswered.iter().map(move |&id| (index, id))).collect()
    }

    /// A coordinator, or its successor, has answered a question; false if somebody else waits for that.
    pub fn take_unanswered(&mut self, transaction: TransactionId, number: u32) -> bool {
        let asked = |c: &Coordinator| c.unanswered.contains(&transaction);
        let Some(at) = self.coordinators.iter().position(asked) else { return false };
        self.coordinators[at].unanswered.retain(|&id| id != transaction);
        self.close_question(CoordinatorIndex(at as u16), number);
        true
    }

    /// Coordinators that have waited long enough for word of which outcomes are known: connection, address, number.
    pub fn take_idle(&mut self, now: Tick) -> impl Iterator<Item = (LinkId, Address, u32)> {
        self.coordinators.iter_mut().filter(|coordinator| !coordinator.is_dead()).filter_map(
            move |coordinator| {
                let link = coordinator.link?;
                if coordinator.confirmed == coordinator.known || now < coordinator.confirmed_at + IDLE {
                    return None;
                }
                coordinator.confirmed = coordinator.known;
                coordinator.confirmed_at = now;
                Some((link, coordinator.acting, coordinator.known))
            },
        )
    }

    /// When [`Outcomes::take_idle`] or [`Outcomes::take_released`] has something to give.
    pub fn idle_at(&self, now: Tick) -> Option<Tick> {
        if self.coordinators.iter().any(Coordinator::can_be_released) {
            return Some(now);
        }
        let is_waiting = |c: &&Coordinator| !c.is_dead() && c.link.is_some() && c.confirmed != c.known;
        self.coordinators.iter().filter(is_waiting).map(|c| c.confirmed_at + IDLE).min()
    }

    /// The client begins a new incarnation: coordinators count from 1 again, and nobody asks any more.
    pub fn reset(&mut self) {
        for coordinator in &mut self.coordinators {
            assert!(
                coordinator.questions as usize == coordinator.unanswered.len(),
                "others were given up before"
            );
            (coordinator.seen, coordinator.known, coordinator.confirmed) = (0, 0, 0);
            coordinator.questions = 0;
            coordinator.released_to = None;
            coordinator.unanswered.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;

    const START: Tick = Tick(0);

    fn name(address: u32) -> CoordinatorName {
        CoordinatorName { address: Address(address), incarnation: Incarnation(1) }
    }

    #[test]
    fn a_dead_coordinator_is_released_when_its_successor_has_answered() {
        let mut outcomes = Outcomes::default();
        let (one, other) = (name(7), Address(8));
        let index = outcomes.coordinator(one, LinkId(0));
        outcomes.note_unanswered(index, TransactionId(77));
        outcomes.unlink(0);
        let nobody = outcomes.find_successors(|_| Some(other), |_| false, |_| None, |_| false);
        assert_eq!(nobody, [], "the successor is not connected");
        assert_eq!(
            outcomes.find_successors(|_| Some(Address(9)), |_| false, |_| Some(LinkId(1)), |_| false),
            [index]
        );
        assert_eq!(
            outcomes.find_successors(|_| Some(Address(9)), |_| false, |_| Some(LinkId(1)), |_| false),
            [],
            "it is the same"
        );
        outcomes.unlink(0);
        assert_eq!(outcomes.find_successors(|_| Some(Address(9)), |_| false, |_| None, |_| false), []);
        assert_eq!(
            outcomes.find_successors(|_| Some(Address(9)), |_| false, |_| Some(LinkId(1)), |_| false),
            [index],
            "it is back"
        );
        assert_eq!((outcomes.take_released(), outcomes.idle_at(START)), (Vec::new(), None));
        assert!(outcomes.take_unanswered(TransactionId(77), 0));
        assert_eq!(outcomes.idle_at(START), Some(START));
        assert_eq!(outcomes.take_released(), [(LinkId(1), Address(9), one)]);
        assert_eq!(outcomes.take_released(), []);
        // It fails, too: the next one has to know it again.
        outcomes.find_successors(|_| Some(other), |_| false, |_| Some(LinkId(2)), |_| false);
        assert_eq!(outcomes.take_released(), [(LinkId(2), other, one)]);
    }

    /// Its node has started again, and acts for its earlier start after the node that did has failed.
    #[test]
    fn a_dead_coordinator_may_have_the_address_of_its_successor() {
        let mut outcomes = Outcomes::default();
        let index = outcomes.coordinator(name(7), LinkId(0));
        outcomes.note_unanswered(index, TransactionId(77));
        assert_eq!(
            outcomes.find_successors(|_| Some(Address(7)), |_| true, |_| Some(LinkId(0)), |_| false),
            []
        );
        outcomes.unlink(0);
        assert_eq!(
            outcomes.find_successors(|_| Some(Address(7)), |_| false, |_| Some(LinkId(1)), |_| false),
            [index]
        );
        assert!(outcomes.take_unanswered(TransactionId(77), 0));
        assert_eq!(outcomes.take_released(), [(LinkId(1), Address(7), name(7))]);
    }

    #[test]
    fn outcomes_are_confirmed_with_batches_or_when_idle() {
        let mut outcomes = Outcomes::default();
        let one = outcomes.coordinator(name(7), LinkId(0));
        outcomes.note(one, 1);
        outcomes.note(one, 2);
        outcomes.note(one, 0);
        assert_eq!(outcomes.seen_for_batch(one, START), 2);
        assert!(outcomes.idle_at(START).is_none());
        outcomes.note(one, 7);
        assert_eq!(outcomes.idle_at(START), Some(START + IDLE));
        assert_eq!(outcomes.take_idle(START).count(), 0);
        assert_eq!(outcomes.take_idle(START + IDLE).next(), Some((LinkId(0), Address(7), 7)));
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).count(), 0);
        outcomes.unlink(0);
        outcomes.note(one, 9);
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).count(), 0, "nobody can be reached");
        outcomes.coordinator(name(7), LinkId(1));
        assert_eq!(outcomes.take_idle(START + IDLE + IDLE).next(), Some((LinkId(1), Address(7), 9)));
        outcomes.unlink(0);
        outcomes.coordinator(name(7), LinkId(1));
        let later = START + IDLE + IDLE + IDLE;
        assert_eq!(
            outcomes.take_idle(later).next(),
            Some((LinkId(1), Address(7), 9)),
            "it may have been lost"
        );
    }

    #[test]
    fn nothing_is_known_beyond_open_questions() {
        let mut outcomes = Outcomes::default();
        let one = outcomes.coordinator(name(7), LinkId(0));
        let other = outcomes.coordinator(name(8), LinkId(0));
        outcomes.note(one, 3);
        outcomes.open_question(one);
        outcomes.open_question(one);
        outcomes.close_question(one, 7);
        outcomes.note(one, 8);
        outcomes.note(other, 5);
        assert_eq!((outcomes.seen_for_batch(one, START), outcomes.seen_for_batch(other, START)), (3, 5));
        // Nobody waits for the second answer any more.
        outcomes.note_unanswered(one, TransactionId(77));
        outcomes.close_question(one, 0);
        assert_eq!(outcomes.seen_for_batch(one, START), 3);
        assert!(!outcomes.take_unanswered(TransactionId(78), 4));
        assert!(outcomes.take_unanswered(TransactionId(77), 4));
        assert_eq!(outcomes.seen_for_batch(one, START), 8);
    }
}
