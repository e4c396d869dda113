//! A node group is added to a cluster that runs, and partitions move there: clients, which never try again, notice
//! nothing of it.

use crate::bank::Bank;
use crate::leaving::{connect, json, refused};
use crate::restarts::{PAIR, SETTINGS, up, up_with};
use crate::returning::Rows;
use crate::support::HANG_GUARD;
use crate::support::folder::{Folder, said};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{DataNode, NodeId};
use vinga_runtime::node_folder::NodeFolder;

/// Two data nodes, whose file says what all have to agree on.
fn pair() -> Folder {
    let folder = up(&PAIR);
    let text = config(&folder).replace("[ndbd default]\n", "[ndbd default]\nHeartbeatIntervalDbDb=5000\n");
    fs::write(folder.0.join("config.ini"), text).expect("it can be changed");
    folder
}

fn add(folder: &Folder) -> (bool, String) {
    folder.run("admin", &["add", "nodegroup", "--set", "DataMemory=64M"])
}

/// Partitions of each node group, without those on their way.
fn shares(cluster: &Cluster) -> Vec<usize> {
    cluster.node_groups().iter().map(|group| group.partitions).collect()
}

fn config(folder: &Folder) -> String {
    fs::read_to_string(folder.0.join("config.ini")).expect("it is there")
}

/// Two node groups are added, one after the other; one of the new data nodes is killed, and comes back.
#[test]
fn nobody_notices_a_node_group_that_is_added() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "a node group is added");
    bank.run(|| {
        bank.wait_for(50);
        // The management node has id 3.
        for (ids, expected) in [([4u8, 5], vec![4, 4]), ([6, 7], vec![3, 3, 2])] {
            let (ok, text) = add(&folder);
            assert!(ok && text.contains("management node 3 is started again, on"), "{text}");
            for id in ids {
                assert!(text.contains(&format!("data node {id} is ready on ")), "{text}");
            }
            bank.wait_until(|| cluster.node_groups().len() == expected.len());
            assert_eq!(shares(&cluster).last(), Some(&0), "it gets nothing by itself");
            bank.wait_for(50);
            let said = json(&folder, &["reorganize"]);
            assert_eq!(said["reorganizes"], false, "{said}");
            bank.wait_until(|| shares(&cluster) == expected);
            bank.wait_until(|| DataNode::are_balanced(&cluster.data_node_states()));
            bank.wait_for(50);
            rows.check(&cluster);
        }
    });
    bank.check_that_none_has_failed();
    bank.check();
    let (ok, text) = folder.run("admin", &["show"]);
    assert!(ok && text.contains("data nodes of node group 2:\n  6   started"), "{text}");
    assert!(text.contains("management node 3 decides which data nodes go on"), "{text}");
}

/// Each of the new data nodes is the last one with its rows for a while.
#[test]
fn data_nodes_that_were_added_are_killed_and_come_back() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 3_000);
    let (ok, text) = add(&folder);
    assert!(ok, "{text}");
    json(&folder, &["reorganize"]);
    let bank = Bank::new(&cluster, "data nodes that were added are killed");
    bank.run(|| {
        for killed in [4u8, 2, 5, 1] {
            bank.wait_for(50);
            let node = NodeFolder::new(&folder.0, killed);
            let pid = node.running().expect("the folder is there").expect("it runs");
            kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
            bank.wait_until(|| !cluster.data_nodes().contains(&NodeId(killed)));
            bank.wait_for(50);
            // Its parent starts it again, or has done so.
            bank.wait_until(|| {
                cluster.data_node_states().iter().filter(|one| one.partitions == 4).count() == 4
            });
        }
        bank.wait_for(50);
    });
    bank.check();
    rows.check(&cluster);
}

/// A cluster begins with all of them when it is started again.
#[test]
fn a_cluster_that_has_grown_begins_with_all_data_nodes() {
    let folder = pair();
    let (ok, text) = add(&folder);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("data node 5 has stopped"), "{text}");
    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(ok && text.contains("4 data nodes, 2 node groups, NoOfReplicas=2"), "{text}");
    assert_eq!(shares(&connect(&folder, &[1, 2])), [8, 8], "each has all its data managers");
}

#[test]
fn what_can_not_be_added_is_said_and_nothing_is_changed() {
    let folder = up(&PAIR);
    let before = config(&folder);
    let text = refused(&folder, &["add", "nodegroup", "--set", "DataMemory=much"]);
    assert!(text.contains("DataMemory=much") && text.contains("with the node group added"), "{text}");
    let text = refused(&folder, &["add", "nodegroup", "--set", "NoSuchThing=1"]);
    assert!(text.contains("NoSuchThing"), "{text}");
    assert_eq!(config(&folder), before);
    let addresses = folder.addresses([1, 2]);
    let (ok, text) = said(
        crate::support::folder::vinga().args(["admin", "--connect", &addresses, "add", "nodegroup"]).output(),
    );
    assert!(!ok && text.contains("--folder"), "{text}");
    assert_eq!(config(&folder), before);

    let one_copy = up_with(&SETTINGS, &["--data-nodes", "2"]);
    let text = refused(&one_copy, &["add", "nodegroup"]);
    assert!(text.contains("NoOfReplicas=1") && text.contains("Nothing was changed"), "{text}");
    let alone = up(&[]);
    let text = refused(&alone, &["add", "nodegroup"]);
    assert!(text.contains("a cluster that began with one can't get more"), "{text}");
}

/// The file has the data nodes, but they can't be started: the same command goes on when they can.
#[test]
fn a_command_that_has_failed_on_the_way_goes_on() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 300);
    // In the place of the log of the second one.
    let in_the_way = folder.0.join("node-5/vinga.log");
    fs::create_dir_all(&in_the_way).expect("it can be made");
    let (ok, text) = add(&folder);
    assert!(!ok && text.contains("data node 5: cannot start it in"), "{text}");
    assert!(text.contains("the same command goes on with data nodes 4, 5"), "{text}");
    let half_way = config(&folder);
    let text = refused(&folder, &["add", "nodegroup", "--set", "DataMemory=32M"]);
    assert!(text.contains("has no DataMemory=32M there. Leave --set out"), "{text}");
    fs::remove_dir(&in_the_way).expect("it is there");
    let (ok, text) = add(&folder);
    assert!(ok && text.contains("data node 5 is ready on"), "{text}");
    assert_eq!(config(&folder), half_way, "it has added no other node group");
    assert_eq!(cluster.node_groups().len(), 2);
    json(&folder, &["reorganize"]);
    // Another client has waited for that.
    let begun = Instant::now();
    while shares(&cluster) != [4, 4] {
        assert!(begun.elapsed() < HANG_GUARD, "{:?}", cluster.node_groups());
        std::thread::sleep(Duration::from_millis(1));
    }
    rows.check(&cluster);
}

/// It is said which one, and how much memory it takes; the cluster goes on as it was.
#[test]
fn data_nodes_without_room_for_a_partition_get_none() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 40_000);
    let (ok, text) = folder.run("admin", &["add", "nodegroup", "--set", "DataMemory=16M"]);
    assert!(ok, "{text}");
    let text = refused(&folder, &["reorganize"]);
    assert!(
        text.contains("has no room for a further partition") && text.contains("Nothing is lost"),
        "{text}"
    );
    assert_eq!(cluster.data_nodes().len(), 4);
    rows.check(&cluster);
    let larger = config(&folder).replace("DataMemory=16M", "DataMemory=64M");
    fs::write(folder.0.join("config.ini"), larger).expect("it can be changed");
    let (ok, text) = folder.run("admin", &["rolling-restart"]);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("admin", &["reorganize"]);
    assert!(ok && text.contains("each node group has its share"), "{text}");
    assert_eq!(shares(&connect(&folder, &[1, 2])), [4, 4]);
    rows.check(&cluster);
}

/// Nothing is stopped for a file with which the cluster can't go on.
#[test]
fn a_file_that_does_not_fit_the_cluster_is_refused() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let good = config(&folder);
    let incarnations = || cluster.data_node_states().iter().map(|one| one.incarnation).collect::<Vec<_>>();
    let before = incarnations();
    let one_replica = good.replace("NoOfReplicas=2", "NoOfReplicas=1");
    let ports: String = good
        .lines()
        .map(|line| match line.strip_prefix("ServerPort=") {
            Some(port) => format!("ServerPort={}1\n", &port[..port.len() - 1]),
            None => format!("{line}\n"),
        })
        .collect();
    let too_much = good.replace("[ndbd default]\n", "[ndbd default]\nDataMemory=9000G\n");
    let bad = good.replace("[ndbd default]\n", "[ndbd default]\nNoSuchThing=1\n");
    let cases = [
        (&one_replica, "does not describe the cluster that runs"),
        (&ports, "does not describe the cluster that runs"),
        (&too_much, "would have a DataMemory of"),
        (&bad, "NoSuchThing"),
    ];
    for (text, why) in cases {
        fs::write(folder.0.join("config.ini"), text).expect("it can be changed");
        for command in [&["rolling-restart"][..], &["restart", "2"], &["add", "nodegroup"]] {
            let text = refused(&folder, command);
            assert!(text.contains(why), "{command:?}: {text}");
        }
        assert_eq!(config(&folder), *text);
    }
    fs::write(folder.0.join("config.ini"), &good).expect("it can be changed");
    assert_eq!(incarnations(), before);
    // One of the cluster's own that is away is none that was added.
    let (ok, text) = folder.run("admin", &["stop", "2", "--wait"]);
    assert!(ok, "{text}");
    let text = refused(&folder, &["add", "nodegroup"]);
    assert!(text.contains("data node 2 of the cluster is not in it at the moment"), "{text}");
    assert_eq!(config(&folder), good);
}

/// Data nodes were added to the file. Those that run know them when they have been started again; the management node
/// arbitrates before and after, with the old file and with the new one.
#[test]
fn data_nodes_that_were_added_to_the_file_join_when_the_others_know_them() {
    let folder = pair();
    let cluster = connect(&folder, &[1, 2]);
    let bank = Bank::new(&cluster, "data nodes are added by hand");
    let mut text = config(&folder);
    for (node, port) in [5, 6].iter().zip(free_ports()) {
        text.push_str(&format!("\n[ndbd]\nNodeId={node}\nServerPort={port}\n"));
    }
    fs::write(folder.0.join("config.ini"), text).expect("it can be changed");
    let up = || said(folder.plain_command("up").args(SETTINGS).output());
    let holds_the_ticket = || folder.run("admin", &["show"]).1.contains("management node 3 holds the ticket");
    bank.run(|| {
        let (ok, text) = up();
        assert!(!ok && text.contains("data node 5 has not started") && text.contains("20031"), "{text}");
        assert!(text.contains("data nodes that were added to the file do not run: 5, 6"), "{text}");
        assert!(text.contains("\n2 data nodes, 1 node group, NoOfReplicas=2\n"), "{text}");
        assert!(!text.contains("was changed since"), "{text}");
        for restarted in ["2", "1"] {
            let (ok, text) = folder.run("admin", &["restart", restarted]);
            assert!(ok, "one knows them, and the other does not: {text}");
            // The one that leads asks the one that still has the old file.
            bank.wait_until(holds_the_ticket);
        }
        let (ok, text) = folder.run("admin", &["rolling-restart"]);
        assert!(ok && text.contains("management node 3 is started again, on"), "{text}");
        assert!(text.contains("all 2 data nodes are restarted, in"), "{text}");
        let (ok, text) = up();
        assert!(ok && text.contains("4 data nodes, 2 node groups, NoOfReplicas=2"), "{text}");
        assert_eq!(text.matches(": it has joined the others").count(), 2, "{text}");
        bank.wait_until(holds_the_ticket);
    });
    bank.check_that_none_has_failed();
    bank.check();
}

/// Two ports that nobody has now, below those that the system gives to connections.
fn free_ports() -> [u16; 2] {
    let free = || {
        let mut tried = std::iter::repeat_with(|| fastrand::u16(10_000..32_000));
        tried.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("it is endless")
    };
    [free(), free()]
}
