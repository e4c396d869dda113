//! The registrar's table of API node ids: what is known of each.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Scrutiny;
use vinga_wire::Address;
use vinga_wire::handshake::DataNodeStart;
use vinga_wire::membership::ApiAdmissionRequest;
use vinga_wire::view::{ClusterView, Member};

/// One session of an API node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Which one: greater than that of any earlier session with this id.
    pub incarnation: Incarnation,
    /// What its greeting asked for. Of two starts of a process the later asks for a greater one, whatever the first one
    /// got.
    pub requested: Incarnation,
    /// What its further connections must know. Never 0.
    pub ticket: u64,
    /// How often it was admitted, from 1.
    pub admission: u32,
}

/// A connection that waits to be admitted.
#[derive(Debug)]
pub struct Candidate {
    /// The membership of the data node where it waits, which asks, and is answered.
    pub host: Address,
    /// What it asked.
    pub request: ApiAdmissionRequest,
}

impl Candidate {
    /// The incarnation that it belongs to, or asks for if it begins a session.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.request.incarnation)
    }

    /// Whether it belongs to a session, or has begun it: then it was asked about before.
    pub fn is_of(&self, session: &Session) -> bool {
        let is_same = self.request.is_new || self.incarnation() == session.incarnation;
        is_same && self.request.ticket == session.ticket
    }

    /// Which connections to these data nodes the session has lost without their knowing it yet. What it has lost of an
    /// earlier admission is closed everywhere: its API node has not learned of the present one when it greeted. So is
    /// what it has lost of an earlier start of a data node: it may have been admitted by the present one when it
    /// greeted another.
    pub fn loss(&self, session: &Session, hosts: &BTreeSet<Address>, view: &ClusterView) -> Loss {
        let start =
            |member: &Member| DataNodeStart { node: member.node.0, incarnation: member.incarnation.0 };
        let is_lost = |member: &&Member| self.request.lost.contains(&start(member));
        let members = hosts.iter().filter_map(|host| view.member(host.node()));
        let mut lost = members.filter(is_lost).peekable();
        if self.request.admission != session.admission || lost.peek().is_none() {
            Loss::Nothing
        } else if lost.all(|member| view.is_leaving(member.node) && member.node != self.host.node()) {
            Loss::Leavers
        } else {
            Loss::Members
        }
    }
}

/// To which data nodes a session has lost connections, of those that it is connected to as far as the registrar knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// To none.
    Nothing,
    /// Only to such as are to stop, and it does not greet one of these. They end their connections when nothing is owed
    /// any more, and others may see that before they have the view without them: nobody needs to come back for that.
    /// Whichever is the case, a report of closed connections follows, or that view.
    Leavers,
    /// Also to others: what was sent by these connections may be carried out still.
    Members,
}

/// Who connects when an id's connections have been closed.
#[derive(Debug)]
pub enum Next {
    /// Nobody so far.
    Nobody,
    /// Nobody of the present session: it has disconnected.
    NotThisSession,
    /// The same session; one candidate for each of its connections, so at most as many as it may have.
    SameSession(Vec<Candidate>),
    /// A newer session of the node with this id: the present one will not come back.
    NewSession(Candidate),
}

impl Next {
    fn check_invariants(&self, id: NodeId) {
        if let Next::SameSession(candidates) = self {
            assert!(!candidates.is_empty(), "API node {id}: somebody wants to come back");
            let ticket = candidates[0].request.ticket;
            assert!(candidates.iter().all(|one| one.request.ticket == ticket), "API node {id}: one session");
        }
    }
}

/// What happens to an id. See the picture in the crate's head.
#[derive(Debug)]
pub enum State {
    /// Nobody has it, nothing of an earlier owner is left anywhere.
    Free,
    /// The blocks are notified that it is admitted.
    Admitting {
        session: Session,
        /// Memberships of the data nodes whose blocks have not all confirmed yet. Never empty.
        awaited: BTreeSet<Address>,
        /// Its connections, which are confirmed then. Empty if they have been closed meanwhile.
        waiting: Vec<Candidate>,
    },
    /// Alive.
    Connected {
        session: Session,
        /// The memberships of the data nodes that it has connections to. Never empty.
        hosts: BTreeSet<Address>,
        /// Further connections, which wait until it is known why others were lost ([`Loss::Leavers`]).
        held: Vec<Candidate>,
    },
    /// All its connections are being closed.
    Disconnecting {
        session: Session,
        /// Those whose data nodes still have connections of it. Never empty.
        awaited: BTreeSet<Address>,
        next: Next,
    },
    /// The blocks have been notified that its connections are closed.
    Closing {
        session: Session,
        /// Memberships of the data nodes whose blocks have not all confirmed yet. Never empty.
        awaited: BTreeSet<Address>,
        next: Next,
    },
    /// It may come back until the grace time of this number is over.
    Closed { session: Session, grace: u64 },
    /// Declared failed; the blocks forget it.
    Failing {
        session: Session,
        /// Memberships of the data nodes whose blocks have not all confirmed yet. Never empty.
        awaited: BTreeSet<Address>,
        /// Who has the id next.
        successor: Option<Candidate>,
    },
}

impl State {
    /// The session that has the id.
    pub fn session(&self) -> Option<&Session> {
        match self {
            State::Free => None,
            State::Admitting { session, .. }
            | State::Connected { session, .. }
            | State::Disconnecting { session, .. }
            | State::Closing { session, .. }
            | State::Closed { session, .. }
            | State::Failing { session, .. } => Some(session),
        }
    }

    fn phase(&self) -> Option<Phase> {
        match self {
            State::Free => None,
            State::Admitting { .. } => Some(Phase::Admitting),
            State::Connected { .. } => Some(Phase::Connected),
            State::Disconnecting { .. } => Some(Phase::Disconnecting),
            State::Closing { .. } => Some(Phase::Closing),
            State::Closed { .. } => Some(Phase::Closed),
            State::Failing { .. } => Some(Phase::Failing),
        }
    }
}

/// The state of an id in one word, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its connections are confirmed in a moment.
    Admitting,
    /// Alive.
    Connected,
    /// Its connections are being closed.
    Disconnecting,
    /// What can't go on without it is being ended.
    Closing,
    /// It may still come back.
    Closed,
    /// It is being forgotten.
    Failing,
}

/// The greatest incarnation that a client can choose.
const INCARNATION_FIRST_MAX: u32 = u32::MAX / 2;

/// All ids that API nodes may have.
pub struct ApiNodes {
    first: NodeId,
    states: Vec<State>,
    /// The newest incarnation that each id was given with; 0 if it never was.
    newest: Vec<Incarnation>,
    max: usize,
}

impl ApiNodes {
    /// The ids from `first` to 255, of which `max` may be in use.
    pub fn new(first: NodeId, max: u8) -> Self {
        assert!(first.0 > 0, "0 means no node");
        let ids = first.0..=u8::MAX;
        let states = ids.clone().map(|_| State::Free).collect();
        let newest = ids.map(|_| Incarnation(0)).collect();
        ApiNodes { first, states, newest, max: usize::from(max) }
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.first.0..=u8::MAX).map(NodeId)
    }

    /// The lowest id.
    pub fn first(&self) -> NodeId {
        self.first
    }

    /// How many may be in use.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Whether no more may be taken.
    pub fn is_full(&self) -> bool {
        self.iter().count() >= self.max
    }

    /// The id whose session has this ticket.
    pub fn with_ticket(&self, ticket: u64) -> Option<NodeId> {
        let mut of = self.ids().zip(&self.states);
        of.find(|(_, state)| state.session().is_some_and(|session| session.ticket == ticket))
            .map(|(id, _)| id)
    }

    /// An id that nobody has, and that can be given.
    pub fn free_id(&self) -> Option<NodeId> {
        let mut all = self.ids().zip(self.states.iter().zip(&self.newest));
        let is_free = |(_, (state, newest)): &(_, (&State, &Incarnation))| {
            matches!(state, State::Free) && newest.0 < u32::MAX
        };
        all.find(is_free).map(|(id, _)| id)
    }

    fn index(&self, id: NodeId) -> Option<usize> {
        id.0.checked_sub(self.first.0).map(usize::from)
    }

    /// The state of an id; `None` if it is not one of an API node.
    pub fn get(&self, id: NodeId) -> Option<&State> {
        self.states.get(self.index(id)?)
    }

    /// The state of an id, to change it; `None` if it is not one of an API node.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut State> {
        let index = self.index(id)?;
        self.states.get_mut(index)
    }

    /// The incarnation of a session that begins with this id: that after the one before, whatever it asks for. Ids of
    /// transactions have its low 16 bits, and replicas may have records of an earlier session's transactions still when
    /// all else of it is forgotten. So these bits come again after 65,535 other sessions of this id, each of which all
    /// blocks have forgotten; if clients chose, they could come again at once.
    ///
    /// The first one gets what it asks for, which is its clock's: so the sessions before a restart of the cluster have
    /// had others, if not very many of them came one after the other. Without the highest bit, so that there are enough
    /// above it. `None` when these are used up.
    pub fn next_incarnation(&mut self, id: NodeId, requested: Incarnation) -> Option<Incarnation> {
        let at = self.index(id).expect("it is the id of an API node");
        let newest = &mut self.newest[at];
        *newest = match newest.0 {
            0 => Incarnation((requested.0 & INCARNATION_FIRST_MAX).max(1)),
            before => Incarnation(before.checked_add(1)?),
        };
        Some(*newest)
    }

    /// An id was given with this incarnation by an earlier registrar.
    pub fn note_incarnation(&mut self, id: NodeId, incarnation: Incarnation) {
        if let Some(at) = self.index(id) {
            self.newest[at] = self.newest[at].max(incarnation);
        }
    }

    /// Takes the state out to make the next one of it; the id is free meanwhile.
    pub fn take(&mut self, id: NodeId) -> State {
        let state = self.get_mut(id).expect("it is the id of an API node");
        core::mem::replace(state, State::Free)
    }

    /// Sets the state of an id.
    pub fn set(&mut self, id: NodeId, state: State) {
        *self.get_mut(id).expect("it is the id of an API node") = state;
    }

    /// Panics if a state waits for nobody, or if more ids are in use than may be.
    pub fn check_invariants(&self, scrutiny: Scrutiny) {
        if scrutiny < Scrutiny::Full {
            return;
        }
        assert!(self.iter().count() <= self.max, "at most {} ids are in use", self.max);
        for (id, state) in self.ids().zip(&self.states) {
            match state {
                State::Free => {}
                State::Admitting { session, awaited, waiting } => {
                    assert!(
                        !awaited.is_empty(),
                        "API node {id}: a data node has not confirmed the admission"
                    );
                    assert!(session.ticket != 0, "API node {id} has a ticket");
                    let is_one = |one: &Candidate| one.is_of(session);
                    assert!(waiting.iter().all(is_one), "API node {id}: one session");
                }
                State::Connected { session, hosts, held } => {
                    assert!(!hosts.is_empty(), "API node {id} is connected somewhere");
                    assert!(session.ticket != 0, "API node {id} has a ticket");
                    assert!(held.iter().all(|one| one.is_of(session)), "API node {id}: one session");
                }
                State::Disconnecting { awaited, next, .. } => {
                    assert!(!awaited.is_empty(), "API node {id}: a data node has connections of it");
                    next.check_invariants(id);
                }
                State::Closing { awaited, next, .. } => {
                    assert!(!awaited.is_empty(), "API node {id}: a data node has not confirmed the closing");
                    next.check_invariants(id);
                }
                State::Closed { session, grace } => {
                    assert!(session.ticket != 0 && *grace > 0, "API node {id} can come back for a time");
                }
                State::Failing { awaited, .. } => {
                    assert!(!awaited.is_empty(), "API node {id}: a data node has not confirmed its failure");
                }
            }
        }
    }

    /// Those in use.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Incarnation, Phase)> {
        let all = self.ids().zip(&self.states);
        all.filter_map(|(id, state)| Some((id, state.session()?.incarnation, state.phase()?)))
    }
}
