//! This data node is about to stop in order (`docs/protocols/shutdown.md`).
//!
//! Those that were permitted to stop can be missed in the view in which they were. If the next one leaves somebody out
//! of a partition, they may be all that it has. So info asks here before it stops: the others must be able to go on in
//! the present view, and in the one to which this node has agreed. From then on it agrees to no view that leaves
//! anybody out. Of two that can't be missed together after such a change one is refused thus, or there is no such
//! change: each has permitted the other one, or is asked for that, before it comes here, and both have to agree.

use crate::Agreement;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::shutdown::ShutdownCheck;
use vinga_wire::view::ClusterView;
use vinga_wire::{Frame, SignalNumber, cold};

impl Agreement {
    /// Info has the permission of all to stop this data node.
    pub(crate) fn on_shutdown_check_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let ShutdownCheck { stopping, is_decided } = cold::read(frame)?;
        let lacks = |view: &ClusterView| view.lack_of(|node| !stopping.contains(&node)).is_some();
        let prepared = self.growth.change.as_ref().map(|change| &change.view);
        let later = prepared.or(self.growth.agreed().map(|agreed| &agreed.view));
        let is_needed = lacks(&self.view) || later.is_some_and(lacks);
        let is_needed = is_needed && !is_decided && !cx.has_bug(InjectedBug::StopOverlooksLeaveOut);
        self.growth.leaves_nobody_out = !is_needed && !cx.has_bug(InjectedBug::StopOverlooksLeaveOut);
        if is_needed {
            cx.mark("data node can't stop, as the next view may leave somebody out");
        }
        if !is_decided {
            let signal = match is_needed {
                true => SignalNumber::ShutdownCheckRefuse,
                false => SignalNumber::ShutdownCheckConfirm,
            };
            cx.frame(signal, frame.sender());
        }
        Some(())
    }

    /// Whether this node can't agree to a view, as it is about to stop.
    pub(crate) fn is_kept_from(&self, view: &ClusterView) -> bool {
        self.growth.leaves_nobody_out && self.view.leaves_out_in(view)
    }
}
