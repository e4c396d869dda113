//! A stand-in for the network between clients and a data node: it passes frames on, counts them, and breaks connections
//! when a test wants it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use vinga_wire::{Frame, SignalNumber};

/// A network that a test controls. It ends with the process.
pub struct Proxy {
    shared: Arc<Shared>,
    address: String,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Both ends of each connection.
    sockets: Vec<TcpStream>,
    /// Frames of clients, by the number of their signal.
    frames: BTreeMap<u16, u64>,
}

impl Proxy {
    /// A port that leads to a data node.
    pub fn before(node: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("some port of this machine is free");
        let address = listener.local_addr().expect("a listener has an address").to_string();
        let shared = Arc::new(Shared::default());
        let (accepting, node) = (Arc::clone(&shared), node.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // The client finds out by itself.
                let Ok(server) = TcpStream::connect(&node) else { continue };
                accepting.join(client, server);
            }
        });
        Proxy { shared, address }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many frames of a kind clients have sent.
    pub fn frames(&self, signal: SignalNumber) -> u64 {
        self.shared.lock().frames.get(&(signal as u16)).copied().unwrap_or(0)
    }

    /// Breaks all connections.
    pub fn break_connections(&self) {
        for socket in self.shared.lock().sockets.drain(..) {
            // One that is closed already is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread has panicked")
    }

    /// Passes on what comes, both ways.
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        for socket in [&client, &server] {
            socket.set_nodelay(true).expect("it is a TCP socket");
            self.lock().sockets.push(copy(socket));
        }
        let requests = Arc::clone(self);
        let (from_client, to_server) = (copy(&client), copy(&server));
        thread::spawn(move || {
            let mut counter = Vec::new();
            pass_on(from_client, to_server, |bytes| requests.count(&mut counter, bytes));
        });
        thread::spawn(move || pass_on(server, client, |_| ()));
    }

    fn count(&self, begun: &mut Vec<u8>, bytes: &[u8]) {
        begun.extend_from_slice(bytes);
        let mut used = 0;
        while let Ok(Some(frame)) = Frame::first(&begun[used..]) {
            *self.lock().frames.entry(frame.header.number.get()).or_default() += 1;
            used += frame.length();
        }
        begun.drain(..used);
    }
}

fn copy(socket: &TcpStream) -> TcpStream {
    socket.try_clone().expect("the process may open more files")
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        before(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // What was passed on before arrives all the same.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
