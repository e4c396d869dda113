//! The connections of an API node, as its client has them: opened and closed as it wants, with what waits to be sent.

use crate::agenda::Time;
use crate::pipe::Payload;
use crate::topology::node_at;
use crate::world::World;
use std::collections::BTreeMap;
use vinga_base::NodeId;
use vinga_client_core::{Command, LinkId};
use vinga_wire::ErrorCode;

/// How long a client waits that finds no room in a connection.
const NO_ROOM_PAUSE: Time = 200;

/// One connection.
pub struct Link {
    /// Which of the world's.
    pub connection: usize,
    is_open: bool,
    /// The beginning of a frame that has come.
    pub partial: Vec<u8>,
    /// What the client has given out and there was no room for.
    unsent: Vec<u8>,
}

/// All connections of an API node that its client wants.
#[derive(Default)]
pub struct Links {
    list: BTreeMap<LinkId, Link>,
}

impl Links {
    /// The connection of a link, if the world's is still the one that the client means.
    pub fn get_mut(&mut self, link: LinkId, connection: usize) -> Option<&mut Link> {
        self.list.get_mut(&link).filter(|link| link.connection == connection)
    }

    /// The open ones, as the world numbers them.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        self.list.values().filter(|link| link.is_open).map(|link| link.connection)
    }

    /// Takes all away; returns those that were open.
    pub fn take_all(&mut self) -> Vec<usize> {
        let open = self.open().collect();
        self.list.clear();
        open
    }

    /// Whether nothing waits for room.
    pub fn is_idle(&self) -> bool {
        self.list.values().all(|link| link.unsent.is_empty())
    }
}

impl World {
    /// Does what a client wants done with connections.
    pub(crate) fn carry_out(&mut self, api: usize) {
        while let Some(command) = self.apis[api].caller.client.next_command() {
            match command {
                Command::Open(link) => {
                    let connection = self.open_connection(api, link, self.node_of(api, link));
                    let link_of =
                        Link { connection, is_open: false, partial: Vec::new(), unsent: Vec::new() };
                    self.apis[api].links.list.insert(link, link_of);
                }
                Command::Close(link) => {
                    self.check_reason(api, link);
                    if self.may_have_led(self.node_of(api, link).0) {
                        self.apis[api].caller.on_notifier_lost();
                    }
                    let Some(closed) = self.apis[api].links.list.remove(&link) else { continue };
                    if closed.is_open {
                        self.pipes[self.connections[closed.connection].down.0].shatter(&mut self.random);
                        self.break_pipe(self.connections[closed.connection].up);
                    }
                }
            }
        }
    }

    /// The data node to which a client's connection leads.
    fn node_of(&self, api: usize, link: LinkId) -> NodeId {
        node_at(self.apis[api].caller.client.address(link.endpoint()))
    }

    /// A client must never find fault with what a data node sends.
    fn check_reason(&mut self, api: usize, link: LinkId) {
        let endpoints = self.apis[api].caller.client.endpoints();
        let error = endpoints[usize::from(link.endpoint())].error.as_ref();
        if let Some(error) = error.filter(|error| is_fault_of_node(error.code())) {
            self.violations.push(format!("API node {api} closes {link:?}: {error}"));
        }
    }

    /// A connection that was asked for is there, or can't be had.
    pub(crate) fn on_connection_opened(&mut self, connection: usize, is_open: bool) {
        let (api, start) = (self.connections[connection].api, self.connections[connection].start);
        let link = self.connections[connection].client_link;
        let node = &mut self.apis[api];
        let is_wanted = node.is_alive && node.start == start;
        let wanted = node.links.get_mut(link, connection).filter(|_| is_wanted);
        match wanted {
            None => {
                if is_open {
                    self.break_pipe(self.connections[connection].up);
                }
                return;
            }
            Some(wanted) if is_open => {
                wanted.is_open = true;
                self.on_api_time(api);
                self.apis[api].caller.client.on_opened(link);
            }
            Some(_) => {
                self.on_api_time(api);
                self.apis[api].caller.client.on_broken(link, "nobody answers");
            }
        }
        self.pump(api);
    }

    /// A connection has ended behind all that came on it.
    pub(crate) fn on_api_connection_end(&mut self, api: usize, connection: usize) {
        let link = self.connections[connection].client_link;
        if self.apis[api].links.get_mut(link, connection).is_some() {
            self.break_pipe(self.connections[connection].up);
            self.apis[api].caller.client.on_broken(link, "the connection is closed");
        }
    }

    /// Moves what a client has to say into its connections.
    pub(crate) fn flush(&mut self, api: usize) {
        let links: Vec<LinkId> = self.apis[api].links.list.keys().copied().collect();
        for link in links {
            self.flush_link(api, link);
        }
        let mut buffer = Vec::new();
        while let Some(link) = self.apis[api].caller.client.next_output(&mut buffer) {
            match self.apis[api].links.list.get_mut(&link) {
                Some(to) => to.unsent.append(&mut buffer),
                None => self.violations.push(format!("API node {api} sends by {link:?}, which is closed")),
            }
            buffer.clear();
            self.flush_link(api, link);
        }
    }

    fn flush_link(&mut self, api: usize, link: LinkId) {
        let node = &mut self.apis[api];
        let Some(from) = node.links.list.get_mut(&link).filter(|from| !from.unsent.is_empty()) else {
            return;
        };
        let up = self.connections[from.connection].up;
        let room = self.pipes[up.0].room();
        let taken: Vec<u8> = from.unsent.drain(..from.unsent.len().min(room)).collect();
        let is_blocked = !from.unsent.is_empty();
        node.caller.client.set_blocked(link, is_blocked);
        if !taken.is_empty() {
            self.put_split(up, self.now(), Payload::Bytes(taken));
        }
        if is_blocked {
            self.wake_api(api, self.now() + NO_ROOM_PAUSE);
        }
    }

    /// The client has left: its connections are closed behind its last words.
    pub(crate) fn close_behind(&mut self, connections: Vec<usize>) {
        for connection in connections {
            self.put(self.connections[connection].up, self.now(), Payload::End);
        }
    }
}

fn is_fault_of_node(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MalformedSignal
            | ErrorCode::MalformedFrame
            | ErrorCode::BadHandshake
            | ErrorCode::WrongProtocol
            | ErrorCode::UnexpectedSignal
            | ErrorCode::InternalError
            | ErrorCode::NoFreeNodeId
    )
}
