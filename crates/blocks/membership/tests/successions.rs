//! Courses of events with several presidents that die one after the other.

#[allow(dead_code, reason = "this file needs only some of it")]
mod cluster;
#[allow(dead_code, reason = "this file needs only some of it")]
mod common;

use cluster::{Client, Cluster};

/// The wires between memberships are chosen one by one.
fn quiet_but_wires(cluster: &mut Cluster, nodes: &[usize]) {
    loop {
        let mut has_worked = false;
        for &at in nodes {
            while (0..2).any(|which| {
                cluster.driver_receives(at, which)
                    || cluster.driver_says(at, which)
                    || cluster.block_receives(at, which)
                    || cluster.block_says(at, which)
            }) {
                has_worked = true;
            }
        }
        if !has_worked {
            return;
        }
    }
}

fn deliver_all(cluster: &mut Cluster, from: u8, to: u8) {
    while cluster.wire_delivers(from, to) {}
}

/// Two presidents die one after the other: the first during an admission, the second while it gives that up. At that
/// moment the session is closed at one host, admitted at another and unknown to a third.
#[test]
fn two_presidents_die_during_an_admission() {
    let mut cluster = Cluster::in_groups(6, 2);
    cluster.clients.push(Client { wants: 150, incarnation: 1, admitted: None });
    cluster.greet(0, 2, 0);
    quiet_but_wires(&mut cluster, &[0, 1, 2, 3, 4, 5]);
    deliver_all(&mut cluster, 3, 1);
    // The first president asks all hosts; node 6 is not reached.
    for to in [2, 3, 4, 5] {
        deliver_all(&mut cluster, 1, to);
    }
    quiet_but_wires(&mut cluster, &[1, 2, 3, 4, 5]);
    cluster.kill(0, 0);
    for at in [1, 2, 3, 4, 5] {
        assert!(cluster.adopt(at));
    }
    // The second one asks everybody, and gives the admission up; only node 3 is notified.
    for other in [3, 4, 5, 6] {
        deliver_all(&mut cluster, 2, other);
        deliver_all(&mut cluster, other, 2);
    }
    assert!(cluster.has_met("next registrar gives up an admission"));
    deliver_all(&mut cluster, 2, 3);
    quiet_but_wires(&mut cluster, &[2, 3, 4, 5]);
    cluster.kill(1, 0);
    cluster.finish_all();
    cluster.come_to_rest();
}
