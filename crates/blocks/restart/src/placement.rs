//! The president has partitions move until each node group has its share (`docs/protocols/reorganize.md`).
//!
//! Which step comes next the view says (`ClusterView::next_placement`), so a new president goes on where the last one
//! has stopped. What this block adds is when: nothing else may be under way, and a data manager that is to hold another
//! partition has given up the one before, and has room. If it has not, a view says so, in which nothing moves any more;
//! a partition that has displaced replicas goes back. If there is none, or no room where it goes back to either, it is
//! tried again, later and later.
//!
//! ```text
//!                                   ┌▶ a view in which it goes back
//!                                   │ no room
//!   assigned ─▶ size known ─▶ the data manager ─▶ schema changes ─▶ a view in which ─▶ it has all rows,  ─▶ a replica
//!                             is free             are held          it is sent rows    all threads know it
//! ```

use crate::Restart;
use vinga_base::ViewNumber;
use vinga_kernel::{Context, LogLevel};
use vinga_wire::agreement::WantedChange;
use vinga_wire::handshake::Refusal;
use vinga_wire::restart::{PartitionSize, PlaceBody, PlaceRefuse, ReorganizeConfirm, ReorganizeRequest};
use vinga_wire::view::{NoRoom, Placement};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// What the president knows of partitions that move.
#[derive(Default)]
pub(crate) struct Places {
    /// In the present view: the data manager that is to hold another partition, and what is known of that.
    asked: Option<(Address, Asked)>,
    /// How often one had no room, since a partition was copied, or requested to move.
    refusals: u32,
    /// The number of the timer until the next one is asked after that.
    pause: Option<u64>,
    /// Who has requested last that partitions move, or do not, and is not answered yet.
    wanted: Option<(Address, ReorganizeRequest)>,
}

/// What a data manager has been asked that is to hold another partition, or what it has answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The partition's primary is asked how much memory it takes.
    Size,
    /// It is asked whether it is free.
    Free,
    IsFree,
    HasNoRoom(NoRoom),
}

impl Places {
    /// A view has begun: what was asked in the one before is asked again.
    pub fn begin_view(&mut self) {
        self.asked = None;
    }

    /// A timer has ended; returns whether it was that of the pause.
    pub fn end_pause(&mut self, number: u64) -> bool {
        self.pause.take_if(|pause| *pause == number).is_some()
    }

    /// There may be room now.
    fn forget_refusals(&mut self) {
        (self.refusals, self.pause) = (0, None);
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
            self.leader.places.forget_refusals();
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
        let body = ReorganizeConfirm { request, view: cx.view().number() };
        cold::write(&mut cx.frame(SignalNumber::ReorganizeConfirm, requester), &body);
        false
    }

    /// What is to be done next, if its time has come. A data manager that is to be sent another partition is asked
    /// before whether it is free, and has room.
    pub(crate) fn next_placement(&mut self, cx: &mut Context<'_>) -> Option<Placement> {
        let view = cx.shared_view();
        let placement = view.next_placement()?;
        let Placement::Copy(number, node) = placement else { return Some(placement) };
        let partition = view.partition(number);
        let target = partition.owner.at(node);
        let places = &mut self.leader.places;
        match places.asked {
            Some((asked, Asked::Size | Asked::Free)) if asked == target => None,
            Some((asked, Asked::IsFree)) if asked == target => Some(placement),
            Some((asked, Asked::HasNoRoom(no_room))) if asked == target => {
                Some(Placement::NoRoom(number, no_room))
            }
            _ if places.pause.is_some() => None,
            _ => {
                places.asked = Some((target, Asked::Size));
                let body = PlaceBody { view: view.number() };
                cold::write(&mut cx.frame(SignalNumber::PartitionSizeRequest, partition.primary()), &body);
                None
            }
        }
    }

    /// The primary of the partition that is to be copied has said how much memory that takes.
    pub(crate) fn on_partition_size_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let size: PartitionSize = cold::read(frame)?;
        if let Some((target, asked @ Asked::Size)) = &mut self.leader.places.asked
            && size.view == cx.view().number()
        {
            *asked = Asked::Free;
            cold::write(&mut cx.frame(SignalNumber::PlaceRequest, *target), &size);
        }
        Some(())
    }

    pub(crate) fn on_place_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let PlaceBody { view } = cold::read(frame)?;
        if self.note_answer(cx, frame.sender(), view, Asked::IsFree) {
            self.go_on(cx);
        }
        Some(())
    }

    pub(crate) fn on_place_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let PlaceRefuse { view, no_room } = cold::read(frame)?;
        if self.note_answer(cx, frame.sender(), view, Asked::HasNoRoom(no_room)) {
            let NoRoom { node, needed, free } = no_room;
            let text = format_args!(
                "data node {node} has no room for a partition: {needed} bytes of DataMemory are needed, {free} are free"
            );
            cx.log(LogLevel::Warning, text);
            let pause = self.settings.pause_after(self.leader.places.refusals);
            self.leader.places.refusals += 1;
            self.leader.places.pause = Some(self.begin_timer(cx, pause));
            self.go_on(cx);
        }
        Some(())
    }

    /// The data manager that is to hold another partition has answered; returns whether that is news.
    fn note_answer(
        &mut self,
        cx: &mut Context<'_>,
        sender: Address,
        view: ViewNumber,
        answer: Asked,
    ) -> bool {
        match &mut self.leader.places.asked {
            Some((target, asked @ Asked::Free)) if *target == sender && view == cx.view().number() => {
                *asked = answer;
                true
            }
            _ => false,
        }
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
        self.leader.places.forget_refusals();
        self.ask_for(cx, WantedChange::Copied(partition, node, incarnation));
        true
    }
}
