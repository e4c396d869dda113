//! Which API nodes are connected, and the steps by which a broken one's connections are closed.
//!
//! An API node has at most one connection to each thread that serves sockets. If one of them breaks, or a block wants
//! it closed, all are closed, and then Membership is notified (`ApiDisconnectedReport`). It may be notified only after
//! every frame that was ever read from the API node has been handled, because what Membership then sends to the blocks
//! must come behind those frames; and after every answer that is on its way has been dropped, because the node id may
//! be given to another API node then. So closing has these steps:
//!
//! 1. each thread of the node closes its connection to the API node if it has one, and forgets the route to it;
//! 2. each thread that had a connection sends a marker to each other thread, by the ring in which the frames that it
//!    has read went (`ApiDisconnectedReport` from driver to driver). The thread that receives it has handled them and
//!    has no route to the API node any more. It sends the marker back, behind the last answers that it had sent to the
//!    connection; the step is done when it is back.
//!
//! A thread closes when it finds the order in its inbox, where new connections also arrive: so it knows whether it has
//! one. The order was there before any marker was sent, and messages are read before rings are. The thread that does
//! the last step notifies the main thread, which sends the report.
//!
//! To Membership the whole node is one driver, that of the main thread: Membership's orders are carried out there in
//! the order in which it sent them, and the report is made there. An API node that was closed and is admitted again,
//! perhaps in the same incarnation, has another *admission*: a connection that was confirmed for an earlier one is not
//! served any more.

use std::mem;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::ErrorCode;

/// Number of an admission, counted over all API nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admission(u64);

/// The connected API nodes of a data node, and the progress of closing them.
pub(crate) struct ApiNodes {
    threads: u16,
    admissions: u64,
    /// By node id.
    states: Vec<State>,
}

enum State {
    Absent,
    Open {
        incarnation: Incarnation,
        admission: Admission,
        /// Threads that have a connection to it.
        connected: Vec<u16>,
    },
    Closing {
        incarnation: Incarnation,
        steps_left: u32,
    },
}

/// What becomes of the demand to close an API node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// It begins.
    Begins,
    /// It has begun before.
    UnderWay,
    /// This data node has no connection of it.
    NotConnected,
}

/// Whether a joining connection is the API node's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    First,
    Further,
}

impl ApiNodes {
    /// No API node yet, on a node with this many threads.
    pub fn new(threads: u16) -> Self {
        ApiNodes { threads, admissions: 0, states: (0..=u8::MAX).map(|_| State::Absent).collect() }
    }

    /// Membership has confirmed a connection. `None` if the API node is being closed, which Membership will learn.
    pub fn admit(&mut self, api: NodeId, incarnation: Incarnation) -> Option<Admission> {
        let state = &mut self.states[usize::from(api.0)];
        match state {
            State::Absent => {
                self.admissions += 1;
                let admission = Admission(self.admissions);
                *state = State::Open { incarnation, admission, connected: Vec::new() };
                Some(admission)
            }
            State::Open { incarnation: own, admission, .. } => {
                assert!(
                    *own == incarnation,
                    "Membership is notified that an API node is closed before it admits another incarnation"
                );
                Some(*admission)
            }
            State::Closing { .. } => None,
        }
    }

    /// A connection of an admitted API node is ready to be served.
    ///
    /// # Errors
    /// `ConnectionLost`: its admission has ended. `NodeIdInUse`: the API node has a connection to this thread already.
    pub fn join(&mut self, api: NodeId, admission: Admission, thread: u16) -> Result<Joined, ErrorCode> {
        match &mut self.states[usize::from(api.0)] {
            State::Open { admission: present, connected, .. } if *present == admission => {
                if connected.contains(&thread) {
                    return Err(ErrorCode::NodeIdInUse);
                }
                connected.push(thread);
                Ok(if connected.len() == 1 { Joined::First } else { Joined::Further })
            }
            State::Open { .. } | State::Absent | State::Closing { .. } => Err(ErrorCode::ConnectionLost),
        }
    }

    /// All links to a data node are open, and will be served by these threads. False if it has others, or those are
    /// being closed.
    pub fn link(&mut self, node: NodeId, incarnation: Incarnation, threads: Vec<u16>) -> bool {
        if !self.is_absent(node) {
            return false;
        }
        self.admissions += 1;
        let admission = Admission(self.admissions);
        self.states[usize::from(node.0)] = State::Open { incarnation, admission, connected: threads };
        true
    }

    /// Whether a node has no connection, and none is being closed.
    pub fn is_absent(&self, node: NodeId) -> bool {
        matches!(self.states[usize::from(node.0)], State::Absent)
    }

    /// Which start of a node has connections that are not being closed.
    pub fn open_incarnation(&self, node: NodeId) -> Option<Incarnation> {
        match &self.states[usize::from(node.0)] {
            State::Open { incarnation, .. } => Some(*incarnation),
            State::Absent | State::Closing { .. } => None,
        }
    }

    /// Begins to close all connections of an API node, if there are some.
    pub fn begin_closing(&mut self, api: NodeId) -> Closing {
        let state = &mut self.states[usize::from(api.0)];
        match mem::replace(state, State::Absent) {
            State::Open { incarnation, connected, .. } => {
                let markers = connected.len() as u32 * u32::from(self.threads - 1);
                *state = State::Closing { incarnation, steps_left: u32::from(self.threads) + markers };
                Closing::Begins
            }
            other @ State::Closing { .. } => {
                *state = other;
                Closing::UnderWay
            }
            State::Absent => Closing::NotConnected,
        }
    }

    /// One step of closing is done; returns whether it was the last.
    pub fn note_step(&mut self, api: NodeId) -> bool {
        let State::Closing { steps_left, .. } = &mut self.states[usize::from(api.0)] else {
            panic!("a step of closing API node {api}, which is not being closed");
        };
        *steps_left = steps_left.checked_sub(1).expect("there are no steps after the last one");
        *steps_left == 0
    }

    /// All steps of closing are done: the API node may be admitted again. Returns the incarnation that has ended.
    pub fn finish_closing(&mut self, api: NodeId) -> Incarnation {
        match mem::replace(&mut self.states[usize::from(api.0)], State::Absent) {
            State::Closing { incarnation, steps_left: 0 } => incarnation,
            State::Closing { .. } | State::Absent | State::Open { .. } => {
                panic!("API node {api} has not gone through all steps of closing")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: NodeId = NodeId(200);

    #[test]
    fn the_last_step_reports() {
        let mut nodes = ApiNodes::new(3);
        assert_eq!(nodes.begin_closing(API), Closing::NotConnected);
        let first = nodes.admit(API, Incarnation(7)).unwrap();
        assert_eq!(nodes.join(API, first, 0), Ok(Joined::First));
        assert_eq!(nodes.admit(API, Incarnation(7)), Some(first));
        assert_eq!(nodes.join(API, first, 1), Ok(Joined::Further));
        assert_eq!(nodes.join(API, first, 1), Err(ErrorCode::NodeIdInUse));
        assert_eq!(nodes.begin_closing(API), Closing::Begins);
        assert_eq!(nodes.begin_closing(API), Closing::UnderWay);
        assert_eq!(nodes.join(API, first, 2), Err(ErrorCode::ConnectionLost));
        assert_eq!(nodes.admit(API, Incarnation(7)), None);
        // Three threads close, two of them send a marker to each of two others and get it back.
        for _ in 0..6 {
            assert!(!nodes.note_step(API));
        }
        assert!(nodes.note_step(API));
        assert_eq!(nodes.admit(API, Incarnation(7)), None, "Membership was not notified yet");
        assert_eq!(nodes.finish_closing(API), Incarnation(7));
    }

    #[test]
    fn a_data_node_comes_back_any_number_of_times() {
        let mut nodes = ApiNodes::new(2);
        let node = NodeId(3);
        for start in 1..4 {
            assert!(nodes.link(node, Incarnation(start), vec![0, 1]));
            assert_eq!(nodes.open_incarnation(node), Some(Incarnation(start)));
            assert!(!nodes.link(node, Incarnation(start + 1), vec![0]), "there are links of another start");
            assert_eq!(nodes.begin_closing(node), Closing::Begins);
            assert_eq!((nodes.open_incarnation(node), nodes.is_absent(node)), (None, false));
            for _ in 0..3 {
                assert!(!nodes.note_step(node));
            }
            assert!(nodes.note_step(node));
            assert!(
                !nodes.link(node, Incarnation(start + 1), vec![0]),
                "the main thread does not know it yet"
            );
            assert_eq!(nodes.finish_closing(node), Incarnation(start));
        }
        assert!(nodes.is_absent(node));
    }

    #[test]
    fn the_same_incarnation_comes_back_by_another_admission() {
        let mut nodes = ApiNodes::new(1);
        let first = nodes.admit(API, Incarnation(7)).unwrap();
        let closing = nodes.begin_closing(API);
        assert_eq!(closing, Closing::Begins, "admitted, but its connection has not been handed over");
        assert!(nodes.note_step(API));
        nodes.finish_closing(API);
        let second = nodes.admit(API, Incarnation(7)).unwrap();
        assert_eq!(nodes.join(API, first, 0), Err(ErrorCode::ConnectionLost));
        assert_eq!(nodes.join(API, second, 0), Ok(Joined::First));
    }
}
