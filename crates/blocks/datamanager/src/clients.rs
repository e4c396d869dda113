//! API nodes that come and go: only those that are admitted may open scans, and name only their own transactions. When
//! one goes its scans are closed, its questions forgotten. Locks and operations are the coordinators' to end.

use crate::DataManager;
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::Context;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::{ErrorCode, Frame, SignalNumber};

impl DataManager {
    /// This incarnation of the API node is admitted, for the first time or again.
    pub(crate) fn on_api_connected_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        self.admitted.admit(body);
        cx.frame(SignalNumber::ApiConnectedConfirm, frame.sender()).put(body);
        Some(())
    }

    /// Whether what an API node has sent is carried out: it is admitted, and `within` is none or a transaction of it.
    /// If not, it is closed, or is so already: then the request had been read before, and nobody waits for an answer.
    pub(crate) fn may_ask(&self, cx: &mut Context<'_>, frame: &Frame<'_>, within: TransactionId) -> bool {
        let api = frame.sender().node();
        if !self.admitted.has(api) {
            cx.mark("request of a closed API node is not carried out");
            return false;
        }
        if within != TransactionId::NONE && !self.admitted.owns(api, within) {
            cx.reject(frame, ErrorCode::NotYourTransaction);
            return false;
        }
        true
    }

    /// The API node's connections are closed: nobody waits for its scans any more, and none is opened until it is
    /// admitted again.
    pub(crate) fn on_api_connection_closed_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        self.admitted.close(NodeId(body.api));
        self.scans.close_of_api(NodeId(body.api));
        if self.end_backup_of(NodeId(body.api)).is_some() {
            cx.mark("backup ends because its client is gone");
        }
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
