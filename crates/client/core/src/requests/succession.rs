//! What becomes of requests when the data node is lost that is to answer, mostly the president: its dictionary answers.
//!
//! What was not sent, or may be carried out twice, is sent to the next president, or to the same one when it is
//! connected again; what may be carried out once only has an unknown outcome, unless it was sent when that president
//! could only stop, and changed nothing any more, or that has said as the last that it has sent everything. After a
//! while without a president whoever waits gets an error.
//!
//! *Write fences.* The next president knows those that there are, but not who wants them. A request for one may have
//! been carried out before its answer was lost; then the same request is refused the second time, as this client has
//! fenced the table already. That fence is lifted, and the requester may try again, unless another requester of this
//! client was given it (`given_fences`). One whose request is under way may be given it yet, as the next one may be
//! refused before all dictionaries have confirmed a fence: so its answer is awaited. A request to lift one goes on
//! until it is carried out, whether anybody waits or not, and so does one for a fence that nobody wants any more: no
//! fence is left behind as long as the session lives. While the dictionary is too busy for it, it is asked again and
//! again.
//!
//! A client may have received the view of a new president before the dictionary there has: what that refuses, as it
//! does not lead the cluster in its own view, is sent again, as is what a president refuses that is about to stop.

use super::{Answer, Fence, Lock, Request, Requests, Waiting, lifts_fence, why_no_way};
use crate::error::{Error, Result};
use crate::net::{Net, TokenKind, Unread};
use crate::sessions::{Admission, Sessions};
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::time::{Span, Tick};
use vinga_wire::ErrorCode;
use vinga_wire::schema::SchemaChange;

/// How often it is looked whether somebody has waited for too long.
const CHECK: Span = Span::from_millis(50);

impl Requests {
    /// All connections to an endpoint are gone. If its data node had left, and everything was read that it has sent, it
    /// has not read what it has not answered: while it left it refused changes at once.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16, unread: Unread) {
        for handle in self.handles() {
            let waiting = &mut self.pool[handle];
            if !waiting.is_sent || waiting.link.endpoint() != endpoint {
                continue;
            }
            if matches!(waiting.lock, Lock::Held | Lock::Doubtful) {
                waiting.lock = Lock::Doubtful;
            } else if waiting.answer.is_some() && !waiting.goes_on || waiting.lock == Lock::Lost {
                // A backup that has begun ends with the session: there is no connection to close it by.
                waiting.opens_backup = None;
                continue;
            }
            let was_not_read = waiting.changes && unread == Unread::Nothing;
            let is_in_vain = waiting.request.is_none() && (waiting.is_in_vain || was_not_read);
            if is_in_vain {
                waiting.request = waiting.sent.take();
            }
            if waiting.request.is_some() {
                if !waiting.was_lost {
                    waiting.until = net.now + net.settings.way_patience;
                }
                (waiting.is_sent, waiting.was_lost) = (false, waiting.was_lost || !is_in_vain);
                self.unsent += 1;
            } else if waiting.is_abandoned {
                // It goes with the connection.
                self.remove(handle);
            } else {
                waiting.answer = Some(Err(if waiting.changes {
                    Error::with_detail(ErrorCode::UnknownOutcome, "a change of the schema was under way")
                } else {
                    Error::new(ErrorCode::ConnectionLost)
                }));
                net.notify(TokenKind::Request, handle);
            }
        }
    }

    /// Sends what waits, if the president is connected, or the data node that is asked; else those get an error who
    /// have waited for too long, or later than one may be hoped for.
    pub fn go_on(&mut self, net: &mut Net, sessions: &Sessions) {
        if self.unsent == 0 {
            return;
        }
        for handle in self.handles() {
            let waiting = &self.pool[handle];
            let is_answered = waiting.answer.is_some() && !waiting.goes_on && waiting.lock != Lock::Doubtful;
            if waiting.is_sent || is_answered {
                continue;
            }
            if net.now < waiting.not_before {
                continue;
            }
            let node = waiting.request.as_ref().and_then(Request::asked_node);
            let (way, awaited_until) = sessions.way(net, node);
            if let Some(way) = way {
                self.send(net, handle, way);
            } else if net.now >= waiting.until.min(awaited_until) {
                self.give_up(net, handle);
            }
        }
    }

    /// When [`Requests::go_on`] is to be called, though no connection has changed.
    pub fn due_at(&self, net: &Net) -> Option<Tick> {
        (self.unsent > 0).then(|| net.now + CHECK)
    }

    /// Whoever waits for it has waited for too long.
    fn give_up(&mut self, net: &mut Net, handle: Handle) {
        let waiting = &mut self.pool[handle];
        if waiting.is_abandoned || waiting.answer.is_some() || waiting.lock == Lock::Doubtful {
            return;
        }
        let is_lifted = waiting.request.as_ref().is_some_and(lifts_fence);
        waiting.goes_on = is_lifted || waiting.fence != Fence::None && waiting.was_lost;
        let why = match (waiting.was_lost, waiting.changes, &waiting.request) {
            (true, true, _) => ErrorCode::UnknownOutcome.into(),
            (true, false, _) => ErrorCode::ConnectionLost.into(),
            (false, _, Some(request)) => why_no_way(net, request),
            (false, _, None) => ErrorCode::ClusterFailure.into(),
        };
        waiting.answer = Some(Err(why));
        if waiting.lock == Lock::Wanted {
            self.give_up_lock(handle);
        }
        net.notify(TokenKind::Request, handle);
    }

    /// Nobody waits for a request about a write fence any more: it goes on all the same until no fence is left. Whether
    /// there is anything to go on with.
    pub(super) fn keep_lifting(&mut self, handle: Handle) -> bool {
        let Some(waiting) = self.pool.get_mut(handle) else { return false };
        let is_lifting = waiting.request.as_ref().is_some_and(lifts_fence);
        if waiting.fence == Fence::None && !is_lifting {
            return false;
        }
        if core::mem::replace(&mut waiting.is_abandoned, true) {
            return true;
        }
        match waiting.answer.take() {
            None => {
                let was_never_sent = !waiting.is_sent && !waiting.was_lost && !is_lifting;
                !was_never_sent
            }
            Some(_) if waiting.goes_on => true,
            Some(Ok(Answer::Changed(Some(record)))) if waiting.fence == Fence::Wanted => {
                self.lift(handle, record.table);
                true
            }
            Some(_) => false,
        }
    }

    /// An answer to a request about a write fence; returns what its requester is answered, `None` if that comes later.
    pub(super) fn after_fence(
        &mut self,
        net: &mut Net,
        handle: Handle,
        answer: Result<Answer>,
    ) -> Option<Result<Answer>> {
        let waiting = &mut self.pool[handle];
        if let (Fence::Sought | Fence::Lifted, Err(error)) = (waiting.fence, &answer)
            && matches!(error.code(), ErrorCode::SchemaBusy | ErrorCode::Overloaded)
        {
            let error = error.clone();
            self.ask_again(net, handle, error);
            return None;
        }
        let may_be_others =
            matches!(&answer, Ok(Answer::Table(record)) if self.may_be_given(&record.definition.name));
        let waiting = &mut self.pool[handle];
        let is_unwanted = waiting.is_abandoned || waiting.goes_on;
        match (waiting.fence, answer) {
            (Fence::Wanted, Ok(Answer::Changed(Some(record)))) if is_unwanted => {
                self.lift(handle, record.table);
                None
            }
            // The request that was lost may have been carried out.
            (Fence::Wanted, Err(error)) if waiting.was_lost && error.code() == ErrorCode::SchemaBusy => {
                waiting.failure = Some(error);
                match &waiting.request {
                    Some(Request::ChangeSchema(SchemaChange::FenceTable { name, .. })) => {
                        let name = name.clone();
                        waiting.fence = Fence::Sought;
                        self.ask_instead(handle, Request::DescribeTable(name));
                        None
                    }
                    _ => waiting.failure.take().map(Err),
                }
            }
            (Fence::Sought, Ok(Answer::Table(_))) if may_be_others => {
                let error = waiting.failure.clone().expect("it was refused");
                self.ask_again(net, handle, error);
                None
            }
            (Fence::Sought, Ok(Answer::Table(record)))
                if !self.given_fences.contains(&(record.table, record.birth)) =>
            {
                self.lift(handle, record.table);
                None
            }
            (Fence::Wanted, Ok(Answer::Changed(Some(record)))) => {
                self.given_fences.insert((record.table, record.birth));
                Some(Ok(Answer::Changed(Some(record))))
            }
            (Fence::Sought | Fence::Lifted, answer) => Some(waiting.failure.take().map_or(answer, Err)),
            (Fence::None | Fence::Wanted, answer) => Some(answer),
        }
    }

    /// Whether a requester of this client waits for the answer about a write fence of this table.
    fn may_be_given(&self, table: &str) -> bool {
        self.pool.iter().any(|(_, waiting)| match &waiting.request {
            Some(Request::ChangeSchema(SchemaChange::FenceTable { name, .. })) => {
                waiting.is_sent && (waiting.answer.is_none() || waiting.goes_on) && name == table
            }
            _ => false,
        })
    }

    /// This client is admitted to the cluster. The write fences of another admission have ended with it.
    pub fn on_admitted(&mut self, admission: Admission) {
        if self.admission.replace(admission) != Some(admission) {
            self.given_fences.clear();
        }
    }

    /// Whoever was given the write fence of a table has it lifted.
    pub(super) fn forget_fence(&mut self, table: u32) {
        self.given_fences.retain(|fence| fence.0 != table);
    }

    /// The write fence of a table is lifted, if this client has it.
    fn lift(&mut self, handle: Handle, table: u32) {
        self.forget_fence(table);
        self.pool[handle].fence = Fence::Lifted;
        self.ask_instead(handle, Request::ChangeSchema(SchemaChange::LiftFence { table }));
    }

    /// The dictionary can't lift a fence now: it does not lead the cluster yet, or has much to do. It is asked again.
    /// Whoever has waited for too long gets the error, and it goes on.
    fn ask_again(&mut self, net: &mut Net, handle: Handle, error: Error) {
        self.postpone(net, handle);
        let waiting = &mut self.pool[handle];
        if net.now >= waiting.until && waiting.answer.is_none() && !waiting.is_abandoned {
            waiting.answer = Some(Err(error));
            waiting.goes_on = true;
            net.notify(TokenKind::Request, handle);
        }
    }

    /// The president is about to stop, or does not know yet that it is the president, and has done nothing: it is sent
    /// to the next one, as soon as there is one, or once more.
    pub(super) fn ask_next_president(&mut self, net: &Net, handle: Handle) {
        let waiting = &mut self.pool[handle];
        if waiting.is_sent {
            waiting.until = net.now + net.settings.way_patience;
            self.postpone(net, handle);
        }
    }

    /// It is sent again a while later.
    pub(super) fn postpone(&mut self, net: &Net, handle: Handle) {
        let waiting = &mut self.pool[handle];
        assert!(waiting.is_sent && waiting.request.is_some(), "what may be repeated is kept");
        waiting.is_sent = false;
        waiting.not_before = net.now + CHECK;
        self.unsent += 1;
    }

    /// Another request takes the place of one that was answered, and is to be sent.
    fn ask_instead(&mut self, handle: Handle, request: Request) {
        let waiting = &mut self.pool[handle];
        waiting.request = Some(request);
        if core::mem::replace(&mut waiting.is_sent, false) {
            self.unsent += 1;
        }
    }

    /// It is over, and nobody waits for that; but the answer that it is not known may not have been taken.
    pub(super) fn end_unawaited(&mut self, handle: Handle) {
        let waiting = &mut self.pool[handle];
        if waiting.answer.is_some() {
            waiting.goes_on = false;
        } else {
            self.remove(handle);
        }
    }

    /// Whether something goes on that nobody waits for.
    pub fn has_unawaited(&self) -> bool {
        let goes_on = |one: &Waiting| one.is_abandoned || one.goes_on || one.lock == Lock::Doubtful;
        self.pool.iter().any(|(_, waiting)| goes_on(waiting))
    }

    fn handles(&self) -> Vec<Handle> {
        self.pool.iter().map(|(handle, _)| handle).collect()
    }
}
