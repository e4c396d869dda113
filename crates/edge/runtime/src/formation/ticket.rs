//! The ticket of the first view, which the arbitrator has to take before the view is made.

use crate::arbitration::Arbitrators;
use crate::settings::ProcessSettings;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::view::NO_TICKET;

/// The members that a first view would have.
type Members = Vec<(NodeId, Incarnation)>;

/// What is known of the ticket. One request is under way at a time: the arbitrator must not take an earlier one for the
/// latest.
pub(super) struct FirstTicket {
    arbitrators: Option<Arbitrators>,
    attempts: u32,
    state: State,
}

enum State {
    NotAsked,
    /// Another thread asks, for these members; it returns the number of requests, too.
    Asked(Members, Receiver<(u64, u32)>),
    Known(Members, u64),
}

impl FirstTicket {
    pub fn new(settings: &ProcessSettings) -> Self {
        FirstTicket { arbitrators: Arbitrators::of(settings), attempts: 0, state: State::NotAsked }
    }

    /// The ticket of a first view with these members; `None` as long as it is not known.
    pub fn of(&mut self, members: &Members) -> Option<u64> {
        let Some(arbitrators) = &self.arbitrators else { return Some(NO_TICKET) };
        if let State::Asked(asked, answer) = &mut self.state {
            let ticket = match answer.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => NO_TICKET,
                Ok((ticket, attempts)) => {
                    self.attempts = attempts;
                    ticket
                }
            };
            self.state = State::Known(std::mem::take(asked), ticket);
        }
        match &self.state {
            State::Known(known, ticket) if known == members => return Some(*ticket),
            // Another start of one of them has come meanwhile: that is another cluster.
            State::Known(..) | State::NotAsked | State::Asked(..) => {}
        }
        let (sender, answer) = mpsc::channel();
        let (arbitrators, mut attempts) = (arbitrators.clone(), self.attempts);
        let asked = members.clone();
        let ask = move || {
            let ticket = arbitrators.begin(&mut attempts, &asked);
            // Nobody waits for it if the node stops.
            let _ = sender.send((ticket, attempts));
        };
        // Without a thread its end of the channel is dropped, and there is no ticket.
        if let Err(why) = thread::Builder::new().name("first ticket".to_string()).spawn(ask) {
            log::warn!(target: super::WHO, "nobody arbitrates: the system has no threads left: {why}");
        }
        self.state = State::Asked(members.clone(), answer);
        None
    }
}
