//! Incarnations: which ones the sessions of an id get.

use crate::cluster::Cluster;
use vinga_base::{Incarnation, NodeId, TransactionId};

/// Which incarnation each of several runs of a client is given, that ask for these and leave one after the other.
fn given(requested: &[u32]) -> Vec<u32> {
    let mut cluster = Cluster::new(2);
    let mut given = Vec::new();
    for &incarnation in requested {
        let client = cluster.come(150, incarnation, 1);
        assert!(cluster.clients[client].admitted.is_some(), "the id is free");
        given.push(cluster.clients[client].incarnation);
        cluster.leave(1, 150, cluster.clients[client].incarnation);
        cluster.finish_all();
    }
    cluster.come_to_rest();
    given
}

/// Transaction ids have the low 16 bits of an incarnation; two sessions that differ only above these use the same ids.
#[test]
fn sessions_of_an_id_have_transaction_ids_of_their_own() {
    let given = given(&[5, 5 + (1 << 16)]);
    let first = |incarnation| TransactionId::new(NodeId(150), Incarnation(incarnation), 1);
    assert_ne!(first(given[0]), first(given[1]), "the first transactions of incarnations {given:?}");
}

/// A client whose clock is wrong, or that lies, asks for the greatest incarnation there is.
#[test]
fn incarnations_grow_also_after_the_greatest() {
    let given = given(&[u32::MAX, u32::MAX, 7]);
    assert!(given.is_sorted_by(|a, b| a < b), "an id has ever greater incarnations: {given:?}");
}
