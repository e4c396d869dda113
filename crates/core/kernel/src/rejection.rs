//! How a block rejects signals that it can't handle.

use crate::context::{Context, LogLevel};
use vinga_base::NodeId;
use vinga_wire::agreement::LinkBody;
use vinga_wire::membership::CloseConnectionOrder;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, cold};

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
    /// connections are closed, and so are the links to another data node; a signal of our own blocks stops the node.
    pub fn reject(&mut self, frame: &Frame<'_>, reason: ErrorCode) {
        let sender = frame.sender();
        let number = frame.header.number.get();
        if sender.block() == Some(BlockNumber::Api) {
            return self.close_api_node(sender.node(), reason, number);
        }
        assert!(
            sender.node() != self.own().node(),
            "{sender} sent signal {number}, which can't be handled: error {reason}"
        );
        self.give_up_data_node(sender, reason, number);
    }

    /// Orders this thread's driver to close the links to another data node. Nothing more of it is handled by this
    /// thread, as what follows may depend on what was rejected: to this node it has failed now, and agreement leaves
    /// out one of the two.
    fn give_up_data_node(&mut self, sender: Address, reason: ErrorCode, signal: u16) {
        let node = sender.node();
        let Some(member) = self.view().member(node) else { return };
        let link = LinkBody { node, incarnation: member.incarnation, is_gone: false };
        self.shared.rejected.push(node);
        let receiver = self.own();
        self.log(
            LogLevel::Error,
            format_args!(
                "data node {node} is given up: {sender} sent {receiver} signal {signal}, which can't be handled: error {reason}"
            ),
        );
        let driver = self.driver();
        cold::write(&mut self.frame(SignalNumber::LinkCloseOrder, driver), &link);
    }
}
