//! The session at one address: its state, and what is known of the data node that answers there.

use crate::error::Error;
use crate::link::LinkId;
use crate::net::{Command, Net};
use alloc::string::String;
use vinga_base::time::Tick;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::handshake::CONNECTIONS_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Waiting {
        until: Tick,
    },
    First {
        since: Tick,
    },
    Further {
        since: Tick,
        missing: u16,
    },
    Ready {
        heartbeat_at: Tick,
    },
    /// Its data node has left the cluster and stops: nothing is begun there any more, but what it has sent before is
    /// still read.
    Parting,
    /// It has been sent the disconnect notice.
    Left,
}

pub(super) struct Session {
    /// Where it is, for the driver.
    pub address: String,
    /// Whether the client was given the address; else it is one of a view.
    pub is_given: bool,
    pub state: State,
    /// Who has answered there last, or who is there by the view that the address is of.
    pub node: Option<NodeId>,
    /// Which start of the node has answered.
    pub incarnation: Incarnation,
    /// In which admission of this client it was opened.
    pub admission: u32,
    /// In which admission connections to that node were lost, if none was opened since, by whatever address; else 0.
    pub lost_in: u32,
    /// When that was, or its data node left, the last time.
    pub lost_at: Option<Tick>,
    /// Whether nobody has answered the last attempt to connect.
    pub is_mute: bool,
    /// Whether the attempt under way was answered by a refusal.
    pub is_refused: bool,
    /// Whether the first connection to it is open: the greeting was sent, and may have been answered.
    pub is_greeted: bool,
    /// Whether nothing waits for the attempt under way any more, as nobody has answered it for so long.
    pub is_slow: bool,
    /// Connections that the driver was ordered to open, one bit each.
    pub opened: u16,
    /// Whether a session was asked for, and nothing was answered yet.
    pub asks_for_session: bool,
    /// Attempts that have failed since it was ready.
    pub failures: u32,
    /// How often it has become ready.
    pub connects: u32,
    /// The start of a data node with which it was that the last time.
    pub was_ready_as: Option<(NodeId, Incarnation)>,
    pub error: Option<Error>,
    /// Whether the first attempt is over.
    pub is_tried: bool,
}

impl Session {
    pub fn new(address: String, is_given: bool, since: Tick) -> Self {
        Session {
            address,
            is_given,
            state: State::Waiting { until: since },
            node: None,
            incarnation: Incarnation(0),
            admission: 0,
            lost_in: 0,
            lost_at: None,
            is_mute: false,
            is_refused: false,
            is_greeted: false,
            is_slow: false,
            opened: 0,
            asks_for_session: false,
            failures: 0,
            connects: 0,
            was_ready_as: None,
            error: None,
            is_tried: false,
        }
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Closes all its connections.
    pub fn close(&mut self, net: &mut Net, endpoint: u16) {
        for connection in 0..CONNECTIONS_MAX {
            let link = LinkId::new(endpoint, connection);
            self.close_one(net, link);
            // Something may have been written for one that was closed before.
            net.link(link).reset();
        }
        self.is_greeted = false;
        self.is_slow = false;
    }

    /// Closes one of its connections, if it is open.
    pub fn close_one(&mut self, net: &mut Net, link: LinkId) {
        if self.opened & 1 << link.connection() != 0 {
            self.opened &= !(1 << link.connection());
            net.link(link).reset();
            net.commands.push_back(Command::Close(link));
        }
    }

    pub fn open(&mut self, net: &mut Net, link: LinkId) {
        self.opened |= 1 << link.connection();
        net.commands.push_back(Command::Open(link));
    }
}
