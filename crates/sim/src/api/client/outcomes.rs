//! Outcomes: confirming those that are known, asking for those that are not.

use super::{Call, Client, Surroundings};
use vinga_base::{Epoch, TransactionId};
use vinga_wire::transaction::{Outcome, OutcomeConfirm, OutcomeRequest, OutcomesSeenOrder};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U32, U64};
use vinga_workloads::step::Fate;

/// What is known of one coordinator's outcomes.
#[derive(Default)]
pub struct Seen {
    /// All up to this number are known.
    number: u32,
    /// The highest number met; above `number` only while questions are open.
    highest: u32,
    /// What the coordinator was told last.
    told: u32,
    questions: u32,
}

impl Seen {
    pub fn is_confirmed(&self) -> bool {
        self.told == self.number && self.questions == 0
    }

    fn note(&mut self, number: u32) {
        self.highest = self.highest.max(number);
        if self.questions == 0 {
            self.number = self.highest;
        }
    }
}

impl Client {
    /// What a batch tells its coordinator.
    pub(super) fn seen_for_batch(&mut self, coordinator: Address) -> u32 {
        let seen = self.seen.entry(coordinator).or_default();
        seen.told = seen.number;
        seen.number
    }

    pub(super) fn note_outcome(&mut self, coordinator: Address, number: u32) {
        if number != 0 {
            self.seen.entry(coordinator).or_default().note(number);
        }
    }

    pub(super) fn confirm_idle_outcomes(&mut self) {
        let owner = TransactionId::new(self.node, self.incarnation, 1);
        let coordinators: Vec<Address> = self.seen.keys().copied().collect();
        for coordinator in coordinators {
            let seen = &self.seen[&coordinator];
            let number = seen.number;
            if seen.told == number {
                continue;
            }
            let Some(link) = self.link_to(coordinator) else { continue };
            let Some(mut frame) = self.frame(link, SignalNumber::OutcomesSeenOrder, coordinator, 0) else {
                continue;
            };
            frame.put(&OutcomesSeenOrder { owner: U64::new(owner.0), outcomes_seen: U32::new(number) });
            drop(frame);
            self.seen.get_mut(&coordinator).expect("it was there just now").told = number;
        }
    }

    /// The connections are lost: of what was to be committed the end is not known, everything else is rolled back.
    pub(super) fn lose_transactions(&mut self, cx: &mut Surroundings<'_>) {
        // What was told last may have been lost as well.
        self.seen.values_mut().for_each(|seen| seen.told = 0);
        for session in 0..self.sessions.len() {
            self.finish_batch(cx, session);
            let Some(transaction) = &mut self.sessions[session].transaction else { continue };
            if transaction.is_in_doubt {
                // The answer to a question may be lost too: it is asked again.
            } else if cx.history.transactions[transaction.index].commit_sent.is_some() {
                transaction.is_in_doubt = true;
                self.seen.entry(transaction.coordinator).or_default().questions += 1;
            } else {
                let error = Some(ErrorCode::ConnectionLost);
                self.end_transaction(cx, session, Fate::RolledBack { error, operation: 0 });
            }
        }
    }

    /// Connected again: asks what became of the transactions that are in doubt.
    pub(super) fn ask_outcomes(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            let Some(transaction) = &self.sessions[session].transaction else { continue };
            if !transaction.is_in_doubt {
                continue;
            }
            let (id, coordinator) = (transaction.id, transaction.coordinator);
            let tag = self.next_tag();
            let sent = self.link_to(coordinator).and_then(|link| {
                self.frame(link, SignalNumber::OutcomeRequest, coordinator, tag)?
                    .put(&OutcomeRequest { transaction: U64::new(id.0), request: U32::new(tag) });
                Some(())
            });
            if sent.is_none() {
                cx.violations.push(format!("coordinator {coordinator} can't be reached"));
            }
            self.calls.insert(tag, Call::Outcome { session });
        }
    }

    pub(super) fn on_outcome_confirm(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<OutcomeConfirm>()?;
        let Some(Call::Outcome { session }) = self.calls.remove(&body.request.get()) else { return Some(()) };
        let fate = match Outcome::from_number(body.outcome)? {
            Outcome::Committed => Fate::Committed(Epoch(body.epoch.get())),
            Outcome::RolledBack | Outcome::NotFound => {
                Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), operation: 0 }
            }
            Outcome::Open => return None,
        };
        self.note_epoch(body.epoch.get());
        let transaction = self.sessions[session].transaction.as_ref().expect("it is in doubt");
        let seen = self.seen.get_mut(&transaction.coordinator).expect("a question was asked there");
        seen.questions -= 1;
        seen.note(body.outcome_number.get());
        self.end_transaction(cx, session, fate);
        Some(())
    }

    /// This incarnation was declared failed: nobody will answer.
    pub(super) fn give_up_questions(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            if self.sessions[session].transaction.is_some() {
                self.end_transaction(cx, session, Fate::Unknown);
            }
        }
    }
}
