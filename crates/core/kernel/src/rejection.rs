//! How a block rejects signals that it can't handle.

use crate::context::{Context, LogLevel};
use vinga_base::NodeId;
use vinga_wire::membership::CloseConnectionOrder;
use vinga_wire::{BlockNumber, ErrorCode, Frame, SignalNumber, U16};

impl Context<'_> {
    /// Orders this thread's driver to close an API node's connections. `signal` is the number of the offending signal,
    /// 0 if there is none.
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

    /// Rejects a signal that this block doesn't handle, or whose body does not match its number: an API node's
    /// connections are closed; a signal of our own blocks stops the node.
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
