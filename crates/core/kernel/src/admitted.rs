//! The API nodes that are admitted, as a block knows them from membership's orders.

use alloc::boxed::Box;
use vinga_base::{NodeId, TransactionId};
use vinga_wire::membership::ApiNodeBody;

/// Which API nodes may send something, and which transactions are theirs. What still comes of others, by way of a
/// thread that did not run for a while, is not carried out: `docs/protocols/membership.md`.
#[derive(Debug)]
pub struct AdmittedNodes {
    /// By node id: the owner of its transactions, 0 if it is not admitted.
    owners: Box<[u32; 256]>,
}

impl Default for AdmittedNodes {
    fn default() -> Self {
        AdmittedNodes { owners: Box::new([0; 256]) }
    }
}

impl AdmittedNodes {
    /// This incarnation is admitted.
    pub fn admit(&mut self, body: &ApiNodeBody) {
        self.owners[usize::from(body.api)] = body.owner();
    }

    /// The API node's connections are closed.
    pub fn close(&mut self, api: NodeId) {
        self.owners[usize::from(api.0)] = 0;
    }

    /// Whether an API node is admitted.
    #[inline]
    pub fn has(&self, api: NodeId) -> bool {
        self.owners[usize::from(api.0)] != 0
    }

    /// The owner of the transactions of an API node in the incarnation that is admitted; 0: it is not admitted.
    pub fn owner(&self, api: NodeId) -> u32 {
        self.owners[usize::from(api.0)]
    }

    /// Whether a transaction is one of this API node, in the incarnation that is admitted.
    #[inline]
    pub fn owns(&self, api: NodeId, transaction: TransactionId) -> bool {
        self.owners[usize::from(api.0)] == transaction.owner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;

    #[test]
    fn only_the_admitted_incarnation_owns_transactions() {
        let (one, other) = (NodeId(145), NodeId(146));
        let id = |api, incarnation| TransactionId::new(api, Incarnation(incarnation), 7);
        let mut admitted = AdmittedNodes::default();
        assert!(!admitted.has(one) && !admitted.owns(one, id(one, 3)));
        admitted.admit(&ApiNodeBody::new(one, Incarnation(3)));
        assert!(admitted.has(one) && !admitted.has(other));
        assert!(admitted.owns(one, id(one, 3)));
        assert!(!admitted.owns(one, id(one, 4)) && !admitted.owns(one, id(other, 3)));
        assert!(!admitted.owns(other, id(one, 3)));
        admitted.close(one);
        assert!(!admitted.has(one) && !admitted.owns(one, id(one, 3)));
    }
}
