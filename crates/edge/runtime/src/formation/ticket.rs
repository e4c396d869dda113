//! The ticket of the first view, which the arbitrator has to take before the view is made.

use crate::arbitration::Arbitrators;
use crate::settings::ProcessSettings;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use vinga_base::{Incarnation, NodeId};

/// The members that a first view would have.
type Members = Vec<(NodeId, Incarnation)>;

/// The ticket and the management node that has taken it; `None` if none has.
type Taken = Option<(u64, NodeId)>;

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
    Asked(Members, Receiver<(Taken, u32)>),
    Known(Members, Taken),
}

impl FirstTicket {
    pub fn new(settings: &ProcessSettings, data_nodes: &[(NodeId, u16)]) -> Self {
        let arbitrators = Arbitrators::of(settings, data_nodes);
        FirstTicket { arbitrators, attempts: 0, state: State::NotAsked }
    }

    /// The ticket of a first view with these members; `None` as long as it is not known.
    pub fn of(&mut self, members: &Members) -> Option<Taken> {
        let Some(arbitrators) = &self.arbitrators else { return Some(None) };
        if let State::Asked(asked, answer) = &mut self.state {
            let taken = match answer.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => None,
                Ok((taken, attempts)) => {
                    self.attempts = attempts;
                    taken
                }
            };
            self.state = State::Known(std::mem::take(asked), taken);
        }
        match &self.state {
            State::Known(known, taken) if known == members => return Some(*taken),
            // Another start of one of them has come meanwhile: that is another cluster.
            State::Known(..) | State::NotAsked | State::Asked(..) => {}
        }
        let (sender, answer) = mpsc::channel();
        let (arbitrators, mut attempts) = (arbitrators.clone(), self.attempts);
        let asked = members.clone();
        let ask = move || {
            let taken = arbitrators.begin(&mut attempts, &asked);
            // Nobody waits for it if the node stops.
            let _ = sender.send((taken, attempts));
        };
        // Without a thread its end of the channel is dropped, and there is no ticket.
        if let Err(why) = thread::Builder::new().name("first ticket".to_string()).spawn(ask) {
            log::warn!(target: super::WHO, "nobody arbitrates: the system has no threads left: {why}");
        }
        self.state = State::Asked(members.clone(), answer);
        None
    }
}
