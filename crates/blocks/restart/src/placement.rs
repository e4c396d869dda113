//! The president has partitions move until each node group has its share (`docs/protocols/reorganize.md`).
//!
//! Which step comes next the view says (`ClusterView::next_placement`), so a new president goes on where the last one
//! has stopped. What this block adds is when: nothing else may be under way, and a data manager that is to hold another
//! partition has given up the one before.
//!
//! ```text
//!   assigned ─▶ the data manager ─▶ schema changes ─▶ a view in which ─▶ it has all rows, and ─▶ a view in which
//!               is free             are held          it is sent rows    all threads know that    it is a replica
//! ```

use crate::Restart;
use vinga_kernel::Context;
use vinga_wire::agreement::WantedChange;
use vinga_wire::handshake::Refusal;
use vinga_wire::restart::{PlaceBody, ReorganizeConfirm, ReorganizeRequest};
use vinga_wire::view::Placement;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// What the president knows of partitions that move.
#[derive(Default)]
pub(crate) struct Places {
    /// In the present view: the data manager that is to hold another partition, and whether it is free.
    asked: Option<(Address, bool)>,
    /// Who has requested last that partitions move, or do not, and is not answered yet.
    wanted: Option<(Address, ReorganizeRequest)>,
}

impl Places {
    /// A view has begun: what was asked in the one before is asked again.
    pub fn begin_view(&mut self) {
        self.asked = None;
    }
}

impl Restart {
    /// Partitions are to move, or no further ones.
    pub(crate) fn on_reorganize_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ReorganizeRequest = cold::read(frame)?;
        let view = cx.shared_view();
        let mut refuse = |code: ErrorCode, detail: alloc::string::String| {
            let body = Refusal { request: body.request, code: code as u16, detail };
            cold::write(&mut cx.frame(SignalNumber::ReorganizeRefuse, frame.sender()), &body);
        };
        if view.president() != Some(self.settings.node) {
            let leads = view.president().map_or(0, |node| node.0);
            refuse(ErrorCode::NotSupportedYet, alloc::format!("data node {leads} leads the cluster"));
        } else if !view.is_replicated() {
            let why = "partitions move only where each has several replicas (NoOfReplicas)";
            refuse(ErrorCode::NotSupportedYet, why.into());
        } else {
            if let Some((other, request)) = self.leader.places.wanted.replace((frame.sender(), body)) {
                // Whoever comes later decides.
                let body = Refusal {
                    request: request.request,
                    code: ErrorCode::Overloaded as u16,
                    detail: "somebody else has requested the same, or the contrary".into(),
                };
                cold::write(&mut cx.frame(SignalNumber::ReorganizeRefuse, other), &body);
            }
            self.go_on(cx);
        }
        Some(())
    }

    /// Has the view say what was requested; returns whether agreement was asked for that.
    pub(crate) fn follow_request(&mut self, cx: &mut Context<'_>) -> bool {
        let Some((requester, ReorganizeRequest { request, begins })) = self.leader.places.wanted else {
            return false;
        };
        if cx.view().reorganizes() != begins {
            self.ask_for(cx, WantedChange::Reorganize(begins));
            return true;
        }
        self.leader.places.wanted = None;
        let body = ReorganizeConfirm { request };
        cold::write(&mut cx.frame(SignalNumber::ReorganizeConfirm, requester), &body);
        false
    }

    /// What is to be done next, if its time has come. A data manager that is to be sent another partition is asked
    /// before whether it is free.
    pub(crate) fn next_placement(&mut self, cx: &mut Context<'_>) -> Option<Placement> {
        let view = cx.shared_view();
        let placement = view.next_placement()?;
        let Placement::Copy(partition, node) = placement else { return Some(placement) };
        let target = view.partition(partition).owner.at(node);
        match self.leader.places.asked {
            Some((asked, is_free)) if asked == target => is_free.then_some(placement),
            _ => {
                self.leader.places.asked = Some((target, false));
                let body = PlaceBody { view: view.number() };
                cold::write(&mut cx.frame(SignalNumber::PlaceRequest, target), &body);
                None
            }
        }
    }

    pub(crate) fn on_place_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let PlaceBody { view } = cold::read(frame)?;
        if let Some((asked, is_free)) = &mut self.leader.places.asked
            && *asked == frame.sender()
            && view == cx.view().number()
        {
            *is_free = true;
            self.go_on(cx);
        }
        Some(())
    }

    /// A member that has started is being sent a partition: when it has all rows it becomes a replica. Returns whether
    /// agreement was asked for that.
    pub(crate) fn end_placing(&mut self, cx: &mut Context<'_>) -> bool {
        let view = cx.shared_view();
        let Some((partition, target)) = view.placing() else { return false };
        if !self.is_copied(cx, target) {
            return false;
        }
        let (node, incarnation) = target.identity();
        self.ask_for(cx, WantedChange::Copied(partition, node, incarnation));
        true
    }
}
