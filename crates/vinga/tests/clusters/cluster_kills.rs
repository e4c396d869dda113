//! Data nodes are killed while clients work: nothing that was acknowledged is lost, nothing is half done, and the
//! others go on. `VINGA_ROUNDS` sets how many rounds, `VINGA_SEED` the first seed.

use crate::bank::Bank;
use crate::support::folder::{Folder, said};
use crate::support::number;
use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga_runtime::node_folder::NodeFolder;

fn pid(folder: &Folder, node: u8) -> Pid {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

/// One round: a cluster of some data nodes, of which as many are killed as its groups can do without.
fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (data_nodes, replicas) = [(2, 2), (3, 3), (4, 2)][random.usize(..3)];
    let context = format!("seed {seed}: {data_nodes} data nodes, {replicas} replicas");
    let folder = Folder::new();
    let sizes = ["--data-nodes".into(), data_nodes.to_string(), "--replicas".into(), replicas.to_string()];
    let mut up = folder.command("up");
    up.args(["--set", "DataMemory=64M", "--set", "HeartbeatIntervalDbDb=5000", "--port", "0"]).args(sizes);
    let (ok, text) = said(up.output());
    assert!(ok, "{context}: {text}");
    let cluster = Cluster::connect(&folder.addresses(1..=data_nodes)).expect("they admit us");
    let bank = Bank::new(&cluster, &context);
    // Groups are made in order of the ids: the first `replicas` nodes are the first group.
    let groups = data_nodes / replicas;
    let victims: Vec<u8> = (0..groups)
        .flat_map(|group| {
            let mut nodes: Vec<u8> = (group * replicas + 1..=(group + 1) * replicas).collect();
            random.shuffle(&mut nodes);
            nodes.truncate(usize::from(replicas) - 1);
            nodes
        })
        .collect();
    bank.run(|| {
        for node in victims {
            // Some transactions between two deaths, or none.
            bank.wait_for(random.u64(1..200));
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
            kill_process(pid(&folder, node), Signal::KILL).expect("it runs");
        }
        // The others go on.
        bank.wait_for(100);
    });
    bank.check();
    drop(cluster);
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{context}: {text}");
}

#[test]
fn nothing_acknowledged_is_lost_when_data_nodes_are_killed() {
    let first = number("VINGA_SEED", 1);
    for seed in first..first + number("VINGA_ROUNDS", 4) {
        round(seed);
    }
}
