//! API nodes that go away: their scans are closed, their questions forgotten. Locks and operations are the
//! coordinators' to end.

use crate::DataManager;
use vinga_base::NodeId;
use vinga_kernel::Context;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::{Frame, SignalNumber};

impl DataManager {
    /// Everything read from the API node's connections has been handled: nobody waits for its scans any more.
    pub(crate) fn on_api_connection_closed_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        self.scans.close_of_api(NodeId(body.api));
        self.index_statistics.forget_api(NodeId(body.api));
        cx.frame(SignalNumber::ApiConnectionClosedConfirm, frame.sender()).put(body);
        Some(())
    }

    /// The API node is gone for good. Its markers go by the coordinators' orders.
    pub(crate) fn on_api_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        cx.frame(SignalNumber::ApiFailedConfirm, frame.sender()).put(body);
        Some(())
    }
}
