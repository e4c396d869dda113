//! Courses of events in which a president dies, or several one after the other.

use crate::cluster::{Client, Cluster};
use crate::common;
use vinga_kernel::Span;

/// Two presidents die one after the other: the first during an admission, the second while it gives that up. At that
/// moment the session is closed at one host, admitted at another and unknown to a third.
#[test]
fn two_presidents_die_during_an_admission() {
    let mut cluster = Cluster::in_groups(6, 2);
    cluster.clients.push(Client { wants: 150, incarnation: 1, admitted: None });
    cluster.greet(0, 2, 0);
    cluster.quiet_but_wires(&[0, 1, 2, 3, 4, 5]);
    cluster.deliver_all(3, 1);
    // The first president asks all hosts; node 6 is not reached.
    for to in [2, 3, 4, 5] {
        cluster.deliver_all(1, to);
    }
    cluster.quiet_but_wires(&[1, 2, 3, 4, 5]);
    cluster.kill(0, 0);
    for at in [1, 2, 3, 4, 5] {
        assert!(cluster.adopt(at));
    }
    // The second one asks everybody, and gives the admission up; only node 3 is notified.
    for other in [3, 4, 5, 6] {
        cluster.deliver_all(2, other);
        cluster.deliver_all(other, 2);
    }
    assert!(cluster.has_met("next registrar gives up an admission"));
    cluster.deliver_all(2, 3);
    cluster.quiet_but_wires(&[2, 3, 4, 5]);
    cluster.kill(1, 0);
    cluster.finish_all();
    cluster.come_to_rest();
}

/// All blocks know that a session is admitted; its confirm is lost with the president.
#[test]
fn a_fixed_id_whose_confirm_was_lost_with_the_president_is_admitted() {
    let mut cluster = Cluster::new(3);
    cluster.clients.push(Client { wants: 150, incarnation: 1, admitted: None });
    cluster.greet(0, 1, 0);
    cluster.quiet_but_wires(&[0, 1, 2]);
    cluster.deliver_all(2, 1);
    cluster.deliver_all(1, 2);
    cluster.deliver_all(1, 3);
    cluster.quiet_but_wires(&[0, 1, 2]);
    cluster.deliver_all(2, 1);
    cluster.deliver_all(3, 1);
    cluster.kill(0, 0);
    cluster.finish_all();
    assert!(cluster.has_met("next registrar closes a session"));
    for _ in 0..60 {
        cluster.advance(Span::from_millis(100));
        cluster.finish_all();
    }
    assert_eq!(cluster.answered.len(), 1, "it was answered");
    assert!(cluster.clients[0].admitted.is_some(), "nobody else has its id, and it was refused");
}

/// As many clients come as there may be; the president dies during the admission of the last.
#[test]
fn the_last_client_there_may_be_is_not_refused_because_of_its_own_admission() {
    let mut cluster = Cluster::new(3);
    for _ in 1..common::API_NODES_MAX {
        cluster.come(0, 1, 1);
    }
    cluster.clients.push(Client { wants: 0, incarnation: 1, admitted: None });
    let last = cluster.clients.len() - 1;
    cluster.greet(last, 1, 0);
    cluster.quiet_but_wires(&[0, 1, 2]);
    cluster.deliver_all(2, 1);
    cluster.deliver_all(1, 2);
    cluster.kill(0, 0);
    cluster.finish_all();
    assert!(cluster.has_met("next registrar gives up an admission"));
    assert_eq!(cluster.answered.len(), cluster.clients.len(), "it was answered");
    assert!(cluster.clients[last].admitted.is_some(), "there is room for it, and it was refused");
}

/// A block of a data node that a session is not connected to wants it closed; the report about that is lost with the
/// president.
#[test]
fn who_is_to_be_closed_is_closed_by_the_next_registrar() {
    let mut cluster = Cluster::new(3);
    cluster.come(150, 1, 2);
    cluster.want_closed(1, 0, 150);
    assert!(cluster.has_met("API node is closed for a data node that it is not connected to"));
    cluster.kill(0, 0);
    cluster.finish_all();
    let is_open = cluster.nodes[2].drivers[0].connections.contains_key(&150);
    assert!(!is_open, "a block wanted it closed, and it is still connected");
}
