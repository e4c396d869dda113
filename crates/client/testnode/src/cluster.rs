//! Scripted nodes behind sockets of this machine: members of one view, of which a test kills some, or holds answers
//! back.
//!
//! All are of one node group and have the same rows. The test says when the others go on without one that was killed.

use crate::scripted_node::{Common, Layout, ScriptedNode};
use crate::store::Store;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use vinga_base::NodeId;
use vinga_wire::view::{ClusterView, Member};

/// A cluster for tests. Its threads end with the process.
pub struct ScriptedCluster {
    shared: Arc<Shared>,
    addresses: Vec<String>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    nodes: BTreeMap<u8, Node>,
    store: Store,
    common: Common,
    view: ClusterView,
    /// Node and socket of each connection.
    sockets: BTreeMap<usize, (u8, TcpStream)>,
    connections: usize,
}

struct Node {
    machine: ScriptedNode,
    is_alive: bool,
    holds_answers: bool,
}

impl ScriptedCluster {
    /// A cluster of so many nodes, with the ids from 1. `shown` says for each node by which address clients find it in
    /// the view, given the one at which it listens.
    pub fn start(nodes: u8, layout: Layout, shown: impl Fn(u8, &str) -> String) -> Self {
        let listeners: Vec<TcpListener> =
            (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("some port is free")).collect();
        let addresses: Vec<String> = listeners
            .iter()
            .map(|one| one.local_addr().expect("a listener has an address").to_string())
            .collect();
        let member = |(id, address): (u8, &String)| Member {
            address: shown(id, address),
            ..layout.member(NodeId(id), 1)
        };
        let view = ClusterView::first((1..).zip(&addresses).map(member).collect());
        let node = |id| {
            let machine = ScriptedNode::of_cluster(NodeId(id), layout, view.clone());
            (id, Node { machine, is_alive: true, holds_answers: false })
        };
        let state = State {
            nodes: (1..=nodes).map(node).collect(),
            store: Store::default(),
            common: Common::default(),
            view: view.clone(),
            sockets: BTreeMap::new(),
            connections: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        for (id, listener) in (1..).zip(listeners) {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(id, &listener));
        }
        ScriptedCluster { shared, addresses }
    }

    /// Where a node listens.
    pub fn address(&self, node: u8) -> &str {
        &self.addresses[usize::from(node) - 1]
    }

    /// The node that is primary of a partition.
    pub fn primary(&self, partition: u16) -> u8 {
        self.shared.lock().view.partitions()[usize::from(partition)].chain.primary().0
    }

    /// Frames of a kind that a node has handled.
    pub fn handled(&self, node: u8, signal: vinga_wire::SignalNumber) -> u64 {
        self.shared.lock().nodes[&node].machine.handled.get(&(signal as u16)).copied().unwrap_or(0)
    }

    /// A node dies: its connections break, and nobody listens at its address any more. The others have not noticed yet.
    pub fn kill(&self, node: u8) {
        let mut state = self.shared.lock();
        let State { nodes, common, .. } = &mut *state;
        let dead = nodes.get_mut(&node).expect("there is such a node");
        dead.is_alive = false;
        dead.machine.bequeath(common);
        for (of, socket) in state.sockets.values() {
            if *of == node {
                // One that is closed already is as good.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        // Its listener looks whether it is still alive.
        drop(TcpStream::connect(self.address(node)));
    }

    /// The others go on without a node that was killed: there is another view.
    pub fn go_on_without(&self, node: u8) {
        let mut state = self.shared.lock();
        state.view = state.view.without(&[NodeId(node)]);
        let State { nodes, view, .. } = &mut *state;
        nodes.values_mut().filter(|node| node.is_alive).for_each(|node| node.machine.adopt(view));
        let alive: Vec<u8> =
            state.nodes.iter().filter(|(_, node)| node.is_alive).map(|(id, _)| *id).collect();
        alive.into_iter().for_each(|id| state.send_answers(id));
    }

    /// Whether answers of a node are kept from clients for the time being.
    pub fn hold_answers(&self, node: u8, holds: bool) {
        let mut state = self.shared.lock();
        state.nodes.get_mut(&node).expect("there is such a node").holds_answers = holds;
        state.send_answers(node);
    }

    /// The connections to a node break, which lives on. As soon as it notices, those to all others are closed, too.
    pub fn break_connections(&self, node: u8) {
        for (of, socket) in self.shared.lock().sockets.values() {
            if *of == node {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread has panicked")
    }

    fn accept(self: &Arc<Self>, node: u8, listener: &TcpListener) {
        for socket in listener.incoming().flatten() {
            let mut state = self.lock();
            if !state.nodes[&node].is_alive {
                return;
            }
            socket.set_nodelay(true).expect("it is a TCP socket");
            state.connections += 1;
            let connection = state.connections;
            let copy = socket.try_clone().expect("the process may open more files");
            state.sockets.insert(connection, (node, copy));
            let shared = Arc::clone(self);
            thread::spawn(move || shared.serve(node, connection, socket));
        }
    }

    fn serve(&self, node: u8, connection: usize, mut socket: TcpStream) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            let mut state = self.lock();
            if !state.take_bytes(node, connection, &buffer[..count]) {
                break;
            }
            state.send_answers(node);
        }
        self.lock().close(node, connection);
    }
}

impl State {
    fn take_bytes(&mut self, node: u8, connection: usize, bytes: &[u8]) -> bool {
        let State { nodes, store, common, .. } = self;
        let node = nodes.get_mut(&node).expect("it has connections");
        if !node.is_alive {
            return false;
        }
        node.machine.exchange(store, common);
        let goes_on = node.machine.on_bytes(connection, bytes);
        node.machine.exchange(store, common);
        goes_on
    }

    fn send_answers(&mut self, node: u8) {
        let State { nodes, sockets, .. } = self;
        let Node { machine, holds_answers: false, .. } = nodes.get_mut(&node).expect("there is such a node")
        else {
            return;
        };
        for (connection, (_, socket)) in sockets.iter_mut().filter(|(_, (of, _))| *of == node) {
            let mut bytes = Vec::new();
            machine.take_all(*connection, &mut bytes);
            // A client that has closed it gets nothing more.
            let _ = socket.write_all(&bytes);
        }
    }

    /// A connection has ended: so do all others of its session, unless the node has died with it.
    fn close(&mut self, node: u8, connection: usize) {
        if let Some((_, socket)) = self.sockets.remove(&connection) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        if !self.nodes[&node].is_alive {
            return;
        }
        let api = self.nodes[&node].machine.client_of(connection);
        let mut closed = Vec::new();
        for other in self.nodes.values_mut().filter(|node| node.is_alive) {
            let connections = match api {
                Some(api) => other.machine.connections_of(api),
                None => vec![connection],
            };
            for one in connections {
                closed.extend(other.machine.on_closed(one));
            }
        }
        for one in closed {
            if let Some((_, socket)) = self.sockets.get(&one) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}
