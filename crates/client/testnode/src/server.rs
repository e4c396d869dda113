//! A scripted node behind a port of this machine, one thread a connection.

use crate::scripted_node::{Layout, ScriptedNode};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// A node that listens. It goes with the process.
pub struct TestNode {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    node: Mutex<ScriptedNode>,
    sockets: Mutex<BTreeMap<usize, TcpStream>>,
}

/// Starts a node with one thread's layout.
pub fn start() -> TestNode {
    start_with(Layout::default())
}

/// Starts a node.
pub fn start_with(layout: Layout) -> TestNode {
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port of this machine is free");
    let address = listener.local_addr().expect("a listener has an address");
    let shared = Arc::new(Shared {
        node: Mutex::new(ScriptedNode::new(layout)),
        sockets: Mutex::new(BTreeMap::new()),
    });
    let accepting = Arc::clone(&shared);
    thread::spawn(move || {
        for (connection, socket) in listener.incoming().enumerate() {
            let Ok(socket) = socket else { continue };
            socket.set_nodelay(true).expect("it is a TCP socket");
            let serving = Arc::clone(&accepting);
            thread::spawn(move || serving.serve(connection, socket));
        }
    });
    TestNode { shared, address }
}

impl TestNode {
    /// Where it listens, as clients are told.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The node's inside.
    pub fn node(&self) -> MutexGuard<'_, ScriptedNode> {
        self.shared.node.lock().expect("no thread has panicked")
    }

    /// Breaks all connections.
    pub fn break_connections(&self) {
        let sockets = self.shared.sockets.lock().expect("no thread has panicked");
        for socket in sockets.values() {
            // One that is closed already is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Dies and comes back: tables and rows are there, clients are forgotten.
    pub fn restart(&self) {
        self.node().restart();
        self.break_connections();
    }
}

impl Shared {
    fn serve(&self, connection: usize, mut socket: TcpStream) {
        let mut writer = socket.try_clone().expect("the process may open more files");
        self.sockets().insert(connection, socket.try_clone().expect("the process may open more files"));
        let mut buffer = vec![0; 256 * 1024];
        let mut out = Vec::new();
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            let mut node = self.node.lock().expect("no thread has panicked");
            if !node.on_bytes(connection, &buffer[..count]) {
                break;
            }
            // A row report may have to go out by another connection than its train came by.
            let mut others: Vec<usize> = node.waiting().map(|(of, _)| of).collect();
            others.dedup();
            for other in others {
                out.clear();
                node.take_all(other, &mut out);
                if other == connection {
                    let _ = writer.write_all(&out);
                } else if let Some(mut socket) = self.sockets().get(&other) {
                    let _ = socket.write_all(&out);
                }
            }
        }
        let closed = self.node.lock().expect("no thread has panicked").on_closed(connection);
        let mut sockets = self.sockets();
        for at in closed.into_iter().chain([connection]) {
            if let Some(socket) = sockets.remove(&at) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<usize, TcpStream>> {
        self.sockets.lock().expect("no thread has panicked")
    }
}
