//! The last that a data node does when it stops in order: it says to the other data nodes, by the links to them, that
//! its process has ended.
//!
//! By then none of its threads runs any more, and no client is connected: it answers nobody, and goes on with nobody.
//! Others need not find out whether it may have gone on without them, nor ask an arbitrator, if it was on another
//! machine (`docs/protocols/agreement.md`).

use crate::output::finish_sending;
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_local::Socket;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber};

/// A link to another data node whose thread has ended, and of which everything was sent.
pub(crate) struct QuietLink {
    /// The data node at the other end.
    pub node: NodeId,
    pub stream: Arc<Socket>,
    /// The low byte of the view that the thread had.
    pub view: u8,
}

/// Says by these links that this node has ended, and closes them. If that is lost, the others find out by themselves.
pub(crate) fn say_ended(own: NodeId, links: Vec<QuietLink>) {
    let agreement = |node| Address::new(node, BlockNumber::Agreement, 0);
    for QuietLink { node, stream, view } in links {
        let mut frame = Vec::new();
        let number = SignalNumber::NodeEndedReport;
        FrameWriter::begin(&mut frame, number, view, agreement(node), agreement(own), 0);
        // Nothing waits for the socket, so it takes that.
        let _ = stream.write(&frame);
        finish_sending(&stream);
    }
}
