//! Holding frames back: those of one pair of addresses, in their order, until the test lets them go. (Order is kept
//! between one sender and one receiver, and nowhere else: what is held back overtakes nothing of its own pair.)

use super::Cluster;
use vinga_base::NodeId;
use vinga_kernel::{Executor, Origin};
use vinga_wire::Address;
use vinga_wire::frame::Frames;

/// What is held back.
#[derive(Default)]
pub struct Held {
    pairs: Vec<(Address, Address)>,
    /// Node, pair, bytes; oldest first.
    frames: Vec<(u8, (Address, Address), Vec<u8>)>,
}

impl Held {
    /// Takes out of what is on its way to a node what has to be held back.
    pub fn keep(&mut self, to: u8, bytes: &mut Vec<u8>) {
        if self.pairs.is_empty() {
            return;
        }
        let all = std::mem::take(bytes);
        let mut at = 0;
        for frame in Frames(&all) {
            let whole = &all[at..at + frame.length()];
            at += frame.length();
            let pair = (frame.sender(), frame.receiver());
            if self.pairs.contains(&pair) {
                self.frames.push((to, pair, whole.to_vec()));
            } else {
                bytes.extend_from_slice(whole);
            }
        }
    }

    /// From now on what `from` sends to `to` is held back, and never delivered.
    pub fn never(&mut self, from: Address, to: Address) {
        self.pairs.push((from, to));
    }

    /// A node is gone.
    pub fn forget(&mut self, node: NodeId) {
        self.frames.retain(|(_, (from, to), _)| from.node() != node && to.node() != node);
    }
}

impl Cluster {
    /// From now on what `from` sends to `to`, a block of another data node, is held back.
    pub fn hold(&mut self, from: Address, to: Address) {
        assert_ne!(from.node(), to.node(), "signals within a node can't be held back");
        self.held.pairs.push((from, to));
    }

    /// Delivers what was held back, and holds nothing more of this pair.
    pub fn release(&mut self, from: Address, to: Address) {
        self.held.pairs.retain(|&pair| pair != (from, to));
        self.deliver(from, to);
    }

    /// Delivers what is held back of a pair; what is sent on account of that is held back again.
    pub fn deliver(&mut self, from: Address, to: Address) {
        for (node, (from, _), bytes) in self.held.frames.extract_if(.., |(_, pair, _)| *pair == (from, to)) {
            if let Some(executor) = self.executors.get_mut(&node) {
                executor.feed(&bytes, Origin::Peer(from.node())).expect("a data node may send this");
            }
        }
        self.run();
    }

    /// Delivers what is held back of a pair, and holds it back still: it will come a second time.
    pub fn deliver_copies(&mut self, from: Address, to: Address) {
        for (node, pair, bytes) in &self.held.frames {
            if let Some(executor) = self.executors.get_mut(node).filter(|_| *pair == (from, to)) {
                executor.feed(bytes, Origin::Peer(from.node())).expect("a data node may send this");
            }
        }
        self.run();
    }

    /// From now on the long work of a node stands still.
    pub fn hold_slices(&mut self, node: u8) {
        self.held_slices.insert(node);
    }

    /// So many units of long work are done in one slice of a node from now on.
    pub fn set_slice_units(&mut self, node: u8, units: u32) {
        self.executors.get_mut(&node).expect("a live node").set_slice_units(units);
    }

    /// One slice of the long work of a node that stands still, and what follows from that.
    pub fn slice(&mut self, node: u8) {
        let executor = self.executors.get_mut(&node).expect("a live node");
        executor.begin_turn(self.now);
        executor.run_slices();
        self.run();
    }

    /// The long work of a node goes on.
    pub fn release_slices(&mut self, node: u8) {
        self.held_slices.remove(&node);
        self.run();
    }

    /// Bytes of frames that wait for newer views, at all nodes.
    pub fn parked(&self) -> usize {
        self.executors.values().map(Executor::parked_bytes).sum()
    }

    /// How many frames of a pair are held back: a scenario that holds nothing back is another scenario.
    pub fn held(&self, from: Address, to: Address) -> usize {
        self.held.frames.iter().filter(|(_, pair, _)| *pair == (from, to)).count()
    }
}
