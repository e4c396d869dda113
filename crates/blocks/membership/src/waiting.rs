//! This data node is to get primaries: the president waits until all API nodes are connected to it.
//!
//! What a primary answers goes by the connections of its own data node. An API node that has none yet, as the data node
//! has just come back, would lose it; and one that has not read yet that it is admitted counts it as lost. So its first
//! heartbeat is awaited, which it sends when it has read that.

use crate::{Membership, Timer};
use alloc::collections::BTreeMap;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, Span, Tick};
use vinga_wire::restart::ClientsBody;
use vinga_wire::{Address, Frame, SignalNumber, cold};

/// How often it is looked whether all are connected.
const CHECK: Span = Span::from_millis(10);

/// How long API nodes are waited for that do not come, as they do not reach this data node, for example.
const PATIENCE: Span = Span::from_millis(5_000);

/// Which start of an API node, and how often it was admitted.
pub type Admission = (Incarnation, u32);

/// Who waits, and until when at most.
pub struct Wait {
    requester: Address,
    body: ClientsBody,
    until: Tick,
}

impl Membership {
    pub(crate) fn on_clients_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ClientsBody = cold::read(frame)?;
        let wait = Wait { requester: frame.sender(), body, until: cx.now() + PATIENCE };
        if self.clients_awaited.replace(wait).is_none() {
            self.look_at_clients(cx);
        }
        Some(())
    }

    /// Confirms when all are connected, or have not come for long: those are not waited for again, as the president
    /// asks in each view.
    pub(crate) fn look_at_clients(&mut self, cx: &mut Context<'_>) {
        let Some(Wait { requester, body, until }) = self.clients_awaited else { return };
        let sessions = self.sessions.admitted().filter_map(|api| Some((api, self.sessions.admission(api)?)));
        let missing = sessions.filter(|&(api, _)| !self.host.is_ready(api)).collect::<BTreeMap<_, _>>();
        let is_awaited =
            |(api, admission): (&NodeId, &Admission)| self.clients_unreached.get(api) != Some(admission);
        if missing.iter().any(is_awaited) {
            if cx.now() < until {
                return cx.send_after(CHECK, Timer::Clients.token());
            }
            cx.mark("primaries are handed over to a data node that not all API nodes are connected to");
        }
        self.clients_unreached = missing;
        self.clients_awaited = None;
        cold::write(&mut cx.frame(SignalNumber::ClientsConfirm, requester), &body);
    }
}
