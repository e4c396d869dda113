//! The schema lock, as one of the requests to the dictionary: its token stays when it is answered, and has the lock as
//! long as it is there.
//!
//! All dictionaries know which claim has the lock, and a claim is the same one at each president as long as the session
//! lives (`vinga_dictionary`, `lock`). When the connection to the president is lost, whoever waits claims the lock
//! again from the next one, and whoever has it is in doubt until the next one has confirmed it: if it was not the data
//! node that was lost but the connection, the session was closed, and the lock may be somebody else's.
//!
//! Whoever does not want it any more gives it back until that is confirmed, at the next president if need be, though
//! nobody waits for it: else the lock would be held as long as the session lives.

use super::{Answer, Requests, tag};
use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use vinga_base::NodeId;
use vinga_base::pool::Handle;
use vinga_base::time::Span;
use vinga_wire::schema::{SchemaLockBody, SchemaLockRequest};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

/// What the schema lock is to a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    /// None of its business.
    None,
    /// Wanted.
    Wanted,
    /// It has it.
    Held,
    /// It had it of a president that is lost; the next one is asked.
    Doubtful,
    /// It had it.
    Lost,
    /// It is given back, or no longer wanted, which is not confirmed.
    Returned,
}

impl Lock {
    /// Whether the token stays though its answer is taken.
    pub(super) fn stays(self) -> bool {
        matches!(self, Lock::Held | Lock::Doubtful | Lock::Lost)
    }
}

/// Sends what a token wants of the lock.
pub(super) fn send(
    net: &mut Net,
    handle: Handle,
    (node, link): (NodeId, LinkId),
    lock: Lock,
    (purpose, wait): (&str, Span),
) {
    let dictionary = Address::new(node, BlockNumber::Dictionary, 0);
    let request = tag(handle);
    if lock == Lock::Returned {
        let body = SchemaLockBody { request };
        cold::write(&mut net.frame(link, SignalNumber::SchemaUnlockRequest, dictionary), &body);
    } else {
        let wait_millis = u32::try_from(wait.0 / 1000).unwrap_or(u32::MAX);
        let was_granted = lock == Lock::Doubtful;
        let body = SchemaLockRequest { request, purpose: purpose.into(), wait_millis, was_granted };
        cold::write(&mut net.frame(link, SignalNumber::SchemaLockRequest, dictionary), &body);
    }
}

impl Requests {
    /// Whether a token holds the schema lock; `None`: it did, and the next president has not said yet whether it still
    /// does.
    pub fn holds_lock(&self, handle: Handle) -> Option<bool> {
        match self.pool.get(handle).map(|waiting| waiting.lock) {
            Some(Lock::Held) => Some(true),
            Some(Lock::Doubtful) => None,
            _ => Some(false),
        }
    }

    /// Nobody wants the lock any more that a token has or waits for. Whether there is anything to give back.
    pub(super) fn return_lock(&mut self, net: &mut Net, handle: Handle) -> bool {
        let Some(waiting) = self.pool.get_mut(handle) else { return false };
        match waiting.lock {
            Lock::None | Lock::Lost => return false,
            Lock::Wanted if !waiting.is_sent && !waiting.was_lost => return false,
            Lock::Wanted | Lock::Held | Lock::Doubtful if waiting.is_sent => {
                let way = (waiting.node, waiting.link);
                send(net, handle, way, Lock::Returned, ("", Span(0)));
                net.link(way.1).hurry();
            }
            Lock::Wanted | Lock::Held | Lock::Doubtful | Lock::Returned => {}
        }
        (waiting.lock, waiting.is_abandoned, waiting.answer) = (Lock::Returned, true, None);
        true
    }

    /// Takes an answer about the lock in.
    pub(super) fn on_lock_answer(
        &mut self,
        net: &mut Net,
        handle: Handle,
        signal: SignalNumber,
        answer: Result<Answer>,
    ) {
        let waiting = &mut self.pool[handle];
        let is_of_return =
            matches!(signal, SignalNumber::SchemaUnlockConfirm | SignalNumber::SchemaUnlockRefuse);
        if is_of_return != (waiting.lock == Lock::Returned) {
            // It has crossed with the return.
            return;
        }
        let error = answer.err();
        let is_busy = error
            .as_ref()
            .is_some_and(|error| matches!(error.code(), ErrorCode::SchemaBusy | ErrorCode::Overloaded));
        match (waiting.lock, error) {
            (Lock::Wanted, None) => {
                waiting.lock = Lock::Held;
                waiting.answer = Some(Ok(Answer::Locked));
                net.notify(TokenKind::Request, handle);
            }
            (Lock::Wanted, Some(error)) if is_busy && waiting.was_lost => {
                self.claim_again(net, handle, error);
            }
            (Lock::Wanted, Some(error)) => {
                waiting.lock = Lock::None;
                waiting.answer = Some(Err(error));
                net.notify(TokenKind::Request, handle);
            }
            (Lock::Doubtful | Lock::Returned, Some(_)) if is_busy => self.postpone(net, handle),
            (Lock::Doubtful, error) => {
                waiting.lock = if error.is_none() { Lock::Held } else { Lock::Lost };
                net.notify(TokenKind::Request, handle);
            }
            (Lock::Returned, _) => self.end_unawaited(handle),
            (Lock::None | Lock::Held | Lock::Lost, _) => {}
        }
    }

    /// The next president does not know yet that it leads the cluster. Whoever has waited for it for too long gets the
    /// error.
    fn claim_again(&mut self, net: &mut Net, handle: Handle, error: Error) {
        if net.now >= self.pool[handle].until {
            self.give_up_lock(handle);
            self.pool[handle].answer = Some(Err(error));
            net.notify(TokenKind::Request, handle);
        }
        self.postpone(net, handle);
    }

    /// Whoever waits for the lock gets an error; a president that is lost may have granted it, so it is given back.
    pub(super) fn give_up_lock(&mut self, handle: Handle) {
        let waiting = &mut self.pool[handle];
        if waiting.was_lost {
            (waiting.lock, waiting.goes_on) = (Lock::Returned, true);
        } else {
            waiting.lock = Lock::None;
        }
    }
}
