//! Random interleavings: API nodes connect, break, come back and die; drivers and blocks answer late; time goes by;
//! data nodes fail, the president too.

use crate::cluster::{Client, Cluster};
use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use vinga_base::NodeId;
use vinga_kernel::Span;
use vinga_wire::{Address, BlockNumber, SignalNumber};

type Action = (u8, u8, u8);

fn act(cluster: &mut Cluster, (action, a, b): Action) {
    let nodes = cluster.nodes.len();
    let (at, driver) = (usize::from(a) % nodes, usize::from(a) / nodes % 2);
    let some_client =
        (!cluster.clients.is_empty()).then(|| usize::from(a) / 3 % cluster.clients.len().max(1));
    match action {
        0 => {
            let wants = if b % 2 == 0 { 0 } else { 145 + b % 5 };
            let incarnation = cluster.clients.len() as u32 / 3 + u32::from(b % 3);
            cluster.clients.push(Client { wants, incarnation, admitted: None });
            cluster.greet(cluster.clients.len() - 1, at, u16::from(a % 2));
        }
        1 => {
            if let Some(client) = some_client {
                cluster.greet(client, usize::from(b) % nodes, u16::from(b / 16 % 4));
            }
        }
        2 if cluster.nodes[at].is_alive => {
            let apis: Vec<u8> = cluster.nodes[at].drivers[driver].connections.keys().copied().collect();
            if !apis.is_empty() {
                cluster.hang_up(at, driver, apis[usize::from(b) % apis.len()]);
            }
        }
        3 => {
            let waiting = &mut cluster.nodes[at].drivers[driver].waiting;
            if let Some(socket) = waiting.values_mut().nth(usize::from(b % 4)) {
                socket.dead = true;
            }
        }
        4..=8 => {
            // Several at once, or nothing would ever be done.
            for choice in 0..=usize::from(b % 8) {
                cluster.receive_one(usize::from(a) * 7 + choice * usize::from(b));
            }
        }
        9 if b % 8 == 7 => {
            cluster.is_late = true;
            cluster.advance(Span(2 * HEARTBEAT.0));
        }
        9 => {
            for _ in 0..b / 8 {
                cluster.drivers_catch_up();
                cluster.advance(Span::from_millis(100));
            }
        }
        10 => {
            if let Some((api, _)) = some_client.and_then(|client| cluster.clients[client].admitted) {
                (0..nodes).for_each(|at| cluster.send_heartbeat(at, api));
            }
        }
        11 if b % 4 == 0 => {
            let known = some_client.map(|client| &cluster.clients[client]);
            if let Some(&Client { admitted: Some((api, _)), incarnation, .. }) = known {
                cluster.leave(usize::from(b / 4) % nodes, api, incarnation);
            }
        }
        12 if b % 8 == 0 => cluster.kill(at, usize::from(b / 8) % 4),
        _ => {}
    }
}

fn run(actions: impl IntoIterator<Item = Action>) -> Cluster {
    let mut cluster = Cluster::new(3);
    for action in actions {
        act(&mut cluster, action);
    }
    cluster.come_to_rest();
    cluster
}

/// Actions that are the same in every run of the test.
fn actions(seed: u64) -> impl Iterator<Item = Action> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        // Knuth's MMIX generator; its high bits are good enough here.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 56) as u8 % 13, (state >> 48) as u8, (state >> 40) as u8)
    })
    .take(400)
}

#[test]
fn rare_branches_are_met() {
    let mut missing = BTreeSet::from([
        "newer session waits for the older to close",
        "newer session ends the grace time of the older",
        "newer session waits for the older to be forgotten",
        "same session waits for its connections to close",
        "waiting connection was closed with its session",
        "closing goes on without a failed data node",
        "forgetting goes on without a failed data node",
        "admission goes on without a failed data node",
        "further connection of a session that is being admitted",
        "driver did not report a closed connection",
        "greeting is held back until its session is closed",
        "greeting is sent once more to the next registrar",
        "next registrar goes on forgetting a session",
        "next registrar gives up an admission",
        "next registrar goes on closing a session",
        "next registrar goes on with a connected session",
        "next registrar closes a session",
        "next registrar asks for what is being done",
        "next registrar asks for what was done already",
        "next registrar waits until blocks have confirmed the stage before",
    ]);
    for seed in 0..600 {
        let cluster = run(actions(seed));
        missing.retain(|mark| !cluster.has_met(mark));
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}

/// A session comes, opens connections to all data nodes, loses one, comes back and leaves. The president dies after any
/// number of signals; with each order in which the others may be received.
#[test]
fn the_president_dies_at_any_moment() {
    for order in 0..40 {
        let mut after = 0;
        loop {
            let mut cluster = Cluster::new(3);
            let step = |cluster: &mut Cluster| {
                let mut turn = order;
                while cluster.receive_one(turn) {
                    turn = (turn * 31 + order + 1) % 1009;
                    if cluster.received >= after {
                        cluster.kill(0, order % 3);
                    }
                }
            };
            cluster.clients.push(Client { wants: 150, incarnation: 1, admitted: None });
            for (at, connection) in [(1, 0), (1, 1), (2, 0), (0, 0), (2, 1)] {
                cluster.greet(0, at, connection);
                step(&mut cluster);
            }
            cluster.hang_up(1, 0, 150);
            cluster.greet(0, 2, 0);
            step(&mut cluster);
            cluster.greet(0, 1, 0);
            step(&mut cluster);
            cluster.leave(2, 150, cluster.clients[0].incarnation);
            step(&mut cluster);
            let is_over = cluster.received < after;
            cluster.come_to_rest();
            if is_over {
                break;
            }
            after += 1;
        }
        assert!(after > 100, "the president dies in the middle of it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_id_is_leaked_or_shared(
        actions in proptest::collection::vec((0u8..13, any::<u8>(), any::<u8>()), 0..400),
    ) {
        run(actions);
    }

    /// Whatever an API node puts into a signal to membership, the block goes on.
    #[test]
    fn malformed_bodies_do_no_harm(number in 0u16..200, body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut harness = harness();
        let sender = Address::new(NodeId(150), BlockNumber::Api, 0);
        if let Some(signal) = SignalNumber::from_number(number) {
            let _ = harness.send(sender, signal, |writer| {
                writer.bytes(&body);
            });
        }
    }
}
