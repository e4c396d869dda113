//! Batches and questions as they are written.

use crate::net::Net;
use crate::routes::CoordinatorIndex;
use vinga_base::TransactionId;
use vinga_wire::take_over::InheritedOutcomeRequest;
use vinga_wire::transaction::{OutcomeRequest, TransactionHead};
use vinga_wire::{SignalNumber, U16, U32, U64};

/// Tags of batches of open transactions; those of autocommitted operations lack this bit.
pub const BATCH_TAG: u32 = 1 << 31;

/// A batch without its operations.
pub struct Head {
    pub id: TransactionId,
    pub coordinator: CoordinatorIndex,
    pub tag: u32,
    pub flags: u16,
    pub rollback_from: u32,
    pub count: u16,
}

/// Writes a batch. Its coordinator must be reachable.
#[inline]
pub fn write_batch_of_operations(net: &mut Net, head: &Head, operations: &[u8]) {
    let coordinator = net.outcomes.get(head.coordinator);
    let (address, link) = (coordinator.acting, coordinator.link.expect("the caller has checked it"));
    let outcomes_seen = net.outcomes.seen_for_batch(head.coordinator, net.now);
    let epoch_seen = net.epoch_seen;
    net.frame(link, SignalNumber::TransactionRequest, address)
        .put(&TransactionHead {
            transaction: U64::new(head.id.0),
            epoch_seen: U64::new(epoch_seen),
            request: U32::new(head.tag),
            outcomes_seen: U32::new(outcomes_seen),
            rollback_from: U32::new(head.rollback_from),
            flags: U16::new(head.flags),
            count: U16::new(head.count),
        })
        .bytes(operations);
}

/// Asks for the outcome of a transaction, if its coordinator, or who acts for that, is reachable.
pub fn write_question(net: &mut Net, coordinator: CoordinatorIndex, id: TransactionId, tag: u32) {
    let asked = net.outcomes.get(coordinator);
    let (name, acting, is_dead, Some(link)) = (asked.name, asked.acting, asked.is_dead(), asked.link) else {
        return;
    };
    let (transaction, request) = (U64::new(id.0), U32::new(tag));
    if is_dead {
        net.frame(link, SignalNumber::InheritedOutcomeRequest, acting).put(&InheritedOutcomeRequest {
            transaction,
            request,
            coordinator: name.into(),
        });
    } else {
        net.frame(link, SignalNumber::OutcomeRequest, acting).put(&OutcomeRequest { transaction, request });
    }
    net.link(link).hurry();
}
