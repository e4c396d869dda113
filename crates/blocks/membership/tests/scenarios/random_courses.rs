//! Random courses that are denser than those of `model.rs`: few clients, that mostly want the same ids; six data nodes
//! in two groups, of which up to four fail, mostly the president.

use crate::cluster::{Client, Cluster};
use vinga_kernel::Span;

const NODES: usize = 6;
const GROUPS: usize = 2;

/// Numbers that are the same in every run of the test.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        // Knuth's MMIX generator; its high bits are good enough here.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A client or a block does something.
fn act(cluster: &mut Cluster, numbers: &mut Numbers) {
    let (at, driver) = (numbers.below(NODES), numbers.below(2));
    let action = numbers.below(12);
    if action < 2 && cluster.clients.len() < 8 {
        let wants = [150, 150, 0, 151][numbers.below(4)];
        // Ids of transactions have the low 16 bits of what they get.
        let incarnation = ((cluster.clients.len() + numbers.below(2)) as u32) << 16;
        cluster.clients.push(Client { wants, incarnation, admitted: None });
        return cluster.greet(cluster.clients.len() - 1, at, driver as u16);
    }
    if cluster.clients.is_empty() {
        return;
    }
    let client = numbers.below(cluster.clients.len());
    let admitted = cluster.clients[client].admitted.map(|(api, _)| api);
    match action {
        0..=5 => cluster.greet(client, at, numbers.below(4) as u16),
        6 | 7 => {
            let apis: Vec<u8> = cluster.nodes[at].drivers[driver].connections.keys().copied().collect();
            if cluster.nodes[at].is_alive && !apis.is_empty() {
                cluster.hang_up(at, driver, apis[numbers.below(apis.len())]);
            }
        }
        8 => {
            let waiting = &mut cluster.nodes[at].drivers[driver].waiting;
            if let Some(socket) = waiting.values_mut().nth(numbers.below(3)) {
                socket.dead = true;
            }
        }
        9 => (0..NODES).for_each(|at| admitted.iter().for_each(|&api| cluster.send_heartbeat(at, api))),
        10 => {
            let incarnation = cluster.clients[client].incarnation;
            admitted.iter().for_each(|&api| cluster.leave(at, api, incarnation));
        }
        _ => cluster.want_closed(at, driver, [145, 146, 150, 151][numbers.below(4)]),
    }
}

#[test]
fn nothing_is_left_however_many_presidents_fail() {
    let mut missing = Vec::from([
        "next registrar closes a session",
        "next registrar gives up an admission",
        "next registrar is to close an API node, too",
        "greeting waits for the session that was begun for it",
        "session comes back before its loss was noticed",
        "order to close an API node that is being closed already",
        "order to close an API node that is not admitted",
    ]);
    for seed in 0..1000 {
        let mut numbers = Numbers(seed);
        for _ in 0..4 {
            numbers.below(2);
        }
        let mut cluster = Cluster::in_groups(NODES as u8, GROUPS as u8);
        let mut left = [NODES / GROUPS; GROUPS];
        let kill_rarity = [30, 60, 150, 400][numbers.below(4)];
        let act_rarity = [3, 6, 12, 25][numbers.below(4)];
        for _ in 0..600 {
            if numbers.one_in(kill_rarity) {
                let at = if numbers.one_in(3) { numbers.below(NODES) } else { cluster.president() };
                if cluster.nodes[at].is_alive && left[at % GROUPS] > 1 {
                    left[at % GROUPS] -= 1;
                    cluster.kill(at, numbers.below(4));
                }
            }
            if numbers.one_in(200) {
                for _ in 0..numbers.below(40) {
                    cluster.drivers_catch_up();
                    cluster.advance(Span::from_millis(100));
                }
            }
            if numbers.one_in(act_rarity) {
                act(&mut cluster, &mut numbers);
            }
            cluster.receive_one(numbers.below(100_000));
        }
        cluster.come_to_rest();
        missing.retain(|mark| !cluster.has_met(mark));
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}
