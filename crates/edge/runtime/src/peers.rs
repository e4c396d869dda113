//! Addresses of the node and of its API nodes, for people.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vinga_base::NodeId;

/// Addresses of the node and of its API nodes. Any thread may ask at any time.
#[derive(Debug)]
pub struct Peers {
    own: Mutex<String>,
    /// By node id: the address of the API node that had it last.
    api_nodes: Mutex<Vec<String>>,
}

impl Default for Peers {
    /// No address is known.
    fn default() -> Self {
        let api_nodes = vec![String::new(); usize::from(u8::MAX) + 1];
        Peers { own: Mutex::new(String::new()), api_nodes: Mutex::new(api_nodes) }
    }
}

impl Peers {
    /// Where the node itself listens; empty before it does.
    pub fn own(&self) -> String {
        lock(&self.own).clone()
    }

    /// The address from which an API node is or was connected; empty if there was none with this id.
    pub fn api_node(&self, api: NodeId) -> String {
        lock(&self.api_nodes)[usize::from(api.0)].clone()
    }

    pub(crate) fn listen_at(&self, address: SocketAddr) {
        *lock(&self.own) = address.to_string();
    }

    pub(crate) fn note(&self, api: NodeId, peer: impl ToString) {
        lock(&self.api_nodes)[usize::from(api.0)] = peer.to_string();
    }
}

/// A panic of a holder leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_with_an_id_is_known() {
        let peers = Peers::default();
        assert_eq!((peers.own(), peers.api_node(NodeId(200))), (String::new(), String::new()));
        peers.listen_at("127.0.0.1:2202".parse().unwrap());
        peers.note(NodeId(200), "10.0.0.1:4000");
        peers.note(NodeId(200), "10.0.0.2:4000");
        assert_eq!(peers.own(), "127.0.0.1:2202");
        assert_eq!(peers.api_node(NodeId(200)), "10.0.0.2:4000");
    }
}
