//! A client has this data node stop.
//!
//! ```text
//!   API node ── ShutdownRequest ──▶ info 0
//!   API node ◀── ShutdownConfirm ── info 0, a moment later: ── ShutdownOrder ──▶ driver
//! ```
//! What the node would lack of a cluster without it is looked up in its own view, at that moment. Two data nodes that
//! are asked at the same moment may both stop, although either of them could have been done without: whoever stops
//! several waits until the one is out of the view before it asks the next one.

use crate::Info;
use alloc::format;
use alloc::string::String;
use vinga_base::NodeId;
use vinga_kernel::{Context, LogLevel, Span};
use vinga_wire::handshake::Refusal;
use vinga_wire::shutdown::{ShutdownConfirm, ShutdownRequest, ShutdownTerms};
use vinga_wire::view::Lack;
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// The timer behind which the driver is ordered to stop: no number of a request that rows are gathered for.
const TIMER: u64 = u64::MAX;

/// How long after its confirmation: in a later turn, so that the thread has handed the confirmation over by then.
const PAUSE: Span = Span::from_millis(1);

impl Info {
    /// Refuses, or confirms and has the driver stop the node.
    pub(crate) fn on_shutdown_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ShutdownRequest { request, terms } = cold::read(frame)?;
        let (own, api) = (cx.own().node(), frame.sender().node());
        if cx.own().instance() != 0 {
            return None;
        }
        if terms == ShutdownTerms::IfDispensable
            && let Some(lack) = cx.view().lack_of(|node| node != own)
        {
            let (code, detail) = (ErrorCode::NodeIsNeeded as u16, describe(own, lack));
            let body = Refusal { request, code, detail };
            cold::write(&mut cx.frame(SignalNumber::ShutdownRefuse, frame.sender()), &body);
            return Some(());
        }
        cx.log(LogLevel::Info, format_args!("API node {api} has requested that this data node stops"));
        let body = ShutdownConfirm { request };
        cold::write(&mut cx.frame(SignalNumber::ShutdownConfirm, frame.sender()), &body);
        cx.send_after(PAUSE, TIMER);
        Some(())
    }

    /// If it is the timer of a shutdown, the driver is ordered to stop the node; returns whether it is.
    pub(crate) fn on_shutdown_timer(&self, cx: &mut Context<'_>, token: u64) -> bool {
        if token != TIMER {
            return false;
        }
        let driver = cx.driver();
        cx.frame(SignalNumber::ShutdownOrder, driver);
        true
    }
}

/// What there would not be without this data node.
fn describe(node: NodeId, lack: Lack) -> String {
    match lack {
        Lack::NodeGroup(group) => {
            format!("data node {node} is the last one of node group {group} that has all its rows")
        }
        Lack::Coordinators => format!("data node {node} is the last one with coordinators"),
    }
}
