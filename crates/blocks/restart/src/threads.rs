//! Whether all threads of all members have adopted a view.
//!
//! The president asks the restart block of each member, and that asks the info block of each thread of its node.
//! Frames of a view wait until a thread has adopted it, so whoever answers has. What was sent to a thread on the same
//! way before has been handled then: orders about its lease, too.

use crate::Restart;
use alloc::collections::BTreeSet;
use vinga_base::{NodeId, ViewNumber};
use vinga_kernel::Context;
use vinga_wire::restart::ThreadsBody;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// What is asked of this node, and what it asks as the president.
#[derive(Default)]
pub(crate) struct Threads {
    /// Threads of this node that have not answered, for whom they were asked.
    own: Option<(ThreadsBody, BTreeSet<u16>)>,
    /// At the president: the view that is asked about, and the members that have not confirmed.
    asked: Option<(ViewNumber, BTreeSet<NodeId>)>,
}

impl Threads {
    /// Whether all threads of all members are known to have adopted this view.
    pub fn have_adopted(&self, view: ViewNumber) -> bool {
        self.asked.as_ref().is_some_and(|(asked, awaited)| *asked >= view && awaited.is_empty())
    }

    /// Whether that was asked.
    pub fn have_been_asked(&self, view: ViewNumber) -> bool {
        self.asked.as_ref().is_some_and(|(asked, _)| *asked >= view)
    }

    /// Members that are lost do not answer.
    pub fn forget(&mut self, node: NodeId) {
        if let Some((_, awaited)) = &mut self.asked {
            awaited.remove(&node);
        }
    }
}

impl Restart {
    /// Asks all members whether their threads have adopted the present view.
    pub(crate) fn ask_threads(&mut self, cx: &mut Context<'_>) {
        let view = cx.shared_view();
        let members: BTreeSet<NodeId> = view.members().iter().map(|member| member.node).collect();
        let body = ThreadsBody { view: view.number(), requester: self.settings.node };
        for &member in &members {
            cold::write(&mut cx.frame(SignalNumber::ThreadsRequest, Self::address_of(member)), &body);
        }
        self.threads.asked = Some((view.number(), members));
    }

    pub(crate) fn on_threads_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ThreadsBody = cold::read(frame)?;
        for thread in 0..self.settings.threads {
            let info = Address::new(self.settings.node, BlockNumber::Info, thread);
            cold::write(&mut cx.frame(SignalNumber::TurnRequest, info), &body);
        }
        self.threads.own = Some((body, (0..self.settings.threads).collect()));
        Some(())
    }

    pub(crate) fn on_turn_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ThreadsBody = cold::read(frame)?;
        if let Some((asked, awaited)) = &mut self.threads.own
            && *asked == body
        {
            awaited.remove(&frame.sender().instance());
            if awaited.is_empty() {
                self.threads.own = None;
                let requester = Self::address_of(body.requester);
                cold::write(&mut cx.frame(SignalNumber::ThreadsConfirm, requester), &body);
            }
        }
        Some(())
    }

    pub(crate) fn on_threads_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: ThreadsBody = cold::read(frame)?;
        if let Some((view, awaited)) = &mut self.threads.asked
            && *view == body.view
        {
            awaited.remove(&frame.sender().node());
        }
        self.go_on(cx);
        Some(())
    }
}
