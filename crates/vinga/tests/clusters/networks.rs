//! Data nodes on hosts of their own, between which the network fails: those that can go on do, and no two parts go on.
//! All that clients are answered meanwhile, and the rows that are left, are checked as the simulator checks those of
//! its clusters: nothing that was acknowledged is lost, nothing is read that others have replaced.
//!
//! Clients and the management node reach every host all the time, unless a test says otherwise: a data node that others
//! do not reach any more would answer clients if it were allowed to. Only root can make such hosts; elsewhere nothing
//! is shown. `VINGA_ROUNDS` sets how often each fault is tried, `VINGA_SEED` the first seed.

use crate::bank::Bank;
use crate::loads::{WORKLOADS, check, workloads};
use crate::support::folder::{said, vinga};
use crate::support::number;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use vinga::DataNode;
use vinga::blocking::Cluster;
use vinga_rig::network::Network;
use vinga_rig::process::{NodeProcess, apart};
use vinga_runner::{Progress, Runner};

/// The exit code of a data node that could not go on.
const COULD_NOT_GO_ON: i32 = 71;
/// API nodes, over which sessions are spread.
const API_NODES: usize = 2;
/// One of each workload for each API node.
const SESSIONS: usize = API_NODES * WORKLOADS;
/// A pause of a session, in microseconds, at most: it takes seconds until a failure is noticed.
const PAUSE: u64 = 15_000;

/// Data nodes on hosts 1 to n, a management node on host n + 1, and clients on host n + 2.
struct Hosts<'a> {
    network: &'a Network,
    folder: TempDir,
    nodes: Vec<NodeProcess>,
    data_nodes: u8,
    _management: NodeProcess,
}

impl<'a> Hosts<'a> {
    /// Starts all, with two replicas. Each process has ids of processes of its own: none sees another one end.
    fn start(network: &'a Network, data_nodes: u8) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = |name: &str| folder.path().join(name);
        let key = path("key");
        let (ok, text) = said(vinga().arg("key").arg(&key).output());
        assert!(ok, "{text}");
        let management_host = data_nodes + 1;
        let mut text = format!(
            "[ndbd default]\nNoOfReplicas=2\nDiskless=yes\nDataMemory=64M\nServerPort=2202\n\
             HeartbeatIntervalDbDb=1500\nArbitrationTimeout=2000\nClusterKeyFile={key}\n\
             [ndb_mgmd default]\nClusterKeyFile={key}\n\
             [ndb_mgmd]\nNodeId={management_host}\nHostName={}\n",
            Network::address(management_host),
            key = key.display()
        );
        for node in 1..=data_nodes {
            text += &format!("[ndbd]\nNodeId={node}\nHostName={}\n", Network::address(node));
        }
        fs::write(path("config.ini"), text).expect("it is ours");
        let config = path("config.ini");
        let config = ["mgm", "--config", config.to_str().expect("it is text")];
        let mut management = run(network, management_host, &path("mgm"), &config);
        wait_ready(&mut management, &path("mgm"));
        let mut hosts = Hosts { network, folder, nodes: Vec::new(), data_nodes, _management: management };
        hosts.nodes = (1..=data_nodes).map(|node| hosts.start_node(node)).collect();
        for node in 1..=data_nodes {
            let folder = hosts.folder_of(node);
            wait_ready(hosts.node(node), &folder);
        }
        hosts
    }

    fn start_node(&self, node: u8) -> NodeProcess {
        let key = self.folder.path().join("key");
        let mgm = format!("key={},{}", key.display(), Network::address(self.management_host()));
        run(self.network, node, &self.folder_of(node), &["data", "--mgm", &mgm])
    }

    /// A data node that has ended is started again, and copies its rows from others.
    fn start_again(&mut self, node: u8) {
        // One that was killed has left it.
        let _ = fs::remove_file(self.folder_of(node).join("vinga.address"));
        let process = self.start_node(node);
        *self.node(node) = process;
    }

    fn folder_of(&self, node: u8) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    fn node(&mut self, node: u8) -> &mut NodeProcess {
        &mut self.nodes[usize::from(node) - 1]
    }

    fn count(&self) -> u8 {
        self.data_nodes
    }

    fn management_host(&self) -> u8 {
        self.count() + 1
    }

    /// A client on its host, which knows all data nodes.
    fn client(&self) -> Cluster {
        let addresses: Vec<String> =
            (1..=self.count()).map(|node| format!("{}:2202", Network::address(node))).collect();
        let key = self.folder.path().join("key");
        let addresses = format!("key={},{}", key.display(), addresses.join(","));
        self.network.on(self.count() + 2, || Cluster::connect(&addresses)).expect("they admit us")
    }

    /// Which data nodes have ended; how they have.
    fn ended(&mut self) -> Vec<(u8, Option<i32>)> {
        let ended = |(index, node): (usize, &mut NodeProcess)| {
            (!node.is_alive()).then(|| (index as u8 + 1, node.end()))
        };
        self.nodes.iter_mut().enumerate().filter_map(ended).collect()
    }

    /// What all data nodes have logged, for messages.
    fn logs(&self) -> String {
        (1..=self.count())
            .map(|node| format!("data node {node}:\n{}\n", log(&self.folder_of(node))))
            .collect()
    }
}

/// Starts a process on a host, with a folder and a log there.
fn run(network: &Network, host: u8, folder: &Path, arguments: &[&str]) -> NodeProcess {
    fs::create_dir_all(folder).expect("it is ours");
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("it is ours");
    let mut command = apart(vinga().get_program());
    command.env_remove("VINGA_CONNECT").env_remove("VINGA_FOLDER");
    command.args(arguments).arg("--folder").arg(folder).stdout(Stdio::null()).stderr(log);
    network.on(host, move || NodeProcess::start(&mut command, None))
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn wait_ready(process: &mut NodeProcess, folder: &Path) {
    let ready = process.wait_for(|| fs::read_to_string(folder.join("vinga.address")).ok());
    assert!(ready.is_some(), "{}", log(folder));
}

/// Starts data nodes, has clients work, lets something fail meanwhile, and waits until exactly one of these sets of
/// data nodes has stopped and the others have gone on. An empty set says that all go on. Then those that have stopped
/// are started again, come back while clients work, and get their share of the primaries.
fn fails(
    data_nodes: u8,
    stopping: &[&[u8]],
    fault: impl Fn(&mut Hosts<'_>, &Progress<'_>, &mut fastrand::Rng) + Sync,
) {
    let first = number("VINGA_SEED", 1);
    for seed in first..first + number("VINGA_ROUNDS", 1) {
        let network = match Network::new(data_nodes + 2) {
            Ok(network) => network,
            Err(why) => return eprintln!("skipped: no hosts can be made: {why}"),
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let context = format!("seed {seed}");
        let mut hosts = Hosts::start(&network, data_nodes);
        let cluster = hosts.client();
        let clusters = (0..API_NODES).map(|_| hosts.client()).collect();
        // Threads of the clients connect again from where they began.
        network.on(data_nodes + 2, || {
            let runner = Runner::new(clusters, workloads(PAUSE), seed);
            let mut runner = runner.unwrap_or_else(|what| panic!("{context}: {what}"));
            let ran = runner.run(SESSIONS, |progress| {
                progress.wait_for(random.u64(1..200));
                let before = cluster.data_node_states();
                fault(&mut hosts, progress, &mut random);
                let is_one = |ended: &[(u8, Option<i32>)]| {
                    stopping.iter().any(|set| ended.iter().map(|(node, _)| node).eq(set.iter()))
                };
                progress.wait_until(|| is_one(&hosts.ended()));
                progress.wait_for(100);
                let ended = hosts.ended();
                assert!(is_one(&ended), "{context}: {ended:?} have stopped\n{}", hosts.logs());
                let ended: Vec<u8> = ended.iter().map(|(node, _)| *node).collect();
                ended.iter().for_each(|&node| hosts.start_again(node));
                progress.wait_until(|| are_back(&ended, &before, &cluster.data_node_states()));
                progress.wait_for(100);
                assert!(hosts.ended().is_empty(), "{context}: all are there again\n{}", hosts.logs());
                progress.stop();
            });
            ran.unwrap_or_else(|what| panic!("{context}: {what}\n{}", hosts.logs()));
            let finished = runner.finish();
            let finished = finished.unwrap_or_else(|what| panic!("{context}: {what}\n{}", hosts.logs()));
            let summary = check(&finished, &context);
            eprintln!("{context}: {} transactions, {summary:?}", finished.history.transactions.len());
        });
    }
}

/// Whether other starts of these data nodes than before are members, with their share of the primaries: one that was
/// killed is a member until its lease is over.
fn are_back(nodes: &[u8], before: &[DataNode], now: &[DataNode]) -> bool {
    let start = |states: &[DataNode], node: u8| {
        states.iter().find(|one| one.node.0 == node).map(|one| one.incarnation)
    };
    let is_other = |&node: &u8| start(now, node).is_some_and(|now| Some(now) != start(before, node));
    now.len() == before.len() && nodes.iter().all(is_other) && DataNode::are_balanced(now)
}

/// Data nodes are killed, one after the other, and each comes back before the next one goes.
#[test]
fn each_comes_back_before_the_next_one_is_killed() {
    fails(4, &[&[1], &[2], &[3], &[4]], |hosts, clients, random| {
        let cluster = hosts.client();
        let first = random.u8(0..4);
        for at in 0..3 {
            let node = (first + at) % 4 + 1;
            let before = cluster.data_node_states();
            hosts.node(node).kill();
            clients.wait_for(random.u64(1..200));
            hosts.start_again(node);
            clients.wait_until(|| are_back(&[node], &before, &cluster.data_node_states()));
        }
        hosts.node((first + 3) % 4 + 1).kill();
    });
}

fn could_not_go_on(hosts: &mut Hosts<'_>) {
    for (node, code) in hosts.ended() {
        assert_eq!(code, Some(COULD_NOT_GO_ON), "data node {node}\n{}", hosts.logs());
    }
}

#[test]
fn the_others_go_on_when_a_node_is_killed() {
    fails(4, &[&[1], &[2], &[3], &[4]], |hosts, _, random| hosts.node(random.u8(1..=4)).kill());
}

#[test]
fn a_node_that_stood_still_stops_when_it_runs_again() {
    fails(4, &[&[1], &[2], &[3], &[4]], |hosts, clients, random| {
        let node = random.u8(1..=4);
        hosts.node(node).signal(Signal::STOP);
        clients.wait_for(200);
        hosts.node(node).signal(Signal::CONT);
        clients.wait_until(|| !hosts.node(node).is_alive());
        could_not_go_on(hosts);
    });
}

#[test]
fn one_of_two_is_left_out_when_the_link_between_them_is_cut() {
    fails(4, &[&[2], &[3]], |hosts, clients, _| {
        let _cut = hosts.network.split(&[2], &[3]);
        clients.wait_until(|| !hosts.ended().is_empty());
        clients.wait_for(100);
        could_not_go_on(hosts);
    });
}

#[test]
fn one_of_two_is_left_out_when_only_one_direction_is_cut() {
    fails(4, &[&[1], &[4]], |hosts, clients, random| {
        let (from, to) = if random.bool() { (1, 4) } else { (4, 1) };
        let _cut = hosts.network.cut(from, to);
        clients.wait_until(|| !hosts.ended().is_empty());
        clients.wait_for(100);
        could_not_go_on(hosts);
    });
}

#[test]
fn the_arbitrator_decides_between_two_replicas() {
    fails(2, &[&[1], &[2]], |hosts, clients, _| {
        let _cut = hosts.network.split(&[1], &[2]);
        clients.wait_until(|| !hosts.ended().is_empty());
        clients.wait_for(100);
        could_not_go_on(hosts);
    });
}

/// Each half has a node of each group, and clients reach both.
#[test]
fn the_arbitrator_decides_between_two_halves() {
    fails(4, &[&[1, 3], &[2, 4]], |hosts, clients, _| {
        let _cut = hosts.network.split(&[1, 3], &[2, 4]);
        clients.wait_until(|| hosts.ended().len() == 2);
        clients.wait_for(100);
        could_not_go_on(hosts);
    });
}

#[test]
fn a_node_that_reaches_no_other_stops_though_clients_reach_it() {
    fails(4, &[&[3]], |hosts, clients, _| {
        let _cut = hosts.network.split(&[3], &[1, 2, 4]);
        clients.wait_until(|| !hosts.ended().is_empty());
        clients.wait_for(100);
        could_not_go_on(hosts);
    });
}

#[test]
fn short_failures_of_links_and_slow_links_leave_nobody_out() {
    fails(4, &[&[]], |hosts, clients, random| {
        hosts.network.slow_down(2, 5_000);
        for _ in 0..20 {
            let (from, to) = (random.u8(1..=4), random.u8(1..=4));
            if from != to {
                let _cut = hosts.network.cut(from, to);
                thread::sleep(Duration::from_millis(random.u64(1..60)));
            }
            clients.wait_for(5);
        }
    });
}

/// Nobody is asked: neither of two replicas goes on, and clients are answered that.
#[test]
fn both_replicas_stop_when_neither_reaches_the_arbitrator() {
    let network = match Network::new(4) {
        Ok(network) => network,
        Err(why) => return eprintln!("skipped: no hosts can be made: {why}"),
    };
    let mut hosts = Hosts::start(&network, 2);
    let cluster = hosts.client();
    network.on(4, || {
        let bank = Bank::new(&cluster, "");
        bank.run(|| {
            bank.wait_for(10);
            let _alone = [network.split(&[1], &[2]), network.split(&[1, 2], &[hosts.management_host()])];
            bank.wait_until(|| hosts.ended().len() == 2);
            could_not_go_on(&mut hosts);
        });
    });
}
