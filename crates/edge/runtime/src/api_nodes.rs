//! Which API nodes are connected, and the steps by which one that breaks is taken apart.
//!
//! An API node has at most one connection to each thread that serves sockets. If one of them breaks, or a block wants
//! it closed, all are closed, and then Membership is told (`ApiDisconnectedReport`). It may be told only when every
//! frame that was ever read from the API node has been handled, because what Membership then sends to the blocks
//! must come behind those frames; and when every answer that is on its way has been forgotten, because the node id may
//! be given to somebody else then. So closing has these steps, and the thread that does the last one reports:
//!
//! 1. each thread of the node closes its connection to the API node if it has one, and forgets the way to it;
//! 2. each thread that had a connection sends a marker to each other thread, by the ring in which the frames that it
//!    has read went (`ApiDisconnectedReport` from driver to driver). The thread that receives it has handled them and
//!    knows no way to the API node any more. It sends the marker back, behind the last answers that it had sent to the
//!    connection; the step is done when it is back.
//!
//! A thread closes when it finds the order in its mailbox, where new connections come from too: so it knows whether
//! it has one. The order was there before any marker was sent, and mail is read before rings are.

use std::mem;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::ErrorCode;

/// The API nodes of a node. See the head of this file.
pub(crate) struct ApiNodes {
    threads: u16,
    /// By node id.
    states: Vec<State>,
}

enum State {
    Absent,
    Open {
        incarnation: Incarnation,
        ticket: u64,
        /// Threads that have a connection to it.
        connected: Vec<u16>,
    },
    Closing {
        incarnation: Incarnation,
        steps_left: u32,
    },
}

impl ApiNodes {
    /// None yet, on a node with so many threads.
    pub fn new(threads: u16) -> Self {
        ApiNodes { threads, states: (0..=u8::MAX).map(|_| State::Absent).collect() }
    }

    /// A new API node with its first connection.
    ///
    /// # Errors
    /// It is connected already.
    pub fn open(
        &mut self,
        api: NodeId,
        incarnation: Incarnation,
        ticket: u64,
        thread: u16,
    ) -> Result<(), ErrorCode> {
        let state = &mut self.states[usize::from(api.0)];
        match state {
            State::Absent => {
                *state = State::Open { incarnation, ticket, connected: vec![thread] };
                Ok(())
            }
            State::Open { .. } | State::Closing { .. } => Err(ErrorCode::NodeIdInUse),
        }
    }

    /// A further connection of an API node.
    ///
    /// # Errors
    /// The API node is not connected any more, or it has this connection already.
    pub fn join(&mut self, api: NodeId, ticket: u64, thread: u16) -> Result<(), ErrorCode> {
        match &mut self.states[usize::from(api.0)] {
            State::Open { ticket: own, connected, .. } if *own == ticket => {
                if connected.contains(&thread) {
                    return Err(ErrorCode::NodeIdInUse);
                }
                connected.push(thread);
                Ok(())
            }
            State::Open { .. } | State::Absent | State::Closing { .. } => Err(ErrorCode::ConnectionLost),
        }
    }

    /// Begins to close all connections of an API node; false if it is not connected or being closed already.
    pub fn begin_closing(&mut self, api: NodeId) -> bool {
        let state = &mut self.states[usize::from(api.0)];
        match mem::replace(state, State::Absent) {
            State::Open { incarnation, connected, .. } => {
                let markers = connected.len() as u32 * u32::from(self.threads - 1);
                *state = State::Closing { incarnation, steps_left: u32::from(self.threads) + markers };
                true
            }
            other @ (State::Absent | State::Closing { .. }) => {
                *state = other;
                false
            }
        }
    }

    /// One step of closing is done. After the last one it says which incarnation of the API node is gone.
    pub fn note_step(&mut self, api: NodeId) -> Option<Incarnation> {
        let state = &mut self.states[usize::from(api.0)];
        let State::Closing { incarnation, steps_left } = state else {
            panic!("a step of closing API node {api}, which is not being closed");
        };
        let incarnation = *incarnation;
        *steps_left -= 1;
        (*steps_left == 0).then(|| {
            *state = State::Absent;
            incarnation
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: NodeId = NodeId(200);

    #[test]
    fn the_last_step_reports() {
        let mut nodes = ApiNodes::new(3);
        assert!(!nodes.begin_closing(API));
        nodes.open(API, Incarnation(7), 99, 0).unwrap();
        assert_eq!(nodes.open(API, Incarnation(8), 1, 0), Err(ErrorCode::NodeIdInUse));
        assert_eq!(nodes.join(API, 98, 1), Err(ErrorCode::ConnectionLost));
        nodes.join(API, 99, 1).unwrap();
        assert_eq!(nodes.join(API, 99, 1), Err(ErrorCode::NodeIdInUse));
        assert!(nodes.begin_closing(API));
        assert!(!nodes.begin_closing(API));
        assert_eq!(nodes.join(API, 99, 2), Err(ErrorCode::ConnectionLost));
        assert_eq!(nodes.open(API, Incarnation(8), 1, 0), Err(ErrorCode::NodeIdInUse));
        // Three threads close, two of them send a marker to two others each and have it back.
        for _ in 0..6 {
            assert_eq!(nodes.note_step(API), None);
        }
        assert_eq!(nodes.note_step(API), Some(Incarnation(7)));
        nodes.open(API, Incarnation(8), 1, 0).unwrap();
    }
}
