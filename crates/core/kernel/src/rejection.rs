//! Signals that a block can't use.

use crate::context::{Context, LogLevel};
use vinga_base::NodeId;
use vinga_wire::membership::CloseConnectionOrder;
use vinga_wire::{BlockNumber, ErrorCode, Frame, SignalNumber, U16};

impl Context<'_> {
    /// Orders this thread's driver to close an API node's connections. `signal` is the number of the signal that was
    /// wrong, 0 if none was.
    pub fn close_api_node(&mut self, api: NodeId, reason: ErrorCode, signal: u16) {
        self.log(LogLevel::Warning, format_args!("closing API node {api}: error {reason} (signal {signal})"));
        let driver = self.driver();
        self.frame(SignalNumber::CloseConnectionOrder, driver).put(&CloseConnectionOrder {
            api: api.0,
            unused: 0,
            reason: U16::new(reason as u16),
            signal: U16::new(signal),
        });
    }

    /// A signal that this block doesn't handle, or whose body is not what its number says: an API node's fault closes
    /// its connections, our own stops the node.
    pub fn reject(&mut self, frame: &Frame<'_>, reason: ErrorCode) {
        let sender = frame.sender();
        let number = frame.header.number.get();
        assert!(
            sender.block() == Some(BlockNumber::Api),
            "{sender} sent signal {number}, which can't be handled: error {reason}"
        );
        self.close_api_node(sender.node(), reason, number);
    }
}
