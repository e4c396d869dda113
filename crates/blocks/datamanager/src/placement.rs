//! Partitions come to this data manager, and go (`docs/protocols/reorganize.md`).
//!
//! A data manager holds one partition at most. Which one that is the view says: that of its instance number of which
//! its node is a replica. When it becomes one, of any partition, it begins with nothing.
//!
//! When it was left out of its partition, for another reason than that its node is to stop, or if that stays after all,
//! it *gives up* what it has. But not at once: signals that were sent in earlier views may be on their way through it,
//! as through a data node that leaves. So it asks all coordinators, and keeps everything until these have confirmed
//! that they need it no more; in the next view, if that comes before, it asks again. An index that is being built of
//! the rows comes to its end before. Then its records and markers go, and the memory of its rows is freed in slices. It
//! gets no other partition before all that has gone: the president asks it whether it is free, and has room for the
//! other one.

use crate::DataManager;
use crate::copying::Copying;
use crate::ending::Endings;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::page_pool::{PAGE_BYTES, reserved_pages};
use vinga_base::pool::Handle;
use vinga_fragment::fragment::Fragment;
use vinga_kernel::Context;
use vinga_wire::restart::{DrainBody, PartitionSize, PlaceBody, PlaceRefuse};
use vinga_wire::view::{MemberState, NoRoom, ReplicaGroup, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// Rows or pages of a partition that was given up which a slice frees, at most.
const RELEASE_UNITS: u32 = 256;

/// What part of a partition's memory is to be free beside it where it goes: rows are written while it is copied, and
/// its indexes are laid out in another order than the one in which they grew.
const ROOM_PART: u64 = 8;

/// Whether this data manager holds a partition, and what is left of the one before.
#[derive(Default)]
pub(crate) struct Placed {
    /// Its node is a replica of the partition.
    holds: bool,
    /// It was left out of the partition, whose rows and records are here.
    is_left_out: bool,
    /// Coordinators that may need what is here, in this view.
    draining: Option<(DrainBody, BTreeSet<Address>)>,
    /// Fragments whose memory is being freed.
    pub given_up: Vec<Fragment>,
    /// The president, which waits until it is free, in this view.
    asked: Option<(Address, PartitionSize)>,
}

impl Placed {
    /// Whether nothing is left of a partition that was given up.
    pub fn is_free(&self) -> bool {
        !self.is_left_out && self.given_up.is_empty()
    }
}

impl DataManager {
    /// The partition that this data manager holds, or is to hold, or has held last.
    pub fn owner(&self) -> ReplicaGroup {
        self.owner
    }

    /// Notes at the start whether there is a partition here.
    pub(crate) fn note_partition(&mut self, cx: &Context<'_>) {
        self.placement.holds = self.held_partition(cx).is_some();
    }

    fn held_partition(&self, cx: &Context<'_>) -> Option<ReplicaGroup> {
        cx.view().held_at(self.owner.at(self.settings.node)).map(|partition| partition.owner)
    }

    /// The view has changed: another partition may be here now, or none any more.
    pub(crate) fn follow_partition(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let (view, own) = (&change.new, self.settings.node);
        self.placement.asked = None;
        self.placement.draining = None;
        let Some(owner) = self.held_partition(cx) else {
            if self.owner.group() >= view.homes() {
                // It has come with a node group that was added, and none has moved here yet.
                self.owner = ReplicaGroup::new(self.owner.group() % view.homes(), self.owner.instance());
            }
            // Before its first view a node knows itself alone, and seems to hold everything.
            let has_been_member = view.has_since(own, change.old.number());
            let held = core::mem::take(&mut self.placement.holds) && has_been_member;
            self.placement.is_left_out |= held;
            // Of one that was left out as it is to stop the president asks. If it stays after all, that is another
            // view.
            let leaves = view.member(own).is_some_and(|member| member.state == MemberState::LeftOut);
            if self.placement.is_left_out && !leaves {
                self.begin_to_drain(cx);
            }
            return;
        };
        if self.placement.holds && owner == self.owner {
            return;
        }
        // One that has left, and stays after all, may have something of a partition that it was being sent.
        if self.placement.is_left_out || !self.versions.is_empty() {
            self.give_up(cx);
        }
        cx.mark("data manager is to hold a partition");
        self.placement.holds = true;
        self.owner = owner;
        self.copying = Copying::default();
        self.renew_fragments(cx);
    }

    /// Asks all coordinators whether they need what is here of a partition that is somewhere else now.
    fn begin_to_drain(&mut self, cx: &mut Context<'_>) {
        let view = cx.shared_view();
        let body = DrainBody { view: view.number(), node: self.settings.node };
        let awaited: BTreeSet<Address> = view.addresses(BlockNumber::Coordinator).collect();
        for &address in &awaited {
            cold::write(&mut cx.frame(SignalNumber::DrainRequest, address), &body);
        }
        self.placement.draining = Some((body, awaited));
    }

    pub(crate) fn on_drain_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: DrainBody = cold::read(frame)?;
        let Some((asked, awaited)) = &mut self.placement.draining else { return Some(()) };
        if *asked == body && awaited.remove(&frame.sender()) {
            self.give_up_if_drained(cx);
        }
        Some(())
    }

    /// Gives up the partition if nobody needs it any more, and no index is built of its rows.
    pub(crate) fn give_up_if_drained(&mut self, cx: &mut Context<'_>) {
        let is_drained = self.placement.draining.as_ref().is_some_and(|(_, awaited)| awaited.is_empty());
        if !is_drained {
            return;
        }
        if self.schema.index_work.goes_through_rows() {
            cx.mark("data manager gives up a partition when an index has been built");
            return;
        }
        self.placement.draining = None;
        self.give_up(cx);
    }

    /// Drops all records and markers, which nobody asks for any more, and begins to free the rows.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        cx.mark("data manager gives up a partition");
        self.endings = Endings::default();
        self.move_all_scans(cx);
        self.move_statistics(cx);
        let rows: Vec<_> = self.versions.rows.iter().map(|(_, row)| row.place).collect();
        for place in rows {
            self.end_changes(cx, place);
        }
        let operations: Vec<Handle> = self.versions.operations.iter().map(|(handle, _)| handle).collect();
        for operation in operations {
            self.drop_operation(operation);
        }
        assert!(self.versions.is_empty() && self.locks.is_empty(), "nothing is left of any transaction");
        self.markers.clear();
        self.copying = Copying::default();
        self.renew_fragments(cx);
        self.placement.is_left_out = false;
        self.answer_president(cx);
    }

    /// All tables have empty fragments of this partition, and no other ones.
    fn renew_fragments(&mut self, cx: &Context<'_>) {
        let partition = cx.view().number_of(self.owner);
        for table in self.store.tables.iter_mut() {
            self.placement.given_up.extend(table.renew_fragments(partition));
        }
    }

    /// The president asks how much memory this partition takes.
    pub(crate) fn on_partition_size_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let PlaceBody { view } = cold::read(frame)?;
        let size = PartitionSize { view, bytes: bytes_of(self.store.pages.owned()) };
        cold::write(&mut cx.frame(SignalNumber::PartitionSizeConfirm, frame.sender()), &size);
        Some(())
    }

    pub(crate) fn on_place_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: PartitionSize = cold::read(frame)?;
        if body.view == cx.view().number() {
            self.placement.asked = Some((frame.sender(), body));
            self.answer_president(cx);
        } else {
            cx.mark("request for a partition's place is of an earlier view");
        }
        Some(())
    }

    /// Answers the president, when nothing is left of the partition that was here before.
    fn answer_president(&mut self, cx: &mut Context<'_>) {
        if !self.placement.is_free() {
            return;
        }
        let Some((president, PartitionSize { view, bytes })) = self.placement.asked.take() else { return };
        let (used, all) = self.pages();
        let free = bytes_of((all - reserved_pages(all)).saturating_sub(used));
        let needed = bytes + bytes / ROOM_PART;
        if needed <= free {
            cold::write(&mut cx.frame(SignalNumber::PlaceConfirm, president), &PlaceBody { view });
        } else {
            cx.mark("data node has no room for a partition");
            let no_room = NoRoom { node: self.settings.node, needed, free };
            let body = PlaceRefuse { view, no_room };
            cold::write(&mut cx.frame(SignalNumber::PlaceRefuse, president), &body);
        }
    }

    /// Frees some of what was given up; returns whether there is more.
    #[inline(never)]
    pub(crate) fn release_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(fragment) = self.placement.given_up.last_mut() else { return false };
        if fragment.release_slice(&mut self.store.pages, &mut self.store.chunks, RELEASE_UNITS) {
            self.placement.given_up.pop();
            if self.placement.given_up.is_empty() {
                cx.mark("memory of a partition that was given up is free");
                self.answer_president(cx);
            }
        }
        !self.placement.given_up.is_empty()
    }

    /// What holds of a partition that has come or gone.
    pub(crate) fn check_placement(&self) {
        let Placed { holds, is_left_out, ref draining, ref asked, .. } = self.placement;
        assert!(!(holds && is_left_out), "it is a replica or none");
        assert!(is_left_out || draining.is_none(), "only what is left is waited for");
        assert!(asked.is_none() || !self.placement.is_free(), "only what is left is waited for");
    }
}

fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64
}
