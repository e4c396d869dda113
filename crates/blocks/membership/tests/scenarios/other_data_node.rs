//! A session that comes back, perhaps by another data node than those it was connected to.

use crate::cluster::Cluster;

/// A session is connected to one data node. Its connection breaks, and it comes back by another data node before the
/// registrar knows that.
#[test]
fn who_comes_back_by_another_data_node_is_admitted_when_everything_is_finished() {
    let mut cluster = Cluster::new(3);
    let client = cluster.come(150, 1, 1);
    cluster.hang_up(1, 0, 150);
    cluster.drivers_catch_up();
    // The report is on its way from node 2 when node 3 asks.
    cluster.greet(client, 2, 0);
    cluster.drivers_catch_up();
    cluster.deliver_all(3, 1);
    cluster.deliver_all(1, 3);
    cluster.drivers_catch_up();
    let is_back = cluster.nodes[2].drivers[0].connections.contains_key(&150);
    let finished = cluster.finished_at(1, (150, 1));
    assert!(
        !is_back || finished == [1, 1],
        "confirmed by node 3 when the blocks of node 2 have ended it {finished:?} times"
    );
    assert!(cluster.has_met("session comes back before its loss was noticed"));
    cluster.finish_all();
    assert!(
        cluster.nodes[2].drivers[0].connections.contains_key(&150),
        "it is admitted then, by that greeting"
    );
}

/// A session has come back to two data nodes, and its API node has read neither confirm when it greets for a further
/// connection. What it names as lost are connections of the admission before.
#[test]
fn who_has_not_read_that_it_is_back_is_not_closed_once_more() {
    let mut cluster = Cluster::new(3);
    let client = cluster.come(150, 1, 1);
    cluster.greet(client, 2, 0);
    cluster.finish_all();
    cluster.hang_up(1, 0, 150);
    cluster.hang_up(2, 0, 150);
    cluster.finish_all();
    for at in [1, 2] {
        cluster.greet(client, at, 0);
    }
    let finish_all_but_clients = |cluster: &mut Cluster| {
        let mut has_worked = true;
        while has_worked {
            cluster.quiet_but_wires(&[0, 1, 2]);
            has_worked = (0..9).any(|wire| cluster.wire_delivers(wire / 3 + 1, wire % 3 + 1));
        }
    };
    finish_all_but_clients(&mut cluster);
    cluster.greet(client, 1, 1);
    finish_all_but_clients(&mut cluster);
    assert!(!cluster.has_met("session comes back before its loss was noticed"));
    for (at, driver) in [(1, 0), (1, 1), (2, 0)] {
        assert!(cluster.nodes[at].drivers[driver].connections.contains_key(&150));
    }
}
