//! Operations that are transactions by themselves.
//!
//! Each is one batch that starts and commits. When a connection is lost, those that were on their way are asked for
//! once it is back; an operation that was cancelled is not. One of which nothing has come, or that was rolled back
//! because a data node has failed, is begun again as another transaction; and it is *held* while no coordinator is
//! connected, but one may be hoped for.

use crate::error::Result;
use crate::net::{Net, TokenKind};
use crate::outcomes::Coordinator;
use crate::reads::Urgency;
use crate::request::{Head, write_batch_of_operations, write_question};
use crate::routes::CoordinatorIndex;
use crate::settings::{BATCHES_MAX, REPEATS_AT_ONCE, SINGLES_MAX};
use crate::write_batch::{Ending, WriteBatch};
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::Tick;
use vinga_wire::ErrorCode;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START, Outcome, OutcomeConfirm, TransactionAnswer};

/// One operation under way.
struct Single {
    batch: Handle,
    index: u32,
    id: TransactionId,
    coordinator: CoordinatorIndex,
    /// Its connection was lost: its outcome is asked for, until then.
    asked_until: Option<Tick>,
    /// It is not sent: what it fails with if there is no coordinator.
    held: Option<ErrorCode>,
    /// Until when it may be held or begun again.
    held_until: Tick,
    /// How often it was begun again.
    repeats: u32,
}

/// All operations outside transactions that are under way.
pub(crate) struct Writes {
    batches: Pool<WriteBatch>,
    singles: Pool<Single>,
    asking: u32,
    held: u32,
}

impl Writes {
    pub fn new() -> Self {
        Writes { batches: Pool::new(BATCHES_MAX), singles: Pool::new(SINGLES_MAX), asking: 0, held: 0 }
    }

    /// Begins all operations of a batch.
    pub fn submit(&mut self, net: &mut Net, mut batch: WriteBatch, urgency: Urgency) -> Result<Handle> {
        if batch.len() as u32 > self.singles.capacity() - self.singles.used() {
            return Err(ErrorCode::Overloaded.into());
        }
        batch.become_waiting();
        let handle = self.batches.insert(batch).map_err(|_| ErrorCode::Overloaded)?;
        let held_until = net.now + net.settings.way_patience;
        for index in 0..self.batches[handle].len() as u32 {
            let single = Single {
                batch: handle,
                index,
                id: TransactionId::NONE,
                coordinator: CoordinatorIndex(0),
                asked_until: None,
                held: Some(ErrorCode::ClusterFailure),
                held_until,
                repeats: 0,
            };
            let Ok(single) = self.singles.insert(single) else {
                unreachable!("room for the whole batch was found before")
            };
            self.held += 1;
            self.send(net, single, urgency);
        }
        // One without operations.
        if self.batches.get(handle).is_some_and(WriteBatch::is_empty) {
            net.notify(TokenKind::Write, handle);
        }
        Ok(handle)
    }

    /// Begins an operation that is held, if there is a coordinator; or ends it, if that has been so for too long.
    #[inline]
    fn send(&mut self, net: &mut Net, handle: Handle, urgency: Urgency) {
        let single = &mut self.singles[handle];
        let code = single.held.expect("the caller has found it so");
        let Some(batch) = self.batches.get(single.batch) else {
            self.held -= 1;
            self.singles.remove(handle);
            return;
        };
        let (operation, partition) = batch.operation(single.index as usize);
        let coordinator = net.routes.coordinator(Some(partition));
        let way = coordinator.and_then(|c| Some((c, net.outcomes.get(c).link?)));
        let Some((coordinator, to)) = way else {
            if net.now >= single.held_until.min(net.routes.awaited_until(partition)) {
                self.end_held(net, handle, code);
            }
            return;
        };
        (single.id, single.coordinator, single.held) = (net.next_transaction(), coordinator, None);
        self.held -= 1;
        let head = Head {
            id: single.id,
            coordinator,
            tag: handle.index(),
            flags: FLAG_START | FLAG_COMMIT,
            rollback_from: 0,
            count: 1,
        };
        write_batch_of_operations(net, &head, operation);
        let now = net.now;
        let link = net.link(to);
        link.gather(1, now);
        if urgency == Urgency::Now {
            link.hurry();
        }
    }

    fn end_held(&mut self, net: &mut Net, handle: Handle, code: ErrorCode) {
        let single = self.singles.remove(handle).expect("the caller has found it");
        self.held -= 1;
        let why = match code {
            ErrorCode::ClusterFailure => net.routes.why_no_coordinator(),
            code => code.into(),
        };
        self.end_in_batch(net, &single, |batch| batch.fail(single.index, &why));
    }

    #[inline]
    fn end_in_batch(&mut self, net: &mut Net, single: &Single, end: impl FnOnce(&mut WriteBatch)) {
        if let Some(batch) = self.batches.get_mut(single.batch) {
            end(batch);
            if batch.is_complete() {
                net.notify(TokenKind::Write, single.batch);
            }
        }
    }

    /// Connections have changed, or time has passed: begins what can be begun now.
    pub fn go_on(&mut self, net: &mut Net) {
        if self.held == 0 {
            return;
        }
        for handle in self.handles() {
            if self.singles[handle].held.is_some() {
                self.send(net, handle, Urgency::Now);
            }
        }
    }

    /// Whether operations wait for a coordinator.
    pub fn has_held(&self) -> bool {
        self.held > 0
    }

    /// Takes a batch that is complete; `None` if it is not, or not there.
    #[inline]
    pub fn take(&mut self, handle: Handle) -> Option<WriteBatch> {
        if self.batches.get(handle)?.is_complete() { self.batches.remove(handle) } else { None }
    }

    /// Nobody waits for a batch any more. What was sent goes on.
    pub fn cancel(&mut self, handle: Handle) {
        self.batches.remove(handle);
    }

    /// An answer with the tag of an autocommitted operation.
    #[inline]
    pub fn on_answer(&mut self, net: &mut Net, answer: &TransactionAnswer) -> Option<()> {
        let Some(handle) = self.find(answer.request.get(), answer.transaction.get()) else { return Some(()) };
        let ending = match Outcome::from_number(answer.outcome)? {
            Outcome::Committed => Ending::Committed,
            Outcome::NotOnDisk => Ending::Failed(ErrorCode::NotOnDisk),
            Outcome::RolledBack => Ending::Failed(rollback_code(answer.error.get())),
            Outcome::Open | Outcome::NotFound => return None,
        };
        self.end(net, handle, ending, answer.outcome_number.get());
        Some(())
    }

    /// An answer to a question with the tag of an autocommitted operation.
    pub fn on_outcome(&mut self, net: &mut Net, confirm: &OutcomeConfirm) -> Option<()> {
        let Some(handle) = self.find(confirm.request.get(), confirm.transaction.get()) else {
            return Some(());
        };
        let ending = match Outcome::from_number(confirm.outcome)? {
            Outcome::Committed => Ending::Committed,
            Outcome::NotOnDisk => Ending::Failed(ErrorCode::NotOnDisk),
            Outcome::RolledBack | Outcome::NotFound => Ending::Failed(ErrorCode::ConnectionLost),
            Outcome::Open => return None,
        };
        net.note_epoch(confirm.epoch.get());
        self.end(net, handle, ending, confirm.outcome_number.get());
        Some(())
    }

    #[inline]
    fn find(&self, tag: u32, id: u64) -> Option<Handle> {
        let handle = self.singles.handle_at(tag)?;
        (self.singles[handle].id.0 == id && id != 0).then_some(handle)
    }

    #[inline]
    fn end(&mut self, net: &mut Net, handle: Handle, ending: Ending, outcome_number: u32) {
        let single = &mut self.singles[handle];
        if single.asked_until.take().is_some() {
            self.asking -= 1;
            net.outcomes.close_question(single.coordinator, outcome_number);
        } else {
            if let Some(link) = net.outcomes.get(single.coordinator).link {
                net.link(link).answered(1);
            }
            net.outcomes.note(single.coordinator, outcome_number);
        }
        if let Ending::Failed(code @ (ErrorCode::NodeFailure | ErrorCode::ConnectionLost)) = ending
            && net.now < single.held_until
        {
            // Nothing was done.
            single.held = Some(code);
            single.id = TransactionId::NONE;
            single.repeats += 1;
            self.held += 1;
            if single.repeats <= REPEATS_AT_ONCE {
                self.send(net, handle, Urgency::Now);
            }
            return;
        }
        let single = self.singles.remove(handle).expect("the caller has found it");
        self.end_in_batch(net, &single, |batch| batch.end(single.index, ending));
    }

    /// All connections to an endpoint are gone, but its coordinators are still listed with them.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let until = net.now + net.settings.outcome_patience;
        for handle in self.handles() {
            let single = &mut self.singles[handle];
            if single.held.is_some() || single.asked_until.is_some() {
                continue;
            }
            if !net.outcomes.get(single.coordinator).is_reached_by(endpoint) {
                continue;
            }
            if self.batches.get(single.batch).is_none() {
                net.outcomes.note_unanswered(single.coordinator, single.id);
                self.singles.remove(handle);
                continue;
            }
            single.asked_until = Some(until);
            self.asking += 1;
            net.outcomes.open_question(single.coordinator);
        }
    }

    /// Asks for outcomes that are not known, of transactions of these coordinators.
    pub fn ask(&mut self, net: &mut Net, of: impl Fn(&Coordinator) -> bool) {
        if self.asking == 0 {
            return;
        }
        for (handle, single) in self.singles.iter() {
            if single.asked_until.is_some() && of(net.outcomes.get(single.coordinator)) {
                write_question(net, single.coordinator, single.id, handle.index());
            }
        }
    }

    /// Gives up the questions that `hopeless` names by their coordinator and the time until which they are asked.
    pub fn give_up(
        &mut self,
        net: &mut Net,
        code: ErrorCode,
        hopeless: impl Fn(&Net, CoordinatorIndex, Tick) -> bool,
    ) {
        if self.asking == 0 {
            return;
        }
        for handle in self.handles() {
            let single = &self.singles[handle];
            if single.asked_until.is_some_and(|until| hopeless(net, single.coordinator, until)) {
                net.outcomes.note_unanswered(single.coordinator, single.id);
                self.end(net, handle, Ending::Failed(code), 0);
            }
        }
    }

    fn handles(&self) -> Vec<Handle> {
        self.singles.iter().map(|(handle, _)| handle).collect()
    }

    /// Outcomes that are being asked for.
    pub fn asking(&self) -> u32 {
        self.asking
    }

    /// Whether nothing is under way.
    pub fn is_at_rest(&self) -> bool {
        self.batches.used() == 0 && self.singles.used() == 0
    }
}

/// Why a transaction was rolled back, as the coordinator says; one that nothing caused is a bug.
pub(crate) fn rollback_code(number: u16) -> ErrorCode {
    ErrorCode::from_number(number).unwrap_or(ErrorCode::InternalError)
}
