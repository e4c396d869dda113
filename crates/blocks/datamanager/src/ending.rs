//! The ends of transactions with many operations, in slices.
//!
//! Commit, rollback and completion go over a transaction's operations, from the newest on ([`Walk`]). Most transactions
//! have few, and end within the signal. One of a million would keep its thread from everything else for a second or
//! more, from the agreement of the data nodes above all, which would give this node up. So the end of a transaction
//! that has more than [`Settings::ending_slice`](crate::Settings::ending_slice) operations is queued, and each turn
//! goes over that many of one of those in the queue. A partial rollback is no end: it is done at once, as prepares of
//! its transaction may follow it, and prepares must not wait. A prepare that the primary forwards proves what has ended
//! there before (`chain`), so it may not be handled behind a later one of another transaction.
//!
//! # What holds in between
//! - A commit is decided when it begins: [`TransactionRecord::committed`](crate::operation::TransactionRecord) says so
//!   to a successor and to a coordinator in doubt, and nothing stops the walk, the coordinator's failure included.
//! - Operations that the walk has passed are final: shown and unlocked at a primary, undone at a rollback. The others
//!   hold their rows as before. Readers without locks see parts of a commit, as they do of one at several data
//!   managers; readers with locks wait for the parts that they read, and cannot come before it any more.
//! - What follows is sent when the walk is over: the order for the next replica, or the answer to the coordinator. So
//!   nobody learns of an end that is not complete here. If the coordinator does not act for the transaction any more,
//!   nothing is sent (freeze rule, see `take_over`).
//! - Orders about the transaction that come meanwhile wait until then, in the order in which they have come: one that
//!   is repeated because a replica has failed, or to drop the marker that the completion is going to leave. Nothing of
//!   a data node that is lost meanwhile is handled.
//! - Operations may go by other ways, as when a wait for a lock times out. If the walk has lost its place by that, it
//!   begins anew; what it has dealt with is passed over.

use crate::DataManager;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{AbortBody, Actor, CommitBody, CompleteBody};
use vinga_wire::{Address, Frame, SignalNumber};

/// Operations of a transaction's end that are dealt with in one turn: about a millisecond's work.
pub const ENDING_SLICE: u32 = 1000;

/// How far a walk over the operations of a transaction has come.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// The operation that is next.
    next: Option<Handle>,
    /// The one before it in the list, if the walk has left one there: it came later.
    pub newer: Option<Handle>,
}

impl Walk {
    /// Whether it has passed all operations.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }
}

/// How the changes of a transaction become final.
#[derive(Clone, Copy)]
pub(crate) enum CommitMode {
    /// They are shown and unlocked; `keeps_records`: those of changes stay.
    Shown { keeps_records: bool },
    /// They stay hidden until all replicas have committed.
    Hidden,
}

/// What ends.
#[derive(Clone, Copy)]
enum End {
    Commit(CommitBody, CommitMode),
    Abort(AbortBody),
    /// Who ordered it awaits the answer, if that says so.
    Complete(Option<CompleteBody>),
}

/// Something about a transaction that waits for the end of the walk.
enum Parked {
    /// A signal about nothing else.
    Frame(Vec<u8>),
    /// This coordinator orders to show and forget.
    Complete(Address),
    /// This coordinator orders to drop the marker.
    DropMarker(Address),
}

struct Ending {
    transaction: Handle,
    id: TransactionId,
    end: End,
    walk: Walk,
    parked: VecDeque<Parked>,
}

/// Ends that are under way, in the order of their turns.
#[derive(Default)]
pub(crate) struct Endings(VecDeque<Ending>);

impl Endings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a transaction's end is under way.
    pub fn is_under_way(&self, id: TransactionId) -> bool {
        self.0.iter().any(|ending| ending.id == id)
    }

    /// Keeps something for the end of a transaction's walk; false if there is none.
    fn park(&mut self, id: TransactionId, what: impl FnOnce() -> Parked) -> bool {
        let Some(ending) = self.0.iter_mut().find(|ending| ending.id == id) else { return false };
        ending.parked.push_back(what());
        true
    }

    /// An order to show and forget one of a list of transactions has to wait.
    pub fn park_complete(&mut self, id: TransactionId, sender: Address) -> bool {
        self.park(id, || Parked::Complete(sender))
    }

    /// An order to drop one of a list of markers has to wait.
    pub fn park_marker_drop(&mut self, id: TransactionId, sender: Address) -> bool {
        self.park(id, || Parked::DropMarker(sender))
    }
}

/// The transaction that an order is about, if it is one about the end of a single one.
fn transaction_of(frame: &Frame<'_>) -> Option<TransactionId> {
    let id = match frame.signal()? {
        SignalNumber::CommitRequest => frame.head::<CommitBody>()?.0.transaction,
        SignalNumber::AbortRequest => frame.head::<AbortBody>()?.0.transaction,
        SignalNumber::CompleteRequest => frame.head::<CompleteBody>()?.0.transaction,
        _ => return None,
    };
    Some(TransactionId(id.get()))
}

impl DataManager {
    /// A walk over all operations of a transaction.
    pub(crate) fn walk(&self, transaction: Handle) -> Walk {
        Walk { next: self.versions.transactions[transaction].operations, newer: None }
    }

    /// The walk's next operation; `None` if it is over.
    #[inline]
    pub(crate) fn step(&self, walk: &mut Walk) -> Option<Handle> {
        let handle = walk.next?;
        walk.next = self.versions.operations[handle].next;
        Some(handle)
    }

    /// Whether a transaction has more operations than a turn may deal with.
    #[inline]
    pub(crate) fn ends_in_slices(&self, transaction: Handle) -> bool {
        self.versions.transactions[transaction].count > self.settings.ending_slice
    }

    pub(crate) fn commit_in_slices(&mut self, transaction: Handle, body: &CommitBody, mode: CommitMode) {
        self.end_in_slices(transaction, End::Commit(*body, mode));
    }

    pub(crate) fn abort_in_slices(&mut self, transaction: Handle, body: &AbortBody) {
        self.end_in_slices(transaction, End::Abort(*body));
    }

    pub(crate) fn complete_in_slices(&mut self, transaction: Handle, answer: Option<&CompleteBody>) {
        self.end_in_slices(transaction, End::Complete(answer.copied()));
    }

    fn end_in_slices(&mut self, transaction: Handle, end: End) {
        let id = self.versions.transactions[transaction].id;
        let walk = self.walk(transaction);
        self.endings.0.push_back(Ending { transaction, id, end, walk, parked: VecDeque::new() });
    }

    /// Keeps an order about a transaction whose end is under way; false if it is about something else.
    pub(crate) fn park(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> bool {
        let Some(id) = transaction_of(frame) else { return false };
        if cx.has_bug(InjectedBug::SlicedEndIsOvertaken) {
            return false;
        }
        let is_parked = self.endings.park(id, || {
            let mut bytes = Vec::with_capacity(frame.length());
            frame.append_to(&mut bytes);
            Parked::Frame(bytes)
        });
        if is_parked {
            cx.mark("signal waits for the end of its transaction");
        }
        is_parked
    }

    /// Goes on with the end whose turn it is; returns whether any are left.
    pub(crate) fn ending_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(mut ending) = self.endings.0.pop_front() else { return false };
        cx.mark("slice of a transaction's end");
        let is_over = match self.versions.transactions.get(ending.transaction) {
            Some(_) => self.end_some(cx, &mut ending),
            None => true,
        };
        if is_over {
            self.send_ended(cx, &ending.end);
            self.handle_parked(cx, ending);
        } else {
            self.endings.0.push_back(ending);
        }
        self.run_ready(cx);
        !self.endings.is_empty()
    }

    /// Returns whether all is done.
    fn end_some(&mut self, cx: &mut Context<'_>, ending: &mut Ending) -> bool {
        let Ending { transaction, ref end, ref mut walk, .. } = *ending;
        self.find_place_again(cx, transaction, walk);
        let limit = self.settings.ending_slice;
        match end {
            End::Commit(body, mode) => {
                self.commit_some(cx, transaction, Epoch(body.epoch.get()), *mode, walk, limit)
            }
            End::Abort(body) => self.abort_some(cx, body, walk, limit),
            End::Complete(_) => self.complete_some(cx, transaction, walk, limit),
        }
    }

    /// Other work has been done since the last slice: if an operation has gone by which the walk knows its place, it
    /// begins anew.
    fn find_place_again(&self, cx: &mut Context<'_>, transaction: Handle, walk: &mut Walk) {
        let begin = self.walk(transaction);
        let is_there = |handle: Handle| self.versions.operations.get(handle).is_some();
        let knows_place = match walk.newer {
            None => walk.next == begin.next,
            Some(newer) => is_there(newer) && walk.next.is_none_or(is_there),
        };
        if !knows_place {
            cx.mark("slices of a transaction's end begin anew");
            *walk = begin;
        }
    }

    /// What follows from an end that is complete here.
    fn send_ended(&mut self, cx: &mut Context<'_>, end: &End) {
        match end {
            End::Commit(body, _) if self.still_acts(cx, &body.actor) => self.send_committed(cx, body),
            End::Abort(body) if self.still_acts(cx, &body.actor) => self.send_aborted(cx, body),
            End::Complete(Some(body)) if self.still_acts(cx, &body.actor) => Self::send_completed(cx, body),
            End::Commit(..) | End::Abort(_) | End::Complete(_) => {}
        }
    }

    fn still_acts(&self, cx: &mut Context<'_>, actor: &Actor) -> bool {
        let acts = Self::is_acting(cx, actor);
        if !acts {
            cx.mark("end that was under way when its coordinator failed");
        }
        acts
    }

    /// Handles what has waited for an end. If a long one begins by that, the rest waits for it.
    fn handle_parked(&mut self, cx: &mut Context<'_>, ending: Ending) {
        for parked in ending.parked {
            match parked {
                Parked::Frame(bytes) => {
                    let frame = Frame::first(&bytes).ok().flatten().expect("it was whole when it came");
                    let sent_in = cx.view_of(&frame);
                    if cx.view().has_since(frame.sender().node(), sent_in) {
                        self.handle_signal(cx, &frame);
                    } else {
                        cx.mark("order of a data node that was lost while an end was under way");
                    }
                }
                Parked::Complete(sender) => self.complete_listed(cx, ending.id, sender),
                Parked::DropMarker(sender) => self.drop_listed_marker(cx, ending.id, sender),
            }
        }
    }
}
