//! The connections that a send thread writes for their owners; see [`crate::relay`].

use crate::parker::thread_bit;
use crate::poller::{Interest, Poller, Ready};
use crate::relay::Outlet;
use crate::statistics::ThreadStatistics;
use crate::switchboard::Switchboard;
use vinga_base::NodeId;

/// The connections that a send thread writes for their owners.
pub(crate) struct Outlets {
    own: u16,
    /// By place; a place is the name by which the poller knows the socket.
    places: Vec<Option<Outlet>>,
    count: usize,
    /// Names of places begin here.
    first_token: u64,
}

impl Outlets {
    /// No connection yet, for the thread with this index. Sockets get names from `first_token` on.
    pub fn new(own: u16, first_token: u64) -> Self {
        Outlets { own, places: Vec::new(), count: 0, first_token }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Begins to write a connection.
    pub fn open(
        &mut self,
        mut outlet: Outlet,
        poller: &Poller,
        switchboard: &Switchboard,
        statistics: &ThreadStatistics,
    ) {
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Err(why) = poller.add(outlet.stream(), self.first_token + place as u64, Interest::Write) {
            outlet.note_failure(&why);
            switchboard.wake(outlet.owner, self.own, statistics);
        }
        self.places[place] = Some(outlet);
        self.count += 1;
    }

    /// Writes what can still be written of a connection and drops it. It exists: its owner has opened it before.
    pub fn close(&mut self, owner: u16, api: NodeId, poller: &Poller, statistics: &ThreadStatistics) {
        let is_wanted = |outlet: &Outlet| outlet.owner == owner && outlet.api == api;
        let place = self.places.iter_mut().find(|place| place.as_ref().is_some_and(is_wanted));
        let outlet = place.and_then(Option::take).expect("what is closed was opened");
        self.count -= 1;
        poller.remove(outlet.stream());
        outlet.close(statistics);
    }

    /// Notes what a socket has reported.
    pub fn note(&mut self, ready: Ready) {
        let place = (ready.token - self.first_token) as usize;
        // Errors and ends are left for the next write to find.
        if let Some(outlet) = self.places[place].as_mut().filter(|_| ready.is_writable || ready.is_ending) {
            outlet.note_writable();
        }
    }

    /// Writes what the owners in `word` have put in, and what was left over.
    pub fn serve(&mut self, word: u64, switchboard: &Switchboard, statistics: &ThreadStatistics) {
        for outlet in self.places.iter_mut().flatten() {
            outlet.may_have_more |= word & thread_bit(outlet.owner) != 0;
            if outlet.can_be_served() && outlet.serve(statistics) {
                switchboard.wake(outlet.owner, self.own, statistics);
            }
        }
    }

    /// Whether something is left that can be written at once.
    pub fn has_left(&self) -> bool {
        self.places.iter().flatten().any(Outlet::can_be_served)
    }
}
